/* SPDX-License-Identifier: BSD-2-Clause */
/* What `escrow bench` prints for people, and as CSV. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/bench.h"
#include "tools/tool.h"

#define GIB ((double)(UINT64_C(1) << 30))

double bench_speed(const struct bench_options *o, const struct bench_result *r)
{
	static const double units[] = {[BENCH_GB] = 1e9, [BENCH_GIB] = GIB, [BENCH_GBIT] = 1e9 / 8};

	return r->ns ? (double)r->bytes / units[o->unit] / ((double)r->ns / 1e9) : 0;
}

double bench_mops(const struct bench_result *r)
{
	return r->ns ? (double)r->ops * 1e3 / (double)r->ns : 0;
}

double bench_cpu(const struct bench_result *r)
{
	return r->bytes ? (double)r->cpu_ns / 1e3 / ((double)r->bytes / GIB) : 0;
}

/* ---- The configuration ------------------------------------------------------------------------------- */
static void pair(GStrvBuilder *all, const char *name, const char *format, ...) G_GNUC_PRINTF(3, 4);

static void pair(GStrvBuilder *all, const char *name, const char *format, ...)
{
	g_autofree char *value = NULL;
	va_list args;

	va_start(args, format);
	value = g_strdup_vprintf(format, args);
	va_end(args);
	g_strv_builder_add(all, name);
	g_strv_builder_add(all, value);
}

/* words: names of the values, or NULL for numbers, of which 0 is the backend's own choice. */
static void pair_list(GStrvBuilder *all, const char *name, const struct bench_list *list,
		      const char *const *words)
{
	g_autoptr(GString) text = g_string_new(NULL);

	for (guint i = 0; i < list->n; i++) {
		guint64 v = list->value[i];

		if (words)
			g_string_append(text, words[v]);
		else if (v)
			g_string_append_printf(text, "%" G_GUINT64_FORMAT, v);
		else
			g_string_append(text, "default");
		if (i + 1 < list->n)
			g_string_append(text, ", ");
	}
	pair(all, name, "%s", text->str);
}

static char *cpu_model(void)
{
	g_autofree char *text = NULL;
	g_autofree char *line = NULL;
	const char *at;

	if (!g_file_get_contents("/proc/cpuinfo", &text, NULL, NULL) ||
	    !(at = strstr(text, "model name")) || !(at = strchr(at, ':')))
		return g_strdup("unknown processor");
	line = g_strndup(at + 1, strcspn(at + 1, "\n"));
	return g_strdup(g_strstrip(line));
}

static void pair_machine(GStrvBuilder *all, const struct bench_options *o)
{
	g_autofree char *model = cpu_model();
	struct utsname name;

	if (uname(&name) == 0)
		pair(all, "machine", "%s, %s %s, %ld processors: %s", name.nodename, name.sysname,
		     name.release, sysconf(_SC_NPROCESSORS_ONLN), model);
	if (o->other)
		pair(all, "ends", "requester here, source at %s", o->other);
	else
		pair(all, "ends", "two processes on this machine");
}

static void pair_measuring(GStrvBuilder *all, const struct bench_options *o)
{
	if (o->iterations)
		pair(all, "measured", "%" G_GINT64_FORMAT " ops a point, %d time(s)", o->iterations,
		     o->repeats);
	else
		pair(all, "measured", "%g s a point, %d time(s)", o->seconds, o->repeats);
	pair(all, "warm-up", "every block once, and a tenth of the work");
	pair(all, "memory",
	     "%" G_GUINT64_FORMAT " bytes to read and as many to write, %s pages, bytes %s",
	     o->area, o->set.hugepages ? "huge" : "common", o->check ? "checked" : "not checked");
	if (o->baseline)
		pair(all, "baseline",
		     "the same load without Escrow, in turns; ratio: median of %d "
		     "(lowest..highest), "
		     "speed above 1 and latency below 1 is better than raw",
		     o->repeats);
	if (o->cpus.n)
		pair_list(all, "processors", &o->cpus, NULL);
	else
		pair(all, "processors", "not bound");
	pair(all, "unit",
	     "%s/s; latencies in us: of the call that posts a batch, and from "
	     "there to its last completion",
	     bench_unit_names[o->unit]);
}

char **bench_configuration(const struct bench_requester *r)
{
	const struct bench_options *o = r->o;
	g_autoptr(GStrvBuilder) all = g_strv_builder_new();
	struct escrow_module_info info = {.size = sizeof(info)};
	g_autofree char *settings = o->set.settings && *o->set.settings
					    ? g_strjoinv(" ", o->set.settings)
					    : g_strdup("none");

	escrow_module_info(r->end.module, &info);
	pair(all, "escrow", "%s", PACKAGE_VERSION);
	pair(all, "backend", "%s %s, ABI revision %u, %s", info.backend ? info.backend->id : "?",
	     info.backend ? info.backend->version : "?", info.revision, info.path);
	pair(all, "devices", "%s", r->devices);
	pair(all, "settings", "%s", settings);
	pair_machine(all, o);
	pair_list(all, "op", &o->ops, bench_op_names);
	pair_list(all, "size", &o->sizes, NULL);
	pair_list(all, "batch", &o->batches, NULL);
	pair_list(all, "window", &o->windows, NULL);
	pair_list(all, "threads", &o->threads, NULL);
	pair_list(all, "rails", &o->rails, NULL);
	pair_list(all, "lanes", &o->lanes, NULL);
	pair_measuring(all, o);
	return g_strv_builder_end(all);
}

/* ---- Rows --------------------------------------------------------------------------------------------- */
/* avg, p50, p99, p99.9, max in us. */
static void five(const struct bench_times *t, double out[5])
{
	static const double shares[] = {0.5, 0.99, 0.999};

	out[0] = bench_times_avg(t) / 1e3;
	for (int i = 0; i < 3; i++)
		out[i + 1] = (double)bench_times_at(t, shares[i]) / 1e3;
	out[4] = (double)t->max / 1e3;
}

static void print_number(int width, double value, int places)
{
	char text[TOOL_NUMBER];

	printf(" %*s", width, tool_number_show(text, value, places));
}

/* Three digits that count, in eight columns. */
static void print_us(double us)
{
	print_number(7, us, us < 10 ? 2 : us < 100 ? 1 : 0);
}

static void print_times(const struct bench_times *t)
{
	double v[5];

	five(t, v);
	printf(" |");
	for (int i = 0; i < 5; i++)
		print_us(v[i]);
}

static void print_ratio(const struct bench_ratio *r)
{
	char median[TOOL_NUMBER], low[TOOL_NUMBER], high[TOOL_NUMBER];
	g_autofree char *text = g_strdup_printf(
		"%s (%s..%s)", tool_number_show(median, r->median, 3),
		tool_number_show(low, r->low, 3), tool_number_show(high, r->high, 3));

	printf(" %27s", text);
}

static const char csv_base_head[] =
	",raw_%s_per_s,ratio,ratio_low,ratio_high,p50_ratio,p50_ratio_low,p50_ratio_high";

static const char csv_head[] =
	"op,rails,lanes,connections,size,batch,window,threads,ops,bytes,seconds,%s_per_s,mops,"
	"post_avg_us,post_p50_us,post_p99_us,post_p999_us,post_max_us,"
	"transfer_avg_us,transfer_p50_us,transfer_p99_us,transfer_p999_us,transfer_max_us,"
	"cpu_us_per_gib,retries";

static void print_csv(const struct bench_options *o, const struct bench_row *row)
{
	const struct bench_result *r = &row->result;
	double v[10];

	five(&r->post, v);
	five(&r->transfer, v + 5);
	printf("%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%u,%u,%u,%" PRIu64 ",%" PRIu64
	       ",%.9f,%.6g,%.6g",
	       bench_op_names[row->work.op], row->rails, row->lanes, row->connections,
	       row->work.size, row->work.batch, row->work.window, row->work.threads, r->ops,
	       r->bytes, (double)r->ns / 1e9, bench_speed(o, r), bench_mops(r));
	for (int i = 0; i < 10; i++)
		printf(",%.3f", v[i]);
	printf(",%.1f,%" PRIu64, bench_cpu(r), r->retries);
	if (o->baseline)
		printf(",%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g", bench_speed(o, &row->base),
		       row->speed.median, row->speed.low, row->speed.high, row->latency.median,
		       row->latency.low, row->latency.high);
	printf("\n");
}

/* The columns of what the backend chooses where it is not told: only where they tell rows apart. */
#define CHOICE_WIDTH 7

static void print_choice(const struct bench_list *list, guint64 value)
{
	g_autofree char *text = value ? g_strdup_printf("%" G_GUINT64_FORMAT, value)
				      : g_strdup("default");

	if (list->n > 1)
		printf(" %*s", CHOICE_WIDTH, text);
}

static void print_choice_name(const struct bench_list *list, const char *name)
{
	if (list->n > 1)
		printf(" %*s", CHOICE_WIDTH, name);
}

static void print_row(const struct bench_options *o, const struct bench_row *row)
{
	const struct bench_result *r = &row->result;

	printf("%-5s", bench_op_names[row->work.op]);
	print_choice(&o->rails, row->rails);
	print_choice(&o->lanes, row->lanes);
	printf(" %4" PRIu64 " %8" PRIu64 " %5u %6u %7u %9" PRIu64, row->connections, row->work.size,
	       row->work.batch, row->work.window, row->work.threads, r->ops);
	print_number(8, bench_speed(o, r), 3);
	print_number(8, bench_mops(r), 4);
	print_times(&r->post);
	print_times(&r->transfer);
	printf(" | %10.0f %7" PRIu64, bench_cpu(r), r->retries);
	if (o->baseline) {
		printf(" |");
		print_number(9, bench_speed(o, &row->base), 3);
		print_ratio(&row->speed);
		print_ratio(&row->latency);
	}
	printf("\n");
}

static void print_csv_head(const struct bench_options *o)
{
	static const char *const units[] = {"gb", "gib", "gbit"};

	printf(csv_head, units[o->unit]);
	if (o->baseline)
		printf(csv_base_head, units[o->unit]);
	printf("\n");
}

static void print_head(const struct bench_requester *r)
{
	for (char **pair = r->configuration; *pair; pair += 2)
		printf("%-10s %s\n", pair[0], pair[1]);
	printf("\n%63s", "");
	print_choice_name(&r->o->rails, "");
	print_choice_name(&r->o->lanes, "");
	printf(" | %-39s | %-39s |\n%-5s", "post, us", "transfer, us", "op");
	print_choice_name(&r->o->rails, "rails");
	print_choice_name(&r->o->lanes, "lanes");
	printf(" %4s %8s %5s %6s %7s %9s %6s/s %8s", "conn", "size", "batch", "window", "threads",
	       "ops", bench_unit_names[r->o->unit], "Mops");
	for (int i = 0; i < 2; i++)
		printf(" | %7s %7s %7s %7s %7s", "avg", "p50", "p99", "p99.9", "max");
	printf(" | %10s %7s", "CPU us/GiB", "retries");
	if (r->o->baseline)
		printf(" | raw %3s/s %27s %27s", bench_unit_names[r->o->unit], "ratio (spread)",
		       "p50 ratio (spread)");
	printf("\n");
}

void bench_report_head(const struct bench_requester *r)
{
	if (r->o->format == BENCH_CSV)
		print_csv_head(r->o);
	else if (r->o->format == BENCH_TABLE)
		print_head(r);
	fflush(stdout);
}

void bench_report_row(const struct bench_options *o, const struct bench_row *row)
{
	if (o->format == BENCH_CSV)
		print_csv(o, row);
	else if (o->format == BENCH_TABLE)
		print_row(o, row);
	fflush(stdout);
}
