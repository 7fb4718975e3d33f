/* SPDX-License-Identifier: BSD-2-Clause */
/* Which native objects had to be destroyed, which had to stay, and whether the one that failed is what it was. */
#include "config.h"

#include <string.h>

#include "tests/gates/judge.h"

#define RESET_STATE 0 /* IBV_QPS_RESET */

static JsonArray *objects;
static guint64 memory; /* of the faulted end */

static JsonObject *object(guint i)
{
	return json_array_get_object_element(objects, i);
}

static bool is(JsonObject *o, const char *kind)
{
	return strcmp(word(o, "kind"), kind) == 0;
}

static const char *failing_kind(void)
{
	switch (gate->failure) {
	case OBSERVER_DESTROY_QP:
		return "qp";
	case OBSERVER_DESTROY_CQ:
		return "cq";
	case OBSERVER_DESTROY_CHANNEL:
		return "channel";
	case OBSERVER_DEREG_MR:
		return "mr";
	case OBSERVER_DEALLOC_MW:
		return "mw";
	default:
		return "pd";
	}
}

/* The one whose destroy verb was made to fail. */
static bool is_failed(JsonObject *o)
{
	return is(o, failing_kind()) && number(o, "ends") > 0 &&
	       number(o, "rc") == gate_errno(gate);
}

/* Did the backend get a proof that this is gone?  A zero of a destroyed QP that owed something is none if the
 * reset is none. */
static bool released(JsonObject *o)
{
	if (number(o, "ends") == 0 || number(o, "rc") != 0)
		return false;
	/* The victim; on a machine that is too busy also one whose sentinel did not come in time. */
	return !(number(o, "owed") > 0 && gate->weak);
}

static bool all_released(const char *kind, const char *member, const char *of)
{
	for (guint i = 0; i < json_array_get_length(objects); i++)
		if (is(object(i), kind) && strcmp(word(object(i), member), of) == 0 &&
		    !released(object(i)))
			return false;
	return true;
}

static bool on_debt_rail(JsonObject *o)
{
	int debt = gate_debt_rail(gate);

	return debt >= 0 && strcmp(word(o, "device"), gate_device((uint32_t)debt)) == 0;
}

/* The host's memory, or a part of it that is granted by itself; else it is the backend's control memory. */
static bool is_lent(JsonObject *mr)
{
	guint64 at = g_ascii_strtoull(word(mr, "addr"), NULL, 16);

	return at >= memory && at < memory + GATE_MEMORY;
}

/* The first connection, of the first lane of its device, has the receives and the control memory they fill. */
static bool first_connection_released(JsonObject *control)
{
	const char *lane = NULL;

	for (guint i = 0; i < json_array_get_length(objects) && !lane; i++)
		if (is(object(i), "cq") &&
		    strcmp(word(object(i), "device"), word(control, "device")) == 0)
			lane = word(object(i), "at");
	return !lane || all_released("qp", "parent", lane);
}

static bool mr_may_end(JsonObject *mr)
{
	if (!is_lent(mr))
		return first_connection_released(mr);
	return !on_debt_rail(mr) || !(gate_loans_stay(gate) || gate_grant_stays(gate));
}

/* Is its destroy verb to be called at all?  Not before all that it holds is proved to be gone. */
static bool may_end(JsonObject *o)
{
	if (is(o, "qp")) /* a bound window goes first */
		return !(yes(o, "victim") && gate_grant_stays(gate));
	if (is(o, "cq"))
		return all_released("qp", "parent", word(o, "at"));
	if (is(o, "channel"))
		return all_released("cq", "parent", word(o, "at"));
	if (is(o, "mr"))
		return mr_may_end(o);
	if (is(o, "pd"))
		return all_released("qp", "device", word(o, "device")) &&
		       all_released("cq", "device", word(o, "device")) &&
		       all_released("channel", "device", word(o, "device")) &&
		       all_released("mr", "parent", word(o, "at")) &&
		       all_released("mw", "parent", word(o, "at")) && !gate_windows_weak(gate);
	if (is(o, "device"))
		return all_released("pd", "parent", word(o, "at"));
	return true;
}

static void judge_object(JsonObject *o)
{
	const char *kind = word(o, "kind"), *at = word(o, "at");
	bool may;

	if ((is(o, "pd") || is(o, "device")) && !yes(o, "used"))
		return;
	may = may_end(o);
	if (number(o, "ends") > 1)
		problem("%s %s: its destroy was called %" G_GINT64_FORMAT " times", kind, at,
			number(o, "ends"));
	if (number(o, "ends") > 0 && !may)
		problem("%s %s on %s: its destroy was called though what it holds is not proved to "
			"be gone",
			kind, at, word(o, "device"));
	if (number(o, "ends") == 0 && may)
		problem("%s %s on %s was never destroyed", kind, at, word(o, "device"));
	if (number(o, "rc") != 0 && !is_failed(o))
		problem("%s %s: its destroy answered %s", kind, at,
			g_strerror((int)number(o, "rc")));
	if (number(o, "touched") > 0)
		problem("%s %s was used %" G_GINT64_FORMAT " times after its destroy", kind, at,
			number(o, "touched"));
	if (!(number(o, "ends") > 0 && number(o, "rc") == 0) &&
	    number(o, "number") != number(o, "number_now"))
		problem("%s %s: its handle was %" G_GINT64_FORMAT ", is %" G_GINT64_FORMAT, kind,
			at, number(o, "number"), number(o, "number_now"));
	if (is(o, "qp") && (number(o, "errs") != 1 || number(o, "resets") > 1 ||
			    (yes(o, "victim") && number(o, "resets") != 1)))
		problem("qp %s: ERR %" G_GINT64_FORMAT " times, RESET %" G_GINT64_FORMAT " times",
			at, number(o, "errs"), number(o, "resets"));
}

/* The failed one: alone, where it was meant, the same afterwards, and really still there. */
static void judge_failed(JsonObject *faulted)
{
	JsonObject *proof = json_object_has_member(faulted, "proof")
				    ? json_object_get_object_member(faulted, "proof")
				    : NULL;
	JsonObject *one = NULL;
	guint n = 0;

	for (guint i = 0; i < json_array_get_length(objects); i++)
		if (is_failed(object(i))) {
			one = object(i);
			n++;
		}
	if (n != 1 || !proof) {
		problem("%u calls of %s failed as planned", n, gate_failure_name(gate->failure));
		return;
	}
	want_word(one, "device", gate_device(gate->rail));
	if (gate->failure == OBSERVER_DESTROY_QP)
		want_yes(one, "victim");
	want_number(proof, "number", number(one, "number"));
	if (is(one, "qp")) {
		want_number(proof, "key", number(one, "key"));
		want_number(proof, "state", RESET_STATE);
	}
	want_number(proof, "use", 0);
	want_number(proof, "unblock", 0);
	want_number(proof, "end", 0);
}

void judge_objects(JsonObject *faulted)
{
	objects = json_object_get_array_member(faulted, "objects");
	memory = g_ascii_strtoull(word(faulted, "memory"), NULL, 16);
	for (guint i = 0; i < json_array_get_length(objects); i++)
		judge_object(object(i));
	if (!gate_on_mock(gate))
		judge_failed(faulted);
}

guint judge_stuck_qps(void)
{
	guint n = 0;

	for (guint i = 0; i < json_array_get_length(objects); i++)
		n += is(object(i), "qp") && !released(object(i));
	return n;
}

void judge_failed_later(JsonArray *objects_after)
{
	objects = objects_after;
	for (guint i = 0; i < json_array_get_length(objects); i++)
		if (is_failed(object(i)) &&
		    (number(object(i), "ends") != 1 || number(object(i), "touched") != 0))
			problem("what failed was touched by the engine that came after");
}
