/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * message.c - org.escrow.notify/1: what the host sends and receives, and what must hold. Of each direction
 * of a link what is sent alone comes whole and in order, without a gap; what rides on an op comes only when
 * the op's bytes are there, and never if it failed; what the sender was told is taken can be received.
 */
#include "tests/simulate/sim.h"

#include <string.h>

#include <escrow/notify.h>

#define RIDES 0x51de5a11u
#define ALONE 0xa10e5a11u
#define HEADER 8u /* what it is and its number; less is known by its place only */

static const struct escrow_notify *table(const struct engine *e)
{
	return sim_ops->get_extension(e->engine, ESCROW_NOTIFY_ID);
}

static void fill(const struct message *m, uint8_t *to)
{
	uint32_t number = (uint32_t)(m - sim.messages), i;
	uint32_t head[2] = {m->op ? RIDES : ALONE, number};

	for (i = 0; i < m->length; i++)
		to[i] = i < HEADER ? ((uint8_t *)head)[i]
				   : (uint8_t)(number * 31 + i * 7 + i / 251);
}

static struct message *plan(uint32_t link, uint32_t side, uint32_t op)
{
	struct message *m = &sim.messages[sim.nmessages];
	uint32_t most = sim_chance(4) ? SIM_MESSAGE : 200;

	if (sim.nmessages == SIM_MESSAGES)
		return NULL;
	*m = (struct message){.link = link,
			      .side = side,
			      .incarnation = sim.links[link].side[side].incarnation,
			      .length = op ? HEADER + sim_pick(most - HEADER) : sim_pick(most),
			      .op = op,
			      .state = LIVE};
	return m;
}

/* ---- Sending ----------------------------------------------------------------------------------------- */
void message_send(struct engine *e)
{
	static uint8_t bytes[SIM_MESSAGE];
	uint32_t side;
	struct link *l = book_any_end(e, &side);
	struct message *m = l ? plan((uint32_t)(l - sim.links), side, 0) : NULL;
	escrow_status st;

	if (!m)
		return;
	fill(m, bytes);
	st = table(e)->send(e->engine, l->side[side].peer, bytes, m->length, sim.nmessages, 0);
	sim_trace("send %u of %u bytes by %u on link %u -> %d", sim.nmessages, m->length, e->slot,
		  m->link, st);
	act_refused(e, st);
	if (st == ESCROW_E_PEER_LOST && !sim.faults && !l->rough)
		sim_fail("L1", "a message is refused, and nothing is wrong");
	if (st == ESCROW_OK)
		sim.nmessages++;
}

int32_t message_transfer(struct op *op, const struct escrow_op *out, uint64_t *handle)
{
	static uint8_t bytes[SIM_MESSAGE];
	const struct remote *r = &sim.remotes[op->remote];
	struct message *m = plan(r->link, r->side, (uint32_t)(op - sim.ops));
	int32_t taken;

	if (!m)
		return ESCROW_E_AGAIN;
	fill(m, bytes);
	op->message = sim.nmessages;
	taken = table(op->engine)->transfer(op->engine->engine, out, bytes, m->length, handle);
	sim_trace("op %u with message %u of %u bytes -> %d", m->op, sim.nmessages, m->length,
		  taken);
	if (taken == 1)
		sim.nmessages++;
	else
		op->message = SIM_NONE;
	if (taken == 0 || taken > 1)
		sim_fail("events", "an op with a message answers %d", taken);
	return taken;
}

/* ---- Receiving ------------------------------------------------------------------------------------------- */
/* The next that was sent alone on this way and has not been received. */
static struct message *next_alone(uint32_t link, uint32_t side)
{
	uint32_t i;

	for (i = 0; i < sim.nmessages; i++) {
		struct message *m = &sim.messages[i];

		if (m->link == link && m->side == side && !m->op && !m->received)
			return m;
	}
	return NULL;
}

static struct message *which(uint32_t link, uint32_t side, const uint8_t *bytes, uint64_t len)
{
	uint32_t head[2];

	if (len >= sizeof(head)) {
		memcpy(head, bytes, sizeof(head));
		if (head[0] == RIDES && head[1] < sim.nmessages && sim.messages[head[1]].op &&
		    sim.messages[head[1]].link == link && sim.messages[head[1]].side == side)
			return &sim.messages[head[1]];
	}
	return next_alone(link, side);
}

/* All bytes of the op are where they belong. */
static void check_op(const struct message *m, uint32_t number)
{
	const struct op *op = &sim.ops[m->op];

	if (op->state == LIVE) {
		if (op->opcode == ESCROW_WRITE && op->landed + 1 < op->lines)
			sim_fail("order", "message %u is there before the bytes of op %u", number,
				 m->op);
		judge_bytes(op);
	} else if (op->effect != ESCROW_EFFECT_EXECUTED) {
		sim_fail("order", "message %u of op %u, which was not executed, is sent", number,
			 m->op);
	}
}

static void check_received(struct engine *e, uint64_t peer, const uint8_t *bytes, uint64_t len)
{
	static uint8_t want[SIM_MESSAGE];
	struct escrow_peer_info info = {.size = sizeof(info)};
	uint32_t side, number;
	struct link *l = book_peer(e, peer, &side);
	struct message *m;

	/* Its PEER_UP has not been polled. */
	if (!l && sim_ops->peer_info(e->engine, peer, &info) == ESCROW_OK &&
	    info.user / 2 < sim.nlinks) {
		l = &sim.links[info.user / 2];
		side = info.user % 2;
	}
	if (!l || l->side[side].engine != e)
		sim_fail("order", "a message comes from nobody");
	m = which((uint32_t)(l - sim.links), !side, bytes, len);
	if (!m || m->received)
		sim_fail("order", "a message comes that was not sent, or twice");
	number = (uint32_t)(m - sim.messages);
	fill(m, want);
	sim_trace("received %u", number);
	if (m->length != len || memcmp(want, bytes, len) != 0)
		sim_fail("order", "message %u of %u bytes was to come, another of %" PRIu64 " did",
			 number, m->length, len);
	if (m->op)
		check_op(m, number);
	m->received = true;
	sim.n.received++;
}

/* Nothing waits, so what this engine is said to have taken was received. */
static void check_all_received(const struct engine *e)
{
	uint32_t i;

	if (e->arrivals > 0)
		sim_fail("order", "MESSAGE was told of what cannot be received");
	for (i = 0; i < sim.nmessages; i++) {
		const struct message *m = &sim.messages[i];

		if (m->taken && !m->received && sim.links[m->link].side[!m->side].engine == e &&
		    sim.links[m->link].side[!m->side].incarnation == e->incarnation)
			sim_fail("order", "message %u was taken, and is not there", i);
	}
}

static bool receive_one(struct engine *e)
{
	static uint8_t bytes[SIM_MESSAGE];
	uint64_t peer = 0, room = sim_chance(6) ? sim_pick(32) : SIM_MESSAGE, len = room;
	escrow_status st = table(e)->receive(e->engine, &peer, bytes, &len);

	if (st == ESCROW_E_TOO_SMALL) {
		if (len <= room || len > SIM_MESSAGE)
			sim_fail("order", "%" PRIu64 " bytes are too few, and %" PRIu64 " enough",
				 room, len);
		st = table(e)->receive(e->engine, &peer, bytes, &len);
		if (st != ESCROW_OK)
			sim_fail("order", "a message is lost by a short receive: %d", st);
	}
	if (st == ESCROW_E_AGAIN)
		check_all_received(e);
	else if (st != ESCROW_OK)
		sim_fail("events", "receive answers %d", st);
	if (st != ESCROW_OK)
		return false;
	e->arrivals--;
	check_received(e, peer, bytes, len);
	return true;
}

void message_receive(struct engine *e, bool all)
{
	uint32_t most = all ? SIM_MESSAGES : sim_pick(4);

	if (!e->engine || e->state == STUCK)
		return;
	while (most-- && receive_one(e))
		;
}

/* ---- Their ends ------------------------------------------------------------------------------------------- */
static void sent_event(struct engine *e, const struct escrow_event *ev)
{
	struct message *m = ev->user < sim.nmessages ? &sim.messages[ev->user] : NULL;
	struct link *l = m ? &sim.links[m->link] : NULL;

	if (!m || m->op || l->side[m->side].engine != e || m->incarnation != e->incarnation ||
	    l->side[m->side].peer != ev->object)
		sim_fail("events", "MESSAGE_SENT of what was not sent");
	if (m->state != LIVE)
		sim_fail("events", "message %u ends twice", (unsigned int)ev->user);
	m->state = ENDED;
	m->taken = ev->status == ESCROW_OK;
	sim.n.sent += m->taken;
	if (m->taken && ev->bytes != m->length)
		sim_fail("events", "%" PRIu64 " of %u bytes are sent", ev->bytes, m->length);
	if (!m->taken && !sim.faults && !l->rough)
		sim_fail("L1", "message %u ends with %d, and nothing was wrong",
			 (unsigned int)ev->user, ev->status);
}

void message_event(struct engine *e, const struct escrow_event *ev)
{
	uint32_t side;

	if (ev->kind == ESCROW_EV_MESSAGE_SENT) {
		sent_event(e, ev);
		return;
	}
	if (!book_peer(e, ev->object, &side))
		sim_fail("events", "MESSAGE of a peer that there is not");
	e->arrivals++;
}

void message_op_ends(const struct op *op, const struct escrow_event *ev)
{
	struct message *m = op->message == SIM_NONE ? NULL : &sim.messages[op->message];

	if (!m)
		return;
	m->state = ENDED;
	m->taken = ev->status == ESCROW_OK;
	if (m->received && ev->effect != ESCROW_EFFECT_EXECUTED)
		sim_fail("order", "op %u ends with %d, effect %u, and its message was received",
			 m->op, ev->status, ev->effect);
}

void message_peer_ends(const struct link *l, uint32_t side)
{
	uint32_t i;

	for (i = 0; i < sim.nmessages; i++) {
		const struct message *m = &sim.messages[i];

		if (m->state == LIVE && !m->op && m->link == l - sim.links && m->side == side)
			sim_fail("I6", "PEER_DOWN comes before the end of message %u", i);
	}
}

void message_rest(void)
{
	uint32_t i;

	for (i = 0; i < sim.nmessages; i++)
		if (sim.messages[i].state == LIVE && !sim.links[sim.messages[i].link].rough)
			sim_fail("L1", "message %u does not end, and nothing is wrong", i);
	for (i = 0; i < sim.nengines; i++) {
		const struct engine *e = &sim.engines[i];

		if (e->engine && e->state == LIVE && e->arrivals)
			sim_fail("order", "%d more MESSAGE events than messages", e->arrivals);
		if (e->engine && e->state == LIVE && e->full)
			sim_fail("L1", "no ROOM follows on E_AGAIN");
	}
}
