/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --plot DIR: a script for gnuplot with the data in it, and what gnuplot makes of it, each picture as
 * SVG and PNG.
 */
#include "config.h"

#include <errno.h>

#include "tools/bench.h"
#include "tools/tool.h"

#define SCRIPT "bench.gp"
#define MOST_LINES 10u /* that can be told apart in one picture */

/* What a row is told apart by, beside its op and size. */
enum dimension { RAILS, LANES, THREADS, WINDOW, BATCH, DIMENSIONS };

static const struct {
	const char *name, *label;
} dimensions[] = {[RAILS] = {"rails", "rails (0: all)"},
		  [LANES] = {"lanes", "lanes of each rail (0: the backend''s default)"},
		  [THREADS] = {"threads", "threads"},
		  [WINDOW] = {"window", "batches each thread has under way"},
		  [BATCH] = {"batch", "ops in a batch"}};

static guint64 place(const struct bench_row *row, int dimension)
{
	switch (dimension) {
	case RAILS:
		return row->rails;
	case LANES:
		return row->lanes;
	case THREADS:
		return row->work.threads;
	case WINDOW:
		return row->work.window;
	case BATCH:
		return row->work.batch;
	default:
		return row->work.size;
	}
}

/* Whether two rows differ at most in what a picture has on its x axis (DIMENSIONS: the size). */
static bool same_line(const struct bench_row *a, const struct bench_row *b, int axis)
{
	for (int d = 0; d <= DIMENSIONS; d++)
		if (d != axis && place(a, d) != place(b, d))
			return false;
	return a->work.op == b->work.op;
}

/* ---- One picture ------------------------------------------------------------------------------------------ */
struct picture {
	const struct bench_options *o;
	const GPtrArray *rows;
	GString *script; /* of all pictures */
	GString *lines;  /* the arguments of this one's plot command */
	const char *with;
	int axis;
	guint nlines, nblocks;
};

/* What is shown of a row, with its spread. */
typedef void (*value_fn)(const struct bench_options *o, const struct bench_row *row,
			 struct bench_ratio *value);

static const char preamble[] =
	"# Made by escrow bench: gnuplot " SCRIPT " in this folder makes the pictures again.\n"
	"set encoding utf8\n"
	"set border 3 lc rgb '#666666'\n"
	"set tics nomirror tc rgb '#333333'\n"
	"set grid lc rgb '#dddddd' lw 1\n"
	"set key outside right top Left reverse samplen 2 spacing 1.3\n"
	"set offsets graph 0.03, graph 0.03, 0, 0\n"
	"colours = '#0072b2 #d55e00 #009e73 #cc79a7 #e69f00 #56b4e9 #882255 #999933 #44aa99 "
	"#555555'\n"
	"do for [i=1:10] { set style line i lc rgb word(colours, i) lw 2.5 pt 7 ps 0.8 }\n"
	"svg = 'svg size 1000,560 dynamic background \"white\" font \"DejaVu Sans,13\"'\n"
	"png = 'pngcairo size 1500,840 background \"white\" font \"DejaVu Sans,13\" fontscale 1.4 "
	"linewidth 1.5 pointscale 1.5'\n"
	"set logscale x 2\n\n";

static void begin(struct picture *p, int axis, const char *title, const char *y)
{
	p->axis = axis;
	p->with = "linespoints";
	p->lines = g_string_new(NULL);
	p->nlines = 0;
	g_string_append_printf(p->script,
			       "set title '%s'\nset xlabel '%s'\nset ylabel '%s'\n"
			       "set format x '%s'\nset format y '%%g'\n",
			       title,
			       axis == DIMENSIONS ? "bytes of an op" : dimensions[axis].label, y,
			       axis == DIMENSIONS ? "%.0b%B" : "%.0f");
}

/* The line that a row is on; style: which colour, rest: how it differs from that. */
static void line(struct picture *p, const struct bench_row *on, const char *title, guint style,
		 const char *rest, value_fn value)
{
	if (p->nlines++ >= MOST_LINES)
		return;
	g_string_append_printf(p->script, "$d%u << E\n", p->nblocks);
	for (guint i = 0; i < p->rows->len; i++) {
		const struct bench_row *row = g_ptr_array_index(p->rows, i);

		struct bench_ratio v;

		if (!same_line(on, row, p->axis))
			continue;
		value(p->o, row, &v);
		g_string_append_printf(p->script, "%" G_GUINT64_FORMAT " %.9g %.9g %.9g\n",
				       place(row, p->axis), v.median, v.low, v.high);
	}
	g_string_append(p->script, "E\n");
	g_string_append_printf(p->lines, "%s$d%u with %s ls %u %s title '%s'",
			       p->lines->len ? ", \\\n\t\t" : "", p->nblocks++, p->with, style + 1,
			       rest, title);
}

static void end(struct picture *p, const char *name)
{
	g_string_append_printf(p->script,
			       "do for [t in 'svg png'] {\n"
			       "\teval 'set terminal '.value(t)\n"
			       "\tset output '%s.'.t\n"
			       "\tplot %s\n}\nunset output\n\n",
			       name, p->lines->str);
	g_string_free(p->lines, TRUE);
}

/* ---- Which lines ------------------------------------------------------------------------------------------- */
/* Whether a line of this axis starts at row i: no row before is on it. */
static bool first_of_line(const struct picture *p, guint i, int axis)
{
	for (guint j = 0; j < i; j++)
		if (same_line(g_ptr_array_index(p->rows, j), g_ptr_array_index(p->rows, i), axis))
			return false;
	return true;
}

static bool varies(const struct picture *p, int dimension)
{
	const struct bench_row *first = g_ptr_array_index(p->rows, 0);

	for (guint i = 1; i < p->rows->len; i++)
		if (place(g_ptr_array_index(p->rows, i), dimension) != place(first, dimension))
			return true;
	return false;
}

static void append_varied(const struct picture *p, const struct bench_row *row, GString *text)
{
	for (int d = 0; d < DIMENSIONS; d++)
		if (d != p->axis && varies(p, d))
			g_string_append_printf(text, ", %s %" G_GUINT64_FORMAT, dimensions[d].name,
					       place(row, d));
}

/* What tells a line from the others of its picture: the op, and what varies. */
static char *line_title(const struct picture *p, const struct bench_row *row)
{
	g_autoptr(GString) text = g_string_new(bench_op_names[row->work.op]);

	if (p->axis != DIMENSIONS) {
		g_autofree char *size = g_format_size_full(row->work.size, G_FORMAT_SIZE_IEC_UNITS);

		g_string_append_printf(text, " %s", size);
	}
	append_varied(p, row, text);
	return g_string_free(g_steal_pointer(&text), FALSE);
}

/* Over the size all rows are shown; over anything else a small, a middle and a large size. */
static bool shown(const struct picture *p, const struct bench_row *row)
{
	const struct bench_list *sizes = &p->o->sizes;

	return p->axis == DIMENSIONS || row->work.size == sizes->value[0] ||
	       row->work.size == sizes->value[sizes->n / 2] ||
	       row->work.size == sizes->value[sizes->n - 1];
}

/* base: what the baseline did, a broken line of the same colour; or NULL. */
static void all_lines(struct picture *p, value_fn value, value_fn base)
{
	guint style = 0;

	for (guint i = 0; i < p->rows->len; i++) {
		const struct bench_row *row = g_ptr_array_index(p->rows, i);
		g_autofree char *title = NULL;

		if (!shown(p, row) || !first_of_line(p, i, p->axis))
			continue;
		title = line_title(p, row);
		line(p, row, title, style, "", value);
		if (base && p->o->baseline) {
			g_autofree char *raw = g_strconcat("raw ", title, NULL);

			line(p, row, raw, style, "dt 2 pt 6", base);
		}
		style++;
	}
}

/* ---- What is shown ------------------------------------------------------------------------------------------ */
static void exactly(struct bench_ratio *v, double value)
{
	v->median = v->low = v->high = value;
}

static void speed(const struct bench_options *o, const struct bench_row *row, struct bench_ratio *v)
{
	exactly(v, bench_speed(o, &row->result));
}

static void base_speed(const struct bench_options *o, const struct bench_row *row,
		       struct bench_ratio *v)
{
	exactly(v, bench_speed(o, &row->base));
}

static void rate(const struct bench_options *o, const struct bench_row *row, struct bench_ratio *v)
{
	(void)o;
	exactly(v, bench_mops(&row->result));
}

static void base_rate(const struct bench_options *o, const struct bench_row *row,
		      struct bench_ratio *v)
{
	(void)o;
	exactly(v, bench_mops(&row->base));
}

static void speed_ratio(const struct bench_options *o, const struct bench_row *row,
			struct bench_ratio *v)
{
	(void)o;
	*v = row->speed;
}

static void p50(const struct bench_options *o, const struct bench_row *row, struct bench_ratio *v)
{
	(void)o;
	exactly(v, (double)bench_times_at(&row->result.transfer, 0.5) / 1e3);
}

static void p99(const struct bench_options *o, const struct bench_row *row, struct bench_ratio *v)
{
	(void)o;
	exactly(v, (double)bench_times_at(&row->result.transfer, 0.99) / 1e3);
}

static void p999(const struct bench_options *o, const struct bench_row *row, struct bench_ratio *v)
{
	(void)o;
	exactly(v, (double)bench_times_at(&row->result.transfer, 0.999) / 1e3);
}

static void bandwidth(struct picture *p)
{
	g_autofree char *y = g_strdup_printf("%s/s", bench_unit_names[p->o->unit]);

	begin(p, DIMENSIONS, "Bandwidth over size", y);
	g_string_append(p->script, "unset logscale y\nset yrange [0:*]\n");
	all_lines(p, speed, base_speed);
	end(p, "bandwidth");
}

static void rates(struct picture *p)
{
	begin(p, DIMENSIONS, "Rate over size", "millions of ops a second");
	g_string_append(p->script, "set logscale y 10\nset yrange [*:*]\n");
	all_lines(p, rate, base_rate);
	end(p, "rate");
}

static void ratio(struct picture *p)
{
	begin(p, DIMENSIONS, "Bandwidth as a part of the baseline''s",
	      "median, lowest and highest ratio");
	g_string_append(p->script, "set logscale y 2\nset yrange [*<0.25:4<*]\n");
	g_string_append(p->lines, "1 with lines lc rgb '#333333' lw 1.5 notitle");
	p->with = "yerrorlines";
	all_lines(p, speed_ratio, NULL);
	end(p, "ratio");
}

/* What is shown is the first value of what varies, which the title says. */
static char *latency_title(struct picture *p)
{
	g_autoptr(GString)
		text = g_string_new("Latency of a batch, from its call to its last completion");

	p->axis = DIMENSIONS;
	append_varied(p, g_ptr_array_index(p->rows, 0), text);
	return g_string_free(g_steal_pointer(&text), FALSE);
}

/* One colour an op; the percentiles are told apart by their lines. Of each op the first line. */
static void latency(struct picture *p)
{
	static const struct {
		const char *name, *style;
		value_fn value;
	} levels[] = {
		{"p50", "dt 1", p50}, {"p99", "dt 2 pt 6", p99}, {"p99.9", "dt 3 pt 4", p999}};
	guint seen = 0, style = 0;
	g_autofree char *title = latency_title(p);

	begin(p, DIMENSIONS, title, "us");
	g_string_append(p->script, "set logscale y 10\nset yrange [*:*]\n");
	for (guint i = 0; i < p->rows->len; i++) {
		const struct bench_row *row = g_ptr_array_index(p->rows, i);

		if (seen & (1u << row->work.op))
			continue;
		seen |= 1u << row->work.op;
		for (guint level = 0; level < G_N_ELEMENTS(levels); level++) {
			g_autofree char *name = g_strdup_printf(
				"%s %s", bench_op_names[row->work.op], levels[level].name);

			line(p, row, name, style, levels[level].style, levels[level].value);
		}
		style++;
	}
	end(p, "latency");
}

static void scaling(struct picture *p, int dimension)
{
	g_autofree char *y = g_strdup_printf("%s/s", bench_unit_names[p->o->unit]);
	g_autofree char *title = g_strdup_printf("Scaling with %s", dimensions[dimension].name);
	g_autofree char *name = g_strdup_printf("scaling-%s", dimensions[dimension].name);

	begin(p, dimension, title, y);
	g_string_append(p->script, "unset logscale y\nset yrange [0:*]\n");
	all_lines(p, speed, NULL);
	end(p, name);
}

/* ---- Files --------------------------------------------------------------------------------------------------- */
bool bench_plot_ready(const char *folder)
{
	g_autofree char *gnuplot = g_find_program_in_path("gnuplot");

	if (!gnuplot) {
		tool_complain("bench: --plot: gnuplot is not installed (package gnuplot-nox)");
		return false;
	}
	if (!g_mkdir_with_parents(folder, 0777))
		return true;
	tool_complain("bench: --plot %s: %s", folder, g_strerror(errno));
	return false;
}

static bool run_gnuplot(const char *folder)
{
	char *const words[] = {(char[]){"gnuplot"}, (char[]){SCRIPT}, NULL};
	g_autofree char *said = NULL;
	g_autoptr(GError) error = NULL;
	int status = 0;

	if (g_spawn_sync(folder, (char **)(uintptr_t)words, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL,
			 NULL, &said, &status, &error) &&
	    g_spawn_check_wait_status(status, &error))
		return true;
	tool_complain("bench: --plot: gnuplot: %s\n%s", error->message, said ? said : "");
	return false;
}

bool bench_plot(const struct bench_options *o, const GPtrArray *rows, const char *folder)
{
	struct picture p = {.o = o, .rows = rows, .script = g_string_new(preamble)};
	g_autofree char *path = g_build_filename(folder, SCRIPT, NULL);
	g_autoptr(GError) error = NULL;
	bool written;

	bandwidth(&p);
	rates(&p);
	latency(&p);
	if (o->baseline)
		ratio(&p);
	for (int d = 0; d < DIMENSIONS; d++)
		if (varies(&p, d))
			scaling(&p, d);
	written = g_file_set_contents(path, p.script->str, (gssize)p.script->len, &error);
	g_string_free(p.script, TRUE);
	if (!written)
		tool_complain("bench: --plot: %s", error->message);
	return written && run_gnuplot(folder);
}
