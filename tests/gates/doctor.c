/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Doctored runs: what a run that passed saw is falsified in one place, and the judge must reject it. Each line here is a lie that
 * a backend, or a careless controller, could tell.
 */
#include "config.h"

#include <string.h>

#include "tests/gates/judge.h"

static JsonObject *part(JsonObject *o, const char *name)
{
	return json_object_get_object_member(o, name);
}

static void add(JsonObject *o, const char *name, gint64 by)
{
	json_object_set_int_member(o, name, number(o, name) + by);
}

/* The first object of that kind (NULL: any), whose destroy failed or did not. */
static JsonObject *object_of(const struct gate_facts *facts, const char *kind, bool failed)
{
	JsonArray *all = json_object_get_array_member(facts->faulted, "objects");

	for (guint i = 0; i < json_array_get_length(all); i++) {
		JsonObject *o = json_array_get_object_element(all, i);

		if (number(o, "ends") == 1 && (number(o, "rc") != 0) == failed &&
		    (!kind || strcmp(word(o, "kind"), kind) == 0))
			return o;
	}
	return NULL;
}

/* ---- Lies about native calls --------------------------------------------------------------------------------- */
static bool missing_receipt(struct gate_facts *facts)
{
	JsonObject *o = object_of(facts, "cq", false);

	if (o)
		json_object_set_int_member(o, "ends", 0);
	return o;
}

static bool retry(struct gate_facts *facts)
{
	JsonObject *o = object_of(facts, NULL, true);

	if (o)
		json_object_set_int_member(o, "ends", 2);
	return o;
}

static bool second_reset(struct gate_facts *facts)
{
	JsonObject *o = object_of(facts, "qp", false);

	if (o)
		json_object_set_int_member(o, "resets", 2);
	return o;
}

static bool use_after_failure(struct gate_facts *facts)
{
	JsonObject *o = object_of(facts, NULL, true);

	if (o)
		json_object_set_int_member(o, "touched", 1);
	return o;
}

static bool other_device(struct gate_facts *facts)
{
	JsonObject *o = object_of(facts, NULL, true);

	if (o)
		json_object_set_string_member(o, "device", gate_device(1 - gate->rail));
	return o;
}

static bool other_handle(struct gate_facts *facts)
{
	JsonObject *o = object_of(facts, NULL, true);

	if (o)
		add(o, "number_now", 1);
	return o;
}

static bool nothing_failed(struct gate_facts *facts)
{
	JsonObject *o = object_of(facts, NULL, true);

	if (o)
		json_object_set_int_member(o, "rc", 0);
	return o;
}

static bool it_was_gone(struct gate_facts *facts)
{
	if (!json_object_has_member(facts->faulted, "proof"))
		return false;
	json_object_set_int_member(part(facts->faulted, "proof"), "end", 22);
	return true;
}

static bool no_debt(struct gate_facts *facts)
{
	if (gate_debt_rail(gate) < 0)
		return false;
	json_object_set_int_member(part(facts->faulted, "closed_state"), "withheld", 0);
	return true;
}

static bool close_calls_again(struct gate_facts *facts)
{
	add(part(facts->faulted, "again_state"), "calls", 1);
	return true;
}

/* ---- Lies about memory and owners ------------------------------------------------------------------------------ */
static bool early_release(struct gate_facts *facts)
{
	add(facts->faulted, "freed", 1);
	return true;
}

static bool held_is_returned(struct gate_facts *facts)
{
	JsonArray *ops = json_object_get_array_member(facts->faulted, "ops");
	JsonObject *op;

	if (gate->source)
		return false;
	op = json_array_get_object_element(ops, 0);
	json_object_set_boolean_member(op, "held", !yes(op, "held"));
	return true;
}

static bool borrowed_while_lent(struct gate_facts *facts)
{
	JsonArray *all = json_object_get_array_member(facts->faulted, "borrow_before");

	for (guint i = 0; !gate->source && i < json_array_get_length(all); i++)
		if (strcmp(json_array_get_string_element(all, i), "E_BUSY") == 0) {
			json_array_remove_element(all, i);
			json_array_add_string_element(all, "OK");
			return true;
		}
	return false;
}

static bool no_record(struct gate_facts *facts)
{
	json_object_set_array_member(facts->faulted, "residue", json_array_new());
	return true;
}

static bool lost_charge(struct gate_facts *facts)
{
	JsonObject *charges = part(facts->faulted, "charges");
	static const char *const kinds[] = {"connections", "bytes", "grants", "ops"};
	bool any = false;

	for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) {
		JsonObject *c = json_object_has_member(charges, kinds[i]) ? part(charges, kinds[i])
									  : NULL;

		any = any || number(c, "stuck") > 0;
		if (c)
			json_object_set_int_member(c, "stuck", 0);
	}
	return any;
}

static bool closed_after_all(struct gate_facts *facts)
{
	json_object_set_string_member(facts->faulted, "end", "CLOSED");
	return true;
}

static bool recovered(struct gate_facts *facts)
{
	json_object_set_string_member(part(facts->faulted, "recovery"), "resume", "OK");
	return true;
}

/* ---- Lies about the others ---------------------------------------------------------------------------------------- */
static bool wrong_role(struct gate_facts *facts)
{
	json_object_set_string_member(facts->faulted, "role",
				      gate->source ? "requester" : "source");
	return true;
}

static bool unreaped(struct gate_facts *facts)
{
	facts->unreaped = 1;
	return true;
}

static bool wrong_bytes(struct gate_facts *facts)
{
	json_object_set_boolean_member(gate->use ? part(facts->faulted, "replacement")
						 : facts->fresh_requester,
				       "right", FALSE);
	return true;
}

static bool false_drain(struct gate_facts *facts)
{
	json_object_set_int_member(gate->use ? part(facts->faulted, "replacement")
					     : facts->fresh_source,
				   "charged", 1);
	return true;
}

static bool old_epoch_accepted(struct gate_facts *facts)
{
	if (gate->use)
		return false;
	json_object_set_string_member(facts->fresh_requester, "old_grant", "OK");
	return true;
}

static bool queue_pair_for_old_epoch(struct gate_facts *facts)
{
	if (gate->use)
		return false;
	json_object_set_int_member(facts->fresh_requester, "source_qps_before", 1);
	return true;
}

#define LIE(f)                                                                                     \
	{                                                                                          \
#f, f                                                                              \
	}
static const struct {
	const char *name;
	bool (*tell)(struct gate_facts *facts); /* false: the case has nothing to lie about */
} lies[] = {
	LIE(missing_receipt),
	LIE(retry),
	LIE(second_reset),
	LIE(use_after_failure),
	LIE(other_device),
	LIE(other_handle),
	LIE(nothing_failed),
	LIE(it_was_gone),
	LIE(no_debt),
	LIE(close_calls_again),
	LIE(early_release),
	LIE(held_is_returned),
	LIE(borrowed_while_lent),
	LIE(no_record),
	LIE(lost_charge),
	LIE(closed_after_all),
	LIE(recovered),
	LIE(wrong_role),
	LIE(unreaped),
	LIE(wrong_bytes),
	LIE(false_drain),
	LIE(old_epoch_accepted),
	LIE(queue_pair_for_old_epoch),
};

guint doctor_lies(void)
{
	return G_N_ELEMENTS(lies);
}

bool doctor(const struct gate_case *c, guint lie, struct gate_facts *facts, GPtrArray *problems)
{
	g_autoptr(GPtrArray) found = g_ptr_array_new_with_free_func(g_free);

	gate = c;
	if (!lies[lie].tell(facts))
		return false;
	judge(c, facts, found);
	if (!found->len)
		g_ptr_array_add(problems,
				g_strdup_printf("a doctored run was accepted: %s", lies[lie].name));
	return true;
}
