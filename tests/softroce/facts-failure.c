/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The native facts, second part: what is left when a destroy fails, and when the peer dies. To be run
 * like facts.c.
 */
#include "tests/lib/forbid.h"
#include "tests/lib/testing.h"
#include "tests/softroce/scene.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct device device;

/* What is to be destroyed where no command comes through, and the answers. */
struct doomed {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	int filter, of_qp, of_cq, of_mr, of_pd;
};

static void *destroy_without_commands(void *arg)
{
	struct doomed *doomed = arg;

	doomed->filter = forbid_commands(device.context->cmd_fd);
	if (doomed->filter != 0)
		return NULL;
	doomed->of_qp = ibv_destroy_qp(doomed->qp);
	if (!doomed->pd)
		return NULL;
	doomed->of_cq = ibv_destroy_cq(doomed->cq);
	doomed->of_mr = ibv_dereg_mr(doomed->mr);
	doomed->of_pd = ibv_dealloc_pd(doomed->pd);
	return NULL;
}

static void destroy_in_a_thread(struct doomed *doomed)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, destroy_without_commands, doomed), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(doomed->filter, 0);
}

/* The QP that was not destroyed still moves bytes, and all can be destroyed later. */
START_TEST(destroy_that_fails_leaves_the_object_at_work)
{
	struct doomed doomed;
	struct memory memory;
	struct scene scene;

	scene_open(&scene, &device, PAGE, PAGE);
	memory_open(&memory, &device, PAGE, IBV_ACCESS_LOCAL_WRITE);
	doomed.qp = scene.link.requester;
	doomed.mr = memory.mr;
	doomed.cq = ibv_create_cq(device.context, 8, NULL, NULL, 0);
	doomed.pd = ibv_alloc_pd(device.context);
	ck_assert(doomed.cq && doomed.pd);
	destroy_in_a_thread(&doomed);
	ck_assert_int_eq(doomed.of_qp, EIO);
	ck_assert_int_eq(doomed.of_cq, EIO);
	ck_assert_int_eq(doomed.of_mr, EIO);
	ck_assert_int_eq(doomed.of_pd, EIO);
	ck_assert_int_eq(link_state(scene.link.requester), IBV_QPS_RTS);
	ck_assert_int_eq(scene_write_page(&scene, &scene.link, scene.window.rkey, 7),
			 IBV_WC_SUCCESS);
	ck_assert(memory_is(&scene.target, 0, PAGE, 7));
	ck_assert_int_eq(ibv_destroy_cq(doomed.cq), 0);
	ck_assert_int_eq(ibv_dealloc_pd(doomed.pd), 0);
	memory_close(&memory);
	scene_close(&scene);
}
END_TEST

/* R28: with that switch rdma-core calls it success, though the kernel's QP lives on: its CQ is busy. */
START_TEST(disassociate_switch_hides_the_failure)
{
	struct doomed doomed = {0};
	struct scene scene;

	scene_open(&scene, &device, PAGE, PAGE);
	doomed.qp = scene.link.requester;
	destroy_in_a_thread(&doomed);
	ck_assert_int_eq(doomed.of_qp, 0);
	ck_assert_int_eq(ibv_destroy_cq(scene.link.requester_cq), EBUSY);
}
END_TEST

/* What the two processes tell each other, each in one piece. */
struct hello {
	uint64_t address;
	uint32_t qp, rkey;
};

/* The process that is killed: offers a window over all of its memory, and waits for its end. */
static void peer_process(int in, int out)
{
	struct hello mine, theirs;
	struct scene scene;

	device_open(&device);
	link_open_half(&scene.link, &device, DEPTH);
	mine.qp = scene.link.requester->qp_num;
	ck_assert_int_eq(read(in, &theirs, sizeof(theirs)), sizeof(theirs));
	link_join(&scene.link, theirs.qp);
	memory_open(&scene.target, &device, (size_t)DEPTH * MIB,
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	scene.window.mw = ibv_alloc_mw(device.pd, IBV_MW_TYPE_2);
	ck_assert_ptr_nonnull(scene.window.mw);
	link_bind(&scene.link, &scene.window, &scene.target);
	mine.address = (uintptr_t)scene.target.bytes;
	mine.rkey = scene.window.rkey;
	ck_assert_int_eq(write(out, &mine, sizeof(mine)), sizeof(mine));
	for (;;)
		pause();
}

/* Of the completions of a whole queue: those in front succeeded, one says what happened, the rest is flushed. */
static void expect_one_failure_at_most(struct link *link)
{
	enum ibv_wc_status before = IBV_WC_SUCCESS;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < DEPTH; i++) {
		ck_assert(link_next(link, link->requester_cq, &wc));
		ck_assert_uint_eq(wc.wr_id, (uint64_t)i * MIB);
		if (before != IBV_WC_SUCCESS)
			ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
		else if (wc.status != IBV_WC_SUCCESS)
			ck_assert(wc.status == IBV_WC_REM_ACCESS_ERR ||
				  wc.status == IBV_WC_RETRY_EXC_ERR);
		before = wc.status;
	}
}

/* kill -9 of the peer ends every WR that was posted; retry_cnt 6 is what makes it end. */
START_TEST(killed_peer_costs_no_completion)
{
	int to_peer[2], from_peer[2], status;
	struct hello mine = {0}, theirs;
	struct scene scene;
	pid_t peer;

	ck_assert(pipe(to_peer) == 0 && pipe(from_peer) == 0);
	peer = fork();
	if (peer == 0)
		peer_process(to_peer[0], from_peer[1]);
	ck_assert_int_gt(peer, 0);
	device_open(&device);
	link_open_half(&scene.link, &device, DEPTH);
	mine.qp = scene.link.requester->qp_num;
	ck_assert_int_eq(write(to_peer[1], &mine, sizeof(mine)), sizeof(mine));
	ck_assert_int_eq(read(from_peer[0], &theirs, sizeof(theirs)), sizeof(theirs));
	link_join(&scene.link, theirs.qp);
	memory_open(&scene.source, &device, MIB, IBV_ACCESS_LOCAL_WRITE);
	scene.address = theirs.address;
	scene.window.rkey = theirs.rkey;
	scene_write_queue(&scene);
	ck_assert_int_eq(kill(peer, SIGKILL), 0);
	ck_assert_int_eq(waitpid(peer, &status, 0), peer);
	expect_one_failure_at_most(&scene.link);
	/* whatever arrived before the kill, nothing does after it */
	ck_assert_int_ne(scene_write_page(&scene, &scene.link, theirs.rkey, 1), IBV_WC_SUCCESS);
	link_close(&scene.link);
	memory_close(&scene.source);
	device_close(&device);
}
END_TEST

static void setup(void)
{
	device_open(&device);
}

static void setup_with_the_switch(void)
{
	ck_assert_int_eq(setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 1), 0);
	device_open(&device);
}

static void teardown(void)
{
	device_close(&device);
}

int main(void)
{
	Suite *suite = suite_create("facts-failure");
	TCase *refused = tcase_create("refused");
	TCase *hidden = tcase_create("hidden"); /* its process ends with objects left over */
	TCase *death = tcase_create("death");   /* its processes open the device for themselves */

	if (!device_rail())
		return testing_skip("no device: ESCROW_TEST_RAILS is not set");
	tcase_add_checked_fixture(refused, setup, teardown);
	tcase_add_test(refused, destroy_that_fails_leaves_the_object_at_work);
	suite_add_tcase(suite, refused);
	tcase_add_checked_fixture(hidden, setup_with_the_switch, NULL);
	tcase_add_test(hidden, disassociate_switch_hides_the_failure);
	suite_add_tcase(suite, hidden);
	tcase_add_test(death, killed_peer_costs_no_completion);
	suite_add_tcase(suite, death);
	tcase_set_timeout(refused, 120);
	tcase_set_timeout(hidden, 120);
	tcase_set_timeout(death, 120);
	return testing_run(suite);
}
