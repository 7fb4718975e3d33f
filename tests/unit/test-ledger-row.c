/* SPDX-License-Identifier: BSD-2-Clause */
/* The moves of hot.h: what is lent and settled in a row, alone or as a run, and what is not. */
#include "backends/ledger/binds.h"
#include "tests/unit/ledger/bed.h"

#include <string.h>

#define PIECE 1024u

static struct bed b;
static struct ledger_lane *lane;
static struct ledger_conn *conn;
static struct ledger_done done[16];
static struct ledger_end ended;
static uint64_t wr[BED_SQ];

static void make(void)
{
	memset(&b, 0, sizeof(b));
	bed_log_entries = 0;
	bed_make(&b, LEDGER_STRENGTH_USUAL);
	lane = b.at[0];
	conn = ledger_conn_of(lane, b.conn[0]);
	ck_assert(ledger_conn_is(conn, b.conn[0]));
}

static void end(void)
{
	bed_end(&b);
}

static uint32_t the_region(void)
{
	uint32_t i = ledger_row_region(b.l, b.region, 0, BED_REGION);

	ck_assert_uint_ne(i, NONE);
	return i;
}

/* A parent of n slices, the last one shorter by one byte. */
static void lend_run(uint64_t user, uint32_t n)
{
	struct ledger_run run;

	ck_assert_uint_ge(ledger_run_room(conn), n);
	ck_assert(ledger_row_run(lane, conn, user, the_region(), 100, ESCROW_WRITE, n, &run));
	for (uint32_t i = 0; i < n; i++)
		wr[i] = ledger_run_put(&run, PIECE - (i + 1 == n));
	ledger_run_end(conn, &run, n);
	bed_check(&b);
}

static bool alone(uint64_t wr_id)
{
	struct ledger_oldest o = ledger_oldest_of(lane, conn);

	return o.owed && ledger_oldest_alone(&o, wr_id, &ended);
}

/* A row of that one. */
static void settle_alone_one(void)
{
	struct ledger_oldest o = ledger_oldest_of(lane, conn);

	ledger_oldest_settle(&o, &ended);
	ledger_oldest_end(lane, conn, &o);
}

static bool whole(uint64_t wr_id)
{
	return ledger_row_whole(lane, conn, wr_id, &ended);
}

/* All that a run of three was is back: its slots, its loans, its op. */
START_TEST(a_whole_run)
{
	uint32_t room = ledger_run_room(conn), ops = lane->ops_left;

	for (uint64_t user = 7; user < 7 + 3 * BED_SQ; user++) {
		lend_run(user, 3);
		ck_assert_uint_eq(ledger_run_room(conn), room - 3);
		ck_assert_uint_eq(bed_info(&b, b.region).loans, 3);
		ck_assert(!whole(wr[0]) && !whole(wr[1]));
		ck_assert(ledger_row_conn(lane, wr[2]) == conn);
		ck_assert(whole(wr[2]));
		ck_assert_uint_eq(ended.user, user);
		ck_assert_uint_eq(ended.slices, 3);
		ck_assert_uint_eq(ended.bytes, 3 * PIECE - 1);
		ledger_whole_settle(lane, conn, &ended);
		ck_assert(!whole(wr[2])); /* once */
		ck_assert_uint_eq(ledger_run_room(conn), room);
		ck_assert_uint_eq(lane->ops_left, ops);
		ck_assert_uint_eq(bed_info(&b, b.region).loans, 0);
		bed_check(&b);
	}
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 0);
}
END_TEST

/* What stands before it, or was settled of it, is another completion's. */
START_TEST(not_what_is_not_oldest)
{
	uint64_t first;

	lend_run(1, 2);
	first = wr[1];
	lend_run(2, 3);
	ck_assert(!whole(wr[2]));
	ck_assert(whole(first));
	ledger_whole_settle(lane, conn, &ended);
	/* a device that tells of each: the rest is no run that is whole */
	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 16), 0);
	ck_assert(!whole(wr[2]));
	ck_assert_int_eq(bed_cqe(&b, 0, wr[2], LEDGER_OK, done, 16), 1);
	ck_assert_uint_eq(done[0].user, 2);
	ck_assert_uint_eq(done[0].bytes, 3 * PIECE - 1);
	bed_check(&b);
}
END_TEST

/* Of what a post refused, the place in the ring is another's; the rest of its run is told one by one. */
START_TEST(not_what_was_refused)
{
	uint64_t last;

	lend_run(1, 3);
	last = wr[2];
	ck_assert_int_eq(ledger_rejected(lane, b.conn[0], 1, done, 16), 0);
	ck_assert(!whole(last));
	lend_run(2, 1);
	ck_assert(!whole(last) && !whole(wr[0])); /* the same number, and not the oldest */
	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 16), 2);
	ck_assert_uint_eq(done[0].user, 1);
	ck_assert_uint_eq(done[0].bytes, 2 * PIECE);
	ck_assert_uint_eq(done[0].outcome, LEDGER_REJECTED);
	ck_assert_uint_eq(done[1].user, 2);
	bed_check(&b);
}
END_TEST

/* A run of which nothing was taken is not owed, though its op's slot has a parent of as many slices again. */
START_TEST(not_what_is_not_owed)
{
	struct ledger_part part = {.lane = lane, .connection = b.conn[0], .slices = 3};
	struct ledger_admission a = {.nparts = 1, .parts = &part, .flags = LEDGER_ADMIT_ENDS};
	uint64_t op;

	lend_run(1, 3);
	ck_assert_int_eq(ledger_rejected(lane, b.conn[0], 3, done, 16), 1);
	ck_assert_int_eq(ledger_op_admit(lane, &a, &op), ESCROW_OK);
	ck_assert(!whole(wr[2]));
	ck_assert_int_eq(ledger_op_drop(lane, b.conn[0], op, 3, done), 1);
	bed_check(&b);
}
END_TEST

/* Another number at the same place, and a parent that has more to tell. */
START_TEST(not_by_halves)
{
	struct ledger_op *op;

	lend_run(1, 3);
	op = &b.l->ops[conn->ring[conn->head & conn->mask].op];
	ck_assert(!whole(wr[2] ^ 1) && !whole(wr[2] ^ UINT64_C(1) << 60));
	op->pending += PENDING_ONE;
	ck_assert(!whole(wr[2]));
	op->pending -= PENDING_ONE;
	op->outcomes = 1u << LEDGER_LOCAL_ERROR;
	ck_assert(!whole(wr[2]));
	op->outcomes = 0;
	ck_assert(whole(wr[2]));
	ledger_whole_settle(lane, conn, &ended);
}
END_TEST

/* One that holds another region as well is none; nor are slices that were admitted by themselves. */
START_TEST(not_what_is_no_run)
{
	uint64_t other = bed_register(&b, PIECE), op;

	lend_run(1, 2);
	ck_assert_int_eq(ledger_slice_also(lane, wr[1], other, 0, 1), ESCROW_OK);
	ck_assert(!whole(wr[1]));
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), 1);
	ck_assert_uint_eq(bed_info(&b, other).loans, 0);
	op = bed_op(&b, 2, wr);
	ck_assert(!whole(wr[1]));
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), 1);
	ck_assert_int_eq(ledger_op_end(lane, op), ESCROW_OK);
	ck_assert_int_eq(bed_deregister(&b, other, 0), ESCROW_OK);
	bed_check(&b);
}
END_TEST

/* Each alone: in order, once, and not what is a run. */
START_TEST(alone_in_order)
{
	uint32_t room = ledger_row_room(lane, conn);

	for (uint32_t i = 0; i < 3; i++)
		wr[i] = ledger_row_lend(lane, conn, 40 + i, the_region(), i, PIECE, ESCROW_READ);
	ck_assert_uint_eq(ledger_row_room(lane, conn), room - 3);
	ck_assert_uint_eq(bed_used(&b, "bob", ESCROW_CHARGE_OPS), 3);
	ck_assert(!alone(wr[1]));
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert(!whole(wr[i]));
		ck_assert(alone(wr[i]));
		ck_assert_uint_eq(ended.user, 40 + i);
		ck_assert_uint_eq(ended.bytes, PIECE);
		settle_alone_one();
		ck_assert(!alone(wr[i]));
	}
	/* refused, and never owed again under its number */
	wr[0] = ledger_row_lend(lane, conn, 50, the_region(), 0, PIECE, ESCROW_READ);
	ck_assert_int_eq(ledger_rejected(lane, b.conn[0], 1, done, 16), 1);
	ck_assert(!alone(wr[0]));
	bed_check(&b);
}
END_TEST

/* Neither a region that is leaving, nor beyond its end, nor what has another kind of handle. */
START_TEST(regions)
{
	uint64_t other = bed_register(&b, PIECE);
	struct ledger_owner_args control = {.kind = ESCROW_OWNER_CONTROL,
					    .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEREGISTER),
					    .parent = b.context,
					    .addr = 4096,
					    .length = PIECE};
	uint32_t i;

	ck_assert_int_eq(ledger_region_key(b.l, b.context, 5), ESCROW_E_INVALID);
	i = ledger_row_region(b.l, other, 1, PIECE - 1);
	ck_assert_uint_ne(i, NONE);
	ck_assert_uint_eq((uint32_t)b.l->keyed[i].key, BED_KEY);
	ck_assert_uint_eq(b.l->keyed[i].addr, 0x10000);
	ck_assert_uint_eq(ledger_row_region(b.l, other, 1, PIECE), NONE);
	ck_assert_uint_eq(ledger_row_region(b.l, other, UINT64_MAX, 2), NONE);
	ck_assert_uint_eq(ledger_row_region(b.l, b.conn[0], 0, 1), NONE);
	ck_assert_uint_eq(ledger_row_region(b.l, 0, 0, 1), NONE);
	ck_assert_int_eq(bed_deregister(&b, other, 0), ESCROW_OK);
	ck_assert_uint_eq(ledger_row_region(b.l, other, 0, 1), NONE);
	ck_assert_int_eq(ledger_owner_add(b.l, &control, &other, NULL), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, other, LEDGER_E_READY), ESCROW_OK);
	ck_assert_uint_eq(ledger_row_region(b.l, other, 0, 1), NONE);
	ck_assert_int_eq(bed_deregister(&b, other, 0), ESCROW_OK);
}
END_TEST

/* One that has no key is lent from, but in no row; also where one that had a key was before. */
START_TEST(no_key)
{
	uint64_t had = bed_register(&b, PIECE), other, id;
	struct ledger_owner_args args = {.kind = ESCROW_OWNER_REGION,
					 .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEREGISTER),
					 .parent = b.context,
					 .addr = 4096,
					 .length = PIECE};
	struct ledger_loan loan = {
		.connection = b.conn[0], .length = PIECE, .opcode = ESCROW_WRITE};

	ck_assert_uint_ne(ledger_row_region(b.l, had, 0, PIECE), NONE);
	ck_assert_int_eq(bed_deregister(&b, had, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_add(b.l, &args, &other, NULL), ESCROW_OK);
	ck_assert_uint_eq(handle_slot(other), handle_slot(had));
	ck_assert_int_eq(ledger_owner_event(b.l, other, LEDGER_E_READY), ESCROW_OK);
	ck_assert_uint_eq(ledger_row_region(b.l, other, 0, PIECE), NONE);
	ck_assert_uint_eq(ledger_row_region(b.l, had, 0, PIECE), NONE);
	loan.region = other;
	ck_assert_int_eq(ledger_op_lend(lane, 1, &loan, &id), ESCROW_OK);
	ck_assert_int_eq(ledger_rejected(lane, b.conn[0], 1, done, 16), 1);
	ck_assert_int_eq(bed_deregister(&b, other, 0), ESCROW_OK);
	bed_check(&b);
}
END_TEST

/* A lane that is not believed, a connection that is not ready: there is no room. */
START_TEST(no_room)
{
	lend_run(1, BED_SQ - 1); /* one slot is the sentinel's */
	ck_assert_uint_eq(ledger_row_room(lane, conn), 0);
	ck_assert_uint_eq(ledger_run_room(conn), 0);
	ck_assert(whole(wr[BED_SQ - 2]));
	ledger_whole_settle(lane, conn, &ended);
	conn->ready = 0;
	lg_conn_short(b.l, conn);
	ck_assert_uint_eq(ledger_row_room(lane, conn), 0);
	ck_assert_uint_eq(ledger_run_room(conn), 0);
	conn->ready = 1;
	lg_conn_short(b.l, conn);
	wr[0] = ledger_row_lend(lane, conn, 2, the_region(), 0, 1, ESCROW_READ);
	lane_believe(lane, false);
	ck_assert_uint_eq(ledger_row_room(lane, conn), 0);
	ck_assert_uint_eq(ledger_run_room(conn), 0);
	ck_assert_ptr_null(ledger_row_conn(lane, wr[0]));
	lane_believe(lane, true);
	ck_assert_ptr_eq(ledger_row_conn(lane, wr[0]), conn);
	ck_assert(alone(wr[0]));
	settle_alone_one();
}
END_TEST

/* Told of twice: what owes nothing may have gone, and who it was of. */
START_TEST(not_of_what_owes_nothing)
{
	lend_run(1, 2);
	ck_assert_ptr_eq(ledger_row_conn(lane, wr[1]), conn);
	ck_assert(whole(wr[1]));
	ledger_whole_settle(lane, conn, &ended);
	ck_assert_ptr_null(ledger_row_conn(lane, wr[1]));
	ck_assert_ptr_null(ledger_row_conn(lane, wr[0]));
}
END_TEST

/* Two windows of one grant, both on this connection. */
static uint64_t window[2], id[2];

static void post_both(enum ledger_wr what)
{
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ledger_wr_lend(lane, b.conn[0], what, window[i], &id[i]),
				 ESCROW_OK);
		ck_assert_int_eq(ledger_window_event(b.l, window[i],
						     what == LEDGER_WR_BIND ? LEDGER_E_BIND
									    : LEDGER_E_INVALIDATE),
				 ESCROW_OK);
	}
}

/* Each by its own success, in order and once; what it says is what ledger_settle() says of it. */
static void settle_both(uint32_t what, uint32_t *state)
{
	uint32_t owed = ledger_conn_debt(lane, b.conn[0]);

	ck_assert(!ledger_row_window(conn, id[1], &done[0]));
	for (int i = 0; i < 2; i++) {
		ck_assert(ledger_row_window(conn, id[i], &done[0]));
		ck_assert(!ledger_row_window(conn, id[i], &done[1]));
		ck_assert_uint_eq(done[0].what, what);
		ck_assert_uint_eq(done[0].subject, window[i]);
		ck_assert_uint_eq(done[0].outcome, LEDGER_OK);
		ck_assert_uint_eq(done[0].releases, 1);
		ck_assert_uint_eq(ledger_conn_debt(lane, b.conn[0]), owed - 1 - (uint32_t)i);
		bed_check(&b);
		ck_assert_int_eq(ledger_window_settled(b.l, &done[0], state, NULL), ESCROW_OK);
	}
}

START_TEST(windows_in_order)
{
	uint64_t grant, on[2] = {b.conn[0], b.conn[0]};
	struct ledger_grant_args args = {.account = b.account,
					 .region = b.region,
					 .length = 4096,
					 .rights = ESCROW_MAY_WRITE,
					 .nwindows = 2,
					 .windows = window,
					 .connections = on};
	uint32_t state;

	for (uint32_t i = 0; i < 2; i++)
		window[i] = bed_window(&b, 0x100 * (i + 1));
	ck_assert_int_eq(ledger_grant_reserve(b.l, &args, &grant, &b.error), ESCROW_OK);
	/* Behind a slice: that comes first. */
	lend_run(1, 1);
	post_both(LEDGER_WR_BIND);
	ck_assert(!ledger_row_window(conn, id[0], &done[0]));
	ck_assert(!ledger_row_window(conn, wr[0], &done[0]));
	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 16), 1);
	settle_both(LEDGER_DONE_BIND, &state);
	ck_assert_uint_eq(state, LEDGER_GRANT_EXPORTED);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	post_both(LEDGER_WR_INVALIDATE);
	settle_both(LEDGER_DONE_INVALIDATE, &state);
	ck_assert_uint_eq(state, LEDGER_GRANT_REVOKED);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(bed_step(&b, window[i], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_OK);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger-row");
	TCase *tc = tcase_create("row");

	tcase_add_checked_fixture(tc, make, end);
	tcase_add_test(tc, a_whole_run);
	tcase_add_test(tc, not_what_is_not_oldest);
	tcase_add_test(tc, not_what_was_refused);
	tcase_add_test(tc, not_what_is_not_owed);
	tcase_add_test(tc, not_by_halves);
	tcase_add_test(tc, not_what_is_no_run);
	tcase_add_test(tc, alone_in_order);
	tcase_add_test(tc, regions);
	tcase_add_test(tc, no_key);
	tcase_add_test(tc, no_room);
	tcase_add_test(tc, not_of_what_owes_nothing);
	tcase_add_test(tc, windows_in_order);
	suite_add_tcase(s, tc);
	return testing_run(s);
}
