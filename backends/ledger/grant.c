/* SPDX-License-Identifier: BSD-2-Clause */
/* Grants: charged and pinned as a whole before the first bind, or not at all. */
#include "backends/ledger/ledger-int.h"

#include <string.h>

static LG_EACH escrow_status check_window(struct ledger *l, const struct ledger_grant_args *a,
					  uint32_t i, struct escrow_error *error)
{
	uint32_t slot = lg_owner_find(l, a->windows[i], ESCROW_OWNER_WINDOW);
	uint32_t conn = lg_owner_find(l, a->connections[i], ESCROW_OWNER_CONNECTION);
	const struct ledger_window *w;
	struct ledger_conn *c;

	if (slot == NONE || conn == NONE)
		return lg_fail(error, ESCROW_E_INVALID, "window or connection %u of the grant", i);
	for (uint32_t j = 0; j < i; j++) {
		if (a->windows[j] == a->windows[i])
			return lg_fail(error, ESCROW_E_INVALID, "window %u is named twice", i);
	}
	w = window_of(l, slot);
	c = conn_of(l, conn);
	if (l->owners[slot].state != LEDGER_WINDOW_PARKED || window_grant(l, slot) != NONE ||
	    l->owners[slot].begun)
		return lg_fail(error, ESCROW_E_STATE, "window %u is in use", i);
	if (l->owners[conn].state != LEDGER_CONNECTION_READY)
		return lg_fail(error, ESCROW_E_STATE, "connection %u is not READY", i);
	/* It pins the connection, so it must not be another connection's child. */
	if (l->owners[l->owners[slot].parent].kind == ESCROW_OWNER_CONNECTION &&
	    l->owners[slot].parent != conn)
		return lg_fail(error, ESCROW_E_INVALID, "window %u is another connection's", i);
	if (!lg_window_binds(l, w) || lg_holdout_find(l, slot))
		return lg_fail(error, ESCROW_E_LIMIT, "window %u is worn or its index held out", i);
	/* Its earlier keys are another account's until that one is fenced. */
	if (w->account && w->account != a->account) {
		uint32_t other = lg_owner_find(l, w->account, ESCROW_OWNER_PEER);

		if (other != NONE && l->owners[other].state == LEDGER_ACCOUNT_OPEN)
			return lg_fail(error, ESCROW_E_LIMIT, "window %u made another peer's keys",
				       i);
	}
	if (c->room < conn_used(c) + GET(c->kept) + 2u)
		return lg_fail(error, ESCROW_E_AGAIN, "no two SQ slots for window %u", i);
	return ESCROW_OK;
}

static LG_EACH escrow_status check_grant(struct ledger *l, const struct ledger_grant_args *a,
					 struct escrow_error *error)
{
	uint32_t account = lg_owner_find(l, a->account, ESCROW_OWNER_PEER);
	uint32_t region = lg_owner_find(l, a->region, ESCROW_OWNER_REGION);
	uint32_t name = account == NONE ? NONE : l->owners[account].name;
	escrow_status status;

	if ((a->account && account == NONE) || region == NONE || a->rights == 0 ||
	    (a->rights & ~(ESCROW_MAY_READ | ESCROW_MAY_WRITE)) || (!a->account && a->nwindows) ||
	    a->nwindows > UINT16_MAX)
		return lg_fail(error, ESCROW_E_INVALID,
			       "grant: account %#llx, region %#llx, rights %#x, %u windows",
			       (unsigned long long)a->account, (unsigned long long)a->region,
			       a->rights, a->nwindows);
	if ((account != NONE && l->owners[account].state != LEDGER_ACCOUNT_OPEN) ||
	    l->owners[region].state != LEDGER_REGION_LIVE)
		return lg_fail(error, ESCROW_E_STATE, "grant: the region is %s",
			       ledger_state_name(LEDGER_M_REGION, l->owners[region].state));
	if (a->length == 0 || a->offset > l->spans[region].length ||
	    a->length > l->spans[region].length - a->offset)
		return lg_fail(error, ESCROW_E_INVALID,
			       "grant: %llu bytes at %llu; the region has %llu",
			       (unsigned long long)a->length, (unsigned long long)a->offset,
			       (unsigned long long)l->spans[region].length);
	for (uint32_t i = 0; i < a->nwindows; i++) {
		status = check_window(l, a, i, error);
		if (status)
			return status;
	}
	status = lg_charge_check(l, name, ESCROW_CHARGE_GRANTS, 1, error);
	if (!status)
		status = lg_charge_check(l, name, ESCROW_CHARGE_GRANTED_BYTES, a->length, error);
	return status;
}

/*
 * Two windows on one connection need four slots: each is taken as it is checked.  From here on what the arguments name was
 * found (check_grant), and is what their slots say.
 */
static LG_EACH escrow_status keep_slots(struct ledger *l, const struct ledger_grant_args *a,
					struct escrow_error *error)
{
	for (uint32_t i = 0; i < a->nwindows; i++) {
		struct ledger_conn *c = conn_of(l, handle_slot(a->connections[i]));

		if (c->room >= conn_used(c) + GET(c->kept) + 2u) {
			lg_keep(c, 2);
			continue;
		}
		while (i-- > 0)
			lg_keep(conn_of(l, handle_slot(a->connections[i])), 0 - 2u);
		return lg_fail(error, ESCROW_E_AGAIN, "no two SQ slots for each of %u windows",
			       a->nwindows);
	}
	return ESCROW_OK;
}

static LG_EACH void attach(struct ledger *l, uint32_t grant, const struct ledger_grant_args *a)
{
	struct ledger_grant *g = grant_of(l, grant);
	uint32_t region = handle_slot(a->region);

	for (uint32_t i = 0; i < a->nwindows; i++) {
		uint32_t slot = handle_slot(a->windows[i]);
		uint32_t conn = handle_slot(a->connections[i]);
		struct ledger_window *w = window_of(l, slot);

		w->kept = 2;
		/* The last one was fenced (check_window). */
		if (w->account != a->account)
			w->keys_on = 0;
		w->account = a->account;
		w->next = g->first;
		g->first = slot;
		lg_pin_at(l, slot, PIN_GRANT, grant);
		lg_pin_at(l, slot, PIN_REGION, region);
		if (l->owners[slot].parent != conn)
			lg_pin_at(l, slot, PIN_CONN, conn);
	}
}

escrow_status ledger_grant_reserve(struct ledger *l, const struct ledger_grant_args *args,
				   uint64_t *grant_out, struct escrow_error *error)
{
	escrow_status status;
	struct ledger_owner *o;
	uint32_t slot;

	lg_lock(l);
	status = check_grant(l, args, error);
	if (status)
		goto unlock;
	slot = lg_owner_free(l, ESCROW_OWNER_GRANT, args->place);
	status = slot == NONE ? lg_owner_none(l, ESCROW_OWNER_GRANT, args->place, error)
			      : keep_slots(l, args, error);
	if (status)
		goto unlock;
	lg_owner_take(l, ESCROW_OWNER_GRANT, slot);
	o = &l->owners[slot];
	if (args->account) {
		o->parent = handle_slot(args->account);
		o->name = l->owners[o->parent].name;
	} else {
		o->parent = 0;
	}
	l->spans[slot] = (struct ledger_span){.addr = l->spans[handle_slot(args->region)].addr +
						      args->offset,
					      .length = args->length};
	o->since_ns = lg_now(l);
	l->owners[o->parent].children++;
	log_ctl(l, LOG_CODE(LEDGER_LOG_ADD, o->kind), lg_owner_handle(l, slot),
		lg_owner_handle(l, o->parent));
	*grant_of(l, slot) = (struct ledger_grant){
		.first = NONE, .windows = (uint16_t)args->nwindows, .plain = args->nwindows == 0};
	lg_charge_take(l, slot, ESCROW_CHARGE_GRANTS, ESCROW_CHARGE_GRANTED_BYTES);
	lg_pin_at(l, slot, PIN_REGION, handle_slot(args->region));
	attach(l, slot, args);
	*grant_out = lg_owner_handle(l, slot);
unlock:
	lg_unlock(l);
	return status;
}

escrow_status ledger_grant_join(struct ledger *l, uint64_t grant,
				const struct ledger_grant_args *args, struct escrow_error *error)
{
	escrow_status status;
	uint32_t slot, state;

	lg_lock(l);
	slot = lg_owner_find(l, grant, ESCROW_OWNER_GRANT);
	if (slot == NONE || args->nwindows != 1 || grant_of(l, slot)->windows == UINT16_MAX ||
	    l->owners[slot].parent != lg_owner_find(l, args->account, ESCROW_OWNER_PEER) ||
	    lg_owner_find(l, args->region, ESCROW_OWNER_REGION) == NONE) {
		status = lg_fail(error, ESCROW_E_INVALID, "grant %#llx, or what joins it",
				 (unsigned long long)grant);
		goto unlock;
	}
	state = l->owners[slot].state;
	if (state != LEDGER_GRANT_RESERVED && state != LEDGER_GRANT_BINDING &&
	    state != LEDGER_GRANT_EXPORTED) {
		status = lg_fail(error, ESCROW_E_STATE, "grant: it is %s",
				 ledger_state_name(LEDGER_M_GRANT, state));
		goto unlock;
	}
	status = check_window(l, args, 0, error);
	if (!status)
		status = keep_slots(l, args, error);
	if (!status) {
		grant_of(l, slot)->windows++;
		grant_of(l, slot)->plain = false;
		attach(l, slot, args);
	}
unlock:
	lg_unlock(l);
	return status;
}

escrow_status ledger_grant_ready(struct ledger *l, uint64_t grant)
{
	escrow_status status = ESCROW_OK;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, grant, ESCROW_OWNER_GRANT);
	if (slot == NONE)
		status = ESCROW_E_INVALID;
	else if (!grant_of(l, slot)->plain || !lg_grant_move(l, slot, LEDGER_E_READY))
		status = ESCROW_E_STATE;
	lg_unlock(l);
	return status;
}

int ledger_grant_state(struct ledger *l, uint64_t grant)
{
	uint32_t slot;
	int state;

	lg_lock(l);
	slot = lg_owner_find(l, grant, ESCROW_OWNER_GRANT);
	state = slot == NONE ? -1 : l->owners[slot].state;
	lg_unlock(l);
	return state;
}

escrow_status ledger_grant_exported(struct ledger *l, uint64_t grant)
{
	int state = ledger_grant_state(l, grant);

	if (state < 0)
		return ESCROW_E_INVALID;
	return state == LEDGER_GRANT_EXPORTED ? ESCROW_OK : ESCROW_E_STATE;
}
