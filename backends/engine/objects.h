/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * objects.h - what an engine is made of: devices, lanes, connections, peers, regions, windows, grants,
 * remotes, ops, tickets.  Included by engine.h, whose head says who may touch which field.
 */
#ifndef ENGINE_OBJECTS_H
#define ENGINE_OBJECTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "backends/engine/args.h"
#include "backends/engine/config.h"
#include "backends/engine/entry.h"
#include "backends/engine/event.h"
#include "backends/engine/fault.h"
#include "backends/engine/pool.h"
#include "backends/engine/state.h"
#include "backends/engine/wire.h"
#include <escrow/counters.h>
#include <escrow/fence.h>
#include <escrow/notify.h>
#include "backends/ledger/lane.h"
#include "backends/ledger/ledger.h"
#include "backends/ledger/lock.h"

#define CHAIN_WRS 64u       /* work requests in one post */
#define WR_SGES 4u          /* the ledger lends at most four ranges a work request */
#define MESSAGE_SLOTS 8u    /* sends under way on one carrier */
#define MESSAGE_BYTES 4096u /* of one send: header and a piece */
#define CQE_BATCH 32
#define BIND_CHAIN 16u    /* binds and invalidations in one post */
#define WINDOWS_DUE 64u   /* and that wait for it */
#define ASIDE_WINDOWS 64u /* held-out indices that a device gives out again */
/* Of an ANY invitation the name comes later, from a stranger: its quota class is one for all. */
#define ENGINE_ANY_ACCOUNT "(any)"

struct peer;
struct notify;
struct notify_pool;

/* ---- Work for the runner ----------------------------------------------------------------------- */
enum work_kind { WORK_ENGINE, WORK_REGION, WORK_PEER, WORK_GRANT, WORK_WINDOW, WORK_REMOTE };

struct work {
	struct work *next; /* while queued */
	_Atomic uint8_t queued;
	uint8_t kind;
};

/* ---- Devices ------------------------------------------------------------------------------------ */
struct context {
	struct escrow_engine *e;
	uint64_t owner; /* lock */
	struct native_context *native;
	struct native_context_info info; /* const */
	struct window *parked;           /* lock: windows without a grant */
	struct window *aside;            /* lock: and those whose index is held out */
	_Atomic uint8_t fatal;
	_Atomic uint8_t lost; /* it told so by an errno; the runner makes it fatal */
	uint8_t has_pd;
};

/* What is collected for one post on one connection. */
struct chain {
	struct conn *conn;
	uint32_t n;
	uint32_t posted;                /* of a post that failed */
	uint64_t bytes;                 /* of all */
	struct native_wr wr[CHAIN_WRS]; /* each with its place in sge, and linked to the next */
	struct native_sge sge[CHAIN_WRS][WR_SGES];
};

struct lane {
	struct escrow_engine *e;
	struct lock lock;
	uint64_t inline_below; /* const: a WRITE of fewer bytes takes them with it */
	uint32_t in;           /* const: index of the context */
	uint64_t bit;          /* const: of struct transfer's lanes held */
	struct context *context;
	struct ledger_lane *ledger;
	struct native_lane *native; /* lane; NULL once a destroy step was called */
	struct native_lane
		*quick; /* lane: the same; NULL too if it is deaf, or a fault plan has a word */
	uint64_t owner;
	uint32_t users; /* lock: connections charged and not gone; e->lanes_used */
	struct native_cqe cqe[CQE_BATCH];   /* lane */
	struct ledger_done done[CQE_BATCH]; /* lane */
	struct chain chain;                 /* lane */
	struct native_wr single; /* lane: of a call of one op, which is one slice; it has no next */
	struct native_sge single_sge;
	uint32_t slots; /* lane: of ops without a life, for the next on it; linked as in the pool */
	_Atomic uint8_t poisoned; /* its queue is not believed any more: nothing new comes on it */
	uint8_t deaf;             /* lane: nor asked, also because its device is lost */
	uint8_t created;          /* runner: 1 channel, 2 queue too */
	uint8_t poison_seen;      /* runner */
	int fd;
	/* lane: completions that a fault plan keeps back */
	struct native_cqe held[FAULT_HELD];
	uint32_t nheld;
	struct native_cqe stale;
	uint32_t has_stale;
};

/* ---- Connections and peers ---------------------------------------------------------------------- */
enum conn_stage {
	CONN_NONE,
	CONN_CHARGED,  /* the ledger has it, the device not yet */
	CONN_CREATED,  /* the queue pair is there */
	CONN_READY,    /* work may be posted */
	CONN_RETIRING, /* nothing new; windows go first */
	CONN_HARVEST,  /* in the error state, its completions are collected */
	CONN_RESET,    /* reset was tried */
	CONN_GONE,
	CONN_QUARANTINED,
};

/* May transfers use it? */
enum conn_ready {
	CONN_NOT_READY,
	CONN_USABLE,
	CONN_PAUSED,  /* up, but its rail is not, here or at the peer */
	CONN_RENEWING /* another will be in its place soon */
};

/* How far it is on its way to be made anew (renew.c). */
enum conn_renew {
	RENEW_NOT,
	RENEW_DRAINING, /* no transfer is posted, and what was posted ends */
	RENEW_DRAINED,  /* nor has the other end anything on it: its end costs nobody anything */
};

struct conn {
	struct peer *peer;
	struct lane *lane;
	uint64_t owner;
	struct ledger_conn *debts;  /* the ledger's of it, for the short way, or NULL */
	struct native_conn *native; /* NULL once destroy was called */
	uint32_t index; /* in the peer's set: rail * lanes + lane, the same on both sides */
	uint32_t rail;
	_Atomic uint32_t epoch; /* of its queue pair; the set's at first; under the lane's lock */
	_Atomic uint8_t ready;  /* enum conn_ready; written under the lane's lock */
	_Atomic uint8_t broken; /* an error completion or event: it can post no more */
	_Atomic uint32_t open; /* its epoch while a transfer may use it, by both of these; else 0 */
	uint8_t stage;         /* runner, lock */
	uint8_t established, err_ok; /* runner; the error state was confirmed */
	uint8_t placed; /* lock: its place in what the process may have is kept, and it is not there */
	uint64_t deadline; /* runner: when harvesting, or coming back, ends */
	/* runner: the way back of a connection whose peer stays (mend.c) */
	uint64_t up_since, retry_at;
	uint8_t tries;
	uint8_t lost_due; /* the peer is to be told that it is over */
	uint8_t say_lost; /* so is the host's log, if the peer stays */
	uint8_t renew;    /* runner, lock: enum conn_renew */
	uint32_t spent;   /* lock: indices of windows that are held out for keys on it */
	_Atomic uint64_t outstanding; /* bytes posted and not settled */
	uint32_t slices;              /* lane: of ops, posted and not settled; at most send_depth */
	uint64_t planned;             /* lane: bytes, while an op is planned */
	uint8_t open_end;             /* lane: the last slice posted asks for no completion */
	uint32_t *slots; /* where the slots of ops go that end here: its lane's, or the engine's */
};

/* lock: grants that have not ended, or are stuck, and their bytes. */
struct granted {
	uint64_t bytes;
	uint32_t grants;
};

#define OFFERS_REFUSED 1u /* what is kept with the peer: refusals, grants that have gone */
#define OFFERS_REMOTES 2u /* asks, and what is given back */
#define OFFERS_GRANTS 4u  /* answers and keys, of the grants that are named */
#define OFFERS_ALL 8u     /* or of more than can be named */

enum peer_state {
	PEER_FREE,
	PEER_CONNECTING,
	PEER_UP,
	PEER_LEAVING, /* disconnect, loss, or failure to come up: grants, then connections */
	PEER_DOWN     /* its last event is on the way */
};

/* One control message under way, in a carrier's memory. */
struct message_slot {
	struct carrier *carrier;
	uint32_t index;
	uint32_t busy; /* lane */
};

/* What carries messages on a rail: its first connection.  Under that one's lane, but for what is marked. */
struct carrier {
	struct peer *peer;
	struct conn *conn;
	uint8_t *memory; /* MESSAGE_SLOTS sends, then recv_depth receives, of MESSAGE_BYTES each */
	uint64_t bytes;
	uint64_t owner; /* ledger: control buffer */
	struct native_region *native;
	struct message_slot slots[MESSAGE_SLOTS];
	_Atomic uint32_t waits; /* a message waits for a free slot */
	uint32_t *received;     /* that the runner has not read: index, and bytes << 16 */
	uint64_t owed[16];      /* of the receives that are posted one bit each: at most 1024 */
	uint32_t rx_head, rx_tail;
	/* lock */
	uint32_t credits; /* sends that the peer has room for */
	uint32_t depth;   /* and how many it can have */
	/* Receives posted again since the connection began, modulo 2^32: the peer's that we know of; ours, and
	 * what the peer was told of them. */
	uint32_t heard, reposted, told;
};

/*
 * The messages of a peer, numbered, in order and each once, whichever carrier they take.  lock
 * What is not acknowledged is kept: when a carrier breaks it is sent again on another.
 */
struct channel {
	uint8_t *kept;     /* places of MESSAGE_BYTES: a struct wire_message, then the payload */
	uint32_t rail;     /* the carrier that we send on */
	uint32_t tx_next;  /* number of the next message of ours */
	uint32_t tx_post;  /* of the next that is to be posted */
	uint32_t tx_acked; /* all before it have been dealt with by the peer */
	uint32_t rx_next;  /* number that the peer's next one has */
	uint32_t hello_sent, hello_got;
	uint32_t up_sent, up_got; /* each end comes up by itself, and says so */
	/* messages: to be sent, sent and not taken, coming in; entries kept for the peer */
	struct notify *out_head, *out_tail;
	struct notify *wait_head, *wait_tail;
	struct notify *in;
	struct notify *reserved;
	uint32_t nreserved;
	uint32_t window;     /* messages that we may start */
	uint32_t window_due; /* and that the peer may, which it has not been told */
	uint32_t taken_due;
};

/* Which of a peer's connections is to be made anew: its index + 1, or 0.  lock (renew.c) */
struct renewal {
	uint32_t wish;  /* ours */
	uint32_t asked; /* the other end's: what we may do, or (passive) are to do */
	uint32_t at;    /* under way */
	uint32_t no;    /* the other end is to be told that it is not made anew */
	uint64_t asked_as,
		as;      /* of the one asked for, and of that under way: epoch | number << 32 */
	uint64_t no_as;  /* and of what it is told */
	uint32_t number; /* of the last one that we began */
	uint32_t slices; /* of ops, when last looked at */
	uint8_t wish_due, at_due; /* enum wire_message_type that it is to be told, or 0 */
	uint8_t said, heard;      /* that this end, or the other, has nothing on it any more */
	uint8_t leaving;       /* the windows there are being invalidated: there is no way back */
	uint8_t room_kept;     /* for a moment: its place in the quotas is taken for it */
	uint8_t failed, rests; /* how often in a row nothing came of it; not yet again */
	uint64_t wish_until, until, end_by, rests_until;
};

struct peer {
	struct work work;
	struct escrow_engine *e;
	_Atomic uint64_t handle; /* the ledger's account; 0 = free */
	uint64_t user;
	uint64_t epoch;
	uint64_t deadline; /* lock: to come up, then for the teardown */
	uint8_t incarnation[16];
	char name[64];
	uint32_t flags;               /* ESCROW_PEER_* */
	uint32_t any;                 /* it came by an open invitation */
	_Atomic uint32_t state;       /* enum peer_state; written with the lock held */
	_Atomic escrow_status reason; /* of PEER_DOWN; written with the lock held */
	uint32_t nconns;
	struct conn *conns;
	uint32_t nrails, nlanes;
	uint32_t created;    /* runner: connections made so far */
	uint32_t peer_depth; /* receives the other side posts */
	uint32_t loop;       /* index + 1 of the other end of a loopback */
	uint32_t grants;     /* lock: not ended */
	struct granted granted;
	uint32_t stuck, up_told;
	_Atomic uint32_t polled; /* its last event was given out */
	uint8_t secret[16];      /* of the ticket by which a passive end came */
	uint8_t session[16];     /* of the set: what a connection that comes back must prove */
	uint64_t ticket;
	uint32_t mark; /* of a passive end: what its requests carry, 0 of an active one */
	uint8_t rail_told[NATIVE_MAX_RAILS];  /* lock: what the peer knows of our rails */
	uint8_t rail_there[NATIVE_MAX_RAILS]; /* lock: what it said of its own */
	_Atomic uint32_t ops;                 /* outstanding */
	_Atomic uint32_t wants;               /* PEER_*, see lane.h */
	_Atomic uint8_t shown_out; /* it broke the protocol: none of its connections comes back */
	struct renewal renewal;
	struct wire_invitation *invitation; /* lock: of an active end */
	struct channel channel;
	struct carrier *carriers;        /* one a rail */
	_Atomic(struct notify *) riders; /* messages whose op has ended */
	_Atomic uint32_t notes;          /* places for its messages, also of a life before */
	uint32_t offers_due;             /* lock: OFFERS_*, what of offer.c waits to be sent */
	uint64_t join_at;   /* runner: a grant got no window on a connection: when to try again */
	uint64_t keys_at;   /* lock: what was imported may lack a key: when to ask for it again */
	uint32_t keys_from; /* runner: at which of the remotes that goes on */
	uint32_t asked;     /* lock: offers that it has not answered yet */
	uint32_t nrefusals;
	struct {
		uint64_t request;
		escrow_status status;
	} refusals[WIRE_ASKS];
	uint32_t ngone;
	uint64_t gone
		[WIRE_ASKS]; /* lock: grants of which it asked for keys, and that have gone: it is to be told */
	uint32_t ntell;
	uint64_t tell[WIRE_ASKS]; /* lock: grants of ours of which it is to be told something */
	uint32_t draining;        /* lock */
	_Atomic uint32_t drained_queued;
	uint64_t drain_deadline;
	struct event_node up, lost, down, drained;
};

/* ---- Memory -------------------------------------------------------------------------------------- */
struct region_part { /* in one context */
	uint64_t owner;
	struct native_region *native;
	uint32_t key;              /* of it */
	uint16_t done;             /* runner: deregistration tried */
	_Atomic uint16_t distance; /* of a region, to the device: 10 = near, or not known */
};

enum region_state { REGION_FREE, REGION_LIVE, REGION_LEAVING, REGION_ENDED };

struct region {
	struct work work;
	struct escrow_engine *e;
	_Atomic uint64_t handle; /* the first part's owner; 0 = free */
	uint64_t user;
	uint64_t addr;
	_Atomic uint64_t length; /* without a lane it says nothing for certain */
	uint32_t kind;           /* ESCROW_MEMORY_* */
	uint32_t state;          /* lock */
	uint32_t grants;         /* lock: grants and offers on it, also stuck ones */
	uint32_t stuck;
	uint32_t silent;           /* the register call failed: no event */
	_Atomic uint32_t polled;   /* the event of its end was given out */
	struct region_part *parts; /* one a context */
	struct event_node ended;
};

/* ---- Grants -------------------------------------------------------------------------------------- */
enum window_use {
	WINDOW_FREE,
	WINDOW_PARKED,
	WINDOW_RESERVED,
	WINDOW_BINDING,
	WINDOW_BOUND,
	WINDOW_INVALIDATING,
	WINDOW_ORPHAN,
	WINDOW_ENDED,
	WINDOW_ASIDE
};

/* What is to be posted for it (bind.c). */
enum window_due { DUE_NONE, DUE_BIND, DUE_INVALIDATE };

struct window {
	struct work work;
	struct window *next; /* lock: parked, aside or free list */
	uint64_t owner;
	struct native_window *native;
	struct context *context;
	struct grant *grant;
	struct conn *conn;
	uint64_t account; /* the peer that may know keys of it */
	uint64_t keys_on; /* and the connection of the last */
	uint32_t rkey;    /* of the current bind */
	uint8_t use;      /* lock */
	uint8_t due;      /* lock: enum window_due */
	uint8_t key_due;  /* lock: bound after the grant was exported, the peer is to be told */
	uint8_t in_use;   /* lock: counted as such */
	uint8_t chained;  /* runner: while a chain is collected */
	/* lane writes them, then settled: what the ledger gave out for what was asked */
	uint8_t what, outcome, releases;
	_Atomic uint8_t settled;
	_Atomic uint64_t asked; /* lane: the owner for which work was posted; 0 = it is gone */
};

enum grant_state {
	GRANT_FREE,
	GRANT_OFFER,
	GRANT_BINDING,
	GRANT_READY,
	GRANT_REVOKING,
	GRANT_ENDED
};

struct grant {
	struct work work;
	_Atomic uint64_t handle; /* parts[main]; 0 = free, or its last event was given out */
	union {
		uint64_t user;
		uint64_t
			request; /* hidden: the number of the importer that waits for an answer, or 0 */
	};
	struct peer *peer; /* NULL: an offer */
	struct region *region;
	uint64_t addr, length;
	uint32_t offer;       /* index + 1 of the offer it came from */
	uint32_t offspring;   /* of an offer: grants that came from it and are not free */
	escrow_status failed; /* of the bind; then it ends by READY */
	uint16_t nwindows;    /* at most WIRE_MAX_KEYS */
	uint16_t end;         /* kind of its last event, once that is told */
	uint8_t main;         /* the first of its parts, when it was made */
	uint8_t rights;
	uint8_t state;  /* lock */
	uint8_t hidden; /* made for an importer of an offer: no events */
	uint8_t answer_due;
	uint8_t stuck;
	uint8_t ready_told : 1, revoked : 1; /* lock; revoked: ledger_grant_revoke was called */
	_Atomic uint8_t polled;              /* the event of its end was given out */
	/* Of a grant that has ended all of both are empty. */
	struct window **windows;   /* one a connection of the peer, by its index */
	struct region_part *exact; /* nexact of them: see exact.c */
	uint64_t *parts;           /* ledger grants, one a context; 0 = none or gone */
	struct event_link ready, ended;
};

/* REFUSED: its owner, who is still there, has refused it or taken it back; DEAD: the owner is gone. */
enum remote_state {
	REMOTE_FREE,
	REMOTE_ASKING,
	REMOTE_LIVE,
	REMOTE_REFUSED,
	REMOTE_DEAD,
	REMOTE_FORGOTTEN
};

struct remote {
	struct work work;
	struct escrow_engine *e;
	_Atomic uint64_t handle;
	uint32_t generation;
	_Atomic uint32_t state; /* written with the lock held */
	_Atomic uint64_t gate;  /* ops on it; REMOTE_CLOSED: forgotten */
	uint64_t user;
	struct peer *peer;
	uint64_t addr, length;
	uint32_t rights;
	uint32_t nkeys;
	/* By connection index, under the lane's lock: a key is good in its epoch only. */
	uint32_t *keys;
	_Atomic uint32_t *epochs;
	uint64_t offer; /* the owner's number of the offer; 0 = a grant of our own */
	uint64_t grant; /* and of the grant */
	uint32_t sent, ready_queued, give_back;
	uint32_t unanswered; /* forgotten after it was asked for */
	uint32_t keys_due;   /* what was imported lacks keys of now: the owner is to be asked */
	_Atomic uint32_t ready_polled;
	uint32_t next_free; /* lock: index + 1 */
	uint32_t next_same; /* lock: index + 1 of the next whose grant may be the same */
	struct event_node ready;
};
#define REMOTE_CLOSED (UINT64_C(1) << 63)

/* ---- Ops ------------------------------------------------------------------------------------------ */
enum op_state { OP_FREE, OP_ACTIVE, OP_DONE, OP_HELD };

/* Of one that is held: its OP_DONE was told; it came back.  On two lanes: the second of both tells OP_RETURNED. */
#define OP_TOLD 1u
#define OP_BACK 2u

struct op {
	_Atomic uint64_t handle; /* of this life; of one that is free, of the next */
	_Atomic uint32_t state;
	uint8_t odd;          /* it has a deadline or a rider: of one that is free, neither */
	_Atomic uint8_t held; /* OP_TOLD, OP_BACK */
	uint64_t user;
	struct remote *remote;
	_Atomic uint64_t canceled; /* the handle of the life that was */
	uint64_t ledger;           /* its handle there, if it was cut */
	uint64_t deadline;
	struct notify *rider; /* a message that rides on it */
	struct escrow_engine *e;
	uint32_t heap_at; /* poll: place in the heap + 1 */
	struct op *fresh; /* list of ops whose deadline poll has not seen */
	struct event_node done, returned;
} __attribute__((aligned(64)));

/* The highest epoch there was with engines of one incarnation; mark 0: that we asked ourselves (epoch.c). */
struct epoch {
	uint8_t incarnation[16];
	uint32_t mark;
	uint64_t epoch; /* the highest that was tried, by either side */
	uint64_t
		taken; /* the highest that was accepted or came up: none at or below it comes again */
	uint64_t used; /* by epoch_clock: the oldest entry is replaced */
};

/* ---- Invitations ------------------------------------------------------------------------------------ */
struct ticket {
	uint64_t id; /* 0 = free */
	uint8_t secret[16];
	uint64_t user;
	uint64_t expires_ns;
	char name[64];
	uint32_t any;
	uint32_t reserved0;
};

#endif
