/* SPDX-License-Identifier: BSD-2-Clause */
/* Polling and waiting: all generations as one. */
#include <unistd.h>

#include "plugin/event.h"

/* ---- Events: those of ops without a lock ---------------------------------------------------------- */
/* An op's, in the host's words; false: the host is not to see it. */
static inline bool event_op(struct escrow_host_engine *host, const struct host_generation *g,
			    struct escrow_event *e)
{
	struct lend_op *op = lend_find(&host->lend, e->user);

	if (G_UNLIKELY(!op || atomic_load(&op->engine_generation) != g->number))
		return event_is_odd(host, e, "no such op is outstanding");
	if (G_UNLIKELY(e->kind != ESCROW_EV_OP_EXPIRED && atomic_load(&op->state) != LEND_LENT))
		return event_is_odd(host, e, "the op has ended before");
	e->object = e->user;
	e->user = op->user;
	/* a custody that is not known gives nothing back */
	if (e->kind == ESCROW_EV_OP_EXPIRED ||
	    (e->kind == ESCROW_EV_OP_DONE && e->custody != ESCROW_CUSTODY_RETURNED))
		return true;
	if (G_UNLIKELY(host->flags))
		guard_lend(host, op, false);
	lend_end(op);
	lend_drop(&host->lend, op);
	quota_ops_give(1);
	return true;
}

static inline bool event_take(struct escrow_host_engine *host, struct host_generation *g,
			      struct escrow_event *e)
{
	if (G_LIKELY(e->kind == ESCROW_EV_OP_DONE) || e->kind == ESCROW_EV_OP_EXPIRED ||
	    e->kind == ESCROW_EV_OP_RETURNED)
		return event_op(host, g, e);
	return event_control(host, g, e);
}

/* ---- Polling --------------------------------------------------------------------------------------- */
/* What the backend answered that no backend may. */
static __attribute__((noinline, cold)) uint32_t poll_odd(const struct escrow_host_engine *host,
							 uint32_t asked, int32_t got)
{
	services_log(host->services, ESCROW_LOG_BACKEND_MISBEHAVES, "poll of %u events answered %d",
		     asked, got);
	return asked;
}

/* Of the n events at `at` those that the host is to see come first: how many. */
static inline uint32_t poll_keep(struct escrow_host_engine *host, struct host_generation *g,
				 struct escrow_event *at, uint32_t n)
{
	struct escrow_event *to = at;

	for (struct escrow_event *e = at; e < at + n; e++) {
		if (!event_take(host, g, e))
			continue;
		e->seq = ++host->seq;
		if (G_UNLIKELY(e != to))
			*to = *e;
		to++;
	}
	return (uint32_t)(to - at);
}

/* Polls one generation into events[0..max); how many the host is to see, *status if it refused. */
static inline uint32_t poll_generation(struct escrow_host_engine *host, struct host_generation *g,
				       struct escrow_event *events, uint32_t max,
				       escrow_status *status)
{
	uint32_t kept = 0, asked, n;
	int32_t got;

	do {
		asked = max - kept;
		got = g->ops->poll(g->engine, events + kept, asked, sizeof(*events), 0);
		if (got <= 0) {
			*status = got ? got : *status;
			break;
		}
		n = (uint32_t)got;
		if (G_UNLIKELY(n > asked))
			n = poll_odd(host, asked, got);
		kept += poll_keep(host, g, events + kept, n);
	} while (n == asked && kept < max);
	return kept;
}

/* Somebody was turned away, and now there is room. */
static bool poll_has_room(struct escrow_host_engine *host)
{
	return atomic_load(&host->want_room) && atomic_load(&host->dispatch) &&
	       lend_has_room(&host->lend);
}

/* Something to tell that comes of no backend. */
static bool poll_has_own(struct escrow_host_engine *host)
{
	return atomic_load(&host->end_due) || poll_has_room(host);
}

int32_t escrow_poll(struct escrow_host_engine *host, struct escrow_event *events, uint32_t max)
{
	escrow_status status = host_check(host);
	struct inside_mark mark;
	uint32_t n = 0, slots;

	if (status != ESCROW_OK)
		return status;
	if ((max && !events) || max > INT32_MAX)
		return ESCROW_E_INVALID;
	if (max == 0 || atomic_load(&host->ended) == HOST_ENDED_CLOSED)
		return 0;
	mark = inside_enter_alone(&host->inside);
	slots = atomic_load(&host->slots);
	/* Each call begins where the last one stopped: a busy generation must not starve another. */
	for (uint32_t i = 0; i < slots && n < max; i++) {
		struct host_generation *g = atomic_load(&host->generations[host->poll_next]);

		host->poll_next = host->poll_next + 1 < slots ? host->poll_next + 1 : 0;
		if (g)
			n += poll_generation(host, g, events + n, max - n, &status);
	}
	inside_leave_alone(mark);
	if (G_UNLIKELY(poll_has_room(host)) && n < max && atomic_exchange(&host->want_room, 0))
		events[n++] = (struct escrow_event){.kind = ESCROW_EV_ROOM, .seq = ++host->seq};
	if (G_UNLIKELY(atomic_load(&host->end_due)) && n < max && event_tell_end(host, &events[n]))
		events[n++].seq = ++host->seq;
	return n ? (int32_t)n : status;
}

int32_t escrow_event_fd(struct escrow_host_engine *host)
{
	escrow_status status = host_check(host);
	struct inside_mark mark;
	bool has;

	if (status != ESCROW_OK)
		return status;
	has = host_enter(host, &mark)->fd >= 0;
	inside_leave(mark);
	return has ? host->epoll : ESCROW_E_UNSUPPORTED;
}

/*
 * One that was left and has no descriptor, while the one that serves has: it is polled till its end, and what it may yet
 * tell of its quarantine comes with the next poll.
 */
static escrow_status arm_generation(struct escrow_host_engine *host, struct host_generation *g)
{
	if (g->fd >= 0 || atomic_load(&host->current)->fd < 0)
		return g->ops->arm(g->engine, 0);
	return atomic_load(&g->ended) == HOST_ENDED_NOT ? ESCROW_EVENTS_PENDING : ESCROW_OK;
}

escrow_status escrow_arm(struct escrow_host_engine *host)
{
	escrow_status status = host_check(host);
	struct inside_mark mark;
	uint64_t count;

	if (status != ESCROW_OK)
		return status;
	if (atomic_load(&host->ended) == HOST_ENDED_CLOSED)
		return ESCROW_E_STATE;
	/* EAGAIN: it was not readable */
	if (read(host->wake, &count, sizeof(count)) > 0 && poll_has_own(host))
		return ESCROW_EVENTS_PENDING;
	mark = inside_enter(&host->inside);
	for (uint32_t i = 0; i <= HOST_GENERATIONS && status == ESCROW_OK; i++) {
		struct host_generation *g = atomic_load(&host->generations[i]);

		if (!g || atomic_load(&g->ended) == HOST_ENDED_CLOSED)
			continue;
		status = arm_generation(host, g);
	}
	inside_leave(mark);
	return status == ESCROW_OK && poll_has_own(host) ? ESCROW_EVENTS_PENDING : status;
}
