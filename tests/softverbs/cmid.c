/* SPDX-License-Identifier: BSD-2-Clause */
/* Ids: their making and end, addresses, options. */
#include <arpa/inet.h>

#include "tests/softverbs/cm.h"
#include "tests/softverbs/fabric.h"
#include "tests/softverbs/nic.h"
#include "tests/softverbs/registry.h"
#include "tests/softverbs/script.h"
#include "tests/softverbs/turns.h"

static struct list cm_ids = {&cm_ids, &cm_ids};
static uint32_t cm_numbers;

struct cm_id *cm_make(struct cm_channel *ch, void *context, enum rdma_port_space ps)
{
	struct cm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	object_init(&id->obj, OBJECT_CM_ID);
	list_append(&cm_ids, &id->node);
	id->ib.channel = &ch->ib;
	id->ib.context = context;
	id->ib.ps = ps;
	id->ib.qp_type = IBV_QPT_RC;
	id->rail = -1;
	id->number = ++cm_numbers;
	turns_random(&id->psn, sizeof(id->psn));
	id->psn &= 0xffffff;
	return id;
}

static void cm_drop_events(struct cm_id *id)
{
	struct cm_channel *ch = cm_channel_of(id->ib.channel);
	struct list *i, *next;

	list_for_each_safe(i, next, &ch->events.items)
	{
		struct cm_event *e = container(i, struct cm_event, node);

		if (e->counted != id && e->id != id)
			continue;
		evq_drop(&ch->events, i);
		/* A request that nobody saw. */
		if (e->id != id && e->ev.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			cm_send(e->id, CM_REJ, CM_REJ_CONSUMER, NULL, 0);
			list_remove(&e->id->node);
			object_retire(&e->id->obj, e->id);
		}
		free(e);
	}
}

void cm_free(struct cm_id *id)
{
	cm_drop_events(id);
	list_remove(&id->node);
	free(id->ep_init);
	free(id->ib.route.path_rec);
	id->ep_init = NULL;
	id->ib.route.path_rec = NULL;
	object_retire(&id->obj, id);
}

struct cm_id *cm_find(uint32_t number)
{
	struct list *i;

	list_for_each(i, &cm_ids) if (container(i, struct cm_id, node)->number ==
				      number) return container(i, struct cm_id, node);
	return NULL;
}

void cm_each(void (*fn)(struct cm_id *id, void *arg), void *arg)
{
	struct list *i, *next;

	list_for_each_safe(i, next, &cm_ids) fn(container(i, struct cm_id, node), arg);
}

void cm_forked(void)
{
	list_init(&cm_ids);
	cm_contexts_forget();
}

EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out,
			  void *context, enum rdma_port_space ps)
{
	struct rdma_event_channel *own = channel ? NULL : rdma_create_event_channel();
	struct cm_id *id = NULL;
	struct call call;

	if (!channel && !own)
		return -1;
	if (ps != RDMA_PS_TCP && ps != RDMA_PS_IB)
		return cm_result(EOPNOTSUPP);
	call_begin(&call, "create_id", NULL, OBJECT_CM_ID);
	nic_start();
	call.rc = ENOMEM;
	if (call_runs(&call))
		id = cm_make(cm_channel_of(channel ? channel : own), context, ps);
	if (id)
		id->sync = !channel;
	id = call_end_create(&call, id);
	if (!id)
		return -1;
	*out = &id->ib;
	return 0;
}

/* What the peer is told when an id goes away (kernel cm_destroy_id). */
static void cm_leave(struct cm_id *id)
{
	switch (id->state) {
	case CM_CONNECT:
	case CM_REP_RCVD:
	case CM_REQ_RCVD:
	case CM_ACCEPTED:
		cm_send(id, CM_REJ, CM_REJ_CONSUMER, NULL, 0);
		break;
	case CM_ESTABLISHED:
		cm_send(id, CM_DREQ, 0, NULL, 0);
		break;
	case CM_DREQ_RCVD:
		cm_send(id, CM_DREP, 0, NULL, 0);
		break;
	default:
		break;
	}
	if (id->bound)
		registry_unlisten(&id->src, id->src_port);
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *ib)
{
	struct cm_id *id = cm_of(ib);
	struct rdma_event_channel *own = NULL;
	struct call call;

	if (ib->event) {
		rdma_ack_cm_event(ib->event);
		ib->event = NULL;
	}
	call_begin_destroy(&call, "destroy_id", &id->obj, OBJECT_CM_ID, NULL);
	if (call_runs(&call)) {
		async_wait_acks(&id->obj, &id->events_given, &id->events_acked, "destroy_id");
		cm_leave(id);
		own = id->sync ? ib->channel : NULL;
		cm_free(id);
	}
	if (cm_result(call_end_destroy(&call)))
		return -1;
	if (own)
		rdma_destroy_event_channel(own);
	nic_stop_if_unused();
	return 0;
}

/* Reads an address; false if it is of no family we know. IPv4 is mapped, its any is any. */
static bool cm_parse(const struct sockaddr *sa, struct in6_addr *addr, uint16_t *port, bool *ipv4)
{
	const struct sockaddr_in *in = (const void *)sa;
	const struct sockaddr_in6 *in6 = (const void *)sa;

	if (sa->sa_family == AF_INET6) {
		*addr = in6->sin6_addr;
		*port = ntohs(in6->sin6_port);
		*ipv4 = false;
		return true;
	}
	if (sa->sa_family != AF_INET)
		return false;
	memset(addr, 0, sizeof(*addr));
	if (in->sin_addr.s_addr) {
		addr->s6_addr[10] = 0xff;
		addr->s6_addr[11] = 0xff;
		memcpy(addr->s6_addr + 12, &in->sin_addr, 4);
	}
	*port = ntohs(in->sin_port);
	*ipv4 = true;
	return true;
}

/* The rail that has the address, or -1. */
static int cm_rail(const struct in6_addr *addr)
{
	struct in_addr v4;
	union ibv_gid gid;

	if (IN6_IS_ADDR_LOOPBACK(addr))
		return 0;
	if (IN6_IS_ADDR_V4MAPPED(addr)) {
		memcpy(&v4, addr->s6_addr + 12, 4);
		return device_rail_of_addr(v4);
	}
	memcpy(&gid, addr, sizeof(gid));
	return device_rail_of_gid(&gid);
}

static void cm_format(const struct in6_addr *addr, uint16_t port, bool ipv4,
		      struct sockaddr_storage *out)
{
	struct sockaddr_in *in = (void *)out;
	struct sockaddr_in6 *in6 = (void *)out;

	memset(out, 0, sizeof(*out));
	if (ipv4) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, addr->s6_addr + 12, 4);
	} else {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		in6->sin6_addr = *addr;
	}
}

void cm_route(struct cm_id *id)
{
	struct rdma_addr *a = &id->ib.route.addr;
	struct device *d = device_get(id->rail);

	cm_format(&id->src, id->src_port, id->ipv4, &a->src_storage);
	cm_format(&id->dst, id->dst_port, id->ipv4, &a->dst_storage);
	if (!d)
		return;
	a->addr.ibaddr.sgid = *device_gid_of(d, &id->src);
	a->addr.ibaddr.dgid = *device_gid_of(d, &id->src);
	a->addr.ibaddr.pkey = htons(0xffff);
	id->ib.port_num = 1;
}

int cm_bind(struct cm_id *id, const struct in6_addr *addr, uint16_t port, bool ipv4)
{
	int rail = IN6_IS_ADDR_UNSPECIFIED(addr) ? -1 : cm_rail(addr);

	if (id->state != CM_IDLE)
		return EINVAL;
	/* Measured on a 6.12 kernel. */
	if (rail < 0 && !IN6_IS_ADDR_UNSPECIFIED(addr))
		return ENODEV;
	/* The port is ours from here on; the record is also what a connect finds. */
	if (registry_listen(addr, &port, fabric_node()))
		return EADDRINUSE;
	id->bound = true;
	id->src = *addr;
	id->src_port = port;
	id->ipv4 = ipv4;
	id->rail = rail;
	id->state = CM_BOUND;
	cm_route(id);
	return 0;
}

/* An id gets its context outside the lock, because opening it is a call of its own. */
static void cm_attach(struct cm_id *id)
{
	if (id->rail >= 0 && !id->ib.verbs)
		id->ib.verbs = cm_context(id->rail);
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *ib, struct sockaddr *sa)
{
	struct cm_id *id = cm_of(ib);
	struct in6_addr addr;
	struct call call;
	uint16_t port;
	bool ipv4;
	int rc;

	if (!cm_parse(sa, &addr, &port, &ipv4))
		return cm_result(EAFNOSUPPORT);
	call_begin(&call, "bind_addr", &id->obj, OBJECT_CM_ID);
	if (call_runs(&call))
		call.rc = cm_bind(id, &addr, port, ipv4);
	rc = call_end(&call);
	if (!rc)
		cm_attach(id);
	return cm_result(rc);
}

static int cm_resolve(struct cm_id *id, const struct in6_addr *src, const struct in6_addr *dst)
{
	uint16_t port = 0;
	int rail = cm_rail(dst);

	if (id->state != CM_IDLE && id->state != CM_BOUND)
		return EINVAL;
	if (id->state == CM_IDLE) {
		id->src = src && !IN6_IS_ADDR_UNSPECIFIED(src) ? *src : *dst;
		if (rail >= 0 && cm_rail(&id->src) < 0)
			return EADDRNOTAVAIL;
		turns_random(&port, sizeof(port));
		id->src_port = (uint16_t)(port | 0x8000);
	}
	id->dst = *dst;
	if (rail < 0) {
		cm_event(id, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, NULL);
		return 0;
	}
	/* A source address chooses the rail; it reaches every other one. */
	id->rail = cm_rail(&id->src) >= 0 ? cm_rail(&id->src) : rail;
	id->peer_rail = (uint8_t)rail;
	id->state = CM_ADDR_RESOLVED;
	cm_route(id);
	return 0;
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *ib, struct sockaddr *src, struct sockaddr *dst,
			     int timeout_ms)
{
	struct cm_id *id = cm_of(ib);
	struct in6_addr from = in6addr_any, to;
	uint16_t ignored, port;
	struct call call;
	bool ipv4;
	int rc;

	if ((src && !cm_parse(src, &from, &ignored, &ipv4)) || !cm_parse(dst, &to, &port, &ipv4))
		return cm_result(EAFNOSUPPORT);
	call_begin(&call, "resolve_addr", &id->obj, OBJECT_CM_ID);
	if (call_runs(&call)) {
		id->dst_port = port;
		id->ipv4 = ipv4;
		call.rc = cm_resolve(id, &from, &to);
	}
	rc = call_end(&call);
	if (rc)
		return cm_result(rc);
	cm_attach(id);
	/* Only now, so that the id has its context when the program sees the event. */
	base_lock();
	if (id->state == CM_ADDR_RESOLVED)
		cm_event(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL);
	base_unlock();
	return cm_wait(id);
}

static int cm_resolve_route(struct cm_id *id)
{
	struct ibv_sa_path_rec *rec;

	if (id->state != CM_ADDR_RESOLVED)
		return EINVAL;
	rec = calloc(1, sizeof(*rec));
	if (!rec)
		return ENOMEM;
	rec->sgid = id->ib.route.addr.addr.ibaddr.sgid;
	rec->dgid = *device_gid_of(device_get(id->peer_rail), &id->dst);
	rec->mtu = (uint8_t)device_get(id->rail)->mtu;
	rec->pkey = htons(0xffff);
	id->ib.route.path_rec = rec;
	id->ib.route.num_paths = 1;
	id->state = CM_ROUTE_RESOLVED;
	cm_event(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	return 0;
}

EXPORT int rdma_resolve_route(struct rdma_cm_id *ib, int timeout_ms)
{
	struct cm_id *id = cm_of(ib);
	struct call call;
	int rc;

	call_begin(&call, "resolve_route", &id->obj, OBJECT_CM_ID);
	if (call_runs(&call))
		call.rc = cm_resolve_route(id);
	rc = call_end(&call);
	return rc ? cm_result(rc) : cm_wait(id);
}

EXPORT int rdma_set_option(struct rdma_cm_id *ib, int level, int name, void *value, size_t size)
{
	if (level != RDMA_OPTION_ID || name > RDMA_OPTION_ID_ACK_TIMEOUT || name < 0)
		return cm_result(ENOSYS);
	if (name == RDMA_OPTION_ID_TOS && size == 1)
		memcpy(&cm_of(ib)->tos, value, 1);
	return 0;
}

EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *ib)
{
	return htons(cm_of(ib)->src_port);
}

EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *ib)
{
	return htons(cm_of(ib)->dst_port);
}
