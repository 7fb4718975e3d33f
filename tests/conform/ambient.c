/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "tests/conform/ambient.h"

#include <dirent.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "tests/conform/patience.h"
#include "tests/conform/verdict.h"

extern char **environ;

static uint64_t hash(uint64_t h, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	while (n--)
		h = (h ^ *p++) * UINT64_C(1099511628211);
	return h;
}

static void take_fds(struct ambient *a)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	char path[64];
	ssize_t n;
	int own;

	if (!dir)
		verdict_broken("/proc/self/fd: %m");
	own = dirfd(dir);
	while ((e = readdir(dir))) {
		struct ambient_fd *f = &a->fd[a->nfds];

		f->fd = atoi(e->d_name);
		if (e->d_name[0] == '.' || f->fd == own || a->nfds == 255)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
		n = readlink(path, f->target, sizeof(f->target) - 1);
		f->target[n > 0 ? n : 0] = 0;
		a->nfds++;
	}
	closedir(dir);
}

static void take_status(struct ambient *a)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kb;
	char line[256];

	if (!f)
		verdict_broken("/proc/self/status: %m");
	while (fgets(line, sizeof(line), f)) {
		sscanf(line, "Threads: %u", &a->threads);
		if (sscanf(line, "VmPin: %llu", &kb) == 1 || sscanf(line, "VmLck: %llu", &kb) == 1)
			a->pinned += kb;
	}
	fclose(f);
}

static void take_signals(struct ambient *a)
{
	struct sigaction act;
	sigset_t set;
	int sig;

	a->signals = 1469598103934665603u;
	for (sig = 1; sig < 65; sig++) {
		if (sigaction(sig, NULL, &act))
			continue;
		a->signals = hash(a->signals, &act.sa_handler, sizeof(act.sa_handler));
		a->signals = hash(a->signals, &act.sa_flags, sizeof(act.sa_flags));
	}
	pthread_sigmask(SIG_BLOCK, NULL, &set);
	for (sig = 1; sig < 65; sig++)
		a->mask |= (uint64_t)(sigismember(&set, sig) == 1) << (sig - 1);
}

void ambient_take(struct ambient *a)
{
	struct rlimit limit;
	const char *locale;
	char **e;
	int i;

	memset(a, 0, sizeof(*a));
	take_fds(a);
	take_status(a);
	take_signals(a);
	a->environment = 1469598103934665603u;
	for (e = environ; e && *e; e++)
		a->environment = hash(a->environment, *e, strlen(*e) + 1);
	a->limits = 1469598103934665603u;
	for (i = 0; i < RLIM_NLIMITS; i++)
		if (!getrlimit((__rlimit_resource_t)i, &limit))
			a->limits = hash(a->limits, &limit, sizeof(limit));
	a->umask = umask(0);
	umask(a->umask);
#if defined(__SSE__)
	a->mxcsr = _mm_getcsr() & ~0x3fu; /* without the flags of what happened */
#endif
	if (!getcwd(a->cwd, sizeof(a->cwd)))
		a->cwd[0] = 0;
	locale = setlocale(LC_ALL, NULL);
	snprintf(a->locale, sizeof(a->locale), "%s", locale ? locale : "");
}

static const struct ambient_fd *find_fd(const struct ambient *a, const struct ambient_fd *f)
{
	uint32_t i;

	for (i = 0; i < a->nfds; i++)
		if (a->fd[i].fd == f->fd && !strcmp(a->fd[i].target, f->target))
			return &a->fd[i];
	return NULL;
}

/*
 * A thread that was joined is gone for its process and counted a moment longer: the kernel wakes the one that joins before
 * it lowers the count.  So too many may become fewer, and before there may have been one too many; what was left behind
 * stays.
 */
static uint32_t threads_left(const struct ambient *before, const struct ambient *after)
{
	struct ambient now = {.threads = after->threads};
	uint64_t end = patience_end();
	unsigned int round = 0;

	while (now.threads > before->threads && !patience_over(end)) {
		patience_idle(round++);
		take_status(&now);
	}
	return now.threads;
}

void ambient_compare(const struct ambient *b, const struct ambient *a, const char *when)
{
	uint32_t i, threads;

	for (i = 0; i < a->nfds; i++)
		expect_as("T5", find_fd(b, &a->fd[i]), "%s: descriptor %d (%s) is left open", when,
			  a->fd[i].fd, a->fd[i].target);
	for (i = 0; i < b->nfds; i++)
		expect_as("T5", find_fd(a, &b->fd[i]), "%s: descriptor %d (%s) was closed", when,
			  b->fd[i].fd, b->fd[i].target);
	threads = threads_left(b, a);
	expect_as("T4", threads <= b->threads, "%s: %u threads, %u before", when, threads,
		  b->threads);
	expect_as("T5", a->signals == b->signals, "%s: a signal's disposition changed", when);
	expect_as("T5", a->mask == b->mask, "%s: signal mask %#llx, %#llx before", when,
		  (unsigned long long)a->mask, (unsigned long long)b->mask);
	expect_as("T5", a->environment == b->environment, "%s: the environment changed", when);
	expect_as("T5", a->limits == b->limits, "%s: a resource limit changed", when);
	expect_as("T5", a->pinned == b->pinned, "%s: %llu kB locked or pinned, %llu before", when,
		  (unsigned long long)a->pinned, (unsigned long long)b->pinned);
	expect_as("T5", a->umask == b->umask, "%s: umask %03o, %03o before", when, a->umask,
		  b->umask);
	expect_as("T5", a->mxcsr == b->mxcsr, "%s: floating point control %#x, %#x before", when,
		  a->mxcsr, b->mxcsr);
	expect_as("T5", !strcmp(a->cwd, b->cwd), "%s: directory %s, %s before", when, a->cwd,
		  b->cwd);
	expect_as("T5", !strcmp(a->locale, b->locale), "%s: locale %s, %s before", when, a->locale,
		  b->locale);
	expect_as("F2", waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "%s: there is a child",
		  when);
}
