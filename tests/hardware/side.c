/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * side: what the controller of tests/hardware/run starts on each of its hosts. It believes nothing that the test
 * program says of its own end: the locks of the RNICs, the exact process that was started and reaped, what it left
 * behind and what the kernel lists before and after are told by this program. docs/hardware.md.
 *
 *   side hold  --identity DEVICE=GUID...          locks the RNICs, says so, and holds them until its input ends
 *   side list                                     how many objects the kernel has, for each device
 *   side run   --folder DIR --role NAME [--frozen DIR] --identity ... -- COMMAND   runs one end; JSON on its output
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <glib.h>

#include "tools/json.h"

static struct {
	char **identities; /* DEVICE=GUID, the GUID as sysfs writes it; "" where a device has none */
	char *folder, *role, *frozen, *locks;
} options;

static const GOptionEntry entries[] = {
	{"identity", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options.identities, "an RNIC of this host",
	 "DEVICE=GUID"},
	{"folder", 0, 0, G_OPTION_ARG_FILENAME, &options.folder, "what the ends write down", "DIR"},
	{"role", 0, 0, G_OPTION_ARG_STRING, &options.role, "whose facts", "NAME"},
	{"frozen", 0, 0, G_OPTION_ARG_FILENAME, &options.frozen, "the frozen program", "DIR"},
	{"locks", 0, 0, G_OPTION_ARG_FILENAME, &options.locks, "folder of the locks", "DIR"},
	{NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL},
};

static void G_GNUC_PRINTF(1, 2) G_GNUC_NORETURN fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("side: ", stderr);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(2);
}

/* The same clock in all processes of a host. */
static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- RNICs -------------------------------------------------------------------------------------------- */
/* A device is who its GUID says, not what it is called today. */
static void check_identity(const char *device, const char *guid)
{
	g_autofree char *path = g_strdup_printf("/sys/class/infiniband/%s/node_guid", device);
	g_autofree char *found = NULL;

	if (!*guid)
		return;
	if (!g_file_get_contents(path, &found, NULL, NULL))
		fail("%s: no such device here; the profile pins it to node GUID %s", device, guid);
	g_strstrip(found);
	if (strcmp(found, guid) != 0)
		fail("%s has node GUID %s; the profile pins it to %s", device, found, guid);
}

static int open_lock(const char *identity)
{
	g_auto(GStrv) parts = g_strsplit(identity, "=", 2);
	g_autofree char *name = NULL, *path = NULL;
	int fd;

	if (!parts[0] || !parts[1] || !*parts[0] || strchr(identity, '/'))
		fail("--identity %s: DEVICE=GUID is meant", identity);
	check_identity(parts[0], parts[1]);
	name = g_strdup_printf("escrow-rnic-%s.lock", *parts[1] ? parts[1] : parts[0]);
	path = g_build_filename(options.locks ? options.locks : "/run/lock", name, NULL);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		fail("%s: %s", path, g_strerror(errno));
	return fd;
}

/* Somebody holds all of them: the controller that started this. */
static bool all_locked(void)
{
	bool locked = true;

	for (char **i = options.identities; i && *i; i++) {
		int fd = open_lock(*i);

		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			locked = false;
		close(fd);
	}
	return locked;
}

static int hold(void)
{
	char byte;

	for (char **i = options.identities; i && *i; i++) {
		int fd = open_lock(*i); /* stays open: the lock goes with this process */

		if (flock(fd, LOCK_EX | LOCK_NB))
			fail("%s is held by another run", *i);
	}
	puts("held");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}

/* ---- The frozen program --------------------------------------------------------------------------------- */
static void check_file(const char *name, const char *want)
{
	g_autofree char *path = g_build_filename(options.frozen, name, NULL);
	g_autofree char *bytes = NULL, *found = NULL;
	gsize length = 0;

	if (!g_file_get_contents(path, &bytes, &length, NULL))
		fail("%s: cannot be read; it was frozen with SHA-256 %s", path, want);
	found = g_compute_checksum_for_data(G_CHECKSUM_SHA256, (guchar *)bytes, length);
	if (strcmp(found, want) != 0)
		fail("%s has SHA-256 %s; it was frozen with %s", path, found, want);
}

/* Of the list of all files: one word for the whole. */
static char *frozen_digest(void)
{
	g_autofree char *path = g_build_filename(options.frozen, "SHA256SUMS", NULL);
	g_autofree char *list = NULL;
	g_auto(GStrv) lines = NULL;

	if (!g_file_get_contents(path, &list, NULL, NULL))
		fail("%s: cannot be read", path);
	lines = g_strsplit(list, "\n", -1);
	for (char **line = lines; *line; line++)
		if (strlen(*line) > 66) {
			g_autofree char *sum = g_strndup(*line, 64);

			check_file(*line + 66, sum);
		}
	return g_compute_checksum_for_string(G_CHECKSUM_SHA256, list, -1);
}

/* ---- One end ------------------------------------------------------------------------------------------------ */
/* Prints how many objects of each kind the kernel has, or nothing where that is not to be had: no rdma tool, softverbs. */
static int list(void)
{
	const char *argv[] = {"rdma", "-j", "resource", "show", NULL};
	g_autofree char *out = NULL;
	int status = 0;

	if (!g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL,
			  G_SPAWN_SEARCH_PATH | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL, &out, NULL,
			  &status, NULL) ||
	    !g_spawn_check_wait_status(status, NULL))
		return 0;
	puts(g_strstrip(out));
	return 0;
}

static pid_t start(char **words)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	setpgid(0, 0);
	/* The output of this program is the report. */
	dup2(STDERR_FILENO, STDOUT_FILENO);
	execvp(words[0], words);
	fprintf(stderr, "side: %s: %s\n", words[0], g_strerror(errno));
	_exit(127);
}

/* What it started and left behind; it is ended. */
static bool left_behind(pid_t group)
{
	if (kill(-group, 0) && errno == ESRCH)
		return false;
	kill(-group, SIGKILL);
	return true;
}

static void add_facts(JsonBuilder *json)
{
	g_autofree char *name = g_strdup_printf("%s.json", options.role);
	g_autofree char *path = g_build_filename(options.folder, name, NULL);
	g_autoptr(JsonParser) parser = json_parser_new();

	json_builder_set_member_name(json, "facts");
	if (json_parser_load_from_file(parser, path, NULL))
		json_builder_add_value(json, json_parser_steal_root(parser));
	else
		json_builder_add_null_value(json);
}

static int run(char **words)
{
	g_autofree char *digest = options.frozen ? frozen_digest() : NULL;
	g_autofree char *stale = g_strdup_printf("%s/%s.json", options.folder, options.role);
	JsonBuilder *json = json_builder_new();
	int status = 0;
	pid_t pid, reaped;

	if (g_mkdir_with_parents(options.folder, 0700))
		fail("%s: %s", options.folder, g_strerror(errno));
	unlink(stale);
	json_builder_begin_object(json);
	json_add_string(json, "host", g_get_host_name());
	json_add_string(json, "frozen", digest);
	json_add_bool(json, "locked_before", all_locked());
	json_add_number(json, "start_ns", now_ns());
	pid = start(words);
	if (pid < 0)
		fail("fork: %s", g_strerror(errno));
	json_add_number(json, "pid", (uint64_t)pid);
	do
		reaped = waitpid(pid, &status, 0);
	while (reaped < 0 && errno == EINTR);
	json_add_number(json, "reaped", reaped < 0 ? 0 : (uint64_t)reaped);
	json_add_number(json, "reaped_ns", now_ns());
	json_add_number(json, "wait_status", (uint64_t)status);
	json_add_bool(json, "left_behind", left_behind(pid));
	json_add_bool(json, "locked_after", all_locked());
	add_facts(json);
	json_builder_end_object(json);
	json_print(json);
	return 0;
}

int main(int argc, char **argv)
{
	g_autoptr(GOptionContext) context = g_option_context_new("hold|list|run [-- COMMAND]");
	g_autoptr(GError) error = NULL;

	g_option_context_add_main_entries(context, entries, NULL);
	g_option_context_set_strict_posix(context, FALSE);
	if (!g_option_context_parse(context, &argc, &argv, &error))
		fail("%s", error->message);
	if (argc == 2 && strcmp(argv[1], "hold") == 0)
		return hold();
	if (argc == 2 && strcmp(argv[1], "list") == 0)
		return list();
	if (argc > 3 && strcmp(argv[1], "run") == 0 && options.folder && options.role)
		return run(argv + (strcmp(argv[2], "--") == 0 ? 3 : 2));
	fail("hold, list, or run --folder DIR --role NAME -- COMMAND");
}
