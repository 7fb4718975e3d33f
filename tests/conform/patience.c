/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/conform/patience.h"

#include <poll.h>
#include <sched.h>
#include <time.h>

#define SPINS 50u

static unsigned int patience = 10000;

void patience_limit(unsigned int ms)
{
	patience = ms - ms / 5;
}

unsigned int patience_ms(void)
{
	return patience;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t patience_end(void)
{
	return now_ns() + (uint64_t)patience * 1000000u;
}

bool patience_over(uint64_t end)
{
	return now_ns() > end;
}

void patience_idle(unsigned int round)
{
	if (round < SPINS)
		sched_yield();
	else
		poll(NULL, 0, 1);
}
