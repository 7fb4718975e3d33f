/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions, and the borrows of the host on them. */
#include <stdlib.h>
#include <string.h>

#include "plugin/args.h"
#include "plugin/error.h"
#include "plugin/host.h"

static uint64_t region_id(const struct host_region *region)
{
	return atomic_load(&region->head.handle);
}

static escrow_status region_check_args(const struct escrow_region *args, struct escrow_error *error)
{
	escrow_status status = args_check(args, sizeof(*args), "register", error);

	if (status != ESCROW_OK)
		return status;
	if (args->flags)
		return error_set(error, ESCROW_E_UNSUPPORTED, "register: unknown flags 0x%x",
				 args->flags);
	if (args->memory_kind != ESCROW_MEMORY_HOST && args->memory_kind != ESCROW_MEMORY_DMABUF)
		return error_set(error, ESCROW_E_INVALID, "register: unknown memory kind %u",
				 args->memory_kind);
	if (args->length == 0 || (uint64_t)(uintptr_t)args->addr > UINT64_MAX - args->length)
		return error_set(error, ESCROW_E_INVALID,
				 "register: %" G_GUINT64_FORMAT " bytes at %p: at least 1, and "
				 "the end must not wrap",
				 args->length, args->addr);
	if (!args->addr && args->memory_kind == ESCROW_MEMORY_HOST)
		return error_set(error, ESCROW_E_INVALID, "register: the address is NULL");
	return ESCROW_OK;
}

escrow_status region_register_in(struct escrow_host_engine *host, struct host_region *region,
				 struct host_generation *g, struct escrow_error *error)
{
	struct escrow_region_args args = {.size = sizeof(args),
					  .user = region_id(region),
					  .addr = region->args.addr,
					  .length = region->args.length,
					  .memory_kind = region->args.memory_kind,
					  .device = region->args.device,
					  .dmabuf_fd = region->args.dmabuf_fd,
					  .dmabuf_offset = region->args.dmabuf_offset};
	struct escrow_error theirs;
	uint64_t handle = 0;
	escrow_status status = quota_take("", QUOTA_REGION(region->args.length), error);

	if (status != ESCROW_OK)
		return status;
	error_clear(&theirs);
	status = g->ops->register_memory(g->engine, &args, &handle, &theirs);
	error_close(&theirs);
	if (status == ESCROW_OK && handle) {
		g_mutex_lock(&host->lock);
		region->holds++;
		atomic_store(&region->numbers[g->column], g->number);
		atomic_store(&region->backend[g->column], handle);
		g_mutex_unlock(&host->lock);
		return ESCROW_OK;
	}
	quota_give("", QUOTA_REGION(region->args.length));
	if (status >= 0)
		return error_set(error, ESCROW_E_INTERNAL,
				 "register_memory answered %s without a region",
				 escrow_status_name(status));
	return error_set(error, status, "register: %.200s",
			 theirs.text[0] ? theirs.text : escrow_status_name(status));
}

uint64_t region_handle_in(const struct host_region *region, const struct host_generation *g)
{
	uint64_t handle = atomic_load(&region->backend[g->column]);

	return atomic_load(&region->numbers[g->column]) == g->number ? handle : 0;
}

/* Under lock. */
static void region_remove(struct escrow_host_engine *host, struct host_region *region)
{
	struct lend_borrows *borrows = atomic_load(&region->borrows);

	/* A borrow of a region that has ended has nothing left to protect; the array stays with the
	 * place, because the data path may be looking at it. */
	for (uint32_t i = 0; borrows && i < LEND_MAX_BORROWS; i++)
		atomic_store(&borrows->of[i].mode, 0);
	atomic_store(&region->nborrows, 0);
	table_remove(&host->regions, region);
}

escrow_status escrow_register(struct escrow_host_engine *host, const struct escrow_region *args,
			      uint64_t *handle, struct escrow_error *error)
{
	struct host_region *region;
	struct inside_mark mark;
	struct host_generation *current;
	escrow_status status = host_check_said(host, "register", error);

	if (status == ESCROW_OK)
		status = region_check_args(args, error);
	if (status != ESCROW_OK)
		return status;
	if (!handle)
		return error_set(error, ESCROW_E_INVALID, "register: no result");
	status = host_may_change(host, error);
	if (status != ESCROW_OK)
		return status;
	g_mutex_lock(&host->lock);
	region = table_take(&host->regions);
	if (region) {
		atomic_store(&region->state, HOST_PENDING);
		region->holds = 0;
		region->since_ns = 0;
		region->stuck = region->told = 0;
		atomic_store(&region->asked, 0);
		region->args = *args;
		atomic_store(&region->length, args->length);
		atomic_store(&region->backend[0], 0);
		atomic_store(&region->backend[1], 0);
		table_publish(&host->regions, region);
	}
	g_mutex_unlock(&host->lock);
	if (!region)
		return error_set(error, ESCROW_E_NO_MEMORY, "no room for another region");
	current = host_enter(host, &mark);
	status = region_register_in(host, region, current, error);
	inside_leave(mark);
	if (status == ESCROW_OK) {
		*handle = region_id(region);
		atomic_store(&region->state, HOST_LIVE);
	} else {
		g_mutex_lock(&host->lock);
		region_remove(host, region);
		g_mutex_unlock(&host->lock);
	}
	return status;
}

void region_free_all(struct escrow_host_engine *host)
{
	for (uint32_t i = 0; i < host->regions.places; i++) {
		struct host_region *region = table_place_at(&host->regions, i);

		free(atomic_load(&region->borrows));
	}
}

void region_stuck(struct escrow_host_engine *host, struct host_region *region,
		  const struct host_generation *g)
{
	region->stuck |= 1u << g->column;
	if (atomic_exchange(&region->state, HOST_WITHHELD) != HOST_WITHHELD)
		region->since_ns = services_now(host->services);
}

bool region_tell_stuck(struct escrow_host_engine *host, struct host_region *region,
		       const struct host_generation *g, struct escrow_event *event)
{
	uint32_t column = 1u << g->column;

	region_stuck(host, region, g);
	if (region->told & column)
		return false;
	region->told |= column;
	event->object = region_id(region);
	event->user = region->args.user;
	return true;
}

void region_not_asked(struct escrow_host_engine *host, struct host_region *region)
{
	uint32_t releasing = HOST_RELEASING;

	g_mutex_lock(&host->lock);
	atomic_store(&region->asked, 0);
	atomic_compare_exchange_strong(&region->state, &releasing, HOST_LIVE);
	g_mutex_unlock(&host->lock);
}

/*
 * Under lock.  If no generation keeps it from the one that serves, it is as before; unless all ends.  While a swap is under
 * way it stays withheld: the next one may not have it.
 */
static void region_settle(struct escrow_host_engine *host, struct host_region *region)
{
	if (region->stuck || host->swap || host->closing ||
	    atomic_load(&region->state) != HOST_WITHHELD ||
	    !region_handle_in(region, atomic_load(&host->current)))
		return;
	atomic_store(&region->state, atomic_load(&region->asked) ? HOST_RELEASING : HOST_LIVE);
}

void region_settle_all(struct escrow_host_engine *host)
{
	for (uint32_t i = 0; i < host->regions.places; i++) {
		struct host_region *region = table_at(&host->regions, i);

		if (region)
			region_settle(host, region);
	}
}

bool region_released(struct escrow_host_engine *host, struct host_region *region,
		     struct host_generation *g, struct escrow_region *args)
{
	if (!atomic_load(&region->backend[g->column]) || region->holds == 0)
		return false;
	atomic_store(&region->backend[g->column], 0);
	quota_give("", QUOTA_REGION(region->args.length));
	if (--region->holds) {
		region->stuck &= ~(1u << g->column);
		region->told &= region->stuck;
		region_settle(host, region);
		return false;
	}
	*args = region->args;
	region_remove(host, region);
	return true;
}

escrow_status escrow_deregister(struct escrow_host_engine *host, uint64_t handle)
{
	escrow_status status = host_check(host);
	uint32_t live = HOST_LIVE;
	struct inside_mark mark;
	struct host_generation *current;
	struct host_region *region;

	if (status != ESCROW_OK)
		return status;
	/* before the region is looked for: after CLOSED there is none */
	status = host_may_change(host, NULL);
	if (status != ESCROW_OK)
		return status;
	region = table_find(&host->regions, handle);
	if (!region)
		return ESCROW_E_INVALID;
	/* first say so, then look: transfer and borrow do it the other way round */
	if (!atomic_compare_exchange_strong(&region->state, &live, HOST_RELEASING))
		return live == HOST_WITHHELD ? ESCROW_E_BUSY : ESCROW_E_INVALID;
	if (lend_has_region(&host->lend, handle) || atomic_load(&region->nborrows)) {
		region_not_asked(host, region);
		return ESCROW_E_BUSY;
	}
	atomic_store(&region->asked, 1);
	current = host_enter(host, &mark);
	status = current->ops->deregister_memory(current->engine,
						 atomic_load(&region->backend[current->column]), 0);
	inside_leave(mark);
	if (status >= 0)
		return status;
	region_not_asked(host, region);
	return status;
}

/* ---- Borrows ----------------------------------------------------------------------------------- */
/* The region with its borrows, if the range is inside it. */
static escrow_status borrow_find(struct escrow_host_engine *host, uint64_t handle, uint64_t offset,
				 uint64_t length, struct host_region **out)
{
	escrow_status status = host_check(host);
	struct host_region *region;
	uint64_t size;

	if (status != ESCROW_OK)
		return status;
	region = table_find(&host->regions, handle);
	if (!region || atomic_load(&region->state) == HOST_PENDING)
		return ESCROW_E_INVALID;
	size = atomic_load(&region->length);
	if (length == 0 || offset > size || length > size - offset)
		return ESCROW_E_INVALID;
	*out = region;
	return ESCROW_OK;
}

/* Under lock: does another borrow stand in the way?  Readers share. */
static bool borrow_clashes(struct lend_borrows *borrows, uint64_t offset, uint64_t length,
			   uint32_t mode)
{
	/* an op that writes clashes with all borrows, one that reads with those for writing */
	return lend_borrowed(borrows, offset, length,
			     mode == LEND_BORROW_WRITE ? ESCROW_READ : ESCROW_WRITE);
}

static struct lend_borrow *borrow_place(struct lend_borrows *borrows)
{
	for (uint32_t i = 0; i < LEND_MAX_BORROWS; i++) {
		if (atomic_load(&borrows->of[i].mode) == 0)
			return &borrows->of[i];
	}
	return NULL;
}

/* Under lock.  Publishes the borrow, then looks for ops; takes it back if one is there. */
static escrow_status borrow_locked(struct escrow_host_engine *host, struct host_region *region,
				   uint64_t offset, uint64_t length, uint32_t mode)
{
	struct lend_borrows *borrows = atomic_load(&region->borrows);
	struct lend_borrow *borrow;

	if (!borrows) {
		borrows = calloc(1, sizeof(*borrows));
		if (!borrows)
			return ESCROW_E_NO_MEMORY;
		atomic_store(&region->borrows, borrows);
	}
	if (borrow_clashes(borrows, offset, length, mode))
		return ESCROW_E_BUSY;
	borrow = borrow_place(borrows);
	if (!borrow)
		return ESCROW_E_LIMIT;
	atomic_store(&borrow->mode, LEND_BORROW_FILLING);
	atomic_store(&borrow->offset, offset);
	atomic_store(&borrow->length, length);
	atomic_fetch_add(&region->nborrows, 1);
	atomic_store(&borrow->mode, mode);
	if (atomic_load(&region->state) == HOST_LIVE &&
	    !lend_clashes(&host->lend, region_id(region), offset, length, mode))
		return ESCROW_OK;
	atomic_store(&borrow->mode, 0);
	atomic_fetch_sub(&region->nborrows, 1);
	return ESCROW_E_BUSY;
}

static escrow_status borrow(struct escrow_host_engine *host, uint64_t handle, uint64_t offset,
			    uint64_t length, uint32_t mode)
{
	struct host_region *region;
	escrow_status status = borrow_find(host, handle, offset, length, &region);

	if (status != ESCROW_OK)
		return status;
	g_mutex_lock(&host->lock);
	status = table_was(&region->head, handle)
			 ? borrow_locked(host, region, offset, length, mode)
			 : ESCROW_E_INVALID;
	g_mutex_unlock(&host->lock);
	return status;
}

escrow_status escrow_borrow_for_read(struct escrow_host_engine *host, uint64_t region,
				     uint64_t offset, uint64_t length)
{
	return borrow(host, region, offset, length, LEND_BORROW_READ);
}

escrow_status escrow_borrow_for_write(struct escrow_host_engine *host, uint64_t region,
				      uint64_t offset, uint64_t length)
{
	return borrow(host, region, offset, length, LEND_BORROW_WRITE);
}

escrow_status escrow_return(struct escrow_host_engine *host, uint64_t handle, uint64_t offset,
			    uint64_t length)
{
	struct host_region *region;
	struct lend_borrows *borrows;
	escrow_status status = borrow_find(host, handle, offset, length, &region);

	if (status != ESCROW_OK)
		return status;
	status = ESCROW_E_INVALID;
	g_mutex_lock(&host->lock);
	borrows = table_was(&region->head, handle) ? atomic_load(&region->borrows) : NULL;
	for (uint32_t i = 0; borrows && i < LEND_MAX_BORROWS; i++) {
		struct lend_borrow *b = &borrows->of[i];

		if (atomic_load(&b->mode) == 0 || atomic_load(&b->offset) != offset ||
		    atomic_load(&b->length) != length)
			continue;
		atomic_store(&b->mode, 0);
		atomic_fetch_sub(&region->nborrows, 1);
		status = ESCROW_OK;
		break;
	}
	g_mutex_unlock(&host->lock);
	return status;
}
