/* SPDX-License-Identifier: BSD-2-Clause */
/* Two senders and one entry for messages: who was refused is told ROOM, whoever else comes between. */
#include "backends/engine/pool.h"
static uint32_t take(struct pool *p);
#define pool_take take
#include "backends/engine/notify.c"
#undef pool_take
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

static struct kit a, b;
static uint32_t looks; /* until another thread puts an entry back: that of the slot */
static uint32_t slot;

static uint32_t take(struct pool *p)
{
	if (looks && --looks == 0)
		pool_give(p, slot);
	return pool_take(p);
}

static escrow_status send(void)
{
	return notify_send(b.engine, b.peer, "x", 1, 0, 0);
}

/* The second sender finds at its second look what was given back after its first.  Whoever gave it has not looked yet
 * whether one is wanted, and what the first sender wants stands until it is told. */
START_TEST(one_entry_for_two)
{
	struct pool *out;

	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	out = &b.engine->notify->out.pool;
	slot = pool_take(out);
	while (pool_take(out) != POOL_NONE)
		;
	ck_assert_int_eq(send(), ESCROW_E_AGAIN);
	looks = 2;
	ck_assert_int_eq(send(), ESCROW_OK);
	ck_assert_uint_eq(looks, 0);
	kit_wait(&b, &a, ESCROW_EV_MESSAGE_SENT);
	kit_wait(&b, &a, ESCROW_EV_ROOM);
	ck_assert_int_eq(send(), ESCROW_OK);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-room");
	TCase *t = tcase_create("room");

	tcase_add_test(t, one_entry_for_two);
	suite_add_tcase(s, t);
	return testing_run(s);
}
