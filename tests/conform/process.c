/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "tests/conform/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conform/pair.h"
#include "tests/conform/patience.h"

/* ---- this side ---- */
void process_start(struct process *p, struct conform *c)
{
	char number[16], limit[16];
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		verdict_broken("socketpair: %m");
	p->socket = pair[0];
	p->pid = fork();
	if (p->pid < 0)
		verdict_broken("fork: %m");
	if (!p->pid) {
		int fd = dup(pair[1]); /* without close-on-exec */

		snprintf(number, sizeof(number), "%d", fd);
		/* what it waits for in vain it is to name before we give it up */
		snprintf(limit, sizeof(limit), "%u", patience_ms());
		execl(c->self, c->self, "--process", number, limit, c->path, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
}

/* Our own engines go on while we wait for an answer. */
static bool read_all(int fd, void *buf, size_t n)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t end = patience_end();
	uint8_t *at = buf;

	while (n) {
		ssize_t got;

		if (poll(&p, 1, 1) <= 0) {
			engine_pump();
			if (patience_over(end))
				return false;
			continue;
		}
		got = read(fd, at, n);
		if (got <= 0)
			return false;
		at += got;
		n -= (size_t)got;
	}
	return true;
}

static void ask(struct process *p, char request, uint64_t arg, void *buf, uint64_t *len)
{
	uint64_t head[2] = {(uint64_t)request, arg};

	trail("second process: %c %llu", request, (unsigned long long)arg);
	if (write(p->socket, head, sizeof(head)) != sizeof(head))
		verdict_fail(NULL, __FILE__, __LINE__, "the second process is gone");
	if (!read_all(p->socket, len, sizeof(*len)) || *len > INVITATION_ROOM ||
	    !read_all(p->socket, buf, *len))
		verdict_fail(
			NULL, __FILE__, __LINE__,
			"the second process does not answer to %c (its standard error says why)",
			request);
}

void process_invite(struct process *p, void *buf, uint64_t *len)
{
	ask(p, 'I', 0, buf, len);
}

void process_grant(struct process *p, void *buf, uint64_t *len)
{
	ask(p, 'G', 0, buf, len);
}

bool process_holds(struct process *p, uint32_t bytes, uint32_t seed)
{
	uint8_t yes[8];
	uint64_t len;

	ask(p, 'H', (uint64_t)bytes << 32 | seed, yes, &len);
	return len == 1 && yes[0];
}

void process_end(struct process *p)
{
	uint8_t none[8];
	uint64_t len;
	int status;

	ask(p, 'X', 0, none, &len);
	if (waitpid(p->pid, &status, 0) != p->pid)
		verdict_broken("waitpid: %m");
	expect(WIFEXITED(status) && !WEXITSTATUS(status), "the second process ends with status %#x",
	       status);
	close(p->socket);
}

void process_kill(struct process *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->socket);
}

/* ---- the other side ---- */
struct far {
	int socket;
	struct engine *en;
	struct memory mem;
};

static void answer(const struct far *f, const void *bytes, uint64_t len)
{
	if (write(f->socket, &len, sizeof(len)) != sizeof(len) ||
	    (len && write(f->socket, bytes, len) != (ssize_t)len))
		_exit(4);
}

static void serve_grant(struct far *f)
{
	uint8_t bytes[GRANT_ROOM];
	struct escrow_event up;
	uint64_t len;

	engine_wait(f->en, ESCROW_EV_PEER_UP, 0, &up);
	memory_register(f->en, &f->mem, PROCESS_BYTES);
	buffer_fill(&f->mem.buf, 0, PROCESS_BYTES, PROCESS_SEED);
	pair_grant(f->en, up.object, &f->mem, ESCROW_MAY_READ | ESCROW_MAY_WRITE, bytes, &len);
	answer(f, bytes, len);
}

/* Returns false when it is over. */
static bool serve(struct far *f, uint64_t request, uint64_t arg)
{
	uint8_t bytes[INVITATION_ROOM];
	uint64_t len;
	uint8_t yes;

	switch (request) {
	case 'I':
		pair_invite(f->en, "near", 0, bytes, &len);
		answer(f, bytes, len);
		return true;
	case 'G':
		serve_grant(f);
		return true;
	case 'H':
		yes = buffer_is(&f->mem.buf, 0, arg >> 32, (uint32_t)arg) != 0;
		answer(f, &yes, 1);
		return true;
	default:
		engine_close(f->en);
		answer(f, NULL, 0);
		return false;
	}
}

int process_main(int argc, char **argv)
{
	static struct subject subject;
	struct far f = {0};
	struct pollfd p = {.events = POLLIN};
	uint64_t head[2];

	if (argc != 3)
		return 3;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	verdict_open(2, "second process", "PE1");
	f.socket = p.fd = atoi(argv[0]);
	patience_limit((unsigned int)strtoul(argv[1], NULL, 10));
	subject_load(&subject, argv[2]);
	subject_negotiate(&subject);
	f.en = engine_open(&subject, NULL, "far");
	for (;;) {
		if (poll(&p, 1, 1) <= 0) {
			engine_pump();
			continue;
		}
		if (!read_all(f.socket, head, sizeof(head)))
			return 4;
		if (!serve(&f, head[0], head[1]))
			return 0;
	}
}
