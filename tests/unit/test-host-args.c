/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Structs of another length than libescrow knows: of a shorter one nothing is read behind its size, of a longer one
 * nothing that was asked for is left out in silence.
 */
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"

#define PAGE 4096u

static char memory[4096];
static struct escrow_host_engine *host;
static struct escrow_region region_args;
static struct escrow_peer_args peer_args;
static struct escrow_invite_args invite_args;
static struct escrow_grant_args grant_args;
static struct escrow_remote_args remote_args;
static struct escrow_host_args host_args;
static struct escrow_swap_args swap_args;
static struct escrow_load_args load_args;
static struct escrow_probe_args probe_args;

static escrow_status call_register(const void *args)
{
	uint64_t out;

	return escrow_register(host, args, &out, NULL);
}

static escrow_status call_connect(const void *args)
{
	uint64_t out;

	return escrow_connect(host, args, &out, NULL);
}

static escrow_status call_invite(const void *args)
{
	uint64_t len = 0;

	return escrow_invite(host, args, NULL, &len);
}

static escrow_status call_grant(const void *args)
{
	uint64_t out;

	return escrow_grant(host, args, &out, NULL);
}

static escrow_status call_import(const void *args)
{
	uint64_t out;

	return escrow_import_grant(host, args, &out, NULL);
}

static escrow_status call_open(const void *args)
{
	struct escrow_host_engine *out;

	return escrow_open(args, &out, NULL);
}

static escrow_status call_rails(const void *args)
{
	return escrow_rails(args, NULL, 0, 0, NULL);
}

static escrow_status call_swap(const void *args)
{
	struct escrow_swap *out;

	return escrow_swap_begin(host, args, &out, NULL);
}

static escrow_status call_load(const void *args)
{
	struct escrow_module *out;

	return escrow_load(args, &out, NULL);
}

static escrow_status call_probe(const void *args)
{
	return escrow_probe(args, NULL, NULL);
}

#define CALL(name, args)                                                                           \
	{                                                                                          \
		call_##name, &(args), sizeof(args)                                                 \
	}

static const struct {
	escrow_status (*call)(const void *args);
	const void *args; /* good ones */
	uint32_t size;
} calls[] = {
	CALL(register, region_args), CALL(connect, peer_args),  CALL(invite, invite_args),
	CALL(grant, grant_args),     CALL(import, remote_args), CALL(open, host_args),
	CALL(rails, host_args),      CALL(swap, swap_args),     CALL(load, load_args),
	CALL(probe, probe_args),
};

static void setup(void)
{
	struct escrow_module *module = hosting_module("fake");

	host = hosting_open(module, 0, NULL);
	region_args = (struct escrow_region){.addr = memory,
					     .length = sizeof(memory),
					     .memory_kind = ESCROW_MEMORY_HOST,
					     .dmabuf_fd = -1};
	peer_args = (struct escrow_peer_args){
		.peer_name = "fake", .invitation = "x", .invitation_len = 1};
	invite_args.peer_name = "fake";
	grant_args = (struct escrow_grant_args){.rights = 1, .length = 1};
	grant_args.region = hosting_register(host, memory, sizeof(memory), NULL);
	remote_args.bytes = "fake";
	remote_args.len = 4;
	host_args.engine_name = "other";
	host_args.module = swap_args.module = module;
	load_args.name = probe_args.path = "/nowhere.so";
}

START_TEST(a_tail_that_is_not_known_is_refused)
{
	uint64_t bytes[64] = {0};
	uint32_t size = calls[_i].size + 16;

	ck_assert_uint_le(size, sizeof(bytes));
	memcpy(bytes, calls[_i].args, calls[_i].size);
	memcpy(bytes, &size, sizeof(size));
	((char *)bytes)[size - 1] = 1;
	ck_assert_int_eq(calls[_i].call(bytes), ESCROW_E_UNSUPPORTED);
}
END_TEST

/* Behind them is nothing that could be read. */
START_TEST(args_that_are_too_short_are_not_read)
{
	char *pages =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t size = 8;

	ck_assert_ptr_ne(pages, MAP_FAILED);
	ck_assert_int_eq(mprotect(pages + PAGE, PAGE, PROT_NONE), 0);
	memcpy(pages + PAGE - size, &size, sizeof(size));
	ck_assert_int_eq(calls[_i].call(pages + PAGE - size), ESCROW_E_INVALID);
	ck_assert_int_eq(calls[_i].call(NULL), ESCROW_E_INVALID);
}
END_TEST

START_TEST(unknown_flags_of_an_import_are_refused)
{
	remote_args.size = sizeof(remote_args);
	remote_args.flags = 1;
	ck_assert_int_eq(call_import(&remote_args), ESCROW_E_UNSUPPORTED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("host-args");
	TCase *tcase = tcase_create("structs");
	int n = (int)(sizeof(calls) / sizeof(calls[0]));

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, a_tail_that_is_not_known_is_refused, 0, n);
	tcase_add_loop_test(tcase, args_that_are_too_short_are_not_read, 0, n);
	tcase_add_test(tcase, unknown_flags_of_an_import_are_refused);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
