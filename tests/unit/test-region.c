/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory: who may touch a range, when it is freed, and what stays withheld. */
#include <config.h>

#include <stdbool.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"

#define SIZE 4096u

static char memory[2 * SIZE];
static int freed;
static struct escrow_host_engine *host;
static uint64_t region, remote;

static void setup(void)
{
	freed = 0;
	host = hosting_open(hosting_module("fake"), 0, NULL);
	region = hosting_register(host, memory, SIZE, &freed);
	remote = hosting_remote(host);
}

/* What borrowing for writing, then for reading, answers; what succeeded is returned. */
static void assert_borrows(uint64_t offset, uint64_t length, escrow_status write,
			   escrow_status read)
{
	ck_assert_int_eq(escrow_borrow_for_write(host, region, offset, length), write);
	if (write == ESCROW_OK)
		ck_assert_int_eq(escrow_return(host, region, offset, length), ESCROW_OK);
	ck_assert_int_eq(escrow_borrow_for_read(host, region, offset, length), read);
	if (read == ESCROW_OK)
		ck_assert_int_eq(escrow_return(host, region, offset, length), ESCROW_OK);
}

START_TEST(it_is_freed_once_and_only_after_the_receipt)
{
	struct escrow_event event;

	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(freed, 0); /* the event has not been polled */
	event = hosting_expect(host, ESCROW_EV_REGION_RELEASED);
	ck_assert_uint_eq(event.object, region);
	ck_assert_uint_eq(event.user, 77);
	ck_assert_int_eq(freed, 1);
	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_E_INVALID); /* stale */
	hosting_close(host);
	ck_assert_int_eq(freed, 1);
}
END_TEST

START_TEST(closing_frees_what_is_left)
{
	ck_assert_int_ge(escrow_close(host, 0, ESCROW_CLOSE_GRACEFUL), 0);
	hosting_expect(host, ESCROW_EV_REGION_RELEASED);
	ck_assert_int_eq(freed, 1);
	ck_assert_int_eq(escrow_release(host), ESCROW_E_STATE); /* CLOSED has not been told */
	hosting_expect(host, ESCROW_EV_CLOSED);
	hosting_expect_none(host);
	ck_assert_int_eq(escrow_release(host), ESCROW_OK);
}
END_TEST

START_TEST(without_a_receipt_it_is_withheld)
{
	struct escrow_engine *engine;
	struct escrow_withheld list[2];
	struct escrow_quota used = {.size = sizeof(used)};
	struct escrow_event event;
	uint64_t bytes;

	hosting_fake(host, &engine)->stick(engine, 1);
	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_IN_PROGRESS);
	event = hosting_expect(host, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(event.object, region);
	ck_assert_int_eq(freed, 0);
	ck_assert_int_eq(escrow_withheld(list, 2, &bytes), 1);
	ck_assert_uint_eq(bytes, SIZE);
	ck_assert_ptr_eq(list[0].addr, memory);
	ck_assert_uint_eq(list[0].region, region);
	ck_assert_str_eq(list[0].backend, "fake");
	ck_assert_uint_eq(list[0].orphan, 0);
	/* nobody may touch it, and no op may use it */
	assert_borrows(0, 8, ESCROW_E_BUSY, ESCROW_E_BUSY);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote,
					  (struct escrow_sge){region, 0, 8}, NULL),
			 ESCROW_E_STATE);
	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_E_BUSY);
	/* the engine ends in quarantine too, and the memory outlives it */
	ck_assert_int_ge(escrow_close(host, 0, ESCROW_CLOSE_GRACEFUL), 0);
	event = hosting_expect(host, ESCROW_EV_QUARANTINED);
	ck_assert_uint_eq(event.object, 0);
	ck_assert_uint_eq(event.bytes, SIZE);
	ck_assert_int_eq(escrow_release(host), ESCROW_OK);
	ck_assert_int_eq(freed, 0);
	ck_assert_int_eq(escrow_withheld(list, 2, &bytes), 1);
	ck_assert_uint_eq(list[0].orphan, 1);
	ck_assert_str_eq(list[0].engine_name, "test");
	escrow_quota_get(NULL, &used);
	ck_assert_uint_eq(used.bytes, SIZE);
	ck_assert_uint_eq(used.regions, 1);
}
END_TEST

START_TEST(a_late_receipt_gives_it_back)
{
	struct escrow_engine *engine;
	const struct fake_control *fake = hosting_fake(host, &engine);

	fake->stick(engine, 1);
	ck_assert_int_ge(escrow_close(host, 0, ESCROW_CLOSE_GRACEFUL), 0);
	ck_assert_uint_eq(hosting_expect(host, ESCROW_EV_QUARANTINED).object, region);
	ck_assert_uint_eq(hosting_expect(host, ESCROW_EV_QUARANTINED).object, 0);
	fake->unstick(engine);
	hosting_expect(host, ESCROW_EV_REGION_RELEASED);
	ck_assert_int_eq(freed, 1);
	hosting_expect(host, ESCROW_EV_CLOSED);
	ck_assert_int_eq(escrow_withheld(NULL, 0, NULL), 0);
	ck_assert_int_eq(escrow_release(host), ESCROW_OK);
}
END_TEST

/* Q23 */
START_TEST(a_write_lends_for_reading)
{
	struct escrow_event event;
	uint64_t op;

	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote,
					  (struct escrow_sge){region, 100, 50}, &op),
			 1);
	assert_borrows(100, 50, ESCROW_E_BUSY, ESCROW_OK);
	assert_borrows(149, 1, ESCROW_E_BUSY, ESCROW_OK);
	assert_borrows(0, 101, ESCROW_E_BUSY, ESCROW_OK);
	assert_borrows(0, 100, ESCROW_OK, ESCROW_OK);
	assert_borrows(150, 10, ESCROW_OK, ESCROW_OK);
	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_cancel(host, op), ESCROW_IN_PROGRESS);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	assert_borrows(100, 50, ESCROW_E_BUSY, ESCROW_OK); /* until the host knows */
	event = hosting_expect(host, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(event.user, 42);
	ck_assert_uint_eq(event.object, op);
	assert_borrows(100, 50, ESCROW_OK, ESCROW_OK);
	ck_assert_int_eq(escrow_cancel(host, op), ESCROW_E_INVALID);
	hosting_close(host);
}
END_TEST

/* Q30 */
START_TEST(a_read_lends_exclusively)
{
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
					  (struct escrow_sge){region, 0, SIZE}, NULL),
			 1);
	assert_borrows(SIZE - 1, 1, ESCROW_E_BUSY, ESCROW_E_BUSY);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_expect(host, ESCROW_EV_OP_DONE);
	assert_borrows(0, SIZE, ESCROW_OK, ESCROW_OK);
	hosting_close(host);
}
END_TEST

/* Custody HELD: the op is over, its bytes are not back. */
START_TEST(held_bytes_stay_lent)
{
	struct escrow_engine *engine;
	const struct fake_control *fake = hosting_fake(host, &engine);
	struct escrow_event event;
	uint64_t op;

	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
					  (struct escrow_sge){region, 0, 10}, &op),
			 1);
	hosting_finish(host, ESCROW_CUSTODY_HELD);
	event = hosting_expect(host, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(event.custody, ESCROW_CUSTODY_HELD);
	assert_borrows(0, 10, ESCROW_E_BUSY, ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_E_BUSY);
	fake->give_back(engine);
	event = hosting_expect(host, ESCROW_EV_OP_RETURNED);
	ck_assert_uint_eq(event.object, op);
	ck_assert_uint_eq(event.user, 42);
	assert_borrows(0, 10, ESCROW_OK, ESCROW_OK);
	hosting_close(host);
}
END_TEST

START_TEST(a_borrow_keeps_ops_away)
{
	const struct escrow_sge inside = {region, 20, 1}, beside = {region, 30, 10};

	ck_assert_int_eq(escrow_borrow_for_write(host, region, 10, 20), ESCROW_OK);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote, inside, NULL), ESCROW_E_BUSY);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote, inside, NULL), ESCROW_E_BUSY);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote, beside, NULL), 1);
	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_return(host, region, 10, 20), ESCROW_OK);
	ck_assert_int_eq(escrow_borrow_for_read(host, region, 10, 10), ESCROW_OK);
	ck_assert_int_eq(escrow_borrow_for_read(host, region, 15, 10), ESCROW_OK); /* shared */
	ck_assert_int_eq(escrow_borrow_for_write(host, region, 15, 1), ESCROW_E_BUSY);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote, inside, NULL), 1);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote, inside, NULL), ESCROW_E_BUSY);
	ck_assert_int_eq(escrow_return(host, region, 10, 10), ESCROW_OK);
	ck_assert_int_eq(escrow_return(host, region, 10, 10), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_return(host, region, 15, 10), ESCROW_OK);
	for (int i = 0; i < 2; i++)
		hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_close(host);
}
END_TEST

START_TEST(ranges_outside_are_refused)
{
	const uint64_t far = UINT64_MAX;

	ck_assert_int_eq(escrow_borrow_for_write(host, region, 0, SIZE + 1), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_borrow_for_write(host, region, far, 2), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_borrow_for_write(host, region, 1, far), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_borrow_for_write(host, region, 0, 0), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_borrow_for_read(host, region + 1, 0, 1), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_borrow_for_read(host, remote, 0, 1), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_borrow_for_read(host, 0, 0, 1), ESCROW_E_INVALID);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
					  (struct escrow_sge){region, far, 2}, NULL),
			 ESCROW_E_INVALID);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
					  (struct escrow_sge){region, 1, SIZE}, NULL),
			 ESCROW_E_INVALID);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, region,
					  (struct escrow_sge){region, 0, 1}, NULL),
			 ESCROW_E_INVALID);
	/* none of these left anything lent */
	assert_borrows(0, SIZE, ESCROW_OK, ESCROW_OK);
	hosting_close(host);
}
END_TEST

START_TEST(borrows_are_bounded)
{
	for (uint64_t i = 0; i < 64; i++)
		ck_assert_int_eq(escrow_borrow_for_read(host, region, i, 1), ESCROW_OK);
	ck_assert_int_eq(escrow_borrow_for_read(host, region, 64, 1), ESCROW_E_LIMIT);
	ck_assert_int_eq(escrow_return(host, region, 5, 1), ESCROW_OK);
	ck_assert_int_eq(escrow_borrow_for_read(host, region, 64, 1), ESCROW_OK);
	/* a region that ends takes its borrows with it: its successor in that place has none */
	hosting_close(host);
	setup();
	assert_borrows(0, SIZE, ESCROW_OK, ESCROW_OK);
	hosting_close(host);
}
END_TEST

START_TEST(bad_registrations_are_refused)
{
	struct escrow_region args = {.size = sizeof(args),
				     .addr = memory,
				     .length = 1,
				     .memory_kind = ESCROW_MEMORY_HOST,
				     .dmabuf_fd = -1};
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_quota before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	uint64_t handle = 99;

	escrow_quota_get(NULL, &before);
	args.length = 0;
	ck_assert_int_eq(escrow_register(host, &args, &handle, &error), ESCROW_E_INVALID);
	args.length = UINT64_MAX;
	ck_assert_int_eq(escrow_register(host, &args, &handle, &error), ESCROW_E_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "wrap"));
	args.length = 1;
	args.memory_kind = 9;
	ck_assert_int_eq(escrow_register(host, &args, &handle, &error), ESCROW_E_INVALID);
	args.memory_kind = ESCROW_MEMORY_HOST;
	args.flags = 1;
	ck_assert_int_eq(escrow_register(host, &args, &handle, &error), ESCROW_E_UNSUPPORTED);
	args.flags = 0;
	args.addr = NULL;
	ck_assert_int_eq(escrow_register(host, &args, &handle, &error), ESCROW_E_INVALID);
	args.addr = memory;
	args.size = 8;
	ck_assert_int_eq(escrow_register(host, &args, &handle, &error), ESCROW_E_INVALID);
	ck_assert_uint_eq(handle, 99);
	escrow_quota_get(NULL, &after);
	ck_assert_uint_eq(after.bytes, before.bytes);
	ck_assert_uint_eq(after.regions, before.regions);
	hosting_close(host);
}
END_TEST

START_TEST(the_quota_is_of_the_process)
{
	struct escrow_region args = {.size = sizeof(args),
				     .addr = memory + SIZE,
				     .length = 11,
				     .memory_kind = ESCROW_MEMORY_HOST,
				     .dmabuf_fd = -1};
	struct escrow_host_engine *other = hosting_open(hosting_module("bad-unmap"), 0, NULL);
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_quota used = {.size = sizeof(used)}, limits = used;
	uint64_t handle;

	escrow_quota_get(&limits, NULL); /* none */
	limits.bytes = SIZE + 10;
	escrow_quota_set(&limits);
	ck_assert_int_eq(escrow_register(other, &args, &handle, &error), ESCROW_E_QUOTA);
	ck_assert_ptr_nonnull(strstr(error.text, "4106"));
	args.length = 10;
	ck_assert_int_eq(escrow_register(other, &args, &handle, &error), ESCROW_OK);
	limits.bytes = UINT64_MAX;
	limits.regions = 2;
	limits.grants = 0;
	escrow_quota_set(&limits);
	ck_assert_int_eq(escrow_register(host, &args, &handle, &error), ESCROW_E_QUOTA);
	hosting_close(other);
	ck_assert_int_eq(escrow_register(host, &args, &handle, &error), ESCROW_OK);
	{
		struct escrow_grant_args grant = {
			.size = sizeof(grant), .rights = 1, .region = region, .length = 1};

		ck_assert_int_eq(escrow_grant(host, &grant, &handle, &error), ESCROW_E_QUOTA);
	}
	hosting_close(host);
	escrow_quota_get(&limits, &used);
	ck_assert_uint_eq(used.bytes, 0);
	ck_assert_uint_eq(used.regions, 0);
	ck_assert_uint_eq(limits.regions, 2);
}
END_TEST

/* What ends a child that reads, or writes, through this address: SIGSEGV where it must not; or 0. */
static int signal_of(volatile char *at, bool write)
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		if (write)
			*at = 1;
		else
			(void)*at;
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

/* Four pages of a host engine with this debug mode. */
static char *guarded(uint32_t flags, uint64_t page)
{
	char *pages =
		mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(pages, MAP_FAILED);
	hosting_close(host);
	host = hosting_open(hosting_module("fake"), flags, NULL);
	remote = hosting_remote(host);
	region = hosting_register(host, pages, 4 * page, &freed);
	return pages;
}

static void lend(uint32_t opcode, uint64_t in, uint64_t offset, uint64_t length)
{
	ck_assert_int_eq(hosting_transfer(host, opcode, remote,
					  (struct escrow_sge){in, offset, length}, NULL),
			 1);
}

/* The oldest op ends so. */
static void end_op(uint8_t custody)
{
	hosting_finish(host, custody);
	hosting_expect(host, ESCROW_EV_OP_DONE);
}

/* Q23, Q24 */
START_TEST(the_debug_mode_faults_on_a_write_through_a_lent_range)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	char *pages = guarded(ESCROW_GUARD_WRITES, page);

	/* all of page 1, a part of page 2, twice */
	for (int i = 0; i < 2; i++)
		lend(ESCROW_WRITE, region, page, page + 100);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(signal_of(pages + page, true), SIGSEGV);
		ck_assert_int_eq(pages[page], 0); /* reading goes on */
		ck_assert_int_eq(signal_of(pages + 2 * page + 200, true), 0);
		ck_assert_int_eq(signal_of(pages, true), 0);
		end_op(ESCROW_CUSTODY_RETURNED);
	}
	ck_assert_int_eq(signal_of(pages + page, true), 0);
	/* a READ is not guarded */
	lend(ESCROW_READ, region, 0, page);
	ck_assert_int_eq(signal_of(pages, true), 0);
	end_op(ESCROW_CUSTODY_RETURNED);
	/* an op that is refused leaves no page behind */
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote + 1,
					  (struct escrow_sge){region, 0, page}, NULL),
			 ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_borrow_for_write(host, region, 0, 1), ESCROW_OK);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote,
					  (struct escrow_sge){region, 0, page}, NULL),
			 ESCROW_E_BUSY);
	pages[0] = 1;
	hosting_close(host);
	munmap(pages, 4 * page);
}
END_TEST

/* What a READ fills may not even be read; bytes that are HELD are still out. */
START_TEST(the_debug_mode_faults_on_any_access_through_what_a_read_fills)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	char *pages = guarded(ESCROW_GUARD_READS, page);

	lend(ESCROW_READ, region, page - 1, page + 1);
	for (int write = 0; write < 2; write++) {
		ck_assert_int_eq(signal_of(pages + page - 1, write), 0);
		ck_assert_int_eq(signal_of(pages + page, write), SIGSEGV);
		ck_assert_int_eq(signal_of(pages + 2 * page - 1, write), SIGSEGV);
		ck_assert_int_eq(signal_of(pages + 2 * page, write), 0);
	}
	end_op(ESCROW_CUSTODY_HELD);
	ck_assert_int_eq(signal_of(pages + page, false), SIGSEGV);
	{
		struct escrow_engine *engine;
		const struct fake_control *control = hosting_fake(host, &engine);

		ck_assert_int_eq(control->give_back(engine), 1);
	}
	hosting_expect(host, ESCROW_EV_OP_RETURNED);
	ck_assert_int_eq(signal_of(pages + page, true), 0);
	/* a WRITE is not guarded */
	lend(ESCROW_WRITE, region, 0, page);
	ck_assert_int_eq(signal_of(pages, true), 0);
	end_op(ESCROW_CUSTODY_RETURNED);
	hosting_close(host);
	munmap(pages, 4 * page);
}
END_TEST

/* One page that a READ and a WRITE have, in either order, and through two regions of the same memory. */
START_TEST(the_debug_mode_counts_every_lend_of_a_page)
{
	static const uint32_t order[][2] = {{ESCROW_READ, ESCROW_WRITE},
					    {ESCROW_WRITE, ESCROW_READ}};
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	char *pages = guarded(ESCROW_GUARD_READS | ESCROW_GUARD_WRITES, page);
	uint64_t over = hosting_register(host, pages + page, 2 * page, NULL);

	for (int i = 0; i < 2; i++) {
		lend(order[i][0], region, page, page);
		lend(order[i][1], over, 0, page);
		ck_assert_int_eq(signal_of(pages + page, false), SIGSEGV);
		end_op(ESCROW_CUSTODY_RETURNED); /* the first: the second still has it */
		ck_assert_int_eq(signal_of(pages + page, false),
				 order[i][1] == ESCROW_READ ? SIGSEGV : 0);
		ck_assert_int_eq(signal_of(pages + page, true), SIGSEGV);
		end_op(ESCROW_CUSTODY_RETURNED);
		ck_assert_int_eq(signal_of(pages + page, true), 0);
	}
	hosting_close(host);
	munmap(pages, 4 * page);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region");
	TCase *tcase = tcase_create("memory");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, it_is_freed_once_and_only_after_the_receipt);
	tcase_add_test(tcase, closing_frees_what_is_left);
	tcase_add_test(tcase, without_a_receipt_it_is_withheld);
	tcase_add_test(tcase, a_late_receipt_gives_it_back);
	tcase_add_test(tcase, a_write_lends_for_reading);
	tcase_add_test(tcase, a_read_lends_exclusively);
	tcase_add_test(tcase, held_bytes_stay_lent);
	tcase_add_test(tcase, a_borrow_keeps_ops_away);
	tcase_add_test(tcase, ranges_outside_are_refused);
	tcase_add_test(tcase, borrows_are_bounded);
	tcase_add_test(tcase, bad_registrations_are_refused);
	tcase_add_test(tcase, the_quota_is_of_the_process);
	tcase_add_test(tcase, the_debug_mode_faults_on_a_write_through_a_lent_range);
	tcase_add_test(tcase, the_debug_mode_faults_on_any_access_through_what_a_read_fills);
	tcase_add_test(tcase, the_debug_mode_counts_every_lend_of_a_page);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
