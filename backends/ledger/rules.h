/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rules.h - the ledger's rules: state machines, receipts and their grades, what releases what.
 *
 * Pure functions over constants: no memory, no locks, any thread.  Everything else in this folder
 * asks here before it changes a state or gives something back, so the whole safety argument can be
 * read (and tested exhaustively) in rules.c.
 *
 * Kinds of owners, native steps and receipts are the ESCROW_OWNER_*, ESCROW_STEP_* and
 * ESCROW_RECEIPT_* of escrow/backend.h.
 */
#ifndef LEDGER_RULES_H
#define LEDGER_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include <escrow/backend.h>

/* ---- Machines --------------------------------------------------------------------------------
 * One a kind of thing.  State 0 is where a new one starts.
 */
enum ledger_machine {
	LEDGER_M_ENGINE,
	LEDGER_M_CONTEXT,
	LEDGER_M_LANE,
	LEDGER_M_CONNECTION,
	LEDGER_M_REGION, /* also control buffers */
	LEDGER_M_WINDOW,
	LEDGER_M_GRANT,
	LEDGER_M_ACCOUNT, /* a peer in one incarnation: ESCROW_OWNER_PEER */
	LEDGER_M_SLICE,
	LEDGER_M_OP,
	LEDGER_MACHINES
};

enum { LEDGER_ENGINE_OPEN, LEDGER_ENGINE_CLOSING, LEDGER_ENGINE_CLOSED, LEDGER_ENGINE_QUARANTINED };

enum {
	LEDGER_CONTEXT_OPENING,
	LEDGER_CONTEXT_HEALTHY,
	LEDGER_CONTEXT_DRAINING,
	LEDGER_CONTEXT_CLOSED,
	LEDGER_CONTEXT_FATAL,
	LEDGER_CONTEXT_QUARANTINED
};

enum {
	LEDGER_LANE_LIVE,
	LEDGER_LANE_POISONED,
	LEDGER_LANE_DRAINING,
	LEDGER_LANE_CLOSED,
	LEDGER_LANE_QUARANTINED
};

enum {
	LEDGER_CONNECTION_INIT,
	LEDGER_CONNECTION_READY,
	LEDGER_CONNECTION_RETIRING,
	LEDGER_CONNECTION_DESTROYED,
	LEDGER_CONNECTION_QUARANTINED
};

enum {
	LEDGER_REGION_REGISTERING,
	LEDGER_REGION_LIVE,
	LEDGER_REGION_WITHDRAWING,
	LEDGER_REGION_DEREG,
	LEDGER_REGION_FREE,
	LEDGER_REGION_QUARANTINED
};

enum {
	LEDGER_WINDOW_PARKED,
	LEDGER_WINDOW_BINDING,
	LEDGER_WINDOW_BOUND,
	LEDGER_WINDOW_INVALIDATING,
	LEDGER_WINDOW_ORPHAN,
	LEDGER_WINDOW_FREE,
	LEDGER_WINDOW_QUARANTINED
};

enum {
	LEDGER_GRANT_RESERVED,
	LEDGER_GRANT_BINDING,
	LEDGER_GRANT_EXPORTED,
	LEDGER_GRANT_REVOKING,
	LEDGER_GRANT_REVOKED,
	LEDGER_GRANT_STUCK
};

enum { LEDGER_ACCOUNT_OPEN, LEDGER_ACCOUNT_FENCED, LEDGER_ACCOUNT_CLOSED };

enum {
	LEDGER_SLICE_PLANNED,
	LEDGER_SLICE_LENT,
	LEDGER_SLICE_POSTED,
	LEDGER_SLICE_SETTLED,
	LEDGER_SLICE_STUCK
};

enum {
	LEDGER_OP_OPEN,
	LEDGER_OP_CANCELLING,
	LEDGER_OP_DONE,
	LEDGER_OP_FAILED,
	LEDGER_OP_UNQUIESCED
};

enum ledger_event {
	LEDGER_E_READY,    /* set up: context healthy, handshake done, registered */
	LEDGER_E_STOP,     /* retire: connection, context, lane, region withdrawn, engine closing */
	LEDGER_E_POISON,   /* lane: poll < 0 or CQ error */
	LEDGER_E_FATAL,    /* context: the device is lost or lies */
	LEDGER_E_STEP,     /* region: the deregistration is under way */
	LEDGER_E_RELEASED, /* the releasing receipt came; also of a quarantined thing, late */
	LEDGER_E_QUARANTINE, /* no receipt can be had */
	LEDGER_E_BIND,       /* window, grant: bind posted */
	LEDGER_E_CQE_OK,     /* window, slice: success completion polled */
	LEDGER_E_CQE_ERROR,  /* window, slice: error completion polled */
	LEDGER_E_INVALIDATE, /* window, grant: invalidation posted, revocation begun */
	LEDGER_E_QP_DEAD,    /* window: its connection can post no more */
	LEDGER_E_LEND,       /* slice: charged and lent */
	LEDGER_E_POST,       /* slice: post accepted it */
	LEDGER_E_REJECT,     /* slice: post rejected it (at or after bad_wr), or it was dropped */
	LEDGER_E_CANCEL,     /* op */
	LEDGER_E_DONE,       /* op: every slice settled, all executed */
	LEDGER_E_FAILED,     /* op: every slice settled, not all executed */
	LEDGER_E_FENCE,      /* account: all grants revoked, connections gone */
	LEDGER_EVENTS
};

#define LEDGER_ILLEGAL (-1)

#define LEDGER_MAX_STATES 8u
#define LEDGER_MAX_EVENTS 32u /* so that the table is looked into by shifts */
extern const uint8_t ledger_moves[LEDGER_MACHINES][LEDGER_MAX_STATES][LEDGER_MAX_EVENTS];

/* The next state, or LEDGER_ILLEGAL: then nothing may change. */
static inline int ledger_next(enum ledger_machine machine, unsigned int state,
			      enum ledger_event event)
{
	if ((unsigned int)machine >= LEDGER_MACHINES || state >= LEDGER_MAX_STATES ||
	    (unsigned int)event >= LEDGER_EVENTS)
		return LEDGER_ILLEGAL;
	return (int)ledger_moves[machine][state][event] - 1;
}

/* How many states the machine has; their names ("RETIRING"); what ESCROW_OWNER_LIVE... each is. */
unsigned int ledger_states(enum ledger_machine machine);
const char *ledger_state_name(enum ledger_machine machine, unsigned int state);
uint32_t ledger_owner_state(enum ledger_machine machine, unsigned int state);
/* The machine of an ESCROW_OWNER_* kind; of an unknown one LEDGER_MACHINES. */
static inline enum ledger_machine ledger_machine_of(uint32_t kind)
{
	static const uint8_t of[] = {
		[0] = LEDGER_MACHINES,
		[ESCROW_OWNER_ENGINE] = LEDGER_M_ENGINE,
		[ESCROW_OWNER_CONTEXT] = LEDGER_M_CONTEXT,
		[ESCROW_OWNER_LANE] = LEDGER_M_LANE,
		[ESCROW_OWNER_CONNECTION] = LEDGER_M_CONNECTION,
		[ESCROW_OWNER_WINDOW] = LEDGER_M_WINDOW,
		[ESCROW_OWNER_REGION] = LEDGER_M_REGION,
		[ESCROW_OWNER_GRANT] = LEDGER_M_GRANT,
		[ESCROW_OWNER_PEER] = LEDGER_M_ACCOUNT,
		[ESCROW_OWNER_LOAN] = LEDGER_M_SLICE,
		[ESCROW_OWNER_CONTROL] = LEDGER_M_REGION,
	};

	return kind < sizeof(of) / sizeof(of[0]) ? (enum ledger_machine)of[kind] : LEDGER_MACHINES;
}

/* ---- Receipts -------------------------------------------------------------------------------
 * Beyond the ABI's own: what is *not* a proof has a number too, so that it can be asked about, be
 * logged, and be shown to release nothing.
 */
#define LEDGER_RECEIPT_MW_INV_RECV 15u /* the peer invalidated it; off in revision 1 */
#define LEDGER_RECEIPT_TIMEOUT 16u
#define LEDGER_RECEIPT_PEER_SAID 17u
#define LEDGER_RECEIPT_FIN 18u
#define LEDGER_RECEIPT_DISCONNECTED 19u
#define LEDGER_RECEIPT_NO_EVENT 20u
#define LEDGER_RECEIPT_RESTRACK 21u
#define LEDGER_RECEIPT_DEVICE_FATAL 22u
#define LEDGER_RECEIPT_DEVICE_CLOSED 23u
#define LEDGER_RECEIPTS 24u

enum ledger_grade { LEDGER_R0, LEDGER_R1, LEDGER_R2, LEDGER_R3, LEDGER_R4 };

/* The grade of a receipt that was obtained while its context was (not) fatal. */
enum ledger_grade ledger_grade(uint32_t receipt, bool fatal);

/*
 * Which native answers count, a bit a receipt: 1u << ESCROW_RECEIPT_*.  The backend has a table of
 * providers and hands in the line for its device; what is not set is weak.  A weak receipt never
 * moves custody.
 */
typedef uint32_t ledger_strength;
#define LEDGER_STRONG(receipt) (UINT32_C(1) << (receipt))
/* Beside the receipts: who says 0 to the destroy of an object had it gone. */
#define LEDGER_STRONG_OBJECTS (UINT32_C(1) << 31)
/* Everything but QP_DESTROYED: the line of a provider whose reset, dereg and dealloc were read. */
#define LEDGER_STRENGTH_USUAL                                                                      \
	(LEDGER_STRONG_OBJECTS | LEDGER_STRONG(ESCROW_RECEIPT_CQE_OK) |                            \
	 LEDGER_STRONG(ESCROW_RECEIPT_CQE_ERROR) | LEDGER_STRONG(ESCROW_RECEIPT_CQE_COVERED) |     \
	 LEDGER_STRONG(ESCROW_RECEIPT_WINDOW_INVALIDATED) |                                        \
	 LEDGER_STRONG(ESCROW_RECEIPT_QP_RESET) | LEDGER_STRONG(ESCROW_RECEIPT_WINDOW_FREED) |     \
	 LEDGER_STRONG(ESCROW_RECEIPT_DEREGISTERED) | LEDGER_STRONG(ESCROW_RECEIPT_CQ_DESTROYED))

/* The strength of a provider with the ESCROW_WEAK_* bits of a configuration: only ever downwards.
 */
ledger_strength ledger_weaken(ledger_strength strength, uint64_t weak_bits);
/* The same where a destroy that failed may say 0, whatever it destroys. */
ledger_strength ledger_without_destroys(ledger_strength strength);

enum ledger_thing {
	LEDGER_LOAN,     /* a host range the device may touch */
	LEDGER_GRANT,    /* a peer's authority through a window */
	LEDGER_REGION,   /* the bytes of a registration */
	LEDGER_QP,       /* the object */
	LEDGER_QP_SLOTS, /* SQ and RQ slots, and the CQ slots kept for them */
	LEDGER_WINDOW,   /* the object */
	LEDGER_CQ,
	LEDGER_CHANNEL,
	LEDGER_PD,
	LEDGER_DEVICE,
	LEDGER_THINGS
};

/* What else must be known to judge a receipt. */
struct ledger_proof {
	uint32_t receipt;         /* ESCROW_RECEIPT_* or LEDGER_RECEIPT_* */
	ledger_strength strength; /* of the context */
	bool fatal;               /* the context was fatal when the receipt was obtained */
	bool quarantined;         /* the thing is quarantined (only then does R4 release it) */
	bool settled;             /* nothing of the thing is owed any more: see ledger_releases() */
};

/*
 * Does this receipt release this thing?  The release rules, and the only place where they are.
 *
 * `settled` means, by thing: grant: its window was deallocated or parked after the reset; region:
 * no loan and no grant stand on it; QP slots: no completion was owed before the destroy, or a
 * strong reset preceded; CQ: every QP of it has returned; PD and device: no children; else unused.
 */
bool ledger_releases(enum ledger_thing thing, const struct ledger_proof *proof);

/* ---- Native steps ---------------------------------------------------------------------------- */
enum ledger_class {
	LEDGER_RECEIPT,       /* 0 */
	LEDGER_REFUSED,       /* refused before any effect: the object is alive */
	LEDGER_GONE_OR_WRONG, /* ENOENT: the handle is not in the table; never a proof */
	LEDGER_AFTER_EFFECT, /* EFAULT: destroyed, then the answer was lost; treated as ambiguous */
	LEDGER_AMBIGUOUS     /* anything else */
};

/* Beyond the ABI's steps: the second CQ of a lane that has two. */
#define LEDGER_STEP_DESTROY_CQ2 24u

/* What errno `rc` (positive, 0 = success) of native step `step` (ESCROW_STEP_*) says. */
enum ledger_class ledger_classify(uint32_t step, int32_t rc);

/* The receipt that rc == 0 of the step is: ESCROW_RECEIPT_*, or LEDGER_RECEIPT_DEVICE_CLOSED. */
uint32_t ledger_receipt_of(uint32_t step);

/* ---- Outcomes of work requests --------------------------------------------------------------- */
enum ledger_outcome {
	LEDGER_OK,            /* success completion */
	LEDGER_NOT_SENT,      /* local length or QP operation error: never left */
	LEDGER_LOCAL_ERROR,   /* local protection error: a prefix may have left */
	LEDGER_REMOTE_ERROR,  /* the peer's device refused; a prefix may have landed */
	LEDGER_RNR,           /* receiver not ready, retries exhausted */
	LEDGER_RETRY_ERROR,   /* no acknowledgement */
	LEDGER_FLUSHED,       /* flushed; posted before the error state was confirmed */
	LEDGER_FLUSHED_AFTER, /* flushed; posted after it (the ledger finds out, not the caller) */
	LEDGER_COVERED_OK,    /* settled by a later success completion of the same send queue */
	LEDGER_COVERED_ERROR, /* settled by a later error completion */
	LEDGER_DISCARDED,     /* settled by a reset, a deregistration or a fence */
	LEDGER_REJECTED,      /* never posted */
	LEDGER_OUTCOMES
};

/* ESCROW_EFFECT_* of one work request with this outcome. */
uint8_t ledger_effect(enum ledger_outcome outcome);
/* ESCROW_EFFECT_* of a whole from two parts: equal ones stay, anything mixed is UNKNOWN. */
uint8_t ledger_effect_merge(uint8_t a, uint8_t b);

/* ---- Identity ---------------------------------------------------------------------------------
 */
struct ledger_epoch {
	uint8_t local[16]; /* 128-bit incarnations */
	uint8_t remote[16];
	uint64_t epoch;
};

/* OK, or E_STALE_EPOCH if `seen` (from a message or descriptor) is not exactly `live`. */
escrow_status ledger_epoch_check(const struct ledger_epoch *live, const struct ledger_epoch *seen);

#endif
