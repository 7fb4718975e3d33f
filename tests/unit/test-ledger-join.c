/* SPDX-License-Identifier: BSD-2-Clause */
/* Windows that leave a grant with their connection, and join it on one that came back. */
#include "tests/unit/ledger/windows.h"

#include <errno.h>

static escrow_status join(uint64_t grant, uint64_t account, uint32_t n)
{
	struct ledger_grant_args args = {.account = account,
					 .region = b.region,
					 .nwindows = n,
					 .windows = &window[1],
					 .connections = &b.conn[1]};

	return ledger_grant_join(b.l, grant, &args, &b.error);
}

/* A grant lives on when a connection goes, and gets its window when one comes back: charged once. */
START_TEST(windows_leave_and_join)
{
	uint32_t room = ledger_conn_room(b.at[1], b.conn[1]), state;
	uint64_t grant, id[2];

	ck_assert_int_eq(reserve(2, &grant), ESCROW_OK);
	ck_assert_uint_eq(ledger_conn_room(b.at[1], b.conn[1]), room - 2);
	ck_assert_int_eq(ledger_window_leave(b.l, window[1]), ESCROW_OK);
	ck_assert_int_eq(ledger_window_leave(b.l, window[1]), ESCROW_E_STATE);
	ck_assert_int_eq(ledger_window_leave(b.l, grant), ESCROW_E_INVALID);
	ck_assert_uint_eq(ledger_conn_room(b.at[1], b.conn[1]), room);
	bed_check(&b);
	post(0, LEDGER_WR_BIND, &id[0]);
	ck_assert_uint_eq(settle(0, id[0], LEDGER_OK), LEDGER_GRANT_EXPORTED);
	ck_assert_int_eq(ledger_window_leave(b.l, window[0]), ESCROW_E_STATE);

	ck_assert_int_eq(join(grant, 0, 1), ESCROW_E_INVALID);
	ck_assert_int_eq(join(grant, b.account, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(join(grant, b.account, 1), ESCROW_OK);
	ck_assert_int_eq(join(grant, b.account, 1), ESCROW_E_STATE);
	ck_assert_uint_eq(bed_used(&b, "bob", ESCROW_CHARGE_GRANTS), 1);
	ck_assert_uint_eq(bed_used(&b, "bob", ESCROW_CHARGE_GRANTED_BYTES), 4096);
	ck_assert_uint_eq(ledger_conn_room(b.at[1], b.conn[1]), room - 2);
	/* What was exported stays so. */
	ck_assert_int_eq(ledger_grant_exported(b.l, grant), ESCROW_OK);
	post(1, LEDGER_WR_BIND, &id[1]);
	ck_assert_uint_eq(settle(1, id[1], LEDGER_OK), LEDGER_GRANT_EXPORTED);
	bed_check(&b);

	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	post(0, LEDGER_WR_INVALIDATE, &id[0]);
	ck_assert_uint_eq(settle(0, id[0], LEDGER_OK), LEDGER_GRANT_REVOKING);
	post(1, LEDGER_WR_INVALIDATE, &id[1]);
	ck_assert_uint_eq(settle(1, id[1], LEDGER_OK), LEDGER_GRANT_REVOKED);
	ck_assert_int_eq(join(grant, b.account, 1), ESCROW_E_INVALID);
	bed_check(&b);
}
END_TEST

/* The bind on a connection that dies is not waited for; nothing joins what is being revoked. */
START_TEST(a_bind_dies_with_its_connection)
{
	uint64_t grant, id[2];
	uint32_t state;

	ck_assert_int_eq(reserve(2, &grant), ESCROW_OK);
	post(0, LEDGER_WR_BIND, &id[0]);
	post(1, LEDGER_WR_BIND, &id[1]);
	settle(1, id[1], LEDGER_FLUSHED);
	ck_assert_uint_eq(settle(0, id[0], LEDGER_OK), LEDGER_GRANT_BINDING);
	ck_assert_int_eq(bed_step(&b, window[1], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_grant_exported(b.l, grant), ESCROW_OK);
	bed_check(&b);
	window[1] = bed_window(&b, 0x300);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &state), ESCROW_OK);
	ck_assert_int_eq(join(grant, b.account, 1), ESCROW_E_STATE);
	post(0, LEDGER_WR_INVALIDATE, &id[0]);
	ck_assert_uint_eq(settle(0, id[0], LEDGER_OK), LEDGER_GRANT_REVOKED);
	bed_check(&b);
}
END_TEST

/* Its connection comes and goes, far more often than indexes can be held out: also the device that gives
 * the last index again (mlx5) never has one that is, nor the one that gives ever new ones (rxe). */
START_TEST(many_returns)
{
	uint64_t grant, id[2];
	uint32_t rkey = 0x200;

	ck_assert_int_eq(reserve(2, &grant), ESCROW_OK);
	for (int i = 0; i < 2; i++)
		post(i, LEDGER_WR_BIND, &id[i]);
	for (int i = 0; i < 2; i++)
		settle(i, id[i], LEDGER_OK);
	for (int turn = 0; turn < 50; turn++) {
		ck_assert_int_eq(ledger_window_event(b.l, window[1], LEDGER_E_QP_DEAD), ESCROW_OK);
		ck_assert_int_eq(bed_step(&b, window[1], ESCROW_STEP_DEALLOC_WINDOW, 0), ESCROW_OK);
		ck_assert_int_eq(bed_disconnect(&b, b.conn[1], 0), ESCROW_OK);
		b.conn[1] = bed_connect(&b, 1, b.account);
		rkey += _i ? 0x100 : 0;
		window[1] = bed_window(&b, rkey);
		ck_assert(!ledger_window_held_out(b.l, window[1]));
		ck_assert_int_eq(join(grant, b.account, 1), ESCROW_OK);
		post(1, LEDGER_WR_BIND, &id[1]);
		ck_assert_uint_eq(settle(1, id[1], LEDGER_OK), LEDGER_GRANT_EXPORTED);
	}
	bed_check(&b);
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, &(uint32_t){0}), ESCROW_OK);
	for (int i = 0; i < 2; i++)
		post(i, LEDGER_WR_INVALIDATE, &id[i]);
	settle(0, id[0], LEDGER_OK);
	ck_assert_uint_eq(settle(1, id[1], LEDGER_OK), LEDGER_GRANT_REVOKED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ledger-join");
	TCase *tc = tcase_create("join");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, make, end);
	tcase_add_test(tc, windows_leave_and_join);
	tcase_add_test(tc, a_bind_dies_with_its_connection);
	tcase_add_loop_test(tc, many_returns, 0, 2);
	suite_add_tcase(suite, tc);
	return testing_run(suite);
}
