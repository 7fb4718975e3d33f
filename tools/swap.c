/* SPDX-License-Identifier: BSD-2-Clause */
/* escrow swap: a living process changes its backend for another and back, while it transfers. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "plugin/escrow.h"
#include "tools/json.h"
#include "tools/ledger-view.h"
#include "tools/swap-ends.h"
#include "tools/tool.h"

#define MAX_RECORDS 32

struct swap_options {
	int times;
	gboolean dry_run, json, verbose;
	char **settings;
};

struct swap_run {
	const struct swap_options *o;
	struct swap_ends ends;
	const char *names[2];
	JsonBuilder *json; /* NULL: text */
	int committed;
};

static bool load(struct swap_run *run, int which)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_load_args args = {
		.size = sizeof(args),
		.flags = ESCROW_LOAD_COPY | ESCROW_LOAD_PROBE,
		.name = run->names[which],
	};

	if (escrow_load(&args, &run->ends.modules[which], &error) == ESCROW_OK)
		return true;
	tool_complain("swap: %s: %s", run->names[which], error.text);
	return false;
}

static const char *outcome_name(uint32_t outcome)
{
	static const char *const names[] = {"running", "done", "failed", "taken back"};

	return outcome < G_N_ELEMENTS(names) ? names[outcome] : "?";
}

static void tell_record(struct swap_run *run, const struct escrow_swap_record *r)
{
	double ms = (double)(r->end_ns - r->start_ns) / 1e6;

	if (!run->json) {
		printf("  %2u %-10s %-10s %9.3f ms  %s\n", r->step, escrow_swap_step_name(r->step),
		       outcome_name(r->outcome), ms, r->text);
		return;
	}
	json_builder_begin_object(run->json);
	json_add_string(run->json, "step", escrow_swap_step_name(r->step));
	json_add_string(run->json, "outcome", outcome_name(r->outcome));
	json_add_double(run->json, "ms", ms);
	json_add_string(run->json, "status", escrow_status_name(r->status));
	json_add_string(run->json, "text", r->text);
	json_builder_end_object(run->json);
}

/* Each record of the swap that has ended. */
static void tell_swap(struct swap_run *run, int number, escrow_status status)
{
	struct escrow_swap_record records[MAX_RECORDS];
	int32_t n = escrow_swap_records(run->ends.swap, records, MAX_RECORDS);

	if (run->json) {
		json_builder_begin_object(run->json);
		json_add_number(run->json, "swap", (uint64_t)number);
		json_add_string(run->json, "status", escrow_status_name(status));
		json_builder_set_member_name(run->json, "steps");
		json_builder_begin_array(run->json);
	} else {
		printf("swap %d, %s -> %s: %s\n", number, run->names[(number + 1) % 2],
		       run->names[number % 2], escrow_status_name(status));
	}
	for (int32_t i = 0; i < n && i < MAX_RECORDS; i++)
		tell_record(run, &records[i]);
	if (run->json) {
		json_builder_end_array(run->json);
		json_builder_end_object(run->json);
	}
}

/* The window goes round once more, so that what serves now has really served. */
static bool serve_a_round(struct swap_run *run)
{
	uint64_t until = run->ends.done + 2 * (uint64_t)SWAP_CELLS;

	while (run->ends.done < until)
		if (!swap_ends_pump(&run->ends))
			return false;
	return !tool_output_lost();
}

static bool swap_once(struct swap_run *run, int number)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_swap_args args = {
		.size = sizeof(args),
		.flags = run->o->dry_run ? ESCROW_SWAP_DRY_RUN : 0,
		.module = run->ends.modules[number % 2],
		.settings = (const char *const *)run->o->settings,
		.carry = swap_ends_carry,
		.ctx = &run->ends,
	};
	escrow_status status;

	run->ends.next = (uint32_t)number % 2;
	status = escrow_swap_begin(run->ends.mover.engine, &args, &run->ends.swap, &error);
	if (status != ESCROW_OK) {
		tool_complain("swap: %s", error.text);
		return false;
	}
	while ((status = escrow_swap_advance(run->ends.swap, &error)) == ESCROW_IN_PROGRESS)
		if (!swap_ends_pump(&run->ends))
			return false;
	if (run->json || run->o->verbose || run->o->times <= 4)
		tell_swap(run, number, status);
	escrow_swap_free(g_steal_pointer(&run->ends.swap));
	if (status != ESCROW_OK) {
		tool_complain("swap %d: %s", number, error.text);
		return false;
	}
	run->committed += !run->o->dry_run;
	if (!run->json && isatty(STDERR_FILENO))
		fprintf(stderr, "\r%d of %d swaps, %" PRIu64 " ops ", number, run->o->times,
			run->ends.done);
	return serve_a_round(run);
}

static bool prepare(struct swap_run *run)
{
	run->ends.settings = (const char *const *)run->o->settings;
	return load(run, 0) && load(run, 1) && swap_ends_open(&run->ends);
}

static bool run_swaps(struct swap_run *run)
{
	bool ok;

	run->ends.loading = true;
	ok = serve_a_round(run);
	for (int i = 1; ok && i <= run->o->times; i++)
		ok = swap_once(run, i);
	/* a swap that was taken back has lost nothing either: what is under way comes to its end */
	if (run->ends.swap || !swap_ends_close(&run->ends))
		return false;
	return ok && !run->ends.wrong;
}

static void tell_result(struct swap_run *run, bool ok)
{
	const struct swap_ends *e = &run->ends;

	if (!run->json) {
		printf("%s%d swap%s, %" PRIu64 " ops submitted, %" PRIu64 " ended, %" PRIu64
		       " lost, %" PRIu64 " wrong: %s\n",
		       run->o->dry_run ? "dry run: " : "", run->committed, tool_s(run->committed),
		       e->sent, e->done, e->sent - e->done, e->wrong,
		       ok ? "nothing lost" : "FAILED");
		return;
	}
	json_builder_end_array(run->json);
	json_add_number(run->json, "committed", (uint64_t)run->committed);
	json_add_number(run->json, "ops_submitted", e->sent);
	json_add_number(run->json, "ops_ended", e->done);
	json_add_number(run->json, "ops_wrong", e->wrong);
	json_add_bool(run->json, "ok", ok);
	json_builder_end_object(run->json);
	json_print(run->json);
}

int swap_main(int argc, char **argv)
{
	struct swap_options o = {.times = 2};
	const GOptionEntry entries[] = {
		{"times", 'n', 0, G_OPTION_ARG_INT, &o.times,
		 "How often: to B, back to A, and so on (2)", "N"},
		{"dry-run", 0, 0, G_OPTION_ARG_NONE, &o.dry_run,
		 "Only the steps that can be taken back, then take them back", NULL},
		{"set", 's', 0, G_OPTION_ARG_FILENAME_ARRAY, &o.settings,
		 "A setting of both backends; may be repeated", "KEY=VALUE"},
		{"verbose", 'v', 0, G_OPTION_ARG_NONE, &o.verbose,
		 "Tell the steps of each swap (default up to 4 swaps)", NULL},
		{"json", 0, 0, G_OPTION_ARG_NONE, &o.json, "Machine-readable output", NULL},
		{NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL},
	};
	static const struct tool_range ranges[] = {{.option = "times", .low = 1, .high = 1000000},
						   {.option = NULL}};
	struct swap_run run = {.o = &o, .names = {"mock", "mock"}};
	bool ready, ok;

	if (!tool_parse(entries, ranges, "[A [B]]",
			"Swaps the backend of a living process from A to B and back while it "
			"transfers (default: from the mock to the mock).",
			&argc, &argv))
		return TOOL_TROUBLE;
	if (argc > 3) {
		tool_complain("swap takes at most two backends, A and B; %s is one too many",
			      argv[3]);
		return TOOL_TROUBLE;
	}
	if (!tool_settings_good("set", o.settings))
		return TOOL_TROUBLE;
	run.names[0] = argc > 1 ? argv[1] : "mock";
	run.names[1] = argc > 2 ? argv[2] : run.names[0];
	if (o.json) {
		run.json = json_builder_new();
		json_builder_begin_object(run.json);
		json_builder_set_member_name(run.json, "swaps");
		json_builder_begin_array(run.json);
	}
	tool_output_watch();
	ledger_serve_start();
	ready = prepare(&run);
	ok = ready && run_swaps(&run);
	ledger_serve_stop();
	if (ready && !o.json && isatty(STDERR_FILENO))
		fputc('\n', stderr);
	if (ready || o.json)
		tell_result(&run, ok);
	for (int i = 0; i < 2; i++)
		if (run.ends.modules[i])
			escrow_module_unref(run.ends.modules[i]);
	g_strfreev(o.settings);
	return ok ? TOOL_OK : ready ? TOOL_NO : TOOL_TROUBLE;
}
