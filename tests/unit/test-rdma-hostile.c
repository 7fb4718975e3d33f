/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hostile peers and bad input on real verbs: what is forged is refused by the NIC, costs the forger
 * its own connection, and nobody else a byte.
 *
 * A forged descriptor is one of ours that was taken apart and put together again with another value:
 * the importing engine believes it, so the access leaves it and the owner's device has to say no.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/engine/wire.h"
#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"

static struct end owner, good, bad;
static uint64_t owner_good, owner_bad, good_peer, bad_peer;
static char call_log[] = "/tmp/escrow-calls-XXXXXX";

static void setup(void)
{
	char setting[64];
	const char *const settings[] = {setting, NULL};
	int fd = mkstemp(call_log);

	ck_assert_int_ge(fd, 0);
	close(fd);
	snprintf(setting, sizeof(setting), "rdma.call_log=%s", call_log);
	end_open(&owner, 'o', settings);
	end_open(&good, 'g', NULL);
	end_open(&bad, 'b', NULL);
}

/* Both strangers are connected to the owner. */
static void setup_peers(void)
{
	setup();
	ends_connect(&owner, &good, &owner_good, &good_peer);
	ends_connect(&owner, &bad, &owner_bad, &bad_peer);
}

static void teardown(void)
{
	end_close(&bad);
	end_close(&good);
	end_close(&owner);
	unlink(call_log);
}

/* How often the owner's engine made this native call. */
static unsigned int calls(const char *name)
{
	FILE *f = fopen(call_log, "re");
	unsigned int n = 0;
	char line[256], word[64];

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%*u %63s", word) == 1)
			n += !strcmp(word, name);
	fclose(f);
	return n;
}

static void memory_is(const struct end *e, uint64_t from, uint64_t to, uint8_t value)
{
	for (uint64_t i = from; i < to; i++)
		ck_assert_msg(e->memory[i] == value, "byte %llu is %c", (unsigned long long)i,
			      e->memory[i]);
}

/* The other peer's transfers are right, in both directions. */
static void others_are_served(uint64_t remote, uint64_t at, uint64_t length)
{
	struct escrow_event ev = end_move(&good, remote, ESCROW_WRITE, 0, 0, length);

	ck_assert_int_eq(ev.status, ESCROW_OK);
	memory_is(&owner, at, at + length, 'g');
	memset(owner.memory + at, 'o', length);
	ev = end_move(&good, remote, ESCROW_READ, 4096, 0, length);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	memory_is(&good, 4096, 4096 + length, 'o');
	memset(good.memory + 4096, 'g', length);
}

/* The forger lost its connection, and no other one. */
static void only_the_forger_paid(void)
{
	end_wait_of(&bad, ESCROW_EV_PEER_DOWN, bad_peer);
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_bad);
}

/* ---- Forged descriptors -------------------------------------------------------------------------- */
#define GOOD_AT 131072u
#define BAD_AT 8192u
#define GRANTED 4096u

/* Lends a range to each; the good one's remote, and the bad one's descriptor. */
static uint64_t lend(struct wire_grant *forged)
{
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t len, grant, remote;
	uint8_t buf[4096];

	len = end_grant(&owner, owner_good, GOOD_AT, GRANTED, ESCROW_MAY_READ | ESCROW_MAY_WRITE,
			buf, sizeof(buf), &grant);
	remote = end_import(&good, good_peer, buf, len);
	len = end_grant(&owner, owner_bad, BAD_AT, GRANTED, ESCROW_MAY_READ, buf, sizeof(buf),
			&grant);
	ck_assert_int_eq(wire_grant_get(buf, len, forged, &error), ESCROW_OK);
	return remote;
}

static uint64_t import_forged(const struct wire_grant *forged)
{
	uint8_t buf[4096];

	wire_grant_put(forged, buf);
	return end_import(&bad, bad_peer, buf, wire_grant_bytes(forged->nkeys));
}

static void is_refused(uint64_t remote, uint32_t opcode, uint64_t at, uint64_t length)
{
	struct escrow_event ev = end_move(&bad, remote, opcode, 0, at, length);

	ck_assert_int_eq(ev.status, ESCROW_E_ACCESS);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	memory_is(&owner, 0, END_BYTES, 'o');
}

/* R20 */
START_TEST(behind_the_range)
{
	struct wire_grant forged;
	uint64_t remote = lend(&forged);

	forged.length += 64;
	/* The last granted byte and the first behind it. */
	is_refused(import_forged(&forged), ESCROW_READ, GRANTED - 1, 2);
	only_the_forger_paid();
	others_are_served(remote, GOOD_AT, GRANTED);
}
END_TEST

/* R20 */
START_TEST(before_the_range)
{
	struct wire_grant forged;
	uint64_t remote = lend(&forged);

	forged.addr -= 64;
	is_refused(import_forged(&forged), ESCROW_READ, 63, 2);
	only_the_forger_paid();
	others_are_served(remote, GOOD_AT, GRANTED);
}
END_TEST

/* Q16, R20, field-31 */
START_TEST(wrong_rights)
{
	struct wire_grant forged;
	uint64_t remote = lend(&forged);

	forged.rights |= ESCROW_MAY_WRITE;
	is_refused(import_forged(&forged), ESCROW_WRITE, 0, 16);
	only_the_forger_paid();
	others_are_served(remote, GOOD_AT, GRANTED);
}
END_TEST

/* H01: the index of another window, and of this one another tag. */
START_TEST(guessed_key)
{
	struct wire_grant forged;
	uint64_t remote = lend(&forged);

	for (uint32_t i = 0; i < forged.nkeys; i++)
		forged.keys[i] += _i ? 1 : 0x100;
	is_refused(import_forged(&forged), ESCROW_READ, 0, 16);
	only_the_forger_paid();
	others_are_served(remote, GOOD_AT, GRANTED);
}
END_TEST

/* R21: stolen: right in everything, but lent to another. */
START_TEST(key_of_another_peer)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct wire_grant forged, stolen;
	uint64_t grant, len, remote = lend(&forged);
	uint8_t buf[4096];

	len = end_grant(&owner, owner_good, GOOD_AT, GRANTED, ESCROW_MAY_READ | ESCROW_MAY_WRITE,
			buf, sizeof(buf), &grant);
	ck_assert_int_eq(OPS->import_grant(bad.engine, bad_peer, buf, len, 0, &grant, &error),
			 ESCROW_E_STALE_EPOCH);
	ck_assert_int_eq(wire_grant_get(buf, len, &stolen, &error), ESCROW_OK);
	memcpy(stolen.grantee, forged.grantee, 16);
	stolen.epoch = forged.epoch;
	is_refused(import_forged(&stolen), ESCROW_WRITE, 0, 16);
	only_the_forger_paid();
	others_are_served(remote, GOOD_AT, GRANTED);
}
END_TEST

/* A range that is granted in part is a registration of its own, and goes with the grant. */
START_TEST(ranges_come_and_go)
{
	uint64_t before = end_used(&owner, ESCROW_CHARGE_BYTES), grant;
	unsigned int made = calls("reg_mr"), ended = calls("dereg_mr");
	uint8_t buf[4096];

	end_grant(&owner, owner_good, 4096, 100, ESCROW_MAY_READ, buf, sizeof(buf), &grant);
	made = calls("reg_mr") - made;
	/* The guest's rxe holds an access to the registration only (facts.c), in each device. */
	if (getenv("ESCROW_TEST_GUEST"))
		ck_assert_uint_gt(made, 0);
	ck_assert_int_eq(OPS->deregister_memory(owner.engine, owner.region, 0), ESCROW_E_BUSY);
	ck_assert_int_eq(OPS->revoke(owner.engine, grant, 0), ESCROW_IN_PROGRESS);
	end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, grant);
	ck_assert_uint_eq(calls("dereg_mr") - ended, made);
	ck_assert_uint_eq(end_used(&owner, ESCROW_CHARGE_BYTES), before);
	/* All of the region needs none. */
	made = calls("reg_mr");
	end_grant(&owner, owner_good, 0, END_BYTES, ESCROW_MAY_READ, buf, sizeof(buf), &grant);
	ck_assert_uint_eq(calls("reg_mr"), made);
}
END_TEST

/* ---- Connections that must not come to be --------------------------------------------------------- */
static escrow_status connect_forged(void (*forge)(struct wire_invitation *))
{
	struct escrow_error error = {.size = sizeof(error)};
	struct wire_invitation inv;
	uint8_t buf[4096];
	uint64_t len = end_invite(&owner, "bad", buf, sizeof(buf)), peer;

	ck_assert_int_eq(wire_invitation_get(buf, len, "rdma", &inv, &error), ESCROW_OK);
	forge(&inv);
	wire_invitation_put(&inv, buf);
	peer = end_connect(&bad, "owner", buf, len);
	return end_wait_of(&bad, ESCROW_EV_PEER_DOWN, peer).status;
}

static void wrong_secret(struct wire_invitation *inv)
{
	inv->secret[3] ^= 1;
}

static void other_incarnation(struct wire_invitation *inv)
{
	inv->incarnation[0] ^= 1;
}

static void unknown_ticket(struct wire_invitation *inv)
{
	inv->ticket += 1000;
}

START_TEST(wrong_ticket)
{
	ck_assert_int_eq(connect_forged(wrong_secret), ESCROW_E_REFUSED);
	ck_assert_int_eq(connect_forged(unknown_ticket), ESCROW_E_REFUSED);
	ck_assert_uint_eq(calls("create_qp"), 0);
}
END_TEST

/* E01, field-27 */
START_TEST(stale_incarnation)
{
	ck_assert_int_eq(connect_forged(other_incarnation), ESCROW_E_STALE_EPOCH);
	ck_assert_uint_eq(calls("create_qp"), 0);
}
END_TEST

/* E03 */
START_TEST(ticket_twice)
{
	uint8_t buf[4096];
	uint64_t len = end_invite(&owner, "good", buf, sizeof(buf)), peer;
	unsigned int queues;

	peer = end_connect(&good, "owner", buf, len);
	end_wait_of(&good, ESCROW_EV_PEER_UP, peer);
	end_wait(&owner, ESCROW_EV_PEER_UP);
	queues = calls("create_qp");
	ck_assert_uint_gt(queues, 0);
	peer = end_connect(&bad, "owner", buf, len);
	ck_assert_int_eq(end_wait_of(&bad, ESCROW_EV_PEER_DOWN, peer).status, ESCROW_E_REFUSED);
	ck_assert_uint_eq(calls("create_qp"), queues);
}
END_TEST

static int knock(const void *data, uint8_t len)
{
	return end_knock(&owner, 0, data, len);
}

START_TEST(garbage_in_private_data)
{
	uint8_t noise[NATIVE_PRIVATE_BYTES];
	uint32_t seed = 7;

	ck_assert_int_eq(knock(NULL, 0), ECONNREFUSED);
	for (int i = 0; i < 20; i++) {
		for (uint32_t k = 0; k < sizeof(noise); k++)
			noise[k] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
		ck_assert_int_eq(knock(noise, (uint8_t)(i * 3 % sizeof(noise))), ECONNREFUSED);
	}
	ck_assert_uint_eq(calls("create_qp"), 0);
	/* The last answer is on record once the next one is. */
	ends_connect(&owner, &good, &owner_good, &good_peer);
	ck_assert_uint_ge(calls("cm_reject"), 21);
}
END_TEST

/* One that knocks all the time: everybody else goes on, and he gets nothing. */
START_TEST(flood_of_connects)
{
	uint64_t len, grant, remote;
	unsigned int queues;
	uint8_t buf[4096];

	ends_connect(&owner, &good, &owner_good, &good_peer);
	len = end_grant(&owner, owner_good, GOOD_AT, GRANTED, ESCROW_MAY_READ | ESCROW_MAY_WRITE,
			buf, sizeof(buf), &grant);
	remote = end_import(&good, good_peer, buf, len);
	queues = calls("create_qp");
	for (int i = 0; i < 60; i++) {
		ck_assert_int_eq(knock("let me in", 9), ECONNREFUSED);
		if (i % 10 == 0)
			others_are_served(remote, GOOD_AT, GRANTED);
	}
	ck_assert_uint_eq(calls("create_qp"), queues);
	others_are_served(remote, GOOD_AT, GRANTED);
}
END_TEST

/* ---- The machine --------------------------------------------------------------------------------- */
/* P05, field-40 */
START_TEST(too_little_may_be_locked)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args args = {.size = sizeof(args),
					  .length = 2 << 20,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	uint64_t before = end_used(&owner, ESCROW_CHARGE_BYTES), region = 5;

	rdma_host_locks(1 << 20);
	args.addr = aligned_alloc(4096, args.length);
	ck_assert_int_eq(OPS->register_memory(owner.engine, &args, &region, &error),
			 ESCROW_E_MEMLOCK);
	ck_assert_msg(strstr(error.text, "1048576") && strstr(error.text, "2097152"), "%s",
		      error.text);
	ck_assert_uint_eq(region, 5);
	ck_assert_uint_eq(end_used(&owner, ESCROW_CHARGE_BYTES), before);
	free(args.addr);
}
END_TEST

START_TEST(no_such_device)
{
	const char *const settings[] = {"rdma.rails=nosuch0", NULL};
	struct escrow_error error = {.size = sizeof(error)};
	struct end e;
	escrow_status st = end_try(&e, settings, &error);

	ck_assert_int_lt(st, 0);
	ck_assert_msg(strstr(error.text, "nosuch0") != NULL, "%s", error.text);
	ck_assert_ptr_null(e.engine);
}
END_TEST

/* A peer of an engine that uses one rail of several has one connection. */
START_TEST(rails_are_limited)
{
	const char *const settings[] = {"max_rails=1", NULL};
	uint64_t by_good, by_one;
	struct end one;

	end_open(&one, '1', settings);
	ends_connect(&one, &good, &by_one, &by_good);
	ck_assert_uint_eq(end_used(&one, ESCROW_CHARGE_CONNECTIONS), 1);
	ck_assert_uint_eq(end_used(&good, ESCROW_CHARGE_CONNECTIONS), 1);
	end_close(&one);
}
END_TEST

static void add_cases(Suite *s)
{
	TCase *t = tcase_create("forged");

	tcase_add_checked_fixture(t, setup_peers, teardown);
	tcase_set_timeout(t, 240);
	tcase_add_test(t, behind_the_range);
	tcase_add_test(t, before_the_range);
	tcase_add_test(t, wrong_rights);
	tcase_add_loop_test(t, guessed_key, 0, 2);
	tcase_add_test(t, key_of_another_peer);
	tcase_add_test(t, ranges_come_and_go);
	suite_add_tcase(s, t);
	t = tcase_create("connects");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 240);
	tcase_add_test(t, wrong_ticket);
	tcase_add_test(t, stale_incarnation);
	tcase_add_test(t, ticket_twice);
	tcase_add_test(t, garbage_in_private_data);
	tcase_add_test(t, flood_of_connects);
	tcase_add_test(t, too_little_may_be_locked);
	tcase_add_test(t, no_such_device);
	tcase_add_test(t, rails_are_limited);
	suite_add_tcase(s, t);
}

int main(void)
{
	Suite *s;
	char why[256];

	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	s = suite_create("rdma-hostile");
	add_cases(s);
	return testing_run(s);
}
