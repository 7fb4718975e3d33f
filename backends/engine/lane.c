/* SPDX-License-Identifier: BSD-2-Clause */
/* lane.c - completion queues: who holds a lane polls it and settles what it finds. */
#include "backends/engine/engine.h"

#include <errno.h>

void en_lane_wanted(struct escrow_engine *e)
{
	uint32_t wants = atomic_load(&e->wants);

	if ((wants & WANT_LANE) && (atomic_fetch_and(&e->wants, ~WANT_LANE) & WANT_LANE))
		en_room(e);
	if ((wants & WANT_EMPTY) && !atomic_load(&e->active))
		en_work(e, &e->work);
}

/* ---- Whether it is polled ------------------------------------------------------------------------ */
void en_lane_quick(struct lane *lane)
{
	lane->quick = lane->deaf || lane->e->config.test_faults ? NULL : lane->native;
}

void en_lane_deafen(struct lane *lane)
{
	lane->deaf = 1;
	en_lane_quick(lane);
}

void en_lane_used(struct lane *lane, bool more)
{
	lane->users += more ? 1 : UINT32_MAX;
	if (lane->users)
		atomic_fetch_or(&lane->e->lanes_used, lane->bit);
	else
		atomic_fetch_and(&lane->e->lanes_used, ~lane->bit);
}

/* ---- What a fault plan does to completions -------------------------------------------------------- */
static void release_held(struct lane *lane, struct event_out *out)
{
	uint32_t i, n = lane->nheld;

	lane->nheld = 0;
	for (i = 0; i < n; i++)
		en_take(lane, &lane->held[i], 1, out);
}

static void take_planned(struct lane *lane, const struct native_cqe *cqe, struct event_out *out)
{
	if (cqe->id >> 56 == CHANNEL_ID) {
		en_take(lane, cqe, 1, out);
		return;
	}
	switch (fault_next_cqe(&lane->e->fault)) {
	case CQE_HOLD:
		if (lane->nheld < FAULT_HELD)
			lane->held[lane->nheld++] = *cqe;
		return;
	case CQE_DROP:
		return;
	case CQE_DUP:
		en_take(lane, cqe, 1, out);
		break;
	case CQE_STALE:
		lane->stale = *cqe;
		lane->has_stale = 1;
		break;
	case CQE_OK:
	case CQE_RELEASE:
		break;
	}
	en_take(lane, cqe, 1, out);
}

void en_faults_due(struct lane *lane, struct event_out *out)
{
	if (lane->has_stale) {
		lane->has_stale = 0;
		en_take(lane, &lane->stale, 1, out);
	}
	if (lane->nheld && atomic_load(&lane->e->fault.cqe) != CQE_HOLD)
		release_held(lane, out);
}

void en_take_planned(struct lane *lane, const struct native_cqe *cqe, int n, struct event_out *out)
{
	int i;

	for (i = 0; i < n; i++)
		take_planned(lane, &cqe[i], out);
}

/* ---- Wake-ups --------------------------------------------------------------------------------------- */
bool en_lanes_arm(struct escrow_engine *e)
{
	bool idle = true;
	uint32_t i;

	for (i = 0; i < e->nlanes; i++) {
		struct lane *lane = &e->lanes[i];

		if (!en_lane_trylock(lane)) {
			idle = false;
			continue;
		}
		if (lane->native && !atomic_load(&lane->context->fatal)) {
			/* The channel is closed: only the removal of the device does that. */
			if (e->ops->take_wakeups(lane->native) == EIO)
				en_context_lost(lane->context);
			e->ops->arm_cq(lane->native);
			/* What came before the queue was armed wakes nobody, and what is left of it neither. */
			if (en_lane_poll(lane))
				idle = false;
		}
		en_lane_unlock(lane);
	}
	return idle;
}

void en_lane_breaks(struct lane *lane)
{
	en_lane_deafen(lane);
	if (!atomic_exchange(&lane->poisoned, 1))
		en_work(lane->e, &lane->e->work);
}

/* runner, locked. The queue is unusable: what is owed on it can only be settled by resets. */
void en_lane_poison(struct lane *lane)
{
	struct escrow_engine *e = lane->e;
	uint32_t i, k;

	en_lane_lock(lane);
	en_lane_deafen(lane);
	atomic_store(&lane->poisoned, 1);
	ledger_owner_event(e->ledger, lane->owner, LEDGER_E_POISON);
	en_lane_unlock(lane);
	for (i = 0; i < e->config.max_peers; i++) {
		struct peer *p = &e->peers[i];

		if (atomic_load(&p->state) == PEER_FREE)
			continue;
		for (k = 0; k < p->nconns; k++)
			if (p->conns[k].lane == lane)
				en_conn_broken(&p->conns[k]);
	}
}
