/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-CLOSE: the end of an engine that has no fault. */
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/reach.h"

#define RW (ESCROW_CAP_READ | ESCROW_CAP_WRITE)

static void take_once(struct engine *en, unsigned int kind, uint64_t object)
{
	struct escrow_event ev;

	expect_as("CL4", engine_take(en, kind, object, &ev), "CLOSED came without %s of %#llx",
		  verdict_event(kind), (unsigned long long)object);
	expect_as("CL4", !engine_take(en, kind, object, &ev), "%s of %#llx came twice",
		  verdict_event(kind), (unsigned long long)object);
}

static void ends_everything(struct conform *c)
{
	struct reach r;
	struct engine *a;

	reach_open(&r, c);
	a = r.pair.a;
	expect_as("CL2", engine_end(a, ESCROW_CLOSE_GRACEFUL) == ESCROW_EV_CLOSED,
		  "close without a fault ends in quarantine");
	take_once(a, ESCROW_EV_GRANT_REVOKED, r.lent.grant);
	take_once(a, ESCROW_EV_PEER_DOWN, r.pair.a_peer);
	take_once(a, ESCROW_EV_REGION_RELEASED, r.lent.mem.region);
	take_once(a, ESCROW_EV_REGION_RELEASED, r.local.region);
	take_once(a, ESCROW_EV_CLOSED, 0);
	expect_as("V5", !a->count, "%u more events came", a->count);
	engine_release(a);
	engine_close(r.pair.b);
}

static void close_with_ops(struct conform *c, uint32_t mode, bool must_work)
{
	struct escrow_sge sge;
	struct escrow_op op;
	struct escrow_event ev;
	struct reach r;
	struct engine *a;
	uint64_t id[12];
	int n, i;

	reach_open(&r, c);
	a = r.pair.a;
	sge = (struct escrow_sge){r.local.region, 0, 8192};
	op = pair_op(ESCROW_READ, &r.used, 0, &sge);
	for (n = 0; n < 12; n++)
		if (engine_transfer(a, &op, 1, &id[n]) != 1)
			break;
	expect_as("CL2", engine_end(a, mode) == ESCROW_EV_CLOSED,
		  "close without a fault ends in quarantine");
	for (i = 0; i < n; i++) {
		expect_as("V2", engine_take(a, ESCROW_EV_OP_DONE, id[i], &ev),
			  "CLOSED came without OP_DONE of op %d", i);
		expect_as("V2", !engine_pending(a, ESCROW_EV_OP_DONE, id[i]),
			  "op %d has two OP_DONE", i);
		expect(ev.status == ESCROW_OK || (!must_work && ev.status < 0),
		       "close(%u): op %d ends with %s", mode, i, verdict_status(ev.status));
		expect_as("CU2", (ev.status == ESCROW_OK) == (ev.effect == ESCROW_EFFECT_EXECUTED),
			  "op %d ends with %s and effect %u", i, verdict_status(ev.status),
			  ev.effect);
	}
	engine_release(a);
	engine_close(r.pair.b);
}

static void waits_for_ops(struct conform *c)
{
	close_with_ops(c, ESCROW_CLOSE_GRACEFUL, true);
}

static void aborts_ops(struct conform *c)
{
	close_with_ops(c, ESCROW_CLOSE_ABORT, false);
}

static void closes_twice(struct conform *c)
{
	struct reach r;
	struct engine *a;
	escrow_status status;
	int i;

	reach_open(&r, c);
	a = r.pair.a;
	expect_status(a->o->close(a->e, 0, ESCROW_CLOSE_GRACEFUL), ESCROW_IN_PROGRESS);
	for (i = 0; i < 3; i++) {
		status = a->o->close(a->e, 0, i ? ESCROW_CLOSE_ABORT : ESCROW_CLOSE_GRACEFUL);
		expect(status == ESCROW_IN_PROGRESS ||
			       (status == ESCROW_OK && engine_state(a) == ESCROW_STATE_CLOSED),
		       "close while CLOSING gives %s", verdict_status(status));
	}
	engine_wait(a, ESCROW_EV_CLOSED, 0, NULL);
	engine_settle();
	expect(!engine_pending(a, ESCROW_EV_CLOSED, 0), "CLOSED came twice");
	take_once(a, ESCROW_EV_PEER_DOWN, r.pair.a_peer);
	engine_release(a);
	engine_close(r.pair.b);
}

static void says_goodbye(struct conform *c)
{
	struct escrow_event down;
	struct reach r;

	reach_open(&r, c);
	engine_close(r.pair.a);
	engine_wait(r.pair.b, ESCROW_EV_PEER_DOWN, r.pair.b_peer, &down);
	take_once(r.pair.b, ESCROW_EV_GRANT_REVOKED, r.used.grant);
	expect(engine_state(r.pair.b) == ESCROW_STATE_OPEN, "the peer's close changed the state");
	memory_deregister(r.pair.b, &r.used.mem);
	engine_close(r.pair.b);
}

static const struct conform_case cases[] = {
	{"ESC-CLOSE-001", "data", "CL4 CL1 CL2 B3", 0, 0, "close ends everything, each once",
	 ends_everything},
	{"ESC-CLOSE-002", "data", "CL4 V2", RW, 0, "a graceful close waits for ops", waits_for_ops},
	{"ESC-CLOSE-003", "data", "CL6 V2", RW, 0, "ABORT ends ops", aborts_ops},
	{"ESC-CLOSE-004", "data", "CL1", 0, 0, "close again while CLOSING", closes_twice},
	{"ESC-CLOSE-005", "data", "CL8", 0, 0, "the peers of a closed engine hear of it",
	 says_goodbye},
};

CONFORM_AREA(area_close, cases);
