/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * offer.c - offers in-band: an importer asks, the owner makes a grant for that peer alone (its own
 * windows, its own charge), and answers with the exported bytes when they are bound.
 */
#include "backends/engine/engine.h"

#include <string.h>

static void refuse(struct escrow_engine *e, struct peer *p, uint64_t request, escrow_status why)
{
	if (p->nrefusals < PEER_REFUSALS) {
		p->refusals[p->nrefusals].request = request;
		p->refusals[p->nrefusals++].status = why;
	}
	p->offers_due = 1;
}

void en_offer_ask(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	struct escrow_grant_args args = {.size = sizeof(args)};
	struct grant *offer = en_grant_find(e, m->a), *g;
	escrow_status st;

	if (!offer || offer->state != GRANT_OFFER || engine_state(e) != ESCROW_STATE_OPEN ||
	    atomic_load(&p->state) > PEER_UP) {
		refuse(e, p, m->b, ESCROW_E_REFUSED);
		return;
	}
	args.rights = offer->rights;
	args.offset = offer->addr - offer->region->addr;
	args.length = offer->length;
	st = en_grant_new(e, &args, p, offer->region, &g, NULL);
	if (st < 0) {
		refuse(e, p, m->b, st);
		return;
	}
	g->hidden = 1;
	g->offer = (uint32_t)(offer - e->grants) + 1;
	offer->offspring++;
	g->request = m->b;
}

void en_offer_returned(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	struct grant *g = en_grant_find(e, m->a);

	if (g && g->hidden && g->peer == p)
		en_grant_revoke(e, g);
}

void en_offer_answer(struct escrow_engine *e, struct grant *g)
{
	if (g->failed) {
		refuse(e, g->peer, g->request, g->failed);
		en_work(e, &g->peer->work);
		return;
	}
	g->answer_due = 1;
	g->peer->offers_due = 1;
	en_work(e, &g->peer->work);
}

/* ---- What came from an offer --------------------------------------------------------------------- */
/* What an offer gave to importers goes with it. */
void en_offspring_revoke(struct escrow_engine *e, const struct grant *offer)
{
	uint32_t i;

	for (i = 0; i < e->config.max_grants && offer->offspring; i++)
		if (e->grants[i].offer == (uint32_t)(offer - e->grants) + 1)
			en_grant_revoke(e, &e->grants[i]);
}

/* That goes on, or (`stuck`) that may never be proved to have ended. */
bool en_offspring(struct escrow_engine *e, const struct grant *offer, bool stuck)
{
	uint32_t i;

	for (i = 0; i < e->config.max_grants && offer->offspring; i++) {
		const struct grant *g = &e->grants[i];

		if (g->offer != (uint32_t)(offer - e->grants) + 1)
			continue;
		if (stuck ? g->stuck : g->state != GRANT_FREE && g->state != GRANT_ENDED)
			return true;
	}
	return false;
}

void en_offspring_leave(struct escrow_engine *e, struct grant *g)
{
	if (g->offer)
		e->grants[g->offer - 1].offspring--;
	g->offer = 0;
}

/* Told again, what the asker has of them too: it knows best which are good. */
void en_keys_asked(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	struct grant *g = en_grant_find(e, m->a);
	uint32_t i;

	if (!g || g->peer != p || g->state != GRANT_READY)
		return;
	for (i = 0; i < g->nwindows; i++)
		if (g->windows[i] && g->windows[i]->use == WINDOW_BOUND)
			g->windows[i]->key_due = 1;
	p->offers_due = 1;
}

/* ---- Sending what is due ----------------------------------------------------------------------- */
static bool send_refusals(struct peer *p)
{
	while (p->nrefusals) {
		struct wire_message m = {.type = WIRE_OFFER_ANSWER};
		uint32_t last = p->nrefusals - 1;

		m.a = (uint64_t)(int64_t)p->refusals[last].status;
		m.b = p->refusals[last].request;
		if (en_channel_send(p, &m, NULL) < 0)
			return false;
		p->nrefusals--;
	}
	return true;
}

static bool send_answer(struct escrow_engine *e, struct peer *p, struct grant *g)
{
	struct wire_message m = {.type = WIRE_OFFER_ANSWER, .b = g->request};

	en_grant_encode(e, g, &e->runner_grant);
	m.length = wire_grant_bytes(e->runner_grant.nkeys);
	wire_grant_put(&e->runner_grant, e->runner_copy);
	if (en_channel_send(p, &m, e->runner_copy) < 0)
		return false;
	g->answer_due = 0;
	return true;
}

/* What the owner is to hear of it next. */
static enum wire_message_type due(const struct remote *r)
{
	uint32_t state = atomic_load(&r->state);

	if (state == REMOTE_ASKING && !r->sent)
		return WIRE_OFFER_ASK;
	if (state == REMOTE_LIVE && r->keys_due)
		return WIRE_KEY_ASK;
	if (state == REMOTE_FORGOTTEN && r->give_back)
		return WIRE_OFFER_RETURN;
	return WIRE_MESSAGE_TYPES;
}

static bool send_ask(struct escrow_engine *e, struct peer *p, struct remote *r,
		     enum wire_message_type type)
{
	struct wire_message m = {.type = (uint8_t)type, .a = r->grant};

	if (type == WIRE_OFFER_ASK) {
		m.a = r->offer;
		m.b = atomic_load(&r->handle);
	}
	if (en_channel_send(p, &m, NULL) < 0)
		return false;
	switch (type) {
	case WIRE_OFFER_ASK:
		r->sent = 1;
		break;
	case WIRE_KEY_ASK:
		r->keys_due = 0;
		break;
	default:
		r->give_back = 0;
		if (!r->ready_queued)
			en_remote_free(e, r);
		break;
	}
	return true;
}

static bool send_asks(struct escrow_engine *e, struct peer *p)
{
	uint32_t i;

	for (i = 0; i < e->config.max_remotes; i++) {
		struct remote *r = &e->remotes[i];
		enum wire_message_type type = r->peer == p ? due(r) : WIRE_MESSAGE_TYPES;

		if (type != WIRE_MESSAGE_TYPES && !send_ask(e, p, r, type))
			return false;
	}
	return true;
}

static bool send_keys(struct escrow_engine *e, struct peer *p)
{
	uint32_t i;

	for (i = 0; i < e->nwindows; i++) {
		struct window *w = &e->windows[i];
		struct wire_message m = {.type = WIRE_KEY};

		if (!w->key_due || w->conn->peer != p)
			continue;
		m.a = atomic_load(&w->grant->handle);
		m.b = (uint64_t)atomic_load(&w->conn->epoch) << 32 | w->rkey;
		if (en_channel_send(p, &m, NULL) < 0)
			return false;
		w->key_due = 0;
	}
	return true;
}

void en_offers_send(struct escrow_engine *e, struct peer *p)
{
	bool all;
	uint32_t i;

	if (!p->offers_due)
		return;
	all = send_refusals(p) && send_asks(e, p) && send_keys(e, p);
	for (i = 0; i < e->config.max_grants && all; i++) {
		struct grant *g = &e->grants[i];

		if (g->peer == p && g->answer_due && g->state == GRANT_READY)
			all = send_answer(e, p, g);
	}
	p->offers_due = !all;
}
