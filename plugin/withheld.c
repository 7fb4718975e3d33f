/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The living host engines of the process, and the memory of dead ones that no receipt gave back: it
 * is never freed, and never forgotten.
 */
#include <string.h>
#include <time.h>

#include "plugin/host.h"
#include "plugin/withheld.h"

static GMutex engines_lock;
static GPtrArray *engines; /* struct escrow_host_engine */
static GArray *orphans;    /* struct escrow_withheld */

void withheld_engine_add(struct escrow_host_engine *host)
{
	here_note();
	g_mutex_lock(&engines_lock);
	if (!engines)
		engines = g_ptr_array_new();
	g_ptr_array_add(engines, host);
	g_mutex_unlock(&engines_lock);
}

void withheld_each_engine(void (*each)(void *ctx, struct escrow_host_engine *host), void *ctx)
{
	g_mutex_lock(&engines_lock);
	for (uint32_t i = 0; engines && i < engines->len; i++)
		each(ctx, g_ptr_array_index(engines, i));
	g_mutex_unlock(&engines_lock);
}

/* Is it kept from the host although an end was asked for? */
static bool withheld_is(const struct host_region *region)
{
	return region && atomic_load(&region->state) == HOST_WITHHELD && region->holds;
}

/* Which backend holds it: the generation in whose column it still has a handle. */
static const char *withheld_backend(struct escrow_host_engine *host,
				    const struct host_region *region)
{
	for (uint32_t i = 0; i <= HOST_GENERATIONS; i++) {
		struct host_generation *g = atomic_load(&host->generations[i]);

		if (g && region_handle_in(region, g) && atomic_load(&g->ended) != HOST_ENDED_CLOSED)
			return module_backend(g->module)->id;
	}
	return "";
}

static struct escrow_withheld withheld_describe(struct escrow_host_engine *host,
						const struct host_region *region)
{
	struct escrow_withheld entry = {.addr = region->args.addr,
					.length = region->args.length,
					.since_ns = region->since_ns,
					.region = atomic_load(&region->head.handle)};

	g_strlcpy(entry.backend, withheld_backend(host, region), sizeof(entry.backend));
	g_strlcpy(entry.engine_name, host->name, sizeof(entry.engine_name));
	return entry;
}

uint64_t withheld_bytes(struct escrow_host_engine *host)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < host->regions.places; i++) {
		struct host_region *region = table_at(&host->regions, i);

		if (withheld_is(region))
			bytes += region->args.length;
	}
	return bytes;
}

uint32_t withheld_engine_remove(struct escrow_host_engine *host)
{
	uint32_t n = 0;

	g_mutex_lock(&engines_lock);
	if (engines)
		g_ptr_array_remove(engines, host);
	g_mutex_lock(&host->lock);
	for (uint32_t i = 0; i < host->regions.places; i++) {
		struct host_region *region = table_at(&host->regions, i);
		struct escrow_withheld entry;

		/* whatever has not been released is held, said so or not */
		if (!region || region->holds == 0)
			continue;
		if (!region->since_ns)
			region->since_ns = services_now(host->services);
		entry = withheld_describe(host, region);
		entry.orphan = 1;
		if (!orphans)
			orphans = g_array_new(FALSE, FALSE, sizeof(struct escrow_withheld));
		g_array_append_val(orphans, entry);
		n++;
	}
	g_mutex_unlock(&host->lock);
	g_mutex_unlock(&engines_lock);
	return n;
}

struct withheld_list {
	struct escrow_withheld *out;
	uint32_t max;
	uint32_t n;
	uint64_t bytes;
};

static void withheld_tell(struct withheld_list *list, const struct escrow_withheld *entry)
{
	if (list->n < list->max)
		list->out[list->n] = *entry;
	list->n++;
	list->bytes += entry->length;
}

static void withheld_of_engine(void *ctx, struct escrow_host_engine *host)
{
	struct inside_mark mark = inside_enter(&host->inside);

	g_mutex_lock(&host->lock);
	for (uint32_t i = 0; i < host->regions.places; i++) {
		struct host_region *region = table_at(&host->regions, i);
		struct escrow_withheld entry;

		if (!withheld_is(region))
			continue;
		entry = withheld_describe(host, region);
		withheld_tell(ctx, &entry);
	}
	g_mutex_unlock(&host->lock);
	inside_leave(mark);
}

int32_t escrow_withheld(struct escrow_withheld *out, uint32_t max, uint64_t *bytes)
{
	struct withheld_list list = {.out = out, .max = max};

	if (max && !out)
		return ESCROW_E_INVALID;
	if (here_is_child())
		return ESCROW_E_STATE;
	withheld_each_engine(withheld_of_engine, &list);
	g_mutex_lock(&engines_lock);
	for (uint32_t i = 0; orphans && i < orphans->len; i++)
		withheld_tell(&list, &g_array_index(orphans, struct escrow_withheld, i));
	g_mutex_unlock(&engines_lock);
	if (bytes)
		*bytes = list.bytes;
	return (int32_t)list.n;
}
