/* SPDX-License-Identifier: BSD-2-Clause */
/* transfer.h - what the ways of an op share: transfer.c (the short one), long.c, slice.c (slices that are planned). */
#ifndef ENGINE_TRANSFER_H
#define ENGINE_TRANSFER_H

#include "backends/engine/engine.h"
#include "backends/ledger/hot.h"

#define MAX_SLICES 1024u /* of one op */
#define OP_KIND                                                                                    \
	UINT64_C(0x7f) /* no kind of the ledger's handles; and a life too many shows in the sign */

enum full { FULL_NOT, FULL_POOL, FULL_BUSY, FULL_SLOTS };

/* One call of transfer, and the op it is at. */
struct transfer {
	uint64_t held; /* bit n: lane n is ours until the end of the call */
	const struct escrow_op *op;
	struct remote *remote;
	struct peer *peer;
	struct notify *rider;
	const struct region *region; /* of the first range, as a guess: for its distance */
	uint64_t total;
	uint64_t id;
	/* Of the whole call: ops still to come, slots taken for them, bytes READ and written. */
	uint32_t left;
	uint32_t spare;
	/* Ops of a call mostly name one remote: it is looked at once. */
	uint64_t handle;  /* of it; 0: none yet */
	uint32_t counted; /* ops to come that its gate, its peer and the engine count already */
	uint32_t asked;   /* bits of enum full: ROOM was asked for */
	uint64_t bytes[2];
	enum full full;    /* of E_AGAIN */
	struct conn *only; /* its peer's, seen usable under its lane */
};

/* The i-th of a call's. */
static inline const struct escrow_op *op_at(const struct escrow_op *op, uint32_t i, uint32_t stride)
{
	return (const struct escrow_op *)(const void *)((const char *)op + (uint64_t)i * stride);
}

/* long.c. t->op, by any way there is: E_AGAIN: t->full; other errors are the op's. */
escrow_status en_long(struct escrow_engine *e, struct transfer *t);
/* It will be told as ROOM; false: that was asked already. */
bool en_ask_for_room(struct escrow_engine *e, struct transfer *t);

/* A connection for an op of one slice, and its lane.  E_AGAIN: t->full; E_PEER_LOST. */
escrow_status en_choose(struct escrow_engine *e, struct transfer *t, struct conn **out);
/* The long way of an op: its slices are planned, charged, lent and chained one by one.  E_INVALID: it never was. */
escrow_status en_cut_op(struct escrow_engine *e, struct transfer *t, struct op *op);
/* lane. flush(), for whoever seldom has to. */
void en_flush(struct escrow_engine *e, struct lane *lane);
/* lane. What the device did not take of the n that were posted ends at once; what it did was chained. */
void en_refused(struct escrow_engine *e, struct conn *c, uint32_t posted, uint32_t n);

/* op.c, [poll]. The host has the last event of any. */
void en_op_over(struct escrow_engine *e, struct op *op);
/* The pool is empty: what lanes keep goes back to it.  False: that is nothing, t->full. */
bool en_slots_back(struct escrow_engine *e, struct transfer *t);
/* One that was never lent: the call keeps its slot for the next; at the end it gives them back. */
void en_op_unused(struct escrow_engine *e, struct transfer *t, struct op *op);
void en_give_spare(struct escrow_engine *e, struct transfer *t);

#define OP_LIFE (UINT64_C(1) << 24) /* from one handle of a slot to its next */
#define OP_KIND_ONE (UINT64_C(1) << 56)

static inline uint64_t op_first(uint32_t i)
{
	return OP_KIND * OP_KIND_ONE | OP_LIFE | i;
}

/* The life of one that is not odd ends.  After 2^32 lives their numbers begin anew. */
static inline void op_end(struct op *op, uint64_t handle)
{
	uint64_t next = handle + OP_LIFE;

	if (UNLIKELY((int64_t)next < 0))
		next = (next & (OP_KIND_ONE - 1)) | OP_KIND * OP_KIND_ONE;
	atomic_store_explicit(&op->handle, next, memory_order_relaxed);
	atomic_store_explicit(&op->state, OP_FREE, memory_order_release);
}

/* A slot without a life goes to the others of a list. */
static inline void slot_back(struct escrow_engine *e, uint32_t *list, uint32_t i)
{
	pool_link(&e->op_pool, i, *list);
	*list = i;
}

/* ---- The slots of a lane ------------------------------------------------------------------------ */
/* lane. The first of those that it keeps, or POOL_NONE; `n`: how many it is to get if it has none. */
static inline uint32_t lane_slot(struct escrow_engine *e, struct lane *lane, uint32_t n)
{
	if (UNLIKELY(lane->slots == POOL_NONE))
		lane->slots = pool_take_some(&e->op_pool, n);
	return lane->slots;
}

/* lane. It is a life's now. */
static inline void lane_slot_taken(struct escrow_engine *e, struct lane *lane, uint32_t i)
{
	lane->slots = pool_next(&e->op_pool, i);
}
/* The life of a slot begins; its handle is the op's. */
static inline struct op *op_begin(struct escrow_engine *e, uint32_t i, uint64_t user,
				  struct remote *remote)
{
	struct op *op = &e->op_table[i];

	op->user = user;
	op->remote = remote;
	atomic_store_explicit(&op->state, OP_ACTIVE, memory_order_release);
	return op;
}

/* An op of this life, or NULL: t->full. */
static inline struct op *op_take(struct escrow_engine *e, struct transfer *t)
{
	uint32_t i;
	struct op *op;

	do {
		if (t->spare == POOL_NONE)
			t->spare = pool_take_some(&e->op_pool, t->left);
		i = t->spare;
	} while (i == POOL_NONE && en_slots_back(e, t));
	if (i == POOL_NONE)
		return NULL;
	t->spare = pool_next(&e->op_pool, i);
	op = op_begin(e, i, t->op->user, t->remote);
	op->deadline = t->op->deadline_ns;
	op->rider = t->rider;
	op->odd = op->deadline || op->rider;
	t->id = atomic_load_explicit(&op->handle, memory_order_relaxed);
	return op;
}

/* ---- The remote of an op ----------------------------------------------------------------------- */
/* `n` ops that were counted for it are no more. */
static inline void uncount(struct escrow_engine *e, struct remote *r, uint32_t n)
{
	struct peer *p = r->peer;

	atomic_fetch_sub(&e->active, n);
	atomic_fetch_sub(&p->ops, n);
	if ((atomic_load(&p->wants) & PEER_EMPTY) && !atomic_load(&p->ops))
		en_work(e, &p->work);
	/* The last look at the peer: it is the remote's as long as something is behind its gate. */
	atomic_fetch_sub(&r->gate, n);
	if ((atomic_load(&e->wants) & WANT_EMPTY) && !atomic_load(&e->active))
		en_work(e, &e->work);
}

/* The call is done with the last one. */
static inline void leave_remote(struct escrow_engine *e, struct transfer *t)
{
	if (t->counted)
		uncount(e, t->remote, t->counted);
	t->counted = 0;
	t->handle = 0;
	t->only = NULL;
}

/* By its gate, for the n ops that are to come: from here on it is not forgotten under one.  NULL: no such remote. */
static inline struct remote *hold_remote(struct escrow_engine *e, uint64_t handle, uint32_t n)
{
	struct remote *r = en_remote_find(e, handle);

	if (UNLIKELY(!r))
		return NULL;
	if (UNLIKELY((atomic_fetch_add(&r->gate, n) & REMOTE_CLOSED) ||
		     atomic_load(&r->handle) != handle)) {
		atomic_fetch_sub(&r->gate, n);
		return NULL;
	}
	return r;
}

static inline bool remote_usable(const struct escrow_engine *e, const struct remote *r)
{
	return state_transfers(engine_state(e)) && atomic_load(&r->state) == REMOTE_LIVE &&
	       atomic_load(&r->peer->state) == PEER_UP;
}

/* The ops of the call that are to come go to it: it is held for so many. */
static inline void set_remote(struct transfer *t, struct remote *r, uint32_t counted)
{
	t->remote = r;
	t->peer = r->peer;
	t->counted = counted;
}

static inline bool have_lane(struct transfer *t, struct lane *lane)
{
	if (t->held & lane->bit)
		return true;
	if (!en_lane_trylock(lane))
		return false;
	t->held |= lane->bit;
	return true;
}

/* A key is good for the queue pair that its window is bound on, and for no later one. */
static inline bool usable_as(const struct remote *r, const struct conn *c, uint32_t index)
{
	uint32_t open = atomic_load(&c->open);

	return open && atomic_load(&r->epochs[index]) == open;
}
static inline bool usable(const struct remote *r, const struct conn *c)
{
	return usable_as(r, c, c->index);
}

/* If not now: when its rail is up, its key comes, or another is in its place. */
static inline bool may_be_used(const struct conn *c)
{
	uint8_t ready = atomic_load(&c->ready);

	return ready == CONN_RENEWING || (ready && !atomic_load(&c->broken));
}

/* lane. How many more slices its send queue takes of ours when n are chained; the ledger has a word in it too. */
static inline uint32_t depth_beyond(const struct escrow_engine *e, const struct conn *c, uint32_t n)
{
	uint32_t taken = c->slices + n;

	return taken < e->config.send_depth ? (uint32_t)e->config.send_depth - taken : 0;
}
static inline uint32_t depth_left(const struct escrow_engine *e, const struct conn *c)
{
	const struct chain *ch = &c->lane->chain;

	return depth_beyond(e, c, ch->conn == c ? ch->n : 0);
}

/*
 * lane. The region, if the range may be lent from it, or NULL.  That and what it is stays so until the lane is let go.
 * Found before, it says nothing: its handle may have ended since, and its place be another region's.
 */
static inline const struct region *region_held(struct escrow_engine *e, const struct escrow_sge *s)
{
	const struct region *r = en_region_find(e, s->region);

	return r && ledger_row_region(e->ledger, s->region, s->offset, s->length) != NONE ? r
											  : NULL;
}

/* lane. The first n of the chain are with the device; open: the last of them asks for no completion. */
static inline void posted_of(struct escrow_engine *e, struct conn *c, uint32_t n, uint64_t bytes,
			     bool open)
{
	c->slices += n;
	c->open_end = open;
	/* Read by others to choose a connection; written by the holder of the lane alone. */
	atomic_store_explicit(&c->outstanding,
			      atomic_load_explicit(&c->outstanding, memory_order_relaxed) + bytes,
			      memory_order_relaxed);
	engine_count(&e->counters.rail_bytes[c->rail], bytes);
}

static inline bool asks(const struct native_wr *wr)
{
	return wr->flags & NATIVE_SIGNALED;
}

/* lane. One doorbell for n of ours, the last of which has no next. */
static inline void post_wrs(struct escrow_engine *e, struct conn *c, struct native_wr *wr,
			    uint32_t n, uint64_t bytes, bool open)
{
	uint32_t *posted = &c->lane->chain.posted;

	if (LIKELY(!en_post(e, c, ESCROW_STEP_POST, wr, n, posted)) || *posted == n)
		posted_of(e, c, n, bytes, open);
	else
		en_refused(e, c, *posted, n);
}

/* lane. The n that were collected for this connection, the chain's. */
static inline void post_chain(struct escrow_engine *e, struct conn *c, uint32_t n, uint64_t bytes,
			      bool open)
{
	struct native_wr *wr = c->lane->chain.wr, *last = &wr[n - 1];

	last->next = NULL;
	post_wrs(e, c, wr, n, bytes, open);
	last->next = last + 1;
}

static inline void flush(struct escrow_engine *e, struct lane *lane)
{
	struct chain *ch = &lane->chain;
	uint32_t n = ch->n;
	uint64_t bytes = ch->bytes;

	if (!n)
		return;
	ch->n = 0;
	ch->bytes = 0;
	post_chain(e, ch->conn, n, bytes, !asks(&ch->wr[n - 1]));
}

/*
 * lane. The next n places in the chain, for this connection.  Taken before their slices are lent: what is
 * chained may be posted here, and if that is refused it is the youngest that were lent.
 */
static inline struct native_wr *place_in_chain(struct escrow_engine *e, struct conn *c, uint32_t n)
{
	struct chain *ch = &c->lane->chain;

	if (ch->conn != c || ch->n + n > CHAIN_WRS) {
		en_flush(e, c->lane);
		ch->conn = c;
	}
	return &ch->wr[ch->n];
}

/* A request of fewer bytes takes them with it. */
static inline uint64_t inline_below(const struct conn *c, uint32_t opcode)
{
	return opcode == ESCROW_WRITE ? c->lane->inline_below : 0;
}

/* Big ops get bigger slices, so that any op within the limits fits into one send queue. */
static inline uint64_t slice_size(const struct escrow_engine *e, uint64_t total)
{
	uint64_t size;

	if (LIKELY(total <= e->plain_bytes))
		return e->slice_bytes;
	size = ((total + e->max_slices - 1) / e->max_slices + 4095) & ~UINT64_C(4095);
	return size < e->max_slice_bytes ? size : e->max_slice_bytes;
}

_Static_assert(ESCROW_MAY_READ == ESCROW_READ && ESCROW_MAY_WRITE == ESCROW_WRITE,
	       "an opcode is the right that it needs");

_Static_assert(NATIVE_READ == (ESCROW_WRITE - ESCROW_READ) * NATIVE_READ && NATIVE_WRITE == 0,
	       "native_of() needs no branch");
static inline enum native_opcode native_of(uint32_t opcode)
{
	return (enum native_opcode)((ESCROW_WRITE - opcode) * NATIVE_READ);
}

/* ---- Chaining ---------------------------------------------------------------------------------------- */
/* What the work requests of one range on one connection have in common. */
struct span {
	uint64_t addr, remote_addr;
	uint64_t inline_below;
	enum native_opcode opcode;
	uint32_t key, rkey;
};

static inline struct span span_of(const struct transfer *t, const struct region *r,
				  const struct conn *c)
{
	const struct escrow_op *op = t->op;

	return (struct span){.addr = r->addr + op->sge->offset,
			     .remote_addr = t->remote->addr + op->remote_offset,
			     .inline_below = inline_below(c, op->opcode),
			     .opcode = native_of(op->opcode),
			     .key = r->parts[c->lane->in].key,
			     .rkey = t->remote->keys[c->index]};
}

/* lane. `length` bytes of it from `at` on. */
static inline void chain_up(struct chain *ch, const struct span *s, uint64_t id, uint64_t at,
			    uint64_t length, uint32_t flags)
{
	struct native_wr *wr = &ch->wr[ch->n++];

	wr->id = id;
	wr->opcode = s->opcode;
	wr->flags = flags | (length < s->inline_below ? NATIVE_INLINE : 0);
	wr->nsge = 1;
	wr->rkey = s->rkey;
	wr->remote_addr = s->remote_addr + at;
	wr->sge->addr = s->addr + at;
	wr->sge->length = (uint32_t)length;
	wr->sge->key = s->key;
	ch->bytes += length;
}

static inline struct ledger_loan loan_of(const struct transfer *t, const struct region *r,
					 const struct conn *c)
{
	return (struct ledger_loan){.connection = c->owner,
				    .region = r->parts[c->lane->in].owner,
				    .offset = t->op->sge->offset,
				    .length = t->total,
				    .opcode = t->op->opcode};
}

#endif
