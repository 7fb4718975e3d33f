/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an end waits for, told to a person who may wonder: once for each wait, when it takes long.  Nothing is concluded
 * from that: the other end may be stopped, or only slow.
 */
#include "config.h"

#include <poll.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/demo.h"
#include "tools/tool.h"

#define LONG_S 5

/* One wait at a time in a process. */
static struct {
	gint64 since;
	bool told;
} wait_now;

void demo_wait_begins(void)
{
	wait_now.since = g_get_monotonic_time();
	wait_now.told = false;
}

void demo_wait_goes_on(const struct demo_end *end, const char *what)
{
	gint64 now = g_get_monotonic_time();

	if (wait_now.told || now - wait_now.since < LONG_S * G_USEC_PER_SEC)
		return;
	wait_now.told = true;
	tool_complain("%s: still waits for %s", end->role, what);
}

/* What the other end is to say. */
static const char *text_of_word(enum demo_word word)
{
	static const char *const texts[] = {
		[DEMO_INVITATION] = "its invitation",
		[DEMO_GRANT] = "its grant",
		[DEMO_CHECKED] = "what its check gave",
		[DEMO_REVOKED] = "that it took back its grant",
		[DEMO_LEDGER] = "its last word",
		[DEMO_FILLED] = "that its memory is filled",
		[DEMO_BASELINE] = "its baseline",
	};

	return (guint)word < G_N_ELEMENTS(texts) && texts[word] ? texts[word]
								: "what it asks for next";
}

void demo_hearing_goes_on(const struct demo_end *end, enum demo_word word)
{
	g_autofree char *what = g_strconcat("the other end: ", text_of_word(word), NULL);

	demo_wait_goes_on(end, what);
}

int demo_await_word(const struct demo_end *end, enum demo_word word, struct demo_message *m)
{
	struct pollfd in = {.fd = end->channel, .events = POLLIN};
	int n;

	demo_wait_begins();
	while ((n = demo_receive(end->channel, m)) == 0)
		if (poll(&in, 1, LONG_S * 1000) == 0)
			demo_hearing_goes_on(end, word);
	return n;
}

int demo_reap(GPid other)
{
	struct pollfd ended = {.fd = pidfd_open(other, 0), .events = POLLIN};
	int status = 0;

	if (ended.fd >= 0 && poll(&ended, 1, LONG_S * 1000) == 0)
		tool_complain("%s: still waits for the other end, process %d, to end",
			      tool_command(), (int)other);
	if (ended.fd >= 0)
		close(ended.fd);
	waitpid(other, &status, 0);
	return status;
}
