/* SPDX-License-Identifier: BSD-2-Clause */
/* The hosts' own channel between two machines. */
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

/* The other machine may still be starting. */
static guint64 patience(void)
{
	const char *set = g_getenv("ESCROW_CONNECT_SECONDS");
	guint64 seconds;

	return set && g_ascii_string_to_unsigned(set, 10, 1, 86400, &seconds, NULL) ? seconds : 60;
}

static bool port_refused(const char *where, const char *port, bool listens, const char *also)
{
	tool_complain("%s: --%s %s: port %s: %d to 65535%s is allowed", tool_command(),
		      listens ? "listen" : "connect", where, port, listens ? 0 : 1, also);
	return false;
}

/* getaddrinfo takes the lower half of a number that is too large.  0: any, for who listens. */
static bool port_allowed(const char *where, const char *port, bool listens)
{
	if (!g_ascii_isdigit(*port) && *port != '-' && *port != '+')
		return true; /* a service's name */
	if (g_ascii_string_to_unsigned(port, 10, listens ? 0 : 1, 65535, NULL, NULL))
		return true;
	return port_refused(where, port, listens, "");
}

/* Cuts HOST:PORT, and gives the port; NULL: complained. */
static char *cut_port(char *host, const char *where, bool listens)
{
	char *port = strrchr(host, ':');

	if (!port || !port[1]) {
		tool_complain("%s: --%s %s: %s:PORT is meant", tool_command(),
			      listens ? "listen" : "connect", tool_shown(where),
			      listens ? "[HOST]" : "HOST");
		return NULL;
	}
	*port++ = 0;
	return port_allowed(where, port, listens) ? port : NULL;
}

bool demo_place_good(const char *where, bool listens)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	g_autofree char *host = g_strdup(where);
	struct addrinfo *found = NULL;
	char *port;
	int rc;

	if (!where)
		return true;
	port = cut_port(host, where, listens);
	if (!port)
		return false;
	rc = getaddrinfo(NULL, port, &hints, &found);
	if (rc == EAI_SERVICE)
		return port_refused(where, port, listens, ", or a service's name,");
	if (!rc)
		freeaddrinfo(found);
	return true;
}

/* "host:port", "[v6]:port", for listening also ":port"; NULL: complained. */
static struct addrinfo *resolve(const char *where, int flags)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
	g_autofree char *host = g_strdup(where);
	bool listens = flags & AI_PASSIVE;
	char *port = cut_port(host, where, listens), *name = host;
	struct addrinfo *found = NULL;
	size_t len;
	int rc;

	if (!port)
		return NULL;
	len = strlen(name);
	if (len >= 2 && name[0] == '[' && name[len - 1] == ']') {
		name[len - 1] = 0;
		name++;
	}
	rc = getaddrinfo(*name ? name : NULL, port, &hints, &found);
	if (rc)
		tool_complain("%s: --%s %s: %s", tool_command(), listens ? "listen" : "connect",
			      where, gai_strerror(rc));
	return rc ? NULL : found;
}

static int no_delay(int fd)
{
	int on = 1;

	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

/* The first of the addresses that can be listened at; -1: none, errno says why. */
static int listen_at(const struct addrinfo *at)
{
	int on = 1, fd = -1, error;

	for (; at && fd < 0; at = at->ai_next) {
		fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
		if (fd < 0 || (!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) &&
			       !bind(fd, at->ai_addr, at->ai_addrlen) && !listen(fd, 1)))
			continue;
		error = errno;
		close(fd);
		errno = error;
		fd = -1;
	}
	return fd;
}

/* Where the system chose the port, the other end has to be told. */
static void tell_port(int fd, const char *where)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	char port[NI_MAXSERV];

	if (g_str_has_suffix(where, ":0") && !getsockname(fd, (struct sockaddr *)&at, &len) &&
	    !getnameinfo((struct sockaddr *)&at, len, NULL, 0, port, sizeof(port), NI_NUMERICSERV))
		tool_complain("%s: %s: listens on port %s", tool_command(), where, port);
}

int demo_listen(const char *where)
{
	struct addrinfo *at = resolve(where, AI_PASSIVE);
	int fd, peer = -1;

	if (!at)
		return -1;
	fd = listen_at(at);
	if (fd >= 0) {
		tell_port(fd, where);
		peer = no_delay(accept4(fd, NULL, NULL, SOCK_CLOEXEC));
	}
	if (peer < 0)
		tool_complain("%s: %s: %s", tool_command(), where, g_strerror(errno));
	if (fd >= 0)
		close(fd);
	freeaddrinfo(at);
	return peer;
}

/* The first of the addresses where somebody listens; -1: none, errno says why. */
static int ask(const struct addrinfo *to)
{
	int fd = -1, error;

	for (; to && fd < 0; to = to->ai_next) {
		fd = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC, to->ai_protocol);
		if (fd < 0 || !connect(fd, to->ai_addr, to->ai_addrlen))
			continue;
		error = errno;
		close(fd);
		errno = error;
		fd = -1;
	}
	return fd;
}

int demo_connect(const char *where)
{
	gint64 end = g_get_monotonic_time() + (gint64)patience() * G_USEC_PER_SEC;
	struct addrinfo *to = resolve(where, 0);
	bool told = false;
	int fd, error;

	if (!to)
		return -1;
	while ((fd = ask(to)) < 0 && (error = errno, g_get_monotonic_time() < end)) {
		if (!told)
			tool_complain("%s: %s: %s; it is asked again for up to %" G_GUINT64_FORMAT
				      " s",
				      tool_command(), where, g_strerror(error), patience());
		told = true;
		/* Nobody listens yet: there is nothing to wait on, so it is asked again. */
		g_usleep(100000);
	}
	if (fd < 0)
		tool_complain("%s: %s: %s", tool_command(), where, g_strerror(error));
	freeaddrinfo(to);
	return no_delay(fd);
}

/* ---- Who is it? ------------------------------------------------------------------------------------ */
/* The first message, for which nobody waits for ever. */
static int hear_hello(int fd, struct demo_message *m)
{
	gint64 end = g_get_monotonic_time() + (gint64)patience() * G_USEC_PER_SEC, now;
	struct pollfd in = {.fd = fd, .events = POLLIN};
	int n;

	while ((n = demo_receive(fd, m)) == 0 && (now = g_get_monotonic_time()) < end)
		poll(&in, 1, (int)MIN((end - now) / 1000 + 1, G_MAXINT));
	return n;
}

bool demo_greet(int fd, const char *where)
{
	g_autofree struct demo_message *m = g_new0(struct demo_message, 1);
	const char *me = tool_command();
	int n = demo_send(fd, DEMO_HELLO, 0, me, (uint32_t)strlen(me)) ? hear_hello(fd, m)
								       : DEMO_GONE;

	if (n > 0 && m->word == DEMO_HELLO && m->len == strlen(me) && !memcmp(m->bytes, me, m->len))
		return true;
	if (n == 0)
		tool_complain("%s: %s: who is connected has said nothing for %" G_GUINT64_FORMAT
			      " s",
			      me, where, patience());
	else if (n > 0)
		tool_complain("%s: %s: the other end is no escrow %s", me, where, me);
	else
		tool_complain("%s: %s: the other end %s", me, where, demo_end_did(n));
	return false;
}
