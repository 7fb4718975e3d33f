/* SPDX-License-Identifier: BSD-2-Clause */
/* What a native answer is worth.  The release table below is the whole safety argument. */
#include "backends/ledger/rules.h"

#include <errno.h>
#include <string.h>

enum ledger_grade ledger_grade(uint32_t receipt, bool fatal)
{
	static const uint8_t grades[LEDGER_RECEIPTS] = {
		[ESCROW_RECEIPT_CQE_OK] = LEDGER_R3,
		[ESCROW_RECEIPT_CQE_ERROR] = LEDGER_R3,
		[ESCROW_RECEIPT_CQE_COVERED] = LEDGER_R3,
		[ESCROW_RECEIPT_WINDOW_INVALIDATED] = LEDGER_R3,
		[LEDGER_RECEIPT_MW_INV_RECV] = LEDGER_R3,
		[ESCROW_RECEIPT_QP_RESET] = LEDGER_R2,
		[ESCROW_RECEIPT_WINDOW_FREED] = LEDGER_R2,
		[ESCROW_RECEIPT_DEREGISTERED] = LEDGER_R2,
		[ESCROW_RECEIPT_CQ_DESTROYED] = LEDGER_R2,
		[ESCROW_RECEIPT_QP_ERR] = LEDGER_R1,
		[ESCROW_RECEIPT_QP_DESTROYED] = LEDGER_R1,
		[ESCROW_RECEIPT_PD_GONE] = LEDGER_R1,
		[ESCROW_RECEIPT_CHANNEL_GONE] = LEDGER_R1,
		[ESCROW_RECEIPT_PROCESS_REAPED] = LEDGER_R4,
		[ESCROW_RECEIPT_FUNCTION_FENCED] = LEDGER_R4,
	};
	enum ledger_grade grade;

	if (receipt >= LEDGER_RECEIPTS)
		return LEDGER_R0;
	grade = (enum ledger_grade)grades[receipt];
	/* A dead device answers everything with success (mlx5/core/cmd.c:346-406). */
	if (fatal && grade != LEDGER_R4)
		return LEDGER_R0;
	return grade;
}

ledger_strength ledger_weaken(ledger_strength strength, uint64_t weak_bits)
{
	if (weak_bits & ESCROW_WEAK_RESET)
		strength &= ~LEDGER_STRONG(ESCROW_RECEIPT_QP_RESET);
	if (weak_bits & ESCROW_WEAK_DEREG)
		strength &= ~LEDGER_STRONG(ESCROW_RECEIPT_DEREGISTERED);
	if (weak_bits & ESCROW_WEAK_DEALLOC_WINDOW)
		strength &= ~LEDGER_STRONG(ESCROW_RECEIPT_WINDOW_FREED);
	if (weak_bits & ESCROW_WEAK_DESTROY)
		strength &= ~LEDGER_STRONG(ESCROW_RECEIPT_QP_DESTROYED);
	return strength;
}

ledger_strength ledger_without_destroys(ledger_strength strength)
{
	return strength & ~(LEDGER_STRONG_OBJECTS | LEDGER_STRONG(ESCROW_RECEIPT_QP_DESTROYED) |
			    LEDGER_STRONG(ESCROW_RECEIPT_CQ_DESTROYED) |
			    LEDGER_STRONG(ESCROW_RECEIPT_DEREGISTERED) |
			    LEDGER_STRONG(ESCROW_RECEIPT_WINDOW_FREED));
}

/* What must hold for a receipt to release a thing. */
enum rule {
	NEVER,
	STRONG,            /* healthy and strong */
	STRONG_SETTLED,    /* that, and nothing of it is owed */
	STRONG_OR_SETTLED, /* that, or nothing is owed and destroys are believed */
	CLOSED,            /* healthy: a descriptor, whose close is no verb */
	OBJECT,            /* healthy, and destroys are believed: the object only, no custody */
	OBJECT_SETTLED,
	EMPTY,  /* an answer that always says 0: only because nothing is left in it */
	OUTSIDE /* R4: only what is quarantined waits for it */
};

#define FENCES [ESCROW_RECEIPT_PROCESS_REAPED] = OUTSIDE, [ESCROW_RECEIPT_FUNCTION_FENCED] = OUTSIDE
#define COMPLETIONS                                                                                \
	[ESCROW_RECEIPT_CQE_OK] = STRONG, [ESCROW_RECEIPT_CQE_ERROR] = STRONG,                     \
	[ESCROW_RECEIPT_CQE_COVERED] = STRONG

static const uint8_t rules[LEDGER_THINGS][LEDGER_RECEIPTS] = {
	/*
	 * A zero from destroying a QP proves nothing about the silicon (mlx5/qp.c:3509-3522 and
	 * others return it after the hardware step failed), so it counts only where a provider was
	 * read to be strong.
	 */
	[LEDGER_LOAN] =
		{COMPLETIONS, [ESCROW_RECEIPT_QP_RESET] = STRONG,
		 [ESCROW_RECEIPT_DEREGISTERED] = STRONG, [ESCROW_RECEIPT_QP_DESTROYED] = STRONG,
		 FENCES},
	[LEDGER_GRANT] = {[ESCROW_RECEIPT_WINDOW_INVALIDATED] = STRONG,
			  [LEDGER_RECEIPT_MW_INV_RECV] = STRONG,
			  [ESCROW_RECEIPT_WINDOW_FREED] = STRONG,
			  [ESCROW_RECEIPT_QP_RESET] = STRONG_SETTLED,
			  FENCES},
	[LEDGER_REGION] = {[ESCROW_RECEIPT_DEREGISTERED] = STRONG_SETTLED, FENCES},
	[LEDGER_QP] = {[ESCROW_RECEIPT_QP_DESTROYED] = OBJECT, FENCES},
	[LEDGER_QP_SLOTS] = {COMPLETIONS, [ESCROW_RECEIPT_QP_RESET] = STRONG,
			     [ESCROW_RECEIPT_QP_DESTROYED] = STRONG_OR_SETTLED, FENCES},
	[LEDGER_WINDOW] = {[ESCROW_RECEIPT_WINDOW_FREED] = STRONG, FENCES},
	[LEDGER_CQ] = {[ESCROW_RECEIPT_CQ_DESTROYED] = STRONG_SETTLED, FENCES},
	[LEDGER_CHANNEL] = {[ESCROW_RECEIPT_CHANNEL_GONE] = CLOSED, FENCES},
	[LEDGER_PD] = {[ESCROW_RECEIPT_PD_GONE] = OBJECT_SETTLED, FENCES},
	[LEDGER_DEVICE] = {[LEDGER_RECEIPT_DEVICE_CLOSED] = EMPTY, FENCES},
};

bool ledger_releases(enum ledger_thing thing, const struct ledger_proof *proof)
{
	bool strong, healthy, objects;

	if ((unsigned int)thing >= LEDGER_THINGS || proof->receipt >= LEDGER_RECEIPTS)
		return false;
	healthy = ledger_grade(proof->receipt, proof->fatal) > LEDGER_R0;
	strong = healthy && (proof->strength & LEDGER_STRONG(proof->receipt)) != 0;
	objects = healthy && (proof->strength & LEDGER_STRONG_OBJECTS) != 0;
	switch ((enum rule)rules[thing][proof->receipt]) {
	case NEVER:
		return false;
	case STRONG:
		return strong;
	case STRONG_SETTLED:
		return strong && proof->settled;
	case STRONG_OR_SETTLED:
		return strong || (objects && proof->settled);
	case CLOSED:
		return healthy;
	case OBJECT:
		return objects;
	case OBJECT_SETTLED:
		return objects && proof->settled;
	case EMPTY:
		return !proof->fatal && proof->settled;
	case OUTSIDE:
		return proof->quarantined;
	}
	return false;
}

enum ledger_class ledger_classify(uint32_t step, int32_t rc)
{
	switch (rc) {
	case 0:
		return LEDGER_RECEIPT;
	case EBUSY:
		return LEDGER_REFUSED;
	case EINVAL:
		/* rxe: a window is bound; ERR is illegal from RESET (mlx5/qp.c:4704). */
		return step == ESCROW_STEP_DEREGISTER || step == ESCROW_STEP_QP_ERR
			       ? LEDGER_REFUSED
			       : LEDGER_AMBIGUOUS;
	case ENOENT:
		return LEDGER_GONE_OR_WRONG;
	case EFAULT:
		return LEDGER_AFTER_EFFECT;
	default:
		return LEDGER_AMBIGUOUS;
	}
}

uint8_t ledger_effect(enum ledger_outcome outcome)
{
	switch (outcome) {
	case LEDGER_OK:
	case LEDGER_COVERED_OK:
		return ESCROW_EFFECT_EXECUTED;
	case LEDGER_NOT_SENT:
	case LEDGER_FLUSHED_AFTER:
	case LEDGER_REJECTED:
		return ESCROW_EFFECT_NOT_EXECUTED;
	default:
		/* "I stopped" is never "I did not". */
		return ESCROW_EFFECT_UNKNOWN;
	}
}

uint8_t ledger_effect_merge(uint8_t a, uint8_t b)
{
	return a == b ? a : ESCROW_EFFECT_UNKNOWN;
}

escrow_status ledger_epoch_check(const struct ledger_epoch *live, const struct ledger_epoch *seen)
{
	if (memcmp(live->local, seen->local, sizeof(live->local)) != 0 ||
	    memcmp(live->remote, seen->remote, sizeof(live->remote)) != 0 ||
	    live->epoch != seen->epoch)
		return ESCROW_E_STALE_EPOCH;
	return ESCROW_OK;
}

uint32_t ledger_receipt_of(uint32_t step)
{
	switch (step) {
	case ESCROW_STEP_QP_ERR:
		return ESCROW_RECEIPT_QP_ERR;
	case ESCROW_STEP_QP_RESET:
		return ESCROW_RECEIPT_QP_RESET;
	case ESCROW_STEP_DESTROY_QP:
		return ESCROW_RECEIPT_QP_DESTROYED;
	case ESCROW_STEP_DEREGISTER:
		return ESCROW_RECEIPT_DEREGISTERED;
	case ESCROW_STEP_DEALLOC_WINDOW:
		return ESCROW_RECEIPT_WINDOW_FREED;
	case ESCROW_STEP_DESTROY_CQ:
	case LEDGER_STEP_DESTROY_CQ2:
		return ESCROW_RECEIPT_CQ_DESTROYED;
	case ESCROW_STEP_DESTROY_CHANNEL:
		return ESCROW_RECEIPT_CHANNEL_GONE;
	case ESCROW_STEP_DEALLOC_PD:
		return ESCROW_RECEIPT_PD_GONE;
	case ESCROW_STEP_CLOSE_DEVICE:
		return LEDGER_RECEIPT_DEVICE_CLOSED;
	default:
		return ESCROW_RECEIPT_NONE;
	}
}
