/* SPDX-License-Identifier: BSD-2-Clause */
/* Ops of one call that name several regions and remotes: each goes its own way, and what is stale ends the prefix. */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/testing.h"
#include "tests/unit/pair.h"

#define OPS 40u /* more than libescrow hands over at once */
#define BYTES 64u
#define HALF (PAIR_BYTES / 2)

static struct pair pair;
static _Alignas(64) unsigned char other_memory[PAIR_BYTES];
/* The mover's regions, and what it has imported: one for each half of the still side's memory. */
static uint64_t regions[2], remotes[2];

static void pump_until(const uint32_t *kinds, uint32_t n)
{
	while (*kinds < n)
		pair_pump(&pair);
}

/* The still side's second half, by a grant of its own. */
static uint64_t second_remote(void)
{
	struct pair_side *still = &pair.still, *mover = &pair.mover;
	struct escrow_grant_args grant = {.size = sizeof(grant),
					  .rights = ESCROW_MAY_READ | ESCROW_MAY_WRITE,
					  .peer = still->peer,
					  .region = still->region,
					  .offset = HALF,
					  .length = HALF};
	struct escrow_remote_args import = {.size = sizeof(import), .peer = mover->peer};
	unsigned char bytes[4096];
	uint64_t handle, remote;
	escrow_status status;

	import.bytes = bytes;
	import.len = sizeof(bytes);
	ck_assert_int_eq(escrow_grant(still->host, &grant, &handle, NULL), ESCROW_IN_PROGRESS);
	while (still->granted != handle)
		pair_pump(&pair);
	ck_assert_int_eq(escrow_export_grant(still->host, handle, bytes, &import.len), ESCROW_OK);
	status = escrow_import_grant(mover->host, &import, &remote, NULL);
	ck_assert_int_ge(status, ESCROW_OK);
	while (status == ESCROW_IN_PROGRESS && mover->ready_remote != remote)
		pair_pump(&pair);
	return remote;
}

static void setup(void)
{
	pair_make(&pair, 0, NULL);
	memset(pair.still.memory, 0, PAIR_BYTES);
	for (uint32_t i = 0; i < PAIR_BYTES; i++) {
		pair.mover.memory[i] = (unsigned char)(i / BYTES % 100 + 1);
		other_memory[i] = (unsigned char)(i / BYTES % 100 + 101);
	}
	regions[0] = pair.mover.region;
	regions[1] = hosting_register(pair.mover.host, other_memory, PAIR_BYTES, NULL);
	remotes[0] = pair.mover.remote;
	remotes[1] = second_remote();
}

/* WRITE of the i-th block of a region to that of a remote. */
static void fill(struct escrow_op *op, struct escrow_sge *range, uint64_t region, uint64_t remote,
		 uint32_t i)
{
	*range = (struct escrow_sge){region, i * BYTES, BYTES};
	*op = (struct escrow_op){.remote = remote,
				 .remote_offset = i * BYTES,
				 .opcode = ESCROW_WRITE,
				 .nsge = 1,
				 .sge = range};
}

static int32_t submit(const struct escrow_op *ops, uint32_t n)
{
	uint64_t ids[OPS];

	return escrow_transfer(pair.mover.host, ops, n, sizeof(ops[0]), 0, ids);
}

/* Which region the i-th op is of, and where it goes. */
static uint32_t from(uint32_t i)
{
	return i % 3 == 0;
}
static uint32_t to(uint32_t i)
{
	return i / 4 % 2;
}

/* The byte that the i-th op brings: of every fifth, the second half is the other region's. */
static unsigned char brought(uint32_t i, uint32_t byte)
{
	uint32_t of = i % 5 == 0 && byte >= BYTES / 2 ? !from(i) : from(i);

	return (unsigned char)(i + (of ? 101 : 1));
}

START_TEST(each_goes_its_own_way)
{
	struct escrow_op ops[OPS];
	struct escrow_sge ranges[OPS][2];
	uint32_t done = pair.mover.kinds[ESCROW_EV_OP_DONE];

	for (uint32_t i = 0; i < OPS; i++) {
		fill(&ops[i], ranges[i], regions[from(i)], remotes[to(i)], i);
		if (i % 5 == 0) {
			ranges[i][0].length = BYTES / 2;
			ranges[i][1] = (struct escrow_sge){regions[!from(i)], i * BYTES + BYTES / 2,
							   BYTES / 2};
			ops[i].nsge = 2;
		}
	}
	ck_assert_int_eq(submit(ops, OPS), (int32_t)OPS);
	pump_until(&pair.mover.kinds[ESCROW_EV_OP_DONE], done + OPS);
	for (uint32_t i = 0; i < OPS; i++) {
		const unsigned char *there = pair.still.memory + i * BYTES;

		for (uint32_t byte = 0; byte < BYTES; byte++) {
			ck_assert_uint_eq(there[to(i) * HALF + byte], brought(i, byte));
			ck_assert_uint_eq(there[!to(i) * HALF + byte], 0);
		}
	}
}
END_TEST

/* Three ops, of which the one in the middle is not like the others: how many were taken, and then that one alone. */
static void expect_prefix(uint64_t region, uint64_t remote)
{
	struct escrow_op ops[3];
	struct escrow_sge ranges[3];
	uint32_t done = pair.mover.kinds[ESCROW_EV_OP_DONE];

	for (uint32_t i = 0; i < 3; i++)
		fill(&ops[i], &ranges[i], i == 1 ? region : regions[0],
		     i == 1 ? remote : remotes[0], i);
	ck_assert_int_eq(submit(ops, 3), 1);
	ck_assert_int_eq(submit(ops + 1, 2), ESCROW_E_INVALID);
	ck_assert_int_eq(submit(ops + 1, 1), ESCROW_E_INVALID);
	ck_assert_int_eq(submit(ops + 2, 1), 1);
	pump_until(&pair.mover.kinds[ESCROW_EV_OP_DONE], done + 2);
}

START_TEST(what_is_stale_ends_the_prefix)
{
	struct pair_side *mover = &pair.mover;

	expect_prefix(0, remotes[0]);
	expect_prefix(regions[0], 0);
	ck_assert_int_eq(escrow_forget_grant(mover->host, remotes[1]), ESCROW_OK);
	expect_prefix(regions[0], remotes[1]);
	ck_assert_int_ge(escrow_deregister(mover->host, regions[1]), ESCROW_OK);
	pump_until(&mover->kinds[ESCROW_EV_REGION_RELEASED], 1);
	expect_prefix(regions[1], remotes[0]);
	/* Another has its place. */
	ck_assert_uint_ne(hosting_register(mover->host, other_memory, PAIR_BYTES, NULL),
			  regions[1]);
	expect_prefix(regions[1], remotes[0]);
}
END_TEST

/* ---- In the middle of a call: it is stopped at the first op of its second batch, which cannot be read at first -------- */
#define BATCH 16u /* as plugin/transfer.c has it */
#define PAGE 4096u

static struct escrow_op *ops_of_two; /* of which the last one is on a page of its own */
static uint64_t other;

/* The first batch is done by then. */
static void read_on(void)
{
	ck_assert_int_eq(mprotect(ops_of_two + BATCH, PAGE, PROT_READ | PROT_WRITE), 0);
	pump_until(&pair.mover.kinds[ESCROW_EV_OP_DONE], BATCH);
}

static void give_the_remotes_place_away(int signal)
{
	read_on();
	ck_assert_int_eq(escrow_forget_grant(pair.mover.host, remotes[0]), ESCROW_OK);
	other = second_remote();
	ck_assert_uint_eq((uint32_t)other, (uint32_t)remotes[0]); /* the same place */
}

static void give_the_regions_place_away(int signal)
{
	read_on();
	ck_assert_int_ge(escrow_deregister(pair.mover.host, regions[1]), ESCROW_OK);
	pump_until(&pair.mover.kinds[ESCROW_EV_REGION_RELEASED], 1);
	other = hosting_register(pair.mover.host, other_memory, PAIR_BYTES, NULL);
	ck_assert_uint_eq((uint32_t)other, (uint32_t)regions[1]); /* the same place */
}

/* Ops that all name the same; of them only those of the first batch are taken, and no byte of the last one goes anywhere. */
static void expect_first_batch(void (*in_between)(int))
{
	struct sigaction action = {.sa_handler = in_between, .sa_flags = SA_NODEFER};
	struct escrow_sge ranges[BATCH + 1];
	unsigned char *pages = mmap(NULL, (size_t)2 * PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(pages, MAP_FAILED);
	ops_of_two = (struct escrow_op *)(void *)(pages + PAGE) - BATCH;
	for (uint32_t i = 0; i <= BATCH; i++)
		fill(&ops_of_two[i], &ranges[i], regions[1], remotes[0], i);
	ck_assert_int_eq(mprotect(pages + PAGE, PAGE, PROT_NONE), 0);
	ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
	ck_assert_int_eq(submit(ops_of_two, BATCH + 1), (int32_t)BATCH);
	ck_assert_uint_ne(other, 0);
	for (uint32_t i = 0; i < 100; i++)
		pair_pump(&pair);
	ck_assert_uint_eq(pair.mover.kinds[ESCROW_EV_OP_DONE], BATCH);
	for (uint32_t byte = 0; byte < BYTES; byte++) {
		ck_assert_uint_eq(pair.still.memory[BATCH * BYTES + byte], 0);
		ck_assert_uint_eq(pair.still.memory[HALF + BATCH * BYTES + byte], 0);
	}
}

START_TEST(the_remote_that_took_the_place_in_between_is_not_meant)
{
	expect_first_batch(give_the_remotes_place_away);
}
END_TEST

START_TEST(the_region_that_took_the_place_in_between_is_not_meant)
{
	expect_first_batch(give_the_regions_place_away);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("batch");
	TCase *tcase = tcase_create("ops");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, each_goes_its_own_way);
	tcase_add_test(tcase, what_is_stale_ends_the_prefix);
	tcase_add_test(tcase, the_remote_that_took_the_place_in_between_is_not_meant);
	tcase_add_test(tcase, the_region_that_took_the_place_in_between_is_not_meant);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
