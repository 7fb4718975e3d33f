/* SPDX-License-Identifier: BSD-2-Clause */
/* As many grants as a host may ask for. */
#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

static struct kit a;

#define MANY 100000u

static escrow_status offer_one(uint64_t *grant, struct escrow_error *error)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ,
					 .region = a.region,
					 .length = KIT_BYTES};

	return KIT_OPS->grant(a.engine, &args, grant, error);
}

/* Polls until so many grants have ended; none is told of twice. */
static void end_of(uint32_t n)
{
	struct escrow_event ev[64];
	int32_t got, i;

	while (n) {
		got = KIT_OPS->poll(a.engine, ev, n < 64 ? n : 64, sizeof(ev[0]), 0);
		for (i = 0; i < got; i++)
			ck_assert_int_eq(ev[i].kind, ESCROW_EV_GRANT_REVOKED);
		n -= (uint32_t)got;
	}
}

START_TEST(a_hundred_thousand)
{
	const char *settings[] = {"max_grants=100000", NULL};
	struct escrow_error error = {.size = sizeof(error)};
	static uint64_t grants[MANY];
	uint64_t more;
	uint32_t i;

	kit_settings = settings;
	kit_start(&a, "a");
	kit_settings = NULL;
	ck_assert_uint_eq(a.engine->limits.max_grants, MANY);
	for (i = 0; i < MANY; i++)
		ck_assert_int_eq(offer_one(&grants[i], NULL), ESCROW_OK);
	ck_assert_int_eq(offer_one(&more, &error), ESCROW_E_LIMIT);
	ck_assert_str_eq(error.text, "all of max_grants 100000 are in use");
	/* The place is free when its last event was polled, not before. */
	ck_assert_int_eq(KIT_OPS->revoke(a.engine, grants[77], 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(offer_one(&more, NULL), ESCROW_E_LIMIT);
	end_of(1);
	ck_assert_int_eq(offer_one(&grants[77], NULL), ESCROW_OK);
	ck_assert_int_eq(offer_one(&more, NULL), ESCROW_E_LIMIT);
	for (i = 0; i < MANY; i++)
		ck_assert_int_eq(KIT_OPS->revoke(a.engine, grants[i], 0), ESCROW_IN_PROGRESS);
	end_of(MANY);
	for (i = 0; i < MANY; i++)
		ck_assert_int_eq(offer_one(&grants[i], NULL), ESCROW_OK);
	ck_assert_int_eq(offer_one(&more, NULL), ESCROW_E_LIMIT);
	for (i = 0; i < MANY; i++)
		ck_assert_int_eq(KIT_OPS->revoke(a.engine, grants[i], 0), ESCROW_IN_PROGRESS);
	end_of(MANY);
	ck_assert_uint_eq(kit_used(&a, ESCROW_CHARGE_GRANTS), 0);
	kit_close(&a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* Refused by name, with the value and what is allowed. */
START_TEST(more_than_there_can_be)
{
	static const struct {
		const char *settings[5];
		const char *text;
	} rows[] = {
		{{"max_grants=262145", NULL},
		 "max_grants is \"262145\"; allowed is a number from 1 to 262144"},
		{{"max_remotes=262145", NULL},
		 "max_remotes is \"262145\"; allowed is a number from 1 to 262144"},
		/* two rails of sixteen lanes, and 983040 windows in all */
		{{"max_grants=262144", "num_lanes=16", NULL},
		 "max_grants is 262144; with 32 connections a peer, allowed are at most 30720"},
		/* one connection, and a registration of its own in each of four devices */
		{{"max_grants=262144", "mock.rails=4", "mock.contexts=4", "quota.connections=1",
		  NULL},
		 "max_grants is 262144; with 4 devices, allowed are at most 245760"},
	};
	struct escrow_error error = {.size = sizeof(error)};

	kit_inexact = true;
	ck_assert_int_eq(kit_open(&a, "a", rows[_i].settings, &error), ESCROW_E_INVALID);
	ck_assert_str_eq(error.text, rows[_i].text);
	ck_assert_uint_eq(kit_allocs, 0);
	kit_inexact = false;
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-many");
	TCase *t = tcase_create("many");

	tcase_add_test(t, a_hundred_thousand);
	tcase_add_loop_test(t, more_than_there_can_be, 0, 4);
	tcase_set_timeout(t, 120);
	suite_add_tcase(s, t);
	return testing_run(s);
}
