/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections through librdmacm: it finds paths and carries the handshake; queue pairs are ours
 * ("external queue pairs", rdma_establish(3)).  One listener per rail, on a port of the kernel's
 * choice.  Everything here runs on the engine's control thread and never sleeps: the channel is
 * non-blocking, each step starts where the last one's event ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "backends/rdma/rdma.h"
#include "backends/rdma/verbs.h"

#define BACKLOG 128

static bool is_on(const struct rdma_cm_id *id, const char *device)
{
	const char *stands_on = verbs_cm_device(id);

	return stands_on && !strcmp(stands_on, device);
}

static escrow_status listen_on(struct native *n, struct rdma_rail *r, struct escrow_error *error)
{
	struct sockaddr_storage addr = r->addr;
	uint16_t port;
	int rc;

	rc = verbs_cm_id(n->cm, r, &r->listener);
	if (!rc)
		rc = verbs_cm_listen(n->log, r->listener, (struct sockaddr *)&addr, BACKLOG);
	if (rc)
		return error_set(error, error_status(rc), rc, "listening on rail %.50s",
				 r->info.name);
	/* Rails were looked for with that in mind; the address may have come to another one since. */
	if (!is_on(r->listener, r->device))
		return error_set(error, ESCROW_E_DEVICE, ENODEV,
				 "rail %.50s: its address is now another device's for the "
				 "connection manager",
				 r->info.name);
	port = rdma_get_src_port(r->listener);
	if (addr.ss_family == AF_INET)
		((struct sockaddr_in *)(void *)&addr)->sin_port = port;
	else
		((struct sockaddr_in6 *)(void *)&addr)->sin6_port = port;
	rail_address(&addr, r->info.address);
	return ESCROW_OK;
}

bool cm_elsewhere(struct native *n, const struct sockaddr_storage *addr, const char *device,
		  char other[64])
{
	struct sockaddr_storage copy = *addr;
	struct rdma_cm_id *id;
	bool elsewhere = false;

	if ((!n->cm && verbs_cm_channel(&n->cm)) || verbs_cm_id(n->cm, NULL, &id))
		return false;
	if (!verbs_cm_bind(id, (struct sockaddr *)&copy) && verbs_cm_device(id) &&
	    !is_on(id, device)) {
		elsewhere = true;
		snprintf(other, 64, "%s", verbs_cm_device(id));
	}
	verbs_cm_destroy_id(n->log, id);
	return elsewhere;
}

escrow_status cm_open(struct native *n, struct escrow_error *error)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int flags, rc;

	n->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (n->epoll_fd < 0)
		return error_set(error, ESCROW_E_NO_MEMORY, errno, "epoll_create1");
	rc = n->cm ? 0 : verbs_cm_channel(&n->cm);
	if (rc)
		return error_set(error, error_status(rc), rc,
				 "no RDMA connection manager (is /dev/infiniband/rdma_cm there?)");
	flags = fcntl(n->cm->fd, F_GETFL);
	if (flags < 0 || fcntl(n->cm->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return error_set(error, ESCROW_E_INTERNAL, errno, "fcntl");
	ev.data.fd = n->cm->fd;
	epoll_ctl(n->epoll_fd, EPOLL_CTL_ADD, n->cm->fd, &ev);
	for (uint32_t i = 0; i < n->nrails; i++) {
		escrow_status status = listen_on(n, &n->rails[i], error);

		if (status != ESCROW_OK)
			return status;
	}
	return ESCROW_OK;
}

void cm_close(struct native *n)
{
	for (uint32_t i = 0; i < n->nrails; i++)
		if (n->rails[i].listener)
			verbs_cm_destroy_id(n->log, n->rails[i].listener);
	if (n->cm)
		verbs_cm_channel_end(n->cm);
	if (n->epoll_fd >= 0)
		close(n->epoll_fd);
}

int cm_connect(struct native_conn *conn, const uint8_t *address, const void *data, uint32_t len)
{
	struct native *n = conn->lane->context->native;
	struct sockaddr_storage src = conn->rail->addr, dst;
	int rc;

	if (len > sizeof(conn->data))
		return EMSGSIZE;
	rc = rail_parse_address(address, &dst);
	if (rc)
		return rc;
	if (dst.ss_family != src.ss_family)
		return EAFNOSUPPORT;
	if (dst.ss_family == AF_INET6) {
		/* A link-local address is the peer's; the link is known to us only. */
		struct sockaddr_in6 *to = (void *)&dst;

		if (IN6_IS_ADDR_LINKLOCAL(&to->sin6_addr))
			to->sin6_scope_id = ((struct sockaddr_in6 *)(void *)&src)->sin6_scope_id;
	}
	memcpy(conn->data, data, len);
	conn->data_len = len;
	rc = verbs_cm_id(n->cm, conn, &conn->id);
	if (rc)
		return rc;
	if (n->set.traffic_class)
		verbs_cm_tos(conn->id, n->set.traffic_class);
	conn->state = RDMA_CONN_RESOLVING;
	return verbs_cm_resolve_addr(n->log, conn->id, (struct sockaddr *)&src,
				     (struct sockaddr *)&dst, n->set.connect_ms);
}

static uint8_t least(uint32_t a, uint32_t b)
{
	uint32_t m = a < b ? a : b;

	return m > UINT8_MAX ? UINT8_MAX : (uint8_t)m;
}

/* READs that we may have under way (out) and that the peer may (in), before the peer was asked. */
static uint8_t our_rd_atomic(const struct native_conn *conn)
{
	return least(conn->lane->context->native->set.rd_atomic,
		     (uint32_t)conn->lane->context->attr.max_qp_init_rd_atom);
}

static uint8_t our_dest_rd_atomic(const struct native_conn *conn)
{
	return least(conn->lane->context->native->set.rd_atomic,
		     (uint32_t)conn->lane->context->attr.max_qp_rd_atom);
}

static struct rdma_conn_param conn_param(const struct native_conn *conn, const void *data,
					 uint32_t len)
{
	const struct native *n = conn->lane->context->native;

	return (struct rdma_conn_param){
		.private_data = len ? data : NULL,
		.private_data_len = (uint8_t)len,
		.responder_resources = our_dest_rd_atomic(conn),
		.initiator_depth = our_rd_atomic(conn),
		.retry_count = n->set.retry,
		.rnr_retry_count = n->set.rnr_retry,
		.qp_num = conn->qp->qp_num,
	};
}

/*
 * Behind the engine's private data an acceptance has the MTU of the accepting end.  It has room for it (196 bytes,
 * rdma_accept(3)), what is not used is zero, and a peer that looks no further than the engine's data misses nothing
 * but the smaller MTU.
 */
#define MTU_MARK 0x4d
#define MTU_BYTES 2u

static uint32_t put_mtu(uint8_t *to, const void *data, uint32_t len, uint8_t mtu)
{
	memcpy(to, data, len);
	to[len] = MTU_MARK;
	to[len + 1] = mtu;
	return len + MTU_BYTES;
}

static uint8_t get_mtu(const struct rdma_cm_event *ev)
{
	const uint8_t *data = ev->param.conn.private_data;

	if (!data || ev->param.conn.private_data_len < NATIVE_PRIVATE_BYTES + MTU_BYTES ||
	    data[NATIVE_PRIVATE_BYTES] != MTU_MARK)
		return 0;
	return data[NATIVE_PRIVATE_BYTES + 1];
}

int cm_accept(struct native_conn *conn, struct native_request *request, const void *data,
	      uint32_t len)
{
	struct native *n = conn->lane->context->native;
	uint8_t answer[NATIVE_PRIVATE_BYTES + MTU_BYTES];
	struct rdma_conn_param param;
	uint8_t out, in;
	int rc;

	if (len > NATIVE_PRIVATE_BYTES)
		return EMSGSIZE;
	conn->id = request->id;
	conn->id->context = conn;
	conn->state = RDMA_CONN_ACCEPTING;
	out = least(our_rd_atomic(conn), request->rd_atomic);
	in = least(our_dest_rd_atomic(conn), request->dest_rd_atomic);
	n->host->free(n->host->ctx, request);
	/* Ready before the peer hears of it: its first packets may come with the answer. */
	rc = connection_ready(conn, out, in, 0);
	if (rc)
		return rc;
	/* Only behind all of it is it found. */
	if (len == NATIVE_PRIVATE_BYTES) {
		len = put_mtu(answer, data, len, conn->path_mtu);
		data = answer;
	}
	param = conn_param(conn, data, len);
	param.initiator_depth = out;
	param.responder_resources = in;
	return verbs_cm_accept(n->log, conn->id, &param);
}

int cm_reject(struct native *n, struct native_request *request, const void *data, uint32_t len)
{
	int rc = verbs_cm_reject(n->log, request->id, data, (uint8_t)len);

	verbs_cm_destroy_id(n->log, request->id);
	n->host->free(n->host->ctx, request);
	return rc;
}

int cm_disconnect(struct native_conn *conn)
{
	if (!conn->id || (conn->state != RDMA_CONN_UP && conn->state != RDMA_CONN_ACCEPTING))
		return 0;
	conn->state = RDMA_CONN_DOWN;
	return verbs_cm_disconnect(conn->lane->context->native->log, conn->id);
}

/* ---- Events --------------------------------------------------------------------------------- */

static void copy_data(struct native_event *event, const void *data, uint32_t len)
{
	event->data_len = len < sizeof(event->data) ? len : (uint32_t)sizeof(event->data);
	if (data)
		memcpy(event->data, data, event->data_len);
	else
		event->data_len = 0;
}

static int unreachable(struct native_conn *conn, int error, struct native_event *event)
{
	conn->state = RDMA_CONN_DOWN;
	event->kind = NATIVE_EV_UNREACHABLE;
	event->conn = conn;
	event->error = error ? error : ECONNREFUSED;
	return 1;
}

static int on_request(struct native *n, const struct rdma_cm_event *ev, struct native_event *event)
{
	struct native_request *request = NULL;
	struct rdma_rail *rail = ev->listen_id->context;

	/* A queue pair of the rail's device could not take it. */
	if (is_on(ev->id, rail->device))
		request = n->host->alloc(n->host->ctx, sizeof(*request), 8);
	if (!request) {
		verbs_cm_reject(n->log, ev->id, NULL, 0);
		verbs_cm_destroy_id(n->log, ev->id);
		return 0;
	}
	request->rail = rail;
	request->id = ev->id;
	/* It inherited the listener's; until it is accepted its events concern nobody. */
	request->id->context = NULL;
	/* Seen from here: what it wants answered is what we may have coming in, and the reverse
	 * (rdma_get_cm_event(3)). */
	request->dest_rd_atomic = ev->param.conn.responder_resources;
	request->rd_atomic = ev->param.conn.initiator_depth;
	event->kind = NATIVE_EV_REQUEST;
	event->request = request;
	event->rail = (uint32_t)(request->rail - n->rails);
	copy_data(event, ev->param.conn.private_data, ev->param.conn.private_data_len);
	return 1;
}

static int on_address(struct native_conn *conn, struct native_event *event)
{
	struct native_context *c = conn->lane->context;
	int rc;

	/* The route may lead through another device than the one our queue pair is of. */
	if (!is_on(conn->id, c->device))
		return unreachable(conn, ENETUNREACH, event);
	conn->state = RDMA_CONN_ROUTING;
	rc = verbs_cm_resolve_route(c->native->log, conn->id, c->native->set.connect_ms);
	return rc ? unreachable(conn, rc, event) : 0;
}

static int on_route(struct native_conn *conn, struct native_event *event)
{
	struct rdma_conn_param param = conn_param(conn, conn->data, conn->data_len);
	int rc;

	conn->state = RDMA_CONN_CONNECTING;
	rc = verbs_cm_connect(conn->lane->context->native->log, conn->id, &param);
	return rc ? unreachable(conn, rc, event) : 0;
}

/* The peer accepted: our end becomes ready, and tells so. */
static int on_response(struct native_conn *conn, const struct rdma_cm_event *ev,
		       struct native_event *event)
{
	uint8_t out = least(our_rd_atomic(conn), ev->param.conn.initiator_depth);
	uint8_t in = least(our_dest_rd_atomic(conn), ev->param.conn.responder_resources);
	int rc = connection_ready(conn, out, in, get_mtu(ev));

	if (!rc)
		rc = verbs_cm_establish(conn->lane->context->native->log, conn->id);
	if (rc)
		return unreachable(conn, rc, event);
	conn->state = RDMA_CONN_UP;
	event->kind = NATIVE_EV_ESTABLISHED;
	event->conn = conn;
	copy_data(event, ev->param.conn.private_data, ev->param.conn.private_data_len);
	return 1;
}

static int on_conn(struct native_conn *conn, const struct rdma_cm_event *ev,
		   struct native_event *event)
{
	switch (ev->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return on_address(conn, event);
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return on_route(conn, event);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		return on_response(conn, ev, event);
	case RDMA_CM_EVENT_ESTABLISHED:
		conn->state = RDMA_CONN_UP;
		event->kind = NATIVE_EV_ESTABLISHED;
		event->conn = conn;
		return 1;
	case RDMA_CM_EVENT_REJECTED:
		conn->state = RDMA_CONN_DOWN;
		event->kind = NATIVE_EV_REJECTED;
		event->conn = conn;
		event->error = ev->status;
		copy_data(event, ev->param.conn.private_data, ev->param.conn.private_data_len);
		return 1;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		return unreachable(conn, ev->status < 0 ? -ev->status : ev->status, event);
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		conn->state = RDMA_CONN_DOWN;
		event->kind = NATIVE_EV_DISCONNECTED;
		event->conn = conn;
		return 1;
	default: /* TIMEWAIT_EXIT, ADDR_CHANGE, MULTICAST: nothing that the engine acts on */
		return 0;
	}
}

static bool is_listener(const struct native *n, const struct rdma_cm_id *id)
{
	for (uint32_t i = 0; i < n->nrails; i++)
		if (n->rails[i].listener == id)
			return true;
	return false;
}

/* 1: *event is news; 0: nothing to tell; -1: no more events. */
static int take_event(struct native *n, struct native_event *event)
{
	struct rdma_cm_event *ev, copy;
	uint8_t data[UINT8_MAX];

	if (rdma_get_cm_event(n->cm, &ev))
		return -1;
	/* Copied and acknowledged first: rdma_destroy_id waits for events that are not. */
	copy = *ev;
	if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST ||
	    ev->event == RDMA_CM_EVENT_CONNECT_RESPONSE || ev->event == RDMA_CM_EVENT_REJECTED) {
		if (ev->param.conn.private_data)
			memcpy(data, ev->param.conn.private_data, ev->param.conn.private_data_len);
		copy.param.conn.private_data = ev->param.conn.private_data ? data : NULL;
	}
	rdma_ack_cm_event(ev);
	if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return on_request(n, &copy, event);
	if (!copy.id->context || is_listener(n, copy.id))
		return 0;
	return on_conn(copy.id->context, &copy, event);
}

int cm_next_event(struct native *n, struct native_event *event)
{
	int rc;

	do {
		rc = take_event(n, event);
	} while (!rc);
	return rc > 0;
}
