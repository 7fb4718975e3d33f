/* SPDX-License-Identifier: BSD-2-Clause */
/* drain.c - quiesce, resume and drain: no new ops, and when the old ones have ended. */
#include "backends/engine/engine.h"

static void tell(struct escrow_engine *e, struct event_node *node, uint64_t object,
		 escrow_status status, uint64_t left)
{
	event_send(e, node,
		   &(struct event_what){.kind = ESCROW_EV_DRAINED,
					.status = status,
					.object = object,
					.bytes = status == ESCROW_E_TIMEOUT ? left : 0});
}

/* locked. A drain that something overtakes: resume, a close, the loss of a device. */
void en_drain_end(struct escrow_engine *e, escrow_status why)
{
	if (engine_state(e) == ESCROW_STATE_DRAINING)
		tell(e, &e->drained, 0, why, 0);
}

escrow_status engine_quiesce(struct escrow_engine *e, uint32_t flags)
{
	escrow_status st = ESCROW_OK;

	if (!engine_here(e))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	engine_lock(e);
	if (!state_allows(SLOT_QUIESCE, engine_state(e)))
		st = ESCROW_E_STATE;
	else
		atomic_store(&e->state, ESCROW_STATE_QUIESCED);
	engine_unlock(e);
	return st;
}

escrow_status engine_resume(struct escrow_engine *e, uint32_t flags)
{
	escrow_status st = ESCROW_OK;

	if (!engine_here(e))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	engine_lock(e);
	if (!state_allows(SLOT_RESUME, engine_state(e))) {
		st = ESCROW_E_STATE;
	} else {
		en_drain_end(e, ESCROW_E_CANCELED);
		atomic_store(&e->state, ESCROW_STATE_OPEN);
	}
	engine_unlock(e);
	return st;
}

static void node_polled(struct escrow_engine *e, struct event_node *node)
{
	atomic_store((_Atomic uint32_t *)node->object, 0);
}

static escrow_status drain_engine(struct escrow_engine *e, uint64_t deadline)
{
	/* The last drain's event has not been polled: there is one place for it. */
	if (atomic_exchange(&e->drained_queued, 1))
		return ESCROW_E_BUSY;
	e->drained.polled = node_polled;
	e->drained.object = &e->drained_queued;
	e->drain_deadline = deadline;
	atomic_store(&e->state, ESCROW_STATE_DRAINING);
	atomic_fetch_or(&e->wants, WANT_EMPTY);
	en_work(e, &e->work);
	return ESCROW_IN_PROGRESS;
}

static escrow_status drain_peer(struct escrow_engine *e, struct peer *p, uint64_t deadline)
{
	if (!p)
		return ESCROW_E_INVALID;
	if (!p->up_told)
		return ESCROW_E_STATE;
	/* Its last event is on the way, and nothing comes behind that. */
	if (atomic_load(&p->state) == PEER_DOWN)
		return ESCROW_E_PEER_LOST;
	if (atomic_exchange(&p->drained_queued, 1))
		return ESCROW_E_BUSY;
	p->drained.polled = node_polled;
	p->drained.object = &p->drained_queued;
	p->draining = 1;
	p->drain_deadline = deadline;
	atomic_fetch_or(&p->wants, PEER_EMPTY);
	en_work(e, &p->work);
	return ESCROW_IN_PROGRESS;
}

escrow_status engine_drain(struct escrow_engine *e, uint64_t peer, uint64_t deadline_ns,
			   uint32_t flags)
{
	escrow_status st;

	if (!engine_here(e))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	engine_lock(e);
	if (!state_allows(SLOT_DRAIN, engine_state(e)))
		st = ESCROW_E_STATE;
	else if (peer)
		st = drain_peer(e, en_peer_find(e, peer), deadline_ns);
	else
		st = drain_engine(e, deadline_ns);
	engine_unlock(e);
	return st;
}

/* runner, locked */
void en_drain_peer(struct escrow_engine *e, struct peer *p, uint64_t now)
{
	uint32_t left = atomic_load(&p->ops);

	if (!p->draining)
		return;
	if (left && (!p->drain_deadline || now < p->drain_deadline)) {
		if (p->drain_deadline)
			en_wake_at(e, p->drain_deadline);
		return;
	}
	p->draining = 0;
	if (atomic_load(&p->state) == PEER_UP)
		atomic_fetch_and(&p->wants, ~PEER_EMPTY);
	tell(e, &p->drained, atomic_load(&p->handle), left ? ESCROW_E_TIMEOUT : ESCROW_OK, left);
}

/* runner, locked. The peer ends, and has no op.  What a call counts till it has seen that is none of its. */
void en_drain_peer_ends(struct escrow_engine *e, struct peer *p)
{
	if (!p->draining)
		return;
	p->draining = 0;
	tell(e, &p->drained, atomic_load(&p->handle), ESCROW_OK, 0);
}

/* runner, locked */
void en_drain_check(struct escrow_engine *e, uint64_t now)
{
	uint64_t left = atomic_load(&e->active);

	if (engine_state(e) != ESCROW_STATE_DRAINING)
		return;
	if (left && (!e->drain_deadline || now < e->drain_deadline)) {
		if (e->drain_deadline)
			en_wake_at(e, e->drain_deadline);
		return;
	}
	atomic_fetch_and(&e->wants, ~WANT_EMPTY);
	atomic_store(&e->state, left ? ESCROW_STATE_QUIESCED : ESCROW_STATE_DRAINED);
	tell(e, &e->drained, 0, left ? ESCROW_E_TIMEOUT : ESCROW_OK, left);
}
