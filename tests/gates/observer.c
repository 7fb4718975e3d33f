/* SPDX-License-Identifier: BSD-2-Clause */
/* The verbs that are observed, in place of libibverbs' own. Those that the header makes calls through the device's table
 * (polling, posting, windows) are patched into that table when the device is opened. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "tests/gates/observer-int.h"

#undef ibv_reg_mr

struct real_verbs real;

static void *next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	return f;
}

static __attribute__((constructor)) void find_real(void)
{
	*(void **)&real.open_device = next("ibv_open_device");
	*(void **)&real.close_device = next("ibv_close_device");
	*(void **)&real.alloc_pd = next("ibv_alloc_pd");
	*(void **)&real.dealloc_pd = next("ibv_dealloc_pd");
	*(void **)&real.reg_mr = next("ibv_reg_mr");
	*(void **)&real.reg_mr_iova2 = next("ibv_reg_mr_iova2");
	*(void **)&real.dereg_mr = next("ibv_dereg_mr");
	*(void **)&real.create_channel = next("ibv_create_comp_channel");
	*(void **)&real.destroy_channel = next("ibv_destroy_comp_channel");
	*(void **)&real.create_cq = next("ibv_create_cq");
	*(void **)&real.destroy_cq = next("ibv_destroy_cq");
	*(void **)&real.create_qp = next("ibv_create_qp");
	*(void **)&real.modify_qp = next("ibv_modify_qp");
	*(void **)&real.query_qp = next("ibv_query_qp");
	*(void **)&real.destroy_qp = next("ibv_destroy_qp");
}

/* ---- Objects come and go --------------------------------------------------------------------------- */
static struct entry *created(const char *name, enum observer_kind kind, const void *at,
			     const struct ibv_context *context, const void *parent)
{
	struct entry *e = NULL;

	pthread_mutex_lock(&observer_lock);
	if (at) {
		e = list_add(kind, at, context);
		e->o.parent = parent;
	}
	list_call(name, at, e ? e->o.number : 0, at ? 0 : errno);
	pthread_mutex_unlock(&observer_lock);
	return e;
}

static int ended(const char *name, enum observer_kind kind, void *at)
{
	struct entry *e;
	uint32_t number;
	int rc;

	pthread_mutex_lock(&observer_lock);
	e = list_find(kind, at);
	pthread_mutex_unlock(&observer_lock);
	number = number_of(kind, at);
	rc = fault_end(kind, at, e);
	pthread_mutex_lock(&observer_lock);
	if (e && e->o.ends++ == 0)
		e->o.rc = rc;
	list_call(name, at, number, rc);
	pthread_mutex_unlock(&observer_lock);
	return rc;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = real.ops.alloc_mw(pd, type);
	struct entry *e = created("alloc_mw", OBSERVER_MW, mw, pd->context, pd);

	if (e)
		e->o.key = mw->rkey;
	return mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	return ended("dealloc_mw", OBSERVER_MW, mw);
}

/* The ring is filled before the device can complete anything. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *w;
	struct entry *e;
	int rc;

	pthread_mutex_lock(&observer_lock);
	e = list_find(OBSERVER_QP, qp);
	for (w = wr; e && w; w = w->next)
		e->sends[e->o.posted++ % SENDS] = w->wr_id;
	pthread_mutex_unlock(&observer_lock);
	rc = real.ops.post_send(qp, wr, bad);
	if (!rc || !e)
		return rc;
	pthread_mutex_lock(&observer_lock);
	for (w = *bad; w; w = w->next)
		e->o.posted--;
	list_call("post_send", qp, e->o.number, rc);
	pthread_mutex_unlock(&observer_lock);
	return rc;
}

/* Fewer than asked for means to the caller that the queue is empty: it must be. */
static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	int n = 0, got;

	do {
		got = real.ops.poll_cq(cq, max - n, wc + n);
		if (got <= 0)
			return n ? n : got;
		pthread_mutex_lock(&observer_lock);
		list_find(OBSERVER_CQ, cq);
		n += fault_completions(cq, wc + n, got);
		pthread_mutex_unlock(&observer_lock);
	} while (n < max);
	return n;
}

/* ---- The verbs ------------------------------------------------------------------------------------- */
EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = real.open_device(device);

	created("open_device", OBSERVER_DEVICE, context, context, NULL);
	if (!context)
		return NULL;
	real.ops = context->ops;
	context->ops.alloc_mw = alloc_mw;
	context->ops.dealloc_mw = dealloc_mw;
	context->ops.post_send = post_send;
	context->ops.poll_cq = poll_cq;
	return context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	return ended("close_device", OBSERVER_DEVICE, context);
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = real.alloc_pd(context);

	created("alloc_pd", OBSERVER_PD, pd, context, context);
	return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return ended("dealloc_pd", OBSERVER_PD, pd);
}

static struct ibv_mr *registered(struct ibv_mr *mr, struct ibv_pd *pd, void *addr)
{
	struct entry *e = created("reg_mr", OBSERVER_MR, mr, pd->context, pd);

	if (e) {
		e->o.addr = addr;
		e->o.key = mr->rkey;
	}
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return registered(real.reg_mr(pd, addr, length, access), pd, addr);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned int access)
{
	return registered(real.reg_mr_iova2(pd, addr, length, iova, access), pd, addr);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	return ended("dereg_mr", OBSERVER_MR, mr);
}

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = real.create_channel(context);

	created("create_channel", OBSERVER_CHANNEL, channel, context, context);
	return channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	return ended("destroy_channel", OBSERVER_CHANNEL, channel);
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = real.create_cq(context, cqe, cq_context, channel, vector);

	created("create_cq", OBSERVER_CQ, cq, context, channel);
	return cq;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	return ended("destroy_cq", OBSERVER_CQ, cq);
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = real.create_qp(pd, attr);
	struct entry *e = created("create_qp", OBSERVER_QP, qp, pd->context, attr->send_cq);

	if (e) {
		pthread_mutex_lock(&observer_lock);
		list_find(OBSERVER_PD, pd)->o.used = 1;
		list_find(OBSERVER_DEVICE, pd->context)->o.used = 1;
		pthread_mutex_unlock(&observer_lock);
		e->sends = calloc(SENDS, sizeof(*e->sends));
		e->o.key = qp->qp_num;
		if (!e->sends)
			abort();
	}
	return qp;
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	bool err = mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR;
	bool reset = mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET;
	struct entry *e;
	int rc = real.modify_qp(qp, attr, mask);

	pthread_mutex_lock(&observer_lock);
	e = list_find(OBSERVER_QP, qp);
	if (e) {
		e->o.errs += err;
		e->o.resets += reset;
	}
	list_call(err ? "qp_err" : reset ? "qp_reset" : "modify_qp", qp, e ? e->o.number : 0, rc);
	pthread_mutex_unlock(&observer_lock);
	return rc;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	return ended("destroy_qp", OBSERVER_QP, qp);
}
