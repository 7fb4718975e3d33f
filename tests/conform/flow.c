/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-OP, the flow of ops: full, exactly once, cancelled, late, with peers and regions gone. */
#include <stdlib.h>
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"
#include "tests/conform/patience.h"

#define BOTH (ESCROW_MAY_READ | ESCROW_MAY_WRITE)
#define RW (ESCROW_CAP_READ | ESCROW_CAP_WRITE)
#define MANY 300u

struct flow {
	struct pair p;
	struct memory local;
	struct share s;
	struct escrow_sge sge;
	struct escrow_op op;
};

static void flow_open(struct flow *f, struct conform *c, size_t bytes)
{
	pair_open(&f->p, &c->subject);
	pair_share(&f->p, false, bytes, BOTH, &f->s);
	memory_register(f->p.a, &f->local, bytes);
	f->sge = (struct escrow_sge){f->local.region, 0, bytes};
	f->op = pair_op(ESCROW_READ, &f->s, 0, &f->sge);
}

static void flow_close(struct flow *f)
{
	pair_unshare(&f->s);
	memory_deregister(f->p.a, &f->local);
	pair_close(&f->p);
}

/* Submits without polling until transfer says it is full; the number taken. */
static uint32_t fill_up(struct flow *f, uint32_t most)
{
	uint32_t n;
	uint64_t id;
	int32_t got;

	for (n = 0; n < most; n++) {
		got = engine_transfer(f->p.a, &f->op, 1, &id);
		if (got == ESCROW_E_AGAIN)
			return n;
		expect_as("OP1", got == 1, "op %u gives %s", n, verdict_status(got));
	}
	return n;
}

static void until_full(struct conform *c)
{
	struct flow f;
	uint32_t n, i;
	uint64_t max;

	flow_open(&f, c, 64);
	max = f.p.a->limits.max_ops;
	if (max > 3000)
		max = 3000;
	n = fill_up(&f, (uint32_t)max + 1);
	if (n == max + 1 && max == 3000)
		verdict_warn("not full with %u ops", n);
	else
		expect(n <= max, "%u ops are outstanding, max_ops is %llu", n,
		       (unsigned long long)max);
	if (n <= max)
		engine_wait(f.p.a, ESCROW_EV_ROOM, 0, NULL);
	for (i = 0; i < n; i++)
		engine_wait(f.p.a, ESCROW_EV_OP_DONE, 0, NULL);
	pair_move(f.p.a, &f.op, 64);
	flow_close(&f);
}

/* Many ops of random sizes in random arrays: each has one OP_DONE, and its own token. */
static void exactly_once(struct conform *c)
{
	static struct escrow_op op[8];
	static struct escrow_sge sge[8];
	static uint64_t id[MANY + 8];
	uint32_t n = 0, i, want, seed = (uint32_t)c->seed;
	struct escrow_event ev;
	struct flow f;
	int32_t took;

	flow_open(&f, c, 65536);
	while (n < MANY) {
		seed = seed * 1103515245u + 12345u;
		want = 1 + (seed >> 16) % 8;
		for (i = 0; i < want; i++) {
			seed = seed * 1103515245u + 12345u;
			sge[i] = (struct escrow_sge){f.local.region, (seed >> 8) % 1000,
						     (seed >> 16) % 30000};
			op[i] = pair_op(seed >> 31 ? ESCROW_WRITE : ESCROW_READ, &f.s,
					(seed >> 4) % 500, &sge[i]);
			op[i].user = TOKEN(n + i);
		}
		took = engine_transfer(f.p.a, op, want, id + n);
		expect(took > 0 || took == ESCROW_E_AGAIN, "transfer gives %s",
		       verdict_status(took));
		n += took > 0 ? (uint32_t)took : 0;
		engine_pump();
	}
	for (i = 0; i < n; i++) {
		engine_wait(f.p.a, ESCROW_EV_OP_DONE, id[i], &ev);
		expect_as("V8", ev.user == TOKEN(i), "op %u ends with another's token", i);
		expect_as("CU2",
			  ev.status == ESCROW_OK && ev.custody == ESCROW_CUSTODY_RETURNED &&
				  ev.effect == ESCROW_EFFECT_EXECUTED,
			  "op %u ends with %s, custody %u, effect %u", i, verdict_status(ev.status),
			  ev.custody, ev.effect);
	}
	engine_settle();
	expect(!engine_pending(f.p.a, ESCROW_EV_OP_DONE, 0), "an op has a second OP_DONE");
	flow_close(&f);
}

static void tokens(struct conform *c)
{
	static const uint64_t user[] = {0, 1, UINT64_MAX, TOKEN(5), UINT64_C(1) << 63, 42};
	struct escrow_event ev;
	struct flow f;
	uint64_t id;
	size_t i;

	flow_open(&f, c, 64);
	for (i = 0; i < sizeof(user) / sizeof(user[0]); i++) {
		f.op.user = user[i];
		id = pair_start(f.p.a, &f.op);
		engine_wait(f.p.a, ESCROW_EV_OP_DONE, id, &ev);
		expect(ev.user == user[i], "the token %#llx came back as %#llx",
		       (unsigned long long)user[i], (unsigned long long)ev.user);
	}
	flow_close(&f);
}

static void peer_gone(struct conform *c)
{
	struct escrow_event ev;
	struct flow f;
	uint64_t id;
	int32_t got;

	flow_open(&f, c, 4096);
	engine_close(f.p.b);
	got = engine_transfer(f.p.a, &f.op, 1, &id);
	if (got == 1) {
		engine_wait(f.p.a, ESCROW_EV_OP_DONE, id, &ev);
		expect(ev.status < 0 && ev.effect != ESCROW_EFFECT_EXECUTED,
		       "an op to a peer that is gone ends with %s", verdict_status(ev.status));
	} else {
		expect(got == ESCROW_E_PEER_LOST || got == ESCROW_E_INVALID,
		       "an op to a peer that is gone gives %s", verdict_status(got));
	}
	engine_wait(f.p.a, ESCROW_EV_PEER_DOWN, f.p.a_peer, NULL);
	expect_status(engine_transfer(f.p.a, &f.op, 1, &id), ESCROW_E_PEER_LOST);
	engine_close(f.p.a);
}

static void region_gone(struct conform *c)
{
	struct memory other;
	struct flow f;
	uint64_t id;

	flow_open(&f, c, 4096);
	memory_register(f.p.a, &other, 4096);
	memory_deregister(f.p.a, &other);
	f.sge.region = other.region;
	expect_status(engine_transfer(f.p.a, &f.op, 1, &id), ESCROW_E_INVALID);
	f.sge.region = f.s.mem.region;
	if (f.s.mem.region != f.local.region)
		expect_status(engine_transfer(f.p.a, &f.op, 1, &id), ESCROW_E_INVALID);
	f.sge.region = 0;
	expect_status(engine_transfer(f.p.a, &f.op, 1, &id), ESCROW_E_INVALID);
	f.sge.region = f.local.region;
	f.op.remote = f.local.region;
	expect_status(engine_transfer(f.p.a, &f.op, 1, &id), ESCROW_E_INVALID);
	flow_close(&f);
}

/* Events are polled one at a time into an array whose end is the end of a page. */
static void polled_singly(struct conform *c)
{
	struct escrow_event *one = guard_new(sizeof(*one));
	uint32_t done = 0, round = 0;
	uint64_t last = 0, end;
	struct flow f;
	uint32_t n;

	flow_open(&f, c, 64);
	n = fill_up(&f, 20);
	end = patience_end();
	while (done < n && !patience_over(end)) {
		int32_t got = f.p.a->o->poll(f.p.a->e, one, 1, sizeof(*one), 0);

		expect(got == 0 || got == 1, "poll for one event gives %d", got);
		if (!got) {
			patience_idle(round++);
			continue;
		}
		expect_as("V5", one->seq > last, "seq %llu after %llu",
			  (unsigned long long)one->seq, (unsigned long long)last);
		last = one->seq;
		f.p.a->last_seq = last;
		done += one->kind == ESCROW_EV_OP_DONE;
		round = 0;
		end = patience_end();
	}
	expect_as("V5", done == n, "%u of %u OP_DONE came when polled singly", done, n);
	flow_close(&f);
}

static void cancelled_late(struct conform *c)
{
	struct escrow_event ev;
	struct flow f;
	uint64_t id;

	flow_open(&f, c, 64);
	id = pair_start(f.p.a, &f.op);
	engine_wait(f.p.a, ESCROW_EV_OP_DONE, id, &ev);
	expect_status(f.p.a->o->cancel(f.p.a->e, id, 0), ESCROW_E_INVALID);
	engine_settle();
	expect(!f.p.a->count, "cancel of an op that is over gave an event");
	flow_close(&f);
}

static void cancelled_early(struct conform *c)
{
	uint32_t round, i;
	struct escrow_event ev;
	escrow_status status;
	struct flow f;
	uint64_t id[6];

	flow_open(&f, c, 200000);
	for (round = 0; round < 10; round++) {
		for (i = 0; i < 6; i++)
			id[i] = pair_start(f.p.a, &f.op);
		for (i = 0; i < 6; i++) {
			status = f.p.a->o->cancel(f.p.a->e, id[i], 0);
			expect_as("CA1", status == ESCROW_IN_PROGRESS || status == ESCROW_OK,
				  "cancel gives %s", verdict_status(status));
			expect_as("CA1", f.p.a->o->cancel(f.p.a->e, id[i], 0) >= 0,
				  "a second cancel before OP_DONE fails");
		}
		for (i = 0; i < 6; i++) {
			engine_wait(f.p.a, ESCROW_EV_OP_DONE, id[i], &ev);
			expect_as("CA1", ev.status == ESCROW_OK || ev.status == ESCROW_E_CANCELED,
				  "a cancelled op ends with %s", verdict_status(ev.status));
			expect_as("CU2",
				  ev.status == ESCROW_OK ? ev.effect == ESCROW_EFFECT_EXECUTED
							 : ev.effect != ESCROW_EFFECT_EXECUTED,
				  "a cancelled op ends with %s and effect %u",
				  verdict_status(ev.status), ev.effect);
			expect_as("CU4", ev.custody == ESCROW_CUSTODY_RETURNED,
				  "its bytes are HELD");
		}
		engine_settle();
		expect(!engine_pending(f.p.a, ESCROW_EV_OP_DONE, 0),
		       "a cancelled op has a second OP_DONE");
	}
	pair_move(f.p.a, &f.op, 200000);
	flow_close(&f);
}

/* Deadlines that are far away on the host's clock, whatever any other clock says. */
static void far_deadlines(struct conform *c)
{
	struct flow f;
	int i;

	flow_open(&f, c, 4096);
	host_freeze(f.p.a->host);
	for (i = 0; i < 20; i++) {
		f.op.deadline_ns = host_now(f.p.a->host) + 1;
		pair_move(f.p.a, &f.op, 4096);
	}
	engine_settle();
	expect(!engine_pending(f.p.a, ESCROW_EV_OP_EXPIRED, 0),
	       "OP_EXPIRED came before the deadline on the host's clock");
	flow_close(&f);
}

static void as_advertised(struct conform *c)
{
	uint64_t bit, cap;
	struct flow f;
	uint64_t id;

	flow_open(&f, c, 4096);
	for (bit = 0; bit < 2; bit++) {
		cap = bit ? ESCROW_CAP_WRITE : ESCROW_CAP_READ;
		f.op.opcode = bit ? ESCROW_WRITE : ESCROW_READ;
		if (engine_can(f.p.a, cap))
			pair_move(f.p.a, &f.op, 4096);
		else
			expect_status(engine_transfer(f.p.a, &f.op, 1, &id), ESCROW_E_UNSUPPORTED);
	}
	flow_close(&f);
}

static const struct conform_case cases[] = {
	{"ESC-OP-009", "data", "OP8", RW, 0, "ops until full, and ROOM", until_full},
	{"ESC-OP-011", "data", "V2 CU2 FZ1", RW, 0, "many ops, each ends once", exactly_once},
	{"ESC-OP-012", "data", "V8", RW, 0, "tokens come back as they were", tokens},
	{"ESC-OP-013", "data", "OP10", RW, 0, "ops to a peer that is gone", peer_gone},
	{"ESC-OP-014", "data", "OP4", RW, NEED_MISUSE, "ops on regions that are not its own",
	 region_gone},
	{"ESC-OP-016", "data", "V4 V5", RW, 0, "events polled one at a time", polled_singly},
	{"ESC-OP-017", "data", "CA1", RW, NEED_MISUSE, "cancel of an op that is over",
	 cancelled_late},
	{"ESC-OP-018", "data", "V2 CA1", RW, 0, "cancel at once, and twice", cancelled_early},
	{"ESC-OP-019", "data", "N7 DL1", RW, 0, "deadlines are on the host's clock", far_deadlines},
	{"ESC-OP-020", "data", "K2", 0, 0, "READ and WRITE work as advertised", as_advertised},
};

CONFORM_AREA(area_flow, cases);
