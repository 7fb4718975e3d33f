/* SPDX-License-Identifier: BSD-2-Clause */
/* The device's thread: it runs queue pairs, takes packets in, keeps time. Everything it does to the
 * program's memory happens here, while no verb runs (base_lock). */
#include "tests/softverbs/nic.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/softverbs/cm.h"
#include "tests/softverbs/delay.h"
#include "tests/softverbs/fabric.h"
#include "tests/softverbs/held.h"
#include "tests/softverbs/turns.h"

/* Packets of this process to itself, and queue pairs, that are served before the lock is given up. */
#define NIC_SHARE 32
#define NIC_FDS (2 * FABRIC_NODES + 2)

static bool nic_running;
/* The last object is closed: the thread is to end, and somebody waits for it. */
static bool nic_stopping;
static pthread_t nic_thread;
static pthread_cond_t nic_stopped = PTHREAD_COND_INITIALIZER;
static bool nic_asleep;
/* Something came up since the links were last served. */
static bool nic_again;
static int nic_event = -1;
static struct list nic_ready = {&nic_ready, &nic_ready};
static pthread_cond_t nic_settled = PTHREAD_COND_INITIALIZER;
/* Counts the times that the device found nothing to do. */
static uint64_t nic_idle_count;

void nic_wake(void)
{
	nic_again = true;
	if (!nic_asleep)
		return;
	nic_asleep = false;
	(void)!write(nic_event, &(uint64_t){1}, sizeof(uint64_t));
}

void nic_run(struct qp *qp)
{
	if (list_empty(&qp->run))
		list_append(&nic_ready, &qp->run);
	nic_wake();
}

static void nic_lose(const struct packet *p)
{
	/* Port down: a request comes to nothing, and its sender learns that it did. */
	struct packet *lost;

	if (p->h.kind != WIRE_REQUEST)
		return;
	lost = fabric_packet(0);
	if (!lost)
		return;
	lost->h = p->h;
	lost->h.kind = WIRE_LOST;
	lost->h.size = 0;
	lost->h.dst_node = p->h.src_node;
	lost->h.src_rail = p->h.dst_rail;
	lost->h.dst_rail = p->h.src_rail;
	lost->h.src_qpn = p->h.dst_qpn;
	lost->h.dst_qpn = p->h.src_qpn;
	fabric_send(lost);
}

void nic_receive(const struct packet *p)
{
	struct qp *qp = qp_find(p->h.dst_rail, p->h.dst_qpn);
	struct device *d = device_get(p->h.dst_rail);

	if (p->h.kind == WIRE_CM) {
		cm_receive(p);
	} else if (!d || !d->port_up) {
		nic_lose(p);
	} else if (p->h.kind == WIRE_REQUEST) {
		responder_request(qp, p);
	} else if (qp) {
		requester_answer(qp, p);
	}
}

static void nic_qp_gone(struct qp *qp, void *arg)
{
	if (qp->attr.dest_qp_num >> FABRIC_QPN_BITS == *(uint16_t *)arg)
		requester_peer_gone(qp);
}

void nic_node_gone(uint16_t node)
{
	qp_each(nic_qp_gone, &node);
	cm_node_gone(node);
}

static void nic_rerun(struct qp *qp, void *arg)
{
	nic_run(qp);
}

static void nic_serve(struct qp *qp)
{
	bool again;

	list_remove(&qp->run);
	again = !requester_run(qp);
	if (!responder_run(qp) || again)
		nic_run(qp);
}

/* One turn. Returns whether there is more to do at once. */
static bool nic_turn(void)
{
	unsigned int share = NIC_SHARE;
	struct packet *p;

	while (share-- && !list_empty(&nic_ready))
		nic_serve(container(nic_ready.next, struct qp, run));
	share = NIC_SHARE;
	while (share-- && (p = fabric_local())) {
		nic_receive(p);
		fabric_free(p);
	}
	return !list_empty(&nic_ready) || fabric_pending();
}

struct nic_clock {
	uint64_t now;
	uint64_t next;
};

static void nic_qp_time(struct qp *qp, void *arg)
{
	struct nic_clock *c = arg;
	uint64_t due = requester_due(qp);

	if (due <= c->now) {
		requester_timer(qp, c->now);
		due = requester_due(qp);
	}
	c->next = due < c->next ? due : c->next;
}

/* Runs what is due, and returns when the next thing is. */
static uint64_t nic_time(void)
{
	struct nic_clock c = {base_now(), UINT64_MAX};
	uint64_t due;

	qp_each(nic_qp_time, &c);
	due = cq_late(c.now);
	c.next = due < c.next ? due : c.next;
	due = delay_time(c.now);
	c.next = due < c.next ? due : c.next;
	due = cm_time(c.now);
	return due < c.next ? due : c.next;
}

bool nic_step(uint32_t (*pick)(uint32_t below))
{
	uint32_t ready = 0, packets = fabric_arrived(), choice;
	struct list *i;
	struct packet *p;

	if (fabric_wants_run())
		qp_each(nic_rerun, NULL);
	list_for_each(i, &nic_ready) ready++;
	if (!ready && !packets)
		return false;
	choice = pick(ready + packets);
	if (choice < ready) {
		for (i = nic_ready.next; choice; choice--)
			i = i->next;
		nic_serve(container(i, struct qp, run));
	} else if ((p = fabric_local_nth(choice - ready))) {
		nic_receive(p);
		fabric_free(p);
	}
	return true;
}

uint64_t nic_due(bool patient)
{
	uint64_t next = nic_time(), held = held_time(base_now());

	return !patient && held < next ? held : next;
}

static int nic_timeout(uint64_t next)
{
	uint64_t now = base_now();

	if (next == UINT64_MAX)
		return -1;
	if (next <= now)
		return 0;
	next = (next - now + 999999) / 1000000;
	return next > 1000 ? 1000 : (int)next;
}

static void *nic_main(void *arg)
{
	static struct pollfd fds[NIC_FDS];
	uint64_t count;
	size_t n;
	int timeout;

	base_lock();
	while (!nic_stopping) {
		bool busy = nic_turn();
		uint64_t next = nic_time();
		uint64_t held = held_time(base_now());

		nic_again = false;
		fds[0].fd = nic_event;
		fds[0].events = POLLIN;
		n = 1 + fabric_poll(fds + 1, NIC_FDS - 1);
		if (fabric_wants_run())
			qp_each(nic_rerun, NULL);
		busy = busy || nic_again || !list_empty(&nic_ready) || fabric_pending();
		timeout = busy ? 0 : nic_timeout(next);
		if (timeout == -1) {
			nic_idle_count++;
			pthread_cond_broadcast(&nic_settled);
			timeout = nic_timeout(held);
		} else if (held < next && timeout > nic_timeout(held)) {
			timeout = nic_timeout(held);
		}
		nic_asleep = true;
		base_unlock();
		poll(fds, n, timeout);
		base_lock();
		nic_asleep = false;
		if (fds[0].revents)
			(void)!read(nic_event, &count, sizeof(count));
		fabric_serve(fds + 1, n - 1);
	}
	base_unlock();
	return arg;
}

/* After fork() the child has the memory but not the thread: its device is new, as if it had opened
 * nothing. (The kernel keeps the parent's objects alive for a child that inherits the file; that is
 * a case for the guest.) */
static void nic_forked(void)
{
	nic_running = false;
	nic_asleep = false;
	/* Shared with the parent otherwise. */
	if (nic_event >= 0)
		close(nic_event);
	nic_event = -1;
	list_init(&nic_ready);
	fabric_forked();
	cm_forked();
	delay_forked();
	qp_forked();
	cq_forked();
	key_forked();
	device_forked();
	base_forked();
}

static void nic_before_fork(void)
{
	base_lock();
}

static void nic_after_fork(void)
{
	base_unlock();
}

void nic_start(void)
{
	static bool hooked;
	sigset_t all, old;

	while (nic_stopping)
		base_wait(&nic_stopped);
	if (nic_running)
		return;
	nic_running = true;
	if (!hooked)
		pthread_atfork(nic_before_fork, nic_after_fork, nic_forked);
	hooked = true;
	if (nic_event < 0)
		nic_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fabric_start();
	if (turns_on())
		return;
	/* Signals are the program's business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&nic_thread, NULL, nic_main, NULL))
		nic_running = false;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void nic_stop_if_unused(void)
{
	base_lock();
	if (!nic_running || nic_stopping || object_count(OBJECT_CM_ID) ||
	    object_count(OBJECT_CM_CHANNEL) || !cm_contexts_close() ||
	    object_count(OBJECT_CONTEXT)) {
		base_unlock();
		return;
	}
	nic_stopping = true;
	nic_wake();
	base_unlock();
	if (!turns_on())
		pthread_join(nic_thread, NULL);
	base_lock();
	delay_stop();
	fabric_stop();
	close(nic_event);
	nic_event = -1;
	object_bury();
	nic_running = false;
	nic_stopping = false;
	pthread_cond_broadcast(&nic_stopped);
	base_unlock();
}

EXPORT void softverbs_settle(void)
{
	uint64_t before;

	base_lock();
	if (turns_on())
		turns_settle();
	before = nic_idle_count;
	nic_wake();
	while (!turns_on() && nic_running && nic_idle_count == before)
		base_wait(&nic_settled);
	base_unlock();
}
