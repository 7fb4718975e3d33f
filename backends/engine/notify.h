/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * notify.h - messages: what notify.c (the slots) and note.c (the wire) share.
 *
 * A message on its way out holds an entry of the engine until its MESSAGE_SENT was polled (or the op
 * it rides on was told).  One that comes in holds an entry from before its sender may start: the
 * receiver reserves entries for a peer and tells it how many (its window), so what was sent always
 * finds a place and nothing is dropped.  What is reserved cannot be taken back, so there is one for
 * each peer that may come; only what is beyond that goes to whoever asks first.
 */
#ifndef ENGINE_NOTIFY_H
#define ENGINE_NOTIFY_H

#include "backends/engine/engine.h"

#define NOTE_WINDOW 4u /* entries kept for one peer, while there are any */

struct notify {
	struct notify *next; /* lock: in one list at a time; atomic push for riders */
	struct notify_pool *pool;
	uint8_t *bytes; /* max_message_bytes */
	uint64_t length;
	uint64_t done; /* bytes sent, or come in */
	uint64_t user;
	uint64_t peer;            /* handle */
	_Atomic uint32_t holders; /* in: the event and the message; the last one frees it */
	struct peer *from;        /* in: whose it is */
	struct op *op;            /* it rides on this */
	struct event_what op_event;
	struct event_node node;
};

struct notify_half {
	struct pool pool;
	struct notify *entries;
	_Atomic uint32_t *next;
	uint32_t n;
};

struct notify_pool {
	struct notify_half out, in;
	_Atomic uint32_t wanted; /* a send found no entry */
	/* Of the entries for what comes in: that are some peer's, and peers that have any. */
	_Atomic uint32_t held, holders;
	/* lock: what has come in and was not received, oldest first */
	struct notify *head, *tail;
	_Atomic(uint8_t *) arena; /* runner: made when the first peer comes */
};

struct notify *en_note_take(struct escrow_engine *e, struct notify_half *half);
/* locked. One for what comes from this peer, or NULL. */
struct notify *en_note_reserve(struct escrow_engine *e, struct peer *p);
void en_note_give(struct escrow_engine *e, struct notify_half *half, struct notify *n);
/* locked. Behind what waits already for this peer. */
void en_note_append(struct peer *p, struct notify *n);

#endif
