/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/conform/host.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/conform/guard.h"
#include "tests/conform/trail.h"
#include "tests/conform/verdict.h"

#define HOST_MAGIC UINT64_C(0x486f737431303031)
#define BLOCK_MAGIC UINT64_C(0x426c6f636b313031)
#define BLOCK_FREED UINT64_C(0x4672656564313031)
#define BLOCK_TAIL UINT64_C(0x5461696c31303031)
/* Makes an address non-canonical: whoever reads through ctx crashes. */
#define HOST_WILD (UINT64_C(1) << 63)
/* The clock's start: about 11 days, which no machine's uptime is by chance at the same second. */
#define HOST_CLOCK_BASE UINT64_C(987654321000000)

static bool allow_misuse;
static bool allow_misbehave;

#define FILLED UINT64_C(32768)

struct block {
	uint64_t magic;
	uint64_t bytes;
	void *whole; /* what malloc gave */
	uint64_t dma;
};

static struct host *host_of(void *ctx)
{
	struct host *h = (struct host *)((uintptr_t)ctx & ~HOST_WILD);

	if (!((uintptr_t)ctx & HOST_WILD) || h->magic != HOST_MAGIC)
		verdict_fail("N5", __FILE__, __LINE__, "a host service got ctx %p, not its own",
			     ctx);
	if (atomic_load(&h->retired))
		verdict_fail("N4", __FILE__, __LINE__,
			     "a host service was called after the last engine was released");
	return h;
}

static uint64_t real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Is it UTF-8?  Overlong forms and surrogates are left to stricter tools. */
static bool is_utf8(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	while (*s) {
		unsigned int more = *s < 0x80       ? 0
				    : *s >> 5 == 6  ? 1
				    : *s >> 4 == 14 ? 2
				    : *s >> 3 == 30 ? 3
						    : 9;

		s++;
		if (more == 9)
			return false;
		while (more--)
			if (*s++ >> 6 != 2)
				return false;
	}
	return true;
}

static int32_t host_log_enabled(void *ctx, int32_t level)
{
	(void)host_of(ctx);
	return level >= 0;
}

static void host_log(void *ctx, int32_t level, const char *component, const char *text,
		     uint64_t len)
{
	struct host *h = host_of(ctx);

	expect_as("N1", level >= ESCROW_LOG_ERROR && level <= ESCROW_LOG_BACKEND_MISBEHAVES,
		  "log level %d is none of the header's", level);
	expect_as("N1", component && text, "log was called with a NULL text");
	expect_as("N1", strlen(text) == len, "log text of %zu bytes was told to have %llu",
		  strlen(text), (unsigned long long)len);
	expect_as("N1", is_utf8(text) && is_utf8(component), "log text is not UTF-8");
	expect_as("N1", len > 0 && *component, "log text or component is empty");
	trail("log %d %s: %s", level, component, text);
	atomic_fetch_add(&h->logs, 1);
	if (level == ESCROW_LOG_HOST_MISBEHAVES) {
		atomic_fetch_add(&h->misuses, 1);
		expect_as("N6", atomic_load(&h->may_misuse),
			  "the backend blames the host, which kept the contract: %s", text);
	}
	expect_as("N6", level != ESCROW_LOG_BACKEND_MISBEHAVES || atomic_load(&h->may_misbehave),
		  "the backend reports its own misbehaviour: %s", text);
}

/* Both ends of large blocks: to touch every page of them would be most of a case's time. */
static void fill(uint8_t *p, uint64_t bytes, int pattern)
{
	uint64_t end = bytes > 2 * FILLED ? FILLED : bytes / 2 + bytes % 2;

	memset(p, pattern, end);
	memset(p + bytes - end, pattern, end);
}

static void *block_new(struct host *h, uint64_t bytes, uint64_t align, uint64_t dma)
{
	uint64_t tail = BLOCK_TAIL;
	uint64_t try = atomic_fetch_add(&h->tries, 1) + 1;
	struct block *b;
	uint8_t *whole;
	uint8_t *p;

	expect_as("N2", align >= 8 && !(align & (align - 1)), "alloc with alignment %llu",
		  (unsigned long long)align);
	if (atomic_load(&h->fail_at) == try || bytes > UINT64_C(1) << 40)
		return NULL;
	whole = malloc(sizeof(*b) + align + bytes + sizeof(tail));
	if (!whole)
		return NULL;
	p = whole + sizeof(*b) + align - ((uintptr_t)whole + sizeof(*b)) % align;
	b = (struct block *)(void *)(p - sizeof(*b));
	b->magic = BLOCK_MAGIC;
	b->bytes = bytes;
	b->whole = whole;
	b->dma = dma;
	fill(p, bytes, 0xA7); /* not zero: a backend must not hope for it */
	memcpy(p + bytes, &tail, sizeof(tail));
	atomic_fetch_add(dma ? &h->dma_blocks : &h->blocks, 1);
	return p;
}

static void block_free(struct host *h, void *p, uint64_t dma)
{
	uint64_t tail = BLOCK_TAIL;
	struct block *b;

	if (!p)
		return;
	b = (struct block *)(void *)((uint8_t *)p - sizeof(*b));
	expect_as("N2", b->magic != BLOCK_FREED, "a block was freed twice");
	expect_as("N2", b->magic == BLOCK_MAGIC, "free of %p, which alloc never gave", p);
	expect_as("N2", b->dma == dma, "a block of %s was given to the other free",
		  b->dma ? "dma_alloc" : "alloc");
	expect_as("N2", !memcmp((uint8_t *)p + b->bytes, &tail, sizeof(tail)),
		  "a block of %llu bytes was written beyond its end", (unsigned long long)b->bytes);
	b->magic = BLOCK_FREED;
	fill(p, b->bytes, 0xDD);
	atomic_fetch_sub(dma ? &h->dma_blocks : &h->blocks, 1);
	free(b->whole);
}

static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	return block_new(host_of(ctx), bytes, align, 0);
}

static void host_free(void *ctx, void *p)
{
	block_free(host_of(ctx), p, 0);
}

static void *host_dma_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	return block_new(host_of(ctx), bytes, align < 4096 ? 4096 : align, 1);
}

static void host_dma_free(void *ctx, void *p)
{
	block_free(host_of(ctx), p, 1);
}

static uint64_t host_now_ns(void *ctx)
{
	return host_now(host_of(ctx));
}

static const void *host_get_extension(void *ctx, const char *id)
{
	(void)host_of(ctx);
	expect_as("X1", id != NULL, "the host's get_extension was asked for NULL");
	return NULL;
}

void host_allow(bool misuse, bool misbehave)
{
	allow_misuse = misuse;
	allow_misbehave = misbehave;
}

static struct escrow_host table_of(struct host *h)
{
	struct escrow_host t = {
		.size = sizeof(t),
		.ctx = (void *)((uintptr_t)h | HOST_WILD),
		.log_enabled = host_log_enabled,
		.log = host_log,
		.alloc = host_alloc,
		.free = host_free,
		.dma_alloc = host_dma_alloc,
		.dma_free = host_dma_free,
		.now_ns = host_now_ns,
		.get_extension = host_get_extension,
	};

	memset(h, 0, sizeof(*h));
	h->magic = HOST_MAGIC;
	atomic_store(&h->may_misuse, allow_misuse);
	atomic_store(&h->may_misbehave, allow_misbehave);
	atomic_store(&h->clock, HOST_CLOCK_BASE - real_ns());
	return t;
}

void host_new(struct host *h)
{
	struct escrow_host t = table_of(h);

	h->table = guard_copy(&t, sizeof(t));
}

void host_new_plain(struct host *h)
{
	struct escrow_host *t = guard_kept(sizeof(*t));

	*t = table_of(h);
	h->table = t;
}

uint64_t host_now(struct host *h)
{
	uint64_t clock = atomic_load(&h->clock);

	return atomic_load(&h->frozen) ? clock : real_ns() + clock;
}

void host_advance(struct host *h, uint64_t ns)
{
	trail("clock + %llu ns", (unsigned long long)ns);
	atomic_fetch_add(&h->clock, ns);
}

void host_freeze(struct host *h)
{
	uint64_t now = host_now(h);

	atomic_store(&h->clock, now);
	atomic_store(&h->frozen, true);
}

void host_retire(struct host *h)
{
	atomic_store(&h->retired, true);
	guard_poison_one(h->table);
}
