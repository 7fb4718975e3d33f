/* SPDX-License-Identifier: BSD-2-Clause */
/* A lock that somebody has: futex(2). */
#include "backends/ledger/lock.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void lg_lock_wait(struct lock *k)
{
	while (atomic_exchange(&k->state, LOCK_AWAITED) != LOCK_FREE)
		syscall(SYS_futex, &k->state, FUTEX_WAIT_PRIVATE, LOCK_AWAITED, NULL);
}

void lg_lock_wake(struct lock *k)
{
	syscall(SYS_futex, &k->state, FUTEX_WAKE_PRIVATE, 1);
}
