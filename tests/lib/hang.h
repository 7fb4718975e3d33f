/* SPDX-License-Identifier: BSD-2-Clause */
/* A test that hangs says where: a stack of each thread, of it and of the process it waits for. */
#ifndef HANG_H
#define HANG_H

#include <sys/types.h>

/*
 * From now on, so many seconds without another call are a hang: tests/lib/stacks is run for this process
 * and for `other` (0: none), on standard error, and the test ends by abort().  0 seconds: no more.
 */
void hang_watch(unsigned int seconds, pid_t other);

/*
 * It goes on: the time that hang_watch gave begins anew, `times` as long until the next call.  A machine may be slow; a test
 * hangs when it comes no further.
 */
void hang_alive(unsigned int times);

#endif
