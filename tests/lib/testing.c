/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/lib/testing.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * Check takes a test for hung after 4 s, and reads what else it is told when a case is made.  A limit is
 * for what never ends: how long a test takes that does, on a machine that does much else, nobody knows.
 */
__attribute__((constructor)) static void testing_limits(void)
{
	setenv("CK_DEFAULT_TIMEOUT", "60", 0);
	setenv("CK_TIMEOUT_MULTIPLIER", "5", 0);
}

int testing_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);

	/* What has been said is there when this is ended from outside. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	srunner_free(runner);
	return 0;
}

int testing_skip(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	return 0;
}
