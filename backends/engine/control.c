/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * control.c - the control runner: who makes the native steps that may sleep, one at a time.
 *
 * Where the native side needs it the runner is a thread of its own, with all signals blocked and a
 * name, joined before CLOSED is told; else it is the caller of poll, so that tests with a virtual
 * clock see one deterministic order.
 */
#define _GNU_SOURCE /* pthread_setname_np(3) */
#include "backends/engine/engine.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ROUNDS 16           /* of the work list in one pass: what is left waits for the next */
#define NEWS 64             /* native events in one pass */
#define LONGEST_WAIT_MS 500 /* events may be lost (uverbs drops them under pressure): look anyway */

/* The thread, if it is asleep. */
static void rouse(struct escrow_engine *e)
{
	uint64_t one = 1;

	if (!atomic_load(&e->control_asleep) || !atomic_exchange(&e->control_asleep, 0))
		return;
	if (write(e->control_fd, &one, sizeof(one)) < 0)
		return; /* EAGAIN: it will wake anyway */
}

static void kick(struct escrow_engine *e)
{
	if (!e->threaded) {
		event_wake(e);
		return;
	}
	/* Whoever is the runner looks at the list once more when he has stopped, and so does the thread
	 * before it sleeps: each in the order in which the work was put on the list before this look. */
	if (!atomic_load(&e->control_busy))
		rouse(e);
}

/* False: it is on the list already. */
static bool put(struct escrow_engine *e, struct work *work)
{
	struct work *head;

	if (atomic_exchange(&work->queued, 1))
		return false;
	head = atomic_load_explicit(&e->inbox, memory_order_relaxed);
	do {
		work->next = head;
	} while (!atomic_compare_exchange_weak(&e->inbox, &head, work));
	return true;
}

void en_work(struct escrow_engine *e, struct work *work)
{
	if (put(e, work))
		kick(e);
}

/* What was put on the list before is taken by who clears it afterwards. */
static void help_due(struct escrow_engine *e)
{
	if (!(atomic_load(&e->poll_due) & DUE_HELP))
		atomic_fetch_or(&e->poll_due, DUE_HELP);
}

void en_help_work(struct escrow_engine *e, struct work *work)
{
	if (!put(e, work))
		return;
	if (e->threaded)
		help_due(e);
	else
		kick(e);
}

void en_wake_at(struct escrow_engine *e, uint64_t ns)
{
	uint64_t next = atomic_load(&e->control_next);

	while (ns < next)
		if (atomic_compare_exchange_weak(&e->control_next, &next, ns)) {
			/* It sleeps till the one that was next when it looked. */
			if (e->threaded)
				rouse(e);
			return;
		}
}

bool en_control_has_work(struct escrow_engine *e)
{
	return atomic_load(&e->inbox) || atomic_load(&e->ndue);
}

#define OBJECT_OF(work_, type) ((struct type *)((char *)(work_)-offsetof(struct type, work)))

static void advance(struct escrow_engine *e, struct work *work)
{
	switch ((enum work_kind)work->kind) {
	case WORK_ENGINE:
		en_engine_advance(e);
		break;
	case WORK_REGION:
		en_region_advance(e, OBJECT_OF(work, region));
		break;
	case WORK_PEER:
		en_peer_advance(e, OBJECT_OF(work, peer));
		break;
	case WORK_GRANT:
		en_grant_advance(e, OBJECT_OF(work, grant));
		break;
	case WORK_WINDOW:
		en_window_advance(e, OBJECT_OF(work, window));
		break;
	case WORK_REMOTE:
		en_remote_advance(e, OBJECT_OF(work, remote));
		break;
	}
}

/* What is on the list, oldest first. */
static struct work *take(struct escrow_engine *e)
{
	struct work *list = atomic_exchange(&e->inbox, NULL), *oldest = NULL, *next;

	for (; list; list = next) {
		next = list->next;
		list->next = oldest;
		oldest = list;
	}
	return oldest;
}

static void run_inbox(struct escrow_engine *e)
{
	struct work *work = take(e), *next;

	for (; work; work = next) {
		next = work->next;
		atomic_store(&work->queued, 0);
		advance(e, work);
	}
	en_windows_post(e, false);
}

/* ---- Help --------------------------------------------------------------------------------------- */
#define HELP_ROUNDS 4 /* settled, bound or ended: one leads to the next */

static bool help(struct escrow_engine *e, struct work *work)
{
	struct grant *g = OBJECT_OF(work, grant);

	if (work->kind == WORK_WINDOW)
		return en_window_help(e, OBJECT_OF(work, window));
	if (work->kind != WORK_GRANT || !en_grant_helps(e, g))
		return false;
	en_grant_advance(e, g);
	return true;
}

/* One round; what is not for it stands in *rest, and what is due on a lane that somebody has stays due. */
static void help_round(struct escrow_engine *e, struct work **rest)
{
	struct work *work = take(e), *next;

	for (; work; work = next) {
		next = work->next;
		atomic_store(&work->queued, 0);
		if (help(e, work) || atomic_exchange(&work->queued, 1))
			continue;
		work->next = *rest;
		*rest = work;
	}
	if (e->ndue)
		en_windows_post(e, true);
}

/* locked, as the runner. */
static void help_all(struct escrow_engine *e)
{
	struct work *rest = NULL, *next;
	int rounds = 0;

	e->deferred = 0;
	/* None of it waits for anything. */
	ledger_hold(e->ledger);
	while (rounds++ < HELP_ROUNDS && en_control_has_work(e))
		help_round(e, &rest);
	ledger_let(e->ledger);
	for (; rest; rest = next) {
		next = rest->next;
		atomic_store(&rest->queued, 0);
		put(e, rest);
	}
}

static void help_over(struct escrow_engine *e)
{
	atomic_store(&e->control_busy, 0);
	if (en_control_has_work(e))
		kick(e);
}

static bool help_begin(struct escrow_engine *e)
{
	return e->threaded && !atomic_exchange(&e->control_busy, 1);
}

/*
 * Who asks for one mostly asks for others behind it, and only a poll tells of any: that does all that was left for it,
 * in one post for each connection.  Not while the host waits for its descriptor: nothing wakes it for this.
 */
static bool defers(struct escrow_engine *e)
{
	if (!e->threaded || e->deferred == BIND_CHAIN - 1 || atomic_load(&e->armed))
		return false;
	e->deferred++;
	return true;
}

void en_help_ask(struct escrow_engine *e, struct work *work)
{
	if (work)
		put(e, work);
	if (defers(e)) {
		help_due(e);
		/* Either it sees that something is due, or is seen here: it arms before it looks. */
		if (atomic_load(&e->armed))
			kick(e);
	} else if (help_begin(e)) {
		help_all(e);
		help_over(e);
	} else {
		kick(e);
	}
}

void en_help_poll(struct escrow_engine *e)
{
	atomic_fetch_and(&e->poll_due, ~DUE_HELP);
	if (!help_begin(e))
		return;
	if (lock_try(&e->lock)) {
		help_all(e);
		engine_unlock(e);
	}
	help_over(e);
}

/* ---- A pass ------------------------------------------------------------------------------------- */
static void run_news(struct escrow_engine *e)
{
	struct native_event event;
	int i;

	for (i = 0; i < NEWS; i++) {
		if (e->ops->next_event(e->native, &event) != 1)
			return;
		engine_lock(e);
		en_news(e, &event);
		engine_unlock(e);
	}
}

/* Deadlines are few and seldom, so all that could have one is looked at. */
static void run_deadlines(struct escrow_engine *e, uint64_t now)
{
	uint32_t i;

	if (now < atomic_load(&e->control_next))
		return;
	atomic_store(&e->control_next, UINT64_MAX);
	for (i = 0; i < e->config.max_peers; i++)
		if (atomic_load(&e->peers[i].state) != PEER_FREE)
			en_work(e, &e->peers[i].work);
	en_work(e, &e->work);
}

void en_control_run(struct escrow_engine *e)
{
	uint64_t now = engine_now(e);
	int rounds = 0;

	if (atomic_exchange(&e->control_busy, 1))
		return;
	e->now = now;
	run_news(e);
	run_deadlines(e, now);
	while (rounds++ < ROUNDS && en_control_has_work(e)) {
		engine_lock(e);
		run_inbox(e);
		engine_unlock(e);
	}
	/* What a device said meanwhile was read behind a step (native.h, is_lost): its descriptor wakes nobody for that. */
	if (e->news_read) {
		e->news_read = 0;
		run_news(e);
	}
	atomic_store(&e->control_busy, 0);
}

/* ---- The thread -------------------------------------------------------------------------------- */
static int wait_ms(struct escrow_engine *e)
{
	uint64_t next = atomic_load(&e->control_next), now;

	if (en_control_has_work(e))
		return 0;
	if (next == UINT64_MAX)
		return LONGEST_WAIT_MS;
	now = engine_now(e);
	if (next <= now)
		return 0;
	if (next - now >= LONGEST_WAIT_MS * UINT64_C(1000000))
		return LONGEST_WAIT_MS;
	return (int)((next - now + 999999) / 1000000);
}

/*
 * The event of a completion may be lost, or the queue not have been armed: nothing then wakes a host that sleeps.  What
 * is found is told as ever, and wakes it.  One that has taken completions since the last look is awake, though it was
 * armed: its lanes are its own.
 */
static void look_for_the_host(struct escrow_engine *e)
{
	struct lane *lane = e->lanes;
	uint64_t now = atomic_load(&e->armed) ? engine_now(e) : 0;
	uint64_t taken = atomic_load(&e->counters.completions);
	bool awake = taken != e->look_taken;

	if (now < e->look_at || !now)
		return;
	e->look_at = now + LONGEST_WAIT_MS * UINT64_C(1000000);
	e->look_taken = taken;
	if (awake)
		return;
	for (; lane < e->lanes + e->nlanes; lane++) {
		if (!(atomic_load(&e->lanes_used) & lane->bit) || !en_lane_trylock(lane))
			continue;
		en_lane_poll(lane);
		en_lane_unlock(lane);
	}
}

static void *thread_main(void *arg)
{
	struct escrow_engine *e = arg;
	struct pollfd fds[2] = {{.fd = e->control_fd, .events = POLLIN},
				{.fd = e->ops->event_fd(e->native), .events = POLLIN}};
	uint64_t n;

	pthread_setname_np(pthread_self(), "escrow-control");
	while (!atomic_load(&e->thread_stop)) {
		atomic_store(&e->control_asleep, 1);
		if (poll(fds, 2, wait_ms(e)) < 0 && errno != EINTR)
			break;
		atomic_store(&e->control_asleep, 0);
		if (read(e->control_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
			break;
		en_control_run(e);
		look_for_the_host(e);
	}
	return NULL;
}

int en_thread_start(struct escrow_engine *e)
{
	sigset_t all, old;
	int rc;

	e->control_fd = -1;
	if (!e->threaded) {
		atomic_store(&e->poll_due, DUE_CONTROL);
		return event_watch(e, e->ops->event_fd(e->native));
	}
	e->control_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (e->control_fd < 0)
		return errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&e->thread, NULL, thread_main, e);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	e->thread_made = rc == 0;
	return rc;
}

void en_thread_join(struct escrow_engine *e)
{
	uint64_t one = 1;

	if (!e->thread_made)
		return;
	atomic_store(&e->thread_stop, 1);
	if (write(e->control_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		return;
	pthread_join(e->thread, NULL);
	e->thread_made = 0;
}
