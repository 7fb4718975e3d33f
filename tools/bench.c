/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/bench.h"
#include "tools/info.h"
#include "tools/ledger-view.h"
#include "tools/tool.h"

#define DEFAULT_AREA (UINT64_C(64) << 20) /* at most, unless one block of each thread needs more */
#define DEFAULT_SECONDS 1
#define UNSET G_MININT
#define MOST_AREA (UINT64_C(64) << 30)

/* The command line as it is given. */
struct words {
	char *op, *size, *batch, *window, *threads, *lanes, *rails, *pin, *memory, *unit, *plot,
		*baseline;
	double duration;
	gint64 iterations;
	char *listen, *connect;
	gboolean csv, json, source, on_double;
	gboolean hugepages, check;
	char *backend;
	char **settings;
	gint repeats;
};

static bool parse(struct words *w, int *argc, char ***argv)
{
	const GOptionEntry entries[] = {
		{"backend", 'b', 0, G_OPTION_ARG_FILENAME, &w->backend,
		 "Name or path (default: rdma, on softverbs where there is no device)", "BACKEND"},
		{"op", 0, 0, G_OPTION_ARG_STRING, &w->op, "read, write, mix (read,write)", "LIST"},
		{"size", 0, 0, G_OPTION_ARG_STRING, &w->size,
		 "Bytes of an op; 64-1M doubles (64,4K,64K,1M)", "LIST"},
		{"batch", 0, 0, G_OPTION_ARG_STRING, &w->batch, "Ops posted by one call (1)",
		 "LIST"},
		{"window", 0, 0, G_OPTION_ARG_STRING, &w->window,
		 "Batches each thread has under way (16)", "LIST"},
		{"threads", 0, 0, G_OPTION_ARG_STRING, &w->threads, "Threads that post (1)",
		 "LIST"},
		{"lanes", 0, 0, G_OPTION_ARG_STRING, &w->lanes,
		 "Lanes of each rail (0, the default: the backend's choice)", "LIST"},
		{"rails", 0, 0, G_OPTION_ARG_STRING, &w->rails,
		 "Use at most so many rails (0, the default: the backend's choice)", "LIST"},
		{"duration", 0, 0, G_OPTION_ARG_DOUBLE, &w->duration, "Of a point (1)", "SECONDS"},
		{"iterations", 0, 0, G_OPTION_ARG_INT64, &w->iterations,
		 "Ops of a point, instead of a duration", "N"},
		{"repeat", 0, 0, G_OPTION_ARG_INT, &w->repeats,
		 "Measure each point N times (1, with --baseline 5)", "N"},
		{"check", 0, 0, G_OPTION_ARG_NONE, &w->check, "Compare all bytes after each point",
		 NULL},
		{"pin", 0, 0, G_OPTION_ARG_STRING, &w->pin, "Processors of the threads, in turn",
		 "LIST"},
		{"hugepages", 0, 0, G_OPTION_ARG_NONE, &w->hugepages, "Use huge pages", NULL},
		{"memory", 0, 0, G_OPTION_ARG_STRING, &w->memory,
		 "Bytes to read and as many to write (what is under way, at most 64M)", "BYTES"},
		{"unit", 0, 0, G_OPTION_ARG_STRING, &w->unit, "GB (1e9), GiB or Gb (GB)", "UNIT"},
		{"csv", 0, 0, G_OPTION_ARG_NONE, &w->csv, "Comma-separated values", NULL},
		{"json", 0, 0, G_OPTION_ARG_NONE, &w->json, "Machine-readable output", NULL},
		{"baseline", 0, 0, G_OPTION_ARG_STRING, &w->baseline,
		 "raw: the same load by bare verbs (the mock: by memcpy), in turns", "WHAT"},
		{"plot", 0, 0, G_OPTION_ARG_FILENAME, &w->plot, "Pictures, SVG and PNG, by gnuplot",
		 "DIR"},
		{"set", 's', 0, G_OPTION_ARG_FILENAME_ARRAY, &w->settings,
		 "A setting of the backend; may be repeated", "KEY=VALUE"},
		{"listen", 0, 0, G_OPTION_ARG_STRING, &w->listen,
		 "Be the source only, for a requester on another machine", "[HOST]:PORT"},
		{"connect", 0, 0, G_OPTION_ARG_STRING, &w->connect,
		 "Be the requester only, of the source that listens there", "HOST:PORT"},
		{"source", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &w->source, NULL, NULL},
		{"softverbs", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &w->on_double, NULL,
		 NULL},
		{NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL},
	};
	static const struct tool_range ranges[] = {
		{.option = "duration", .low = 0.001, .high = 86400},
		{.option = "iterations", .low = 1, .high = 1e12},
		{.option = "repeat", .low = 1, .high = BENCH_MAX_REPEATS},
		{.option = NULL},
	};

	return tool_parse(entries, ranges, "",
			  "Measures READ and WRITE between two processes through a backend. A LIST "
			  "is 64,4K,1M or 1-8 (1,2,4,8); all combinations are measured.",
			  argc, argv);
}

/* ---- From words to options ------------------------------------------------------------------------------ */
static bool lists(struct bench_options *o, const struct words *w)
{
	const struct {
		struct bench_range range;
		const char *text, *preset;
		struct bench_list *list;
	} all[] = {
		{{"size", "64,4K,1M-8M", 1, UINT64_C(1) << 30}, w->size, "64,4K,64K,1M", &o->sizes},
		{{"batch", "1,8,16-64", 1, BENCH_MAX_BATCH}, w->batch, "1", &o->batches},
		{{"window", "1,16-64", 1, BENCH_MAX_WINDOW}, w->window, "16", &o->windows},
		{{"threads", "1,2-8", 1, BENCH_MAX_THREADS}, w->threads, "1", &o->threads},
		{{"lanes", "1,2-8", 0, 16}, w->lanes, "0", &o->lanes},
		{{"rails", "1,2", 0, 16}, w->rails, "0", &o->rails},
	};

	for (guint i = 0; i < G_N_ELEMENTS(all); i++)
		if (!bench_list_parse(&all[i].range, all[i].text ? all[i].text : all[i].preset,
				      all[i].list))
			return false;
	return bench_words_parse("op", w->op ? w->op : "read,write", bench_op_names, &o->ops);
}

static bool processors(struct bench_options *o, const struct words *w)
{
	const struct bench_range range = {"pin", "0,2", 0, CPU_SETSIZE - 1};
	cpu_set_t allowed;

	if (!w->pin)
		return true;
	if (!bench_list_parse(&range, w->pin, &o->cpus))
		return false;
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		CPU_ZERO(&allowed);
	for (guint i = 0; i < o->cpus.n; i++)
		if (!CPU_ISSET(o->cpus.value[i], &allowed)) {
			tool_complain("bench: --pin %" PRIu64
				      ": this process may not run there, but on %d processor(s)",
				      o->cpus.value[i], CPU_COUNT(&allowed));
			return false;
		}
	return true;
}

static guint64 largest(const struct bench_list *list)
{
	guint64 value = 0;

	for (guint i = 0; i < list->n; i++)
		value = MAX(value, list->value[i]);
	return value;
}

static guint64 smallest(const struct bench_list *list)
{
	guint64 value = list->value[0];

	for (guint i = 1; i < list->n; i++)
		value = MIN(value, list->value[i]);
	return value;
}

/* What the largest point has under way; no thread goes without a block. */
static bool memory(struct bench_options *o, const struct words *w)
{
	guint64 block = (largest(&o->sizes) + 63) / 64 * 64;
	guint64 least = block * largest(&o->threads);
	guint64 most = least * largest(&o->batches) * largest(&o->windows);
	const struct bench_range range = {"memory", NULL, least, MAX(least, MOST_AREA)};
	struct bench_list given;

	o->area = MAX(MIN(most, DEFAULT_AREA), least);
	if (!w->memory)
		return true;
	if (!bench_list_parse(&range, w->memory, &given))
		return false;
	o->area = given.value[0] / 64 * 64;
	return true;
}

static void amounts(struct bench_options *o, const struct words *w)
{
	o->seconds = w->duration ? w->duration : DEFAULT_SECONDS;
	o->iterations = w->iterations;
	o->repeats = w->repeats != UNSET ? w->repeats : o->baseline ? 5 : 1;
}

static bool output(struct bench_options *o, const struct words *w)
{
	guint64 unit;

	if (!bench_word_parse("unit", w->unit ? w->unit : "GB", bench_unit_names, &unit))
		return false;
	o->unit = (enum bench_unit)unit;
	o->format = w->json ? BENCH_JSON : w->csv ? BENCH_CSV : BENCH_TABLE;
	o->progress = isatty(STDERR_FILENO);
	return true;
}

/* What the source of another machine has no use for: the requester decides. */
static bool source_needs(const struct words *w)
{
	const struct {
		const char *option;
		bool given;
	} all[] = {
		{"op", w->op},
		{"size", w->size},
		{"batch", w->batch},
		{"window", w->window},
		{"threads", w->threads},
		{"lanes", w->lanes},
		{"rails", w->rails},
		{"duration", w->duration},
		{"iterations", w->iterations},
		{"repeat", w->repeats != UNSET},
		{"check", w->check},
		{"pin", w->pin},
		{"hugepages", w->hugepages},
		{"memory", w->memory},
		{"unit", w->unit},
		{"csv", w->csv},
		{"json", w->json},
		{"baseline", w->baseline},
		{"plot", w->plot},
	};

	for (guint i = 0; i < G_N_ELEMENTS(all); i++)
		if (all[i].given) {
			tool_complain("bench: --listen and --%s: the requester decides that; "
				      "--backend and --set are allowed",
				      all[i].option);
			return false;
		}
	return true;
}

/* Of each of these pairs one. */
static bool agree(const struct words *w)
{
	const char *why = w->json && w->csv         ? "--csv and --json: one of them"
			  : w->listen && w->connect ? "--listen and --connect: a machine is one end"
			  : w->iterations && w->duration
				  ? "--iterations and --duration: a point ends by one of them"
				  : NULL;

	if (why)
		tool_complain("bench: %s", why);
	return !why && (!w->listen || source_needs(w));
}

static bool baseline(const struct words *w)
{
	static const char *const names[] = {"raw", NULL};
	guint64 found;

	return !w->baseline || bench_word_parse("baseline", w->baseline, names, &found);
}

static bool complete(struct bench_options *o, const struct words *w)
{
	o->set.settings = w->settings;
	o->set.hugepages = w->hugepages;
	o->set.second = w->source;
	o->check = w->check;
	o->other = w->connect;
	o->plot = w->plot;
	o->baseline = w->baseline != NULL;
	amounts(o, w);
	return agree(w) && demo_place_good(w->listen, true) && demo_place_good(w->connect, false) &&
	       tool_settings_good("set", w->settings) && lists(o, w) && processors(o, w) &&
	       memory(o, w) && baseline(w) && output(o, w) &&
	       (!o->plot || w->source || bench_plot_ready(o->plot));
}

/* ---- The ends ---------------------------------------------------------------------------------------------- */
/*
 * Loads the backend for the first session, and asks it for its devices, while this process has no
 * threads and no engine: where it cannot be had no other end need be started to say the same.
 */
static bool ready(struct bench_requester *r)
{
	g_auto(GStrv) settings =
		bench_settings(r->o->set.settings, r->o->rails.value[0], r->o->lanes.value[0]);
	/* the most rails that a session has; 0: all */
	g_auto(GStrv) widest = bench_settings(
		r->o->set.settings, smallest(&r->o->rails) ? largest(&r->o->rails) : 0, 0);

	r->set = r->o->set;
	r->set.settings = settings;
	r->end.set = &r->set;
	r->end.role = "requester";
	if (!demo_end_load(&r->end))
		return false;
	r->devices = info_rails_devices(r->end.module, (const char *const *)widest);
	return true;
}

/* TOOL_TROUBLE: it did not come to the first point. */
static int measure(struct bench_requester *r, int channel)
{
	const struct bench_options *o = r->o;
	GPtrArray *rows = g_ptr_array_new_with_free_func(g_free);
	bool good;

	r->end.channel = channel;
	r->message = g_new0(struct demo_message, 1);
	good = bench_sweep(r, rows);
	if (o->format == BENCH_JSON && r->configuration)
		bench_report_json(r, rows, good);
	if (good && o->plot)
		good = bench_plot(o, rows, o->plot);
	g_ptr_array_unref(rows);
	g_free(r->message);
	return good ? TOOL_OK : r->configuration ? TOOL_NO : TOOL_TROUBLE;
}

static int run_both(struct bench_requester *r, char **argv)
{
	int pair[2], status, ended;
	GPid source;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
		tool_complain("bench: no socket pair: %s", g_strerror(errno));
		return TOOL_TROUBLE;
	}
	source = demo_start_source(argv, r->o->set.backend, pair[1]);
	close(pair[1]);
	if (source < 0)
		return TOOL_TROUBLE;
	status = measure(r, pair[0]);
	close(pair[0]);
	ended = demo_reap(source);
	return status == TOOL_OK && ended ? TOOL_NO : status;
}

static int run_source(struct bench_requester *r, int channel)
{
	return bench_source(&r->o->set, channel) ? TOOL_OK : TOOL_NO;
}

/* One end, when it is known that there is another one. */
static int run_over(struct bench_requester *r, int channel, const char *where,
		    int (*end)(struct bench_requester *, int))
{
	if (channel < 0)
		return TOOL_TROUBLE;
	return demo_greet(channel, where) ? end(r, channel) : TOOL_NO;
}

/* Whatever ends are here. */
static int run_ends(const struct words *w, struct bench_requester *r, char **argv)
{
	if (w->source)
		return run_source(r, DEMO_CHANNEL_FD);
	if (w->listen)
		return run_over(r, demo_listen(w->listen), w->listen, run_source);
	if (w->connect)
		return run_over(r, demo_connect(w->connect), w->connect, measure);
	return run_both(r, argv);
}

static int run(struct words *w, char **argv)
{
	struct bench_options o = {.area = 0};
	struct bench_requester r = {.o = &o};
	int status = TOOL_TROUBLE;

	if (!complete(&o, w))
		return TOOL_TROUBLE;
	if (!w->backend)
		w->backend = demo_choose_backend(argv, w->on_double);
	o.set.backend = w->backend;
	if (w->source || w->listen || ready(&r)) {
		if (!w->source)
			tool_output_watch();
		ledger_serve_start();
		status = run_ends(w, &r, argv);
		ledger_serve_stop();
	}
	if (w->on_double && !w->source)
		demo_leave_double();
	g_strfreev(r.configuration);
	g_free(r.devices);
	return status;
}

static void clear(struct words *w)
{
	char *texts[] = {w->op,    w->size,     w->batch,  w->window,  w->threads,
			 w->lanes, w->rails,    w->pin,    w->memory,  w->unit,
			 w->plot,  w->baseline, w->listen, w->connect, w->backend};

	for (guint i = 0; i < G_N_ELEMENTS(texts); i++)
		g_free(texts[i]);
	g_strfreev(w->settings);
}

int bench_main(int argc, char **argv)
{
	struct words w = {.repeats = UNSET};
	g_auto(GStrv) copy = g_strdupv(argv);
	int status = TOOL_TROUBLE;

	if (parse(&w, &argc, &argv)) {
		if (argc > 1)
			tool_complain("bench takes no argument: %s", argv[1]);
		else
			status = run(&w, copy);
	}
	clear(&w);
	return status;
}
