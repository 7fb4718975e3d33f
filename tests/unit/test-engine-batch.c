/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several ops in one call, to a peer of one connection: what one of them finds, fills or loses is not the
 * next one's.  The short way of the commonest op (backends/engine/transfer.c) is among others here.
 */
#include <errno.h>
#include <string.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

extern const struct native_ops mock_native;

#define MANY 80u
#define PIECE 64u

static const char *settings_of[] = {"test.faults=1", "drain_ms=100", "control_thread=0",
				    "mock.rails=1",  NULL,           NULL};

static struct kit lender, user;
static struct escrow_sge ranges[MANY][2];
static struct escrow_op ops[MANY];
static uint64_t ids[MANY];
static uint32_t ended[MANY];
static struct escrow_event ends[MANY];

static void begin(const char *more)
{
	settings_of[4] = more;
	kit_settings = settings_of;
	kit_start(&lender, "l");
	kit_start(&user, "u");
	kit_settings = NULL;
	kit_connect(&lender, &user);
	memset(ended, 0, sizeof(ended));
}

/* Op i writes piece i, in so many ranges. */
static void write_piece(uint32_t i, uint64_t remote, uint32_t nranges)
{
	uint64_t part = PIECE / nranges;

	for (uint32_t r = 0; r < nranges; r++)
		ranges[i][r] = (struct escrow_sge){user.region, i * PIECE + r * part, part};
	ops[i] = (struct escrow_op){.user = i,
				    .remote = remote,
				    .remote_offset = i * PIECE,
				    .opcode = ESCROW_WRITE,
				    .nsge = nranges,
				    .sge = ranges[i]};
}

static int32_t submit(uint32_t n)
{
	return KIT_OPS->transfer(user.engine, ops, n, sizeof(ops[0]), 0, ids);
}

/* Each of the n ops ends once. */
static void collect(uint32_t n)
{
	struct escrow_event events[8];
	uint32_t left = n;

	for (uint32_t turn = 0; left && turn < 20000; turn++) {
		int32_t got = KIT_OPS->poll(user.engine, events, 8, sizeof(events[0]), 0);

		for (int32_t i = 0; i < got; i++) {
			if (events[i].kind != ESCROW_EV_OP_DONE)
				continue;
			ck_assert_uint_lt(events[i].user, n);
			ck_assert_uint_eq(ended[events[i].user]++, 0);
			ends[events[i].user] = events[i];
			left--;
		}
		KIT_OPS->poll(lender.engine, events, 8, sizeof(events[0]), 0);
	}
	ck_assert_uint_eq(left, 0);
}

/* All are taken, and end. */
static void run_all(uint32_t n)
{
	ck_assert_int_eq(submit(n), n);
	collect(n);
}

static bool arrived(const struct kit *at, uint32_t i)
{
	for (uint32_t b = 0; b < PIECE; b++)
		if (at->memory[i * PIECE + b] != 'u')
			return false;
	return true;
}

static uint32_t most;   /* requests in one doorbell */
static int refuse_next; /* this doorbell of data takes nothing (1 = next); 0: none */

static int watched_post(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	bool data = wr->opcode == NATIVE_WRITE;

	if (data && n > most)
		most = n;
	if (!data || !refuse_next || --refuse_next)
		return mock_native.post(c, wr, n, posted);
	*posted = 0;
	return ENOMEM;
}

static void finish(void)
{
	kit_close(&user, &lender, false);
	kit_close(&lender, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

/* What the device did not take is told so, and nothing else; what it took has moved. */
START_TEST(what_a_doorbell_refuses_is_its_own)
{
	uint64_t remote;
	uint32_t refused = 0;

	begin(NULL);
	kit_table.post = watched_post;
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	for (uint32_t i = 0; i < 70; i++)
		write_piece(i, remote, 1);
	refuse_next = 1;
	run_all(70);
	for (uint32_t i = 0; i < 70; i++) {
		bool done = ends[i].status == ESCROW_OK;

		ck_assert_int_eq(ends[i].custody, ESCROW_CUSTODY_RETURNED);
		ck_assert_int_eq(ends[i].effect,
				 done ? ESCROW_EFFECT_EXECUTED : ESCROW_EFFECT_NOT_EXECUTED);
		ck_assert_msg(done == arrived(&lender, i), "op %u: status %d", i, ends[i].status);
		refused += !done;
	}
	ck_assert_uint_eq(refused, 64);
	finish();
}
END_TEST

/* The same of ops of several slices: a doorbell takes 64 requests, so the second op has the first one's refused. */
START_TEST(what_a_doorbell_refuses_of_long_ops)
{
	uint64_t remote;

	begin("slice_bytes=4096");
	kit_table.post = watched_post;
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	for (uint32_t i = 0; i < 6; i++) {
		write_piece(i, remote, 1);
		ranges[i][0].offset = 0;
		ranges[i][0].length = 15 * 4096;
		ops[i].remote_offset = 0;
	}
	refuse_next = 1;
	run_all(6);
	/* Four whole ones of 15 slices are in the first doorbell. */
	for (uint32_t i = 0; i < 6; i++) {
		ck_assert_int_eq(ends[i].effect,
				 i < 4 ? ESCROW_EFFECT_NOT_EXECUTED : ESCROW_EFFECT_EXECUTED);
		ck_assert_int_eq(ends[i].custody, ESCROW_CUSTODY_RETURNED);
	}
	finish();
}
END_TEST

/* One op that is cut stands among others: all have their place in the chain. */
START_TEST(one_of_two_ranges_among_many)
{
	uint64_t remote;

	begin(NULL);
	kit_table.post = watched_post;
	most = 0;
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	for (uint32_t i = 0; i < 70; i++)
		write_piece(i, remote, i == 1 ? 2 : 1);
	run_all(70);
	ck_assert_uint_eq(most, 64);
	for (uint32_t i = 0; i < 70; i++) {
		ck_assert_int_eq(ends[i].status, ESCROW_OK);
		ck_assert(arrived(&lender, i));
	}
	finish();
}
END_TEST

/* With a quota each op is counted for itself; it goes to its own peer all the same. */
START_TEST(to_two_peers_under_a_quota)
{
	uint64_t to_first, to_second;
	struct kit second;

	begin("quota.ops=8");
	kit_table.post = watched_post;
	to_first = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	kit_settings = settings_of;
	kit_start(&second, "s");
	kit_settings = NULL;
	kit_connect(&second, &user);
	to_second = kit_grant(&second, &user, ESCROW_MAY_WRITE, NULL);
	write_piece(0, to_first, 1);
	write_piece(1, to_second, 1);
	run_all(2);
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_int_eq(ends[i].status, ESCROW_OK);
		ck_assert_int_eq(arrived(&lender, i), i == 0);
		ck_assert_int_eq(arrived(&second, i), i == 1);
	}
	kit_close(&user, &lender, false);
	kit_close(&second, &lender, false);
	kit_close(&lender, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* A quota that is more than there can be of ops counts them too. */
START_TEST(counts_under_a_high_quota)
{
	uint64_t remote;

	begin("quota.ops=1000000");
	kit_table.post = watched_post;
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	for (uint32_t round = 0; round < 2; round++) {
		memset(ended, 0, sizeof(ended));
		for (uint32_t i = 0; i < 5; i++)
			write_piece(i, remote, 1);
		run_all(5);
	}
	ck_assert_uint_eq(atomic_load(&user.engine->active), 0);
	ck_assert_int_eq(KIT_OPS->forget_grant(user.engine, remote), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->drain(user.engine, 0, 0, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(kit_wait(&user, &lender, ESCROW_EV_DRAINED).status, ESCROW_OK);
	finish();
}
END_TEST

/* Deadlines that pass at once are told one by one where there is one place, each before its op ends. */
START_TEST(deadlines_by_single_places)
{
	struct escrow_event ev;
	uint64_t remote;

	begin("slice_bytes=4096");
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	kit_silent = true;
	for (uint32_t i = 0; i < 5; i++) {
		write_piece(i, remote, 1);
		ops[i].deadline_ns = kit_now + 1 + i;
	}
	ranges[3][0].length = 3 * 4096; /* in slices, as one goes that is not */
	ck_assert_int_eq(submit(5), 5);
	kit_now += 100;
	for (uint32_t i = 0; i < 5; i++) {
		ck_assert_int_eq(KIT_OPS->poll(user.engine, &ev, 1, sizeof(ev), 0), 1);
		ck_assert_uint_eq(ev.kind, ESCROW_EV_OP_EXPIRED);
		ck_assert_int_eq(ev.status, ESCROW_E_TIMEOUT);
		ck_assert_uint_eq(ev.object, ids[i]);
		ck_assert_uint_eq(ev.user, i);
	}
	ck_assert_int_eq(KIT_OPS->poll(user.engine, &ev, 1, sizeof(ev), 0), 0);
	kit_silent = false;
	kit_close(&user, &lender, false);
	for (uint32_t i = 0; i < user.nseen; i++)
		ck_assert_uint_ne(user.seen[i].kind, ESCROW_EV_OP_EXPIRED);
	kit_close(&lender, NULL, false);
}
END_TEST

/* The memory of the engine's own messages has a handle, too, which the records tell: it is no region of the host. */
START_TEST(no_control_buffer_is_a_region)
{
	struct escrow_record record;
	uint64_t remote, cursor = 0, control = 0;

	begin(NULL);
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	while (KIT_OPS->records(user.engine, &cursor, &record, 1, sizeof(record)) == 1)
		if (record.kind == ESCROW_OWNER_CONTROL)
			control = record.owner;
	ck_assert_uint_ne(control, 0);
	write_piece(0, remote, 1);
	write_piece(1, remote, 1);
	ranges[1][0].region = control;
	ck_assert_int_eq(submit(2), 1);
	ck_assert_int_eq(KIT_OPS->transfer(user.engine, &ops[1], 1, sizeof(ops[1]), 0, &ids[1]),
			 ESCROW_E_INVALID);
	collect(1);
	finish();
}
END_TEST

/* No length is so long that it is taken for another: by itself, and behind one that goes. */
START_TEST(no_length_is_too_long)
{
	static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 4095, UINT64_C(1) << 63,
					   KIT_BYTES + 1};
	uint64_t remote;

	begin("slice_bytes=4096");
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		memset(ended, 0, sizeof(ended));
		write_piece(0, remote, 1);
		write_piece(1, remote, 1);
		ranges[1][0].length = lengths[i];
		ck_assert_int_eq(
			KIT_OPS->transfer(user.engine, &ops[1], 1, sizeof(ops[1]), 0, &ids[1]),
			ESCROW_E_INVALID);
		ck_assert_int_eq(submit(2), 1);
		collect(1);
	}
	finish();
}
END_TEST

/* Each life of an op's slot has a handle of its own, also when their numbers begin anew. */
START_TEST(lives_are_told_apart)
{
	struct escrow_engine *e;
	uint64_t remote, before;

	begin("max_ops=4");
	e = user.engine;
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	for (uint32_t i = 0; i < 4; i++)
		atomic_store(&e->op_table[i].handle,
			     UINT64_C(0x7f) << 56 | (uint64_t)UINT32_MAX << 24 | i);
	write_piece(0, remote, 1);
	run_all(1);
	before = ids[0];
	ck_assert_uint_eq(before >> 24, UINT64_C(0x7f) << 32 | UINT32_MAX);
	memset(ended, 0, sizeof(ended));
	for (uint32_t i = 0; i < 4; i++)
		write_piece(i, remote, 1);
	kit_silent = true;
	ck_assert_int_eq(submit(4), 4);
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert_uint_eq(ids[i] >> 56, 0x7f);
		ck_assert_uint_ne(ids[i], before);
		ck_assert_int_eq(KIT_OPS->cancel(e, ids[i], 0), ESCROW_IN_PROGRESS);
	}
	ck_assert_int_eq(KIT_OPS->cancel(e, before, 0), ESCROW_E_INVALID);
	kit_silent = false;
	finish();
}
END_TEST

/* That an op was canceled is not the next one's, which has its slot. */
START_TEST(a_cancel_is_of_one_life)
{
	uint64_t remote;

	begin("max_ops=1");
	kit_table.post = watched_post;
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	for (uint32_t life = 0; life < 2; life++) {
		memset(ended, 0, sizeof(ended));
		write_piece(0, remote, 1);
		refuse_next = life; /* as if the device had refused it */
		ck_assert_int_eq(submit(1), 1);
		if (life == 0)
			ck_assert_int_eq(KIT_OPS->cancel(user.engine, ids[0], 0),
					 ESCROW_IN_PROGRESS);
		collect(1);
	}
	ck_assert_int_eq(ends[0].status, ESCROW_E_DEVICE);
	finish();
}
END_TEST

/* The lane that keeps slots of ops that have ended; there is one. */
static struct lane *keeper(void)
{
	struct escrow_engine *e = user.engine;
	struct lane *found = NULL;

	for (uint32_t i = 0; i < e->nlanes; i++) {
		if (e->lanes[i].slots == POOL_NONE)
			continue;
		ck_assert_ptr_null(found);
		found = &e->lanes[i];
	}
	ck_assert_ptr_nonnull(found);
	return found;
}

/* An op of two ranges takes its slot from the pool: where that is empty, what lanes keep comes back, when they are free. */
START_TEST(a_lane_gives_back_what_it_keeps)
{
	uint64_t remote;
	struct lane *lane;

	begin("max_ops=1");
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	for (uint32_t busy = 0; busy < 2; busy++) {
		memset(ended, 0, sizeof(ended));
		write_piece(0, remote, 1);
		run_all(1);
		lane = keeper();
		memset(ended, 0, sizeof(ended));
		write_piece(0, remote, 2);
		if (busy) {
			ck_assert(en_lane_trylock(lane));
			ck_assert_int_eq(submit(1), ESCROW_E_AGAIN);
			en_lane_unlock(lane);
			kit_wait(&user, &lender, ESCROW_EV_ROOM);
		}
		run_all(1);
		ck_assert_int_eq(ends[0].status, ESCROW_OK);
	}
	finish();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-batch");
	TCase *t = tcase_create("batch");

	tcase_add_test(t, what_a_doorbell_refuses_is_its_own);
	tcase_add_test(t, what_a_doorbell_refuses_of_long_ops);
	tcase_add_test(t, one_of_two_ranges_among_many);
	tcase_add_test(t, to_two_peers_under_a_quota);
	tcase_add_test(t, counts_under_a_high_quota);
	tcase_add_test(t, deadlines_by_single_places);
	tcase_add_test(t, no_control_buffer_is_a_region);
	tcase_add_test(t, no_length_is_too_long);
	tcase_add_test(t, lives_are_told_apart);
	tcase_add_test(t, a_cancel_is_of_one_life);
	tcase_add_test(t, a_lane_gives_back_what_it_keeps);
	suite_add_tcase(s, t);
	return testing_run(s);
}
