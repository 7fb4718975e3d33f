/* SPDX-License-Identifier: BSD-2-Clause */
/* softverbs: the rules that abort, the script, and the control of completions. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softverbs/rig.h"

START_TEST(rule_second_destroy)
{
	struct rig r;

	rig_defaults(&r);
	rig_open(&r);
	ck_assert_int_eq(ibv_destroy_qp(r.a.qp), 0);
	ibv_destroy_qp(r.a.qp);
}
END_TEST

START_TEST(rule_use_after_failed_destroy)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct rig r;

	rig_defaults(&r);
	rig_open(&r);
	softverbs_script("destroy_qp", 1, SOFTVERBS_FAIL_NO_EFFECT, EIO);
	ck_assert_int_eq(ibv_destroy_qp(r.a.qp), EIO);
	ibv_query_qp(r.a.qp, &attr, IBV_QP_STATE, &init);
}
END_TEST

START_TEST(rule_destroy_with_unacknowledged_event)
{
	struct ibv_async_event ev;
	struct rig r;

	rig_defaults(&r);
	rig_open(&r);
	softverbs_event(r.a.ctx, IBV_EVENT_QP_FATAL, r.a.qp, NULL);
	ck_assert_int_eq(ibv_get_async_event(r.a.ctx, &ev), 0);
	ibv_destroy_qp(r.a.qp);
}
END_TEST

/* R24, R25 */
START_TEST(rule_bound_window)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	wr.bind_mw.mw = ibv_alloc_mw(r.b.pd, IBV_MW_TYPE_2);
	wr.bind_mw.rkey = ibv_inc_rkey(wr.bind_mw.mw->rkey);
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){r.b.mr, (uintptr_t)r.b.buf, 64, IBV_ACCESS_REMOTE_READ};
	ck_assert_int_eq(ibv_post_send(r.b.qp, &wr, &bad), 0);
	ck_assert_int_eq(rig_wait(r.b.scq).status, IBV_WC_SUCCESS);
	if (_i == 0)
		ibv_dereg_mr(r.b.mr);
	else
		ibv_destroy_qp(r.b.qp);
}
END_TEST

START_TEST(rule_use_after_lie)
{
	struct rig r;

	rig_defaults(&r);
	rig_open(&r);
	softverbs_script("destroy_qp", 1, SOFTVERBS_OK_LIE, 0);
	ck_assert_int_eq(ibv_destroy_qp(r.a.qp), 0);
	ibv_destroy_qp(r.a.qp);
}
END_TEST

/* The device goes on with a queue pair whose destroy lied. */
START_TEST(lie_leaves_the_queue_pair_running)
{
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	softverbs_script("destroy_qp", 1, SOFTVERBS_OK_LIE, 0);
	ck_assert_int_eq(ibv_destroy_qp(r.b.qp), 0);
	r.a.buf[0] = 9;
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 1, 1), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(r.b.buf[0], 9);
	ck_assert_int_eq(ibv_destroy_cq(r.b.scq), EBUSY);
}
END_TEST

START_TEST(refused_call_can_be_repeated)
{
	struct rig r;

	rig_defaults(&r);
	rig_open(&r);
	softverbs_script("dereg_mr", 2, SOFTVERBS_REFUSED, EBUSY);
	ck_assert_int_eq(ibv_dereg_mr(r.b.mr), 0);
	ck_assert_int_eq(ibv_dereg_mr(r.a.mr), EBUSY);
	ck_assert_int_eq(ibv_dereg_mr(r.a.mr), 0);
}
END_TEST

START_TEST(failure_with_effect_has_it)
{
	struct rig r;

	rig_defaults(&r);
	rig_open(&r);
	softverbs_script("destroy_qp", 1, SOFTVERBS_FAIL_EFFECT, EIO);
	ck_assert_int_eq(ibv_destroy_qp(r.a.qp), EIO);
	ck_assert_int_eq(ibv_destroy_cq(r.a.scq), 0);
}
END_TEST

/* R28 */
START_TEST(eio_switch_turns_failure_into_success)
{
	struct rig r;

	setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 1);
	rig_defaults(&r);
	rig_open(&r);
	softverbs_script("destroy_qp", 1, SOFTVERBS_FAIL_NO_EFFECT, EIO);
	ck_assert_int_eq(ibv_destroy_qp(r.a.qp), 0);
	ck_assert_int_eq(ibv_destroy_cq(r.a.scq), EBUSY);
}
END_TEST

START_TEST(fatal_context_lies)
{
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	softverbs_event(r.b.ctx, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
	ck_assert_int_eq(ibv_dereg_mr(r.b.mr), 0);
	r.a.buf[0] = 5;
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 1, 1), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(r.b.buf[0], 5);
}
END_TEST

START_TEST(calls_are_recorded)
{
	struct softverbs_call calls[64];
	struct ibv_device **list;
	struct ibv_context *ctx;
	size_t n;

	list = ibv_get_device_list(NULL);
	ctx = ibv_open_device(list[0]);
	softverbs_script("alloc_pd", 1, SOFTVERBS_REFUSED, ENOMEM);
	ck_assert_ptr_null(ibv_alloc_pd(ctx));
	ck_assert_int_eq(errno, ENOMEM);
	n = softverbs_log(0, calls, 64);
	ck_assert_uint_eq(n, 2);
	ck_assert_str_eq(calls[0].name, "open_device");
	ck_assert_int_eq(calls[0].rc, 1);
	ck_assert_str_eq(calls[1].name, "alloc_pd");
	ck_assert_int_eq(calls[1].rc, 0);
	ck_assert_int_eq(calls[1].errnum, ENOMEM);
	ibv_close_device(ctx);
	ibv_free_device_list(list);
}
END_TEST

START_TEST(held_completion_comes_when_released)
{
	struct ibv_wc wc;
	struct rig r;
	int i;

	rig_defaults(&r);
	rig_connect(&r);
	softverbs_cqe(r.a.qp, SOFTVERBS_CQE_HOLD, 1, 0);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, (uint64_t)i), 0);
	softverbs_settle();
	ck_assert_int_eq(ibv_poll_cq(r.a.scq, 1, &wc), 1);
	ck_assert_uint_eq(wc.wr_id, 0);
	ck_assert_int_eq(ibv_poll_cq(r.a.scq, 1, &wc), 0);
	softverbs_cqe_release(r.a.qp);
	ck_assert_uint_eq(rig_wait(r.a.scq).wr_id, 1);
	ck_assert_uint_eq(rig_wait(r.a.scq).wr_id, 2);
	rig_close(&r);
}
END_TEST

/* RESET and destroy delete what was not polled (mlx5), held completions included. */
START_TEST(reset_deletes_unpolled_completions)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_wc wc;
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 1), 0);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 2), 0);
	softverbs_settle();
	if (_i == 0) {
		ck_assert_int_eq(ibv_modify_qp(r.a.qp, &reset, IBV_QP_STATE), 0);
	} else {
		ck_assert_int_eq(ibv_destroy_qp(r.a.qp), 0);
		r.a.qp = NULL;
	}
	ck_assert_int_eq(ibv_poll_cq(r.a.scq, 1, &wc), 0);
	rig_close(&r);
}
END_TEST

START_TEST(rxe_leaves_completions_of_a_destroyed_queue_pair)
{
	struct ibv_wc wc[2];
	struct rig r;

	setenv("SOFTVERBS_PERSONALITY", "rxe", 1);
	rig_defaults(&r);
	rig_connect(&r);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 1), 0);
	softverbs_settle();
	ck_assert_int_eq(ibv_destroy_qp(r.a.qp), 0);
	r.a.qp = NULL;
	ck_assert_int_eq(ibv_poll_cq(r.a.scq, 2, wc), 1);
	ck_assert_uint_eq(wc[0].wr_id, 1);
	rig_close(&r);
}
END_TEST

/* In an error completion only wr_id, status, qp_num and vendor_err mean anything. */
START_TEST(error_completion_has_junk)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct ibv_wc wc;
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	ck_assert_int_eq(ibv_modify_qp(r.a.qp, &err, IBV_QP_STATE), 0);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 77), 0);
	wc = rig_wait(r.a.scq);
	ck_assert_uint_eq(wc.wr_id, 77);
	ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_ne(wc.opcode, IBV_WC_RDMA_WRITE);
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rules");
	TCase *t = tcase_create("rules");

	tcase_set_timeout(t, 60);
	tcase_add_test_raise_signal(t, rule_second_destroy, SIGABRT);
	tcase_add_test_raise_signal(t, rule_use_after_failed_destroy, SIGABRT);
	tcase_add_test_raise_signal(t, rule_destroy_with_unacknowledged_event, SIGABRT);
	tcase_add_loop_test_raise_signal(t, rule_bound_window, SIGABRT, 0, 2);
	tcase_add_test_raise_signal(t, rule_use_after_lie, SIGABRT);
	tcase_add_test(t, lie_leaves_the_queue_pair_running);
	tcase_add_test(t, refused_call_can_be_repeated);
	tcase_add_test(t, failure_with_effect_has_it);
	tcase_add_test(t, eio_switch_turns_failure_into_success);
	tcase_add_test(t, fatal_context_lies);
	tcase_add_test(t, calls_are_recorded);
	tcase_add_test(t, held_completion_comes_when_released);
	tcase_add_loop_test(t, reset_deletes_unpolled_completions, 0, 2);
	tcase_add_test(t, rxe_leaves_completions_of_a_destroyed_queue_pair);
	tcase_add_test(t, error_completion_has_junk);
	suite_add_tcase(s, t);
	return rig_run(s);
}
