/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <glib.h>

#include "plugin/error.h"
#include "plugin/escrow.h"

/*
 * The folders in their order: ESCROW_BACKEND_PATH, then where the package installs.  What lies in the
 * former runs in this process: a set-user-ID program's caller has no say.
 */
static char **discover_folders(void)
{
	const char *path = secure_getenv("ESCROW_BACKEND_PATH");
	g_autofree char *all = path && *path ? g_strconcat(path, ":", BACKENDDIR, NULL)
					     : g_strdup(BACKENDDIR);

	return g_strsplit(all, ":", -1);
}

static gint by_text(gconstpointer a, gconstpointer b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The files of one folder by name, so that the order does not depend on the file system. */
static GPtrArray *discover_files(const char *folder)
{
	GPtrArray *files = g_ptr_array_new_with_free_func(g_free);
	g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
	const char *name;

	while (dir && (name = g_dir_read_name(dir))) {
		if (g_str_has_suffix(name, ".so") && strlen(name) > 3 && name[0] != '.')
			g_ptr_array_add(files, g_strdup(name));
	}
	g_ptr_array_sort(files, by_text);
	return files;
}

int32_t escrow_discover(int32_t (*each)(void *ctx, const char *name, const char *path), void *ctx)
{
	g_auto(GStrv) folders = discover_folders();
	g_autoptr(GHashTable) told = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	int32_t n = 0;
	bool stop = false;

	if (!each)
		return ESCROW_E_INVALID;
	for (uint32_t i = 0; folders[i] && !stop; i++) {
		g_autoptr(GPtrArray) files = discover_files(folders[i]);

		for (uint32_t j = 0; j < files->len && !stop; j++) {
			const char *file = g_ptr_array_index(files, j);
			g_autofree char *path = g_build_filename(folders[i], file, NULL);
			char *name = g_strndup(file, strlen(file) - 3);

			if (!g_hash_table_add(told, name))
				continue;
			n++;
			stop = each(ctx, name, path) != 0;
		}
	}
	return n;
}

static char *discover_by_name(const char *name)
{
	g_auto(GStrv) folders = discover_folders();
	g_autofree char *file = g_strconcat(name, ".so", NULL);

	for (uint32_t i = 0; folders[i]; i++) {
		g_autofree char *path = g_build_filename(folders[i], file, NULL);

		if (*folders[i] && access(path, R_OK) == 0)
			return g_steal_pointer(&path);
	}
	return NULL;
}

escrow_status escrow_find(const char *name, char *path, uint64_t *len, struct escrow_error *error)
{
	g_autofree char *found = NULL;
	uint64_t room;

	if (!name || !*name || !len || (*len && !path))
		return error_set(error, ESCROW_E_INVALID, "no backend is named");
	if (strchr(name, '/') || g_str_has_suffix(name, ".so"))
		/* with a slash: dlopen would search a bare file name in the system's folders */
		found = g_canonicalize_filename(name, NULL);
	else
		found = discover_by_name(name);
	if (!found)
		return error_set(error, ESCROW_E_INVALID,
				 "no backend \"%.60s\" in ESCROW_BACKEND_PATH or %s", name,
				 BACKENDDIR);
	room = *len;
	*len = strlen(found) + 1;
	if (room < *len)
		return error_set(error, ESCROW_E_TOO_SMALL,
				 "the path needs %" G_GUINT64_FORMAT " bytes", *len);
	memcpy(path, found, *len);
	return ESCROW_OK;
}
