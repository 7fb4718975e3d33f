/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two lanes in two threads, parents that span both, a reader of charges and records, and a control
 * thread that registers and withdraws.  For the thread sanitizer; without it, for the sums.
 */
#include "tests/unit/ledger/bed.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define ROUNDS 3000

static struct bed b;
static pthread_mutex_t lock[BED_LANES] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static atomic_int running;
static atomic_uint reported;
static _Atomic uint64_t short_region; /* comes and goes */

struct worker {
	int lane;
	uint64_t pending[64]; /* of this lane, by whoever lent it; under the lane's lock */
	uint32_t npending;
};
static struct worker workers[BED_LANES];

/* Under the lane's lock: settles what is outstanding on it. */
static void drain(struct worker *w)
{
	struct ledger_done done[4];

	for (uint32_t i = 0; i < w->npending; i++) {
		int32_t n = bed_cqe(&b, w->lane, w->pending[i], LEDGER_OK, done, 4);

		if (n > 0)
			atomic_fetch_add(&reported, (unsigned int)n);
	}
	w->npending = 0;
}

/* A parent over both lanes: the other lane is only tried. */
static bool both(struct worker *w)
{
	struct worker *o = &workers[!w->lane];
	struct ledger_part parts[2] = {{.lane = b.at[0], .connection = b.conn[0], .slices = 1},
				       {.lane = b.at[1], .connection = b.conn[1], .slices = 1}};
	struct ledger_admission a = {.nparts = 2, .parts = parts, .flags = LEDGER_ADMIT_ENDS};
	struct ledger_loan loan = {.region = b.region, .length = 16, .opcode = ESCROW_WRITE};
	bool ok;

	if (pthread_mutex_trylock(&lock[o->lane]))
		return false;
	ok = ledger_op_admit(b.at[w->lane], &a, &loan.op) == ESCROW_OK;
	for (int i = 0; ok && i < 2; i++) {
		loan.connection = b.conn[i];
		ck_assert_int_eq(ledger_slice_lend(b.at[i], &loan,
						   &workers[i].pending[workers[i].npending++]),
				 ESCROW_OK);
	}
	pthread_mutex_unlock(&lock[o->lane]);
	return ok;
}

static bool one(struct worker *w)
{
	uint64_t region = atomic_load(&short_region);
	struct ledger_loan loan = {.connection = b.conn[w->lane],
				   .region = region ? region : b.region,
				   .length = 16,
				   .opcode = ESCROW_WRITE};

	if (ledger_op_lend(b.at[w->lane], 1, &loan, &w->pending[w->npending]) != ESCROW_OK)
		return false;
	w->npending++;
	return true;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint32_t made = 0;

	while (made < ROUNDS) {
		pthread_mutex_lock(&lock[w->lane]);
		made += made % 3 == 0 ? both(w) : one(w);
		if (w->npending > 4 || made % 3 == 0)
			drain(w);
		ledger_lane_sync(b.at[w->lane]);
		pthread_mutex_unlock(&lock[w->lane]);
	}
	pthread_mutex_lock(&lock[w->lane]);
	drain(w);
	pthread_mutex_unlock(&lock[w->lane]);
	return NULL;
}

static void *control(void *arg)
{
	struct escrow_record records[8];
	struct escrow_charge charges[32];

	while (atomic_load(&running)) {
		uint64_t region = bed_register(&b, 64), cursor = 0;
		escrow_status status;

		atomic_store(&short_region, region);
		ledger_charges(b.l, charges, 32, sizeof(charges[0]));
		while (ledger_records(b.l, &cursor, records, 8, sizeof(records[0])) > 0)
			;
		atomic_store(&short_region, 0);
		ck_assert_int_eq(ledger_owner_event(b.l, region, LEDGER_E_STOP), ESCROW_OK);
		for (int i = 0; i < BED_LANES; i++) {
			pthread_mutex_lock(&lock[i]);
			drain(&workers[i]);
			ledger_lane_sync(b.at[i]);
			pthread_mutex_unlock(&lock[i]);
		}
		/* Every lane was passed: nothing can be lent from it any more. */
		status = bed_step(&b, region, ESCROW_STEP_DEREGISTER, 0);
		ck_assert_msg(status == ESCROW_OK, "%s", b.error.text);
	}
	return NULL;
}

START_TEST(two_threads)
{
	pthread_t threads[BED_LANES], c;

	memset(&b, 0, sizeof(b));
	bed_config(&b);
	b.config.ops_per_lane = 64;
	b.config.log_entries = _i ? 64 : 0;
	bed_make(&b, LEDGER_STRENGTH_USUAL);
	for (int i = 0; i < BED_LANES; i++)
		workers[i].lane = i;
	atomic_store(&running, 1);
	ck_assert_int_eq(pthread_create(&c, NULL, control, NULL), 0);
	for (int i = 0; i < BED_LANES; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	for (int i = 0; i < BED_LANES; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&running, 0);
	pthread_join(c, NULL);
	for (int i = 0; i < BED_LANES; i++)
		drain(&workers[i]);
	ck_assert_uint_eq(atomic_load(&reported), BED_LANES * ROUNDS);
	bed_end(&b);
}
END_TEST

/* ---- One op gets stuck while another comes back --------------------------------------------------- */
#define TURNS 300

static pthread_barrier_t barrier;
static uint64_t lent[BED_LANES];

static void lend_on(int lane)
{
	struct ledger_loan loan = {.region = b.region, .length = 16, .opcode = ESCROW_WRITE};

	b.conn[lane] = bed_connect(&b, lane, b.account);
	loan.connection = b.conn[lane];
	ck_assert_int_eq(ledger_op_lend(b.at[lane], 1, &loan, &lent[lane]), ESCROW_OK);
}

static void get_stuck(int lane)
{
	struct ledger_done done[2];

	ck_assert_int_eq(ledger_conn_collect(b.at[lane], b.conn[lane], done, 2), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_UNQUIESCED);
}

static void come_back(int lane)
{
	struct ledger_done done[2];

	ck_assert_int_eq(bed_cqe(&b, lane, lent[lane], LEDGER_OK, done, 2), 1);
	ck_assert_uint_eq(done[0].what, LEDGER_DONE_RETURNED);
}

static void *come_back_each_turn(void *arg)
{
	(void)arg;
	for (int i = 0; i < TURNS; i++) {
		pthread_barrier_wait(&barrier);
		come_back(1);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* Of two lanes that weigh what is stuck at once, the older count must not have the last word. */
START_TEST(weighed_by_two)
{
	struct ledger_loan loan = {.region = b.region, .length = 16, .opcode = ESCROW_WRITE};
	uint64_t id, spare;
	pthread_t other;

	memset(&b, 0, sizeof(b));
	bed_config(&b);
	b.config.stuck_percent = 1; /* one is too much */
	bed_make(&b, LEDGER_STRENGTH_USUAL);
	loan.region = b.region;
	loan.connection = spare = b.conn[0];
	ck_assert_int_eq(bed_disconnect(&b, b.conn[1], 0), ESCROW_OK);
	ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
	ck_assert_int_eq(pthread_create(&other, NULL, come_back_each_turn, NULL), 0);
	for (int i = 0; i < TURNS; i++) {
		for (int lane = 0; lane < 2; lane++)
			lend_on(lane);
		for (int lane = 0; lane < 2; lane++)
			ck_assert_int_eq(ledger_quarantine(b.l, b.conn[lane], "test"), ESCROW_OK);
		get_stuck(1);
		pthread_barrier_wait(&barrier);
		get_stuck(0);
		pthread_barrier_wait(&barrier);
		ck_assert_int_eq(ledger_op_lend(b.at[0], 1, &loan, &id), ESCROW_E_QUOTA);
		come_back(0);
		for (int lane = 0; lane < 2; lane++)
			ck_assert_int_eq(
				ledger_late_receipt(b.l, b.conn[lane], ESCROW_RECEIPT_QP_DESTROYED),
				ESCROW_OK);
		ck_assert_int_eq(ledger_op_lend(b.at[0], 1, &loan, &id), ESCROW_OK);
		ck_assert_int_eq(bed_cqe(&b, 0, id, LEDGER_OK, (struct ledger_done[2]){{0}}, 2), 1);
	}
	pthread_join(other, NULL);
	b.conn[0] = spare;
	b.conn[1] = bed_connect(&b, 1, b.account);
	bed_end(&b);
}
END_TEST

/* ---- One op that ends on one lane while it comes back on the other --------------------------------- */
#define MEETINGS 20000
#define APART 64 /* one of them begins so many looks at a word later, or earlier, at most */

static struct ledger_done late[2];
static int32_t nlate;
static atomic_int turn, turned; /* who waits asks all the time: both are to be at it at once */

static void look(int times)
{
	for (int i = 0; i < times; i++)
		atomic_load(&running);
}

static void until(atomic_int *word, int is)
{
	for (int i = 1; atomic_load(word) != is; i++)
		if (i % 10000 == 0)
			sched_yield();
}

static void *come_late_each_turn(void *arg)
{
	(void)arg;
	for (int i = 1; i <= MEETINGS; i++) {
		until(&turn, i);
		look(APART);
		nlate = bed_cqe(&b, 1, lent[1], LEDGER_OK, late, 2);
		atomic_store(&turned, i);
	}
	return NULL;
}

static uint64_t lend_on_both(void)
{
	struct ledger_part parts[2] = {{.lane = b.at[0], .connection = b.conn[0], .slices = 1},
				       {.lane = b.at[1], .connection = b.conn[1], .slices = 1}};
	struct ledger_admission a = {
		.user = 7, .nparts = 2, .parts = parts, .flags = LEDGER_ADMIT_ENDS};
	struct ledger_loan loan = {.region = b.region, .length = 16, .opcode = ESCROW_WRITE};

	ck_assert_int_eq(ledger_op_admit(b.at[0], &a, &loan.op), ESCROW_OK);
	for (int lane = 0; lane < 2; lane++) {
		loan.connection = b.conn[lane];
		ck_assert_int_eq(ledger_slice_lend(b.at[lane], &loan, &lent[lane]), ESCROW_OK);
	}
	return loan.op;
}

/* Done, once; or unquiesced and then returned.  Whose it is is said of what was admitted. */
static void told_as_one(const struct ledger_done *last, int32_t n, uint64_t op)
{
	ck_assert_int_ge(n, 0);
	ck_assert_int_ge(nlate, 0);
	ck_assert_int_eq(nlate, n == 1 && last->what == LEDGER_DONE_UNQUIESCED);
	ck_assert_int_eq(n, 1);
	ck_assert_uint_eq(last->subject, op);
	ck_assert_uint_eq(last->user, 7);
	if (!nlate) {
		ck_assert_uint_eq(last->what, LEDGER_DONE_OP);
		ck_assert_uint_eq(last->custody, ESCROW_CUSTODY_RETURNED);
		ck_assert_uint_eq(last->bytes, 32);
		return;
	}
	ck_assert_uint_eq(late[0].what, LEDGER_DONE_RETURNED);
	ck_assert_uint_eq(late[0].subject, op);
	ck_assert_uint_eq(late[0].user, 7);
}

START_TEST(ends_and_comes_back)
{
	struct ledger_done done[2];
	pthread_t other;
	uint64_t op;
	int32_t n;

	memset(&b, 0, sizeof(b));
	bed_config(&b);
	b.config.log_entries = 0;
	bed_make(&b, LEDGER_STRENGTH_USUAL);
	ck_assert_int_eq(pthread_create(&other, NULL, come_late_each_turn, NULL), 0);
	for (int i = 1; i <= MEETINGS; i++) {
		op = lend_on_both();
		ck_assert_int_eq(ledger_quarantine(b.l, b.conn[1], "test"), ESCROW_OK);
		ck_assert_int_eq(ledger_conn_collect(b.at[1], b.conn[1], done, 2), 0);
		atomic_store(&turn, i);
		look(i % (2 * APART));
		n = bed_cqe(&b, 0, lent[0], LEDGER_OK, done, 2);
		until(&turned, i);
		told_as_one(done, n, op);
		ck_assert_uint_eq(bed_stuck(&b, NULL, ESCROW_CHARGE_OPS), 0);
		ck_assert_uint_eq(bed_used(&b, NULL, ESCROW_CHARGE_OPS), 0);
		ck_assert_int_eq(ledger_late_receipt(b.l, b.conn[1], ESCROW_RECEIPT_QP_DESTROYED),
				 ESCROW_OK);
		b.conn[1] = bed_connect(&b, 1, b.account);
	}
	pthread_join(other, NULL);
	bed_end(&b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ledger-threads");
	TCase *tc = tcase_create("threads");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, two_threads, 0, 2);
	tcase_add_test(tc, weighed_by_two);
	tcase_add_test(tc, ends_and_comes_back);
	suite_add_tcase(suite, tc);
	return testing_run(suite);
}
