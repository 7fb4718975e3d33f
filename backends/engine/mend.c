/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mend.c - rails that fail while others stand (ownership 3.2): a connection that breaks goes alone and
 * comes back, with a queue pair and an epoch of its own, after a wait that doubles.
 *
 * While a peer comes up its first connection is needed; then any is spare while another one carries the
 * messages, and with the last goes the peer.  Slices that are not settled end as their own receipts say,
 * and nothing is done again on another rail: two devices that write one sink could not be told apart
 * later.  A rail whose link is down is only paused,
 * for a queue pair lives through that; one whose address has gone is not.
 */
#include "backends/engine/engine.h"

#include <errno.h>
#include <string.h>

#define MOST_DOUBLINGS 6

bool en_peer_carried(struct peer *p, const struct conn *but)
{
	uint32_t r;

	for (r = 0; r < p->nrails; r++) {
		const struct conn *c = &p->conns[r * p->nlanes];

		if (c != but && c->stage == CONN_READY && !atomic_load(&c->broken))
			return true;
	}
	return false;
}

bool en_conn_spare(const struct conn *c)
{
	uint32_t state = atomic_load(&c->peer->state);

	return state == PEER_CONNECTING ? c->index != 0
					: state == PEER_UP && en_peer_carried(c->peer, c);
}

bool en_conn_given_up(const struct conn *c)
{
	return c->stage == CONN_GONE || c->stage == CONN_QUARANTINED;
}

void en_conn_failed(struct escrow_engine *e, struct conn *c, escrow_status reason)
{
	if (en_conn_spare(c))
		en_conn_broken(c);
	else
		en_peer_leave(e, c->peer, reason);
}

void en_conn_gate(struct escrow_engine *e, struct conn *c)
{
	struct peer *p = c->peer;
	uint8_t ready = CONN_NOT_READY;

	if (c->stage == CONN_READY && !atomic_load(&c->broken) && atomic_load(&p->state) == PEER_UP)
		ready = atomic_load(&e->rail_up[c->rail]) && p->rail_there[c->rail] ? CONN_USABLE
										    : CONN_PAUSED;
	en_lane_lock(c->lane);
	atomic_store(&c->ready, ready);
	en_lane_unlock(c->lane);
	if (ready == CONN_USABLE && atomic_exchange(&p->room_wanted, 0))
		en_room(e);
}

/* ---- It goes -------------------------------------------------------------------------------------- */
static void wait_for_next(struct escrow_engine *e, struct conn *c)
{
	uint64_t first = e->config.rail_retry_ms * 1000000u;

	if (c->up_since && e->now - c->up_since >= first << MOST_DOUBLINGS)
		c->tries = 0;
	c->up_since = 0;
	c->retry_at = e->now + (first << c->tries);
	if (c->tries < MOST_DOUBLINGS)
		c->tries++;
	en_wake_at(e, c->retry_at);
}

static void retire(struct escrow_engine *e, struct conn *c)
{
	bool first = c->stage < CONN_RETIRING;

	if (first) {
		c->lost_due = 1;
		engine_count(&e->counters.rail_lost[c->rail], 1);
	}
	if (!en_conn_retire(e, c, e->now))
		return;
	en_carrier_close(e, c);
	if (c->stage == CONN_GONE)
		wait_for_next(e, c);
	engine_unlock(e);
	en_log(e, ESCROW_LOG_WARNING, "connection %u of \"%s\" on rail %s was lost%s", c->index,
	       c->peer->name, e->rails[c->rail].name,
	       c->stage == CONN_GONE ? "" : ", and is stuck");
	engine_lock(e);
	en_work(e, &c->peer->work);
}

/* ---- It comes back ----------------------------------------------------------------------------------- */
static void forget_last(struct conn *c, uint32_t epoch, uint64_t deadline)
{
	en_lane_lock(c->lane);
	atomic_store(&c->epoch, epoch);
	atomic_store(&c->broken, 0);
	c->open_end = 0;
	en_lane_unlock(c->lane);
	c->established = c->err_ok = 0;
	c->lost_due = 0; /* of its last life; that it comes back says it too */
	c->deadline = deadline;
}

/* Later than all that we know of; of an old peer the engine's table may have forgotten. */
static uint64_t next_epoch(struct escrow_engine *e, struct peer *p)
{
	uint64_t last = en_epoch_last(e, p->incarnation);
	uint32_t i;

	for (i = 0; i < p->nconns; i++)
		if (atomic_load(&p->conns[i].epoch) > last)
			last = atomic_load(&p->conns[i].epoch);
	return last + 1;
}

static void come_back(struct escrow_engine *e, struct conn *c)
{
	uint64_t deadline = e->now + e->config.connect_ms * 1000000u;
	struct peer *p = c->peer;
	uint64_t epoch;

	if (p->flags & ESCROW_PEER_PASSIVE || !p->rail_there[c->rail] ||
	    !atomic_load(&e->rail_up[c->rail]) || engine_state(e) >= ESCROW_STATE_CLOSING)
		return;
	if (e->now < c->retry_at) {
		en_wake_at(e, c->retry_at);
		return;
	}
	if (en_conn_charge(e, c, NULL) < 0) {
		wait_for_next(e, c);
		return;
	}
	epoch = next_epoch(e, p);
	en_epoch_used(e, p, epoch);
	forget_last(c, (uint32_t)epoch, deadline);
	en_wake_at(e, deadline);
	if (en_conn_connect(e, p, c->index) == ESCROW_OK)
		return;
	if (c->stage == CONN_GONE)
		wait_for_next(e, c);
	else
		en_conn_broken(c);
}

escrow_status en_conn_first(struct escrow_engine *e, struct peer *p, uint32_t index)
{
	struct conn *c = &p->conns[index];
	escrow_status st;

	if (!en_conn_spare(c))
		return en_conn_connect(e, p, index);
	if (!atomic_load(&e->rail_up[c->rail])) {
		en_conn_broken(c);
		return ESCROW_OK;
	}
	st = en_conn_connect(e, p, index);
	if (st != ESCROW_E_PEER_LOST)
		return st;
	en_conn_broken(c);
	return ESCROW_OK;
}

/* The set that is meant, by what only its other end can know. */
static struct peer *find_up(struct escrow_engine *e, const struct wire_hello *h)
{
	uint32_t i;

	for (i = 0; i < e->config.max_peers; i++) {
		struct peer *p = &e->peers[i];

		if (atomic_load(&p->state) == PEER_UP && (uint32_t)p->epoch == h->set &&
		    en_peer_asks(p, h) && wire_proof(p->session, e->incarnation, h) == h->proof)
			return p;
	}
	return NULL;
}

escrow_status en_rejoin_judge(struct escrow_engine *e, const struct wire_hello *h,
			      struct peer **out)
{
	struct peer *p = find_up(e, h);
	escrow_status st;
	struct conn *c;

	if (!p)
		return ESCROW_E_REFUSED;
	if (h->nrails != p->nrails || h->nlanes != p->nlanes)
		return ESCROW_E_INVALID;
	c = &p->conns[h->rail * p->nlanes + h->lane];
	if (h->epoch <= atomic_load(&c->epoch))
		return ESCROW_E_STALE_EPOCH;
	/* The other end has lost it, which we did not know yet: that comes first. */
	if (c->stage == CONN_READY || c->stage == CONN_CREATED)
		en_conn_broken(c);
	if (c->stage != CONN_GONE)
		return ESCROW_E_AGAIN;
	st = en_conn_charge(e, c, NULL);
	if (st < 0)
		return st;
	en_epoch_used(e, p, h->epoch);
	c->lost_due = 0;
	forget_last(c, h->epoch, e->now + e->config.connect_ms * 1000000u);
	en_wake_at(e, c->deadline);
	*out = p;
	return ESCROW_OK;
}

void en_peer_mend(struct escrow_engine *e, struct peer *p)
{
	uint32_t i;

	/* Over native steps the lock is let go, and the peer may have been told to leave. */
	for (i = 0; i < p->nconns; i++) {
		struct conn *c = &p->conns[i];

		if (!en_conn_spare(c))
			continue;
		if (c->stage == CONN_CREATED && atomic_load(&p->state) == PEER_UP &&
		    e->now >= c->deadline)
			en_conn_broken(c);
		else if (c->stage == CONN_CREATED && atomic_load(&p->state) == PEER_UP)
			en_wake_at(e, c->deadline);
		if (atomic_load(&c->broken) && !en_conn_given_up(c))
			retire(e, c);
		else if (c->stage == CONN_GONE && atomic_load(&p->state) == PEER_UP)
			come_back(e, c);
	}
}

/* ---- What the two ends tell each other --------------------------------------------------------------- */
void en_mend_send(struct escrow_engine *e, struct peer *p)
{
	uint32_t i;

	for (i = 0; i < p->nconns; i++) {
		struct conn *c = &p->conns[i];
		struct wire_message m = {.type = WIRE_LOST, .a = i, .b = atomic_load(&c->epoch)};

		if (!c->lost_due)
			continue;
		if (en_channel_send(p, &m, NULL) < 0)
			return;
		c->lost_due = 0;
	}
	for (i = 0; i < p->nrails; i++) {
		struct wire_message m = {
			.type = WIRE_RAIL, .a = i, .b = atomic_load(&e->rail_up[i])};

		if (p->rail_told[i] == m.b)
			continue;
		if (en_channel_send(p, &m, NULL) < 0)
			return;
		p->rail_told[i] = (uint8_t)m.b;
	}
}

void en_conn_told_lost(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	struct conn *c;

	if (m->a >= p->nconns)
		return;
	c = &p->conns[m->a];
	if (atomic_load(&c->epoch) == m->b && en_conn_spare(c) && !en_conn_given_up(c))
		en_conn_broken(c);
}

void en_rail_told(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	uint32_t i;

	if (m->a >= p->nrails || m->b > 1)
		return;
	p->rail_there[m->a] = (uint8_t)m->b;
	for (i = 0; i < p->nconns; i++)
		if (p->conns[i].rail == m->a)
			en_conn_gate(e, &p->conns[i]);
	en_work(e, &p->work);
}

void en_rail_news(struct escrow_engine *e, const struct native_event *ev)
{
	bool up = ev->kind == NATIVE_EV_RAIL_UP, gone = !up && ev->error == EADDRNOTAVAIL;
	uint32_t i, k;

	if (ev->rail >= e->nrails)
		return;
	atomic_store(&e->rail_up[ev->rail], up);
	for (i = 0; i < e->config.max_peers; i++) {
		struct peer *p = &e->peers[i];
		uint32_t state = atomic_load(&p->state);

		if (state != PEER_CONNECTING && state != PEER_UP)
			continue;
		for (k = 0; k < p->nconns; k++) {
			struct conn *c = &p->conns[k];

			if (c->rail != ev->rail)
				continue;
			en_conn_gate(e, c);
			if (gone && c->stage >= CONN_CREATED && !en_conn_given_up(c))
				en_conn_failed(e, c, ESCROW_E_PEER_LOST);
		}
		en_work(e, &p->work);
	}
	engine_unlock(e);
	en_log(e, ESCROW_LOG_WARNING, "rail %s is %s%s", e->rails[ev->rail].name,
	       up ? "up" : "down", gone ? ": its address has gone" : "");
	engine_lock(e);
}
