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
/* [any] A place for an op with an id of its own and both holders; NULL: all are taken. */
struct lend_op *lend_take(struct lend *lend);
/* The ranges are written: from here on they are lent. */
void lend_publish(struct lend_op *op);
/* They are not any more. */
void lend_end(struct lend_op *op);
/* The backend has it, by this handle. */
void lend_taken(struct lend_op *op, uint64_t backend_op);
/* One holder less; true: it was the last one, and the place is free. */
bool lend_drop(struct lend *lend, struct lend_op *op);

struct lend_op *lend_find(struct lend *lend, uint64_t id);

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
