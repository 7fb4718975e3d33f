/* SPDX-License-Identifier: BSD-2-Clause */
/* quota.c - regions and grants as the host counts them, and the limits that it set for them. */
#include "backends/engine/engine.h"

#include <string.h>

#include "backends/engine/args.h"

/*
 * One registration, and one grant, is one in each device, and so the ledger counts it (limits are
 * multiplied in the same way, open.c).  The host asked for one: with several devices it is shown what
 * it has, and as stuck what is withheld in any of them.
 */
static void count_regions(struct escrow_engine *e, struct escrow_charge *c)
{
	uint32_t i;

	c->used = c->stuck = 0;
	for (i = 0; i < e->config.max_regions; i++) {
		const struct region *r = &e->regions[i];
		uint64_t n = c->kind == ESCROW_CHARGE_BYTES ? r->length : 1;

		if (r->state == REGION_LIVE || r->state == REGION_LEAVING || r->stuck)
			c->used += n;
		c->stuck += r->stuck ? n : 0;
	}
}

static const char *account_of(const struct peer *p)
{
	return p->any ? ENGINE_ANY_ACCOUNT : p->name;
}

static bool is_of(const struct grant *g, const char *account)
{
	return !account[0] || (g->peer && strcmp(account_of(g->peer), account) == 0);
}

static void count_grants(struct escrow_engine *e, struct escrow_charge *c)
{
	uint32_t i;

	c->used = c->stuck = 0;
	for (i = 0; i < e->config.max_grants; i++) {
		const struct grant *g = &e->grants[i];
		uint64_t n = c->kind == ESCROW_CHARGE_GRANTS ? 1 : g->length;

		if (!is_of(g, c->peer_name))
			continue;
		if ((g->state != GRANT_FREE && g->state != GRANT_ENDED) || g->stuck)
			c->used += n;
		c->stuck += g->stuck ? n : 0;
	}
}

void en_quota_count(struct escrow_engine *e, struct escrow_charge *c)
{
	if (c->kind >= ESCROW_CHARGE_GRANTS)
		count_grants(e, c);
	else if (!c->peer_name[0])
		count_regions(e, c);
}

static escrow_status check_one(struct escrow_engine *e, uint32_t kind, const char *account,
			       uint64_t limit, uint64_t amount, struct escrow_error *error)
{
	static const char *const words[] = {
		[ESCROW_CHARGE_BYTES] = "bytes",
		[ESCROW_CHARGE_REGIONS] = "regions",
		[ESCROW_CHARGE_GRANTS] = "grants",
		[ESCROW_CHARGE_GRANTED_BYTES] = "granted_bytes",
	};
	struct escrow_charge c = {.kind = kind};

	if (!limit)
		return ESCROW_OK;
	strncpy(c.peer_name, account, sizeof(c.peer_name) - 1);
	en_quota_count(e, &c);
	if (c.used <= limit && amount <= limit - c.used)
		return ESCROW_OK;
	return args_fail(error, ESCROW_E_QUOTA,
			 "%s of %s: %llu more than the %llu in use exceed %llu", words[kind],
			 account[0] ? account : "the engine", (unsigned long long)amount,
			 (unsigned long long)c.used, (unsigned long long)limit);
}

escrow_status en_quota_check(struct escrow_engine *e, uint32_t kind, const struct peer *p,
			     uint64_t amount, struct escrow_error *error)
{
	escrow_status st = check_one(e, kind, "", e->config.quota[kind], amount, error);

	if (st == ESCROW_OK && p)
		st = check_one(e, kind, account_of(p), e->config.peer_quota[kind], amount, error);
	return st;
}
