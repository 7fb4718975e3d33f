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

const char *en_quota_account(const struct peer *p)
{
	return p->any ? ENGINE_ANY_ACCOUNT : p->name;
}

static bool is_of(const struct grant *g, const char *account)
{
	return !account[0] || (g->peer && strcmp(en_quota_account(g->peer), account) == 0);
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

/* ---- The limits ----------------------------------------------------------------------------------- */
static void add(struct granted *to, const struct grant *g, bool made)
{
	to->grants += made ? 1 : -1;
	to->bytes += made ? g->length : 0 - g->length;
}

static void count(struct escrow_engine *e, struct grant *g, bool made)
{
	g->region->grants += made ? 1 : -1;
	add(&e->granted, g, made);
	if (g->peer)
		add(&g->peer->granted, g, made);
}

void en_quota_granted(struct escrow_engine *e, struct grant *g)
{
	count(e, g, true);
}

void en_quota_ended(struct escrow_engine *e, struct grant *g)
{
	count(e, g, false);
}

/* Of peers there are few; of grants, which count_grants() looks at for who asks, many. */
static uint64_t granted_of(const struct escrow_engine *e, uint32_t kind, const char *account)
{
	uint64_t used = 0;
	uint32_t i;

	for (i = 0; i < e->config.max_peers; i++) {
		const struct peer *p = &e->peers[i];

		if (p->granted.grants && strcmp(en_quota_account(p), account) == 0)
			used += kind == ESCROW_CHARGE_GRANTS ? p->granted.grants : p->granted.bytes;
	}
	return used;
}

static uint64_t used_of(struct escrow_engine *e, uint32_t kind, const char *account)
{
	struct escrow_charge c = {.kind = kind};

	if (kind != ESCROW_CHARGE_GRANTS && kind != ESCROW_CHARGE_GRANTED_BYTES) {
		en_quota_count(e, &c);
		return c.used;
	}
	if (account[0])
		return granted_of(e, kind, account);
	return kind == ESCROW_CHARGE_GRANTS ? e->granted.grants : e->granted.bytes;
}

static escrow_status check_limit(struct escrow_engine *e, uint32_t kind, const char *account,
				 uint64_t limit, uint64_t amount, struct escrow_error *error)
{
	static const char *const words[] = {
		[ESCROW_CHARGE_BYTES] = "bytes",
		[ESCROW_CHARGE_REGIONS] = "regions",
		[ESCROW_CHARGE_GRANTS] = "grants",
		[ESCROW_CHARGE_GRANTED_BYTES] = "granted_bytes",
	};
	uint64_t used = used_of(e, kind, account);

	if (used <= limit && amount <= limit - used)
		return ESCROW_OK;
	return args_fail(error, ESCROW_E_QUOTA,
			 "%s of %s: %llu more than the %llu in use exceed %llu", words[kind],
			 account[0] ? account : "the engine", (unsigned long long)amount,
			 (unsigned long long)used, (unsigned long long)limit);
}

static inline escrow_status check_one(struct escrow_engine *e, uint32_t kind, const char *account,
				      uint64_t limit, uint64_t amount, struct escrow_error *error)
{
	return limit ? check_limit(e, kind, account, limit, amount, error) : ESCROW_OK;
}

escrow_status en_quota_limits(struct escrow_engine *e, uint32_t kind, const struct peer *p,
			      uint64_t amount, struct escrow_error *error)
{
	escrow_status st = check_one(e, kind, "", e->config.quota[kind], amount, error);

	if (st == ESCROW_OK && p)
		st = check_one(e, kind, en_quota_account(p), e->config.peer_quota[kind], amount,
			       error);
	return st;
}
