/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "tools/supervise.h"

#define KEPT_LINES 4096u

static bool fail(GError **error, const char *what, const char *path)
{
	int saved = errno;

	g_set_error(error, G_FILE_ERROR, (gint)g_file_error_from_errno(saved), "%s %s: %s", what,
		    path, g_strerror(saved));
	return false;
}

/* The lines there are.  A file that is something else is not ours to replace. */
static bool read_lines(const char *path, GPtrArray *lines, GError **error)
{
	g_autofree char *text = NULL;
	g_autoptr(GError) problem = NULL;
	g_auto(GStrv) all = NULL;

	if (!g_file_get_contents(path, &text, NULL, &problem)) {
		if (g_error_matches(problem, G_FILE_ERROR, G_FILE_ERROR_NOENT))
			return true;
		g_propagate_error(error, g_steal_pointer(&problem));
		return false;
	}
	all = g_strsplit(text, "\n", -1);
	for (char **line = all; *line; line++) {
		if (!**line)
			continue;
		if (!g_str_has_prefix(*line, "fenced ")) {
			g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_EXIST,
				    "%s has a line that is no fence: \"%.40s\"", path, *line);
			return false;
		}
		g_ptr_array_add(lines, g_strdup(*line));
	}
	return true;
}

static bool write_all(int fd, const GPtrArray *lines)
{
	g_autoptr(GString) text = g_string_new(NULL);
	guint first = lines->len > KEPT_LINES ? lines->len - KEPT_LINES : 0;

	for (guint i = first; i < lines->len; i++)
		g_string_append_printf(text, "%s\n", (const char *)g_ptr_array_index(lines, i));
	for (size_t at = 0; at < text->len;) {
		ssize_t n = write(fd, text->str + at, text->len - at);

		if (n < 0)
			return false;
		at += (size_t)n;
	}
	return fsync(fd) == 0;
}

/* A new file beside the old one, then its name, then the folder: each on disk before the next. */
static bool replace(int dir, const char *path, const GPtrArray *lines, GError **error)
{
	g_autofree char *name = g_path_get_basename(path);
	g_autofree char *temporary = g_strdup_printf(".%s.new", name);
	int fd =
		openat(dir, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	bool written;

	if (fd < 0)
		return fail(error, "cannot write", path);
	written = write_all(fd, lines);
	if (close(fd) || !written || renameat(dir, temporary, dir, name) || fsync(dir)) {
		fail(error, "cannot write", path);
		unlinkat(dir, temporary, 0);
		return false;
	}
	return true;
}

bool fence_file_add(const char *path, const GPtrArray *incarnations, GError **error)
{
	g_autofree char *folder = g_path_get_dirname(path);
	g_autoptr(GPtrArray) lines = g_ptr_array_new_with_free_func(g_free);
	int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool done;

	/* The lock goes with the descriptor: who shares the file waits here for a moment. */
	if (dir < 0 || flock(dir, LOCK_EX)) {
		fail(error, "cannot write", path);
		if (dir >= 0)
			close(dir);
		return false;
	}
	done = read_lines(path, lines, error);
	for (guint i = 0; done && i < incarnations->len; i++)
		g_ptr_array_add(lines, g_strdup_printf("fenced %s", (const char *)g_ptr_array_index(
									    incarnations, i)));
	done = done && replace(dir, path, lines, error);
	close(dir);
	return done;
}
