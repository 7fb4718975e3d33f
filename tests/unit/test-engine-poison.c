/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A completion queue that breaks is not believed any more, for good: nothing new is put on its lane, and what would
 * need that lane ends or does without.
 */
#include <stdlib.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

extern const struct native_ops mock_native;

static struct kit a, b; /* b connects to a */
static const struct native_lane *broken;
static uint32_t asked; /* how often the one that is broken was polled since */

static int poll_cq(struct native_lane *l, struct native_cqe *cqe, int max)
{
	if (l != broken)
		return mock_native.poll_cq(l, cqe, max);
	/* Once it says so; then it goes on as if nothing had been. */
	return asked++ ? mock_native.poll_cq(l, cqe, max) : -1;
}

static void start(const char *rails, const char *contexts)
{
	const char *settings[] = {"test.faults=1",
				  "drain_ms=100",
				  "control_thread=0",
				  "rail_retry_ms=50",
				  rails,
				  contexts,
				  NULL};

	kit_settings = settings;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_settings = NULL;
	kit_table.poll_cq = poll_cq;
}

static void start_two(void)
{
	start("mock.rails=2", "mock.contexts=2");
}

static void end(void)
{
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

static void break_lane(struct kit *k, uint32_t i)
{
	asked = 0;
	broken = k->engine->lanes[i].native;
}

/* All waits for a return and an answer are over many times. */
static void long_after(void)
{
	int i;

	for (i = 0; i < 400; i++) {
		kit_now += 100000000;
		kit_turn(&b, &a);
	}
}

static struct conn *second(struct kit *k)
{
	return &k->engine->peers[0].conns[1];
}

/* Both have one connection less, and do all that they did before. */
static void live_on_the_first(uint64_t remote)
{
	struct escrow_event ev;
	int i;

	ck_assert_uint_eq(atomic_load(&second(&a)->ready), CONN_NOT_READY);
	ck_assert_uint_eq(atomic_load(&second(&b)->ready), CONN_NOT_READY);
	ck_assert_uint_eq(atomic_load(&a.engine->counters.rail_back[1]), 0);
	ck_assert_uint_eq(atomic_load(&b.engine->counters.rail_back[1]), 0);
	for (i = 0; i < 4; i++)
		kit_transfer(&b, remote, ESCROW_READ, 64 * (uint64_t)i, 0, 64);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	kit_grant(&b, &a, ESCROW_MAY_READ, NULL);
	ck_assert_int_eq(KIT_OPS->drain(b.engine, 0, 0, 0), ESCROW_IN_PROGRESS);
	ev = kit_wait(&b, &a, ESCROW_EV_DRAINED);
	ck_assert_int_eq(ev.status, ESCROW_OK);
}

/* ---- While a peer is up --------------------------------------------------------------------------- */
/* Its connection ends and does not come back, neither by the end that connects nor by the other. */
START_TEST(a_connection_does_not_come_back)
{
	uint64_t remote;

	start_two();
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_READ, NULL);
	break_lane(_i ? &a : &b, 1);
	long_after();
	live_on_the_first(remote);
	end();
}
END_TEST

/* Between the answer of the queue and the runner, who has not come yet, it is asked for nothing more. */
START_TEST(not_a_word_is_believed)
{
	struct escrow_event ev;
	uint64_t remote;
	int i;

	start("mock.rails=1", NULL);
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_READ, NULL);
	kit_plan(&b, "nic=hold");
	kit_transfer(&b, remote, ESCROW_READ, 0, 0, 64);
	break_lane(&b, 0);
	atomic_store(&b.engine->control_busy, 1);
	kit_plan(&b, "nic=run");
	for (i = 0; i < 10; i++)
		kit_turn(&b, &a);
	ck_assert_uint_eq(asked, 1);
	atomic_store(&b.engine->control_busy, 0);
	ev = kit_wait(&b, &a, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(ev.status, ESCROW_E_PEER_LOST);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_UNKNOWN);
	kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(asked, 1);
	end();
}
END_TEST

/* ---- Before one is up -------------------------------------------------------------------------------- */
static void break_before(struct kit *k, uint32_t i)
{
	break_lane(k, i);
	/* No connection is there, so it is not polled: the device tells. */
	en_lane_breaks(&k->engine->lanes[i]);
	kit_turn(&b, &a);
}

/* A new peer comes up without it. */
START_TEST(a_peer_comes_up_on_the_other_rail)
{
	uint64_t remote;

	start_two();
	break_before(_i ? &a : &b, 1);
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_READ, NULL);
	long_after();
	live_on_the_first(remote);
	end();
}
END_TEST

/* Its first connection it needs. */
START_TEST(a_peer_does_not_come_up_without_its_first)
{
	start("mock.rails=2", "mock.contexts=2");
	break_before(&b, 0);
	kit_ask(&a, &b);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_PEER_DOWN).status, ESCROW_E_DEVICE);
	end();
}
END_TEST

START_TEST(a_peer_is_refused_without_its_first)
{
	start("mock.rails=2", "mock.contexts=2");
	break_before(&a, 0);
	kit_ask(&a, &b);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_PEER_DOWN).status, ESCROW_E_REFUSED);
	kit_never(&a, &b, ESCROW_EV_PEER_UP);
	end();
}
END_TEST

/* With the only lane every peer goes, and none comes. */
START_TEST(the_only_lane)
{
	start("mock.rails=1", NULL);
	kit_connect(&a, &b);
	break_lane(&b, 0);
	kit_wait(&b, &a, ESCROW_EV_PEER_LOST);
	kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	kit_wait(&a, &b, ESCROW_EV_PEER_DOWN);
	kit_ask(&a, &b);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_PEER_DOWN).status, ESCROW_E_DEVICE);
	end();
}
END_TEST

/* ---- What a queue pair leaves ------------------------------------------------------------------------ */
/* As rdma_rxe does it: what was flushed and not polled can be polled when the queue pair has gone. */
#define DEPTH 600
static const struct native_lane *left_on;
static int left;
static uint32_t made;

static int leaves(struct native_conn *c)
{
	const struct conn *own = mock_native.conn_user(c);

	if (own->peer->e == b.engine) {
		left_on = own->lane->native;
		left += DEPTH;
	}
	return mock_native.destroy_conn(c);
}

static int poll_what_is_left(struct native_lane *l, struct native_cqe *cqe, int max)
{
	int n;

	if (l != left_on)
		return mock_native.poll_cq(l, cqe, max);
	for (n = 0; n < max && left; n++, left--)
		cqe[n] = (struct native_cqe){.id = CHANNEL_ID << 56, .status = NATIVE_FLUSHED};
	return n < max ? n + mock_native.poll_cq(l, &cqe[n], max - n) : n;
}

static int makes(struct native_lane *l, const struct native_conn_args *args,
		 struct native_conn **out)
{
	if (l == left_on) {
		ck_assert_int_eq(left, 0);
		made++;
	}
	return mock_native.create_conn(l, args, out);
}

/* The queue has place for what one connection may have there: the next one has it when the last has left nothing. */
START_TEST(nothing_is_left_in_the_queue)
{
	start("mock.rails=2", "recv_depth=600");
	kit_connect(&a, &b);
	kit_table.destroy_conn = leaves;
	kit_table.poll_cq = poll_what_is_left;
	kit_table.create_conn = makes;
	en_conn_broken(&en_peer_find(b.engine, b.peer)->conns[1]);
	/* The host of b does not poll: what there is to do is done without it. */
	for (int i = 0; !made; i++) {
		ck_assert_int_lt(i, 20000);
		kit_now += 1000000;
		kit_turn(&a, NULL);
		en_control_run(b.engine);
	}
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-poison");
	TCase *t = tcase_create("poison");

	tcase_add_loop_test(t, a_connection_does_not_come_back, 0, 2);
	tcase_add_test(t, not_a_word_is_believed);
	tcase_add_loop_test(t, a_peer_comes_up_on_the_other_rail, 0, 2);
	tcase_add_test(t, a_peer_does_not_come_up_without_its_first);
	tcase_add_test(t, a_peer_is_refused_without_its_first);
	tcase_add_test(t, the_only_lane);
	tcase_add_test(t, nothing_is_left_in_the_queue);
	suite_add_tcase(s, t);
	return testing_run(s);
}
