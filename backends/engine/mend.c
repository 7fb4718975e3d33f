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

		if (c != but &&
		    (en_renew_agreed(c) || (c->stage == CONN_READY && !atomic_load(&c->broken))))
			return true;
	}
	return false;
}

bool en_conn_spare(const struct conn *c)
{
	uint32_t state = atomic_load(&c->peer->state);

	if (state == PEER_CONNECTING)
		return c->index != 0;
	return state == PEER_UP && (en_renew_agreed(c) || en_peer_carried(c->peer, c));
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

bool en_conn_rail_up(const struct conn *c)
{
	return atomic_load(&c->peer->e->rail_up[c->rail]) && c->peer->rail_there[c->rail];
}

void en_conn_gate(struct escrow_engine *e, struct conn *c)
{
	struct peer *p = c->peer;
	enum conn_ready ready = CONN_NOT_READY;

	if (atomic_load(&p->state) == PEER_UP && c->renew)
		ready = CONN_RENEWING;
	else if (c->stage == CONN_READY && !atomic_load(&c->broken) &&
		 atomic_load(&p->state) == PEER_UP)
		ready = en_conn_rail_up(c) ? CONN_USABLE : CONN_PAUSED;
	en_lane_lock(c->lane);
	conn_ready(c, ready);
	en_lane_unlock(c->lane);
	if (ready == CONN_USABLE && peer_had_wish(p))
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

/* One that is renewed, and was up, comes back at once; what asked to be in its place waits no longer. */
static void retired(struct escrow_engine *e, struct conn *c)
{
	if (c->renew && c->up_since)
		c->retry_at = e->now;
	else
		wait_for_next(e, c);
	c->up_since = 0;
	if (atomic_load(&e->nwaiting))
		en_work(e, &e->work);
}

static void say_lost(struct escrow_engine *e, struct conn *c)
{
	bool stuck = c->stage != CONN_GONE && en_conn_given_up(c);

	c->say_lost = 0;
	engine_unlock(e);
	en_log(e, ESCROW_LOG_WARNING, "connection %u of \"%s\" on rail %s was lost%s", c->index,
	       c->peer->name, e->rails[c->rail].name, stuck ? ", and is stuck" : "");
	engine_lock(e);
}

static void retire(struct escrow_engine *e, struct conn *c)
{
	bool first = c->stage < CONN_RETIRING;

	/* What was imported may have had its only key there. */
	if (first)
		en_remotes_ask_later(e, c->peer);
	if (first && !en_renew_agreed(c)) {
		c->lost_due = 1;
		engine_count(&e->counters.rail_lost[c->rail], 1);
	}
	if (!en_conn_retire(e, c, e->now))
		return;
	en_carrier_close(e, c);
	if (c->stage == CONN_GONE)
		retired(e, c);
	en_work(e, &c->peer->work);
	if (c->renew && c->stage == CONN_GONE)
		return;
	/* A peer that closes ends its connections one by one: that one went alone shows when it could come back. */
	c->say_lost = 1;
	if (c->stage != CONN_GONE)
		say_lost(e, c);
}

/* ---- It comes back ----------------------------------------------------------------------------------- */
static void less_broken(struct peer *p)
{
	uint32_t i;

	atomic_fetch_and(&p->wants, ~PEER_BROKEN);
	for (i = 0; i < p->nconns; i++)
		if (atomic_load(&p->conns[i].broken))
			atomic_fetch_or(&p->wants, PEER_BROKEN);
}

static void forget_last(struct conn *c, uint32_t epoch, uint64_t deadline)
{
	en_lane_lock(c->lane);
	atomic_store(&c->epoch, epoch);
	atomic_store(&c->broken, 0);
	less_broken(c->peer);
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
	    !atomic_load(&e->rail_up[c->rail]) || !en_lane_stands(c->lane) ||
	    engine_state(e) >= ESCROW_STATE_CLOSING)
		return;
	if (e->now < c->retry_at) {
		en_wake_at(e, c->retry_at);
		return;
	}
	if (en_conn_charge_again(e, c) < 0) {
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
	if (!atomic_load(&e->rail_up[c->rail]) || atomic_load(&c->lane->poisoned)) {
		en_conn_broken(c);
		return ESCROW_OK;
	}
	st = en_conn_connect(e, p, index);
	if (st != ESCROW_E_PEER_LOST)
		return st;
	en_conn_broken(c);
	return ESCROW_OK;
}

escrow_status en_set_asked(struct peer *p, const struct wire_hello *h, struct peer **out)
{
	const struct conn *c = &p->conns[h->rail * p->nlanes + h->lane];

	if (c->stage != CONN_CHARGED)
		return en_conn_given_up(c) ? ESCROW_E_DEVICE : ESCROW_E_INVALID;
	*out = p;
	return ESCROW_OK;
}

bool en_conn_refused_alone(const struct conn *c, const struct native_event *ev)
{
	struct wire_hello h;

	return en_conn_spare(c) && wire_hello_get(ev->data, ev->data_len, &h) == ESCROW_OK &&
	       h.kind == WIRE_REJECT && h.reason == ESCROW_E_DEVICE;
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

void en_conn_returned(struct escrow_engine *e, struct conn *c)
{
	if (c->renew)
		en_renew_done(e, c);
	else
		engine_count(&e->counters.rail_back[c->rail], 1);
	en_conn_gate(e, c);
	en_grants_join(e, c);
	en_remotes_ask(e, c->peer);
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
		return en_renew_agreed(c) ? ESCROW_IN_PROGRESS : ESCROW_E_AGAIN;
	if (!en_lane_stands(c->lane))
		return ESCROW_E_DEVICE;
	st = en_conn_charge_again(e, c);
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
		if (c->say_lost && atomic_load(&p->state) == PEER_UP &&
		    (c->stage != CONN_GONE || e->now >= c->retry_at))
			say_lost(e, c);
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

	if (!en_renew_send(e, p))
		return;
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
