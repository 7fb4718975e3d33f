/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handles of one kind: chunks of entries that never move and are never freed before the table, so
 * that the data path may look one up without a lock while the control path adds and removes.  A
 * handle is kind, generation of its place, and place; a removed one is stale for ever.
 */
#ifndef TABLE_H
#define TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_CHUNK 256u
#define TABLE_CHUNKS 1024u
#define TABLE_NONE UINT32_MAX

#define TABLE_REGION UINT64_C(1)
#define TABLE_PEER UINT64_C(2)
#define TABLE_GRANT UINT64_C(3)
#define TABLE_REMOTE UINT64_C(4)
#define TABLE_OP UINT64_C(5)

static inline uint64_t table_handle(uint64_t kind, uint32_t generation, uint32_t place)
{
	return kind << 60 | (uint64_t)(generation & 0xfffffffu) << 32 | (place + 1u);
}

static inline uint32_t table_place(uint64_t handle)
{
	return (uint32_t)handle - 1u;
}

/* First member of every entry. */
struct table_entry {
	_Atomic uint64_t handle; /* 0: free */
	uint32_t generation;
	uint32_t place; /* its own */
	uint32_t next_free;
};

struct table {
	uint64_t kind;
	uint32_t first; /* generation of a new place */
	size_t size;    /* of an entry */
	_Atomic uint32_t places;
	uint32_t free; /* first free place, or TABLE_NONE */
	_Atomic uint32_t used;
	_Atomic(char *) chunks[TABLE_CHUNKS];
};

/*
 * [any] Where generations begin: elsewhere in each table of the process, so that the handle of another engine is hardly
 * ever one of this.
 */
uint32_t table_first_generation(void);

void table_init(struct table *table, uint64_t kind, size_t size);
void table_fini(struct table *table);

/*
 * [writers serialised] A place for a new entry, which has what was left in it (zero, the first time)
 * and cannot be found before it is published.  NULL: no room, or no memory.
 */
void *table_take(struct table *table);
void table_publish(struct table *table, void *entry);
void table_remove(struct table *table, void *entry);

/* [any] The place in memory, in use or not; NULL: there is none yet, as of place TABLE_NONE. */
static inline void *table_place_at(const struct table *table, uint32_t place)
{
	char *chunk;

	if (place >= TABLE_CHUNK * TABLE_CHUNKS)
		return NULL;
	chunk = atomic_load_explicit(&table->chunks[place / TABLE_CHUNK], memory_order_acquire);
	return chunk ? chunk + place % TABLE_CHUNK * table->size : NULL;
}

/* [any] The entry with this handle, or NULL: of handle 0 the place is TABLE_NONE. */
static inline void *table_find(const struct table *table, uint64_t handle)
{
	struct table_entry *entry = table_place_at(table, table_place(handle));

	return entry && atomic_load(&entry->handle) == handle ? entry : NULL;
}

/*
 * [any] Was what has been read of an entry, found without a lock, this one's?  The place may have been
 * given to another in between.
 */
static inline bool table_was(const struct table_entry *entry, uint64_t handle)
{
	return atomic_load(&entry->handle) == handle;
}

/* The entry at a place if it is in use, to walk 0..places-1. */
void *table_at(struct table *table, uint32_t place);

#endif
