/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * READs, one after the other, which is what ib_read_lat measures, and so WRITEs: by the backend's slots and by bare verbs,
 * with the same MTU and, up to 64 B, the bytes in the request.
 *
 *	lone BYTES ROUNDS OPS
 *
 * On the first rail of ESCROW_TEST_RAILS, in turns, there and back: half of the ops of Escrow, those of bare verbs in two
 * halves, the other half of Escrow's.  Both loops do nothing else, and the other end, in this process,
 * nothing at all.  Prints lines of samples.tsv (tests/bench/in-guest): round, program, op, metric, bytes, and the median
 * time from one completion to the next in us.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/clock.h"
#include "tests/bench/need.h"
#include "tests/bench/rail.h"

#define WARM_UP 100u
#define MOST_BYTES (END_BYTES / 2)
#define MOST_OPS 1000000u

static uint64_t bytes = 64, rounds = 1, ops = 1000;

/* ---- Bare verbs ----------------------------------------------------------------------------------------- */
static struct {
	struct device device;
	struct link link;
	struct memory memory;
} raw;

static void raw_open(void)
{
	struct ibv_port_attr port;

	device_open(&raw.device);
	ck_assert_int_eq(ibv_query_port(raw.device.context, raw.device.port, &port), 0);
	raw.device.mtu = port.active_mtu; /* which Escrow's connections have too */
	link_open(&raw.link, &raw.device, 1);
	memory_open(&raw.memory, &raw.device, END_BYTES,
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
}

static void raw_close(void)
{
	link_close(&raw.link);
	memory_close(&raw.memory);
	device_close(&raw.device);
}

static unsigned int raw_inline(uint32_t opcode)
{
	return opcode == ESCROW_WRITE && bytes <= LINK_INLINE ? IBV_SEND_INLINE : 0;
}

static void raw_move(uint32_t opcode)
{
	uint64_t at = (uintptr_t)raw.memory.bytes;
	struct ibv_sge sge = {at + MOST_BYTES, (uint32_t)bytes, raw.memory.mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.sg_list = &sge,
		      .num_sge = 1,
		      .opcode = opcode == ESCROW_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		      .send_flags = IBV_SEND_SIGNALED | raw_inline(opcode),
		      .wr.rdma = {at, raw.memory.mr->rkey}};
	struct ibv_wc wc;
	int n;

	need(ibv_post_send(raw.link.requester, &wr, &bad) == 0, "post");
	while ((n = ibv_poll_cq(raw.link.requester_cq, 1, &wc)) == 0)
		;
	need(n == 1 && wc.status == IBV_WC_SUCCESS, "completion");
}

/* ---- Escrow --------------------------------------------------------------------------------------------- */
static struct end owner, user;
static uint64_t remote;

/* The user writes from the second half of its memory, or reads to it. */
static void escrow_open(void)
{
	uint64_t owner_user, user_owner, grant, len;
	uint8_t blob[4096];

	end_open(&owner, 'o', one_rail);
	end_open(&user, 'u', one_rail);
	ends_connect(&owner, &user, &owner_user, &user_owner);
	len = end_grant(&owner, owner_user, 0, MOST_BYTES, ESCROW_MAY_READ | ESCROW_MAY_WRITE, blob,
			sizeof(blob), &grant);
	remote = end_import(&user, user_owner, blob, len);
}

static void escrow_close(void)
{
	end_close(&user);
	end_close(&owner);
}

static void escrow_move(uint32_t opcode)
{
	struct escrow_sge sge = {user.region, MOST_BYTES, bytes};
	struct escrow_op op = {.remote = remote, .opcode = opcode, .nsge = 1, .sge = &sge};

	rail_move(&user, &op);
}

/* ---- In turns ------------------------------------------------------------------------------------------- */
struct program {
	const char *name;
	void (*move)(uint32_t opcode);
	uint64_t *took;
	uint64_t n;
};

/* So many ops more, behind some that do not count. */
static void measure(struct program *p, uint32_t opcode, uint64_t n)
{
	uint64_t last;

	for (uint64_t i = 0; i < WARM_UP; i++)
		p->move(opcode);
	last = now();
	for (uint64_t i = 0; i < n; i++) {
		p->move(opcode);
		p->took[p->n++] = since(&last);
	}
}

static void tell(struct program *p, uint64_t round, uint32_t opcode)
{
	printf("%llu\t%s\t%s\tlatency\t%llu\t%.3f\n", (unsigned long long)round, p->name,
	       opcode == ESCROW_READ ? "lone-read" : "lone-write", (unsigned long long)bytes,
	       (double)median(p->took, p->n) / 1e3);
	fflush(stdout);
	free(p->took);
}

static void both(uint64_t round, uint32_t opcode)
{
	struct program escrow = {"escrow", escrow_move, calloc(ops, sizeof(uint64_t)), 0};
	struct program bare = {"raw", raw_move, calloc(ops, sizeof(uint64_t)), 0};

	ck_assert(escrow.took && bare.took);
	measure(&escrow, opcode, ops / 2);
	measure(&bare, opcode, ops / 2);
	measure(&bare, opcode, ops - ops / 2);
	measure(&escrow, opcode, ops - ops / 2);
	tell(&escrow, round, opcode);
	tell(&bare, round, opcode);
}

START_TEST(in_turns)
{
	raw_open();
	escrow_open();
	for (uint64_t round = 1; round <= rounds; round++)
		for (uint32_t opcode = ESCROW_READ; opcode <= ESCROW_WRITE; opcode++)
			both(round, opcode);
	escrow_close();
	raw_close();
}
END_TEST

int main(int argc, char **argv)
{
	rail_arguments(argc, argv, 3);
	bytes = rail_number(argc, argv, 1, bytes, MOST_BYTES);
	rounds = rail_number(argc, argv, 2, rounds, MOST_OPS);
	ops = rail_number(argc, argv, 3, ops, MOST_OPS);
	return rail_run("bench-lone", in_turns);
}
