/* SPDX-License-Identifier: BSD-2-Clause */
/* conn.c - one connection: made and connected, and the ladder by which it ends (ownership 3.2). */
#include "backends/engine/engine.h"

#include <errno.h>
#include <string.h>

static struct lane *lane_for(struct escrow_engine *e, const struct peer *p, uint32_t index)
{
	uint32_t rail = index / p->nlanes, lane = index % p->nlanes;

	return &e->lanes[e->rails[rail].context * e->config.num_lanes + lane];
}

static uint32_t recv_depth(struct escrow_engine *e, struct conn *c)
{
	return en_carrier_of(c) ? (uint32_t)e->config.recv_depth : 0;
}

/* It is made anew, and nobody else may have its place meanwhile. */
static bool renewed(const struct conn *c)
{
	return c->peer->renewal.at == c->index + 1 && atomic_load(&c->peer->state) == PEER_UP;
}

void en_conn_place_back(struct escrow_engine *e, struct conn *c)
{
	if (c->placed)
		ledger_place_give(e->ledger, en_quota_account(c->peer), e->sq_depth,
				  recv_depth(e, c));
	c->placed = 0;
}

escrow_status en_conn_charge(struct escrow_engine *e, struct conn *c, struct escrow_error *error)
{
	struct ledger_owner_args owner = {.kind = ESCROW_OWNER_CONNECTION,
					  .steps = LEDGER_STEP_BIT(ESCROW_STEP_DESTROY_QP),
					  .sq_depth = e->sq_depth,
					  .rq_depth = recv_depth(e, c),
					  .placed = c->placed,
					  .parent = c->lane->owner,
					  .account = atomic_load(&c->peer->handle),
					  .user = (uint64_t)(uintptr_t)c};
	escrow_status st;

	en_lane_lock(c->lane);
	st = ledger_owner_add(e->ledger, &owner, &c->owner, error);
	en_lane_unlock(c->lane);
	if (st < 0)
		return st;
	c->placed = 0;
	/* What the host calls a region is what the ledger calls it in the first context. */
	c->debts = c->lane->in == 0 ? ledger_conn_of(c->lane->ledger, c->owner) : NULL;
	en_lane_used(c->lane, true);
	c->stage = CONN_CHARGED;
	engine_set_slot(e, c->owner, c);
	return ESCROW_OK;
}

bool en_first_lane_stands(const struct escrow_engine *e)
{
	return en_lane_stands(&e->lanes[e->rails[0].context * e->config.num_lanes]);
}

/* One whose lane is broken for good never comes: the peer is told so. */
static escrow_status charge_first(struct escrow_engine *e, struct peer *p, uint32_t i,
				  struct escrow_error *error)
{
	struct conn *c = &p->conns[i];

	c->lane = lane_for(e, p, i);
	c->rail = i / p->nlanes;
	c->slots = p->nconns == 1 ? &c->lane->slots : &e->ended;
	atomic_store(&c->epoch, (uint32_t)p->epoch);
	if (en_lane_stands(c->lane))
		return en_conn_charge(e, c, error);
	c->stage = CONN_GONE;
	c->lost_due = 1;
	return ESCROW_OK;
}

/* One that is made anew, and is charged nowhere in this engine just now. */
static struct conn *comes_back(struct peer *p)
{
	struct conn *c = p->renewal.at ? &p->conns[p->renewal.at - 1] : NULL;

	return c && c->stage == CONN_GONE && renewed(c) && en_lane_stands(c->lane) ? c : NULL;
}

static escrow_status keep_room(struct escrow_engine *e, const struct conn *but,
			       struct escrow_error *error)
{
	escrow_status st = ESCROW_OK;
	uint32_t i;

	for (i = 0; i < e->config.max_peers && st == ESCROW_OK; i++) {
		struct conn *c = comes_back(&e->peers[i]);

		if (!c || c == but)
			continue;
		st = en_conn_charge(e, c, error);
		e->peers[i].renewal.room_kept = st == ESCROW_OK;
	}
	return st;
}

static void leave_room(struct escrow_engine *e)
{
	uint32_t i;

	for (i = 0; i < e->config.max_peers; i++) {
		struct renewal *r = &e->peers[i].renewal;

		if (r->room_kept)
			en_conn_uncharge(e, &e->peers[i].conns[r->at - 1]);
		r->room_kept = 0;
	}
}

/* All connections of the set, or none: what a quota refuses is refused before anything is made. */
escrow_status en_conns_charge(struct escrow_engine *e, struct peer *p, struct escrow_error *error)
{
	struct escrow_error detail = {.size = sizeof(detail)};
	escrow_status st = keep_room(e, NULL, &detail);
	uint32_t i;

	for (i = 0; i < p->nconns && st == ESCROW_OK; i++)
		st = charge_first(e, p, i, &detail);
	leave_room(e);
	if (st == ESCROW_OK)
		return st;
	while (i-- > 0)
		if (p->conns[i].stage == CONN_CHARGED)
			en_conn_uncharge(e, &p->conns[i]);
	return args_pass(error, st, &detail);
}

escrow_status en_conn_charge_again(struct escrow_engine *e, struct conn *c)
{
	escrow_status st = keep_room(e, c, NULL);

	if (st == ESCROW_OK)
		st = en_conn_charge(e, c, NULL);
	leave_room(e);
	return st;
}

void en_conn_uncharge(struct escrow_engine *e, struct conn *c)
{
	en_lane_lock(c->lane);
	ledger_place_keep(e->ledger, c->owner, renewed(c));
	ledger_owner_undo(e->ledger, c->owner);
	en_lane_unlock(c->lane);
	c->placed = renewed(c);
	en_lane_used(c->lane, false);
	c->stage = CONN_GONE;
}

escrow_status en_conn_make(struct escrow_engine *e, struct peer *p, uint32_t index)
{
	struct conn *c = &p->conns[index];
	struct lane *lane = c->lane;
	struct native_conn_args args = {
		.rail = c->rail,
		.send_depth = e->sq_depth,
		.recv_depth = recv_depth(e, c),
		.max_sge = e->wr_sges,
		.max_inline = lane->context->info.max_inline,
		.user = c,
	};
	int rc;

	if (c->stage != CONN_CHARGED || !en_lane_stands(lane))
		return ESCROW_E_DEVICE;
	c->stage = CONN_CREATED;
	rc = en_step_conn(e, lane, &args, &c->native);
	if (rc == 0)
		return ESCROW_OK;
	en_conn_uncharge(e, c);
	c->native = NULL;
	return en_status_of_own(rc);
}

/* It tells our requests from those of others who say that they are us. */
static uint32_t mark_for(const struct escrow_engine *e, const uint8_t target[16])
{
	uint32_t mark = (uint32_t)wire_siphash(e->secret, target, 16);

	return mark ? mark : 1;
}

escrow_status en_conn_connect(struct escrow_engine *e, struct peer *p, uint32_t index)
{
	const struct wire_invitation *inv = p->invitation;
	struct conn *c = &p->conns[index];
	uint8_t data[NATIVE_PRIVATE_BYTES];
	bool rejoin = atomic_load(&p->state) == PEER_UP;
	struct wire_hello hello = {
		.kind = rejoin ? WIRE_REJOIN : WIRE_REQUEST,
		.rail = (uint8_t)(index / p->nlanes),
		.lane = (uint8_t)(index % p->nlanes),
		.nrails = (uint8_t)p->nrails,
		.nlanes = (uint8_t)p->nlanes,
		.recv_depth = (uint16_t)e->config.recv_depth,
		.set = (uint32_t)p->epoch,
		.epoch = atomic_load(&c->epoch),
		.ticket = inv->ticket,
		.mark = mark_for(e, inv->incarnation),
		.target = wire_fold(inv->incarnation),
	};
	escrow_status st = en_conn_make(e, p, index);
	int rc;

	if (st < 0)
		return st;
	if ((st = en_carrier_open(e, c)) < 0)
		return st;
	memcpy(hello.incarnation, e->incarnation, 16);
	hello.proof = wire_proof(rejoin ? p->session : inv->secret, inv->incarnation, &hello);
	wire_hello_put(&hello, data);
	engine_unlock(e);
	rc = e->ops->connect(c->native, inv->address[hello.rail], data, sizeof(data));
	engine_lock(e);
	/* Whatever else it is, there is no way to the peer. */
	st = en_status_of_own(rc);
	return st == ESCROW_OK || st == ESCROW_E_NO_MEMORY ? st : ESCROW_E_PEER_LOST;
}

void en_conn_broken(struct conn *c)
{
	if (conn_breaks(c))
		en_work(c->lane->e, &c->peer->work);
}

bool en_peer_broken(struct peer *p)
{
	uint32_t i;

	for (i = 0; i < p->nconns; i++)
		if (atomic_load(&p->conns[i].broken) && p->conns[i].stage != CONN_GONE)
			return true;
	return false;
}

/* ---- The ladder ----------------------------------------------------------------------------------
 * Each native step is made at most once; the ledger sees to it.  Where a step is refused or proves
 * nothing, the next one follows; what is left at the end is quarantined.
 */
static escrow_status begin(struct escrow_engine *e, struct conn *c, uint32_t step)
{
	escrow_status st;

	en_lane_lock(c->lane);
	st = ledger_step_begin(e->ledger, c->owner, step, NULL);
	en_lane_unlock(c->lane);
	return st;
}

static escrow_status end(struct escrow_engine *e, struct conn *c, uint32_t step, int rc)
{
	escrow_status st;

	en_lane_lock(c->lane);
	st = ledger_step_end(e->ledger, c->owner, step, rc);
	en_collect(c);
	en_lane_unlock(c->lane);
	return st;
}

/* Work posted after the error state flushes: its completion is the fence for all before it. */
static void post_sentinel(struct escrow_engine *e, struct conn *c)
{
	struct native_wr wr = {.opcode = NATIVE_WRITE, .flags = NATIVE_SIGNALED};
	struct ledger_done done;
	uint32_t posted = 0;

	en_lane_lock(c->lane);
	if (ledger_wr_lend(c->lane->ledger, c->owner, LEDGER_WR_SENTINEL, 0, &wr.id) == ESCROW_OK) {
		en_post(e, c, ESCROW_STEP_POST, &wr, 1, &posted);
		if (!posted)
			ledger_rejected(c->lane->ledger, c->owner, 1, &done, 1);
	}
	en_lane_unlock(c->lane);
}

static void step_err(struct escrow_engine *e, struct conn *c)
{
	int rc;

	en_lane_lock(c->lane);
	conn_ready(c, c->renew && atomic_load(&c->peer->state) == PEER_UP ? CONN_RENEWING
									  : CONN_NOT_READY);
	ledger_owner_event(e->ledger, c->owner, LEDGER_E_STOP);
	en_lane_unlock(c->lane);
	if (c->established) {
		engine_unlock(e);
		e->ops->disconnect(c->native);
		engine_lock(e);
	}
	conn_breaks(c);
	if (begin(e, c, ESCROW_STEP_QP_ERR) == ESCROW_OK) {
		rc = en_step(c->lane->context, ESCROW_STEP_QP_ERR, c->native);
		c->err_ok = end(e, c, ESCROW_STEP_QP_ERR, rc) == ESCROW_OK;
	}
	en_conn_orphan_windows(e, c);
	if (c->err_ok)
		post_sentinel(e, c);
}

static uint32_t harvest(struct conn *c)
{
	uint32_t debt;

	en_lane_lock(c->lane);
	en_lane_poll(c->lane);
	debt = ledger_conn_debt(c->lane->ledger, c->owner);
	en_lane_unlock(c->lane);
	return debt;
}

static void step_reset(struct escrow_engine *e, struct conn *c)
{
	int rc;

	if (begin(e, c, ESCROW_STEP_QP_RESET) < 0)
		return;
	rc = en_step(c->lane->context, ESCROW_STEP_QP_RESET, c->native);
	end(e, c, ESCROW_STEP_QP_RESET, rc);
}

static void give_up(struct escrow_engine *e, struct conn *c, const char *why)
{
	en_lane_lock(c->lane);
	ledger_quarantine(e->ledger, c->owner, why);
	en_collect(c);
	en_lane_unlock(c->lane);
	c->stage = CONN_QUARANTINED;
	c->peer->stuck = 1;
	en_renew_gone(e, c);
}

/* What became of its destruction; its place is kept if it has gone by that, and is made anew. */
static escrow_status destroyed(struct escrow_engine *e, struct conn *c, int rc)
{
	escrow_status st;

	ledger_place_keep(e->ledger, c->owner, renewed(c));
	st = end(e, c, ESCROW_STEP_DESTROY_QP, rc);
	c->placed = renewed(c) && en_owner_gone(e, c->owner);
	ledger_place_keep(e->ledger, c->owner, false);
	return st;
}

static void step_destroy(struct escrow_engine *e, struct conn *c)
{
	struct native_conn *native = c->native;
	escrow_status st = begin(e, c, ESCROW_STEP_DESTROY_QP);
	int rc;

	if (st < 0) {
		give_up(e, c, "not to be destroyed");
		return;
	}
	en_lane_lock(c->lane);
	c->native = NULL;
	en_lane_unlock(c->lane);
	rc = en_step(c->lane->context, ESCROW_STEP_DESTROY_QP, native);
	c->stage = CONN_GONE;
	en_renew_gone(e, c);
	/* Else it may complete something yet. */
	if (destroyed(e, c, rc) < 0) {
		give_up(e, c, "destroy failed");
		return;
	}
	en_lane_used(c->lane, false);
	/* Nobody waits for flushed receives, and on rxe they outlive it: its places in the queue are another's now. */
	en_lane_clear(c->lane);
}

/*
 * False: completions are still to come, and there is time to wait for them.  Also after an ERR that
 * failed: it may have worked, and what was posted before it ends by itself.
 *
 * The reset is for what no completion will settle; for a queue pair that may still work, because ERR
 * failed; and for a queue that is not believed any more.
 */
static bool harvested(struct escrow_engine *e, struct conn *c, uint64_t now)
{
	bool believed = !atomic_load(&c->lane->poisoned) && !en_owner_quarantined(e, c->owner);
	uint32_t debt = harvest(c);

	if (debt && believed && now < c->deadline) {
		en_wake_at(e, c->deadline);
		return false;
	}
	if (debt || !believed || !c->err_ok)
		step_reset(e, c);
	c->stage = CONN_RESET;
	return true;
}

/* Its receipt came from outside. */
static bool fenced(struct escrow_engine *e, struct conn *c)
{
	en_lane_lock(c->lane);
	c->native = NULL;
	conn_ready(c, CONN_NOT_READY);
	en_lane_unlock(c->lane);
	conn_breaks(c);
	en_conn_orphan_windows(e, c);
	if (en_conn_has_windows(e, c))
		return false;
	c->stage = CONN_GONE;
	en_renew_gone(e, c);
	en_lane_used(c->lane, false);
	return true;
}

bool en_conn_retire(struct escrow_engine *e, struct conn *c, uint64_t now)
{
	if (c->stage >= CONN_CREATED && c->stage <= CONN_RESET && en_owner_gone(e, c->owner))
		return fenced(e, c);
	switch ((enum conn_stage)c->stage) {
	case CONN_CHARGED:
		en_conn_uncharge(e, c);
		/* fall through */
	case CONN_NONE:
	case CONN_GONE:
	case CONN_QUARANTINED:
		en_conn_place_back(e, c);
		return true;
	case CONN_CREATED:
	case CONN_READY:
		step_err(e, c);
		c->stage = CONN_HARVEST;
		c->deadline = now + e->config.drain_ms * 1000000u;
		/* fall through */
	case CONN_HARVEST:
		if (!harvested(e, c, now))
			return false;
		/* fall through */
	case CONN_RETIRING:
	case CONN_RESET:
		break;
	}
	if (en_owner_quarantined(e, c->owner)) {
		give_up(e, c, "no proof");
		return true;
	}
	/* Windows before queue pairs: the orphans are on their way (en_window_advance). */
	if (en_conn_has_windows(e, c))
		return false;
	step_destroy(e, c);
	return true;
}
