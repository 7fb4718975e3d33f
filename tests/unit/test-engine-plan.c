/* SPDX-License-Identifier: BSD-2-Clause */
/* The language of fault plans (escrow/fault.h): what is understood does what it says, the rest is named and undone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

static struct kit k, friend;

static escrow_status take(uint64_t *region)
{
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = k.memory,
					  .length = 64,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};

	return KIT_OPS->register_memory(k.engine, &args, region, NULL);
}

static void start(void)
{
	kit_start(&k, "k");
}

static void end(void)
{
	kit_close(&k, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

/* What a device may answer to a registration, and what the slot then says (register_memory, escrow/backend.h). */
static const struct {
	const char *plan;
	escrow_status status;
} answers[] = {
	{"register=ok", ESCROW_OK},
	{"register=fail", ESCROW_E_DEVICE},
	{"register=fail:EIO", ESCROW_E_DEVICE},
	{"register=refused", ESCROW_E_DEVICE},
	{"register=fail:ENOMEM", ESCROW_E_NO_MEMORY},
	{"register=fail:EAGAIN", ESCROW_E_NO_MEMORY},
	{"register=fail:EPERM", ESCROW_E_MEMLOCK},
	{"register=fail:95", ESCROW_E_UNSUPPORTED}, /* EOPNOTSUPP, by number */
	{"register=fail:EINVAL", ESCROW_E_INVALID},
	{"register=fail:EFAULT", ESCROW_E_INVALID},
	{"  register=fail:EIO", ESCROW_E_DEVICE},
	{";; ;register=fail;", ESCROW_E_DEVICE},
	{"", ESCROW_OK},
	{" ; ", ESCROW_OK},
	{"register=fail;clear", ESCROW_OK},
};

START_TEST(an_answer_is_planned)
{
	uint64_t region = 7;

	start();
	kit_plan(&k, answers[_i].plan);
	ck_assert_int_eq(take(&region), answers[_i].status);
	ck_assert(answers[_i].status == ESCROW_OK || region == 7);
	kit_plan(&k, "clear");
	ck_assert_int_eq(take(&region), ESCROW_OK);
	end();
}
END_TEST

/* And what the engine says that made something for its own sake: nothing of that was the host's to get wrong. */
static const struct {
	const char *answer;
	escrow_status status;
} refusals[] =
	{
		{"ENOMEM", ESCROW_E_NO_MEMORY},
		{"EAGAIN", ESCROW_E_NO_MEMORY}, /* a control group allows no more */
		{"24", ESCROW_E_NO_MEMORY},     /* EMFILE */
		{"EPERM", ESCROW_E_MEMLOCK},
		{"EINVAL", ESCROW_E_DEVICE},
		{"EIO", ESCROW_E_DEVICE},
};

static void plan_refusal(struct kit *of, const char *step, int i)
{
	char plan[64];

	snprintf(plan, sizeof(plan), "%s@1=fail:%s", step, refusals[i].answer);
	kit_plan(of, plan);
}

static escrow_status connect_refused(const char *step, int i)
{
	escrow_status st;

	kit_start(&k, "k");
	kit_start(&friend, "f");
	plan_refusal(&k, step, i);
	kit_ask(&friend, &k);
	st = kit_wait(&k, &friend, ESCROW_EV_PEER_DOWN).status;
	kit_close(&k, &friend, false);
	kit_close(&friend, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
	return st;
}

START_TEST(a_queue_pair_is_refused)
{
	ck_assert_int_eq(connect_refused("create_qp", _i), refusals[_i].status);
}
END_TEST

START_TEST(control_memory_is_refused)
{
	ck_assert_int_eq(connect_refused("register", _i), refusals[_i].status);
}
END_TEST

/* A part of a region, on a device that needs a registration of just that. */
static escrow_status grant_refused(const char *step, int i)
{
	struct escrow_grant_args args = {
		.size = sizeof(args), .rights = ESCROW_MAY_READ, .length = 4096};
	escrow_status st;
	uint64_t grant;

	kit_inexact = true;
	kit_start(&k, "k");
	kit_start(&friend, "f");
	kit_connect(&friend, &k);
	plan_refusal(&k, step, i);
	args.peer = k.peer;
	args.region = k.region;
	ck_assert_int_eq(KIT_OPS->grant(k.engine, &args, &grant, NULL), ESCROW_IN_PROGRESS);
	st = kit_wait(&k, &friend, ESCROW_EV_GRANT_READY).status;
	kit_close(&k, &friend, false);
	kit_close(&friend, NULL, false);
	kit_inexact = false;
	ck_assert_uint_eq(kit_allocs, 0);
	return st;
}

START_TEST(a_window_is_refused)
{
	ck_assert_int_eq(grant_refused("alloc_window", _i), refusals[_i].status);
}
END_TEST

START_TEST(a_registration_of_a_part_is_refused)
{
	ck_assert_int_eq(grant_refused("register", _i), refusals[_i].status);
}
END_TEST

/* The N-th call from now, once; each rule counts the calls that no earlier one took. */
START_TEST(calls_are_counted)
{
	uint64_t region;

	start();
	kit_plan(&k, "register@2=fail:ENOMEM");
	ck_assert_int_eq(take(&region), ESCROW_OK);
	ck_assert_int_eq(take(&region), ESCROW_E_NO_MEMORY);
	ck_assert_int_eq(take(&region), ESCROW_OK);
	kit_plan(&k, "register@1=fail:EPERM;register@1=fail:EINVAL");
	ck_assert_int_eq(take(&region), ESCROW_E_MEMLOCK);
	ck_assert_int_eq(take(&region), ESCROW_E_INVALID);
	ck_assert_int_eq(take(&region), ESCROW_OK);
	end();
}
END_TEST

START_TEST(steps_are_counted)
{
	const struct escrow_fault *f;
	uint64_t region;
	int64_t before;

	start();
	f = kit_faults(&k);
	before = f->calls(k.engine, ESCROW_STEP_REGISTER);
	ck_assert_int_eq(take(&region), ESCROW_OK);
	ck_assert_int_eq(f->calls(k.engine, ESCROW_STEP_REGISTER), before + 1);
	ck_assert_int_eq(f->calls(k.engine, ESCROW_STEP_NONE), ESCROW_E_INVALID);
	ck_assert_int_eq(f->calls(k.engine, FAULT_STEPS), ESCROW_E_INVALID);
	end();
}
END_TEST

/* Each with the item that is to be named. */
static const struct {
	const char *plan, *named;
} odd[] = {
	{"maybe", "maybe"},
	{"post", "post"},
	{"post=", "post="},
	{"post=maybe", "post=maybe"},
	{"walk=fail", "walk=fail"},
	{"post@0=fail", "post@0=fail"},
	{"post@x=fail", "post@x=fail"},
	{"post@1x=fail", "post@1x=fail"},
	{"post@99999999999=fail", "post@99999999999=fail"},
	{"post=fail:EWHAT", "post=fail:EWHAT"},
	{"post=fail:0", "post=fail:0"},
	{"post=fail:-1", "post=fail:-1"},
	{"register=lie", "register=lie"}, /* an object that nobody has */
	{"alloc_window=lie", "alloc_window=lie"},
	{"create_qp=lie", "create_qp=lie"},
	{"create_channel=lie", "create_channel=lie"},
	{"open_device=lie", "open_device=lie"},
	{"cqe=keep", "cqe=keep"},
	{"cqe=hold:0", "cqe=hold:0"},
	{"cqe=hold:some", "cqe=hold:some"},
	{"import=keep", "import=keep"},
	{"import=drop:1", "import=drop:1"},
	{"nic=jump", "nic=jump"},
	{"peer=jump", "peer=jump"},
	{"device=jump", "device=jump"},
	{"clear;nonsense", "nonsense"},
	/* One word that is longer than any item. */
	{"post=fail:1111111111111111111111111111111111111111111111111111111111111",
	 "post=fail:1111"},
	/* More rules for one step than there is room for. */
	{"post@1=ok;post@2=ok;post@3=ok;post@4=ok;post@5=fail", "post@5=fail"},
	/* 33 items. */
	{"import=drop;import=drop;import=drop;import=drop;import=drop;import=drop;import=drop;"
	 "import=drop;import=drop;import=drop;import=drop;import=drop;import=drop;import=drop;"
	 "import=drop;import=drop;import=drop;import=drop;import=drop;import=drop;import=drop;"
	 "import=drop;import=drop;import=drop;import=drop;import=drop;import=drop;import=drop;"
	 "import=drop;import=drop;import=drop;import=drop;nic=run",
	 "nic=run"},
};

/* No item of such a plan is in force, also not one that stands before. */
START_TEST(what_is_not_understood_is_named)
{
	struct escrow_error error = {.size = sizeof(error)};
	char plan[600] = "register=fail;";
	bool full = strlen(odd[_i].plan) > 300;
	uint64_t region;

	start();
	if (full)
		plan[0] = 0;
	strcat(plan, odd[_i].plan);
	ck_assert_int_eq(kit_faults(&k)->plan(k.engine, plan, &error), ESCROW_E_INVALID);
	ck_assert_msg(strstr(error.text, odd[_i].named) != NULL, "%s", error.text);
	ck_assert_int_eq(take(&region), ESCROW_OK);
	end();
}
END_TEST

START_TEST(no_plan_is_none)
{
	struct escrow_error error = {.size = sizeof(error)};

	start();
	ck_assert_int_eq(kit_faults(&k)->plan(k.engine, NULL, &error), ESCROW_E_INVALID);
	ck_assert_uint_gt(strlen(error.text), 0);
	end();
}
END_TEST

/* Who did not ask for faults has none. */
START_TEST(faults_are_asked_for)
{
	static const char *const settings[] = {"control_thread=0", NULL};

	kit_settings = settings;
	start();
	ck_assert_ptr_null(KIT_OPS->get_extension(k.engine, ESCROW_FAULT_ID));
	end();
}
END_TEST

#define MANY(test, what) tcase_add_loop_test(t, test, 0, (int)(sizeof(what) / sizeof((what)[0])))

int main(void)
{
	Suite *s = suite_create("engine-plan");
	TCase *t = tcase_create("plan");

	MANY(an_answer_is_planned, answers);
	MANY(a_queue_pair_is_refused, refusals);
	MANY(control_memory_is_refused, refusals);
	MANY(a_window_is_refused, refusals);
	MANY(a_registration_of_a_part_is_refused, refusals);
	tcase_add_test(t, calls_are_counted);
	tcase_add_test(t, steps_are_counted);
	MANY(what_is_not_understood_is_named, odd);
	tcase_add_test(t, no_plan_is_none);
	tcase_add_test(t, faults_are_asked_for);
	suite_add_tcase(s, t);
	return testing_run(s);
}
