/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lane.h - the ledger's data path: parents, loans and debts of one lane.
 *
 * Every function that is not marked [ctl] is [lane]: the caller holds the backend's lock of the lane it names, and for a
 * parent that spans lanes the locks of all of them during admission and lending.  Constant time a
 * slice; no allocation, no mutex, no system call; the only atomics are on a parent that spans
 * lanes, once a slice.
 *
 * A connection's debts are a ring of its send queue's depth, in posting order.  wr_id = kind |
 * sequence number | slot, so an old, foreign or duplicate completion is recognised without a
 * search, and a completion settles every earlier work request of its queue by moving the head.
 *
 *   admit --> lend --> [native post] --> (rejected) --> [native poll] --> settle
 *
 * The lane is held from the lend until what the post said is dealt with, so between the two no
 * other call sees the request.
 *
 * CQ slots need no count of their own on this path: a lane takes a connection only if its CQs have
 * room for all of its slots, and a CQ slot is held exactly as long as its SQ (or RQ) slot.
 */
#ifndef LEDGER_LANE_H
#define LEDGER_LANE_H

#include "backends/ledger/ledger.h"

/* [ctl] The lane behind an owner of kind LANE; NULL for anything else.  Valid until it is gone. */
struct ledger_lane *ledger_lane_of(struct ledger *l, uint64_t owner);

/*
 * [ctl] The connection behind an owner of that kind, of this lane, for hot.h; NULL for anything else.  Its place stays as
 * long as the ledger does; whether it is this connection's still, ledger_conn_is() tells.
 */
struct ledger_conn *ledger_conn_of(struct ledger_lane *lane, uint64_t owner);

/* Passing a lane: withdrawn regions are lent from no more here.  Any time; cheap. */
void ledger_lane_sync(struct ledger_lane *lane);

/* Completion and async events got and acknowledged (invariant I10 of destroy steps). */
void ledger_lane_events(struct ledger_lane *lane, uint32_t got, uint32_t acked);

/* ---- Parents -----------------------------------------------------------------------------------
 */
struct ledger_part {
	struct ledger_lane *lane; /* held */
	uint64_t connection;
	uint32_t slices;
	uint32_t reserved0;
};

/* The op ends by itself with its terminal report (after UNQUIESCED: with RETURNED). */
#define LEDGER_ADMIT_ENDS 1u

struct ledger_admission {
	uint64_t user;
	uint32_t nparts;
	uint32_t flags;                  /* LEDGER_ADMIT_* */
	const struct ledger_part *parts; /* in-call */
};

/*
 * Charges one op and every slice of it, or nothing.  *op_out is its handle; it lives until its last
 * slice is settled and ledger_op_end() was called (or ADMIT_ENDS did it).  0 slices in all is legal (a zero-length op that
 * needs no work request): the op is done at once, call ledger_op_end().
 *   E_AGAIN    no op slot, or not enough SQ slots now
 *   E_STATE    a connection is not READY (the first such)
 *   E_QUOTA    a limit on ops, of the engine or of the name; or too much is stuck
 *   E_INVALID  a handle, or a connection of another lane
 */
escrow_status ledger_op_admit(struct ledger_lane *home, const struct ledger_admission *admission,
			      uint64_t *op_out);

/*
 * Planned slices of this connection that will not be lent: their charge returns.  Returns 1 if that
 * ended the op (*done), else 0; E_INVALID.
 */
int32_t ledger_op_drop(struct ledger_lane *lane, uint64_t connection, uint64_t op, uint32_t slices,
		       struct ledger_done *done);

/* Cancelled: no more slices will be lent (ledger_slice_lend() says E_CANCELED). */
escrow_status ledger_op_cancel(struct ledger_lane *lane, uint64_t op);

struct ledger_op_info {
	uint32_t state;     /* LEDGER_OP_* */
	uint32_t unsettled; /* slices planned, lent, posted or stuck */
	uint8_t custody;    /* ESCROW_CUSTODY_* at this moment */
	uint8_t effect;     /* ESCROW_EFFECT_*, so far */
	uint16_t reserved0;
	uint32_t stuck;
	uint64_t bytes; /* known executed */
	uint64_t user;
};
escrow_status ledger_op_info(struct ledger_lane *lane, uint64_t op, struct ledger_op_info *out);

/*
 * The op's event was given out: its slot and its charge return.  E_BUSY while a slice is unsettled
 * (an UNQUIESCED op stays charged until its late receipt).
 */
escrow_status ledger_op_end(struct ledger_lane *lane, uint64_t op);

/* ---- Loans --------------------------------------------------------------------------------------
 */
struct ledger_loan {
	uint64_t op;
	uint64_t connection;
	uint64_t region; /* 0: inline, no loan, only a debt */
	uint64_t offset; /* in the region */
	uint64_t length;
	uint32_t opcode; /* ESCROW_READ or ESCROW_WRITE */
	uint32_t reserved0;
};

/*
 * Lends one admitted slice, *before* the native post: from here the device may touch the bytes.
 * *wr_id_out is what to post it with.  E_INVALID: handle or range; E_STATE: region not LIVE,
 * connection not READY; E_CANCELED.  On failure the slice stays planned.
 */
escrow_status ledger_slice_lend(struct ledger_lane *lane, const struct ledger_loan *loan,
				uint64_t *wr_id_out);

/*
 * Lends a whole range that is cut into `slices` work requests of `bytes` each (the last one takes the
 * rest): one look-up for all of them.  wr_ids gets `slices` elements, in order.  E_INVALID too if
 * loan->length does not make exactly that many.  All or nothing.
 */
escrow_status ledger_slices_lend(struct ledger_lane *lane, const struct ledger_loan *loan,
				 uint64_t bytes, uint32_t slices, uint64_t *wr_ids);

/*
 * A parent of `slices` such work requests on one connection in one step: admits it, lends its whole range (loan->op is
 * not looked at), and it ends by itself.  Errors of both calls; on failure nothing is charged.
 */
escrow_status ledger_run_lend(struct ledger_lane *lane, uint64_t user,
			      const struct ledger_loan *loan, uint64_t bytes, uint32_t slices,
			      uint64_t *wr_ids);

/*
 * A parent of one slice on one lane in one step: admits it, lends its slice (loan->op is not
 * looked at), and it ends by itself.  Errors of both calls; on failure nothing is charged.  It is
 * its own slice: charged as an op, but without a slot and a handle of its own.
 */
escrow_status ledger_op_lend(struct ledger_lane *lane, uint64_t user,
			     const struct ledger_loan *loan, uint64_t *wr_id_out);

/* Further regions of the same work request (scatter/gather): at most 3, right after its lend. */
escrow_status ledger_slice_also(struct ledger_lane *lane, uint64_t wr_id, uint64_t region,
				uint64_t offset, uint64_t length);

/* What a row takes of a region that has a key: ledger_row_region() says of which.  Of others the handle is always 0. */
struct ledger_keyed {
	uint64_t handle;
	uint64_t length;
	uint64_t addr;
	uint64_t key; /* the low half is ledger_region_key()'s */
};

enum ledger_wr {
	LEDGER_WR_SLICE,
	LEDGER_WR_BIND,
	LEDGER_WR_INVALIDATE,
	LEDGER_WR_SENTINEL,
	LEDGER_WR_MESSAGE
};
/*
 * A work request that is no slice.  BIND and INVALIDATE use the slots kept at grant time (subject:
 * the window), SENTINEL the one kept for it, MESSAGE is charged now (subject: returned in done).
 */
escrow_status ledger_wr_lend(struct ledger_lane *lane, uint64_t connection, enum ledger_wr what,
			     uint64_t subject, uint64_t *wr_id_out);

/* A message lent from a region or a control buffer keeps it; right after its ledger_wr_lend(). */
escrow_status ledger_wr_holds(struct ledger_lane *lane, uint64_t wr_id, uint64_t region);

/*
 * The native post refused the `rejected` youngest requests of this connection (bad_wr and all after
 * it): they are settled at once, NOT EXECUTED, the youngest first.  Nothing to call when all were
 * taken.  Returns how many elements of done were written.  E_INVALID: more than there are;
 * E_TOO_SMALL: max is less than `rejected`.  On failure nothing changes.
 */
int32_t ledger_rejected(struct ledger_lane *lane, uint64_t connection, uint32_t rejected,
			struct ledger_done *done, uint32_t max);
/* LEDGER_SLICE_* of a wr_id by its place in the ring: POSTED (or LENT: the ledger need not
 * know which), STUCK, else SETTLED. */
uint32_t ledger_slice_state(struct ledger_lane *lane, uint64_t wr_id);

/* ---- Settling
 * ------------------------------------------------------------------------------------ */
#define LEDGER_DONE_OP 1u         /* every slice settled: its terminal report */
#define LEDGER_DONE_UNQUIESCED 2u /* every slice settled or stuck: terminal, custody HELD */
#define LEDGER_DONE_RETURNED 3u   /* an UNQUIESCED op's last stuck slice was settled after all */
#define LEDGER_DONE_BIND 4u       /* give it to ledger_window_settled() */
#define LEDGER_DONE_INVALIDATE 5u
#define LEDGER_DONE_SENTINEL 6u
#define LEDGER_DONE_MESSAGE 7u

struct ledger_done {
	uint64_t
		subject; /* op (0: of ledger_op_lend), window, or what ledger_wr_lend() was given */
	uint64_t user;   /* of an op */
	uint64_t bytes;  /* of an op: known executed */
	uint32_t what;   /* LEDGER_DONE_* */
	uint8_t outcome; /* enum ledger_outcome: of the op, the worst slice's; of others, its own */
	uint8_t custody;
	uint8_t effect;
	uint8_t releases; /* BIND, INVALIDATE: the completion counts as a receipt */
};

struct ledger_cqe {
	uint64_t wr_id;
	enum ledger_outcome outcome; /* LEDGER_OK to LEDGER_FLUSHED */
	uint32_t more;               /* out: 1 = `done` was full; call again with the same */
	uint32_t slices;             /* out: of what it settled, and their bytes */
	uint32_t reserved0;
	uint64_t bytes;
	uint64_t user; /* out: of the connection that posted it; 0 if it names none that stands */
};

/*
 * A completion was polled: settles its work request and every earlier one of that queue.  Writes at
 * most max (>= 1) elements of done and returns how many.  E_INVALID: names no debt (old, foreign,
 * duplicate): counted, logged, nothing changes.  E_UNQUIESCED: it counts for nothing, because the
 * context is fatal or the lane poisoned.
 */
int32_t ledger_settle(struct ledger_lane *lane, struct ledger_cqe *cqe, struct ledger_done *done,
		      uint32_t max);

/*
 * After a reset, a destroy, a quarantine or a late receipt: hands out what became of the connection's debts,
 * at most max a call; 0 = no more.  A strong reset or destroy settles them (effect UNKNOWN), a quarantine
 * makes them stuck.
 */
int32_t ledger_conn_collect(struct ledger_lane *lane, uint64_t connection, struct ledger_done *done,
			    uint32_t max);

/*
 * The connection that posted it, also of a debt that was settled, while its place was not lent again;
 * 0 = foreign, or of an earlier connection on that ring.
 */
uint64_t ledger_wr_connection(struct ledger_lane *lane, uint64_t wr_id);

/* Posted or lent and not settled; SQ slots that ledger_op_admit() could take now. */
uint32_t ledger_conn_debt(struct ledger_lane *lane, uint64_t connection);
uint32_t ledger_conn_room(struct ledger_lane *lane, uint64_t connection);
/* Completions that named no debt. */
uint64_t ledger_lane_anomalies(const struct ledger_lane *lane);

#endif
