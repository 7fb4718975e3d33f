/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel lets a process have is never met first: of memory that may be locked, a limit of the
 * engine's own comes before it, and leaves room for the peers that are still to come.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"

#define MB (UINT64_C(1) << 20)

static struct end e, friend;
static struct escrow_error error = {.size = sizeof(error)};

static uint64_t page(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* docs/status.md: recv_depth and 8 pages for each rail of a peer. */
static uint64_t control_memory(uint64_t peers, uint64_t recv_depth)
{
	char addresses[8][64];

	return peers * ends_rails(addresses, 8) * (recv_depth + 8) * 4096;
}

static uint64_t devices(void)
{
	struct escrow_record records[64];
	uint64_t cursor = 0, n = 0;
	int32_t got;

	while ((got = OPS->records(e.engine, &cursor, records, 64, sizeof(records[0]))) > 0)
		for (int32_t i = 0; i < got; i++)
			n += records[i].kind == ESCROW_OWNER_CONTEXT;
	return n;
}

static uint64_t limit_of_bytes(void)
{
	struct escrow_charge charges[64];
	int32_t n = OPS->charges(e.engine, charges, 64, sizeof(charges[0]));

	for (int32_t i = 0; i < n; i++)
		if (charges[i].kind == ESCROW_CHARGE_BYTES && !charges[i].peer_name[0])
			return charges[i].limit;
	return 0;
}

static escrow_status take(void *at, uint64_t length)
{
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = at,
					  .length = length,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	uint64_t region;

	return OPS->register_memory(e.engine, &args, &region, &error);
}

/* Half of what may be locked is for control memory at most; the rest is for regions, in each device. */
static const struct {
	uint64_t locks;
	const char *setting;
	uint64_t peers; /* 0: more than fit */
} defaults[] = {
	{8 * MB, "max_peers=4", 4},
	{8 * MB, "max_peers=4096", 0},
	{3 * MB, "max_peers=1", 1},
};

START_TEST(the_default_of_quota_bytes)
{
	const char *const settings[] = {defaults[_i].setting, NULL};
	uint64_t locks = defaults[_i].locks, room = locks / 2;

	if (defaults[_i].peers)
		room = control_memory(defaults[_i].peers, 16);
	ck_assert_uint_le(room, locks / 2);
	rdma_host_locks(locks);
	end_open(&e, 'e', settings);
	ck_assert_uint_eq(limit_of_bytes(), (locks - room) / devices() / page() * page());
	end_close(&e);
}
END_TEST

START_TEST(what_the_host_sets_is_the_quota)
{
	const char *const settings[] = {"quota.bytes=1M", NULL};

	rdma_host_locks(8 * MB);
	end_open(&e, 'e', settings);
	ck_assert_uint_eq(limit_of_bytes(), MB / devices() * devices());
	end_close(&e);
}
END_TEST

START_TEST(without_a_limit_there_is_none)
{
	end_open(&e, 'e', NULL);
	ck_assert_uint_eq(limit_of_bytes(), UINT64_MAX);
	end_close(&e);
}
END_TEST

/*
 * Registrations that go on until they are refused, of whole pages and of four bytes that lie in two: it is
 * the quota that refuses, by name and number, and peers can still come.
 */
START_TEST(registering_without_end)
{
	static const char *const settings[] = {"max_peers=8", "max_regions=4096", NULL};
	const uint64_t locks = 4 * MB;
	uint64_t length = _i ? 4 : 64 * 1024, n = 0, by_e, by_friend;
	uint8_t *memory = aligned_alloc(page(), 64 * 1024);
	escrow_status st;

	rdma_host_locks(locks);
	end_open(&friend, 'f', settings);
	end_open(&e, 'e', settings);
	while ((st = take(memory + (_i ? page() - 2 : 0), length)) == ESCROW_OK)
		n++;
	ck_assert_msg(st == ESCROW_E_QUOTA, "%d %s", st, error.text);
	ck_assert_msg(strstr(error.text, "bytes of the ") && strstr(error.text, " more than the "),
		      "%s", error.text);
	if (_i)
		ck_assert_msg(strstr(error.text, "RLIMIT_MEMLOCK 4194304"), "%s", error.text);
	/* Not long before: less than that is left, without the room of eight peers. */
	ck_assert_uint_gt(devices() * (n + 1) * (_i ? 2 * page() : length),
			  locks - control_memory(8, 16) - 4 * END_BYTES);
	ends_connect(&friend, &e, &by_friend, &by_e);
	end_close(&e);
	end_close(&friend);
	free(memory);
}
END_TEST

/* Of two peers with 1 MB of control memory on each rail one fits, and the engine knows it. */
START_TEST(peers_without_end)
{
	static const char *const settings[] = {"recv_depth=248", NULL};
	uint64_t by_e, by_friend, len;
	uint8_t buf[4096];

	/* what both have, and less than half a rail more */
	rdma_host_locks(4 * END_BYTES + control_memory(1, 248) + control_memory(1, 16) + 65536);
	end_open(&friend, 'f', NULL);
	end_open(&e, 'e', settings);
	ends_connect(&friend, &e, &by_friend, &by_e);
	len = end_invite(&friend, "again", buf, sizeof(buf));
	by_e = end_connect(&e, "again", buf, len);
	ck_assert_int_eq(end_wait_of(&e, ESCROW_EV_PEER_DOWN, by_e).status, ESCROW_E_QUOTA);
	end_close(&e);
	end_close(&friend);
}
END_TEST

/* What others of the process have locked counts: the kernel tells how much that is; the double does not. */
START_TEST(two_engines)
{
	static const char *const settings[] = {"max_peers=1", NULL};
	uint8_t *memory = aligned_alloc(page(), 2 * MB);

	rdma_host_locks(8 * MB);
	end_open(&friend, 'f', settings);
	end_open(&e, 'e', settings);
	if (!ends_double()) {
		ck_assert_int_eq(take(memory, 2 * MB), ESCROW_OK);
		ck_assert_int_eq(take(memory, MB), ESCROW_OK); /* 6 MB in two devices */
		struct end swapped = e;

		e = friend;
		ck_assert_int_eq(take(memory, 2 * MB), ESCROW_E_QUOTA);
		ck_assert_ptr_nonnull(strstr(error.text, "locked bytes of the process"));
		e = swapped;
	}
	end_close(&e);
	end_close(&friend);
	free(memory);
}
END_TEST

/* A device that registers each granted range anew: the grant is refused, and nothing else is harmed. */
START_TEST(grants_without_end)
{
	struct escrow_grant_args args = {
		.size = sizeof(args), .rights = ESCROW_MAY_READ, .length = 200000};
	uint64_t by_e, by_friend, grant = 0, last = 0;
	struct escrow_event ev = {0};
	uint32_t n;

	rdma_host_locks(8 * MB);
	end_open(&friend, 'f', NULL);
	end_open(&e, 'e', NULL);
	ends_connect(&friend, &e, &by_friend, &by_e);
	args.peer = by_e;
	args.region = e.region;
	for (n = 0; n < 40 && ev.status >= 0; n++) {
		last = grant;
		ck_assert_int_eq(OPS->grant(e.engine, &args, &grant, &error), ESCROW_IN_PROGRESS);
		ev = end_wait_of(&e, ESCROW_EV_GRANT_READY, grant);
	}
	if (n < 40) {
		ck_assert_int_eq(ev.status, ESCROW_E_QUOTA);
		ck_assert_uint_ne(last, 0);
		ck_assert_int_eq(OPS->revoke(e.engine, last, 0), ESCROW_IN_PROGRESS);
		end_wait_of(&e, ESCROW_EV_GRANT_REVOKED, last);
		ck_assert_int_eq(OPS->grant(e.engine, &args, &grant, &error), ESCROW_IN_PROGRESS);
		ck_assert_int_eq(end_wait_of(&e, ESCROW_EV_GRANT_READY, grant).status, ESCROW_OK);
	} else {
		ck_assert_msg(ends_double(), "40 grants, and 16 MB of pages under a limit of 8");
	}
	end_close(&e);
	end_close(&friend);
}
END_TEST

int main(void)
{
	struct rlimit most;
	Suite *s;
	TCase *t;
	char why[256];

	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	if (getrlimit(RLIMIT_MEMLOCK, &most) != 0 || most.rlim_max < 8 * MB)
		return testing_skip("the hard limit of RLIMIT_MEMLOCK is below 8 MB");
	s = suite_create("limits");
	t = tcase_create("memlock");
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, the_default_of_quota_bytes, 0,
			    (int)(sizeof(defaults) / sizeof(defaults[0])));
	tcase_add_test(t, what_the_host_sets_is_the_quota);
	tcase_add_test(t, without_a_limit_there_is_none);
	tcase_add_loop_test(t, registering_without_end, 0, 2);
	tcase_add_test(t, peers_without_end);
	tcase_add_test(t, two_engines);
	tcase_add_test(t, grants_without_end);
	suite_add_tcase(s, t);
	return testing_run(s);
}
