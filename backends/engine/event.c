/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queue is Vyukov's intrusive list with many producers and one consumer: a push is one exchange
 * and one store, so no pusher ever waits for another.
 */
#include "backends/engine/engine.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

void event_init(struct event_queue *q)
{
	atomic_init(&q->stub.next, NULL);
	atomic_init(&q->tail, &q->stub);
	q->head = &q->stub;
	q->seq = 0;
}

/* The queue is at its end, or at the stub, which stands behind the last one so that it can go. */
struct event_link *event_pop_last(struct event_queue *q)
{
	struct event_link *head = q->head;
	struct event_link *next = atomic_load_explicit(&head->next, memory_order_acquire);

	if (head == &q->stub) {
		if (!next)
			return NULL;
		q->head = next;
		head = next;
		next = atomic_load_explicit(&head->next, memory_order_acquire);
	}
	if (next) {
		q->head = next;
		return head;
	}
	/* The last one: it can go only when something stands behind it, so the stub does. */
	if (atomic_load(&q->tail) != head)
		return NULL;
	event_push(q, &q->stub);
	next = atomic_load_explicit(&head->next, memory_order_acquire);
	if (!next)
		return NULL;
	q->head = next;
	return head;
}

void event_wake(struct escrow_engine *e)
{
	uint64_t one = 1;

	if (atomic_exchange(&e->armed, 0))
		if (write(e->wake_fd, &one, sizeof(one)) < 0)
			return; /* EAGAIN: it is readable already */
}

void event_send(struct escrow_engine *e, struct event_node *node, const struct event_what *what)
{
	node->event = *what;
	event_put(e, node);
}

/* [poll] A host's wait is woken by a new event, a completion, native news, or the next deadline. */
int event_open(struct escrow_engine *e)
{
	struct epoll_event ep = {.events = EPOLLIN};

	event_init(&e->events);
	e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	e->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (e->wake_fd < 0 || e->epoll_fd < 0 || e->timer_fd < 0)
		return errno;
	if (epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, e->wake_fd, &ep) ||
	    epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, e->timer_fd, &ep))
		return errno;
	return 0;
}

void event_close(struct escrow_engine *e)
{
	if (e->wake_fd >= 0)
		close(e->wake_fd);
	if (e->epoll_fd >= 0)
		close(e->epoll_fd);
	if (e->timer_fd >= 0)
		close(e->timer_fd);
	e->wake_fd = e->epoll_fd = e->timer_fd = -1;
}

/* A descriptor of the native side wakes the host too; -1 is none. */
int event_watch(struct escrow_engine *e, int fd)
{
	struct epoll_event ep = {.events = EPOLLIN};

	if (fd < 0)
		return 0;
	return epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, fd, &ep) ? errno : 0;
}

void event_unwatch(struct escrow_engine *e, int fd)
{
	if (fd >= 0 && e->epoll_fd >= 0)
		epoll_ctl(e->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

int32_t engine_event_fd(struct escrow_engine *e)
{
	if (!engine_here(e))
		return ESCROW_E_STATE;
	return e->config.events ? e->epoll_fd : ESCROW_E_UNSUPPORTED;
}

/* [poll] The timer fires at the next deadline of an op or of the control steps. */
static void set_timer(struct escrow_engine *e, uint64_t now, uint64_t next)
{
	struct itimerspec at = {0};
	uint64_t ns;

	if (next == UINT64_MAX && !e->timer_set)
		return;
	if (next != UINT64_MAX) {
		ns = next > now ? next - now : 1;
		at.it_value.tv_sec = (time_t)(ns / 1000000000u);
		at.it_value.tv_nsec = (long)(ns % 1000000000u);
	}
	timerfd_settime(e->timer_fd, 0, &at, NULL);
	e->timer_set = next != UINT64_MAX;
}

static void clear_readiness(struct escrow_engine *e)
{
	uint64_t n;

	/* Non-blocking: what is not there is no news. */
	if (read(e->wake_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		return;
	if (read(e->timer_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		return;
}

escrow_status engine_arm(struct escrow_engine *e, uint32_t flags)
{
	uint64_t now, next;
	bool idle;

	if (!engine_here(e))
		return ESCROW_E_STATE;
	if (!state_allows(SLOT_ARM, engine_state(e)))
		return ESCROW_E_STATE;
	if (flags || !e->config.events)
		return ESCROW_E_UNSUPPORTED;
	clear_readiness(e);
	/* Till the timer is set, any deadline that comes is earlier. */
	atomic_store(&e->armed_until, UINT64_MAX);
	atomic_store(&e->armed, 1);
	/* What came before the flag was up made nothing readable: look once more. */
	now = engine_now(e);
	next = en_deadline_next(e);
	if (!e->threaded && atomic_load(&e->control_next) < next)
		next = atomic_load(&e->control_next);
	idle = en_lanes_arm(e);
	if (atomic_load(&e->poll_due) & DUE_HELP)
		en_help_poll(e);
	if (!idle || !event_empty(&e->events) || next <= now ||
	    (!e->threaded && en_control_has_work(e))) {
		atomic_store(&e->armed, 0);
		return ESCROW_EVENTS_PENDING;
	}
	set_timer(e, now, next);
	atomic_store(&e->armed_until, next);
	return ESCROW_OK;
}
