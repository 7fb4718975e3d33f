/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A backend to start from: it opens, registers memory, drains and closes as the contract wants
 * (engine.c, the part that is the same in every backend), and it reaches no peer yet: that is to be
 * filled in here. It includes one header of Escrow, links nothing of it, and is built outside its
 * tree: see configure.ac and Makefile.am beside it.
 */
#include "engine.h"

#include <string.h>

/*
 * ---- To be filled in -----------------------------------------------------------------------
 * What a backend does not do it does not advertise (caps) and answers with E_UNSUPPORTED, without
 * effect, in the states in which the slot is legal; no peer, grant or op of ours exists, so no handle
 * of one is valid.
 */
static escrow_status answer(struct escrow_engine *engine, uint32_t legal, uint32_t flags,
			    escrow_status status)
{
	escrow_status entered = enter(engine, legal, flags);

	return entered ? entered : leave(engine, status);
}

static escrow_status slot_invite(struct escrow_engine *engine,
				 const struct escrow_invite_args *given, void *buf, uint64_t *len)
{
	struct invitation invitation = {.magic = "skeleton"};
	struct escrow_invite_args args;
	escrow_status status = take_args(&args, SIZE_1(escrow_invite_args, expires_ns), given);

	if (status || !len)
		return status ? status : ESCROW_E_INVALID;
	status = enter(engine, IN(OPEN), args.flags);
	if (status)
		return status;
	if (!name_is_good(args.peer_name) || (!buf && *len >= sizeof(invitation)))
		return leave(engine, ESCROW_E_INVALID);
	if (*len < sizeof(invitation)) {
		*len = sizeof(invitation);
		return leave(engine, ESCROW_E_TOO_SMALL);
	}
	memcpy(invitation.incarnation, engine_incarnation(engine), sizeof(invitation.incarnation));
	memcpy(buf, &invitation, sizeof(invitation));
	*len = sizeof(invitation);
	return leave(engine, ESCROW_OK);
}

/* No transport, so nobody can be reached by any invitation, not even by our own. */
static escrow_status slot_connect(struct escrow_engine *engine,
				  const struct escrow_peer_args *given, uint64_t *peer,
				  struct escrow_error *error)
{
	struct escrow_peer_args args;
	escrow_status status = take_args(&args, SIZE_1(escrow_peer_args, deadline_ns), given);

	if (!status)
		status = answer(engine, IN(OPEN), args.flags, ESCROW_E_INVALID);
	return fail(error, peer ? status : ESCROW_E_INVALID, "invitation", "of a peer",
		    "this backend reaches no one yet");
}

static escrow_status slot_disconnect(struct escrow_engine *engine, uint64_t peer, uint32_t flags)
{
	(void)peer;
	return answer(engine, IN_LIVE, flags, ESCROW_E_INVALID);
}

static escrow_status slot_peer_info(struct escrow_engine *engine, uint64_t peer,
				    struct escrow_peer_info *info)
{
	(void)peer, (void)info;
	return answer(engine, IN_LIVE | IN(CLOSING), 0, ESCROW_E_INVALID);
}

static escrow_status slot_grant(struct escrow_engine *engine, const struct escrow_grant_args *args,
				uint64_t *grant, struct escrow_error *error)
{
	int offer = args && grant && args->size >= SIZE_1(escrow_grant_args, length) && !args->peer;

	return fail(error,
		    answer(engine, IN(OPEN), 0, offer ? ESCROW_E_UNSUPPORTED : ESCROW_E_INVALID),
		    "peer", "of the grant", "there are none, and offers are not advertised");
}

static escrow_status slot_export(struct escrow_engine *engine, uint64_t grant, void *buf,
				 uint64_t *len)
{
	(void)grant, (void)buf, (void)len;
	return answer(engine, IN_LIVE, 0, ESCROW_E_INVALID);
}

static escrow_status slot_revoke(struct escrow_engine *engine, uint64_t grant, uint32_t flags)
{
	(void)grant;
	return answer(engine, IN_LIVE, flags, ESCROW_E_INVALID);
}

static escrow_status slot_import(struct escrow_engine *engine, uint64_t peer, const void *buf,
				 uint64_t len, uint64_t user, uint64_t *remote,
				 struct escrow_error *error)
{
	(void)peer, (void)buf, (void)len, (void)user, (void)remote;
	return fail(error, answer(engine, IN(OPEN), 0, ESCROW_E_INVALID), "peer", "of the import",
		    "there are none");
}

static escrow_status slot_forget(struct escrow_engine *engine, uint64_t remote)
{
	(void)remote;
	return answer(engine, IN_LIVE, 0, ESCROW_E_INVALID);
}

static int32_t slot_transfer(struct escrow_engine *engine, const struct escrow_op *op, uint32_t n,
			     uint32_t stride, uint32_t flags, uint64_t *ops)
{
	if (n && (!op || !ops || stride < sizeof(*op) || stride % 8))
		return ESCROW_E_INVALID;
	return answer(engine, IN(OPEN), flags, n ? ESCROW_E_UNSUPPORTED : 0);
}

static escrow_status slot_cancel(struct escrow_engine *engine, uint64_t op, uint32_t flags)
{
	(void)op;
	return answer(engine, IN_LIVE | IN(CLOSING), flags, ESCROW_E_INVALID);
}

/* event_fd, arm, charges, records and get_extension are optional: what is not advertised is NULL. */
static const struct escrow_ops skeleton_ops = {
	.size = sizeof(skeleton_ops),
	.release = slot_release,
	.open = slot_open,
	.query = slot_query,
	.register_memory = slot_register,
	.deregister_memory = slot_deregister,
	.invite = slot_invite,
	.connect = slot_connect,
	.disconnect = slot_disconnect,
	.peer_info = slot_peer_info,
	.grant = slot_grant,
	.export_grant = slot_export,
	.revoke = slot_revoke,
	.import_grant = slot_import,
	.forget_grant = slot_forget,
	.transfer = slot_transfer,
	.cancel = slot_cancel,
	.poll = slot_poll,
	.quiesce = slot_quiesce,
	.resume = slot_resume,
	.drain = slot_drain,
	.close = slot_close,
};

static const struct escrow_backend skeleton = {
	.size = sizeof(skeleton),
	.revision = REVISION,
	.id = "skeleton",
	.version = "0.1",
	.residency = ESCROW_RESIDENCY_STAYS,
	.memory_kinds = UINT64_C(1) << ESCROW_MEMORY_HOST,
	.options_stride = sizeof(struct escrow_option),
	.ops = &skeleton_ops,
};

__attribute__((visibility("default"))) const struct escrow_backend *escrow_backend_entry_1(
	const struct escrow_hello *hello, struct escrow_error *error);

const struct escrow_backend *escrow_backend_entry_1(const struct escrow_hello *hello,
						    struct escrow_error *error)
{
	struct escrow_hello own;
	escrow_status status = take_args(&own, SIZE_1(escrow_hello, host_version), hello);

	if (!status && (own.reserved0 || own.rev_min > own.rev_max))
		status = ESCROW_E_INVALID;
	if (status) {
		fail(error, status, "hello", "of the host", "reserved0 is 0, rev_min <= rev_max");
		return NULL;
	}
	if (own.rev_min > REVISION || own.rev_max < REVISION) {
		fail(error, ESCROW_E_REVISION, "revision", "of the host",
		     "this backend knows 1..1");
		return NULL;
	}
	return &skeleton;
}
