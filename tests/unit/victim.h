/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * victim.h - a process that a test starts and lets die: the test's own program again, in a role.  It and
 * the test speak by two pipes, in counted pieces.
 */
#ifndef VICTIM_H
#define VICTIM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The victim's descriptors; what the test hands on follows, in its order. */
#define VICTIM_IN 3
#define VICTIM_OUT 4
#define VICTIM_MORE 5

/* A guest on a busy machine may need longer than usual to connect; a test that waits for it would hang. */
#define PATIENT "connect_ms=60000"

struct victim {
	pid_t pid;
	int to, from;
};

/* For main(), first of all: false if this program does not know its own path. */
bool victim_possible(void);
/* In the victim: its role; NULL in the test. */
const char *victim_role(void);

/*
 * Starts it, as the last argument of the command `before` if that is not NULL (at most 8 words, then NULL).
 * `more`: descriptors for it, -1 at the end, or NULL.  Standard output of what is started goes nowhere.
 */
struct victim victim_start(const char *role, const char *const *before, const int *more);
/*
 * Does it run in the other guest?  ESCROW_TEST_FAR is then the command that runs another there (tests/softroce/far run
 * HOST:PORT); `pid` is that command's.  SIGTERM to it is SIGKILL over there, and it ends when that is done; `before` and
 * `more` go nowhere.
 */
bool victim_far(void);
/*
 * Until it has ended or, with WUNTRACED, was stopped.  That may take long: the kernel was seen to need 51 s for each of
 * its queue pairs.
 */
void victim_reap(const struct victim *v, int options);
/* Closes the pipes; the process is the caller's to reap. */
void victim_close(const struct victim *v);

/* The registrations that the kernel lists, of all devices and processes; 0 where there is no such list. */
uint32_t registrations(void);
/* What the kernel has pinned for this process, in kB; 0 on softverbs, which pins nothing. */
unsigned long pinned(void);

bool put(int fd, const void *bytes, uint64_t len);
/* How much came; 0: the other end is gone, or said more than `size`. */
uint64_t get(int fd, void *to, uint64_t size);

#endif
