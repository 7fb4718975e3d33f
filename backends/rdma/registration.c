/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>

#include "backends/rdma/rdma.h"
#include "backends/rdma/verbs.h"

/*
 * Local write and window binding, nothing else: a key that gives a peer authority exists only as a
 * window bound to one queue pair.  No ODP: with it the key names whatever is mapped there next.
 */
int registration_access(const struct native *n)
{
	int flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

	if (n->set.relaxed_ordering)
		flags |= IBV_ACCESS_RELAXED_ORDERING;
	return flags;
}

/*
 * The kernel answers ENOMEM when RLIMIT_MEMLOCK is the reason, and EPERM when the limit is 0 and the process may not lock
 * memory at all (can_do_mlock() in ib_umem_get(), kernel umem.c).  It asks neither who has CAP_IPC_LOCK, nor for a
 * dma-buf.
 */
static bool memlock_is_short(int rc, const struct escrow_region_args *args, uint64_t *pinned,
			     uint64_t *limit)
{
	*pinned = *limit = 0;
	if (args->memory_kind == ESCROW_MEMORY_DMABUF)
		return false;
	if (rc == EPERM)
		return true;
	if (rc != ENOMEM || !memlock_holds(limit))
		return false;
	*pinned = memlock_pinned();
	return *pinned + memlock_pages(args->addr, args->length) > *limit;
}

/* The engine says before it how many bytes, and on which device. */
static void explain_range(int rc, const struct escrow_region_args *args, struct escrow_error *error)
{
	if (args->memory_kind == ESCROW_MEMORY_DMABUF)
		error_set(error, ESCROW_E_INVALID, rc,
			  "at %" PRIu64 " of dma-buf %" PRId64 ": it must have them, and be one",
			  args->dmabuf_offset, args->dmabuf_fd);
	else
		error_set(error, ESCROW_E_INVALID, rc,
			  "from %p on: the range must be mapped and writable", args->addr);
}

static int explain(int rc, const struct escrow_region_args *args, struct escrow_error *error)
{
	uint64_t pinned, limit;

	if (memlock_is_short(rc, args, &pinned, &limit))
		error_set(error, ESCROW_E_MEMLOCK, rc,
			  "beside %" PRIu64 " bytes that are pinned already that needs "
			  "RLIMIT_MEMLOCK of at least their sum; it is %" PRIu64 " (ulimit -l)",
			  pinned, limit);
	else if (rc == EAGAIN)
		error_set(error, ESCROW_E_NO_MEMORY, rc,
			  "a control group allows no more objects (rdma.max, hca_object)");
	else if (rc == EFAULT || rc == EINVAL || rc == EACCES || rc == EBADF)
		explain_range(rc, args, error);
	else
		error_set(error, error_status(rc), rc, "from %p on", args->addr);
	return rc;
}

int registration_make(struct native_context *c, const struct escrow_region_args *args,
		      struct native_region **out, struct escrow_error *error)
{
	const struct escrow_host *host = c->native->host;
	struct native_region *r = host->alloc(host->ctx, sizeof(*r), 8);
	int rc;

	if (!r)
		return ENOMEM;
	r->context = c;
	rc = verbs_reg_mr(c->native->log, c->pd, args, registration_access(c->native), &r->mr);
	if (rc) {
		host->free(host->ctx, r);
		return explain(rc, args, error);
	}
	r->lkey = r->mr->lkey;
	*out = r;
	return 0;
}

int registration_end(struct native_region *r)
{
	const struct escrow_host *host = r->context->native->host;
	int rc = verbs_dereg_mr(r->context->native->log, r->mr);

	if (!rc)
		host->free(host->ctx, r);
	return rc;
}

uint32_t registration_key(const struct native_region *r)
{
	return r->lkey;
}
