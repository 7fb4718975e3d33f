/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/qp.h"

#include "tests/softverbs/fabric.h"
#include "tests/softverbs/held.h"
#include "tests/softverbs/nic.h"
#include "tests/softverbs/script.h"

#define QP_FIRST 17
#define QP_TABLE (1u << FABRIC_QPN_BITS)

static struct qp *qp_tables[RAILS_MAX][QP_TABLE];
static struct list qp_all = {&qp_all, &qp_all};

struct qp *qp_find(int rail, uint32_t qpn)
{
	if (rail < 0 || rail >= RAILS_MAX || qpn >> FABRIC_QPN_BITS != fabric_node())
		return NULL;
	return qp_tables[rail][qpn % QP_TABLE];
}

void qp_forked(void)
{
	memset(qp_tables, 0, sizeof(qp_tables));
	list_init(&qp_all);
}

void qp_each(void (*fn)(struct qp *qp, void *arg), void *arg)
{
	struct list *i, *next;

	list_for_each_safe(i, next, &qp_all) fn(container(i, struct qp, node), arg);
}

EXPORT size_t softverbs_qps(struct ibv_qp **out, size_t max)
{
	struct list *i;
	size_t n = 0;

	base_lock();
	list_for_each(i, &qp_all)
	{
		struct qp *qp = container(i, struct qp, node);

		/* Those whose destroy failed, or lied, are the device's alone. */
		if (n < max && qp->obj.magic != 0x5056deadU && !qp->obj.broken)
			out[n++] = &qp->ib;
	}
	base_unlock();
	return n;
}

/* Numbers are given out lowest first: a packet to the dead may reach the newborn. */
static uint32_t qp_number(struct qp *qp)
{
	struct qp **table = qp_tables[qp->ctx->device->rail];
	uint32_t i;

	for (i = QP_FIRST; i < QP_TABLE; i++) {
		if (table[i])
			continue;
		table[i] = qp;
		return ((uint32_t)fabric_node() << FABRIC_QPN_BITS) | i;
	}
	return 0;
}

static void qp_free_queues(struct qp *qp)
{
	uint32_t i;

	for (i = 0; qp->sq && i < qp->init.cap.max_send_wr; i++) {
		free(qp->sq[i].sge);
		free(qp->sq[i].inl);
	}
	for (i = 0; qp->rq && i < qp->init.cap.max_recv_wr; i++)
		free(qp->rq[i].sge);
	free(qp->sq);
	free(qp->rq);
	free(qp->batch);
	qp->sq = NULL;
	qp->rq = NULL;
	qp->batch = NULL;
}

static bool qp_make_queues(struct qp *qp)
{
	const struct ibv_qp_cap *cap = &qp->init.cap;
	uint32_t i;

	qp->sq = calloc(cap->max_send_wr + 1, sizeof(*qp->sq));
	qp->rq = calloc(cap->max_recv_wr + 1, sizeof(*qp->rq));
	if (!qp->sq || !qp->rq)
		return false;
	for (i = 0; i < cap->max_send_wr; i++) {
		qp->sq[i].sge = calloc(cap->max_send_sge + 1, sizeof(struct ibv_sge));
		qp->sq[i].inl = calloc(1, cap->max_inline_data + 1);
		if (!qp->sq[i].sge || !qp->sq[i].inl)
			return false;
	}
	for (i = 0; i < cap->max_recv_wr; i++) {
		qp->rq[i].sge = calloc(cap->max_recv_sge + 1, sizeof(struct ibv_sge));
		if (!qp->rq[i].sge)
			return false;
	}
	return true;
}

static int qp_check_init(const struct pd *pd, const struct ibv_qp_init_attr *init)
{
	const struct ibv_qp_cap *cap = &init->cap;

	if (init->qp_type != IBV_QPT_RC || init->srq)
		return EOPNOTSUPP;
	if (!init->send_cq || !init->recv_cq)
		return EINVAL;
	object_check(&cq_of(init->send_cq)->obj, OBJECT_CQ, "create_qp");
	object_check(&cq_of(init->recv_cq)->obj, OBJECT_CQ, "create_qp");
	if (cq_of(init->send_cq)->ctx != pd->ctx || cq_of(init->recv_cq)->ctx != pd->ctx)
		return EINVAL;
	if (cap->max_send_wr > DEVICE_MAX_QP_WR || cap->max_recv_wr > DEVICE_MAX_QP_WR ||
	    cap->max_send_sge > DEVICE_MAX_SGE || cap->max_recv_sge > DEVICE_MAX_SGE ||
	    cap->max_inline_data > DEVICE_MAX_INLINE)
		return EINVAL;
	return 0;
}

static void qp_link(struct qp *qp)
{
	struct ibv_qp *ib = &qp->ib;

	object_init(&qp->obj, OBJECT_QP);
	list_append(&qp_all, &qp->node);
	list_init(&qp->run);
	list_init(&qp->windows);
	list_init(&qp->held);
	list_init(&qp->resp.jobs);
	qp->scq->users++;
	qp->rcq->users++;
	qp->pd->users++;
	qp->ctx->children++;
	ib->context = &qp->ctx->v.context;
	ib->qp_context = qp->init.qp_context;
	ib->pd = &qp->pd->ib;
	ib->send_cq = &qp->scq->ib;
	ib->recv_cq = &qp->rcq->ib;
	ib->handle = qp->obj.id;
	ib->qp_type = IBV_QPT_RC;
	ib->state = IBV_QPS_RESET;
	pthread_mutex_init(&ib->mutex, NULL);
	pthread_cond_init(&ib->cond, NULL);
	qp_ex_set_ops(qp);
}

struct ibv_qp *qp_create(struct pd *pd, struct ibv_qp_init_attr *init, int *err)
{
	struct qp *qp;

	*err = qp_check_init(pd, init);
	if (*err)
		return NULL;
	*err = ENOMEM;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->ctx = pd->ctx;
	qp->pd = pd;
	qp->init = *init;
	qp->scq = cq_of(init->send_cq);
	qp->rcq = cq_of(init->recv_cq);
	if (!qp_make_queues(qp))
		goto free_queues;
	qp->ib.qp_num = qp_number(qp);
	if (!qp->ib.qp_num)
		goto free_queues;
	qp_link(qp);
	*err = 0;
	return &qp->ib;

free_queues:
	qp_free_queues(qp);
	free(qp);
	return NULL;
}

/* Discards the work requests without completions. */
static void qp_stop(struct qp *qp)
{
	held_drop(qp);
	qp->sq_head = qp->sq_next = qp->sq_freed = qp->sq_tail;
	qp->sq_failed = false;
	qp->rq_head = qp->rq_freed = qp->rq_tail;
	qp->reads_out = 0;
	qp->retries = 0;
	qp->rnr_retries = 0;
	qp->rnr_until = 0;
	qp->deadline = 0;
	qp->lost = false;
	qp->comm_est = false;
	responder_reset(&qp->resp, 0);
	list_remove(&qp->run);
}

void qp_halt(struct qp *qp)
{
	qp_stop(qp);
	while (!list_empty(&qp->windows))
		mw_unbind(container(qp->windows.next, struct mw, of_qp));
	qp->state = IBV_QPS_RESET;
}

void qp_abandon(struct qp *qp)
{
	qp_halt(qp);
	cq_delete(qp->scq, qp);
	cq_delete(qp->rcq, qp);
	list_remove(&qp->node);
	qp_tables[qp->ctx->device->rail][qp->ib.qp_num % QP_TABLE] = NULL;
}

int qp_destroy(struct qp *qp)
{
	if (!list_empty(&qp->windows))
		object_rule(false, "no window is bound to a queue pair that is destroyed",
			    "destroy_qp", &qp->obj);
	while (!list_empty(&qp->windows))
		mw_unbind(container(qp->windows.next, struct mw, of_qp));
	qp_stop(qp);
	/* mlx5 deletes what was not polled, on rxe it can still be polled. */
	if (config_get()->personality == PERSONALITY_RXE) {
		cq_orphan(qp->scq, qp);
		cq_orphan(qp->rcq, qp);
	} else {
		cq_delete(qp->scq, qp);
		cq_delete(qp->rcq, qp);
	}
	list_remove(&qp->node);
	qp_tables[qp->ctx->device->rail][qp->ib.qp_num % QP_TABLE] = NULL;
	qp->scq->users--;
	qp->rcq->users--;
	qp->pd->users--;
	qp->ctx->children--;
	async_forget(qp->ctx, qp, NULL);
	async_wait_acks(&qp->obj, &qp->async_given, &qp->ib.events_completed, "destroy_qp");
	qp_free_queues(qp);
	object_retire(&qp->obj, qp);
	return 0;
}

static void qp_set_state(struct qp *qp, enum ibv_qp_state state)
{
	qp->state = state;
	qp->ib.state = state;
	qp->attr.qp_state = state;
	qp->attr.cur_qp_state = state;
}

void qp_fail(struct qp *qp, int event)
{
	if (qp->state == IBV_QPS_ERR)
		return;
	qp_set_state(qp, IBV_QPS_ERR);
	qp->deadline = 0;
	qp->lost = false;
	if (event >= 0 && config_get()->personality == PERSONALITY_MLX5)
		async_raise(qp->ctx, (enum ibv_event_type)event, qp, NULL);
	nic_run(qp);
}

void qp_complete(struct qp *qp, const struct cqe *entry, const struct wqe *w)
{
	struct cq *cq = entry->receive ? qp->rcq : qp->scq;
	enum softverbs_cqe_mode mode = qp->cqe_mode;

	if (mode != SOFTVERBS_CQE_PASS && qp->cqe_skip) {
		qp->cqe_skip--;
		mode = SOFTVERBS_CQE_PASS;
	} else if (mode != SOFTVERBS_CQE_PASS && qp->cqe_count && --qp->cqe_count == 0) {
		qp->cqe_mode = SOFTVERBS_CQE_PASS;
	}
	switch (mode) {
	case SOFTVERBS_CQE_DROP:
		return;
	case SOFTVERBS_CQE_HOLD:
		held_add(qp, entry, w);
		return;
	case SOFTVERBS_CQE_TWICE:
		cq_push(cq, entry);
		break;
	default:
		break;
	}
	cq_push(cq, entry);
}

EXPORT void softverbs_cqe(struct ibv_qp *ib, enum softverbs_cqe_mode mode, unsigned int skip,
			  unsigned int count)
{
	struct qp *qp = qp_of(ib);

	base_lock();
	qp->cqe_mode = mode;
	qp->cqe_skip = skip;
	qp->cqe_count = count;
	base_unlock();
}

EXPORT void softverbs_cqe_release(struct ibv_qp *ib)
{
	struct qp *qp = qp_of(ib);

	base_lock();
	qp->cqe_mode = SOFTVERBS_CQE_PASS;
	held_release(qp);
	base_unlock();
}

static void qp_apply(struct qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *t = &qp->attr;

	if (mask & IBV_QP_ACCESS_FLAGS)
		t->qp_access_flags = a->qp_access_flags;
	if (mask & IBV_QP_PKEY_INDEX)
		t->pkey_index = a->pkey_index;
	if (mask & IBV_QP_PORT)
		t->port_num = a->port_num;
	if (mask & IBV_QP_AV) {
		t->ah_attr = a->ah_attr;
		qp->dst_rail = device_rail_of_gid(&a->ah_attr.grh.dgid);
	}
	if (mask & IBV_QP_PATH_MTU)
		t->path_mtu = a->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		t->timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		t->retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		t->rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_RQ_PSN)
		t->rq_psn = a->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		t->sq_psn = a->sq_psn & 0xffffff;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		t->max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		t->max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		t->min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_DEST_QPN)
		t->dest_qp_num = a->dest_qp_num & 0xffffff;
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		t->en_sqd_async_notify = a->en_sqd_async_notify;
}

static void qp_enter(struct qp *qp, enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (to == IBV_QPS_ERR) {
		qp_fail(qp, -1);
		return;
	}
	qp_set_state(qp, to);
	if (to == IBV_QPS_RESET) {
		qp_stop(qp);
		cq_delete(qp->scq, qp);
		cq_delete(qp->rcq, qp);
		/* Windows stay bound, as on rxe: RESET takes their use away, not their reference. */
		memset(&qp->attr, 0, sizeof(qp->attr));
	} else if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) {
		responder_reset(&qp->resp, qp->attr.rq_psn);
	} else if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) {
		qp->next_psn = qp->attr.sq_psn;
	}
	nic_run(qp);
}

int qp_modify(struct qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = qp->state;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int rc = qpstate_check(from, to, mask);

	if (rc)
		return rc;
	rc = qpstate_values(qp, attr, mask);
	if (rc)
		return rc;
	qp_apply(qp, attr, mask);
	if (mask & IBV_QP_STATE && to != from)
		qp_enter(qp, from, to);
	return 0;
}
