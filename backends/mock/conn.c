/* SPDX-License-Identifier: BSD-2-Clause */
/* conn.c - queue pairs: their making, their states and what is posted to them. */
#include "backends/mock/mock.h"

#include <errno.h>
#include <string.h>

static uint32_t ring_size(uint32_t depth)
{
	uint32_t size = 1;

	while (size < depth)
		size *= 2;
	return size;
}

struct mock_wr *conn_wr(struct native_conn *c, uint32_t position)
{
	return &c->sq[position & c->sq_mask];
}

/* One block: the connection, its rings, and what the slots of the send queue point to. */
static struct native_conn *conn_alloc(struct native *n, const struct native_conn_args *args)
{
	uint32_t sq = ring_size(args->send_depth), rq = ring_size(args->recv_depth);
	uint64_t bytes = sizeof(struct native_conn) + (uint64_t)sq * sizeof(struct mock_wr) +
			 (uint64_t)rq * sizeof(struct mock_receive) +
			 (uint64_t)sq * args->max_sge * sizeof(struct mock_sge) +
			 (uint64_t)sq * args->max_inline;
	struct native_conn *c = mock_alloc(n, bytes);
	struct mock_sge *sge;
	uint8_t *inline_bytes;

	if (!c)
		return NULL;
	c->sq = (struct mock_wr *)(c + 1);
	c->rq = (struct mock_receive *)(c->sq + sq);
	sge = (struct mock_sge *)(c->rq + rq);
	inline_bytes = (uint8_t *)(sge + (uint64_t)sq * args->max_sge);
	c->sq_mask = sq - 1;
	c->rq_mask = rq - 1;
	for (uint32_t i = 0; i < sq; i++) {
		c->sq[i].sge = sge + (uint64_t)i * args->max_sge;
		c->sq[i].inline_bytes = inline_bytes + (uint64_t)i * args->max_inline;
	}
	return c;
}

int mock_create_conn(struct native_lane *l, const struct native_conn_args *args,
		     struct native_conn **out)
{
	struct native *n = l->native;
	struct native_conn *c;

	if (!l->cq || args->rail >= n->nrails || args->rail % n->ncontexts != l->context->index)
		return EINVAL;
	if (args->send_depth == 0 || args->send_depth > MOCK_MAX_DEPTH ||
	    args->recv_depth > MOCK_MAX_DEPTH || args->max_sge > NATIVE_MAX_SGE ||
	    args->max_inline > MOCK_MAX_INLINE)
		return EINVAL;
	if (l->context->nconns >= MOCK_MAX_CONNS)
		return ENOMEM;
	c = conn_alloc(n, args);
	if (!c)
		return ENOMEM;
	c->native = n;
	c->context = l->context;
	c->lane = l;
	c->user = args->user;
	c->rail = args->rail;
	c->sq_depth = args->send_depth;
	c->rq_depth = args->recv_depth;
	c->max_sge = args->max_sge;
	c->max_inline = args->max_inline;
	c->link.fd = -1;
	atomic_store(&c->state, MOCK_INIT);
	fabric_lock();
	c->serial = fabric_serial();
	c->next = l->conns;
	if (c->next)
		c->next->prev = c;
	l->conns = c;
	l->context->nconns++;
	fabric_unlock();
	*out = c;
	return 0;
}

void *mock_conn_user(const struct native_conn *c)
{
	return c->user;
}

void conn_fail(struct native_conn *c)
{
	int state = atomic_load(&c->state);

	if (state == MOCK_INIT || state == MOCK_RTS)
		atomic_store(&c->state, MOCK_ERR);
}

int mock_conn_err(struct native_conn *c)
{
	int error = 0;

	fabric_lock();
	if (atomic_load(&c->state) == MOCK_RESET)
		error = EINVAL; /* ERR from RESET is no transition */
	else
		conn_fail(c);
	/* What was executed and not yet told is flushed: it happened, and nobody can tell. */
	for (uint32_t i = c->sq_head; !error && i != c->sq_exec; i++) {
		struct mock_wr *wr = conn_wr(c, i);

		if (wr->status == NATIVE_OK && !wr->withheld)
			wr->status = NATIVE_FLUSHED;
	}
	fabric_unlock();
	if (!error)
		lane_kick(c->lane);
	return error;
}

/* Work and receives vanish without a completion; those not yet polled are deleted. */
static void conn_purge(struct native_conn *c)
{
	uint32_t tail = atomic_load(&c->sq_tail);

	c->sq_head = c->sq_exec = tail;
	atomic_store(&c->sq_free, tail);
	atomic_store(&c->rq_head, atomic_load(&c->rq_tail));
	lane_delete(c->lane, c->serial);
	c->lane->nstale = 0;
}

int mock_conn_reset(struct native_conn *c)
{
	fabric_lock();
	atomic_store(&c->state, MOCK_RESET);
	meet_part(c);
	conn_purge(c);
	fabric_unlock();
	return 0;
}

void conn_unlink(struct native_conn *c)
{
	meet_part(c);
	if (c->request)
		c->request->from = NULL;
	c->request = NULL;
	for (int i = 0; i < MOCK_CONN_NEWS; i++)
		news_forget(c->native, &c->news[i]);
	if (c->prev)
		c->prev->next = c->next;
	else
		c->lane->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	c->context->nconns--;
}

void conn_free(struct native_conn *c)
{
	mock_free(c->native, c);
}

int mock_destroy_conn(struct native_conn *c)
{
	fabric_lock();
	atomic_store(&c->state, MOCK_RESET);
	conn_purge(c);
	conn_unlink(c);
	fabric_unlock();
	conn_free(c);
	return 0;
}

static bool takes_work(const struct native_conn *c)
{
	int state = atomic_load(&c->state);

	return state == MOCK_RTS || state == MOCK_ERR;
}

static int post_sges(struct native_conn *c, const struct native_wr *from, struct mock_wr *to)
{
	uint64_t total = 0;

	if (from->nsge > c->max_sge)
		return EINVAL;
	for (uint32_t i = 0; i < from->nsge; i++) {
		const struct native_sge *s = &from->sge[i];

		total += s->length;
		if (from->flags & NATIVE_INLINE)
			continue;
		to->sge[i] = (struct mock_sge){.addr = s->addr, .length = s->length, .key = s->key};
	}
	if (total > MOCK_MAX_MESSAGE)
		return EINVAL;
	to->nsge = from->nsge;
	to->total = total;
	if (!(from->flags & NATIVE_INLINE))
		return 0;
	if (total > c->max_inline || from->opcode == NATIVE_READ)
		return EINVAL;
	for (uint32_t i = 0, at = 0; i < from->nsge; at += from->sge[i++].length)
		memcpy(to->inline_bytes + at, mock_pointer(from->sge[i].addr), from->sge[i].length);
	return 0;
}

static int post_one(struct native_conn *c, const struct native_wr *from, struct mock_wr *to)
{
	struct mock_sge *sge = to->sge;
	uint8_t *inline_bytes = to->inline_bytes;

	*to = (struct mock_wr){.id = from->id,
			       .opcode = from->opcode,
			       .flags = from->flags,
			       .rkey = from->rkey,
			       .remote = from->remote_addr,
			       .sge = sge,
			       .inline_bytes = inline_bytes};
	switch (from->opcode) {
	case NATIVE_WRITE:
	case NATIVE_READ:
	case NATIVE_SEND:
		return post_sges(c, from, to);
	case NATIVE_BIND:
		if (!from->window || !from->region || from->window->context != c->context ||
		    from->region->context != c->context)
			return EINVAL;
		to->window = from->window->index;
		to->window_serial = from->window->serial;
		to->region = mock_region_key(from->region);
		to->addr = from->addr;
		to->length = from->length;
		to->rights = from->rights;
		return 0;
	case NATIVE_INVALIDATE:
		return 0;
	}
	return EINVAL;
}

int mock_post(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	uint32_t tail = atomic_load_explicit(&c->sq_tail, memory_order_relaxed), i;
	int error = takes_work(c) ? 0 : EINVAL;

	for (i = 0; i < n && !error; i++) {
		uint32_t used = tail + i - atomic_load_explicit(&c->sq_free, memory_order_acquire);

		error = used >= c->sq_depth ? ENOMEM : post_one(c, &wr[i], conn_wr(c, tail + i));
		if (error)
			break;
	}
	*posted = i;
	if (i == 0)
		return error;
	/* Sequentially consistent, like arm's store and look: one of the two sees the other. */
	atomic_store(&c->sq_tail, tail + i);
	lane_kick(c->lane);
	return error;
}

int mock_post_recv(struct native_conn *c, uint64_t id, struct native_region *region, uint64_t addr,
		   uint32_t length)
{
	uint32_t tail = atomic_load_explicit(&c->rq_tail, memory_order_relaxed);
	struct mock_receive *r = &c->rq[tail & c->rq_mask];

	if (atomic_load(&c->state) == MOCK_RESET || !region || region->context != c->context)
		return EINVAL;
	if (tail - atomic_load_explicit(&c->rq_head, memory_order_acquire) >= c->rq_depth)
		return ENOMEM;
	r->id = id;
	r->sge = (struct mock_sge){.addr = addr, .length = length, .key = mock_region_key(region)};
	atomic_store(&c->rq_tail, tail + 1);
	if (atomic_load(&c->state) == MOCK_ERR)
		lane_kick(c->lane);
	return 0;
}
