/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * offer.c - offers in-band: an importer asks, the owner makes a grant for that peer alone (its own
 * windows, its own charge), and answers with the exported bytes when they are bound.
 */
#include "backends/engine/engine.h"

#include <string.h>

/* There is room for all that a peer may have asked for; who asks for more is not answered. */
static void refuse(struct escrow_engine *e, struct peer *p, uint64_t request, escrow_status why)
{
	if (p->nrefusals < WIRE_ASKS) {
		p->refusals[p->nrefusals].request = request;
		p->refusals[p->nrefusals++].status = why;
	}
	p->offers_due |= OFFERS_REFUSED;
}

/* Named, or all of them are gone through: a message that asks for something shall not cost that. */
static void tell(struct peer *p, const struct grant *g)
{
	uint64_t handle = atomic_load(&g->handle);

	if (p->ntell && p->tell[p->ntell - 1] == handle)
		return;
	if (p->ntell == WIRE_ASKS) {
		p->offers_due |= OFFERS_ALL;
		return;
	}
	p->tell[p->ntell++] = handle;
	p->offers_due |= OFFERS_GRANTS;
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
	en_work(e, &g->work);
}

void en_offer_returned(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	struct grant *g = en_grant_find(e, m->a);

	if (g && g->hidden && g->peer == p)
		en_grant_revoke(e, g);
}

void en_offer_answer(struct escrow_engine *e, struct grant *g)
{
	if (g->state == GRANT_READY) {
		g->answer_due = 1;
		tell(g->peer, g);
	} else {
		refuse(e, g->peer, g->request, g->failed ? g->failed : ESCROW_E_REFUSED);
		g->request = 0;
	}
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

/* Bound on a connection that came back?  What the asker has of those is told again: it knows best which are good. */
static bool is_to_tell(const struct peer *p, const struct window *w)
{
	return w && w->use == WINDOW_BOUND && conn_came_back(p, atomic_load(&w->conn->epoch));
}

/* Who is told nothing here asks again. */
void en_keys_asked(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	struct grant *g = en_grant_find(e, m->a);
	uint32_t i;

	if (!g || g->peer != p || g->state != GRANT_READY) {
		if (p->ngone < WIRE_ASKS)
			p->gone[p->ngone++] = m->a;
		p->offers_due |= OFFERS_REFUSED;
		return;
	}
	for (i = 0; i < g->nwindows; i++)
		if (is_to_tell(p, g->windows[i])) {
			g->windows[i]->key_due = 1;
			tell(p, g);
		}
}

void en_key_tell(struct escrow_engine *e, struct window *w)
{
	struct peer *p = w->conn->peer;

	w->key_due = 1;
	tell(p, w->grant);
	en_work(e, &p->work);
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
	g->request = 0;
	return true;
}

static bool send_gone(struct peer *p)
{
	while (p->ngone) {
		struct wire_message m = {.type = WIRE_KEY, .a = p->gone[p->ngone - 1]};

		if (en_channel_send(p, &m, NULL) < 0)
			return false;
		p->ngone--;
	}
	return true;
}

/* What the owner is to hear of it next. */
static enum wire_message_type due(const struct remote *r)
{
	uint32_t state = atomic_load(&r->state);

	if (state == REMOTE_ASKING && !r->sent && r->peer->asked < WIRE_ASKS)
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
		p->asked++;
		break;
	case WIRE_KEY_ASK:
		r->keys_due = 0;
		en_remotes_ask_later(e, p);
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

static bool send_keys(struct peer *p, struct grant *g)
{
	uint32_t i;

	for (i = 0; i < g->nwindows; i++) {
		struct window *w = g->windows[i];
		struct wire_message m = {.type = WIRE_KEY, .a = atomic_load(&g->handle)};

		if (!w || !w->key_due)
			continue;
		m.b = (uint64_t)atomic_load(&w->conn->epoch) << 32 | w->rkey;
		if (en_channel_send(p, &m, NULL) < 0)
			return false;
		w->key_due = 0;
	}
	return true;
}

/* Keys behind the answer: before it nobody knows whose they are. */
static bool send_of(struct escrow_engine *e, struct peer *p, struct grant *g)
{
	if (!g || g->peer != p || g->state != GRANT_READY)
		return true;
	return (!g->answer_due || send_answer(e, p, g)) && send_keys(p, g);
}

static bool send_named(struct escrow_engine *e, struct peer *p)
{
	while (p->ntell && send_of(e, p, en_grant_find(e, p->tell[p->ntell - 1])))
		p->ntell--;
	return !p->ntell;
}

static bool send_all(struct escrow_engine *e, struct peer *p)
{
	uint32_t i;

	for (i = 0; i < e->config.max_grants; i++)
		if (!send_of(e, p, &e->grants[i]))
			return false;
	return true;
}

void en_offers_send(struct escrow_engine *e, struct peer *p)
{
	uint32_t due = p->offers_due;

	if (due & OFFERS_REFUSED && !(send_refusals(p) && send_gone(p)))
		return;
	p->offers_due &= ~OFFERS_REFUSED;
	if (due & OFFERS_REMOTES && !send_asks(e, p))
		return;
	p->offers_due &= ~OFFERS_REMOTES;
	if (due & OFFERS_GRANTS && !send_named(e, p))
		return;
	p->offers_due &= ~OFFERS_GRANTS;
	if (due & OFFERS_ALL && !send_all(e, p))
		return;
	p->offers_due = 0;
}
