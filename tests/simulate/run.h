/* SPDX-License-Identifier: BSD-2-Clause */
/* run.h - one run, in a process of its own. */
#ifndef RUN_H
#define RUN_H

#include <stdio.h>

#include <glib.h>

#include "tests/simulate/sim.h"

/* What a run leaves behind for its parent. */
struct outcome {
	uint32_t step;
	bool done;
	char rule[16];
	char text[240];
	char digest[72];
	struct counts n;
};

/* Shared between a run and its parent. */
extern struct outcome *outcome;
/* NULL, or where the trace goes. */
extern FILE *run_trace;
/* NULL, or the personality of softverbs, whatever the seed says. */
extern const char *run_device;

/* Runs sim.seed for sim.steps steps, without those in `skip`, and ends the process. What it says on its
 * standard error goes to the file `said`. `digested`: with a digest of all that was traced. */
void run_child(const GArray *skip, const char *said, bool digested) __attribute__((noreturn));

#endif
