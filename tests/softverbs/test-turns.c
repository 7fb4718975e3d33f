/* SPDX-License-Identifier: BSD-2-Clause */
/* softverbs in deterministic mode: one seed decides everything, time is a number, and a wait without end is
 * found. */
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/softverbs/rig.h"

#define OPS 40
#define TRACE_BYTES 65536

static void told(FILE *trace, const char *what, uint64_t number)
{
	fprintf(trace, "%llu %s %llu\n", (unsigned long long)softverbs_now(), what,
		(unsigned long long)number);
}

static struct ibv_wc next_completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	memset(&wc, 0, sizeof(wc));
	while (!ibv_poll_cq(cq, 1, &wc))
		if (!softverbs_step())
			softverbs_pass(UINT32_MAX);
	return wc;
}

static void record_calls(FILE *trace)
{
	struct softverbs_call calls[64];
	uint64_t after = 0;
	size_t i, n;

	while ((n = softverbs_log(after, calls, 64))) {
		for (i = 0; i < n; i++)
			fprintf(trace, "%s %u %d %d\n", calls[i].name, calls[i].id, calls[i].rc,
				calls[i].errnum);
		after = calls[n - 1].seq;
	}
}

/* Two queue pairs that WRITE and READ; everything that can be seen goes into 'trace', with the time at which
 * it was seen. */
static void work(uint64_t seed, FILE *trace)
{
	struct ibv_wc wc;
	struct rig r;
	uint64_t i;

	softverbs_deterministic(seed);
	rig_defaults(&r);
	rig_connect(&r);
	for (i = 0; i < OPS; i++) {
		enum ibv_wr_opcode op = i % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;

		memset(r.a.buf, (int)i, 4096);
		memset(r.b.buf, (int)~i, 4096);
		ck_assert_int_eq(rig_post(&r, op, 0, (uint32_t)(1 + i * 97), i), 0);
		wc = next_completion(r.a.scq);
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		ck_assert_uint_eq(wc.wr_id, i);
		ck_assert_int_eq(memcmp(r.a.buf, r.b.buf, 1 + i * 97), 0);
		told(trace, "completion", wc.wr_id);
	}
	softverbs_settle();
	told(trace, "settled", 0);
	rig_close(&r);
	record_calls(trace);
}

/* A run in a process of its own, and its trace. */
static void run(uint64_t seed, char *text)
{
	FILE *trace = tmpfile();
	int status;
	pid_t child;

	ck_assert_ptr_nonnull(trace);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		work(seed, trace);
		_exit(fflush(trace) ? 1 : 0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	rewind(trace);
	ck_assert_uint_gt(fread(text, 1, TRACE_BYTES - 1, trace), OPS * sizeof("completion"));
	ck_assert_int_eq(fgetc(trace), EOF);
	fclose(trace);
}

START_TEST(a_seed_replays_to_the_byte)
{
	/* Not allocated: in a child that would be lost. */
	static char first[TRACE_BYTES], again[TRACE_BYTES], other[TRACE_BYTES];

	run((uint64_t)_i, first);
	run((uint64_t)_i, again);
	run((uint64_t)_i + 1, other);
	ck_assert_str_eq(first, again);
	ck_assert_str_ne(first, other);
}
END_TEST

/* Nobody answers: the last of retry_cnt + 1 transmissions has had its nominal timeout, 4.096 us x 2^timeout
 * (InfiniBand specification 9.7.6.1.3), on the clock that is a number. */
START_TEST(time_is_a_number)
{
	uint64_t before, nominal;
	struct rig r;

	softverbs_deterministic(1);
	rig_defaults(&r);
	r.timeout = 20;
	r.retry_cnt = 7;
	rig_connect(&r);
	nominal = 4096ull << r.timeout;
	softverbs_kill_peers(r.a.ctx);
	before = softverbs_now();
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 8, 1), 0);
	ck_assert_int_eq(next_completion(r.a.scq).status, IBV_WC_RETRY_EXC_ERR);
	ck_assert_uint_ge(softverbs_now() - before, 8 * nominal);
	before = softverbs_now();
	ck_assert_int_eq(softverbs_pass(500), 0);
	ck_assert_uint_eq(softverbs_now() - before, 500);
}
END_TEST

/* The wait for an event makes the device's turns, and time, by itself. */
START_TEST(a_call_that_waits_is_served)
{
	struct ibv_cq *cq;
	void *context;
	struct rig r;

	softverbs_deterministic((uint64_t)_i);
	rig_defaults(&r);
	rig_connect(&r);
	ck_assert_int_eq(ibv_req_notify_cq(r.a.scq, 0), 0);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 4096, 1), 0);
	ck_assert_int_eq(ibv_get_cq_event(r.a.channel, &cq, &context), 0);
	ck_assert_ptr_eq(cq, r.a.scq);
	ibv_ack_cq_events(cq, 1);
	ck_assert_int_eq(next_completion(r.a.scq).status, IBV_WC_SUCCESS);
	rig_close(&r);
}
END_TEST

START_TEST(a_wait_without_end_is_found)
{
	struct ibv_cq *cq;
	void *context;
	struct rig r;

	softverbs_deterministic(1);
	rig_defaults(&r);
	rig_connect(&r);
	ck_assert_int_eq(ibv_req_notify_cq(r.a.scq, 0), 0);
	ibv_get_cq_event(r.a.channel, &cq, &context);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("turns");
	TCase *t = tcase_create("turns");

	setenv("SOFTVERBS_ADVERSARY", "1", 1);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_seed_replays_to_the_byte, 1, 9);
	tcase_add_test(t, time_is_a_number);
	tcase_add_loop_test(t, a_call_that_waits_is_served, 0, 4);
	tcase_add_test_raise_signal(t, a_wait_without_end_is_found, SIGABRT);
	suite_add_tcase(s, t);
	return rig_run(s);
}
