/* SPDX-License-Identifier: BSD-2-Clause */
/* softverbs: what every RC device does, and what goes wrong by the rules. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softverbs/rig.h"

static void fill(unsigned char *p, size_t n, unsigned int seed)
{
	size_t i;

	for (i = 0; i < n; i++)
		p[i] = (unsigned char)(i * 31 + i / 251 + seed);
}

START_TEST(devices_are_rails)
{
	struct ibv_device **list;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	struct ibv_context *ctx;
	union ibv_gid gid;
	int n;

	list = ibv_get_device_list(&n);
	ck_assert_int_eq(n, 2);
	ck_assert_str_eq(ibv_get_device_name(list[1]), "softverbs1");
	ctx = ibv_open_device(list[1]);
	ck_assert_int_eq(ibv_query_port(ctx, 1, &port), 0);
	ck_assert_int_eq(port.state, IBV_PORT_ACTIVE);
	ck_assert_int_eq(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	ck_assert_int_eq(ibv_query_port(ctx, 2, &port), EINVAL);
	ck_assert_int_eq(ibv_query_gid(ctx, 1, 1, &gid), 0);
	ck_assert_int_eq(ntohl(*(uint32_t *)(void *)(gid.raw + 12)), 0x0a4d0101);
	ck_assert_int_eq(ibv_query_gid_ex(ctx, 1, 1, &entry, 0), 0);
	ck_assert_int_eq(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	ck_assert_int_eq(ibv_query_gid_ex(ctx, 1, 5, &entry, 0), ENODATA);
	ck_assert_int_eq(ibv_close_device(ctx), 0);
	ibv_free_device_list(list);
}
END_TEST

START_TEST(write_and_read_move_the_bytes)
{
	static const uint32_t sizes[] = {1, 4096, 40000, RIG_BYTES};
	struct ibv_wc wc;
	struct rig r;
	unsigned int i;

	rig_defaults(&r);
	rig_connect(&r);
	for (i = 0; i < 4; i++) {
		fill(r.a.buf, RIG_BYTES, i);
		memset(r.b.buf, 0, RIG_BYTES);
		ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, sizes[i], 7), 0);
		wc = rig_wait(r.a.scq);
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		ck_assert_int_eq(wc.opcode, IBV_WC_RDMA_WRITE);
		ck_assert_uint_eq(wc.wr_id, 7);
		ck_assert_int_eq(memcmp(r.a.buf, r.b.buf, sizes[i]), 0);
		ck_assert(sizes[i] == RIG_BYTES || r.b.buf[sizes[i]] == 0);

		fill(r.b.buf, RIG_BYTES, i + 100);
		memset(r.a.buf, 0, RIG_BYTES);
		ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_READ, 0, sizes[i], 8), 0);
		wc = rig_wait(r.a.scq);
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		ck_assert_int_eq(wc.opcode, IBV_WC_RDMA_READ);
		ck_assert_int_eq(memcmp(r.a.buf, r.b.buf, sizes[i]), 0);
		ck_assert(sizes[i] == RIG_BYTES || r.a.buf[sizes[i]] == 0);
	}
	rig_close(&r);
}
END_TEST

START_TEST(zero_length_needs_no_key)
{
	struct ibv_send_wr *bad,
		wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	ck_assert_int_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	wr.opcode = IBV_WR_RDMA_READ;
	ck_assert_int_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	rig_close(&r);
}
END_TEST

START_TEST(messages_arrive_whole_and_in_order)
{
	struct ibv_wc wc;
	struct rig r;
	uint64_t i;

	rig_defaults(&r);
	rig_connect(&r);
	fill(r.a.buf, RIG_BYTES, 1);
	for (i = 0; i < 8; i++)
		ck_assert_int_eq(rig_post_recv(&r.b, i * 65536, 65536, 100 + i), 0);
	for (i = 0; i < 8; i++)
		ck_assert_int_eq(rig_post(&r, IBV_WR_SEND, i * 65536, (uint32_t)(i * 9000), i), 0);
	for (i = 0; i < 8; i++) {
		wc = rig_wait(r.b.rcq);
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
		ck_assert_uint_eq(wc.wr_id, 100 + i);
		ck_assert_uint_eq(wc.byte_len, i * 9000);
		ck_assert_int_eq(memcmp(r.a.buf + i * 65536, r.b.buf + i * 65536, i * 9000), 0);
		ck_assert_uint_eq(rig_wait(r.a.scq).wr_id, i);
	}
	rig_close(&r);
}
END_TEST

START_TEST(immediate_follows_its_data)
{
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .num_sge = 1};
	struct ibv_wc wc;
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	fill(r.a.buf, 100000, 5);
	sge = (struct ibv_sge){(uintptr_t)r.a.buf, 100000, r.a.mr->lkey};
	wr.sg_list = &sge;
	wr.imm_data = htonl(0x12345678);
	wr.wr.rdma.remote_addr = (uintptr_t)r.b.buf;
	wr.wr.rdma.rkey = r.b.mr->rkey;
	ck_assert_int_eq(rig_post_recv(&r.b, 0, 0, 9), 0);
	ck_assert_int_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
	wc = rig_wait(r.b.rcq);
	ck_assert_int_eq(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	ck_assert(wc.wc_flags & IBV_WC_WITH_IMM);
	ck_assert_uint_eq(wc.imm_data, htonl(0x12345678));
	ck_assert_uint_eq(wc.byte_len, 100000);
	ck_assert_int_eq(memcmp(r.a.buf, r.b.buf, 100000), 0);
	rig_close(&r);
}
END_TEST

START_TEST(inline_data_is_copied_at_post)
{
	unsigned char bytes[64];
	struct ibv_sge sge = {(uintptr_t)bytes, 64, 0};
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	fill(bytes, 64, 3);
	fill(r.a.buf, 64, 3);
	wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = (uintptr_t)r.b.buf;
	wr.wr.rdma.rkey = r.b.mr->rkey;
	ck_assert_int_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
	memset(bytes, 0, sizeof(bytes));
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	ck_assert_int_eq(memcmp(r.a.buf, r.b.buf, 64), 0);
	sge.length = 65;
	ck_assert_int_eq(ibv_post_send(r.a.qp, &wr, &bad), EINVAL);
	ck_assert_ptr_eq(bad, &wr);
	rig_close(&r);
}
END_TEST

/* An unsignaled success says nothing, the flush of an unsignaled request does; and every request that
 * was accepted has come back when the last one has. */
START_TEST(unsignaled_requests_flush_with_completions)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE};
	struct ibv_wc wc;
	struct rig r;
	uint64_t i;

	rig_defaults(&r);
	rig_connect(&r);
	wr.wr_id = 1;
	ck_assert_int_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 2), 0);
	ck_assert_uint_eq(rig_wait(r.a.scq).wr_id, 2);
	ck_assert_int_eq(ibv_modify_qp(r.a.qp, &err, IBV_QP_STATE), 0);
	for (i = 10; i < 14; i++) {
		wr.wr_id = i;
		ck_assert_int_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
		ck_assert_int_eq(rig_post_recv(&r.a, 0, 8, i + 10), 0);
	}
	for (i = 10; i < 14; i++) {
		wc = rig_wait(r.a.scq);
		ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
		ck_assert_uint_eq(wc.wr_id, i);
		ck_assert_uint_eq(rig_wait(r.a.rcq).wr_id, i + 10);
	}
	rig_close(&r);
}
END_TEST

/* The slots of a send queue come back when a completion that covers them is polled, not before. */
START_TEST(slots_return_by_polling)
{
	struct rig r;
	int i;

	rig_defaults(&r);
	r.depth = 4;
	rig_connect(&r);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 0), 0);
	rig_settle();
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 0), ENOMEM);
	rig_wait(r.a.scq);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 0), 0);
	rig_close(&r);
}
END_TEST

START_TEST(transitions_are_checked)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR}, reset = {.qp_state = IBV_QPS_RESET},
			   got;
	struct ibv_qp_init_attr init;
	struct rig r;

	rig_defaults(&r);
	rig_open(&r);
	ck_assert_int_eq(ibv_modify_qp(r.a.qp, &err, IBV_QP_STATE), EINVAL);
	ck_assert_int_eq(rig_rtr(&r, r.a.qp, r.b.qp->qp_num), EINVAL);
	ck_assert_int_eq(rig_post_recv(&r.a, 0, 8, 0), EINVAL);
	ck_assert_int_eq(rig_init(r.a.qp), 0);
	ck_assert_int_eq(rig_init(r.a.qp), 0);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 0), EINVAL);
	ck_assert_int_eq(rig_rts(&r, r.a.qp), EINVAL);
	ck_assert_int_eq(rig_rtr(&r, r.a.qp, r.b.qp->qp_num), 0);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 0), EINVAL);
	ck_assert_int_eq(rig_rts(&r, r.a.qp), 0);
	ck_assert_int_eq(rig_init(r.a.qp), EINVAL);
	ck_assert_int_eq(ibv_query_qp(r.a.qp, &got, IBV_QP_STATE, &init), 0);
	ck_assert_int_eq(got.qp_state, IBV_QPS_RTS);
	ck_assert_uint_eq(got.dest_qp_num, r.b.qp->qp_num);
	ck_assert_int_eq(ibv_modify_qp(r.a.qp, &err, IBV_QP_STATE), 0);
	ck_assert_int_eq(ibv_modify_qp(r.a.qp, &err, IBV_QP_STATE), 0);
	ck_assert_int_eq(rig_init(r.a.qp), EINVAL);
	ck_assert_int_eq(ibv_modify_qp(r.a.qp, &reset, IBV_QP_STATE), 0);
	ck_assert_int_eq(rig_init(r.a.qp), 0);
	rig_close(&r);
}
END_TEST

/* EBUSY names a dependent object, and the object that was refused is as before. */
START_TEST(destroys_are_refused_while_something_depends)
{
	struct ibv_mw *mw;
	struct rig r;

	rig_defaults(&r);
	rig_open(&r);
	ck_assert_int_eq(ibv_destroy_comp_channel(r.a.channel), EBUSY);
	ck_assert_int_eq(ibv_destroy_cq(r.a.scq), EBUSY);
	ck_assert_int_eq(ibv_dealloc_pd(r.a.pd), EBUSY);
	ck_assert_int_eq(ibv_destroy_qp(r.a.qp), 0);
	r.a.qp = NULL;
	mw = ibv_alloc_mw(r.b.pd, IBV_MW_TYPE_2);
	ck_assert_ptr_nonnull(mw);
	ck_assert_int_eq(ibv_dealloc_pd(r.a.pd), EBUSY);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	rig_close(&r);
}
END_TEST

START_TEST(keys_are_checked_at_both_ends)
{
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE, .num_sge = 1, .sg_list = &sge};
	struct ibv_wc wc;
	struct rig r;

	/* _i: 0 unknown rkey, 1 beyond the end, 2 unknown lkey, 3 wrapping range */
	static const enum ibv_wc_status expected[] = {IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR,
						      IBV_WC_LOC_PROT_ERR, IBV_WC_REM_ACCESS_ERR};

	rig_defaults(&r);
	rig_connect(&r);
	sge = (struct ibv_sge){(uintptr_t)r.a.buf, 16, r.a.mr->lkey ^ (_i == 2 ? 1 : 0)};
	wr.wr.rdma.rkey = r.b.mr->rkey ^ (_i == 0 ? 0x100 : 0);
	wr.wr.rdma.remote_addr = (uintptr_t)r.b.buf + (_i == 1 ? RIG_BYTES - 15 : 0);
	if (_i == 3)
		wr.wr.rdma.remote_addr = UINT64_MAX - 7;
	memset(r.a.buf, 0xff, 16);
	ck_assert_int_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
	wc = rig_wait(r.a.scq);
	ck_assert_int_eq(wc.status, expected[_i]);
	ck_assert_uint_eq(wc.qp_num, r.a.qp->qp_num);
	ck_assert_uint_eq(r.b.buf[0], 0);
	ck_assert_uint_eq(r.b.buf[RIG_BYTES - 1], 0);
	/* Afterwards the queue pair is in ERR: what is posted flushes. */
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 5), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_WR_FLUSH_ERR);
	rig_close(&r);
}
END_TEST

START_TEST(missing_receive_ends_in_rnr)
{
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	ck_assert_int_eq(rig_post(&r, IBV_WR_SEND, 0, 8, 1), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_RNR_RETRY_EXC_ERR);
	rig_close(&r);
}
END_TEST

START_TEST(late_receive_is_waited_for)
{
	struct rig r;

	rig_defaults(&r);
	r.rnr_retry = 7;
	rig_connect(&r);
	fill(r.a.buf, 100000, 2);
	ck_assert_int_eq(rig_post(&r, IBV_WR_SEND, 0, 100000, 1), 0);
	ck_assert_int_eq(rig_post_recv(&r.b, 0, 100000, 2), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	ck_assert_int_eq(memcmp(r.a.buf, r.b.buf, 100000), 0);
	rig_close(&r);
}
END_TEST

START_TEST(nobody_answers)
{
	struct rig r;

	/* _i: 0 the peer never left INIT, 1 it is gone, 2 its port is down */
	rig_defaults(&r);
	rig_connect(&r);
	if (_i == 0) {
		struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

		ck_assert_int_eq(ibv_modify_qp(r.b.qp, &reset, IBV_QP_STATE), 0);
		ck_assert_int_eq(rig_init(r.b.qp), 0);
	} else if (_i == 1) {
		ck_assert_int_eq(ibv_destroy_qp(r.b.qp), 0);
		r.b.qp = NULL;
	} else {
		softverbs_port(0, 0);
	}
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 1), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_RETRY_EXC_ERR);
	rig_close(&r);
}
END_TEST

START_TEST(one_completion_too_many_kills_the_queue)
{
	struct ibv_async_event ev;
	struct ibv_wc wc;
	struct rig r;
	int i;

	rig_defaults(&r);
	r.cqe = 3;
	rig_connect(&r);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 1), 0);
	rig_settle();
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 1), 0);
	ck_assert_int_eq(ibv_get_async_event(r.a.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_CQ_ERR);
	ck_assert_ptr_eq(ev.element.cq, r.a.scq);
	ck_assert_int_lt(ibv_poll_cq(r.a.scq, 1, &wc), 0);
	ibv_ack_async_event(&ev);
	rig_close(&r);
}
END_TEST

START_TEST(armed_queue_wakes_its_channel_once)
{
	struct ibv_cq *cq;
	struct rig r;
	void *arg;

	rig_defaults(&r);
	rig_connect(&r);
	ck_assert_int_eq(ibv_req_notify_cq(r.a.scq, 0), 0);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 1), 0);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 2), 0);
	ck_assert_int_eq(ibv_get_cq_event(r.a.channel, &cq, &arg), 0);
	ck_assert_ptr_eq(cq, r.a.scq);
	ck_assert_ptr_eq(arg, &r.a);
	rig_settle();
	ibv_ack_cq_events(cq, 1);
	rig_close(&r);
}
END_TEST

START_TEST(port_events_tell)
{
	struct ibv_async_event ev;
	struct ibv_port_attr port;
	struct rig r;

	rig_defaults(&r);
	rig_open(&r);
	softverbs_port(0, 0);
	ck_assert_int_eq(ibv_get_async_event(r.a.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_PORT_ERR);
	ibv_ack_async_event(&ev);
	ck_assert_int_eq(ibv_query_port(r.a.ctx, 1, &port), 0);
	ck_assert_int_eq(port.state, IBV_PORT_DOWN);
	softverbs_port(0, 1);
	ck_assert_int_eq(ibv_get_async_event(r.a.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_PORT_ACTIVE);
	ibv_ack_async_event(&ev);
	rig_close(&r);
}
END_TEST

START_TEST(registration_is_checked)
{
	struct rig r;

	rig_defaults(&r);
	rig_open(&r);
	ck_assert_ptr_null(ibv_reg_mr(r.a.pd, r.a.buf, 64, IBV_ACCESS_REMOTE_WRITE));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(ibv_reg_mr(r.a.pd, r.a.buf, 64, IBV_ACCESS_ON_DEMAND));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_ptr_null(ibv_reg_mr(r.a.pd, (void *)4096, 64, IBV_ACCESS_LOCAL_WRITE));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_ptr_null(ibv_reg_mr(r.a.pd, (void *)(UINTPTR_MAX - 8), 64, 0));
	ck_assert_int_eq(errno, EINVAL);
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs");
	TCase *t = tcase_create("verbs");

	tcase_set_timeout(t, 60);
	if (rig_double())
		tcase_add_test(t, devices_are_rails);
	tcase_add_test(t, write_and_read_move_the_bytes);
	tcase_add_test(t, zero_length_needs_no_key);
	tcase_add_test(t, messages_arrive_whole_and_in_order);
	tcase_add_test(t, immediate_follows_its_data);
	tcase_add_test(t, inline_data_is_copied_at_post);
	tcase_add_test(t, unsignaled_requests_flush_with_completions);
	tcase_add_test(t, slots_return_by_polling);
	tcase_add_test(t, transitions_are_checked);
	tcase_add_test(t, destroys_are_refused_while_something_depends);
	tcase_add_loop_test(t, keys_are_checked_at_both_ends, 0, 4);
	tcase_add_test(t, missing_receive_ends_in_rnr);
	tcase_add_test(t, late_receive_is_waited_for);
	tcase_add_loop_test(t, nobody_answers, 0, rig_double() ? 3 : 2);
	tcase_add_test(t, one_completion_too_many_kills_the_queue);
	tcase_add_test(t, armed_queue_wakes_its_channel_once);
	if (rig_double())
		tcase_add_test(t, port_events_tell);
	tcase_add_test(t, registration_is_checked);
	suite_add_tcase(s, t);
	return rig_run(s);
}
