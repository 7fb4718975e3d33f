/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * windows.h - a bed with two windows, one for each of its connections, and what the tests of grants do with them. Included by
 * such a test program once: its state is the program's.
 */
#ifndef TEST_LEDGER_WINDOWS_H
#define TEST_LEDGER_WINDOWS_H

#include <string.h>

#include "tests/unit/ledger/bed.h"

static struct bed b;
static struct ledger_done done[16];
static uint64_t window[2];

static void make(void)
{
	memset(&b, 0, sizeof(b));
	bed_make(&b, LEDGER_STRENGTH_USUAL);
	window[0] = bed_window(&b, 0x100);
	window[1] = bed_window(&b, 0x200);
}

static inline void end(void)
{
	struct ledger_owner_info info;

	for (int i = 0; i < 2; i++) {
		if (ledger_owner_info(b.l, window[i], &info) == ESCROW_OK)
			ck_assert_int_eq(bed_step(&b, window[i], ESCROW_STEP_DEALLOC_WINDOW, 0),
					 ESCROW_OK);
	}
	bed_end(&b);
}

static escrow_status reserve(uint32_t n, uint64_t *grant)
{
	struct ledger_grant_args args = {.account = b.account,
					 .region = b.region,
					 .length = 4096,
					 .rights = ESCROW_MAY_WRITE,
					 .nwindows = n,
					 .windows = window,
					 .connections = b.conn};

	return ledger_grant_reserve(b.l, &args, grant, &b.error);
}

static void post(int i, enum ledger_wr what, uint64_t *id)
{
	ck_assert_int_eq(ledger_wr_lend(b.at[i], b.conn[i], what, window[i], id), ESCROW_OK);
	ck_assert_int_eq(
		ledger_window_event(b.l, window[i],
				    what == LEDGER_WR_BIND ? LEDGER_E_BIND : LEDGER_E_INVALIDATE),
		ESCROW_OK);
}

static uint32_t settle(int i, uint64_t id, enum ledger_outcome outcome)
{
	uint32_t state = 99;

	ck_assert_int_eq(bed_cqe(&b, i, id, outcome, done, 16), 1);
	ck_assert_uint_eq(done[0].subject, window[i]);
	ck_assert_int_eq(ledger_window_settled(b.l, &done[0], &state, NULL), ESCROW_OK);
	return state;
}

#endif
