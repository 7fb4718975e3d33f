/* SPDX-License-Identifier: BSD-2-Clause */
/* The sending half of an RC queue pair: transmission, answers, retries, completions. */
#include "tests/softverbs/adversary.h"
#include "tests/softverbs/fabric.h"
#include "tests/softverbs/nic.h"
#include "tests/softverbs/payload.h"

/* Fragments that one queue pair sends before another gets its turn. */
#define REQUESTER_SHARE 16
/* Silence of a peer that is known to live is not taken for a loss before this; a busy machine would
 * end connections otherwise. */
#define SILENCE_MIN_NS 2000000000u

static bool requester_is_read(const struct wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ;
}

/* Marks a request failed; it completes when all before it have. */
static void requester_spoil(struct qp *qp, struct wqe *w, enum ibv_wc_status status)
{
	if (w->state == WQE_SENT && requester_is_read(w))
		qp->reads_out--;
	w->state = WQE_DONE;
	w->status = status;
}

/* The nominal ack timeout: 4.096 us x 2^timeout (InfiniBand specification 9.7.6.1.3); 0 is endless. */
static uint64_t requester_timeout(const struct qp *qp)
{
	return qp->attr.timeout ? 4096ull << qp->attr.timeout : 0;
}

static void requester_watch(struct qp *qp)
{
	uint64_t nominal = requester_timeout(qp);
	uint64_t wait = nominal > SILENCE_MIN_NS ? nominal : SILENCE_MIN_NS;

	qp->deadline = nominal ? base_now() + wait : 0;
	qp->lost = false;
}

/* What was sent last did not get there: the nominal timeout runs. */
static void requester_lose(struct qp *qp)
{
	uint64_t nominal = requester_timeout(qp);

	if (qp->lost)
		return;
	qp->lost = true;
	qp->deadline = nominal ? base_now() + nominal : 0;
	nic_wake();
}

static struct packet *requester_packet(const struct qp *qp, const struct wqe *w, size_t size)
{
	struct packet *p = fabric_packet(size);

	if (!p)
		return NULL;
	p->h.kind = WIRE_REQUEST;
	p->h.opcode = (uint16_t)w->opcode;
	p->h.src_rail = (uint8_t)qp->ctx->device->rail;
	p->h.dst_rail = (uint8_t)qp->dst_rail;
	p->h.src_qpn = qp->ib.qp_num;
	p->h.dst_qpn = qp->attr.dest_qp_num;
	p->h.dst_node = (uint16_t)(qp->attr.dest_qp_num >> FABRIC_QPN_BITS);
	p->h.solicited = (w->flags & IBV_SEND_SOLICITED) != 0;
	p->h.psn = w->psn;
	p->h.rkey = w->rkey;
	p->h.imm = w->imm;
	p->h.length = w->length;
	p->h.raddr = w->raddr;
	return p;
}

static void requester_send_read(struct qp *qp, struct wqe *w)
{
	struct packet *p;

	if (!w->got && !payload_sink(qp->pd, w->sge, w->num_sge)) {
		requester_spoil(qp, w, IBV_WC_LOC_PROT_ERR);
		return;
	}
	p = requester_packet(qp, w, 0);
	if (!p)
		return;
	/* A repeated READ asks for what is missing. */
	p->h.offset = w->got;
	w->sent = w->length;
	if (w->state != WQE_SENT)
		qp->reads_out++;
	w->state = WQE_SENT;
	requester_watch(qp);
	if (!fabric_send(p))
		requester_lose(qp);
}

/* Reads the next 'size' bytes of the source; false if a local key does not allow it. */
static bool requester_gather(struct qp *qp, const struct wqe *w, uint8_t *out, size_t size)
{
	if (w->flags & IBV_SEND_INLINE) {
		memcpy(out, w->inl + w->sent, size);
		return true;
	}
	return payload_gather(qp->pd, w->sge, w->num_sge, w->sent, out, size);
}

/* Sends the next fragment of a WRITE or SEND. */
static void requester_send_fragment(struct qp *qp, struct wqe *w)
{
	uint32_t most = adversary_fragment();
	uint64_t left = w->length - w->sent;
	size_t size = left < most ? (size_t)left : most;
	struct packet *p = requester_packet(qp, w, size);

	if (!p)
		return;
	if (!requester_gather(qp, w, p->payload, size)) {
		fabric_free(p);
		requester_spoil(qp, w, IBV_WC_LOC_PROT_ERR);
		return;
	}
	p->h.offset = w->sent;
	w->state = WQE_SENT;
	w->sent += size;
	if (w->sent == w->length && w->rereads) {
		/* As if this fragment was lost: the message is read and sent again. */
		w->rereads--;
		w->sent = 0;
		fabric_free(p);
		return;
	}
	requester_watch(qp);
	if (!fabric_send(p))
		requester_lose(qp);
}

static void requester_number(struct qp *qp, struct wqe *w)
{
	if (w->numbered)
		return;
	w->numbered = true;
	w->psn = qp->next_psn;
	qp->next_psn = (qp->next_psn + 1) & 0xffffff;
	if (w->length && !(w->flags & IBV_SEND_INLINE) && !requester_is_read(w))
		w->rereads = adversary_rereads();
}

static void requester_local(struct qp *qp, struct wqe *w)
{
	w->state = WQE_DONE;
	/* A window that was deallocated while its bind waited is no window any more. */
	if (w->opcode == IBV_WR_BIND_MW && w->mw->obj.magic == 0x5056deadU)
		w->status = IBV_WC_MW_BIND_ERR;
	else if (w->opcode == IBV_WR_BIND_MW)
		w->status = mw_bind(qp, w->mw, w->mw_old_key, w->rkey, &w->bind);
	else if (!mw_invalidate(qp, w->imm))
		w->status = IBV_WC_LOC_QP_OP_ERR;
}

/* Whether the next request may start, or go on. */
static bool requester_may(struct qp *qp, const struct wqe *w)
{
	if (qp->ctx->held || qp->lost || base_now() < qp->rnr_until)
		return false;
	if (w->state == WQE_SENT)
		return true;
	if (qp->state == IBV_QPS_SQD)
		return false;
	if ((w->flags & IBV_SEND_FENCE) && qp->reads_out)
		return false;
	return !requester_is_read(w) || qp->reads_out < qp->attr.max_rd_atomic;
}

/* Sends (a part of) the next request. Returns false if it has to wait for something. */
static bool requester_step(struct qp *qp)
{
	struct wqe *w = qp_wqe(qp, qp->sq_next);

	/* After a failure nothing more is sent. */
	if (w->state == WQE_DONE && w->status != IBV_WC_SUCCESS)
		return false;
	if (w->state == WQE_DONE) {
		qp->sq_next++;
		return true;
	}
	if (!requester_may(qp, w))
		return false;
	if (w->opcode == IBV_WR_LOCAL_INV || w->opcode == IBV_WR_BIND_MW) {
		requester_local(qp, w);
	} else if (w->length > DEVICE_MAX_MSG) {
		requester_spoil(qp, w, IBV_WC_LOC_LEN_ERR);
	} else {
		if (!fabric_room((uint16_t)(qp->attr.dest_qp_num >> FABRIC_QPN_BITS)))
			return false;
		requester_number(qp, w);
		if (requester_is_read(w) && qp->attr.max_rd_atomic == 0)
			requester_spoil(qp, w, IBV_WC_LOC_QP_OP_ERR);
		else if (requester_is_read(w))
			requester_send_read(qp, w);
		else
			requester_send_fragment(qp, w);
	}
	if (w->state == WQE_SENT && w->sent == w->length && !w->rereads)
		qp->sq_next++;
	return true;
}

static enum ibv_wc_opcode requester_wc_opcode(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	default:
		return IBV_WC_SEND;
	}
}

/* What rxe of Linux 6.12 reports as a flush (measured). */
static bool requester_is_local(enum ibv_wc_status status)
{
	return status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_QP_OP_ERR ||
	       status == IBV_WC_MW_BIND_ERR;
}

static void requester_finish(struct qp *qp, struct wqe *w, enum ibv_wc_status status)
{
	struct cqe e = {.qp = qp, .upto = qp->sq_head + 1};

	qp->sq_head++;
	if (qp->sq_next < qp->sq_head)
		qp->sq_next = qp->sq_head;
	qp->sq_failed |= status != IBV_WC_SUCCESS;
	/* An unsignaled request that fails completes all the same. */
	if (status == IBV_WC_SUCCESS && !(w->flags & IBV_SEND_SIGNALED))
		return;
	if (config_get()->personality == PERSONALITY_RXE && requester_is_local(status))
		status = IBV_WC_WR_FLUSH_ERR;
	e.wc.wr_id = w->wr_id;
	e.wc.status = status;
	e.wc.opcode = requester_wc_opcode(w->opcode);
	e.wc.byte_len = (uint32_t)w->length;
	e.wc.qp_num = qp->ib.qp_num;
	e.wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x50 + (uint32_t)status;
	qp_complete(qp, &e, w);
}

/* Completes, in order, what is done. */
static void requester_retire(struct qp *qp)
{
	while (qp->sq_head < qp->sq_tail) {
		struct wqe *w = qp_wqe(qp, qp->sq_head);
		enum ibv_wc_status status = w->status;

		if (w->state != WQE_DONE)
			break;
		requester_finish(qp, w, status);
		if (status != IBV_WC_SUCCESS) {
			qp_fail(qp, -1);
			return;
		}
	}
	if (qp->state == IBV_QPS_SQD && qp->sq_head == qp->sq_next &&
	    qp->attr.en_sqd_async_notify) {
		qp->attr.en_sqd_async_notify = 0;
		async_raise(qp->ctx, IBV_EVENT_SQ_DRAINED, qp, NULL);
	}
}

/* ERR stops admission; what is under way ends when it is flushed, and not before. */
static void requester_last_touch(struct qp *qp, const struct wqe *w)
{
	uint8_t byte;

	if (!config_get()->adversary || w->state != WQE_SENT || !w->length ||
	    (w->flags & IBV_SEND_INLINE))
		return;
	if (requester_is_read(w))
		payload_sink(qp->pd, w->sge, w->num_sge);
	else
		payload_gather(qp->pd, w->sge, w->num_sge, w->length - 1, &byte, 1);
}

/* Behind the first that failed all are flushed, also a bind that was done by then: a success would say that what
 * came before it had succeeded (rxe_comp.c, flush_send_queue()). */
static void requester_flush(struct qp *qp)
{
	while (qp->sq_head < qp->sq_tail) {
		struct wqe *w = qp_wqe(qp, qp->sq_head);
		bool own = w->state == WQE_DONE && !qp->sq_failed;

		requester_last_touch(qp, w);
		requester_finish(qp, w, own ? w->status : IBV_WC_WR_FLUSH_ERR);
	}
	qp->reads_out = 0;
}

bool requester_run(struct qp *qp)
{
	unsigned int share = REQUESTER_SHARE;

	if (qp->state == IBV_QPS_ERR) {
		requester_flush(qp);
		responder_flush(qp);
		return true;
	}
	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
		return true;
	while (share && qp->sq_next < qp->sq_tail && requester_step(qp))
		share--;
	requester_retire(qp);
	return share != 0 || qp->sq_next == qp->sq_tail;
}

/* ---- answers ---- */

/* The request that an answer is about, or NULL if it is none of those under way. */
static struct wqe *requester_find(struct qp *qp, uint32_t psn, uint64_t *at)
{
	uint64_t i;

	for (i = qp->sq_head; i < qp->sq_tail; i++) {
		struct wqe *w = qp_wqe(qp, i);

		if (!w->numbered || w->psn != psn || w->state != WQE_SENT)
			continue;
		*at = i;
		return w;
	}
	return NULL;
}

/* Goes back: this request and those after it are sent again. */
static void requester_rewind(struct qp *qp, uint64_t at)
{
	uint64_t i;

	for (i = at; i < qp->sq_tail; i++) {
		struct wqe *w = qp_wqe(qp, i);

		if (w->state == WQE_SENT)
			w->sent = 0;
	}
	if (at < qp->sq_next)
		qp->sq_next = at;
}

static void requester_done(struct qp *qp, struct wqe *w)
{
	uint64_t i;

	if (requester_is_read(w))
		qp->reads_out--;
	w->state = WQE_DONE;
	qp->retries = 0;
	qp->rnr_retries = 0;
	qp->deadline = 0;
	qp->lost = false;
	for (i = qp->sq_head; i < qp->sq_next; i++)
		if (qp_wqe(qp, i)->state == WQE_SENT)
			break;
	if (i < qp->sq_next)
		requester_watch(qp);
}

static void requester_rnr(struct qp *qp, uint64_t at, uint64_t wait)
{
	/* 7 means without end (InfiniBand specification, RNR retry count). */
	if (qp->attr.rnr_retry != 7 && qp->rnr_retries++ >= qp->attr.rnr_retry) {
		requester_spoil(qp, qp_wqe(qp, at), IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	qp->rnr_until = base_now() + wait;
	qp->deadline = 0;
	qp->lost = false;
	requester_rewind(qp, at);
	nic_wake();
}

static void requester_read_data(struct qp *qp, struct wqe *w, const struct packet *p)
{
	if (!requester_is_read(w) || p->h.offset != w->got || p->h.size > w->length - w->got)
		return;
	if (!payload_scatter(qp->pd, w->sge, w->num_sge, w->got, p->payload, p->h.size)) {
		requester_spoil(qp, w, IBV_WC_LOC_PROT_ERR);
		return;
	}
	w->got += p->h.size;
	requester_watch(qp);
	if (w->got == w->length)
		requester_done(qp, w);
}

void requester_answer(struct qp *qp, const struct packet *p)
{
	struct wqe *w;
	uint64_t at;

	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
		return;
	if (p->h.src_qpn != qp->attr.dest_qp_num || p->h.src_rail != qp->dst_rail)
		return;
	w = requester_find(qp, p->h.psn, &at);
	if (!w)
		return;
	switch (p->h.kind) {
	case WIRE_ACK:
		if (!requester_is_read(w) && w->sent == w->length && !w->rereads)
			requester_done(qp, w);
		break;
	case WIRE_READ_DATA:
		requester_read_data(qp, w, p);
		break;
	case WIRE_RNR:
		requester_rnr(qp, at, p->h.value);
		break;
	case WIRE_NAK:
		requester_spoil(qp, w, (enum ibv_wc_status)p->h.value);
		break;
	case WIRE_NAK_SEQ:
		requester_rewind(qp, at);
		break;
	case WIRE_LOST:
		requester_lose(qp);
		break;
	default:
		break;
	}
	nic_run(qp);
}

/* ---- time ---- */
uint64_t requester_due(const struct qp *qp)
{
	uint64_t due = qp->deadline ? qp->deadline : UINT64_MAX;

	if ((qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD) || qp->ctx->held)
		return UINT64_MAX;
	return qp->rnr_until && qp->rnr_until < due ? qp->rnr_until : due;
}

void requester_timer(struct qp *qp, uint64_t now)
{
	uint64_t i;

	if (qp->rnr_until && now >= qp->rnr_until) {
		qp->rnr_until = 0;
		nic_run(qp);
	}
	if (!qp->deadline || now < qp->deadline)
		return;
	qp->deadline = 0;
	qp->lost = false;
	nic_run(qp);
	for (i = qp->sq_head; i < qp->sq_tail; i++)
		if (qp_wqe(qp, i)->state == WQE_SENT)
			break;
	if (i == qp->sq_tail)
		return;
	/* On rxe 7 never ends (measured). */
	if (qp->attr.retry_cnt == 7 && config_get()->personality == PERSONALITY_RXE)
		requester_rewind(qp, i);
	else if (qp->retries++ >= qp->attr.retry_cnt)
		requester_spoil(qp, qp_wqe(qp, i), IBV_WC_RETRY_EXC_ERR);
	else
		requester_rewind(qp, i);
}

void requester_peer_gone(struct qp *qp)
{
	if (qp->deadline)
		requester_lose(qp);
}
