/* SPDX-License-Identifier: BSD-2-Clause */
/* Offers: what an importer is told when the owner does not give, and what becomes of what was asked for. */
#include <stdlib.h>
#include <string.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

extern const struct native_ops mock_native;

static struct kit a, b; /* a offers, b imports */
static uint64_t offer;
static uint8_t bytes[4096];
static uint64_t nbytes;

#define DEPTH "recv_depth=16" /* which is the default */
static const char *depth = DEPTH;

static void start_with(const char *of_a, const char *of_b)
{
	const char *settings[] = {"test.faults=1", "drain_ms=100", "control_thread=0",
				  depth,           of_a,           NULL};
	struct escrow_grant_args args = {
		.size = sizeof(args), .rights = ESCROW_MAY_READ, .user = 9, .length = KIT_BYTES};

	kit_settings = settings;
	kit_start(&a, "a");
	settings[4] = of_b;
	kit_start(&b, "b");
	kit_settings = NULL;
	kit_connect(&a, &b);
	args.region = a.region;
	ck_assert_int_eq(KIT_OPS->grant(a.engine, &args, &offer, NULL), ESCROW_OK);
	nbytes = sizeof(bytes);
	ck_assert_int_eq(KIT_OPS->export_grant(a.engine, offer, bytes, &nbytes), ESCROW_OK);
}

static void end(void)
{
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
	depth = DEPTH;
}

static uint64_t ask(void)
{
	uint64_t remote = 0;

	ck_assert_int_eq(KIT_OPS->import_grant(b.engine, b.peer, bytes, nbytes, 3, &remote, NULL),
			 ESCROW_IN_PROGRESS);
	return remote;
}

static int32_t read_some(uint64_t remote)
{
	struct escrow_sge sge = {.region = b.region, .length = 64};
	struct escrow_op op = {.remote = remote, .opcode = ESCROW_READ, .nsge = 1, .sge = &sge};
	uint64_t id;

	return KIT_OPS->transfer(b.engine, &op, 1, sizeof(op), 0, &id);
}

/* The importer is told why, once; that event is the handle's last. */
static void is_refused(escrow_status why)
{
	uint64_t remote = ask();
	struct escrow_event ev = kit_wait(&b, &a, ESCROW_EV_REMOTE_READY);

	ck_assert_int_eq(ev.status, why);
	ck_assert_uint_eq(ev.object, remote);
	ck_assert_uint_eq(ev.user, 3);
	ck_assert_int_eq(read_some(remote), ESCROW_E_INVALID);
	ck_assert_int_eq(KIT_OPS->forget_grant(b.engine, remote), ESCROW_E_INVALID);
	kit_never(&b, &a, ESCROW_EV_REMOTE_READY);
	kit_never(&b, &a, ESCROW_EV_PEER_LOST);
}

START_TEST(a_revoked_offer)
{
	start_with(NULL, NULL);
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, offer, 0), ESCROW_IN_PROGRESS);
	kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED);
	is_refused(ESCROW_E_REFUSED);
	end();
}
END_TEST

START_TEST(an_owner_that_is_not_open)
{
	start_with(NULL, NULL);
	ck_assert_int_eq(KIT_OPS->quiesce(a.engine, 0), ESCROW_OK);
	is_refused(ESCROW_E_REFUSED);
	ck_assert_int_eq(KIT_OPS->resume(a.engine, 0), ESCROW_OK);
	ask();
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_REMOTE_READY).status, ESCROW_OK);
	end();
}
END_TEST

START_TEST(a_quota_of_grants)
{
	start_with("quota.grants=1", NULL);
	is_refused(ESCROW_E_QUOTA);
	ck_assert_uint_eq(kit_used(&a, ESCROW_CHARGE_GRANTS), 1);
	end();
}
END_TEST

START_TEST(a_limit_of_grants)
{
	start_with("max_grants=1", NULL);
	is_refused(ESCROW_E_LIMIT);
	end();
}
END_TEST

/* Authority that could not be bound is none; what was charged for it is back. */
START_TEST(a_window_that_is_not_bound)
{
	start_with(NULL, NULL);
	kit_plan(&a, "bind_window@1=refused");
	is_refused(ESCROW_E_REFUSED);
	ck_assert_uint_eq(kit_used(&a, ESCROW_CHARGE_GRANTS), 1);
	ask();
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_REMOTE_READY).status, ESCROW_OK);
	ck_assert_uint_eq(kit_used(&a, ESCROW_CHARGE_GRANTS), 2);
	end();
}
END_TEST

START_TEST(remotes_end_at_the_limit)
{
	uint64_t remote = 7;

	start_with(NULL, "max_remotes=1");
	ask();
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_REMOTE_READY).status, ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->import_grant(b.engine, b.peer, bytes, nbytes, 3, &remote, NULL),
			 ESCROW_E_LIMIT);
	ck_assert_uint_eq(remote, 7);
	end();
}
END_TEST

/* All of them are answered, also when they come at once. */
START_TEST(a_hundred_that_ask_at_once)
{
	int i;

	start_with(NULL, "max_remotes=128");
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, offer, 0), ESCROW_IN_PROGRESS);
	kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED);
	for (i = 0; i < 100; i++)
		ask();
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_REMOTE_READY).status, ESCROW_E_REFUSED);
	end();
}
END_TEST

/* Both ends take more messages at once than asks may wait for an answer: still each is answered, asked for or forgotten. */
START_TEST(refused_by_the_hundred)
{
	uint64_t remotes[200];
	uint32_t i, k;

	depth = "recv_depth=256";
	start_with(NULL, NULL);
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, offer, 0), ESCROW_IN_PROGRESS);
	kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED);
	for (i = 0; i < 200; i++)
		remotes[i] = ask();
	/* They are asked for as far as they may be, and no answer has come. */
	for (i = 0; i < 100; i++)
		kit_turn(&b, NULL);
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(KIT_OPS->forget_grant(b.engine, remotes[i]), ESCROW_OK);
	for (k = 0; k < 100; k++) {
		struct escrow_event ev = kit_wait(&b, &a, ESCROW_EV_REMOTE_READY);

		ck_assert_int_eq(ev.status, ESCROW_E_REFUSED);
		for (i = 100; i < 199 && remotes[i] != ev.object; i++)
			;
		ck_assert_uint_eq(remotes[i], ev.object);
		remotes[i] = 0;
	}
	kit_never(&b, &a, ESCROW_EV_REMOTE_READY);
	for (i = 0; i < b.engine->config.max_remotes; i++)
		ck_assert_uint_eq(atomic_load(&b.engine->remotes[i].state), REMOTE_FREE);
	end();
}
END_TEST

/* As many grants, of which those that are asked for later wait for those before them. */
START_TEST(given_by_the_hundred)
{
	uint32_t i;

	depth = "recv_depth=256";
	start_with("max_peer_grants=128", NULL);
	for (i = 0; i < 100; i++)
		ask();
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_REMOTE_READY).status, ESCROW_OK);
	ck_assert_uint_eq(kit_used(&a, ESCROW_CHARGE_GRANTS), 101);
	end();
}
END_TEST

/* ---- Until it is answered ------------------------------------------------------------------------------ */
START_TEST(what_is_asked_for_moves_nothing)
{
	uint64_t remote;

	start_with(NULL, NULL);
	remote = ask();
	ck_assert_int_eq(read_some(remote), ESCROW_E_STATE);
	kit_wait(&b, &a, ESCROW_EV_REMOTE_READY);
	ck_assert_int_eq(read_some(remote), 1);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	end();
}
END_TEST

START_TEST(an_answer_that_never_comes)
{
	uint64_t remote;

	start_with(NULL, NULL);
	kit_plan(&b, "import=drop");
	remote = ask();
	kit_never(&b, &a, ESCROW_EV_REMOTE_READY);
	ck_assert_int_eq(read_some(remote), ESCROW_E_STATE);
	/* With the peer it ends. */
	kit_close(&a, &b, false);
	ck_assert_int_eq(kit_wait(&b, NULL, ESCROW_EV_REMOTE_READY).status, ESCROW_E_PEER_LOST);
	kit_close(&b, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* Who forgets what it asked for hears no more of it. */
START_TEST(forgotten_while_it_is_asked_for)
{
	uint64_t remote;

	start_with(NULL, NULL);
	remote = ask();
	ck_assert_int_eq(KIT_OPS->forget_grant(b.engine, remote), ESCROW_OK);
	kit_never(&b, &a, ESCROW_EV_REMOTE_READY);
	ck_assert_int_eq(KIT_OPS->forget_grant(b.engine, remote), ESCROW_E_INVALID);
	end();
}
END_TEST

/* Asks, and the owner has begun to make a grant. */
static uint64_t ask_until_begun(void)
{
	uint64_t remote = ask();

	for (int i = 0; kit_used(&a, ESCROW_CHARGE_GRANTS) != 2; i++) {
		ck_assert_int_lt(i, 1000);
		kit_turn(&b, NULL);
		kit_turn(&a, NULL);
	}
	return remote;
}

/* The owner has begun to make a grant: it comes back by itself, and does not wait for the peer's end. */
START_TEST(forgotten_while_it_is_answered)
{
	uint64_t remote;

	start_with(NULL, NULL);
	remote = ask_until_begun();
	ck_assert_int_eq(KIT_OPS->forget_grant(b.engine, remote), ESCROW_OK);
	kit_never(&b, &a, ESCROW_EV_REMOTE_READY);
	ck_assert_uint_eq(kit_used(&a, ESCROW_CHARGE_GRANTS), 1);
	ck_assert_uint_eq(atomic_load(&b.engine->remotes[0].state), REMOTE_FREE);
	end();
}
END_TEST

/* The event is queued, and not yet read: it comes, and what was forgotten stays forgotten. */
START_TEST(forgotten_before_the_event_is_read)
{
	uint64_t remote;
	int i;

	start_with(NULL, NULL);
	remote = ask();
	for (i = 0; atomic_load(&b.engine->remotes[0].state) != REMOTE_LIVE; i++) {
		struct escrow_event none;

		ck_assert_int_lt(i, 1000);
		kit_turn(&a, NULL);
		/* Room for none: the engine works, and its events stay. */
		ck_assert_int_eq(KIT_OPS->poll(b.engine, &none, 0, sizeof(none), 0), 0);
	}
	ck_assert_int_eq(KIT_OPS->forget_grant(b.engine, remote), ESCROW_OK);
	ck_assert_uint_eq(kit_wait(&b, &a, ESCROW_EV_REMOTE_READY).user, 3);
	/* The owner has its authority back, and b the place. */
	for (i = 0; kit_used(&a, ESCROW_CHARGE_GRANTS) != 1; i++) {
		ck_assert_int_lt(i, 1000);
		kit_turn(&a, &b);
	}
	ck_assert_uint_eq(atomic_load(&b.engine->remotes[0].state), REMOTE_FREE);
	end();
}
END_TEST

/* The owner has begun to make a grant when it takes the offer back: who asked hears that it gets none. */
START_TEST(revoked_while_it_is_answered)
{
	uint64_t remote;

	start_with(NULL, NULL);
	remote = ask_until_begun();
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, offer, 0), ESCROW_IN_PROGRESS);
	kit_wait(&a, NULL, ESCROW_EV_GRANT_REVOKED);
	ck_assert_uint_eq(kit_used(&a, ESCROW_CHARGE_GRANTS), 0);
	ck_assert_int_eq(read_some(remote), ESCROW_E_STATE);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_REMOTE_READY).status, ESCROW_E_REFUSED);
	ck_assert_int_eq(read_some(remote), ESCROW_E_INVALID);
	end();
}
END_TEST

/* What is forgotten goes back to its owner by word, or with the peer if it goes first. */
START_TEST(forgotten_when_the_peer_goes)
{
	uint64_t remote;

	start_with(NULL, NULL);
	remote = ask();
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_REMOTE_READY).status, ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->forget_grant(b.engine, remote), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->disconnect(b.engine, b.peer, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_PEER_DOWN).status, ESCROW_OK);
	kit_wait(&a, &b, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(kit_used(&a, ESCROW_CHARGE_GRANTS), 1);
	end();
}
END_TEST

/* ---- Answers of an owner that lies ------------------------------------------------------------------------- */
enum spoil { LONGER, AN_OFFER, STALE, NOT_OURS, OTHER_END, KEYS, GARBAGE, SPOILS };
static enum spoil spoil;

static void spoil_grant(uint8_t *at, uint32_t length)
{
	static struct wire_grant g;

	ck_assert_int_eq(wire_grant_get(at, length, &g, NULL), ESCROW_OK);
	g.length += spoil == LONGER;
	g.epoch += spoil == STALE;
	g.grantee[0] ^= spoil == NOT_OURS;
	if (spoil == OTHER_END)
		g.flags ^= WIRE_GRANT_PASSIVE;
	if (spoil == AN_OFFER) {
		g.flags |= WIRE_GRANT_OFFER;
		g.nkeys = 0;
	}
	g.nkeys += spoil == KEYS;
	wire_grant_put(&g, at);
	at[0] ^= spoil == GARBAGE;
}

static void spoil_answer(struct native_wr *wr)
{
	uint8_t *at = (uint8_t *)(uintptr_t)wr->sge[0].addr; /* NOLINT: as the device has it */
	struct wire_message m;

	ck_assert_int_eq(wire_message_get(at, wr->sge[0].length, &m), ESCROW_OK);
	if (m.type != WIRE_OFFER_ANSWER || !m.length)
		return;
	spoil_grant(at + WIRE_MESSAGE_HEADER, m.length);
	m.length = wire_grant_bytes(spoil == AN_OFFER ? 0 : spoil == KEYS ? 2 : 1);
	wire_message_put(&m, at);
	wr->sge[0].length = WIRE_MESSAGE_HEADER + m.length;
}

static int post(struct native_conn *conn, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	const struct conn *c = mock_native.conn_user(conn);

	if (wr->opcode == NATIVE_SEND && c->peer->e == a.engine)
		spoil_answer(wr);
	return mock_native.post(conn, wr, n, posted);
}

START_TEST(an_answer_of_something_else)
{
	spoil = (enum spoil)_i;
	start_with(NULL, NULL);
	kit_table.post = post;
	is_refused(ESCROW_E_REFUSED);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-offers");
	TCase *t = tcase_create("offers");

	tcase_add_test(t, a_revoked_offer);
	tcase_add_test(t, an_owner_that_is_not_open);
	tcase_add_test(t, a_quota_of_grants);
	tcase_add_test(t, a_limit_of_grants);
	tcase_add_test(t, a_window_that_is_not_bound);
	tcase_add_test(t, remotes_end_at_the_limit);
	tcase_add_test(t, a_hundred_that_ask_at_once);
	tcase_add_test(t, refused_by_the_hundred);
	tcase_add_test(t, given_by_the_hundred);
	tcase_add_test(t, what_is_asked_for_moves_nothing);
	tcase_add_test(t, an_answer_that_never_comes);
	tcase_add_test(t, forgotten_while_it_is_asked_for);
	tcase_add_test(t, forgotten_while_it_is_answered);
	tcase_add_test(t, forgotten_before_the_event_is_read);
	tcase_add_test(t, revoked_while_it_is_answered);
	tcase_add_test(t, forgotten_when_the_peer_goes);
	tcase_add_loop_test(t, an_answer_of_something_else, 0, SPOILS);
	suite_add_tcase(s, t);
	return testing_run(s);
}
