/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The gate of registrations and windows: one of them cannot be ended, its engine is closed and released, and another engine
 * takes its place in the same process. What could not be ended stays with the old one; the new one works.
 */
#include "config.h"

#include "tests/gates/gate.h"
#include "tools/demo.h"
#include "tools/json.h"

#define ROUNDS 2u

/* The host wants its memory back while the engine lives. */
static void deregister(struct gate_end *end)
{
	struct observer_state before, after;
	escrow_status st;

	observer_state(&before);
	st = escrow_deregister(end->engine, end->region);
	json_add_string(end->facts, "deregister", escrow_status_name(st));
	while (st == ESCROW_IN_PROGRESS && !end->region_stuck &&
	       !end->seen[ESCROW_EV_REGION_RELEASED])
		end_turn(end);
	observer_state(&after);
	json_add_number(end->facts, "deregister_calls", after.calls - before.calls);
}

static void take_back(struct gate_end *end)
{
	if (escrow_revoke(end->engine, end->object) < 0)
		end_fail(end, "revoke");
	end_wait(end, ESCROW_EV_GRANT_REVOKED);
}

/* A region that stays is the loss of that region only. */
static void is_alive(struct gate_end *end)
{
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = "another"};
	uint8_t bytes[8192];
	uint64_t len = sizeof(bytes);

	json_add_string(end->facts, "alive",
			escrow_status_name(escrow_invite(end->engine, &args, bytes, &len)));
}

/* What the source does with its registration or window before it closes. */
static void prepare(struct gate_end *end)
{
	const struct gate_case *c = end->set;

	if (c->use == GATE_IDLE)
		take_back(end);
	role_plan(end);
	if (c->failure == OBSERVER_DEREG_MR)
		deregister(end);
	is_alive(end);
	if (c->use == GATE_IN_USE) {
		end_say(end, GATE_GO, 0, NULL, 0);
		if (!end_hear(end, GATE_GO))
			end_fail(end, "the requester is gone");
	}
	role_owe(end);
}

static void replaced(struct gate_end *end, bool right)
{
	json_add_bool(end->facts, "right", right);
	end_close(end);
	json_builder_end_object(end->facts);
	json_add_number(end->facts, "freed_old", end->freed_old);
	teardown_residue(end, "residue_after");
	facts_objects(end->facts, "objects_after");
	teardown_prove(end);
}

static void begin_replacement(struct gate_end *end)
{
	teardown(end);
	json_builder_set_member_name(end->facts, "replacement");
	json_builder_begin_object(end->facts);
	end_renew(end);
}

/* The other end knows only that its peer is gone, and another one invites it. */
static void await_loss(struct gate_end *end)
{
	while (!end->seen[ESCROW_EV_PEER_DOWN])
		end_turn(end);
	end->seen[ESCROW_EV_PEER_DOWN] = end->seen[ESCROW_EV_PEER_UP] = 0;
	end->seen[ESCROW_EV_GRANT_READY] = end->seen[ESCROW_EV_REMOTE_READY] = 0;
}

static void lend(struct gate_end *end)
{
	demo_fill(end->memory + GATE_GUARD, GATE_PAYLOAD, 1);
	role_lend(end);
}

void replace_source(struct gate_end *end)
{
	bool right = true;
	uint32_t i;

	end_open(end);
	lend(end);
	role_serve(end, &right);
	if (end->faulted) {
		json_add_bool(end->facts, "right_before", right);
		prepare(end);
		begin_replacement(end);
	} else {
		await_loss(end);
	}
	lend(end);
	for (i = 0; i < ROUNDS; i++)
		right = role_serve(end, &right) && right;
	while (role_serve(end, &right))
		;
	if (end->set->source) {
		replaced(end, right);
		return;
	}
	json_add_bool(end->facts, "right", right);
	end_close(end);
}

/* The source is about to close: whatever becomes of the parents, they come back. */
static void go(struct gate_end *end)
{
	if (!end_hear(end, GATE_GO))
		end_fail(end, "the source is gone");
	end_submit(end);
	end_say(end, GATE_GO, 0, NULL, 0);
	while (!end_ops_done(end))
		end_turn(end);
	for (uint32_t i = 0; i < GATE_PARENTS; i++)
		if (end->ops[i].custody != ESCROW_CUSTODY_RETURNED)
			end_fail(end, "parent %u is held", i);
}

void replace_requester(struct gate_end *end)
{
	bool right, in_use = end->set->use == GATE_IN_USE;
	uint32_t i;

	end_open(end);
	role_join(end);
	right = role_move(end, 1);
	if (end->faulted) {
		role_plan(end);
		role_start(end);
		deregister(end);
		json_add_bool(end->facts, "right_before", right);
		begin_replacement(end);
	} else {
		if (in_use)
			go(end);
		await_loss(end);
	}
	role_join(end);
	for (i = 1; i <= ROUNDS; i++)
		right = role_move(end, i) && right;
	end_say(end, GATE_OVER, 0, NULL, 0);
	if (!end->set->source) {
		replaced(end, right);
		return;
	}
	json_add_bool(end->facts, "right", right);
	end_close(end);
}
