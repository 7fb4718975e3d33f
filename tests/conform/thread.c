/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ESC-THREAD: slots of different tags at the same time.  Run in a build with the thread sanitizer;
 * without one the cases still see lost and doubled ends of ops.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"

#define BOTH (ESCROW_MAY_READ | ESCROW_MAY_WRITE)
#define RW (ESCROW_CAP_READ | ESCROW_CAP_WRITE)
#define OPS 400u
#define TICKETS (OPS + 16u) /* each thread may hold one that was not accepted */
#define ASKERS 2u
#define QUESTIONS 50u /* of each of them, at least */
#define REGIONS 32u   /* so many may be on their way out at once */

/* What the threads of a case share. */
struct crowd {
	struct pair p;
	struct memory local;
	struct share s;
	struct escrow_sge sge;
	struct escrow_op op;
	atomic_uint accepted;
	atomic_uint done;
	atomic_uint refused;
	atomic_bool stop;
	atomic_bool closed;
	atomic_uint released;   /* regions */
	pthread_barrier_t gate; /* where submitters and askers wait until all of them are there */
	uint32_t share; /* so many ops each submitter has to bring, if there are more than one */
	atomic_uint askers;
	atomic_uint asked[ASKERS];
	atomic_uint allowed; /* so many ops may have been accepted: what else goes on keeps pace */
	atomic_bool hold;    /* the one that polls is to wait */
	atomic_bool held;    /* ... and does */
	_Atomic uint64_t last_op;
	atomic_uint tickets;        /* the tokens of ops: given so far */
	atomic_uint taken[TICKETS]; /* accepted with this token */
	atomic_uint ended[TICKETS]; /* ... and told with it */
};

static void crowd_open(struct crowd *w, struct conform *c, unsigned int at_gate)
{
	memset(w, 0, sizeof(*w));
	pair_open(&w->p, &c->subject);
	pair_share(&w->p, false, 4096, BOTH, &w->s);
	memory_register(w->p.a, &w->local, 4096);
	w->sge = (struct escrow_sge){w->local.region, 0, 4096};
	w->op = pair_op(ESCROW_READ, &w->s, 0, &w->sge);
	w->allowed = OPS;
	w->share = OPS;
	pthread_barrier_init(&w->gate, NULL, at_gate);
}

static bool may_submit(const struct crowd *w)
{
	return atomic_load(&w->accepted) < atomic_load(&w->allowed);
}

/* [data]: submits until told to stop or until OPS were taken, or its share. */
static void *submit(void *arg)
{
	struct crowd *w = arg;
	const struct escrow_ops *o = w->p.a->o;
	struct escrow_op op = w->op;
	uint32_t own = 0;
	uint64_t id;

	op.user = atomic_fetch_add(&w->tickets, 1);
	pthread_barrier_wait(&w->gate);
	while (!atomic_load(&w->stop) && atomic_load(&w->accepted) < OPS && own < w->share) {
		int32_t got;

		if (!may_submit(w)) {
			sched_yield();
			continue;
		}
		got = o->transfer(w->p.a->e, &op, 1, sizeof(op), 0, &id);
		if (got == 1) {
			atomic_fetch_add(&w->taken[op.user], 1);
			atomic_fetch_add(&w->accepted, 1);
			own++;
			op.user = atomic_fetch_add(&w->tickets, 1);
			atomic_store(&w->last_op, id);
		} else {
			expect_as("T2", got == ESCROW_E_AGAIN || got == ESCROW_E_STATE,
				  "a transfer in a race gives %s", verdict_status(got));
			atomic_fetch_add(&w->refused, 1);
			sched_yield();
		}
	}
	return NULL;
}

/* [poll]: of both engines, in one thread, until told to stop. */
static void *poll_both(void *arg)
{
	struct crowd *w = arg;
	struct escrow_event ev[8];
	int32_t n, i;

	while (!atomic_load(&w->stop) || atomic_load(&w->done) < atomic_load(&w->accepted)) {
		atomic_store(&w->held, atomic_load(&w->hold));
		if (atomic_load(&w->held)) {
			sched_yield();
			continue;
		}
		n = w->p.a->o->poll(w->p.a->e, ev, 8, sizeof(ev[0]), 0);
		expect_as("V4", n >= 0 && n <= 8, "poll gives %d", n);
		for (i = 0; i < n; i++) {
			if (ev[i].kind == ESCROW_EV_OP_DONE) {
				atomic_fetch_add(&w->done, 1);
				expect_as("V8", ev[i].user < TICKETS, "a token that no op had");
				atomic_fetch_add(&w->ended[ev[i].user], 1);
			}
			if (ev[i].kind == ESCROW_EV_CLOSED)
				atomic_store(&w->closed, true);
			if (ev[i].kind == ESCROW_EV_REGION_RELEASED)
				atomic_fetch_add(&w->released, 1);
		}
		w->p.b->o->poll(w->p.b->e, ev, 8, sizeof(ev[0]), 0);
		if (!n)
			sched_yield();
	}
	return NULL;
}

/* [any]: asks all the time. */
static void *ask(void *arg)
{
	struct crowd *w = arg;
	const struct escrow_ops *o = w->p.a->o;
	struct escrow_limits limits;
	struct escrow_record record;
	uint32_t me = atomic_fetch_add(&w->askers, 1);
	uint64_t cursor;

	pthread_barrier_wait(&w->gate);
	while (!atomic_load(&w->stop)) {
		limits.size = sizeof(limits);
		expect_status_as("T3", o->query(w->p.a->e, &limits), ESCROW_OK);
		if (engine_can(w->p.a, ESCROW_CAP_LEDGER)) {
			o->charges(w->p.a->e, NULL, 0, sizeof(struct escrow_charge));
			cursor = 0;
			o->records(w->p.a->e, &cursor, &record, 1, sizeof(record));
		}
		o->cancel(w->p.a->e, atomic_load(&w->last_op), 0);
		atomic_fetch_add(&w->allowed, 1);
		atomic_fetch_add(&w->asked[me], 1);
		sched_yield();
	}
	return NULL;
}

static pthread_t start(void *(*f)(void *), void *arg)
{
	pthread_t t;

	if (pthread_create(&t, NULL, f, arg))
		verdict_broken("pthread_create failed");
	return t;
}

/* Everything is over: each op that was accepted ended once. */
static void crowd_judge(struct crowd *w)
{
	expect_as("V2", atomic_load(&w->done) == atomic_load(&w->accepted),
		  "%u ops were accepted, %u OP_DONE came", atomic_load(&w->accepted),
		  atomic_load(&w->done));
	for (uint32_t i = 0; i < TICKETS; i++)
		expect_as("V2", atomic_load(&w->ended[i]) == atomic_load(&w->taken[i]),
			  "the op of token %u was accepted %u times, and ended %u times", i,
			  atomic_load(&w->taken[i]), atomic_load(&w->ended[i]));
}

static void wait_until(const struct crowd *w, uint32_t accepted)
{
	while (atomic_load(&w->accepted) < accepted)
		sched_yield();
}

/* Nobody polls from here on; then so many more are allowed, so that ops are under way. */
static void hold_ops(struct crowd *w, uint32_t more)
{
	atomic_store(&w->hold, true);
	while (!atomic_load(&w->held))
		sched_yield();
	atomic_fetch_add(&w->allowed, more);
	/* Less: an op may have ended before its submitter counts it. */
	while (atomic_load(&w->accepted) <= atomic_load(&w->done))
		sched_yield();
}

static void let_go(struct crowd *w)
{
	atomic_store(&w->hold, false);
}

static void wait_for_ends(const struct crowd *w)
{
	while (atomic_load(&w->done) < atomic_load(&w->accepted))
		sched_yield();
}

static void against_quiesce(struct conform *c)
{
	static struct crowd w;
	pthread_t data, polls;
	const struct escrow_ops *o;
	int i;

	crowd_open(&w, c, 1);
	w.allowed = 0;
	o = w.p.a->o;
	polls = start(poll_both, &w);
	data = start(submit, &w);
	for (i = 1; i <= 20; i++) {
		hold_ops(&w, OPS / 20);
		expect_status(o->quiesce(w.p.a->e, 0), ESCROW_OK);
		let_go(&w);
		wait_for_ends(&w);
		expect_status(o->resume(w.p.a->e, 0), ESCROW_OK);
	}
	pthread_join(data, NULL);
	atomic_store(&w.stop, true);
	pthread_join(polls, NULL);
	crowd_judge(&w);
	engine_settle();
	expect_as("V2", !engine_pending(w.p.a, ESCROW_EV_OP_DONE, 0), "an op ended twice");
	pair_close(&w.p);
}

static void against_close(struct conform *c)
{
	static struct crowd w;
	pthread_t data, polls;

	crowd_open(&w, c, 1);
	w.allowed = 100;
	polls = start(poll_both, &w);
	data = start(submit, &w);
	wait_until(&w, 100);
	hold_ops(&w, OPS - 100);
	expect_status(w.p.a->o->close(w.p.a->e, 0, ESCROW_CLOSE_GRACEFUL), ESCROW_IN_PROGRESS);
	let_go(&w);
	while (!atomic_load(&w.closed))
		sched_yield();
	atomic_store(&w.stop, true);
	pthread_join(data, NULL);
	pthread_join(polls, NULL);
	crowd_judge(&w);
	w.p.a->closed = true;
	engine_release(w.p.a);
	engine_close(w.p.b);
}

static void with_questions(struct conform *c)
{
	static struct crowd w;
	pthread_t data, polls, asks[ASKERS];
	uint32_t i;

	crowd_open(&w, c, ASKERS + 1);
	w.allowed = 0;
	polls = start(poll_both, &w);
	for (i = 0; i < ASKERS; i++)
		asks[i] = start(ask, &w);
	data = start(submit, &w);
	pthread_join(data, NULL);
	for (i = 0; i < ASKERS; i++)
		while (atomic_load(&w.asked[i]) < QUESTIONS)
			sched_yield();
	atomic_store(&w.stop, true);
	for (i = 0; i < ASKERS; i++)
		pthread_join(asks[i], NULL);
	pthread_join(polls, NULL);
	crowd_judge(&w);
	pair_close(&w.p);
}

/* [ctl] beside [data] and [poll]: regions come and go, for as long as there are ops. */
static void with_control(struct conform *c)
{
	static struct crowd w;
	static uint8_t bytes[4096];
	struct escrow_region_args args = {
		.size = sizeof(args),
		.addr = bytes,
		.length = sizeof(bytes),
		.memory_kind = ESCROW_MEMORY_HOST,
		.dmabuf_fd = -1,
	};
	pthread_t data, polls;
	uint32_t begun = 0;
	uint64_t region;

	crowd_open(&w, c, 1);
	w.allowed = 0;
	polls = start(poll_both, &w);
	data = start(submit, &w);
	while (atomic_load(&w.accepted) < OPS) {
		if (atomic_load(&w.allowed) < OPS)
			atomic_fetch_add(&w.allowed, OPS / 50);
		expect_status(w.p.a->o->register_memory(w.p.a->e, &args, &region, NULL), ESCROW_OK);
		expect_status(w.p.a->o->deregister_memory(w.p.a->e, region, 0), ESCROW_IN_PROGRESS);
		begun++;
		while (begun - atomic_load(&w.released) > REGIONS)
			sched_yield();
	}
	pthread_join(data, NULL);
	atomic_store(&w.stop, true);
	pthread_join(polls, NULL);
	crowd_judge(&w);
	pair_close(&w.p);
}

/* Threads with an engine of their own each, which begin some of its lives at once. */
struct neighbours {
	struct conform *c;
	pthread_barrier_t gate;
};

static void *live_alone(void *arg)
{
	struct neighbours *all = arg;
	struct conform *c = all->c;
	const struct escrow_ops *o = &c->subject.ops;
	struct host *host = guard_kept(sizeof(*host));
	struct escrow_open_args args = {.size = sizeof(args),
					.revision = 1,
					.kv_stride = sizeof(struct escrow_kv),
					.engine_name = "alone"};
	struct escrow_event ev = {0};
	struct escrow_engine *e;
	int i;

	host_new_plain(host);
	args.host = host->table;
	for (i = 0; i < 6; i++) {
		if (i % 2 == 0)
			pthread_barrier_wait(&all->gate);
		expect_status(o->open(&args, &e, NULL), ESCROW_OK);
		expect_status(o->close(e, 0, ESCROW_CLOSE_GRACEFUL), ESCROW_IN_PROGRESS);
		for (ev.kind = 0; ev.kind != ESCROW_EV_CLOSED;)
			if (o->poll(e, &ev, 1, sizeof(ev), 0) != 1)
				sched_yield();
		o->release(e);
	}
	return NULL;
}

static void engines_in_threads(struct conform *c)
{
	static struct neighbours all;
	pthread_t t[3];
	int i;

	all.c = c;
	pthread_barrier_init(&all.gate, NULL, 3);
	for (i = 0; i < 3; i++)
		t[i] = start(live_alone, &all);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
}

static void several_submitters(struct conform *c)
{
	static struct crowd w;
	pthread_t data[3], polls;
	int i;

	crowd_open(&w, c, 3);
	w.share = OPS / 3;
	polls = start(poll_both, &w);
	for (i = 0; i < 3; i++)
		data[i] = start(submit, &w);
	for (i = 0; i < 3; i++)
		pthread_join(data[i], NULL);
	atomic_store(&w.stop, true);
	pthread_join(polls, NULL);
	crowd_judge(&w);
	pair_close(&w.p);
}

static const struct conform_case cases[] = {
	{"ESC-THREAD-001", "thread", "T2", RW, 0, "transfer against quiesce and resume",
	 against_quiesce},
	{"ESC-THREAD-002", "thread", "T2", RW, 0, "transfer against close", against_close},
	{"ESC-THREAD-003", "thread", "T3", RW | ESCROW_CAP_TRANSFER_MT, 0,
	 "transfer from several threads", several_submitters},
	{"ESC-THREAD-004", "thread", "T3", RW, 0, "[ctl] beside [data] and [poll]", with_control},
	{"ESC-THREAD-005", "thread", "T1", 0, 0, "engines open and close in several threads",
	 engines_in_threads},
	{"ESC-THREAD-006", "thread", "T3", RW, NEED_MISUSE,
	 "query, charges, records and cancel beside everything", with_questions},
};

CONFORM_AREA(area_thread, cases);
