/* SPDX-License-Identifier: BSD-2-Clause */
/* Which cases there are: the child's list and the static checks; and which of them are wanted. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <config.h>
#include "tools/conform.h"

const char *conform_child_program(void)
{
	const char *p = g_getenv("ESCROW_CONFORM_CHILD");

	return p && *p ? p : PKGLIBEXECDIR "/escrow-conform-child";
}

static struct conform_case *new_case(char **f)
{
	struct conform_case *k = g_new0(struct conform_case, 1);

	k->id = g_strdup(f[0]);
	k->profile = g_strdup(f[1]);
	k->clauses = g_strdup(f[2]);
	k->needs = g_strdup(f[3]);
	k->summary = g_strdup(f[4]);
	return k;
}

void conform_clear(struct conform_result *r)
{
	g_free(r->clause);
	g_free(r->text);
	g_free(r->detail);
	memset(r, 0, sizeof(*r));
}

static void free_case(void *data)
{
	struct conform_case *k = data;

	conform_clear(&k->result);
	g_free(k->id);
	g_free(k->profile);
	g_free(k->clauses);
	g_free(k->needs);
	g_free(k->summary);
	g_free(k);
}

void conform_free(struct conform *c)
{
	g_clear_pointer(&c->cases, g_ptr_array_unref);
	g_clear_pointer(&c->waivers, g_ptr_array_unref);
	g_clear_pointer(&c->facts, g_ptr_array_unref);
}

bool conform_load_cases(struct conform *c, GError **error)
{
	g_autofree char *child = g_strdup(c->child);
	char list[] = "--list";
	char *argv[] = {child, list, NULL};
	g_autofree char *out = NULL;
	g_auto(GStrv) lines = NULL;
	int status;
	char **l;

	c->cases = g_ptr_array_new_with_free_func(free_case);
	conform_add_static(c->cases);
	if (!g_spawn_sync(NULL, argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &out, NULL, &status,
			  error) ||
	    !g_spawn_check_wait_status(status, error)) {
		g_prefix_error(error, "%s --list: ", c->child);
		return false;
	}
	lines = g_strsplit(out, "\n", -1);
	for (l = lines; *l; l++) {
		g_auto(GStrv) f = g_strsplit(*l, "\t", 5);

		if (g_strv_length(f) == 5)
			g_ptr_array_add(c->cases, new_case(f));
	}
	return true;
}

static bool in_list(const char *list, const char *word)
{
	g_auto(GStrv) words = NULL;

	if (!list)
		return true;
	words = g_strsplit(list, ",", -1);
	return g_strv_contains((const char *const *)words, word) ||
	       g_strv_contains((const char *const *)words, "all");
}

static bool matches(char **globs, const char *id)
{
	char **g;

	if (!globs || !*globs)
		return true;
	for (g = globs; *g; g++)
		if (g_pattern_match_simple(*g, id))
			return true;
	return false;
}

unsigned int conform_select(struct conform *c, const char *profiles, char **globs)
{
	unsigned int n = 0;
	guint i;

	for (i = 0; i < c->cases->len; i++) {
		struct conform_case *k = g_ptr_array_index(c->cases, i);

		k->selected = in_list(profiles, k->profile) && matches(globs, k->id);
		n += k->selected;
	}
	return n;
}
