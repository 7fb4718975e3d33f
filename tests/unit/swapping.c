/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/swapping.h"

struct swapping sw;

static uint64_t test_clock(void *ctx)
{
	return sw.clock_ns += sw.tick_ns;
}

void swapping_setup(void)
{
	struct escrow_host_args args = {
		.size = sizeof(args), .engine_name = "test", .now_ns = test_clock};
	struct escrow_grant_args grant_args = {
		.size = sizeof(grant_args), .rights = 1, .length = 1};

	memset(&sw, 0, sizeof(sw));
	sw.answer = 1;
	sw.clock_ns = 1000;
	sw.close_ns = 100;
	args.module = sw.module = hosting_module("fake");
	ck_assert_int_eq(escrow_open(&args, &sw.host, NULL), ESCROW_OK);
	sw.region = hosting_register(sw.host, sw.memory, SWAPPING_SIZE, &sw.freed);
	sw.remote = hosting_remote(sw.host);
	grant_args.region = sw.region;
	ck_assert_int_eq(escrow_grant(sw.host, &grant_args, &sw.grant, NULL), ESCROW_IN_PROGRESS);
	hosting_expect(sw.host, ESCROW_EV_GRANT_READY);
}

static escrow_status fail_at(void *ctx, uint32_t step)
{
	if (step == sw.step)
		sw.at_step();
	return step == sw.veto ? ESCROW_E_REFUSED : ESCROW_OK;
}

/* The fake's peer answers everything at once. */
static escrow_status carry(void *ctx, const struct escrow_carry *message)
{
	sw.carried[message->kind]++;
	if (message->kind == ESCROW_CARRY_WANT_INVITATION)
		sw.peer = message->peer;
	if (!sw.answer)
		return ESCROW_OK;
	if (message->kind == ESCROW_CARRY_WANT_INVITATION || message->kind == ESCROW_CARRY_STOP)
		return escrow_swap_supply(sw.under_way, message->kind, message->peer, "x", 1);
	if (message->kind == ESCROW_CARRY_WANT_GRANT)
		return escrow_swap_supply(sw.under_way, message->kind, message->object, "fake", 4);
	return ESCROW_OK;
}

escrow_status swapping_begin_with(uint32_t flags, const char *const *settings)
{
	struct escrow_swap_args args = {.size = sizeof(args),
					.flags = flags,
					.module = sw.module,
					.settings = settings,
					.carry = carry,
					.fail = fail_at,
					.peers_ns = 100,
					.lease_ns = 100,
					.drain_ns = 100,
					.close_ns = sw.close_ns};

	return escrow_swap_begin(sw.host, &args, &sw.under_way, NULL);
}

void swapping_begin(uint32_t flags)
{
	ck_assert_int_eq(swapping_begin_with(flags, NULL), ESCROW_OK);
}

static void take_events(void)
{
	struct escrow_event event;

	for (uint32_t n = 0; (!sw.polls || n < sw.polls) && escrow_poll(sw.host, &event, 1) == 1;
	     n++) {
		ck_assert_uint_ne(event.kind, ESCROW_EV_CLOSED);
		sw.told[event.kind % 32]++;
	}
}

escrow_status swapping_finish(struct escrow_error *error)
{
	escrow_status status = ESCROW_IN_PROGRESS;

	for (int i = 0; i < 1000 && status == ESCROW_IN_PROGRESS; i++) {
		take_events();
		status = escrow_swap_advance(sw.under_way, error);
		sw.clock_ns += i > 100 ? 10 : 0;
	}
	ck_assert_int_ne(status, ESCROW_IN_PROGRESS);
	return status;
}

int32_t swapping_take_records(void)
{
	int32_t n = escrow_swap_records(sw.under_way, sw.records, SWAPPING_RECORDS);

	ck_assert_int_le(n, SWAPPING_RECORDS);
	ck_assert_int_eq(escrow_swap_free(sw.under_way), ESCROW_OK);
	return n;
}

uint64_t swapping_generation(void)
{
	uint64_t number;

	return escrow_current(sw.host, &number) ? number : 0;
}

uint32_t swapping_engines(void)
{
	struct escrow_module_info info = {.size = sizeof(info)};

	ck_assert_int_eq(escrow_module_info(sw.module, &info), ESCROW_OK);
	return info.engines;
}

void swapping_assert_serves(void)
{
	uint64_t op;

	ck_assert_int_eq(hosting_transfer(sw.host, ESCROW_WRITE, sw.remote,
					  (struct escrow_sge){sw.region, 0, 8}, &op),
			 1);
	hosting_finish(sw.host, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(hosting_wait(sw.host, ESCROW_EV_OP_DONE).object, op);
}
