/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A generation that answers nothing any more, or late, or without a proof: swaps, regions and the host engine come to
 * their end all the same, and a region that was only kept is used again.
 */
#include <poll.h>

#include "tests/lib/testing.h"
#include "tests/unit/swapping.h"

static struct escrow_engine *old, *prepared;
static const struct fake_control *fake;

static void setup(void)
{
	swapping_setup();
	fake = hosting_fake(sw.host, &old);
	prepared = NULL;
}

static void find_b(void *ctx, const struct escrow_ledger_engine *entry)
{
	if (!entry->current)
		prepared = entry->engine;
}

static void b_falls_silent(void)
{
	escrow_ledger(find_b, NULL);
	ck_assert_ptr_nonnull(prepared);
	fake->mute(prepared, 1);
}

static void give_b_up(void (*hook)(void))
{
	sw.step = sw.veto = ESCROW_SWAP_REGISTER;
	sw.at_step = hook;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_REFUSED);
	swapping_take_records();
	sw.step = sw.veto = 0;
	ck_assert_int_eq(swapping_begin_with(0, NULL), ESCROW_E_BUSY);
	swapping_assert_serves();
}

/* ---- B, which was taken back ------------------------------------------------------------------- */
/* A lets go of the region; whether B does is not known. */
START_TEST(a_region_that_is_given_back_has_its_answer)
{
	struct escrow_event event;

	give_b_up(b_falls_silent);
	ck_assert_int_eq(escrow_deregister(sw.host, sw.region), ESCROW_IN_PROGRESS);
	event = hosting_expect(sw.host, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(event.object, sw.region);
	ck_assert_uint_eq(event.user, 77);
	ck_assert_int_eq(event.status, ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(event.bytes, SWAPPING_SIZE);
	ck_assert_int_eq(escrow_withheld(NULL, 0, NULL), 1);
	ck_assert_int_eq(sw.freed, 0);
	/* it was only late */
	fake->mute(prepared, 0);
	ck_assert_uint_eq(hosting_wait(sw.host, ESCROW_EV_REGION_RELEASED).object, sw.region);
	ck_assert_int_eq(sw.freed, 1);
	ck_assert_int_eq(escrow_withheld(NULL, 0, NULL), 0);
	hosting_expect_none(sw.host);
	hosting_close(sw.host);
}
END_TEST

static void close_with_a_silent_b(void)
{
	struct escrow_event event;

	give_b_up(b_falls_silent);
	ck_assert_int_eq(escrow_close(sw.host, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	event = hosting_wait(sw.host, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(event.object, sw.region);
	event = hosting_wait(sw.host, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(event.object, 0);
	ck_assert_int_eq(event.status, ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(event.bytes, SWAPPING_SIZE);
	hosting_expect_none(sw.host);
}

START_TEST(the_host_engine_can_be_closed)
{
	struct escrow_withheld list[1];

	close_with_a_silent_b();
	ck_assert_int_eq(escrow_release(sw.host), ESCROW_OK);
	ck_assert_int_eq(escrow_withheld(list, 1, NULL), 1);
	ck_assert_uint_eq(list[0].orphan, 1);
	ck_assert_int_eq(sw.freed, 0);
	ck_assert_uint_eq(swapping_engines(), 1); /* it pins its object */
}
END_TEST

START_TEST(one_that_was_only_late_ends_closed)
{
	close_with_a_silent_b();
	fake->mute(prepared, 0);
	ck_assert_uint_eq(hosting_expect(sw.host, ESCROW_EV_REGION_RELEASED).object, sw.region);
	hosting_expect(sw.host, ESCROW_EV_CLOSED);
	hosting_expect_none(sw.host);
	ck_assert_int_eq(sw.freed, 1);
	ck_assert_int_eq(escrow_close(sw.host, 0, ESCROW_CLOSE_ABORT), ESCROW_OK);
	ck_assert_int_eq(escrow_release(sw.host), ESCROW_OK);
}
END_TEST

/* What came is polled before it is said that it did not. */
START_TEST(one_whose_end_was_only_not_polled_is_not_in_quarantine)
{
	struct escrow_event event;
	int n = 0;

	give_b_up(b_falls_silent);
	fake->mute(prepared, 0);
	ck_assert_int_eq(escrow_close(sw.host, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	do {
		ck_assert_int_eq(escrow_poll(sw.host, &event, 1), 1);
		n += event.kind == ESCROW_EV_QUARANTINED && event.object == 0;
	} while (event.kind != ESCROW_EV_CLOSED);
	ck_assert_int_eq(n, 0);
	ck_assert_int_eq(sw.freed, 1);
	ck_assert_int_eq(escrow_release(sw.host), ESCROW_OK);
}
END_TEST

/* ---- A region that B cannot prove to have let go of --------------------------------------------- */
static void b_sticks(void)
{
	escrow_ledger(find_b, NULL);
	ck_assert_ptr_nonnull(prepared);
	fake->stick(prepared, 1);
}

static int32_t use(void)
{
	struct escrow_sge range = {sw.region, 0, 8};

	return hosting_transfer(sw.host, ESCROW_READ, sw.remote, range, NULL);
}

static void turn_back_with_a_stuck_b(void)
{
	sw.step = sw.veto = ESCROW_SWAP_REGISTER;
	sw.at_step = b_sticks;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_REFUSED);
	swapping_take_records();
	sw.step = sw.veto = 0;
	ck_assert_uint_eq(sw.told[ESCROW_EV_QUARANTINED], 1);
	ck_assert_int_eq(use(), ESCROW_E_STATE);
	ck_assert_int_eq(escrow_deregister(sw.host, sw.region), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_withheld(NULL, 0, NULL), 1);
}

/* Until its receipt comes: then A serves with the region, and with the next swap B does. */
START_TEST(a_region_that_b_kept_is_as_before_after_its_receipt)
{
	turn_back_with_a_stuck_b();
	fake->unstick(prepared);
	hosting_expect_none(sw.host);
	ck_assert_int_eq(escrow_withheld(NULL, 0, NULL), 0);
	swapping_assert_serves();
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	swapping_assert_serves();
	ck_assert_int_eq(escrow_deregister(sw.host, sw.region), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(hosting_wait(sw.host, ESCROW_EV_REGION_RELEASED).object, sw.region);
	ck_assert_int_eq(sw.freed, 1);
	hosting_close(sw.host);
}
END_TEST

static void b_has_its_receipt(void)
{
	fake->unstick(prepared);
	hosting_expect_none(sw.host);
	ck_assert_int_eq(use(), ESCROW_E_STATE);
}

/* Has the next B been made without it, it goes with A. */
START_TEST(a_region_whose_receipt_comes_in_a_swap_is_not_used_by_half)
{
	turn_back_with_a_stuck_b();
	ck_assert_int_eq(escrow_revoke(sw.host, sw.grant), ESCROW_IN_PROGRESS);
	hosting_expect(sw.host, ESCROW_EV_GRANT_REVOKED);
	sw.step = ESCROW_SWAP_PEERS;
	sw.at_step = b_has_its_receipt;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	ck_assert_uint_eq(sw.told[ESCROW_EV_REGION_RELEASED], 1);
	ck_assert_int_eq(sw.freed, 1);
	hosting_close(sw.host);
}
END_TEST

/* ... and if that is taken back, A has it as before. */
START_TEST(a_region_whose_receipt_comes_in_a_swap_is_as_before_if_that_is_taken_back)
{
	turn_back_with_a_stuck_b();
	ck_assert_int_eq(escrow_revoke(sw.host, sw.grant), ESCROW_IN_PROGRESS);
	hosting_expect(sw.host, ESCROW_EV_GRANT_REVOKED);
	sw.step = ESCROW_SWAP_PEERS;
	sw.at_step = b_has_its_receipt;
	swapping_begin(ESCROW_SWAP_DRY_RUN);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	swapping_assert_serves();
	ck_assert_int_eq(sw.freed, 0);
	hosting_close(sw.host);
}
END_TEST

static void b_sticks_and_falls_silent(void)
{
	b_sticks();
	fake->mute(prepared, 1);
}

/* The host gives it back before it hears of B's quarantine and receipt: it is not as before then, but goes once. */
START_TEST(a_region_that_was_given_back_goes_once)
{
	give_b_up(b_sticks_and_falls_silent);
	ck_assert_int_eq(escrow_deregister(sw.host, sw.region), ESCROW_IN_PROGRESS);
	fake->unstick(prepared);
	fake->mute(prepared, 0);
	hosting_wait(sw.host, ESCROW_EV_REGION_RELEASED);
	hosting_expect_none(sw.host);
	ck_assert_int_eq(sw.freed, 1);
	hosting_close(sw.host);
	ck_assert_int_eq(sw.freed, 1);
}
END_TEST

/* ---- A ----------------------------------------------------------------------------------------- */
static void a_falls_silent(void)
{
	fake->mute(old, 1);
}

static void a_drain_is_not_answered(uint32_t flags, escrow_status end)
{
	sw.step = ESCROW_SWAP_QUIESCE;
	sw.at_step = a_falls_silent;
	swapping_begin(flags);
	ck_assert_int_eq(swapping_finish(NULL), end);
	swapping_take_records();
	ck_assert_str_eq(sw.records[6].text, "A does not answer a drain");
}

START_TEST(a_drain_that_is_not_answered_turns_it_back)
{
	a_drain_is_not_answered(0, ESCROW_E_TIMEOUT);
	ck_assert_uint_eq(swapping_generation(), 1);
	fake->mute(old, 0);
	hosting_expect_none(sw.host); /* the answer is the swap's, as late as it comes */
	swapping_assert_serves();
	hosting_close(sw.host);
}
END_TEST

START_TEST(or_commits_if_that_was_asked_for)
{
	a_drain_is_not_answered(ESCROW_SWAP_COMMIT_UNDRAINED, ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(swapping_generation(), 2);
}
END_TEST

/* ---- The end, told again ----------------------------------------------------------------------- */
/* A is in quarantine, B has closed: that is no engine which is CLOSED. */
START_TEST(a_second_close_tells_the_quarantine_of_an_older_generation)
{
	struct pollfd pfd = {.fd = escrow_event_fd(sw.host), .events = POLLIN};
	struct escrow_event event;

	fake->stick(old, 1);
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_UNQUIESCED);
	swapping_take_records();
	ck_assert_int_eq(escrow_close(sw.host, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	event = hosting_wait(sw.host, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(event.flags, 0);
	for (int i = 0; i < 2; i++) {
		hosting_expect_none(sw.host);
		ck_assert_int_eq(escrow_arm(sw.host), ESCROW_OK);
		ck_assert_int_eq(poll(&pfd, 1, 0), 0);
		ck_assert_int_eq(escrow_close(sw.host, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
		ck_assert_int_eq(poll(&pfd, 1, 0), 1);
		ck_assert_int_eq(escrow_arm(sw.host), ESCROW_EVENTS_PENDING);
		event = hosting_expect(sw.host, ESCROW_EV_QUARANTINED);
		ck_assert_uint_eq(event.object, 0);
		ck_assert_uint_eq(event.bytes, SWAPPING_SIZE);
		ck_assert_uint_eq(event.flags, ESCROW_EVF_REPEAT);
	}
	fake->unstick(old);
	ck_assert_uint_eq(hosting_expect(sw.host, ESCROW_EV_REGION_RELEASED).object, sw.region);
	hosting_expect(sw.host, ESCROW_EV_CLOSED);
	ck_assert_int_eq(escrow_release(sw.host), ESCROW_OK);
	ck_assert_int_eq(sw.freed, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("swap-mute");
	TCase *tcase = tcase_create("generations");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_region_that_is_given_back_has_its_answer);
	tcase_add_test(tcase, the_host_engine_can_be_closed);
	tcase_add_test(tcase, one_that_was_only_late_ends_closed);
	tcase_add_test(tcase, one_whose_end_was_only_not_polled_is_not_in_quarantine);
	tcase_add_test(tcase, a_region_that_b_kept_is_as_before_after_its_receipt);
	tcase_add_test(tcase, a_region_whose_receipt_comes_in_a_swap_is_not_used_by_half);
	tcase_add_test(tcase,
		       a_region_whose_receipt_comes_in_a_swap_is_as_before_if_that_is_taken_back);
	tcase_add_test(tcase, a_region_that_was_given_back_goes_once);
	tcase_add_test(tcase, a_drain_that_is_not_answered_turns_it_back);
	tcase_add_test(tcase, or_commits_if_that_was_asked_for);
	tcase_add_test(tcase, a_second_close_tells_the_quarantine_of_an_older_generation);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
