/* SPDX-License-Identifier: BSD-2-Clause */
/* Quotas of the process, over the host engines of it: what is over one is refused by name and number. */
#include <stddef.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"

#define SIZE 4096u

static char memory[SIZE];
static struct escrow_host_engine *host, *other;
static uint64_t region;
static struct escrow_error error = {.size = sizeof(error)};
static struct escrow_quota limits;

static void setup(void)
{
	memset(&limits, 0xff, sizeof(limits));
	limits.size = sizeof(limits);
	host = hosting_open(hosting_module("fake"), 0, NULL);
	other = hosting_open(hosting_module("fake"), 0, NULL);
	region = hosting_register(host, memory, SIZE, NULL);
}

static struct escrow_quota used(void)
{
	struct escrow_quota q = {.size = sizeof(q)};

	escrow_quota_get(NULL, &q);
	return q;
}

static void close_both(void)
{
	hosting_close(other);
	hosting_close(host);
	ck_assert_uint_eq(used().bytes + used().regions + used().grants, 0);
	ck_assert_uint_eq(used().granted_bytes + used().peers + used().ops, 0);
}

START_TEST(granted_bytes)
{
	struct escrow_grant_args args = {
		.size = sizeof(args), .rights = ESCROW_MAY_READ, .region = region, .length = 3000};
	uint64_t grant;

	limits.granted_bytes = 4000;
	escrow_quota_set(&limits);
	ck_assert_int_eq(escrow_grant(host, &args, &grant, &error), ESCROW_IN_PROGRESS);
	hosting_expect(host, ESCROW_EV_GRANT_READY);
	args.length = 1001;
	ck_assert_int_eq(escrow_grant(host, &args, &grant, &error), ESCROW_E_QUOTA);
	ck_assert_str_eq(
		error.text,
		"granted_bytes of the process: 1001 more than the 3000 in use exceed 4000");
	ck_assert_uint_eq(used().grants, 1); /* all of it, or nothing */
	args.length = 1000;
	ck_assert_int_eq(escrow_grant(host, &args, &grant, &error), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(used().granted_bytes, 4000);
	close_both();
}
END_TEST

static escrow_status connect_one(struct escrow_host_engine *engine, uint64_t *peer)
{
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "p"};

	return escrow_connect(engine, &args, peer, &error);
}

START_TEST(peers)
{
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = "q"};
	uint64_t peer, more, len = 64;
	char invitation[64];

	limits.peers = 2;
	escrow_quota_set(&limits);
	ck_assert_int_eq(connect_one(host, &peer), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(connect_one(other, &more), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(connect_one(other, &more), ESCROW_E_QUOTA);
	ck_assert_str_eq(error.text, "peers of the process: 1 more than the 2 in use exceed 2");
	ck_assert_int_eq(escrow_invite(host, &args, invitation, &len), ESCROW_E_QUOTA);
	hosting_expect(host, ESCROW_EV_PEER_UP);
	ck_assert_int_eq(escrow_disconnect(host, peer), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(used().peers, 2);
	hosting_expect(host, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(used().peers, 1);
	ck_assert_int_eq(connect_one(other, &more), ESCROW_IN_PROGRESS);
	close_both();
}
END_TEST

/* Its end had no receipt: it stays charged until the engine's end has one. */
START_TEST(a_peer_that_is_stuck)
{
	struct escrow_event down = {.kind = ESCROW_EV_PEER_DOWN, .status = ESCROW_E_UNQUIESCED};
	const struct fake_control *fake;
	struct escrow_engine *engine;
	uint64_t peer;

	ck_assert_int_eq(connect_one(host, &peer), ESCROW_IN_PROGRESS);
	hosting_expect(host, ESCROW_EV_PEER_UP);
	fake = hosting_fake(host, &engine);
	down.object = escrow_backend_handle(host, peer);
	fake->say(engine, &down);
	hosting_expect(host, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(used().peers, 1);
	close_both();
}
END_TEST

START_TEST(ops)
{
	struct escrow_sge range = {region, 0, 1};
	uint64_t remote = hosting_remote(host), op;

	limits.ops = 2;
	escrow_quota_set(&limits);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote, range, &op), 1);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote, range, &op), 1);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote, range, &op), ESCROW_E_QUOTA);
	/* One that is withheld counts on; one that ended does not. */
	hosting_finish(host, ESCROW_CUSTODY_HELD);
	hosting_expect(host, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(used().ops, 2);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_wait(host, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(used().ops, 1);
	/* A range of nothing: refused, and not counted. */
	range.region = 1;
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote, range, &op),
			 ESCROW_E_INVALID);
	ck_assert_uint_eq(used().ops, 1);
	range.region = region;
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote, range, &op), 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_wait(host, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(used().ops, 1);
}
END_TEST

/* A host that was built when there were three limits sets those, and no others. */
START_TEST(a_shorter_struct)
{
	struct escrow_quota got = {.size = sizeof(got)};

	limits.size = offsetof(struct escrow_quota, granted_bytes);
	limits.regions = 7;
	limits.ops = limits.peers = limits.granted_bytes = 0; /* beyond its end */
	limits.connections = limits.sq_slots = limits.cq_slots = 0;
	escrow_quota_set(&limits);
	escrow_quota_get(&got, NULL);
	ck_assert_uint_eq(got.regions, 7);
	ck_assert_uint_eq(got.granted_bytes, UINT64_MAX);
	ck_assert_uint_eq(got.peers, UINT64_MAX);
	ck_assert_uint_eq(got.ops, UINT64_MAX);
	ck_assert_uint_eq(got.connections, UINT64_MAX);
	ck_assert_uint_eq(got.sq_slots, UINT64_MAX);
	ck_assert_uint_eq(got.cq_slots, UINT64_MAX);
	limits.size--;
	limits.regions = 8;
	escrow_quota_set(&limits); /* none of the structs that there were */
	escrow_quota_get(&got, NULL);
	ck_assert_uint_eq(got.regions, 7);
	close_both();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("process-quota");
	TCase *tcase = tcase_create("limits");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, granted_bytes);
	tcase_add_test(tcase, peers);
	tcase_add_test(tcase, a_peer_that_is_stuck);
	tcase_add_test(tcase, ops);
	tcase_add_test(tcase, a_shorter_struct);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
