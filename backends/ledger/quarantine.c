/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Quarantine.  It spreads upwards only: an owner is *stuck* if it is quarantined itself or if a
 * stuck one is its child or pins it.  What is stuck cannot go, and its charges count as stuck.
 * Siblings and children are not touched.
 */
#include "backends/ledger/ledger-int.h"

#include <stdio.h>
#include <string.h>

/* The recursion is as deep as the tree and its pins: window, connection, lane, context, engine. */
void lg_owner_refresh(struct ledger *l, uint32_t slot)
{
	struct ledger_owner *o = &l->owners[slot];
	bool stuck = o->held > 0 || lg_owner_phase(l, slot) == ESCROW_OWNER_QUARANTINED;

	if (stuck == (o->stuck != 0))
		return;
	o->stuck = stuck;
	lg_charge_stick(l, slot, stuck);
	if (o->parent != NONE)
		lg_owner_hold(l, o->parent, stuck ? 1 : -1);
	for (unsigned int i = 0; i < PINS; i++) {
		if (o->pin[i] != NONE)
			lg_owner_hold(l, o->pin[i], stuck ? 1 : -1);
	}
}

void lg_owner_hold(struct ledger *l, uint32_t slot, int by)
{
	l->owners[slot].held += (uint32_t)by;
	lg_owner_refresh(l, slot);
}

/* Each literal has one place; 0: there is none left for another, and nothing is told of why. */
static uint8_t why_number(struct ledger *l, const char *why)
{
	uint8_t i = 0;

	while (i < WHYS && l->whys[i] && strcmp(l->whys[i], why) != 0)
		i++;
	if (i == WHYS)
		return 0;
	l->whys[i] = why;
	return i + 1;
}

const char *lg_owner_why(const struct ledger *l, uint32_t slot)
{
	uint8_t why = l->owners[slot].why;

	return why ? l->whys[why - 1] : "";
}

bool lg_owner_quarantine(struct ledger *l, uint32_t slot, const char *why)
{
	struct ledger_owner *o = &l->owners[slot];

	if (!lg_owner_move(l, slot, LEDGER_E_QUARANTINE))
		return false;
	o->why = why_number(l, why);
	if (o->kind == ESCROW_OWNER_CONNECTION)
		lg_conn_stick(l, conn_of(l, slot));
	lg_owner_refresh(l, slot);
	if (o->kind == ESCROW_OWNER_WINDOW)
		lg_window_stuck(l, slot);
	if (o->kind == ESCROW_OWNER_LANE)
		lane_believe(lane_of(l, slot), false);
	return true;
}

escrow_status ledger_quarantine(struct ledger *l, uint64_t owner, const char *why)
{
	escrow_status status = ESCROW_OK;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, owner, 0);
	if (slot == NONE || l->owners[slot].kind == ESCROW_OWNER_GRANT)
		status = ESCROW_E_INVALID;
	else if (slot == 0 && !l->owners[slot].held)
		status = ESCROW_E_STATE; /* nothing is stuck: there is a clean end */
	else if (!lg_owner_quarantine(l, slot, why))
		status = ESCROW_E_STATE;
	lg_unlock(l);
	return status;
}

escrow_status ledger_context_fatal(struct ledger *l, uint64_t context)
{
	escrow_status status = ESCROW_OK;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, context, ESCROW_OWNER_CONTEXT);
	if (slot == NONE) {
		status = ESCROW_E_INVALID;
		goto unlock;
	}
	if (!lg_owner_move(l, slot, LEDGER_E_FATAL)) {
		status = ESCROW_E_STATE;
		goto unlock;
	}
	context_at(l, slot)->fatal = true;
	lg_context_judge(l, slot);
	l->owners[slot].why = why_number(l, "device lost");
	lg_owner_refresh(l, slot);
	for (uint32_t i = 1; i < l->nowners; i++) {
		struct ledger_owner *o = &l->owners[i];

		if (!o->kind || i == slot || lg_owner_context(l, i) != slot)
			continue;
		if (o->kind == ESCROW_OWNER_LANE)
			lane_believe(lane_of(l, i), false);
		lg_owner_quarantine(l, i, "device lost");
	}
unlock:
	lg_unlock(l);
	return status;
}

static enum ledger_thing thing_of(uint32_t kind)
{
	switch (kind) {
	case ESCROW_OWNER_CONNECTION:
		return LEDGER_QP;
	case ESCROW_OWNER_WINDOW:
		return LEDGER_WINDOW;
	case ESCROW_OWNER_LANE:
		return LEDGER_CQ;
	case ESCROW_OWNER_CONTEXT:
		return LEDGER_DEVICE;
	default:
		return LEDGER_REGION;
	}
}

static escrow_status late(struct ledger *l, uint32_t slot, uint32_t receipt)
{
	struct ledger_owner *o = &l->owners[slot];
	uint32_t context = lg_owner_context(l, slot);
	struct ledger_proof proof = {.receipt = receipt, .quarantined = true, .settled = true};

	if (context == NONE || o->kind == ESCROW_OWNER_GRANT)
		return ESCROW_E_INVALID;
	if (lg_owner_phase(l, slot) != ESCROW_OWNER_QUARANTINED)
		return ESCROW_E_STATE;
	proof.strength = context_at(l, context)->strength;
	proof.fatal = context_at(l, context)->fatal;
	if (!ledger_releases(thing_of(o->kind), &proof))
		return ESCROW_E_STATE;
	if (o->children || o->pins)
		return ESCROW_E_BUSY;
	if ((o->kind == ESCROW_OWNER_REGION || o->kind == ESCROW_OWNER_CONTROL) &&
	    lg_region_loans(l, slot))
		return ESCROW_E_BUSY;
	o->receipt = receipt;
	log_ctl(l, LOG_CODE(LEDGER_LOG_RECEIPT, receipt), lg_owner_handle(l, slot),
		(uint64_t)proof.strength << 1 | proof.fatal);
	if (o->kind == ESCROW_OWNER_CONNECTION) {
		struct ledger_conn *conn = conn_of(l, slot);

		lg_conn_unstick(l, conn);
		conn->collect = COLLECT_SETTLE;
		conn->pending_receipt = (uint8_t)receipt;
		if (conn->head != conn->tail)
			return ESCROW_OK; /* it goes when its debts have been collected */
	}
	lg_owner_release(l, slot, thing_of(o->kind), receipt);
	return ESCROW_OK;
}

escrow_status ledger_late_receipt(struct ledger *l, uint64_t owner, uint32_t receipt)
{
	escrow_status status = ESCROW_E_INVALID;
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, owner, 0);
	if (slot != NONE)
		status = late(l, slot, receipt);
	lg_unlock(l);
	return status;
}

uint32_t ledger_quarantined(struct ledger *l, uint32_t *held_out)
{
	uint32_t own = 0, held = 0;

	lg_lock(l);
	for (uint32_t i = 0; i < l->nowners; i++) {
		if (!l->owners[i].kind || !l->owners[i].stuck)
			continue;
		if (lg_owner_phase(l, i) == ESCROW_OWNER_QUARANTINED)
			own++;
		else
			held++;
	}
	lg_unlock(l);
	if (held_out)
		*held_out = held;
	return own;
}

/* ---- The owners of released engines: the one thing that is shared in the loaded object ------- */
static pthread_mutex_t residue_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct ledger *residue;
static uint64_t residue_ids;

struct ledger *lg_residue_lock(void)
{
	pthread_mutex_lock(&residue_mutex);
	return residue;
}

void lg_residue_unlock(void)
{
	pthread_mutex_unlock(&residue_mutex);
}

/* In order of release, so that a reader's cursor stays good. */
void lg_residue_add(struct ledger *l)
{
	struct ledger **end = &residue;

	pthread_mutex_lock(&residue_mutex);
	while (*end)
		end = &(*end)->next;
	l->residue_id = ++residue_ids;
	l->next = NULL;
	*end = l;
	pthread_mutex_unlock(&residue_mutex);
}

uint32_t ledger_residue(void)
{
	uint32_t n = 0;

	pthread_mutex_lock(&residue_mutex);
	for (struct ledger *l = residue; l; l = l->next)
		n++;
	pthread_mutex_unlock(&residue_mutex);
	return n;
}

/* The device of a released engine was fenced: nothing of it can be touched any more. */
static int32_t residue_fenced(const uint8_t *incarnation)
{
	struct ledger **at = &residue;
	int32_t n = 0;

	pthread_mutex_lock(&residue_mutex);
	while (*at) {
		struct ledger *l = *at;

		if (memcmp(l->config.incarnation, incarnation, 16) != 0) {
			at = &l->next;
			continue;
		}
		n += (int32_t)ledger_quarantined(l, NULL);
		*at = l->next;
		lg_budget_give_all(l);
		lg_free(l);
	}
	pthread_mutex_unlock(&residue_mutex);
	return n;
}

static int32_t fence_all(struct ledger *l)
{
	/* Bottom up, so that nothing is busy with what is released in the same call. */
	static const uint32_t order[] = {ESCROW_OWNER_WINDOW,  ESCROW_OWNER_CONNECTION,
					 ESCROW_OWNER_CONTROL, ESCROW_OWNER_REGION,
					 ESCROW_OWNER_LANE,    ESCROW_OWNER_CONTEXT};
	int32_t n = 0;

	for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++) {
		for (uint32_t i = 0; i < l->max[order[k]]; i++) {
			uint32_t slot = l->base[order[k]] + i;

			if (l->owners[slot].kind &&
			    !(order[k] == ESCROW_OWNER_CONNECTION &&
			      conn_of(l, slot)->pending_receipt) &&
			    late(l, slot, ESCROW_RECEIPT_FUNCTION_FENCED) == ESCROW_OK)
				n++;
		}
	}
	return n;
}

int32_t ledger_fenced(struct ledger *l, const uint8_t *incarnation, uint32_t receipt)
{
	int32_t n = 0;

	if (receipt != ESCROW_RECEIPT_FUNCTION_FENCED && receipt != ESCROW_RECEIPT_PROCESS_REAPED)
		return ESCROW_E_INVALID;
	if (!l)
		return receipt == ESCROW_RECEIPT_FUNCTION_FENCED ? residue_fenced(incarnation) : 0;
	lg_lock(l);
	if (receipt == ESCROW_RECEIPT_PROCESS_REAPED)
		lg_holdout_reaped(l, incarnation);
	else if (memcmp(l->config.incarnation, incarnation, 16) == 0)
		n = fence_all(l);
	lg_unlock(l);
	return n;
}
