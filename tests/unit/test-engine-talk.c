/* SPDX-License-Identifier: BSD-2-Clause */
/* What two engines say to each other when one of them is late, says it wrong, or is not heard. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

#include <escrow/notify.h>

extern const struct native_ops mock_native;

#define TURNS 20000 /* no clock: who waits in vain ends after so many */

static struct kit a, b;

static void start_with(const char *more)
{
	const char *settings[] = {"test.faults=1",
				  "drain_ms=100",
				  "control_thread=0",
				  "mock.rails=2",
				  "rail_retry_ms=50",
				  more,
				  NULL};

	kit_settings = settings;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_settings = NULL;
}

static void end(void)
{
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

static struct peer *peer_of(struct kit *k)
{
	struct peer *p = en_peer_find(k->engine, k->peer);

	ck_assert_ptr_nonnull(p);
	return p;
}

static void turn(void)
{
	kit_now += 1000000;
	kit_turn(&a, &b);
}

static void until_back(struct kit *k, uint32_t rail, uint64_t times)
{
	int i;

	for (i = 0; atomic_load(&k->engine->counters.rail_back[rail]) < times; i++) {
		ck_assert_int_lt(i, TURNS);
		turn();
	}
}

/* ---- Coming up, and back ------------------------------------------------------------------------- */
static int spoil; /* answers that are still to be spoiled */

/* Answers as the engine of another epoch. */
static int spoiled_accept(struct native_conn *n, struct native_request *request, const void *data,
			  uint32_t len)
{
	uint8_t other[NATIVE_PRIVATE_BYTES];
	struct wire_hello h;

	if (spoil == 0)
		return mock_native.accept(n, request, data, len);
	spoil--;
	ck_assert_int_eq(wire_hello_get(data, len, &h), ESCROW_OK);
	h.epoch += 7;
	wire_hello_put(&h, other);
	return mock_native.accept(n, request, other, sizeof(other));
}

/* The answer to one connection that comes back is not its peer's: it is asked again, and the rest goes on. */
START_TEST(a_wrong_answer_to_a_rejoin)
{
	uint64_t remote;

	start_with(NULL);
	kit_table.accept = spoiled_accept;
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_WRITE, NULL);
	spoil = 2;
	en_conn_broken(&peer_of(&b)->conns[1]);
	until_back(&b, 1, 1);
	ck_assert_int_eq(spoil, 0);
	kit_never(&b, &a, ESCROW_EV_PEER_LOST);
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	end();
}
END_TEST

/* To the first set it is: nothing is known of that peer but what it says there. */
START_TEST(a_wrong_answer_to_a_request)
{
	start_with(NULL);
	kit_table.accept = spoiled_accept;
	spoil = 1;
	kit_ask(&a, &b);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_PEER_DOWN).status, ESCROW_E_STALE_EPOCH);
	end();
}
END_TEST

/* Of a peer that came by an invitation the host learns by PEER_UP: if it goes before that, by nothing. */
START_TEST(a_guest_that_never_came_up)
{
	int i;

	start_with("max_peers=1");
	kit_ask(&a, &b);
	kit_turn(&b, NULL);
	for (i = 0; atomic_load(&a.engine->peers[0].state) != PEER_CONNECTING; i++) {
		ck_assert_int_lt(i, TURNS);
		kit_turn(&a, NULL);
	}
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_PEER_DOWN).status, ESCROW_OK);
	while (atomic_load(&a.engine->peers[0].state) != PEER_DOWN)
		turn();
	kit_never(&a, &b, ESCROW_EV_PEER_UP);
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	kit_never(&a, &b, ESCROW_EV_PEER_DOWN);
	/* Its place is free again. */
	kit_connect(&a, &b);
	end();
}
END_TEST

/* ---- Messages that are lost ------------------------------------------------------------------------ */
static const struct native_conn
	*muted; /* what is sent on it goes nowhere, and no completion comes */

static int post(struct native_conn *at, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	if (at != muted)
		return mock_native.post(at, wr, n, posted);
	*posted = n;
	return 0;
}

static const struct escrow_notify *notes(struct kit *k)
{
	const struct escrow_notify *x = KIT_OPS->get_extension(k->engine, ESCROW_NOTIFY_ID);

	ck_assert_ptr_nonnull(x);
	return x;
}

/* One message from b to a. */
static void note(uint32_t number)
{
	uint32_t text = 0;
	uint64_t peer, len;
	escrow_status st;
	int i;

	ck_assert_int_eq(notes(&b)->send(b.engine, b.peer, &number, sizeof(number), 0, 0),
			 ESCROW_OK);
	for (i = 0;; i++) {
		len = sizeof(text);
		st = notes(&a)->receive(a.engine, &peer, &text, &len);
		if (st != ESCROW_E_AGAIN)
			break;
		ck_assert_int_lt(i, TURNS);
		turn();
	}
	ck_assert_int_eq(st, ESCROW_OK);
	ck_assert_uint_eq(text, number);
	a.nseen = b.nseen = 0;
}

/*
 * b sends on rail 0, a on rail 1.  What a says there of its room on rail 0 is lost, time and again: b is
 * told of that room all the same, and never stops.
 */
START_TEST(credits_are_lost_with_a_rail)
{
	uint32_t round, k, number = 0;

	start_with("recv_depth=8");
	kit_table.post = post;
	kit_connect(&a, &b);
	for (round = 1; round <= 8; round++) {
		peer_of(&a)->channel.rail = 1;
		muted = peer_of(&a)->conns[1].native;
		for (k = 0; k < 4; k++) /* as many as it may start unheard */
			note(number++);
		ck_assert_uint_eq(peer_of(&b)->channel.rail, 0);
		muted = NULL;
		en_conn_broken(&peer_of(&a)->conns[1]);
		until_back(&b, 1, round);
		until_back(&a, 1, round);
	}
	kit_never(&b, &a, ESCROW_EV_PEER_LOST);
	end();
}
END_TEST

static const struct native_conn *unwilling; /* it refuses the next receive */

static int post_recv(struct native_conn *at, uint64_t id, struct native_region *region,
		     uint64_t addr, uint32_t length)
{
	if (at != unwilling)
		return mock_native.post_recv(at, id, region, addr, length);
	unwilling = NULL;
	return ENOMEM;
}

/* A connection that takes no receive for one that was taken goes, and comes back with all of them: messages never stop. */
START_TEST(a_receive_is_refused)
{
	uint32_t round;

	start_with("recv_depth=8");
	kit_connect(&a, &b);
	kit_table.post_recv = post_recv;
	for (round = 0; round < 20; round++) {
		struct conn *c = &peer_of(&a)->conns[peer_of(&b)->channel.rail];
		uint64_t times = atomic_load(&a.engine->counters.rail_back[c->rail]);

		unwilling = c->native;
		note(round);
		ck_assert_ptr_null(unwilling);
		until_back(&a, c->rail, times + 1);
		until_back(&b, c->rail, times + 1);
	}
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	kit_never(&b, &a, ESCROW_EV_PEER_LOST);
	end();
}
END_TEST

/* ---- Keys ------------------------------------------------------------------------------------------- */
/* Of a grant of a's memory to b. */
static uint64_t export(uint8_t *buf, uint64_t size)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_WRITE,
					 .peer = a.peer,
					 .region = a.region,
					 .length = KIT_BYTES};
	uint64_t grant, len = size;

	ck_assert_int_eq(KIT_OPS->grant(a.engine, &args, &grant, NULL), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_GRANT_READY).status, ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->export_grant(a.engine, grant, buf, &len), ESCROW_OK);
	return len;
}

/* Ops of two slices, which go to the two rails when both can be used. */
static void uses_rail_1(uint64_t remote)
{
	uint64_t before = atomic_load(&b.engine->counters.rail_bytes[1]);

	kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 8192);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	ck_assert_uint_eq(atomic_load(&b.engine->counters.rail_bytes[1]), before + 4096);
}

/* A rail comes back between export and import: who has the old bytes gets the new key all the same. */
START_TEST(a_grant_that_is_imported_late)
{
	uint64_t remote, len;
	uint8_t buf[4096];

	start_with("slice_bytes=4096");
	kit_connect(&a, &b);
	len = export(buf, sizeof(buf));
	en_conn_broken(&peer_of(_i ? &a : &b)->conns[1]);
	until_back(&b, 1, 1);
	until_back(&a, 1, 1);
	kit_never(&a, &b, ESCROW_EV_PEER_LOST); /* its key was told, to nobody */
	ck_assert_int_eq(KIT_OPS->import_grant(b.engine, b.peer, buf, len, 0, &remote, NULL),
			 ESCROW_OK);
	kit_never(&b, &a, ESCROW_EV_PEER_LOST); /* asked and answered */
	uses_rail_1(remote);
	end();
}
END_TEST

/* ---- One end is up before the other ---------------------------------------------------------------- */
static int held = -1;            /* a's connection that is said to be up late */
static struct native_event late; /* .kind 0: none is kept */

static int next_event(struct native *n, struct native_event *out)
{
	struct peer *p = a.engine ? &a.engine->peers[0] : NULL;
	int rc;

	if (held < 0 && late.kind) {
		*out = late;
		late.kind = 0;
		return 1;
	}
	rc = mock_native.next_event(n, out);
	if (rc != 1 || held < 0 || !p || n != a.engine->native ||
	    out->kind != NATIVE_EV_ESTABLISHED || out->conn != p->conns[held].native)
		return rc;
	late = *out;
	return mock_native.next_event(n, out);
}

/* An offer of all of a's memory. */
static uint64_t offer(uint8_t *buf, uint64_t size)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_WRITE,
					 .region = a.region,
					 .length = KIT_BYTES};
	uint64_t grant, len = size;

	ck_assert_int_eq(KIT_OPS->grant(a.engine, &args, &grant, NULL), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->export_grant(a.engine, grant, buf, &len), ESCROW_OK);
	return len;
}

/* b is up, a is not, for want of news of this connection. */
static void a_is_late(int connection)
{
	start_with("slice_bytes=4096");
	held = connection;
	kit_table.next_event = next_event;
	kit_ask(&a, &b);
	kit_wait(&b, &a, ESCROW_EV_PEER_UP);
	ck_assert_uint_ne(late.kind, 0);
}

/* What b asks for and says meanwhile waits, and none of it is lost: the offer is lent on both rails. */
START_TEST(the_other_end_is_up_late)
{
	uint8_t buf[4096];
	uint64_t len, remote;

	a_is_late(_i);
	len = offer(buf, sizeof(buf));
	ck_assert_int_eq(KIT_OPS->import_grant(b.engine, b.peer, buf, len, 0, &remote, NULL),
			 ESCROW_IN_PROGRESS);
	ck_assert_int_eq(notes(&b)->send(b.engine, b.peer, "x", 1, 0, 0), ESCROW_OK);
	kit_never(&b, &a, ESCROW_EV_REMOTE_READY);
	kit_never(&a, &b, ESCROW_EV_MESSAGE);
	kit_never(&a, &b, ESCROW_EV_PEER_UP);
	held = -1;
	kit_wait(&a, &b, ESCROW_EV_PEER_UP);
	kit_wait(&a, &b, ESCROW_EV_MESSAGE);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_REMOTE_READY).status, ESCROW_OK);
	uses_rail_1(remote);
	end();
}
END_TEST

/* A peer that does not wait breaks the protocol. */
START_TEST(who_does_not_wait_is_shown_out)
{
	a_is_late(1);
	peer_of(&b)->channel.up_got = 1;
	ck_assert_int_eq(notes(&b)->send(b.engine, b.peer, "x", 1, 0, 0), ESCROW_OK);
	kit_wait(&b, &a, ESCROW_EV_PEER_LOST);
	kit_never(&a, &b, ESCROW_EV_MESSAGE);
	kit_never(&a, &b, ESCROW_EV_PEER_UP);
	end();
}
END_TEST

/* ---- What the host's log says of it ---------------------------------------------------------------- */
static uint32_t said; /* texts that a connection was lost */

static int32_t all_enabled(void *ctx, int32_t level)
{
	return 1;
}

static void count_lost(void *ctx, int32_t level, const char *component, const char *text,
		       uint64_t len)
{
	said += strstr(text, "connection 1 of \"a\"") && strstr(text, "was lost");
}

/* b has found connection 1 broken, and let go of it; no time has passed. */
static void connection_1_goes(void)
{
	int i;

	kit_host.log_enabled = all_enabled;
	kit_host.log = count_lost;
	said = 0;
	start_with(NULL);
	kit_connect(&a, &b);
	en_conn_broken(&peer_of(&b)->conns[1]);
	for (i = 0; peer_of(&b)->conns[1].stage != CONN_GONE; i++) {
		ck_assert_int_lt(i, TURNS);
		kit_turn(&b, NULL);
	}
}

/* A peer that closes ends one connection after the other: that is its end, and no loss. */
START_TEST(a_peer_that_goes_has_lost_no_connection)
{
	connection_1_goes();
	ck_assert_uint_eq(said, 0);
	en_conn_broken(&peer_of(&b)->conns[0]);
	kit_wait(&b, &a, ESCROW_EV_PEER_LOST);
	kit_never(&b, &a, ESCROW_EV_PEER_UP);
	ck_assert_uint_eq(said, 0);
	end();
}
END_TEST

START_TEST(a_connection_that_goes_alone_was_lost)
{
	connection_1_goes();
	kit_now += 50 * UINT64_C(1000000); /* rail_retry_ms */
	kit_turn(&b, NULL);
	ck_assert_uint_eq(said, 1);
	until_back(&b, 1, 1);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-talk");
	TCase *t = tcase_create("talk");

	tcase_add_test(t, a_wrong_answer_to_a_rejoin);
	tcase_add_test(t, a_wrong_answer_to_a_request);
	tcase_add_test(t, a_guest_that_never_came_up);
	tcase_add_test(t, credits_are_lost_with_a_rail);
	tcase_add_test(t, a_receive_is_refused);
	tcase_add_loop_test(t, a_grant_that_is_imported_late, 0, 2);
	tcase_add_loop_test(t, the_other_end_is_up_late, 0, 2);
	tcase_add_test(t, who_does_not_wait_is_shown_out);
	tcase_add_test(t, a_peer_that_goes_has_lost_no_connection);
	tcase_add_test(t, a_connection_that_goes_alone_was_lost);
	suite_add_tcase(s, t);
	return testing_run(s);
}
