/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests: everything that is counted is derived again from what it counts. */
#include "backends/ledger/ledger-int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct check {
	struct ledger *l;
	char *text;
	uint32_t size;
	bool bad;
};

__attribute__((format(printf, 2, 3))) static void bad(struct check *c, const char *format, ...)
{
	va_list args;

	if (!c->bad) {
		va_start(args, format);
		vsnprintf(c->text, c->size, format, args);
		va_end(args);
	}
	c->bad = true;
}

#define SAME(what, slot, have, want)                                                               \
	do {                                                                                       \
		if ((uint64_t)(have) != (uint64_t)(want))                                          \
			bad(c, "%s of %u: %llu, derived %llu", what, (unsigned int)(slot),         \
			    (unsigned long long)(have), (unsigned long long)(want));               \
	} while (0)

/* I9 and the counts of the tree. */
static void check_tree(struct check *c, uint32_t slot)
{
	const struct ledger *l = c->l;
	const struct ledger_owner *o = &l->owners[slot];
	uint32_t children = 0, pins = 0, held = 0;

	for (uint32_t i = 0; i < l->nowners; i++) {
		const struct ledger_owner *x = &l->owners[i];

		if (!x->kind)
			continue;
		if (x->parent == slot) {
			children++;
			held += x->stuck;
		}
		for (unsigned int p = 0; p < PINS; p++) {
			if (x->pin[p] != slot)
				continue;
			pins++;
			held += x->stuck;
		}
	}
	for (uint32_t i = 0; i < l->config.max_connections; i++) {
		const struct ledger_conn *conn = &l->conns[i];

		for (uint32_t s = conn->head; conn->held && s != conn->tail; s++) {
			const struct ledger_debt *d = &conn->ring[s & conn->mask];

			for (unsigned int r = 0; r < d->shape.of.nregions; r++)
				held += d->region[r] + l->base[ESCROW_OWNER_REGION] == slot;
		}
	}
	SAME("children", slot, o->children, children);
	SAME("pins", slot, o->pins, pins);
	SAME("held", slot, o->held, held);
	SAME("stuck", slot, o->stuck,
	     held > 0 || lg_owner_phase(l, slot) == ESCROW_OWNER_QUARANTINED);
	if (slot != 0 && !l->owners[o->parent].kind)
		bad(c, "owner %u: its parent %u is gone", slot, o->parent);
	if (lg_owner_phase(l, slot) == ESCROW_OWNER_GONE && slot != 0)
		bad(c, "owner %u is gone and still there", slot);
}

/* I4, and that a failed destroy is never passed over. */
static void check_steps(struct check *c, uint32_t slot)
{
	const struct ledger_owner *o = &c->l->owners[slot];
	uint32_t qp_err = lg_step_bit(ESCROW_STEP_QP_ERR);

	if (o->ended & ~o->begun)
		bad(c, "owner %u: steps %#x ended, %#x begun", slot, o->ended, o->begun);
	if (o->rc && (o->ended & ~qp_err) && o->stage != ESCROW_STEP_QP_ERR &&
	    (o->ended & lg_step_bit(o->stage)) &&
	    lg_owner_phase(c->l, slot) != ESCROW_OWNER_QUARANTINED)
		bad(c, "owner %u: step %u failed, yet it is not quarantined", slot, o->stage);
}

/* I3 */
static void check_charges(struct check *c, uint32_t name)
{
	const struct ledger *l = c->l;
	const struct ledger_name *n = &l->names[name == NONE ? l->config.max_names : name];
	uint64_t used[LEDGER_KINDS] = {0}, stuck[LEDGER_KINDS] = {0};

	for (uint32_t i = 0; i < l->nowners; i++) {
		const struct ledger_owner *o = &l->owners[i];

		if (!o->kind || (name != NONE && o->name != name))
			continue;
		for (unsigned int k = 0; k < 2; k++) {
			uint64_t amount;

			if (!o->charge[k])
				continue;
			amount = lg_charge_amount(l, i, k);
			used[o->charge[k]] += amount;
			stuck[o->charge[k]] += o->stuck ? amount : 0;
		}
	}
	for (uint32_t kind = 1; kind < LEDGER_KINDS; kind++) {
		SAME("used", kind, n->used[kind], used[kind]);
		SAME("stuck charge", kind, n->stuck[kind], stuck[kind]);
		if (n->stuck[kind] > n->used[kind])
			bad(c, "charge %u: more stuck than used", kind);
	}
}

/* What the short ways look at says what decides it. */
static void check_short(struct check *c, uint32_t slot, const struct ledger_conn *conn)
{
	bool plain = conn->lane->plain;

	SAME("room of the short way", slot, conn->lends,
	     plain && conn->ready && !c->l->ops_slowly ? conn->room : 0);
	if (conn->settles != (plain && !conn->special ? conn->lane : NULL))
		bad(c, "connection %u: settled the short way, or not, against what it is", slot);
}

/* I8 and what the ring says of slots and loans. */
static void check_connection(struct check *c, uint32_t i, uint64_t *active)
{
	const struct ledger *l = c->l;
	const struct ledger_conn *conn = &l->conns[i];
	uint32_t slot = l->base[ESCROW_OWNER_CONNECTION] + i;
	uint32_t parts = 0, sentinels = 0, kept = 0;

	if (!l->owners[slot].kind) {
		SAME("debts of a gone connection", slot, conn->tail - conn->head, 0);
		SAME("room of a gone connection", slot, conn->lends, 0);
		return;
	}
	*active += conn->planned;
	for (uint32_t s = conn->head; s != conn->tail; s++) {
		const struct ledger_debt *d = &conn->ring[s & conn->mask];
		bool given = conn->was_stuck && (int32_t)(conn->stuck_upto - s) > 0;

		bool alone = d->shape.of.what == LEDGER_WR_SLICE && d->op == NONE;

		parts += !alone;
		sentinels += d->shape.of.what == LEDGER_WR_SENTINEL;
		*active += d->shape.of.what == LEDGER_WR_SLICE && !alone && !given;
	}
	for (uint32_t w = 0; w < l->config.max_windows; w++) {
		uint32_t window = l->base[ESCROW_OWNER_WINDOW] + w;

		if (l->owners[window].kind && window_conn(l, window) == slot)
			kept += l->windows[w].kept;
	}
	SAME("parts", slot, conn->parts, parts);
	SAME("sentinels", slot, conn->sentinel, sentinels);
	SAME("kept SQ slots", slot, conn->kept, kept);
	check_short(c, slot, conn);
	if (conn_used(conn) + conn->kept > conn->room)
		bad(c, "connection %u: %u + %u slots, only %u", slot, conn_used(conn), conn->kept,
		    conn->room);
}

static void check_context(struct check *c, uint32_t i)
{
	const struct ledger_context *x = &c->l->contexts[i];

	SAME("invalidations believed", i, x->invalidates, lg_context_invalidates(x));
}

/* What the rings of a lane's connections hold of a region. */
static uint32_t count_loans(const struct ledger *l, const struct ledger_lane *lane, uint32_t region)
{
	uint32_t loans = 0;

	for (uint32_t i = 0; i < l->config.max_connections; i++) {
		const struct ledger_conn *conn = &l->conns[i];

		if (conn->lane != lane)
			continue;
		for (uint32_t s = conn->head; s != conn->tail; s++) {
			const struct ledger_debt *d = &conn->ring[s & conn->mask];

			loans += (d->shape.of.nregions > 0 && d->region[0] == region) +
				 (d->shape.of.nregions > 1 && d->region[1] == region) +
				 (d->shape.of.nregions > 2 && d->region[2] == region) +
				 (d->shape.of.nregions > 3 && d->region[3] == region);
		}
	}
	return loans;
}

/* What the connections of a lane take of its completion queue. */
static uint32_t count_depths(const struct ledger *l, const struct ledger_lane *lane)
{
	uint32_t taken = 0;

	for (uint32_t i = 0; i < l->config.max_connections; i++) {
		if (l->owners[l->base[ESCROW_OWNER_CONNECTION] + i].kind &&
		    l->conns[i].lane == lane)
			taken += l->conns[i].sq_depth + l->conns[i].rq_depth;
	}
	return taken;
}

static void check_lane(struct check *c, uint32_t index)
{
	const struct ledger *l = c->l;
	const struct ledger_lane *lane = &l->lanes[index];
	uint32_t taken = count_depths(l, lane);

	for (uint32_t r = 0; r < l->nregions; r++) {
		uint32_t loans = count_loans(l, lane, r);

		SAME("loans", r, lane->loans[r], loans);
		if (loans && !l->owners[l->base[ESCROW_OWNER_REGION] + r].kind)
			bad(c, "region %u is gone and lent", r);
	}
	if (lane->live) {
		SAME("CQ slots", index, lane->cq_taken, taken);
		if (taken > lane->cq_depth)
			bad(c, "lane %u: %u completions do not fit into %u", index, taken,
			    lane->cq_depth);
	}
}

/* Debts of a lane that are their own parents, given out as stuck or not. */
static uint32_t count_alone(const struct ledger *l, const struct ledger_lane *lane)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->config.max_connections; i++)
		if (l->conns[i].lane == lane)
			n += l->conns[i].tail - l->conns[i].head - l->conns[i].parts;
	return n;
}

/* Each parent that a lane admitted is one less that it may. */
static uint32_t check_room(struct check *c, uint32_t index)
{
	const struct ledger *l = c->l;
	const struct ledger_lane *lane = &l->lanes[index];
	uint32_t alone = count_alone(l, lane), taken = 0, returned = 0;

	for (uint32_t i = 0; i < l->nops; i++)
		taken += l->ops[i].home == index && l->ops[i].taken;
	for (uint32_t i = lane->op_returned; i != NONE; i = l->ops[i].next)
		returned++;
	SAME("room for ops", index, lane->ops_left + taken + returned + alone,
	     l->config.ops_per_lane);
	return alone;
}

/* I6: what is reported done owes nothing; exported means bound by a completion. */
static void check_ops(struct check *c, uint64_t active)
{
	const struct ledger *l = c->l;
	uint64_t pending = 0, taken = 0;
	struct escrow_charge sum;

	for (uint32_t i = 0; i < l->config.max_lanes * l->config.ops_per_lane; i++) {
		const struct ledger_op *op = &l->ops[i];

		pending += (uint32_t)op->pending;
		taken += op->taken;
		if (!op->taken && op->pending)
			bad(c, "op %u is free with slices outstanding", i);
		if ((op->state == LEDGER_OP_DONE || op->state == LEDGER_OP_FAILED) && op->pending)
			bad(c, "op %u is reported with %llx pending", i,
			    (unsigned long long)op->pending);
		if (op->state == LEDGER_OP_UNQUIESCED && (uint32_t)op->pending)
			bad(c, "op %u is UNQUIESCED with slices outstanding", i);
	}
	SAME("slices", 0, pending, active);
	for (uint32_t i = 0; i < l->config.max_lanes; i++)
		taken += check_room(c, i);
	lg_charge_sum(c->l, NONE, ESCROW_CHARGE_OPS, &sum);
	SAME("ops", 0, sum.used, taken);
}

static void check_grants(struct check *c)
{
	struct ledger *l = c->l;

	for (uint32_t i = 0; i < l->config.max_grants; i++) {
		uint32_t slot = l->base[ESCROW_OWNER_GRANT] + i, n = 0;

		if (!l->owners[slot].kind)
			continue;
		for (uint32_t w = l->grants[i].first; w != NONE; w = window_of(l, w)->next) {
			n++;
			if (window_grant(l, w) != slot)
				bad(c, "window %u is on the list of grant %u", w, slot);
			if (l->owners[slot].state == LEDGER_GRANT_EXPORTED &&
			    !window_of(l, w)->bound_cqe)
				bad(c, "grant %u is exported, window %u had no completion", slot,
				    w);
		}
		SAME("windows", slot, l->grants[i].windows, n);
	}
}

escrow_status ledger_check(struct ledger *l, char *text, uint32_t size)
{
	struct check check = {l, text, size, false}, *c = &check;
	uint64_t active = 0;

	lg_lock(l);
	for (uint32_t i = 0; i < l->nowners; i++) {
		if (!l->owners[i].kind)
			continue;
		check_tree(c, i);
		check_steps(c, i);
	}
	check_charges(c, NONE);
	for (uint32_t i = 0; i < l->config.max_names; i++) {
		if (l->names[i].refs)
			check_charges(c, i);
	}
	for (uint32_t i = 0; i < l->config.max_contexts; i++)
		check_context(c, i);
	for (uint32_t i = 0; i < l->config.max_connections; i++)
		check_connection(c, i, &active);
	for (uint32_t i = 0; i < l->config.max_lanes; i++)
		check_lane(c, i);
	check_ops(c, active);
	check_grants(c);
	lg_unlock(l);
	return check.bad ? ESCROW_E_INTERNAL : ESCROW_OK;
}
