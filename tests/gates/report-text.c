/* SPDX-License-Identifier: BSD-2-Clause */
/* The report for people, made from the one in JSON. */
#include "config.h"

#include <stdio.h>

#include "tests/gates/gate.h"

static gint64 number(JsonObject *o, const char *name)
{
	return json_object_get_int_member_with_default(o, name, -1);
}

static const char *answer(gint64 rc)
{
	return rc ? g_strerror((int)rc) : "ok";
}

static void identity(FILE *out, JsonObject *run)
{
	JsonObject *failed = json_object_get_object_member(run, "failed"), *proof;

	fprintf(out, "  failed    %s: %s\n", json_object_get_string_member(failed, "object"),
		json_object_get_string_member(failed, "error"));
	fprintf(out,
		"  before    at %s, handle %" G_GINT64_FORMAT ", number or key %" G_GINT64_FORMAT
		"\n",
		json_object_get_string_member(failed, "at"), number(failed, "number"),
		number(failed, "key"));
	if (!json_object_has_member(run, "proof"))
		return;
	proof = json_object_get_object_member(run, "proof");
	fprintf(out,
		"  after     handle %" G_GINT64_FORMAT ", number or key %" G_GINT64_FORMAT
		"; used once more: %s; unblocked and destroyed by the test: %s\n",
		number(proof, "number"),
		number(proof, "key") ? number(proof, "key") : number(failed, "key"),
		answer(number(proof, "use")), answer(number(proof, "end")));
}

static void words(FILE *out, JsonObject *run, const char *member)
{
	JsonArray *all = json_object_get_array_member(run, member);

	fprintf(out, "  %-9s", member);
	for (guint i = 0; i < json_array_get_length(all); i++)
		fprintf(out, "%s %s", i ? "," : "", json_array_get_string_element(all, i));
	fprintf(out, "%s\n", json_array_get_length(all) ? "" : " nothing");
}

static char *owner(JsonObject *o)
{
	return g_strdup_printf(
		"%s, last call %s: %s (%s)", json_object_get_string_member(o, "kind"),
		json_object_get_string_member(o, "stage"), answer(number(o, "errno")),
		json_object_get_string_member(o, "text"));
}

/* Loans come by the dozen, one a work request: equal lines are one. */
static void owners(FILE *out, JsonObject *run)
{
	JsonArray *all = json_object_get_array_member(run, "residue");
	guint n = json_array_get_length(all), same = 1;

	for (guint i = 0; i < n; i++, same++) {
		g_autofree char *line = owner(json_array_get_object_element(all, i));
		g_autofree char *next = i + 1 < n ? owner(json_array_get_object_element(all, i + 1))
						  : NULL;

		if (g_strcmp0(line, next) == 0)
			continue;
		if (same > 1)
			fprintf(out, "  owner     %u of %s\n", same, line);
		else
			fprintf(out, "  owner     %s\n", line);
		same = 0;
	}
}

static void charges(FILE *out, JsonObject *run)
{
	JsonObject *all = json_object_get_object_member(run, "charges");
	g_autoptr(GList) names = json_object_get_members(all);

	fprintf(out, "  charged  ");
	for (GList *n = names; n; n = n->next) {
		gint64 stuck = number(json_object_get_object_member(all, n->data), "stuck");

		if (stuck > 0)
			fprintf(out, " %s %" G_GINT64_FORMAT, (const char *)n->data, stuck);
	}
	fprintf(out, "; %" G_GINT64_FORMAT " bytes of the host are withheld\n",
		number(run, "withheld_bytes"));
}

static void one_run(FILE *out, JsonObject *run)
{
	JsonArray *problems = json_object_get_array_member(run, "problems");

	fprintf(out, "%s: %s\n", json_object_get_string_member(run, "case"),
		json_array_get_length(problems) ? "FAILED" : "passed");
	for (guint i = 0; i < json_array_get_length(problems); i++)
		fprintf(out, "  problem   %s\n", json_array_get_string_element(problems, i));
	if (json_object_has_member(run, "failed"))
		identity(out, run);
	if (json_object_has_member(run, "residue")) {
		words(out, run, "retained");
		words(out, run, "released");
		owners(out, run);
		charges(out, run);
	}
	fprintf(out, "  doctored  %" G_GINT64_FORMAT " falsified runs rejected\n\n",
		number(run, "doctored_runs_rejected"));
}

void report_text(const char *path, JsonNode *report)
{
	JsonArray *runs = json_node_get_array(report);
	FILE *out = fopen(path, "we");

	if (!out) {
		fprintf(stderr, "gate: %s cannot be written\n", path);
		return;
	}
	for (guint i = 0; i < json_array_get_length(runs); i++)
		one_run(out, json_array_get_object_element(runs, i));
	fclose(out);
}
