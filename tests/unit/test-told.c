/* SPDX-License-Identifier: BSD-2-Clause */
/* What a host that does something wrong is told: by an error's text, or where a call has no place for one, by the log. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"

#define SIZE 4096u

static char memory[SIZE];
static struct escrow_host_engine *host;
static struct escrow_engine *engine;
static const struct fake_control *fake;
static uint64_t region, remote;

static char said[4][256]; /* the last texts, the newest first */
static uint32_t nsaid;
static int32_t nested; /* what a poll within a poll answered */

static void hear(void *ctx, int32_t level, const char *component, const char *text)
{
	struct escrow_event event;

	(void)ctx;
	(void)level;
	(void)component;
	memmove(said[1], said[0], sizeof(said) - sizeof(said[0]));
	snprintf(said[0], sizeof(said[0]), "%s", text);
	nsaid++;
	if (strstr(text, "poll of 1 events"))
		nested = escrow_poll(host, &event, 1);
}

static void open_with(int32_t log_level)
{
	struct escrow_host_args args = {.size = sizeof(args),
					.module = hosting_module("fake"),
					.engine_name = "test",
					.log = hear,
					.log_level = log_level};

	ck_assert_int_eq(escrow_open(&args, &host, NULL), ESCROW_OK);
	escrow_module_unref(args.module);
	region = hosting_register(host, memory, SIZE, NULL);
	remote = hosting_remote(host);
	fake = hosting_fake(host, &engine);
	nsaid = 0;
}

static bool was_said(const char *text)
{
	for (uint32_t i = 0; i < 4; i++)
		if (strstr(said[i], text))
			return true;
	return false;
}

/* ---- Two polls at once ------------------------------------------------------------------------- */
/* The second one is made where the first one is under way: by its log. */
START_TEST(a_poll_beside_another_is_refused)
{
	struct escrow_event event;

	open_with(ESCROW_LOG_ERROR);
	nested = 1;
	fake->exaggerate(engine, 5);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote,
					  (struct escrow_sge){region, 0, 8}, NULL),
			 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(escrow_poll(host, &event, 1), 1);
	ck_assert_uint_eq(event.kind, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(nested, ESCROW_E_BUSY);
	ck_assert(was_said("one at a time"));
	fake->exaggerate(engine, 0);
	/* Nothing is left of it: a poll polls, and release does not wait for ever. */
	hosting_expect_none(host);
	hosting_close(host);
}
END_TEST

/* ---- Handles of another engine ----------------------------------------------------------------- */
START_TEST(a_handle_of_another_engine_is_none)
{
	struct escrow_host_engine *first;
	uint64_t its_region, its_remote, its_op, id;

	open_with(ESCROW_LOG_ERROR);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote,
					  (struct escrow_sge){region, 0, 8}, &its_op),
			 1);
	first = host;
	its_region = region;
	its_remote = remote;
	open_with(ESCROW_LOG_ERROR);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote,
					  (struct escrow_sge){its_region, 0, 8}, NULL),
			 ESCROW_E_INVALID);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, its_remote,
					  (struct escrow_sge){region, 0, 8}, NULL),
			 ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_deregister(host, its_region), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_forget_grant(host, its_remote), ESCROW_E_INVALID);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote,
					  (struct escrow_sge){region, 0, 8}, &id),
			 1);
	ck_assert_int_eq(escrow_cancel(host, its_op), ESCROW_E_INVALID);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_finish(first, ESCROW_CUSTODY_RETURNED);
	hosting_close(host);
	hosting_close(first);
}
END_TEST

/* ---- Why a transfer is refused ------------------------------------------------------------------ */
static const struct refusal {
	struct escrow_op op;
	struct escrow_sge range; /* region 0: the one that there is */
	bool no_ranges;
	escrow_status status;
	const char *text;
} refusals[] = {
	{{.remote = 77, .nsge = 1}, {0, 0, 8}, false, ESCROW_E_INVALID, "remote 0x4d: this engine"},
	{{.nsge = 1}, {77, 0, 8}, false, ESCROW_E_INVALID, "range 0: region 0x4d: this engine"},
	{{.nsge = 1}, {0, SIZE - 7, 8}, false, ESCROW_E_INVALID, "8 bytes from 4089 on: region 0x"},
	{{.nsge = 1}, {0, 0, SIZE + 1}, false, ESCROW_E_INVALID, " has 4096"},
	{{.nsge = 1}, {0, 8, UINT64_MAX}, false, ESCROW_E_INVALID, " has 4096"},
	{{.nsge = 2}, {0, 0, 8}, true, ESCROW_E_INVALID, "nsge 2, sge (nil): 0 to "},
	{{.nsge = 1000}, {0, 0, 8}, false, ESCROW_E_LIMIT, "nsge 1000, sge 0x"},
};

START_TEST(the_log_says_why_a_transfer_is_refused)
{
	const struct refusal *r = &refusals[_i];
	struct escrow_sge range = r->range;
	struct escrow_op op = r->op;
	uint64_t id;

	open_with(ESCROW_LOG_DEBUG);
	range.region = range.region ? range.region : region;
	op.remote = op.remote ? op.remote : remote;
	op.opcode = ESCROW_WRITE;
	op.sge = r->no_ranges ? NULL : &range;
	ck_assert_int_eq(escrow_transfer(host, &op, 1, sizeof(op), 0, &id), r->status);
	ck_assert_msg(strstr(said[0], r->text) != NULL, "said: %s", said[0]);
	hosting_close(host);
}
END_TEST

START_TEST(the_log_says_what_the_backend_refused)
{
	struct escrow_sge range = {region, 8, 16};

	open_with(ESCROW_LOG_DEBUG);
	range.region = region;
	fake->fill(engine, 1);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote, range, NULL), ESCROW_E_AGAIN);
	ck_assert_uint_eq(nsaid, 0); /* no mistake */
	fake->fill(engine, 0);
	ck_assert_int_eq(escrow_borrow_for_write(host, region, 0, 16), ESCROW_OK);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote, range, NULL), ESCROW_E_BUSY);
	ck_assert_msg(strstr(said[0], "E_BUSY: opcode 2, flags 0, 16 bytes from 0 on of remote 0x"),
		      "said: %s", said[0]);
	ck_assert_int_eq(escrow_return(host, region, 0, 16), ESCROW_OK);
	hosting_close(host);
}
END_TEST

START_TEST(the_log_says_what_a_call_lacks)
{
	struct escrow_op op = {.remote = 1};

	open_with(ESCROW_LOG_DEBUG);
	ck_assert_int_eq(escrow_transfer(host, &op, 1, 60, 0, &op.user), ESCROW_E_INVALID);
	ck_assert_msg(strstr(said[0], "stride 60") != NULL, "said: %s", said[0]);
	ck_assert_int_eq(escrow_transfer(host, &op, 1, sizeof(op), 0, NULL), ESCROW_E_INVALID);
	ck_assert_msg(strstr(said[0], "handles at (nil)") != NULL, "said: %s", said[0]);
	hosting_close(host);
}
END_TEST

START_TEST(nobody_is_told_who_does_not_listen)
{
	open_with(ESCROW_LOG_INFO);
	ck_assert_int_eq(
		hosting_transfer(host, ESCROW_WRITE, 77, (struct escrow_sge){region, 0, 8}, NULL),
		ESCROW_E_INVALID);
	ck_assert_uint_eq(nsaid, 0);
	hosting_close(host);
}
END_TEST

/* ---- Texts of errors ----------------------------------------------------------------------------- */
START_TEST(an_error_names_the_handle)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_grant_args grant = {.size = sizeof(grant),
					  .rights = ESCROW_MAY_READ,
					  .peer = 77,
					  .region = 78,
					  .length = 8};
	struct escrow_remote_args import = {
		.size = sizeof(import), .peer = 77, .bytes = "x", .len = 1};
	uint64_t handle;

	open_with(ESCROW_LOG_ERROR);
	ck_assert_int_eq(escrow_grant(host, &grant, &handle, &error), ESCROW_E_INVALID);
	ck_assert_str_eq(error.text, "grant: region 0x4e: this engine has no such region");
	grant.region = region;
	ck_assert_int_eq(escrow_grant(host, &grant, &handle, &error), ESCROW_E_INVALID);
	ck_assert_str_eq(error.text, "grant: peer 0x4d: this engine has no such peer");
	ck_assert_int_eq(escrow_import_grant(host, &import, &handle, &error), ESCROW_E_INVALID);
	ck_assert_str_eq(error.text, "import: peer 0x4d: this engine has no such peer");
	hosting_close(host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("told");
	TCase *tcase = tcase_create("mistakes");

	tcase_add_test(tcase, a_poll_beside_another_is_refused);
	tcase_add_test(tcase, a_handle_of_another_engine_is_none);
	tcase_add_loop_test(tcase, the_log_says_why_a_transfer_is_refused, 0,
			    (int)(sizeof(refusals) / sizeof(refusals[0])));
	tcase_add_test(tcase, the_log_says_what_the_backend_refused);
	tcase_add_test(tcase, the_log_says_what_a_call_lacks);
	tcase_add_test(tcase, nobody_is_told_who_does_not_listen);
	tcase_add_test(tcase, an_error_names_the_handle);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
