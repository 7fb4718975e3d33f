/* SPDX-License-Identifier: BSD-2-Clause */
/* What the suite's cases are judged with, where a busy machine must not change the verdict. */
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/conform/ambient.h"
#include "tests/conform/patience.h"
#include "tests/conform/verdict.h"
#include "tests/lib/testing.h"

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

START_TEST(patience_is_most_of_the_limit)
{
	uint64_t first, last, end;

	patience_limit(600000);
	ck_assert_uint_eq(patience_ms(), 480000);
	first = now_ns();
	end = patience_end();
	last = now_ns();
	ck_assert_uint_ge(end, first + UINT64_C(480000000000));
	ck_assert_uint_le(end, last + UINT64_C(480000000000));
	ck_assert(!patience_over(end));
	ck_assert(patience_over(first - 1));
}
END_TEST

static sem_t go;

static void *stay(void *unused)
{
	sem_wait(&go);
	return unused;
}

/* A case that starts a thread, and looks at the process while there still is one too many. */
static void compare_beside_thread(bool ends)
{
	static struct ambient before, after;
	pthread_t t;

	sem_init(&go, 0, 0);
	ambient_take(&before);
	pthread_create(&t, NULL, stay, NULL);
	ambient_take(&after);
	if (ends)
		sem_post(&go);
	ambient_compare(&before, &after, "in the end");
	verdict_pass();
}

/* What comes of it, in a process of its own, as the child has it. */
static void judge(bool ends, unsigned int limit, char *record, size_t room)
{
	int pipe_fd[2];
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(pipe_fd), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		patience_limit(limit);
		verdict_open(pipe_fd[1], "ESC-MADE-UP", "T5");
		compare_beside_thread(ends);
	}
	close(pipe_fd[1]);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	n = read(pipe_fd[0], record, room - 1);
	ck_assert_int_gt(n, 0);
	record[n] = 0;
	close(pipe_fd[0]);
}

START_TEST(thread_that_ends_is_no_leak)
{
	char record[2048];

	judge(true, 100000, record, sizeof(record));
	ck_assert_str_eq(record, "V\tPASS\tT5\t\n");
}
END_TEST

START_TEST(thread_that_stays_is_one)
{
	char record[2048];

	judge(false, 200, record, sizeof(record));
	ck_assert_msg(strstr(record, "V\tFAIL\tT4\t") == record, "%s", record);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("conform kit");
	TCase *t = tcase_create("busy");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, patience_is_most_of_the_limit);
	tcase_add_test(t, thread_that_ends_is_no_leak);
	tcase_add_test(t, thread_that_stays_is_one);
	suite_add_tcase(s, t);
	return testing_run(s);
}
