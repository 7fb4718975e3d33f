/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A waiver file: lines of CASE, EXPIRY (YYYY-MM-DD), LINK and REASON, separated by tabs; # starts a
 * comment.  A failure that is waived does not count until the expiry date has passed.
 */
#include <string.h>

#include "tools/conform.h"

static struct conform_case *find(const struct conform *c, const char *id)
{
	guint i;

	for (i = 0; i < c->cases->len; i++) {
		struct conform_case *k = g_ptr_array_index(c->cases, i);

		if (!strcmp(k->id, id))
			return k;
	}
	return NULL;
}

static bool is_expired(const char *date)
{
	g_autoptr(GDateTime) now = g_date_time_new_now_utc();
	g_autofree char *today = g_date_time_format(now, "%Y-%m-%d");

	return strcmp(date, today) < 0;
}

static bool is_date(const char *s)
{
	return g_regex_match_simple("^[0-9]{4}-[01][0-9]-[0-3][0-9]$", s, 0, 0);
}

static void waive(struct conform_case *k, char **f)
{
	struct conform_result *r = &k->result;
	bool expired = is_expired(f[1]);
	char *text;

	if (!k->selected || (r->verdict != CONFORM_FAIL && r->verdict != CONFORM_CRASH &&
			     r->verdict != CONFORM_TIMEOUT))
		return;
	text = g_strdup_printf("%s (waiver %s %s: %s, %s)", r->text ? r->text : "",
			       expired ? "expired" : "until", f[1], f[3], f[2]);
	g_free(r->text);
	r->text = text;
	if (!expired)
		r->verdict = CONFORM_WAIVED;
}

bool conform_read_waivers(struct conform *c, const char *file, GError **error)
{
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;
	guint i;

	if (!g_file_get_contents(file, &text, NULL, error))
		return false;
	c->waivers = g_ptr_array_new_with_free_func((GDestroyNotify)g_strfreev);
	lines = g_strsplit(text, "\n", -1);
	for (i = 0; lines[i]; i++) {
		char **f;

		if (!*lines[i] || *lines[i] == '#')
			continue;
		f = g_strsplit(lines[i], "\t", 4);
		g_ptr_array_add(c->waivers, f);
		if (g_strv_length(f) == 4 && find(c, f[0]) && is_date(f[1]) && *f[2] && *f[3])
			continue;
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "%s:%u: not CASE, EXPIRY (YYYY-MM-DD), LINK and REASON, "
			    "separated by tabs, of a case of this suite",
			    file, i + 1);
		return false;
	}
	return true;
}

void conform_waive(struct conform *c)
{
	for (guint i = 0; c->waivers && i < c->waivers->len; i++) {
		char **f = g_ptr_array_index(c->waivers, i);

		waive(find(c, f[0]), f);
	}
}
