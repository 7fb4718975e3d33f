/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread has `window` slots, each good for a batch under way.  Whoever has nothing to post takes the
 * completions, for all threads: they go back to their owners through a ring for each.
 */
#include "config.h"

#include "tools/bench-load.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALIGN 64u
#define WARM_SHARE 10u /* of the work, at least */
/*
 * To look at the clock takes a good part of what a small op does.  So where others are under way meanwhile, and what is
 * looked for is how many, only one of so many batches that are smaller than that is timed: a prime, so that in a mix both
 * directions are, and all places.
 */
#define TIMED_EVERY 17u
#define TIMED_BYTES 65536u

struct slot {
	_Atomic uint32_t left; /* ops that have not ended */
	bool timed;
	uint64_t start_ns, end_ns;
};

struct thread {
	struct load *load;
	uint32_t number;
	pthread_t id;
	struct slot *slots;
	uint32_t *idle; /* a stack of slots */
	uint32_t nidle;
	uint32_t *ring; /* slots that ended: written by who reaps, read by the owner */
	uint32_t mask, tail;
	_Alignas(64) _Atomic uint32_t head;
	struct bench_op ops[BENCH_MAX_BATCH];
	bool posting;      /* ops is a batch that has not been taken whole */
	struct slot *slot; /* its slot */
	uint32_t sent;     /* ops of it that were taken */
	uint64_t post_ns;  /* spent on it */
	uint64_t now;      /* the clock as it was last read */
	uint32_t every;    /* one of so many batches is timed */
	uint32_t place;
	uint32_t turn; /* READ and WRITE in a mix */
	uint64_t batches;
	struct bench_result result;
};

struct load {
	const struct bench_work *work;
	const struct bench_mover *mover;
	struct thread *threads;
	pthread_mutex_t gate; /* held until all threads are there */
	pthread_barrier_t barrier;
	bool abandoned;
	atomic_flag reaping;
	_Atomic bool failed;
	uint64_t start_ns, start_cpu_ns, end_ns, end_cpu_ns;
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- Places ------------------------------------------------------------------------------------------ */
static uint64_t stride_of(const struct bench_work *w)
{
	return (w->size + ALIGN - 1) / ALIGN * ALIGN;
}

uint32_t bench_places(const struct bench_work *w)
{
	uint64_t fit = w->area / w->threads / stride_of(w);
	uint64_t wanted = (uint64_t)w->batch * w->window;

	return (uint32_t)(fit < wanted ? fit : wanted);
}

uint64_t bench_offset(const struct bench_work *w, bool write, uint32_t thread, uint32_t place)
{
	return (write ? w->area : 0) + ((uint64_t)thread * w->places + place) * stride_of(w);
}

/* ---- Posting ------------------------------------------------------------------------------------------ */
/* A batch for a slot that is idle. */
static void begin(struct thread *t)
{
	const struct bench_work *w = t->load->work;
	uint32_t slot = t->idle[--t->nidle];

	for (uint32_t i = 0; i < w->batch; i++) {
		bool write = w->op == BENCH_WRITE || (w->op == BENCH_MIX && (t->turn & 1));

		t->ops[i].offset = bench_offset(w, write, t->number, t->place);
		t->ops[i].size = w->size;
		t->ops[i].slot = t->number * w->window + slot;
		t->ops[i].write = write;
		/* In a mix a place is read, then written, then the next one's turn comes. */
		if (w->op != BENCH_MIX || (t->turn & 1))
			t->place = t->place + 1 < w->places ? t->place + 1 : 0;
		t->turn++;
	}
	t->posting = true;
	t->sent = 0;
	t->post_ns = 0;
	t->slot = &t->slots[slot];
	t->slot->timed = t->batches % t->every == 0;
	t->slot->start_ns = 0;
	atomic_store_explicit(&t->slot->left, w->batch, memory_order_relaxed);
}

/* What is left of the batch; of one that is timed, how long the call takes. */
static int submit(struct thread *t)
{
	const struct bench_mover *mover = t->load->mover;
	uint32_t left = t->load->work->batch - t->sent;
	uint64_t before;
	int n;

	if (!t->slot->timed)
		return mover->submit(mover->ctx, t->number, t->ops + t->sent, left);
	before = clock_ns(CLOCK_MONOTONIC);
	if (!t->slot->start_ns)
		t->slot->start_ns = before;
	n = mover->submit(mover->ctx, t->number, t->ops + t->sent, left);
	t->now = clock_ns(CLOCK_MONOTONIC);
	t->post_ns += t->now - before;
	return n;
}

/* Posts a new batch, or the rest of the last one. false: nothing was taken. */
static bool post(struct thread *t)
{
	uint32_t batch = t->load->work->batch;
	int n;

	if (!t->posting)
		begin(t);
	n = submit(t);
	if (n < 0) {
		atomic_store(&t->load->failed, true);
		return false;
	}
	t->sent += (uint32_t)n;
	if (t->sent < batch) {
		t->result.retries++;
		return n > 0;
	}
	if (t->slot->timed)
		bench_times_add(&t->result.post, t->post_ns);
	t->posting = false;
	t->batches++;
	return true;
}

/* ---- Completions -------------------------------------------------------------------------------------- */
static void give_back(struct load *l, uint32_t number, uint64_t now)
{
	struct thread *t = &l->threads[number / l->work->window];
	uint32_t slot = number % l->work->window;
	uint32_t head = atomic_load_explicit(&t->head, memory_order_relaxed);

	t->slots[slot].end_ns = now;
	t->ring[head & t->mask] = slot;
	atomic_store_explicit(&t->head, head + 1, memory_order_release);
}

static void reap(struct load *l)
{
	struct bench_done done[BENCH_REAP];
	uint64_t now;
	int n;

	if (atomic_flag_test_and_set_explicit(&l->reaping, memory_order_acquire))
		return;
	n = l->mover->reap(l->mover->ctx, done);
	if (n < 0)
		atomic_store(&l->failed, true);
	now = n > 0 ? clock_ns(CLOCK_MONOTONIC) : 0;
	for (int i = 0; i < n; i++) {
		struct thread *t = &l->threads[done[i].slot / l->work->window];
		struct slot *s = &t->slots[done[i].slot % l->work->window];

		if (atomic_fetch_sub_explicit(&s->left, done[i].ops, memory_order_relaxed) ==
		    done[i].ops)
			give_back(l, done[i].slot, now);
	}
	atomic_flag_clear_explicit(&l->reaping, memory_order_release);
}

/* Takes the own slots back. */
static void settle(struct thread *t)
{
	const struct bench_work *w = t->load->work;
	uint32_t head = atomic_load_explicit(&t->head, memory_order_acquire);

	for (; t->tail != head; t->tail++) {
		struct slot *s = &t->slots[t->ring[t->tail & t->mask]];

		if (s->timed)
			bench_times_add(&t->result.transfer, s->end_ns - s->start_ns);
		t->result.ops += w->batch;
		t->result.bytes += w->batch * w->size;
		t->idle[t->nidle++] = t->ring[t->tail & t->mask];
	}
}

/* ---- Threads ------------------------------------------------------------------------------------------- */
/* Posts until that many batches were posted and that time has come, then waits for all of them. */
static void work_off(struct thread *t, uint64_t batches, uint64_t until_ns)
{
	struct load *l = t->load;
	bool more = true;

	t->batches = 0;
	while (!atomic_load_explicit(&l->failed, memory_order_relaxed) &&
	       (more || t->nidle < l->work->window)) {
		while (more && (t->posting || t->nidle) && post(t))
			more = t->posting || t->batches < batches || t->now < until_ns;
		reap(l);
		settle(t);
	}
}

/* All threads meet; the first reads the clocks. */
static void meet(struct thread *t, uint64_t *ns, uint64_t *cpu_ns)
{
	pthread_barrier_wait(&t->load->barrier);
	if (t->number == 0) {
		*cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		*ns = clock_ns(CLOCK_MONOTONIC);
	}
	pthread_barrier_wait(&t->load->barrier);
}

static void *run(void *arg)
{
	struct thread *t = arg;
	struct load *l = t->load;
	const struct bench_work *w = l->work;
	uint64_t once =
		((uint64_t)w->places * (w->op == BENCH_MIX ? 2 : 1) + w->batch - 1) / w->batch;
	uint64_t share = w->batches / WARM_SHARE;

	pthread_mutex_lock(&l->gate);
	pthread_mutex_unlock(&l->gate);
	if (l->abandoned)
		return NULL;
	meet(t, &l->start_ns, &l->start_cpu_ns);
	work_off(t, once > share ? once : share, l->start_ns + w->duration_ns / WARM_SHARE);
	memset(&t->result, 0, sizeof(t->result));
	meet(t, &l->start_ns, &l->start_cpu_ns);
	work_off(t, w->batches, l->start_ns + w->duration_ns);
	meet(t, &l->end_ns, &l->end_cpu_ns);
	return NULL;
}

static void bind_to_cpu(const struct bench_work *w, pthread_attr_t *attr, uint32_t number)
{
	cpu_set_t set;

	if (!w->ncpus)
		return;
	CPU_ZERO(&set);
	CPU_SET(w->cpus[number % w->ncpus], &set);
	pthread_attr_setaffinity_np(attr, sizeof(set), &set);
}

static bool start(struct load *l, uint32_t number)
{
	const struct bench_work *w = l->work;
	struct thread *t = &l->threads[number];
	pthread_attr_t attr;
	uint32_t ring = 1;
	int rc;

	while (ring < w->window)
		ring *= 2;
	t->load = l;
	t->number = number;
	t->mask = ring - 1;
	t->every = w->window > 1 && w->batch * w->size < TIMED_BYTES ? TIMED_EVERY : 1;
	t->slots = calloc(w->window, sizeof(*t->slots));
	t->idle = calloc(w->window, sizeof(*t->idle));
	t->ring = calloc(ring, sizeof(*t->ring));
	if (!t->slots || !t->idle || !t->ring)
		return false;
	for (t->nidle = 0; t->nidle < w->window; t->nidle++)
		t->idle[t->nidle] = w->window - 1 - t->nidle;
	pthread_attr_init(&attr);
	bind_to_cpu(w, &attr, number);
	rc = pthread_create(&t->id, &attr, run, t);
	pthread_attr_destroy(&attr);
	return rc == 0;
}

static uint32_t start_all(struct load *l)
{
	uint32_t started = 0;

	pthread_mutex_lock(&l->gate);
	while (started < l->work->threads && start(l, started))
		started++;
	l->abandoned = started < l->work->threads;
	pthread_mutex_unlock(&l->gate);
	return started;
}

static void end(struct load *l, uint32_t started, struct bench_result *result)
{
	for (uint32_t i = 0; i < started; i++) {
		pthread_join(l->threads[i].id, NULL);
		bench_result_add(result, &l->threads[i].result);
	}
	for (uint32_t i = 0; i < l->work->threads; i++) {
		free(l->threads[i].slots);
		free(l->threads[i].idle);
		free(l->threads[i].ring);
	}
	result->ns += l->end_ns - l->start_ns;
	result->cpu_ns += l->end_cpu_ns - l->start_cpu_ns;
}

bool bench_load(const struct bench_work *work, const struct bench_mover *mover,
		struct bench_result *result)
{
	size_t bytes = work->threads * sizeof(struct thread);
	struct load l = {.work = work,
			 .mover = mover,
			 .gate = PTHREAD_MUTEX_INITIALIZER,
			 .reaping = ATOMIC_FLAG_INIT};

	l.threads = aligned_alloc(_Alignof(struct thread), bytes);
	if (!l.threads)
		return false;
	memset(l.threads, 0, bytes);
	pthread_barrier_init(&l.barrier, NULL, work->threads);
	end(&l, start_all(&l), result);
	pthread_barrier_destroy(&l.barrier);
	free(l.threads);
	return !l.failed && !l.abandoned;
}
