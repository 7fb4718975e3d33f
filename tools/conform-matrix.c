/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kill matrix: a mutant is a backend that breaks one clause, and the suite must notice.
 *
 * In the clause table a mutant stands in the row of the clause it breaks, as NAME (one case of that
 * row must catch it) or NAME=CASE.  Every other case must pass on it, or fail for that very clause,
 * or be listed as off the diagonal: a mutant that is caught by the wrong case is a mistake too.
 * Cases that the original does not pass say nothing about a mutant and are left out.
 */
#include <string.h>

#include "tools/conform.h"
#include "tools/tool.h"

/* Of the cases that are not expected to catch a mutant about so many are run on it, other ones for each
 * mutant; all would take an hour. */
#define MATRIX_SAMPLE 8u
#define MATRIX_TIMEOUT_MS 6000u
#define PATIENCE 10u /* so many times that for a case that nobody expects to fail */

/* The table's columns. */
enum { COLUMN_ID, COLUMN_LEVEL, COLUMN_TEXT, COLUMN_CASES, COLUMN_MUTANTS, COLUMNS };

/* What a row says of a mutant: one of these cases must catch it. */
struct aim {
	char *clause;
	char **cases;
};

struct mutant {
	char *name;
	GPtrArray *aims; /* struct aim */
};

static struct mutant *find_mutant(GPtrArray *all, const char *name)
{
	struct mutant *m;
	guint i;

	for (i = 0; i < all->len; i++) {
		m = g_ptr_array_index(all, i);
		if (!strcmp(m->name, name))
			return m;
	}
	m = g_new0(struct mutant, 1);
	m->name = g_strdup(name);
	m->aims = g_ptr_array_new();
	g_ptr_array_add(all, m);
	return m;
}

static void add_mutants(GPtrArray *all, char **row)
{
	g_auto(GStrv) names = g_strsplit(row[COLUMN_MUTANTS], " ", -1);
	char **n;

	for (n = names; *n; n++) {
		g_auto(GStrv) parts = g_strsplit(*n, "=", 2);
		struct aim *aim;

		if (!**n || !strcmp(*n, "-"))
			continue;
		aim = g_new0(struct aim, 1);
		aim->clause = g_strdup(row[COLUMN_ID]);
		aim->cases = g_strsplit(parts[1] ? parts[1] : row[COLUMN_CASES], " ", -1);
		g_ptr_array_add(find_mutant(all, parts[0])->aims, aim);
	}
}

static GPtrArray *load_mutants(const char *file, GError **error)
{
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;
	GPtrArray *all;
	char **l;

	if (!g_file_get_contents(file, &text, NULL, error))
		return NULL;
	all = g_ptr_array_new();
	lines = g_strsplit(text, "\n", -1);
	for (l = lines; *l; l++) {
		g_auto(GStrv) row = g_strsplit(*l, "\t", -1);

		if (**l != '#' && g_strv_length(row) >= COLUMNS && strcmp(row[COLUMN_ID], "id"))
			add_mutants(all, row);
	}
	return all;
}

static bool is_caught(const struct conform_case *k)
{
	return k->result.verdict == CONFORM_FAIL || k->result.verdict == CONFORM_CRASH ||
	       k->result.verdict == CONFORM_TIMEOUT;
}

static bool is_in(const struct aim *aim, const char *id)
{
	return g_strv_contains((const char *const *)aim->cases, id);
}

static bool is_expected(const struct mutant *m, const char *id)
{
	guint i;

	for (i = 0; i < m->aims->len; i++)
		if (is_in(g_ptr_array_index(m->aims, i), id))
			return true;
	return false;
}

/* Is it a clause that the mutant is meant to break? */
static bool is_aim(const struct mutant *m, const char *clause)
{
	guint i;

	for (i = 0; i < m->aims->len; i++)
		if (!g_strcmp0(((struct aim *)g_ptr_array_index(m->aims, i))->clause, clause))
			return true;
	return false;
}

/* A line "MUTANT<tab>CASE" in the file of cases that may also catch it; CASE may be a glob. */
static bool is_listed(const char *listed, const struct mutant *m, const char *id)
{
	g_auto(GStrv) lines = g_strsplit(listed ? listed : "", "\n", -1);
	char **l;

	for (l = lines; *l; l++) {
		g_auto(GStrv) f = g_strsplit(*l, "\t", 3);

		if (g_strv_length(f) >= 2 && !strcmp(f[0], m->name) &&
		    g_pattern_match_simple(f[1], id))
			return true;
	}
	return false;
}

/* By their names, so that the sample of one does not change when others are added. */
static bool is_sampled(const struct conform *c, const struct mutant *m, const char *id)
{
	g_autofree char *both = g_strconcat(m->name, " ", id, NULL);

	/* the lower bits of that hash know little but the end of the text */
	return (g_str_hash(both) >> 7) % MAX(c->cases->len / MATRIX_SAMPLE, 1) == 0;
}

/* Chooses the expected cases, and some of the others that are not listed. */
static void choose(struct conform *c, const struct mutant *m, const char *listed)
{
	guint i;

	for (i = 0; i < c->cases->len; i++) {
		struct conform_case *k = g_ptr_array_index(c->cases, i);

		conform_clear(&k->result);
		k->selected = !k->hidden &&
			      (is_expected(m, k->id) ||
			       (is_sampled(c, m, k->id) && !is_listed(listed, m, k->id)));
	}
}

/* Did it fail where it should not?  `m` NULL: the original, which should pass everything.  What is wrong with the file stays so. */
static bool is_surprise(const struct mutant *m, const struct conform_case *k)
{
	if (!k->selected || k->check)
		return false;
	if (k->result.verdict == CONFORM_BROKEN)
		return true;
	return is_caught(k) && !(m && (is_expected(m, k->id) || is_aim(m, k->result.clause)));
}

/*
 * Cases that failed and should not, once more, alone and with more time: it is short for the sake of the mutants that do
 * hang, and a busy machine must not be taken for one.
 */
static bool look_again(struct conform *c, const struct mutant *m, GError **error)
{
	g_autofree bool *chosen = g_new(bool, c->cases->len);
	struct conform alone = *c;
	bool again = false, done;
	guint i;

	for (i = 0; i < c->cases->len; i++) {
		struct conform_case *k = g_ptr_array_index(c->cases, i);

		chosen[i] = k->selected;
		k->selected = is_surprise(m, k);
		if (k->selected)
			conform_clear(&k->result);
		again |= k->selected;
	}
	alone.timeout_ms *= PATIENCE;
	alone.jobs = 1;
	done = !again || conform_run(&alone, error);
	for (i = 0; i < c->cases->len; i++)
		((struct conform_case *)g_ptr_array_index(c->cases, i))->selected = chosen[i];
	return done;
}

/* Runs everything on the original; what it does not pass is left out and told. */
static bool run_original(struct conform *c, GError **error)
{
	guint i;

	conform_run_static(c);
	if (!conform_run(c, error) || !look_again(c, NULL, error))
		return false;
	for (i = 0; i < c->cases->len; i++) {
		struct conform_case *k = g_ptr_array_index(c->cases, i);

		k->hidden = k->result.verdict != CONFORM_PASS && k->result.verdict != CONFORM_WARN;
		if (k->hidden && k->result.verdict != CONFORM_SKIP)
			printf("# the original does not pass %s: %s %s\n", k->id,
			       conform_verdict_name(k->result.verdict), k->result.text);
	}
	return true;
}

static void tell(GString *why, const char *what, const struct conform_case *k)
{
	g_string_append_printf(why, "# %s %s %s %s %s\n", what, k->id,
			       conform_verdict_name(k->result.verdict), k->result.clause,
			       k->result.text ? k->result.text : "");
}

/* Did a case of this row catch it? */
static bool hits(const struct conform *c, const struct aim *aim, GString *why)
{
	bool caught = false;
	guint i;

	for (i = 0; i < c->cases->len; i++) {
		const struct conform_case *k = g_ptr_array_index(c->cases, i);

		if (k->selected && is_in(aim, k->id))
			caught |= is_caught(k);
	}
	for (i = 0; !caught && i < c->cases->len; i++) {
		const struct conform_case *k = g_ptr_array_index(c->cases, i);

		if (!is_in(aim, k->id))
			continue;
		if (k->selected)
			tell(why, aim->clause, k);
		else
			g_string_append_printf(why, "# %s %s was left out: see above\n",
					       aim->clause, k->id);
	}
	return caught;
}

/* Judges one run; 0 if the right cases caught it. */
static int judge(const struct conform *c, const struct mutant *m, GString *why)
{
	int bad = 0;
	guint i;

	for (i = 0; i < m->aims->len; i++)
		if (!hits(c, g_ptr_array_index(m->aims, i), why))
			bad = 1;
	for (i = 0; i < c->cases->len; i++) {
		const struct conform_case *k = g_ptr_array_index(c->cases, i);

		if (!k->selected || is_expected(m, k->id))
			continue;
		if (k->result.verdict == CONFORM_BROKEN ||
		    (is_caught(k) && !is_aim(m, k->result.clause))) {
			bad = 1;
			tell(why, "off the diagonal:", k);
		}
	}
	return bad;
}

static char *clauses_of(const struct mutant *m)
{
	GString *s = g_string_new(NULL);
	guint i;

	for (i = 0; i < m->aims->len; i++)
		g_string_append_printf(s, "%s%s", i ? "," : "",
				       ((struct aim *)g_ptr_array_index(m->aims, i))->clause);
	return g_string_free(s, FALSE);
}

static int run_mutant(struct conform *c, const struct mutant *m, const char *folder,
		      const char *listed, unsigned int turn)
{
	g_autofree char *file = g_strconcat(m->name, ".so", NULL);
	g_autofree char *path = g_build_filename(folder, file, NULL);
	g_autofree char *clauses = clauses_of(m);
	g_autoptr(GString) why = g_string_new(NULL);
	g_autoptr(GError) error = NULL;
	int bad;

	if (!g_file_test(path, G_FILE_TEST_EXISTS)) {
		printf("not ok %u - %s %s\n# %s is not there\n", turn, clauses, m->name, path);
		return 1;
	}
	choose(c, m, listed);
	c->path = path;
	conform_run_static(c);
	if (!conform_run(c, &error) || !look_again(c, m, &error)) {
		printf("not ok %u - %s %s\n# %s\n", turn, clauses, m->name, error->message);
		return 1;
	}
	bad = judge(c, m, why);
	printf("%sok %u - %s %s\n", bad ? "not " : "", turn, clauses, m->name);
	if (bad)
		fputs(why->str, stdout);
	fflush(stdout);
	return bad;
}

int conform_matrix(struct conform *c, const char *clauses, const char *mutants,
		   const char *listed_file, const char *only, struct conform_share share)
{
	g_autoptr(GError) error = NULL;
	g_autofree char *listed = NULL;
	GPtrArray *all = load_mutants(clauses, &error);
	unsigned int turn = 0, bad = 0;
	guint i;

	if (!all || (listed_file && !g_file_get_contents(listed_file, &listed, NULL, &error))) {
		tool_complain("%s", error->message);
		return TOOL_TROUBLE;
	}
	c->progress = false;
	if (!run_original(c, &error)) {
		tool_complain("%s", error->message);
		return TOOL_TROUBLE;
	}
	c->timeout_ms = MIN(c->timeout_ms, MATRIX_TIMEOUT_MS);
	for (i = share.turn; i < all->len; i += share.of) {
		const struct mutant *m = g_ptr_array_index(all, i);

		if (!only || g_pattern_match_simple(only, m->name))
			bad += (unsigned int)run_mutant(c, m, mutants, listed, ++turn);
	}
	printf("1..%u\n# %u mutants, %u not caught as they should be\n", turn, turn, bad);
	if (!turn)
		return TOOL_NOTHING;
	return bad ? TOOL_NO : TOOL_OK;
}
