/* SPDX-License-Identifier: BSD-2-Clause */
/* Who connects by an open invitation and says that it is another: what that costs the other, nothing. */
#include <string.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

extern const struct native_ops mock_native;

static struct kit a, b, c;

static void start(void)
{
	static const char *const settings[] = {"test.faults=1", "drain_ms=100", "control_thread=0",
					       "mock.rails=2", NULL};

	kit_settings = settings;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_start(&c, "c");
	kit_settings = NULL;
}

static void end(void)
{
	kit_close(&c, &a, false);
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

/* c's requests are as if of b. */
static struct claim {
	bool on, on_rail_1;
	uint32_t epoch;
} claim;
static bool one_rail; /* what b asks of rail 1 is lost */

static int claiming_connect(struct native_conn *n, const uint8_t *address, const void *data,
			    uint32_t len)
{
	const struct conn *conn = mock_native.conn_user(n);
	const struct wire_invitation *inv = conn->peer->invitation;
	uint8_t other[NATIVE_PRIVATE_BYTES];
	struct wire_hello h;

	if (conn->lane->e == b.engine && conn->index == 1 && one_rail)
		return 0;
	if (conn->lane->e != c.engine || !claim.on)
		return mock_native.connect(n, address, data, len);
	ck_assert_int_eq(wire_hello_get(data, len, &h), ESCROW_OK);
	memcpy(h.incarnation, b.engine->incarnation, 16);
	h.epoch = claim.epoch;
	if (claim.on_rail_1)
		h.rail = 1;
	h.proof = wire_proof(inv->secret, inv->incarnation, &h);
	wire_hello_put(&h, other);
	return mock_native.connect(n, address, other, sizeof(other));
}

static uint64_t invite_any(struct kit *k, uint8_t *buf, uint64_t size)
{
	struct escrow_invite_args args = {.size = sizeof(args), .flags = ESCROW_INVITE_ANY};
	uint64_t len = size;

	kit_table.connect = claiming_connect;
	ck_assert_int_eq(KIT_OPS->invite(k->engine, &args, buf, &len), ESCROW_OK);
	return len;
}

static uint64_t dial(struct kit *k, const uint8_t *buf, uint64_t len)
{
	struct escrow_peer_args args = {.size = sizeof(args),
					.peer_name = "other",
					.invitation = buf,
					.invitation_len = len};
	uint64_t peer;

	ck_assert_int_eq(KIT_OPS->connect(k->engine, &args, &peer, NULL), ESCROW_IN_PROGRESS);
	return peer;
}

/* It is accepted, and a's answer is not for it. */
static void c_claims(const uint8_t *buf, uint64_t len, uint32_t epoch)
{
	claim = (struct claim){.on = true, .epoch = epoch};
	dial(&c, buf, len);
	kit_wait(&c, &a, ESCROW_EV_PEER_DOWN);
	claim.on = false;
}

/* What was said in its name makes no epoch of b stale, and none of a's to b. */
START_TEST(a_claim_uses_up_no_epochs)
{
	static const uint32_t far[] = {5000, UINT32_MAX};
	uint8_t buf[1024], other[1024];
	uint64_t len, n;

	start();
	len = invite_any(&a, buf, sizeof(buf));
	n = invite_any(&b, other, sizeof(other));
	c_claims(buf, len, far[_i]);
	dial(&b, buf, len);
	kit_wait(&b, &a, ESCROW_EV_PEER_UP);
	dial(&a, other, n);
	kit_wait(&a, &b, ESCROW_EV_PEER_UP);
	kit_wait(&a, &b, ESCROW_EV_PEER_UP);
	end();
}
END_TEST

/* It drives a's epochs far up, and a's those of its next connection with b: b, which knew nothing, follows. */
START_TEST(a_claim_far_ahead)
{
	uint8_t buf[1024], other[1024];
	uint64_t len, n;

	start();
	len = invite_any(&a, buf, sizeof(buf));
	n = invite_any(&b, other, sizeof(other));
	c_claims(buf, len, INT32_MAX);
	dial(&a, other, n);
	kit_wait(&a, &b, ESCROW_EV_PEER_UP);
	kit_wait(&b, &a, ESCROW_EV_PEER_UP);
	dial(&b, buf, len);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_PEER_DOWN).status, ESCROW_E_STALE_EPOCH);
	dial(&b, buf, len);
	kit_wait(&b, &a, ESCROW_EV_PEER_UP);
	end();
}
END_TEST

/* Of two ways b's would win; c's, which only says that it is b's, ends nothing. */
START_TEST(a_claim_ends_no_attempt)
{
	uint8_t buf[1024], other[1024];
	uint64_t len, n, peer = 0;

	start();
	if (memcmp(a.engine->incarnation, b.engine->incarnation, 16) < 0) {
		struct kit kept = a;

		a = b;
		b = kept;
	}
	len = invite_any(&a, buf, sizeof(buf));
	n = invite_any(&b, other, sizeof(other));
	/* _i: whether it comes before or after a asks. */
	if (_i)
		peer = dial(&a, other, n);
	claim = (struct claim){.on = true, .epoch = 1};
	dial(&c, buf, len);
	kit_turn(&c, NULL);
	while (!atomic_load(&a.engine->peers[_i].state))
		kit_turn(&a, NULL);
	if (!_i)
		peer = dial(&a, other, n);
	ck_assert_uint_eq(kit_wait(&a, &b, ESCROW_EV_PEER_UP).object, peer);
	kit_never(&a, &c, ESCROW_EV_PEER_DOWN);
	end();
}
END_TEST

/* While b's set comes up, c cannot put a connection of its own into it. */
START_TEST(a_claim_joins_no_set)
{
	const struct peer *set;
	uint8_t buf[1024];
	uint64_t len;

	start();
	set = &a.engine->peers[0];
	len = invite_any(&a, buf, sizeof(buf));
	one_rail = true;
	dial(&b, buf, len);
	kit_turn(&b, NULL);
	while (set->conns[0].stage != CONN_READY)
		kit_turn(&a, NULL);
	ck_assert_int_eq(set->conns[1].stage, CONN_CHARGED);
	claim = (struct claim){.on = true, .on_rail_1 = true, .epoch = (uint32_t)set->epoch};
	dial(&c, buf, len);
	kit_wait(&c, &a, ESCROW_EV_PEER_DOWN);
	ck_assert_int_eq(set->conns[1].stage, CONN_CHARGED);
	one_rail = false;
	end();
}
END_TEST

/* ---- Requests that wait -------------------------------------------------------------------------------- */
static void start_with_room_for_one(void)
{
	static const char *const settings[] = {"test.faults=1", "drain_ms=100", "control_thread=0",
					       "max_peers=1", NULL};

	kit_settings = settings;
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_settings = NULL;
	kit_start(&c, "c");
	if (memcmp(a.engine->incarnation, b.engine->incarnation, 16) < 0) {
		struct kit kept = a;

		a = b;
		b = kept;
	}
}

/* a's own way to b, which has lost, has the only place, so b's request waits for it; whatever c says in b's name. */
START_TEST(claims_do_not_fill_what_waits)
{
	struct escrow_invite_args named = {.size = sizeof(named), .peer_name = "other"};
	uint8_t open[1024], to_b[1024], to_a[1024];
	uint64_t len, n, m = sizeof(to_a);

	start_with_room_for_one();
	len = invite_any(&a, open, sizeof(open));
	n = invite_any(&b, to_b, sizeof(to_b));
	ck_assert_int_eq(KIT_OPS->invite(a.engine, &named, to_a, &m), ESCROW_OK);
	dial(&a, to_b, n);
	kit_turn(&a, NULL);
	claim = (struct claim){.on = true};
	for (int i = 0; i < 20; i++) {
		claim.epoch++;
		dial(&c, open, len);
		kit_turn(&c, NULL);
		kit_turn(&a, NULL);
	}
	ck_assert_uint_gt(atomic_load(&a.engine->nwaiting), 0);
	claim.on = false;
	dial(&b, to_a, m);
	kit_wait(&b, &a, ESCROW_EV_PEER_UP);
	kit_wait(&a, &b, ESCROW_EV_PEER_UP);
	end();
}
END_TEST

static uint32_t refused;

static int count_refused(struct native *n, struct native_request *request, const void *data,
			 uint32_t len)
{
	refused++;
	return 0;
}

/* Of who asks time and again for one connection only the last request waits. */
START_TEST(who_asks_again_waits_once)
{
	struct native_event ev = {.kind = NATIVE_EV_REQUEST, .data_len = NATIVE_PRIVATE_BYTES};
	struct wire_hello h = {.kind = WIRE_REJOIN};
	struct peer *p;
	uint8_t buf[1024];

	start();
	dial(&b, buf, invite_any(&a, buf, sizeof(buf)));
	kit_wait(&b, &a, ESCROW_EV_PEER_UP);
	a.peer = kit_wait(&a, &b, ESCROW_EV_PEER_UP).object;
	p = en_peer_find(a.engine, a.peer);
	memcpy(h.incarnation, b.engine->incarnation, 16);
	h.target = wire_fold(a.engine->incarnation);
	h.ticket = p->ticket;
	h.mark = p->mark;
	h.set = (uint32_t)p->epoch;
	h.nrails = (uint8_t)p->nrails;
	h.nlanes = (uint8_t)p->nlanes;
	kit_table.reject = count_refused;
	engine_lock(a.engine);
	p->conns[0].renew = RENEW_DRAINED; /* that has not ended yet */
	for (h.epoch = 2; h.epoch < 22; h.epoch++) {
		h.proof = wire_proof(p->session, a.engine->incarnation, &h);
		wire_hello_put(&h, ev.data);
		en_news(a.engine, &ev);
	}
	ck_assert_uint_eq(atomic_load(&a.engine->nwaiting), 1);
	ck_assert_uint_eq(refused, 19);
	ck_assert_int_eq(wire_hello_get(a.engine->waiting[0].data, NATIVE_PRIVATE_BYTES, &h),
			 ESCROW_OK);
	ck_assert_uint_eq(h.epoch, 21);
	atomic_store(&a.engine->nwaiting, 0);
	p->conns[0].renew = RENEW_NOT;
	engine_unlock(a.engine);
	kit_table.reject = mock_native.reject;
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-claims");
	TCase *t = tcase_create("claims");

	tcase_add_loop_test(t, a_claim_uses_up_no_epochs, 0, 2);
	tcase_add_loop_test(t, a_claim_ends_no_attempt, 0, 2);
	tcase_add_test(t, a_claim_far_ahead);
	tcase_add_test(t, a_claim_joins_no_set);
	tcase_add_test(t, claims_do_not_fill_what_waits);
	tcase_add_test(t, who_asks_again_waits_once);
	suite_add_tcase(s, t);
	return testing_run(s);
}
