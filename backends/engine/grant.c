/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * grant.c - authority over a range, lent to one peer: charged, bound, exported, taken back.
 *
 * A grant is one ledger grant in each context that the peer's connections use, and one window for
 * each connection.  Its handle is that of its first part.
 */
#include "backends/engine/engine.h"

#include <string.h>

struct grant *en_grant_find(struct escrow_engine *e, uint64_t handle)
{
	struct grant *g;

	if (engine_kind(handle) != ESCROW_OWNER_GRANT)
		return NULL;
	g = engine_by_slot(e, handle);
	return g && atomic_load(&g->handle) == handle ? g : NULL;
}

/* ---- Places ------------------------------------------------------------------------------------- */
/* The state of one that the host polled to its end stays ENDED: the lock is not held there. */
static void give_slot(struct escrow_engine *e, struct grant *g)
{
	g->state = GRANT_FREE;
	pool_give(&e->grant_pool, (uint32_t)(g - e->grants));
}

static struct grant *take_slot(struct escrow_engine *e)
{
	uint32_t i = pool_take(&e->grant_pool);

	return i == POOL_NONE ? NULL : &e->grants[i];
}

/* ---- Made --------------------------------------------------------------------------------------- */
/* Nothing of it was posted: windows and charges return at once. */
static void unmake(struct escrow_engine *e, struct grant *g)
{
	uint32_t i, state;

	for (i = 0; i < e->ncontexts; i++)
		if (g->parts[i])
			ledger_grant_revoke(e->ledger, g->parts[i], &state);
	for (i = 0; i < g->nwindows; i++)
		if (g->windows[i])
			en_window_back(e, g->windows[i]);
	memset(g->parts, 0, sizeof(*g->parts) * e->ncontexts);
	give_slot(e, g);
}

static escrow_status take_windows(struct escrow_engine *e, struct grant *g,
				  struct escrow_error *error)
{
	bool some = !g->peer;
	uint32_t i;

	g->nwindows = g->peer ? (uint16_t)g->peer->nconns : 0;
	for (i = 0; i < g->nwindows; i++) {
		struct conn *c = &g->peer->conns[i];

		/* It gets its window on that when another is in its place. */
		some |= c->renew != RENEW_NOT;
		if (c->renew || c->stage != CONN_READY || atomic_load(&c->broken))
			continue;
		if (!en_window_take(e, g, c))
			return args_fail(error, ESCROW_E_AGAIN, "no window is free on %s",
					 c->lane->context->info.name);
		some = true;
	}
	return some ? ESCROW_OK : args_fail(error, ESCROW_E_PEER_LOST, "the peer is going");
}

/* One more, of so many bytes, for this peer (NULL: an offer)? */
static escrow_status admit(struct escrow_engine *e, struct peer *p, uint64_t length,
			   struct escrow_error *error)
{
	escrow_status st;

	if (p && p->grants >= e->config.max_peer_grants)
		return args_fail(error, ESCROW_E_LIMIT, "\"%s\" has all of max_peer_grants %llu",
				 p->name, (unsigned long long)e->config.max_peer_grants);
	st = en_quota_check(e, ESCROW_CHARGE_GRANTS, p, 1, error);
	if (st == ESCROW_OK)
		st = en_quota_check(e, ESCROW_CHARGE_GRANTED_BYTES, p, length, error);
	if (st == ESCROW_OK && p && p->any && e->config.any_peers &&
	    e->any_grants >= e->config.any_peers)
		st = args_fail(error, ESCROW_E_QUOTA, "quota.any_peers %llu is used up",
			       (unsigned long long)e->config.any_peers);
	return st;
}

escrow_status en_grant_new(struct escrow_engine *e, const struct escrow_grant_args *a,
			   struct peer *p, struct region *r, struct grant **out,
			   struct escrow_error *error)
{
	struct grant *g = take_slot(e);
	escrow_status st;
	uint32_t i;

	if (!g)
		return args_fail(error, ESCROW_E_LIMIT, "all of max_grants %llu are in use",
				 (unsigned long long)e->config.max_grants);
	st = admit(e, p, a->length, error);
	if (st < 0) {
		give_slot(e, g);
		return st;
	}
	g->user = a->user;
	g->peer = p;
	g->region = r;
	g->addr = r->addr + a->offset;
	g->length = a->length;
	g->rights = a->rights;
	g->failed = ESCROW_OK;
	g->hidden = g->offer = g->offspring = g->stuck = g->revoked = g->answer_due = 0;
	atomic_store_explicit(&g->polled, 0, memory_order_release);
	g->ready_told = 0;
	memset(g->parts, 0, sizeof(*g->parts) * e->ncontexts);
	st = take_windows(e, g, error);
	if (st == ESCROW_OK)
		st = en_grant_reserve(e, g, error);
	if (st < 0) {
		unmake(e, g);
		return st;
	}
	for (i = 0; !g->parts[i];)
		i++;
	en_quota_granted(e, g);
	g->main = (uint8_t)i;
	g->state = p ? GRANT_BINDING : GRANT_OFFER;
	engine_set_slot(e, g->parts[i], g);
	atomic_store_explicit(&g->handle, g->parts[i], memory_order_release);
	if (p) {
		p->grants++;
		e->any_grants += p->any;
	} else {
		ledger_grant_ready(e->ledger, g->parts[0]);
	}
	*out = g;
	return ESCROW_OK;
}

static escrow_status check(struct escrow_engine *e, const struct escrow_grant_args *a,
			   struct peer **p, struct region **r, struct escrow_error *error)
{
	*r = en_region_find(e, a->region);
	if (!*r)
		return args_fail(error, ESCROW_E_INVALID, "no such region: 0x%llx",
				 (unsigned long long)a->region);
	if ((*r)->state != REGION_LIVE)
		return args_fail(error, ESCROW_E_BUSY, "the region is being released");
	if (a->offset > (*r)->length || a->length > (*r)->length - a->offset)
		return args_fail(error, ESCROW_E_INVALID,
				 "offset %llu + length %llu is beyond the region's %llu bytes",
				 (unsigned long long)a->offset, (unsigned long long)a->length,
				 (unsigned long long)(*r)->length);
	*p = a->peer ? en_peer_find(e, a->peer) : NULL;
	if (!a->peer)
		return ESCROW_OK;
	if (!*p)
		return args_fail(error, ESCROW_E_INVALID, "no such peer: 0x%llx",
				 (unsigned long long)a->peer);
	if (atomic_load(&(*p)->state) == PEER_CONNECTING)
		return args_fail(error, ESCROW_E_STATE, "the peer is not up yet");
	if (atomic_load(&(*p)->state) != PEER_UP)
		return args_fail(error, ESCROW_E_PEER_LOST, "the peer is going or gone");
	return ESCROW_OK;
}

escrow_status engine_grant(struct escrow_engine *e, const struct escrow_grant_args *from,
			   uint64_t *out, struct escrow_error *error)
{
	struct escrow_grant_args a;
	struct region *r = NULL;
	struct grant *g;
	struct peer *p = NULL;
	escrow_status st;

	if (!engine_here(e) || !state_allows(SLOT_GRANT, engine_state(e)))
		return args_fail(error, ESCROW_E_STATE, "the engine is not OPEN");
	if (!out)
		return args_fail(error, ESCROW_E_INVALID, "grant is NULL");
	st = args_read(&args_grant, from, &a, error);
	if (st < 0)
		return st;
	if (a.rights & ~(ESCROW_MAY_READ | ESCROW_MAY_WRITE))
		return args_fail(error, ESCROW_E_UNSUPPORTED, "rights 0x%x; known are 0x3",
				 a.rights);
	if (!a.rights || !a.length)
		return args_fail(error, ESCROW_E_INVALID,
				 "rights 0x%x, length %llu; at least one right and one byte",
				 a.rights, (unsigned long long)a.length);
	engine_lock(e);
	st = check(e, &a, &p, &r, error);
	if (st == ESCROW_OK)
		st = en_grant_new(e, &a, p, r, &g, error);
	if (st == ESCROW_OK)
		*out = atomic_load(&g->handle);
	if (st == ESCROW_OK && p)
		en_help_ask(e, en_grant_due(e, g) ? NULL : &g->work);
	engine_unlock(e);
	return st < 0 ? st : p ? ESCROW_IN_PROGRESS : ESCROW_OK;
}

/* ---- Exported -------------------------------------------------------------------------------------- */
void en_grant_encode(struct escrow_engine *e, struct grant *g, struct wire_grant *out)
{
	uint32_t i;

	memset(out, 0, offsetof(struct wire_grant, keys));
	memcpy(out->owner, e->incarnation, 16);
	out->id = atomic_load(&g->handle);
	out->addr = g->addr;
	out->length = g->length;
	out->rights = g->rights;
	if (!g->peer) {
		out->flags = WIRE_GRANT_OFFER;
		return;
	}
	memcpy(out->grantee, g->peer->incarnation, 16);
	out->epoch = g->peer->epoch;
	out->flags = g->peer->flags & ESCROW_PEER_PASSIVE ? WIRE_GRANT_PASSIVE : 0;
	out->nkeys = g->nwindows;
	for (i = 0; i < g->nwindows; i++) {
		const struct window *w = g->windows[i];

		out->keys[i] = w && w->use == WINDOW_BOUND ? w->rkey : 0;
		out->epochs[i] = atomic_load(&g->peer->conns[i].epoch);
	}
}

escrow_status engine_export_grant(struct escrow_engine *e, uint64_t handle, void *buf,
				  uint64_t *len)
{
	struct wire_grant wire;
	escrow_status st = ESCROW_OK;
	struct grant *g;
	uint64_t need;

	if (!engine_here(e) || !state_allows(SLOT_EXPORT_GRANT, engine_state(e)))
		return ESCROW_E_STATE;
	if (!len || (!buf && *len))
		return ESCROW_E_INVALID;
	engine_lock(e);
	g = en_grant_find(e, handle);
	if (!g || g->hidden)
		st = ESCROW_E_INVALID;
	else if (g->state != GRANT_READY && g->state != GRANT_OFFER)
		st = ESCROW_E_STATE;
	else
		en_grant_encode(e, g, &wire);
	engine_unlock(e);
	if (st < 0)
		return st;
	need = wire_grant_bytes(wire.nkeys);
	if (*len < need) {
		*len = need;
		return ESCROW_E_TOO_SMALL;
	}
	wire_grant_put(&wire, buf);
	*len = need;
	return ESCROW_OK;
}

/* ---- Taken back ---------------------------------------------------------------------------------------- */
static bool revoke_begins(struct grant *g)
{
	if (g->state != GRANT_OFFER && g->state != GRANT_BINDING && g->state != GRANT_READY)
		return false;
	g->state = GRANT_REVOKING;
	return true;
}

void en_grant_revoke(struct escrow_engine *e, struct grant *g)
{
	if (revoke_begins(g))
		en_work(e, &g->work);
}

escrow_status engine_revoke(struct escrow_engine *e, uint64_t handle, uint32_t flags)
{
	escrow_status st = ESCROW_IN_PROGRESS;
	struct grant *g;

	if (!engine_here(e) || !state_allows(SLOT_REVOKE, engine_state(e)))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	engine_lock(e);
	g = en_grant_find(e, handle);
	if (!g || g->hidden)
		st = ESCROW_E_INVALID;
	else if (revoke_begins(g))
		en_help_ask(e, en_revoke_due(e, g) ? NULL : &g->work);
	engine_unlock(e);
	return st;
}

void en_grants_of_peer_revoke(struct escrow_engine *e, struct peer *p)
{
	uint32_t i;

	for (i = 0; i < e->config.max_grants; i++)
		if (e->grants[i].peer == p)
			en_grant_revoke(e, &e->grants[i]);
}

/* [poll] Not locked. */
static void end_polled(struct escrow_engine *e, struct grant *g, struct event_what *what)
{
	what->kind = g->end;
	if (g->end == ESCROW_EV_QUARANTINED) {
		what->status = ESCROW_E_UNQUIESCED;
		what->bytes = g->length;
	} else if (g->end == ESCROW_EV_GRANT_READY) {
		what->status = g->failed;
	}
	/* One that is stuck keeps its handle and its place: its last event is the one that a late receipt tells. */
	if (what->kind == ESCROW_EV_QUARANTINED) {
		atomic_store(&g->polled, 1);
		return;
	}
	/* Who looks has the lock; the give is in order with whoever takes the place (pool.h). */
	atomic_store_explicit(&g->handle, 0, memory_order_release);
	atomic_store_explicit(&g->polled, 1, memory_order_release);
	pool_give(&e->grant_pool, (uint32_t)(g - e->grants));
}

bool en_grant_event(struct escrow_engine *e, const struct event_link *link, struct event_out *out)
{
	uintptr_t at = (uintptr_t)link - (uintptr_t)e->grants;
	struct event_what what;
	struct grant *g;

	if (at >= e->config.max_grants * sizeof(*g))
		return false;
	g = &e->grants[at / sizeof(*g)];
	what = (struct event_what){
		.kind = ESCROW_EV_GRANT_READY, .user = g->user, .object = g->parts[g->main]};
	if (link == &g->ended)
		end_polled(e, g, &what);
	event_write(&e->events, out, &what);
	return true;
}

static void tell_end(struct escrow_engine *e, struct grant *g)
{
	g->end = ESCROW_EV_GRANT_REVOKED;
	if (g->stuck)
		g->end = ESCROW_EV_QUARANTINED;
	else if (g->failed && !g->ready_told)
		g->end = ESCROW_EV_GRANT_READY;
	event_put_link(e, &g->ended);
}

static void ended(struct escrow_engine *e, struct grant *g)
{
	struct peer *p = g->peer;

	g->state = GRANT_ENDED;
	if (!g->stuck)
		en_quota_ended(e, g);
	if (p) {
		p->grants--;
		e->any_grants -= p->any;
		p->stuck |= g->stuck;
		if (atomic_load(&p->state) == PEER_LEAVING)
			en_work(e, &p->work);
	}
	if (g->hidden) {
		if (g->request)
			en_offer_answer(e, g);
		if (g->offer && e->grants[g->offer - 1].state == GRANT_REVOKING)
			en_work(e, &e->grants[g->offer - 1].work);
		if (!g->stuck)
			en_offspring_leave(e, g);
		atomic_store(&g->handle, 0);
		if (!g->stuck)
			give_slot(e, g);
	} else {
		tell_end(e, g);
	}
	if (engine_state(e) == ESCROW_STATE_CLOSING)
		en_work(e, &e->work);
}

void en_grant_late(struct escrow_engine *e, struct grant *g)
{
	uint32_t i;

	if (!g->stuck || g->state != GRANT_ENDED || (!g->hidden && !atomic_load(&g->polled)))
		return;
	for (i = 0; i < e->ncontexts; i++)
		if (g->parts[i] && ledger_grant_state(e->ledger, g->parts[i]) >= 0)
			return;
	if (!g->peer && en_offspring(e, g, true))
		return;
	g->stuck = 0;
	en_quota_ended(e, g);
	if (g->hidden) {
		struct grant *offer = &e->grants[g->offer - 1];

		en_offspring_leave(e, g);
		give_slot(e, g);
		en_grant_late(e, offer);
		return;
	}
	atomic_store(&g->polled, 0);
	g->end = ESCROW_EV_GRANT_REVOKED;
	event_put_link(e, &g->ended);
}

/* None of its windows is left. */
static void without_windows(struct escrow_engine *e, struct grant *g)
{
	if (!g->peer && en_offspring(e, g, false))
		return;
	/* What an importer got of it may still be used, so it has not ended either. */
	g->stuck |= !g->peer && en_offspring(e, g, true);
	en_exact_end(e, g);
	ended(e, g);
}

void en_grant_revoke_parts(struct escrow_engine *e, struct grant *g)
{
	uint32_t i;

	if (g->revoked)
		return;
	g->revoked = 1;
	if (!g->peer)
		en_offspring_revoke(e, g);
	for (i = 0; i < e->ncontexts; i++)
		if (g->parts[i])
			ledger_grant_revoke(e->ledger, g->parts[i], NULL);
}

static __attribute__((noinline)) void revoking(struct escrow_engine *e, struct grant *g)
{
	uint32_t i, left = 0;

	en_grant_revoke_parts(e, g);
	for (i = 0; i < g->nwindows; i++) {
		struct window *w = g->windows[i];

		if (w && w->use == WINDOW_RESERVED)
			en_window_back(e, w);
		else if (w)
			en_window_unbind(e, w);
		left += g->windows[i] != NULL;
	}
	if (!left)
		without_windows(e, g);
}

static inline void advance(struct escrow_engine *e, struct grant *g)
{
	if (g->state == GRANT_READY && g->peer)
		en_join_advance(e, g);
	if (g->state == GRANT_BINDING)
		en_grant_bind(e, g);
	if (g->state == GRANT_REVOKING)
		revoking(e, g);
}

void en_grant_goes_on(struct escrow_engine *e, struct grant *g)
{
	/* With a peer's grant that needs no registration of its own nothing is left that could sleep. */
	if (g->nwindows == 1 && ((g->peer && !e->nexact) || en_grant_helps(e, g)))
		advance(e, g);
	else
		en_work(e, &g->work);
}

void en_grant_advance(struct escrow_engine *e, struct grant *g)
{
	advance(e, g);
}
