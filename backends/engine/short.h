/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * short.h - the short way of the commonest ops: one range, over the only connection of its peer.
 *
 * It does all of an op or nothing, and decides no error: what is not as usual goes the long way (long.c).  What the ops of
 * a call have in common, their remote, its connection, its lane, is entered once; then each op is looked up, lent and
 * chained, none half-way.
 */
#ifndef ENGINE_SHORT_H
#define ENGINE_SHORT_H

#include "backends/engine/transfer.h"

/* transfer.c. A call of any number of ops; and the rest of one of which something is entered already. */
int32_t en_several(struct escrow_engine *e, const struct escrow_op *op, uint32_t n, uint32_t stride,
		   uint32_t flags, uint64_t *ops);
int32_t en_transfer_on(struct escrow_engine *e, struct transfer *t, const struct escrow_op *op,
		       uint32_t stride, uint64_t *ops);
void en_set_deadline(struct escrow_engine *e, struct op *op, uint64_t deadline);

static inline struct transfer call_of(uint32_t n, struct notify *rider)
{
	return (struct transfer){.rider = rider, .left = n, .spare = POOL_NONE};
}

/* ---- What ops have in common ------------------------------------------------------------------- */
/*
 * The remote, counted for the n ops that are to come; or NULL.  Counted before states are looked at, as count() does; that
 * its peer is up, its connection says (takes_short).
 */
static inline struct remote *enter_remote(struct escrow_engine *e, uint64_t handle, uint32_t n)
{
	struct remote *r = e->ops_limited ? NULL : hold_remote(e, handle, n);

	if (UNLIKELY(!r))
		return NULL;
	atomic_fetch_add(&e->active, n);
	atomic_fetch_add(&r->peer->ops, n);
	if (LIKELY(state_transfers(engine_state(e))) &&
	    LIKELY(atomic_load(&r->state) == REMOTE_LIVE))
		return r;
	uncount(e, r, n);
	return NULL;
}

/* lane. Has it what goes the short way?  Usable is looked at under the lane: a peer that leaves clears it there. */
static inline bool takes_short(const struct remote *r, const struct conn *only)
{
	return usable_as(r, only, 0) && ledger_conn_is(only->debts, only->owner);
}

/* ---- Ops of one slice ---------------------------------------------------------------------------- */
static inline bool well_formed(const struct remote *remote, const struct escrow_op *op)
{
	/* Two words each: what stands behind the opcode and the number of ranges must be 0. */
	uint64_t what = op->opcode | (uint64_t)op->flags << 32;
	uint64_t ranges = op->nsge | (uint64_t)op->reserved0 << 32;

	return what - ESCROW_READ <= ESCROW_WRITE - ESCROW_READ && ranges == 1 && !op->reserved1 &&
	       op->sge && (remote->rights & op->opcode);
}

/* What an op of one range asks for, read once: every store could otherwise be one into what the host gave. */
struct slice {
	uint64_t region, offset, length, remote_offset;
	uint32_t opcode;
};

static inline struct slice slice_of(const struct escrow_op *op)
{
	const struct escrow_sge *range = op->sge;

	return (struct slice){.region = range->region,
			      .offset = range->offset,
			      .length = range->length,
			      .remote_offset = op->remote_offset,
			      .opcode = op->opcode};
}

/* The region that a slice is of.  Ops of a call mostly name one: it is looked up once; before the first handle is 0. */
struct named {
	uint64_t handle;
	const struct ledger_keyed *bytes;
	uint32_t *loans;
	uint32_t index;
};

/* lane. False: it may not be lent from. */
static inline bool region_named(struct named *r, const struct lane *lane, uint64_t handle)
{
	r->handle = handle;
	r->bytes = ledger_row_keyed(lane->ledger->ledger, handle, &r->index);
	r->loans = &lane->ledger->loans[r->index];
	return LIKELY(r->bytes != NULL);
}

/* lane. Is it one slice, and may it be lent from the region? */
static inline bool slice_fits(const struct escrow_engine *e, const struct remote *remote,
			      const struct named *r, const struct slice *s)
{
	return LIKELY(s->length - 1 < e->whole_bytes) &&
	       LIKELY(ledger_range_in(s->remote_offset, s->length, remote->length)) &&
	       LIKELY(ledger_range_in(s->offset, s->length, GET(r->bytes->length)));
}

/* lane. Its request, but for the id that it is lent by: its range, and the rest. */
static inline void put_range(struct native_sge *sge, const struct ledger_keyed *bytes,
			     const struct slice *s)
{
	sge->addr = bytes->addr + s->offset;
	sge->length = (uint32_t)s->length;
	sge->key = (uint32_t)bytes->key;
}
static inline void put_request(struct native_wr *wr, const struct slice *s,
			       const struct remote *remote, uint64_t inline_below, uint32_t rkey)
{
	wr->opcode = native_of(s->opcode);
	wr->flags = s->length < inline_below && s->opcode == ESCROW_WRITE
			    ? NATIVE_SIGNALED | NATIVE_INLINE
			    : NATIVE_SIGNALED;
	wr->remote_addr = remote->addr + s->remote_offset;
	wr->rkey = rkey;
}

/* The life of an op that was lent begins.  Its handle, to be read before a poll may end it: with the lane. */
static inline uint64_t begin(struct escrow_engine *e, uint32_t slot, const struct escrow_op *op,
			     struct remote *remote)
{
	struct op *mine = op_begin(e, slot, op->user, remote);
	uint64_t handle = atomic_load_explicit(&mine->handle, memory_order_relaxed);

	if (UNLIKELY(op->deadline_ns))
		en_set_deadline(e, mine, op->deadline_ns);
	return handle;
}

/* ---- Ops of several slices -------------------------------------------------------------------------- */
struct slices {
	uint64_t length; /* of all */
	uint64_t size;   /* of each but the last */
	uint32_t n;
	uint32_t region;
};

/* lane. How a range is cut that is a run of slices, for which there is room; n is 0 of one that is not. */
static inline struct slices slices_of(struct escrow_engine *e, const struct remote *remote,
				      const struct conn *c, const struct escrow_op *op,
				      uint64_t length)
{
	const struct ledger_lane *ledger = c->lane->ledger;
	struct slices s = {.length = length};
	uint64_t n;

	/* Its length first: no size is known for what is beyond the limits. */
	if (UNLIKELY(length > e->limits.max_op_bytes ||
		     !ledger_range_in(op->remote_offset, length, remote->length)))
		return s;
	s.size = slice_size(e, length);
	n = (length - 1) / s.size + 1;
	s.region = ledger_row_region(ledger->ledger, op->sge->region, op->sge->offset, length);
	if (LIKELY(s.region != NONE && n <= CHAIN_WRS && n <= depth_left(e, c) &&
		   n <= ledger_run_room(c->debts)))
		s.n = (uint32_t)n;
	return s;
}

/* lane. Lends them, for the op at `slot`, and chains them where there are places; or none. */
static inline bool chain_run(struct remote *remote, struct conn *c, const struct escrow_op *op,
			     uint32_t slot, struct slices s)
{
	struct ledger_lane *ledger = c->lane->ledger;
	const struct ledger_keyed *bytes = &ledger->ledger->keyed[s.region];
	struct chain *ch = &c->lane->chain;
	struct span span = {.addr = bytes->addr + op->sge->offset,
			    .remote_addr = remote->addr + op->remote_offset,
			    .opcode = native_of(op->opcode),
			    .key = (uint32_t)bytes->key,
			    .rkey = remote->keys[0]};
	struct ledger_run run;
	uint64_t at;

	if (UNLIKELY(!ledger_row_run(ledger, c->debts, slot, s.region, op->sge->offset, op->opcode,
				     s.n, &run)))
		return false;
	for (at = 0; s.length - at > s.size; at += s.size)
		chain_up(ch, &span, ledger_run_put(&run, s.size), at, s.size, 0);
	span.inline_below = inline_below(c, op->opcode);
	chain_up(ch, &span, ledger_run_put(&run, s.length - at), at, s.length - at,
		 NATIVE_SIGNALED);
	ledger_run_end(c->debts, &run, s.n);
	return true;
}

#endif
