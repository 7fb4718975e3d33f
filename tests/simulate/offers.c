/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * offers.c - what the judge knows of offers: an importer asks in-band, the owner makes a grant for it that
 * its host never sees, and charges it. So what is charged lies between what the host's events prove to be
 * there and what they do not prove to be gone.
 */
#include "tests/simulate/sim.h"

#include <string.h>

static const struct grant *offer_of(const struct remote *r)
{
	const struct grant *g = &sim.grants[r->grant];

	return g->link == SIM_NONE ? g : NULL;
}

static void add(uint64_t span[2], const struct grant *g)
{
	span[0]++;
	span[1] += (uint64_t)g->lines * SIM_LINE;
}

/* `rest`: all that was given back has arrived. */
static bool may_stand(const struct remote *r, bool rest)
{
	const struct link *l = &sim.links[r->link];

	/* It was refused (and, where calls fail, what was made of it by then may be stuck), or its owner's end said
	 * that all of it had ended. */
	if ((r->state == NOT_THERE && !sim.faults) ||
	    (l->side[!r->side].state == ENDED && !l->side[!r->side].stuck))
		return false;
	return !(rest && r->state == ENDED && !l->rough);
}

static void count(const struct engine *e, struct span *out, bool rest)
{
	uint32_t i;

	memset(out, 0, sizeof(*out));
	for (i = 0; i < sim.nremotes; i++) {
		const struct remote *r = &sim.remotes[i];
		const struct grant *g = offer_of(r);

		if (!g || g->owner != e || g->incarnation != e->incarnation || g->state == ENDED)
			continue;
		if (may_stand(r, rest))
			add(out->most, g);
		if (r->state == LIVE && !sim.faults && !sim.links[r->link].rough &&
		    g->state == LIVE && e->state == LIVE)
			add(out->least, g);
	}
}

void offers_span(const struct engine *e, struct span *out)
{
	count(e, out, false);
}

void offers_event(struct engine *e, const struct escrow_event *ev)
{
	struct remote *r = ev->user < sim.nremotes ? &sim.remotes[ev->user] : NULL;

	if (!r || r->engine != e || r->incarnation != e->incarnation || r->handle != ev->object ||
	    !offer_of(r))
		sim_fail("events", "REMOTE_READY of what was not asked for");
	/* Forgotten while the answer was on its way to the host. */
	if (r->state == ENDED)
		return;
	if (r->state != COMING)
		sim_fail("events", "REMOTE_READY twice of remote %u", (unsigned int)ev->user);
	/* Without an answer the owner may have made one all the same. */
	r->state = ev->status >= 0 ? LIVE : ev->status == ESCROW_E_PEER_LOST ? ENDED : NOT_THERE;
	sim.n.ready += ev->status >= 0;
	if (ev->status < 0 && ev->status != ESCROW_E_REFUSED && ev->status != ESCROW_E_QUOTA &&
	    ev->status != ESCROW_E_LIMIT &&
	    (ev->status != ESCROW_E_PEER_LOST || (!sim.faults && !sim.links[r->link].rough)))
		sim_fail("events", "REMOTE_READY says %d", ev->status);
}

void offers_rest(void)
{
	uint64_t used[16], grants, i;
	struct span span;
	uint32_t k;

	for (i = 0; i < sim.nremotes; i++) {
		const struct remote *r = &sim.remotes[i];

		if (r->state == COMING && r->incarnation == r->engine->incarnation &&
		    r->engine->engine && !sim.links[r->link].rough)
			sim_fail("L1", "nobody answers for remote %u", (unsigned int)i);
	}
	for (k = 0; k < sim.nengines; k++) {
		const struct engine *e = &sim.engines[k];

		if (!e->engine || e->state != LIVE)
			continue;
		grants = 0;
		for (i = 0; i < sim.ngrants; i++)
			grants += sim.grants[i].owner == e &&
				  sim.grants[i].incarnation == e->incarnation &&
				  sim.grants[i].state != ENDED;
		count(e, &span, true);
		judge_read_charges(e, used);
		if (used[ESCROW_CHARGE_GRANTS] > grants + span.most[0])
			sim_fail("I3",
				 "engine %u: %" PRIu64 " grants are charged, the book says %" PRIu64
				 " and %" PRIu64 " of offers",
				 k, used[ESCROW_CHARGE_GRANTS], grants, span.most[0]);
	}
}

void offers_check_landing(const struct op *op)
{
	const struct remote *r = &sim.remotes[op->remote];
	const struct link *l = &sim.links[r->link];

	if (offer_of(r) && l->side[!r->side].state == ENDED && !l->side[!r->side].stuck)
		sim_fail("I2", "op %u lands by an offer after its peer's end",
			 (unsigned int)(op - sim.ops));
}
