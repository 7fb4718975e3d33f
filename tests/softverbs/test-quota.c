/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every limit that a host can set: what is one too many is refused, the refusal says which limit it was
 * and its value as it was set, and nothing is charged or made for it.  On a device with two rails, so that
 * a registration and a grant are two.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"

#define PIECE 4096u
#define MOST 16u /* of anything that a row tries */

static struct end e, friend, other; /* e has the limit */
static struct escrow_error error;

/* ---- One more of something, until it is refused ------------------------------------------------------- */
static escrow_status more_regions(uint32_t n)
{
	static uint8_t memory[MOST][PIECE];
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = memory[n],
					  .length = PIECE,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	uint64_t region;

	return OPS->register_memory(e.engine, &args, &region, &error);
}

static escrow_status one_grant(uint64_t peer)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ,
					 .peer = peer,
					 .region = e.region,
					 .length = PIECE};
	uint64_t grant;

	return OPS->grant(e.engine, &args, &grant, &error);
}

static uint64_t friends; /* the handle that e has for it */

static escrow_status more_grants(uint32_t n)
{
	uint64_t by_friend;

	if (n == 0)
		ends_connect(&e, &friend, &friends, &by_friend);
	return one_grant(friends);
}

/* An open invitation: who comes by it has no name of its own. */
static escrow_status more_grants_to_anybody(uint32_t n)
{
	struct escrow_invite_args args = {.size = sizeof(args), .flags = ESCROW_INVITE_ANY};
	uint8_t buf[4096];
	uint64_t len = sizeof(buf);

	if (n == 0) {
		ck_assert_int_eq(OPS->invite(e.engine, &args, buf, &len), ESCROW_OK);
		end_connect(&friend, "e", buf, len);
		friends = end_wait(&e, ESCROW_EV_PEER_UP).object;
	}
	return one_grant(friends);
}

static escrow_status more_offers(uint32_t n)
{
	(void)n;
	return one_grant(0);
}

static escrow_status one_peer(const char *name)
{
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = name};
	uint8_t buf[4096];
	uint64_t peer;

	args.invitation = buf;
	args.invitation_len = end_invite(&friend, name, buf, sizeof(buf));
	return OPS->connect(e.engine, &args, &peer, &error);
}

static escrow_status more_peers(uint32_t n)
{
	char name[16];

	snprintf(name, sizeof(name), "peer %u", n);
	return one_peer(name);
}

static escrow_status more_of_one_name(uint32_t n)
{
	(void)n;
	return one_peer("again");
}

static uint64_t remote; /* what the friend lends */
static uint8_t grant[4096];
static uint64_t grant_len;

static void borrow(void)
{
	uint64_t by_friend, handle;

	ends_connect(&e, &friend, &friends, &by_friend);
	grant_len = end_grant(&friend, by_friend, 0, PIECE, ESCROW_MAY_READ, grant, sizeof(grant),
			      &handle);
}

static escrow_status more_remotes(uint32_t n)
{
	if (n == 0)
		borrow();
	return OPS->import_grant(e.engine, friends, grant, grant_len, 0, &remote, &error);
}

/* None is polled, so all are outstanding. */
static escrow_status one_op(void)
{
	struct escrow_sge sge = {.region = e.region, .length = PIECE};
	struct escrow_op op = {.opcode = ESCROW_READ, .nsge = 1, .sge = &sge};
	uint64_t id;

	op.remote = remote;
	error.text[0] = 0;
	return OPS->transfer(e.engine, &op, 1, sizeof(op), 0, &id);
}

static escrow_status more_ops(uint32_t n)
{
	if (n == 0) {
		borrow();
		remote = end_import(&e, friends, grant, grant_len);
	}
	return one_op();
}

/* To two peers of one name, in turns: neither has all that the name may have. */
static escrow_status more_ops_of_one_name(uint32_t n)
{
	static uint64_t remotes[2];

	for (int i = 0; n == 0 && i < 2; i++) {
		borrow();
		remotes[i] = end_import(&e, friends, grant, grant_len);
	}
	remote = remotes[n % 2];
	return one_op();
}

/* ---- The limits ---------------------------------------------------------------------------------------- */
static const struct row {
	const char *key, *value;
	escrow_status (*more)(uint32_t n);
	uint32_t fit; /* so many are taken */
	escrow_status status;
	const char *text;
} rows[] = {
	{"quota.bytes", "270335", more_regions, 1, ESCROW_E_QUOTA,
	 "bytes of the engine: 4096 more than the 266240 in use exceed 270335"},
	{"quota.regions", "3", more_regions, 2, ESCROW_E_QUOTA,
	 "regions of the engine: 1 more than the 3 in use exceed 3"},
	{"max_regions", "3", more_regions, 2, ESCROW_E_LIMIT, "all of max_regions 3 are in use"},
	{"quota.grants", "2", more_grants, 2, ESCROW_E_QUOTA,
	 "grants of the engine: 1 more than the 2 in use exceed 2"},
	{"quota.grants", "2", more_offers, 2, ESCROW_E_QUOTA,
	 "grants of the engine: 1 more than the 2 in use exceed 2"},
	{"quota.granted_bytes", "12287", more_grants, 2, ESCROW_E_QUOTA,
	 "granted_bytes of the engine: 4096 more than the 8192 in use exceed 12287"},
	{"quota.granted_bytes", "12287", more_offers, 2, ESCROW_E_QUOTA,
	 "granted_bytes of the engine: 4096 more than the 8192 in use exceed 12287"},
	{"peer_quota.grants", "2", more_grants, 2, ESCROW_E_QUOTA,
	 "grants of active: 1 more than the 2 in use exceed 2"},
	{"peer_quota.granted_bytes", "8K", more_grants, 2, ESCROW_E_QUOTA,
	 "granted_bytes of active: 4096 more than the 8192 in use exceed 8192"},
	{"max_grants", "2", more_grants, 2, ESCROW_E_LIMIT, "all of max_grants 2 are in use"},
	{"max_peer_grants", "2", more_grants, 2, ESCROW_E_LIMIT,
	 "\"active\" has all of max_peer_grants 2"},
	{"quota.any_peers", "2", more_grants_to_anybody, 2, ESCROW_E_QUOTA,
	 "quota.any_peers 2 is used up"},
	{"max_peers", "2", more_peers, 2, ESCROW_E_LIMIT, "all of max_peers 2 are in use"},
	/* two rails: two connections a peer */
	{"quota.connections", "4", more_peers, 2, ESCROW_E_QUOTA,
	 "connections of the engine: 1 more than the 4 in use exceed 4"},
	{"peer_quota.connections", "2", more_of_one_name, 1, ESCROW_E_QUOTA,
	 "connections of again: 1 more than the 2 in use exceed 2"},
	/* how deep a queue is the engine decides */
	{"quota.sq_slots", "7", more_peers, 0, ESCROW_E_QUOTA, "sq_slots of the engine: "},
	{"quota.cq_slots", "7", more_peers, 0, ESCROW_E_QUOTA, "cq_slots of the engine: "},
	{"peer_quota.sq_slots", "7", more_of_one_name, 0, ESCROW_E_QUOTA, "sq_slots of again: "},
	{"peer_quota.cq_slots", "7", more_of_one_name, 0, ESCROW_E_QUOTA, "cq_slots of again: "},
	{"max_remotes", "1", more_remotes, 1, ESCROW_E_LIMIT, "all of max_remotes 1 are in use"},
	/* transfer has no text */
	{"quota.ops", "2", more_ops, 2, ESCROW_E_QUOTA, ""},
	{"peer_quota.ops", "2", more_ops, 2, ESCROW_E_QUOTA, ""},
	{"peer_quota.ops", "3", more_ops_of_one_name, 3, ESCROW_E_QUOTA, ""},
	{"max_ops", "2", more_ops, 2, ESCROW_E_AGAIN, ""},
};
#define ROWS ((int)(sizeof(rows) / sizeof(rows[0])))

/* P01, P03: refused at the limit and not before, by name and number; the charge is what it was. */
START_TEST(one_too_many)
{
	const struct row *r = &rows[_i];
	char setting[64];
	const char *const settings[] = {setting, NULL};
	struct escrow_charge before[64], after[64];
	escrow_status st = ESCROW_OK;
	int32_t n;

	error.size = sizeof(error);
	snprintf(setting, sizeof(setting), "%s=%s", r->key, r->value);
	end_open(&e, 'e', settings);
	end_open(&friend, 'f', NULL);
	for (uint32_t i = 0; i < r->fit; i++) {
		st = r->more(i);
		ck_assert_msg(st >= 0, "%s: number %u of %u: %d %s", setting, i + 1, r->fit, st,
			      error.text);
	}
	n = OPS->charges(e.engine, before, 64, sizeof(before[0]));
	st = r->more(r->fit);
	ck_assert_msg(st == r->status, "%s: %d %s", setting, st, error.text);
	ck_assert_msg(strstr(error.text, r->text) != NULL, "%s: \"%s\"", setting, error.text);
	if (r->fit == 0)
		ck_assert_msg(strstr(error.text, "exceed 7") != NULL, "%s", error.text);
	/* Ops and connections go on by themselves meanwhile. */
	ck_assert_int_eq(OPS->charges(e.engine, after, 64, sizeof(after[0])), n);
	for (int32_t i = 0; i < n; i++)
		if (before[i].kind <= ESCROW_CHARGE_GRANTED_BYTES)
			ck_assert_uint_eq(before[i].used, after[i].used);
	end_close(&e); /* every charge comes back, though the host has forgotten each handle */
	end_close(&friend);
}
END_TEST

static bool is_limit(const char *key)
{
	static const char *const numbers[] = {"max_regions",     "max_peers",   "max_grants",
					      "max_peer_grants", "max_remotes", "max_ops"};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (strcmp(key, numbers[i]) == 0)
			return true;
	return strncmp(key, "quota.", 6) == 0 || strncmp(key, "peer_quota.", 11) == 0;
}

START_TEST(each_limit_has_a_row)
{
	const struct escrow_backend *b = ends_backend();
	uint32_t limits = 0;

	for (uint32_t i = 0; i < b->noptions; i++) {
		const struct escrow_option *o =
			(const void *)((const char *)b->options + (size_t)i * b->options_stride);
		bool found = false;

		for (int k = 0; k < ROWS; k++)
			found |= strcmp(rows[k].key, o->key) == 0;
		limits += is_limit(o->key);
		ck_assert_msg(found || !is_limit(o->key), "no row for %s", o->key);
	}
	ck_assert_uint_ge(limits, 14);
}
END_TEST

/* P02: a peer that takes grants, gives none back and comes again under new incarnations: its name is
 * refused at its cap, and nobody else is. */
START_TEST(a_name_that_crashes_and_comes_again)
{
	static const char *const settings[] = {"peer_quota.grants=3", NULL};
	uint64_t by_other, peer = 0, by_e;
	struct end loop[3];
	uint8_t buf[4096];
	uint64_t len;

	error.size = sizeof(error);
	end_open(&e, 'e', settings);
	for (int i = 0; i < 3; i++) {
		end_open(&loop[i], 'l', NULL);
		len = end_invite(&e, "loop", buf, sizeof(buf));
		end_connect(&loop[i], "e", buf, len);
		peer = end_wait(&e, ESCROW_EV_PEER_UP).object;
		/* Those of its earlier lives still stand: e has no proof that they can go. */
		ck_assert_int_eq(one_grant(peer), ESCROW_IN_PROGRESS);
	}
	ck_assert_int_eq(one_grant(peer), ESCROW_E_QUOTA);
	ck_assert_ptr_nonnull(
		strstr(error.text, "grants of loop: 1 more than the 3 in use exceed 3"));
	end_open(&other, 'o', NULL);
	ends_connect(&other, &e, &by_other, &by_e);
	ck_assert_int_eq(one_grant(by_e), ESCROW_IN_PROGRESS);
	end_close(&e);
	for (int i = 0; i < 3; i++)
		end_close(&loop[i]);
	end_close(&other);
}
END_TEST

/* P03: a host that registers and forgets is stopped by its quota, and the device was not asked. */
START_TEST(the_quota_comes_before_the_limit_of_the_kernel)
{
	static const char *const settings[] = {"quota.bytes=270336", NULL};

	error.size = sizeof(error);
	end_open(&e, 'e', settings);
	ck_assert_int_eq(more_regions(0), ESCROW_OK);
	ck_assert_int_eq(more_regions(1), ESCROW_OK);
	rdma_host_locks(0);
	ck_assert_int_eq(more_regions(2), ESCROW_E_QUOTA);
	end_close(&e);
}
END_TEST

int main(void)
{
	Suite *s;
	TCase *t;
	char why[256];

	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	s = suite_create("quota");
	t = tcase_create("limits");
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, one_too_many, 0, ROWS);
	tcase_add_test(t, each_limit_has_a_row);
	tcase_add_test(t, a_name_that_crashes_and_comes_again);
	tcase_add_test(t, the_quota_comes_before_the_limit_of_the_kernel);
	suite_add_tcase(s, t);
	return testing_run(s);
}
