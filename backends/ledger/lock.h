/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.h - the one kind of lock: of a lane, which the data path only tries; of an engine; of a ledger.
 *
 * One atomic exchange to take it and one to give it back, inline, where nobody waits.  A mutex of
 * libpthread costs a call each way and ten times the instructions.
 *
 * Sequentially consistent, also where it fails: of a lane it is one half of two agreements with words beside it.
 * Who finds a lane held says so (WANT_LANE), then tries once more; who gives it back then looks at
 * what was said (en_lane_unlock).  With acquire and release alone a weakly ordered machine may let the
 * second try see the lane still held, and the other not see the wish: the wake-up would be lost.
 * x86 has no weaker exchange; elsewhere it is a barrier a call.
 */
#ifndef LEDGER_LOCK_H
#define LEDGER_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum lock_state { LOCK_FREE, LOCK_HELD, LOCK_AWAITED };

/* All zeros: it is free. */
struct lock {
	_Atomic uint32_t state; /* enum lock_state */
};

static inline bool lock_try(struct lock *k)
{
	uint32_t free = LOCK_FREE;

	return atomic_compare_exchange_strong(&k->state, &free, LOCK_HELD);
}

/* lock.c: sleeps until it is free; wakes one that sleeps. */
void lg_lock_wait(struct lock *k);
void lg_lock_wake(struct lock *k);

static inline void lock_take(struct lock *k)
{
	if (__builtin_expect(!lock_try(k), 0))
		lg_lock_wait(k);
}

static inline void lock_give(struct lock *k)
{
	if (__builtin_expect(atomic_exchange(&k->state, LOCK_FREE) == LOCK_AWAITED, 0))
		lg_lock_wake(k);
}

#endif
