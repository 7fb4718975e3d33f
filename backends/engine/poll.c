/* SPDX-License-Identifier: BSD-2-Clause */
/* poll.c - the one way of events to the host, and what drives all progress. */
#include "backends/engine/settle.h"

#include <string.h>

/* The last events of an engine come when its thread has ended: nothing of ours runs behind them. */
static void before_end(struct escrow_engine *e, const struct event_node *node)
{
	if (node != &e->end)
		return;
	en_thread_join(e);
	e->threaded = 0;
	atomic_fetch_or(&e->poll_due, DUE_CONTROL);
}

/* ---- Lanes -------------------------------------------------------------------------------------------- */
#define BATCHES 8 /* of completions under one lock: transfers want the lane too */

/* n completions, and what comes behind them.  True: there may be more than it took. */
static bool take_batches(struct lane *lane, int n, struct event_out *out)
{
	struct escrow_engine *e = lane->e;
	int batches = 0;

	while (n > 0) {
		engine_count(&e->counters.completions, (uint64_t)n);
		if (UNLIKELY(e->config.test_faults))
			en_take_planned(lane, lane->cqe, n, out);
		else
			en_take(lane, lane->cqe, (uint32_t)n, out);
		if (n < CQE_BATCH || ++batches == BATCHES)
			break;
		n = e->ops->poll_cq(lane->native, lane->cqe, CQE_BATCH);
	}
	if (UNLIKELY(n < 0)) {
		if (e->ops->poll_failed)
			e->ops->poll_failed(lane->native);
		en_lane_breaks(lane);
	}
	return n == CQE_BATCH;
}

static bool poll_any(struct lane *lane, struct event_out *out)
{
	struct escrow_engine *e = lane->e;

	if (!lane->native || lane->deaf)
		return false;
	if (e->config.test_faults)
		en_faults_due(lane, out);
	return take_batches(lane, e->ops->poll_cq(lane->native, lane->cqe, CQE_BATCH), out);
}

bool en_lane_poll(struct lane *lane)
{
	return poll_any(lane, NULL);
}

/*
 * lane. The ways of a poll.  Where it writes goes in and comes back by value: it has it in registers, as long as all that is
 * to be told is one completion.
 */
static __attribute__((noinline)) struct event_out poll_slowly(struct lane *lane,
							      struct event_out out)
{
	poll_any(lane, &out);
	return out;
}

static __attribute__((noinline)) struct event_out take_several(struct lane *lane, int n,
							       struct event_out out)
{
	take_batches(lane, n, &out);
	return out;
}

static __attribute__((noinline)) bool take_sliced(struct lane *lane, struct escrow_event *at)
{
	return take_one(lane->e, lane, lane->cqe, at, true);
}

/* One that comes alone, and is as usual, at once. */
static HOT struct event_out poll_lane(struct escrow_engine *e, struct lane *lane,
				      struct event_out out)
{
	int n;

	if (UNLIKELY(!lane->quick))
		return poll_slowly(lane, out);
	n = e->ops->poll_cq(lane->quick, lane->cqe, CQE_BATCH);
	if (n == 0)
		return out;
	if (UNLIKELY(n != 1 || !out.left || !event_empty(&e->events)) ||
	    (!take_one(e, lane, lane->cqe, out.at, false) && !take_sliced(lane, out.at)))
		return take_several(lane, n, out);
	engine_count(&e->counters.completions, 1);
	event_place(&out);
	return out;
}

static HOT struct event_out poll_lanes(struct escrow_engine *e, struct event_out out)
{
	uint64_t left = atomic_load(&e->lanes_used);

	for (; left; left &= left - 1) {
		struct lane *lane = &e->lanes[__builtin_ctzll(left)];

		if (!en_lane_trylock(lane))
			continue;
		out = poll_lane(e, lane, out);
		en_lane_give(e, lane);
	}
	return out;
}

/* ---- The slot ----------------------------------------------------------------------------------------- */
static void run_deadlines(struct escrow_engine *e, struct event_out *out)
{
	if (en_deadlines(e))
		en_deadline_run(e, engine_now(e), out);
	if (en_deadlines(e))
		return;
	atomic_fetch_and(&e->poll_due, ~DUE_DEADLINES);
	/* One that came in between: whoever brought it may have said so before. */
	if (en_deadlines(e))
		atomic_fetch_or(&e->poll_due, DUE_DEADLINES);
}

static __attribute__((noinline)) struct event_out do_due(struct escrow_engine *e, uint32_t due,
							 struct event_out out)
{
	if (engine_state(e) == ESCROW_STATE_CLOSED)
		return out;
	if (due & DUE_HELP)
		en_help_poll(e);
	if (due & DUE_DEADLINES)
		run_deadlines(e, &out);
	if (due & DUE_CONTROL)
		en_control_run(e);
	return out;
}

static __attribute__((noinline)) struct event_out pop_events(struct escrow_engine *e,
							     struct event_out out)
{
	struct event_link *link;
	struct event_node *node;

	/* CLOSED is the last one; a ROOM that stands behind it is no news to anybody. */
	while (out.left && engine_state(e) != ESCROW_STATE_CLOSED) {
		link = event_pop(&e->events);
		if (!link)
			break;
		if (en_grant_event(e, link, &out))
			continue;
		node = (struct event_node *)link;
		before_end(e, node);
		event_write(&e->events, &out, &node->event);
		if (node->polled)
			node->polled(e, node);
	}
	return out;
}

int32_t engine_poll(struct escrow_engine *e, struct escrow_event *events, uint32_t max,
		    uint32_t stride, uint32_t flags)
{
	struct event_out out = {events, max < INT32_MAX ? max : INT32_MAX, stride};
	uint32_t due;

	if (!engine_here(e))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	if (max && (!events || !args_stride_ok(stride, sizeof(*events))))
		return ESCROW_E_INVALID;
	/* An engine that is CLOSED has no lane in use. */
	out = poll_lanes(e, out);
	due = atomic_load_explicit(&e->poll_due, memory_order_relaxed);
	if (UNLIKELY(due))
		out = do_due(e, due, out);
	if (!event_empty(&e->events))
		out = pop_events(e, out);
	en_ops_free(e);
	return (int32_t)((max < INT32_MAX ? max : INT32_MAX) - out.left);
}
