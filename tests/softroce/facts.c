/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The native facts that the rules of release rest on, asked of the kernel's verbs themselves. When
 * one of these fails on a kernel or device, the rules are wrong there, whatever the backend's own
 * tests say. Run in the guest, or on a device: ./dev softroce -- build/tests/softroce/facts
 */
#include "tests/lib/testing.h"
#include "tests/softroce/scene.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

static struct device device;

/* Q32 */
START_TEST(channel_with_a_cq_is_busy)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(device.context);
	struct ibv_cq *cq;

	ck_assert_ptr_nonnull(channel);
	cq = ibv_create_cq(device.context, 8, NULL, channel, 0);
	ck_assert_ptr_nonnull(cq);
	ck_assert_int_eq(ibv_destroy_comp_channel(channel), EBUSY);
	ck_assert_int_ge(fcntl(channel->fd, F_GETFD), 0);
	ck_assert_int_eq(ibv_destroy_cq(cq), 0);
	ck_assert_int_eq(ibv_destroy_comp_channel(channel), 0);
}
END_TEST

/* Q33 */
START_TEST(cq_with_a_reset_qp_is_busy)
{
	struct ibv_cq *cq = ibv_create_cq(device.context, 8, NULL, NULL, 0);
	struct ibv_qp *qp;

	ck_assert_ptr_nonnull(cq);
	qp = device_qp(&device, cq, 1);
	ck_assert_int_eq(ibv_destroy_cq(cq), EBUSY);
	ck_assert_int_eq(link_state(qp), IBV_QPS_RESET);
	ck_assert_int_eq(ibv_dealloc_pd(device.pd), EBUSY);
	ck_assert_int_eq(ibv_destroy_qp(qp), 0);
	ck_assert_int_eq(ibv_destroy_cq(cq), 0);
}
END_TEST

/* Q34 */
START_TEST(pd_with_a_window_is_busy)
{
	struct ibv_mw *mw = ibv_alloc_mw(device.pd, IBV_MW_TYPE_2);

	ck_assert_ptr_nonnull(mw);
	ck_assert_int_eq(ibv_dealloc_pd(device.pd), EBUSY);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
}
END_TEST

START_TEST(pd_with_a_registration_is_busy)
{
	struct memory memory;

	memory_open(&memory, &device, PAGE, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_int_eq(ibv_dealloc_pd(device.pd), EBUSY);
	memory_close(&memory);
}
END_TEST

/* EINVAL is rxe's answer; that the refused call left everything as it was is the point. */
START_TEST(registration_under_a_bound_window_stays)
{
	struct scene scene;

	scene_open(&scene, &device, PAGE, PAGE);
	ck_assert_int_eq(ibv_dereg_mr(scene.target.mr), EINVAL);
	ck_assert_int_eq(scene_write_page(&scene, &scene.link, scene.window.rkey, 7),
			 IBV_WC_SUCCESS);
	ck_assert(memory_is(&scene.target, 0, PAGE, 7));
	scene_close(&scene);
}
END_TEST

/* R04, H05: writes through the window until it is gone; by LOCAL_INV (0) or by dealloc_mw (1). */
START_TEST(nothing_passes_a_window_that_is_gone)
{
	struct scene scene;

	scene_open(&scene, &device, PAGE, PAGE);
	ck_assert_int_eq(scene_write_page(&scene, &scene.link, scene.window.rkey, 7),
			 IBV_WC_SUCCESS);
	if (_i == 0) {
		link_invalidate(&scene.link, &scene.window);
	} else {
		ck_assert_int_eq(ibv_dealloc_mw(scene.window.mw), 0);
		scene.window.mw = NULL;
	}
	ck_assert_int_eq(scene_write_page(&scene, &scene.link, scene.window.rkey, 8),
			 IBV_WC_REM_ACCESS_ERR);
	ck_assert(memory_is(&scene.target, 0, PAGE, 7));
	ck_assert_int_eq(link_state(scene.link.requester), IBV_QPS_ERR);
	ck_assert_int_eq(link_state(scene.link.responder), IBV_QPS_ERR);
	scene_close(&scene);
}
END_TEST

/* R21 */
START_TEST(key_works_on_its_own_qp_only)
{
	struct scene scene;
	struct link other;

	scene_open(&scene, &device, PAGE, PAGE);
	link_open(&other, &device, DEPTH);
	ck_assert_int_eq(scene_write_page(&scene, &other, scene.window.rkey, 9),
			 IBV_WC_REM_ACCESS_ERR);
	ck_assert(memory_is(&scene.target, 0, PAGE, 0));
	ck_assert_int_eq(scene_write_page(&scene, &scene.link, scene.window.rkey, 7),
			 IBV_WC_SUCCESS);
	ck_assert(memory_is(&scene.target, 0, PAGE, 7));
	link_close(&other);
	scene_close(&scene);
}
END_TEST

START_TEST(key_of_the_bind_before_is_dead)
{
	struct scene scene;
	uint32_t old;

	scene_open(&scene, &device, PAGE, PAGE);
	old = scene.window.rkey;
	link_invalidate(&scene.link, &scene.window);
	link_bind(&scene.link, &scene.window, &scene.target);
	ck_assert_uint_ne(scene.window.rkey, old);
	ck_assert_int_eq(scene_write_page(&scene, &scene.link, scene.window.rkey, 7),
			 IBV_WC_SUCCESS);
	ck_assert_int_eq(scene_write_page(&scene, &scene.link, old, 8), IBV_WC_REM_ACCESS_ERR);
	ck_assert(memory_is(&scene.target, 0, PAGE, 7));
	scene_close(&scene);
}
END_TEST

/*
 * A NIC may have done all that was posted before the QP leaves RTS: then nothing was asked, and it is
 * asked again. A machine that is always quicker than this fails the test: it has not been proved.
 */
#define ATTEMPTS 50

/* False when the whole queue had succeeded before ERR. */
static bool flushes(void)
{
	struct scene scene;
	struct ibv_wc wc;
	uint32_t i, succeeded = 0;

	scene_open(&scene, &device, MIB, (size_t)DEPTH * MIB);
	memset(scene.source.bytes, 7, MIB);
	scene_write_queue(&scene);
	link_modify(scene.link.requester, IBV_QPS_ERR);
	for (i = 0; i < DEPTH; i++) {
		ck_assert(link_next(&scene.link, scene.link.requester_cq, &wc));
		ck_assert_uint_eq(wc.wr_id, (uint64_t)i * MIB);
		if (wc.status == IBV_WC_SUCCESS) {
			ck_assert_uint_eq(succeeded, i);
			ck_assert(memory_is(&scene.target, wc.wr_id, MIB, 7));
			succeeded++;
		} else {
			ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
		}
	}
	ck_assert_int_eq(ibv_poll_cq(scene.link.requester_cq, 1, &wc), 0);
	scene_close(&scene);
	return succeeded < DEPTH;
}

/*
 * Q11: each WR has one CQE, in the order of posting; none comes after the last. Those that succeeded are
 * at the front, and their bytes are there.
 */
START_TEST(every_wr_of_a_flushed_queue_has_its_cqe)
{
	uint32_t attempt = 0;

	while (!flushes())
		ck_assert_uint_lt(++attempt, ATTEMPTS);
}
END_TEST

/* What makes a sentinel possible: the last CQE of a queue can be asked for. */
START_TEST(post_on_a_qp_in_error_gives_one_flush)
{
	struct scene scene;
	struct write write;
	struct ibv_wc wc;

	scene_open(&scene, &device, PAGE, PAGE);
	link_modify(scene.link.requester, IBV_QPS_ERR);
	write = (struct write){&scene.source, scene.address, 17, 1, scene.window.rkey};
	ck_assert_int_eq(link_write(&scene.link, &write), 0);
	ck_assert(link_next(&scene.link, scene.link.requester_cq, &wc));
	ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	ck_assert_uint_eq(wc.wr_id, 17);
	ck_assert_int_eq(ibv_poll_cq(scene.link.requester_cq, 1, &wc), 0);
	ck_assert(memory_is(&scene.target, 0, PAGE, 0));
	scene_close(&scene);
}
END_TEST

/* False when the whole queue was done before RESET. */
static bool discards(void)
{
	struct scene scene, other;
	struct ibv_wc wc;
	bool asked;
	uint32_t i;

	scene_open(&scene, &device, MIB, (size_t)DEPTH * MIB);
	scene_open(&other, &device, MIB, (size_t)DEPTH * MIB);
	memset(scene.source.bytes, 7, MIB);
	scene_write_queue(&scene);
	ck_assert(link_next(&scene.link, scene.link.requester_cq, &wc));
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	link_modify(scene.link.requester, IBV_QPS_RESET);
	asked = memory_is(&scene.target, (size_t)(DEPTH - 1) * MIB, MIB, 0);
	memset(scene.source.bytes, 8, MIB);
	while (ibv_poll_cq(scene.link.requester_cq, 1, &wc) == 1)
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	if (asked)
		ck_assert_uint_lt(wc.wr_id, (uint64_t)(DEPTH - 1) * MIB);

	scene_write_queue(&other);
	for (i = 0; i < DEPTH; i++) {
		struct ibv_wc theirs;

		ck_assert(link_next(&other.link, other.link.requester_cq, &theirs));
		ck_assert_int_eq(theirs.status, IBV_WC_SUCCESS);
	}
	ck_assert_int_eq(ibv_poll_cq(scene.link.requester_cq, 1, &wc), 0);
	ck_assert_ptr_null(memchr(scene.target.bytes, 8, scene.target.size));
	if (asked)
		ck_assert(memory_is(&scene.target, (size_t)(DEPTH - 1) * MIB, MIB, 0));
	scene_close(&other);
	scene_close(&scene);
	return asked;
}

/*
 * RESET rc=0 is a receipt: after it no CQE is made, the source is not read again, and the target gets
 * no more. The time in which it could be proved wrong is that of as much work on another link.
 */
START_TEST(reset_discards_what_was_posted)
{
	uint32_t attempt = 0;

	while (!discards())
		ck_assert_uint_lt(++attempt, ATTEMPTS);
}
END_TEST

/* ---- What librdmacm leaves in a process ------------------------------------------------------------ */
/* Descriptors of verbs devices. */
static unsigned int open_devices(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	unsigned int n = 0;
	char target[256];
	ssize_t len;

	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir))) {
		len = readlinkat(dirfd(dir), e->d_name, target, sizeof(target) - 1);
		target[len > 0 ? len : 0] = 0;
		n += strstr(target, "/infiniband/uverbs") != NULL;
	}
	closedir(dir);
	return n;
}

/* All that a listener is made of, made and ended. */
static void listen_once(void)
{
	struct sockaddr_in addr = {.sin_family = AF_INET};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	const char *address = strchr(strchr(getenv("ESCROW_TEST_RAILS"), ':') + 1, ':') + 1;
	char text[INET_ADDRSTRLEN] = "";
	struct rdma_cm_id *id;

	ck_assert_ptr_nonnull(channel);
	memcpy(text, address, strcspn(address, ","));
	ck_assert_int_eq(inet_pton(AF_INET, text, &addr.sin_addr), 1);
	ck_assert_int_eq(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&addr), 0);
	ck_assert_int_eq(rdma_listen(id, 1), 0);
	ck_assert_int_eq(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

/*
 * Why ESC-LIFE-003 and ESC-OOM-001 are waived (conform-waivers): the device that librdmacm opens for
 * itself stays open when all that used it has gone, once, however often.  When this fails because
 * nothing stays, the waivers have no reason any more.
 */
START_TEST(connection_manager_keeps_its_device)
{
	unsigned int before = open_devices(), first;

	listen_once();
	first = open_devices();
	ck_assert_uint_eq(first, before + 1);
	listen_once();
	ck_assert_uint_eq(open_devices(), first);
}
END_TEST

static void setup(void)
{
	device_open(&device);
}

static void teardown(void)
{
	device_close(&device);
}

int main(void)
{
	Suite *suite = suite_create("facts");
	TCase *facts = tcase_create("facts");

	if (!device_rail())
		return testing_skip("no device: ESCROW_TEST_RAILS is not set");
	tcase_add_checked_fixture(facts, setup, teardown);
	tcase_set_timeout(facts, 120);
	tcase_add_test(facts, channel_with_a_cq_is_busy);
	tcase_add_test(facts, cq_with_a_reset_qp_is_busy);
	tcase_add_test(facts, pd_with_a_window_is_busy);
	tcase_add_test(facts, pd_with_a_registration_is_busy);
	tcase_add_test(facts, registration_under_a_bound_window_stays);
	tcase_add_loop_test(facts, nothing_passes_a_window_that_is_gone, 0, 2);
	tcase_add_test(facts, key_works_on_its_own_qp_only);
	tcase_add_test(facts, key_of_the_bind_before_is_dead);
	tcase_add_test(facts, every_wr_of_a_flushed_queue_has_its_cqe);
	tcase_add_test(facts, post_on_a_qp_in_error_gives_one_flush);
	tcase_add_test(facts, reset_discards_what_was_posted);
	/* The double's connection manager has no device of its own. */
	if (strncmp(device_rail(), "softverbs", 9) != 0)
		tcase_add_test(facts, connection_manager_keeps_its_device);
	suite_add_tcase(suite, facts);
	return testing_run(suite);
}
