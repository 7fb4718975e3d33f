/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists on the command line of `escrow bench`. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/tool.h"

const char *const bench_op_names[] = {NULL, "read", "write", "mix", NULL};
const char *const bench_unit_names[] = {"GB", "GiB", "Gb", NULL};

/* What is told of an option: all that was typed behind it, and which part of that is wrong. */
struct given {
	const char *option, *text, *part;
};

static void complain(const struct given *g, const char *allowed)
{
	bool whole = !strcmp(g->part, g->text);

	tool_complain("bench: --%s %s: %s%s%s", g->option, tool_shown(g->text), allowed,
		      whole ? "" : ", not ", whole ? "" : tool_shown(g->part));
}

static bool add(struct bench_list *list, const struct given *g, guint64 value)
{
	if (list->n < BENCH_MAX_VALUES) {
		list->value[list->n++] = value;
		return true;
	}
	tool_complain("bench: --%s %s: at most %u values are allowed", g->option, g->text,
		      BENCH_MAX_VALUES);
	return false;
}

static bool refuse(const struct bench_range *range, const struct given *g)
{
	g_autofree char *allowed =
		g_strdup_printf("%" PRIu64 " to %" PRIu64 " is allowed, %s%s", range->low,
				range->high, range->example ? "or a list such as " : "one value",
				range->example ? range->example : "");

	complain(g, allowed);
	return false;
}

/* "N", or "N-M": N doubled up to M, and M. */
static bool add_item(struct bench_list *list, const struct bench_range *range,
		     const struct given *g)
{
	guint64 from = 0, to;
	char *end;
	bool good = tool_number_read(g->part, &end, &from);

	to = from;
	if (good && *end == '-' && range->example)
		good = tool_number_read(end + 1, &end, &to);
	if (!good || *end || from < range->low || to > range->high || from > to ||
	    (from == 0 && to > 0))
		return refuse(range, g);
	for (guint64 v = from; v < to; v *= 2)
		if (!add(list, g, v))
			return false;
	return add(list, g, to);
}

bool bench_list_parse(const struct bench_range *range, const char *text, struct bench_list *list)
{
	g_auto(GStrv) items = g_strsplit(text, ",", -1);
	struct given g = {range->option, text, text};

	list->n = 0;
	if (!*items || !range->example)
		return add_item(list, range, &g);
	for (char **item = items; *item; item++) {
		g.part = *item;
		if (!add_item(list, range, &g))
			return false;
	}
	return true;
}

/* Its place in the table; complains where it is none of it. */
static bool find_word(const struct given *g, const char *const *table, guint64 *place)
{
	g_autofree char *words = NULL, *allowed = NULL;
	guint first = table[0] ? 0 : 1;

	for (guint i = first; table[i]; i++)
		if (!strcmp(g->part, table[i])) {
			*place = i;
			return true;
		}
	words = g_strjoinv(", ", (char **)(uintptr_t)(table + first));
	allowed = g_strconcat("allowed: ", words, NULL);
	complain(g, allowed);
	return false;
}

bool bench_word_parse(const char *option, const char *text, const char *const *table,
		      guint64 *place)
{
	return find_word(&(struct given){option, text, text}, table, place);
}

bool bench_words_parse(const char *option, const char *text, const char *const *table,
		       struct bench_list *list)
{
	g_auto(GStrv) words = g_strsplit(text, ",", -1);
	struct given g = {option, text, text};
	guint64 place;

	list->n = 0;
	if (!*words)
		return find_word(&g, table, &place);
	for (char **word = words; *word; word++) {
		g.part = *word;
		if (!find_word(&g, table, &place) || !add(list, &g, place))
			return false;
	}
	return true;
}
