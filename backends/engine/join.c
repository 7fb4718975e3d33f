/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * join.c - a grant and the connections of its peer: one window on each that stands, none on those that
 * have gone (the grant lives on the others), and one on each that comes back, whose key the importer is
 * told (tell_key in window.c).
 */
#include "backends/engine/engine.h"

bool en_join_window(struct escrow_engine *e, struct grant *g, struct conn *c)
{
	struct window *w = en_window_take(e, c);

	if (!w)
		return false;
	w->grant = g;
	w->conn = c;
	g->windows[c->index] = w;
	return true;
}

bool en_join_bind(struct escrow_engine *e, struct window *w, int *rc)
{
	if (w->use == WINDOW_RESERVED && !*rc)
		*rc = en_window_bind(e, w);
	return w->use == WINDOW_BOUND;
}

static void lock_lanes(struct escrow_engine *e, struct context *c)
{
	uint32_t i;

	for (i = 0; i < e->nlanes; i++)
		if (e->lanes[i].context == c)
			en_lane_lock(&e->lanes[i]);
}

static void unlock_lanes(struct escrow_engine *e, struct context *c)
{
	uint32_t i;

	for (i = 0; i < e->nlanes; i++)
		if (e->lanes[i].context == c)
			en_lane_unlock(&e->lanes[i]);
}

/* The part of one context: all its windows, or none. */
escrow_status en_grant_reserve_part(struct escrow_engine *e, struct grant *g, uint32_t ctx,
				    struct escrow_error *error)
{
	struct context *c = &e->contexts[ctx];
	uint64_t windows[WIRE_MAX_KEYS], conns[WIRE_MAX_KEYS];
	struct ledger_grant_args args = {
		.account = g->peer ? atomic_load(&g->peer->handle) : 0,
		.region = g->region->parts[ctx].owner,
		.offset = g->addr - g->region->addr,
		.length = g->length,
		.rights = g->rights,
		.windows = windows,
		.connections = conns,
	};
	struct escrow_error detail = {.size = sizeof(detail)};
	escrow_status st;
	uint32_t i;

	for (i = 0; i < g->nwindows; i++)
		if (g->windows[i] && g->windows[i]->context == c) {
			windows[args.nwindows] = g->windows[i]->owner;
			conns[args.nwindows++] = g->peer->conns[i].owner;
		}
	if (g->peer && !args.nwindows)
		return ESCROW_OK;
	lock_lanes(e, c);
	st = ledger_grant_reserve(e->ledger, &args, &g->parts[ctx], &detail);
	unlock_lanes(e, c);
	return st < 0 ? args_pass(error, st, &detail) : st;
}

/* locked. Kept apart from the rest of the grant: if it cannot be had the grant lives without it. */
static escrow_status join_one(struct escrow_engine *e, struct grant *g, struct conn *c)
{
	struct context *ctx = c->lane->context;
	uint64_t *part = &g->parts[ctx - e->contexts];
	struct ledger_grant_args args = {.account = atomic_load(&g->peer->handle),
					 .region = g->region->parts[ctx - e->contexts].owner,
					 .nwindows = 1};
	escrow_status st;

	if (!en_join_window(e, g, c))
		return ESCROW_E_AGAIN;
	if (!*part) {
		st = en_grant_reserve_part(e, g, (uint32_t)(ctx - e->contexts), NULL);
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

void en_grants_join(struct escrow_engine *e, struct conn *c)
{
	uint32_t i;

	for (i = 0; i < e->config.max_grants; i++) {
		struct grant *g = &e->grants[i];

		if (g->peer == c->peer && !g->windows[c->index] &&
		    (g->state == GRANT_BINDING || g->state == GRANT_READY) &&
		    join_one(e, g, c) == ESCROW_OK)
			en_work(e, &g->work);
	}
}

void en_join_advance(struct escrow_engine *e, struct grant *g)
{
	int rc = en_exact_make(e, g);
	uint32_t i;

	for (i = 0; i < g->nwindows && g->state == GRANT_READY; i++)
		if (g->windows[i])
			en_join_bind(e, g->windows[i], &rc);
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
	if (en_exact_there(e, g) && !has_window(g, false))
		return false;
	switch ((enum grant_state)g->state) {
	case GRANT_BINDING:
		return !en_exact_wanted(e, g) && all_at_hand(e, g);
	case GRANT_READY:
		return !g->peer || (!en_exact_wanted(e, g) && !has_window(g, true));
	case GRANT_REVOKING:
		return !g->offspring;
	default:
		return true;
	}
}
