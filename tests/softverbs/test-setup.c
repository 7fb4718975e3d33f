/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection whose queue pair was made and cannot be used: it is the engine's to end, so that the one destroy and its answer
 * come into the ledger.
 */
#include <errno.h>

#include "tests/lib/testing.h"
#include "tests/softverbs/softverbs.h"
#include "tests/unit/rdma-kit.h"

static const char *const settings[] = {"num_lanes=1", "max_rails=1", "drain_ms=100", NULL};
static struct end a, b;

/* b connects, and its queue pair does not come to INIT; how its peer went down. */
static escrow_status connect_unusable(void)
{
	uint8_t buf[4096];
	uint64_t len, peer;

	end_open(&a, 'a', settings);
	end_open(&b, 'b', settings);
	len = end_invite(&a, "b", buf, sizeof(buf));
	ck_assert_int_eq(softverbs_script("modify_qp", 1, SOFTVERBS_REFUSED, EIO), 0);
	peer = end_connect(&b, "a", buf, len);
	return end_wait_of(&b, ESCROW_EV_PEER_DOWN, peer).status;
}

START_TEST(unusable)
{
	ck_assert_int_eq(connect_unusable(), ESCROW_E_DEVICE);
	ck_assert_uint_eq(end_used(&b, ESCROW_CHARGE_CONNECTIONS), 0);
	end_close(&b);
	end_close(&a);
}
END_TEST

START_TEST(unusable_and_not_to_be_destroyed)
{
	ck_assert_int_eq(softverbs_script("destroy_qp", 1, SOFTVERBS_REFUSED, EIO), 0);
	ck_assert_int_eq(connect_unusable(), ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(end_used(&b, ESCROW_CHARGE_CONNECTIONS), 1);
	/* The memory of the host was never in its reach. */
	ck_assert_uint_eq(end_quarantine(&b), 0);
	end_close(&a);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("setup");
	TCase *t = tcase_create("queue pair");

	tcase_add_test(t, unusable);
	tcase_add_test(t, unusable_and_not_to_be_destroyed);
	suite_add_tcase(s, t);
	return testing_run(s);
}
