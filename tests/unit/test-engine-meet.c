/* SPDX-License-Identifier: BSD-2-Clause */
/* Two engines that connect to each other at the same time, and attempts that failed before. */
#include <stdlib.h>
#include <string.h>

#include <escrow/notify.h>

#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

#define INVITATION 1024

static uint64_t invite(struct kit *k, uint8_t *bytes)
{
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = "other"};
	uint64_t len = INVITATION;

	ck_assert_int_eq(KIT_OPS->invite(k->engine, &args, bytes, &len), ESCROW_OK);
	return len;
}

static uint64_t dial(struct kit *k, const uint8_t *bytes, uint64_t len)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_peer_args args = {.size = sizeof(args),
					.peer_name = "other",
					.invitation = bytes,
					.invitation_len = len};
	uint64_t peer = 0;

	ck_assert_msg(KIT_OPS->connect(k->engine, &args, &peer, &error) == ESCROW_IN_PROGRESS, "%s",
		      error.text);
	return peer;
}

static void incarnation(struct kit *k, uint8_t out[16])
{
	struct escrow_limits limits = {.size = sizeof(limits)};

	ck_assert_int_eq(KIT_OPS->query(k->engine, &limits), ESCROW_OK);
	memcpy(out, limits.incarnation, 16);
}

static uint64_t connections(struct kit *k)
{
	struct escrow_charge charges[32];
	int32_t n = KIT_OPS->charges(k->engine, charges, 32, sizeof(charges[0])), i;

	for (i = 0; i < n; i++)
		if (charges[i].kind == ESCROW_CHARGE_CONNECTIONS && !charges[i].peer_name[0])
			return charges[i].used;
	return 0;
}

/* What leaves room for one way only: the loser's own attempt holds what the winner's needs. */
static const char *const small[] = {NULL, "peer_quota.connections=1", "quota.connections=1",
				    "max_peers=1"};
#define SMALL ((int)(sizeof(small) / sizeof(small[0])))

static void start_small(struct kit *a, struct kit *b, const char *setting)
{
	const char *const settings[] = {"test.faults=1", "drain_ms=100", "control_thread=0",
					setting, NULL};

	kit_settings = settings;
	kit_start(a, "a");
	kit_start(b, "b");
	kit_settings = NULL;
}

/*
 * E04: whichever side's requests are seen first, the way of the lower incarnation comes up, alone; also
 * with room for one way only.
 */
START_TEST(of_two_ways_the_lower_incarnation_wins)
{
	uint8_t for_a[INVITATION], for_b[INVITATION], ia[16], ib[16];
	struct kit a, b, *lower, *higher;
	struct escrow_event up_lower, up_higher, down;
	uint64_t of_a, of_b, n;

	start_small(&a, &b, small[_i / 2]);
	n = invite(&a, for_b);
	ck_assert_uint_eq(invite(&b, for_a), n);
	of_a = dial(&a, for_a, n);
	of_b = dial(&b, for_b, n);
	incarnation(&a, ia);
	incarnation(&b, ib);
	lower = memcmp(ia, ib, 16) < 0 ? &a : &b;
	higher = lower == &a ? &b : &a;
	/* _i: who looks first; the other's news is kept by the kit. */
	if (_i % 2)
		up_lower = kit_wait(lower, higher, ESCROW_EV_PEER_UP);
	up_higher = kit_wait(higher, lower, ESCROW_EV_PEER_UP);
	if (_i % 2 == 0)
		up_lower = kit_wait(lower, higher, ESCROW_EV_PEER_UP);
	ck_assert_uint_eq(up_lower.object, lower == &a ? of_a : of_b);
	ck_assert_uint_ne(up_higher.object, lower == &a ? of_b : of_a);
	down = kit_wait(higher, lower, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(down.object, lower == &a ? of_b : of_a);
	ck_assert_int_eq(down.status, ESCROW_E_REFUSED);
	kit_never(lower, higher, ESCROW_EV_PEER_DOWN);
	kit_never(higher, lower, ESCROW_EV_PEER_UP);
	ck_assert_uint_eq(connections(&a), connections(&b));

	/* And it carries bytes. */
	lower->peer = up_lower.object;
	higher->peer = up_higher.object;
	n = kit_grant(higher, lower, ESCROW_MAY_WRITE, NULL);
	memset(lower->memory, 0x5a, 64);
	kit_transfer(lower, n, ESCROW_WRITE, 0, 128, 64);
	ck_assert_int_eq(kit_wait(lower, higher, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	ck_assert_int_eq(memcmp(higher->memory + 128, lower->memory, 64), 0);
	kit_close(&a, &b, false);
	kit_close(&b, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* Attempts that came to nothing do not make the other side's first one stale. */
START_TEST(failed_attempts_do_not_shut_the_other_way)
{
	uint8_t bytes[INVITATION], bad[INVITATION];
	struct kit a, b;
	uint64_t n;
	int i;

	kit_start(&a, "a");
	kit_start(&b, "b");
	n = invite(&b, bytes);
	dial(&a, bytes, n); /* uses the ticket up */
	ck_assert_uint_ne(kit_wait(&a, &b, ESCROW_EV_PEER_UP).object, 0);
	a.peer = kit_wait(&b, &a, ESCROW_EV_PEER_UP).object;
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, a.peer, 0), ESCROW_IN_PROGRESS);
	kit_wait(&a, &b, ESCROW_EV_PEER_DOWN);
	kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	for (i = 0; i < 5; i++) {
		memcpy(bad, bytes, n);
		dial(&a, bad, n);
		ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_PEER_DOWN).status, ESCROW_E_REFUSED);
	}
	kit_connect(&a, &b);
	kit_close(&a, &b, false);
	kit_close(&b, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* Places for messages that one peer does not use are not missed by the next, however many there are. */
START_TEST(each_peer_can_send_a_message)
{
	static const char *const few[] = {"test.faults=1", "max_messages=4", "max_peers=3", NULL};
	const struct escrow_notify *notify;
	struct kit a, others[3];
	struct escrow_event ev;
	char got[8];
	uint64_t peer, len;
	int i;

	kit_settings = few;
	kit_start(&a, "a");
	for (i = 0; i < 3; i++) {
		kit_start(&others[i], "other");
		kit_connect(&a, &others[i]);
	}
	notify = KIT_OPS->get_extension(a.engine, ESCROW_NOTIFY_ID);
	for (i = 2; i >= 0; i--) {
		ck_assert_int_eq(notify->send(others[i].engine, others[i].peer, "hello", 5, 7, 0),
				 ESCROW_OK);
		ev = kit_wait(&a, &others[i], ESCROW_EV_MESSAGE);
		ck_assert_uint_eq(ev.bytes, 5);
		len = sizeof(got);
		ck_assert_int_eq(notify->receive(a.engine, &peer, got, &len), ESCROW_OK);
		ck_assert_uint_eq(peer, ev.object);
		ck_assert_int_eq(kit_wait(&others[i], &a, ESCROW_EV_MESSAGE_SENT).status,
				 ESCROW_OK);
	}
	kit_settings = NULL;
	kit_close(&a, &others[0], false);
	for (i = 0; i < 3; i++)
		kit_close(&others[i], NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-meet");
	TCase *t = tcase_create("meet");

	tcase_add_loop_test(t, of_two_ways_the_lower_incarnation_wins, 0, 2 * SMALL);
	tcase_add_test(t, each_peer_can_send_a_message);
	tcase_add_test(t, failed_attempts_do_not_shut_the_other_way);
	suite_add_tcase(s, t);
	return testing_run(s);
}
