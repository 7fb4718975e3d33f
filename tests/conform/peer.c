/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-PEER: invitations, connections, epochs, and their ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/book.h"
#include "tests/conform/case.h"
#include "tests/conform/pair.h"

static struct escrow_peer_info info_of(struct engine *en, uint64_t peer)
{
	struct escrow_peer_info *info = guard_new(sizeof(*info));

	memset(info, 0x5e, sizeof(*info));
	info->size = sizeof(*info);
	expect_status_as("PE2", en->o->peer_info(en->e, peer, info), ESCROW_OK);
	expect_as("PE2", memchr(info->peer_name, 0, sizeof(info->peer_name)),
		  "peer_name is not terminated");
	return *info;
}

static void connects(struct conform *c)
{
	struct escrow_peer_info a, b;
	struct pair p;

	pair_open(&p, &c->subject);
	a = info_of(p.a, p.a_peer);
	b = info_of(p.b, p.b_peer);
	expect_as("PE2", !strcmp(a.peer_name, PAIR_B), "the active side's peer has the name %s",
		  a.peer_name);
	expect_as("IN2", !strcmp(b.peer_name, PAIR_A), "the passive side's peer has the name %s",
		  b.peer_name);
	expect_as("PE2", !a.flags && b.flags == ESCROW_PEER_PASSIVE,
		  "flags are %#x on the active and %#x on the passive side", a.flags, b.flags);
	expect_as("PE2", a.epoch >= 1 && a.epoch == b.epoch, "epochs %llu and %llu",
		  (unsigned long long)a.epoch, (unsigned long long)b.epoch);
	expect_as("PE2",
		  !memcmp(a.incarnation, p.b->limits.incarnation, 16) &&
			  !memcmp(b.incarnation, p.a->limits.incarnation, 16),
		  "peer_info tells another incarnation than the peer's query");
	expect_as("PE2", a.user == TOKEN(0xc0) && b.user == TOKEN(0x141),
		  "peer_info has other "
		  "users");
	engine_settle();
	expect(!p.a->count && !p.b->count, "more events than one PEER_UP on each side");
	pair_close(&p);
}

static void connects_to_itself(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "self");
	uint8_t invitation[INVITATION_ROOM];
	struct escrow_event up1, up2;
	struct escrow_peer_info i1, i2;
	uint64_t len, peer;

	pair_invite(en, "myself", 0, invitation, &len);
	peer = pair_connect_to(en, "other-me", invitation, len);
	engine_wait(en, ESCROW_EV_PEER_UP, 0, &up1);
	engine_wait(en, ESCROW_EV_PEER_UP, 0, &up2);
	expect(up1.object != up2.object && (up1.object == peer || up2.object == peer),
	       "a connection to oneself does not give two peers");
	i1 = info_of(en, up1.object);
	i2 = info_of(en, up2.object);
	expect(i1.flags & i2.flags & ESCROW_PEER_LOOPBACK, "flags %#x and %#x without LOOPBACK",
	       i1.flags, i2.flags);
	expect((i1.flags ^ i2.flags) == ESCROW_PEER_PASSIVE, "not one end is passive");
	engine_close(en);
}

/* Waits for the end of a connection that must not come up. */
static escrow_status refused(struct engine *en, uint64_t peer)
{
	struct escrow_event ev;

	engine_wait(en, ESCROW_EV_PEER_DOWN, peer, &ev);
	expect(!engine_pending(en, ESCROW_EV_PEER_UP, peer), "PEER_UP came for a bad invitation");
	expect(ev.status < 0, "PEER_DOWN of a peer that was never up has status %s",
	       verdict_status(ev.status));
	return ev.status;
}

static void works_once(struct conform *c)
{
	struct pair p = {0};
	uint8_t invitation[INVITATION_ROOM];
	uint64_t len, peer;
	int i;

	p.a = engine_open(&c->subject, NULL, "a");
	p.b = engine_open(&c->subject, NULL, "b");
	pair_invite(p.b, PAIR_A, 0, invitation, &len);
	peer = pair_connect_to(p.a, PAIR_B, invitation, len);
	engine_wait(p.a, ESCROW_EV_PEER_UP, peer, NULL);
	engine_wait(p.b, ESCROW_EV_PEER_UP, 0, NULL);
	for (i = 0; i < 3; i++) {
		peer = pair_connect_to(p.a, PAIR_B, invitation, len);
		expect_status_as("IN3", refused(p.a, peer), ESCROW_E_REFUSED);
	}
	engine_settle();
	expect(!engine_pending(p.b, ESCROW_EV_PEER_UP, 0),
	       "the inviting side got a second PEER_UP");
	pair_close(&p);
}

static void expires(struct conform *c)
{
	struct pair p = {0};
	uint8_t invitation[INVITATION_ROOM];
	uint64_t len, peer;

	p.a = engine_open(&c->subject, NULL, "a");
	p.b = engine_open(&c->subject, NULL, "b");
	host_freeze(p.b->host);
	/* as told by the host's clock, an hour away: nobody's own clock gets there */
	pair_invite(p.b, PAIR_A, host_now(p.b->host) + UINT64_C(3600000000000), invitation, &len);
	peer = pair_connect_to(p.a, PAIR_B, invitation, len);
	engine_wait(p.a, ESCROW_EV_PEER_UP, peer, NULL);
	pair_invite(p.b, PAIR_A, host_now(p.b->host) + UINT64_C(3600000000000), invitation, &len);
	host_advance(p.b->host, UINT64_C(3600000000001));
	peer = pair_connect_to(p.a, PAIR_B, invitation, len);
	expect_status(refused(p.a, peer), ESCROW_E_REFUSED);
	pair_close(&p);
}

static void welcomes_any(struct conform *c)
{
	struct engine *b = engine_open(&c->subject, NULL, "b");
	struct engine *a[3];
	uint8_t invitation[INVITATION_ROOM];
	struct escrow_peer_info info;
	struct escrow_event up;
	uint64_t len, peer;
	char name[32];
	int i;

	pair_invite(b, NULL, 0, invitation, &len);
	for (i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "guest-%d", i);
		a[i] = engine_open(&c->subject, NULL, name);
		peer = pair_connect_to(a[i], "b", invitation, len);
		engine_wait(a[i], ESCROW_EV_PEER_UP, peer, NULL);
		engine_wait(b, ESCROW_EV_PEER_UP, 0, &up);
		info = info_of(b, up.object);
		expect(!strcmp(info.peer_name, name), "the peer's name is %s, it calls itself %s",
		       info.peer_name, name);
		expect_as("IN2", up.user == TOKEN(0x141), "PEER_UP without the invitation's user");
	}
	for (i = 0; i < 3; i++)
		engine_close(a[i]);
	engine_close(b);
}

/* connect with bytes that are no invitation: refused at once, or the connection never comes up. */
static void connect_badly(struct engine *en, const uint8_t *bytes, uint64_t len)
{
	struct escrow_peer_args args = {
		.size = sizeof(args),
		.user = TOKEN(0xbad),
		.peer_name = "bad",
		.invitation = bytes,
		.invitation_len = len,
		.deadline_ns = host_now(en->host) + UINT64_C(2000000000),
	};
	uint64_t peer;
	escrow_status status = engine_connect(en, &args, &peer);

	if (status == ESCROW_IN_PROGRESS)
		refused(en, peer);
	else
		expect(status == ESCROW_E_INVALID || status == ESCROW_E_REVISION,
		       "connect with bad bytes gives %s", verdict_status(status));
}

static void altered_bytes(struct conform *c)
{
	struct pair p = {0};
	uint8_t good[INVITATION_ROOM], bad[INVITATION_ROOM];
	uint64_t len, i, peer;

	p.a = engine_open(&c->subject, NULL, "a");
	p.b = engine_open(&c->subject, NULL, "b");
	pair_invite(p.b, PAIR_A, 0, good, &len);
	for (i = 0; i < len; i++)
		connect_badly(p.a, good, i);
	for (i = 0; i < len; i++) {
		memcpy(bad, good, len);
		bad[i] ^= (uint8_t)(1u << (c->seed + i) % 8);
		connect_badly(p.a, bad, len);
	}
	memcpy(bad, good, len);
	bad[len] = 0;
	connect_badly(p.a, bad, len + 1);
	memset(bad, 0, len);
	connect_badly(p.a, bad, len);
	memset(bad, 0xff, len);
	connect_badly(p.a, bad, len);
	expect(!engine_pending(p.b, ESCROW_EV_PEER_UP, 0), "the inviting side got a PEER_UP");
	peer = pair_connect_to(p.a, PAIR_B, good, len);
	engine_wait(p.a, ESCROW_EV_PEER_UP, peer, NULL);
	pair_close(&p);
}

static void disconnects(struct conform *c)
{
	struct escrow_event down;
	struct pair p;

	pair_open(&p, &c->subject);
	expect_status(p.a->o->disconnect(p.a->e, p.a_peer, 0), ESCROW_IN_PROGRESS);
	if (!engine_pending(p.a, ESCROW_EV_PEER_DOWN, 0))
		expect_status(p.a->o->disconnect(p.a->e, p.a_peer, 0), ESCROW_IN_PROGRESS);
	engine_wait(p.a, ESCROW_EV_PEER_DOWN, p.a_peer, &down);
	expect(down.status == ESCROW_OK && down.user == TOKEN(0xc0),
	       "PEER_DOWN with %s, user %#llx", verdict_status(down.status),
	       (unsigned long long)down.user);
	engine_wait(p.b, ESCROW_EV_PEER_DOWN, p.b_peer, &down);
	engine_settle();
	expect(!engine_pending(p.a, ESCROW_EV_PEER_DOWN, 0) &&
		       !engine_pending(p.b, ESCROW_EV_PEER_DOWN, 0),
	       "PEER_DOWN came twice");
	pair_connect(&p);
	pair_close(&p);
}

static void nobody_there(struct conform *c)
{
	struct pair p = {0};
	uint8_t invitation[INVITATION_ROOM];
	struct escrow_peer_args args = {
		.size = sizeof(args),
		.user = TOKEN(0xc0),
		.peer_name = "gone",
		.invitation = invitation,
	};
	escrow_status status;
	uint64_t peer;

	p.a = engine_open(&c->subject, NULL, "a");
	p.b = engine_open(&c->subject, NULL, "b");
	pair_invite(p.b, PAIR_A, 0, invitation, &args.invitation_len);
	engine_close(p.b);
	args.deadline_ns = host_now(p.a->host) + UINT64_C(2000000000);
	expect_status(engine_connect(p.a, &args, &peer), ESCROW_IN_PROGRESS);
	status = refused(p.a, peer);
	expect(status == ESCROW_E_REFUSED || status == ESCROW_E_TIMEOUT ||
		       status == ESCROW_E_PEER_LOST,
	       "PEER_DOWN with %s when nobody is there", verdict_status(status));
	engine_close(p.a);
}

static void epochs_rise(struct conform *c)
{
	struct escrow_peer_info info;
	uint64_t last = 0;
	struct pair p;
	int i;

	pair_open(&p, &c->subject);
	for (i = 0; i < 4; i++) {
		info = info_of(p.a, p.a_peer);
		expect(info.epoch > last, "epoch %llu after %llu", (unsigned long long)info.epoch,
		       (unsigned long long)last);
		expect(info.epoch == info_of(p.b, p.b_peer).epoch, "two epochs of a connection");
		last = info.epoch;
		expect_status(p.a->o->disconnect(p.a->e, p.a_peer, 0), ESCROW_IN_PROGRESS);
		engine_wait(p.a, ESCROW_EV_PEER_DOWN, p.a_peer, NULL);
		engine_wait(p.b, ESCROW_EV_PEER_DOWN, p.b_peer, NULL);
		pair_connect(&p);
	}
	pair_close(&p);
}

static void connection_quota(struct conform *c)
{
	uint8_t invitation[INVITATION_ROOM];
	struct escrow_peer_args args = {
		.size = sizeof(args),
		.user = TOKEN(0xc0),
		.peer_name = "one-more",
		.invitation = invitation,
	};
	struct escrow_charge charge;
	escrow_status status;
	char limit[32];
	struct pair p;
	uint64_t peer;

	if (!subject_has_option(&c->subject, "quota.connections"))
		verdict_skip("the descriptor lists no option quota.connections");
	pair_open(&p,
		  &c->subject); /* how many queue pairs a peer takes is the backend's business */
	book_charge(p.a->o, p.a->e, ESCROW_CHARGE_CONNECTIONS, "", &charge);
	expect_as("CH1", charge.used > 0, "a peer is charged no connection");
	pair_close(&p);
	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)charge.used);
	engine_setting("quota.connections", limit);
	pair_open(&p, &c->subject);
	pair_invite(p.b, "second", 0, invitation, &args.invitation_len);
	status = engine_connect(p.a, &args, &peer);
	if (status == ESCROW_IN_PROGRESS)
		status = refused(p.a, peer);
	expect(status == ESCROW_E_QUOTA, "one peer more than the quota gives %s",
	       verdict_status(status));
	engine_settle();
	expect_status(p.a->o->disconnect(p.a->e, p.a_peer, 0), ESCROW_IN_PROGRESS);
	engine_wait(p.a, ESCROW_EV_PEER_DOWN, p.a_peer, NULL);
	engine_wait(p.b, ESCROW_EV_PEER_DOWN, p.b_peer, NULL);
	pair_connect(&p);
	pair_close(&p);
}

static void two_calls(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "two-call");
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = "guest"};
	uint8_t first[INVITATION_ROOM], second[INVITATION_ROOM];
	uint8_t *tight;
	uint64_t need = 0, len, i;

	expect_status_as("O5", engine_invite(en, &args, NULL, &need), ESCROW_E_TOO_SMALL);
	for (i = 1; i < need; i += need / 5 + 1) {
		tight = guard_new(i);
		memset(tight, 0x5e, i);
		len = i;
		expect_status_as("O5", en->o->invite(en->e, &args, tight, &len),
				 ESCROW_E_TOO_SMALL);
		expect_as("O5", len == need, "the length needed is told as %llu, then as %llu",
			  (unsigned long long)need, (unsigned long long)len);
		for (len = 0; len < i; len++)
			expect_as("O5", tight[len] == 0x5e,
				  "a buffer that is too small was written");
	}
	len = need;
	expect_status(engine_invite(en, &args, first, &len), ESCROW_OK);
	expect_as("O5", len == need, "%llu bytes written, %llu were needed",
		  (unsigned long long)len, (unsigned long long)need);
	len = sizeof(second);
	expect_status(engine_invite(en, &args, second, &len), ESCROW_OK);
	expect(len != need || memcmp(first, second, len), "two invitations have the same bytes");
	engine_close(en);
}

static void successor_refuses(struct conform *c)
{
	struct pair p = {0};
	uint8_t invitation[INVITATION_ROOM];
	uint64_t len;

	p.a = engine_open(&c->subject, NULL, "a");
	p.b = engine_open(&c->subject, NULL, "b");
	pair_invite(p.b, PAIR_A, 0, invitation, &len);
	engine_close(p.b);
	p.b = engine_open(&c->subject, NULL, "b");
	connect_badly(p.a, invitation, len);
	expect(!engine_pending(p.b, ESCROW_EV_PEER_UP, 0),
	       "the successor welcomed an invitation of its predecessor");
	pair_connect(&p);
	pair_close(&p);
}

static const struct conform_case cases[] = {
	{"ESC-PEER-001", "data", "PE1 PE2 IN2 V7", 0, 0, "two engines connect", connects},
	{"ESC-PEER-002", "data", "PE3", ESCROW_CAP_LOOPBACK, 0, "an engine connects to itself",
	 connects_to_itself},
	{"ESC-PEER-003", "data", "IN3", 0, 0, "a named invitation works once", works_once},
	{"ESC-PEER-004", "data", "IN4 N7", 0, 0, "an invitation expires on the host's clock",
	 expires},
	{"ESC-PEER-005", "data", "IN5", ESCROW_CAP_INVITE_ANY, 0,
	 "an invitation for any holder works often", welcomes_any},
	{"ESC-PEER-006", "data", "IN6", 0, NEED_MISUSE,
	 "every byte and every length of an invitation spoiled", altered_bytes},
	{"ESC-PEER-007", "data", "PE4", 0, 0, "a peer is disconnected once", disconnects},
	{"ESC-PEER-008", "data", "PE5 B3", 0, 0, "nobody answers the invitation", nobody_there},
	{"ESC-PEER-009", "data", "EP2", 0, 0, "epochs rise", epochs_rise},
	{"ESC-PEER-010", "data", "PE7", ESCROW_CAP_LEDGER, 0, "one connection more than the quota",
	 connection_quota},
	{"ESC-PEER-011", "core", "IN1 O5", 0, 0, "invite with too little room, and its tickets",
	 two_calls},
	{"ESC-PEER-012", "data", "EP4", 0, NEED_MISUSE,
	 "a predecessor's invitation does not open its successor", successor_refuses},
};

CONFORM_AREA(area_peer, cases);
