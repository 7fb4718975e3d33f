/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device that is lost while it is asked for something, and says 0 to that: the news of it stands in the queue of its
 * events, unread, when the answer comes.  Such a 0 is no proof.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <infiniband/verbs.h>

#include "backends/engine/engine.h"
#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/softverbs/softverbs.h"
#include "tests/unit/rdma-kit.h"

/* The step in which it happens, once; the control thread takes it. */
enum lost_in { NOTHING, DEREG, RESET, DEALLOC };
static _Atomic int lost_in;
static int (*dealloc_mw)(struct ibv_mw *mw);

static void maybe_lose(struct ibv_context *verbs, int step)
{
	if (atomic_compare_exchange_strong(&lost_in, &step, NOTHING))
		softverbs_event(verbs, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
}

/* Before those of the library. */
int ibv_dereg_mr(struct ibv_mr *mr)
{
	int (*next)(struct ibv_mr *);

	*(void **)&next = dlsym(RTLD_NEXT, "ibv_dereg_mr");
	maybe_lose(mr->context, DEREG);
	return next(mr);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int (*next)(struct ibv_qp *, struct ibv_qp_attr *, int);

	*(void **)&next = dlsym(RTLD_NEXT, "ibv_modify_qp");
	if (attr->qp_state == IBV_QPS_RESET)
		maybe_lose(qp->context, RESET);
	return next(qp, attr, mask);
}

static int spoiled_dealloc(struct ibv_mw *mw)
{
	maybe_lose(mw->context, DEALLOC);
	return dealloc_mw(mw);
}

static const char *const settings[] = {"drain_ms=50", NULL};
static struct end owner, user;
static uint64_t by_owner, by_user;

static struct ibv_context *verbs_of(struct end *e)
{
	return e->engine->contexts[0].native->verbs;
}

static uint64_t grant(uint64_t *remote)
{
	uint8_t buf[4096];
	uint64_t made, len;

	len = end_grant(&owner, by_owner, 0, END_BYTES, ESCROW_MAY_WRITE, buf, sizeof(buf), &made);
	*remote = end_import(&user, by_user, buf, len);
	return made;
}

static void start(void)
{
	end_open(&owner, 'o', settings);
	end_open(&user, 'u', settings);
	ends_connect(&owner, &user, &by_owner, &by_user);
}

/* field-10: the bytes may be written yet. */
START_TEST(a_registration)
{
	end_open(&owner, 'o', settings);
	atomic_store(&lost_in, DEREG);
	ck_assert_int_eq(OPS->deregister_memory(owner.engine, owner.region, 0), ESCROW_IN_PROGRESS);
	end_wait(&owner, ESCROW_EV_DEVICE);
	ck_assert_int_eq(end_wait_of(&owner, ESCROW_EV_QUARANTINED, owner.region).status,
			 ESCROW_E_UNQUIESCED);
	end_never(&owner, ESCROW_EV_REGION_RELEASED);
	ck_assert_uint_eq(end_quarantine(&owner), END_BYTES);
}
END_TEST

/* field-10 */
START_TEST(a_loan)
{
	struct escrow_event ev;
	uint64_t remote, op;

	start();
	grant(&remote);
	softverbs_cqe(end_qp(&user, by_user), SOFTVERBS_CQE_HOLD, 0, 0);
	op = end_submit(&user, remote, ESCROW_WRITE, 0, 0, END_BYTES);
	end_never(&user, ESCROW_EV_OP_DONE);
	atomic_store(&lost_in, RESET);
	ck_assert_int_eq(OPS->disconnect(user.engine, by_user, 0), ESCROW_IN_PROGRESS);
	ev = end_wait_of(&user, ESCROW_EV_OP_DONE, op);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_HELD);
	end_never(&user, ESCROW_EV_OP_RETURNED);
	ck_assert_uint_eq(end_quarantine(&user), END_BYTES);
	end_close(&owner);
}
END_TEST

/* R26: its connection broke, so the window is deallocated. */
START_TEST(a_window)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	uint64_t remote, made;

	start();
	made = grant(&remote);
	dealloc_mw = verbs_of(&owner)->ops.dealloc_mw;
	verbs_of(&owner)->ops.dealloc_mw = spoiled_dealloc;
	atomic_store(&lost_in, DEALLOC);
	ck_assert_int_eq(ibv_modify_qp(end_qp(&owner, by_owner), &attr, IBV_QP_STATE), 0);
	end_move(&user, remote, ESCROW_WRITE, 0, 0, END_BYTES);
	ck_assert_int_eq(end_wait_of(&owner, ESCROW_EV_QUARANTINED, made).status,
			 ESCROW_E_UNQUIESCED);
	end_never(&owner, ESCROW_EV_GRANT_REVOKED);
	ck_assert_uint_eq(end_quarantine(&owner), END_BYTES);
	end_close(&user);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lost");
	TCase *t = tcase_create("lost");

	setenv("SOFTVERBS_RAILS", "1", 1); /* and so one device */
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_registration);
	tcase_add_test(t, a_loan);
	tcase_add_test(t, a_window);
	suite_add_tcase(s, t);
	return testing_run(s);
}
