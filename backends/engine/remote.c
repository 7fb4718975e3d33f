/* SPDX-License-Identifier: BSD-2-Clause */
/* remote.c - imported grants: checked bytes, and the keys that transfer uses. */
#include "backends/engine/engine.h"

#include <string.h>

static struct remote *take_slot(struct escrow_engine *e)
{
	struct remote *r = e->remote_free ? &e->remotes[e->remote_free - 1] : NULL;

	if (r)
		e->remote_free = r->next_free;
	return r;
}

/* ---- By the owner's number ------------------------------------------------------------------------ */
bool en_remotes_open(struct escrow_engine *e)
{
	uint32_t n = (uint32_t)e->config.max_remotes;

	while (e->remote_mask + 1 < n)
		e->remote_mask = e->remote_mask * 2 + 1;
	e->remotes = en_block(e, n, sizeof(*e->remotes));
	e->remote_of = en_block(e, e->remote_mask + 1u, sizeof(*e->remote_of));
	return e->remotes && e->remote_of;
}

/* Numbers are the owner's choice: by our secret it cannot know which come together. */
static uint32_t *list_of(struct escrow_engine *e, const struct peer *p, uint64_t grant)
{
	uint64_t key[2] = {(uint64_t)(p - e->peers), grant};

	return &e->remote_of[wire_siphash(e->secret, key, sizeof(key)) & e->remote_mask];
}

static struct remote *at_index(struct escrow_engine *e, uint32_t index)
{
	return index ? &e->remotes[index - 1] : NULL;
}

/* It is of that grant, until it is free. */
static void name_grant(struct escrow_engine *e, struct remote *r, uint64_t grant)
{
	uint32_t *list = list_of(e, r->peer, grant);

	r->grant = grant;
	if (!grant)
		return;
	r->next_same = *list;
	*list = (uint32_t)(r - e->remotes) + 1;
}

static void unname_grant(struct escrow_engine *e, struct remote *r)
{
	uint32_t *at = list_of(e, r->peer, r->grant);

	while (r->grant && at_index(e, *at) != r)
		at = &at_index(e, *at)->next_same;
	if (r->grant)
		*at = r->next_same;
	r->grant = 0;
}

void en_remote_free(struct escrow_engine *e, struct remote *r)
{
	if (atomic_exchange(&r->state, REMOTE_FREE) == REMOTE_FREE)
		return;
	unname_grant(e, r);
	r->next_free = e->remote_free;
	e->remote_free = (uint32_t)(r - e->remotes) + 1;
}

/* Bytes of an epoch or incarnation that is not this peer's are stale; those for another end foreign. */
static escrow_status match(struct escrow_engine *e, const struct peer *p,
			   const struct wire_grant *w, struct escrow_error *error)
{
	bool passive = (p->flags & ESCROW_PEER_PASSIVE) != 0;

	if (memcmp(w->owner, p->incarnation, 16) != 0)
		return args_fail(error, ESCROW_E_STALE_EPOCH,
				 "grant: of another incarnation than peer \"%s\"", p->name);
	if (w->flags & WIRE_GRANT_OFFER)
		return ESCROW_OK;
	if (memcmp(w->grantee, e->incarnation, 16) != 0)
		return args_fail(error, ESCROW_E_STALE_EPOCH,
				 "grant: it was lent to another incarnation than this engine");
	if (w->epoch != p->epoch)
		return args_fail(error, ESCROW_E_STALE_EPOCH,
				 "grant: of epoch %llu, the peer's is %llu",
				 (unsigned long long)w->epoch, (unsigned long long)p->epoch);
	if (passive == ((w->flags & WIRE_GRANT_PASSIVE) != 0))
		return args_fail(error, ESCROW_E_INVALID,
				 "grant: it was lent to the other end of this connection");
	if (w->nkeys != p->nconns)
		return args_fail(error, ESCROW_E_INVALID,
				 "grant: %u keys, the peer has %u connections", w->nkeys,
				 p->nconns);
	return ESCROW_OK;
}

/* No transfer uses them yet. */
static void take_keys(struct remote *r, const struct wire_grant *w)
{
	uint32_t i;

	r->nkeys = w->nkeys;
	for (i = 0; i < w->nkeys; i++) {
		r->keys[i] = w->keys[i];
		atomic_store(&r->epochs[i], w->keys[i] ? w->epochs[i] : 0);
	}
}

/*
 * A connection came back since the grant was exported: the owner may have told the key on it before there
 * was anybody here to take it.  What it binds from now on it tells.
 */
static bool lacks_keys(const struct peer *p, const struct remote *r)
{
	uint32_t i;

	for (i = 0; i < r->nkeys; i++)
		if (atomic_load(&r->epochs[i]) != atomic_load(&p->conns[i].epoch))
			return true;
	return false;
}

/* On a connection of now. */
static bool has_key(const struct peer *p, const struct remote *r)
{
	uint32_t i;

	for (i = 0; i < r->nkeys; i++)
		if (p->conns[i].stage == CONN_READY &&
		    atomic_load(&r->epochs[i]) == atomic_load(&p->conns[i].epoch))
			return true;
	return false;
}

static bool keyless(const struct peer *p, const struct remote *r)
{
	return r->peer == p && atomic_load(&r->state) == REMOTE_LIVE && !has_key(p, r);
}

static void want_key(struct peer *p, struct remote *r)
{
	r->keys_due = 1;
	p->offers_due |= OFFERS_REMOTES;
}

void en_remotes_ask(struct escrow_engine *e, struct peer *p)
{
	uint32_t i;

	for (i = 0; i < e->config.max_remotes; i++) {
		struct remote *r = &e->remotes[i];

		if (keyless(p, r))
			want_key(p, r);
	}
}

void en_remotes_ask_later(struct escrow_engine *e, struct peer *p)
{
	if (!p->keys_at)
		p->keys_at = e->now + e->config.rail_retry_ms * 1000000u;
	en_wake_at(e, p->keys_at);
}

/*
 * An owner that has a grant but no key for it says nothing, and it may then take the grant back; of more asks
 * than WIRE_ASKS at once it answers some.  So while a transfer waits for a key it is asked again, for as many as
 * it answers, and in turn.
 */
void en_remotes_ask_again(struct escrow_engine *e, struct peer *p)
{
	uint32_t max = (uint32_t)e->config.max_remotes, n = 0, i;

	if (!p->keys_at)
		return;
	if (e->now < p->keys_at) {
		en_wake_at(e, p->keys_at);
		return;
	}
	p->keys_at = 0;
	for (i = 0; i < max && n < WIRE_ASKS; i++) {
		struct remote *r = &e->remotes[(p->keys_from + i) % max];

		if (!keyless(p, r))
			continue;
		n++;
		if (atomic_load(&p->wants) & PEER_ROOM)
			want_key(p, r);
	}
	p->keys_from = (p->keys_from + i) % max;
	if (n)
		en_remotes_ask_later(e, p);
}

/* The grant was taken back while no connection was there to refuse its keys. */
static void key_gone(struct escrow_engine *e, struct peer *p, uint64_t grant)
{
	struct remote *r = at_index(e, *list_of(e, p, grant));

	for (; r; r = at_index(e, r->next_same))
		if (r->grant == grant && keyless(p, r))
			atomic_store(&r->state, REMOTE_REFUSED);
	if (peer_had_wish(p))
		en_room(e);
}

void en_remote_key(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	uint32_t epoch = (uint32_t)(m->b >> 32), k;
	struct remote *r;

	if (!m->b) {
		key_gone(e, p, m->a);
		return;
	}
	for (k = 0; k < p->nconns; k++)
		if (epoch && atomic_load(&p->conns[k].epoch) == epoch)
			break;
	if (k >= p->nconns || !conn_came_back(p, epoch))
		return;
	for (r = at_index(e, *list_of(e, p, m->a)); r; r = at_index(e, r->next_same)) {
		if (r->peer != p || r->grant != m->a || atomic_load(&r->state) != REMOTE_LIVE ||
		    k >= r->nkeys)
			continue;
		en_lane_lock(p->conns[k].lane);
		r->keys[k] = (uint32_t)m->b;
		atomic_store(&r->epochs[k], epoch);
		en_lane_unlock(p->conns[k].lane);
	}
	/* A transfer may have had no other connection. */
	if (peer_had_wish(p))
		en_room(e);
}

static escrow_status add(struct escrow_engine *e, struct peer *p, const struct wire_grant *w,
			 uint64_t user, struct remote **out, struct escrow_error *error)
{
	bool offer = (w->flags & WIRE_GRANT_OFFER) != 0;
	struct remote *r = take_slot(e);

	if (!r)
		return args_fail(error, ESCROW_E_LIMIT, "all of max_remotes %llu are in use",
				 (unsigned long long)e->config.max_remotes);
	r->user = user;
	r->peer = p;
	r->addr = w->addr;
	r->length = w->length;
	r->rights = w->rights;
	r->offer = offer ? w->id : 0;
	name_grant(e, r, offer ? 0 : w->id);
	r->sent = r->unanswered = 0;
	take_keys(r, w);
	r->keys_due = !offer && lacks_keys(p, r);
	/* Not a store: a call that came too late may be about to leave it again. */
	atomic_fetch_and(&r->gate, ~REMOTE_CLOSED);
	r->generation++;
	atomic_store(&r->state, offer ? REMOTE_ASKING : REMOTE_LIVE);
	atomic_store(&r->handle, REMOTE_KIND << 56 | (uint64_t)r->generation << 24 |
					 (uint64_t)(r - e->remotes));
	*out = r;
	return ESCROW_OK;
}

escrow_status engine_import_grant(struct escrow_engine *e, uint64_t peer, const void *buf,
				  uint64_t len, uint64_t user, uint64_t *out,
				  struct escrow_error *error)
{
	struct wire_grant wire;
	struct remote *r = NULL;
	struct peer *p;
	escrow_status st;

	if (!engine_here(e) || !state_allows(SLOT_IMPORT_GRANT, engine_state(e)))
		return args_fail(error, ESCROW_E_STATE, "the engine is not OPEN");
	if (!out)
		return args_fail(error, ESCROW_E_INVALID, "remote is NULL");
	st = wire_grant_get(buf, len, &wire, error);
	if (st < 0)
		return st;
	engine_lock(e);
	p = en_peer_find(e, peer);
	if (!p)
		st = args_fail(error, ESCROW_E_INVALID, "no such peer: 0x%llx",
			       (unsigned long long)peer);
	else if (atomic_load(&p->state) == PEER_CONNECTING)
		st = args_fail(error, ESCROW_E_STATE, "the peer is not up yet");
	else if (atomic_load(&p->state) != PEER_UP)
		st = args_fail(error, ESCROW_E_PEER_LOST, "the peer is going or gone");
	else
		st = match(e, p, &wire, error);
	if (st == ESCROW_OK)
		st = add(e, p, &wire, user, &r, error);
	if (st == ESCROW_OK) {
		*out = atomic_load(&r->handle);
		if (r->offer)
			st = ESCROW_IN_PROGRESS;
		if (r->offer || r->keys_due) {
			p->offers_due |= OFFERS_REMOTES;
			en_work(e, &p->work);
		}
	}
	engine_unlock(e);
	return st;
}

static void free_if_done(struct escrow_engine *e, struct remote *r)
{
	if (!r->ready_queued && !r->give_back && !r->unanswered)
		en_remote_free(e, r);
}

escrow_status engine_forget_grant(struct escrow_engine *e, uint64_t handle)
{
	escrow_status st = ESCROW_OK;
	uint64_t none = 0;
	struct remote *r;

	if (!engine_here(e) || !state_allows(SLOT_FORGET_GRANT, engine_state(e)))
		return ESCROW_E_STATE;
	engine_lock(e);
	r = en_remote_find(e, handle);
	if (!r) {
		st = ESCROW_E_INVALID;
	} else if (!atomic_compare_exchange_strong(&r->gate, &none, REMOTE_CLOSED)) {
		st = ESCROW_E_BUSY;
	} else {
		/* What was asked for is given back when it comes. */
		r->unanswered = atomic_load(&r->state) == REMOTE_ASKING && r->sent;
		/* What an offer gave us is the owner's to take back; tell it that it may.  Of a remote
		 * that is dead the owner is gone, and another peer may stand where it stood. */
		r->give_back = r->offer && r->grant && atomic_load(&r->state) == REMOTE_LIVE;
		if (r->give_back) {
			r->peer->offers_due |= OFFERS_REMOTES;
			en_work(e, &r->peer->work);
		}
		atomic_store(&r->handle, 0);
		atomic_store(&r->state, REMOTE_FORGOTTEN);
		free_if_done(e, r);
	}
	engine_unlock(e);
	return st;
}

/* ---- The answer to an offer's import -------------------------------------------------------------- */
static void ready_polled(struct escrow_engine *e, struct event_node *node)
{
	struct remote *r = node->object;

	if (node->event.status < 0)
		atomic_store(&r->handle, 0);
	atomic_store(&r->ready_polled, 1);
	en_work(e, &r->work);
}

static void tell_ready(struct escrow_engine *e, struct remote *r, escrow_status status)
{
	r->ready_queued = 1;
	r->ready.polled = ready_polled;
	r->ready.object = r;
	event_send(e, &r->ready,
		   &(struct event_what){.kind = ESCROW_EV_REMOTE_READY,
					.status = status,
					.user = r->user,
					.object = atomic_load(&r->handle)});
}

void en_remote_advance(struct escrow_engine *e, struct remote *r)
{
	if (!atomic_exchange(&r->ready_polled, 0))
		return;
	r->ready_queued = 0;
	if (r->ready.event.status < 0 || atomic_load(&r->state) == REMOTE_FORGOTTEN)
		free_if_done(e, r);
}

static bool take_answer(struct escrow_engine *e, struct peer *p, struct remote *r,
			const uint8_t *payload, uint32_t length)
{
	struct wire_grant *wire = &e->runner_grant;

	if (wire_grant_get(payload, length, wire, NULL) < 0 || match(e, p, wire, NULL) < 0 ||
	    (wire->flags & WIRE_GRANT_OFFER) || wire->length != r->length)
		return false;
	r->addr = wire->addr;
	r->rights = wire->rights;
	name_grant(e, r, wire->id);
	take_keys(r, wire);
	return true;
}

/* One of those that may be asked for at once.  The next is asked for if they were all. */
static void answered(struct peer *p)
{
	if (p->asked-- == WIRE_ASKS)
		p->offers_due |= OFFERS_REMOTES;
}

/* It was forgotten while the owner made a grant for it. */
static void forgotten_answered(struct escrow_engine *e, struct peer *p,
			       const struct wire_message *m, const uint8_t *payload)
{
	uint64_t i = m->b & 0xffffff;
	struct remote *r = i < e->config.max_remotes ? &e->remotes[i] : NULL;

	if (!r || r->peer != p || !r->unanswered || r->generation != (uint32_t)(m->b >> 24))
		return;
	r->unanswered = 0;
	answered(p);
	r->give_back = (escrow_status)(int64_t)m->a == ESCROW_OK &&
		       take_answer(e, p, r, payload, m->length);
	if (r->give_back) {
		p->offers_due |= OFFERS_REMOTES;
		en_work(e, &p->work);
	}
	free_if_done(e, r);
}

void en_offer_answered(struct escrow_engine *e, struct peer *p, const struct wire_message *m,
		       const uint8_t *payload)
{
	escrow_status status = (escrow_status)(int64_t)m->a;
	struct remote *r = en_remote_find(e, m->b);

	if (atomic_load(&e->fault.import_drop))
		return;
	if (!r)
		forgotten_answered(e, p, m, payload);
	if (!r || r->peer != p || atomic_load(&r->state) != REMOTE_ASKING)
		return;
	if (r->sent)
		answered(p);
	if (status == ESCROW_OK && !take_answer(e, p, r, payload, m->length))
		status = ESCROW_E_INVALID;
	if (status >= 0) {
		atomic_store(&r->state, REMOTE_LIVE);
		tell_ready(e, r, ESCROW_OK);
		return;
	}
	atomic_store(&r->state, REMOTE_REFUSED);
	tell_ready(e, r,
		   status == ESCROW_E_QUOTA || status == ESCROW_E_LIMIT ? status
									: ESCROW_E_REFUSED);
}

void en_remotes_of_peer_end(struct escrow_engine *e, struct peer *p)
{
	uint32_t i;

	for (i = 0; i < e->config.max_remotes; i++) {
		struct remote *r = &e->remotes[i];
		uint32_t state = atomic_load(&r->state);

		if (r->peer != p || state == REMOTE_FREE)
			continue;
		r->give_back = r->unanswered = 0;
		if (state == REMOTE_FORGOTTEN) {
			free_if_done(e, r);
			continue;
		}
		if (state == REMOTE_DEAD)
			continue;
		atomic_store(&r->state, REMOTE_DEAD);
		if (state == REMOTE_ASKING)
			tell_ready(e, r, ESCROW_E_PEER_LOST);
	}
}
