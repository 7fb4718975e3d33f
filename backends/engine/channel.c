/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * channel.c - control messages between two engines, in order and each once.
 *
 * They are numbered.  The runner sends them on one carrier at a time, and keeps each until the peer says
 * that it has dealt with it: when the carrier breaks, all that are kept are sent again on another, and the
 * peer drops those that it had.  The two ways are independent: each end sends where it can, and listens on
 * every carrier.  The last credit of a carrier is kept for messages that give credits back, so that both
 * sides cannot wait for each other.
 *
 * Credits are told as a running total, as acknowledgements are: what a message told that was lost, the next
 * one that names the same carrier tells.
 */
#include "backends/engine/engine.h"

#include <string.h>

#define RECEIVES(e) ((uint32_t)(e)->config.recv_depth)
#define CARRIER_EPOCH 0xffffffu /* what a message names of the epoch of the credits' connection */

/* For what is kept: a power of two, since numbers wrap; more than half the credits, or none came back. */
static uint32_t places(const struct escrow_engine *e)
{
	return 1u << (31 - __builtin_clz(RECEIVES(e)));
}

struct carrier *en_carrier_of(struct conn *c)
{
	return c->index % c->peer->nlanes ? NULL : &c->peer->carriers[c->rail];
}

/* What each rail has to carry them, and what is kept. */
uint64_t en_channel_bytes(const struct escrow_engine *e)
{
	return e->nrails * en_carrier_bytes(e) + (uint64_t)places(e) * MESSAGE_BYTES;
}

escrow_status en_channel_open(struct escrow_engine *e, struct peer *p)
{
	uint8_t *kept;

	if (p->channel.kept)
		return ESCROW_OK;
	engine_unlock(e);
	kept = e->host.alloc(e->host.ctx, (uint64_t)places(e) * MESSAGE_BYTES, 64);
	engine_lock(e);
	p->channel.kept = kept;
	return kept ? en_notify_arena(e) : ESCROW_E_NO_MEMORY;
}

void en_channel_close(struct escrow_engine *e, struct peer *p)
{
	uint8_t *kept = p->channel.kept;
	uint32_t i;

	for (i = 0; i < p->nconns; i++)
		en_carrier_close(e, &p->conns[i]);
	p->channel.kept = NULL;
	if (!kept)
		return;
	engine_unlock(e);
	e->host.free(e->host.ctx, kept);
	engine_lock(e);
}

/* ---- Sending ----------------------------------------------------------------------------------- */
static bool can_send(const struct carrier *ca)
{
	const struct conn *c = ca->conn;

	if (!ca->native || !ca->memory || c->stage != CONN_READY || atomic_load(&c->broken))
		return false;
	/* Where the link is down a send would only break the connection. */
	return atomic_load(&c->peer->state) != PEER_UP || en_conn_rail_up(c);
}

void en_channel_again(struct peer *p)
{
	uint32_t r;

	p->channel.tx_post = p->channel.tx_acked;
	/* As if it knew of none of the receives that there are: it is told soon. */
	for (r = 0; r < p->nrails; r++)
		p->carriers[r].told = p->carriers[r].reposted - RECEIVES(p->e);
}

/* The carrier in use, or the first other one that can be used; one that is renewed if there is no other. */
static uint32_t best_carrier(const struct peer *p)
{
	uint32_t i, r, best = p->nrails;

	for (i = 0; i < p->nrails; i++) {
		r = (p->channel.rail + i) % p->nrails;
		if (can_send(&p->carriers[r]) &&
		    (best == p->nrails || p->carriers[best].conn->renew))
			best = r;
		if (best < p->nrails && !p->carriers[best].conn->renew)
			break;
	}
	return best;
}

/* The carrier in use while it can be used, else another, on which all that is kept is sent again. */
static struct carrier *sender(struct peer *p)
{
	struct channel *ch = &p->channel;
	uint32_t r = best_carrier(p);

	if (r == p->nrails)
		return NULL;
	if (r != ch->rail) {
		ch->rail = r;
		en_channel_again(p);
	}
	return &p->carriers[r];
}

/* Receives posted again that the peer may not know of. */
static uint32_t owed(const struct carrier *ca)
{
	return ca->reposted - ca->told;
}

/* With what the peer is to be told anyway: where we stand, and the credits it is owed most of. */
static escrow_status post(struct peer *p, struct carrier *ca, struct wire_message *m,
			  const void *payload)
{
	struct carrier *most = ca;
	escrow_status st;
	uint32_t r;

	for (r = 0; r < p->nrails; r++)
		if (p->carriers[r].native && owed(&p->carriers[r]) > owed(most))
			most = &p->carriers[r];
	m->ack = p->channel.rx_next;
	m->rail = (uint8_t)most->conn->rail;
	m->epoch = atomic_load(&most->conn->epoch) & CARRIER_EPOCH;
	m->credits = most->reposted;
	st = en_carrier_post(ca, m, payload);
	if (st == ESCROW_OK)
		most->told = m->credits;
	return st;
}

static uint8_t *kept_at(struct peer *p, uint32_t seq)
{
	return p->channel.kept + (size_t)(seq % places(p->e)) * MESSAGE_BYTES;
}

static void pump(struct peer *p)
{
	struct channel *ch = &p->channel;
	struct carrier *ca;
	struct wire_message m;

	while ((ca = sender(p)) != NULL && ch->tx_post != ch->tx_next && ca->credits >= 2) {
		memcpy(&m, kept_at(p, ch->tx_post), sizeof(m));
		if (post(p, ca, &m, kept_at(p, ch->tx_post) + WIRE_MESSAGE_HEADER) < 0)
			return;
		ch->tx_post++;
	}
}

escrow_status en_channel_send(struct peer *p, struct wire_message *m, const void *payload)
{
	_Static_assert(sizeof(*m) <= WIRE_MESSAGE_HEADER,
		       "a message is kept in a place of its size");
	struct channel *ch = &p->channel;

	if (!ch->kept)
		return ESCROW_E_PEER_LOST;
	if (ch->tx_next - ch->tx_acked >= places(p->e))
		return ESCROW_E_AGAIN;
	m->seq = ch->tx_next;
	memcpy(kept_at(p, m->seq), m, sizeof(*m));
	if (m->length)
		memcpy(kept_at(p, m->seq) + WIRE_MESSAGE_HEADER, payload, m->length);
	ch->tx_next++;
	pump(p);
	return ESCROW_OK;
}

/* ---- Receiving ------------------------------------------------------------------------------------ */
/* What only a peer that breaks the protocol does costs it its own connections, all of them. */
void en_peer_misbehaves(struct peer *p)
{
	uint32_t i;

	atomic_store(&p->shown_out, 1);
	for (i = 0; i < p->nconns; i++)
		if (p->conns[i].lane)
			en_conn_broken(&p->conns[i]);
	en_work(p->e, &p->work);
}

static void on_hello(struct escrow_engine *e, struct peer *p, const struct wire_message *m,
		     const uint8_t *payload)
{
	if (m->length == 0 || m->length > 63 || p->channel.hello_got)
		return;
	if (p->any) {
		memset(p->name, 0, 64);
		memcpy(p->name, payload, m->length);
	}
	memcpy(p->session, &m->a, 8);
	memcpy(p->session + 8, &m->b, 8);
	p->channel.hello_got = 1;
	en_peer_check_up(e, p);
}

/* Before this end has said that it is up, nothing comes that its host would hear of. */
static bool too_early(const struct peer *p, uint8_t type)
{
	return atomic_load(&p->state) == PEER_CONNECTING && type != WIRE_HELLO && type != WIRE_UP &&
	       type != WIRE_LOST && type != WIRE_RAIL;
}

static void dispatch(struct escrow_engine *e, struct peer *p, const struct wire_message *m,
		     const uint8_t *payload)
{
	if (too_early(p, m->type)) {
		en_peer_misbehaves(p);
		return;
	}
	switch ((enum wire_message_type)m->type) {
	case WIRE_HELLO:
		on_hello(e, p, m, payload);
		break;
	case WIRE_OFFER_ASK:
		en_offer_ask(e, p, m);
		break;
	case WIRE_OFFER_ANSWER:
		en_offer_answered(e, p, m, payload);
		break;
	case WIRE_OFFER_RETURN:
		en_offer_returned(e, p, m);
		break;
	case WIRE_NOTE:
		en_notify_piece(e, p, m, payload);
		break;
	case WIRE_NOTE_TAKEN:
		en_notify_taken(e, p, m);
		break;
	case WIRE_LOST:
		en_conn_told_lost(e, p, m);
		break;
	case WIRE_RAIL:
		en_rail_told(e, p, m);
		break;
	case WIRE_KEY:
		en_remote_key(e, p, m);
		break;
	case WIRE_KEY_ASK:
		en_keys_asked(e, p, m);
		break;
	case WIRE_UP:
		p->channel.up_got = 1;
		break;
	case WIRE_DRAIN:
		en_renew_asked(e, p, m);
		break;
	case WIRE_DRAINED:
		en_renew_heard(e, p, m);
		break;
	case WIRE_DRAIN_NO:
		en_renew_refused(e, p, m);
		break;
	case WIRE_CREDIT:
	case WIRE_MESSAGE_TYPES:
		break;
	}
}

/* What it says of our own messages: which the peer has dealt with, and what room it has made. */
static bool take_answers(struct peer *p, const struct wire_message *m)
{
	struct channel *ch = &p->channel;
	struct carrier *ca;
	uint32_t fresh;

	if ((int32_t)(m->ack - ch->tx_next) > 0)
		return false;
	if ((int32_t)(m->ack - ch->tx_acked) > 0) {
		ch->tx_acked = m->ack;
		if ((int32_t)(ch->tx_post - ch->tx_acked) < 0)
			ch->tx_post = ch->tx_acked;
	}
	if (m->rail >= p->nrails)
		return false;
	ca = &p->carriers[m->rail];
	/* Credits of a connection that is no more are of no use. */
	if (!ca->native || (atomic_load(&ca->conn->epoch) & CARRIER_EPOCH) != m->epoch)
		return true;
	fresh = m->credits - ca->heard;
	/* Overtaken, by one on another carrier. */
	if ((int32_t)fresh < 0)
		return true;
	if (fresh > ca->depth - ca->credits)
		return false;
	ca->credits += fresh;
	ca->heard = m->credits;
	return true;
}

/*
 * The oldest that came on a carrier, if its turn has come: one that is ahead waits for those that another
 * carrier still has.  The copy is what is checked and used: the peer's device may still write there.
 */
static bool receive_one(struct escrow_engine *e, struct peer *p, struct carrier *ca)
{
	uint8_t *copy = e->runner_copy;
	struct channel *ch = &p->channel;
	struct wire_message m;
	uint32_t i, bytes;

	if (!en_carrier_peek(ca, &i, &bytes))
		return false;
	memcpy(copy, en_carrier_message(ca, i), bytes);
	if (wire_message_get(copy, bytes, &m) < 0) {
		en_peer_misbehaves(p);
		return false;
	}
	if (m.type != WIRE_CREDIT && (int32_t)(m.seq - ch->rx_next) > 0)
		return false;
	en_carrier_taken(ca, i);
	if (!take_answers(p, &m)) {
		en_peer_misbehaves(p);
		return false;
	}
	if (m.type == WIRE_CREDIT || m.seq != ch->rx_next)
		return true;
	ch->rx_next++;
	dispatch(e, p, &m, copy + WIRE_MESSAGE_HEADER);
	return true;
}

static bool receive_some(struct escrow_engine *e, struct peer *p)
{
	bool some = false;
	uint32_t r;

	for (r = 0; r < p->nrails; r++)
		some = receive_one(e, p, &p->carriers[r]) || some;
	return some;
}

static void send_hello(struct escrow_engine *e, struct peer *p)
{
	struct wire_message m = {.type = WIRE_HELLO, .length = (uint32_t)strlen(e->name)};

	if (p->channel.hello_sent || (p->flags & ESCROW_PEER_PASSIVE))
		return;
	memcpy(&m.a, p->session, 8);
	memcpy(&m.b, p->session + 8, 8);
	if (en_channel_send(p, &m, e->name) == ESCROW_OK)
		p->channel.hello_sent = 1;
}

static void send_up(struct peer *p)
{
	struct wire_message m = {.type = WIRE_UP};

	if (!p->channel.up_sent && atomic_load(&p->state) == PEER_UP &&
	    en_channel_send(p, &m, NULL) == ESCROW_OK)
		p->channel.up_sent = 1;
}

/* Before the peer has none left, of its credits or of its places for what it keeps. */
static void give_credits(struct escrow_engine *e, struct peer *p)
{
	uint32_t few = RECEIVES(e) < p->peer_depth ? RECEIVES(e) : p->peer_depth, r;

	for (r = 0; r < p->nrails; r++) {
		struct wire_message m = {.type = WIRE_CREDIT};
		struct carrier *ca = sender(p);

		if (p->carriers[r].native && owed(&p->carriers[r]) * 2 > few && ca && ca->credits)
			post(p, ca, &m, NULL);
	}
}

void en_channel_hear(struct escrow_engine *e, struct peer *p)
{
	uint32_t n = 0;

	while (n++ < RECEIVES(e) && p->channel.kept && receive_some(e, p))
		;
}

void en_channel_run(struct escrow_engine *e, struct peer *p)
{
	en_channel_hear(e, p);
	if (!p->channel.kept || !sender(p))
		return;
	pump(p);
	send_hello(e, p);
	send_up(p);
	en_mend_send(e, p);
	if (p->channel.up_got) {
		en_offers_send(e, p);
		en_notify_send(e, p);
	}
	give_credits(e, p);
}
