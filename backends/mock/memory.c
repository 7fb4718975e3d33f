/* SPDX-License-Identifier: BSD-2-Clause */
/* memory.c - keys, regions and Type-2 windows; the gate that every remote access passes. */
#include "config.h" /* mincore */

#include "backends/mock/mock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Makes sure that a slot is free.  The only one who takes slots is the control thread, so what is
 * free stays so until it takes it.
 */
static int slots_reserve(struct native_context *c)
{
	uint32_t old = c->nslots, count = old ? 2 * old : 64;
	struct mock_slot *slots, *before;

	if (c->free)
		return 0;
	if (old >= MOCK_MAX_OBJECTS)
		return ENOMEM;
	slots = mock_alloc(c->native, (uint64_t)count * sizeof(*slots));
	if (!slots)
		return ENOMEM;
	fabric_lock();
	before = c->slots;
	for (uint32_t i = 0; i < old; i++)
		slots[i] = before[i];
	/* Slot 0 is never used, so that no key is 0. */
	for (uint32_t i = count - 1; i >= (old ? old : 1); i--) {
		slots[i].next_free = c->free;
		c->free = i;
	}
	c->slots = slots;
	c->nslots = count;
	fabric_unlock();
	mock_free(c->native, before);
	return 0;
}

/* Last freed, first given: as mlx5 does with its keys (drivers/infiniband/hw/mlx5/mr.c). */
static uint32_t slot_take(struct native_context *c, enum mock_slot_kind kind, void *object)
{
	uint32_t i = c->free;

	c->free = c->slots[i].next_free;
	c->slots[i].kind = kind;
	c->slots[i].object = object;
	c->used++;
	return i;
}

static void slot_give(struct native_context *c, uint32_t i)
{
	c->slots[i].kind = MOCK_FREE;
	c->slots[i].object = NULL;
	c->slots[i].next_free = c->free;
	c->free = i;
	c->used--;
}

static void *slot_look(struct native_context *c, uint32_t i, enum mock_slot_kind kind)
{
	return i < c->nslots && c->slots[i].kind == kind ? c->slots[i].object : NULL;
}

static int refuse(struct escrow_error *error, int code, const struct escrow_region_args *args,
		  const char *why)
{
	if (error) {
		error->status = code == ENOMEM ? ESCROW_E_NO_MEMORY : ESCROW_E_INVALID;
		error->sys_errno = code;
		snprintf(error->text, sizeof(error->text), "region %p+%llu: %s", args->addr,
			 (unsigned long long)args->length, why);
	}
	return code;
}

/* As the kernel, which pins the pages: memory that is not mapped cannot be registered. */
static bool is_mapped(uint64_t addr, uint64_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = addr & ~(page - 1);
	unsigned char resident[512];

	/* mincore(2): ENOMEM if part of the range is not mapped */
	for (uint64_t end = addr + length; at < end; at += sizeof(resident) * page) {
		uint64_t part = end - at;

		if (part > sizeof(resident) * page)
			part = sizeof(resident) * page;
		if (mincore(mock_pointer(at), part, resident))
			return false;
	}
	return true;
}

int mock_register_region(struct native_context *c, const struct escrow_region_args *args,
			 struct native_region **out, struct escrow_error *error)
{
	uint64_t addr = (uint64_t)(uintptr_t)args->addr;
	struct native_region *r;

	if (args->memory_kind != ESCROW_MEMORY_HOST)
		return refuse(error, EOPNOTSUPP, args, "only memory of the host is known");
	if (args->length == 0 || args->length > MOCK_MAX_BYTES || addr + args->length < addr)
		return refuse(error, EINVAL, args, "the length must be 1..2^40 and not wrap");
	if (!is_mapped(addr, args->length))
		return refuse(error, EFAULT, args, "not mapped");
	if (slots_reserve(c))
		return refuse(error, ENOMEM, args, "no key or no memory left");
	r = mock_alloc(c->native, sizeof(*r));
	if (!r)
		return refuse(error, ENOMEM, args, "no memory left");
	r->context = c;
	r->addr = addr;
	r->length = args->length;
	fabric_lock();
	r->serial = fabric_serial();
	r->index = slot_take(c, MOCK_REGION, r);
	fabric_unlock();
	*out = r;
	return 0;
}

int mock_deregister_region(struct native_region *r)
{
	fabric_lock();
	if (r->windows) {
		fabric_unlock();
		return EINVAL; /* as rxe_dereg_mr */
	}
	slot_give(r->context, r->index);
	fabric_unlock();
	mock_free(r->context->native, r);
	return 0;
}

/* Its slot, and something of its serial, so that what is still queued with it does not meet the slot's next life. */
uint32_t mock_region_key(const struct native_region *r)
{
	return r->index << 16 | (uint32_t)(r->serial & 0xffff);
}

static struct native_region *region_of(struct native_context *c, uint32_t key)
{
	struct native_region *r = slot_look(c, key >> 16, MOCK_REGION);

	return r && mock_region_key(r) == key ? r : NULL;
}

int mock_alloc_window(struct native_context *c, struct native_window **out)
{
	struct native_window *w;

	if (slots_reserve(c))
		return ENOMEM;
	w = mock_alloc(c->native, sizeof(*w));
	if (!w)
		return ENOMEM;
	w->context = c;
	fabric_lock();
	w->serial = fabric_serial();
	w->index = slot_take(c, MOCK_WINDOW, w);
	/* The tag starts anew, so a key of the index's last life is a key of this one. */
	atomic_store(&w->key, w->index << 8);
	fabric_unlock();
	*out = w;
	return 0;
}

static void window_unbind(struct native_window *w)
{
	if (!w->region)
		return;
	w->region->windows--;
	w->region = NULL;
}

int mock_dealloc_window(struct native_window *w)
{
	fabric_lock();
	window_unbind(w);
	slot_give(w->context, w->index);
	fabric_unlock();
	mock_free(w->context->native, w);
	return 0;
}

uint32_t mock_window_key(const struct native_window *w)
{
	return atomic_load(&w->key);
}

static bool lies_in(uint64_t addr, uint64_t length, uint64_t start, uint64_t size)
{
	return addr >= start && addr - start <= size && length <= size - (addr - start);
}

uint8_t *memory_local(struct native_context *c, const struct mock_sge *sge)
{
	struct native_region *r = region_of(c, sge->key);

	if (!r || !lies_in(sge->addr, sge->length, r->addr, r->length))
		return NULL;
	return mock_pointer(sge->addr);
}

uint8_t *memory_remote(struct native_conn *owner, uint32_t rkey, uint64_t addr, uint64_t length,
		       uint32_t right)
{
	struct native_window *w = slot_look(owner->context, rkey >> 8, MOCK_WINDOW);

	if (!w || !w->region || atomic_load(&w->key) != rkey || w->conn != owner->serial ||
	    !(w->rights & right) || !lies_in(addr, length, w->addr, w->length))
		return NULL;
	return mock_pointer(addr);
}

/* The rules of Type-2 windows: ibv_bind_mw(3); for a window that is not free, rxe_mw.c. */
enum native_status memory_bind(struct native_conn *c, const struct mock_wr *wr)
{
	struct native_window *w = slot_look(c->context, wr->window, MOCK_WINDOW);
	struct native_region *r = region_of(c->context, wr->region);

	if (!w || w->serial != wr->window_serial || w->region || wr->rkey >> 8 != w->index)
		return NATIVE_LOCAL;
	if (!r || !lies_in(wr->addr, wr->length, r->addr, r->length))
		return NATIVE_LOCAL;
	if (wr->length == 0 || wr->length > MOCK_MAX_WINDOW)
		return NATIVE_LOCAL;
	w->region = r;
	r->windows++;
	w->conn = c->serial;
	w->addr = wr->addr;
	w->length = wr->length;
	w->rights = wr->rights;
	atomic_store(&w->key, wr->rkey);
	return NATIVE_OK;
}

enum native_status memory_invalidate(struct native_conn *c, uint32_t rkey)
{
	struct native_window *w = slot_look(c->context, rkey >> 8, MOCK_WINDOW);

	/* rxe_invalidate_mw: the whole key, and a window that is bound to this queue pair */
	if (!w || !w->region || atomic_load(&w->key) != rkey || w->conn != c->serial)
		return NATIVE_LOCAL;
	window_unbind(w);
	return NATIVE_OK;
}

void memory_free(struct native_context *c)
{
	for (uint32_t i = 1; i < c->nslots; i++)
		mock_free(c->native, c->slots[i].object);
	mock_free(c->native, c->slots);
	c->slots = NULL;
	c->nslots = c->free = c->used = 0;
}
