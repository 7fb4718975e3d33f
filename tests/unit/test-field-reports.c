/* SPDX-License-Identifier: BSD-2-Clause */
/* What users of RDMA transports ran into, one test a report, numbered as in our list of them. */
#include "tests/unit/reports.h"

/* ---- Life of memory ---------------------------------------------------------------------------- */
/* E06 */
START_TEST(field_01_a_late_completion_does_not_end_a_new_op)
{
	uint64_t first, second, remote;
	struct escrow_event ev;
	struct kit a, b;

	remote = connected(&a, &b, NULL);
	kit_plan(&b, "cqe=hold");
	first = kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 4096);
	kit_never(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	pass_time(&b, &a, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).object, first);
	kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, RIGHTS, NULL);
	kit_plan(&b, "nic=hold");
	second = kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 4096);
	ck_assert_uint_ne(first, second);
	kit_plan(&b, "cqe=release");
	kit_never(&b, &a, ESCROW_EV_OP_DONE);
	kit_plan(&b, "clear");
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(ev.object, second);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	kit_never(&b, &a, ESCROW_EV_OP_DONE);
	both_close(&a, &b);
}
END_TEST

/* Q07 */
START_TEST(field_03_canceling_does_not_free_the_buffer)
{
	uint64_t op, remote;
	struct kit a, b;

	remote = connected(&a, &b, NULL);
	kit_plan(&b, "cqe=hold");
	op = kit_transfer(&b, remote, ESCROW_READ, 0, 0, 4096);
	kit_never(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(KIT_OPS->deregister_memory(b.engine, b.region, 0), ESCROW_E_BUSY);
	ck_assert_int_eq(KIT_OPS->cancel(b.engine, op, 0), ESCROW_IN_PROGRESS);
	kit_never(&b, &a, ESCROW_EV_REGION_RELEASED);
	ck_assert_int_eq(KIT_OPS->deregister_memory(b.engine, b.region, 0), ESCROW_E_BUSY);
	kit_plan(&b, "cqe=release");
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(KIT_OPS->deregister_memory(b.engine, b.region, 0), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(kit_wait(&b, &a, ESCROW_EV_REGION_RELEASED).object, b.region);
	both_close(&a, &b);
}
END_TEST

/* field-14: completions are lost for good, the reset proves that the device has let go. */
START_TEST(field_07_lost_completions_are_settled_by_a_proof)
{
	struct escrow_event ev;
	uint64_t remote;
	struct kit a, b;

	remote = connected(&a, &b, NULL);
	kit_plan(&b, "cqe=drop");
	for (int i = 0; i < 4; i++)
		kit_transfer(&b, remote, ESCROW_WRITE, 4096u * (unsigned int)i, 0, 4096);
	ck_assert_uint_eq(charge(&b, ESCROW_CHARGE_OPS).used, 4);
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	pass_time(&b, &a, ESCROW_EV_QUARANTINED);
	for (int i = 0; i < 4; i++) {
		ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
		ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
		ck_assert_int_eq(ev.effect, ESCROW_EFFECT_UNKNOWN);
	}
	kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(charge(&b, ESCROW_CHARGE_OPS).used, 0);
	ck_assert_uint_eq(charge(&b, ESCROW_CHARGE_SQ_SLOTS).used, 0);
	both_close(&a, &b);
}
END_TEST

START_TEST(field_08_closing_with_ops_under_way_ends_each_once)
{
	uint64_t remote;
	int done = 0;
	struct kit a, b;

	remote = connected(&a, &b, NULL);
	kit_plan(&b, "nic=hold");
	for (int i = 0; i < 8; i++)
		kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	kit_close(&b, &a, false);
	for (uint32_t i = 0; i < b.nseen; i++)
		done += b.seen[i].kind == ESCROW_EV_OP_DONE;
	ck_assert_int_eq(done, 8);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* ---- Teardown that fails ------------------------------------------------------------------------- */
START_TEST(field_09_a_failed_destroy_is_never_repeated)
{
	struct escrow_event ev;
	int64_t calls;
	struct kit a, b;

	connected(&a, &b, NULL);
	kit_plan(&b, "destroy_qp=effect");
	ck_assert_int_eq(KIT_OPS->close(b.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	pass_time(&b, &a, ESCROW_EV_CLOSED);
	do
		ev = kit_wait(&b, &a, ESCROW_EV_QUARANTINED);
	while (ev.object);
	calls = kit_faults(&b)->calls(b.engine, ESCROW_STEP_DESTROY_QP);
	ck_assert_int_ge(calls, 1);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(KIT_OPS->close(b.engine, 0, ESCROW_CLOSE_ABORT),
				 ESCROW_IN_PROGRESS);
		do
			ev = kit_wait(&b, &a, ESCROW_EV_QUARANTINED);
		while (ev.object);
		ck_assert_uint_eq(ev.flags & ESCROW_EVF_REPEAT, ESCROW_EVF_REPEAT);
	}
	ck_assert_int_eq(kit_faults(&b)->calls(b.engine, ESCROW_STEP_DESTROY_QP), calls);
	KIT_OPS->release(b.engine);
	b.engine = NULL;
	kit_close(&a, NULL, false);
}
END_TEST

START_TEST(field_10_after_a_fatal_event_no_answer_is_a_proof)
{
	struct escrow_event ev;
	uint64_t remote;
	struct kit a, b;

	remote = connected(&a, &b, NULL);
	kit_plan(&b, "cqe=hold");
	kit_transfer(&b, remote, ESCROW_READ, 0, 0, 4096);
	kit_never(&b, &a, ESCROW_EV_OP_DONE);
	kit_plan(&b, "device=fatal");
	kit_wait(&b, &a, ESCROW_EV_DEVICE);
	ck_assert_int_eq(KIT_OPS->close(b.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	pass_time(&b, &a, ESCROW_EV_REGION_RELEASED);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_HELD);
	ev = kit_wait(&b, &a, ESCROW_EV_QUARANTINED);
	while (ev.object)
		ev = kit_wait(&b, &a, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.bytes, KIT_BYTES);
	KIT_OPS->release(b.engine);
	b.engine = NULL;
	kit_close(&a, NULL, false);
}
END_TEST

START_TEST(field_13_a_dead_peer_costs_no_queue_slot)
{
	uint64_t remote;
	struct kit a, b;

	remote = connected(&a, &b, NULL);
	for (int i = 0; i < 8; i++)
		kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	kit_plan(&a, "peer=kill");
	kit_plan(&b, "peer=kill");
	kit_wait(&b, &a, ESCROW_EV_PEER_LOST);
	pass_time(&b, &a, ESCROW_EV_QUARANTINED);
	kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(charge(&b, ESCROW_CHARGE_OPS).used, 0);
	ck_assert_uint_eq(charge(&b, ESCROW_CHARGE_SQ_SLOTS).used, 0);
	ck_assert_uint_eq(charge(&b, ESCROW_CHARGE_CQ_SLOTS).used, 0);
	ck_assert_uint_eq(charge(&b, ESCROW_CHARGE_CONNECTIONS).used, 0);
	both_close(&a, &b);
}
END_TEST

START_TEST(field_18_a_failed_deregistration_stays_visible)
{
	static char other[4096];
	struct escrow_charge c;
	struct escrow_event ev;
	uint64_t region;
	struct kit a;

	kit_start(&a, "a");
	kit_plan(&a, "deregister@1=fail");
	ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, a.region, 0), ESCROW_IN_PROGRESS);
	ev = kit_wait(&a, NULL, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.object, a.region);
	ck_assert_uint_eq(ev.bytes, KIT_BYTES);
	ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, a.region, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(kit_faults(&a)->calls(a.engine, ESCROW_STEP_DEREGISTER), 1);
	c = charge(&a, ESCROW_CHARGE_BYTES);
	ck_assert_uint_eq(c.stuck, KIT_BYTES);
	ck_assert_int_eq(lend(&a, other, sizeof(other), &region, NULL), ESCROW_OK);
	c = charge(&a, ESCROW_CHARGE_BYTES);
	ck_assert_uint_eq(c.used, KIT_BYTES + sizeof(other));
	kit_close(&a, NULL, true);
}
END_TEST

START_TEST(field_19_what_is_busy_is_left_as_it_was)
{
	uint64_t remote, grant, id;
	struct kit a, b;

	remote = connected(&a, &b, &grant);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, a.region, 0), ESCROW_E_BUSY);
	ck_assert_int_eq(kit_faults(&a)->calls(a.engine, ESCROW_STEP_DEREGISTER), 0);
	id = kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_uint_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).object, id);
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grant, 0), ESCROW_IN_PROGRESS);
	kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED);
	ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, a.region, 0), ESCROW_IN_PROGRESS);
	kit_wait(&a, &b, ESCROW_EV_REGION_RELEASED);
	both_close(&a, &b);
}
END_TEST

/* ---- Limits ------------------------------------------------------------------------------------------ */
START_TEST(field_37_zero_bytes)
{
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t remote, region = 7;
	struct escrow_event ev;
	struct kit a, b;

	remote = connected(&a, &b, NULL);
	kit_transfer(&b, remote, ESCROW_WRITE, KIT_BYTES, KIT_BYTES, 0);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_uint_eq(ev.bytes, 0);
	ck_assert_int_eq(lend(&b, b.memory, 0, &region, &error), ESCROW_E_INVALID);
	ck_assert_uint_eq(region, 7);
	ck_assert_ptr_nonnull(strstr(error.text, "0"));
	both_close(&a, &b);
}
END_TEST

START_TEST(field_38_full_queues_refuse_and_lose_nothing)
{
	uint64_t remote, id, accepted = 0;
	struct kit a, b;
	int32_t n = 1;

	remote = connected(&a, &b, NULL);
	kit_plan(&b, "nic=hold");
	while (accepted < 100000) {
		id = 7;
		n = try_op(&b, remote, (struct escrow_sge){b.region, 0, 64}, 0, &id);
		if (n != 1)
			break;
		accepted++;
	}
	ck_assert_int_eq(n, ESCROW_E_AGAIN);
	ck_assert_uint_eq(id, 7);
	ck_assert_uint_eq(charge(&b, ESCROW_CHARGE_OPS).used, accepted);
	kit_plan(&b, "clear");
	for (uint64_t i = 0; i < accepted; i++)
		ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	kit_wait(&b, &a, ESCROW_EV_ROOM);
	kit_never(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(charge(&b, ESCROW_CHARGE_OPS).used, 0);
	both_close(&a, &b);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("field-reports");
	TCase *t = tcase_create("reports");

	tcase_add_test(t, field_01_a_late_completion_does_not_end_a_new_op);
	tcase_add_test(t, field_03_canceling_does_not_free_the_buffer);
	tcase_add_test(t, field_07_lost_completions_are_settled_by_a_proof);
	tcase_add_test(t, field_08_closing_with_ops_under_way_ends_each_once);
	tcase_add_test(t, field_09_a_failed_destroy_is_never_repeated);
	tcase_add_test(t, field_10_after_a_fatal_event_no_answer_is_a_proof);
	tcase_add_test(t, field_13_a_dead_peer_costs_no_queue_slot);
	tcase_add_test(t, field_18_a_failed_deregistration_stays_visible);
	tcase_add_test(t, field_19_what_is_busy_is_left_as_it_was);
	tcase_add_test(t, field_37_zero_bytes);
	tcase_add_test(t, field_38_full_queues_refuse_and_lose_nothing);
	suite_add_tcase(s, t);
	return testing_run(s);
}
