/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-MSG: org.escrow.notify/1, messages between engines. */
#include <stdlib.h>
#include <string.h>

#include <escrow/notify.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"

#define M NEED_MESSAGES

static const struct escrow_notify *notify_of(struct engine *en)
{
	const struct escrow_notify *n = NULL;

	if (en->o->get_extension)
		n = en->o->get_extension(en->e, ESCROW_NOTIFY_ID);
	expect_as("ME1",
		  n && n->size >= offsetof(struct escrow_notify, receive) + sizeof(void *) &&
			  n->send && n->transfer && n->receive,
		  "query reports max_message_bytes, and the table is absent or not whole");
	return n;
}

static escrow_status try_send(struct engine *en, uint64_t peer, const void *bytes, uint64_t len,
			      uint64_t user)
{
	size_t mark = guard_mark();
	escrow_status status =
		notify_of(en)->send(en->e, peer, guard_copy(bytes, len), len, user, 0);

	trail("%s: send of %llu: %s", en->name, (unsigned long long)len, verdict_status(status));
	guard_poison(mark);
	return status;
}

/* Takes the oldest message; its length. */
static uint64_t receive(struct engine *en, uint64_t *peer, uint8_t *bytes, uint64_t room)
{
	uint64_t len = room;

	expect_status_as("ME2", notify_of(en)->receive(en->e, peer, bytes, &len), ESCROW_OK);
	return len;
}

static void wait_sent(struct engine *en, uint64_t user)
{
	struct escrow_event ev;

	engine_wait(en, ESCROW_EV_MESSAGE_SENT, 0, &ev);
	expect_as("ME2", ev.status == ESCROW_OK && ev.user == user,
		  "MESSAGE_SENT with %s, user %#llx", verdict_status(ev.status),
		  (unsigned long long)ev.user);
}

static void all_lengths(struct conform *c)
{
	struct escrow_event ev;
	uint64_t n[8] = {0, 1, 7, 4095, 4096, 4097, 65536};
	uint8_t *got;
	struct buffer b;
	struct pair p;
	uint64_t peer, len;
	size_t i;

	pair_open(&p, &c->subject);
	n[7] = p.a->limits.max_message_bytes > 4000000 ? 4000000 : p.a->limits.max_message_bytes;
	buffer_new(&b, n[7] + 1);
	got = guard_kept(n[7]);
	for (i = 0; i < 8; i++) {
		buffer_fill(&b, 0, n[i], (uint32_t)i);
		expect_status(try_send(p.a, p.a_peer, b.at, n[i], TOKEN(i)), ESCROW_OK);
		engine_wait(p.b, ESCROW_EV_MESSAGE, p.b_peer, &ev);
		expect(ev.bytes == n[i], "MESSAGE of %llu bytes, %llu were sent",
		       (unsigned long long)ev.bytes, (unsigned long long)n[i]);
		peer = UNTOUCHED;
		len = receive(p.b, &peer, got, n[7]);
		expect(peer == p.b_peer && len == n[i], "received %llu bytes of peer %#llx",
		       (unsigned long long)len, (unsigned long long)peer);
		expect(!memcmp(got, b.at, n[i]), "a message of %llu bytes came altered",
		       (unsigned long long)n[i]);
		wait_sent(p.a, TOKEN(i));
	}
	if (n[7] == p.a->limits.max_message_bytes)
		expect_status(try_send(p.a, p.a_peer, b.at, n[7] + 1, 1), ESCROW_E_LIMIT);
	len = n[7];
	expect_status(notify_of(p.b)->receive(p.b->e, &peer, got, &len), ESCROW_E_AGAIN);
	engine_settle();
	expect(!p.a->count && !p.b->count, "more events than the messages'");
	pair_close(&p);
}

static void in_order(struct conform *c)
{
	uint32_t i, n = 200, sent = 0, got = 0, seen;
	uint8_t bytes[64];
	struct pair p;
	uint64_t peer;

	pair_open(&p, &c->subject);
	while (got < n) {
		while (sent < n) {
			memset(bytes, 0, sizeof(bytes));
			memcpy(bytes, &sent, sizeof(sent));
			if (try_send(p.a, p.a_peer, bytes, 4 + sent % 60, sent) != ESCROW_OK)
				break;
			sent++;
		}
		engine_wait(p.b, ESCROW_EV_MESSAGE, 0, NULL);
		i = (uint32_t)receive(p.b, &peer, bytes, sizeof(bytes));
		memcpy(&seen, bytes, sizeof(seen));
		expect(seen == got && i == 4 + got % 60, "message %u came as the %uth", seen, got);
		got++;
	}
	for (i = 0; i < n; i++)
		wait_sent(p.a, i);
	pair_close(&p);
}

static void short_receive(struct conform *c)
{
	uint8_t bytes[100], *tight = guard_new(99);
	uint64_t peer = UNTOUCHED, len, i;
	struct pair p;

	pair_open(&p, &c->subject);
	memset(bytes, 7, sizeof(bytes));
	memset(tight, 0x5e, 99);
	expect_status(try_send(p.a, p.a_peer, bytes, 100, 1), ESCROW_OK);
	engine_wait(p.b, ESCROW_EV_MESSAGE, 0, NULL);
	for (i = 0; i < 3; i++) {
		len = i ? 99 : 0;
		expect_status(notify_of(p.b)->receive(p.b->e, &peer, i ? tight : NULL, &len),
			      ESCROW_E_TOO_SMALL);
		expect(len == 100, "the length needed is told as %llu", (unsigned long long)len);
	}
	for (i = 0; i < 99; i++)
		expect_as("O5", tight[i] == 0x5e, "a buffer that is too small was written");
	expect(receive(p.b, &peer, bytes, sizeof(bytes)) == 100 && bytes[99] == 7,
	       "the message is not whole after short receives");
	pair_close(&p);
}

/* Nobody receives: the sender is told to stop, and nothing is lost. */
static void back_pressure(struct conform *c)
{
	uint32_t sent = 0, i, seen, most = 20000;
	uint8_t bytes[64] = {0};
	struct pair p;
	uint64_t peer;
	escrow_status status = ESCROW_OK;

	pair_open(&p, &c->subject);
	while (sent < most) {
		memcpy(bytes, &sent, sizeof(sent));
		status = try_send(p.a, p.a_peer, bytes, sizeof(bytes), sent);
		if (status != ESCROW_OK)
			break;
		sent++;
	}
	expect(sent == most || status == ESCROW_E_AGAIN, "send gives %s", verdict_status(status));
	for (i = 0; i < sent; i++) {
		engine_wait(p.b, ESCROW_EV_MESSAGE, 0, NULL);
		receive(p.b, &peer, bytes, sizeof(bytes));
		memcpy(&seen, bytes, sizeof(seen));
		expect(seen == i, "message %u came in place of %u", seen, i);
		engine_take(p.a, ESCROW_EV_MESSAGE_SENT, 0, NULL);
	}
	if (status == ESCROW_E_AGAIN)
		engine_wait(p.a, ESCROW_EV_ROOM, 0, NULL);
	engine_settle();
	while (engine_take(p.a, ESCROW_EV_MESSAGE_SENT, 0, NULL))
		;
	expect_status(try_send(p.a, p.a_peer, bytes, 1, 1), ESCROW_OK);
	engine_wait(p.b, ESCROW_EV_MESSAGE, 0, NULL);
	pair_close(&p);
}

static void rides_on_op(struct conform *c)
{
	struct memory local;
	struct escrow_sge sge = {.length = 1 << 20};
	struct escrow_event ev;
	struct escrow_op op;
	uint8_t bytes[8];
	struct share s;
	struct pair p;
	uint64_t id, peer;
	uint32_t i;

	pair_open(&p, &c->subject);
	pair_share(&p, false, 1 << 20, ESCROW_MAY_READ | ESCROW_MAY_WRITE, &s);
	memory_register(p.a, &local, 1 << 20);
	sge.region = local.region;
	for (i = 0; i < 5; i++) {
		buffer_fill(&local.buf, 0, 1 << 20, i);
		op = pair_op(ESCROW_WRITE, &s, 0, &sge);
		expect(notify_of(p.a)->transfer(p.a->e, &op, "ready", 5, &id) == 1,
		       "a good op with a message is refused");
		engine_wait(p.b, ESCROW_EV_MESSAGE, p.b_peer, NULL);
		expect(receive(p.b, &peer, bytes, sizeof(bytes)) == 5 && !memcmp(bytes, "ready", 5),
		       "the message came altered");
		expect(buffer_is(&s.mem.buf, 0, 1 << 20, i),
		       "the message could be received before the op's bytes were there");
		engine_wait(p.a, ESCROW_EV_OP_DONE, id, &ev);
		expect(ev.status == ESCROW_OK, "the op ends with %s", verdict_status(ev.status));
	}
	expect_status(p.b->o->revoke(p.b->e, s.grant, 0), ESCROW_IN_PROGRESS);
	engine_wait(p.b, ESCROW_EV_GRANT_REVOKED, s.grant, NULL);
	if (notify_of(p.a)->transfer(p.a->e, &op, "lies", 4, &id) == 1) {
		engine_wait(p.a, ESCROW_EV_OP_DONE, id, &ev);
		expect(ev.status < 0, "an op through a revoked grant ends with %s",
		       verdict_status(ev.status));
	}
	engine_settle();
	expect(!engine_pending(p.b, ESCROW_EV_MESSAGE, 0), "an op that failed sent its message");
	pair_close(&p);
}

static void after_sender(struct conform *c)
{
	uint8_t bytes[16];
	struct pair p;
	uint64_t peer;

	pair_open(&p, &c->subject);
	expect_status(try_send(p.a, p.a_peer, "farewell", 8, 1), ESCROW_OK);
	wait_sent(p.a, 1);
	engine_close(p.a);
	engine_wait(p.b, ESCROW_EV_PEER_DOWN, p.b_peer, NULL);
	engine_wait(p.b, ESCROW_EV_MESSAGE, 0, NULL);
	expect(receive(p.b, &peer, bytes, sizeof(bytes)) == 8 && !memcmp(bytes, "farewell", 8),
	       "a message cannot be received after its sender went down");
	expect(try_send(p.b, p.b_peer, "x", 1, 1) < 0, "a message to a peer that is gone is taken");
	engine_close(p.b);
}

static const struct conform_case cases[] = {
	{"ESC-MSG-001", "data", "ME2", 0, M | NEED_MISUSE, "messages of all lengths", all_lengths},
	{"ESC-MSG-002", "data", "ME3", 0, M, "messages in order", in_order},
	{"ESC-MSG-003", "data", "ME6", 0, M, "receive with too little room", short_receive},
	{"ESC-MSG-004", "data", "ME4", 0, M, "messages that nobody receives", back_pressure},
	{"ESC-MSG-005", "data", "ME5", ESCROW_CAP_WRITE, M, "a message that rides on an op",
	 rides_on_op},
	{"ESC-MSG-006", "data", "ME2", 0, M | NEED_MISUSE, "a message after its sender went down",
	 after_sender},
};

CONFORM_AREA(area_message, cases);
