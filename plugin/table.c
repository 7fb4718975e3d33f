/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "plugin/table.h"

uint32_t table_first_generation(void)
{
	static _Atomic uint32_t given;

	/* 2^32 over the golden ratio: neighbours lie far apart, of however many (Knuth, vol. 3, 6.4). */
	return atomic_fetch_add_explicit(&given, 1, memory_order_relaxed) * UINT32_C(2654435769) >>
	       4;
}

void table_init(struct table *table, uint64_t kind, size_t size)
{
	memset(table, 0, sizeof(*table));
	table->kind = kind;
	table->size = (size + 63) & ~(size_t)63;
	table->free = TABLE_NONE;
	table->first = table_first_generation();
}

void table_fini(struct table *table)
{
	for (uint32_t i = 0; i < TABLE_CHUNKS; i++)
		free(atomic_load(&table->chunks[i]));
}

static struct table_entry *table_new_place(struct table *table)
{
	uint32_t index = table->places / TABLE_CHUNK;
	struct table_entry *entry;
	char *chunk;

	if (index == TABLE_CHUNKS)
		return NULL;
	if (table->places % TABLE_CHUNK == 0) {
		chunk = aligned_alloc(64, TABLE_CHUNK * table->size);
		if (!chunk)
			return NULL;
		memset(chunk, 0, TABLE_CHUNK * table->size);
		atomic_store_explicit(&table->chunks[index], chunk, memory_order_release);
	}
	entry = table_place_at(table, table->places);
	entry->place = table->places++;
	entry->generation = table->first;
	return entry;
}

void *table_take(struct table *table)
{
	struct table_entry *entry;

	if (table->free == TABLE_NONE)
		return table_new_place(table);
	entry = table_place_at(table, table->free);
	table->free = entry->next_free;
	return entry;
}

void table_publish(struct table *table, void *pointer)
{
	struct table_entry *entry = pointer;

	entry->generation++;
	atomic_fetch_add_explicit(&table->used, 1, memory_order_relaxed);
	atomic_store(&entry->handle, table_handle(table->kind, entry->generation, entry->place));
}

void table_remove(struct table *table, void *pointer)
{
	struct table_entry *entry = pointer;

	atomic_store(&entry->handle, 0);
	entry->next_free = table->free;
	table->free = entry->place;
	atomic_fetch_sub_explicit(&table->used, 1, memory_order_relaxed);
}

void *table_at(struct table *table, uint32_t place)
{
	struct table_entry *entry = place < table->places ? table_place_at(table, place) : NULL;

	return entry && atomic_load(&entry->handle) ? entry : NULL;
}
