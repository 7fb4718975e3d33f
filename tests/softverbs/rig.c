/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/rig.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define RIG_PSN 0xfffffe

void rig_defaults(struct rig *r)
{
	memset(r, 0, sizeof(*r));
	r->depth = 16;
	r->cqe = 64;
	r->mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
		       IBV_ACCESS_MW_BIND;
	r->timeout = 10;
	r->retry_cnt = 2;
	r->rnr_retry = 2;
	r->min_rnr_timer = 1;
}

void rig_open_side(struct rig *r, struct rig_side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};

	ck_assert_ptr_nonnull(list);
	s->ctx = ibv_open_device(list[r->rail]);
	ck_assert_ptr_nonnull(s->ctx);
	ibv_free_device_list(list);
	s->pd = ibv_alloc_pd(s->ctx);
	ck_assert_ptr_nonnull(s->pd);
	s->channel = ibv_create_comp_channel(s->ctx);
	ck_assert_ptr_nonnull(s->channel);
	s->scq = ibv_create_cq(s->ctx, r->cqe, s, s->channel, 0);
	s->rcq = ibv_create_cq(s->ctx, r->cqe, s, s->channel, 0);
	ck_assert(s->scq && s->rcq);
	s->buf = calloc(1, RIG_BYTES);
	ck_assert_ptr_nonnull(s->buf);
	s->mr = ibv_reg_mr(s->pd, s->buf, RIG_BYTES, r->mr_access);
	ck_assert_ptr_nonnull(s->mr);
	init.send_cq = s->scq;
	init.recv_cq = s->rcq;
	init.cap.max_send_wr = (uint32_t)r->depth;
	init.cap.max_recv_wr = (uint32_t)r->depth;
	init.cap.max_send_sge = 4;
	init.cap.max_recv_sge = 4;
	init.cap.max_inline_data = 64;
	init.sq_sig_all = r->sig_all;
	s->qp = ibv_create_qp(s->pd, &init);
	ck_assert_ptr_nonnull(s->qp);
}

void rig_open(struct rig *r)
{
	rig_open_side(r, &r->a);
	rig_open_side(r, &r->b);
}

int rig_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	a.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int rig_rtr(struct rig *r, struct ibv_qp *qp, uint32_t dest_qpn)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024};

	a.dest_qp_num = dest_qpn;
	a.rq_psn = RIG_PSN;
	a.max_dest_rd_atomic = 4;
	a.min_rnr_timer = r->min_rnr_timer;
	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.sgid_index = 1;
	ck_assert_int_eq(ibv_query_gid(qp->context, 1, 1, &a.ah_attr.grh.dgid), 0);
	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

int rig_rts(struct rig *r, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .sq_psn = RIG_PSN, .max_rd_atomic = 4};

	a.timeout = r->timeout;
	a.retry_cnt = r->retry_cnt;
	a.rnr_retry = r->rnr_retry;
	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void rig_connect(struct rig *r)
{
	rig_open(r);
	ck_assert_int_eq(rig_init(r->a.qp), 0);
	ck_assert_int_eq(rig_init(r->b.qp), 0);
	ck_assert_int_eq(rig_rtr(r, r->a.qp, r->b.qp->qp_num), 0);
	ck_assert_int_eq(rig_rtr(r, r->b.qp, r->a.qp->qp_num), 0);
	ck_assert_int_eq(rig_rts(r, r->a.qp), 0);
	ck_assert_int_eq(rig_rts(r, r->b.qp), 0);
}

void rig_close_side(struct rig_side *s)
{
	if (s->qp)
		ck_assert_int_eq(ibv_destroy_qp(s->qp), 0);
	ck_assert_int_eq(ibv_dereg_mr(s->mr), 0);
	ck_assert_int_eq(ibv_destroy_cq(s->scq), 0);
	ck_assert_int_eq(ibv_destroy_cq(s->rcq), 0);
	ck_assert_int_eq(ibv_destroy_comp_channel(s->channel), 0);
	ck_assert_int_eq(ibv_dealloc_pd(s->pd), 0);
	ck_assert_int_eq(ibv_close_device(s->ctx), 0);
	free(s->buf);
}

void rig_close(struct rig *r)
{
	rig_close_side(&r->a);
	rig_close_side(&r->b);
}

int rig_post(struct rig *r, enum ibv_wr_opcode opcode, uint64_t at, uint32_t length, uint64_t wr_id)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)r->a.buf + at, .length = length, .lkey = r->a.mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = wr_id,
				       .opcode = opcode,
				       .send_flags = IBV_SEND_SIGNALED,
				       .sg_list = &sge,
				       .num_sge = length ? 1 : 0};

	wr.wr.rdma.remote_addr = (uintptr_t)r->b.buf + at;
	wr.wr.rdma.rkey = r->b.mr->rkey;
	return ibv_post_send(r->a.qp, &wr, &bad);
}

int rig_post_recv(struct rig_side *s, uint64_t at, uint32_t length, uint64_t wr_id)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->buf + at, .length = length, .lkey = s->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = length ? 1 : 0};

	return ibv_post_recv(s->qp, &wr, &bad);
}

struct ibv_wc rig_wait(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	memset(&wc, 0, sizeof(wc));
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		poll(NULL, 0, 0);
	ck_assert_msg(n == 1, "poll_cq: %d", n);
	return wc;
}

int rig_run(Suite *suite)
{
	setenv("SOFTVERBS_ADDRS", "10.77.0.1,10.77.1.1", 1);
	return testing_run(suite);
}

int rig_run_here(const char *name, const TTest *test)
{
	Suite *suite = suite_create(name);
	TCase *tc = tcase_create(name);

	tcase_add_test(tc, test);
	suite_add_tcase(suite, tc);
	setenv("CK_FORK", "no", 1);
	return rig_run(suite);
}

bool rig_double(void)
{
	return softverbs_settle != NULL;
}

void rig_settle(void)
{
	if (rig_double())
		softverbs_settle();
	else
		/* A device of silicon cannot be asked. */
		poll(NULL, 0, 300);
}
