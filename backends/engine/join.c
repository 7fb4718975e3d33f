/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * join.c - a grant and the connections of its peer: one window on each that stands, none on those that
 * have gone (the grant lives on the others), and one on each that comes back, whose key the importer is
 * told (en_key_tell).
 */
#include "backends/engine/engine.h"

#include <errno.h>

/* None is left that it could be bound by, or the device has no more: while a connection is about to be made anew, that is waited for. */
static escrow_status bind_or_wait(struct escrow_engine *e, struct window *w)
{
	int rc = en_window_bind(e, w);

	if ((rc != ENOBUFS && rc != EAGAIN) || !w->conn || !en_renew_hoped(e))
		return rc == ENOBUFS ? ESCROW_E_AGAIN : en_status_of_own(rc);
	en_join_later(e, w->conn->peer);
	return ESCROW_OK;
}

void en_grant_bind(struct escrow_engine *e, struct grant *g)
{
	escrow_status st = e->nexact ? en_exact_make(e, g) : ESCROW_OK;
	uint32_t i, bound = 0, live = 0;

	for (i = 0; i < g->nwindows && g->state == GRANT_BINDING && !g->failed; i++) {
		struct window *w = g->windows[i];

		if (w && w->use == WINDOW_RESERVED && st == ESCROW_OK)
			st = bind_or_wait(e, w);
		live += w != NULL;
		bound += w && w->use == WINDOW_BOUND;
		if (st < 0 && !g->failed)
			g->failed = st;
	}
	if (g->state != GRANT_BINDING)
		return;
	if (g->failed) {
		en_grant_revoke(e, g);
		return;
	}
	if (bound < live || !live)
		return;
	g->state = GRANT_READY;
	if (g->hidden) {
		en_offer_answer(e, g);
		return;
	}
	g->ready_told = 1;
	event_put_link(e, &g->ready);
}

static void lock_lanes(struct escrow_engine *e, uint32_t ctx)
{
	struct lane *lanes = &e->lanes[ctx * e->config.num_lanes];
	uint32_t i;

	for (i = 0; i < e->config.num_lanes; i++)
		en_lane_lock(&lanes[i]);
}

static void unlock_lanes(struct escrow_engine *e, uint32_t ctx)
{
	struct lane *lanes = &e->lanes[ctx * e->config.num_lanes];
	uint32_t i;

	for (i = 0; i < e->config.num_lanes; i++)
		en_lane_give(e, &lanes[i]);
}

/* The part of one context: all its windows there, or none. */
static escrow_status reserve_part(struct escrow_engine *e, struct grant *g, uint32_t ctx,
				  struct escrow_error *error)
{
	const struct peer *p = g->peer;
	uint64_t windows[WIRE_MAX_KEYS], conns[WIRE_MAX_KEYS];
	struct ledger_grant_args args = {
		.account = p ? atomic_load(&p->handle) : 0,
		.region = g->region->parts[ctx].owner,
		.offset = g->addr - g->region->addr,
		.length = g->length,
		.rights = g->rights,
		.place = engine_place(g - e->grants, ctx, e->config.max_grants),
		.windows = windows,
		.connections = conns,
	};
	struct escrow_error detail;
	escrow_status st;
	uint32_t i;

	detail.size = sizeof(detail);
	for (i = 0; i < g->nwindows; i++)
		if (g->windows[i] && p->conns[i].lane->in == ctx) {
			windows[args.nwindows] = g->windows[i]->owner;
			conns[args.nwindows++] = p->conns[i].owner;
		}
	lock_lanes(e, ctx);
	st = ledger_grant_reserve(e->ledger, &args, &g->parts[ctx], &detail);
	unlock_lanes(e, ctx);
	return st < 0 ? args_pass(error, st, &detail) : st;
}

/* Where it has windows; in the first context, if it needs none (an offer). */
escrow_status en_grant_reserve(struct escrow_engine *e, struct grant *g, struct escrow_error *error)
{
	const struct peer *p = g->peer;
	escrow_status st = ESCROW_OK;
	uint32_t i, found = 0;

	if (!p)
		return reserve_part(e, g, 0, error);
	for (i = 0; i < g->nwindows && st == ESCROW_OK; i++) {
		uint32_t ctx = p->conns[i].lane->in;

		if (!g->windows[i])
			continue;
		found++;
		if (!g->parts[ctx])
			st = reserve_part(e, g, ctx, error);
	}
	/* It has none yet: the connection that is renewed will be the first. */
	if (!found && p->renewal.at)
		st = reserve_part(e, g, p->conns[p->renewal.at - 1].lane->in, error);
	return st;
}

/* locked. Kept apart from the rest of the grant: if it cannot be reserved the grant lives without it. */
static escrow_status reserve_one(struct escrow_engine *e, struct grant *g, struct conn *c)
{
	uint64_t *part = &g->parts[c->lane->in];
	struct ledger_grant_args args = {.account = atomic_load(&g->peer->handle),
					 .region = g->region->parts[c->lane->in].owner,
					 .nwindows = 1};
	escrow_status st;

	if (!*part) {
		st = reserve_part(e, g, c->lane->in, NULL);
	} else {
		args.windows = &g->windows[c->index]->owner;
		args.connections = &c->owner;
		en_lane_lock(c->lane);
		st = ledger_grant_join(e->ledger, *part, &args, NULL);
		en_lane_unlock(c->lane);
	}
	if (st < 0)
		en_window_back(e, g->windows[c->index]);
	return st;
}

void en_join_later(struct escrow_engine *e, struct peer *p)
{
	if (!p->join_at)
		p->join_at = e->now + e->config.rail_retry_ms * 1000000u;
	en_wake_at(e, p->join_at);
}

/*
 * What one grant does not get there no other of the peer does: they look for the same, and `none` says that the
 * look was in vain.  Somebody's will be free again.
 */
static void join_one(struct escrow_engine *e, struct grant *g, struct conn *c, bool *none)
{
	*none = *none || !en_window_take(e, g, c);
	if (*none || reserve_one(e, g, c) < 0)
		en_join_later(e, c->peer);
}

void en_grants_join(struct escrow_engine *e, struct conn *c)
{
	bool none = false;
	uint32_t i;

	for (i = 0; i < e->config.max_grants; i++) {
		struct grant *g = &e->grants[i];

		if (g->peer != c->peer || (g->state != GRANT_BINDING && g->state != GRANT_READY))
			continue;
		if (!g->windows[c->index])
			join_one(e, g, c, &none);
		if (g->windows[c->index] && g->windows[c->index]->use == WINDOW_RESERVED)
			en_work(e, &g->work);
	}
}

void en_grants_join_again(struct escrow_engine *e, struct peer *p)
{
	uint32_t i;

	if (!p->join_at)
		return;
	if (e->now < p->join_at) {
		en_wake_at(e, p->join_at);
		return;
	}
	p->join_at = 0;
	for (i = 0; i < p->nconns; i++)
		if (p->conns[i].stage == CONN_READY && !p->conns[i].renew &&
		    !atomic_load(&p->conns[i].broken))
			en_grants_join(e, &p->conns[i]);
}

void en_join_advance(struct escrow_engine *e, struct grant *g)
{
	escrow_status st = e->nexact ? en_exact_make(e, g) : ESCROW_OK;
	uint32_t i;

	for (i = 0; i < g->nwindows && g->state == GRANT_READY; i++) {
		struct window *w = g->windows[i];

		if (w && w->use == WINDOW_RESERVED && st == ESCROW_OK)
			st = bind_or_wait(e, w);
		if (st < 0 && g->windows[i] && g->windows[i]->use == WINDOW_RESERVED)
			en_join_later(e, g->peer);
	}
}

/* ---- Without the runner --------------------------------------------------------------------------- */
/* One that was not bound yet; or one that was, and holds the grant? */
static bool has_window(const struct grant *g, bool reserved)
{
	uint32_t i;

	for (i = 0; i < g->nwindows; i++)
		if (g->windows[i] && (g->windows[i]->use == WINDOW_RESERVED) == reserved)
			return true;
	return false;
}

static bool all_at_hand(struct escrow_engine *e, const struct grant *g)
{
	uint32_t i;

	for (i = 0; i < g->nwindows; i++)
		if (g->windows[i] && g->windows[i]->use == WINDOW_RESERVED &&
		    !en_window_at_hand(e, g->windows[i]))
			return false;
	return true;
}

bool en_grant_helps(struct escrow_engine *e, const struct grant *g)
{
	/* A registration of its own ends when no window holds it. */
	if (e->nexact && en_exact_there(e, g) && !has_window(g, false))
		return false;
	switch ((enum grant_state)g->state) {
	case GRANT_BINDING:
		return !(e->nexact && en_exact_wanted(e, g)) && all_at_hand(e, g);
	case GRANT_READY:
		return !g->peer || (!en_exact_wanted(e, g) && !has_window(g, true));
	case GRANT_REVOKING:
		return !g->offspring;
	default:
		return true;
	}
}

/* All its windows, if nothing of that may sleep and there is room for them. */
static bool windows_due(struct escrow_engine *e, const struct grant *g, enum window_due due)
{
	uint32_t i;

	if (!e->threaded || e->nexact || e->ndue + g->nwindows > WINDOWS_DUE)
		return false;
	for (i = 0; i < g->nwindows; i++)
		if (g->windows[i])
			en_window_due(e, g->windows[i], due);
	return true;
}

bool en_grant_due(struct escrow_engine *e, struct grant *g)
{
	return all_at_hand(e, g) && windows_due(e, g, DUE_BIND);
}

bool en_revoke_due(struct escrow_engine *e, struct grant *g)
{
	uint32_t i, bound = 0;

	for (i = 0; i < g->nwindows; i++) {
		const struct window *w = g->windows[i];

		if (w && (w->use != WINDOW_BOUND || w->due))
			return false;
		bound += w != NULL;
	}
	return bound && windows_due(e, g, DUE_INVALIDATE);
}
