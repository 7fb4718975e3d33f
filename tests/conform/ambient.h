/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ambient.h - what a backend must leave as it found it (clauses T4, T5, U3).
 *
 * Snapshots of the process are compared; and calls that leave no trace in a snapshot (atexit,
 * pthread keys with destructors, fork handlers, the environment) are watched where the object calls
 * them: this program defines those functions itself, notes who calls, and passes on.
 */
#ifndef CONFORM_AMBIENT_H
#define CONFORM_AMBIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/conform/subject.h"

struct ambient_fd {
	int fd;
	char target[100];
};

struct ambient {
	struct ambient_fd fd[256];
	uint32_t nfds;
	uint32_t threads;
	uint64_t signals; /* hash of all dispositions */
	uint64_t mask;
	uint64_t environment;
	uint64_t limits;
	uint64_t pinned; /* VmPin + VmLck, kB */
	uint32_t umask;
	uint32_t mxcsr;
	char cwd[256];
	char locale[256];
};

void ambient_take(struct ambient *a);

/* Fails the case with the clause of the first difference. */
void ambient_compare(const struct ambient *before, const struct ambient *after, const char *when);

/* Calls the object made, at load time or later, that it must never make. */
void ambient_judge_calls(const struct subject *s);

/* While set, getenv by the object is noted as well (the entry must not read the environment). */
void ambient_watch_getenv(bool on);

#endif
