/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Settling: a completion moves its queue's head.  The common case (a success, plain slices, no log)
 * takes a short way of its own; every other goes one debt at a time.
 */
#include "backends/ledger/op.h"

static inline bool alone(const struct ledger_debt *d)
{
	return d->shape.of.what == LEDGER_WR_SLICE && d->op == NONE;
}

static inline void unlend(struct ledger_lane *lane, const struct ledger_debt *d)
{
	if (LIKELY(d->shape.of.nregions == 1)) {
		PUT(lane->loans[d->region[0]], lane->loans[d->region[0]] - 1);
		return;
	}
	for (unsigned int i = 0; i < d->shape.of.nregions; i++)
		PUT(lane->loans[d->region[i]], lane->loans[d->region[i]] - 1);
}

static __attribute__((noinline)) uint32_t other_ended(struct ledger_lane *lane,
						      struct ledger_conn *conn,
						      const struct ledger_debt *d,
						      enum ledger_outcome outcome,
						      struct ledger_done *done)
{
	if (d->shape.of.what == LEDGER_WR_SENTINEL)
		PUT(conn->sentinel, 0);
	*done = (struct ledger_done){.subject = d->subject,
				     .what = LEDGER_DONE_BIND - LEDGER_WR_BIND + d->shape.of.what,
				     .outcome = (uint8_t)outcome,
				     .effect = ledger_effect(outcome),
				     .releases = lane->believes};
	return 1;
}

static inline uint32_t debt_ended(struct ledger_lane *lane, struct ledger_conn *conn,
				  const struct ledger_debt *d, enum ledger_outcome outcome,
				  struct ledger_done *done)
{
	unlend(lane, d);
	if (!alone(d))
		PUT(conn->parts, conn->parts - 1);
	if (UNLIKELY(d->shape.of.what != LEDGER_WR_SLICE))
		return other_ended(lane, conn, d, outcome, done);
	return op_settled(lane, d, outcome, done);
}

/* Settles the oldest debt.  One that was given out as stuck comes back to its op as such. */
uint32_t lg_debt_settle(struct ledger_lane *lane, struct ledger_conn *conn,
			enum ledger_outcome outcome, struct ledger_done *done)
{
	struct ledger_debt *d = &conn->ring[conn->head & conn->mask];
	bool stuck = conn->was_stuck && (int32_t)(conn->stuck_upto - conn->head) > 0;

	PUT(conn->head, conn->head + 1);
	if (!stuck || d->shape.of.what != LEDGER_WR_SLICE)
		return debt_ended(lane, conn, d, outcome, done);
	unlend(lane, d);
	if (!alone(d))
		PUT(conn->parts, conn->parts - 1);
	return lg_op_unstuck(lane, d, outcome, done);
}

/* A rejected bind or invalidation: its slot is kept for the window again. */
static void keep_again(struct ledger *l, struct ledger_conn *conn, uint64_t window)
{
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, window, ESCROW_OWNER_WINDOW);
	if (slot != NONE && window_conn(l, slot) == conn->slot) {
		window_of(l, slot)->kept++;
		lg_keep(conn, 1);
	}
	lg_unlock(l);
}

static uint64_t subject_of(const struct ledger_lane *lane, const struct ledger_debt *d)
{
	return d->shape.of.what == LEDGER_WR_SLICE && d->op != NONE
		       ? lane->ledger->ops[d->op].handle
		       : d->subject;
}

int32_t ledger_rejected(struct ledger_lane *lane, uint64_t connection, uint32_t rejected,
			struct ledger_done *done, uint32_t max)
{
	struct ledger_conn *conn = lg_conn_find(lane, connection);
	uint32_t n = 0;

	if (!conn || conn->collect || rejected > conn->tail - conn->head)
		return ESCROW_E_INVALID;
	if (rejected > max)
		return ESCROW_E_TOO_SMALL;
	while (rejected-- > 0) {
		struct ledger_debt *d = &conn->ring[(conn->tail - 1) & conn->mask];

		log_lane(lane, LOG_CODE(LEDGER_LOG_SETTLE, LEDGER_REJECTED << 8),
			 wr_id_make(conn, conn->tail - 1), subject_of(lane, d));
		PUT(conn->tail, conn->tail - 1);
		if (d->shape.of.what == LEDGER_WR_BIND || d->shape.of.what == LEDGER_WR_INVALIDATE)
			keep_again(lane->ledger, conn, d->subject);
		n += debt_ended(lane, conn, d, LEDGER_REJECTED, &done[n]);
	}
	return (int32_t)n;
}

/* It names no debt, but perhaps a connection, of which it was one: whose error it tells of. */
static __attribute__((noinline, cold)) int32_t anomaly(struct ledger_lane *lane,
						       struct ledger_cqe *cqe)
{
	const struct ledger_conn *conn = poster_find(lane, cqe->wr_id);
	uint64_t wr_id = cqe->wr_id;

	cqe->user = conn ? conn->user : 0;
	PUT(lane->anomalies, lane->anomalies + 1);
	log_lane(lane, LOG_CODE(LEDGER_LOG_ANOMALY, 0), wr_id, 0);
	return ESCROW_E_INVALID;
}

static inline void log_settle(struct ledger_lane *lane, const struct ledger_conn *conn,
			      uint32_t receipt, enum ledger_outcome outcome)
{
	if (LIKELY(!lane->log.entries))
		return;
	log_lane(lane, LOG_CODE(LEDGER_LOG_SETTLE, receipt | (uint32_t)outcome << 8),
		 wr_id_make(conn, conn->head),
		 subject_of(lane, &conn->ring[conn->head & conn->mask]));
}

/* The oldest debt by its own or a later completion; the common way and the rare one. */
static inline uint32_t settle_head(struct ledger_lane *lane, struct ledger_conn *conn,
				   enum ledger_outcome outcome, struct ledger_done *done)
{
	const struct ledger_debt *d = &conn->ring[conn->head & conn->mask];

	if (UNLIKELY(conn->was_stuck))
		return lg_conn_late(lane, conn, outcome, done);
	PUT(conn->head, conn->head + 1);
	return debt_ended(lane, conn, d, outcome, done);
}

/* `n` slices of one op, of one region each, executed `bytes` in all. */
static inline uint32_t settle_run(struct ledger_lane *lane, const struct ledger_debt *d, uint32_t n,
				  uint64_t bytes, struct ledger_done *done)
{
	struct ledger_op *op = &lane->ledger->ops[d->op];
	uint32_t *loans = &lane->loans[d->region[0]];
	uint64_t pending;

	PUT(*loans, *loans - n);
	if (UNLIKELY(op->shared)) {
		op_note(op, LEDGER_OK, bytes);
		pending = op_less(op, n * PENDING_ONE);
	} else {
		op->outcomes |= 1u << LEDGER_OK;
		op->bytes += bytes;
		pending = op->pending - n * PENDING_ONE;
		op->pending = pending;
	}
	return (uint32_t)pending ? 0 : lg_op_report(lane, op, done);
}

static inline bool plain_slice(const struct ledger_debt *d)
{
	return d->shape.of.plain == PLAIN_SLICE || d->shape.of.plain == PLAIN_LAST;
}

/*
 * A success that covers plain slices, nothing logged, nothing of the connection special.  Runs of
 * slices of one op and region are settled together.  Stops before anything else and leaves the rest
 * to settle_any().
 */
static inline uint32_t settle_plain(struct ledger_lane *lane, struct ledger_conn *conn,
				    struct ledger_cqe *cqe, struct ledger_done *done, uint32_t max)
{
	uint32_t last = handle_generation(cqe->wr_id);
	const struct ledger_debt *ring = conn->ring;
	uint32_t mask = conn->mask, head = conn->head, parts = 0, n = 0;

	while (n < max && head != last + 1) {
		const struct ledger_debt *d = &ring[head & mask], *run = d;
		uint32_t start = head, op = d->op, region = d->region[0];
		uint64_t bytes = 0;

		if (d->shape.of.plain == PLAIN_ALONE) {
			PUT(lane->loans[region], lane->loans[region] - 1);
			lane->ops_left++;
			ledger_done_alone(d, &done[n++]);
			cqe->bytes += d->length;
			head++;
			continue;
		}
		while (plain_slice(d) && d->op == op && d->region[0] == region) {
			bytes += d->length;
			if (head++ == last)
				break;
			d = &ring[head & mask];
		}
		if (UNLIKELY(head == start))
			break;
		parts += head - start;
		cqe->bytes += bytes;
		n += settle_run(lane, run, head - start, bytes, &done[n]);
	}
	cqe->slices = head - conn->head;
	PUT(conn->head, head);
	PUT(conn->parts, conn->parts - parts);
	return n;
}

/* Every debt up to `last`, each by its own receipt. */
static __attribute__((noinline)) uint32_t settle_any(struct ledger_lane *lane,
						     struct ledger_conn *conn,
						     struct ledger_cqe *cqe,
						     struct ledger_done *done, uint32_t max)
{
	uint32_t last = handle_generation(cqe->wr_id), n = 0;
	bool ok = cqe->outcome == LEDGER_OK;
	const struct ledger_debt *d;

	/* A bind, an invalidation, a message: by its own. */
	if (ok && conn->head == last && max > 0 && !conn->special && lane->plain &&
	    conn->ring[last & conn->mask].shape.of.what != LEDGER_WR_SLICE) {
		PUT(conn->head, last + 1);
		return debt_ended(lane, conn, &conn->ring[last & conn->mask], LEDGER_OK, done);
	}
	while (n < max) {
		bool own = conn->head == last;
		enum ledger_outcome o = ok ? LEDGER_COVERED_OK : LEDGER_COVERED_ERROR;

		if (own)
			o = cqe->outcome;
		if (own && o == LEDGER_FLUSHED && conn->error_state &&
		    (int32_t)(last - conn->error_from) >= 0)
			o = LEDGER_FLUSHED_AFTER;
		log_settle(lane, conn,
			   !own ? ESCROW_RECEIPT_CQE_COVERED
			   : ok ? ESCROW_RECEIPT_CQE_OK
				: ESCROW_RECEIPT_CQE_ERROR,
			   o);
		d = &conn->ring[conn->head & conn->mask];
		if (d->shape.of.what == LEDGER_WR_SLICE) {
			cqe->slices++;
			cqe->bytes += d->length;
		}
		n += settle_head(lane, conn, o, &done[n]);
		if (own)
			return n;
	}
	cqe->more = 1;
	return n;
}

/* All but the commonest, which is ledger_settle()'s own. */
static __attribute__((noinline)) int32_t settle_others(struct ledger_lane *lane,
						       struct ledger_conn *conn,
						       struct ledger_cqe *cqe,
						       struct ledger_done *done, uint32_t max)
{
	uint32_t last = handle_generation(cqe->wr_id), n = 0;

	if (UNLIKELY(last - conn->head >= conn->tail - conn->head ||
		     cqe->outcome > LEDGER_FLUSHED || max == 0))
		return anomaly(lane, cqe);
	if (UNLIKELY(!lane->believes))
		return ESCROW_E_UNQUIESCED;
	if (LIKELY(cqe->outcome == LEDGER_OK && !conn->special && lane->plain))
		n = settle_plain(lane, conn, cqe, done, max);
	if (UNLIKELY(conn->head != last + 1))
		n += settle_any(lane, conn, cqe, &done[n], max - n);
	return (int32_t)n;
}

int32_t ledger_settle(struct ledger_lane *lane, struct ledger_cqe *cqe, struct ledger_done *done,
		      uint32_t max)
{
	struct ledger_conn *conn;
	const struct ledger_debt *d = debt_named(lane, cqe->wr_id, &conn);

	cqe->more = 0;
	cqe->slices = 0;
	cqe->bytes = 0;
	cqe->user = 0;
	if (UNLIKELY(!d))
		return anomaly(lane, cqe);
	cqe->user = conn->user;
	if (UNLIKELY(cqe->outcome != LEDGER_OK || max == 0 || !settle_alone(lane, conn, d)))
		return settle_others(lane, conn, cqe, done, max);
	ledger_done_alone(d, done);
	cqe->slices = 1;
	cqe->bytes = d->length;
	return 1;
}

uint32_t ledger_slice_state(struct ledger_lane *lane, uint64_t wr_id)
{
	const struct ledger_conn *conn = ring_find(lane, wr_id);

	if (!conn || handle_generation(wr_id) - conn->head >= conn->tail - conn->head)
		return LEDGER_SLICE_SETTLED;
	return conn->held ? LEDGER_SLICE_STUCK : LEDGER_SLICE_POSTED;
}
