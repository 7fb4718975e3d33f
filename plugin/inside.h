/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is inside a call into a backend: counters, a line of cache to each thread, instead of a lock,
 * so that a swap can wait until nobody uses what it is about to take away.  The scheme is that of
 * sleepable RCU: readers count themselves under the parity of the moment, and who waits flips it.
 */
#ifndef INSIDE_H
#define INSIDE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define INSIDE_LINES 64u /* threads beyond that share a line, which is only slower */

struct inside_line {
	_Alignas(64) _Atomic uint64_t n[2]; /* by parity */
};

struct inside {
	_Atomic uint32_t parity;
	struct inside_line lines[INSIDE_LINES + 1]; /* the last one: inside_enter_alone */
};

/* What enter gives to leave. */
struct inside_mark {
	_Atomic uint64_t *n;
};

extern _Thread_local uint32_t inside_mine; /* the line of this thread, from 1; 0: none yet */
uint32_t inside_give_line(void);

/* The line of this thread, given out at its first use. */
static inline uint32_t inside_my_line(void)
{
	uint32_t mine = inside_mine;

	return (mine ? mine : inside_give_line()) - 1;
}

/* What is loaded after enter stays usable until leave.  Waits for nobody. */
static inline struct inside_mark inside_enter(struct inside *inside)
{
	struct inside_mark mark = {
		&inside->lines[inside_my_line()].n[atomic_load(&inside->parity) & 1]};

	atomic_fetch_add(mark.n, 1);
	return mark;
}

static inline void inside_leave(struct inside_mark mark)
{
	atomic_fetch_sub(mark.n, 1);
}

/*
 * The same for a call of which there is one at a time: it has a line to itself, which is not looked for and on which
 * nobody else counts.  false: there is one already, and nothing is entered (unless the parity was flipped in between).
 * Leave with inside_leave_alone.
 */
static inline bool inside_enter_alone(struct inside *inside, struct inside_mark *mark)
{
	mark->n = &inside->lines[INSIDE_LINES].n[atomic_load(&inside->parity) & 1];
	return atomic_exchange(mark->n, 1) == 0;
}

static inline void inside_leave_alone(struct inside_mark mark)
{
	atomic_store_explicit(mark.n, 0, memory_order_release);
}

/*
 * Returns when everybody who entered before the call has left.  One caller at a time, and never
 * from inside.  Calls into backends are of class NB, so this is short.
 */
void inside_wait(struct inside *inside);

#endif
