/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * deadline.c - ops whose deadline passes: OP_EXPIRED, which ends nothing.
 *
 * A heap that only poll touches; transfer puts ops with a deadline on a lock-free list, from which
 * poll takes them.  An op leaves the heap when its last event is polled, so it is never freed while
 * it is in here.
 */
#include "backends/engine/engine.h"

void en_deadline_add(struct escrow_engine *e, struct op *op)
{
	struct op *head = atomic_load_explicit(&e->fresh, memory_order_relaxed);
	uint64_t deadline = op->deadline; /* once it is on the list, the op may end */

	do {
		op->fresh = head;
	} while (!atomic_compare_exchange_weak(&e->fresh, &head, op));
	atomic_fetch_or(&e->poll_due, DUE_DEADLINES);
	/* Armed before: its timer knows nothing of this one.  Else arm finds it on the list. */
	if (atomic_load(&e->armed) && deadline < atomic_load(&e->armed_until))
		event_wake(e);
}

static void place(struct escrow_engine *e, uint32_t at, struct op *op)
{
	e->heap[at] = op;
	op->heap_at = at + 1;
}

static void sift_up(struct escrow_engine *e, uint32_t at)
{
	struct op *op = e->heap[at];

	while (at > 0 && e->heap[(at - 1) / 2]->deadline > op->deadline) {
		place(e, at, e->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	place(e, at, op);
}

static void sift_down(struct escrow_engine *e, uint32_t at)
{
	struct op *op = e->heap[at];
	uint32_t child;

	while ((child = 2 * at + 1) < e->heap_n) {
		if (child + 1 < e->heap_n &&
		    e->heap[child + 1]->deadline < e->heap[child]->deadline)
			child++;
		if (e->heap[child]->deadline >= op->deadline)
			break;
		place(e, at, e->heap[child]);
		at = child;
	}
	place(e, at, op);
}

static void take_fresh(struct escrow_engine *e)
{
	struct op *op, *next;

	/* In one order with `armed`: see en_deadline_add. */
	if (!atomic_load(&e->fresh))
		return;
	op = atomic_exchange_explicit(&e->fresh, NULL, memory_order_acquire);
	for (; op; op = next) {
		next = op->fresh;
		e->heap[e->heap_n++] = op;
		sift_up(e, e->heap_n - 1);
	}
}

static void heap_remove(struct escrow_engine *e, struct op *op)
{
	uint32_t at = op->heap_at - 1;
	struct op *last = e->heap[--e->heap_n];

	op->heap_at = 0;
	if (last == op)
		return;
	place(e, at, last);
	sift_up(e, at);
	sift_down(e, last->heap_at - 1);
}

void en_deadline_drop(struct escrow_engine *e, struct op *op)
{
	if (!op->deadline)
		return;
	take_fresh(e);
	if (op->heap_at)
		heap_remove(e, op);
}

uint64_t en_deadline_next(struct escrow_engine *e)
{
	take_fresh(e);
	return e->heap_n ? e->heap[0]->deadline : UINT64_MAX;
}

/*
 * Straight to the host, ahead of what is queued: whoever ends the op meanwhile queues its last event, which
 * then comes behind.  Without a place for it, it waits in the heap.
 */
void en_deadline_run(struct escrow_engine *e, uint64_t now, struct event_out *out)
{
	struct op *op;

	take_fresh(e);
	while (out->left && e->heap_n && e->heap[0]->deadline <= now) {
		op = e->heap[0];
		heap_remove(e, op);
		/* One that has ended is past expiring: its last event is already on the way. */
		if (atomic_load(&op->state) != OP_ACTIVE)
			continue;
		event_write(&e->events, out,
			    &(struct event_what){.kind = ESCROW_EV_OP_EXPIRED,
						 .status = ESCROW_E_TIMEOUT,
						 .user = op->user,
						 .object = atomic_load(&op->handle)});
	}
}
