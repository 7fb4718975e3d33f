/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ledger-int.h - what the files of this folder share.
 *
 * Locks: `ctl` fields belong to the ledger's mutex; `lane` fields to whoever holds the lane.  A
 * field that the other side reads is written with PUT and read with GET (relaxed: a count may be a
 * moment old, it is never torn).  Functions here start with lg_, so that they meet no name of the
 * backend they are linked into.
 */
#ifndef LEDGER_INT_H
#define LEDGER_INT_H

#include <pthread.h>

#include "backends/ledger/lane.h"
#include "backends/ledger/lock.h"
#include "backends/ledger/log.h"

#define NONE UINT32_MAX

/* ---- Handles: kind << 56 | generation << 24 | slot ------------------------------------------- */
#define SLOT_BITS 24u
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
#define KIND_WR 0x40u
#define KIND_OP 0x41u

static inline uint64_t handle_make(uint32_t kind, uint32_t generation, uint32_t slot)
{
	return (uint64_t)kind << 56 | (uint64_t)generation << SLOT_BITS | slot;
}
static inline uint32_t handle_kind(uint64_t handle)
{
	return (uint32_t)(handle >> 56);
}
static inline uint32_t handle_generation(uint64_t handle)
{
	return (uint32_t)(handle >> SLOT_BITS);
}
static inline uint32_t handle_slot(uint64_t handle)
{
	return (uint32_t)(handle & SLOT_MASK);
}
/* Wraps, and is never 0, so that no handle is 0. */
static inline uint32_t handle_next_generation(uint32_t generation)
{
	return generation + 1 ? generation + 1 : 1;
}

/* ---- Owners ------------------------------------------------------------------------------------ */
#define KINDS (ESCROW_OWNER_CONTROL + 1u)
#define PINS 3u

/* A window's: its grant, the region, and the connection if that is not its parent.  A grant's: the region. */
enum ledger_pin { PIN_GRANT, PIN_REGION, PIN_CONN };

struct ledger_owner { /* ctl; two for each grant, so what few kinds need stands elsewhere */
	uint32_t generation;
	uint8_t kind; /* 0: free */
	uint8_t state;
	uint8_t stuck;     /* quarantined itself, or held; its charges are counted as stuck */
	uint8_t charge[2]; /* kinds: one of the first, of the second its span's length */
	uint8_t stage;
	uint8_t receipt;
	uint8_t why; /* see whys */
	union {
		uint32_t parent;
		uint32_t next; /* free list */
	};
	uint32_t children;
	uint32_t pins;
	uint32_t held;      /* stuck children and stuck pinners */
	uint32_t pin[PINS]; /* of a window and of a grant by enum ledger_pin */
	uint32_t name;      /* whom it is charged to, or NONE */
	uint16_t steps;     /* destroy steps it needs, as lg_step_bit() */
	uint16_t begun;
	uint16_t ended; /* with a receipt */
	int32_t rc;
	uint64_t since_ns;
};

struct ledger_span { /* ctl: of all kinds but windows, whose owner slots are the last */
	uint64_t addr, length;
};

struct ledger_context { /* ctl */
	ledger_strength strength;
	bool fatal;
	bool invalidates; /* by both: the completion of an invalidation there releases (lg_context_judge) */
};

struct ledger_peer { /* ctl: ESCROW_OWNER_PEER */
	struct ledger_epoch epoch;
	uint64_t serial;
};

struct ledger_name { /* ctl */
	char name[LEDGER_NAME_BYTES];
	uint32_t refs; /* accounts; a name without any, and without charges, may be replaced */
	uint64_t used[LEDGER_KINDS];
	uint64_t stuck[LEDGER_KINDS];
};

struct ledger_window { /* ctl */
	uint32_t next; /* of the same grant, an owner slot */
	uint32_t rkey;
	uint8_t binds; /* at most 255 */
	uint8_t kept;  /* SQ slots kept for it and not yet used by a posted request */
	bool bound_cqe;
	uint64_t account; /* whose keys it made; 0 = none yet */
	uint64_t keys_on; /* and on which connection; 0 = none yet; the account: on several */
};

struct ledger_grant {     /* ctl */
	uint32_t first;   /* window, an owner slot */
	uint16_t windows; /* still attached */
	uint16_t bound;
	bool plain; /* made without windows */
};

struct ledger_holdout { /* ctl, hashed by index: a key of a freed window that its peer may still know */
	uint32_t index;   /* number of the context << 24 | rkey >> 8 */
	uint32_t next;    /* in its bucket, or on the free list */
	uint64_t keys_on; /* the connection or account whose end is proof enough; 0: free */
};

/* ---- Lanes ---------------------------------------------------------------------------------------- */
#define DEBT_REGIONS 4u

/* What a lane looks at to lend: the handle is 0 unless the region is LIVE (release/acquire). */
struct ledger_lendable {
	uint64_t handle, length;
};
#define KEYED (UINT64_C(1) << 32) /* in struct ledger_keyed, beside the key */

/* What a debt is of, in one word, so that a run of slices has it made once. */
union ledger_shape {
	struct {
		uint8_t what; /* enum ledger_wr */
		uint8_t nregions;
		uint8_t opcode;
		uint8_t plain; /* enum plain */
	} of;
	uint32_t word;
};

/* lane.  Its state is its place in the ring: see struct ledger_conn */
struct ledger_debt {
	uint64_t offset;
	uint32_t op; /* of a slice; NONE: it is its own parent (ledger_op_lend) */
	union ledger_shape shape;
	uint64_t length;
	uint32_t region[DEBT_REGIONS]; /* index into ledger_lane.loans */
	uint64_t wr_id;
	uint64_t subject; /* of what is no slice; the user word of a slice that is its own parent */
} __attribute__((aligned(64)));

/* What the short ways of settling look at. */
enum plain {
	PLAIN_NOT,
	PLAIN_SLICE, /* of exactly one region */
	PLAIN_ALONE, /* that, and its own parent */
	PLAIN_LAST   /* the last of a run: PLAIN_SLICE all of them, and all that their parent has */
};

enum collect {
	COLLECT_NONE,
	COLLECT_SETTLE, /* a receipt for the whole queue came */
	COLLECT_STUCK   /* quarantined */
};

struct ledger_conn {
	/* lane: [head, tail) lent and posted, or stuck */
	uint64_t handle; /* 0: nobody's.  ctl with the lane held */
	/* The short ways, ctl writes both: its lane while a success may be settled so, else NULL; room for slices, or 0. */
	struct ledger_lane *settles;
	struct ledger_debt *ring;
	uint64_t wr_base; /* a wr_id of sequence number 0 */
	uint32_t head;
	uint32_t tail;
	uint32_t mask;
	uint32_t planned; /* admitted, not lent */
	uint32_t kept;    /* ctl: kept for binds and invalidations; see lg_keep() */
	uint32_t lends;
	uint8_t ready;
	uint8_t special; /* a completion needs the long way: error_state or was_stuck */
	uint8_t error_state;
	uint8_t was_stuck; /* stuck_upto means something */
	uint8_t held;      /* the regions of its debts are held */
	uint8_t collect;   /* enum collect */
	uint8_t sentinel;
	uint8_t pending_receipt; /* late, for when the ring is empty */
	/* Up to here what every slice looks at, in one line. */
	uint64_t user; /* the backend's word, given back with each completion */
	struct ledger_lane *lane;
	uint32_t parts; /* of [head, tail): what is not its own parent */
	uint32_t room;  /* sq_depth without the sentinel's slot */
	uint32_t slot;  /* owner slot */
	uint32_t name;
	uint32_t stuck_upto; /* [head, stuck_upto) were given out as stuck */
	uint32_t error_from; /* what is posted from here on was posted in the error state */
	uint32_t first;      /* sequence numbers before it are of earlier owners of the ring */
	uint32_t sq_depth, rq_depth;
	uint8_t place; /* ctl: its place in the host's budget outlives it */
} __attribute__((aligned(64)));

/*
 * lane: home, or atomic when shared.  pending is one word, so that of several lanes exactly one sees
 * the moment in which a report is due: low half planned, lent or posted; high half given out as
 * stuck and not settled since.  Of a shared one the high half has one more until it is reported, which is the
 * report's: what comes back late on one lane ends no op that another lane is about to tell of.
 */
#define PENDING_ONE UINT64_C(1)
#define PENDING_STUCK (UINT64_C(1) << 32)
struct ledger_op {
	uint64_t handle;
	uint64_t pending;
	uint64_t bytes;
	uint64_t user;
	uint32_t name;
	uint8_t state;
	uint8_t shared;
	uint8_t ends;      /* by itself */
	uint8_t taken;     /* off the free list */
	uint32_t outcomes; /* bit enum ledger_outcome */
	uint32_t next;
	uint32_t home;
} __attribute__((aligned(64)));

struct ledger_lane {
	struct ledger *ledger;
	uint32_t *loans; /* by region index: outstanding on this lane */
	uint32_t index;
	uint32_t op_free;
	uint32_t ops_left; /* parents it may still admit: those that are slices need no slot */
	uint8_t believes;  /* a completion of this lane is a receipt */
	uint8_t plain;     /* it believes, and keeps no log */
	uint8_t live;
	uint32_t events_got;
	uint32_t events_acked;
	uint32_t cq_depth; /* ctl */
	uint32_t cq_taken; /* ctl */
	uint64_t anomalies;
	uint64_t ops_stuck; /* may go below 0 here: readers add all lanes */
	uint64_t synced;    /* read by ctl: acquire */
	struct ledger_log log;
	uint32_t op_returned __attribute__((aligned(64))); /* ended on other lanes: atomic */
} __attribute__((aligned(64)));

/* ---- The ledger -------------------------------------------------------------------------------------- */
#define BLOCKS 24
#define WHYS 32u

struct ledger {
	/* constant after open */
	struct ledger_config config;
	struct escrow_host host;
	uint32_t base[KINDS + 1]; /* owner slots of kind k: [base[k], base[k] + max[k]) */
	uint32_t max[KINDS];
	uint32_t nowners;
	uint32_t nregions; /* regions and control buffers */
	uint32_t shift;    /* log2 of a connection's ring */
	uint32_t ring;
	struct ledger_owner *owners;
	struct ledger_span *spans; /* by owner slot, up to the windows */
	struct ledger_context *contexts;
	struct ledger_lane *lanes;
	struct ledger_conn *conns;
	struct ledger_window *windows;
	struct ledger_grant *grants;
	struct ledger_peer *peers;
	struct ledger_name *names; /* [max_names] is the engine's own account */
	struct ledger_holdout *holdouts;
	uint32_t nbuckets; /* a power of two, at most as many as there are windows; or 0 */
	uint32_t *buckets;
	uint32_t holdout_free;
	struct ledger_op *ops;
	struct ledger_debt *debts; /* all rings, by the slots of wr_ids */
	uint32_t ndebts;
	struct ledger_lendable *lendable; /* by region index */
	struct ledger_keyed *keyed;       /* too; of controls there are none */
	uint64_t *withdrawn; /* ctl, by region index: the sync number lanes must have passed */
	uint32_t *name_ops;  /* atomic, by name and the engine's: only if limited */
	uint32_t region_base;
	uint32_t conn_base;
	uint32_t nops;
	bool ops_limited;
	uint32_t limited; /* bit a kind: of the engine, or of names */
	void *blocks[BLOCKS];
	uint32_t nblocks;
	uint64_t bytes;

	struct lock lock;
	pthread_t holder; /* who has it over several calls, or 0 */
	/* ctl */
	uint64_t now; /* of these calls, once asked for; else 0 */
	uint32_t free[KINDS];
	uint64_t serial; /* of accounts */
	uint64_t holdout_serial;
	struct ledger_log log;
	uint64_t withdrawals; /* lanes read it: release/acquire */
	struct ledger *next;  /* list of released engines */
	uint64_t residue_id;
	const struct escrow_budget *budget; /* the host's, or NULL; constant after open */
	uint8_t ops_refused;                /* lanes read it */
	uint8_t ops_slowly;                 /* that, or ops_limited: no short way of admission */
	const char *whys[WHYS];             /* ctl; literals: owners keep the place + 1, or 0 */
};

/* ledger.c, ctl: for lg_now() */
uint64_t lg_read_now(struct ledger *l);

/* handle.c */
/* A destroy step, or a connection's step before it: its bit in an owner; 0 of any other. */
uint16_t lg_step_bit(uint32_t step);
/* The slot is what lg_owner_free() says. */
void lg_owner_take(struct ledger *l, uint32_t kind, uint32_t slot);
/* Why that says NONE. */
escrow_status lg_owner_none(const struct ledger *l, uint32_t kind, uint32_t place,
			    struct escrow_error *error);
escrow_status lg_fail(struct escrow_error *error, escrow_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));

/* owner.c; all ctl */
bool lg_owner_move(struct ledger *l, uint32_t slot, enum ledger_event event);
uint32_t lg_owner_phase(const struct ledger *l, uint32_t slot); /* ESCROW_OWNER_LIVE... */
uint32_t lg_owner_context(const struct ledger *l, uint32_t slot);
void lg_owner_pin(struct ledger *l, uint32_t by, uint32_t target);
void lg_owner_unpin(struct ledger *l, uint32_t by, uint32_t target);
void lg_owner_release(struct ledger *l, uint32_t slot, enum ledger_thing thing, uint32_t receipt);
void lg_grant_release(struct ledger *l, uint32_t slot, uint32_t receipt);
uint32_t lg_region_loans(const struct ledger *l, uint32_t slot);

/* quarantine.c; all ctl */
void lg_owner_refresh(struct ledger *l, uint32_t slot);
void lg_owner_hold(struct ledger *l, uint32_t slot, int by);
bool lg_owner_quarantine(struct ledger *l, uint32_t slot, const char *why);
const char *lg_owner_why(const struct ledger *l, uint32_t slot);

/* budget.c; all ctl */
const struct escrow_budget *lg_budget_of(const struct escrow_host *host);
escrow_status lg_budget_take(struct ledger *l, const char *name, uint32_t sq_depth,
			     uint32_t rq_depth, struct escrow_error *error);
void lg_budget_give(struct ledger *l, const struct ledger_conn *conn);
/* What all its connections took: the ledger goes as a whole. */
void lg_budget_give_all(struct ledger *l);

/* charge.c; all ctl */
escrow_status lg_charge_limits(struct ledger *l, uint32_t name, uint32_t kind, uint64_t amount,
			       struct escrow_error *error);
/* Is there room for so much more, of the engine and of a name (NONE: of none)?  Most kinds have no limit. */
static inline escrow_status lg_charge_check(struct ledger *l, uint32_t name, uint32_t kind,
					    uint64_t amount, struct escrow_error *error)
{
	return l->limited >> kind & 1u ? lg_charge_limits(l, name, kind, amount, error) : ESCROW_OK;
}
void lg_charge_stick(struct ledger *l, uint32_t slot, bool stuck);
struct ledger_name *lg_name_get(struct ledger *l, const char *name, bool make);
void lg_name_put(struct ledger *l, uint32_t name);
void lg_charge_sum(struct ledger *l, uint32_t name, uint32_t kind, struct escrow_charge *out);

/* grant.c, window.c; all ctl */
/* May an invalidation's completion there be believed?  Asked of the rules, and kept after what decides it has changed. */
bool lg_context_invalidates(const struct ledger_context *c);
void lg_context_judge(struct ledger *l, uint32_t slot);
void lg_window_freed(struct ledger *l, uint32_t slot);
void lg_window_stuck(struct ledger *l, uint32_t slot);
void lg_grant_unpinned(struct ledger *l, uint32_t grant);
/* Windows, by their owner slots. */
bool lg_holdout_find(struct ledger *l, uint32_t slot);
/* What is held out until this connection has gone, or this account was fenced: the receipt is in hand. */
void lg_holdout_end(struct ledger *l, uint64_t keys_on);
/* And whatever a reaped incarnation may know. */
void lg_holdout_reaped(struct ledger *l, const uint8_t *remote);

/* connection.c: ctl and lane held */
void lg_conn_open(struct ledger *l, uint32_t slot, const struct ledger_owner_args *args);
void lg_conn_stick(struct ledger *l, struct ledger_conn *conn);
void lg_conn_unstick(struct ledger *l, struct ledger_conn *conn);
void lg_conn_closed(struct ledger *l, struct ledger_conn *conn);

/* connection.c, ctl: after whatever decides whether slices go the short ways; of one, of a lane's (NULL: of all) */
void lg_conn_short(struct ledger *l, struct ledger_conn *conn);
void lg_conns_short(struct ledger *l, const struct ledger_lane *lane);

/* connection.c: a completion for the oldest debt of a quarantined connection */
uint32_t lg_conn_late(struct ledger_lane *lane, struct ledger_conn *conn,
		      enum ledger_outcome outcome, struct ledger_done *done);

/* lane.c: the log of a slice that is its own parent */
void lg_log_alone(struct ledger_lane *lane, uint64_t wr_id, uint64_t user);

/* loan.c */
uint32_t lg_debt_settle(struct ledger_lane *lane, struct ledger_conn *conn,
			enum ledger_outcome outcome, struct ledger_done *done);

/* op.c: 1 if *done was filled */
void lg_op_end_slowly(struct ledger_lane *lane, struct ledger_op *op);
uint32_t lg_op_report(struct ledger_lane *lane, struct ledger_op *op, struct ledger_done *done);
uint32_t lg_op_stuck(struct ledger_lane *lane, const struct ledger_debt *debt,
		     struct ledger_done *done);
uint32_t lg_op_unstuck(struct ledger_lane *lane, const struct ledger_debt *debt,
		       enum ledger_outcome outcome, struct ledger_done *done);
uint32_t lg_alone_ended(struct ledger_lane *lane, const struct ledger_debt *debt,
			enum ledger_outcome outcome, struct ledger_done *done);
bool lg_ops_reclaim(struct ledger_lane *lane);

/* quarantine.c: the list of the loaded object */
void lg_residue_add(struct ledger *l);
struct ledger *lg_residue_lock(void);
void lg_residue_unlock(void);
void lg_free(struct ledger *l);

/* record.c */
int32_t lg_records_of(struct ledger *l, uint64_t *cursor, struct escrow_record *records,
		      uint32_t max, uint32_t stride);

/* log.c */
/* A macro, so that nothing is made of owners' handles where no log is kept. */
#define log_ctl(l, what_code, subject, value)                                                      \
	(UNLIKELY((l)->log.entries != NULL)                                                        \
		 ? log_put(&(l)->log, (uint32_t)(l)->log.head, what_code, subject, value)          \
		 : (void)0)
static inline void log_lane(struct ledger_lane *lane, uint32_t what_code, uint64_t subject,
			    uint64_t value)
{
	if (lane->log.entries)
		log_put(&lane->log, (uint32_t)GET(lane->ledger->log.head), what_code, subject,
			value);
}

static inline void lane_believe(struct ledger_lane *lane, bool believes)
{
	lane->believes = believes;
	lane->plain = believes && !lane->log.entries;
	lg_conns_short(lane->ledger, lane);
}

/* SQ slots taken, but for those kept: lane held. */
static inline uint32_t conn_used(const struct ledger_conn *conn)
{
	return conn->planned + conn->tail - conn->head - conn->sentinel;
}

/* ---- Look-ups of the data path ------------------------------------------------------------------- */
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Of a grant or a window, each of which passes there: no call is paid. */
#define LG_EACH inline __attribute__((always_inline))

/* i: the index that the handle names. */
static inline bool conn_is(const struct ledger_lane *lane, uint32_t i, uint64_t handle)
{
	const struct ledger *l = lane->ledger;

	return i < l->config.max_connections && l->conns[i].handle == handle &&
	       l->conns[i].lane == lane;
}

static inline struct ledger_conn *lg_conn_find(const struct ledger_lane *lane, uint64_t handle)
{
	uint32_t i = handle_slot(handle) - lane->ledger->conn_base;

	return LIKELY(conn_is(lane, i, handle)) ? &lane->ledger->conns[i] : NULL;
}

static inline struct ledger_op *lg_op_find(const struct ledger *l, uint64_t handle)
{
	uint32_t slot = handle_slot(handle);

	if (UNLIKELY(slot >= l->nops || GET(l->ops[slot].handle) != handle))
		return NULL;
	return &l->ops[slot];
}

#include "backends/ledger/slots.h"
#include "backends/ledger/charge.h"

#endif
