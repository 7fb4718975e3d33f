/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "plugin/lend.h"
#include "plugin/table.h"

bool lend_init(struct lend *lend, uint32_t nops, uint32_t max_ranges)
{
	uint32_t first = table_first_generation();

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
		lend->ops[i].generation = first;
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

uint32_t lend_take_some(struct lend *lend, struct lend_op **ops, uint32_t n)
{
	uint64_t head = atomic_load(&lend->free);
	uint32_t rest, taken;

	do {
		rest = (uint32_t)head;
		for (taken = 0; taken < n && rest != 0; taken++) {
			ops[taken] = &lend->ops[rest - 1];
			rest = atomic_load_explicit(&ops[taken]->next, memory_order_relaxed);
		}
		if (taken == 0)
			return 0;
	} while (!atomic_compare_exchange_weak(&lend->free, &head, lend_list(head, rest)));
	for (uint32_t i = 0; i < taken; i++)
		lend_begin(lend, (uint32_t)(ops[i] - lend->ops));
	return taken;
}

uint32_t lend_used(struct lend *lend)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i < lend->nops; i++)
		used += atomic_load(&lend->ops[i].id) != 0;
	return used;
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
