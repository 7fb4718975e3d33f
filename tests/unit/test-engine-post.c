/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posts that fail when the device has the requests already, as where only the doorbell fails.  What was
 * posted is owed until it is proved to have ended, and the connection that has it ends.
 */
#include <errno.h>
#include <stdlib.h>

#include "backends/mock/mock.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

static struct kit a, b; /* a grants */
static bool faults;

static void start(void)
{
	static const char *const with[] = {"test.faults=1", "drain_ms=100",     "control_thread=0",
					   "max_rails=1",   "slice_bytes=4096", NULL};

	kit_settings = faults ? with : &with[1];
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_settings = NULL;
	kit_connect(&a, &b);
}

static void finish(void)
{
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

static int64_t calls(struct kit *k, uint32_t step)
{
	return kit_faults(k)->calls(k->engine, step);
}

static void came_back(uint64_t op)
{
	struct escrow_event ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);

	ck_assert_uint_eq(ev.object, op);
	ck_assert_int_eq(ev.status, ESCROW_E_PEER_LOST);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_UNKNOWN);
}

/* Q40: the op is the device's although its post failed, and its completion does not come: the reset gives it back. */
START_TEST(an_op)
{
	uint64_t remote, op;

	faults = true;
	start();
	remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, NULL);
	kit_plan(&b, "cqe=hold;post@1=effect:ENOMEM");
	op = kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 4096);
	kit_never(&b, &a, ESCROW_EV_OP_DONE);
	kit_now += 1000000000;
	came_back(op);
	ck_assert_int_eq(calls(&b, ESCROW_STEP_QP_RESET), 1);
	finish();
}
END_TEST

static uint32_t takes; /* of the next chain of WRITEs, which then fails, and is never run */

static int unrung(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	if (!takes || wr->opcode != NATIVE_WRITE)
		return mock_native.post(c, wr, n, posted);
	*posted = takes < n ? takes : n;
	takes = 0;
	return ENOMEM;
}

/* Q40: the device was never told of what stands in its queue, and nothing else is posted: the op ends all the same. */
START_TEST(an_op_that_is_not_run)
{
	uint64_t remote, op;

	faults = false;
	start();
	remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, NULL);
	kit_table.post = unrung;
	takes = (uint32_t)_i;
	op = kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 3 * 4096);
	ck_assert_uint_eq(takes, 0);
	came_back(op);
	finish();
}
END_TEST

/* The grant ends with its window, not before: the device has an operation on that which did not end. */
static void grant_ended(void)
{
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED).status, ESCROW_OK);
	ck_assert_int_eq(calls(&a, ESCROW_STEP_QP_ERR), 1);
	ck_assert_int_eq(calls(&a, ESCROW_STEP_DEALLOC_WINDOW), 1);
	kit_wait(&a, &b, ESCROW_EV_PEER_LOST);
	finish();
}

/* Q40: a bind that is the device's: its window is not used again, and its range not given back for nothing. */
START_TEST(a_bind)
{
	struct escrow_grant_args args = {
		.size = sizeof(args), .rights = ESCROW_MAY_WRITE, .length = 4096};
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t grant;

	faults = true;
	start();
	args.peer = a.peer;
	args.region = a.region;
	kit_plan(&a, "cqe=hold;bind_window@1=effect:ENOMEM");
	ck_assert_int_eq(KIT_OPS->grant(a.engine, &args, &grant, &error), ESCROW_IN_PROGRESS);
	grant_ended();
}
END_TEST

/* Q40: and an invalidation of which nobody knows. */
START_TEST(an_invalidation)
{
	uint64_t grant;

	faults = true;
	start();
	kit_grant(&a, &b, ESCROW_MAY_WRITE, &grant);
	kit_plan(&a, "cqe=hold;invalidate@1=effect:ENOMEM");
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grant, 0), ESCROW_IN_PROGRESS);
	grant_ended();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-post");
	TCase *t = tcase_create("failed");

	tcase_add_test(t, an_op);
	tcase_add_loop_test(t, an_op_that_is_not_run, 1, 4);
	tcase_add_test(t, a_bind);
	tcase_add_test(t, an_invalidation);
	suite_add_tcase(s, t);
	return testing_run(s);
}
