/* SPDX-License-Identifier: BSD-2-Clause */
/* A test that goes on is no hang, however long it takes in all. */
#include <unistd.h>

#include "tests/lib/hang.h"
#include "tests/lib/testing.h"

/* What is left of the time is what alarm says; it goes down by itself. */
START_TEST(progress_begins_the_time_anew)
{
	hang_watch(10000, 0);
	ck_assert_uint_gt(alarm(3), 9000);
	hang_alive(1);
	ck_assert_uint_gt(alarm(3), 9000);
	hang_alive(4);
	ck_assert_uint_gt(alarm(3), 39000);
	hang_watch(0, 0);
	ck_assert_uint_eq(alarm(0), 0);
}
END_TEST

START_TEST(nothing_is_watched)
{
	hang_alive(1);
	ck_assert_uint_eq(alarm(0), 0);
	hang_watch(10000, 0);
	hang_watch(0, 0);
	hang_alive(1);
	ck_assert_uint_eq(alarm(0), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hang");
	TCase *t = tcase_create("watch");

	tcase_add_test(t, progress_begins_the_time_anew);
	tcase_add_test(t, nothing_is_watched);
	suite_add_tcase(s, t);
	return testing_run(s);
}
