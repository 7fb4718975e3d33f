/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting work requests. */
#include "tests/softverbs/nic.h"
#include "tests/softverbs/qp.h"
#include "tests/softverbs/script.h"

static bool post_opcode_known(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_RDMA_READ:
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		return true;
	default:
		return false;
	}
}

static int post_check(const struct qp *qp, const struct ibv_send_wr *wr)
{
	bool inl = wr->send_flags & IBV_SEND_INLINE;
	uint64_t total = 0;
	int i;

	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD && qp->state != IBV_QPS_ERR)
		return EINVAL;
	if (qp->sq_tail - qp->sq_freed >= qp->init.cap.max_send_wr)
		return ENOMEM;
	if (!post_opcode_known(wr->opcode))
		return EINVAL;
	if (wr->num_sge < 0 || (!inl && (uint32_t)wr->num_sge > qp->init.cap.max_send_sge) ||
	    wr->num_sge > DEVICE_MAX_SGE)
		return EINVAL;
	for (i = 0; i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	if (inl && (wr->opcode == IBV_WR_RDMA_READ || total > qp->init.cap.max_inline_data))
		return EINVAL;
	if (wr->opcode == IBV_WR_BIND_MW &&
	    (!wr->bind_mw.mw || (wr->bind_mw.bind_info.length && !wr->bind_mw.bind_info.mr)))
		return EINVAL;
	return 0;
}

static void post_payload(struct wqe *w, const struct ibv_send_wr *wr)
{
	int i;

	w->length = 0;
	w->num_sge = 0;
	if (wr->opcode == IBV_WR_LOCAL_INV || wr->opcode == IBV_WR_BIND_MW)
		return;
	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		if (wr->send_flags & IBV_SEND_INLINE)
			memcpy(w->inl + w->length, (const void *)(uintptr_t)s->addr, s->length);
		else
			w->sge[w->num_sge++] = *s;
		w->length += s->length;
	}
}

static void post_one(struct qp *qp, const struct ibv_send_wr *wr)
{
	struct wqe *w = qp_wqe(qp, qp->sq_tail);
	struct ibv_sge *sge = w->sge;
	uint8_t *inl = w->inl;

	memset(w, 0, sizeof(*w));
	w->sge = sge;
	w->inl = inl;
	w->wr_id = wr->wr_id;
	w->opcode = wr->opcode;
	w->flags = wr->send_flags;
	if (qp->init.sq_sig_all)
		w->flags |= IBV_SEND_SIGNALED;
	post_payload(w, wr);
	w->imm = wr->imm_data;
	if (wr->opcode == IBV_WR_BIND_MW) {
		object_check(&mw_of(wr->bind_mw.mw)->obj, OBJECT_MW, "post_send");
		w->mw = mw_of(wr->bind_mw.mw);
		w->mw_old_key = wr->bind_mw.mw->rkey;
		w->rkey = wr->bind_mw.rkey;
		w->bind = wr->bind_mw.bind_info;
	} else {
		w->raddr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	}
	qp->sq_tail++;
}

int post_send(struct ibv_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *qp = qp_of(ib);
	struct call call;

	call_begin(&call, "post_send", &qp->obj, OBJECT_QP);
	if (call_runs(&call)) {
		for (; wr; wr = wr->next) {
			call.rc = post_check(qp, wr);
			if (call.rc)
				break;
			post_one(qp, wr);
		}
		nic_run(qp);
	}
	*bad = wr;
	return call_end(&call);
}

static int post_recv_one(struct qp *qp, const struct ibv_recv_wr *wr)
{
	struct rqe *r;
	int i;

	if (qp->state == IBV_QPS_RESET)
		return EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->init.cap.max_recv_sge)
		return EINVAL;
	if (qp->rq_tail - qp->rq_freed >= qp->init.cap.max_recv_wr)
		return ENOMEM;
	r = qp_rqe(qp, qp->rq_tail);
	r->wr_id = wr->wr_id;
	r->num_sge = (unsigned int)wr->num_sge;
	for (i = 0; i < wr->num_sge; i++)
		r->sge[i] = wr->sg_list[i];
	qp->rq_tail++;
	return 0;
}

int post_recv(struct ibv_qp *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *qp = qp_of(ib);
	struct call call;

	call_begin(&call, "post_recv", &qp->obj, OBJECT_QP);
	if (call_runs(&call)) {
		for (; wr; wr = wr->next) {
			call.rc = post_recv_one(qp, wr);
			if (call.rc)
				break;
		}
		if (qp->state == IBV_QPS_ERR)
			nic_run(qp);
	}
	*bad = wr;
	return call_end(&call);
}

/* ibv_bind_mw(): type 1 only; the provider chooses the next tag and updates ibv_mw.rkey itself. */
int post_bind(struct ibv_qp *ib, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr *bad, wr = {.wr_id = bind->wr_id,
				       .opcode = IBV_WR_BIND_MW,
				       .send_flags = bind->send_flags};
	int rc;

	if (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED)
		return EINVAL;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = bind->bind_info;
	rc = post_send(ib, &wr, &bad);
	if (!rc)
		mw->rkey = wr.bind_mw.rkey;
	return rc;
}
