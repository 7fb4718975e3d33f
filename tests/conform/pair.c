/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/conform/pair.h"

#include <string.h>

#include "tests/conform/trail.h"

void memory_register(struct engine *en, struct memory *m, size_t bytes)
{
	struct escrow_region_args args = {
		.size = sizeof(args),
		.user = TOKEN(0x1e9),
		.length = bytes,
		.memory_kind = ESCROW_MEMORY_HOST,
		.dmabuf_fd = -1,
	};

	buffer_new(&m->buf, bytes);
	args.addr = m->buf.at;
	expect_status_as("RE1", engine_region(en, &args, &m->region), ESCROW_OK);
}

void memory_deregister(struct engine *en, struct memory *m)
{
	struct escrow_event ev;

	expect_status_as("RE3", en->o->deregister_memory(en->e, m->region, 0), ESCROW_IN_PROGRESS);
	engine_wait(en, ESCROW_EV_REGION_RELEASED, m->region, &ev);
	expect_as("RE3", ev.status == ESCROW_OK, "REGION_RELEASED with %s",
		  verdict_status(ev.status));
	expect_as("V8", ev.user == TOKEN(0x1e9), "REGION_RELEASED has user %#llx",
		  (unsigned long long)ev.user);
}

void pair_invite(struct engine *en, const char *peer_name, uint64_t expires_ns, void *buf,
		 uint64_t *len)
{
	struct escrow_invite_args args = {
		.size = sizeof(args),
		.flags = peer_name ? 0 : ESCROW_INVITE_ANY,
		.user = TOKEN(0x141),
		.peer_name = peer_name,
		.expires_ns = expires_ns,
	};
	uint64_t need = 0;

	expect_status_as("O5", engine_invite(en, &args, NULL, &need), ESCROW_E_TOO_SMALL);
	expect_as("O5", need > 0 && need <= en->limits.max_invitation_bytes,
		  "an invitation needs %llu bytes, max_invitation_bytes is %llu",
		  (unsigned long long)need, (unsigned long long)en->limits.max_invitation_bytes);
	if (need > INVITATION_ROOM)
		verdict_broken("an invitation of %llu bytes", (unsigned long long)need);
	*len = need;
	expect_status_as("IN1", engine_invite(en, &args, buf, len), ESCROW_OK);
}

uint64_t pair_connect_to(struct engine *en, const char *peer_name, const void *invitation,
			 uint64_t len)
{
	struct escrow_peer_args args = {
		.size = sizeof(args),
		.user = TOKEN(0xc0),
		.peer_name = peer_name,
		.invitation = invitation,
		.invitation_len = len,
	};
	uint64_t peer = 0;

	expect_status_as("PE1", engine_connect(en, &args, &peer), ESCROW_IN_PROGRESS);
	return peer;
}

void pair_connect(struct pair *p)
{
	uint8_t invitation[INVITATION_ROOM];
	struct escrow_event up;
	uint64_t len;

	pair_invite(p->b, PAIR_A, 0, invitation, &len);
	p->a_peer = pair_connect_to(p->a, PAIR_B, invitation, len);
	engine_wait(p->a, ESCROW_EV_PEER_UP, p->a_peer, &up);
	expect_as("V8", up.user == TOKEN(0xc0), "PEER_UP has user %#llx",
		  (unsigned long long)up.user);
	engine_wait(p->b, ESCROW_EV_PEER_UP, 0, &up);
	expect_as("IN2", up.user == TOKEN(0x141),
		  "PEER_UP of who came by an invitation has user %#llx, not the invitation's",
		  (unsigned long long)up.user);
	p->b_peer = up.object;
}

void pair_open_with(struct pair *p, const struct subject *sa, const struct subject *sb)
{
	memset(p, 0, sizeof(*p));
	p->a = engine_open(sa, NULL, "engine-a");
	p->b = engine_open(sb, NULL, "engine-b");
	pair_connect(p);
}

void pair_open(struct pair *p, const struct subject *s)
{
	pair_open_with(p, s, s);
}

void pair_close(struct pair *p)
{
	engine_close(p->a);
	engine_close(p->b);
}

uint64_t pair_grant(struct engine *owner, uint64_t peer, const struct memory *mem, uint32_t rights,
		    void *bytes, uint64_t *len)
{
	struct escrow_grant_args args = {
		.size = sizeof(args),
		.rights = rights,
		.user = TOKEN(0x96a),
		.peer = peer,
		.region = mem->region,
		.length = mem->buf.bytes,
	};
	struct escrow_event ev;
	uint64_t grant = 0, need = 0;
	uint8_t *out;
	size_t mark;

	expect_status_as("GR1", engine_grant(owner, &args, &grant),
			 peer ? ESCROW_IN_PROGRESS : ESCROW_OK);
	if (peer) {
		engine_wait(owner, ESCROW_EV_GRANT_READY, grant, &ev);
		expect_as("GR1", ev.status == ESCROW_OK && ev.user == TOKEN(0x96a),
			  "GRANT_READY with %s, user %#llx", verdict_status(ev.status),
			  (unsigned long long)ev.user);
	}
	expect_status_as("O5", owner->o->export_grant(owner->e, grant, NULL, &need),
			 ESCROW_E_TOO_SMALL);
	expect_as("O5", need > 0 && need <= owner->limits.max_grant_bytes,
		  "an exported grant needs %llu bytes, max_grant_bytes is %llu",
		  (unsigned long long)need, (unsigned long long)owner->limits.max_grant_bytes);
	if (need > GRANT_ROOM)
		verdict_broken("an exported grant of %llu bytes", (unsigned long long)need);
	mark = guard_mark();
	out = guard_new(need);
	*len = need;
	expect_status_as("GR2", owner->o->export_grant(owner->e, grant, out, len), ESCROW_OK);
	memcpy(bytes, out, *len);
	guard_poison(mark);
	return grant;
}

uint64_t pair_import(struct engine *user, uint64_t peer, const void *bytes, uint64_t len)
{
	struct escrow_event ev;
	uint64_t remote = 0;
	escrow_status status = engine_import(user, peer, bytes, len, TOKEN(0x4e3), &remote);

	expect_as("GR3", status == ESCROW_OK || status == ESCROW_IN_PROGRESS,
		  "import_grant gives %s: %s", verdict_status(status), engine_error.text);
	if (status == ESCROW_OK)
		return remote;
	engine_wait(user, ESCROW_EV_REMOTE_READY, remote, &ev);
	expect_as("GR3", ev.status == ESCROW_OK && ev.user == TOKEN(0x4e3),
		  "REMOTE_READY with %s, user %#llx", verdict_status(ev.status),
		  (unsigned long long)ev.user);
	return remote;
}

void pair_share(struct pair *p, bool reverse, size_t bytes, uint32_t rights, struct share *s)
{
	uint8_t exported[GRANT_ROOM];
	uint64_t len;

	memset(s, 0, sizeof(*s));
	s->owner = reverse ? p->a : p->b;
	s->user = reverse ? p->b : p->a;
	memory_register(s->owner, &s->mem, bytes);
	s->grant = pair_grant(s->owner, reverse ? p->a_peer : p->b_peer, &s->mem, rights, exported,
			      &len);
	s->remote = pair_import(s->user, reverse ? p->b_peer : p->a_peer, exported, len);
}

void pair_unshare(struct share *s)
{
	struct escrow_event ev;

	expect_status_as("GR7", s->user->o->forget_grant(s->user->e, s->remote), ESCROW_OK);
	expect_status_as("GR5", s->owner->o->revoke(s->owner->e, s->grant, 0), ESCROW_IN_PROGRESS);
	engine_wait(s->owner, ESCROW_EV_GRANT_REVOKED, s->grant, &ev);
	expect_as("GR5", ev.status == ESCROW_OK && ev.user == TOKEN(0x96a),
		  "GRANT_REVOKED with %s, user %#llx", verdict_status(ev.status),
		  (unsigned long long)ev.user);
	memory_deregister(s->owner, &s->mem);
}

struct escrow_op pair_op(uint32_t opcode, const struct share *s, uint64_t remote_offset,
			 const struct escrow_sge *sge)
{
	struct escrow_op op = {
		.user = TOKEN(0x09),
		.remote = s->remote,
		.remote_offset = remote_offset,
		.opcode = opcode,
		.nsge = sge ? 1 : 0,
		.sge = sge,
	};

	return op;
}

uint64_t pair_start(struct engine *en, const struct escrow_op *op)
{
	uint64_t id = 0;
	int32_t took = engine_transfer(en, op, 1, &id);

	expect_as("OP1", took == 1, "transfer of one good op gives %s", verdict_status(took));
	return id;
}

void pair_move(struct engine *en, const struct escrow_op *op, uint64_t bytes)
{
	uint64_t id = pair_start(en, op);
	struct escrow_event ev;

	engine_wait(en, ESCROW_EV_OP_DONE, id, &ev);
	expect_as("OP2", ev.status == ESCROW_OK, "OP_DONE with %s", verdict_status(ev.status));
	expect_as("CU2",
		  ev.custody == ESCROW_CUSTODY_RETURNED && ev.effect == ESCROW_EFFECT_EXECUTED,
		  "OP_DONE is OK with custody %u, effect %u", ev.custody, ev.effect);
	expect_as("CU3", ev.bytes == bytes, "OP_DONE says %llu bytes, %llu were asked for",
		  (unsigned long long)ev.bytes, (unsigned long long)bytes);
	expect_as("V8", ev.user == op->user, "OP_DONE has user %#llx, the op had %#llx",
		  (unsigned long long)ev.user, (unsigned long long)op->user);
}
