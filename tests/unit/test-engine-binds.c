/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A bind and its connection: whose fault it is that one did not come about, when the other goes at the same
 * time; and what is not done for a connection that has gone.
 */
#include <errno.h>
#include <string.h>

#include "backends/engine/engine.h"
#include "backends/mock/mock.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

#define TURNS 20000 /* no clock: who waits in vain ends after so many */

static struct kit a, b; /* a grants */

static void open_ends(const char *more)
{
	const char *settings[] = {
		"drain_ms=100", "control_thread=0", "mock.rails=2", "rail_retry_ms=50", more, NULL};

	kit_settings = settings;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_settings = NULL;
	kit_connect(&a, &b);
}

static void close_ends(void)
{
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

static struct conn *conn_of(struct kit *k, uint32_t i)
{
	return &en_peer_find(k->engine, k->peer)->conns[i];
}

/* A part of a's region for b. */
static struct grant *grant_part(void)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ,
					 .peer = a.peer,
					 .region = a.region,
					 .length = 4096};
	uint64_t grant;

	ck_assert_int_eq(KIT_OPS->grant(a.engine, &args, &grant, NULL), ESCROW_IN_PROGRESS);
	return engine_by_slot(a.engine, grant);
}

/* ---- Refused, and its connection goes ------------------------------------------------------------ */
static struct conn *refused_on; /* the bind of this one; its peer's work waits since then */
static uint32_t binds;

static int refuse_first(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	struct conn *conn = mock_conn_user(c);

	if (wr->opcode != NATIVE_BIND || binds++ > 1)
		return mock_native.post(c, wr, n, posted);
	if (binds == 1) {
		refused_on = conn;
		en_work(a.engine, &conn->peer->work);
		*posted = 0;
		return ENOMEM;
	}
	/* What a poll finds before the next round. */
	atomic_store(&refused_on->broken, 1);
	return mock_native.post(c, wr, n, posted);
}

/* The device never had that window: it is free, and nothing is stuck because its connection ended first. */
START_TEST(refused_and_its_connection_ends)
{
	open_ends(NULL);
	binds = 0;
	kit_table.post = refuse_first;
	grant_part();
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_GRANT_READY).status, ESCROW_E_DEVICE);
	ck_assert_uint_ge(binds, 2);
	kit_never(&a, &b, ESCROW_EV_QUARANTINED);
	kit_table.post = mock_native.post;
	close_ends();
}
END_TEST

/* ---- Flushed, and a runner is awake ---------------------------------------------------------------- */
static bool awake;

void __real_en_help_work(struct escrow_engine *e, struct work *work);
void __wrap_en_help_work(struct escrow_engine *e, struct work *work);

/* Whoever is the runner takes it at once. */
void __wrap_en_help_work(struct escrow_engine *e, struct work *work)
{
	if (awake && work->kind == WORK_WINDOW) {
		engine_lock(e);
		en_window_help(e, (struct window *)((char *)work - offsetof(struct window, work)));
		engine_unlock(e);
	}
	__real_en_help_work(e, work);
}

static int flush_second(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	const struct conn *conn = mock_conn_user(c);

	if (wr->opcode == NATIVE_BIND && conn->index == 1)
		ck_assert_int_eq(mock_native.conn_err(c), 0);
	return mock_native.post(c, wr, n, posted);
}

/* The second rail took the bind with it: the grant lives on the first. */
START_TEST(flushed_on_a_spare_connection)
{
	struct escrow_event ev;

	open_ends(NULL);
	kit_table.post = flush_second;
	awake = true;
	grant_part();
	ev = kit_wait(&a, &b, ESCROW_EV_GRANT_READY);
	awake = false;
	kit_table.post = mock_native.post;
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, ev.object, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED).status, ESCROW_OK);
	close_ends();
}
END_TEST

/* ---- No registration for a connection that has gone ------------------------------------------------ */
static struct native_context *full; /* registers nothing more for a grant */
static uint32_t tried;              /* for a grant */

static int register_elsewhere(struct native_context *c, const struct escrow_region_args *args,
			      struct native_region **out, struct escrow_error *error)
{
	/* A rail that comes back has memory for messages, too. */
	bool grants = args->addr == a.memory;

	tried += grants;
	return grants && c == full ? ENOMEM : mock_native.register_region(c, args, out, error);
}

static void turn(void)
{
	kit_now += 1000000;
	kit_turn(&a, &b);
}

static void lose(struct conn *c)
{
	en_conn_broken(c);
	for (int i = 0; c->stage != CONN_GONE; i++) {
		ck_assert_int_lt(i, TURNS);
		kit_turn(&a, &b);
	}
}

static void until_back(struct conn *c)
{
	for (int i = 0; c->stage != CONN_READY; i++) {
		ck_assert_int_lt(i, TURNS);
		turn();
	}
}

/*
 * Each device needs a registration of the grant's own.  That of the second could not be made when its rail
 * came back, and the rail has gone again: the grant has a part there and no window.  A poll that goes on
 * with such a grant, while there is a thread for what may sleep, registers nothing.
 */
START_TEST(nothing_is_registered_by_a_poll)
{
	struct escrow_event ev;
	struct grant *g;

	kit_inexact = true;
	open_ends("mock.contexts=2");
	kit_table.register_region = register_elsewhere;
	lose(conn_of(&a, 1));
	g = grant_part();
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_GRANT_READY).status, ESCROW_OK);
	full = a.engine->contexts[1].native;
	tried = 0;
	until_back(conn_of(&a, 1));
	for (int i = 0; !tried; i++) {
		ck_assert_int_lt(i, TURNS);
		turn();
	}
	lose(conn_of(&a, 1));
	ck_assert_uint_ne(g->parts[1], 0);
	ck_assert_uint_eq(g->exact[1].owner, 0);
	ck_assert_ptr_null(g->windows[1]);
	while (en_control_has_work(a.engine))
		en_control_run(a.engine);
	full = NULL;
	tried = 0;
	a.engine->threaded = 1; /* which sleeps: this is it */
	en_help_work(a.engine, &g->work);
	ck_assert_int_ge(KIT_OPS->poll(a.engine, &ev, 0, sizeof(ev), 0), 0);
	a.engine->threaded = 0;
	ck_assert_uint_eq(tried, 0);
	kit_table.register_region = mock_native.register_region;
	close_ends();
	kit_inexact = false;
}
END_TEST

/* ---- Refused on a connection that came back ---------------------------------------------------------- */
static int refuse_one(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	if (wr->opcode != NATIVE_BIND || binds++)
		return mock_native.post(c, wr, n, posted);
	*posted = 0;
	return ENOMEM;
}

/* The bind is refused (0), or what must be there before it (1): the grant stands, and gets its window when there is one. */
START_TEST(refused_for_a_grant_that_stands)
{
	struct grant *g;

	kit_inexact = _i == 1;
	open_ends("mock.contexts=2");
	kit_table.register_region = register_elsewhere;
	lose(conn_of(&a, 1));
	g = grant_part();
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_GRANT_READY).status, ESCROW_OK);
	binds = tried = 0;
	if (_i)
		full = a.engine->contexts[1].native;
	else
		kit_table.post = refuse_one;
	until_back(conn_of(&a, 1));
	for (int i = 0; !binds && !tried; i++) {
		ck_assert_int_lt(i, TURNS);
		turn();
	}
	full = NULL;
	for (int i = 0; !g->windows[1] || g->windows[1]->use != WINDOW_BOUND; i++) {
		ck_assert_int_lt(i, TURNS);
		turn();
	}
	kit_table.post = mock_native.post;
	kit_table.register_region = mock_native.register_region;
	close_ends();
	kit_inexact = false;
}
END_TEST

/* ---- Never bound, and the device goes --------------------------------------------------------------- */
static uint64_t granted_by(struct kit *k)
{
	struct escrow_charge charges[64];
	int32_t n = KIT_OPS->charges(k->engine, charges, 64, sizeof(charges[0]));

	for (int32_t i = 0; i < n; i++)
		if (charges[i].kind == ESCROW_CHARGE_GRANTS && !charges[i].peer_name[0])
			return charges[i].used;
	return 0;
}

static uint32_t told(struct kit *k, uint16_t kind, uint64_t object)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < k->nseen; i++)
		count += k->seen[i].kind == kind && k->seen[i].object == object;
	return count;
}

/*
 * The loss quarantines the window that the grant has set apart, and with it the grant: so it ends, and it stays
 * charged.
 */
START_TEST(set_apart_on_a_device_that_is_lost)
{
	struct escrow_grant_args args = {
		.size = sizeof(args), .rights = ESCROW_MAY_READ, .length = 4096};
	struct escrow_event ev;
	uint64_t grant;

	open_ends("test.faults=1");
	args.peer = a.peer;
	args.region = a.region;
	ck_assert_int_eq(KIT_OPS->grant(a.engine, &args, &grant, NULL), ESCROW_IN_PROGRESS);
	kit_plan(&a, "device=fatal");
	ck_assert_int_eq(KIT_OPS->close(a.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	kit_never(&a, &b, ESCROW_EV_CLOSED);
	ev = kit_wait(&a, &b, ESCROW_EV_QUARANTINED);
	while (ev.object && ev.object != grant)
		ev = kit_wait(&a, &b, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.object, grant);
	ck_assert_uint_eq(told(&a, ESCROW_EV_GRANT_REVOKED, grant), 0);
	ck_assert_uint_eq(granted_by(&a), 1);
	KIT_OPS->release(a.engine);
	a.engine = NULL;
	kit_close(&b, NULL, false);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-binds");
	TCase *t = tcase_create("binds");

	tcase_add_test(t, refused_and_its_connection_ends);
	tcase_add_test(t, flushed_on_a_spare_connection);
	tcase_add_test(t, nothing_is_registered_by_a_poll);
	tcase_add_loop_test(t, refused_for_a_grant_that_stands, 0, 2);
	tcase_add_test(t, set_apart_on_a_device_that_is_lost);
	tcase_set_timeout(t, 120);
	suite_add_tcase(s, t);
	return testing_run(s);
}
