/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * process.h - a second process with an engine of its own, for what needs two.
 *
 * It is this program again; the two speak over a socket, a request of one letter and a length-
 * prefixed answer.  Between requests it polls its engine.
 */
#ifndef CONFORM_PROCESS_H
#define CONFORM_PROCESS_H

#include <sys/types.h>

#include "tests/conform/case.h"

#define PROCESS_BYTES 65536u /* of the memory it lends */
#define PROCESS_SEED 5u      /* what it is filled with */

struct process {
	pid_t pid;
	int socket;
};

void process_start(struct process *p, struct conform *c);

/* An invitation of its engine. */
void process_invite(struct process *p, void *buf, uint64_t *len);
/* Its exported grant over PROCESS_BYTES, once we are connected. */
void process_grant(struct process *p, void *buf, uint64_t *len);
/* Does its memory hold `bytes` of pattern `seed`, and canaries else? */
bool process_holds(struct process *p, uint32_t bytes, uint32_t seed);
/* It closes its engine and ends, and must do so well. */
void process_end(struct process *p);
/* SIGKILL, and reaped. */
void process_kill(struct process *p);

/* main() of the second process: SOCKET LIMIT-MS OBJECT. */
int process_main(int argc, char **argv);

#endif
