/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading the options of a sub-command; of each number it is known what is allowed. */
#include "config.h"

#include <string.h>

#include "tools/tool.h"

static bool is_number(const GOptionEntry *option)
{
	return option->arg == G_OPTION_ARG_INT || option->arg == G_OPTION_ARG_INT64 ||
	       option->arg == G_OPTION_ARG_DOUBLE;
}

static const struct tool_range *range_of(const struct tool_range *ranges, const char *option)
{
	while (ranges && ranges->option && strcmp(ranges->option, option))
		ranges++;
	return ranges && ranges->option ? ranges : NULL;
}

static bool read_double(const char *text, const struct tool_range *range, double *value)
{
	char *end;
	double found = g_ascii_strtod(text, &end);

	if (end == text || *end || !(found >= range->low && found <= range->high))
		return false;
	*value = found;
	return true;
}

static bool read_whole(const char *text, const struct tool_range *range, gint64 *value)
{
	guint64 found;
	char *end;

	if (!range->units)
		return g_ascii_string_to_signed(text, 10, (gint64)range->low, (gint64)range->high,
						value, NULL);
	if (!tool_number_read(text, &end, &found) || *end || found < (guint64)range->low ||
	    found > (guint64)range->high)
		return false;
	*value = (gint64)found;
	return true;
}

/* Into what the option was declared to fill; text NULL: it was not given. */
static bool read_number(const GOptionEntry *option, const struct tool_range *range,
			const char *text)
{
	gint64 value = 0;

	if (!text)
		return true;
	if (option->arg == G_OPTION_ARG_DOUBLE)
		return read_double(text, range, option->arg_data);
	if (!read_whole(text, range, &value))
		return false;
	if (option->arg == G_OPTION_ARG_INT)
		*(gint *)option->arg_data = (gint)value;
	else
		*(gint64 *)option->arg_data = value;
	return true;
}

static bool read_numbers(const GOptionEntry *options, guint n, const struct tool_range *ranges,
			 char *const *texts)
{
	for (guint i = 0; i < n; i++) {
		const struct tool_range *range = range_of(ranges, options[i].long_name);

		if (!is_number(&options[i]) || read_number(&options[i], range, texts[i]))
			continue;
		tool_complain("%s: --%s %s: %.15g to %.15g is allowed%s", tool_command(),
			      range->option, tool_shown(texts[i]), range->low, range->high,
			      range->units ? ", with K, M or G behind it" : "");
		return false;
	}
	return true;
}

/* No file, folder or backend has an empty name; what is done with one says so late, and not of which option. */
static bool names_good(const GOptionEntry *options)
{
	for (; options->long_name; options++) {
		const char *name;

		if (options->arg != G_OPTION_ARG_FILENAME)
			continue;
		name = *(char **)options->arg_data;
		if (!name || *name)
			continue;
		tool_complain("%s: --%s '': %s is meant", tool_command(), options->long_name,
			      options->arg_description);
		return false;
	}
	return true;
}

bool tool_settings_good(const char *option, char *const *settings)
{
	for (; settings && *settings; settings++) {
		if (strchr(*settings, '=') > *settings)
			continue;
		tool_complain("%s: --%s %s: not KEY=VALUE; `escrow info BACKEND` lists the keys",
			      tool_command(), option, tool_shown(*settings));
		return false;
	}
	return true;
}

/* GLib leaves what ends the options where an argument behind it begins with a dash. */
static void drop_separator(int *argc, char **argv)
{
	int i = 1;

	while (i < *argc && strcmp(argv[i], "--"))
		i++;
	if (i == *argc)
		return;
	memmove(&argv[i], &argv[i + 1], (size_t)(*argc - i) * sizeof(*argv));
	--*argc;
}

static bool parse(const GOptionEntry *options, const char *usage, const char *summary, int *argc,
		  char ***argv)
{
	g_autoptr(GOptionContext) context = g_option_context_new(usage);
	g_autoptr(GError) error = NULL;

	g_option_context_set_summary(context, summary);
	g_option_context_add_main_entries(context, options, NULL);
	if (g_option_context_parse(context, argc, argv, &error)) {
		drop_separator(argc, *argv);
		return true;
	}
	tool_complain("%s (%s --help lists the options)", error->message, g_get_prgname());
	return false;
}

bool tool_parse(const GOptionEntry *options, const struct tool_range *ranges, const char *usage,
		const char *summary, int *argc, char ***argv)
{
	g_autofree GOptionEntry *as_texts = NULL;
	g_autofree char **texts = NULL, **helps = NULL;
	bool good;
	guint n = 0;

	while (options[n].long_name)
		n++;
	/* GLib would not say what is allowed of a number that it cannot read. */
	as_texts = g_memdup2(options, (n + 1) * sizeof(*options));
	texts = g_new0(char *, n + 1);
	helps = g_new0(char *, n + 1);
	for (guint i = 0; i < n; i++) {
		const struct tool_range *range = range_of(ranges, options[i].long_name);

		if (!is_number(&options[i]))
			continue;
		g_assert(range);
		helps[i] = g_strdup_printf("%s, %.15g to %.15g%s", options[i].description,
					   range->low, range->high,
					   range->units ? ", also with K, M or G" : "");
		as_texts[i].description = helps[i];
		as_texts[i].arg = G_OPTION_ARG_STRING;
		as_texts[i].arg_data = &texts[i];
	}
	good = parse(as_texts, usage, summary, argc, argv) &&
	       read_numbers(options, n, ranges, texts) && names_good(options);
	for (guint i = 0; i < n; i++) {
		g_free(texts[i]);
		g_free(helps[i]);
	}
	return good;
}
