/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs that measure on the first rail of ESCROW_TEST_RAILS begin with. */
#ifndef BENCH_RAIL_H
#define BENCH_RAIL_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/testing.h"
#include "tests/softroce/link.h"
#include "tests/unit/rdma-kit.h"

/* The i-th argument, or what it is without one; the program ends where it is no number that is allowed. */
static inline uint64_t rail_number(int argc, char **argv, int i, uint64_t without, uint64_t most)
{
	char *end;
	uint64_t n = argc > i ? strtoull(argv[i], &end, 10) : without;

	if (argc <= i || (!*end && n && n <= most))
		return n;
	fprintf(stderr, "%s: argument %d, %s: 1 to %llu is allowed\n", argv[0], i, argv[i],
		(unsigned long long)most);
	exit(2);
}

/* Runs it where there is a rail, as a Check test, so that what the kits assert is told. */
static inline int rail_run(const char *name, const TTest *test)
{
	char why[256];
	Suite *s;
	TCase *t;

	if (!device_rail())
		return testing_skip("ESCROW_TEST_RAILS names no rail");
	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	s = suite_create(name);
	t = tcase_create(name);
	tcase_set_timeout(t, 600);
	tcase_add_test(t, test);
	suite_add_tcase(s, t);
	return testing_run(s);
}

#endif
