/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ledger.h - the accounts a backend keeps: who owns what, who keeps it from going, what it is
 * charged with, which native answer let it go, and what had to be quarantined.
 *
 * It knows no verbs and makes no native call.  The backend asks it before each native step, tells
 * it the answer, and obeys: it gives bytes, keys and charges back only when the ledger says so.
 *
 * Threads.  Two kinds of functions, and nothing else is shared:
 *
 *   [ctl]   in this header.  Any thread; each takes the ledger's own mutex for a short, bounded
 *           time (no allocation, no call out but host->now_ns).
 *   [lane]  in lane.h, and here where it says "lane held".  The caller holds the backend's lock
 *           of that lane (a trylock on the data path).  No mutex, no shared counter: what a lane
 *           counts is written by its holder alone, and readers add the lanes up.
 *
 *   Lock order: lane locks (ascending), then the ledger's mutex.  Never the other way round.
 *
 * Memory.  Everything is allocated in ledger_open() through host->alloc; nothing after it.
 *
 * Handles.  kind (8 bits) | generation (32) | slot (24).  A handle that is foreign, stale or of
 * another kind is E_INVALID in constant time and changes nothing.  0 is never a handle.
 *
 * Errors.  A failed call changes nothing.  `error` may be NULL; it is filled where the failure is
 * decided, with the value and what is allowed.
 */
#ifndef LEDGER_H
#define LEDGER_H

#include "backends/ledger/rules.h"

struct ledger;
struct ledger_lane;

#define LEDGER_KINDS 9u /* ESCROW_CHARGE_* are 1 to 8 */
#define LEDGER_NO_LIMIT UINT64_MAX
#define LEDGER_MAX_LANES 64u
#define LEDGER_NAME_BYTES 64u
#define LEDGER_MAX_BINDS 255u /* of a window: 256 tags, and the one it was made with stays unused */

/* ---- Open and close -------------------------------------------------------------------------- */
struct ledger_config {
	const struct escrow_host *host; /* alloc, free, now_ns; must outlive the ledger */
	uint8_t incarnation[16];
	/* Fixed capacities.  At least 1 each, except windows, grants and controls. */
	uint32_t max_contexts;
	uint32_t max_lanes; /* at most LEDGER_MAX_LANES */
	uint32_t max_connections;
	uint32_t max_regions;
	uint32_t max_controls; /* control buffers of the backend */
	uint32_t max_windows;
	uint32_t max_grants;
	uint32_t max_accounts; /* peers, each incarnation counted */
	uint32_t max_names;    /* peer names; at most max_accounts are needed */
	uint32_t ops_per_lane;
	uint32_t sq_depth;      /* of the deepest send queue, sentinel included */
	uint32_t log_entries;   /* of the control log and of each lane's; 0 = no log */
	uint32_t stuck_percent; /* 1..100: at this share of a limit stuck, no new admission */
	/* A region or grant of the host is one in each of so many devices, and the limits are that many
	 * times what the host set.  What a refusal says is divided again; 0 is 1. */
	uint32_t devices;
	uint32_t window_binds; /* before a window is worn; 0 = LEDGER_MAX_BINDS, at most that */
	/*
	 * Bit a kind: the caller says the place of each, among as many as the capacity is.  So it knows by a handle's
	 * slot whose it is also when the owner has gone, as long as it lets nobody else have that place.
	 */
	uint32_t placed;
	uint64_t limit[LEDGER_KINDS];      /* of the engine, by ESCROW_CHARGE_*; LEDGER_NO_LIMIT */
	uint64_t name_limit[LEDGER_KINDS]; /* of each peer name */
};

/*
 * E_INVALID (which member), E_NO_MEMORY (all that was allocated is freed again).  *engine_out is
 * the root owner.  No two slots of the sum may exceed 2^24.
 */
escrow_status ledger_open(const struct ledger_config *config, struct ledger **out,
			  struct escrow_error *error);

/*
 * The engine is released.  If nothing is quarantined and nothing lives, all is freed: OK.  If
 * something is quarantined, the ledger moves to the list of the loaded object, where
 * ledger_charges(NULL) and ledger_records(NULL) show it and ledger_fenced(NULL) can still end it:
 * E_UNQUIESCED.  Owners that merely live: E_BUSY, nothing changes.  Afterwards `l` is not the
 * caller's any more (OK and E_UNQUIESCED).  No other call on `l` may be under way.
 */
escrow_status ledger_release(struct ledger *l);
/*
 * [ctl] Before that, of an engine that is released in the middle of something: what merely lives is
 * quarantined, for nobody will prove anything of it.
 */
void ledger_abandon(struct ledger *l);

/*
 * [ctl] Holds the ledger's mutex for several calls of this thread's, one after the other: each takes none then, and
 * all have the same time.  In between nothing may be waited for, and no lane's lock but by who only tries it.
 */
void ledger_hold(struct ledger *l);
void ledger_let(struct ledger *l);

uint64_t ledger_engine(const struct ledger *l);
/* Ledgers on the list of the loaded object.  While it is not 0 the object must stay mapped. */
uint32_t ledger_residue(void);
/* Bytes per slice slot, per grant with one window, per further window, per connection beside its ring. */
struct ledger_footprint {
	uint64_t slice;
	uint64_t grant;
	uint64_t window;
	uint64_t connection;
	uint64_t total;
};
void ledger_footprint(const struct ledger *l, struct ledger_footprint *out);

/* ---- Owners ---------------------------------------------------------------------------------- */
/*
 * [ctl] What a new owner is.  Legal parents: context, account <- engine; lane, region, window,
 * control <- context; connection <- lane; window, control <- connection; grant <- account, or
 * engine (an offer).
 */
struct ledger_owner_args {
	uint32_t kind;  /* ESCROW_OWNER_* but ENGINE (made by open), GRANT and LOAN */
	uint32_t steps; /* which destroy steps it will need: LEDGER_STEP_BIT(ESCROW_STEP_*) */
	uint64_t parent;
	uint64_t addr; /* region, control: the host range */
	uint64_t length;
	/* context */
	ledger_strength strength;
	/* lane */
	uint32_t cq_depth;
	/* connection */
	uint32_t sq_depth; /* one slot of it is kept for the sentinel; >= 2 */
	uint32_t rq_depth;
	uint64_t account; /* whom it is charged to, and pins */
	uint64_t user;    /* comes back with each of its completions: struct ledger_cqe */
	bool placed;      /* its place was kept: ledger_place_keep() */
	/* account */
	const char *peer_name; /* 1..63 bytes; in-call */
	struct ledger_epoch epoch;
	/* window */
	uint32_t rkey; /* as the device gave it: index << 8 | tag */
	/* of a kind that is placed: where, from 0 up */
	uint32_t place;
};
#define LEDGER_STEP_BIT(step) (UINT32_C(1) << (step))

/*
 * [ctl] Charges it and makes it, in state 0 of its machine; call it *before* the native create.
 * A lane or connection: lane held, if that lane is in use.  E_INVALID; E_STATE: the parent is not
 * live, or a lane that is poisoned; E_LIMIT: a pool (or somebody is at that place), or the CQ depth (all SQ
 * and RQ slots and a sentinel each must fit); E_QUOTA: a limit, or too much is stuck (the text says which).
 */
escrow_status ledger_owner_add(struct ledger *l, const struct ledger_owner_args *args,
			       uint64_t *owner_out, struct escrow_error *error);

/* [ctl] The native create failed: the owner was never there; its charges return.  State 0 only. */
escrow_status ledger_owner_undo(struct ledger *l, uint64_t owner);

/*
 * [ctl] A connection's place in what the whole process may have (escrow/budget.h) is kept when it goes, or (`keep` false)
 * goes with it as usual; in the same breath as its last step or its undo, after which it is kept if the owner has gone.
 * The next one that is added as `placed`, with the same depths, has it, and the host is not asked; or it is given back, of the
 * name that it was charged to.
 */
void ledger_place_keep(struct ledger *l, uint64_t connection, bool keep);
void ledger_place_give(struct ledger *l, const char *name, uint32_t sq_depth, uint32_t rq_depth);

/* [ctl] A window's key, when it became known only after the create. */
escrow_status ledger_window_key(struct ledger *l, uint64_t window, uint32_t rkey);

/*
 * [ctl] By what the device names the bytes of a region: who lends in a row finds it beside, and lends so of no region
 * that has none.  Before READY.
 */
escrow_status ledger_region_key(struct ledger *l, uint64_t region, uint32_t key);

/*
 * [ctl] READY, STOP, POISON or FENCE; other events are the ledger's own and E_INVALID.
 * E_STATE if the machine has no such move.  A connection or lane: lane held.
 *   region STOP:  WITHDRAWING; then every lane must pass ledger_lane_sync() once before the
 *                 deregistration may start, so that no lane still lends from it.
 *   account FENCE: E_BUSY while grants or connections stand; ends the hold-out of its keys.
 *   account STOP after FENCE: CLOSED, the owner goes.
 */
escrow_status ledger_owner_event(struct ledger *l, uint64_t owner, enum ledger_event event);

/*
 * [ctl] An owner without native steps goes (engine: after STOP; a context without PD).  With steps
 * it goes by itself with the last receipt.  E_BUSY: children or pins.
 */
escrow_status ledger_owner_gone(struct ledger *l, uint64_t owner);

/*
 * [ctl] A pin of the backend's own making (at most 3 an owner has): `by` keeps `target`.  A grant that is
 * revoked and pinned so keeps its charges until `by` has gone.
 */
escrow_status ledger_pin(struct ledger *l, uint64_t by, uint64_t target);
escrow_status ledger_unpin(struct ledger *l, uint64_t by, uint64_t target);

struct ledger_owner_info {
	uint32_t kind;
	uint32_t machine_state;
	uint32_t state; /* ESCROW_OWNER_* */
	uint32_t children;
	uint32_t pins;
	uint32_t held; /* quarantined children and pinning owners */
	uint32_t stage;
	int32_t rc;
	uint32_t receipt;
	uint32_t loans; /* region, connection: outstanding */
	uint64_t parent;
	uint64_t addr;
	uint64_t length;
};
/* [ctl] E_INVALID: stale. */
escrow_status ledger_owner_info(struct ledger *l, uint64_t owner, struct ledger_owner_info *out);

/* ---- Native steps: one call each, for ever --------------------------------------------------- */
/*
 * [ctl] May this destroy step be made now?  OK counts it as made: go and make the call, then
 * ledger_step_end().  Steps: QP_ERR, QP_RESET, DESTROY_QP; DEREGISTER; DEALLOC_WINDOW; DESTROY_CQ
 * (a second one for lanes with two queues is LEDGER_STEP_DESTROY_CQ2), DESTROY_CHANNEL; DEALLOC_PD,
 * CLOSE_DEVICE.
 *   E_INVALID  not a step of this kind, or not in its args.steps
 *   E_STATE    made before (whatever came of it); the owner is quarantined; wrong state or order
 *   E_BUSY     children, pins, loans, un-acked events, lanes not synced (region)
 *   E_DEVICE   its context is fatal: no native call is made any more
 */

escrow_status ledger_step_begin(struct ledger *l, uint64_t owner, uint32_t step,
				struct escrow_error *error);

/*
 * [ctl; of a connection: lane held] What it answered: errno, 0 = success.  Returns
 *   OK            the receipt counts; with the last step the owner is gone and its charges return
 *   E_UNQUIESCED  it proves nothing.  The owner is quarantined, except after a failed QP_ERR (go on
 *                 to QP_RESET) and a QP_RESET that succeeded but is graded weak (go on to
 *                 DESTROY_QP)
 * After QP_RESET, and after a DESTROY_QP that is a proof by itself, let ledger_conn_collect() give the loans'
 * outcome (lane held for both calls): with debts, the connection is gone when the last is collected.
 */
escrow_status ledger_step_end(struct ledger *l, uint64_t owner, uint32_t step, int32_t rc);

/* [ctl] How often the step was begun (0 or 1), for tests and replay. */
uint32_t ledger_step_calls(struct ledger *l, uint64_t owner, uint32_t step);

/* ---- Health, quarantine and late receipts ------------------------------------------------------
 */
/*
 * [ctl, all lanes of the context held] The context is fatal: from now on nothing it says is a
 * proof.  All that lives in it is quarantined.  Then ledger_conn_collect() each connection.
 */
escrow_status ledger_context_fatal(struct ledger *l, uint64_t context);

/*
 * [ctl; connection: lane held] Gives up on a proof, by the rules: it stays, with all it pins.  why: a
 * literal of the loaded object; the record says it.
 */
escrow_status ledger_quarantine(struct ledger *l, uint64_t owner, const char *why);

/*
 * [ctl] A receipt came after the quarantine: a native one (a late completion is settled in lane.h;
 * here the releasing receipt of the owner itself), or R4 from outside.  OK: the owner and its
 * charges are released; E_STATE: this receipt does not release it, or it is not quarantined;
 * E_BUSY: something quarantined below still stands.  A connection: lane held, collect afterwards.
 */
escrow_status ledger_late_receipt(struct ledger *l, uint64_t owner, uint32_t receipt);

/*
 * [ctl, all lanes held] org.escrow.fence/1.  FUNCTION_FENCED for our own incarnation: everything
 * quarantined is released; then let ledger_conn_collect() settle each connection's loans, and call
 * again until it returns 0.  PROCESS_REAPED of a peer's: its keys can be used no more, so the
 * hold-out of its epochs ends.  l NULL: the ledgers of released engines, which are then freed.
 * Returns how many owners were released; E_INVALID: another receipt.
 */
int32_t ledger_fenced(struct ledger *l, const uint8_t *incarnation, uint32_t receipt);

/* [ctl] How many owners are quarantined by their own failure, and how many only by others'. */
uint32_t ledger_quarantined(struct ledger *l, uint32_t *held_out);

/* ---- Grants and windows ------------------------------------------------------------------------
 */
struct ledger_grant_args {
	uint64_t account; /* 0: an offer */
	uint64_t region;
	uint64_t offset;
	uint64_t length; /* not 0 */
	uint32_t rights; /* ESCROW_MAY_* */
	uint32_t place;  /* if grants are placed: where, from 0 up */
	uint32_t nwindows;
	uint32_t reserved0;
	const uint64_t *windows;     /* parked ones, one a connection the peer may use; in-call */
	const uint64_t *connections; /* the connection each will be bound on */
};

/*
 * [ctl, lanes of the connections held] Charges grant and bytes to the name and the engine, keeps
 * two SQ slots a window (bind, and the invalidation that must always be possible) and pins region,
 * connections and windows: all or nothing.  E_QUOTA, E_AGAIN (SQ slots), E_STATE, E_INVALID
 * (range), E_LIMIT (a window that is worn out or held out; the pool, or somebody is at that place).
 */
escrow_status ledger_grant_reserve(struct ledger *l, const struct ledger_grant_args *args,
				   uint64_t *grant_out, struct escrow_error *error);
/*
 * [ctl, lane of the connection held] One window more for a grant that stands, on a connection that
 * came back: args as for the grant, with that window alone.  Charges only the two SQ slots.
 */
escrow_status ledger_grant_join(struct ledger *l, uint64_t grant,
				const struct ledger_grant_args *args, struct escrow_error *error);
/* [ctl] A window whose bind was never posted leaves its grant: its connection goes.  E_STATE else. */
escrow_status ledger_window_leave(struct ledger *l, uint64_t window);

/*
 * [ctl] The tag (low 8 bits of the rkey) for the next bind: never used before in this epoch.  E_LIMIT:
 * it has had its binds, or its index is held out.
 */
escrow_status ledger_window_tag(struct ledger *l, uint64_t window, uint8_t *tag_out);
/*
 * [ctl] Has it had its binds (deallocate it), or is its index held out (leave it alone until then)?
 * An index whose window was freed is held out until the connection on which its keys were made has
 * gone with a receipt; if there were several, until the account is fenced.  A quarantined connection
 * has not gone.
 */
bool ledger_window_worn(struct ledger *l, uint64_t window);
bool ledger_window_held_out(struct ledger *l, uint64_t window);

/*
 * [ctl] Bind or invalidation of a window was posted (E_BIND, E_INVALIDATE; lane held, after
 * the post took it and before the lane is let go), or its connection is dead (E_QP_DEAD).  Their
 * completions come through ledger_window_settled().
 */
escrow_status ledger_window_event(struct ledger *l, uint64_t window, enum ledger_event event);

struct ledger_done;
/*
 * [ctl] A LEDGER_DONE_BIND or _INVALIDATE that ledger_settle() or _collect() gave out.  When the
 * grant's last bind is OK the grant is EXPORTED; when its last window is settled it is REVOKED and
 * its charges return.  *grant_state_out: LEDGER_GRANT_*.  *now, whatever it returns: what the window is.
 */
struct ledger_window_now {
	uint8_t state; /* LEDGER_WINDOW_*; FREE: there is no such window */
	bool worn;     /* ledger_window_worn() */
};
escrow_status ledger_window_settled(struct ledger *l, const struct ledger_done *done,
				    uint32_t *grant_state_out, struct ledger_window_now *now);

/*
 * [ctl] Revocation begins: REVOKING.  Windows whose bind was never posted are given back at once;
 * every other must be invalidated, or orphaned and deallocated.  *grant_state_out: REVOKED if that
 * was all, and then the grant is gone.
 */
escrow_status ledger_grant_revoke(struct ledger *l, uint64_t grant, uint32_t *grant_state_out);
/* [ctl] OK only in EXPORTED: before the bind's completion nothing may leave the process. */
escrow_status ledger_grant_exported(struct ledger *l, uint64_t grant);
/*
 * [ctl] A grant without windows (an offer; a backend without native keys) is EXPORTED.  E_STATE for
 * one that has windows: those are bound.
 */
escrow_status ledger_grant_ready(struct ledger *l, uint64_t grant);
/* [ctl] LEDGER_GRANT_*, or -1: no such grant (any more). */
int ledger_grant_state(struct ledger *l, uint64_t grant);

/* ---- What is seen from outside -----------------------------------------------------------------
 */
/* [ctl] As slot `charges`: how many there are in all.  l NULL: of released engines. */
int32_t ledger_charges(struct ledger *l, struct escrow_charge *charges, uint32_t max,
		       uint32_t stride);
/* [ctl] As slot `records`: parents first, then stuck loans.  l NULL: of released engines. */
int32_t ledger_records(struct ledger *l, uint64_t *cursor, struct escrow_record *records,
		       uint32_t max, uint32_t stride);
/* [ctl] One account: name NULL = the engine.  used includes stuck. */
escrow_status ledger_usage(struct ledger *l, const char *name, uint32_t kind,
			   struct escrow_charge *out);

/* ---- The log
 * -------------------------------------------------------------------------------------- A ring a
 * lane and one for control: written by one thread at a time, without a system call, the oldest
 * overwritten.  `control` of a lane's entry is the number of control entries there were, so that
 * the rings can be merged.
 */
enum ledger_log_what {
	LEDGER_LOG_ADD = 1, /* owner made; value: parent */
	LEDGER_LOG_UNDO,
	LEDGER_LOG_STATE,   /* code: new machine state */
	LEDGER_LOG_CALL,    /* code: step */
	LEDGER_LOG_RC,      /* code: step, value: errno */
	LEDGER_LOG_RECEIPT, /* code: receipt, value: strength of the context << 1 | fatal */
	LEDGER_LOG_RELEASE, /* code: thing | receipt << 8 */
	LEDGER_LOG_CHARGE,  /* code: charge kind, value: amount */
	LEDGER_LOG_UNCHARGE,
	LEDGER_LOG_STUCK, /* charges moved to stuck */
	LEDGER_LOG_UNSTUCK,
	LEDGER_LOG_PIN, /* value: target */
	LEDGER_LOG_UNPIN,
	LEDGER_LOG_LEND,    /* subject: wr_id, value: op or window */
	LEDGER_LOG_SETTLE,  /* subject: wr_id, code: receipt | outcome << 8, value: op or window */
	LEDGER_LOG_ANOMALY, /* subject: wr_id that names no debt */
	LEDGER_LOG_REFUSE   /* code: step; a begin that was refused */
};

struct ledger_log_entry {
	uint32_t control;
	uint16_t what; /* enum ledger_log_what */
	uint16_t code;
	uint64_t subject;
	uint64_t value;
};

/*
 * [ctl; lane >= 0: lane held] Reads up to max entries from *cursor (0 = the oldest there is) of
 * lane's ring, -1 = the control ring.  *lost_out: how many were overwritten before they were read.
 */
uint32_t ledger_log_read(struct ledger *l, int lane, uint64_t *cursor,
			 struct ledger_log_entry *entries, uint32_t max, uint64_t *lost_out);

/* ---- Tests --------------------------------------------------------------------------------------
 */
/*
 * [all lanes held] Walks everything and re-derives what is counted: I3 (charges, stuck, per engine
 * and per name), I4 (one call a step), I5 (what is gone had its receipt), I6 (done ops, exported
 * grants), I7, I8, I9 (quarantine pins its ancestors).  OK, or E_INTERNAL and the text.
 */
escrow_status ledger_check(struct ledger *l, char *text, uint32_t size);

#endif
