/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-FORK: what a child of fork finds, and what a program that is exec'ed inherits. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conform/case.h"
#include "tests/conform/reach.h"
#include "tests/lib/leave.h"

/* In the child: the first slot that does not say E_STATE, or 0. */
static int child_slots(struct reach *r)
{
	struct engine *a = r->pair.a;
	const struct escrow_ops *o = a->o;
	struct escrow_sge sge = {r->local.region, 0, 64};
	struct escrow_op op = pair_op(ESCROW_READ, &r->used, 0, &sge);
	struct escrow_region_args region = {.size = sizeof(region),
					    .addr = r->local.buf.at,
					    .length = 64,
					    .memory_kind = ESCROW_MEMORY_HOST,
					    .dmabuf_fd = -1};
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_event ev;
	uint64_t out;

	if (o->query(a->e, &limits) != ESCROW_E_STATE)
		return 1;
	if (o->register_memory(a->e, &region, &out, NULL) != ESCROW_E_STATE)
		return 2;
	if (o->deregister_memory(a->e, r->local.region, 0) != ESCROW_E_STATE)
		return 3;
	if (o->disconnect(a->e, r->pair.a_peer, 0) != ESCROW_E_STATE)
		return 4;
	if (o->revoke(a->e, r->lent.grant, 0) != ESCROW_E_STATE)
		return 5;
	if (o->transfer(a->e, &op, 1, sizeof(op), 0, &out) != ESCROW_E_STATE)
		return 6;
	if (o->poll(a->e, &ev, 1, sizeof(ev), 0) != ESCROW_E_STATE)
		return 7;
	if (o->quiesce(a->e, 0) != ESCROW_E_STATE)
		return 8;
	if (o->drain(a->e, 0, 0, 0) != ESCROW_E_STATE)
		return 9;
	if (o->close(a->e, 0, ESCROW_CLOSE_ABORT) != ESCROW_E_STATE)
		return 10;
	return 0;
}

static void child_of_fork(struct conform *c)
{
	static const char *const slot[] = {"",
					   "query",
					   "register_memory",
					   "deregister_memory",
					   "disconnect",
					   "revoke",
					   "transfer",
					   "poll",
					   "quiesce",
					   "drain",
					   "close"};
	struct escrow_sge sge;
	struct escrow_op op;
	struct reach r;
	int status, rc;
	pid_t pid;

	reach_open(&r, c);
	engine_settle();
	pid = fork();
	if (pid < 0)
		verdict_broken("fork: %m");
	if (!pid)
		leave(child_slots(&r));
	if (waitpid(pid, &status, 0) != pid)
		verdict_broken("waitpid: %m");
	rc = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	expect(rc >= 0, "a slot crashes in a child of fork: signal %d", WTERMSIG(status));
	expect(rc <= 10 && !rc, "%s in a child of fork does not give E_STATE",
	       rc <= 10 ? slot[rc] : "a slot");
	sge = (struct escrow_sge){r.local.region, 0, 8192};
	op = pair_op(ESCROW_READ, &r.used, 0, &sge);
	pair_move(r.pair.a, &op, 8192);
	expect(engine_state(r.pair.a) == ESCROW_STATE_OPEN, "the child changed the parent's state");
	reach_close(&r);
}

static void not_inherited(struct conform *c)
{
	struct reach r;
	struct dirent *e;
	DIR *dir;
	int fd, i;

	reach_open(&r, c);
	engine_settle();
	dir = opendir("/proc/self/fd");
	if (!dir)
		verdict_broken("/proc/self/fd: %m");
	while ((e = readdir(dir))) {
		bool ours = e->d_name[0] == '.';

		fd = atoi(e->d_name);
		for (i = 0; i < (int)c->before.nfds; i++)
			ours |= c->before.fd[i].fd == fd;
		if (!ours && fd != dirfd(dir))
			expect(fcntl(fd, F_GETFD) & FD_CLOEXEC,
			       "descriptor %d of the backend is inherited by exec", fd);
	}
	closedir(dir);
	reach_close(&r);
}

static const struct conform_case cases[] = {
	{"ESC-FORK-001", "data", "F1", ESCROW_CAP_READ, NEED_MISUSE,
	 "slots in a child of fork touch nothing", child_of_fork},
	{"ESC-FORK-002", "data", "F2", 0, 0, "descriptors are close-on-exec", not_inherited},
};

CONFORM_AREA(area_fork, cases);
