/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-GRANT: authority over memory: made, carried, used, taken back. */
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"

#define BOTH (ESCROW_MAY_READ | ESCROW_MAY_WRITE)

static void life_of_a_grant(struct conform *c)
{
	struct memory local;
	struct escrow_sge sge = {.length = 4096};
	struct escrow_op op;
	struct share s;
	struct pair p;

	pair_open(&p, &c->subject);
	pair_share(&p, false, 4096, BOTH, &s);
	memory_register(p.a, &local, 4096);
	sge.region = local.region;
	buffer_fill(&local.buf, 0, 4096, 7);
	op = pair_op(ESCROW_WRITE, &s, 0, &sge);
	pair_move(p.a, &op, 4096);
	expect_as("OP2", buffer_is(&s.mem.buf, 0, 4096, 7), "the written bytes are not there");
	pair_unshare(&s);
	engine_settle();
	expect_as("GR1", !p.a->count && !p.b->count, "more events than the grant's came");
	memory_deregister(p.a, &local);
	pair_close(&p);
}

static void export_rules(struct conform *c)
{
	struct memory mem;
	uint8_t bytes[GRANT_ROOM], again[GRANT_ROOM];
	uint64_t grant, len, need, i;
	uint8_t *tight;
	struct pair p;

	pair_open(&p, &c->subject);
	memory_register(p.b, &mem, 4096);
	grant = pair_grant(p.b, p.b_peer, &mem, BOTH, bytes, &need);
	for (i = 1; i < need; i += need / 5 + 1) {
		tight = guard_new(i);
		memset(tight, 0x5e, i);
		len = i;
		expect_status_as("O5", p.b->o->export_grant(p.b->e, grant, tight, &len),
				 ESCROW_E_TOO_SMALL);
		expect_as("O5", len == need, "the length needed is told as %llu, then as %llu",
			  (unsigned long long)need, (unsigned long long)len);
		for (len = 0; len < i; len++)
			expect_as("O5", tight[len] == 0x5e,
				  "a buffer that is too small was written");
	}
	len = sizeof(again);
	expect_status(p.b->o->export_grant(p.b->e, grant, again, &len), ESCROW_OK);
	expect(len == need && !memcmp(bytes, again, len), "export_grant gives other bytes now");
	expect_status(p.b->o->revoke(p.b->e, grant, 0), ESCROW_IN_PROGRESS);
	len = sizeof(again);
	expect(p.b->o->export_grant(p.b->e, grant, again, &len) < 0,
	       "export_grant gives bytes after revoke");
	engine_wait(p.b, ESCROW_EV_GRANT_REVOKED, grant, NULL);
	memory_deregister(p.b, &mem);
	pair_close(&p);
}

/* One op through a remote that no longer works: refused, or it ends badly; no byte moves. */
static void expect_no_access(struct engine *en, struct share *s, uint32_t opcode, uint64_t region)
{
	struct escrow_sge sge = {.region = region, .length = 4096};
	struct escrow_op op = pair_op(opcode, s, 0, &sge);
	struct escrow_event ev;
	uint64_t id;

	if (engine_transfer(en, &op, 1, &id) == 1) {
		engine_wait(en, ESCROW_EV_OP_DONE, id, &ev);
		expect_as("GR5", ev.status < 0 && ev.effect != ESCROW_EFFECT_EXECUTED,
			  "an op through a revoked grant ends with %s, effect %u",
			  verdict_status(ev.status), ev.effect);
		expect_as("CU4", ev.custody == ESCROW_CUSTODY_RETURNED, "its custody is HELD");
	}
}

static void after_revoke(struct conform *c)
{
	uint32_t opcode;

	for (opcode = ESCROW_READ; opcode <= ESCROW_WRITE; opcode++) {
		struct escrow_event ev;
		struct memory local;
		struct share s;
		struct pair p;

		pair_open(&p, &c->subject);
		pair_share(&p, false, 4096, BOTH, &s);
		memory_register(p.a, &local, 4096);
		buffer_fill(opcode == ESCROW_WRITE ? &local.buf : &s.mem.buf, 0, 4096, 3);
		expect_status(p.b->o->revoke(p.b->e, s.grant, 0), ESCROW_IN_PROGRESS);
		engine_wait(p.b, ESCROW_EV_GRANT_REVOKED, s.grant, &ev);
		expect_no_access(p.a, &s, opcode, local.region);
		engine_settle();
		/* The sink of a READ that failed may hold anything, but not what was granted. */
		if (opcode == ESCROW_WRITE)
			expect(buffer_intact(&s.mem.buf, 0, 0),
			       "bytes moved through a grant after GRANT_REVOKED");
		else
			expect(buffer_intact(&local.buf, 0, 4096) &&
				       !buffer_is(&local.buf, 0, 4096, 3),
			       "bytes came through a grant after GRANT_REVOKED");
		pair_close(&p);
	}
}

static void rights(struct conform *c)
{
	struct memory local;
	struct escrow_sge sge = {.length = 64};
	struct share r, w;
	struct escrow_op op;
	struct pair p;
	uint64_t id;

	pair_open(&p, &c->subject);
	pair_share(&p, false, 4096, ESCROW_MAY_READ, &r);
	pair_share(&p, false, 4096, ESCROW_MAY_WRITE, &w);
	memory_register(p.a, &local, 4096);
	sge.region = local.region;
	op = pair_op(ESCROW_WRITE, &r, 0, &sge);
	expect_status(engine_transfer(p.a, &op, 1, &id), ESCROW_E_ACCESS);
	op = pair_op(ESCROW_READ, &w, 0, &sge);
	expect_status(engine_transfer(p.a, &op, 1, &id), ESCROW_E_ACCESS);
	op = pair_op(ESCROW_READ, &r, 0, &sge);
	pair_move(p.a, &op, 64);
	op = pair_op(ESCROW_WRITE, &w, 0, &sge);
	pair_move(p.a, &op, 64);
	pair_close(&p);
}

/* import_grant of spoiled bytes: refused, at once or by REMOTE_READY. */
static void import_badly(struct engine *en, uint64_t peer, const uint8_t *bytes, uint64_t len,
			 const char *what)
{
	struct escrow_event ev;
	uint64_t remote;
	escrow_status status = engine_import(en, peer, bytes, len, TOKEN(0xbad), &remote);

	if (status == ESCROW_IN_PROGRESS) {
		engine_wait(en, ESCROW_EV_REMOTE_READY, remote, &ev);
		status = ev.status;
	}
	expect(status < 0, "import_grant of %s of %llu bytes gives %s", what,
	       (unsigned long long)len, verdict_status(status));
	expect(status == ESCROW_E_INVALID || status == ESCROW_E_STALE_EPOCH ||
		       status == ESCROW_E_REVISION || status == ESCROW_E_ACCESS ||
		       status == ESCROW_E_REFUSED,
	       "import_grant of %s gives %s", what, verdict_status(status));
}

static void altered_bytes(struct conform *c)
{
	uint8_t good[GRANT_ROOM], bad[GRANT_ROOM];
	struct memory mem;
	uint64_t len, i;
	struct pair p;

	pair_open(&p, &c->subject);
	memory_register(p.b, &mem, 4096);
	pair_grant(p.b, p.b_peer, &mem, ESCROW_MAY_READ, good, &len);
	for (i = 0; i < len; i++)
		import_badly(p.a, p.a_peer, good, i, "a truncated grant");
	for (i = 0; i < len; i++) {
		memcpy(bad, good, len);
		bad[i] ^= (uint8_t)(1u << (c->seed + i) % 8);
		import_badly(p.a, p.a_peer, bad, len, "an altered grant");
	}
	memcpy(bad, good, len);
	bad[len] = 0;
	import_badly(p.a, p.a_peer, bad, len + 1, "a longer grant");
	memset(bad, 0, len);
	import_badly(p.a, p.a_peer, bad, len, "zeros");
	memset(bad, 0xff, len);
	import_badly(p.a, p.a_peer, bad, len, "ones");
	pair_import(p.a, p.a_peer, good, len);
	pair_close(&p);
}

/* a and third are both connected to b; a's grant is of no use to third. */
static void for_one_peer(struct conform *c)
{
	uint8_t bytes[GRANT_ROOM], invitation[INVITATION_ROOM];
	struct engine *third;
	struct escrow_sge sge = {.length = 64};
	struct escrow_event ev;
	struct escrow_op op;
	struct memory mem, local;
	struct share s = {0};
	uint64_t len, ilen, peer, id;
	struct pair p;
	escrow_status status;

	pair_open(&p, &c->subject);
	third = engine_open(&c->subject, NULL, "third");
	if (engine_can(third, ESCROW_CAP_PLAIN_KEYS))
		verdict_skip("query reports PLAIN_KEYS: grants are not bound to a peer");
	pair_invite(p.b, "third", 0, invitation, &ilen);
	peer = pair_connect_to(third, PAIR_B, invitation, ilen);
	engine_wait(third, ESCROW_EV_PEER_UP, peer, NULL);
	memory_register(p.b, &mem, 4096);
	buffer_fill(&mem.buf, 0, 4096, 9);
	pair_grant(p.b, p.b_peer, &mem, ESCROW_MAY_READ, bytes, &len);
	memory_register(third, &local, 4096);
	status = engine_import(third, peer, bytes, len, TOKEN(1), &s.remote);
	if (status == ESCROW_IN_PROGRESS) {
		engine_wait(third, ESCROW_EV_REMOTE_READY, s.remote, &ev);
		status = ev.status;
	}
	if (status == ESCROW_OK) {
		sge.region = local.region;
		op = pair_op(ESCROW_READ, &s, 0, &sge);
		if (engine_transfer(third, &op, 1, &id) == 1) {
			engine_wait(third, ESCROW_EV_OP_DONE, id, &ev);
			expect(ev.status < 0, "another peer's READ through the grant ends with %s",
			       verdict_status(ev.status));
		}
	}
	expect(buffer_intact(&local.buf, 0, 0), "another peer's READ through the grant got bytes");
	pair_import(p.a, p.a_peer, bytes, len);
	engine_close(third);
	pair_close(&p);
}

static void offers(struct conform *c)
{
	uint8_t bytes[GRANT_ROOM];
	struct escrow_sge sge = {.length = 4096};
	struct share s1 = {0}, s2 = {0};
	struct memory mem, local;
	struct escrow_event ev;
	struct escrow_op op;
	uint64_t grant, len;
	struct pair p;

	pair_open(&p, &c->subject);
	memory_register(p.b, &mem, 4096);
	buffer_fill(&mem.buf, 0, 4096, 5);
	grant = pair_grant(p.b, 0, &mem, ESCROW_MAY_READ, bytes, &len);
	engine_settle();
	expect_as("GR1", !p.b->count, "an offer came with an event");
	s1.remote = pair_import(p.a, p.a_peer, bytes, len);
	s2.remote = pair_import(p.a, p.a_peer, bytes, len);
	expect(s1.remote != s2.remote, "two imports give one remote");
	memory_register(p.a, &local, 4096);
	sge.region = local.region;
	op = pair_op(ESCROW_READ, &s1, 0, &sge);
	pair_move(p.a, &op, 4096);
	expect(buffer_is(&local.buf, 0, 4096, 5), "the bytes of the offer did not come");
	expect_status(p.a->o->forget_grant(p.a->e, s1.remote), ESCROW_OK);
	memset(local.buf.at, BUFFER_CANARY, 4096);
	op = pair_op(ESCROW_READ, &s2, 0, &sge);
	pair_move(p.a, &op, 4096);
	expect(buffer_is(&local.buf, 0, 4096, 5), "forgetting one import ended the other");
	memset(local.buf.at, BUFFER_CANARY, 4096);
	expect_status(p.b->o->revoke(p.b->e, grant, 0), ESCROW_IN_PROGRESS);
	engine_wait(p.b, ESCROW_EV_GRANT_REVOKED, grant, &ev);
	expect_no_access(p.a, &s2, ESCROW_READ, local.region);
	expect(buffer_intact(&local.buf, 0, 4096) && !buffer_is(&local.buf, 0, 4096, 5),
	       "bytes came through an offer after GRANT_REVOKED");
	pair_close(&p);
}

static void revoked_once(struct conform *c)
{
	struct share s;
	struct pair p;

	pair_open(&p, &c->subject);
	pair_share(&p, false, 4096, ESCROW_MAY_READ, &s);
	expect_status(p.b->o->revoke(p.b->e, s.grant, 0), ESCROW_IN_PROGRESS);
	if (!engine_pending(p.b, ESCROW_EV_GRANT_REVOKED, 0))
		expect_status(p.b->o->revoke(p.b->e, s.grant, 0), ESCROW_IN_PROGRESS);
	engine_wait(p.b, ESCROW_EV_GRANT_REVOKED, s.grant, NULL);
	engine_settle();
	expect(!engine_pending(p.b, ESCROW_EV_GRANT_REVOKED, 0), "GRANT_REVOKED came twice");
	memory_deregister(p.b, &s.mem);
	pair_close(&p);
}

static void one_of_many(struct conform *c)
{
	struct escrow_sge sge = {.length = 256};
	struct share s[6];
	struct memory mem, local;
	uint8_t bytes[GRANT_ROOM];
	struct escrow_op op;
	uint64_t len;
	struct pair p;
	int i;

	pair_open(&p, &c->subject);
	memory_register(p.b, &mem, 4096);
	memory_register(p.a, &local, 4096);
	sge.region = local.region;
	for (i = 0; i < 6; i++) {
		s[i].grant = pair_grant(p.b, p.b_peer, &mem, BOTH, bytes, &len);
		s[i].remote = pair_import(p.a, p.a_peer, bytes, len);
	}
	expect_status(p.b->o->revoke(p.b->e, s[2].grant, 0), ESCROW_IN_PROGRESS);
	engine_wait(p.b, ESCROW_EV_GRANT_REVOKED, s[2].grant, NULL);
	for (i = 0; i < 6; i++) {
		op = pair_op(ESCROW_READ, &s[i], 0, &sge);
		if (i != 2)
			pair_move(p.a, &op, 256);
	}
	engine_settle();
	expect(!engine_pending(p.b, ESCROW_EV_GRANT_REVOKED, 0), "other grants were revoked too");
	pair_close(&p);
}

static uint64_t take_seq(struct engine *en, unsigned int kind, uint64_t object)
{
	struct escrow_event ev;

	expect_as("PE4", engine_take(en, kind, object, &ev), "no %s of %#llx came before PEER_DOWN",
		  verdict_event(kind), (unsigned long long)object);
	return ev.seq;
}

static void ended_by_disconnect(struct conform *c)
{
	struct escrow_event down;
	struct share s, t;
	struct pair p;

	pair_open(&p, &c->subject);
	pair_share(&p, false, 4096, BOTH, &s);
	pair_share(&p, false, 4096, BOTH, &t);
	expect_status(p.b->o->disconnect(p.b->e, p.b_peer, 0), ESCROW_IN_PROGRESS);
	engine_wait(p.b, ESCROW_EV_PEER_DOWN, p.b_peer, &down);
	expect(take_seq(p.b, ESCROW_EV_GRANT_REVOKED, s.grant) < down.seq &&
		       take_seq(p.b, ESCROW_EV_GRANT_REVOKED, t.grant) < down.seq,
	       "PEER_DOWN came before GRANT_REVOKED");
	memory_deregister(p.b, &s.mem);
	memory_deregister(p.b, &t.mem);
	engine_wait(p.a, ESCROW_EV_PEER_DOWN, p.a_peer, NULL);
	expect_status(p.a->o->forget_grant(p.a->e, s.remote), ESCROW_OK);
	pair_close(&p);
}

static void forgotten(struct conform *c)
{
	struct memory local;
	struct escrow_sge sge = {.length = 64};
	struct escrow_op op;
	struct share s;
	struct pair p;
	uint64_t id;

	pair_open(&p, &c->subject);
	pair_share(&p, false, 4096, BOTH, &s);
	memory_register(p.a, &local, 4096);
	sge.region = local.region;
	op = pair_op(ESCROW_READ, &s, 0, &sge);
	expect_status(p.a->o->forget_grant(p.a->e, s.remote), ESCROW_OK);
	expect_status(engine_transfer(p.a, &op, 1, &id), ESCROW_E_INVALID);
	expect_status(p.a->o->forget_grant(p.a->e, s.remote), ESCROW_E_INVALID);
	pair_close(&p);
}

static void stale_epoch(struct conform *c)
{
	uint8_t bytes[GRANT_ROOM];
	struct memory mem;
	uint64_t len, remote;
	struct pair p;

	pair_open(&p, &c->subject);
	memory_register(p.b, &mem, 4096);
	pair_grant(p.b, p.b_peer, &mem, BOTH, bytes, &len);
	expect_status(p.a->o->disconnect(p.a->e, p.a_peer, 0), ESCROW_IN_PROGRESS);
	engine_wait(p.a, ESCROW_EV_PEER_DOWN, p.a_peer, NULL);
	engine_wait(p.b, ESCROW_EV_PEER_DOWN, p.b_peer, NULL);
	pair_connect(&p);
	expect_status(engine_import(p.a, p.a_peer, bytes, len, 0, &remote), ESCROW_E_STALE_EPOCH);
	engine_close(p.b);
	engine_wait(p.a, ESCROW_EV_PEER_DOWN, p.a_peer, NULL);
	p.b = engine_open(&c->subject, NULL, "engine-b"); /* a new incarnation */
	pair_connect(&p);
	expect_status(engine_import(p.a, p.a_peer, bytes, len, 0, &remote), ESCROW_E_STALE_EPOCH);
	pair_close(&p);
}

static void range_of_a_grant(struct conform *c)
{
	struct escrow_grant_args args = {.size = sizeof(args), .rights = BOTH, .user = 1};
	struct escrow_sge sge = {.length = 100};
	uint8_t bytes[GRANT_ROOM];
	uint64_t len = sizeof(bytes), id;
	struct memory mem, local;
	struct share s = {0};
	struct escrow_op op;
	struct pair p;

	pair_open(&p, &c->subject);
	memory_register(p.b, &mem, 8192);
	memory_register(p.a, &local, 8192);
	buffer_fill(&local.buf, 0, 100, 4);
	args.peer = p.b_peer;
	args.region = mem.region;
	args.offset = 1000;
	args.length = 100;
	expect_status(engine_grant(p.b, &args, &s.grant), ESCROW_IN_PROGRESS);
	engine_wait(p.b, ESCROW_EV_GRANT_READY, s.grant, NULL);
	expect_status(p.b->o->export_grant(p.b->e, s.grant, bytes, &len), ESCROW_OK);
	s.remote = pair_import(p.a, p.a_peer, bytes, len);
	sge.region = local.region;
	op = pair_op(ESCROW_WRITE, &s, 0, &sge);
	pair_move(p.a, &op, 100);
	expect(buffer_is(&mem.buf, 1000, 100, 4), "the bytes are not at the grant's place");
	expect(buffer_intact(&mem.buf, 1000, 100), "bytes beside the grant changed");
	op.remote_offset = 1;
	expect_status(engine_transfer(p.a, &op, 1, &id), ESCROW_E_INVALID);
	op.remote_offset = UINT64_MAX;
	expect_status(engine_transfer(p.a, &op, 1, &id), ESCROW_E_INVALID);
	op.remote_offset = 0;
	sge.length = 101;
	expect_status(engine_transfer(p.a, &op, 1, &id), ESCROW_E_INVALID);
	expect(buffer_intact(&mem.buf, 1000, 100), "bytes beside the grant changed");
	pair_close(&p);
}

static const struct conform_case cases[] = {
	{"ESC-GRANT-001", "data", "GR1 GR3", ESCROW_CAP_WRITE, 0, "a grant lives and ends",
	 life_of_a_grant},
	{"ESC-GRANT-002", "data", "GR2 O5", 0, NEED_MISUSE, "export_grant gives the same bytes",
	 export_rules},
	{"ESC-GRANT-003", "data", "GR5", ESCROW_CAP_READ | ESCROW_CAP_WRITE, 0,
	 "nothing moves after GRANT_REVOKED", after_revoke},
	{"ESC-GRANT-004", "data", "GR4", ESCROW_CAP_READ | ESCROW_CAP_WRITE, NEED_MISUSE,
	 "rights are what was given", rights},
	{"ESC-GRANT-005", "data", "GR6", 0, NEED_MISUSE,
	 "every byte and every length of an exported grant spoiled", altered_bytes},
	{"ESC-GRANT-006", "data", "GR8", 0, NEED_MISUSE, "a grant is for one peer", for_one_peer},
	{"ESC-GRANT-007", "data", "GR9 GR1", ESCROW_CAP_OFFER | ESCROW_CAP_READ, 0,
	 "an offer is imported twice and revoked once", offers},
	{"ESC-GRANT-008", "data", "GR10", 0, 0, "a grant is revoked once", revoked_once},
	{"ESC-GRANT-010", "data", "GR11", ESCROW_CAP_READ, 0, "one of several grants is revoked",
	 one_of_many},
	{"ESC-GRANT-011", "data", "PE4", 0, 0, "disconnect revokes the peer's grants first",
	 ended_by_disconnect},
	{"ESC-GRANT-012", "data", "GR7", 0, NEED_MISUSE, "a forgotten remote is gone", forgotten},
	{"ESC-GRANT-013", "data", "EP3", 0, NEED_MISUSE,
	 "grants of another epoch and incarnation are stale", stale_epoch},
	{"ESC-GRANT-014", "data", "GR12", ESCROW_CAP_WRITE, NEED_MISUSE,
	 "a grant covers its range alone", range_of_a_grant},
};

CONFORM_AREA(area_grant, cases);
