/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion channels. */
#include "tests/softverbs/cq.h"
#include "tests/softverbs/script.h"

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ib)
{
	struct context *ctx = context_of(ib);
	struct channel *ch = NULL;
	struct call call;

	call_begin(&call, "create_comp_channel", &ctx->obj, OBJECT_CONTEXT);
	if (call_runs(&call))
		ch = calloc(1, sizeof(*ch));
	if (ch && evq_init(&ch->events)) {
		free(ch);
		ch = NULL;
	}
	if (ch) {
		object_init(&ch->obj, OBJECT_CHANNEL);
		ch->ctx = ctx;
		ch->ib.context = ib;
		ch->ib.fd = ch->events.fd;
		ctx->children++;
	} else {
		call.rc = EMFILE;
	}
	ch = call_end_create(&call, ch);
	return ch ? &ch->ib : NULL;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ib)
{
	struct channel *ch = channel_of(ib);
	struct call call;

	call_begin_destroy(&call, "destroy_comp_channel", &ch->obj, OBJECT_CHANNEL, NULL);
	if (call_runs(&call) && ib->refcnt) {
		/* Pure user space in rdma-core: EBUSY while a CQ is attached (verbs.c). */
		call.rc = EBUSY;
	} else if (call_runs(&call)) {
		evq_close(&ch->events);
		ch->ctx->children--;
		object_retire(&ch->obj, ch);
	}
	return call_end_destroy(&call);
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *ib, struct ibv_cq **cq, void **cq_context)
{
	struct channel *ch = channel_of(ib);
	struct cq_event *e;
	struct list *item;

	base_lock();
	object_check(&ch->obj, OBJECT_CHANNEL, "get_cq_event");
	item = evq_wait(&ch->events);
	if (item) {
		e = container(item, struct cq_event, node);
		e->cq->comp_given++;
		*cq = &e->cq->ib;
		*cq_context = e->cq->ib.cq_context;
		free(e);
	}
	base_unlock();
	return item ? 0 : -1;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *ib, unsigned int count)
{
	struct cq *cq = cq_of(ib);

	base_lock();
	object_check(&cq->obj, OBJECT_CQ, "ack_cq_events");
	ib->comp_events_completed += count;
	if (ib->comp_events_completed > cq->comp_given)
		object_rule(false, "no more events are acknowledged than were got", "ack_cq_events",
			    &cq->obj);
	async_acknowledged();
	base_unlock();
}
