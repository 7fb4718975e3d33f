/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The load of `escrow bench`: threads that keep batches of ops under way and measure them.  What moves
 * the bytes is behind struct bench_mover, so that a backend and what it is compared with do the same
 * work by the same loop.  Plain C: the raw verbs of tests/bench/ use it too.
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_MAX_BATCH 1024u
#define BENCH_MAX_WINDOW 4096u
#define BENCH_MAX_THREADS 64u
#define BENCH_REAP 64u

/* ---- bench-stat.c: durations, in buckets of equal relative width (1/64) ----------------------------- */
#define BENCH_BUCKETS (58u * 64u)

struct bench_times {
	uint64_t n, sum, max; /* ns */
	uint32_t bucket[BENCH_BUCKETS];
};

struct bench_result {
	uint64_t ops, bytes;
	uint64_t ns;      /* from the first post to the last completion */
	uint64_t cpu_ns;  /* of all threads of the process meanwhile */
	uint64_t retries; /* posts that were refused because something was full */
	struct bench_times post,
		transfer; /* of a batch: the call; from its start until the last op ended */
};

void bench_times_add(struct bench_times *times, uint64_t ns);
/* The duration that `share` (0..1) of all do not exceed, to 1/64 of it; 0 if there is none. */
uint64_t bench_times_at(const struct bench_times *times, double share);
double bench_times_avg(const struct bench_times *times);
void bench_result_add(struct bench_result *sum, const struct bench_result *one);

/* ---- bench-load.c ------------------------------------------------------------------------------------ */
#define BENCH_READ 1u
#define BENCH_WRITE 2u
#define BENCH_MIX 3u /* every other op */

/*
 * One point of a sweep.  The memory has a range that is read and behind it one that is written, of
 * `area` bytes each; a thread has `places` blocks in it and takes them in turn.
 */
struct bench_work {
	uint32_t op; /* BENCH_READ... */
	uint32_t batch, window, threads;
	uint64_t size;
	uint64_t duration_ns; /* 0: `batches` counts */
	uint64_t batches;     /* of each thread */
	uint64_t area;
	uint32_t places; /* of each thread */
	uint32_t ncpus;  /* 0: threads are not bound */
	uint32_t cpus[BENCH_MAX_THREADS];
};

struct bench_op {
	uint64_t offset, size; /* the same in the local and in the remote memory */
	uint32_t slot;         /* comes back when it has ended */
	bool write;
};

struct bench_done {
	uint32_t slot, ops;
};

struct bench_mover {
	void *ctx;
	/* Takes ops in order, 0..n of them; < 0: it failed, and said so. */
	int (*submit)(void *ctx, uint32_t thread, const struct bench_op *ops, uint32_t n);
	/* What has ended, at most BENCH_REAP; < 0: something failed.  One caller at a time. */
	int (*reap)(void *ctx, struct bench_done *done);
};

/* How many places each thread gets; 0: not even one fits into the area. */
uint32_t bench_places(const struct bench_work *work);
/* Where place i of a thread starts, in the range that is read or written. */
uint64_t bench_offset(const struct bench_work *work, bool write, uint32_t thread, uint32_t place);

/*
 * Warms up (every place once, and a tenth of the work), then measures; adds to *result.  false: the
 * mover failed, or a thread could not be had.
 */
bool bench_load(const struct bench_work *work, const struct bench_mover *mover,
		struct bench_result *result);

#endif
