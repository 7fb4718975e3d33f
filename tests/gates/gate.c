/* SPDX-License-Identifier: BSD-2-Clause */
/* The controller: which cases, four processes for each, the verdict, TAP. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gates/gate.h"
#include "tests/hardware/sides.h"
#include "tools/demo.h"
#include "tools/tool.h"

static struct {
	char **globs, *out, *json, *end, *set, *folder, *profile, *listen, *connect;
	int channel, limit, seconds;
	gboolean full, list, resume, judge, faulted, fresh;
} options = {.limit = 120};

static const GOptionEntry entries[] = {
	{"case", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options.globs,
	 "only the cases whose name matches (may be repeated)", "GLOB"},
	{"full", 0, 0, G_OPTION_ARG_NONE, &options.full, "the whole matrix", NULL},
	{"list", 0, 0, G_OPTION_ARG_NONE, &options.list, "print the names only", NULL},
	{"out", 0, 0, G_OPTION_ARG_FILENAME, &options.out, "folder for what every run saw", "DIR"},
	{"resume", 0, 0, G_OPTION_ARG_NONE, &options.resume,
	 "leave out what passed into --out before", NULL},
	{"judge", 0, 0, G_OPTION_ARG_NONE, &options.judge, "run nothing; judge what is in --out",
	 NULL},
	{"profile", 0, 0, G_OPTION_ARG_FILENAME, &options.profile,
	 "the hosts that the ends run on, docs/hardware.md", "FILE"},
	{"json", 0, 0, G_OPTION_ARG_FILENAME, &options.json, "the report as JSON", "FILE"},
	{"limit", 0, 0, G_OPTION_ARG_INT, &options.limit, "seconds that a process may take", "N"},
	{"seconds", 0, 0, G_OPTION_ARG_INT, &options.seconds,
	 "begin no case later than so many seconds after the start", "N"},
	{"end", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_STRING, &options.end, NULL, NULL},
	{"set", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_STRING, &options.set, NULL, NULL},
	{"folder", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_STRING, &options.folder, NULL, NULL},
	{"channel", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_INT, &options.channel, NULL, NULL},
	{"listen", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_STRING, &options.listen, NULL, NULL},
	{"connect", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_STRING, &options.connect, NULL, NULL},
	{"fresh", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &options.fresh, NULL, NULL},
	{NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL},
};

/* For what is shared with the tools. */
void tool_complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

/* ---- One end, in a process of its own ------------------------------------------------------------------- */
static int run_end(void)
{
	struct gate_case c;
	bool source = strcmp(options.end, "source") == 0;
	g_autofree char *role = g_strdup_printf("%s%s", options.fresh ? "fresh-" : "", options.end);
	struct gate_end end = {.set = &c,
			       .folder = options.folder,
			       .role = role,
			       .fresh = options.fresh,
			       .channel = options.channel};

	if (!gate_parse(options.set, &c))
		end_fail(&end, "no case %s", options.set);
	end.faulted = !end.fresh && c.source == source;
	/* A hang is a failure: the controller sees the signal. */
	alarm((unsigned int)options.limit);
	if (options.listen)
		end.channel = demo_listen(options.listen);
	else if (options.connect)
		end.channel = demo_connect(options.connect);
	if (end.channel < 0)
		return 1;
	end.facts = json_builder_new();
	json_builder_begin_object(end.facts);
	json_builder_set_member_name(end.facts, "role");
	json_builder_add_string_value(end.facts, options.end);
	if (source)
		(c.use ? replace_source : gate_source)(&end);
	else
		(c.use ? replace_requester : gate_requester)(&end);
	end_write(&end);
	return 0;
}

/* ---- Processes --------------------------------------------------------------------------------------------- */
static pid_t start(const char *role, bool fresh, const char *name, const char *folder, int channel,
		   int other)
{
	g_autofree char *fd = g_strdup_printf("%d", channel);
	g_autofree char *limit = g_strdup_printf("%d", options.limit);
	const char *preload = getenv("GATES_PRELOAD");
	const char *argv[] = {"gate", "--end",     role, "--set",   name,  "--folder",
			      folder, "--channel", fd,   "--limit", limit, fresh ? "--fresh" : NULL,
			      NULL};
	pid_t pid = fork();

	if (pid)
		return pid;
	close(other);
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	execv("/proc/self/exe", (char **)(uintptr_t)argv);
	_exit(127);
}

static void ended(const char *role, bool fresh, pid_t pid, GPtrArray *problems)
{
	int status = 0;

	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		g_ptr_array_add(problems, g_strdup_printf("the %s was not reaped", role));
		return;
	}
	if (WIFSIGNALED(status)) {
		g_ptr_array_add(problems,
				g_strdup_printf("the %s%s was ended by signal %d%s",
						fresh ? "fresh " : "", role, WTERMSIG(status),
						WTERMSIG(status) == SIGALRM ? ": it hung" : ""));
	} else if (WEXITSTATUS(status)) {
		g_ptr_array_add(problems,
				g_strdup_printf("the %s%s gave up", fresh ? "fresh " : "", role));
	}
}

static struct sides *sides; /* of --profile */

/* Both ends at once; each exact process is waited for before anything else begins. */
static void run_pair(const char *name, const char *folder, bool fresh, GPtrArray *problems)
{
	pid_t source, requester;
	int fds[2];

	if (sides) {
		sides_run(sides, name, folder, fresh, options.limit, problems);
		return;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds)) {
		g_ptr_array_add(problems, g_strdup("socketpair failed"));
		return;
	}
	source = start("source", fresh, name, folder, fds[0], fds[1]);
	requester = start("requester", fresh, name, folder, fds[1], fds[0]);
	close(fds[0]);
	close(fds[1]);
	ended("source", fresh, source, problems);
	ended("requester", fresh, requester, problems);
}

/* ---- A case -------------------------------------------------------------------------------------------------- */
static JsonObject *read_facts(const char *folder, const char *role)
{
	g_autofree char *path = g_strdup_printf("%s/%s.json", folder, role);
	g_autoptr(JsonParser) parser = json_parser_new();

	if (!json_parser_load_from_file(parser, path, NULL))
		return NULL;
	return json_node_dup_object(json_parser_get_root(parser));
}

/* Of each case megabytes, which the guest has not for the whole matrix. */
static void forget(struct gate_facts *facts)
{
	g_clear_pointer(&facts->faulted, json_object_unref);
	g_clear_pointer(&facts->other, json_object_unref);
	g_clear_pointer(&facts->fresh_source, json_object_unref);
	g_clear_pointer(&facts->fresh_requester, json_object_unref);
}

static bool read_all(const struct gate_case *c, const char *folder, struct gate_facts *facts)
{
	facts->faulted = read_facts(folder, c->source ? "source" : "requester");
	facts->other = read_facts(folder, c->source ? "requester" : "source");
	if (c->use)
		return facts->faulted && facts->other;
	facts->fresh_source = read_facts(folder, "fresh-source");
	facts->fresh_requester = read_facts(folder, "fresh-requester");
	return facts->faulted && facts->other && facts->fresh_source && facts->fresh_requester;
}

static char *folder_of(const char *name)
{
	g_autofree char *flat = g_strdelimit(g_strdup(name), "/", '-');

	return g_build_filename(options.out, flat, NULL);
}

/* The facts are read anew for each lie. */
static guint doctor_all(const struct gate_case *c, const char *folder, GPtrArray *problems)
{
	guint told = 0;

	for (guint i = 0; i < doctor_lies(); i++) {
		struct gate_facts facts = {NULL, NULL, NULL, NULL, 0};

		if (read_all(c, folder, &facts))
			told += doctor(c, i, &facts, problems);
		forget(&facts);
	}
	return told;
}

/* Was it run into that folder, and found right? */
static bool passed_before(const char *folder)
{
	g_autofree char *path = g_build_filename(folder, "passed", NULL);

	return options.resume && g_file_test(path, G_FILE_TEST_EXISTS);
}

static void run_case(const struct gate_case *c, const char *name, GPtrArray *problems)
{
	g_autofree char *folder = folder_of(name);
	g_autofree char *mark = g_build_filename(folder, "passed", NULL);
	struct gate_facts facts = {NULL, NULL, NULL, NULL, 0};
	guint lies = 0;

	if (!options.judge && !passed_before(folder)) {
		g_mkdir_with_parents(folder, 0700);
		unlink(mark);
		run_pair(name, folder, false, problems);
		if (!problems->len && !c->use)
			run_pair(name, folder, true, problems);
	}
	if (!problems->len && !read_all(c, folder, &facts))
		g_ptr_array_add(problems, g_strdup("an end wrote nothing down"));
	if (!problems->len)
		judge(c, &facts, problems);
	if (options.profile)
		sides_judge(folder, !c->use, problems);
	if (!problems->len)
		lies = doctor_all(c, folder, problems);
	if (!problems->len)
		g_file_set_contents(mark, "", 0, NULL);
	report_case(name, &facts, lies, problems);
	forget(&facts);
}

static bool is_wanted(const char *name)
{
	bool wanted = !options.globs;

	for (char **g = options.globs; g && *g; g++)
		wanted = wanted || g_pattern_match_simple(*g, name);
	return wanted;
}

static GArray *chosen(void)
{
	g_autoptr(GArray) all = gate_matrix();
	g_autoptr(GArray) few = options.full || options.globs ? g_array_ref(all)
							      : gate_pairwise(all);
	GArray *out = g_array_new(FALSE, FALSE, sizeof(struct gate_case));

	for (guint i = 0; i < few->len; i++) {
		struct gate_case c = g_array_index(few, struct gate_case, i);
		g_autofree char *name = gate_name(&c);

		if (is_wanted(name))
			g_array_append_val(out, c);
	}
	return out;
}

static void tell(guint i, const char *name, const GPtrArray *problems)
{
	printf("%s %u - %s\n", problems->len ? "not ok" : "ok", i, name);
	for (guint k = 0; k < problems->len; k++)
		printf("# %s\n", (const char *)g_ptr_array_index(problems, k));
	fflush(stdout);
}

static int run_all(const GArray *cases)
{
	gint64 end = g_get_monotonic_time() + options.seconds * G_USEC_PER_SEC;
	g_autofree char *text = NULL;
	guint failed = 0;

	if (!options.out)
		options.out = g_dir_make_tmp("escrow-gates.XXXXXX", NULL);
	printf("# what every run saw is in %s, a report in report.txt there\n", options.out);
	for (guint i = 0; i < cases->len; i++) {
		const struct gate_case *c = &g_array_index(cases, struct gate_case, i);
		g_autofree char *name = gate_name(c);
		g_autoptr(GPtrArray) problems = g_ptr_array_new_with_free_func(g_free);

		if (options.seconds && g_get_monotonic_time() >= end) {
			printf("ok %u - %s # SKIP out of time: run again with --resume\n", i + 1,
			       name);
			continue;
		}
		run_case(c, name, problems);
		failed += problems->len > 0;
		tell(i + 1, name, problems);
	}
	printf("1..%u\n", cases->len);
	text = g_build_filename(options.out, "report.txt", NULL);
	report_write(options.json, text);
	return failed > 0;
}

static int list_all(const GArray *cases)
{
	for (guint i = 0; i < cases->len; i++) {
		g_autofree char *name = gate_name(&g_array_index(cases, struct gate_case, i));

		puts(name);
	}
	return 0;
}

static int finish(int status)
{
	if (sides)
		sides_close(sides);
	return status;
}

int main(int argc, char **argv)
{
	g_autoptr(GOptionContext) context = g_option_context_new(NULL);
	g_autoptr(GError) error = NULL;
	g_autoptr(GArray) cases = NULL;

	g_option_context_add_main_entries(context, entries, NULL);
	if (!g_option_context_parse(context, &argc, &argv, &error)) {
		fprintf(stderr, "gate: %s\n", error->message);
		return 2;
	}
	if (options.end)
		return run_end();
	cases = chosen();
	if (options.list)
		return list_all(cases);
	if (options.judge && !options.out) {
		fprintf(stderr, "gate: --judge needs the folder of an earlier run: --out DIR\n");
		return 2;
	}
	if (options.profile && !options.judge && !(sides = sides_open(options.profile)))
		return 2;
	return finish(run_all(cases));
}
