/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * news.c - what the native side tells: connection requests (checked before anything is made for
 * them), connections that come up or break, rails, devices.
 */
#include "backends/engine/engine.h"

#include <errno.h>
#include <string.h>

/* ---- Requests -------------------------------------------------------------------------------- */
/* The peer that an earlier request of the same set has made. */
static struct peer *find_set(struct escrow_engine *e, const struct wire_hello *h)
{
	uint32_t i;

	for (i = 0; i < e->config.max_peers; i++) {
		struct peer *p = &e->peers[i];

		if (atomic_load(&p->state) == PEER_CONNECTING && p->epoch == h->epoch &&
		    en_peer_asks(p, h))
			return p;
	}
	return NULL;
}

static bool proves(const struct escrow_engine *e, const uint8_t secret[16],
		   const struct wire_hello *h)
{
	return wire_proof(secret, e->incarnation, h) == h->proof;
}

/* Our own way to that engine, while it is not up. */
static struct peer *on_our_way(struct escrow_engine *e, const uint8_t incarnation[16])
{
	uint32_t i;

	for (i = 0; i < e->config.max_peers; i++) {
		struct peer *p = &e->peers[i];

		if (atomic_load(&p->state) == PEER_CONNECTING &&
		    !(p->flags & ESCROW_PEER_PASSIVE) &&
		    memcmp(p->incarnation, incarnation, 16) == 0)
			return p;
	}
	return NULL;
}

/*
 * Our own way to that engine has lost, or is about to, and still holds what the winner's request needs:
 * where a quota or a table has room for one set only, the request waits for it to go.  Any holder of an
 * open invitation may say that it is that engine, so that does not end ours: its answer to us will.
 */
static bool waits_for_ours(struct escrow_engine *e, const struct wire_hello *h, bool any,
			   escrow_status st)
{
	uint32_t i;

	if ((st != ESCROW_E_QUOTA && st != ESCROW_E_LIMIT) ||
	    memcmp(h->incarnation, e->incarnation, 16) == 0)
		return false;
	for (i = 0; i < e->config.max_peers; i++) {
		struct peer *p = &e->peers[i];

		if (atomic_load(&p->state) == PEER_FREE || p->up_told || atomic_load(&p->polled) ||
		    (p->flags & ESCROW_PEER_PASSIVE) ||
		    memcmp(p->incarnation, h->incarnation, 16) != 0)
			continue;
		if (!any)
			en_peer_leave(e, p, ESCROW_E_REFUSED);
		return true;
	}
	return false;
}

/*
 * What was only tried, by us, does not make a request stale: both sides count their own attempts, and
 * a side that failed more often than the other would never be reached.  If both are on their way to
 * each other, the request of the lower incarnation wins; the other side's ends E_REFUSED.
 */
static escrow_status check_epoch(struct escrow_engine *e, const struct wire_hello *h)
{
	if (memcmp(h->incarnation, e->incarnation, 16) == 0)
		return ESCROW_OK;
	if (h->epoch <= en_epoch_taken(e, h->incarnation, h->mark))
		return ESCROW_E_STALE_EPOCH;
	if (memcmp(e->incarnation, h->incarnation, 16) < 0 && on_our_way(e, h->incarnation))
		return ESCROW_E_REFUSED;
	return ESCROW_OK;
}

static escrow_status new_passive(struct escrow_engine *e, const struct wire_hello *h,
				 struct peer **out)
{
	struct ticket *t = en_ticket_find(e, h->ticket);
	struct peer *p, *ours;
	escrow_status st;

	if (!t || !proves(e, t->secret, h) || (t->expires_ns && e->now >= t->expires_ns))
		return ESCROW_E_REFUSED;
	if (engine_state(e) != ESCROW_STATE_OPEN)
		return ESCROW_E_STATE;
	st = check_epoch(e, h);
	if (st < 0)
		return st;
	if (h->nrails > e->nrails || h->nlanes > e->peer_lanes)
		return ESCROW_E_INVALID;
	if (!en_first_lane_stands(e))
		return ESCROW_E_DEVICE;
	st = en_peer_new(e, t->name, t->any ? ENGINE_ANY_ACCOUNT : t->name, h->incarnation,
			 h->epoch, &p, NULL);
	if (st < 0)
		return waits_for_ours(e, h, t->any, st) ? ESCROW_IN_PROGRESS : st;
	p->flags |= ESCROW_PEER_PASSIVE;
	p->mark = h->mark;
	en_epoch_used(e, p, h->epoch);
	p->any = t->any;
	p->user = t->user;
	p->ticket = t->id;
	memcpy(p->secret, t->secret, 16);
	p->nrails = h->nrails;
	p->nlanes = h->nlanes;
	p->nconns = p->nrails * p->nlanes;
	p->deadline = e->now + e->config.connect_ms * 1000000u;
	st = en_conns_charge(e, p, NULL);
	if (st < 0) {
		en_peer_undo(e, p);
		return waits_for_ours(e, h, t->any, st) ? ESCROW_IN_PROGRESS : st;
	}
	en_epoch_take(e, p, h->epoch);
	ours = p->any || p->flags & ESCROW_PEER_LOOPBACK ? NULL : on_our_way(e, h->incarnation);
	if (ours)
		en_peer_leave(e, ours, ESCROW_E_REFUSED);
	en_wake_at(e, p->deadline);
	if (!t->any)
		memset(t, 0, sizeof(*t));
	*out = p;
	return ESCROW_OK;
}

static escrow_status judge(struct escrow_engine *e, const struct native_event *ev,
			   struct wire_hello *h, struct peer **out)
{
	escrow_status st = wire_hello_get(ev->data, ev->data_len, h);
	struct peer *p;

	if (st < 0)
		return st;
	if ((h->kind != WIRE_REQUEST && h->kind != WIRE_REJOIN) || !h->mark)
		return ESCROW_E_INVALID;
	if (h->target != wire_fold(e->incarnation))
		return ESCROW_E_STALE_EPOCH;
	if (h->kind == WIRE_REJOIN)
		return en_rejoin_judge(e, h, out);
	p = find_set(e, h);
	if (!p) {
		st = new_passive(e, h, &p);
		return st == ESCROW_OK ? en_set_asked(p, h, out) : st;
	}
	if (!proves(e, p->secret, h))
		return ESCROW_E_REFUSED;
	if (h->nrails != p->nrails || h->nlanes != p->nlanes)
		return ESCROW_E_INVALID;
	return en_set_asked(p, h, out);
}

static escrow_status accept_one(struct escrow_engine *e, struct peer *p, struct wire_hello *h,
				struct native_request *request)
{
	uint32_t index = (uint32_t)h->rail * p->nlanes + h->lane;
	uint8_t data[NATIVE_PRIVATE_BYTES];
	escrow_status st = en_conn_make(e, p, index);
	int rc;

	if (st == ESCROW_OK)
		st = en_carrier_open(e, &p->conns[index]);
	if (st < 0)
		return st;
	if (h->kind == WIRE_REQUEST)
		p->peer_depth = h->recv_depth;
	en_carrier_credit(&p->conns[index], p->peer_depth);
	h->kind = WIRE_ACCEPT;
	h->recv_depth = (uint16_t)e->config.recv_depth;
	h->proof = 0;
	memcpy(h->incarnation, e->incarnation, 16);
	wire_hello_put(h, data);
	engine_unlock(e);
	rc = e->ops->accept(p->conns[index].native, request, data, sizeof(data));
	engine_lock(e);
	/* The request is answered, whatever came of it: the peer's end is told by its own events. */
	if (rc)
		en_conn_failed(e, &p->conns[index], ESCROW_E_PEER_LOST);
	return ESCROW_OK;
}

void en_request(struct escrow_engine *e, const struct native_event *ev)
{
	struct wire_hello h = {0};
	struct peer *p = NULL;
	escrow_status st = judge(e, ev, &h, &p);

	if (st == ESCROW_IN_PROGRESS) {
		if (en_request_waits(e, ev, &h))
			return;
		st = ESCROW_E_QUOTA;
	}
	if (st == ESCROW_OK) {
		st = accept_one(e, p, &h, ev->request);
		if (st < 0 && atomic_load(&p->state) == PEER_CONNECTING)
			en_peer_leave(e, p, st);
	}
	if (st < 0)
		en_request_refuse(e, ev, &h, st);
}

/* ---- Answers ----------------------------------------------------------------------------------- */
/* From another than we asked, or not from an engine.  If the peer is up, that is one attempt that failed. */
static void accept_is_bad(struct escrow_engine *e, struct conn *c)
{
	if (atomic_load(&c->peer->state) == PEER_UP)
		en_conn_failed(e, c, ESCROW_E_PEER_LOST);
	else
		en_peer_leave(e, c->peer, ESCROW_E_STALE_EPOCH);
}

static void on_established(struct escrow_engine *e, struct conn *c, const struct native_event *ev)
{
	struct peer *p = c->peer;
	struct wire_hello h;

	if (c->stage != CONN_CREATED || atomic_load(&c->broken) ||
	    (atomic_load(&p->state) != PEER_CONNECTING && atomic_load(&p->state) != PEER_UP))
		return;
	if (!(p->flags & ESCROW_PEER_PASSIVE)) {
		if (wire_hello_get(ev->data, ev->data_len, &h) < 0 || h.kind != WIRE_ACCEPT ||
		    memcmp(h.incarnation, p->incarnation, 16) != 0 ||
		    h.epoch != atomic_load(&c->epoch)) {
			accept_is_bad(e, c);
			return;
		}
		p->peer_depth = h.recv_depth;
		en_carrier_credit(c, p->peer_depth);
	}
	en_lane_lock(c->lane);
	ledger_owner_event(e->ledger, c->owner, LEDGER_E_READY);
	en_lane_unlock(c->lane);
	c->established = 1;
	c->stage = CONN_READY;
	c->up_since = e->now;
	if (atomic_load(&p->state) == PEER_UP)
		en_conn_returned(e, c);
	en_work(e, &p->work);
}

/* Its epochs are ahead of ours: the next attempt will be beyond them. */
static void catch_up(struct escrow_engine *e, struct peer *p, const struct native_event *ev)
{
	struct wire_hello h;

	if (wire_hello_get(ev->data, ev->data_len, &h) == ESCROW_OK && h.kind == WIRE_REJECT &&
	    h.reason == ESCROW_E_STALE_EPOCH && h.epoch < UINT32_MAX / 2 + UINT32_MAX / 4)
		en_epoch_used(e, p, h.epoch);
}

static escrow_status reject_reason(const struct native_event *ev)
{
	struct wire_hello h;

	if (wire_hello_get(ev->data, ev->data_len, &h) < 0 || h.kind != WIRE_REJECT)
		return ESCROW_E_REFUSED;
	switch (h.reason) {
	case ESCROW_E_STALE_EPOCH:
	case ESCROW_E_REVISION:
	case ESCROW_E_LIMIT:
	case ESCROW_E_QUOTA:
		return h.reason;
	default:
		return ESCROW_E_REFUSED;
	}
}

static escrow_status unreachable_reason(int error)
{
	return error == ETIMEDOUT      ? ESCROW_E_TIMEOUT
	       : error == ECONNREFUSED ? ESCROW_E_REFUSED
				       : ESCROW_E_PEER_LOST;
}

static void on_rejected(struct escrow_engine *e, struct conn *c, const struct native_event *ev)
{
	/* Of the first set: that is the peer's answer to all of it. */
	if (atomic_load(&c->peer->state) == PEER_CONNECTING && !en_conn_refused_alone(c, ev)) {
		catch_up(e, c->peer, ev);
		en_peer_leave(e, c->peer, reject_reason(ev));
	} else {
		en_renew_rejected(e, c, ev);
		en_conn_failed(e, c, ESCROW_E_PEER_LOST);
	}
}

static void on_conn(struct escrow_engine *e, const struct native_event *ev)
{
	struct conn *c = e->ops->conn_user(ev->conn);

	/* News of a connection that has ended: its slot may have another life by now. */
	if (!c || c->native != ev->conn)
		return;
	switch (ev->kind) {
	case NATIVE_EV_ESTABLISHED:
		on_established(e, c, ev);
		break;
	case NATIVE_EV_REJECTED:
		on_rejected(e, c, ev);
		break;
	case NATIVE_EV_UNREACHABLE:
		en_conn_failed(e, c, unreachable_reason(ev->error));
		break;
	case NATIVE_EV_CONN_ERROR:
		en_conn_broken(c);
		if (ev->error == EACCES)
			en_peer_misbehaves(c->peer);
		/* fall through */
	case NATIVE_EV_DISCONNECTED:
		en_conn_failed(e, c, ESCROW_E_PEER_LOST);
		break;
	default:
		break;
	}
}

static void on_lane(struct escrow_engine *e, const struct native_lane *native)
{
	uint32_t i;

	for (i = 0; i < e->nlanes; i++)
		if (e->lanes[i].native == native)
			en_lane_poison(&e->lanes[i]);
}

void en_news(struct escrow_engine *e, const struct native_event *ev)
{
	switch (ev->kind) {
	case NATIVE_EV_REQUEST:
		en_request(e, ev);
		break;
	case NATIVE_EV_LANE_ERROR:
		on_lane(e, ev->lane);
		break;
	case NATIVE_EV_RAIL_UP:
	case NATIVE_EV_RAIL_DOWN:
		en_rail_news(e, ev);
		break;
	case NATIVE_EV_CONTEXT_FATAL:
		if (ev->context < e->ncontexts)
			en_context_fatal(e, &e->contexts[ev->context]);
		break;
	default:
		on_conn(e, ev);
		break;
	}
}

/* ---- Invitations ------------------------------------------------------------------------------------ */
/* A ticket that is free, or that expired unused. */
static struct ticket *take_ticket(struct escrow_engine *e, uint64_t now)
{
	uint32_t i;

	for (i = 0; i < e->ntickets; i++) {
		struct ticket *t = &e->tickets[i];

		if (!t->id || (t->expires_ns && now >= t->expires_ns))
			return t;
	}
	return NULL;
}

static escrow_status make_ticket(struct escrow_engine *e, const struct escrow_invite_args *a,
				 const char name[64], uint64_t now, struct wire_invitation *inv)
{
	struct ticket t = {.user = a->user,
			   .expires_ns = a->expires_ns,
			   .any = (a->flags & ESCROW_INVITE_ANY) != 0};
	struct ticket *slot;
	uint32_t id;

	memcpy(t.name, name, 64);
	do {
		if (wire_random(&id, sizeof(id)) || wire_random(t.secret, 16))
			return ESCROW_E_INTERNAL;
	} while (id == 0);
	t.id = id;
	engine_lock(e);
	/* Of 32 bits; two of one number would be told apart by nothing. */
	slot = en_ticket_find(e, t.id) ? NULL : take_ticket(e, now);
	if (slot)
		*slot = t;
	engine_unlock(e);
	if (!slot)
		return ESCROW_E_AGAIN;
	inv->ticket = t.id;
	memcpy(inv->secret, t.secret, 16);
	return ESCROW_OK;
}

static escrow_status invite_check(struct escrow_engine *e, const struct escrow_invite_args *from,
				  struct escrow_invite_args *a, char name[64])
{
	escrow_status st;

	if (!engine_here(e) || !state_allows(SLOT_INVITE, engine_state(e)))
		return ESCROW_E_STATE;
	st = args_read(&args_invite, from, a, NULL);
	if (st < 0)
		return st;
	memset(name, 0, 64);
	if (!(a->flags & ESCROW_INVITE_ANY))
		return args_name("peer_name", a->peer_name, name, NULL);
	return a->peer_name ? ESCROW_E_INVALID : ESCROW_OK;
}

escrow_status engine_invite(struct escrow_engine *e, const struct escrow_invite_args *from,
			    void *buf, uint64_t *len)
{
	struct wire_invitation inv = {0};
	struct escrow_invite_args a;
	char name[64];
	escrow_status st = invite_check(e, from, &a, name);
	uint64_t need;
	uint32_t i;

	if (st < 0)
		return st;
	if (!len || (!buf && *len))
		return ESCROW_E_INVALID;
	need = wire_invitation_bytes(e->nrails);
	if (*len < need) {
		*len = need;
		return ESCROW_E_TOO_SMALL;
	}
	st = make_ticket(e, &a, name, engine_now(e), &inv);
	if (st < 0)
		return st;
	memcpy(inv.incarnation, e->incarnation, 16);
	inv.flags = a.flags;
	inv.nrails = e->nrails;
	inv.nlanes = e->peer_lanes;
	strncpy(inv.backend, e->ops->id, sizeof(inv.backend) - 1);
	for (i = 0; i < e->nrails; i++)
		memcpy(inv.address[i], e->rails[i].address, NATIVE_ADDRESS_BYTES);
	wire_invitation_put(&inv, buf);
	*len = need;
	return ESCROW_OK;
}
