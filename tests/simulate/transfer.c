/* SPDX-License-Identifier: BSD-2-Clause */
/* transfer.c - READs and WRITEs of the host. */
#include "tests/simulate/sim.h"

#include <string.h>

#include "tests/softverbs/softverbs.h"

#define AT_ONCE 4
#define TRIES 8

/* Local lines that are the host's alone. */
static bool find_piece(const struct engine *e, struct piece *p, uint32_t lines)
{
	uint32_t i;

	for (i = 0; i < TRIES; i++) {
		p->area = sim_pick(SIM_AREAS);
		p->line = sim_pick(SIM_LINES - lines + 1);
		p->lines = lines;
		p->bytes = (uint64_t)lines * SIM_LINE;
		if (e->areas[p->area].state == LIVE &&
		    world_is_free(&e->areas[p->area], p->line, lines))
			return true;
	}
	return false;
}

/* What a line carries: where it comes from, and bytes that differ from line to line. */
static void stamp(struct engine *e, const struct piece *p, uint32_t serial)
{
	struct area *a = &e->areas[p->area];
	uint32_t i, words[SIM_LINE / 4], j;

	for (i = 0; i < p->lines; i++) {
		words[0] = SIM_STAMP;
		words[1] = serial;
		for (j = 2; j < SIM_LINE / 4; j++)
			words[j] = serial * 2654435761u + i * 40503u + j;
		memcpy(a->bytes + (size_t)(p->line + i) * SIM_LINE, words, SIM_LINE);
		a->lines[p->line + i].writer = 0;
		a->lines[p->line + i].version++;
	}
}

static bool take_pieces(struct engine *e, struct op *op)
{
	struct tags lent = {.lent_read = op->opcode == ESCROW_WRITE,
			    .lent_write = op->opcode == ESCROW_READ};
	uint32_t left = op->lines, wanted = 1 + sim_pick(SIM_SGES), lines;

	while (left) {
		struct piece *p = &op->sge[op->nsge];

		lines = op->nsge + 1 == wanted ? left : 1 + sim_pick(left);
		if (!find_piece(e, p, lines))
			return false;
		/* The last one may end within a line. */
		left -= lines;
		if (!left && sim_chance(4))
			p->bytes -= sim_pick(SIM_LINE);
		op->bytes += p->bytes;
		op->nsge++;
		world_tag(&e->areas[p->area], p->line, lines, lent, 1);
		if (op->opcode == ESCROW_WRITE)
			stamp(e, p, (uint32_t)(op - sim.ops));
	}
	return true;
}

/* Plans an op in the book; false if there is no memory for it. */
static bool plan(struct engine *e, const struct remote *r, struct op *op)
{
	const struct grant *g = &sim.grants[r->grant];
	uint32_t most, i;

	*op = (struct op){.engine = e,
			  .incarnation = e->incarnation,
			  .remote = (uint32_t)(r - sim.remotes),
			  .opcode = (g->rights == 3 ? sim_chance(2) : g->rights == 1)
					    ? ESCROW_READ
					    : ESCROW_WRITE,
			  .message = SIM_NONE,
			  .state = LIVE};
	op->line = g->line + sim_pick(g->lines);
	most = g->line + g->lines - op->line;
	op->lines = 1 + sim_pick(most < 150 ? most : 150);
	if (sim_chance(8))
		op->deadline = softverbs_now() + 100000u * sim_pick(200);
	if (!take_pieces(e, op)) {
		book_end_op(op);
		return false;
	}
	op->versions = judge_versions(op);
	sim_trace("op %u %s grant %u line %u+%u", (unsigned int)(op - sim.ops),
		  op->opcode == ESCROW_READ ? "READ" : "WRITE", r->grant, op->line, op->lines);
	for (i = 0; i < op->nsge; i++)
		sim_trace("  at area %u line %u+%u", op->sge[i].area, op->sge[i].line,
			  op->sge[i].lines);
	return true;
}

static void say(const struct op *op, struct escrow_op *out, struct escrow_sge *sge)
{
	const struct remote *r = &sim.remotes[op->remote];
	const struct grant *g = &sim.grants[r->grant];
	uint32_t i;

	for (i = 0; i < op->nsge; i++)
		sge[i] = (struct escrow_sge){
			.region = op->engine->areas[op->sge[i].area].region,
			.offset = (uint64_t)op->sge[i].line * SIM_LINE,
			.length = op->sge[i].bytes,
		};
	*out = (struct escrow_op){.user = (uint64_t)(op - sim.ops),
				  .remote = r->handle,
				  .remote_offset = (uint64_t)(op->line - g->line) * SIM_LINE,
				  .deadline_ns = op->deadline,
				  .opcode = op->opcode,
				  .nsge = op->nsge,
				  .sge = sge};
}

void act_transfer(struct engine *unused)
{
	struct remote *r = book_any_remote(LIVE);
	struct escrow_sge sges[AT_ONCE][SIM_SGES];
	struct escrow_op ops[AT_ONCE];
	uint64_t handles[AT_ONCE];
	uint32_t first = sim.nops, n, wanted = 1 + sim_pick(AT_ONCE);
	bool rides = sim_chance(4);
	int32_t taken, i;

	if (!r)
		return;
	if (rides)
		wanted = 1;
	for (n = 0; n < wanted && sim.nops < SIM_OPS; n++) {
		if (!plan(r->engine, r, &sim.ops[sim.nops]))
			break;
		say(&sim.ops[sim.nops], &ops[n], sges[n]);
		sim.nops++;
	}
	if (!n)
		return;
	if (rides)
		taken = message_transfer(&sim.ops[first], ops, handles);
	else
		taken = sim_ops->transfer(r->engine->engine, ops, n, sizeof(ops[0]), 0, handles);
	act_refused(r->engine, taken);
	sim_trace("transfer %u by %u: op %u and on, %u -> %d", (unsigned int)(r - sim.remotes),
		  r->engine->slot, first, n, taken);
	if (taken > (int32_t)n)
		sim_fail("events", "transfer takes more than it is given");
	for (i = 0; i < (int32_t)n; i++) {
		if (i < taken)
			sim.ops[first + (uint32_t)i].handle = handles[i];
		else
			book_end_op(&sim.ops[first + (uint32_t)i]);
	}
}
