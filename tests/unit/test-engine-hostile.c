/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that is no engine of ours: it speaks the protocol, signs what it says, and says what no engine would.  Of two
 * engines b is the liar: where it sends a message, the test puts another in its place.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <escrow/notify.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

extern const struct native_ops mock_native;

static struct kit a, b;
static const struct escrow_notify *notify;

/* What b says instead of its next message; what is not named here stays as it was. */
static struct lie {
	bool now;
	uint8_t type;
	uint64_t a, b;
	uint32_t length; /* of the payload */
	uint8_t payload[64];
	/* 0: true */
	uint32_t ack_ahead, more_credits;
	uint8_t rail;
} lie;

static void tell(struct native_wr *wr)
{
	uint8_t *at = (uint8_t *)(uintptr_t)wr->sge[0].addr; /* NOLINT: as the device has it */
	struct wire_message m;

	ck_assert_int_eq(wire_message_get(at, wr->sge[0].length, &m), ESCROW_OK);
	m.type = lie.type;
	m.a = lie.a;
	m.b = lie.b;
	m.length = lie.length;
	m.ack += lie.ack_ahead;
	m.credits = (uint16_t)(m.credits + lie.more_credits);
	m.rail = lie.rail;
	memcpy(at + WIRE_MESSAGE_HEADER, lie.payload, lie.length);
	wire_message_put(&m, at);
	wr->sge[0].length = WIRE_MESSAGE_HEADER + lie.length;
	lie.now = false;
}

static int post(struct native_conn *conn, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	const struct conn *c = mock_native.conn_user(conn);

	if (lie.now && wr->opcode == NATIVE_SEND && c->peer->e == b.engine)
		tell(wr);
	return mock_native.post(conn, wr, n, posted);
}

static uint64_t remote, grant;

static void start(void)
{
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_table.post = post;
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_READ | ESCROW_MAY_WRITE, &grant);
	notify = KIT_OPS->get_extension(b.engine, ESCROW_NOTIFY_ID);
}

static void end(void)
{
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

/* b says this instead of an empty message to the host. */
static void say(struct lie what)
{
	int i;

	lie = what;
	lie.now = true;
	ck_assert_int_eq(notify->send(b.engine, b.peer, NULL, 0, 0, 0), ESCROW_OK);
	for (i = 0; lie.now; i++) {
		ck_assert_int_lt(i, 1000);
		kit_turn(&b, &a);
	}
}

/* It costs the liar its connections, and the other engine nothing else. */
static void breaks(struct lie what)
{
	start();
	say(what);
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_PEER_LOST).object, a.peer);
	kit_never(&a, &b, ESCROW_EV_MESSAGE);
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_PEER_DOWN).status, ESCROW_E_PEER_LOST);
	end();
}

/* It means nothing: all goes on. */
static void means_nothing(struct lie what)
{
	start();
	say(what);
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	kit_never(&a, &b, ESCROW_EV_GRANT_REVOKED);
	kit_never(&a, &b, ESCROW_EV_MESSAGE);
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	end();
}

/* ---- Numbers and credits ------------------------------------------------------------------------------ */
START_TEST(what_was_never_sent_cannot_be_answered)
{
	breaks((struct lie){.type = WIRE_NOTE, .ack_ahead = 1000});
}
END_TEST

START_TEST(credits_are_no_more_than_places)
{
	breaks((struct lie){.type = WIRE_NOTE, .more_credits = 60000});
}
END_TEST

START_TEST(a_rail_that_there_is_not)
{
	breaks((struct lie){.type = WIRE_NOTE, .rail = 5});
}
END_TEST

/* ---- Messages of the host -------------------------------------------------------------------------------- */
static const struct lie notes[] = {
	{.type = WIRE_NOTE, .a = 1u << 30},                /* longer than any may be */
	{.type = WIRE_NOTE, .a = 10, .b = 5, .length = 5}, /* starts in the middle */
	{.type = WIRE_NOTE, .a = 10},                      /* a piece of nothing */
	{.type = WIRE_NOTE, .a = 3, .length = 5},          /* more than there is */
	{.type = WIRE_NOTE_TAKEN, .a = 1},                 /* nothing was sent */
	{.type = WIRE_NOTE_TAKEN, .b = 5},                 /* no window is so wide */
	{.type = WIRE_NOTE_TAKEN, .b = 4},                 /* it has all four already */
	{.type = WIRE_NOTE_TAKEN, .a = UINT64_MAX, .b = UINT64_MAX},
};

START_TEST(messages_are_checked)
{
	breaks(notes[_i]);
}
END_TEST

/* Half a message, and then something that does not go on with it. */
static const struct lie seconds[] = {
	{.type = WIRE_NOTE, .a = 10, .b = 4, .length = 5}, /* again from before its end */
	{.type = WIRE_NOTE, .a = 11, .b = 5, .length = 5}, /* now it is longer */
	{.type = WIRE_NOTE, .a = 10, .b = 5, .length = 6}, /* past its end */
	{.type = WIRE_NOTE, .a = 10, .b = 5, .length = 0}, /* never coming to it */
};

START_TEST(pieces_fit)
{
	start();
	say((struct lie){.type = WIRE_NOTE, .a = 10, .b = 0, .length = 5});
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	say(seconds[_i]);
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_PEER_LOST).object, a.peer);
	kit_never(&a, &b, ESCROW_EV_MESSAGE);
	end(); /* and the half message goes with the peer */
}
END_TEST

START_TEST(pieces_come_together)
{
	uint8_t got[16];
	uint64_t len = sizeof(got), from;

	start();
	say((struct lie){.type = WIRE_NOTE, .a = 10, .b = 0, .length = 5, .payload = "01234"});
	say((struct lie){.type = WIRE_NOTE, .a = 10, .b = 5, .length = 5, .payload = "56789"});
	ck_assert_uint_eq(kit_wait(&a, &b, ESCROW_EV_MESSAGE).bytes, 10);
	ck_assert_int_eq(notify->receive(a.engine, &from, got, &len), ESCROW_OK);
	ck_assert_uint_eq(len, 10);
	ck_assert_mem_eq(got, "0123456789", 10);
	end();
}
END_TEST

/* ---- What is said of things that are not there --------------------------------------------------------------- */
static const struct lie nothing[] = {
	{.type = WIRE_HELLO},
	{.type = WIRE_HELLO, .length = 64},
	{.type = WIRE_HELLO, .length = 1, .payload = "x"}, /* once is enough */
	{.type = WIRE_OFFER_ANSWER, .a = 0, .b = 77},
	{.type = WIRE_OFFER_ANSWER, .a = (uint64_t)ESCROW_E_QUOTA, .b = UINT64_MAX},
	{.type = WIRE_OFFER_RETURN, .a = 77},
	{.type = WIRE_LOST, .a = 77, .b = 1},
	{.type = WIRE_LOST, .a = 0, .b = 77},
	{.type = WIRE_RAIL, .a = 77, .b = 1},
	{.type = WIRE_RAIL, .a = 0, .b = 77},
	{.type = WIRE_KEY, .a = 1, .b = 0},
	{.type = WIRE_KEY, .a = 1, .b = UINT64_C(77) << 32 | 5},
};

START_TEST(what_is_not_there_is_passed_over)
{
	means_nothing(nothing[_i]);
}
END_TEST

/* The importer of an offer may give its own grant back, and nobody else's. */
START_TEST(a_grant_is_not_given_back_by_others)
{
	start();
	say((struct lie){.type = WIRE_OFFER_RETURN, .a = grant});
	kit_never(&a, &b, ESCROW_EV_GRANT_REVOKED);
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	end();
}
END_TEST

/* A grant that is no offer is not given to who asks for it: b hears E_REFUSED of what it never asked. */
START_TEST(a_grant_is_no_offer)
{
	struct escrow_charge all[64];
	int32_t n, i;

	start();
	say((struct lie){.type = WIRE_OFFER_ASK, .a = grant, .b = 77});
	say((struct lie){.type = WIRE_OFFER_ASK, .a = 5, .b = 78});
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	n = KIT_OPS->charges(a.engine, all, 64, sizeof(all[0]));
	for (i = 0; i < n; i++)
		if (all[i].kind == ESCROW_CHARGE_GRANTS)
			ck_assert_uint_eq(all[i].used, 1);
	end();
}
END_TEST

/* ---- What a message costs --------------------------------------------------------------------------------- */
#define SMALL_ONES 8

/* The whole pages of a table behind its first entries: nobody may look there, or all may again. */
static void guard(void *table, uint64_t n, uint64_t size, int prot)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = ((uintptr_t)table + 64 * size + page - 1) & ~(page - 1);
	uintptr_t to = ((uintptr_t)table + n * size) & ~(page - 1);

	ck_assert_uint_lt(from, to);
	ck_assert_int_eq(mprotect((void *)from, to - from, prot), 0); /* NOLINT: by pages */
}

static void guard_tables(int prot)
{
	struct escrow_engine *e = a.engine;

	guard(e->remotes, e->config.max_remotes, sizeof(*e->remotes), prot);
	guard(e->grants, e->config.max_grants, sizeof(*e->grants), prot);
	guard(e->windows, e->nwindows, sizeof(*e->windows), prot);
}

static uint64_t offer_all(void)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ,
					 .region = a.region,
					 .length = KIT_BYTES};
	uint64_t offer;

	ck_assert_int_eq(KIT_OPS->grant(a.engine, &args, &offer, NULL), ESCROW_OK);
	return offer;
}

static struct lie small_one(int which, uint64_t offer)
{
	uint64_t epoch = atomic_load(&en_peer_find(a.engine, a.peer)->conns[0].epoch);
	const struct lie all[SMALL_ONES] = {
		{.type = WIRE_KEY, .a = 77},
		{.type = WIRE_KEY, .a = 77, .b = epoch << 32 | 5},
		{.type = WIRE_KEY_ASK, .a = 77},
		{.type = WIRE_KEY_ASK, .a = grant},
		{.type = WIRE_OFFER_ASK, .a = 77, .b = 78},
		{.type = WIRE_OFFER_ASK, .a = offer, .b = 79},
		{.type = WIRE_OFFER_RETURN, .a = 77},
		{.type = WIRE_OFFER_ANSWER, .a = 0, .b = 7},
	};

	return all[which];
}

/* It is dealt with while the engine is locked: no table is gone through for it. */
START_TEST(no_table_for_a_message)
{
	struct lie what;
	int i;

	start();
	what = small_one(_i, offer_all());
	guard_tables(PROT_NONE);
	say(what);
	for (i = 0; i < 20; i++)
		kit_turn(&b, &a);
	guard_tables(PROT_READ | PROT_WRITE);
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	/* The one for b, the offer, and what was asked of that. */
	ck_assert_uint_eq(kit_used(&a, ESCROW_CHARGE_GRANTS),
			  what.type == WIRE_OFFER_ASK && what.b == 79 ? 3 : 2);
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	end();
}
END_TEST

#define MANY(test, what) tcase_add_loop_test(t, test, 0, (int)(sizeof(what) / sizeof((what)[0])))

/* ---- Renewal -------------------------------------------------------------------------------------------- */
static uint32_t epoch_of_a(void)
{
	return atomic_load(&en_peer_find(a.engine, a.peer)->conns[0].epoch);
}

static void start_with_one(void)
{
	static const char *const one[] = {"test.faults=1", "drain_ms=100", "control_thread=0",
					  "mock.rails=1", NULL};

	kit_settings = one;
	start();
	kit_settings = NULL;
}

/* Of connections that are not there, of others than that of now, or not asked for. */
START_TEST(a_renewal_of_nothing)
{
	static const struct lie lies[] = {{.type = WIRE_DRAIN, .a = 1, .b = 1},
					  {.type = WIRE_DRAIN, .a = UINT64_MAX, .b = 1},
					  {.type = WIRE_DRAIN, .b = 77},
					  {.type = WIRE_DRAIN, .b = UINT64_C(1) << 32 | 1},
					  {.type = WIRE_DRAINED, .a = UINT64_MAX, .b = 1},
					  {.type = WIRE_DRAINED, .b = 1},
					  {.type = WIRE_DRAIN_NO, .a = UINT64_MAX},
					  {.type = WIRE_DRAIN_NO, .b = 1},
					  {.type = WIRE_KEY, .a = UINT64_MAX},
					  {.type = WIRE_KEY_ASK, .a = UINT64_MAX}};

	means_nothing(lies[_i]);
}
END_TEST

/* It begins one and calls it off, time and again: that, too, goes through no table each time. */
START_TEST(a_renewal_that_is_called_off)
{
	uint64_t n, as;
	int i;

	start_with_one();
	guard_tables(PROT_NONE);
	for (n = 1; n < 3; n++) {
		as = epoch_of_a() | n << 32;
		say((struct lie){.type = WIRE_DRAIN, .b = as});
		for (i = 0; i < 20; i++)
			kit_turn(&b, &a);
		ck_assert_uint_eq(en_peer_find(a.engine, a.peer)->conns[0].renew, RENEW_DRAINING);
		say((struct lie){.type = WIRE_DRAIN_NO, .b = as});
		for (i = 0; i < 20; i++)
			kit_turn(&b, &a);
		ck_assert_uint_eq(en_peer_find(a.engine, a.peer)->conns[0].renew, RENEW_NOT);
	}
	guard_tables(PROT_READ | PROT_WRITE);
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	end();
}
END_TEST

/* It begins one and never goes on: that is waited for until the deadline, and costs nothing. */
START_TEST(a_renewal_that_does_not_go_on)
{
	start_with_one();
	say((struct lie){.type = WIRE_DRAIN, .b = epoch_of_a()});
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	ck_assert_uint_eq(en_peer_find(a.engine, a.peer)->conns[0].renew, RENEW_DRAINING);
	kit_now += UINT64_C(40001000000); /* 4 x connect_ms */
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	ck_assert_uint_eq(en_peer_find(a.engine, a.peer)->conns[0].renew, RENEW_NOT);
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	end();
}
END_TEST

/* It says that it is ready, and never meant to come back: that, too, is waited for until the deadline. */
START_TEST(a_renewal_that_is_a_lie)
{
	start_with_one();
	say((struct lie){.type = WIRE_DRAIN, .b = epoch_of_a()});
	say((struct lie){.type = WIRE_DRAINED, .b = epoch_of_a()});
	kit_wait(&b, &a, ESCROW_EV_PEER_LOST);
	kit_never(&a, &b, ESCROW_EV_PEER_LOST);
	kit_now += UINT64_C(40001000000); /* 4 x connect_ms */
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_PEER_LOST).object, a.peer);
	ck_assert_int_eq(kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED).status, ESCROW_OK);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-hostile");
	TCase *t = tcase_create("liar");

	tcase_add_test(t, what_was_never_sent_cannot_be_answered);
	tcase_add_test(t, credits_are_no_more_than_places);
	tcase_add_test(t, a_rail_that_there_is_not);
	MANY(messages_are_checked, notes);
	MANY(pieces_fit, seconds);
	tcase_add_test(t, pieces_come_together);
	MANY(what_is_not_there_is_passed_over, nothing);
	tcase_add_test(t, a_grant_is_not_given_back_by_others);
	tcase_add_test(t, a_grant_is_no_offer);
	tcase_add_loop_test(t, no_table_for_a_message, 0, SMALL_ONES);
	tcase_add_loop_test(t, a_renewal_of_nothing, 0, 10);
	tcase_add_test(t, a_renewal_that_is_called_off);
	tcase_add_test(t, a_renewal_that_does_not_go_on);
	tcase_add_test(t, a_renewal_that_is_a_lie);
	suite_add_tcase(s, t);
	return testing_run(s);
}
