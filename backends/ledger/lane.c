/* SPDX-License-Identifier: BSD-2-Clause */
#include "backends/ledger/hot.h"

struct ledger_lane *ledger_lane_of(struct ledger *l, uint64_t owner)
{
	struct ledger_lane *lane = NULL;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, owner, ESCROW_OWNER_LANE);
	if (slot != NONE)
		lane = lane_of(l, slot);
	lg_unlock(l);
	return lane;
}

struct ledger_conn *ledger_conn_of(struct ledger_lane *lane, uint64_t owner)
{
	return lg_conn_find(lane, owner);
}

void ledger_lane_sync(struct ledger_lane *lane)
{
	uint64_t seen = __atomic_load_n(&lane->ledger->withdrawals, __ATOMIC_ACQUIRE);

	__atomic_store_n(&lane->synced, seen, __ATOMIC_RELEASE);
}

void lg_log_alone(struct ledger_lane *lane, uint64_t wr_id, uint64_t user)
{
	log_lane(lane, LOG_CODE(LEDGER_LOG_LEND, LEDGER_WR_SLICE), wr_id, user);
}

void ledger_lane_events(struct ledger_lane *lane, uint32_t got, uint32_t acked)
{
	PUT(lane->events_got, lane->events_got + got);
	PUT(lane->events_acked, lane->events_acked + acked);
}

uint64_t ledger_lane_anomalies(const struct ledger_lane *lane)
{
	return GET(lane->anomalies);
}
