/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/bench-load.h"

#define SUB_BITS 6
#define SUB (1u << SUB_BITS)

/* Below 2 SUB each value has a bucket; above, each power of two has SUB of them. */
static uint32_t bucket_of(uint64_t ns)
{
	uint32_t shift = ns < 2 * SUB ? 0 : 63u - (uint32_t)__builtin_clzll(ns) - SUB_BITS;
	uint32_t at = shift * SUB + (uint32_t)(ns >> shift);

	return at < BENCH_BUCKETS ? at : BENCH_BUCKETS - 1;
}

/* The middle of what falls into a bucket. */
static uint64_t value_of(uint32_t at)
{
	uint32_t shift = at < 2 * SUB ? 0 : at / SUB - 1;
	uint64_t low = (uint64_t)(at - shift * SUB) << shift;

	return low + ((UINT64_C(1) << shift) >> 1);
}

void bench_times_add(struct bench_times *t, uint64_t ns)
{
	t->n++;
	t->sum += ns;
	if (ns > t->max)
		t->max = ns;
	t->bucket[bucket_of(ns)]++;
}

uint64_t bench_times_at(const struct bench_times *t, double share)
{
	double wanted = share * (double)t->n;
	uint64_t rank = (uint64_t)wanted, seen = 0;

	if ((double)rank < wanted)
		rank++;
	for (uint32_t i = 0; i < BENCH_BUCKETS; i++) {
		seen += t->bucket[i];
		if (seen && seen >= rank)
			return value_of(i) < t->max ? value_of(i) : t->max;
	}
	return 0;
}

double bench_times_avg(const struct bench_times *t)
{
	return t->n ? (double)t->sum / (double)t->n : 0;
}

static void times_merge(struct bench_times *sum, const struct bench_times *one)
{
	sum->n += one->n;
	sum->sum += one->sum;
	if (one->max > sum->max)
		sum->max = one->max;
	for (uint32_t i = 0; i < BENCH_BUCKETS; i++)
		sum->bucket[i] += one->bucket[i];
}

void bench_result_add(struct bench_result *sum, const struct bench_result *one)
{
	sum->ops += one->ops;
	sum->bytes += one->bytes;
	sum->ns += one->ns;
	sum->cpu_ns += one->cpu_ns;
	sum->retries += one->retries;
	times_merge(&sum->post, &one->post);
	times_merge(&sum->transfer, &one->transfer);
}
