/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BENCH_CLOCK_H
#define BENCH_CLOCK_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* ns, of no epoch. */
static inline uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ns since *last, which is now from here on. */
static inline uint64_t since(uint64_t *last)
{
	uint64_t before = *last;

	*last = now();
	return *last - before;
}

static inline int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Of n, which are in order afterwards. */
static inline uint64_t median(uint64_t *of, uint64_t n)
{
	qsort(of, n, sizeof(*of), by_size);
	return of[n / 2];
}

#endif
