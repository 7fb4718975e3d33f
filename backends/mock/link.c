/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * link.c - a connection whose other end is in another process.  The lock is held.
 *
 * The requester has one work request under way at a time and waits for its answer; the owner
 * executes each packet when it takes it from the socket, against the windows as they are then.
 * Everything that comes in is checked: a packet that does not fit the state ends the connection.
 */
#include "backends/mock/mock.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "backends/mock/packet.h"

void link_close(struct native_conn *c)
{
	if (c->link.fd < 0)
		return;
	socket_unwatch(c);
	close(c->link.fd);
	c->link.fd = -1;
}

/* The other process is gone, or talks nonsense: no answer will come any more. */
static void link_lost(struct native_conn *c, int error)
{
	bool connecting = c->link.connecting;

	link_close(c);
	c->link.connecting = false;
	if (connecting)
		news_of_conn(c, NEWS_CONNECT, NATIVE_EV_UNREACHABLE, error);
	else if (error == EPROTO)
		run_refused(c);
	else
		news_of_conn(c, NEWS_DISCONNECTED, NATIVE_EV_DISCONNECTED, 0);
	if (c->sq_exec != atomic_load(&c->sq_tail))
		conn_wr(c, c->sq_exec)->stage = MOCK_QUEUED; /* it will end with RETRY */
	lane_kick(c->lane);
}

/* False: it did not go out; if the socket is only full, want_out is set. */
static bool send_out(struct native_conn *c, struct packet *p, const struct iovec *pieces,
		     unsigned int count)
{
	int error = packet_send(c->link.fd, p, pieces, count);

	c->link.want_out = error == EAGAIN;
	if (error && error != EAGAIN)
		link_lost(c, error);
	return error == 0;
}

static struct iovec piece(const void *data, uint64_t len)
{
	return (struct iovec){.iov_base = mock_pointer((uintptr_t)data), .iov_len = len};
}

static void link_start(struct native_conn *c, int fd)
{
	memset(&c->link, 0, sizeof(c->link));
	c->link.fd = fd;
	socket_start_thread(c->native);
	socket_watch(c);
}

int link_connect(struct native_conn *c, const uint8_t *incarnation, uint32_t rail, const void *data,
		 uint32_t len)
{
	struct packet p = {.kind = PACKET_HELLO, .addr = rail};
	struct iovec pieces[2] = {piece(incarnation, 16), piece(data, len)};
	int fd = socket_dial(incarnation), error;

	if (fd < 0)
		return -fd;
	error = packet_send(fd, &p, pieces, 2);
	if (error) {
		close(fd);
		return error;
	}
	link_start(c, fd);
	c->link.connecting = true;
	return 0;
}

int link_accept(struct native_conn *c, int fd, const void *data, uint32_t len)
{
	struct packet p = {.kind = PACKET_ACCEPT};
	struct iovec body = piece(data, len);
	int error = packet_send(fd, &p, &body, 1);

	if (error) {
		close(fd);
		return error;
	}
	link_start(c, fd);
	c->link.established = true;
	return 0;
}

void link_reject(struct native *n, int fd, const void *data, uint32_t len)
{
	struct packet p = {.kind = PACKET_REJECT};
	struct iovec body = piece(data, len);

	(void)n;
	(void)packet_send(fd, &p, &body, 1);
	close(fd);
}

void link_goodbye(struct native_conn *c)
{
	struct packet p = {.kind = PACKET_BYE};

	/* If it does not go out, the other end learns it from the end of the socket. */
	if (c->link.fd >= 0)
		(void)packet_send(c->link.fd, &p, NULL, 0);
}

/* ---- The requester ------------------------------------------------------------------------- */
static bool finish(struct mock_wr *wr, enum native_status status)
{
	wr->status = status;
	wr->stage = MOCK_DONE;
	return true;
}

/* The next packet of a WRITE or SEND: pieces of local memory.  False: a region has gone. */
static bool gather(struct native_conn *c, const struct mock_wr *wr, struct iovec *pieces,
		   unsigned int *count)
{
	uint64_t at = wr->done, end = wr->total;

	if (end - at > PACKET_PAYLOAD)
		end = at + PACKET_PAYLOAD;
	for (*count = 0; at < end && *count < NATIVE_MAX_SGE; ++*count) {
		uint64_t length;
		uint8_t *bytes = run_local(c, wr, at, &length);

		if (!bytes)
			return false;
		if (length > end - at)
			length = end - at;
		pieces[*count] = piece(bytes, length);
		at += length;
	}
	return true;
}

bool link_execute(struct native_conn *c, struct mock_wr *wr)
{
	struct packet p = {.rkey = wr->rkey, .addr = wr->remote, .total = wr->total};
	struct iovec pieces[NATIVE_MAX_SGE];
	unsigned int count = 0;

	p.kind = wr->opcode == NATIVE_READ    ? PACKET_READ
		 : wr->opcode == NATIVE_WRITE ? PACKET_WRITE
					      : PACKET_SEND;
	while (wr->stage == MOCK_QUEUED) {
		p.offset = wr->done;
		if (wr->opcode != NATIVE_READ && !gather(c, wr, pieces, &count))
			return finish(wr, NATIVE_LOCAL);
		if (!send_out(c, &p, pieces, count)) {
			socket_watch(c);
			return c->link.fd < 0 && finish(wr, NATIVE_RETRY);
		}
		if (wr->opcode != NATIVE_READ)
			wr->done += p.payload;
		if (wr->opcode == NATIVE_READ || wr->done == wr->total)
			wr->stage = MOCK_WAITING;
	}
	return wr->stage == MOCK_DONE;
}

/* What an answer is about, or NULL: there was no question. */
static struct mock_wr *asked(struct native_conn *c)
{
	struct mock_wr *wr;

	if (c->sq_exec == atomic_load_explicit(&c->sq_tail, memory_order_acquire))
		return NULL;
	wr = conn_wr(c, c->sq_exec);
	if (wr->opcode == NATIVE_BIND || wr->opcode == NATIVE_INVALIDATE)
		return NULL;
	return wr->stage == MOCK_QUEUED && !wr->done ? NULL : wr;
}

static bool take_data(struct native_conn *c, struct mock_wr *wr, const struct packet *p,
		      const uint8_t *bytes)
{
	uint64_t left = p->payload;

	if (wr->opcode != NATIVE_READ || p->total != wr->total || p->offset != wr->done ||
	    left > wr->total - wr->done || (left == 0 && wr->total))
		return false;
	while (left) {
		uint64_t length;
		uint8_t *to = run_local(c, wr, wr->done, &length);

		if (!to)
			return finish(wr, NATIVE_LOCAL);
		if (length > left)
			length = left;
		memcpy(to, bytes, length);
		bytes += length;
		wr->done += length;
		left -= length;
	}
	if (wr->done == wr->total)
		finish(wr, NATIVE_OK);
	return true;
}

static bool take_answer(struct native_conn *c, const struct packet *p, const uint8_t *bytes)
{
	struct mock_wr *wr = asked(c);

	if (atomic_load(&c->state) != MOCK_RTS)
		return true; /* too late: it is flushed */
	if (!wr)
		return false;
	if (wr->stage == MOCK_DONE) /* each packet behind a refused one is refused too */
		return wr->status != NATIVE_OK;
	switch (p->kind) {
	case PACKET_ACK:
		return wr->opcode != NATIVE_READ && wr->stage == MOCK_WAITING &&
		       finish(wr, NATIVE_OK);
	case PACKET_NAK:
		return (p->status == NATIVE_REMOTE_ACCESS || p->status == NATIVE_REMOTE ||
			p->status == NATIVE_RETRY) &&
		       finish(wr, (enum native_status)p->status);
	case PACKET_RNR:
		if (wr->opcode != NATIVE_SEND)
			return false;
		if (++wr->rnr > c->native->rnr)
			return finish(wr, NATIVE_RNR);
		wr->done = 0;
		wr->stage = MOCK_QUEUED;
		return true;
	default:
		return take_data(c, wr, p, bytes);
	}
}

/* ---- The owner ----------------------------------------------------------------------------- */
/* Sends what is owed: an answer, or the next bytes of a READ, as they are now. */
static void send_reply(struct native_conn *c)
{
	struct mock_link *l = &c->link;

	while (l->fd >= 0 && l->reply) {
		struct packet p = {.kind = (uint16_t)l->reply, .status = l->reply_status};
		uint64_t length = l->read_total - l->read_done;
		struct iovec body;
		uint8_t *from = NULL;

		if (l->reply != PACKET_DATA) {
			if (send_out(c, &p, NULL, 0))
				l->reply = PACKET_NONE;
			else
				return;
			continue;
		}
		if (length)
			from = memory_remote(c, l->read_key, l->read_addr + l->read_done, length,
					     ESCROW_MAY_READ);
		if (length && !from) {
			run_refused(c);
			l->reply = PACKET_NAK;
			l->reply_status = NATIVE_REMOTE_ACCESS;
			continue;
		}
		if (length > PACKET_PAYLOAD)
			length = PACKET_PAYLOAD;
		p.total = l->read_total;
		p.offset = l->read_done;
		body = piece(from, length);
		if (!send_out(c, &p, &body, 1))
			return;
		l->read_done += length;
		if (l->read_done == l->read_total)
			l->reply = PACKET_NONE;
	}
}

static bool owe(struct native_conn *c, enum packet_kind kind, enum native_status status)
{
	c->link.reply = kind;
	c->link.reply_status = status;
	c->link.rx_done = 0;
	send_reply(c);
	return true;
}

static bool take_write(struct native_conn *c, const struct packet *p, const uint8_t *bytes)
{
	uint8_t *to = NULL;

	if (p->total)
		to = memory_remote(c, p->rkey, p->addr + p->offset, p->total - p->offset,
				   ESCROW_MAY_WRITE);
	if (p->total && !to) {
		run_refused(c);
		return owe(c, PACKET_NAK, NATIVE_REMOTE_ACCESS);
	}
	if (p->payload)
		memcpy(to, bytes, p->payload);
	c->link.rx_done += p->payload;
	return c->link.rx_done < p->total || owe(c, PACKET_ACK, NATIVE_OK);
}

static bool take_send(struct native_conn *c, const struct packet *p, const uint8_t *bytes)
{
	enum native_status status;
	uint8_t *to;

	if (p->offset && c->link.rx_discard)
		return true;
	c->link.rx_discard = false;
	status = run_receive(c, p->total, &to);
	if (status == NATIVE_RNR) {
		c->link.rx_discard = true;
		return owe(c, PACKET_RNR, NATIVE_OK);
	}
	if (status)
		return owe(c, PACKET_NAK, NATIVE_REMOTE);
	if (p->payload)
		memcpy(to + p->offset, bytes, p->payload);
	c->link.rx_done += p->payload;
	if (c->link.rx_done < p->total)
		return true;
	run_received(c, p->total);
	return owe(c, PACKET_ACK, NATIVE_OK);
}

static bool take_read(struct native_conn *c, const struct packet *p)
{
	if (p->payload || p->offset || p->total > MOCK_MAX_MESSAGE)
		return false;
	c->link.read_key = p->rkey;
	c->link.read_addr = p->addr;
	c->link.read_total = p->total;
	c->link.read_done = 0;
	return owe(c, PACKET_DATA, NATIVE_OK);
}

static bool take_question(struct native_conn *c, const struct packet *p, const uint8_t *bytes)
{
	bool discard = c->link.rx_discard && p->kind == PACKET_SEND && p->offset;

	/* A queue pair in error drops what comes; the requester's retries run out. */
	if (atomic_load(&c->state) != MOCK_RTS)
		return c->link.reply || owe(c, PACKET_NAK, NATIVE_RETRY);
	if (c->link.reply)
		return false;
	if (p->kind == PACKET_READ)
		return take_read(c, p);
	/* Its packets come one after the other, and none is empty but that of an empty request. */
	if (p->total > MOCK_MAX_MESSAGE || p->offset > p->total ||
	    p->payload > p->total - p->offset || (p->payload == 0 && p->total != 0) ||
	    (p->offset != c->link.rx_done && !discard))
		return false;
	return p->kind == PACKET_WRITE ? take_write(c, p, bytes) : take_send(c, p, bytes);
}

/* ---- Both ---------------------------------------------------------------------------------- */
static bool take_welcome(struct native_conn *c, const struct packet *p, const uint8_t *bytes)
{
	struct native_event *event = &c->news[NEWS_CONNECT].event;
	bool accepted = p->kind == PACKET_ACCEPT;
	int init = MOCK_INIT;

	if (!c->link.connecting || p->payload > NATIVE_PRIVATE_BYTES)
		return false;
	c->link.connecting = false;
	c->link.established = accepted;
	event->data_len = p->payload;
	memcpy(event->data, bytes, p->payload);
	if (accepted)
		atomic_compare_exchange_strong(&c->state, &init, MOCK_RTS);
	news_of_conn(c, NEWS_CONNECT, accepted ? NATIVE_EV_ESTABLISHED : NATIVE_EV_REJECTED,
		     accepted ? 0 : ECONNREFUSED);
	if (!accepted)
		link_close(c);
	return true;
}

static bool take_packet(struct native_conn *c)
{
	const uint8_t *bytes = c->native->packet + sizeof(struct packet);
	struct packet p;

	memcpy(&p, c->native->packet, sizeof(p));
	if (p.kind == PACKET_ACCEPT || p.kind == PACKET_REJECT)
		return take_welcome(c, &p, bytes);
	if (!c->link.established)
		return false;
	switch (p.kind) {
	case PACKET_WRITE:
	case PACKET_READ:
	case PACKET_SEND:
		return take_question(c, &p, bytes);
	case PACKET_ACK:
	case PACKET_NAK:
	case PACKET_RNR:
	case PACKET_DATA:
		return take_answer(c, &p, bytes);
	case PACKET_BYE:
		news_of_conn(c, NEWS_DISCONNECTED, NATIVE_EV_DISCONNECTED, 0);
		return true;
	default:
		return false;
	}
}

void link_serve(struct native_conn *c)
{
	if (c->native->faults.nic_held || c->native->fatal)
		return;
	send_reply(c);
	for (int burst = 0; c->link.fd >= 0 && burst < 64; burst++) {
		int got = packet_receive(c->link.fd, c->native->packet);

		if (got == 0)
			break;
		if (got < 0)
			link_lost(c, -got);
		else if (!take_packet(c))
			link_lost(c, EPROTO);
	}
	socket_watch(c);
}
