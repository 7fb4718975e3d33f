/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages (escrow/notify.h): what is refused, what is given back, and what each end is told at the end of the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <escrow/notify.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

static struct kit a, b;
static const struct escrow_notify *notify;
static uint8_t big[65537];

static void open_both(const char *more)
{
	const char *settings[] = {"test.faults=1", "drain_ms=100", "control_thread=0", more, NULL};

	kit_settings = settings;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_settings = NULL;
	notify = KIT_OPS->get_extension(a.engine, ESCROW_NOTIFY_ID);
}

static void start(const char *more)
{
	open_both(more);
	kit_connect(&a, &b);
}

static void end(void)
{
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

static escrow_status send(const char *text, uint64_t user)
{
	return notify->send(b.engine, b.peer, text, strlen(text), user, 0);
}

/* a receives exactly this. */
static void received(const char *text)
{
	char got[64] = {0};
	uint64_t from = 0, len = sizeof(got);

	ck_assert_uint_eq(kit_wait(&a, &b, ESCROW_EV_MESSAGE).bytes, strlen(text));
	ck_assert_int_eq(notify->receive(a.engine, &from, got, &len), ESCROW_OK);
	ck_assert_str_eq(got, text);
	ck_assert_uint_eq(from, a.peer);
}

static int32_t ride(uint64_t remote, const char *text, uint64_t *id)
{
	struct escrow_sge sge = {.region = b.region, .length = 64};
	struct escrow_op op = {
		.user = 4, .remote = remote, .opcode = ESCROW_WRITE, .nsge = 1, .sge = &sge};

	return notify->transfer(b.engine, &op, text, strlen(text), id);
}

START_TEST(what_cannot_be_sent)
{
	start(NULL);
	ck_assert_int_eq(notify->send(b.engine, b.peer + 1, "x", 1, 0, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(notify->send(b.engine, 0, "x", 1, 0, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(notify->send(b.engine, b.peer, NULL, 1, 0, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(notify->send(b.engine, b.peer, "x", 1, 0, 1), ESCROW_E_UNSUPPORTED);
	ck_assert_int_eq(notify->send(b.engine, b.peer, big, sizeof(big), 0, 0), ESCROW_E_LIMIT);
	ck_assert_int_eq(KIT_OPS->quiesce(b.engine, 0), ESCROW_OK);
	ck_assert_int_eq(send("x", 0), ESCROW_E_STATE);
	ck_assert_int_eq(KIT_OPS->resume(b.engine, 0), ESCROW_OK);
	kit_never(&b, &a, ESCROW_EV_MESSAGE_SENT);
	ck_assert_int_eq(send("x", 1), ESCROW_OK);
	received("x");
	end();
}
END_TEST

extern const struct native_ops mock_native;

static int twice(struct native_lane *l, struct native_cqe *cqe, int max)
{
	struct native_cqe got[CQE_BATCH];
	int n = mock_native.poll_cq(l, got, max / 2), m = 0, i;

	for (i = 0; i < n; i++) {
		cqe[m++] = got[i];
		if (got[i].id >> 56 == CHANNEL_ID)
			cqe[m++] = got[i];
	}
	return n < 0 ? n : m;
}

/* A device that tells of each receive twice: each message comes once, and none is lost for it. */
START_TEST(receives_that_are_told_twice)
{
	char text[16];
	int i, k;

	start("recv_depth=4");
	kit_table.poll_cq = twice;
	for (i = 0; i < 20; i++) {
		/* They are all there before the other end looks. */
		for (k = 0; k < 3; k++) {
			snprintf(text, sizeof(text), "%d", 3 * i + k);
			ck_assert_int_eq(send(text, 1), ESCROW_OK);
		}
		for (k = 0; k < 20; k++)
			kit_turn(&b, NULL);
		for (k = 0; k < 3; k++) {
			snprintf(text, sizeof(text), "%d", 3 * i + k);
			received(text);
		}
		for (k = 0; k < 3; k++)
			ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_MESSAGE_SENT).status,
					 ESCROW_OK);
	}
	ck_assert_uint_gt(atomic_load(&a.engine->counters.anomalies), 0);
	kit_never(&a, &b, ESCROW_EV_MESSAGE);
	end();
	kit_table.poll_cq = mock_native.poll_cq;
}
END_TEST

START_TEST(what_cannot_be_received)
{
	uint64_t from = 7, len = 0;
	uint8_t buf[8];

	start(NULL);
	ck_assert_int_eq(notify->receive(a.engine, &from, NULL, &len), ESCROW_E_AGAIN);
	ck_assert_int_eq(send("three", 1), ESCROW_OK);
	kit_wait(&a, &b, ESCROW_EV_MESSAGE);
	ck_assert_int_eq(notify->receive(a.engine, NULL, buf, &len), ESCROW_E_INVALID);
	ck_assert_int_eq(notify->receive(a.engine, &from, buf, NULL), ESCROW_E_INVALID);
	len = 4;
	ck_assert_int_eq(notify->receive(a.engine, &from, NULL, &len), ESCROW_E_INVALID);
	ck_assert_int_eq(notify->receive(a.engine, &from, buf, &len), ESCROW_E_TOO_SMALL);
	ck_assert_uint_eq(len, 5);
	ck_assert_uint_eq(from, 7);
	ck_assert_int_eq(notify->receive(a.engine, &from, buf, &len), ESCROW_OK);
	ck_assert_mem_eq(buf, "three", 5);
	ck_assert_int_eq(notify->receive(a.engine, &from, buf, &len), ESCROW_E_AGAIN);
	end();
}
END_TEST

/* A peer that is not up: before it, and after it, and until the host knows that it is gone. */
START_TEST(a_peer_that_is_not_up)
{
	struct escrow_event none;
	escrow_status st;
	int i;

	open_both(NULL);
	kit_ask(&a, &b);
	ck_assert_int_eq(send("x", 1), ESCROW_E_STATE);
	kit_wait(&b, &a, ESCROW_EV_PEER_UP);
	ck_assert_int_eq(send("x", 1), ESCROW_OK);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_MESSAGE_SENT).status, ESCROW_OK);
	kit_close(&a, NULL, false);
	/* Room for no event: b works, and what it tells stays. */
	for (i = 0; (st = send("x", 1)) == ESCROW_OK || st == ESCROW_E_AGAIN; i++) {
		ck_assert_int_lt(i, 1000);
		ck_assert_int_eq(KIT_OPS->poll(b.engine, &none, 0, sizeof(none), 0), 0);
	}
	ck_assert_int_eq(st, ESCROW_E_PEER_LOST);
	kit_wait(&b, NULL, ESCROW_EV_PEER_DOWN);
	ck_assert_int_eq(send("x", 1), ESCROW_E_INVALID);
	kit_close(&b, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* What arrived can be received when its sender is no more. */
START_TEST(the_last_words_of_a_peer)
{
	char got[8] = {0};
	uint64_t from, len = sizeof(got);

	start(NULL);
	ck_assert_int_eq(send("bye", 1), ESCROW_OK);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_MESSAGE_SENT).status, ESCROW_OK);
	kit_close(&b, &a, false);
	kit_wait(&a, NULL, ESCROW_EV_PEER_DOWN);
	ck_assert_int_eq(notify->receive(a.engine, &from, got, &len), ESCROW_OK);
	ck_assert_str_eq(got, "bye");
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* Each accepted send is told once, and those that did not arrive with a reason; the places are back. */
START_TEST(sends_end_with_the_peer)
{
	uint64_t users = 0;
	int i;

	start("max_messages=16");
	for (i = 0; i < 16; i++)
		ck_assert_int_eq(send("x", UINT64_C(1) << i), ESCROW_OK);
	ck_assert_int_eq(send("x", 99), ESCROW_E_AGAIN);
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	for (i = 0; i < 16; i++) {
		struct escrow_event ev = kit_wait(&b, &a, ESCROW_EV_MESSAGE_SENT);

		ck_assert_uint_eq(users & ev.user, 0);
		users |= ev.user;
		ck_assert(ev.status == ESCROW_OK || ev.status == ESCROW_E_CANCELED);
		ck_assert_uint_eq(ev.bytes, ev.status == ESCROW_OK ? 1 : 0);
	}
	ck_assert_uint_eq(users, 0xffff);
	end();
}
END_TEST

/* ---- Messages that ride on ops --------------------------------------------------------------------------- */
START_TEST(what_cannot_ride)
{
	struct escrow_sge sge = {.length = 64};
	struct escrow_op op = {.opcode = ESCROW_WRITE, .nsge = 1, .sge = &sge};
	uint64_t id = 7, remote;
	int i;

	open_both("max_messages=4");
	/* Nothing holds its bytes before there is a peer, and there is no remote either. */
	ck_assert_int_eq(notify->transfer(b.engine, &op, "x", 1, &id), ESCROW_E_INVALID);
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, NULL);
	sge.region = b.region;
	op.remote = remote;
	ck_assert_int_eq(notify->transfer(b.engine, NULL, "x", 1, &id), ESCROW_E_INVALID);
	ck_assert_int_eq(notify->transfer(b.engine, &op, "x", 1, NULL), ESCROW_E_INVALID);
	ck_assert_int_eq(notify->transfer(b.engine, &op, NULL, 1, &id), ESCROW_E_INVALID);
	ck_assert_int_eq(notify->transfer(b.engine, &op, big, sizeof(big), &id), ESCROW_E_LIMIT);
	/* An op that is refused keeps no place: all four are free after any number of them. */
	for (i = 0; i < 9; i++)
		ck_assert_int_eq(ride(remote + (uint64_t)i * i + 1, "x", &id), ESCROW_E_INVALID);
	ck_assert_uint_eq(id, 7);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(send("x", 1), ESCROW_OK);
	ck_assert_int_eq(ride(remote, "y", &id), ESCROW_E_AGAIN);
	for (i = 0; i < 4; i++) {
		received("x");
		ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_MESSAGE_SENT).status, ESCROW_OK);
	}
	kit_wait(&b, &a, ESCROW_EV_ROOM);
	ck_assert_int_eq(ride(remote, "y", &id), 1);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	received("y");
	end();
}
END_TEST

/* If the op fails no message is sent. */
START_TEST(nothing_rides_on_an_op_that_fails)
{
	uint64_t remote, grant, id;

	start("max_messages=4");
	remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, &grant);
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grant, 0), ESCROW_IN_PROGRESS);
	kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED);
	ck_assert_int_eq(ride(remote, "x", &id), 1);
	ck_assert_int_lt(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, 0);
	kit_never(&a, &b, ESCROW_EV_MESSAGE);
	end();
}
END_TEST

/* Each of several arrives, once. */
START_TEST(several_ride)
{
	char got[8];
	uint64_t remote, id, from, len, seen = 0;
	int i;

	start(NULL);
	remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, NULL);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(ride(remote, i == 0 ? "0" : i == 1 ? "1" : "2", &id), 1);
	for (i = 0; i < 3; i++) {
		kit_wait(&a, &b, ESCROW_EV_MESSAGE);
		len = sizeof(got);
		ck_assert_int_eq(notify->receive(a.engine, &from, got, &len), ESCROW_OK);
		seen |= UINT64_C(1) << (got[0] - '0');
		ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	}
	ck_assert_uint_eq(seen, 7);
	kit_never(&a, &b, ESCROW_EV_MESSAGE);
	end();
}
END_TEST

/* The op was done and its message not yet gone: OP_DONE says that the peer is lost, once. */
START_TEST(a_rider_whose_peer_goes)
{
	uint64_t remote, id;

	start(NULL);
	remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, NULL);
	ck_assert_int_eq(ride(remote, "x", &id), 1);
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).object, id);
	kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	kit_never(&b, &a, ESCROW_EV_OP_DONE);
	end();
}
END_TEST

/* ---- Memory ------------------------------------------------------------------------------------------------- */
/* Whichever allocation fails while a peer comes up, it goes down; until it needs no more than there are. */
START_TEST(a_peer_without_memory)
{
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "b"};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "a"};
	struct escrow_event ev = {0};
	uint8_t buf[1024];
	uint64_t len;
	int64_t n;

	open_both(NULL);
	for (n = 1; ev.kind != ESCROW_EV_PEER_UP; n++) {
		len = sizeof(buf);
		ck_assert_int_eq(KIT_OPS->invite(a.engine, &invite, buf, &len), ESCROW_OK);
		args.invitation = buf;
		args.invitation_len = len;
		kit_fail_at = n;
		ck_assert_int_eq(KIT_OPS->connect(b.engine, &args, &b.peer, NULL),
				 ESCROW_IN_PROGRESS);
		do {
			kit_turn(&b, &a);
		} while (b.nseen == 0);
		kit_fail_at = 0;
		ev = b.seen[0];
		ck_assert(ev.kind == ESCROW_EV_PEER_UP || ev.status < 0);
		b.nseen = a.nseen = 0;
	}
	ck_assert_int_gt(n, 4);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-messages");
	TCase *t = tcase_create("messages");

	tcase_add_test(t, what_cannot_be_sent);
	tcase_add_test(t, receives_that_are_told_twice);
	tcase_add_test(t, what_cannot_be_received);
	tcase_add_test(t, a_peer_that_is_not_up);
	tcase_add_test(t, the_last_words_of_a_peer);
	tcase_add_test(t, sends_end_with_the_peer);
	tcase_add_test(t, what_cannot_ride);
	tcase_add_test(t, nothing_rides_on_an_op_that_fails);
	tcase_add_test(t, several_ride);
	tcase_add_test(t, a_rider_whose_peer_goes);
	tcase_add_test(t, a_peer_without_memory);
	suite_add_tcase(s, t);
	return testing_run(s);
}
