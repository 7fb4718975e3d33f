/* SPDX-License-Identifier: BSD-2-Clause */
/* The static profile: what the file itself says, read by libescrow's checks; nothing of it runs. */
#include <string.h>

#include "plugin/escrow.h"
#include "tools/conform.h"

#define FINDINGS 64

/* Did the check of the file find an error against `clause`?  Its text goes into `text`. */
static bool keeps(const char *path, const char *clause, GString *text)
{
	struct escrow_finding *found = g_new0(struct escrow_finding, FINDINGS);
	int32_t n = escrow_check_file(path, ESCROW_CHECK_STRICT, found, FINDINGS);
	bool good = true;
	int32_t i;

	for (i = 0; i < MIN(n, FINDINGS); i++) {
		if (found[i].severity != ESCROW_FINDING_ERROR || strcmp(found[i].clause, clause))
			continue;
		g_string_append_printf(text, "%s%s", good ? "" : "; ", found[i].text);
		good = false;
	}
	g_free(found);
	return good;
}

static const struct {
	const char *id;
	const char *clause;
	const char *summary;
} checks[] = {
	{"ESC-STATIC-001", "H2", "it is a whole ELF object for this machine"},
	{"ESC-STATIC-002", "A1", "it defines the entry"},
	{"ESC-STATIC-003", "S1", "it exports the entry and nothing else"},
	{"ESC-STATIC-004", "S2", "it is linked with relro, now, noexecstack, nodelete"},
	{"ESC-STATIC-005", "S3", "it needs libraries by name, and has no search path of its own"},
	{"ESC-STATIC-006", "S4", "it uses no static TLS"},
};

void conform_add_static(GPtrArray *cases)
{
	size_t i;

	for (i = 0; i < G_N_ELEMENTS(checks); i++) {
		struct conform_case *k = g_new0(struct conform_case, 1);

		k->id = g_strdup(checks[i].id);
		k->profile = g_strdup("static");
		k->clauses = g_strdup(checks[i].clause);
		k->needs = g_strdup("");
		k->summary = g_strdup(checks[i].summary);
		k->check = keeps;
		g_ptr_array_add(cases, k);
	}
}

void conform_run_static(struct conform *c)
{
	g_autoptr(GString) why = g_string_new(NULL);
	bool elf = keeps(c->path, "H2", why);
	guint i;

	for (i = 0; i < c->cases->len; i++) {
		struct conform_case *k = g_ptr_array_index(c->cases, i);
		g_autoptr(GString) text = g_string_new(NULL);
		int64_t start = g_get_monotonic_time();

		if (!k->selected || !k->check)
			continue;
		if (elf || !strcmp(k->clauses, "H2")) {
			k->result.verdict = k->check(c->path, k->clauses, text) ? CONFORM_PASS
										: CONFORM_FAIL;
		} else {
			k->result.verdict = CONFORM_SKIP;
			g_string_assign(text, "there is nothing to look at: ESC-STATIC-001");
		}
		k->result.clause = g_strdup(k->clauses);
		k->result.text = g_strdup(text->str);
		k->result.ms = (double)(g_get_monotonic_time() - start) / 1000.0;
	}
}
