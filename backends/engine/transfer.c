/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transfer.c - ops: checked, admitted whole or not at all, cut into slices, posted.
 *
 * Any number of callers.  A call takes the lanes it needs by trylock and keeps them until its end, so
 * that requests of several ops go out in one chain a connection; a lane that is busy is left to its
 * holder and the next one is used.  No lock that waits, no allocation, no system call but the native
 * doorbell.
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

	if (!r || !lies_in(s->offset, s->length, r->length))
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
	if (st == ESCROW_OK && !lies_in(op->remote_offset, t->total, t->remote->length))
		return ESCROW_E_INVALID;
	return st;
}

/* ---- The remote ------------------------------------------------------------------------------------ */
/* `n` ops that were counted for it come to nothing. */
static void uncount(struct escrow_engine *e, struct transfer *t, uint32_t n)
{
	struct peer *p = t->peer;

	atomic_fetch_sub(&t->remote->gate, n);
	atomic_fetch_sub(&e->active, n);
	if (atomic_fetch_sub(&p->ops, n) == n && atomic_load(&p->watched))
		en_work(e, &p->work);
	if (atomic_load(&e->watched))
		en_work(e, &e->work);
}

/* The call is done with the last one. */
static void leave_remote(struct escrow_engine *e, struct transfer *t)
{
	if (t->counted)
		uncount(e, t, t->counted);
	t->counted = 0;
	t->handle = 0;
	t->only = NULL;
	t->room = 0;
}

/* Counted before the state is looked at, so that a close that saw no op is right. */
static escrow_status count(struct escrow_engine *e, struct transfer *t)
{
	uint64_t limit = e->config.quota[ESCROW_CHARGE_OPS];
	uint64_t peer_limit = e->config.peer_quota[ESCROW_CHARGE_OPS];
	uint64_t active = atomic_fetch_add(&e->active, t->counted);
	uint32_t ops = atomic_fetch_add(&t->peer->ops, t->counted);
	escrow_status st = ESCROW_OK;

	if (UNLIKELY(!state_transfers(engine_state(e)) ||
		     atomic_load(&t->remote->state) != REMOTE_LIVE ||
		     atomic_load(&t->peer->state) != PEER_UP))
		st = !state_transfers(engine_state(e)) ||
				     atomic_load(&t->remote->state) == REMOTE_ASKING
			     ? ESCROW_E_STATE
			     : ESCROW_E_PEER_LOST;
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

/* By its gate, for the ops that are to come: from here on it is not forgotten under one. */
static escrow_status hold_remote(struct escrow_engine *e, struct transfer *t)
{
	uint64_t handle = t->op->remote;
	uint32_t n = e->ops_limited ? 1 : t->left;
	struct remote *r = en_remote_find(e, handle);

	if (!r)
		return ESCROW_E_INVALID;
	if ((atomic_fetch_add(&r->gate, n) & REMOTE_CLOSED) || atomic_load(&r->handle) != handle) {
		atomic_fetch_sub(&r->gate, n);
		return ESCROW_E_INVALID;
	}
	t->remote = r;
	t->peer = r->peer;
	t->counted = n;
	return ESCROW_OK;
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
	escrow_status st;

	leave_remote(e, t);
	st = hold_remote(e, t);
	if (st < 0)
		return st;
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

/* lane. For how many slices there is a place in its queue and in the chain, which is its own. */
static inline uint32_t places_left(const struct escrow_engine *e, const struct conn *c)
{
	uint32_t queue = depth_left(e, c), chain = CHAIN_WRS - c->lane->chain.n;

	return queue < chain ? queue : chain;
}

/* The peer's only connection and its lane, for the rest of the call. */
static escrow_status take_only(struct escrow_engine *e, struct transfer *t)
{
	struct conn *c = &t->peer->conns[0];

	t->full = FULL_SLOTS;
	if (atomic_load(&c->ready) == CONN_PAUSED)
		return ESCROW_E_AGAIN;
	if (!usable(t, c))
		return ESCROW_E_PEER_LOST;
	t->full = FULL_BUSY;
	if (!have_lane(t, c->lane))
		return ESCROW_E_AGAIN;
	/* Looked at again under the lane: a peer that leaves clears it there. */
	if (!usable(t, c))
		return ESCROW_E_PEER_LOST;
	place_in_chain(e, c, 1);
	t->only = c;
	t->chain = &c->lane->chain;
	t->ledger = c->lane->ledger;
	t->in = c->lane->in;
	t->inline_below = inline_below(c, ESCROW_WRITE);
	t->debts = lg_conn_find(t->ledger, c->owner);
	t->room = t->debts ? places_left(e, c) : 0;
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

/* One range that one slice takes: charged, lent and chained in one step, or nothing. */
static escrow_status whole_op(struct escrow_engine *e, struct transfer *t, struct op *op)
{
	struct ledger_loan loan;
	struct span span;
	struct conn *c;
	uint64_t id;
	escrow_status st = take_conn(e, t, &c);

	if (st < 0)
		return st;
	place_in_chain(e, c, 1);
	loan = loan_of(t, c);
	st = ledger_op_lend(c->lane->ledger, (uint64_t)(op - e->op_table), &loan, &id);
	if (st < 0)
		return lent(st);
	span = span_of(t, c);
	chain_up(&c->lane->chain, &span, id, 0, t->total, NATIVE_SIGNALED);
	if (c == t->only)
		t->room = places_left(e, c);
	return ESCROW_OK;
}

/* One range that several slices take, over the peer's only connection: the same. */
static escrow_status run_op(struct escrow_engine *e, struct transfer *t, struct op *op,
			    uint64_t size, uint32_t n)
{
	uint64_t ids[CHAIN_WRS];
	struct ledger_loan loan;
	struct span span;
	struct conn *c;
	uint32_t i;
	escrow_status st = take_conn(e, t, &c);

	if (st == ESCROW_OK && n > depth_left(e, c))
		st = ESCROW_E_AGAIN;
	if (st < 0)
		return st;
	place_in_chain(e, c, n);
	loan = loan_of(t, c);
	st = ledger_run_lend(c->lane->ledger, (uint64_t)(op - e->op_table), &loan, size, n, ids);
	if (st < 0)
		return lent(st);
	span = span_of(t, c);
	for (i = 0; i + 1 < n; i++)
		chain_up(&c->lane->chain, &span, ids[i], i * size, size, 0);
	chain_up(&c->lane->chain, &span, ids[i], i * size, t->total - i * size, NATIVE_SIGNALED);
	t->room = places_left(e, c);
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
/* The remote and the connection of the ops from here on: as the long way, for the short one's first. */
static bool enter_shortly(struct escrow_engine *e, struct transfer *t)
{
	const struct escrow_op *op = t->op;

	leave_remote(e, t);
	if (e->ops_limited || hold_remote(e, t) < 0)
		return false;
	if (!lies_in(op->remote_offset, t->total, t->remote->length)) {
		let_remote(t);
		return false;
	}
	return count(e, t) == ESCROW_OK && t->peer->nconns == 1 && take_only(e, t) == ESCROW_OK;
}

/*
 * The short way of the commonest op: one range that one slice takes, over the only connection of its peer.  Does
 * all of it or nothing, and decides no error: whatever is not as it usually is goes the long way.
 */
static inline bool short_op(struct escrow_engine *e, struct transfer *t)
{
	const struct escrow_op *op = t->op;
	const struct escrow_sge *range = op->sge;
	const struct region_part *part;
	struct op *mine;
	uint64_t id;

	if (UNLIKELY(op->nsge != 1 || !range || op->opcode - ESCROW_READ > 1 ||
		     (op->flags | op->reserved0 | op->reserved1)))
		return false;
	t->region = en_region_find(e, range->region);
	t->total = range->length;
	if (UNLIKELY(!t->region || !lies_in(range->offset, t->total, t->region->length) ||
		     t->total - 1 >= e->whole_bytes))
		return false;
	if (UNLIKELY((op->remote != t->handle || !t->counted) && !enter_shortly(e, t)))
		return false;
	if (UNLIKELY(!t->room || !(t->remote->rights & op->opcode) ||
		     !lies_in(op->remote_offset, t->total, t->remote->length)))
		return false;
	mine = op_take(e, t);
	if (UNLIKELY(!mine))
		return false;
	part = &t->region->parts[t->in];
	id = ledger_lend_alone(t->ledger, t->debts, LEDGER_SLOT(t->id),
			       &(struct ledger_loan){.region = part->owner,
						     .offset = range->offset,
						     .length = t->total,
						     .opcode = op->opcode});
	if (UNLIKELY(!id)) {
		en_op_unused(e, t, mine);
		return false;
	}
	chain_up(t->chain,
		 &(struct span){.addr = t->region->addr + range->offset,
				.remote_addr = t->remote->addr + op->remote_offset,
				.inline_below = op->opcode == ESCROW_WRITE ? t->inline_below : 0,
				.opcode = op->opcode == ESCROW_WRITE ? NATIVE_WRITE : NATIVE_READ,
				.key = part->key,
				.rkey = t->remote->keys[0]},
		 id, 0, t->total, NATIVE_SIGNALED);
	t->room--;
	if (UNLIKELY(mine->deadline))
		en_deadline_add(e, mine);
	return true;
}

static __attribute__((noinline)) escrow_status long_op(struct escrow_engine *e, struct transfer *t)
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

static inline escrow_status one(struct escrow_engine *e, struct transfer *t)
{
	escrow_status st = short_op(e, t) ? ESCROW_OK : long_op(e, t);

	if (st < 0)
		return st;
	t->left--;
	t->counted--;
	t->bytes[t->op->opcode - ESCROW_READ] += t->total;
	return ESCROW_OK;
}

_Static_assert(ESCROW_MAY_READ == ESCROW_READ && ESCROW_MAY_WRITE == ESCROW_WRITE,
	       "an opcode is the right that it needs");

/* Full: whoever frees what was missing tells ROOM.  Looked at once more for each thing, or the news were missed. */
static bool ask_for_room(struct escrow_engine *e, struct transfer *t)
{
	uint32_t reason = 1u << t->full;

	if (t->asked & reason)
		return false;
	if (!t->asked)
		engine_count(&e->counters.again, 1);
	t->asked |= reason;
	atomic_store(t->full == FULL_BUSY   ? &e->busy_wanted
		     : t->full == FULL_POOL ? &e->pool_wanted
					    : &t->peer->room_wanted,
		     1);
	return true;
}

static int32_t run(struct escrow_engine *e, struct transfer *t, const struct escrow_op *op,
		   uint32_t n, uint32_t stride, uint64_t *ops)
{
	escrow_status st = ESCROW_OK;
	uint32_t done = 0;

	t->held = 0;
	t->left = n;
	t->handle = 0;
	t->counted = 0;
	t->only = NULL;
	t->room = 0;
	t->asked = 0;
	t->spare = POOL_NONE;
	t->bytes[0] = t->bytes[1] = 0;
	while (done < n) {
		t->op = op;
		st = one(e, t);
		if (st == ESCROW_E_AGAIN && !done && ask_for_room(e, t))
			continue;
		if (st < 0)
			break;
		ops[done++] = t->id;
		op = (const struct escrow_op *)(const void *)((const char *)op + stride);
	}
	/* What was wanted stays so: it may be another call's wish by now, and a ROOM too many does no harm. */
	en_transfer_end(e, t);
	if (t->counted)
		leave_remote(e, t);
	if (t->spare != POOL_NONE)
		en_give_spare(e, t);
	if (!done)
		return st;
	engine_count(&e->counters.ops_accepted, done);
	engine_count(&e->counters.bytes_read, t->bytes[0]);
	engine_count(&e->counters.bytes_written, t->bytes[1]);
	return (int32_t)done;
}

int32_t engine_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			uint32_t stride, uint32_t flags, uint64_t *ops)
{
	struct transfer t;

	if (!engine_here(e) || !state_transfers(engine_state(e)))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	if (n == 0)
		return 0;
	if (!op || !ops || !args_stride_ok(stride, sizeof(*op)) || n > INT32_MAX)
		return ESCROW_E_INVALID;
	t.rider = NULL;
	return run(e, &t, op, n, stride, ops);
}

int32_t en_transfer_with(struct escrow_engine *e, const struct escrow_op *op, struct notify *rider,
			 uint64_t *id)
{
	struct transfer t;

	t.rider = rider;
	return run(e, &t, op, 1, sizeof(*op), id);
}
