/* SPDX-License-Identifier: BSD-2-Clause */
/* softverbs: memory windows, and what may be done with a key after each step of its life. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softverbs/rig.h"

/* Side b owns the memory and the window; a is the peer. */
static struct ibv_mw *window_new(struct rig *r, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(r->b.pd, type);

	ck_assert_ptr_nonnull(mw);
	return mw;
}

static struct ibv_wc window_bind_on(struct rig *r, struct ibv_qp *qp, struct ibv_cq *cq,
				    struct ibv_mw *mw, uint32_t rkey, unsigned int access)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){r->b.mr, (uintptr_t)r->b.buf + 4096, 4096, access};
	ck_assert_int_eq(ibv_post_send(qp, &wr, &bad), 0);
	return rig_wait(cq);
}

/* Binds 4096 bytes at offset 4096 with the next tag, and keeps mw->rkey up to date. */
static void window_bind(struct rig *r, struct ibv_mw *mw, unsigned int access)
{
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_wc wc = window_bind_on(r, r->b.qp, r->b.scq, mw, rkey, access);

	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_BIND_MW);
	mw->rkey = rkey;
}

static enum ibv_wc_status window_invalidate(struct rig *r, uint32_t rkey)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED};

	wr.invalidate_rkey = rkey;
	ck_assert_int_eq(ibv_post_send(r->b.qp, &wr, &bad), 0);
	return rig_wait(r->b.scq).status;
}

/* a writes or reads 16 bytes at the given offset of b's buffer. */
static enum ibv_wc_status window_use(struct rig *r, enum ibv_wr_opcode op, uint32_t rkey,
				     uint64_t at)
{
	struct ibv_sge sge = {(uintptr_t)r->a.buf, 16, r->a.mr->lkey};
	struct ibv_send_wr *bad, wr = {.opcode = op, .sg_list = &sge, .num_sge = 1};

	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)r->b.buf + at;
	wr.wr.rdma.rkey = rkey;
	memset(r->a.buf, 0x77, 16);
	ck_assert_int_eq(ibv_post_send(r->a.qp, &wr, &bad), 0);
	return rig_wait(r->a.scq).status;
}

static void window_rig(struct rig *r)
{
	rig_defaults(r);
	/* The region itself gives nothing away. */
	r->mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	rig_connect(r);
}

START_TEST(bound_window_gives_what_it_says)
{
	struct ibv_mw *mw;
	struct rig r;

	window_rig(&r);
	mw = window_new(&r, IBV_MW_TYPE_2);
	window_bind(&r, mw, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	ck_assert_int_eq(window_use(&r, IBV_WR_RDMA_WRITE, mw->rkey, 4096), IBV_WC_SUCCESS);
	ck_assert_uint_eq(r.b.buf[4096], 0x77);
	ck_assert_int_eq(window_use(&r, IBV_WR_RDMA_READ, mw->rkey, 8176), IBV_WC_SUCCESS);
	ck_assert_uint_eq(r.a.buf[0], 0);
	ck_assert_int_eq(window_invalidate(&r, mw->rkey), IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	rig_close(&r);
}
END_TEST

/* Each of these must not reach a byte, and must end the connection. */
START_TEST(key_without_right_fails)
{
	unsigned int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	enum ibv_wr_opcode op = IBV_WR_RDMA_WRITE;
	uint64_t at = 4096;
	struct ibv_mw *mw;
	uint32_t rkey;
	struct rig r;

	window_rig(&r);
	mw = window_new(&r, IBV_MW_TYPE_2);
	if (_i == 0)
		access = IBV_ACCESS_REMOTE_READ;
	window_bind(&r, mw, access);
	rkey = mw->rkey;
	switch (_i) {
	case 1:
		at = 4095;
		break;
	case 2:
		at = 8192 - 15;
		break;
	case 3:
		rkey = ibv_inc_rkey(rkey);
		break;
	case 4:
		ck_assert_int_eq(window_invalidate(&r, rkey), IBV_WC_SUCCESS);
		break;
	case 5:
		/* The region's own key: it has no remote right. */
		rkey = r.b.mr->rkey;
		break;
	case 6:
		ck_assert_int_eq(window_invalidate(&r, rkey), IBV_WC_SUCCESS);
		window_bind(&r, mw, access);
		break;
	default:
		break;
	}
	memset(r.b.buf, 0, RIG_BYTES);
	ck_assert_int_eq(window_use(&r, op, rkey, at), IBV_WC_REM_ACCESS_ERR);
	ck_assert_uint_eq(r.b.buf[at], 0);
	ck_assert_uint_eq(r.b.buf[at + 15], 0);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	rig_close(&r);
}
END_TEST

/* A type 2B window may be used through the one queue pair it was bound on. */
START_TEST(window_of_another_queue_pair_fails)
{
	struct ibv_mw *mw;
	struct rig r, other;

	window_rig(&r);
	/* A second pair whose responder shares b's protection domain. */
	other = r;
	other.a.qp = ibv_create_qp(r.a.pd, &(struct ibv_qp_init_attr){.send_cq = r.a.scq,
								      .recv_cq = r.a.rcq,
								      .cap = {8, 8, 1, 1, 0},
								      .qp_type = IBV_QPT_RC});
	other.b.qp = ibv_create_qp(r.b.pd, &(struct ibv_qp_init_attr){.send_cq = r.b.scq,
								      .recv_cq = r.b.rcq,
								      .cap = {8, 8, 1, 1, 0},
								      .qp_type = IBV_QPT_RC});
	ck_assert(other.a.qp && other.b.qp);
	ck_assert(!rig_init(other.a.qp) && !rig_init(other.b.qp));
	ck_assert(!rig_rtr(&r, other.a.qp, other.b.qp->qp_num));
	ck_assert(!rig_rtr(&r, other.b.qp, other.a.qp->qp_num));
	ck_assert(!rig_rts(&r, other.a.qp) && !rig_rts(&r, other.b.qp));

	mw = window_new(&r, IBV_MW_TYPE_2);
	window_bind(&r, mw, IBV_ACCESS_REMOTE_WRITE);
	ck_assert_int_eq(window_use(&other, IBV_WR_RDMA_WRITE, mw->rkey, 4096),
			 IBV_WC_REM_ACCESS_ERR);
	ck_assert_uint_eq(r.b.buf[4096], 0);
	/* The connection it belongs to is not touched by that. */
	ck_assert_int_eq(window_use(&r, IBV_WR_RDMA_WRITE, mw->rkey, 4096), IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	ck_assert_int_eq(ibv_destroy_qp(other.a.qp), 0);
	ck_assert_int_eq(ibv_destroy_qp(other.b.qp), 0);
	rig_close(&r);
}
END_TEST

START_TEST(bind_is_checked)
{
	uint32_t rkey;
	struct ibv_mw *mw;
	struct ibv_wc wc;
	struct rig r;

	/* _i: 0 bound already, 1 another index, 2 mw->rkey not kept up to date, 3 no MW_BIND right */
	rig_defaults(&r);
	r.mr_access = IBV_ACCESS_LOCAL_WRITE | (_i == 3 ? 0 : IBV_ACCESS_MW_BIND);
	rig_connect(&r);
	mw = window_new(&r, IBV_MW_TYPE_2);
	rkey = ibv_inc_rkey(mw->rkey);
	if (_i == 0 || _i == 2)
		window_bind(&r, mw, IBV_ACCESS_REMOTE_WRITE);
	if (_i == 1)
		rkey ^= 0x100;
	if (_i == 2) {
		ck_assert_int_eq(window_invalidate(&r, mw->rkey), IBV_WC_SUCCESS);
		mw->rkey = ibv_inc_rkey(mw->rkey);
	}
	wc = window_bind_on(&r, r.b.qp, r.b.scq, mw, rkey, IBV_ACCESS_REMOTE_WRITE);
	ck_assert_int_eq(wc.status, IBV_WC_MW_BIND_ERR);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	rig_close(&r);
}
END_TEST

START_TEST(failed_invalidation_ends_the_connection)
{
	struct ibv_mw *mw;
	struct rig r;

	window_rig(&r);
	mw = window_new(&r, IBV_MW_TYPE_2);
	window_bind(&r, mw, IBV_ACCESS_REMOTE_WRITE);
	ck_assert_int_eq(window_invalidate(&r, mw->rkey), IBV_WC_SUCCESS);
	ck_assert_int_eq(window_invalidate(&r, mw->rkey), IBV_WC_LOC_QP_OP_ERR);
	ck_assert_int_eq(window_invalidate(&r, mw->rkey), IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	rig_close(&r);
}
END_TEST

/* A bind that was done while a READ before it was under way is flushed when that fails: its success would
 * say that the READ had succeeded too. */
START_TEST(nothing_succeeds_behind_a_failure)
{
	struct ibv_sge sge;
	struct ibv_send_wr *bad, read = {.opcode = IBV_WR_RDMA_READ, .num_sge = 1},
				 bind = {.opcode = IBV_WR_BIND_MW};
	struct ibv_mw *mw;
	struct rig r;

	window_rig(&r);
	mw = ibv_alloc_mw(r.a.pd, IBV_MW_TYPE_2);
	ck_assert_ptr_nonnull(mw);
	sge = (struct ibv_sge){(uintptr_t)r.a.buf, 16, r.a.mr->lkey};
	read.sg_list = &sge;
	read.send_flags = bind.send_flags = IBV_SEND_SIGNALED;
	/* The region's key allows the peer nothing. */
	read.wr.rdma.remote_addr = (uintptr_t)r.b.buf;
	read.wr.rdma.rkey = r.b.mr->rkey;
	read.next = &bind;
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){r.a.mr, (uintptr_t)r.a.buf + 4096, 4096,
							   IBV_ACCESS_REMOTE_READ};
	ck_assert_int_eq(ibv_post_send(r.a.qp, &read, &bad), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	rig_close(&r);
}
END_TEST

START_TEST(peer_may_invalidate_with_a_send)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_SEND_WITH_INV};
	struct ibv_mw *mw;
	struct ibv_wc wc;
	struct rig r;

	window_rig(&r);
	mw = window_new(&r, IBV_MW_TYPE_2);
	window_bind(&r, mw, IBV_ACCESS_REMOTE_WRITE);
	ck_assert_int_eq(rig_post_recv(&r.b, 0, 0, 4), 0);
	wr.invalidate_rkey = mw->rkey;
	ck_assert_int_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
	wc = rig_wait(r.b.rcq);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert(wc.wc_flags & IBV_WC_WITH_INV);
	ck_assert_uint_eq(wc.invalidated_rkey, mw->rkey);
	ck_assert_int_eq(window_use(&r, IBV_WR_RDMA_WRITE, mw->rkey, 4096), IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	rig_close(&r);
}
END_TEST

START_TEST(type_1_is_bound_by_the_verb)
{
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw *mw;
	uint32_t old;
	struct rig r;

	window_rig(&r);
	mw = window_new(&r, IBV_MW_TYPE_1);
	bind.bind_info = (struct ibv_mw_bind_info){r.b.mr, (uintptr_t)r.b.buf, 4096,
						   IBV_ACCESS_REMOTE_WRITE};
	ck_assert_int_eq(ibv_bind_mw(r.b.qp, mw, &bind), 0);
	ck_assert_int_eq(rig_wait(r.b.scq).status, IBV_WC_SUCCESS);
	old = mw->rkey;
	ck_assert_int_eq(window_use(&r, IBV_WR_RDMA_WRITE, old, 0), IBV_WC_SUCCESS);
	/* A bind of no length takes the key back. */
	bind.bind_info = (struct ibv_mw_bind_info){0};
	ck_assert_int_eq(ibv_bind_mw(r.b.qp, mw, &bind), 0);
	ck_assert_int_eq(rig_wait(r.b.scq).status, IBV_WC_SUCCESS);
	ck_assert_int_eq(window_use(&r, IBV_WR_RDMA_WRITE, old, 0), IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	rig_close(&r);
}
END_TEST

START_TEST(dealloc_revokes)
{
	struct ibv_mw *mw;
	uint32_t rkey;
	struct rig r;

	window_rig(&r);
	mw = window_new(&r, IBV_MW_TYPE_2);
	window_bind(&r, mw, IBV_ACCESS_REMOTE_WRITE);
	rkey = mw->rkey;
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	ck_assert_int_eq(window_use(&r, IBV_WR_RDMA_WRITE, rkey, 4096), IBV_WC_REM_ACCESS_ERR);
	rig_close(&r);
}
END_TEST

/* Keys are recycled last in, first out: the next region gets the key that died last. */
START_TEST(keys_come_back_at_once)
{
	struct ibv_mr *mr;
	uint32_t key;
	struct rig r;

	window_rig(&r);
	mr = ibv_reg_mr(r.b.pd, r.b.buf, 64, 0);
	key = mr->lkey;
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr(r.b.pd, r.b.buf + 64, 64, 0);
	ck_assert_uint_eq(mr->lkey, key);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	rig_close(&r);
}
END_TEST

/* As many as real devices have: 24 bits of index, and no two windows have one. */
START_TEST(each_of_many_has_its_key)
{
	static struct ibv_mw *windows[40000];
	static uint8_t seen[1u << 24];
	const unsigned int n = sizeof(windows) / sizeof(windows[0]);
	struct ibv_device_attr attr;
	struct rig r;

	window_rig(&r);
	ck_assert_int_eq(ibv_query_device(r.b.ctx, &attr), 0);
	ck_assert_int_ge(attr.max_mw, (int)n);
	for (unsigned int i = 0; i < n; i++) {
		windows[i] = window_new(&r, IBV_MW_TYPE_2);
		ck_assert_uint_eq(windows[i]->rkey & 0xff, 0);
		ck_assert_uint_eq(seen[windows[i]->rkey >> 8]++, 0);
	}
	window_bind(&r, windows[n - 1], IBV_ACCESS_REMOTE_WRITE);
	ck_assert_int_eq(window_use(&r, IBV_WR_RDMA_WRITE, windows[n - 1]->rkey, 4096),
			 IBV_WC_SUCCESS);
	ck_assert_int_eq(window_invalidate(&r, windows[n - 1]->rkey), IBV_WC_SUCCESS);
	ck_assert_int_eq(window_use(&r, IBV_WR_RDMA_WRITE, windows[n - 1]->rkey, 4096),
			 IBV_WC_REM_ACCESS_ERR);
	for (unsigned int i = 0; i < n; i++)
		ck_assert_int_eq(ibv_dealloc_mw(windows[i]), 0);
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("windows");
	TCase *t = tcase_create("windows");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, bound_window_gives_what_it_says);
	tcase_add_loop_test(t, key_without_right_fails, 0, 7);
	tcase_add_test(t, window_of_another_queue_pair_fails);
	tcase_add_loop_test(t, bind_is_checked, 0, 4);
	/* On rxe of Linux 6.12.117 it ends the kernel: rxe_invalidate_mw() puts a NULL queue pair. */
	if (rig_double())
		tcase_add_test(t, failed_invalidation_ends_the_connection);
	tcase_add_test(t, nothing_succeeds_behind_a_failure);
	tcase_add_test(t, peer_may_invalidate_with_a_send);
	tcase_add_test(t, type_1_is_bound_by_the_verb);
	tcase_add_test(t, dealloc_revokes);
	/* mlx5's way, not rxe's. */
	if (rig_double()) {
		tcase_add_test(t, keys_come_back_at_once);
		tcase_add_test(t, each_of_many_has_its_key);
	}
	suite_add_tcase(s, t);
	return rig_run(s);
}
