/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events of the backends but those of ops (poll.c), in the host's words: its handles, its tokens.  They are rare, and under
 * lock.  Each handler says whether the host is to see the event.
 */
#include <string.h>

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

bool event_is_odd(struct escrow_host_engine *host, const struct escrow_event *e, const char *what)
{
	services_log(host->services, ESCROW_LOG_BACKEND_MISBEHAVES,
		     "event %u of object %" G_GUINT64_FORMAT ": %s", e->kind, e->object, what);
	return false;
}

static bool event_odd(struct event *ev, const char *what)
{
	return event_is_odd(ev->host, ev->e, what);
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
	g_strlcpy(peer->account, atomic_load(&ev->host->invited_any) ? QUOTA_ANY : peer->name,
		  sizeof(peer->account));
	table_publish(&ev->host->peers, peer);
	quota_count(peer->account, QUOTA_PEERS(1));
	return peer;
}

static bool event_peer_up(struct event *ev)
{
	struct host_generation *g = ev->generation;
	struct escrow_peer_info info = {.size = sizeof(info)};
	struct host_peer *peer;

	/* who comes to one that is left goes with it: an entry would never end */
	if (!ev->current)
		return false;
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

static void event_peer_stays(struct event *ev, const struct host_peer *peer)
{
	g_ptr_array_add(ev->generation->peers_stuck, g_strdup(peer->account));
}

/* Of a generation that was left: in the next one it goes on, so what stays here is one more. */
static void event_peer_left(struct event *ev, const struct host_peer *peer)
{
	if (!peer || ev->e->kind != ESCROW_EV_PEER_DOWN || ev->e->status != ESCROW_E_UNQUIESCED)
		return;
	quota_count(peer->account, QUOTA_PEERS(1));
	event_peer_stays(ev, peer);
}

/* One that could not be proved to be gone stays charged. */
static void event_peer_gone(struct event *ev, struct host_peer *peer)
{
	table_remove(&ev->host->peers, peer);
	if (ev->e->status == ESCROW_E_UNQUIESCED)
		event_peer_stays(ev, peer);
	else
		quota_give(peer->account, QUOTA_PEERS(1));
}

static bool event_peer(struct event *ev)
{
	struct host_peer *peer = event_find_peer(ev);
	bool token = ev->e->kind == ESCROW_EV_MESSAGE_SENT; /* the message's, not the peer's */

	if (ev->e->kind == ESCROW_EV_PEER_DOWN)
		g_hash_table_remove(ev->generation->peers, &ev->e->object);
	/* What a peer of an older generation sent and got is still true; its end is the swap's. */
	if (!ev->current && ev->e->kind != ESCROW_EV_MESSAGE && !token) {
		event_peer_left(ev, peer);
		return false;
	}
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

/* Has the grant a handle in the generation that serves? */
static bool event_serves(struct escrow_host_engine *host, const struct host_grant *grant)
{
	return atomic_load(&grant->backend[atomic_load(&host->current)->column]) != 0;
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
		if (!last || event_serves(ev->host, grant))
			return false;
	} else {
		/* the call may not have returned */
		atomic_store(&grant->backend[column], ev->e->object);
		grant->ready = ready && !last;
	}
	ev->e->object = ev->e->user;
	ev->e->user = grant->args.user;
	if (last) {
		quota_give(grant->account, QUOTA_GRANT(grant->args.length));
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

/* Another generation holds it still.  If that was given up, this is the answer: its own may never come. */
static bool event_region_left(struct event *ev, struct host_region *region)
{
	for (uint32_t i = 0; i <= HOST_GENERATIONS && ev->current; i++) {
		struct host_generation *g = atomic_load(&ev->host->generations[i]);

		if (!g || !g->given_up || !region_handle_in(region, g) ||
		    !region_tell_stuck(ev->host, region, g, ev->e))
			continue;
		ev->e->kind = ESCROW_EV_QUARANTINED;
		ev->e->status = ESCROW_E_UNQUIESCED;
		ev->e->bytes = region->args.length;
		return true;
	}
	return false;
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
		region_stuck(ev->host, region, ev->generation);
		return event_odd(ev, "a region with ops that have not given their bytes back");
	}
	if (!region_released(ev->host, region, ev->generation, &ev->gone))
		return event_region_left(ev, region);
	ev->free_gone = ev->gone.free != NULL;
	ev->e->object = ev->e->user;
	ev->e->user = ev->gone.user;
	return true;
}

static bool event_region_quarantined(struct event *ev, struct host_region *region)
{
	return region_tell_stuck(ev->host, region, ev->generation, ev->e);
}

/* ---- The end of a generation ------------------------------------------------------------------- */
/*
 * How all of them have ended, the worst: one that was given up and says nothing (*waits) is one without proof.  NOT: one
 * has not.
 */
static uint32_t event_worst(struct escrow_host_engine *host, bool *waits)
{
	uint32_t worst = HOST_ENDED_CLOSED;

	*waits = false;
	for (uint32_t i = 0; i <= HOST_GENERATIONS; i++) {
		struct host_generation *g = atomic_load(&host->generations[i]);
		uint32_t ended = g ? atomic_load(&g->ended) : HOST_ENDED_CLOSED;

		if (ended == HOST_ENDED_NOT && !g->given_up)
			return HOST_ENDED_NOT;
		*waits |= ended == HOST_ENDED_NOT;
		worst = MAX(worst, ended == HOST_ENDED_NOT ? HOST_ENDED_QUARANTINED : ended);
	}
	return worst;
}

static void event_be_end(struct escrow_event *e, struct escrow_host_engine *host, uint32_t how)
{
	atomic_store(&host->ended, how);
	atomic_store(&host->end_due, 0);
	e->object = 0;
	e->user = 0;
	e->kind = ESCROW_EV_CLOSED;
	e->status = ESCROW_OK;
	if (how == HOST_ENDED_CLOSED)
		return;
	e->kind = ESCROW_EV_QUARANTINED;
	e->status = ESCROW_E_UNQUIESCED;
	e->bytes = withheld_bytes(host);
}

/* What the host hears when one generation ends: nothing, before it asked for that of all. */
static bool event_end(struct event *ev, uint32_t how)
{
	struct escrow_host_engine *host = ev->host;
	bool waits;

	host_ended(host, ev->generation, how);
	if (!host->closing) {
		return ev->current && how == HOST_ENDED_QUARANTINED;
	}
	how = event_worst(host, &waits);
	/* of those that were given up something may be on the way: it comes first */
	if (waits && how != HOST_ENDED_NOT)
		atomic_store(&host->end_due, 1);
	if (waits || how == HOST_ENDED_NOT)
		return false;
	event_be_end(ev->e, host, how);
	return true;
}

uint32_t event_tell_end(struct escrow_host_engine *host, struct escrow_event *event)
{
	bool waits, again;
	uint32_t how;

	if (!atomic_exchange(&host->end_due, 0))
		return 0;
	g_mutex_lock(&host->lock);
	how = event_worst(host, &waits);
	again = atomic_load(&host->ended) == HOST_ENDED_QUARANTINED;
	if (how == HOST_ENDED_QUARANTINED) {
		*event = (struct escrow_event){.flags = again ? ESCROW_EVF_REPEAT : 0};
		event_be_end(event, host, how);
	}
	g_mutex_unlock(&host->lock);
	return how == HOST_ENDED_QUARANTINED;
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
		atomic_store(&grant->state, HOST_WITHHELD);
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

static bool event_drained_peer(struct event *ev)
{
	struct host_peer *peer = event_find_peer(ev);

	if (!peer)
		return event_odd(ev, "no such peer");
	ev->e->object = atomic_load(&peer->head.handle);
	ev->e->user = peer->user;
	return true;
}

/* Each drain has its answer: who asked for it gets it, whichever generation serves by now. */
static bool event_drained(struct event *ev)
{
	struct host_generation *g = ev->generation;

	if (ev->e->object)
		return event_drained_peer(ev);
	if (g->swap_drains) {
		g->swap_drains = false;
		atomic_store(&g->drain_status, ev->e->status);
		atomic_store(&g->drain_left, ev->e->bytes);
		atomic_store(&g->drain_answered, 1);
		return false;
	}
	if (g->drains == 0)
		return event_odd(ev, "nobody asked for a drain");
	g->drains--;
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
	atomic_store(&ev->host->turned_away, 0);
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

bool event_control(struct escrow_host_engine *host, struct host_generation *g,
		   struct escrow_event *e)
{
	struct event ev = {.host = host, .generation = g, .e = e};
	bool tell;

	if (e->kind >= G_N_ELEMENTS(handlers) || !handlers[e->kind])
		return event_is_odd(host, e, "unknown kind");
	g_mutex_lock(&host->lock);
	ev.current = g == atomic_load(&host->current);
	if (g == host->next) {
		tell = swap_event(host, g, e);
	} else {
		tell = handlers[e->kind](&ev);
	}
	g_mutex_unlock(&host->lock);
	if (ev.free_gone)
		ev.gone.free(ev.gone.free_ctx, ev.gone.addr, ev.gone.length);
	return tell;
}
