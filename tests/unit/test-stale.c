/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A handle that goes stale in the middle of a call, its place given to another: the call is stopped
 * there, at memory of ours that it reads, or at GLib's locks, which this program stands before.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include <glib.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"

#define PAGE 4096u
#define EXPORT __attribute__((visibility("default")))

static _Alignas(PAGE) char memory[PAGE];
static struct escrow_host_engine *host;
static uint64_t region, remote;
static void (*at_lock)(void), (*at_unlock)(void); /* called once */

static void call_once(void (**hook)(void))
{
	void (*call)(void) = *hook;

	*hook = NULL;
	if (call)
		call();
}

EXPORT void g_mutex_lock(GMutex *mutex)
{
	static void (*real)(GMutex *);

	if (!real)
		real = (void (*)(GMutex *))(uintptr_t)dlsym(RTLD_NEXT, "g_mutex_lock");
	call_once(&at_lock);
	real(mutex);
}

EXPORT void g_mutex_unlock(GMutex *mutex)
{
	static void (*real)(GMutex *);

	if (!real)
		real = (void (*)(GMutex *))(uintptr_t)dlsym(RTLD_NEXT, "g_mutex_unlock");
	real(mutex);
	call_once(&at_unlock);
}

static void open_with(uint32_t flags)
{
	host = hosting_open(hosting_module("fake"), flags, NULL);
	region = hosting_register(host, memory, PAGE, NULL);
	remote = hosting_remote(host);
}

/* ---- A remote ---------------------------------------------------------------------------------- */
static struct escrow_sge *range; /* on a page of its own, which cannot be read at first */
static uint64_t other;

/* A handler may do all that here: the read that it is called at holds no lock and is in no allocation. */
static void give_the_remotes_place_away(int signal)
{
	ck_assert_int_eq(mprotect(range, PAGE, PROT_READ | PROT_WRITE), 0);
	ck_assert_int_eq(escrow_forget_grant(host, remote), ESCROW_OK);
	other = hosting_remote(host);
}

/* The fake gives every remote the same handle: this op would go by that of the other one. */
START_TEST(an_op_does_not_go_by_the_remote_that_took_its_place)
{
	struct sigaction action = {.sa_handler = give_the_remotes_place_away,
				   .sa_flags = SA_NODEFER};
	struct escrow_op op = {.user = 1, .opcode = ESCROW_WRITE, .nsge = 1};
	uint64_t id;

	open_with(0);
	range = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(range, MAP_FAILED);
	*range = (struct escrow_sge){region, 0, 8};
	ck_assert_int_eq(mprotect(range, PAGE, PROT_NONE), 0);
	ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
	op.remote = remote;
	op.sge = range;
	ck_assert_int_eq(escrow_transfer(host, &op, 1, sizeof(op), 0, &id), ESCROW_E_INVALID);
	ck_assert_uint_eq((uint32_t)other, (uint32_t)remote); /* the same place */
	ck_assert_uint_ne(other, remote);
	op.remote = other;
	ck_assert_int_eq(escrow_transfer(host, &op, 1, sizeof(op), 0, &id), 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_close(host);
}
END_TEST

/* ---- A region ---------------------------------------------------------------------------------- */
static void release_the_region(void)
{
	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_IN_PROGRESS);
	hosting_wait(host, ESCROW_EV_REGION_RELEASED);
}

static void give_the_regions_place_away(void)
{
	release_the_region();
	other = hosting_register(host, memory, PAGE, NULL);
	ck_assert_int_eq(escrow_borrow_for_write(host, other, 0, 8), ESCROW_OK);
}

START_TEST(a_borrow_is_not_given_back_for_another_region)
{
	open_with(0);
	at_lock = give_the_regions_place_away;
	ck_assert_int_eq(escrow_return(host, region, 0, 8), ESCROW_E_INVALID);
	ck_assert_uint_eq((uint32_t)other, (uint32_t)region); /* the same place */
	ck_assert_int_eq(escrow_return(host, other, 0, 8), ESCROW_OK);
	hosting_close(host);
}
END_TEST

/* Is the page as it was before anything of it was lent?  The kernel asks for us. */
static bool may_write(void)
{
	int ends[2];
	bool yes;

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(write(ends[1], "x", 1), 1);
	yes = read(ends[0], memory, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return yes;
}

/* The op is refused, as its region goes; what the guard did to the page for it is taken back. */
START_TEST(the_guard_leaves_memory_that_is_given_back)
{
	open_with(ESCROW_GUARD_WRITES);
	at_unlock = release_the_region;
	ck_assert_int_eq(hosting_transfer(host, ESCROW_WRITE, remote,
					  (struct escrow_sge){region, 0, PAGE}, NULL),
			 ESCROW_E_BUSY);
	ck_assert(may_write());
	hosting_close(host);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stale");
	TCase *tcase = tcase_create("handles");

	tcase_add_test(tcase, an_op_does_not_go_by_the_remote_that_took_its_place);
	tcase_add_test(tcase, a_borrow_is_not_given_back_for_another_region);
	tcase_add_test(tcase, the_guard_leaves_memory_that_is_given_back);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
