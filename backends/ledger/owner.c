/* SPDX-License-Identifier: BSD-2-Clause */
/* The owner tree: who is whose child, who pins whom, and when one goes. */
#include "backends/ledger/ledger-int.h"

#include <string.h>

/* Which kinds may be children of which: bit a kind of parent. */
#define BIT(kind) (1u << (kind))
static const uint32_t parents[KINDS] = {
	[ESCROW_OWNER_CONTEXT] = BIT(ESCROW_OWNER_ENGINE),
	[ESCROW_OWNER_LANE] = BIT(ESCROW_OWNER_CONTEXT),
	[ESCROW_OWNER_CONNECTION] = BIT(ESCROW_OWNER_LANE),
	[ESCROW_OWNER_WINDOW] = BIT(ESCROW_OWNER_CONTEXT) | BIT(ESCROW_OWNER_CONNECTION),
	[ESCROW_OWNER_REGION] = BIT(ESCROW_OWNER_CONTEXT),
	[ESCROW_OWNER_PEER] = BIT(ESCROW_OWNER_ENGINE),
	[ESCROW_OWNER_CONTROL] = BIT(ESCROW_OWNER_CONTEXT) | BIT(ESCROW_OWNER_CONNECTION),
};

/* Which destroy steps a kind can have. */
static const uint32_t steps[KINDS] = {
	[ESCROW_OWNER_CONTEXT] = BIT(ESCROW_STEP_DEALLOC_PD) | BIT(ESCROW_STEP_CLOSE_DEVICE),
	[ESCROW_OWNER_LANE] = BIT(ESCROW_STEP_DESTROY_CQ) | BIT(LEDGER_STEP_DESTROY_CQ2) |
			      BIT(ESCROW_STEP_DESTROY_CHANNEL),
	[ESCROW_OWNER_CONNECTION] = BIT(ESCROW_STEP_DESTROY_QP),
	[ESCROW_OWNER_WINDOW] = BIT(ESCROW_STEP_DEALLOC_WINDOW),
	[ESCROW_OWNER_REGION] = BIT(ESCROW_STEP_DEREGISTER),
	[ESCROW_OWNER_CONTROL] = BIT(ESCROW_STEP_DEREGISTER),
};

uint32_t lg_owner_phase(const struct ledger *l, uint32_t slot)
{
	const struct ledger_owner *o = &l->owners[slot];

	return ledger_owner_state(ledger_machine_of(o->kind), o->state);
}

/* The context above an owner, or NONE. */
uint32_t lg_owner_context(const struct ledger *l, uint32_t slot)
{
	while (slot != NONE && l->owners[slot].kind != ESCROW_OWNER_CONTEXT)
		slot = l->owners[slot].parent;
	return slot;
}

static void set_keyed(struct ledger *l, uint32_t slot, uint64_t handle)
{
	struct ledger_keyed *r = &l->keyed[region_index(l, slot)];

	if (!(GET(r->key) & KEYED))
		return;
	if (handle) {
		PUT(r->length, l->spans[slot].length);
		PUT(r->addr, l->spans[slot].addr);
	}
	__atomic_store_n(&r->handle, handle, __ATOMIC_RELEASE);
}

/* Release: a lane that sees the handle sees the rest too. */
static void set_lendable(struct ledger *l, uint32_t slot, bool live)
{
	struct ledger_lendable *r = &l->lendable[region_index(l, slot)];
	uint64_t handle = live ? lg_owner_handle(l, slot) : 0;

	if (live)
		PUT(r->length, l->spans[slot].length);
	__atomic_store_n(&r->handle, handle, __ATOMIC_RELEASE);
	if (l->owners[slot].kind == ESCROW_OWNER_REGION)
		set_keyed(l, slot, handle);
}

escrow_status ledger_region_key(struct ledger *l, uint64_t region, uint32_t key)
{
	escrow_status status = ESCROW_E_INVALID;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, region, ESCROW_OWNER_REGION);
	if (slot != NONE) {
		PUT(l->keyed[region_index(l, slot)].key, KEYED | key);
		status = ESCROW_OK;
	}
	lg_unlock(l);
	return status;
}

bool lg_owner_move(struct ledger *l, uint32_t slot, enum ledger_event event)
{
	struct ledger_owner *o = &l->owners[slot];
	int next = ledger_next(ledger_machine_of(o->kind), o->state, event);

	if (next == LEDGER_ILLEGAL)
		return false;
	if ((uint32_t)next != o->state)
		o->since_ns = lg_now(l);
	o->state = (uint8_t)next;
	log_ctl(l, LOG_CODE(LEDGER_LOG_STATE, next), lg_owner_handle(l, slot), event);
	if (o->kind == ESCROW_OWNER_CONNECTION) {
		conn_of(l, slot)->ready = next == LEDGER_CONNECTION_READY;
		lg_conn_short(l, conn_of(l, slot));
	}
	if (o->kind == ESCROW_OWNER_REGION || o->kind == ESCROW_OWNER_CONTROL)
		set_lendable(l, slot, next == LEDGER_REGION_LIVE);
	return true;
}

void lg_owner_pin(struct ledger *l, uint32_t by, uint32_t target)
{
	for (unsigned int i = 0; i < PINS; i++) {
		if (l->owners[by].pin[i] != NONE)
			continue;
		lg_pin_at(l, by, i, target);
		return;
	}
}

void lg_owner_unpin(struct ledger *l, uint32_t by, uint32_t target)
{
	for (unsigned int i = 0; i < PINS; i++) {
		if (l->owners[by].pin[i] != target)
			continue;
		lg_unpin_at(l, by, i);
		return;
	}
}

/* What it kept may go, too. */
static LG_EACH void unpin_all(struct ledger *l, uint32_t slot)
{
	for (unsigned int i = 0; i < PINS; i++) {
		uint32_t target = lg_unpin_at(l, slot, i);

		if (target != NONE && l->owners[target].kind == ESCROW_OWNER_GRANT)
			lg_grant_unpinned(l, target);
	}
}

/* What it keeps goes with it. */
static LG_EACH void leave(struct ledger *l, uint32_t slot)
{
	unpin_all(l, slot);
	lg_charge_return(l, slot);
	if (l->owners[slot].kind == ESCROW_OWNER_PEER)
		lg_name_put(l, l->owners[slot].name);
	l->owners[l->owners[slot].parent].children--;
	lg_owner_give(l, slot);
}

static inline void log_release(struct ledger *l, uint32_t slot, enum ledger_thing thing,
			       uint32_t receipt)
{
	log_ctl(l, LOG_CODE(LEDGER_LOG_RELEASE, (uint32_t)thing | receipt << 8),
		lg_owner_handle(l, slot), 0);
}

/* lg_owner_release() of a grant: no native object goes with it. */
void lg_grant_release(struct ledger *l, uint32_t slot, uint32_t receipt)
{
	const struct ledger_owner *o = &l->owners[slot];

	log_release(l, slot, LEDGER_GRANT, receipt);
	lg_grant_move(l, slot, LEDGER_E_RELEASED);
	if (UNLIKELY(o->stuck || o->held))
		lg_owner_refresh(l, slot);
	leave(l, slot);
}

/* The end of an owner whose releasing receipt is in hand: charges, pins, parent, slot. */
void lg_owner_release(struct ledger *l, uint32_t slot, enum ledger_thing thing, uint32_t receipt)
{
	struct ledger_owner *o = &l->owners[slot];

	log_release(l, slot, thing, receipt);
	lg_owner_move(l, slot, LEDGER_E_RELEASED);
	lg_owner_refresh(l, slot);
	if (o->kind == ESCROW_OWNER_WINDOW)
		lg_window_freed(l, slot);
	if (o->kind == ESCROW_OWNER_CONNECTION) {
		lg_holdout_end(l, lg_owner_handle(l, slot));
		lg_conn_closed(l, conn_of(l, slot));
	}
	if (o->kind == ESCROW_OWNER_LANE)
		lane_of(l, slot)->live = 0;
	leave(l, slot);
}

uint32_t lg_region_loans(const struct ledger *l, uint32_t slot)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->config.max_lanes; i++)
		n += GET(l->lanes[i].loans[region_index(l, slot)]);
	return n;
}

/* ---- Adding --------------------------------------------------------------------------------- */
static escrow_status check_parent(struct ledger *l, const struct ledger_owner_args *a,
				  uint32_t *parent_out, struct escrow_error *error)
{
	uint32_t parent = lg_owner_find(l, a->parent, 0);

	if (a->kind >= KINDS || parents[a->kind] == 0)
		return lg_fail(error, ESCROW_E_INVALID, "owner kind %u cannot be added", a->kind);
	if (parent == NONE || !(parents[a->kind] & BIT(l->owners[parent].kind)))
		return lg_fail(error, ESCROW_E_INVALID, "%#llx cannot be the parent of kind %u",
			       (unsigned long long)a->parent, a->kind);
	if (a->steps & ~steps[a->kind])
		return lg_fail(error, ESCROW_E_INVALID, "steps %#x: kind %u has only %#x", a->steps,
			       a->kind, steps[a->kind]);
	if (lg_owner_phase(l, parent) != ESCROW_OWNER_LIVE)
		return lg_fail(error, ESCROW_E_STATE, "the parent is %s",
			       ledger_state_name(ledger_machine_of(l->owners[parent].kind),
						 l->owners[parent].state));
	*parent_out = parent;
	return ESCROW_OK;
}

static escrow_status check_connection(struct ledger *l, const struct ledger_owner_args *a,
				      uint32_t parent, struct escrow_error *error)
{
	uint32_t account = lg_owner_find(l, a->account, ESCROW_OWNER_PEER);
	struct ledger_lane *lane = lane_of(l, parent);
	uint64_t slots = (uint64_t)a->sq_depth + a->rq_depth;
	escrow_status status;

	/* Its receipts would never come: only a reset could settle what is owed there. */
	if (l->owners[parent].state == LEDGER_LANE_POISONED)
		return lg_fail(error, ESCROW_E_STATE, "the parent is POISONED");
	if (account == NONE || l->owners[account].state != LEDGER_ACCOUNT_OPEN)
		return lg_fail(error, ESCROW_E_INVALID, "account %#llx is not open",
			       (unsigned long long)a->account);
	if (a->sq_depth < 2 || a->sq_depth > l->config.sq_depth)
		return lg_fail(error, ESCROW_E_INVALID, "sq_depth is %u; allowed are 2 to %u",
			       a->sq_depth, l->config.sq_depth);
	/* Every slot may yield a completion on error: a smaller CQ would be overrun by the flush. */
	if (slots > lane->cq_depth - lane->cq_taken)
		return lg_fail(error, ESCROW_E_LIMIT,
			       "%llu more slots do not fit: the lane's CQ has %u, %u are taken",
			       (unsigned long long)slots, lane->cq_depth, lane->cq_taken);
	status = lg_charge_check(l, l->owners[account].name, ESCROW_CHARGE_CONNECTIONS, 1, error);
	if (!status)
		status = lg_charge_check(l, l->owners[account].name, ESCROW_CHARGE_SQ_SLOTS,
					 a->sq_depth, error);
	if (!status)
		status = lg_charge_check(l, l->owners[account].name, ESCROW_CHARGE_CQ_SLOTS, slots,
					 error);
	return status;
}

static escrow_status check_kind(struct ledger *l, const struct ledger_owner_args *a,
				uint32_t parent, struct escrow_error *error)
{
	escrow_status status;

	switch (a->kind) {
	case ESCROW_OWNER_CONNECTION:
		return check_connection(l, a, parent, error);
	case ESCROW_OWNER_REGION:
		if (a->length == 0 || a->addr + a->length < a->addr)
			return lg_fail(error, ESCROW_E_INVALID,
				       "length %llu at %#llx is empty or wraps",
				       (unsigned long long)a->length, (unsigned long long)a->addr);
		status = lg_charge_check(l, NONE, ESCROW_CHARGE_REGIONS, 1, error);
		return status ? status
			      : lg_charge_check(l, NONE, ESCROW_CHARGE_BYTES, a->length, error);
	case ESCROW_OWNER_PEER:
		if (!a->peer_name || !a->peer_name[0] ||
		    strnlen(a->peer_name, LEDGER_NAME_BYTES) == LEDGER_NAME_BYTES)
			return lg_fail(error, ESCROW_E_INVALID, "a peer's name has 1 to 63 bytes");
		if (!lg_name_get(l, a->peer_name, false))
			return lg_fail(error, ESCROW_E_LIMIT, "no room for another name than %u",
				       l->config.max_names);
		return ESCROW_OK;
	default:
		return ESCROW_OK;
	}
}

static uint16_t step_bits(uint32_t asked)
{
	uint16_t bits = 0;

	for (uint32_t step = 0; asked >> step; step++)
		bits |= (uint16_t)(asked >> step & 1 ? lg_step_bit(step) : 0);
	return bits;
}

static void set_up(struct ledger *l, uint32_t slot, const struct ledger_owner_args *a)
{
	struct ledger_owner *o = &l->owners[slot];

	switch (a->kind) {
	case ESCROW_OWNER_CONTEXT:
		context_at(l, slot)->strength = a->strength;
		context_at(l, slot)->fatal = false;
		lg_context_judge(l, slot);
		break;
	case ESCROW_OWNER_LANE: {
		struct ledger_lane *lane = lane_of(l, slot);

		lane->cq_depth = a->cq_depth;
		lane->cq_taken = 0;
		lane->events_got = 0;
		lane->events_acked = 0;
		lane->live = 1;
		lane_believe(
			lane,
			ledger_releases(LEDGER_LOAN,
					&(struct ledger_proof){
						.receipt = ESCROW_RECEIPT_CQE_OK,
						.strength = context_at(l, o->parent)->strength}));
		break;
	}
	case ESCROW_OWNER_CONNECTION:
		o->name = l->owners[lg_owner_find(l, a->account, ESCROW_OWNER_PEER)].name;
		lg_charge_take(l, slot, ESCROW_CHARGE_CONNECTIONS, 0);
		lg_conn_open(l, slot, a);
		lg_owner_pin(l, slot, lg_owner_find(l, a->account, ESCROW_OWNER_PEER));
		break;
	case ESCROW_OWNER_REGION:
		PUT(l->keyed[region_index(l, slot)].key, 0);
		lg_charge_take(l, slot, ESCROW_CHARGE_REGIONS, ESCROW_CHARGE_BYTES);
		break;
	case ESCROW_OWNER_PEER: {
		struct ledger_name *name = lg_name_get(l, a->peer_name, true);
		struct ledger_peer *peer = &l->peers[sub(l, slot)];

		o->name = (uint32_t)(name - l->names);
		peer->epoch = a->epoch;
		peer->serial = ++l->serial;
		break;
	}
	case ESCROW_OWNER_WINDOW:
		*window_of(l, slot) = (struct ledger_window){.rkey = a->rkey};
		break;
	default:
		break;
	}
}

/* In what the whole process may have, and this name in it. */
static escrow_status take_place(struct ledger *l, const struct ledger_owner_args *a,
				struct escrow_error *error)
{
	uint32_t account = lg_owner_find(l, a->account, ESCROW_OWNER_PEER);

	return lg_budget_take(l, l->names[l->owners[account].name].name, a->sq_depth, a->rq_depth,
			      error);
}

escrow_status ledger_owner_add(struct ledger *l, const struct ledger_owner_args *args,
			       uint64_t *owner_out, struct escrow_error *error)
{
	uint32_t parent = NONE, slot;
	struct ledger_owner *o;
	escrow_status status;

	lg_lock(l);
	status = check_parent(l, args, &parent, error);
	if (!status)
		status = check_kind(l, args, parent, error);
	if (status)
		goto unlock;
	slot = lg_owner_free(l, args->kind, args->place);
	if (slot == NONE)
		status = lg_owner_none(l, args->kind, args->place, error);
	else if (args->kind == ESCROW_OWNER_CONNECTION && !args->placed)
		status = take_place(l, args, error);
	if (status)
		goto unlock;
	lg_owner_take(l, args->kind, slot);
	o = &l->owners[slot];
	o->parent = parent;
	o->steps = step_bits(args->steps);
	if (args->kind != ESCROW_OWNER_WINDOW)
		l->spans[slot] = (struct ledger_span){.addr = args->addr, .length = args->length};
	o->since_ns = l->host.now_ns(l->host.ctx);
	l->owners[parent].children++;
	log_ctl(l, LOG_CODE(LEDGER_LOG_ADD, args->kind), lg_owner_handle(l, slot),
		lg_owner_handle(l, parent));
	set_up(l, slot, args);
	*owner_out = lg_owner_handle(l, slot);
unlock:
	lg_unlock(l);
	return status;
}

escrow_status ledger_owner_undo(struct ledger *l, uint64_t owner)
{
	escrow_status status = ESCROW_OK;
	uint32_t slot;
	struct ledger_owner *o;

	lg_lock(l);
	slot = lg_owner_find(l, owner, 0);
	o = slot == NONE ? NULL : &l->owners[slot];
	if (!o || slot == 0 || o->kind == ESCROW_OWNER_GRANT) {
		status = ESCROW_E_INVALID;
	} else if (o->state != 0 || o->begun ||
		   (o->kind == ESCROW_OWNER_WINDOW && window_of(l, slot)->binds)) {
		status = ESCROW_E_STATE;
	} else if (o->children || o->pins) {
		status = ESCROW_E_BUSY;
	} else {
		log_ctl(l, LOG_CODE(LEDGER_LOG_UNDO, o->kind), owner, 0);
		if (o->kind == ESCROW_OWNER_CONNECTION)
			lg_conn_closed(l, conn_of(l, slot));
		if (o->kind == ESCROW_OWNER_LANE)
			lane_of(l, slot)->live = 0;
		leave(l, slot);
	}
	lg_unlock(l);
	return status;
}
