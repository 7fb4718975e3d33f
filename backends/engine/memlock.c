/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memlock.c - what the process may lock (RLIMIT_MEMLOCK): a limit of ours is met before that of the
 * kernel, and some room is left for the control memory of peers that are still to come.
 *
 * The kernel counts whole pages, of each registration in each device anew, over the whole process
 * (ib_umem_get() in drivers/infiniband/core/umem.c): so does this, and takes what the kernel has counted if
 * that is more: other engines and libraries lock memory too.
 */
#include "backends/engine/engine.h"

#include <unistd.h>

#include "backends/engine/args.h"

static uint64_t pages(uint64_t addr, uint64_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end;

	if (__builtin_add_overflow(addr, length, &end) || end > UINT64_MAX - page)
		return UINT64_MAX;
	return ((end + page - 1) & ~(page - 1)) - (addr & ~(page - 1));
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

void en_memlock_open(struct escrow_engine *e)
{
	uint64_t *quota = &e->config.quota[ESCROW_CHARGE_BYTES];
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), most, control;

	e->lock_limited = e->ops->lock_limit && e->ops->lock_limit(e->native, &e->lock_limit);
	if (!e->lock_limited)
		return;
	most = e->lock_limit / 2;
	control = times(e->config.max_peers * e->nrails, pages(0, en_carrier_bytes(e)));
	e->lock_room = control < most ? control : most;
	if (*quota)
		return;
	/* 0 would be no limit */
	*quota = (e->lock_limit - e->lock_room) / e->ncontexts & ~(page - 1);
	if (!*quota)
		*quota = 1;
}

/* What this engine has locked for regions; stuck ones stay. */
static uint64_t regions(struct escrow_engine *e)
{
	uint64_t sum = 0;
	uint32_t i;

	engine_lock(e);
	for (i = 0; i < e->config.max_regions; i++) {
		const struct region *r = &e->regions[i];

		if (r->kind == ESCROW_MEMORY_HOST &&
		    (r->state == REGION_LIVE || r->state == REGION_LEAVING || r->stuck))
			sum = plus(sum, times(pages(r->addr, r->length), e->ncontexts));
	}
	engine_unlock(e);
	return sum;
}

/* Is there room for so much more, if `keep` is to be left? */
static escrow_status check(struct escrow_engine *e, uint64_t more, uint64_t keep,
			   struct escrow_error *error)
{
	uint64_t control = atomic_load(&e->lock_control), now = e->ops->locked(e->native);
	uint64_t own = plus(regions(e), control), limit = e->lock_limit - keep;

	if (own > now)
		now = own;
	if (plus(now, more) <= limit)
		return ESCROW_OK;
	return args_fail(error, ESCROW_E_QUOTA,
			 "locked bytes of the process: %llu more than the %llu in use exceed %llu: "
			 "RLIMIT_MEMLOCK %llu, less %llu for control memory (ulimit -l)",
			 (unsigned long long)more, (unsigned long long)now,
			 (unsigned long long)limit, (unsigned long long)e->lock_limit,
			 (unsigned long long)keep);
}

escrow_status en_memlock_region(struct escrow_engine *e, const struct escrow_region_args *a,
				struct escrow_error *error)
{
	uint64_t control = atomic_load(&e->lock_control);

	if (!e->lock_limited || a->memory_kind != ESCROW_MEMORY_HOST)
		return ESCROW_OK;
	return check(e, times(pages((uintptr_t)a->addr, a->length), e->ncontexts),
		     e->lock_room > control ? e->lock_room - control : 0, error);
}

escrow_status en_memlock_register(struct escrow_engine *e, struct context *c,
				  const struct escrow_region_args *args, struct native_region **out)
{
	uint64_t bytes = pages((uintptr_t)args->addr, args->length);
	struct escrow_error detail = {.size = sizeof(detail)};
	int rc;

	if (e->lock_limited && check(e, bytes, 0, NULL) < 0)
		return ESCROW_E_QUOTA;
	rc = en_step_register(e, c, args, out, &detail);
	if (rc)
		return detail.status < 0 ? detail.status : en_status_of_own(rc);
	atomic_fetch_add(&e->lock_control, bytes);
	return ESCROW_OK;
}

void en_memlock_gone(struct escrow_engine *e, uint64_t addr, uint64_t length)
{
	atomic_fetch_sub(&e->lock_control, pages(addr, length));
}
