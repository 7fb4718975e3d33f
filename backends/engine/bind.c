/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bind.c - binds and invalidations that are due: what comes together is posted together, a chain and a
 * doorbell for each connection.  Each asks for its own completion, and nothing is exported or given back
 * for the completion of another.
 */
#include "backends/engine/engine.h"
#include "backends/ledger/binds.h"

#include <errno.h>

/* What a request of the kind has (native.h), and no more: it is as large as one that moves bytes. */
static void fill_bind(struct escrow_engine *e, const struct window *w, uint8_t tag,
		      struct native_wr *wr)
{
	const struct grant *g = w->grant;

	wr->opcode = NATIVE_BIND;
	wr->flags = NATIVE_SIGNALED;
	wr->rkey = (e->ops->window_key(w->native) & ~0xffu) | tag;
	wr->window = w->native;
	wr->region = en_grant_native(g, w->context);
	wr->addr = g->addr;
	wr->length = g->length;
	wr->rights = g->rights;
}

static void fill_invalidate(const struct window *w, struct native_wr *wr)
{
	wr->opcode = NATIVE_INVALIDATE;
	/* READs that use the key at the peer are not ours to order; ours are. */
	wr->flags = NATIVE_SIGNALED | NATIVE_FENCE;
	wr->rkey = w->rkey;
}

void en_window_orphan(struct escrow_engine *e, struct window *w)
{
	ledger_window_event(e->ledger, w->owner, LEDGER_E_QP_DEAD);
	w->due = DUE_NONE;
	w->use = WINDOW_ORPHAN;
	en_work(e, &w->work);
}

/* The connection takes nothing more: an invalidation is then proved by its end, a bind is none. */
static void refused(struct escrow_engine *e, struct window *w)
{
	struct grant *g = w->grant;
	enum window_due due = w->due;

	w->due = DUE_NONE;
	if (due == DUE_INVALIDATE) {
		en_window_orphan(e, w);
	} else if (!en_conn_spare(w->conn) && g->state == GRANT_BINDING && !g->failed) {
		g->failed = ESCROW_E_PEER_LOST;
		en_work(e, &g->work);
	}
	/* Of a spare one it is given back when that retires. */
}

/* What is due may have been taken back while a device was asked for something. */
static bool stands(struct window *w)
{
	const struct grant *g = w->grant;
	bool bind = w->due == DUE_BIND && w->use == WINDOW_RESERVED && g &&
		    (g->state == GRANT_BINDING || g->state == GRANT_READY);

	if (!bind && (w->due != DUE_INVALIDATE || w->use != WINDOW_BOUND))
		w->due = DUE_NONE;
	return w->due != DUE_NONE;
}

/* lane, with the ledger held. Lends it; false: the connection takes no more. */
static bool lend(struct escrow_engine *e, struct conn *c, struct ledger_conn *debts,
		 struct window *w, struct native_wr *wr)
{
	bool bind = w->due == DUE_BIND;
	uint64_t id;
	uint8_t tag;

	if (bind && !c->established)
		return false;
	/* Of what goes with its connection the grant stays. */
	if (!bind && w->grant && w->grant->state == GRANT_REVOKING)
		en_grant_revoke_parts(e, w->grant);
	id = ledger_lend_window(c->lane->ledger, debts,
				bind ? LEDGER_WR_BIND : LEDGER_WR_INVALIDATE, w->owner, &tag);
	if (!id)
		return false;
	wr->id = id;
	if (bind)
		fill_bind(e, w, tag, wr);
	else
		fill_invalidate(w, wr);
	atomic_store_explicit(&w->asked, w->owner, memory_order_release);
	return true;
}

/* The same. The device took it. */
static void taken(struct escrow_engine *e, struct conn *c, struct window *w, uint32_t rkey)
{
	bool bind = w->due == DUE_BIND;

	w->due = DUE_NONE;
	w->use = bind ? WINDOW_BINDING : WINDOW_INVALIDATING;
	if (bind) {
		w->rkey = rkey;
		w->keys_on = c->owner;
	}
	ledger_window_posted(e->ledger, bind ? LEDGER_E_BIND : LEDGER_E_INVALIDATE, w->owner);
}

/*
 * lane. The device did not: of the first it said why, the others were not looked at and stay due.  A bind
 * has failed here and now: were it told later, its connection could end first, as if it had been posted.
 */
static void not_taken(struct escrow_engine *e, struct conn *c, struct window **w, uint32_t n)
{
	struct ledger_done done[BIND_CHAIN];

	ledger_rejected(c->lane->ledger, c->owner, n, done, BIND_CHAIN);
	if (w[0]->due == DUE_INVALIDATE)
		refused(e, w[0]);
	else
		en_window_not_bound(e, w[0]);
}

/* The same. How many of them have been dealt with, at least one. */
static uint32_t post_chain(struct escrow_engine *e, struct conn *c, struct window **w, uint32_t n)
{
	bool takes = c->native && !atomic_load(&c->broken);
	struct ledger_conn *debts = takes ? ledger_conn_here(c->lane->ledger, c->owner) : NULL;
	struct native_wr wr[BIND_CHAIN];
	uint32_t lent, posted, i;

	for (lent = 0; debts && lent < n; lent++)
		if (!lend(e, c, debts, w[lent], &wr[lent]))
			break;
	if (!lent) {
		refused(e, w[0]);
		return 1;
	}
	en_post(e, c, w[0]->due == DUE_BIND ? ESCROW_STEP_BIND_WINDOW : ESCROW_STEP_INVALIDATE, wr,
		lent, &posted);
	for (i = 0; i < posted; i++)
		taken(e, c, w[i], wr[i].rkey);
	if (posted == lent)
		return posted;
	not_taken(e, c, &w[posted], lent - posted);
	return posted + 1;
}

/*
 * All that is due on the connection of the first, from there on; each once, though it may stand in the list twice.  A fault
 * plan counts each post as a step.
 */
static uint32_t collect(struct escrow_engine *e, uint32_t from, struct window **chain)
{
	uint32_t most = e->config.test_faults ? 1 : BIND_CHAIN, n = 0, i;

	for (i = from; i < e->ndue && n < most; i++) {
		struct window *w = e->due[i];

		if (w->chained || !stands(w) || (n && w->conn != chain[0]->conn))
			continue;
		w->chained = 1;
		chain[n++] = w;
	}
	for (i = 0; i < n; i++)
		chain[i]->chained = 0;
	return n;
}

/* The runner waits for the lane; who helps has the ledger, and waits for nothing. */
static bool begin(struct escrow_engine *e, struct lane *lane, bool helps)
{
	if (helps)
		return en_lane_trylock(lane);
	en_lane_lock(lane);
	ledger_hold(e->ledger);
	return true;
}

static void end(struct escrow_engine *e, struct lane *lane, bool helps)
{
	if (!helps)
		ledger_let(e->ledger);
	en_lane_unlock(lane);
}

void en_windows_post(struct escrow_engine *e, bool helps)
{
	struct window *chain[BIND_CHAIN];
	uint32_t i, n, done, left = 0;

	for (i = 0; i < e->ndue; i++) {
		struct window *w = e->due[i];
		struct conn *c = w->conn; /* which a window forgets that is not bound */

		/* Most were posted with the first of their connection. */
		if (w->due == DUE_NONE)
			continue;
		if (!begin(e, c->lane, helps)) {
			e->due[left++] = w;
			continue;
		}
		n = collect(e, i, chain);
		for (done = 0; done < n;)
			done += post_chain(e, c, &chain[done], n - done);
		end(e, c->lane, helps);
	}
	e->ndue = left;
	/* Somebody has the lane: the runner waits for it. */
	if (left)
		en_work(e, &e->due[0]->work);
}

bool en_window_due(struct escrow_engine *e, struct window *w, enum window_due due)
{
	uint32_t n = atomic_load_explicit(&e->ndue, memory_order_relaxed);

	if (n == WINDOWS_DUE)
		return false;
	w->due = (uint8_t)due;
	e->due[n] = w;
	/* Before a look at who is the runner or has armed, as a put on the work list is (control.c). */
	atomic_store(&e->ndue, n + 1);
	return true;
}
