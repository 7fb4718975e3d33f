/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "tools/ledger-view.h"

/* Members that may be missing: the object can come from another version of this program. */
static const char *text_of(JsonObject *o, const char *member)
{
	return json_object_get_string_member_with_default(o, member, "");
}

static int64_t number_of(JsonObject *o, const char *member)
{
	return json_object_get_int_member_with_default(o, member, 0);
}

static JsonArray *array_of(JsonObject *o, const char *member)
{
	JsonNode *node = json_object_get_member(o, member);

	return node && JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
}

static JsonObject *object_at(JsonArray *a, guint i)
{
	JsonNode *node = json_array_get_element(a, i);

	return JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
}

/* Calls each for the objects of an array member. */
static void for_each(JsonObject *o, const char *member,
		     void (*each)(FILE *out, JsonObject *element, void *ctx), FILE *out, void *ctx)
{
	JsonArray *a = array_of(o, member);

	for (guint i = 0; a && i < json_array_get_length(a); i++)
		if (object_at(a, i))
			each(out, object_at(a, i), ctx);
}

static void print_amount(FILE *out, JsonObject *o, const char *member)
{
	if (json_object_has_member(o, member) && !json_object_get_null_member(o, member))
		fprintf(out, " %14" PRId64, number_of(o, member));
	else
		fprintf(out, " %14s", "-");
}

static void print_charge(FILE *out, JsonObject *c, void *ctx)
{
	const char *peer = text_of(c, "peer");
	g_autofree char *label =
		g_strdup_printf("%s%s%s", text_of(c, "kind"), *peer ? " of " : "", peer);

	(void)ctx;
	fprintf(out, "  %-32s", label);
	print_amount(out, c, "used");
	print_amount(out, c, "stuck");
	print_amount(out, c, "limit");
	fputc('\n', out);
}

/* How deep an owner stands; parents come before their children, so their depths are known. */
static int depth_of(GHashTable *depths, JsonObject *r)
{
	gpointer parent = NULL;
	int depth = 0;

	if (g_hash_table_lookup_extended(depths, text_of(r, "parent"), NULL, &parent))
		depth = GPOINTER_TO_INT(parent) + 1;
	g_hash_table_insert(depths, g_strdup(text_of(r, "owner")), GINT_TO_POINTER(depth));
	return depth;
}

static void print_owner(FILE *out, JsonObject *r, void *ctx)
{
	int64_t error = number_of(r, "errno");

	fprintf(out, "  %*s%s %s %s", 2 * depth_of(ctx, r), "", text_of(r, "kind"),
		text_of(r, "owner"), text_of(r, "state"));
	if (number_of(r, "length"))
		fprintf(out, ", %" PRId64 " bytes at 0x%s", number_of(r, "length"),
			text_of(r, "addr"));
	if (number_of(r, "pins"))
		fprintf(out, ", pins %" PRId64, number_of(r, "pins"));
	if (error)
		fprintf(out, ", %s: %s", text_of(r, "step"), g_strerror((int)error));
	if (*text_of(r, "text"))
		fprintf(out, " (%s)", text_of(r, "text"));
	fputc('\n', out);
}

static void print_engine(FILE *out, JsonObject *e, void *ctx)
{
	g_autoptr(GHashTable) depths = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	JsonArray *charges = array_of(e, "charges");

	(void)ctx;
	if (json_object_has_member(e, "engine"))
		fprintf(out,
			"engine %s on %s, generation %" PRId64 ", %s%s: %" PRId64
			" regions, %" PRId64 " peers, %" PRId64 " grants, %" PRId64
			" remotes, %" PRId64 " ops\n",
			text_of(e, "engine"), text_of(e, "backend"), number_of(e, "generation"),
			text_of(e, "state"),
			json_object_get_boolean_member_with_default(e, "current", TRUE)
				? ""
				: " (older)",
			number_of(e, "regions"), number_of(e, "peers"), number_of(e, "grants"),
			number_of(e, "remotes"), number_of(e, "ops"));
	else
		fprintf(out, "quarantined owners of released engines of %s\n",
			text_of(e, "backend"));
	if (charges && json_array_get_length(charges))
		fprintf(out, "  %-32s %14s %14s %14s\n", "charge", "used", "stuck", "limit");
	for_each(e, "charges", print_charge, out, NULL);
	for_each(e, "owners", print_owner, out, depths);
}

static void print_withheld(FILE *out, JsonObject *w, void *ctx)
{
	(void)ctx;
	fprintf(out, "  %" PRId64 " bytes at 0x%s, of %s on %s\n", number_of(w, "length"),
		text_of(w, "addr"), text_of(w, "engine"), text_of(w, "backend"));
}

void ledger_text(FILE *out, JsonNode *ledger)
{
	JsonObject *o = JSON_NODE_HOLDS_OBJECT(ledger) ? json_node_get_object(ledger) : NULL;
	JsonArray *engines = o ? array_of(o, "engines") : NULL;

	if (o && number_of(o, "pid"))
		fprintf(out, "process %" PRId64 "\n", number_of(o, "pid"));
	if (!engines || !json_array_get_length(engines))
		fprintf(out, "no engine, and nothing in quarantine\n");
	if (!o)
		return;
	for_each(o, "engines", print_engine, out, NULL);
	if (number_of(o, "withheld_bytes"))
		fprintf(out, "withheld from the host: %" PRId64 " bytes\n",
			number_of(o, "withheld_bytes"));
	for_each(o, "withheld", print_withheld, out, NULL);
}
