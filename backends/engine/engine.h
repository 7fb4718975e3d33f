/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine.h - the objects of an engine, who may touch which field, and the order of locks.
 *
 * Who runs.  [ctl], [data], [poll] and [any] slots on threads of the host; and the *control runner*,
 * which makes the native [ctrl] steps: one thread of our own, or the caller of poll where the native
 * side needs none.  Slots never make a [ctrl] step: they note what is wanted and push the object on
 * the work list (work_push), and the runner's *_advance function of that object takes the next step.
 *
 * Help: a slot that asks for something, or a poll that settled a bind or an invalidation, may be the runner
 * itself for a moment (control.c), for work on grants and windows that takes no such step.  Whoever is
 * the runner has control_busy; nobody waits for that, and who helps waits for no lane.  A poll only tries
 * the lock, too; where it helps it may take the ledger's mutex, as a slot that grants does.  What is to be
 * posted for a grant a slot puts where it is posted from without being the runner, if that can have nothing
 * to do with it (en_grant_due).
 *
 * Locks, in the order in which they may be taken:
 *   lock         "e->lock": tables and states of regions, peers, grants, remotes, invitations.  Held
 *                for a short bounded time; never over a native [ctrl] step or a service of the host.
 *   lane->lock   a lane: its connections' send queues, its completion queue, its chain.  The data
 *                path only tries it; control and [ctl] slots may wait for it.
 *   the ledger's own mutex, inside its [ctl] functions.
 * The data path takes no other lock: ops, events and the work list are lock-free.
 *
 * Fields are marked: const (after open), lock, lane, runner, poll, atomic.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "backends/engine/objects.h"

#define WAITING_REQUESTS 16u
#define ENGINE_MAGIC UINT64_C(0x31776f7263736521)
/* ---- The engine --------------------------------------------------------------------------------------- */
struct counters {
	_Atomic uint64_t ops_accepted, ops_done, bytes_read, bytes_written, posts, completions;
	_Atomic uint64_t anomalies, again, receives, native_errors, refused_connects;
	/* Of each rail: bytes of slices posted; connections that were lost, that came back, that were renewed. */
	_Atomic uint64_t rail_bytes[NATIVE_MAX_RAILS], rail_lost[NATIVE_MAX_RAILS],
		rail_back[NATIVE_MAX_RAILS], rail_renewed[NATIVE_MAX_RAILS];
};

/* What is wanted of whoever gives a lane back. */
#define WANT_LANE 1u  /* a transfer found all lanes busy */
#define WANT_OP 2u    /* or no op free */
#define WANT_EMPTY 4u /* someone waits for all ops to end: drain, close */

#define DUE_HELP 1u      /* it settled something that it may go on with */
#define DUE_DEADLINES 2u /* there are some, or were at the last poll */
#define DUE_CONTROL 4u   /* no thread is the runner */

struct escrow_engine {
	uint64_t magic;
	/* const */
	const struct native_ops *ops;
	struct escrow_host host;
	const struct escrow_host *host_table;
	struct native *native;
	struct config config;
	struct native_rail_info rails[NATIVE_MAX_RAILS];
	char name[64];
	uint8_t incarnation[16];
	uint8_t secret[16]; /* makes the marks of our requests */
	uint32_t ncontexts, nrails, nlanes, nowners;
	uint32_t
		nexact; /* registrations of its own that a grant may need: one a context, or none */
	uint32_t conns_per_peer;
	uint32_t peer_lanes; /* of num_lanes, what the quota of connections lets one peer use */
	uint32_t max_slices; /* of one op */
	uint64_t max_slice_bytes;
	uint64_t caps;
	volatile uint32_t *here; /* a page that a child of fork sees as zero */
	struct ledger *ledger;
	struct escrow_limits limits;
	_Atomic(void *)
		*by_slot; /* ledger slot -> our object: region, peer, grant, window, connection */
	_Atomic uint32_t threaded; /* until its last event is polled, beside calls that come late */
	uint32_t ops_limited;      /* a quota of ops is set */
	uint32_t sq_depth;         /* of a connection: slices, grants, messages, sentinel */
	/* What one slice takes of an op; what an op takes that is one; what is cut into slices of that size. */
	uint64_t slice_bytes, whole_bytes, plain_bytes;

	_Atomic uint32_t state; /* ESCROW_STATE_*; written with the lock held */
	struct lock lock;
	struct context contexts[NATIVE_MAX_CONTEXTS];
	_Atomic uint8_t rail_up[NATIVE_MAX_RAILS];
	struct lane *lanes;
	_Atomic uint64_t lanes_used; /* bits: those that are polled; written with the lock held */
	struct region *regions;
	struct peer *peers;
	struct grant *grants;
	struct window *windows;
	uint32_t nwindows;
	uint32_t ntickets;
	struct window *window_free;   /* lock */
	uint32_t in_use, most_in_use; /* lock: windows that a grant has, now and ever */
	uint32_t spent;               /* lock: indices held out, but for what is to be renewed */
	/* lock: to be posted at the end of the runner's round (bind.c) */
	struct window *due[WINDOWS_DUE];
	_Atomic uint32_t ndue;  /* written with the lock held */
	uint32_t news_read;     /* runner: of a device, in the middle of a pass, and not told yet */
	uint32_t deferred;      /* lock: what slots left for later, since the last help */
	struct pool grant_pool; /* those whose end was polled come back there without the lock */
	struct remote *remotes;
	uint32_t remote_free; /* lock: index + 1, the last freed first */
	uint32_t *remote_of;  /* lock: by a hash of peer and grant, index + 1 */
	uint32_t remote_mask; /* const: of that hash */
	struct ticket *tickets;
	struct epoch *epochs; /* lock */
	uint32_t nepochs;
	uint32_t wr_sges; /* ranges of one work request */
	uint64_t epoch_clock;
	struct op *op_table;
	struct pool op_pool;
	uint32_t ended; /* poll: ops that go back to the pool together */
	struct notify_pool *notify;

	struct event_queue events;
	_Atomic uint32_t armed;
	_Atomic uint64_t armed_until; /* the timer wakes it then, without any news */
	int wake_fd, epoll_fd, timer_fd, control_fd;
	uint32_t timer_set; /* poll */

	_Atomic(struct op *) fresh; /* ops with deadlines that poll has not seen */
	struct op **heap;           /* poll */
	uint32_t heap_n;

	_Atomic uint32_t wants; /* WANT_* */
	_Atomic uint32_t room_queued;
	_Atomic uint64_t active; /* ops outstanding */

	struct work work; /* WORK_ENGINE */
	_Atomic(struct work *) inbox;
	_Atomic uint64_t control_next; /* when the runner must look again; UINT64_MAX = never */
	_Atomic uint32_t
		control_busy; /* somebody is the runner: the thread, a poll, or who helps */
	_Atomic uint32_t control_asleep; /* the thread is, or is about to be */
	_Atomic uint32_t poll_due;       /* DUE_*: what a poll has to do but for completions */
	uint64_t
		now; /* runner: of this pass; services of the host are not called with the lock held */
	pthread_t thread;
	uint32_t thread_made; /* ctl, poll */
	_Atomic uint32_t thread_stop;
	uint64_t
		look_at; /* the thread: for completions that woke nobody; how many there were at the last look */
	uint64_t look_taken;

	/* lock: requests that wait for an attempt of our own to go */
	struct native_event waiting[WAITING_REQUESTS];
	_Atomic uint32_t nwaiting;

	/* lock */
	uint64_t close_deadline;
	uint32_t close_mode;
	uint32_t close_stage;
	uint32_t open_failed;
	_Atomic uint32_t end_queued; /* that event waits to be polled */
	uint32_t fenced;   /* a receipt from outside: native objects stay, and nobody cares */
	uint32_t told_end; /* the CLOSED or QUARANTINED event was sent */
	_Atomic uint32_t repeat_queued;
	uint64_t drain_deadline;
	_Atomic uint32_t drained_queued;
	uint64_t withheld;
	uint32_t closing_hard; /* what is still busy is never going to end */
	_Atomic uint32_t fatal_told;
	uint32_t any_grants;
	uint32_t regions_wait; /* some are LEAVING, and were still lent from */
	struct granted granted;
	bool lock_limited; /* memlock.c: by this, of which so much is kept for control memory */
	uint64_t lock_limit, lock_room;
	_Atomic uint64_t lock_control; /* locked by registrations of the engine's own */

	struct event_node room, device, drained, end, repeat;
	struct wire_grant runner_grant;     /* runner */
	uint8_t runner_copy[MESSAGE_BYTES]; /* runner: a message as it was when it was checked */
	struct counters counters;
	struct fault fault;
	void *blocks[32]; /* what open allocated, for release */
	uint32_t nblocks;
	const void *extensions[8];
};

/* ---- Small things -------------------------------------------------------------------------------------- */
/* Is this an engine of this process?  In a child of fork the page is zero (madvise(2), WIPEONFORK). */
static inline bool engine_here(const struct escrow_engine *e)
{
	return e && e->magic == ENGINE_MAGIC && *e->here != 0;
}
static inline uint32_t engine_state(const struct escrow_engine *e)
{
	return atomic_load(&e->state);
}
static inline uint64_t engine_now(struct escrow_engine *e)
{
	return e->host.now_ns(e->host.ctx);
}
static inline void engine_lock(struct escrow_engine *e)
{
	lock_take(&e->lock);
}
static inline void engine_unlock(struct escrow_engine *e)
{
	lock_give(&e->lock);
}
static inline void engine_count(_Atomic uint64_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}
/* The last 24 bits of a ledger handle (ledger.h) number all its owners. */
#define LEDGER_SLOT(handle) ((uint32_t)((handle)&0xffffffu))
/*
 * Each region, grant and peer has its own place in the ledger, a part in each device.  It is the object's until that is
 * free, which may be long after the ledger's owner has gone: so a handle leads here, and nobody else's does, until its last
 * event was polled.
 */
#define ENGINE_PLACED                                                                              \
	(1u << ESCROW_OWNER_REGION | 1u << ESCROW_OWNER_PEER | 1u << ESCROW_OWNER_GRANT)
/* Of the i-th of n. */
static inline uint32_t engine_place(int64_t i, uint32_t ctx, uint64_t n)
{
	return (uint32_t)(ctx * n + (uint64_t)i);
}
static inline void *engine_by_slot(struct escrow_engine *e, uint64_t handle)
{
	uint32_t slot = LEDGER_SLOT(handle);

	return slot < e->nowners ? atomic_load_explicit(&e->by_slot[slot], memory_order_acquire)
				 : NULL;
}
static inline void engine_set_slot(struct escrow_engine *e, uint64_t handle, void *object)
{
	atomic_store_explicit(&e->by_slot[LEDGER_SLOT(handle)], object, memory_order_release);
}
static inline uint32_t engine_kind(uint64_t handle)
{
	return (uint32_t)(handle >> 56);
}

struct notify_pool;
struct notify;

/* Bytes of one: a place in a send queue, a grant, a connection beside its rings, a peer's messages. */
struct footprint {
	uint64_t slice_slot, grant, connection, messages;
};

#include "backends/engine/parts.h"
#include "backends/engine/close.h"
#include "backends/engine/lane.h"
#include "backends/engine/quota.h"
#include "backends/engine/renew.h"
#include "backends/engine/keys.h"

#endif
