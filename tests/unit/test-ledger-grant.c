/* SPDX-License-Identifier: BSD-2-Clause */
/* Grants and windows: reserved as a whole, exported by a completion, revoked by a receipt. */
#include "tests/unit/ledger/windows.h"

#include <errno.h>

static uint64_t exported(void)
{
	uint64_t grant, id[2];

	ck_assert_int_eq(reserve(2, &grant), ESCROW_OK);
	for (int i = 0; i < 2; i++)
		post(i, LEDGER_WR_BIND, &id[i]);
	ck_assert_int_eq(ledger_grant_exported(b.l, grant), ESCROW_E_STATE);
	ck_assert_uint_eq(settle(0, id[0], LEDGER_OK), LEDGER_GRANT_BINDING);
	ck_assert_int_eq(ledger_grant_exported(b.l, grant), ESCROW_E_STATE);
	ck_assert_uint_eq(settle(1, id[1], LEDGER_OK), LEDGER_GRANT_EXPORTED);
	ck_assert_int_eq(ledger_grant_exported(b.l, grant), ESCROW_OK);
	return grant;
}

/* R01: the whole life, over two connections. */
START_TEST(life)
{
	uint64_t grant = exported(), id[2];
	uint32_t state;
	uint8_t tag;

	ck_assert_uint_eq(bed_used(&b, "bob", ESCROW_CHARGE_GRANTS), 1);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_GRANTED_BYTES), 4096);
	/* The bind's slot is back, the invalidation's is kept. */
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_SQ_SLOTS), BED_LANES + 2);
	bed_check(&b);
	ck_assert_int_eq(ledger_window_event(b.l, window[0], LEDGER_E_INVALIDATE), ESCROW_OK);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_E_STATE);
	ck_assert_uint_eq(state, LEDGER_GRANT_REVOKING);
	ck_assert_int_eq(
		ledger_wr_lend(b.at[0], b.conn[0], LEDGER_WR_INVALIDATE, window[0], &id[0]),
		ESCROW_OK);
	/* One invalidation a bind: its slot is spent. */
	ck_assert_int_eq(
		ledger_wr_lend(b.at[0], b.conn[0], LEDGER_WR_INVALIDATE, window[0], &id[1]),
		ESCROW_E_INVALID);
	post(1, LEDGER_WR_INVALIDATE, &id[1]);
	ck_assert_uint_eq(settle(0, id[0], LEDGER_OK), LEDGER_GRANT_REVOKING);
	bed_check(&b);
	ck_assert_uint_eq(settle(1, id[1], LEDGER_OK), LEDGER_GRANT_REVOKED);
	ck_assert_int_eq(ledger_grant_state(b.l, grant), -1);
	ck_assert_uint_eq(bed_used(&b, "bob", ESCROW_CHARGE_GRANTS), 0);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_SQ_SLOTS), BED_LANES);
	ck_assert_uint_eq(bed_info(&b, b.region).pins, 0);
	/* The tag went on: 0x100 was made with tag 0, bound with 1, next is 2. */
	ck_assert_int_eq(ledger_window_tag(b.l, window[0], &tag), ESCROW_OK);
	ck_assert_uint_eq(tag, 2);
	bed_check(&b);
}
END_TEST

/* P06: the second window cannot have its slots: nothing is kept, nothing charged. */
START_TEST(all_or_nothing)
{
	struct ledger_part part = {.lane = b.at[1], .connection = b.conn[1], .slices = BED_SQ - 2};
	struct ledger_admission a = {.nparts = 1, .parts = &part};
	uint64_t op, grant = 4;

	ck_assert_int_eq(ledger_op_admit(b.at[1], &a, &op), ESCROW_OK);
	ck_assert_int_eq(reserve(2, &grant), ESCROW_E_AGAIN);
	ck_assert_uint_eq(grant, 4);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_GRANTS), 0);
	ck_assert_uint_eq(ledger_conn_room(b.at[0], b.conn[0]), BED_SQ - 1);
	bed_check(&b);
	ck_assert_int_eq(ledger_op_drop(b.at[1], b.conn[1], op, BED_SQ - 2, done), 1);
	ck_assert_int_eq(ledger_op_end(b.at[1], op), ESCROW_OK);
}
END_TEST

/* R09: a full queue still takes the invalidation, for which the slot was kept. */
START_TEST(full_queue)
{
	uint64_t grant = exported(), id, op, wr[BED_SQ];
	uint32_t state, room = ledger_conn_room(b.at[0], b.conn[0]);

	ck_assert_uint_eq(room, BED_SQ - 2);
	op = bed_op(&b, room, wr);
	ck_assert_uint_eq(ledger_conn_room(b.at[0], b.conn[0]), 0);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	post(0, LEDGER_WR_INVALIDATE, &id);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, id, LEDGER_OK, done, 16), 2);
	ck_assert_uint_eq(done[0].subject, op);
	ck_assert_int_eq(ledger_window_settled(b.l, &done[1], &state, NULL), ESCROW_OK);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	post(1, LEDGER_WR_INVALIDATE, &id);
	ck_assert_uint_eq(settle(1, id, LEDGER_OK), LEDGER_GRANT_REVOKED);
}
END_TEST

/* R07, R08: a failed bind exports nothing and is no proof that it did not happen. */
START_TEST(bind_fails)
{
	uint64_t grant, id;
	uint32_t state;

	ck_assert_int_eq(reserve(1, &grant), ESCROW_OK);
	ck_assert_int_eq(ledger_grant_ready(b.l, grant), ESCROW_E_STATE);
	post(0, LEDGER_WR_BIND, &id);
	settle(0, id, LEDGER_FLUSHED);
	ck_assert_uint_eq(bed_info(&b, window[0]).machine_state, LEDGER_WINDOW_ORPHAN);
	ck_assert_int_eq(ledger_grant_exported(b.l, grant), ESCROW_E_STATE);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	ck_assert_uint_eq(state, LEDGER_GRANT_REVOKING);
	bed_check(&b);
	ck_assert_int_eq(bed_step(&b, window[0], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_grant_state(b.l, grant), -1);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_SQ_SLOTS), BED_LANES);
}
END_TEST

/* A success that is no receipt binds nothing, and invalidates nothing. */
START_TEST(not_believed)
{
	uint64_t grant, id;
	uint32_t state;

	ck_assert_int_eq(reserve(2, &grant), ESCROW_OK);
	for (int i = 0; i < 2; i++) {
		post(i, LEDGER_WR_BIND, &id);
		ck_assert_int_eq(bed_cqe(&b, i, id, LEDGER_OK, done, 16), 1);
		ck_assert_uint_eq(done[0].releases, 1);
		done[0].releases = (uint8_t)i;
		ck_assert_int_eq(ledger_window_settled(b.l, &done[0], &state, NULL), ESCROW_OK);
		ck_assert_uint_eq(state, LEDGER_GRANT_BINDING);
	}
	ck_assert_uint_eq(bed_info(&b, window[0]).machine_state, LEDGER_WINDOW_ORPHAN);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	post(1, LEDGER_WR_INVALIDATE, &id);
	ck_assert_int_eq(bed_cqe(&b, 1, id, LEDGER_OK, done, 16), 1);
	done[0].releases = 0;
	ck_assert_int_eq(ledger_window_settled(b.l, &done[0], &state, NULL), ESCROW_OK);
	ck_assert_uint_eq(state, LEDGER_GRANT_REVOKING);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(bed_step(&b, window[i], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_grant_state(b.l, grant), -1);
	bed_check(&b);
}
END_TEST

/* The post refused the bind: the window was never bound, its slots are kept still. */
START_TEST(bind_rejected)
{
	uint64_t grant, id;
	uint32_t state;

	ck_assert_int_eq(reserve(1, &grant), ESCROW_OK);
	ck_assert_int_eq(ledger_wr_lend(b.at[0], b.conn[0], LEDGER_WR_BIND, window[0], &id),
			 ESCROW_OK);
	ck_assert_int_eq(ledger_rejected(b.at[0], b.conn[0], 1, done, 1), 1);
	ck_assert_int_eq(ledger_window_settled(b.l, &done[0], &state, NULL), ESCROW_OK);
	ck_assert_uint_eq(state, LEDGER_GRANT_RESERVED);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_SQ_SLOTS), BED_LANES + 2);
	bed_check(&b);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	ck_assert_uint_eq(state, LEDGER_GRANT_REVOKED);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_SQ_SLOTS), BED_LANES);
}
END_TEST

/* R24, R25, R04: neither the connection nor the region goes while a window is bound. */
START_TEST(windows_first)
{
	uint64_t grant = exported();
	uint32_t state;

	ck_assert_int_eq(bed_disconnect(&b, b.conn[0], 0), ESCROW_E_BUSY);
	ck_assert_int_eq(bed_deregister(&b, b.region, 0), ESCROW_E_BUSY);
	ck_assert_int_eq(bed_step(&b, window[0], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_E_STATE);
	ck_assert_int_eq(ledger_owner_event(b.l, b.account, LEDGER_E_FENCE), ESCROW_E_BUSY);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	/* R04: its queue posts no more, so the kernel must take them back. */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ledger_window_event(b.l, window[i], LEDGER_E_QP_DEAD), ESCROW_OK);
		ck_assert_int_eq(bed_step(&b, window[i], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_OK);
	}
	ck_assert_int_eq(ledger_grant_state(b.l, grant), -1);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_DESTROY_QP, 0), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.region, ESCROW_STEP_DEREGISTER, 0), ESCROW_OK);
	bed_check(&b);
}
END_TEST

/* R05, R06: dealloc fails: STUCK, the region is not even asked, its name stays charged. */
START_TEST(stuck)
{
	uint64_t grant = exported(), id;
	uint32_t state, held;

	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	ck_assert_int_eq(ledger_window_event(b.l, window[0], LEDGER_E_QP_DEAD), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, window[0], ESCROW_STEP_DEALLOC_WINDOW, EIO),
			 ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(ledger_grant_state(b.l, grant), LEDGER_GRANT_STUCK);
	ck_assert_uint_eq(bed_stuck(&b, "bob", ESCROW_CHARGE_GRANTS), 1);
	ck_assert_uint_eq(bed_used(&b, "bob", ESCROW_CHARGE_GRANTS), 1);
	ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_BYTES), BED_REGION);
	ck_assert_uint_eq(bed_info(&b, b.region).held, 2); /* by the window and by the grant */
	ck_assert_uint_eq(ledger_quarantined(b.l, &held), 2);
	/* engine, context, lane 0 and its connection, account, region */
	ck_assert_uint_eq(held, 6);
	ck_assert_int_eq(bed_step(&b, window[0], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_E_STATE);
	ck_assert_int_eq(bed_deregister(&b, b.region, 0), ESCROW_E_BUSY);
	ck_assert_uint_eq(ledger_step_calls(b.l, b.region, ESCROW_STEP_DEREGISTER), 0);
	bed_check(&b);
	/* The other window's receipt alone does not end the grant. */
	post(1, LEDGER_WR_INVALIDATE, &id);
	ck_assert_uint_eq(settle(1, id, LEDGER_OK), LEDGER_GRANT_STUCK);
	bed_check(&b);
	/* No native word releases it any more; one from outside does. */
	ck_assert_int_eq(ledger_late_receipt(b.l, window[0], ESCROW_RECEIPT_QP_RESET),
			 ESCROW_E_STATE);
	ck_assert_int_eq(ledger_late_receipt(b.l, window[0], LEDGER_RECEIPT_PEER_SAID),
			 ESCROW_E_STATE);
	ck_assert_int_eq(ledger_late_receipt(b.l, window[0], ESCROW_RECEIPT_FUNCTION_FENCED),
			 ESCROW_OK);
	ck_assert_int_eq(ledger_grant_state(b.l, grant), -1);
	ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_BYTES), 0);
	ck_assert_uint_eq(ledger_quarantined(b.l, &held), 0);
	ck_assert_uint_eq(held, 0);
	bed_check(&b);
	ck_assert_int_eq(bed_step(&b, b.region, ESCROW_STEP_DEREGISTER, 0), ESCROW_OK);
}
END_TEST

/* One life of a key of the first window. */
static void grant_and_revoke(void)
{
	uint64_t grant, id;
	uint32_t state;

	ck_assert_int_eq(reserve(1, &grant), ESCROW_OK);
	post(0, LEDGER_WR_BIND, &id);
	ck_assert_uint_eq(settle(0, id, LEDGER_OK), LEDGER_GRANT_EXPORTED);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	post(0, LEDGER_WR_INVALIDATE, &id);
	ck_assert_uint_eq(settle(0, id, LEDGER_OK), LEDGER_GRANT_REVOKED);
}

/* R17: 255 binds, every tag once, then the window is worn and only its deallocation is left. */
START_TEST(tags)
{
	bool seen[256] = {false};
	uint64_t grant;
	uint8_t tag;

	for (int i = 0; i < 255; i++) {
		ck_assert(!ledger_window_worn(b.l, window[0]));
		ck_assert_int_eq(ledger_window_tag(b.l, window[0], &tag), ESCROW_OK);
		ck_assert(!seen[tag]);
		seen[tag] = true;
		grant_and_revoke();
	}
	ck_assert(!seen[0]); /* the tag it was made with */
	ck_assert(ledger_window_worn(b.l, window[0]));
	ck_assert_int_eq(ledger_window_tag(b.l, window[0], &tag), ESCROW_E_LIMIT);
	ck_assert_int_eq(reserve(1, &grant), ESCROW_E_LIMIT);
	ck_assert_int_eq(bed_step(&b, window[0], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_OK);
	bed_check(&b);
}
END_TEST

/* R16: an index whose keys a peer may know stays unused until that peer's epoch is fenced. */
START_TEST(hold_out)
{
	uint64_t grant, id;
	uint32_t state;
	const uint8_t nobody[16] = {0};

	ck_assert_int_eq(reserve(1, &grant), ESCROW_OK);
	post(0, LEDGER_WR_BIND, &id);
	settle(0, id, LEDGER_OK);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	post(0, LEDGER_WR_INVALIDATE, &id);
	settle(0, id, LEDGER_OK);
	ck_assert_int_eq(bed_step(&b, window[0], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_OK);
	window[0] = bed_window(&b, 0x107); /* the same index came back */
	ck_assert(ledger_window_held_out(b.l, window[0]));
	ck_assert(!ledger_window_held_out(b.l, window[1]));
	ck_assert_int_eq(reserve(1, &grant), ESCROW_E_LIMIT);
	/* Its peer's process is proven gone (all-zero incarnation here). */
	ck_assert_int_eq(ledger_fenced(b.l, nobody, ESCROW_RECEIPT_PROCESS_REAPED), 0);
	ck_assert(!ledger_window_held_out(b.l, window[0]));
}
END_TEST

/* The window's connection has died: freed. */
static void free_dead(int i)
{
	ck_assert_int_eq(ledger_window_event(b.l, window[i], LEDGER_E_QP_DEAD), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, window[i], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_OK);
}

/* R16: a key is good on the queue pair of its bind only: the receipt of that one's end is the proof. */
START_TEST(hold_out_ends_with_its_connection)
{
	uint64_t grant = exported();
	uint32_t state;

	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	for (int i = 0; i < 2; i++)
		free_dead(i);
	window[0] = bed_window(&b, 0x1aa);
	window[1] = bed_window(&b, 0x2aa);
	ck_assert(ledger_window_held_out(b.l, window[0]));
	ck_assert(ledger_window_held_out(b.l, window[1]));
	ck_assert_int_eq(bed_disconnect(&b, b.conn[0], 0), ESCROW_OK);
	ck_assert(!ledger_window_held_out(b.l, window[0]));
	ck_assert(ledger_window_held_out(b.l, window[1]));
	/* That of the other one has no receipt, and then has. */
	ck_assert_int_eq(bed_disconnect(&b, b.conn[1], EIO), ESCROW_E_UNQUIESCED);
	ck_assert(ledger_window_held_out(b.l, window[1]));
	ck_assert_int_eq(ledger_late_receipt(b.l, b.conn[1], ESCROW_RECEIPT_QP_DESTROYED),
			 ESCROW_OK);
	ck_assert(!ledger_window_held_out(b.l, window[1]));
	for (int i = 0; i < 2; i++)
		b.conn[i] = bed_connect(&b, i, b.account);
}
END_TEST

/* R16: keys on several connections: no one of these is a proof for them. */
START_TEST(hold_out_ends_with_fence)
{
	uint64_t conn[2] = {b.conn[0], b.conn[1]};

	for (int i = 0; i < 2; i++) {
		b.conn[0] = conn[i];
		b.at[0] = ledger_lane_of(b.l, b.lane[i]);
		grant_and_revoke();
	}
	b.at[0] = ledger_lane_of(b.l, b.lane[0]);
	ck_assert_int_eq(bed_step(&b, window[0], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_OK);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(bed_disconnect(&b, conn[i], 0), ESCROW_OK);
	window[0] = bed_window(&b, 0x1aa);
	ck_assert(ledger_window_held_out(b.l, window[0]));
	ck_assert_int_eq(ledger_owner_event(b.l, b.account, LEDGER_E_FENCE), ESCROW_OK);
	ck_assert(!ledger_window_held_out(b.l, window[0]));
	ck_assert_int_eq(ledger_owner_event(b.l, b.account, LEDGER_E_STOP), ESCROW_OK);
	b.account = bed_account(&b, "bob");
	for (int i = 0; i < 2; i++)
		b.conn[i] = bed_connect(&b, i, b.account);
}
END_TEST

/* A window that made keys for one peer makes none for another before that one is fenced. */
START_TEST(one_peer_a_window)
{
	uint64_t other = bed_account(&b, "eve"), conn = bed_connect(&b, 0, other), grant, id;
	struct ledger_grant_args args = {.account = other,
					 .region = b.region,
					 .length = 1,
					 .rights = ESCROW_MAY_READ,
					 .nwindows = 1,
					 .windows = window,
					 .connections = &conn};
	uint32_t state;

	ck_assert_int_eq(reserve(1, &grant), ESCROW_OK);
	ck_assert_int_eq(ledger_grant_reserve(b.l, &args, &id, &b.error), ESCROW_E_STATE);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	ck_assert_int_eq(ledger_grant_reserve(b.l, &args, &id, &b.error), ESCROW_E_LIMIT);
	ck_assert_int_eq(bed_disconnect(&b, conn, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, other, LEDGER_E_FENCE), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, other, LEDGER_E_STOP), ESCROW_OK);
}
END_TEST

/* H02 and arguments: nothing is charged for what is refused. */
START_TEST(bad_arguments)
{
	struct ledger_grant_args good = {.account = b.account,
					 .region = b.region,
					 .length = 1,
					 .rights = ESCROW_MAY_READ},
				 a;
	uint64_t grant = 1;

#define BAD(field, value)                                                                          \
	do {                                                                                       \
		a = good;                                                                          \
		a.field = (value);                                                                 \
		ck_assert_int_eq(ledger_grant_reserve(b.l, &a, &grant, NULL), ESCROW_E_INVALID);   \
	} while (0)
	BAD(account, b.region);
	BAD(region, b.account);
	BAD(region, 0);
	BAD(length, 0);
	BAD(length, BED_REGION + 1);
	BAD(offset, BED_REGION);
	BAD(offset, UINT64_MAX);
	BAD(rights, 0);
	BAD(rights, 4);
#undef BAD
	ck_assert_uint_eq(grant, 1);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_GRANTS), 0);
	/* An offer: no peer, no window, exported when the backend says so. */
	good.account = 0;
	ck_assert_int_eq(ledger_grant_reserve(b.l, &good, &grant, NULL), ESCROW_OK);
	ck_assert_int_eq(ledger_grant_ready(b.l, grant), ESCROW_OK);
	ck_assert_int_eq(ledger_grant_exported(b.l, grant), ESCROW_OK);
	ck_assert_int_eq(bed_deregister(&b, b.region, 0), ESCROW_E_BUSY);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, NULL), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.region, ESCROW_STEP_DEREGISTER, 0), ESCROW_OK);
}
END_TEST

static void make_quiet(void)
{
	bed_log_entries = 0;
	make();
}

static TCase *cases(const char *name, void (*set_up)(void))
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, set_up, end);
	tcase_add_test(tc, life);
	tcase_add_test(tc, all_or_nothing);
	tcase_add_test(tc, full_queue);
	tcase_add_test(tc, bind_fails);
	tcase_add_test(tc, not_believed);
	tcase_add_test(tc, bind_rejected);
	tcase_add_test(tc, windows_first);
	tcase_add_test(tc, stuck);
	tcase_add_test(tc, tags);
	tcase_add_test(tc, hold_out);
	tcase_add_test(tc, hold_out_ends_with_its_connection);
	tcase_add_test(tc, hold_out_ends_with_fence);
	tcase_add_test(tc, one_peer_a_window);
	tcase_add_test(tc, bad_arguments);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("ledger-grant");

	suite_add_tcase(suite, cases("grant", make));
	suite_add_tcase(suite, cases("quiet", make_quiet));
	return testing_run(suite);
}
