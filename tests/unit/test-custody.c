/* SPDX-License-Identifier: BSD-2-Clause */
/* Who has the bytes, on the mock: borrows against ops in threads, and swaps of an A that is stuck. */
#include <pthread.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/pair.h"

static struct pair pair;

/* ---- A borrow and an op never have a range at the same time --------------------------------------- */
#define CELL 512u
#define ROUNDS 100u

static _Atomic int stop;
static _Atomic uint32_t borrowed;

/* Fills the cell with one value at a time: whoever reads it meanwhile sees two. */
static void *fill(void *unused)
{
	for (unsigned value = 1; !atomic_load(&stop); value++) {
		if (escrow_borrow_for_write(pair.mover.host, pair.mover.region, 0, CELL) !=
		    ESCROW_OK)
			continue;
		for (unsigned i = 0; i < CELL; i++)
			pair.mover.memory[i] = (unsigned char)value;
		if (escrow_return(pair.mover.host, pair.mover.region, 0, CELL) == ESCROW_OK)
			atomic_fetch_add(&borrowed, 1);
	}
	return NULL;
}

START_TEST(an_op_never_sees_half_of_what_a_borrower_writes)
{
	pthread_t filler;
	uint32_t moved = 0;

	pair_make(&pair, 0, NULL);
	atomic_store(&stop, 0);
	ck_assert_int_eq(pthread_create(&filler, NULL, fill, NULL), 0);
	while (moved < ROUNDS || atomic_load(&borrowed) < ROUNDS) {
		uint32_t before = pair.mover.kinds[ESCROW_EV_OP_DONE];
		int32_t n = hosting_transfer(pair.mover.host, ESCROW_WRITE, pair.mover.remote,
					     (struct escrow_sge){pair.mover.region, 0, CELL}, NULL);

		if (n != 1) {
			ck_assert_int_eq(n, ESCROW_E_BUSY);
			continue;
		}
		while (pair.mover.kinds[ESCROW_EV_OP_DONE] == before)
			pair_pump(&pair);
		moved++;
		for (unsigned i = 1; i < CELL; i++)
			ck_assert_uint_eq(pair.still.memory[i], pair.still.memory[0]);
	}
	atomic_store(&stop, 1);
	ck_assert_int_eq(pthread_join(filler, NULL), 0);
	pair_end(&pair);
}
END_TEST

/* ---- A cannot prove that it let go ---------------------------------------------------------------- */
/* Starts an op whose completion is kept back, and swaps in spite of it. */
static escrow_status swap_with_a_stuck_op(const char *const *settings, uint64_t *op)
{
	const char *const plain[] = {"test.faults=0", NULL};
	struct escrow_swap_args args = {.flags = ESCROW_SWAP_COMMIT_UNDRAINED,
					.settings = plain,
					.drain_ns = 1000000,
					.close_ns = 50000000};

	hosting_clock = hosting_work_clock;
	pair_make(&pair, 0, settings);
	pair_hold_completions(&pair.mover);
	ck_assert_int_eq(hosting_transfer(pair.mover.host, ESCROW_WRITE, pair.mover.remote,
					  (struct escrow_sge){pair.mover.region, 0, CELL}, op),
			 1);
	pair_swap_begin(&pair, &args);
	return pair_swap_finish(&pair, NULL, NULL);
}

/* A reset is a proof on this device: A closes, the op has ended once, and B has it all. */
START_TEST(with_a_proof_a_closes_and_b_goes_on)
{
	const char *const settings[] = {"test.faults=1", "drain_ms=1", NULL};
	uint64_t op;

	ck_assert_int_eq(swap_with_a_stuck_op(settings, &op), ESCROW_OK);
	ck_assert_uint_eq(pair.mover.kinds[ESCROW_EV_OP_DONE], 1);
	ck_assert_int_eq(escrow_withheld(NULL, 0, NULL), 0);
	pair_check(&pair, 4);
	pair_end(&pair);
}
END_TEST

/* No answer of this device is one: what A had stays away from everybody, B included. */
START_TEST(without_one_the_region_is_withheld_from_b_too)
{
	const char *const settings[] = {"test.faults=1",
					"drain_ms=1",
					"weak.reset=1",
					"weak.dereg=1",
					"weak.dealloc_window=1",
					"weak.destroy=1",
					NULL};
	struct escrow_withheld list[2];
	uint64_t op, bytes;

	ck_assert_int_eq(swap_with_a_stuck_op(settings, &op), ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(escrow_withheld(list, 2, &bytes), 1);
	ck_assert_ptr_eq(list[0].addr, pair.mover.memory);
	ck_assert_uint_eq(bytes, PAIR_BYTES);
	ck_assert_uint_eq(escrow_backend_handle(pair.mover.host, pair.mover.region), 0);
	ck_assert_int_eq(hosting_transfer(pair.mover.host, ESCROW_WRITE, pair.mover.remote,
					  (struct escrow_sge){pair.mover.region, 0, CELL}, NULL),
			 ESCROW_E_STATE);
	ck_assert_int_eq(escrow_borrow_for_write(pair.mover.host, pair.mover.region, 0, CELL),
			 ESCROW_E_BUSY);
	ck_assert_int_eq(pair.mover.freed, 0);
	/* the host engine can end; the memory cannot come back */
	ck_assert_int_ge(escrow_close(pair.mover.host, 0, ESCROW_CLOSE_ABORT), 0);
	hosting_wait(pair.mover.host, ESCROW_EV_QUARANTINED);
	while (escrow_release(pair.mover.host) == ESCROW_E_STATE)
		pair_pump(&pair);
	ck_assert_int_eq(pair.mover.freed, 0);
	ck_assert_int_eq(escrow_withheld(list, 2, &bytes), 1);
	ck_assert_uint_eq(list[0].orphan, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("custody");
	TCase *tcase = tcase_create("mock");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, an_op_never_sees_half_of_what_a_borrower_writes);
	tcase_add_test(tcase, with_a_proof_a_closes_and_b_goes_on);
	tcase_add_test(tcase, without_one_the_region_is_withheld_from_b_too);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
