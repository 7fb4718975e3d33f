/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/renew-kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <escrow/budget.h>

#include "backends/mock/mock.h"
#include "tests/lib/testing.h"

#define BOTH (ESCROW_MAY_READ | ESCROW_MAY_WRITE)

struct kit a, b;
const char *renew_own[2];
bool renew_stuck[2];
static uint16_t *given[2]; /* by end and key: where it was bound last, connection and epoch */

/* ---- What the process has room for -------------------------------------------------------------------- */
int64_t renew_taken[ESCROW_CHARGE_OPS + 1];
int64_t renew_most;

static escrow_status take(void *ctx, const struct escrow_amount *amounts, uint32_t n,
			  uint32_t stride, struct escrow_error *error)
{
	ck_assert_uint_eq(stride, sizeof(*amounts));
	for (uint32_t i = 0; i < n; i++)
		if (amounts[i].kind == ESCROW_CHARGE_CONNECTIONS &&
		    renew_taken[amounts[i].kind] + (int64_t)amounts[i].amount > renew_most)
			return ESCROW_E_QUOTA;
	for (uint32_t i = 0; i < n; i++)
		renew_taken[amounts[i].kind] += (int64_t)amounts[i].amount;
	return ESCROW_OK;
}

static void give(void *ctx, const struct escrow_amount *amounts, uint32_t n, uint32_t stride)
{
	for (uint32_t i = 0; i < n; i++) {
		renew_taken[amounts[i].kind] -= (int64_t)amounts[i].amount;
		ck_assert_int_ge(renew_taken[amounts[i].kind], 0);
	}
}

static const void *extension(void *ctx, const char *id)
{
	static const struct escrow_budget budget = {
		.size = sizeof(budget), .take = take, .give = give};

	return strcmp(id, ESCROW_BUDGET_ID) == 0 ? &budget : NULL;
}

escrow_status renew_another(void)
{
	struct escrow_amount one = {.kind = ESCROW_CHARGE_CONNECTIONS, .amount = 1};
	escrow_status st = take(NULL, &one, 1, sizeof(one), NULL);

	if (st == ESCROW_OK)
		give(NULL, &one, 1, sizeof(one));
	return st;
}

static int64_t renewed_now(const struct kit *k)
{
	int64_t n = 0;

	for (uint32_t i = 0; i < k->engine->config.max_peers; i++)
		n += k->engine->peers[i].renewal.at != 0;
	return n;
}

/* Each that there is, and at most each that is made anew. */
static void all_is_counted(void)
{
	int64_t there = (int64_t)(kit_used(&a, ESCROW_CHARGE_CONNECTIONS) +
				  kit_used(&b, ESCROW_CHARGE_CONNECTIONS));

	ck_assert_int_ge(renew_taken[ESCROW_CHARGE_CONNECTIONS], there);
	ck_assert_int_le(renew_taken[ESCROW_CHARGE_CONNECTIONS],
			 there + renewed_now(&a) + renewed_now(&b));
}

/* ---- Two engines -------------------------------------------------------------------------------------- */
void renew_turn(void)
{
	kit_now += 1000000;
	kit_turn(&a, &b);
	if (kit_host.get_extension == extension)
		all_is_counted();
}

struct kit *renew_other(const struct kit *k)
{
	return k == &a ? &b : &a;
}

static struct peer *peer_of(const struct kit *k)
{
	struct peer *p = en_peer_find(k->engine, k->peer);

	ck_assert_ptr_nonnull(p);
	return p;
}

/* No key is bound twice on one queue pair: of each the last epoch is remembered. */
int renew_watch_post(struct native_conn *conn, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	const struct conn *c = mock_native.conn_user(conn);
	uint16_t *keys = given[c->peer->e == b.engine];
	uint16_t epoch = (uint16_t)(atomic_load(&c->epoch) * 2 + c->index);

	for (uint32_t i = 0; i < n; i++)
		if (wr[i].opcode == NATIVE_BIND) {
			ck_assert_uint_lt(wr[i].rkey, 1u << 24);
			ck_assert_msg(keys[wr[i].rkey] != epoch, "key 0x%x again", wr[i].rkey);
			keys[wr[i].rkey] = epoch;
		}
	return mock_native.post(conn, wr, n, posted);
}

void renew_start(uint32_t nrails)
{
	char number[32];
	const char *settings[] = {number,
				  "test.faults=1",
				  "drain_ms=100",
				  "control_thread=0",
				  "rail_retry_ms=1",
				  "connect_ms=1000",
				  "test.window_binds=2",
				  "renew_share=10",
				  "max_grants=8",
				  "slice_bytes=4096",
				  NULL,
				  NULL};
	const char **own = &settings[sizeof(settings) / sizeof(settings[0]) - 2];

	snprintf(number, sizeof(number), "mock.rails=%u", nrails);
	given[0] = calloc(1u << 24, sizeof(*given[0]));
	given[1] = calloc(1u << 24, sizeof(*given[0]));
	kit_host.get_extension = extension;
	renew_most = INT64_MAX;
	kit_settings = settings;
	*own = renew_own[0];
	kit_start(&a, "a");
	*own = renew_own[1];
	kit_start(&b, "b");
	kit_settings = NULL;
	kit_table.post = renew_watch_post;
	kit_connect(&a, &b);
}

void renew_end(void)
{
	kit_close(&b, &a, renew_stuck[1]);
	kit_close(&a, NULL, renew_stuck[0]);
	if (!renew_stuck[0] && !renew_stuck[1]) {
		ck_assert_uint_eq(kit_allocs, 0);
		for (uint32_t i = 0; i <= ESCROW_CHARGE_OPS; i++)
			ck_assert_int_eq(renew_taken[i], 0);
	}
	free(given[0]);
	free(given[1]);
	renew_own[0] = renew_own[1] = NULL;
	renew_stuck[0] = renew_stuck[1] = false;
}

uint64_t renew_sum(const _Atomic uint64_t *counter)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < NATIVE_MAX_RAILS; i++)
		n += atomic_load(&counter[i]);
	return n;
}

uint64_t renew_renewed(const struct kit *k)
{
	return renew_sum(k->engine->counters.rail_renewed);
}

void renew_nothing_was_lost(void)
{
	ck_assert_uint_eq(renew_sum(a.engine->counters.rail_lost), 0);
	ck_assert_uint_eq(renew_sum(b.engine->counters.rail_lost), 0);
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	kit_never(&b, &a, ESCROW_EV_PEER_LOST);
}

/* ---- What a host does ------------------------------------------------------------------------------ */
uint64_t renew_grant_of(struct kit *k, uint64_t offset, uint64_t length)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = BOTH,
					 .peer = k->peer,
					 .region = k->region,
					 .offset = offset,
					 .length = length};
	uint64_t grant;

	ck_assert_msg(KIT_OPS->grant(k->engine, &args, &grant, &error) == ESCROW_IN_PROGRESS, "%s",
		      error.text);
	return grant;
}

struct escrow_event renew_wait_turning(struct kit *k, uint16_t kind)
{
	struct escrow_event ev;

	for (int i = 0; i < RENEW_TURNS; i++) {
		for (uint32_t n = 0; n < k->nseen; n++) {
			if (k->seen[n].kind != kind)
				continue;
			ev = k->seen[n];
			memmove(&k->seen[n], &k->seen[n + 1],
				(--k->nseen - n) * sizeof(k->seen[0]));
			return ev;
		}
		renew_turn();
	}
	ck_abort_msg("no event of kind %u", kind);
}

uint64_t renew_import_of(struct kit *k, uint64_t grant)
{
	struct kit *to = renew_other(k);
	uint64_t remote, len = 4096;
	uint8_t buf[4096];

	ck_assert_int_eq(KIT_OPS->export_grant(k->engine, grant, buf, &len), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->import_grant(to->engine, to->peer, buf, len, 0, &remote, NULL),
			 ESCROW_OK);
	return remote;
}

uint64_t renew_lend(struct kit *k, uint64_t offset, uint64_t length, uint64_t *remote)
{
	uint64_t grant = renew_grant_of(k, offset, length);
	struct escrow_event ev = renew_wait_turning(k, ESCROW_EV_GRANT_READY);

	ck_assert_uint_eq(ev.object, grant);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	*remote = renew_import_of(k, grant);
	return grant;
}

int32_t renew_submit(struct kit *k, uint64_t remote, uint32_t opcode, uint64_t at, uint64_t length)
{
	struct escrow_sge sge = {.region = k->region, .offset = at, .length = length};
	struct escrow_op op = {.remote = remote, .opcode = opcode, .nsge = 1, .sge = &sge};
	uint64_t id;

	return KIT_OPS->transfer(k->engine, &op, 1, sizeof(op), 0, &id);
}

/* Refused by AGAIN only, and then there is a ROOM; it never fails. */
void renew_move(struct kit *k, uint64_t remote, uint32_t opcode, uint64_t at, uint64_t length)
{
	struct escrow_event ev;
	int32_t n;

	while ((n = renew_submit(k, remote, opcode, at, length)) == ESCROW_E_AGAIN)
		renew_wait_turning(k, ESCROW_EV_ROOM);
	ck_assert_int_eq(n, 1);
	ev = renew_wait_turning(k, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_EXECUTED);
}

void renew_take_back(struct kit *k, uint64_t grant)
{
	ck_assert_int_eq(KIT_OPS->revoke(k->engine, grant, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(renew_wait_turning(k, ESCROW_EV_GRANT_REVOKED).status, ESCROW_OK);
}

struct conn *renew_conn_of(const struct kit *k, uint32_t i)
{
	return &peer_of(k)->conns[i];
}

/* As if all of that connection's indices were used up. */
void renew_wear(struct kit *k, uint32_t i)
{
	struct conn *c = renew_conn_of(k, i);

	c->spent++;
	k->engine->spent++;
	en_renew_wish(k->engine, true);
}

void renew_until(const uint8_t *what, uint8_t value)
{
	for (int i = 0; *what != value; i++) {
		ck_assert_int_lt(i, RENEW_TURNS);
		renew_turn();
	}
}

void renew_until_renewed(struct kit *k, uint64_t times)
{
	for (int i = 0; renew_renewed(k) < times; i++) {
		ck_assert_int_lt(i, RENEW_TURNS);
		renew_turn();
	}
}
