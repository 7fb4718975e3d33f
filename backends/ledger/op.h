/* SPDX-License-Identifier: BSD-2-Clause */
/* op.h - the few instructions of the data path that op.c, loan.c and settle.c all need inline. */
#ifndef LEDGER_OP_H
#define LEDGER_OP_H

#include "backends/ledger/hot.h"

/* The connection whose ring a wr_id lies in, or NULL; whether it is owed is another question. */
static inline struct ledger_conn *ring_find(const struct ledger_lane *lane, uint64_t wr_id)
{
	struct ledger *l = lane->ledger;
	uint32_t i = handle_slot(wr_id) >> l->shift;
	struct ledger_conn *conn = &l->conns[i];

	if (UNLIKELY(i >= l->config.max_connections || conn->lane != lane ||
		     wr_id != wr_id_make(conn, handle_generation(wr_id))))
		return NULL;
	return conn;
}

/*
 * The connection that a work request was of which its ring may still remember, or NULL: not one of an
 * earlier owner of the ring, whose late completions say nothing of who has the queue now.
 */
static inline struct ledger_conn *poster_find(const struct ledger_lane *lane, uint64_t wr_id)
{
	struct ledger_conn *conn = ring_find(lane, wr_id);
	uint32_t age = conn ? conn->tail - handle_generation(wr_id) - 1u : 0;

	return conn && age <= conn->mask && age < conn->tail - conn->first ? conn : NULL;
}

#define ALL_OK (1u << LEDGER_OK | 1u << LEDGER_COVERED_OK)

/* Takes `less` from an op's pending word and returns what is left. */
static inline uint64_t op_less(struct ledger_op *op, uint64_t less)
{
	if (LIKELY(!op->shared))
		return op->pending -= less;
	return __atomic_sub_fetch(&op->pending, less, __ATOMIC_ACQ_REL);
}

/* What is pending of one that has not been reported, and of which nothing is outstanding or stuck. */
static inline uint64_t op_reports(const struct ledger_op *op)
{
	return op->shared ? PENDING_STUCK : 0;
}

static inline void op_note(struct ledger_op *op, enum ledger_outcome outcome, uint64_t length)
{
	uint32_t bit = 1u << outcome;
	uint64_t executed = bit & ALL_OK ? length : 0;

	if (LIKELY(!op->shared)) {
		op->outcomes |= bit;
		op->bytes += executed;
		return;
	}
	__atomic_fetch_or(&op->outcomes, bit, __ATOMIC_RELAXED);
	__atomic_fetch_add(&op->bytes, executed, __ATOMIC_RELAXED);
}

/* One slice less is outstanding: 1 if that was the last and *done tells it. */
static inline uint32_t op_settled(struct ledger_lane *lane, const struct ledger_debt *debt,
				  enum ledger_outcome outcome, struct ledger_done *done)
{
	struct ledger_op *op;

	if (debt->op == NONE)
		return lg_alone_ended(lane, debt, outcome, done);
	op = &lane->ledger->ops[debt->op];
	op_note(op, outcome, debt->length);
	if ((uint32_t)op_less(op, PENDING_ONE))
		return 0;
	return lg_op_report(lane, op, done);
}

#endif
