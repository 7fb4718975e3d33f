/* SPDX-License-Identifier: BSD-2-Clause */
/* The escrow command: finds the sub-command and runs it. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/tool.h"

/* A new sub-command is a line here, its prototype in tool.h and its file in local.mk. */
static const struct tool_command commands[] = {
	{"list", "the backends that can be found", list_main},
	{"info", "what a backend says of itself", info_main},
	{"conform", "judge a backend by the contract", conform_main},
	{"demo", "bytes moved between two processes, and checked", demo_main},
	{"bench", "how fast bytes move through a backend", bench_main},
	{"swap", "a living process changes its backend while it transfers", swap_main},
	{"supervise", "run an engine, and tell when nothing of it can touch memory",
	 supervise_main},
	{"ledger", "what a running process owns, lends and has in quarantine", ledger_main},
};

void tool_complain(const char *format, ...)
{
	va_list ap;
	g_autofree char *text = NULL;

	va_start(ap, format);
	text = g_strdup_vprintf(format, ap);
	va_end(ap);
	fprintf(stderr, "escrow: %s\n", text);
}

static void print_help(FILE *out)
{
	size_t i;

	fprintf(out, "usage: escrow SUBCOMMAND [ARGUMENTS]; escrow SUBCOMMAND --help\n\n");
	for (i = 0; i < G_N_ELEMENTS(commands); i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
}

/*
 * What whoever starts this program may have done to it.  A closed standard descriptor would become
 * the next file that is opened, and text would be written into that; one that only reads cannot
 * be mistaken for a success.  With SIGCHLD ignored the end of a child could not be learnt.
 */
static void make_plain(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
			_exit(TOOL_TROUBLE);
	signal(SIGCHLD, SIG_DFL);
	tool_output_start();
}

/*
 * GLib ends a process that has no descriptor left for a main loop: what an engine, its peer's channel and the
 * served ledger need is asked for before, and in time to say so.
 */
#define DESCRIPTORS 16

static bool descriptors_are_free(void)
{
	int fds[DESCRIPTORS], n = 0, why;

	while (n < DESCRIPTORS && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		n++;
	why = errno;
	for (int i = 0; i < n; i++)
		close(fds[i]);
	if (n < DESCRIPTORS)
		tool_complain("%d descriptors can be opened, and %d are needed (ulimit -n): %s", n,
			      DESCRIPTORS, g_strerror(why));
	return n == DESCRIPTORS;
}

int main(int argc, char **argv)
{
	g_autofree char *program = NULL;
	size_t i;

	make_plain();
	if (argc < 2) {
		print_help(stderr);
		return TOOL_TROUBLE;
	}
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		print_help(stdout);
		return TOOL_OK;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("escrow %s\n", PACKAGE_VERSION);
		return TOOL_OK;
	}
	for (i = 0; i < G_N_ELEMENTS(commands); i++) {
		if (strcmp(argv[1], commands[i].name))
			continue;
		if (!descriptors_are_free())
			return TOOL_TROUBLE;
		program = g_strconcat("escrow ", argv[1], NULL);
		g_set_prgname(program);
		argv[1] = program;
		return commands[i].run(argc - 1, argv + 1);
	}
	tool_complain("no such sub-command: %s (escrow help lists them)", argv[1]);
	return TOOL_TROUBLE;
}
