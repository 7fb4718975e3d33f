/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/lib/testing.h"

#include <stdio.h>

int testing_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);

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
