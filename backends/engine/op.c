/* SPDX-License-Identifier: BSD-2-Clause */
/* op.c - ops: their handles, their slots from one life to the next, and cancelling. */
#include "backends/engine/transfer.h"

struct op *en_op_find(struct escrow_engine *e, uint64_t handle)
{
	uint32_t i = LEDGER_SLOT(handle);

	if (handle >> 56 != OP_KIND || i >= e->config.max_ops)
		return NULL;
	return atomic_load(&e->op_table[i].handle) == handle ? &e->op_table[i] : NULL;
}

/* ---- An op's slot -------------------------------------------------------------------------------- */
void en_op_init(struct escrow_engine *e, struct op *op)
{
	op->e = e;
	op->handle = op_first((uint32_t)(op - e->op_table));
	op->done.object = op->returned.object = op;
	op->done.polled = op->returned.polled = en_op_polled;
}

static void pool_filled(struct escrow_engine *e)
{
	if ((atomic_load(&e->wants) & WANT_OP) && (atomic_fetch_and(&e->wants, ~WANT_OP) & WANT_OP))
		en_room(e);
}

static void plain_again(struct op *op)
{
	op->odd = 0;
	op->deadline = 0;
	op->rider = NULL;
}

void en_op_over(struct escrow_engine *e, struct op *op)
{
	if (op->odd) {
		en_deadline_drop(e, op);
		plain_again(op);
	}
	op_end(op, atomic_load(&op->handle));
	/* Kept with others until the end of the poll. */
	slot_back(e, &e->ended, (uint32_t)(op - e->op_table));
}

void en_op_polled(struct escrow_engine *e, struct event_node *node)
{
	struct op *op = node->object;

	if (node != &op->returned && node->event.custody != ESCROW_CUSTODY_RETURNED)
		return;
	en_op_over(e, op);
}

void en_ops_give(struct escrow_engine *e)
{
	pool_give_some(&e->op_pool, e->ended, pool_last(&e->op_pool, e->ended, UINT32_MAX));
	e->ended = POOL_NONE;
	pool_filled(e);
}

/* One that was never lent: the call keeps its slot for the next. */
void en_op_unused(struct escrow_engine *e, struct transfer *t, struct op *op)
{
	uint32_t i = (uint32_t)(op - e->op_table);

	plain_again(op);
	op_end(op, atomic_load(&op->handle));
	pool_link(&e->op_pool, i, t->spare);
	t->spare = i;
}

/* lane. */
static bool slots_of_lane_back(struct escrow_engine *e, struct lane *lane)
{
	uint32_t first = lane->slots;

	if (first == POOL_NONE)
		return false;
	lane->slots = POOL_NONE;
	pool_give_some(&e->op_pool, first, pool_last(&e->op_pool, first, UINT32_MAX));
	return true;
}

/*
 * A lane that somebody has may get some, or have some: who gives it back tells ROOM then (FULL_BUSY).  With the lanes
 * seen empty, whoever ends an op gives its slot to the pool and tells it, as WANT_OP stands (FULL_POOL).
 */
bool en_slots_back(struct escrow_engine *e, struct transfer *t)
{
	bool any = false, busy = false;
	uint32_t i;

	for (i = 0; i < e->nlanes; i++) {
		struct lane *lane = &e->lanes[i];
		bool ours = t->held & lane->bit;

		if (!ours && !en_lane_trylock(lane)) {
			busy = true;
			continue;
		}
		any |= slots_of_lane_back(e, lane);
		if (!ours)
			en_lane_unlock(lane);
	}
	t->full = busy ? FULL_BUSY : FULL_POOL;
	return any;
}

/* At the end of a call. */
void en_give_spare(struct escrow_engine *e, struct transfer *t)
{
	uint32_t i;

	for (; t->spare != POOL_NONE; t->spare = i) {
		i = pool_next(&e->op_pool, t->spare);
		pool_give(&e->op_pool, t->spare);
	}
	pool_filled(e);
}

/* ---- Cancelling ----------------------------------------------------------------------------------- */
escrow_status engine_cancel(struct escrow_engine *e, uint64_t handle, uint32_t flags)
{
	struct op *op;
	uint32_t state;
	uint64_t seen;

	if (!engine_here(e) || !state_allows(SLOT_CANCEL, engine_state(e)))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	op = en_op_find(e, handle);
	state = op ? atomic_load(&op->state) : OP_FREE;
	if (state == OP_FREE)
		return ESCROW_E_INVALID;
	if (state == OP_DONE || state == OP_HELD)
		return ESCROW_OK;
	/* Every slice is with the device: what it has cannot be taken back, only the reason changes. */
	do {
		seen = atomic_load(&op->canceled);
		/* It has ended meanwhile: the mark may be that of the next one there. */
		if (atomic_load(&op->handle) != handle)
			return ESCROW_OK;
	} while (!atomic_compare_exchange_weak(&op->canceled, &seen, handle));
	return ESCROW_IN_PROGRESS;
}
