/* SPDX-License-Identifier: BSD-2-Clause */
/* The working path of an engine: open, connect, grant, transfer, revoke, close. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "backends/mock/mock.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

START_TEST(open_and_close)
{
	struct kit a;

	kit_start(&a, "a");
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* Every allocation of open fails once: each time E_NO_MEMORY, and nothing stays. */
START_TEST(open_without_memory)
{
	escrow_status st = ESCROW_E_NO_MEMORY;
	int64_t at;

	for (at = 1; st == ESCROW_E_NO_MEMORY; at++) {
		struct escrow_error error = {.size = sizeof(error)};
		struct kit a;

		kit_fail_at = at;
		st = kit_open(&a, "a", NULL, &error);
		kit_fail_at = 0;
		if (st == ESCROW_OK) {
			kit_close(&a, NULL, false);
			break;
		}
		ck_assert_int_eq(st, ESCROW_E_NO_MEMORY);
		ck_assert_uint_eq(kit_allocs, 0);
	}
	ck_assert_int_eq(st, ESCROW_OK);
	ck_assert_int_gt(at, 10);
}
END_TEST

START_TEST(write_read_and_revoke)
{
	struct kit a, b;
	uint64_t grant, remote, op;
	struct escrow_event ev;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_READ | ESCROW_MAY_WRITE, &grant);
	op = kit_transfer(&b, remote, ESCROW_WRITE, 1000, 100, 5000);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(ev.object, op);
	ck_assert_uint_eq(ev.user, 1234);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_EXECUTED);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(ev.bytes, 5000);
	ck_assert_int_eq(a.memory[99], 'a');
	ck_assert_int_eq(a.memory[100], 'b');
	ck_assert_int_eq(a.memory[5099], 'b');
	ck_assert_int_eq(a.memory[5100], 'a');
	kit_transfer(&b, remote, ESCROW_READ, 0, 50, 100);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_int_eq(b.memory[49], 'a');
	ck_assert_int_eq(b.memory[50], 'b');
	ck_assert_int_eq(b.memory[99], 'b');
	ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, a.region, 0), ESCROW_E_BUSY);
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grant, 0), ESCROW_IN_PROGRESS);
	ev = kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED);
	ck_assert_uint_eq(ev.object, grant);
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grant, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, a.region, 0), ESCROW_IN_PROGRESS);
	ev = kit_wait(&a, &b, ESCROW_EV_REGION_RELEASED);
	ck_assert_uint_eq(ev.user, 77);
	ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, a.region, 0), ESCROW_E_INVALID);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* Q16 */
START_TEST(access_after_revoke_is_refused)
{
	struct kit a, b;
	uint64_t grant, remote;
	struct escrow_event ev;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, &grant);
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grant, 0), ESCROW_IN_PROGRESS);
	kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED);
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 10);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(ev.status, ESCROW_E_ACCESS);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(a.memory[0], 'a');
	/* A refused access costs the connection it came by, on both ends. */
	kit_wait(&b, &a, ESCROW_EV_PEER_LOST);
	kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	kit_wait(&a, &b, ESCROW_EV_PEER_DOWN);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
}
END_TEST

static struct escrow_charge grants_of(struct kit *k, const char *name)
{
	struct escrow_charge c[64];
	int32_t n = KIT_OPS->charges(k->engine, c, 64, sizeof(c[0]));

	for (int32_t i = 0; i < n; i++)
		if (c[i].kind == ESCROW_CHARGE_GRANTS && strcmp(c[i].peer_name, name) == 0)
			return c[i];
	return (struct escrow_charge){0};
}

/*
 * The registration of a grant cannot be ended: its bytes are the region's, which stays with it, and it
 * is the grant's, which is charged.
 */
START_TEST(inexact_windows_keep_their_region)
{
	static struct kit a, b; /* not freed: in quarantine */
	uint64_t grant;
	struct escrow_event ev;

	kit_inexact = true;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_inexact = false;
	kit_connect(&a, &b);
	kit_grant_from(&a, &b, ESCROW_MAY_WRITE, 4096, &grant);
	kit_plan(&a, "deregister@1=fail:5");
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grant, 0), ESCROW_IN_PROGRESS);
	ev = kit_wait(&a, &b, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.object, grant);
	ck_assert_uint_eq(grants_of(&a, "").used, 1);
	ck_assert_uint_eq(grants_of(&a, "").stuck, 1);
	ck_assert_uint_eq(grants_of(&a, "b").stuck, 1);
	ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, a.region, 0), ESCROW_E_BUSY);
	kit_close(&b, &a, false);
	ck_assert_int_eq(KIT_OPS->close(a.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	do
		ev = kit_wait(&a, NULL, ESCROW_EV_QUARANTINED);
	while (ev.object && ev.object != a.region);
	ck_assert_uint_eq(ev.object, a.region);
	kit_never(&a, NULL, ESCROW_EV_REGION_RELEASED);
	KIT_OPS->release(a.engine);
}
END_TEST

static int32_t write_both(struct kit *k, uint64_t remote, uint64_t first, uint64_t second,
			  uint64_t bytes)
{
	struct escrow_sge sge[2] = {{first, 0, bytes}, {second, 0, 100}};
	struct escrow_op op = {.remote = remote, .opcode = ESCROW_WRITE, .nsge = 2, .sge = sge};
	uint64_t id;

	return KIT_OPS->transfer(k->engine, &op, 1, sizeof(op), 0, &id);
}

/* Between deregister_memory and REGION_RELEASED: an op that cannot begin never was, one that has begun ends. */
START_TEST(a_region_that_goes_is_lent_from_no_more)
{
	static const char *const settings[] = {"test.faults=1", "control_thread=0",
					       "slice_bytes=4096", NULL};
	static uint8_t other[4096];
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = other,
					  .length = sizeof(other),
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	struct kit a, b;
	uint64_t grant, remote, going;
	struct escrow_event ev;
	uint32_t i;

	kit_settings = settings;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_settings = NULL;
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, &grant);
	ck_assert_int_eq(KIT_OPS->register_memory(b.engine, &args, &going, NULL), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->deregister_memory(b.engine, going, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(write_both(&b, remote, going, b.region, 100), ESCROW_E_INVALID);
	ck_assert_int_eq(write_both(&b, remote, b.region, going, 100), ESCROW_E_INVALID);
	/* Three slices; the first two lie in the region that stays. */
	ck_assert_int_eq(write_both(&b, remote, b.region, going, 8192), 1);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_int_lt(ev.status, 0);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_ne(ev.effect, ESCROW_EFFECT_EXECUTED);
	/* No slot, no loan and no op of those is left behind. */
	for (i = 0; i < 300; i++) {
		kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 100);
		ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
		ck_assert_int_eq(ev.status, ESCROW_OK);
	}
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* A device that does not hold accesses to the window: each grant has a registration of its own. */
START_TEST(inexact_windows)
{
	struct kit a, b;
	uint64_t grant, remote;
	struct escrow_event ev;
	int64_t before;

	kit_inexact = true;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_inexact = false;
	kit_connect(&a, &b);
	before = kit_faults(&a)->calls(a.engine, ESCROW_STEP_REGISTER);
	remote = kit_grant_from(&a, &b, ESCROW_MAY_WRITE, 4096, &grant);
	ck_assert_int_gt(kit_faults(&a)->calls(a.engine, ESCROW_STEP_REGISTER), before);
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 10, 100);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_int_eq(a.memory[4096 + 9], 'a');
	ck_assert_int_eq(a.memory[4096 + 10], 'b');
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grant, 0), ESCROW_IN_PROGRESS);
	kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED);
	before = kit_faults(&a)->calls(a.engine, ESCROW_STEP_DEREGISTER);
	ck_assert_int_gt(before, 0);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

START_TEST(loopback)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_invite_args invite = {.size = sizeof(invite), .user = 5, .peer_name = "me"};
	struct escrow_peer_args args = {.size = sizeof(args), .user = 6, .peer_name = "me"};
	struct escrow_peer_info info = {.size = sizeof(info)};
	uint8_t buf[1024];
	uint64_t len = sizeof(buf), remote;
	struct escrow_event one, two;
	struct kit a, b;

	kit_start(&a, "a");
	ck_assert_int_eq(KIT_OPS->invite(a.engine, &invite, buf, &len), ESCROW_OK);
	args.invitation = buf;
	args.invitation_len = len;
	ck_assert_msg(KIT_OPS->connect(a.engine, &args, &a.peer, &error) == ESCROW_IN_PROGRESS,
		      "%s", error.text);
	one = kit_wait(&a, NULL, ESCROW_EV_PEER_UP);
	two = kit_wait(&a, NULL, ESCROW_EV_PEER_UP);
	ck_assert_uint_ne(one.object, two.object);
	ck_assert_uint_eq(one.user + two.user, 11);
	/* Granted to the passive end, imported by the active one. */
	b = a;
	a.peer = one.user == 5 ? one.object : two.object;
	ck_assert_int_eq(KIT_OPS->peer_info(a.engine, a.peer, &info), ESCROW_OK);
	ck_assert_uint_eq(info.flags, ESCROW_PEER_PASSIVE | ESCROW_PEER_LOOPBACK);
	ck_assert_uint_eq(info.epoch, 1);
	remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, NULL);
	memset(a.memory, 'x', 100);
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 200, 100);
	kit_wait(&a, NULL, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(a.memory[200], 'x');
	ck_assert_int_eq(a.memory[300], 'a');
	kit_close(&a, NULL, false);
}
END_TEST

static void arm(struct kit *k, struct kit *other)
{
	escrow_status st;
	int i;

	for (i = 0; i < 1000; i++) {
		st = KIT_OPS->arm(k->engine, 0);
		if (st == ESCROW_OK)
			return;
		ck_assert_int_eq(st, ESCROW_EVENTS_PENDING);
		kit_never(k, other, ESCROW_EV_OP_DONE);
	}
	ck_abort_msg("never idle");
}

/* V9: a deadline that is set after arm wakes the host too, though nothing else ever comes. */
START_TEST(a_deadline_set_after_arm)
{
	struct kit a, b;
	struct escrow_sge sge = {.length = 64};
	struct escrow_op op = {.opcode = ESCROW_WRITE, .nsge = 1, .sge = &sge};
	struct pollfd fd = {.events = POLLIN};
	uint64_t id;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	op.remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, NULL);
	sge.region = b.region;
	fd.fd = KIT_OPS->event_fd(b.engine);
	arm(&b, &a);
	kit_silent = true;
	/* An op without one wakes nobody. */
	ck_assert_int_eq(KIT_OPS->transfer(b.engine, &op, 1, sizeof(op), 0, &id), 1);
	ck_assert_int_eq(poll(&fd, 1, 0), 0);
	op.deadline_ns = kit_now + 1000;
	ck_assert_int_eq(KIT_OPS->transfer(b.engine, &op, 1, sizeof(op), 0, &id), 1);
	ck_assert_int_eq(poll(&fd, 1, 60000), 1);
	arm(&b, &a);
	ck_assert_int_eq(poll(&fd, 1, 60000), 1);
	kit_now += 1000;
	ck_assert_uint_eq(kit_wait(&b, &a, ESCROW_EV_OP_EXPIRED).object, id);
	kit_silent = false;
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

static uint32_t waiting; /* completions in the queue of b, that name nothing and so make no event */

static int poll_many(struct native_lane *lane, struct native_cqe *cqe, int max)
{
	uint32_t n = waiting < (uint32_t)max ? waiting : (uint32_t)max;

	if (!n)
		return mock_native.poll_cq(lane, cqe, max);
	for (uint32_t i = 0; i < n; i++)
		cqe[i] = (struct native_cqe){.id = UINT64_MAX >> 8};
	waiting -= n;
	return (int)n;
}

/* An engine that is armed has left nothing in its queues: nothing more may come to wake it. */
START_TEST(armed_over_a_full_queue)
{
	escrow_status st;
	struct kit a, b;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	arm(&b, &a);
	kit_table.poll_cq = poll_many;
	waiting = 600;
	do
		st = KIT_OPS->arm(b.engine, 0);
	while (st == ESCROW_EVENTS_PENDING && waiting);
	ck_assert_uint_eq(waiting, 0);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-path");
	TCase *t = tcase_create("path");

	tcase_add_test(t, a_deadline_set_after_arm);
	tcase_add_test(t, armed_over_a_full_queue);
	tcase_add_test(t, open_and_close);
	tcase_add_test(t, open_without_memory);
	tcase_add_test(t, write_read_and_revoke);
	tcase_add_test(t, access_after_revoke_is_refused);
	tcase_add_test(t, inexact_windows);
	tcase_add_test(t, inexact_windows_keep_their_region);
	tcase_add_test(t, a_region_that_goes_is_lent_from_no_more);
	tcase_add_test(t, loopback);
	suite_add_tcase(s, t);
	return testing_run(s);
}
