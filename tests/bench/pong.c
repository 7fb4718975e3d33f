/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A WRITE there and one back, each end looking at its memory for the other's: what ib_write_lat measures.  Or READs, one
 * after the other: what ib_read_lat measures.
 *
 *	pong BYTES ROUNDS [read]
 *
 * Two processes on the first rail of ESCROW_TEST_RAILS, one connection. Prints BYTES, ROUNDS and the median of half a
 * round, or of a READ, in us. Each end waits for its own completion before it writes again, for until then its bytes are
 * lent.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/clock.h"
#include "tests/bench/need.h"
#include "tests/lib/testing.h"
#include "tests/softroce/link.h"
#include "tests/unit/rdma-kit.h"

#define WARM_UP 100u
#define MOST_ROUNDS 1000000u
#define MOST_BYTES (END_BYTES / 2)

static const char *const one_rail[] = {"max_rails=1", "num_lanes=1", NULL};
static uint64_t bytes = 64, rounds = 1000;
static bool reads;
static struct end here;
static uint64_t remote;
static int channel;

/* ---- Meeting -------------------------------------------------------------------------------------------- */
struct blob {
	uint64_t len;
	uint8_t bytes[4096];
};

static void send_blob(const struct blob *b)
{
	ck_assert_int_eq(write(channel, b, sizeof(*b)), sizeof(*b));
}

static void hear_blob(struct blob *b)
{
	uint8_t *to = (uint8_t *)b;
	size_t got = 0;

	while (got < sizeof(*b)) {
		ssize_t n = read(channel, to + got, sizeof(*b) - got);

		ck_assert_msg(n > 0, "the other end is gone");
		got += (size_t)n;
	}
}

/* Each end lends the first half of its memory, and writes from the second, or reads to it. */
static void meet(bool first)
{
	uint64_t peer, grant;
	struct blob b = {0};

	end_open(&here, 0, one_rail);
	if (first) {
		b.len = end_invite(&here, "pong", b.bytes, sizeof(b.bytes));
		send_blob(&b);
		peer = end_wait(&here, ESCROW_EV_PEER_UP).object;
	} else {
		hear_blob(&b);
		peer = end_connect(&here, "pong", b.bytes, b.len);
		end_wait(&here, ESCROW_EV_PEER_UP);
	}
	b.len = end_grant(&here, peer, 0, MOST_BYTES, reads ? ESCROW_MAY_READ : ESCROW_MAY_WRITE,
			  b.bytes, sizeof(b.bytes), &grant);
	send_blob(&b);
	hear_blob(&b);
	remote = end_import(&here, peer, b.bytes, b.len);
}

/* ---- There and back ------------------------------------------------------------------------------------- */
static void move(uint32_t opcode)
{
	struct escrow_sge sge = {here.region, MOST_BYTES, bytes};
	struct escrow_op op = {.remote = remote, .opcode = opcode, .nsge = 1, .sge = &sge};
	struct escrow_event ev;
	uint64_t id;

	need(OPS->transfer(here.engine, &op, 1, sizeof(op), 0, &id) == 1, "transfer");
	while (OPS->poll(here.engine, &ev, 1, sizeof(ev), 0) != 1)
		;
	need(ev.kind == ESCROW_EV_OP_DONE && ev.status == ESCROW_OK, "event");
}

static void post(uint64_t round)
{
	here.memory[MOST_BYTES + bytes - 1] = (uint8_t)round;
	move(ESCROW_WRITE);
}

static void await(uint64_t round)
{
	const volatile uint8_t *last = &here.memory[bytes - 1];

	while (*last != (uint8_t)round)
		;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void there_and_back(bool first, uint64_t round)
{
	if (first)
		post(round);
	await(round);
	if (!first)
		post(round);
}

/* Prints the median of the rounds, each of so many ways. */
static void play(bool first, double ways)
{
	uint64_t *took = calloc(WARM_UP + rounds, sizeof(*took)), last = now();

	ck_assert_ptr_nonnull(took);
	for (uint64_t i = 0; i < WARM_UP + rounds; i++) {
		uint64_t at;

		if (reads)
			move(ESCROW_READ);
		else
			there_and_back(first, i + 1);
		at = now();
		took[i] = at - last;
		last = at;
	}
	qsort(took + WARM_UP, rounds, sizeof(*took), by_size);
	if (first)
		printf("%llu %llu %.3f\n", (unsigned long long)bytes, (unsigned long long)rounds,
		       (double)took[WARM_UP + rounds / 2] / ways / 1e3);
	fflush(stdout);
	free(took);
}

static void one_end(bool first)
{
	struct blob b = {0};

	meet(first);
	/* Whose bytes are read sleeps meanwhile. */
	if (first || !reads)
		play(first, reads ? 1 : 2);
	/* Neither closes before the other has its last completion. */
	send_blob(&b);
	hear_blob(&b);
	end_close(&here);
}

START_TEST(both_ends)
{
	int both[2], status;
	pid_t child;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	channel = both[child ? 0 : 1];
	close(both[child ? 1 : 0]);
	one_end(child != 0);
	if (!child)
		_exit(0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

static uint64_t number(const char *text, const char *name, uint64_t most)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (*end || !n || n > most) {
		fprintf(stderr, "pong: %s %s: 1 to %llu is allowed\n", name, text,
			(unsigned long long)most);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	char why[256];
	Suite *s;
	TCase *t;

	if (argc > 1)
		bytes = number(argv[1], "BYTES", MOST_BYTES);
	if (argc > 2)
		rounds = number(argv[2], "ROUNDS", MOST_ROUNDS);
	if (argc > 3) {
		reads = strcmp(argv[3], "read") == 0;
		if (!reads) {
			fprintf(stderr, "pong: %s: read is allowed, or nothing\n", argv[3]);
			return 2;
		}
	}
	if (!device_rail())
		return testing_skip("ESCROW_TEST_RAILS names no rail");
	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	s = suite_create("bench-pong");
	t = tcase_create("pong");
	tcase_set_timeout(t, 600);
	tcase_add_test(t, both_ends);
	suite_add_tcase(s, t);
	return testing_run(s);
}
