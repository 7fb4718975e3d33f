/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transfer.c - a call of transfer: its ops are admitted whole or not at all, and posted together.
 *
 * Any number of callers.  A call takes the lanes it needs by trylock and keeps them until its end, so that requests of
 * several ops go out in one chain a connection; a lane that is busy is left to its holder and the next one is used.  No
 * lock that waits, no allocation, no system call but the native doorbell.
 *
 * Ops go the short way (short.h), or if that is not theirs the long one (long.c).  A call of one op: one.c.
 */
#include "backends/engine/short.h"

void en_set_deadline(struct escrow_engine *e, struct op *op, uint64_t deadline)
{
	op->odd = 1;
	op->deadline = deadline;
	en_deadline_add(e, op);
}

/* ---- A call -------------------------------------------------------------------------------------- */
/* Its remote and its peer's only connection, with the lane of that, are entered for the rest of the call. */
static inline bool enter(struct escrow_engine *e, struct transfer *t, const struct escrow_op *op)
{
	struct conn *c;

	if (op->remote != t->handle || !t->counted) {
		leave_remote(e, t);
		t->remote = enter_remote(e, op->remote, t->left);
		if (UNLIKELY(!t->remote))
			return false;
		set_remote(t, t->remote, t->left);
		t->handle = op->remote;
	}
	if (t->only)
		return takes_short(t->remote, t->only);
	c = t->peer->conns;
	if (t->peer->nconns != 1 || !have_lane(t, c->lane) || !takes_short(t->remote, c))
		return false;
	t->only = c;
	return true;
}

/* lane. How many ops of one slice there are places for, of n: in the chain, the send queue and the ledger. */
static inline uint32_t places(struct escrow_engine *e, struct conn *c, uint32_t n)
{
	uint32_t chain, queue, ledger;

	place_in_chain(e, c, 1);
	chain = CHAIN_WRS - c->lane->chain.n;
	queue = depth_left(e, c);
	ledger = ledger_row_room(c->lane->ledger, c->debts);
	if (n > chain)
		n = chain;
	if (n > queue)
		n = queue;
	return n < ledger ? n : ledger;
}

/* Those of the first n that are one slice, to the remote that was entered: how many. */
static inline uint32_t row(struct escrow_engine *e, struct transfer *t, const struct escrow_op *op,
			   uint32_t n, uint32_t stride, uint64_t *ops)
{
	struct remote *remote = t->remote;
	struct conn *c = t->only;
	struct lane *lane = c->lane;
	struct chain *ch = &lane->chain;
	struct native_wr *wr = &ch->wr[ch->n];
	struct ledger_row r = ledger_row_begin(c->debts);
	uint64_t inline_below = lane->inline_below;
	uint32_t rkey = remote->keys[0];
	uint32_t slot = lane_slot(e, lane, t->left);
	struct named region = {0};
	uint64_t *id = ops;
	struct slice s;

	for (; id < ops + n; op = op_at(op, 1, stride), wr++) {
		if (UNLIKELY(op->remote != t->handle || slot == POOL_NONE ||
			     !well_formed(remote, op)))
			break;
		s = slice_of(op);
		if (UNLIKELY(s.region != region.handle || !region.handle) &&
		    UNLIKELY(!region_named(&region, lane, s.region)))
			break;
		if (UNLIKELY(!slice_fits(e, remote, &region, &s)))
			break;
		wr->nsge = 1;
		put_range(wr->sge, region.bytes, &s);
		wr->id = ledger_row_put(&r, region.loans, slot, region.index, s.offset, s.length,
					s.opcode);
		put_request(wr, &s, remote, inline_below, rkey);
		*id++ = begin(e, slot, op, remote);
		t->bytes[s.opcode - ESCROW_READ] += s.length;
		ch->bytes += s.length;
		slot = pool_next(&e->op_pool, slot);
	}
	n = (uint32_t)(id - ops);
	ledger_row_end(lane->ledger, c->debts, &r);
	ch->n += n;
	lane->slots = slot;
	t->left -= n;
	t->counted -= n;
	return n;
}

/* One that is several: 1, or 0. */
static __attribute__((noinline)) uint32_t sliced(struct escrow_engine *e, struct transfer *t,
						 const struct escrow_op *op, uint64_t *id)
{
	struct lane *lane = t->only->lane;
	uint32_t slot = lane_slot(e, lane, t->left);
	struct slices s;

	if (UNLIKELY(!well_formed(t->remote, op) || slot == POOL_NONE))
		return 0;
	s = slices_of(e, t->remote, t->only, op, op->sge->length);
	if (UNLIKELY(!s.n))
		return 0;
	place_in_chain(e, t->only, s.n);
	if (UNLIKELY(!chain_run(t->remote, t->only, op, slot, s)))
		return 0;
	lane_slot_taken(e, lane, slot);
	*id = begin(e, slot, op, t->remote);
	t->bytes[op->opcode - ESCROW_READ] += s.length;
	t->left--;
	t->counted--;
	return 1;
}

/* The next ops that go the short way, to one remote: how many of the first n. */
static inline uint32_t short_ops(struct escrow_engine *e, struct transfer *t,
				 const struct escrow_op *op, uint32_t n, uint32_t stride,
				 uint64_t *ops)
{
	if (UNLIKELY(t->rider) || !enter(e, t, op))
		return 0;
	if (op->nsge == 1 && op->sge && op->sge->length > e->whole_bytes)
		return sliced(e, t, op, ops);
	return row(e, t, op, places(e, t->only, n), stride, ops);
}

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
		en_lane_give(e, lane);
	}
}

/* The ops of a call of which something may be entered already. */
int32_t en_transfer_on(struct escrow_engine *e, struct transfer *t, const struct escrow_op *op,
		       uint32_t stride, uint64_t *ops)
{
	uint32_t n = t->left, done = 0, k;
	escrow_status st = ESCROW_OK;

	for (;;) {
		k = short_ops(e, t, op, n - done, stride, ops + done);
		if (UNLIKELY(!k)) {
			st = long_op(e, t, op, !done);
			if (st < 0)
				break;
			ops[done] = t->id;
			k = 1;
		}
		done += k;
		if (LIKELY(done == n))
			break;
		op = op_at(op, k, stride);
	}
	let_lanes(e, t);
	if (UNLIKELY(t->counted))
		leave_remote(e, t);
	if (UNLIKELY(t->spare != POOL_NONE))
		en_give_spare(e, t);
	/* What was wanted stays so: it may be another call's wish by now, and a ROOM too many does no harm. */
	if (UNLIKELY(!done))
		return st;
	engine_count(&e->counters.ops_accepted, done);
	engine_count(&e->counters.bytes_read, t->bytes[0]);
	engine_count(&e->counters.bytes_written, t->bytes[1]);
	return (int32_t)done;
}

int32_t en_several(struct escrow_engine *e, const struct escrow_op *op, uint32_t n, uint32_t stride,
		   uint32_t flags, uint64_t *ops)
{
	struct transfer t = call_of(n, NULL);

	if (!engine_here(e) || !state_transfers(engine_state(e)))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	if (n == 0)
		return 0;
	if (!op || !ops || !args_stride_ok(stride, sizeof(*op)) || n > INT32_MAX)
		return ESCROW_E_INVALID;
	return en_transfer_on(e, &t, op, stride, ops);
}

int32_t en_transfer_with(struct escrow_engine *e, const struct escrow_op *op, struct notify *rider,
			 uint64_t *id)
{
	struct transfer t = call_of(1, rider);

	return en_transfer_on(e, &t, op, sizeof(*op), id);
}
