/* SPDX-License-Identifier: BSD-2-Clause */
/* Swaps on the fake backend: what a generation says that is being left, or that was left. */
#include <poll.h>

#include "tests/lib/testing.h"
#include "tests/unit/swapping.h"

static struct escrow_engine *old;
static const struct fake_control *fake;

static void setup(void)
{
	swapping_setup();
	fake = hosting_fake(sw.host, &old);
}

static uint64_t peers_charged(void)
{
	struct escrow_quota used = {.size = sizeof(used)};

	escrow_quota_get(NULL, &used);
	return used.peers;
}

/* ---- A peer that comes to A -------------------------------------------------------------------- */
static void a_guest_comes(void)
{
	struct escrow_event event = {.kind = ESCROW_EV_PEER_UP, .object = FAKE_GUEST};

	fake->say(old, &event);
}

/* It is A's news, told when B serves: he goes with A, and the host never hears of him. */
START_TEST(a_peer_of_a_generation_that_is_left_is_nobody)
{
	sw.step = ESCROW_SWAP_DRAIN;
	sw.at_step = a_guest_comes;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	ck_assert_uint_eq(swapping_generation(), 2);
	ck_assert_uint_eq(sw.told[ESCROW_EV_PEER_UP], 0);
	ck_assert_uint_eq(peers_charged(), 1);
	hosting_close(sw.host);
	ck_assert_uint_eq(peers_charged(), 0);
}
END_TEST

/* ... nor of who comes to one that stays, quarantined. */
START_TEST(a_peer_of_a_quarantined_generation_is_nobody)
{
	fake->stick(old, 1);
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_UNQUIESCED);
	swapping_take_records();
	a_guest_comes();
	hosting_expect_none(sw.host);
	ck_assert_uint_eq(peers_charged(), 1);
}
END_TEST

static uint64_t peer_of_a;

static void look_up_the_peer(void)
{
	peer_of_a = escrow_backend_handle(sw.host, sw.peer);
}

static uint64_t peers_of_the_name(void)
{
	struct escrow_quota used = {.size = sizeof(used)};

	ck_assert_int_eq(escrow_quota_get_peer("fake", NULL, &used), ESCROW_OK);
	return used.peers;
}

/* Of a peer that is stuck in A its name has one more than that in B, until A's end has its receipt. */
START_TEST(a_peer_that_is_stuck_in_a_counts)
{
	struct escrow_event down = {.kind = ESCROW_EV_PEER_DOWN, .status = ESCROW_E_UNQUIESCED};

	fake->stick(old, 1);
	sw.step = ESCROW_SWAP_DRAIN;
	sw.at_step = look_up_the_peer;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_UNQUIESCED);
	swapping_take_records();
	ck_assert_uint_eq(peers_of_the_name(), 1);
	down.object = peer_of_a;
	fake->say(old, &down);
	hosting_expect_none(sw.host);
	ck_assert_uint_eq(peers_of_the_name(), 2);
	ck_assert_uint_eq(peers_charged(), 2);
	if (_i) {
		fake->unstick(old);
		hosting_wait(sw.host, ESCROW_EV_REGION_RELEASED);
		hosting_expect_none(sw.host);
		ck_assert_uint_eq(peers_of_the_name(), 1);
		hosting_close(sw.host);
		ck_assert_uint_eq(peers_of_the_name(), 0);
		return;
	}
	ck_assert_int_ge(escrow_close(sw.host, 0, ESCROW_CLOSE_GRACEFUL), 0);
	while (hosting_wait(sw.host, ESCROW_EV_QUARANTINED).object)
		;
	ck_assert_int_eq(escrow_release(sw.host), ESCROW_OK);
	ck_assert_uint_ge(peers_of_the_name(), 1);
}
END_TEST

/* Told before COMMIT he is a peer, and has no successor: the swap is taken back. */
START_TEST(a_peer_that_comes_before_commit_turns_it_back)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_engine *engine;
	const struct escrow_ops *ops;

	sw.step = ESCROW_SWAP_GATE;
	sw.at_step = a_guest_comes;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(&error), ESCROW_E_BUSY);
	ck_assert_str_eq(error.text, "a peer connected to A meanwhile");
	swapping_take_records();
	ck_assert_uint_eq(swapping_generation(), 1);
	ck_assert_uint_eq(sw.told[ESCROW_EV_PEER_UP], 1);
	ck_assert_uint_eq(peers_charged(), 2);
	engine = escrow_backend_engine(sw.host, &ops);
	ops->disconnect(engine, FAKE_GUEST, 0);
	hosting_wait(sw.host, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(peers_charged(), 1);
	hosting_close(sw.host);
}
END_TEST

/* ---- Drains of the host ------------------------------------------------------------------------ */
static uint64_t move(void)
{
	uint64_t op = 0;

	ck_assert_int_eq(hosting_transfer(sw.host, ESCROW_READ, sw.remote,
					  (struct escrow_sge){sw.region, 0, 8}, &op),
			 1);
	return op;
}

static void the_peer_is_drained(void)
{
	struct escrow_event event = {.kind = ESCROW_EV_DRAINED, .object = 7};

	fake->say(old, &event);
}

START_TEST(the_answer_to_the_drain_of_a_peer_is_the_hosts)
{
	struct escrow_event event = {.kind = ESCROW_EV_PEER_LOST, .object = 7};
	uint64_t peer;

	fake->say(old, &event);
	peer = hosting_expect(sw.host, ESCROW_EV_PEER_LOST).object;
	event.kind = ESCROW_EV_DRAINED;
	event.bytes = 3;
	fake->say(old, &event);
	event = hosting_expect(sw.host, ESCROW_EV_DRAINED);
	ck_assert_uint_eq(event.object, peer);
	ck_assert_uint_eq(event.user, 5);
	ck_assert_uint_eq(event.bytes, 3);
	event.object = 99; /* nobody: 0 would be the engine */
	fake->say(old, &event);
	hosting_expect_none(sw.host);
	hosting_close(sw.host);
}
END_TEST

/* An op is outstanding: that one peer is drained is not the answer the swap waits for. */
START_TEST(a_swap_does_not_take_the_answer_for_a_peer)
{
	struct escrow_error error = {.size = sizeof(error)};

	move();
	sw.step = ESCROW_SWAP_QUIESCE;
	sw.at_step = the_peer_is_drained;
	sw.polls = 1;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(&error), ESCROW_E_TIMEOUT);
	ck_assert_str_eq(error.text, "1 ops of A are outstanding");
	swapping_take_records();
	ck_assert_uint_eq(sw.told[ESCROW_EV_DRAINED], 1);
	ck_assert_uint_eq(swapping_generation(), 1);
	hosting_finish(sw.host, ESCROW_CUSTODY_RETURNED);
	hosting_close(sw.host);
}
END_TEST

/* Nothing is to be polled before DRAIN: neither peers nor grants. */
static void be_alone(void)
{
	const struct escrow_ops *ops;
	struct escrow_engine *engine = escrow_backend_engine(sw.host, &ops);

	ck_assert_int_eq(escrow_revoke(sw.host, sw.grant), ESCROW_IN_PROGRESS);
	hosting_expect(sw.host, ESCROW_EV_GRANT_REVOKED);
	ops->disconnect(engine, 7, 0);
	hosting_expect(sw.host, ESCROW_EV_PEER_DOWN);
}

START_TEST(a_swap_does_not_take_the_answer_to_a_drain_of_the_host)
{
	struct escrow_error error = {.size = sizeof(error)};

	be_alone();
	ck_assert_int_eq(escrow_drain(sw.host, 0, 0), ESCROW_IN_PROGRESS); /* answered with OK */
	ck_assert_int_eq(escrow_resume(sw.host), ESCROW_OK);
	move();
	sw.polls = 1;
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(&error), ESCROW_E_TIMEOUT);
	ck_assert_str_eq(error.text, "1 ops of A are outstanding");
	swapping_take_records();
	ck_assert_uint_eq(sw.told[ESCROW_EV_DRAINED], 1);
	hosting_finish(sw.host, ESCROW_CUSTODY_RETURNED);
	hosting_close(sw.host);
}
END_TEST

static void the_peer_goes(void)
{
	struct escrow_event event = {.kind = ESCROW_EV_PEER_DOWN, .object = 7};

	fake->say(old, &event);
}

/* The peer goes while A drains; that answer comes when the swap is over already. */
START_TEST(the_answer_to_a_swap_that_is_over_is_not_the_hosts)
{
	sw.step = ESCROW_SWAP_QUIESCE;
	sw.at_step = the_peer_goes;
	sw.polls = 1;
	sw.tick_ns = 1;
	sw.close_ns = 1; /* B is not waited for */
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_PEER_LOST);
	swapping_take_records();
	ck_assert_uint_eq(sw.told[ESCROW_EV_DRAINED], 0);
	hosting_expect_none(sw.host);
	/* the host's own */
	ck_assert_int_eq(escrow_drain(sw.host, 0, 0), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(hosting_expect(sw.host, ESCROW_EV_DRAINED).object, 0);
	hosting_close(sw.host);
}
END_TEST

/* ---- A revocation that is under way ------------------------------------------------------------ */
START_TEST(what_is_being_revoked_is_not_granted_again)
{
	struct escrow_error error = {.size = sizeof(error)};

	ck_assert_int_eq(escrow_revoke(sw.host, sw.grant), ESCROW_IN_PROGRESS);
	swapping_begin(0);
	escrow_swap_advance(sw.under_way, NULL); /* up to PEERS, and nothing is polled before */
	ck_assert_int_eq(swapping_finish(&error), ESCROW_E_BUSY);
	ck_assert_str_eq(error.text, "a grant is being revoked in A");
	swapping_take_records();
	ck_assert_uint_eq(sw.told[ESCROW_EV_GRANT_REVOKED], 1);
	ck_assert_uint_eq(sw.carried[ESCROW_CARRY_GRANT], 0);
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	hosting_close(sw.host);
}
END_TEST

/* One whose revocation has no receipt ends with A, and the host is told of it. */
START_TEST(a_quarantined_grant_goes_with_its_generation)
{
	struct escrow_event event = {.kind = ESCROW_EV_QUARANTINED, .object = 9, .user = sw.grant};
	struct escrow_quota used = {.size = sizeof(used)};

	event.status = ESCROW_E_UNQUIESCED;
	fake->say(old, &event);
	ck_assert_uint_eq(hosting_expect(sw.host, ESCROW_EV_QUARANTINED).object, sw.grant);
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	ck_assert_uint_eq(sw.carried[ESCROW_CARRY_GRANT], 0);
	ck_assert_uint_eq(sw.told[ESCROW_EV_GRANT_REVOKED], 1);
	ck_assert_int_eq(escrow_revoke(sw.host, sw.grant), ESCROW_E_INVALID);
	escrow_quota_get(NULL, &used);
	ck_assert_uint_eq(used.grants, 0);
	hosting_close(sw.host);
}
END_TEST

/* ---- A B that does not come to its end in time ------------------------------------------------- */
static void give_b_up(void)
{
	sw.veto = ESCROW_SWAP_REGISTER;
	sw.tick_ns = 10;
	sw.close_ns = 1;
	swapping_begin(0);
	ck_assert_int_eq(escrow_swap_advance(sw.under_way, NULL), ESCROW_E_REFUSED);
	ck_assert_int_eq(swapping_take_records(), 6);
	ck_assert_int_eq(sw.records[5].status, ESCROW_E_UNQUIESCED);
	sw.veto = 0;
	sw.tick_ns = 0;
	sw.close_ns = 100;
}

/* Both would hold the region by the same number, and what the first one says be taken for the other's. */
START_TEST(no_swap_begins_before_the_last_b_has_ended)
{
	give_b_up();
	ck_assert_int_eq(swapping_begin_with(0, NULL), ESCROW_E_BUSY);
	swapping_assert_serves();
	hosting_expect_none(sw.host); /* its end is polled */
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
	swapping_take_records();
	ck_assert_uint_eq(swapping_engines(), 1);
	swapping_assert_serves();
	hosting_close(sw.host);
	ck_assert_int_eq(sw.freed, 1);
}
END_TEST

/*
 * What the first one keeps in quarantine is no region of the third, which has its handles in the same column: it closes
 * when its own are back, and waits for nothing.
 */
START_TEST(a_quarantined_region_is_only_its_own_generations)
{
	uint64_t before;

	fake->stick(old, 1);
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_UNQUIESCED);
	swapping_take_records();
	for (int i = 0; i < 2; i++) {
		before = sw.clock_ns;
		swapping_begin(0);
		ck_assert_int_eq(swapping_finish(NULL), ESCROW_OK);
		swapping_take_records();
		ck_assert_uint_eq(sw.clock_ns, before);
		ck_assert_uint_eq(escrow_backend_handle(sw.host, sw.region), 0);
	}
	ck_assert_uint_eq(swapping_generation(), 4);
	fake->unstick(old);
	ck_assert_uint_eq(hosting_wait(sw.host, ESCROW_EV_REGION_RELEASED).object, sw.region);
	hosting_close(sw.host);
	ck_assert_int_eq(sw.freed, 1);
}
END_TEST

/* ---- Waiting ----------------------------------------------------------------------------------- */
/* A that has ended is not armed any more: what its descriptor says must wake nobody. */
START_TEST(a_generation_that_closed_late_wakes_nobody)
{
	struct pollfd pfd = {.fd = escrow_event_fd(sw.host), .events = POLLIN};
	struct escrow_event event = {.kind = ESCROW_EV_ROOM};

	fake->stick(old, 1);
	swapping_begin(0);
	ck_assert_int_eq(swapping_finish(NULL), ESCROW_E_UNQUIESCED);
	swapping_take_records();
	ck_assert_int_eq(escrow_arm(sw.host), ESCROW_OK);
	ck_assert_int_eq(poll(&pfd, 1, 0), 0);
	fake->say(old, &event);
	fake->unstick(old);
	ck_assert_int_eq(poll(&pfd, 1, 0), 1);
	hosting_wait(sw.host, ESCROW_EV_REGION_RELEASED);
	hosting_expect_none(sw.host); /* CLOSED is not the host's affair */
	ck_assert_int_eq(escrow_arm(sw.host), ESCROW_OK);
	ck_assert_int_eq(poll(&pfd, 1, 0), 0);
	hosting_close(sw.host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("swap-late");
	TCase *tcase = tcase_create("generations");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_peer_of_a_generation_that_is_left_is_nobody);
	tcase_add_test(tcase, a_peer_of_a_quarantined_generation_is_nobody);
	tcase_add_loop_test(tcase, a_peer_that_is_stuck_in_a_counts, 0, 2);
	tcase_add_test(tcase, a_peer_that_comes_before_commit_turns_it_back);
	tcase_add_test(tcase, the_answer_to_the_drain_of_a_peer_is_the_hosts);
	tcase_add_test(tcase, a_swap_does_not_take_the_answer_for_a_peer);
	tcase_add_test(tcase, a_swap_does_not_take_the_answer_to_a_drain_of_the_host);
	tcase_add_test(tcase, the_answer_to_a_swap_that_is_over_is_not_the_hosts);
	tcase_add_test(tcase, what_is_being_revoked_is_not_granted_again);
	tcase_add_test(tcase, a_quarantined_grant_goes_with_its_generation);
	tcase_add_test(tcase, no_swap_begins_before_the_last_b_has_ended);
	tcase_add_test(tcase, a_quarantined_region_is_only_its_own_generations);
	tcase_add_test(tcase, a_generation_that_closed_late_wakes_nobody);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
