/* SPDX-License-Identifier: BSD-2-Clause */
/* softverbs: requests of several ranges, receives that do not fit, and what is left on a queue pair that ends. */
#include <string.h>

#include "tests/softverbs/rig.h"

/* Three pieces of a buffer, out of order and of odd lengths. */
#define PIECES 3
static const struct piece {
	uint32_t at, length;
} pieces[PIECES] = {{70001, 4097}, {11, 1}, {300000, 70000}};
#define WHOLE (4097 + 1 + 70000)

static void fill(unsigned char *p, unsigned int seed)
{
	for (size_t i = 0; i < RIG_BYTES; i++)
		p[i] = (unsigned char)(i * 31 + i / 251 + seed);
}

/* The pieces of a's buffer, in one request. */
static int post_pieces(struct rig *r, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge[PIECES];
	struct ibv_send_wr *bad, wr = {.opcode = opcode,
				       .send_flags = IBV_SEND_SIGNALED,
				       .sg_list = sge,
				       .num_sge = PIECES};

	for (int i = 0; i < PIECES; i++)
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)r->a.buf + pieces[i].at,
					  .length = pieces[i].length,
					  .lkey = r->a.mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)r->b.buf;
	wr.wr.rdma.rkey = r->b.mr->rkey;
	return ibv_post_send(r->a.qp, &wr, &bad);
}

/* Does 'whole' hold the pieces of 'buf', one behind the other? */
static void check_pieces(const unsigned char *buf, const unsigned char *whole)
{
	for (int i = 0; i < PIECES; i++) {
		ck_assert_int_eq(memcmp(buf + pieces[i].at, whole, pieces[i].length), 0);
		whole += pieces[i].length;
	}
}

START_TEST(ranges_are_gathered)
{
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	fill(r.a.buf, 1);
	ck_assert_int_eq(post_pieces(&r, IBV_WR_RDMA_WRITE), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	check_pieces(r.a.buf, r.b.buf);
	ck_assert_uint_eq(r.b.buf[WHOLE], 0);
	rig_close(&r);
}
END_TEST

START_TEST(ranges_are_scattered)
{
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	fill(r.b.buf, 2);
	ck_assert_int_eq(post_pieces(&r, IBV_WR_RDMA_READ), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	check_pieces(r.a.buf, r.b.buf);
	for (int i = 0; i < PIECES; i++) {
		ck_assert_uint_eq(r.a.buf[pieces[i].at - 1], 0);
		ck_assert_uint_eq(r.a.buf[pieces[i].at + pieces[i].length], 0);
	}
	rig_close(&r);
}
END_TEST

/* Too long for its receive: both ends are told, and nothing lands behind the place for it. The sender's status is the
 * specification's (remote invalid request); that of the receiver differs between devices. */
START_TEST(message_too_long_for_its_receive)
{
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	fill(r.a.buf, 3);
	ck_assert_int_eq(rig_post_recv(&r.b, 0, 100, 5), 0);
	ck_assert_int_eq(rig_post(&r, IBV_WR_SEND, 0, 101, 6), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_REM_INV_REQ_ERR);
	ck_assert_int_ne(rig_wait(r.b.rcq).status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(r.b.buf[100], 0);
	rig_close(&r);
}
END_TEST

/* ERR ends every receive that waits, each told once, in their order; one posted afterwards too. */
START_TEST(receives_flush_in_order)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct ibv_wc wc;
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	for (uint64_t i = 0; i < 4; i++)
		ck_assert_int_eq(rig_post_recv(&r.b, i * 64, 64, 40 + i), 0);
	ck_assert_int_eq(ibv_modify_qp(r.b.qp, &error, IBV_QP_STATE), 0);
	ck_assert_int_eq(rig_post_recv(&r.b, 4 * 64, 64, 44), 0);
	for (uint64_t i = 0; i < 5; i++) {
		wc = rig_wait(r.b.rcq);
		ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
		ck_assert_uint_eq(wc.wr_id, 40 + i);
	}
	rig_settle();
	ck_assert_int_eq(ibv_poll_cq(r.b.rcq, 1, &wc), 0);
	rig_close(&r);
}
END_TEST

/* What modify_qp was given is what query_qp tells. */
START_TEST(queries_tell_what_was_set)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	memset(&a, 0, sizeof(a));
	ck_assert_int_eq(ibv_query_qp(r.a.qp, &a, IBV_QP_STATE, &init), 0);
	ck_assert_int_eq(a.qp_state, IBV_QPS_RTS);
	ck_assert_int_eq(a.path_mtu, IBV_MTU_1024);
	ck_assert_uint_eq(a.dest_qp_num, r.b.qp->qp_num);
	ck_assert_uint_eq(a.timeout, r.timeout);
	ck_assert_uint_eq(a.retry_cnt, r.retry_cnt);
	ck_assert_uint_eq(a.rnr_retry, r.rnr_retry);
	ck_assert_uint_eq(a.max_rd_atomic, 4);
	ck_assert_uint_eq(a.max_dest_rd_atomic, 4);
	ck_assert_int_eq(init.qp_type, IBV_QPT_RC);
	ck_assert_uint_ge(a.cap.max_send_wr, (uint32_t)r.depth);
	rig_close(&r);
}
END_TEST

/* More requests than the queue takes: the first that does not fit is named, those before it are done. */
START_TEST(full_queue_names_the_first_that_does_not_fit)
{
	struct ibv_send_wr wr[2], *bad = NULL;
	uint64_t posted = 0;
	struct rig r;

	rig_defaults(&r);
	r.cqe = 4096;
	rig_connect(&r);
	/* Without polling no place comes back, however fast the device is. */
	memset(wr, 0, sizeof(wr));
	for (int i = 0; i < 2; i++) {
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].send_flags = IBV_SEND_SIGNALED;
	}
	wr[0].next = &wr[1];
	for (;;) {
		wr[0].wr_id = posted;
		wr[1].wr_id = posted + 1;
		if (ibv_post_send(r.a.qp, wr, &bad))
			break;
		posted += 2;
		ck_assert_uint_le(posted, 4096);
	}
	ck_assert(bad == &wr[0] || bad == &wr[1]);
	posted += bad == &wr[1];
	ck_assert_uint_ge(posted, (uint32_t)r.depth);
	for (uint64_t i = 0; i < posted; i++) {
		struct ibv_wc wc = rig_wait(r.a.scq);

		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		ck_assert_uint_eq(wc.wr_id, i);
	}
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lists");
	TCase *t = tcase_create("lists");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, ranges_are_gathered);
	tcase_add_test(t, ranges_are_scattered);
	tcase_add_test(t, message_too_long_for_its_receive);
	tcase_add_test(t, receives_flush_in_order);
	tcase_add_test(t, queries_tell_what_was_set);
	tcase_add_test(t, full_queue_names_the_first_that_does_not_fit);
	suite_add_tcase(s, t);
	return rig_run(s);
}
