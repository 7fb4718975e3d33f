/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ops that are outstanding and the ranges they have lent to the device, and the borrows of the
 * host on the other side.  Both sides publish first and look afterwards (sequentially consistent),
 * so that of two that clash at least one sees the other; no lock, no allocation.
 */
#ifndef LEND_H
#define LEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "plugin/escrow.h"
#include "plugin/table.h"

#define LEND_MAX_RANGES 32u
#define LEND_MAX_BORROWS 64u

#define LEND_FREE 0u
#define LEND_LENT 1u  /* the ranges are the device's */
#define LEND_ENDED 2u /* they are not, but the place is not free yet */

struct lend_range {
	_Atomic uint64_t region, offset, length;
	uint64_t guarded; /* guard.c: the address whose pages it protects; 0: none */
};

struct lend_op {
	_Atomic uint64_t id; /* what the host knows the op by; 0: none */
	_Atomic uint32_t state;
	_Atomic uint32_t next;    /* in the list of free places */
	_Atomic uint32_t holders; /* the call of transfer, and the op: the last one frees */
	_Atomic uint32_t opcode;
	_Atomic uint32_t nranges;
	uint32_t generation;
	uint64_t user;
	_Atomic uint64_t backend_op;
	_Atomic uint64_t engine_generation;
	struct lend_range *ranges;
};

struct lend {
	struct lend_op *ops;
	struct lend_range *ranges;
	uint32_t nops;
	uint32_t max_ranges;   /* of one op */
	_Atomic uint64_t free; /* tag and place + 1 */
};

struct lend_borrow {
	_Atomic uint32_t mode; /* 0 free */
	_Atomic uint64_t offset, length;
};

#define LEND_BORROW_READ 1u
#define LEND_BORROW_WRITE 2u
#define LEND_BORROW_FILLING 3u /* being written by a borrower: not yet in force */

struct lend_borrows {
	struct lend_borrow of[LEND_MAX_BORROWS];
};

bool lend_init(struct lend *lend, uint32_t nops, uint32_t max_ranges);
void lend_fini(struct lend *lend);

/* [any] Is a place free? */
static inline bool lend_has_room(struct lend *lend)
{
	return (uint32_t)atomic_load(&lend->free) != 0;
}
/* How many are not: all are looked at. */
uint32_t lend_used(struct lend *lend);
/*
 * Of the words of a place only `state` is one of those that two sides publish before they look (above).  The others are
 * read by who has the op's number: by way of the backend, of the host, or, where none of these was waited for, with a look
 * at the number before and behind.
 */
static inline void lend_put(_Atomic uint64_t *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_release);
}

/*
 * The list of free places with this one in front.  The tag in the upper half changes with every take and give, so that a
 * place that was taken and given back in between is not mistaken for unchanged.
 */
static inline uint64_t lend_list(uint64_t head, uint32_t place_and_1)
{
	return ((head >> 32) + 1) << 32 | place_and_1;
}

/* A place that was taken out of the list: an id of its own, both holders, its other words as they were. */
static inline struct lend_op *lend_begin(struct lend *lend, uint32_t place)
{
	struct lend_op *op = &lend->ops[place];

	op->generation++;
	atomic_store_explicit(&op->holders, 2, memory_order_relaxed);
	lend_put(&op->backend_op, 0);
	lend_put(&op->id, table_handle(TABLE_OP, op->generation, place));
	return op;
}

/* [any] A place for an op; NULL: all are taken. */
static inline struct lend_op *lend_take(struct lend *lend)
{
	uint64_t head = atomic_load(&lend->free), rest;

	do {
		if ((uint32_t)head == 0)
			return NULL;
		rest = lend_list(head, atomic_load_explicit(&lend->ops[(uint32_t)head - 1].next,
							    memory_order_relaxed));
	} while (!atomic_compare_exchange_weak(&lend->free, &head, rest));
	return lend_begin(lend, (uint32_t)head - 1);
}

/*
 * [any] Places for n ops: how many there were.  Those behind the first are found by words that others may be writing: if
 * they did, the list is not as it was.
 */
uint32_t lend_take_some(struct lend *lend, struct lend_op **ops, uint32_t n);

/* A range of this region that it will lend. */
static inline void lend_note(struct lend_range *range, uint64_t region,
			     const struct escrow_sge *sge)
{
	atomic_store_explicit(&range->region, region, memory_order_relaxed);
	atomic_store_explicit(&range->offset, sge->offset, memory_order_relaxed);
	atomic_store_explicit(&range->length, sge->length, memory_order_relaxed);
}

/* The ranges are written: from here on they are lent. */
static inline void lend_publish(struct lend_op *op)
{
	atomic_store(&op->state, LEND_LENT);
}

/* They are not any more. */
static inline void lend_end(struct lend_op *op)
{
	atomic_store_explicit(&op->state, LEND_ENDED, memory_order_release);
}

/* The backend has it, by this handle. */
static inline void lend_taken(struct lend_op *op, uint64_t backend_op)
{
	lend_put(&op->backend_op, backend_op);
}

/* One holder less; true: it was the last one, and the place is free, though not in the list: lend_give. */
static inline bool lend_left(struct lend_op *op)
{
	/* Who is alone stays so. */
	if (atomic_load(&op->holders) != 1 && atomic_fetch_sub(&op->holders, 1) != 1)
		return false;
	lend_put(&op->id, 0);
	atomic_store_explicit(&op->state, LEND_FREE, memory_order_release);
	return true;
}

/* Of two that lend_left has freed, and which nobody else knows of: in the list, the other one comes next. */
static inline void lend_link(const struct lend *lend, struct lend_op *op,
			     const struct lend_op *next)
{
	atomic_store_explicit(&op->next, (uint32_t)(next - lend->ops) + 1, memory_order_relaxed);
}

/* [any] Puts places into the list that are one behind the other already, from the first to the last. */
static inline void lend_give(struct lend *lend, const struct lend_op *first, struct lend_op *last)
{
	uint32_t place = (uint32_t)(first - lend->ops);
	uint64_t head = atomic_load(&lend->free);

	do
		atomic_store_explicit(&last->next, (uint32_t)head, memory_order_relaxed);
	while (!atomic_compare_exchange_weak(&lend->free, &head, lend_list(head, place + 1)));
}

/* lend_left, and the place back into the list. */
static inline bool lend_drop(struct lend *lend, struct lend_op *op)
{
	if (!lend_left(op))
		return false;
	lend_give(lend, op, op);
	return true;
}

static inline struct lend_op *lend_find(struct lend *lend, uint64_t id)
{
	uint32_t place = table_place(id);

	/* of id 0 there is no place */
	if (place >= lend->nops || atomic_load(&lend->ops[place].id) != id)
		return NULL;
	return &lend->ops[place];
}

/* Is any byte of the range lent so that the host may not read, or not write, it? */
bool lend_clashes(struct lend *lend, uint64_t region, uint64_t offset, uint64_t length,
		  uint32_t mode);
/* Is anything of the region lent? */
bool lend_has_region(struct lend *lend, uint64_t region);
/* ... to this generation, by an op that it took and not by one that is only on its way there? */
bool lend_generation_has(struct lend *lend, uint64_t generation, uint64_t region);

/* Does a borrow stand in the way of an op on this range? */
bool lend_borrowed(struct lend_borrows *borrows, uint64_t offset, uint64_t length, uint32_t opcode);

#endif
