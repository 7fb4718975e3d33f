/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/rdma-host.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/capability.h>

#include "tests/lib/testing.h"

static int32_t log_enabled(void *ctx, int32_t level)
{
	return level <= ESCROW_LOG_WARNING || level >= ESCROW_LOG_HOST_MISBEHAVES;
}

static void log_text(void *ctx, int32_t level, const char *component, const char *text,
		     uint64_t len)
{
	printf("# %s: %.*s\n", component, (int)len, text);
}

/*
 * What a quarantine keeps is known to nobody, and a leak checker would call it lost: every block that is
 * not given back hangs in a ring.
 */
struct block {
	struct block *next, *prev;
	void *base;
};
static uint64_t nblocks;
static struct block blocks = {.next = &blocks, .prev = &blocks};
static pthread_mutex_t blocks_mutex = PTHREAD_MUTEX_INITIALIZER;

static void *take(void *ctx, uint64_t bytes, uint64_t align)
{
	uint64_t before = align < 64 ? 64 : align;
	struct block *b;
	char *base;

	if (posix_memalign((void **)&base, before, before + bytes))
		return NULL;
	b = (struct block *)(void *)(base + before) - 1;
	b->base = base;
	pthread_mutex_lock(&blocks_mutex);
	b->next = &blocks;
	b->prev = blocks.prev;
	blocks.prev->next = b;
	blocks.prev = b;
	nblocks++;
	pthread_mutex_unlock(&blocks_mutex);
	return memset(base + before, 0xa5, bytes);
}

static void give(void *ctx, void *p)
{
	struct block *b;

	if (!p)
		return;
	b = (struct block *)p - 1;
	pthread_mutex_lock(&blocks_mutex);
	b->next->prev = b->prev;
	b->prev->next = b->next;
	nblocks--;
	pthread_mutex_unlock(&blocks_mutex);
	free(b->base);
}

static uint64_t now_ns(void *ctx)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const void *extension(void *ctx, const char *id)
{
	return NULL;
}

const struct escrow_host rdma_host = {
	.size = sizeof(rdma_host),
	.log_enabled = log_enabled,
	.log = log_text,
	.alloc = take,
	.free = give,
	.dma_alloc = take,
	.dma_free = give,
	.now_ns = now_ns,
	.get_extension = extension,
};

uint64_t rdma_host_blocks(void)
{
	uint64_t n;

	pthread_mutex_lock(&blocks_mutex);
	n = nblocks;
	pthread_mutex_unlock(&blocks_mutex);
	return n;
}

void rdma_host_locks(uint64_t bytes)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	struct rlimit limit = {bytes, bytes};

	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	ck_assert_int_eq((int)syscall(SYS_capget, &head, data), 0);
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	ck_assert_int_eq((int)syscall(SYS_capset, &head, data), 0);
	setenv("SOFTVERBS_MEMLOCK", "1", 1);
}
