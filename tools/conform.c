/* SPDX-License-Identifier: BSD-2-Clause */
/* escrow conform: judges a backend by the contract, a process for each case. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "plugin/escrow.h"
#include "tools/conform.h"
#include "tools/tool.h"

static char *opt_profiles;
static char **opt_globs;
static char **opt_settings;
static char *opt_with;
static char *opt_seed;
static char *opt_reproduce;
static char *opt_junit;
static char *opt_json;
static char *opt_waivers;
static char *opt_clauses;
static char *opt_mutants;
static char *opt_listed;
static char *opt_only;
static char *opt_share;
static gboolean opt_tap;
static gboolean opt_list;
static gboolean opt_quiet;
static int opt_jobs;
static int opt_timeout = 10000;

static const GOptionEntry options[] = {
	{"profile", 'p', 0, G_OPTION_ARG_STRING, &opt_profiles,
	 "static, core, data, fault, swap, thread, perf; several by commas (default: all)", "LIST"},
	{"case", 'c', 0, G_OPTION_ARG_STRING_ARRAY, &opt_globs, "only cases of these ids", "GLOB"},
	{"config", 'o', 0, G_OPTION_ARG_FILENAME_ARRAY, &opt_settings, "a setting for each open",
	 "KEY=VALUE"},
	{"with", 0, 0, G_OPTION_ARG_FILENAME, &opt_with, "the second backend of the swap profile",
	 "BACKEND"},
	{"jobs", 'j', 0, G_OPTION_ARG_INT, &opt_jobs, "cases at once (default: processors)", "N"},
	{"timeout", 't', 0, G_OPTION_ARG_INT, &opt_timeout, "of one case (default 10000)", "MS"},
	{"seed", 's', 0, G_OPTION_ARG_STRING, &opt_seed, "of the random cases", "N"},
	{"reproduce", 0, 0, G_OPTION_ARG_STRING, &opt_reproduce,
	 "run the fuzz cases with this seed in this terminal, without a limit", "SEED"},
	{"waivers", 0, 0, G_OPTION_ARG_FILENAME, &opt_waivers, "failures that do not count",
	 "FILE"},
	{"list", 'l', 0, G_OPTION_ARG_NONE, &opt_list, "list the cases and run none", NULL},
	{"tap", 0, 0, G_OPTION_ARG_NONE, &opt_tap, "print TAP", NULL},
	{"junit", 0, 0, G_OPTION_ARG_FILENAME, &opt_junit, "write JUnit's XML", "FILE"},
	{"json", 0, 0, G_OPTION_ARG_FILENAME, &opt_json, "write JSON", "FILE"},
	{"quiet", 'q', 0, G_OPTION_ARG_NONE, &opt_quiet, "print only what did not pass", NULL},
	{"kill-matrix", 0, 0, G_OPTION_ARG_FILENAME, &opt_mutants,
	 "run the mutants in this folder; BACKEND is their original", "FOLDER"},
	{"clauses", 0, 0, G_OPTION_ARG_FILENAME, &opt_clauses, "the clause table of --kill-matrix",
	 "FILE"},
	{"off-diagonal", 0, 0, G_OPTION_ARG_FILENAME, &opt_listed,
	 "cases that may also catch a mutant", "FILE"},
	{"mutant", 0, 0, G_OPTION_ARG_STRING, &opt_only, "only mutants of these names", "GLOB"},
	{"share", 0, 0, G_OPTION_ARG_STRING, &opt_share, "of N shares of the mutants only the Kth",
	 "K/N"},
	{NULL, 0, 0, 0, NULL, NULL, NULL}};

static const struct tool_range ranges[] = {
	{.option = "jobs", .low = 1, .high = 1024},
	{.option = "timeout", .low = 1, .high = 86400000}, /* ms */
	{.option = NULL},
};

/* The path of a backend, or NULL after a complaint. */
static char *find_backend(const char *name)
{
	struct escrow_error error = {.size = sizeof(error)};
	char path[4096];
	uint64_t len = sizeof(path);

	if (escrow_find(name, path, &len, &error) == ESCROW_OK)
		return g_strdup(path);
	tool_complain("%s", error.text);
	return NULL;
}

static bool read_seed(const char *text, uint64_t *seed)
{
	char *end;

	if (!text) {
		if (getrandom(seed, sizeof(*seed), 0) != sizeof(*seed))
			return false;
		*seed &= UINT32_MAX; /* short enough to type */
		return true;
	}
	errno = 0;
	*seed = g_ascii_strtoull(text, &end, 0);
	return !errno && end != text && !*end;
}

static int list(const struct conform *c)
{
	guint i;

	for (i = 0; i < c->cases->len; i++) {
		const struct conform_case *k = g_ptr_array_index(c->cases, i);

		if (k->selected)
			printf("%s\t%s\t%s\t%s\t%s\n", k->id, k->profile, k->clauses, k->needs,
			       k->summary);
	}
	return TOOL_OK;
}

static int exit_status(const struct conform *c)
{
	struct conform_sum s = conform_add_up(c);

	if (s.count[CONFORM_BROKEN])
		return TOOL_TROUBLE;
	if (s.count[CONFORM_FAIL] || s.count[CONFORM_CRASH] || s.count[CONFORM_TIMEOUT])
		return TOOL_NO;
	return s.run > s.count[CONFORM_SKIP] ? TOOL_OK : TOOL_NOTHING;
}

/* Drops what passed from a report for people. */
static void hide_passed(struct conform *c)
{
	guint i;

	for (i = 0; i < c->cases->len; i++) {
		struct conform_case *k = g_ptr_array_index(c->cases, i);

		if (k->result.verdict == CONFORM_PASS)
			k->hidden = true;
	}
}

static int report(struct conform *c, const char *profiles)
{
	g_autoptr(GError) error = NULL;
	bool ok;

	conform_waive(c);
	ok = (!opt_junit || conform_write_junit(c, opt_junit, &error)) &&
	     (!opt_json || conform_write_json(c, profiles, opt_json, &error));
	if (!ok)
		tool_complain("%s", error->message);
	if (opt_quiet)
		hide_passed(c);
	if (opt_tap)
		conform_print_tap(c, profiles, stdout);
	else
		conform_print(c, profiles, stdout);
	return ok ? exit_status(c) : TOOL_TROUBLE;
}

/* Is a case among those that were selected which needs the backend in a process? */
static bool needs_backend(const struct conform *c)
{
	for (guint i = 0; i < c->cases->len; i++) {
		const struct conform_case *k = g_ptr_array_index(c->cases, i);

		if (k->selected && !k->check)
			return true;
	}
	return false;
}

/* Each case would only say the same once more. */
static int refuse(const char *name, const char *why)
{
	if (opt_tap)
		printf("Bail out! %s: %s\n", name, why);
	tool_complain("conform: %s: %s; no case was run (-p static looks at the file alone, -o "
		      "sets KEY=VALUE)",
		      name, why);
	tool_hint_device(why);
	tool_hint_setting(why, name);
	return TOOL_TROUBLE;
}

/* The two numbers of "K/N", K from 1 to N. */
static bool read_share(const char *text, struct conform_share *share)
{
	g_auto(GStrv) part = g_strsplit(text, "/", 2);
	guint64 k, n;

	if (g_strv_length(part) != 2 ||
	    !g_ascii_string_to_unsigned(part[1], 10, 1, 1024, &n, NULL) ||
	    !g_ascii_string_to_unsigned(part[0], 10, 1, n, &k, NULL))
		return false;
	*share = (struct conform_share){.turn = (guint)k - 1, .of = (guint)n};
	return true;
}

static int run_matrix(struct conform *c)
{
	struct conform_share share = {.turn = 0, .of = 1};

	if (!opt_clauses) {
		tool_complain("--kill-matrix needs --clauses");
		return TOOL_TROUBLE;
	}
	if (opt_share && !read_share(opt_share, &share)) {
		tool_complain("--share %s: allowed is K/N, 1 <= K <= N <= 1024",
			      tool_shown(opt_share));
		return TOOL_TROUBLE;
	}
	return conform_matrix(c, opt_clauses, opt_mutants, opt_listed, opt_only, share);
}

static int run(struct conform *c, const char *name, const char *profiles)
{
	g_autoptr(GError) error = NULL;
	g_autofree char *why = NULL;

	if (opt_mutants)
		return run_matrix(c);
	why = conform_probe(c);
	/* the file alone is no reason to take a setting for one that was tried */
	if (why && (needs_backend(c) || tool_key_unknown(why)))
		return refuse(name, why);
	conform_run_static(c);
	if (!conform_run(c, &error)) {
		tool_complain("%s", error->message);
		return TOOL_TROUBLE;
	}
	return report(c, profiles);
}

/* In place of this program, for a debugger: the child on the terminal, with no limit. */
static int reproduce(struct conform *c)
{
	const char *id = opt_globs && *opt_globs ? *opt_globs : "ESC-FUZZ-001";
	g_autoptr(GStrvBuilder) args = g_strv_builder_new();
	g_auto(GStrv) argv = NULL;
	char **s;

	g_strv_builder_add(args, c->child);
	g_strv_builder_add(args, "--case");
	g_strv_builder_add(args, id);
	g_strv_builder_add(args, "--seed");
	g_strv_builder_add(args, opt_reproduce);
	for (s = opt_settings; s && *s; s++) {
		g_strv_builder_add(args, "--set");
		g_strv_builder_add(args, *s);
	}
	g_strv_builder_add(args, c->path);
	argv = g_strv_builder_end(args);
	execv(c->child, argv);
	tool_complain("%s: %s", c->child, g_strerror(errno));
	return TOOL_TROUBLE;
}

static bool check_options(int argc, struct conform *c)
{
	if (argc != 2 && !(opt_list && argc == 1)) {
		tool_complain("conform takes one BACKEND (a name or a path); see --help");
		return false;
	}
	if (!read_seed(opt_seed ? opt_seed : opt_reproduce, &c->seed)) {
		tool_complain("conform: --seed %s: 0 to 18446744073709551615 is allowed",
			      tool_shown(opt_seed ? opt_seed : opt_reproduce));
		return false;
	}
	if (!tool_settings_good("config", opt_settings))
		return false;
	c->timeout_ms = (unsigned int)opt_timeout;
	c->jobs = opt_jobs ? (unsigned int)opt_jobs : g_get_num_processors();
	c->settings = opt_settings;
	c->part = opt_globs && *opt_globs;
	c->child = conform_child_program();
	c->progress = isatty(2) && !opt_list;
	c->facts = g_ptr_array_new_with_free_func(g_free);
	return true;
}

/* GOption takes "-j 2" but not the "-j2" that everybody types; what it returns is in argv. */
static char *spell_out_jobs(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (g_str_has_prefix(argv[i], "-j") && g_ascii_isdigit(argv[i][2]))
			return argv[i] = g_strconcat("--jobs=", argv[i] + 2, NULL);
	return NULL;
}

/* Is each word of the list a profile? */
static bool check_profiles(const char *list)
{
	static const char *const known[] = {"static", "core", "data", "fault", "swap",
					    "thread", "perf", "all",  NULL};
	g_auto(GStrv) words = g_strsplit(list, ",", -1);
	char **w;

	for (w = words; *w; w++) {
		if (g_strv_contains(known, *w))
			continue;
		tool_complain("conform: --profile \"%s\": static, core, data, fault, swap, thread, "
			      "perf or all",
			      *w);
		return false;
	}
	return true;
}

/* A report that cannot be written is refused before what it tells of has been run. */
static bool writable(const char *option, const char *file)
{
	int error = file ? conform_unwritable(file) : 0;

	if (error)
		tool_complain("conform: --%s %s: %s", option, file, g_strerror(error));
	return !error;
}

static int prepared(struct conform *c, const char *name)
{
	const char *profiles = opt_profiles ? opt_profiles : "all";
	g_autofree char *with = NULL, *path = NULL;
	g_autoptr(GError) error = NULL;

	if (!check_profiles(profiles))
		return TOOL_TROUBLE;
	if (!conform_load_cases(c, &error)) {
		tool_complain("%s", error->message);
		return TOOL_TROUBLE;
	}
	if (!conform_select(c, profiles, opt_globs)) {
		g_autofree char *globs = opt_globs ? g_strjoinv(" ", opt_globs) : NULL;

		tool_complain("conform: no case of profile %s has the id %s (--list shows all)",
			      profiles, globs ? globs : "*");
		return TOOL_NOTHING;
	}
	if (opt_list)
		return list(c);
	if (opt_waivers && !conform_read_waivers(c, opt_waivers, &error)) {
		tool_complain("conform: --waivers: %s", error->message);
		return TOOL_TROUBLE;
	}
	if (!writable("junit", opt_junit) || !writable("json", opt_json))
		return TOOL_TROUBLE;
	path = find_backend(name);
	with = path && opt_with ? find_backend(opt_with) : NULL;
	if (!path || (opt_with && !with))
		return TOOL_TROUBLE;
	c->path = path;
	c->with = with;
	if (opt_reproduce)
		return reproduce(c);
	return run(c, name, profiles);
}

int conform_main(int argc, char **argv)
{
	g_autofree char *command = g_strjoinv(" ", argv);
	struct conform c = {.command = command};
	G_GNUC_UNUSED g_autofree char *jobs = spell_out_jobs(argc, argv); /* argv points into it */
	int status = TOOL_TROUBLE;

	if (tool_parse(options, ranges, "BACKEND", "Judges a backend by the contract.", &argc,
		       &argv) &&
	    check_options(argc, &c))
		status = prepared(&c, argv[1]);
	conform_free(&c);
	return status;
}
