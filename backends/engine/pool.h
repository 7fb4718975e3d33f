/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool.h - a free list of slot numbers that needs no lock: the ops of several transfer threads.
 *
 * A stack of indices; the head carries a counter, so that a slot that was taken and given back in
 * between is not mistaken for an unchanged stack (the ABA problem).
 *
 * Who finds it empty says that one is wanted and looks once more; who gives one looks afterwards whether one is
 * wanted.  One of the two must see the other, so the give and the look of a take are in one order with those words
 * (C11 7.17.3).
 */
#ifndef ENGINE_POOL_H
#define ENGINE_POOL_H

#include <stdatomic.h>
#include <stdint.h>

#define POOL_NONE UINT32_MAX

struct pool {
	_Atomic uint64_t head; /* counter << 32 | index */
	_Atomic uint32_t *next;
};

/* next: n elements, the pool's from now on.  All slots are free. */
static inline void pool_init(struct pool *p, _Atomic uint32_t *next, uint32_t n)
{
	uint32_t i;

	p->next = next;
	for (i = 0; i < n; i++)
		atomic_init(&next[i], i + 1 < n ? i + 1 : POOL_NONE);
	atomic_init(&p->head, n ? 0 : POOL_NONE);
}

static inline uint32_t pool_next(const struct pool *p, uint32_t slot)
{
	return atomic_load_explicit(&p->next[slot], memory_order_relaxed);
}

static inline void pool_link(struct pool *p, uint32_t slot, uint32_t next)
{
	atomic_store_explicit(&p->next[slot], next, memory_order_relaxed);
}

/* The last of up to `most` slots from `slot` on.  Each link is read once: others may cut it between two looks. */
static inline uint32_t pool_last(const struct pool *p, uint32_t slot, uint32_t most)
{
	uint32_t n, next;

	for (n = 1; n < most; n++) {
		next = pool_next(p, slot);
		if (next == POOL_NONE)
			break;
		slot = next;
	}
	return slot;
}

/*
 * Up to `most` (>= 1) free slots at once, linked: the first, or POOL_NONE.  What is seen of slots that
 * others take meanwhile does not matter: then the head has moved on.
 */
static inline uint32_t pool_take_some(struct pool *p, uint32_t most)
{
	uint64_t head = atomic_load(&p->head);
	uint32_t last;
	uint64_t to;

	do {
		if ((uint32_t)head == POOL_NONE)
			return POOL_NONE;
		last = pool_last(p, (uint32_t)head, most);
		to = ((head >> 32) + 1) << 32 | pool_next(p, last);
	} while (!atomic_compare_exchange_weak(&p->head, &head, to));
	pool_link(p, last, POOL_NONE);
	return (uint32_t)head;
}

/* A free slot, or POOL_NONE. */
static inline uint32_t pool_take(struct pool *p)
{
	return pool_take_some(p, 1);
}

/* Linked slots, from the first to the last. */
static inline void pool_give_some(struct pool *p, uint32_t first, uint32_t last)
{
	uint64_t head = atomic_load_explicit(&p->head, memory_order_relaxed);
	uint64_t to;

	do {
		pool_link(p, last, (uint32_t)head);
		to = ((head >> 32) + 1) << 32 | first;
	} while (!atomic_compare_exchange_weak_explicit(&p->head, &head, to, memory_order_seq_cst,
							memory_order_relaxed));
}

static inline void pool_give(struct pool *p, uint32_t slot)
{
	pool_give_some(p, slot, slot);
}

#endif
