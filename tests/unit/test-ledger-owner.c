/* SPDX-License-Identifier: BSD-2-Clause */
/* Open, owners, handles, the one-shot steps. */
#include "tests/unit/ledger/bed.h"

#include <errno.h>
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

/* ---- Open -------------------------------------------------------------------------------------- */
/* Memory may run out at any allocation: everything is given back, the output is untouched. */
START_TEST(no_memory)
{
	uint32_t k = 0;
	escrow_status status;

	do {
		struct ledger *l = (struct ledger *)&b;

		memset(&b, 0, sizeof(b));
		bed_config(&b);
		b.h.fail_at = ++k;
		status = ledger_open(&b.config, &l, &b.error);
		if (status == ESCROW_OK) {
			ck_assert_uint_lt(b.h.allocs, k);
			ck_assert_int_eq(ledger_release(l), ESCROW_OK);
		} else {
			ck_assert_int_eq(status, ESCROW_E_NO_MEMORY);
			ck_assert_ptr_eq(l, &b);
			ck_assert_uint_gt(strlen(b.error.text), 0);
		}
		ck_assert_uint_eq(b.h.live, 0);
	} while (status);
	ck_assert_uint_gt(k, 10);
}
END_TEST

/* No allocation after open. */
START_TEST(no_memory_later)
{
	uint32_t allocs;
	uint64_t wr[4];
	struct ledger_done done[4];

	memset(&b, 0, sizeof(b));
	bed_config(&b);
	bed_open(&b);
	allocs = b.h.allocs;
	ck_assert_int_eq(ledger_release(b.l), ESCROW_OK);
	memset(&b, 0, sizeof(b));
	bed_make(&b, LEDGER_STRENGTH_USUAL);
	ck_assert_int_eq(ledger_op_end(b.at[0], bed_op(&b, 4, wr)), ESCROW_E_BUSY);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[3], LEDGER_OK, done, 4), 1);
	ck_assert_int_eq(ledger_op_end(b.at[0], done[0].subject), ESCROW_OK);
	ck_assert_uint_eq(b.h.allocs, allocs);
	bed_end(&b);
}
END_TEST

START_TEST(bad_config)
{
	struct ledger_config good;
	struct ledger *l = NULL;

	bed_config(&b);
	good = b.config;
#define BAD(field, value)                                                                          \
	do {                                                                                       \
		b.config = good;                                                                   \
		b.config.field = (value);                                                          \
		ck_assert_int_eq(ledger_open(&b.config, &l, &b.error), ESCROW_E_INVALID);          \
		ck_assert_msg(strstr(b.error.text, #field), "%s", b.error.text);                   \
	} while (0)
	BAD(max_contexts, 0);
	BAD(max_lanes, 0);
	BAD(max_lanes, LEDGER_MAX_LANES + 1);
	BAD(max_connections, 0);
	BAD(max_regions, 0);
	BAD(max_accounts, 0);
	BAD(max_names, 0);
	BAD(ops_per_lane, 0);
	BAD(sq_depth, 1);
	BAD(sq_depth, UINT32_MAX);
	BAD(stuck_percent, 0);
	BAD(stuck_percent, 101);
	BAD(window_binds, LEDGER_MAX_BINDS + 1);
	BAD(max_windows, UINT32_MAX);
	BAD(log_entries, UINT32_MAX);
	BAD(host, NULL);
#undef BAD
	b.config = good;
	b.config.max_connections = 1u << 20;
	b.config.sq_depth = 1u << 16;
	ck_assert_int_eq(ledger_open(&b.config, &l, &b.error), ESCROW_E_INVALID);
	ck_assert_ptr_null(l);
	ck_assert_uint_eq(b.h.live, 0);
	ck_assert_uint_eq(b.h.allocs, 1); /* only the last got past the ranges */
}
END_TEST

/* The budgets of memory: 128 bytes a slice, 512 a grant with its window, 64 KiB a connection. */
START_TEST(footprint)
{
	struct ledger_footprint f;

	make();
	ledger_footprint(b.l, &f);
	ck_assert_uint_le(f.slice, 128);
	ck_assert_uint_le(f.grant, 512);
	ck_assert_uint_le(f.connection + 256 * f.slice, 65536);
	ck_assert_uint_ge(f.total, 6 * (f.connection + BED_SQ * f.slice));
	bed_end(&b);
}
END_TEST

/* ---- Owners ------------------------------------------------------------------------------------- */
START_TEST(handles)
{
	struct ledger_owner_info info;
	uint64_t bad[] = {0,
			  UINT64_MAX,
			  b.region + 3,
			  b.region + (UINT64_C(1) << 24),
			  b.region - (UINT64_C(1) << 24),
			  b.region ^ (UINT64_C(1) << 56),
			  b.region | 0xffffff};
	uint64_t gone = bed_register(&b, 64);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_int_eq(ledger_owner_info(b.l, bad[i], &info), ESCROW_E_INVALID);
		ck_assert_int_eq(ledger_owner_event(b.l, bad[i], LEDGER_E_STOP), ESCROW_E_INVALID);
		ck_assert_int_eq(ledger_owner_gone(b.l, bad[i]), ESCROW_E_INVALID);
		ck_assert_int_eq(bed_step(&b, bad[i], ESCROW_STEP_DEREGISTER, 0), ESCROW_E_INVALID);
		ck_assert_int_eq(ledger_quarantine(b.l, bad[i], "x"), ESCROW_E_INVALID);
		ck_assert_ptr_null(ledger_lane_of(b.l, bad[i]));
	}
	ck_assert_int_eq(bed_deregister(&b, gone, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_info(b.l, gone, &info), ESCROW_E_INVALID);
	/* The slot comes back under another handle. */
	ck_assert_uint_ne(bed_register(&b, 64), gone);
	ck_assert_int_eq(ledger_owner_info(b.l, gone, &info), ESCROW_E_INVALID);
	bed_check(&b);
}
END_TEST

/* Who may be whose child: every kind under every kind. */
START_TEST(parents)
{
	uint64_t owners[] = {
		ledger_engine(b.l),   b.context, b.lane[0], b.conn[0], b.region, b.account,
		bed_window(&b, 0x300)};
	static const struct {
		uint32_t kind;
		const char *ok; /* by owners[] */
	} table[] = {{ESCROW_OWNER_ENGINE, ""},
		     {ESCROW_OWNER_CONTEXT, "0"},
		     {ESCROW_OWNER_LANE, "1"},
		     {ESCROW_OWNER_CONNECTION, "2"},
		     {ESCROW_OWNER_WINDOW, "13"},
		     {ESCROW_OWNER_REGION, "1"},
		     {ESCROW_OWNER_GRANT, ""},
		     {ESCROW_OWNER_PEER, "0"},
		     {ESCROW_OWNER_LOAN, ""},
		     {ESCROW_OWNER_CONTROL, "13"},
		     {0, ""},
		     {99, ""}};

	for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++) {
		for (size_t p = 0; p < sizeof(owners) / sizeof(owners[0]); p++) {
			struct ledger_owner_args args = {.kind = table[k].kind,
							 .parent = owners[p],
							 .length = 1,
							 .sq_depth = 2,
							 .account = b.account,
							 .peer_name = "x"};
			uint64_t owner;
			escrow_status want = strchr(table[k].ok, '0' + (int)p) && table[k].ok[0]
						     ? ESCROW_OK
						     : ESCROW_E_INVALID;

			ck_assert_msg(ledger_owner_add(b.l, &args, &owner, &b.error) == want,
				      "kind %u under %zu", table[k].kind, p);
			if (want == ESCROW_OK)
				ck_assert_int_eq(ledger_owner_undo(b.l, owner), ESCROW_OK);
		}
	}
	bed_check(&b);
}
END_TEST

/* What is owed there no completion settles: who would be connected there would only wait for a reset. */
START_TEST(poisoned_parent)
{
	struct ledger_owner_args a = {.kind = ESCROW_OWNER_CONNECTION,
				      .parent = b.lane[0],
				      .account = b.account,
				      .sq_depth = BED_SQ,
				      .rq_depth = BED_RQ};
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t conn;

	ck_assert_int_eq(ledger_owner_event(b.l, b.lane[0], LEDGER_E_POISON), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_add(b.l, &a, &conn, &error), ESCROW_E_STATE);
	ck_assert_str_eq(error.text, "the parent is POISONED");
	a.parent = b.lane[1];
	ck_assert_int_eq(ledger_owner_add(b.l, &a, &conn, NULL), ESCROW_OK);
	bed_check(&b);
}
END_TEST

START_TEST(bad_owners)
{
	const struct ledger_owner_args conn = {.kind = ESCROW_OWNER_CONNECTION,
					       .parent = b.lane[0],
					       .account = b.account,
					       .sq_depth = BED_SQ};
	struct ledger_owner_args a = conn;

	a.account = b.region;
	ck_assert_int_eq(try_add(a), ESCROW_E_INVALID);
	a = conn;
	a.sq_depth = 1;
	ck_assert_int_eq(try_add(a), ESCROW_E_INVALID);
	a.sq_depth = BED_SQ + 1;
	ck_assert_int_eq(try_add(a), ESCROW_E_INVALID);
	/* I8: every slot must fit into the CQ, signalled or not */
	a = conn;
	a.rq_depth = 2 * (BED_SQ + BED_RQ) - BED_SQ + 1;
	ck_assert_int_eq(try_add(a), ESCROW_E_LIMIT);
	a.rq_depth = UINT32_MAX;
	ck_assert_int_eq(try_add(a), ESCROW_E_LIMIT);
	a = conn;
	a.steps = LEDGER_STEP_BIT(ESCROW_STEP_DEREGISTER);
	ck_assert_int_eq(try_add(a), ESCROW_E_INVALID);
	a = (struct ledger_owner_args){.kind = ESCROW_OWNER_REGION, .parent = b.context};
	ck_assert_int_eq(try_add(a), ESCROW_E_INVALID); /* no bytes */
	a.addr = 16;
	a.length = UINT64_MAX - 8;
	ck_assert_int_eq(try_add(a), ESCROW_E_INVALID); /* wraps */
	a = (struct ledger_owner_args){.kind = ESCROW_OWNER_PEER, .parent = ledger_engine(b.l)};
	ck_assert_int_eq(try_add(a), ESCROW_E_INVALID);
	a.peer_name = "";
	ck_assert_int_eq(try_add(a), ESCROW_E_INVALID);
	a.peer_name = "0123456789012345678901234567890123456789012345678901234567890123";
	ck_assert_int_eq(try_add(a), ESCROW_E_INVALID);
	bed_check(&b);
}
END_TEST

/* field-25: nobody goes before its children and its pins; pins never make a circle. */
START_TEST(pins)
{
	uint64_t control, other = bed_register(&b, 64);
	struct ledger_owner_args a = {.kind = ESCROW_OWNER_CONTROL,
				      .parent = b.context,
				      .addr = 4096,
				      .length = 4096,
				      .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEREGISTER)};

	ck_assert_int_eq(ledger_owner_add(b.l, &a, &control, NULL), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, control, LEDGER_E_READY), ESCROW_OK);
	ck_assert_int_eq(ledger_pin(b.l, b.conn[0], control), ESCROW_OK);
	ck_assert_int_eq(ledger_pin(b.l, b.conn[0], control), ESCROW_E_STATE);
	ck_assert_int_eq(ledger_pin(b.l, b.conn[0], other), ESCROW_OK);
	/* the third is the connection's account */
	ck_assert_int_eq(ledger_pin(b.l, b.conn[0], b.region), ESCROW_E_LIMIT);
	ck_assert_int_eq(ledger_pin(b.l, b.lane[0], b.conn[0]), ESCROW_E_INVALID);
	ck_assert_int_eq(ledger_pin(b.l, b.conn[0], b.conn[0]), ESCROW_E_INVALID);
	ck_assert_int_eq(ledger_unpin(b.l, b.conn[0], b.account), ESCROW_E_INVALID);
	ck_assert_int_eq(ledger_unpin(b.l, b.conn[0], b.region), ESCROW_E_INVALID);
	ck_assert_int_eq(bed_deregister(&b, control, 0), ESCROW_E_BUSY);
	bed_check(&b);
	ck_assert_int_eq(ledger_unpin(b.l, b.conn[0], control), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, control, ESCROW_STEP_DEREGISTER, 0), ESCROW_OK);
	/* a pin of the backend's own carries the quarantine too */
	ck_assert_int_eq(bed_disconnect(&b, b.conn[0], EIO), ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(bed_info(&b, other).held, 1);
	ck_assert_int_eq(ledger_unpin(b.l, b.conn[0], other), ESCROW_E_STATE);
	ck_assert_int_eq(bed_deregister(&b, other, 0), ESCROW_E_BUSY);
	bed_check(&b);
}
END_TEST

/* Each step once for ever, whatever came of it, and in order. */
START_TEST(steps_once)
{
	static const int32_t answers[] = {0, EBUSY, EINVAL, ENOENT, EFAULT, EIO, ETIMEDOUT};
	int32_t rc = answers[_i];
	uint64_t conn = b.conn[0];

	ck_assert_int_eq(bed_step(&b, conn, ESCROW_STEP_QP_ERR, 0), ESCROW_E_STATE); /* READY */
	ck_assert_int_eq(ledger_owner_event(b.l, conn, LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, conn, LEDGER_E_STOP), ESCROW_E_STATE);
	ck_assert_int_eq(ledger_owner_event(b.l, conn, LEDGER_E_RELEASED), ESCROW_E_INVALID);
	ck_assert_int_eq(bed_step(&b, conn, ESCROW_STEP_DEREGISTER, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(bed_step(&b, conn, 31, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(bed_step(&b, conn, 64, 0), ESCROW_E_INVALID);
	/* end without begin */
	ck_assert_int_eq(ledger_step_end(b.l, conn, ESCROW_STEP_DESTROY_QP, 0), ESCROW_E_INVALID);
	/* a failed ERR is recorded, and the way goes on */
	ck_assert_int_eq(bed_step(&b, conn, ESCROW_STEP_QP_ERR, EIO), ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(bed_info(&b, conn).state, ESCROW_OWNER_RETIRING);
	ck_assert_int_eq(bed_info(&b, conn).rc, EIO);
	ck_assert_int_eq(bed_step(&b, conn, ESCROW_STEP_QP_ERR, 0), ESCROW_E_STATE);
	ck_assert_int_eq(ledger_step_begin(b.l, conn, ESCROW_STEP_QP_RESET, NULL), ESCROW_OK);
	ck_assert_int_eq(ledger_step_begin(b.l, conn, ESCROW_STEP_QP_RESET, NULL), ESCROW_E_STATE);
	ck_assert_int_eq(ledger_step_begin(b.l, conn, ESCROW_STEP_DESTROY_QP, NULL),
			 ESCROW_E_STATE);
	ck_assert_int_eq(ledger_step_end(b.l, conn, ESCROW_STEP_QP_RESET, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_step_end(b.l, conn, ESCROW_STEP_QP_RESET, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(bed_step(&b, conn, ESCROW_STEP_DESTROY_QP, rc),
			 rc ? ESCROW_E_UNQUIESCED : ESCROW_OK);
	bed_check(&b);
	if (!rc) {
		ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_CONNECTIONS), 1);
		return;
	}
	ck_assert_uint_eq(ledger_step_calls(b.l, conn, ESCROW_STEP_DESTROY_QP), 1);
	for (int again = 0; again < 3; again++) {
		ck_assert_int_eq(bed_step(&b, conn, ESCROW_STEP_DESTROY_QP, 0), ESCROW_E_STATE);
		ck_assert_int_eq(ledger_step_end(b.l, conn, ESCROW_STEP_DESTROY_QP, 0),
				 ESCROW_E_INVALID);
	}
	ck_assert_uint_eq(ledger_step_calls(b.l, conn, ESCROW_STEP_DESTROY_QP), 1);
	ck_assert_uint_eq(bed_info(&b, conn).state, ESCROW_OWNER_QUARANTINED);
	ck_assert_int_eq(bed_info(&b, conn).rc, rc);
	ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_CONNECTIONS), 1);
}
END_TEST

/* A destroy that is a proof by itself, where RESET is none: what is owed comes back, then the connection goes. */
START_TEST(destroyed_with_debts)
{
	struct ledger_done done[2];
	uint64_t wr[3], op;

	memset(&b, 0, sizeof(b));
	bed_make(&b, ledger_weaken(LEDGER_STRENGTH_USUAL, ESCROW_WEAK_RESET) |
			     LEDGER_STRONG(ESCROW_RECEIPT_QP_DESTROYED));
	op = bed_op(&b, 3, wr);
	ck_assert_int_eq(ledger_owner_event(b.l, b.conn[0], LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_QP_RESET, 0), ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 2), 0);
	ck_assert_int_eq(bed_step(&b, b.conn[0], ESCROW_STEP_DESTROY_QP, 0), ESCROW_OK);
	ck_assert_uint_eq(bed_info(&b, b.conn[0]).loans, 3);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 2), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_OP);
	ck_assert_uint_eq(done[0].subject, op);
	ck_assert_uint_eq(done[0].custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(done[0].effect, ESCROW_EFFECT_UNKNOWN);
	ck_assert_int_eq(ledger_op_end(b.at[0], op), ESCROW_OK);
	ck_assert_int_eq(ledger_conn_collect(b.at[0], b.conn[0], done, 2), ESCROW_E_INVALID);
	ck_assert_uint_eq(bed_info(&b, b.region).loans, 0);
	bed_check(&b);
	/* Its place is another's, who owes nothing yet. */
	b.conn[0] = bed_connect(&b, 0, b.account);
	ck_assert_uint_eq(ledger_conn_debt(b.at[0], b.conn[0]), 0);
	ck_assert_int_eq(bed_cqe(&b, 0, wr[2], LEDGER_OK, done, 2), ESCROW_E_INVALID);
	bed_end(&b);
}
END_TEST

/* Q21, Q22 (I10): no destroy is entered with an event that was got and not acknowledged. */
START_TEST(events_acked)
{
	for (int i = 0; i < BED_LANES; i++)
		ck_assert_int_eq(bed_disconnect(&b, b.conn[i], 0), ESCROW_OK);
	ledger_lane_events(b.at[0], 3, 2);
	ck_assert_int_eq(ledger_owner_event(b.l, b.lane[0], LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.lane[0], ESCROW_STEP_DESTROY_CQ, 0), ESCROW_E_BUSY);
	ledger_lane_events(b.at[0], 0, 1);
	ck_assert_int_eq(bed_step(&b, b.lane[0], ESCROW_STEP_DESTROY_CHANNEL, 0), ESCROW_E_STATE);
	ck_assert_int_eq(bed_step(&b, b.lane[0], ESCROW_STEP_DESTROY_CQ, 0), ESCROW_OK);
	ck_assert_int_eq(bed_step(&b, b.lane[0], ESCROW_STEP_DESTROY_CHANNEL, 0), ESCROW_OK);
	bed_check(&b);
}
END_TEST

/* A weak receipt releases no memory: the region is quarantined though the call succeeded. */
START_TEST(weak_deregister)
{
	memset(&b, 0, sizeof(b));
	bed_make(&b, ledger_weaken(LEDGER_STRENGTH_USUAL, ESCROW_WEAK_DEREG));
	ck_assert_int_eq(bed_deregister(&b, b.region, 0), ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(bed_info(&b, b.region).state, ESCROW_OWNER_QUARANTINED);
	ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_BYTES), BED_REGION);
	bed_check(&b);
}
END_TEST

/* P07: what merely lives is never dropped with the engine. */
START_TEST(no_silent_drop)
{
	ck_assert_int_eq(ledger_release(b.l), ESCROW_E_BUSY);
	bed_check(&b);
	bed_end(&b);
}
END_TEST

/* P07: an engine that is released in the middle of something: all that lives stays on the list. */
START_TEST(abandoned)
{
	struct escrow_record records[32];
	uint64_t cursor = 0;
	int32_t n;

	ledger_abandon(b.l);
	ck_assert_uint_eq(bed_info(&b, b.region).state, ESCROW_OWNER_QUARANTINED);
	ck_assert_uint_eq(bed_info(&b, b.lane[0]).state, ESCROW_OWNER_QUARANTINED);
	ck_assert_int_eq(ledger_release(b.l), ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(ledger_residue(), 1);
	n = ledger_records(NULL, &cursor, records, 32, sizeof(records[0]));
	ck_assert_int_gt(n, 0);
	ck_assert_int_gt(ledger_fenced(NULL, b.config.incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
			 0);
	ck_assert_uint_eq(ledger_residue(), 0);
	ck_assert_uint_eq(b.h.live, 0);
}
END_TEST

/* Owners of backends without native steps go by word, but not before their debts. */
START_TEST(without_steps)
{
	uint64_t region;
	struct ledger_owner_args a = {
		.kind = ESCROW_OWNER_REGION, .parent = b.context, .length = 64};

	ck_assert_int_eq(ledger_owner_add(b.l, &a, &region, NULL), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_gone(b.l, b.region), ESCROW_E_STATE); /* it has steps */
	ck_assert_int_eq(ledger_owner_event(b.l, region, LEDGER_E_READY), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_gone(b.l, region), ESCROW_E_STATE); /* still LIVE */
	ck_assert_int_eq(ledger_owner_event(b.l, region, LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_gone(b.l, region), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b.l, ledger_engine(b.l), LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_gone(b.l, ledger_engine(b.l)), ESCROW_E_BUSY);
	ck_assert_int_eq(ledger_quarantine(b.l, ledger_engine(b.l), "clean"), ESCROW_E_STATE);
	bed_check(&b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ledger-owner");
	TCase *bare = tcase_create("open");
	TCase *tc = tcase_create("owner");

	tcase_add_test(bare, no_memory);
	tcase_add_test(bare, no_memory_later);
	tcase_add_test(bare, bad_config);
	tcase_add_test(bare, footprint);
	tcase_add_test(bare, weak_deregister);
	tcase_add_test(bare, destroyed_with_debts);
	tcase_add_checked_fixture(tc, make, NULL);
	tcase_add_test(tc, handles);
	tcase_add_test(tc, parents);
	tcase_add_test(tc, poisoned_parent);
	tcase_add_test(tc, bad_owners);
	tcase_add_test(tc, pins);
	tcase_add_loop_test(tc, steps_once, 0, 7);
	tcase_add_test(tc, events_acked);
	tcase_add_test(tc, no_silent_drop);
	tcase_add_test(tc, abandoned);
	tcase_add_test(tc, without_steps);
	suite_add_tcase(suite, bare);
	suite_add_tcase(suite, tc);
	return testing_run(suite);
}
