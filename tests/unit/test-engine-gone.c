/* SPDX-License-Identifier: BSD-2-Clause */
/* What is asked as something goes, and of what has gone: each is answered, once, and touches nothing that came after. */
#include <stdlib.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

extern const struct native_ops mock_native;

static struct kit a, b, c;

static void start_one(struct kit *k, const char *name, const char *setting)
{
	const char *settings[] = {"test.faults=1", "drain_ms=100", "control_thread=0", setting,
				  NULL};

	kit_settings = settings;
	kit_start(k, name);
	kit_settings = NULL;
}

static void turns(struct kit *k, struct kit *other)
{
	int i;

	for (i = 0; i < 200; i++)
		kit_turn(k, other);
}

/* ---- Remotes --------------------------------------------------------------------------------------- */
static uint64_t used(struct kit *k, uint32_t kind)
{
	struct escrow_charge all[64];
	int32_t n = KIT_OPS->charges(k->engine, all, 64, sizeof(all[0])), i;

	for (i = 0; i < n; i++)
		if (all[i].kind == kind && !all[i].peer_name[0])
			return all[i].used;
	ck_abort_msg("no charge of kind %u", kind);
	return 0;
}

/* k offers all of its memory, and b imports it. */
static uint64_t import_offer(struct kit *k)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ,
					 .region = k->region,
					 .length = KIT_BYTES};
	uint64_t offer, remote, len = 4096;
	uint8_t bytes[4096];

	ck_assert_int_eq(KIT_OPS->grant(k->engine, &args, &offer, NULL), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->export_grant(k->engine, offer, bytes, &len), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->import_grant(b.engine, b.peer, bytes, len, 3, &remote, NULL),
			 ESCROW_IN_PROGRESS);
	ck_assert_int_eq(kit_wait(&b, k, ESCROW_EV_REMOTE_READY).status, ESCROW_OK);
	return remote;
}

/*
 * b has room for one peer, so the next owner stands where the last one did, and its grant has the same number
 * there.  What b forgets of the last one is none of the next one's business.
 */
START_TEST(forgotten_when_another_peer_is_there)
{
	uint64_t old, remote;

	start_one(&a, "a", NULL);
	start_one(&b, "b", "max_peers=1");
	start_one(&c, "c", NULL);
	kit_connect(&a, &b);
	old = import_offer(&a);
	kit_close(&a, &b, false);
	kit_wait(&b, NULL, ESCROW_EV_PEER_DOWN);
	kit_connect(&c, &b);
	remote = import_offer(&c);
	ck_assert_uint_eq(b.engine->remotes[0].grant, b.engine->remotes[1].grant);
	ck_assert_ptr_eq(b.engine->remotes[0].peer, b.engine->remotes[1].peer);
	ck_assert_int_eq(KIT_OPS->forget_grant(b.engine, old), ESCROW_OK);
	turns(&b, &c);
	/* The offer, and what b got of it. */
	ck_assert_uint_eq(used(&c, ESCROW_CHARGE_GRANTS), 2);
	kit_transfer(&b, remote, ESCROW_READ, 0, 0, 64);
	ck_assert_int_eq(kit_wait(&b, &c, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	kit_close(&b, &c, false);
	kit_close(&c, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* ---- News ------------------------------------------------------------------------------------------ */
static uint32_t unread;

/* Who asks this has read what the device had to say. */
static int asks(struct native_context *context)
{
	unread = 1;
	return 0;
}

static int tells(struct native *n, struct native_event *event)
{
	unread = 0;
	return mock_native.next_event(n, event);
}

/* Nothing wakes the runner for news that it has read behind a step: it takes them before it rests. */
START_TEST(no_news_are_left_by_a_pass)
{
	start_one(&a, "a", NULL);
	kit_table.is_lost = asks;
	kit_table.next_event = tells;
	ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, a.region, 0), ESCROW_IN_PROGRESS);
	unread = 2;
	en_control_run(a.engine);
	ck_assert_uint_eq(unread, 0);
	ck_assert_uint_ne(a.engine->regions[0].parts[0].done, 0);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* ---- Drains ---------------------------------------------------------------------------------------- */
/* Works without a place for an event: those that are queued stay. */
static void work_until_down(struct kit *k, struct kit *other)
{
	struct escrow_event none;
	int i;

	for (i = 0; atomic_load(&k->engine->peers[0].state) != PEER_DOWN; i++) {
		ck_assert_int_lt(i, 1000);
		kit_turn(other, NULL);
		ck_assert_int_eq(KIT_OPS->poll(k->engine, &none, 0, sizeof(none), 0), 0);
	}
}

/* Its last event waits to be polled, and none can come behind it.  Who comes next can be drained. */
START_TEST(a_peer_that_is_down_is_not_drained)
{
	struct escrow_event ev;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	work_until_down(&b, &a);
	ck_assert_int_eq(KIT_OPS->drain(b.engine, b.peer, 0, 0), ESCROW_E_PEER_LOST);
	ck_assert_uint_eq(kit_wait(&b, &a, ESCROW_EV_PEER_DOWN).object, b.peer);
	kit_never(&b, &a, ESCROW_EV_DRAINED);
	kit_wait(&a, &b, ESCROW_EV_PEER_DOWN);
	kit_connect(&a, &b);
	ck_assert_uint_eq(atomic_load(&b.engine->peers[0].handle), b.peer);
	ck_assert_int_eq(KIT_OPS->drain(b.engine, b.peer, 0, 0), ESCROW_IN_PROGRESS);
	ev = kit_wait(&b, &a, ESCROW_EV_DRAINED);
	ck_assert_uint_eq(ev.object, b.peer);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* One that goes is drained, before its last event. */
START_TEST(a_peer_that_goes_is_drained)
{
	struct escrow_event ev, down;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(KIT_OPS->drain(b.engine, b.peer, 0, 0), ESCROW_IN_PROGRESS);
	down = kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	ev = kit_wait(&b, &a, ESCROW_EV_DRAINED);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_uint_lt(ev.seq, down.seq);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/*
 * NULL, or what counts the ops of b's peer.  A call has counted there; it takes that back as a connection stops, and the
 * next one counts as the account is fenced.
 */
static _Atomic uint32_t *counted;

escrow_status __real_ledger_owner_event(struct ledger *l, uint64_t owner, enum ledger_event event);
escrow_status __wrap_ledger_owner_event(struct ledger *l, uint64_t owner, enum ledger_event event);
escrow_status __wrap_ledger_owner_event(struct ledger *l, uint64_t owner, enum ledger_event event)
{
	if (counted && l == b.engine->ledger && event == LEDGER_E_STOP &&
	    engine_kind(owner) == ESCROW_OWNER_CONNECTION)
		atomic_store(counted, 0);
	if (counted && l == b.engine->ledger && event == LEDGER_E_FENCE)
		atomic_store(counted, 1);
	return __real_ledger_owner_event(l, owner, event);
}

/* A call that names a remote of a peer that has gone counts its op there till it has looked: that is none of the drain. */
START_TEST(a_peer_that_goes_is_drained_beside_a_late_call)
{
	struct escrow_event ev, down;
	struct peer *p;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	p = &b.engine->peers[0];
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(KIT_OPS->drain(b.engine, b.peer, 0, 0), ESCROW_IN_PROGRESS);
	counted = &p->ops;
	atomic_store(counted, 1);
	down = kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	counted = NULL;
	atomic_store(&p->ops, 0);
	ev = kit_wait(&b, NULL, ESCROW_EV_DRAINED);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_uint_lt(ev.seq, down.seq);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* Closes k, which is lost; how many events of that kind there were till its end. */
static uint32_t till_the_end(struct kit *k, struct kit *other, uint16_t kind)
{
	uint32_t n = 0, i;

	kit_close(k, other, true);
	for (i = 0; i < k->nseen; i++)
		n += k->seen[i].kind == kind;
	return n;
}

/* b waits for an op to drain, of its peer or altogether, and loses its device. */
static void drain_and_lose(bool of_peer)
{
	uint64_t remote;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_READ, NULL);
	kit_plan(&b, "nic=hold");
	kit_transfer(&b, remote, ESCROW_READ, 0, 0, 64);
	ck_assert_int_eq(KIT_OPS->drain(b.engine, of_peer ? b.peer : 0, 0, 0), ESCROW_IN_PROGRESS);
	kit_never(&b, &a, ESCROW_EV_DRAINED);
	kit_plan(&b, "device=fatal");
}

/* The device goes while the engine is drained: nobody waits for ops any more, and the drain ends with the reason. */
START_TEST(a_drain_that_the_device_overtakes)
{
	struct escrow_event ev;

	drain_and_lose(false);
	kit_wait(&b, &a, ESCROW_EV_DEVICE);
	ev = kit_wait(&b, &a, ESCROW_EV_DRAINED);
	ck_assert_uint_eq(ev.object, 0);
	ck_assert_int_eq(ev.status, ESCROW_E_DEVICE);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).custody, ESCROW_CUSTODY_HELD);
	ck_assert_uint_eq(till_the_end(&b, &a, ESCROW_EV_DRAINED), 0);
	kit_close(&a, NULL, false);
}
END_TEST

/* Of one peer: its ops have ended with the device, if without their bytes. */
START_TEST(a_drain_of_a_peer_that_the_device_overtakes)
{
	struct escrow_event ev;

	drain_and_lose(true);
	ev = kit_wait(&b, &a, ESCROW_EV_DRAINED);
	ck_assert_uint_eq(ev.object, b.peer);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_uint_lt(kit_wait(&b, &a, ESCROW_EV_OP_DONE).seq, ev.seq);
	ck_assert_uint_eq(till_the_end(&b, &a, ESCROW_EV_DRAINED), 0);
	kit_close(&a, NULL, false);
}
END_TEST

/* ---- Regions --------------------------------------------------------------------------------------- */
static uint64_t late_remote; /* 0, or an op to it begins at the next look at the clock */

/* The ledger asks when a region is withdrawn, while it may still be lent from. */
static uint64_t clock_of_the_race(void *ctx)
{
	uint64_t remote = late_remote;

	late_remote = 0;
	if (remote)
		kit_transfer(&b, remote, ESCROW_READ, 0, 0, 64);
	return kit_now;
}

/* The device keeps an op that began as its region was taken back, after it was seen that there is none. */
static void start_late_op(const char *plan)
{
	kit_host.now_ns = clock_of_the_race;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	late_remote = kit_grant(&a, &b, ESCROW_MAY_READ, NULL);
	kit_plan(&b, plan);
	ck_assert_int_eq(KIT_OPS->deregister_memory(b.engine, b.region, 0), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(late_remote, 0);
	kit_never(&b, &a, ESCROW_EV_REGION_RELEASED);
}

/* The region ends with the op. */
static void end_late_op(bool quarantined)
{
	ck_assert_uint_eq(kit_wait(&b, &a, ESCROW_EV_REGION_RELEASED).object, b.region);
	kit_close(&b, &a, quarantined);
	kit_close(&a, NULL, false);
	ck_assert(quarantined || !kit_allocs);
}

START_TEST(a_region_that_meets_a_late_op)
{
	start_late_op("nic=hold");
	kit_plan(&b, "nic=run");
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	kit_now += 5000000;
	end_late_op(false);
}
END_TEST

/* One that ends without its bytes: they come when their receipt does, whatever the clock says. */
START_TEST(a_region_that_meets_a_late_op_that_is_stuck)
{
	start_late_op("cqe=hold;qp_reset=fail;destroy_qp=fail");
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	kit_never(&b, &a, ESCROW_EV_OP_DONE);
	kit_now += 1000000000;
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).custody, ESCROW_CUSTODY_HELD);
	kit_never(&b, &a, ESCROW_EV_REGION_RELEASED);
	kit_plan(&b, "cqe=release");
	kit_wait(&b, &a, ESCROW_EV_OP_RETURNED);
	end_late_op(true); /* by the queue pair, which was not destroyed */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-gone");
	TCase *t = tcase_create("gone");

	tcase_add_test(t, forgotten_when_another_peer_is_there);
	tcase_add_test(t, no_news_are_left_by_a_pass);
	tcase_add_test(t, a_peer_that_is_down_is_not_drained);
	tcase_add_test(t, a_peer_that_goes_is_drained);
	tcase_add_test(t, a_peer_that_goes_is_drained_beside_a_late_call);
	tcase_add_test(t, a_drain_that_the_device_overtakes);
	tcase_add_test(t, a_drain_of_a_peer_that_the_device_overtakes);
	tcase_add_test(t, a_region_that_meets_a_late_op);
	tcase_add_test(t, a_region_that_meets_a_late_op_that_is_stuck);
	suite_add_tcase(s, t);
	return testing_run(s);
}
