/* SPDX-License-Identifier: BSD-2-Clause */
/* Standard output: why it could not be written, and whether anybody still reads it. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/tool.h"

#define WATCH_STACK 65536

static atomic_int
	reason; /* errno of the first write that failed, EPIPE where nobody reads any more; 0: none */
static atomic_bool told;

static void note(int why)
{
	int none = 0;

	atomic_compare_exchange_strong(&reason, &none, why);
}

static void tell(void)
{
	if (!atomic_exchange(&told, true))
		tool_complain("standard output cannot be written: %s",
			      g_strerror(atomic_load(&reason)));
}

/* A stream remembers that a write failed, and not why; who is asked at the end finds another call's errno. */
static ssize_t write_out(void *cookie, const char *bytes, size_t size)
{
	size_t done = 0;

	(void)cookie;
	while (done < size) {
		ssize_t n = write(STDOUT_FILENO, bytes + done, size - done);

		if (n < 0 && errno != EINTR) {
			note(errno);
			return 0;
		}
		done += n > 0 ? (size_t)n : 0;
	}
	return (ssize_t)size;
}

/* An answer that nobody got is no answer: a full disk or a closed pipe is trouble. */
static void close_stdout(void)
{
	fflush(stdout);
	if (!atomic_load(&reason))
		return;
	tell();
	_exit(TOOL_TROUBLE);
}

void tool_output_start(void)
{
	FILE *out = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_out});

	if (!out)
		_exit(TOOL_TROUBLE);
	if (isatty(STDOUT_FILENO))
		setvbuf(out, NULL, _IOLBF, 0);
	stdout = out;
	atexit(close_stdout);
}

/* poll(2): of a pipe or a socket, that its other end was closed comes unasked; of a file nothing does. */
static void *watch(void *arg)
{
	struct pollfd out = {.fd = STDOUT_FILENO};

	while (poll(&out, 1, -1) < 0 && errno == EINTR)
		;
	if (out.revents & (POLLERR | POLLHUP))
		note(EPIPE);
	return arg;
}

void tool_output_watch(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;

	signal(SIGPIPE, SIG_IGN);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, WATCH_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* Without the thread it is noticed when something is printed. */
	pthread_create(&thread, &attr, watch, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool tool_output_lost(void)
{
	if (!atomic_load_explicit(&reason, memory_order_relaxed))
		return false;
	tell();
	return true;
}
