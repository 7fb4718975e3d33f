/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * socket.c - where other processes find a device: an abstract Unix socket (unix(7)) named by its
 * incarnation, and the thread that serves connections while the host does nothing.  A NIC needs no
 * living program to let a peer read its memory, so this one is not to need a polling one.
 */
#include "config.h" /* accept4, struct ucred, pthread_setname_np */

#include "backends/mock/mock.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "backends/mock/packet.h"

#define MOCK_BACKLOG 1024
#define LOOK_EVERY 16u /* calls of next_event, so that a poll costs no system call */

/* "\0escrow-mock-" and 32 hexadecimal digits */
static socklen_t name_of(const uint8_t *incarnation, struct sockaddr_un *name)
{
	static const char digits[] = "0123456789abcdef", prefix[] = "escrow-mock-";
	char *at = name->sun_path + 1;

	memset(name, 0, sizeof(*name));
	name->sun_family = AF_UNIX;
	memcpy(at, prefix, sizeof(prefix) - 1);
	at += sizeof(prefix) - 1;
	for (int i = 0; i < 16; i++) {
		*at++ = digits[incarnation[i] >> 4];
		*at++ = digits[incarnation[i] & 15];
	}
	return (socklen_t)(at - (char *)name);
}

static bool is_ours(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

static int watch(int epoll, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = {.events = events, .data.u64 = data};

	return epoll_ctl(epoll, op, fd, &event) ? errno : 0;
}

int socket_listen(struct native *n)
{
	struct sockaddr_un name;
	socklen_t len = name_of(n->incarnation, &name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;

	if (fd < 0)
		return errno;
	if (bind(fd, (struct sockaddr *)&name, len) || listen(fd, MOCK_BACKLOG))
		error = errno;
	if (!error)
		error = watch(n->epoll_fd, EPOLL_CTL_ADD, fd, EPOLLIN, 0);
	if (error) {
		close(fd);
		return error;
	}
	n->listen_fd = fd;
	return 0;
}

void socket_shut(struct native *n)
{
	while (n->nknocks)
		close(n->knocks[--n->nknocks]);
	if (n->listen_fd >= 0)
		close(n->listen_fd);
	n->listen_fd = -1;
}

int socket_dial(const uint8_t *incarnation)
{
	struct sockaddr_un name;
	socklen_t len = name_of(incarnation, &name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error;

	if (fd < 0)
		return -errno;
	error = connect(fd, (struct sockaddr *)&name, len) ? errno : is_ours(fd) ? 0 : EACCES;
	if (!error)
		return fd;
	close(fd);
	return -error;
}

/* ---- Who has come -------------------------------------------------------------------------- */
static void knock_drop(struct native *n, uint32_t i, bool shut)
{
	if (shut)
		close(n->knocks[i]);
	n->knocks[i] = n->knocks[--n->nknocks];
}

/* True: the socket belongs to a request now. */
static bool take_hello(struct native *n, int fd)
{
	const uint8_t *body = n->packet + sizeof(struct packet);
	struct packet p;

	memcpy(&p, n->packet, sizeof(p));
	if (p.kind != PACKET_HELLO || p.payload < 16 || p.payload - 16 > NATIVE_PRIVATE_BYTES ||
	    p.addr >= NATIVE_MAX_RAILS || memcmp(body, n->incarnation, 16) != 0)
		return false;
	return meet_request(n, fd, (uint32_t)p.addr, body + 16, p.payload - 16) != NULL;
}

static void hear_knocks(struct native *n)
{
	for (uint32_t i = n->nknocks; i-- > 0;) {
		int fd = n->knocks[i], got = packet_receive(fd, n->packet);
		bool taken;

		if (got == 0)
			continue;
		taken = got > 0 && take_hello(n, fd);
		if (taken)
			(void)epoll_ctl(n->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		knock_drop(n, i, !taken);
	}
}

static void take_callers(struct native *n)
{
	for (;;) {
		int fd = accept4(n->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		if (!is_ours(fd) || watch(n->epoll_fd, EPOLL_CTL_ADD, fd, EPOLLIN, 0)) {
			close(fd);
			continue;
		}
		/* Who connects and says nothing must not keep others out. */
		if (n->nknocks == MOCK_KNOCKS)
			hear_knocks(n);
		if (n->nknocks == MOCK_KNOCKS)
			knock_drop(n, 0, true);
		n->knocks[n->nknocks++] = fd;
	}
}

static void serve_all(struct native *n)
{
	for (struct native_lane *l = n->lanes; l; l = l->next)
		for (struct native_conn *c = l->conns; c; c = c->next) {
			if (c->link.fd < 0)
				continue;
			link_serve(c);
			run_conn(c);
		}
}

void socket_look(struct native *n)
{
	struct epoll_event event;

	if (n->looked++ % LOOK_EVERY || n->listen_fd < 0)
		return;
	if (epoll_wait(n->epoll_fd, &event, 1, 0) <= 0)
		return;
	fabric_lock();
	take_callers(n);
	hear_knocks(n);
	if (!n->threaded)
		serve_all(n);
	fabric_unlock();
}

/* ---- Connections --------------------------------------------------------------------------- */
void socket_watch(struct native_conn *c)
{
	struct native *n = c->native;
	struct mock_link *l = &c->link;
	int epoll = n->threaded ? n->thread_epoll : n->epoll_fd;
	uint32_t events = EPOLLIN | (l->want_out ? EPOLLOUT : 0u);

	if (l->fd < 0)
		return;
	/* A held device is not woken: taken out, for EPOLLHUP cannot be masked (epoll_ctl(2)). */
	if (n->faults.nic_held) {
		socket_unwatch(c);
		return;
	}
	(void)watch(epoll, l->polled ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, l->fd, events, c->serial);
	l->polled = true;
}

void socket_unwatch(struct native_conn *c)
{
	struct native *n = c->native;

	/* Not left to close(2): a child of a fork may hold the same socket. */
	if (c->link.polled)
		(void)epoll_ctl(n->threaded ? n->thread_epoll : n->epoll_fd, EPOLL_CTL_DEL,
				c->link.fd, NULL);
	c->link.polled = false;
}

/* By serial: the connection may have been destroyed since epoll_wait returned. */
static void serve_one(struct native *n, uint64_t serial)
{
	for (struct native_lane *l = n->lanes; l; l = l->next)
		for (struct native_conn *c = l->conns; c; c = c->next) {
			if (c->serial != serial)
				continue;
			if (c->link.fd >= 0)
				link_serve(c);
			run_conn(c);
			return;
		}
}

static void *thread_main(void *data)
{
	struct native *n = data;
	struct epoll_event events[16];
	bool stop = false;

	while (!stop) {
		int count = epoll_wait(n->thread_epoll, events, 16, -1);

		fabric_lock();
		for (int i = 0; i < count; i++)
			if (events[i].data.u64)
				serve_one(n, events[i].data.u64);
		stop = n->stop;
		fabric_unlock();
	}
	return NULL;
}

void socket_start_thread(struct native *n)
{
	sigset_t all, before;

	if (n->threaded || !n->may_thread)
		return;
	n->thread_epoll = epoll_create1(EPOLL_CLOEXEC);
	n->thread_wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	n->stop = false;
	if (n->thread_epoll < 0 || n->thread_wake < 0 ||
	    watch(n->thread_epoll, EPOLL_CTL_ADD, n->thread_wake, EPOLLIN, 0))
		goto close_fds;
	/* Inherited by the thread: signals are the host's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	n->threaded = pthread_create(&n->thread, NULL, thread_main, n) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (n->threaded) {
		pthread_setname_np(n->thread, "escrow-mock-nic");
		return;
	}
close_fds:
	/* Without a thread, then and later, the sockets are served by who polls. */
	n->may_thread = false;
	if (n->thread_epoll >= 0)
		close(n->thread_epoll);
	if (n->thread_wake >= 0)
		close(n->thread_wake);
}

void socket_stop_thread(struct native *n)
{
	uint64_t one = 1;

	if (!n->threaded)
		return;
	fabric_lock();
	n->stop = true;
	fabric_unlock();
	(void)!write(n->thread_wake, &one, sizeof(one));
	pthread_join(n->thread, NULL);
	fabric_lock();
	n->threaded = false;
	fabric_unlock();
	close(n->thread_wake);
	close(n->thread_epoll);
}
