/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trail.h - the last things a case did, in memory shared with the parent.
 *
 * When the child crashes or hangs it cannot tell; the parent then prints the end of the trail.
 */
#ifndef CONFORM_TRAIL_H
#define CONFORM_TRAIL_H

#include <stdint.h>

#define TRAIL_LINES 24u
#define TRAIL_WIDTH 120u

struct trail {
	uint32_t next; /* lines written so far; line n is at n % TRAIL_LINES */
	uint32_t reserved0;
	char line[TRAIL_LINES][TRAIL_WIDTH];
};

/* Maps the parent's memory; fd -1: a trail that nobody reads. */
void trail_open(int fd);

/* Any thread.  A line may be torn when the process dies: it is for people. */
void trail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
