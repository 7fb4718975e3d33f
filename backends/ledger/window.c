/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Windows: tags that rotate, keys that are held out, and the one invalidation each bind owes.
 *
 * A plain key is no identity (mlx5 hands the same 32 bits out again, last in first out,
 * hw/mlx5/mr.c:865-901), so no tag is used twice in an epoch, and an index whose keys a peer may
 * still know is not used until their epoch is fenced.
 *
 * A key is good on the queue pair that its window was bound on, and on no other (ibv_bind_mw(3), type
 * 2), so an epoch ends with the receipt of that one's end: what the peer's other connections carry,
 * and what comes after it under its name, cannot be hit by that key (tests/models/grant.pml, a new
 * queue pair for each grant).  Keys that one window made on several connections are of no one of them:
 * these wait until the account is fenced.
 */
#include "backends/ledger/ledger-int.h"

#include <string.h>

/* ---- Hold-out -------------------------------------------------------------------------------- */
/* After an overflow every index is held out until the accounts of that time are fenced. */
static bool overflow_stands(struct ledger *l)
{
	if (!l->holdout_serial)
		return false;
	for (uint32_t i = 0; i < l->config.max_accounts; i++) {
		const struct ledger_owner *o = &l->owners[l->base[ESCROW_OWNER_PEER] + i];

		if (o->kind && o->state == LEDGER_ACCOUNT_OPEN &&
		    l->peers[i].serial <= l->holdout_serial)
			return true;
	}
	l->holdout_serial = 0;
	return false;
}

static uint32_t bucket(const struct ledger *l, uint32_t index)
{
	return (index * 2654435761u >> 8) & (l->nbuckets - 1u);
}

/* Of its key, and of the device whose key that is. */
static uint32_t index_of(const struct ledger *l, uint32_t slot)
{
	uint32_t context = lg_owner_context(l, slot) - l->base[ESCROW_OWNER_CONTEXT];

	return context << 24 | l->windows[slot - l->base[ESCROW_OWNER_WINDOW]].rkey >> 8;
}

/* One that has made keys was looked at before the first, and its tags have gone on since. */
bool lg_holdout_find(struct ledger *l, uint32_t slot)
{
	uint32_t index, i;

	if (window_of(l, slot)->binds)
		return false;
	index = index_of(l, slot);
	i = l->nbuckets ? l->buckets[bucket(l, index)] : NONE;
	for (; i != NONE; i = l->holdouts[i].next) {
		if (l->holdouts[i].index == index)
			return true;
	}
	return overflow_stands(l);
}

/* The window is freed: may its peer still know a key that a queue pair takes? */
static void holdout_add(struct ledger *l, uint32_t slot)
{
	const struct ledger_window *w = window_of(l, slot);
	uint32_t peer = lg_owner_find(l, w->account, ESCROW_OWNER_PEER);
	uint32_t i = l->holdout_free;
	struct ledger_holdout *h;

	if (peer == NONE || l->owners[peer].state != LEDGER_ACCOUNT_OPEN)
		return;
	if (lg_owner_find(l, w->keys_on, 0) == NONE)
		return;
	if (i == NONE) {
		l->holdout_serial = l->serial;
		return;
	}
	h = &l->holdouts[i];
	l->holdout_free = h->next;
	h->index = index_of(l, slot);
	h->keys_on = w->keys_on;
	h->next = l->buckets[bucket(l, h->index)];
	l->buckets[bucket(l, h->index)] = i;
}

static void holdout_remove(struct ledger *l, uint32_t i)
{
	uint32_t *at = &l->buckets[bucket(l, l->holdouts[i].index)];

	while (*at != i)
		at = &l->holdouts[*at].next;
	*at = l->holdouts[i].next;
	l->holdouts[i].keys_on = 0;
	l->holdouts[i].next = l->holdout_free;
	l->holdout_free = i;
}

/* Is that the account, or a connection of it? */
static bool is_of(const struct ledger *l, uint64_t keys_on, const uint8_t *remote)
{
	uint32_t peer = lg_owner_find(l, keys_on, 0);

	if (peer != NONE && l->owners[peer].kind == ESCROW_OWNER_CONNECTION)
		peer = l->owners[peer].pin[0];
	return peer != NONE && memcmp(l->peers[sub(l, peer)].epoch.remote, remote, 16) == 0;
}

void lg_holdout_end(struct ledger *l, uint64_t keys_on)
{
	for (uint32_t i = 0; i < l->config.max_windows; i++) {
		if (l->holdouts[i].keys_on == keys_on)
			holdout_remove(l, i);
	}
}

void lg_holdout_reaped(struct ledger *l, const uint8_t *remote)
{
	for (uint32_t i = 0; i < l->config.max_windows; i++) {
		const struct ledger_holdout *h = &l->holdouts[i];

		if (h->keys_on && is_of(l, h->keys_on, remote))
			holdout_remove(l, i);
	}
}

/* ---- Windows --------------------------------------------------------------------------------- */
escrow_status ledger_window_tag(struct ledger *l, uint64_t window, uint8_t *tag_out)
{
	escrow_status status = ESCROW_E_INVALID;
	const struct ledger_window *w;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, window, ESCROW_OWNER_WINDOW);
	if (slot != NONE) {
		w = window_of(l, slot);
		status = !lg_window_binds(l, w) || lg_holdout_find(l, slot) ? ESCROW_E_LIMIT
									    : ESCROW_OK;
		if (!status)
			*tag_out = lg_window_tag(w);
	}
	lg_unlock(l);
	return status;
}

bool ledger_window_worn(struct ledger *l, uint64_t window)
{
	uint32_t slot;
	bool worn;

	lg_lock(l);
	slot = lg_owner_find(l, window, ESCROW_OWNER_WINDOW);
	worn = slot != NONE && !lg_window_binds(l, window_of(l, slot));
	lg_unlock(l);
	return worn;
}

bool ledger_window_held_out(struct ledger *l, uint64_t window)
{
	uint32_t slot;
	bool held;

	lg_lock(l);
	slot = lg_owner_find(l, window, ESCROW_OWNER_WINDOW);
	held = slot != NONE && lg_holdout_find(l, slot);
	lg_unlock(l);
	return held;
}

/* The window leaves its grant: slots that no request used come back, pins end. */
static LG_EACH void detach(struct ledger *l, uint32_t slot)
{
	struct ledger_window *w = window_of(l, slot);
	struct ledger_grant *g;
	uint32_t grant = window_grant(l, slot);
	uint32_t *at;

	if (grant == NONE)
		return;
	if (w->kept)
		lg_keep(conn_of(l, window_conn(l, slot)), 0 - (uint32_t)w->kept);
	w->kept = 0;
	for (uint32_t i = PIN_GRANT; i <= PIN_CONN; i++)
		lg_unpin_at(l, slot, i);
	g = grant_of(l, grant);
	g->bound -= w->bound_cqe;
	w->bound_cqe = false;
	for (at = &g->first; *at != slot;)
		at = &window_of(l, *at)->next;
	*at = w->next;
	g->windows--;
	/* The others' binds were all that it still waited for. */
	if (g->windows && g->bound == g->windows && l->owners[grant].state == LEDGER_GRANT_BINDING)
		lg_grant_move(l, grant, LEDGER_E_CQE_OK);
}

/*
 * A grant whose last window was settled is revoked; a STUCK one too, when that came late.  Not while
 * something of the backend's pins it, as a registration of its own: that is waited for.
 */
static LG_EACH uint32_t grant_ended(struct ledger *l, uint32_t grant, uint32_t receipt)
{
	struct ledger_owner *o = &l->owners[grant];
	uint32_t state = o->state;

	if (grant_of(l, grant)->windows ||
	    (state != LEDGER_GRANT_REVOKING && state != LEDGER_GRANT_STUCK))
		return state;
	o->receipt = receipt;
	if (o->pins)
		return state;
	lg_grant_release(l, grant, receipt);
	return LEDGER_GRANT_REVOKED;
}

void lg_grant_unpinned(struct ledger *l, uint32_t grant)
{
	grant_ended(l, grant, l->owners[grant].receipt);
}

/* The window object goes: from lg_owner_release(), after the move to FREE. */
void lg_window_freed(struct ledger *l, uint32_t slot)
{
	struct ledger_window *w = window_of(l, slot);
	uint32_t grant = window_grant(l, slot);

	if (w->binds)
		holdout_add(l, slot);
	detach(l, slot);
	if (grant != NONE)
		grant_ended(l, grant, l->owners[slot].receipt);
}

void lg_window_stuck(struct ledger *l, uint32_t slot)
{
	uint32_t grant = window_grant(l, slot);

	if (grant == NONE)
		return;
	lg_grant_move(l, grant, LEDGER_E_QUARANTINE);
	lg_owner_refresh(l, grant);
}

escrow_status ledger_window_event(struct ledger *l, uint64_t window, enum ledger_event event)
{
	escrow_status status = ESCROW_OK;
	uint32_t slot;

	if (event != LEDGER_E_BIND && event != LEDGER_E_INVALIDATE && event != LEDGER_E_QP_DEAD)
		return ESCROW_E_INVALID;
	lg_lock(l);
	slot = lg_owner_find(l, window, ESCROW_OWNER_WINDOW);
	if (slot == NONE)
		status = ESCROW_E_INVALID;
	else if (!lg_window_event(l, slot, event))
		status = ESCROW_E_STATE;
	lg_unlock(l);
	return status;
}

bool lg_context_invalidates(const struct ledger_context *c)
{
	const struct ledger_proof proof = {.receipt = ESCROW_RECEIPT_WINDOW_INVALIDATED,
					   .strength = c->strength,
					   .fatal = c->fatal};

	return ledger_releases(LEDGER_GRANT, &proof);
}

void lg_context_judge(struct ledger *l, uint32_t slot)
{
	context_at(l, slot)->invalidates = lg_context_invalidates(context_at(l, slot));
}

static LG_EACH escrow_status bind_settled(struct ledger *l, uint32_t slot, uint32_t grant, bool ok)
{
	struct ledger_grant *g = grant_of(l, grant);

	if (l->owners[slot].state != LEDGER_WINDOW_BINDING)
		return ESCROW_E_STATE;
	lg_window_move(l, slot, ok ? LEDGER_E_CQE_OK : LEDGER_E_CQE_ERROR);
	window_of(l, slot)->bound_cqe = ok;
	if (ok && ++g->bound == g->windows && l->owners[grant].state == LEDGER_GRANT_BINDING)
		lg_grant_move(l, grant, LEDGER_E_CQE_OK);
	return ESCROW_OK;
}

/* *state: of the grant, if that is not what it says itself: it may be gone. */
static LG_EACH escrow_status invalidate_settled(struct ledger *l, uint32_t slot, uint32_t grant,
						bool ok, uint32_t *state)
{
	struct ledger_owner *o = &l->owners[slot];
	const struct ledger_context *c = context_at(l, lg_owner_context(l, slot));

	if (o->state != LEDGER_WINDOW_INVALIDATING)
		return ESCROW_E_STATE;
	if (!ok || !c->invalidates) {
		lg_window_move(l, slot, LEDGER_E_CQE_ERROR);
		return ESCROW_OK;
	}
	o->receipt = ESCROW_RECEIPT_WINDOW_INVALIDATED;
	log_ctl(l, LOG_CODE(LEDGER_LOG_RECEIPT, o->receipt), lg_owner_handle(l, slot),
		(uint64_t)c->strength << 1);
	lg_window_move(l, slot, LEDGER_E_CQE_OK);
	detach(l, slot);
	*state = grant_ended(l, grant, o->receipt);
	return ESCROW_OK;
}

static LG_EACH escrow_status settled(struct ledger *l, uint32_t slot,
				     const struct ledger_done *done, uint32_t *state_out)
{
	bool ok = (done->outcome == LEDGER_OK || done->outcome == LEDGER_COVERED_OK) &&
		  done->releases;
	uint32_t grant = window_grant(l, slot), state = LEDGER_GRANT_STUCK;
	escrow_status status = ESCROW_E_INVALID;

	if (grant == NONE)
		return ESCROW_E_STATE;
	if (done->outcome == LEDGER_REJECTED)
		status = ESCROW_OK; /* never posted: the window is as it was */
	else if (done->what == LEDGER_DONE_BIND)
		status = bind_settled(l, slot, grant, ok);
	else if (done->what == LEDGER_DONE_INVALIDATE)
		status = invalidate_settled(l, slot, grant, ok, &state);
	if (!status && state_out)
		*state_out = state == LEDGER_GRANT_REVOKED ? state : l->owners[grant].state;
	return status;
}

escrow_status ledger_window_settled(struct ledger *l, const struct ledger_done *done,
				    uint32_t *grant_state_out, struct ledger_window_now *now)
{
	escrow_status status = ESCROW_E_INVALID;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, done->subject, ESCROW_OWNER_WINDOW);
	if (slot != NONE)
		status = settled(l, slot, done, grant_state_out);
	if (now) {
		now->state = slot == NONE ? LEDGER_WINDOW_FREE : l->owners[slot].state;
		now->worn = slot != NONE && !lg_window_binds(l, window_of(l, slot));
	}
	lg_unlock(l);
	return status;
}

escrow_status ledger_window_leave(struct ledger *l, uint64_t window)
{
	escrow_status status = ESCROW_E_STATE;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, window, ESCROW_OWNER_WINDOW);
	if (slot == NONE) {
		status = ESCROW_E_INVALID;
	} else if (l->owners[slot].state == LEDGER_WINDOW_PARKED && window_grant(l, slot) != NONE) {
		detach(l, slot);
		status = ESCROW_OK;
	}
	lg_unlock(l);
	return status;
}

/* Windows of a revoked grant that were never bound: nobody ever had their key. */
static void give_back_parked(struct ledger *l, uint32_t grant)
{
	uint32_t slot = grant_of(l, grant)->first, next;

	for (; slot != NONE; slot = next) {
		next = window_of(l, slot)->next;
		if (l->owners[slot].state == LEDGER_WINDOW_PARKED)
			detach(l, slot);
	}
}

escrow_status ledger_grant_revoke(struct ledger *l, uint64_t grant, uint32_t *grant_state_out)
{
	escrow_status status = ESCROW_OK;
	uint32_t slot, state;

	lg_lock(l);
	slot = lg_owner_find(l, grant, ESCROW_OWNER_GRANT);
	if (slot == NONE) {
		status = ESCROW_E_INVALID;
	} else if (l->owners[slot].state != LEDGER_GRANT_STUCK &&
		   !lg_grant_move(l, slot, LEDGER_E_INVALIDATE)) {
		status = ESCROW_E_STATE;
	} else {
		give_back_parked(l, slot);
		state = grant_ended(l, slot, ESCROW_RECEIPT_NONE);
		if (grant_state_out)
			*grant_state_out = state;
	}
	lg_unlock(l);
	return status;
}
