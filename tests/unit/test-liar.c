/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A backend that contradicts itself.  libescrow cannot know what its device does, but it gives no
 * memory back on words that its own books say are untrue, and it keeps its tables whole.
 */
#include <stdbool.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"
#include "tests/unit/modules.h"

static char memory[4096];
static struct escrow_host_engine *host;
static uint64_t region, remote;
static int freed;

static void say(struct escrow_event event)
{
	struct escrow_engine *engine;
	const struct fake_control *control = hosting_fake(host, &engine);

	control->say(engine, &event);
}

static void setup(void)
{
	freed = 0;
	host = hosting_open(hosting_module("fake"), 0, NULL);
	remote = hosting_remote(host);
	region = hosting_register(host, memory, sizeof(memory), &freed);
}

static int32_t op(uint64_t *id)
{
	return hosting_transfer(host, ESCROW_READ, remote, (struct escrow_sge){region, 0, 64}, id);
}

START_TEST(a_region_that_nobody_gave_back_is_not_freed)
{
	uint64_t handle = escrow_backend_handle(host, region), other;

	say((struct escrow_event){
		.kind = ESCROW_EV_REGION_RELEASED, .object = handle, .user = region});
	hosting_expect_none(host);
	ck_assert_int_eq(freed, 0);
	/* nor one that another was given back for */
	other = hosting_register(host, memory, 64, NULL);
	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(hosting_expect(host, ESCROW_EV_REGION_RELEASED).object, region);
	ck_assert_int_eq(freed, 1);
	say((struct escrow_event){
		.kind = ESCROW_EV_REGION_RELEASED, .object = handle, .user = other});
	say((struct escrow_event){
		.kind = ESCROW_EV_REGION_RELEASED, .object = handle, .user = region});
	hosting_expect_none(host);
	ck_assert_int_eq(escrow_deregister(host, other), ESCROW_IN_PROGRESS);
	hosting_expect(host, ESCROW_EV_REGION_RELEASED);
	ck_assert_int_eq(freed, 1);
	hosting_close(host);
}
END_TEST

/* It said that the device may still touch the bytes, and never took that back. */
START_TEST(a_region_with_held_bytes_is_withheld_whatever_is_said)
{
	struct escrow_withheld list[1];
	uint64_t bytes, id;

	ck_assert_int_eq(op(&id), 1);
	hosting_finish(host, ESCROW_CUSTODY_HELD);
	ck_assert_uint_eq(hosting_expect(host, ESCROW_EV_OP_DONE).custody, ESCROW_CUSTODY_HELD);
	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_E_BUSY);
	/* the fake ends its regions before it looks at its ops */
	ck_assert_int_eq(escrow_close(host, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	hosting_wait(host, ESCROW_EV_QUARANTINED);
	ck_assert_int_eq(freed, 0);
	ck_assert_int_eq(escrow_withheld(list, 1, &bytes), 1);
	ck_assert_ptr_eq(list[0].addr, memory);
	ck_assert_uint_eq(bytes, sizeof(memory));
	ck_assert_int_eq(escrow_release(host), ESCROW_OK);
	ck_assert_int_eq(freed, 0);
	ck_assert_int_eq(escrow_withheld(list, 1, &bytes), 1);
}
END_TEST

/* A custody of a later revision, or none at all, gives nothing back. */
START_TEST(an_unknown_custody_is_held)
{
	uint64_t id;

	ck_assert_int_eq(op(&id), 1);
	hosting_finish(host, 7);
	ck_assert_uint_eq(hosting_expect(host, ESCROW_EV_OP_DONE).object, id);
	ck_assert_int_eq(escrow_borrow_for_read(host, region, 0, 1), ESCROW_E_BUSY);
	say((struct escrow_event){.kind = ESCROW_EV_OP_RETURNED, .object = 1000, .user = id});
	hosting_expect(host, ESCROW_EV_OP_RETURNED);
	ck_assert_int_eq(escrow_borrow_for_read(host, region, 0, 1), ESCROW_OK);
	ck_assert_int_eq(escrow_return(host, region, 0, 1), ESCROW_OK);
	hosting_close(host);
}
END_TEST

START_TEST(events_of_nothing_are_not_told)
{
	static const uint64_t odd[] = {0, 1, 7, 1000, UINT64_MAX, UINT64_C(1) << 60};
	uint64_t id;

	ck_assert_int_eq(op(&id), 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_expect(host, ESCROW_EV_OP_DONE);
	say((struct escrow_event){.kind = ESCROW_EV_OP_DONE, .object = 1000, .user = id});
	for (uint16_t kind = 0; kind < 40; kind++) {
		bool of_the_engine = kind == ESCROW_EV_DEVICE || kind == ESCROW_EV_ROOM ||
				     kind == ESCROW_EV_CLOSED;

		for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]) && !of_the_engine; i++) {
			if (kind == ESCROW_EV_QUARANTINED && odd[i] == 0)
				continue; /* that is the engine, too */
			if (odd[i] == 7)
				continue; /* the fake's peer */
			say((struct escrow_event){
				.kind = kind, .status = -1, .object = odd[i], .user = odd[i] + 3});
			hosting_expect_none(host);
		}
	}
	/* the tables are whole */
	ck_assert_int_eq(op(&id), 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(hosting_expect(host, ESCROW_EV_OP_DONE).object, id);
	ck_assert_int_eq(freed, 0);
	hosting_close(host);
	ck_assert_int_eq(freed, 1);
}
END_TEST

START_TEST(more_than_was_asked_for_is_cut)
{
	struct escrow_engine *engine;
	struct escrow_event events[3] = {{.kind = 0}};
	uint64_t id;

	hosting_fake(host, &engine)->exaggerate(engine, 5);
	ck_assert_int_eq(op(&id), 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(escrow_poll(host, events, 1), 1);
	ck_assert_uint_eq(events[0].object, id);
	ck_assert_uint_eq(events[1].kind, 0);
	hosting_fake(host, &engine)->exaggerate(engine, 0);
	hosting_close(host);
}
END_TEST

/* What a poll was refused with is told. */
START_TEST(a_refused_poll_says_why)
{
	struct escrow_engine *engine;
	struct escrow_event events[2];

	say((struct escrow_event){.kind = ESCROW_EV_DEVICE});
	hosting_fake(host, &engine)->exaggerate(engine, ESCROW_E_DEVICE - 1);
	ck_assert_int_eq(escrow_poll(host, events, 2), ESCROW_E_DEVICE);
	hosting_fake(host, &engine)->exaggerate(engine, 0);
	hosting_close(host);
}
END_TEST

/* It has ended, and the call that made it has not come back, so its number is known. */
static uint64_t ended;
static void it_ends_twice(void)
{
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	ended = hosting_expect(host, ESCROW_EV_OP_DONE).object;
	say((struct escrow_event){.kind = ESCROW_EV_OP_DONE, .object = 1000, .user = ended});
	say((struct escrow_event){.kind = ESCROW_EV_OP_RETURNED, .object = 1000, .user = ended});
	hosting_expect_none(host);
}

START_TEST(an_op_ends_once)
{
	struct escrow_engine *engine;
	uint64_t id;

	hosting_fake(host, &engine)->at_transfer(engine, it_ends_twice);
	ck_assert_int_eq(op(&id), 1);
	ck_assert_uint_eq(id, ended);
	hosting_close(host);
}
END_TEST

/* A remote ends once, whoever says so: by the event of a failed import, or by forget_grant. */
START_TEST(a_remote_ends_once)
{
	uint64_t first = remote, second;

	say((struct escrow_event){.kind = ESCROW_EV_REMOTE_READY,
				  .status = ESCROW_E_REFUSED,
				  .object = 11,
				  .user = remote});
	ck_assert_uint_eq(hosting_expect(host, ESCROW_EV_REMOTE_READY).object, remote);
	ck_assert_int_eq(escrow_forget_grant(host, first), ESCROW_E_INVALID);
	remote = hosting_remote(host);
	second = hosting_remote(host);
	ck_assert_uint_ne(remote, second);
	ck_assert_int_eq(op(NULL), 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_expect(host, ESCROW_EV_OP_DONE);
	hosting_close(host);
}
END_TEST

/* What never served and never ends is left alone: the host gets its answer, the object stays. */
START_TEST(an_engine_that_never_ends_does_not_hang_the_host)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_module_info info = {.size = sizeof(info)};
	struct escrow_host_args args = {.size = sizeof(args), .engine_name = "liar"};
	struct escrow_host_engine *engine = NULL;

	args.module = hosting_module("bad-end");
	ck_assert_int_eq(escrow_open(&args, &engine, &error), ESCROW_E_INTERNAL);
	ck_assert_ptr_null(engine);
	ck_assert_ptr_nonnull(strstr(error.text, "query of a new engine failed"));
	ck_assert_int_eq(escrow_module_info(args.module, &info), ESCROW_OK);
	ck_assert_uint_eq(info.engines, 1);
	escrow_module_unref(args.module);
	ck_assert_int_eq(escrow_module_info(args.module, &info), ESCROW_OK);
	ck_assert_uint_eq(info.state, ESCROW_MODULE_IN_USE);
	ck_assert_int_eq(modules_mapped("bad-end"), 1);
	hosting_close(host);
}
END_TEST

START_TEST(no_engine_is_an_answer_not_a_crash)
{
	uint64_t out = 0;
	char byte;

	ck_assert_int_lt(escrow_close(NULL, 0, 0), 0);
	ck_assert_int_lt(escrow_release(NULL), 0);
	ck_assert_int_lt(escrow_query(NULL, NULL), 0);
	ck_assert_int_lt(escrow_query(host, NULL), 0);
	ck_assert_ptr_null(escrow_current(NULL, NULL));
	ck_assert_int_lt(escrow_quiesce(NULL), 0);
	ck_assert_int_lt(escrow_resume(NULL), 0);
	ck_assert_int_lt(escrow_drain(NULL, 0, 0), 0);
	ck_assert_int_lt(escrow_register(NULL, NULL, NULL, NULL), 0);
	ck_assert_int_lt(escrow_deregister(NULL, region), 0);
	ck_assert_int_lt(escrow_borrow_for_read(NULL, region, 0, 1), 0);
	ck_assert_int_lt(escrow_return(NULL, region, 0, 1), 0);
	ck_assert_int_lt(escrow_invite(NULL, NULL, &byte, &out), 0);
	ck_assert_int_lt(escrow_invite(host, NULL, NULL, NULL), 0);
	ck_assert_int_lt(escrow_connect(host, NULL, NULL, NULL), 0);
	ck_assert_int_lt(escrow_disconnect(NULL, 1), 0);
	ck_assert_int_lt(escrow_peer_info(NULL, 1, NULL), 0);
	ck_assert_int_lt(escrow_grant(host, NULL, NULL, NULL), 0);
	ck_assert_int_lt(escrow_export_grant(host, 1, NULL, NULL), 0);
	ck_assert_int_lt(escrow_revoke(NULL, 1), 0);
	ck_assert_int_lt(escrow_import_grant(host, NULL, NULL, NULL), 0);
	ck_assert_int_lt(escrow_forget_grant(NULL, 1), 0);
	ck_assert_int_lt(escrow_transfer(NULL, NULL, 0, 64, 0, NULL), 0);
	ck_assert_int_lt(escrow_transfer(host, NULL, 1, sizeof(struct escrow_op), 0, NULL), 0);
	ck_assert_int_lt(escrow_cancel(NULL, 1), 0);
	ck_assert_int_lt(escrow_poll(NULL, NULL, 0), 0);
	ck_assert_int_lt(escrow_poll(host, NULL, 1), 0);
	ck_assert_int_lt(escrow_event_fd(NULL), 0);
	ck_assert_int_lt(escrow_arm(NULL), 0);
	ck_assert_int_lt(escrow_charges(NULL, NULL, 0), 0);
	ck_assert_int_lt(escrow_records(NULL, NULL, NULL, 0), 0);
	ck_assert_ptr_null(escrow_backend_engine(NULL, NULL));
	ck_assert_uint_eq(escrow_backend_handle(NULL, region), 0);
	ck_assert_ptr_null(escrow_get_extension(NULL, "x"));
	ck_assert_ptr_null(escrow_source_new(NULL, NULL, NULL));
	ck_assert_int_lt(escrow_swap_begin(NULL, NULL, NULL, NULL), 0);
	ck_assert_int_lt(escrow_swap_advance(NULL, NULL), 0);
	ck_assert_int_lt(escrow_swap_supply(NULL, 1, 0, NULL, 0), 0);
	ck_assert_int_lt(escrow_swap_records(NULL, NULL, 0), 0);
	ck_assert_int_eq(escrow_swap_free(NULL), ESCROW_OK);
	ck_assert_ptr_nonnull(escrow_swap_step_name(99));
	ck_assert_ptr_null(escrow_module_ref(NULL));
	escrow_module_unref(NULL);
	ck_assert_int_lt(escrow_module_info(NULL, NULL), 0);
	ck_assert_int_lt(escrow_modules(NULL, 1, 8), 0);
	ck_assert_int_lt(escrow_withheld(NULL, 1, NULL), 0);
	ck_assert_int_lt(escrow_ledger(NULL, NULL), 0);
	ck_assert_int_lt(escrow_discover(NULL, NULL), 0);
	ck_assert_int_lt(escrow_find(NULL, NULL, NULL, NULL), 0);
	ck_assert_int_lt(escrow_check_file(NULL, 0, NULL, 0), 0);
	ck_assert_int_lt(escrow_probe(NULL, NULL, NULL), 0);
	ck_assert_int_lt(escrow_load(NULL, NULL, NULL), 0);
	ck_assert_int_lt(escrow_open(NULL, NULL, NULL), 0);
	escrow_quota_set(NULL);
	escrow_quota_get(NULL, NULL);
	hosting_close(host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("liar");
	TCase *tcase = tcase_create("events");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_region_that_nobody_gave_back_is_not_freed);
	tcase_add_test(tcase, a_region_with_held_bytes_is_withheld_whatever_is_said);
	tcase_add_test(tcase, an_unknown_custody_is_held);
	tcase_add_test(tcase, events_of_nothing_are_not_told);
	tcase_add_test(tcase, more_than_was_asked_for_is_cut);
	tcase_add_test(tcase, a_refused_poll_says_why);
	tcase_add_test(tcase, an_op_ends_once);
	tcase_add_test(tcase, a_remote_ends_once);
	tcase_add_test(tcase, an_engine_that_never_ends_does_not_hang_the_host);
	tcase_add_test(tcase, no_engine_is_an_answer_not_a_crash);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
