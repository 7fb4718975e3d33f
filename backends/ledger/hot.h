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

static inline uint64_t wr_id_make(const struct ledger_conn *conn, uint32_t sequence)
{
	return conn->wr_base | (uint64_t)sequence << SLOT_BITS | (sequence & conn->mask);
}

/* Does this range lie in so many bytes? */
static inline bool ledger_range_in(uint64_t offset, uint64_t length, uint64_t whole)
{
	return length <= whole && offset <= whole - length;
}

/* May the range be lent?  i: the index that the handle names. */
static inline bool region_lends(const struct ledger *l, uint32_t i, uint64_t handle,
				uint64_t offset, uint64_t length)
{
	const struct ledger_lendable *r = &l->lendable[i];

	return i < l->nregions && __atomic_load_n(&r->handle, __ATOMIC_ACQUIRE) == handle &&
	       ledger_range_in(offset, length, GET(r->length));
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

/* ---- Parents with a slot ------------------------------------------------------------------------- */
/* An op slot of this lane, ready for `total` slices, or NULL. */
static inline struct ledger_op *lg_op_new(struct ledger_lane *lane, uint64_t user, uint64_t total)
{
	struct ledger_op *op;

	/* There are at least as many free slots as ops left. */
	if (UNLIKELY(lane->ops_left == 0 && !lg_ops_reclaim(lane)))
		return NULL;
	op = &lane->ledger->ops[lane->op_free];
	lane->op_free = op->next;
	lane->ops_left--;
	op->pending = total;
	op->user = user;
	return op;
}

static inline void lg_op_set(struct ledger_op *op, uint32_t name, uint8_t state, bool shared,
			     bool ends)
{
	PUT(op->name, name);
	PUT(op->state, state);
	op->shared = shared;
	op->ends = ends;
	PUT(op->taken, 1);
}

/* Gives the slot back; a lane that is not its home hands it over. */
static inline void lg_op_end(struct ledger_lane *lane, struct ledger_op *op)
{
	uint64_t next = op->handle + (UINT64_C(1) << SLOT_BITS);

	/* A wrapped generation would run into the kind, and 0 is none. */
	if (UNLIKELY(handle_generation(next) == 0))
		next = handle_make(KIND_OP, 1, handle_slot(next));
	op->bytes = 0;
	op->outcomes = 0;
	PUT(op->handle, next);
	PUT(op->taken, 0);
	if (UNLIKELY(lane->ledger->ops_limited || op->home != lane->index)) {
		lg_op_end_slowly(lane, op);
		return;
	}
	op->next = lane->op_free;
	lane->op_free = (uint32_t)(op - lane->ledger->ops);
	lane->ops_left++;
}

/*
 * Slices of a parent that are lent at once, one behind the other in the ring and in the region.  Locals, because every store
 * could otherwise be one into the connection.
 */
struct ledger_run {
	struct ledger_debt *ring;
	uint64_t wr_base, offset;
	uint32_t mask, tail, op, region, shape;
};

static inline struct ledger_run run_begin(const struct ledger_conn *conn, uint32_t op,
					  uint32_t region, uint64_t offset, uint32_t shape)
{
	return (struct ledger_run){.ring = conn->ring,
				   .wr_base = conn->wr_base,
				   .offset = offset,
				   .mask = conn->mask,
				   .tail = conn->tail,
				   .op = op,
				   .region = region,
				   .shape = shape};
}

/* The next one's wr_id. */
static inline uint64_t run_put(struct ledger_run *r, uint64_t length)
{
	uint32_t at = r->tail & r->mask;
	uint64_t wr_id = r->wr_base | (uint64_t)r->tail << SLOT_BITS | at;

	put_debt(&r->ring[at], r->offset, length, r->op, wr_id, r->region, r->shape);
	r->tail++;
	r->offset += length;
	return wr_id;
}

static inline void run_end(struct ledger_conn *conn, const struct ledger_run *r)
{
	PUT(conn->parts, conn->parts + (r->tail - conn->tail));
	PUT(conn->tail, r->tail);
}

/* They are all that their parent has: the last one tells how many there are. */
static inline void run_is_whole(struct ledger_run *r, uint32_t slices)
{
	struct ledger_debt *last = &r->ring[(r->tail - 1) & r->mask];

	last->subject = slices;
	last->shape.of.plain = PLAIN_LAST;
}

/* ---- Lending ------------------------------------------------------------------------------------- */
/* lane. May a parent of one slice be admitted as usual, which is its own parent? */
static inline bool takes_alone(const struct ledger_lane *lane, const struct ledger_conn *conn)
{
	return conn->ready && !GET(lane->ledger->ops_slowly) && conn_taken(conn) < conn->room &&
	       lane->ops_left;
}

/* lane. A slice that is its own parent, where there is room: of a range that may be lent; region: its index. */
static inline uint64_t ledger_row_lend(struct ledger_lane *lane, struct ledger_conn *conn,
				       uint64_t user, uint32_t region, uint64_t offset,
				       uint64_t length, uint32_t opcode)
{
	uint32_t tail = conn->tail;
	struct ledger_debt *d = &conn->ring[tail & conn->mask];
	uint64_t wr_id = wr_id_make(conn, tail);

	put_debt(d, offset, length, NONE, wr_id, region, shape_of(opcode, PLAIN_ALONE));
	d->subject = user;
	lane->ops_left--;
	PUT(lane->loans[region], lane->loans[region] + 1);
	PUT(conn->tail, tail + 1);
	return wr_id;
}

/* Several, one behind the other.  Locals, as of struct ledger_run. */
struct ledger_row {
	struct ledger_debt *ring;
	uint64_t wr_base;
	uint32_t mask, tail;
};

static inline struct ledger_row ledger_row_begin(const struct ledger_conn *conn)
{
	return (struct ledger_row){.ring = conn->ring,
				   .wr_base = conn->wr_base,
				   .mask = conn->mask,
				   .tail = conn->tail};
}

/* lane. loans: the lane's of the region. */
static inline uint64_t ledger_row_put(struct ledger_row *r, uint32_t *loans, uint64_t user,
				      uint32_t region, uint64_t offset, uint64_t length,
				      uint32_t opcode)
{
	uint32_t at = r->tail & r->mask;
	uint64_t wr_id = r->wr_base | (uint64_t)r->tail << SLOT_BITS | at;
	struct ledger_debt *d = &r->ring[at];

	put_debt(d, offset, length, NONE, wr_id, region, shape_of(opcode, PLAIN_ALONE));
	d->subject = user;
	PUT(*loans, *loans + 1);
	r->tail++;
	return wr_id;
}

/* lane. Of which the connection and its lane know from here on. */
static inline void ledger_row_end(struct ledger_lane *lane, struct ledger_conn *conn,
				  const struct ledger_row *r)
{
	lane->ops_left -= r->tail - conn->tail;
	PUT(conn->tail, r->tail);
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

	if (UNLIKELY(!takes_alone(lane, conn) ||
		     !region_lends(l, i, loan->region, loan->offset, loan->length)))
		return 0;
	wr_id = ledger_row_lend(lane, conn, user, i, loan->offset, loan->length, loan->opcode);
	if (UNLIKELY(!lane->plain))
		lg_log_alone(lane, wr_id, user);
	return wr_id;
}

/*
 * lane. How many slices may be lent the short way, until the lane is given back.  Whatever takes of that room, of binds or
 * of other requests, needs the lane.  0 on a lane that keeps a log.
 */
static inline uint32_t ledger_run_room(const struct ledger_conn *conn)
{
	uint32_t taken = conn_taken(conn), room = GET(conn->lends);

	return LIKELY(taken < room) ? room - taken : 0;
}
/* Of those that are their own parents, of which the lane has so many left. */
static inline uint32_t ledger_row_room(const struct ledger_lane *lane,
				       const struct ledger_conn *conn)
{
	uint32_t room = ledger_run_room(conn);

	return room < lane->ops_left ? room : lane->ops_left;
}
/* Is there any? */
static inline bool ledger_takes_one(const struct ledger_lane *lane, const struct ledger_conn *conn)
{
	return conn_taken(conn) < GET(conn->lends) && lane->ops_left;
}

/*
 * The region of a row's next, and its index; or NULL if it may not be lent from, or has no key.  With the lane it is so until
 * that is given back: what is withdrawn ends only when every lane has passed.
 */
static inline const struct ledger_keyed *ledger_row_keyed(const struct ledger *l, uint64_t handle,
							  uint32_t *index)
{
	uint32_t i = handle_slot(handle) - l->region_base;
	const struct ledger_keyed *keyed = &l->keyed[i];

	*index = i;
	return LIKELY(i < l->config.max_regions &&
		      __atomic_load_n(&keyed->handle, __ATOMIC_ACQUIRE) == handle)
		       ? keyed
		       : NULL;
}

/* The index alone, for this range of it; or NONE. */
static inline uint32_t ledger_row_region(const struct ledger *l, uint64_t handle, uint64_t offset,
					 uint64_t length)
{
	uint32_t i;
	const struct ledger_keyed *keyed = ledger_row_keyed(l, handle, &i);

	return LIKELY(keyed && ledger_range_in(offset, length, GET(keyed->length))) ? i : NONE;
}

/*
 * lane. A parent of `slices` of the room, in a region that was found since the lane was taken: the run that is to be put
 * and ended, or false: there is none.
 */
static inline bool ledger_row_run(struct ledger_lane *lane, struct ledger_conn *conn, uint64_t user,
				  uint32_t region, uint64_t offset, uint32_t opcode,
				  uint32_t slices, struct ledger_run *run)
{
	struct ledger_op *op = lg_op_new(lane, user, slices);

	if (UNLIKELY(!op))
		return false;
	lg_op_set(op, conn->name, LEDGER_OP_OPEN, false, true);
	PUT(lane->loans[region], lane->loans[region] + slices);
	*run = run_begin(conn, handle_slot(op->handle), region, offset,
			 shape_of(opcode, PLAIN_SLICE));
	return true;
}
static inline uint64_t ledger_run_put(struct ledger_run *run, uint64_t length)
{
	return run_put(run, length);
}
static inline void ledger_run_end(struct ledger_conn *conn, struct ledger_run *run, uint32_t slices)
{
	run_is_whole(run, slices);
	run_end(conn, run);
}

/* ---- Settling ------------------------------------------------------------------------------------ */
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
 * lane. Successes in a row: the connection of the first, if they may be settled so.  No log is kept, what the lane says
 * is believed, and its last completions are of no error: all of that is so until the lane is given back.
 */
static inline struct ledger_conn *ledger_row_conn(const struct ledger_lane *lane, uint64_t wr_id)
{
	const struct ledger *l = lane->ledger;
	uint32_t at = handle_slot(wr_id);
	struct ledger_conn *conn = &l->conns[at >> l->shift];

	/*
	 * Whether it names a debt of that one, each is asked.  One that owes nothing may have gone, and with it what its
	 * user is: devices tell of a completion once more, or when nobody waits for it.
	 */
	return LIKELY(at < l->ndebts && GET(conn->settles) == lane && conn->head != conn->tail)
		       ? conn
		       : NULL;
}

/* What a success in a row ends. */
struct ledger_end {
	const struct ledger_debt
		*debt;        /* the last of it; stands until the next loan on its connection */
	struct ledger_op *op; /* NULL: the debt is its own parent */
	uint64_t user, bytes;
	uint32_t slices;
};

/* The oldest debts of a connection while a row of them is settled.  Locals, as of struct ledger_run. */
struct ledger_oldest {
	const struct ledger_debt *ring;
	uint32_t *loans;
	uint32_t mask, head;
	uint32_t owed; /* when it began: for so many at most each of these asks */
};

/* lane. */
static inline struct ledger_oldest ledger_oldest_of(const struct ledger_lane *lane,
						    const struct ledger_conn *conn)
{
	return (struct ledger_oldest){.ring = conn->ring,
				      .loans = lane->loans,
				      .mask = conn->mask,
				      .head = conn->head,
				      .owed = conn->tail - conn->head};
}

/* lane. One is owed: does this name the oldest, and is that its own parent?  Nothing is settled yet. */
static inline bool ledger_oldest_alone(const struct ledger_oldest *o, uint64_t wr_id,
				       struct ledger_end *end)
{
	const struct ledger_debt *d = &o->ring[o->head & o->mask];

	if (UNLIKELY(d->wr_id != wr_id || d->shape.of.plain != PLAIN_ALONE))
		return false;
	*end = (struct ledger_end){.debt = d, .user = d->subject, .bytes = d->length, .slices = 1};
	return true;
}

/* lane. It is settled, alone; or in a row, of which the connection and its lane know at the end. */
static inline void ledger_alone_settle(struct ledger_lane *lane, struct ledger_conn *conn,
				       const struct ledger_end *end)
{
	settle_one(lane, conn, end->debt);
}
static inline void ledger_oldest_settle(struct ledger_oldest *o, const struct ledger_end *end)
{
	uint32_t region = end->debt->region[0];

	PUT(o->loans[region], o->loans[region] - 1);
	o->head++;
}
static inline void ledger_oldest_end(struct ledger_lane *lane, struct ledger_conn *conn,
				     const struct ledger_oldest *o)
{
	lane->ops_left += o->head - conn->head;
	PUT(conn->head, o->head);
}

/* lane. Or the last of a run that is whole, the oldest debts of the connection, and all that its parent still owes? */
static inline bool ledger_row_whole(const struct ledger_lane *lane, const struct ledger_conn *conn,
				    uint64_t wr_id, struct ledger_end *end)
{
	const struct ledger_debt *last = &conn->ring[handle_generation(wr_id) & conn->mask];
	const struct ledger_debt *first = &conn->ring[conn->head & conn->mask];
	uint32_t n = handle_generation(wr_id) + 1 - conn->head;
	struct ledger_op *op;

	if (UNLIKELY(last->wr_id != wr_id || last->shape.of.plain != PLAIN_LAST ||
		     last->subject != n || n > conn->tail - conn->head))
		return false;
	op = &lane->ledger->ops[last->op];
	if (UNLIKELY(op->pending != n * PENDING_ONE || op->outcomes))
		return false;
	*end = (struct ledger_end){.debt = last,
				   .op = op,
				   .user = op->user,
				   .bytes = last->offset + last->length - first->offset,
				   .slices = n};
	return true;
}

static inline void ledger_whole_settle(struct ledger_lane *lane, struct ledger_conn *conn,
				       const struct ledger_end *end)
{
	uint32_t region = end->debt->region[0];

	PUT(lane->loans[region], lane->loans[region] - end->slices);
	PUT(conn->parts, conn->parts - end->slices);
	PUT(conn->head, conn->head + end->slices);
	end->op->pending = 0;
	lg_op_end(lane, end->op);
}

#endif
