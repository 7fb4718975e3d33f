/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rail that breaks and comes back more often than a small pool has windows: each grant that stands gets
 * its window on each new connection, and new grants are made.
 */
#include "backends/engine/engine.h"
#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-kit.h"
#include "tests/unit/rdma-world.h"

#define GRANTS 16u
#define RETURNS 16u
#define PIECE 65536u

static struct end owner, user;
static uint64_t by_owner, by_user;

static uint64_t grant_all(uint64_t *remote)
{
	uint8_t buf[4096];
	uint64_t grant, len;

	len = end_grant(&owner, by_owner, 0, END_BYTES, ESCROW_MAY_WRITE, buf, sizeof(buf), &grant);
	*remote = end_import(&user, by_user, buf, len);
	return grant;
}

/* Behind the engine's back, on rail 1. */
static void break_queue_pair(struct end *e, uint64_t peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct peer *p = en_peer_find(e->engine, peer);

	ck_assert_int_eq(ibv_modify_qp(p->conns[1].native->qp, &attr, IBV_QP_STATE), 0);
}

static bool all_bound(void)
{
	struct escrow_engine *e = owner.engine;
	bool all = true;

	engine_lock(e); /* the control thread binds them */
	for (uint32_t i = 0; i < e->config.max_grants; i++) {
		const struct window *w = e->grants[i].windows[1];

		if (e->grants[i].state == GRANT_READY && (!w || w->use != WINDOW_BOUND))
			all = false;
	}
	engine_unlock(e);
	return all;
}

START_TEST(as_often_as_it_likes)
{
	static const char *const settings[] = {"slice_bytes=4096", "rail_retry_ms=1",
					       "drain_ms=200", "max_grants=17", NULL};
	uint64_t remote, grant = 0, on_1;

	end_open(&owner, 'o', settings);
	end_open(&user, 'u', settings);
	ends_connect(&owner, &user, &by_owner, &by_user);
	for (uint32_t i = 0; i < GRANTS; i++)
		grant = grant_all(&remote);
	for (uint32_t i = 1; i <= RETURNS; i++) {
		break_queue_pair(&owner, by_owner);
		while (end_counter(&user, "rail.1.connections.returned") < i) {
			ck_assert_int_eq(end_move(&user, remote, ESCROW_WRITE, 0, 0, PIECE).custody,
					 ESCROW_CUSTODY_RETURNED);
			ends_turn();
		}
		while (!all_bound()) /* Check ends it */
			ends_turn();
	}
	ck_assert_int_eq(OPS->revoke(owner.engine, grant, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, grant).status, ESCROW_OK);
	grant_all(&remote);
	on_1 = end_counter(&user, "rail.1.bytes");
	ck_assert_int_eq(end_move(&user, remote, ESCROW_WRITE, 0, 0, PIECE).status, ESCROW_OK);
	ck_assert_uint_gt(end_counter(&user, "rail.1.bytes"), on_1);
	for (uint32_t i = 0; i < PIECE; i++)
		testing_assert_byte(owner.memory[i], 'u', i);
	end_close(&user);
	end_close(&owner);
}
END_TEST

int main(void)
{
	const char *why = world_missing();
	TCase *t;
	Suite *s;

	if (*why)
		return testing_skip(why);
	s = suite_create("rdma-returns");
	t = tcase_create("returns");
	tcase_set_timeout(t, 240);
	tcase_add_test(t, as_often_as_it_likes);
	suite_add_tcase(s, t);
	return testing_run(s);
}
