/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parent's side of escrow-probe.  A verdict is a message, not an exit status: a backend that
 * calls exit(0) in a constructor would otherwise pass.  posix_spawn, because a fork of a threaded
 * process may not do what the child has to do.
 */
#include <config.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib.h>

#include "plugin/args.h"
#include "plugin/error.h"
#include "plugin/escrow.h"
#include "plugin/probe.h"

#define PROBE_DEFAULT_NS (UINT64_C(10) * 1000000000u)

struct probe {
	pid_t pid;
	int fd; /* our end of the pipe */
	gint64 deadline_us;
	bool timed_out;
	bool lost;         /* somebody else has reaped it: how it ended is not known */
	bool told_failure; /* *error holds what the child said */
	struct escrow_probe_result result;
	struct escrow_error *error;
	GString *text; /* what has come and is no whole line yet */
};

static char *probe_beside_library(void)
{
	static const char *const places[] = {"../escrow-probe", "../libexec/escrow/escrow-probe",
					     "../../libexec/escrow/escrow-probe"};
	g_autofree char *dir = NULL;
	Dl_info info;

	if (!dladdr((void *)escrow_probe, &info) || !info.dli_fname)
		return NULL;
	dir = g_path_get_dirname(info.dli_fname);
	for (size_t i = 0; i < G_N_ELEMENTS(places); i++) {
		g_autofree char *path = g_build_filename(dir, places[i], NULL);

		if (access(path, X_OK) == 0)
			return g_steal_pointer(&path);
	}
	return NULL;
}

/* The program: by ESCROW_PROBE, as installed, or beside the library (build tree, DESTDIR). */
static char *probe_program(void)
{
	const char *named = secure_getenv("ESCROW_PROBE");

	if (named)
		return g_strdup(named);
	if (access(PKGLIBEXECDIR "/escrow-probe", X_OK) == 0)
		return g_strdup(PKGLIBEXECDIR "/escrow-probe");
	return probe_beside_library();
}

static int probe_spawn_with(struct probe *probe, const char *program, char **argv, int out)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	int err;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
						      POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, out, PROBE_FD);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addclosefrom_np(&actions, PROBE_FD + 1);
	err = posix_spawn(&probe->pid, program, &actions, &attributes, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return err;
}

static escrow_status probe_spawn(struct probe *probe, const struct escrow_probe_args *args)
{
	g_autofree char *program = probe_program();
	g_autofree char *ms = NULL, *what = NULL;
	g_autoptr(GPtrArray) argv = g_ptr_array_new();
	int ends[2], out, err;

	if (!program)
		return error_set(probe->error, ESCROW_E_INVALID,
				 "the program escrow-probe is not installed in %s", PKGLIBEXECDIR);
	ms = g_strdup_printf("%" G_GUINT64_FORMAT,
			     (args->timeout_ns ? args->timeout_ns : PROBE_DEFAULT_NS) / 1000000);
	what = g_strconcat(args->flags & ESCROW_PROBE_RAILS ? PROBE_RAILS : "",
			   args->flags & ESCROW_PROBE_OPEN ? "open" : "entry", NULL);
	g_ptr_array_add(argv, program);
	g_ptr_array_add(argv, (char *)(uintptr_t)args->path);
	g_ptr_array_add(argv, what);
	g_ptr_array_add(argv, ms);
	for (uint32_t i = 0; args->settings && args->settings[i]; i++) {
		if (i == PROBE_MAX_SETTINGS)
			return error_set(probe->error, ESCROW_E_LIMIT,
					 "more than %d settings for a probe", PROBE_MAX_SETTINGS);
		g_ptr_array_add(argv, (char *)(uintptr_t)args->settings[i]);
	}
	g_ptr_array_add(argv, NULL);
	if (pipe2(ends, O_CLOEXEC) != 0)
		return error_errno(probe->error, ESCROW_E_AGAIN, errno, "no pipe for the probe");
	/* dup2 onto itself would keep close-on-exec: so the child's end must not be PROBE_FD. */
	out = fcntl(ends[1], F_DUPFD_CLOEXEC, PROBE_FD + 1);
	close(ends[1]);
	err = out < 0 ? errno : probe_spawn_with(probe, program, (char **)argv->pdata, out);
	if (out >= 0)
		close(out);
	probe->fd = ends[0];
	if (!err)
		return ESCROW_OK;
	close(ends[0]);
	return error_errno(probe->error, ESCROW_E_AGAIN, err, "%.120s cannot be started", program);
}

/* One line from the child, which may have been written by the backend: nothing of it is trusted. */
static void probe_line(struct probe *probe, const char *line)
{
	struct escrow_probe_result *result = &probe->result;
	char *text;

	if (g_str_has_prefix(line, "stage "))
		g_strlcpy(result->stage, line + 6, sizeof(result->stage));
	else if (g_str_has_prefix(line, "id "))
		g_strlcpy(result->id, line + 3, sizeof(result->id));
	else if (g_str_has_prefix(line, "version "))
		g_strlcpy(result->version, line + 8, sizeof(result->version));
	else if (g_str_has_prefix(line, "revision "))
		result->revision = (uint32_t)g_ascii_strtoull(line + 9, NULL, 10);
	else if (g_str_has_prefix(line, "caps "))
		result->caps = g_ascii_strtoull(line + 5, NULL, 10);
	else if (g_str_has_prefix(line, "residency "))
		result->residency = g_ascii_strtoull(line + 10, NULL, 10);
	if (!g_str_has_prefix(line, "fail "))
		return;
	probe->told_failure = true;
	if (!probe->error)
		return;
	probe->error->status = (escrow_status)g_ascii_strtoll(line + 5, &text, 10);
	if (probe->error->status >= 0)
		probe->error->status = ESCROW_E_INVALID;
	error_set(probe->error, probe->error->status, "probe: %s: %s", result->stage,
		  g_utf8_validate(text, -1, NULL) ? g_strchug(text) : "text is not UTF-8");
}

static void probe_take(struct probe *probe, const char *bytes, size_t got)
{
	char *newline;

	g_string_append_len(probe->text, bytes, (gssize)got);
	while ((newline = memchr(probe->text->str, '\n', probe->text->len))) {
		*newline = '\0';
		probe_line(probe, probe->text->str);
		g_string_erase(probe->text, 0, newline + 1 - probe->text->str);
	}
	if (probe->text->len > PROBE_LINE)
		g_string_truncate(probe->text, 0); /* longer than any line of ours: not ours */
}

static int probe_ms_left(const struct probe *probe)
{
	gint64 left = (probe->deadline_us - g_get_monotonic_time() + 999) / 1000;

	return (int)CLAMP(left, 0, 3600000);
}

/* Reads until the verdict, the end of the pipe, or the deadline. */
static void probe_listen(struct probe *probe)
{
	while (strcmp(probe->result.stage, "done") != 0 && !probe->told_failure) {
		struct pollfd pfd = {.fd = probe->fd, .events = POLLIN};
		int left = probe_ms_left(probe);
		char bytes[PROBE_LINE];
		ssize_t got;

		if (left == 0) {
			probe->timed_out = true;
			return;
		}
		if (poll(&pfd, 1, left) <= 0)
			continue;
		got = read(probe->fd, bytes, sizeof(bytes));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return;
		probe_take(probe, bytes, (size_t)got);
	}
}

/*
 * Waits for the child itself to end, at most to the deadline; then kills whatever is left of its
 * group, while its pid is still its own, and only then reaps it.  In a host that ignores SIGCHLD, or
 * waits for any child, it is gone with its pid.
 */
static void probe_reap(struct probe *probe)
{
	siginfo_t info = {0};

	while (info.si_pid == 0) {
		if (waitid(P_PID, (id_t)probe->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
			probe->lost = true;
			break;
		}
		if (info.si_pid == 0 && probe_ms_left(probe) == 0) {
			probe->timed_out = true;
			break;
		}
		if (info.si_pid == 0)
			poll(NULL, 0, 1);
	}
	probe->result.exit_code = -1;
	if (probe->lost)
		return;
	kill(-probe->pid, SIGKILL);
	while (waitpid(probe->pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (info.si_pid == 0)
		return;
	if (info.si_code == CLD_EXITED)
		probe->result.exit_code = info.si_status;
	else
		probe->result.signal = info.si_status;
}

static escrow_status probe_verdict(struct probe *probe)
{
	const struct escrow_probe_result *result = &probe->result;
	const char *stage = result->stage[0] ? result->stage : "start";

	if (probe->told_failure)
		return probe->error ? probe->error->status : ESCROW_E_INVALID;
	if (strcmp(stage, "done") == 0 && !probe->timed_out &&
	    (result->exit_code == 0 || probe->lost))
		return ESCROW_OK;
	if (probe->timed_out)
		return error_set(probe->error, ESCROW_E_TIMEOUT,
				 "probe: hung in %s and was killed at the time limit", stage);
	if (probe->lost)
		return error_set(probe->error, ESCROW_E_INVALID,
				 "probe: ended without a verdict in %s; how is not known, as this "
				 "process ignores SIGCHLD or reaps every child",
				 stage);
	if (result->signal)
		return error_set(probe->error, ESCROW_E_INVALID, "probe: crashed in %s: %s", stage,
				 g_strsignal(result->signal));
	return error_set(probe->error, ESCROW_E_INVALID,
			 "probe: ended without a verdict in %s: it called exit(%d)", stage,
			 result->exit_code);
}

escrow_status escrow_probe(const struct escrow_probe_args *args, struct escrow_probe_result *result,
			   struct escrow_error *error)
{
	struct probe probe = {.fd = -1};
	struct escrow_error own;
	uint64_t timeout_ns;
	escrow_status status;

	status = args_check(args, sizeof(*args), "probe", error);
	if (status != ESCROW_OK)
		return status;
	if (!args->path)
		return error_set(error, ESCROW_E_INVALID, "probe: no path");
	if (args->flags & ~(ESCROW_PROBE_OPEN | ESCROW_PROBE_RAILS))
		return error_set(error, ESCROW_E_UNSUPPORTED, "probe: unknown flags 0x%x",
				 args->flags);
	timeout_ns = args->timeout_ns ? args->timeout_ns : PROBE_DEFAULT_NS;
	error_clear(&own);
	probe.error = &own;
	probe.deadline_us = g_get_monotonic_time() + (gint64)MIN(timeout_ns / 1000, G_MAXINT32);
	status = probe_spawn(&probe, args);
	if (status == ESCROW_OK) {
		probe.text = g_string_new(NULL);
		probe_listen(&probe);
		g_string_free(probe.text, TRUE);
		probe_reap(&probe);
		close(probe.fd);
		status = probe_verdict(&probe);
	}
	if (result) {
		uint32_t size = result->size;

		probe.result.size = size;
		memcpy(result, &probe.result, MIN(size, sizeof(probe.result)));
	}
	if (error && status != ESCROW_OK)
		error_set(error, status, "%s", own.text);
	return status;
}
