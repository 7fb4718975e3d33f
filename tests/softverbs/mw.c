/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows of type 1 and type 2B. The rules and their statuses are rxe's (kernel
 * drivers/infiniband/sw/rxe/rxe_mw.c), and where mlx5 is narrower, mlx5's. */
#include "tests/softverbs/mr.h"
#include "tests/softverbs/qp.h"
#include "tests/softverbs/script.h"

struct ibv_mw *mw_alloc(struct ibv_pd *ib, enum ibv_mw_type type)
{
	struct pd *pd = pd_of(ib);
	struct mw *mw = NULL;
	struct call call;

	call_begin(&call, "alloc_mw", &pd->obj, OBJECT_PD);
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		call.rc = EINVAL;
	else if (call_runs(&call))
		mw = calloc(1, sizeof(*mw));
	if (mw) {
		mw->key = key_take(pd->ctx->device->rail, NULL, mw);
		if (!mw->key) {
			free(mw);
			mw = NULL;
		}
	}
	if (mw) {
		object_init(&mw->obj, OBJECT_MW);
		list_init(&mw->of_qp);
		mw->pd = pd;
		mw->ib.context = pd->ib.context;
		mw->ib.pd = ib;
		mw->ib.type = type;
		mw->ib.handle = mw->obj.id;
		mw->ib.rkey = mw->key;
		pd->users++;
		pd->ctx->children++;
	} else if (!call.rc) {
		call.rc = ENOMEM;
	}
	mw = call_end_create(&call, mw);
	return mw ? &mw->ib : NULL;
}

void mw_unbind(struct mw *mw)
{
	if (mw->state != MW_BOUND)
		return;
	mw->state = MW_FREE;
	mw->mr->windows--;
	mw->mr = NULL;
	mw->qp = NULL;
	list_remove(&mw->of_qp);
}

int mw_dealloc(struct ibv_mw *ib)
{
	struct mw *mw = mw_of(ib);
	struct call call;

	call_begin_destroy(&call, "dealloc_mw", &mw->obj, OBJECT_MW, mw->pd->ctx);
	if (call_runs(&call)) {
		mw_unbind(mw);
		key_give(mw->pd->ctx->device->rail, mw->key);
		mw->pd->users--;
		mw->pd->ctx->children--;
		object_retire(&mw->obj, mw);
	}
	return call_end_destroy(&call);
}

/* The parts of a bind that are about the region (rxe_check_bind_mw). */
static bool mw_may_bind(const struct mw *mw, const struct mr *mr,
			const struct ibv_mw_bind_info *info)
{
	const unsigned int writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	const unsigned int known = writes | IBV_ACCESS_REMOTE_READ;

	if (mr->pd != mw->pd || !(mr->access & IBV_ACCESS_MW_BIND))
		return false;
	if (info->mw_access_flags & ~known)
		return false;
	if ((info->mw_access_flags & writes) && !(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return false;
	return info->addr >= mr->iova && info->length <= mr->ib.length &&
	       info->length <= DEVICE_MAX_MW &&
	       info->addr - mr->iova <= mr->ib.length - info->length;
}

enum ibv_wc_status mw_bind(struct qp *qp, struct mw *mw, uint32_t old_key, uint32_t new_key,
			   const struct ibv_mw_bind_info *info)
{
	bool type2 = mw->ib.type == IBV_MW_TYPE_2;
	struct mr *mr = NULL;

	/* A program must have put the present key into ibv_mw.rkey (rxe compares it). */
	if (mw->pd != qp->pd || old_key != mw->key)
		return IBV_WC_MW_BIND_ERR;
	if (type2 && (mw->state != MW_FREE || !info->length))
		return IBV_WC_MW_BIND_ERR;
	if (type2 && ((new_key ^ mw->key) >> 8))
		return IBV_WC_MW_BIND_ERR;
	if (info->length) {
		mr = mr_of(info->mr);
		object_check(&mr->obj, OBJECT_MR, "bind_mw");
		if (!mw_may_bind(mw, mr, info))
			return IBV_WC_MW_BIND_ERR;
	}
	mw_unbind(mw);
	mw->key = (mw->key & ~0xffu) | (new_key & 0xff);
	if (!info->length)
		return IBV_WC_SUCCESS;
	mw->state = MW_BOUND;
	mw->mr = mr;
	mr->windows++;
	mw->qp = type2 ? qp : NULL;
	mw->addr = info->addr;
	mw->length = info->length;
	mw->access = info->mw_access_flags;
	if (type2)
		list_append(&qp->windows, &mw->of_qp);
	return IBV_WC_SUCCESS;
}

bool mw_invalidate(struct qp *qp, uint32_t rkey)
{
	struct mw *mw = key_window(qp->ctx->device->rail, rkey);

	if (!mw || mw->key != rkey || mw->state != MW_BOUND || mw->qp != qp)
		return false;
	mw_unbind(mw);
	return true;
}
