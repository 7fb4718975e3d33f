/* SPDX-License-Identifier: BSD-2-Clause */
/* The ledger as the ABI's slots `charges` and `records` show it. */
#include "backends/ledger/ledger-int.h"

#include <stdio.h>
#include <string.h>

/* ---- Charges ---------------------------------------------------------------------------------- */
struct charge_out {
	struct escrow_charge *charges;
	uint32_t max;
	uint32_t stride;
	uint32_t n; /* all there are, also beyond max */
};

static void put_charges(struct ledger *l, uint32_t name, struct charge_out *out)
{
	for (uint32_t kind = 1; kind < LEDGER_KINDS; kind++) {
		struct escrow_charge c;
		char *at = (char *)out->charges + (uint64_t)out->n * out->stride;

		/* Regions are the engine's alone. */
		if (name != NONE && (kind == ESCROW_CHARGE_BYTES || kind == ESCROW_CHARGE_REGIONS))
			continue;
		if (out->n++ >= out->max)
			continue;
		lg_charge_sum(l, name, kind, &c);
		memcpy(at, &c, out->stride < sizeof(c) ? out->stride : sizeof(c));
	}
}

static void put_ledger(struct ledger *l, struct charge_out *out)
{
	lg_lock(l);
	put_charges(l, NONE, out);
	for (uint32_t i = 0; i < l->config.max_names; i++) {
		if (l->names[i].refs)
			put_charges(l, i, out);
	}
	lg_unlock(l);
}

int32_t ledger_charges(struct ledger *l, struct escrow_charge *charges, uint32_t max,
		       uint32_t stride)
{
	struct charge_out out = {charges, charges ? max : 0, stride, 0};

	if (l) {
		put_ledger(l, &out);
		return (int32_t)out.n;
	}
	for (l = lg_residue_lock(); l; l = l->next)
		put_ledger(l, &out);
	lg_residue_unlock();
	return (int32_t)out.n;
}

escrow_status ledger_usage(struct ledger *l, const char *name, uint32_t kind,
			   struct escrow_charge *out)
{
	escrow_status status = ESCROW_E_INVALID;

	if (kind == 0 || kind >= LEDGER_KINDS)
		return status;
	lg_lock(l);
	if (!name) {
		lg_charge_sum(l, NONE, kind, out);
		status = ESCROW_OK;
	}
	for (uint32_t i = 0; name && i < l->config.max_names; i++) {
		if (!l->names[i].refs || strcmp(l->names[i].name, name) != 0)
			continue;
		lg_charge_sum(l, i, kind, out);
		status = ESCROW_OK;
	}
	lg_unlock(l);
	return status;
}

/* ---- Records ---------------------------------------------------------------------------------- */
static uint64_t engine_word(const struct ledger *l)
{
	uint64_t word;

	memcpy(&word, l->config.incarnation, sizeof(word));
	return word;
}

static void owner_text(const struct ledger *l, uint32_t slot, char *text, size_t size)
{
	const struct ledger_owner *o = &l->owners[slot];
	const char *state = ledger_state_name(ledger_machine_of(o->kind), o->state);
	const char *name = o->name == NONE ? "" : l->names[o->name].name;
	const char *gap = *name ? " " : "";

	if (lg_owner_phase(l, slot) == ESCROW_OWNER_QUARANTINED)
		snprintf(text, size, "%s: %s%s%.24s", state, lg_owner_why(l, slot), gap, name);
	else if (o->held)
		snprintf(text, size, "%s: held by %u in quarantine%s%.24s", state, o->held, gap,
			 name);
	else
		snprintf(text, size, "%s%s%.40s", state, gap, name);
}

static void owner_record(const struct ledger *l, uint32_t slot, struct escrow_record *r)
{
	const struct ledger_owner *o = &l->owners[slot];
	uint32_t receipt = o->receipt <= ESCROW_RECEIPT_FUNCTION_FENCED ? o->receipt : 0;

	memset(r, 0, sizeof(*r));
	r->owner = lg_owner_handle(l, slot);
	r->parent = lg_owner_handle(l, o->parent);
	r->engine = engine_word(l);
	r->kind = o->kind;
	r->state = lg_owner_phase(l, slot);
	/* The second CQ of a lane is a step of ours, not of the ABI's. */
	r->stage = o->stage == LEDGER_STEP_DESTROY_CQ2 ? ESCROW_STEP_DESTROY_CQ : o->stage;
	r->sys_errno = o->rc;
	if (o->kind != ESCROW_OWNER_WINDOW) {
		r->addr = l->spans[slot].addr;
		r->length = l->spans[slot].length;
	}
	r->since_ns = o->since_ns;
	r->receipt = receipt;
	r->children = o->children;
	r->pins = o->pins;
	owner_text(l, slot, r->text, sizeof(r->text));
}

/* The i-th stuck loan of a quarantined connection; false past the last. */
static bool loan_record(struct ledger *l, uint32_t c, uint32_t i, struct escrow_record *r)
{
	const struct ledger_conn *conn = &l->conns[c];
	const struct ledger_debt *d = &conn->ring[(conn->head + i) & conn->mask];
	const struct ledger_owner *o;

	if (!conn->held || i >= conn->tail - conn->head)
		return false;
	memset(r, 0, sizeof(*r));
	o = &l->owners[conn->slot];
	r->owner = handle_make(KIND_WR, conn->head + i,
			       c << l->shift | ((conn->head + i) & conn->mask));
	r->parent = lg_owner_handle(l, conn->slot);
	r->engine = engine_word(l);
	r->kind = ESCROW_OWNER_LOAN;
	r->state = ESCROW_OWNER_QUARANTINED;
	r->stage = o->stage;
	r->sys_errno = o->rc;
	if (d->shape.of.nregions) {
		r->addr = l->spans[d->region[0] + l->base[ESCROW_OWNER_REGION]].addr + d->offset;
		r->length = d->length;
	}
	r->since_ns = o->since_ns;
	snprintf(r->text, sizeof(r->text), "STUCK: %s",
		 d->shape.of.what != LEDGER_WR_SLICE ? "a work request without bytes"
		 : d->shape.of.opcode == ESCROW_READ ? "READ into it"
						     : "WRITE from it");
	return true;
}

/*
 * Positions: owner slots, then the debts of each ring.  The cursor is the next position, so it
 * stays good when owners come and go meanwhile.
 */
int32_t lg_records_of(struct ledger *l, uint64_t *cursor, struct escrow_record *records,
		      uint32_t max, uint32_t stride)
{
	uint64_t rings = (uint64_t)l->config.max_connections << l->shift;
	struct escrow_record r;
	uint64_t at = *cursor;
	uint32_t n = 0;

	lg_lock(l);
	for (; at < l->nowners + rings && n < max; at++) {
		bool there;

		if (at < l->nowners) {
			there = l->owners[at].kind != 0;
			if (there)
				owner_record(l, (uint32_t)at, &r);
		} else {
			uint32_t ring = (uint32_t)(at - l->nowners);

			/* One look at a connection without stuck debts, not one a slot. */
			there = loan_record(l, ring >> l->shift, ring & (l->ring - 1u), &r);
			if (!there && !l->conns[ring >> l->shift].held)
				at = l->nowners + ((uint64_t)((ring >> l->shift) + 1) << l->shift) -
				     1;
		}
		if (there)
			memcpy((char *)records + (uint64_t)n++ * stride, &r,
			       stride < sizeof(r) ? stride : sizeof(r));
	}
	lg_unlock(l);
	*cursor = at;
	return (int32_t)n;
}

#define POSITION_BITS 32u

static int32_t residue_records(uint64_t *cursor, struct escrow_record *records, uint32_t max,
			       uint32_t stride)
{
	uint64_t id = *cursor >> POSITION_BITS, at = *cursor & UINT32_MAX;
	uint32_t n = 0;

	for (struct ledger *l = lg_residue_lock(); l && n < max; l = l->next) {
		if (l->residue_id < id)
			continue;
		if (l->residue_id > id)
			at = 0;
		id = l->residue_id;
		n += (uint32_t)lg_records_of(
			l, &at,
			(struct escrow_record *)(void *)((char *)records + (uint64_t)n * stride),
			max - n, stride);
	}
	lg_residue_unlock();
	*cursor = id << POSITION_BITS | at;
	return (int32_t)n;
}

int32_t ledger_records(struct ledger *l, uint64_t *cursor, struct escrow_record *records,
		       uint32_t max, uint32_t stride)
{
	if (!cursor || !records || max == 0 || stride == 0)
		return ESCROW_E_INVALID;
	if (!l)
		return residue_records(cursor, records, max, stride);
	return lg_records_of(l, cursor, records, max, stride);
}
