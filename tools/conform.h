/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * conform.h - the parts of `escrow conform`: which cases there are, running them in processes of
 * their own, and what is told of it.  The backend is never mapped here.
 */
#ifndef TOOLS_CONFORM_H
#define TOOLS_CONFORM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <glib.h>

enum conform_verdict {
	CONFORM_PASS,
	CONFORM_FAIL,
	CONFORM_CRASH,
	CONFORM_TIMEOUT,
	CONFORM_SKIP,
	CONFORM_WARN,
	CONFORM_WAIVED,
	CONFORM_BROKEN,
	CONFORM_VERDICTS
};

struct conform_result {
	enum conform_verdict verdict;
	double ms;
	char *clause; /* the one that was broken, or the case's first */
	char *text;   /* one line; may be empty */
	char *detail; /* more lines: trail, standard error; or NULL */
};

/* A case as the child lists it, or a static check, which this program makes itself. */
struct conform_case {
	char *id;
	char *profile;
	char *clauses;
	char *needs;
	char *summary;
	/* For static checks: does the file keep the clause?  Why not goes into text. */
	bool (*check)(const char *path, const char *clause, GString *text);
	bool selected;
	bool hidden; /* from a report for people */
	struct conform_result result;
};

/* One run of the suite on one object. */
struct conform {
	const char *path;    /* the object */
	const char *with;    /* a second object for the swap profile, or NULL */
	const char *child;   /* the child program */
	const char *command; /* the command line, for the report */
	char **settings;     /* KEY=VALUE, NULL-terminated, or NULL */
	uint64_t seed;
	unsigned int timeout_ms;
	unsigned int jobs;
	bool part;          /* --case: not the whole of the profiles */
	bool progress;      /* a line on standard error that is overwritten */
	GPtrArray *cases;   /* struct conform_case */
	GPtrArray *waivers; /* char **: the fields of each; or NULL */
	GPtrArray *facts;   /* char *: key, value, key, value... */
};

/* conform-cases.c */
bool conform_load_cases(struct conform *c, GError **error);
unsigned int conform_select(struct conform *c, const char *profiles, char **globs);
const char *conform_child_program(void);
void conform_clear(struct conform_result *r); /* as if it had not been run */
void conform_free(struct conform *c);

/* conform-static.c: adds its cases to the list. */
void conform_add_static(GPtrArray *cases);
void conform_run_static(struct conform *c);

/*
 * conform-run.c.  Runs what is selected, `jobs` at a time.  Each child has its own session and
 * process group, a time limit, and is killed and reaped with all it started.
 */
bool conform_run(struct conform *c, GError **error);
/* What the report's header says; why no case could begin, which the caller frees, or NULL. */
char *conform_probe(struct conform *c);

/* conform-waiver.c: reads the file, and turns the failures that it waives into WAIVED. */
bool conform_read_waivers(struct conform *c, const char *file, GError **error);
void conform_waive(struct conform *c);

/* conform-report.c */
struct conform_sum {
	unsigned int count[CONFORM_VERDICTS];
	unsigned int run;
};

struct conform_sum conform_add_up(const struct conform *c);
const char *conform_verdict_name(enum conform_verdict v);
const char *conform_fact(const struct conform *c, const char *key);
void conform_print(const struct conform *c, const char *profiles, FILE *out);
void conform_print_tap(const struct conform *c, const char *profiles, FILE *out);
/* Why the file could not be written, an errno, as far as can be seen without opening it; or 0. */
int conform_unwritable(const char *file);
bool conform_write_junit(const struct conform *c, const char *file, GError **error);
bool conform_write_json(const struct conform *c, const char *profiles, const char *file,
			GError **error);

/* Of each `of` mutants in a row the one at `turn`, from 0. */
struct conform_share {
	guint turn, of;
};

/* conform-matrix.c: every mutant of a clause table against the cases. */
int conform_matrix(struct conform *c, const char *clauses, const char *mutants, const char *listed,
		   const char *only, struct conform_share share);

#endif
