/* SPDX-License-Identifier: BSD-2-Clause */
/* simulate.c - many runs; what failed is told with the command that repeats it. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib/gstdio.h>
#include <json-glib/json-glib.h>

#include "tests/simulate/run.h"

#define STEPS 400

struct outcome *outcome;

/* ---- Many runs ------------------------------------------------------------------------------------------- */
static gchar *said_path;
static gchar *trace_path;
static gboolean option_twice;

/* Runs a seed in a process of its own; true if nothing is wrong. *outcome says what was. */
static bool try(uint64_t seed, uint32_t steps, const GArray *skip)
{
	int status;
	pid_t pid;

	memset(outcome, 0, sizeof(*outcome));
	sim.seed = seed;
	sim.steps = steps;
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		g_error("fork: %s", g_strerror(errno));
	if (!pid) {
		if (trace_path)
			run_trace = fopen(trace_path, "w");
		run_child(skip, said_path, option_twice);
	}
	if (waitpid(pid, &status, 0) != pid)
		g_error("waitpid: %s", g_strerror(errno));
	if (WIFSIGNALED(status)) {
		bool endless = WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGALRM;

		g_strlcpy(outcome->rule, endless ? "L2" : "abort", sizeof(outcome->rule));
		g_snprintf(outcome->text, sizeof(outcome->text), "%s",
			   g_strsignal(WTERMSIG(status)));
	}
	return outcome->done && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* What a run said on its standard error: softverbs' word on a broken rule, a sanitizer's report. */
static void show_said(void)
{
	gchar *text = NULL, **lines;
	gsize i;

	if (!g_file_get_contents(said_path, &text, NULL, NULL))
		return;
	lines = g_strsplit(text, "\n", 40);
	for (i = 0; i < 39 && lines[i]; i++)
		if (*lines[i])
			printf("#   %s\n", lines[i]);
	g_strfreev(lines);
	g_free(text);
}

#define SHRINKS 300

/* Leaves out steps, in ever smaller pieces, as long as the same rule is broken without them. */
static void shrink(uint64_t seed, uint32_t *steps, GArray *skip)
{
	struct outcome first = *outcome;
	uint32_t size, from, tries = 0, i, kept;

	if (first.step < *steps)
		*steps = first.step;
	for (size = *steps / 2; size && tries < SHRINKS; size /= 2) {
		for (from = 1; from <= *steps && tries < SHRINKS; from += size) {
			kept = skip->len;
			for (i = from; i < from + size && i <= *steps; i++)
				g_array_append_val(skip, i);
			tries++;
			if (try(seed, *steps, skip) || strcmp(outcome->rule, first.rule) != 0)
				g_array_set_size(skip, kept);
		}
	}
	try(seed, *steps, skip);
}

static gchar *skip_text(const GArray *skip, uint32_t steps)
{
	GString *s = g_string_new(NULL);
	uint32_t i, j;

	/* As ranges: "3-17,20". */
	for (i = 1; i <= steps; i++) {
		for (j = i; j <= steps; j++) {
			guint k;

			for (k = 0; k < skip->len && g_array_index(skip, uint32_t, k) != j; k++)
				;
			if (k == skip->len)
				break;
		}
		if (j > i)
			g_string_append_printf(s, "%s%u-%u", s->len ? "," : "", i, j - 1);
		i = j;
	}
	return g_string_free(s, FALSE);
}

static GArray *skip_parse(const gchar *text)
{
	GArray *skip = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	gchar **all = g_strsplit(text ? text : "", ",", 0);
	uint32_t i, step, from, to;

	for (i = 0; all[i]; i++) {
		if (sscanf(all[i], "%u-%u", &from, &to) != 2)
			continue;
		for (step = from; step <= to; step++)
			g_array_append_val(skip, step);
	}
	g_strfreev(all);
	return skip;
}

/* ---- The report ------------------------------------------------------------------------------------------- */
struct total {
	uint64_t runs, failed, steps;
	struct counts n;
};

static void add(struct total *t, uint32_t steps)
{
	t->steps += steps;
	t->n.events += outcome->n.events;
	t->n.done += outcome->n.done;
	t->n.executed += outcome->n.executed;
	t->n.returned_late += outcome->n.returned_late;
	t->n.revoked += outcome->n.revoked;
	t->n.quarantined += outcome->n.quarantined;
	t->n.closed += outcome->n.closed;
	t->n.calls += outcome->n.calls;
	t->n.accesses += outcome->n.accesses;
	t->n.sent += outcome->n.sent;
	t->n.received += outcome->n.received;
	t->n.offers += outcome->n.offers;
	t->n.ready += outcome->n.ready;
	t->n.swaps += outcome->n.swaps;
	t->n.fenced += outcome->n.fenced;
	t->n.renewed += outcome->n.renewed;
}

static void write_json(const gchar *path, const struct total *t, uint64_t first)
{
	JsonBuilder *b = json_builder_new();
	JsonGenerator *g = json_generator_new();
	GError *error = NULL;
	const struct {
		const gchar *name;
		uint64_t value;
	} all[] = {{"first_seed", first},
		   {"runs", t->runs},
		   {"failed", t->failed},
		   {"steps", t->steps},
		   {"events", t->n.events},
		   {"ops", t->n.done},
		   {"executed", t->n.executed},
		   {"returned_late", t->n.returned_late},
		   {"grants_revoked", t->n.revoked},
		   {"quarantined", t->n.quarantined},
		   {"closed", t->n.closed},
		   {"native_calls", t->n.calls},
		   {"accesses", t->n.accesses},
		   {"messages_sent", t->n.sent},
		   {"messages_received", t->n.received},
		   {"offers", t->n.offers},
		   {"offers_taken", t->n.ready},
		   {"swaps", t->n.swaps},
		   {"fenced", t->n.fenced},
		   {"renewed", t->n.renewed}};
	JsonNode *root;
	guint i;

	json_builder_begin_object(b);
	for (i = 0; i < G_N_ELEMENTS(all); i++) {
		json_builder_set_member_name(b, all[i].name);
		json_builder_add_int_value(b, (gint64)all[i].value);
	}
	json_builder_end_object(b);
	root = json_builder_get_root(b);
	json_generator_set_pretty(g, TRUE);
	json_generator_set_root(g, root);
	if (!json_generator_to_file(g, path, &error))
		g_printerr("simulate: %s\n", error->message);
	g_clear_error(&error);
	json_node_unref(root);
	g_object_unref(g);
	g_object_unref(b);
}

static void report(uint64_t seed, uint32_t steps, GArray *skip, bool small)
{
	gchar *text;

	printf("# seed %" PRIu64 ": %s broken at step %u: %s\n", seed, outcome->rule, outcome->step,
	       outcome->text);
	show_said();
	if (small)
		shrink(seed, &steps, skip);
	text = skip_text(skip, steps);
	printf("# again: ./dev simulate --runs 1 --seed %" PRIu64 " --steps %u%s%s%s%s\n", seed,
	       steps, run_device ? " --device " : "", run_device ? run_device : "",
	       *text ? " --skip " : "", text);
	g_free(text);
}

static gint64 option_seed = 1;
static gint option_steps = STEPS, option_runs = 100;
static gint option_seconds;
static gint option_minutes;
static gboolean option_no_shrink, option_first;
static gchar *option_json, *option_skip;

static GOptionEntry options[] = {
	{"seed", 's', 0, G_OPTION_ARG_INT64, &option_seed, "of the first run (1)", "S"},
	{"steps", 0, 0, G_OPTION_ARG_INT, &option_steps, "of each run (400)", "N"},
	{"runs", 'n', 0, G_OPTION_ARG_INT, &option_runs, "seeds S, S+1, ... (100)", "N"},
	{"seeds", 0, 0, G_OPTION_ARG_INT, &option_runs, "the same", "N"},
	{"seconds", 0, 0, G_OPTION_ARG_INT, &option_seconds, "no new run after so many", "T"},
	{"minutes", 0, 0, G_OPTION_ARG_INT, &option_minutes, "the same, in minutes", "T"},
	{"json", 0, 0, G_OPTION_ARG_FILENAME, &option_json, "what was done, as JSON", "FILE"},
	{"trace", 0, 0, G_OPTION_ARG_FILENAME, &trace_path, "everything the last run did", "FILE"},
	{"skip", 0, 0, G_OPTION_ARG_STRING, &option_skip, "leave these steps out", "A-B,.."},
	{"device", 0, 0, G_OPTION_ARG_STRING, &run_device,
	 "softverbs is this in each run: mlx5, rxe, irdma, old-kernel", "P"},
	{"twice", 0, 0, G_OPTION_ARG_NONE, &option_twice, "run each seed twice, compare traces",
	 NULL},
	{"first", 0, 0, G_OPTION_ARG_NONE, &option_first, "end with the first failure", NULL},
	{"no-shrink", 0, 0, G_OPTION_ARG_NONE, &option_no_shrink,
	 "do not look for steps that can be left out", NULL},
	{NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL}};

static bool one_seed(uint64_t seed, uint32_t steps, GArray *skip, struct total *t)
{
	char before[sizeof(outcome->digest)];
	bool good = try(seed, steps, skip);

	if (good)
		add(t, steps);
	if (good && option_twice) {
		g_strlcpy(before, outcome->digest, sizeof(before));
		good = try(seed, steps, skip);
		if (good && strcmp(before, outcome->digest) != 0) {
			printf("# seed %" PRIu64 ": a second run is another\n", seed);
			t->failed++;
			return false;
		}
	}
	if (good)
		return true;
	t->failed++;
	report(seed, steps, skip, !option_no_shrink);
	return false;
}

static void run_all(struct total *t)
{
	gint64 end = g_get_monotonic_time() + (gint64)option_seconds * G_USEC_PER_SEC;
	gint i;

	for (i = 0; i < option_runs; i++) {
		GArray *skip = skip_parse(option_skip);

		if (option_seconds && g_get_monotonic_time() > end) {
			g_array_unref(skip);
			break;
		}
		t->runs++;
		one_seed((uint64_t)option_seed + (uint64_t)i, (uint32_t)option_steps, skip, t);
		g_array_unref(skip);
		if (option_first && t->failed)
			break;
	}
}

/* For softverbs' files, in memory if that can be had: a run is short beside what a disk costs. */
static gchar *make_folder(void)
{
	gchar *folder = g_strdup("/dev/shm/escrow-simulate.XXXXXX");

	if (g_mkdtemp(folder))
		return folder;
	g_free(folder);
	return g_dir_make_tmp("escrow-simulate.XXXXXX", NULL);
}

int main(int argc, char **argv)
{
	GOptionContext *context =
		g_option_context_new("- random workloads against a random adversary");
	gchar *folder = make_folder(), *clean;
	struct total total = {0};
	GError *error = NULL;

	g_option_context_add_main_entries(context, options, NULL);
	if (!g_option_context_parse(context, &argc, &argv, &error) || !folder) {
		g_printerr("simulate: %s\n", error ? error->message : "no temporary folder");
		return 2;
	}
	g_option_context_free(context);
	if (option_minutes)
		option_seconds = 60 * option_minutes;
	g_setenv("SOFTVERBS_DIR", folder, TRUE);
	said_path = g_build_filename(folder, "said", NULL);
	outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	run_all(&total);
	printf("%" PRIu64 " runs from seed %" G_GINT64_FORMAT ", %" PRIu64 " failed; %" PRIu64
	       " steps, %" PRIu64 " ops of which %" PRIu64 " executed, %" PRIu64
	       " returned late, %" PRIu64 " grants revoked, %" PRIu64 " quarantines, %" PRIu64
	       " native calls, %" PRIu64 " accesses, %" PRIu64 " messages, %" PRIu64
	       " offers taken %" PRIu64 " times, %" PRIu64 " swaps, %" PRIu64 " fenced, %" PRIu64
	       " renewed\n",
	       total.runs, option_seed, total.failed, total.steps, total.n.done, total.n.executed,
	       total.n.returned_late, total.n.revoked, total.n.quarantined, total.n.calls,
	       total.n.accesses, total.n.received, total.n.offers, total.n.ready, total.n.swaps,
	       total.n.fenced, total.n.renewed);
	if (option_json)
		write_json(option_json, &total, (uint64_t)option_seed);
	clean = g_strdup_printf("rm -rf '%s'", folder);
	if (system(clean))
		g_printerr("simulate: %s is left\n", folder);
	g_free(clean);
	g_free(folder);
	return total.failed ? 1 : 0;
}
