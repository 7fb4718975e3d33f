/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-HANDLE: handles that are none, foreign or stale; flag words; strides. */
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"
#include "tests/conform/patience.h"

/* Every slot that takes a handle says E_INVALID to one that does not exist in this engine. */
static void check_handle(struct engine *en, uint64_t h)
{
	const struct escrow_ops *o = en->o;
	struct escrow_peer_info info = {.size = sizeof(info)};
	uint64_t remote = 0, len = 0;
	uint8_t bytes[64] = {0};

	trail("handle %#llx", (unsigned long long)h);
	expect_status(o->deregister_memory(en->e, h, 0), ESCROW_E_INVALID);
	expect_status(o->disconnect(en->e, h, 0), ESCROW_E_INVALID);
	expect_status(o->peer_info(en->e, h, &info), ESCROW_E_INVALID);
	expect_status(o->export_grant(en->e, h, NULL, &len), ESCROW_E_INVALID);
	expect_status(o->revoke(en->e, h, 0), ESCROW_E_INVALID);
	expect_status(engine_import(en, h, bytes, sizeof(bytes), 0, &remote), ESCROW_E_INVALID);
	expect_status(o->forget_grant(en->e, h), ESCROW_E_INVALID);
	expect_status(o->cancel(en->e, h, 0), ESCROW_E_INVALID);
	if (h)
		expect_status(o->drain(en->e, h, 0, 0), ESCROW_E_INVALID);
	expect(!info.epoch && !info.user && !info.flags,
	       "a peer_info that failed wrote its output");
}

static void unknown_handles(struct conform *c)
{
	static const uint64_t wild[] = {0,
					1,
					2,
					0xff,
					UINT32_MAX,
					UINT64_C(1) << 32,
					UINT64_C(1) << 63,
					UINT64_MAX,
					UINT64_C(0x7fffffffffffffff),
					UINT64_C(0xbad0000000000001)};
	struct engine *en = engine_open(&c->subject, NULL, "handles");
	size_t i;

	for (i = 0; i < sizeof(wild) / sizeof(wild[0]); i++)
		check_handle(en, wild[i]);
	engine_close(en);
}

static void foreign_handles(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "without");
	struct share s;
	struct pair p;

	pair_open(&p, &c->subject);
	pair_share(&p, false, 4096, ESCROW_MAY_READ, &s);
	check_handle(en, s.mem.region);
	check_handle(en, s.grant);
	check_handle(en, s.remote);
	check_handle(en, p.a_peer);
	check_handle(en, p.b_peer);
	pair_unshare(&s);
	pair_close(&p);
	engine_close(en);
}

static void stale_handles(struct conform *c)
{
	uint64_t region, first;
	struct memory m, other;
	struct share s;
	struct pair p;

	pair_open(&p, &c->subject);
	memory_register(p.a, &m, 4096);
	first = m.region;
	memory_deregister(p.a, &m);
	memory_register(p.a, &other, 4096);
	region = other.region;
	expect(region != first, "a new region has the handle of one that is gone");
	check_handle(p.a, first);
	pair_share(&p, false, 4096, ESCROW_MAY_READ, &s);
	pair_unshare(&s);
	check_handle(p.b, s.grant);
	check_handle(p.a, s.remote);
	expect_status(p.a->o->disconnect(p.a->e, p.a_peer, 0), ESCROW_IN_PROGRESS);
	engine_wait(p.a, ESCROW_EV_PEER_DOWN, p.a_peer, NULL);
	check_handle(p.a, p.a_peer);
	memory_deregister(p.a, &other);
	pair_close(&p);
}

/* Both go on, and nobody is told of what comes of it. */
static void untold(const struct pair *p)
{
	unsigned int round;

	for (round = 0; round < 100; round++) {
		expect_status(
			p->a->o->poll(p->a->e, p->a->window, 0, sizeof(struct escrow_event), 0), 0);
		expect_status(
			p->b->o->poll(p->b->e, p->b->window, 0, sizeof(struct escrow_event), 0), 0);
		patience_idle(round);
	}
}

#define ENDING 3

/* "A second call is IN_PROGRESS", until GRANT_REVOKED was polled; others are made meanwhile. */
static void ending_grants(struct pair *p, struct escrow_grant_args *args)
{
	uint64_t grant[ENDING], more;
	int i;

	for (i = 0; i < ENDING; i++) {
		expect_status(engine_grant(p->b, args, &grant[i]), ESCROW_IN_PROGRESS);
		engine_wait(p->b, ESCROW_EV_GRANT_READY, grant[i], NULL);
	}
	for (i = 0; i < ENDING; i++)
		expect_status(p->b->o->revoke(p->b->e, grant[i], 0), ESCROW_IN_PROGRESS);
	untold(p);
	for (i = 0; i < ENDING; i++)
		expect_status(engine_grant(p->b, args, &more), ESCROW_IN_PROGRESS);
	for (i = 0; i < ENDING; i++)
		expect_status(p->b->o->revoke(p->b->e, grant[i], 0), ESCROW_IN_PROGRESS);
	for (i = 0; i < ENDING; i++)
		engine_wait(p->b, ESCROW_EV_GRANT_REVOKED, grant[i], NULL);
}

/* "E_BUSY: the region is being released". */
static void ending_region(struct pair *p, struct escrow_grant_args *args)
{
	struct memory gone, more;
	uint64_t grant;

	memory_register(p->b, &gone, 4096);
	expect_status(p->b->o->deregister_memory(p->b->e, gone.region, 0), ESCROW_IN_PROGRESS);
	untold(p);
	memory_register(p->b, &more, 4096);
	args->region = gone.region;
	expect_status(engine_grant(p->b, args, &grant), ESCROW_E_BUSY);
	engine_wait(p->b, ESCROW_EV_REGION_RELEASED, gone.region, NULL);
}

static void ending_peer(struct pair *p)
{
	struct escrow_peer_info info = {.size = sizeof(info)};
	const struct escrow_ops *o = p->a->o;
	uint8_t invitation[INVITATION_ROOM];
	uint64_t len;

	expect_status(o->disconnect(p->a->e, p->a_peer, 0), ESCROW_IN_PROGRESS);
	untold(p);
	pair_invite(p->b, PAIR_A, 0, invitation, &len);
	pair_connect_to(p->a, PAIR_B, invitation, len);
	expect_status(o->disconnect(p->a->e, p->a_peer, 0), ESCROW_IN_PROGRESS);
	expect_status(o->peer_info(p->a->e, p->a_peer, &info), ESCROW_OK);
	engine_wait(p->a, ESCROW_EV_PEER_DOWN, p->a_peer, NULL);
}

static void ending_handles(struct conform *c)
{
	struct escrow_grant_args args = {
		.size = sizeof(args), .rights = ESCROW_MAY_READ, .length = 4096};
	struct memory m;
	struct pair p;

	pair_open(&p, &c->subject);
	memory_register(p.b, &m, 4096);
	args.peer = p.b_peer;
	args.region = m.region;
	ending_grants(&p, &args);
	ending_region(&p, &args);
	ending_peer(&p);
	pair_close(&p);
}

/* A handle of one kind is no handle of another. */
static void kinds_of_handles(struct conform *c)
{
	struct share s;
	struct pair p;

	pair_open(&p, &c->subject);
	pair_share(&p, false, 4096, ESCROW_MAY_READ, &s);
	expect_status(p.b->o->revoke(p.b->e, s.mem.region, 0), ESCROW_E_INVALID);
	expect_status(p.b->o->deregister_memory(p.b->e, s.grant, 0), ESCROW_E_INVALID);
	expect_status(p.b->o->disconnect(p.b->e, s.grant, 0), ESCROW_E_INVALID);
	expect_status(p.a->o->disconnect(p.a->e, s.remote, 0), ESCROW_E_INVALID);
	expect_status(p.a->o->forget_grant(p.a->e, p.a_peer), ESCROW_E_INVALID);
	expect_status(p.a->o->cancel(p.a->e, s.remote, 0), ESCROW_E_INVALID);
	pair_unshare(&s);
	pair_close(&p);
}

static void unknown_flags(struct conform *c)
{
	struct escrow_event ev = {.kind = 77};
	const struct escrow_ops *o;
	struct share s;
	struct pair p;
	uint64_t id = UNTOUCHED;
	struct escrow_sge none = {0};
	struct escrow_op op;
	uint32_t f;

	pair_open(&p, &c->subject);
	pair_share(&p, false, 4096, ESCROW_MAY_READ | ESCROW_MAY_WRITE, &s);
	op = pair_op(ESCROW_READ, &s, 0, &none);
	op.nsge = 0;
	o = p.b->o;
	for (f = 1; f; f = f == 1 ? UINT32_C(1) << 31 : 0) {
		expect_status(o->deregister_memory(p.b->e, s.mem.region, f), ESCROW_E_UNSUPPORTED);
		expect_status(o->disconnect(p.b->e, p.b_peer, f), ESCROW_E_UNSUPPORTED);
		expect_status(o->revoke(p.b->e, s.grant, f), ESCROW_E_UNSUPPORTED);
		expect_status(o->transfer(p.a->e, &op, 1, sizeof(op), f, &id),
			      ESCROW_E_UNSUPPORTED);
		expect_status(o->poll(p.b->e, &ev, 1, sizeof(ev), f), ESCROW_E_UNSUPPORTED);
		expect_status(o->quiesce(p.b->e, f), ESCROW_E_UNSUPPORTED);
		expect_status(o->resume(p.b->e, f), ESCROW_E_UNSUPPORTED);
		expect_status(o->drain(p.b->e, 0, 0, f), ESCROW_E_UNSUPPORTED);
		if (engine_can(p.b, ESCROW_CAP_EVENT_FD))
			expect_status(o->arm(p.b->e, f), ESCROW_E_UNSUPPORTED);
	}
	expect(o->close(p.b->e, 0, 2) < 0, "close with mode 2 is accepted");
	expect_as("E3", ev.kind == 77 && id == UNTOUCHED, "a refused call wrote its output");
	expect_as("E3", engine_state(p.b) == ESCROW_STATE_OPEN, "a refused call changed the state");
	op.flags = 1;
	expect_status(engine_transfer(p.a, &op, 1, &id), ESCROW_E_UNSUPPORTED);
	pair_unshare(&s);
	pair_close(&p);
}

static void strides(struct conform *c)
{
	static const uint32_t bad[] = {0, 8, 63, 65, 56, 68, 4294967295u};
	struct engine *en = engine_open(&c->subject, NULL, "strides");
	const struct escrow_ops *o = en->o;
	struct escrow_charge charge;
	struct escrow_record record;
	struct escrow_event ev[2];
	struct escrow_op op = {0};
	uint64_t id, cursor = 0;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		expect_status(o->poll(en->e, ev, 1, bad[i], 0), ESCROW_E_INVALID);
		expect_status(o->transfer(en->e, &op, 1, bad[i], 0, &id), ESCROW_E_INVALID);
		if (!engine_can(en, ESCROW_CAP_LEDGER))
			continue;
		expect_status(o->charges(en->e, &charge, 1, bad[i]), ESCROW_E_INVALID);
		expect_status(o->records(en->e, &cursor, &record, 1, bad[i]), ESCROW_E_INVALID);
	}
	expect_status(o->poll(en->e, ev, 0, sizeof(ev[0]), 0), 0);
	expect_status(o->poll(en->e, ev, 1, 80, 0), 0);
	engine_close(en);
}

static const struct conform_case cases[] = {
	{"ESC-HANDLE-001", "core", "AR6 E1", 0, NEED_MISUSE, "handles that were never given",
	 unknown_handles},
	{"ESC-HANDLE-002", "data", "AR6", 0, NEED_MISUSE, "handles of another engine",
	 foreign_handles},
	{"ESC-HANDLE-003", "data", "AR7", 0, NEED_MISUSE, "handles of what is gone", stale_handles},
	{"ESC-HANDLE-004", "data", "AR6", 0, NEED_MISUSE, "handles of another kind",
	 kinds_of_handles},
	{"ESC-HANDLE-005", "data", "L9 E3", 0, NEED_MISUSE, "unknown flags in each flag word",
	 unknown_flags},
	{"ESC-HANDLE-006", "core", "L8", 0, NEED_MISUSE, "strides of arrays", strides},
	{"ESC-HANDLE-007", "data", "AR8", 0, 0,
	 "handles of what has ended, which nobody has polled", ending_handles},
};

CONFORM_AREA(area_handle, cases);
