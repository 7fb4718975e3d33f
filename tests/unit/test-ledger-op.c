/* SPDX-License-Identifier: BSD-2-Clause */
/* Parents: admitted as a whole, reported once, over one lane or two; and whose an error is. */
#include "tests/unit/ledger/bed.h"

#include <string.h>

static struct bed b;
static struct ledger_done done[16];
static uint64_t wr[BED_SQ];

static void make(void)
{
	memset(&b, 0, sizeof(b));
	bed_make(&b, LEDGER_STRENGTH_USUAL);
}

static void end(void)
{
	bed_end(&b);
}

/* Admission is all or nothing, over lanes too. */
START_TEST(all_or_nothing)
{
	struct ledger_part parts[2] = {
		{.lane = b.at[0], .connection = b.conn[0], .slices = 3},
		{.lane = b.at[1], .connection = b.conn[1], .slices = BED_SQ} /* one too many */
	};
	struct ledger_admission a = {.nparts = 2, .parts = parts};
	uint64_t op = 5;

	ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &op), ESCROW_E_AGAIN);
	ck_assert_uint_eq(op, 5);
	ck_assert_uint_eq(ledger_conn_room(b.at[0], b.conn[0]), BED_SQ - 1);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 0);
	parts[1].connection = b.conn[0]; /* of another lane */
	parts[1].slices = 1;
	ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &op), ESCROW_E_INVALID);
	parts[1].connection = b.conn[1] + (UINT64_C(1) << 24); /* stale */
	ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &op), ESCROW_E_INVALID);
	ck_assert_int_eq(ledger_owner_event(b.l, b.conn[1], LEDGER_E_STOP), ESCROW_OK);
	parts[1].connection = b.conn[1];
	ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &op), ESCROW_E_STATE);
	ck_assert_uint_eq(ledger_conn_room(b.at[0], b.conn[0]), BED_SQ - 1);
	bed_check(&b);
	ck_assert_int_eq(bed_step(&b, b.conn[1], ESCROW_STEP_DESTROY_QP, 0), ESCROW_OK);
}
END_TEST

/* Q29, Q31: a parent over two lanes is done when both are, whichever comes last. */
START_TEST(two_lanes)
{
	struct ledger_part parts[2] = {{.lane = b.at[0], .connection = b.conn[0], .slices = 1},
				       {.lane = b.at[1], .connection = b.conn[1], .slices = 1}};
	struct ledger_admission a = {
		.user = 9, .nparts = 2, .parts = parts, .flags = LEDGER_ADMIT_ENDS};
	struct ledger_loan loan = {.region = b.region, .length = 64, .opcode = ESCROW_READ};

	for (int round = 0; round < 40; round++) { /* more than a lane's op slots */
		int first = round & 1;

		ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &loan.op), ESCROW_OK);
		for (int i = 0; i < 2; i++) {
			loan.connection = b.conn[i];
			ck_assert_int_eq(ledger_slice_lend(b.at[i], &loan, &wr[i]), ESCROW_OK);
		}
		ck_assert_uint_eq(bed_info(&b, b.region).loans, 2);
		ck_assert_int_eq(bed_cqe(&b, first, wr[first], LEDGER_OK, done, 1), 0);
		ck_assert_int_eq(bed_cqe(&b, !first, wr[!first], LEDGER_OK, done, 1), 1);
		ck_assert_uint_eq(done[0].subject, loan.op);
		ck_assert_uint_eq(done[0].bytes, 128);
		bed_check(&b);
	}
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 0);
}
END_TEST

/* Cancel lends no more; what is posted is waited for, what is planned can be dropped. */
START_TEST(cancel_and_drop)
{
	struct ledger_part part = {.lane = b.at[0], .connection = b.conn[0], .slices = 3};
	struct ledger_admission a = {.nparts = 1, .parts = &part};
	struct ledger_loan loan = {
		.connection = b.conn[0], .region = b.region, .length = 8, .opcode = ESCROW_READ};
	struct ledger_op_info info;

	ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &loan.op), ESCROW_OK);
	ck_assert_int_eq(ledger_slice_lend(b.at[0], &loan, &wr[0]), ESCROW_OK);
	ck_assert_int_eq(ledger_op_cancel(b.at[0], loan.op), ESCROW_OK);
	ck_assert_int_eq(ledger_op_cancel(b.at[0], loan.op), ESCROW_E_STATE);
	ck_assert_int_eq(ledger_slice_lend(b.at[0], &loan, &wr[1]), ESCROW_E_CANCELED);
	ck_assert_int_eq(ledger_op_drop(b.at[0], b.conn[0], loan.op, 3, done), ESCROW_E_INVALID);
	ck_assert_int_eq(ledger_op_drop(b.at[0], b.conn[0], loan.op, 2, done), 0);
	ck_assert_int_eq(ledger_op_info(b.at[0], loan.op, &info), ESCROW_OK);
	ck_assert_uint_eq(info.custody, ESCROW_CUSTODY_HELD);
	ck_assert_uint_eq(info.unsettled, 1);
	ck_assert_uint_eq(info.state, LEDGER_OP_CANCELLING);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 1), 1);
	ck_assert_uint_eq(done[0].custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ledger_op_end(b.at[0], loan.op), ESCROW_OK);
}
END_TEST

/* A parent in one step: its slices in order, one report; what is refused charges nothing. */
START_TEST(in_one_step)
{
	struct ledger_loan loan = {.connection = b.conn[0],
				   .region = b.region,
				   .length = 2001,
				   .opcode = ESCROW_WRITE};
	static const struct {
		uint64_t offset, length, bytes;
		uint32_t slices;
	} wrong[] = {{0, 2000, 1000, 3},
		     {0, 3001, 1000, 3},
		     {0, 3000, 0, 3},
		     {0, 0, 1000, 3},
		     {0, 2001, 1000, 0},
		     {UINT64_MAX, 2001, 1000, 3},
		     {UINT32_MAX, 2001, 1000, 3},
		     {0, 3000, 1, 3000}};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		loan.offset = wrong[i].offset;
		loan.length = wrong[i].length;
		ck_assert_int_lt(
			ledger_run_lend(b.at[0], 9, &loan, wrong[i].bytes, wrong[i].slices, wr), 0);
	}
	loan.offset = 0;
	loan.length = 2001;
	loan.connection = b.account;
	ck_assert_int_eq(ledger_run_lend(b.at[0], 9, &loan, 1000, 3, wr), ESCROW_E_INVALID);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 0);
	ck_assert_uint_eq(bed_info(&b, b.region).loans, 0);
	bed_check(&b);
	loan.connection = b.conn[0];
	ck_assert_int_eq(ledger_run_lend(b.at[0], 9, &loan, 1000, 3, wr), ESCROW_OK);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 1);
	ck_assert_uint_eq(bed_info(&b, b.region).loans, 3);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 1), 0);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[2], LEDGER_OK, done, 1), 1);
	ck_assert_uint_eq(done[0].user, 9);
	ck_assert_uint_eq(done[0].bytes, 2001);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 0);
	bed_check(&b);
}
END_TEST

/* Zero slices: done at once, one op slot until it is ended. */
START_TEST(nothing_to_do)
{
	struct ledger_admission a = {.user = 3};
	struct ledger_op_info info;
	uint64_t op;

	ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &op), ESCROW_OK);
	ck_assert_int_eq(ledger_op_info(b.at[0], op, &info), ESCROW_OK);
	ck_assert_uint_eq(info.state, LEDGER_OP_DONE);
	ck_assert_uint_eq(info.effect, ESCROW_EFFECT_EXECUTED);
	ck_assert_uint_eq(info.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
}
END_TEST

static uint64_t user_of(uint64_t id)
{
	struct ledger_cqe cqe = {.wr_id = id, .outcome = LEDGER_FLUSHED, .user = 12345};

	ck_assert_int_eq(ledger_settle(b.at[0], &cqe, done, 16), ESCROW_E_INVALID);
	return cqe.user;
}

/* An error that comes twice is its connection's; one of an earlier connection is nobody's. */
START_TEST(whose_error)
{
	struct ledger_owner_args args = {.kind = ESCROW_OWNER_CONNECTION,
					 .parent = b.lane[0],
					 .sq_depth = BED_SQ,
					 .rq_depth = BED_RQ,
					 .account = b.account,
					 .steps = LEDGER_STEP_BIT(ESCROW_STEP_DESTROY_QP),
					 .user = 77};
	uint64_t op = bed_op(&b, 2, wr), old = wr[1];

	ck_assert_int_eq(bed_cqe(&b, 0, old, LEDGER_OK, done, 16), 1);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_uint_eq(ledger_wr_connection(b.at[0], old), b.conn[0]);
	ck_assert_int_eq(bed_disconnect(&b, b.conn[0], 0), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_add(b.l, &args, &b.conn[0], &b.error), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, b.conn[0], LEDGER_E_READY), ESCROW_OK);
	/* The new one has the old one's ring; it has posted nothing, then something. */
	ck_assert_uint_eq(user_of(old), 0);
	op = bed_op(&b, 2, wr);
	ck_assert_uint_eq(user_of(old), 0);
	ck_assert_uint_eq(ledger_wr_connection(b.at[0], old), 0);
	ck_assert_uint_eq(ledger_lane_anomalies(b.at[0]), 2);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 16), 0);
	ck_assert_uint_eq(user_of(wr[0]), 77);
	ck_assert_uint_eq(ledger_wr_connection(b.at[0], wr[0]), b.conn[0]);
	/* What it has not posted yet it did not post. */
	ck_assert_uint_eq(user_of(wr[1] + (UINT64_C(1) << 24) + 1), 0);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), 1);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
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
	tcase_add_test(tc, in_one_step);
	tcase_add_test(tc, all_or_nothing);
	tcase_add_test(tc, two_lanes);
	tcase_add_test(tc, cancel_and_drop);
	tcase_add_test(tc, nothing_to_do);
	tcase_add_test(tc, whose_error);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("ledger-op");

	suite_add_tcase(suite, cases("op", make));
	suite_add_tcase(suite, cases("quiet", make_quiet));
	return testing_run(suite);
}
