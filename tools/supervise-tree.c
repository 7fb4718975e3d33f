/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/supervise.h"

extern char **environ;

/* What /proc/PID/stat says: the name (or NULL), and the parent; 0 if there is no such process. */
static pid_t parent_of(pid_t pid, char **name)
{
	g_autofree char *path = g_strdup_printf("/proc/%ld/stat", (long)pid);
	g_autofree char *text = NULL;
	char *open, *close;

	if (!g_file_get_contents(path, &text, NULL, NULL))
		return 0;
	open = strchr(text, '(');
	close = strrchr(text, ')'); /* a name may have any character */
	if (!open || !close || strlen(close) < 5)
		return 0;
	if (name)
		*name = g_strndup(open + 1, (gsize)(close - open - 1));
	return (pid_t)strtol(close + 4, NULL, 10); /* ") S PARENT" */
}

bool tree_has(pid_t pid)
{
	pid_t self = getpid();

	while (pid > 1) {
		pid = parent_of(pid, NULL);
		if (pid == self)
			return true;
	}
	return false;
}

GArray *tree_list(void)
{
	GArray *all = g_array_new(FALSE, FALSE, sizeof(pid_t));
	g_autoptr(GDir) proc = g_dir_open("/proc", 0, NULL);
	const char *name;

	while (proc && (name = g_dir_read_name(proc))) {
		pid_t pid = (pid_t)strtol(name, NULL, 10);

		if (pid > 0 && tree_has(pid))
			g_array_append_val(all, pid);
	}
	return all;
}

char *tree_text(const GArray *pids)
{
	g_autoptr(GString) text = g_string_new(NULL);

	for (guint i = 0; i < pids->len; i++) {
		pid_t pid = g_array_index(pids, pid_t, i);
		g_autofree char *name = NULL;

		parent_of(pid, &name);
		g_string_append_printf(text, "%s%ld (%s)", i ? ", " : "", (long)pid,
				       name ? name : "?");
	}
	return g_string_free(g_steal_pointer(&text), FALSE);
}

static bool has_device_file(const char *pid)
{
	g_autofree char *folder = g_strdup_printf("/proc/%s/fd", pid);
	g_autoptr(GDir) files = g_dir_open(folder, 0, NULL);
	const char *name;

	while (files && (name = g_dir_read_name(files))) {
		g_autofree char *path = g_build_filename(folder, name, NULL);
		g_autofree char *target = g_file_read_link(path, NULL);

		if (target && g_str_has_prefix(target, "/dev/infiniband/uverbs"))
			return true;
	}
	return false;
}

GArray *device_holders(void)
{
	GArray *all = g_array_new(FALSE, FALSE, sizeof(pid_t));
	g_autoptr(GDir) proc = g_dir_open("/proc", 0, NULL);
	const char *name;

	while (proc && (name = g_dir_read_name(proc))) {
		pid_t pid = (pid_t)strtol(name, NULL, 10);

		if (pid > 0 && has_device_file(name))
			g_array_append_val(all, pid);
	}
	return all;
}

pid_t tree_start(char **command, const sigset_t *mask, GError **error)
{
	posix_spawnattr_t attributes;
	pid_t pid = -1;
	int e;

	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setsigmask(&attributes, mask);
	e = posix_spawnp(&pid, command[0], NULL, &attributes, command, environ);
	posix_spawnattr_destroy(&attributes);
	if (!e)
		return pid;
	g_set_error(error, G_SPAWN_ERROR, G_SPAWN_ERROR_FAILED, "cannot run %s: %s", command[0],
		    g_strerror(e));
	return -1;
}
