/* SPDX-License-Identifier: BSD-2-Clause */
/* slice.c - how an op becomes work requests on the connections of its peer. */
#include "backends/engine/transfer.h"

#include <string.h>

/* Which connection each slice goes to, by index in the peer's set. */
struct plan {
	uint64_t slice_bytes;
	uint32_t nslices;
	uint16_t to[MAX_SLICES];
	uint16_t count[WIRE_MAX_KEYS];
	struct ledger_done done; /* of the op, if ended: a slice that was taken back was its last */
	bool ended;
};

/* ---- Cutting ----------------------------------------------------------------------------------- */
/* Where an op's next slice starts: which range, how far into it, how far into the whole. */
struct cut {
	uint32_t sge;
	uint64_t into;
	uint64_t at;
};

/* The pieces of the next slice: at most `most` ranges and `bytes` bytes; how many pieces. */
static uint32_t next_slice(const struct escrow_op *op, struct cut *c, uint64_t bytes, uint32_t most,
			   struct escrow_sge *pieces)
{
	uint32_t n = 0;

	while (c->sge < op->nsge && n < most && bytes) {
		const struct escrow_sge *s = &op->sge[c->sge];
		uint64_t left = s->length - c->into, take = left < bytes ? left : bytes;

		if (take) {
			pieces[n].region = s->region;
			pieces[n].offset = s->offset + c->into;
			pieces[n++].length = take;
			bytes -= take;
			c->at += take;
			c->into += take;
		}
		if (c->into == s->length) {
			c->sge++;
			c->into = 0;
		}
	}
	return n;
}

/* ---- Lanes ----------------------------------------------------------------------------------------- */
/* lane. How many more slices the connection takes. */
static uint32_t room(struct escrow_engine *e, const struct conn *c)
{
	uint32_t own = depth_left(e, c), ledger = ledger_conn_room(c->lane->ledger, c->owner);

	return own < ledger ? own : ledger;
}

static uint64_t load_of(const struct transfer *t, const struct conn *c)
{
	uint64_t load = atomic_load_explicit(&c->outstanding, memory_order_relaxed);

	/* What is planned is the lane holder's; without the lane there is nothing planned by us. */
	if (t->held & c->lane->bit)
		load += c->planned;
	return load;
}

/* What the next slice costs there. */
static uint64_t cost_of(const struct escrow_engine *e, const struct transfer *t,
			const struct conn *c, uint64_t bytes)
{
	uint64_t distance =
		atomic_load_explicit(&t->region->parts[c->lane->in].distance, memory_order_relaxed);
	uint64_t load = load_of(t, c);

	return e->config.topology == TOPOLOGY_NEAREST ? distance << 56 | load
						      : distance * (load + bytes);
}

struct choice {
	bool any;  /* a connection there is, if not usable: till its rail is up, or its key comes */
	bool busy; /* but its lane is held by another */
	bool slots; /* or its queue is full */
};

/* The connection of the least cost whose lane we have or get; NULL: none. */
static struct conn *choose(struct escrow_engine *e, struct transfer *t, const struct plan *plan,
			   struct choice *why)
{
	struct peer *p = t->peer;
	struct conn *best;
	uint64_t tried[WIRE_MAX_KEYS / 64] = {0}, cost, least = 0;
	uint32_t i;

	for (;;) {
		best = NULL;
		for (i = 0; i < p->nconns; i++) {
			struct conn *c = &p->conns[i];

			why->any |= may_be_used(c);
			if ((tried[i / 64] >> (i % 64) & 1) || !usable(t->remote, c))
				continue;
			cost = cost_of(e, t, c, plan->slice_bytes);
			if (best && cost >= least)
				continue;
			best = c;
			least = cost;
		}
		if (!best)
			return NULL;
		tried[best->index / 64] |= UINT64_C(1) << (best->index % 64);
		if (!have_lane(t, best->lane)) {
			why->busy = true;
			continue;
		}
		/* Looked at again under the lane: a peer that leaves clears it there. */
		if (!usable(t->remote, best))
			continue;
		if (plan->count[best->index] >= room(e, best)) {
			why->slots = true;
			continue;
		}
		return best;
	}
}

static escrow_status why_none(struct transfer *t, const struct choice *why)
{
	if (!why->any)
		return ESCROW_E_PEER_LOST;
	t->full = why->busy && !why->slots ? FULL_BUSY : FULL_SLOTS;
	return ESCROW_E_AGAIN;
}

static void plan_nothing(struct plan *plan, const struct transfer *t, uint64_t slice_bytes)
{
	uint32_t i;

	plan->slice_bytes = slice_bytes;
	plan->nslices = 0;
	plan->ended = false;
	for (i = 0; i < t->peer->nconns; i++)
		plan->count[i] = 0;
}

escrow_status en_choose(struct escrow_engine *e, struct transfer *t, struct conn **out)
{
	struct choice why = {false, false, false};
	struct plan plan;

	plan_nothing(&plan, t, t->total);
	*out = choose(e, t, &plan, &why);
	t->full = FULL_SLOTS; /* where it is the ledger that has no more */
	return *out ? ESCROW_OK : why_none(t, &why);
}

/* Takes lanes and spreads the op's slices over their connections.  E_AGAIN: t->full; E_PEER_LOST. */
static escrow_status spread(struct escrow_engine *e, struct transfer *t, struct plan *plan)
{
	struct escrow_sge pieces[WR_SGES];
	struct cut cut = {0};
	struct choice why = {false, false, false};
	struct conn *c = NULL;
	uint64_t before;
	uint32_t i;

	plan_nothing(plan, t, slice_size(e, t->total));
	while (cut.at < t->total && plan->nslices < MAX_SLICES) {
		before = cut.at;
		next_slice(t->op, &cut, plan->slice_bytes, e->wr_sges, pieces);
		c = choose(e, t, plan, &why);
		if (!c)
			break;
		c->planned += cut.at - before;
		plan->to[plan->nslices++] = (uint16_t)c->index;
		plan->count[c->index]++;
	}
	for (i = 0; i < plan->nslices; i++)
		t->peer->conns[plan->to[i]].planned = 0;
	if (c)
		return cut.at < t->total ? ESCROW_E_LIMIT : ESCROW_OK;
	return why_none(t, &why);
}

/* Charges the whole plan, or nothing. */
static escrow_status admit(struct escrow_engine *e, struct transfer *t, const struct plan *plan,
			   struct op *op)
{
	struct ledger_part parts[WIRE_MAX_KEYS];
	struct ledger_admission admission = {
		.user = (uint64_t)(op - e->op_table), .flags = LEDGER_ADMIT_ENDS, .parts = parts};
	escrow_status st;
	uint32_t i;

	for (i = 0; i < t->peer->nconns; i++) {
		struct conn *c = &t->peer->conns[i];

		if (!plan->count[i])
			continue;
		parts[admission.nparts++] = (struct ledger_part){
			.lane = c->lane->ledger, .connection = c->owner, .slices = plan->count[i]};
	}
	st = ledger_op_admit(t->peer->conns[plan->to[0]].lane->ledger, &admission, &op->ledger);
	if (st == ESCROW_E_AGAIN)
		t->full = FULL_SLOTS;
	return st == ESCROW_E_STATE ? ESCROW_E_PEER_LOST : st;
}

/* ---- Chains -------------------------------------------------------------------------------------------- */
/* Of the first n requests of a chain. */
static uint64_t bytes_of(const struct chain *ch, uint32_t n)
{
	uint64_t bytes = 0;
	uint32_t i, k;

	for (i = 0; i < n; i++)
		for (k = 0; k < ch->wr[i].nsge; k++)
			bytes += ch->sge[i][k].length;
	return bytes;
}

/* What is chained last may be of an op of which more is to come, or is not: no later request has to cover it. */
void en_flush(struct escrow_engine *e, struct lane *lane)
{
	struct chain *ch = &lane->chain;

	if (ch->n)
		ch->wr[ch->n - 1].flags |= NATIVE_SIGNALED;
	flush(e, lane);
}

void en_refused(struct escrow_engine *e, struct conn *c, uint32_t posted, uint32_t n)
{
	struct lane *lane = c->lane;
	struct ledger_done done[CHAIN_WRS];
	int32_t k, ended;

	if (posted)
		posted_of(e, c, posted, bytes_of(&lane->chain, posted),
			  !asks(&lane->chain.wr[posted - 1]));
	ended = ledger_rejected(lane->ledger, c->owner, n - posted, done, CHAIN_WRS);
	/* The completion that was to cover those before it is among what was refused. */
	if (c->open_end)
		en_conn_broken(c);
	for (k = 0; k < ended; k++)
		en_settle(lane, &done[k], 0);
}

/* *lent: how many of them are, of a slice that fails. */
static escrow_status lend_pieces(struct transfer *t, const struct op *op, struct conn *c,
				 const struct escrow_sge *pieces, uint32_t n, uint64_t *id,
				 uint32_t *lent)
{
	struct ledger_loan loan = {
		.op = op->ledger, .connection = c->owner, .opcode = t->op->opcode};
	struct escrow_engine *e = op->e;
	uint32_t i;
	escrow_status st = ESCROW_OK;

	for (i = 0; i < n && st == ESCROW_OK; i++) {
		const struct region *r = region_held(e, &pieces[i]);

		*lent = i;
		if (!r)
			return ESCROW_E_INVALID;
		loan.region = r->parts[c->lane->in].owner;
		loan.offset = pieces[i].offset;
		loan.length = pieces[i].length;
		st = i == 0 ? ledger_slice_lend(c->lane->ledger, &loan, id)
			    : ledger_slice_also(c->lane->ledger, *id, loan.region, loan.offset,
						loan.length);
	}
	return st;
}

/* lane. The youngest request, of which a later piece could not be lent: it is never posted. */
static void take_slice_back(struct plan *plan, struct conn *c)
{
	/* Who stops lending says how the op ends, or that it never was. */
	plan->ended = ledger_rejected(c->lane->ledger, c->owner, 1, &plan->done, 1) == 1;
	plan->count[c->index]--;
}

/* lane. One slice into the chain; the last of this op on this connection asks for a completion. */
static escrow_status lend_one(struct escrow_engine *e, struct transfer *t, struct plan *plan,
			      struct op *op, struct conn *c, struct cut *cut)
{
	bool last = plan->count[c->index] == 1;
	struct escrow_sge pieces[WR_SGES];
	uint64_t from = cut->at;
	uint32_t n = next_slice(t->op, cut, plan->slice_bytes, e->wr_sges, pieces), i;
	struct native_wr *wr = place_in_chain(e, c, 1);
	uint32_t lent = 0;
	escrow_status st = lend_pieces(t, op, c, pieces, n, &wr->id, &lent);

	if (st < 0) {
		if (lent)
			take_slice_back(plan, c);
		return st;
	}
	wr->opcode = native_of(t->op->opcode);
	wr->flags = last ? NATIVE_SIGNALED : 0;
	wr->nsge = n;
	wr->rkey = t->remote->keys[c->index];
	wr->remote_addr = t->remote->addr + t->op->remote_offset + from;
	for (i = 0; i < n; i++) {
		const struct region *r = en_region_find(e, pieces[i].region);

		wr->sge[i] = (struct native_sge){.addr = r->addr + pieces[i].offset,
						 .length = (uint32_t)pieces[i].length,
						 .key = r->parts[c->lane->in].key};
	}
	if (cut->at - from < inline_below(c, t->op->opcode))
		wr->flags |= NATIVE_INLINE;
	c->lane->chain.bytes += cut->at - from;
	c->lane->chain.n++;
	return ESCROW_OK;
}

static bool lends_on(const struct plan *plan, const struct conn *c, uint32_t lent)
{
	uint32_t i;

	for (i = 0; i < lent; i++)
		if (plan->to[i] == c->index)
			return true;
	return false;
}

/*
 * lane. The slice that was to ask for the completion of those before it does not come.  What was posted asks for its own
 * (en_flush), and a device that took half of that has broken the connection (en_refused).
 */
static void end_chain(struct conn *c)
{
	struct chain *ch = &c->lane->chain;

	if (ch->conn == c && ch->n)
		ch->wr[ch->n - 1].flags |= NATIVE_SIGNALED;
}

/*
 * A region is being taken back: what is not lent is dropped.  An op of which nothing was lent never was; else
 * it ends by an event, when what was lent has come back.
 */
static escrow_status stop_lending(struct transfer *t, const struct plan *plan, struct op *op,
				  uint32_t lent)
{
	uint32_t failed = plan->to[lent], i;
	struct ledger_done done;

	if (plan->ended && lent)
		en_settle(t->peer->conns[failed].lane, &plan->done, 0);
	for (i = 0; i < t->peer->nconns; i++) {
		struct conn *c = &t->peer->conns[i];
		uint32_t rest = plan->count[i];

		if (rest &&
		    ledger_op_drop(c->lane->ledger, c->owner, op->ledger, rest, &done) == 1 && lent)
			en_settle(c->lane, &done, 0);
		if ((rest || i == failed) && lends_on(plan, c, lent))
			end_chain(c);
	}
	return lent ? ESCROW_OK : ESCROW_E_INVALID;
}

/* Lends every slice and chains it; from then on the op ends by an event.  E_INVALID: it never was. */
static escrow_status lend(struct escrow_engine *e, struct transfer *t, struct plan *plan,
			  struct op *op)
{
	struct cut cut = {0};
	uint32_t i;

	for (i = 0; i < plan->nslices; i++) {
		struct conn *c = &t->peer->conns[plan->to[i]];

		if (lend_one(e, t, plan, op, c, &cut) < 0)
			return stop_lending(t, plan, op, i);
		if (i == 0 && op->deadline)
			en_deadline_add(e, op);
		plan->count[c->index]--;
	}
	return ESCROW_OK;
}

escrow_status en_cut_op(struct escrow_engine *e, struct transfer *t, struct op *op)
{
	struct plan plan;
	escrow_status st = spread(e, t, &plan);

	if (st == ESCROW_OK)
		st = admit(e, t, &plan, op);
	return st < 0 ? st : lend(e, t, &plan, op);
}
