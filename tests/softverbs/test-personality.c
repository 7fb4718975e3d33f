/* SPDX-License-Identifier: BSD-2-Clause */
/* softverbs as other providers: what they leave of a handle whose destroy failed, and what they do not have. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "backends/rdma/rdma.h"
#include "tests/softverbs/rig.h"

/* rdma-core, providers/: of these, the queue pair is gone after the first failure; of the first two a
 * completion queue too. */
static const char *const fragile[] = {"siw", "irdma", "ocrdma"};

static void rig_as(struct rig *r, const char *personality)
{
	setenv("SOFTVERBS_PERSONALITY", personality, 1);
	rig_defaults(r);
	rig_connect(r);
}

/* Even a refusal, which elsewhere leaves the handle as it was. */
START_TEST(queue_pair_is_gone_after_a_failed_destroy)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct rig r;

	rig_as(&r, fragile[_i / 2]);
	softverbs_script("destroy_qp", 1, _i % 2 ? SOFTVERBS_REFUSED : SOFTVERBS_FAIL_NO_EFFECT,
			 _i % 2 ? EBUSY : EIO);
	ck_assert_int_eq(ibv_destroy_qp(r.a.qp), _i % 2 ? EBUSY : EIO);
	ibv_query_qp(r.a.qp, &attr, IBV_QP_STATE, &init);
}
END_TEST

START_TEST(a_refused_queue_pair_lives_elsewhere)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct rig r;

	rig_as(&r, "mlx5");
	softverbs_script("destroy_qp", 1, SOFTVERBS_REFUSED, EBUSY);
	ck_assert_int_eq(ibv_destroy_qp(r.a.qp), EBUSY);
	ck_assert_int_eq(ibv_query_qp(r.a.qp, &attr, IBV_QP_STATE, &init), 0);
	ck_assert_int_eq(attr.qp_state, IBV_QPS_RTS);
	rig_close(&r);
}
END_TEST

/* ibv_destroy_cq() answers EBUSY while a queue pair uses it; the second call finds what the first left. */
START_TEST(completion_queue_after_a_failed_destroy)
{
	struct ibv_wc wc;
	struct rig r;

	rig_as(&r, fragile[_i]);
	ck_assert_int_eq(ibv_destroy_cq(r.a.scq), EBUSY);
	ibv_poll_cq(r.a.scq, 1, &wc);
}
END_TEST

START_TEST(completion_queue_of_ocrdma_stays)
{
	struct ibv_wc wc;
	struct rig r;

	rig_as(&r, "ocrdma");
	ck_assert_int_eq(ibv_destroy_cq(r.a.scq), EBUSY);
	ck_assert_int_eq(ibv_poll_cq(r.a.scq, 1, &wc), 0);
	rig_close(&r);
}
END_TEST

START_TEST(what_is_missing_says_so)
{
	struct ibv_qp_init_attr init = {.qp_type = _i ? IBV_QPT_UC : IBV_QPT_UD};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct rig r;

	rig_as(&r, "mlx5");
	init.send_cq = r.a.scq;
	init.recv_cq = r.a.rcq;
	init.cap.max_send_wr = init.cap.max_recv_wr = 1;
	errno = 0;
	ck_assert_ptr_null(ibv_create_qp(r.a.pd, &init));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	errno = 0;
	ck_assert_ptr_null(ibv_create_srq(r.a.pd, &srq));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	rig_close(&r);
}
END_TEST

/* ---- The RDMA backend on them ---------------------------------------------------------------------- */
static int32_t no_log(void *ctx, int32_t level)
{
	return 0;
}

static void log_nothing(void *ctx, int32_t level, const char *component, const char *text,
			uint64_t len)
{
}

static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	return calloc(1, bytes);
}

static void host_free(void *ctx, void *p)
{
	free(p);
}

static uint64_t host_now(void *ctx)
{
	return softverbs_now();
}

static const void *no_extension(void *ctx, const char *id)
{
	return NULL;
}

static const struct escrow_host host = {
	.size = sizeof(host),
	.log_enabled = no_log,
	.log = log_nothing,
	.alloc = host_alloc,
	.free = host_free,
	.dma_alloc = host_alloc,
	.dma_free = host_free,
	.now_ns = host_now,
	.get_extension = no_extension,
};

/* Opens rail 0 and returns what open_device says; *info is of a device that it takes. */
static int open_as(const char *personality, struct native_context_info *info,
		   struct escrow_error *error)
{
	struct native_open_args args = {.host = &host, .engine_name = "test"};
	struct native_context *context;
	struct native_rail_info rail;
	struct native *native;
	int rc;

	setenv("SOFTVERBS_PERSONALITY", personality, 1);
	ck_assert_int_eq(rdma_native.open(&args, &native, error), ESCROW_OK);
	rdma_native.rail_info(native, 0, &rail);
	rc = rdma_native.open_device(native, rail.context, &context, info, error);
	if (!rc)
		ck_assert_int_eq(rdma_native.close_device(context), 0);
	rdma_native.free_native(native);
	return rc;
}

START_TEST(iwarp_is_refused)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct native_context_info info;

	ck_assert_int_ne(open_as("siw", &info, &error), 0);
	ck_assert_int_eq(error.status, ESCROW_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "iWARP"));
}
END_TEST

/* ocrdma is in no table of ours. */
START_TEST(an_unknown_provider_is_refused)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct native_context_info info;

	ck_assert_int_ne(open_as("ocrdma", &info, &error), 0);
	ck_assert_int_eq(error.status, ESCROW_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "0x10df"));
}
END_TEST

START_TEST(of_irdma_only_completions_are_proofs)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct native_context_info info;

	ck_assert_int_eq(open_as("irdma", &info, &error), 0);
	ck_assert_str_eq(info.provider, "irdma");
	ck_assert_uint_eq(info.weak, ESCROW_WEAK_RESET | ESCROW_WEAK_DEREG |
					     ESCROW_WEAK_DEALLOC_WINDOW | ESCROW_WEAK_DESTROY);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("personality");
	TCase *t = tcase_create("personality");

	tcase_add_loop_test_raise_signal(t, queue_pair_is_gone_after_a_failed_destroy, SIGABRT, 0,
					 6);
	tcase_add_test(t, a_refused_queue_pair_lives_elsewhere);
	tcase_add_loop_test_raise_signal(t, completion_queue_after_a_failed_destroy, SIGABRT, 0, 2);
	tcase_add_test(t, completion_queue_of_ocrdma_stays);
	tcase_add_loop_test(t, what_is_missing_says_so, 0, 2);
	tcase_add_test(t, iwarp_is_refused);
	tcase_add_test(t, an_unknown_provider_is_refused);
	tcase_add_test(t, of_irdma_only_completions_are_proofs);
	suite_add_tcase(s, t);
	return rig_run(s);
}
