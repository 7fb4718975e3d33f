/* SPDX-License-Identifier: BSD-2-Clause */
/* poll.c - the one way of events to the host, and what drives all progress. */
#include "backends/engine/transfer.h"

#include <string.h>

/* The last events of an engine come when its thread has ended: nothing of ours runs behind them. */
static void before_end(struct escrow_engine *e, const struct event_node *node)
{
	if (node != &e->end)
		return;
	en_thread_join(e);
	e->threaded = 0;
}

/* ---- Lanes -------------------------------------------------------------------------------------------- */
#define BATCHES 8 /* of completions under one lock: transfers want the lane too */

/* True: there may be more than it took. */
static inline bool poll_lane(struct escrow_engine *e, struct lane *lane, struct event_out *out)
{
	int n, batches = 0;

	if (UNLIKELY(!lane->native || atomic_load(&lane->context->fatal)))
		return false;
	if (UNLIKELY(e->config.test_faults))
		en_faults_due(lane, out);
	do {
		n = e->ops->poll_cq(lane->native, lane->cqe, CQE_BATCH);
		if (n <= 0)
			break;
		engine_count(&e->counters.completions, (uint64_t)n);
		if (LIKELY(!e->config.test_faults))
			en_take(lane, lane->cqe, (uint32_t)n, out);
		else
			en_take_planned(lane, lane->cqe, n, out);
	} while (n == CQE_BATCH && ++batches < BATCHES);
	if (UNLIKELY(n < 0) && !atomic_exchange(&lane->poisoned, 1))
		en_work(e, &e->work);
	return n == CQE_BATCH;
}

bool en_lane_poll(struct lane *lane, struct event_out *out)
{
	return poll_lane(lane->e, lane, out);
}

static inline void poll_lanes(struct escrow_engine *e, struct event_out *out)
{
	struct lane *lane = e->lanes, *end = lane + e->nlanes;

	for (; lane < end; lane++) {
		if (!atomic_load(&lane->users) || !en_lane_trylock(lane))
			continue;
		poll_lane(e, lane, out);
		unlock_lane(e, lane);
	}
}

/* ---- The slot ----------------------------------------------------------------------------------------- */
static inline void progress(struct escrow_engine *e, struct event_out *out)
{
	if (engine_state(e) == ESCROW_STATE_CLOSED)
		return;
	poll_lanes(e, out);
	if (atomic_load_explicit(&e->help_due, memory_order_relaxed))
		en_help_poll(e);
	if (en_deadlines(e))
		en_deadline_run(e, engine_now(e), out);
	if (!e->threaded)
		en_control_run(e);
}

static __attribute__((noinline)) void pop_events(struct escrow_engine *e, struct event_out *out)
{
	struct event_node *node;

	/* CLOSED is the last one; a ROOM that stands behind it is no news to anybody. */
	while (out->left && engine_state(e) != ESCROW_STATE_CLOSED) {
		node = event_pop(&e->events);
		if (!node)
			break;
		before_end(e, node);
		event_write(&e->events, out, &node->event);
		if (node->polled)
			node->polled(e, node);
	}
}

int32_t engine_poll(struct escrow_engine *e, struct escrow_event *events, uint32_t max,
		    uint32_t stride, uint32_t flags)
{
	struct event_out out = {events, max < INT32_MAX ? max : INT32_MAX, stride};
	uint32_t places = out.left;

	if (!engine_here(e))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	if (max && (!events || !args_stride_ok(stride, sizeof(*events))))
		return ESCROW_E_INVALID;
	progress(e, &out);
	if (!event_empty(&e->events))
		pop_events(e, &out);
	en_ops_free(e);
	return (int32_t)(places - out.left);
}
