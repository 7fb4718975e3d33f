/* SPDX-License-Identifier: BSD-2-Clause */
/* What one peer name may have, over the host engines of the process and over their backends. */
#include <stddef.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"

#define SIZE 4096u

static char memory[SIZE];
static struct escrow_host_engine *host, *other;
static struct escrow_error error = {.size = sizeof(error)};
static struct escrow_quota limits;

static void no_limits(void)
{
	memset(&limits, 0xff, sizeof(limits));
	limits.size = sizeof(limits);
}

static void setup(void)
{
	no_limits();
	host = hosting_open(hosting_module("fake"), 0, NULL);
	other = hosting_open(hosting_module("fake"), 0, NULL);
}

static struct escrow_quota used(const char *name)
{
	struct escrow_quota q = {.size = sizeof(q)};

	ck_assert_int_eq(escrow_quota_get_peer(name, NULL, &q), ESCROW_OK);
	return q;
}

static void set(const char *name)
{
	ck_assert_int_eq(escrow_quota_set_peer(name, &limits), ESCROW_OK);
}

static escrow_status connect_as(struct escrow_host_engine *engine, const char *name, uint64_t *peer)
{
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = name};

	return escrow_connect(engine, &args, peer, &error);
}

static void disconnect(struct escrow_host_engine *engine, uint64_t peer)
{
	hosting_wait(engine, ESCROW_EV_PEER_UP);
	ck_assert_int_eq(escrow_disconnect(engine, peer), ESCROW_IN_PROGRESS);
	hosting_wait(engine, ESCROW_EV_PEER_DOWN);
}

static void close_both(void)
{
	struct escrow_quota all = {.size = sizeof(all)};

	hosting_close(other);
	hosting_close(host);
	escrow_quota_get(NULL, &all);
	ck_assert_uint_eq(all.peers + all.grants + all.granted_bytes, 0);
	ck_assert_uint_eq(used("p").peers + used("p").grants + used("p").granted_bytes, 0);
}

START_TEST(peers_of_one_name_in_two_engines)
{
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "p"};
	uint64_t peer, more, len = 64;
	char bytes[64];

	limits.peers = 1;
	set("p");
	ck_assert_int_eq(connect_as(host, "p", &peer), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(connect_as(other, "p", &more), ESCROW_E_QUOTA);
	ck_assert_str_eq(error.text,
			 "peers of \"p\" in the process: 1 more than the 1 in use exceed 1");
	ck_assert_int_eq(escrow_invite(other, &invite, bytes, &len), ESCROW_E_QUOTA);
	/* Another name has nothing to do with it: the backend is asked, which has no invitations. */
	invite.peer_name = "q";
	ck_assert_int_eq(escrow_invite(other, &invite, bytes, &len), ESCROW_E_UNSUPPORTED);
	ck_assert_uint_eq(used("q").peers, 0);
	disconnect(host, peer);
	ck_assert_uint_eq(used("p").peers, 0);
	ck_assert_int_eq(connect_as(other, "p", &more), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(used("p").peers, 1);
	close_both();
}
END_TEST

/* The limit of each name holds for those without limits of their own. */
START_TEST(a_limit_for_each_name)
{
	struct escrow_quota got = {.size = sizeof(got)};
	uint64_t peer, more;

	limits.peers = 1;
	set(NULL);
	limits.peers = 2;
	set("p");
	ck_assert_int_eq(connect_as(host, "p", &peer), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(connect_as(other, "p", &more), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(connect_as(other, "p", &more), ESCROW_E_QUOTA);
	ck_assert_int_eq(escrow_quota_get_peer("p", &got, NULL), ESCROW_OK);
	ck_assert_uint_eq(got.peers, 2);
	ck_assert_int_eq(escrow_quota_get_peer("never seen", &got, NULL), ESCROW_OK);
	ck_assert_uint_eq(got.peers, 1);
	ck_assert_int_eq(escrow_quota_get_peer(NULL, &got, NULL), ESCROW_OK);
	ck_assert_uint_eq(got.peers, 1);
	/* Without its own it has those of each; without those, none. */
	ck_assert_int_eq(escrow_quota_set_peer("p", NULL), ESCROW_OK);
	ck_assert_int_eq(connect_as(other, "p", &more), ESCROW_E_QUOTA);
	ck_assert_str_eq(error.text,
			 "peers of \"p\" in the process: 1 more than the 2 in use exceed 1");
	ck_assert_int_eq(escrow_quota_set_peer(NULL, NULL), ESCROW_OK);
	ck_assert_int_eq(escrow_quota_get_peer("p", &got, NULL), ESCROW_OK);
	ck_assert_uint_eq(got.peers, UINT64_MAX);
	ck_assert_int_eq(connect_as(other, "p", &more), ESCROW_IN_PROGRESS);
	close_both();
}
END_TEST

static escrow_status lend(struct escrow_host_engine *engine, uint64_t region, uint64_t peer,
			  uint64_t length)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ,
					 .peer = peer,
					 .region = region,
					 .length = length};
	uint64_t grant;

	return escrow_grant(engine, &args, &grant, &error);
}

START_TEST(grants_of_one_name_in_two_engines)
{
	uint64_t region = hosting_register(host, memory, SIZE, NULL);
	uint64_t again = hosting_register(other, memory, SIZE, NULL), peer, more;

	limits.granted_bytes = 1000;
	set("p");
	ck_assert_int_eq(connect_as(host, "p", &peer), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(connect_as(other, "p", &more), ESCROW_IN_PROGRESS);
	hosting_expect(host, ESCROW_EV_PEER_UP);
	hosting_expect(other, ESCROW_EV_PEER_UP);
	ck_assert_int_eq(lend(host, region, peer, 600), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(lend(other, again, more, 401), ESCROW_E_QUOTA);
	ck_assert_str_eq(
		error.text,
		"granted_bytes of \"p\" in the process: 401 more than the 600 in use exceed 1000");
	ck_assert_uint_eq(used("p").grants, 1); /* all of it, or nothing */
	ck_assert_int_eq(lend(other, again, more, 400), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(used("p").granted_bytes, 1000);
	ck_assert_uint_eq(used("p").grants, 2);
	close_both();
}
END_TEST

/* An offer is lent to nobody yet: the backend counts what its importers get. */
START_TEST(an_offer_is_of_no_name)
{
	uint64_t region = hosting_register(host, memory, SIZE, NULL);

	limits.grants = 0;
	set(NULL);
	ck_assert_int_ge(lend(host, region, 0, 100), 0);
	close_both();
}
END_TEST

/* Its end had no receipt: the name stays charged until the engine's end has one. */
START_TEST(a_peer_that_is_stuck)
{
	struct escrow_event down = {.kind = ESCROW_EV_PEER_DOWN, .status = ESCROW_E_UNQUIESCED};
	const struct fake_control *fake;
	struct escrow_engine *engine;
	uint64_t peer;

	ck_assert_int_eq(connect_as(host, "p", &peer), ESCROW_IN_PROGRESS);
	hosting_expect(host, ESCROW_EV_PEER_UP);
	fake = hosting_fake(host, &engine);
	down.object = escrow_backend_handle(host, peer);
	fake->say(engine, &down);
	hosting_expect(host, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(used("p").peers, 1);
	close_both();
}
END_TEST

START_TEST(what_cannot_be_set)
{
	static const size_t counted_nowhere[] = {offsetof(struct escrow_quota, bytes),
						 offsetof(struct escrow_quota, regions),
						 offsetof(struct escrow_quota, ops)};
	struct escrow_quota got = {.size = sizeof(got)};
	char name[65];

	for (size_t i = 0; i < sizeof(counted_nowhere) / sizeof(counted_nowhere[0]); i++) {
		no_limits();
		memset((char *)&limits + counted_nowhere[i], 1, sizeof(uint64_t));
		ck_assert_int_eq(escrow_quota_set_peer("p", &limits), ESCROW_E_UNSUPPORTED);
	}
	no_limits();
	memset(name, 'n', sizeof(name));
	name[64] = '\0';
	ck_assert_int_eq(escrow_quota_set_peer(name, &limits), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_quota_get_peer(name, &got, NULL), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_quota_set_peer("", &limits), ESCROW_E_INVALID);
	limits.size = 8;
	ck_assert_int_eq(escrow_quota_set_peer("p", &limits), ESCROW_E_INVALID);
	close_both();
}
END_TEST

/* ---- Who says itself who it is ------------------------------------------------------------------ */
static void both_until_up(struct escrow_host_engine *a, struct escrow_host_engine *b)
{
	int up = 0;

	for (int i = 0; up < 2; i++) {
		struct escrow_event event;

		ck_assert_int_lt(i, 1000000);
		if (escrow_poll(i % 2 ? a : b, &event, 1) == 1)
			up += event.kind == ESCROW_EV_PEER_UP;
	}
}

/* The mock's engines are all called "test", and so is whoever connects. */
static void guest(struct escrow_host_engine *inviting, struct escrow_host_engine *coming,
		  uint32_t flags)
{
	struct escrow_invite_args invite = {
		.size = sizeof(invite), .flags = flags, .peer_name = flags ? NULL : "named"};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "owner"};
	char bytes[1024];
	uint64_t peer;

	args.invitation = bytes;
	args.invitation_len = sizeof(bytes);
	ck_assert_int_eq(escrow_invite(inviting, &invite, bytes, &args.invitation_len), ESCROW_OK);
	ck_assert_msg(escrow_connect(coming, &args, &peer, &error) == ESCROW_IN_PROGRESS, "%s",
		      error.text);
	both_until_up(inviting, coming);
}

START_TEST(guests)
{
	struct escrow_host_engine *inviting = hosting_open(hosting_module("mock"), 0, NULL);
	struct escrow_host_engine *coming = hosting_open(hosting_module("mock"), 0, NULL);

	guest(inviting, coming, 0);
	ck_assert_uint_eq(used("named").peers, 1);
	ck_assert_uint_eq(used("owner").peers, 1);
	/* A stranger takes nothing of the share of whom it says that it is. */
	guest(inviting, coming, ESCROW_INVITE_ANY);
	ck_assert_uint_eq(used("test").peers, 0);
	ck_assert_uint_eq(used("(any)").peers, 1);
	ck_assert_uint_eq(used("owner").peers, 2);
	/* From then on nobody can tell who is who. */
	guest(inviting, coming, 0);
	ck_assert_uint_eq(used("named").peers, 1);
	ck_assert_uint_eq(used("(any)").peers, 2);
	hosting_close(coming);
	hosting_close(inviting);
	ck_assert_uint_eq(used("named").peers + used("owner").peers + used("(any)").peers, 0);
	close_both();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("process-names");
	TCase *tcase = tcase_create("limits");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, peers_of_one_name_in_two_engines);
	tcase_add_test(tcase, a_limit_for_each_name);
	tcase_add_test(tcase, grants_of_one_name_in_two_engines);
	tcase_add_test(tcase, an_offer_is_of_no_name);
	tcase_add_test(tcase, a_peer_that_is_stuck);
	tcase_add_test(tcase, what_cannot_be_set);
	tcase_add_test(tcase, guests);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
