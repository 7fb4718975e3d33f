/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A handle is good until its last event was polled, whatever was made between the end and that poll: what has ended
 * keeps its place, and no other's number leads there.
 */
#include <escrow/notify.h>

#include "tests/unit/handles.h"

#define N 8u

/* ---- Grants --------------------------------------------------------------------------------------- */
/* It was revoked, and the host does not know yet that this has come to its end. */
static void grant_is_ending(uint64_t grant)
{
	ck_assert_int_eq(KIT_OPS->revoke(k.engine, grant, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(export_it(grant), ESCROW_E_STATE);
}

static void grant_is_stale(uint64_t grant)
{
	ck_assert_int_eq(KIT_OPS->revoke(k.engine, grant, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(export_it(grant), ESCROW_E_INVALID);
}

/* For a peer, or for all who ask (peer 0). */
static void make_grants(uint64_t peer, uint64_t *grants)
{
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(grant_of(peer, k.region, &grants[i]),
				 peer ? ESCROW_IN_PROGRESS : ESCROW_OK);
}

static void revoke_all(const uint64_t *grants)
{
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(KIT_OPS->revoke(k.engine, grants[i], 0), ESCROW_IN_PROGRESS);
}

static const struct {
	const char *setting;
	bool offer;
} of_grants[] = {
	{NULL, false},
	{NULL, true},
	{"mock.contexts=2", false},
	{"mock.contexts=2", true},
};

/* Eight have ended and one of them was polled; eight are made. */
START_TEST(grants_that_have_ended)
{
	uint64_t first[N], second[N], peer;

	start(of_grants[_i].setting);
	peer = of_grants[_i].offer ? 0 : k.peer;
	make_grants(peer, first);
	for (uint32_t i = 0; peer && i < N; i++)
		next(ESCROW_EV_GRANT_READY);
	revoke_all(first);
	settle();
	/* Its receipt is in hand, so nothing is charged: who has not polled yet owes nothing. */
	ck_assert_uint_eq(kit_used(&k, ESCROW_CHARGE_GRANTS), 0);
	ck_assert_uint_eq(next(ESCROW_EV_GRANT_REVOKED).object, first[0]);
	grant_is_stale(first[0]);
	make_grants(peer, second);
	ck_assert_uint_eq(kit_used(&k, ESCROW_CHARGE_GRANTS), N);
	for (uint32_t i = 1; i < N; i++)
		grant_is_ending(first[i]);
	for (uint32_t i = 1; i < N; i++) {
		grant_is_ending(first[i]);
		ck_assert_uint_eq(next(ESCROW_EV_GRANT_REVOKED).object, first[i]);
		grant_is_stale(first[i]);
	}
	for (uint32_t i = 0; peer && i < N; i++)
		ck_assert_uint_eq(next(ESCROW_EV_GRANT_READY).object, second[i]);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(export_it(second[i]), ESCROW_OK);
	end();
}
END_TEST

/* One that was never bound ends by its GRANT_READY. */
START_TEST(grants_that_have_failed)
{
	uint64_t failed[N], good[N];
	struct escrow_event ev;

	start(NULL);
	kit_plan(&k, "bind_window=fail");
	make_grants(k.peer, failed);
	settle();
	kit_plan(&k, "clear");
	ev = next(ESCROW_EV_GRANT_READY);
	ck_assert_int_lt(ev.status, 0);
	grant_is_stale(ev.object);
	make_grants(k.peer, good);
	settle();
	for (uint32_t i = 0; i < N; i++)
		if (failed[i] != ev.object)
			grant_is_ending(failed[i]);
	end();
}
END_TEST

/* ---- Peers ------------------------------------------------------------------------------------------- */
#define PEERS 4u

static escrow_status message_to(uint64_t peer)
{
	const struct escrow_notify *n = KIT_OPS->get_extension(k.engine, ESCROW_NOTIFY_ID);

	return n->send(k.engine, peer, "x", 1, 0, 0);
}

/* PEER_DOWN has not been polled. */
static void peer_is_ending(uint64_t peer)
{
	uint64_t none = 0;

	ck_assert_int_eq(info_of(peer, &none), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->disconnect(k.engine, peer, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(KIT_OPS->drain(k.engine, peer, 0, 0), ESCROW_E_PEER_LOST);
	ck_assert_int_eq(grant_of(peer, k.region, &none), ESCROW_E_PEER_LOST);
	ck_assert_int_eq(message_to(peer), ESCROW_E_PEER_LOST);
}

static void peer_is_stale(uint64_t peer)
{
	uint64_t none = 0;

	ck_assert_int_eq(info_of(peer, &none), ESCROW_E_INVALID);
	ck_assert_int_eq(KIT_OPS->disconnect(k.engine, peer, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(KIT_OPS->drain(k.engine, peer, 0, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(grant_of(peer, k.region, &none), ESCROW_E_INVALID);
	ck_assert_int_eq(message_to(peer), ESCROW_E_INVALID);
}

/* Both ends of each. */
START_TEST(peers_that_have_gone)
{
	uint64_t ends[2 * PEERS];
	struct escrow_event ev;

	start(NULL);
	for (uint32_t i = 0; i < PEERS; i++)
		connect_one();
	for (uint32_t i = 0; i < 2 * PEERS; i++)
		ends[i] = next(ESCROW_EV_PEER_UP).object;
	for (uint32_t i = 0; i < 2 * PEERS; i++)
		ck_assert_int_eq(KIT_OPS->disconnect(k.engine, ends[i], 0), ESCROW_IN_PROGRESS);
	settle();
	ev = next(ESCROW_EV_PEER_DOWN);
	peer_is_stale(ev.object);
	for (uint32_t i = 0; i < PEERS; i++)
		connect_one();
	settle();
	for (uint32_t i = 0; i < 2 * PEERS; i++)
		if (ends[i] != ev.object)
			peer_is_ending(ends[i]);
	for (uint32_t i = 1; i < 2 * PEERS; i++) {
		ev = next(ESCROW_EV_PEER_DOWN);
		peer_is_stale(ev.object);
	}
	for (uint32_t i = 0; i < 2 * PEERS; i++)
		ck_assert_int_eq(KIT_OPS->disconnect(k.engine, next(ESCROW_EV_PEER_UP).object, 0),
				 ESCROW_IN_PROGRESS);
	end();
}
END_TEST

/* ---- Regions ------------------------------------------------------------------------------------------ */
/* "E_BUSY: the region is being released", and to who gives it back again "E_INVALID: it is being released already". */
static void region_is_ending(uint64_t region)
{
	uint64_t none;

	ck_assert_int_eq(grant_of(0, region, &none), ESCROW_E_BUSY);
	ck_assert_int_eq(KIT_OPS->deregister_memory(k.engine, region, 0), ESCROW_E_INVALID);
}

static void region_is_stale(uint64_t region)
{
	uint64_t none;

	ck_assert_int_eq(grant_of(0, region, &none), ESCROW_E_INVALID);
	ck_assert_int_eq(KIT_OPS->deregister_memory(k.engine, region, 0), ESCROW_E_INVALID);
}

START_TEST(regions_that_were_given_back)
{
	uint64_t first[N], second[N];

	start(_i ? "mock.contexts=2" : NULL);
	for (uint32_t i = 0; i < N; i++)
		first[i] = register_one();
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(KIT_OPS->deregister_memory(k.engine, first[i], 0),
				 ESCROW_IN_PROGRESS);
	settle();
	ck_assert_uint_eq(kit_used(&k, ESCROW_CHARGE_REGIONS), 1);
	ck_assert_uint_eq(next(ESCROW_EV_REGION_RELEASED).object, first[0]);
	for (uint32_t i = 0; i < N; i++)
		second[i] = register_one();
	region_is_stale(first[0]);
	for (uint32_t i = 1; i < N; i++)
		region_is_ending(first[i]);
	for (uint32_t i = 1; i < N; i++) {
		ck_assert_uint_eq(next(ESCROW_EV_REGION_RELEASED).object, first[i]);
		region_is_stale(first[i]);
	}
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(KIT_OPS->deregister_memory(k.engine, second[i], 0),
				 ESCROW_IN_PROGRESS);
	end();
}
END_TEST

/* ---- In quarantine ------------------------------------------------------------------------------------ */
/* Told as stuck it has not ended: its GRANT_REVOKED, which may still come, is the last. */
START_TEST(a_grant_that_is_stuck)
{
	uint64_t stuck, offers[N];
	struct escrow_event ev;

	start(NULL);
	ck_assert_int_eq(grant_of(k.peer, k.region, &stuck), ESCROW_IN_PROGRESS);
	next(ESCROW_EV_GRANT_READY);
	kit_plan(&k, "invalidate=fail;dealloc_window=fail");
	ck_assert_int_eq(KIT_OPS->revoke(k.engine, stuck, 0), ESCROW_IN_PROGRESS);
	do {
		kit_now += 10000000;
		if (!poll_one(&ev))
			ev.kind = 0;
	} while (ev.kind != ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(ev.object, stuck);
	make_grants(0, offers);
	grant_is_ending(stuck);
	kit_close(&k, NULL, true);
}
END_TEST

START_TEST(a_region_that_is_stuck)
{
	uint64_t stuck;

	start(NULL);
	stuck = register_one();
	kit_plan(&k, "deregister@1=fail:5");
	ck_assert_int_eq(KIT_OPS->deregister_memory(k.engine, stuck, 0), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(next(ESCROW_EV_QUARANTINED).object, stuck);
	register_one();
	region_is_ending(stuck);
	kit_close(&k, NULL, true);
}
END_TEST

/* ---- Remotes and ops ------------------------------------------------------------------------------------ */
static uint64_t import_it(const uint8_t *bytes, uint64_t len, escrow_status st)
{
	uint64_t remote = 0;

	ck_assert_int_eq(KIT_OPS->import_grant(k.engine, k.peer, bytes, len, 0, &remote, NULL), st);
	return remote;
}

/* Asked for, refused, not polled: forget may still be called, and the event comes all the same. */
START_TEST(remotes_that_were_refused)
{
	uint64_t offer, remotes[N], more, len = 4096;
	uint8_t bytes[4096];
	struct escrow_event ev;

	start(NULL);
	ck_assert_int_eq(grant_of(0, k.region, &offer), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->export_grant(k.engine, offer, bytes, &len), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->revoke(k.engine, offer, 0), ESCROW_IN_PROGRESS);
	next(ESCROW_EV_GRANT_REVOKED);
	for (uint32_t i = 0; i < N; i++)
		remotes[i] = import_it(bytes, len, ESCROW_IN_PROGRESS);
	settle();
	ev = next(ESCROW_EV_REMOTE_READY);
	ck_assert_int_eq(ev.status, ESCROW_E_REFUSED);
	ck_assert_int_eq(KIT_OPS->forget_grant(k.engine, ev.object), ESCROW_E_INVALID);
	more = import_it(bytes, len, ESCROW_IN_PROGRESS);
	settle();
	for (uint32_t i = 0; i < N; i++)
		if (remotes[i] != ev.object)
			ck_assert_int_eq(KIT_OPS->forget_grant(k.engine, remotes[i]), ESCROW_OK);
	for (uint32_t i = 1; i < N; i++)
		ck_assert_uint_ne(next(ESCROW_EV_REMOTE_READY).object, more);
	ck_assert_uint_eq(next(ESCROW_EV_REMOTE_READY).object, more);
	end();
}
END_TEST

/* One READ of its own bytes. */
static uint64_t read_some(uint64_t remote)
{
	struct escrow_sge sge = {.region = k.region, .offset = 4096, .length = 64};
	struct escrow_op op = {.remote = remote, .opcode = ESCROW_READ, .nsge = 1, .sge = &sge};
	uint64_t id = 0;

	ck_assert_int_eq(KIT_OPS->transfer(k.engine, &op, 1, sizeof(op), 0, &id), 1);
	return id;
}

/* "OK if its OP_DONE is already waiting". */
START_TEST(ops_that_are_done)
{
	uint64_t grant, remote, first[N], told, len = 4096;
	uint8_t bytes[4096];

	start(NULL);
	ck_assert_int_eq(grant_of(other, k.region, &grant), ESCROW_IN_PROGRESS);
	next(ESCROW_EV_GRANT_READY);
	ck_assert_int_eq(KIT_OPS->export_grant(k.engine, grant, bytes, &len), ESCROW_OK);
	remote = import_it(bytes, len, ESCROW_OK);
	for (uint32_t i = 0; i < N; i++)
		first[i] = read_some(remote);
	settle();
	told = next(ESCROW_EV_OP_DONE).object;
	for (uint32_t i = 0; i < N; i++)
		read_some(remote);
	settle();
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(KIT_OPS->cancel(k.engine, first[i], 0),
				 first[i] == told ? ESCROW_E_INVALID : ESCROW_OK);
	for (uint32_t i = 1; i < N; i++) {
		told = next(ESCROW_EV_OP_DONE).object;
		ck_assert_int_eq(KIT_OPS->cancel(k.engine, told, 0), ESCROW_E_INVALID);
	}
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-handles");
	TCase *t = tcase_create("handles");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, grants_that_have_ended, 0,
			    (int)(sizeof(of_grants) / sizeof(of_grants[0])));
	tcase_add_test(t, grants_that_have_failed);
	tcase_add_test(t, peers_that_have_gone);
	tcase_add_loop_test(t, regions_that_were_given_back, 0, 2);
	tcase_add_test(t, remotes_that_were_refused);
	tcase_add_test(t, ops_that_are_done);
	/* Last: what is quarantined is never freed, which the others look at. */
	tcase_add_test(t, a_grant_that_is_stuck);
	tcase_add_test(t, a_region_that_is_stuck);
	suite_add_tcase(s, t);
	return testing_run(s);
}
