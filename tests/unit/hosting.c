/* SPDX-License-Identifier: BSD-2-Clause */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"
#include "tests/unit/modules.h"

struct escrow_module *hosting_module(const char *name)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_load_args args = {.size = sizeof(args)};
	struct escrow_module *module = NULL;

	if (strcmp(name, "mock") == 0 || strcmp(name, "rdma") == 0)
		args.name = name;
	else
		args.name = modules_path(name);
	ck_assert_msg(escrow_load(&args, &module, &error) == ESCROW_OK, "%s", error.text);
	return module;
}

uint64_t (*hosting_clock)(void *ctx);

uint64_t hosting_work_clock(void *ctx)
{
	static _Atomic uint64_t now = 1000000000;

	return atomic_fetch_add(&now, 10000);
}

struct escrow_host_engine *hosting_open(struct escrow_module *module, uint32_t flags,
					const char *const *settings)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_host_args args = {.size = sizeof(args),
					.flags = flags,
					.module = module,
					.engine_name = "test",
					.settings = settings,
					.now_ns = hosting_clock};
	struct escrow_host_engine *host = NULL;

	ck_assert_msg(escrow_open(&args, &host, &error) == ESCROW_OK, "%s", error.text);
	return host;
}

static void count_free(void *ctx, void *addr, uint64_t length)
{
	(*(int *)ctx)++;
}

uint64_t hosting_register(struct escrow_host_engine *host, void *addr, uint64_t length, int *freed)
{
	struct escrow_region args = {.size = sizeof(args),
				     .user = 77,
				     .addr = addr,
				     .length = length,
				     .memory_kind = ESCROW_MEMORY_HOST,
				     .dmabuf_fd = -1,
				     .free = freed ? count_free : NULL,
				     .free_ctx = freed};
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t region = 0;

	ck_assert_msg(escrow_register(host, &args, &region, &error) == ESCROW_OK, "%s", error.text);
	ck_assert_uint_ne(region, 0);
	return region;
}

struct escrow_event hosting_expect(struct escrow_host_engine *host, uint16_t kind)
{
	struct escrow_event event = {0};

	ck_assert_int_eq(escrow_poll(host, &event, 1), 1);
	ck_assert_uint_eq(event.kind, kind);
	return event;
}

void hosting_expect_none(struct escrow_host_engine *host)
{
	struct escrow_event event = {0};

	ck_assert_msg(escrow_poll(host, &event, 1) == 0, "an event of kind %u", event.kind);
}

struct escrow_event hosting_wait(struct escrow_host_engine *host, uint16_t kind)
{
	struct escrow_event event = {0};

	for (;;) {
		int32_t n = escrow_poll(host, &event, 1);

		ck_assert_int_ge(n, 0);
		if (n == 1 && event.kind == kind)
			return event;
		if (n == 0)
			sched_yield();
	}
}

void hosting_close(struct escrow_host_engine *host)
{
	ck_assert_int_ge(escrow_close(host, 0, ESCROW_CLOSE_GRACEFUL), 0);
	hosting_wait(host, ESCROW_EV_CLOSED);
	ck_assert_int_eq(escrow_release(host), ESCROW_OK);
}

uint64_t hosting_remote(struct escrow_host_engine *host)
{
	struct escrow_peer_args peer_args = {.size = sizeof(peer_args),
					     .user = 5,
					     .peer_name = "fake",
					     .invitation = "x",
					     .invitation_len = 1};
	struct escrow_remote_args args = {.size = sizeof(args), .bytes = "fake", .len = 4};
	uint64_t remote;

	ck_assert_int_eq(escrow_connect(host, &peer_args, &args.peer, NULL), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(hosting_expect(host, ESCROW_EV_PEER_UP).object, args.peer);
	ck_assert_int_eq(escrow_import_grant(host, &args, &remote, NULL), ESCROW_OK);
	return remote;
}

int32_t hosting_transfer(struct escrow_host_engine *host, uint32_t opcode, uint64_t remote,
			 struct escrow_sge range, uint64_t *op)
{
	struct escrow_op args = {
		.user = 42, .remote = remote, .opcode = opcode, .nsge = 1, .sge = &range};
	uint64_t id = 0;
	int32_t n = escrow_transfer(host, &args, 1, sizeof(args), 0, &id);

	if (op && n == 1)
		*op = id;
	return n;
}

const struct fake_control *hosting_fake(struct escrow_host_engine *host,
					struct escrow_engine **engine)
{
	*engine = escrow_backend_engine(host, NULL);
	return escrow_get_extension(host, FAKE_ID);
}

void hosting_finish(struct escrow_host_engine *host, uint8_t custody)
{
	struct escrow_engine *engine;
	const struct fake_control *fake = hosting_fake(host, &engine);

	ck_assert_int_eq(fake->finish(engine, custody), 1);
}
