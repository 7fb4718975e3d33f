/* SPDX-License-Identifier: BSD-2-Clause */
/* wish.c - what is held out for keys that were given, and the wish for a connection made anew (renew.c). */
#include "backends/engine/engine.h"

#define MOST_DOUBLINGS 6

void en_renew_spent(struct escrow_engine *e, const struct window *w)
{
	struct conn *c = w->keys_on ? engine_by_slot(e, w->keys_on) : NULL;

	if (!c || c->owner != w->keys_on || en_conn_given_up(c))
		return;
	c->spent++;
	if (c->peer->renewal.wish == c->index + 1)
		return;
	e->spent++;
	en_renew_wish(e, false);
}

void en_renew_gone(struct escrow_engine *e, struct conn *c)
{
	if (c->peer->renewal.wish == c->index + 1)
		c->peer->renewal.wish = 0;
	else
		e->spent -= c->spent;
	c->spent = 0;
}

static struct conn *most_spent(struct escrow_engine *e)
{
	struct conn *most = NULL;
	uint32_t i, k;

	for (i = 0; i < e->config.max_peers; i++) {
		struct peer *p = &e->peers[i];

		if (atomic_load(&p->state) != PEER_UP || p->renewal.wish || p->renewal.at ||
		    p->renewal.rests)
			continue;
		for (k = 0; k < p->nconns; k++)
			if (en_renew_up(&p->conns[k]) &&
			    p->conns[k].spent > (most ? most->spent : 0))
				most = &p->conns[k];
	}
	return most;
}

void en_renew_wish(struct escrow_engine *e, bool now)
{
	uint64_t idle = e->nwindows - e->most_in_use;
	struct renewal *r;
	struct conn *c;

	if (!e->spent || !en_renew_worth_it(e) ||
	    (!now && UINT64_C(100) * e->spent < e->config.renew_share * idle))
		return;
	c = most_spent(e);
	if (!c)
		return;
	r = &c->peer->renewal;
	r->wish = c->index + 1;
	r->wish_due = WIRE_DRAIN;
	e->spent -= c->spent;
	en_work(e, &c->peer->work);
}

bool en_renew_hoped(struct escrow_engine *e)
{
	uint32_t i;

	en_renew_wish(e, true);
	for (i = 0; i < e->config.max_peers; i++)
		if (atomic_load(&e->peers[i].state) == PEER_UP &&
		    (e->peers[i].renewal.wish || e->peers[i].renewal.at))
			return true;
	return false;
}

/* Nothing came of it: it counts as held out again. */
void en_renew_drop(struct escrow_engine *e, struct peer *p)
{
	struct renewal *r = &p->renewal;

	if (!r->wish)
		return;
	e->spent += p->conns[r->wish - 1].spent;
	r->wish = 0;
	r->wish_due = 0;
	r->wish_until = 0;
}

void en_renew_rest(struct escrow_engine *e, struct peer *p)
{
	struct renewal *r = &p->renewal;

	r->rests = 1;
	r->rests_until = e->now + (en_renew_patience(e) << r->failed);
	if (r->failed < MOST_DOUBLINGS)
		r->failed++;
	en_wake_at(e, r->rests_until);
}

void en_renew_rested(struct escrow_engine *e, struct peer *p)
{
	struct renewal *r = &p->renewal;

	if (!r->rests)
		return;
	if (e->now < r->rests_until) {
		en_wake_at(e, r->rests_until);
		return;
	}
	r->rests = 0;
	en_renew_wish(e, false);
}
