/* SPDX-License-Identifier: BSD-2-Clause */
/* softverbs: the nastiest legal device still moves the right bytes, and catches who gives memory back too
 * early. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softverbs/rig.h"

#define OPS 120
#define AREAS 16
#define AREA (RIG_BYTES / AREAS)

static uint32_t draw(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* One area at a time is in use by at most one request; what it should hold afterwards is known. */
static void random_op(struct rig *r, uint64_t *state, int i, enum ibv_wr_opcode *op, uint32_t *len)
{
	uint64_t at = (uint64_t)(i % AREAS) * AREA;
	uint32_t j;

	*op = draw(state) & 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	*len = 1 + draw(state) % AREA;
	for (j = 0; j < *len; j++) {
		r->a.buf[at + j] = (unsigned char)(draw(state));
		r->b.buf[at + j] = (unsigned char)(draw(state));
	}
	ck_assert_int_eq(rig_post(r, *op, at, *len, (uint64_t)i), 0);
}

START_TEST(bytes_are_right_under_every_seed)
{
	enum ibv_wr_opcode ops[AREAS];
	uint32_t lens[AREAS];
	uint64_t state = (uint64_t)_i;
	struct ibv_wc wc;
	struct rig r;
	char seed[16];
	int i;

	snprintf(seed, sizeof(seed), "%d", _i + 1);
	setenv("SOFTVERBS_SEED", seed, 1);
	rig_defaults(&r);
	r.timeout = 14;
	r.retry_cnt = 6;
	rig_connect(&r);
	for (i = 0; i < OPS + AREAS; i++) {
		uint64_t at = (uint64_t)(i % AREAS) * AREA;

		if (i >= AREAS) {
			wc = rig_wait(r.a.scq);
			ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
			/* In order, each once, though late and in batches. */
			ck_assert_uint_eq(wc.wr_id, i - AREAS);
			ck_assert_int_eq(memcmp(r.a.buf + at, r.b.buf + at, lens[i % AREAS]), 0);
		}
		if (i < OPS)
			random_op(&r, &state, i, &ops[i % AREAS], &lens[i % AREAS]);
	}
	rig_close(&r);
}
END_TEST

START_TEST(messages_are_whole_under_every_seed)
{
	char seed[16];
	struct rig r;
	uint64_t i;

	snprintf(seed, sizeof(seed), "%d", _i + 1);
	setenv("SOFTVERBS_SEED", seed, 1);
	rig_defaults(&r);
	r.rnr_retry = 7;
	rig_connect(&r);
	for (i = 0; i < 60; i++) {
		uint32_t len = (uint32_t)(i * 977 % AREA);

		memset(r.a.buf, (int)i, AREA);
		memset(r.b.buf, 0xff, AREA);
		/* Half the time the receive comes after the message. */
		if (i & 1)
			ck_assert_int_eq(rig_post_recv(&r.b, 0, AREA, i), 0);
		ck_assert_int_eq(rig_post(&r, IBV_WR_SEND, 0, len, i), 0);
		if (!(i & 1))
			ck_assert_int_eq(rig_post_recv(&r.b, 0, AREA, i), 0);
		ck_assert_uint_eq(rig_wait(r.b.rcq).byte_len, len);
		ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
		ck_assert_int_eq(memcmp(r.a.buf, r.b.buf, len), 0);
		ck_assert_uint_eq(r.b.buf[len], 0xff);
	}
	rig_close(&r);
}
END_TEST

/* Q24: a request whose completion is withheld goes on: who frees its memory meanwhile is caught. */
START_TEST(withheld_request_still_touches_its_memory)
{
	enum ibv_wr_opcode op = _i ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	softverbs_cqe(r.a.qp, SOFTVERBS_CQE_HOLD, 0, 0);
	ck_assert_int_eq(rig_post(&r, op, 0, 4096, 1), 0);
	softverbs_settle();
	softverbs_forbid(r.a.buf + 512, 512, 1);
	rig_wait(r.a.scq);
}
END_TEST

START_TEST(reset_ends_a_withheld_request)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	softverbs_cqe(r.a.qp, SOFTVERBS_CQE_HOLD, 0, 0);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_READ, 0, 4096, 1), 0);
	softverbs_settle();
	ck_assert_int_eq(ibv_modify_qp(r.a.qp, &reset, IBV_QP_STATE), 0);
	ck_assert_int_eq(softverbs_forbid(r.a.buf, 4096, 1), 0);
	/* Until b gives up, the device has had the time to touch it several times, if it would. */
	ck_assert_int_eq(ibv_post_send(r.b.qp, &wr, &bad), 0);
	ck_assert_int_eq(rig_wait(r.b.scq).status, IBV_WC_RETRY_EXC_ERR);
	ck_assert_int_eq(softverbs_permit(r.a.buf, 4096), 0);
	ck_assert_int_eq(softverbs_permit(r.a.buf, 4096), -1);
	rig_close(&r);
}
END_TEST

/* A peer that still has a key reaches memory that was given back. */
START_TEST(live_key_over_free_memory_is_caught)
{
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	softverbs_forbid(r.b.buf, 64, 0);
	rig_post(&r, IBV_WR_RDMA_WRITE, 0, 4096, 1);
	rig_wait(r.a.scq);
}
END_TEST

/* A device that is stopped before its next access: what was revoked meanwhile is not reached. */
START_TEST(held_device_comes_too_late)
{
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	r.a.buf[0] = 9;
	softverbs_hold(r.a.ctx, 1);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 1, 1), 0);
	softverbs_settle();
	ck_assert_uint_eq(r.b.buf[0], 0);
	if (_i == 0)
		ck_assert_int_eq(ibv_dereg_mr(r.b.mr), 0);
	softverbs_hold(r.a.ctx, 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status,
			 _i == 0 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
	ck_assert_uint_eq(r.b.buf[0], _i == 0 ? 0 : 9);
}
END_TEST

START_TEST(killed_peer_says_nothing)
{
	struct ibv_wc wc;
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	softverbs_kill_peers(r.a.ctx);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 1), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_RETRY_EXC_ERR);
	ck_assert_int_eq(ibv_poll_cq(r.b.rcq, 1, &wc), 0);
}
END_TEST

/* R27 */
START_TEST(removed_device)
{
	struct ibv_async_event ev;
	struct rig r;

	/* _i: 0 a current kernel, 1 an old one, 2 an old one with the EIO switch */
	if (_i)
		setenv("SOFTVERBS_PERSONALITY", "old-kernel", 1);
	if (_i == 2)
		setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 1);
	rig_defaults(&r);
	rig_connect(&r);
	softverbs_remove(0);
	ck_assert_int_eq(ibv_get_async_event(r.a.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&ev);
	ck_assert_ptr_null(ibv_reg_mr(r.a.pd, r.a.buf, 64, 0));
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(rig_init(r.a.qp), EIO);
	ck_assert_int_eq(ibv_destroy_qp(r.a.qp), _i == 1 ? EIO : 0);
	ck_assert_int_eq(ibv_dereg_mr(r.a.mr), _i == 1 ? EIO : 0);
}
END_TEST

/* What an adversary says of a queue is so. */
START_TEST(a_queue_that_is_said_to_be_broken_is)
{
	struct ibv_async_event ev;
	struct ibv_wc wc;
	struct rig r;

	rig_defaults(&r);
	rig_connect(&r);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 1), 0);
	rig_settle();
	softverbs_event(r.a.ctx, IBV_EVENT_CQ_ERR, NULL, r.a.scq);
	ck_assert_int_lt(ibv_poll_cq(r.a.scq, 1, &wc), 0);
	ck_assert_int_eq(ibv_get_async_event(r.a.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_CQ_ERR);
	ck_assert_ptr_eq(ev.element.cq, r.a.scq);
	ibv_ack_async_event(&ev);
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("adversary");
	TCase *t = tcase_create("adversary");

	setenv("SOFTVERBS_ADVERSARY", "1", 1);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, bytes_are_right_under_every_seed, 0, 8);
	tcase_add_loop_test(t, messages_are_whole_under_every_seed, 0, 4);
	tcase_add_loop_test_raise_signal(t, withheld_request_still_touches_its_memory, SIGABRT, 0,
					 2);
	tcase_add_test(t, reset_ends_a_withheld_request);
	tcase_add_test_raise_signal(t, live_key_over_free_memory_is_caught, SIGABRT);
	tcase_add_loop_test(t, held_device_comes_too_late, 0, 2);
	tcase_add_test(t, killed_peer_says_nothing);
	tcase_add_test(t, a_queue_that_is_said_to_be_broken_is);
	tcase_add_loop_test(t, removed_device, 0, 3);
	suite_add_tcase(s, t);
	return rig_run(s);
}
