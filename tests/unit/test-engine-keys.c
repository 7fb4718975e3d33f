/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The keys of a connection that came back: an importer that has none is told one, or that there is none to
 * come, whatever went amiss when it asked; and what a grant costs that gets no window there.
 */
#include <errno.h>

#include "backends/mock/mock.h"
#include "tests/lib/testing.h"
#include "tests/unit/renew-kit.h"

#define HUNDREDS 200u /* more than WIRE_ASKS, which are answered at once */
#define RETRY_MS 50u

static uint32_t asks;  /* KEY_ASKs that an owner dealt with */
static uint32_t takes; /* looks for a window */

void __real_en_keys_asked(struct escrow_engine *e, struct peer *p, const struct wire_message *m);
void __wrap_en_keys_asked(struct escrow_engine *e, struct peer *p, const struct wire_message *m);
void __wrap_en_keys_asked(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	asks++;
	__real_en_keys_asked(e, p, m);
}

struct window *__real_en_window_take(struct escrow_engine *e, const struct conn *conn);
struct window *__wrap_en_window_take(struct escrow_engine *e, const struct conn *conn);
struct window *__wrap_en_window_take(struct escrow_engine *e, const struct conn *conn)
{
	takes++;
	return __real_en_window_take(e, conn);
}

static void start(const char *rails)
{
	const char *settings[] = {rails,
				  "drain_ms=100",
				  "control_thread=0",
				  "rail_retry_ms=50",
				  "connect_ms=1000",
				  "max_grants=256",
				  "max_peer_grants=256",
				  "recv_depth=256",
				  NULL};

	kit_settings = settings;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_settings = NULL;
	kit_connect(&a, &b);
	asks = takes = 0;
}

static void end(void)
{
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	kit_never(&b, &a, ESCROW_EV_PEER_LOST);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

/* The only connection is renewed, as far as there is none. */
static void without_a_connection(void)
{
	for (uint32_t i = 0; i < 2 * RETRY_MS; i++)
		renew_turn();
	renew_wear(&b, 0);
	renew_until(&renew_conn_of(&a, 0)->renew, RENEW_DRAINED);
}

static void it_is_back(void)
{
	renew_until_renewed(&a, 1);
	renew_until_renewed(&b, 1);
}

/* Both ends know of it. */
static void lose(uint32_t i)
{
	struct conn *of_a = renew_conn_of(&a, i), *of_b = renew_conn_of(&b, i);

	en_conn_broken(of_a);
	en_conn_broken(of_b);
	renew_until(&of_a->stage, CONN_GONE);
	renew_until(&of_b->stage, CONN_GONE);
}

/* Who is refused by AGAIN has its ROOM, and then hears that the grant is no more. */
static void is_told(uint64_t remote)
{
	int32_t n;

	while ((n = renew_submit(&b, remote, ESCROW_WRITE, 0, 64)) == ESCROW_E_AGAIN)
		renew_wait_turning(&b, ESCROW_EV_ROOM);
	ck_assert_int_eq(n, ESCROW_E_ACCESS);
	ck_assert_int_eq(KIT_OPS->forget_grant(b.engine, remote), ESCROW_OK);
}

/* ---- Asked for while there is a grant, and no key ------------------------------------------------- */
static bool hold;   /* the completions of a's binds are kept back */
static bool refuse; /* a's binds are not taken */
static uint64_t ids[16];
static uint32_t nids;
static struct native_cqe held[16];
static uint32_t nheld;

static int post(struct native_conn *conn, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	const struct conn *c = mock_native.conn_user(conn);

	if (wr->opcode == NATIVE_BIND && c->peer->e == a.engine && refuse) {
		*posted = 0;
		return ENOMEM;
	}
	for (uint32_t i = 0; i < n && c->peer->e == a.engine && hold; i++)
		if (wr[i].opcode == NATIVE_BIND) {
			ck_assert_uint_lt(nids, 16);
			ids[nids++] = wr[i].id;
		}
	return mock_native.post(conn, wr, n, posted);
}

static bool is_held(const struct native_cqe *cqe)
{
	for (uint32_t i = 0; i < nids; i++)
		if (ids[i] == cqe->id)
			return true;
	return false;
}

static int poll_cq(struct native_lane *l, struct native_cqe *cqe, int max)
{
	int n, left = 0;

	if (l != a.engine->lanes[0].native)
		return mock_native.poll_cq(l, cqe, max);
	if (!hold && nheld) {
		nids = 0;
		cqe[0] = held[--nheld];
		return 1;
	}
	n = mock_native.poll_cq(l, cqe, max);
	for (int i = 0; i < n; i++)
		if (is_held(&cqe[i]))
			held[nheld++] = cqe[i];
		else
			cqe[left++] = cqe[i];
	return left;
}

static void meddle(bool holds, bool refuses)
{
	hold = holds;
	refuse = refuses;
}

/* Its window is being bound, or could not be: there is no key to tell, and then nobody who would tell it. */
START_TEST(taken_back_before_there_was_a_key)
{
	uint64_t grant, remote;

	start("mock.rails=1");
	kit_table.post = post;
	kit_table.poll_cq = poll_cq;
	grant = renew_lend(&a, 0, 64, &remote);
	without_a_connection();
	meddle(_i == 0, _i == 1);
	it_is_back();
	for (int i = 0; !asks; i++) {
		ck_assert_int_lt(i, RENEW_TURNS);
		renew_turn();
	}
	ck_assert_int_eq(renew_submit(&b, remote, ESCROW_WRITE, 0, 64), ESCROW_E_AGAIN);
	ck_assert(_i == 1 || nheld == 1);
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grant, 0), ESCROW_IN_PROGRESS);
	meddle(false, false);
	ck_assert_int_eq(renew_wait_turning(&a, ESCROW_EV_GRANT_REVOKED).status, ESCROW_OK);
	is_told(remote);
	end();
}
END_TEST

/*
 * The connection that came back got no key, but there was another one, so that it was not asked for then.  Now that
 * other one is lost, and stays away.
 */
START_TEST(the_last_key_is_lost)
{
	uint64_t grant, remote;

	start("mock.rails=2");
	kit_table.post = post;
	kit_table.poll_cq = poll_cq;
	grant = renew_lend(&a, 0, 64, &remote);
	meddle(false, true);
	renew_wear(&b, 0);
	it_is_back();
	for (uint32_t i = 0; i < 2 * RETRY_MS; i++)
		renew_turn();
	ck_assert_uint_eq(asks, 0);
	atomic_store(&b.engine->rail_up[1], 0); /* it does not try again */
	lose(1);
	ck_assert_int_eq(renew_submit(&b, remote, ESCROW_WRITE, 0, 64), ESCROW_E_AGAIN);
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grant, 0), ESCROW_IN_PROGRESS);
	meddle(false, false);
	ck_assert_int_eq(renew_wait_turning(&a, ESCROW_EV_GRANT_REVOKED).status, ESCROW_OK);
	is_told(remote);
	end();
}
END_TEST

/* It comes at last: whoever waits for it is told. */
START_TEST(bound_at_last)
{
	uint64_t remote;

	start("mock.rails=1");
	kit_table.post = post;
	kit_table.poll_cq = poll_cq;
	renew_lend(&a, 0, 64, &remote);
	without_a_connection();
	meddle(_i == 0, _i == 1);
	it_is_back();
	ck_assert_int_eq(renew_submit(&b, remote, ESCROW_WRITE, 0, 64), ESCROW_E_AGAIN);
	for (uint32_t i = 0; i < 10 * RETRY_MS; i++)
		renew_turn();
	ck_assert_int_eq(renew_submit(&b, remote, ESCROW_WRITE, 0, 64), ESCROW_E_AGAIN);
	meddle(false, false);
	renew_move(&b, remote, ESCROW_WRITE, 0, 64);
	end();
}
END_TEST

/* One of three came back before the grant was imported: the owner tells its key, and none is taken for another's. */
START_TEST(imported_late)
{
	uint64_t grant, remote, len = 4096;
	uint8_t bytes[4096];

	start("mock.rails=3");
	grant = renew_grant_of(&a, 0, 4096);
	ck_assert_int_eq(renew_wait_turning(&a, ESCROW_EV_GRANT_READY).status, ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->export_grant(a.engine, grant, bytes, &len), ESCROW_OK);
	renew_wear(&b, 2);
	it_is_back();
	ck_assert_int_eq(KIT_OPS->import_grant(b.engine, b.peer, bytes, len, 0, &remote, NULL),
			 ESCROW_OK);
	for (uint32_t i = 0; i < RETRY_MS; i++)
		renew_turn();
	ck_assert_uint_eq(asks, 1);
	for (uint32_t i = 0; i < 3; i++) { /* each alone */
		for (uint32_t k = 0; k < 3; k++)
			atomic_store(&b.engine->rail_up[k], k == i);
		for (uint32_t k = 0; k < 3; k++)
			en_conn_gate(b.engine, renew_conn_of(&b, k));
		renew_move(&b, remote, ESCROW_WRITE, 0, 64);
		ck_assert_uint_eq(atomic_load(&b.engine->counters.rail_bytes[i]), 64);
	}
	renew_take_back(&a, grant);
	end();
}
END_TEST

/* ---- More than are answered at once ------------------------------------------------------------------ */
static uint64_t grants[HUNDREDS], remotes[HUNDREDS];

static void lend_hundreds(void)
{
	for (uint32_t i = 0; i < HUNDREDS; i++)
		grants[i] = renew_lend(&a, i * 64, 64, &remotes[i]);
}

/* All of them asked for at once, of grants that are no more: each is told of it. */
START_TEST(gone_by_the_hundred)
{
	start("mock.rails=1");
	lend_hundreds();
	without_a_connection();
	for (uint32_t i = 0; i < HUNDREDS; i++)
		ck_assert_int_eq(KIT_OPS->revoke(a.engine, grants[i], 0), ESCROW_IN_PROGRESS);
	while (!renew_renewed(&a) || !renew_renewed(&b)) {
		renew_turn();
		a.nseen = 0; /* each is revoked */
	}
	for (uint32_t i = 0; i < HUNDREDS; i++)
		kit_turn(&b, NULL);
	ck_assert_uint_lt(asks, HUNDREDS - WIRE_ASKS);
	kit_turn(&a, NULL);
	ck_assert_uint_eq(asks, HUNDREDS);
	while (a.nseen) {
		a.nseen = 0;
		kit_turn(&a, NULL);
	}
	for (uint32_t i = 0; i < HUNDREDS; i++)
		is_told(remotes[i]);
	end();
}
END_TEST

/* Nobody waits for them: they are not asked for again. */
START_TEST(not_asked_for_in_vain)
{
	uint64_t remote;

	start("mock.rails=1");
	kit_table.post = post;
	renew_lend(&a, 0, 64, &remote);
	without_a_connection();
	meddle(false, true);
	it_is_back();
	for (uint32_t i = 0; i < 10 * RETRY_MS; i++)
		renew_turn();
	ck_assert_uint_eq(asks, 1);
	/* And then once in a while. */
	ck_assert_int_eq(renew_submit(&b, remote, ESCROW_WRITE, 0, 64), ESCROW_E_AGAIN);
	for (uint32_t i = 0; i < 10 * RETRY_MS; i++)
		renew_turn();
	ck_assert_uint_ge(asks, 2);
	ck_assert_uint_le(asks, 1 + 10);
	meddle(false, false);
	renew_move(&b, remote, ESCROW_WRITE, 0, 64);
	end();
}
END_TEST

/* ---- No window ------------------------------------------------------------------------------------------- */
/* What one grant does not get there no other does: of each try the first one ends it. */
START_TEST(one_look_for_a_window)
{
	struct context *c;
	struct window *parked, *aside, *none;
	uint32_t i;

	start("mock.rails=1");
	lend_hundreds();
	without_a_connection();
	c = &a.engine->contexts[0];
	parked = c->parked;
	aside = c->aside;
	none = a.engine->window_free;
	c->parked = c->aside = a.engine->window_free = NULL;
	takes = 0;
	it_is_back();
	ck_assert_uint_eq(takes, 1);
	for (i = 0; i < 10 * RETRY_MS; i++)
		renew_turn();
	ck_assert_uint_ge(takes, 2);
	ck_assert_uint_le(takes, 1 + 10);
	c->parked = parked;
	c->aside = aside;
	a.engine->window_free = none;
	for (i = 0; i < HUNDREDS; i++) {
		renew_move(&b, remotes[i], ESCROW_WRITE, 0, 64);
		renew_take_back(&a, grants[i]);
	}
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-keys");
	TCase *t = tcase_create("keys");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, taken_back_before_there_was_a_key, 0, 2);
	tcase_add_test(t, the_last_key_is_lost);
	tcase_add_loop_test(t, bound_at_last, 0, 2);
	tcase_add_test(t, imported_late);
	tcase_add_test(t, gone_by_the_hundred);
	tcase_add_test(t, not_asked_for_in_vain);
	tcase_add_test(t, one_look_for_a_window);
	suite_add_tcase(s, t);
	return testing_run(s);
}
