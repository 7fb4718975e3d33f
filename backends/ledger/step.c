/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Native destroy steps: each is begun at most once for ever.  A repeat can destroy an innocent
 * object, because the kernel hands the lowest free id out again (core/rdma_core.c:297-306), and
 * several providers free their state before the kernel has answered.
 */
#include "backends/ledger/ledger-int.h"

#define BIT(step) lg_step_bit(step)
/* Steps that a connection may make, but need not. */
#define LADDER (BIT(ESCROW_STEP_QP_ERR) | BIT(ESCROW_STEP_QP_RESET))

static const char *step_name(uint32_t step)
{
	switch (step) {
	case ESCROW_STEP_QP_ERR:
		return "QP to ERR";
	case ESCROW_STEP_QP_RESET:
		return "QP to RESET";
	case ESCROW_STEP_DESTROY_QP:
		return "destroy QP";
	case ESCROW_STEP_DEREGISTER:
		return "deregister";
	case ESCROW_STEP_DEALLOC_WINDOW:
		return "dealloc window";
	case ESCROW_STEP_DESTROY_CQ:
	case LEDGER_STEP_DESTROY_CQ2:
		return "destroy CQ";
	case ESCROW_STEP_DESTROY_CHANNEL:
		return "destroy channel";
	case ESCROW_STEP_DEALLOC_PD:
		return "dealloc PD";
	case ESCROW_STEP_CLOSE_DEVICE:
		return "close device";
	default:
		return "step";
	}
}

static escrow_status may_connection(struct ledger *l, uint32_t slot, uint32_t step,
				    struct escrow_error *error)
{
	struct ledger_owner *o = &l->owners[slot];
	struct ledger_conn *conn = conn_of(l, slot);

	if (o->state != LEDGER_CONNECTION_RETIRING)
		return lg_fail(error, ESCROW_E_STATE, "%s: the connection is %s, not RETIRING",
			       step_name(step), ledger_state_name(LEDGER_M_CONNECTION, o->state));
	if (step == ESCROW_STEP_QP_ERR)
		return ESCROW_OK;
	if (step == ESCROW_STEP_QP_RESET)
		return ESCROW_OK;
	if (o->children || o->pins)
		return lg_fail(error, ESCROW_E_BUSY, "destroy QP: %u children, %u windows bound",
			       o->children, o->pins);
	if (conn->planned)
		return lg_fail(error, ESCROW_E_BUSY, "destroy QP: %u slices still planned",
			       conn->planned);
	if (conn->collect == COLLECT_SETTLE && conn->head != conn->tail)
		return lg_fail(error, ESCROW_E_BUSY, "destroy QP: %u debts not collected",
			       conn->tail - conn->head);
	if (conn->head != conn->tail && !(o->ended & BIT(ESCROW_STEP_QP_RESET)))
		return lg_fail(error, ESCROW_E_STATE,
			       "destroy QP: %u debts and RESET was never tried",
			       conn->tail - conn->head);
	return ESCROW_OK;
}

static escrow_status may_deregister(struct ledger *l, uint32_t slot, struct escrow_error *error)
{
	struct ledger_owner *o = &l->owners[slot];
	uint32_t loans;

	if (o->state != LEDGER_REGION_WITHDRAWING)
		return lg_fail(error, ESCROW_E_STATE,
			       "deregister: the region is %s, not WITHDRAWING",
			       ledger_state_name(LEDGER_M_REGION, o->state));
	for (uint32_t i = 0; i < l->config.max_lanes; i++) {
		struct ledger_lane *lane = &l->lanes[i];

		if (lane->live && __atomic_load_n(&lane->synced, __ATOMIC_ACQUIRE) <
					  l->withdrawn[region_index(l, slot)])
			return lg_fail(error, ESCROW_E_BUSY,
				       "deregister: lane %u has not been passed since", i);
	}
	loans = lg_region_loans(l, slot);
	if (loans || o->pins || o->children)
		return lg_fail(error, ESCROW_E_BUSY, "deregister: %u loans, %u grants and windows",
			       loans, o->pins);
	return ESCROW_OK;
}

static escrow_status may_lane(struct ledger *l, uint32_t slot, uint32_t step,
			      struct escrow_error *error)
{
	struct ledger_owner *o = &l->owners[slot];
	struct ledger_lane *lane = lane_of(l, slot);
	uint32_t cqs = o->steps & (BIT(ESCROW_STEP_DESTROY_CQ) | BIT(LEDGER_STEP_DESTROY_CQ2));

	if (o->state != LEDGER_LANE_DRAINING)
		return lg_fail(error, ESCROW_E_STATE, "%s: the lane is %s, not DRAINING",
			       step_name(step), ledger_state_name(LEDGER_M_LANE, o->state));
	if (o->children || o->pins)
		return lg_fail(error, ESCROW_E_BUSY, "%s: %u connections, %u pins", step_name(step),
			       o->children, o->pins);
	/* The destroy would sleep until they are: libibverbs/cmd_cq.c:230-268. */
	if (GET(lane->events_got) != GET(lane->events_acked))
		return lg_fail(error, ESCROW_E_BUSY, "%s: %u events got, %u acknowledged",
			       step_name(step), lane->events_got, lane->events_acked);
	if (step == ESCROW_STEP_DESTROY_CHANNEL && (o->ended & cqs) != cqs)
		return lg_fail(error, ESCROW_E_STATE, "destroy channel: its CQs come first");
	return ESCROW_OK;
}

static escrow_status may_context(struct ledger *l, uint32_t slot, uint32_t step,
				 struct escrow_error *error)
{
	struct ledger_owner *o = &l->owners[slot];
	uint32_t pd = o->steps & BIT(ESCROW_STEP_DEALLOC_PD);

	if (o->state != LEDGER_CONTEXT_DRAINING)
		return lg_fail(error, ESCROW_E_STATE, "%s: the context is %s, not DRAINING",
			       step_name(step), ledger_state_name(LEDGER_M_CONTEXT, o->state));
	if (o->children || o->pins)
		return lg_fail(error, ESCROW_E_BUSY, "%s: %u children, %u pins", step_name(step),
			       o->children, o->pins);
	if (step == ESCROW_STEP_CLOSE_DEVICE && (o->ended & pd) != pd)
		return lg_fail(error, ESCROW_E_STATE, "close device: its PD comes first");
	return ESCROW_OK;
}

static escrow_status may_begin(struct ledger *l, uint32_t slot, uint32_t step,
			       struct escrow_error *error)
{
	struct ledger_owner *o = &l->owners[slot];
	uint32_t context = lg_owner_context(l, slot);

	if (!((o->steps | (o->kind == ESCROW_OWNER_CONNECTION ? LADDER : 0)) & BIT(step)))
		return lg_fail(error, ESCROW_E_INVALID, "step %u is none of this owner's", step);
	if (o->begun & BIT(step))
		return lg_fail(error, ESCROW_E_STATE, "%s was called before; never again",
			       step_name(step));
	if (context != NONE && context_at(l, context)->fatal)
		return lg_fail(error, ESCROW_E_DEVICE, "%s: the device is lost", step_name(step));
	if (lg_owner_phase(l, slot) == ESCROW_OWNER_QUARANTINED)
		return lg_fail(error, ESCROW_E_STATE, "%s: the owner is quarantined",
			       step_name(step));
	if (o->begun & ~o->ended)
		return lg_fail(error, ESCROW_E_STATE, "%s: another step is under way",
			       step_name(step));
	switch (o->kind) {
	case ESCROW_OWNER_CONNECTION:
		return may_connection(l, slot, step, error);
	case ESCROW_OWNER_REGION:
	case ESCROW_OWNER_CONTROL:
		return may_deregister(l, slot, error);
	case ESCROW_OWNER_LANE:
		return may_lane(l, slot, step, error);
	case ESCROW_OWNER_CONTEXT:
		return may_context(l, slot, step, error);
	default:
		if (o->state != LEDGER_WINDOW_PARKED && o->state != LEDGER_WINDOW_ORPHAN)
			return lg_fail(error, ESCROW_E_STATE, "dealloc window: it is %s",
				       ledger_state_name(LEDGER_M_WINDOW, o->state));
		if (o->state == LEDGER_WINDOW_PARKED && o->pins + (window_grant(l, slot) != NONE))
			return lg_fail(error, ESCROW_E_BUSY, "dealloc window: a grant has it");
		return ESCROW_OK;
	}
}

escrow_status ledger_step_begin(struct ledger *l, uint64_t owner, uint32_t step,
				struct escrow_error *error)
{
	escrow_status status;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, owner, 0);
	if (slot == NONE) {
		status = lg_fail(error, ESCROW_E_INVALID, "%#llx is no owner",
				 (unsigned long long)owner);
		goto unlock;
	}
	status = may_begin(l, slot, step, error);
	if (status) {
		log_ctl(l, LOG_CODE(LEDGER_LOG_REFUSE, step), owner, (uint64_t)(int64_t)status);
		goto unlock;
	}
	l->owners[slot].begun |= BIT(step);
	l->owners[slot].stage = step;
	l->owners[slot].rc = 0;
	if (step == ESCROW_STEP_DEREGISTER)
		lg_owner_move(l, slot, LEDGER_E_STEP);
	log_ctl(l, LOG_CODE(LEDGER_LOG_CALL, step), owner, 0);
unlock:
	lg_unlock(l);
	return status;
}

static enum ledger_thing thing_of(uint32_t step)
{
	switch (step) {
	case ESCROW_STEP_QP_RESET:
		return LEDGER_LOAN;
	case ESCROW_STEP_DESTROY_QP:
		return LEDGER_QP;
	case ESCROW_STEP_DEREGISTER:
		return LEDGER_REGION;
	case ESCROW_STEP_DEALLOC_WINDOW:
		return LEDGER_WINDOW;
	case ESCROW_STEP_DESTROY_CHANNEL:
		return LEDGER_CHANNEL;
	case ESCROW_STEP_DEALLOC_PD:
		return LEDGER_PD;
	case ESCROW_STEP_CLOSE_DEVICE:
		return LEDGER_DEVICE;
	default:
		return LEDGER_CQ;
	}
}

/* QP_ERR and QP_RESET leave the connection where it is; a failed RESET quarantines it. */
static escrow_status end_ladder(struct ledger *l, uint32_t slot, uint32_t step, bool released)
{
	struct ledger_owner *o = &l->owners[slot];
	struct ledger_conn *conn = conn_of(l, slot);

	if (step == ESCROW_STEP_QP_ERR) {
		conn->error_state = o->rc == 0;
		conn->error_from = conn->tail;
		conn->special |= conn->error_state;
		lg_conn_short(l, conn);
		return o->rc == 0 ? ESCROW_OK : ESCROW_E_UNQUIESCED;
	}
	if (o->rc != 0) {
		lg_owner_quarantine(l, slot, "RESET failed");
		return ESCROW_E_UNQUIESCED;
	}
	if (!released)
		return ESCROW_E_UNQUIESCED;
	conn->collect = COLLECT_SETTLE;
	return ESCROW_OK;
}

static bool is_settled(struct ledger *l, uint32_t slot)
{
	struct ledger_owner *o = &l->owners[slot];

	if (o->kind == ESCROW_OWNER_CONNECTION)
		return conn_of(l, slot)->head == conn_of(l, slot)->tail;
	if (o->kind == ESCROW_OWNER_REGION || o->kind == ESCROW_OWNER_CONTROL)
		return o->pins == 0 && lg_region_loans(l, slot) == 0;
	return o->children == 0;
}

/* Its end is the receipt of what it still owes, too: it goes when that has been collected. */
static bool still_owes(struct ledger *l, uint32_t slot, uint32_t receipt)
{
	struct ledger_conn *conn;

	if (l->owners[slot].kind != ESCROW_OWNER_CONNECTION)
		return false;
	conn = conn_of(l, slot);
	if (conn->head == conn->tail)
		return false;
	conn->collect = COLLECT_SETTLE;
	conn->pending_receipt = (uint8_t)receipt;
	return true;
}

static escrow_status end_step(struct ledger *l, uint32_t slot, uint32_t step, int32_t rc)
{
	struct ledger_owner *o = &l->owners[slot];
	uint32_t context = lg_owner_context(l, slot);
	struct ledger_proof proof = {.receipt = ledger_receipt_of(step),
				     .strength = context_at(l, context)->strength,
				     .fatal = context_at(l, context)->fatal,
				     .settled = is_settled(l, slot)};
	bool released = rc == 0 && ledger_releases(thing_of(step), &proof);

	o->stage = step;
	o->rc = rc;
	o->ended |= BIT(step);
	log_ctl(l, LOG_CODE(LEDGER_LOG_RC, step), lg_owner_handle(l, slot), (uint64_t)(uint32_t)rc);
	if (rc == 0) {
		o->receipt = proof.receipt;
		log_ctl(l, LOG_CODE(LEDGER_LOG_RECEIPT, proof.receipt), lg_owner_handle(l, slot),
			(uint64_t)proof.strength << 1 | proof.fatal);
	}
	if (lg_owner_phase(l, slot) == ESCROW_OWNER_QUARANTINED)
		return ESCROW_E_UNQUIESCED; /* the device was lost during the call */
	if (BIT(step) & LADDER)
		return end_ladder(l, slot, step, released);
	if (step == ESCROW_STEP_DESTROY_QP && released && !ledger_releases(LEDGER_QP_SLOTS, &proof))
		released = false;
	if (!released) {
		lg_owner_quarantine(l, slot, rc ? "destroy failed" : "receipt is weak");
		return ESCROW_E_UNQUIESCED;
	}
	if ((o->ended & o->steps) == o->steps && !still_owes(l, slot, proof.receipt))
		lg_owner_release(l, slot, thing_of(step), proof.receipt);
	return ESCROW_OK;
}

escrow_status ledger_step_end(struct ledger *l, uint64_t owner, uint32_t step, int32_t rc)
{
	escrow_status status = ESCROW_E_INVALID;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, owner, 0);
	if (slot != NONE && (l->owners[slot].begun & ~l->owners[slot].ended & BIT(step)))
		status = end_step(l, slot, step, rc);
	lg_unlock(l);
	return status;
}

uint32_t ledger_step_calls(struct ledger *l, uint64_t owner, uint32_t step)
{
	uint32_t slot, calls = 0;

	lg_lock(l);
	slot = lg_owner_find(l, owner, 0);
	if (slot != NONE)
		calls = (l->owners[slot].begun & BIT(step)) != 0;
	lg_unlock(l);
	return calls;
}
