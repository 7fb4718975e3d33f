/* SPDX-License-Identifier: BSD-2-Clause */
#include <sched.h>

#include "plugin/inside.h"

_Thread_local uint32_t inside_mine;

uint32_t inside_give_line(void)
{
	static _Atomic uint32_t given;

	inside_mine = atomic_fetch_add_explicit(&given, 1, memory_order_relaxed) % INSIDE_LINES + 1;
	return inside_mine;
}

static void inside_wait_parity(struct inside *inside, uint32_t parity)
{
	for (uint32_t i = 0; i <= INSIDE_LINES; i++) {
		while (atomic_load(&inside->lines[i].n[parity]) != 0)
			sched_yield();
	}
}

/*
 * Twice: a reader may have read the parity just before a flip and count itself just after the
 * wait; then it is under the parity that the second wait looks at.
 */
void inside_wait(struct inside *inside)
{
	for (int i = 0; i < 2; i++) {
		uint32_t old = atomic_fetch_xor(&inside->parity, 1) & 1;

		inside_wait_parity(inside, old);
	}
}
