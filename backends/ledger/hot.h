/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hot.h - the commonest moves of the data path, inline: slices that are their own parents are lent, one or
 * many in a row, and their success is settled.  Each does all of its move or nothing, and decides no error: what
 * is not as it usually is goes to ledger_op_lend() and ledger_settle(), which begin with these.
 */
#ifndef LEDGER_HOT_H
#define LEDGER_HOT_H

#include "backends/ledger/ledger-int.h"

/* lane. Is it the connection of this owner still? */
static inline bool ledger_conn_is(const struct ledger_conn *conn, uint64_t owner)
{
	return LIKELY(conn && conn->handle == owner);
}

/* ledger_lane_sync() */
static inline void ledger_lane_pass(struct ledger_lane *lane)
{
	uint64_t seen = __atomic_load_n(&lane->ledger->withdrawals, __ATOMIC_ACQUIRE);

	__atomic_store_n(&lane->synced, seen, __ATOMIC_RELEASE);
}

static inline uint64_t wr_id_make(const struct ledger_conn *conn, uint32_t sequence)
{
	return conn->wr_base | (uint64_t)sequence << SLOT_BITS | (sequence & conn->mask);
}

/* May the range be lent?  i: the index that the handle names, of `most`. */
static inline bool region_lends(const struct ledger *l, uint32_t i, uint32_t most, uint64_t handle,
				uint64_t offset, uint64_t length)
{
	const struct ledger_lendable *r = &l->lendable[i];
	uint64_t end;

	return i < most && __atomic_load_n(&r->handle, __ATOMIC_ACQUIRE) == handle &&
	       !__builtin_add_overflow(offset, length, &end) && end <= GET(r->length);
}

/* What the slices of a parent have in common, if they are of a region. */
static inline uint32_t shape_of(uint32_t opcode, enum plain plain)
{
	union ledger_shape shape = {.of = {.what = LEDGER_WR_SLICE,
					   .nregions = 1,
					   .opcode = (uint8_t)opcode,
					   .plain = (uint8_t)plain}};

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

/* lane. May a parent be admitted as usual, and how many slices does the connection take? */
static inline uint32_t conn_room(const struct ledger_lane *lane, const struct ledger_conn *conn)
{
	uint32_t taken = conn_taken(conn);

	if (UNLIKELY(!conn->ready || GET(lane->ledger->ops_slowly) || taken >= conn->room))
		return 0;
	return conn->room - taken;
}

/* And how many that are their own parents? */
static inline uint32_t alone_room(const struct ledger_lane *lane, const struct ledger_conn *conn)
{
	uint32_t room = conn_room(lane, conn);

	return room < lane->ops_left ? room : lane->ops_left;
}

/* lane. One of alone_room(), of a range that region_lends().  i: the region's index. */
static inline uint64_t lend_alone(struct ledger_lane *lane, struct ledger_conn *conn, uint64_t user,
				  uint32_t i, uint64_t offset, uint64_t length, uint32_t opcode)
{
	uint32_t tail = conn->tail;
	struct ledger_debt *d = &conn->ring[tail & conn->mask];
	uint64_t wr_id = wr_id_make(conn, tail);

	put_debt(d, offset, length, NONE, wr_id, i, shape_of(opcode, PLAIN_ALONE));
	d->subject = user;
	lane->ops_left--;
	PUT(lane->loans[i], lane->loans[i] + 1);
	PUT(conn->tail, tail + 1);
	return wr_id;
}

/*
 * lane. ledger_op_lend() on a connection that was looked up since the lane was taken: the wr_id, or 0.
 * Of the loan, op and connection are not looked at.
 */
static inline uint64_t ledger_lend_alone(struct ledger_lane *lane, struct ledger_conn *conn,
					 uint64_t user, const struct ledger_loan *loan)
{
	struct ledger *l = lane->ledger;
	uint32_t i = handle_slot(loan->region) - l->region_base;
	uint64_t wr_id;

	if (UNLIKELY(!alone_room(lane, conn) ||
		     !region_lends(l, i, l->nregions, loan->region, loan->offset, loan->length)))
		return 0;
	wr_id = lend_alone(lane, conn, user, i, loan->offset, loan->length, loan->opcode);
	if (UNLIKELY(!lane->plain))
		lg_log_alone(lane, wr_id, user);
	return wr_id;
}

/*
 * lane. Several of them in a row: how many may be lent so, until the lane is given back.  Whatever takes of that
 * room, of binds or of other requests, needs the lane.  0 on a lane that keeps a log.
 */
static inline uint32_t ledger_row_room(const struct ledger_lane *lane,
				       const struct ledger_conn *conn)
{
	return LIKELY(lane->plain) ? alone_room(lane, conn) : 0;
}

/* The region of a row's next: its index, or NONE if this range of it may not be lent.  No control buffer. */
static inline uint32_t ledger_row_region(const struct ledger *l, uint64_t handle, uint64_t offset,
					 uint64_t length)
{
	uint32_t i = handle_slot(handle) - l->region_base;

	return LIKELY(region_lends(l, i, l->config.max_regions, handle, offset, length)) ? i : NONE;
}

/* lane. One of the room, in a region that was found since the lane was taken: its wr_id. */
static inline uint64_t ledger_row_lend(struct ledger_lane *lane, struct ledger_conn *conn,
				       uint64_t user, uint32_t region, uint64_t offset,
				       uint64_t length, uint32_t opcode)
{
	return lend_alone(lane, conn, user, region, offset, length, opcode);
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

static inline void settle_one(struct ledger_lane *lane, struct ledger_conn *conn,
			      const struct ledger_debt *d)
{
	PUT(lane->loans[d->region[0]], lane->loans[d->region[0]] - 1);
	lane->ops_left++;
	PUT(conn->head, conn->head + 1);
}

/* lane. A success of it: is it the oldest debt, owed, and its own parent?  Then it is settled. */
static inline bool settle_alone(struct ledger_lane *lane, struct ledger_conn *conn,
				const struct ledger_debt *d)
{
	uint32_t sequence = handle_generation(d->wr_id);

	if (UNLIKELY(sequence != conn->head || sequence == conn->tail ||
		     d->shape.of.plain != PLAIN_ALONE || conn->special || !lane->plain))
		return false;
	settle_one(lane, conn, d);
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

/*
 * lane. Successes in a row: the connection of the first, if they may be settled so.  No log is kept, what the lane says
 * is believed, and its last completions are of no error: all of that is so until the lane is given back.
 */
static inline struct ledger_conn *ledger_row_conn(const struct ledger_lane *lane, uint64_t wr_id)
{
	struct ledger_conn *conn;

	return LIKELY(debt_named(lane, wr_id, &conn) && !conn->special && lane->plain) ? conn
										       : NULL;
}

/* lane. The oldest debt of the connection, if this names it, and it is its own parent; else NULL. */
static inline const struct ledger_debt *ledger_row_oldest(const struct ledger_conn *conn,
							  uint64_t wr_id)
{
	const struct ledger_debt *d = &conn->ring[conn->head & conn->mask];

	return LIKELY(d->wr_id == wr_id && conn->head != conn->tail &&
		      d->shape.of.plain == PLAIN_ALONE)
		       ? d
		       : NULL;
}

/* lane. It is settled; what it was stands until the next loan on its connection. */
static inline void ledger_row_settle(struct ledger_lane *lane, struct ledger_conn *conn,
				     const struct ledger_debt *d)
{
	settle_one(lane, conn, d);
}

#endif
