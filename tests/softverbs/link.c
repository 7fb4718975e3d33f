/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/link.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/softverbs/fabric.h"
#include "tests/softverbs/registry.h"

#define LINK_BATCH 32
#define LINK_START offsetof(struct packet, h)

/* On the wire packets are padded, so that each header is aligned where it is read. */
static size_t link_size(const struct wire_header *h)
{
	return sizeof(*h) + ((h->size + 7u) & ~7u);
}

struct link_out *link_open(uint16_t node)
{
	struct link_out *l = calloc(1, sizeof(*l));
	struct sockaddr_un un;

	if (!l)
		return NULL;
	list_init(&l->queue);
	l->node = node;
	registry_address(node, &un);
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0 || connect(l->fd, (struct sockaddr *)&un, sizeof(un))) {
		link_close(l);
		return NULL;
	}
	return l;
}

void link_close(struct link_out *l)
{
	while (!list_empty(&l->queue)) {
		struct packet *p = container(l->queue.next, struct packet, node);

		list_remove(&p->node);
		fabric_free(p);
	}
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}

void link_put(struct link_out *l, struct packet *p)
{
	l->queued += link_size(&p->h);
	list_append(&l->queue, &p->node);
}

static void link_written(struct link_out *l, size_t bytes)
{
	l->queued -= bytes;
	bytes += l->done;
	while (!list_empty(&l->queue)) {
		struct packet *p = container(l->queue.next, struct packet, node);
		size_t size = link_size(&p->h);

		if (bytes < size)
			break;
		bytes -= size;
		list_remove(&p->node);
		fabric_free(p);
	}
	l->done = bytes;
}

bool link_flush(struct link_out *l)
{
	while (!list_empty(&l->queue)) {
		struct iovec iov[LINK_BATCH];
		struct msghdr msg = {.msg_iov = iov};
		struct list *i;
		ssize_t n;

		list_for_each(i, &l->queue)
		{
			struct packet *p = container(i, struct packet, node);

			iov[msg.msg_iovlen].iov_base = &p->h;
			iov[msg.msg_iovlen].iov_len = link_size(&p->h);
			if (++msg.msg_iovlen == LINK_BATCH)
				break;
		}
		iov[0].iov_base = (char *)iov[0].iov_base + l->done;
		iov[0].iov_len -= l->done;
		n = sendmsg(l->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
		link_written(l, (size_t)n);
	}
	return true;
}

struct link_in *link_accept(int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct link_in *l;

	if (fd < 0)
		return NULL;
	l = calloc(1, sizeof(*l));
	if (!l) {
		close(fd);
		return NULL;
	}
	list_init(&l->node);
	l->fd = fd;
	l->peer = -1;
	return l;
}

void link_drop(struct link_in *l)
{
	list_remove(&l->node);
	close(l->fd);
	free(l);
}

static bool link_sane(struct link_in *l, const struct wire_header *h, uint16_t self)
{
	if (h->magic != WIRE_MAGIC || h->kind >= WIRE_KINDS || h->size > WIRE_PAYLOAD_MAX)
		return false;
	if (h->dst_node != self || h->src_node >= FABRIC_NODES)
		return false;
	if (l->peer < 0)
		l->peer = h->src_node;
	return l->peer == h->src_node;
}

bool link_drain(struct link_in *l, uint16_t self)
{
	size_t at = 0;
	ssize_t n;

	n = recv(l->fd, l->buf + LINK_START + l->have, LINK_BUFFER - LINK_START - l->have,
		 MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
	if (n == 0)
		return false;
	l->have += (size_t)n;
	while (l->have - at >= sizeof(struct wire_header)) {
		struct packet *p = (struct packet *)(void *)(l->buf + at);

		if (!link_sane(l, &p->h, self))
			return false;
		if (l->have - at < link_size(&p->h))
			break;
		nic_receive(p);
		at += link_size(&p->h);
	}
	memmove(l->buf + LINK_START, l->buf + LINK_START + at, l->have - at);
	l->have -= at;
	return true;
}
