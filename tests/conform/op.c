/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-OP, the ops themselves: sizes, bounds, descriptors, arrays. */
#include <stdlib.h>
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"

#define BOTH (ESCROW_MAY_READ | ESCROW_MAY_WRITE)
#define RW (ESCROW_CAP_READ | ESCROW_CAP_WRITE)

/* a has local memory, b lends a range of the same size. */
struct stage {
	struct pair p;
	struct memory local;
	struct share s;
};

static void stage_open(struct stage *g, struct conform *c, size_t bytes)
{
	pair_open(&g->p, &c->subject);
	pair_share(&g->p, false, bytes, BOTH, &g->s);
	memory_register(g->p.a, &g->local, bytes);
}

static void stage_close(struct stage *g)
{
	pair_unshare(&g->s);
	memory_deregister(g->p.a, &g->local);
	pair_close(&g->p);
}

static void clear(struct buffer *b)
{
	memset(b->at, BUFFER_CANARY, b->bytes);
}

static void move_and_check(struct stage *g, uint32_t opcode, size_t local, size_t remote, size_t n)
{
	struct escrow_sge sge = {.region = g->local.region, .offset = local, .length = n};
	struct escrow_op op = pair_op(opcode, &g->s, remote, &sge);
	struct buffer *from = opcode == ESCROW_WRITE ? &g->local.buf : &g->s.mem.buf;
	struct buffer *to = opcode == ESCROW_WRITE ? &g->s.mem.buf : &g->local.buf;
	size_t from_at = opcode == ESCROW_WRITE ? local : remote;
	size_t to_at = opcode == ESCROW_WRITE ? remote : local;

	clear(from);
	clear(to);
	buffer_fill(from, from_at, n, (uint32_t)n);
	pair_move(g->p.a, &op, n);
	expect_as("OP2", buffer_is(to, to_at, n, (uint32_t)n), "%zu bytes did not arrive", n);
	expect_as("OP2", buffer_intact(to, to_at, n),
		  "bytes beside the %zu that were asked for "
		  "changed",
		  n);
	expect_as("OP2",
		  buffer_is(from, from_at, n, (uint32_t)n) && buffer_intact(from, from_at, n),
		  "the source of %zu bytes changed", n);
}

static void sizes(struct conform *c)
{
	static const size_t n[] = {1, 2, 7, 8, 63, 64, 65, 4095, 4096, 4097, 65535, 65537, 1 << 20};
	struct stage g;
	size_t i;

	stage_open(&g, c, 1 << 20);
	for (i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
		move_and_check(&g, ESCROW_WRITE, 0, 0, n[i]);
		move_and_check(&g, ESCROW_READ, 0, 0, n[i]);
	}
	stage_close(&g);
}

/* Which of the two a length beyond both gets is the backend's to say. */
static void check_refusal(const struct stage *g, const struct escrow_op *op, int32_t got)
{
	uint64_t most = g->p.a->limits.max_op_bytes;

	expect_as("OP4",
		  got == ESCROW_E_INVALID || (got == ESCROW_E_LIMIT && op->sge->length > most),
		  "opcode %u, sge %#llx + %#llx, remote offset %#llx gives %s: E_INVALID is "
		  "allowed, or E_LIMIT "
		  "beyond max_op_bytes %#llx",
		  op->opcode, (unsigned long long)op->sge->offset,
		  (unsigned long long)op->sge->length, (unsigned long long)op->remote_offset,
		  verdict_status(got), (unsigned long long)most);
}

/* By itself, and behind one that goes: that is all that is taken. */
static void refuse(struct stage *g, const struct escrow_op *op)
{
	struct escrow_sge sge = {.region = g->local.region, .length = 1};
	struct escrow_op both[2] = {pair_op(op->opcode, &g->s, 0, &sge), *op};
	struct escrow_event ev;
	uint64_t id[2];
	int32_t got;

	check_refusal(g, op, engine_transfer(g->p.a, op, 1, id));
	got = engine_transfer(g->p.a, both, 2, id);
	expect_as("OP4", got == 1, "one that goes and sge %#llx + %#llx give %d",
		  (unsigned long long)op->sge->offset, (unsigned long long)op->sge->length, got);
	if (got < 1)
		return;
	engine_wait(g->p.a, ESCROW_EV_OP_DONE, id[0], &ev);
	expect(ev.status == ESCROW_OK, "the op before a bad one ends with %s",
	       verdict_status(ev.status));
}

static void bounds(struct conform *c)
{
	static const struct {
		uint64_t offset, length, remote_offset;
	} bad[] = {
		{0, 8193, 0},
		{1, 8192, 0},
		{8192, 1, 0},
		{8193, 0, 0},
		{UINT64_MAX, 1, 0},
		{UINT64_MAX, 2, 0},
		{UINT64_MAX - 4095, 8192, 0},
		{0, UINT64_MAX, 0},
		{1, UINT64_MAX, 0},
		{0, UINT64_MAX, UINT64_MAX},
		{0, UINT64_MAX - 4094, 0},
		{4096, UINT64_MAX - 4095, 0},
		{UINT64_C(1) << 63, UINT64_C(1) << 63, 0},
		{0, 8192, 1},
		{0, 1, 8192},
		{0, 2, UINT64_MAX},
		{0, 1, UINT64_MAX},
		{0, 4096, UINT64_MAX - 4095},
		{0, 0, 8193},
	};
	struct escrow_sge sge;
	struct escrow_op op;
	struct stage g;
	uint32_t opcode;
	size_t i;

	stage_open(&g, c, 8192);
	for (opcode = ESCROW_READ; opcode <= ESCROW_WRITE; opcode++)
		for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
			sge.region = g.local.region;
			sge.offset = bad[i].offset;
			sge.length = bad[i].length;
			op = pair_op(opcode, &g.s, bad[i].remote_offset, &sge);
			refuse(&g, &op);
		}
	engine_settle();
	expect_as("E3", !g.p.a->count, "an op that was refused has an event");
	move_and_check(&g, ESCROW_READ, 8191, 8191, 1);
	move_and_check(&g, ESCROW_WRITE, 0, 0, 8192);
	stage_close(&g);
}

static void nothing_at_all(struct conform *c)
{
	struct escrow_sge sge[2] = {{0}};
	struct escrow_op op;
	struct stage g;
	uint32_t n;

	stage_open(&g, c, 4096);
	sge[0].region = sge[1].region = g.local.region;
	sge[1].offset = 4096;
	for (n = 0; n <= 2; n++) {
		op = pair_op(ESCROW_READ, &g.s, 0, n ? sge : NULL);
		op.nsge = n;
		pair_move(g.p.a, &op, 0);
		op.opcode = ESCROW_WRITE;
		op.remote_offset = 4096;
		pair_move(g.p.a, &op, 0);
	}
	engine_settle();
	expect(!g.p.a->count, "an op of zero bytes has more than one event");
	expect(buffer_intact(&g.local.buf, 0, 0) && buffer_intact(&g.s.mem.buf, 0, 0),
	       "an op of zero bytes changed some");
	stage_close(&g);
}

/* As many sge as the limit says, in a mixed order; and one more. */
static void scattered(struct conform *c)
{
	uint64_t max, i;
	struct escrow_sge *sge;
	struct escrow_op op;
	struct stage g;
	uint64_t id;

	stage_open(&g, c, 65536);
	max = g.p.a->limits.max_sge > 60 ? 60 : g.p.a->limits.max_sge;
	sge = guard_kept((max + 1) * sizeof(*sge));
	for (i = 0; i <= max; i++) {
		sge[i].region = g.local.region;
		sge[i].offset = (max - i) * 512 + i % 3;
		sge[i].length = 1 + i * 5;
		if (i < max)
			buffer_fill(&g.local.buf, sge[i].offset, sge[i].length, (uint32_t)i);
	}
	op = pair_op(ESCROW_WRITE, &g.s, 0, sge);
	op.nsge = (uint32_t)max;
	pair_move(g.p.a, &op, max + 5 * max * (max - 1) / 2);
	for (i = 0; i < max; i++)
		expect_as("OP2",
			  buffer_is(&g.s.mem.buf, i + 5 * i * (i - 1) / 2, 1 + i * 5, (uint32_t)i),
			  "the bytes of sge %llu did not come in their place",
			  (unsigned long long)i);
	clear(&g.local.buf);
	op.opcode = ESCROW_READ;
	pair_move(g.p.a, &op, max + 5 * max * (max - 1) / 2);
	for (i = 0; i < max; i++)
		expect_as("OP2", buffer_is(&g.local.buf, sge[i].offset, sge[i].length, (uint32_t)i),
			  "READ: the bytes of sge %llu did not come in their place",
			  (unsigned long long)i);
	if (max == g.p.a->limits.max_sge) {
		op.nsge = (uint32_t)max + 1;
		expect_status(engine_transfer(g.p.a, &op, 1, &id), ESCROW_E_LIMIT);
	}
	stage_close(&g);
}

static void too_many_bytes(struct conform *c)
{
	struct escrow_sge sge[2] = {{0}};
	struct escrow_op op;
	struct stage g;
	uint64_t id;
	int32_t got;

	stage_open(&g, c, 4096);
	sge[0].region = sge[1].region = g.local.region;
	sge[0].length = sge[1].length = UINT64_C(1) << 63; /* the sum wraps to zero */
	op = pair_op(ESCROW_WRITE, &g.s, 0, sge);
	if (g.p.a->limits.max_sge >= 2) {
		op.nsge = 2;
		got = engine_transfer(g.p.a, &op, 1, &id);
		expect_as("OP4", got == ESCROW_E_INVALID || got == ESCROW_E_LIMIT,
			  "sge lengths whose sum wraps give %s", verdict_status(got));
	}
	op.nsge = UINT32_MAX;
	got = engine_transfer(g.p.a, &op, 1, &id);
	expect(got == ESCROW_E_LIMIT || got == ESCROW_E_INVALID, "nsge 2^32-1 gives %s",
	       verdict_status(got));
	op.nsge = 1;
	sge[0].length = g.p.a->limits.max_op_bytes + 1;
	if (sge[0].length) {
		got = engine_transfer(g.p.a, &op, 1, &id);
		expect(got == ESCROW_E_LIMIT || got == ESCROW_E_INVALID,
		       "max_op_bytes + 1 gives %s", verdict_status(got));
	}
	stage_close(&g);
}

static void bad_descriptors(struct conform *c)
{
	static const uint32_t opcodes[] = {0, 3, 4, 255, UINT32_MAX};
	struct escrow_sge sge = {.length = 8};
	struct escrow_op op;
	struct stage g;
	uint64_t id;
	int32_t got;
	size_t i;

	stage_open(&g, c, 4096);
	sge.region = g.local.region;
	for (i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		op = pair_op(opcodes[i], &g.s, 0, &sge);
		got = engine_transfer(g.p.a, &op, 1, &id);
		expect(got == ESCROW_E_INVALID || got == ESCROW_E_UNSUPPORTED, "opcode %u gives %s",
		       opcodes[i], verdict_status(got));
	}
	op = pair_op(ESCROW_READ, &g.s, 0, &sge);
	op.reserved0 = 1;
	expect_status_as("L4", engine_transfer(g.p.a, &op, 1, &id), ESCROW_E_INVALID);
	op = pair_op(ESCROW_READ, &g.s, 0, &sge);
	op.reserved1 = 1;
	expect_status_as("L4", engine_transfer(g.p.a, &op, 1, &id), ESCROW_E_INVALID);
	op = pair_op(ESCROW_READ, &g.s, 0, NULL);
	op.nsge = 1;
	expect_status(engine_transfer(g.p.a, &op, 1, &id), ESCROW_E_INVALID);
	expect_status(g.p.a->o->transfer(g.p.a->e, NULL, 1, sizeof(op), 0, &id), ESCROW_E_INVALID);
	op = pair_op(ESCROW_READ, &g.s, 0, &sge);
	expect_status(g.p.a->o->transfer(g.p.a->e, &op, 1, sizeof(op), 0, NULL), ESCROW_E_INVALID);
	stage_close(&g);
}

/* The third of five is bad: two are accepted and done, three were not looked at. */
static void prefix(struct conform *c)
{
	struct escrow_sge sge[5];
	struct escrow_op op[5];
	struct escrow_event ev;
	uint64_t id[5];
	struct stage g;
	int32_t took, i;

	stage_open(&g, c, 4096);
	for (i = 0; i < 5; i++) {
		sge[i] = (struct escrow_sge){g.local.region, (uint64_t)i * 100, 100};
		buffer_fill(&g.local.buf, (size_t)i * 100, 100, (uint32_t)i);
		op[i] = pair_op(ESCROW_WRITE, &g.s, (uint64_t)i * 100, &sge[i]);
		op[i].user = TOKEN(i);
	}
	op[2].opcode = 99;
	took = engine_transfer(g.p.a, op, 5, id);
	expect(took == 2, "five ops of which the third is bad give %d", took);
	for (i = 0; i < 2; i++) {
		engine_wait(g.p.a, ESCROW_EV_OP_DONE, id[i], &ev);
		expect(ev.status == ESCROW_OK && ev.user == TOKEN(i), "op %d ends with %s", i,
		       verdict_status(ev.status));
		expect(buffer_is(&g.s.mem.buf, (size_t)i * 100, 100, (uint32_t)i),
		       "op %d was accepted and did not happen", i);
	}
	engine_settle();
	expect(!g.p.a->count, "an op beyond the prefix has an event");
	expect(buffer_intact(&g.s.mem.buf, 0, 200), "an op beyond the prefix happened");
	stage_close(&g);
}

/* Ops that stand 80 bytes apart, as of a later revision. */
static void strides(struct conform *c)
{
	struct escrow_sge sge[8];
	uint8_t *wide;
	struct escrow_op op;
	uint64_t id[8];
	struct stage g;
	int32_t i;

	stage_open(&g, c, 4096);
	wide = guard_new(8 * 80);
	memset(wide, 0, 8 * 80);
	for (i = 0; i < 8; i++) {
		sge[i] = (struct escrow_sge){g.local.region, (uint64_t)i * 64, 64};
		op = pair_op(ESCROW_WRITE, &g.s, (uint64_t)i * 64, &sge[i]);
		memcpy(wide + (size_t)i * 80, &op, sizeof(op));
	}
	buffer_fill(&g.local.buf, 0, 512, 6);
	expect_status(g.p.a->o->transfer(g.p.a->e, (struct escrow_op *)(void *)wide, 8, 80, 0, id),
		      8);
	for (i = 0; i < 8; i++)
		engine_wait(g.p.a, ESCROW_EV_OP_DONE, id[i], NULL);
	expect(buffer_is(&g.s.mem.buf, 0, 512, 6), "ops with a stride of 80 moved other bytes");
	expect_status(g.p.a->o->transfer(g.p.a->e, &op, 0, sizeof(op), 0, id), 0);
	stage_close(&g);
}

static void odd_places(struct conform *c)
{
	struct escrow_sge sge[3];
	struct escrow_op op;
	struct stage g;
	size_t i;

	stage_open(&g, c, 65536);
	for (i = 1; i < 20000; i = i * 3 + 1)
		move_and_check(&g, i & 1 ? ESCROW_READ : ESCROW_WRITE, i, 3 * i % 4099, i);
	clear(&g.s.mem.buf);
	buffer_fill(&g.local.buf, 10, 100, 1);
	for (i = 0; i < 3; i++)
		sge[i] = (struct escrow_sge){g.local.region, 10, 100};
	op = pair_op(ESCROW_WRITE, &g.s, 7, sge);
	op.nsge = g.p.a->limits.max_sge < 3 ? 1 : 3;
	pair_move(g.p.a, &op, op.nsge * 100);
	for (i = 0; i < op.nsge; i++)
		expect_as("OP9", buffer_is(&g.s.mem.buf, 7 + i * 100, 100, 1),
			  "copy %zu of a source that is named several times is wrong", i);
	stage_close(&g);
}

static const struct conform_case cases[] = {
	{"ESC-OP-001", "data", "OP1 OP2 OP9 CU3 O2 N6", RW, 0, "READ and WRITE of many sizes",
	 sizes},
	{"ESC-OP-002", "data", "OP4", RW, NEED_MISUSE, "ranges outside the region and the remote",
	 bounds},
	{"ESC-OP-003", "data", "OP3", RW, 0, "ops of zero bytes", nothing_at_all},
	{"ESC-OP-004", "data", "OP5 OP2", RW, NEED_MISUSE, "as many sge as allowed, and one more",
	 scattered},
	{"ESC-OP-005", "data", "OP5 OP4", RW, NEED_MISUSE, "more bytes than allowed",
	 too_many_bytes},
	{"ESC-OP-006", "data", "OP6 L4", RW, NEED_MISUSE, "bad opcodes and members",
	 bad_descriptors},
	{"ESC-OP-007", "data", "OP7", RW, NEED_MISUSE, "a bad op in the middle of an array",
	 prefix},
	{"ESC-OP-008", "data", "L8", RW, 0, "an array with a larger stride", strides},
	{"ESC-OP-010", "data", "OP1 OP9", RW, 0, "odd places, and a source named thrice",
	 odd_places},
};

CONFORM_AREA(area_op, cases);
