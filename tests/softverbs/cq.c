/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/cq.h"

#include <sched.h>

#include "tests/softverbs/adversary.h"
#include "tests/softverbs/log.h"
#include "tests/softverbs/nic.h"
#include "tests/softverbs/qp.h"
#include "tests/softverbs/script.h"
#include "tests/softverbs/turns.h"

/* Queues with completions that are not to be seen yet. */
static struct list cq_lates = {&cq_lates, &cq_lates};

void cq_forked(void)
{
	list_init(&cq_lates);
}

static struct cq *cq_make(struct context *ctx, int cqe, void *cq_context, struct channel *ch)
{
	struct cq *cq = calloc(1, sizeof(*cq));

	if (!cq)
		return NULL;
	cq->ring = calloc((size_t)cqe, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return NULL;
	}
	object_init(&cq->obj, OBJECT_CQ);
	list_init(&cq->late);
	cq->ctx = ctx;
	cq->ib.context = &ctx->v.context;
	cq->ib.channel = ch ? &ch->ib : NULL;
	cq->ib.cq_context = cq_context;
	cq->ib.handle = cq->obj.id;
	cq->ib.cqe = cqe;
	pthread_mutex_init(&cq->ib.mutex, NULL);
	pthread_cond_init(&cq->ib.cond, NULL);
	if (ch)
		ch->ib.refcnt++;
	ctx->children++;
	return cq;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *ib, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int comp_vector)
{
	struct context *ctx = context_of(ib);
	struct channel *ch = channel ? channel_of(channel) : NULL;
	struct cq *cq = NULL;
	struct call call;

	call_begin(&call, "create_cq", &ctx->obj, OBJECT_CONTEXT);
	if (ch)
		object_check(&ch->obj, OBJECT_CHANNEL, "create_cq");
	call.rc = ENOMEM;
	if (cqe < 1 || cqe > DEVICE_MAX_CQE || comp_vector < 0 ||
	    comp_vector >= ib->num_comp_vectors)
		call.rc = EINVAL;
	else if (call_runs(&call))
		cq = cq_make(ctx, cqe, cq_context, ch);
	cq = call_end_create(&call, cq);
	return cq ? &cq->ib : NULL;
}

static void cq_forget_events(struct cq *cq)
{
	struct channel *ch = cq->ib.channel ? channel_of(cq->ib.channel) : NULL;
	struct list *i, *next;

	if (!ch)
		return;
	list_for_each_safe(i, next, &ch->events.items)
	{
		struct cq_event *e = container(i, struct cq_event, node);

		if (e->cq != cq)
			continue;
		evq_drop(&ch->events, i);
		free(e);
	}
}

static int cq_destroy(struct cq *cq)
{
	/* cq->usecnt (kernel core/verbs.c): any QP, in any state. */
	if (cq->users)
		return EBUSY;
	cq_forget_events(cq);
	async_forget(cq->ctx, NULL, cq);
	async_wait_acks(&cq->obj, &cq->comp_given, &cq->ib.comp_events_completed, "destroy_cq");
	async_wait_acks(&cq->obj, &cq->async_given, &cq->ib.async_events_completed, "destroy_cq");
	list_remove(&cq->late);
	if (cq->ib.channel)
		cq->ib.channel->refcnt--;
	cq->ctx->children--;
	free(cq->ring);
	cq->ring = NULL;
	object_retire(&cq->obj, cq);
	return 0;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *ib)
{
	struct cq *cq = cq_of(ib);
	struct call call;

	call_begin_destroy(&call, "destroy_cq", &cq->obj, OBJECT_CQ, cq->ctx);
	if (call_runs(&call))
		call.rc = cq_destroy(cq);
	else if (call.verdict == SOFTVERBS_OK_LIE && ib->channel)
		/* The library's own count follows the answer (rdma-core verbs.c). */
		ib->channel->refcnt--;
	return call_end_destroy(&call);
}

EXPORT int ibv_resize_cq(struct ibv_cq *ib, int cqe)
{
	return EOPNOTSUPP;
}

static void cq_notify(struct cq *cq, bool solicited)
{
	struct cq_event *e;

	if (cq->armed == CQ_UNARMED || (cq->armed == CQ_ARMED_SOLICITED && !solicited))
		return;
	cq->armed = CQ_UNARMED;
	if (!cq->ib.channel)
		return;
	e = calloc(1, sizeof(*e));
	if (!e)
		return;
	e->cq = cq;
	evq_push(&channel_of(cq->ib.channel)->events, &e->node);
}

/* Shows the completions whose time has come; each may notify. */
static void cq_reveal(struct cq *cq, uint64_t now)
{
	uint64_t visible = atomic_load_explicit(&cq->visible, memory_order_relaxed);

	while (visible < cq->tail) {
		struct cqe *e = &cq->ring[visible % (uint64_t)cq->ib.cqe];

		if (e->visible_at > now)
			break;
		visible++;
		atomic_store_explicit(&cq->visible, visible, memory_order_release);
		cq_notify(cq, e->solicited || e->wc.status != IBV_WC_SUCCESS);
	}
	if (visible == cq->tail) {
		list_remove(&cq->late);
	} else if (list_empty(&cq->late)) {
		list_append(&cq_lates, &cq->late);
		nic_wake();
	}
}

void cq_push(struct cq *cq, const struct cqe *entry)
{
	uint64_t now = base_now();

	if (cq->dead)
		return;
	if (cq->tail - cq->head == (uint64_t)cq->ib.cqe) {
		cq->dead = true;
		log_call("cq_overrun", &cq->obj, -1, 0);
		async_raise(cq->ctx, IBV_EVENT_CQ_ERR, NULL, cq);
		return;
	}
	cq->ring[cq->tail % (uint64_t)cq->ib.cqe] = *entry;
	cq->ring[cq->tail % (uint64_t)cq->ib.cqe].visible_at = adversary_cqe_time(now);
	cq->tail++;
	cq_reveal(cq, now);
}

void cq_delete(struct cq *cq, const struct qp *qp)
{
	uint64_t visible = cq->visible;
	uint64_t from, to = cq->head;

	for (from = cq->head; from < cq->tail; from++) {
		struct cqe *e = &cq->ring[from % (uint64_t)cq->ib.cqe];

		if (e->qp == qp) {
			if (from < visible)
				cq->visible--;
			continue;
		}
		cq->ring[to++ % (uint64_t)cq->ib.cqe] = *e;
	}
	cq->tail = to;
	cq_reveal(cq, base_now());
}

void cq_orphan(struct cq *cq, const struct qp *qp)
{
	uint64_t i;

	for (i = cq->head; i < cq->tail; i++)
		if (cq->ring[i % (uint64_t)cq->ib.cqe].qp == qp)
			cq->ring[i % (uint64_t)cq->ib.cqe].qp = NULL;
}

uint64_t cq_late(uint64_t now)
{
	uint64_t next = UINT64_MAX;
	struct list *i, *after;

	list_for_each_safe(i, after, &cq_lates)
	{
		struct cq *cq = container(i, struct cq, late);
		uint64_t at;

		cq_reveal(cq, now);
		if (cq->visible == cq->tail)
			continue;
		at = cq->ring[cq->visible % (uint64_t)cq->ib.cqe].visible_at;
		next = at < next ? at : next;
	}
	return next;
}

static void cq_take(struct cq *cq, struct ibv_wc *wc)
{
	struct cqe *e = &cq->ring[cq->head % (uint64_t)cq->ib.cqe];

	*wc = e->wc;
	if (e->wc.status != IBV_WC_SUCCESS)
		adversary_junk(wc);
	if (e->qp && e->receive && e->upto > e->qp->rq_freed)
		e->qp->rq_freed = e->upto;
	if (e->qp && !e->receive && e->upto > e->qp->sq_freed)
		e->qp->sq_freed = e->upto;
	cq->head++;
}

/* A program that spins takes the processor from the thread that would end its wait; a device of
 * silicon needs none. */
static void cq_empty(void)
{
	static _Thread_local unsigned int spins;

	if (!turns_on() && ++spins % 16 == 0)
		sched_yield();
}

int cq_poll(struct ibv_cq *ib, int max, struct ibv_wc *wc)
{
	struct cq *cq = cq_of(ib);
	int n = 0;

	turns_call("poll_cq");
	/* A program that spins must not keep the lock from the device. */
	if (!atomic_load_explicit(&cq->dead, memory_order_relaxed) &&
	    atomic_load_explicit(&cq->polled, memory_order_relaxed) ==
		    atomic_load_explicit(&cq->visible, memory_order_acquire) &&
	    cq->obj.magic != 0x5056deadU) {
		cq_empty();
		return 0;
	}
	base_lock();
	object_check(&cq->obj, OBJECT_CQ, "poll_cq");
	if (cq->dead)
		n = -1;
	while (n >= 0 && n < max && cq->head < cq->visible)
		cq_take(cq, &wc[n++]);
	atomic_store_explicit(&cq->polled, cq->head, memory_order_relaxed);
	base_unlock();
	return n;
}

int cq_arm(struct ibv_cq *ib, int solicited_only)
{
	struct cq *cq = cq_of(ib);
	struct call call;

	call_begin(&call, "req_notify_cq", &cq->obj, OBJECT_CQ);
	/* Arming for any completion is not weakened by arming for solicited ones (man page). */
	if (call_runs(&call) && !(solicited_only && cq->armed == CQ_ARMED))
		cq->armed = solicited_only ? CQ_ARMED_SOLICITED : CQ_ARMED;
	return call_end(&call);
}
