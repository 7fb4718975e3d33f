/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run.c - the device at work: takes work requests from send queues, moves bytes, tells how it
 * ended.  The lock is held.
 *
 * A work request is executed, then it owes its completion for `delay` runs (or for as long as a
 * fault plan withholds it), and in all that time its bytes go on being touched: a real NIC reads
 * the source of a WRITE again when it retransmits, and asks again for a READ.
 */
#include "backends/mock/mock.h"

#include <string.h>

uint8_t *run_local(struct native_conn *c, const struct mock_wr *wr, uint64_t offset,
		   uint64_t *length)
{
	uint8_t *at;

	if (wr->flags & NATIVE_INLINE) {
		*length = wr->total - offset;
		return wr->inline_bytes + offset;
	}
	for (uint32_t i = 0; i < wr->nsge; offset -= wr->sge[i++].length) {
		if (offset >= wr->sge[i].length)
			continue;
		at = memory_local(c->context, &wr->sge[i]);
		*length = wr->sge[i].length - offset;
		return at ? at + offset : NULL;
	}
	return NULL;
}

/* Moves bytes [from, to) between the local ranges and `far`, which is where byte `from` goes. */
static bool move(struct native_conn *c, const struct mock_wr *wr, uint64_t from, uint64_t to,
		 uint8_t *far)
{
	while (from < to) {
		uint64_t length;
		uint8_t *near = run_local(c, wr, from, &length);

		if (!near)
			return false;
		if (length > to - from)
			length = to - from;
		/* memmove: a loopback connection may have both ends in one range */
		if (wr->opcode == NATIVE_READ)
			memmove(near, far, length);
		else
			memmove(far, near, length);
		from += length;
		far += length;
	}
	return true;
}

static uint32_t right_of(enum native_opcode opcode)
{
	return opcode == NATIVE_READ ? ESCROW_MAY_READ : ESCROW_MAY_WRITE;
}

void run_refused(struct native_conn *owner)
{
	if (atomic_load(&owner->state) != MOCK_RTS)
		return;
	conn_fail(owner);
	news_of_conn(owner, NEWS_ERROR, NATIVE_EV_CONN_ERROR, 0);
	lane_kick(owner->lane);
}

static bool end(struct mock_wr *wr, enum native_status status)
{
	wr->status = status;
	wr->stage = MOCK_DONE;
	return true;
}

/* How far this run gets with it: to the end, or in random order some packets. */
static uint64_t stretch(struct native *n, const struct mock_wr *wr)
{
	uint64_t left = wr->total - wr->done, part = MOCK_MTU;

	if (!n->random)
		return left;
	part *= 1 + mock_dice(n, 64);
	return part < left ? part : left;
}

static bool execute_access(struct native_conn *c, struct mock_wr *wr)
{
	struct native_conn *owner = c->peer;
	uint64_t length = stretch(c->native, wr);
	uint8_t *far;

	if (wr->total == 0) /* touches no memory, so no key is looked at (IBA; rxe_resp.c) */
		return end(wr, NATIVE_OK);
	far = memory_remote(owner, wr->rkey, wr->remote + wr->done, wr->total - wr->done,
			    right_of(wr->opcode));
	if (!far) {
		run_refused(owner);
		return end(wr, NATIVE_REMOTE_ACCESS);
	}
	if (!move(c, wr, wr->done, wr->done + length, far))
		return end(wr, NATIVE_LOCAL);
	wr->done += length;
	return wr->done == wr->total && end(wr, NATIVE_OK);
}

enum native_status run_receive(struct native_conn *c, uint64_t total, uint8_t **to)
{
	uint32_t head = atomic_load(&c->rq_head);
	struct mock_receive *r = &c->rq[head & c->rq_mask];
	struct native_cqe cqe = {.status = NATIVE_LOCAL, .bytes = UINT32_MAX, .kind = UINT32_MAX};

	if (head == atomic_load(&c->rq_tail))
		return NATIVE_RNR;
	*to = memory_local(c->context, &r->sge);
	if (*to && total <= r->sge.length)
		return NATIVE_OK;
	cqe.id = r->id;
	atomic_store(&c->rq_head, head + 1);
	lane_push(c->lane, &cqe, c->serial, true);
	run_refused(c);
	return NATIVE_REMOTE;
}

void run_received(struct native_conn *c, uint64_t total)
{
	uint32_t head = atomic_load(&c->rq_head);
	struct native_cqe cqe = {
		.status = NATIVE_OK, .bytes = (uint32_t)total, .kind = NATIVE_RECV};

	cqe.id = c->rq[head & c->rq_mask].id;
	atomic_store(&c->rq_head, head + 1);
	lane_push(c->lane, &cqe, c->serial, true);
}

static bool execute_send(struct native_conn *c, struct mock_wr *wr)
{
	uint8_t *to;
	enum native_status status = run_receive(c->peer, wr->total, &to);

	if (status == NATIVE_RNR)
		return ++wr->rnr > c->native->rnr && end(wr, NATIVE_RNR);
	if (status)
		return end(wr, status);
	if (!move(c, wr, 0, wr->total, to))
		return end(wr, NATIVE_LOCAL);
	run_received(c->peer, wr->total);
	return end(wr, NATIVE_OK);
}

/* True: it is done.  False: this run cannot get further with it. */
static bool execute_one(struct native_conn *c, struct mock_wr *wr)
{
	struct native_conn *far = c->peer;

	if (wr->opcode == NATIVE_BIND)
		return end(wr, memory_bind(c, wr));
	if (wr->opcode == NATIVE_INVALIDATE)
		return end(wr, memory_invalidate(c, wr->rkey));
	if (c->link.fd >= 0 && !c->cut)
		return link_execute(c, wr);
	if (!far || c->cut || far->cut || far->native->fatal)
		return end(wr, NATIVE_RETRY);
	if (far->native->faults.nic_held)
		return false;
	if (atomic_load(&far->state) != MOCK_RTS)
		return end(wr, NATIVE_RETRY);
	if (wr->opcode == NATIVE_SEND)
		return execute_send(c, wr);
	return execute_access(c, wr);
}

/* A fence waits for READs that were posted earlier. */
static bool is_fenced(struct native_conn *c, const struct mock_wr *wr)
{
	if (!(wr->flags & NATIVE_FENCE))
		return false;
	for (uint32_t i = c->sq_head; i != c->sq_exec; i++)
		if (conn_wr(c, i)->opcode == NATIVE_READ && !conn_wr(c, i)->withheld)
			return true;
	return false;
}

static void execute(struct native_conn *c)
{
	uint32_t tail = atomic_load_explicit(&c->sq_tail, memory_order_acquire);

	if (c->native->random && mock_dice(c->native, 2))
		return;
	for (uint32_t burst = MOCK_BURST; burst && c->sq_exec != tail; burst--) {
		struct mock_wr *wr = conn_wr(c, c->sq_exec);

		if (is_fenced(c, wr) || !execute_one(c, wr))
			return;
		c->sq_exec++;
		if (wr->status != NATIVE_OK) {
			conn_fail(c);
			return;
		}
	}
}

static void touch(struct native_conn *c)
{
	for (uint32_t i = c->sq_head; i != c->sq_exec; i++) {
		struct mock_wr *wr = conn_wr(c, i);
		uint8_t *far;

		wr->age++;
		if (wr->status != NATIVE_OK || wr->total == 0 || !c->peer || c->cut ||
		    (wr->opcode != NATIVE_WRITE && wr->opcode != NATIVE_READ))
			continue;
		/* What the owner has taken back is not touched: a late packet is dropped. */
		far = memory_remote(c->peer, wr->rkey, wr->remote, wr->total, right_of(wr->opcode));
		if (far && atomic_load(&c->peer->state) == MOCK_RTS)
			move(c, wr, 0, wr->total, far);
	}
}

/* In error everything that waits is flushed, signaled or not, receives too. */
static void flush(struct native_conn *c)
{
	uint32_t tail = atomic_load_explicit(&c->sq_tail, memory_order_acquire);

	for (; c->sq_exec != tail; c->sq_exec++)
		end(conn_wr(c, c->sq_exec), NATIVE_FLUSHED);
	tail = atomic_load_explicit(&c->rq_tail, memory_order_acquire);
	for (uint32_t head = atomic_load(&c->rq_head); head != tail; head++) {
		/* of an error only id, status and vendor are defined: the rest is junk */
		struct native_cqe cqe = {.id = c->rq[head & c->rq_mask].id,
					 .status = NATIVE_FLUSHED,
					 .bytes = UINT32_MAX,
					 .kind = UINT32_MAX};

		lane_push(c->lane, &cqe, c->serial, true);
		atomic_store(&c->rq_head, head + 1);
	}
}

static void retire(struct native_conn *c)
{
	while (c->sq_head != c->sq_exec) {
		struct mock_wr *wr = conn_wr(c, c->sq_head);
		struct native_cqe cqe = {.id = wr->id, .status = wr->status};
		bool told = wr->status != NATIVE_OK || (wr->flags & NATIVE_SIGNALED);

		if (wr->status == NATIVE_OK && wr->age < c->native->delay)
			return;
		/* Completions of one send queue keep their order, so what is behind waits too. */
		if (told && fault_withholds(c->native, wr))
			return;
		c->sq_head++;
		if (!told)
			continue;
		if (wr->status != NATIVE_OK) {
			cqe.vendor = 0x80u + (uint32_t)wr->status;
			cqe.bytes = cqe.kind = UINT32_MAX; /* junk, as above */
		}
		fault_complete(c, &cqe);
		/* Slots of unsignaled work come back with the next completion. */
		atomic_store_explicit(&c->sq_free, c->sq_head, memory_order_release);
	}
}

void run_conn(struct native_conn *c)
{
	if (c->native->faults.nic_held || c->native->fatal)
		return;
	touch(c);
	if (atomic_load(&c->state) == MOCK_RTS)
		execute(c);
	if (atomic_load(&c->state) == MOCK_ERR)
		flush(c);
	retire(c);
}

void run_lane(struct native_lane *l)
{
	if (l->native->faults.nic_held || l->native->fatal || !l->cq)
		return;
	for (struct native_conn *c = l->conns; c; c = c->next) {
		if (c->link.fd >= 0 && !l->native->threaded)
			link_serve(c);
		run_conn(c);
		if (c->peer && c->peer->lane != l)
			run_conn(c->peer);
	}
	if (l->nstale)
		fault_repeat(l);
}

static bool conn_pending(struct native_conn *c)
{
	const struct mock_wr *wr;
	int state = atomic_load(&c->state);

	if (c->native->faults.nic_held || c->native->fatal)
		return false;
	if (c->sq_head != c->sq_exec && !conn_wr(c, c->sq_head)->withheld)
		return true;
	if (state == MOCK_ERR)
		return c->sq_exec != atomic_load(&c->sq_tail) ||
		       atomic_load(&c->rq_head) != atomic_load(&c->rq_tail);
	if (state != MOCK_RTS || c->sq_exec == atomic_load(&c->sq_tail))
		return false;
	wr = conn_wr(c, c->sq_exec);
	if (c->link.fd >= 0 && !c->cut)
		return wr->stage == MOCK_QUEUED && !c->link.want_out;
	return !c->peer || !c->peer->native->faults.nic_held;
}

bool run_pending(struct native_lane *l)
{
	if (l->nstale)
		return true;
	for (struct native_conn *c = l->conns; c; c = c->next)
		if (conn_pending(c) || (c->peer && conn_pending(c->peer)))
			return true;
	return false;
}
