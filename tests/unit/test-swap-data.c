/* SPDX-License-Identifier: BSD-2-Clause */
/* Swaps of the mock with a living peer: bytes go both ways before, meanwhile and after. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/pair.h"

static struct pair pair;

static struct escrow_host_engine *mover(void)
{
	return pair.mover.host;
}

START_TEST(bytes_go_both_ways_after_a_swap)
{
	struct escrow_swap_args args = {0};
	struct escrow_swap_record last;
	struct escrow_error error = {.size = sizeof(error)};

	pair_make(&pair, _i, NULL);
	pair_check(&pair, 1);
	for (unsigned char i = 0; i < 3; i++) {
		pair_swap_begin(&pair, &args);
		ck_assert_msg(pair_swap_finish(&pair, &last, &error) == ESCROW_OK, "%s",
			      error.text);
		ck_assert_uint_eq(last.step, ESCROW_SWAP_RETIRE);
		pair_check(&pair, (unsigned char)(10 + 10 * i));
	}
	ck_assert_uint_eq(pair.mover.kinds[ESCROW_EV_PEER_DOWN], 0);
	ck_assert_uint_eq(pair.mover.kinds[ESCROW_EV_REGION_RELEASED], 0);
	pair_end(&pair);
}
END_TEST

static uint32_t veto;

static escrow_status fail_at(void *ctx, uint32_t step)
{
	return step == veto ? ESCROW_E_REFUSED : ESCROW_OK;
}

START_TEST(each_step_is_taken_back)
{
	pair_make(&pair, _i, NULL);
	for (veto = ESCROW_SWAP_OPEN; veto <= ESCROW_SWAP_COMMIT; veto++) {
		struct escrow_swap_args args = {.fail = fail_at};
		struct escrow_swap_record last;

		pair_swap_begin(&pair, &args);
		ck_assert_int_eq(pair_swap_finish(&pair, &last, NULL), ESCROW_E_REFUSED);
		ck_assert_uint_eq(last.step, ESCROW_SWAP_OPEN);
		ck_assert_uint_eq(last.outcome, ESCROW_SWAP_TAKEN_BACK);
		ck_assert_int_eq(last.status, ESCROW_OK);
		pair_check(&pair, (unsigned char)(20 + 10 * veto));
	}
	pair_end(&pair);
}
END_TEST

START_TEST(a_dry_run_changes_nothing)
{
	struct escrow_swap_args args = {.flags = ESCROW_SWAP_DRY_RUN};
	uint64_t generation;

	pair_make(&pair, _i, NULL);
	pair_swap_begin(&pair, &args);
	ck_assert_int_eq(pair_swap_finish(&pair, NULL, NULL), ESCROW_OK);
	escrow_current(mover(), &generation);
	ck_assert_uint_eq(generation, 1);
	pair_check(&pair, 3);
	pair_end(&pair);
}
END_TEST

/* H6: when the swap is over, what A had granted is dead: the peer's old remote moves nothing. */
START_TEST(the_old_grants_are_dead_after_a_swap)
{
	struct escrow_swap_args args = {0};
	uint64_t old;
	uint32_t before;
	int32_t n;

	pair_make(&pair, 0, NULL);
	old = pair.still.remote;
	pair_swap_begin(&pair, &args);
	ck_assert_int_eq(pair_swap_finish(&pair, NULL, NULL), ESCROW_OK);
	memset(pair.mover.memory, 0x11, 100);
	memset(pair.still.memory, 0x22, 100);
	before = pair.still.kinds[ESCROW_EV_OP_DONE];
	n = hosting_transfer(pair.still.host, ESCROW_WRITE, old,
			     (struct escrow_sge){pair.still.region, 0, 100}, NULL);
	while (n == 1 && pair.still.kinds[ESCROW_EV_OP_DONE] == before)
		pair_pump(&pair);
	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(pair.mover.memory[i], 0x11);
	pair_check(&pair, 5);
	pair_end(&pair);
}
END_TEST

/* The remote of a peer that is gone, and which B of a dry run had given the number that B gives next. */
START_TEST(the_remote_of_a_lost_peer_moves_nothing_after_a_swap)
{
	struct escrow_swap_args rehearsal = {.flags = ESCROW_SWAP_DRY_RUN}, args = {0};
	uint64_t old;

	pair_make(&pair, _i, NULL);
	old = pair.mover.remote;
	pair_swap_begin(&pair, &rehearsal);
	ck_assert_int_eq(pair_swap_finish(&pair, NULL, NULL), ESCROW_OK);
	ck_assert_int_ge(escrow_disconnect(mover(), pair.mover.peer), 0);
	while (!pair.mover.kinds[ESCROW_EV_PEER_DOWN] || !pair.still.kinds[ESCROW_EV_PEER_DOWN])
		pair_pump(&pair);
	pair_connect(&pair, _i);
	pair_swap_begin(&pair, &args);
	ck_assert_int_eq(pair_swap_finish(&pair, NULL, NULL), ESCROW_OK);
	ck_assert_int_eq(hosting_transfer(mover(), ESCROW_WRITE, old,
					  (struct escrow_sge){pair.mover.region, 0, 8}, NULL),
			 ESCROW_E_PEER_LOST);
	ck_assert_int_eq(escrow_forget_grant(mover(), old), ESCROW_OK);
	pair_check(&pair, 3); /* the other one is still there */
	pair_end(&pair);
}
END_TEST

/* The answer to a drain that was resumed may come any time; with it unpolled the mock refuses another. */
START_TEST(a_drain_of_the_host_is_answered_though_a_swap_is_under_way)
{
	struct escrow_swap_args args = {0};
	struct escrow_error error = {.size = sizeof(error)};

	pair_make(&pair, _i, NULL);
	ck_assert_int_eq(escrow_drain(mover(), 0, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(escrow_resume(mover()), ESCROW_OK);
	pair_swap_begin(&pair, &args);
	ck_assert_msg(pair_swap_finish(&pair, NULL, &error) == ESCROW_OK, "%s", error.text);
	ck_assert_uint_eq(pair.mover.kinds[ESCROW_EV_DRAINED], 1);
	pair_check(&pair, 3);
	pair_end(&pair);
}
END_TEST

START_TEST(a_silent_peer_turns_it_back)
{
	struct escrow_swap_args args = {.peers_ns = 1000000};

	pair_make(&pair, _i, NULL);
	pair.silent = 1;
	pair_swap_begin(&pair, &args);
	ck_assert_int_eq(pair_swap_finish(&pair, NULL, NULL), ESCROW_E_TIMEOUT);
	pair.silent = 0;
	pair_check(&pair, 5);
	pair_end(&pair);
}
END_TEST

/* ---- Under load -------------------------------------------------------------------------------- */
#define WINDOW 32u
#define CELL 256u

struct load {
	_Atomic int stop;
	_Atomic uint32_t busy[WINDOW]; /* cell i has an op under way */
	_Atomic uint64_t sent, done, bad;
	uint64_t seen[WINDOW]; /* the number of the last op of a cell that ended */
};

static struct load load;

/* user: the op's number; cell = number % WINDOW. */
static void load_done(struct pair *p, const struct escrow_event *event)
{
	uint32_t cell = (uint32_t)(event->user % WINDOW);

	if (event->status != ESCROW_OK || event->effect != ESCROW_EFFECT_EXECUTED ||
	    event->custody != ESCROW_CUSTODY_RETURNED || !atomic_load(&load.busy[cell]) ||
	    (load.seen[cell] && event->user != load.seen[cell] + WINDOW) ||
	    memcmp(p->mover.memory + cell * CELL, p->still.memory + cell * CELL, CELL) != 0)
		atomic_fetch_add(&load.bad, 1);
	load.seen[cell] = event->user;
	atomic_fetch_add(&load.done, 1);
	atomic_store(&load.busy[cell], 0);
}

/* Sends numbered cells, each with bytes of its own, as fast as they come back. */
static void *load_send(void *unused)
{
	uint64_t number = WINDOW;

	while (!atomic_load(&load.stop)) {
		uint32_t cell = (uint32_t)(number % WINDOW);
		struct escrow_sge range = {pair.mover.region, cell * CELL, CELL};
		struct escrow_op op = {.user = number,
				       .remote = pair.mover.remote,
				       .remote_offset = cell * CELL,
				       .opcode = ESCROW_WRITE,
				       .nsge = 1,
				       .sge = &range};
		uint64_t id;
		int32_t n;

		if (atomic_load(&load.busy[cell])) {
			sched_yield();
			continue;
		}
		memset(pair.mover.memory + cell * CELL, (int)(number * 31 % 251), CELL);
		atomic_store(&load.busy[cell], 1);
		n = escrow_transfer(mover(), &op, 1, sizeof(op), 0, &id);
		if (n == 1) {
			atomic_fetch_add(&load.sent, 1);
			number++;
			continue;
		}
		atomic_store(&load.busy[cell], 0);
		if (n != ESCROW_E_AGAIN)
			atomic_fetch_add(&load.bad, 1);
		sched_yield();
	}
	return NULL;
}

/* ESCROW_SWAPS: how many; the default is for every day. */
START_TEST(no_op_is_lost_doubled_or_corrupted_under_load)
{
	const char *wanted = getenv("ESCROW_SWAPS");
	int n = wanted ? atoi(wanted) : 20;
	pthread_t sender;

	memset(&load, 0, sizeof(load));
	pair_make(&pair, _i, NULL);
	pair.done = load_done;
	ck_assert_int_eq(pthread_create(&sender, NULL, load_send, NULL), 0);
	for (int i = 0; i < n; i++) {
		struct escrow_swap_args args = {0};
		struct escrow_error error = {.size = sizeof(error)};
		uint64_t before = atomic_load(&load.done);

		pair_swap_begin(&pair, &args);
		ck_assert_msg(pair_swap_finish(&pair, NULL, &error) == ESCROW_OK, "swap %d: %s", i,
			      error.text);
		while (atomic_load(&load.done) < before + WINDOW)
			pair_pump(&pair); /* B really serves */
	}
	atomic_store(&load.stop, 1);
	ck_assert_int_eq(pthread_join(sender, NULL), 0);
	while (atomic_load(&load.done) != atomic_load(&load.sent))
		pair_pump(&pair);
	ck_assert_uint_eq(atomic_load(&load.bad), 0);
	ck_assert_uint_ge(atomic_load(&load.sent), (uint64_t)n * WINDOW);
	pair.done = NULL;
	pair_check(&pair, 9);
	pair_end(&pair);
}
END_TEST

/* A has an event at every poll, and each takes one: B's must be told all the same. */
START_TEST(a_busy_generation_does_not_starve_the_next)
{
	pthread_t sender;
	struct escrow_swap_args args = {0};
	struct escrow_error error = {.size = sizeof(error)};

	memset(&load, 0, sizeof(load));
	pair_make(&pair, 0, NULL);
	pair.batch = 1;
	pair.done = load_done;
	ck_assert_int_eq(pthread_create(&sender, NULL, load_send, NULL), 0);
	while (atomic_load(&load.done) < WINDOW)
		pair_pump(&pair);
	pair_swap_begin(&pair, &args);
	ck_assert_msg(pair_swap_finish(&pair, NULL, &error) == ESCROW_OK, "%s", error.text);
	atomic_store(&load.stop, 1);
	ck_assert_int_eq(pthread_join(sender, NULL), 0);
	while (atomic_load(&load.done) != atomic_load(&load.sent))
		pair_pump(&pair);
	ck_assert_uint_eq(atomic_load(&load.bad), 0);
	pair.done = NULL;
	pair_end(&pair);
}
END_TEST

/* ---- Waiting ----------------------------------------------------------------------------------- */
/* A has no descriptor: it is polled till its end, and what it left in quarantine keeps nobody from waiting for B. */
START_TEST(one_without_a_descriptor_is_left)
{
	static const char *const no_proof[] = {"events=0", "drain_ms=1", "weak.dereg=1", NULL};
	struct escrow_swap_args args = {.close_ns = 1000000};
	uint64_t generation = 1;

	hosting_clock = hosting_work_clock;
	pair_make(&pair, 0, no_proof);
	hosting_clock = NULL;
	ck_assert_int_eq(escrow_arm(mover()), ESCROW_E_UNSUPPORTED);
	pair_swap_begin(&pair, &args);
	while (escrow_swap_advance(pair.swap, NULL) == ESCROW_IN_PROGRESS) {
		escrow_current(mover(), &generation);
		ck_assert_int_eq(escrow_arm(mover()),
				 generation == 1 ? ESCROW_E_UNSUPPORTED : ESCROW_EVENTS_PENDING);
		pair_pump(&pair);
	}
	ck_assert_uint_eq(generation, 2);
	ck_assert_int_eq(escrow_swap_free(pair.swap), ESCROW_OK);
	pair.swap = NULL;
	for (int i = 0; i < 100; i++)
		pair_pump(&pair);
	ck_assert_int_eq(escrow_arm(mover()), ESCROW_OK);
	ck_assert_int_ge(escrow_close(mover(), 0, ESCROW_CLOSE_ABORT), 0);
	ck_assert_int_eq(hosting_wait(mover(), ESCROW_EV_QUARANTINED).object, 0);
	ck_assert_int_eq(escrow_release(mover()), ESCROW_OK);
	hosting_close(pair.still.host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("swap-data");
	TCase *tcase = tcase_create("mock");

	/* _i: whether the mover is the end that was invited */
	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, bytes_go_both_ways_after_a_swap, 0, 2);
	tcase_add_loop_test(tcase, each_step_is_taken_back, 0, 2);
	tcase_add_loop_test(tcase, a_dry_run_changes_nothing, 0, 2);
	tcase_add_test(tcase, the_old_grants_are_dead_after_a_swap);
	tcase_add_loop_test(tcase, the_remote_of_a_lost_peer_moves_nothing_after_a_swap, 0, 2);
	tcase_add_loop_test(tcase, a_drain_of_the_host_is_answered_though_a_swap_is_under_way, 0,
			    2);
	tcase_add_loop_test(tcase, a_silent_peer_turns_it_back, 0, 2);
	tcase_add_loop_test(tcase, no_op_is_lost_doubled_or_corrupted_under_load, 0, 2);
	tcase_add_test(tcase, a_busy_generation_does_not_starve_the_next);
	tcase_add_test(tcase, one_without_a_descriptor_is_left);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
