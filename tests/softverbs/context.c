/* SPDX-License-Identifier: BSD-2-Clause */
/* Open devices, their protection domains and their asynchronous events. */
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/softverbs/fabric.h"
#include "tests/softverbs/nic.h"
#include "tests/softverbs/qp.h"
#include "tests/softverbs/script.h"

/* Signals that an event was acknowledged; those who wait in a destroy look at their own counts. */
static pthread_cond_t async_acked = PTHREAD_COND_INITIALIZER;

/* A device file, as that of uverbs is, only where memory is counted as that locks it (mr.c). */
static int context_file(void)
{
	return mr_counts_locked() ? open("/dev/null", O_RDWR | O_CLOEXEC) : eventfd(0, EFD_CLOEXEC);
}

static struct context *context_make(struct device *device)
{
	struct context *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	if (evq_init(&ctx->async)) {
		free(ctx);
		return NULL;
	}
	object_init(&ctx->obj, OBJECT_CONTEXT);
	ctx->device = device;
	ctx->v.context.device = &device->ib;
	ctx->v.context.async_fd = ctx->async.fd;
	ctx->v.context.cmd_fd = context_file();
	ctx->v.context.num_comp_vectors = 4;
	pthread_mutex_init(&ctx->v.context.mutex, NULL);
	context_set_ops(ctx);
	list_append(&device->contexts, &ctx->node);
	return ctx;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *ib)
{
	struct device *device = container(ib, struct device, ib);
	struct context *ctx = NULL;
	struct call call;

	call_begin(&call, "open_device", NULL, OBJECT_CONTEXT);
	nic_start();
	if (call_runs(&call))
		ctx = context_make(device);
	if (!ctx)
		call.rc = ENOMEM;
	ctx = call_end_create(&call, ctx);
	return ctx ? &ctx->v.context : NULL;
}

static void context_close_qp(struct qp *qp, void *arg)
{
	if (qp->ctx == arg)
		qp_abandon(qp);
}

void context_close(struct context *ctx)
{
	if (ctx->children)
		object_rule(false, "a context is closed after its children", "close_device",
			    &ctx->obj);
	/* What the kernel does with what is left when the file is closed. */
	qp_each(context_close_qp, ctx);
	key_abandon(ctx->device->rail, ctx);
	while (!list_empty(&ctx->async.items)) {
		struct list *item = ctx->async.items.next;

		evq_drop(&ctx->async, item);
		free(container(item, struct async_event, node));
	}
	list_remove(&ctx->node);
	evq_close(&ctx->async);
	close(ctx->v.context.cmd_fd);
	object_retire(&ctx->obj, ctx);
}

EXPORT int ibv_close_device(struct ibv_context *ib)
{
	struct context *ctx = context_of(ib);
	struct call call;
	int rc;

	call_begin_destroy(&call, "close_device", &ctx->obj, OBJECT_CONTEXT, NULL);
	if (call_runs(&call))
		context_close(ctx);
	rc = call_end_destroy(&call);
	nic_stop_if_unused();
	return rc;
}

/* ---- asynchronous events ---- */
void async_raise(struct context *ctx, enum ibv_event_type type, struct qp *qp, struct cq *cq)
{
	struct async_event *e = calloc(1, sizeof(*e));

	if (type == IBV_EVENT_DEVICE_FATAL)
		ctx->fatal = true;
	/* Of a queue pair whose destroy lied nobody is told any more. */
	if (!e || (qp && qp->obj.magic == 0x5056deadU)) {
		free(e);
		return;
	}
	e->ev.event_type = type;
	e->qp = qp;
	e->cq = cq;
	if (qp)
		e->ev.element.qp = &qp->ib;
	else if (cq)
		e->ev.element.cq = &cq->ib;
	else
		e->ev.element.port_num = 1;
	evq_push(&ctx->async, &e->node);
}

void async_forget(struct context *ctx, const struct qp *qp, const struct cq *cq)
{
	struct list *i, *next;

	list_for_each_safe(i, next, &ctx->async.items)
	{
		struct async_event *e = container(i, struct async_event, node);

		if ((!qp || e->qp != qp) && (!cq || e->cq != cq))
			continue;
		evq_drop(&ctx->async, i);
		free(e);
	}
}

EXPORT int ibv_get_async_event(struct ibv_context *ib, struct ibv_async_event *event)
{
	struct context *ctx = context_of(ib);
	struct async_event *e;
	struct list *item;

	base_lock();
	object_check(&ctx->obj, OBJECT_CONTEXT, "get_async_event");
	item = evq_wait(&ctx->async);
	if (item) {
		e = container(item, struct async_event, node);
		*event = e->ev;
		if (e->qp)
			e->qp->async_given++;
		if (e->cq)
			e->cq->async_given++;
		free(e);
	}
	base_unlock();
	return item ? 0 : -1;
}

static bool async_is_qp(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return true;
	default:
		return false;
	}
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	base_lock();
	if (event->event_type == IBV_EVENT_CQ_ERR) {
		object_check(&cq_of(event->element.cq)->obj, OBJECT_CQ, "ack_async_event");
		event->element.cq->async_events_completed++;
	} else if (async_is_qp(event->event_type)) {
		object_check(&qp_of(event->element.qp)->obj, OBJECT_QP, "ack_async_event");
		event->element.qp->events_completed++;
	}
	pthread_cond_broadcast(&async_acked);
	base_unlock();
}

static void context_run_qp(struct qp *qp, void *arg)
{
	if (qp->ctx == arg)
		nic_run(qp);
}

EXPORT void softverbs_hold(struct ibv_context *ib, int on)
{
	struct context *ctx = context_of(ib);

	base_lock();
	ctx->held = on != 0;
	if (!on)
		qp_each(context_run_qp, ctx);
	base_unlock();
}

static void context_kill_peer(struct qp *qp, void *arg)
{
	struct qp *peer;

	if (qp->ctx != arg || !qp->attr.dest_qp_num)
		return;
	peer = qp_find(qp->dst_rail, qp->attr.dest_qp_num);
	if (peer && peer->attr.dest_qp_num == qp->ib.qp_num)
		qp_halt(peer);
}

EXPORT void softverbs_kill_peers(struct ibv_context *ib)
{
	base_lock();
	qp_each(context_kill_peer, context_of(ib));
	base_unlock();
}

static void context_remove_qp(struct qp *qp, void *arg)
{
	if (qp->ctx == arg)
		qp_halt(qp);
}

EXPORT void softverbs_remove(int rail)
{
	struct device *d;
	struct list *i;

	base_lock();
	d = device_get(rail);
	if (d) {
		d->port_up = false;
		list_for_each(i, &d->contexts)
		{
			struct context *ctx = container(i, struct context, node);

			qp_each(context_remove_qp, ctx);
			key_abandon(rail, ctx);
			ctx->removed = true;
			async_raise(ctx, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
		}
	}
	base_unlock();
}

void async_wait_acks(const struct object *obj, const uint32_t *given, const uint32_t *acked,
		     const char *call)
{
	if (*given != *acked)
		object_rule(false, "every event is acknowledged before the destroy", call, obj);
	while (*given != *acked)
		base_wait(&async_acked);
}

void async_acknowledged(void)
{
	pthread_cond_broadcast(&async_acked);
}

EXPORT void softverbs_event(struct ibv_context *ib, int type, struct ibv_qp *qp, struct ibv_cq *cq)
{
	base_lock();
	if (type == IBV_EVENT_CQ_ERR)
		cq_of(cq)->dead = true;
	async_raise(context_of(ib), (enum ibv_event_type)type, qp ? qp_of(qp) : NULL,
		    cq ? cq_of(cq) : NULL);
	base_unlock();
}

/* ---- protection domains ---- */
EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ib)
{
	struct context *ctx = context_of(ib);
	struct pd *pd = NULL;
	struct call call;

	call_begin(&call, "alloc_pd", &ctx->obj, OBJECT_CONTEXT);
	if (call_runs(&call))
		pd = calloc(1, sizeof(*pd));
	if (pd) {
		object_init(&pd->obj, OBJECT_PD);
		pd->ctx = ctx;
		pd->ib.context = ib;
		pd->ib.handle = pd->obj.id;
		ctx->children++;
	} else {
		call.rc = ENOMEM;
	}
	pd = call_end_create(&call, pd);
	return pd ? &pd->ib : NULL;
}

void pd_close(struct pd *pd)
{
	pd->ctx->children--;
	object_retire(&pd->obj, pd);
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *ib)
{
	struct pd *pd = pd_of(ib);
	struct call call;

	call_begin_destroy(&call, "dealloc_pd", &pd->obj, OBJECT_PD, pd->ctx);
	if (call_runs(&call) && pd->users) {
		/* pd->usecnt (kernel core/uverbs_std_types.c). */
		call.rc = EBUSY;
	} else if (call_runs(&call)) {
		pd_close(pd);
	}
	return call_end_destroy(&call);
}
