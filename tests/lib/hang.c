/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/lib/hang.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char script[4096];
static volatile sig_atomic_t other_pid;
static unsigned int limit;

static void show(pid_t pid)
{
	char number[16];
	pid_t child;

	snprintf(number, sizeof(number), "%ld", (long)pid);
	child = fork();
	if (child == 0) {
		dup2(2, 1);
		execl("/bin/sh", "sh", script, number, (char *)NULL);
		_exit(127);
	}
	waitpid(child, NULL, 0);
}

static void on_alarm(int signal)
{
	(void)signal;
	fprintf(stderr, "# hangs\n");
	show(getpid());
	if (other_pid)
		show(other_pid);
	abort();
}

void hang_watch(unsigned int seconds, pid_t other)
{
	const char *top = getenv("top_srcdir");
	struct sigaction action = {.sa_handler = on_alarm};

	snprintf(script, sizeof(script), "%s/tests/lib/stacks", top ? top : TOP_SRCDIR);
	other_pid = (sig_atomic_t)other;
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* a child looks at us */
	sigaction(SIGALRM, &action, NULL);
	limit = seconds;
	alarm(seconds);
}

void hang_alive(unsigned int times)
{
	if (limit)
		alarm(limit * times);
}
