/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-DRAIN: quiesce, drain, resume. */
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/fault.h"
#include "tests/conform/reach.h"

#define RW (ESCROW_CAP_READ | ESCROW_CAP_WRITE)

static struct escrow_op op_of(struct reach *r, struct escrow_sge *sge)
{
	*sge = (struct escrow_sge){r->local.region, 0, 8192};
	return pair_op(ESCROW_READ, &r->used, 0, sge);
}

static void quiesces(struct conform *c)
{
	struct escrow_sge sge;
	struct escrow_op op;
	struct escrow_event ev;
	struct reach r;
	uint64_t id, more;
	struct engine *a;

	reach_open(&r, c);
	a = r.pair.a;
	op = op_of(&r, &sge);
	id = pair_start(a, &op);
	expect_status(a->o->quiesce(a->e, 0), ESCROW_OK);
	expect_status(engine_transfer(a, &op, 1, &more), ESCROW_E_STATE);
	engine_wait(a, ESCROW_EV_OP_DONE, id, &ev);
	expect(ev.status == ESCROW_OK, "an op that was outstanding at quiesce ends with %s",
	       verdict_status(ev.status));
	expect_status(a->o->quiesce(a->e, 0), ESCROW_OK);
	expect_status_as("DR3", a->o->resume(a->e, 0), ESCROW_OK);
	expect_as("DR3", engine_state(a) == ESCROW_STATE_OPEN, "the state after resume is %u",
		  engine_state(a));
	pair_move(a, &op, 8192);
	reach_close(&r);
}

static void drains_idle(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "drain");
	struct escrow_event ev;
	int i;

	for (i = 0; i < 3; i++) {
		expect_status(en->o->drain(en->e, 0, 0, 0), ESCROW_IN_PROGRESS);
		engine_wait(en, ESCROW_EV_DRAINED, 0, &ev);
		expect(ev.status == ESCROW_OK && !ev.object && !ev.bytes,
		       "DRAINED with %s, object %#llx, bytes %llu", verdict_status(ev.status),
		       (unsigned long long)ev.object, (unsigned long long)ev.bytes);
		expect_as("G2", engine_state(en) == ESCROW_STATE_DRAINED,
			  "the state after DRAINED is %u", engine_state(en));
	}
	expect_status_as("DR3", en->o->resume(en->e, 0), ESCROW_OK);
	expect_as("DR3", engine_state(en) == ESCROW_STATE_OPEN, "the state after resume is %u",
		  engine_state(en));
	engine_close(en);
}

static void drains_ops(struct conform *c)
{
	struct escrow_sge sge;
	struct escrow_op op;
	struct escrow_event drained, done;
	struct reach r;
	struct engine *a;
	uint64_t id[16];
	int i, n;

	reach_open(&r, c);
	a = r.pair.a;
	op = op_of(&r, &sge);
	for (n = 0; n < 16; n++)
		if (engine_transfer(a, &op, 1, &id[n]) != 1)
			break;
	expect_status(a->o->drain(a->e, 0, 0, 0), ESCROW_IN_PROGRESS);
	engine_wait(a, ESCROW_EV_DRAINED, 0, &drained);
	expect(drained.status == ESCROW_OK, "DRAINED with %s", verdict_status(drained.status));
	for (i = 0; i < n; i++) {
		expect(engine_take(a, ESCROW_EV_OP_DONE, id[i], &done),
		       "DRAINED came and op %d of %d had no OP_DONE", i, n);
		expect(done.seq < drained.seq, "DRAINED came before OP_DONE of op %d", i);
	}
	reach_close(&r);
}

/* The device keeps an op: only the clock ends the drain. */
static void times_out(struct conform *c)
{
	struct escrow_sge sge;
	struct escrow_op op;
	struct escrow_event ev;
	struct reach r;
	struct engine *a;
	uint64_t id;

	reach_open(&r, c);
	a = r.pair.a;
	host_freeze(a->host);
	op = op_of(&r, &sge);
	fault_plan(a, "cqe=hold");
	id = pair_start(a, &op);
	expect_status(a->o->drain(a->e, 0, host_now(a->host) + 1000000, 0), ESCROW_IN_PROGRESS);
	engine_settle();
	expect(!engine_pending(a, ESCROW_EV_DRAINED, 0), "DRAINED came before the deadline");
	expect_as("G2", engine_state(a) == ESCROW_STATE_DRAINING, "the state is %u",
		  engine_state(a));
	host_advance(a->host, 1000001);
	engine_wait(a, ESCROW_EV_DRAINED, 0, &ev);
	expect(ev.status == ESCROW_E_TIMEOUT && ev.bytes == 1, "DRAINED with %s and bytes %llu",
	       verdict_status(ev.status), (unsigned long long)ev.bytes);
	expect(engine_state(a) == ESCROW_STATE_QUIESCED, "the state after the time-out is %u",
	       engine_state(a));
	fault_plan(a, "cqe=release");
	engine_wait(a, ESCROW_EV_OP_DONE, id, &ev);
	expect_as("OP2", ev.status == ESCROW_OK, "the op ends with %s", verdict_status(ev.status));
	reach_close(&r);
}

static void drains_one_peer(struct conform *c)
{
	struct escrow_sge sge;
	struct escrow_op op;
	struct escrow_event ev;
	struct reach r;
	struct engine *a;
	uint64_t id;

	reach_open(&r, c);
	a = r.pair.a;
	op = op_of(&r, &sge);
	id = pair_start(a, &op);
	expect_status(a->o->drain(a->e, r.pair.a_peer, 0, 0), ESCROW_IN_PROGRESS);
	expect(engine_state(a) == ESCROW_STATE_OPEN, "the state is %u", engine_state(a));
	engine_wait(a, ESCROW_EV_DRAINED, r.pair.a_peer, &ev);
	expect_as("DR2", ev.status == ESCROW_OK, "DRAINED with %s", verdict_status(ev.status));
	expect_as("DR2", engine_take(a, ESCROW_EV_OP_DONE, id, NULL),
		  "DRAINED of the peer came before OP_DONE");
	expect(engine_state(a) == ESCROW_STATE_OPEN, "the state is %u", engine_state(a));
	pair_move(a, &op, 8192);
	reach_close(&r);
}

static void resumed_while_draining(struct conform *c)
{
	struct escrow_event ev;
	struct reach r;
	struct engine *a;

	reach_open(&r, c);
	a = r.pair.a;
	reach_state(&r, ESCROW_STATE_DRAINING);
	expect_status(a->o->resume(a->e, 0), ESCROW_OK);
	engine_wait(a, ESCROW_EV_DRAINED, 0, &ev);
	expect(ev.status == ESCROW_E_CANCELED, "DRAINED with %s after resume",
	       verdict_status(ev.status));
	expect(engine_state(a) == ESCROW_STATE_OPEN, "the state after resume is %u",
	       engine_state(a));
	reach_close(&r);
}

static struct engine *open_draining(struct reach *r, struct conform *c)
{
	reach_open(r, c);
	host_freeze(r->pair.a->host);
	reach_state(r, ESCROW_STATE_DRAINING);
	return r->pair.a;
}

/* Something comes first: one DRAINED, which says so, and none till the end. */
static void expect_overtaken(struct reach *r)
{
	struct engine *a = r->pair.a;
	struct escrow_event ev;

	engine_wait(a, ESCROW_EV_DRAINED, 0, &ev);
	expect(ev.status < 0 && ev.status != ESCROW_E_TIMEOUT && !ev.object && !ev.bytes,
	       "DRAINED with %s, object %#llx, bytes %llu", verdict_status(ev.status),
	       (unsigned long long)ev.object, (unsigned long long)ev.bytes);
	engine_end(a, ESCROW_CLOSE_ABORT);
	expect(!engine_pending(a, ESCROW_EV_DRAINED, 0), "DRAINED came twice");
	r->state = ESCROW_STATE_CLOSED;
	reach_close(r);
}

static void closed_while_draining(struct conform *c)
{
	struct reach r;
	struct engine *a = open_draining(&r, c);

	expect_status_as("CL1", a->o->close(a->e, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	expect_overtaken(&r);
}

static void lost_while_draining(struct conform *c)
{
	struct reach r;

	fault_plan(open_draining(&r, c), "device=fatal");
	expect_overtaken(&r);
}

/* a is drained; b, who was granted a's memory, goes on using it. */
static void grants_stay(struct conform *c)
{
	struct escrow_sge sge = {.length = 4096};
	struct escrow_op op;
	struct memory local;
	struct reach r;

	reach_open(&r, c);
	reach_state(&r, ESCROW_STATE_DRAINED);
	memory_register(r.pair.b, &local, 4096);
	buffer_fill(&r.lent.mem.buf, 0, 4096, 2);
	sge.region = local.region;
	op = pair_op(ESCROW_READ, &r.lent, 0, &sge);
	pair_move(r.pair.b, &op, 4096);
	expect(buffer_is(&local.buf, 0, 4096, 2), "bytes of a drained owner did not come");
	reach_close(&r);
}

static const struct conform_case cases[] = {
	{"ESC-DRAIN-001", "data", "DR1 DR3", RW, NEED_MISUSE, "quiesce and resume", quiesces},
	{"ESC-DRAIN-002", "core", "DR2 DR3", 0, 0, "drain of an idle engine", drains_idle},
	{"ESC-DRAIN-003", "data", "DR2", RW, 0, "drain with ops outstanding", drains_ops},
	{"ESC-DRAIN-004", "fault", "DR4", RW, NEED_FAULTS, "a drain runs into its deadline",
	 times_out},
	{"ESC-DRAIN-005", "data", "DR5 DR2", RW, 0, "drain of one peer", drains_one_peer},
	{"ESC-DRAIN-006", "fault", "DR6", RW, NEED_FAULTS, "resume ends a drain",
	 resumed_while_draining},
	{"ESC-DRAIN-007", "data", "DR7", RW, 0, "grants stay usable when their owner is drained",
	 grants_stay},
	{"ESC-DRAIN-008", "fault", "DR8", RW, NEED_FAULTS, "close overtakes a drain",
	 closed_while_draining},
	{"ESC-DRAIN-009", "fault", "DR8", RW, NEED_FAULTS,
	 "the loss of the device overtakes a drain", lost_while_draining},
};

CONFORM_AREA(area_drain, cases);
