/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/fabric.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/softverbs/delay.h"
#include "tests/softverbs/device.h"
#include "tests/softverbs/link.h"
#include "tests/softverbs/nic.h"
#include "tests/softverbs/registry.h"

/* Bytes under way to one node, after which senders wait. */
#define FABRIC_WINDOW (1u << 20)

static uint16_t fabric_self;
static int fabric_lock_fd = -1;
static int fabric_listen_fd = -1;
static struct link_out *fabric_out[FABRIC_NODES];
static struct list fabric_in = {&fabric_in, &fabric_in};
/* Packets of this process to itself. */
static struct list fabric_inbox = {&fabric_inbox, &fabric_inbox};
static size_t fabric_inbox_bytes;
static bool fabric_was_full;
static bool fabric_drained;
/* What the descriptors of the last fabric_poll() belong to; NULL is the listening socket. */
static void *fabric_polled[2 * FABRIC_NODES + 1];

void fabric_start(void)
{
	struct sockaddr_un un;
	int node = registry_claim(&fabric_lock_fd);

	if (node < 0)
		return;
	fabric_self = (uint16_t)node;
	registry_address(fabric_self, &un);
	unlink(un.sun_path);
	fabric_listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fabric_listen_fd < 0 || bind(fabric_listen_fd, (struct sockaddr *)&un, sizeof(un)) ||
	    listen(fabric_listen_fd, SOMAXCONN)) {
		close(fabric_listen_fd);
		fabric_listen_fd = -1;
	}
}

static void fabric_close(void)
{
	if (fabric_listen_fd >= 0)
		close(fabric_listen_fd);
	if (fabric_lock_fd >= 0)
		close(fabric_lock_fd);
	fabric_listen_fd = -1;
	fabric_lock_fd = -1;
}

void fabric_stop(void)
{
	struct sockaddr_un un;
	unsigned int node;

	for (node = 0; node < FABRIC_NODES; node++) {
		/* The last words of ids that were destroyed. */
		if (fabric_out[node])
			link_flush(fabric_out[node]);
		if (fabric_out[node])
			link_close(fabric_out[node]);
		fabric_out[node] = NULL;
	}
	while (fabric_pending())
		fabric_free(fabric_local());
	while (!list_empty(&fabric_in))
		link_drop(container(fabric_in.next, struct link_in, node));
	if (fabric_listen_fd >= 0) {
		registry_address(fabric_self, &un);
		unlink(un.sun_path);
	}
	fabric_close();
}

void fabric_forked(void)
{
	struct list *i;
	unsigned int node;

	/* The parent's sockets and lock must not outlive the parent in us. */
	for (node = 0; node < FABRIC_NODES; node++) {
		if (fabric_out[node])
			close(fabric_out[node]->fd);
		fabric_out[node] = NULL;
	}
	list_for_each(i, &fabric_in) close(container(i, struct link_in, node)->fd);
	list_init(&fabric_in);
	list_init(&fabric_inbox);
	fabric_inbox_bytes = 0;
	fabric_close();
}

uint16_t fabric_node(void)
{
	return fabric_self;
}

struct packet *fabric_packet(size_t size)
{
	size_t padded = (size + 7u) & ~(size_t)7;
	struct packet *p = malloc(sizeof(*p) + padded);

	if (!p)
		return NULL;
	memset(p, 0, sizeof(*p));
	memset(p->payload + (padded < 8 ? 0 : padded - 8), 0, padded < 8 ? padded : 8);
	p->h.magic = WIRE_MAGIC;
	p->h.size = (uint32_t)size;
	return p;
}

void fabric_free(struct packet *p)
{
	free(p);
}

static void fabric_lose_link(uint16_t node)
{
	link_close(fabric_out[node]);
	fabric_out[node] = NULL;
	nic_node_gone(node);
}

static bool fabric_remote(struct packet *p)
{
	uint16_t node = p->h.dst_node;

	if (node >= FABRIC_NODES || fabric_listen_fd < 0) {
		fabric_free(p);
		return false;
	}
	if (!fabric_out[node])
		fabric_out[node] = link_open(node);
	if (!fabric_out[node]) {
		fabric_free(p);
		return false;
	}
	link_put(fabric_out[node], p);
	nic_wake();
	return true;
}

static bool fabric_put(struct packet *p)
{
	if (p->h.dst_node != fabric_self)
		return fabric_remote(p);
	fabric_inbox_bytes += sizeof(*p) + p->h.size;
	list_append(&fabric_inbox, &p->node);
	nic_wake();
	return true;
}

void fabric_repeat(struct packet *p)
{
	fabric_put(p);
}

bool fabric_send(struct packet *p)
{
	struct device *d = device_get(p->h.src_rail);

	p->h.src_node = fabric_self;
	if (p->h.kind != WIRE_CM && (!d || !d->port_up || p->h.dst_rail >= RAILS_MAX)) {
		fabric_free(p);
		return false;
	}
	if (d && (d->blackhole || d->gid_gone)) {
		fabric_free(p);
		return true;
	}
	delay_offer(p);
	return fabric_put(p);
}

bool fabric_room(uint16_t node)
{
	size_t used = fabric_inbox_bytes;

	if (node != fabric_self)
		used = node < FABRIC_NODES && fabric_out[node] ? fabric_out[node]->queued : 0;
	if (used < FABRIC_WINDOW)
		return true;
	fabric_was_full = true;
	return false;
}

static void fabric_less(size_t left)
{
	if (!fabric_was_full || left >= FABRIC_WINDOW / 2)
		return;
	fabric_was_full = false;
	fabric_drained = true;
}

static struct packet *fabric_take(struct packet *p)
{
	list_remove(&p->node);
	fabric_inbox_bytes -= sizeof(*p) + p->h.size;
	fabric_less(fabric_inbox_bytes);
	return p;
}

struct packet *fabric_local(void)
{
	if (list_empty(&fabric_inbox))
		return NULL;
	return fabric_take(container(fabric_inbox.next, struct packet, node));
}

uint32_t fabric_arrived(void)
{
	struct list *i;
	uint32_t n = 0;

	list_for_each(i, &fabric_inbox) n++;
	return n;
}

static bool fabric_same_flow(const struct wire_header *a, const struct wire_header *b)
{
	return (a->kind == WIRE_CM) == (b->kind == WIRE_CM) && a->src_rail == b->src_rail &&
	       a->dst_rail == b->dst_rail && a->src_qpn == b->src_qpn && a->dst_qpn == b->dst_qpn;
}

struct packet *fabric_local_nth(uint32_t nth)
{
	struct list *i, *wanted = fabric_inbox.next;

	while (nth--)
		wanted = wanted->next;
	list_for_each(i, &fabric_inbox)
	{
		struct packet *p = container(i, struct packet, node);

		if (fabric_same_flow(&p->h, &container(wanted, struct packet, node)->h))
			return fabric_take(p);
	}
	return NULL;
}

bool fabric_pending(void)
{
	return !list_empty(&fabric_inbox);
}

bool fabric_wants_run(void)
{
	bool run = fabric_drained;

	fabric_drained = false;
	return run;
}

size_t fabric_poll(struct pollfd *fds, size_t max)
{
	struct list *i;
	unsigned int node;
	size_t n = 0;

	if (fabric_listen_fd < 0)
		return 0;
	fabric_polled[n] = NULL;
	fds[n++] = (struct pollfd){.fd = fabric_listen_fd, .events = POLLIN};
	for (node = 0; node < FABRIC_NODES && n < max; node++) {
		struct link_out *l = fabric_out[node];

		if (!l)
			continue;
		if (!link_flush(l)) {
			fabric_lose_link((uint16_t)node);
			continue;
		}
		fabric_less(l->queued);
		fabric_polled[n] = l;
		fds[n].fd = l->fd;
		/* Nothing is ever read from it but its end. */
		fds[n].events = list_empty(&l->queue) ? POLLIN : POLLIN | POLLOUT;
		fds[n++].revents = 0;
	}
	list_for_each(i, &fabric_in)
	{
		struct link_in *l = container(i, struct link_in, node);

		if (n == max)
			break;
		fabric_polled[n] = l;
		fds[n++] = (struct pollfd){.fd = l->fd, .events = POLLIN};
	}
	return n;
}

static void fabric_accept(void)
{
	struct link_in *l;

	while ((l = link_accept(fabric_listen_fd)))
		list_append(&fabric_in, &l->node);
}

static bool fabric_is_out(const void *link, uint16_t *node)
{
	const struct link_out *l = link;
	unsigned int i;

	for (i = 0; i < FABRIC_NODES; i++)
		if (fabric_out[i] == l) {
			*node = (uint16_t)i;
			return true;
		}
	return false;
}

void fabric_serve(const struct pollfd *fds, size_t count)
{
	uint16_t node;
	size_t i;

	for (i = 0; i < count; i++) {
		if (!fds[i].revents)
			continue;
		if (!fabric_polled[i]) {
			fabric_accept();
		} else if (fabric_is_out(fabric_polled[i], &node)) {
			if (fds[i].revents & (POLLIN | POLLHUP | POLLERR))
				fabric_lose_link(node);
		} else {
			struct link_in *l = fabric_polled[i];

			if (link_drain(l, fabric_self))
				continue;
			if (l->peer >= 0)
				nic_node_gone((uint16_t)l->peer);
			link_drop(l);
		}
	}
}
