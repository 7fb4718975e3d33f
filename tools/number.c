/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers: as they stand on a command line, and as they are shown. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "tools/tool.h"

bool tool_number_read(const char *text, char **end, guint64 *value)
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

const char *tool_number_show(char text[TOOL_NUMBER], double value, int places)
{
	double least = 100;

	for (int i = 0; i < places; i++)
		least /= 10;
	/* of a value below that the places would show fewer than three digits */
	if (value > 0 && value < least)
		g_snprintf(text, TOOL_NUMBER, "%#.3g", value);
	else
		g_snprintf(text, TOOL_NUMBER, "%.*f", places, value);
	return text;
}
