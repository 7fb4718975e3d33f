/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs that measure on the first rail of ESCROW_TEST_RAILS begin with. */
#ifndef BENCH_RAIL_H
#define BENCH_RAIL_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/need.h"
#include "tests/lib/testing.h"
#include "tests/softroce/link.h"
#include "tests/unit/rdma-kit.h"

/* Settings of its engines. */
static const char *const one_rail[] = {"max_rails=1", "num_lanes=1", NULL};

/* The program ends where there are more arguments than it has. */
static inline void rail_arguments(int argc, char **argv, int most)
{
	if (argc - 1 <= most)
		return;
	fprintf(stderr, "%s: %d arguments: at most %d are allowed\n", argv[0], argc - 1, most);
	exit(2);
}

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

/*
 * One op, waited for without a pause.  The engine's own thread has the lane now and then: one more try, and a ROOM, are
 * nothing among so many.
 */
static inline void rail_move(struct end *e, const struct escrow_op *op)
{
	struct escrow_event ev;
	uint64_t id;
	int32_t n;

	while ((n = OPS->transfer(e->engine, op, 1, sizeof(*op), 0, &id)) == ESCROW_E_AGAIN)
		;
	need(n == 1, "transfer");
	do
		n = OPS->poll(e->engine, &ev, 1, sizeof(ev), 0);
	while (n == 0 || (n == 1 && ev.kind == ESCROW_EV_ROOM));
	need(n == 1 && ev.kind == ESCROW_EV_OP_DONE && ev.status == ESCROW_OK, "event");
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
