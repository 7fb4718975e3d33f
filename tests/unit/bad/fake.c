/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A backend for the tests of libescrow: one thread at a time, no bytes are moved, and nothing ends
 * before the test says so (fake.h).  With BAD it breaks exactly one thing:
 */
#define BAD_EXIT 1       /* exit(0) in a constructor */
#define BAD_CRASH 2      /* a crash in a constructor */
#define BAD_HANG 3       /* open never returns */
#define BAD_SLOT 4       /* a mandatory slot is NULL */
#define BAD_REVISION 5   /* a revision outside what was asked for */
#define BAD_RANGE 6      /* the entry refuses */
#define BAD_DESCRIPTOR 7 /* an id with a capital */
#define BAD_CAP 8        /* a capability without its slot */
#define BAD_EXPORT 9     /* exports ibv_fake_open too */
#define BAD_UNMAP 10     /* not bad: it may be unmapped */
#define BAD_OPEN 11      /* open fails with a text that is not terminated */
#define BAD_END 12       /* query fails, and close never comes to its end */
#define BAD_ASKED 13     /* get_extension does not survive engine NULL */
#define BAD_LEAVE 14     /* open ends the process, as if all were well */
#ifndef BAD
#define BAD 0
#endif

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/bad/fake-engine.h"

#if BAD == BAD_EXIT || BAD == BAD_CRASH
__attribute__((constructor)) static void early(void)
{
	if (BAD == BAD_CRASH)
		raise(SIGSEGV);
	exit(0);
}
#elif BAD == BAD_EXPORT
__attribute__((visibility("default"))) int ibv_fake_open(void);
__attribute__((visibility("default"))) int ibv_fake_open(void)
{
	return 1;
}
#endif

static struct escrow_event *tell(struct escrow_engine *e, uint16_t kind, uint64_t object,
				 uint64_t user)
{
	struct escrow_event *event = &e->events[e->tail++ % (4 * MAX)];

	*event = (struct escrow_event){
		.kind = kind, .object = object, .user = user, .seq = ++e->seq};
	return event;
}

static void fake_release(struct escrow_engine *e)
{
	close(e->pipe[0]);
	close(e->pipe[1]);
	e->host->free(e->host->ctx, e);
}

static struct escrow_engine *volatile newest; /* what is never closed is no leak */
static escrow_status fake_open(const struct escrow_open_args *args, struct escrow_engine **engine,
			       struct escrow_error *error)
{
	struct escrow_engine *e;

	while (BAD == BAD_HANG)
		pause();
	if (BAD == BAD_LEAVE)
		_exit(0);
#if BAD == BAD_OPEN
	memset(error->text, 'x', sizeof(error->text));
	return ESCROW_E_DEVICE;
#endif
	for (uint32_t i = 0; i < args->nkv; i++) {
		if (strcmp(args->kv[i].key, "colour") == 0)
			continue;
		snprintf(error->text, sizeof(error->text), "unknown key %s; allowed is colour",
			 args->kv[i].key);
		return ESCROW_E_INVALID;
	}
	e = args->host->alloc(args->host->ctx, sizeof(*e), 64);
	if (!e)
		return ESCROW_E_NO_MEMORY;
	*e = (struct escrow_engine){.host = args->host, .state = ESCROW_STATE_OPEN};
	if (pipe(e->pipe) != 0)
		return ESCROW_E_NO_MEMORY;
	*engine = newest = e;
	return ESCROW_OK;
}

static escrow_status fake_query(struct escrow_engine *e, struct escrow_limits *limits)
{
#if BAD == BAD_END
	return ESCROW_E_INTERNAL;
#endif
	*limits = (struct escrow_limits){.size = limits->size,
					 .state = e->state,
					 .caps = ESCROW_CAP_READ | ESCROW_CAP_WRITE |
						 ESCROW_CAP_EVENT_FD,
					 .memory_kinds = 2,
					 .max_regions = MAX,
					 .max_region_bytes = 1u << 30,
					 .max_peers = 4,
					 .max_grants = 4,
					 .max_remotes = 4,
					 .max_ops = 8,
					 .max_op_bytes = 1u << 30,
					 .max_sge = 4};
	return ESCROW_OK;
}

static escrow_status fake_register(struct escrow_engine *e, const struct escrow_region_args *args,
				   uint64_t *region, struct escrow_error *error)
{
	if (e->state != ESCROW_STATE_OPEN)
		return ESCROW_E_STATE;
	for (uint32_t i = 0; i < MAX; i++) {
		if (e->region_state[i] != FREE)
			continue;
		e->region_state[i] = LIVE;
		e->region_user[i] = args->user;
		*region = i + 1;
		return ESCROW_OK;
	}
	return ESCROW_E_LIMIT;
}

static void region_end(struct escrow_engine *e, uint32_t i)
{
	if (e->stick) {
		e->region_state[i] = STUCK;
		tell(e, ESCROW_EV_QUARANTINED, i + 1, e->region_user[i])->status =
			ESCROW_E_UNQUIESCED;
		return;
	}
	e->region_state[i] = FREE;
	tell(e, ESCROW_EV_REGION_RELEASED, i + 1, e->region_user[i]);
}

static escrow_status fake_deregister(struct escrow_engine *e, uint64_t region, uint32_t flags)
{
	if (region < 1 || region > MAX || e->region_state[region - 1] != LIVE)
		return ESCROW_E_INVALID;
	region_end(e, (uint32_t)region - 1);
	return ESCROW_IN_PROGRESS;
}

/* One end of a peer is all there is; whoever is invited is not to be found. */
static escrow_status fake_invite(struct escrow_engine *e, const struct escrow_invite_args *args,
				 void *buf, uint64_t *len)
{
	return ESCROW_E_UNSUPPORTED;
}

static escrow_status fake_connect(struct escrow_engine *e, const struct escrow_peer_args *args,
				  uint64_t *peer, struct escrow_error *error)
{
	*peer = 7;
	tell(e, ESCROW_EV_PEER_UP, 7, args->user);
	return ESCROW_IN_PROGRESS;
}

static escrow_status fake_disconnect(struct escrow_engine *e, uint64_t peer, uint32_t flags)
{
	tell(e, ESCROW_EV_PEER_DOWN, peer, 0);
	return ESCROW_IN_PROGRESS;
}

static escrow_status fake_peer_info(struct escrow_engine *e, uint64_t peer,
				    struct escrow_peer_info *info)
{
	info->flags = peer == FAKE_GUEST ? ESCROW_PEER_PASSIVE : 0;
	info->epoch = 1;
	strcpy(info->peer_name, "fake");
	return ESCROW_OK;
}

static escrow_status fake_grant(struct escrow_engine *e, const struct escrow_grant_args *args,
				uint64_t *grant, struct escrow_error *error)
{
	*grant = 9;
	e->grant_user = args->user;
	tell(e, ESCROW_EV_GRANT_READY, 9, args->user);
	return ESCROW_IN_PROGRESS;
}

static escrow_status fake_export(struct escrow_engine *e, uint64_t grant, void *buf, uint64_t *len)
{
	if (*len < 4) {
		*len = 4;
		return ESCROW_E_TOO_SMALL;
	}
	*len = 4;
	memcpy(buf, "fake", 4);
	return ESCROW_OK;
}

static escrow_status fake_revoke(struct escrow_engine *e, uint64_t grant, uint32_t flags)
{
	tell(e, ESCROW_EV_GRANT_REVOKED, grant, e->grant_user);
	return ESCROW_IN_PROGRESS;
}

static escrow_status fake_import(struct escrow_engine *e, uint64_t peer, const void *buf,
				 uint64_t len, uint64_t user, uint64_t *remote,
				 struct escrow_error *error)
{
	*remote = 11;
	return ESCROW_OK;
}

static escrow_status fake_forget(struct escrow_engine *e, uint64_t remote)
{
	return ESCROW_OK;
}

static int32_t fake_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			     uint32_t stride, uint32_t flags, uint64_t *ops)
{
	void (*call)(void) = e->at_transfer;
	uint32_t i;

	if (e->state != ESCROW_STATE_OPEN)
		return ESCROW_E_STATE;
	if (e->full)
		return ESCROW_E_AGAIN;
	for (i = 0; i < n; i++) {
		struct fake_op *slot = &e->ops[e->nops % MAX];

		if (slot->state != FREE || op->remote != 11)
			break;
		*slot = (struct fake_op){.user = op->user, .state = LIVE};
		ops[i] = 1000 + e->nops++;
		op = (const void *)((const char *)op + stride);
	}
	e->at_transfer = NULL;
	if (call)
		call();
	return i ? (int32_t)i + e->more : n ? ESCROW_E_INVALID : 0;
}

static escrow_status fake_cancel(struct escrow_engine *e, uint64_t op, uint32_t flags)
{
	return op >= 1000 && op < 1000 + e->nops ? ESCROW_IN_PROGRESS : ESCROW_E_INVALID;
}

static int32_t fake_poll(struct escrow_engine *e, struct escrow_event *events, uint32_t max,
			 uint32_t stride, uint32_t flags)
{
	uint32_t n = 0;

	for (; n < max && !e->mute && e->head != e->tail; n++)
		memcpy((char *)events + (size_t)n * stride, &e->events[e->head++ % (4 * MAX)],
		       sizeof(*events));
	return n ? (int32_t)n + e->more : 0;
}

static int32_t fake_event_fd(struct escrow_engine *e)
{
	return e->pipe[0];
}

static escrow_status fake_arm(struct escrow_engine *e, uint32_t flags)
{
	return !e->mute && e->head != e->tail ? ESCROW_EVENTS_PENDING : ESCROW_OK;
}

static escrow_status fake_quiesce(struct escrow_engine *e, uint32_t flags)
{
	e->state = ESCROW_STATE_QUIESCED;
	return ESCROW_OK;
}

static escrow_status fake_resume(struct escrow_engine *e, uint32_t flags)
{
	e->state = ESCROW_STATE_OPEN;
	return ESCROW_OK;
}

static uint64_t outstanding(const struct escrow_engine *e)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < MAX; i++)
		n += e->ops[i].state != FREE;
	return n;
}

static escrow_status fake_drain(struct escrow_engine *e, uint64_t peer, uint64_t deadline_ns,
				uint32_t flags)
{
	struct escrow_event *event = tell(e, ESCROW_EV_DRAINED, peer, 0);

	event->bytes = outstanding(e);
	event->status = event->bytes ? ESCROW_E_TIMEOUT : ESCROW_OK;
	return ESCROW_IN_PROGRESS;
}

static uint32_t stuck(const struct escrow_engine *e)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MAX; i++)
		n += e->region_state[i] == STUCK;
	return n;
}

static void closed_or_not(struct escrow_engine *e)
{
	if (stuck(e) || outstanding(e)) {
		e->state = ESCROW_STATE_QUARANTINED;
		tell(e, ESCROW_EV_QUARANTINED, 0, 0)->status = ESCROW_E_UNQUIESCED;
		return;
	}
	e->state = ESCROW_STATE_CLOSED;
	tell(e, ESCROW_EV_CLOSED, 0, 0);
}

static escrow_status fake_close(struct escrow_engine *e, uint64_t deadline_ns, uint32_t mode)
{
#if BAD == BAD_END
	return ESCROW_IN_PROGRESS;
#endif
	if (e->state == ESCROW_STATE_CLOSED)
		return ESCROW_OK;
	for (uint32_t i = 0; i < MAX; i++) {
		if (e->region_state[i] == LIVE)
			region_end(e, i);
	}
	closed_or_not(e);
	return ESCROW_IN_PROGRESS;
}

static int control_finish(struct escrow_engine *e, uint8_t custody)
{
	for (uint64_t id = e->nops > MAX ? e->nops - MAX : 0; id < e->nops; id++) {
		struct fake_op *op = &e->ops[id % MAX];

		if (op->state != LIVE)
			continue;
		op->state = custody == ESCROW_CUSTODY_HELD ? STUCK : FREE;
		tell(e, ESCROW_EV_OP_DONE, 1000 + id, op->user)->custody = custody;
		return 1;
	}
	return 0;
}

static int control_give_back(struct escrow_engine *e)
{
	for (uint64_t id = e->nops > MAX ? e->nops - MAX : 0; id < e->nops; id++) {
		struct fake_op *op = &e->ops[id % MAX];

		if (op->state != STUCK)
			continue;
		op->state = FREE;
		tell(e, ESCROW_EV_OP_RETURNED, 1000 + id, op->user);
		return 1;
	}
	return 0;
}

static void control_stick(struct escrow_engine *e, int yes)
{
	e->stick = yes;
}

static void control_unstick(struct escrow_engine *e)
{
	e->stick = 0;
	for (uint32_t i = 0; i < MAX; i++) {
		if (e->region_state[i] == STUCK)
			region_end(e, i);
	}
	if (e->state == ESCROW_STATE_QUARANTINED)
		closed_or_not(e);
}

static uint32_t control_regions(struct escrow_engine *e)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MAX; i++)
		n += e->region_state[i] == LIVE;
	return n;
}

static void control_say(struct escrow_engine *e, const struct escrow_event *event)
{
	struct escrow_event *told = tell(e, event->kind, event->object, event->user);
	uint64_t seq = told->seq;

	*told = *event;
	told->seq = seq;
	(void)!write(e->pipe[1], "", 1);
}

static void control_exaggerate(struct escrow_engine *e, int32_t more)
{
	e->more = more;
}

static void control_mute(struct escrow_engine *e, int yes)
{
	e->mute = yes;
}

static void control_fill(struct escrow_engine *e, int yes)
{
	e->full = yes;
}

static void control_at_transfer(struct escrow_engine *e, void (*call)(void))
{
	e->at_transfer = call;
}

static const void *fake_get_extension(struct escrow_engine *e, const char *id)
{
	static const struct fake_control control = {
		.size = sizeof(control),
		.finish = control_finish,
		.give_back = control_give_back,
		.stick = control_stick,
		.unstick = control_unstick,
		.regions = control_regions,
		.say = control_say,
		.exaggerate = control_exaggerate,
		.mute = control_mute,
		.fill = control_fill,
		.at_transfer = control_at_transfer,
	};

	raise(BAD == BAD_ASKED && !e ? SIGKILL : 0);
	return strcmp(id, FAKE_ID) == 0 ? &control : NULL;
}

/* Short on purpose: the table ends before get_extension in one flavour, and lacks the ledger. */
static const struct escrow_ops ops = {
	.size = sizeof(ops),
	.release = fake_release,
	.open = fake_open,
	.query = fake_query,
	.register_memory = fake_register,
	.deregister_memory = fake_deregister,
	.invite = fake_invite,
	.connect = fake_connect,
	.disconnect = fake_disconnect,
	.peer_info = fake_peer_info,
	.grant = fake_grant,
	.export_grant = fake_export,
	.revoke = fake_revoke,
	.import_grant = fake_import,
	.forget_grant = fake_forget,
	.transfer = BAD == BAD_SLOT ? NULL : fake_transfer,
	.cancel = fake_cancel,
	.poll = fake_poll,
	.event_fd = fake_event_fd,
	.arm = fake_arm,
	.quiesce = fake_quiesce,
	.resume = fake_resume,
	.drain = fake_drain,
	.close = fake_close,
	.get_extension = fake_get_extension,
};

static const struct escrow_option options[] = {{"colour", "grey", "any word"}};

static const struct escrow_backend backend = {
	.size = sizeof(backend),
	.revision = BAD == BAD_REVISION ? 99 : 1,
	.id = BAD == BAD_DESCRIPTOR ? "Fake" : "fake",
	.version = "0",
	.residency = BAD == BAD_UNMAP ? ESCROW_RESIDENCY_MAY_UNMAP : ESCROW_RESIDENCY_STAYS,
	.caps = ESCROW_CAP_READ | ESCROW_CAP_WRITE | ESCROW_CAP_EVENT_FD |
		(BAD == BAD_CAP ? ESCROW_CAP_LEDGER : 0),
	.memory_kinds = 2,
	.options = options,
	.noptions = 1,
	.options_stride = sizeof(options[0]),
	.ops = &ops,
};

__attribute__((visibility("default"))) const struct escrow_backend *escrow_backend_entry_1(
	const struct escrow_hello *hello, struct escrow_error *error);

const struct escrow_backend *escrow_backend_entry_1(const struct escrow_hello *hello,
						    struct escrow_error *error)
{
	if (BAD == BAD_RANGE) {
		error->status = ESCROW_E_REVISION;
		snprintf(error->text, sizeof(error->text), "this backend speaks 7..9");
		return NULL;
	}
	return &backend;
}
