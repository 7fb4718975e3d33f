/* SPDX-License-Identifier: BSD-2-Clause */
/* The faulted end: it closes, and everything that can be seen of that is written down. Nothing is judged here. */
#include "config.h"

#include <string.h>

#include "tests/gates/gate.h"
#include "tools/json.h"
#include "tools/names.h"

static void member(JsonBuilder *facts, const char *name)
{
	json_builder_set_member_name(facts, name);
}

/* May the host touch the range of each parent?  Borrows that were had are given back. */
static void borrows(struct gate_end *end, const char *name)
{
	JsonBuilder *facts = end->facts;

	member(facts, name);
	json_builder_begin_array(facts);
	for (uint32_t i = 0; i < GATE_PARENTS; i++) {
		uint64_t at = GATE_GUARD + GATE_PARENT_BYTES * i;
		escrow_status st =
			escrow_borrow_for_write(end->engine, end->region, at, GATE_PARENT_BYTES);

		json_builder_add_string_value(facts, escrow_status_name(st));
		if (st == ESCROW_OK)
			escrow_return(end->engine, end->region, at, GATE_PARENT_BYTES);
	}
	json_builder_end_array(facts);
}

static void ops(struct gate_end *end)
{
	JsonBuilder *facts = end->facts;

	member(facts, "ops");
	json_builder_begin_array(facts);
	for (uint32_t i = 0; i < GATE_PARENTS && end->ops[0].id; i++) {
		json_builder_begin_object(facts);
		json_add_number(facts, "done", end->ops[i].done);
		json_add_number(facts, "returned", end->ops[i].returned);
		json_add_string(facts, "status", escrow_status_name(end->ops[i].status));
		json_add_bool(facts, "held", end->ops[i].custody == ESCROW_CUSTODY_HELD);
		json_add_number(facts, "effect", end->ops[i].effect);
		json_builder_end_object(facts);
	}
	json_builder_end_array(facts);
}

/* calls: as they were counted by whom the engine cannot fool. */
static void state_of(JsonBuilder *facts, const char *name, uint64_t calls,
		     const struct observer_state *s)
{
	member(facts, name);
	json_builder_begin_object(facts);
	json_add_number(facts, "calls", calls);
	json_add_number(facts, "withheld", s->withheld);
	json_add_number(facts, "outstanding", s->outstanding);
	json_add_number(facts, "owed", s->owed);
	json_add_bool(facts, "failed", s->failed);
	json_builder_end_object(facts);
}

static void state(JsonBuilder *facts, const char *name, uint64_t calls)
{
	struct observer_state s;

	observer_state(&s);
	state_of(facts, name, calls, &s);
}

static void charge(JsonBuilder *facts, const struct escrow_charge *charges, int32_t n)
{
	member(facts, "charges");
	json_builder_begin_object(facts);
	for (int32_t i = 0; i < n; i++) {
		if (charges[i].peer_name[0])
			continue;
		member(facts, name_of_charge(charges[i].kind));
		json_builder_begin_object(facts);
		json_add_number(facts, "used", charges[i].used);
		json_add_number(facts, "stuck", charges[i].stuck);
		json_builder_end_object(facts);
	}
	json_builder_end_object(facts);
}

static void record(JsonBuilder *facts, const struct escrow_record *r)
{
	if (r->state != ESCROW_OWNER_QUARANTINED)
		return;
	json_builder_begin_object(facts);
	json_add_string(facts, "kind", name_of_owner(r->kind));
	json_add_string(facts, "stage", name_of_step(r->stage));
	json_add_number(facts, "errno", (uint64_t)r->sys_errno);
	json_add_string(facts, "text", r->text);
	json_builder_end_object(facts);
}

/* The backend's slots; they are there as long as the process, whoever lets go of the module. */
static const struct escrow_ops *slots_of(const struct gate_end *end)
{
	static struct escrow_module_info info = {.size = sizeof(info)};

	if (!info.backend)
		escrow_module_info(end->module, &info);
	return info.backend->ops;
}

void teardown_residue(struct gate_end *end, const char *name)
{
	const struct escrow_ops *table = slots_of(end);
	struct escrow_record records[64];
	uint64_t cursor = 0;
	int32_t n, i;

	member(end->facts, name);
	json_builder_begin_array(end->facts);
	while ((n = table->records(NULL, &cursor, records, 64, sizeof(records[0]))) > 0)
		for (i = 0; i < n; i++)
			record(end->facts, &records[i]);
	json_builder_end_array(end->facts);
}

static void residue_charges(struct gate_end *end)
{
	struct escrow_charge charges[64];
	int32_t n =
		slots_of(end)->charges(NULL, charges, G_N_ELEMENTS(charges), sizeof(charges[0]));

	charge(end->facts, charges, MIN(n, (int32_t)G_N_ELEMENTS(charges)));
}

/* ---- Close, again, and what cannot be done any more ------------------------------------------------------- */
static void close_once(struct gate_end *end)
{
	json_add_string(end->facts, "close",
			escrow_status_name(escrow_close(end->engine, 0, ESCROW_CLOSE_ABORT)));
	while (!end->seen[ESCROW_EV_CLOSED] && !end->seen[ESCROW_EV_QUARANTINED])
		end_turn(end);
	json_add_string(end->facts, "end", end->seen[ESCROW_EV_CLOSED] ? "CLOSED" : "QUARANTINED");
}

static void close_again(struct gate_end *end)
{
	escrow_status st = escrow_close(end->engine, 0, ESCROW_CLOSE_ABORT);

	json_add_string(end->facts, "close_again", escrow_status_name(st));
	while (st == ESCROW_IN_PROGRESS && !end->repeats)
		end_turn(end);
	json_add_number(end->facts, "repeats", end->repeats);
}

static void recovery(struct gate_end *end)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_sge sge = {end->region, GATE_GUARD, GATE_SLICE_BYTES};
	struct escrow_op op = {
		.remote = end->object, .opcode = ESCROW_READ, .nsge = 1, .sge = &sge};
	struct escrow_region region = {.size = sizeof(region),
				       .memory_kind = ESCROW_MEMORY_HOST,
				       .addr = end->memory,
				       .length = GATE_GUARD,
				       .dmabuf_fd = -1};
	struct escrow_grant_args grant = {.size = sizeof(grant),
					  .rights = ESCROW_MAY_READ,
					  .peer = end->peer,
					  .region = end->region,
					  .length = GATE_GUARD};
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "again"};
	uint8_t bytes[8192] = {0};
	struct escrow_peer_args peer = {.size = sizeof(peer),
					.peer_name = "again",
					.invitation = bytes,
					.invitation_len = sizeof(bytes)};
	uint64_t handle, len = sizeof(bytes);
	const struct escrow_ops *slots;
	struct escrow_engine *backend = escrow_backend_engine(end->engine, &slots);
	const struct {
		const char *name;
		escrow_status st;
	} tries[] = {
		{"resume", escrow_resume(end->engine)},
		{"quiesce", escrow_quiesce(end->engine)},
		{"drain", escrow_drain(end->engine, 0, 0)},
		{"register", escrow_register(end->engine, &region, &handle, &error)},
		{"invite", escrow_invite(end->engine, &invite, bytes, &len)},
		{"connect", escrow_connect(end->engine, &peer, &handle, &error)},
		{"grant", escrow_grant(end->engine, &grant, &handle, &error)},
		/* The host library does not know the remote any more; the backend itself is asked. */
		{"transfer", slots->transfer(backend, &op, 1, sizeof(op), 0, &handle)},
	};

	member(end->facts, "recovery");
	json_builder_begin_object(end->facts);
	for (uint32_t i = 0; i < G_N_ELEMENTS(tries); i++)
		json_add_string(end->facts, tries[i].name, escrow_status_name(tries[i].st));
	json_builder_end_object(end->facts);
}

static void let_go(struct gate_end *end)
{
	uint64_t withheld;

	slots_of(end);
	json_add_string(end->facts, "release", escrow_status_name(escrow_release(end->engine)));
	escrow_module_unref(end->module);
	escrow_withheld(NULL, 0, &withheld);
	json_add_number(end->facts, "withheld_bytes", withheld);
	json_add_number(end->facts, "freed", end->freed);
	teardown_residue(end, "residue");
	residue_charges(end);
}

void teardown_prove(struct gate_end *end)
{
	struct observer_proof p;

	if (observer_prove(&p))
		return;
	member(end->facts, "proof");
	json_builder_begin_object(end->facts);
	json_add_number(end->facts, "number", p.number);
	json_add_number(end->facts, "key", p.key);
	json_add_number(end->facts, "use", (uint64_t)p.use);
	json_add_number(end->facts, "state", (uint64_t)p.state);
	json_add_number(end->facts, "unblock", (uint64_t)p.unblock);
	json_add_number(end->facts, "end", (uint64_t)p.end);
	json_builder_end_object(end->facts);
}

void teardown(struct gate_end *end)
{
	JsonBuilder *facts = end->facts;
	struct observer_state released;

	{
		g_autofree char *at = g_strdup_printf("%p", (void *)end->memory);

		json_add_string(facts, "memory", at);
	}
	state_of(facts, "before", end_calls(end), &end->settled);
	borrows(end, "borrow_before");
	member(facts, "done_before");
	json_builder_begin_array(facts);
	for (uint32_t i = 0; i < GATE_PARENTS; i++)
		json_builder_add_boolean_value(facts, end->ops[i].done > 0);
	json_builder_end_array(facts);
	close_once(end);
	ops(end);
	json_add_number(facts, "grant_revoked", end->seen[ESCROW_EV_GRANT_REVOKED]);
	json_add_number(facts, "grant_stuck", end->grant_stuck);
	json_add_number(facts, "region_released", end->seen[ESCROW_EV_REGION_RELEASED]);
	json_add_number(facts, "region_stuck", end->region_stuck);
	json_add_bool(facts, "guards", end_guards(end));
	state(facts, "closed_state", end_calls(end));
	borrows(end, "borrow_after");
	close_again(end);
	recovery(end);
	state(facts, "again_state", end_calls(end));
	if (end->faults) {
		json_add_number(facts, "device_opens",
				(uint64_t)end_mock_calls(end, ESCROW_STEP_OPEN_DEVICE));
		json_add_number(facts, "device_closes",
				(uint64_t)end_mock_calls(end, ESCROW_STEP_CLOSE_DEVICE));
	}
	let_go(end);
	observer_state(&released);
	state(facts, "released_state", released.calls);
	facts_objects(facts, "objects");
	facts_calls(facts);
}
