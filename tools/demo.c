/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/demo.h"
#include "tools/json.h"
#include "tools/ledger-view.h"
#include "tools/tool.h"

#define MOST_BYTES ((gint64)1 << 34) /* of all parents */

struct demo_options {
	struct demo_settings set;
	gboolean json, events, source, on_double;
	int rails, lanes;
	char *listen, *connect; /* HOST:PORT of the channel between two machines */
};

static bool parse(struct demo_options *o, int *argc, char ***argv)
{
	const GOptionEntry entries[] = {
		{"backend", 'b', 0, G_OPTION_ARG_FILENAME, &o->set.backend,
		 "Name or path (default: rdma, on softverbs where there is no device)", "BACKEND"},
		{"op", 0, 0, G_OPTION_ARG_STRING, &o->set.op, "read, write or both (default)",
		 "OP"},
		{"parents", 0, 0, G_OPTION_ARG_INT, &o->set.parents, "Transfers each way (8)", "N"},
		{"bytes", 0, 0, G_OPTION_ARG_INT64, &o->set.parent_bytes, "Size of each (5M)", "N"},
		{"rounds", 0, 0, G_OPTION_ARG_INT, &o->set.rounds, "How often (1)", "N"},
		{"rails", 0, 0, G_OPTION_ARG_INT, &o->rails,
		 "Use at most so many rails (0: as many as the backend does)", "N"},
		{"lanes", 0, 0, G_OPTION_ARG_INT, &o->lanes,
		 "Lanes of each rail (0: the backend's default)", "N"},
		{"events", 0, 0, G_OPTION_ARG_NONE, &o->events,
		 "Sleep on the engine's descriptor instead of polling", NULL},
		{"set", 's', 0, G_OPTION_ARG_FILENAME_ARRAY, &o->set.settings,
		 "A setting of the backend; may be repeated", "KEY=VALUE"},
		{"listen", 0, 0, G_OPTION_ARG_STRING, &o->listen,
		 "Be the source only, for a requester on another machine", "[HOST]:PORT"},
		{"connect", 0, 0, G_OPTION_ARG_STRING, &o->connect,
		 "Be the requester only, of the source that listens there", "HOST:PORT"},
		{"json", 0, 0, G_OPTION_ARG_NONE, &o->json, "Machine-readable output", NULL},
		{"source", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &o->source, NULL, NULL},
		{"softverbs", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &o->on_double, NULL,
		 NULL},
		{NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL},
	};
	static const struct tool_range ranges[] = {
		{.option = "parents", .low = 1, .high = 1000},
		{.option = "bytes", .low = 1, .high = 1 << 30, .units = true},
		{.option = "rounds", .low = 1, .high = 1000000},
		{.option = "rails", .low = 0, .high = 16},
		{.option = "lanes", .low = 0, .high = 16},
		{.option = NULL},
	};

	return tool_parse(entries, ranges, "",
			  "Moves bytes between two processes through a backend, checks each of "
			  "them, and shows the ledger.",
			  argc, argv);
}

/* 0 leaves it to the backend. */
static void add_number(GStrvBuilder *settings, const char *key, int value)
{
	g_autofree char *setting = g_strdup_printf("%s=%d", key, value);

	if (value)
		g_strv_builder_add(settings, setting);
}

static bool complete(struct demo_options *o)
{
	struct demo_settings *s = &o->set;
	g_autoptr(GStrvBuilder) all = g_strv_builder_new();

	if (s->parents * s->parent_bytes > MOST_BYTES) {
		tool_complain("demo: --parents x --bytes %" G_GINT64_FORMAT
			      ": 1 to %" G_GINT64_FORMAT " is allowed",
			      s->parents * s->parent_bytes, MOST_BYTES);
		return false;
	}
	if (o->listen && o->connect) {
		tool_complain("demo: --listen and --connect: a machine is one end");
		return false;
	}
	if (!demo_place_good(o->listen, true) || !demo_place_good(o->connect, false) ||
	    !tool_settings_good("set", s->settings))
		return false;
	if (strcmp(s->op, "read") && strcmp(s->op, "write") && strcmp(s->op, "both")) {
		tool_complain("demo: --op %s: read, write or both", tool_shown(s->op));
		return false;
	}
	for (char **setting = s->settings; setting && *setting; setting++)
		g_strv_builder_add(all, *setting);
	add_number(all, "max_rails", o->rails);
	add_number(all, "num_lanes", o->lanes);
	g_strfreev(s->settings);
	s->settings = g_strv_builder_end(all);
	s->events = o->events;
	s->second = o->source;
	s->progress = !o->json && isatty(STDERR_FILENO);
	return true;
}

GPid demo_spawn(char *const *words, int channel)
{
	const int from[] = {channel}, to[] = {DEMO_CHANNEL_FD};
	g_autoptr(GError) error = NULL;
	GPid pid;

	/* -1: output is inherited. GLib would close a descriptor that is already in its place. */
	if (g_spawn_async_with_pipes_and_fds(NULL, (const char *const *)words, NULL,
					     G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, -1, -1, -1,
					     from, to, 1, &pid, NULL, NULL, NULL, &error))
		return pid;
	tool_complain("%s: %s", tool_command(), error->message);
	return -1;
}

GPid demo_start_source(char **argv, const char *backend, int channel)
{
	g_autoptr(GStrvBuilder) builder = g_strv_builder_new();
	g_auto(GStrv) words = NULL;

	g_strv_builder_add(builder, "/proc/self/exe");
	g_strv_builder_add(builder, tool_command());
	for (char **word = argv + 1; *word; word++)
		g_strv_builder_add(builder, *word);
	/* The same backend, also where it was chosen here: the last word counts. */
	g_strv_builder_add(builder, "--backend");
	g_strv_builder_add(builder, backend);
	g_strv_builder_add(builder, "--source");
	words = g_strv_builder_end(builder);
	return demo_spawn(words, channel);
}

static double gbps(uint64_t bytes, double seconds)
{
	return seconds > 0 ? (double)bytes / seconds / 1e9 : 0;
}

static void print_speed(const char *op, uint64_t bytes, double seconds)
{
	char speed[TOOL_NUMBER];

	if (bytes)
		printf("%-6s %12" G_GUINT64_FORMAT " bytes  %8s GB/s\n", op, bytes,
		       tool_number_show(speed, gbps(bytes, seconds), 3));
}

static void print_result(const struct demo_options *o, const struct demo_result *r, bool ok)
{
	printf("%s: %d parent%s of %" G_GINT64_FORMAT " bytes, %d round%s\n", o->set.backend,
	       o->set.parents, tool_s(o->set.parents), o->set.parent_bytes, o->set.rounds,
	       tool_s(o->set.rounds));
	print_speed("READ", r->read_bytes, r->read_seconds);
	print_speed("WRITE", r->write_bytes, r->write_seconds);
	if (r->ops)
		printf("bytes and guards: %s\n\n", r->bytes_right ? "right" : "WRONG");
	if (r->ledger)
		printf("requester, while the grant stood\n%s\n", r->ledger);
	if (r->source_ledger)
		printf("source, while the grant stood\n%s\n", r->source_ledger);
	printf("%s\n", ok ? "both engines closed, and every charge is back" : "FAILED");
}

static void print_json(const struct demo_options *o, const struct demo_result *r, bool ok)
{
	JsonBuilder *json = json_builder_new();

	json_builder_begin_object(json);
	json_add_bool(json, "ok", ok);
	json_add_string(json, "backend", o->set.backend);
	json_add_number(json, "parents", (uint64_t)o->set.parents);
	json_add_number(json, "parent_bytes", (uint64_t)o->set.parent_bytes);
	json_add_number(json, "rounds", (uint64_t)o->set.rounds);
	json_add_number(json, "read_bytes", r->read_bytes);
	json_add_double(json, "read_seconds", r->read_seconds);
	json_add_number(json, "write_bytes", r->write_bytes);
	json_add_double(json, "write_seconds", r->write_seconds);
	json_add_bool(json, "bytes_right", r->ops && r->bytes_right);
	json_add_bool(json, "closed_clean", r->closed_clean);
	json_builder_end_object(json);
	json_print(json);
}

/* Where no engine could be opened nothing was tried, and why not has been said. */
static int report(const struct demo_options *o, const struct demo_end *end,
		  const struct demo_result *result, bool ok)
{
	if (o->json)
		print_json(o, result, ok);
	else if (end->opened)
		print_result(o, result, ok);
	return ok ? TOOL_OK : end->opened ? TOOL_NO : TOOL_TROUBLE;
}

/* Both ends on this machine. */
static void clear(struct demo_result *result)
{
	g_free(result->ledger);
	g_free(result->source_ledger);
}

static int run_both(struct demo_options *o, char **argv)
{
	struct demo_end end = {.set = &o->set, .role = "requester"};
	struct demo_result result = {.bytes_right = false};
	int pair[2], status;
	GPid source;
	bool ok;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
		tool_complain("demo: no socket pair: %s", g_strerror(errno));
		return TOOL_TROUBLE;
	}
	if (!demo_end_load(&end)) { /* the other end would only say the same */
		close(pair[0]);
		close(pair[1]);
		return report(o, &end, &result, false);
	}
	source = demo_start_source(argv, o->set.backend, pair[1]);
	close(pair[1]);
	if (source < 0)
		return TOOL_TROUBLE;
	end.channel = pair[0];
	ok = demo_requester(&end, &result);
	if (!ok)
		shutdown(pair[0], SHUT_RDWR);
	status = demo_reap(source);
	ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	status = report(o, &end, &result, ok);
	clear(&result);
	return status;
}

static int run_source(struct demo_options *o, int channel)
{
	struct demo_end end = {.set = &o->set, .role = "source", .channel = channel};
	bool ok = channel >= 0 && demo_source(&end);

	return ok ? TOOL_OK : end.opened ? TOOL_NO : TOOL_TROUBLE;
}

static int run_requester(struct demo_options *o, int channel)
{
	struct demo_end end = {.set = &o->set, .role = "requester", .channel = channel};
	struct demo_result result = {.bytes_right = false};

	int status = TOOL_TROUBLE;

	if (channel >= 0)
		status = report(o, &end, &result, demo_requester(&end, &result));
	clear(&result);
	return status;
}

/* One end, when it is known that there is another one. */
static int run_over(struct demo_options *o, int channel, const char *where,
		    int (*end)(struct demo_options *, int))
{
	if (channel < 0)
		return TOOL_TROUBLE;
	return demo_greet(channel, where) ? end(o, channel) : TOOL_NO;
}

static int run(struct demo_options *o, char **words)
{
	int status;

	if (!o->set.backend)
		o->set.backend = demo_choose_backend(words, o->on_double);
	if (!o->set.op)
		o->set.op = g_strdup("both");
	if (!complete(o))
		return TOOL_TROUBLE;
	if (!o->source)
		tool_output_watch();
	ledger_serve_start();
	if (o->source)
		status = run_source(o, DEMO_CHANNEL_FD);
	else if (o->listen)
		status = run_over(o, demo_listen(o->listen), o->listen, run_source);
	else if (o->connect)
		status = run_over(o, demo_connect(o->connect), o->connect, run_requester);
	else
		status = run_both(o, words);
	ledger_serve_stop();
	if (o->on_double && !o->source)
		demo_leave_double();
	return status;
}

int demo_main(int argc, char **argv)
{
	struct demo_options o = {
		.set = {.parents = 8, .parent_bytes = 5 << 20, .rounds = 1},
	};
	g_auto(GStrv) words = g_strdupv(argv);
	int status = TOOL_TROUBLE;

	if (parse(&o, &argc, &argv)) {
		if (argc > 1)
			tool_complain("demo takes no argument: %s", argv[1]);
		else
			status = run(&o, words);
	}
	g_free(o.set.backend);
	g_free(o.set.op);
	g_free(o.listen);
	g_free(o.connect);
	g_strfreev(o.set.settings);
	return status;
}
