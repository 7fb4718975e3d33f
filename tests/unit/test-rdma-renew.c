/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections that are made anew because their keys are used up, on devices and with threads: thousands of
 * grants, at both ends, each with bytes that are compared, and nothing fails.  A window has few binds here.
 */
#include <stdio.h>
#include <string.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-kit.h"

#define BATCH 16u
#define PIECE 2048u        /* of each grant */
#define SINK END_BYTES / 2 /* where READs of the importer end */
#define STANDING (END_BYTES / 4)

static struct end ends_of[2]; /* the second one connected */
static uint64_t peers[2];
static uint32_t rounds;

/* late: a renewal begins only when nothing is left to bind. */
static void start(const char *rails, const char *connect, bool late)
{
	const char *settings[] = {rails,
				  connect,
				  "slice_bytes=4096",
				  "drain_ms=200",
				  late ? "max_grants=17" : "max_grants=40",
				  late ? "test.window_binds=1" : "test.window_binds=2",
				  late ? "renew_share=100" : "renew_share=10",
				  "rail_retry_ms=1",
				  NULL};

	end_open(&ends_of[0], 'o', settings);
	end_open(&ends_of[1], 'u', settings);
	ends_connect(&ends_of[0], &ends_of[1], &peers[0], &peers[1]);
}

static uint64_t counted(int at, const char *what)
{
	uint64_t n = 0;
	char name[64];

	for (uint32_t i = 0; i < ends_of[at].engine->nrails; i++) {
		snprintf(name, sizeof(name), "rail.%u.connections.%s", i, what);
		n += end_counter(&ends_of[at], name);
	}
	return n;
}

static void well(struct end *e, uint64_t op)
{
	struct escrow_event ev = end_wait_of(e, ESCROW_EV_OP_DONE, op);

	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_EXECUTED);
}

static uint64_t lend(int at, uint64_t offset, uint64_t length, uint64_t *remote)
{
	struct end *e = &ends_of[at];
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ | ESCROW_MAY_WRITE,
					 .peer = peers[at],
					 .region = e->region,
					 .offset = offset,
					 .length = length};
	uint8_t buf[4096];
	uint64_t grant, len = sizeof(buf);
	escrow_status st;

	/* One connection may use up the last windows while the other is made anew. */
	while ((st = OPS->grant(e->engine, &args, &grant, &error)) == ESCROW_E_AGAIN)
		ends_turn();
	ck_assert_msg(st == ESCROW_IN_PROGRESS, "%s", error.text);
	ck_assert_int_eq(end_wait_of(e, ESCROW_EV_GRANT_READY, grant).status, ESCROW_OK);
	ck_assert_int_eq(OPS->export_grant(e->engine, grant, buf, &len), ESCROW_OK);
	*remote = end_import(&ends_of[!at], peers[!at], buf, len);
	return grant;
}

/* Some grants of one end; the other writes to each, reads it back, and all of them are over. */
static void round_of(int at, uint32_t n, uint8_t number)
{
	struct end *owner = &ends_of[at], *user = &ends_of[!at];
	uint64_t grants[BATCH], remotes[BATCH], ops[BATCH];
	uint32_t i, k;

	for (i = 0; i < n; i++) {
		grants[i] = lend(at, (uint64_t)i * PIECE, PIECE, &remotes[i]);
		memset(user->memory + (size_t)i * PIECE, (int)(number + i), PIECE);
		memset(user->memory + SINK + (size_t)i * PIECE, 0, PIECE);
	}
	for (i = 0; i < n; i++)
		ops[i] = end_submit(user, remotes[i], ESCROW_WRITE, (uint64_t)i * PIECE, 0, PIECE);
	for (i = 0; i < n; i++)
		well(user, ops[i]);
	for (i = 0; i < n; i++)
		ops[i] = end_submit(user, remotes[i], ESCROW_READ, SINK + (uint64_t)i * PIECE, 0,
				    PIECE);
	for (i = 0; i < n; i++) {
		well(user, ops[i]);
		for (k = 0; k < PIECE; k++) {
			testing_assert_byte(owner->memory[i * PIECE + k], (uint8_t)(number + i), k);
			testing_assert_byte(user->memory[SINK + i * PIECE + k],
					    (uint8_t)(number + i), k);
		}
		ck_assert_int_eq(OPS->forget_grant(user->engine, remotes[i]), ESCROW_OK);
		ck_assert_int_eq(OPS->revoke(owner->engine, grants[i], 0), ESCROW_IN_PROGRESS);
	}
	for (i = 0; i < n; i++)
		ck_assert_int_eq(end_wait_of(owner, ESCROW_EV_GRANT_REVOKED, grants[i]).status,
				 ESCROW_OK);
}

static void nobody_left(void)
{
	for (int i = 0; i < 2; i++) {
		ck_assert(!end_has_seen(&ends_of[i], ESCROW_EV_PEER_LOST));
		ck_assert(!end_has_seen(&ends_of[i], ESCROW_EV_PEER_DOWN));
		ck_assert_uint_eq(counted(i, "lost"), 0);
		ends_of[i].nseen = 0;
	}
}

/* Both ends grant in turns; a grant that stood all the time is good at the end. */
static void many(const char *rails, uint32_t batch, bool late)
{
	uint64_t standing, charged, remote;
	uint32_t i;

	start(rails, "connect_ms=60000", late);
	charged = end_used(&ends_of[0], ESCROW_CHARGE_CONNECTIONS);
	standing = lend(0, STANDING, PIECE, &remote);
	for (i = 0; i < rounds / batch; i++) {
		round_of((int)(i % 2), batch, (uint8_t)i);
		well(&ends_of[1],
		     end_submit(&ends_of[1], remote, ESCROW_WRITE, STANDING, 0, PIECE));
		nobody_left();
	}
	/* At each end half of the grants wear a window a connection for each two of them; the pool has 144. */
	ck_assert_uint_ge(counted(0, "renewed"), rounds / 4 / 144);
	/* The last may be under way, with its connection given back and not yet taken again. */
	while (counted(0, "renewed") != counted(1, "renewed") ||
	       end_used(&ends_of[0], ESCROW_CHARGE_CONNECTIONS) != charged)
		ends_turn();
	nobody_left();
	printf("# %s, %u at once: %u grants, %llu renewals\n", rails, batch, rounds,
	       (unsigned long long)counted(0, "renewed"));
	memset(ends_of[1].memory + STANDING, 'z', PIECE);
	well(&ends_of[1], end_submit(&ends_of[1], remote, ESCROW_WRITE, STANDING, 0, PIECE));
	for (i = 0; i < PIECE; i++)
		testing_assert_byte(ends_of[0].memory[STANDING + i], 'z', i);
	ck_assert_int_eq(OPS->revoke(ends_of[0].engine, standing, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(end_wait_of(&ends_of[0], ESCROW_EV_GRANT_REVOKED, standing).status,
			 ESCROW_OK);
	end_close(&ends_of[1]);
	end_close(&ends_of[0]);
}

START_TEST(one_rail)
{
	many("max_rails=1", _i ? BATCH : 1, false);
}
END_TEST

/* R16: what finds no index that is not held out waits for the connection that is made anew, and does not fail. */
START_TEST(in_the_last_moment)
{
	many(_i / 2 ? "max_rails=2" : "max_rails=1", _i % 2 ? BATCH : 1, true);
}
END_TEST

START_TEST(two_rails)
{
	many("max_rails=2", _i ? BATCH : 1, false);
}
END_TEST

/* The window of a renewal is hit at random by a peer that goes: all is back. */
START_TEST(the_peer_goes)
{
	uint64_t remote;

	for (uint32_t i = 0; i < rounds / 200; i++) {
		/* If there is no connection at that moment, the other end hears of it by the deadline alone. */
		start(i % 2 ? "max_rails=1" : "max_rails=2", "connect_ms=2000", false);
		lend(0, STANDING, PIECE, &remote);
		while (!counted(0, "renewed") && !counted(1, "renewed"))
			round_of((int)(i % 2), BATCH, (uint8_t)i);
		round_of((int)(i % 2), 1 + i % BATCH, (uint8_t)i);
		end_close(&ends_of[i / 2 % 2]);
		end_wait(&ends_of[!(i / 2 % 2)], ESCROW_EV_PEER_DOWN);
		end_close(&ends_of[!(i / 2 % 2)]);
	}
}
END_TEST

int main(void)
{
	char why[256], rails[2][64];
	TCase *t;
	Suite *s;

	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	rounds = ends_double() && !TESTING_SLOWED ? 4000 : 1200;
	s = suite_create("rdma-renew");
	t = tcase_create("renew");
	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, one_rail, 0, 2);
	tcase_add_loop_test(t, in_the_last_moment, 0, ends_rails(rails, 2) == 2 ? 4 : 2);
	if (ends_rails(rails, 2) == 2)
		tcase_add_loop_test(t, two_rails, 0, 2);
	tcase_add_test(t, the_peer_goes);
	suite_add_tcase(s, t);
	return testing_run(s);
}
