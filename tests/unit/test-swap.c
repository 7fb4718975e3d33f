/* SPDX-License-Identifier: BSD-2-Clause */
/* The course of a swap on the fake backend: each step, each way back, and what is kept. */
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"
#include "tests/unit/modules.h"

#define SIZE 4096u
#define RECORDS 32

static char memory[SIZE];
static int freed;
static struct escrow_host_engine *host;
static struct escrow_module *module;
static uint64_t region, remote, peer, grant, clock_ns;
static uint32_t veto;       /* the step that is made to fail */
static uint32_t carried[8]; /* how often each kind was carried */
static int answer;          /* the peers answer */
static struct escrow_swap *under_way;
static struct escrow_swap_record records[RECORDS];

static uint64_t test_clock(void *ctx)
{
	return clock_ns;
}

static void setup(void)
{
	struct escrow_host_args args = {
		.size = sizeof(args), .engine_name = "test", .now_ns = test_clock};
	struct escrow_grant_args grant_args = {
		.size = sizeof(grant_args), .rights = 1, .length = 1};

	freed = 0;
	veto = 0;
	answer = 1;
	clock_ns = 1000;
	memset(carried, 0, sizeof(carried));
	args.module = module = hosting_module("fake");
	ck_assert_int_eq(escrow_open(&args, &host, NULL), ESCROW_OK);
	region = hosting_register(host, memory, SIZE, &freed);
	remote = hosting_remote(host);
	grant_args.region = region;
	ck_assert_int_eq(escrow_grant(host, &grant_args, &grant, NULL), ESCROW_IN_PROGRESS);
	hosting_expect(host, ESCROW_EV_GRANT_READY);
}

static escrow_status fail_at(void *ctx, uint32_t step)
{
	return step == veto ? ESCROW_E_REFUSED : ESCROW_OK;
}

/* The fake's peer answers everything at once. */
static escrow_status carry(void *ctx, const struct escrow_carry *message)
{
	carried[message->kind]++;
	if (message->kind == ESCROW_CARRY_WANT_INVITATION)
		peer = message->peer;
	if (!answer)
		return ESCROW_OK;
	if (message->kind == ESCROW_CARRY_WANT_INVITATION || message->kind == ESCROW_CARRY_STOP)
		return escrow_swap_supply(under_way, message->kind, message->peer, "x", 1);
	if (message->kind == ESCROW_CARRY_WANT_GRANT)
		return escrow_swap_supply(under_way, message->kind, message->object, "fake", 4);
	return ESCROW_OK;
}

static escrow_status begin_with(uint32_t flags, const char *const *settings)
{
	struct escrow_swap_args args = {.size = sizeof(args),
					.flags = flags,
					.module = module,
					.settings = settings,
					.carry = carry,
					.fail = fail_at,
					.peers_ns = 100,
					.lease_ns = 100,
					.drain_ns = 100,
					.close_ns = 100};

	return escrow_swap_begin(host, &args, &under_way, NULL);
}

static void begin(uint32_t flags)
{
	ck_assert_int_eq(begin_with(flags, NULL), ESCROW_OK);
}

/* Polls and advances until the swap has ended; time passes only if it has to. */
static escrow_status finish(struct escrow_error *error)
{
	escrow_status status = ESCROW_IN_PROGRESS;
	struct escrow_event event;

	for (int i = 0; i < 1000 && status == ESCROW_IN_PROGRESS; i++) {
		while (escrow_poll(host, &event, 1) == 1)
			ck_assert_uint_ne(event.kind, ESCROW_EV_CLOSED);
		status = escrow_swap_advance(under_way, error);
		clock_ns += i > 100 ? 10 : 0;
	}
	ck_assert_int_ne(status, ESCROW_IN_PROGRESS);
	return status;
}

static int32_t take_records(void)
{
	int32_t n = escrow_swap_records(under_way, records, RECORDS);

	ck_assert_int_le(n, RECORDS);
	ck_assert_int_eq(escrow_swap_free(under_way), ESCROW_OK);
	return n;
}

static uint64_t generation(void)
{
	uint64_t number;

	return escrow_current(host, &number) ? number : 0;
}

static uint32_t engines(void)
{
	struct escrow_module_info info = {.size = sizeof(info)};

	ck_assert_int_eq(escrow_module_info(module, &info), ESCROW_OK);
	return info.engines;
}

/* The serving backend takes an op on the region, and the event comes. */
static void assert_serves(void)
{
	uint64_t op;

	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote,
					  (struct escrow_sge){region, 0, 8}, &op),
			 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(hosting_wait(host, ESCROW_EV_OP_DONE).object, op);
}

START_TEST(a_swap_takes_its_ten_steps)
{
	uint64_t fd = (uint64_t)escrow_event_fd(host);
	struct escrow_quota used = {.size = sizeof(used)};

	begin(0);
	ck_assert_int_eq(finish(NULL), ESCROW_OK);
	ck_assert_int_eq(take_records(), 10);
	for (uint32_t i = 0; i < 10; i++) {
		ck_assert_uint_eq(records[i].step, i + 1);
		ck_assert_uint_eq(records[i].outcome, ESCROW_SWAP_DONE);
		ck_assert_uint_ge(records[i].end_ns, records[i].start_ns);
	}
	ck_assert_str_eq(records[2].text, "1 regions");
	ck_assert_str_eq(records[3].text, "1 peers, 1 grants, 1 remotes");
	ck_assert_uint_eq(generation(), 2);
	ck_assert_uint_eq(engines(), 1); /* A was released */
	ck_assert_uint_eq((uint64_t)escrow_event_fd(host), fd);
	ck_assert_int_eq(freed, 0);
	for (uint32_t kind = ESCROW_CARRY_WANT_INVITATION; kind <= ESCROW_CARRY_COMMITTED; kind++)
		ck_assert_uint_eq(carried[kind], 1);
	ck_assert_uint_eq(carried[ESCROW_CARRY_WITHDRAWN], 0);
	escrow_quota_get(NULL, &used);
	ck_assert_uint_eq(used.bytes, SIZE);
	ck_assert_uint_eq(used.grants, 1);
	assert_serves();
	hosting_close(host);
	ck_assert_int_eq(freed, 1);
	escrow_quota_get(NULL, &used);
	ck_assert_uint_eq(used.bytes, 0);
	ck_assert_uint_eq(used.grants, 0);
}
END_TEST

START_TEST(it_can_be_done_again_and_again)
{
	for (uint64_t i = 2; i < 40; i++) {
		begin(0);
		ck_assert_int_eq(finish(NULL), ESCROW_OK);
		take_records();
		ck_assert_uint_eq(generation(), i);
		assert_serves();
	}
	ck_assert_uint_eq(engines(), 1);
	hosting_close(host);
}
END_TEST

/* Every step up to COMMIT, made to fail after its work. */
START_TEST(a_step_that_fails_is_taken_back)
{
	struct escrow_error error = {.size = sizeof(error)};
	uint32_t step = (uint32_t)_i;
	int32_t n;

	veto = step;
	begin(0);
	ck_assert_int_eq(finish(&error), ESCROW_E_REFUSED);
	ck_assert_str_eq(error.text, "made to fail by the test");
	n = take_records();
	ck_assert_int_eq(n, 2 * (int32_t)step);
	for (uint32_t i = 0; i < step; i++) {
		ck_assert_uint_eq(records[i].outcome,
				  i + 1 < step ? ESCROW_SWAP_DONE : ESCROW_SWAP_FAILED);
		ck_assert_uint_eq(records[step + i].step, step - i);
		ck_assert_uint_eq(records[step + i].outcome, ESCROW_SWAP_TAKEN_BACK);
	}
	ck_assert_uint_eq(generation(), 1);
	ck_assert_uint_eq(engines(), 1);
	ck_assert_int_eq(freed, 0);
	assert_serves();
	/* nothing is in the way of the next one */
	veto = 0;
	begin(0);
	ck_assert_int_eq(finish(NULL), ESCROW_OK);
	take_records();
	assert_serves();
	hosting_close(host);
	ck_assert_int_eq(freed, 1);
}
END_TEST

START_TEST(from_commit_on_there_is_only_forward)
{
	veto = (uint32_t)_i;
	begin(0);
	ck_assert_int_eq(finish(NULL), ESCROW_E_REFUSED);
	ck_assert_int_eq(take_records(), 10);
	ck_assert_uint_eq(records[veto - 1].outcome, ESCROW_SWAP_FAILED);
	ck_assert_uint_eq(generation(), 2);
	ck_assert_uint_eq(engines(), 1);
	assert_serves();
	hosting_close(host);
}
END_TEST

START_TEST(a_dry_run_ends_after_the_peers)
{
	begin(ESCROW_SWAP_DRY_RUN);
	ck_assert_int_eq(finish(NULL), ESCROW_OK);
	ck_assert_int_eq(take_records(), 8);
	ck_assert_uint_eq(records[3].outcome, ESCROW_SWAP_DONE);
	ck_assert_uint_eq(records[4].step, ESCROW_SWAP_PEERS);
	ck_assert_uint_eq(records[7].step, ESCROW_SWAP_OPEN);
	ck_assert_uint_eq(records[7].outcome, ESCROW_SWAP_TAKEN_BACK);
	ck_assert_uint_eq(carried[ESCROW_CARRY_WITHDRAWN], 1);
	ck_assert_uint_eq(generation(), 1);
	ck_assert_uint_eq(engines(), 1);
	assert_serves();
	hosting_close(host);
}
END_TEST

START_TEST(settings_of_b_are_checked)
{
	const char *settings[] = {"shape=round", NULL};
	struct escrow_error error = {.size = sizeof(error)};

	ck_assert_int_eq(begin_with(0, settings), ESCROW_OK);
	ck_assert_int_eq(finish(&error), ESCROW_E_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "unknown key shape"));
	take_records();
	assert_serves();
	hosting_close(host);
}
END_TEST

START_TEST(an_op_that_does_not_end_turns_the_swap_back)
{
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t op;

	ck_assert_int_eq(
		hosting_transfer(host, ESCROW_READ, remote, (struct escrow_sge){region, 0, 8}, &op),
		1);
	begin(0);
	ck_assert_int_eq(finish(&error), ESCROW_E_TIMEOUT);
	ck_assert_str_eq(error.text, "1 ops of A are outstanding");
	take_records();
	ck_assert_uint_eq(generation(), 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(hosting_wait(host, ESCROW_EV_OP_DONE).object, op);
	assert_serves();
	hosting_close(host);
}
END_TEST

/* The operator commits anyway: A is quarantined, its regions are withheld and leave B. */
START_TEST(regions_of_a_quarantined_a_are_removed_from_b)
{
	struct escrow_engine *old, *engine;
	const struct fake_control *fake = hosting_fake(host, &old);
	struct escrow_withheld list[2];
	uint64_t op, bytes, second;
	int second_freed = 0;

	ck_assert_int_eq(
		hosting_transfer(host, ESCROW_READ, remote, (struct escrow_sge){region, 0, 8}, &op),
		1);
	fake->stick(old, 1);
	begin(ESCROW_SWAP_COMMIT_UNDRAINED);
	ck_assert_int_eq(finish(NULL), ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(take_records(), 10);
	ck_assert_uint_eq(records[7].outcome, ESCROW_SWAP_DONE);
	ck_assert_uint_eq(generation(), 2);
	ck_assert_uint_eq(engines(), 2);
	fake = hosting_fake(host, &engine);
	ck_assert_ptr_ne(engine, old);
	ck_assert_uint_eq(fake->regions(engine), 0);
	ck_assert_int_eq(escrow_withheld(list, 2, &bytes), 1);
	ck_assert_ptr_eq(list[0].addr, memory);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
					  (struct escrow_sge){region, 0, 8}, NULL),
			 ESCROW_E_STATE);
	ck_assert_int_eq(escrow_borrow_for_read(host, region, 0, 1), ESCROW_E_BUSY);
	/* B serves what comes new */
	second = hosting_register(host, memory + 8, 8, &second_freed);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
					  (struct escrow_sge){second, 0, 8}, NULL),
			 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_wait(host, ESCROW_EV_OP_DONE);
	/* the late receipts of A: its op, then its region, and the memory is the host's again */
	ck_assert_int_eq(fake->finish(old, ESCROW_CUSTODY_RETURNED), 1);
	ck_assert_uint_eq(hosting_wait(host, ESCROW_EV_OP_DONE).object, op);
	fake->unstick(old);
	ck_assert_uint_eq(hosting_wait(host, ESCROW_EV_REGION_RELEASED).object, region);
	ck_assert_int_eq(freed, 1);
	ck_assert_int_eq(escrow_withheld(list, 2, NULL), 0);
	hosting_expect_none(host); /* A's own end is not the host's affair */
	/* the next swap clears it away */
	begin(0);
	ck_assert_int_eq(finish(NULL), ESCROW_OK);
	take_records();
	ck_assert_uint_eq(engines(), 1);
	hosting_close(host);
	ck_assert_int_eq(second_freed, 1);
	ck_assert_int_eq(freed, 1);
}
END_TEST

/* Q38, B01, field-24 */
START_TEST(a_quarantined_generation_outlives_the_host_engine)
{
	struct escrow_engine *old;
	struct escrow_withheld list[2];
	struct escrow_event event;

	hosting_fake(host, &old)->stick(old, 1);
	begin(0);
	ck_assert_int_eq(finish(NULL), ESCROW_E_UNQUIESCED);
	take_records();
	ck_assert_int_ge(escrow_close(host, 0, ESCROW_CLOSE_GRACEFUL), 0);
	event = hosting_wait(host, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(event.object, 0);
	ck_assert_uint_eq(event.bytes, SIZE);
	ck_assert_int_eq(escrow_release(host), ESCROW_OK);
	ck_assert_int_eq(escrow_withheld(list, 2, NULL), 1);
	ck_assert_uint_eq(list[0].orphan, 1);
	ck_assert_int_eq(freed, 0);
}
END_TEST

START_TEST(generations_are_bounded)
{
	for (int i = 1; i < 32; i++) {
		struct escrow_engine *engine;

		hosting_register(host, memory, 1, NULL);
		hosting_fake(host, &engine)->stick(engine, 1);
		begin(0);
		ck_assert_int_eq(finish(NULL), ESCROW_E_UNQUIESCED);
		take_records();
	}
	ck_assert_uint_eq(engines(), 32);
	ck_assert_int_eq(begin_with(0, NULL), ESCROW_E_LIMIT);
	ck_assert_uint_eq(generation(), 32);
}
END_TEST

START_TEST(control_is_refused_meanwhile)
{
	struct escrow_region args = {.size = sizeof(args),
				     .addr = memory,
				     .length = 1,
				     .memory_kind = ESCROW_MEMORY_HOST,
				     .dmabuf_fd = -1};
	uint64_t handle;

	begin(0);
	ck_assert_int_eq(begin_with(0, NULL), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_swap_free(under_way), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_register(host, &args, &handle, NULL), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_revoke(host, grant), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_forget_grant(host, remote), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_quiesce(host), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_close(host, 0, 0), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_borrow_for_read(host, region, 0, 1), ESCROW_OK);
	ck_assert_int_eq(finish(NULL), ESCROW_OK);
	ck_assert_int_eq(escrow_swap_supply(under_way, ESCROW_CARRY_STOP, peer, NULL, 0),
			 ESCROW_E_STATE);
	take_records();
	/* a borrow is the host's own affair: it goes through a swap */
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
					  (struct escrow_sge){region, 0, 8}, NULL),
			 ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_return(host, region, 0, 1), ESCROW_OK);
	hosting_close(host);
}
END_TEST

START_TEST(silent_peers_do_not_hold_it_up)
{
	struct escrow_error error = {.size = sizeof(error)};

	/* before COMMIT a peer that is not there in B is a reason to turn back */
	answer = 0;
	begin(0);
	ck_assert_int_eq(finish(&error), ESCROW_E_TIMEOUT);
	take_records();
	ck_assert_uint_eq(generation(), 1);
	assert_serves();
	hosting_close(host);
}
END_TEST

START_TEST(a_peer_that_is_lost_turns_it_back)
{
	struct escrow_engine *engine;
	const struct escrow_ops *ops;
	struct escrow_event event;

	answer = 0;
	begin(0);
	ck_assert_int_eq(escrow_swap_advance(under_way, NULL), ESCROW_IN_PROGRESS);
	engine = escrow_backend_engine(host, &ops);
	ops->disconnect(engine, 7, 0);
	event = hosting_wait(host, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(event.object, peer);
	ck_assert_int_eq(finish(NULL), ESCROW_E_PEER_LOST);
	take_records();
	ck_assert_uint_eq(generation(), 1);
	ck_assert_uint_eq(engines(), 1);
	hosting_close(host);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	struct escrow_swap_args args = {.size = sizeof(args)};

	ck_assert_int_eq(escrow_swap_begin(host, &args, &under_way, NULL), ESCROW_E_INVALID);
	args.module = module;
	args.flags = 64;
	ck_assert_int_eq(escrow_swap_begin(host, &args, &under_way, NULL), ESCROW_E_UNSUPPORTED);
	args.flags = 0;
	ck_assert_int_eq(escrow_swap_begin(host, &args, NULL, NULL), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_quiesce(host), ESCROW_OK);
	ck_assert_int_eq(escrow_swap_begin(host, &args, &under_way, NULL), ESCROW_E_STATE);
	ck_assert_int_eq(escrow_resume(host), ESCROW_OK);
	/* peers, and nobody to carry */
	ck_assert_int_eq(escrow_swap_begin(host, &args, &under_way, NULL), ESCROW_OK);
	ck_assert_int_eq(finish(NULL), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_swap_free(under_way), ESCROW_OK);
	ck_assert_int_eq(escrow_swap_free(NULL), ESCROW_OK);
	ck_assert_str_eq(escrow_swap_step_name(ESCROW_SWAP_DRAIN), "drain");
	ck_assert_str_eq(escrow_swap_step_name(99), "?");
	assert_serves();
	hosting_close(host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("swap");
	TCase *tcase = tcase_create("course");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_swap_takes_its_ten_steps);
	tcase_add_test(tcase, it_can_be_done_again_and_again);
	tcase_add_loop_test(tcase, a_step_that_fails_is_taken_back, ESCROW_SWAP_OPEN,
			    ESCROW_SWAP_COMMIT + 1);
	tcase_add_loop_test(tcase, from_commit_on_there_is_only_forward, ESCROW_SWAP_CLOSE,
			    ESCROW_SWAP_RETIRE + 1);
	tcase_add_test(tcase, a_dry_run_ends_after_the_peers);
	tcase_add_test(tcase, settings_of_b_are_checked);
	tcase_add_test(tcase, an_op_that_does_not_end_turns_the_swap_back);
	tcase_add_test(tcase, regions_of_a_quarantined_a_are_removed_from_b);
	tcase_add_test(tcase, a_quarantined_generation_outlives_the_host_engine);
	tcase_add_test(tcase, generations_are_bounded);
	tcase_add_test(tcase, control_is_refused_meanwhile);
	tcase_add_test(tcase, silent_peers_do_not_hold_it_up);
	tcase_add_test(tcase, a_peer_that_is_lost_turns_it_back);
	tcase_add_test(tcase, bad_arguments_are_refused);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
