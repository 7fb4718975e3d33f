/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every call that any thread may make, beside swaps of the mock; and the child of a fork.  Not one of the threaded tests that the
 * thread sanitizer runs: it does not see GLib's mutexes, so that all they protect would be a race.
 */
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/testing.h"
#include "tests/unit/pair.h"

static struct pair pair;
static _Atomic int stop;
static _Atomic uint64_t rounds, bad;

#define HALF (PAIR_BYTES / 2) /* no op touches the other half */

static void count_engine(void *ctx, const struct escrow_ledger_engine *entry)
{
	struct escrow_charge charges[32];

	if (entry->engine &&
	    entry->ops_table->charges(entry->engine, charges, 32, sizeof(charges[0])) > 0)
		(*(int *)ctx)++;
}

/* One round of every [any] call on the mover; whether each answered as it would in peace. */
static bool look_once(uint32_t round)
{
	struct escrow_host_engine *host = pair.mover.host;
	struct escrow_load_args args = {.size = sizeof(args), .name = "mock"};
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_module_info info = {.size = sizeof(info)};
	struct escrow_peer_info peer = {.size = sizeof(peer)};
	uint64_t at = HALF + round % 64 * 256, cursor = 0, generation = 0;
	struct escrow_record records[4];
	struct escrow_module *module;
	int engines = 0;
	bool good = true;

	good &= escrow_query(host, &limits) == ESCROW_OK && limits.max_ops > 0;
	good &= escrow_current(host, &generation) == pair.module && generation > 0;
	good &= escrow_borrow_for_write(host, pair.mover.region, at, 64) == ESCROW_OK;
	good &= escrow_borrow_for_read(host, pair.mover.region, at, 64) == ESCROW_E_BUSY;
	pair.mover.memory[at] = (unsigned char)round;
	good &= escrow_return(host, pair.mover.region, at, 64) == ESCROW_OK;
	good &= escrow_backend_handle(host, pair.mover.region) != 0;
	good &= escrow_cancel(host, 1) == ESCROW_E_INVALID;
	good &= escrow_records(host, &cursor, records, 4) > 0;
	good &= escrow_peer_info(host, pair.mover.peer, &peer) == ESCROW_OK;
	escrow_ledger(count_engine, &engines);
	good &= engines >= 2 && escrow_withheld(NULL, 0, NULL) == 0;
	good &= escrow_load(&args, &module, NULL) == ESCROW_OK && module == pair.module;
	good &= escrow_module_info(module, &info) == ESCROW_OK && info.engines >= 2;
	escrow_module_unref(module);
	return good;
}

static void *look(void *unused)
{
	for (uint32_t round = 0; !atomic_load(&stop); round++) {
		if (!look_once(round))
			atomic_fetch_add(&bad, 1);
		atomic_fetch_add(&rounds, 1);
	}
	return NULL;
}

START_TEST(whoever_looks_meanwhile_sees_a_whole_engine)
{
	struct escrow_swap_args args = {0};
	struct escrow_error error = {.size = sizeof(error)};
	pthread_t looker;

	pair_make(&pair, 0, NULL);
	ck_assert_int_eq(pthread_create(&looker, NULL, look, NULL), 0);
	for (int i = 0; i < 5; i++) {
		uint64_t before = atomic_load(&rounds);

		pair_swap_begin(&pair, &args);
		ck_assert_msg(pair_swap_finish(&pair, NULL, &error) == ESCROW_OK, "%s", error.text);
		while (atomic_load(&rounds) < before + 3)
			pair_pump(&pair);
	}
	atomic_store(&stop, 1);
	ck_assert_int_eq(pthread_join(looker, NULL), 0);
	ck_assert_uint_eq(atomic_load(&bad), 0);
	pair_check(&pair, 9);
	pair_end(&pair);
}
END_TEST

/* In the child of a fork nothing native is touched, and the parent does not notice. */
static int child_is_refused(void)
{
	struct escrow_host_engine *host = pair.mover.host;
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_invite_args invite = {.size = sizeof(invite), .flags = ESCROW_INVITE_ANY};
	struct escrow_region more = {.size = sizeof(more),
				     .addr = pair.mover.memory,
				     .length = 1,
				     .memory_kind = ESCROW_MEMORY_HOST,
				     .dmabuf_fd = -1};
	struct escrow_event event;
	uint64_t region, len = 0;

	return escrow_query(host, &limits) == ESCROW_E_STATE &&
	       escrow_register(host, &more, &region, NULL) == ESCROW_E_STATE &&
	       escrow_invite(host, &invite, NULL, &len) == ESCROW_E_STATE &&
	       hosting_transfer(host, ESCROW_WRITE, pair.mover.remote,
				(struct escrow_sge){pair.mover.region, 0, 64},
				NULL) == ESCROW_E_STATE &&
	       escrow_poll(host, &event, 1) == ESCROW_E_STATE &&
	       escrow_arm(host) == ESCROW_E_STATE &&
	       escrow_close(host, 0, ESCROW_CLOSE_ABORT) == ESCROW_E_STATE &&
	       escrow_release(host) == ESCROW_E_STATE;
}

START_TEST(a_child_of_fork_is_refused)
{
	int status;
	pid_t pid;

	pair_make(&pair, 0, NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(child_is_refused() ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	pair_check(&pair, 3);
	pair_end(&pair);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("beside");
	TCase *tcase = tcase_create("mock");

	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, whoever_looks_meanwhile_sees_a_whole_engine);
	tcase_add_test(tcase, a_child_of_fork_is_refused);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
