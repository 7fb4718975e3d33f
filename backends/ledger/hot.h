/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hot.h - the two commonest moves of the data path, inline: a slice that is its own parent is lent, and its
 * success is settled.  Each does all of its move or nothing, and decides no error: what is not as it usually
 * is goes to ledger_op_lend() and ledger_settle(), which begin with these.
 */
#ifndef LEDGER_HOT_H
#define LEDGER_HOT_H

#include "backends/ledger/ledger-int.h"

static inline uint64_t wr_id_make(const struct ledger_conn *conn, uint32_t sequence)
{
	return conn->wr_base | (uint64_t)sequence << SLOT_BITS | (sequence & conn->mask);
}

/* May the range be lent?  i: the index that the handle names. */
static inline bool region_lends(const struct ledger *l, uint32_t i, uint64_t handle,
				uint64_t offset, uint64_t length)
{
	const struct ledger_lendable *r = &l->lendable[i];
	uint64_t end;

	return i < l->nregions && __atomic_load_n(&r->handle, __ATOMIC_ACQUIRE) == handle &&
	       !__builtin_add_overflow(offset, length, &end) && end <= GET(r->length);
}

/* What the slices of a parent have in common.  region: an index, or NONE for inline data. */
static inline uint32_t shape_of(uint32_t region, uint32_t opcode, enum plain plain)
{
	union ledger_shape shape = {.of = {.what = LEDGER_WR_SLICE,
					   .nregions = region != NONE,
					   .opcode = (uint8_t)opcode,
					   .plain = region != NONE ? (uint8_t)plain : PLAIN_NOT}};

	return shape.word;
}

/* A slice of the ring; op is NONE if it is its own parent. */
static inline void put_debt(struct ledger_debt *d, uint64_t offset, uint64_t length, uint32_t op,
			    uint64_t wr_id, uint32_t region, uint32_t shape)
{
	d->offset = offset;
	d->length = length;
	d->op = op;
	d->region[0] = region;
	d->shape.word = shape;
	d->wr_id = wr_id;
}

/* lane. Slots of its send queue that are not free for slices. */
static inline uint32_t conn_taken(const struct ledger_conn *conn)
{
	return conn->planned + conn->tail - conn->head + GET(conn->kept);
}

/*
 * lane. ledger_op_lend() on a connection that was looked up since the lane was taken: the wr_id, or 0.
 * Of the loan, op and connection are not looked at.
 */
static inline uint64_t ledger_lend_alone(struct ledger_lane *lane, struct ledger_conn *conn,
					 uint64_t user, const struct ledger_loan *loan)
{
	struct ledger *l = lane->ledger;
	uint32_t region = handle_slot(loan->region) - l->region_base, tail = conn->tail;
	struct ledger_debt *d = &conn->ring[tail & conn->mask];
	uint64_t wr_id = wr_id_make(conn, tail);

	if (UNLIKELY(!conn->ready || GET(l->ops_slowly) || lane->ops_left == 0 ||
		     conn_taken(conn) >= conn->room ||
		     !region_lends(l, region, loan->region, loan->offset, loan->length)))
		return 0;
	put_debt(d, loan->offset, loan->length, NONE, wr_id, region,
		 shape_of(region, loan->opcode, PLAIN_ALONE));
	d->subject = user;
	lane->ops_left--;
	PUT(lane->loans[region], lane->loans[region] + 1);
	PUT(conn->tail, tail + 1);
	if (UNLIKELY(!lane->plain))
		lg_log_alone(lane, wr_id, user);
	return wr_id;
}

/*
 * lane. The debt that a wr_id names, and its connection; NULL: none.  One that was settled long ago may still
 * stand there: whether it is owed is another question.
 */
static inline const struct ledger_debt *debt_named(const struct ledger_lane *lane, uint64_t wr_id,
						   struct ledger_conn **conn_out)
{
	const struct ledger *l = lane->ledger;
	uint32_t at = handle_slot(wr_id);
	struct ledger_conn *conn = &l->conns[at >> l->shift];
	const struct ledger_debt *d = &l->debts[at];

	if (UNLIKELY(at >= l->ndebts || d->wr_id != wr_id || conn->lane != lane))
		return NULL;
	*conn_out = conn;
	return d;
}

/* lane. A success of it: is it the oldest debt, owed, and its own parent?  Then it is settled. */
static inline bool settle_alone(struct ledger_lane *lane, struct ledger_conn *conn,
				const struct ledger_debt *d)
{
	uint32_t sequence = handle_generation(d->wr_id);

	if (UNLIKELY(sequence != conn->head || sequence == conn->tail ||
		     d->shape.of.plain != PLAIN_ALONE || conn->special || !lane->plain))
		return false;
	PUT(lane->loans[d->region[0]], lane->loans[d->region[0]] - 1);
	lane->ops_left++;
	PUT(conn->head, sequence + 1);
	return true;
}

/* What a success makes of a slice that is its own parent. */
static inline void ledger_done_alone(const struct ledger_debt *d, struct ledger_done *done)
{
	*done = (struct ledger_done){.user = d->subject,
				     .bytes = d->length,
				     .what = LEDGER_DONE_OP,
				     .outcome = LEDGER_OK,
				     .custody = ESCROW_CUSTODY_RETURNED,
				     .effect = ESCROW_EFFECT_EXECUTED};
}

/*
 * lane. A success was polled.  If it is of the oldest debt of its connection, and that is its own parent, it is
 * settled: what it was, until the next loan on that connection.  Else NULL, and nothing is.
 */
static inline const struct ledger_debt *ledger_settle_alone(struct ledger_lane *lane,
							    uint64_t wr_id,
							    struct ledger_conn **conn_out)
{
	const struct ledger_debt *d = debt_named(lane, wr_id, conn_out);

	return LIKELY(d && settle_alone(lane, *conn_out, d)) ? d : NULL;
}

#endif
