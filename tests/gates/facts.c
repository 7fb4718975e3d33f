/* SPDX-License-Identifier: BSD-2-Clause */
/* The observer's lists as JSON. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "tests/gates/gate.h"
#include "tools/json.h"

static const char *const kinds[OBSERVER_KINDS] = {
	[OBSERVER_DEVICE] = "device", [OBSERVER_PD] = "pd",           [OBSERVER_MR] = "mr",
	[OBSERVER_MW] = "mw",         [OBSERVER_CHANNEL] = "channel", [OBSERVER_CQ] = "cq",
	[OBSERVER_QP] = "qp",
};

static void pointer(JsonBuilder *facts, const char *name, const void *at)
{
	g_autofree char *text = g_strdup_printf("%p", at);

	json_add_string(facts, name, text);
}

static void object(JsonBuilder *facts, const struct observer_object *o)
{
	json_builder_begin_object(facts);
	json_add_string(facts, "kind", kinds[o->kind]);
	json_add_string(facts, "device", o->device);
	pointer(facts, "at", o->at);
	pointer(facts, "parent", o->parent);
	if (o->addr)
		pointer(facts, "addr", o->addr);
	json_add_number(facts, "number", o->number);
	json_add_number(facts, "number_now", o->number_now);
	json_add_number(facts, "key", o->key);
	json_add_number(facts, "ends", o->ends);
	json_add_number(facts, "rc", (uint64_t)o->rc);
	json_add_number(facts, "touched", o->touched);
	json_add_number(facts, "errs", o->errs);
	json_add_number(facts, "resets", o->resets);
	json_add_number(facts, "owed", o->posted - o->told);
	json_add_bool(facts, "victim", o->victim);
	json_add_bool(facts, "used", o->used);
	json_builder_end_object(facts);
}

void facts_objects(JsonBuilder *facts, const char *name)
{
	size_t n = observer_objects(NULL, 0);
	g_autofree struct observer_object *all = g_new0(struct observer_object, n);

	json_builder_set_member_name(facts, name);
	json_builder_begin_array(facts);
	n = observer_objects(all, n);
	for (size_t i = 0; i < n; i++)
		object(facts, &all[i]);
	json_builder_end_array(facts);
}

/* The last ones: the teardown. */
void facts_calls(JsonBuilder *facts)
{
	static struct observer_call calls[4096];
	size_t n = observer_calls(0, calls, G_N_ELEMENTS(calls));

	json_builder_set_member_name(facts, "calls");
	json_builder_begin_array(facts);
	for (size_t i = 0; i < n; i++) {
		g_autofree char *line = g_strdup_printf(
			"%" G_GUINT64_FORMAT " %s %p #%u: %s", calls[i].seq, calls[i].name,
			calls[i].at, calls[i].number, calls[i].rc ? g_strerror(calls[i].rc) : "ok");

		json_builder_add_string_value(facts, line);
	}
	json_builder_end_array(facts);
}
