/* SPDX-License-Identifier: BSD-2-Clause */
/* The extended posting interface (ibv_wr_start .. ibv_wr_complete): it collects work requests and posts
 * them as one chain. A failing complete voids the whole batch (ibv_wr_post(3)). */
#include "tests/softverbs/qp.h"

#define BATCH_MAX 256

struct qp_batch {
	unsigned int count;
	int err;
	struct ibv_send_wr wr[BATCH_MAX];
	struct ibv_sge sge[BATCH_MAX][DEVICE_MAX_SGE];
};

static struct qp_batch *batch_of(struct ibv_qp_ex *ex)
{
	return qp_of(&ex->qp_base)->batch;
}

static void batch_start(struct ibv_qp_ex *ex)
{
	struct qp *qp = qp_of(&ex->qp_base);

	if (!qp->batch)
		qp->batch = calloc(1, sizeof(*qp->batch));
	if (!qp->batch)
		return;
	qp->batch->count = 0;
	qp->batch->err = 0;
}

static int batch_complete(struct ibv_qp_ex *ex)
{
	struct qp *qp = qp_of(&ex->qp_base);
	struct qp_batch *b = qp->batch;
	struct ibv_send_wr *bad;
	unsigned int i;

	if (!b)
		return ENOMEM;
	if (b->err || !b->count)
		return b->err;
	for (i = 0; i + 1 < b->count; i++)
		b->wr[i].next = &b->wr[i + 1];
	b->wr[i].next = NULL;
	return post_send(&ex->qp_base, b->wr, &bad);
}

static void batch_abort(struct ibv_qp_ex *ex)
{
	if (batch_of(ex))
		batch_of(ex)->count = 0;
}

static struct ibv_send_wr *batch_add(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	static _Thread_local struct ibv_send_wr spill;
	struct qp_batch *b = batch_of(ex);
	struct ibv_send_wr *wr;

	if (!b || b->count == BATCH_MAX) {
		if (b)
			b->err = ENOMEM;
		return &spill;
	}
	wr = &b->wr[b->count++];
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = ex->wr_id;
	wr->send_flags = ex->wr_flags;
	wr->opcode = opcode;
	wr->sg_list = b->sge[b->count - 1];
	return wr;
}

static void batch_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr)
{
	struct ibv_send_wr *wr = batch_add(ex, op);

	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = rkey;
}

static void batch_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	batch_rdma(ex, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void batch_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	batch_rdma(ex, IBV_WR_RDMA_READ, rkey, addr);
}

static void batch_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct ibv_send_wr *wr = batch_add(ex, IBV_WR_RDMA_WRITE_WITH_IMM);

	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = rkey;
	wr->imm_data = imm;
}

static void batch_send(struct ibv_qp_ex *ex)
{
	batch_add(ex, IBV_WR_SEND);
}

static void batch_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	batch_add(ex, IBV_WR_SEND_WITH_IMM)->imm_data = imm;
}

static void batch_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	batch_add(ex, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static void batch_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	batch_add(ex, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static void batch_bind(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = batch_add(ex, IBV_WR_BIND_MW);

	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void batch_sges(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
	struct qp_batch *b = batch_of(ex);

	if (!b || !b->count)
		return;
	if (count > DEVICE_MAX_SGE) {
		b->err = EINVAL;
		return;
	}
	memcpy(b->sge[b->count - 1], list, count * sizeof(*list));
	b->wr[b->count - 1].num_sge = (int)count;
}

static void batch_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge one = {.addr = addr, .length = length, .lkey = lkey};

	batch_sges(ex, 1, &one);
}

static void batch_inline_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_data_buf *list)
{
	struct ibv_sge sges[DEVICE_MAX_SGE];
	struct qp_batch *b = batch_of(ex);
	size_t i;

	for (i = 0; i < count && i < DEVICE_MAX_SGE; i++)
		sges[i] = (struct ibv_sge){.addr = (uintptr_t)list[i].addr,
					   .length = (uint32_t)list[i].length};
	batch_sges(ex, count, sges);
	if (b && b->count)
		b->wr[b->count - 1].send_flags |= IBV_SEND_INLINE;
}

static void batch_inline(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf one = {.addr = addr, .length = length};

	batch_inline_list(ex, 1, &one);
}

void qp_ex_set_ops(struct qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	ex->wr_start = batch_start;
	ex->wr_complete = batch_complete;
	ex->wr_abort = batch_abort;
	ex->wr_rdma_write = batch_write;
	ex->wr_rdma_write_imm = batch_write_imm;
	ex->wr_rdma_read = batch_read;
	ex->wr_send = batch_send;
	ex->wr_send_imm = batch_send_imm;
	ex->wr_send_inv = batch_send_inv;
	ex->wr_local_inv = batch_local_inv;
	ex->wr_bind_mw = batch_bind;
	ex->wr_set_sge = batch_sge;
	ex->wr_set_sge_list = batch_sges;
	ex->wr_set_inline_data = batch_inline;
	ex->wr_set_inline_data_list = batch_inline_list;
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ib)
{
	return &qp_of(ib)->ex;
}
