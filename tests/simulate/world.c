/* SPDX-License-Identifier: BSD-2-Clause */
/* world.c - memory and the services of the host; and what the device may touch, byte for byte. */
#include "tests/simulate/sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <glib.h>

#include "tests/softverbs/softverbs.h"

#define PAGE 4096u

/* Memory that the backend asked for: for the device, or (dma = false) not. */
struct block {
	uint8_t *addr;
	size_t size;
	bool live;
};

static GArray *blocks;

/* Its own, so that an engine's random bytes come from the seed, whoever asks the kernel for them. */
ssize_t getrandom(void *buf, size_t size, unsigned int flags)
{
	softverbs_random(buf, size);
	return (ssize_t)size;
}

/* ---- Services of the host ---------------------------------------------------------------------- */
static int32_t log_enabled(void *ctx, int32_t level)
{
	return level <= ESCROW_LOG_WARNING || level >= ESCROW_LOG_HOST_MISBEHAVES;
}

static void log_text(void *ctx, int32_t level, const char *component, const char *text,
		     uint64_t len)
{
	sim_trace("log %d %s: %s", level, component, text);
	/* The host here keeps to the contract, and so does softverbs. */
	if (level == ESCROW_LOG_HOST_MISBEHAVES)
		sim_fail("host", "the backend says that the host misbehaves: %s", text);
}

static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	void *p;

	if (posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, bytes))
		return NULL;
	/* What is not set is not zero. Not all of a big one: most of a run's time would go there. */
	return memset(p, 0xa5, bytes < PAGE ? bytes : PAGE);
}

static void host_free(void *ctx, void *p)
{
	free(p);
}

static void *dma_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	struct block b = {.size = (bytes + PAGE - 1) & ~(size_t)(PAGE - 1), .live = true};

	/* The backend clears it all: in one go, instead of by a fault a page. */
	b.addr = mmap(NULL, b.size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (b.addr == MAP_FAILED)
		return NULL;
	g_array_append_val(blocks, b);
	return b.addr;
}

/* The pages stay, so that a late access is found and not a crash. */
static void dma_free(void *ctx, void *p)
{
	struct block *b;
	guint i;

	for (i = 0; p && i < blocks->len; i++) {
		b = &g_array_index(blocks, struct block, i);
		if (b->addr != p)
			continue;
		if (!b->live)
			sim_fail("host", "dma_free twice");
		b->live = false;
		return;
	}
	if (p)
		sim_fail("host", "dma_free of what dma_alloc never gave");
}

static uint64_t now_ns(void *ctx)
{
	return softverbs_now();
}

static const void *no_extension(void *ctx, const char *id)
{
	return NULL;
}

const struct escrow_host world_host = {
	.size = sizeof(struct escrow_host),
	.log_enabled = log_enabled,
	.log = log_text,
	.alloc = host_alloc,
	.free = host_free,
	.dma_alloc = dma_alloc,
	.dma_free = dma_free,
	.now_ns = now_ns,
	.get_extension = no_extension,
};

/* ---- Tags -------------------------------------------------------------------------------------- */
void world_tag(struct area *a, uint32_t line, uint32_t lines, struct tags add, int sign)
{
	for (; lines--; line++) {
		struct tags *t = &a->lines[line].tags;

		t->lent_read = (uint16_t)(t->lent_read + sign * add.lent_read);
		t->lent_write = (uint16_t)(t->lent_write + sign * add.lent_write);
		t->grant_read = (uint16_t)(t->grant_read + sign * add.grant_read);
		t->grant_write = (uint16_t)(t->grant_write + sign * add.grant_write);
	}
}

bool world_is_free(const struct area *a, uint32_t line, uint32_t lines)
{
	static const struct tags none;

	for (; lines--; line++)
		if (memcmp(&a->lines[line].tags, &none, sizeof(none)) != 0)
			return false;
	return true;
}

bool world_is_lent(const struct area *a, uint32_t line, uint32_t lines)
{
	for (; lines--; line++)
		if (a->lines[line].tags.lent_read || a->lines[line].tags.lent_write)
			return true;
	return false;
}

/* Of quarantined engines, whose slots went on without them: they are watched for ever. */
static GPtrArray *old_areas;

void world_areas(struct engine *e)
{
	uint32_t i;

	for (i = 0; i < SIM_AREAS; i++) {
		if (e->areas[i].bytes)
			g_ptr_array_add(old_areas, g_memdup2(&e->areas[i], sizeof(e->areas[i])));
		memset(&e->areas[i], 0, sizeof(e->areas[i]));
		e->areas[i].bytes = mmap(NULL, SIM_AREA, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
}

static bool is_in(const struct area *a, const uint8_t *at)
{
	return a->bytes && at >= a->bytes && at < a->bytes + SIM_AREA;
}

static struct area *area_at(const uint8_t *at)
{
	uint32_t i, j;

	for (i = 0; i < sim.nengines; i++)
		for (j = 0; j < SIM_AREAS; j++)
			if (is_in(&sim.engines[i].areas[j], at))
				return &sim.engines[i].areas[j];
	for (i = 0; i < old_areas->len; i++)
		if (is_in(old_areas->pdata[i], at))
			return old_areas->pdata[i];
	return NULL;
}

/* Whose it is: 10 x slot + number, or -1. */
static int area_owner(const struct area *a)
{
	uint32_t i, j;

	for (i = 0; i < sim.nengines; i++)
		for (j = 0; j < SIM_AREAS; j++)
			if (a == &sim.engines[i].areas[j])
				return (int)(10 * i + j);
	return -1;
}

/* ---- The device's accesses ----------------------------------------------------------------------- */
static void check_block(const struct softverbs_access *x)
{
	const uint8_t *at = x->addr;
	guint i;

	for (i = 0; i < blocks->len; i++) {
		const struct block *b = &g_array_index(blocks, struct block, i);

		if (at < b->addr || at >= b->addr + b->size)
			continue;
		if (!b->live)
			sim_fail("I1", "the device %s control memory that was given back",
				 x->writes ? "writes" : "reads");
		if (x->length > (size_t)(b->addr + b->size - at))
			sim_fail("I1", "the device goes beyond control memory");
		return;
	}
	sim_fail("I1", "the device %s memory that is nobody's", x->writes ? "writes" : "reads");
}

static bool allows(const struct tags *t, const struct softverbs_access *x)
{
	if (x->remote)
		return x->writes ? t->grant_write : t->grant_read;
	/* A READ's sink may be read by the device that fills it. */
	return x->writes ? t->lent_write : t->lent_read || t->lent_write;
}

/* I2: what lands is of an op that was asked for on a grant which still stands. */
static void check_stamp(struct area *a, uint32_t line, const uint8_t *bytes, size_t left)
{
	uint32_t stamp[2];
	const struct grant *g;
	struct op *op;

	a->lines[line].writer = UINT32_MAX;
	a->lines[line].version++;
	/* The end of an op, too short to say whose it is. */
	if (left < sizeof(stamp))
		return;
	memcpy(stamp, bytes, sizeof(stamp));
	if (stamp[0] != SIM_STAMP || !stamp[1] || stamp[1] >= SIM_OPS)
		sim_fail("I2", "bytes land that nobody asked to be written");
	op = &sim.ops[stamp[1]];
	g = &sim.grants[sim.remotes[op->remote].grant];
	if (op->opcode != ESCROW_WRITE || !(g->rights & ESCROW_MAY_WRITE))
		sim_fail("I2", "op %u lands, and was no WRITE", stamp[1]);
	if (g->state == ENDED)
		sim_fail("I2", "op %u lands by a grant that was revoked", stamp[1]);
	offers_check_landing(op);
	if ((g->incarnation == g->owner->incarnation && a != &g->owner->areas[g->area]) ||
	    line < g->line || line >= g->line + g->lines)
		sim_fail("I2", "op %u lands in line %u of area %d, not in %u+%u of area %d",
			 stamp[1], line, area_owner(a), g->line, g->lines,
			 area_owner(&g->owner->areas[g->area]));
	op->landed++;
	a->lines[line].writer = stamp[1];
}

static void observe(const struct softverbs_access *x)
{
	const uint8_t *at = x->addr, *end = at + x->length, *bytes = x->bytes;
	struct area *a = area_at(at);
	uint32_t line;

	sim.n.accesses++;
	if (!x->length)
		return;
	if (!a) {
		check_block(x);
		return;
	}
	if (end > a->bytes + SIM_AREA)
		sim_fail("I1", "the device goes beyond a region");
	for (line = (uint32_t)(at - a->bytes) / SIM_LINE; a->bytes + (size_t)line * SIM_LINE < end;
	     line++) {
		const uint8_t *start = a->bytes + (size_t)line * SIM_LINE;

		if (!allows(&a->lines[line].tags, x))
			sim_fail("I1", "the device %s, through a %s key, line %u of area %s%d",
				 x->writes ? "writes" : "reads", x->remote ? "peer's" : "local",
				 line, area_owner(a) < 0 ? "of old " : "", area_owner(a));
		/* A READ of ours fills it. */
		if (x->writes && !x->remote) {
			a->lines[line].writer = UINT32_MAX;
			a->lines[line].version++;
		}
		if (bytes && start >= at)
			check_stamp(a, line, bytes + (start - at), (size_t)(end - start));
	}
}

void world_start(void)
{
	blocks = g_array_new(FALSE, FALSE, sizeof(struct block));
	old_areas = g_ptr_array_new();
	softverbs_observe(observe);
}
