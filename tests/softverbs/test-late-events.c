/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An asynchronous event of an object whose destroy has failed.  The provider may have given its memory back before the
 * kernel answered (ownership 1.1), so the event is not even acknowledged, which would write there: softverbs ends a
 * program that does.
 */
#include <errno.h>
#include <infiniband/verbs.h>

#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/softverbs/softverbs.h"
#include "tests/unit/rdma-host.h"

static struct native *native;
static struct native_context *context;
static struct native_lane *lane;

static void start(void)
{
	struct native_open_args args = {.host = &rdma_host, .engine_name = "test"};
	struct native_context_info info;

	ck_assert_int_eq(rdma_native.open(&args, &native, NULL), ESCROW_OK);
	ck_assert_int_eq(rdma_native.open_device(native, 0, &context, &info, NULL), 0);
	ck_assert_int_eq(rdma_native.alloc_pd(context), 0);
	ck_assert_int_eq(rdma_native.create_channel(context, &lane), 0);
	ck_assert_int_eq(rdma_native.create_cq(lane, 16), 0);
}

static struct native_conn *make(void *user)
{
	struct native_conn_args args = {
		.send_depth = 4, .recv_depth = 4, .max_sge = 1, .user = user};
	struct native_conn *conn;

	ck_assert_int_eq(rdma_native.create_conn(lane, &args, &conn), 0);
	return conn;
}

static void nothing_is_told(void)
{
	struct native_event event;

	ck_assert_int_eq(rdma_native.next_event(native, &event), 0);
}

/* Whatever it is that comes; those of another queue pair are told as before. */
START_TEST(of_a_queue_pair)
{
	struct native_event event;
	struct native_conn *dead, *conn;

	start();
	dead = make(NULL);
	conn = make(&event);
	ck_assert_int_eq(softverbs_script("destroy_qp", 1, SOFTVERBS_FAIL_NO_EFFECT, EIO), 0);
	ck_assert_int_eq(rdma_native.destroy_conn(dead), EIO);
	softverbs_event(context->verbs, IBV_EVENT_QP_FATAL, dead->qp, NULL);
	softverbs_event(context->verbs, IBV_EVENT_COMM_EST, dead->qp, NULL);
	nothing_is_told();
	softverbs_event(context->verbs, IBV_EVENT_QP_FATAL, dead->qp, NULL);
	softverbs_event(context->verbs, IBV_EVENT_QP_FATAL, conn->qp, NULL);
	ck_assert_int_eq(rdma_native.next_event(native, &event), 1);
	ck_assert_int_eq(event.kind, NATIVE_EV_CONN_ERROR);
	ck_assert_ptr_eq(event.conn, conn);
	/* Its own is acknowledged, or this would wait for ever. */
	ck_assert_int_eq(rdma_native.destroy_conn(conn), 0);
}
END_TEST

START_TEST(of_a_completion_queue)
{
	start();
	ck_assert_int_eq(softverbs_script("destroy_cq", 1, SOFTVERBS_FAIL_NO_EFFECT, EIO), 0);
	ck_assert_int_eq(rdma_native.destroy_cq(lane), EIO);
	softverbs_event(context->verbs, IBV_EVENT_CQ_ERR, NULL, lane->cq);
	nothing_is_told();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("late-events");
	TCase *t = tcase_create("late-events");

	tcase_add_test(t, of_a_queue_pair);
	tcase_add_test(t, of_a_completion_queue);
	suite_add_tcase(s, t);
	return testing_run(s);
}
