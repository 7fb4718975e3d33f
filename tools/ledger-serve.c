/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <unistd.h>

#include <gio/gio.h>
#include <gio/gunixsocketaddress.h>

#include "tools/ledger-view.h"

/* One server in a process; it lives in a thread with a main context of its own. */
static struct {
	GThread *thread;
	GMainContext *context;
	GMainLoop *loop;
	char *path;
} server;

char *ledger_serve_folder(void)
{
	return g_build_filename(g_get_user_runtime_dir(), "escrow", NULL);
}

/* Whoever connects is of our user (the folder is ours alone), gets the ledger, and is let go. */
static gboolean on_incoming(GSocketService *service, GSocketConnection *connection, GObject *source,
			    gpointer data)
{
	g_autoptr(JsonNode) ledger = ledger_view();
	g_autofree char *text = json_to_string(ledger, TRUE);
	GOutputStream *out = g_io_stream_get_output_stream(G_IO_STREAM(connection));

	(void)service, (void)source, (void)data;
	g_output_stream_write_all(out, text, strlen(text), NULL, NULL, NULL);
	g_io_stream_close(G_IO_STREAM(connection), NULL, NULL);
	return TRUE;
}

static gpointer serve(gpointer data)
{
	g_autoptr(GSocketService) service = data;

	g_main_context_push_thread_default(server.context);
	g_socket_service_start(service);
	g_main_loop_run(server.loop);
	g_socket_service_stop(service);
	g_socket_listener_close(G_SOCKET_LISTENER(service));
	g_main_context_pop_thread_default(server.context);
	return NULL;
}

void ledger_serve_start(void)
{
	g_autofree char *folder = ledger_serve_folder();
	g_autofree char *name = g_strdup_printf("%ld", (long)getpid());
	g_autoptr(GSocketAddress) address = NULL;
	g_autoptr(GError) error = NULL;
	GSocketService *service;

	if (g_mkdir_with_parents(folder, 0700)) {
		g_info("the ledger is not served: %s: %s", folder, g_strerror(errno));
		return;
	}
	server.context = g_main_context_new();
	server.loop = g_main_loop_new(server.context, FALSE);
	server.path = g_build_filename(folder, name, NULL);
	unlink(server.path); /* of an earlier process with our number */
	address = g_unix_socket_address_new(server.path);
	service = g_socket_service_new();
	g_socket_service_stop(service);
	if (!g_socket_listener_add_address(G_SOCKET_LISTENER(service), address,
					   G_SOCKET_TYPE_STREAM, G_SOCKET_PROTOCOL_DEFAULT, NULL,
					   NULL, &error)) {
		g_info("the ledger is not served: %s", error->message);
		g_clear_pointer(&server.path, g_free);
		g_object_unref(service);
		return;
	}
	g_signal_connect(service, "incoming", G_CALLBACK(on_incoming), NULL);
	server.thread = g_thread_new("ledger", serve, service);
}

static gboolean quit(gpointer data)
{
	(void)data;
	g_main_loop_quit(server.loop);
	return G_SOURCE_REMOVE;
}

void ledger_serve_stop(void)
{
	if (server.thread) {
		g_autoptr(GSource) source = g_idle_source_new();

		/* From inside: a loop that has not begun to run would forget a quit from here. */
		g_source_set_callback(source, quit, NULL, NULL);
		g_source_attach(source, server.context);
		g_thread_join(g_steal_pointer(&server.thread));
		unlink(server.path);
	}
	g_clear_pointer(&server.path, g_free);
	g_clear_pointer(&server.loop, g_main_loop_unref);
	g_clear_pointer(&server.context, g_main_context_unref);
}
