/* SPDX-License-Identifier: BSD-2-Clause */
/* device.c - devices, protection domains and lanes: made by open, ended by close, root last. */
#include "backends/engine/engine.h"

#include <errno.h>
#include <string.h>

/* ---- Made (open; no runner yet, so e->lock is not held) ------------------------------------------ */
escrow_status en_devices_open(struct escrow_engine *e, struct escrow_error *error)
{
	struct escrow_error detail = {.size = sizeof(detail)};
	escrow_status st;
	uint32_t i;
	int rc;

	for (i = 0; i < e->ncontexts; i++) {
		e->contexts[i].e = e;
		rc = en_step_device(e, i, &detail);
		if (!rc)
			continue;
		e->contexts[i].native = NULL;
		st = detail.status < 0 ? detail.status : en_status_of(rc);
		return args_fail_errno(error, st, rc, "opening device %u: %s", i,
				       detail.text[0] ? detail.text : args_errno(rc));
	}
	return ESCROW_OK;
}

static uint64_t weak_bits(const struct escrow_engine *e, const struct context *c)
{
	return c->info.weak | (e->config.weak[0] ? ESCROW_WEAK_RESET : 0) |
	       (e->config.weak[1] ? ESCROW_WEAK_DEREG : 0) |
	       (e->config.weak[2] ? ESCROW_WEAK_DEALLOC_WINDOW : 0) |
	       (e->config.weak[3] ? ESCROW_WEAK_DESTROY : 0);
}

uint64_t en_weak_bits(const struct escrow_engine *e)
{
	uint64_t weak = 0;
	uint32_t i;

	for (i = 0; i < e->ncontexts; i++)
		weak |= weak_bits(e, &e->contexts[i]);
	return weak;
}

/* The provider's line, as native->open_device graded it: what is not weak is strong. */
static ledger_strength strength_of(const struct escrow_engine *e, const struct context *c)
{
	ledger_strength strength =
		ledger_weaken(LEDGER_STRENGTH_USUAL | LEDGER_STRONG(ESCROW_RECEIPT_QP_DESTROYED),
			      weak_bits(e, c));

	return c->info.hides_failures ? ledger_without_destroys(strength) : strength;
}

/*
 * The second of an owner's two native objects could not be made: the first goes again.  If that
 * fails the owner stays, quarantined.
 */
static void undo(struct context *c, uint64_t owner, uint32_t step, void *native)
{
	struct escrow_engine *e = c->e;
	int rc;

	engine_lock(e);
	rc = en_step(c, step, native);
	engine_unlock(e);
	if (rc)
		ledger_quarantine(e->ledger, owner, "half made, not undone");
	else
		ledger_owner_undo(e->ledger, owner);
}

static escrow_status own_context(struct escrow_engine *e, struct context *c,
				 struct escrow_error *error)
{
	struct ledger_owner_args owner = {.kind = ESCROW_OWNER_CONTEXT,
					  .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEALLOC_PD) |
						   LEDGER_STEP_BIT(ESCROW_STEP_CLOSE_DEVICE),
					  .parent = ledger_engine(e->ledger),
					  .strength = strength_of(e, c)};
	struct escrow_error detail = {.size = sizeof(detail)};
	escrow_status st = ledger_owner_add(e->ledger, &owner, &c->owner, &detail);
	int rc;

	if (st < 0)
		return args_pass(error, st, &detail);
	engine_lock(e);
	rc = en_step(c, ESCROW_STEP_ALLOC_PD, c->native);
	engine_unlock(e);
	if (rc) {
		undo(c, c->owner, ESCROW_STEP_CLOSE_DEVICE, c->native);
		c->owner = 0;
		c->native = NULL;
		return args_fail_errno(error, en_status_of(rc), rc,
				       "allocating a protection domain on %s: %s", c->info.name,
				       args_errno(rc));
	}
	c->has_pd = 1;
	ledger_owner_event(e->ledger, c->owner, LEDGER_E_READY);
	return ESCROW_OK;
}

/* Every slot of every connection that may meet here needs a place, or a flush overruns the queue. */
static uint32_t queue_depth(const struct escrow_engine *e, const struct context *c)
{
	uint64_t slots = (uint64_t)e->sq_depth + e->config.recv_depth;
	uint64_t rails = 0, depth;
	uint32_t i;

	for (i = 0; i < e->nrails; i++)
		rails += &e->contexts[e->rails[i].context] == c;
	depth = slots * e->config.max_peers * (rails ? rails : 1);
	return depth < c->info.max_cq_depth ? (uint32_t)depth : c->info.max_cq_depth;
}

void en_lane_clear(struct lane *lane)
{
	uint32_t left = queue_depth(lane->e, lane->context);
	bool more = true;

	/* Others may fill it all the while: no more than it can hold is of before. */
	for (; more; left -= left < CQE_BATCH ? left : CQE_BATCH) {
		en_lane_lock(lane);
		more = en_lane_poll(lane) && left;
		en_lane_unlock(lane);
	}
}

static escrow_status open_lane(struct escrow_engine *e, struct context *c, struct lane *lane,
			       struct escrow_error *error)
{
	struct ledger_owner_args owner = {.kind = ESCROW_OWNER_LANE,
					  .steps = LEDGER_STEP_BIT(ESCROW_STEP_DESTROY_CQ) |
						   LEDGER_STEP_BIT(ESCROW_STEP_DESTROY_CHANNEL),
					  .parent = c->owner,
					  .cq_depth = queue_depth(e, c)};
	struct escrow_error detail = {.size = sizeof(detail)};
	escrow_status st;
	uint32_t i;
	int rc;

	lane->e = e;
	lane->context = c;
	lane->in = (uint32_t)(c - e->contexts);
	lane->bit = UINT64_C(1) << (lane - e->lanes);
	for (i = 0; i < CHAIN_WRS; i++) {
		lane->chain.wr[i].sge = lane->chain.sge[i];
		lane->chain.wr[i].next = &lane->chain.wr[i + 1];
	}
	lane->single.sge = &lane->single_sge;
	lane->single.nsge = 1;
	lane->inline_below = (uint64_t)c->info.max_inline + 1;
	lane->slots = POOL_NONE;
	lane->fd = -1;
	st = ledger_owner_add(e->ledger, &owner, &lane->owner, &detail);
	if (st < 0)
		return args_pass(error, st, &detail);
	lane->ledger = ledger_lane_of(e->ledger, lane->owner);
	rc = en_step_channel(e, c, &lane->native);
	if (rc) {
		ledger_owner_undo(e->ledger, lane->owner);
		lane->owner = 0;
		lane->native = NULL;
		return args_fail_errno(error, en_status_of(rc), rc, "a channel on %s: %s",
				       c->info.name, args_errno(rc));
	}
	lane->created = 1;
	rc = en_step_queue(e, lane->native, owner.cq_depth);
	if (rc) {
		undo(c, lane->owner, ESCROW_STEP_DESTROY_CHANNEL, lane->native);
		lane->owner = 0;
		lane->native = NULL;
		return args_fail_errno(error, en_status_of(rc), rc,
				       "a completion queue of %u on %s: %s", owner.cq_depth,
				       c->info.name, args_errno(rc));
	}
	lane->created = 2;
	ledger_owner_event(e->ledger, lane->owner, LEDGER_E_READY);
	lane->fd = e->ops->lane_fd(lane->native);
	en_lane_quick(lane);
	if (e->config.events && event_watch(e, lane->fd))
		return args_fail(error, ESCROW_E_INTERNAL, "epoll_ctl: %s", args_errno(errno));
	return ESCROW_OK;
}

escrow_status en_lanes_open(struct escrow_engine *e, struct escrow_error *error)
{
	escrow_status st = ESCROW_OK;
	uint32_t i;

	for (i = 0; i < e->ncontexts && st == ESCROW_OK; i++)
		st = own_context(e, &e->contexts[i], error);
	for (i = 0; i < e->nlanes && st == ESCROW_OK; i++)
		st = open_lane(e, &e->contexts[i / e->config.num_lanes], &e->lanes[i], error);
	return st;
}

/* ---- Ended (runner, or an open that failed; locked) ---------------------------------------------------- */
bool en_owner_held(struct escrow_engine *e, uint64_t owner)
{
	struct ledger_owner_info info;

	return ledger_owner_info(e->ledger, owner, &info) == ESCROW_OK && info.held &&
	       info.state != ESCROW_OWNER_QUARANTINED;
}

bool en_owner_gone(struct escrow_engine *e, uint64_t owner)
{
	struct ledger_owner_info info;

	return ledger_owner_info(e->ledger, owner, &info) < 0;
}

bool en_owner_quarantined(struct escrow_engine *e, uint64_t owner)
{
	struct ledger_owner_info info;

	return ledger_owner_info(e->ledger, owner, &info) == ESCROW_OK &&
	       info.state == ESCROW_OWNER_QUARANTINED;
}

/* One destroy step of an owner: false = it stays, quarantined. */
static bool end_step(struct context *c, uint64_t owner, uint32_t step, void *native)
{
	struct escrow_engine *e = c->e;
	escrow_status st = ledger_step_begin(e->ledger, owner, step, NULL);
	int rc;

	if (st < 0) {
		/* What is held by others' quarantine needs none of its own: it ends with theirs. */
		if (!en_owner_held(e, owner))
			ledger_quarantine(e->ledger, owner, "what it holds is not free");
		return false;
	}
	rc = en_step(c, step, native);
	return ledger_step_end(e->ledger, owner, step, rc) == ESCROW_OK;
}

static void close_lane(struct escrow_engine *e, struct lane *lane)
{
	struct native_lane *native = lane->native;

	if (!lane->owner || !native)
		return;
	en_lane_lock(lane);
	ledger_owner_event(e->ledger, lane->owner, LEDGER_E_STOP);
	en_lane_unlock(lane);
	/* A lane with a quarantined connection is polled on: a late completion is a receipt. */
	if (en_owner_held(e, lane->owner))
		return;
	event_unwatch(e, lane->fd);
	en_lane_lock(lane);
	lane->native = NULL;
	en_lane_quick(lane);
	en_lane_unlock(lane);
	if (lane->created == 2 &&
	    !end_step(lane->context, lane->owner, ESCROW_STEP_DESTROY_CQ, native))
		return;
	end_step(lane->context, lane->owner, ESCROW_STEP_DESTROY_CHANNEL, native);
}

static void close_context(struct escrow_engine *e, struct context *c)
{
	struct native_context *native = c->native;

	if (!c->owner || !native)
		return;
	ledger_owner_event(e->ledger, c->owner, LEDGER_E_STOP);
	if (c->has_pd && !end_step(c, c->owner, ESCROW_STEP_DEALLOC_PD, native))
		return;
	c->native = NULL;
	end_step(c, c->owner, ESCROW_STEP_CLOSE_DEVICE, native);
}

void en_devices_close(struct escrow_engine *e)
{
	uint32_t i;

	for (i = 0; i < e->ncontexts; i++)
		if (e->contexts[i].owner && e->windows)
			en_windows_close(e, &e->contexts[i]);
	for (i = 0; i < e->nlanes; i++)
		close_lane(e, &e->lanes[i]);
	for (i = 0; i < e->ncontexts; i++)
		close_context(e, &e->contexts[i]);
}

uint64_t en_devices_lack(const struct escrow_engine *e)
{
	uint32_t i;

	/* A region is registered with every device. */
	for (i = 0; e->ops->takes_dmabuf && i < e->ncontexts; i++)
		if (!e->ops->takes_dmabuf(e->contexts[i].native))
			return ESCROW_CAP_DMABUF;
	return 0;
}
