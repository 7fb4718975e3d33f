/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pool of windows over a device that gives the last freed index again, with tags that start anew:
 * on a connection no key is given twice, however many grants there are, and the pool comes back with it.
 */
#include <stdlib.h>
#include <string.h>

#include "backends/engine/engine.h"
#include "backends/mock/mock.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

#define BINDS 255u /* of a window, which then is freed */
#define RAILS 2    /* the mock's; a window on each for each grant */

static struct kit a, b; /* a grants */
static int live;        /* windows of the device */
static uint16_t *given; /* by key: where it was bound last, connection and epoch */

static int count_alloc(struct native_context *c, struct native_window **out)
{
	int rc = mock_native.alloc_window(c, out);

	live += rc == 0;
	return rc;
}

static int count_dealloc(struct native_window *w)
{
	int rc = mock_native.dealloc_window(w);

	live -= rc == 0;
	return rc;
}

static int watch_post(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	const struct conn *conn = mock_native.conn_user(c);
	uint16_t at = (uint16_t)(atomic_load(&conn->epoch) * RAILS + conn->index + 1);

	for (uint32_t i = 0; i < n; i++)
		if (wr[i].opcode == NATIVE_BIND) {
			ck_assert_uint_lt(wr[i].rkey, 1u << 24);
			ck_assert_msg(given[wr[i].rkey] != at, "key 0x%x again", wr[i].rkey);
			given[wr[i].rkey] = at;
		}
	return mock_native.post(c, wr, n, posted);
}

static void open_ends(void)
{
	static const char *const settings[] = {"drain_ms=100", "control_thread=0", "max_grants=1",
					       NULL};

	given = calloc(1u << 24, sizeof(*given));
	kit_settings = settings;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_table.alloc_window = count_alloc;
	kit_table.dealloc_window = count_dealloc;
	kit_table.post = watch_post;
	live = 0;
}

static void close_ends(void)
{
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_int_eq(live, 0);
	free(given);
}

/* Granted and taken back; or what it was refused with. */
static escrow_status come_and_go(void)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ,
					 .peer = a.peer,
					 .region = a.region,
					 .length = 4096};
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t grant;
	escrow_status st = KIT_OPS->grant(a.engine, &args, &grant, &error);

	if (st < 0)
		return st;
	kit_now += 1000000;
	st = kit_wait(&a, &b, ESCROW_EV_GRANT_READY).status;
	if (st < 0)
		return st;
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grant, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED).status, ESCROW_OK);
	return ESCROW_OK;
}

static void connect_ends(void)
{
	memset(given, 0, (1u << 24) * sizeof(*given));
	kit_connect(&a, &b);
}

static void disconnect_ends(void)
{
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
	kit_wait(&a, &b, ESCROW_EV_PEER_DOWN);
}

/* R16: what was put aside because its index was held out is used when the hold-out has ended. */
START_TEST(put_aside_and_back)
{
	open_ends();
	for (int turn = 0; turn < 4; turn++) {
		connect_ends();
		/* One index a rail is worn; the device gives it again, and another. */
		for (uint32_t i = 0; i <= BINDS; i++)
			ck_assert_int_eq(come_and_go(), ESCROW_OK);
		ck_assert_int_le(live, 2 * RAILS);
		disconnect_ends();
	}
	close_ends();
}
END_TEST

static uint64_t renewed(const struct kit *k)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < RAILS; i++)
		n += atomic_load(&k->engine->counters.rail_renewed[i]);
	return n;
}

/* R16: a connection has as many keys as the pool has indexes; before they are used up, another takes its place. */
START_TEST(never_worn_out)
{
	/* The pool has a window a rail and 64: half of what is not in use wears, time and again. */
	uint32_t worn = (RAILS + 64 - RAILS) / 2;

	open_ends();
	connect_ends();
	for (uint32_t i = 0; i < 4 * worn / RAILS * BINDS; i++)
		ck_assert_int_eq(come_and_go(), ESCROW_OK);
	ck_assert_uint_ge(renewed(&a), 3);
	/* And not much earlier than it must be. */
	ck_assert_uint_le(renewed(&a), 4 * RAILS);
	ck_assert_int_le(live, RAILS + 64);
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	disconnect_ends();
	close_ends();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-windows");
	TCase *t = tcase_create("pool");

	tcase_set_timeout(t, 240);
	tcase_add_test(t, put_aside_and_back);
	tcase_add_test(t, never_worn_out);
	suite_add_tcase(s, t);
	return testing_run(s);
}
