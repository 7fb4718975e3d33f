/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events of the backends, in the host's words: its handles, its tokens.  Those of ops take no lock;
 * the others are rare.  Each handler says whether the host is to see the event.
 */
#include <string.h>

#include <unistd.h>

#include "plugin/event.h"
#include "plugin/host.h"

struct event {
	struct escrow_host_engine *host;
	struct host_generation *generation;
	struct escrow_event *e;
	bool current;              /* of the generation that serves */
	struct escrow_region gone; /* a region that is to be freed once the lock is given up */
	bool free_gone;
};

static bool event_odd(struct event *ev, const char *what)
{
	services_log(ev->host->services, ESCROW_LOG_BACKEND_MISBEHAVES,
		     "event %u of object %" G_GUINT64_FORMAT ": %s", ev->e->kind, ev->e->object,
		     what);
	return false;
}

/* ---- Ops: no lock ------------------------------------------------------------------------------ */
static bool event_op(struct event *ev)
{
	struct escrow_host_engine *host = ev->host;
	struct lend_op *op = lend_find(&host->lend, ev->e->user);
	/* a custody that is not known gives nothing back */
	bool held = ev->e->kind == ESCROW_EV_OP_DONE && ev->e->custody != ESCROW_CUSTODY_RETURNED;

	if (!op || atomic_load(&op->engine_generation) != ev->generation->number)
		return event_odd(ev, "no such op is outstanding");
	if (ev->e->kind != ESCROW_EV_OP_EXPIRED && atomic_load(&op->state) != LEND_LENT)
		return event_odd(ev, "the op has ended before");
	ev->e->object = ev->e->user;
	ev->e->user = op->user;
	if (held || ev->e->kind == ESCROW_EV_OP_EXPIRED)
		return true;
	if (host->flags)
		guard_lend(host, op, false);
	lend_end(op);
	lend_drop(&host->lend, op);
	quota_ops_give(1);
	return true;
}

/* ---- Objects: under lock ----------------------------------------------------------------------- */
uint64_t event_peer_of(const struct host_generation *generation, uint64_t handle)
{
	const uint64_t *peer = g_hash_table_lookup(generation->peers, &handle);

	return peer ? *peer : 0;
}

void event_peer_is(struct host_generation *generation, uint64_t handle, uint64_t peer)
{
	g_hash_table_replace(generation->peers, g_memdup2(&handle, sizeof(handle)),
			     g_memdup2(&peer, sizeof(peer)));
}

/* The entry that an event about a peer means: by handle, or by our token if it never came up. */
static struct host_peer *event_find_peer(struct event *ev)
{
	struct host_peer *peer =
		table_find(&ev->host->peers, event_peer_of(ev->generation, ev->e->object));
	uint64_t handle;

	if (peer)
		return peer;
	peer = table_find(&ev->host->peers, ev->e->user);
	handle = peer ? atomic_load(&peer->backend[ev->generation->column]) : 0;
	return peer && (handle == 0 || handle == ev->e->object) ? peer : NULL;
}

/* A peer that came by our invitation becomes known. */
static struct host_peer *event_new_peer(struct event *ev, const struct escrow_peer_info *info)
{
	struct host_peer *peer = table_take(&ev->host->peers);

	if (!peer)
		return NULL;
	atomic_store(&peer->state, HOST_PENDING);
	peer->user = ev->e->user;
	peer->flags = info->flags;
	peer->next_up = peer->next_sent = peer->stopped = 0;
	atomic_store(&peer->backend[0], 0);
	atomic_store(&peer->backend[1], 0);
	g_strlcpy(peer->name, info->peer_name, sizeof(peer->name));
	table_publish(&ev->host->peers, peer);
	quota_count(QUOTA_PEERS(1));
	return peer;
}

static bool event_peer_up(struct event *ev)
{
	struct host_generation *g = ev->generation;
	struct escrow_peer_info info = {.size = sizeof(info)};
	struct host_peer *peer;

	if (g->ops->peer_info(g->engine, ev->e->object, &info) != ESCROW_OK)
		return event_odd(ev, "peer_info fails for a peer that is up");
	info.peer_name[sizeof(info.peer_name) - 1] = '\0';
	if (info.flags & ESCROW_PEER_PASSIVE)
		peer = event_new_peer(ev, &info);
	else
		peer = event_find_peer(ev);
	if (!peer)
		return event_odd(ev, "a peer that nobody asked for");
	peer->flags = info.flags;
	atomic_store(&peer->backend[g->column], ev->e->object);
	atomic_store(&peer->state, HOST_LIVE);
	event_peer_is(g, ev->e->object, atomic_load(&peer->head.handle));
	ev->e->object = atomic_load(&peer->head.handle);
	ev->e->user = peer->user;
	return true;
}

/* One that could not be proved to be gone stays charged. */
static void event_peer_gone(struct event *ev, struct host_peer *peer)
{
	table_remove(&ev->host->peers, peer);
	if (ev->e->status == ESCROW_E_UNQUIESCED)
		ev->host->peers_stuck++;
	else
		quota_give(QUOTA_PEERS(1));
}

static bool event_peer(struct event *ev)
{
	struct host_peer *peer = event_find_peer(ev);
	bool token = ev->e->kind == ESCROW_EV_MESSAGE_SENT; /* the message's, not the peer's */

	if (ev->e->kind == ESCROW_EV_PEER_DOWN)
		g_hash_table_remove(ev->generation->peers, &ev->e->object);
	/* What a peer of an older generation sent and got is still true; its end is the swap's. */
	if (!ev->current && ev->e->kind != ESCROW_EV_MESSAGE && !token)
		return false;
	if (!peer)
		return event_odd(ev, "no such peer");
	ev->e->object = atomic_load(&peer->head.handle);
	if (!token)
		ev->e->user = peer->user;
	if (ev->e->kind == ESCROW_EV_PEER_DOWN)
		event_peer_gone(ev, peer);
	if (ev->e->kind == ESCROW_EV_PEER_DOWN || ev->e->kind == ESCROW_EV_PEER_LOST)
		swap_disturbed(ev->host, ESCROW_E_PEER_LOST);
	return true;
}

static bool event_grant(struct event *ev)
{
	struct host_grant *grant = table_find(&ev->host->grants, ev->e->user);
	uint32_t column = ev->generation->column;
	uint64_t handle = grant ? atomic_load(&grant->backend[column]) : 0;
	bool ready = ev->e->kind == ESCROW_EV_GRANT_READY;
	bool last = !ready || ev->e->status < 0;

	/* authority of one importer under an offer has no handle of its own here */
	if (grant && handle && handle != ev->e->object)
		return false;
	if (!grant)
		return ev->current ? event_odd(ev, "no such grant") : false;
	if (!ev->current) {
		/* an older one may share the column with the generation that serves */
		if (last && ev->generation == ev->host->previous)
			atomic_store(&grant->backend[column], 0);
		return false;
	}
	atomic_store(&grant->backend[column], ev->e->object); /* the call may not have returned */
	grant->ready = ready && !last;
	ev->e->object = ev->e->user;
	ev->e->user = grant->args.user;
	if (last) {
		quota_give(QUOTA_GRANT(grant->args.length));
		table_remove(&ev->host->grants, grant);
	}
	return true;
}

static bool event_remote_ready(struct event *ev)
{
	struct host_remote *remote = table_find(&ev->host->remotes, ev->e->user);

	if (!ev->current)
		return false;
	if (!remote)
		return event_odd(ev, "no such remote");
	atomic_store(&remote->backend[ev->generation->column], ev->e->object);
	ev->e->object = ev->e->user;
	ev->e->user = remote->user;
	remote->ready = ev->e->status >= 0;
	if (!remote->ready)
		table_remove(&ev->host->remotes, remote);
	return true;
}

static bool event_region_released(struct event *ev)
{
	struct host_region *region = table_find(&ev->host->regions, ev->e->user);

	if (!region || atomic_load(&region->backend[ev->generation->column]) != ev->e->object)
		return event_odd(ev, "no such region");
	if (ev->current && !ev->host->closing && atomic_load(&region->state) == HOST_LIVE)
		return event_odd(ev, "nobody gave that region back");
	/* its own words: the device may still touch it.  The region stays where it is. */
	if (lend_generation_has(&ev->host->lend, ev->generation->number, ev->e->user)) {
		atomic_store(&region->state, HOST_WITHHELD);
		region->since_ns = services_now(ev->host->services);
		return event_odd(ev, "a region with ops that have not given their bytes back");
	}
	if (!region_released(ev->host, region, ev->generation, &ev->gone))
		return false; /* another generation holds it still */
	ev->free_gone = ev->gone.free != NULL;
	ev->e->object = ev->e->user;
	ev->e->user = ev->gone.user;
	return true;
}

static bool event_region_quarantined(struct event *ev, struct host_region *region)
{
	atomic_store(&region->state, HOST_WITHHELD);
	region->since_ns = services_now(ev->host->services);
	ev->e->object = ev->e->user;
	ev->e->user = region->args.user;
	return true;
}

/* ---- The end of a generation ------------------------------------------------------------------- */
/* What the host hears when one generation ends: nothing, before it asked for that of all. */
static bool event_end(struct event *ev, uint32_t how)
{
	struct escrow_host_engine *host = ev->host;
	uint32_t worst = HOST_ENDED_CLOSED;

	atomic_store(&ev->generation->ended, how);
	if (!host->closing) {
		return ev->current && how == HOST_ENDED_QUARANTINED;
	}
	for (uint32_t i = 0; i <= HOST_GENERATIONS; i++) {
		struct host_generation *g = atomic_load(&host->generations[i]);
		uint32_t ended = g ? atomic_load(&g->ended) : HOST_ENDED_CLOSED;

		if (ended == HOST_ENDED_NOT)
			return false;
		worst = MAX(worst, ended);
	}
	atomic_store(&host->ended, worst);
	ev->e->object = 0;
	ev->e->user = 0;
	if (worst == HOST_ENDED_CLOSED) {
		ev->e->kind = ESCROW_EV_CLOSED;
		ev->e->status = ESCROW_OK;
		return true;
	}
	ev->e->kind = ESCROW_EV_QUARANTINED;
	ev->e->status = ESCROW_E_UNQUIESCED;
	ev->e->bytes = withheld_bytes(host);
	return true;
}

static bool event_quarantined(struct event *ev)
{
	struct host_region *region = table_find(&ev->host->regions, ev->e->user);
	struct host_grant *grant = table_find(&ev->host->grants, ev->e->user);
	uint32_t column = ev->generation->column;

	if (ev->e->object == 0)
		return event_end(ev, HOST_ENDED_QUARANTINED);
	if (region && atomic_load(&region->backend[column]) == ev->e->object)
		return event_region_quarantined(ev, region);
	if (!ev->current)
		return false;
	if (grant && atomic_load(&grant->backend[column]) == ev->e->object) {
		ev->e->object = ev->e->user;
		ev->e->user = grant->args.user;
		return true;
	}
	return event_peer(ev);
}

static bool event_closed(struct event *ev)
{
	return event_end(ev, HOST_ENDED_CLOSED);
}

static bool event_drained(struct event *ev)
{
	struct host_generation *g = ev->generation;

	atomic_store(&g->drain_status, ev->e->status);
	atomic_store(&g->drain_left, ev->e->bytes);
	atomic_store(&g->drain_answered, 1);
	if (!ev->current || ev->host->swap)
		return false;
	ev->e->object = ev->e->object ? event_peer_of(g, ev->e->object) : 0;
	return true;
}

static bool event_device(struct event *ev)
{
	if (ev->current)
		swap_disturbed(ev->host, ESCROW_E_DEVICE);
	return ev->current;
}

/* ROOM while the gate is shut would be a lie: it is told when the gate opens. */
static bool event_room(struct event *ev)
{
	if (atomic_load(&ev->host->dispatch) != ev->generation)
		return false;
	atomic_store(&ev->host->want_room, 0);
	return true;
}

static bool (*const handlers[])(struct event *) = {
	[ESCROW_EV_PEER_UP] = event_peer_up,
	[ESCROW_EV_PEER_DOWN] = event_peer,
	[ESCROW_EV_PEER_LOST] = event_peer,
	[ESCROW_EV_MESSAGE] = event_peer,
	[ESCROW_EV_MESSAGE_SENT] = event_peer,
	[ESCROW_EV_GRANT_READY] = event_grant,
	[ESCROW_EV_GRANT_REVOKED] = event_grant,
	[ESCROW_EV_REMOTE_READY] = event_remote_ready,
	[ESCROW_EV_REGION_RELEASED] = event_region_released,
	[ESCROW_EV_QUARANTINED] = event_quarantined,
	[ESCROW_EV_CLOSED] = event_closed,
	[ESCROW_EV_DRAINED] = event_drained,
	[ESCROW_EV_DEVICE] = event_device,
	[ESCROW_EV_ROOM] = event_room,
};

static bool event_control(struct event *ev)
{
	struct escrow_host_engine *host = ev->host;
	bool tell;

	if (ev->e->kind >= G_N_ELEMENTS(handlers) || !handlers[ev->e->kind])
		return event_odd(ev, "unknown kind");
	g_mutex_lock(&host->lock);
	ev->current = ev->generation == atomic_load(&host->current);
	if (ev->generation == host->next) {
		swap_event(host, ev->generation, ev->e);
		tell = false;
	} else {
		tell = handlers[ev->e->kind](ev);
	}
	g_mutex_unlock(&host->lock);
	if (ev->free_gone)
		ev->gone.free(ev->gone.free_ctx, ev->gone.addr, ev->gone.length);
	return tell;
}

static bool event_take(struct escrow_host_engine *host, struct host_generation *g,
		       struct escrow_event *e)
{
	struct event ev = {.host = host, .generation = g, .e = e};

	switch (e->kind) {
	case ESCROW_EV_OP_DONE:
	case ESCROW_EV_OP_EXPIRED:
	case ESCROW_EV_OP_RETURNED:
		return event_op(&ev);
	default:
		return event_control(&ev);
	}
}

/* Polls one generation into events[0..max); how many the host is to see, *status if it refused. */
static uint32_t event_poll(struct escrow_host_engine *host, struct host_generation *g,
			   struct escrow_event *events, uint32_t max, escrow_status *status)
{
	uint32_t kept = 0, asked;
	int32_t got;

	do {
		asked = max - kept;
		got = g->ops->poll(g->engine, events + kept, asked, sizeof(*events), 0);
		if (got > (int32_t)asked) {
			services_log(host->services, ESCROW_LOG_BACKEND_MISBEHAVES,
				     "poll of %u events answered %d", asked, got);
			got = (int32_t)asked;
		}
		for (int32_t i = 0, base = (int32_t)kept; i < got; i++) {
			struct escrow_event e = events[base + i];

			if (!event_take(host, g, &e))
				continue;
			e.seq = ++host->seq;
			events[kept++] = e;
		}
	} while (got > 0 && (uint32_t)got == asked && kept < max);
	if (got < 0)
		*status = got;
	return kept;
}

/* Somebody was turned away, and now there is room. */
static bool event_has_room(struct escrow_host_engine *host)
{
	return atomic_load(&host->want_room) && atomic_load(&host->dispatch) &&
	       atomic_load(&host->lend.used) < host->lend.nops;
}

int32_t escrow_poll(struct escrow_host_engine *host, struct escrow_event *events, uint32_t max)
{
	escrow_status status = ESCROW_OK;
	struct inside_mark mark;
	uint32_t n = 0;

	if (!host || (max && !events) || max > INT32_MAX)
		return ESCROW_E_INVALID;
	if (max == 0 || atomic_load(&host->ended) == HOST_ENDED_CLOSED)
		return 0;
	mark = inside_enter(&host->inside);
	/* Each call begins where the last one stopped: a busy generation must not starve another. */
	for (uint32_t i = 0; i <= HOST_GENERATIONS && n < max; i++) {
		struct host_generation *g = atomic_load(&host->generations[host->poll_next]);

		host->poll_next = (host->poll_next + 1) % (HOST_GENERATIONS + 1);
		if (g)
			n += event_poll(host, g, events + n, max - n, &status);
	}
	inside_leave(mark);
	if (n < max && event_has_room(host) && atomic_exchange(&host->want_room, 0))
		events[n++] = (struct escrow_event){.kind = ESCROW_EV_ROOM, .seq = ++host->seq};
	return n ? (int32_t)n : status;
}

int32_t escrow_event_fd(struct escrow_host_engine *host)
{
	struct inside_mark mark;
	bool has;

	if (!host)
		return ESCROW_E_INVALID;
	has = host_enter(host, &mark)->fd >= 0;
	inside_leave(mark);
	return has ? host->epoll : ESCROW_E_UNSUPPORTED;
}

escrow_status escrow_arm(struct escrow_host_engine *host)
{
	escrow_status status = ESCROW_OK;
	struct inside_mark mark;
	uint64_t count;

	if (!host)
		return ESCROW_E_INVALID;
	if (atomic_load(&host->ended) == HOST_ENDED_CLOSED)
		return ESCROW_E_STATE;
	/* EAGAIN: it was not readable */
	if (read(host->wake, &count, sizeof(count)) > 0 && event_has_room(host))
		return ESCROW_EVENTS_PENDING;
	mark = inside_enter(&host->inside);
	for (uint32_t i = 0; i <= HOST_GENERATIONS && status == ESCROW_OK; i++) {
		struct host_generation *g = atomic_load(&host->generations[i]);

		if (!g || atomic_load(&g->ended) == HOST_ENDED_CLOSED)
			continue;
		status = g->ops->arm(g->engine, 0);
	}
	inside_leave(mark);
	return status == ESCROW_OK && event_has_room(host) ? ESCROW_EVENTS_PENDING : status;
}
