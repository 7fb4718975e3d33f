/* SPDX-License-Identifier: BSD-2-Clause */
/* Listening, connecting, accepting, and the attributes a queue pair gets from a connection. */
#include "tests/softverbs/cm.h"
#include "tests/softverbs/fabric.h"
#include "tests/softverbs/nic.h"
#include "tests/softverbs/registry.h"
#include "tests/softverbs/script.h"

#define CM_BACKLOG 1024
/* 15 tries of a request (the kernel's are longer). */
#define CM_CONNECT_NS 20000000000u
/* The ack timeout that connections get: 4.096 us x 2^14, 67 ms. */
#define CM_ACK_TIMEOUT 14

static int cm_listen(struct cm_id *id, int backlog)
{
	/* The kernel binds an id that is not bound to any address. */
	int rc = id->state == CM_IDLE ? cm_bind(id, &in6addr_any, 0, true) : 0;

	if (rc || id->state != CM_BOUND)
		return rc ? rc : EINVAL;
	id->backlog = backlog > 0 && backlog < CM_BACKLOG ? backlog : CM_BACKLOG;
	id->state = CM_LISTEN;
	return 0;
}

EXPORT int rdma_listen(struct rdma_cm_id *ib, int backlog)
{
	struct cm_id *id = cm_of(ib);
	struct call call;

	call_begin(&call, "listen", &id->obj, OBJECT_CM_ID);
	if (call_runs(&call))
		call.rc = cm_listen(id, backlog);
	return cm_result(call_end(&call));
}

static uint8_t cm_limit(const struct cm_id *id, uint8_t asked)
{
	uint8_t most = device_get(id->rail)->rd_atomic;

	return asked > most ? most : asked;
}

/* Without parameters librdmacm takes the device's maximum. */
static void cm_take_param(struct cm_id *id, const struct rdma_conn_param *p)
{
	static const struct rdma_conn_param all = {.responder_resources = RDMA_MAX_RESP_RES,
						   .initiator_depth = RDMA_MAX_INIT_DEPTH,
						   .retry_count = 7,
						   .rnr_retry_count = 7};

	p = p ? p : &all;
	id->responder_resources = cm_limit(id, p->responder_resources);
	id->initiator_depth = cm_limit(id, p->initiator_depth);
	id->retry_count = p->retry_count & 7;
	id->rnr_retry_count = p->rnr_retry_count & 7;
	id->qpn = id->ib.qp ? id->ib.qp->qp_num : p->qp_num;
}

static int cm_connect(struct cm_id *id, const struct rdma_conn_param *p)
{
	int node;

	if (id->state != CM_ROUTE_RESOLVED || (p && p->private_data_len > CM_REQ_DATA))
		return EINVAL;
	cm_take_param(id, p);
	id->mtu = (uint8_t)device_get(id->rail)->mtu;
	id->state = CM_CONNECT;
	id->deadline = base_now() + CM_CONNECT_NS;
	node = registry_find(&id->dst, id->dst_port);
	if (node < 0) {
		/* The host is there, and nobody listens. */
		struct cm_wire rej = {.kind = CM_REJ, .reason = CM_REJ_INVALID_SERVICE};

		id->state = CM_FAILED;
		id->deadline = 0;
		cm_event(id, RDMA_CM_EVENT_REJECTED, CM_REJ_INVALID_SERVICE, &rej);
		return 0;
	}
	id->peer_node = (uint16_t)node;
	cm_send(id, CM_REQ, 0, p ? p->private_data : NULL, p ? p->private_data_len : 0);
	nic_wake();
	return 0;
}

EXPORT int rdma_connect(struct rdma_cm_id *ib, struct rdma_conn_param *param)
{
	struct cm_id *id = cm_of(ib);
	struct call call;
	int rc;

	call_begin(&call, "connect", &id->obj, OBJECT_CM_ID);
	if (call_runs(&call))
		call.rc = cm_connect(id, param);
	rc = call_end(&call);
	return rc ? cm_result(rc) : cm_wait(id);
}

EXPORT int rdma_establish(struct rdma_cm_id *ib)
{
	struct cm_id *id = cm_of(ib);
	struct call call;

	call_begin(&call, "establish", &id->obj, OBJECT_CM_ID);
	if (call_runs(&call) && id->state != CM_REP_RCVD) {
		call.rc = EINVAL;
	} else if (call_runs(&call)) {
		id->state = CM_ESTABLISHED;
		cm_send(id, CM_RTU, 0, NULL, 0);
	}
	return cm_result(call_end(&call));
}

static void cm_accept_param(struct cm_id *id, const struct rdma_conn_param *p)
{
	/* The request's offer stands where the program does not name a number (ucma_accept). */
	if (p && p->responder_resources != RDMA_MAX_RESP_RES)
		id->responder_resources = cm_limit(id, p->responder_resources);
	if (p && p->initiator_depth != RDMA_MAX_INIT_DEPTH)
		id->initiator_depth = cm_limit(id, p->initiator_depth);
	if (p)
		id->rnr_retry_count = p->rnr_retry_count & 7;
	id->qpn = id->ib.qp ? id->ib.qp->qp_num : p ? p->qp_num : 0;
}

EXPORT int rdma_accept(struct rdma_cm_id *ib, struct rdma_conn_param *param)
{
	struct cm_id *id = cm_of(ib);
	struct call call;
	int rc = 0;

	base_lock();
	object_check(&id->obj, OBJECT_CM_ID, "accept");
	if (id->state != CM_REQ_RCVD || (param && param->private_data_len > CM_REP_DATA))
		rc = EINVAL;
	else
		cm_accept_param(id, param);
	base_unlock();
	if (!rc && ib->qp)
		rc = cm_qp_rtr(ib);
	if (!rc && ib->qp)
		rc = cm_qp_rts(ib);
	if (rc)
		return cm_result(rc);
	call_begin(&call, "accept", &id->obj, OBJECT_CM_ID);
	if (call_runs(&call) && id->state != CM_REQ_RCVD) {
		call.rc = ECONNRESET;
	} else if (call_runs(&call)) {
		id->state = CM_ACCEPTED;
		cm_send(id, CM_REP, 0, param ? param->private_data : NULL,
			param ? param->private_data_len : 0);
	}
	rc = call_end(&call);
	return rc ? cm_result(rc) : cm_wait(id);
}

EXPORT int rdma_reject(struct rdma_cm_id *ib, const void *data, uint8_t size)
{
	struct cm_id *id = cm_of(ib);
	struct call call;

	call_begin(&call, "reject", &id->obj, OBJECT_CM_ID);
	if (call_runs(&call) &&
	    ((id->state != CM_REQ_RCVD && id->state != CM_REP_RCVD) || size > CM_REJ_DATA)) {
		call.rc = EINVAL;
	} else if (call_runs(&call)) {
		id->state = CM_FAILED;
		cm_send(id, CM_REJ, CM_REJ_CONSUMER, data, size);
	}
	return cm_result(call_end(&call));
}

EXPORT int rdma_reject_ece(struct rdma_cm_id *ib, const void *data, uint8_t size)
{
	return rdma_reject(ib, data, size);
}

EXPORT int rdma_notify(struct rdma_cm_id *ib, enum ibv_event_type type)
{
	return type == IBV_EVENT_COMM_EST ? 0 : cm_result(EINVAL);
}

static int cm_disconnect(struct cm_id *id)
{
	switch (id->state) {
	case CM_ESTABLISHED:
	case CM_ACCEPTED:
	case CM_REP_RCVD:
		id->state = CM_DREQ_SENT;
		id->deadline = base_now() + 1000000000u;
		cm_send(id, CM_DREQ, 0, NULL, 0);
		return 0;
	case CM_DREQ_RCVD:
		cm_send(id, CM_DREP, 0, NULL, 0);
		cm_timewait(id);
		return 0;
	case CM_TIMEWAIT:
	case CM_DREQ_SENT:
	case CM_FAILED:
		return 0;
	default:
		return EINVAL;
	}
}

EXPORT int rdma_disconnect(struct rdma_cm_id *ib)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct cm_id *id = cm_of(ib);
	struct call call;
	int rc = 0;

	/* librdmacm moves the id's own queue pair (ucma_modify_qp_err). */
	if (ib->qp)
		rc = ibv_modify_qp(ib->qp, &err, IBV_QP_STATE);
	if (rc)
		return cm_result(rc);
	call_begin(&call, "disconnect", &id->obj, OBJECT_CM_ID);
	if (call_runs(&call))
		call.rc = cm_disconnect(id);
	rc = call_end(&call);
	return rc ? cm_result(rc) : cm_wait(id);
}

/* ---- queue pair attributes ---- */
/* That of the default partition, a full member first (kernel ib_find_cached_pkey). */
static uint16_t cm_default_pkey(const struct cm_id *id)
{
	const struct device *d = device_get(id->rail);
	int i, limited = 0;

	for (i = d->npkeys - 1; i >= 0; i--)
		if (d->pkeys[i] == 0x7fff)
			limited = i;
	for (i = 0; i < d->npkeys; i++)
		if (d->pkeys[i] == 0xffff)
			return (uint16_t)i;
	return (uint16_t)limited;
}

static void cm_attr_init(const struct cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	a->port_num = 1;
	a->pkey_index = cm_default_pkey(id);
	a->qp_access_flags = 0;
	/* Before there is a connection nothing is granted (cma_ib_init_qp_attr); the library moves
	 * the queue pair from INIT to INIT later. */
	if (id->state >= CM_CONNECT)
		a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (id->state >= CM_CONNECT && id->responder_resources)
		a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

static void cm_attr_rtr(const struct cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	const struct device *peer = device_get(id->peer_rail);

	memset(&a->ah_attr, 0, sizeof(a->ah_attr));
	a->ah_attr.is_global = 1;
	a->ah_attr.port_num = 1;
	a->ah_attr.grh.dgid = *device_gid_of(peer, &id->dst);
	a->ah_attr.grh.sgid_index = (uint8_t)device_gid_index(device_get(id->rail), &id->src);
	a->ah_attr.grh.hop_limit = 64;
	/* No device here has classes of its own, so the level is 0 whatever the type (iboe_tos_to_sl). */
	a->ah_attr.grh.traffic_class = id->tos;
	a->path_mtu = (enum ibv_mtu)id->mtu;
	a->dest_qp_num = id->peer_qpn;
	a->rq_psn = id->peer_psn;
	a->max_dest_rd_atomic = id->responder_resources;
	a->min_rnr_timer = 0;
	*mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

static void cm_attr_rts(const struct cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	a->timeout = CM_ACK_TIMEOUT;
	a->retry_cnt = id->retry_count;
	a->rnr_retry = id->rnr_retry_count;
	a->sq_psn = id->psn;
	a->max_rd_atomic = id->initiator_depth;
	*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		 IBV_QP_MAX_QP_RD_ATOMIC;
}

EXPORT int rdma_init_qp_attr(struct rdma_cm_id *ib, struct ibv_qp_attr *attr, int *mask)
{
	struct cm_id *id = cm_of(ib);
	struct call call;
	bool known;

	*mask = IBV_QP_STATE;
	call_begin(&call, "init_qp_attr", &id->obj, OBJECT_CM_ID);
	known = id->state == CM_REP_RCVD || id->state == CM_REQ_RCVD || id->state == CM_ACCEPTED ||
		id->state == CM_ESTABLISHED;
	if (id->rail < 0)
		call.rc = EINVAL;
	else if (attr->qp_state == IBV_QPS_INIT)
		cm_attr_init(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTR && known)
		cm_attr_rtr(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTS && known)
		cm_attr_rts(id, attr, mask);
	else
		call.rc = EINVAL;
	return cm_result(call_end(&call));
}

static int cm_qp_move(struct rdma_cm_id *ib, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask;

	if (rdma_init_qp_attr(ib, &attr, &mask))
		return errno;
	return ibv_modify_qp(qp, &attr, mask);
}

int cm_qp_init(struct rdma_cm_id *ib, struct ibv_qp *qp)
{
	return cm_qp_move(ib, qp, IBV_QPS_INIT);
}

int cm_qp_rtr(struct rdma_cm_id *ib)
{
	int rc = cm_qp_move(ib, ib->qp, IBV_QPS_INIT);

	return rc ? rc : cm_qp_move(ib, ib->qp, IBV_QPS_RTR);
}

int cm_qp_rts(struct rdma_cm_id *ib)
{
	return cm_qp_move(ib, ib->qp, IBV_QPS_RTS);
}

EXPORT int rdma_set_local_ece(struct rdma_cm_id *ib, struct ibv_ece *ece)
{
	return 0;
}

EXPORT int rdma_get_remote_ece(struct rdma_cm_id *ib, struct ibv_ece *ece)
{
	memset(ece, 0, sizeof(*ece));
	return 0;
}
