/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-QUAR: every step of a teardown that can fail, and what must be kept, told and never retried. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <escrow/fence.h>

#include "tests/conform/book.h"
#include "tests/conform/case.h"
#include "tests/conform/fault.h"
#include "tests/conform/reach.h"

#define RW (ESCROW_CAP_READ | ESCROW_CAP_WRITE)
#define L ESCROW_CAP_LEDGER

static struct book book;

/* A pair whose engine a has an op that the device never gives back. */
static uint64_t open_with_held_op(struct reach *r, struct conform *c, const char *plan)
{
	struct escrow_sge sge;
	struct escrow_op op;
	uint64_t id;

	reach_open(r, c);
	host_freeze(r->pair.a->host); /* so that nothing waits in real time */
	sge = (struct escrow_sge){r->local.region, 0, 8192};
	op = pair_op(ESCROW_READ, &r->used, 0, &sge);
	fault_plan(r->pair.a, plan);
	id = pair_start(r->pair.a, &op);
	engine_pump();
	return id;
}

#define STUCK_OP "cqe=hold;qp_reset=fail;destroy_qp=fail"

static void expect_quarantine(struct engine *a, struct escrow_event *ev)
{
	expect_as("Q1", engine_end(a, ESCROW_CLOSE_ABORT) == ESCROW_EV_QUARANTINED,
		  "close ends in CLOSED though a step failed");
	expect_as("Q1", engine_take_own(a, ESCROW_EV_QUARANTINED, ev), "no QUARANTINED");
	expect_as("Q1", ev->status == ESCROW_E_UNQUIESCED, "QUARANTINED with %s",
		  verdict_status(ev->status));
	expect_as("G2", engine_state(a) == ESCROW_STATE_QUARANTINED, "the state is %u",
		  engine_state(a));
}

static void held_op(struct conform *c)
{
	struct escrow_charge charge;
	struct escrow_event ev, region;
	struct reach r;
	struct engine *a;
	uint64_t id = open_with_held_op(&r, c, STUCK_OP);

	a = r.pair.a;
	expect_as("Q1", engine_end(a, ESCROW_CLOSE_ABORT) == ESCROW_EV_QUARANTINED,
		  "close ends in CLOSED though the device has the bytes of an op");
	expect_as("V2", engine_take(a, ESCROW_EV_OP_DONE, id, &ev), "no OP_DONE");
	expect_as("CU4",
		  ev.status == ESCROW_E_UNQUIESCED && ev.custody == ESCROW_CUSTODY_HELD &&
			  ev.effect == ESCROW_EFFECT_UNKNOWN,
		  "its OP_DONE has %s, custody %u, effect %u", verdict_status(ev.status),
		  ev.custody, ev.effect);
	expect_as("Q2", !engine_pending(a, ESCROW_EV_REGION_RELEASED, r.local.region),
		  "the region of a held op was released");
	expect(engine_take(a, ESCROW_EV_QUARANTINED, r.local.region, &region),
	       "no QUARANTINED for the region of a held op");
	expect(region.status == ESCROW_E_UNQUIESCED && region.bytes == 8192 &&
		       region.user == TOKEN(0x1e9),
	       "QUARANTINED of the region with %s, bytes %llu", verdict_status(region.status),
	       (unsigned long long)region.bytes);
	if (engine_can(a, L)) {
		book_charge(a->o, a->e, ESCROW_CHARGE_BYTES, "", &charge);
		/* how much of a region's charge depends on how many devices hold it */
		expect_as("CH4", charge.stuck > 0 && charge.used >= charge.stuck,
			  "bytes: %llu stuck of %llu used", (unsigned long long)charge.stuck,
			  (unsigned long long)charge.used);
	}
	reach_close(&r);
}

/* A region whose deregistration fails, in an engine that goes on working. */
static void failed_deregister(struct conform *c)
{
	const struct escrow_record *record;
	struct escrow_event ev;
	struct memory bad, good;
	struct engine *en = engine_open(&c->subject, NULL, "dereg");

	memory_register(en, &bad, 4096);
	memory_register(en, &good, 4096);
	fault_plan(en, "deregister@1=fail:5");
	expect_status_as("RE3", en->o->deregister_memory(en->e, bad.region, 0), ESCROW_IN_PROGRESS);
	engine_wait(en, ESCROW_EV_QUARANTINED, bad.region, &ev);
	expect_as("Q1", ev.status == ESCROW_E_UNQUIESCED && ev.bytes == 4096,
		  "QUARANTINED with %s, bytes %llu", verdict_status(ev.status),
		  (unsigned long long)ev.bytes);
	expect_as("Q6", engine_state(en) == ESCROW_STATE_OPEN, "the state is %u", engine_state(en));
	memory_deregister(en, &good);
	expect_as("Q2", !engine_pending(en, ESCROW_EV_REGION_RELEASED, bad.region),
		  "a region was released whose deregistration failed");
	if (engine_can(en, L)) {
		book_read(en->o, en->e, &book);
		book_judge(&book);
		record = book_stuck(&book, ESCROW_OWNER_REGION, ESCROW_STEP_DEREGISTER);
		expect(record && record->sys_errno == EIO && record->length == 4096 &&
			       record->addr == (uint64_t)(uintptr_t)bad.buf.at && record->text[0],
		       "no record of the region with its step, errno, range and reason");
	}
	expect_quarantine(en, &ev);
	expect_as("Q1", ev.bytes >= 4096, "QUARANTINED says %llu bytes are withheld",
		  (unsigned long long)ev.bytes);
	engine_release(en);
}

static void failed_window(struct conform *c)
{
	const struct escrow_record *record;
	struct escrow_event ev;
	struct reach r;
	struct engine *a;

	reach_open(&r, c);
	a = r.pair.a;
	host_freeze(a->host);
	fault_plan(a, "invalidate=fail:5;dealloc_window=fail:5");
	expect_status_as("GR5", a->o->revoke(a->e, r.lent.grant, 0), ESCROW_IN_PROGRESS);
	engine_settle();
	if (!engine_pending(a, ESCROW_EV_QUARANTINED, r.lent.grant))
		host_advance(a->host, UINT64_C(3600000000000));
	engine_wait(a, ESCROW_EV_QUARANTINED, r.lent.grant, &ev);
	expect_as("Q1", ev.status == ESCROW_E_UNQUIESCED, "QUARANTINED with %s",
		  verdict_status(ev.status));
	expect_as("Q2", !engine_pending(a, ESCROW_EV_GRANT_REVOKED, 0),
		  "GRANT_REVOKED though its window could not be freed");
	expect_status_as("RE5", a->o->deregister_memory(a->e, r.lent.mem.region, 0), ESCROW_E_BUSY);
	if (engine_can(a, L)) {
		book_read(a->o, a->e, &book);
		book_judge(&book);
		record = book_stuck(&book, ESCROW_OWNER_WINDOW, 0);
		if (!record)
			record = book_stuck(&book, ESCROW_OWNER_GRANT, 0);
		expect(record && record->sys_errno == EIO &&
			       record->stage == ESCROW_STEP_DEALLOC_WINDOW,
		       "no record of the window with its step and errno");
	}
	expect_quarantine(a, &ev);
	expect_as("Q2", !engine_pending(a, ESCROW_EV_REGION_RELEASED, r.lent.mem.region),
		  "the region of a stuck window was released");
	engine_release(a);
	engine_close(r.pair.b);
}

/* One step of the teardown fails: its owner and those above stay, everything else is released. */
static void failed_step(struct conform *c, const char *plan, uint32_t kind, uint32_t stage,
			int32_t sys_errno)
{
	const struct escrow_record *record;
	struct escrow_event ev;
	struct reach r;
	struct engine *a;

	reach_open(&r, c);
	a = r.pair.a;
	host_freeze(a->host);
	fault_plan(a, plan);
	expect_quarantine(a, &ev);
	expect_as("Q6", engine_take(a, ESCROW_EV_REGION_RELEASED, r.local.region, NULL),
		  "%s: a region without loans was not released", plan);
	expect_as("Q6", engine_take(a, ESCROW_EV_REGION_RELEASED, r.lent.mem.region, NULL),
		  "%s: a region whose grant was revoked was not released", plan);
	expect_as("Q6", engine_take(a, ESCROW_EV_GRANT_REVOKED, r.lent.grant, NULL),
		  "%s: a grant was not revoked", plan);
	expect_as("Q6", !ev.bytes, "%s: %llu host bytes are withheld", plan,
		  (unsigned long long)ev.bytes);
	if (engine_can(a, L)) {
		book_read(a->o, a->e, &book);
		book_judge(&book);
		record = book_stuck(&book, kind, stage);
		expect(record && record->sys_errno == sys_errno && record->text[0],
		       "%s: no record of kind %u with step %u and errno %d", plan, kind, stage,
		       sys_errno);
		expect_as("Q6", !book_stuck(&book, ESCROW_OWNER_REGION, 0),
			  "%s: a region is in quarantine", plan);
	}
	reach_close(&r);
}

static void failed_destroy_qp(struct conform *c)
{
	failed_step(c, "destroy_qp=fail:5", ESCROW_OWNER_CONNECTION, ESCROW_STEP_DESTROY_QP, EIO);
}

static void failed_destroy_cq(struct conform *c)
{
	failed_step(c, "destroy_cq=refused:16", ESCROW_OWNER_LANE, ESCROW_STEP_DESTROY_CQ, EBUSY);
}

static void failed_destroy_channel(struct conform *c)
{
	failed_step(c, "destroy_channel=refused:16", ESCROW_OWNER_LANE, ESCROW_STEP_DESTROY_CHANNEL,
		    EBUSY);
}

static void failed_dealloc_pd(struct conform *c)
{
	failed_step(c, "dealloc_pd=refused:16", ESCROW_OWNER_CONTEXT, ESCROW_STEP_DEALLOC_PD,
		    EBUSY);
}

static void failed_close_device(struct conform *c)
{
	failed_step(c, "close_device=fail:5", ESCROW_OWNER_CONTEXT, ESCROW_STEP_CLOSE_DEVICE, EIO);
}

/* ERR that fails is no proof and costs none: the reset settles what was held. */
static void failed_err(struct conform *c)
{
	struct escrow_event ev;
	struct reach r;
	uint64_t id = open_with_held_op(&r, c, "cqe=hold;qp_err=fail:5");

	expect_as("CL2", engine_end(r.pair.a, ESCROW_CLOSE_ABORT) == ESCROW_EV_CLOSED,
		  "a failed move to ERR ends in quarantine though the reset worked");
	expect_as("V2", engine_take(r.pair.a, ESCROW_EV_OP_DONE, id, &ev), "no OP_DONE");
	expect_as("CU4", ev.custody == ESCROW_CUSTODY_RETURNED, "the bytes are HELD after a reset");
	reach_close(&r);
}

static void outlives_release(struct conform *c)
{
	static struct book before;
	struct escrow_charge charge;
	struct escrow_event ev;
	struct reach r;
	struct engine *a;
	uint32_t i;

	open_with_held_op(&r, c, STUCK_OP);
	a = r.pair.a;
	expect_quarantine(a, &ev);
	book_read(a->o, a->e, &before);
	expect(book_count(&before, ESCROW_OWNER_QUARANTINED) > 0, "no quarantined record");
	engine_release(a);
	book_read(&c->subject.ops, NULL, &book);
	book_judge(&book);
	for (i = 0; i < before.count; i++)
		if (before.record[i].state == ESCROW_OWNER_QUARANTINED)
			expect(book_find(&book, before.record[i].kind, before.record[i].owner),
			       "a quarantined owner of kind %u is not listed after release",
			       before.record[i].kind);
	expect(book_find(&book, ESCROW_OWNER_REGION, r.local.region) &&
		       book_find(&book, ESCROW_OWNER_REGION, r.local.region)->length == 8192,
	       "the region of the held op is not listed after release");
	book_charge(&c->subject.ops, NULL, ESCROW_CHARGE_BYTES, "", &charge);
	expect_as("CH4", charge.stuck > 0, "released engines have %llu bytes stuck",
		  (unsigned long long)charge.stuck);
	engine_close(r.pair.b);
	book_read(&c->subject.ops, NULL, &book);
	expect(book_count(&book, ESCROW_OWNER_QUARANTINED) > 0,
	       "another engine's close ended the quarantine");
}

static void nothing_is_retried(struct conform *c)
{
	struct escrow_event ev;
	struct reach r;
	struct engine *a;
	int64_t calls, made;
	int i;

	open_with_held_op(&r, c, STUCK_OP);
	a = r.pair.a;
	expect_quarantine(a, &ev);
	expect(!(ev.flags & ESCROW_EVF_REPEAT), "the first QUARANTINED has REPEAT");
	made = fault_calls(a, ESCROW_STEP_CREATE_QP);
	expect(fault_calls(a, ESCROW_STEP_DESTROY_QP) <= made &&
		       fault_calls(a, ESCROW_STEP_QP_RESET) <= made,
	       "destroy_qp was called %lld times, qp_reset %lld times on %lld queue pairs",
	       (long long)fault_calls(a, ESCROW_STEP_DESTROY_QP),
	       (long long)fault_calls(a, ESCROW_STEP_QP_RESET), (long long)made);
	calls = fault_all_calls(a);
	for (i = 0; i < 3; i++) {
		expect_status(a->o->close(a->e, 0, i % 2), ESCROW_IN_PROGRESS);
		engine_settle();
		expect(engine_take_own(a, ESCROW_EV_QUARANTINED, &ev),
		       "another close is not answered");
		expect(!ev.object && ev.status == ESCROW_E_UNQUIESCED &&
			       ev.flags == ESCROW_EVF_REPEAT,
		       "the answer to another close: object %#llx, %s, flags %#x",
		       (unsigned long long)ev.object, verdict_status(ev.status), ev.flags);
	}
	engine_settle();
	expect(fault_all_calls(a) == calls, "another close made %lld native calls",
	       (long long)(fault_all_calls(a) - calls));
	engine_release(a);
	engine_close(r.pair.b);
}

static void stuck_share(struct conform *c)
{
	struct escrow_region_args args = {.size = sizeof(args),
					  .length = 64,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	struct memory bad;
	struct engine *en;
	uint64_t region;

	if (!subject_has_option(&c->subject, "stuck_share") ||
	    !subject_has_option(&c->subject, "quota.bytes"))
		verdict_skip("the descriptor lists no option stuck_share");
	engine_setting("quota.bytes", "16384");
	engine_setting("stuck_share", "25");
	en = engine_open(&c->subject, NULL, "stuck");
	memory_register(en, &bad, 8192);
	args.addr = bad.buf.at;
	expect_status(engine_region(en, &args, &region), ESCROW_OK);
	fault_plan(en, "deregister@1=fail:5");
	expect_status(en->o->deregister_memory(en->e, bad.region, 0), ESCROW_IN_PROGRESS);
	engine_wait(en, ESCROW_EV_QUARANTINED, bad.region, NULL);
	expect_status(engine_region(en, &args, &region), ESCROW_E_QUOTA);
	engine_end(en, ESCROW_CLOSE_ABORT);
	engine_release(en);
}

static void late_receipt(struct conform *c)
{
	struct escrow_event ev;
	struct reach r;
	struct engine *a;
	uint64_t id = open_with_held_op(&r, c, STUCK_OP);

	a = r.pair.a;
	expect_quarantine(a, &ev);
	expect_as("CU4", engine_take(a, ESCROW_EV_OP_DONE, id, NULL), "no OP_DONE");
	fault_plan(a, "cqe=release");
	engine_wait(a, ESCROW_EV_OP_RETURNED, id, NULL);
	engine_wait(a, ESCROW_EV_REGION_RELEASED, r.local.region, &ev);
	expect(ev.status == ESCROW_OK, "REGION_RELEASED with %s", verdict_status(ev.status));
	engine_release(a);
	engine_close(r.pair.b);
}

/* The owner's side: nobody here has an op, but the peer's key could not be killed. */
static void owner_side(struct conform *c)
{
	struct escrow_event ev;
	struct reach r;
	struct engine *a;

	reach_open(&r, c);
	a = r.pair.a;
	host_freeze(a->host);
	fault_plan(a, "invalidate=fail:5;dealloc_window=fail:5");
	expect_quarantine(a, &ev);
	expect(!engine_pending(a, ESCROW_EV_REGION_RELEASED, r.lent.mem.region),
	       "a region was released whose key is not dead");
	expect(!engine_pending(a, ESCROW_EV_GRANT_REVOKED, r.lent.grant),
	       "GRANT_REVOKED though its key is not dead");
	expect(engine_take(a, ESCROW_EV_QUARANTINED, r.lent.mem.region, NULL),
	       "no QUARANTINED for the region");
	expect_as("Q6", engine_take(a, ESCROW_EV_REGION_RELEASED, r.local.region, NULL),
		  "a region without grants was not released");
	engine_release(a);
	engine_close(r.pair.b);
}

static void device_lost(struct conform *c)
{
	struct escrow_event ev;
	struct reach r;
	struct engine *a;

	reach_open(&r, c);
	a = r.pair.a;
	host_freeze(a->host);
	fault_plan(a, "device=fatal");
	engine_wait(a, ESCROW_EV_DEVICE, 0, &ev);
	expect(!ev.object, "DEVICE of object %#llx", (unsigned long long)ev.object);
	expect(engine_state(a) == ESCROW_STATE_FAILED, "the state is %u", engine_state(a));
	expect_quarantine(a, &ev);
	expect(!engine_pending(a, ESCROW_EV_REGION_RELEASED, 0),
	       "a region was released by a device that is lost");
	expect(!engine_pending(a, ESCROW_EV_GRANT_REVOKED, 0),
	       "a grant was revoked by a device that is lost");
	expect(ev.bytes >= 8192, "QUARANTINED says %llu bytes are withheld",
	       (unsigned long long)ev.bytes);
	engine_release(a);
	engine_close(r.pair.b);
}

/* A pair of which a's device is lost. */
static const struct escrow_fence *open_lost(struct reach *r, struct conform *c)
{
	const struct escrow_fence *f;
	struct engine *a;

	reach_open(r, c);
	a = r->pair.a;
	host_freeze(a->host);
	f = a->o->get_extension ? a->o->get_extension(a->e, ESCROW_FENCE_ID) : NULL;
	if (!f)
		verdict_skip("get_extension reports no " ESCROW_FENCE_ID);
	fault_plan(a, "device=fatal");
	engine_wait(a, ESCROW_EV_DEVICE, 0, NULL);
	return f;
}

static void fenced(struct conform *c)
{
	uint8_t other[16] = {1, 2, 3};
	struct escrow_event ev;
	struct reach r;
	const struct escrow_fence *f = open_lost(&r, c);
	struct engine *a = r.pair.a;

	expect_quarantine(a, &ev);
	expect_status(f->fenced(a->e, a->limits.incarnation, ESCROW_RECEIPT_CQE_OK),
		      ESCROW_E_INVALID);
	expect_status(f->fenced(a->e, other, ESCROW_RECEIPT_FUNCTION_FENCED), ESCROW_OK);
	engine_settle();
	expect(!engine_pending(a, ESCROW_EV_REGION_RELEASED, 0),
	       "a receipt for another incarnation released a region");
	expect_status(f->fenced(a->e, a->limits.incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
		      ESCROW_OK);
	engine_wait(a, ESCROW_EV_REGION_RELEASED, r.local.region, NULL);
	engine_wait(a, ESCROW_EV_REGION_RELEASED, r.lent.mem.region, NULL);
	engine_release(a);
	engine_close(r.pair.b);
}

/* The function was reset before the host has closed: all ends, and is told, in whatever order. */
static void fenced_early(struct conform *c)
{
	struct reach r;
	const struct escrow_fence *f = open_lost(&r, c);
	struct engine *a = r.pair.a;

	/* Where the loss is news only, nobody sends any more to what is given back. */
	engine_close(r.pair.b);
	expect_status(f->fenced(a->e, a->limits.incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
		      ESCROW_OK);
	if (engine_end(a, ESCROW_CLOSE_ABORT) != ESCROW_EV_CLOSED)
		engine_wait(a, ESCROW_EV_CLOSED, 0, NULL);
	expect(engine_take(a, ESCROW_EV_REGION_RELEASED, r.local.region, NULL) &&
		       engine_take(a, ESCROW_EV_REGION_RELEASED, r.lent.mem.region, NULL),
	       "CLOSED, and a region was not released");
	expect(engine_take(a, ESCROW_EV_GRANT_REVOKED, r.lent.grant, NULL),
	       "CLOSED, and a grant was not revoked");
	engine_release(a);
}

static const struct conform_case cases[] = {
	{"ESC-QUAR-001", "fault", "Q1 Q2 CH4 CU4", RW, NEED_FAULTS, "an op is never given back",
	 held_op},
	{"ESC-QUAR-002", "fault", "RC2 Q2", 0, NEED_FAULTS, "deregister fails", failed_deregister},
	{"ESC-QUAR-003", "fault", "RC2 Q2", 0, NEED_FAULTS, "invalidate and dealloc_window fail",
	 failed_window},
	{"ESC-QUAR-004", "fault", "RC2 Q6", 0, NEED_FAULTS, "destroy_qp fails", failed_destroy_qp},
	{"ESC-QUAR-005", "fault", "RC2 Q6", 0, NEED_FAULTS, "destroy_cq fails", failed_destroy_cq},
	{"ESC-QUAR-006", "fault", "RC2 Q6", 0, NEED_FAULTS, "destroy_channel fails",
	 failed_destroy_channel},
	{"ESC-QUAR-007", "fault", "RC2 Q6", 0, NEED_FAULTS, "dealloc_pd fails", failed_dealloc_pd},
	{"ESC-QUAR-008", "fault", "RC2 Q6", 0, NEED_FAULTS, "close_device fails",
	 failed_close_device},
	{"ESC-QUAR-009", "fault", "CL2 CU4", RW, NEED_FAULTS, "qp_err fails and costs nothing",
	 failed_err},
	{"ESC-QUAR-010", "fault", "RC3 CH4", RW | L, NEED_FAULTS,
	 "quarantined owners outlive the release of their engine", outlives_release},
	{"ESC-QUAR-011", "fault", "Q3", RW, NEED_FAULTS, "nothing is called twice",
	 nothing_is_retried},
	{"ESC-QUAR-012", "fault", "CH5", 0, NEED_FAULTS, "too much is stuck", stuck_share},
	{"ESC-QUAR-013", "fault", "Q4 CU5", RW, NEED_FAULTS, "a receipt comes late", late_receipt},
	{"ESC-QUAR-014", "fault", "Q7 Q6", 0, NEED_FAULTS, "the keys of a region do not die",
	 owner_side},
	{"ESC-QUAR-015", "fault", "Q8", 0, NEED_FAULTS, "the device is lost", device_lost},
	{"ESC-QUAR-016", "fault", "FE1", 0, NEED_FAULTS, "a receipt from outside", fenced},
	{"ESC-QUAR-017", "fault", "FE1", 0, NEED_FAULTS,
	 "a receipt from outside comes before the close", fenced_early},
};

CONFORM_AREA(area_quarantine, cases);
