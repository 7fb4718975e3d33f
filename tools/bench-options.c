/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists on the command line of `escrow bench`. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/tool.h"

const char *const bench_op_names[] = {NULL, "read", "write", "mix", NULL};
const char *const bench_unit_names[] = {"GB", "GiB", "Gb", NULL};

/* A number with K, M or G behind it; *end is what follows.  false: there is none. */
static bool number(const char *text, char **end, guint64 *value)
{
	static const char units[] = "KMG";
	const char *unit;

	if (!g_ascii_isdigit(*text))
		return false;
	errno = 0;
	*value = g_ascii_strtoull(text, end, 10);
	if (errno)
		return false;
	unit = **end ? strchr(units, g_ascii_toupper(**end)) : NULL;
	if (!unit)
		return true;
	(*end)++;
	for (int shift = 10 * (int)(unit - units + 1); shift; shift -= 10)
		if (!g_uint64_checked_mul(value, *value, 1024))
			return false;
	return true;
}

static bool add(struct bench_list *list, const char *option, guint64 value)
{
	if (list->n < BENCH_MAX_VALUES) {
		list->value[list->n++] = value;
		return true;
	}
	tool_complain("bench: --%s: at most %u values are allowed", option, BENCH_MAX_VALUES);
	return false;
}

/* "N", or "N-M": N doubled up to M, and M. */
static bool add_item(struct bench_list *list, const char *option, const char *item, guint64 low,
		     guint64 high)
{
	guint64 from = 0, to;
	char *end;
	bool good = number(item, &end, &from);

	to = from;
	if (good && *end == '-')
		good = number(end + 1, &end, &to);
	if (!good || *end || from < low || to > high || from > to || (from == 0 && to > 0)) {
		tool_complain("bench: --%s %s: %" PRIu64 " to %" PRIu64
			      " is allowed, or a list such as 64,4K,1M-8M",
			      option, *item ? item : "''", low, high);
		return false;
	}
	for (guint64 v = from; v < to; v *= 2)
		if (!add(list, option, v))
			return false;
	return add(list, option, to);
}

bool bench_list_parse(const char *option, const char *text, guint64 low, guint64 high,
		      struct bench_list *list)
{
	g_auto(GStrv) items = g_strsplit(text, ",", -1);

	list->n = 0;
	if (!*items)
		return add_item(list, option, "", low, high);
	for (char **item = items; *item; item++)
		if (!add_item(list, option, *item, low, high))
			return false;
	return true;
}

static bool add_word(struct bench_list *list, const char *option, const char *word,
		     const char *const *table)
{
	g_autofree char *allowed = NULL;
	guint first = table[0] ? 0 : 1;

	for (guint i = first; table[i]; i++)
		if (!strcmp(word, table[i]))
			return add(list, option, i);
	allowed = g_strjoinv(", ", (char **)(uintptr_t)(table + first));
	tool_complain("bench: --%s %s: allowed: %s", option, *word ? word : "''", allowed);
	return false;
}

bool bench_words_parse(const char *option, const char *text, const char *const *table,
		       struct bench_list *list)
{
	g_auto(GStrv) words = g_strsplit(text, ",", -1);

	list->n = 0;
	if (!*words)
		return add_word(list, option, "", table);
	for (char **word = words; *word; word++)
		if (!add_word(list, option, *word, table))
			return false;
	return true;
}
