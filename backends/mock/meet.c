/* SPDX-License-Identifier: BSD-2-Clause */
/* meet.c - connections come and go: requests, answers, goodbyes. */
#include "backends/mock/mock.h"

#include <errno.h>
#include <string.h>

/* A rail's address, as it stands in invitations. */
struct meet_address {
	char magic[4];
	uint32_t rail;
	uint8_t incarnation[16];
	uint8_t zero[8];
};
_Static_assert(sizeof(struct meet_address) == NATIVE_ADDRESS_BYTES, "an address fills its field");

void meet_address(const struct native *n, uint32_t rail, uint8_t *address)
{
	struct meet_address a = {.magic = "MOCK", .rail = rail}; /* house: no terminator wanted */

	memcpy(a.incarnation, n->incarnation, sizeof(a.incarnation));
	memcpy(address, &a, sizeof(a));
}

static void set_data(struct native_event *event, const void *data, uint32_t len)
{
	event->data_len = len;
	if (len)
		memcpy(event->data, data, len);
}

static struct native_request *request_new(struct native *n, uint32_t rail, const void *data,
					  uint32_t len)
{
	struct native_request *r = mock_alloc(n, sizeof(*r));

	if (!r)
		return NULL;
	r->native = n;
	r->fd = -1;
	r->news.event.kind = NATIVE_EV_REQUEST;
	r->news.event.rail = rail;
	r->news.event.context = rail % n->ncontexts;
	r->news.event.request = r;
	set_data(&r->news.event, data, len);
	r->next = n->requests;
	n->requests = r;
	return r;
}

void meet_forget(struct native_request *r)
{
	struct native *n = r->native;

	for (struct native_request **p = &n->requests; *p; p = &(*p)->next) {
		if (*p != r)
			continue;
		*p = r->next;
		break;
	}
	news_forget(n, &r->news);
	if (r->from)
		r->from->request = NULL;
	if (r->fd >= 0)
		link_reject(n, r->fd, NULL, 0);
	mock_free(n, r);
}

static bool listens(const struct native *n, uint32_t rail)
{
	return rail < n->nrails && n->contexts[rail % n->ncontexts].pd && !n->fatal;
}

struct native_request *meet_request(struct native *n, int fd, uint32_t rail, const void *data,
				    uint32_t len)
{
	struct native_request *r = listens(n, rail) ? request_new(n, rail, data, len) : NULL;

	if (!r)
		return NULL;
	r->fd = fd;
	news_tell(n, &r->news);
	return r;
}

static void unreachable(struct native_conn *c, int error)
{
	news_of_conn(c, NEWS_CONNECT, NATIVE_EV_UNREACHABLE, error);
}

/* The other engine is in this process: the request is put straight into its queue. */
static void connect_here(struct native_conn *c, struct native *target, uint32_t rail,
			 const void *data, uint32_t len)
{
	struct native_request *r;

	if (!listens(target, rail)) {
		unreachable(c, ECONNREFUSED);
		return;
	}
	r = request_new(target, rail, data, len);
	if (!r) {
		unreachable(c, ENOMEM);
		return;
	}
	r->from = c;
	c->request = r;
	news_tell(target, &r->news);
}

int mock_connect(struct native_conn *c, const uint8_t *address, const void *data, uint32_t len)
{
	static const uint8_t zero[sizeof(((struct meet_address *)0)->zero)];
	struct meet_address a;
	struct native *target;
	int error = 0;

	memcpy(&a, address, sizeof(a));
	if (memcmp(a.magic, "MOCK", 4) != 0 || memcmp(a.zero, zero, sizeof(zero)) != 0 ||
	    a.rail >= NATIVE_MAX_RAILS || len > NATIVE_PRIVATE_BYTES)
		return EINVAL;
	fabric_lock();
	if (c->started || atomic_load(&c->state) != MOCK_INIT) {
		fabric_unlock();
		return EINVAL;
	}
	c->started = true;
	target = fabric_find(a.incarnation);
	if (target)
		connect_here(c, target, a.rail, data, len);
	else
		error = link_connect(c, a.incarnation, a.rail, data, len);
	if (error)
		unreachable(c, error);
	fabric_unlock();
	return 0;
}

static void establish(struct native_conn *c, const void *data, uint32_t len)
{
	int init = MOCK_INIT;

	/* A connection that has been put into ERR meanwhile stays there. */
	atomic_compare_exchange_strong(&c->state, &init, MOCK_RTS);
	set_data(&c->news[NEWS_CONNECT].event, data, len);
	news_of_conn(c, NEWS_CONNECT, NATIVE_EV_ESTABLISHED, 0);
}

int mock_accept(struct native_conn *c, struct native_request *r, const void *data, uint32_t len)
{
	struct native_conn *from;
	int fd, error = 0;

	if (len > NATIVE_PRIVATE_BYTES)
		return EINVAL;
	fabric_lock();
	if (c->started || c->native != r->native || atomic_load(&c->state) != MOCK_INIT) {
		fabric_unlock();
		return EINVAL;
	}
	c->started = true;
	from = r->from;
	fd = r->fd;
	r->fd = -1;
	meet_forget(r);
	if (from) {
		c->peer = from;
		from->peer = c;
		establish(from, data, len);
		establish(c, NULL, 0);
	} else if (fd >= 0) {
		error = link_accept(c, fd, data, len);
		if (!error)
			establish(c, NULL, 0);
	} else {
		error = ECONNRESET;
	}
	fabric_unlock();
	return error;
}

int mock_reject(struct native *n, struct native_request *r, const void *data, uint32_t len)
{
	if (len > NATIVE_PRIVATE_BYTES)
		return EINVAL;
	fabric_lock();
	if (r->from) {
		set_data(&r->from->news[NEWS_CONNECT].event, data, len);
		news_of_conn(r->from, NEWS_CONNECT, NATIVE_EV_REJECTED, ECONNREFUSED);
	} else if (r->fd >= 0) {
		link_reject(n, r->fd, data, len);
		r->fd = -1;
	}
	meet_forget(r);
	fabric_unlock();
	return 0;
}

int mock_disconnect(struct native_conn *c)
{
	fabric_lock();
	if (!c->cut && c->peer)
		news_of_conn(c->peer, NEWS_DISCONNECTED, NATIVE_EV_DISCONNECTED, 0);
	if (!c->cut)
		link_goodbye(c);
	fabric_unlock();
	return 0;
}

void meet_part(struct native_conn *c)
{
	struct native_conn *peer = c->peer;

	link_close(c);
	if (!peer)
		return;
	c->peer = NULL;
	peer->peer = NULL;
	if (!c->cut)
		news_of_conn(peer, NEWS_DISCONNECTED, NATIVE_EV_DISCONNECTED, 0);
	lane_kick(peer->lane);
}
