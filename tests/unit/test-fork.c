/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host engine in a child of fork: every function of escrow.h that takes one refuses, by libescrow itself (the fake
 * backend knows of no fork), and the parent goes on.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <glib.h>

#include "tests/lib/leave.h"
#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"
#include "tests/unit/modules.h"

#define SIZE 4096u
#define ENGINE_FIRST "(struct escrow_host_engine *engine"

static char memory[SIZE];
static struct escrow_host_engine *host;
static uint64_t region, remote, op;

static void setup(void)
{
	host = hosting_open(hosting_module("fake"), 0, NULL);
	region = hosting_register(host, memory, SIZE, NULL);
	remote = hosting_remote(host);
}

/* ---- One call each, which the parent would be told anything but E_STATE */

/* Where a function answers no status: what it gives in a child is nothing. */
static int32_t nothing_is_state(bool nothing)
{
	return nothing ? ESCROW_E_STATE : ESCROW_OK;
}

static int32_t call_close(void)
{
	return escrow_close(host, 0, ESCROW_CLOSE_ABORT);
}

/* An engine that has not ended is E_STATE anywhere: this one has ended. */
static struct escrow_host_engine *ended;

static int32_t call_release(void)
{
	return escrow_release(ended);
}

static int32_t call_query(void)
{
	struct escrow_limits limits = {.size = sizeof(limits)};

	return escrow_query(host, &limits);
}

static int32_t call_current(void)
{
	return nothing_is_state(!escrow_current(host, NULL));
}

static int32_t call_register(void)
{
	struct escrow_region args = {.size = sizeof(args),
				     .addr = memory,
				     .length = 64,
				     .memory_kind = ESCROW_MEMORY_HOST,
				     .dmabuf_fd = -1};
	uint64_t handle;

	return escrow_register(host, &args, &handle, NULL);
}

static int32_t call_deregister(void)
{
	return escrow_deregister(host, region);
}

static int32_t call_borrow_for_read(void)
{
	return escrow_borrow_for_read(host, region, SIZE / 2, 1);
}

static int32_t call_borrow_for_write(void)
{
	return escrow_borrow_for_write(host, region, SIZE / 2, 1);
}

static int32_t call_return(void)
{
	return escrow_return(host, region, SIZE / 2, 1);
}

static int32_t call_invite(void)
{
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = "b"};
	uint64_t len = 0;

	return escrow_invite(host, &args, NULL, &len);
}

static int32_t call_connect(void)
{
	struct escrow_peer_args args = {
		.size = sizeof(args), .peer_name = "c", .invitation = "x", .invitation_len = 1};
	uint64_t peer;

	return escrow_connect(host, &args, &peer, NULL);
}

static int32_t call_disconnect(void)
{
	return escrow_disconnect(host, 1);
}

static int32_t call_peer_info(void)
{
	struct escrow_peer_info info = {.size = sizeof(info)};

	return escrow_peer_info(host, 1, &info);
}

static int32_t call_grant(void)
{
	struct escrow_grant_args args = {
		.size = sizeof(args), .rights = ESCROW_MAY_READ, .region = region, .length = 1};
	uint64_t grant;

	return escrow_grant(host, &args, &grant, NULL);
}

static int32_t call_export_grant(void)
{
	uint64_t len = 0;

	return escrow_export_grant(host, 1, NULL, &len);
}

static int32_t call_revoke(void)
{
	return escrow_revoke(host, 1);
}

static int32_t call_import_grant(void)
{
	struct escrow_remote_args args = {.size = sizeof(args), .bytes = "fake", .len = 4};
	uint64_t handle;

	return escrow_import_grant(host, &args, &handle, NULL);
}

static int32_t call_forget_grant(void)
{
	return escrow_forget_grant(host, remote);
}

static int32_t call_transfer(void)
{
	return hosting_transfer(host, ESCROW_READ, remote, (struct escrow_sge){region, SIZE / 2, 1},
				NULL);
}

static int32_t call_cancel(void)
{
	return escrow_cancel(host, op);
}

static int32_t call_poll(void)
{
	struct escrow_event event;

	return escrow_poll(host, &event, 1);
}

static int32_t call_event_fd(void)
{
	return escrow_event_fd(host);
}

static int32_t call_arm(void)
{
	return escrow_arm(host);
}

static void drop_event(void *ctx, const struct escrow_event *event)
{
}

static int32_t call_source_new(void)
{
	return nothing_is_state(!escrow_source_new(host, drop_event, NULL));
}

static int32_t call_quiesce(void)
{
	return escrow_quiesce(host);
}

static int32_t call_resume(void)
{
	return escrow_resume(host);
}

static int32_t call_drain(void)
{
	return escrow_drain(host, 0, 0);
}

static int32_t call_charges(void)
{
	return escrow_charges(host, NULL, 0);
}

static int32_t call_records(void)
{
	uint64_t cursor = 0;

	return escrow_records(host, &cursor, NULL, 0);
}

static int32_t call_backend_engine(void)
{
	return nothing_is_state(!escrow_backend_engine(host, NULL));
}

static int32_t call_backend_handle(void)
{
	return nothing_is_state(!escrow_backend_handle(host, region));
}

static int32_t call_get_extension(void)
{
	return nothing_is_state(!escrow_get_extension(host, FAKE_ID));
}

static int32_t call_swap_begin(void)
{
	struct escrow_swap_args args = {.size = sizeof(args), .module = hosting_module("fake")};
	struct escrow_swap *swap;

	return escrow_swap_begin(host, &args, &swap, NULL);
}

static const struct {
	const char *name; /* behind "escrow_" */
	int32_t (*call)(void);
} calls[] = {
	{"close", call_close},
	{"release", call_release},
	{"query", call_query},
	{"current", call_current},
	{"register", call_register},
	{"deregister", call_deregister},
	{"borrow_for_read", call_borrow_for_read},
	{"borrow_for_write", call_borrow_for_write},
	{"return", call_return},
	{"invite", call_invite},
	{"connect", call_connect},
	{"disconnect", call_disconnect},
	{"peer_info", call_peer_info},
	{"grant", call_grant},
	{"export_grant", call_export_grant},
	{"revoke", call_revoke},
	{"import_grant", call_import_grant},
	{"forget_grant", call_forget_grant},
	{"transfer", call_transfer},
	{"cancel", call_cancel},
	{"poll", call_poll},
	{"event_fd", call_event_fd},
	{"arm", call_arm},
	{"source_new", call_source_new},
	{"quiesce", call_quiesce},
	{"resume", call_resume},
	{"drain", call_drain},
	{"charges", call_charges},
	{"records", call_records},
	{"backend_engine", call_backend_engine},
	{"backend_handle", call_backend_handle},
	{"get_extension", call_get_extension},
	{"swap_begin", call_swap_begin},
};
#define NCALLS (sizeof(calls) / sizeof(calls[0]))

/* Runs work in a child, which writes into shared memory; what it wrote stays valid. */
static int32_t *in_a_child(void (*work)(int32_t *out))
{
	int32_t *out = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = -1;
	pid_t child;

	ck_assert_ptr_ne(out, MAP_FAILED);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		work(out);
		leave(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	return out;
}

static void make_all_calls(int32_t *out)
{
	for (size_t i = 0; i < NCALLS; i++)
		out[i] = calls[i].call();
}

START_TEST(every_function_that_takes_an_engine_refuses)
{
	int32_t *got;

	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
					  (struct escrow_sge){region, 0, SIZE / 2}, &op),
			 1);
	ended = hosting_open(hosting_module("fake"), 0, NULL);
	ck_assert_int_ge(escrow_close(ended, 0, ESCROW_CLOSE_GRACEFUL), 0);
	hosting_wait(ended, ESCROW_EV_CLOSED);
	got = in_a_child(make_all_calls);
	for (size_t i = 0; i < NCALLS; i++)
		ck_assert_msg(got[i] == ESCROW_E_STATE, "escrow_%s: %s, not E_STATE", calls[i].name,
			      got[i] < 0 ? escrow_status_name(got[i]) : "no error");
	munmap(got, SIZE);
	/* and the parent has what it had */
	ck_assert_int_eq(escrow_release(ended), ESCROW_OK);
	ck_assert_int_eq(escrow_borrow_for_write(host, region, 0, 1), ESCROW_E_BUSY);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(hosting_expect(host, ESCROW_EV_OP_DONE).object, op);
	ck_assert_int_eq(call_transfer(), 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_expect(host, ESCROW_EV_OP_DONE);
	hosting_close(host);
}
END_TEST

static bool is_called(const char *name, size_t len)
{
	for (size_t i = 0; i < NCALLS; i++) {
		if (strlen(calls[i].name) == len && strncmp(calls[i].name, name, len) == 0)
			return true;
	}
	return false;
}

START_TEST(the_table_has_every_such_function_of_the_header)
{
	g_autofree char *path = g_build_filename(getenv("top_srcdir"), "plugin/escrow.h", NULL);
	g_autofree char *text = NULL;
	size_t found = 0;

	ck_assert(g_file_get_contents(path, &text, NULL, NULL));
	for (const char *at = strstr(text, ENGINE_FIRST); at; at = strstr(at + 1, ENGINE_FIRST)) {
		const char *name = at;

		while (name > text && (g_ascii_isalnum(name[-1]) || name[-1] == '_'))
			name--;
		ck_assert_int_eq(strncmp(name, "escrow_", 7), 0);
		ck_assert_msg(is_called(name + 7, (size_t)(at - name) - 7), "%.*s is not called",
			      (int)(at - name), name);
		found++;
	}
	ck_assert_uint_eq(found, NCALLS);
	hosting_close(host);
}
END_TEST

static void count_entry(void *ctx, const struct escrow_ledger_engine *entry)
{
	++*(int32_t *)ctx;
}

static void ask_of_the_process(int32_t *out)
{
	struct escrow_quota limits = {.size = sizeof(limits), .regions = 7}, in_use = limits;
	uint64_t bytes = 0;

	out[0] = escrow_ledger(count_entry, &out[1]);
	out[2] = escrow_withheld(NULL, 0, &bytes);
	out[3] = escrow_quota_set_peer("b", NULL);
	out[4] = escrow_quota_get_peer("b", &limits, NULL);
	escrow_quota_get(&limits, &in_use);
	out[5] = (int32_t)(limits.regions | in_use.regions);
	out[6] = (int32_t)(limits.size - sizeof(limits));
	escrow_quota_set(&limits);
}

/* What walks the engines, or takes a lock that they take. */
START_TEST(what_is_of_the_whole_process_is_of_the_parent)
{
	struct escrow_quota limits = {.size = sizeof(limits)};
	int32_t *got = in_a_child(ask_of_the_process);

	ck_assert_int_eq(got[0], ESCROW_E_STATE);
	ck_assert_int_eq(got[1], 0);
	for (int i = 2; i <= 4; i++)
		ck_assert_int_eq(got[i], ESCROW_E_STATE);
	ck_assert_int_eq(got[5], 0);
	ck_assert_int_eq(got[6], 0);
	munmap(got, SIZE);
	escrow_quota_get(&limits, NULL);
	ck_assert_uint_eq(limits.regions, UINT64_MAX);
	hosting_close(host);
}
END_TEST

static void ask_before(int32_t *out)
{
	out[0] = escrow_withheld(NULL, 0, NULL);
	out[1] = escrow_quota_set_peer("b", NULL);
	host = hosting_open(hosting_module("fake"), 0, NULL);
	out[2] = escrow_ledger(count_entry, &out[3]);
	hosting_close(host);
}

START_TEST(a_child_of_a_process_without_an_engine_is_like_any_other)
{
	int32_t *got = in_a_child(ask_before);

	ck_assert_int_eq(got[0], 0);
	ck_assert_int_eq(got[1], ESCROW_OK);
	ck_assert_int_eq(got[2], 1);
	ck_assert_int_eq(got[3], 1);
	munmap(got, SIZE);
}
END_TEST

static struct escrow_swap *swap;

static void use_the_swap(int32_t *out)
{
	out[0] = escrow_swap_advance(swap, NULL);
	out[1] = escrow_swap_supply(swap, ESCROW_CARRY_STOP, 1, NULL, 0);
	out[2] = escrow_swap_free(swap);
}

START_TEST(a_swap_goes_on_in_the_parent_only)
{
	struct escrow_swap_args args = {.size = sizeof(args), .module = hosting_module("fake")};
	int32_t *got;

	hosting_close(host); /* one without peers needs nobody to carry */
	host = hosting_open(hosting_module("fake"), 0, NULL);
	ck_assert_int_eq(escrow_swap_begin(host, &args, &swap, NULL), ESCROW_OK);
	got = in_a_child(use_the_swap);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(got[i], ESCROW_E_STATE);
	munmap(got, SIZE);
	while (escrow_swap_advance(swap, NULL) == ESCROW_IN_PROGRESS) {
		struct escrow_event event;

		ck_assert_int_eq(escrow_poll(host, &event, 1), 0);
	}
	ck_assert_int_eq(escrow_swap_free(swap), ESCROW_OK);
	hosting_close(host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork");
	TCase *tcase = tcase_create("before");

	tcase_add_test(tcase, a_child_of_a_process_without_an_engine_is_like_any_other);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("fork");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, every_function_that_takes_an_engine_refuses);
	tcase_add_test(tcase, the_table_has_every_such_function_of_the_header);
	tcase_add_test(tcase, a_swap_goes_on_in_the_parent_only);
	tcase_add_test(tcase, what_is_of_the_whole_process_is_of_the_parent);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
