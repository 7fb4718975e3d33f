/* SPDX-License-Identifier: BSD-2-Clause */
/* transfer.h - what transfer.c (checks, slots) and slice.c (lanes, slices, posts) share. */
#ifndef ENGINE_TRANSFER_H
#define ENGINE_TRANSFER_H

#include "backends/engine/engine.h"
#include "backends/ledger/hot.h"

#define MAX_SLICES 1024u       /* of one op */
#define OP_KIND UINT64_C(0x62) /* no kind of the ledger's handles */

enum full { FULL_NOT, FULL_POOL, FULL_BUSY, FULL_SLOTS };

/* One call of transfer, and the op it is at. */
struct transfer {
	uint64_t held; /* bit n: lane n is ours until the end of the call */
	const struct escrow_op *op;
	struct remote *remote;
	struct peer *peer;
	struct notify *rider;
	const struct region *region; /* of the first range */
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
	enum full full; /* of E_AGAIN */
	/* Its peer's only connection, seen usable under its lane: the ledger's of it, the place in its chain. */
	struct conn *only;
	struct chain *chain;
	struct ledger_lane *ledger;
	struct ledger_conn *debts;
	uint32_t in; /* its context */
	uint32_t room;
	uint64_t inline_below; /* of WRITEs */
};

/* A connection for an op of one slice, and its lane.  E_AGAIN: t->full; E_PEER_LOST. */
escrow_status en_choose(struct escrow_engine *e, struct transfer *t, struct conn **out);
/* The long way of an op: its slices are planned, charged, lent and chained one by one.  E_INVALID: it never was. */
escrow_status en_cut_op(struct escrow_engine *e, struct transfer *t, struct op *op);
/* lane. Posts what is chained. */
void en_flush(struct escrow_engine *e, struct lane *lane);
/* Posts what is chained and lets the lanes go. */
void en_transfer_end(struct escrow_engine *e, struct transfer *t);

/* op.c. One that was never lent: the call keeps its slot for the next; at the end it gives them back. */
void en_op_unused(struct escrow_engine *e, struct transfer *t, struct op *op);
void en_give_spare(struct escrow_engine *e, struct transfer *t);

static inline void op_end(struct op *op)
{
	atomic_store_explicit(&op->handle, 0, memory_order_relaxed);
	atomic_store_explicit(&op->state, OP_FREE, memory_order_release);
}

/* [poll] The host has its last event.  Its slot is kept with others until the end of the poll. */
static inline void en_op_over(struct escrow_engine *e, struct op *op, uint32_t i)
{
	if (op->deadline)
		en_deadline_drop(e, op);
	op_end(op);
	pool_link(&e->op_pool, i, e->ended);
	if (e->ended == POOL_NONE)
		e->ended_last = i;
	e->ended = i;
}

/* An op of this life, or NULL: t->full. */
static inline struct op *op_take(struct escrow_engine *e, struct transfer *t)
{
	uint32_t i;
	struct op *op;

	if (t->spare == POOL_NONE)
		t->spare = pool_take_some(&e->op_pool, t->left);
	i = t->spare;
	if (i == POOL_NONE) {
		t->full = FULL_POOL;
		return NULL;
	}
	t->spare = pool_next(&e->op_pool, i);
	op = &e->op_table[i];
	op->user = t->op->user;
	op->deadline = t->op->deadline_ns;
	op->peer = t->peer;
	op->remote = t->remote;
	op->rider = t->rider;
	atomic_store_explicit(&op->canceled, 0, memory_order_relaxed);
	atomic_store_explicit(&op->state, OP_ACTIVE, memory_order_relaxed);
	t->id = OP_KIND << 56 | (uint64_t)++op->generation << 24 | (uint64_t)i;
	atomic_store_explicit(&op->handle, t->id, memory_order_release);
	return op;
}

static inline bool lies_in(uint64_t offset, uint64_t length, uint64_t whole)
{
	return offset <= whole && length <= whole - offset;
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
static inline bool usable(const struct transfer *t, const struct conn *c)
{
	return atomic_load(&c->ready) == CONN_USABLE && !atomic_load(&c->broken) &&
	       atomic_load(&t->remote->epochs[c->index]) == atomic_load(&c->epoch);
}

/* lane. How many more slices its send queue takes of ours; the ledger has a word in it too. */
static inline uint32_t depth_left(const struct escrow_engine *e, const struct conn *c)
{
	const struct chain *ch = &c->lane->chain;
	uint32_t taken = c->slices + (ch->conn == c ? ch->n : 0);

	return taken < e->config.send_depth ? (uint32_t)e->config.send_depth - taken : 0;
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
	return opcode == ESCROW_WRITE ? (uint64_t)c->lane->context->info.max_inline + 1 : 0;
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

/* ---- Chaining ---------------------------------------------------------------------------------------- */
/* What the work requests of one range on one connection have in common. */
struct span {
	uint64_t addr, remote_addr;
	uint64_t inline_below;
	enum native_opcode opcode;
	uint32_t key, rkey;
};

static inline struct span span_of(const struct transfer *t, const struct conn *c)
{
	const struct escrow_op *op = t->op;

	return (struct span){.addr = t->region->addr + op->sge->offset,
			     .remote_addr = t->remote->addr + op->remote_offset,
			     .inline_below = inline_below(c, op->opcode),
			     .opcode = op->opcode == ESCROW_WRITE ? NATIVE_WRITE : NATIVE_READ,
			     .key = t->region->parts[c->lane->in].key,
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

static inline struct ledger_loan loan_of(const struct transfer *t, const struct conn *c)
{
	return (struct ledger_loan){.connection = c->owner,
				    .region = t->region->parts[c->lane->in].owner,
				    .offset = t->op->sge->offset,
				    .length = t->total,
				    .opcode = t->op->opcode};
}

#endif
