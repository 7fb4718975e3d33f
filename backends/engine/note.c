/* SPDX-License-Identifier: BSD-2-Clause */
/* note.c - messages in pieces over the control channel: windows, pieces, acknowledgements. */
#include "backends/engine/notify.h"

#include <string.h>

#define PIECE (MESSAGE_BYTES - WIRE_MESSAGE_HEADER)

void en_note_append(struct peer *p, struct notify *n)
{
	struct channel *ch = &p->channel;

	n->next = NULL;
	if (ch->out_tail)
		ch->out_tail->next = n;
	else
		ch->out_head = n;
	ch->out_tail = n;
}

/* Messages of ops that have ended, in the order of their ends. */
static void take_riders(struct peer *p)
{
	struct notify *list = atomic_exchange_explicit(&p->riders, NULL, memory_order_acquire);
	struct notify *oldest = NULL, *next;

	for (; list; list = next) {
		next = list->next;
		list->next = oldest;
		oldest = list;
	}
	for (; oldest; oldest = next) {
		next = oldest->next;
		en_note_append(p, oldest);
	}
}

/* ---- The sender's side ------------------------------------------------------------------------- */
static bool send_pieces(struct escrow_engine *e, struct peer *p, struct notify *n)
{
	do {
		uint64_t left = n->length - n->done;
		struct wire_message m = {.type = WIRE_NOTE, .a = n->length, .b = n->done};

		m.length = (uint32_t)(left < PIECE ? left : PIECE);
		if (en_channel_send(p, &m, n->bytes + n->done) < 0)
			return false;
		n->done += m.length;
	} while (n->done < n->length);
	return true;
}

static void send_messages(struct escrow_engine *e, struct peer *p)
{
	struct channel *ch = &p->channel;
	struct notify *n;

	while ((n = ch->out_head) != NULL) {
		if (n->done == 0) {
			if (!ch->window)
				return;
			if (!send_pieces(e, p, n) && n->done == 0)
				return;
			ch->window--;
		} else {
			send_pieces(e, p, n);
		}
		if (n->done < n->length)
			return;
		ch->out_head = n->next;
		if (!n->next)
			ch->out_tail = NULL;
		n->next = NULL;
		if (ch->wait_tail)
			ch->wait_tail->next = n;
		else
			ch->wait_head = n;
		ch->wait_tail = n;
	}
}

/* Its end: MESSAGE_SENT, or the OP_DONE of the op that it rides on. */
static void tell_sent(struct escrow_engine *e, struct notify *n, escrow_status status)
{
	struct event_what what = n->op_event;
	struct op *op = n->op;

	if (!op) {
		event_send(e, &n->node,
			   &(struct event_what){.kind = ESCROW_EV_MESSAGE_SENT,
						.status = status,
						.user = n->user,
						.object = n->peer,
						.bytes = status == ESCROW_OK ? n->length : 0});
		return;
	}
	en_note_give(e, &e->notify->out, n);
	what.status = status;
	en_op_tell(e, op, &what);
}

void en_notify_taken(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	struct channel *ch = &p->channel;
	uint64_t i;

	for (i = 0; i < m->a && ch->wait_head; i++) {
		struct notify *n = ch->wait_head;

		ch->wait_head = n->next;
		if (!n->next)
			ch->wait_tail = NULL;
		tell_sent(e, n, ESCROW_OK);
	}
	/* Only a peer that breaks the protocol acknowledges what was not sent, or gives such windows. */
	if (i < m->a || m->b > NOTE_WINDOW || ch->window + m->b > NOTE_WINDOW)
		en_peer_misbehaves(p);
	else
		ch->window += (uint32_t)m->b;
}

/* ---- The receiver's side --------------------------------------------------------------------------- */
/* Places are kept for the peer before it hears of them. */
static void open_window(struct escrow_engine *e, struct peer *p)
{
	struct channel *ch = &p->channel;

	while (ch->nreserved < NOTE_WINDOW) {
		struct notify *n = en_note_reserve(e, p);

		if (!n)
			return;
		n->next = ch->reserved;
		ch->reserved = n;
		ch->nreserved++;
		ch->window_due++;
	}
}

static void send_taken(struct escrow_engine *e, struct peer *p)
{
	struct channel *ch = &p->channel;
	struct wire_message m = {.type = WIRE_NOTE_TAKEN, .a = ch->taken_due, .b = ch->window_due};

	if (!m.a && !m.b)
		return;
	if (en_channel_send(p, &m, NULL) < 0)
		return;
	ch->taken_due = ch->window_due = 0;
}

static struct notify *begin(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	struct channel *ch = &p->channel;
	struct notify *n = ch->reserved;

	if (m->b != 0 || !n || m->a > e->config.max_message_bytes)
		return NULL;
	ch->reserved = n->next;
	ch->nreserved--;
	n->length = m->a;
	n->done = 0;
	return n;
}

void en_notify_piece(struct escrow_engine *e, struct peer *p, const struct wire_message *m,
		     const uint8_t *payload)
{
	struct channel *ch = &p->channel;
	struct notify *n = ch->in ? ch->in : begin(e, p, m);

	ch->in = n;
	if (!n || m->a != n->length || m->b != n->done || m->length > n->length - n->done ||
	    (!m->length && n->length)) {
		en_peer_misbehaves(p);
		return;
	}
	if (m->length)
		memcpy(n->bytes + n->done, payload, m->length);
	n->done += m->length;
	if (n->done < n->length)
		return;
	ch->in = NULL;
	ch->taken_due++;
	en_note_arrived(e, p, n);
}

void en_notify_send(struct escrow_engine *e, struct peer *p)
{
	take_riders(p);
	if (atomic_load(&p->state) != PEER_UP)
		return;
	open_window(e, p);
	send_taken(e, p);
	send_messages(e, p);
}

/* locked. An entry came back: peers whose window is not open hear of it. */
void en_notify_windows(struct escrow_engine *e)
{
	uint32_t i;

	for (i = 0; i < e->config.max_peers; i++)
		if (atomic_load(&e->peers[i].state) == PEER_UP &&
		    e->peers[i].channel.nreserved < NOTE_WINDOW)
			en_work(e, &e->peers[i].work);
}

/* ---- The end of the peer -------------------------------------------------------------------------------- */
static void end_list(struct escrow_engine *e, struct notify **head, struct notify **tail,
		     escrow_status status)
{
	struct notify *n;

	while ((n = *head) != NULL) {
		*head = n->next;
		tell_sent(e, n, status);
	}
	*tail = NULL;
}

void en_notify_peer_ends(struct escrow_engine *e, struct peer *p)
{
	struct channel *ch = &p->channel;
	escrow_status why = atomic_load(&p->reason) == ESCROW_OK ? ESCROW_E_CANCELED
								 : ESCROW_E_PEER_LOST;
	struct notify *n;

	take_riders(p);
	end_list(e, &ch->wait_head, &ch->wait_tail, why);
	end_list(e, &ch->out_head, &ch->out_tail, why);
	while ((n = ch->reserved) != NULL) {
		ch->reserved = n->next;
		en_note_give(e, &e->notify->in, n);
	}
	ch->nreserved = 0;
	if (ch->in)
		en_note_give(e, &e->notify->in, ch->in);
	ch->in = NULL;
}
