/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A seeded walk over everything a backend may say, with everything derived again after each step.
 * ESCROW_SEED=N and ESCROW_STEPS=N choose another; a failure prints its seed and step.
 */
#include "tests/unit/ledger/bed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WRS 64
#define WINDOWS 4

static struct bed b;
static uint64_t rng;
static uint64_t wr[WRS]; /* ids of all ages, told to the ledger in any order */
static uint32_t nwr;
static uint64_t conns[4], regions[4], windows[WINDOWS], grants[4], ops[4], accounts[2];
static struct ledger_done done[32];
static uint32_t told; /* terminal reports */
static uint32_t admitted;

static uint32_t roll(uint32_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 33) % n;
}

static int lane_of_conn(uint32_t i)
{
	return (int)(i & 1);
}

/* Zero nine times of ten, else some errno. */
static int32_t answer(void)
{
	static const int32_t errors[] = {EIO, EBUSY, EFAULT, ENOENT, EINVAL};

	return roll(10) ? 0 : errors[roll(5)];
}

static void hear(int32_t n)
{
	for (int32_t i = 0; i < n; i++) {
		switch (done[i].what) {
		case LEDGER_DONE_OP:
			told++;
			ck_assert_uint_eq(done[i].custody, ESCROW_CUSTODY_RETURNED);
			break;
		case LEDGER_DONE_UNQUIESCED:
			told++;
			ck_assert_uint_eq(done[i].custody, ESCROW_CUSTODY_HELD);
			break;
		case LEDGER_DONE_BIND:
		case LEDGER_DONE_INVALIDATE:
			ledger_window_settled(b.l, &done[i], NULL, NULL);
			break;
		default:
			break;
		}
	}
}

static void transfer(void)
{
	uint32_t c = roll(4), k = roll(4), n = 1 + roll(4);
	struct ledger_part part = {
		.lane = b.at[lane_of_conn(c)], .connection = conns[c], .slices = n};
	struct ledger_admission a = {.nparts = 1, .parts = &part, .flags = LEDGER_ADMIT_ENDS};
	struct ledger_loan loan = {.connection = conns[c],
				   .region = regions[roll(4)],
				   .length = 64 * (uint64_t)n,
				   .opcode = ESCROW_READ};
	uint64_t ids[4];

	if (ledger_op_admit(part.lane, &a, &loan.op))
		return;
	admitted++;
	ops[k] = loan.op;
	if (roll(8) == 0)
		ledger_op_cancel(part.lane, loan.op);
	if (ledger_slices_lend(part.lane, &loan, 64, n, ids)) {
		hear(ledger_op_drop(part.lane, conns[c], loan.op, n, done));
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		wr[nwr++ % WRS] = ids[i];
	if (roll(6) == 0)
		hear(ledger_rejected(part.lane, conns[c], roll(n + 1), done, 32));
}

static void complete(void)
{
	struct ledger_cqe cqe = {.wr_id = wr[roll(WRS)],
				 .outcome = roll(3) ? LEDGER_OK : roll(LEDGER_FLUSHED + 1)};
	int lane = (int)roll(BED_LANES);

	do {
		int32_t n = ledger_settle(b.at[lane], &cqe, done, 1 + roll(3));

		if (n < 0)
			return;
		hear(n);
	} while (cqe.more);
}

static void grant(void)
{
	uint32_t g = roll(4), w = roll(WINDOWS), c = roll(4);
	struct ledger_grant_args a = {.account = accounts[roll(2)],
				      .region = regions[roll(4)],
				      .length = 1 + roll(64),
				      .rights = ESCROW_MAY_READ,
				      .nwindows = 1,
				      .windows = &windows[w],
				      .connections = &conns[c]};
	uint64_t id;

	switch (roll(4)) {
	case 0:
		ledger_grant_reserve(b.l, &a, &grants[g], NULL);
		return;
	case 1:
		ledger_grant_revoke(b.l, grants[g], NULL);
		return;
	case 2:
		ledger_window_event(b.l, windows[w], LEDGER_E_QP_DEAD);
		return;
	default:
		break;
	}
	for (int what = LEDGER_WR_BIND; what <= LEDGER_WR_INVALIDATE; what++) {
		struct ledger_owner_info info;
		uint32_t need = what == LEDGER_WR_BIND ? LEDGER_WINDOW_PARKED : LEDGER_WINDOW_BOUND;

		if (ledger_owner_info(b.l, windows[w], &info) || info.machine_state != need)
			continue;
		if (ledger_wr_lend(b.at[lane_of_conn(c)], conns[c], (enum ledger_wr)what,
				   windows[w], &id))
			continue;
		wr[nwr++ % WRS] = id;
		ck_assert_int_eq(ledger_window_event(b.l, windows[w],
						     what == LEDGER_WR_BIND ? LEDGER_E_BIND
									    : LEDGER_E_INVALIDATE),
				 ESCROW_OK);
		return;
	}
}

static void retire(void)
{
	static const uint32_t ladder[] = {ESCROW_STEP_QP_ERR, ESCROW_STEP_QP_RESET,
					  ESCROW_STEP_DESTROY_QP};
	uint32_t c = roll(4), r = roll(4), w = roll(WINDOWS);
	uint64_t id;

	switch (roll(8)) {
	case 0:
		ledger_owner_event(b.l, conns[c], LEDGER_E_STOP);
		break;
	case 1:
	case 2:
		bed_step(&b, conns[c], ladder[roll(3)], answer());
		break;
	case 3:
		ledger_owner_event(b.l, regions[r], LEDGER_E_STOP);
		ledger_lane_sync(b.at[roll(BED_LANES)]);
		break;
	case 4:
		bed_step(&b, regions[r], ESCROW_STEP_DEREGISTER, answer());
		break;
	case 5:
		bed_step(&b, windows[w], ESCROW_STEP_DEALLOC_WINDOW, answer());
		break;
	case 6:
		if (!ledger_wr_lend(b.at[lane_of_conn(c)], conns[c], LEDGER_WR_SENTINEL, 0, &id))
			wr[nwr++ % WRS] = id;
		break;
	default:
		hear(ledger_conn_collect(b.at[lane_of_conn(c)], conns[c], done, 1 + roll(8)));
		break;
	}
}

/* New ones take the place of what is gone; what is quarantined fills the pools up in time. */
static void replace(void)
{
	uint32_t i = roll(4);
	struct ledger_owner_info info;
	struct ledger_owner_args a = {.kind = ESCROW_OWNER_CONNECTION,
				      .parent = b.lane[lane_of_conn(i)],
				      .account = accounts[roll(2)],
				      .sq_depth = BED_SQ,
				      .steps = LEDGER_STEP_BIT(ESCROW_STEP_DESTROY_QP)};

	if (ledger_owner_info(b.l, conns[i], &info) && !ledger_owner_add(b.l, &a, &conns[i], NULL))
		ledger_owner_event(b.l, conns[i], LEDGER_E_READY);
	a = (struct ledger_owner_args){.kind = ESCROW_OWNER_REGION,
				       .parent = b.context,
				       .addr = 4096,
				       .length = 512,
				       .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEREGISTER)};
	if (ledger_owner_info(b.l, regions[i], &info) &&
	    !ledger_owner_add(b.l, &a, &regions[i], NULL))
		ledger_owner_event(b.l, regions[i], LEDGER_E_READY);
	a = (struct ledger_owner_args){.kind = ESCROW_OWNER_WINDOW,
				       .parent = b.context,
				       .rkey = (1 + roll(8)) << 8,
				       .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEALLOC_WINDOW)};
	if (ledger_owner_info(b.l, windows[i % WINDOWS], &info))
		ledger_owner_add(b.l, &a, &windows[i % WINDOWS], NULL);
	if (roll(20) == 0)
		ledger_owner_event(b.l, accounts[roll(2)], LEDGER_E_FENCE);
	if (roll(40) == 0)
		ledger_fenced(b.l, b.config.incarnation, ESCROW_RECEIPT_FUNCTION_FENCED);
}

static uint64_t env(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 0) : otherwise;
}

START_TEST(walk)
{
	uint64_t seed = env("ESCROW_SEED", 0x5eed + (uint64_t)_i * 7919);
	uint64_t steps = env("ESCROW_STEPS", 3000);
	char text[256];

	memset(&b, 0, sizeof(b));
	bed_config(&b);
	b.config.ops_per_lane = 64;
	b.config.log_entries = _i & 1 ? 256 : 0; /* with and without: two ways through settle */
	bed_make(&b, _i % 3 ? LEDGER_STRENGTH_USUAL
			    : ledger_weaken(LEDGER_STRENGTH_USUAL, ESCROW_WEAK_RESET));
	rng = seed * 2 + 1;
	accounts[0] = b.account;
	accounts[1] = bed_account(&b, "eve");
	for (int i = 0; i < 2; i++) {
		conns[i] = b.conn[i];
		conns[i + 2] = bed_connect(&b, i, accounts[1]);
	}
	regions[0] = b.region;
	for (uint64_t step = 0; step < steps; step++) {
		switch (roll(8)) {
		case 0:
		case 1:
		case 2:
			transfer();
			break;
		case 3:
		case 4:
			complete();
			break;
		case 5:
			grant();
			break;
		case 6:
			retire();
			break;
		default:
			replace();
			break;
		}
		if (step == steps - steps / 8 && _i % 4 == 3)
			ck_assert_int_eq(ledger_context_fatal(b.l, b.context), ESCROW_OK);
		ck_assert_msg(ledger_check(b.l, text, sizeof(text)) == ESCROW_OK,
			      "ESCROW_SEED=%llu step %llu: %s", (unsigned long long)seed,
			      (unsigned long long)step, text);
		/* Exactly one terminal report an op: never more than were admitted. */
		ck_assert_uint_le(told, admitted);
	}
	ck_assert_uint_gt(told, 10);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ledger-walk");
	TCase *tc = tcase_create("walk");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, walk, 0, 12);
	suite_add_tcase(suite, tc);
	return testing_run(suite);
}
