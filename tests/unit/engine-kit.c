/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/engine-kit.h"

#include <stdlib.h>
#include <string.h>

#include "backends/engine/entry.h"
#include "tests/lib/testing.h"

extern const struct native_ops mock_native;

struct native_ops kit_table;
bool kit_inexact;
int kit_wakeups;
bool kit_silent;

static int open_device(struct native *n, uint32_t index, struct native_context **out,
		       struct native_context_info *info, struct escrow_error *error)
{
	int rc = mock_native.open_device(n, index, out, info, error);

	if (kit_inexact)
		info->exact_windows = 0;
	return rc;
}

static int take_wakeups(struct native_lane *l)
{
	int rc = mock_native.take_wakeups(l);

	return kit_wakeups ? kit_wakeups : rc;
}

static int post(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	if (!kit_silent)
		return mock_native.post(c, wr, n, posted);
	*posted = n;
	return 0;
}

static const struct engine_backend self = {.native = &kit_table, .version = "test"};
static const struct escrow_option options[] = {ENGINE_OPTIONS};
ENGINE_BACKEND(&self, "mock", "test", ESCROW_CAP_REMOTE, UINT64_C(1) << ESCROW_MEMORY_HOST, options)

#define POLLS 20000 /* no clock: a test that waits in vain ends after so many */

uint64_t kit_now = 1000000000u;
uint64_t kit_allocs;
int64_t kit_fail_at;
uint32_t kit_misuses;

static int32_t log_enabled(void *ctx, int32_t level)
{
	return level == ESCROW_LOG_HOST_MISBEHAVES || level == ESCROW_LOG_BACKEND_MISBEHAVES;
}

static void log_text(void *ctx, int32_t level, const char *component, const char *text,
		     uint64_t len)
{
	kit_misuses += level == ESCROW_LOG_HOST_MISBEHAVES;
	ck_assert_uint_eq(strlen(text), len);
	ck_assert_int_ne(level, ESCROW_LOG_BACKEND_MISBEHAVES);
}

static void *take(uint64_t bytes, uint64_t align)
{
	void *p;

	if (kit_fail_at && --kit_fail_at == 0)
		return NULL;
	if (posix_memalign(&p, align, bytes))
		return NULL;
	memset(p, 0xa5, bytes);
	kit_allocs++;
	return p;
}

static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	return take(bytes, align);
}

static void host_free(void *ctx, void *p)
{
	kit_allocs -= p != NULL;
	free(p);
}

static void *dma_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	return take((bytes + 4095) & ~UINT64_C(4095), align < 4096 ? 4096 : align);
}

static uint64_t now_ns(void *ctx)
{
	return kit_now;
}

static const void *host_extension(void *ctx, const char *id)
{
	return NULL;
}

struct escrow_host kit_host = {
	.size = sizeof(struct escrow_host),
	.log_enabled = log_enabled,
	.log = log_text,
	.alloc = host_alloc,
	.free = host_free,
	.dma_alloc = dma_alloc,
	.dma_free = host_free,
	.now_ns = now_ns,
	.get_extension = host_extension,
};

const struct escrow_backend *kit_backend(void)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_hello hello = {.size = sizeof(hello), .rev_min = 1, .rev_max = 1};
	const struct escrow_backend *b = escrow_backend_entry_1(&hello, &error);

	ck_assert_msg(b != NULL, "%s", error.text);
	return b;
}

/* Before the first engine, and so before there are threads. */
static void fill_table(void)
{
	if (kit_table.open_device)
		return;
	kit_table = mock_native;
	kit_table.open_device = open_device;
	kit_table.take_wakeups = take_wakeups;
	kit_table.post = post;
}

escrow_status kit_open(struct kit *k, const char *name, const char *const *settings,
		       struct escrow_error *error)
{
	struct escrow_open_args args = {.size = sizeof(args),
					.host = &kit_host,
					.revision = 1,
					.kv_stride = sizeof(struct escrow_kv),
					.engine_name = name};
	struct escrow_kv kv[32];
	char copy[32][96];

	fill_table();
	memset(k, 0, sizeof(*k));
	for (; settings && settings[args.nkv]; args.nkv++) {
		char *value;

		strncpy(copy[args.nkv], settings[args.nkv], 95);
		copy[args.nkv][95] = 0;
		value = strchr(copy[args.nkv], '=');
		*value++ = 0;
		kv[args.nkv].key = copy[args.nkv];
		kv[args.nkv].value = value;
	}
	args.kv = kv;
	return KIT_OPS->open(&args, &k->engine, error);
}

const char *const *kit_settings;

void kit_start(struct kit *k, const char *name)
{
	static const char *const settings[] = {"test.faults=1", "drain_ms=100", "control_thread=0",
					       NULL};
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args args = {.size = sizeof(args),
					  .user = 77,
					  .length = KIT_BYTES,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	escrow_status st = kit_open(k, name, kit_settings ? kit_settings : settings, &error);

	ck_assert_msg(st == ESCROW_OK, "%s", error.text);
	k->memory = malloc(KIT_BYTES);
	memset(k->memory, name[0], KIT_BYTES);
	args.addr = k->memory;
	st = KIT_OPS->register_memory(k->engine, &args, &k->region, &error);
	ck_assert_msg(st == ESCROW_OK, "%s", error.text);
}

static bool find_seen(struct kit *k, uint16_t kind, struct escrow_event *out)
{
	uint32_t i;

	for (i = 0; i < k->nseen; i++)
		if (k->seen[i].kind == kind) {
			*out = k->seen[i];
			memmove(&k->seen[i], &k->seen[i + 1],
				(--k->nseen - i) * sizeof(k->seen[0]));
			return true;
		}
	return false;
}

static void poll_one(struct kit *k)
{
	struct escrow_event events[8];
	int32_t n = KIT_OPS->poll(k->engine, events, 8, sizeof(events[0]), 0), i;

	ck_assert_int_ge(n, 0);
	ck_assert_int_le(n, 8);
	for (i = 0; i < n; i++) {
		ck_assert_uint_gt(events[i].seq, k->seq);
		k->seq = events[i].seq;
		ck_assert_uint_lt(k->nseen, 64);
		k->seen[k->nseen++] = events[i];
	}
}

void kit_turn(struct kit *a, struct kit *b)
{
	poll_one(a);
	if (b && b->engine && b->engine != a->engine)
		poll_one(b);
}

struct escrow_event kit_wait(struct kit *a, struct kit *b, uint16_t kind)
{
	struct escrow_event ev;
	int i;

	for (i = 0; i < POLLS; i++) {
		if (find_seen(a, kind, &ev))
			return ev;
		kit_turn(a, b);
	}
	ck_abort_msg("no event of kind %u", kind);
	return (struct escrow_event){0};
}

void kit_never(struct kit *a, struct kit *b, uint16_t kind)
{
	struct escrow_event ev;
	int i;

	for (i = 0; i < 200; i++)
		kit_turn(a, b);
	ck_assert_msg(!find_seen(a, kind, &ev), "event of kind %u, status %d", kind, ev.status);
}

void kit_ask(struct kit *a, struct kit *b)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_invite_args invite = {.size = sizeof(invite), .user = 5, .peer_name = "b"};
	struct escrow_peer_args args = {.size = sizeof(args), .user = 6, .peer_name = "a"};
	uint8_t buf[1024];
	uint64_t len = sizeof(buf);

	ck_assert_int_eq(KIT_OPS->invite(a->engine, &invite, buf, &len), ESCROW_OK);
	args.invitation = buf;
	args.invitation_len = len;
	ck_assert_msg(KIT_OPS->connect(b->engine, &args, &b->peer, &error) == ESCROW_IN_PROGRESS,
		      "%s", error.text);
}

void kit_connect(struct kit *a, struct kit *b)
{
	struct escrow_event ev;

	kit_ask(a, b);
	ev = kit_wait(b, a, ESCROW_EV_PEER_UP);
	ck_assert_uint_eq(ev.object, b->peer);
	ck_assert_uint_eq(ev.user, 6);
	ev = kit_wait(a, b, ESCROW_EV_PEER_UP);
	ck_assert_uint_eq(ev.user, 5);
	a->peer = ev.object;
}

uint64_t kit_grant(struct kit *a, struct kit *b, uint32_t rights, uint64_t *grant_out)
{
	return kit_grant_from(a, b, rights, 0, grant_out);
}

uint64_t kit_grant_from(struct kit *a, struct kit *b, uint32_t rights, uint64_t from,
			uint64_t *grant_out)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = rights,
					 .user = 9,
					 .peer = a->peer,
					 .region = a->region,
					 .offset = from,
					 .length = KIT_BYTES - from};
	uint64_t grant, remote, len = 4096;
	uint8_t buf[4096];
	struct escrow_event ev;

	ck_assert_msg(KIT_OPS->grant(a->engine, &args, &grant, &error) == ESCROW_IN_PROGRESS, "%s",
		      error.text);
	ck_assert_int_eq(KIT_OPS->export_grant(a->engine, grant, buf, &len), ESCROW_E_STATE);
	ev = kit_wait(a, b, ESCROW_EV_GRANT_READY);
	ck_assert_uint_eq(ev.object, grant);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	len = sizeof(buf);
	ck_assert_int_eq(KIT_OPS->export_grant(a->engine, grant, buf, &len), ESCROW_OK);
	ck_assert_msg(KIT_OPS->import_grant(b->engine, b->peer, buf, len, 3, &remote, &error) ==
			      ESCROW_OK,
		      "%s", error.text);
	if (grant_out)
		*grant_out = grant;
	return remote;
}

uint64_t kit_transfer(struct kit *b, uint64_t remote, uint32_t opcode, uint64_t at,
		      uint64_t remote_at, uint64_t length)
{
	struct escrow_sge sge = {.region = b->region, .offset = at, .length = length};
	struct escrow_op op = {.user = 1234,
			       .remote = remote,
			       .remote_offset = remote_at,
			       .opcode = opcode,
			       .nsge = 1,
			       .sge = &sge};
	uint64_t id = 0;

	ck_assert_int_eq(KIT_OPS->transfer(b->engine, &op, 1, sizeof(op), 0, &id), 1);
	ck_assert_uint_ne(id, 0);
	return id;
}

uint64_t kit_used(struct kit *k, uint32_t kind)
{
	struct escrow_charge all[64];
	int32_t n = KIT_OPS->charges(k->engine, all, 64, sizeof(all[0])), i;

	for (i = 0; i < n; i++)
		if (all[i].kind == kind && !all[i].peer_name[0])
			return all[i].used;
	ck_abort_msg("no charge of kind %u", kind);
	return 0;
}

const struct escrow_fault *kit_faults(struct kit *k)
{
	const struct escrow_fault *f = KIT_OPS->get_extension(k->engine, ESCROW_FAULT_ID);

	ck_assert_ptr_nonnull(f);
	return f;
}

void kit_plan(struct kit *k, const char *plan)
{
	struct escrow_error error = {.size = sizeof(error)};

	ck_assert_msg(kit_faults(k)->plan(k->engine, plan, &error) == ESCROW_OK, "%s", error.text);
}

void kit_close(struct kit *k, struct kit *other, bool quarantined)
{
	struct escrow_event ev = {0};
	int i;

	ck_assert_int_eq(KIT_OPS->close(k->engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	for (i = 0; i < 200; i++) {
		kit_now += 10000000;
		poll_one(k);
		if (other && other->engine)
			poll_one(other);
	}
	if (!quarantined)
		ev = kit_wait(k, other, ESCROW_EV_CLOSED);
	while (quarantined) {
		ev = kit_wait(k, other, ESCROW_EV_QUARANTINED);
		if (!ev.object)
			break;
	}
	ck_assert_int_eq(ev.status, quarantined ? ESCROW_E_UNQUIESCED : ESCROW_OK);
	KIT_OPS->release(k->engine);
	k->engine = NULL;
	/* What is quarantined is never the host's again. */
	if (!quarantined)
		free(k->memory);
}
