/* SPDX-License-Identifier: BSD-2-Clause */
/* The receiving half of an RC queue pair: it judges each fragment when it arrives. */
#include "tests/softverbs/adversary.h"
#include "tests/softverbs/custody.h"
#include "tests/softverbs/fabric.h"
#include "tests/softverbs/nic.h"
#include "tests/softverbs/payload.h"

/* READ fragments that one queue pair sends before another gets its turn. */
#define RESPONDER_SHARE 16

/* Receiver-not-ready timer codes in units of 10 us (InfiniBand specification, table 45). */
static const uint32_t rnr_timers[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
					16,    24,   32,   48,    64,    96,    128,   192,
					256,   384,  512,  768,   1024,  1536,  2048,  3072,
					4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

void responder_reset(struct responder *resp, uint32_t psn)
{
	while (!list_empty(&resp->jobs)) {
		struct read_job *job = container(resp->jobs.next, struct read_job, node);

		list_remove(&job->node);
		free(job);
	}
	resp->job_count = 0;
	resp->epsn = psn;
	resp->got = 0;
	resp->deaf = false;
}

/* An answer to the sender of 'h', with room for 'size' bytes. */
static struct packet *responder_packet(const struct wire_header *h, enum wire_kind kind,
				       size_t size)
{
	struct packet *p = fabric_packet(size);

	if (!p)
		return NULL;
	p->h.kind = (uint16_t)kind;
	p->h.dst_node = h->src_node;
	p->h.src_rail = h->dst_rail;
	p->h.dst_rail = h->src_rail;
	p->h.src_qpn = h->dst_qpn;
	p->h.dst_qpn = h->src_qpn;
	p->h.psn = h->psn;
	return p;
}

static void responder_answer(const struct wire_header *h, enum wire_kind kind, uint64_t value)
{
	struct packet *p = responder_packet(h, kind, 0);

	if (!p)
		return;
	p->h.value = value;
	fabric_send(p);
}

static void responder_recv_done(struct qp *qp, enum ibv_wc_status status,
				const struct wire_header *h)
{
	const struct rqe *r = qp_rqe(qp, qp->rq_head);
	struct cqe e = {.qp = qp, .receive = true, .upto = qp->rq_head + 1};

	qp->rq_head++;
	e.wc.wr_id = r->wr_id;
	e.wc.status = status;
	e.wc.opcode = IBV_WC_RECV;
	e.wc.qp_num = qp->ib.qp_num;
	e.wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x50 + (uint32_t)status;
	if (h && status == IBV_WC_SUCCESS) {
		e.solicited = h->solicited;
		e.wc.src_qp = h->src_qpn;
		e.wc.byte_len = (uint32_t)h->length;
		e.wc.imm_data = h->imm;
		if (h->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
			e.wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		if (h->opcode == IBV_WR_SEND_WITH_INV)
			e.wc.wc_flags = IBV_WC_WITH_INV;
		else if (h->opcode != IBV_WR_SEND)
			e.wc.wc_flags = IBV_WC_WITH_IMM;
	}
	qp_complete(qp, &e, NULL);
}

void responder_flush(struct qp *qp)
{
	responder_reset(&qp->resp, qp->resp.epsn);
	while (qp->rq_head < qp->rq_tail)
		responder_recv_done(qp, IBV_WC_WR_FLUSH_ERR, NULL);
}

/* Refuses the request: the requester gets 'status', and both queue pairs go to ERR. */
static void responder_refuse(struct qp *qp, const struct wire_header *h, enum ibv_wc_status status)
{
	responder_answer(h, WIRE_NAK, status);
	qp_fail(qp,
		status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
}

/* Whether a receive is there; if not, says so. */
static bool responder_has_recv(struct qp *qp, const struct wire_header *h)
{
	if (qp->rq_head < qp->rq_tail)
		return true;
	responder_answer(h, WIRE_RNR, rnr_timers[qp->attr.min_rnr_timer] * 10000ull);
	qp->resp.got = 0;
	qp->resp.deaf = true;
	return false;
}

/* Lands a fragment of a WRITE; false if it was refused. */
static bool responder_write(struct qp *qp, const struct packet *p)
{
	const struct wire_header *h = &p->h;
	uint8_t *to;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE)) {
		responder_refuse(qp, h, IBV_WC_REM_ACCESS_ERR);
		return false;
	}
	if (!h->length)
		return true;
	/* All of the range must be allowed now, not just this fragment's. */
	to = mr_remote(qp, h->rkey, h->raddr, h->length, IBV_ACCESS_REMOTE_WRITE);
	if (!to) {
		responder_refuse(qp, h, IBV_WC_REM_ACCESS_ERR);
		return false;
	}
	custody_land(to + h->offset, p->payload, h->size);
	adversary_land(to + h->offset, p->payload, h->size, true);
	return true;
}

static bool responder_send(struct qp *qp, const struct packet *p)
{
	const struct rqe *r = qp_rqe(qp, qp->rq_head);
	uint64_t room = 0;
	unsigned int i;

	for (i = 0; i < r->num_sge; i++)
		room += r->sge[i].length;
	if (p->h.length > room) {
		responder_recv_done(qp, IBV_WC_LOC_LEN_ERR, NULL);
		responder_refuse(qp, &p->h, IBV_WC_REM_INV_REQ_ERR);
		return false;
	}
	if (!payload_scatter(qp->pd, r->sge, r->num_sge, p->h.offset, p->payload, p->h.size)) {
		responder_recv_done(qp, IBV_WC_LOC_PROT_ERR, NULL);
		responder_refuse(qp, &p->h, IBV_WC_REM_OP_ERR);
		return false;
	}
	return true;
}

/* The last fragment is in. */
static void responder_message(struct qp *qp, const struct wire_header *h)
{
	if (h->opcode == IBV_WR_SEND_WITH_INV && !mw_invalidate(qp, h->imm)) {
		responder_recv_done(qp, IBV_WC_REM_INV_REQ_ERR, NULL);
		responder_refuse(qp, h, IBV_WC_REM_INV_REQ_ERR);
		return;
	}
	if (h->opcode != IBV_WR_RDMA_WRITE)
		responder_recv_done(qp, IBV_WC_SUCCESS, h);
	qp->resp.epsn = (qp->resp.epsn + 1) & 0xffffff;
	qp->resp.got = 0;
	responder_answer(h, WIRE_ACK, 0);
}

static void responder_fragment(struct qp *qp, const struct packet *p)
{
	const struct wire_header *h = &p->h;
	bool write = h->opcode == IBV_WR_RDMA_WRITE || h->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool last = h->offset + h->size == h->length;

	if (!write && !responder_has_recv(qp, h))
		return;
	if (write ? !responder_write(qp, p) : !responder_send(qp, p))
		return;
	qp->resp.got = h->offset + h->size;
	if (!last)
		return;
	/* The data of a WRITE is placed before its immediate finds no receive. */
	if (h->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && !responder_has_recv(qp, h))
		return;
	responder_message(qp, h);
}

static void responder_read(struct qp *qp, const struct wire_header *h, bool duplicate)
{
	struct read_job *job;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) ||
	    (h->length && !mr_remote(qp, h->rkey, h->raddr, h->length, IBV_ACCESS_REMOTE_READ))) {
		/* A repetition that comes late may find its key gone; the connection does not pay. */
		if (!duplicate)
			responder_refuse(qp, h, IBV_WC_REM_ACCESS_ERR);
		return;
	}
	if (!duplicate && qp->resp.job_count >= qp->attr.max_dest_rd_atomic) {
		responder_refuse(qp, h, IBV_WC_REM_INV_REQ_ERR);
		return;
	}
	job = calloc(1, sizeof(*job));
	if (!job)
		return;
	job->request = *h;
	job->sent = h->offset;
	job->duplicate = duplicate;
	list_append(&qp->resp.jobs, &job->node);
	if (!duplicate) {
		qp->resp.job_count++;
		qp->resp.epsn = (qp->resp.epsn + 1) & 0xffffff;
		qp->resp.got = 0;
	}
	nic_run(qp);
}

static void responder_duplicate(struct qp *qp, const struct wire_header *h)
{
	/* A WRITE or SEND that was executed is acknowledged again; a READ is executed again, from
	 * what memory holds now (InfiniBand specification C9-105). */
	if (h->opcode == IBV_WR_RDMA_READ)
		responder_read(qp, h, true);
	else if (h->offset + h->size == h->length)
		responder_answer(h, WIRE_ACK, 0);
}

/* Lengths and offsets come from another process. */
static bool responder_sane(const struct packet *p)
{
	const struct wire_header *h = &p->h;

	if (h->length > DEVICE_MAX_MSG || h->offset > h->length)
		return false;
	return h->opcode == IBV_WR_RDMA_READ ? h->size == 0 : h->size <= h->length - h->offset;
}

void responder_request(struct qp *qp, const struct packet *p)
{
	const struct wire_header *h = &p->h;
	int32_t ahead;

	if (!qp || !qp->ctx->device->port_up ||
	    (qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD) ||
	    h->src_qpn != qp->attr.dest_qp_num || h->src_rail != qp->dst_rail ||
	    !responder_sane(p)) {
		responder_answer(h, WIRE_LOST, 0);
		return;
	}
	if (!qp->comm_est && qp->state == IBV_QPS_RTR) {
		qp->comm_est = true;
		if (config_get()->personality == PERSONALITY_MLX5)
			async_raise(qp->ctx, IBV_EVENT_COMM_EST, qp, NULL);
	}
	/* Distance modulo 2^24, signed. */
	ahead = (int32_t)((h->psn - qp->resp.epsn) << 8) >> 8;
	if (ahead < 0) {
		responder_duplicate(qp, h);
		return;
	}
	if (ahead > 0 || (h->offset != qp->resp.got && h->offset != 0)) {
		struct wire_header expected = *h;

		expected.psn = qp->resp.epsn;
		if (!qp->resp.deaf)
			responder_answer(&expected, WIRE_NAK_SEQ, 0);
		qp->resp.deaf = true;
		return;
	}
	qp->resp.deaf = false;
	if (h->opcode == IBV_WR_RDMA_READ)
		responder_read(qp, h, false);
	else
		responder_fragment(qp, p);
}

/* Reads for a READ that is executed again, late. Its owner may be writing there by now: devices do not
 * care, the requester throws the bytes away, and the thread sanitizer is not to see it. */
__attribute__((no_sanitize("thread"))) static void responder_peek(uint8_t *to, const uint8_t *from,
								  size_t size)
{
	const volatile uint8_t *p = from;
	size_t i;

	for (i = 0; i < size; i++)
		to[i] = p[i];
}

/* Sends the next fragment of a READ; false if it was refused. */
static bool responder_read_fragment(struct qp *qp, struct read_job *job)
{
	const struct wire_header *h = &job->request;
	uint32_t most = adversary_fragment();
	uint64_t left = h->length - job->sent;
	size_t size = left < most ? (size_t)left : most;
	struct packet *p;
	uint8_t *from = NULL;

	if (h->length) {
		from = mr_remote(qp, h->rkey, h->raddr, h->length, IBV_ACCESS_REMOTE_READ);
		if (!from && job->duplicate) {
			job->sent = h->length;
			return true;
		}
		if (!from) {
			responder_refuse(qp, h, IBV_WC_REM_ACCESS_ERR);
			return false;
		}
	}
	p = responder_packet(h, WIRE_READ_DATA, size);
	if (!p)
		return true;
	if (size && job->duplicate)
		responder_peek(p->payload, from + job->sent, size);
	else if (size)
		memcpy(p->payload, from + job->sent, size);
	p->h.offset = job->sent;
	p->h.length = h->length;
	job->sent += size;
	fabric_send(p);
	return true;
}

bool responder_run(struct qp *qp)
{
	unsigned int share = RESPONDER_SHARE;

	while (share-- && !list_empty(&qp->resp.jobs)) {
		struct read_job *job = container(qp->resp.jobs.next, struct read_job, node);

		if (!fabric_room(job->request.src_node))
			return true;
		if (!responder_read_fragment(qp, job))
			return true;
		if (job->sent < job->request.length)
			continue;
		list_remove(&job->node);
		qp->resp.job_count -= !job->duplicate;
		free(job);
	}
	return list_empty(&qp->resp.jobs);
}
