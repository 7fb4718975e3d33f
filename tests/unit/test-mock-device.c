/* SPDX-License-Identifier: BSD-2-Clause */
/* The mock's native table: time, planned faults, wake-ups, threads. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/mock-ends.h"

static struct end a, b;
static uint32_t key;

static void open_with(const char *settings)
{
	end_open(&a, settings, 64);
	end_open(&b, settings, 64);
	ends_connect(&a, &b);
	key = end_bind(&b, b.q, ESCROW_MAY_READ | ESCROW_MAY_WRITE, 1);
}

static void setup(void)
{
	open_with("");
}

static void teardown(void)
{
	end_close(&a);
	end_close(&b);
}

static struct native_wr access_wr(enum native_opcode opcode, struct native_sge *sge,
				  uint32_t length)
{
	struct native_wr wr = end_wr(&a, opcode, sge, 0, length);

	wr.rkey = key;
	wr.remote_addr = (uint64_t)(uintptr_t)(b.bytes + END_AT);
	return wr;
}

static int poll_a(struct native_cqe *cqe)
{
	return mock_native.poll_cq(a.l, cqe, 4);
}

static void plan(struct end *e, const char *item)
{
	ck_assert_msg(mock_native.fault(e->n, item) == 0, "%s", item);
}

/* ---- Time ----------------------------------------------------------------------------------- */
START_TEST(bytes_are_touched_until_the_completion)
{
	struct native_sge sge;
	struct native_wr wr;
	struct native_cqe cqe[4];

	open_with("mock.delay=3");
	wr = access_wr(NATIVE_WRITE, &sge, 1);
	end_post(a.q, &wr);
	for (uint8_t i = 1; i <= 3; i++) {
		a.bytes[0] = i; /* as nobody may: the source is read again */
		ck_assert_int_eq(poll_a(cqe), 0);
		ck_assert_uint_eq(b.bytes[END_AT], i);
	}
	a.bytes[0] = 4;
	ck_assert_int_eq(poll_a(cqe), 1);
	ck_assert_uint_eq(b.bytes[END_AT], 4);
	a.bytes[0] = 5;
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(poll_a(cqe), 0);
	ck_assert_uint_eq(b.bytes[END_AT], 4);
}
END_TEST

START_TEST(a_fence_waits_for_reads)
{
	struct native_sge sge[2];
	struct native_wr wr[2];
	struct native_cqe cqe[4];

	open_with("mock.delay=2");
	wr[0] = access_wr(NATIVE_READ, &sge[0], 1);
	wr[1] = access_wr(NATIVE_WRITE, &sge[1], 1);
	sge[1].addr += 64;
	a.bytes[64] = 8;
	b.bytes[END_AT] = 7;
	wr[1].flags |= NATIVE_FENCE;
	end_post(a.q, &wr[0]);
	end_post(a.q, &wr[1]);
	ck_assert_int_eq(poll_a(cqe), 0);
	ck_assert_int_eq(poll_a(cqe), 0);
	ck_assert_uint_eq(b.bytes[END_AT], 7);
	ck_assert_int_eq(poll_a(cqe), 1);
	ck_assert_uint_eq(a.bytes[0], 7);
	end_wait(&a, cqe, 1);
	ck_assert_uint_eq(b.bytes[END_AT], 8);
}
END_TEST

START_TEST(random_order_moves_the_same_bytes)
{
	struct native_sge sge;
	struct native_wr wr;
	char settings[64];

	snprintf(settings, sizeof(settings), "mock.order=random mock.delay=1 mock.seed=%d", _i + 1);
	end_open(&a, settings, 64);
	end_open(&b, settings, 64);
	ends_connect(&a, &b);
	struct native_wr bind = {.id = 1,
				 .opcode = NATIVE_BIND,
				 .flags = NATIVE_SIGNALED,
				 .window = b.w,
				 .region = b.r,
				 .addr = (uint64_t)(uintptr_t)b.bytes,
				 .length = END_BYTES,
				 .rkey = key = mock_native.window_key(b.w) + 1,
				 .rights = ESCROW_MAY_WRITE};
	ck_assert_int_eq(end_do(&b, &bind), NATIVE_OK);
	for (uint32_t i = 0; i < END_BYTES; i++)
		a.bytes[i] = (uint8_t)(i * 7 >> 3);
	wr = access_wr(NATIVE_WRITE, &sge, END_BYTES);
	wr.remote_addr -= END_AT;
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_OK);
	ck_assert_mem_eq(a.bytes, b.bytes, END_BYTES);
	teardown();
}
END_TEST

/* ---- Planned faults -------------------------------------------------------------------------- */
START_TEST(withheld_completions_keep_the_bytes_and_what_is_behind)
{
	struct native_sge sge[2];
	struct native_wr first = access_wr(NATIVE_WRITE, &sge[0], 1);
	struct native_wr second = access_wr(NATIVE_WRITE, &sge[1], 0);
	struct native_cqe cqe[4];

	first.id = 1;
	second.id = 2;
	plan(&a, "cqe=hold:1");
	end_post(a.q, &first);
	end_post(a.q, &second);
	for (uint8_t i = 1; i < 50; i++) {
		ck_assert_int_eq(poll_a(cqe), 0);
		a.bytes[0] = i;
		ck_assert_int_eq(poll_a(cqe), 0);
		ck_assert_uint_eq(b.bytes[END_AT], i);
	}
	plan(&a, "cqe=release");
	end_wait(&a, cqe, 2);
	ck_assert_uint_eq(cqe[0].id, 1);
	ck_assert_int_eq(cqe[0].status, NATIVE_OK);
	ck_assert_uint_eq(cqe[1].id, 2);
	a.bytes[0] = 99;
	ck_assert_int_eq(poll_a(cqe), 0);
	ck_assert_uint_ne(b.bytes[END_AT], 99);
}
END_TEST

START_TEST(a_withheld_read_writes_its_sink_again)
{
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_READ, &sge, 1);
	struct native_cqe cqe[4];

	b.bytes[END_AT] = 3;
	plan(&a, "cqe=hold");
	end_post(a.q, &wr);
	ck_assert_int_eq(poll_a(cqe), 0);
	a.bytes[0] = 77;
	ck_assert_int_eq(poll_a(cqe), 0);
	ck_assert_uint_eq(a.bytes[0], 3);
	/* ERR brings nothing; RESET ends it */
	ck_assert_int_eq(mock_native.conn_err(a.q), 0);
	ck_assert_int_eq(poll_a(cqe), 0);
	ck_assert_int_eq(mock_native.conn_reset(a.q), 0);
	a.bytes[0] = 78;
	ck_assert_int_eq(poll_a(cqe), 0);
	ck_assert_uint_eq(a.bytes[0], 78);
}
END_TEST

START_TEST(what_the_owner_took_back_is_not_touched)
{
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, 1);
	struct native_wr stop = {.id = 9, .opcode = NATIVE_INVALIDATE, .flags = NATIVE_SIGNALED};
	struct native_cqe cqe[4];

	plan(&a, "cqe=hold");
	end_post(a.q, &wr);
	ck_assert_int_eq(poll_a(cqe), 0);
	stop.rkey = key;
	ck_assert_int_eq(end_do(&b, &stop), NATIVE_OK);
	b.bytes[END_AT] = 66;
	ck_assert_int_eq(poll_a(cqe), 0);
	ck_assert_uint_eq(b.bytes[END_AT], 66);
}
END_TEST

START_TEST(completions_are_dropped_doubled_and_repeated)
{
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, 0);
	struct native_cqe cqe[4];
	int again = 0;

	plan(&a, "cqe=drop:1");
	end_post(a.q, &wr);
	for (int i = 0; i < 50; i++)
		ck_assert_int_eq(poll_a(cqe), 0);
	plan(&a, "cqe=dup:1");
	wr.id = 5;
	end_post(a.q, &wr);
	end_wait(&a, cqe, 2);
	ck_assert_uint_eq(cqe[0].id, 5);
	ck_assert_uint_eq(cqe[1].id, 5);
	plan(&a, "cqe=stale:1");
	wr.id = 6;
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_OK);
	wr.id = 7;
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_OK);
	for (int i = 0; i < 50; i++)
		again += poll_a(cqe);
	ck_assert_int_eq(again, 1);
	ck_assert_uint_eq(cqe[0].id, 6);
}
END_TEST

START_TEST(a_held_nic_does_nothing)
{
	struct end *held = _i ? &b : &a;
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, 1);
	struct native_cqe cqe[4];

	plan(held, "nic=hold");
	a.bytes[0] = 4;
	end_post(a.q, &wr);
	for (int i = 0; i < 50; i++)
		ck_assert_int_eq(poll_a(cqe) + mock_native.poll_cq(b.l, cqe, 1), 0);
	ck_assert_uint_eq(b.bytes[END_AT], 0);
	plan(held, "nic=run");
	end_wait(&a, cqe, 1);
	ck_assert_uint_eq(b.bytes[END_AT], 4);
}
END_TEST

START_TEST(killed_peers_say_nothing)
{
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, 1);
	struct native_event event;

	plan(&a, "peer=kill");
	ck_assert_int_eq(mock_native.next_event(a.n, &event), 0);
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_RETRY);
	wr = end_wr(&b, NATIVE_SEND, &sge, 0, 1);
	ck_assert_int_eq(end_do(&b, &wr), NATIVE_RETRY);
	ck_assert_int_eq(mock_native.next_event(b.n, &event), 0);
}
END_TEST

START_TEST(a_fatal_device_is_told_once_and_silent)
{
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, 1);
	struct native_event event;
	struct native_cqe cqe[4];

	a.bytes[0] = 1;
	end_post(a.q, &wr);
	plan(&a, "device=fatal");
	event = end_event(&a, NATIVE_EV_CONTEXT_FATAL);
	ck_assert_uint_eq(event.context, 0);
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(poll_a(cqe), 0);
		ck_assert_int_eq(mock_native.next_event(a.n, &event), 0);
	}
	ck_assert_uint_eq(b.bytes[END_AT], 0);
}
END_TEST

START_TEST(bad_plans_are_refused)
{
	static const char *const bad[] = {
		"",         "nic",   "nic=stop",  "cqe=",  "cqe=hold:", "cqe=hold:x", "cqe=hold:1x",
		"cqe=lose", "peer=", "device=ok", "clear "};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(mock_native.fault(a.n, bad[i]) == EINVAL, "'%s'", bad[i]);
}
END_TEST

/* ---- Wake-ups -------------------------------------------------------------------------------- */
static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

START_TEST(who_arms_is_woken)
{
	int fd = mock_native.lane_fd(a.l);
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, 0);
	struct native_cqe cqe[4];

	ck_assert_int_eq(mock_native.arm_cq(a.l), 0);
	ck_assert(!is_readable(fd));
	end_post(a.q, &wr); /* by another thread of the host, say */
	ck_assert(is_readable(fd));
	ck_assert_int_eq(mock_native.take_wakeups(a.l), 0);
	ck_assert(!is_readable(fd));
	ck_assert_int_eq(mock_native.arm_cq(a.l), 0); /* there is work left */
	ck_assert(is_readable(fd));
	ck_assert_int_eq(mock_native.take_wakeups(a.l), 0);
	ck_assert_int_eq(mock_native.arm_cq(a.l), 0);
	ck_assert_int_eq(mock_native.poll_cq(b.l, cqe, 4), 0); /* the device runs elsewhere */
	ck_assert(is_readable(fd));
	ck_assert_int_eq(poll_a(cqe), 1);
}
END_TEST

START_TEST(news_makes_the_event_fd_readable)
{
	int fd = mock_native.event_fd(b.n);

	ck_assert(!is_readable(fd));
	ck_assert_int_eq(mock_native.disconnect(a.q), 0);
	ck_assert(is_readable(fd));
	end_event(&b, NATIVE_EV_DISCONNECTED);
	ck_assert(!is_readable(fd));
}
END_TEST

/* ---- Threads --------------------------------------------------------------------------------- */
#define ROUNDS 2000

static void *write_rounds(void *data)
{
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, 64);
	struct native_cqe cqe;
	intptr_t done = 0;

	for (int i = 0; i < ROUNDS; i++) {
		uint32_t posted;

		memset(a.bytes, i & 0xff, 64);
		if (mock_native.post(a.q, &wr, 1, &posted))
			break;
		while (mock_native.poll_cq(a.l, &cqe, 1) != 1)
			sched_yield();
		done += cqe.status == NATIVE_OK;
	}
	return (void *)done; /* house: a count */
}

START_TEST(both_ends_are_driven_at_once)
{
	pthread_t thread;
	struct native_cqe cqe[4];
	struct native_conn *more;
	void *done;

	ck_assert_int_eq(pthread_create(&thread, NULL, write_rounds, NULL), 0);
	for (int i = 0; i < ROUNDS; i++) {
		ck_assert_int_eq(mock_native.poll_cq(b.l, cqe, 4), 0);
		if (i % 16)
			continue;
		more = end_conn(&b); /* the control side goes on meanwhile */
		ck_assert_int_eq(mock_native.destroy_conn(more), 0);
	}
	ck_assert_int_eq(pthread_join(thread, &done), 0);
	ck_assert_int_eq((intptr_t)done, ROUNDS);
	ck_assert_uint_eq(b.bytes[END_AT + 63], (ROUNDS - 1) & 0xff);
}
END_TEST

static void add_tests(TCase *t)
{
	tcase_add_test(t, withheld_completions_keep_the_bytes_and_what_is_behind);
	tcase_add_test(t, a_withheld_read_writes_its_sink_again);
	tcase_add_test(t, what_the_owner_took_back_is_not_touched);
	tcase_add_test(t, completions_are_dropped_doubled_and_repeated);
	tcase_add_loop_test(t, a_held_nic_does_nothing, 0, 2);
	tcase_add_test(t, killed_peers_say_nothing);
	tcase_add_test(t, a_fatal_device_is_told_once_and_silent);
	tcase_add_test(t, bad_plans_are_refused);
	tcase_add_test(t, who_arms_is_woken);
	tcase_add_test(t, news_makes_the_event_fd_readable);
	tcase_add_test(t, both_ends_are_driven_at_once);
}

int main(void)
{
	Suite *suite = suite_create("mock device");
	TCase *t = tcase_create("default"), *own = tcase_create("own settings"),
	      *none = tcase_create("none open");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_checked_fixture(own, NULL, teardown);
	suite_add_tcase(suite, t);
	suite_add_tcase(suite, own);
	suite_add_tcase(suite, none);
	add_tests(t);
	tcase_add_test(own, bytes_are_touched_until_the_completion);
	tcase_add_test(own, a_fence_waits_for_reads);
	tcase_add_loop_test(none, random_order_moves_the_same_bytes, 0, 8);
	return testing_run(suite);
}
