/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection messages as they come and go, and the clock of the connection manager. */
#include "tests/softverbs/cm.h"
#include "tests/softverbs/fabric.h"
#include "tests/softverbs/nic.h"

/* How long a closed connection's numbers rest. The kernel derives it from the path's ack timeout. */
#define CM_TIMEWAIT_NS 100000000u
/* A DREQ without answer (the kernel repeats it for longer). */
#define CM_DREQ_NS 1000000000u

static void cm_post(uint16_t node, const struct cm_wire *w)
{
	struct packet *p = fabric_packet(sizeof(*w));

	if (!p)
		return;
	p->h.kind = WIRE_CM;
	p->h.dst_node = node;
	p->h.src_rail = w->rail;
	memcpy(p->payload, w, sizeof(*w));
	if (!fabric_send(p))
		cm_node_gone(node);
}

void cm_send(struct cm_id *id, enum cm_kind kind, uint32_t reason, const void *data, size_t size)
{
	struct cm_wire w = {.kind = kind,
			    .src_id = id->number,
			    .dst_id = id->peer,
			    .qpn = id->qpn,
			    .psn = id->psn,
			    .reason = reason,
			    .src = id->src,
			    .dst = id->dst,
			    .src_port = id->src_port,
			    .dst_port = id->dst_port,
			    .rail = (uint8_t)id->rail,
			    .dst_rail = id->peer_rail,
			    .responder_resources = id->responder_resources,
			    .initiator_depth = id->initiator_depth,
			    .retry_count = id->retry_count,
			    .rnr_retry_count = id->rnr_retry_count,
			    .tos = id->tos,
			    .mtu = id->mtu,
			    .data_size = (uint8_t)size,
			    .ipv4 = id->ipv4};

	if (size)
		memcpy(w.data, data, size);
	cm_post(id->peer_node, &w);
}

void cm_refuse(const struct packet *p, const struct cm_wire *req, uint32_t reason)
{
	struct cm_wire w = {.kind = CM_REJ, .dst_id = req->src_id, .reason = reason};

	w.rail = req->rail;
	cm_post(p->h.src_node, &w);
}

void cm_timewait(struct cm_id *id)
{
	id->state = CM_TIMEWAIT;
	id->deadline = base_now() + CM_TIMEWAIT_NS;
	nic_wake();
}

/* ---- requests ---- */
struct cm_search {
	const struct cm_wire *w;
	struct cm_id *exact;
	struct cm_id *any;
};

static void cm_match(struct cm_id *id, void *arg)
{
	struct cm_search *s = arg;

	if (id->state != CM_LISTEN || id->src_port != s->w->dst_port)
		return;
	if (memcmp(&id->src, &s->w->dst, sizeof(id->src)) == 0)
		s->exact = id;
	else if (IN6_IS_ADDR_UNSPECIFIED(&id->src))
		s->any = id;
}

static struct cm_id *cm_child(struct cm_id *listen, const struct packet *p, const struct cm_wire *w)
{
	struct cm_id *id =
		cm_make(cm_channel_of(listen->ib.channel), listen->ib.context, listen->ib.ps);

	if (!id)
		return NULL;
	id->state = CM_REQ_RCVD;
	id->src = w->dst;
	id->dst = w->src;
	id->src_port = w->dst_port;
	id->dst_port = w->src_port;
	id->ipv4 = w->ipv4;
	id->peer = w->src_id;
	id->peer_node = p->h.src_node;
	id->peer_qpn = w->qpn;
	id->peer_psn = w->psn;
	id->peer_rail = w->rail;
	id->rail = w->dst_rail;
	id->responder_resources = w->initiator_depth;
	id->initiator_depth = w->responder_resources;
	id->retry_count = w->retry_count;
	id->rnr_retry_count = w->rnr_retry_count;
	id->tos = w->tos;
	id->mtu = w->mtu;
	return id;
}

static void cm_request(const struct packet *p, const struct cm_wire *w)
{
	struct cm_search s = {.w = w};
	struct cm_id *listen, *id;
	struct cm_event *e;

	cm_each(cm_match, &s);
	listen = s.exact ? s.exact : s.any;
	if (!listen || !device_get(w->rail) || !device_get(w->dst_rail)) {
		cm_refuse(p, w, CM_REJ_INVALID_SERVICE);
		return;
	}
	if (listen->waiting >= listen->backlog || !(id = cm_child(listen, p, w))) {
		cm_refuse(p, w, CM_REJ_CONSUMER);
		return;
	}
	e = cm_event(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, w);
	if (!e)
		return;
	listen->waiting++;
	e->counted = listen;
	e->ev.listen_id = &listen->ib;
}

/* ---- the rest ---- */
static void cm_reply(struct cm_id *id, const struct packet *p, const struct cm_wire *w)
{
	if (id->state != CM_CONNECT)
		return;
	id->peer = w->src_id;
	id->peer_qpn = w->qpn;
	id->peer_psn = w->psn;
	id->peer_rail = w->rail;
	id->responder_resources = w->initiator_depth;
	id->initiator_depth = w->responder_resources;
	id->rnr_retry_count = w->rnr_retry_count;
	id->deadline = 0;
	id->state = CM_REP_RCVD;
	cm_event(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, w);
}

static void cm_rejected(struct cm_id *id, const struct cm_wire *w)
{
	switch (id->state) {
	case CM_CONNECT:
	case CM_REP_RCVD:
	case CM_REQ_RCVD:
	case CM_ACCEPTED:
		id->state = CM_FAILED;
		id->deadline = 0;
		cm_event(id, RDMA_CM_EVENT_REJECTED, (int)w->reason, w);
		break;
	default:
		break;
	}
}

static void cm_disconnected(struct cm_id *id)
{
	switch (id->state) {
	case CM_ACCEPTED:
	case CM_ESTABLISHED:
	case CM_REP_RCVD:
		/* The program answers, by rdma_disconnect() or rdma_destroy_id(). */
		id->state = CM_DREQ_RCVD;
		cm_event(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
		break;
	case CM_DREQ_SENT:
		/* Both at once. */
		cm_send(id, CM_DREP, 0, NULL, 0);
		cm_event(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
		cm_timewait(id);
		break;
	default:
		break;
	}
}

void cm_receive(const struct packet *p)
{
	struct cm_wire w;
	struct cm_id *id;

	if (p->h.size != sizeof(w))
		return;
	memcpy(&w, p->payload, sizeof(w));
	if (w.data_size > CM_REP_DATA)
		return;
	if (w.kind == CM_REQ) {
		cm_request(p, &w);
		return;
	}
	id = cm_find(w.dst_id);
	if (!id || id->peer_node != p->h.src_node || (id->peer && id->peer != w.src_id && w.src_id))
		return;
	switch (w.kind) {
	case CM_REP:
		cm_reply(id, p, &w);
		break;
	case CM_RTU:
		if (id->state != CM_ACCEPTED)
			break;
		id->state = CM_ESTABLISHED;
		cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
		break;
	case CM_REJ:
		cm_rejected(id, &w);
		break;
	case CM_DREQ:
		cm_disconnected(id);
		break;
	case CM_DREP:
		if (id->state != CM_DREQ_SENT)
			break;
		cm_event(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
		cm_timewait(id);
		break;
	default:
		break;
	}
}

/* A dead process's kernel closes its ids for it: what they would have said. */
static void cm_id_gone(struct cm_id *id, void *arg)
{
	struct cm_wire rej = {.kind = CM_REJ, .reason = CM_REJ_CONSUMER};

	if (id->peer_node != *(uint16_t *)arg)
		return;
	if (id->state == CM_ESTABLISHED || id->state == CM_DREQ_SENT) {
		cm_event(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
		cm_timewait(id);
	} else {
		cm_rejected(id, &rej);
	}
}

void cm_node_gone(uint16_t node)
{
	cm_each(cm_id_gone, &node);
}

struct cm_clock {
	uint64_t now;
	uint64_t next;
};

static void cm_id_time(struct cm_id *id, void *arg)
{
	struct cm_clock *c = arg;

	if (id->deadline && id->deadline <= c->now) {
		id->deadline = 0;
		if (id->state == CM_CONNECT) {
			id->state = CM_FAILED;
			cm_event(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
		} else if (id->state == CM_DREQ_SENT) {
			cm_event(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
			cm_timewait(id);
		} else if (id->state == CM_TIMEWAIT) {
			id->state = CM_FAILED;
			cm_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL);
		}
	}
	if (id->deadline && id->deadline < c->next)
		c->next = id->deadline;
}

uint64_t cm_time(uint64_t now)
{
	struct cm_clock c = {now, UINT64_MAX};

	cm_each(cm_id_time, &c);
	return c.next;
}
