/* SPDX-License-Identifier: BSD-2-Clause */
/* What is told of a run: for people, as TAP, as JUnit's XML and as JSON. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <gnu/libc-version.h>
#include <json-glib/json-glib.h>

#include <config.h>
#include "tools/conform.h"
#include "tools/tool.h"

static const char *const verdict_names[CONFORM_VERDICTS] = {
	"PASS", "FAIL", "CRASH", "TIMEOUT", "SKIP", "WARN", "WAIVED", "BROKEN",
};

const char *conform_verdict_name(enum conform_verdict v)
{
	return verdict_names[v];
}

static bool is_good(enum conform_verdict v)
{
	return v == CONFORM_PASS || v == CONFORM_SKIP || v == CONFORM_WARN || v == CONFORM_WAIVED;
}

struct conform_sum conform_add_up(const struct conform *c)
{
	struct conform_sum s = {0};
	guint i;

	for (i = 0; i < c->cases->len; i++) {
		const struct conform_case *k = g_ptr_array_index(c->cases, i);

		if (!k->selected)
			continue;
		s.count[k->result.verdict]++;
		s.run++;
	}
	return s;
}

const char *conform_fact(const struct conform *c, const char *key)
{
	guint i;

	for (i = 0; i + 1 < c->facts->len; i += 2)
		if (!strcmp(g_ptr_array_index(c->facts, i), key))
			return g_ptr_array_index(c->facts, i + 1);
	return "unknown";
}

static char *file_sum(const char *path)
{
	g_autofree char *bytes = NULL;
	gsize n;

	if (!g_file_get_contents(path, &bytes, &n, NULL))
		return g_strdup("unreadable");
	return g_compute_checksum_for_data(G_CHECKSUM_SHA256, (const guchar *)bytes, n);
}

/* The header (C9) as key, value, key, value... */
static GPtrArray *header(const struct conform *c)
{
	GPtrArray *h = g_ptr_array_new_with_free_func(g_free);
	struct utsname u;
	guint i;

	uname(&u);
	g_ptr_array_add(h, g_strdup("suite"));
	g_ptr_array_add(h, g_strdup(PACKAGE_STRING));
	g_ptr_array_add(h, g_strdup("suite sha256"));
	g_ptr_array_add(h, file_sum(c->child));
	g_ptr_array_add(h, g_strdup("file"));
	g_ptr_array_add(h, g_strdup(c->path));
	g_ptr_array_add(h, g_strdup("sha256"));
	g_ptr_array_add(h, file_sum(c->path));
	for (i = 0; i < c->facts->len; i++)
		g_ptr_array_add(h, g_strdup(g_ptr_array_index(c->facts, i)));
	g_ptr_array_add(h, g_strdup("kernel"));
	g_ptr_array_add(h, g_strdup_printf("%s %s %s", u.sysname, u.release, u.machine));
	g_ptr_array_add(h, g_strdup("glibc"));
	g_ptr_array_add(h, g_strdup(gnu_get_libc_version()));
	g_ptr_array_add(h, g_strdup("command"));
	g_ptr_array_add(h, g_strdup(c->command));
	g_ptr_array_add(h, g_strdup("seed"));
	g_ptr_array_add(h, g_strdup_printf("%" G_GUINT64_FORMAT, c->seed));
	return h;
}

/* The line that the whole run comes to. */
static char *statement(const struct conform *c, const char *profiles)
{
	struct conform_sum s = conform_add_up(c);
	unsigned int bad = s.count[CONFORM_FAIL] + s.count[CONFORM_CRASH] +
			   s.count[CONFORM_TIMEOUT] + s.count[CONFORM_BROKEN];
	const char *part = c->part ? "the chosen cases of " : "";

	if (bad)
		return g_strdup_printf("%s does not conform to %s%s, revision %s: %u failed, %u "
				       "crashed, %u timed out, %u broken, of %u case%s",
				       conform_fact(c, "backend"), part, profiles,
				       conform_fact(c, "revision"), s.count[CONFORM_FAIL],
				       s.count[CONFORM_CRASH], s.count[CONFORM_TIMEOUT],
				       s.count[CONFORM_BROKEN], s.run, tool_s(s.run));
	return g_strdup_printf("%s conforms to %s%s, revision %s, with caps {%s}; %u passed, %u "
			       "skipped, %u warned, %u waived",
			       conform_fact(c, "backend"), part, profiles,
			       conform_fact(c, "revision"), conform_fact(c, "caps"),
			       s.count[CONFORM_PASS], s.count[CONFORM_SKIP], s.count[CONFORM_WARN],
			       s.count[CONFORM_WAIVED]);
}

static void print_lines(FILE *out, const char *prefix, const char *text)
{
	g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
	char **l;

	for (l = lines; *l; l++)
		if (**l)
			fprintf(out, "%s%s\n", prefix, *l);
}

static void print_case(FILE *out, const struct conform_case *k)
{
	fprintf(out, "%-8s %-14s %-5s %7.1f ms  %s%s%s\n", verdict_names[k->result.verdict], k->id,
		k->result.clause ? k->result.clause : "-", k->result.ms, k->summary,
		k->result.text && *k->result.text ? ": " : "",
		k->result.text ? k->result.text : "");
	if (k->result.detail && !is_good(k->result.verdict))
		print_lines(out, "         | ", k->result.detail);
}

void conform_print(const struct conform *c, const char *profiles, FILE *out)
{
	g_autoptr(GPtrArray) h = header(c);
	g_autofree char *last = statement(c, profiles);
	guint i;

	for (i = 0; i + 1 < h->len; i += 2)
		fprintf(out, "%-14s %s\n", (char *)g_ptr_array_index(h, i),
			(char *)g_ptr_array_index(h, i + 1));
	for (i = 0; i < c->cases->len; i++) {
		const struct conform_case *k = g_ptr_array_index(c->cases, i);

		if (k->selected && !k->hidden)
			print_case(out, k);
	}
	fprintf(out, "%s\n", last);
}

void conform_print_tap(const struct conform *c, const char *profiles, FILE *out)
{
	g_autoptr(GPtrArray) h = header(c);
	g_autofree char *last = statement(c, profiles);
	unsigned int n = 0;
	guint i;

	fprintf(out, "1..%u\n", conform_add_up(c).run);
	for (i = 0; i + 1 < h->len; i += 2)
		fprintf(out, "# %s: %s\n", (char *)g_ptr_array_index(h, i),
			(char *)g_ptr_array_index(h, i + 1));
	for (i = 0; i < c->cases->len; i++) {
		const struct conform_case *k = g_ptr_array_index(c->cases, i);
		const struct conform_result *r = &k->result;

		if (!k->selected)
			continue;
		fprintf(out, "%sok %u - %s %s", is_good(r->verdict) ? "" : "not ", ++n, k->id,
			k->summary);
		if (r->verdict == CONFORM_SKIP)
			fprintf(out, " # SKIP %s", r->text);
		fprintf(out, "\n");
		if (r->verdict == CONFORM_PASS || r->verdict == CONFORM_SKIP)
			continue;
		fprintf(out, "# %s %s: %s\n", verdict_names[r->verdict], r->clause, r->text);
		if (r->detail)
			print_lines(out, "#   ", r->detail);
	}
	fprintf(out, "# %s\n", last);
}

static void junit_case(GString *s, const struct conform *c, const struct conform_case *k)
{
	g_autofree char *name = g_markup_escape_text(k->summary, -1);
	g_autofree char *text = g_markup_escape_text(k->result.text ? k->result.text : "", -1);
	const char *verdict = verdict_names[k->result.verdict];

	g_string_append_printf(s, "  <testcase classname=\"%s.%s\" name=\"%s %s\" time=\"%.4f\">",
			       conform_fact(c, "backend"), k->profile, k->id, name,
			       k->result.ms / 1000);
	if (k->result.verdict == CONFORM_SKIP || k->result.verdict == CONFORM_WAIVED)
		g_string_append_printf(s, "<skipped message=\"%s\"/>", text);
	else if (k->result.verdict == CONFORM_BROKEN)
		g_string_append_printf(s, "<error type=\"%s\" message=\"%s\"/>", verdict, text);
	else if (!is_good(k->result.verdict))
		g_string_append_printf(s, "<failure type=\"%s %s\" message=\"%s\"/>", verdict,
				       k->result.clause, text);
	g_string_append(s, "</testcase>\n");
}

/* Not by opening it: a pipe's reader would see an end, and where no case can begin no file is made. */
int conform_unwritable(const char *file)
{
	g_autofree char *folder = g_path_get_dirname(file);
	struct stat st;

	if (!stat(file, &st))
		return S_ISDIR(st.st_mode) ? EISDIR : access(file, W_OK) ? errno : 0;
	if (!lstat(file, &st)) /* a link to what is not there yet */
		return 0;
	return access(folder, W_OK | X_OK) ? errno : 0;
}

/* Into the file, not over its name: it may be a device, a pipe or a link.  Paths may be no UTF-8. */
static bool write_out(const char *file, const char *text, GError **error)
{
	g_autofree char *valid = g_utf8_make_valid(text, -1);
	FILE *f = fopen(file, "we");
	bool ok = f && fputs(valid, f) >= 0;

	if (f && fclose(f) != 0)
		ok = false;
	if (!ok)
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(errno), "%s: %s", file,
			    g_strerror(errno));
	return ok;
}

bool conform_write_junit(const struct conform *c, const char *file, GError **error)
{
	g_autoptr(GString) s = g_string_new("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
	struct conform_sum sum = conform_add_up(c);
	guint i;

	g_string_append_printf(
		s,
		"<testsuite name=\"escrow conform\" tests=\"%u\" failures=\"%u\" errors=\"%u\" "
		"skipped=\"%u\">\n",
		sum.run,
		sum.count[CONFORM_FAIL] + sum.count[CONFORM_CRASH] + sum.count[CONFORM_TIMEOUT],
		sum.count[CONFORM_BROKEN], sum.count[CONFORM_SKIP] + sum.count[CONFORM_WAIVED]);
	for (i = 0; i < c->cases->len; i++) {
		const struct conform_case *k = g_ptr_array_index(c->cases, i);

		if (k->selected)
			junit_case(s, c, k);
	}
	g_string_append(s, "</testsuite>\n");
	return write_out(file, s->str, error);
}

static void json_member(JsonBuilder *b, const char *name, const char *value)
{
	json_builder_set_member_name(b, name);
	json_builder_add_string_value(b, value ? value : "");
}

static void json_case(JsonBuilder *b, const struct conform_case *k)
{
	json_builder_begin_object(b);
	json_member(b, "id", k->id);
	json_member(b, "profile", k->profile);
	json_member(b, "clauses", k->clauses);
	json_member(b, "verdict", verdict_names[k->result.verdict]);
	json_member(b, "clause", k->result.clause);
	json_member(b, "summary", k->summary);
	json_member(b, "text", k->result.text);
	json_builder_set_member_name(b, "ms");
	json_builder_add_double_value(b, k->result.ms);
	json_builder_end_object(b);
}

bool conform_write_json(const struct conform *c, const char *profiles, const char *file,
			GError **error)
{
	g_autoptr(JsonBuilder) b = json_builder_new();
	g_autoptr(JsonGenerator) g = json_generator_new();
	g_autoptr(GPtrArray) h = header(c);
	g_autofree char *last = statement(c, profiles);
	g_autoptr(JsonNode) root = NULL;
	g_autofree char *text = NULL;
	guint i;

	json_builder_begin_object(b);
	for (i = 0; i + 1 < h->len; i += 2)
		json_member(b, g_ptr_array_index(h, i), g_ptr_array_index(h, i + 1));
	json_member(b, "statement", last);
	json_builder_set_member_name(b, "cases");
	json_builder_begin_array(b);
	for (i = 0; i < c->cases->len; i++) {
		const struct conform_case *k = g_ptr_array_index(c->cases, i);

		if (k->selected)
			json_case(b, k);
	}
	json_builder_end_array(b);
	json_builder_end_object(b);
	root = json_builder_get_root(b);
	json_generator_set_root(g, root);
	json_generator_set_pretty(g, TRUE);
	text = json_generator_to_data(g, NULL);
	return write_out(file, text, error);
}
