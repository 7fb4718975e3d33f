/* SPDX-License-Identifier: BSD-2-Clause */
/* The RC state machine: InfiniBand specification 11.2.5.3 (modify queue pair), in the form of the
 * kernel's qp_state_table (drivers/infiniband/core/verbs.c). */
#include "tests/softverbs/qp.h"
#include "tests/softverbs/script.h"

#define ALT IBV_QP_ALT_PATH
#define ACC IBV_QP_ACCESS_FLAGS
#define CUR IBV_QP_CUR_STATE
#define MIG IBV_QP_PATH_MIG_STATE
#define PKEY IBV_QP_PKEY_INDEX
#define RNR IBV_QP_MIN_RNR_TIMER

struct transition {
	enum ibv_qp_state from;
	enum ibv_qp_state to;
	int required;
	int optional;
};

static const struct transition transitions[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, PKEY | IBV_QP_PORT | ACC, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, PKEY | IBV_QP_PORT | ACC},
	{IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		 RNR,
	 ALT | ACC | PKEY},
	{IBV_QPS_RTR, IBV_QPS_RTS,
	 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		 IBV_QP_MAX_QP_RD_ATOMIC,
	 CUR | ALT | ACC | RNR | MIG},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACC | ALT | MIG | RNR},
	{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | ALT | ACC | RNR | MIG},
	{IBV_QPS_SQD, IBV_QPS_SQD, 0,
	 IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | ALT | CUR | ACC | PKEY |
		 RNR | MIG},
};

int qpstate_check(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	int given = mask & ~IBV_QP_STATE;
	unsigned int i;

	if (to == IBV_QPS_RESET)
		return given ? EINVAL : 0;
	/* ERR is legal from every state but RESET (mlx5, rxe 6.x). */
	if (to == IBV_QPS_ERR)
		return from == IBV_QPS_RESET || given ? EINVAL : 0;
	for (i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		const struct transition *t = &transitions[i];

		if (t->from != from || t->to != to)
			continue;
		if ((given & t->required) != t->required)
			return EINVAL;
		return given & ~(t->required | t->optional) ? EINVAL : 0;
	}
	return EINVAL;
}

static bool qpstate_path(const struct qp *qp, const struct ibv_ah_attr *ah)
{
	/* RoCE addresses by GID: a route header is a must. */
	return ah->is_global && ah->port_num <= 1 &&
	       device_gid(qp->ctx->device, ah->grh.sgid_index) != NULL;
}

int qpstate_values(const struct qp *qp, const struct ibv_qp_attr *a, int mask)
{
	if ((mask & IBV_QP_CUR_STATE) && a->cur_qp_state != qp->state)
		return EINVAL;
	if ((mask & IBV_QP_PORT) && a->port_num != 1)
		return EINVAL;
	if ((mask & PKEY) && a->pkey_index >= qp->ctx->device->npkeys)
		return EINVAL;
	if ((mask & IBV_QP_AV) && !qpstate_path(qp, &a->ah_attr))
		return EINVAL;
	if ((mask & IBV_QP_PATH_MTU) &&
	    (a->path_mtu < IBV_MTU_256 || a->path_mtu > qp->ctx->device->mtu))
		return EINVAL;
	if ((mask & IBV_QP_TIMEOUT) && a->timeout > 31)
		return EINVAL;
	if ((mask & RNR) && a->min_rnr_timer > 31)
		return EINVAL;
	if ((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7)
		return EINVAL;
	if ((mask & IBV_QP_RNR_RETRY) && a->rnr_retry > 7)
		return EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > qp->ctx->device->rd_atomic)
		return EINVAL;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
	    a->max_dest_rd_atomic > qp->ctx->device->rd_atomic)
		return EINVAL;
	return 0;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *ib, struct ibv_qp_init_attr *init)
{
	struct pd *pd = pd_of(ib);
	struct ibv_qp *made = NULL;
	struct call call;

	call_begin(&call, "create_qp", &pd->obj, OBJECT_PD);
	if (pd->ctx->removed)
		call_on_context(&call, pd->ctx);
	call.rc = ENOMEM;
	if (call_runs(&call))
		made = qp_create(pd, init, &call.rc);
	return call_end_create(&call, made);
}

struct ibv_qp *qp_create_ex(struct ibv_context *ib, struct ibv_qp_init_attr_ex *init)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	const uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			     IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
			     IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_LOCAL_INV |
			     IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;

	if ((init->comp_mask & ~known) || !(init->comp_mask & IBV_QP_INIT_ATTR_PD) ||
	    ((init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
	     (init->send_ops_flags & ~ops))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return ibv_create_qp(init->pd, (struct ibv_qp_init_attr *)(void *)init);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *ib)
{
	struct qp *qp = qp_of(ib);
	struct call call;

	call_begin_destroy(&call, "destroy_qp", &qp->obj, OBJECT_QP, qp->ctx);
	if (call_runs(&call))
		call.rc = qp_destroy(qp);
	else if (call.verdict == SOFTVERBS_OK_LIE)
		/* The kernel's object is gone all the same, and its events with it. */
		async_forget(qp->ctx, qp, NULL);
	return call_end_destroy(&call);
}

/* The script knows modify_qp, and modify_qp_err and modify_qp_reset for those two alone. */
static const char *qpstate_call_name(const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR)
		return "modify_qp_err";
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET)
		return "modify_qp_reset";
	return "modify_qp";
}

EXPORT int ibv_modify_qp(struct ibv_qp *ib, struct ibv_qp_attr *attr, int mask)
{
	struct qp *qp = qp_of(ib);
	struct call call;

	call_begin(&call, qpstate_call_name(attr, mask), &qp->obj, OBJECT_QP);
	call_on_context(&call, qp->ctx);
	if (call_runs(&call))
		call.rc = qp_modify(qp, attr, mask);
	return call_end(&call);
}

EXPORT int ibv_query_qp(struct ibv_qp *ib, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	struct qp *qp = qp_of(ib);
	struct call call;

	call_begin(&call, "query_qp", &qp->obj, OBJECT_QP);
	if (call_runs(&call)) {
		*attr = qp->attr;
		attr->qp_state = qp->state;
		attr->cur_qp_state = qp->state;
		attr->cap = qp->init.cap;
		*init = qp->init;
	}
	return call_end(&call);
}

EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *ib, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}
