/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * one.c - a call of transfer of one op.
 *
 * It shares nothing with others, and so needs no struct transfer: what is entered for it stays in registers.  The same
 * steps on the same checks; where one does not go, the general call goes on from what is entered.
 */
#include "backends/engine/short.h"

static __attribute__((noinline, cold)) int32_t go_on(struct escrow_engine *e,
						     const struct escrow_op *op, uint64_t *id,
						     struct remote *remote, struct conn *c)
{
	struct transfer t = call_of(1, NULL);

	if (!remote && !state_transfers(engine_state(e)))
		return ESCROW_E_STATE;
	if (remote) {
		set_remote(&t, remote, 1);
		t.handle = op->remote;
	}
	if (c) {
		t.only = c;
		t.held = c->lane->bit;
	}
	return en_transfer_on(e, &t, op, sizeof(*op), id);
}

/* The only connection of the remote's peer, with its lane; or NULL. */
static inline struct conn *enter_only(struct escrow_engine *e, const struct remote *remote)
{
	struct conn *c = remote->peer->conns;

	if (UNLIKELY(remote->peer->nconns != 1) || UNLIKELY(!en_lane_trylock(c->lane)))
		return NULL;
	if (LIKELY(takes_short(remote, c)))
		return c;
	en_lane_give(e, c->lane);
	return NULL;
}

static inline void counted(struct escrow_engine *e, uint32_t opcode, uint64_t length)
{
	engine_count(&e->counters.ops_accepted, 1);
	engine_count(opcode == ESCROW_READ ? &e->counters.bytes_read : &e->counters.bytes_written,
		     length);
}

/* lane. Of several slices. */
static __attribute__((noinline)) int32_t one_sliced(struct escrow_engine *e, struct remote *remote,
						    struct conn *c, const struct escrow_op *op,
						    uint64_t *id)
{
	struct slices s = slices_of(e, remote, c, op, op->sge->length);
	struct lane *lane = c->lane;
	uint32_t slot = lane_slot(e, lane, 1);

	if (UNLIKELY(!s.n || slot == POOL_NONE))
		return go_on(e, op, id, remote, c);
	lane->chain.conn = c;
	if (UNLIKELY(!chain_run(remote, c, op, slot, s)))
		return go_on(e, op, id, remote, c);
	lane_slot_taken(e, lane, slot);
	*id = begin(e, slot, op, remote);
	lane->chain.n = 0;
	lane->chain.bytes = 0;
	post_chain(e, c, s.n, s.length, false);
	en_lane_give(e, lane);
	counted(e, op->opcode, s.length);
	return 1;
}

/* lane. Its request, if its only slice may be lent; or NULL. */
static inline struct native_wr *one_slice(struct escrow_engine *e, struct remote *remote,
					  struct conn *c, const struct escrow_op *op,
					  const struct slice *s, uint64_t *id)
{
	struct lane *lane = c->lane;
	uint32_t slot = lane->slots;
	struct named region;

	if (UNLIKELY(!region_named(&region, lane, s->region)) ||
	    UNLIKELY(!slice_fits(e, remote, &region, s)) ||
	    UNLIKELY(c->slices >= e->config.send_depth) ||
	    UNLIKELY(!ledger_takes_one(lane->ledger, c->debts)) || UNLIKELY(slot == POOL_NONE))
		return NULL;
	lane_slot_taken(e, lane, slot);
	put_range(&lane->single_sge, region.bytes, s);
	lane->single.id = ledger_row_lend(lane->ledger, c->debts, slot, region.index, s->offset,
					  s->length, s->opcode);
	put_request(&lane->single, s, remote, lane->inline_below, remote->keys[0]);
	*id = begin(e, slot, op, remote);
	return &lane->single;
}

static inline int32_t one(struct escrow_engine *e, const struct escrow_op *op, uint64_t *id)
{
	struct remote *remote = enter_remote(e, op->remote, 1);
	struct conn *c = remote ? enter_only(e, remote) : NULL;
	struct native_wr *wr;
	struct slice s;

	if (UNLIKELY(!c) || UNLIKELY(!well_formed(remote, op)))
		return go_on(e, op, id, remote, c);
	s = slice_of(op);
	if (UNLIKELY(s.length > e->whole_bytes))
		return one_sliced(e, remote, c, op, id);
	wr = one_slice(e, remote, c, op, &s, id);
	if (UNLIKELY(!wr))
		return go_on(e, op, id, remote, c);
	post_wrs(e, c, wr, 1, s.length, false);
	en_lane_give(e, c->lane);
	counted(e, s.opcode, s.length);
	return 1;
}

int32_t engine_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			uint32_t stride, uint32_t flags, uint64_t *ops)
{
	/* Of what is not as it usually is, the rest is looked at in its order. */
	if (UNLIKELY(n != 1) || UNLIKELY(!op) || UNLIKELY(!engine_here(e)) || UNLIKELY(!ops) ||
	    UNLIKELY(!args_stride_ok(stride, sizeof(*op))) || UNLIKELY(flags))
		return en_several(e, op, n, stride, flags, ops);
	return one(e, op, ops);
}
