/* SPDX-License-Identifier: BSD-2-Clause */
/* The data path: handles are translated, ranges lent, and the backend called; no lock. */
#include <string.h>

#include "plugin/host.h"

#define TRANSFER_BATCH 16u
#define TRANSFER_RANGES 64u

/* What goes to the backend in one call, on the stack. */
struct transfer {
	struct escrow_host_engine *host;
	struct host_generation *generation;
	uint32_t n;
	uint32_t nranges;
	struct lend_op *lent[TRANSFER_BATCH];
	struct escrow_op ops[TRANSFER_BATCH];
	uint64_t ids[TRANSFER_BATCH];
	struct escrow_sge ranges[TRANSFER_RANGES];
};

/* One range: into the backend's words, and into the op's own list for whoever wants to borrow. */
static escrow_status transfer_range(struct transfer *t, struct lend_op *lent,
				    const struct escrow_sge *sge)
{
	struct host_region *region = table_find(&t->host->regions, sge->region);
	uint32_t i = atomic_load_explicit(&lent->nranges, memory_order_relaxed);
	uint64_t length, handle;

	if (!region)
		return ESCROW_E_INVALID;
	length = atomic_load(&region->length);
	handle = atomic_load(&region->backend[t->generation->column]);
	if (atomic_load(&region->state) == HOST_PENDING || sge->offset > length ||
	    sge->length > length - sge->offset)
		return ESCROW_E_INVALID;
	if (!handle)
		return ESCROW_E_STATE; /* withheld from this backend */
	atomic_store_explicit(&lent->ranges[i].region, sge->region, memory_order_relaxed);
	atomic_store_explicit(&lent->ranges[i].offset, sge->offset, memory_order_relaxed);
	atomic_store_explicit(&lent->ranges[i].length, sge->length, memory_order_relaxed);
	atomic_store_explicit(&lent->nranges, i + 1, memory_order_relaxed);
	t->ranges[t->nranges++] = (struct escrow_sge){handle, sge->offset, sge->length};
	return ESCROW_OK;
}

/* After the ranges are lent: does the host hold one of them, or is a region on its way out? */
static escrow_status transfer_look(struct escrow_host_engine *host, struct lend_op *lent)
{
	uint32_t n = atomic_load(&lent->nranges), opcode = atomic_load(&lent->opcode);

	for (uint32_t i = 0; i < n; i++) {
		struct lend_range *r = &lent->ranges[i];
		struct host_region *region = table_find(&host->regions, atomic_load(&r->region));
		struct lend_borrows *borrows;

		if (!region || atomic_load(&region->state) != HOST_LIVE)
			return region && atomic_load(&region->state) == HOST_WITHHELD
				       ? ESCROW_E_STATE
				       : ESCROW_E_BUSY;
		if (atomic_load(&region->nborrows) == 0)
			continue;
		borrows = atomic_load(&region->borrows);
		if (lend_borrowed(borrows, atomic_load(&r->offset), atomic_load(&r->length),
				  opcode))
			return ESCROW_E_BUSY;
	}
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

static escrow_status transfer_fill(struct transfer *t, struct lend_op *lent,
				   const struct escrow_op *op)
{
	struct host_remote *remote = table_find(&t->host->remotes, op->remote);
	struct escrow_op *out = &t->ops[t->n];
	uint32_t first = t->nranges;
	escrow_status status = ESCROW_OK;

	if (!remote)
		return ESCROW_E_INVALID;
	lent->user = op->user;
	atomic_store_explicit(&lent->opcode, op->opcode, memory_order_relaxed);
	atomic_store_explicit(&lent->engine_generation, t->generation->number,
			      memory_order_relaxed);
	for (uint32_t i = 0; i < op->nsge && status == ESCROW_OK; i++)
		status = transfer_range(t, lent, &op->sge[i]);
	if (status != ESCROW_OK) {
		t->nranges = first;
		return status;
	}
	*out = *op;
	out->user = atomic_load_explicit(&lent->id, memory_order_relaxed);
	out->remote = atomic_load(&remote->backend[t->generation->column]);
	out->sge = &t->ranges[first];
	if (!table_was(&remote->head, op->remote))
		return ESCROW_E_INVALID;
	if (!out->remote)
		return ESCROW_E_PEER_LOST; /* it has no successor in this generation */
	return ESCROW_OK;
}

/* Adds one op to the batch: all or nothing. */
static escrow_status transfer_add(struct transfer *t, const struct escrow_op *op)
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
	status = transfer_fill(t, lent, op);
	if (status == ESCROW_OK) {
		if (t->host->flags)
			guard_lend(t->host, lent, true);
		lend_publish(lent);
		status = transfer_look(t->host, lent);
	}
	if (status != ESCROW_OK) {
		transfer_drop(t->host, lent);
		return status;
	}
	t->lent[t->n++] = lent;
	return ESCROW_OK;
}

/* Hands the batch over; how many the backend took, or its reason. */
static int32_t transfer_flush(struct transfer *t, uint32_t flags, uint64_t *ids)
{
	int32_t taken;

	if (t->n == 0)
		return 0;
	taken = t->generation->ops->transfer(t->generation->engine, t->ops, t->n, sizeof(t->ops[0]),
					     flags, t->ids);
	if (taken > (int32_t)t->n) {
		services_log(t->host->services, ESCROW_LOG_BACKEND_MISBEHAVES,
			     "transfer of %u ops answered %d", t->n, taken);
		taken = (int32_t)t->n;
	}
	if (taken == ESCROW_E_AGAIN)
		atomic_store(&t->host->turned_away, 1);
	for (uint32_t i = 0; i < t->n; i++) {
		struct lend_op *lent = t->lent[i];

		if ((int32_t)i >= taken) {
			transfer_drop(t->host, lent);
			continue;
		}
		ids[i] = atomic_load_explicit(&lent->id, memory_order_relaxed);
		lend_taken(lent, t->ids[i]);
		transfer_leave(t->host, lent);
	}
	return taken;
}

int32_t escrow_transfer(struct escrow_host_engine *host, const struct escrow_op *op, uint32_t n,
			uint32_t stride, uint32_t flags, uint64_t *ops)
{
	struct transfer t;
	struct inside_mark mark;
	uint32_t done = 0, wanted;
	escrow_status status = host_check(host);
	int32_t taken;

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
	t.generation = atomic_load(&host->dispatch);
	if (!t.generation) {
		/* said first, and then looked at again: as in transfer_place */
		atomic_store(&host->want_room, 1);
		t.generation = atomic_load(&host->dispatch);
		status = t.generation ? ESCROW_OK : ESCROW_E_AGAIN;
	}
	while (done < n && status == ESCROW_OK) {
		t.n = t.nranges = 0;
		while (done + t.n < n && t.n < TRANSFER_BATCH && status == ESCROW_OK &&
		       t.nranges + op->nsge <= TRANSFER_RANGES) {
			status = transfer_add(&t, op);
			if (status == ESCROW_OK)
				op = (const void *)((const char *)op + stride);
		}
		wanted = t.n;
		taken = transfer_flush(&t, flags, ops + done);
		if (taken < 0)
			status = taken;
		else if ((uint32_t)taken < wanted)
			n = done += (uint32_t)taken; /* a prefix: the rest was not looked at */
		else
			done += (uint32_t)taken;
		if (wanted == 0 && status == ESCROW_OK)
			status = ESCROW_E_LIMIT; /* cannot be: an op fits an empty batch */
	}
	inside_leave(mark);
	/* a handle that went with the engine */
	if (status == ESCROW_E_INVALID && atomic_load(&host->closing))
		status = ESCROW_E_STATE;
	return done ? (int32_t)done : status;
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
