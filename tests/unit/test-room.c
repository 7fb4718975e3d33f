/* SPDX-License-Identifier: BSD-2-Clause */
/* Who was answered E_AGAIN by the host engine hears of ROOM: when there is some, and though nothing else comes. */
#include <poll.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"

static char memory[4096];
static struct escrow_host_engine *host;
static struct escrow_engine *engine;
static const struct fake_control *fake;
static uint64_t region, remote;

/* With room for one op. */
static void setup(void)
{
	struct escrow_host_args args = {.size = sizeof(args),
					.module = hosting_module("fake"),
					.engine_name = "test",
					.max_ops = 1};

	ck_assert_int_eq(escrow_open(&args, &host, NULL), ESCROW_OK);
	region = hosting_register(host, memory, sizeof(memory), NULL);
	remote = hosting_remote(host);
	fake = hosting_fake(host, &engine);
}

static int32_t move(uint64_t length)
{
	return hosting_transfer(host, ESCROW_WRITE, remote, (struct escrow_sge){region, 0, length},
				NULL);
}

/* Would who waits at the descriptor wake up? */
static int is_told(void)
{
	struct pollfd pfd = {.fd = escrow_event_fd(host), .events = POLLIN};

	return poll(&pfd, 1, 0);
}

static void expect_sleep(void)
{
	hosting_expect_none(host);
	ck_assert_int_eq(escrow_arm(host), ESCROW_OK);
	ck_assert_int_eq(is_told(), 0);
}

static void expect_room(void)
{
	ck_assert_int_eq(is_told(), 1);
	hosting_expect(host, ESCROW_EV_ROOM);
	ck_assert_int_eq(move(8), 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_wait(host, ESCROW_EV_OP_DONE);
	hosting_close(host);
}

/* ---- A place ----------------------------------------------------------------------------------- */
/* The op has ended and been told of; who made it has not come back yet and keeps its place. */
static void another_is_turned_away(void)
{
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_expect(host, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(move(8), ESCROW_E_AGAIN);
	expect_sleep();
}

START_TEST(a_call_that_gives_the_last_place_back_wakes_who_waits)
{
	fake->at_transfer(engine, another_is_turned_away);
	ck_assert_int_eq(move(8), 1);
	expect_room();
}
END_TEST

static void another_finds_none(void)
{
	ck_assert_int_eq(move(8), ESCROW_E_AGAIN);
	expect_sleep();
	fake->exaggerate(engine, -1);
}

/* ... one that had none of its ops taken, too. */
START_TEST(a_call_that_is_refused_wakes_who_waits)
{
	fake->at_transfer(engine, another_finds_none);
	ck_assert_int_eq(move(8), 0);
	fake->exaggerate(engine, 0);
	fake->finish(engine, ESCROW_CUSTODY_RETURNED);
	expect_room();
}
END_TEST

/* ---- The backend ------------------------------------------------------------------------------- */
/* It is full: that is the backend's to tell, and not before it has room. */
/* What can never be taken is not waited for, and nobody is told of room for it. */
START_TEST(a_malformed_op_is_none_for_later)
{
	struct escrow_sge range = {region, 0, 8};
	struct escrow_op op = {.remote = remote, .opcode = ESCROW_WRITE};
	uint64_t ids[2];

	ck_assert_int_eq(move(8), 1);
	for (uint32_t nsge = 1; nsge <= 2; nsge++) {
		op.nsge = nsge;
		op.sge = NULL;
		ck_assert_int_eq(escrow_transfer(host, &op, 1, sizeof(op), 0, ids),
				 ESCROW_E_INVALID);
	}
	op.nsge = 1000;
	op.sge = &range;
	ck_assert_int_eq(escrow_transfer(host, &op, 1, sizeof(op), 0, ids), ESCROW_E_LIMIT);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_expect(host, ESCROW_EV_OP_DONE);
	hosting_expect_none(host);
	hosting_close(host);
}
END_TEST

START_TEST(no_room_is_told_while_the_backend_is_full)
{
	struct escrow_event event = {.kind = ESCROW_EV_ROOM};

	fake->fill(engine, 1);
	ck_assert_int_eq(move(8), ESCROW_E_AGAIN);
	expect_sleep();
	fake->fill(engine, 0);
	fake->say(engine, &event);
	expect_room();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("room");
	TCase *tcase = tcase_create("host");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_malformed_op_is_none_for_later);
	tcase_add_test(tcase, a_call_that_gives_the_last_place_back_wakes_who_waits);
	tcase_add_test(tcase, a_call_that_is_refused_wakes_who_waits);
	tcase_add_test(tcase, no_room_is_told_while_the_backend_is_full);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
