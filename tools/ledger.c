/* SPDX-License-Identifier: BSD-2-Clause */
/* escrow ledger: the owner tree of a running process that serves it (demo, bench, swap). */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <gio/gio.h>
#include <gio/gunixsocketaddress.h>

#include "tools/ledger-view.h"
#include "tools/tool.h"

#define SERVERS "`escrow demo`, `escrow bench` and `escrow swap`"
#define MAX_LEDGER (64u << 20) /* of text; more than the largest engine can list */

static gint by_name(gconstpointer a, gconstpointer b)
{
	return g_strcmp0(*(char *const *)a, *(char *const *)b);
}

/* The parent of a process, as text, or NULL (proc(5), /proc/pid/stat: the name may hold anything). */
static char *parent_of(const char *pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%s/stat", pid);
	g_autofree char *text = NULL;
	char *at;
	int parent;

	if (!g_file_get_contents(path, &text, NULL, NULL))
		return NULL;
	at = strrchr(text, ')');
	return at && sscanf(at, ") %*c %d", &parent) == 1 ? g_strdup_printf("%d", parent) : NULL;
}

static bool has_name(const GPtrArray *all, const char *name)
{
	return name && g_ptr_array_find_with_equal_func((GPtrArray *)(uintptr_t)all, name,
							g_str_equal, NULL);
}

/* Those whose parent is one of them (of == NULL: is none of them), or is the process `of`. */
static GPtrArray *by_parent(const GPtrArray *all, const char *of)
{
	GPtrArray *some = g_ptr_array_new_with_free_func(g_free);

	for (guint i = 0; i < all->len; i++) {
		const char *pid = g_ptr_array_index(all, i);
		g_autofree char *parent = parent_of(pid);

		if (of ? g_strcmp0(parent, of) == 0 : !has_name(all, parent))
			g_ptr_array_add(some, g_strdup(pid));
	}
	return some;
}

static bool is_our_socket(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISSOCK(st.st_mode) && st.st_uid == geteuid();
}

/*
 * Does somebody answer at the socket of this process?  Who was killed has left his behind: where there is no such process
 * any more it is removed.  One that lives may be between bind and listen.
 */
static bool answers(const char *folder, const char *pid)
{
	g_autofree char *path = g_build_filename(folder, pid, NULL);
	g_autofree char *proc = g_build_filename("/proc", pid, NULL);
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd, why = 0;

	if (g_strlcpy(at.sun_path, path, sizeof(at.sun_path)) >= sizeof(at.sun_path))
		return false;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)))
		why = errno;
	if (fd >= 0)
		close(fd);
	if (why == ECONNREFUSED && access(proc, F_OK) && is_our_socket(path))
		unlink(path);
	return !why || why == EAGAIN; /* EAGAIN: so many ask that it has not come to us */
}

/* The process ids that serve a ledger now, sorted as text. */
static GPtrArray *serving(const char *folder)
{
	GPtrArray *all = g_ptr_array_new_with_free_func(g_free);
	g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
	const char *name;

	while (dir && (name = g_dir_read_name(dir))) {
		if (strspn(name, "0123456789") == strlen(name) && answers(folder, name))
			g_ptr_array_add(all, g_strdup(name));
	}
	g_ptr_array_sort(all, by_name);
	return all;
}

/* The one process that serves a ledger: TOOL_OK and its id; else it was told why none is chosen. */
static int choose(const char *folder, char **pid)
{
	g_autoptr(GPtrArray) each = serving(folder);
	/* the other end of a demo on this machine goes with the one that started it */
	g_autoptr(GPtrArray) all = by_parent(each, NULL);

	if (!all->len) {
		tool_complain("no process serves a ledger (" SERVERS " do)");
		return TOOL_NOTHING;
	}
	if (all->len > 1) {
		g_autofree char *names = NULL;

		g_ptr_array_add(all, NULL);
		names = g_strjoinv(" ", (char **)all->pdata);
		tool_complain("ledger: several processes serve one; allowed is one PID of: %s",
			      names);
		return TOOL_TROUBLE;
	}
	*pid = g_strdup(g_ptr_array_index(all, 0));
	return TOOL_OK;
}

static char *fetch(const char *path, GError **error)
{
	g_autoptr(GSocketAddress) address = g_unix_socket_address_new(path);
	g_autoptr(GSocketClient) client = g_socket_client_new();
	g_autoptr(GSocketConnection) connection =
		g_socket_client_connect(client, G_SOCKET_CONNECTABLE(address), NULL, error);
	g_autoptr(GString) text = g_string_new(NULL);
	char part[65536];
	gssize n = 0;

	if (!connection)
		return NULL;
	while (text->len < MAX_LEDGER &&
	       (n = g_input_stream_read(g_io_stream_get_input_stream(G_IO_STREAM(connection)), part,
					sizeof(part), NULL, error)) > 0)
		g_string_append_len(text, part, n);
	return n < 0 ? NULL : g_string_free(g_steal_pointer(&text), FALSE);
}

static JsonNode *read_ledger(const char *folder, const char *pid, GError **error)
{
	g_autofree char *path = g_build_filename(folder, pid, NULL);
	g_autofree char *text = fetch(path, error);

	return text ? json_from_string(text, error) : NULL;
}

/* The ledgers of processes that this one started; one that has ended meanwhile has none any more. */
static GPtrArray *read_others(const char *folder, const char *pid)
{
	GPtrArray *others = g_ptr_array_new_with_free_func((GDestroyNotify)json_node_unref);
	g_autoptr(GPtrArray) all = serving(folder);
	g_autoptr(GPtrArray) children = by_parent(all, pid);

	for (guint i = 0; i < children->len; i++) {
		JsonNode *ledger = read_ledger(folder, g_ptr_array_index(children, i), NULL);

		if (ledger)
			g_ptr_array_add(others, ledger);
	}
	return others;
}

static void show_json(JsonNode *ledger, GPtrArray *others)
{
	g_autoptr(JsonArray) children = json_array_new();
	g_autofree char *text = NULL;

	for (guint i = 0; i < others->len; i++)
		json_array_add_element(children, json_node_copy(g_ptr_array_index(others, i)));
	if (others->len)
		json_object_set_array_member(json_node_get_object(ledger), "children",
					     json_array_ref(children));
	text = json_to_string(ledger, TRUE);
	puts(text);
}

static int show(const char *folder, const char *pid, gboolean as_json)
{
	g_autoptr(GError) error = NULL;
	g_autoptr(JsonNode) ledger = read_ledger(folder, pid, &error);
	g_autoptr(GPtrArray) others = NULL;

	if (!ledger || !JSON_NODE_HOLDS_OBJECT(ledger)) {
		tool_complain("%s/%s: %s", folder, pid, error ? error->message : "said nothing");
		return TOOL_TROUBLE;
	}
	others = read_others(folder, pid);
	if (as_json) {
		show_json(ledger, others);
		return TOOL_OK;
	}
	ledger_text(stdout, ledger);
	for (guint i = 0; i < others->len; i++) {
		putchar('\n');
		ledger_text(stdout, g_ptr_array_index(others, i));
	}
	return TOOL_OK;
}

int ledger_main(int argc, char **argv)
{
	gboolean as_json = FALSE;
	const GOptionEntry entries[] = {
		{"json", 0, 0, G_OPTION_ARG_NONE, &as_json, "Machine-readable output", NULL},
		{NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL},
	};
	g_autofree char *folder = ledger_serve_folder();
	g_autofree char *pid = NULL;
	int status;

	if (!tool_parse(entries, NULL, "[PID]",
			"The engines, charges and owners of a running process, and what it has in "
			"quarantine.",
			&argc, &argv))
		return TOOL_TROUBLE;
	if (argc > 2) {
		tool_complain("ledger takes one process id; %s is one too many", argv[2]);
		return TOOL_TROUBLE;
	}
	if (argc == 2 && (!*argv[1] || strspn(argv[1], "0123456789") != strlen(argv[1]))) {
		tool_complain("ledger: \"%s\" is not a process id", argv[1]);
		return TOOL_TROUBLE;
	}
	if (argc == 2)
		pid = g_strdup(argv[1]);
	else if ((status = choose(folder, &pid)) != TOOL_OK)
		return status;
	if (!answers(folder, pid)) {
		tool_complain("process %s serves no ledger (" SERVERS " do)", pid);
		return TOOL_TROUBLE;
	}
	return show(folder, pid, as_json);
}
