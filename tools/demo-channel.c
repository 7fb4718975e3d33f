/* SPDX-License-Identifier: BSD-2-Clause */
/* The hosts' own channel: messages over a stream, a socket pair or TCP between two machines. */
#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/demo.h"
#include "tools/tool.h"

#define HEADER offsetof(struct demo_message, bytes)
#define CONNECT_SECONDS 60 /* the other machine may still be starting */

const char *demo_command(void)
{
	const char *space = strchr(g_get_prgname(), ' ');

	return space ? space + 1 : g_get_prgname();
}

/* What has come of the next message; a process reads one channel at a time, whole messages of it. */
static struct demo_message part;
static size_t have;

bool demo_send(int fd, enum demo_word word, uint64_t number, const void *bytes, uint32_t len)
{
	g_autofree struct demo_message *m = g_new0(struct demo_message, 1);
	size_t sent = 0, all = HEADER + len;

	if (len > sizeof(m->bytes))
		return false;
	m->word = word;
	m->len = len;
	m->number = number;
	if (len)
		memcpy(m->bytes, bytes, len);
	while (sent < all) {
		ssize_t n = send(fd, (const char *)m + sent, all - sent, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return false;
		sent += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* Takes what is there up to `end` bytes of the message: 1 all of it, 0 not yet, -1 it has ended. */
static int take(int fd, size_t end)
{
	while (have < end) {
		ssize_t n = recv(fd, (char *)&part + have, end - have, MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n <= 0)
			return -1;
		have += (size_t)n;
	}
	return 1;
}

bool demo_channel_gone(int fd)
{
	uint8_t byte;
	ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

int demo_receive(int fd, struct demo_message *m)
{
	int rc = take(fd, HEADER);

	if (rc <= 0)
		return rc;
	if (part.len > sizeof(part.bytes) || part.word > DEMO_FAILED)
		return -1;
	rc = take(fd, HEADER + part.len);
	if (rc <= 0)
		return rc;
	memcpy(m, &part, HEADER + part.len);
	have = 0;
	return 1;
}

bool demo_await(int fd, struct demo_message *m)
{
	struct pollfd in = {.fd = fd, .events = POLLIN};
	int n;

	while ((n = demo_receive(fd, m)) == 0)
		poll(&in, 1, -1);
	return n > 0;
}

/* ---- Between two machines ------------------------------------------------------------------------- */
/* "host:port", "[v6]:port", for listening also ":port"; NULL: complained. */
static struct addrinfo *resolve(const char *where, int flags)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
	g_autofree char *host = g_strdup(where);
	char *port = strrchr(host, ':'), *name = host;
	struct addrinfo *found = NULL;
	size_t len;
	int rc;

	if (!port || !port[1]) {
		tool_complain("%s: %s: HOST:PORT is meant", demo_command(), where);
		return NULL;
	}
	*port++ = 0;
	len = strlen(name);
	if (len >= 2 && name[0] == '[' && name[len - 1] == ']') {
		name[len - 1] = 0;
		name++;
	}
	rc = getaddrinfo(*name ? name : NULL, port, &hints, &found);
	if (rc)
		tool_complain("%s: %s: %s", demo_command(), where, gai_strerror(rc));
	return rc ? NULL : found;
}

static int no_delay(int fd)
{
	int on = 1;

	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

int demo_listen(const char *where)
{
	struct addrinfo *at = resolve(where, AI_PASSIVE);
	int on = 1, fd, peer = -1;

	if (!at)
		return -1;
	fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) &&
	    !bind(fd, at->ai_addr, at->ai_addrlen) && !listen(fd, 1))
		peer = no_delay(accept4(fd, NULL, NULL, SOCK_CLOEXEC));
	if (peer < 0)
		tool_complain("%s: %s: %s", demo_command(), where, g_strerror(errno));
	if (fd >= 0)
		close(fd);
	freeaddrinfo(at);
	return peer;
}

int demo_connect(const char *where)
{
	gint64 end = g_get_monotonic_time() + (gint64)CONNECT_SECONDS * G_USEC_PER_SEC;
	struct addrinfo *to = resolve(where, 0);
	int fd = -1, error = 0;

	while (to && fd < 0) {
		fd = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC, to->ai_protocol);
		error = fd < 0 || connect(fd, to->ai_addr, to->ai_addrlen) ? errno : 0;
		if (fd < 0 || !error)
			break;
		close(fd);
		fd = -1;
		if (g_get_monotonic_time() > end)
			break;
		/* Nobody listens yet: there is nothing to wait on, so it is asked again. */
		g_usleep(100000);
	}
	if (to && fd < 0)
		tool_complain("%s: %s: %s", demo_command(), where, g_strerror(error));
	if (to)
		freeaddrinfo(to);
	return no_delay(fd);
}
