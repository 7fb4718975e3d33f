/* SPDX-License-Identifier: BSD-2-Clause */
/* Loans and debts: what is lent, what a completion settles, what comes of it. */
#include "backends/ledger/ledger-int.h" /* to stand just before a wrap */
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

/* Q10: one completion settles every earlier request of its queue, and the slots return with it. */
START_TEST(covering)
{
	uint64_t op = bed_op(&b, 4, wr);

	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 1);
	/* 4 slices and the sentinel's own slot of each connection */
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_SQ_SLOTS), 4 + BED_LANES);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_CQ_SLOTS),
			  4 + BED_LANES + BED_LANES * BED_RQ);
	ck_assert_uint_eq(bed_used(&b, "bob", ESCROW_CHARGE_OPS), 1);
	ck_assert_uint_eq(bed_info(&b, b.region).loans, 4);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[3], LEDGER_OK, done, 16), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_OP);
	ck_assert_uint_eq(done[0].subject, op);
	ck_assert_uint_eq(done[0].user, 77);
	ck_assert_uint_eq(done[0].bytes, 4 * 1024);
	ck_assert_uint_eq(done[0].custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(done[0].effect, ESCROW_EFFECT_EXECUTED);
	ck_assert_uint_eq(bed_info(&b, b.region).loans, 0);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_SQ_SLOTS), BED_LANES);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_E_INVALID);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 0);
	bed_check(&b);
}
END_TEST

/* An earlier completion settles nothing behind it. */
START_TEST(in_order)
{
	uint64_t op = bed_op(&b, 3, wr);

	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 16), 0);
	ck_assert_uint_eq(ledger_slice_state(b.at[0], wr[0]), LEDGER_SLICE_SETTLED);
	ck_assert_uint_eq(ledger_slice_state(b.at[0], wr[1]), LEDGER_SLICE_POSTED);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_E_BUSY);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), 0);
	ck_assert_uint_eq(ledger_conn_debt(b.at[0], b.conn[0]), 1);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[2], LEDGER_OK, done, 16), 1);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
}
END_TEST

/* Q12, Q13, Q39: old, duplicate, foreign and made-up ids change nothing and are counted. */
START_TEST(anomalies)
{
	uint64_t op = bed_op(&b, 2, wr), bits = 0, bad[8];
	uint64_t before = bed_used(&b, NULL, ESCROW_CHARGE_SQ_SLOTS);

	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 16), 0);
	bad[bits++] = wr[0];                       /* duplicate */
	bad[bits++] = wr[1] + (UINT64_C(1) << 24); /* not lent yet */
	bad[bits++] = wr[1] ^ (UINT64_C(1) << 56); /* another kind */
	bad[bits++] = wr[1] ^ 1;                   /* another slot than its sequence */
	bad[bits++] = wr[1] | 0xffffff;            /* beyond every ring */
	bad[bits++] = 0;
	bad[bits++] = UINT64_MAX;
	bad[bits++] = wr[1] - ((uint64_t)BED_SQ << 24); /* the same slot, a round ago */
	for (uint64_t i = 0; i < bits; i++)
		ck_assert_int_eq(bed_cqe(&b, 0, bad[i], LEDGER_OK, done, 16), ESCROW_E_INVALID);
	/* Of another lane, and an outcome that no completion has. */
	ck_assert_int_eq(bed_cqe(&b, 1, wr[1], LEDGER_OK, done, 16), ESCROW_E_INVALID);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_DISCARDED, done, 16), ESCROW_E_INVALID);
	ck_assert_uint_eq(ledger_lane_anomalies(b.at[0]), bits + 1);
	ck_assert_uint_eq(ledger_lane_anomalies(b.at[1]), 1);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_SQ_SLOTS), before - 1);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), 1);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), ESCROW_E_INVALID);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
}
END_TEST

/* The ids of a gone connection stay foreign to the next one on the same ring (E06). */
START_TEST(old_connection)
{
	uint64_t op = bed_op(&b, 2, wr), old = wr[1], again;

	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), 1);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_int_eq(bed_disconnect(&b, b.conn[0], 0), ESCROW_OK);
	again = bed_connect(&b, 0, b.account);
	ck_assert_uint_ne(again, b.conn[0]);
	b.conn[0] = again;
	op = bed_op(&b, 2, wr);
	ck_assert_int_eq(bed_cqe(&b, 0, old, LEDGER_OK, done, 16), ESCROW_E_INVALID);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), 1);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
}
END_TEST

/* Q08, Q09: bad_wr and what follows were never posted; what came before owes a completion. */
START_TEST(rejected)
{
	uint64_t op = bed_op(&b, 5, wr);

	ck_assert_int_eq(ledger_rejected(b.at[0], b.conn[0], 6, done, 16), ESCROW_E_INVALID);
	ck_assert_int_eq(ledger_rejected(b.at[0], b.conn[0], 3, done, 2), ESCROW_E_TOO_SMALL);
	ck_assert_uint_eq(ledger_conn_debt(b.at[0], b.conn[0]), 5);
	ck_assert_int_eq(ledger_rejected(b.at[0], b.conn[0], 3, done, 16), 0);
	ck_assert_uint_eq(ledger_conn_debt(b.at[0], b.conn[0]), 2);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_SQ_SLOTS), 2 + BED_LANES);
	ck_assert_uint_eq(bed_info(&b, b.region).loans, 2);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), 1);
	/* two executed, three not: nobody can call the whole either */
	ck_assert_uint_eq(done[0].effect, ESCROW_EFFECT_UNKNOWN);
	ck_assert_uint_eq(done[0].bytes, 2048);
	ck_assert_uint_eq(done[0].outcome, LEDGER_REJECTED);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);

	op = bed_op(&b, 5, wr);
	ck_assert_int_eq(ledger_rejected(b.at[0], b.conn[0], 5, done, 16), 1);
	ck_assert_uint_eq(done[0].effect, ESCROW_EFFECT_NOT_EXECUTED);
	ck_assert_uint_eq(done[0].custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_SQ_SLOTS), BED_LANES);
}
END_TEST

/* Q11, Q15: the first fails, the rest is flushed; nothing of it may be called not executed. */
START_TEST(flushed)
{
	uint64_t op = bed_op(&b, 4, wr);

	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_RETRY_ERROR, done, 16), 0);
	for (int i = 1; i < 3; i++)
		ck_assert_int_eq(bed_cqe(&b, 0, wr[i], LEDGER_FLUSHED, done, 16), 0);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[3], LEDGER_FLUSHED, done, 16), 1);
	ck_assert_uint_eq(done[0].outcome, LEDGER_RETRY_ERROR);
	ck_assert_uint_eq(done[0].effect, ESCROW_EFFECT_UNKNOWN);
	ck_assert_uint_eq(done[0].custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(done[0].bytes, 0);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
}
END_TEST

/* What an error completion covers came back, but its effect is not known. */
START_TEST(covered_by_error)
{
	uint64_t op = bed_op(&b, 2, wr);

	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_FLUSHED, done, 16), 1);
	ck_assert_uint_eq(done[0].effect, ESCROW_EFFECT_UNKNOWN);
	ck_assert_uint_eq(bed_info(&b, b.region).loans, 0);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
}
END_TEST

/* done too small: the rest comes with another call, nothing is lost or told twice. */
START_TEST(more)
{
	struct ledger_cqe cqe;
	uint64_t ops[6];
	int n = 0;

	for (int i = 0; i < 6; i++)
		ops[i] = bed_op(&b, 1, &wr[i]);
	cqe = (struct ledger_cqe){.wr_id = wr[5], .outcome = LEDGER_OK};
	do {
		int32_t got = ledger_settle(b.at[0], &cqe, done, 2);

		ck_assert_int_ge(got, 0);
		for (int i = 0; i < got; i++)
			ck_assert_uint_eq(done[i].subject, ops[n++]);
		bed_check(&b);
	} while (cqe.more);
	ck_assert_int_eq(n, 6);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(ledger_op_end(b.at[0], ops[i]), ESCROW_OK);
}
END_TEST

/* Ranges that end outside, wrap, or lie in a region that is withdrawn or gone are lent by nobody. */
START_TEST(bad_ranges)
{
	static const struct {
		uint64_t offset, length;
		escrow_status status;
	} ranges[] = {{0, BED_REGION, ESCROW_OK},
		      {BED_REGION, 0, ESCROW_OK},
		      {0, BED_REGION + 1, ESCROW_E_INVALID},
		      {BED_REGION + 1, 0, ESCROW_E_INVALID},
		      {1, BED_REGION, ESCROW_E_INVALID},
		      {UINT64_MAX, 2, ESCROW_E_INVALID},
		      {2, UINT64_MAX, ESCROW_E_INVALID},
		      {UINT64_MAX, UINT64_MAX, ESCROW_E_INVALID}};
	struct ledger_loan loan = {.connection = b.conn[0], .opcode = ESCROW_WRITE};
	uint64_t gone = bed_register(&b, 4096);

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		loan.region = b.region;
		loan.offset = ranges[i].offset;
		loan.length = ranges[i].length;
		ck_assert_int_eq(ledger_op_lend(b.at[0], 1, &loan, wr), ranges[i].status);
		if (ranges[i].status)
			continue;
		ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 1), 1);
		ck_assert_uint_eq(done[0].bytes, ranges[i].length);
	}
	loan.offset = loan.length = 0;
	loan.region = gone;
	ck_assert_int_eq(ledger_owner_event(b.l, gone, LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(ledger_op_lend(b.at[0], 1, &loan, wr), ESCROW_E_STATE);
	for (int i = 0; i < BED_LANES; i++)
		ledger_lane_sync(b.at[i]);
	ck_assert_int_eq(bed_step(&b, gone, ESCROW_STEP_DEREGISTER, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_op_lend(b.at[0], 1, &loan, wr), ESCROW_E_INVALID);
	loan.region = b.account;
	ck_assert_int_eq(ledger_op_lend(b.at[0], 1, &loan, wr), ESCROW_E_INVALID);
	loan.region = b.region;
	loan.connection = b.account; /* no connection, and far from their table */
	ck_assert_int_eq(ledger_op_lend(b.at[0], 1, &loan, wr), ESCROW_E_INVALID);
	loan.connection |= 0xffffff;
	ck_assert_int_eq(ledger_op_lend(b.at[0], 1, &loan, wr), ESCROW_E_INVALID);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 0);
	bed_check(&b);
}
END_TEST

/* A cut must make exactly the slices that were admitted. */
START_TEST(cuts)
{
	struct ledger_part part = {.lane = b.at[0], .connection = b.conn[0], .slices = 3};
	struct ledger_admission a = {.nparts = 1, .parts = &part, .flags = LEDGER_ADMIT_ENDS};
	struct ledger_loan loan = {
		.connection = b.conn[0], .region = b.region, .opcode = ESCROW_WRITE};
	static const uint64_t wrong[][2] = {
		{2000, 1000}, {3001, 1000}, {3000, 0}, {0, 1000}, {0, 0}};

	ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &loan.op), ESCROW_OK);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		loan.length = wrong[i][0];
		ck_assert_int_eq(ledger_slices_lend(b.at[0], &loan, wrong[i][1], 3, wr),
				 ESCROW_E_INVALID);
	}
	loan.length = 2001;
	ck_assert_int_eq(ledger_slices_lend(b.at[0], &loan, 1000, 3, wr), ESCROW_OK);
	ck_assert_int_eq(ledger_slices_lend(b.at[0], &loan, 1000, 3, wr), ESCROW_E_INVALID);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[2], LEDGER_OK, done, 1), 1);
	ck_assert_uint_eq(done[0].bytes, 2001);
}
END_TEST

/* Scatter and gather: one request keeps up to four regions. */
START_TEST(several_regions)
{
	uint64_t other = bed_register(&b, 4096), op;

	op = bed_op(&b, 1, wr);
	ck_assert_int_eq(ledger_slice_also(b.at[0], wr[0], other, 4000, 97), ESCROW_E_INVALID);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(ledger_slice_also(b.at[0], wr[0], other, 0, 96), ESCROW_OK);
	ck_assert_int_eq(ledger_slice_also(b.at[0], wr[0], other, 0, 96), ESCROW_E_LIMIT);
	ck_assert_uint_eq(bed_info(&b, other).loans, 3);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 1), 1);
	ck_assert_uint_eq(done[0].bytes, 1024 + 3 * 96);
	ck_assert_uint_eq(bed_info(&b, other).loans, 0);
	ck_assert_int_eq(ledger_slice_also(b.at[0], wr[0], other, 0, 1), ESCROW_E_INVALID);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_int_eq(bed_deregister(&b, other, 0), ESCROW_OK);
}
END_TEST

/* One completion over slices of two regions and two ops: each gets back its own. */
START_TEST(mixed)
{
	uint64_t other = bed_register(&b, 4096);
	struct ledger_part part = {.lane = b.at[0], .connection = b.conn[0], .slices = 4};
	struct ledger_admission a = {
		.user = 1, .nparts = 1, .parts = &part, .flags = LEDGER_ADMIT_ENDS};
	struct ledger_loan loan = {.connection = b.conn[0], .length = 8, .opcode = ESCROW_READ};
	uint64_t single;

	ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &loan.op), ESCROW_OK);
	for (int i = 0; i < 4; i++) { /* region, region, other, none (inline) */
		loan.region = i < 2 ? b.region : i == 2 ? other : 0;
		ck_assert_int_eq(ledger_slice_lend(b.at[0], &loan, &wr[i]), ESCROW_OK);
	}
	loan.region = other;
	ck_assert_int_eq(ledger_op_lend(b.at[0], 2, &loan, &single), ESCROW_OK);
	ck_assert_uint_eq(bed_info(&b, other).loans, 2);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), 0);
	ck_assert_uint_eq(bed_info(&b, b.region).loans, 0);
	ck_assert_uint_eq(bed_info(&b, other).loans, 2);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, single, LEDGER_OK, done, 16), 2);
	ck_assert_uint_eq(done[0].bytes, 4 * 8);
	ck_assert_uint_eq(done[1].user, 2);
	ck_assert_uint_eq(bed_info(&b, other).loans, 0);
	ck_assert_int_eq(bed_deregister(&b, other, 0), ESCROW_OK);

	/* and two regions under one completion */
	other = bed_register(&b, 4096);
	part.slices = 2;
	ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &loan.op), ESCROW_OK);
	for (int i = 0; i < 2; i++) {
		loan.region = i ? other : b.region;
		ck_assert_int_eq(ledger_slice_lend(b.at[0], &loan, &wr[i]), ESCROW_OK);
	}
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), 1);
	ck_assert_uint_eq(bed_info(&b, b.region).loans, 0);
	ck_assert_int_eq(bed_deregister(&b, other, 0), ESCROW_OK);
	bed_check(&b);
}
END_TEST

/* Q37, field-15: a queue takes its depth less the sentinel's slot, which nobody else gets. */
START_TEST(depth_and_sentinel)
{
	uint64_t op = bed_op(&b, BED_SQ - 1, wr), id;

	ck_assert_uint_eq(ledger_conn_room(b.at[0], b.conn[0]), 0);
	ck_assert_int_eq(ledger_wr_lend(b.at[0], b.conn[0], LEDGER_WR_MESSAGE, 1, &id),
			 ESCROW_E_AGAIN);
	ck_assert_int_eq(ledger_owner_event(b.l, b.conn[0], LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(ledger_wr_lend(b.at[0], b.conn[0], LEDGER_WR_MESSAGE, 1, &id),
			 ESCROW_E_STATE);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_ERR, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_wr_lend(b.at[0], b.conn[0], LEDGER_WR_SENTINEL, 42, &id),
			 ESCROW_OK);
	ck_assert_int_eq(ledger_wr_lend(b.at[0], b.conn[0], LEDGER_WR_SENTINEL, 42, &id),
			 ESCROW_E_STATE);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[BED_SQ - 2], LEDGER_FLUSHED, done, 16), 1);
	/* The slices went before the error state, the sentinel after it: it surely did nothing. */
	ck_assert_uint_eq(done[0].effect, ESCROW_EFFECT_UNKNOWN);
	ck_assert_int_eq(bed_cqe(&b, 0, id, LEDGER_FLUSHED, done, 16), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_SENTINEL);
	ck_assert_uint_eq(done[0].subject, 42);
	ck_assert_uint_eq(done[0].outcome, LEDGER_FLUSHED_AFTER);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_DESTROY_QP, 0), ESCROW_OK);
}
END_TEST

/* Q01, Q28: what no completion ever settles comes back by RESET, its effect unknown. */
START_TEST(reset_releases)
{
	uint64_t op = bed_op(&b, 5, wr);

	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 16), 0);
	ck_assert_int_eq(ledger_owner_event(b.l, b.conn[0], LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_ERR, 0), ESCROW_OK);
	/* Debt, and RESET never tried: not even the destroy is allowed (Q28). */
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_DESTROY_QP, 0), ESCROW_E_STATE);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_RESET, 0), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_DESTROY_QP, 0), ESCROW_E_BUSY);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 16), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_OP);
	ck_assert_uint_eq(done[0].custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(done[0].effect, ESCROW_EFFECT_UNKNOWN);
	ck_assert_uint_eq(done[0].bytes, 2048);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 16), 0);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	bed_check(&b);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_DESTROY_QP, 0), ESCROW_OK);
}
END_TEST

/* Q07: a region with a loan is not deregistered, nor one that a lane may still lend from. */
START_TEST(region_busy)
{
	uint64_t op = bed_op(&b, 1, wr);

	ck_assert_int_eq(bed_step(&b, b.region, ESCROW_STEP_DEREGISTER, 0), ESCROW_E_STATE);
	ck_assert_int_eq(ledger_owner_event(b.l, b.region, LEDGER_E_STOP), ESCROW_OK);
	ledger_lane_sync(b.at[0]);
	ck_assert_int_eq(bed_step(&b, b.region, ESCROW_STEP_DEREGISTER, 0), ESCROW_E_BUSY);
	ck_assert_ptr_nonnull(strstr(b.error.text, "lane 1"));
	ledger_lane_sync(b.at[1]);
	ck_assert_int_eq(bed_step(&b, b.region, ESCROW_STEP_DEREGISTER, 0), ESCROW_E_BUSY);
	ck_assert_ptr_nonnull(strstr(b.error.text, "1 loans"));
	ck_assert_uint_eq(ledger_step_calls(b.l, b.region, ESCROW_STEP_DEREGISTER), 0);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 1), 1);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.region, ESCROW_STEP_DEREGISTER, 0), ESCROW_OK);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_BYTES), 0);
}
END_TEST

/* Q39: sequence numbers and generations wrap without a slot being taken for another. */
START_TEST(wraps)
{
	b.l->conns[0].head = b.l->conns[0].tail = UINT32_MAX - 20;
	for (uint32_t i = 0; i < b.l->nops; i++)
		b.l->ops[i].handle = handle_make(KIND_OP, UINT32_MAX - 20, i);
	for (int i = 0; i < 5000; i++) {
		struct ledger_loan loan = {.connection = b.conn[0],
					   .region = b.region,
					   .length = 1,
					   .opcode = ESCROW_WRITE};

		ck_assert_int_eq(ledger_op_lend(b.at[0], (uint64_t)i, &loan, &wr[i & 1]),
				 ESCROW_OK);
		if (i)
			ck_assert_int_eq(bed_cqe(&b, 0, wr[!(i & 1)], LEDGER_OK, done, 1),
					 ESCROW_E_INVALID);
		ck_assert_int_eq(bed_cqe(&b, 0, wr[i & 1], LEDGER_OK, done, 1), 1);
		ck_assert_uint_eq(done[0].user, (uint64_t)i);
		ck_assert_uint_eq(done[0].subject, 0); /* it has no handle */
	}
	/* and those that have one */
	for (int i = 0; i < 100; i++) {
		struct ledger_part part = {.lane = b.at[0], .connection = b.conn[0], .slices = 1};
		struct ledger_admission a = {
			.nparts = 1, .parts = &part, .flags = LEDGER_ADMIT_ENDS};
		struct ledger_loan loan = {.connection = b.conn[0],
					   .region = b.region,
					   .length = 1,
					   .opcode = ESCROW_WRITE};

		ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &loan.op), ESCROW_OK);
		ck_assert_int_eq(ledger_slice_lend(b.at[0], &loan, wr), ESCROW_OK);
		ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 1), 1);
		ck_assert_uint_eq(handle_kind(done[0].subject), KIND_OP);
		ck_assert_uint_ne(handle_generation(done[0].subject), 0);
	}
	bed_check(&b);
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
	tcase_add_test(tc, covering);
	tcase_add_test(tc, in_order);
	tcase_add_test(tc, anomalies);
	tcase_add_test(tc, old_connection);
	tcase_add_test(tc, rejected);
	tcase_add_test(tc, flushed);
	tcase_add_test(tc, covered_by_error);
	tcase_add_test(tc, more);
	tcase_add_test(tc, bad_ranges);
	tcase_add_test(tc, cuts);
	tcase_add_test(tc, several_regions);
	tcase_add_test(tc, mixed);
	tcase_add_test(tc, depth_and_sentinel);
	tcase_add_test(tc, reset_releases);
	tcase_add_test(tc, region_busy);
	tcase_add_test(tc, wraps);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("ledger-loan");

	suite_add_tcase(suite, cases("loan", make));
	suite_add_tcase(suite, cases("quiet", make_quiet));
	return testing_run(suite);
}
