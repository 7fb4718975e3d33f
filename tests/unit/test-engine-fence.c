/* SPDX-License-Identifier: BSD-2-Clause */
/* A proof from outside (escrow/fence.h): all that waits for it ends, and is told. */
#include <stdlib.h>

#include <escrow/fence.h>

#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

static struct kit a;

static void start(const char *contexts)
{
	const char *settings[] = {"test.faults=1", "drain_ms=100", "control_thread=0", contexts,
				  NULL};

	kit_settings = settings;
	kit_start(&a, "a");
	kit_settings = NULL;
}

/* The function of a's devices was reset. */
static void fence(void)
{
	struct escrow_limits limits = {.size = sizeof(limits)};
	const struct escrow_fence *extension = KIT_OPS->get_extension(a.engine, ESCROW_FENCE_ID);

	ck_assert_int_eq(KIT_OPS->query(a.engine, &limits), ESCROW_OK);
	ck_assert_int_eq(
		extension->fenced(a.engine, limits.incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
		ESCROW_OK);
}

static void close_abort(void)
{
	ck_assert_int_eq(KIT_OPS->close(a.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
}

/* Of a closed engine nothing is charged. */
static void ends_clean(void)
{
	struct escrow_charge charges[64];
	int32_t n;

	kit_wait(&a, NULL, ESCROW_EV_CLOSED);
	n = KIT_OPS->charges(a.engine, charges, 64, sizeof(charges[0]));
	ck_assert_int_gt(n, 0);
	while (n-- > 0) {
		ck_assert_uint_eq(charges[n].used, 0);
		ck_assert_uint_eq(charges[n].stuck, 0);
	}
	KIT_OPS->release(a.engine);
	free(a.memory);
}

/*
 * One device has it, the other one refuses it, and what the first one has cannot be undone: the host has no region, but
 * its charges stay.  They return with the proof, and the host is told of no region that it does not know.
 */
START_TEST(a_registration_that_failed)
{
	struct escrow_region_args args = {.size = sizeof(args),
					  .length = KIT_BYTES,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	uint64_t region;

	start("mock.contexts=2");
	args.addr = a.memory;
	kit_plan(&a, "register@2=refused:12;deregister@1=fail:5");
	ck_assert_int_lt(KIT_OPS->register_memory(a.engine, &args, &region, NULL), 0);
	kit_turn(&a, NULL);
	close_abort();
	ck_assert_uint_eq(kit_wait(&a, NULL, ESCROW_EV_REGION_RELEASED).object, a.region);
	ck_assert_uint_eq(kit_wait(&a, NULL, ESCROW_EV_QUARANTINED).object, 0);
	fence();
	ends_clean();
	ck_assert_uint_eq(a.nseen, 0);
}
END_TEST

/* The proof of a device that is lost comes before the close: nothing is in quarantine any more. */
START_TEST(a_lost_device_before_the_close)
{
	start("mock.contexts=2");
	kit_plan(&a, "device=fatal");
	kit_wait(&a, NULL, ESCROW_EV_DEVICE);
	fence();
	close_abort();
	ck_assert_uint_eq(kit_wait(&a, NULL, ESCROW_EV_REGION_RELEASED).object, a.region);
	ends_clean();
	ck_assert_uint_eq(a.nseen, 0);
}
END_TEST

/* And so where the close has begun, but knows of no loss yet: the fence says that the device is lost. */
START_TEST(in_the_middle_of_the_close)
{
	start("mock.contexts=2");
	close_abort();
	fence();
	kit_wait(&a, NULL, ESCROW_EV_DEVICE);
	ck_assert_uint_eq(kit_wait(&a, NULL, ESCROW_EV_REGION_RELEASED).object, a.region);
	ends_clean();
	ck_assert_uint_eq(a.nseen, 0);
}
END_TEST

/* What was told as stuck is told as released, and the engine whose device is no more can only be closed. */
START_TEST(an_engine_that_works)
{
	struct escrow_limits limits = {.size = sizeof(limits)};

	start("mock.contexts=1");
	kit_plan(&a, "deregister@1=fail:5");
	ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, a.region, 0), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(kit_wait(&a, NULL, ESCROW_EV_QUARANTINED).object, a.region);
	fence();
	kit_wait(&a, NULL, ESCROW_EV_DEVICE);
	ck_assert_int_eq(KIT_OPS->query(a.engine, &limits), ESCROW_OK);
	ck_assert_uint_eq(limits.state, ESCROW_STATE_FAILED);
	ck_assert_uint_eq(kit_wait(&a, NULL, ESCROW_EV_REGION_RELEASED).object, a.region);
	close_abort();
	ends_clean();
	ck_assert_uint_eq(a.nseen, 0);
}
END_TEST

/*
 * With work under way: an op that the device had comes back, then what was lent to the peer ends, then the regions.
 * While it is only lost nothing of that is so.
 */
START_TEST(what_was_under_way)
{
	struct escrow_event ev;
	uint64_t remote, grant, op;
	struct kit b;

	start("mock.contexts=1");
	kit_start(&b, "b");
	kit_connect(&a, &b);
	kit_grant(&a, &b, ESCROW_MAY_READ, &grant);
	/* Between the same two, the other way round. */
	remote = kit_grant(&b, &a, ESCROW_MAY_WRITE, NULL);
	kit_plan(&a, "cqe=hold");
	op = kit_transfer(&a, remote, ESCROW_WRITE, 0, 0, 4096);
	kit_plan(&a, "device=fatal");
	ev = kit_wait(&a, &b, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(ev.object, op);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_HELD);
	kit_never(&a, &b, ESCROW_EV_OP_RETURNED);
	fence();
	ev = kit_wait(&a, &b, ESCROW_EV_OP_RETURNED);
	ck_assert_uint_eq(ev.object, op);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	close_abort();
	ev = kit_wait(&a, &b, ESCROW_EV_GRANT_REVOKED);
	ck_assert_uint_eq(ev.object, grant);
	ev = kit_wait(&a, &b, ESCROW_EV_REGION_RELEASED);
	ck_assert_uint_eq(ev.object, a.region);
	kit_never(&a, &b, ESCROW_EV_QUARANTINED);
	ends_clean();
	kit_close(&b, NULL, false);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-fence");
	TCase *t = tcase_create("fence");

	tcase_add_test(t, a_registration_that_failed);
	tcase_add_test(t, a_lost_device_before_the_close);
	tcase_add_test(t, in_the_middle_of_the_close);
	tcase_add_test(t, an_engine_that_works);
	tcase_add_test(t, what_was_under_way);
	suite_add_tcase(s, t);
	return testing_run(s);
}
