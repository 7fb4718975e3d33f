/* SPDX-License-Identifier: BSD-2-Clause */
/* settle.c - what the ledger hands out when work requests are settled, and what becomes of it. */
#include "backends/engine/transfer.h"

/* Why an op that was not executed ended: as the host asked, or as the peer went. */
static escrow_status ended_by_us(const struct op *op)
{
	const struct peer *p = op->peer;
	escrow_status reason;

	if (atomic_load(&op->canceled))
		return ESCROW_E_CANCELED;
	if (atomic_load(&p->state) < PEER_LEAVING)
		return ESCROW_E_PEER_LOST;
	reason = atomic_load(&p->reason);
	return reason == ESCROW_OK ? ESCROW_E_CANCELED : ESCROW_E_PEER_LOST;
}

static escrow_status status_of(const struct op *op, const struct ledger_done *done)
{
	switch ((enum ledger_outcome)done->outcome) {
	case LEDGER_OK:
	case LEDGER_COVERED_OK:
		return ESCROW_OK;
	case LEDGER_NOT_SENT:
	case LEDGER_LOCAL_ERROR:
		return ESCROW_E_DEVICE;
	case LEDGER_REMOTE_ERROR:
		return ESCROW_E_ACCESS;
	case LEDGER_RNR:
	case LEDGER_RETRY_ERROR:
		return ended_by_us(op) == ESCROW_E_CANCELED ? ESCROW_E_CANCELED
							    : ESCROW_E_PEER_LOST;
	case LEDGER_REJECTED:
		return atomic_load(&op->canceled) ? ESCROW_E_CANCELED : ESCROW_E_DEVICE;
	default:
		return ended_by_us(op);
	}
}

/* The counts go down after the events are on their way, so that DRAINED comes behind them. */
static inline void ops_leave(struct escrow_engine *e, struct remote *remote, uint32_t n)
{
	struct peer *p = remote->peer;

	engine_count(&e->counters.ops_done, n);
	atomic_fetch_sub(&e->active, n);
	if (atomic_fetch_sub(&p->ops, n) == n && atomic_load(&p->watched))
		en_work(e, &p->work);
	/* The last look at the peer: it is the remote's as long as something is behind its gate. */
	atomic_fetch_sub(&remote->gate, n);
	if (atomic_load(&e->watched))
		en_work(e, &e->work);
}

/* Its event is filled in: it is told. */
static inline void finish(struct escrow_engine *e, struct op *op, uint32_t state)
{
	struct remote *remote = op->remote;

	atomic_store_explicit(&op->state, state, memory_order_release);
	event_put(e, &op->done);
	/* It may have been polled, and have another life, by now. */
	ops_leave(e, remote, 1);
}

void en_op_tell(struct escrow_engine *e, struct op *op, const struct event_what *what)
{
	op->done.event = *what;
	finish(e, op, what->custody == ESCROW_CUSTODY_HELD ? OP_HELD : OP_DONE);
}

static void op_done_slowly(struct escrow_engine *e, struct op *op, const struct ledger_done *done,
			   uint32_t vendor)
{
	bool held = done->what == LEDGER_DONE_UNQUIESCED;
	struct event_what what = {
		.kind = ESCROW_EV_OP_DONE,
		.custody = held ? ESCROW_CUSTODY_HELD : ESCROW_CUSTODY_RETURNED,
		.effect = done->effect,
		.status = status_of(op, done),
		.user = op->user,
		.object = atomic_load(&op->handle),
		.bytes = done->bytes,
		.vendor = vendor,
	};

	if (held)
		what.status = atomic_load(&e->state) == ESCROW_STATE_FAILED ? ESCROW_E_DEVICE
									    : ESCROW_E_UNQUIESCED;
	if (!op->rider || !en_note_op_done(e, op, &what))
		en_op_tell(e, op, &what);
}

static void op_returned(struct lane *lane, const struct ledger_done *done)
{
	struct escrow_engine *e = lane->e;
	struct op *op = &e->op_table[done->user];

	atomic_store(&op->state, OP_DONE);
	event_send(e, &op->returned,
		   &(struct event_what){.kind = ESCROW_EV_OP_RETURNED,
					.custody = ESCROW_CUSTODY_RETURNED,
					.effect = done->effect,
					.status = ESCROW_OK,
					.user = op->user,
					.object = atomic_load(&op->handle),
					.bytes = done->bytes});
	en_work(e, &e->work);
}

void en_settle(struct lane *lane, const struct ledger_done *done, uint32_t vendor)
{
	switch (done->what) {
	case LEDGER_DONE_OP:
	case LEDGER_DONE_UNQUIESCED:
		op_done_slowly(lane->e, &lane->e->op_table[done->user], done, vendor);
		break;
	case LEDGER_DONE_RETURNED:
		op_returned(lane, done);
		break;
	case LEDGER_DONE_BIND:
	case LEDGER_DONE_INVALIDATE:
		en_window_settle(lane->e, done);
		break;
	case LEDGER_DONE_MESSAGE:
		en_channel_sent((struct message_slot *)(uintptr_t)done->subject);
		break;
	default: /* SENTINEL: whoever waits looks at the debt */
		break;
	}
}

void en_conn_settled(struct conn *conn, uint32_t slices, uint64_t bytes)
{
	struct escrow_engine *e = conn->lane->e;
	struct peer *p = conn->peer;

	conn->slices -= slices;
	/* Read by others to choose a connection; written by the holder of the lane alone. */
	atomic_store_explicit(&conn->outstanding,
			      atomic_load_explicit(&conn->outstanding, memory_order_relaxed) -
				      bytes,
			      memory_order_relaxed);
	if (atomic_load(&p->room_wanted) && atomic_exchange(&p->room_wanted, 0))
		en_room(e);
	if (atomic_load(&conn->broken) || atomic_load(&p->state) == PEER_LEAVING)
		en_work(e, &p->work);
}

static inline enum ledger_outcome outcome_of(enum native_status status)
{
	switch (status) {
	case NATIVE_OK:
		return LEDGER_OK;
	case NATIVE_LOCAL:
		return LEDGER_LOCAL_ERROR;
	case NATIVE_REMOTE_ACCESS:
	case NATIVE_REMOTE:
		return LEDGER_REMOTE_ERROR;
	case NATIVE_RNR:
		return LEDGER_RNR;
	case NATIVE_FLUSHED:
		return LEDGER_FLUSHED;
	case NATIVE_RETRY:
	case NATIVE_OTHER:
		break;
	}
	return LEDGER_RETRY_ERROR;
}

/* What completions settled, and who counts it has not been told: of one connection; of one remote, and told to the host. */
struct settled {
	struct conn *conn;
	uint32_t slices, ops;
	uint64_t bytes;
	struct remote *remote;
	struct event_out *out; /* where events may be written at once, or NULL */
};

static inline void add_slices(struct settled *s, struct conn *conn, uint32_t slices, uint64_t bytes)
{
	if (s->conn != conn && s->conn) {
		en_conn_settled(s->conn, s->slices, s->bytes);
		s->slices = 0;
		s->bytes = 0;
	}
	s->conn = conn;
	s->slices += slices;
	s->bytes += bytes;
}

static inline void add_op(struct escrow_engine *e, struct settled *s, struct remote *remote)
{
	if (s->remote != remote && s->remote) {
		ops_leave(e, s->remote, s->ops);
		s->ops = 0;
	}
	s->remote = remote;
	s->ops++;
}

static void tell_settled(struct escrow_engine *e, struct settled *s)
{
	if (s->remote)
		ops_leave(e, s->remote, s->ops);
	if (s->conn)
		en_conn_settled(s->conn, s->slices, s->bytes);
}

/* The commonest: an op that went well.  Its event goes to the host at once if none waits before it. */
static __attribute__((always_inline)) inline void went_well(struct escrow_engine *e, uint64_t i,
							    uint64_t bytes, struct settled *s)
{
	struct op *op = &e->op_table[i];
	struct event_what what = {.user = op->user,
				  .object = atomic_load_explicit(&op->handle, memory_order_relaxed),
				  .kind = ESCROW_EV_OP_DONE,
				  .custody = ESCROW_CUSTODY_RETURNED,
				  .effect = ESCROW_EFFECT_EXECUTED,
				  .bytes = bytes};

	if (UNLIKELY(!s->out || !s->out->left)) {
		op->done.event = what;
		finish(e, op, OP_DONE);
		return;
	}
	add_op(e, s, op->remote);
	event_write(&e->events, s->out, &what);
	en_op_over(e, op, (uint32_t)i);
}

/* Refused by the peer's key: no rail of it is to be tried with that any more. */
static void failed(struct conn *c, const struct native_cqe *cqe)
{
	if (cqe->status == NATIVE_REMOTE_ACCESS)
		en_peer_misbehaves(c->peer);
	else
		en_conn_broken(c);
}

static __attribute__((noinline)) void settle(struct lane *lane, const struct ledger_done *done,
					     uint32_t vendor, struct settled *s)
{
	struct op *op = &lane->e->op_table[done->user];

	if (done->what == LEDGER_DONE_OP && done->outcome == LEDGER_OK && !op->rider) {
		went_well(lane->e, done->user, done->bytes, s);
		return;
	}
	en_settle(lane, done, vendor);
	s->out = NULL; /* what waits in the queue now comes first */
}

static __attribute__((noinline)) void take_send(struct lane *lane, const struct native_cqe *cqe,
						struct settled *s)
{
	struct ledger_cqe lc = {.wr_id = cqe->id, .outcome = outcome_of(cqe->status)};
	struct ledger_done *done = lane->done;
	int32_t n, i;

	do {
		n = ledger_settle(lane->ledger, &lc, done, CQE_BATCH);
		for (i = 0; i < n; i++)
			settle(lane, &done[i], cqe->status == NATIVE_OK ? 0 : cqe->vendor, s);
		if (n >= 0)
			add_slices(s, (struct conn *)(uintptr_t)lc.user, lc.slices, lc.bytes);
	} while (lc.more);
	if (n < 0)
		engine_count(&lane->e->counters.anomalies, 1);
	if (cqe->status != NATIVE_OK && lc.user)
		failed((struct conn *)(uintptr_t)lc.user, cqe);
}

/* The commonest completion: a success of a slice that is its own parent.  All of it, or nothing. */
static __attribute__((always_inline)) inline bool take_alone(struct lane *lane,
							     const struct native_cqe *cqe,
							     struct settled *s)
{
	struct escrow_engine *e = lane->e;
	const struct ledger_debt *debt;
	struct ledger_conn *conn;
	struct ledger_done done;
	struct op *op;

	if (UNLIKELY(cqe->status != NATIVE_OK))
		return false;
	debt = ledger_settle_alone(lane->ledger, cqe->id, &conn);
	if (UNLIKELY(!debt))
		return false;
	add_slices(s, (struct conn *)(uintptr_t)conn->user, 1, debt->length);
	op = &e->op_table[debt->subject];
	if (LIKELY(!op->rider)) {
		went_well(e, debt->subject, debt->length, s);
		return true;
	}
	ledger_done_alone(debt, &done);
	settle(lane, &done, 0, s);
	return true;
}

void en_take(struct lane *lane, const struct native_cqe *cqe, uint32_t n, struct event_out *out)
{
	struct settled s = {.out = out && event_empty(&lane->e->events) ? out : NULL};
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (LIKELY(take_alone(lane, &cqe[i], &s)))
			continue;
		if (cqe[i].id >> 56 == CHANNEL_ID)
			en_channel_received(lane, &cqe[i]);
		else
			take_send(lane, &cqe[i], &s);
	}
	tell_settled(lane->e, &s);
}

void en_collect(struct conn *conn)
{
	struct lane *lane = conn->lane;
	struct ledger_done done[CQE_BATCH];
	int32_t n, i;

	do {
		n = ledger_conn_collect(lane->ledger, conn->owner, done, CQE_BATCH);
		for (i = 0; i < n; i++)
			en_settle(lane, &done[i], 0);
	} while (n == CQE_BATCH);
	/* A reset that counts settles all of it at once, whatever it was. */
	if (!ledger_conn_debt(lane->ledger, conn->owner))
		en_conn_settled(conn, conn->slices,
				atomic_load_explicit(&conn->outstanding, memory_order_relaxed));
}
