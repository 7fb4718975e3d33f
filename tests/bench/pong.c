/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A WRITE there and one back, each end looking at its memory for the other's: what ib_write_lat measures.
 *
 *	pong BYTES ROUNDS
 *
 * Two processes on the first rail of ESCROW_TEST_RAILS, one connection. Prints BYTES, ROUNDS and the median of half a
 * round in us. Each end waits for its own completion before it writes again, for until then its bytes are lent.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/clock.h"
#include "tests/bench/need.h"
#include "tests/bench/rail.h"

#define WARM_UP 100u
#define MOST_ROUNDS 1000000u
#define MOST_BYTES (END_BYTES / 2)

static uint64_t bytes = 64, rounds = 1000;
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

/* Each end lends the first half of its memory, and writes from the second. */
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
	b.len = end_grant(&here, peer, 0, MOST_BYTES, ESCROW_MAY_WRITE, b.bytes, sizeof(b.bytes),
			  &grant);
	send_blob(&b);
	hear_blob(&b);
	remote = end_import(&here, peer, b.bytes, b.len);
}

/* ---- There and back ------------------------------------------------------------------------------------- */
static void post(uint64_t round)
{
	struct escrow_sge sge = {here.region, MOST_BYTES, bytes};
	struct escrow_op op = {.remote = remote, .opcode = ESCROW_WRITE, .nsge = 1, .sge = &sge};

	here.memory[MOST_BYTES + bytes - 1] = (uint8_t)round;
	rail_move(&here, &op);
}

static void await(uint64_t round)
{
	const volatile uint8_t *last = &here.memory[bytes - 1];

	while (*last != (uint8_t)round)
		;
}

static void there_and_back(bool first, uint64_t round)
{
	if (first)
		post(round);
	await(round);
	if (!first)
		post(round);
}

static void play(bool first)
{
	uint64_t *took = calloc(WARM_UP + rounds, sizeof(*took)), last = now();

	ck_assert_ptr_nonnull(took);
	for (uint64_t i = 0; i < WARM_UP + rounds; i++) {
		there_and_back(first, i + 1);
		took[i] = since(&last);
	}
	if (first)
		printf("%llu %llu %.3f\n", (unsigned long long)bytes, (unsigned long long)rounds,
		       (double)median(took + WARM_UP, rounds) / 2 / 1e3);
	fflush(stdout);
	free(took);
}

static void one_end(bool first)
{
	struct blob b = {0};

	meet(first);
	play(first);
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

int main(int argc, char **argv)
{
	rail_arguments(argc, argv, 2);
	bytes = rail_number(argc, argv, 1, bytes, MOST_BYTES);
	rounds = rail_number(argc, argv, 2, rounds, MOST_ROUNDS);
	return rail_run("bench-pong", both_ends);
}
