/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A grant and its revocation beside what they are made of, a bind and a local invalidation of a Type-2 window:
 *
 *	grant ROUNDS BATCHES
 *
 * On the first rail of ESCROW_TEST_RAILS, in turns: a batch is 1 or 16 at once, first all are made and their completions
 * or GRANT_READY awaited, then all ended.  `whole` grants a whole region; `part` one of 4 KiB, which a device that does
 * not hold windows to their ranges (rxe) has registered by itself, and the bare pair has not.  Prints lines of
 * samples.tsv (tests/bench/in-guest): round, program, op, metric, bytes, pairs a second.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/clock.h"
#include "tests/bench/need.h"
#include "tests/bench/rail.h"
#include "tests/bench/window.h"

#define MOST 16u
#define RIGHTS (ESCROW_MAY_READ | ESCROW_MAY_WRITE)
#define PART 4096u
#define MOST_ROUNDS 1000000u
#define MOST_BATCHES 200u /* a window has no more keys than 255 */

static uint32_t rounds = 1, batches = 1;

static void tell(uint32_t round, const char *program, uint32_t batch, uint64_t bytes, uint64_t ns)
{
	printf("%u\t%s\tgrant*%u\trate\t%llu\t%.9g\n", round, program, batch,
	       (unsigned long long)bytes, (double)batch * batches * 1e9 / (double)ns);
	fflush(stdout);
}

/* ---- Bare verbs --------------------------------------------------------------------------------------- */
static struct {
	struct device device;
	struct link link;
	struct memory memory;
	struct ibv_mw *windows[MOST];
} raw;

static void raw_open(void)
{
	device_open(&raw.device);
	link_open(&raw.link, &raw.device, MOST);
	memory_open(&raw.memory, &raw.device, END_BYTES,
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_MW_BIND);
	for (uint32_t i = 0; i < MOST; i++) {
		raw.windows[i] = ibv_alloc_mw(raw.device.pd, IBV_MW_TYPE_2);
		ck_assert_ptr_nonnull(raw.windows[i]);
	}
}

static void raw_close(void)
{
	for (uint32_t i = 0; i < MOST; i++)
		ck_assert_int_eq(ibv_dealloc_mw(raw.windows[i]), 0);
	link_close(&raw.link);
	memory_close(&raw.memory);
	device_close(&raw.device);
}

static void raw_post(struct ibv_send_wr *wr, uint32_t n)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc[MOST];
	uint32_t done = 0;

	for (uint32_t i = 0; i < n; i++) {
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	need(ibv_post_send(raw.link.responder, wr, &bad) == 0, "post");
	while (done < n) {
		int got = ibv_poll_cq(raw.link.responder_cq, MOST, wc);

		need(got >= 0, "poll");
		for (int i = 0; i < got; i++)
			need(wc[i].status == IBV_WC_SUCCESS, "completion");
		done += (uint32_t)got;
	}
}

static void raw_pairs(uint32_t batch, uint64_t bytes)
{
	struct ibv_send_wr bind[MOST] = {0}, end[MOST] = {0};

	for (uint32_t i = 0; i < batch; i++)
		window_pair(raw.windows[i], raw.memory.mr, bytes,
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, &bind[i], &end[i]);
	raw_post(bind, batch);
	for (uint32_t i = 0; i < batch; i++)
		raw.windows[i]->rkey = end[i].invalidate_rkey;
	raw_post(end, batch);
}

/* ---- Grants --------------------------------------------------------------------------------------------- */
static struct end owner, user;
static uint64_t owner_user;

/* Polls without a pause, as the bare loop does. */
static void await(uint16_t kind, uint32_t n)
{
	struct escrow_event ev[MOST];

	while (n) {
		int32_t got = OPS->poll(owner.engine, ev, MOST, sizeof(ev[0]), 0);

		for (int32_t i = 0; i < got; i++) {
			need(ev[i].status == ESCROW_OK, "event");
			n -= ev[i].kind == kind;
		}
	}
}

static void escrow_pairs(uint32_t batch, uint64_t bytes)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = RIGHTS,
					 .peer = owner_user,
					 .region = owner.region,
					 .length = bytes};
	uint64_t grants[MOST];

	for (uint32_t i = 0; i < batch; i++)
		need(OPS->grant(owner.engine, &args, &grants[i], NULL) == ESCROW_IN_PROGRESS,
		     "grant");
	await(ESCROW_EV_GRANT_READY, batch);
	for (uint32_t i = 0; i < batch; i++)
		need(OPS->revoke(owner.engine, grants[i], 0) == ESCROW_IN_PROGRESS, "revoke");
	await(ESCROW_EV_GRANT_REVOKED, batch);
}

/* ---- In turns ------------------------------------------------------------------------------------------- */
static void measure(uint32_t round, const char *program, void (*pairs)(uint32_t, uint64_t),
		    uint32_t batch, uint64_t bytes)
{
	uint64_t begin;

	pairs(batch, bytes); /* what is made once */
	begin = now();
	for (uint32_t i = 0; i < batches; i++)
		pairs(batch, bytes);
	tell(round, program, batch, bytes, now() - begin);
}

/* Engines of their own, so that none comes near the number of times that a window's key can be made. */
static void both(uint32_t round, uint32_t batch, uint64_t bytes)
{
	uint64_t user_owner;

	end_open(&owner, 'o', one_rail);
	end_open(&user, 'u', one_rail);
	ends_connect(&owner, &user, &owner_user, &user_owner);
	measure(round, "escrow", escrow_pairs, batch, bytes);
	measure(round, "raw", raw_pairs, batch, bytes);
	end_close(&user);
	end_close(&owner);
}

START_TEST(in_turns)
{
	raw_open();
	for (uint32_t round = 1; round <= rounds; round++)
		for (uint32_t batch = 1; batch <= MOST; batch *= MOST)
			for (uint64_t bytes = PART; bytes <= END_BYTES; bytes *= END_BYTES / PART)
				both(round, batch, bytes);
	raw_close();
}
END_TEST

int main(int argc, char **argv)
{
	rail_arguments(argc, argv, 2);
	rounds = (uint32_t)rail_number(argc, argv, 1, rounds, MOST_ROUNDS);
	batches = (uint32_t)rail_number(argc, argv, 2, batches, MOST_BATCHES);
	return rail_run("bench-grant", in_turns);
}
