/* SPDX-License-Identifier: BSD-2-Clause */
/* settle.c - what the ledger hands out when work requests are settled, and what becomes of it. */
#include "backends/engine/settle.h"
#include "backends/ledger/binds.h"

static bool canceled(const struct op *op)
{
	return atomic_load(&op->canceled) == atomic_load(&op->handle);
}

/* Why an op that was not executed ended: as the host asked, or as the peer went. */
static escrow_status ended_by_us(const struct op *op)
{
	const struct peer *p = op->remote->peer;
	escrow_status reason;

	if (canceled(op))
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
		return canceled(op) ? ESCROW_E_CANCELED : ESCROW_E_DEVICE;
	default:
		return ended_by_us(op);
	}
}

/* Its event is filled in: it is told. */
static inline void finish(struct escrow_engine *e, struct op *op, uint32_t state)
{
	struct event_link *before;

	atomic_store_explicit(&op->state, state, memory_order_release);
	before = event_stand(&e->events, &op->done.link);
	ops_leave(e, op->remote, 1);
	/* It may be polled, and have another life, from here on. */
	event_told(e, before, &op->done.link);
}

/* It was told as held, and is back: nobody else has it any more. */
static void tell_returned(struct escrow_engine *e, struct op *op)
{
	atomic_store(&op->held, 0);
	atomic_store(&op->state, OP_DONE);
	event_put(e, &op->returned);
	en_work(e, &e->work);
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
	if (held && atomic_fetch_or(&op->held, OP_TOLD) == OP_BACK)
		tell_returned(e, op);
}

/* Its last slices may come back on one lane while another is about to tell that they are held: that comes first. */
static void op_returned(struct lane *lane, const struct ledger_done *done)
{
	struct escrow_engine *e = lane->e;
	struct op *op = &e->op_table[done->user];

	op->returned.event = (struct event_what){.kind = ESCROW_EV_OP_RETURNED,
						 .custody = ESCROW_CUSTODY_RETURNED,
						 .effect = done->effect,
						 .status = ESCROW_OK,
						 .user = op->user,
						 .object = atomic_load(&op->handle),
						 .bytes = done->bytes};
	if (atomic_fetch_or(&op->held, OP_BACK) == OP_TOLD)
		tell_returned(e, op);
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

void en_peer_wants(struct conn *conn)
{
	struct escrow_engine *e = conn->lane->e;
	struct peer *p = conn->peer;
	uint32_t wants = atomic_load(&p->wants);

	if ((wants & PEER_ROOM) && peer_had_wish(p))
		en_room(e);
	if ((wants & PEER_SETTLED) || atomic_load(&conn->broken) ||
	    ((wants & PEER_EMPTY) && !atomic_load(&p->ops)))
		en_work(e, &p->work);
}

void en_conn_settled(struct conn *conn, uint32_t slices, uint64_t bytes)
{
	conn_settled(conn, slices, bytes);
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

/* What a completion settled, and who counts it has not been told: of one connection; of one remote, and told to the host. */
struct settled {
	struct remote *remote;
	uint32_t ops;
	struct event_out *out; /* where events may be written at once, or NULL */
};

/* An op that went well.  Its event goes to the host at once if none waits before it. */
static void went_well(struct escrow_engine *e, uint64_t i, uint64_t bytes, struct settled *s)
{
	struct op *op = &e->op_table[i];
	struct event_what what = done_well(op, atomic_load(&op->handle), bytes);

	if (UNLIKELY(!s->out || !s->out->left)) {
		op->done.event = what;
		finish(e, op, OP_DONE);
		return;
	}
	if (s->remote != op->remote) {
		if (s->remote)
			ops_leave(e, s->remote, s->ops);
		s->remote = op->remote;
		s->ops = 0;
	}
	s->ops++;
	event_write(&e->events, s->out, &what);
	en_op_over(e, op);
}

/* It is broken.  Refused by the peer's key: no rail of it is to be tried with that any more. */
static void failed(struct conn *c, const struct native_cqe *cqe)
{
	if (cqe->status == NATIVE_REMOTE_ACCESS)
		en_peer_misbehaves(c->peer);
	en_work(c->lane->e, &c->peer->work);
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

static void take_send(struct lane *lane, const struct native_cqe *cqe, struct event_out *out)
{
	struct ledger_cqe lc = {.wr_id = cqe->id, .outcome = outcome_of(cqe->status)};
	struct settled s = {.out = out};
	struct ledger_done *done = lane->done;
	struct conn *conn;
	int32_t n, i;

	do {
		n = ledger_settle(lane->ledger, &lc, done, CQE_BATCH);
		conn = (struct conn *)(uintptr_t)lc.user;
		/* Before anybody hears of what was on it: that went with it.  Its own end comes behind theirs. */
		if (cqe->status != NATIVE_OK && conn)
			conn_breaks(conn);
		for (i = 0; i < n; i++)
			settle(lane, &done[i], cqe->status == NATIVE_OK ? 0 : cqe->vendor, &s);
		if (n >= 0)
			en_conn_settled(conn, lc.slices, lc.bytes);
	} while (lc.more);
	if (s.remote)
		ops_leave(lane->e, s.remote, s.ops);
	if (n < 0)
		engine_count(&lane->e->counters.anomalies, 1);
	if (cqe->status != NATIVE_OK && conn)
		failed(conn, cqe);
}

/* Any completion; out: as of en_take(). */
static __attribute__((noinline)) void take_any(struct lane *lane, const struct native_cqe *cqe,
					       struct event_out *out)
{
	const struct native_ops *ops = lane->e->ops;
	struct native_cqe told = *cqe;

	if (told.status != NATIVE_OK && ops->failure)
		told.status = ops->failure(told.status);
	if (told.id >> 56 == CHANNEL_ID)
		en_channel_received(lane, &told);
	else
		take_send(lane, &told, out && event_empty(&lane->e->events) ? out : NULL);
}

/* Binds and invalidations in a row, on one connection, that went well: how many of the first n are so. */
static __attribute__((noinline)) uint32_t take_windows(struct lane *lane,
						       const struct native_cqe *cqe, uint32_t n)
{
	struct ledger_conn *debts = ledger_row_conn(lane->ledger, cqe->id);
	struct ledger_done done;
	uint32_t k = 0;

	if (!debts)
		return 0;
	while (k < n && cqe[k].status == NATIVE_OK && ledger_row_window(debts, cqe[k].id, &done)) {
		en_window_settle(lane->e, &done);
		k++;
	}
	if (k)
		conn_settled((struct conn *)(uintptr_t)debts->user, 0, 0);
	return k;
}

static __attribute__((noinline)) uint32_t take_others(struct lane *lane,
						      const struct native_cqe *cqe, uint32_t n,
						      struct event_out *out)
{
	uint32_t k = take_windows(lane, cqe, n);

	if (!k && out && event_empty(&lane->e->events))
		k = take_row(lane, cqe, n, out, true);
	if (k)
		return k;
	take_any(lane, cqe, out);
	return 1;
}

/* One way or another, some of the first n. */
static uint32_t take_some(struct lane *lane, const struct native_cqe *cqe, uint32_t n,
			  struct event_out *out)
{
	uint32_t k = 0;

	if (LIKELY(out && event_empty(&lane->e->events)))
		k = take_row(lane, cqe, n, out, false);
	return LIKELY(k) ? k : take_others(lane, cqe, n, out);
}

void en_take(struct lane *lane, const struct native_cqe *cqe, uint32_t n, struct event_out *out)
{
	uint32_t i, k;

	for (i = 0; i < n; i += k)
		k = take_some(lane, &cqe[i], n - i, out);
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
