/* SPDX-License-Identifier: BSD-2-Clause */
/* escrow ledger: the owner tree of a running process that serves it (demo, bench, swap). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* The process ids that serve a ledger now, sorted as text; sockets of dead ones are left out. */
static GPtrArray *serving(const char *folder)
{
	GPtrArray *all = g_ptr_array_new_with_free_func(g_free);
	g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
	const char *name;

	while (dir && (name = g_dir_read_name(dir))) {
		g_autofree char *proc = g_strdup_printf("/proc/%s", name);

		if (strspn(name, "0123456789") == strlen(name) && !access(proc, F_OK))
			g_ptr_array_add(all, g_strdup(name));
	}
	g_ptr_array_sort(all, by_name);
	return all;
}

static char *choose(const char *folder)
{
	g_autoptr(GPtrArray) all = serving(folder);

	if (all->len == 1)
		return g_strdup(g_ptr_array_index(all, 0));
	if (!all->len) {
		tool_complain("no process serves a ledger (" SERVERS " do)");
		return NULL;
	}
	g_ptr_array_add(all, NULL);
	{
		g_autofree char *names = g_strjoinv(" ", (char **)all->pdata);

		tool_complain("which process? %s", names);
	}
	return NULL;
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

static int show(const char *path, gboolean as_json)
{
	g_autoptr(GError) error = NULL;
	g_autofree char *text = fetch(path, &error);
	g_autoptr(JsonNode) ledger = text ? json_from_string(text, &error) : NULL;

	if (!ledger) {
		tool_complain("%s: %s", path, error ? error->message : "said nothing");
		return TOOL_TROUBLE;
	}
	if (as_json)
		puts(text);
	else
		ledger_text(stdout, ledger);
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
	g_autofree char *path = NULL;

	if (!tool_parse(entries, "[PID]",
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
	pid = argc == 2 ? g_strdup(argv[1]) : choose(folder);
	if (!pid)
		return TOOL_NOTHING;
	path = g_build_filename(folder, pid, NULL);
	if (access(path, F_OK)) {
		tool_complain("process %s serves no ledger (" SERVERS " do)", pid);
		return TOOL_TROUBLE;
	}
	return show(path, as_json);
}
