/* SPDX-License-Identifier: BSD-2-Clause */
/* Event channels of the connection manager, and what librdmacm does when a program takes an event. */
#include "tests/softverbs/cm.h"
#include "tests/softverbs/nic.h"
#include "tests/softverbs/script.h"

EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_channel *ch = NULL;
	struct call call;

	call_begin(&call, "create_event_channel", NULL, OBJECT_CM_CHANNEL);
	nic_start();
	if (call_runs(&call))
		ch = calloc(1, sizeof(*ch));
	if (ch && evq_init(&ch->events)) {
		free(ch);
		ch = NULL;
	}
	if (ch) {
		object_init(&ch->obj, OBJECT_CM_CHANNEL);
		ch->ib.fd = ch->events.fd;
	} else {
		call.rc = EMFILE;
	}
	ch = call_end_create(&call, ch);
	return ch ? &ch->ib : NULL;
}

EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *ib)
{
	struct cm_channel *ch = cm_channel_of(ib);
	struct call call;

	call_begin_destroy(&call, "destroy_event_channel", &ch->obj, OBJECT_CM_CHANNEL, NULL);
	if (call_runs(&call)) {
		while (!list_empty(&ch->events.items)) {
			struct list *item = ch->events.items.next;

			evq_drop(&ch->events, item);
			free(container(item, struct cm_event, node));
		}
		evq_close(&ch->events);
		object_retire(&ch->obj, ch);
	}
	call_end_destroy(&call);
	nic_stop_if_unused();
}

/* Where private data of an event of this type ends; the kernel hands out the whole field. */
static uint8_t cm_event_data_size(enum rdma_cm_event_type type, uint32_t kind)
{
	switch (kind) {
	case CM_REQ:
		return CM_REQ_DATA;
	case CM_REP:
		return CM_REP_DATA;
	case CM_REJ:
		return CM_REJ_DATA;
	default:
		return 0;
	}
}

struct cm_event *cm_event(struct cm_id *id, enum rdma_cm_event_type type, int status,
			  const struct cm_wire *wire)
{
	struct cm_event *e = calloc(1, sizeof(*e));
	struct rdma_conn_param *param;

	if (!e)
		return NULL;
	e->id = id;
	e->counted = id;
	e->ev.id = &id->ib;
	e->ev.event = type;
	e->ev.status = status;
	param = &e->ev.param.conn;
	if (wire) {
		memcpy(e->data, wire->data, wire->data_size);
		param->private_data_len = cm_event_data_size(type, wire->kind);
		param->private_data = param->private_data_len ? e->data : NULL;
		/* What the peer may ask of us is what it initiates. */
		param->responder_resources = wire->initiator_depth;
		param->initiator_depth = wire->responder_resources;
		param->retry_count = wire->retry_count;
		param->rnr_retry_count = wire->rnr_retry_count;
		param->srq = wire->srq;
		param->qp_num = wire->qpn;
	}
	evq_push(&cm_channel_of(id->ib.channel)->events, &e->node);
	return e;
}

/* The reply to our request. With a queue pair on the id the library brings that up and establishes
 * (ucma_process_conn_resp); without, the program does. */
static void cm_take_response(struct cm_event *e)
{
	struct rdma_cm_id *ib = e->ev.id;
	int rc;

	if (!ib->qp)
		return;
	rc = cm_qp_rtr(ib);
	if (!rc)
		rc = cm_qp_rts(ib);
	if (!rc && rdma_establish(ib))
		rc = errno;
	e->ev.event = rc ? RDMA_CM_EVENT_CONNECT_ERROR : RDMA_CM_EVENT_ESTABLISHED;
	e->ev.status = rc ? -rc : 0;
}

static void cm_take_request(struct cm_event *e)
{
	struct cm_id *id = e->id;

	id->ib.verbs = cm_context(id->rail);
	base_lock();
	e->counted->waiting--;
	cm_route(id);
	base_unlock();
	/* The new id of a synchronous listener is synchronous. */
	if (e->counted->sync && !rdma_migrate_id(&id->ib, NULL))
		id->sync = true;
}

EXPORT int rdma_get_cm_event(struct rdma_event_channel *ib, struct rdma_cm_event **out)
{
	struct cm_channel *ch = cm_channel_of(ib);
	struct cm_event *e;
	struct list *item;

	base_lock();
	object_check(&ch->obj, OBJECT_CM_CHANNEL, "get_cm_event");
	item = evq_wait(&ch->events);
	if (item) {
		e = container(item, struct cm_event, node);
		e->counted->events_given++;
	}
	base_unlock();
	if (!item)
		return -1;
	if (e->ev.event == RDMA_CM_EVENT_CONNECT_REQUEST)
		cm_take_request(e);
	else if (e->ev.event == RDMA_CM_EVENT_CONNECT_RESPONSE)
		cm_take_response(e);
	*out = &e->ev;
	return 0;
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event *ev)
{
	struct cm_event *e = container(ev, struct cm_event, ev);

	base_lock();
	object_check(&e->counted->obj, OBJECT_CM_ID, "ack_cm_event");
	e->counted->events_acked++;
	async_acknowledged();
	base_unlock();
	free(e);
	return 0;
}

int cm_wait(struct cm_id *id)
{
	struct rdma_cm_id *ib = &id->ib;

	if (!id->sync)
		return 0;
	if (ib->event) {
		rdma_ack_cm_event(ib->event);
		ib->event = NULL;
	}
	if (rdma_get_cm_event(ib->channel, &ib->event))
		return -1;
	if (!ib->event->status)
		return 0;
	if (ib->event->event == RDMA_CM_EVENT_REJECTED)
		return cm_result(ECONNREFUSED);
	return cm_result(ib->event->status < 0 ? -ib->event->status : ECONNREFUSED);
}

static void cm_move_events(struct cm_id *id, struct cm_channel *from, struct cm_channel *to)
{
	struct list *i, *next;

	list_for_each_safe(i, next, &from->events.items)
	{
		struct cm_event *e = container(i, struct cm_event, node);

		if (e->counted != id)
			continue;
		evq_drop(&from->events, i);
		evq_push(&to->events, i);
	}
}

EXPORT int rdma_migrate_id(struct rdma_cm_id *ib, struct rdma_event_channel *channel)
{
	struct rdma_event_channel *to = channel ? channel : rdma_create_event_channel();
	struct cm_id *id = cm_of(ib);
	struct call call;
	int rc;

	if (!to)
		return -1;
	call_begin(&call, "migrate_id", &id->obj, OBJECT_CM_ID);
	if (call_runs(&call)) {
		cm_move_events(id, cm_channel_of(ib->channel), cm_channel_of(to));
		ib->channel = to;
		id->sync = !channel;
	}
	rc = call_end(&call);
	if (rc && !channel)
		rdma_destroy_event_channel(to);
	return cm_result(rc);
}
