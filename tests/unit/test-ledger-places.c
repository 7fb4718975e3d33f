/* SPDX-License-Identifier: BSD-2-Clause */
/* Kinds whose places the caller chooses: it gets that one or none. */
#include <string.h>

#include "backends/ledger/ledger-int.h"
#include "tests/unit/ledger/bed.h"

static struct bed b;

#define GRANTS 8u /* of the bed's ledger */
#define STEPS 4000

#define KIND(kind) (1u << (kind))

/* With a context and a region, at the places 0. */
static void make_with(uint32_t placed)
{
	struct ledger_owner_args args = {.kind = ESCROW_OWNER_CONTEXT,
					 .strength = LEDGER_STRENGTH_USUAL};

	memset(&b, 0, sizeof(b));
	bed_config(&b);
	b.config.placed = placed;
	bed_open(&b);
	args.parent = ledger_engine(b.l);
	ck_assert_int_eq(ledger_owner_add(b.l, &args, &b.context, NULL), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, b.context, LEDGER_E_READY), ESCROW_OK);
	args = (struct ledger_owner_args){
		.kind = ESCROW_OWNER_REGION, .parent = b.context, .length = BED_REGION};
	ck_assert_int_eq(ledger_owner_add(b.l, &args, &b.region, NULL), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, b.region, LEDGER_E_READY), ESCROW_OK);
}

/* An offer, which needs no windows. */
static escrow_status offer_at(uint32_t place, uint64_t *grant)
{
	struct ledger_grant_args args = {
		.region = b.region, .length = 1, .rights = ESCROW_MAY_READ, .place = place};

	return ledger_grant_reserve(b.l, &args, grant, &b.error);
}

/* The handles of a kind are in a row. */
static uint32_t behind(uint64_t handle, uint64_t first)
{
	return handle_slot(handle) - handle_slot(first);
}

static void end_of(uint64_t grant)
{
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant, NULL), ESCROW_OK);
	ck_assert_int_eq(ledger_grant_state(b.l, grant), -1);
}

START_TEST(grants)
{
	uint64_t first, fifth, again, none = 1;

	make_with(KIND(ESCROW_OWNER_GRANT));
	ck_assert_int_eq(offer_at(4, &fifth), ESCROW_OK);
	ck_assert_int_eq(offer_at(0, &first), ESCROW_OK);
	ck_assert_uint_eq(behind(fifth, first), 4);
	/* Somebody is there; and there is no such place. */
	ck_assert_int_eq(offer_at(4, &none), ESCROW_E_LIMIT);
	ck_assert_str_eq(b.error.text, "place 4 of the 8 owners of kind 7 is not free");
	ck_assert_int_eq(offer_at(GRANTS, &none), ESCROW_E_LIMIT);
	ck_assert_int_eq(offer_at(UINT32_MAX, &none), ESCROW_E_LIMIT);
	ck_assert_uint_eq(none, 1);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_GRANTS), 2);
	end_of(fifth);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_GRANTS), 1);
	/* The same place, and not the same handle. */
	ck_assert_int_eq(offer_at(4, &again), ESCROW_OK);
	ck_assert_uint_eq(behind(again, first), 4);
	ck_assert_uint_ne(again, fifth);
	ck_assert_int_eq(ledger_grant_state(b.l, fifth), -1);
	bed_check(&b);
}
END_TEST

/* Also one that was never there, for what it was made for could not be had. */
START_TEST(owners)
{
	struct ledger_owner_args region = {
		.kind = ESCROW_OWNER_REGION, .parent = b.context, .length = 64, .place = 3};
	struct ledger_owner_args peer = {.kind = ESCROW_OWNER_PEER, .peer_name = "bob", .place = 2};
	uint64_t owner, other, none = 1;

	make_with(KIND(ESCROW_OWNER_REGION) | KIND(ESCROW_OWNER_PEER));
	region.parent = b.context;
	peer.parent = ledger_engine(b.l);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ledger_owner_add(b.l, &region, &owner, NULL), ESCROW_OK);
		ck_assert_uint_eq(behind(owner, b.region), 3);
		ck_assert_int_eq(ledger_owner_add(b.l, &region, &none, NULL), ESCROW_E_LIMIT);
		ck_assert_int_eq(ledger_owner_undo(b.l, owner), ESCROW_OK);
	}
	for (int i = 0; i < 2; i++) {
		peer.place = 2;
		ck_assert_int_eq(ledger_owner_add(b.l, &peer, &owner, NULL), ESCROW_OK);
		ck_assert_int_eq(ledger_owner_add(b.l, &peer, &none, NULL), ESCROW_E_LIMIT);
		peer.place = 0;
		ck_assert_int_eq(ledger_owner_add(b.l, &peer, &other, NULL), ESCROW_OK);
		ck_assert_uint_eq(behind(owner, other), 2);
		for (int k = 0; k < 2; k++) {
			enum ledger_event next = k ? LEDGER_E_STOP : LEDGER_E_FENCE;

			ck_assert_int_eq(ledger_owner_event(b.l, owner, next), ESCROW_OK);
			ck_assert_int_eq(ledger_owner_event(b.l, other, next), ESCROW_OK);
		}
	}
	ck_assert_uint_eq(none, 1);
	bed_check(&b);
}
END_TEST

/* What is not placed takes any, whatever is said. */
START_TEST(any)
{
	uint64_t grant, last = 0;

	make_with(KIND(ESCROW_OWNER_PEER));
	for (uint32_t i = 0; i < GRANTS; i++) {
		ck_assert_int_eq(offer_at(4, &grant), ESCROW_OK);
		ck_assert_uint_ne(grant, last);
		last = grant;
	}
	ck_assert_int_eq(offer_at(4, &grant), ESCROW_E_LIMIT);
	bed_check(&b);
}
END_TEST

static uint64_t dice;

static uint32_t roll(uint32_t n)
{
	dice = dice * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(dice >> 33) % n;
}

/* Against a book of who is where. */
START_TEST(in_any_order)
{
	uint64_t at[GRANTS] = {0}, first, grant;

	make_with(KIND(ESCROW_OWNER_GRANT));
	ck_assert_int_eq(offer_at(0, &first), ESCROW_OK);
	end_of(first);
	dice = (uint64_t)_i;
	for (int step = 0; step < STEPS; step++) {
		uint32_t place = roll(GRANTS);

		if (at[place] && roll(2)) {
			end_of(at[place]);
			at[place] = 0;
		} else if (at[place]) {
			ck_assert_int_eq(offer_at(place, &grant), ESCROW_E_LIMIT);
		} else {
			ck_assert_int_eq(offer_at(place, &at[place]), ESCROW_OK);
			ck_assert_uint_eq(behind(at[place], first), place);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ledger-places");
	TCase *tc = tcase_create("places");

	tcase_add_test(tc, grants);
	tcase_add_test(tc, owners);
	tcase_add_test(tc, any);
	tcase_add_loop_test(tc, in_any_order, 0, 4);
	suite_add_tcase(suite, tc);
	return testing_run(suite);
}
