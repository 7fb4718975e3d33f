/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What happens in the middle of an op: its region ends between the check and the lane, or is withdrawn while slices of it
 * are on their way, or the device takes none of them, or the host acts as soon as it can know of its end.  The moments are
 * those at which the engine chooses a connection, and at which it wakes the host (the linker puts functions of ours before
 * those two, see local.mk), and at which it rings a doorbell.
 */
#include <errno.h>
#include <string.h>

#include "backends/engine/transfer.h"
#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

extern const struct native_ops mock_native;

#define SLICE 4096u
#define SLICES 100u
#define BIG (SLICES * SLICE)

static const char *settings_of[] = {
	"test.faults=1", "drain_ms=100", "control_thread=0", "slice_bytes=4096", NULL, NULL, NULL};

static struct kit lender, user;
static uint8_t mine[BIG], other[BIG], theirs[BIG];
static uint64_t going;  /* region of the user that ends in the middle */
static uint64_t coming; /* and one that has its place then */

/* ---- Moments ----------------------------------------------------------------------------------- */
static void (*at_choice)(void);                  /* once */
static void (*at_wake)(void);                    /* once */
static void (*at_doorbell)(int *rc, bool first); /* *rc: what the device answers instead */
static uint32_t doorbells;                       /* of data */

escrow_status __real_en_choose(struct escrow_engine *e, struct transfer *t, struct conn **out);
escrow_status __wrap_en_choose(struct escrow_engine *e, struct transfer *t, struct conn **out);

escrow_status __wrap_en_choose(struct escrow_engine *e, struct transfer *t, struct conn **out)
{
	void (*now)(void) = at_choice;

	at_choice = NULL;
	if (now)
		now();
	return __real_en_choose(e, t, out);
}

void __real_event_wake(struct escrow_engine *e);
void __wrap_event_wake(struct escrow_engine *e);

void __wrap_event_wake(struct escrow_engine *e)
{
	void (*now)(void) = at_wake;

	at_wake = NULL;
	if (now)
		now();
	__real_event_wake(e);
}

static int watched_post(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	int rc = 0;

	if (at_doorbell && (wr->opcode == NATIVE_WRITE || wr->opcode == NATIVE_READ))
		at_doorbell(&rc, doorbells++ == 0);
	if (!rc)
		return mock_native.post(c, wr, n, posted);
	*posted = 0;
	return rc;
}

/* ---- Two ends ------------------------------------------------------------------------------------ */
static uint64_t take(struct kit *k, uint8_t *memory, uint64_t length)
{
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = memory,
					  .length = length,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	uint64_t region;

	ck_assert_int_eq(KIT_OPS->register_memory(k->engine, &args, &region, NULL), ESCROW_OK);
	return region;
}

static void begin(const char *more, const char *and_more)
{
	settings_of[4] = more;
	settings_of[5] = and_more;
	kit_settings = settings_of;
	kit_start(&lender, "l");
	kit_start(&user, "u");
	kit_settings = NULL;
	kit_table.post = watched_post;
	kit_connect(&lender, &user);
	at_choice = at_wake = NULL;
	at_doorbell = NULL;
	doorbells = 0;
}

static void finish(void)
{
	at_doorbell = NULL;
	kit_close(&user, &lender, false);
	kit_close(&lender, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

/* All of `theirs`, for the user. */
static uint64_t grant_much(void)
{
	uint64_t remote, len = 4096, grant;
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_WRITE,
					 .peer = lender.peer,
					 .length = BIG};
	uint8_t buf[4096];

	args.region = take(&lender, theirs, BIG);
	ck_assert_int_eq(KIT_OPS->grant(lender.engine, &args, &grant, NULL), ESCROW_IN_PROGRESS);
	kit_wait(&lender, &user, ESCROW_EV_GRANT_READY);
	ck_assert_int_eq(KIT_OPS->export_grant(lender.engine, grant, buf, &len), ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->import_grant(user.engine, user.peer, buf, len, 3, &remote, NULL),
			 ESCROW_OK);
	return remote;
}

static int32_t submit(uint64_t remote, uint32_t opcode, struct escrow_sge *ranges, uint32_t n)
{
	struct escrow_op op = {
		.user = 8, .remote = remote, .opcode = opcode, .nsge = n, .sge = ranges};
	uint64_t id;

	return KIT_OPS->transfer(user.engine, &op, 1, sizeof(op), 0, &id);
}

/* ---- Between the check and the lane ---------------------------------------------------------- */
/* The region ends to its end, the host has polled that, and another one has its place. */
static void another_in_its_place(void)
{
	struct region *was = en_region_find(user.engine, going);

	ck_assert_int_eq(KIT_OPS->deregister_memory(user.engine, going, 0), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(kit_wait(&user, NULL, ESCROW_EV_REGION_RELEASED).object, going);
	coming = take(&user, other, BIG);
	ck_assert_ptr_eq(en_region_find(user.engine, coming), was);
}

static const uint32_t opcodes[] = {ESCROW_READ, ESCROW_WRITE};

START_TEST(a_dead_handle_moves_no_byte)
{
	struct escrow_sge range = {.length = SLICE};
	uint64_t remote;

	begin("mock.rails=2", NULL);
	remote = kit_grant(&lender, &user, ESCROW_MAY_READ | ESCROW_MAY_WRITE, NULL);
	memset(other, 'o', BIG);
	range.region = going = take(&user, mine, BIG);
	at_choice = another_in_its_place;
	ck_assert_int_eq(submit(remote, opcodes[_i], &range, 1), ESCROW_E_INVALID);
	ck_assert(!at_choice);
	kit_never(&user, &lender, ESCROW_EV_OP_DONE);
	for (uint32_t i = 0; i < SLICE; i++) {
		ck_assert_int_eq(other[i], 'o');
		ck_assert_int_eq(lender.memory[i], 'l');
	}
	/* Nothing was kept of it, and the new one may be used. */
	range.region = coming;
	ck_assert_int_eq(submit(remote, ESCROW_WRITE, &range, 1), 1);
	ck_assert_int_eq(kit_wait(&user, &lender, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	ck_assert_int_eq(lender.memory[0], 'o');
	ck_assert_int_eq(KIT_OPS->deregister_memory(user.engine, coming, 0), ESCROW_IN_PROGRESS);
	finish();
}
END_TEST

/* ---- At a doorbell ------------------------------------------------------------------------------ */
static int first_answer;

static void withdraw_first(int *rc, bool first)
{
	if (!first)
		return;
	*rc = first_answer;
	ck_assert_int_eq(KIT_OPS->deregister_memory(user.engine, going, 0), ESCROW_IN_PROGRESS);
}

/*
 * Two rails of one device share a lane, so the first slice is posted, and refused, when the second comes; of that the
 * first range is lent and the second is not: the last thing that the op waits for is what is taken back.
 */
START_TEST(the_last_slice_is_taken_back)
{
	struct escrow_sge ranges[] = {{.length = SLICE + 100}, {.length = 100}};
	struct escrow_event ev;
	uint64_t remote;

	begin("mock.rails=2", "mock.contexts=1");
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	ranges[0].region = user.region;
	ranges[1].region = going = take(&user, mine, BIG);
	first_answer = ENOMEM;
	at_doorbell = withdraw_first;
	ck_assert_int_eq(submit(remote, ESCROW_WRITE, ranges, 2), 1);
	ck_assert_uint_eq(doorbells, 1);
	ev = kit_wait(&user, &lender, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(ev.user, 8);
	ck_assert_int_eq(ev.status, ESCROW_E_DEVICE);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_NOT_EXECUTED);
	kit_never(&user, &lender, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(atomic_load(&user.engine->active), 0);
	ck_assert_int_eq(lender.memory[0], 'l');
	finish();
}
END_TEST

/*
 * More slices than the 64 that one doorbell takes.  What was posted before the region went is done, and ends the op;
 * nobody else's ops are lost with it.
 */
START_TEST(a_region_goes_between_doorbells)
{
	struct escrow_sge ranges[] = {{.length = 64 * SLICE}, {.length = 36 * SLICE}};
	struct escrow_event ev;
	uint64_t remote;

	begin("mock.rails=1", "send_depth=512");
	remote = grant_much();
	ranges[0].region = take(&user, other, BIG);
	ranges[1].region = going = take(&user, mine, BIG);
	first_answer = 0;
	at_doorbell = withdraw_first;
	memset(other, 'o', BIG);
	memset(theirs, 't', BIG);
	ck_assert_int_eq(submit(remote, ESCROW_WRITE, ranges, 2), 1);
	ev = kit_wait(&user, &lender, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(ev.status, ESCROW_E_DEVICE);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(doorbells, 1);
	ck_assert_uint_eq(ev.bytes, 64 * SLICE);
	ck_assert_int_eq(theirs[64 * SLICE - 1], 'o');
	ck_assert_int_eq(theirs[64 * SLICE], 't');
	kit_never(&user, &lender, ESCROW_EV_PEER_DOWN);
	/* The peer is there, and takes more. */
	ck_assert_int_eq(submit(remote, ESCROW_WRITE, ranges, 1), 1);
	ck_assert_int_eq(kit_wait(&user, &lender, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	finish();
}
END_TEST

/* ---- As soon as the host may know -------------------------------------------------------------- */
static uint64_t first_remote, second_remote;

/* Another thread's poll, which the event has woken while the one that told it is not done. */
static void the_host_goes_on(void)
{
	ck_assert_int_eq(kit_wait(&user, NULL, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->forget_grant(user.engine, first_remote), ESCROW_OK);
	ck_assert_int_eq(submit(second_remote, ESCROW_WRITE, NULL, 0), 1);
}

/* What the op counted for, its remote's use and the quota, is no longer counted when its end can be seen. */
START_TEST(an_end_that_is_seen_is_whole)
{
	begin("mock.rails=1", "quota.ops=1");
	first_remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	second_remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	while (KIT_OPS->arm(user.engine, 0) == ESCROW_EVENTS_PENDING)
		kit_turn(&user, &lender);
	at_wake = the_host_goes_on;
	ck_assert_int_eq(submit(first_remote, ESCROW_WRITE, NULL, 0), 1);
	ck_assert(!at_wake);
	ck_assert_int_eq(kit_wait(&user, &lender, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	ck_assert_uint_eq(atomic_load(&user.engine->active), 0);
	finish();
}
END_TEST

/* What is refused was counted for a moment, and is not any more: with a quota of one op another one goes. */
START_TEST(a_refused_op_is_not_counted)
{
	struct escrow_sge range = {.offset = KIT_BYTES, .length = 1};
	uint64_t remote;

	begin("mock.rails=1", "quota.ops=1");
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	range.region = user.region;
	ck_assert_int_eq(submit(remote, ESCROW_WRITE, &range, 1), ESCROW_E_INVALID);
	range.offset = 0;
	ck_assert_int_eq(submit(remote, ESCROW_WRITE, &range, 1), 1);
	ck_assert_int_eq(submit(remote, ESCROW_WRITE, &range, 1), ESCROW_E_QUOTA);
	ck_assert_int_eq(kit_wait(&user, &lender, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	ck_assert_int_eq(KIT_OPS->forget_grant(user.engine, remote), ESCROW_OK);
	finish();
}
END_TEST

/* A completion is lost, and the next one proves its op to have ended too: of another remote, and each is left. */
START_TEST(one_completion_of_two_remotes)
{
	struct escrow_sge range = {.length = 64};
	uint64_t remotes[2];
	int i;

	begin("mock.rails=1", NULL);
	range.region = user.region;
	for (i = 0; i < 2; i++)
		remotes[i] = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	kit_plan(&user, "cqe=drop:1");
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(submit(remotes[i], ESCROW_WRITE, &range, 1), 1);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(kit_wait(&user, &lender, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(KIT_OPS->forget_grant(user.engine, remotes[i]), ESCROW_OK);
	finish();
}
END_TEST

/* ---- Handles that are not the host's --------------------------------------------------------- */
/* A registration is one a device, each with a handle in the records; the first one's is the host's. */
START_TEST(no_other_part_is_a_region)
{
	struct escrow_sge range = {.length = 100};
	struct escrow_record record;
	uint64_t remote, cursor = 0, part = 0;

	begin("mock.rails=1", NULL);
	kit_close(&user, &lender, false);
	settings_of[4] = "mock.rails=2";
	settings_of[5] = "mock.contexts=2";
	kit_settings = settings_of;
	kit_start(&user, "u");
	kit_settings = NULL;
	kit_connect(&lender, &user);
	remote = kit_grant(&lender, &user, ESCROW_MAY_WRITE, NULL);
	while (KIT_OPS->records(user.engine, &cursor, &record, 1, sizeof(record)) == 1)
		if (record.kind == ESCROW_OWNER_REGION && record.owner != user.region)
			part = record.owner;
	ck_assert_uint_ne(part, 0);
	range.region = part;
	ck_assert_int_eq(submit(remote, ESCROW_WRITE, &range, 1), ESCROW_E_INVALID);
	range.length = SLICE * 2;
	ck_assert_int_eq(submit(remote, ESCROW_WRITE, &range, 1), ESCROW_E_INVALID);
	range.region = user.region;
	ck_assert_int_eq(submit(remote, ESCROW_WRITE, &range, 1), 1);
	ck_assert_int_eq(kit_wait(&user, &lender, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	finish();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-midway");
	TCase *t = tcase_create("midway");

	tcase_add_loop_test(t, a_dead_handle_moves_no_byte, 0,
			    (int)(sizeof(opcodes) / sizeof(opcodes[0])));
	tcase_add_test(t, the_last_slice_is_taken_back);
	tcase_add_test(t, a_region_goes_between_doorbells);
	tcase_add_test(t, an_end_that_is_seen_is_whole);
	tcase_add_test(t, a_refused_op_is_not_counted);
	tcase_add_test(t, one_completion_of_two_remotes);
	tcase_add_test(t, no_other_part_is_a_region);
	suite_add_tcase(s, t);
	return testing_run(s);
}
