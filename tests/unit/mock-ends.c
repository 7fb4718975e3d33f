/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/mock-ends.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/testing.h"

_Atomic int ends_fail_after;
bool ends_outside_check;

/* Check's own assertions report to Check, so they are of no use in a child that is not its own. */
static void must_hold(bool holds, int line, const char *what)
{
	if (holds)
		return;
	if (!ends_outside_check)
		ck_abort_msg("%s:%d: %s", __FILE__, line, what);
	fprintf(stderr, "# %s:%d: %s\n", __FILE__, line, what);
	_exit(3);
}
#define must(what) must_hold(what, __LINE__, #what)

static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	if (atomic_load(&ends_fail_after) && atomic_fetch_sub(&ends_fail_after, 1) == 1)
		return NULL;
	return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void host_free(void *ctx, void *p)
{
	free(p);
}

static uint64_t host_now(void *ctx)
{
	return 1; /* the mock must work with a clock that stands still */
}

static int32_t host_log_enabled(void *ctx, int32_t level)
{
	return 0;
}

static void host_log(void *ctx, int32_t level, const char *component, const char *text,
		     uint64_t len)
{
}

static const void *host_extension(void *ctx, const char *id)
{
	return NULL;
}

const struct escrow_host ends_host = {
	.size = sizeof(struct escrow_host),
	.log_enabled = host_log_enabled,
	.log = host_log,
	.alloc = host_alloc,
	.free = host_free,
	.dma_alloc = host_alloc,
	.dma_free = host_free,
	.now_ns = host_now,
	.get_extension = host_extension,
};

static struct native *open_native(const char *settings)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_kv kv[8];
	struct native_open_args args = {.host = &ends_host, .kv = kv, .engine_name = "test"};
	struct native *n = NULL;
	char text[256], *save = NULL;

	snprintf(text, sizeof(text), "%s", settings);
	for (char *key = strtok_r(text, " ", &save); key; key = strtok_r(NULL, " ", &save)) {
		char *value = strchr(key, '=');

		*value = '\0';
		kv[args.nkv++] = (struct escrow_kv){.key = key, .value = value + 1};
	}
	must(mock_native.open(&args, &n, &error) == ESCROW_OK);
	return n;
}

void end_open(struct end *e, const char *settings, uint32_t cq_depth)
{
	struct native_context_info info;
	struct escrow_region_args region = {.size = sizeof(region),
					    .length = END_BYTES,
					    .memory_kind = ESCROW_MEMORY_HOST,
					    .dmabuf_fd = -1};

	memset(e, 0, sizeof(*e));
	e->n = open_native(settings);
	e->bytes = aligned_alloc(4096, END_BYTES);
	memset(e->bytes, 0, END_BYTES);
	region.addr = e->bytes;
	must(mock_native.open_device(e->n, 0, &e->c, &info, NULL) == 0);
	must(strcmp(info.provider, "mock") == 0);
	must(mock_native.alloc_pd(e->c) == 0);
	must(mock_native.create_channel(e->c, &e->l) == 0);
	must(mock_native.create_cq(e->l, cq_depth) == 0);
	must(mock_native.register_region(e->c, &region, &e->r, NULL) == 0);
	must(mock_native.alloc_window(e->c, &e->w) == 0);
}

struct native_conn *end_conn(struct end *e)
{
	struct native_conn_args args = {.send_depth = END_DEPTH,
					.recv_depth = END_DEPTH,
					.max_sge = 4,
					.max_inline = 64,
					.user = e};
	struct native_conn *q = NULL;

	must(mock_native.create_conn(e->l, &args, &q) == 0);
	must(mock_native.conn_user(q) == e);
	return q;
}

struct native_event end_event(struct end *e, enum native_event_kind kind)
{
	struct native_event event;

	memset(&event, 0, sizeof(event));
	for (int i = 0; i < 64; i++)
		if (mock_native.next_event(e->n, &event)) {
			must(event.kind == kind);
			return event;
		}
	must(!"an event has come");
	return event;
}

void ends_connect(struct end *a, struct end *b)
{
	struct native_rail_info rail;
	struct native_event event;

	a->q = end_conn(a);
	b->q = end_conn(b);
	mock_native.rail_info(b->n, 0, &rail);
	must(mock_native.connect(a->q, rail.address, "hello", 5) == 0);
	event = end_event(b, NATIVE_EV_REQUEST);
	must(event.data_len == 5);
	must(memcmp(event.data, "hello", 5) == 0);
	must(mock_native.accept(b->q, event.request, "welcome", 7) == 0);
	event = end_event(a, NATIVE_EV_ESTABLISHED);
	must(event.conn == a->q);
	must(memcmp(event.data, "welcome", 7) == 0);
	event = end_event(b, NATIVE_EV_ESTABLISHED);
	must(event.conn == b->q);
}

void end_close(struct end *e)
{
	if (e->q)
		must(mock_native.destroy_conn(e->q) == 0);
	if (e->w)
		must(mock_native.dealloc_window(e->w) == 0);
	must(mock_native.deregister_region(e->r) == 0);
	must(mock_native.destroy_cq(e->l) == 0);
	must(mock_native.destroy_channel(e->l) == 0);
	must(mock_native.dealloc_pd(e->c) == 0);
	must(mock_native.close_device(e->c) == 0);
	mock_native.free_native(e->n);
	free(e->bytes);
}

struct native_wr end_wr(struct end *e, enum native_opcode opcode, struct native_sge *sge,
			uint32_t at, uint32_t length)
{
	*sge = (struct native_sge){.addr = (uint64_t)(uintptr_t)(e->bytes + at),
				   .length = length,
				   .key = mock_native.region_key(e->r)};
	return (struct native_wr){
		.id = 1, .opcode = opcode, .flags = NATIVE_SIGNALED, .nsge = 1, .sge = sge};
}

void end_post(struct native_conn *q, struct native_wr *wr)
{
	uint32_t posted = 0;

	must(mock_native.post(q, wr, 1, &posted) == 0);
	must(posted == 1);
}

void end_wait(struct end *e, struct native_cqe *cqe, int n)
{
	int got = 0;

	while (got < n) {
		int more = mock_native.poll_cq(e->l, cqe + got, n - got);

		must(more >= 0);
		got += more;
		if (!more)
			sched_yield(); /* the device's thread may have to run first */
	}
}

enum native_status end_do(struct end *e, struct native_wr *wr)
{
	struct native_cqe cqe;

	end_post(e->q, wr);
	end_wait(e, &cqe, 1);
	ck_assert_uint_eq(cqe.id, wr->id);
	return cqe.status;
}

uint32_t end_bind(struct end *e, struct native_conn *q, uint32_t rights, uint8_t tag)
{
	struct native_wr wr = {.id = 77,
			       .opcode = NATIVE_BIND,
			       .flags = NATIVE_SIGNALED,
			       .window = e->w,
			       .region = e->r,
			       .addr = (uint64_t)(uintptr_t)(e->bytes + END_AT),
			       .length = END_GRANT,
			       .rights = rights};
	struct native_cqe cqe;

	wr.rkey = (mock_native.window_key(e->w) & ~0xffu) | tag;
	end_post(q, &wr);
	end_wait(e, &cqe, 1);
	must(cqe.status == NATIVE_OK);
	must(mock_native.window_key(e->w) == wr.rkey);
	return wr.rkey;
}
