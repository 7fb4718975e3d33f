/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * escrow-conform-child - runs one case on one object and writes one verdict.
 *
 *   escrow-conform-child --list
 *   escrow-conform-child --fd N --trail N --case ID [--seed S] [--limit MS] [--set K=V]...
 *                        [--with B.so] A.so
 *
 * Plain C and libdl, so that what the object changes in the process can be seen.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/conform/case.h"
#include "tests/conform/patience.h"
#include "tests/conform/process.h"

static const struct conform_area *const areas[] = {
	&area_args,   &area_breakage, &area_close,  &area_drain, &area_entry,
	&area_event,  &area_flow,     &area_fork,   &area_fuzz,  &area_grant,
	&area_handle, &area_layout,   &area_ledger, &area_life,  &area_message,
	&area_oom,    &area_op,       &area_peer,   &area_perf,  &area_quarantine,
	&area_region, &area_remote,   &area_state,  &area_swap,  &area_thread,
};

static const struct {
	uint64_t cap;
	const char *name;
} cap_names[] = {
	{ESCROW_CAP_READ, "READ"},
	{ESCROW_CAP_WRITE, "WRITE"},
	{ESCROW_CAP_EVENT_FD, "EVENT_FD"},
	{ESCROW_CAP_LEDGER, "LEDGER"},
	{ESCROW_CAP_TRANSFER_MT, "TRANSFER_MT"},
	{ESCROW_CAP_THREADS, "THREADS"},
	{ESCROW_CAP_REMOTE, "REMOTE"},
	{ESCROW_CAP_LOOPBACK, "LOOPBACK"},
	{ESCROW_CAP_INVITE_ANY, "INVITE_ANY"},
	{ESCROW_CAP_OFFER, "OFFER"},
	{ESCROW_CAP_DMABUF, "DMABUF"},
	{ESCROW_CAP_WEAK, "WEAK"},
	{ESCROW_CAP_PLAIN_KEYS, "PLAIN_KEYS"},
};

/* "READ,WRITE": the bits of caps, into a buffer of the caller. */
static const char *caps_text(uint64_t caps, char *text, size_t room)
{
	size_t i, n = 0;

	text[0] = 0;
	for (i = 0; i < sizeof(cap_names) / sizeof(cap_names[0]); i++)
		if (caps & cap_names[i].cap && n < room)
			n += (size_t)snprintf(text + n, room - n, "%s%s", n ? "," : "",
					      cap_names[i].name);
	return text;
}

static void list_cases(void)
{
	char caps[256];
	size_t a, i;

	for (a = 0; a < sizeof(areas) / sizeof(areas[0]); a++)
		for (i = 0; i < areas[a]->count; i++) {
			const struct conform_case *c = &areas[a]->cases[i];

			printf("%s\t%s\t%s\t%s%s%s\t%s\n", c->id, c->profile, c->clauses,
			       caps_text(c->caps, caps, sizeof(caps)),
			       c->needs & NEED_FAULTS ? " test.faults" : "",
			       c->needs & NEED_MESSAGES ? " messages" : "", c->summary);
		}
}

static const struct conform_case *find_case(const char *id)
{
	size_t a, i;

	for (a = 0; a < sizeof(areas) / sizeof(areas[0]); a++)
		for (i = 0; i < areas[a]->count; i++)
			if (!strcmp(areas[a]->cases[i].id, id))
				return &areas[a]->cases[i];
	return NULL;
}

/*
 * Can the case be asked of this backend?  What query reports decides, not a return code; an
 * engine is opened only for cases that need something.
 */
static void check_needs(struct conform *c, const struct conform_case *k)
{
	struct engine *en;
	char text[256];
	uint64_t missing;

	if (k->needs & NEED_FAULTS) {
		if (!subject_has_option(&c->subject, "test.faults"))
			verdict_skip("the descriptor lists no option test.faults");
		engine_setting("test.faults", "1");
	}
	if (!k->caps && !(k->needs & NEED_MESSAGES))
		return;
	en = engine_open(&c->subject, NULL, "probe");
	missing = k->caps & ~en->limits.caps;
	if (missing)
		verdict_skip("query does not report %s", caps_text(missing, text, sizeof(text)));
	if (k->needs & NEED_MESSAGES && !en->limits.max_message_bytes)
		verdict_skip("query reports max_message_bytes 0");
	engine_close(en);
}

/* What the report's header says of the object. */
static void probe(struct conform *c)
{
	const struct escrow_backend *b;
	struct engine *en;
	char text[256];

	subject_load(&c->subject, c->path);
	subject_negotiate(&c->subject);
	b = c->subject.backend;
	verdict_fact("backend", "%s", b->id);
	verdict_fact("version", "%s", b->version);
	verdict_fact("revision", "%u", b->revision);
	verdict_fact("caps at best", "%s", caps_text(b->caps, text, sizeof(text)));
	en = engine_open(&c->subject, NULL, "probe");
	verdict_fact("caps", "%s", caps_text(en->limits.caps, text, sizeof(text)));
	engine_close(en);
	verdict_pass();
}

static void run(struct conform *c, const char *id)
{
	const struct conform_case *k;

	k = find_case(id);
	if (!k)
		verdict_broken("this program has no case %s", id);
	host_allow(k->needs & NEED_MISUSE, k->needs & NEED_FAULTS);
	ambient_take(&c->before);
	if (!(k->needs & NEED_BARE)) {
		subject_load(&c->subject, c->path);
		subject_negotiate(&c->subject);
		check_needs(c, k);
	}
	k->run(c);
	verdict_pass();
}

/* Dies with its parent; leaves no core; a session of its own was made by the parent. */
static void settle_process(pid_t parent)
{
	struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (parent && getppid() != parent)
		_exit(3);
}

static void set_option(char *text)
{
	char *value = strchr(text, '=');

	if (!value) {
		fprintf(stderr, "escrow-conform-child: --set %s: not KEY=VALUE\n", text);
		exit(3);
	}
	*value++ = 0;
	engine_setting(text, value);
}

int main(int argc, char **argv)
{
	static struct conform c;
	const char *id = NULL;
	int fd = 2, trail_fd = -1, i;
	pid_t parent = 0;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		list_cases();
		return 0;
	}
	if (argc > 2 && !strcmp(argv[1], "--process"))
		return process_main(argc - 2, argv + 2);
	c.self = "/proc/self/exe";
	for (i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--fd"))
			fd = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--trail"))
			trail_fd = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--case"))
			id = argv[i + 1];
		else if (!strcmp(argv[i], "--seed"))
			c.seed = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--limit"))
			patience_limit((unsigned int)strtoul(argv[i + 1], NULL, 10));
		else if (!strcmp(argv[i], "--parent"))
			parent = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--with"))
			c.other_path = argv[i + 1];
		else if (!strcmp(argv[i], "--set"))
			set_option(argv[i + 1]);
		else
			break;
	}
	if (i + 1 != argc || !id) {
		fprintf(stderr,
			"usage: escrow-conform-child --case ID [--seed S] [--limit MS] [--set K=V] "
			"[--with B.so] A.so\n");
		return 3;
	}
	settle_process(parent);
	if (fd > 2)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	trail_open(trail_fd);
	c.path = argv[i];
	if (!c.other_path)
		c.other_path = c.path;
	verdict_open(fd, id, find_case(id) ? find_case(id)->clauses : "G1");
	if (!strcmp(id, "probe"))
		probe(&c);
	run(&c, id);
}
