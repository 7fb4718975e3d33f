/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection's debts as a whole: what a reset, a quarantine or a late receipt makes of them. */
#include "backends/ledger/ledger-int.h"

void lg_conn_open(struct ledger *l, uint32_t slot, const struct ledger_owner_args *args)
{
	struct ledger_owner *o = &l->owners[slot];
	struct ledger_conn *c = conn_of(l, slot);

	/* head and tail go on from the last owner of the ring: old wr_ids stay foreign. */
	c->planned = 0;
	PUT(c->kept, 0);
	c->lane = lane_of(l, o->parent);
	c->room = args->sq_depth - 1;
	c->sq_depth = args->sq_depth;
	c->rq_depth = args->rq_depth;
	c->handle = lg_owner_handle(l, slot);
	c->user = args->user;
	c->parts = 0;
	c->slot = slot;
	c->name = o->name;
	c->stuck_upto = c->head;
	c->first = c->head;
	c->error_from = 0;
	c->error_state = 0;
	c->ready = 0;
	c->collect = COLLECT_NONE;
	c->held = 0;
	c->was_stuck = 0;
	c->special = 0;
	c->sentinel = 0;
	c->pending_receipt = 0;
	c->place = 0;
	c->lane->cq_taken += args->sq_depth + args->rq_depth;
	lg_conn_short(l, c);
}

void lg_conn_short(struct ledger *l, struct ledger_conn *conn)
{
	bool plain = conn->handle && conn->lane->plain;

	PUT(conn->settles, plain && !conn->special ? conn->lane : NULL);
	PUT(conn->lends, plain && conn->ready && !l->ops_slowly ? conn->room : 0);
}

void lg_conns_short(struct ledger *l, const struct ledger_lane *lane)
{
	for (uint32_t i = 0; i < l->config.max_connections; i++)
		if (l->conns[i].handle && (!lane || l->conns[i].lane == lane))
			lg_conn_short(l, &l->conns[i]);
}

void lg_conn_closed(struct ledger *l, struct ledger_conn *conn)
{
	conn->lane->cq_taken -= conn->sq_depth + conn->rq_depth;
	if (!conn->place)
		lg_budget_give(l, conn);
	conn->ready = 0;
	conn->handle = 0;
	conn->user = 0;
	lg_conn_short(l, conn);
}

static void hold_regions(struct ledger *l, const struct ledger_debt *d, int by)
{
	for (unsigned int i = 0; i < d->shape.of.nregions; i++)
		lg_owner_hold(l, d->region[i] + l->base[ESCROW_OWNER_REGION], by);
}

/*
 * Its debts are stuck, and with them the regions they may touch.  A receipt that came before (a
 * strong reset) stays one.
 */
void lg_conn_stick(struct ledger *l, struct ledger_conn *conn)
{
	if (conn->collect == COLLECT_SETTLE)
		return;
	conn->collect = COLLECT_STUCK;
	conn->stuck_upto = conn->head;
	conn->was_stuck = 1;
	conn->special = 1;
	conn->held = 1;
	lg_conn_short(l, conn);
	for (uint32_t i = conn->head; i != conn->tail; i++)
		hold_regions(l, &conn->ring[i & conn->mask], 1);
}

void lg_conn_unstick(struct ledger *l, struct ledger_conn *conn)
{
	if (!conn->held)
		return;
	conn->held = 0;
	for (uint32_t i = conn->head; i != conn->tail; i++)
		hold_regions(l, &conn->ring[i & conn->mask], -1);
}

/* One debt of a quarantined connection got its completion after all: the head moves on. */
uint32_t lg_conn_late(struct ledger_lane *lane, struct ledger_conn *conn,
		      enum ledger_outcome outcome, struct ledger_done *done)
{
	struct ledger_debt *d = &conn->ring[conn->head & conn->mask];
	struct ledger *l = lane->ledger;

	if (!conn->held)
		return lg_debt_settle(lane, conn, outcome, done);
	lg_lock(l);
	hold_regions(l, d, -1);
	lg_unlock(l);
	return lg_debt_settle(lane, conn, outcome, done);
}

/* The late receipt of the queue's end releases the connection when its last debt is collected. */
static void maybe_release(struct ledger_lane *lane, struct ledger_conn *conn)
{
	struct ledger *l = lane->ledger;

	if (!conn->pending_receipt || conn->head != conn->tail)
		return;
	lg_lock(l);
	if (l->owners[conn->slot].children == 0 && l->owners[conn->slot].pins == 0)
		lg_owner_release(l, conn->slot, LEDGER_QP, conn->pending_receipt);
	else
		conn->pending_receipt = 0;
	lg_unlock(l);
}

int32_t ledger_conn_collect(struct ledger_lane *lane, uint64_t connection, struct ledger_done *done,
			    uint32_t max)
{
	struct ledger_conn *conn = lg_conn_find(lane, connection);
	uint32_t n = 0;

	if (!conn || max == 0)
		return ESCROW_E_INVALID;
	if (conn->collect == COLLECT_SETTLE) {
		while (conn->head != conn->tail && n < max)
			n += lg_debt_settle(lane, conn, LEDGER_DISCARDED, &done[n]);
		maybe_release(lane, conn);
	} else if (conn->collect == COLLECT_STUCK) {
		if ((int32_t)(conn->stuck_upto - conn->head) < 0)
			conn->stuck_upto = conn->head;
		while (conn->stuck_upto != conn->tail && n < max) {
			struct ledger_debt *d = &conn->ring[conn->stuck_upto++ & conn->mask];

			if (d->shape.of.what == LEDGER_WR_SLICE)
				n += lg_op_stuck(lane, d, &done[n]);
		}
	}
	return (int32_t)n;
}

uint32_t ledger_conn_debt(struct ledger_lane *lane, uint64_t connection)
{
	struct ledger_conn *conn = lg_conn_find(lane, connection);

	return conn ? conn->tail - conn->head : 0;
}

uint32_t ledger_conn_room(struct ledger_lane *lane, uint64_t connection)
{
	struct ledger_conn *conn = lg_conn_find(lane, connection);
	uint32_t taken;

	if (!conn || !conn->ready)
		return 0;
	taken = conn_used(conn) + GET(conn->kept);
	return taken < conn->room ? conn->room - taken : 0;
}
