/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data path: handles are translated, ranges lent, and the backend called; no lock.
 *
 * A call of one op, and one of several, are the same steps; they are expanded in both, for of one op no batch has to be kept.
 */
#include <string.h>

#include "plugin/host.h"

#define TRANSFER_BATCH 16u
#define TRANSFER_RANGES 64u

#define EXPANDED static inline __attribute__((always_inline))

/* What goes to the backend in one call, on the stack. */
struct transfer {
	struct escrow_host_engine *host;
	struct host_generation *generation;
	uint32_t column; /* the generation's */
	struct lend_op *lent[TRANSFER_BATCH];
	struct escrow_op ops[TRANSFER_BATCH];
	uint64_t ids[TRANSFER_BATCH];
	struct escrow_sge ranges[TRANSFER_RANGES];
};

/* One range, in the backend's words, and the region that it is of. */
EXPANDED escrow_status transfer_range(const struct transfer *t, const struct escrow_sge *sge,
				      struct escrow_sge *out, struct host_region **of)
{
	struct host_region *region = table_find(&t->host->regions, sge->region);
	uint64_t length;

	if (!region)
		return ESCROW_E_INVALID;
	length = atomic_load(&region->length);
	*of = region;
	*out = (struct escrow_sge){atomic_load(&region->backend[t->column]), sge->offset,
				   sge->length};
	if (atomic_load(&region->state) == HOST_PENDING || out->offset > length ||
	    out->length > length - out->offset)
		return ESCROW_E_INVALID;
	return out->region ? ESCROW_OK : ESCROW_E_STATE; /* withheld from this backend */
}

/* After a range is lent: does the host hold it, or is its region on its way out? */
EXPANDED escrow_status transfer_look(const struct lend_range *range, struct host_region *region,
				     uint32_t opcode)
{
	uint32_t state = atomic_load(&region->state);

	/* The place may be another's by now. */
	if (!table_was(&region->head, atomic_load(&range->region)))
		return ESCROW_E_BUSY;
	if (state != HOST_LIVE)
		return state == HOST_WITHHELD ? ESCROW_E_STATE : ESCROW_E_BUSY;
	if (atomic_load(&region->nborrows) &&
	    lend_borrowed(atomic_load(&region->borrows), atomic_load(&range->offset),
			  atomic_load(&range->length), opcode))
		return ESCROW_E_BUSY;
	return ESCROW_OK;
}

/*
 * A place for an op, or NULL and ROOM follows.  Who finds none says so and then looks again; who gives one back does it
 * the other way round: so that at least one sees the other.
 */
static struct lend_op *transfer_place(struct escrow_host_engine *host)
{
	struct lend_op *lent = lend_take(&host->lend);

	if (lent)
		return lent;
	atomic_store(&host->want_room, 1);
	return lend_take(&host->lend);
}

/* One holder less.  Of the last one poll knows nothing, and whoever waits may be asleep. */
static void transfer_leave(struct escrow_host_engine *host, struct lend_op *lent)
{
	if (lend_drop(&host->lend, lent) && atomic_load(&host->want_room))
		host_wake(host);
}

/* Takes an op back that the backend does not have. */
static void transfer_drop(struct escrow_host_engine *host, struct lend_op *lent)
{
	if (host->flags && atomic_load(&lent->state) == LEND_LENT)
		guard_lend(host, lent, false);
	lend_end(lent);
	lend_drop(&host->lend, lent);
	transfer_leave(host, lent);
	quota_ops_give(1);
}

/* Its words for the backend, and its ranges for whoever wants to borrow; which regions they are of. */
EXPANDED escrow_status transfer_fill(struct transfer *t, struct lend_op *lent,
				     const struct escrow_op *op, struct escrow_op *out,
				     struct escrow_sge *ranges, struct host_region **regions)
{
	struct host_remote *remote = table_find(&t->host->remotes, op->remote);
	escrow_status status;

	if (!remote)
		return ESCROW_E_INVALID;
	*out = *op;
	lent->user = out->user;
	atomic_store_explicit(&lent->opcode, out->opcode, memory_order_relaxed);
	atomic_store_explicit(&lent->engine_generation, t->generation->number,
			      memory_order_relaxed);
	for (uint32_t i = 0; i < out->nsge; i++) {
		status = transfer_range(t, &op->sge[i], &ranges[i], &regions[i]);
		if (status != ESCROW_OK)
			return status;
		lend_note(&lent->ranges[i], op->sge[i].region, &ranges[i]);
	}
	/* Behind the ranges: who found the place lent by its last op must not count ranges of one before that. */
	atomic_store_explicit(&lent->nranges, out->nsge, memory_order_release);
	out->user = atomic_load_explicit(&lent->id, memory_order_relaxed);
	out->remote = atomic_load(&remote->backend[t->column]);
	out->sge = ranges;
	if (!table_was(&remote->head, op->remote))
		return ESCROW_E_INVALID;
	/* one that has no successor in this generation */
	return out->remote ? ESCROW_OK : ESCROW_E_PEER_LOST;
}

/* The same, and lent. */
EXPANDED escrow_status transfer_lend(struct transfer *t, struct lend_op *lent,
				     const struct escrow_op *op, struct escrow_op *out,
				     struct escrow_sge *ranges)
{
	struct host_region *regions[LEND_MAX_RANGES];
	escrow_status status = transfer_fill(t, lent, op, out, ranges, regions);

	if (status != ESCROW_OK)
		return status;
	if (G_UNLIKELY(t->host->flags))
		guard_lend(t->host, lent, true);
	lend_publish(lent);
	for (uint32_t i = 0; i < out->nsge; i++) {
		status = transfer_look(&lent->ranges[i], regions[i], out->opcode);
		if (status != ESCROW_OK)
			return status;
	}
	return ESCROW_OK;
}

/* One op as the i-th of the batch, with its ranges behind those of the others: all or nothing. */
EXPANDED escrow_status transfer_add(struct transfer *t, const struct escrow_op *op, uint32_t i,
				    uint32_t nranges)
{
	struct lend_op *lent;
	escrow_status status;

	if (op->nsge > t->host->lend.max_ranges)
		return ESCROW_E_LIMIT;
	if (op->nsge && !op->sge)
		return ESCROW_E_INVALID;
	if (!quota_op_take())
		return ESCROW_E_QUOTA;
	lent = transfer_place(t->host);
	if (!lent) {
		quota_ops_give(1);
		return ESCROW_E_AGAIN;
	}
	status = transfer_lend(t, lent, op, &t->ops[i], &t->ranges[nranges]);
	if (status != ESCROW_OK) {
		transfer_drop(t->host, lent);
		return status;
	}
	t->lent[i] = lent;
	return ESCROW_OK;
}

/* What the backend answered that no backend may. */
static __attribute__((noinline, cold)) int32_t transfer_odd(const struct transfer *t, uint32_t n,
							    int32_t taken)
{
	services_log(t->host->services, ESCROW_LOG_BACKEND_MISBEHAVES,
		     "transfer of %u ops answered %d", n, taken);
	return (int32_t)n;
}

/* Hands a batch of n over; how many the backend took, or its reason. */
EXPANDED int32_t transfer_flush(struct transfer *t, uint32_t n, uint64_t *ids)
{
	const struct host_generation *g = t->generation;
	int32_t taken = g->ops->transfer(g->engine, t->ops, n, sizeof(t->ops[0]), 0, t->ids), i;

	if (G_UNLIKELY(taken > (int32_t)n))
		taken = transfer_odd(t, n, taken);
	if (taken == ESCROW_E_AGAIN)
		atomic_store(&t->host->turned_away, 1);
	for (i = 0; i < taken; i++) {
		struct lend_op *lent = t->lent[i];

		ids[i] = atomic_load_explicit(&lent->id, memory_order_relaxed);
		lend_taken(lent, t->ids[i]);
		transfer_leave(t->host, lent);
	}
	for (; i < (int32_t)n; i++)
		transfer_drop(t->host, t->lent[i]);
	return taken;
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

/* Ops as long as they fit one batch, n at most: *added, and why it stopped at one. */
static inline escrow_status transfer_collect(struct transfer *t, const struct escrow_op *op,
					     uint32_t n, uint32_t stride, uint32_t *added)
{
	uint32_t i, nranges = 0;
	escrow_status status = ESCROW_OK;

	for (i = 0; i < n; i++, op = transfer_next(op, 1, stride)) {
		if (i && op->nsge > TRANSFER_RANGES - nranges)
			break;
		status = transfer_add(t, op, i, nranges);
		if (status != ESCROW_OK)
			break;
		nranges += op->nsge;
	}
	*added = i;
	return status;
}

/* Some, or why none. */
static __attribute__((noinline)) int32_t transfer_several(struct transfer *t,
							  const struct escrow_op *op, uint32_t n,
							  uint32_t stride, uint64_t *ids)
{
	uint32_t done = 0, added;
	escrow_status status;
	int32_t taken;

	do {
		status = transfer_collect(t, op, MIN(n - done, TRANSFER_BATCH), stride, &added);
		if (!added)
			break;
		taken = transfer_flush(t, added, ids + done);
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

static inline int32_t transfer_one(struct transfer *t, const struct escrow_op *op, uint64_t *id)
{
	escrow_status status = transfer_add(t, op, 0, 0);

	return status == ESCROW_OK ? transfer_flush(t, 1, id) : status;
}

int32_t escrow_transfer(struct escrow_host_engine *host, const struct escrow_op *op, uint32_t n,
			uint32_t stride, uint32_t flags, uint64_t *ops)
{
	struct transfer t;
	struct inside_mark mark;
	escrow_status status = host_check(host);
	int32_t taken = ESCROW_E_AGAIN;

	if (status != ESCROW_OK)
		return status;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	if (n == 0)
		return 0;
	if (!op || !ops || stride < sizeof(*op) || stride % 8 != 0 || n > INT32_MAX)
		return ESCROW_E_INVALID;
	t.host = host;
	mark = inside_enter(&host->inside);
	t.generation = transfer_serves(host);
	if (G_LIKELY(t.generation)) {
		t.column = t.generation->column;
		taken = n == 1 ? transfer_one(&t, op, ops)
			       : transfer_several(&t, op, n, stride, ops);
	}
	inside_leave(mark);
	/* a handle that went with the engine */
	if (taken == ESCROW_E_INVALID && atomic_load(&host->closing))
		taken = ESCROW_E_STATE;
	return taken;
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
