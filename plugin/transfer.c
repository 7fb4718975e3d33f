/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data path: handles are translated, ranges lent, and the backend called; no lock.
 *
 * A call of one op, and one of several, are the same steps; they are expanded in both, for of one op no batch has to be
 * kept, and of one range no row.
 */
#include <string.h>

#include "plugin/host.h"

#define TRANSFER_BATCH 16u
#define TRANSFER_RANGES 64u

/* For whom: the generation that serves, and its column of handles. */
struct caller {
	struct escrow_host_engine *host;
	struct host_generation *generation;
	uint32_t column;
};

/* A handle that the op before named, and its entry, or NULL. */
struct found {
	uint64_t handle;
	void *entry;
};

/* Ops of a call mostly name the same. */
struct named {
	struct found remote, region;
};

/* What goes to the backend in one call of several, on the stack. */
struct batch {
	struct named named;
	struct lend_op *lent[TRANSFER_BATCH];
	struct escrow_op ops[TRANSFER_BATCH];
	uint64_t ids[TRANSFER_BATCH];
	struct escrow_sge ranges[TRANSFER_RANGES];
};

/* Looked up once; whether it is still theirs is asked of each op, as of any that was looked up. */
EXPANDED void *transfer_find(const struct table *table, struct found *found, uint64_t handle)
{
	if (found->entry && found->handle == handle)
		return found->entry;
	found->handle = handle;
	found->entry = table_find(table, handle);
	return found->entry;
}

/* One range, in the backend's words, and the region that it is of. */
EXPANDED escrow_status transfer_range(struct caller c, struct named *named,
				      const struct escrow_sge *sge, struct escrow_sge *out,
				      struct host_region **of)
{
	struct host_region *region = transfer_find(&c.host->regions, &named->region, sge->region);
	uint64_t length;

	if (G_UNLIKELY(!region))
		return ESCROW_E_INVALID;
	length = atomic_load(&region->length);
	*of = region;
	*out = (struct escrow_sge){atomic_load(&region->backend[c.column]), sge->offset,
				   sge->length};
	if (G_UNLIKELY(atomic_load(&region->state) == HOST_PENDING || out->offset > length ||
		       out->length > length - out->offset))
		return ESCROW_E_INVALID;
	return G_LIKELY(out->region) ? ESCROW_OK : ESCROW_E_STATE; /* withheld from this backend */
}

/* After a range is lent: does the host hold it, or is its region on its way out? */
EXPANDED escrow_status transfer_look(const struct lend_range *range, struct host_region *region,
				     uint32_t opcode)
{
	uint32_t state = atomic_load(&region->state);

	/* The place may be another's by now. */
	if (G_UNLIKELY(!table_was(&region->head, atomic_load(&range->region))))
		return ESCROW_E_BUSY;
	if (G_UNLIKELY(state != HOST_LIVE))
		return state == HOST_WITHHELD ? ESCROW_E_STATE : ESCROW_E_BUSY;
	if (G_UNLIKELY(atomic_load(&region->nborrows)) &&
	    lend_borrowed(atomic_load(&region->borrows), atomic_load(&range->offset),
			  atomic_load(&range->length), opcode))
		return ESCROW_E_BUSY;
	return ESCROW_OK;
}

/*
 * There is no place: ROOM follows.  Who finds none says so and then looks again; who gives one back does it the other way
 * round: so that at least one sees the other.
 */
static __attribute__((noinline, cold)) uint32_t transfer_again(struct escrow_host_engine *host,
							       struct lend_op **places, uint32_t n)
{
	atomic_store(&host->want_room, 1);
	return lend_take_some(&host->lend, places, n);
}

/* A place for an op; or why there is none. */
EXPANDED escrow_status transfer_place(struct escrow_host_engine *host, struct lend_op **place)
{
	if (G_UNLIKELY(!quota_ops_take(1)))
		return ESCROW_E_QUOTA;
	*place = lend_take(&host->lend);
	if (G_LIKELY(*place) || transfer_again(host, place, 1))
		return ESCROW_OK;
	quota_ops_give(1);
	return ESCROW_E_AGAIN;
}

/* Places for n at most: how many there were, and why none. */
static inline uint32_t transfer_places(struct escrow_host_engine *host, struct lend_op **places,
				       uint32_t n, escrow_status *status)
{
	uint32_t room = quota_ops_take(n), taken;

	*status = ESCROW_E_QUOTA;
	if (!room)
		return 0;
	taken = lend_take_some(&host->lend, places, room);
	if (!taken)
		taken = transfer_again(host, places, room);
	if (taken < room)
		quota_ops_give(room - taken);
	*status = taken ? ESCROW_OK : ESCROW_E_AGAIN;
	return taken;
}

/* One holder less.  Of the last one poll knows nothing, and whoever waits may be asleep. */
static inline void transfer_leave(struct escrow_host_engine *host, struct lend_op *lent)
{
	if (G_UNLIKELY(lend_drop(&host->lend, lent)) && atomic_load(&host->want_room))
		host_wake(host);
}

/* Takes an op back that the backend does not have. */
static __attribute__((noinline)) void transfer_drop(struct escrow_host_engine *host,
						    struct lend_op *lent)
{
	if (host->flags && atomic_load(&lent->state) == LEND_LENT)
		guard_lend(host, lent, false);
	lend_end(lent);
	lend_drop(&host->lend, lent);
	transfer_leave(host, lent);
	quota_ops_give(1);
}

/* Its words for the backend, and its n ranges for whoever wants to borrow; which regions they are of. */
EXPANDED escrow_status transfer_fill(struct caller c, struct named *named, struct lend_op *lent,
				     const struct escrow_op *op, uint32_t n, struct escrow_op *out,
				     struct escrow_sge *ranges, struct host_region **regions)
{
	struct host_remote *remote = transfer_find(&c.host->remotes, &named->remote, op->remote);
	escrow_status status;

	if (G_UNLIKELY(!remote))
		return ESCROW_E_INVALID;
	*out = *op;
	lent->user = out->user;
	atomic_store_explicit(&lent->opcode, out->opcode, memory_order_relaxed);
	atomic_store_explicit(&lent->engine_generation, c.generation->number, memory_order_relaxed);
	out->user = atomic_load_explicit(&lent->id, memory_order_relaxed);
	out->nsge = n;
	out->sge = ranges;
	for (uint32_t i = 0; i < n; i++) {
		status = transfer_range(c, named, &op->sge[i], &ranges[i], &regions[i]);
		if (G_UNLIKELY(status != ESCROW_OK))
			return status;
		lend_note(&lent->ranges[i], op->sge[i].region, &ranges[i]);
	}
	/* Behind the ranges: who found the place lent by its last op must not count ranges of one before that. */
	atomic_store_explicit(&lent->nranges, n, memory_order_release);
	out->remote = atomic_load(&remote->backend[c.column]);
	if (G_UNLIKELY(!table_was(&remote->head, op->remote)))
		return ESCROW_E_INVALID;
	/* one that has no successor in this generation */
	return G_LIKELY(out->remote) ? ESCROW_OK : ESCROW_E_PEER_LOST;
}

/* The same, and lent. */
EXPANDED escrow_status transfer_lend(struct caller c, struct named *named, struct lend_op *lent,
				     const struct escrow_op *op, uint32_t n, struct escrow_op *out,
				     struct escrow_sge *ranges)
{
	struct host_region *regions[LEND_MAX_RANGES];
	escrow_status status = transfer_fill(c, named, lent, op, n, out, ranges, regions);

	if (G_UNLIKELY(status != ESCROW_OK))
		return status;
	if (G_UNLIKELY(c.host->flags))
		guard_lend(c.host, lent, true);
	lend_publish(lent);
	for (uint32_t i = 0; i < n; i++) {
		status = transfer_look(&lent->ranges[i], regions[i], out->opcode);
		if (G_UNLIKELY(status != ESCROW_OK))
			return status;
	}
	return ESCROW_OK;
}

/* Asked before a place is: what can never be is not waited for. */
EXPANDED escrow_status transfer_shape(struct caller c, const struct escrow_op *op, uint32_t n)
{
	if (G_UNLIKELY(n > c.host->lend.max_ranges))
		return ESCROW_E_LIMIT;
	return G_UNLIKELY(n && !op->sge) ? ESCROW_E_INVALID : ESCROW_OK;
}

/* An op of n ranges as the i-th of the batch, with its ranges behind those of the others: all or nothing. */
EXPANDED escrow_status transfer_batch(struct caller c, struct batch *b, const struct escrow_op *op,
				      uint32_t n, uint32_t i, uint32_t nranges)
{
	escrow_status status = transfer_shape(c, op, n);

	return status == ESCROW_OK ? transfer_lend(c, &b->named, b->lent[i], op, n, &b->ops[i],
						   &b->ranges[nranges])
				   : status;
}

static __attribute__((noinline)) escrow_status transfer_ranges(struct caller c, struct batch *b,
							       const struct escrow_op *op,
							       uint32_t n, uint32_t i,
							       uint32_t nranges)
{
	return transfer_batch(c, b, op, n, i, nranges);
}

/* What the backend answered that no backend may. */
static __attribute__((noinline, cold)) int32_t transfer_odd(const struct escrow_host_engine *host,
							    uint32_t n, int32_t taken)
{
	services_log(host->services, ESCROW_LOG_BACKEND_MISBEHAVES,
		     "transfer of %u ops answered %d", n, taken);
	return (int32_t)n;
}

/* Hands n over; how many the backend took, or its reason. */
EXPANDED int32_t transfer_hand(struct caller c, const struct escrow_op *ops, uint32_t n,
			       uint64_t *ids)
{
	const struct host_generation *g = c.generation;
	int32_t taken = g->ops->transfer(g->engine, ops, n, sizeof(*ops), 0, ids);

	if (G_UNLIKELY(taken > (int32_t)n))
		return transfer_odd(c.host, n, taken);
	if (G_UNLIKELY(taken == ESCROW_E_AGAIN))
		atomic_store(&c.host->turned_away, 1);
	return taken;
}

/* The backend has taken it, by this handle; what the host knows it by. */
EXPANDED uint64_t transfer_taken(struct escrow_host_engine *host, struct lend_op *lent,
				 uint64_t backend_op)
{
	uint64_t id = atomic_load_explicit(&lent->id, memory_order_relaxed);

	lend_taken(lent, backend_op);
	transfer_leave(host, lent);
	return id;
}

/* The generation that serves; NULL, and ROOM follows: said first, and then looked at again, as in transfer_place. */
static inline struct host_generation *transfer_serves(struct escrow_host_engine *host)
{
	struct host_generation *g = atomic_load(&host->dispatch);

	if (G_LIKELY(g))
		return g;
	atomic_store(&host->want_room, 1);
	return atomic_load(&host->dispatch);
}

static const struct escrow_op *transfer_next(const struct escrow_op *op, uint32_t n,
					     uint32_t stride)
{
	return (const void *)((const char *)op + (size_t)n * stride);
}

static inline void transfer_drop_all(struct escrow_host_engine *host, struct lend_op **lent,
				     uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		transfer_drop(host, lent[i]);
}

/* Ops as long as they fit one batch, n at most: *added, and why it stopped at one. */
static inline escrow_status transfer_collect(struct caller c, struct batch *b,
					     const struct escrow_op *op, uint32_t n,
					     uint32_t stride, uint32_t *added)
{
	escrow_status status = transfer_shape(c, op, op->nsge);
	uint32_t i, nranges = 0, of, places;

	*added = 0;
	if (status != ESCROW_OK)
		return status;
	places = transfer_places(c.host, b->lent, n, &status);
	for (i = 0; i < places; i++, op = transfer_next(op, 1, stride)) {
		of = op->nsge;
		if (i && of > TRANSFER_RANGES - nranges)
			break;
		status = G_LIKELY(of == 1) ? transfer_batch(c, b, op, 1, i, nranges)
					   : transfer_ranges(c, b, op, of, i, nranges);
		if (status != ESCROW_OK)
			break;
		nranges += of;
	}
	transfer_drop_all(c.host, b->lent + i, places - i);
	*added = i;
	return status;
}

/* Hands the batch of n over; how many the backend took, or its reason. */
static inline int32_t transfer_flush(struct caller c, struct batch *b, uint32_t n, uint64_t *ids)
{
	int32_t taken = transfer_hand(c, b->ops, n, b->ids), i;

	for (i = 0; i < taken; i++)
		ids[i] = transfer_taken(c.host, b->lent[i], b->ids[i]);
	transfer_drop_all(c.host, b->lent + i, n - (uint32_t)i);
	return taken;
}

/* Some, or why none. */
static __attribute__((noinline)) int32_t transfer_several(struct caller c,
							  const struct escrow_op *op, uint32_t n,
							  uint32_t stride, uint64_t *ids)
{
	struct batch b;
	uint32_t done = 0, added;
	escrow_status status;
	int32_t taken;

	b.named = (struct named){.remote = {0, NULL}};
	do {
		status = transfer_collect(c, &b, op, MIN(n - done, TRANSFER_BATCH), stride, &added);
		if (!added)
			break;
		taken = transfer_flush(c, &b, added, ids + done);
		if (taken < 0)
			status = taken;
		else
			done += (uint32_t)taken;
		/* Of a prefix the rest was not looked at. */
		if (taken != (int32_t)added)
			break;
		op = transfer_next(op, added, stride);
	} while (status == ESCROW_OK && done < n);
	return done ? (int32_t)done : status;
}

/* Of one range. */
EXPANDED int32_t transfer_one(struct caller c, const struct escrow_op *op, uint64_t *id)
{
	struct named named = {.remote = {0, NULL}};
	struct lend_op *lent;
	struct escrow_op out;
	struct escrow_sge range;
	uint64_t backend_op;
	escrow_status status = transfer_shape(c, op, 1);
	int32_t taken;

	if (G_UNLIKELY(status != ESCROW_OK))
		return status;
	status = transfer_place(c.host, &lent);
	if (G_UNLIKELY(status != ESCROW_OK))
		return status;
	status = transfer_lend(c, &named, lent, op, 1, &out, &range);
	if (G_UNLIKELY(status != ESCROW_OK)) {
		transfer_drop(c.host, lent);
		return status;
	}
	taken = transfer_hand(c, &out, 1, &backend_op);
	if (G_LIKELY(taken == 1))
		*id = transfer_taken(c.host, lent, backend_op);
	else
		transfer_drop(c.host, lent);
	return taken;
}

/* None was taken. */
static __attribute__((noinline, cold)) escrow_status transfer_refused(
	struct escrow_host_engine *host, const struct escrow_op *op, escrow_status status)
{
	/* a handle that went with the engine */
	if (status == ESCROW_E_INVALID && atomic_load(&host->closing))
		status = ESCROW_E_STATE;
	if (status != ESCROW_E_AGAIN)
		transfer_tell(host, op, status);
	return status;
}

int32_t escrow_transfer(struct escrow_host_engine *host, const struct escrow_op *op, uint32_t n,
			uint32_t stride, uint32_t flags, uint64_t *ops)
{
	struct caller c;
	struct inside_mark mark;
	escrow_status status = host_check(host);
	int32_t taken = ESCROW_E_AGAIN;

	if (G_UNLIKELY(status != ESCROW_OK))
		return status;
	if (G_UNLIKELY(flags))
		return ESCROW_E_UNSUPPORTED;
	if (G_UNLIKELY(n == 0))
		return 0;
	if (G_UNLIKELY(!op || !ops || stride < sizeof(*op) || stride % 8 != 0 || n > INT32_MAX)) {
		transfer_tell_args(host, op, n, stride, ops);
		return ESCROW_E_INVALID;
	}
	mark = inside_enter(&host->inside);
	c.host = host;
	c.generation = transfer_serves(host);
	if (G_LIKELY(c.generation)) {
		c.column = c.generation->column;
		taken = n == 1 && op->nsge == 1 ? transfer_one(c, op, ops)
						: transfer_several(c, op, n, stride, ops);
	}
	inside_leave(mark);
	return G_LIKELY(taken >= 0) ? taken : transfer_refused(host, op, taken);
}

escrow_status escrow_cancel(struct escrow_host_engine *host, uint64_t id)
{
	escrow_status status = host_check(host);
	struct inside_mark mark;
	uint64_t number, handle;
	struct lend_op *lent;

	if (status != ESCROW_OK)
		return status;
	status = ESCROW_E_INVALID;
	lent = lend_find(&host->lend, id);
	if (!lent)
		return host_no_handle(host);
	mark = inside_enter(&host->inside);
	number = atomic_load(&lent->engine_generation);
	handle = atomic_load(&lent->backend_op);
	for (uint32_t i = 0; i <= HOST_GENERATIONS && handle; i++) {
		struct host_generation *g = atomic_load(&host->generations[i]);

		if (g && g->number == number && atomic_load(&lent->id) == id)
			status = g->ops->cancel(g->engine, handle, 0);
	}
	inside_leave(mark);
	return status;
}
