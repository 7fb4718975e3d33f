/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data path.  A slice's state is its place in its connection's ring ([head, tail) is lent or
 * posted, or STUCK in a quarantined connection), so lending and settling are the moves of rules.c
 * without a state to store.  What is rare is kept out of line.
 */
#include "backends/ledger/binds.h"
#include "backends/ledger/op.h"

/* The index of a region that may be lent from, or NONE. */
static inline uint32_t region_find(const struct ledger *l, uint64_t handle, uint64_t offset,
				   uint64_t length)
{
	uint32_t i = handle_slot(handle) - l->region_base;

	return LIKELY(region_lends(l, i, handle, offset, length)) ? i : NONE;
}

/* Of inline data nothing is lent. */
static inline uint32_t shape_in(uint32_t region, uint32_t opcode)
{
	union ledger_shape shape = {.of = {.what = LEDGER_WR_SLICE, .opcode = (uint8_t)opcode}};

	return region == NONE ? shape.word : shape_of(opcode, PLAIN_SLICE);
}

/* Why region_find() found none. */
static __attribute__((noinline, cold)) escrow_status region_why(struct ledger *l, uint64_t handle)
{
	escrow_status status = ESCROW_E_INVALID;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, handle, 0);
	if (slot != NONE &&
	    (l->owners[slot].kind == ESCROW_OWNER_REGION ||
	     l->owners[slot].kind == ESCROW_OWNER_CONTROL) &&
	    l->owners[slot].state != LEDGER_REGION_LIVE)
		status = ESCROW_E_STATE;
	lg_unlock(l);
	return status;
}

uint64_t ledger_wr_connection(struct ledger_lane *lane, uint64_t wr_id)
{
	const struct ledger_conn *conn = poster_find(lane, wr_id);

	return conn ? conn->handle : 0;
}

static __attribute__((noinline, cold)) void log_lent(struct ledger_lane *lane, uint32_t op,
						     const uint64_t *wr_ids, uint32_t slices)
{
	for (uint32_t i = 0; i < slices; i++)
		log_lane(lane, LOG_CODE(LEDGER_LOG_LEND, LEDGER_WR_SLICE), wr_ids[i],
			 lane->ledger->ops[op].handle);
}

/* whole: they are all that their parent has. */
static inline void put_slices(struct ledger_lane *lane, struct ledger_conn *conn,
			      struct ledger_run *run, uint64_t left, uint64_t bytes,
			      uint32_t slices, bool whole, uint64_t *wr_ids)
{
	uint32_t op = run->op, i;

	for (i = 0; i + 1 < slices; i++, left -= bytes)
		wr_ids[i] = run_put(run, bytes);
	wr_ids[i] = run_put(run, left);
	if (whole)
		run_is_whole(run, slices);
	run_end(conn, run);
	if (UNLIKELY(lane->log.entries))
		log_lent(lane, op, wr_ids, slices);
}

/* Is (slices - 1) * bytes < length <= slices * bytes?  One slice may be of anything. */
static inline bool makes(uint64_t length, uint64_t bytes, uint32_t slices)
{
	uint64_t but_last;

	return slices == 1 || (!__builtin_mul_overflow(bytes, slices - 1, &but_last) &&
			       but_last < length && length - but_last <= bytes);
}

escrow_status ledger_slices_lend(struct ledger_lane *lane, const struct ledger_loan *loan,
				 uint64_t bytes, uint32_t slices, uint64_t *wr_ids)
{
	struct ledger_conn *conn = lg_conn_find(lane, loan->connection);
	struct ledger_op *op = lg_op_find(lane->ledger, loan->op);
	uint64_t offset = loan->offset, left = loan->length;
	uint32_t region = NONE;
	struct ledger_run run;

	if (UNLIKELY(!conn || !op || slices == 0 || conn->planned < slices))
		return ESCROW_E_INVALID;
	if (UNLIKELY(!makes(left, bytes, slices)))
		return ESCROW_E_INVALID;
	if (UNLIKELY(!conn->ready))
		return ESCROW_E_STATE;
	if (UNLIKELY(GET(op->state) != LEDGER_OP_OPEN))
		return ESCROW_E_CANCELED;
	if (LIKELY(loan->region)) {
		region = region_find(lane->ledger, loan->region, offset, left);
		if (UNLIKELY(region == NONE))
			return region_why(lane->ledger, loan->region);
		PUT(lane->loans[region], lane->loans[region] + slices);
	}
	PUT(conn->planned, conn->planned - slices);
	run = run_begin(conn, handle_slot(loan->op), region, offset,
			shape_in(region, loan->opcode));
	put_slices(lane, conn, &run, left, bytes, slices, false, wr_ids);
	return ESCROW_OK;
}

escrow_status ledger_slice_lend(struct ledger_lane *lane, const struct ledger_loan *loan,
				uint64_t *wr_id_out)
{
	return ledger_slices_lend(lane, loan, loan->length, 1, wr_id_out);
}

/* Something is not as it usually is: as any parent is admitted, which also says what. */
static __attribute__((noinline, cold)) escrow_status run_lend_slowly(
	struct ledger_lane *lane, uint64_t user, const struct ledger_loan *loan, uint64_t bytes,
	uint32_t slices, uint64_t *wr_ids)
{
	struct ledger_part part = {.lane = lane, .connection = loan->connection, .slices = slices};
	struct ledger_admission admission = {
		.user = user, .nparts = 1, .flags = LEDGER_ADMIT_ENDS, .parts = &part};
	struct ledger_loan one = *loan;
	struct ledger_done done;
	escrow_status status;

	if (slices == 0)
		return ESCROW_E_INVALID;
	status = ledger_op_admit(lane, &admission, &one.op);
	if (status)
		return status;
	status = ledger_slices_lend(lane, &one, bytes, slices, wr_ids);
	if (status)
		ledger_op_drop(lane, one.connection, one.op, slices, &done);
	return status;
}

escrow_status ledger_run_lend(struct ledger_lane *lane, uint64_t user,
			      const struct ledger_loan *loan, uint64_t bytes, uint32_t slices,
			      uint64_t *wr_ids)
{
	struct ledger *l = lane->ledger;
	struct ledger_conn *conn = lg_conn_find(lane, loan->connection);
	uint32_t region = handle_slot(loan->region) - l->region_base;
	struct ledger_run run;

	if (UNLIKELY(!conn || !conn->ready || GET(l->ops_slowly) || slices == 0 ||
		     (uint64_t)conn_taken(conn) + slices > conn->room ||
		     !makes(loan->length, bytes, slices) ||
		     !region_lends(l, region, loan->region, loan->offset, loan->length)))
		return run_lend_slowly(lane, user, loan, bytes, slices, wr_ids);
	if (UNLIKELY(!ledger_row_run(lane, conn, user, region, loan->offset, loan->opcode, slices,
				     &run)))
		return ESCROW_E_AGAIN;
	put_slices(lane, conn, &run, loan->length, bytes, slices, true, wr_ids);
	return ESCROW_OK;
}

/* The commonest parent: no slot of its own, the debt holds all there is to know. */
escrow_status ledger_op_lend(struct ledger_lane *lane, uint64_t user,
			     const struct ledger_loan *loan, uint64_t *wr_id_out)
{
	struct ledger_conn *conn = lg_conn_find(lane, loan->connection);
	uint64_t wr_id = 0;

	if (LIKELY(conn))
		wr_id = ledger_lend_alone(lane, conn, user, loan);
	if (UNLIKELY(!wr_id))
		return run_lend_slowly(lane, user, loan, loan->length, 1, wr_id_out);
	*wr_id_out = wr_id;
	return ESCROW_OK;
}

escrow_status ledger_slice_also(struct ledger_lane *lane, uint64_t wr_id, uint64_t region,
				uint64_t offset, uint64_t length)
{
	struct ledger_conn *conn = ring_find(lane, wr_id);
	struct ledger_debt *d;
	uint32_t i;

	if (!conn || conn->head == conn->tail || handle_generation(wr_id) + 1 != conn->tail)
		return ESCROW_E_INVALID;
	d = &conn->ring[handle_generation(wr_id) & conn->mask];
	if (d->shape.of.what != LEDGER_WR_SLICE)
		return ESCROW_E_INVALID;
	if (d->shape.of.nregions == DEBT_REGIONS)
		return ESCROW_E_LIMIT;
	i = region_find(lane->ledger, region, offset, length);
	if (i == NONE)
		return region_why(lane->ledger, region);
	d->region[d->shape.of.nregions++] = i;
	d->shape.of.plain = d->shape.of.nregions == 1 ? PLAIN_SLICE : PLAIN_NOT;
	d->length += length;
	PUT(lane->loans[i], lane->loans[i] + 1);
	return ESCROW_OK;
}

/* A message that is lent from a control buffer or region holds it like a slice does. */
escrow_status ledger_wr_holds(struct ledger_lane *lane, uint64_t wr_id, uint64_t region)
{
	struct ledger_conn *conn = ring_find(lane, wr_id);
	struct ledger_debt *d;
	uint32_t i;

	if (!conn || conn->head == conn->tail || handle_generation(wr_id) + 1 != conn->tail)
		return ESCROW_E_INVALID;
	d = &conn->ring[handle_generation(wr_id) & conn->mask];
	if (d->shape.of.what == LEDGER_WR_SLICE || d->shape.of.nregions == DEBT_REGIONS)
		return ESCROW_E_INVALID;
	i = region_find(lane->ledger, region, 0, 0);
	if (i == NONE)
		return region_why(lane->ledger, region);
	d->region[d->shape.of.nregions++] = i;
	PUT(lane->loans[i], lane->loans[i] + 1);
	return ESCROW_OK;
}

/* A bind or an invalidation. */
static escrow_status window_lend(struct ledger_lane *lane, struct ledger_conn *conn,
				 enum ledger_wr what, uint64_t window, uint64_t *wr_id_out)
{
	uint64_t wr_id;
	uint8_t tag;

	lg_lock(lane->ledger);
	wr_id = ledger_lend_window(lane, conn, what, window, &tag);
	lg_unlock(lane->ledger);
	if (!wr_id)
		return ESCROW_E_INVALID;
	*wr_id_out = wr_id;
	return ESCROW_OK;
}

escrow_status ledger_wr_lend(struct ledger_lane *lane, uint64_t connection, enum ledger_wr what,
			     uint64_t subject, uint64_t *wr_id_out)
{
	struct ledger_conn *conn = lg_conn_find(lane, connection);

	if (!conn || what == LEDGER_WR_SLICE || what > LEDGER_WR_MESSAGE)
		return ESCROW_E_INVALID;
	/* The sentinel is what a retiring connection still posts, once. */
	if (what == LEDGER_WR_SENTINEL ? conn->sentinel || conn->collect : !conn->ready)
		return ESCROW_E_STATE;
	if (what == LEDGER_WR_MESSAGE && conn_used(conn) + GET(conn->kept) >= conn->room)
		return ESCROW_E_AGAIN;
	if (what == LEDGER_WR_BIND || what == LEDGER_WR_INVALIDATE)
		return window_lend(lane, conn, what, subject, wr_id_out);
	if (what == LEDGER_WR_SENTINEL)
		PUT(conn->sentinel, 1);
	*wr_id_out = lg_put_other(lane, conn, what, subject);
	return ESCROW_OK;
}
