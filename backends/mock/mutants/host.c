/* SPDX-License-Identifier: BSD-2-Clause */
/* host.c - mutants of what is called of the host: clauses N. */
#include "backends/mock/mutants/mutant.h"

#include <time.h>

/* The host's services, through a table of ours whose ctx is the host's own table. */
static struct escrow_host between[8];
static uint32_t nbetween;

MUTANT_UNUSED static const struct escrow_host *behind(void *ctx)
{
	return ctx;
}

static int32_t pass_enabled(void *ctx, int32_t level)
{
	return behind(ctx)->log_enabled(behind(ctx)->ctx, level);
}

static void pass_log(void *ctx, int32_t level, const char *component, const char *text,
		     uint64_t len)
{
#ifdef MUTANT_log_wrong_length
	len++;
#endif
	behind(ctx)->log(behind(ctx)->ctx, level, component, text, len);
}

#ifdef MUTANT_ignores_alloc_failure
static _Alignas(4096) char arena[8 << 20];
static size_t arena_used;
#endif

static void *pass_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	void *p = behind(ctx)->alloc(behind(ctx)->ctx, bytes, align);

#ifdef MUTANT_ignores_alloc_failure
	if (!p && bytes < sizeof(arena) - arena_used - 4096) {
		p = arena + arena_used;
		arena_used += (bytes + 4095) / 4096 * 4096;
	}
#endif
	return p;
}

static void pass_free(void *ctx, void *p)
{
#ifdef MUTANT_ignores_alloc_failure
	if ((char *)p >= arena && (char *)p < arena + sizeof(arena))
		return;
#endif
	behind(ctx)->free(behind(ctx)->ctx, p);
}

static void *pass_dma_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	return behind(ctx)->dma_alloc(behind(ctx)->ctx, bytes, align);
}

static void pass_dma_free(void *ctx, void *p)
{
	behind(ctx)->dma_free(behind(ctx)->ctx, p);
}

static uint64_t pass_now(void *ctx)
{
#ifdef MUTANT_own_clock
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#else
	return behind(ctx)->now_ns(behind(ctx)->ctx);
#endif
}

static const void *pass_extension(void *ctx, const char *id)
{
	return behind(ctx)->get_extension(behind(ctx)->ctx, id);
}

static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	struct escrow_host *host = &between[nbetween++ % 8];
	struct escrow_open_args copy;
	escrow_status st;

	if (!args || args->size < sizeof(copy) || !args->host ||
	    args->host->size < sizeof(*args->host) || !args->host->alloc ||
	    !args->host->log_enabled || !args->host->log || !args->host->free ||
	    !args->host->dma_alloc || !args->host->dma_free || !args->host->now_ns ||
	    !args->host->get_extension)
		return real_open(args, out, error);
	*host = (struct escrow_host){
		.size = sizeof(*host),
		.ctx = mock_pointer((uintptr_t)args->host),
		.log_enabled = pass_enabled,
		.log = pass_log,
		.alloc = pass_alloc,
		.free = pass_free,
		.dma_alloc = pass_dma_alloc,
		.dma_free = pass_dma_free,
		.now_ns = pass_now,
		.get_extension = pass_extension,
	};
#ifdef MUTANT_wrong_ctx
	args->host->log_enabled(host, ESCROW_LOG_DEBUG);
#endif
	copy = *args;
	copy.host = host;
	st = real_open(&copy, out, error);
#ifdef MUTANT_log_wrong_length
	if (st == ESCROW_OK && pass_enabled(host->ctx, ESCROW_LOG_INFO))
		pass_log(host->ctx, ESCROW_LOG_INFO, "mock", "opened", 6);
#endif
	return st;
}
#define OPEN bad_open

#ifdef MUTANT_host_after_release
static struct {
	struct escrow_engine *engine;
	void *ctx;
} opened[8];
static void *released;
static escrow_status remember_open(const struct escrow_open_args *args, struct escrow_engine **out,
				   struct escrow_error *error)
{
	escrow_status st = bad_open(args, out, error);

	if (st == ESCROW_OK) {
		opened[(nbetween - 1) % 8].engine = *out;
		opened[(nbetween - 1) % 8].ctx = between[(nbetween - 1) % 8].ctx;
	}
	return st;
}
static void bad_release(struct escrow_engine *e)
{
	for (int i = 0; i < 8; i++)
		if (opened[i].engine == e && state_of(e) == ESCROW_STATE_CLOSED)
			released = opened[i].ctx;
	engine_release(e);
}
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	if (released)
		pass_now(released);
	return engine_query(e, limits);
}
#undef OPEN
#define OPEN remember_open
#define SLOTS .release = bad_release, .query = bad_query,
#endif

#ifdef MUTANT_blames_host
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	int32_t st = engine_transfer(e, op, n, stride, flags, ops);

	if (st > 0 && nbetween)
		pass_log(between[0].ctx, ESCROW_LOG_HOST_MISBEHAVES, "mock", "it is you", 9);
	return st;
}
#define SLOTS .transfer = bad_transfer,
#endif

#include "backends/mock/mutants/ends.h"
