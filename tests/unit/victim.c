/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/victim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/hang.h"
#include "tests/lib/testing.h"

#define MAX_MORE 4

static char self[4096]; /* the path of this program */

/* Not by its name in /proc, which is valgrind's own program when that runs us. */
bool victim_possible(void)
{
	return readlink("/proc/self/exe", self, sizeof(self) - 1) > 0;
}

const char *victim_role(void)
{
	return getenv("ESCROW_VICTIM");
}

bool put(int fd, const void *bytes, uint64_t len)
{
	return write(fd, &len, sizeof(len)) == sizeof(len) && write(fd, bytes, len) == (ssize_t)len;
}

static bool take_all(int fd, void *to, size_t len)
{
	for (size_t have = 0; have < len;) {
		ssize_t n = read(fd, (char *)to + have, len - have);

		if (n <= 0)
			return false;
		have += (size_t)n;
	}
	return true;
}

uint64_t get(int fd, void *to, uint64_t size)
{
	uint64_t len = 0;

	if (!take_all(fd, &len, sizeof(len)) || len > size || !take_all(fd, to, len))
		return 0;
	hang_alive(1);
	return len;
}

bool victim_far(void)
{
	const char *far = getenv("ESCROW_TEST_FAR");

	return far && *far;
}

/* In the child: the program in the other guest, its two descriptors there joined to the pipes here. */
static void become_far(const char *role, int in, int out)
{
	char setting[64], *words[20], *far = strdup(getenv("ESCROW_TEST_FAR")), *rest;
	static char env[] = "env", one[] = "CK_FORK=no", sh[] = "sh", c[] = "-c";
	static char script[] = "exec \"$0\" 3<&0 4>&1 >/dev/null";
	int n = 0;

	for (char *word = strtok_r(far, " ", &rest); word && n < 10;
	     word = strtok_r(NULL, " ", &rest))
		words[n++] = word;
	snprintf(setting, sizeof(setting), "ESCROW_VICTIM=%s", role);
	memcpy(&words[n], (char *[]){env, setting, one, sh, c, script, self, NULL},
	       8 * sizeof(char *));
	in = fcntl(in, F_DUPFD, 64);
	out = fcntl(out, F_DUPFD, 64);
	dup2(in, 0);
	dup2(out, 1);
	for (int fd = 3; fd < 256; fd++)
		close(fd);
	execv(words[0], words);
	_exit(127);
}

/* In the child: the descriptors in their places, nothing else, and the program. */
static void become(const char *role, const char *const *before, const int *fds, int nfds)
{
	const char *words[10];
	int n = 0, copies[3 + MAX_MORE];

	for (; before && before[n]; n++)
		words[n] = before[n];
	words[n++] = self;
	words[n] = NULL;
	setenv("ESCROW_VICTIM", role, 1);
	/* One process, or a kill would hit only Check's parent of it. */
	setenv("CK_FORK", "no", 1);
	for (int i = 0; i < nfds; i++)
		copies[i] = fcntl(fds[i], F_DUPFD, 64);
	dup2(copies[0], 1);
	for (int i = 1; i < nfds; i++)
		dup2(copies[i], VICTIM_IN + i - 1);
	for (int fd = VICTIM_IN + nfds - 1; fd < 256; fd++)
		close(fd);
	execv(words[0], (char *const *)(uintptr_t)words);
	_exit(127);
}

struct victim victim_start(const char *role, const char *const *before, const int *more)
{
	int to[2], from[2], fds[3 + MAX_MORE], n = 3;
	struct victim v;

	ck_assert_int_eq(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
	fds[0] = open("/dev/null", O_WRONLY | O_CLOEXEC); /* its TAP is nobody's */
	fds[1] = to[0];
	fds[2] = from[1];
	for (; more && *more >= 0; more++)
		fds[n++] = *more;
	v.pid = fork();
	ck_assert_int_ge(v.pid, 0);
	if (!v.pid && victim_far())
		become_far(role, fds[1], fds[2]);
	if (!v.pid)
		become(role, before, fds, n);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	v.to = to[1];
	v.from = from[0];
	return v;
}

void victim_reap(const struct victim *v, int options)
{
	hang_alive(4);
	ck_assert_int_eq(waitpid(v->pid, NULL, options), v->pid);
	hang_alive(1);
}

void victim_close(const struct victim *v)
{
	close(v->to);
	close(v->from);
}

uint32_t registrations(void)
{
	FILE *list = popen("rdma resource show 2>/dev/null", "r");
	uint32_t sum = 0, n;
	char line[512];

	while (list && fgets(line, sizeof(line), list)) {
		const char *at = strstr(line, " mr ");

		if (at && sscanf(at, " mr %u", &n) == 1)
			sum += n;
	}
	if (list)
		pclose(list);
	return sum;
}

unsigned long pinned(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	unsigned long kb = 0;
	char line[128];

	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "VmPin: %lu", &kb) == 1)
			break;
	fclose(status);
	return kb;
}
