/* SPDX-License-Identifier: BSD-2-Clause */
/* book.c - what the host asked for and what became of it, by handle. */
#include "tests/simulate/sim.h"

#include <stddef.h>

/* Handles are never reused while the incarnation lives, so the newest is looked for first. */
#define OURS(x, e) ((x)->incarnation == (e)->incarnation)

struct op *book_op(const struct engine *e, uint64_t handle)
{
	uint32_t i;

	for (i = sim.nops; --i > 0;)
		if (sim.ops[i].engine == e && OURS(&sim.ops[i], e) && sim.ops[i].handle == handle)
			return &sim.ops[i];
	return NULL;
}

struct grant *book_grant(const struct engine *e, uint64_t handle)
{
	uint32_t i;

	for (i = sim.ngrants; i-- > 0;)
		if (sim.grants[i].owner == e && OURS(&sim.grants[i], e) &&
		    sim.grants[i].handle == handle)
			return &sim.grants[i];
	return NULL;
}

struct area *book_area(struct engine *e, uint64_t handle)
{
	uint32_t i;

	for (i = 0; i < SIM_AREAS; i++)
		if (e->areas[i].state != NOT_THERE && e->areas[i].region == handle)
			return &e->areas[i];
	return NULL;
}

struct link *book_peer(const struct engine *e, uint64_t peer, uint32_t *side)
{
	uint32_t i;

	for (i = sim.nlinks; i-- > 0;)
		for (*side = 0; *side < 2; ++*side)
			if (sim.links[i].side[*side].engine == e &&
			    OURS(&sim.links[i].side[*side], e) &&
			    sim.links[i].side[*side].peer == peer)
				return &sim.links[i];
	return NULL;
}

struct link *book_link(const struct op *op)
{
	return &sim.links[sim.remotes[op->remote].link];
}

struct link *book_any_end(const struct engine *e, uint32_t *side)
{
	uint32_t i, from = sim.nlinks ? sim_pick(2 * sim.nlinks) : 0;

	for (i = 0; i < 2 * sim.nlinks; i++) {
		struct link *l = &sim.links[(from + i) / 2 % sim.nlinks];

		*side = (from + i) % 2;
		if (l->side[*side].engine == e && OURS(&l->side[*side], e) &&
		    l->side[*side].state == LIVE)
			return l;
	}
	return NULL;
}

/* Each from a random place on; what is asked for is found if there is any. */
struct grant *book_any_grant(enum thing_state state)
{
	uint32_t i, from = sim.ngrants ? sim_pick(sim.ngrants) : 0;

	for (i = 0; i < sim.ngrants; i++) {
		struct grant *g = &sim.grants[(from + i) % sim.ngrants];

		if (g->state == state && OURS(g, g->owner) && g->owner->state == LIVE)
			return g;
	}
	return NULL;
}

struct remote *book_any_remote(enum thing_state state)
{
	uint32_t i, from = sim.nremotes ? sim_pick(sim.nremotes) : 0;
	bool stale = sim_chance(6);

	for (i = 0; i < sim.nremotes; i++) {
		struct remote *r = &sim.remotes[(from + i) % sim.nremotes];

		if (r->state == state && OURS(r, r->engine) && r->engine->state == LIVE &&
		    (stale || sim.grants[r->grant].state == LIVE))
			return r;
	}
	return NULL;
}

struct op *book_any_op(void)
{
	uint32_t i, from = sim_pick(sim.nops);

	for (i = 0; i < sim.nops; i++) {
		struct op *op = &sim.ops[(from + i) % sim.nops];

		if (op->state == LIVE && OURS(op, op->engine) && op->engine->engine)
			return op;
	}
	return NULL;
}

struct engine *book_any_engine(void)
{
	uint32_t i, from = sim_pick(sim.nengines);

	for (i = 0; i < sim.nengines; i++) {
		struct engine *e = &sim.engines[(from + i) % sim.nengines];

		if (e->engine)
			return e;
	}
	return NULL;
}

void book_end_op(struct op *op)
{
	struct tags lent = {.lent_read = op->opcode == ESCROW_WRITE,
			    .lent_write = op->opcode == ESCROW_READ};
	uint32_t i;

	for (i = 0; i < op->nsge; i++)
		world_tag(&op->engine->areas[op->sge[i].area], op->sge[i].line, op->sge[i].lines,
			  lent, -1);
	op->state = ENDED;
}

struct tags book_grant_tags(const struct grant *g)
{
	return (struct tags){.grant_read = (g->rights & ESCROW_MAY_READ) != 0,
			     .grant_write = (g->rights & ESCROW_MAY_WRITE) != 0};
}

void book_end_grant(struct grant *g)
{
	world_tag(&g->owner->areas[g->area], g->line, g->lines, book_grant_tags(g), -1);
	g->state = ENDED;
}
