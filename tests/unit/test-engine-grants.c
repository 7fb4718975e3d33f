/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a grant costs beside its bind and its invalidation: those of several that come together are one
 * post for each connection, and the thread that asks takes the steps that need no native call.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backends/engine/engine.h"
#include "backends/mock/mock.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

#define GRANTS 20u
#define CHAIN 16u /* a post of windows has no more */

static struct kit a, b; /* a grants */
static uint64_t grants[GRANTS];

static struct {
	struct native_conn *conn; /* whose posts are noted: of the first bind that was seen */
	_Atomic uint32_t posts, binds, invalidations;
	uint32_t most;
	uint32_t take; /* of a post with more than that so many are taken, once; 0 = all */
	_Atomic uint32_t by_us, invalidated;
	pthread_t us;
} seen;

static void note(const struct native_wr *wr, uint32_t n)
{
	seen.posts++;
	seen.most = n > seen.most ? n : seen.most;
	for (uint32_t i = 0; i < n; i++) {
		ck_assert(wr[i].opcode == NATIVE_BIND || wr[i].opcode == NATIVE_INVALIDATE);
		ck_assert(wr[i].flags & NATIVE_SIGNALED);
		seen.binds += wr[i].opcode == NATIVE_BIND;
		seen.invalidations += wr[i].opcode == NATIVE_INVALIDATE;
	}
}

static int watch_post(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	int rc;

	if (wr->opcode != NATIVE_BIND && wr->opcode != NATIVE_INVALIDATE)
		return mock_native.post(c, wr, n, posted);
	if (wr->opcode == NATIVE_INVALIDATE)
		atomic_store(&seen.invalidated, 1);
	if (pthread_equal(pthread_self(), seen.us))
		atomic_fetch_add(&seen.by_us, 1);
	seen.conn = seen.conn ? seen.conn : c;
	if (c != seen.conn)
		return mock_native.post(c, wr, n, posted);
	note(wr, n);
	if (!seen.take || n <= seen.take)
		return mock_native.post(c, wr, n, posted);
	rc = mock_native.post(c, wr, seen.take, posted);
	seen.take = 0;
	return rc ? rc : ENOMEM;
}

static void watch(void)
{
	memset(&seen, 0, sizeof(seen));
	seen.us = pthread_self();
	kit_table.post = watch_post;
}

static void open_ends(void)
{
	static const char *const settings[] = {"drain_ms=100", "control_thread=0", NULL};

	kit_settings = settings;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_settings = NULL;
	kit_connect(&a, &b);
	watch();
}

static void close_ends(void)
{
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

static uint64_t grant_one(struct escrow_engine *e, uint64_t peer, uint64_t region)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ,
					 .peer = peer,
					 .region = region,
					 .length = 4096};
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t grant = 0;

	ck_assert_msg(KIT_OPS->grant(e, &args, &grant, &error) == ESCROW_IN_PROGRESS, "%s",
		      error.text);
	return grant;
}

static void grant_all(void)
{
	for (uint32_t i = 0; i < GRANTS; i++)
		grants[i] = grant_one(a.engine, a.peer, a.region);
}

/* How many of so many events of the kind say E_DEVICE; the others are good. */
static uint32_t await(uint16_t kind, uint32_t n)
{
	uint32_t failed = 0;

	for (; n; n--) {
		escrow_status st = kit_wait(&a, &b, kind).status;

		ck_assert(st == ESCROW_OK || st == ESCROW_E_DEVICE);
		failed += st != ESCROW_OK;
	}
	return failed;
}

START_TEST(together_in_one_post)
{
	open_ends();
	grant_all();
	ck_assert_uint_eq(await(ESCROW_EV_GRANT_READY, GRANTS), 0);
	/* Twenty on this connection: a full chain and the rest. */
	ck_assert_uint_eq(seen.binds, GRANTS);
	ck_assert_uint_eq(seen.posts, (GRANTS + CHAIN - 1) / CHAIN);
	ck_assert_uint_eq(seen.most, CHAIN);
	for (uint32_t i = 0; i < GRANTS; i++)
		ck_assert_int_eq(KIT_OPS->revoke(a.engine, grants[i], 0), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(await(ESCROW_EV_GRANT_REVOKED, GRANTS), 0);
	ck_assert_uint_eq(seen.invalidations, GRANTS);
	ck_assert_uint_eq(seen.posts, 2 * ((GRANTS + CHAIN - 1) / CHAIN));
	close_ends();
}
END_TEST

/* One was refused: that grant fails, what stood before it was taken, what stood behind is posted again. */
START_TEST(a_device_that_takes_a_part)
{
	open_ends();
	seen.take = 3 + 4 * (uint32_t)_i;
	grant_all();
	ck_assert_uint_eq(await(ESCROW_EV_GRANT_READY, GRANTS), 1);
	ck_assert_uint_eq(seen.take, 0);
	for (uint32_t i = 0; i < GRANTS; i++)
		KIT_OPS->revoke(a.engine, grants[i], 0);
	await(ESCROW_EV_GRANT_REVOKED, GRANTS - 1);
	/* The one that failed has ended: its place, its windows and their slots are there again. */
	grant_all();
	ck_assert_uint_eq(await(ESCROW_EV_GRANT_READY, GRANTS), 0);
	close_ends();
}
END_TEST

/* Of an invalidation that was refused the window is deallocated, which proves as much; the others go on. */
START_TEST(invalidations_that_are_refused)
{
	open_ends();
	grant_all();
	ck_assert_uint_eq(await(ESCROW_EV_GRANT_READY, GRANTS), 0);
	seen.take = 5;
	for (uint32_t i = 0; i < GRANTS; i++)
		ck_assert_int_eq(KIT_OPS->revoke(a.engine, grants[i], 0), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(await(ESCROW_EV_GRANT_REVOKED, GRANTS), 0);
	ck_assert_uint_eq(seen.take, 0);
	close_ends();
}
END_TEST

/* ---- An engine with a thread, connected to itself ----------------------------------------------------- */
#define THREADS 2u
#define TURNS 100u

static struct kit k;
static uint64_t peer;
static _Atomic uint64_t ready[THREADS], revoked[THREADS];
static _Atomic uint32_t ended;

static void loop_event(const struct escrow_event *ev)
{
	ck_assert_int_eq(ev->status, ESCROW_OK);
	if (ev->kind == ESCROW_EV_GRANT_READY)
		atomic_fetch_add(&ready[ev->user], 1);
	if (ev->kind == ESCROW_EV_GRANT_REVOKED)
		atomic_fetch_add(&revoked[ev->user], 1);
}

static uint16_t loop_poll(void)
{
	struct escrow_event ev;

	if (KIT_OPS->poll(k.engine, &ev, 1, sizeof(ev), 0) != 1)
		return 0;
	loop_event(&ev);
	return ev.kind;
}

static void loop_open(void)
{
	static const char *const settings[] = {"control_thread=1", "drain_ms=50", NULL};
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "me"};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "me"};
	uint8_t buf[1024];
	uint64_t len = sizeof(buf);
	int ups = 0;

	kit_settings = settings;
	kit_start(&k, "k");
	kit_settings = NULL;
	watch();
	ck_assert_int_eq(KIT_OPS->invite(k.engine, &invite, buf, &len), ESCROW_OK);
	args.invitation = buf;
	args.invitation_len = len;
	ck_assert_int_eq(KIT_OPS->connect(k.engine, &args, &peer, NULL), ESCROW_IN_PROGRESS);
	while (ups < 2)
		ups += loop_poll() == ESCROW_EV_PEER_UP;
}

static void loop_close(void)
{
	ck_assert_int_eq(KIT_OPS->close(k.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	while (loop_poll() != ESCROW_EV_CLOSED)
		;
	KIT_OPS->release(k.engine);
	free(k.memory);
	ck_assert_uint_eq(kit_allocs, 0);
}

/* Binds and invalidations are posted by who asks for them, unless the thread is at work just then. */
START_TEST(the_thread_is_not_needed)
{
	loop_open();
	for (uint32_t i = 0; i < TURNS; i++) {
		uint64_t grant = grant_one(k.engine, peer, k.region);

		while (loop_poll() != ESCROW_EV_GRANT_READY)
			;
		ck_assert_int_eq(KIT_OPS->revoke(k.engine, grant, 0), ESCROW_IN_PROGRESS);
		while (loop_poll() != ESCROW_EV_GRANT_REVOKED)
			;
	}
	ck_assert_uint_gt(atomic_load(&seen.by_us), 0);
	loop_close();
}
END_TEST

/* Nothing of the thread's is under way, and it has nothing to do. */
static void until_it_sleeps(void)
{
	while (!atomic_load(&k.engine->control_asleep) || atomic_load(&k.engine->control_busy) ||
	       en_control_has_work(k.engine))
		loop_poll();
}

static void loop_await(uint16_t kind, uint32_t n)
{
	while (n)
		n -= loop_poll() == kind;
}

/* n grants, or their revocations: `posts` before a poll, and one with it. */
static bool together(uint32_t n, uint16_t kind, uint32_t posts)
{
	until_it_sleeps();
	seen.binds = seen.invalidations = seen.posts = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (kind == ESCROW_EV_GRANT_READY)
			grants[i] = grant_one(k.engine, peer, k.region);
		else
			KIT_OPS->revoke(k.engine, grants[i], 0);
	}
	posts = seen.posts == posts;
	loop_await(kind, n);
	ck_assert_uint_eq(seen.binds + seen.invalidations, n);
	return posts && seen.posts == 1;
}

/* A full chain goes at once (`_i`), fewer with the poll.  But for the thread, which may look in between; not every time. */
START_TEST(what_is_asked_is_posted_together)
{
	uint32_t n = _i ? CHAIN : CHAIN - 1, made = 0, ended_so = 0;

	loop_open();
	for (uint32_t turn = 0; turn < 10; turn++) {
		made += together(n, ESCROW_EV_GRANT_READY, _i);
		ended_so += together(n, ESCROW_EV_GRANT_REVOKED, _i);
	}
	ck_assert_uint_gt(made, 0);
	ck_assert_uint_gt(ended_so, 0);
	loop_close();
}
END_TEST

/* Nor is anything left undone where nobody polls: the thread looks by itself. */
START_TEST(the_thread_takes_what_nobody_comes_for)
{
	loop_open();
	until_it_sleeps();
	seen.binds = 0;
	grants[0] = grant_one(k.engine, peer, k.region);
	while (!seen.binds)
		sched_yield();
	loop_await(ESCROW_EV_GRANT_READY, 1);
	loop_close();
}
END_TEST

/*
 * Nothing is left for a poll by who then waits for the descriptor, armed before (`_i`) or behind it.  The thread may be at
 * work in some turns, and take it over.
 */
START_TEST(nothing_waits_while_the_host_does)
{
	uint32_t at_once = 0;

	loop_open();
	for (uint32_t turn = 0; turn < 10; turn++) {
		until_it_sleeps();
		while (_i && KIT_OPS->arm(k.engine, 0) != ESCROW_OK)
			loop_poll();
		seen.binds = 0;
		for (uint32_t i = 0; i < 3; i++)
			grants[i] = grant_one(k.engine, peer, k.region);
		if (!_i)
			KIT_OPS->arm(k.engine, 0);
		at_once += seen.binds == 3;
		loop_await(ESCROW_EV_GRANT_READY, 3);
		for (uint32_t i = 0; i < 3; i++)
			KIT_OPS->revoke(k.engine, grants[i], 0);
		loop_await(ESCROW_EV_GRANT_REVOKED, 3);
	}
	ck_assert_uint_gt(at_once, 0);
	loop_close();
}
END_TEST

/* What limits look at is counted as grants come and go, and the same as who looks at each of them finds. */
static void counted(uint32_t n)
{
	struct escrow_charge c = {.kind = ESCROW_CHARGE_GRANTS};

	en_quota_count(k.engine, &c);
	ck_assert_uint_eq(c.used, n);
	ck_assert_uint_eq(k.engine->granted.grants, n);
	ck_assert_uint_eq(k.engine->granted.bytes, n * UINT64_C(4096));
	ck_assert_uint_eq(en_peer_find(k.engine, peer)->granted.grants, n);
	ck_assert_uint_eq(en_peer_find(k.engine, peer)->granted.bytes, n * UINT64_C(4096));
}

START_TEST(what_limits_look_at)
{
	loop_open();
	counted(0);
	for (uint32_t i = 0; i < 3; i++)
		grants[i] = grant_one(k.engine, peer, k.region);
	counted(3);
	loop_await(ESCROW_EV_GRANT_READY, 3);
	for (uint32_t i = 3; i-- > 0;) {
		KIT_OPS->revoke(k.engine, grants[i], 0);
		loop_await(ESCROW_EV_GRANT_REVOKED, 1);
		counted(i);
	}
	loop_close();
}
END_TEST

/* A lane is somebody else's for as long as he likes: revoke does not wait for it, and the thread does. */
START_TEST(revoked_while_a_lane_is_held)
{
	struct lane *lane;
	uint64_t grant;

	loop_open();
	lane = en_peer_find(k.engine, peer)->conns[0].lane;
	grant = grant_one(k.engine, peer, k.region);
	while (loop_poll() != ESCROW_EV_GRANT_READY)
		;
	until_it_sleeps();
	en_lane_lock(lane);
	ck_assert_int_eq(KIT_OPS->revoke(k.engine, grant, 0), ESCROW_IN_PROGRESS);
	en_lane_unlock(lane);
	/* It was woken: nobody polls. */
	while (!atomic_load(&seen.invalidated))
		;
	while (loop_poll() != ESCROW_EV_GRANT_REVOKED)
		;
	loop_close();
}
END_TEST

static void *grant_main(void *arg)
{
	uint32_t me = *(uint32_t *)arg;

	for (uint64_t turn = 1; turn <= TURNS; turn++) {
		struct escrow_grant_args args = {.size = sizeof(args),
						 .rights = ESCROW_MAY_WRITE,
						 .peer = peer,
						 .region = k.region,
						 .length = 512,
						 .user = me};
		uint64_t grant;

		ck_assert_int_eq(KIT_OPS->grant(k.engine, &args, &grant, NULL), ESCROW_IN_PROGRESS);
		/* Each second one is taken back while it may still be bound; then it is told once, and ends. */
		while (turn % 2 && atomic_load(&ready[me]) + atomic_load(&revoked[me]) < 1)
			;
		ck_assert_int_eq(KIT_OPS->revoke(k.engine, grant, 0), ESCROW_IN_PROGRESS);
		while (!atomic_load(&revoked[me]))
			;
		atomic_store(&ready[me], 0);
		atomic_store(&revoked[me], 0);
	}
	atomic_fetch_add(&ended, 1);
	return NULL;
}

START_TEST(several_that_grant_beside_a_poll)
{
	pthread_t t[THREADS];
	uint32_t me[THREADS];

	loop_open();
	for (uint32_t i = 0; i < THREADS; i++) {
		me[i] = i;
		ck_assert_int_eq(pthread_create(&t[i], NULL, grant_main, &me[i]), 0);
	}
	while (atomic_load(&ended) < THREADS)
		loop_poll();
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	loop_close();
}
END_TEST

/* The budgets of memory (docs/performance.md), with one rail, lane and window. */
START_TEST(what_one_costs)
{
	static const char *const settings[] = {"max_rails=1", "num_lanes=1", NULL};
	struct escrow_error error = {.size = sizeof(error)};
	struct footprint f;

	ck_assert_int_eq(kit_open(&a, "a", settings, &error), ESCROW_OK);
	en_footprint(a.engine, &f);
	ck_assert_uint_le(f.slice_slot, 128);
	ck_assert_uint_le(f.grant, 512);
	ck_assert_uint_le(f.connection, 65536);
	kit_close(&a, NULL, false);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-grants");
	TCase *t = tcase_create("together");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, together_in_one_post);
	tcase_add_loop_test(t, a_device_that_takes_a_part, 0, 4);
	tcase_add_test(t, invalidations_that_are_refused);
	tcase_add_test(t, the_thread_is_not_needed);
	tcase_add_loop_test(t, what_is_asked_is_posted_together, 0, 2);
	tcase_add_test(t, the_thread_takes_what_nobody_comes_for);
	tcase_add_loop_test(t, nothing_waits_while_the_host_does, 0, 2);
	tcase_add_test(t, revoked_while_a_lane_is_held);
	tcase_add_test(t, several_that_grant_beside_a_poll);
	tcase_add_test(t, what_limits_look_at);
	tcase_add_test(t, what_one_costs);
	suite_add_tcase(s, t);
	return testing_run(s);
}
