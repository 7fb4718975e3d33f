/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transfer.c - a call of transfer: its ops are admitted whole or not at all, and posted together.
 *
 * Any number of callers.  A call takes the lanes it needs by trylock and keeps them until its end, so
 * that requests of several ops go out in one chain a connection; a lane that is busy is left to its
 * holder and the next one is used.  No lock that waits, no allocation, no system call but the native
 * doorbell.
 *
 * Here is the short way of the commonest ops: one range, over the only connection of its peer.  It does all of an op
 * or nothing, and decides no error: whatever is not as it usually is goes the long way (long.c).  What the ops of a
 * call have in common, their remote, its connection, its lane, is entered once; then each op is looked up, lent and
 * chained, and nothing of that can fail half-way.
 */
#include "backends/engine/transfer.h"

/* ---- What ops have in common ------------------------------------------------------------------- */
/* The remote, counted for all ops that are to come.  Counted before states are looked at, as count() does. */
static inline bool enter_remote(struct escrow_engine *e, struct transfer *t, uint64_t handle)
{
	leave_remote(e, t);
	if (e->ops_limited || hold_remote(e, t, handle, t->left) < 0)
		return false;
	atomic_fetch_add(&e->active, t->counted);
	atomic_fetch_add(&t->peer->ops, t->counted);
	if (UNLIKELY(!remote_usable(e, t))) {
		leave_remote(e, t);
		return false;
	}
	t->handle = handle;
	return true;
}

/* Its peer's only connection, and the lane of that, for the rest of the call. */
static inline bool enter_conn(struct transfer *t)
{
	struct conn *c = t->peer->conns;

	/* Usable is looked at under the lane: a peer that leaves clears it there. */
	if (t->peer->nconns != 1 || !have_lane(t, c->lane) || !usable(t, c))
		return false;
	t->only = c;
	return true;
}

static inline bool enter(struct escrow_engine *e, struct transfer *t, const struct escrow_op *op)
{
	if ((op->remote != t->handle || !t->counted) && !enter_remote(e, t, op->remote))
		return false;
	if (!t->only && !enter_conn(t))
		return false;
	return ledger_conn_is(t->only->debts, t->only->owner);
}

/* lane. How many ops of one slice there are places for: in the chain, the send queue and the ledger. */
static inline uint32_t places(struct escrow_engine *e, const struct transfer *t, uint32_t n)
{
	struct conn *c = t->only;
	uint32_t queue, ledger;

	place_in_chain(e, c, 1);
	queue = depth_left(e, c);
	ledger = ledger_row_room(c->lane->ledger, c->debts);
	if (n > CHAIN_WRS - c->lane->chain.n)
		n = CHAIN_WRS - c->lane->chain.n;
	if (n > queue)
		n = queue;
	return n < ledger ? n : ledger;
}

/* ---- Ops of one slice ---------------------------------------------------------------------------- */
static inline bool well_formed(const struct escrow_op *op)
{
	return ((op->nsge ^ 1) | op->flags | op->reserved0 | op->reserved1) == 0 &&
	       op->opcode - ESCROW_READ <= ESCROW_WRITE - ESCROW_READ && op->sge;
}

_Static_assert(ESCROW_MAY_READ == ESCROW_READ && ESCROW_MAY_WRITE == ESCROW_WRITE,
	       "an opcode is the right that it needs");

static __attribute__((noinline, cold)) void set_deadline(struct escrow_engine *e, struct op *op,
							 uint64_t deadline)
{
	op->odd = 1;
	op->deadline = deadline;
	en_deadline_add(e, op);
}

/* Those of the first n that are so, to the remote that was entered: how many. */
static inline uint32_t row(struct escrow_engine *e, struct transfer *t, const struct escrow_op *op,
			   uint32_t n, uint32_t stride, uint64_t *ops)
{
	struct remote *remote = t->remote;
	struct ledger_conn *debts = t->only->debts;
	struct lane *lane = t->only->lane;
	struct ledger_lane *ledger = lane->ledger;
	struct chain *ch = &lane->chain;
	struct native_wr *wr = &ch->wr[ch->n];
	uint64_t inline_writes = inline_below(t->only, ESCROW_WRITE), *id = ops;
	uint32_t rkey = remote->keys[0], spare = t->spare;

	for (; id < ops + n; op = op_at(op, 1, stride)) {
		const struct escrow_sge *range = op->sge;
		const struct ledger_keyed *bytes;
		uint64_t length;
		struct op *mine;
		uint32_t region;

		if (UNLIKELY(!well_formed(op) || op->remote != t->handle ||
			     !(remote->rights & op->opcode)))
			break;
		length = range->length;
		if (UNLIKELY(length - 1 >= e->whole_bytes ||
			     !ledger_range_in(op->remote_offset, length, remote->length)))
			break;
		region = ledger_row_region(ledger->ledger, range->region, range->offset, length);
		if (UNLIKELY(region == NONE || spare == POOL_NONE))
			break;
		mine = op_begin(e, spare, op->user, remote);
		*id++ = atomic_load_explicit(&mine->handle, memory_order_relaxed);
		bytes = &ledger->ledger->keyed[region];
		wr->sge->addr = bytes->addr + range->offset;
		wr->sge->length = (uint32_t)length;
		wr->sge->key = (uint32_t)bytes->key;
		wr->id = ledger_row_lend(ledger, debts, spare, region, range->offset, length,
					 op->opcode);
		wr->nsge = 1;
		wr->opcode = native_of(op->opcode);
		wr->flags = length < inline_writes && op->opcode == ESCROW_WRITE
				    ? NATIVE_SIGNALED | NATIVE_INLINE
				    : NATIVE_SIGNALED;
		wr->remote_addr = remote->addr + op->remote_offset;
		wr->rkey = rkey;
		wr++;
		t->bytes[op->opcode - ESCROW_READ] += length;
		ch->bytes += length;
		spare = pool_next(&e->op_pool, spare);
		if (UNLIKELY(op->deadline_ns))
			set_deadline(e, mine, op->deadline_ns);
	}
	n = (uint32_t)(id - ops);
	ch->n += n;
	t->spare = spare;
	t->left -= n;
	t->counted -= n;
	return n;
}

/* ---- Ops of several slices -------------------------------------------------------------------------- */
/* Lends the op's range and chains it: a run of n slices, for which there is room. */
static inline bool chain_run(struct escrow_engine *e, struct transfer *t,
			     const struct escrow_op *op, uint32_t region, uint64_t size, uint32_t n)
{
	struct lane *lane = t->only->lane;
	struct chain *ch = &lane->chain;
	const struct ledger_keyed *bytes = &lane->ledger->ledger->keyed[region];
	struct span span = {.addr = bytes->addr + op->sge->offset,
			    .remote_addr = t->remote->addr + op->remote_offset,
			    .opcode = native_of(op->opcode),
			    .key = (uint32_t)bytes->key,
			    .rkey = t->remote->keys[0]};
	uint64_t length = op->sge->length, at;
	struct ledger_run run;

	if (UNLIKELY(!ledger_row_run(lane->ledger, t->only->debts, t->spare, region,
				     op->sge->offset, op->opcode, n, &run)))
		return false;
	for (at = 0; length - at > size; at += size)
		chain_up(ch, &span, ledger_run_put(&run, size), at, size, 0);
	span.inline_below = inline_below(t->only, op->opcode);
	chain_up(ch, &span, ledger_run_put(&run, length - at), at, length - at, NATIVE_SIGNALED);
	ledger_run_end(t->only->debts, &run, n);
	return true;
}

/* One that is so: its range is lent and chained at once.  1, or 0. */
static __attribute__((noinline)) uint32_t sliced(struct escrow_engine *e, struct transfer *t,
						 const struct escrow_op *op, uint64_t *id)
{
	uint64_t length = op->sge->length, size, n;
	struct conn *c = t->only;
	struct op *mine;
	uint32_t region;

	/* Its length first: no size is known for what is beyond the limits. */
	if (UNLIKELY(length > e->limits.max_op_bytes || !well_formed(op) ||
		     !(t->remote->rights & op->opcode) || t->spare == POOL_NONE ||
		     !ledger_range_in(op->remote_offset, length, t->remote->length)))
		return 0;
	size = slice_size(e, length);
	n = (length - 1) / size + 1;
	if (UNLIKELY(n > CHAIN_WRS))
		return 0;
	place_in_chain(e, c, (uint32_t)n);
	region = ledger_row_region(c->lane->ledger->ledger, op->sge->region, op->sge->offset,
				   length);
	if (UNLIKELY(region == NONE || n > depth_left(e, c) ||
		     n > ledger_run_room(c->lane->ledger, c->debts) ||
		     !chain_run(e, t, op, region, size, (uint32_t)n)))
		return 0;
	mine = op_begin(e, t->spare, op->user, t->remote);
	*id = atomic_load_explicit(&mine->handle, memory_order_relaxed);
	t->spare = pool_next(&e->op_pool, t->spare);
	t->bytes[op->opcode - ESCROW_READ] += length;
	t->left--;
	t->counted--;
	if (UNLIKELY(op->deadline_ns))
		set_deadline(e, mine, op->deadline_ns);
	return 1;
}

/* The next ops that go the short way, to one remote: how many of the first n. */
static inline uint32_t short_ops(struct escrow_engine *e, struct transfer *t,
				 const struct escrow_op *op, uint32_t n, uint32_t stride,
				 uint64_t *ops)
{
	if (UNLIKELY(t->rider) || !enter(e, t, op))
		return 0;
	if (t->spare == POOL_NONE)
		t->spare = pool_take_some(&e->op_pool, t->left);
	if (op->nsge == 1 && op->sge && op->sge->length > e->whole_bytes)
		return sliced(e, t, op, ops);
	return row(e, t, op, places(e, t, n), stride, ops);
}

/* ---- A call -------------------------------------------------------------------------------------- */
/* Another way for one; if it is the first, not before whoever is asked for room has been looked at again. */
static __attribute__((noinline)) escrow_status long_op(struct escrow_engine *e, struct transfer *t,
						       const struct escrow_op *op, bool first)
{
	escrow_status st;

	t->op = op;
	do
		st = en_long(e, t);
	while (st == ESCROW_E_AGAIN && first && en_ask_for_room(e, t));
	return st;
}

/* Posts what is chained and lets the lanes go. */
static inline void let_lanes(struct escrow_engine *e, struct transfer *t)
{
	uint64_t held = t->held;

	while (held) {
		struct lane *lane = &e->lanes[__builtin_ctzll(held)];

		held &= held - 1;
		flush(e, lane);
		unlock_lane(e, lane);
	}
}

static int32_t run(struct escrow_engine *e, const struct escrow_op *op, uint32_t n, uint32_t stride,
		   struct notify *rider, uint64_t *ops)
{
	escrow_status st = ESCROW_OK;
	uint32_t done = 0, k;
	struct transfer t;

	t.held = 0;
	t.handle = 0;
	t.counted = 0;
	t.rider = rider;
	t.only = NULL;
	t.asked = 0;
	t.left = n;
	t.spare = POOL_NONE;
	t.bytes[0] = t.bytes[1] = 0;
	for (;;) {
		k = short_ops(e, &t, op, n - done, stride, ops + done);
		if (UNLIKELY(!k)) {
			st = long_op(e, &t, op, !done);
			if (st < 0)
				break;
			ops[done] = t.id;
			k = 1;
		}
		done += k;
		if (LIKELY(done == n))
			break;
		op = op_at(op, k, stride);
	}
	let_lanes(e, &t);
	if (UNLIKELY(t.counted))
		leave_remote(e, &t);
	if (UNLIKELY(t.spare != POOL_NONE))
		en_give_spare(e, &t);
	/* What was wanted stays so: it may be another call's wish by now, and a ROOM too many does no harm. */
	if (UNLIKELY(!done))
		return st;
	engine_count(&e->counters.ops_accepted, done);
	engine_count(&e->counters.bytes_read, t.bytes[0]);
	engine_count(&e->counters.bytes_written, t.bytes[1]);
	return (int32_t)done;
}

int32_t engine_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			uint32_t stride, uint32_t flags, uint64_t *ops)
{
	if (!engine_here(e) || !state_transfers(engine_state(e)))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	if (n == 0)
		return 0;
	if (!op || !ops || !args_stride_ok(stride, sizeof(*op)) || n > INT32_MAX)
		return ESCROW_E_INVALID;
	return run(e, op, n, stride, NULL, ops);
}

int32_t en_transfer_with(struct escrow_engine *e, const struct escrow_op *op, struct notify *rider,
			 uint64_t *id)
{
	return run(e, op, 1, sizeof(*op), rider, id);
}
