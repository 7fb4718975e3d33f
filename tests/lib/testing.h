/* SPDX-License-Identifier: BSD-2-Clause */
/* What a unit test needs: Check, and one function that runs a suite and prints TAP. */
#ifndef TESTING_H
#define TESTING_H

#include <check.h>
#include <stdint.h>
#include <stdbool.h>

/* Everything takes several times as long: what is done many times is done fewer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TESTING_SLOWED true
#else
#define TESTING_SLOWED false
#endif

/*
 * Runs 'suite' (and frees it), prints TAP on standard output, and returns what main() is to return:
 * 0 always, since automake's driver reads the failures from the TAP lines.
 */
int testing_run(Suite *suite);

/*
 * For main(): prints a plan that skips the whole program because of 'why' ("no memlock limit"),
 * and returns what main() is to return.
 */
int testing_skip(const char *why);

/* The number in a variable of the environment, or 'otherwise' if it is not set. */
uint64_t testing_number(const char *name, uint64_t otherwise);

/*
 * Check writes a record for each assertion that holds, and whoever reads it moves 8 KiB: that was most of what some programs
 * did, and under a sanitizer or valgrind minutes of it.  A place in the source that has said so in this process does not say
 * it again, so of a crash Check tells the last place that was reached for the first time.
 */
#define _mark_point(file, line) testing_mark(file, line)
void testing_mark(const char *file, int line);

/* One byte of many, without even the look at what was said. */
#define testing_assert_byte(got, want, at)                                                         \
	do {                                                                                       \
		if ((got) != (want))                                                               \
			ck_abort_msg("byte %u is 0x%x, not 0x%x", (unsigned int)(at),              \
				     (unsigned int)(got), (unsigned int)(want));                   \
	} while (0)

#endif
