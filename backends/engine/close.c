/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * close.c - the end of an engine, and of a device that is lost.
 *
 * close walks from the leaves to the root: ops, peers (with grants and connections), offers, regions,
 * lanes, devices.  A step that proves nothing leaves its owner quarantined and the siblings go on; at
 * the end the ledger says whether anything is left.
 */
#include "backends/engine/engine.h"

enum stage { STAGE_OPS, STAGE_PEERS, STAGE_REGIONS, STAGE_DEVICES, STAGE_END };

static void end_polled(struct escrow_engine *e, struct event_node *node)
{
	atomic_store(&e->state, node->event.kind == ESCROW_EV_CLOSED ? ESCROW_STATE_CLOSED
								     : ESCROW_STATE_QUARANTINED);
	atomic_store(&e->end_queued, 0);
	/* A receipt may have come between the last look and now. */
	en_work(e, &e->work);
}

static void repeat_polled(struct escrow_engine *e, struct event_node *node)
{
	atomic_store(&e->repeat_queued, 0);
}

/*
 * Receipts that come after the quarantine: late completions, or a fence from outside.  Nothing that
 * was tried is tried again.  True if something is stuck, or its last event has not been polled.
 */
static bool late_objects(struct escrow_engine *e)
{
	bool some = false;
	uint32_t i;

	for (i = 0; i < e->config.max_grants; i++) {
		en_grant_late(e, &e->grants[i]);
		some |= e->grants[i].stuck;
	}
	for (i = 0; i < e->config.max_regions; i++) {
		en_region_late(e, &e->regions[i]);
		some |= e->regions[i].stuck;
	}
	return some;
}

static void tell_end(struct escrow_engine *e)
{
	struct event_what what = {.kind = ESCROW_EV_CLOSED};
	uint32_t held, own = ledger_quarantined(e->ledger, &held);

	/* What was proved after its quarantine is told before the end: then in late_receipts(). */
	if (own + held || (e->fenced && late_objects(e))) {
		what.kind = ESCROW_EV_QUARANTINED;
		what.status = ESCROW_E_UNQUIESCED;
		what.bytes = e->withheld;
	}
	e->told_end = 1;
	atomic_store(&e->end_queued, 1);
	e->end.polled = end_polled;
	event_send(e, &e->end, &what);
}

static bool ops_ended(struct escrow_engine *e)
{
	if (!atomic_load(&e->active) || e->close_mode == ESCROW_CLOSE_ABORT)
		return true;
	if (e->close_deadline && e->now >= e->close_deadline)
		return true;
	if (e->close_deadline)
		en_wake_at(e, e->close_deadline);
	return false;
}

static void leave_all(struct escrow_engine *e)
{
	uint32_t i;

	for (i = 0; i < e->config.max_peers; i++)
		en_peer_leave(e, &e->peers[i], ESCROW_OK);
	for (i = 0; i < e->config.max_grants; i++)
		en_grant_revoke(e, &e->grants[i]);
}

static bool peers_ended(struct escrow_engine *e)
{
	uint32_t i, state;

	for (i = 0; i < e->config.max_peers; i++) {
		state = atomic_load(&e->peers[i].state);
		if (state != PEER_FREE && state != PEER_DOWN)
			return false;
	}
	for (i = 0; i < e->config.max_grants; i++)
		if (e->grants[i].state != GRANT_FREE && e->grants[i].state != GRANT_ENDED)
			return false;
	return true;
}

static bool regions_ended(struct escrow_engine *e)
{
	uint32_t i;

	for (i = 0; i < e->config.max_regions; i++)
		if (e->regions[i].state == REGION_LIVE || e->regions[i].state == REGION_LEAVING)
			return false;
	return true;
}

static void regions_leave(struct escrow_engine *e)
{
	uint32_t i;

	/* All connections are gone or quarantined: what is still busy now stays so. */
	e->closing_hard = 1;
	for (i = 0; i < e->config.max_regions; i++) {
		en_region_leave(e, &e->regions[i]);
		if (e->regions[i].state == REGION_LEAVING)
			en_work(e, &e->regions[i].work);
	}
}

static void close_advance(struct escrow_engine *e)
{
	switch ((enum stage)e->close_stage) {
	case STAGE_OPS:
		if (!ops_ended(e))
			return;
		e->close_stage = STAGE_PEERS;
		leave_all(e);
		/* fall through */
	case STAGE_PEERS:
		if (!peers_ended(e))
			return;
		e->close_stage = STAGE_REGIONS;
		/* Offers have gone, which kept regions. */
		en_fence_apply(e);
		regions_leave(e);
		/* fall through */
	case STAGE_REGIONS:
		if (!regions_ended(e))
			return;
		e->close_stage = STAGE_DEVICES;
		/* fall through */
	case STAGE_DEVICES:
		en_devices_close(e);
		en_fence_apply(e);
		e->close_stage = STAGE_END;
		tell_end(e);
		break;
	case STAGE_END:
		break;
	}
}

static void late_receipts(struct escrow_engine *e)
{
	uint32_t held;

	late_objects(e);
	if (ledger_quarantined(e->ledger, &held) + held == 0 && !atomic_exchange(&e->end_queued, 1))
		event_send(e, &e->end, &(struct event_what){.kind = ESCROW_EV_CLOSED});
}

static void poisoned_lanes(struct escrow_engine *e)
{
	uint32_t i;

	for (i = 0; i < e->nlanes; i++)
		if (atomic_load(&e->lanes[i].poisoned) && !e->lanes[i].poison_seen) {
			e->lanes[i].poison_seen = 1;
			en_lane_poison(&e->lanes[i]);
		}
}

static void lost_contexts(struct escrow_engine *e)
{
	uint32_t i;

	for (i = 0; i < e->ncontexts; i++)
		if (atomic_load(&e->contexts[i].lost))
			en_context_fatal(e, &e->contexts[i]);
}

/* Before the engine's end, too. */
static void fenced(struct escrow_engine *e)
{
	if (!e->fenced || engine_state(e) == ESCROW_STATE_CLOSED)
		return;
	en_fence_apply(e);
	late_objects(e);
}

void en_engine_advance(struct escrow_engine *e)
{
	lost_contexts(e);
	fenced(e);
	poisoned_lanes(e);
	en_requests_again(e);
	en_regions_again(e);
	en_notify_windows(e);
	en_drain_check(e, e->now);
	if (engine_state(e) == ESCROW_STATE_CLOSING && !e->told_end)
		close_advance(e);
	if (engine_state(e) == ESCROW_STATE_QUARANTINED)
		late_receipts(e);
}

static escrow_status close_again(struct escrow_engine *e)
{
	if (atomic_exchange(&e->repeat_queued, 1))
		return ESCROW_IN_PROGRESS;
	e->repeat.polled = repeat_polled;
	event_send(e, &e->repeat,
		   &(struct event_what){.kind = ESCROW_EV_QUARANTINED,
					.status = ESCROW_E_UNQUIESCED,
					.bytes = e->withheld,
					.flags = ESCROW_EVF_REPEAT});
	return ESCROW_IN_PROGRESS;
}

static escrow_status close_locked(struct escrow_engine *e, uint64_t deadline, uint32_t mode)
{
	switch (engine_state(e)) {
	case ESCROW_STATE_CLOSED:
		return ESCROW_OK;
	case ESCROW_STATE_QUARANTINED:
		return close_again(e);
	case ESCROW_STATE_CLOSING:
		if (mode == ESCROW_CLOSE_ABORT)
			e->close_mode = mode;
		break;
	default:
		en_drain_end(e, ESCROW_E_CANCELED);
		e->close_mode = mode;
		e->close_deadline = deadline;
		e->close_stage = STAGE_OPS;
		atomic_fetch_or(&e->wants, WANT_EMPTY);
		ledger_owner_event(e->ledger, ledger_engine(e->ledger), LEDGER_E_STOP);
		atomic_store(&e->state, ESCROW_STATE_CLOSING);
		break;
	}
	en_work(e, &e->work);
	return ESCROW_IN_PROGRESS;
}

escrow_status engine_close(struct escrow_engine *e, uint64_t deadline_ns, uint32_t mode)
{
	escrow_status st;

	if (!engine_here(e))
		return ESCROW_E_STATE;
	if (mode != ESCROW_CLOSE_GRACEFUL && mode != ESCROW_CLOSE_ABORT)
		return ESCROW_E_INVALID;
	engine_lock(e);
	st = close_locked(e, deadline_ns, mode);
	engine_unlock(e);
	return st;
}

/* ---- A device that is lost ------------------------------------------------------------------------ */
/* From here on nothing it says is a proof: everything that lives in it freezes. */
static void freeze(struct escrow_engine *e, struct context *c)
{
	uint32_t i, k;

	for (i = 0; i < e->nlanes; i++)
		if (e->lanes[i].context == c) {
			en_lane_lock(&e->lanes[i]);
			en_lane_deafen(&e->lanes[i]);
		}
	atomic_store(&c->fatal, 1);
	ledger_context_fatal(e->ledger, c->owner);
	for (i = 0; i < e->config.max_peers; i++) {
		struct peer *p = &e->peers[i];

		for (k = 0; k < p->nconns; k++) {
			struct conn *conn = &p->conns[k];

			if (!conn->lane || conn->lane->context != c || !conn->native)
				continue;
			conn_ready(conn, CONN_NOT_READY);
			en_collect(conn);
		}
	}
	for (i = 0; i < e->nlanes; i++)
		if (e->lanes[i].context == c) {
			/* Nobody takes its wake-ups any more, so the descriptor would stay readable. */
			event_unwatch(e, e->lanes[i].fd);
			en_lane_unlock(&e->lanes[i]);
		}
}

void en_context_fatal(struct escrow_engine *e, struct context *c)
{
	uint32_t state = engine_state(e);

	if (atomic_load(&c->fatal))
		return;
	if (state < ESCROW_STATE_CLOSING) {
		en_drain_end(e, ESCROW_E_DEVICE);
		atomic_store(&e->state, ESCROW_STATE_FAILED);
	}
	freeze(e, c);
	if (!atomic_exchange(&e->fatal_told, 1))
		event_send(
			e, &e->device,
			&(struct event_what){.kind = ESCROW_EV_DEVICE, .status = ESCROW_E_DEVICE});
	en_work(e, &e->work);
}
