/* SPDX-License-Identifier: BSD-2-Clause */
/* settle.h - the commonest completions, inline: a poll takes them without a call (poll.c), all others by settle.c. */
#ifndef ENGINE_SETTLE_H
#define ENGINE_SETTLE_H

#include "backends/engine/transfer.h"

/* Whoever calls it pays no call, though there are several of them. */
#define HOT inline __attribute__((always_inline))

/*
 * The counts go down when the events have their places, so that DRAINED comes behind them, and before the host sees them.
 * Of a connection whose lane we have: who waits for that hears it by conn_settled(), and as the lane is given back.
 */
static inline void ops_end(struct escrow_engine *e, struct remote *remote, uint32_t n)
{
	engine_count(&e->counters.ops_done, n);
	atomic_fetch_sub(&e->active, n);
	atomic_fetch_sub(&remote->peer->ops, n);
	/* The last look at the peer: it is the remote's as long as something is behind its gate. */
	atomic_fetch_sub(&remote->gate, n);
}

/* The same, told at once. */
static inline void ops_leave(struct escrow_engine *e, struct remote *remote, uint32_t n)
{
	engine_count(&e->counters.ops_done, n);
	uncount(e, remote, n);
}

/* lane. So much of it is settled. */
static inline void conn_settled(struct conn *conn, uint32_t slices, uint64_t bytes)
{
	conn->slices -= slices;
	/* Read by others to choose a connection; written by the holder of the lane alone. */
	atomic_store_explicit(&conn->outstanding,
			      atomic_load_explicit(&conn->outstanding, memory_order_relaxed) -
				      bytes,
			      memory_order_relaxed);
	if (UNLIKELY(atomic_load(&conn->peer->wants)))
		en_peer_wants(conn);
}

/* handle: the op's. */
static inline struct event_what done_well(const struct op *op, uint64_t handle, uint64_t bytes)
{
	return (struct event_what){.user = op->user,
				   .object = handle,
				   .kind = ESCROW_EV_OP_DONE,
				   .custody = ESCROW_CUSTODY_RETURNED,
				   .effect = ESCROW_EFFECT_EXECUTED,
				   .bytes = bytes};
}

/* What completions in a row have in common; debts is NULL if they may not be taken so. */
struct taking {
	struct escrow_engine *e;
	struct lane *lane;
	struct ledger_conn *debts;
	struct ledger_oldest oldest;
	struct conn *conn;
	uint32_t *slots; /* where those of their ops go */
};

/*
 * lane. It keeps those of ops over their peer's only connection: others take theirs from the pool.  Not while one is
 * wanted there: that is looked at under the lane, as who wants one looks at the lane when it has said so.
 */
static inline struct taking taking_of(struct escrow_engine *e, struct lane *lane,
				      const struct native_cqe *cqe)
{
	struct taking t = {.e = e, .lane = lane, .debts = ledger_row_conn(lane->ledger, cqe->id)};

	if (LIKELY(t.debts)) {
		t.oldest = ledger_oldest_of(lane->ledger, t.debts);
		t.conn = (struct conn *)(uintptr_t)t.debts->user;
		t.slots = LIKELY(!(atomic_load(&t.e->wants) & WANT_OP)) ? t.conn->slots
									: &t.e->ended;
	}
	return t;
}

/*
 * lane. The op that a completion ends as most do: a success, of all that it still owes; of one range, on this connection,
 * without a deadline or a rider.  NULL: not so.  Nothing is done yet.
 */
static HOT struct op *ends_well(const struct taking *t, const struct native_cqe *cqe, bool sliced,
				struct ledger_end *end)
{
	struct op *op;

	if (UNLIKELY(cqe->status != NATIVE_OK))
		return NULL;
	if (UNLIKELY(sliced ? !ledger_row_whole(t->lane->ledger, t->debts, cqe->id, end)
			    : !ledger_oldest_alone(&t->oldest, cqe->id, end)))
		return NULL;
	op = &t->e->op_table[end->user];
	return LIKELY(!op->odd) ? op : NULL;
}

/* lane. What it lent is back: its event is written, by this number, and its life ends; slots: where its own goes. */
static HOT void end_well(const struct taking *t, struct op *op, const struct ledger_end *end,
			 struct escrow_event *at, uint64_t seq, uint32_t *slots)
{
	uint64_t handle = atomic_load_explicit(&op->handle, memory_order_relaxed);
	struct event_what what = done_well(op, handle, end->bytes);

	event_fill(at, seq, &what);
	op_end(op, handle);
	slot_back(t->e, slots, (uint32_t)end->user);
}

/* lane. Takes one, of an op of one slice or of several, if it is so; at: the place for its event. */
static HOT bool take_one(struct escrow_engine *e, struct lane *lane, const struct native_cqe *cqe,
			 struct escrow_event *at, bool sliced)
{
	struct taking t = taking_of(e, lane, cqe);
	struct ledger_end end;
	struct remote *remote;
	struct op *op;

	if (UNLIKELY(!t.debts))
		return false;
	op = ends_well(&t, cqe, sliced, &end);
	if (UNLIKELY(!op))
		return false;
	remote = op->remote;
	if (sliced)
		ledger_whole_settle(lane->ledger, t.debts, &end);
	else
		ledger_alone_settle(lane->ledger, t.debts, &end);
	end_well(&t, op, &end, at, ++e->events.seq, t.slots);
	ops_end(e, remote, 1);
	conn_settled(t.conn, end.slices, end.bytes);
	return true;
}

/*
 * lane. Several in a row, on one connection and to one remote, of one slice each or of several: how many of the first n
 * are so, and have places for their events.
 */
static HOT uint32_t take_row(struct lane *lane, const struct native_cqe *cqe, uint32_t n,
			     struct event_out *told, bool sliced)
{
	struct escrow_engine *e = lane->e;
	struct taking t = taking_of(e, lane, cqe);
	uint64_t seq = e->events.seq, bytes = 0;
	struct event_out out = *told;
	struct remote *remote = NULL;
	uint32_t k, slices = 0, first;

	if (UNLIKELY(!t.debts))
		return 0;
	first = *t.slots;
	if (n > out.left)
		n = out.left;
	if (n > t.oldest.owed)
		n = t.oldest.owed;
	for (k = 0; k < n; k++) {
		struct ledger_end end;
		struct op *op = ends_well(&t, &cqe[k], sliced, &end);

		if (UNLIKELY(!op || (op->remote != remote && remote)))
			break;
		remote = op->remote;
		slices += end.slices;
		bytes += end.bytes;
		if (sliced)
			ledger_whole_settle(lane->ledger, t.debts, &end);
		else
			ledger_oldest_settle(&t.oldest, &end);
		end_well(&t, op, &end, event_place(&out), ++seq, &first);
	}
	if (UNLIKELY(!k))
		return 0;
	if (!sliced)
		ledger_oldest_end(lane->ledger, t.debts, &t.oldest);
	e->events.seq = seq;
	*told = out;
	*t.slots = first;
	ops_end(e, remote, k);
	conn_settled(t.conn, slices, bytes);
	return k;
}

#endif
