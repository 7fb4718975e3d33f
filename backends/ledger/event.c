/* SPDX-License-Identifier: BSD-2-Clause */
/* What a backend says of an owner outside its native steps, and what it may ask. */
#include "backends/ledger/ledger-int.h"

#include <string.h>

static void region_withdrawn(struct ledger *l, uint32_t slot)
{
	uint64_t number = l->withdrawals + 1;

	l->withdrawn[region_index(l, slot)] = number;
	__atomic_store_n(&l->withdrawals, number, __ATOMIC_RELEASE);
}

static escrow_status move(struct ledger *l, uint32_t slot, enum ledger_event event)
{
	struct ledger_owner *o = &l->owners[slot];
	bool region = o->kind == ESCROW_OWNER_REGION || o->kind == ESCROW_OWNER_CONTROL;

	if (event != LEDGER_E_READY && event != LEDGER_E_STOP && event != LEDGER_E_POISON &&
	    event != LEDGER_E_FENCE)
		return ESCROW_E_INVALID;
	if (o->kind == ESCROW_OWNER_GRANT || o->kind == ESCROW_OWNER_WINDOW)
		return ESCROW_E_INVALID;
	if (ledger_next(ledger_machine_of(o->kind), o->state, event) == LEDGER_ILLEGAL)
		return ESCROW_E_STATE;
	if (o->kind == ESCROW_OWNER_PEER && (o->children || o->pins))
		return ESCROW_E_BUSY;
	/* The state first: a lane that has seen the new number has seen the state too. */
	if (region && event == LEDGER_E_STOP) {
		lg_owner_move(l, slot, event);
		region_withdrawn(l, slot);
		return ESCROW_OK;
	}
	lg_owner_move(l, slot, event);
	if (event == LEDGER_E_POISON)
		lane_believe(lane_of(l, slot), false);
	if (event == LEDGER_E_FENCE)
		lg_holdout_end(l, lg_owner_handle(l, slot));
	if (o->kind == ESCROW_OWNER_PEER && event == LEDGER_E_STOP) {
		lg_name_put(l, o->name);
		l->owners[o->parent].children--;
		lg_owner_give(l, slot);
	}
	return ESCROW_OK;
}

escrow_status ledger_owner_event(struct ledger *l, uint64_t owner, enum ledger_event event)
{
	escrow_status status = ESCROW_E_INVALID;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, owner, 0);
	if (slot != NONE)
		status = move(l, slot, event);
	lg_unlock(l);
	return status;
}

static const uint8_t things[KINDS] = {
	[ESCROW_OWNER_CONTEXT] = LEDGER_DEVICE, [ESCROW_OWNER_LANE] = LEDGER_CHANNEL,
	[ESCROW_OWNER_CONNECTION] = LEDGER_QP,  [ESCROW_OWNER_WINDOW] = LEDGER_WINDOW,
	[ESCROW_OWNER_REGION] = LEDGER_REGION,  [ESCROW_OWNER_CONTROL] = LEDGER_REGION,
};

static bool owes(struct ledger *l, uint32_t slot)
{
	struct ledger_owner *o = &l->owners[slot];

	switch (o->kind) {
	case ESCROW_OWNER_CONNECTION:
		return conn_of(l, slot)->head != conn_of(l, slot)->tail ||
		       conn_of(l, slot)->planned || conn_of(l, slot)->kept;
	case ESCROW_OWNER_REGION:
	case ESCROW_OWNER_CONTROL:
		return lg_region_loans(l, slot) != 0;
	default:
		return false;
	}
}

escrow_status ledger_owner_gone(struct ledger *l, uint64_t owner)
{
	escrow_status status = ESCROW_OK;
	uint32_t slot;
	struct ledger_owner *o;

	lg_lock(l);
	slot = lg_owner_find(l, owner, 0);
	o = slot == NONE ? NULL : &l->owners[slot];
	if (!o || o->kind == ESCROW_OWNER_GRANT || o->kind == ESCROW_OWNER_PEER)
		status = ESCROW_E_INVALID;
	else if (o->steps || o->stuck)
		status = ESCROW_E_STATE;
	else if (o->children || o->pins || owes(l, slot))
		status = ESCROW_E_BUSY;
	else if (o->kind == ESCROW_OWNER_REGION || o->kind == ESCROW_OWNER_CONTROL)
		status = lg_owner_move(l, slot, LEDGER_E_STEP) ? ESCROW_OK : ESCROW_E_STATE;
	if (!status &&
	    ledger_next(ledger_machine_of(o->kind), o->state, LEDGER_E_RELEASED) == LEDGER_ILLEGAL)
		status = ESCROW_E_STATE;
	if (!status && o->kind == ESCROW_OWNER_ENGINE)
		lg_owner_move(l, slot, LEDGER_E_RELEASED);
	else if (!status)
		lg_owner_release(l, slot, (enum ledger_thing)things[o->kind], ESCROW_RECEIPT_NONE);
	lg_unlock(l);
	return status;
}

escrow_status ledger_window_key(struct ledger *l, uint64_t window, uint32_t rkey)
{
	escrow_status status = ESCROW_E_INVALID;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, window, ESCROW_OWNER_WINDOW);
	if (slot != NONE) {
		if (!window_of(l, slot)->binds)
			window_of(l, slot)->rkey = rkey;
		status = ESCROW_OK;
	}
	lg_unlock(l);
	return status;
}

/* Pins go sideways or up, never to a descendant: else nobody of the circle could ever go. */
static bool is_above(const struct ledger *l, uint32_t slot, uint32_t above)
{
	while (slot != NONE && slot != above)
		slot = l->owners[slot].parent;
	return slot == above;
}

escrow_status ledger_pin(struct ledger *l, uint64_t by, uint64_t target)
{
	escrow_status status = ESCROW_OK;
	uint32_t b, t, free_pins = 0;

	lg_lock(l);
	b = lg_owner_find(l, by, 0);
	t = lg_owner_find(l, target, 0);
	if (b == NONE || t == NONE || is_above(l, t, b)) {
		status = ESCROW_E_INVALID;
		goto unlock;
	}
	for (unsigned int i = 0; i < PINS; i++) {
		if (l->owners[b].pin[i] == NONE)
			free_pins++;
		if (l->owners[b].pin[i] == t)
			status = ESCROW_E_STATE;
	}
	/* A window needs its three for grant, region and connection. */
	if (!status && (free_pins == 0 || l->owners[b].kind == ESCROW_OWNER_WINDOW))
		status = ESCROW_E_LIMIT;
	if (!status && lg_owner_phase(l, t) != ESCROW_OWNER_LIVE)
		status = ESCROW_E_STATE;
	if (!status)
		lg_owner_pin(l, b, t);
unlock:
	lg_unlock(l);
	return status;
}

/* Only pins that ledger_pin() made: the ledger's own end with what they stand for. */
escrow_status ledger_unpin(struct ledger *l, uint64_t by, uint64_t target)
{
	escrow_status status = ESCROW_E_INVALID;
	uint32_t b, t;

	lg_lock(l);
	b = lg_owner_find(l, by, 0);
	t = lg_owner_find(l, target, 0);
	if (b == NONE || t == NONE)
		goto unlock;
	if (l->owners[b].kind == ESCROW_OWNER_WINDOW || l->owners[b].kind == ESCROW_OWNER_GRANT ||
	    (l->owners[b].kind == ESCROW_OWNER_CONNECTION &&
	     l->owners[t].kind == ESCROW_OWNER_PEER))
		goto unlock;
	if (l->owners[b].stuck) {
		status = ESCROW_E_STATE;
		goto unlock;
	}
	for (unsigned int i = 0; i < PINS; i++) {
		if (l->owners[b].pin[i] == t)
			status = ESCROW_OK;
	}
	if (!status)
		lg_owner_unpin(l, b, t);
unlock:
	lg_unlock(l);
	return status;
}

escrow_status ledger_owner_info(struct ledger *l, uint64_t owner, struct ledger_owner_info *out)
{
	escrow_status status = ESCROW_E_INVALID;
	const struct ledger_owner *o;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, owner, 0);
	if (slot == NONE)
		goto unlock;
	o = &l->owners[slot];
	*out = (struct ledger_owner_info){
		.kind = o->kind,
		.machine_state = o->state,
		.state = lg_owner_phase(l, slot),
		.children = o->children,
		.pins = o->pins,
		.held = o->held,
		.stage = o->stage,
		.rc = o->rc,
		.receipt = o->receipt,
		.parent = lg_owner_handle(l, o->parent),
	};
	if (o->kind != ESCROW_OWNER_WINDOW) {
		out->addr = l->spans[slot].addr;
		out->length = l->spans[slot].length;
	}
	if (o->kind == ESCROW_OWNER_REGION || o->kind == ESCROW_OWNER_CONTROL)
		out->loans = lg_region_loans(l, slot);
	else if (o->kind == ESCROW_OWNER_CONNECTION)
		out->loans = GET(conn_of(l, slot)->tail) - GET(conn_of(l, slot)->head);
	status = ESCROW_OK;
unlock:
	lg_unlock(l);
	return status;
}
