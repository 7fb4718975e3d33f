/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * E04 on devices, with control threads: two engines that connect to each other, at once and one a little
 * later.  Whatever is seen first where, one set of connections comes up, on both sides; also where a
 * quota has room for one only.  test-engine-meet.c says which one wins, step by step.
 */
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/rdma-kit.h"

#define ROUNDS 12

static struct end a, b;

/* OK: it has started; else what connect said at once. */
static escrow_status dial(struct end *e, const char *name, const uint8_t *buf, uint64_t len)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_peer_args args = {
		.size = sizeof(args), .peer_name = name, .invitation = buf, .invitation_len = len};
	uint64_t peer = 0;
	escrow_status st = OPS->connect(e->engine, &args, &peer, &error);

	return st == ESCROW_IN_PROGRESS ? ESCROW_OK : st;
}

static uint32_t seen(const struct end *e, uint16_t kind)
{
	uint32_t i, n = 0;

	for (i = 0; i < e->nseen; i++)
		n += e->seen[i].kind == kind;
	return n;
}

static uint64_t up(const struct end *e)
{
	uint32_t i;

	for (i = 0; e->seen[i].kind != ESCROW_EV_PEER_UP; i++)
		ck_assert_uint_lt(i + 1, e->nseen);
	return e->seen[i].object;
}

/* One set came up and holds; each attempt of a loser ended with its one event. */
static void one_set(uint32_t attempts)
{
	uint64_t set, grant, remote, len;
	uint8_t buf[4096];

	while (!seen(&a, ESCROW_EV_PEER_UP) || !seen(&b, ESCROW_EV_PEER_UP) ||
	       seen(&a, ESCROW_EV_PEER_DOWN) + seen(&b, ESCROW_EV_PEER_DOWN) < attempts - 1)
		ends_turn();
	ck_assert_uint_eq(seen(&a, ESCROW_EV_PEER_UP), 1);
	ck_assert_uint_eq(seen(&b, ESCROW_EV_PEER_UP), 1);
	ck_assert_uint_eq(seen(&a, ESCROW_EV_PEER_LOST) + seen(&b, ESCROW_EV_PEER_LOST), 0);
	set = end_used(&a, ESCROW_CHARGE_CONNECTIONS);
	ck_assert_uint_gt(set, 0);
	ck_assert_uint_eq(end_used(&b, ESCROW_CHARGE_CONNECTIONS), set);
	len = end_grant(&a, up(&a), 0, 4096, ESCROW_MAY_WRITE, buf, sizeof(buf), &grant);
	remote = end_import(&b, up(&b), buf, len);
	ck_assert_int_eq(end_move(&b, remote, ESCROW_WRITE, 0, 0, 4096).status, ESCROW_OK);
	ck_assert_mem_eq(a.memory, b.memory, 4096);
}

static void round_of(const char *const *settings, int turns, bool room)
{
	uint8_t for_a[4096], for_b[4096];
	uint32_t attempts = 1;
	escrow_status st;
	uint64_t na, nb;

	end_open(&a, 'a', settings);
	end_open(&b, 'b', settings);
	nb = end_invite(&a, "other", for_b, sizeof(for_b));
	na = end_invite(&b, "other", for_a, sizeof(for_a));
	ck_assert_int_eq(dial(&a, "other", for_a, na), ESCROW_OK);
	while (turns--)
		ends_turn();
	st = dial(&b, "other", for_b, nb);
	if (st == ESCROW_OK)
		attempts++;
	else /* the other's set is there, and the quota full */
		ck_assert(!room && st == ESCROW_E_QUOTA);
	one_set(attempts);
	end_close(&a);
	end_close(&b);
}

/* E04 */
START_TEST(at_once)
{
	int i;

	for (i = 0; i < ROUNDS; i++)
		round_of(NULL, 0, true);
}
END_TEST

/* As many connections as one set has: the loser's attempt holds them when the winner asks. */
START_TEST(with_room_for_one_set)
{
	static const char *const settings[] = {"num_lanes=1", "max_rails=1",
					       "peer_quota.connections=1", NULL};
	int i;

	for (i = 0; i < ROUNDS; i++)
		round_of(settings, i % 4, false);
}
END_TEST

int main(void)
{
	Suite *s;
	TCase *t;
	char why[256];

	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	s = suite_create("rdma-meet");
	t = tcase_create("meet");
	tcase_set_timeout(t, 240);
	tcase_add_test(t, at_once);
	tcase_add_test(t, with_room_for_one_set);
	suite_add_tcase(s, t);
	return testing_run(s);
}
