/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of places for ops (plugin/lend.h): several threads take and give, and no place is ever two ops'. */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "plugin/lend.h"
#include "tests/lib/testing.h"

#define PLACES 8u
#define THREADS 4u
#define ROUNDS 20000u
#define MOST 4u

static struct lend lend;
static _Atomic uint32_t owner[PLACES]; /* a thread, from 1; 0: none */
static _Atomic uint32_t wrong;

static void setup(void)
{
	ck_assert(lend_init(&lend, PLACES, 1));
}

static void teardown(void)
{
	lend_fini(&lend);
}

static uint32_t place_of(const struct lend_op *op)
{
	return (uint32_t)(op - lend.ops);
}

/* One, by the call for one, or so many at once. */
static uint32_t take(struct lend_op **ops, uint32_t n)
{
	if (n > 1)
		return lend_take_some(&lend, ops, n);
	ops[0] = lend_take(&lend);
	return ops[0] != NULL;
}

/* Each has two holders; the last of them leaves here. */
static void give(struct lend_op **ops, uint32_t n, bool together)
{
	for (uint32_t i = 0; i < n; i++) {
		wrong += lend_left(ops[i]); /* of the two the first */
		if (!together) {
			wrong += !lend_drop(&lend, ops[i]);
			continue;
		}
		wrong += !lend_left(ops[i]);
		if (i)
			lend_link(&lend, ops[i], ops[i - 1]);
	}
	if (together && n)
		lend_give(&lend, ops[n - 1], ops[0]);
}

static void *take_and_give(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg, n;
	struct lend_op *ops[MOST];

	for (uint32_t round = 0; round < ROUNDS; round++) {
		n = take(ops, (round * me) % MOST + 1);
		for (uint32_t i = 0; i < n; i++) {
			wrong += atomic_exchange(&owner[place_of(ops[i])], me) != 0;
			wrong += lend_find(&lend, atomic_load(&ops[i]->id)) != ops[i];
		}
		for (uint32_t i = 0; i < n; i++)
			wrong += atomic_exchange(&owner[place_of(ops[i])], 0) != me;
		give(ops, n, round & 1);
	}
	return NULL;
}

START_TEST(no_place_is_two_ops)
{
	pthread_t threads[THREADS];
	struct lend_op *all[PLACES + 1];
	bool seen[PLACES] = {false};

	for (uint32_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, take_and_give,
						(void *)(uintptr_t)(i + 1)),
				 0);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(wrong, 0);
	/* All are there again, each once. */
	ck_assert_uint_eq(lend_used(&lend), 0);
	ck_assert_uint_eq(lend_take_some(&lend, all, PLACES + 1), PLACES);
	for (uint32_t i = 0; i < PLACES; i++) {
		ck_assert(!seen[place_of(all[i])]);
		seen[place_of(all[i])] = true;
	}
	ck_assert(!lend_has_room(&lend));
	ck_assert_ptr_null(lend_take(&lend));
	ck_assert_uint_eq(lend_used(&lend), PLACES);
}
END_TEST

/* ---- Interrupted --------------------------------------------------------------------------------- */
#define INTERRUPTIONS 2000u

static struct lend_op *kept; /* by the handler, to the next one */
static _Atomic uint32_t interruptions;

static void hold(struct lend_op *op, uint32_t me)
{
	wrong += atomic_exchange(&owner[place_of(op)], me) != 0;
}

static void let(struct lend_op *op, uint32_t me)
{
	wrong += atomic_exchange(&owner[place_of(op)], 0) != me;
	give(&op, 1, false);
}

/*
 * The first place of the list is again the one that whoever is interrupted may have seen there, and another is behind it:
 * nothing but the tag says that the list has changed.
 */
static void meddle(int signal)
{
	struct lend_op *two[2];

	(void)signal;
	interruptions++;
	if (kept) {
		let(kept, 2);
		kept = NULL;
	} else if (lend_take_some(&lend, two, 2) == 2) {
		hold(two[0], 2);
		hold(two[1], 2);
		let(two[0], 2);
		kept = two[1];
	} else {
		wrong++;
	}
}

START_TEST(a_list_that_looks_unchanged_is_not_taken_for_it)
{
	const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = meddle};
	struct lend_op *ops[2];
	uint32_t n;

	ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
	for (uint32_t round = 0; interruptions < INTERRUPTIONS; round++) {
		n = take(ops, (round & 1) + 1);
		for (uint32_t i = 0; i < n; i++)
			hold(ops[i], 1);
		for (uint32_t i = 0; i < n; i++)
			let(ops[i], 1);
	}
	ck_assert_int_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
	if (kept)
		let(kept, 2);
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_eq(lend_used(&lend), 0);
}
END_TEST

/* What is taken together has ids and words of its own, as what is taken alone. */
START_TEST(each_has_an_id_of_its_own)
{
	struct lend_op *ops[3], *again[3];
	uint64_t ids[3];

	ck_assert_uint_eq(lend_take_some(&lend, ops, 3), 3);
	for (uint32_t i = 0; i < 3; i++) {
		ids[i] = atomic_load(&ops[i]->id);
		ck_assert_uint_ne(ids[i], 0);
		ck_assert_ptr_eq(lend_find(&lend, ids[i]), ops[i]);
		lend_taken(ops[i], 7);
	}
	give(ops, 3, true);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_ptr_null(lend_find(&lend, ids[i]));
	ck_assert_uint_eq(lend_take_some(&lend, again, 3), 3);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(atomic_load(&again[i]->backend_op), 0);
		ck_assert_uint_ne(atomic_load(&again[i]->id), ids[0]);
		ck_assert_ptr_eq(again[i], ops[2 - i]); /* the last one that came back first */
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lend");
	TCase *tcase = tcase_create("places");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, no_place_is_two_ops);
	tcase_add_test(tcase, a_list_that_looks_unchanged_is_not_taken_for_it);
	tcase_add_test(tcase, each_has_an_id_of_its_own);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
