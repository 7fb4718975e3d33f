/* SPDX-License-Identifier: BSD-2-Clause */
/* lane.c - completion queues and the channels that wake who waits for them. */
#include "backends/mock/mock.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

int mock_create_channel(struct native_context *c, struct native_lane **out)
{
	struct native *n = c->native;
	struct native_lane *l = mock_alloc(n, sizeof(*l));
	int error;

	if (!l)
		return ENOMEM;
	l->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (l->fd < 0) {
		error = errno;
		mock_free(n, l);
		return error;
	}
	l->native = n;
	l->context = c;
	l->news.event.kind = NATIVE_EV_LANE_ERROR;
	l->news.event.context = c->index;
	l->news.event.lane = l;
	fabric_lock();
	l->next = n->lanes;
	n->lanes = l;
	c->nlanes++;
	fabric_unlock();
	*out = l;
	return 0;
}

int mock_create_cq(struct native_lane *l, uint32_t depth)
{
	struct mock_cqe *cq;
	uint32_t room = 64;

	if (l->cq || depth == 0 || depth > MOCK_MAX_CQ)
		return EINVAL;
	/* Room for deleted entries and planned duplicates too; a power of two, for wrapping. */
	while (room < 2 * depth + 64)
		room *= 2;
	cq = mock_alloc(l->native, (uint64_t)room * sizeof(*cq));
	if (!cq)
		return ENOMEM;
	fabric_lock();
	l->cq = cq;
	l->room = room;
	l->depth = depth;
	fabric_unlock();
	return 0;
}

int mock_destroy_cq(struct native_lane *l)
{
	struct mock_cqe *cq;
	int error = 0;

	fabric_lock();
	cq = l->cq;
	if (!cq)
		error = EINVAL;
	else if (l->conns)
		error = EBUSY;
	else
		l->cq = NULL;
	fabric_unlock();
	if (!error)
		mock_free(l->native, cq);
	return error;
}

void lane_free(struct native_lane *l)
{
	struct native *n = l->native;

	close(l->fd);
	mock_free(n, l->cq);
	mock_free(n, l);
}

int mock_destroy_channel(struct native_lane *l)
{
	struct native *n = l->native;

	fabric_lock();
	if (l->cq) {
		fabric_unlock();
		return EBUSY;
	}
	for (struct native_lane **p = &n->lanes; *p; p = &(*p)->next) {
		if (*p != l)
			continue;
		*p = l->next;
		break;
	}
	l->context->nlanes--;
	news_forget(n, &l->news);
	fabric_unlock();
	lane_free(l);
	return 0;
}

void lane_kick(struct native_lane *l)
{
	uint64_t one = 1;

	if (atomic_exchange(&l->armed, false))
		(void)!write(l->fd, &one, sizeof(one));
}

/* Overrun: the queue has lost a completion and answers nothing any more (ibv_poll_cq(3)). */
static void lane_break(struct native_lane *l)
{
	if (atomic_exchange(&l->broken, true))
		return;
	for (struct native_conn *c = l->conns; c; c = c->next)
		conn_fail(c);
	news_tell(l->native, &l->news);
	lane_kick(l);
}

void lane_push(struct native_lane *l, const struct native_cqe *cqe, uint64_t conn, bool counted)
{
	uint32_t tail = atomic_load_explicit(&l->cq_tail, memory_order_relaxed);
	uint32_t used = tail - atomic_load_explicit(&l->cq_head, memory_order_acquire);
	struct mock_cqe *e;

	if (!l->cq || atomic_load(&l->broken))
		return;
	if (used == l->room || (counted && atomic_load(&l->live) >= l->depth)) {
		lane_break(l);
		return;
	}
	e = &l->cq[tail & (l->room - 1)];
	e->cqe = *cqe;
	e->conn = conn;
	e->counted = counted;
	atomic_store_explicit(&e->state, MOCK_CQE_LIVE, memory_order_relaxed);
	if (counted)
		atomic_fetch_add(&l->live, 1);
	/* Sequentially consistent, like arm's store and look: one of the two sees the other. */
	atomic_store(&l->cq_tail, tail + 1);
	lane_kick(l);
}

void lane_delete(struct native_lane *l, uint64_t conn)
{
	uint32_t tail = atomic_load(&l->cq_tail);

	if (!l->cq)
		return;
	for (uint32_t i = atomic_load(&l->cq_head); i != tail; i++) {
		struct mock_cqe *e = &l->cq[i & (l->room - 1)];
		int live = MOCK_CQE_LIVE;

		if (e->conn == conn &&
		    atomic_compare_exchange_strong(&e->state, &live, MOCK_CQE_DELETED) &&
		    e->counted)
			atomic_fetch_sub(&l->live, 1);
	}
}

int mock_poll_cq(struct native_lane *l, struct native_cqe *cqe, int max)
{
	uint32_t head, tail;
	int n = 0;

	if (fabric_trylock()) {
		run_lane(l);
		fabric_unlock();
	}
	if (atomic_load(&l->broken))
		return -1;
	head = atomic_load_explicit(&l->cq_head, memory_order_relaxed);
	tail = atomic_load_explicit(&l->cq_tail, memory_order_acquire);
	for (; n < max && head != tail; head++) {
		struct mock_cqe *e = &l->cq[head & (l->room - 1)];
		int live = MOCK_CQE_LIVE;

		if (!atomic_compare_exchange_strong(&e->state, &live, MOCK_CQE_TAKEN))
			continue;
		if (e->counted)
			atomic_fetch_sub(&l->live, 1);
		cqe[n++] = e->cqe;
	}
	atomic_store_explicit(&l->cq_head, head, memory_order_release);
	return n;
}

/*
 * The device runs only when it is polled, so who goes to sleep with work left for it would sleep
 * for ever: such a lane is woken at once.
 */
int mock_arm_cq(struct native_lane *l)
{
	bool pending = true;

	atomic_store(&l->armed, true);
	if (fabric_trylock()) {
		pending = run_pending(l);
		fabric_unlock();
	}
	if (pending || atomic_load(&l->broken) ||
	    atomic_load(&l->cq_tail) != atomic_load(&l->cq_head))
		lane_kick(l);
	return 0;
}

int mock_lane_fd(struct native_lane *l)
{
	return l->fd;
}

int mock_take_wakeups(struct native_lane *l)
{
	uint64_t count;

	if (read(l->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return errno;
	return 0;
}
