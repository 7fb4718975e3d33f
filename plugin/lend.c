/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "plugin/lend.h"
#include "plugin/table.h"

bool lend_init(struct lend *lend, uint32_t nops, uint32_t max_ranges)
{
	lend->ops = calloc(nops, sizeof(*lend->ops));
	lend->ranges = calloc((size_t)nops * max_ranges, sizeof(*lend->ranges));
	if (!lend->ops || !lend->ranges) {
		lend_fini(lend);
		return false;
	}
	lend->nops = nops;
	lend->max_ranges = max_ranges;
	for (uint32_t i = 0; i < nops; i++) {
		lend->ops[i].ranges = lend->ranges + (size_t)i * max_ranges;
		lend->ops[i].next = i + 1 < nops ? i + 2 : 0;
	}
	lend->free = 1;
	return true;
}

void lend_fini(struct lend *lend)
{
	free(lend->ops);
	free(lend->ranges);
	lend->ops = NULL;
	lend->ranges = NULL;
}

/*
 * Of the words of a place only `state` is one of those that two sides publish before they look (lend.h).  The others are
 * read by who has the op's number: by way of the backend, of the host, or, where none of these was waited for, with a look
 * at the number before and behind.
 */
static void put(_Atomic uint64_t *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_release);
}

/* The tag in the upper half changes with every take, so that a place that was taken and given back
 * in between is not mistaken for unchanged. */
struct lend_op *lend_take(struct lend *lend)
{
	uint64_t head = atomic_load(&lend->free), next;
	struct lend_op *op;

	do {
		if ((uint32_t)head == 0)
			return NULL;
		op = &lend->ops[(uint32_t)head - 1];
		next = ((head >> 32) + 1) << 32 |
		       atomic_load_explicit(&op->next, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak(&lend->free, &head, next));
	op->generation++;
	atomic_store_explicit(&op->nranges, 0, memory_order_relaxed);
	atomic_store_explicit(&op->holders, 2, memory_order_relaxed);
	put(&op->backend_op, 0);
	put(&op->id, table_handle(TABLE_OP, op->generation, (uint32_t)(op - lend->ops)));
	return op;
}

void lend_publish(struct lend_op *op)
{
	atomic_store(&op->state, LEND_LENT);
}

void lend_taken(struct lend_op *op, uint64_t backend_op)
{
	put(&op->backend_op, backend_op);
}

void lend_end(struct lend_op *op)
{
	atomic_store_explicit(&op->state, LEND_ENDED, memory_order_release);
}

bool lend_drop(struct lend *lend, struct lend_op *op)
{
	uint64_t head, next;

	/* Who is alone stays so. */
	if (atomic_load(&op->holders) != 1 && atomic_fetch_sub(&op->holders, 1) != 1)
		return false;
	put(&op->id, 0);
	atomic_store_explicit(&op->state, LEND_FREE, memory_order_release);
	head = atomic_load(&lend->free);
	do {
		atomic_store_explicit(&op->next, (uint32_t)head, memory_order_relaxed);
		next = ((head >> 32) + 1) << 32 | ((uint64_t)(op - lend->ops) + 1);
	} while (!atomic_compare_exchange_weak(&lend->free, &head, next));
	return true;
}

uint32_t lend_used(struct lend *lend)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i < lend->nops; i++)
		used += atomic_load(&lend->ops[i].id) != 0;
	return used;
}

struct lend_op *lend_find(struct lend *lend, uint64_t id)
{
	uint32_t place = table_place(id);

	if (id == 0 || place >= lend->nops || atomic_load(&lend->ops[place].id) != id)
		return NULL;
	return &lend->ops[place];
}

/* Both ranges lie inside one region, so that neither sum wraps.  Empty ranges meet nothing. */
static bool lend_overlap(uint64_t a, uint64_t alen, uint64_t b, uint64_t blen)
{
	return alen && blen && a < b + blen && b < a + alen;
}

static bool lend_op_clashes(const struct lend_op *op, uint64_t region, uint64_t offset,
			    uint64_t length)
{
	uint32_t n = atomic_load(&op->nranges);

	for (uint32_t i = 0; i < n; i++) {
		const struct lend_range *r = &op->ranges[i];

		if (atomic_load(&r->region) == region &&
		    lend_overlap(atomic_load(&r->offset), atomic_load(&r->length), offset, length))
			return true;
	}
	return false;
}

bool lend_clashes(struct lend *lend, uint64_t region, uint64_t offset, uint64_t length,
		  uint32_t mode)
{
	for (uint32_t i = 0; i < lend->nops; i++) {
		const struct lend_op *op = &lend->ops[i];

		if (atomic_load(&op->state) != LEND_LENT)
			continue;
		/* the device only reads what a WRITE lends: the host may read along */
		if (mode == LEND_BORROW_READ && atomic_load(&op->opcode) == ESCROW_WRITE)
			continue;
		if (lend_op_clashes(op, region, offset, length))
			return true;
	}
	return false;
}

bool lend_has_region(struct lend *lend, uint64_t region)
{
	return lend_clashes(lend, region, 0, UINT64_MAX, LEND_BORROW_WRITE);
}

bool lend_generation_has(struct lend *lend, uint64_t generation, uint64_t region)
{
	for (uint32_t i = 0; i < lend->nops; i++) {
		const struct lend_op *op = &lend->ops[i];

		if (atomic_load(&op->state) == LEND_LENT && atomic_load(&op->backend_op) &&
		    atomic_load(&op->engine_generation) == generation &&
		    lend_op_clashes(op, region, 0, UINT64_MAX))
			return true;
	}
	return false;
}

bool lend_borrowed(struct lend_borrows *borrows, uint64_t offset, uint64_t length, uint32_t opcode)
{
	for (uint32_t i = 0; i < LEND_MAX_BORROWS; i++) {
		struct lend_borrow *b = &borrows->of[i];
		uint32_t mode = atomic_load(&b->mode);

		if (mode == 0 || mode == LEND_BORROW_FILLING)
			continue;
		if (mode == LEND_BORROW_READ && opcode == ESCROW_WRITE)
			continue;
		if (lend_overlap(atomic_load(&b->offset), atomic_load(&b->length), offset, length))
			return true;
	}
	return false;
}
