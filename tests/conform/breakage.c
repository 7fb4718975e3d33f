/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-FAULT: completions that are late, lost, doubled; steps that fail; and nothing is lost by it. */
#include <string.h>

#include "tests/conform/book.h"
#include "tests/conform/case.h"
#include "tests/conform/fault.h"
#include "tests/conform/reach.h"

#define RW (ESCROW_CAP_READ | ESCROW_CAP_WRITE)

/* A connected pair with memory, a's clock stopped, and a READ of a's over its whole local memory. */
struct scene {
	struct reach r;
	struct engine *a;
	struct escrow_sge sge;
	struct escrow_op op;
};

static void scene_open(struct scene *s, struct conform *c)
{
	reach_open(&s->r, c);
	s->a = s->r.pair.a;
	host_freeze(s->a->host);
	s->sge = (struct escrow_sge){s->r.local.region, 0, 8192};
	s->op = pair_op(ESCROW_READ, &s->r.used, 0, &s->sge);
}

static void plans(struct conform *c)
{
	static const char *const bad[] = {"nonsense",
					  "register",
					  "register=",
					  "register=maybe",
					  "register@0=fail",
					  "register@x=fail",
					  "register=fail:x",
					  "cqe=maybe",
					  "nic=maybe",
					  "peer=maybe",
					  "register=fail:12;nonsense"};
	struct engine *en = engine_open(&c->subject, NULL, "plans");
	const struct escrow_fault *f = fault_table(en);
	struct escrow_error error;
	struct memory m;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		error.size = sizeof(error);
		expect_status(f->plan(en->e, bad[i], &error), ESCROW_E_INVALID);
		expect_as("E2", memchr(error.text, 0, sizeof(error.text)) && error.text[0],
			  "plan \"%s\" fails without a text", bad[i]);
	}
	expect_status(f->plan(en->e, NULL, &error), ESCROW_E_INVALID);
	memory_register(en, &m, 4096); /* the last bad plan would make it fail */
	memory_deregister(en, &m);
	fault_plan(en, "register@2=fail:12;clear");
	fault_plan(en, "");
	memory_register(en, &m, 4096);
	engine_close(en);
}

static void lost_completion(struct conform *c)
{
	struct escrow_event ev;
	struct scene s;
	uint64_t id;

	scene_open(&s, c);
	fault_plan(s.a, "cqe=drop");
	id = pair_start(s.a, &s.op);
	engine_settle();
	expect(!engine_pending(s.a, ESCROW_EV_OP_DONE, id), "OP_DONE came without a completion");
	expect_as("CL2", engine_end(s.a, ESCROW_CLOSE_ABORT) == ESCROW_EV_CLOSED,
		  "a lost completion ends in quarantine though the reset is a receipt");
	expect_as("V2", engine_take(s.a, ESCROW_EV_OP_DONE, id, &ev), "CLOSED without OP_DONE");
	expect(ev.status < 0 && ev.effect == ESCROW_EFFECT_UNKNOWN,
	       "an op without a completion ends with %s, effect %u", verdict_status(ev.status),
	       ev.effect);
	expect_as("CU4", ev.custody == ESCROW_CUSTODY_RETURNED, "its bytes are HELD after a reset");
	reach_close(&s.r);
}

static void doubled_completions(struct conform *c)
{
	struct scene s;
	uint64_t id[8];
	int i;

	scene_open(&s, c);
	fault_plan(s.a, "cqe=dup");
	for (i = 0; i < 8; i++)
		id[i] = pair_start(s.a, &s.op);
	for (i = 0; i < 8; i++)
		engine_wait(s.a, ESCROW_EV_OP_DONE, id[i], NULL);
	engine_settle();
	expect(!engine_pending(s.a, ESCROW_EV_OP_DONE, 0), "an op has a second OP_DONE");
	reach_close(&s.r);
}

/* An old completion comes while a new op is held: it settles nothing. */
static void stale_completions(struct conform *c)
{
	struct scene s;
	uint64_t id;
	int i;

	scene_open(&s, c);
	fault_plan(s.a, "cqe=stale:4");
	for (i = 0; i < 4; i++) {
		id = pair_start(s.a, &s.op);
		engine_wait(s.a, ESCROW_EV_OP_DONE, id, NULL);
	}
	fault_plan(s.a, "cqe=hold");
	if (engine_transfer(s.a, &s.op, 1, &id) == 1) {
		engine_settle();
		expect(!engine_pending(s.a, ESCROW_EV_OP_DONE, id),
		       "an old completion ended a new op");
		fault_plan(s.a, "cqe=release");
		engine_wait(s.a, ESCROW_EV_OP_DONE, id, NULL);
	}
	reach_close(&s.r);
}

static void expired(struct conform *c)
{
	struct escrow_event ev;
	struct scene s;
	uint64_t id;

	scene_open(&s, c);
	buffer_fill(&s.r.used.mem.buf, 0, 8192, 1);
	fault_plan(s.a, "cqe=hold");
	s.op.deadline_ns = host_now(s.a->host) + 1000000;
	id = pair_start(s.a, &s.op);
	engine_settle();
	expect_as("DL1", !engine_pending(s.a, ESCROW_EV_OP_EXPIRED, id),
		  "OP_EXPIRED came before the deadline");
	host_advance(s.a->host, 1000001);
	engine_wait(s.a, ESCROW_EV_OP_EXPIRED, id, &ev);
	expect_as("V8", ev.user == s.op.user, "OP_EXPIRED without the op's token");
	host_advance(s.a->host, 1000001);
	engine_settle();
	expect(!engine_pending(s.a, ESCROW_EV_OP_DONE, id),
	       "OP_DONE came by the deadline, without a completion");
	expect_as("DL1", !engine_pending(s.a, ESCROW_EV_OP_EXPIRED, id), "OP_EXPIRED came twice");
	expect_as("RE5", s.a->o->deregister_memory(s.a->e, s.r.local.region, 0) == ESCROW_E_BUSY,
		  "the region of an expired op can be taken back");
	fault_plan(s.a, "cqe=release");
	engine_wait(s.a, ESCROW_EV_OP_DONE, id, &ev);
	expect_as("DL1", ev.status == ESCROW_OK && ev.custody == ESCROW_CUSTODY_RETURNED,
		  "a late op that was done ends with %s", verdict_status(ev.status));
	expect_as("OP2", buffer_is(&s.r.local.buf, 0, 8192, 1), "its bytes are not there");
	reach_close(&s.r);
}

static void busy_while_lent(struct conform *c)
{
	struct scene s;
	uint64_t id;

	scene_open(&s, c);
	fault_plan(s.a, "cqe=hold");
	id = pair_start(s.a, &s.op);
	expect_status(s.a->o->deregister_memory(s.a->e, s.r.local.region, 0), ESCROW_E_BUSY);
	expect_status_as("GR7", s.a->o->forget_grant(s.a->e, s.r.used.remote), ESCROW_E_BUSY);
	engine_settle();
	expect(!engine_pending(s.a, ESCROW_EV_REGION_RELEASED, 0), "a lent region was released");
	fault_plan(s.a, "cqe=release");
	engine_wait(s.a, ESCROW_EV_OP_DONE, id, NULL);
	memory_deregister(s.a, &s.r.local);
	expect_status_as("GR7", s.a->o->forget_grant(s.a->e, s.r.used.remote), ESCROW_OK);
	reach_close(&s.r);
}

/* A device that goes on writing is stopped by a proof before the region comes back. */
static void quiet_after_release(struct conform *c)
{
	struct scene s;
	uint64_t id;

	scene_open(&s, c);
	buffer_fill(&s.r.used.mem.buf, 0, 8192, 1);
	fault_plan(s.a, "cqe=hold");
	id = pair_start(s.a, &s.op);
	expect_status_as("PE4", s.a->o->disconnect(s.a->e, s.r.pair.a_peer, 0), ESCROW_IN_PROGRESS);
	engine_wait_long(s.a, ESCROW_EV_PEER_DOWN, s.r.pair.a_peer, NULL);
	expect_as("PE4", engine_take(s.a, ESCROW_EV_OP_DONE, id, NULL),
		  "PEER_DOWN came before OP_DONE");
	memory_deregister(s.a, &s.r.local);
	buffer_fill(&s.r.local.buf, 0, 8192, 99);
	engine_settle();
	expect(buffer_is(&s.r.local.buf, 0, 8192, 99), "bytes changed after REGION_RELEASED");
	reach_close(&s.r);
}

static void peer_killed(struct conform *c)
{
	struct escrow_event ev;
	struct scene s;
	uint64_t id = 0;
	bool started;

	scene_open(&s, c);
	fault_plan(s.a, "nic=hold");
	started = engine_transfer(s.a, &s.op, 1, &id) == 1;
	fault_plan(s.a, "peer=kill;nic=run");
	engine_wait_long(s.a, ESCROW_EV_PEER_DOWN, s.r.pair.a_peer, NULL);
	if (started) {
		expect_as("PE4", engine_take(s.a, ESCROW_EV_OP_DONE, id, &ev),
			  "PEER_DOWN came before OP_DONE");
		expect(ev.status < 0 && ev.effect != ESCROW_EFFECT_EXECUTED,
		       "an op to a killed peer ends with %s, effect %u", verdict_status(ev.status),
		       ev.effect);
	}
	expect(engine_take(s.a, ESCROW_EV_GRANT_REVOKED, s.r.lent.grant, NULL),
	       "the grant of a killed peer was not revoked");
	expect(engine_state(s.a) == ESCROW_STATE_OPEN, "the death of a peer led to state %u",
	       engine_state(s.a));
	memory_deregister(s.a, &s.r.local);
	memory_deregister(s.a, &s.r.lent.mem);
	engine_close(s.a);
}

static void not_yet_bound(struct conform *c)
{
	struct escrow_grant_args args = {
		.size = sizeof(args), .rights = ESCROW_MAY_READ, .user = TOKEN(1), .length = 4096};
	struct escrow_event ev;
	struct scene s;
	uint64_t grant, len = 0;

	scene_open(&s, c);
	args.peer = s.r.pair.a_peer;
	args.region = s.r.local.region;
	fault_plan(s.a, "cqe=hold");
	expect_status_as("GR1", engine_grant(s.a, &args, &grant), ESCROW_IN_PROGRESS);
	engine_settle();
	expect(!engine_pending(s.a, ESCROW_EV_GRANT_READY, grant),
	       "GRANT_READY came before the bind's completion");
	expect_status(s.a->o->export_grant(s.a->e, grant, NULL, &len), ESCROW_E_STATE);
	fault_plan(s.a, "cqe=release");
	engine_wait(s.a, ESCROW_EV_GRANT_READY, grant, &ev);
	expect_as("GR1", ev.status == ESCROW_OK, "GRANT_READY with %s", verdict_status(ev.status));
	expect_status(s.a->o->export_grant(s.a->e, grant, NULL, &len), ESCROW_E_TOO_SMALL);
	reach_close(&s.r);
}

/* The peer's WRITE stands before our memory while we revoke; afterwards it must not land. */
static void late_write(struct conform *c)
{
	struct escrow_event ev;
	struct scene s;
	uint64_t id;

	scene_open(&s, c);
	buffer_fill(&s.r.local.buf, 0, 8192, 3);
	s.op.opcode = ESCROW_WRITE;
	fault_plan(s.a, "nic=hold");
	id = pair_start(s.a, &s.op);
	engine_settle();
	expect_status(s.r.pair.b->o->revoke(s.r.pair.b->e, s.r.used.grant, 0), ESCROW_IN_PROGRESS);
	engine_wait(s.r.pair.b, ESCROW_EV_GRANT_REVOKED, s.r.used.grant, NULL);
	memset(s.r.used.mem.buf.at, BUFFER_CANARY, 8192);
	fault_plan(s.a, "nic=run");
	engine_wait(s.a, ESCROW_EV_OP_DONE, id, &ev);
	engine_settle();
	expect(buffer_intact(&s.r.used.mem.buf, 0, 0), "a WRITE landed after GRANT_REVOKED");
	expect(ev.status < 0, "a WRITE that was revoked before it landed ends with %s",
	       verdict_status(ev.status));
	reach_close(&s.r);
}

/* The receipt of an invalidation is its completion, or a window that was given back. */
static void revoke_waits(struct conform *c)
{
	struct scene s;
	int64_t before;

	scene_open(&s, c);
	fault_plan(s.a, "cqe=hold");
	before = fault_calls(s.a, ESCROW_STEP_DEALLOC_WINDOW);
	expect_status(s.a->o->revoke(s.a->e, s.r.lent.grant, 0), ESCROW_IN_PROGRESS);
	engine_settle();
	expect(!engine_pending(s.a, ESCROW_EV_GRANT_REVOKED, 0) ||
		       fault_calls(s.a, ESCROW_STEP_DEALLOC_WINDOW) > before,
	       "GRANT_REVOKED came without a completion");
	fault_plan(s.a, "cqe=release");
	engine_wait(s.a, ESCROW_EV_GRANT_REVOKED, s.r.lent.grant, NULL);
	reach_close(&s.r);
}

static void failed_grants(struct conform *c)
{
	static const char *const plan[] = {"alloc_window=fail:12", "bind_window=fail:5"};
	struct escrow_grant_args args = {
		.size = sizeof(args), .rights = ESCROW_MAY_READ, .user = TOKEN(1), .length = 4096};
	struct escrow_charge charge, after;
	struct escrow_event ev;
	escrow_status status;
	struct scene s;
	uint64_t grant, len = 0;
	size_t i;

	for (i = 0; i < 2; i++) {
		scene_open(&s, c);
		args.peer = s.r.pair.a_peer;
		args.region = s.r.local.region;
		if (engine_can(s.a, ESCROW_CAP_LEDGER))
			book_charge(s.a->o, s.a->e, ESCROW_CHARGE_GRANTS, "", &charge);
		fault_plan(s.a, plan[i]);
		status = engine_grant(s.a, &args, &grant);
		if (status == ESCROW_IN_PROGRESS) {
			engine_wait(s.a, ESCROW_EV_GRANT_READY, grant, &ev);
			status = ev.status;
			expect(s.a->o->export_grant(s.a->e, grant, NULL, &len) < 0 && !len,
			       "a grant that failed can be exported");
		}
		expect(status < 0, "%s: the grant is made all the same", plan[i]);
		engine_settle();
		if (engine_can(s.a, ESCROW_CAP_LEDGER)) {
			book_charge(s.a->o, s.a->e, ESCROW_CHARGE_GRANTS, "", &after);
			expect(after.used == charge.used,
			       "%s: %llu grants are charged, %llu before", plan[i],
			       (unsigned long long)after.used, (unsigned long long)charge.used);
		}
		fault_plan(s.a, "clear");
		reach_close(&s.r);
	}
}

static void cancelled_while_held(struct conform *c)
{
	struct escrow_event ev;
	struct scene s;
	uint64_t id;

	scene_open(&s, c);
	fault_plan(s.a, "cqe=hold");
	id = pair_start(s.a, &s.op);
	engine_pump();
	expect_status_as("CA1", s.a->o->cancel(s.a->e, id, 0), ESCROW_IN_PROGRESS);
	engine_settle();
	if (engine_take(s.a, ESCROW_EV_OP_DONE, id, &ev))
		expect(ev.custody == ESCROW_CUSTODY_HELD ||
			       fault_calls(s.a, ESCROW_STEP_QP_RESET) > 0,
		       "cancel gave bytes back that the device still has");
	else
		expect(s.a->o->deregister_memory(s.a->e, s.r.local.region, 0) == ESCROW_E_BUSY,
		       "a region whose op is cancelled and not over can be taken back");
	fault_plan(s.a, "cqe=release");
	engine_wait(s.a, ESCROW_EV_OP_DONE, id, &ev);
	expect_as("CA1", ev.status == ESCROW_OK || ev.status == ESCROW_E_CANCELED,
		  "a cancelled op ends with %s", verdict_status(ev.status));
	reach_close(&s.r);
}

static void returned_late(struct conform *c)
{
	struct escrow_event ev;
	struct scene s;
	uint64_t id;

	scene_open(&s, c);
	fault_plan(s.a, "cqe=hold;qp_reset=fail;destroy_qp=fail");
	id = pair_start(s.a, &s.op);
	engine_pump();
	expect_as("Q1", engine_end(s.a, ESCROW_CLOSE_ABORT) == ESCROW_EV_QUARANTINED,
		  "CLOSED though the device still has the bytes");
	expect_as("V2", engine_take(s.a, ESCROW_EV_OP_DONE, id, &ev), "no OP_DONE in quarantine");
	expect_as("CU4", ev.custody == ESCROW_CUSTODY_HELD && ev.status == ESCROW_E_UNQUIESCED,
		  "an op without a receipt ends with %s, custody %u", verdict_status(ev.status),
		  ev.custody);
	expect_as("CU4", !engine_pending(s.a, ESCROW_EV_OP_RETURNED, 0), "OP_RETURNED came early");
	fault_plan(s.a, "cqe=release");
	engine_wait(s.a, ESCROW_EV_OP_RETURNED, id, &ev);
	expect(ev.custody == ESCROW_CUSTODY_RETURNED && ev.user == s.op.user,
	       "OP_RETURNED with custody %u, user %#llx", ev.custody, (unsigned long long)ev.user);
	reach_close(&s.r);
}

static void abort_needs_proof(struct conform *c)
{
	struct escrow_event ev;
	struct scene s;
	uint64_t id;

	scene_open(&s, c);
	buffer_fill(&s.r.used.mem.buf, 0, 8192, 1);
	fault_plan(s.a, "cqe=hold");
	id = pair_start(s.a, &s.op);
	engine_pump();
	expect_as("CL2", engine_end(s.a, ESCROW_CLOSE_ABORT) == ESCROW_EV_CLOSED,
		  "quarantine though the reset is a receipt");
	expect_as("V2", engine_take(s.a, ESCROW_EV_OP_DONE, id, &ev), "CLOSED without OP_DONE");
	expect(ev.status < 0 && ev.effect == ESCROW_EFFECT_UNKNOWN, "it ends with %s, effect %u",
	       verdict_status(ev.status), ev.effect);
	expect(fault_calls(s.a, ESCROW_STEP_QP_RESET) > 0,
	       "CLOSED with a held completion, and the queue pair was not reset");
	memset(s.r.local.buf.at, BUFFER_CANARY, 8192);
	engine_settle();
	expect(buffer_intact(&s.r.local.buf, 0, 0), "bytes changed after CLOSED");
	reach_close(&s.r);
}

static void close_deadline(struct conform *c)
{
	struct escrow_event ev;
	struct scene s;
	uint64_t id;

	scene_open(&s, c);
	fault_plan(s.a, "cqe=hold");
	id = pair_start(s.a, &s.op);
	engine_pump();
	expect_status(s.a->o->close(s.a->e, host_now(s.a->host) + 1000000, ESCROW_CLOSE_GRACEFUL),
		      ESCROW_IN_PROGRESS);
	engine_settle();
	expect(!s.a->closed && engine_state(s.a) == ESCROW_STATE_CLOSING,
	       "a graceful close did not wait for the op");
	expect(!engine_pending(s.a, ESCROW_EV_OP_DONE, id), "the op ended before the deadline");
	host_advance(s.a->host, 1000001);
	engine_wait_long(s.a, ESCROW_EV_CLOSED, 0, NULL);
	expect_as("V2", engine_take(s.a, ESCROW_EV_OP_DONE, id, &ev), "CLOSED without OP_DONE");
	expect(ev.status < 0, "the op ends with %s", verdict_status(ev.status));
	reach_close(&s.r);
}

static const struct conform_case cases[] = {
	{"ESC-FAULT-001", "fault", "X3", 0, NEED_FAULTS | NEED_MISUSE, "fault plans", plans},
	{"ESC-FAULT-003", "fault", "CU2 CU4", RW, NEED_FAULTS, "a completion that never comes",
	 lost_completion},
	{"ESC-FAULT-004", "fault", "V2", RW, NEED_FAULTS, "completions that come twice",
	 doubled_completions},
	{"ESC-FAULT-005", "fault", "CU4", RW, NEED_FAULTS, "completions of an old identity",
	 stale_completions},
	{"ESC-FAULT-006", "fault", "V3 DL1", RW, NEED_FAULTS,
	 "a deadline passes, the bytes stay lent", expired},
	{"ESC-FAULT-007", "fault", "RE5 GR7", RW, NEED_FAULTS,
	 "a region and a remote in use cannot be given up", busy_while_lent},
	{"ESC-FAULT-008", "fault", "RE6", RW, NEED_FAULTS,
	 "no byte is touched after REGION_RELEASED", quiet_after_release},
	{"ESC-FAULT-009", "fault", "PE6", RW, NEED_FAULTS, "the peer's engine dies", peer_killed},
	{"ESC-FAULT-010", "fault", "GR2", RW, NEED_FAULTS,
	 "a grant is exported after its bind only", not_yet_bound},
	{"ESC-FAULT-011", "fault", "GR5", RW, NEED_FAULTS,
	 "a late WRITE does not land after revoke", late_write},
	{"ESC-FAULT-012", "fault", "GR13", 0, NEED_FAULTS, "grants that cannot be made",
	 failed_grants},
	{"ESC-FAULT-013", "fault", "CU4 CA1", RW, NEED_FAULTS,
	 "cancel gives no bytes back by itself", cancelled_while_held},
	{"ESC-FAULT-014", "fault", "CU5 CU4", RW, NEED_FAULTS, "an op that ended HELD is returned",
	 returned_late},
	{"ESC-FAULT-015", "fault", "CL6", RW, NEED_FAULTS, "ABORT skips no proof",
	 abort_needs_proof},
	{"ESC-FAULT-016", "fault", "CL7", RW, NEED_FAULTS,
	 "a graceful close waits for its deadline", close_deadline},
	{"ESC-FAULT-017", "fault", "GR5", RW, NEED_FAULTS, "GRANT_REVOKED waits for a receipt",
	 revoke_waits},
};

CONFORM_AREA(area_breakage, cases);
