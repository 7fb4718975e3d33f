/* SPDX-License-Identifier: BSD-2-Clause */
#include "engine.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define MAX_REGIONS 64u
#define MAX_REGION_BYTES (UINT64_C(1) << 40)
#define MAX_DRAINS 8u
#define MAX_EVENTS (MAX_REGIONS + MAX_DRAINS + 1u) /* each region, each drain, and CLOSED */
#define MAX_NAME 63u

enum region_state { REGION_FREE, REGION_LIVE, REGION_RELEASING };

struct region {
	uint64_t handle; /* generation in the upper half, index + 1 in the lower */
	uint64_t user;
	enum region_state state;
};

struct escrow_engine {
	const struct escrow_host *host;
	pid_t pid; /* in a child of fork every slot answers E_STATE */
	uint8_t incarnation[16];
	/* Of all below; held for a few instructions, so no NB slot waits on it. */
	pthread_mutex_t lock;
	uint32_t state;  /* ESCROW_STATE_* */
	uint32_t drains; /* DRAINED events that wait to be polled */
	uint64_t generation, seq;
	struct region regions[MAX_REGIONS];
	struct escrow_event events[MAX_EVENTS]; /* a ring: each has its place from the start */
	uint32_t first, count;
};

/* ---- Arguments ------------------------------------------------------------------------------ */

escrow_status fail(struct escrow_error *error, escrow_status status, const char *what,
		   const char *value, const char *allowed)
{
	if (error && error->size >= SIZE_1(escrow_error, text)) {
		error->status = status;
		error->sys_errno = 0;
		error->vendor = 0;
		snprintf(error->text, sizeof(error->text), "%s %s: %s", what, value, allowed);
	}
	return status;
}

escrow_status take_args(void *copy, size_t known, const void *args)
{
	const uint8_t *bytes = args;
	uint32_t size;

	if (!args)
		return ESCROW_E_INVALID;
	memcpy(&size, args, sizeof(size));
	if (size < known)
		return ESCROW_E_INVALID;
	for (size_t i = known; i < size; i++)
		if (bytes[i])
			return ESCROW_E_UNSUPPORTED;
	memcpy(copy, args, known);
	return ESCROW_OK;
}

int name_is_good(const char *name)
{
	return name && name[0] && strnlen(name, MAX_NAME + 1) <= MAX_NAME;
}

escrow_status enter(struct escrow_engine *engine, uint32_t legal, uint32_t flags)
{
	if (!engine)
		return ESCROW_E_INVALID;
	if (engine->pid != getpid())
		return ESCROW_E_STATE;
	pthread_mutex_lock(&engine->lock);
	if (!(legal & (1u << engine->state)) || flags) {
		escrow_status status = flags ? ESCROW_E_UNSUPPORTED : ESCROW_E_STATE;

		pthread_mutex_unlock(&engine->lock);
		return status;
	}
	return ESCROW_OK;
}

escrow_status leave(struct escrow_engine *engine, escrow_status status)
{
	pthread_mutex_unlock(&engine->lock);
	return status;
}

/* ---- Events --------------------------------------------------------------------------------- */

const uint8_t *engine_incarnation(const struct escrow_engine *engine)
{
	return engine->incarnation;
}

static void event_push(struct escrow_engine *engine, uint16_t kind, uint64_t object, uint64_t user)
{
	struct escrow_event *event =
		&engine->events[(engine->first + engine->count++) % MAX_EVENTS];

	memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->object = object;
	event->user = user;
	event->seq = ++engine->seq;
}

static struct region *region_find(struct escrow_engine *engine, uint64_t handle)
{
	uint64_t index = (handle & UINT32_MAX) - 1;

	if (index >= MAX_REGIONS || engine->regions[index].handle != handle)
		return NULL;
	return &engine->regions[index];
}

/* A handle is stale, and an engine closed, when the host has been told. */
static void event_delivered(struct escrow_engine *engine, const struct escrow_event *event)
{
	struct region *region;

	switch (event->kind) {
	case ESCROW_EV_REGION_RELEASED:
		region = region_find(engine, event->object);
		region->state = REGION_FREE;
		region->handle = 0;
		break;
	case ESCROW_EV_DRAINED:
		engine->drains--;
		break;
	case ESCROW_EV_CLOSED:
		engine->state = ESCROW_STATE_CLOSED;
		break;
	}
}

int32_t slot_poll(struct escrow_engine *engine, struct escrow_event *events, uint32_t max,
		  uint32_t stride, uint32_t flags)
{
	uint32_t n;
	escrow_status status;

	if (stride < sizeof(*events) || stride % 8 || (max && !events))
		return ESCROW_E_INVALID;
	status = enter(engine, UINT32_MAX, flags);
	if (status)
		return status;
	for (n = 0; n < max && engine->count; n++) {
		struct escrow_event *event = &engine->events[engine->first];

		memcpy((uint8_t *)events + (size_t)n * stride, event, sizeof(*event));
		engine->first = (engine->first + 1) % MAX_EVENTS;
		engine->count--;
		event_delivered(engine, event);
	}
	return leave(engine, (int32_t)n);
}

/* ---- Open, query, release ------------------------------------------------------------------- */

static escrow_status check_open(const struct escrow_open_args *args, struct escrow_error *error)
{
	const struct escrow_host *host = args->host;
	char number[16];

	if (args->flags)
		return fail(error, ESCROW_E_UNSUPPORTED, "flags", "of open", "none are known");
	if (args->reserved0)
		return fail(error, ESCROW_E_INVALID, "reserved0", "of open", "must be 0");
	if (args->revision != REVISION) {
		snprintf(number, sizeof(number), "%u", args->revision);
		return fail(error, ESCROW_E_REVISION, "revision", number, "this backend knows 1");
	}
	if (!host || host->size < SIZE_1(escrow_host, get_extension) || !host->log ||
	    !host->log_enabled || !host->alloc || !host->free || !host->now_ns)
		return fail(error, ESCROW_E_INVALID, "host services", "of open", "all are wanted");
	if (!name_is_good(args->engine_name))
		return fail(error, ESCROW_E_INVALID, "engine_name", "of open", "1..63 bytes");
	if (args->nkv && (!args->kv || args->kv_stride < sizeof(*args->kv) || args->kv_stride % 8))
		return fail(error, ESCROW_E_INVALID, "kv_stride", "of open", "at least 16, by 8");
	if (args->nkv)
		return fail(error, ESCROW_E_INVALID, "unknown key",
			    args->kv->key ? args->kv->key : "NULL", "this backend takes no keys");
	return ESCROW_OK;
}

escrow_status slot_open(const struct escrow_open_args *given, struct escrow_engine **engine_out,
			struct escrow_error *error)
{
	struct escrow_open_args args;
	struct escrow_engine *engine;
	escrow_status status;

	status = take_args(&args, SIZE_1(escrow_open_args, engine_name), given);
	if (status || !engine_out)
		return fail(error, status ? status : ESCROW_E_INVALID, "arguments", "of open",
			    "escrow_open_args of revision 1, and a place for the engine");
	status = check_open(&args, error);
	if (status)
		return status;
	engine = args.host->alloc(args.host->ctx, sizeof(*engine), _Alignof(struct escrow_engine));
	if (!engine)
		return fail(error, ESCROW_E_NO_MEMORY, "memory", "for the engine", "none was lent");
	memset(engine, 0, sizeof(*engine));
	if (getrandom(engine->incarnation, sizeof(engine->incarnation), 0) !=
	    (ssize_t)sizeof(engine->incarnation)) {
		args.host->free(args.host->ctx, engine);
		return fail(error, ESCROW_E_INTERNAL, "getrandom", "failed", "16 bytes are wanted");
	}
	pthread_mutex_init(&engine->lock, NULL);
	engine->host = args.host;
	engine->pid = getpid();
	engine->state = ESCROW_STATE_OPEN;
	*engine_out = engine;
	return ESCROW_OK;
}

escrow_status slot_query(struct escrow_engine *engine, struct escrow_limits *limits)
{
	struct escrow_limits now = {
		.memory_kinds = UINT64_C(1) << ESCROW_MEMORY_HOST,
		.max_regions = MAX_REGIONS,
		.max_region_bytes = MAX_REGION_BYTES,
		.max_invitation_bytes = sizeof(struct invitation),
		/* Of what is to be filled in: a limit is at least 1. */
		.max_peers = 1,
		.max_grants = 1,
		.max_remotes = 1,
		.max_ops = 1,
		.max_op_bytes = 1,
		.max_sge = 1,
		.max_grant_bytes = 1,
	};
	escrow_status status;

	if (!limits || limits->size < SIZE_1(escrow_limits, incarnation))
		return ESCROW_E_INVALID;
	status = enter(engine, UINT32_MAX, 0);
	if (status)
		return status;
	now.size = limits->size;
	now.state = engine->state;
	memcpy(now.incarnation, engine->incarnation, sizeof(now.incarnation));
	memcpy(limits, &now, SIZE_1(escrow_limits, incarnation));
	return leave(engine, ESCROW_OK);
}

void slot_release(struct escrow_engine *engine)
{
	static const char text[] = "release before CLOSED: nothing was done";
	const struct escrow_host *host;

	if (!engine || engine->pid != getpid())
		return;
	host = engine->host;
	if (engine->state != ESCROW_STATE_CLOSED) {
		host->log(host->ctx, ESCROW_LOG_HOST_MISBEHAVES, "skeleton", text,
			  sizeof(text) - 1);
		return;
	}
	pthread_mutex_destroy(&engine->lock);
	host->free(host->ctx, engine);
}

/* ---- Regions: a real backend registers with its device here --------------------------------- */

static escrow_status check_region(const struct escrow_region_args *args, struct escrow_error *error)
{
	if (args->flags)
		return fail(error, ESCROW_E_UNSUPPORTED, "flags", "of the region",
			    "none are known");
	if (args->memory_kind == ESCROW_MEMORY_DMABUF)
		return fail(error, ESCROW_E_UNSUPPORTED, "memory_kind", "DMABUF", "only HOST");
	if (args->memory_kind != ESCROW_MEMORY_HOST || args->device || args->dmabuf_fd != -1)
		return fail(error, ESCROW_E_INVALID, "memory_kind, device", "or dmabuf_fd",
			    "HOST, 0 and -1");
	if (!args->addr || !args->length || (uintptr_t)args->addr + args->length < args->length)
		return fail(error, ESCROW_E_INVALID, "range", "of the region",
			    "not NULL, not empty, and it must not wrap");
	if (args->length > MAX_REGION_BYTES)
		return fail(error, ESCROW_E_LIMIT, "length", "of the region", "at most 2^40 bytes");
	return ESCROW_OK;
}

escrow_status slot_register(struct escrow_engine *engine, const struct escrow_region_args *given,
			    uint64_t *handle_out, struct escrow_error *error)
{
	struct escrow_region_args args;
	escrow_status status;
	uint64_t i;

	status = take_args(&args, SIZE_1(escrow_region_args, dmabuf_offset), given);
	if (status || !handle_out)
		return fail(error, status ? status : ESCROW_E_INVALID, "arguments", "of the region",
			    "escrow_region_args of revision 1, and a place for the handle");
	status = enter(engine, IN(OPEN), 0);
	if (status)
		return fail(error, status, "register_memory", "now", "legal in OPEN only");
	status = check_region(&args, error);
	if (status)
		return leave(engine, status);
	for (i = 0; i < MAX_REGIONS && engine->regions[i].state != REGION_FREE; i++)
		;
	if (i == MAX_REGIONS)
		return leave(engine,
			     fail(error, ESCROW_E_LIMIT, "regions", "are full", "at most 64"));
	engine->regions[i] = (struct region){
		.handle = ++engine->generation << 32 | (i + 1),
		.user = args.user,
		.state = REGION_LIVE,
	};
	*handle_out = engine->regions[i].handle;
	return leave(engine, ESCROW_OK);
}

static void region_end(struct escrow_engine *engine, struct region *region)
{
	region->state = REGION_RELEASING;
	event_push(engine, ESCROW_EV_REGION_RELEASED, region->handle, region->user);
}

escrow_status slot_deregister(struct escrow_engine *engine, uint64_t handle, uint32_t flags)
{
	struct region *region;
	escrow_status status = enter(engine, IN_LIVE, flags);

	if (status)
		return status;
	region = region_find(engine, handle);
	if (!region || region->state != REGION_LIVE)
		return leave(engine, ESCROW_E_INVALID);
	region_end(engine, region);
	return leave(engine, ESCROW_IN_PROGRESS);
}

/* ---- Quiesce, drain, close ------------------------------------------------------------------ */

escrow_status slot_quiesce(struct escrow_engine *engine, uint32_t flags)
{
	escrow_status status = enter(engine, IN(OPEN) | IN(QUIESCED), flags);

	if (status)
		return status;
	engine->state = ESCROW_STATE_QUIESCED;
	return leave(engine, ESCROW_OK);
}

escrow_status slot_resume(struct escrow_engine *engine, uint32_t flags)
{
	escrow_status status = enter(engine, IN_LIVE, flags);

	if (status)
		return status;
	engine->state = ESCROW_STATE_OPEN;
	return leave(engine, ESCROW_OK);
}

/* There are no ops, so whatever is to be drained is drained. */
escrow_status slot_drain(struct escrow_engine *engine, uint64_t peer, uint64_t deadline_ns,
			 uint32_t flags)
{
	escrow_status status = enter(engine, IN(OPEN) | IN(QUIESCED) | IN(DRAINED), flags);

	(void)deadline_ns;
	if (status)
		return status;
	if (peer)
		return leave(engine, ESCROW_E_INVALID);
	if (engine->drains == MAX_DRAINS)
		return leave(engine, ESCROW_E_AGAIN);
	engine->drains++;
	engine->state = ESCROW_STATE_DRAINED;
	event_push(engine, ESCROW_EV_DRAINED, 0, 0);
	return leave(engine, ESCROW_IN_PROGRESS);
}

escrow_status slot_close(struct escrow_engine *engine, uint64_t deadline_ns, uint32_t mode)
{
	escrow_status status = enter(engine, UINT32_MAX, 0);

	(void)deadline_ns;
	if (status)
		return status;
	if (mode > ESCROW_CLOSE_ABORT)
		return leave(engine, ESCROW_E_INVALID);
	if (engine->state == ESCROW_STATE_CLOSED)
		return leave(engine, ESCROW_OK);
	if (engine->state == ESCROW_STATE_CLOSING)
		return leave(engine, ESCROW_IN_PROGRESS);
	engine->state = ESCROW_STATE_CLOSING;
	for (uint32_t i = 0; i < MAX_REGIONS; i++)
		if (engine->regions[i].state == REGION_LIVE)
			region_end(engine, &engine->regions[i]);
	event_push(engine, ESCROW_EV_CLOSED, 0, 0);
	return leave(engine, ESCROW_IN_PROGRESS);
}
