/* SPDX-License-Identifier: BSD-2-Clause */
/* peer.c - peers: the slots connect, disconnect and peer_info, and a peer's way from one to the other. */
#include "backends/engine/engine.h"

#include <string.h>

struct peer *en_peer_find(struct escrow_engine *e, uint64_t handle)
{
	struct peer *p;

	if (engine_kind(handle) != ESCROW_OWNER_PEER)
		return NULL;
	p = engine_by_slot(e, handle);
	return p && atomic_load(&p->handle) == handle ? p : NULL;
}

bool en_peer_asks(const struct peer *p, const struct wire_hello *h)
{
	return (p->flags & ESCROW_PEER_PASSIVE) && p->ticket == h->ticket && p->mark == h->mark &&
	       memcmp(p->incarnation, h->incarnation, 16) == 0;
}

/* ---- A new peer ---------------------------------------------------------------------------------- */
static void reset_peer(struct peer *p)
{
	struct conn *conns = p->conns;
	struct escrow_engine *e = p->e;
	uint32_t i, *received;

	for (i = 0; i < e->conns_per_peer; i++) {
		memset(&conns[i], 0, sizeof(conns[i]));
		conns[i].peer = p;
		conns[i].index = i;
	}
	memset(&p->channel, 0, sizeof(p->channel));
	for (i = 0; i < e->nrails; i++) {
		received = p->carriers[i].received;
		memset(&p->carriers[i], 0, sizeof(p->carriers[i]));
		p->carriers[i].received = received;
	}
	p->user = p->deadline = p->drain_deadline = 0;
	p->flags = p->any = p->created = p->loop = p->grants = p->draining = 0;
	p->stuck = 0;
	atomic_store(&p->polled, 0);
	p->up_told = p->offers_due = p->asked = p->nrefusals = p->ngone = p->ntell = 0;
	p->ticket = 0;
	p->mark = 0;
	p->peer_depth = 0;
	memset(p->rail_told, 1, sizeof(p->rail_told));
	memset(p->rail_there, 1, sizeof(p->rail_there));
	atomic_store(&p->reason, ESCROW_OK);
	/* p->ops is 0, but for calls that name what is gone: they take back what they added. */
	atomic_store(&p->wants, 0);
	p->join_at = p->keys_at = 0;
	p->keys_from = 0;
	atomic_store(&p->shown_out, 0);
	memset(&p->renewal, 0, sizeof(p->renewal));
	atomic_store(&p->riders, NULL);
}

/* One whose last event was polled is free, also before the runner has seen it. */
static bool is_free(struct peer *p)
{
	uint32_t state = atomic_load(&p->state);

	return state == PEER_FREE || (state == PEER_DOWN && !p->stuck && atomic_load(&p->polled));
}

/* It could not be charged: it was never there. */
void en_peer_undo(struct escrow_engine *e, struct peer *p)
{
	uint64_t handle = atomic_exchange(&p->handle, 0);

	ledger_owner_event(e->ledger, handle, LEDGER_E_FENCE);
	ledger_owner_event(e->ledger, handle, LEDGER_E_STOP);
	atomic_store(&p->state, PEER_FREE);
}

escrow_status en_peer_new(struct escrow_engine *e, const char *name, const char *account,
			  const uint8_t incarnation[16], uint64_t epoch, struct peer **out,
			  struct escrow_error *error)
{
	struct ledger_owner_args owner = {.kind = ESCROW_OWNER_PEER,
					  .parent = ledger_engine(e->ledger),
					  .peer_name = account};
	struct escrow_error detail = {.size = sizeof(detail)};
	struct peer *p;
	escrow_status st;
	uint64_t handle;
	uint32_t i;

	for (i = 0; i < e->config.max_peers; i++)
		if (is_free(&e->peers[i]))
			break;
	if (i == e->config.max_peers)
		return args_fail(error, ESCROW_E_LIMIT, "all of max_peers %llu are in use",
				 (unsigned long long)e->config.max_peers);
	p = &e->peers[i];
	owner.place = engine_place(i, 0, e->config.max_peers);
	memcpy(owner.epoch.local, e->incarnation, 16);
	memcpy(owner.epoch.remote, incarnation, 16);
	owner.epoch.epoch = epoch;
	st = ledger_owner_add(e->ledger, &owner, &handle, &detail);
	if (st < 0)
		return args_pass(error, st, &detail);
	reset_peer(p);
	memcpy(p->name, name, 64);
	memcpy(p->incarnation, incarnation, 16);
	p->epoch = epoch;
	if (memcmp(incarnation, e->incarnation, 16) == 0)
		p->flags |= ESCROW_PEER_LOOPBACK;
	atomic_store(&p->state, PEER_CONNECTING);
	engine_set_slot(e, handle, p);
	atomic_store(&p->handle, handle);
	*out = p;
	return ESCROW_OK;
}

/* ---- Slots ------------------------------------------------------------------------------------------ */
static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* A set of that engine's making, accepted and not up yet; who came by an open invitation may only say so. */
static bool comes_to_us(struct escrow_engine *e, const uint8_t incarnation[16])
{
	uint32_t i;

	for (i = 0; i < e->config.max_peers; i++) {
		const struct peer *p = &e->peers[i];

		if (atomic_load(&p->state) == PEER_CONNECTING && (p->flags & ESCROW_PEER_PASSIVE) &&
		    !(p->flags & ESCROW_PEER_LOOPBACK) && !p->any &&
		    memcmp(p->incarnation, incarnation, 16) == 0)
			return true;
	}
	return false;
}

static escrow_status start(struct escrow_engine *e, const struct escrow_peer_args *a,
			   const char name[64], const struct wire_invitation *inv,
			   uint64_t deadline, uint64_t *out, struct escrow_error *error)
{
	uint64_t epoch = en_epoch_last(e, inv->incarnation) + 1;
	struct peer *p;
	escrow_status st = en_peer_new(e, name, name, inv->incarnation, epoch, &p, error);

	if (st < 0)
		return st;
	en_epoch_used(e, p, epoch);
	p->user = a->user;
	p->nrails = least(e->nrails, inv->nrails);
	p->nlanes = least(e->peer_lanes, inv->nlanes);
	p->nconns = p->nrails * p->nlanes;
	p->deadline = deadline;
	st = wire_random(p->session, sizeof(p->session))
		     ? args_fail(error, ESCROW_E_INTERNAL, "no random bytes")
		     : en_conns_charge(e, p, error);
	if (st < 0) {
		en_peer_undo(e, p);
		return st;
	}
	*p->invitation = *inv;
	*out = atomic_load(&p->handle);
	en_wake_at(e, deadline);
	/* The other's was accepted before we asked: it has won. */
	if (comes_to_us(e, inv->incarnation))
		en_peer_leave(e, p, ESCROW_E_REFUSED);
	en_work(e, &p->work);
	return ESCROW_OK;
}

escrow_status engine_connect(struct escrow_engine *e, const struct escrow_peer_args *from,
			     uint64_t *out, struct escrow_error *error)
{
	struct escrow_peer_args a;
	struct wire_invitation inv;
	char name[64];
	escrow_status st;
	uint64_t deadline;

	if (!engine_here(e) || !state_allows(SLOT_CONNECT, engine_state(e)))
		return args_fail(error, ESCROW_E_STATE, "the engine is not OPEN");
	if (!out)
		return args_fail(error, ESCROW_E_INVALID, "peer is NULL");
	st = args_read(&args_peer, from, &a, error);
	if (st < 0 || (st = args_name("peer_name", a.peer_name, name, error)) < 0)
		return st;
	st = wire_invitation_get(a.invitation, a.invitation_len, e->ops->id, &inv, error);
	if (st < 0 || (st = en_room_for_peer(e, error)) < 0)
		return st;
	deadline = engine_now(e) + e->config.connect_ms * 1000000u;
	if (a.deadline_ns && a.deadline_ns < deadline)
		deadline = a.deadline_ns;
	engine_lock(e);
	st = engine_state(e) == ESCROW_STATE_OPEN
		     ? start(e, &a, name, &inv, deadline, out, error)
		     : args_fail(error, ESCROW_E_STATE, "the engine is not OPEN");
	engine_unlock(e);
	return st < 0 ? st : ESCROW_IN_PROGRESS;
}

escrow_status engine_disconnect(struct escrow_engine *e, uint64_t handle, uint32_t flags)
{
	escrow_status st = ESCROW_IN_PROGRESS;
	struct peer *p;

	if (!engine_here(e) || !state_allows(SLOT_DISCONNECT, engine_state(e)))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	engine_lock(e);
	p = en_peer_find(e, handle);
	if (!p)
		st = ESCROW_E_INVALID;
	else
		en_peer_leave(e, p, ESCROW_OK);
	engine_unlock(e);
	return st;
}

escrow_status engine_peer_info(struct escrow_engine *e, uint64_t handle,
			       struct escrow_peer_info *to)
{
	struct escrow_peer_info info = {.size = sizeof(info)};
	escrow_status st = ESCROW_OK;
	struct peer *p;

	if (!engine_here(e) || !state_allows(SLOT_PEER_INFO, engine_state(e)))
		return ESCROW_E_STATE;
	engine_lock(e);
	p = en_peer_find(e, handle);
	if (!p) {
		st = ESCROW_E_INVALID;
	} else if (!p->up_told) {
		st = ESCROW_E_STATE;
	} else {
		info.flags = p->flags;
		info.epoch = p->epoch;
		info.user = p->user;
		memcpy(info.incarnation, p->incarnation, 16);
		memcpy(info.peer_name, p->name, 64);
	}
	engine_unlock(e);
	return st < 0 ? st : args_write(&args_peer_info, &info, to);
}

/* ---- Up ------------------------------------------------------------------------------------------------- */
void en_peer_check_up(struct escrow_engine *e, struct peer *p)
{
	uint32_t i;

	if (atomic_load(&p->state) != PEER_CONNECTING || atomic_load(&p->conns[0].broken) ||
	    en_conn_given_up(&p->conns[0]))
		return;
	for (i = 0; i < p->nconns; i++)
		if (!p->conns[i].established && !en_conn_given_up(&p->conns[i]))
			return;
	if ((p->flags & ESCROW_PEER_PASSIVE) && !p->channel.hello_got)
		return;
	p->deadline = 0;
	p->up_told = 1;
	en_epoch_take(e, p, p->epoch);
	atomic_store(&p->state, PEER_UP);
	for (i = 0; i < p->nconns; i++)
		en_conn_gate(e, &p->conns[i]);
	/* What waited for it to go is refused now. */
	if (atomic_load(&e->nwaiting))
		en_work(e, &e->work);
	p->up.object = p;
	event_send(e, &p->up,
		   &(struct event_what){.kind = ESCROW_EV_PEER_UP,
					.user = p->user,
					.object = atomic_load(&p->handle)});
	en_work(e, &p->work);
}

/* ---- Leaving -------------------------------------------------------------------------------------------------- */
/* No transfer posts on it after this: each holds the lane while it looks at `ready`. */
static void stop_posting(struct peer *p)
{
	uint32_t i;

	for (i = 0; i < p->nconns; i++) {
		struct conn *c = &p->conns[i];

		if (!c->lane)
			continue;
		en_lane_lock(c->lane);
		conn_ready(c, CONN_NOT_READY);
		en_lane_unlock(c->lane);
	}
}

void en_peer_leave(struct escrow_engine *e, struct peer *p, escrow_status reason)
{
	uint32_t was = atomic_load(&p->state);

	if (was != PEER_CONNECTING && was != PEER_UP)
		return;
	atomic_store(&p->reason, reason);
	atomic_store(&p->state, PEER_LEAVING);
	if (was == PEER_UP && reason == ESCROW_E_PEER_LOST)
		event_send(e, &p->lost,
			   &(struct event_what){.kind = ESCROW_EV_PEER_LOST,
						.status = reason,
						.user = p->user,
						.object = atomic_load(&p->handle)});
	stop_posting(p);
	/* Who waits for room here hears now that there is none to wait for. */
	if (peer_had_wish(p))
		en_room(e);
	p->deadline = 0; /* the runner sets it: it knows the time */
	atomic_fetch_or(&p->wants, PEER_EMPTY | PEER_SETTLED);
	en_remotes_of_peer_end(e, p);
	en_grants_of_peer_revoke(e, p);
	en_work(e, &p->work);
}

static void let_slot_go(struct escrow_engine *e, struct peer *p)
{
	atomic_store(&p->handle, 0);
	atomic_store(&p->polled, 1);
	if (atomic_load(&e->nwaiting))
		en_work(e, &e->work);
}

static void peer_polled(struct escrow_engine *e, struct event_node *node)
{
	let_slot_go(e, node->object);
}

/* One that came by our invitation is the host's from PEER_UP on: before, it has no handle of it. */
static bool host_knows(const struct peer *p)
{
	return p->up_told || !(p->flags & ESCROW_PEER_PASSIVE);
}

/* Everything of it has ended or is stuck: the account, and the last event. */
static void down(struct escrow_engine *e, struct peer *p)
{
	uint64_t handle = atomic_load(&p->handle);
	escrow_status reason = atomic_load(&p->reason);

	if (ledger_owner_event(e->ledger, handle, LEDGER_E_FENCE) < 0 ||
	    ledger_owner_event(e->ledger, handle, LEDGER_E_STOP) < 0)
		p->stuck = 1;
	en_drain_peer_ends(e, p);
	atomic_store(&p->state, PEER_DOWN);
	p->down.polled = peer_polled;
	p->down.object = p;
	if (host_knows(p))
		event_send(e, &p->down,
			   &(struct event_what){.kind = ESCROW_EV_PEER_DOWN,
						.status = p->stuck ? ESCROW_E_UNQUIESCED : reason,
						.user = p->user,
						.object = handle});
	else
		let_slot_go(e, p);
	if (engine_state(e) == ESCROW_STATE_CLOSING || atomic_load(&e->nwaiting))
		en_work(e, &e->work);
}

static void leave(struct escrow_engine *e, struct peer *p)
{
	bool all = true;
	uint32_t i;

	if (!p->deadline)
		p->deadline = e->now + e->config.drain_ms * 1000000u;
	/* Grants first, while the connections can still invalidate them (windows before queue pairs). */
	if (p->grants && e->now < p->deadline && !en_peer_broken(p)) {
		en_wake_at(e, p->deadline);
		return;
	}
	for (i = 0; i < p->nconns; i++)
		all = en_conn_retire(e, &p->conns[i], e->now) && all;
	if (!all)
		return;
	en_notify_peer_ends(e, p);
	if (p->grants || atomic_load(&p->ops))
		return;
	en_channel_close(e, p);
	if (atomic_load(&p->state) == PEER_LEAVING)
		down(e, p);
}

static void connect_next(struct escrow_engine *e, struct peer *p)
{
	escrow_status st = ESCROW_OK;

	if (p->flags & ESCROW_PEER_PASSIVE)
		return;
	while (st == ESCROW_OK && p->created < p->nconns &&
	       atomic_load(&p->state) == PEER_CONNECTING)
		st = en_conn_first(e, p, p->created++);
	if (st < 0)
		en_peer_leave(e, p, st);
}

void en_peer_advance(struct escrow_engine *e, struct peer *p)
{
	switch ((enum peer_state)atomic_load(&p->state)) {
	case PEER_CONNECTING:
		/* While it comes up, it needs its first connection. */
		if (atomic_load(&p->conns[0].broken)) {
			en_peer_leave(e, p, ESCROW_E_PEER_LOST);
			break;
		}
		if (p->deadline && e->now >= p->deadline) {
			en_peer_leave(e, p, ESCROW_E_TIMEOUT);
			break;
		}
		en_wake_at(e, p->deadline);
		connect_next(e, p);
		en_peer_mend(e, p);
		en_channel_run(e, p);
		en_peer_check_up(e, p);
		break;
	case PEER_UP:
		en_renew_run(e, p);
		if (!en_peer_carried(p, NULL)) {
			en_peer_leave(e, p, ESCROW_E_PEER_LOST);
			break;
		}
		en_peer_mend(e, p);
		en_grants_join_again(e, p);
		en_remotes_ask_again(e, p);
		en_channel_run(e, p);
		en_drain_peer(e, p, e->now);
		break;
	case PEER_LEAVING:
		en_drain_peer(e, p, e->now);
		leave(e, p);
		break;
	case PEER_DOWN:
		/* A quarantined one keeps its slot: its connections are listed and never used again. */
	case PEER_FREE:
		break;
	}
}
