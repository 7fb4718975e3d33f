/* SPDX-License-Identifier: BSD-2-Clause */
/* What every slot answers where it must not work at all, and to arguments that point nowhere. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <escrow/notify.h>

#include "backends/engine/engine.h"
#include "tests/lib/leave.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

static struct kit a, b;
static uint64_t remote, grant;

/* The extensions' tables, which are the backend's and so outlive what is wrong with an engine. */
static const struct escrow_notify *notify;
static const struct escrow_counters *counters;
static const struct escrow_fence *fence;
static const struct escrow_fault *fault;

static void start(void)
{
	kit_start(&a, "a");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	remote = kit_grant(&a, &b, ESCROW_MAY_READ | ESCROW_MAY_WRITE, &grant);
	notify = KIT_OPS->get_extension(b.engine, ESCROW_NOTIFY_ID);
	counters = KIT_OPS->get_extension(b.engine, ESCROW_COUNTERS_ID);
	fence = KIT_OPS->get_extension(b.engine, ESCROW_FENCE_ID);
	fault = kit_faults(&b);
}

static void end(void)
{
	kit_close(&b, &a, false);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

/* How many slots did not say E_STATE. */
#define IS(call) n += (call) != ESCROW_E_STATE

static int objects(struct escrow_engine *e)
{
	const struct escrow_ops *o = KIT_OPS;
	struct escrow_region_args region = {.size = sizeof(region),
					    .addr = b.memory,
					    .length = 64,
					    .memory_kind = ESCROW_MEMORY_HOST,
					    .dmabuf_fd = -1};
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "x"};
	struct escrow_peer_args peer = {.size = sizeof(peer), .peer_name = "x"};
	struct escrow_grant_args lend = {.size = sizeof(lend), .rights = 1, .length = 64};
	struct escrow_peer_info info = {.size = sizeof(info)};
	uint8_t buf[1024] = {0};
	uint64_t out = 7, len = sizeof(buf);
	int n = 0;

	peer.invitation = buf;
	peer.invitation_len = len;
	IS(o->register_memory(e, &region, &out, NULL));
	IS(o->deregister_memory(e, b.region, 0));
	IS(o->invite(e, &invite, buf, &len));
	IS(o->connect(e, &peer, &out, NULL));
	IS(o->disconnect(e, b.peer, 0));
	IS(o->peer_info(e, b.peer, &info));
	IS(o->grant(e, &lend, &out, NULL));
	IS(o->export_grant(e, grant, buf, &len));
	IS(o->revoke(e, grant, 0));
	IS(o->import_grant(e, b.peer, buf, len, 0, &out, NULL));
	IS(o->forget_grant(e, remote));
	return n + (out != 7);
}

static int work(struct escrow_engine *e)
{
	const struct escrow_ops *o = KIT_OPS;
	struct escrow_sge sge = {.region = b.region, .length = 64};
	struct escrow_op op = {.remote = remote, .opcode = ESCROW_WRITE, .nsge = 1, .sge = &sge};
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_event event;
	uint64_t id = 7;
	int n = 0;

	IS(o->query(e, &limits));
	IS(o->transfer(e, &op, 1, sizeof(op), 0, &id));
	IS(o->cancel(e, 1, 0));
	IS(o->poll(e, &event, 1, sizeof(event), 0));
	IS(o->event_fd(e));
	IS(o->arm(e, 0));
	IS(o->quiesce(e, 0));
	IS(o->resume(e, 0));
	IS(o->drain(e, 0, 0, 0));
	IS(o->close(e, 0, ESCROW_CLOSE_ABORT));
	return n + (id != 7);
}

static int extensions(struct escrow_engine *e)
{
	static const uint8_t incarnation[16] = {1};
	struct escrow_sge sge = {.region = b.region, .length = 64};
	struct escrow_op op = {.remote = remote, .opcode = ESCROW_WRITE, .nsge = 1, .sge = &sge};
	struct escrow_counter counter;
	uint64_t id = 7, len = 0;
	int n = 0;

	IS(notify->send(e, b.peer, "x", 1, 0, 0));
	IS(notify->transfer(e, &op, "x", 1, &id));
	IS(notify->receive(e, &id, NULL, &len));
	IS(counters->read(e, &counter, 1, sizeof(counter)));
	IS(fault->plan(e, "clear", NULL));
	IS(fault->calls(e, ESCROW_STEP_POST));
	n += KIT_OPS->get_extension(e, ESCROW_COUNTERS_ID) != NULL;
	if (!e)
		return n + (id != 7);
	/* Without an engine these three speak of the owners of engines that were released. */
	IS(KIT_OPS->charges(e, NULL, 0, 0));
	IS(KIT_OPS->records(e, &id, NULL, 0, 0));
	IS(fence->fenced(e, incarnation, ESCROW_RECEIPT_PROCESS_REAPED));
	return n + (id != 7);
}

static int slots_that_work(struct escrow_engine *e)
{
	int n = objects(e) + work(e) + extensions(e);

	KIT_OPS->release(
		e); /* does nothing; that there is still an engine is seen by who closes it */
	return n;
}

/* FORK, of escrow/backend.h */
START_TEST(in_a_child_of_fork_no_slot_works)
{
	int status;
	pid_t pid;

	start();
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		leave(slots_that_work(b.engine));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	/* The parent goes on. */
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	end();
}
END_TEST

START_TEST(without_an_engine_no_slot_works)
{
	struct escrow_engine *none = calloc(1, sizeof(*none));

	start();
	ck_assert_int_eq(slots_that_work(NULL), 0);
	ck_assert_int_eq(slots_that_work(none), 0);
	free(none);
	end();
}
END_TEST

/* Where a result is to go there must be a place; nothing is made that nobody would know of. */
START_TEST(results_have_a_place)
{
	const struct escrow_ops *o = KIT_OPS;
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args region = {.size = sizeof(region),
					    .length = 64,
					    .memory_kind = ESCROW_MEMORY_HOST,
					    .dmabuf_fd = -1};
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "x"};
	struct escrow_grant_args lend = {.size = sizeof(lend), .rights = 1, .length = 64};
	struct escrow_open_args args = {.size = sizeof(args), .host = &kit_host, .revision = 1};
	uint8_t buf[4096];
	uint64_t len = sizeof(buf), before;

	start();
	before = kit_allocs;
	lend.peer = a.peer;
	lend.region = a.region;
	region.addr = b.memory;
	ck_assert_int_eq(o->open(&args, NULL, &error), ESCROW_E_INVALID);
	ck_assert_int_eq(o->register_memory(b.engine, &region, NULL, &error), ESCROW_E_INVALID);
	ck_assert_int_eq(o->invite(a.engine, &invite, buf, NULL), ESCROW_E_INVALID);
	ck_assert_int_eq(o->invite(a.engine, &invite, NULL, &len), ESCROW_E_INVALID);
	ck_assert_int_eq(o->grant(a.engine, &lend, NULL, &error), ESCROW_E_INVALID);
	ck_assert_int_eq(o->export_grant(a.engine, grant, buf, NULL), ESCROW_E_INVALID);
	ck_assert_int_eq(o->export_grant(a.engine, grant, NULL, &len), ESCROW_E_INVALID);
	ck_assert_int_eq(o->export_grant(a.engine, grant, buf, &len), ESCROW_OK);
	ck_assert_int_eq(o->import_grant(b.engine, b.peer, buf, len, 0, NULL, &error),
			 ESCROW_E_INVALID);
	ck_assert_uint_eq(kit_allocs, before);
	end();
}
END_TEST

START_TEST(a_peer_has_a_place_too)
{
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "b"};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "a"};
	uint8_t buf[1024];
	uint64_t len = sizeof(buf);

	kit_start(&a, "a");
	kit_start(&b, "b");
	ck_assert_int_eq(KIT_OPS->invite(a.engine, &invite, buf, &len), ESCROW_OK);
	args.invitation = buf;
	args.invitation_len = len;
	ck_assert_int_eq(KIT_OPS->connect(b.engine, &args, NULL, NULL), ESCROW_E_INVALID);
	kit_never(&b, &a, ESCROW_EV_PEER_UP);
	kit_connect(&a, &b);
	end();
}
END_TEST

/* Arrays: a length without a place, and a stride that is smaller than what it strides over. */
START_TEST(arrays_that_are_none)
{
	const struct escrow_ops *o = KIT_OPS;
	struct escrow_charge charge;
	struct escrow_record record;
	struct escrow_counter counter;
	struct escrow_event event;
	struct escrow_op op = {0};
	uint64_t cursor = 0, id;

	start();
	ck_assert_int_eq(o->charges(b.engine, NULL, 1, sizeof(charge)), ESCROW_E_INVALID);
	ck_assert_int_eq(o->charges(b.engine, &charge, 1, 4), ESCROW_E_INVALID);
	ck_assert_int_eq(o->records(b.engine, NULL, &record, 1, sizeof(record)), ESCROW_E_INVALID);
	ck_assert_int_eq(o->records(b.engine, &cursor, NULL, 1, sizeof(record)), ESCROW_E_INVALID);
	ck_assert_int_eq(o->records(b.engine, &cursor, &record, 1, 4), ESCROW_E_INVALID);
	ck_assert_int_eq(o->records(b.engine, &cursor, NULL, 0, 0), 0);
	ck_assert_int_eq(counters->read(b.engine, NULL, 1, sizeof(counter)), ESCROW_E_INVALID);
	ck_assert_int_eq(counters->read(b.engine, &counter, 1, 4), ESCROW_E_INVALID);
	ck_assert_int_eq(o->poll(b.engine, NULL, 1, sizeof(event), 0), ESCROW_E_INVALID);
	ck_assert_int_eq(o->poll(b.engine, &event, 1, 4, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(o->transfer(b.engine, NULL, 1, sizeof(op), 0, &id), ESCROW_E_INVALID);
	ck_assert_int_eq(o->transfer(b.engine, &op, 1, sizeof(op), 0, NULL), ESCROW_E_INVALID);
	ck_assert_int_eq(o->transfer(b.engine, &op, 1, 4, 0, &id), ESCROW_E_INVALID);
	ck_assert_int_eq(fence->fenced(b.engine, NULL, ESCROW_RECEIPT_PROCESS_REAPED),
			 ESCROW_E_INVALID);
	ck_assert_ptr_null(o->get_extension(b.engine, NULL));
	ck_assert_ptr_null(o->get_extension(b.engine, "org.escrow.nothing/1"));
	end();
}
END_TEST

/* A fence of a process is told to the owners of released engines too, of which there are none. */
START_TEST(a_fence_without_an_engine)
{
	static const uint8_t incarnation[16] = {1};

	start();
	ck_assert_int_eq(fence->fenced(NULL, incarnation, ESCROW_RECEIPT_PROCESS_REAPED),
			 ESCROW_OK);
	ck_assert_int_eq(fence->fenced(NULL, incarnation, ESCROW_RECEIPT_CQE_OK), ESCROW_E_INVALID);
	ck_assert_int_eq(fence->fenced(NULL, incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
			 ESCROW_OK);
	/* An engine to whom that process was nobody goes on. */
	ck_assert_int_eq(fence->fenced(b.engine, incarnation, ESCROW_RECEIPT_PROCESS_REAPED),
			 ESCROW_OK);
	kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_int_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	end();
}
END_TEST

/* A host lends all of its functions, or none is called. */
START_TEST(a_host_has_all_functions)
{
	const size_t at[] = {offsetof(struct escrow_host, log_enabled),
			     offsetof(struct escrow_host, log),
			     offsetof(struct escrow_host, alloc),
			     offsetof(struct escrow_host, free),
			     offsetof(struct escrow_host, dma_alloc),
			     offsetof(struct escrow_host, dma_free),
			     offsetof(struct escrow_host, now_ns),
			     offsetof(struct escrow_host, get_extension)};
	struct escrow_host whole = kit_host;
	size_t i;

	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		struct escrow_error error = {.size = sizeof(error)};
		void (*none)(void) = NULL;

		memcpy((char *)&kit_host + at[i], &none, sizeof(none));
		ck_assert_int_eq(kit_open(&a, "a", NULL, &error), ESCROW_E_INVALID);
		ck_assert_uint_gt(strlen(error.text), 10);
		kit_host = whole;
	}
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-slots");
	TCase *t = tcase_create("slots");

	tcase_add_test(t, in_a_child_of_fork_no_slot_works);
	tcase_add_test(t, without_an_engine_no_slot_works);
	tcase_add_test(t, results_have_a_place);
	tcase_add_test(t, a_peer_has_a_place_too);
	tcase_add_test(t, arrays_that_are_none);
	tcase_add_test(t, a_fence_without_an_engine);
	tcase_add_test(t, a_host_has_all_functions);
	suite_add_tcase(s, t);
	return testing_run(s);
}
