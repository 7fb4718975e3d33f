/* SPDX-License-Identifier: BSD-2-Clause */
/* The probe: whatever a module does to its process, the host learns what, in one line. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/escrow.h"
#include "tests/lib/testing.h"
#include "tests/unit/modules.h"

/* More than a probe takes on any machine; where one hangs, Check ends the test. */
#define LONG_MS 600000u

static struct escrow_probe_result result;
static struct escrow_error error;

static escrow_status probe(const char *module, uint32_t flags, const char *const *settings,
			   uint64_t timeout_ms)
{
	struct escrow_probe_args args = {.size = sizeof(args),
					 .flags = flags,
					 .path = modules_path(module),
					 .settings = settings,
					 .timeout_ns = timeout_ms * 1000000};

	memset(&result, 0, sizeof(result));
	memset(&error, 0, sizeof(error));
	result.size = sizeof(result);
	error.size = sizeof(error);
	return escrow_probe(&args, &result, &error);
}

/*
 * A module whose open hangs, with a limit that ends there.  The limit is of the whole probe: on a busy
 * machine fork, exec and dlopen alone may take longer than a short one.
 */
static escrow_status probe_that_hangs(void)
{
	uint64_t ms = 300;
	escrow_status status;

	do {
		status = probe("bad-hang", ESCROW_PROBE_OPEN, NULL, ms);
		ms *= 2;
	} while (status == ESCROW_E_TIMEOUT && strcmp(result.stage, "open") != 0);
	return status;
}

static void assert_says(const char *text)
{
	ck_assert_msg(strstr(error.text, text) != NULL, "\"%s\" does not say \"%s\"", error.text,
		      text);
}

START_TEST(a_good_module_passes)
{
	const char *settings[] = {"colour=red", NULL};

	ck_assert_int_eq(probe("fake", 0, NULL, LONG_MS), ESCROW_OK);
	ck_assert_str_eq(result.id, "fake");
	ck_assert_str_eq(result.version, "0");
	ck_assert_int_eq(result.revision, 1);
	ck_assert_str_eq(result.stage, "done");
	ck_assert_int_eq(probe("fake", ESCROW_PROBE_OPEN, settings, LONG_MS), ESCROW_OK);
	ck_assert_int_eq(result.exit_code, 0);
	ck_assert_int_eq(modules_mapped("fake.so"), 0); /* not here */
}
END_TEST

START_TEST(exit_in_a_constructor_is_no_verdict)
{
	ck_assert_int_eq(probe("bad-exit", 0, NULL, LONG_MS), ESCROW_E_INVALID);
	assert_says("ended without a verdict in dlopen");
	assert_says("exit(0)");
	ck_assert_int_eq(result.exit_code, 0);
}
END_TEST

START_TEST(a_crash_in_a_constructor_is_told)
{
	ck_assert_int_eq(probe("bad-crash", 0, NULL, LONG_MS), ESCROW_E_INVALID);
	assert_says("dlopen");
}
END_TEST

/* A daemon that ignores SIGCHLD cannot learn how a child ended, only what it said. */
START_TEST(a_host_that_ignores_its_children_can_probe)
{
	signal(SIGCHLD, SIG_IGN);
	ck_assert_int_eq(probe("fake", ESCROW_PROBE_OPEN, NULL, LONG_MS), ESCROW_OK);
	ck_assert_int_eq(probe("bad-exit", 0, NULL, LONG_MS), ESCROW_E_INVALID);
	assert_says("ended without a verdict in dlopen");
	assert_says("SIGCHLD");
	ck_assert_int_eq(result.exit_code, -1);
	ck_assert_int_eq(probe_that_hangs(), ESCROW_E_TIMEOUT);
	signal(SIGCHLD, SIG_DFL);
}
END_TEST

START_TEST(a_hang_in_open_is_killed)
{
	ck_assert_int_eq(probe("bad-hang", 0, NULL, LONG_MS), ESCROW_OK); /* the entry is fine */
	ck_assert_int_eq(probe_that_hangs(), ESCROW_E_TIMEOUT);
	assert_says("hung in open");
	ck_assert_str_eq(result.id, "fake");
}
END_TEST

START_TEST(what_open_answers_is_handed_on)
{
	const char *settings[] = {"color=red", NULL}, *odd[] = {"colour", NULL};

	ck_assert_int_eq(probe("fake", ESCROW_PROBE_OPEN, settings, LONG_MS), ESCROW_E_INVALID);
	assert_says("unknown key color; allowed is colour");
	ck_assert_int_eq(probe("fake", ESCROW_PROBE_OPEN, odd, LONG_MS), ESCROW_E_INVALID);
	ck_assert_int_eq(probe("bad-open", ESCROW_PROBE_OPEN, NULL, LONG_MS), ESCROW_E_DEVICE);
	assert_says("xxx");
	ck_assert_int_eq(strnlen(error.text, sizeof(error.text)), sizeof(error.text) - 1);
	ck_assert_int_eq(probe("bad-range", 0, NULL, LONG_MS), ESCROW_E_REVISION);
	assert_says("this backend speaks 7..9");
	ck_assert_int_eq(probe("bad-slot", 0, NULL, LONG_MS), ESCROW_OK);
}
END_TEST

START_TEST(a_file_that_cannot_be_loaded_is_told)
{
	ck_assert_int_eq(probe("no-such-module", 0, NULL, LONG_MS), ESCROW_E_INVALID);
	assert_says("dlopen");
}
END_TEST

START_TEST(who_is_asked_for_rails)
{
	ck_assert_int_eq(probe("fake", ESCROW_PROBE_RAILS, NULL, LONG_MS), ESCROW_E_UNSUPPORTED);
	assert_says("it lists no rails");
	ck_assert_str_eq(result.stage, "rails");
	ck_assert_int_eq(probe("bad-asked", ESCROW_PROBE_RAILS | ESCROW_PROBE_OPEN, NULL, LONG_MS),
			 ESCROW_E_INVALID);
	assert_says("crashed in rails");
	ck_assert_int_eq(result.signal, SIGKILL);
	/* It is asked for them, or not. */
	ck_assert_int_eq(probe("bad-asked", ESCROW_PROBE_OPEN, NULL, LONG_MS), ESCROW_OK);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	struct escrow_probe_args args = {.size = sizeof(args), .flags = 64, .path = "/x"};

	ck_assert_int_eq(escrow_probe(NULL, NULL, NULL), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_probe(&args, NULL, NULL), ESCROW_E_UNSUPPORTED);
	args.size = 8;
	ck_assert_int_eq(escrow_probe(&args, NULL, NULL), ESCROW_E_INVALID);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("probe");
	TCase *tcase = tcase_create("modules");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_good_module_passes);
	tcase_add_test(tcase, exit_in_a_constructor_is_no_verdict);
	tcase_add_test(tcase, a_crash_in_a_constructor_is_told);
	tcase_add_test(tcase, a_host_that_ignores_its_children_can_probe);
	tcase_add_test(tcase, a_hang_in_open_is_killed);
	tcase_add_test(tcase, what_open_answers_is_handed_on);
	tcase_add_test(tcase, a_file_that_cannot_be_loaded_is_told);
	tcase_add_test(tcase, who_is_asked_for_rails);
	tcase_add_test(tcase, bad_arguments_are_refused);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
