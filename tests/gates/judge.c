/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verdict. What is right follows from the case by the rules of release alone; what happened is read from the native calls,
 * the bytes and the events that the ends wrote down.
 */
#include "config.h"

#include <string.h>

#include "tests/gates/judge.h"

const struct gate_case *gate;

static GPtrArray *found; /* of the case being judged */

void problem(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	g_ptr_array_add(found, g_strdup_vprintf(format, args));
	va_end(args);
}

gint64 number(JsonObject *o, const char *name)
{
	return o && json_object_has_member(o, name) && !json_object_get_null_member(o, name)
		       ? json_object_get_int_member(o, name)
		       : -1;
}

const char *word(JsonObject *o, const char *name)
{
	return o && json_object_has_member(o, name) ? json_object_get_string_member(o, name) : "?";
}

bool yes(JsonObject *o, const char *name)
{
	return o && json_object_has_member(o, name) && json_object_get_boolean_member(o, name);
}

void want_number(JsonObject *o, const char *name, gint64 want)
{
	if (number(o, name) != want)
		problem("%s is %" G_GINT64_FORMAT ", not %" G_GINT64_FORMAT, name, number(o, name),
			want);
}

void want_word(JsonObject *o, const char *name, const char *want)
{
	if (strcmp(word(o, name), want) != 0)
		problem("%s is %s, not %s", name, word(o, name), want);
}

void want_yes(JsonObject *o, const char *name)
{
	if (!yes(o, name))
		problem("%s is not so", name);
}

/* ---- Debt, ops, memory --------------------------------------------------------------------------------------- */
static void judge_debt(JsonObject *faulted)
{
	JsonObject *before = json_object_get_object_member(faulted, "before");
	JsonObject *after = json_object_get_object_member(faulted, "closed_state");
	bool debt = gate_debt_rail(gate) >= 0;

	want_number(before, "outstanding", 0);
	if ((number(before, "owed") > 0) != debt)
		problem("%" G_GINT64_FORMAT " work requests are owed before the close",
			number(before, "owed"));
	if ((number(after, "withheld") > 0) != debt)
		problem("%" G_GINT64_FORMAT " completions were kept back",
			number(after, "withheld"));
}

static bool flag(JsonObject *o, const char *name, guint i)
{
	return json_array_get_boolean_element(json_object_get_array_member(o, name), i);
}

static const char *borrowed(JsonObject *o, const char *name, guint i)
{
	return json_array_get_string_element(json_object_get_array_member(o, name), i);
}

static void judge_op(JsonObject *faulted, JsonObject *op, guint i)
{
	bool done = flag(faulted, "done_before", i), held = !done && gate_loans_stay(gate);
	const char *before = borrowed(faulted, "borrow_before", i);

	want_number(op, "done", 1);
	want_number(op, "returned", 0);
	want_word(op, "status", done ? "OK" : held ? "E_UNQUIESCED" : "E_CANCELED");
	want_number(op, "effect", done ? ESCROW_EFFECT_EXECUTED : ESCROW_EFFECT_UNKNOWN);
	if (yes(op, "held") != held)
		problem("parent %u is %s", i, held ? "returned without a proof" : "held");
	if (strcmp(before, done ? "OK" : "E_BUSY") != 0)
		problem("a borrow of parent %u before the close is %s", i, before);
	if (gate->write && flag(faulted, "store_faults", i) == done)
		problem("a store into parent %u %s", i, done ? "faults" : "goes through");
}

static void judge_ops(JsonObject *faulted)
{
	JsonArray *ops = json_object_get_array_member(faulted, "ops");
	guint undone = 0;

	if (gate->source)
		return;
	if (json_array_get_length(ops) != GATE_PARENTS)
		problem("%u parents", json_array_get_length(ops));
	for (guint i = 0; i < json_array_get_length(ops); i++) {
		undone += !flag(faulted, "done_before", i);
		judge_op(faulted, json_array_get_object_element(ops, i), i);
	}
	if ((undone > 0) != (gate_debt_rail(gate) >= 0))
		problem("%u parents were not done before the close", undone);
}

static void judge_memory(JsonObject *faulted)
{
	bool stays = gate_memory_stays(gate);

	want_number(faulted, "region_stuck", stays);
	want_number(faulted, "region_released", !stays);
	want_number(faulted, "freed", !stays);
	want_number(faulted, "withheld_bytes", stays ? (gint64)GATE_MEMORY : 0);
	want_number(faulted, "grant_stuck", gate_grant_stays(gate));
	want_number(faulted, "grant_revoked", gate->source && !gate_grant_stays(gate));
	want_yes(faulted, "guards");
	/* A region that stays is withheld as a whole. */
	for (guint i = 0; i < GATE_PARENTS; i++) {
		const char *after = borrowed(faulted, "borrow_after", i);

		if ((strcmp(after, "E_BUSY") == 0) != stays)
			problem("a borrow of parent %u after the close is %s", i, after);
	}
}

/* ---- The engine ------------------------------------------------------------------------------------------------ */
static void want_state(JsonObject *o, const char *name, JsonNode *value, gpointer ignored)
{
	(void)o;
	(void)ignored;
	if (strcmp(json_node_get_string(value), "E_STATE") != 0)
		problem("%s in quarantine is %s", name, json_node_get_string(value));
}

static void judge_close(JsonObject *faulted)
{
	gint64 calls = number(json_object_get_object_member(faulted, "closed_state"), "calls");

	want_word(faulted, "close", "IN_PROGRESS");
	want_word(faulted, "end", "QUARANTINED");
	want_word(faulted, "close_again", "IN_PROGRESS");
	want_number(faulted, "repeats", 1);
	json_object_foreach_member(json_object_get_object_member(faulted, "recovery"), want_state,
				   NULL);
	if (number(json_object_get_object_member(faulted, "again_state"), "calls") != calls)
		problem("another close made native calls");
	want_word(faulted, "release", "OK");
	/* The mock's count goes with its engine. */
	if (!gate_on_mock(gate) &&
	    number(json_object_get_object_member(faulted, "released_state"), "calls") != calls)
		problem("release made native calls");
}

/* The mock counts its own calls. */
static void judge_control(JsonObject *faulted)
{
	if (!gate_on_mock(gate))
		return;
	want_number(faulted, "device_closes", number(faulted, "device_opens"));
}

static const char *stuck_owner(void)
{
	switch (gate->failure) {
	case OBSERVER_DESTROY_QP:
		return "connection";
	case OBSERVER_DESTROY_CQ:
	case OBSERVER_DESTROY_CHANNEL:
		return "lane";
	case OBSERVER_DEREG_MR:
		return "region";
	case OBSERVER_DEALLOC_MW:
		return "window";
	default:
		return "context";
	}
}

/* The ledger's word for the call. */
static const char *stuck_stage(void)
{
	switch (gate->failure) {
	case OBSERVER_DEREG_MR:
		return "deregister";
	case OBSERVER_DEALLOC_MW:
		return "dealloc_window";
	default:
		return gate_failure_name(gate->failure);
	}
}

/* The owner of what failed is listed, with the call and its answer, when its engine is gone. */
static void judge_residue(JsonObject *faulted, const char *name)
{
	JsonArray *list = json_object_get_array_member(faulted, name);
	guint n = 0;

	for (guint i = 0; i < json_array_get_length(list); i++) {
		JsonObject *r = json_array_get_object_element(list, i);

		n += strcmp(word(r, "kind"), stuck_owner()) == 0 &&
		     strcmp(word(r, "stage"), stuck_stage()) == 0 &&
		     number(r, "errno") == gate_errno(gate);
	}
	if (n != 1)
		problem("%s: %u records of a %s with %s and its errno", name, n, stuck_owner(),
			stuck_stage());
}

static gint64 stuck(JsonObject *faulted, const char *kind)
{
	JsonObject *charges = json_object_get_object_member(faulted, "charges");

	return json_object_has_member(charges, kind)
		       ? number(json_object_get_object_member(charges, kind), "stuck")
		       : -1;
}

static void want_stuck(JsonObject *faulted, const char *kind, bool want)
{
	if ((stuck(faulted, kind) > 0) != want)
		problem("%" G_GINT64_FORMAT " %s are charged to owners that are stuck",
			stuck(faulted, kind), kind);
}

/* What is retained is charged on; nothing else is. */
static void judge_charges(JsonObject *faulted)
{
	bool stays = gate_memory_stays(gate);
	guint qps = judge_stuck_qps();

	if (stuck(faulted, "connections") != qps)
		problem("%" G_GINT64_FORMAT " connections are charged, %u are there",
			stuck(faulted, "connections"), qps);
	want_stuck(faulted, "sq_slots", qps > 0);
	want_stuck(faulted, "cq_slots", qps > 0);
	want_stuck(faulted, "bytes", stays);
	want_stuck(faulted, "regions", stays);
	want_stuck(faulted, "grants", gate_grant_stays(gate));
	want_stuck(faulted, "granted_bytes", gate_grant_stays(gate));
	want_stuck(faulted, "ops", gate_loans_stay(gate));
}

static void judge_clean(JsonObject *o)
{
	want_yes(o, "right");
	want_yes(o, "closed");
	want_yes(o, "guards");
	want_number(o, "charged", 0);
	want_number(o, "freed", 1);
	want_word(o, "release", "OK");
}

static void judge_fresh(JsonObject *source, JsonObject *requester)
{
	judge_clean(source);
	judge_clean(requester);
	want_yes(source, "drained");
	want_yes(requester, "drained");
	want_word(requester, "old_invitation", "E_STALE_EPOCH");
	if (yes(requester, "old_peer_up"))
		problem("an old invitation led to a connection");
	want_number(requester, "source_qps_before", 0);
	want_word(requester, "old_grant", "E_STALE_EPOCH");
	want_number(requester, "qps_for_old_grant", 0);
}

/* Memory that somebody has is not even tried; idle memory is, once on each device, and costs the engine nothing else. */
static void judge_deregister(JsonObject *faulted)
{
	if (gate->failure != OBSERVER_DEREG_MR)
		return;
	want_word(faulted, "deregister", gate->use == GATE_IDLE ? "IN_PROGRESS" : "E_BUSY");
	want_number(faulted, "deregister_calls", gate->use == GATE_IDLE ? 2 : 0);
	if (gate->source)
		want_word(faulted, "alive", "OK");
}

/* The new engine of the process works; what the old one could not end has not moved. */
static void judge_replacement(JsonObject *faulted)
{
	judge_deregister(faulted);
	want_yes(faulted, "right_before");
	judge_clean(json_object_get_object_member(faulted, "replacement"));
	want_number(faulted, "freed_old", 0);
	judge_residue(faulted, "residue_after");
	judge_failed_later(json_object_get_array_member(faulted, "objects_after"));
}

/* An end that nothing failed at writes less. */
static bool complete(JsonObject *faulted)
{
	static const char *const members[] = {
		"objects",        "before",      "closed_state",  "again_state",
		"released_state", "ops",         "recovery",      "residue",
		"charges",        "done_before", "borrow_before", "borrow_after",
	};
	bool all = true;

	for (size_t i = 0; i < G_N_ELEMENTS(members); i++)
		if (!json_object_has_member(faulted, members[i])) {
			problem("the end that was to fail wrote no \"%s\" down", members[i]);
			all = false;
		}
	return all;
}

void judge(const struct gate_case *c, const struct gate_facts *facts, GPtrArray *problems)
{
	gate = c;
	found = problems;
	if (facts->unreaped)
		problem("%u processes were not waited for", facts->unreaped);
	want_word(facts->faulted, "role", c->source ? "source" : "requester");
	if (!complete(facts->faulted))
		return;
	judge_objects(facts->faulted);
	judge_debt(facts->faulted);
	judge_ops(facts->faulted);
	judge_memory(facts->faulted);
	judge_close(facts->faulted);
	judge_residue(facts->faulted, "residue");
	judge_charges(facts->faulted);
	judge_control(facts->faulted);
	judge_clean(facts->other);
	if (c->use)
		judge_replacement(facts->faulted);
	else
		judge_fresh(facts->fresh_source, facts->fresh_requester);
}
