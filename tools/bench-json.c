/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include "tools/bench.h"
#include "tools/json.h"

static void add_times(JsonBuilder *json, const char *member, const struct bench_times *t)
{
	json_builder_set_member_name(json, member);
	json_builder_begin_object(json);
	json_add_double(json, "avg", bench_times_avg(t) / 1e3);
	json_add_double(json, "p50", (double)bench_times_at(t, 0.5) / 1e3);
	json_add_double(json, "p99", (double)bench_times_at(t, 0.99) / 1e3);
	json_add_double(json, "p999", (double)bench_times_at(t, 0.999) / 1e3);
	json_add_double(json, "max", (double)t->max / 1e3);
	json_builder_end_object(json);
}

static void add_result(JsonBuilder *json, const struct bench_result *r)
{
	json_add_number(json, "ops", r->ops);
	json_add_number(json, "bytes", r->bytes);
	json_add_double(json, "seconds", (double)r->ns / 1e9);
	json_add_double(json, "bytes_per_second",
			r->ns ? (double)r->bytes / ((double)r->ns / 1e9) : 0);
	json_add_double(json, "mops", bench_mops(r));
	add_times(json, "post_us", &r->post);
	add_times(json, "transfer_us", &r->transfer);
	json_add_double(json, "cpu_us_per_gib", bench_cpu(r));
	json_add_number(json, "retries", r->retries);
}

static void add_ratio(JsonBuilder *json, const char *member, const struct bench_ratio *r)
{
	json_builder_set_member_name(json, member);
	json_builder_begin_object(json);
	json_add_double(json, "median", r->median);
	json_add_double(json, "low", r->low);
	json_add_double(json, "high", r->high);
	json_builder_end_object(json);
}

static void add_base(JsonBuilder *json, const struct bench_row *row)
{
	json_builder_set_member_name(json, "baseline");
	json_builder_begin_object(json);
	add_result(json, &row->base);
	json_builder_end_object(json);
	add_ratio(json, "ratio", &row->speed);
	add_ratio(json, "p50_ratio", &row->latency);
}

static void add_row(JsonBuilder *json, const struct bench_row *row)
{
	json_builder_begin_object(json);
	json_add_string(json, "op", bench_op_names[row->work.op]);
	json_add_number(json, "rails", row->rails);
	json_add_number(json, "lanes", row->lanes);
	json_add_number(json, "connections", row->connections);
	json_add_number(json, "size", row->work.size);
	json_add_number(json, "batch", row->work.batch);
	json_add_number(json, "window", row->work.window);
	json_add_number(json, "threads", row->work.threads);
	add_result(json, &row->result);
	if (row->base.ops)
		add_base(json, row);
	json_builder_end_object(json);
}

void bench_report_json(const struct bench_requester *r, const GPtrArray *rows, bool ok)
{
	JsonBuilder *json = json_builder_new();

	json_builder_begin_object(json);
	json_add_bool(json, "ok", ok);
	json_builder_set_member_name(json, "configuration");
	json_builder_begin_object(json);
	for (char **pair = r->configuration; pair && *pair; pair += 2)
		json_add_string(json, pair[0], pair[1]);
	json_builder_end_object(json);
	json_builder_set_member_name(json, "points");
	json_builder_begin_array(json);
	for (guint i = 0; i < rows->len; i++)
		add_row(json, g_ptr_array_index(rows, i));
	json_builder_end_array(json);
	json_builder_end_object(json);
	json_print(json);
}
