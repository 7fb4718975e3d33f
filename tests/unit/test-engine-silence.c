/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers that do not go along when a connection is to be made anew, or are slow: it goes on as it is, and nothing
 * is lost.
 */
#include <errno.h>

#include "backends/mock/mock.h"
#include "tests/lib/testing.h"
#include "tests/unit/renew-kit.h"

#define PATIENCE 1000 /* turns: connect_ms of the kit */

static const struct escrow_engine
	*silent;        /* says nothing of renewals: what it says is that it is up */
static uint32_t untold; /* of these kinds, 1 << each */

static int hush_post(struct native_conn *conn, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	const struct conn *c = mock_native.conn_user(conn);
	struct wire_message m;
	uint8_t *at;

	if (silent && wr->opcode == NATIVE_SEND && c->peer->e == silent) {
		at = (uint8_t *)(uintptr_t)wr->sge[0].addr; /* NOLINT: as the device has it */
		ck_assert_int_eq(wire_message_get(at, wr->sge[0].length, &m), ESCROW_OK);
		if (untold & 1u << m.type) {
			m.type = WIRE_UP;
			wire_message_put(&m, at);
		}
	}
	return renew_watch_post(conn, wr, n, posted);
}

#define OF(type) (1u << WIRE_##type)

/* Asked and not heard (a asks, b begins), begun and not heard, not answered, nor called off. */
static const struct {
	bool by_a; /* who says nothing */
	uint32_t untold;
} silences[] = {{true, OF(DRAIN)},
		{false, OF(DRAIN)},
		{true, OF(DRAINED)},
		{true, OF(DRAINED) | OF(DRAIN_NO)},
		{false, OF(DRAIN) | OF(DRAIN_NO)}};
#define SILENCES 5

static void be_silent(int i)
{
	kit_table.post = hush_post;
	silent = silences[i].by_a ? a.engine : b.engine;
	untold = silences[i].untold;
	renew_wear(i == 0 ? &a : &b, 0);
}

static void turn(int turns)
{
	while (turns--)
		renew_turn();
}

static bool nobody_renews(void)
{
	return !renew_conn_of(&a, 0)->renew && !renew_conn_of(&b, 0)->renew &&
	       !renew_conn_of(&a, 0)->peer->renewal.wish &&
	       !renew_conn_of(&b, 0)->peer->renewal.wish;
}

/* Nothing is lost and no op fails; it is renewed once that can be agreed on. */
START_TEST(a_silent_peer)
{
	uint64_t remote, other;

	renew_start((uint32_t)_i / SILENCES + 1);
	renew_lend(&a, 0, 2 * PIECE, &remote);
	renew_lend(&b, 0, 2 * PIECE, &other);
	be_silent(_i % SILENCES);
	for (int i = 0; !nobody_renews(); i++) {
		ck_assert_int_lt(i, RENEW_TURNS);
		renew_move(&b, remote, ESCROW_WRITE, 0, 2 * PIECE);
		renew_move(&a, other, ESCROW_READ, 0, 2 * PIECE);
	}
	ck_assert_uint_eq(renew_renewed(&a) + renew_renewed(&b), 0);
	silent = NULL;
	renew_nothing_was_lost();
	turn(8 * PATIENCE);
	renew_wear(&b, 0);
	renew_until_renewed(&a, 1);
	renew_until_renewed(&b, 1);
	renew_move(&b, remote, ESCROW_WRITE, 0, 2 * PIECE);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* Who takes its word back says so; if even that is not heard, the other end waits for it no longer than this. */
START_TEST(word_is_kept_no_longer)
{
	uint64_t remote;

	renew_start(1);
	renew_lend(&b, 0, PIECE, &remote);
	kit_table.post = hush_post;
	silent = b.engine;
	untold = OF(DRAIN_NO);
	kit_plan(&b, "cqe=hold");
	renew_lend(&a, 0, PIECE, &remote);
	ck_assert_int_eq(renew_submit(&b, remote, ESCROW_WRITE, 0, PIECE), 1);
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(&a, 0)->peer->renewal.said, 1);
	turn(2 * PATIENCE);
	ck_assert_uint_eq(renew_conn_of(&b, 0)->renew, RENEW_NOT);
	ck_assert_uint_eq(renew_conn_of(&a, 0)->renew, RENEW_DRAINING);
	turn(8 * PATIENCE);
	ck_assert_uint_eq(renew_conn_of(&a, 0)->renew, RENEW_NOT);
	kit_plan(&b, "cqe=release");
	ck_assert_int_eq(renew_wait_turning(&b, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	silent = NULL;
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* ---- Slow ------------------------------------------------------------------------------------------ */
/* The end that was dialled is away, for longer than all it could be waited for, and has agreed. */
START_TEST(the_passive_end_is_away)
{
	uint64_t remote;

	if (_i)
		renew_own[1] = "drain_ms=0";
	renew_start(1);
	renew_lend(&a, 0, 2 * PIECE, &remote);
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(&b, 0)->renew, RENEW_DRAINED);
	for (int i = 0; i < 2 * PATIENCE; i++) {
		kit_now += 1000000;
		kit_turn(&b, NULL);
	}
	renew_until_renewed(&a, 1);
	renew_until_renewed(&b, 1);
	renew_move(&b, remote, ESCROW_WRITE, 0, 2 * PIECE);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* Either end is away at any time for some time, its clock goes on. */
START_TEST(away_at_any_time)
{
	struct kit *k = _i % 2 ? &a : &b;
	uint64_t remote;

	renew_start(1);
	renew_lend(&a, 0, 2 * PIECE, &remote);
	renew_wear(&b, 0);
	turn(_i / 2);
	for (int i = 0; i < 3 * PATIENCE / 2; i++) {
		kit_now += 1000000;
		kit_turn(renew_other(k), NULL);
	}
	turn(4 * PATIENCE);
	ck_assert(nobody_renews());
	renew_move(&b, remote, ESCROW_WRITE, 0, 2 * PIECE);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* ---- Not wanted -------------------------------------------------------------------------------------- */
/* Where its memory for messages would be withheld an end renews nothing: the other one lives with that. */
START_TEST(one_end_does_not)
{
	struct kit *wisher = _i ? &a : &b;
	uint64_t remote;

	renew_own[_i ? 1 : 0] = "weak.dereg=1";
	renew_stuck[_i ? 1 : 0] = true;
	renew_start(1);
	renew_lend(&a, 0, 2 * PIECE, &remote);
	renew_wear(wisher, 0);
	for (int i = 0; i < 6 * PATIENCE; i++) {
		renew_turn();
		if (i % 50)
			continue;
		renew_move(&b, remote, ESCROW_WRITE, 0, 2 * PIECE);
		/* What it had spent counts again. */
		if (!renew_conn_of(wisher, 0)->peer->renewal.wish)
			ck_assert_uint_eq(wisher->engine->spent, 1);
		en_renew_wish(wisher->engine, true);
	}
	ck_assert_uint_eq(renew_renewed(&a) + renew_renewed(&b), 0);
	ck_assert_uint_eq(renew_conn_of(&a, 0)->peer->stuck, 0);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* What a grant that comes and goes is told, at once or by its event. */
static escrow_status come_and_go(void)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ,
					 .peer = a.peer,
					 .region = a.region,
					 .length = PIECE};
	uint64_t grant;
	escrow_status st = KIT_OPS->grant(a.engine, &args, &grant, NULL);

	if (st == ESCROW_IN_PROGRESS)
		st = renew_wait_turning(&a, ESCROW_EV_GRANT_READY).status;
	if (st == ESCROW_OK)
		renew_take_back(&a, grant);
	return st;
}

/* No window is left in the end: that is no lack of memory, and others may be free again. */
START_TEST(no_window_is_left)
{
	uint32_t good = 0, refused = 0;
	escrow_status st;

	renew_own[0] = "weak.dereg=1";
	renew_stuck[0] = true;
	renew_start(1);
	while (refused < 100) {
		st = come_and_go();
		good += st == ESCROW_OK;
		refused += st != ESCROW_OK;
		ck_assert_msg(st == ESCROW_OK || st == ESCROW_E_AGAIN, "%d after %u", st, good);
	}
	ck_assert_uint_ge(good, 8);
	ck_assert_uint_eq(renew_renewed(&a), 0);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* The end that dialled lets some time pass after each: longer than the other one waits. */
START_TEST(one_end_is_in_no_hurry)
{
	uint64_t remote;

	renew_own[1] = "rail_retry_ms=5000";
	renew_start(1);
	renew_lend(&a, 0, 2 * PIECE, &remote);
	for (uint64_t i = 1; i < 4; i++) {
		renew_wear(&a, 0);
		renew_until_renewed(&a, i);
		renew_until_renewed(&b, i);
		renew_nothing_was_lost();
		turn(5000);
	}
	renew_wear(&a, 0);
	renew_until_renewed(&a, 4);
	renew_wear(&a, 0);
	turn(3 * PATIENCE);
	renew_move(&b, remote, ESCROW_WRITE, 0, 2 * PIECE);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* ---- Long ops ---------------------------------------------------------------------------------------- */
/* One that takes longer than anybody waits: of the end that dialled, of the other. */
START_TEST(a_long_op)
{
	struct kit *k = _i % 2 ? &a : &b, *to = renew_other(k);
	uint64_t remote;

	renew_start(1);
	renew_lend(to, 0, 2 * PIECE, &remote);
	kit_plan(k, "cqe=hold");
	ck_assert_int_eq(renew_submit(k, remote, ESCROW_WRITE, 0, 2 * PIECE), 1);
	renew_wear(_i / 2 ? &a : &b, 0);
	turn(3 * PATIENCE);
	renew_nothing_was_lost();
	/* Meanwhile others may go. */
	ck_assert_int_eq(renew_submit(k, remote, ESCROW_WRITE, 0, PIECE), 1);
	turn(PATIENCE);
	kit_never(k, to, ESCROW_EV_OP_DONE);
	kit_plan(k, "cqe=release");
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(renew_wait_turning(k, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* Asked for while it was to be renewed, and was not: it is granted on the connection as it is. */
START_TEST(a_grant_that_need_not_have_waited)
{
	uint64_t remote, other, grant;

	renew_start(1);
	renew_lend(&b, 8 * PIECE, PIECE, &other);
	renew_lend(&a, 0, PIECE, &remote);
	kit_plan(&b, "cqe=hold");
	ck_assert_int_eq(renew_submit(&b, remote, ESCROW_WRITE, 0, PIECE), 1);
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(&a, 0)->renew, RENEW_DRAINING);
	grant = renew_grant_of(&a, 4 * PIECE, PIECE);
	ck_assert_uint_eq(renew_wait_turning(&a, ESCROW_EV_GRANT_READY).object, grant);
	ck_assert_uint_eq(renew_renewed(&a), 0);
	kit_plan(&b, "cqe=release");
	renew_move(&b, renew_import_of(&a, grant), ESCROW_WRITE, 0, PIECE);
	renew_nothing_was_lost();
	renew_end();
}
END_TEST

/* ---- No way back --------------------------------------------------------------------------------------- */
/* It went along until there was no connection, and never comes: the deadline ends the peer. */
static bool deaf;

static int deaf_connect(struct native_conn *conn, const uint8_t *address, const void *data,
			uint32_t len)
{
	return deaf ? ECONNREFUSED : mock_native.connect(conn, address, data, len);
}

START_TEST(who_does_not_come_back)
{
	uint64_t remote;

	renew_start(1);
	kit_table.connect = deaf_connect;
	renew_lend(&a, 0, PIECE, &remote);
	deaf = true;
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(&b, 0)->renew, RENEW_DRAINED);
	ck_assert_int_eq(renew_submit(&b, remote, ESCROW_WRITE, 0, PIECE), ESCROW_E_AGAIN);
	renew_wait_turning(&a, ESCROW_EV_PEER_LOST);
	renew_wait_turning(&b, ESCROW_EV_PEER_LOST);
	renew_wait_turning(&b, ESCROW_EV_ROOM);
	deaf = false;
	renew_wait_turning(&a, ESCROW_EV_PEER_DOWN);
	renew_wait_turning(&b, ESCROW_EV_PEER_DOWN);
	kit_table.connect = mock_native.connect;
	renew_end();
}
END_TEST

/* Of several it is lost then, and comes back like one that broke. */
START_TEST(who_comes_back_late)
{
	uint64_t remote;

	renew_start(2);
	kit_table.connect = deaf_connect;
	renew_lend(&a, 0, 2 * PIECE, &remote);
	deaf = true;
	renew_wear(&b, 0);
	for (int i = 0; !renew_sum(b.engine->counters.rail_lost); i++) {
		ck_assert_int_lt(i, RENEW_TURNS);
		renew_move(&b, remote, ESCROW_WRITE, 0, 2 * PIECE);
	}
	deaf = false;
	for (int i = 0; !renew_sum(b.engine->counters.rail_back); i++) {
		ck_assert_int_lt(i, RENEW_TURNS);
		renew_move(&b, remote, ESCROW_WRITE, 0, 2 * PIECE);
	}
	ck_assert_uint_eq(renew_sum(b.engine->counters.rail_lost), 1);
	ck_assert_uint_eq(renew_sum(b.engine->counters.rail_back), 1);
	ck_assert_uint_eq(renew_renewed(&b), 0);
	kit_table.connect = mock_native.connect;
	renew_end();
}
END_TEST

/*
 * The same of one whose rail is down by then, at either end, and the other end dies: with its last connection, on the
 * other rail, there is nobody who could say that the first one is up again.
 */
static const struct native *goes_down; /* its rail 1 */

static int down_event(struct native *n, struct native_event *out)
{
	if (n != goes_down)
		return mock_native.next_event(n, out);
	*out = (struct native_event){.kind = NATIVE_EV_RAIL_DOWN, .rail = 1};
	goes_down = NULL;
	return 1;
}

static uint32_t seen(const struct kit *k, uint16_t kind)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < k->nseen; i++)
		n += k->seen[i].kind == kind;
	return n;
}

START_TEST(who_dies_while_a_rail_is_down)
{
	struct kit *stays = _i % 2 ? &a : &b, *dies = renew_other(stays);

	renew_start(2);
	kit_table.connect = deaf_connect;
	kit_table.next_event = down_event;
	deaf = true;
	renew_wear(&b, 1);
	renew_until(&renew_conn_of(&a, 1)->renew, RENEW_DRAINED);
	renew_until(&renew_conn_of(&b, 1)->renew, RENEW_DRAINED);
	goes_down = (_i / 2 ? stays : dies)->engine->native;
	turn(10);
	ck_assert(!en_conn_rail_up(renew_conn_of(stays, 1)));
	en_conn_broken(renew_conn_of(stays, 0));
	for (int i = 0; i < 6 * PATIENCE; i++) {
		kit_now += 1000000;
		kit_turn(stays, NULL);
	}
	ck_assert_uint_eq(seen(stays, ESCROW_EV_PEER_LOST), 1);
	deaf = false;
	kit_table.connect = mock_native.connect;
	kit_table.next_event = mock_native.next_event;
	renew_end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-silence");
	TCase *t = tcase_create("silence");

	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, a_silent_peer, 0, 2 * SILENCES);
	tcase_add_test(t, word_is_kept_no_longer);
	tcase_add_loop_test(t, the_passive_end_is_away, 0, 2);
	tcase_add_loop_test(t, away_at_any_time, 0, 32);
	tcase_add_loop_test(t, one_end_does_not, 0, 2);
	tcase_add_test(t, no_window_is_left);
	tcase_add_test(t, one_end_is_in_no_hurry);
	tcase_add_loop_test(t, a_long_op, 0, 4);
	tcase_add_test(t, a_grant_that_need_not_have_waited);
	tcase_add_test(t, who_does_not_come_back);
	tcase_add_test(t, who_comes_back_late);
	tcase_add_loop_test(t, who_dies_while_a_rail_is_down, 0, 4);
	suite_add_tcase(s, t);
	return testing_run(s);
}
