/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/conform/shape.h"

#include <string.h>

#include "abi/revision1.h"
#include "tests/conform/case.h"

static struct escrow_error *fresh_error(void)
{
	memset(&engine_error, 0x5e, sizeof(engine_error));
	engine_error.size = sizeof(engine_error);
	return &engine_error;
}

/* Every refusal leaves outputs alone and says why (E2, E3). */
static void judge(const char *slot, escrow_status status, bool written)
{
	trail("%s: %s %s", slot, verdict_status(status), status < 0 ? engine_error.text : "");
	expect_as("E1", engine_is_status(status), "%s gives %d, which is no status", slot, status);
	expect_as("E3", written == (status >= 0), "%s gives %s and %s its output", slot,
		  verdict_status(status), written ? "wrote" : "did not write");
}

static void fill_open(struct shapes *all, void *out)
{
	struct escrow_open_args args = {
		.size = sizeof(args),
		.host = all->host.table,
		.revision = all->subject->backend->revision,
		.kv_stride = sizeof(struct escrow_kv),
		.engine_name = "shape",
	};

	memcpy(out, &args, sizeof(args));
}

/* An engine that came of it is ended at once. */
static escrow_status call_open(struct shapes *all, const void *args)
{
	const struct escrow_ops *o = &all->subject->ops;
	struct escrow_engine *none = (struct escrow_engine *)UNTOUCHED;
	struct escrow_engine *e = none;
	struct escrow_event ev;
	escrow_status status = o->open(args, &e, fresh_error());
	unsigned int kind = 0;

	judge("open", status, e != none);
	if (status < 0)
		return status;
	expect_status(o->close(e, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	while (kind != ESCROW_EV_CLOSED)
		if (o->poll(e, &ev, 1, sizeof(ev), 0) == 1)
			kind = ev.kind;
	o->release(e);
	return status;
}

static void fill_region(struct shapes *all, void *out)
{
	struct escrow_region_args args = {
		.size = sizeof(args),
		.user = TOKEN(1),
		.addr = all->raw.at,
		.length = all->raw.bytes,
		.memory_kind = ESCROW_MEMORY_HOST,
		.dmabuf_fd = -1,
	};

	memcpy(out, &args, sizeof(args));
}

static escrow_status call_region(struct shapes *all, const void *args)
{
	struct engine *en = all->en;
	uint64_t region = UNTOUCHED;
	escrow_status status = en->o->register_memory(en->e, args, &region, fresh_error());

	judge("register_memory", status, region != UNTOUCHED);
	if (status < 0)
		return status;
	expect_status(en->o->deregister_memory(en->e, region, 0), ESCROW_IN_PROGRESS);
	engine_wait(en, ESCROW_EV_REGION_RELEASED, region, NULL);
	return status;
}

static void fill_invite(struct shapes *all, void *out)
{
	struct escrow_invite_args args = {
		.size = sizeof(args),
		.user = TOKEN(2),
		.peer_name = "guest",
	};

	memcpy(out, &args, sizeof(args));
}

static escrow_status call_invite(struct shapes *all, const void *args)
{
	uint64_t len = INVITATION_ROOM;
	uint8_t *buf = guard_new(INVITATION_ROOM);
	escrow_status status;
	bool written;

	memset(buf, 0x5e, INVITATION_ROOM);
	engine_error.text[0] = 0; /* invite fills none */
	status = all->en->o->invite(all->en->e, args, buf, &len);
	written = len != INVITATION_ROOM || buf[0] != 0x5e || buf[1] != 0x5e || buf[2] != 0x5e;
	judge("invite", status, written);
	return status;
}

static void need_pair(struct shapes *all)
{
	if (all->paired)
		return;
	all->paired = true;
	all->pair.a = all->en;
	all->pair.b = all->other = engine_open(all->subject, NULL, "shape-b");
	pair_connect(&all->pair);
	memory_register(all->en, &all->mem, 8192);
	pair_invite(all->other, "shape", 0, all->invitation, &all->invitation_len);
}

static void fill_peer(struct shapes *all, void *out)
{
	struct escrow_peer_args args = {
		.size = sizeof(args),
		.user = TOKEN(3),
		.peer_name = "host",
	};

	need_pair(all);
	args.invitation = all->invitation;
	args.invitation_len = all->invitation_len;
	memcpy(out, &args, sizeof(args));
}

/* A connection that came of it is ended, and the next invitation written. */
static escrow_status call_peer(struct shapes *all, const void *args)
{
	struct engine *en = all->en;
	uint64_t peer = UNTOUCHED;
	escrow_status status = en->o->connect(en->e, args, &peer, fresh_error());

	judge("connect", status, peer != UNTOUCHED);
	if (status < 0)
		return status;
	engine_wait(en, ESCROW_EV_PEER_UP, peer, NULL);
	expect_status(en->o->disconnect(en->e, peer, 0), ESCROW_IN_PROGRESS);
	engine_wait(en, ESCROW_EV_PEER_DOWN, peer, NULL);
	pair_invite(all->other, "shape", 0, all->invitation, &all->invitation_len);
	return status;
}

static void fill_grant(struct shapes *all, void *out)
{
	struct escrow_grant_args args = {
		.size = sizeof(args),
		.rights = ESCROW_MAY_READ | ESCROW_MAY_WRITE,
		.user = TOKEN(4),
	};

	need_pair(all);
	args.peer = all->pair.a_peer;
	args.region = all->mem.region;
	args.length = all->mem.buf.bytes;
	memcpy(out, &args, sizeof(args));
}

static escrow_status call_grant(struct shapes *all, const void *args)
{
	struct engine *en = all->en;
	uint64_t grant = UNTOUCHED;
	escrow_status status = en->o->grant(en->e, args, &grant, fresh_error());

	judge("grant", status, grant != UNTOUCHED);
	if (status < 0)
		return status;
	if (status == ESCROW_IN_PROGRESS)
		engine_wait(en, ESCROW_EV_GRANT_READY, grant, NULL);
	expect_status(en->o->revoke(en->e, grant, 0), ESCROW_IN_PROGRESS);
	engine_wait(en, ESCROW_EV_GRANT_REVOKED, grant, NULL);
	return status;
}

static const struct shape shapes[] = {
	{"escrow_open_args", ABI_R1(escrow_open_args), fill_open, call_open},
	{"escrow_region_args", ABI_R1(escrow_region_args), fill_region, call_region},
	{"escrow_invite_args", ABI_R1(escrow_invite_args), fill_invite, call_invite},
	{"escrow_peer_args", ABI_R1(escrow_peer_args), fill_peer, call_peer},
	{"escrow_grant_args", ABI_R1(escrow_grant_args), fill_grant, call_grant},
};

const struct shape *shape_find(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		if (!strcmp(shapes[i].name, name))
			return &shapes[i];
	verdict_broken("no shape %s", name);
}

void shapes_open(struct shapes *all, const struct subject *s)
{
	memset(all, 0, sizeof(*all));
	all->subject = s;
	host_new(&all->host);
	atomic_store(&all->host.may_misuse, true);
	buffer_new(&all->raw, 8192);
	all->en = engine_open(s, NULL, "shape-a");
}

void shapes_close(struct shapes *all)
{
	engine_close(all->en);
	if (all->other)
		engine_close(all->other);
}
