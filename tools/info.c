/* SPDX-License-Identifier: BSD-2-Clause */
/* escrow info: what a backend says of itself, and what it would find, before an engine is open. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include <escrow/counters.h>
#include "plugin/escrow.h"
#include "tools/info.h"
#include "tools/json.h"
#include "tools/names.h"
#include "tools/tool.h"

#define MAX_FINDINGS 32

static const struct escrow_option *option_at(const struct escrow_backend *b, uint32_t i)
{
	return (const void *)((const char *)b->options + (size_t)i * b->options_stride);
}

static void print_words(const char *label, char **words)
{
	g_autofree char *joined = g_strjoinv(" ", words);

	printf("  %-14s %s\n", label, *joined ? joined : "-");
	g_strfreev(words);
}

static void print_findings(const char *path)
{
	static const char *const severity[] = {"note", "warning", "error"};
	struct escrow_finding f[MAX_FINDINGS];
	int32_t n = escrow_check_file(path, ESCROW_CHECK_STRICT, f, MAX_FINDINGS);

	for (int32_t i = 0; i < n && i < MAX_FINDINGS; i++)
		if (f[i].severity > ESCROW_FINDING_INFO)
			printf("  %s %s: %s\n", severity[f[i].severity % 3], f[i].clause,
			       f[i].text);
}

static void print_text(const struct escrow_module_info *info, const struct info_rails *rails)
{
	const struct escrow_backend *b = info->backend;

	printf("%s %s\n", b->id, b->version);
	printf("  %-14s %s\n", "file", info->path);
	printf("  %-14s %s\n", "sha256", info->sha256);
	printf("  %-14s %u\n", "ABI revision", info->revision);
	printf("  %-14s %s\n", "unloading",
	       b->residency & ESCROW_RESIDENCY_MAY_UNMAP ? "may be unmapped when nothing is left"
							 : "stays mapped");
	print_words("capabilities", names_of_caps(b->caps));
	print_words("memory", names_of_memory_kinds(b->memory_kinds));
	print_findings(info->path);
	info_rails_print(rails);
	printf("\n  settings, with their defaults\n");
	for (uint32_t i = 0; i < b->noptions; i++) {
		const struct escrow_option *o = option_at(b, i);
		g_autofree char *setting = g_strdup_printf("%s=%s", o->key, o->value);

		printf("    %-36s %s\n", setting, o->help);
	}
}

static void print_json(const struct escrow_module_info *info, const struct info_rails *rails)
{
	const struct escrow_backend *b = info->backend;
	g_auto(GStrv) caps = names_of_caps(b->caps);
	g_auto(GStrv) kinds = names_of_memory_kinds(b->memory_kinds);
	JsonBuilder *json = json_builder_new();

	json_builder_begin_object(json);
	json_add_string(json, "id", b->id);
	json_add_string(json, "version", b->version);
	json_add_string(json, "file", info->path);
	json_add_string(json, "sha256", info->sha256);
	json_add_number(json, "revision", info->revision);
	json_add_bool(json, "may_unmap", b->residency & ESCROW_RESIDENCY_MAY_UNMAP);
	names_add_json(json, "capabilities", caps);
	names_add_json(json, "memory", kinds);
	json_builder_set_member_name(json, "settings");
	json_builder_begin_array(json);
	for (uint32_t i = 0; i < b->noptions; i++) {
		const struct escrow_option *o = option_at(b, i);

		json_builder_begin_object(json);
		json_add_string(json, "key", o->key);
		json_add_string(json, "default", o->value);
		json_add_string(json, "help", o->help);
		json_builder_end_object(json);
	}
	json_builder_end_array(json);
	info_rails_add(json, rails);
	json_builder_end_object(json);
	json_print(json);
}

/* What open says of these settings, asked in a process of its own; OK where none are given. */
static escrow_status try_settings(const char *path, const char *const *settings,
				  struct escrow_error *error)
{
	struct escrow_probe_args probe = {.size = sizeof(probe),
					  .flags = ESCROW_PROBE_OPEN,
					  .path = path,
					  .settings = settings};

	return settings ? escrow_probe(&probe, NULL, error) : ESCROW_OK;
}

/* An engine would not open with these settings: that is told, beside what is known. */
static int print_all(struct escrow_module *module, const char *const *settings, gboolean as_json)
{
	struct escrow_module_info info = {.size = sizeof(info)};
	struct info_rails *rails = info_rails_find(module, settings);
	int rc = rails->status < 0 && rails->status != ESCROW_E_UNSUPPORTED ? TOOL_NO : TOOL_OK;
	struct escrow_error error = {.size = sizeof(error)};

	escrow_module_info(module, &info);
	/* a backend that lists rails has judged the settings by that */
	if (rails->status == ESCROW_E_UNSUPPORTED &&
	    try_settings(info.path, settings, &error) != ESCROW_OK) {
		g_strlcpy(rails->text, error.text, sizeof(rails->text));
		rc = TOOL_NO;
	}
	if (as_json)
		print_json(&info, rails);
	else
		print_text(&info, rails);
	if (rc == TOOL_NO)
		tool_complain("%s", rails->text);
	if (rails->unasked)
		rc = TOOL_TROUBLE;
	info_rails_free(rails);
	return rc;
}

/* ---- What one of each costs in memory --------------------------------------------------------------- */
static void print_counters(const struct escrow_counter *c, int32_t n, gboolean as_json)
{
	JsonBuilder *json = json_builder_new();

	json_builder_begin_object(json);
	for (int32_t i = 0; i < n; i++) {
		if (!g_str_has_prefix(c[i].name, "memory."))
			continue;
		if (as_json)
			json_add_number(json, c[i].name, c[i].value);
		else
			printf("  %-24s %8" PRIu64 " bytes\n", c[i].name, c[i].value);
	}
	json_builder_end_object(json);
	if (as_json)
		json_print(json);
	else
		g_object_unref(json);
}

static void end(struct escrow_host_engine *engine)
{
	struct escrow_event event = {0};

	if (escrow_close(engine, 0, ESCROW_CLOSE_ABORT) < 0)
		return;
	while (event.kind != ESCROW_EV_CLOSED)
		if (escrow_poll(engine, &event, 1) == 0)
			g_usleep(1000);
	escrow_release(engine);
}

static int print_memory(struct escrow_module *module, const char *name, const char *const *settings,
			gboolean as_json)
{
	struct escrow_host_args args = {.size = sizeof(args),
					.module = module,
					.engine_name = "info",
					.settings = settings};
	struct escrow_error error = {.size = sizeof(error)};
	const struct escrow_counters *counters;
	struct escrow_host_engine *engine;
	struct escrow_counter c[128];
	int32_t n = 0;

	if (escrow_open(&args, &engine, &error) != ESCROW_OK) {
		tool_complain("%s", error.text);
		tool_hint_setting(error.text, name);
		return TOOL_NO;
	}
	counters = escrow_get_extension(engine, ESCROW_COUNTERS_ID);
	if (counters)
		n = counters->read(escrow_backend_engine(engine, NULL), c, G_N_ELEMENTS(c),
				   sizeof(c[0]));
	print_counters(c, MIN(n, (int32_t)G_N_ELEMENTS(c)), as_json);
	end(engine);
	return TOOL_OK;
}

int info_main(int argc, char **argv)
{
	gboolean as_json = FALSE, memory = FALSE;
	g_auto(GStrv) settings = NULL;
	int rc = TOOL_OK;
	const GOptionEntry entries[] = {
		{"json", 0, 0, G_OPTION_ARG_NONE, &as_json, "Machine-readable output", NULL},
		{"memory", 0, 0, G_OPTION_ARG_NONE, &memory,
		 "What one of each costs in memory; opens its devices", NULL},
		{"set", 's', 0, G_OPTION_ARG_FILENAME_ARRAY, &settings,
		 "A setting of the backend, for its rails and --memory", "KEY=VALUE"},
		{NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL},
	};
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_load_args args = {.size = sizeof(args), .flags = ESCROW_LOAD_PROBE};
	struct escrow_module *module;

	if (!tool_parse(entries, NULL, "BACKEND",
			"What a backend says of itself: a name that `escrow list` shows, or a "
			"path.  Without --memory no engine is opened.",
			&argc, &argv))
		return TOOL_TROUBLE;
	if (argc != 2) {
		tool_complain("info takes one BACKEND; `escrow list` shows which there are");
		return TOOL_TROUBLE;
	}
	if (!tool_settings_good("set", settings))
		return TOOL_TROUBLE;
	args.name = argv[1];
	if (escrow_load(&args, &module, &error) != ESCROW_OK) {
		tool_complain("%s", error.text);
		return TOOL_TROUBLE;
	}
	if (memory)
		rc = print_memory(module, args.name, (const char *const *)settings, as_json);
	else
		rc = print_all(module, (const char *const *)settings, as_json);
	escrow_module_unref(module);
	return rc;
}
