/* SPDX-License-Identifier: BSD-2-Clause */
/* Several transferring threads beside poll, cancel and queries, with a control thread: for TSan. */
#include "config.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/engine/pool.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

#define THREADS 3
#define OPS 200

static struct kit a, b;
static uint64_t remote;
static _Atomic uint32_t accepted, done, ended;

static void *transfer_main(void *arg)
{
	uint32_t n = 0, *seed = arg;

	while (n < OPS) {
		struct escrow_sge sge = {
			.region = b.region, .offset = (*seed * 4096) % KIT_BYTES, .length = 512};
		struct escrow_op op = {.remote = remote,
				       .remote_offset = sge.offset,
				       .opcode = ESCROW_WRITE,
				       .nsge = 1,
				       .sge = &sge};
		struct escrow_limits limits = {.size = sizeof(limits)};
		uint64_t id;
		int32_t rc = KIT_OPS->transfer(b.engine, &op, 1, sizeof(op), 0, &id);

		if (rc == ESCROW_E_AGAIN)
			continue;
		ck_assert_int_eq(rc, 1);
		n++;
		atomic_fetch_add(&accepted, 1);
		if (n % 16 == 0)
			KIT_OPS->cancel(b.engine, id, 0);
		if (n % 32 == 0)
			KIT_OPS->query(b.engine, &limits);
	}
	atomic_fetch_add(&ended, 1);
	return NULL;
}

static void *poll_main(void *arg)
{
	struct escrow_event ev[16];
	struct escrow_charge charge[64];
	int32_t n, i;

	while (atomic_load(&ended) < THREADS || atomic_load(&done) < atomic_load(&accepted)) {
		n = KIT_OPS->poll(b.engine, ev, 16, sizeof(ev[0]), 0);
		ck_assert_int_ge(n, 0);
		for (i = 0; i < n; i++) {
			if (ev[i].kind != ESCROW_EV_OP_DONE)
				continue;
			ck_assert_int_eq(ev[i].status, ESCROW_OK);
			ck_assert_int_eq(ev[i].custody, ESCROW_CUSTODY_RETURNED);
			atomic_fetch_add(&done, 1);
		}
		if (n > 8)
			KIT_OPS->charges(b.engine, charge, 64, sizeof(charge[0]));
	}
	return NULL;
}

START_TEST(transfers_beside_poll)
{
	pthread_t t[THREADS], poller;
	uint32_t seeds[THREADS] = {1, 5, 9}, i;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, NULL);
	ck_assert_int_eq(pthread_create(&poller, NULL, poll_main, NULL), 0);
	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, transfer_main, &seeds[i]), 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	pthread_join(poller, NULL);
	/* Each accepted op ended exactly once. */
	ck_assert_uint_eq(atomic_load(&accepted), THREADS * OPS);
	ck_assert_uint_eq(atomic_load(&done), THREADS * OPS);
	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(a.memory[(seeds[i] * 4096) % KIT_BYTES], 'b');
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
}
END_TEST

static void *close_main(void *arg)
{
	ck_assert_int_eq(KIT_OPS->close(a.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	return NULL;
}

/* Q36: closed by three threads at once: one CLOSED, and each queue pair is destroyed once. */
START_TEST(q36_closing_from_several_threads)
{
	const struct escrow_fault *f;
	pthread_t t[THREADS];

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, close_main, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	kit_wait(&a, &b, ESCROW_EV_CLOSED);
	kit_never(&a, &b, ESCROW_EV_CLOSED);
	f = kit_faults(&a);
	ck_assert_int_gt(f->calls(a.engine, ESCROW_STEP_DESTROY_QP), 0);
	ck_assert_int_eq(f->calls(a.engine, ESCROW_STEP_DESTROY_QP),
			 f->calls(a.engine, ESCROW_STEP_CREATE_QP));
	KIT_OPS->release(a.engine);
	a.engine = NULL;
	free(a.memory);
	kit_close(&b, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* With a thread of its own the engine opens, connects to itself and closes; the thread is joined. */
START_TEST(control_thread)
{
	static const char *const settings[] = {"control_thread=1", "drain_ms=50", NULL};
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "me"};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "me"};
	struct escrow_event ev = {0};
	uint8_t buf[1024];
	uint64_t len = sizeof(buf), peer;
	int ups = 0;
	struct kit k;

	ck_assert_int_eq(kit_open(&k, "k", settings, &error), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->invite(k.engine, &invite, buf, &len), ESCROW_OK);
	args.invitation = buf;
	args.invitation_len = len;
	ck_assert_int_eq(KIT_OPS->connect(k.engine, &args, &peer, &error), ESCROW_IN_PROGRESS);
	while (ups < 2) {
		if (KIT_OPS->poll(k.engine, &ev, 1, sizeof(ev), 0) == 1) {
			ck_assert_int_eq(ev.kind, ESCROW_EV_PEER_UP);
			ups++;
		}
	}
	ck_assert_int_eq(KIT_OPS->close(k.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	while (ev.kind != ESCROW_EV_CLOSED)
		KIT_OPS->poll(k.engine, &ev, 1, sizeof(ev), 0);
	KIT_OPS->release(k.engine);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* ---- What the thread sleeps ---------------------------------------------------------------------- */
static _Atomic int naps, short_naps;

/* For that of libc: what the thread asks for. */
int poll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	struct timespec limit = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
	char name[16];

	pthread_getname_np(pthread_self(), name, sizeof(name));
	if (strcmp(name, "escrow-control") == 0 && timeout > 0) {
		atomic_fetch_add(&naps, 1);
		if (timeout < 100)
			atomic_fetch_add(&short_naps, 1);
	}
	return ppoll(fds, nfds, timeout < 0 ? NULL : &limit, NULL);
}

/* A deadline that is far away is no reason to look every few milliseconds whether it has come. */
START_TEST(sleeps_till_the_next_deadline)
{
	static const char *const settings[] = {"control_thread=1", "connect_ms=600000", NULL};
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "b"};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "a"};
	struct escrow_event ev = {0};
	uint8_t buf[1024];
	uint64_t len = sizeof(buf), peer;
	struct kit k;

	kit_start(&a, "a");
	ck_assert_int_eq(kit_open(&k, "b", settings, &error), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->invite(a.engine, &invite, buf, &len), ESCROW_OK);
	args.invitation = buf;
	args.invitation_len = len;
	/* a does not answer: nobody polls it. */
	ck_assert_int_eq(KIT_OPS->connect(k.engine, &args, &peer, &error), ESCROW_IN_PROGRESS);
	while (atomic_load(&naps) < 3)
		sched_yield();
	ck_assert_int_eq(atomic_load(&short_naps), 0);
	ck_assert_int_eq(KIT_OPS->close(k.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	while (ev.kind != ESCROW_EV_CLOSED)
		KIT_OPS->poll(k.engine, &ev, 1, sizeof(ev), 0);
	KIT_OPS->release(k.engine);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* ---- The pool of op slots: taken several at once, each slot has one owner ---------------------- */
#define SLOTS 8
#define TURNS 100000

static struct pool pool;
static _Atomic uint32_t links[SLOTS], owned[SLOTS];

static void *pool_main(void *arg)
{
	uint32_t turn, slot, first, last;

	for (turn = 0; turn < TURNS; turn++) {
		first = pool_take_some(&pool, 1 + turn % 7);
		if (first == POOL_NONE)
			continue;
		for (slot = first; slot != POOL_NONE; slot = pool_next(&pool, slot)) {
			ck_assert_uint_lt(slot, SLOTS);
			ck_assert_uint_eq(atomic_exchange(&owned[slot], 1), 0);
			last = slot;
		}
		for (slot = first; slot != POOL_NONE; slot = pool_next(&pool, slot))
			atomic_store(&owned[slot], 0);
		pool_give_some(&pool, first, last);
	}
	return arg;
}

START_TEST(a_slot_of_the_pool_has_one_owner)
{
	pthread_t threads[THREADS];
	uint32_t i, n = 0;

	pool_init(&pool, links, SLOTS);
	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, pool_main, NULL), 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	while (pool_take(&pool) != POOL_NONE)
		n++;
	ck_assert_uint_eq(n, SLOTS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-threads");
	TCase *t = tcase_create("threads");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, transfers_beside_poll);
	tcase_add_test(t, q36_closing_from_several_threads);
	tcase_add_test(t, control_thread);
	tcase_add_test(t, sleeps_till_the_next_deadline);
	tcase_add_test(t, a_slot_of_the_pool_has_one_owner);
	suite_add_tcase(s, t);
	return testing_run(s);
}
