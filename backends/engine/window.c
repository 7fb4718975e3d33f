/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * window.c - Type-2 windows: a pool for each context, one bound window for each connection that a
 * peer may use.  Bound and invalidated by work requests on that connection, whose slots the ledger
 * has kept since the grant; deallocated when the connection can post no more.
 */
#include "backends/engine/engine.h"

#include <errno.h>

/* May the window be bound for this peer?  Not while another one may know keys of it (ownership 1.5). */
static bool fits(struct escrow_engine *e, const struct window *w, uint64_t account)
{
	const struct peer *p;

	if (!w->account || w->account == account)
		return true;
	p = en_peer_find(e, w->account);
	return !p || atomic_load(&p->state) == PEER_DOWN;
}

/* The connection on which its keys were made stands, or nobody can say that it does not. */
static bool keys_stand_elsewhere(struct escrow_engine *e, const struct window *w,
				 const struct conn *conn)
{
	const struct conn *last;

	if (!w->keys_on || w->keys_on == conn->owner)
		return false;
	last = engine_by_slot(e, w->keys_on);
	return last && last != conn && last->owner == w->keys_on && last->stage != CONN_GONE;
}

static struct window *unlink_at(struct window **at)
{
	struct window *w = *at;

	*at = w->next;
	return w;
}

/*
 * One that has keys on this connection or on none that stands; with `any`, one with keys on another
 * connection of the peer too.  Its index then is no single connection's, if it goes (ledger.h).
 */
static struct window *take_parked(struct escrow_engine *e, const struct conn *conn,
				  uint64_t account, bool any)
{
	struct window **at;

	for (at = &conn->lane->context->parked; *at; at = &(*at)->next)
		if (fits(e, *at, account) && (any || !keys_stand_elsewhere(e, *at, conn)))
			return unlink_at(at);
	return NULL;
}

/* One whose index was held out, and is no longer. */
static struct window *take_aside(struct escrow_engine *e, struct context *c, uint64_t account)
{
	struct window **at;

	for (at = &c->aside; *at; at = &(*at)->next)
		if (fits(e, *at, account) && !ledger_window_held_out(e->ledger, (*at)->owner))
			return unlink_at(at);
	return NULL;
}

static struct window *take_new(struct escrow_engine *e, struct context *c)
{
	struct ledger_owner_args owner = {.kind = ESCROW_OWNER_WINDOW,
					  .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEALLOC_WINDOW),
					  .parent = c->owner};
	struct window *w = e->window_free;

	if (!w || ledger_owner_add(e->ledger, &owner, &w->owner, NULL) < 0)
		return NULL;
	e->window_free = w->next;
	w->context = c;
	w->native = NULL;
	w->account = 0;
	w->keys_on = 0;
	atomic_store(&w->settled, 0);
	engine_set_slot(e, w->owner, w);
	return w;
}

bool en_window_take(struct escrow_engine *e, struct grant *g, struct conn *conn)
{
	uint64_t account = atomic_load(&conn->peer->handle);
	struct context *c = conn->lane->context;
	struct window *w = take_parked(e, conn, account, false);

	if (!w)
		w = take_aside(e, c, account);
	if (!w)
		w = take_new(e, c);
	if (!w) {
		en_renew_wish(e, true);
		w = take_parked(e, conn, account, true);
	}
	if (!w)
		return false;
	en_renew_window(e, w, true);
	w->account = account;
	w->due = DUE_NONE;
	w->use = WINDOW_RESERVED;
	w->grant = g;
	w->conn = conn;
	g->windows[conn->index] = w;
	return true;
}

/* One that has made keys was looked at before the first (ledger.h). */
static bool held_out(struct escrow_engine *e, const struct window *w)
{
	return !w->keys_on && ledger_window_held_out(e->ledger, w->owner);
}

static void detach(struct window *w)
{
	if (w->grant && w->conn)
		w->grant->windows[w->conn->index] = NULL;
	w->key_due = 0;
	w->due = DUE_NONE;
	w->grant = NULL;
	w->conn = NULL;
}

static void to_free(struct escrow_engine *e, struct window *w)
{
	w->use = WINDOW_FREE;
	w->native = NULL;
	w->next = e->window_free;
	e->window_free = w;
}

static void to_aside(struct window *w)
{
	w->use = WINDOW_ASIDE;
	w->next = w->context->aside;
	w->context->aside = w;
}

/* No proof of its end can be had: it stays, and its grant with it. */
static void stays(struct window *w)
{
	if (w->grant)
		w->grant->stuck = 1;
	w->use = WINDOW_ENDED;
	detach(w);
}

static void back(struct escrow_engine *e, struct window *w, bool worn)
{
	/* The loss of a device quarantines every window there, also one that was only set apart. */
	if (atomic_load(&w->context->fatal) && en_owner_quarantined(e, w->owner)) {
		stays(w);
		return;
	}
	detach(w);
	en_renew_window(e, w, false);
	if (!w->native) {
		ledger_owner_undo(e->ledger, w->owner);
		to_free(e, w);
	} else if (worn) {
		w->use = WINDOW_ORPHAN;
		en_work(e, &w->work);
	} else if (held_out(e, w)) {
		to_aside(w);
	} else {
		w->use = WINDOW_PARKED;
		w->next = w->context->parked;
		w->context->parked = w;
	}
}

/* The ledger says PARKED (or it was never used): back into the pool, or away with it. */
void en_window_back(struct escrow_engine *e, struct window *w)
{
	back(e, w, w->native && ledger_window_worn(e->ledger, w->owner));
}

/* ---- Allocation --------------------------------------------------------------------------------- */
static int allocate(struct escrow_engine *e, struct window *w)
{
	struct native_window *native;
	int rc = en_step_window(e, w->context, &native);

	if (rc)
		return rc;
	w->native = native;
	ledger_window_key(e->ledger, w->owner, e->ops->window_key(native));
	return 0;
}

/*
 * A device that gives out an index which a peer of an epoch that is not fenced may still know: that
 * window stays aside, under an owner of its own, until the hold-out ends.  So the device gives another.
 * ENOBUFS: there is no place for one more.
 */
static int put_aside(struct escrow_engine *e, struct window *w)
{
	struct window *aside = take_new(e, w->context);

	if (!aside)
		return ENOBUFS;
	aside->native = w->native;
	ledger_window_key(e->ledger, aside->owner, e->ops->window_key(w->native));
	to_aside(aside);
	w->native = NULL;
	return 0;
}

#define ASIDE_TRIES 64

static int have_native(struct escrow_engine *e, struct window *w)
{
	int tries, rc = 0;

	/* It has no key yet, and none would do: the list of those held out is full. */
	if (!w->native && held_out(e, w))
		return ENOBUFS;
	for (tries = 0; rc == 0 && tries < 2 * ASIDE_TRIES; tries++) {
		if (w->native && !held_out(e, w))
			return 0;
		rc = w->native ? put_aside(e, w) : allocate(e, w);
	}
	return rc ? rc : ENOBUFS;
}

/* ---- Bind and invalidate ------------------------------------------------------------------------- */
int en_window_bind(struct escrow_engine *e, struct window *w)
{
	struct grant *g = w->grant;
	int rc = w->due ? 0 : have_native(e, w);

	if (rc || w->due)
		return rc;
	if (w->grant != g || (g->state != GRANT_BINDING && g->state != GRANT_READY))
		return 0; /* revoked while the device was asked */
	if (!en_window_due(e, w, DUE_BIND))
		en_work(e, &g->work);
	return 0;
}

bool en_window_at_hand(struct escrow_engine *e, const struct window *w)
{
	return w->native && !held_out(e, w);
}

void en_window_unbind(struct escrow_engine *e, struct window *w)
{
	if (w->use == WINDOW_BOUND && !w->due && !en_window_due(e, w, DUE_INVALIDATE))
		en_work(e, &w->grant->work);
}

/*
 * A deallocated window may still owe a completion: the flush of its bind or invalidation, which the
 * connection's teardown collects later.  By then the ledger may have given its number to anything,
 * and the struct may be another grant's window.
 */
void en_window_settle(struct escrow_engine *e, const struct ledger_done *done)
{
	struct window *w = engine_by_slot(e, done->subject);
	uintptr_t at = (uintptr_t)w, first = (uintptr_t)e->windows;

	if (at < first || at >= first + e->nwindows * sizeof(*w) ||
	    atomic_load(&w->asked) != done->subject)
		return;
	/* The control side of the ledger has a mutex: the runner does it. */
	w->what = (uint8_t)done->what;
	w->outcome = done->outcome;
	w->releases = done->releases;
	/* Seen by who takes it off the list, on which it is put behind this. */
	atomic_store_explicit(&w->settled, 1, memory_order_release);
	en_help_work(e, &w->work);
}

/* With its lane, so that nobody is in the middle of the above. */
static void forget_asked(struct window *w)
{
	if (w->conn)
		en_lane_lock(w->conn->lane);
	atomic_store(&w->asked, 0);
	atomic_store(&w->settled, 0);
	if (w->conn)
		en_lane_unlock(w->conn->lane);
}

/* ---- The end -------------------------------------------------------------------------------------------- */
static escrow_status end_native(struct escrow_engine *e, struct window *w)
{
	struct native_window *native = w->native;
	escrow_status st;
	int rc;

	if (en_owner_gone(e, w->owner))
		return ESCROW_OK;
	st = ledger_step_begin(e->ledger, w->owner, ESCROW_STEP_DEALLOC_WINDOW, NULL);
	if (st < 0) {
		ledger_quarantine(e->ledger, w->owner, "cannot be deallocated");
		return st;
	}
	w->native = NULL;
	w->use = WINDOW_ORPHAN;
	rc = en_step(w->context, ESCROW_STEP_DEALLOC_WINDOW, native);
	return ledger_step_end(e->ledger, w->owner, ESCROW_STEP_DEALLOC_WINDOW, rc);
}

static void deallocate(struct escrow_engine *e, struct window *w)
{
	struct grant *g = w->grant;
	struct peer *p = w->conn ? w->conn->peer : NULL;

	if (end_native(e, w) < 0) {
		stays(w);
	} else {
		forget_asked(w);
		detach(w);
		en_renew_window(e, w, false);
		en_renew_spent(e, w);
		to_free(e, w);
	}
	if (g)
		en_work(e, &g->work);
	if (p)
		en_work(e, &p->work);
}

/* A grant outlives a connection, and what was to be bound on it; any other failure is its own. */
static void bind_failed(const struct window *w, struct grant *g)
{
	if (g->state == GRANT_BINDING && !g->failed &&
	    !(en_conn_spare(w->conn) && atomic_load(&w->conn->broken)))
		g->failed = ESCROW_E_DEVICE;
}

/* Parked: the grant may stand by its other windows, and is not revoked. */
static void leave_unbound(struct escrow_engine *e, struct window *w, struct grant *g)
{
	if (g)
		bind_failed(w, g);
	if (g && g->state == GRANT_READY)
		en_join_later(e, w->conn->peer);
	ledger_window_leave(e->ledger, w->owner);
	en_window_back(e, w);
}

void en_window_not_bound(struct escrow_engine *e, struct window *w)
{
	struct grant *g = w->grant;

	leave_unbound(e, w, g);
	en_work(e, &g->work);
}

/* What it waits for: its windows are to end. */
static void renewed_on(struct escrow_engine *e, struct conn *c)
{
	if (c && c->renew)
		en_work(e, &c->peer->work);
}

/* A bind or invalidation was settled: the ledger judges it, and its state is what counts. */
static void settled(struct escrow_engine *e, struct window *w)
{
	struct ledger_done done = {.subject = atomic_load(&w->asked),
				   .what = w->what,
				   .outcome = w->outcome,
				   .releases = w->releases};
	struct ledger_window_now now;
	struct grant *g = w->grant;

	renewed_on(e, w->conn);
	ledger_window_settled(e->ledger, &done, NULL, &now);
	if (w->use != WINDOW_BINDING && w->use != WINDOW_INVALIDATING)
		return;
	switch (now.state) {
	case LEDGER_WINDOW_FREE:
		return;
	case LEDGER_WINDOW_PARKED:
		if (w->use == WINDOW_BINDING)
			leave_unbound(e, w, g);
		else
			back(e, w, now.worn);
		break;
	case LEDGER_WINDOW_BOUND:
		w->use = WINDOW_BOUND;
		if (g && g->state == GRANT_READY)
			en_key_tell(e, w);
		break;
	case LEDGER_WINDOW_ORPHAN:
		if (w->use == WINDOW_BINDING && g)
			bind_failed(w, g);
		w->use = WINDOW_ORPHAN;
		break;
	default:
		/* Quarantined with its context. */
		w->use = WINDOW_ENDED;
		if (g)
			g->stuck = 1;
		detach(w);
		break;
	}
	if (g)
		en_grant_goes_on(e, g);
}

bool en_window_help(struct escrow_engine *e, struct window *w)
{
	/* It owes nothing more, so nobody else writes that till it is asked for something again. */
	if (atomic_load_explicit(&w->settled, memory_order_acquire)) {
		atomic_store_explicit(&w->settled, 0, memory_order_relaxed);
		settled(e, w);
	}
	return w->use != WINDOW_ORPHAN || !w->native;
}

void en_window_advance(struct escrow_engine *e, struct window *w)
{
	if (!en_window_help(e, w))
		deallocate(e, w);
}

static bool on_conn(const struct window *w, const struct conn *c)
{
	return w->conn == c && w->use >= WINDOW_BINDING && w->use <= WINDOW_ORPHAN;
}

bool en_conn_has_windows(struct escrow_engine *e, struct conn *c)
{
	uint32_t i;

	for (i = 0; i < e->nwindows; i++)
		if (on_conn(&e->windows[i], c))
			return true;
	return false;
}

/* One that was not bound yet: its grant does without. */
static void not_needed(struct escrow_engine *e, struct window *w)
{
	struct grant *g = w->grant;

	if (w->use != WINDOW_RESERVED || !g ||
	    ledger_window_leave(e->ledger, w->owner) != ESCROW_OK)
		return;
	en_window_back(e, w);
	en_work(e, &g->work);
}

void en_conn_orphan_windows(struct escrow_engine *e, struct conn *c)
{
	uint32_t i;

	for (i = 0; i < e->nwindows; i++) {
		struct window *w = &e->windows[i];

		if (on_conn(w, c) && w->use != WINDOW_ORPHAN)
			en_window_orphan(e, w);
		else if (w->conn == c)
			not_needed(e, w);
	}
}

bool en_conn_unbind_windows(struct escrow_engine *e, struct conn *c)
{
	bool none = true;
	uint32_t i;

	for (i = 0; i < e->nwindows; i++) {
		struct window *w = &e->windows[i];

		if (w->conn != c || w->use == WINDOW_ENDED)
			continue;
		not_needed(e, w);
		en_window_unbind(e, w);
		none = none && w->conn != c;
	}
	return none;
}

/* runner. Parked ones and those put aside go before their context does; true when none is left. */
bool en_windows_close(struct escrow_engine *e, struct context *c)
{
	bool none = true;
	uint32_t i;

	c->parked = c->aside = NULL;
	for (i = 0; i < e->nwindows; i++) {
		struct window *w = &e->windows[i];

		if (w->context != c || (w->use != WINDOW_PARKED && w->use != WINDOW_ASIDE))
			continue;
		deallocate(e, w);
		none = none && w->use == WINDOW_FREE;
	}
	return none;
}
