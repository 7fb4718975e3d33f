/* SPDX-License-Identifier: BSD-2-Clause */
/* The ladder by which connections end, step by failed step; what is quarantined and what is not. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <escrow/fence.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

/* Two engines, b has a remote of a, and an op of b whose completion does not come. */
static uint64_t stuck_op(struct kit *a, struct kit *b)
{
	uint64_t remote;

	kit_start(a, "a");
	kit_start(b, "b");
	kit_connect(a, b);
	remote = kit_grant(a, b, ESCROW_MAY_READ | ESCROW_MAY_WRITE, NULL);
	kit_plan(b, "cqe=hold");
	return kit_transfer(b, remote, ESCROW_WRITE, 0, 0, 4096);
}

static void pass_time(struct kit *a, struct kit *b, uint16_t stray)
{
	int i;

	for (i = 0; i < 20; i++) {
		kit_now += 50000000;
		kit_never(a, b, stray);
	}
}

/* Q01, field-23: whoever polls takes the steps here. The completion is withheld, the reset proves: the bytes come back, what happened is unknown. */
START_TEST(reset_returns_the_loan)
{
	struct escrow_event ev;
	struct kit a, b;
	uint64_t op = stuck_op(&a, &b);

	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	pass_time(&b, &a, ESCROW_EV_QUARANTINED);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(ev.object, op);
	ck_assert_int_eq(ev.status, ESCROW_E_CANCELED);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_UNKNOWN);
	ev = kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* Q02 */
START_TEST(failed_reset_keeps_the_loan)
{
	struct escrow_event ev;
	struct kit a, b;
	uint64_t op = stuck_op(&a, &b);

	kit_plan(&b, "qp_reset=fail;destroy_qp=fail");
	ck_assert_int_eq(KIT_OPS->close(b.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	pass_time(&b, &a, ESCROW_EV_CLOSED);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(ev.object, op);
	ck_assert_int_eq(ev.status, ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_HELD);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_UNKNOWN);
	ev = kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	ck_assert_int_eq(ev.status, ESCROW_E_UNQUIESCED);
	ev = kit_wait(&b, &a, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.object, b.region);
	ck_assert_uint_eq(ev.bytes, KIT_BYTES);
	ev = kit_wait(&b, &a, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.object, 0);
	ck_assert_uint_eq(ev.bytes, KIT_BYTES);
	/* The late completion settles the loan, and the region goes; no native step is repeated. */
	kit_plan(&b, "cqe=release");
	ev = kit_wait(&b, &a, ESCROW_EV_OP_RETURNED);
	ck_assert_uint_eq(ev.object, op);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ev = kit_wait(&b, &a, ESCROW_EV_REGION_RELEASED);
	ck_assert_uint_eq(ev.object, b.region);
	KIT_OPS->release(b.engine);
	b.engine = NULL;
	kit_close(&a, NULL, false);
}
END_TEST

/*
 * Of an op on two lanes one may get its last slices back before the other has told that they are held.  Here that one
 * is played: what the ledger gives out of it comes before the connection gets stuck.
 */
START_TEST(returned_on_one_lane_before_it_is_held_on_another)
{
	struct ledger_done back = {.what = LEDGER_DONE_RETURNED,
				   .custody = ESCROW_CUSTODY_RETURNED,
				   .effect = ESCROW_EFFECT_EXECUTED,
				   .bytes = 4096};
	struct escrow_event held, returned;
	struct kit a, b;
	uint64_t op = stuck_op(&a, &b);
	struct lane *lane = &b.engine->lanes[0];

	back.user = (uint64_t)(en_op_find(b.engine, op) - b.engine->op_table);
	en_lane_lock(lane);
	en_settle(lane, &back, 0);
	en_lane_unlock(lane);
	kit_never(&b, &a, ESCROW_EV_OP_RETURNED);
	kit_plan(&b, "qp_reset=fail;destroy_qp=fail");
	ck_assert_int_eq(KIT_OPS->close(b.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	pass_time(&b, &a, ESCROW_EV_CLOSED);
	held = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(held.object, op);
	ck_assert_int_eq(held.custody, ESCROW_CUSTODY_HELD);
	returned = kit_wait(&b, &a, ESCROW_EV_OP_RETURNED);
	ck_assert_uint_eq(returned.object, op);
	ck_assert_int_eq(returned.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(returned.effect, ESCROW_EFFECT_EXECUTED);
	ck_assert_uint_eq(returned.bytes, 4096);
	ck_assert_uint_gt(returned.seq, held.seq);
	ck_assert_ptr_null(en_op_find(b.engine, op));
	KIT_OPS->release(b.engine);
	b.engine = NULL;
	kit_close(&a, NULL, false);
}
END_TEST

/* R05: the owner's side: neither the invalidation nor the window's deallocation works. */
START_TEST(dead_keys_are_proved)
{
	struct escrow_event ev;
	struct kit a, b;
	uint64_t grant;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	kit_grant(&a, &b, ESCROW_MAY_WRITE, &grant);
	kit_plan(&a, "invalidate=fail;dealloc_window=fail");
	ck_assert_int_eq(KIT_OPS->close(a.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	pass_time(&a, &b, ESCROW_EV_CLOSED);
	ev = kit_wait(&a, &b, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.object, grant);
	ev = kit_wait(&a, &b, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.object, a.region);
	ev = kit_wait(&a, &b, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.object, 0);
	ck_assert_int_eq(kit_faults(&a)->calls(a.engine, ESCROW_STEP_DEREGISTER) > 1, 0);
	KIT_OPS->release(a.engine);
	a.engine = NULL;
	kit_close(&b, NULL, false);
}
END_TEST

/* b asks for what a offers to all; the offer. */
static uint64_t taken_offer(struct kit *a, struct kit *b)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .region = a->region,
					 .length = 4096,
					 .rights = ESCROW_MAY_WRITE};
	uint64_t offer, remote, len;
	uint8_t bytes[4096];

	ck_assert_int_eq(KIT_OPS->grant(a->engine, &args, &offer, NULL), ESCROW_OK);
	len = sizeof(bytes);
	ck_assert_int_eq(KIT_OPS->export_grant(a->engine, offer, bytes, &len), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->import_grant(b->engine, b->peer, bytes, len, 0, &remote, NULL),
			 ESCROW_IN_PROGRESS);
	ck_assert_int_eq(kit_wait(b, a, ESCROW_EV_REMOTE_READY).status, ESCROW_OK);
	return offer;
}

/* An offer has not ended while the keys that somebody got by it are not proved dead. */
START_TEST(dead_keys_of_an_offer_are_proved)
{
	struct escrow_limits limits = {.size = sizeof(limits)};
	const struct escrow_fence *fence;
	struct kit a, b;
	uint64_t offer;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	offer = taken_offer(&a, &b);
	kit_plan(&a, "invalidate=fail;dealloc_window=fail");
	ck_assert_int_eq(KIT_OPS->close(a.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	pass_time(&a, &b, ESCROW_EV_GRANT_REVOKED);
	ck_assert_uint_eq(kit_wait(&a, &b, ESCROW_EV_QUARANTINED).object, offer);
	ck_assert_uint_eq(kit_wait(&a, &b, ESCROW_EV_QUARANTINED).object, a.region);
	ck_assert_uint_eq(kit_wait(&a, &b, ESCROW_EV_QUARANTINED).object, 0);

	/* Until somebody proves it. */
	KIT_OPS->query(a.engine, &limits);
	fence = KIT_OPS->get_extension(a.engine, ESCROW_FENCE_ID);
	ck_assert_int_eq(
		fence->fenced(a.engine, limits.incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
		ESCROW_OK);
	ck_assert_uint_eq(kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED).object, offer);
	KIT_OPS->release(a.engine);
	a.engine = NULL;
	kit_close(&b, NULL, false);
}
END_TEST

/* How often all connections of the engine made a step. */
static int64_t calls(struct kit *k, uint32_t step)
{
	return kit_faults(k)->calls(k->engine, step);
}

/* One connection, no debt: ERR is the fence if it worked, else only RESET is. */
static void end_idle(const char *plan, int64_t resets)
{
	struct kit a, b;
	int64_t made;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	made = calls(&b, ESCROW_STEP_CREATE_QP);
	ck_assert_int_gt(made, 0);
	kit_plan(&b, plan);
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_PEER_DOWN).status, ESCROW_OK);
	ck_assert_int_eq(calls(&b, ESCROW_STEP_QP_ERR), made);
	ck_assert_int_eq(calls(&b, ESCROW_STEP_QP_RESET), resets * made);
	ck_assert_int_eq(calls(&b, ESCROW_STEP_DESTROY_QP), made);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
}

START_TEST(err_that_works_needs_no_reset)
{
	end_idle("", 0);
}
END_TEST

START_TEST(err_that_fails_needs_a_reset)
{
	end_idle("qp_err=fail", 1);
}
END_TEST

/* ERR failed, the queue pair goes on: its completions are waited for before it is reset. */
START_TEST(err_that_fails_leaves_time)
{
	struct escrow_event ev;
	struct kit a, b;
	uint64_t op = stuck_op(&a, &b);

	kit_plan(&b, "qp_err=fail");
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	kit_never(&b, &a, ESCROW_EV_OP_DONE);
	/* The connections that owe nothing are reset at once. */
	ck_assert_int_eq(calls(&b, ESCROW_STEP_QP_RESET), calls(&b, ESCROW_STEP_CREATE_QP) - 1);
	kit_plan(&b, "cqe=release");
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(ev.object, op);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_EXECUTED);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_PEER_DOWN).status, ESCROW_OK);
	ck_assert_int_eq(calls(&b, ESCROW_STEP_QP_RESET), calls(&b, ESCROW_STEP_CREATE_QP));
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
}
END_TEST

/* RESET is graded weak: the ladder goes on to the destroy, and the loan stays whatever that says. */
static void weak_reset(const char *plan)
{
	static const char *const settings[] = {"weak.reset=1", "weak.destroy=1",   "test.faults=1",
					       "drain_ms=100", "control_thread=0", NULL};
	struct escrow_event ev;
	struct kit a, b;
	uint64_t op;

	kit_settings = settings;
	op = stuck_op(&a, &b);
	kit_plan(&b, plan);
	ck_assert_int_eq(KIT_OPS->close(b.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	pass_time(&b, &a, ESCROW_EV_CLOSED);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(ev.object, op);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_HELD);
	ev = kit_wait(&b, &a, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.object, b.region);
	/* No sentinel's completion comes either: every connection takes all rungs, once. */
	ck_assert_int_eq(calls(&b, ESCROW_STEP_QP_RESET), calls(&b, ESCROW_STEP_CREATE_QP));
	ck_assert_int_eq(calls(&b, ESCROW_STEP_DESTROY_QP), calls(&b, ESCROW_STEP_CREATE_QP));
	ck_assert_int_eq(calls(&b, ESCROW_STEP_DEREGISTER) > 1, 0);
	ck_assert_int_eq(calls(&b, ESCROW_STEP_DESTROY_CQ), 0);
	ev = kit_wait(&b, &a, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.object, 0);
	KIT_OPS->release(b.engine);
	b.engine = NULL;
	kit_close(&a, NULL, false);
}

START_TEST(weak_reset_keeps_the_loan)
{
	weak_reset("");
}
END_TEST

START_TEST(weak_reset_and_failed_destroy_keep_the_loan)
{
	weak_reset("destroy_qp=fail");
}
END_TEST

/* Only RESET is weak: the destroy that comes behind it is the proof, for the loans too. */
START_TEST(a_strong_destroy_returns_the_loan)
{
	static const char *const settings[] = {"weak.reset=1", "test.faults=1", "drain_ms=100",
					       "control_thread=0", NULL};
	struct escrow_event ev;
	struct kit a, b;
	uint64_t op;

	kit_settings = settings;
	op = stuck_op(&a, &b);
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	pass_time(&b, &a, ESCROW_EV_QUARANTINED);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(ev.object, op);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_UNKNOWN);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_PEER_DOWN).status, ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->deregister_memory(b.engine, b.region, 0), ESCROW_IN_PROGRESS);
	kit_wait(&b, &a, ESCROW_EV_REGION_RELEASED);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
}
END_TEST

static int64_t all_calls(struct kit *k)
{
	int64_t n = 0;

	for (uint32_t step = ESCROW_STEP_REGISTER; step <= ESCROW_STEP_CLOSE_DEVICE; step++)
		n += calls(k, step);
	return n;
}

/* From now on the device is asked nothing, everything that lives in it is quarantined, and stays so. */
static void is_frozen(struct kit *k, struct kit *other, int64_t made)
{
	struct escrow_limits limits = {.size = sizeof(limits)};

	kit_wait(k, other, ESCROW_EV_DEVICE);
	ck_assert_int_eq(KIT_OPS->query(k->engine, &limits), ESCROW_OK);
	ck_assert_uint_eq(limits.state, ESCROW_STATE_FAILED);
	ck_assert_int_eq(KIT_OPS->close(k->engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	pass_time(k, other, ESCROW_EV_CLOSED);
	ck_assert_uint_eq(kit_wait(k, other, ESCROW_EV_QUARANTINED).object, k->region);
	ck_assert_int_eq(all_calls(k), made);
	KIT_OPS->release(k->engine);
	k->engine = NULL;
}

/* ENODEV from any step is the device's end, not the end of one object. */
START_TEST(no_such_device_freezes)
{
	struct kit a, b;
	int64_t made;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	kit_plan(&b, "alloc_window=fail:ENODEV");
	made = all_calls(&b);
	ck_assert_int_eq(
		KIT_OPS->grant(b.engine,
			       &(struct escrow_grant_args){.size = sizeof(struct escrow_grant_args),
							   .rights = ESCROW_MAY_READ,
							   .peer = b.peer,
							   .region = b.region,
							   .length = 4096},
			       &(uint64_t){0}, NULL),
		ESCROW_IN_PROGRESS);
	is_frozen(&b, &a, made + 1);
	kit_close(&a, NULL, false);
}
END_TEST

START_TEST(no_such_device_while_closing)
{
	struct kit a, b;
	int64_t made;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	kit_plan(&b, "qp_err@1=fail:ENODEV");
	made = all_calls(&b);
	ck_assert_int_eq(KIT_OPS->close(b.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	pass_time(&b, &a, ESCROW_EV_CLOSED);
	ck_assert_uint_eq(kit_wait(&b, &a, ESCROW_EV_QUARANTINED).object, b.region);
	ck_assert_int_eq(all_calls(&b), made + 1);
	KIT_OPS->release(b.engine);
	b.engine = NULL;
	kit_close(&a, NULL, false);
}
END_TEST

/* A channel of completions that is closed: only the removal of the device does that. */
START_TEST(closed_channel_freezes)
{
	struct kit a, b;
	int64_t made;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	made = all_calls(&b);
	kit_wakeups = EIO;
	ck_assert_int_ge(KIT_OPS->arm(b.engine, 0), ESCROW_OK);
	kit_wakeups = 0;
	is_frozen(&b, &a, made);
	kit_close(&a, NULL, false);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-teardown");
	TCase *t = tcase_create("ladder");

	tcase_add_test(t, reset_returns_the_loan);
	tcase_add_test(t, failed_reset_keeps_the_loan);
	tcase_add_test(t, returned_on_one_lane_before_it_is_held_on_another);
	tcase_add_test(t, dead_keys_are_proved);
	tcase_add_test(t, dead_keys_of_an_offer_are_proved);
	tcase_add_test(t, no_such_device_freezes);
	tcase_add_test(t, no_such_device_while_closing);
	tcase_add_test(t, closed_channel_freezes);
	tcase_add_test(t, err_that_works_needs_no_reset);
	tcase_add_test(t, err_that_fails_needs_a_reset);
	tcase_add_test(t, err_that_fails_leaves_time);
	tcase_add_test(t, weak_reset_keeps_the_loan);
	tcase_add_test(t, weak_reset_and_failed_destroy_keep_the_loan);
	tcase_add_test(t, a_strong_destroy_returns_the_loan);
	suite_add_tcase(s, t);
	return testing_run(s);
}
