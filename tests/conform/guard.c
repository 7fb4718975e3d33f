/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/conform/guard.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/conform/verdict.h"

/* Poisoned mappings are kept, so that their addresses are not used again; beyond this many they
 * are given back, because the kernel limits the number of mappings (vm.max_map_count). */
#define GUARD_KEPT 8000u

struct guard_block {
	uint8_t *map;
	size_t mapped;
};

static struct guard_block guard_blocks[4096];
static size_t guard_count;
static size_t guard_poisoned;

static size_t page(void)
{
	static size_t size;

	if (!size)
		size = (size_t)sysconf(_SC_PAGESIZE);
	return size;
}

static size_t pages_of(size_t bytes)
{
	return (bytes + page() - 1) / page() * page();
}

static uint8_t *map_pages(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		verdict_broken("mmap of %zu bytes: %m", bytes);
	return p;
}

void *guard_new(size_t bytes)
{
	size_t body = pages_of(bytes ? bytes : 1);
	struct guard_block *g;

	if (guard_count == sizeof(guard_blocks) / sizeof(guard_blocks[0]))
		verdict_broken("more than %zu guarded blocks at once", guard_count);
	g = &guard_blocks[guard_count++];
	g->mapped = body + page();
	g->map = map_pages(g->mapped);
	if (mprotect(g->map + body, page(), PROT_NONE))
		verdict_broken("mprotect: %m");
	return g->map + body - bytes;
}

void *guard_kept(size_t bytes)
{
	static void **last;
	void **block = calloc(1, sizeof(*block) * 2 + bytes);

	if (!block)
		verdict_broken("no memory");
	block[0] = __atomic_exchange_n(&last, block, __ATOMIC_RELAXED);
	return block + 2;
}

void *guard_copy(const void *from, size_t bytes)
{
	void *p = guard_new(bytes);

	if (bytes)
		memcpy(p, from, bytes);
	return p;
}

char *guard_string(const char *text)
{
	return text ? guard_copy(text, strlen(text) + 1) : NULL;
}

size_t guard_mark(void)
{
	return guard_count;
}

void guard_poison(size_t mark)
{
	while (guard_count > mark) {
		struct guard_block *g = &guard_blocks[--guard_count];

		if (guard_poisoned < GUARD_KEPT) {
			guard_poisoned++;
			mprotect(g->map, g->mapped, PROT_NONE);
			madvise(g->map, g->mapped, MADV_DONTNEED);
		} else {
			munmap(g->map, g->mapped);
		}
	}
}

void guard_poison_one(const void *block)
{
	size_t i;

	for (i = 0; i < guard_count; i++) {
		struct guard_block *g = &guard_blocks[i];

		if ((const uint8_t *)block >= g->map && (const uint8_t *)block < g->map + g->mapped)
			mprotect(g->map, g->mapped, PROT_NONE);
	}
}

void buffer_new(struct buffer *b, size_t bytes)
{
	b->bytes = bytes;
	b->mapped = pages_of(bytes) + 2 * page();
	b->map = map_pages(b->mapped);
	b->at = b->map + page();
	memset(b->map, BUFFER_CANARY, b->mapped);
}

/* Never the canary, and different at each place, so that shifted bytes are seen. */
static uint8_t pattern(size_t i, uint32_t seed)
{
	uint32_t x = (uint32_t)i * 2654435761u + seed * 40503u;
	uint8_t v = (uint8_t)(x >> 24);

	return v == BUFFER_CANARY ? 0x11 : v;
}

void buffer_fill(struct buffer *b, size_t from, size_t bytes, uint32_t seed)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		b->at[from + i] = pattern(i, seed);
}

int buffer_is(const struct buffer *b, size_t from, size_t bytes, uint32_t seed)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		if (b->at[from + i] != pattern(i, seed))
			return 0;
	return 1;
}

int buffer_intact(const struct buffer *b, size_t from, size_t bytes)
{
	const uint8_t *hole = b->at + from;
	const uint8_t *p;

	for (p = b->map; p < b->map + b->mapped; p++)
		if (*p != BUFFER_CANARY && (p < hole || p >= hole + bytes))
			return 0;
	return 1;
}
