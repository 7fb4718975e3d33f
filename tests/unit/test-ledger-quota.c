/* SPDX-License-Identifier: BSD-2-Clause */
/* Quotas: of the engine, of a peer's name over all its incarnations, and what quarantine leaves. */
#include "tests/unit/ledger/bed.h"

#include <escrow/budget.h>

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static struct bed b;

static void make(void)
{
	memset(&b, 0, sizeof(b));
	bed_make(&b, LEDGER_STRENGTH_USUAL);
}

static escrow_status try_add(struct ledger_owner_args args)
{
	uint64_t owner = 12345;
	escrow_status status = ledger_owner_add(b.l, &args, &owner, &b.error);

	if (status)
		ck_assert_uint_eq(owner, 12345);
	return status;
}

static uint64_t offer(const char *want_error, uint64_t account, uint64_t length)
{
	struct ledger_grant_args a = {.account = account,
				      .region = b.region,
				      .length = length,
				      .rights = ESCROW_MAY_READ};
	uint64_t grant = 0;
	escrow_status status = ledger_grant_reserve(b.l, &a, &grant, &b.error);

	ck_assert_int_eq(status, want_error ? ESCROW_E_QUOTA : ESCROW_OK);
	if (want_error)
		ck_assert_msg(strstr(b.error.text, want_error), "%s", b.error.text);
	return grant;
}

/* P01, P02: a name's cap is the name's, over all its incarnations; others are served. */
START_TEST(per_name)
{
	uint64_t again, eve, grant[3];

	memset(&b, 0, sizeof(b));
	bed_config(&b);
	b.config.name_limit[ESCROW_CHARGE_GRANTS] = 2;
	b.config.name_limit[ESCROW_CHARGE_GRANTED_BYTES] = 100;
	bed_make(&b, LEDGER_STRENGTH_USUAL);
	eve = bed_account(&b, "eve");
	grant[0] = offer(NULL, b.account, 10);
	offer("bob", b.account, 91); /* bytes */
	again = bed_account(&b, "bob");
	grant[1] = offer(NULL, again, 10);
	offer("bob", again, 1);
	offer("bob", b.account, 1);
	grant[2] = offer(NULL, eve, 100);
	ck_assert_uint_eq(bed_used(&b, "bob", ESCROW_CHARGE_GRANTS), 2);
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_GRANTED_BYTES), 120);
	bed_check(&b);
	/* The old incarnation's grant is revoked: the name has room again. */
	ck_assert_int_eq(ledger_grant_revoke(b.l, grant[0], NULL), ESCROW_OK);
	grant[0] = offer(NULL, again, 10);
	bed_check(&b);
}
END_TEST

/* P03: the engine's caps are refused before anything native is tried. */
START_TEST(per_engine)
{
	struct ledger_owner_args a = {.kind = ESCROW_OWNER_REGION, .length = 1};
	uint64_t small;

	memset(&b, 0, sizeof(b));
	bed_config(&b);
	b.config.limit[ESCROW_CHARGE_BYTES] = BED_REGION + 10;
	b.config.limit[ESCROW_CHARGE_REGIONS] = 2;
	b.config.limit[ESCROW_CHARGE_CONNECTIONS] = 2;
	bed_make(&b, LEDGER_STRENGTH_USUAL);
	a.parent = b.context;
	a.length = 11;
	ck_assert_int_eq(try_add(a), ESCROW_E_QUOTA);
	a.length = UINT64_MAX;
	ck_assert_int_eq(try_add(a), ESCROW_E_QUOTA);
	small = bed_register(&b, 10);
	a.length = 1;
	ck_assert_int_eq(try_add(a), ESCROW_E_QUOTA);
	ck_assert_int_eq(bed_deregister(&b, small, 0), ESCROW_OK);
	ck_assert_int_eq(try_add(a), ESCROW_OK);
	a = (struct ledger_owner_args){.kind = ESCROW_OWNER_CONNECTION,
				       .parent = b.lane[0],
				       .account = b.account,
				       .sq_depth = 2};
	ck_assert_int_eq(try_add(a), ESCROW_E_QUOTA);
	bed_check(&b);
}
END_TEST

/* P04: at the configured share of a limit stuck, nothing more is admitted, and the text says so. */
START_TEST(stuck_share)
{
	struct ledger_owner_args a = {.kind = ESCROW_OWNER_REGION, .length = 1};
	uint64_t half;

	memset(&b, 0, sizeof(b));
	bed_config(&b);
	b.config.stuck_percent = 30;
	b.config.limit[ESCROW_CHARGE_BYTES] = 1000 + BED_REGION;
	bed_make(&b, LEDGER_STRENGTH_USUAL);
	a.parent = b.context;
	half = bed_register(&b, 100);
	ck_assert_int_eq(bed_deregister(&b, half, EIO), ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(try_add(a), ESCROW_OK); /* 100 of 66536: below */
	ck_assert_int_eq(bed_deregister(&b, b.region, EIO), ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(try_add(a), ESCROW_E_QUOTA);
	ck_assert_ptr_nonnull(strstr(b.error.text, "stuck"));
	bed_check(&b);
}
END_TEST

/* Limits on ops, of the engine and of a name, are exact and come back with the op. */
START_TEST(op_limits)
{
	struct ledger_loan loan = {.length = 0, .opcode = ESCROW_WRITE};
	struct ledger_done done[4];
	uint64_t wr[4];

	memset(&b, 0, sizeof(b));
	bed_config(&b);
	if (_i)
		b.config.limit[ESCROW_CHARGE_OPS] = 2;
	else
		b.config.name_limit[ESCROW_CHARGE_OPS] = 2;
	bed_make(&b, LEDGER_STRENGTH_USUAL);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 2; i++) {
			loan.connection = b.conn[i];
			ck_assert_int_eq(ledger_op_lend(b.at[i], 1, &loan, &wr[i]), ESCROW_OK);
		}
		ck_assert_int_eq(ledger_op_lend(b.at[1], 1, &loan, &wr[2]), ESCROW_E_QUOTA);
		bed_check(&b);
		for (int i = 0; i < 2; i++)
			ck_assert_int_eq(bed_cqe(&b, i, wr[i], LEDGER_OK, done, 4), 1);
	}
	bed_end(&b);
}
END_TEST

/* A lane's op slots run out: AGAIN, nothing is charged. */
START_TEST(ops_run_out)
{
	struct ledger_loan loan = {
		.connection = b.conn[0], .region = b.region, .opcode = ESCROW_WRITE};
	struct ledger_done done[16];
	uint64_t wr = 0, refused;

	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(ledger_op_lend(b.at[0], 1, &loan, &wr), ESCROW_OK);
	ck_assert_int_eq(ledger_op_lend(b.at[0], 1, &loan, &refused), ESCROW_E_AGAIN);
	bed_check(&b);
	ck_assert_int_eq(bed_cqe(&b, 0, wr, LEDGER_OK, done, 16), 8);
	ck_assert_int_eq(ledger_op_lend(b.at[0], 1, &loan, &wr), ESCROW_OK);
	ck_assert_int_eq(bed_cqe(&b, 0, wr, LEDGER_OK, done, 16), 1);
	bed_end(&b);
}
END_TEST

/* ---- What the process has room for: a host that counts, and refuses beyond three connections ---------- */
static int64_t taken[ESCROW_CHARGE_OPS + 1];

static escrow_status budget_take(void *ctx, const struct escrow_amount *amounts, uint32_t n,
				 uint32_t stride, struct escrow_error *error)
{
	ck_assert_ptr_eq(ctx, b.h.host.ctx);
	ck_assert_uint_eq(stride, sizeof(*amounts));
	if (taken[ESCROW_CHARGE_CONNECTIONS] == 3) {
		snprintf(error->text, sizeof(error->text), "no more than three");
		return ESCROW_E_QUOTA;
	}
	for (uint32_t i = 0; i < n; i++)
		taken[amounts[i].kind] += (int64_t)amounts[i].amount;
	return ESCROW_OK;
}

static void budget_give(void *ctx, const struct escrow_amount *amounts, uint32_t n, uint32_t stride)
{
	(void)ctx, (void)stride;
	for (uint32_t i = 0; i < n; i++)
		taken[amounts[i].kind] -= (int64_t)amounts[i].amount;
}

static escrow_status budget_take_of(void *ctx, const char *name,
				    const struct escrow_amount *amounts, uint32_t n,
				    uint32_t stride, struct escrow_error *error)
{
	ck_assert_str_eq(name, "bob");
	return budget_take(ctx, amounts, n, stride, error);
}

static void budget_give_of(void *ctx, const char *name, const struct escrow_amount *amounts,
			   uint32_t n, uint32_t stride)
{
	ck_assert_str_eq(name, "bob");
	budget_give(ctx, amounts, n, stride);
}

/* Hosts that count by name are asked so, and not otherwise; one has half of it, one is older. */
static const struct escrow_budget budgets[] = {
	{.size = sizeof(budgets[0]), .take_of = budget_take_of, .give_of = budget_give_of},
	{.size = sizeof(budgets[0]), .take_of = budget_take_of},
	{.size = offsetof(struct escrow_budget, take_of),
	 .take_of = budget_take_of,
	 .give_of = budget_give_of},
};
#define BUDGETS ((int)(sizeof(budgets) / sizeof(budgets[0])))
static struct escrow_budget asked;

static void unasked_give(void *ctx, const struct escrow_amount *amounts, uint32_t n,
			 uint32_t stride)
{
	(void)ctx, (void)amounts, (void)n, (void)stride;
	ck_abort_msg("what was taken of a name is given back of none");
}

static escrow_status unasked_take(void *ctx, const struct escrow_amount *amounts, uint32_t n,
				  uint32_t stride, struct escrow_error *error)
{
	(void)error;
	unasked_give(ctx, amounts, n, stride);
	return ESCROW_E_QUOTA;
}

static const void *budget(void *ctx, const char *id)
{
	(void)ctx;
	return strcmp(id, ESCROW_BUDGET_ID) == 0 ? &asked : NULL;
}

static void has_taken(int64_t connections)
{
	ck_assert_int_eq(taken[ESCROW_CHARGE_CONNECTIONS], connections);
	ck_assert_int_eq(taken[ESCROW_CHARGE_SQ_SLOTS], connections * BED_SQ);
	ck_assert_int_eq(taken[ESCROW_CHARGE_CQ_SLOTS], connections * (BED_SQ + BED_RQ));
}

/* Each end that a connection can come to: never made, its place kept or not, destroyed, quarantined, and fenced after that. */
START_TEST(of_the_process)
{
	struct ledger_owner_args args = {.kind = ESCROW_OWNER_CONNECTION,
					 .sq_depth = BED_SQ,
					 .rq_depth = BED_RQ,
					 .steps = LEDGER_STEP_BIT(ESCROW_STEP_DESTROY_QP)};
	uint64_t third;

	bed_config(&b);
	memset(taken, 0, sizeof(taken));
	asked = budgets[_i];
	asked.take = _i ? budget_take : unasked_take;
	asked.give = _i ? budget_give : unasked_give;
	b.h.host.get_extension = budget;
	bed_make(&b, LEDGER_STRENGTH_USUAL);
	has_taken(2);
	args.parent = b.lane[0];
	args.account = b.account;
	ck_assert_int_eq(ledger_owner_add(b.l, &args, &third, &b.error), ESCROW_OK);
	has_taken(3);
	ck_assert_int_eq(try_add(args), ESCROW_E_QUOTA);
	ck_assert_str_eq(b.error.text, "no more than three");
	ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_CONNECTIONS), 3);
	/* Its place is kept for the next one, which the host is not asked for; given back, or gone with it. */
	for (int i = 0; i < 3; i++) {
		ledger_place_keep(b.l, third, true);
		ck_assert_int_eq(ledger_owner_undo(b.l, third), ESCROW_OK);
		has_taken(3);
		ck_assert_int_eq(try_add(args), ESCROW_E_QUOTA);
		args.placed = true;
		ck_assert_int_eq(ledger_owner_add(b.l, &args, &third, &b.error), ESCROW_OK);
		args.placed = false;
		has_taken(3);
	}
	ledger_place_keep(b.l, third, true);
	ck_assert_int_eq(ledger_owner_undo(b.l, third), ESCROW_OK);
	ledger_place_give(b.l, "bob", BED_SQ, BED_RQ);
	has_taken(2);
	ck_assert_int_eq(ledger_owner_add(b.l, &args, &third, &b.error), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_undo(b.l, third), ESCROW_OK);
	has_taken(2);
	/* The ledger's own limits come first, and the host is not asked for what they refuse. */
	args.sq_depth = BED_SQ + 1;
	ck_assert_int_eq(try_add(args), ESCROW_E_INVALID);
	has_taken(2);
	ck_assert_int_eq(bed_disconnect(&b, b.conn[0], 0), ESCROW_OK);
	has_taken(1);
	ck_assert_int_eq(bed_disconnect(&b, b.conn[1], EIO), ESCROW_E_UNQUIESCED);
	has_taken(1);
	ledger_abandon(b.l);
	bed_check(&b);
	bed_fence(&b); /* releases, and has seen that the residue stays until the fence */
	has_taken(0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ledger-quota");
	TCase *bare = tcase_create("limits");
	TCase *tc = tcase_create("slots");

	tcase_add_test(bare, per_name);
	tcase_add_test(bare, per_engine);
	tcase_add_test(bare, stuck_share);
	tcase_add_loop_test(bare, op_limits, 0, 2);
	tcase_add_loop_test(bare, of_the_process, 0, BUDGETS);
	tcase_add_checked_fixture(tc, make, NULL);
	tcase_add_test(tc, ops_run_out);
	suite_add_tcase(suite, bare);
	suite_add_tcase(suite, tc);
	return testing_run(suite);
}
