/* SPDX-License-Identifier: BSD-2-Clause */
/* All combinations of the lists, in the order of the table's columns. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/tool.h"

struct sweep {
	struct bench_requester *r;
	GPtrArray *rows;
	guint64 rails, lanes;
	guint total;
	gint64 start; /* us */
};

static void show_progress(const struct sweep *s, const struct bench_work *w)
{
	double each =
		s->rows->len
			? (double)(g_get_monotonic_time() - s->start) / 1e6 / s->rows->len
			: s->r->o->seconds * 1.1 * s->r->o->repeats * (s->r->o->baseline ? 2 : 1);

	if (s->r->o->progress)
		fprintf(stderr,
			"\r\033[K%u of %u: %s of %" G_GUINT64_FORMAT
			" bytes, batch %u, window %u, %u thread(s); about %.0f s left",
			s->rows->len + 1, s->total, bench_op_names[w->op], w->size, w->batch,
			w->window, w->threads, each * (s->total - s->rows->len));
}

static void clear_progress(const struct sweep *s)
{
	if (s->r->o->progress)
		fprintf(stderr, "\r\033[K");
}

static double speed(const struct bench_result *r)
{
	return r->ns ? (double)r->bytes / (double)r->ns : 0;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static struct bench_ratio ratio_of(double *values, guint n)
{
	qsort(values, n, sizeof(*values), compare);
	return (struct bench_ratio){.median = (values[(n - 1) / 2] + values[n / 2]) / 2,
				    .low = values[0],
				    .high = values[n - 1]};
}

/* Once with Escrow and once without, in turns: so that what disturbs the machine disturbs both. */
static bool both(struct bench_requester *r, const struct bench_work *work, bool base_first,
		 struct bench_result *result, struct bench_result *base)
{
	return base_first ? bench_base_point(r, work, base) && bench_session_point(r, work, result)
			  : bench_session_point(r, work, result) && bench_base_point(r, work, base);
}

static bool measure_ratio(struct bench_requester *r, struct bench_row *row)
{
	g_autofree struct bench_result *one = g_new(struct bench_result, 2);
	double speeds[BENCH_MAX_REPEATS] = {0}, latencies[BENCH_MAX_REPEATS] = {0};
	guint n = (guint)r->o->repeats;

	for (guint i = 0; i < n; i++) {
		memset(one, 0, 2 * sizeof(*one));
		if (!both(r, &row->work, i % 2, &one[0], &one[1]))
			return false;
		speeds[i] = speed(&one[0]) / speed(&one[1]);
		latencies[i] = (double)bench_times_at(&one[0].transfer, 0.5) /
			       (double)MAX(bench_times_at(&one[1].transfer, 0.5), 1);
		bench_result_add(&row->result, &one[0]);
		bench_result_add(&row->base, &one[1]);
	}
	row->speed = ratio_of(speeds, n);
	row->latency = ratio_of(latencies, n);
	return true;
}

static bool point(struct sweep *s, const struct bench_work *work)
{
	const struct bench_options *o = s->r->o;
	struct bench_row *row = g_new0(struct bench_row, 1);
	bool good = true;

	if (tool_output_lost()) {
		g_free(row);
		return false;
	}
	show_progress(s, work);
	row->rails = s->rails;
	row->lanes = s->lanes;
	row->connections = s->r->connections;
	row->work = *work;
	if (o->baseline)
		good = measure_ratio(s->r, row);
	for (int i = 0; good && !o->baseline && i < o->repeats; i++)
		good = bench_session_point(s->r, work, &row->result);
	clear_progress(s);
	if (!good) {
		g_free(row);
		return false;
	}
	g_ptr_array_add(s->rows, row);
	bench_report_row(o, row);
	return true;
}

/* Takes the next digit of a point's number, the last list first: what a value of the list is. */
static guint64 digit(guint *number, const struct bench_list *list)
{
	guint64 value = list->value[*number % list->n];

	*number /= list->n;
	return value;
}

static guint points_of(const struct bench_options *o)
{
	return o->ops.n * o->threads.n * o->windows.n * o->batches.n * o->sizes.n;
}

/* Point `number` of a session. */
static struct bench_work work_of(const struct bench_options *o, guint number)
{
	struct bench_work w = {.duration_ns = o->iterations ? 0 : (uint64_t)(o->seconds * 1e9),
			       .area = o->area,
			       .ncpus = o->cpus.n};
	uint64_t share;

	w.size = digit(&number, &o->sizes);
	w.batch = (uint32_t)digit(&number, &o->batches);
	w.window = (uint32_t)digit(&number, &o->windows);
	w.threads = (uint32_t)digit(&number, &o->threads);
	w.op = (uint32_t)digit(&number, &o->ops);
	share = (uint64_t)w.threads * w.batch;
	w.batches = ((uint64_t)o->iterations + share - 1) / share;
	w.places = bench_places(&w);
	for (guint i = 0; i < o->cpus.n; i++)
		w.cpus[i] = (uint32_t)o->cpus.value[i];
	return w;
}

static bool session_points(struct sweep *s)
{
	for (guint i = 0; i < points_of(s->r->o); i++) {
		struct bench_work work = work_of(s->r->o, i);

		if (!point(s, &work))
			return false;
	}
	return true;
}

static bool session(struct sweep *s)
{
	if (!bench_session_open(s->r, s->rails, s->lanes))
		return bench_session_abandon(s->r);
	if (!s->r->configuration) {
		s->r->configuration = bench_configuration(s->r);
		bench_report_head(s->r);
	}
	if (!session_points(s))
		return bench_session_abandon(s->r);
	return bench_session_close(s->r);
}

bool bench_sweep(struct bench_requester *r, GPtrArray *rows)
{
	const struct bench_options *o = r->o;
	struct sweep s = {.r = r, .rows = rows, .start = g_get_monotonic_time()};
	bool good = true;

	s.total = o->rails.n * o->lanes.n * points_of(o);
	for (guint i = 0; good && i < o->rails.n; i++)
		for (guint j = 0; good && j < o->lanes.n; j++) {
			s.rails = o->rails.value[i];
			s.lanes = o->lanes.value[j];
			good = session(&s);
		}
	return good;
}
