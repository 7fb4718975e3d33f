/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <gio/gunixsocketaddress.h>

#include "tools/supervise.h"

#define MAX_LINE 64u

struct fence_server {
	GSocketService *service;
	GPtrArray *clients;
	char *path;
	void (*on_engine)(void *ctx, const char *hex, pid_t pid);
	void *ctx;
};

struct client {
	struct fence_server *server;
	GSocketConnection *connection;
	GCancellable *cancel;
	char line[MAX_LINE + 1];
	gsize have;
};

static void client_free(gpointer data)
{
	struct client *c = data;

	g_io_stream_close(G_IO_STREAM(c->connection), NULL, NULL);
	g_object_unref(c->connection);
	g_object_unref(c->cancel);
	g_free(c);
}

/* Never blocks: who does not read what it is told has no claim to it. */
static void client_say(struct client *c, const char *word, const char *text)
{
	g_autofree char *line = g_strdup_printf("%s %s\n", word, text);
	GSocket *socket = g_socket_connection_get_socket(c->connection);

	g_socket_send_with_blocking(socket, line, strlen(line), FALSE, NULL, NULL);
}

static pid_t client_pid(struct client *c)
{
	GSocket *socket = g_socket_connection_get_socket(c->connection);
	g_autoptr(GCredentials) who = g_socket_get_credentials(socket, NULL);

	return who ? g_credentials_get_unix_pid(who, NULL) : -1;
}

/* An engine of a process that is not ours to reap would be fenced while it lives. */
static void client_line(struct client *c, const char *line)
{
	const char *hex = g_str_has_prefix(line, "engine ") ? line + 7 : "";
	pid_t pid = client_pid(c);
	g_autofree char *refusal = NULL;

	if (strlen(hex) != INCARNATION_HEX || strspn(hex, "0123456789abcdef") != INCARNATION_HEX) {
		client_say(c,
			   "refused:", "\"engine\" and 32 hexadecimal digits is all I understand");
	} else if (!tree_has(pid)) {
		refusal = g_strdup_printf("process %ld is not one that I started", (long)pid);
		client_say(c, "refused:", refusal);
	} else {
		c->server->on_engine(c->server->ctx, hex, pid);
		client_say(c, "known", hex);
	}
}

static void client_lines(struct client *c)
{
	char *end;

	while ((end = memchr(c->line, '\n', c->have))) {
		gsize length = (gsize)(end - c->line);

		*end = '\0';
		client_line(c, c->line);
		c->have -= length + 1;
		memmove(c->line, end + 1, c->have);
	}
}

static void client_read(struct client *c);

static void on_read(GObject *source, GAsyncResult *result, gpointer data)
{
	struct client *c = data;
	g_autoptr(GError) error = NULL;
	gssize n = g_input_stream_read_finish(G_INPUT_STREAM(source), result, &error);

	if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED))
		return; /* fence_server_free() goes on with it */
	if (n > 0) {
		c->have += (gsize)n;
		client_lines(c);
	}
	if (n > 0 && c->have < MAX_LINE) {
		client_read(c);
		return;
	}
	if (n > 0)
		client_say(c, "refused:", "a line is shorter");
	g_ptr_array_remove_fast(c->server->clients, c);
}

static void client_read(struct client *c)
{
	GInputStream *in = g_io_stream_get_input_stream(G_IO_STREAM(c->connection));

	g_input_stream_read_async(in, c->line + c->have, MAX_LINE - c->have, G_PRIORITY_DEFAULT,
				  c->cancel, on_read, c);
}

static gboolean on_incoming(GSocketService *service, GSocketConnection *connection, GObject *source,
			    gpointer data)
{
	struct fence_server *server = data;
	struct client *c = g_new0(struct client, 1);

	(void)service, (void)source;
	c->server = server;
	c->connection = g_object_ref(connection);
	c->cancel = g_cancellable_new();
	g_ptr_array_add(server->clients, c);
	client_read(c);
	return TRUE;
}

/* A socket that nobody serves any more is in the way; anything else there is somebody's. */
static bool make_room(const char *path, GSocketAddress *address, GError **error)
{
	g_autoptr(GSocketClient) client = g_socket_client_new();
	g_autoptr(GSocketConnection) connection = NULL;
	g_autoptr(GError) problem = NULL;
	struct stat st;

	if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
		g_set_error(error, G_IO_ERROR, G_IO_ERROR_FILENAME_TOO_LONG,
			    "socket %s: %zu bytes, at most %zu are allowed", path, strlen(path),
			    sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
		return false;
	}
	if (lstat(path, &st))
		return true;
	if (!S_ISSOCK(st.st_mode)) {
		g_set_error(error, G_IO_ERROR, G_IO_ERROR_EXISTS,
			    "socket %s: something else has that name", path);
		return false;
	}
	connection = g_socket_client_connect(client, G_SOCKET_CONNECTABLE(address), NULL, &problem);
	if (g_error_matches(problem, G_IO_ERROR, G_IO_ERROR_CONNECTION_REFUSED)) {
		unlink(path);
		return true;
	}
	g_set_error(error, G_IO_ERROR, G_IO_ERROR_ADDRESS_IN_USE, "socket %s: %s", path,
		    problem ? problem->message : "another process serves it");
	return false;
}

struct fence_server *fence_serve(const char *path,
				 void (*on_engine)(void *ctx, const char *hex, pid_t pid),
				 void *ctx, GError **error)
{
	g_autoptr(GSocketAddress) address = g_unix_socket_address_new(path);
	g_autoptr(GSocketService) service = g_socket_service_new();
	struct fence_server *server;

	if (!make_room(path, address, error))
		return NULL;
	if (!g_socket_listener_add_address(G_SOCKET_LISTENER(service), address,
					   G_SOCKET_TYPE_STREAM, G_SOCKET_PROTOCOL_DEFAULT, NULL,
					   NULL, error)) {
		g_prefix_error(error, "socket %s: ", path);
		return NULL;
	}
	server = g_new0(struct fence_server, 1);
	server->service = g_steal_pointer(&service);
	server->clients = g_ptr_array_new_with_free_func(client_free);
	server->path = g_strdup(path);
	server->on_engine = on_engine;
	server->ctx = ctx;
	g_signal_connect(server->service, "incoming", G_CALLBACK(on_incoming), server);
	return server;
}

void fence_server_tell(struct fence_server *server, const char *hex)
{
	for (guint i = 0; i < server->clients->len; i++)
		client_say(g_ptr_array_index(server->clients, i), "fenced", hex);
}

void fence_server_free(struct fence_server *server)
{
	if (!server)
		return;
	g_socket_service_stop(server->service);
	g_socket_listener_close(G_SOCKET_LISTENER(server->service));
	g_object_unref(server->service);
	for (guint i = 0; i < server->clients->len; i++)
		g_cancellable_cancel(
			((struct client *)g_ptr_array_index(server->clients, i))->cancel);
	/* The reads that were under way end now, and see that they were. */
	while (g_main_context_iteration(NULL, FALSE))
		;
	g_ptr_array_unref(server->clients);
	unlink(server->path);
	g_free(server->path);
	g_free(server);
}
