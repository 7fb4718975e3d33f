/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections that are made anew because their keys are used up: at either end, at both at once, with one
 * connection and with several; what stands, and what is asked for meanwhile.
 */
#include <errno.h>
#include <string.h>

#include "backends/mock/mock.h"
#include "tests/lib/testing.h"
#include "tests/unit/renew-kit.h"

/* One grant of k's, two slices each way over it, compared, and it is over. */
static void round_of(struct kit *k, uint32_t number)
{
	struct kit *to = renew_other(k);
	uint64_t remote, grant = renew_lend(k, 0, 2 * PIECE, &remote);
	uint32_t i;

	for (i = 0; i < 2 * PIECE; i++)
		to->memory[4 * PIECE + i] = (uint8_t)(i * 13 + number);
	renew_move(to, remote, ESCROW_WRITE, 4 * PIECE, 2 * PIECE);
	for (i = 0; i < 2 * PIECE; i++)
		testing_assert_byte(k->memory[i], (uint8_t)(i * 13 + number), i);
	memset(k->memory, (int)number, 2 * PIECE);
	renew_move(to, remote, ESCROW_READ, 6 * PIECE, 2 * PIECE);
	for (i = 0; i < 2 * PIECE; i++)
		testing_assert_byte(to->memory[6 * PIECE + i], (uint8_t)number, i);
	ck_assert_int_eq(KIT_OPS->forget_grant(to->engine, remote), ESCROW_OK);
	renew_take_back(k, grant);
	a.nseen = b.nseen = 0;
}

/* ---- Many rounds ----------------------------------------------------------------------------------- */
static const struct {
	uint32_t rails;
	bool by_a, by_b;
} many[] = {{1, true, false}, {1, false, true}, {1, true, true},
	    {2, true, false}, {2, false, true}, {2, true, true}};

/* R16: a grant that stands through all of it is good at the end, as one that was just made. */
START_TEST(many_rounds)
{
	uint64_t standing[2], grants[2];

	renew_start(many[_i].rails);
	grants[0] = renew_lend(&a, 8 * PIECE, 2 * PIECE, &standing[0]);
	grants[1] = renew_lend(&b, 8 * PIECE, 2 * PIECE, &standing[1]);
	for (uint32_t i = 0; i < 2000; i++) {
		if (many[_i].by_a)
			round_of(&a, i);
		if (many[_i].by_b)
			round_of(&b, i + 7);
		if (i % 10)
			continue;
		renew_move(&b, standing[0], ESCROW_WRITE, 0, 2 * PIECE);
		renew_move(&a, standing[1], ESCROW_READ, 0, 2 * PIECE);
	}
	/* A renewal frees at most what the pool has: 2000 rounds wear 1000 windows on each rail. */
	ck_assert_uint_ge(renew_renewed(&a), 1000 / (8 + 64));
	while (renew_renewed(&a) != renew_renewed(&b))
		renew_turn();
	renew_nothing_was_lost();
	renew_move(&b, standing[0], ESCROW_WRITE, 0, 2 * PIECE);
	renew_take_back(&a, grants[0]);
	renew_take_back(&b, grants[1]);
	renew_end();
}
END_TEST

/* ---- In the middle of one ---------------------------------------------------------------------------- */
/* Ops that are refused meanwhile go afterwards; ops that were posted before end well. */
START_TEST(ops_wait)
{
	uint64_t remote;
	int32_t n;

	renew_start(1);
	renew_lend(&a, 0, 2 * PIECE, &remote);
	renew_wear(_i ? &a : &b, 0);
	ck_assert_int_eq(renew_submit(&b, remote, ESCROW_WRITE, 0, 2 * PIECE), 1);
	for (int i = 0; (n = renew_submit(&b, remote, ESCROW_WRITE, 0, PIECE)) == 1; i++) {
		ck_assert_int_lt(i, RENEW_TURNS);
		ck_assert_int_eq(renew_wait_turning(&b, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	}
	ck_assert_int_eq(n, ESCROW_E_AGAIN);
	ck_assert_uint_eq(renew_renewed(&b), 0);
	renew_wait_turning(&b, ESCROW_EV_ROOM);
	renew_move(&b, remote, ESCROW_WRITE, 0, 2 * PIECE);
	renew_until_renewed(&a, 1);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* Of several connections the others go on, and no op waits. */
START_TEST(other_rails_go_on)
{
	uint64_t remote, on_1;

	renew_start(2);
	renew_lend(&a, 0, 2 * PIECE, &remote);
	renew_wear(_i ? &a : &b, 0);
	renew_until(&renew_conn_of(&b, 0)->renew, RENEW_DRAINING);
	on_1 = atomic_load(&b.engine->counters.rail_bytes[1]);
	ck_assert_int_eq(renew_submit(&b, remote, ESCROW_WRITE, 0, 2 * PIECE), 1);
	ck_assert_uint_eq(atomic_load(&b.engine->counters.rail_bytes[1]), on_1 + 2 * PIECE);
	renew_until_renewed(&a, 1);
	renew_until_renewed(&b, 1);
	ck_assert_int_eq(renew_wait_turning(&b, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	ck_assert_uint_eq(atomic_load(&renew_conn_of(&a, 0)->epoch),
			  atomic_load(&renew_conn_of(&b, 0)->epoch));
	ck_assert_uint_gt(atomic_load(&renew_conn_of(&a, 0)->epoch),
			  atomic_load(&renew_conn_of(&a, 1)->epoch));
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* Both ends wish another connection: one after the other is renewed. */
START_TEST(both_wish)
{
	renew_start(2);
	renew_wear(&a, 0);
	renew_wear(&b, 1);
	renew_until_renewed(&a, 2);
	renew_until_renewed(&b, 2);
	ck_assert_uint_eq(atomic_load(&a.engine->counters.rail_renewed[0]), 1);
	ck_assert_uint_eq(atomic_load(&a.engine->counters.rail_renewed[1]), 1);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* Asked for while there is no connection: it is granted when there is one again. */
START_TEST(a_grant_meanwhile)
{
	uint64_t grant, remote;
	struct kit *k = _i ? &a : &b;

	renew_start(1);
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(k, 0)->renew, RENEW_DRAINED);
	grant = renew_grant_of(k, 0, 2 * PIECE);
	ck_assert_uint_eq(renew_renewed(k), 0);
	ck_assert_uint_eq(renew_wait_turning(k, ESCROW_EV_GRANT_READY).object, grant);
	ck_assert_uint_eq(renew_renewed(k), 1);
	remote = renew_import_of(k, grant);
	renew_move(renew_other(k), remote, ESCROW_WRITE, 0, 2 * PIECE);
	renew_take_back(k, grant);
	/* And one that is taken back before that. */
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(k, 0)->renew, RENEW_DRAINED);
	grant = renew_grant_of(k, 0, 2 * PIECE);
	renew_take_back(k, grant);
	renew_until_renewed(k, 2);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* Taken back while there was no connection: its importer is not kept waiting for a key. */
START_TEST(taken_back_meanwhile)
{
	uint64_t grant, remote;
	int32_t n;

	renew_start(1);
	grant = renew_lend(&a, 0, PIECE, &remote);
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(&a, 0)->renew, RENEW_DRAINED);
	renew_take_back(&a, grant);
	while ((n = renew_submit(&b, remote, ESCROW_WRITE, 0, PIECE)) == ESCROW_E_AGAIN)
		renew_wait_turning(&b, ESCROW_EV_ROOM);
	ck_assert_int_eq(n, ESCROW_E_ACCESS);
	ck_assert_int_eq(KIT_OPS->forget_grant(b.engine, remote), ESCROW_OK);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* The peer is told to go in the middle of it: at any stage it goes, at both ends. */
START_TEST(disconnected_meanwhile)
{
	struct kit *k = _i % 2 ? &a : &b;
	uint8_t stage = _i / 2 % 2 ? RENEW_DRAINED : RENEW_DRAINING;
	uint64_t remote;

	renew_start(_i / 4 + 1);
	renew_lend(&a, 0, PIECE, &remote);
	renew_wear(&b, 0);
	/* The passive end answers within one turn. */
	for (int i = 0; renew_conn_of(k, 0)->renew < stage; i++) {
		ck_assert_int_lt(i, RENEW_TURNS);
		renew_turn();
	}
	ck_assert_int_eq(KIT_OPS->disconnect(k->engine, k->peer, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(renew_wait_turning(k, ESCROW_EV_PEER_DOWN).status, ESCROW_OK);
	ck_assert_int_eq(renew_wait_turning(renew_other(k), ESCROW_EV_PEER_DOWN).status,
			 ESCROW_E_PEER_LOST);
	a.nseen = b.nseen = 0;
	kit_connect(&a, &b);
	renew_lend(&a, 0, PIECE, &remote);
	renew_move(&b, remote, ESCROW_WRITE, 0, PIECE);
	renew_end();
}
END_TEST

/* Others have all windows when it is there again: a grant gets its own as soon as there is one. */
START_TEST(no_window_at_once)
{
	struct context *c;
	struct window *parked, *aside, *none;
	uint64_t remote;

	renew_start(1);
	c = &a.engine->contexts[0];
	renew_lend(&a, 0, PIECE, &remote);
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(&a, 0)->renew, RENEW_DRAINED);
	parked = c->parked;
	aside = c->aside;
	none = a.engine->window_free;
	c->parked = c->aside = a.engine->window_free = NULL;
	renew_until_renewed(&a, 1);
	renew_until_renewed(&b, 1);
	ck_assert_int_eq(renew_submit(&b, remote, ESCROW_WRITE, 0, PIECE), ESCROW_E_AGAIN);
	c->parked = parked;
	c->aside = aside;
	a.engine->window_free = none;
	renew_move(&b, remote, ESCROW_WRITE, 0, PIECE);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* A connection that is stuck in quarantine is renewed no more, and keeps no other from it. */
START_TEST(one_is_stuck)
{
	struct kit *k = _i ? &a : &b;
	uint64_t remote;

	renew_start(2);
	renew_stuck[_i ? 0 : 1] = true;
	/* There are no windows yet, nor ops: the fence is what does not come. */
	kit_plan(k, "cqe=hold;qp_reset=fail");
	renew_wear(k, 0);
	for (int i = 0; renew_conn_of(k, 0)->stage != CONN_QUARANTINED; i++) {
		ck_assert_int_lt(i, RENEW_TURNS);
		renew_turn();
	}
	ck_assert_uint_eq(k->engine->spent, 0);
	/* The other end may wait for it to come back, for some time. */
	renew_until(&renew_conn_of(&a, 0)->renew, RENEW_NOT);
	renew_until(&renew_conn_of(&b, 0)->renew, RENEW_NOT);
	kit_plan(k, "cqe=release");
	renew_lend(&a, 0, 2 * PIECE, &remote);
	renew_wear(k, 1);
	renew_until_renewed(&a, 1);
	renew_until_renewed(&b, 1);
	renew_move(&b, remote, ESCROW_WRITE, 0, 2 * PIECE);
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	kit_never(&b, &a, ESCROW_EV_PEER_LOST);
	renew_end();
}
END_TEST

/* Begun by the end that dialled when the other one has not seen yet that the connection is up. */
static bool late_news;
static struct native_event kept;

static int late_event(struct native *n, struct native_event *ev)
{
	int rc;

	if (!late_news && kept.kind) {
		*ev = kept;
		kept.kind = 0;
		return 1;
	}
	rc = mock_native.next_event(n, ev);
	if (rc != 1 || !late_news || ev->kind != NATIVE_EV_ESTABLISHED ||
	    ((struct conn *)mock_native.conn_user(ev->conn))->peer->e != a.engine)
		return rc;
	kept = *ev;
	return 0;
}

START_TEST(begun_before_it_is_up)
{
	uint64_t remote;

	renew_start(1);
	kit_table.next_event = late_event;
	renew_lend(&a, 0, PIECE, &remote);
	late_news = true;
	renew_wear(&b, 0);
	renew_until_renewed(&b, 1);
	ck_assert_uint_eq(renew_conn_of(&a, 0)->stage, CONN_CREATED);
	renew_wear(&b, 0);
	for (int i = 0; !renew_conn_of(&a, 0)->peer->renewal.asked && i < 100; i++)
		renew_turn();
	for (int i = 0; i < 100; i++)
		renew_turn();
	late_news = false;
	/* Long before its time is over, after which it would be tried again. */
	for (int i = 0; i < 200; i++)
		renew_turn();
	ck_assert_uint_eq(renew_renewed(&a), 2);
	ck_assert_uint_eq(renew_renewed(&b), 2);
	renew_move(&b, remote, ESCROW_WRITE, 0, PIECE);
	renew_nothing_was_lost();
	kit_table.next_event = mock_native.next_event;
	renew_end();
}
END_TEST

/* Nobody else has its place meanwhile, where there is place for one. */
START_TEST(its_place_is_kept)
{
	const char *name = _i ? "b" : "c";
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = name};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = name};
	uint64_t remote, other, len;
	uint8_t buf[1024];

	renew_own[0] = _i ? "peer_quota.connections=1" : "quota.connections=1";
	renew_start(1);
	renew_lend(&a, 0, PIECE, &remote);
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(&a, 0)->stage, CONN_GONE);
	len = sizeof(buf);
	ck_assert_int_eq(KIT_OPS->invite(b.engine, &invite, buf, &len), ESCROW_OK);
	args.invitation = buf;
	args.invitation_len = len;
	ck_assert_int_eq(KIT_OPS->connect(a.engine, &args, &other, NULL), ESCROW_E_QUOTA);
	renew_until_renewed(&a, 1);
	renew_until_renewed(&b, 1);
	ck_assert_uint_eq(kit_used(&a, ESCROW_CHARGE_CONNECTIONS), 1);
	renew_move(&b, remote, ESCROW_WRITE, 0, PIECE);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* Nor has another engine of the process, however often. */
START_TEST(its_place_in_the_process)
{
	struct kit *k = _i ? &a : &b;
	int64_t slots, both;
	uint64_t remote;

	renew_start(1);
	renew_lend(&a, 0, PIECE, &remote);
	both = renew_most = renew_taken[ESCROW_CHARGE_CONNECTIONS];
	slots = renew_taken[ESCROW_CHARGE_CQ_SLOTS];
	for (uint64_t i = 0; i < 100; i++) {
		renew_wear(k, 0);
		for (int n = 0; renew_renewed(&a) <= i || renew_renewed(&b) <= i; n++) {
			ck_assert_int_lt(n, RENEW_TURNS);
			renew_turn();
			ck_assert_int_eq(renew_another(), ESCROW_E_QUOTA);
			ck_assert_int_eq(renew_taken[ESCROW_CHARGE_CONNECTIONS], both);
			ck_assert_int_eq(renew_taken[ESCROW_CHARGE_CQ_SLOTS], slots);
		}
	}
	renew_move(&b, remote, ESCROW_WRITE, 0, PIECE);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

static bool held[2]; /* b finds no way, for its connection of that index */

static int held_connect(struct native_conn *conn, const uint8_t *address, const void *data,
			uint32_t len)
{
	const struct conn *c = mock_native.conn_user(conn);

	return c->peer->e == b.engine && held[c->index]
		       ? ENETUNREACH
		       : mock_native.connect(conn, address, data, len);
}

/* Nor has one that broke, whose own somebody else has got, and that is about to come back. */
START_TEST(its_place_is_no_other_rails)
{
	struct kit *k = _i ? &a : &b;
	struct conn taker;

	renew_own[_i ? 0 : 1] = "quota.connections=2";
	renew_start(2);
	kit_table.connect = held_connect;
	held[1] = true;
	en_conn_broken(renew_conn_of(&a, 1));
	for (int i = 0; i < 100; i++)
		renew_turn();
	ck_assert_uint_eq(kit_used(k, ESCROW_CHARGE_CONNECTIONS), 1);
	taker = *renew_conn_of(k, 1);
	ck_assert_int_eq(en_conn_charge(k->engine, &taker, NULL), ESCROW_OK);
	held[0] = true;
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(k, 0)->stage, CONN_GONE);
	held[1] = false;
	for (int i = 0; i < 500; i++)
		renew_turn();
	held[0] = false;
	renew_until_renewed(&a, 1);
	renew_until_renewed(&b, 1);
	en_conn_uncharge(k->engine, &taker);
	while (!renew_sum(a.engine->counters.rail_back) || !renew_sum(b.engine->counters.rail_back))
		renew_turn();
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	kit_never(&b, &a, ESCROW_EV_PEER_LOST);
	renew_end();
}
END_TEST

static int no_way(struct native_conn *conn, const uint8_t address[NATIVE_ADDRESS_BYTES],
		  const void *data, uint32_t len)
{
	return ENETUNREACH;
}

/* It has it when the peer goes meanwhile, by either end, or when nothing comes of it. */
START_TEST(its_place_is_given_back)
{
	struct kit *k = _i % 2 ? &a : &b;
	uint64_t remote;

	renew_start(1);
	renew_lend(&a, 0, PIECE, &remote);
	renew_most = renew_taken[ESCROW_CHARGE_CONNECTIONS];
	kit_table.connect = no_way;
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(k, 0)->stage, CONN_GONE);
	ck_assert_int_eq(renew_another(), ESCROW_E_QUOTA);
	if (_i < 2)
		ck_assert_int_eq(KIT_OPS->disconnect(k->engine, k->peer, 0), ESCROW_IN_PROGRESS);
	renew_wait_turning(&a, ESCROW_EV_PEER_DOWN);
	renew_wait_turning(&b, ESCROW_EV_PEER_DOWN);
	ck_assert_int_eq(renew_taken[ESCROW_CHARGE_CONNECTIONS], 0);
	ck_assert_int_eq(renew_taken[ESCROW_CHARGE_SQ_SLOTS], 0);
	ck_assert_int_eq(renew_taken[ESCROW_CHARGE_CQ_SLOTS], 0);
	ck_assert_int_eq(renew_another(), ESCROW_OK);
	kit_table.connect = mock_native.connect;
	renew_end();
}
END_TEST

/* Nor is it kept when the renewal is given up, though the peer stays: whoever comes first has it then. */
START_TEST(its_place_is_given_up)
{
	renew_start(2);
	renew_most = renew_taken[ESCROW_CHARGE_CONNECTIONS];
	kit_table.connect = no_way;
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(&a, 0)->stage, CONN_GONE);
	ck_assert_int_eq(renew_another(), ESCROW_E_QUOTA);
	renew_until(&renew_conn_of(&a, 0)->renew, RENEW_NOT);
	renew_until(&renew_conn_of(&b, 0)->renew, RENEW_NOT);
	ck_assert_int_eq(renew_taken[ESCROW_CHARGE_CONNECTIONS], renew_most - 2);
	kit_table.connect = mock_native.connect;
	while (!renew_sum(a.engine->counters.rail_back) || !renew_sum(b.engine->counters.rail_back))
		renew_turn();
	ck_assert_int_eq(renew_taken[ESCROW_CHARGE_CONNECTIONS], renew_most);
	renew_end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-renew");
	TCase *t = tcase_create("renew");

	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, many_rounds, 0, 6);
	tcase_add_loop_test(t, ops_wait, 0, 2);
	tcase_add_loop_test(t, other_rails_go_on, 0, 2);
	tcase_add_test(t, both_wish);
	tcase_add_loop_test(t, a_grant_meanwhile, 0, 2);
	tcase_add_test(t, taken_back_meanwhile);
	tcase_add_test(t, no_window_at_once);
	tcase_add_loop_test(t, one_is_stuck, 0, 2);
	tcase_add_test(t, begun_before_it_is_up);
	tcase_add_loop_test(t, its_place_is_kept, 0, 2);
	tcase_add_loop_test(t, its_place_is_no_other_rails, 0, 2);
	tcase_add_loop_test(t, its_place_in_the_process, 0, 2);
	tcase_add_loop_test(t, its_place_is_given_back, 0, 4);
	tcase_add_test(t, its_place_is_given_up);
	tcase_add_loop_test(t, disconnected_meanwhile, 0, 8);
	suite_add_tcase(s, t);
	return testing_run(s);
}
