/* SPDX-License-Identifier: BSD-2-Clause */
/* Polling and waiting: all generations as one. */
#include <unistd.h>

#include "plugin/event.h"

/* ---- Events: those of ops without a lock ---------------------------------------------------------- */
/* Its ranges are the host's again. */
static inline void event_gives_back(struct escrow_host_engine *host, struct lend_op *op)
{
	if (G_UNLIKELY(host->flags))
		guard_lend(host, op, false);
	lend_end(op);
}

/* An op's, in the host's words; false: the host is not to see it. */
static bool event_op(struct escrow_host_engine *host, const struct host_generation *g,
		     struct escrow_event *e)
{
	struct lend_op *op = lend_find(&host->lend, e->user);

	if (!op || atomic_load(&op->engine_generation) != g->number)
		return event_is_odd(host, e, "no such op is outstanding");
	if (e->kind != ESCROW_EV_OP_EXPIRED && atomic_load(&op->state) != LEND_LENT)
		return event_is_odd(host, e, "the op has ended before");
	e->object = e->user;
	e->user = op->user;
	/* a custody that is not known gives nothing back */
	if (e->kind == ESCROW_EV_OP_RETURNED ||
	    (e->kind == ESCROW_EV_OP_DONE && e->custody == ESCROW_CUSTODY_RETURNED)) {
		event_gives_back(host, op);
		lend_drop(&host->lend, op);
		quota_ops_give(1);
	}
	return true;
}

static __attribute__((noinline)) bool event_other(struct escrow_host_engine *host,
						  struct host_generation *g, struct escrow_event *e)
{
	if (e->kind == ESCROW_EV_OP_DONE || e->kind == ESCROW_EV_OP_EXPIRED ||
	    e->kind == ESCROW_EV_OP_RETURNED)
		return event_op(host, g, e);
	return event_control(host, g, e);
}

/*
 * Most are of an op that is done and over, in which nothing is odd: what event_op does of it, but that its place and
 * its share of the quota are not given back.  NULL: it is another event, and as it was.
 */
EXPANDED struct lend_op *event_ended(struct escrow_host_engine *host,
				     const struct host_generation *g, struct escrow_event *e)
{
	struct lend_op *op = lend_find(&host->lend, e->user);

	if (G_UNLIKELY(e->kind != ESCROW_EV_OP_DONE || e->custody != ESCROW_CUSTODY_RETURNED ||
		       !op || atomic_load(&op->engine_generation) != g->number ||
		       atomic_load(&op->state) != LEND_LENT))
		return NULL;
	e->object = e->user;
	e->user = op->user;
	event_gives_back(host, op);
	return op;
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

/* Is the host to see the event at `to`?  Where the next one goes. */
EXPANDED struct escrow_event *poll_keep_one(struct escrow_host_engine *host,
					    struct host_generation *g, struct escrow_event *to)
{
	struct lend_op *ended = event_ended(host, g, to);

	if (G_LIKELY(ended)) {
		lend_drop(&host->lend, ended);
		quota_ops_give(1);
	} else if (!event_other(host, g, to)) {
		return to;
	}
	to->seq = ++host->seq;
	return to + 1;
}

/* The same of n: those that it is to see come first.  What the ops leave behind is given back together. */
static __attribute__((noinline)) struct escrow_event *poll_keep(struct escrow_host_engine *host,
								struct host_generation *g,
								struct escrow_event *to, uint32_t n)
{
	struct lend_op *ended, *first = NULL, *last = NULL;
	struct escrow_event *end = to + n;
	uint32_t nended = 0;

	for (struct escrow_event *e = to; e < end; e++) {
		ended = event_ended(host, g, e);
		if (!ended && !event_other(host, g, e))
			continue;
		nended += ended != NULL;
		if (ended && lend_left(ended)) {
			if (first)
				lend_link(&host->lend, ended, first);
			else
				last = ended;
			first = ended;
		}
		e->seq = ++host->seq;
		if (G_UNLIKELY(e != to))
			*to = *e;
		to++;
	}
	if (first)
		lend_give(&host->lend, first, last);
	quota_ops_give(nended);
	return to;
}

/* Goes in and comes back by value, to be kept in registers. */
struct polled {
	struct escrow_event *to; /* where the next event goes */
	int64_t status;          /* that a backend refused with; or OK */
};

/* Polls one generation into [p.to, end). */
EXPANDED struct polled poll_generation(struct escrow_host_engine *host, struct host_generation *g,
				       struct polled p, struct escrow_event *end)
{
	uint32_t asked, n;
	int32_t got;

	do {
		asked = (uint32_t)(end - p.to);
		got = g->ops->poll(g->engine, p.to, asked, sizeof(*p.to), 0);
		if (got == 0)
			break;
		if (G_UNLIKELY(got < 0)) {
			p.status = got;
			break;
		}
		n = (uint32_t)got;
		if (G_UNLIKELY(n > asked))
			n = poll_odd(host, asked, got);
		p.to = n == 1 ? poll_keep_one(host, g, p.to) : poll_keep(host, g, p.to, n);
	} while (G_UNLIKELY(n == asked) && p.to < end);
	return p;
}

/* Each call begins where the last one stopped: a busy generation must not starve another. */
static __attribute__((noinline)) struct polled poll_several(struct escrow_host_engine *host,
							    uint32_t slots, struct polled p,
							    struct escrow_event *end)
{
	struct host_generation *g;

	for (uint32_t left = slots; left && p.to < end; left--) {
		g = atomic_load(&host->generations[host->poll_next]);
		host->poll_next = host->poll_next + 1 < slots ? host->poll_next + 1 : 0;
		if (g)
			p = poll_generation(host, g, p, end);
	}
	return p;
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

/* It comes behind the events of backends; where the next one goes. */
static __attribute__((noinline)) struct escrow_event *poll_own(struct escrow_host_engine *host,
							       struct escrow_event *to,
							       const struct escrow_event *end)
{
	if (poll_has_room(host) && to < end && atomic_exchange(&host->want_room, 0))
		*to++ = (struct escrow_event){.kind = ESCROW_EV_ROOM, .seq = ++host->seq};
	if (atomic_load(&host->end_due) && to < end && event_tell_end(host, to))
		to++->seq = ++host->seq;
	return to;
}

/* Another thread polls, which no backend has to stand. */
static __attribute__((noinline, cold)) escrow_status poll_beside(struct escrow_host_engine *host)
{
	if (!atomic_exchange(&host->polled_twice, 1))
		services_log(host->services, ESCROW_LOG_HOST_MISBEHAVES,
			     "poll is called while another call of it is under way: one at a time");
	return ESCROW_E_BUSY;
}

int32_t escrow_poll(struct escrow_host_engine *host, struct escrow_event *events, uint32_t max)
{
	escrow_status status = host_check(host);
	struct polled p = {events, ESCROW_OK};
	struct escrow_event *end;
	struct host_generation *g;
	struct inside_mark mark;
	uint32_t slots;

	if (G_UNLIKELY(status != ESCROW_OK))
		return status;
	if (G_UNLIKELY((max && !events) || max > INT32_MAX))
		return ESCROW_E_INVALID;
	if (G_UNLIKELY(max == 0 || atomic_load(&host->ended) == HOST_ENDED_CLOSED))
		return 0;
	end = events + max;
	if (G_UNLIKELY(!inside_enter_alone(&host->inside, &mark)))
		return poll_beside(host);
	slots = atomic_load(&host->slots);
	g = atomic_load(&host->generations[0]);
	/* As long as there was no swap, the first place of the list is the only one. */
	if (G_LIKELY(slots == 1 && g))
		p = poll_generation(host, g, p, end);
	else
		p = poll_several(host, slots, p, end);
	inside_leave_alone(mark);
	if (G_UNLIKELY(atomic_load(&host->want_room) | atomic_load(&host->end_due)))
		p.to = poll_own(host, p.to, end);
	return (int32_t)(p.to == events ? p.status : p.to - events);
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
