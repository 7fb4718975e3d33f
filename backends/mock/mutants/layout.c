/* SPDX-License-Identifier: BSD-2-Clause */
/* layout.c - mutants of sizes, strides, flags and arguments: clauses L, O5, E, AR, CF, K. */
#include "backends/mock/mutants/mutant.h"

#ifdef MUTANT_reserved_ignored
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	struct escrow_open_args copy = *args;

	copy.reserved0 = 0;
	return real_open(&copy, out, error);
}
#define OPEN bad_open
#endif

#ifdef MUTANT_ignores_unknown_tail
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	struct escrow_region_args copy;

	if (!args || args->size < sizeof(copy))
		return engine_register_memory(e, args, region, error);
	copy = *args;
	copy.size = sizeof(copy);
	return engine_register_memory(e, &copy, region, error);
}
#define SLOTS .register_memory = bad_register,
#endif

#ifdef MUTANT_reads_beyond_short_struct
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	struct escrow_region_args copy;

	if (!args)
		return engine_register_memory(e, args, region, error);
	copy = *args;
	if (copy.size < sizeof(copy))
		copy.size = sizeof(copy);
	return engine_register_memory(e, &copy, region, error);
}
#define SLOTS .register_memory = bad_register,
#endif

#ifdef MUTANT_writes_beyond_size
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	struct escrow_limits copy = {.size = sizeof(copy)};
	escrow_status st = engine_query(e, limits);
	uint32_t size;

	if (st < 0 || engine_query(e, &copy) < 0)
		return st;
	size = limits->size;
	memcpy(limits, &copy, sizeof(copy));
	memset((char *)limits + size, 0, 8);
	limits->size = size;
	return st;
}
#define SLOTS .query = bad_query,
#endif

#ifdef MUTANT_ignores_stride
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	return engine_transfer(e, op, n, stride > sizeof(*op) ? sizeof(*op) : stride, flags, ops);
}
#define SLOTS .transfer = bad_transfer,
#endif

#ifdef MUTANT_bad_stride_accepted
static int32_t bad_poll(struct escrow_engine *e, struct escrow_event *events, uint32_t max,
			uint32_t stride, uint32_t flags)
{
	int32_t n = engine_poll(e, events, max, stride, flags);

	return n == ESCROW_E_INVALID && stride % 8 ? 0 : n;
}
#define SLOTS .poll = bad_poll,
#endif

#ifdef MUTANT_accepts_unknown_flag
static escrow_status bad_arm(struct escrow_engine *e, uint32_t flags)
{
	return engine_arm(e, 0);
}
#define SLOTS .arm = bad_arm,
#endif

#ifdef MUTANT_overfills_short_buffer
static escrow_status bad_invite(struct escrow_engine *e, const struct escrow_invite_args *args,
				void *buf, uint64_t *len)
{
	uint64_t room = len ? *len : 0;
	escrow_status st = engine_invite(e, args, buf, len);

	if (st == ESCROW_E_TOO_SMALL && buf && room)
		memset(buf, 0xab, room);
	return st;
}
#define SLOTS .invite = bad_invite,
#endif

#ifdef MUTANT_length_not_told
static escrow_status bad_export(struct escrow_engine *e, uint64_t grant, void *buf, uint64_t *len)
{
	uint64_t room = len ? *len : 0;
	escrow_status st = engine_export_grant(e, grant, buf, len);

	if (st == ESCROW_E_TOO_SMALL)
		*len = room;
	return st;
}
#define SLOTS .export_grant = bad_export,
#endif

#ifdef MUTANT_status_outside_ranges
static escrow_status bad_deregister(struct escrow_engine *e, uint64_t region, uint32_t flags)
{
	escrow_status st = engine_deregister_memory(e, region, flags);

	return st == ESCROW_E_INVALID ? -4711 : st;
}
#define SLOTS .deregister_memory = bad_deregister,
#endif

#ifdef MUTANT_error_text_unterminated
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = real_open(args, out, error);

	if (st < 0 && error && error->size >= sizeof(*error))
		memset(error->text, 'x', sizeof(error->text));
	return st;
}
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	escrow_status st = engine_register_memory(e, args, region, error);

	if (st < 0 && error && error->size >= sizeof(*error))
		memset(error->text, 'x', sizeof(error->text));
	return st;
}
#define OPEN bad_open
#define SLOTS .register_memory = bad_register,
#endif

#ifdef MUTANT_failed_call_writes
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	escrow_status st = engine_register_memory(e, args, region, error);

	if (st < 0 && region)
		*region = 0;
	return st;
}
#define SLOTS .register_memory = bad_register,
#endif

#ifdef MUTANT_unknown_key_ignored
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = real_open(args, out, error);
	struct escrow_open_args none;

	if (st != ESCROW_E_INVALID || !args || !args->nkv || args->reserved0)
		return st;
	none = *args;
	none.nkv = 0;
	none.kv = NULL;
	return real_open(&none, out, error);
}
#define OPEN bad_open
#endif

#ifdef MUTANT_quota_ignored
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	struct escrow_kv kv[32];
	struct escrow_open_args copy = *args;

	copy.nkv = 0;
	for (uint32_t i = 0; args->kv && i < args->nkv && i < 32; i++) {
		memcpy(&kv[copy.nkv], (const char *)args->kv + (size_t)i * args->kv_stride,
		       sizeof(kv[0]));
		if (strncmp(kv[copy.nkv].key, "quota.", 6) != 0)
			copy.nkv++;
	}
	copy.kv = kv;
	copy.kv_stride = sizeof(kv[0]);
	return real_open(&copy, out, error);
}
#define OPEN bad_open
#endif

#ifdef MUTANT_peer_quota_ignored
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	struct escrow_kv kv[32];
	struct escrow_open_args copy = *args;

	copy.nkv = 0;
	for (uint32_t i = 0; args->kv && i < args->nkv && i < 32; i++) {
		memcpy(&kv[copy.nkv], (const char *)args->kv + (size_t)i * args->kv_stride,
		       sizeof(kv[0]));
		if (strncmp(kv[copy.nkv].key, "peer_quota.", 11) != 0)
			copy.nkv++;
	}
	copy.kv = kv;
	copy.kv_stride = sizeof(kv[0]);
	return real_open(&copy, out, error);
}
#define OPEN bad_open
#endif

#ifdef MUTANT_name_too_long
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	struct escrow_open_args copy;

	if (!args || !args->engine_name || strlen(args->engine_name) < 64)
		return real_open(args, out, error);
	copy = *args;
	copy.engine_name = "cut";
	return real_open(&copy, out, error);
}
#define OPEN bad_open
#endif

#ifdef MUTANT_wrap_accepted
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	struct escrow_region_args copy;

	if (!args || args->size < sizeof(copy) || !args->addr ||
	    (uintptr_t)args->addr + args->length >= (uintptr_t)args->addr)
		return engine_register_memory(e, args, region, error);
	copy = *args;
	copy.length = 1;
	return engine_register_memory(e, &copy, region, error);
}
#define SLOTS .register_memory = bad_register,
#endif

#ifdef MUTANT_empty_name_accepted
static escrow_status bad_invite(struct escrow_engine *e, const struct escrow_invite_args *args,
				void *buf, uint64_t *len)
{
	struct escrow_invite_args copy;

	if (!args || args->size < sizeof(copy) || !args->peer_name || *args->peer_name)
		return engine_invite(e, args, buf, len);
	copy = *args;
	copy.peer_name = "nobody";
	return engine_invite(e, &copy, buf, len);
}
#define SLOTS .invite = bad_invite,
#endif

#ifdef MUTANT_null_invitation_accepted
static escrow_status bad_connect(struct escrow_engine *e, const struct escrow_peer_args *args,
				 uint64_t *peer, struct escrow_error *error)
{
	if (args && args->size >= sizeof(*args) && !args->invitation)
		return ESCROW_IN_PROGRESS;
	return engine_connect(e, args, peer, error);
}
#define SLOTS .connect = bad_connect,
#endif

#ifdef MUTANT_grant_beyond_region
static escrow_status bad_grant(struct escrow_engine *e, const struct escrow_grant_args *args,
			       uint64_t *grant, struct escrow_error *error)
{
	struct escrow_grant_args copy;
	escrow_status st = engine_grant(e, args, grant, error);

	if (st != ESCROW_E_INVALID || !args || args->size < sizeof(copy))
		return st;
	copy = *args;
	copy.offset = 0;
	copy.length = 1;
	return engine_grant(e, &copy, grant, error);
}
#define SLOTS .grant = bad_grant,
#endif

#ifdef MUTANT_foreign_handle_accepted
static escrow_status bad_deregister(struct escrow_engine *e, uint64_t region, uint32_t flags)
{
	escrow_status st = engine_deregister_memory(e, region, flags);

	return st == ESCROW_E_INVALID ? ESCROW_IN_PROGRESS : st;
}
#define SLOTS .deregister_memory = bad_deregister,
#endif

#ifdef MUTANT_stale_handle_accepted
static uint64_t ended[64];
static uint32_t nended;
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_REGION_RELEASED)
		ended[nended++ % 64] = event->object;
	return true;
}
static escrow_status bad_deregister(struct escrow_engine *e, uint64_t region, uint32_t flags)
{
	escrow_status st = engine_deregister_memory(e, region, flags);

	for (int i = 0; st == ESCROW_E_INVALID && i < 64; i++)
		if (region && ended[i] == region)
			return ESCROW_IN_PROGRESS;
	return st;
}
#define EVENTS
#define SLOTS .deregister_memory = bad_deregister,
#endif

#ifdef MUTANT_limits_change
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	static uint64_t more;
	escrow_status st = engine_query(e, limits);

	if (st == ESCROW_OK && limits->size >= sizeof(*limits))
		limits->max_regions += more++;
	return st;
}
#define SLOTS .query = bad_query,
#endif

#ifdef MUTANT_zero_limit
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	escrow_status st = engine_query(e, limits);

	if (st == ESCROW_OK && limits->size >= sizeof(*limits))
		limits->max_sge = 0;
	return st;
}
#define SLOTS .query = bad_query,
#endif

#ifdef MUTANT_message_limit_lies
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	escrow_status st = engine_query(e, limits);

	if (st == ESCROW_OK && limits->size >= sizeof(*limits))
		limits->max_message_bytes = limits->max_message_bytes ? 0 : 65536;
	return st;
}
#define SLOTS .query = bad_query,
#endif

#ifdef MUTANT_advertised_fails
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	if (n && op && op->opcode == ESCROW_READ)
		return ESCROW_E_UNSUPPORTED;
	return engine_transfer(e, op, n, stride, flags, ops);
}
#define SLOTS .transfer = bad_transfer,
#endif

#ifdef MUTANT_unadvertised_works
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	struct escrow_region_args copy;
	static char dummy[4096];

	if (!args || args->size < sizeof(copy) || args->memory_kind != ESCROW_MEMORY_DMABUF)
		return engine_register_memory(e, args, region, error);
	copy = *args;
	copy.memory_kind = ESCROW_MEMORY_HOST;
	copy.addr = dummy;
	copy.length = sizeof(dummy);
	copy.dmabuf_fd = -1;
	return engine_register_memory(e, &copy, region, error);
}
#define SLOTS .register_memory = bad_register,
#endif

/* Short structs are filled up with zeros, one kind in each of these. */
#if defined MUTANT_short_open_accepted || defined MUTANT_short_invite_accepted ||                  \
	defined MUTANT_short_peer_accepted
/* The struct itself, or *copy when it is short. */
static const void *filled_up(const void *args, void *copy, uint32_t full)
{
	uint32_t size;

	if (!args)
		return args;
	memcpy(&size, args, sizeof(size));
	if (size < 8 || size >= full)
		return args;
	memset(copy, 0, full);
	memcpy(copy, args, size);
	memcpy(copy, &full, sizeof(full));
	return copy;
}
#endif

#ifdef MUTANT_short_open_accepted
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	struct escrow_open_args copy;

	return real_open(filled_up(args, &copy, sizeof(copy)), out, error);
}
#define OPEN bad_open
#endif

#ifdef MUTANT_short_invite_accepted
static escrow_status bad_invite(struct escrow_engine *e, const struct escrow_invite_args *args,
				void *buf, uint64_t *len)
{
	struct escrow_invite_args copy;

	return engine_invite(e, filled_up(args, &copy, sizeof(copy)), buf, len);
}
#define SLOTS .invite = bad_invite,
#endif

#ifdef MUTANT_short_peer_accepted
static escrow_status bad_connect(struct escrow_engine *e, const struct escrow_peer_args *args,
				 uint64_t *peer, struct escrow_error *error)
{
	struct escrow_peer_args copy;

	return engine_connect(e, filled_up(args, &copy, sizeof(copy)), peer, error);
}
#define SLOTS .connect = bad_connect,
#endif

/* Without the end of a grant's args there is no length, so that only what lies beyond makes it good. */
#ifdef MUTANT_grant_reads_beyond
static escrow_status bad_grant(struct escrow_engine *e, const struct escrow_grant_args *args,
			       uint64_t *grant, struct escrow_error *error)
{
	struct escrow_grant_args copy;

	if (!args || args->size >= sizeof(copy))
		return engine_grant(e, args, grant, error);
	copy = *args;
	copy.size = sizeof(copy);
	return engine_grant(e, &copy, grant, error);
}
#define SLOTS .grant = bad_grant,
#endif

#ifdef MUTANT_settings_stride_ignored
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	struct escrow_open_args copy;

	if (!args || args->size < sizeof(copy) || args->kv_stride <= sizeof(struct escrow_kv))
		return real_open(args, out, error);
	copy = *args;
	copy.kv_stride = sizeof(struct escrow_kv);
	return real_open(&copy, out, error);
}
#define OPEN bad_open
#endif

#include "backends/mock/mutants/ends.h"
