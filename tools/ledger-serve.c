/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/ledger-view.h"

/*
 * One server in a process, in a thread of its own, and without GIO: that starts a thread more, and ends a process which
 * cannot have it.
 */
static struct {
	GThread *thread;
	char *path;
	int fd;      /* listens */
	int stop[2]; /* a pipe that is closed at the end */
} server;

char *ledger_serve_folder(void)
{
	return g_build_filename(g_get_user_runtime_dir(), "escrow", NULL);
}

/* Whoever connects is of our user (the folder is ours alone), gets the ledger, and is let go. */
static void answer(int fd)
{
	g_autoptr(JsonNode) ledger = ledger_view();
	g_autofree char *text = json_to_string(ledger, TRUE);
	const struct timeval patience = {.tv_sec = 5}; /* with one that does not read */
	size_t sent = 0, all = strlen(text);

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	while (sent < all) {
		ssize_t n = send(fd, text + sent, all - sent, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return;
		sent += n > 0 ? (size_t)n : 0;
	}
}

static gpointer serve(gpointer data)
{
	struct pollfd fds[2] = {{.fd = server.fd, .events = POLLIN}, {.fd = server.stop[0]}};

	while (!fds[1].revents) {
		int fd;

		if (poll(fds, 2, -1) <= 0 || !fds[0].revents)
			continue;
		fd = accept4(server.fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0) {
			poll(&fds[1], 1, 100); /* for want of a descriptor, perhaps */
			continue;
		}
		answer(fd);
		close(fd);
	}
	return data;
}

static bool listen_at(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	if (g_strlcpy(at.sun_path, path, sizeof(at.sun_path)) >= sizeof(at.sun_path)) {
		errno = ENAMETOOLONG;
		return false;
	}
	server.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return server.fd >= 0 && !bind(server.fd, (struct sockaddr *)&at, sizeof(at)) &&
	       !listen(server.fd, 16) && !pipe2(server.stop, O_CLOEXEC);
}

static void close_all(void)
{
	int *fds[] = {&server.fd, &server.stop[0], &server.stop[1]};

	for (guint i = 0; i < G_N_ELEMENTS(fds); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
	if (server.path)
		unlink(server.path);
	g_clear_pointer(&server.path, g_free);
}

void ledger_serve_start(void)
{
	g_autofree char *folder = ledger_serve_folder();
	g_autofree char *name = g_strdup_printf("%ld", (long)getpid());

	server.fd = server.stop[0] = server.stop[1] = -1;
	if (g_mkdir_with_parents(folder, 0700)) {
		g_info("the ledger is not served: %s: %s", folder, g_strerror(errno));
		return;
	}
	server.path = g_build_filename(folder, name, NULL);
	unlink(server.path); /* of an earlier process with our number */
	if (listen_at(server.path))
		server.thread = g_thread_try_new("ledger", serve, NULL, NULL);
	if (server.thread)
		return;
	g_info("the ledger is not served: %s: %s", server.path, g_strerror(errno));
	close_all();
}

void ledger_serve_stop(void)
{
	if (!server.thread)
		return;
	close(server.stop[1]);
	server.stop[1] = -1;
	g_thread_join(g_steal_pointer(&server.thread));
	close_all();
}
