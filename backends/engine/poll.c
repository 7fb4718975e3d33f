/* SPDX-License-Identifier: BSD-2-Clause */
/* poll.c - the one way of events to the host, and what drives all progress. */
#include "backends/engine/engine.h"

#include <string.h>

/* The last events of an engine come when its thread has ended: nothing of ours runs behind them. */
static void before_end(struct escrow_engine *e, const struct event_node *node)
{
	if (node != &e->end)
		return;
	en_thread_join(e);
	e->threaded = 0;
}

static inline void progress(struct escrow_engine *e, struct event_out *out)
{
	if (engine_state(e) == ESCROW_STATE_CLOSED)
		return;
	en_lanes_poll(e, out);
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
