/* SPDX-License-Identifier: BSD-2-Clause */
/* Polling and waiting: all generations as one. */
#include <unistd.h>

#include "plugin/event.h"

/* Polls one generation into events[0..max); how many the host is to see, *status if it refused. */
static uint32_t poll_generation(struct escrow_host_engine *host, struct host_generation *g,
				struct escrow_event *events, uint32_t max, escrow_status *status)
{
	uint32_t kept = 0, asked;
	int32_t got;

	do {
		asked = max - kept;
		got = g->ops->poll(g->engine, events + kept, asked, sizeof(*events), 0);
		if (got > (int32_t)asked) {
			services_log(host->services, ESCROW_LOG_BACKEND_MISBEHAVES,
				     "poll of %u events answered %d", asked, got);
			got = (int32_t)asked;
		}
		for (struct escrow_event *e = events + kept, *end = e + MAX(got, 0); e < end; e++) {
			if (!event_take(host, g, e))
				continue;
			e->seq = ++host->seq;
			if (e != &events[kept])
				events[kept] = *e;
			kept++;
		}
	} while (got > 0 && (uint32_t)got == asked && kept < max);
	if (got < 0)
		*status = got;
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
	if (n < max && poll_has_room(host) && atomic_exchange(&host->want_room, 0))
		events[n++] = (struct escrow_event){.kind = ESCROW_EV_ROOM, .seq = ++host->seq};
	if (n < max && atomic_load(&host->end_due) && event_tell_end(host, &events[n]))
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
