/* SPDX-License-Identifier: BSD-2-Clause */
/* The hosts' own channel: messages over a stream, a socket pair or TCP between two machines (demo-tcp.c). */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "tools/demo.h"

#define HEADER offsetof(struct demo_message, bytes)
/* In the upper bytes of the word of each message on its way: zeros or text are none. */
#define MARK 0xe5c30d00u
#define MARKED 0xffffff00u

/* What has come of the next message; a process reads one channel at a time, whole messages of it. */
static struct demo_message part;
static size_t have;

bool demo_send(int fd, enum demo_word word, uint64_t number, const void *bytes, uint32_t len)
{
	g_autofree struct demo_message *m = g_new0(struct demo_message, 1);
	size_t sent = 0, all = HEADER + len;

	if (len > sizeof(m->bytes))
		return false;
	m->word = MARK | (uint32_t)word;
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

/* Takes what is there up to `end` bytes of the message: 1 all of it, 0 not yet, DEMO_GONE. */
static int take(int fd, size_t end)
{
	while (have < end) {
		ssize_t n = recv(fd, (char *)&part + have, end - have, MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n <= 0)
			return DEMO_GONE;
		have += (size_t)n;
	}
	return 1;
}

bool demo_channel_gone(int fd)
{
	struct pollfd hangup = {.fd = fd, .events = POLLRDHUP};

	/* A byte that nobody has read yet hides the end from recv, but not from poll. */
	return poll(&hangup, 1, 0) > 0;
}

/* As soon as there is enough of it to tell: what came is no message. */
static bool nonsense(void)
{
	if (have < sizeof(part.word))
		return false;
	if ((part.word & MARKED) != MARK || (part.word & ~MARKED) > DEMO_FAILED)
		return true;
	return have >= HEADER && part.len > sizeof(part.bytes);
}

int demo_receive(int fd, struct demo_message *m)
{
	int rc = take(fd, HEADER);

	if (nonsense())
		return DEMO_NONSENSE;
	if (rc > 0)
		rc = take(fd, HEADER + part.len);
	if (rc <= 0)
		return rc;
	memcpy(m, &part, HEADER + part.len);
	m->word &= ~MARKED;
	have = 0;
	return 1;
}

int demo_await(int fd, struct demo_message *m)
{
	struct pollfd in = {.fd = fd, .events = POLLIN};
	int n;

	while ((n = demo_receive(fd, m)) == 0)
		poll(&in, 1, -1);
	return n;
}

const char *demo_end_did(int received)
{
	if (received == DEMO_NONSENSE)
		return "sent what is no message of an escrow end";
	return received < 0 ? "is gone" : "failed";
}
