/* SPDX-License-Identifier: BSD-2-Clause */
/* judge.c - what the backend says, held against the book. */
#include "tests/simulate/sim.h"

#include <errno.h>
#include <string.h>

#include "tests/softverbs/softverbs.h"

/* ---- Ops ------------------------------------------------------------------------------------------ */
static const struct grant *grant_of(const struct op *op)
{
	return &sim.grants[sim.remotes[op->remote].grant];
}

uint64_t judge_versions(const struct op *op)
{
	const struct grant *g = grant_of(op);
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < op->lines; i++)
		sum += g->owner->areas[g->area].lines[op->line + i].version;
	return sum;
}

/* Nobody else has touched the lines that the op is about, so both sides must be equal. */
static bool is_comparable(const struct op *op)
{
	const struct grant *g = grant_of(op);
	const struct line *lines = &g->owner->areas[g->area].lines[op->line];
	uint32_t i;

	if (g->incarnation != g->owner->incarnation)
		return false;
	if (op->opcode == ESCROW_READ)
		return judge_versions(op) == op->versions;
	for (i = 0; i < op->lines; i++)
		if (lines[i].writer != op - sim.ops)
			return false;
	return true;
}

void judge_bytes(const struct op *op)
{
	const struct grant *g = grant_of(op);
	const uint8_t *there = g->owner->areas[g->area].bytes + (size_t)op->line * SIM_LINE;
	uint32_t i;

	if (!is_comparable(op))
		return;
	for (i = 0; i < op->nsge; i++) {
		const struct piece *p = &op->sge[i];
		const uint8_t *here = op->engine->areas[p->area].bytes + (size_t)p->line * SIM_LINE;

		if (memcmp(here, there, p->bytes) != 0)
			sim_fail("effect", "op %u is EXECUTED and the bytes differ",
				 (unsigned int)(op - sim.ops));
		there += p->bytes;
	}
}

static void check_effect(const struct op *op, const struct escrow_event *ev)
{
	unsigned int serial = (unsigned int)(op - sim.ops);

	if (ev->kind == ESCROW_EV_OP_DONE && ev->status == ESCROW_OK &&
	    (ev->effect != ESCROW_EFFECT_EXECUTED || ev->custody != ESCROW_CUSTODY_RETURNED ||
	     ev->bytes != op->bytes))
		sim_fail("effect",
			 "op %u is OK with custody %u, effect %u, %" PRIu64 " of %" PRIu64 " bytes",
			 serial, ev->custody, ev->effect, ev->bytes, op->bytes);
	if (ev->effect == ESCROW_EFFECT_NOT_EXECUTED && (op->landed || ev->bytes))
		sim_fail("effect", "op %u is NOT_EXECUTED and landed", serial);
	if (ev->effect == ESCROW_EFFECT_EXECUTED) {
		sim.n.executed++;
		judge_bytes(op);
	}
}

/* Where nothing fails, an op fails only if its connection was given a reason to. */
static void check_reason(const struct op *op, const struct escrow_event *ev)
{
	const struct link *l = book_link(op);

	if (ev->status == ESCROW_OK || sim.faults || l->rough)
		return;
	if (ev->status != ESCROW_E_CANCELED || !op->canceled)
		sim_fail("effect", "op %u ends with %d, and nothing was wrong",
			 (unsigned int)(op - sim.ops), ev->status);
}

void judge_rest(void)
{
	uint32_t i;

	for (i = 1; i < sim.nops; i++) {
		const struct op *op = &sim.ops[i];

		if (op->state == LIVE && op->incarnation == op->engine->incarnation &&
		    !book_link(op)->rough)
			sim_fail("L1", "op %u does not end, and nothing is wrong", i);
	}
	if (sim.faults)
		return;
	message_rest();
	offers_rest();
}

static void op_event(struct engine *e, const struct escrow_event *ev)
{
	struct op *op = book_op(e, ev->object);

	if (!op)
		sim_fail("events", "an event of an op that there is not");
	if (ev->user != (uint64_t)(op - sim.ops))
		sim_fail("events", "an event of an op with the token of another");
	if (ev->kind == ESCROW_EV_OP_EXPIRED) {
		if (op->state != LIVE || !op->deadline || op->deadline > softverbs_now())
			sim_fail("events", "an op expires too early, or after its end");
		return;
	}
	if (op->state != (ev->kind == ESCROW_EV_OP_DONE ? LIVE : HELD))
		sim_fail("I6", "op %u ends twice", (unsigned int)ev->user);
	check_effect(op, ev);
	op->effect = ev->effect;
	if (ev->kind == ESCROW_EV_OP_DONE)
		message_op_ends(op, ev);
	if (ev->kind == ESCROW_EV_OP_DONE) {
		sim.n.done++;
		check_reason(op, ev);
	} else {
		sim.n.returned_late++;
	}
	if (ev->custody == ESCROW_CUSTODY_RETURNED)
		book_end_op(op);
	else if (ev->kind == ESCROW_EV_OP_RETURNED)
		sim_fail("events", "OP_RETURNED that returns nothing");
	else
		op->state = HELD;
}

/* ---- Grants, regions, peers --------------------------------------------------------------------------- */
static void grant_event(struct engine *e, const struct escrow_event *ev)
{
	struct grant *g = book_grant(e, ev->object);

	if (!g || g->state == ENDED)
		sim_fail("events", "an event of a grant that there is not");
	if (ev->kind == ESCROW_EV_GRANT_READY && ev->status < 0) {
		book_end_grant(g);
	} else if (ev->kind == ESCROW_EV_GRANT_READY) {
		if (g->state == COMING)
			g->state = LIVE;
	} else {
		sim.n.revoked++;
		book_end_grant(g);
	}
}

static bool stands_on(const struct engine *e, uint32_t area)
{
	uint32_t i, j;

	for (i = 1; i < sim.nops; i++) {
		const struct op *op = &sim.ops[i];

		/* Of an op of several slices, those that lie here may have been settled before; of one
		 * with a message, only that may be under way. */
		if (op->engine != e || op->incarnation != e->incarnation || op->bytes > SIM_SLICE ||
		    op->message != SIM_NONE || (op->state != LIVE && op->state != HELD))
			continue;
		for (j = 0; j < op->nsge; j++)
			if (op->sge[j].area == area)
				return true;
	}
	for (i = 0; i < sim.ngrants; i++)
		if (sim.grants[i].owner == e && sim.grants[i].incarnation == e->incarnation &&
		    sim.grants[i].area == area && sim.grants[i].state != ENDED)
			return true;
	return false;
}

static void region_event(struct engine *e, const struct escrow_event *ev)
{
	struct area *a = book_area(e, ev->object);

	if (!a)
		sim_fail("events", "an event of a region that there is not");
	if (stands_on(e, (uint32_t)(a - e->areas)))
		sim_fail("I7", "a region is released under an op or a grant");
	a->state = NOT_THERE;
}

/* Its ops and grants have ended before: none is left that could still end. */
static void check_peer_empty(const struct engine *e, const struct link *l, uint32_t side)
{
	uint32_t i;

	for (i = 1; i < sim.nops; i++) {
		const struct op *op = &sim.ops[i];

		if (op->engine == e && op->incarnation == e->incarnation && op->state == LIVE &&
		    book_link(op) == l && sim.remotes[op->remote].side == side)
			sim_fail("I6", "PEER_DOWN comes before the end of op %u", i);
	}
	for (i = 0; i < sim.ngrants; i++) {
		const struct grant *g = &sim.grants[i];

		if (g->owner == e && g->incarnation == e->incarnation && g->side == side &&
		    g->link == l - sim.links && g->state != ENDED && g->state != STUCK)
			sim_fail("I6", "PEER_DOWN comes before the end of grant %u", i);
	}
	for (i = 0; i < sim.nremotes; i++) {
		const struct remote *r = &sim.remotes[i];

		if (r->state == COMING && r->engine == e && r->incarnation == e->incarnation &&
		    r->link == l - sim.links && r->side == side)
			sim_fail("I6", "PEER_DOWN comes before the answer for remote %u", i);
	}
}

static void peer_event(struct engine *e, const struct escrow_event *ev)
{
	struct link *l;
	uint32_t side;

	if (ev->kind == ESCROW_EV_PEER_UP) {
		if (ev->user / 2 >= sim.nlinks)
			sim_fail("events", "PEER_UP with a token that nobody gave");
		l = &sim.links[ev->user / 2];
		side = ev->user % 2;
		/* An invitation serves once, but its taker may have gone before it was used. */
		if (l->side[side].engine != e || l->side[side].state == LIVE)
			sim_fail("events", "PEER_UP for another end");
		l->side[side].peer = ev->object;
		l->side[side].state = LIVE;
		return;
	}
	l = book_peer(e, ev->object, &side);
	/* One that came by our invitation and failed before it was up has only our token. */
	if (!l && ev->user / 2 < sim.nlinks && sim.links[ev->user / 2].side[0].engine == e) {
		l = &sim.links[ev->user / 2];
		side = 0;
	}
	if (!l || l->side[side].state == ENDED)
		sim_fail("events", "an event of a peer that there is not");
	l->rough = true;
	if (ev->kind != ESCROW_EV_PEER_DOWN)
		return;
	check_peer_empty(e, l, side);
	if (l->side[side].drains)
		sim_fail("I6", "PEER_DOWN, and a drain of it was never answered");
	message_peer_ends(l, side);
	l->side[side].state = ENDED;
	l->side[side].stuck = ev->status == ESCROW_E_UNQUIESCED;
}

/* ---- The engine ------------------------------------------------------------------------------------------ */
static void quarantine_event(struct engine *e, const struct escrow_event *ev)
{
	struct grant *g = ev->object ? book_grant(e, ev->object) : NULL;
	struct area *a = ev->object ? book_area(e, ev->object) : NULL;

	sim.n.quarantined++;
	if (!sim.faults)
		sim_fail("L1", "something is quarantined, and nothing was wrong");
	if (ev->status != ESCROW_E_UNQUIESCED)
		sim_fail("events", "QUARANTINED with status %d", ev->status);
	if (g)
		g->state = STUCK;
	else if (a)
		a->state = STUCK;
	else if (!ev->object)
		e->state = STUCK;
	if (!ev->object && e->drains)
		sim_fail("I6", "an engine ends, and its drain was never answered");
}

/* Nothing of this incarnation may be left. */
static void check_closed(const struct engine *e)
{
	uint32_t i;

	if (e->drains)
		sim_fail("I6", "an engine is CLOSED, and its drain was never answered");
	for (i = 1; i < sim.nops; i++)
		if (sim.ops[i].engine == e && sim.ops[i].incarnation == e->incarnation &&
		    sim.ops[i].state != ENDED)
			sim_fail("I9", "CLOSED with op %u outstanding", i);
	for (i = 0; i < sim.ngrants; i++)
		if (sim.grants[i].owner == e && sim.grants[i].incarnation == e->incarnation &&
		    sim.grants[i].state != ENDED)
			sim_fail("I9", "CLOSED with grant %u standing", i);
	for (i = 0; i < SIM_AREAS; i++)
		if (e->areas[i].state != NOT_THERE)
			sim_fail("I9", "CLOSED with region %u not released", i);
	for (i = 0; i < 2 * sim.nlinks; i++)
		if (sim.links[i / 2].side[i % 2].engine == e &&
		    sim.links[i / 2].side[i % 2].incarnation == e->incarnation &&
		    sim.links[i / 2].side[i % 2].state == LIVE)
			sim_fail("I9", "CLOSED with a peer up");
}

/* Each drain is answered once, before the end of what it is of. */
static void drain_answered(struct engine *e, const struct escrow_event *ev)
{
	uint32_t side;
	struct link *l = ev->object ? book_peer(e, ev->object, &side) : NULL;
	uint32_t *drains = l ? &l->side[side].drains : &e->drains;

	if (ev->object && !l)
		sim_fail("events", "DRAINED of a peer that there is not");
	if (!*drains)
		sim_fail("events", "DRAINED, and nobody asked for a drain");
	*drains -= 1;
}

static void check_drained(struct engine *e, const struct escrow_event *ev)
{
	uint32_t i;

	drain_answered(e, ev);
	/* Resumed, or closed. */
	if (!ev->object && ev->status < 0)
		e->swapping = false;
	if (ev->status != ESCROW_OK || ev->object || !e->draining)
		return;
	for (i = 1; i < sim.nops; i++)
		if (sim.ops[i].engine == e && sim.ops[i].incarnation == e->incarnation &&
		    sim.ops[i].state == LIVE)
			sim_fail("I6", "DRAINED with op %u outstanding", i);
	e->drained = true;
}

static void engine_event(struct engine *e, const struct escrow_event *ev)
{
	if (ev->kind == ESCROW_EV_DRAINED) {
		check_drained(e, ev);
	} else if (ev->kind == ESCROW_EV_ROOM) {
		e->full = false;
	} else if (ev->kind == ESCROW_EV_DEVICE) {
		e->failed = true;
		if (!(sim.faults & SIM_FATAL))
			sim_fail("events", "the device is said to be lost, and is not");
	} else if (ev->kind == ESCROW_EV_CLOSED) {
		if (e->state != ENDING && !(e->state == STUCK && (sim.late || e->fenced)))
			sim_fail("events", "CLOSED without a close");
		check_closed(e);
		e->state = ENDED;
		sim.n.closed++;
	}
}

void judge_event(struct engine *e, const struct escrow_event *ev)
{
	sim_trace("event %u kind %u user %" PRIu64 " status %d custody %u effect %u bytes %" PRIu64,
		  e->slot, ev->kind, ev->user, ev->status, ev->custody, ev->effect, ev->bytes);
	sim.n.events++;
	if (ev->seq <= e->seq)
		sim_fail("events", "seq does not grow");
	if (e->state == ENDED)
		sim_fail("events", "an event after CLOSED");
	e->seq = ev->seq;
	switch (ev->kind) {
	case ESCROW_EV_OP_DONE:
	case ESCROW_EV_OP_EXPIRED:
	case ESCROW_EV_OP_RETURNED:
		op_event(e, ev);
		break;
	case ESCROW_EV_PEER_UP:
	case ESCROW_EV_PEER_LOST:
	case ESCROW_EV_PEER_DOWN:
		peer_event(e, ev);
		break;
	case ESCROW_EV_GRANT_READY:
	case ESCROW_EV_GRANT_REVOKED:
		grant_event(e, ev);
		break;
	case ESCROW_EV_REMOTE_READY:
		offers_event(e, ev);
		break;
	case ESCROW_EV_MESSAGE:
	case ESCROW_EV_MESSAGE_SENT:
		message_event(e, ev);
		break;
	case ESCROW_EV_REGION_RELEASED:
		region_event(e, ev);
		break;
	case ESCROW_EV_QUARANTINED:
		quarantine_event(e, ev);
		break;
	default:
		engine_event(e, ev);
		break;
	}
}
