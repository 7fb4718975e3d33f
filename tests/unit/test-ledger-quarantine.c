/* SPDX-License-Identifier: BSD-2-Clause */
/* Failed teardown: what stays, what it holds, what is not touched, and what ends it. */
#include "tests/unit/ledger/bed.h"

#include <errno.h>
#include <string.h>

static struct bed b;
static struct ledger_done done[32];
static uint64_t wr[BED_SQ];

static void make_with(ledger_strength strength)
{
	memset(&b, 0, sizeof(b));
	bed_make(&b, strength);
}

static void make(void)
{
	make_with(LEDGER_STRENGTH_USUAL);
}

static void retire(uint64_t conn)
{
	ck_assert_int_eq(ledger_owner_event(b.l, conn, LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, conn, ESCROW_STEP_QP_ERR, 0), ESCROW_OK);
}

static uint32_t state_of(uint64_t owner)
{
	return bed_info(&b, owner).state;
}

static uint32_t held_of(uint64_t owner)
{
	return bed_info(&b, owner).held;
}

/* Q02: RESET fails with debt. The slices are stuck, and with them region, queue, lane, context. */
START_TEST(reset_fails)
{
	uint64_t op = bed_op(&b, 3, wr), spare = bed_register(&b, 4096);
	struct ledger_op_info info;

	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 32), 0);
	retire(b.conn[0]);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_RESET, EIO), ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(state_of(b.conn[0]), ESCROW_OWNER_QUARANTINED);
	ck_assert_uint_eq(held_of(b.region), 2); /* two stuck loans */
	ck_assert_uint_eq(held_of(b.lane[0]), 1);
	ck_assert_uint_eq(held_of(b.lane[1]), 0);
	ck_assert_uint_eq(held_of(b.context), 2); /* the lane and the region */
	ck_assert_uint_eq(held_of(b.account), 1);
	bed_check(&b);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_UNQUIESCED);
	ck_assert_uint_eq(done[0].subject, op);
	ck_assert_uint_eq(done[0].custody, ESCROW_CUSTODY_HELD);
	ck_assert_uint_eq(done[0].effect, ESCROW_EFFECT_UNKNOWN);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 0);
	ck_assert_int_eq(ledger_op_info(b.at[0], op, &info), ESCROW_OK);
	ck_assert_uint_eq(info.stuck, 2);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_E_BUSY);
	ck_assert_uint_eq(ledger_slice_state(b.at[0], wr[1]), LEDGER_SLICE_STUCK);
	/* used includes stuck, and nothing came back */
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_BYTES), BED_REGION + 4096);
	ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_BYTES), BED_REGION);
	ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_SQ_SLOTS),
			  3); /* 2 and the sentinel's */
	ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_OPS), 1);
	ck_assert_uint_eq(bed_stuck(&b, "bob", ESCROW_CHARGE_CONNECTIONS), 1);
	/* No step is tried again, none is tried next. */
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_RESET, 0), ESCROW_E_STATE);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_DESTROY_QP, 0), ESCROW_E_STATE);
	ck_assert_int_eq(bed_deregister(&b, b.region, 0), ESCROW_E_BUSY);
	/* Siblings work and go. */
	ck_assert_int_eq(bed_deregister(&b, spare, 0), ESCROW_OK);
	ck_assert_int_eq(bed_disconnect(&b, b.conn[1], 0), ESCROW_OK);
	bed_check(&b);
}
END_TEST

/* Q03: only the destroy fails after a strong RESET: the bytes are back, the object is not. */
START_TEST(destroy_fails)
{
	uint64_t op = bed_op(&b, 5, wr);

	retire(b.conn[0]);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_RESET, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_OP);
	ck_assert_uint_eq(done[0].custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_DESTROY_QP, EIO), ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(state_of(b.conn[0]), ESCROW_OWNER_QUARANTINED);
	ck_assert_uint_eq(held_of(b.region), 0);
	ck_assert_int_eq(bed_deregister(&b, b.region, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, b.lane[0], LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.lane[0], ESCROW_STEP_DESTROY_CQ, 0), ESCROW_E_BUSY);
	ck_assert_int_eq(ledger_owner_event(b.l, b.context, LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.context, ESCROW_STEP_DEALLOC_PD, 0), ESCROW_E_BUSY);
	bed_check(&b);
}
END_TEST

/* Q04, the reference's reading: RESET is weak. Loans stay whether the destroy fails or "works". */
START_TEST(weak_reset)
{
	uint64_t op;

	make_with(ledger_weaken(LEDGER_STRENGTH_USUAL, ESCROW_WEAK_RESET));
	op = bed_op(&b, 2, wr);
	retire(b.conn[0]);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_RESET, 0), ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(state_of(b.conn[0]), ESCROW_OWNER_RETIRING);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 0);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_DESTROY_QP, _i ? EIO : 0),
			 ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(state_of(b.conn[0]), ESCROW_OWNER_QUARANTINED);
	ck_assert_uint_eq(held_of(b.region), 2);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_UNQUIESCED);
	ck_assert_uint_eq(done[0].subject, op);
	bed_check(&b);
}
END_TEST

/* Parents of one slice without a slot of their own: an error, a refused post, stuck, and late. */
START_TEST(alone)
{
	struct ledger_loan loan = {
		.connection = b.conn[0], .region = b.region, .length = 8, .opcode = ESCROW_WRITE};

	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(ledger_op_lend(b.at[0], 70 + (uint64_t)i, &loan, &wr[i]),
				 ESCROW_OK);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 6);
	ck_assert_uint_eq(bed_used(&b, "bob", ESCROW_CHARGE_OPS), 6);
	ck_assert_uint_eq(bed_info(&b, b.region).loans, 6);
	bed_check(&b);
	/* the youngest was refused by the device: nothing of it happened */
	ck_assert_int_eq(ledger_rejected(b.at[0], b.conn[0], 1, done, 32), 1);
	ck_assert_uint_eq(done[0].user, 75);
	ck_assert_uint_eq(done[0].effect, ESCROW_EFFECT_NOT_EXECUTED);
	/* an error tells each its own: one it covers may have happened, it itself too */
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_REMOTE_ERROR, done, 32), 2);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(done[i].what, LEDGER_DONE_OP);
		ck_assert_uint_eq(done[i].user, 70 + (uint64_t)i);
		ck_assert_uint_eq(done[i].outcome, i ? LEDGER_REMOTE_ERROR : LEDGER_COVERED_ERROR);
		ck_assert_uint_eq(done[i].custody, ESCROW_CUSTODY_RETURNED);
		ck_assert_uint_eq(done[i].effect, ESCROW_EFFECT_UNKNOWN);
		ck_assert_uint_eq(done[i].bytes, 0);
	}
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 3);
	bed_check(&b);
	retire(b.conn[0]);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_RESET, EIO), ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 2), 2);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], &done[2], 32), 1);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(done[i].what, LEDGER_DONE_UNQUIESCED);
		ck_assert_uint_eq(done[i].user, 72 + (uint64_t)i);
		ck_assert_uint_eq(done[i].custody, ESCROW_CUSTODY_HELD);
		ck_assert_uint_eq(done[i].effect, ESCROW_EFFECT_UNKNOWN);
	}
	ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_OPS), 3);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 3);
	ck_assert_uint_eq(held_of(b.region), 3);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[3], LEDGER_OK, done, 32), 2);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(done[i].what, LEDGER_DONE_RETURNED);
		ck_assert_uint_eq(done[i].user, 72 + (uint64_t)i);
		ck_assert_uint_eq(done[i].effect, ESCROW_EFFECT_EXECUTED);
		ck_assert_uint_eq(done[i].bytes, 8);
	}
	ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_OPS), 1);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 1);
	ck_assert_uint_eq(held_of(b.region), 1);
	bed_check(&b);
}
END_TEST

/* A late completion is a receipt still: the op is told RETURNED, once, the region is let go. */
START_TEST(late_completion)
{
	uint64_t op = bed_op(&b, 3, wr);

	retire(b.conn[0]);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_RESET, EIO), ESCROW_E_UNQUIESCED);
	if (_i) { /* told before, or not yet */
		ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 1);
		ck_assert_uint_eq(done[0].what, LEDGER_DONE_UNQUIESCED);
	}
	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_FLUSHED, done, 32), 0);
	ck_assert_uint_eq(held_of(b.region), 2);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[2], LEDGER_FLUSHED, done, 32), 1);
	ck_assert_uint_eq(done[0].what, _i ? LEDGER_DONE_RETURNED : LEDGER_DONE_OP);
	ck_assert_uint_eq(done[0].custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(done[0].effect, ESCROW_EFFECT_UNKNOWN);
	ck_assert_uint_eq(held_of(b.region), 0);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_OPS), 0);
	ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_BYTES), 0);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 0);
	/* the queue itself has no receipt and stays */
	ck_assert_uint_eq(state_of(b.conn[0]), ESCROW_OWNER_QUARANTINED);
	bed_check(&b);
}
END_TEST

/* Q32, Q33, Q34: channel, CQ and PD refuse or fail; what went before stays gone. */
START_TEST(later_stages)
{
	static const struct {
		uint32_t step;
		int32_t rc;
	} cases[] = {{ESCROW_STEP_DESTROY_CHANNEL, EBUSY},
		     {ESCROW_STEP_DESTROY_CQ, EBUSY},
		     {ESCROW_STEP_DEALLOC_PD, EBUSY},
		     {ESCROW_STEP_CLOSE_DEVICE, EIO},
		     {ESCROW_STEP_DESTROY_CQ, EIO}};
	uint32_t fail = cases[_i].step;
	bool lane = fail == ESCROW_STEP_DESTROY_CHANNEL || fail == ESCROW_STEP_DESTROY_CQ;
	uint32_t held;

	for (int i = 0; i < BED_LANES; i++)
		ck_assert_int_eq(bed_disconnect(&b, b.conn[i], 0), ESCROW_OK);
	ck_assert_int_eq(bed_deregister(&b, b.region, 0), ESCROW_OK);
	for (int i = 0; i < BED_LANES; i++) {
		ck_assert_int_eq(ledger_owner_event(b.l, b.lane[i], LEDGER_E_STOP), ESCROW_OK);
		for (int s = 0; s < 2; s++) {
			uint32_t step = s ? ESCROW_STEP_DESTROY_CHANNEL : ESCROW_STEP_DESTROY_CQ;
			bool bad = step == fail && i == 0;

			if (fail == ESCROW_STEP_DESTROY_CQ && i == 0 && s == 1) {
				ck_assert_int_eq(bed_step(&b, b.lane[i], step, 0), ESCROW_E_STATE);
				continue;
			}
			ck_assert_int_eq(bed_step(&b, b.lane[i], step, bad ? cases[_i].rc : 0),
					 bad ? ESCROW_E_UNQUIESCED : ESCROW_OK);
		}
	}
	ck_assert_int_eq(ledger_owner_event(b.l, b.context, LEDGER_E_STOP), ESCROW_OK);
	if (lane) {
		ck_assert_int_eq(bed_step(&b, b.context, ESCROW_STEP_DEALLOC_PD, 0), ESCROW_E_BUSY);
		ck_assert_uint_eq(held_of(b.context), 1);
	} else {
		bool pd = fail == ESCROW_STEP_DEALLOC_PD;

		ck_assert_int_eq(bed_step(&b, b.context, ESCROW_STEP_DEALLOC_PD, pd ? EBUSY : 0),
				 pd ? ESCROW_E_UNQUIESCED : ESCROW_OK);
		ck_assert_int_eq(bed_step(&b, b.context, ESCROW_STEP_CLOSE_DEVICE, EIO),
				 pd ? ESCROW_E_STATE : ESCROW_E_UNQUIESCED);
	}
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_CONNECTIONS), 0);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_BYTES), 0);
	ck_assert_uint_eq(ledger_quarantined(b.l, &held), 1);
	bed_check(&b);
	ck_assert_int_eq(ledger_owner_event(b.l, b.account, LEDGER_E_FENCE), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, b.account, LEDGER_E_STOP), ESCROW_OK);
	bed_fence(&b);
}
END_TEST

/* R26, N06: the device is lost. Every answer is a success from now on, and none counts. */
START_TEST(fatal)
{
	uint64_t op = bed_op(&b, 2, wr), window = bed_window(&b, 0x500);
	uint64_t owners[] = {b.conn[0], b.conn[1], b.lane[0], b.lane[1], b.region, window};
	uint32_t steps[] = {ESCROW_STEP_QP_RESET,   ESCROW_STEP_DESTROY_QP,
			    ESCROW_STEP_DESTROY_CQ, ESCROW_STEP_DESTROY_CHANNEL,
			    ESCROW_STEP_DEREGISTER, ESCROW_STEP_DEALLOC_WINDOW};
	uint32_t held;

	ck_assert_int_eq(ledger_context_fatal(b.l, b.context), ESCROW_OK);
	ck_assert_int_eq(ledger_context_fatal(b.l, b.context), ESCROW_E_STATE);
	for (int i = 0; i < 6; i++) {
		ck_assert_uint_eq(state_of(owners[i]), ESCROW_OWNER_QUARANTINED);
		ck_assert_int_eq(bed_step(&b, owners[i], steps[i], 0), ESCROW_E_DEVICE);
	}
	ck_assert_int_eq(bed_cqe(&b, 0, wr[1], LEDGER_OK, done, 32), ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_UNQUIESCED);
	ck_assert_int_eq(ledger_late_receipt(b.l, b.region, ESCROW_RECEIPT_DEREGISTERED),
			 ESCROW_E_STATE);
	bed_check(&b);
	/* N06: the function was reset; that proof comes from outside and counts. */
	ck_assert_int_eq(ledger_fenced(b.l, b.config.incarnation, ESCROW_RECEIPT_CQE_OK),
			 ESCROW_E_INVALID);
	/* window and both connections; conn[0] and what it holds wait for the collection */
	ck_assert_int_eq(ledger_fenced(b.l, b.config.incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
			 4);
	bed_check(&b);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_RETURNED);
	ck_assert_uint_eq(done[0].subject, op);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_int_eq(ledger_fenced(b.l, b.config.incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
			 3);
	ck_assert_int_eq(ledger_fenced(b.l, b.config.incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
			 0);
	ck_assert_uint_eq(ledger_quarantined(b.l, &held), 0);
	ck_assert_uint_eq(held, 0);
	bed_check(&b);
	ck_assert_int_eq(ledger_owner_event(b.l, b.account, LEDGER_E_FENCE), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, b.account, LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(ledger_release(b.l), ESCROW_OK);
	ck_assert_uint_eq(b.h.live, 0);
}
END_TEST

/* A receipt from before the device was lost stays one, though it is collected afterwards. */
START_TEST(reset_before_fatal)
{
	uint64_t op = bed_op(&b, 2, wr);

	retire(b.conn[0]);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_RESET, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_context_fatal(b.l, b.context), ESCROW_OK);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_OP);
	ck_assert_uint_eq(done[0].custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	bed_check(&b);
}
END_TEST

/* R26: the device dies while a destroy is under way: its success says nothing. */
START_TEST(fatal_during_step)
{
	retire(b.conn[0]);
	ck_assert_int_eq(ledger_step_begin(b.l, b.conn[0], ESCROW_STEP_DESTROY_QP, NULL),
			 ESCROW_OK);
	ck_assert_int_eq(ledger_context_fatal(b.l, b.context), ESCROW_OK);
	ck_assert_int_eq(ledger_step_end(b.l, b.conn[0], ESCROW_STEP_DESTROY_QP, 0),
			 ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(state_of(b.conn[0]), ESCROW_OWNER_QUARANTINED);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_CONNECTIONS), 2);
	bed_check(&b);
}
END_TEST

/* Q18, Q19: a poisoned CQ says nothing any more; RESET still does. */
START_TEST(poisoned)
{
	uint64_t op = bed_op(&b, 1, wr);

	ck_assert_int_eq(ledger_owner_event(b.l, b.lane[0], LEDGER_E_POISON), ESCROW_OK);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[0], LEDGER_OK, done, 32), ESCROW_E_UNQUIESCED);
	retire(b.conn[0]);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_RESET, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 1);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_DESTROY_QP, 0), ESCROW_OK);
	bed_end(&b);
}
END_TEST

/* Q38: the engine is released; its owners are listed on, and a proof from outside ends them. */
START_TEST(residue)
{
	struct escrow_record records[3];
	struct escrow_charge charges[32];
	uint64_t cursor = 0, stuck_bytes = 0;
	uint32_t kinds = 0;
	int32_t n, total = 0;

	bed_op(&b, 2, wr);
	retire(b.conn[0]);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_RESET, EIO), ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 32), 1);
	/* What merely lives keeps the engine. */
	ck_assert_int_eq(ledger_release(b.l), ESCROW_E_BUSY);
	ck_assert_int_eq(bed_disconnect(&b, b.conn[1], 0), ESCROW_OK);
	ck_assert_int_eq(ledger_release(b.l), ESCROW_E_BUSY);
	ck_assert_int_eq(ledger_owner_event(b.l, b.lane[1], LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.lane[1], ESCROW_STEP_DESTROY_CQ, 0), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.lane[1], ESCROW_STEP_DESTROY_CHANNEL, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_charges(NULL, NULL, 0, sizeof(charges[0])), 0);
	ck_assert_int_eq(ledger_release(b.l), ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(ledger_residue(), 1);
	ck_assert_uint_gt(b.h.live, 0);
	while ((n = ledger_records(NULL, &cursor, records, 3, sizeof(records[0]))) > 0) {
		for (int i = 0; i < n; i++) {
			kinds |= 1u << records[i].kind;
			ck_assert_uint_eq(records[i].engine, 0x30201);
			if (records[i].kind == ESCROW_OWNER_LOAN)
				ck_assert_uint_eq(records[i].addr,
						  0x10000 + 1024 * (uint64_t)(total++));
		}
	}
	ck_assert_int_eq(n, 0);
	ck_assert_int_eq(total, 2);
	ck_assert_uint_eq(kinds, 1u << ESCROW_OWNER_ENGINE | 1u << ESCROW_OWNER_CONTEXT |
					 1u << ESCROW_OWNER_LANE | 1u << ESCROW_OWNER_CONNECTION |
					 1u << ESCROW_OWNER_REGION | 1u << ESCROW_OWNER_PEER |
					 1u << ESCROW_OWNER_LOAN);
	n = ledger_charges(NULL, charges, 32, sizeof(charges[0]));
	ck_assert_int_eq(n, 8 + 6);
	for (int i = 0; i < n; i++)
		stuck_bytes += charges[i].kind == ESCROW_CHARGE_BYTES ? charges[i].stuck : 0;
	ck_assert_uint_eq(stuck_bytes, BED_REGION);
	ck_assert_int_eq(
		ledger_fenced(NULL, (const uint8_t[16]){9}, ESCROW_RECEIPT_FUNCTION_FENCED), 0);
	ck_assert_int_eq(ledger_fenced(NULL, b.config.incarnation, ESCROW_RECEIPT_PROCESS_REAPED),
			 0);
	ck_assert_uint_eq(ledger_residue(), 1);
	ck_assert_int_eq(ledger_fenced(NULL, b.config.incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
			 1);
	ck_assert_uint_eq(ledger_residue(), 0);
	ck_assert_uint_eq(b.h.live, 0);
}
END_TEST

/* Records of a live engine: parents first, the reason in words, any stride, any chunk. */
START_TEST(records)
{
	struct {
		struct escrow_record r;
		uint64_t tail;
	} big[64];
	uint64_t cursor = 0, seen[64];
	int32_t n = 0;

	retire(b.conn[0]);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_DESTROY_QP, EBUSY),
			 ESCROW_E_UNQUIESCED);
	for (int i = 0; i < 64; i++)
		big[i].tail = 0xabcd;
	b.h.now = 5000;
	while (ledger_records(b.l, &cursor, &big[n].r, 1, sizeof(big[0])) == 1)
		n++;
	ck_assert_int_eq(n, 8); /* engine, context, 2 lanes, 2 connections, region, account */
	for (int i = 0; i < n; i++) {
		bool known = big[i].r.parent == 0;

		ck_assert_uint_eq(big[i].tail, 0xabcd);
		ck_assert_uint_eq(big[i].r.since_ns, 1000);
		seen[i] = big[i].r.owner;
		for (int j = 0; j < i; j++)
			known |= seen[j] == big[i].r.parent;
		ck_assert(known);
		if (big[i].r.owner != b.conn[0])
			continue;
		ck_assert_uint_eq(big[i].r.state, ESCROW_OWNER_QUARANTINED);
		ck_assert_uint_eq(big[i].r.stage, ESCROW_STEP_DESTROY_QP);
		ck_assert_int_eq(big[i].r.sys_errno, EBUSY);
		ck_assert_ptr_nonnull(strstr(big[i].r.text, "destroy failed"));
		ck_assert_ptr_nonnull(strstr(big[i].r.text, "bob"));
	}
	ck_assert_int_eq(ledger_records(b.l, &cursor, &big[0].r, 1, sizeof(big[0])), 0);
	ck_assert_int_eq(ledger_records(b.l, NULL, &big[0].r, 1, 8), ESCROW_E_INVALID);
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

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, reset_fails);
	tcase_add_test(tc, destroy_fails);
	tcase_add_test(tc, alone);
	tcase_add_loop_test(tc, late_completion, 0, 2);
	tcase_add_loop_test(tc, later_stages, 0, 5);
	tcase_add_test(tc, fatal);
	tcase_add_test(tc, reset_before_fatal);
	tcase_add_test(tc, fatal_during_step);
	tcase_add_test(tc, poisoned);
	tcase_add_test(tc, residue);
	tcase_add_test(tc, records);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("ledger-quarantine");
	TCase *bare = tcase_create("bare");

	tcase_add_loop_test(bare, weak_reset, 0, 2);
	suite_add_tcase(suite, bare);
	suite_add_tcase(suite, cases("quarantine", make));
	suite_add_tcase(suite, cases("quiet", make_quiet));
	return testing_run(suite);
}
