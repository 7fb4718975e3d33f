/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --baseline raw: what the same load costs without Escrow.  For the mock that is memcpy, in this
 * process; for the RDMA backend bare verbs, in a program at each end (tests/bench/raw.c), which
 * stay connected beside the engines, so that both can be measured in turn.
 */
#include "config.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/tool.h"

/* ---- memcpy ------------------------------------------------------------------------------------------------ */
/* What a thread has copied and nobody has reaped: slots, in a ring. */
struct copied {
	_Alignas(64) _Atomic uint32_t head;
	_Alignas(64) _Atomic uint32_t tail;
	uint32_t slots[BENCH_MAX_BATCH];
};

struct copying {
	uint8_t *here, *there;
	uint32_t threads, next;
	struct copied *copied;
};

static int copy(void *ctx, uint32_t thread, const struct bench_op *ops, uint32_t n)
{
	struct copying *c = ctx;
	struct copied *to = &c->copied[thread];
	uint32_t head = atomic_load_explicit(&to->head, memory_order_relaxed);
	uint32_t room =
		BENCH_MAX_BATCH - (head - atomic_load_explicit(&to->tail, memory_order_acquire));

	n = MIN(n, room);
	for (uint32_t i = 0; i < n; i++) {
		if (ops[i].write)
			memcpy(c->there + ops[i].offset, c->here + ops[i].offset, ops[i].size);
		else
			memcpy(c->here + ops[i].offset, c->there + ops[i].offset, ops[i].size);
		to->slots[(head + i) % BENCH_MAX_BATCH] = ops[i].slot;
	}
	atomic_store_explicit(&to->head, head + n, memory_order_release);
	return (int)n;
}

static int take(void *ctx, struct bench_done *done)
{
	struct copying *c = ctx;
	uint32_t found = 0;

	if (tool_output_lost())
		return -1;
	for (uint32_t i = 0; i < c->threads && found < BENCH_REAP; i++) {
		struct copied *from = &c->copied[c->next];
		uint32_t head = atomic_load_explicit(&from->head, memory_order_acquire);
		uint32_t tail = atomic_load_explicit(&from->tail, memory_order_relaxed);

		for (; tail != head && found < BENCH_REAP; tail++)
			done[found++] = (struct bench_done){from->slots[tail % BENCH_MAX_BATCH], 1};
		atomic_store_explicit(&from->tail, tail, memory_order_release);
		c->next = c->next + 1 < c->threads ? c->next + 1 : 0;
	}
	return (int)found;
}

static bool copy_point(struct bench_requester *r, const struct bench_work *work,
		       struct bench_result *result)
{
	size_t bytes = 2 * r->o->area, rings = work->threads * sizeof(struct copied);
	struct copying c = {.threads = work->threads};
	const struct bench_mover mover = {.ctx = &c, .submit = copy, .reap = take};
	bool good = false;

	c.here = g_try_malloc0(bytes);
	c.there = g_try_malloc0(bytes);
	c.copied = aligned_alloc(_Alignof(struct copied), rings);
	if (c.here && c.there && c.copied) {
		memset(c.copied, 0, rings);
		memset(c.there, 1, bytes);
		good = bench_load(work, &mover, result);
	} else {
		tool_complain("bench: --baseline: no memory for 2 x %zu bytes", bytes);
	}
	free(c.copied);
	g_free(c.here);
	g_free(c.there);
	return good;
}

/* ---- Which ----------------------------------------------------------------------------------------------------- */
bool bench_base_open(struct bench_requester *r)
{
	struct escrow_module_info info = {.size = sizeof(info)};
	const char *id = "?";

	if (!r->o->baseline)
		return true;
	if (escrow_module_info(r->end.module, &info) == ESCROW_OK && info.backend)
		id = info.backend->id;
	if (!strcmp(id, "mock"))
		return true;
	if (!strcmp(id, "rdma"))
		return bench_raw_pair(r);
	tool_complain("bench: --baseline raw: backend %s has none; mock and rdma have", id);
	return false;
}

bool bench_base_point(struct bench_requester *r, const struct bench_work *work,
		      struct bench_result *result)
{
	return r->raw.pid ? bench_raw_point(r, work, result) : copy_point(r, work, result);
}
