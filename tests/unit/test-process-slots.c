/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections and queue slots of the whole process, and of one peer name in it, on the mock: what all engines
 * have is counted in one place, quarantined ones of released engines too, and one too many is refused by name
 * and number.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <escrow/fence.h>

#include "tests/lib/testing.h"
#include "tests/unit/pair.h"

static struct pair pair;
static struct escrow_error error = {.size = sizeof(error)};

static struct escrow_quota used(void)
{
	struct escrow_quota q = {.size = sizeof(q)};

	escrow_quota_get(NULL, &q);
	return q;
}

/* No limit but one, of what `at` is the place of in struct escrow_quota. */
static void limit(size_t at, uint64_t value)
{
	struct escrow_quota q;

	memset(&q, 0xff, sizeof(q));
	q.size = sizeof(q);
	memcpy((char *)&q + at, &value, sizeof(value));
	escrow_quota_set(&q);
}

static uint64_t value(const struct escrow_quota *q, size_t at)
{
	uint64_t v;

	memcpy(&v, (const char *)q + at, sizeof(v));
	return v;
}

/* What the backend itself says that an engine has, quarantined ones included. */
static uint64_t connections_of(struct escrow_host_engine *host)
{
	struct escrow_charge charges[64];
	int32_t n = escrow_charges(host, charges, 64);

	for (int32_t i = 0; i < n; i++)
		if (charges[i].kind == ESCROW_CHARGE_CONNECTIONS && !charges[i].peer_name[0])
			return charges[i].used;
	return 0;
}

static escrow_status one_more(struct escrow_host_engine *from, struct escrow_host_engine *to)
{
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "more"};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "more"};
	unsigned char bytes[4096];
	uint64_t peer, len = sizeof(bytes);

	ck_assert_int_eq(escrow_invite(to, &invite, bytes, &len), ESCROW_OK);
	args.invitation = bytes;
	args.invitation_len = len;
	return escrow_connect(from, &args, &peer, &error);
}

static const struct {
	const char *name;
	size_t at;
} kinds[] = {
	{"connections", offsetof(struct escrow_quota, connections)},
	{"sq_slots", offsetof(struct escrow_quota, sq_slots)},
	{"cq_slots", offsetof(struct escrow_quota, cq_slots)},
};
#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

/* Of both engines together: the next peer is refused, and fits when there is room for just that. */
START_TEST(one_too_many)
{
	size_t at = kinds[_i].at;
	struct escrow_quota have, after;
	uint64_t each;
	char want[240];

	pair_make(&pair, 0, NULL);
	have = used();
	ck_assert_uint_ge(have.connections, 2);
	ck_assert_uint_eq(have.connections,
			  connections_of(pair.mover.host) + connections_of(pair.still.host));
	/* The same settings, so each end of the peer has the same. */
	each = value(&have, at) / 2;
	ck_assert_uint_eq(each * 2, value(&have, at));
	limit(at, value(&have, at) + each - 1);
	ck_assert_int_eq(one_more(pair.mover.host, pair.still.host), ESCROW_E_QUOTA);
	snprintf(want, sizeof(want),
		 "%s of the process: %llu more than the %llu in use exceed %llu", kinds[_i].name,
		 (unsigned long long)(each / (have.connections / 2)),
		 (unsigned long long)(value(&have, at) + each - each / (have.connections / 2)),
		 (unsigned long long)(value(&have, at) + each - 1));
	ck_assert_msg(strstr(error.text, want) != NULL, "\"%s\", not \"%s\"", error.text, want);
	after = used();
	ck_assert_int_eq(memcmp(&have, &after, sizeof(have)), 0); /* all of a peer's, or none */
	limit(at, value(&have, at) + each);
	ck_assert_int_eq(one_more(pair.mover.host, pair.still.host), ESCROW_IN_PROGRESS);
	limit(at, UINT64_MAX);
	pair_end(&pair);
	after = used();
	ck_assert_uint_eq(after.connections + after.sq_slots + after.cq_slots, 0);
}
END_TEST

static struct escrow_quota used_of(const char *name)
{
	struct escrow_quota q = {.size = sizeof(q)};

	ck_assert_int_eq(escrow_quota_get_peer(name, NULL, &q), ESCROW_OK);
	return q;
}

static void limit_of(const char *name, size_t at, uint64_t most)
{
	struct escrow_quota q;

	memset(&q, 0xff, sizeof(q));
	q.size = sizeof(q);
	memcpy((char *)&q + at, &most, sizeof(most));
	ck_assert_int_eq(escrow_quota_set_peer(name, &q), ESCROW_OK);
}

/* One name in two engines: what both have of it counts together; that of another name does not. */
START_TEST(one_name_too_many)
{
	size_t at = kinds[_i].at;
	struct escrow_quota have;
	uint64_t each, has;
	char want[240];

	pair_make(&pair, 0, NULL);
	have = used();
	each = value(&have, at) / 2;
	has = each / (have.connections / 2);
	limit_of("more", at, each - 1);
	ck_assert_int_eq(one_more(pair.mover.host, pair.still.host), ESCROW_E_QUOTA);
	snprintf(want, sizeof(want),
		 "%s of \"more\" in the process: %llu more than the %llu in use exceed %llu",
		 kinds[_i].name, (unsigned long long)has, (unsigned long long)(each - has),
		 (unsigned long long)(each - 1));
	ck_assert_msg(strstr(error.text, want) != NULL, "\"%s\", not \"%s\"", error.text, want);
	have = used_of("more"); /* all of a peer's, or none */
	ck_assert_uint_eq(have.connections + have.sq_slots + have.cq_slots, 0);
	/* The end that dials has room, the end that is dialled has none and says so to the other. */
	limit_of("more", at, 2 * each - 1);
	ck_assert_int_eq(one_more(pair.mover.host, pair.still.host), ESCROW_IN_PROGRESS);
	while (!pair.mover.kinds[ESCROW_EV_PEER_DOWN])
		pair_pump(&pair);
	while (used_of("more").connections)
		pair_pump(&pair);
	limit_of("more", at, 2 * each);
	ck_assert_int_eq(one_more(pair.mover.host, pair.still.host), ESCROW_IN_PROGRESS);
	while (pair.mover.kinds[ESCROW_EV_PEER_UP] < 2 || pair.still.kinds[ESCROW_EV_PEER_UP] < 2)
		pair_pump(&pair);
	have = used_of("more");
	ck_assert_uint_eq(value(&have, at), 2 * each);
	ck_assert_int_eq(one_more(pair.mover.host, pair.still.host), ESCROW_E_QUOTA);
	pair_end(&pair);
	have = used_of("more");
	ck_assert_uint_eq(have.connections + have.sq_slots + have.cq_slots, 0);
	have = used();
	ck_assert_uint_eq(have.connections + have.sq_slots + have.cq_slots, 0);
}
END_TEST

/* Who comes by an invitation is refused too: its own end says so to it. */
START_TEST(a_peer_that_comes)
{
	struct escrow_quota have;

	pair_make(&pair, 0, NULL);
	have = used();
	limit(kinds[0].at, have.connections + have.connections / 2);
	ck_assert_int_eq(one_more(pair.mover.host, pair.still.host), ESCROW_IN_PROGRESS);
	while (!pair.mover.kinds[ESCROW_EV_PEER_DOWN])
		pair_pump(&pair);
	ck_assert_uint_eq(pair.still.kinds[ESCROW_EV_PEER_UP], 1); /* the first one */
	ck_assert_uint_eq(used().connections, have.connections);
	pair_check(&pair, 3);
	limit(kinds[0].at, UINT64_MAX);
	pair_end(&pair);
}
END_TEST

static const char *const no_proof[] = {
	"test.faults=1",  "drain_ms=1", "weak.reset=1", "weak.dereg=1", "weak.dealloc_window=1",
	"weak.destroy=1", NULL};

static const struct escrow_fence *fence;
static uint8_t incarnation[16];

/* The mover is closed while a completion is kept back: its connections are quarantined, and it goes. */
static uint64_t quarantine_the_mover(void)
{
	struct escrow_limits limits = {.size = sizeof(limits)};
	uint64_t stuck;

	pair_hold_completions(&pair.mover);
	ck_assert_int_eq(escrow_query(pair.mover.host, &limits), ESCROW_OK);
	memcpy(incarnation, limits.incarnation, sizeof(incarnation));
	fence = escrow_get_extension(pair.mover.host, ESCROW_FENCE_ID);
	ck_assert_int_eq(hosting_transfer(pair.mover.host, ESCROW_WRITE, pair.mover.remote,
					  (struct escrow_sge){pair.mover.region, 0, 512}, NULL),
			 1);
	ck_assert_int_ge(escrow_close(pair.mover.host, 0, ESCROW_CLOSE_ABORT), 0);
	while (!pair.mover.kinds[ESCROW_EV_QUARANTINED] ||
	       escrow_release(pair.mover.host) == ESCROW_E_STATE)
		pair_pump(&pair);
	/* The still side is told by its own device; it has nothing left of that peer. */
	pair.mover.host = NULL;
	while (connections_of(pair.still.host))
		pair_pump(&pair);
	stuck = used().connections;
	ck_assert_uint_gt(stuck, 0);
	return stuck;
}

/*
 * An engine is released with connections in quarantine, and another one opened in its place: both
 * count, until the receipt from outside comes for the old one.
 */
START_TEST(an_engine_that_is_replaced)
{
	struct escrow_quota old, both, now;
	struct escrow_host_engine *next;
	uint64_t stuck, set;

	hosting_clock = hosting_work_clock;
	pair_make(&pair, 0, no_proof);
	set = connections_of(pair.mover.host);
	stuck = quarantine_the_mover();
	ck_assert_uint_eq(stuck, set);
	old = used();
	next = hosting_open(pair.module, 0, NULL);
	limit(kinds[0].at, old.connections + 2 * set - 1); /* the new one has two ends, here */
	ck_assert_int_eq(one_more(next, next), ESCROW_IN_PROGRESS);
	hosting_wait(next, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(used().connections, old.connections);
	limit(kinds[0].at, old.connections + 2 * set);
	ck_assert_int_eq(one_more(next, next), ESCROW_IN_PROGRESS);
	hosting_wait(next, ESCROW_EV_PEER_UP);
	hosting_wait(next, ESCROW_EV_PEER_UP);
	both = used();
	ck_assert_uint_eq(both.connections, old.connections + 2 * set);
	ck_assert_uint_eq(both.sq_slots, 3 * old.sq_slots);
	ck_assert_uint_eq(both.cq_slots, 3 * old.cq_slots);
	ck_assert_int_eq(one_more(next, next), ESCROW_E_QUOTA);
	/* The new one's are back, the old one's are not */
	hosting_close(next);
	now = used();
	ck_assert_uint_eq(now.connections, old.connections);
	ck_assert_uint_eq(now.sq_slots, old.sq_slots);
	ck_assert_uint_eq(now.cq_slots, old.cq_slots);
	ck_assert_int_eq(fence->fenced(NULL, incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
			 ESCROW_OK);
	now = used();
	ck_assert_uint_eq(now.connections + now.sq_slots + now.cq_slots, 0);
	hosting_close(pair.still.host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("process-slots");
	TCase *tcase = tcase_create("mock");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, one_too_many, 0, KINDS);
	tcase_add_loop_test(tcase, one_name_too_many, 0, KINDS);
	tcase_add_test(tcase, a_peer_that_comes);
	tcase_add_test(tcase, an_engine_that_is_replaced);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
