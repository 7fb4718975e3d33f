/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tests of the ledger lean on ledger_check(), which derives everything that is counted again. So each number is put
 * one off here, alone, and must be found.
 */
#include "backends/ledger/ledger-int.h"
#include "tests/unit/ledger/windows.h"

static uint64_t grant;

/* A grant that is exported over both windows, and a parent of two slices under way. */
static void fill(void)
{
	uint64_t id, wr[2];

	make();
	ck_assert_int_eq(reserve(2, &grant), ESCROW_OK);
	for (int i = 0; i < 2; i++) {
		post(i, LEDGER_WR_BIND, &id);
		settle(i, id, LEDGER_OK);
	}
	ck_assert_int_eq(ledger_grant_exported(b.l, grant), ESCROW_OK);
	bed_op(&b, 2, wr);
	bed_check(&b);
}

static struct ledger_owner *owner(uint64_t handle)
{
	return &b.l->owners[handle & 0xffffff];
}

static struct ledger_window *the_window(void)
{
	return &b.l->windows[(window[0] & 0xffffff) - b.l->base[ESCROW_OWNER_WINDOW]];
}

/* What it pins changes places: the counts stay. */
static void turn_pins(void)
{
	uint32_t *pin = owner(window[0])->pin, was = pin[0];

	pin[0] = pin[1];
	pin[1] = was;
}

static struct ledger_op *the_op(void)
{
	for (uint32_t i = 0; i < b.l->nops; i++)
		if (b.l->ops[i].taken)
			return &b.l->ops[i];
	ck_abort_msg("no op is taken");
	return NULL;
}

static struct ledger_conn *the_conn(void)
{
	return &b.l->conns[(b.conn[0] & 0xffffff) - b.l->base[ESCROW_OWNER_CONNECTION]];
}

/* Found, and named; and without it all is well again. */
static void found(const char *what)
{
	char text[200] = "";

	ck_assert_int_eq(ledger_check(b.l, text, sizeof(text)), ESCROW_E_INTERNAL);
	ck_assert_msg(strstr(text, what) != NULL, "\"%s\" is not in: %s", what, text);
}

#define OFF(place, to, what)                                                                       \
	do {                                                                                       \
		__typeof__(place) was = (place);                                                   \
		(place) = (__typeof__(place))(to);                                                 \
		found(what);                                                                       \
		(place) = was;                                                                     \
		bed_check(&b);                                                                     \
	} while (0)

START_TEST(the_tree)
{
	fill();
	OFF(owner(b.account)->children, was + 1, "children");
	OFF(owner(b.region)->pins, was + 1, "pins");
	OFF(owner(b.region)->held, was + 1, "held");
	OFF(owner(b.region)->stuck, 1, "held");     /* of what it hangs on */
	OFF(owner(b.context)->kind, 0, "children"); /* of the engine; its own are left behind */
	OFF(owner(b.account)->state, LEDGER_ACCOUNT_CLOSED, "still there");
}
END_TEST

START_TEST(the_steps)
{
	fill();
	OFF(owner(b.region)->ended, lg_step_bit(ESCROW_STEP_DEREGISTER), "ended");
	owner(b.region)->begun = owner(b.region)->ended = lg_step_bit(ESCROW_STEP_DEREGISTER);
	owner(b.region)->stage = ESCROW_STEP_DEREGISTER;
	OFF(owner(b.region)->rc, 16, "is not quarantined");
	owner(b.region)->begun = owner(b.region)->ended = owner(b.region)->stage = 0;
}
END_TEST

START_TEST(the_charges)
{
	struct ledger_name *own;

	fill();
	own = &b.l->names[b.config.max_names];
	OFF(own->used[ESCROW_CHARGE_BYTES], was + 1, "used");
	OFF(own->used[ESCROW_CHARGE_GRANTS], was - 1, "used");
	OFF(own->stuck[ESCROW_CHARGE_BYTES], was + 1, "stuck charge");
}
END_TEST

START_TEST(the_queues)
{
	fill();
	OFF(the_conn()->parts, was + 1, "parts");
	OFF(the_conn()->sentinel, was + 1, "sentinels");
	OFF(the_conn()->kept, was + 1, "kept SQ slots");
	OFF(the_conn()->room, 1, "slots, only 1");
	OFF(the_conn()->planned, was + 1, "slices");
}
END_TEST

START_TEST(the_lanes)
{
	fill();
	OFF(b.at[0]->loans[0], was + 1, "loans");
	OFF(b.at[0]->cq_taken, was + 1, "CQ slots");
	OFF(b.at[0]->cq_depth, 1, "do not fit into 1");
	OFF(b.at[0]->ops_left, was - 1, "room for ops");
}
END_TEST

START_TEST(the_ops)
{
	struct ledger_op *taken;

	fill();
	taken = the_op();
	OFF(taken->taken, 0, "free with slices");
	OFF(taken->state, LEDGER_OP_DONE, "reported");
	OFF(taken->state, LEDGER_OP_FAILED, "reported");
	OFF(taken->state, LEDGER_OP_UNQUIESCED, "UNQUIESCED");
	OFF(taken->pending, was + 1, "slices");
}
END_TEST

START_TEST(the_grants)
{
	fill();
	turn_pins();
	found("is on the list");
	turn_pins();
	bed_check(&b);
	OFF(the_window()->bound_cqe, false, "had no completion");
	OFF(b.l->grants[0].windows, was + 1, "windows");
}
END_TEST

/* Of several that are off the first is told: what follows may be its doing. */
START_TEST(the_first_is_told)
{
	fill();
	owner(b.region)->pins++;
	turn_pins();
	found("pins");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger-check");
	TCase *t = tcase_create("check");

	tcase_add_test(t, the_tree);
	tcase_add_test(t, the_steps);
	tcase_add_test(t, the_charges);
	tcase_add_test(t, the_queues);
	tcase_add_test(t, the_lanes);
	tcase_add_test(t, the_ops);
	tcase_add_test(t, the_grants);
	tcase_add_test(t, the_first_is_told);
	suite_add_tcase(s, t);
	return testing_run(s);
}
