/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rails that fail while others stand: links that go down and addresses that vanish, on softverbs by
 * its control interface, in the guest by ip(8) as root; and queue pairs that are moved to the error
 * state behind the engine's back.
 *
 * Both ends are in this process and use the same two rails, so both see the same news.  Slices are
 * small and equal, so that an op of sixteen is shared evenly by two rails that are idle.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <escrow/notify.h>

#include "backends/engine/engine.h"
#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-kit.h"
#include "tests/unit/rdma-world.h"

#define SLICE 4096u
#define OP (16u * SLICE)

static struct end owner, user;
static uint64_t by_owner, by_user, remote, grant;

/* The user's connection on a rail, as the engine keeps it. */
static struct conn *conn_of(struct end *e, uint32_t rail)
{
	struct peer *p = en_peer_find(e->engine, e == &user ? by_user : by_owner);

	ck_assert_ptr_nonnull(p);
	ck_assert_uint_eq(p->nconns, 2);
	return &p->conns[rail];
}

/* As a device that loses the queue pair does; what is posted is flushed. */
static void break_queue_pair(struct end *e, uint32_t rail)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	ck_assert_int_eq(ibv_modify_qp(conn_of(e, rail)->native->qp, &attr, IBV_QP_STATE), 0);
}

/* ---- Ends ----------------------------------------------------------------------------------------- */
static const char *const settings[] = {"slice_bytes=4096", "rail_retry_ms=50", "drain_ms=200",
				       NULL};

static void open_ends(void)
{
	end_open(&owner, 'o', settings);
	end_open(&user, 'u', settings);
}

static void connect_ends(void)
{
	uint8_t buf[4096];
	uint64_t len;

	ends_connect(&owner, &user, &by_owner, &by_user);
	len = end_grant(&owner, by_owner, 0, END_BYTES, ESCROW_MAY_READ | ESCROW_MAY_WRITE, buf,
			sizeof(buf), &grant);
	remote = end_import(&user, by_user, buf, len);
}

static void setup(void)
{
	open_ends();
	connect_ends();
}

static void teardown(void)
{
	end_close(&user);
	end_close(&owner);
}

static uint64_t bytes_on(int rail)
{
	return end_counter(&user, rail ? "rail.1.bytes" : "rail.0.bytes");
}

/* One op each way, byte by byte. */
static void move_right(void)
{
	static uint8_t seed = 1;
	struct escrow_event ev;
	uint32_t i;

	seed++;
	for (i = 0; i < OP; i++)
		user.memory[i] = (uint8_t)(i * 7 + seed);
	ev = end_move(&user, remote, ESCROW_WRITE, 0, OP, OP);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_EXECUTED);
	for (i = 0; i < OP; i++)
		testing_assert_byte(owner.memory[OP + i], (uint8_t)(i * 7 + seed), i);
	memset(user.memory + OP, 0, OP);
	ev = end_move(&user, remote, ESCROW_READ, OP, OP, OP);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	for (i = 0; i < OP; i++)
		testing_assert_byte(user.memory[OP + i], (uint8_t)(i * 7 + seed), i);
}

/* Its result depends on what was posted where; custody does not. */
static void move_anything(void)
{
	ck_assert_int_eq(end_move(&user, remote, ESCROW_READ, 0, 0, OP).custody,
			 ESCROW_CUSTODY_RETURNED);
}

static void nobody_left(void)
{
	ck_assert(!end_has_seen(&user, ESCROW_EV_PEER_LOST));
	ck_assert(!end_has_seen(&user, ESCROW_EV_PEER_DOWN));
	ck_assert(!end_has_seen(&owner, ESCROW_EV_PEER_LOST));
	ck_assert(!end_has_seen(&owner, ESCROW_EV_PEER_DOWN));
}

/* All goes over rail 0, and is right. */
static void only_rail_0(void)
{
	uint64_t on_0 = bytes_on(0), on_1 = bytes_on(1);

	move_right();
	ck_assert_uint_eq(bytes_on(1), on_1);
	ck_assert_uint_eq(bytes_on(0), on_0 + 2 * OP);
	nobody_left();
}

/* Rail 1 is used again, for the grant that was made before it failed. */
static void both_rails(void)
{
	uint64_t on_1 = bytes_on(1);

	/* The key on the new connection comes by a message: some ops may be ahead of it; how many, the machine decides. */
	while (bytes_on(1) == on_1)
		move_right();
	move_right();
	nobody_left();
}

static void rail_1_is(uint64_t up)
{
	struct end *both[] = {&user, &owner};
	int i;

	for (i = 0; i < 2; i++)
		while (end_counter(both[i], "rail.1.up") != up)
			ends_turn();
}

/* ---- Cases -------------------------------------------------------------------------------------------- */
START_TEST(both_are_used)
{
	uint64_t on_0 = bytes_on(0), on_1 = bytes_on(1);

	move_right();
	/* By outstanding bytes: half of the sixteen slices of each op. */
	ck_assert_uint_eq(bytes_on(0), on_0 + OP);
	ck_assert_uint_eq(bytes_on(1), on_1 + OP);
}
END_TEST

/* N02, Q29: a link that flaps retires nothing; while it is down nothing goes there. */
START_TEST(a_link_goes_down)
{
	move_right();
	world_link(1, 0);
	rail_1_is(0);
	only_rail_0();
	world_link(1, 1);
	rail_1_is(1);
	both_rails();
	ck_assert_uint_eq(end_counter(&user, "rail.1.connections.lost"), 0);
	ck_assert_uint_eq(end_counter(&owner, "rail.1.connections.lost"), 0);
}
END_TEST

/* N03, field-42: its connections retire, and a new one comes with the address. */
START_TEST(an_address_vanishes)
{
	uint64_t charged = end_used(&user, ESCROW_CHARGE_CONNECTIONS);

	move_right();
	world_address(1, 0);
	end_until(&user, "rail.1.connections.lost", 1);
	end_until(&owner, "rail.1.connections.lost", 1);
	only_rail_0();
	while (end_used(&user, ESCROW_CHARGE_CONNECTIONS) == charged)
		ends_turn();
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_CONNECTIONS), charged - 1);
	world_address(1, 1);
	end_until(&user, "rail.1.connections.returned", 1);
	end_until(&owner, "rail.1.connections.returned", 1);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_CONNECTIONS), charged);
	both_rails();
}
END_TEST

/* One op around the break of rail 1: half of it goes there. On softverbs the user's device stands still until it is
 * broken. Elsewhere it breaks first, and both ends may have seen that: all goes over the other; false. */
static bool op_while_it_breaks(struct end *e, struct escrow_event *ev)
{
	struct ibv_context *device = conn_of(&user, 1)->native->qp->context;
	bool held = double_hold(device, 1);
	uint64_t on_1 = bytes_on(1), id;

	if (!held)
		break_queue_pair(e, 1);
	id = end_submit(&user, remote, ESCROW_WRITE, 0, OP, OP);
	if (held) {
		break_queue_pair(e, 1);
		double_hold(device, 0);
	}
	*ev = end_wait_of(&user, ESCROW_EV_OP_DONE, id);
	return held || ev->status != ESCROW_OK || bytes_on(1) != on_1;
}

/* Either end's queue pair breaks: the other end learns of it, and both make a new one. */
START_TEST(a_queue_pair_breaks)
{
	struct end *e = _i ? &owner : &user;
	uint32_t epoch = atomic_load(&conn_of(e, 1)->epoch);
	struct escrow_event ev;

	move_right();
	/* On the user's side it shows when something is posted on it; its slices are not done elsewhere. */
	if (op_while_it_breaks(e, &ev)) {
		ck_assert_int_eq(ev.status, ESCROW_E_PEER_LOST);
		ck_assert_int_ne(ev.effect, ESCROW_EFFECT_EXECUTED);
	}
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	end_until(&user, "rail.1.connections.lost", 1);
	end_until(&owner, "rail.1.connections.lost", 1);
	move_right();
	end_until(&user, "rail.1.connections.returned", 1);
	end_until(&owner, "rail.1.connections.returned", 1);
	both_rails();
	ck_assert_uint_gt(atomic_load(&conn_of(e, 1)->epoch), epoch);
	ck_assert_uint_eq(atomic_load(&conn_of(&user, 1)->epoch),
			  atomic_load(&conn_of(&owner, 1)->epoch));
}
END_TEST

/* Q15, H03, field-44: no event tells, and nothing arrives: the retries run out, and then as above. */
START_TEST(a_rail_goes_silent)
{
	struct escrow_event ev;

	move_right();
	double_blackhole(1, 1);
	ev = end_move(&user, remote, ESCROW_WRITE, 0, OP, OP);
	ck_assert_int_eq(ev.status, ESCROW_E_PEER_LOST);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_UNKNOWN);
	end_until(&owner, "rail.1.connections.lost", 1);
	only_rail_0();
	double_blackhole(1, 0);
	end_until(&user, "rail.1.connections.returned", 1);
	both_rails();
}
END_TEST

/* Nothing is stuck and nothing is lost of a grant when its connections come and go. */
START_TEST(again_and_again)
{
	uint64_t charged = end_used(&owner, ESCROW_CHARGE_CONNECTIONS);
	int i;

	for (i = 1; i <= 5; i++) {
		break_queue_pair(&owner, 1);
		break_queue_pair(&user, 1);
		while (end_counter(&user, "rail.1.connections.returned") < (uint64_t)i) {
			move_anything();
			ends_turn();
		}
		both_rails();
	}
	ck_assert_uint_eq(end_used(&owner, ESCROW_CHARGE_CONNECTIONS), charged);
	ck_assert_int_eq(OPS->revoke(owner.engine, grant, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, grant).status, ESCROW_OK);
}
END_TEST

/* A rail that is down when the peer comes up joins later, and what was granted before goes there too. */
START_TEST(a_rail_that_is_late)
{
	open_ends();
	world_link(1, 0);
	rail_1_is(0);
	connect_ends();
	only_rail_0();
	world_link(1, 1);
	end_until(&user, "rail.1.connections.returned", 1);
	end_until(&owner, "rail.1.connections.returned", 1);
	both_rails();
}
END_TEST

static const struct escrow_notify *notes(struct end *e)
{
	const struct escrow_notify *x = OPS->get_extension(e->engine, ESCROW_NOTIFY_ID);

	ck_assert_ptr_nonnull(x);
	return x;
}

/* The user's message of that number, which the owner has not had yet. */
static void send_note(uint32_t number)
{
	static uint32_t text[1024]; /* of two pieces */
	escrow_status st;

	text[0] = text[1023] = number;
	while ((st = notes(&user)->send(user.engine, by_user, text, sizeof(text), number, 0)) ==
	       ESCROW_E_AGAIN)
		ends_turn();
	ck_assert_int_eq(st, ESCROW_OK);
}

/* Each once, in order, whole. */
static void receive_notes(uint32_t from, uint32_t to)
{
	static uint32_t text[1024];
	uint64_t peer, len;
	escrow_status st;

	for (; from < to; from++) {
		for (;;) {
			len = sizeof(text);
			st = notes(&owner)->receive(owner.engine, &peer, text, &len);
			if (st != ESCROW_E_AGAIN)
				break;
			ends_turn();
		}
		ck_assert_int_eq(st, ESCROW_OK);
		ck_assert_uint_eq(peer, by_owner);
		ck_assert_uint_eq(len, sizeof(text));
		ck_assert_uint_eq(text[0], from);
		ck_assert_uint_eq(text[1023], from);
	}
}

static void drop_seen(void)
{
	/* MESSAGE and MESSAGE_SENT: what they tell is looked at otherwise. */
	nobody_left();
	user.nseen = owner.nseen = 0;
}

/* The peer goes on over the other rail, bytes and messages, whichever rail fails. */
START_TEST(either_rail_is_enough)
{
	static const char *const lost[] = {"rail.0.connections.lost", "rail.1.connections.lost"};
	static const char *const back[] = {"rail.0.connections.returned",
					   "rail.1.connections.returned"};
	uint32_t number = 0;
	int i, rail;

	for (i = 0; i < 4; i++) {
		rail = i % 2;
		world_address(rail, 0);
		end_until(&user, lost[rail], (uint64_t)i / 2 + 1);
		end_until(&owner, lost[rail], (uint64_t)i / 2 + 1);
		move_right();
		send_note(number);
		receive_notes(number, number + 1);
		number++;
		world_address(rail, 1);
		end_until(&user, back[rail], (uint64_t)i / 2 + 1);
		end_until(&owner, back[rail], (uint64_t)i / 2 + 1);
		drop_seen();
	}
	both_rails();
}
END_TEST

/* Messages that are under way when their connection breaks come all the same, and none comes twice. */
START_TEST(messages_under_way)
{
	uint32_t round, k, number = 0;

	for (round = 0; round < 6; round++) {
		uint32_t rail = round % 2, first = number;
		char returned[64];

		snprintf(returned, sizeof(returned), "rail.%u.connections.returned", rail);
		for (k = 0; k < 12; k++) {
			send_note(number++);
			if (k == 6)
				break_queue_pair(round % 4 < 2 ? &user : &owner, rail);
			if (k == 6 || k == 7) /* so that both ends see that it broke */
				move_anything();
		}
		receive_notes(first, number);
		end_until(&user, returned, round / 2 + 1);
		end_until(&owner, returned, round / 2 + 1);
		drop_seen();
	}
	ck_assert_int_eq(notes(&owner)->receive(owner.engine, &(uint64_t){0}, NULL, &(uint64_t){0}),
			 ESCROW_E_AGAIN);
	both_rails();
}
END_TEST

/* The peer ends when no rail is left, on both sides. */
START_TEST(with_the_last_rail_goes_the_peer)
{
	world_address(0, 0);
	world_address(1, 0);
	end_wait_of(&user, ESCROW_EV_PEER_LOST, by_user);
	end_wait_of(&owner, ESCROW_EV_PEER_LOST, by_owner);
	ck_assert_int_eq(end_wait_of(&user, ESCROW_EV_PEER_DOWN, by_user).status,
			 ESCROW_E_PEER_LOST);
	ck_assert_int_eq(end_wait_of(&owner, ESCROW_EV_PEER_DOWN, by_owner).status,
			 ESCROW_E_PEER_LOST);
	world_address(0, 1);
	world_address(1, 1);
	end_until(&user, "rail.0.up", 1);
	end_until(&user, "rail.1.up", 1);
	end_until(&owner, "rail.0.up", 1);
	end_until(&owner, "rail.1.up", 1);
	connect_ends();
	both_rails();
}
END_TEST

/* Who wants the place of a connection in a set must know the set's secret, and an epoch that was not. */
static void returns_in_vain(struct wire_hello *h, const uint8_t secret[16])
{
	uint64_t refused = end_counter(&owner, "connects.refused");
	uint8_t data[NATIVE_PRIVATE_BYTES];

	h->proof = wire_proof(secret, owner.engine->incarnation, h);
	wire_hello_put(h, data);
	ck_assert_int_eq(end_knock(&owner, 1, data, sizeof(data)), ECONNREFUSED);
	ck_assert_uint_eq(end_counter(&owner, "connects.refused"), refused + 1);
}

START_TEST(forged_returns)
{
	const struct peer *p = en_peer_find(owner.engine, by_owner);
	struct wire_hello h = {.kind = WIRE_REJOIN,
			       .rail = 1,
			       .nrails = 2,
			       .nlanes = 1,
			       .set = (uint32_t)p->epoch,
			       .epoch = atomic_load(&p->conns[1].epoch) + 1,
			       .ticket = p->ticket,
			       .mark = p->mark,
			       .target = wire_fold(owner.engine->incarnation)};

	memcpy(h.incarnation, user.engine->incarnation, 16);
	/* The ticket's secret is not the set's: others may hold an open invitation. */
	returns_in_vain(&h, p->secret);
	h.epoch--;
	returns_in_vain(&h, p->session);
	h.epoch++;
	h.set++;
	returns_in_vain(&h, p->session);
	ck_assert_uint_eq(end_counter(&owner, "rail.1.connections.lost"), 0);
	both_rails();
}
END_TEST

/* ---- The program ----------------------------------------------------------------------------------------- */
int main(void)
{
	const char *why = world_missing();
	TCase *t;
	Suite *s;

	if (*why)
		return testing_skip(why);
	s = suite_create("rdma-rails");
	t = tcase_create("up");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 240);
	tcase_add_test(t, both_are_used);
	tcase_add_test(t, a_link_goes_down);
	tcase_add_test(t, an_address_vanishes);
	tcase_add_loop_test(t, a_queue_pair_breaks, 0, 2);
	tcase_add_test(t, again_and_again);
	tcase_add_test(t, forged_returns);
	tcase_add_test(t, either_rail_is_enough);
	tcase_add_test(t, messages_under_way);
	tcase_add_test(t, with_the_last_rail_goes_the_peer);
	if (ends_double())
		tcase_add_test(t, a_rail_goes_silent);
	suite_add_tcase(s, t);
	t = tcase_create("down");
	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_set_timeout(t, 240);
	tcase_add_test(t, a_rail_that_is_late);
	suite_add_tcase(s, t);
	return testing_run(s);
}
