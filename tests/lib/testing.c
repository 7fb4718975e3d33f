/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/lib/testing.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/softverbs/softverbs.h"

/* In programs that are linked with it. */
#pragma weak softverbs_settle

static char fabric[] = "/tmp/softverbs-test.XXXXXX";
static int fabric_is_ours;

/* The processes of a test meet each other, and none of another test that runs beside it. */
__attribute__((constructor)) static void testing_fabric(void)
{
	if (softverbs_settle && !getenv("SOFTVERBS_DIR") && mkdtemp(fabric))
		fabric_is_ours = !setenv("SOFTVERBS_DIR", fabric, 1);
}

/* What a process leaves there that outlives the test is no failure of the test. */
static void testing_fabric_ends(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", fabric);
	if (fabric_is_ours && system(command) != 0)
		printf("# %s: left behind\n", fabric);
}

/*
 * Check takes a test for hung after 4 s, and reads what else it is told when a case is made.  A limit is
 * for what never ends: how long a test takes that does, on a machine that does much else, nobody knows.
 */
__attribute__((constructor)) static void testing_limits(void)
{
	setenv("CK_DEFAULT_TIMEOUT", "60", 0);
	setenv("CK_TIMEOUT_MULTIPLIER", "5", 0);
}

/* Any thread. Where two places share an entry they say so more often, which does no harm. */
void testing_mark(const char *file, int line)
{
	static _Atomic uint64_t said[1024];
	uint64_t place = (uint64_t)(uintptr_t)file ^ (uint64_t)(uint32_t)line << 40;
	_Atomic uint64_t *entry = &said[((uintptr_t)file / 16 + (uint32_t)line) % 1024];

	if (atomic_load_explicit(entry, memory_order_relaxed) == place)
		return;
	atomic_store_explicit(entry, place, memory_order_relaxed);
	(_mark_point)(file, line);
}

int testing_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);

	/* What has been said is there when this is ended from outside. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	srunner_free(runner);
	testing_fabric_ends();
	return 0;
}

int testing_skip(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	testing_fabric_ends();
	return 0;
}

uint64_t testing_number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}
