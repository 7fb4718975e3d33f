/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One queue pair in one epoch.  It is made and ended by verbs calls on our own context:
 * rdma_destroy_qp and rdma_destroy_ep throw the result away (librdmacm/cma.c), so they could never
 * give a receipt.  A queue pair is never brought back from RESET: a stale packet whose number
 * happens to fit would be accepted (kernel cm.c, TIMEWAIT).
 */
#include <errno.h>
#include <string.h>

#include "backends/rdma/rdma.h"
#include "backends/rdma/verbs.h"

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* RESET -> INIT by hand, so that receives can be posted before the peer is known. */
static void to_init(struct native_conn *conn)
{
	const struct native *n = conn->lane->context->native;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = conn->rail->pkey_index,
		.port_num = conn->rail->port,
		/* What windows bound to this queue pair may allow at most. */
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE,
	};

	verbs_modify_qp(n->log, conn->qp, &attr,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int connection_create(struct native_lane *l, const struct native_conn_args *args,
		      struct native_conn **out)
{
	struct native_context *c = l->context;
	struct native *n = c->native;
	struct native_conn *conn = n->host->alloc(n->host->ctx, sizeof(*conn), 8);
	struct ibv_qp_init_attr attr = {
		.send_cq = l->cq,
		.recv_cq = l->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 0,
		.cap =
			{
				.max_send_wr = args->send_depth,
				.max_recv_wr = args->recv_depth,
				.max_send_sge = least(args->max_sge, NATIVE_MAX_SGE),
				.max_recv_sge = 1,
				.max_inline_data = least(args->max_inline, RDMA_MAX_INLINE),
			},
	};
	int rc;

	if (!conn)
		return ENOMEM;
	memset(conn, 0, sizeof(*conn));
	conn->lane = l;
	conn->rail = &n->rails[args->rail];
	conn->user = args->user;
	conn->said.conn = conn;
	attr.qp_context = conn;
	rc = verbs_create_qp(n->log, c->pd, &attr, &conn->qp);
	if (rc)
		goto free_conn;
	context_object_lives(c, conn->qp);
	conn->max_inline = attr.cap.max_inline_data;
	/*
	 * One that cannot be used is given out all the same: posting receives and going on to RTR
	 * fail, and its end is the engine's, with one destroy and what that answers.
	 */
	to_init(conn);
	*out = conn;
	return 0;

free_conn:
	n->host->free(n->host->ctx, conn);
	return rc;
}

void *connection_user(const struct native_conn *conn)
{
	return conn->user;
}

/*
 * Where the configuration says otherwise than the connection manager, whose values on RoCE come from the
 * type of service that the active end asked for (kernel cma.c, cma_resolve_iboe_route).  The priority of a
 * frame is the service level, the DSCP the traffic class (mlx5_set_path in kernel drivers/infiniband/hw/mlx5/qp.c).
 */
static void set_priority(const struct rdma_settings *set, struct ibv_ah_attr *ah)
{
	if (set->traffic_class)
		ah->grh.traffic_class = set->traffic_class;
	if (set->service_level >= 0)
		ah->sl = (uint8_t)set->service_level;
}

/*
 * The connection manager has the active end's MTU at both ends: the request carries it, and nothing is carried back
 * (kernel cm.c, cm_req_handler and cm_init_qp_rtr_attr).  So each end takes the least of that, its own port's, and
 * what the other end said, 0 if it said nothing.
 */
static void set_mtu(struct native_conn *conn, struct ibv_qp_attr *attr, uint8_t peer_mtu)
{
	struct ibv_port_attr port;

	if (!verbs_query_port(conn->lane->context->verbs, conn->rail->port, &port))
		attr->path_mtu = (enum ibv_mtu)least(attr->path_mtu, port.active_mtu);
	if (peer_mtu)
		attr->path_mtu = (enum ibv_mtu)least(attr->path_mtu, peer_mtu);
	conn->path_mtu = (uint8_t)attr->path_mtu;
}

int connection_ready(struct native_conn *conn, uint8_t rd_atomic, uint8_t dest_rd_atomic,
		     uint8_t peer_mtu)
{
	const struct native *n = conn->lane->context->native;
	struct ibv_qp_attr attr;
	int mask, rc;

	memset(&attr, 0, sizeof(attr));
	rc = verbs_cm_qp_attr(conn->id, IBV_QPS_RTR, &attr, &mask);
	if (rc)
		return rc;
	set_priority(&n->set, &attr.ah_attr);
	set_mtu(conn, &attr, peer_mtu);
	attr.max_dest_rd_atomic = dest_rd_atomic;
	attr.min_rnr_timer = n->set.min_rnr_timer;
	rc = verbs_modify_qp(n->log, conn->qp, &attr, mask);
	if (rc)
		return rc;
	memset(&attr, 0, sizeof(attr));
	rc = verbs_cm_qp_attr(conn->id, IBV_QPS_RTS, &attr, &mask);
	if (rc)
		return rc;
	attr.max_rd_atomic = rd_atomic;
	attr.timeout = n->set.timeout;
	attr.retry_cnt = n->set.retry;
	attr.rnr_retry = n->set.rnr_retry;
	return verbs_modify_qp(n->log, conn->qp, &attr, mask);
}

static int to_state(struct native_conn *conn, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return verbs_modify_qp(conn->lane->context->native->log, conn->qp, &attr, IBV_QP_STATE);
}

int connection_err(struct native_conn *conn)
{
	return to_state(conn, IBV_QPS_ERR);
}

int connection_reset(struct native_conn *conn)
{
	return to_state(conn, IBV_QPS_RESET);
}

int connection_destroy(struct native_conn *conn)
{
	struct native *n = conn->lane->context->native;
	int rc;

	context_unsay(conn->lane->context, &conn->said);
	/* An answer of the peer that is still on its way concerns nobody: the queue pair must not be
	 * touched again, also if its destroy fails. */
	if (conn->id)
		conn->id->context = NULL;
	rc = verbs_destroy_qp(n->log, conn->qp);
	if (rc) {
		context_object_dead(conn->lane->context, &conn->dead, conn->qp);
		return rc;
	}
	if (conn->id)
		verbs_cm_destroy_id(n->log, conn->id);
	n->host->free(n->host->ctx, conn);
	return 0;
}
