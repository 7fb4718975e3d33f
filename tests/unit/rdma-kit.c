/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/rdma-kit.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <escrow/counters.h>
#include <escrow/fault.h>

#include "backends/engine/engine.h"
#include "backends/engine/wire.h"
#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"

extern const struct escrow_backend *escrow_backend_entry_1(const struct escrow_hello *hello,
							   struct escrow_error *error);

static struct end *ends[ENDS_MAX];
static bool withheld; /* something is quarantined */

const struct escrow_backend *ends_backend(void)
{
	struct escrow_hello hello = {.size = sizeof(hello), .rev_min = 1, .rev_max = 1};

	return escrow_backend_entry_1(&hello, NULL);
}

escrow_status end_try(struct end *e, const char *const *settings, struct escrow_error *error)
{
	struct escrow_open_args args = {.size = sizeof(args),
					.host = &rdma_host,
					.revision = 1,
					.kv_stride = sizeof(struct escrow_kv),
					.engine_name = "test"};
	struct escrow_kv kv[16];
	char copy[16][256];

	memset(e, 0, sizeof(*e));
	for (; settings && settings[args.nkv]; args.nkv++) {
		snprintf(copy[args.nkv], sizeof(copy[0]), "%s", settings[args.nkv]);
		kv[args.nkv].key = copy[args.nkv];
		kv[args.nkv].value = strchr(copy[args.nkv], '=') + 1;
		*strchr(copy[args.nkv], '=') = 0;
	}
	args.kv = kv;
	return OPS->open(&args, &e->engine, error);
}

void end_open_on(struct end *e, uint8_t *memory, const char *const *settings)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args args = {.size = sizeof(args),
					  .length = END_BYTES,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	int i;

	ck_assert_msg(end_try(e, settings, &error) == ESCROW_OK, "%s", error.text);
	args.addr = e->memory = memory;
	ck_assert_msg(OPS->register_memory(e->engine, &args, &e->region, &error) == ESCROW_OK, "%s",
		      error.text);
	for (i = 0; ends[i]; i++)
		ck_assert_int_lt(i, ENDS_MAX - 1);
	ends[i] = e;
}

void end_open(struct end *e, uint8_t fill, const char *const *settings)
{
	end_open_on(e, memset(rdma_host.alloc(NULL, END_BYTES, 4096), fill, END_BYTES), settings);
}

bool ends_possible(char *why, uint32_t size)
{
	struct native_open_args args = {.host = &rdma_host, .engine_name = "test"};
	struct escrow_error error = {.size = sizeof(error)};
	struct native *native;
	escrow_status st = rdma_native.open(&args, &native, &error);

	if (st == ESCROW_OK)
		rdma_native.free_native(native);
	else
		snprintf(why, size, "%s", error.text);
	return st == ESCROW_OK;
}

uint32_t ends_rails(char (*addresses)[64], uint32_t max)
{
	struct native_open_args args = {.host = &rdma_host, .engine_name = "test"};
	struct native_rail_info info;
	struct native *native;
	uint32_t n, i;

	if (rdma_native.open(&args, &native, NULL) != ESCROW_OK)
		return 0;
	n = rdma_native.nrails(native);
	for (i = 0; i < n && i < max; i++) {
		rdma_native.rail_info(native, i, &info);
		snprintf(addresses[i], sizeof(addresses[i]), "%s", strchr(info.name, ' ') + 1);
	}
	rdma_native.free_native(native);
	return n;
}

bool ends_double(void)
{
	return dlsym(RTLD_DEFAULT, "softverbs_script") != NULL;
}

/* The control of softverbs, if it is there (tests/softverbs/softverbs.h). */
static void *of_double(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

void double_forbid(const void *addr, uint64_t length)
{
	int (*forbid)(const void *, size_t, int) = NULL;

	*(void **)&forbid = of_double("softverbs_forbid");
	if (forbid)
		ck_assert_int_eq(forbid(addr, length, 1), 0);
}

void double_permit(const void *addr, uint64_t length)
{
	int (*permit)(const void *, size_t) = NULL;

	*(void **)&permit = of_double("softverbs_permit");
	if (permit)
		ck_assert_int_eq(permit(addr, length), 0);
}

bool double_hold(struct ibv_context *device, int on)
{
	void (*hold)(struct ibv_context *, int) = NULL;

	*(void **)&hold = of_double("softverbs_hold");
	if (hold)
		hold(device, on);
	return hold != NULL;
}

void double_blackhole(int rail, int on)
{
	void (*blackhole)(int, int) = NULL;

	*(void **)&blackhole = of_double("softverbs_blackhole");
	if (blackhole)
		blackhole(rail, on);
}

void double_settle(void)
{
	void (*settle)(void) = NULL;

	*(void **)&settle = of_double("softverbs_settle");
	if (settle)
		settle();
}

/* ---- Events -------------------------------------------------------------------------------------- */
int32_t end_poll(struct end *e)
{
	int32_t n = OPS->poll(e->engine, &e->seen[e->nseen], 256 - e->nseen, sizeof(e->seen[0]), 0);

	ck_assert_int_ge(n, 0);
	e->nseen += (uint32_t)n;
	/* A ROOM that is told again before it was taken says no more. */
	while (e->nseen > 1 && e->seen[e->nseen - 1].kind == ESCROW_EV_ROOM &&
	       e->seen[e->nseen - 2].kind == ESCROW_EV_ROOM)
		e->nseen--;
	ck_assert_msg(e->nseen < 256, "256 events, the last of kind %u", e->seen[255].kind);
	return n;
}

/* Polls all, and sleeps until one has something to say if none had. */
void ends_turn(void)
{
	struct pollfd fds[ENDS_MAX];
	bool idle = true;
	nfds_t n = 0;
	int i;

	for (i = 0; i < ENDS_MAX; i++)
		if (ends[i] && end_poll(ends[i]))
			idle = false;
	for (i = 0; i < ENDS_MAX && idle; i++) {
		if (!ends[i])
			continue;
		idle = OPS->arm(ends[i]->engine, 0) == ESCROW_OK;
		fds[n++] = (struct pollfd){.fd = OPS->event_fd(ends[i]->engine), .events = POLLIN};
	}
	if (idle)
		poll(fds, n, 100); /* a control thread's work makes no event */
}

static bool take_seen(struct end *e, uint16_t kind, uint64_t object, struct escrow_event *out)
{
	uint32_t i;

	for (i = 0; i < e->nseen; i++)
		if (e->seen[i].kind == kind && (!object || e->seen[i].object == object)) {
			*out = e->seen[i];
			memmove(&e->seen[i], &e->seen[i + 1],
				(--e->nseen - i) * sizeof(e->seen[0]));
			return true;
		}
	return false;
}

struct escrow_event end_wait_of(struct end *e, uint16_t kind, uint64_t object)
{
	uint64_t end = rdma_host.now_ns(NULL) + UINT64_C(120000000000);
	struct escrow_event ev = {0};

	while (!take_seen(e, kind, object, &ev)) {
		ck_assert_msg(rdma_host.now_ns(NULL) < end, "no event of kind %u", kind);
		ends_turn();
	}
	return ev;
}

struct escrow_event end_wait(struct end *e, uint16_t kind)
{
	return end_wait_of(e, kind, 0);
}

bool end_has_seen(const struct end *e, uint16_t kind)
{
	for (uint32_t i = 0; i < e->nseen; i++)
		if (e->seen[i].kind == kind)
			return true;
	return false;
}

uint64_t end_counter(struct end *e, const char *name)
{
	const struct escrow_counters *x = OPS->get_extension(e->engine, ESCROW_COUNTERS_ID);
	struct escrow_counter all[128];
	int32_t n, i;

	ck_assert_ptr_nonnull(x);
	n = x->read(e->engine, all, 128, sizeof(all[0]));
	for (i = 0; i < n && i < 128; i++)
		if (!strcmp(all[i].name, name))
			return all[i].value;
	ck_abort_msg("no counter %s", name);
	return 0;
}

void end_until(struct end *e, const char *counter, uint64_t value)
{
	uint64_t end = rdma_host.now_ns(NULL) + UINT64_C(120000000000);

	while (end_counter(e, counter) < value) {
		ck_assert_msg(rdma_host.now_ns(NULL) < end, "%s stays below %llu", counter,
			      (unsigned long long)value);
		ends_turn();
	}
}

/* ---- Steps ----------------------------------------------------------------------------------------- */
uint64_t end_invite(struct end *e, const char *name, uint8_t *buf, uint64_t size)
{
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = name};
	uint64_t len = size;

	ck_assert_int_eq(OPS->invite(e->engine, &args, buf, &len), ESCROW_OK);
	return len;
}

uint64_t end_connect(struct end *e, const char *name, const uint8_t *buf, uint64_t len)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_peer_args args = {
		.size = sizeof(args), .peer_name = name, .invitation = buf, .invitation_len = len};
	uint64_t peer = 0;

	ck_assert_msg(OPS->connect(e->engine, &args, &peer, &error) == ESCROW_IN_PROGRESS, "%s",
		      error.text);
	return peer;
}

void ends_connect(struct end *passive, struct end *active, uint64_t *by_passive,
		  uint64_t *by_active)
{
	uint8_t buf[4096];
	uint64_t len = end_invite(passive, "active", buf, sizeof(buf));

	*by_active = end_connect(active, "passive", buf, len);
	end_wait_of(active, ESCROW_EV_PEER_UP, *by_active);
	*by_passive = end_wait(passive, ESCROW_EV_PEER_UP).object;
}

uint64_t end_grant(struct end *e, uint64_t peer, uint64_t offset, uint64_t length, uint32_t rights,
		   uint8_t *buf, uint64_t size, uint64_t *grant)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = rights,
					 .peer = peer,
					 .region = e->region,
					 .offset = offset,
					 .length = length};
	uint64_t len = size;

	ck_assert_msg(OPS->grant(e->engine, &args, grant, &error) == ESCROW_IN_PROGRESS, "%s",
		      error.text);
	ck_assert_int_eq(end_wait_of(e, ESCROW_EV_GRANT_READY, *grant).status, ESCROW_OK);
	ck_assert_int_eq(OPS->export_grant(e->engine, *grant, buf, &len), ESCROW_OK);
	return len;
}

uint64_t end_import(struct end *e, uint64_t peer, const uint8_t *buf, uint64_t len)
{
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t remote = 0;

	ck_assert_msg(OPS->import_grant(e->engine, peer, buf, len, 0, &remote, &error) == ESCROW_OK,
		      "%s", error.text);
	return remote;
}

static int32_t submit(struct end *e, uint64_t remote, uint32_t opcode, uint64_t at,
		      uint64_t remote_at, uint64_t length, uint64_t *id)
{
	struct escrow_sge sge = {.region = e->region, .offset = at, .length = length};
	struct escrow_op op = {.remote = remote,
			       .remote_offset = remote_at,
			       .opcode = opcode,
			       .nsge = 1,
			       .sge = &sge};
	int32_t n;

	while ((n = OPS->transfer(e->engine, &op, 1, sizeof(op), 0, id)) == ESCROW_E_AGAIN)
		ends_turn();
	return n;
}

uint64_t end_submit(struct end *e, uint64_t remote, uint32_t opcode, uint64_t at,
		    uint64_t remote_at, uint64_t length)
{
	uint64_t id = 0;

	ck_assert_int_eq(submit(e, remote, opcode, at, remote_at, length, &id), 1);
	return id;
}

uint64_t end_try_submit(struct end *e, uint64_t remote, uint32_t opcode, uint64_t length)
{
	uint64_t id = 0;

	return submit(e, remote, opcode, 0, 0, length, &id) == 1 ? id : 0;
}

struct escrow_event end_move(struct end *e, uint64_t remote, uint32_t opcode, uint64_t at,
			     uint64_t remote_at, uint64_t length)
{
	return end_wait_of(e, ESCROW_EV_OP_DONE,
			   end_submit(e, remote, opcode, at, remote_at, length));
}

int end_knock(struct end *e, uint32_t rail, const void *data, uint8_t len)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct rdma_conn_param param = {.private_data = data, .private_data_len = len};
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = "x", .expires_ns = 1};
	struct sockaddr_storage to;
	struct wire_invitation inv;
	struct rdma_cm_id *id;
	uint8_t buf[4096];
	uint64_t n = sizeof(buf);
	int rc = 0;

	ck_assert_int_eq(OPS->invite(e->engine, &args, buf, &n), ESCROW_OK);
	ck_assert_int_eq(wire_invitation_get(buf, n, "rdma", &inv, &error), ESCROW_OK);
	ck_assert_int_eq(rail_parse_address(inv.address[rail], &to), 0);
	/* Without a channel librdmacm waits for each answer itself. */
	ck_assert_int_eq(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000) ||
	    rdma_resolve_route(id, 5000) || rdma_connect(id, &param))
		rc = errno;
	rdma_destroy_id(id);
	return rc;
}

static int32_t read_charges(struct end *e, struct escrow_charge *charges, uint32_t max)
{
	int32_t n = OPS->charges(e->engine, charges, max, sizeof(*charges));

	ck_assert_int_ge(n, 0);
	ck_assert_int_le(n, (int32_t)max);
	return n;
}

uint64_t end_used(struct end *e, uint32_t kind)
{
	struct escrow_charge charges[64];
	int32_t n = read_charges(e, charges, 64), i;

	for (i = 0; i < n; i++)
		if (charges[i].kind == kind && !charges[i].peer_name[0])
			return charges[i].used;
	return 0;
}

void end_until_unused(struct end *e, uint32_t kind)
{
	uint64_t end = rdma_host.now_ns(NULL) + UINT64_C(120000000000);

	while (end_used(e, kind)) {
		ck_assert_msg(rdma_host.now_ns(NULL) < end, "charge %u stays", kind);
		ends_turn();
	}
}

void end_is_clean(struct end *e)
{
	struct escrow_charge charges[64];
	int32_t n = read_charges(e, charges, 64), i;

	for (i = 0; i < n; i++)
		ck_assert_msg(!charges[i].used, "charge %u of \"%s\" is %llu", charges[i].kind,
			      charges[i].peer_name, (unsigned long long)charges[i].used);
}

/* Those behind it move up: the list of open ones ends at the first hole. */
static void forget(struct end *e)
{
	int i;

	for (i = 0; ends[i] != e; i++)
		ck_assert_int_lt(i, ENDS_MAX - 1);
	for (; i + 1 < ENDS_MAX; i++)
		ends[i] = ends[i + 1];
	ends[i] = NULL;
	OPS->release(e->engine);
	e->engine = NULL;
}

static struct escrow_event end_as(struct end *e, uint16_t kind)
{
	struct escrow_event ev;

	ck_assert_int_eq(OPS->close(e->engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	do
		ev = end_wait(e, kind);
	while (ev.object);
	return ev;
}

void end_release(struct end *e)
{
	forget(e);
	rdma_host.free(NULL, e->memory);
	e->memory = NULL;
	/* The last one leaves nothing, unless there was a quarantine. */
	ck_assert(ends[0] || withheld || rdma_host_blocks() == 0);
}

void end_close(struct end *e)
{
	end_as(e, ESCROW_EV_CLOSED);
	end_is_clean(e);
	end_release(e);
}

uint64_t end_quarantine(struct end *e)
{
	struct escrow_event ev = end_as(e, ESCROW_EV_QUARANTINED);

	ck_assert_int_eq(ev.status, ESCROW_E_UNQUIESCED);
	forget(e);
	withheld = true;
	return ev.bytes;
}

bool end_seen(struct end *e, uint16_t kind, uint64_t object, struct escrow_event *out)
{
	struct escrow_event ev;

	return take_seen(e, kind, object, out ? out : &ev);
}

void end_never(struct end *e, uint16_t kind)
{
	struct escrow_event ev;

	for (int i = 0; i < 20; i++) {
		for (int k = 0; ends[k]; k++)
			end_poll(ends[k]);
		poll(NULL, 0, 5);
	}
	ck_assert_msg(!take_seen(e, kind, 0, &ev), "event of kind %u, status %d", kind, ev.status);
}
