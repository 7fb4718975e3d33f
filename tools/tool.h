/* SPDX-License-Identifier: BSD-2-Clause */
/* What the sub-commands of `escrow` share: the table they stand in, and how they read options. */
#ifndef TOOL_H
#define TOOL_H

#include <stdbool.h>
#include <stdint.h>

#include <glib.h>

/* How a sub-command ends; escrow(1) promises these numbers. */
#define TOOL_OK 0
#define TOOL_NO 1       /* it ran, and the answer is no */
#define TOOL_TROUBLE 2  /* it could not do its work: usage, a file, a child */
#define TOOL_NOTHING 77 /* nothing was there to do */

/*
 * One sub-command.  run gets argv[0] = "escrow NAME" and what follows the name on the command line,
 * and returns TOOL_*.
 */
struct tool_command {
	const char *name;
	const char *summary; /* one line, for `escrow help` */
	int (*run)(int argc, char **argv);
};

/*
 * Reads the options of a sub-command.  usage is what stands behind its name ("BACKEND").  What is
 * left in *argv afterwards are the arguments, from index 1 on.  On a bad option it prints one line
 * on standard error and returns false.
 */
bool tool_parse(const GOptionEntry *options, const char *usage, const char *summary, int *argc,
		char ***argv);

/* Prints "escrow: TEXT" on standard error. */
void tool_complain(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* What makes a word mean so many: "" or "s". */
static inline const char *tool_s(int64_t n)
{
	return n == 1 ? "" : "s";
}

/* The sub-commands, each in its own file. */
int bench_main(int argc, char **argv);
int conform_main(int argc, char **argv);
int demo_main(int argc, char **argv);
int info_main(int argc, char **argv);
int ledger_main(int argc, char **argv);
int list_main(int argc, char **argv);
int supervise_main(int argc, char **argv);
int swap_main(int argc, char **argv);

#endif
