/* SPDX-License-Identifier: BSD-2-Clause */
/* escrow supervise: runs an engine's process and tells when nothing of it can touch memory any more. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib-unix.h>

#include "tools/json.h"
#include "tools/ledger-view.h"
#include "tools/supervise.h"
#include "tools/tool.h"

static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

#define LOOK_MS 100

struct supervise {
	char *file, *socket;
	gboolean json;
	int kill_after; /* seconds, -1: never */
	char **command;
	struct fence_server *server;
	struct contexts *contexts;
	GPtrArray *incarnations; /* hex texts, in the order they were said */
	GMainLoop *loop;
	sigset_t mask; /* as it was */
	int signals;   /* a signalfd */
	pid_t pid;
	int status; /* of the command, as wait tells it */
	bool ended, reaped_all, published;
	guint reaped;
};

/* ---- What happens ----------------------------------------------------------------------------------- */
static void on_engine(void *ctx, const char *hex, pid_t pid)
{
	struct supervise *s = ctx;

	contexts_note(s->contexts);
	if (g_ptr_array_find_with_equal_func(s->incarnations, hex, g_str_equal, NULL))
		return;
	g_ptr_array_add(s->incarnations, g_strdup(hex));
	g_info("process %ld opened engine %s", (long)pid, hex);
}

static gboolean kill_rest(gpointer data)
{
	g_autoptr(GArray) left = tree_list();

	/* And again after that time: who is killed may have started another one just before. */
	(void)data;
	for (guint i = 0; i < left->len; i++)
		kill(g_array_index(left, pid_t, i), SIGKILL);
	return G_SOURCE_CONTINUE;
}

static void command_ended(struct supervise *s)
{
	g_autoptr(GArray) left = tree_list();
	g_autofree char *names = tree_text(left);

	s->ended = true;
	if (!left->len)
		return;
	tool_complain("supervise: %s has ended; the fence waits for %s", s->command[0], names);
	if (s->kill_after == 0)
		kill_rest(s);
	if (s->kill_after >= 0)
		g_timeout_add_seconds((guint)MAX(s->kill_after, 1), kill_rest, s);
}

/* The kernel tells nobody when a context goes. */
static gboolean look_again(gpointer data)
{
	struct supervise *s = data;

	if (contexts_left(s->contexts))
		return G_SOURCE_CONTINUE;
	g_main_loop_quit(s->loop);
	return G_SOURCE_REMOVE;
}

static void all_reaped(struct supervise *s)
{
	guint left = contexts_left(s->contexts);
	g_autoptr(GArray) holders = NULL;
	g_autofree char *names = NULL;

	if (!left) {
		g_main_loop_quit(s->loop);
		return;
	}
	holders = device_holders();
	names = tree_text(holders);
	tool_complain("supervise: every process is reaped, but %u device context(s) of them are "
		      "held by others; device files are open in: %s",
		      left, holders->len ? names : "none that I may look at");
	g_timeout_add(LOOK_MS, look_again, s);
}

/* As the subreaper we inherit every orphan below us: when there is no child, there is no descendant. */
static void reap(struct supervise *s)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		s->reaped++;
		if (pid != s->pid)
			continue;
		s->status = status;
		command_ended(s);
	}
	if (pid < 0 && errno == ECHILD && !s->reaped_all) {
		s->reaped_all = true;
		all_reaped(s);
	}
}

/* To the command's process group; to whoever is left when that has ended. */
static void forward(struct supervise *s, int signal)
{
	g_autoptr(GArray) left = NULL;

	if (!s->ended) {
		kill(-s->pid, signal);
		return;
	}
	left = tree_list();
	for (guint i = 0; i < left->len; i++)
		kill(g_array_index(left, pid_t, i), signal);
}

static gboolean on_signal(gint fd, GIOCondition condition, gpointer data)
{
	struct supervise *s = data;
	struct signalfd_siginfo info;

	(void)condition;
	if (read(fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return G_SOURCE_CONTINUE;
	if (info.ssi_signo == SIGCHLD)
		reap(s);
	else
		forward(s, (int)info.ssi_signo);
	return G_SOURCE_CONTINUE;
}

/* ---- The result ---------------------------------------------------------------------------------------- */
static int exit_status(const struct supervise *s)
{
	return WIFEXITED(s->status) ? WEXITSTATUS(s->status) : 128 + WTERMSIG(s->status);
}

static void print_json(const struct supervise *s)
{
	g_autofree char *how = contexts_text(s->contexts);
	JsonBuilder *json = json_builder_new();

	json_builder_begin_object(json);
	json_add_string(json, "command", s->command[0]);
	json_add_number(json, "pid", (uint64_t)s->pid);
	json_add_number(json, "exit_status", (uint64_t)exit_status(s));
	json_add_number(json, "signal", WIFSIGNALED(s->status) ? (uint64_t)WTERMSIG(s->status) : 0);
	json_add_number(json, "reaped", s->reaped);
	json_builder_set_member_name(json, "incarnations");
	json_builder_begin_array(json);
	for (guint i = 0; i < s->incarnations->len; i++)
		json_builder_add_string_value(json, g_ptr_array_index(s->incarnations, i));
	json_builder_end_array(json);
	json_add_string(json, "decided_by", how);
	json_add_bool(json, "published", s->published);
	json_add_string(json, "file", s->file);
	json_add_string(json, "socket", s->socket);
	json_builder_end_object(json);
	json_print(json);
}

static void print_text(const struct supervise *s)
{
	g_autofree char *how = contexts_text(s->contexts);

	if (!s->incarnations->len)
		tool_complain("supervise: %u reaped; no engine was opened, so there is no fence to "
			      "tell of",
			      s->reaped);
	for (guint i = 0; i < s->incarnations->len; i++)
		tool_complain("supervise: fenced %s: %s",
			      (const char *)g_ptr_array_index(s->incarnations, i), how);
}

/* The file first: who hears of it on the socket may look there at once. */
static int publish(struct supervise *s)
{
	g_autoptr(GError) error = NULL;

	s->published = fence_file_add(s->file, s->incarnations, &error);
	if (s->published) {
		for (guint i = 0; i < s->incarnations->len; i++)
			fence_server_tell(s->server, g_ptr_array_index(s->incarnations, i));
		if (!s->json)
			print_text(s);
	} else {
		tool_complain("supervise: %s: the fence is not published", error->message);
	}
	if (s->json)
		print_json(s);
	return s->published ? exit_status(s) : TOOL_TROUBLE;
}

/* ---- Set-up -------------------------------------------------------------------------------------------- */
static bool catch_signals(struct supervise *s)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (guint i = 0; i < G_N_ELEMENTS(forwarded); i++)
		sigaddset(&set, forwarded[i]);
	/* Before the first thread, which inherits it. */
	if (sigprocmask(SIG_BLOCK, &set, &s->mask))
		return false;
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signals >= 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

static bool prepare(struct supervise *s)
{
	g_autofree char *folder = ledger_serve_folder();
	g_autoptr(GError) error = NULL;

	if (!s->file || !s->socket)
		g_mkdir_with_parents(folder, 0700);
	if (!s->file)
		s->file = g_build_filename(folder, "fenced", NULL);
	if (!s->socket)
		s->socket = g_strdup_printf("%s/supervise-%ld", folder, (long)getpid());
	if (!catch_signals(s)) {
		tool_complain("supervise: signals: %s", g_strerror(errno));
		return false;
	}
	if (fence_file_add(s->file, s->incarnations, &error))
		s->server = fence_serve(s->socket, on_engine, s, &error);
	if (s->server && g_setenv("ESCROW_SUPERVISOR", s->socket, TRUE))
		s->pid = tree_start(s->command, &s->mask, &error);
	if (s->pid > 0)
		return true;
	tool_complain("supervise: %s", error ? error->message : "no environment");
	return false;
}

static int run(struct supervise *s)
{
	int status = TOOL_TROUBLE;
	guint source;

	s->incarnations = g_ptr_array_new_with_free_func(g_free);
	s->contexts = contexts_new();
	s->loop = g_main_loop_new(NULL, FALSE);
	s->signals = -1;
	if (prepare(s)) {
		source = g_unix_fd_add(s->signals, G_IO_IN, on_signal, s);
		g_main_loop_run(s->loop);
		g_source_remove(source);
		status = publish(s);
	}
	fence_server_free(s->server);
	if (s->signals >= 0)
		close(s->signals);
	g_main_loop_unref(s->loop);
	contexts_free(s->contexts);
	g_ptr_array_unref(s->incarnations);
	return status;
}

int supervise_main(int argc, char **argv)
{
	struct supervise s = {.kill_after = -1};
	const GOptionEntry entries[] = {
		{"file", 'f', 0, G_OPTION_ARG_FILENAME, &s.file,
		 "Where the fences are recorded (default: fenced in the runtime folder)", "FILE"},
		{"socket", 's', 0, G_OPTION_ARG_FILENAME, &s.socket,
		 "Where they are told (default: supervise-PID in the runtime folder)", "SOCKET"},
		{"kill", 'k', 0, G_OPTION_ARG_INT, &s.kill_after,
		 "Kill what CMD left behind, SECONDS after its end (default: wait for it)",
		 "SECONDS"},
		{"json", 0, 0, G_OPTION_ARG_NONE, &s.json, "Machine-readable output at the end",
		 NULL},
		{NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL},
	};
	static const struct tool_range ranges[] = {{.option = "kill", .low = 0, .high = 86400},
						   {.option = NULL}};
	int status = TOOL_TROUBLE;

	if (tool_parse(entries, ranges, "-- CMD [ARGUMENTS]",
		       "Runs CMD, waits for every process that comes of it, and then tells which "
		       "engines are fenced.",
		       &argc, &argv)) {
		s.command = argv + 1;
		if (!s.command[0])
			tool_complain("supervise: no command (escrow supervise -- CMD)");
		else
			status = run(&s);
	}
	g_free(s.file);
	g_free(s.socket);
	return status;
}
