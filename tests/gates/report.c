/* SPDX-License-Identifier: BSD-2-Clause */
/* What each run showed, for people and as JSON: what failed, its identity before and after, what stayed, what went. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tests/gates/gate.h"
#include "tools/json.h"

static JsonBuilder *report;

static bool stayed(JsonObject *o)
{
	return json_object_get_int_member(o, "ends") == 0 ||
	       json_object_get_int_member(o, "rc") != 0;
}

static bool is_of_engine(JsonObject *o)
{
	const char *kind = json_object_get_string_member(o, "kind");

	return (strcmp(kind, "pd") && strcmp(kind, "device")) ||
	       json_object_get_boolean_member(o, "used");
}

static char *name_of(JsonObject *o)
{
	return g_strdup_printf("%s #%" G_GINT64_FORMAT " on %s",
			       json_object_get_string_member(o, "kind"),
			       json_object_get_int_member(o, "number"),
			       json_object_get_string_member(o, "device"));
}

static void list(JsonArray *objects, const char *member, bool want)
{
	json_builder_set_member_name(report, member);
	json_builder_begin_array(report);
	for (guint i = 0; i < json_array_get_length(objects); i++) {
		JsonObject *o = json_array_get_object_element(objects, i);
		g_autofree char *name = name_of(o);

		if (is_of_engine(o) && stayed(o) == want)
			json_builder_add_string_value(report, name);
	}
	json_builder_end_array(report);
}

static void copy(JsonObject *from, const char *member)
{
	if (!json_object_has_member(from, member))
		return;
	json_builder_set_member_name(report, member);
	json_builder_add_value(report, json_node_copy(json_object_get_member(from, member)));
}

static void failed_call(JsonObject *o)
{
	g_autofree char *name = name_of(o);

	json_builder_set_member_name(report, "failed");
	json_builder_begin_object(report);
	json_add_string(report, "object", name);
	json_add_string(report, "error", g_strerror((int)json_object_get_int_member(o, "rc")));
	copy(o, "at");
	copy(o, "number");
	copy(o, "number_now");
	copy(o, "key");
	json_builder_end_object(report);
}

static void details(JsonObject *faulted)
{
	JsonArray *objects = json_object_get_array_member(faulted, "objects");

	for (guint i = 0; i < json_array_get_length(objects); i++) {
		JsonObject *o = json_array_get_object_element(objects, i);

		if (json_object_get_int_member(o, "rc") != 0)
			failed_call(o);
	}
	copy(faulted, "proof");
	list(objects, "retained", true);
	list(objects, "released", false);
	copy(faulted, "withheld_bytes");
	copy(faulted, "residue");
	copy(faulted, "charges");
}

void report_case(const char *name, const struct gate_facts *facts, guint lies,
		 const GPtrArray *problems)
{
	if (!report) {
		report = json_builder_new();
		json_builder_begin_array(report);
	}
	json_builder_begin_object(report);
	json_add_string(report, "case", name);
	json_add_bool(report, "passed", problems->len == 0);
	json_add_number(report, "doctored_runs_rejected", lies);
	json_builder_set_member_name(report, "problems");
	json_builder_begin_array(report);
	for (guint i = 0; i < problems->len; i++)
		json_builder_add_string_value(report, g_ptr_array_index(problems, i));
	json_builder_end_array(report);
	if (facts->faulted && json_object_has_member(facts->faulted, "objects"))
		details(facts->faulted);
	json_builder_end_object(report);
}

static void write_json(const char *path, JsonNode *root)
{
	g_autoptr(JsonGenerator) out = json_generator_new();
	g_autoptr(GError) error = NULL;

	json_generator_set_root(out, root);
	json_generator_set_pretty(out, TRUE);
	if (!json_generator_to_file(out, path, &error))
		fprintf(stderr, "gate: %s\n", error->message);
}

void report_write(const char *json, const char *text)
{
	g_autoptr(JsonNode) root = NULL;

	if (!report)
		return;
	json_builder_end_array(report);
	root = json_builder_get_root(report);
	if (json)
		write_json(json, root);
	report_text(text, root);
}
