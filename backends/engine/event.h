/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * event.h - the way of an event to the host.
 *
 * Every object carries the nodes of all events it can ever have, so a place is reserved when the
 * object is admitted, and the queue cannot overflow.  Any thread pushes, without a lock; one caller
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

struct event_node {
	_Atomic(struct event_node *) next;
	/* Called by poll when the event has been written out; may be NULL. */
	void (*polled)(struct escrow_engine *e, struct event_node *node);
	void *object;
	struct event_what event;
};

struct event_queue {
	_Atomic(struct event_node *) tail; /* where pushers append */
	struct event_node *head;           /* [poll] */
	struct event_node stub;
	uint64_t seq; /* [poll] of the last event written */
};

void event_init(struct event_queue *q);

/* [any] The node must not be in the queue.  Wait-free. */
static inline void event_push(struct event_queue *q, struct event_node *node)
{
	struct event_node *before;

	atomic_store_explicit(&node->next, NULL, memory_order_relaxed);
	before = atomic_exchange(&q->tail, node);
	atomic_store_explicit(&before->next, node, memory_order_release);
}

/* [poll] The oldest node, or NULL: none, or its pusher has not finished. */
struct event_node *event_pop_last(struct event_queue *q);
static inline struct event_node *event_pop(struct event_queue *q)
{
	struct event_node *head = q->head;
	struct event_node *next = atomic_load_explicit(&head->next, memory_order_acquire);

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

/* Writes an event to the next place, by its number. */
static inline void event_fill(struct event_out *out, uint64_t seq, const struct event_what *what)
{
	*event_place(out) = (struct escrow_event){.user = what->user,
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
	event_fill(out, ++q->seq, what);
}

/* Fills and pushes a node, and wakes an armed event_fd.  polled and object stay as they are. */
void event_send(struct escrow_engine *e, struct event_node *node, const struct event_what *what);

#endif
