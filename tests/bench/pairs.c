/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a grant and its revocation cost, beside the bind and the local invalidation that they are made of:
 *
 *	pairs escrow|raw ROUNDS BATCH
 *
 * A round asks for BATCH grants, waits until the device has done everything, polls until all are told, and takes them
 * back in the same way; the bare loop posts the binds as one chain, and the invalidations as another. Run by
 * tests/bench/instructions, which counts and subtracts; ROUNDS is less than the binds a window has.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/callgrind.h"
#include "tests/bench/window.h"
#include "tests/softverbs/rig.h"
#include "tests/unit/rdma-kit.h"

#define BATCH_MAX 64u
#define DEPTH 128u
#define BYTES 4096u

static struct {
	uint32_t raw, rounds, batch;
} args;

/* ---- Bare verbs -------------------------------------------------------------------------------- */
static void raw_submit(struct rig *r, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	for (uint32_t i = 0; i < args.batch; i++) {
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].next = i + 1 < args.batch ? &wr[i + 1] : NULL;
	}
	if (ibv_post_send(r->a.qp, wr, &bad))
		abort();
}

static void raw_reap(struct rig *r, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(r->a.scq, BATCH_MAX, wc);

	if (n != (int)args.batch)
		abort();
	for (int i = 0; i < n; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			abort();
}

/* Called by pointer, so that each stays a function of its name: what is counted is what runs inside. */
static void (*volatile const submit)(struct rig *r, struct ibv_send_wr *wr) = raw_submit;
static void (*volatile const reap)(struct rig *r, struct ibv_wc *wc) = raw_reap;

static void post_all(struct rig *r, struct ibv_send_wr *wr)
{
	struct ibv_wc wc[BATCH_MAX];

	submit(r, wr);
	rig_settle();
	reap(r, wc);
}

static void raw_round(struct rig *r, struct ibv_mw **windows, struct ibv_mr *mr)
{
	struct ibv_send_wr bind[BATCH_MAX] = {0}, end[BATCH_MAX] = {0};

	for (uint32_t i = 0; i < args.batch; i++)
		window_pair(windows[i], mr, BYTES, IBV_ACCESS_REMOTE_WRITE, &bind[i], &end[i]);
	post_all(r, bind);
	for (uint32_t i = 0; i < args.batch; i++)
		windows[i]->rkey = end[i].invalidate_rkey;
	post_all(r, end);
}

static void raw(void)
{
	struct ibv_mw *windows[BATCH_MAX];
	struct ibv_mr *mr;
	struct rig r;

	rig_defaults(&r);
	r.depth = DEPTH;
	r.cqe = 2 * DEPTH;
	rig_connect(&r);
	mr = ibv_reg_mr(r.a.pd, r.a.buf, BYTES,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
	ck_assert_ptr_nonnull(mr);
	for (uint32_t i = 0; i < args.batch; i++) {
		windows[i] = ibv_alloc_mw(r.a.pd, IBV_MW_TYPE_2);
		ck_assert_ptr_nonnull(windows[i]);
	}
	CALLGRIND_START_INSTRUMENTATION;
	for (uint32_t i = 0; i < args.rounds; i++)
		raw_round(&r, windows, mr);
	CALLGRIND_STOP_INSTRUMENTATION;
	for (uint32_t i = 0; i < args.batch; i++)
		ck_assert_int_eq(ibv_dealloc_mw(windows[i]), 0);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	rig_close(&r);
}

/* ---- Grants -------------------------------------------------------------------------------------- */
/* Events of all of them, in as many polls as it takes. */
static void await(struct end *owner, uint16_t kind)
{
	struct escrow_event events[BATCH_MAX];
	uint32_t left = args.batch;

	while (left) {
		int32_t n;

		rig_settle();
		n = OPS->poll(owner->engine, events, BATCH_MAX, sizeof(events[0]), 0);
		for (int32_t i = 0; i < n; i++)
			if (events[i].kind != kind || events[i].status != ESCROW_OK)
				abort();
		left -= (uint32_t)n;
	}
}

static void a_round(struct end *owner, uint64_t peer)
{
	struct escrow_grant_args grant = {.size = sizeof(grant),
					  .rights = ESCROW_MAY_WRITE,
					  .peer = peer,
					  .region = owner->region,
					  .length = BYTES};
	uint64_t grants[BATCH_MAX];

	for (uint32_t i = 0; i < args.batch; i++)
		if (OPS->grant(owner->engine, &grant, &grants[i], NULL) != ESCROW_IN_PROGRESS)
			abort();
	await(owner, ESCROW_EV_GRANT_READY);
	for (uint32_t i = 0; i < args.batch; i++)
		if (OPS->revoke(owner->engine, grants[i], 0) != ESCROW_IN_PROGRESS)
			abort();
	await(owner, ESCROW_EV_GRANT_REVOKED);
}

static void escrow(void)
{
	static const char *const settings[] = {"max_rails=1", "num_lanes=1", NULL};
	uint64_t by_owner, by_user;
	struct end owner, user;

	end_open(&owner, 'o', settings);
	end_open(&user, 'u', settings);
	ends_connect(&owner, &user, &by_owner, &by_user);
	a_round(&owner, by_owner); /* which makes the windows */
	CALLGRIND_START_INSTRUMENTATION;
	for (uint32_t i = 0; i < args.rounds; i++)
		a_round(&owner, by_owner);
	CALLGRIND_STOP_INSTRUMENTATION;
	end_close(&user);
	end_close(&owner);
}

START_TEST(run)
{
	if (args.raw)
		raw();
	else
		escrow();
}
END_TEST

int main(int argc, char **argv)
{
	if (argc == 4) {
		args.rounds = (uint32_t)strtoul(argv[2], NULL, 10);
		args.batch = (uint32_t)strtoul(argv[3], NULL, 10);
	}
	if (args.batch < 1 || args.batch > BATCH_MAX) {
		fprintf(stderr, "usage: pairs escrow|raw ROUNDS BATCH\n");
		return 2;
	}
	args.raw = strcmp(argv[1], "raw") == 0;
	return rig_run_here("pairs", run);
}
