/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device that is lost is told once, and then nobody is woken for it: a descriptor of it that stays readable would keep
 * whoever sleeps on the engine's, and the control thread, from ever sleeping again.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <infiniband/verbs.h>

#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/softverbs/softverbs.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"

static struct ibv_context *closed; /* its asynchronous events cannot be read any more */

/* The kernel's answer when the device has gone (uverbs_main.c, ib_uverbs_event_read); poll(2) says readable for ever. */
int ibv_get_async_event(struct ibv_context *verbs, struct ibv_async_event *event)
{
	int (*real)(struct ibv_context *, struct ibv_async_event *);

	if (verbs == closed) {
		errno = EIO;
		return -1;
	}
	*(void **)&real = dlsym(RTLD_NEXT, "ibv_get_async_event");
	if (!real)
		abort();
	return real(verbs, event);
}

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* ---- Whoever sleeps on the engine's descriptor --------------------------------------------------------- */
static const char *const settings[] = {"num_lanes=1", "max_rails=1", "drain_ms=100", NULL};
static struct end a, b;
static uint64_t by_a, by_b, remote;

static void connected(void)
{
	uint64_t grant, len;
	uint8_t buf[4096];

	end_open(&a, 'a', settings);
	end_open(&b, 'b', settings);
	ends_connect(&a, &b, &by_a, &by_b);
	len = end_grant(&a, by_a, 0, END_BYTES, ESCROW_MAY_READ, buf, sizeof(buf), &grant);
	remote = end_import(&b, by_b, buf, len);
}

/* Polls until it could go to sleep; Check ends what never can. */
static void until_armed(struct end *e)
{
	while (OPS->arm(e->engine, 0) != ESCROW_OK)
		end_poll(e);
}

START_TEST(the_engine_falls_silent)
{
	struct ibv_context *device;
	struct pollfd fd = {.events = POLLIN};

	connected();
	device = end_qp(&b, by_b)->context;
	fd.fd = OPS->event_fd(b.engine);
	until_armed(&b);
	end_submit(&b, remote, ESCROW_READ, 0, 0, 4096);
	/* The completion has woken, and nobody takes the wake-up before the device is lost. */
	ck_assert_int_eq(poll(&fd, 1, -1), 1);
	softverbs_settle();
	softverbs_event(device, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
	softverbs_event(device, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
	while (!end_has_seen(&b, ESCROW_EV_DEVICE))
		end_poll(&b);
	do {
		end_poll(&b);
		until_armed(&b);
	} while (is_readable(fd.fd));
	end_quarantine(&b);
	end_close(&a);
}
END_TEST

static int unheard(struct ibv_cq *cq, int solicited)
{
	return 0;
}

/* Q20: the queue wakes nobody. The first time it was asked before; whoever sleeps then is woken all the same. */
START_TEST(a_lost_event_is_missed)
{
	struct ibv_context *device;
	struct escrow_event ev;
	struct pollfd fd = {.events = POLLIN};
	uint64_t op;
	int i;

	connected();
	device = end_qp(&b, by_b)->context;
	device->ops.req_notify_cq = unheard;
	fd.fd = OPS->event_fd(b.engine);
	for (i = 0; i < 3; i++) {
		softverbs_hold(device, 1);
		op = end_submit(&b, remote, ESCROW_READ, 0, 0, 4096);
		until_armed(&b);
		softverbs_hold(device, 0);
		while (!end_seen(&b, ESCROW_EV_OP_DONE, op, &ev)) {
			ck_assert_int_eq(poll(&fd, 1, 60000), 1);
			end_poll(&b);
		}
		ck_assert_int_eq(ev.status, ESCROW_OK);
	}
	end_close(&b);
	end_close(&a);
}
END_TEST

/* ---- The control thread, which sleeps on the native side's ------------------------------------------------ */
static struct native *native;
static struct native_context *context[2];

static void open_two(void)
{
	struct native_open_args args = {.host = &rdma_host, .engine_name = "test"};
	struct native_context_info info;
	struct native_event event;

	ck_assert_int_eq(rdma_native.open(&args, &native, NULL), ESCROW_OK);
	ck_assert_uint_eq(rdma_native.ncontexts(native), 2);
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_int_eq(rdma_native.open_device(native, i, &context[i], &info, NULL), 0);
	ck_assert_int_eq(rdma_native.next_event(native, &event), 0);
	ck_assert(!is_readable(rdma_native.event_fd(native)));
}

static void close_two(void)
{
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_int_eq(rdma_native.close_device(context[i]), 0);
	rdma_native.free_native(native);
}

static void told_once(uint32_t which)
{
	struct native_event event;

	ck_assert_int_eq(rdma_native.next_event(native, &event), 1);
	ck_assert_int_eq(event.kind, NATIVE_EV_CONTEXT_FATAL);
	ck_assert_uint_eq(event.context, which);
	ck_assert_int_eq(rdma_native.next_event(native, &event), 0);
	ck_assert(!is_readable(rdma_native.event_fd(native)));
}

/* By its event, by the end of its events, or by one after the other. */
START_TEST(a_lost_device_falls_silent)
{
	open_two();
	softverbs_event(context[0]->verbs, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
	softverbs_event(context[0]->verbs, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
	if (_i == 1)
		closed = context[0]->verbs;
	told_once(0);
	closed = context[0]->verbs;
	softverbs_event(context[0]->verbs, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
	ck_assert(!is_readable(rdma_native.event_fd(native)));
	/* The other one is heard as before. */
	softverbs_event(context[1]->verbs, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
	ck_assert(is_readable(rdma_native.event_fd(native)));
	told_once(1);
	close_two();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("silence");
	TCase *t = tcase_create("a device that is lost");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, the_engine_falls_silent);
	tcase_add_test(t, a_lost_event_is_missed);
	tcase_add_loop_test(t, a_lost_device_falls_silent, 0, 2);
	suite_add_tcase(s, t);
	return testing_run(s);
}
