/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The native table of RDMA devices, driven without an engine: every opcode, the rules of window
 * keys, flush, RESET.  Needs a device (real, rdma_rxe in the guest, or softverbs); skips without.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"

static const struct native_ops *const ops = &rdma_native;

#define BYTES 65536u
#define DEPTH 64u

/* ---- A host that lends nothing special -------------------------------------------------------- */
static int32_t no_log(void *ctx, int32_t level)
{
	(void)ctx, (void)level;
	return 0;
}

static void log_nothing(void *ctx, int32_t level, const char *component, const char *text,
			uint64_t len)
{
	(void)ctx, (void)level, (void)component, (void)text, (void)len;
}

static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	void *p = NULL;

	(void)ctx;
	return posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, bytes) ? NULL
											  : p;
}

static void host_free(void *ctx, void *p)
{
	(void)ctx;
	free(p);
}

static uint64_t host_now(void *ctx)
{
	struct timespec t;

	(void)ctx;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const void *no_extension(void *ctx, const char *id)
{
	(void)ctx, (void)id;
	return NULL;
}

static const struct escrow_host host = {
	.size = sizeof(host),
	.log_enabled = no_log,
	.log = log_nothing,
	.alloc = host_alloc,
	.free = host_free,
	.dma_alloc = host_alloc,
	.dma_free = host_free,
	.now_ns = host_now,
	.get_extension = no_extension,
};

/* ---- One end ---------------------------------------------------------------------------------- */
struct end {
	struct native *native;
	struct native_context *context;
	struct native_context_info info;
	struct native_lane *lane;
	struct native_region *region;
	struct native_conn *conn;
	unsigned char *bytes;
	bool up;
	uint32_t data_len;
	unsigned char data[NATIVE_PRIVATE_BYTES];
};

static struct end a, b;

static escrow_status end_open(struct end *e, struct escrow_error *error)
{
	struct native_open_args args = {.host = &host, .engine_name = "test"};

	memset(e, 0, sizeof(*e));
	return ops->open(&args, &e->native, error);
}

static void end_prepare(struct end *e)
{
	struct escrow_region_args args = {.size = sizeof(args), .memory_kind = ESCROW_MEMORY_HOST};
	struct escrow_error error = {.size = sizeof(error)};
	uint32_t context;
	struct native_rail_info rail;

	ck_assert_int_eq(end_open(e, &error), ESCROW_OK);
	ops->rail_info(e->native, 0, &rail);
	context = rail.context;
	ck_assert_msg(ops->open_device(e->native, context, &e->context, &e->info, &error) == 0,
		      "%s", error.text);
	ck_assert_int_eq(ops->alloc_pd(e->context), 0);
	ck_assert_int_eq(ops->create_channel(e->context, &e->lane), 0);
	ck_assert_int_eq(ops->create_cq(e->lane, 2 * DEPTH + 2), 0);
	e->bytes = host_alloc(NULL, BYTES, 4096);
	ck_assert_ptr_nonnull(e->bytes);
	args.addr = e->bytes;
	args.length = BYTES;
	args.dmabuf_fd = -1;
	ck_assert_int_eq(ops->register_region(e->context, &args, &e->region, &error), 0);
}

static void end_conn(struct end *e)
{
	struct native_conn_args args = {
		.send_depth = DEPTH, .recv_depth = 8, .max_sge = 2, .max_inline = 64, .user = e};

	ck_assert_int_eq(ops->create_conn(e->lane, &args, &e->conn), 0);
	ck_assert_ptr_eq(ops->conn_user(e->conn), e);
}

static void end_close(struct end *e)
{
	if (e->conn)
		ck_assert_int_eq(ops->destroy_conn(e->conn), 0);
	ck_assert_int_eq(ops->deregister_region(e->region), 0);
	ck_assert_int_eq(ops->destroy_cq(e->lane), 0);
	ck_assert_int_eq(ops->destroy_channel(e->lane), 0);
	ck_assert_int_eq(ops->dealloc_pd(e->context), 0);
	ck_assert_int_eq(ops->close_device(e->context), 0);
	ops->free_native(e->native);
	free(e->bytes);
}

/* Waits for the next event of an end; Check's own time-out ends a wait in vain. */
static struct native_event next_event(struct end *e)
{
	struct native_event event;

	while (!ops->next_event(e->native, &event)) {
		struct pollfd p = {.fd = ops->event_fd(e->native), .events = POLLIN};

		poll(&p, 1, 100);
	}
	return event;
}

static struct native_cqe next_cqe(struct end *e)
{
	struct native_cqe cqe;
	int n;

	while ((n = ops->poll_cq(e->lane, &cqe, 1)) == 0)
		;
	ck_assert_int_eq(n, 1);
	if (cqe.status != NATIVE_OK)
		cqe.status = ops->failure(cqe.status);
	return cqe;
}

/* Posts one request and returns how it completed. */
static enum native_status run(struct end *e, struct native_wr *wr)
{
	struct native_cqe cqe;
	uint32_t posted;

	wr->flags |= NATIVE_SIGNALED;
	ck_assert_int_eq(ops->post(e->conn, wr, 1, &posted), 0);
	cqe = next_cqe(e);
	ck_assert_uint_eq(cqe.id, wr->id);
	return cqe.status;
}

static void connect_pair(void)
{
	struct native_rail_info rail;
	struct native_event event;

	end_prepare(&a);
	end_prepare(&b);
	end_conn(&a);
	ops->rail_info(b.native, 0, &rail);
	ck_assert_int_eq(ops->connect(a.conn, rail.address, "question", 8), 0);
	/* Address and route are resolved on the way; only the request is news. */
	do {
		struct native_event none;

		ck_assert_int_eq(ops->next_event(a.native, &none), 0);
	} while (!ops->next_event(b.native, &event));
	ck_assert_int_eq(event.kind, NATIVE_EV_REQUEST);
	ck_assert_mem_eq(event.data, "question", 8);
	ck_assert_uint_eq(event.rail, 0);
	end_conn(&b);
	ck_assert_int_eq(ops->accept(b.conn, event.request, "answer", 6), 0);
	event = next_event(&a);
	ck_assert_int_eq(event.kind, NATIVE_EV_ESTABLISHED);
	ck_assert_ptr_eq(event.conn, a.conn);
	ck_assert_mem_eq(event.data, "answer", 6);
	event = next_event(&b);
	ck_assert_int_eq(event.kind, NATIVE_EV_ESTABLISHED);
	ck_assert_ptr_eq(event.conn, b.conn);
}

static void close_pair(void)
{
	end_close(&a);
	end_close(&b);
}

static struct native_wr bind_wr(struct native_window *w, uint64_t offset, uint64_t length,
				uint32_t rights)
{
	return (struct native_wr){
		.id = 100,
		.opcode = NATIVE_BIND,
		.window = w,
		.region = b.region,
		.addr = (uint64_t)(uintptr_t)b.bytes + offset,
		.length = length,
		.rights = rights,
		.rkey = (ops->window_key(w) & ~0xffu) | ((ops->window_key(w) + 1) & 0xffu),
	};
}

static struct native_wr move_wr(enum native_opcode opcode, struct native_sge *sge, uint32_t rkey,
				uint64_t offset, uint32_t length)
{
	*sge = (struct native_sge){
		.addr = (uint64_t)(uintptr_t)a.bytes + offset,
		.length = length,
		.key = ops->region_key(a.region),
	};
	return (struct native_wr){
		.id = 200,
		.opcode = opcode,
		.nsge = 1,
		.sge = sge,
		.rkey = rkey,
		.remote_addr = (uint64_t)(uintptr_t)b.bytes + offset,
	};
}

START_TEST(write_and_read_through_a_window)
{
	struct native_window *w;
	struct native_wr wr;
	struct native_sge sge;
	uint32_t key;

	connect_pair();
	ck_assert_int_eq(ops->alloc_window(b.context, &w), 0);
	wr = bind_wr(w, 0, BYTES, ESCROW_MAY_READ | ESCROW_MAY_WRITE);
	key = wr.rkey;
	ck_assert_int_eq(run(&b, &wr), NATIVE_OK);
	ck_assert_uint_eq(ops->window_key(w), key);
	for (uint32_t i = 0; i < BYTES; i++)
		a.bytes[i] = (unsigned char)(i * 7 + 1);
	wr = move_wr(NATIVE_WRITE, &sge, key, 0, BYTES);
	ck_assert_int_eq(run(&a, &wr), NATIVE_OK);
	ck_assert_mem_eq(b.bytes, a.bytes, BYTES);
	memset(b.bytes, 0x5a, BYTES);
	wr = move_wr(NATIVE_READ, &sge, key, 0, BYTES);
	ck_assert_int_eq(run(&a, &wr), NATIVE_OK);
	for (uint32_t i = 0; i < BYTES; i++)
		testing_assert_byte(a.bytes[i], 0x5a, i);
	/* Inline: the source may change as soon as post has returned. */
	memset(a.bytes, 0x33, 64);
	wr = move_wr(NATIVE_WRITE, &sge, key, 0, 64);
	wr.flags = NATIVE_INLINE | NATIVE_SIGNALED;
	{
		uint32_t posted;

		ck_assert_int_eq(ops->post(a.conn, &wr, 1, &posted), 0);
		memset(a.bytes, 0x44, 64);
		ck_assert_int_eq(next_cqe(&a).status, NATIVE_OK);
	}
	for (uint32_t i = 0; i < 64; i++)
		ck_assert_uint_eq(b.bytes[i], 0x33);
	wr = (struct native_wr){.id = 3, .opcode = NATIVE_INVALIDATE, .rkey = key};
	ck_assert_int_eq(run(&b, &wr), NATIVE_OK);
	ck_assert_int_eq(ops->dealloc_window(w), 0);
	close_pair();
}
END_TEST

/* What goes through a window after it was ended must fail, and change nothing. */
static void refused_after(bool by_dealloc)
{
	struct native_window *w;
	struct native_wr wr;
	struct native_sge sge;
	uint32_t key;

	connect_pair();
	ck_assert_int_eq(ops->alloc_window(b.context, &w), 0);
	wr = bind_wr(w, 0, BYTES, ESCROW_MAY_WRITE);
	key = wr.rkey;
	ck_assert_int_eq(run(&b, &wr), NATIVE_OK);
	if (by_dealloc) {
		ck_assert_int_eq(ops->dealloc_window(w), 0);
	} else {
		wr = (struct native_wr){.id = 3, .opcode = NATIVE_INVALIDATE, .rkey = key};
		ck_assert_int_eq(run(&b, &wr), NATIVE_OK);
	}
	memset(a.bytes, 1, BYTES);
	memset(b.bytes, 2, BYTES);
	wr = move_wr(NATIVE_WRITE, &sge, key, 0, 4096);
	ck_assert_int_eq(run(&a, &wr), NATIVE_REMOTE_ACCESS);
	for (uint32_t i = 0; i < BYTES; i++)
		testing_assert_byte(b.bytes[i], 2, i);
	if (!by_dealloc)
		ck_assert_int_eq(ops->dealloc_window(w), 0);
	close_pair();
}

START_TEST(invalidated_window_refuses)
{
	refused_after(false);
}
END_TEST

START_TEST(freed_window_refuses)
{
	refused_after(true);
}
END_TEST

START_TEST(range_and_rights_are_enforced)
{
	static const struct {
		uint32_t rights;
		enum native_opcode opcode;
		uint64_t offset;
		uint32_t length;
	} bad[] = {
		{ESCROW_MAY_READ, NATIVE_WRITE, 4096, 64},
		{ESCROW_MAY_WRITE, NATIVE_READ, 4096, 64},
		{ESCROW_MAY_WRITE, NATIVE_WRITE, 4095, 64},
		{ESCROW_MAY_WRITE, NATIVE_WRITE, 8192 - 63, 64},
	};
	struct escrow_region_args args = {.size = sizeof(args),
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1,
					  .length = 4096};
	struct native_region *exact;
	struct native_window *w;
	struct native_wr wr;
	struct native_sge sge;

	connect_pair();
	ck_assert_int_eq(ops->alloc_window(b.context, &w), 0);
	/* A range of its own under the window, as where exact_windows is 0. */
	args.addr = b.bytes + 4096;
	ck_assert_int_eq(ops->register_region(b.context, &args, &exact, NULL), 0);
	wr = bind_wr(w, 4096, 4096, bad[_i].rights);
	if (!b.info.exact_windows)
		wr.region = exact;
	ck_assert_int_eq(run(&b, &wr), NATIVE_OK);
	memset(b.bytes, 2, BYTES);
	wr = move_wr(bad[_i].opcode, &sge, wr.rkey, bad[_i].offset, bad[_i].length);
	ck_assert_int_eq(run(&a, &wr), NATIVE_REMOTE_ACCESS);
	for (uint32_t i = 0; i < BYTES; i++)
		testing_assert_byte(b.bytes[i], 2, i);
	ck_assert_int_eq(ops->dealloc_window(w), 0);
	ck_assert_int_eq(ops->deregister_region(exact), 0);
	close_pair();
}
END_TEST

/* Q11 */
START_TEST(every_request_is_flushed_once_and_in_order)
{
	struct native_wr wr[16];
	struct native_sge sge[16];
	uint32_t posted = 0;

	connect_pair();
	ck_assert_int_eq(ops->conn_err(a.conn), 0);
	for (uint32_t i = 0; i < 16; i++) {
		wr[i] = move_wr(NATIVE_WRITE, &sge[i], 1, 0, 64);
		wr[i].id = 1000 + i;
		wr[i].next = i < 15 ? &wr[i + 1] : NULL;
		wr[i].flags = i == 15 ? NATIVE_SIGNALED : 0;
	}
	ck_assert_int_eq(ops->post(a.conn, wr, 16, &posted), 0);
	for (uint32_t i = 0; i < 16; i++) {
		struct native_cqe cqe = next_cqe(&a);

		ck_assert_uint_eq(cqe.id, 1000 + i);
		ck_assert_int_eq(cqe.status, NATIVE_FLUSHED);
	}
	ck_assert_int_eq(ops->conn_reset(a.conn), 0);
	close_pair();
}
END_TEST

START_TEST(messages_arrive_whole)
{
	struct native_wr wr;
	struct native_sge sge;
	struct native_cqe cqe;

	connect_pair();
	ck_assert_int_eq(ops->post_recv(b.conn, 77, b.region, (uint64_t)(uintptr_t)b.bytes, 4096),
			 0);
	memset(a.bytes, 9, 300);
	wr = move_wr(NATIVE_SEND, &sge, 0, 0, 300);
	ck_assert_int_eq(run(&a, &wr), NATIVE_OK);
	cqe = next_cqe(&b);
	ck_assert_uint_eq(cqe.id, 77);
	ck_assert_uint_eq(cqe.kind & NATIVE_RECV, NATIVE_RECV);
	ck_assert_uint_eq(cqe.bytes, 300);
	ck_assert_mem_eq(b.bytes, a.bytes, 300);
	close_pair();
}
END_TEST

START_TEST(a_request_can_be_rejected)
{
	struct native_rail_info rail;
	struct native_event event;

	end_prepare(&a);
	end_prepare(&b);
	end_conn(&a);
	ops->rail_info(b.native, 0, &rail);
	ck_assert_int_eq(ops->connect(a.conn, rail.address, "x", 1), 0);
	do {
		struct native_event none;

		ck_assert_int_eq(ops->next_event(a.native, &none), 0);
	} while (!ops->next_event(b.native, &event));
	ck_assert_int_eq(event.kind, NATIVE_EV_REQUEST);
	ck_assert_int_eq(ops->reject(b.native, event.request, "no", 2), 0);
	event = next_event(&a);
	ck_assert_int_eq(event.kind, NATIVE_EV_REJECTED);
	ck_assert_ptr_eq(event.conn, a.conn);
	ck_assert_mem_eq(event.data, "no", 2);
	close_pair();
}
END_TEST

START_TEST(nobody_there_is_said)
{
	struct native_rail_info rail;
	struct native_event event;

	end_prepare(&a);
	end_prepare(&b);
	end_conn(&a);
	ops->rail_info(b.native, 0, &rail);
	rail.address[2] ^= 0x55; /* another port, on which nobody listens */
	ck_assert_int_eq(ops->connect(a.conn, rail.address, "x", 1), 0);
	event = next_event(&a);
	ck_assert(event.kind == NATIVE_EV_REJECTED || event.kind == NATIVE_EV_UNREACHABLE);
	ck_assert_ptr_eq(event.conn, a.conn);
	rail.address[0] = 5; /* no address family */
	ck_assert_int_ne(ops->connect(a.conn, rail.address, "x", 1), 0);
	close_pair();
}
END_TEST

int main(void)
{
	struct escrow_error error = {.size = sizeof(error)};
	TCase *tc;
	Suite *s;

	if (end_open(&a, &error) != ESCROW_OK)
		return testing_skip(error.text);
	ops->free_native(a.native);
	s = suite_create("rdma-native");
	tc = tcase_create("native");
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, write_and_read_through_a_window);
	tcase_add_test(tc, invalidated_window_refuses);
	tcase_add_test(tc, freed_window_refuses);
	tcase_add_loop_test(tc, range_and_rights_are_enforced, 0, 4);
	tcase_add_test(tc, every_request_is_flushed_once_and_in_order);
	tcase_add_test(tc, messages_arrive_whole);
	tcase_add_test(tc, a_request_can_be_rejected);
	tcase_add_test(tc, nobody_there_is_said);
	suite_add_tcase(s, tc);
	return testing_run(s);
}
