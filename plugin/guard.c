/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The debug mode: while a range is lent, the pages that lie wholly inside it are protected, so that
 * a wrong access of the host faults where it happens.  A lock, an allocation and system calls on the
 * data path are accepted here.  Pages count their lends over the whole process: regions may overlap.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/host.h"

static GMutex guard_lock;
static GHashTable *guard_pages; /* address of a page -> struct guard_count, in place of a pointer */

struct guard_count {
	uint32_t writes; /* lent to a WRITE, which the host may read along */
	uint32_t reads;
};

static int guard_protection(struct guard_count count)
{
	if (count.reads)
		return PROT_NONE;
	return count.writes ? PROT_READ : PROT_READ | PROT_WRITE;
}

/* Under guard_lock: a page gets a lend more or less. */
static void guard_count(uint64_t address, uint64_t page, bool write, bool lend)
{
	void *at = (void *)(uintptr_t)address, *value = g_hash_table_lookup(guard_pages, at);
	struct guard_count count = {(uint32_t)GPOINTER_TO_SIZE(value),
				    (uint32_t)(GPOINTER_TO_SIZE(value) >> 32)};
	int before = guard_protection(count);

	*(write ? &count.writes : &count.reads) += lend ? 1 : UINT32_MAX;
	value = GSIZE_TO_POINTER((gsize)count.reads << 32 | count.writes);
	if (value)
		g_hash_table_insert(guard_pages, at, value);
	else
		g_hash_table_remove(guard_pages, at);
	if (guard_protection(count) != before)
		mprotect(at, page, guard_protection(count));
}

/* Where a range is that is about to be lent; 0: no memory of the host's, or its region is going. */
static uint64_t guard_address(struct escrow_host_engine *host, const struct lend_range *range)
{
	uint64_t handle = atomic_load(&range->region), at;
	struct host_region *region = table_find(&host->regions, handle);

	if (!region || region->args.memory_kind != ESCROW_MEMORY_HOST)
		return 0;
	at = (uint64_t)(uintptr_t)region->args.addr + atomic_load(&range->offset);
	return table_was(&region->head, handle) ? at : 0;
}

/* The range remembers what was protected for it: its region may be gone when that is taken back. */
void guard_lend(struct escrow_host_engine *host, struct lend_op *op, bool lend)
{
	bool write = atomic_load(&op->opcode) == ESCROW_WRITE;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at, end;

	if (!(host->flags & (write ? ESCROW_GUARD_WRITES : ESCROW_GUARD_READS)))
		return;
	g_mutex_lock(&guard_lock);
	if (!guard_pages)
		guard_pages = g_hash_table_new(NULL, NULL);
	for (uint32_t i = 0; i < atomic_load(&op->nranges); i++) {
		struct lend_range *range = &op->ranges[i];

		if (lend)
			range->guarded = guard_address(host, range);
		at = range->guarded;
		if (!at)
			continue;
		end = (at + atomic_load(&range->length)) & ~(page - 1);
		for (at = (at + page - 1) & ~(page - 1); at < end; at += page)
			guard_count(at, page, write, lend);
	}
	g_mutex_unlock(&guard_lock);
}
