/* SPDX-License-Identifier: BSD-2-Clause */
/* The machines, the receipts and the release rules, each against a table of its own, exhaustively. */
#include "backends/ledger/rules.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* "STATE event NEXT", all legal moves there are; every other pair must be refused. */
struct moves {
	enum ledger_machine machine;
	const char *states; /* in order, as the design names them */
	const char *moves[48];
};

static const struct moves table[] = {
	{LEDGER_M_ENGINE,
	 "OPEN CLOSING CLOSED QUARANTINED",
	 {"OPEN stop CLOSING", "CLOSING released CLOSED", "CLOSING quarantine QUARANTINED",
	  "QUARANTINED released CLOSED"}},
	{LEDGER_M_CONTEXT,
	 "OPENING HEALTHY DRAINING CLOSED FATAL QUARANTINED",
	 {"OPENING ready HEALTHY", "OPENING stop DRAINING", "OPENING fatal FATAL",
	  "HEALTHY stop DRAINING", "HEALTHY fatal FATAL", "HEALTHY quarantine QUARANTINED",
	  "DRAINING released CLOSED", "DRAINING fatal FATAL", "DRAINING quarantine QUARANTINED",
	  "FATAL released CLOSED", "QUARANTINED released CLOSED", "QUARANTINED fatal FATAL"}},
	{LEDGER_M_LANE,
	 "LIVE POISONED DRAINING CLOSED QUARANTINED",
	 {"LIVE poison POISONED", "LIVE stop DRAINING", "LIVE quarantine QUARANTINED",
	  "POISONED stop DRAINING", "POISONED quarantine QUARANTINED", "DRAINING poison DRAINING",
	  "DRAINING released CLOSED", "DRAINING quarantine QUARANTINED",
	  "QUARANTINED released CLOSED"}},
	{LEDGER_M_CONNECTION,
	 "INIT READY RETIRING DESTROYED QUARANTINED",
	 {"INIT ready READY", "INIT stop RETIRING", "INIT quarantine QUARANTINED",
	  "READY stop RETIRING", "READY quarantine QUARANTINED", "RETIRING released DESTROYED",
	  "RETIRING quarantine QUARANTINED", "QUARANTINED released DESTROYED"}},
	{LEDGER_M_REGION,
	 "REGISTERING LIVE WITHDRAWING DEREG FREE QUARANTINED",
	 {"REGISTERING ready LIVE", "REGISTERING quarantine QUARANTINED", "LIVE stop WITHDRAWING",
	  "LIVE quarantine QUARANTINED", "WITHDRAWING step DEREG",
	  "WITHDRAWING quarantine QUARANTINED", "DEREG released FREE",
	  "DEREG quarantine QUARANTINED", "QUARANTINED released FREE"}},
	{LEDGER_M_WINDOW,
	 "PARKED BINDING BOUND INVALIDATING ORPHAN FREE QUARANTINED",
	 {"PARKED bind BINDING", "PARKED released FREE", "PARKED quarantine QUARANTINED",
	  "BINDING cqe_ok BOUND", "BINDING cqe_error ORPHAN", "BINDING qp_dead ORPHAN",
	  "BINDING quarantine QUARANTINED", "BOUND invalidate INVALIDATING", "BOUND qp_dead ORPHAN",
	  "BOUND quarantine QUARANTINED", "INVALIDATING cqe_ok PARKED",
	  "INVALIDATING cqe_error ORPHAN", "INVALIDATING qp_dead ORPHAN",
	  "INVALIDATING quarantine QUARANTINED", "ORPHAN released FREE",
	  "ORPHAN quarantine QUARANTINED", "QUARANTINED released FREE"}},
	{LEDGER_M_GRANT,
	 "RESERVED BINDING EXPORTED REVOKING REVOKED STUCK",
	 {"RESERVED ready EXPORTED", "RESERVED bind BINDING", "RESERVED invalidate REVOKING",
	  "RESERVED quarantine STUCK", "BINDING cqe_ok EXPORTED", "BINDING invalidate REVOKING",
	  "BINDING quarantine STUCK", "EXPORTED invalidate REVOKING", "EXPORTED quarantine STUCK",
	  "REVOKING released REVOKED", "REVOKING quarantine STUCK", "STUCK released REVOKED"}},
	{LEDGER_M_ACCOUNT, "OPEN FENCED CLOSED", {"OPEN fence FENCED", "FENCED stop CLOSED"}},
	{LEDGER_M_SLICE,
	 "PLANNED LENT POSTED SETTLED STUCK",
	 {"PLANNED lend LENT", "PLANNED reject SETTLED", "LENT post POSTED", "LENT reject SETTLED",
	  "LENT quarantine STUCK", "POSTED cqe_ok SETTLED", "POSTED cqe_error SETTLED",
	  "POSTED released SETTLED", "POSTED quarantine STUCK", "STUCK cqe_ok SETTLED",
	  "STUCK cqe_error SETTLED", "STUCK released SETTLED"}},
	{LEDGER_M_OP,
	 "OPEN CANCELLING DONE FAILED UNQUIESCED",
	 {"OPEN cancel CANCELLING", "OPEN done DONE", "OPEN failed FAILED",
	  "OPEN quarantine UNQUIESCED", "CANCELLING done DONE", "CANCELLING failed FAILED",
	  "CANCELLING quarantine UNQUIESCED"}},
};

static const char *const events[LEDGER_EVENTS] = {
	[LEDGER_E_READY] = "ready",
	[LEDGER_E_STOP] = "stop",
	[LEDGER_E_POISON] = "poison",
	[LEDGER_E_FATAL] = "fatal",
	[LEDGER_E_STEP] = "step",
	[LEDGER_E_RELEASED] = "released",
	[LEDGER_E_QUARANTINE] = "quarantine",
	[LEDGER_E_BIND] = "bind",
	[LEDGER_E_CQE_OK] = "cqe_ok",
	[LEDGER_E_CQE_ERROR] = "cqe_error",
	[LEDGER_E_INVALIDATE] = "invalidate",
	[LEDGER_E_QP_DEAD] = "qp_dead",
	[LEDGER_E_LEND] = "lend",
	[LEDGER_E_POST] = "post",
	[LEDGER_E_REJECT] = "reject",
	[LEDGER_E_CANCEL] = "cancel",
	[LEDGER_E_DONE] = "done",
	[LEDGER_E_FAILED] = "failed",
	[LEDGER_E_FENCE] = "fence",
};

static int expected(const struct moves *m, const char *state, const char *event, char next[32])
{
	char s[32], e[32];

	for (int i = 0; i < 48 && m->moves[i]; i++) {
		ck_assert_int_eq(sscanf(m->moves[i], "%31s %31s %31s", s, e, next), 3);
		if (strcmp(s, state) == 0 && strcmp(e, event) == 0)
			return 1;
	}
	return 0;
}

START_TEST(every_state_and_event)
{
	const struct moves *m = &table[_i];
	unsigned int n = ledger_states(m->machine);
	char names[256] = "", want[32];

	for (unsigned int s = 0; s < n; s++) {
		if (s)
			strcat(names, " ");
		strcat(names, ledger_state_name(m->machine, s));
	}
	ck_assert_str_eq(names, m->states);
	for (unsigned int s = 0; s < n; s++) {
		const char *state = ledger_state_name(m->machine, s);

		for (int e = 0; e < LEDGER_EVENTS; e++) {
			int next = ledger_next(m->machine, s, (enum ledger_event)e);
			int legal = expected(m, state, events[e], want);

			ck_assert_msg(legal == (next != LEDGER_ILLEGAL), "%s + %s gives %d", state,
				      events[e], next);
			if (legal)
				ck_assert_str_eq(ledger_state_name(m->machine, (unsigned int)next),
						 want);
		}
	}
}
END_TEST

START_TEST(outside_of_the_tables)
{
	ck_assert_int_eq(ledger_next(LEDGER_MACHINES, 0, LEDGER_E_STOP), LEDGER_ILLEGAL);
	ck_assert_int_eq(ledger_next(LEDGER_M_OP, 99, LEDGER_E_STOP), LEDGER_ILLEGAL);
	ck_assert_int_eq(ledger_next(LEDGER_M_OP, 0, LEDGER_EVENTS), LEDGER_ILLEGAL);
	ck_assert_uint_eq(ledger_states(LEDGER_MACHINES), 0);
	ck_assert_int_eq((int)ledger_machine_of(99), LEDGER_MACHINES);
	ck_assert_int_eq((int)ledger_machine_of(0), LEDGER_MACHINES);
	ck_assert(!ledger_releases(LEDGER_THINGS, &(struct ledger_proof){.receipt = 1}));
	ck_assert(!ledger_releases(LEDGER_LOAN, &(struct ledger_proof){.receipt = 9999}));
}
END_TEST

/* ---- Receipts ---------------------------------------------------------------------------------- */
static const struct {
	uint32_t receipt;
	int grade;
} grades[] = {
	{ESCROW_RECEIPT_CQE_OK, 3},
	{ESCROW_RECEIPT_CQE_ERROR, 3},
	{ESCROW_RECEIPT_CQE_COVERED, 3},
	{ESCROW_RECEIPT_WINDOW_INVALIDATED, 3},
	{LEDGER_RECEIPT_MW_INV_RECV, 3},
	{ESCROW_RECEIPT_QP_RESET, 2},
	{ESCROW_RECEIPT_WINDOW_FREED, 2},
	{ESCROW_RECEIPT_DEREGISTERED, 2},
	{ESCROW_RECEIPT_CQ_DESTROYED, 2},
	{ESCROW_RECEIPT_QP_ERR, 1},
	{ESCROW_RECEIPT_QP_DESTROYED, 1},
	{ESCROW_RECEIPT_PD_GONE, 1},
	{ESCROW_RECEIPT_CHANNEL_GONE, 1},
	{ESCROW_RECEIPT_PROCESS_REAPED, 4},
	{ESCROW_RECEIPT_FUNCTION_FENCED, 4},
	{ESCROW_RECEIPT_NONE, 0},
	{LEDGER_RECEIPT_TIMEOUT, 0},
	{LEDGER_RECEIPT_PEER_SAID, 0},
	{LEDGER_RECEIPT_FIN, 0},
	{LEDGER_RECEIPT_DISCONNECTED, 0},
	{LEDGER_RECEIPT_NO_EVENT, 0},
	{LEDGER_RECEIPT_RESTRACK, 0},
	{LEDGER_RECEIPT_DEVICE_FATAL, 0},
	{LEDGER_RECEIPT_DEVICE_CLOSED, 0},
};

START_TEST(every_grade)
{
	uint32_t seen = 0;

	for (size_t i = 0; i < sizeof(grades) / sizeof(grades[0]); i++) {
		int fatal = grades[i].grade == 4 ? 4 : 0;

		ck_assert_int_eq((int)ledger_grade(grades[i].receipt, false), grades[i].grade);
		ck_assert_int_eq((int)ledger_grade(grades[i].receipt, true), fatal);
		seen |= 1u << grades[i].receipt;
	}
	ck_assert_uint_eq(seen, (1u << LEDGER_RECEIPTS) - 1);
	ck_assert_int_eq((int)ledger_grade(LEDGER_RECEIPTS, false), 0);
}
END_TEST

/*
 * The release rules as they are written down, one a line: the thing, the receipt, and what else must
 * hold (s strong, h healthy, e nothing of it owed, o destroys of objects are believed; "s|eo" strong, or both others).
 */
static const struct {
	enum ledger_thing thing;
	uint32_t receipt;
	const char *needs;
} releases[] = {
	{LEDGER_LOAN, ESCROW_RECEIPT_CQE_OK, "hs"},
	{LEDGER_LOAN, ESCROW_RECEIPT_CQE_ERROR, "hs"},
	{LEDGER_LOAN, ESCROW_RECEIPT_CQE_COVERED, "hs"},
	{LEDGER_LOAN, ESCROW_RECEIPT_QP_RESET, "hs"},
	{LEDGER_LOAN, ESCROW_RECEIPT_DEREGISTERED, "hs"},
	{LEDGER_LOAN, ESCROW_RECEIPT_QP_DESTROYED, "hs"}, /* only a provider read to be strong */
	{LEDGER_GRANT, ESCROW_RECEIPT_WINDOW_INVALIDATED, "hs"},
	{LEDGER_GRANT, LEDGER_RECEIPT_MW_INV_RECV, "hs"},
	{LEDGER_GRANT, ESCROW_RECEIPT_WINDOW_FREED, "hs"},
	{LEDGER_GRANT, ESCROW_RECEIPT_QP_RESET, "hse"},
	{LEDGER_REGION, ESCROW_RECEIPT_DEREGISTERED, "hse"},
	{LEDGER_QP, ESCROW_RECEIPT_QP_DESTROYED, "ho"},
	{LEDGER_QP_SLOTS, ESCROW_RECEIPT_CQE_OK, "hs"},
	{LEDGER_QP_SLOTS, ESCROW_RECEIPT_CQE_ERROR, "hs"},
	{LEDGER_QP_SLOTS, ESCROW_RECEIPT_CQE_COVERED, "hs"},
	{LEDGER_QP_SLOTS, ESCROW_RECEIPT_QP_RESET, "hs"},
	{LEDGER_QP_SLOTS, ESCROW_RECEIPT_QP_DESTROYED, "hs|eo"},
	{LEDGER_WINDOW, ESCROW_RECEIPT_WINDOW_FREED, "hs"},
	{LEDGER_CQ, ESCROW_RECEIPT_CQ_DESTROYED, "hse"},
	{LEDGER_CHANNEL, ESCROW_RECEIPT_CHANNEL_GONE, "h"},
	{LEDGER_PD, ESCROW_RECEIPT_PD_GONE, "heo"},
	{LEDGER_DEVICE, LEDGER_RECEIPT_DEVICE_CLOSED, "he"},
};

static bool should_release(enum ledger_thing thing, const struct ledger_proof *p)
{
	bool strong = p->strength >> p->receipt & 1, objects = p->strength >> 31;

	if (p->receipt == ESCROW_RECEIPT_PROCESS_REAPED ||
	    p->receipt == ESCROW_RECEIPT_FUNCTION_FENCED)
		return p->quarantined;
	for (size_t i = 0; i < sizeof(releases) / sizeof(releases[0]); i++) {
		const char *needs = releases[i].needs;

		if (releases[i].thing != thing || releases[i].receipt != p->receipt)
			continue;
		if (p->fatal)
			return false;
		if (strcmp(needs, "hs|eo") == 0)
			return strong || (objects && p->settled);
		return (!strchr(needs, 's') || strong) && (!strchr(needs, 'e') || p->settled) &&
		       (!strchr(needs, 'o') || objects);
	}
	return false;
}

START_TEST(every_receipt_and_thing)
{
	for (unsigned int n = 0; n < LEDGER_RECEIPTS * 32u; n++) {
		struct ledger_proof p = {.receipt = n / 32,
					 .strength = (n & 1 ? UINT32_MAX >> 1 : 0) |
						     (n & 16 ? UINT32_C(1) << 31 : 0),
					 .fatal = n & 2,
					 .quarantined = n & 4,
					 .settled = n & 8};

		ck_assert_msg(ledger_releases((enum ledger_thing)_i, &p) ==
				      should_release((enum ledger_thing)_i, &p),
			      "thing %d receipt %u: strong %x fatal %d quarantined %d settled %d",
			      _i, p.receipt, p.strength, p.fatal, p.quarantined, p.settled);
	}
}
END_TEST

/* Q28: with the usual provider a destroyed QP never moves custody, and no R0 fact ever does. */
START_TEST(custody_is_never_r0_or_r1)
{
	for (uint32_t r = 0; r < LEDGER_RECEIPTS; r++) {
		struct ledger_proof p = {.receipt = r,
					 .strength = LEDGER_STRENGTH_USUAL,
					 .quarantined = true,
					 .settled = true};

		if (ledger_grade(r, false) > LEDGER_R1)
			continue;
		ck_assert(!ledger_releases(LEDGER_LOAN, &p));
		ck_assert(!ledger_releases(LEDGER_GRANT, &p));
		ck_assert(!ledger_releases(LEDGER_REGION, &p));
	}
}
END_TEST

/* Where failures are hidden no destroy of anything releases anything; completions, resets and fences do as before. */
START_TEST(without_destroys)
{
	static const uint32_t destroys[] = {
		ESCROW_RECEIPT_QP_DESTROYED, ESCROW_RECEIPT_CQ_DESTROYED, ESCROW_RECEIPT_PD_GONE,
		ESCROW_RECEIPT_DEREGISTERED, ESCROW_RECEIPT_WINDOW_FREED};
	ledger_strength strength = ledger_without_destroys(UINT32_MAX);
	uint32_t left = LEDGER_STRENGTH_USUAL & strength;

	for (int t = 0; t < LEDGER_THINGS; t++)
		for (size_t i = 0; i < sizeof(destroys) / sizeof(destroys[0]); i++) {
			struct ledger_proof p = {
				.receipt = destroys[i], .strength = strength, .settled = true};

			ck_assert(!ledger_releases((enum ledger_thing)t, &p));
		}
	ck_assert_uint_eq(left, LEDGER_STRONG(ESCROW_RECEIPT_CQE_OK) |
					LEDGER_STRONG(ESCROW_RECEIPT_CQE_ERROR) |
					LEDGER_STRONG(ESCROW_RECEIPT_CQE_COVERED) |
					LEDGER_STRONG(ESCROW_RECEIPT_WINDOW_INVALIDATED) |
					LEDGER_STRONG(ESCROW_RECEIPT_QP_RESET));
}
END_TEST

START_TEST(weaker_never_stronger)
{
	static const struct {
		uint64_t bit;
		uint32_t receipt;
	} bits[] = {{ESCROW_WEAK_RESET, ESCROW_RECEIPT_QP_RESET},
		    {ESCROW_WEAK_DEREG, ESCROW_RECEIPT_DEREGISTERED},
		    {ESCROW_WEAK_DEALLOC_WINDOW, ESCROW_RECEIPT_WINDOW_FREED},
		    {ESCROW_WEAK_DESTROY, ESCROW_RECEIPT_QP_DESTROYED}};

	ck_assert_uint_eq(ledger_weaken(LEDGER_STRENGTH_USUAL, 0), LEDGER_STRENGTH_USUAL);
	ck_assert_uint_eq(ledger_weaken(0, UINT64_MAX), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(ledger_weaken(UINT32_MAX, bits[i].bit),
				  UINT32_MAX & ~(1u << bits[i].receipt));
}
END_TEST

/* ---- Steps, outcomes, epochs --------------------------------------------------------------------- */
START_TEST(classes)
{
	static const int ambiguous[] = {EIO,    EREMOTEIO, ETIMEDOUT, ENXIO, ENOLINK, EINTR,
					ENODEV, EAGAIN,    ENOMEM,    -1,    9999};
	static const uint32_t steps[] = {ESCROW_STEP_DESTROY_QP,      ESCROW_STEP_DESTROY_CQ,
					 ESCROW_STEP_DESTROY_CHANNEL, ESCROW_STEP_DEALLOC_PD,
					 ESCROW_STEP_DEREGISTER,      ESCROW_STEP_DEALLOC_WINDOW,
					 ESCROW_STEP_QP_ERR,          ESCROW_STEP_QP_RESET};

	for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
		bool refusable = steps[s] == ESCROW_STEP_DEREGISTER ||
				 steps[s] == ESCROW_STEP_QP_ERR;

		ck_assert_int_eq((int)ledger_classify(steps[s], 0), LEDGER_RECEIPT);
		ck_assert_int_eq((int)ledger_classify(steps[s], EBUSY), LEDGER_REFUSED);
		ck_assert_int_eq((int)ledger_classify(steps[s], EINVAL),
				 refusable ? LEDGER_REFUSED : LEDGER_AMBIGUOUS);
		ck_assert_int_eq((int)ledger_classify(steps[s], ENOENT), LEDGER_GONE_OR_WRONG);
		ck_assert_int_eq((int)ledger_classify(steps[s], EFAULT), LEDGER_AFTER_EFFECT);
		for (size_t i = 0; i < sizeof(ambiguous) / sizeof(ambiguous[0]); i++)
			ck_assert_int_eq((int)ledger_classify(steps[s], ambiguous[i]),
					 LEDGER_AMBIGUOUS);
	}
}
END_TEST

START_TEST(effects)
{
	static const struct {
		enum ledger_outcome outcome;
		uint8_t effect;
	} want[] = {{LEDGER_OK, ESCROW_EFFECT_EXECUTED},
		    {LEDGER_COVERED_OK, ESCROW_EFFECT_EXECUTED},
		    {LEDGER_NOT_SENT, ESCROW_EFFECT_NOT_EXECUTED},
		    {LEDGER_REJECTED, ESCROW_EFFECT_NOT_EXECUTED},
		    {LEDGER_FLUSHED_AFTER, ESCROW_EFFECT_NOT_EXECUTED},
		    {LEDGER_LOCAL_ERROR, ESCROW_EFFECT_UNKNOWN},
		    {LEDGER_REMOTE_ERROR, ESCROW_EFFECT_UNKNOWN},
		    {LEDGER_RNR, ESCROW_EFFECT_UNKNOWN},
		    {LEDGER_RETRY_ERROR, ESCROW_EFFECT_UNKNOWN},
		    {LEDGER_FLUSHED, ESCROW_EFFECT_UNKNOWN},
		    {LEDGER_COVERED_ERROR, ESCROW_EFFECT_UNKNOWN},
		    {LEDGER_DISCARDED, ESCROW_EFFECT_UNKNOWN}};

	ck_assert_uint_eq(sizeof(want) / sizeof(want[0]), LEDGER_OUTCOMES);
	for (size_t i = 0; i < LEDGER_OUTCOMES; i++)
		ck_assert_uint_eq(ledger_effect(want[i].outcome), want[i].effect);
	for (uint8_t a = 0; a < 3; a++) {
		for (uint8_t b = 0; b < 3; b++)
			ck_assert_uint_eq(ledger_effect_merge(a, b),
					  a == b ? a : ESCROW_EFFECT_UNKNOWN);
	}
}
END_TEST

/* E01 */
START_TEST(epochs)
{
	const struct ledger_epoch live = {.local = {1}, .remote = {2}, .epoch = 3};

	ck_assert_int_eq(ledger_epoch_check(&live, &live), ESCROW_OK);
	for (size_t byte = 0; byte < sizeof(live); byte++) {
		struct ledger_epoch seen = live;

		((uint8_t *)&seen)[byte] ^= 0x80;
		ck_assert_int_eq(ledger_epoch_check(&live, &seen), ESCROW_E_STALE_EPOCH);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ledger-rules");
	TCase *tc = tcase_create("rules");

	tcase_add_loop_test(tc, every_state_and_event, 0, (int)(sizeof(table) / sizeof(table[0])));
	tcase_add_test(tc, outside_of_the_tables);
	tcase_add_test(tc, every_grade);
	tcase_add_loop_test(tc, every_receipt_and_thing, 0, LEDGER_THINGS);
	tcase_add_test(tc, custody_is_never_r0_or_r1);
	tcase_add_test(tc, weaker_never_stronger);
	tcase_add_test(tc, without_destroys);
	tcase_add_test(tc, classes);
	tcase_add_test(tc, effects);
	tcase_add_test(tc, epochs);
	suite_add_tcase(suite, tc);
	return testing_run(suite);
}
