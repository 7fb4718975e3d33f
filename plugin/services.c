/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <glib.h>

#include "plugin/services.h"

static GMutex dma_lock; /* all that is static here */
/* Mappings handed out by dma_alloc: address to length, because dma_free gets no length. */
static GHashTable *dma_lengths;

static uint64_t monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool services_hear(const struct services *services, int32_t level)
{
	return services->log && !__atomic_load_n(&services->orphan, __ATOMIC_ACQUIRE) &&
	       (level <= services->log_level || level >= ESCROW_LOG_HOST_MISBEHAVES);
}

static int32_t service_log_enabled(void *ctx, int32_t level)
{
	return services_hear(ctx, level);
}

static void service_log(void *ctx, int32_t level, const char *component, const char *text,
			uint64_t len)
{
	struct services *services = ctx;

	if (services_hear(services, level))
		services->log(services->ctx, level, component ? component : "backend",
			      text ? text : "");
}

static void *service_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	void *p = NULL;

	if (align < sizeof(void *))
		align = sizeof(void *);
	return posix_memalign(&p, align, bytes) == 0 ? p : NULL;
}

static void service_free(void *ctx, void *p)
{
	free(p);
}

/* Whole pages of their own, so that nothing else shares a page with what a device writes. */
static void *service_dma_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t length, extra = align > page ? align - page : 0, skip;
	uint8_t *map, *p;

	if (bytes == 0 || bytes > (UINT64_C(1) << 46) || align > (UINT64_C(1) << 30))
		return NULL;
	length = (bytes + page - 1) & ~(page - 1);
	map = mmap(NULL, length + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		   0);
	if (map == MAP_FAILED)
		return NULL;
	skip = extra ? (align - (uintptr_t)map % align) % align : 0;
	p = map + skip;
	if (skip)
		munmap(map, skip);
	if (extra > skip)
		munmap(p + length, extra - skip);
	g_mutex_lock(&dma_lock);
	if (!dma_lengths)
		dma_lengths = g_hash_table_new(NULL, NULL);
	g_hash_table_insert(dma_lengths, p, GSIZE_TO_POINTER(length));
	g_mutex_unlock(&dma_lock);
	return p;
}

static void service_dma_free(void *ctx, void *p)
{
	gsize length = 0;

	if (!p)
		return;
	g_mutex_lock(&dma_lock);
	if (dma_lengths) {
		length = GPOINTER_TO_SIZE(g_hash_table_lookup(dma_lengths, p));
		g_hash_table_remove(dma_lengths, p);
	}
	g_mutex_unlock(&dma_lock);
	if (length)
		munmap(p, length);
	else
		service_log(ctx, ESCROW_LOG_BACKEND_MISBEHAVES, "libescrow",
			    "dma_free of an address that dma_alloc did not give", 0);
}

static uint64_t service_now_ns(void *ctx)
{
	const struct services *services = ctx;

	if (services->now_ns && !__atomic_load_n(&services->orphan, __ATOMIC_ACQUIRE))
		return services->now_ns(services->ctx);
	return monotonic_ns();
}

static const void *service_get_extension(void *ctx, const char *id)
{
	return id && strcmp(id, ESCROW_BUDGET_ID) == 0 ? quota_budget() : NULL;
}

void services_init(struct services *services, const struct escrow_host_args *args)
{
	*services = (struct services){
		.host = {.size = sizeof(services->host),
			 .ctx = services,
			 .log_enabled = service_log_enabled,
			 .log = service_log,
			 .alloc = service_alloc,
			 .free = service_free,
			 .dma_alloc = service_dma_alloc,
			 .dma_free = service_dma_free,
			 .now_ns = service_now_ns,
			 .get_extension = service_get_extension},
	};
	if (!args)
		return;
	services->log = args->log;
	services->now_ns = args->now_ns;
	services->ctx = args->ctx;
	services->log_level = args->log_level;
}

void services_orphan(struct services *services)
{
	static GPtrArray *orphans; /* so that whoever looks for leaks sees that they are meant */

	g_mutex_lock(&dma_lock);
	if (!orphans)
		orphans = g_ptr_array_new();
	g_ptr_array_add(orphans, services);
	g_mutex_unlock(&dma_lock);
	__atomic_store_n(&services->orphan, 1, __ATOMIC_RELEASE);
}

void services_log(struct services *services, int32_t level, const char *format, ...)
{
	char text[256];
	va_list args;

	if (!services_hear(services, level))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	service_log(services, level, "libescrow", text, 0);
}

uint64_t services_now(const struct services *services)
{
	return services->host.now_ns(services->host.ctx);
}

const struct escrow_host *services_plain(void)
{
	static struct services plain;
	static gsize ready;

	if (g_once_init_enter(&ready)) {
		services_init(&plain, NULL);
		g_once_init_leave(&ready, 1);
	}
	return &plain.host;
}
