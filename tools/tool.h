/* SPDX-License-Identifier: BSD-2-Clause */
/* What the sub-commands of `escrow` share: the table they stand in, and how they read options. */
#ifndef TOOL_H
#define TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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

/* What is allowed of an option that takes a number: `low` to `high`.  A list ends with option NULL. */
struct tool_range {
	const char *option; /* its long name */
	double low, high;
	bool units; /* whole, and K, M or G may stand behind it */
};

/*
 * options.c.  Reads the options of a sub-command; each that takes a number is in `ranges` (NULL: none does).  usage is
 * what stands behind its name ("BACKEND").  What is left in *argv afterwards are the arguments, from index 1 on.  On a bad
 * option it prints one line on standard error and returns false.
 */
bool tool_parse(const GOptionEntry *options, const struct tool_range *ranges, const char *usage,
		const char *summary, int *argc, char ***argv);

/* Is each KEY=VALUE?  Of the first that is not it complains, by the option's long name. */
bool tool_settings_good(const char *option, char *const *settings);

/* The sub-command that this process runs, for complaints and to start it again. */
static inline const char *tool_command(void)
{
	const char *space = strchr(g_get_prgname(), ' ');

	return space ? space + 1 : g_get_prgname();
}

/* What was typed, for a complaint: also nothing is seen. */
static inline const char *tool_shown(const char *typed)
{
	return *typed ? typed : "''";
}

/* Prints "escrow: TEXT" on standard error. */
void tool_complain(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* ---- number.c */
/* A whole number with K, M or G (powers of 1024) behind it; *end is what follows.  false: there is none. */
bool tool_number_read(const char *text, char **end, guint64 *value);
/* With so many decimal places, or more where these would be less than three digits that count; returns text. */
#define TOOL_NUMBER 32
const char *tool_number_show(char text[TOOL_NUMBER], double value, int places);

/* ---- output.c */
/* From here on standard output that could not be written makes the program end with TOOL_TROUBLE, and is told. */
void tool_output_start(void);
/* For what works long before it prints: standard output is watched by a thread, and SIGPIPE ends nothing. */
void tool_output_watch(void);
/* [any] It cannot be written, or nobody reads it any more: the work is for nothing.  Says so, once. */
bool tool_output_lost(void);

/*
 * Where the text says that no RDMA device is there: what else the RDMA backend runs on.  hint.c
 */
void tool_hint_device(const char *text);
/* Where the text says that a setting's key is not known: what lists those that are.  hint.c */
bool tool_key_unknown(const char *text);
void tool_hint_setting(const char *text, const char *backend);

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
