/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * event.h - the way of an event to the host.
 *
 * Every object carries the places of all events it can ever have, so one is reserved when the
 * object is admitted, and the queue cannot overflow.  A place is a node with its event; of a grant, of
 * which there are many, a mere link: what that tells follows from the grant (en_grant_event).  Any thread
 * pushes, without a lock; one caller
 * at a time pops ([poll]).  Events of one object come out in the order in which they were pushed.
 */
#ifndef ENGINE_EVENT_H
#define ENGINE_EVENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <escrow/backend.h>

struct escrow_engine;

/* What an event says; its number it gets when it is written out. */
struct event_what {
	uint16_t kind;
	uint8_t custody;
	uint8_t effect;
	escrow_status status;
	uint64_t user;
	uint64_t object;
	uint64_t bytes;
	uint32_t vendor;
	uint32_t flags;
};

struct event_link {
	_Atomic(struct event_link *) next;
};

struct event_node {
	struct event_link link;
	/* Called by poll when the event has been written out; may be NULL. */
	void (*polled)(struct escrow_engine *e, struct event_node *node);
	void *object;
	struct event_what event;
};

struct event_queue {
	_Atomic(struct event_link *) tail; /* where pushers append */
	struct event_link *head;           /* [poll] */
	struct event_link stub;
	uint64_t seq; /* [poll] of the last event written */
};

void event_init(struct event_queue *q);

/*
 * [any] Its place in the order; event_show() at once or soon.  Till then nothing from there on is popped, so that
 * what must be over before the host hears of it is done in between.  It must not be in the queue.  Wait-free.
 */
static inline struct event_link *event_stand(struct event_queue *q, struct event_link *link)
{
	atomic_store_explicit(&link->next, NULL, memory_order_relaxed);
	return atomic_exchange(&q->tail, link);
}

static inline void event_show(struct event_link *before, struct event_link *link)
{
	atomic_store_explicit(&before->next, link, memory_order_release);
}

/* [any] Both. */
static inline void event_push(struct event_queue *q, struct event_link *link)
{
	event_show(event_stand(q, link), link);
}

/* [poll] The oldest, or NULL: none, or its pusher has not finished. */
struct event_link *event_pop_last(struct event_queue *q);
static inline struct event_link *event_pop(struct event_queue *q)
{
	struct event_link *head = q->head;
	struct event_link *next = atomic_load_explicit(&head->next, memory_order_acquire);

	if (head == &q->stub || !next)
		return event_pop_last(q);
	q->head = next;
	return head;
}

/* [poll] Is there nothing at all, not even half pushed? */
static inline bool event_empty(const struct event_queue *q)
{
	return q->head == &q->stub && atomic_load(&q->tail) == &q->stub;
}

/* Where a poll writes events: the host's places that are left. */
struct event_out {
	struct escrow_event *at;
	uint32_t left, stride;
};

/* [poll] The next place; there must be one. */
static inline struct escrow_event *event_place(struct event_out *out)
{
	struct escrow_event *at = out->at;

	out->at = (struct escrow_event *)(void *)((char *)at + out->stride);
	out->left--;
	return at;
}

/* Writes an event to a place, by its number. */
static inline void event_fill(struct escrow_event *at, uint64_t seq, const struct event_what *what)
{
	*at = (struct escrow_event){.user = what->user,
				    .object = what->object,
				    .status = what->status,
				    .kind = what->kind,
				    .custody = what->custody,
				    .effect = what->effect,
				    .bytes = what->bytes,
				    .seq = seq,
				    .vendor = what->vendor,
				    .flags = what->flags};
}

/* [poll] Writes an event out: the next in number. */
static inline void event_write(struct event_queue *q, struct event_out *out,
			       const struct event_what *what)
{
	event_fill(event_place(out), ++q->seq, what);
}

/* Fills and pushes a node, and wakes an armed event_fd.  polled and object stay as they are. */
void event_send(struct escrow_engine *e, struct event_node *node, const struct event_what *what);

#endif
