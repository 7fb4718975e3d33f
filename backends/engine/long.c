/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * long.c - ops that are not as they usually are, or do not go: what is wrong with them, or which other way there
 * is.  In several slices, over several connections, of no bytes, under quotas, when something is full.
 */
#include "backends/engine/transfer.h"

#include <string.h>

/* ---- ROOM -------------------------------------------------------------------------------------- */
static void room_polled(struct escrow_engine *e, struct event_node *node)
{
	atomic_store(&e->room_queued, 0);
}

void en_room(struct escrow_engine *e)
{
	if (atomic_exchange(&e->room_queued, 1))
		return;
	e->room.polled = room_polled;
	event_send(e, &e->room, &(struct event_what){.kind = ESCROW_EV_ROOM});
}

/* ---- Checks -------------------------------------------------------------------------------------------- */
static inline escrow_status check_op(struct escrow_engine *e, const struct escrow_op *op)
{
	if (op->flags)
		return ESCROW_E_UNSUPPORTED;
	if (op->opcode - ESCROW_READ > ESCROW_WRITE - ESCROW_READ ||
	    (op->reserved0 | op->reserved1))
		return ESCROW_E_INVALID;
	if (op->nsge > e->limits.max_sge)
		return ESCROW_E_LIMIT;
	return op->nsge && !op->sge ? ESCROW_E_INVALID : ESCROW_OK;
}

static inline escrow_status check_range(struct escrow_engine *e, struct transfer *t,
					const struct escrow_sge *s)
{
	const struct region *r = en_region_find(e, s->region);

	if (!r || !ledger_range_in(s->offset, s->length, r->length))
		return ESCROW_E_INVALID;
	if (s->length > e->limits.max_op_bytes - t->total)
		return ESCROW_E_LIMIT;
	if (s == t->op->sge)
		t->region = r;
	t->total += s->length;
	return ESCROW_OK;
}

static inline escrow_status check_ranges(struct escrow_engine *e, struct transfer *t)
{
	const struct escrow_op *op = t->op;
	escrow_status st = ESCROW_OK;
	uint32_t i;

	t->total = 0;
	for (i = 0; i < op->nsge && st == ESCROW_OK; i++)
		st = check_range(e, t, &op->sge[i]);
	if (st == ESCROW_OK && !ledger_range_in(op->remote_offset, t->total, t->remote->length))
		return ESCROW_E_INVALID;
	return st;
}

/* ---- The remote ------------------------------------------------------------------------------------ */
static escrow_status why_unusable(struct escrow_engine *e, const struct transfer *t)
{
	uint32_t state = atomic_load(&t->remote->state);

	if (!state_transfers(engine_state(e)) || state == REMOTE_ASKING)
		return ESCROW_E_STATE;
	/* Not by the state of its peer, in whose place another one may be by now. */
	return state == REMOTE_REFUSED ? ESCROW_E_ACCESS : ESCROW_E_PEER_LOST;
}

/* Counted before the state is looked at, so that a close that saw no op is right. */
static escrow_status count(struct escrow_engine *e, struct transfer *t)
{
	uint64_t limit = e->config.quota[ESCROW_CHARGE_OPS];
	uint64_t peer_limit = e->config.peer_quota[ESCROW_CHARGE_OPS];
	uint64_t active = atomic_fetch_add(&e->active, t->counted);
	uint32_t ops = atomic_fetch_add(&t->peer->ops, t->counted);
	escrow_status st = ESCROW_OK;

	if (UNLIKELY(!remote_usable(e, t->remote)))
		st = why_unusable(e, t);
	else if (e->ops_limited)
		st = (limit && active >= limit) || (peer_limit && ops >= peer_limit)
			     ? ESCROW_E_QUOTA
			     : ESCROW_OK;
	if (st < 0)
		leave_remote(e, t);
	else
		t->handle = t->op->remote;
	return st;
}

static void let_remote(struct transfer *t)
{
	atomic_fetch_sub(&t->remote->gate, t->counted);
	t->counted = 0;
}

/* Another remote than the last op's. */
static __attribute__((noinline)) escrow_status enter_remote(struct escrow_engine *e,
							    struct transfer *t)
{
	uint32_t n = e->ops_limited ? 1 : t->left;
	struct remote *r;
	escrow_status st;

	leave_remote(e, t);
	r = hold_remote(e, t->op->remote, n);
	if (!r)
		return ESCROW_E_INVALID;
	set_remote(t, r, n);
	st = check_ranges(e, t); /* which come before what else can be wrong */
	if (st < 0) {
		let_remote(t);
		return st;
	}
	return count(e, t);
}

/* ---- Its connection ------------------------------------------------------------------------------------ */
/* Nothing is moved, so nothing is lent and no device is asked. */
static escrow_status empty_op(struct escrow_engine *e, struct transfer *t, struct op *op)
{
	struct event_what what = {.kind = ESCROW_EV_OP_DONE,
				  .custody = ESCROW_CUSTODY_RETURNED,
				  .effect = ESCROW_EFFECT_EXECUTED,
				  .user = t->op->user,
				  .object = t->id};

	op->deadline = 0;
	if (!op->rider || !en_note_op_done(e, op, &what))
		en_op_tell(e, op, &what);
	return ESCROW_OK;
}

/* The peer's only connection and its lane, for the rest of the call. */
static escrow_status take_only(struct escrow_engine *e, struct transfer *t)
{
	struct conn *c = &t->peer->conns[0];

	t->full = FULL_SLOTS;
	if (!usable(t->remote, c))
		return may_be_used(c) ? ESCROW_E_AGAIN : ESCROW_E_PEER_LOST;
	t->full = FULL_BUSY;
	if (!have_lane(t, c->lane))
		return ESCROW_E_AGAIN;
	t->full = FULL_SLOTS;
	/* Looked at again under the lane: a peer that leaves clears it there. */
	if (!usable(t->remote, c))
		return may_be_used(c) ? ESCROW_E_AGAIN : ESCROW_E_PEER_LOST;
	t->only = c;
	return ESCROW_OK;
}

static inline escrow_status take_conn(struct escrow_engine *e, struct transfer *t,
				      struct conn **out)
{
	escrow_status st = ESCROW_OK;

	if (t->peer->nconns > 1)
		return en_choose(e, t, out);
	if (!t->only)
		st = take_only(e, t);
	if (st < 0)
		return st;
	*out = t->only;
	t->full = FULL_SLOTS;
	return depth_left(e, t->only) ? ESCROW_OK : ESCROW_E_AGAIN;
}

/* ---- Long ways ---------------------------------------------------------------------------------------- */
/* The connection is ready, so it is the region that is being taken back. */
static inline escrow_status lent(escrow_status st)
{
	return st == ESCROW_E_STATE ? ESCROW_E_INVALID : st;
}

/* lane. What the op's range lends over this connection, with n places for it in the chain; NULL: it may not be lent. */
static inline const struct region *prepare(struct escrow_engine *e, const struct transfer *t,
					   struct conn *c, uint32_t n, struct ledger_loan *loan)
{
	const struct region *r = region_held(e, t->op->sge);

	if (!r)
		return NULL;
	place_in_chain(e, c, n);
	*loan = loan_of(t, r, c);
	return r;
}

/* One range that one slice takes: charged, lent and chained in one step, or nothing. */
static escrow_status whole_op(struct escrow_engine *e, struct transfer *t, struct op *op)
{
	const struct region *r;
	struct ledger_loan loan;
	struct span span;
	struct conn *c;
	uint64_t id;
	escrow_status st = take_conn(e, t, &c);

	if (st < 0)
		return st;
	r = prepare(e, t, c, 1, &loan);
	if (!r)
		return ESCROW_E_INVALID;
	st = ledger_op_lend(c->lane->ledger, (uint64_t)(op - e->op_table), &loan, &id);
	if (st < 0)
		return lent(st);
	span = span_of(t, r, c);
	chain_up(&c->lane->chain, &span, id, 0, t->total, NATIVE_SIGNALED);
	return ESCROW_OK;
}

/* One range that several slices take, over the peer's only connection: the same. */
static escrow_status run_op(struct escrow_engine *e, struct transfer *t, struct op *op,
			    uint64_t size, uint32_t n)
{
	uint64_t ids[CHAIN_WRS];
	const struct region *r;
	struct ledger_loan loan;
	struct span span;
	struct conn *c;
	uint32_t i;
	escrow_status st = take_conn(e, t, &c);

	if (st == ESCROW_OK && n > depth_left(e, c))
		st = ESCROW_E_AGAIN;
	if (st < 0)
		return st;
	r = prepare(e, t, c, n, &loan);
	if (!r)
		return ESCROW_E_INVALID;
	st = ledger_run_lend(c->lane->ledger, (uint64_t)(op - e->op_table), &loan, size, n, ids);
	if (st < 0)
		return lent(st);
	span = span_of(t, r, c);
	for (i = 0; i + 1 < n; i++)
		chain_up(&c->lane->chain, &span, ids[i], i * size, size, 0);
	chain_up(&c->lane->chain, &span, ids[i], i * size, t->total - i * size, NATIVE_SIGNALED);
	return ESCROW_OK;
}

/* One range: the size of a slice decides how. */
static inline escrow_status range_op(struct escrow_engine *e, struct transfer *t, struct op *op)
{
	uint64_t size = slice_size(e, t->total), n = 1;
	escrow_status st;

	if (t->total > size)
		n = (t->total - 1) / size + 1;
	if (n > CHAIN_WRS || (n > 1 && t->peer->nconns > 1))
		return en_cut_op(e, t, op);
	st = n == 1 ? whole_op(e, t, op) : run_op(e, t, op, size, (uint32_t)n);
	if (st == ESCROW_OK && op->deadline)
		en_deadline_add(e, op);
	return st;
}

static escrow_status move(struct escrow_engine *e, struct transfer *t)
{
	struct op *op = op_take(e, t);
	escrow_status st;

	if (!op)
		return ESCROW_E_AGAIN;
	if (!t->total)
		st = empty_op(e, t, op);
	else
		st = t->op->nsge == 1 ? range_op(e, t, op) : en_cut_op(e, t, op);
	if (st < 0)
		en_op_unused(e, t, op);
	return st;
}

/* ---- One op ------------------------------------------------------------------------------------------- */
static escrow_status way_of(struct escrow_engine *e, struct transfer *t)
{
	escrow_status st = check_op(e, t->op);

	if (st < 0)
		return st;
	st = t->op->remote == t->handle && t->counted ? check_ranges(e, t) : enter_remote(e, t);
	if (st < 0)
		return st;
	if (!(t->remote->rights & t->op->opcode))
		return ESCROW_E_ACCESS;
	return move(e, t);
}

escrow_status en_long(struct escrow_engine *e, struct transfer *t)
{
	escrow_status st = way_of(e, t);

	if (st < 0)
		return st;
	t->left--;
	t->counted--;
	t->bytes[t->op->opcode - ESCROW_READ] += t->total;
	return ESCROW_OK;
}

/* Full: whoever frees what was missing tells ROOM.  Looked at once more for each thing, or the news were missed. */
bool en_ask_for_room(struct escrow_engine *e, struct transfer *t)
{
	uint32_t reason = 1u << t->full;

	if (t->asked & reason)
		return false;
	if (!t->asked)
		engine_count(&e->counters.again, 1);
	t->asked |= reason;
	if (t->full == FULL_SLOTS)
		atomic_fetch_or(&t->peer->wants, PEER_ROOM);
	else
		atomic_fetch_or(&e->wants, t->full == FULL_BUSY ? WANT_LANE : WANT_OP);
	return true;
}
