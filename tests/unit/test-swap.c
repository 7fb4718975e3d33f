/* SPDX-License-Identifier: BSD-2-Clause */
/* The course of a swap on the fake backend: each step, each way back, and what is kept. */
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/swapping.h"

START_TEST(a_swap_takes_its_ten_steps)
{
	uint64_t fd = (uint64_t)escrow_event_fd(sw.host);
	struct escrow_quota used = {.size = sizeof(used)};

	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	ck_assert_int_eq(swapping_take_records(), 10);
	for (uint32_t i = 0; i < 10; i++) {
		ck_assert_uint_eq(sw.records[i].step, i + 1);
		ck_assert_uint_eq(sw.records[i].outcome, ESCROW_SWAP_DONE);
		ck_assert_uint_ge(sw.records[i].end_ns, sw.records[i].start_ns);
	}
	ck_assert_str_eq(sw.records[2].text, "1 regions");
	ck_assert_str_eq(sw.records[3].text, "1 peers, 1 grants, 1 remotes");
	ck_assert_uint_eq(swapping_generation(), 2);
	ck_assert_uint_eq(swapping_engines(), 1); /* A was released */
	ck_assert_uint_eq((uint64_t)escrow_event_fd(sw.host), fd);
	ck_assert_int_eq(sw.freed, 0);
	for (uint32_t kind = ESCROW_CARRY_WANT_INVITATION; kind <= ESCROW_CARRY_COMMITTED; kind++)
		ck_assert_uint_eq(sw.carried[kind], 1);
	ck_assert_uint_eq(sw.carried[ESCROW_CARRY_WITHDRAWN], 0);
	escrow_quota_get(NULL, &used);
	ck_assert_uint_eq(used.bytes, SWAPPING_SIZE);
	ck_assert_uint_eq(used.grants, 1);
	swapping_assert_serves();
	hosting_close(sw.host);
	ck_assert_int_eq(sw.freed, 1);
	escrow_quota_get(NULL, &used);
	ck_assert_uint_eq(used.bytes, 0);
	ck_assert_uint_eq(used.grants, 0);
}
END_TEST

START_TEST(it_can_be_done_again_and_again)
{
	for (uint64_t i = 2; i < 40; i++) {
		swapping_begin(0);
		ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
		swapping_take_records();
		ck_assert_uint_eq(swapping_generation(), i);
		swapping_assert_serves();
	}
	ck_assert_uint_eq(swapping_engines(), 1);
	hosting_close(sw.host);
}
END_TEST

/* Every step up to COMMIT, made to fail after its work. */
START_TEST(a_step_that_fails_is_taken_back)
{
	struct escrow_error error = {.size = sizeof(error)};
	uint32_t step = (uint32_t)_i;
	int32_t n;

	sw.veto = step;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(&error), ESCROW_E_REFUSED);
	ck_assert_str_eq(error.text, "made to fail by the test");
	n = swapping_take_records();
	ck_assert_int_eq(n, 2 * (int32_t)step);
	for (uint32_t i = 0; i < step; i++) {
		ck_assert_uint_eq(sw.records[i].outcome,
				  i + 1 < step ? ESCROW_SWAP_DONE : ESCROW_SWAP_FAILED);
		ck_assert_uint_eq(sw.records[step + i].step, step - i);
		ck_assert_uint_eq(sw.records[step + i].outcome, ESCROW_SWAP_TAKEN_BACK);
	}
	ck_assert_uint_eq(swapping_generation(), 1);
	ck_assert_uint_eq(swapping_engines(), 1);
	ck_assert_int_eq(sw.freed, 0);
	swapping_assert_serves();
	/* nothing is in the way of the next one */
	sw.veto = 0;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	swapping_assert_serves();
	hosting_close(sw.host);
	ck_assert_int_eq(sw.freed, 1);
}
END_TEST

static struct escrow_quota used_by_peer(void)
{
	struct escrow_quota q = {.size = sizeof(q)};

	ck_assert_int_eq(escrow_quota_get_peer("fake", NULL, &q), ESCROW_OK);
	return q;
}

/* A peer is one while it is in two backends: what its name may have is enough for a swap, and is not given back by one. */
START_TEST(a_name_has_a_peer_once)
{
	struct escrow_quota most;

	memset(&most, 0xff, sizeof(most));
	most.size = sizeof(most);
	most.peers = 1;
	ck_assert_int_eq(escrow_quota_set_peer("fake", &most), ESCROW_OK);
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	ck_assert_uint_eq(swapping_generation(), 2);
	ck_assert_uint_eq(used_by_peer().peers, 1);
	hosting_close(sw.host);
	ck_assert_uint_eq(used_by_peer().peers, 0);
}
END_TEST

START_TEST(from_commit_on_there_is_only_forward)
{
	sw.veto = (uint32_t)_i;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_REFUSED);
	ck_assert_int_eq(swapping_take_records(), 10);
	ck_assert_uint_eq(sw.records[sw.veto - 1].outcome, ESCROW_SWAP_FAILED);
	ck_assert_uint_eq(swapping_generation(), 2);
	ck_assert_uint_eq(swapping_engines(), 1);
	swapping_assert_serves();
	hosting_close(sw.host);
}
END_TEST

START_TEST(a_dry_run_ends_after_the_peers)
{
	swapping_begin(ESCROW_SWAP_DRY_RUN);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	ck_assert_int_eq(swapping_take_records(), 8);
	ck_assert_uint_eq(sw.records[3].outcome, ESCROW_SWAP_DONE);
	ck_assert_uint_eq(sw.records[4].step, ESCROW_SWAP_PEERS);
	ck_assert_uint_eq(sw.records[7].step, ESCROW_SWAP_OPEN);
	ck_assert_uint_eq(sw.records[7].outcome, ESCROW_SWAP_TAKEN_BACK);
	ck_assert_uint_eq(sw.carried[ESCROW_CARRY_WITHDRAWN], 1);
	ck_assert_uint_eq(swapping_generation(), 1);
	ck_assert_uint_eq(swapping_engines(), 1);
	swapping_assert_serves();
	hosting_close(sw.host);
}
END_TEST

static void lose_the_peer(void)
{
	const struct escrow_ops *ops;
	struct escrow_engine *engine = escrow_backend_engine(sw.host, &ops);

	ops->disconnect(engine, 7, 0);
	hosting_wait(sw.host, ESCROW_EV_PEER_DOWN);
}

/* What a B that was taken back had given a handle means nothing to the next B. */
START_TEST(what_has_no_successor_has_no_handle_in_b)
{
	sw.veto = (uint32_t)_i;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_REFUSED);
	swapping_take_records();
	lose_the_peer();
	sw.veto = 0;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	ck_assert_uint_eq(escrow_backend_handle(sw.host, sw.remote), 0);
	ck_assert_int_eq(hosting_transfer(sw.host, ESCROW_WRITE, sw.remote,
					  (struct escrow_sge){sw.region, 0, 8}, NULL),
			 ESCROW_E_PEER_LOST);
	ck_assert_int_eq(escrow_forget_grant(sw.host, sw.remote), ESCROW_OK);
	ck_assert_int_eq(escrow_forget_grant(sw.host, sw.remote), ESCROW_E_INVALID);
	hosting_close(sw.host);
}
END_TEST

START_TEST(settings_of_b_are_checked)
{
	const char *settings[] = {"shape=round", NULL};
	struct escrow_error error = {.size = sizeof(error)};

	ck_assert_int_eq(swapping_begin_with(0, settings), ESCROW_OK);
	ck_assert_int_eq(swapping_finish(&error), ESCROW_E_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "unknown key shape"));
	swapping_take_records();
	swapping_assert_serves();
	hosting_close(sw.host);
}
END_TEST

START_TEST(an_op_that_does_not_end_turns_the_swap_back)
{
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t op;

	ck_assert_int_eq(hosting_transfer(sw.host, ESCROW_READ, sw.remote,
					  (struct escrow_sge){sw.region, 0, 8}, &op),
			 1);
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(&error), ESCROW_E_TIMEOUT);
	ck_assert_str_eq(error.text, "1 ops of A are outstanding");
	swapping_take_records();
	ck_assert_uint_eq(swapping_generation(), 1);
	hosting_finish(sw.host, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(hosting_wait(sw.host, ESCROW_EV_OP_DONE).object, op);
	swapping_assert_serves();
	hosting_close(sw.host);
}
END_TEST

/* The operator commits anyway: A is quarantined, its regions are withheld and leave B. */
START_TEST(regions_of_a_quarantined_a_are_removed_from_b)
{
	struct escrow_engine *old, *engine;
	const struct fake_control *fake = hosting_fake(sw.host, &old);
	struct escrow_withheld list[2];
	uint64_t op, bytes, second;
	int second_freed = 0;

	ck_assert_int_eq(hosting_transfer(sw.host, ESCROW_READ, sw.remote,
					  (struct escrow_sge){sw.region, 0, 8}, &op),
			 1);
	fake->stick(old, 1);
	swapping_begin(ESCROW_SWAP_COMMIT_UNDRAINED);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(swapping_take_records(), 10);
	ck_assert_uint_eq(sw.records[7].outcome, ESCROW_SWAP_DONE);
	ck_assert_uint_eq(swapping_generation(), 2);
	ck_assert_uint_eq(swapping_engines(), 2);
	fake = hosting_fake(sw.host, &engine);
	ck_assert_ptr_ne(engine, old);
	ck_assert_uint_eq(fake->regions(engine), 0);
	ck_assert_int_eq(escrow_withheld(list, 2, &bytes), 1);
	ck_assert_ptr_eq(list[0].addr, sw.memory);
	ck_assert_int_eq(hosting_transfer(sw.host, ESCROW_READ, sw.remote,
					  (struct escrow_sge){sw.region, 0, 8}, NULL),
			 ESCROW_E_STATE);
	ck_assert_int_eq(escrow_borrow_for_read(sw.host, sw.region, 0, 1), ESCROW_E_BUSY);
	/* B serves what comes new */
	second = hosting_register(sw.host, sw.memory + 8, 8, &second_freed);
	ck_assert_int_eq(hosting_transfer(sw.host, ESCROW_READ, sw.remote,
					  (struct escrow_sge){second, 0, 8}, NULL),
			 1);
	hosting_finish(sw.host, ESCROW_CUSTODY_RETURNED);
	hosting_wait(sw.host, ESCROW_EV_OP_DONE);
	/* the late receipts of A: its op, then its region, and the memory is the host's again */
	ck_assert_int_eq(fake->finish(old, ESCROW_CUSTODY_RETURNED), 1);
	ck_assert_uint_eq(hosting_wait(sw.host, ESCROW_EV_OP_DONE).object, op);
	fake->unstick(old);
	ck_assert_uint_eq(hosting_wait(sw.host, ESCROW_EV_REGION_RELEASED).object, sw.region);
	ck_assert_int_eq(sw.freed, 1);
	ck_assert_int_eq(escrow_withheld(list, 2, NULL), 0);
	hosting_expect_none(sw.host); /* A's own end is not the host's affair */
	/* the next swap clears it away */
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	ck_assert_uint_eq(swapping_engines(), 1);
	hosting_close(sw.host);
	ck_assert_int_eq(second_freed, 1);
	ck_assert_int_eq(sw.freed, 1);
}
END_TEST

/* Q38, B01, field-24 */
START_TEST(a_quarantined_generation_outlives_the_host_engine)
{
	struct escrow_engine *old;
	struct escrow_withheld list[2];
	struct escrow_event event;

	hosting_fake(sw.host, &old)->stick(old, 1);
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_UNQUIESCED);
	swapping_take_records();
	ck_assert_int_ge(escrow_close(sw.host, 0, ESCROW_CLOSE_GRACEFUL), 0);
	event = hosting_wait(sw.host, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(event.object, 0);
	ck_assert_uint_eq(event.bytes, SWAPPING_SIZE);
	ck_assert_int_eq(escrow_release(sw.host), ESCROW_OK);
	ck_assert_int_eq(escrow_withheld(list, 2, NULL), 1);
	ck_assert_uint_eq(list[0].orphan, 1);
	ck_assert_int_eq(sw.freed, 0);
}
END_TEST

START_TEST(generations_are_bounded)
{
	for (int i = 1; i < 32; i++) {
		struct escrow_engine *engine;

		hosting_register(sw.host, sw.memory, 1, NULL);
		hosting_fake(sw.host, &engine)->stick(engine, 1);
		swapping_begin(0);
		ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_UNQUIESCED);
		swapping_take_records();
	}
	ck_assert_uint_eq(swapping_engines(), 32);
	ck_assert_int_eq(swapping_begin_with(0, NULL), ESCROW_E_LIMIT);
	ck_assert_uint_eq(swapping_generation(), 32);
}
END_TEST

START_TEST(control_is_refused_meanwhile)
{
	struct escrow_region args = {.size = sizeof(args),
				     .addr = sw.memory,
				     .length = 1,
				     .memory_kind = ESCROW_MEMORY_HOST,
				     .dmabuf_fd = -1};
	uint64_t handle;

	swapping_begin(0);
	ck_assert_int_eq(swapping_begin_with(0, NULL), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_swap_free(sw.under_way), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_register(sw.host, &args, &handle, NULL), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_deregister(sw.host, sw.region), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_revoke(sw.host, sw.grant), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_forget_grant(sw.host, sw.remote), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_quiesce(sw.host), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_close(sw.host, 0, 0), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_borrow_for_read(sw.host, sw.region, 0, 1), ESCROW_OK);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	ck_assert_int_eq(escrow_swap_supply(sw.under_way, ESCROW_CARRY_STOP, sw.peer, NULL, 0),
			 ESCROW_E_STATE);
	swapping_take_records();
	/* a borrow is the host's own affair: it goes through a swap */
	ck_assert_int_eq(hosting_transfer(sw.host, ESCROW_READ, sw.remote,
					  (struct escrow_sge){sw.region, 0, 8}, NULL),
			 ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_return(sw.host, sw.region, 0, 1), ESCROW_OK);
	hosting_close(sw.host);
}
END_TEST

START_TEST(silent_peers_do_not_hold_it_up)
{
	struct escrow_error error = {.size = sizeof(error)};

	/* before COMMIT a peer that is not there in B is a reason to turn back */
	sw.answer = 0;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(&error), ESCROW_E_TIMEOUT);
	swapping_take_records();
	ck_assert_uint_eq(swapping_generation(), 1);
	swapping_assert_serves();
	hosting_close(sw.host);
}
END_TEST

/* A peer that says it twice: the first time counts. */
START_TEST(an_answer_is_taken_once)
{
	const uint32_t kind = ESCROW_CARRY_WANT_INVITATION;

	sw.answer = 0;
	swapping_begin(0);
	ck_assert_int_eq(escrow_swap_advance(sw.under_way, NULL), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(escrow_swap_supply(sw.under_way, kind, sw.peer, "x", 1), ESCROW_OK);
	ck_assert_int_eq(escrow_swap_supply(sw.under_way, kind, sw.peer, "x", 1), ESCROW_E_INVALID);
	sw.answer = 1;
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	swapping_assert_serves();
	hosting_close(sw.host);
}
END_TEST

START_TEST(a_peer_that_is_lost_turns_it_back)
{
	struct escrow_engine *engine;
	const struct escrow_ops *ops;
	struct escrow_event event;

	sw.answer = 0;
	swapping_begin(0);
	ck_assert_int_eq(escrow_swap_advance(sw.under_way, NULL), ESCROW_IN_PROGRESS);
	engine = escrow_backend_engine(sw.host, &ops);
	ops->disconnect(engine, 7, 0);
	event = hosting_wait(sw.host, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(event.object, sw.peer);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_PEER_LOST);
	swapping_take_records();
	ck_assert_uint_eq(swapping_generation(), 1);
	ck_assert_uint_eq(swapping_engines(), 1);
	hosting_close(sw.host);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	struct escrow_swap_args args = {.size = sizeof(args)};

	ck_assert_int_eq(escrow_swap_begin(sw.host, &args, &sw.under_way, NULL), ESCROW_E_INVALID);
	args.module = sw.module;
	args.flags = 64;
	ck_assert_int_eq(escrow_swap_begin(sw.host, &args, &sw.under_way, NULL),
			 ESCROW_E_UNSUPPORTED);
	args.flags = 0;
	ck_assert_int_eq(escrow_swap_begin(sw.host, &args, NULL, NULL), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_quiesce(sw.host), ESCROW_OK);
	ck_assert_int_eq(escrow_swap_begin(sw.host, &args, &sw.under_way, NULL), ESCROW_E_STATE);
	ck_assert_int_eq(escrow_resume(sw.host), ESCROW_OK);
	/* peers, and nobody to carry */
	ck_assert_int_eq(escrow_swap_begin(sw.host, &args, &sw.under_way, NULL), ESCROW_OK);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_swap_free(sw.under_way), ESCROW_OK);
	ck_assert_int_eq(escrow_swap_free(NULL), ESCROW_OK);
	ck_assert_str_eq(escrow_swap_step_name(ESCROW_SWAP_DRAIN), "drain");
	ck_assert_str_eq(escrow_swap_step_name(99), "?");
	swapping_assert_serves();
	hosting_close(sw.host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("swap");
	TCase *tcase = tcase_create("course");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, swapping_setup, NULL);
	tcase_add_test(tcase, a_swap_takes_its_ten_steps);
	tcase_add_test(tcase, it_can_be_done_again_and_again);
	tcase_add_loop_test(tcase, a_step_that_fails_is_taken_back, ESCROW_SWAP_OPEN,
			    ESCROW_SWAP_COMMIT + 1);
	tcase_add_test(tcase, a_name_has_a_peer_once);
	tcase_add_loop_test(tcase, from_commit_on_there_is_only_forward, ESCROW_SWAP_CLOSE,
			    ESCROW_SWAP_RETIRE + 1);
	tcase_add_test(tcase, a_dry_run_ends_after_the_peers);
	tcase_add_loop_test(tcase, what_has_no_successor_has_no_handle_in_b, ESCROW_SWAP_OPEN,
			    ESCROW_SWAP_COMMIT + 1);
	tcase_add_test(tcase, settings_of_b_are_checked);
	tcase_add_test(tcase, an_op_that_does_not_end_turns_the_swap_back);
	tcase_add_test(tcase, regions_of_a_quarantined_a_are_removed_from_b);
	tcase_add_test(tcase, a_quarantined_generation_outlives_the_host_engine);
	tcase_add_test(tcase, generations_are_bounded);
	tcase_add_test(tcase, control_is_refused_meanwhile);
	tcase_add_test(tcase, silent_peers_do_not_hold_it_up);
	tcase_add_test(tcase, an_answer_is_taken_once);
	tcase_add_test(tcase, a_peer_that_is_lost_turns_it_back);
	tcase_add_test(tcase, bad_arguments_are_refused);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
