/* SPDX-License-Identifier: BSD-2-Clause */
/* lend.c - the host grants, to one peer or to whoever asks (an offer), and carries what it granted. */
#include "tests/simulate/sim.h"

#include "backends/engine/wire.h"

/* Plans a grant in the book; false if there is no memory for it. */
static bool plan(struct engine *e, struct grant *g)
{
	uint32_t side;
	struct link *l = sim_chance(4) ? NULL : book_any_end(e, &side);

	*g = (struct grant){.owner = e,
			    .incarnation = e->incarnation,
			    .link = l ? (uint32_t)(l - sim.links) : SIM_NONE,
			    .side = l ? side : 0,
			    .area = sim_pick(SIM_AREAS),
			    .line = sim_pick(SIM_LINES),
			    .rights = 1 + sim_pick(3),
			    .state = COMING};
	g->lines = 1 + sim_pick(SIM_LINES - g->line);
	/* What is lent nobody may write, and of a sink nobody may read (escrow/backend.h, transfer). */
	return e->areas[g->area].state == LIVE &&
	       !world_is_lent(&e->areas[g->area], g->line, g->lines);
}

void lend_grant(struct engine *e)
{
	struct grant *g = &sim.grants[sim.ngrants];
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_grant_args args = {.size = sizeof(args)};
	bool offer;
	escrow_status st;

	if (sim.ngrants == SIM_GRANTS || !plan(e, g))
		return;
	offer = g->link == SIM_NONE;
	args.rights = g->rights;
	args.user = sim.ngrants;
	args.peer = offer ? 0 : sim.links[g->link].side[g->side].peer;
	args.region = e->areas[g->area].region;
	args.offset = (uint64_t)g->line * SIM_LINE;
	args.length = (uint64_t)g->lines * SIM_LINE;
	sim.ngrants++;
	world_tag(&e->areas[g->area], g->line, g->lines, book_grant_tags(g), 1);
	st = sim_ops->grant(e->engine, &args, &g->handle, &error);
	sim_trace("grant %u of %u on link %d rights %u line %u+%u of area %u -> %d",
		  sim.ngrants - 1, e->slot, (int)g->link, g->rights, g->line, g->lines, g->area,
		  st);
	if (st < 0)
		book_end_grant(g);
	else if (st != (offer ? ESCROW_OK : ESCROW_IN_PROGRESS))
		sim_fail("events", "grant answers %d", st);
	else if (offer)
		g->state = LIVE;
	sim.n.offers += offer && st == ESCROW_OK;
}

/* What a hostile peer would know. */
static void note_key(struct grant *g, const uint8_t *bytes, uint64_t len)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct wire_grant wire;

	if (wire_grant_get(bytes, len, &wire, &error) == ESCROW_OK && wire.nkeys)
		g->key = wire.keys[sim_pick(wire.nkeys)];
}

/* The other end of this one is the owner of the grant. */
static bool is_to_owner(const struct grant *g, uint32_t link, uint32_t side)
{
	const struct link *l = &sim.links[link];

	return l->side[!side].engine == g->owner && l->side[!side].incarnation == g->incarnation;
}

/* Where the grant is carried to: its peer, or for an offer any peer of its owner; or, `wrong`, anywhere. */
static bool find_importer(const struct grant *g, bool wrong, uint32_t *link, uint32_t *side)
{
	uint32_t i, from;

	if (!sim.nlinks)
		return false;
	if (!wrong && g->link != SIM_NONE) {
		*link = g->link;
		*side = !g->side;
		return true;
	}
	from = sim_pick(2 * sim.nlinks);
	for (i = 0; i < 2 * sim.nlinks; i++) {
		*link = (from + i) / 2 % sim.nlinks;
		*side = (from + i) % 2;
		if (wrong ||
		    (is_to_owner(g, *link, *side) && sim.links[*link].side[*side].state == LIVE))
			return true;
	}
	return false;
}

static bool is_right(const struct grant *g, uint32_t link, uint32_t side)
{
	return g->link == SIM_NONE ? is_to_owner(g, link, side)
				   : link == g->link && side != g->side;
}

/* The bytes of a grant, carried to its peer; or to another, which must refuse them. */
void lend_import(struct engine *e)
{
	struct grant *g = book_any_grant(LIVE);
	uint32_t link, side;
	struct escrow_error error = {.size = sizeof(error)};
	struct remote *r = &sim.remotes[sim.nremotes];
	uint8_t bytes[4096];
	uint64_t len = sizeof(bytes);
	escrow_status st;

	if (!g || sim.nremotes == SIM_REMOTES || !find_importer(g, sim_chance(8), &link, &side))
		return;
	e = sim.links[link].side[side].engine;
	if (sim.links[link].side[side].incarnation != e->incarnation || !e->engine ||
	    sim.links[link].side[side].state != LIVE || e->state != LIVE)
		return;
	st = sim_ops->export_grant(g->owner->engine, g->handle, bytes, &len);
	if (st < 0)
		return;
	*r = (struct remote){.engine = e,
			     .incarnation = e->incarnation,
			     .grant = (uint32_t)(g - sim.grants),
			     .link = link,
			     .side = side,
			     .state = g->link == SIM_NONE ? COMING : LIVE};
	st = sim_ops->import_grant(e->engine, sim.links[link].side[side].peer, bytes, len,
				   sim.nremotes, &r->handle, &error);
	sim_trace("import grant %u into %u link %u -> %d", r->grant, e->slot, link, st);
	if (st < 0)
		return;
	if (!is_right(g, link, side))
		sim_fail("I2", "a grant of link %d is imported on link %u", (int)g->link, link);
	if (st != (r->state == COMING ? ESCROW_IN_PROGRESS : ESCROW_OK))
		sim_fail("events", "import answers %d", st);
	note_key(g, bytes, len);
	sim.nremotes++;
}

void lend_revoke(struct engine *unused)
{
	struct grant *g = book_any_grant(sim_chance(5) ? COMING : LIVE);
	escrow_status st;
	uint32_t i;

	if (!g || !sim_chance(2))
		return;
	if (g->link != SIM_NONE)
		sim.links[g->link].rough = true;
	for (i = 0; i < sim.nremotes; i++)
		if (sim.remotes[i].grant == (uint32_t)(g - sim.grants))
			sim.links[sim.remotes[i].link].rough = true;
	st = sim_ops->revoke(g->owner->engine, g->handle, 0);
	sim_trace("revoke grant %u -> %d", (unsigned int)(g - sim.grants), st);
	if (st == ESCROW_IN_PROGRESS)
		g->state = ENDING;
}

void lend_forget(struct engine *unused)
{
	struct remote *r = book_any_remote(sim_chance(3) ? COMING : LIVE);
	escrow_status st;

	if (!r || !sim_chance(2))
		return;
	st = sim_ops->forget_grant(r->engine->engine, r->handle);
	sim_trace("forget remote %u -> %d", (unsigned int)(r - sim.remotes), st);
	if (st == ESCROW_OK)
		r->state = ENDED;
}
