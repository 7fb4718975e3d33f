/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-EVENT: poll, arm and the event descriptor. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"
#include "tests/conform/patience.h"

#define FD ESCROW_CAP_EVENT_FD
#define IDLE_POLLS 200

/* Is fd readable within ms? */
static bool is_readable(int32_t fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1 && (p.revents & POLLIN);
}

/* Polls and arms until arm gives OK, which it must when nothing comes any more. */
static void arm_idle(struct engine *en)
{
	uint64_t end = patience_end();
	unsigned int round;

	for (round = 0; !patience_over(end); round++) {
		escrow_status status = en->o->arm(en->e, 0);

		if (status == ESCROW_OK)
			return;
		expect_as("V9", status == ESCROW_EVENTS_PENDING, "arm gives %s",
			  verdict_status(status));
		if (!engine_pump())
			patience_idle(round);
	}
	verdict_fail("V9", __FILE__, __LINE__, "arm says EVENTS_PENDING for ever");
}

/* An event of `en` by its own doing: a region goes. */
static void cause_event(struct engine *en, uint64_t *region, void *bytes)
{
	struct escrow_region_args args = {
		.size = sizeof(args),
		.addr = bytes,
		.length = 64,
		.memory_kind = ESCROW_MEMORY_HOST,
		.dmabuf_fd = -1,
	};

	expect_status_as("RE1", engine_region(en, &args, region), ESCROW_OK);
	expect_status_as("RE3", en->o->deregister_memory(en->e, *region, 0), ESCROW_IN_PROGRESS);
}

static void wakes_up(struct conform *c)
{
	static uint8_t bytes[64];
	struct engine *en = engine_open(&c->subject, NULL, "armed");
	int32_t fd = en->o->event_fd(en->e);
	uint64_t region;
	int i;

	expect(fd >= 0, "event_fd gives %d", fd);
	for (i = 0; i < 20; i++) {
		arm_idle(en);
		cause_event(en, &region, bytes);
		expect(is_readable(fd, (int)patience_ms()),
		       "round %d: armed, and the descriptor stays unreadable", i);
		engine_wait(en, ESCROW_EV_REGION_RELEASED, region, NULL);
	}
	engine_close(en);
}

static void pending_refuses(struct conform *c)
{
	static uint8_t bytes[64];
	struct engine *en = engine_open(&c->subject, NULL, "pending");
	int32_t fd = en->o->event_fd(en->e);
	escrow_status status;
	uint64_t region;

	arm_idle(en);
	cause_event(en, &region, bytes);
	expect(is_readable(fd, (int)patience_ms()), "armed, and the descriptor stays unreadable");
	status = en->o->arm(en->e, 0);
	expect(status == ESCROW_EVENTS_PENDING, "an event waits, and arm gives %s",
	       verdict_status(status));
	engine_wait(en, ESCROW_EV_REGION_RELEASED, region, NULL);
	engine_close(en);
}

/* A thread of the backend's may be late, and wake the descriptor once more; that is cleared as the first time was. */
static bool stays_readable(struct engine *en, int32_t fd)
{
	unsigned int i;

	for (i = 0; i < 100; i++) {
		engine_settle();
		arm_idle(en);
		if (!is_readable(fd, 20))
			return false;
	}
	return true;
}

static void goes_quiet(struct conform *c)
{
	static uint8_t bytes[64];
	struct engine *en = engine_open(&c->subject, NULL, "quiet");
	int32_t fd = en->o->event_fd(en->e);
	uint64_t region;
	int i;

	for (i = 0; i < 5; i++) {
		arm_idle(en);
		cause_event(en, &region, bytes);
		engine_wait(en, ESCROW_EV_REGION_RELEASED, region, NULL);
		expect(!stays_readable(en, fd), "nothing waits, it is armed, and stays readable");
	}
	engine_close(en);
}

static void same_descriptor(struct conform *c)
{
	struct pair p;
	int32_t fd;

	pair_open(&p, &c->subject);
	fd = p.a->o->event_fd(p.a->e);
	expect(fd >= 0 && fd != p.b->o->event_fd(p.b->e), "two engines have one descriptor");
	expect_as("F2", fcntl(fd, F_GETFD) & FD_CLOEXEC, "the descriptor is inherited by exec");
	arm_idle(p.a);
	expect_status_as("DR1", p.a->o->quiesce(p.a->e, 0), ESCROW_OK);
	expect(p.a->o->event_fd(p.a->e) == fd, "event_fd gives another descriptor now");
	engine_end(p.a, ESCROW_CLOSE_GRACEFUL);
	expect(p.a->o->event_fd(p.a->e) == fd, "event_fd gives another descriptor after CLOSED");
	engine_release(p.a);
	engine_close(p.b);
}

static double ms_since(const struct timespec *t)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - t->tv_sec) * 1e3 + (double)(now.tv_nsec - t->tv_nsec) / 1e6;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Idle polls: a wait of any kind would show in most of them; another program that runs meanwhile, in few. */
static void never_blocks(struct conform *c)
{
	double ms[IDLE_POLLS], median;
	struct escrow_event ev;
	struct timespec start;
	struct pair p;
	int i;

	pair_open(&p, &c->subject);
	engine_settle();
	for (i = 0; i < IDLE_POLLS; i++) {
		clock_gettime(CLOCK_MONOTONIC, &start);
		expect_as("V5", p.a->o->poll(p.a->e, &ev, 1, sizeof(ev), 0) == 0,
			  "an idle engine has events");
		ms[i] = ms_since(&start);
	}
	qsort(ms, IDLE_POLLS, sizeof(ms[0]), by_size);
	median = ms[IDLE_POLLS / 2];
	expect(median < 5, "a poll of an idle engine takes %.1f ms", median);
	if (median > 0.5)
		verdict_warn("a poll of an idle engine takes %.1f ms", median);
	pair_close(&p);
}

static void in_order(struct conform *c)
{
	struct memory local;
	struct escrow_sge sge = {.length = 64};
	struct escrow_event ev;
	struct escrow_op op;
	struct share s;
	struct pair p;
	uint64_t up, last = 0;
	int i;

	pair_open(&p, &c->subject);
	up = p.a->last_seq;
	expect(up > 0, "no event was numbered");
	pair_share(&p, false, 4096, ESCROW_MAY_READ, &s);
	memory_register(p.a, &local, 4096);
	sge.region = local.region;
	op = pair_op(ESCROW_READ, &s, 0, &sge);
	for (i = 0; i < 50; i++) {
		uint64_t id = pair_start(p.a, &op);

		engine_wait(p.a, ESCROW_EV_OP_DONE, id, &ev);
		expect(ev.seq > last, "seq %llu after %llu", (unsigned long long)ev.seq,
		       (unsigned long long)last);
		last = ev.seq;
	}
	pair_unshare(&s);
	pair_close(&p);
}

/* The event comes after the last poll and before arm: it must not be slept through. */
static void no_gap(struct conform *c)
{
	static uint8_t bytes[64];
	struct engine *en = engine_open(&c->subject, NULL, "gap");
	int32_t fd = en->o->event_fd(en->e);
	escrow_status status;
	uint64_t region;
	int i;

	for (i = 0; i < 100; i++) {
		engine_pump();
		cause_event(en, &region, bytes);
		status = en->o->arm(en->e, 0);
		if (status == ESCROW_OK)
			expect(is_readable(fd, (int)patience_ms()),
			       "round %d: arm gives OK, an event is on its "
			       "way, the descriptor stays unreadable",
			       i);
		else
			expect(status == ESCROW_EVENTS_PENDING, "arm gives %s",
			       verdict_status(status));
		engine_wait(en, ESCROW_EV_REGION_RELEASED, region, NULL);
	}
	engine_close(en);
}

static const struct conform_case cases[] = {
	{"ESC-EVENT-001", "core", "V9", FD, 0, "an armed descriptor wakes up", wakes_up},
	{"ESC-EVENT-002", "core", "V9", FD, 0, "arm refuses while an event waits", pending_refuses},
	{"ESC-EVENT-003", "core", "V10", FD, 0, "arm clears stale readiness", goes_quiet},
	{"ESC-EVENT-004", "data", "O3 F2", FD, 0, "one descriptor for the engine's life",
	 same_descriptor},
	{"ESC-EVENT-005", "data", "B1 B2", 0, 0, "poll does not wait", never_blocks},
	{"ESC-EVENT-006", "data", "V5 V1 CU1", ESCROW_CAP_READ, 0, "events are numbered in order",
	 in_order},
	{"ESC-EVENT-007", "core", "V9", FD, 0, "no event is lost between poll and arm", no_gap},
};

CONFORM_AREA(area_event, cases);
