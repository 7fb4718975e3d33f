/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Native calls that are refused while something is made, one after the other: whichever it is, what was made before is
 * unmade, nothing stays charged, and the next try works. And settings of the RDMA backend that cannot be.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/capability.h>

#include "tests/lib/testing.h"
#include "tests/softverbs/softverbs.h"
#include "tests/unit/rdma-kit.h"

static const char *const settings[] = {"num_lanes=1", "max_rails=1", "drain_ms=100", NULL};
static struct end a, b;

static void nothing_is_left(const char *call)
{
	static const char *const kinds[] = {"context", "pd", "mr",         "mw",   "channel",
					    "cq",      "qp", "cm-channel", "cm-id"};
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		ck_assert_msg(softverbs_count(kinds[i]) == 0, "%u of %s after %s",
			      softverbs_count(kinds[i]), kinds[i], call);
}

/* One that end_try() opened. */
static void close_tried(struct end *e)
{
	ck_assert_int_eq(OPS->close(e->engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	while (!end_has_seen(e, ESCROW_EV_CLOSED)) {
		end_poll(e);
		ends_turn();
	}
	OPS->release(e->engine);
}

/* ---- Opening ---------------------------------------------------------------------------------------- */
static const char *const to_open[] = {
	"open_device", "query_device",         "query_port", "alloc_pd",  "create_comp_channel",
	"create_cq",   "create_event_channel", "create_id",  "bind_addr", "listen"};

/* The first call, the second, and so on, until there is no further one: then the engine opens. */
static void open_refused(const char *call, int errnum, escrow_status status)
{
	/* Without a channel nobody is asked whose an address is, and the next try is what counts. */
	bool every = !strcmp(call, "create_event_channel");
	unsigned int nth, failed = 0;

	for (nth = 1; nth < 6; nth++) {
		struct escrow_error error = {.size = sizeof(error)};
		escrow_status st;

		softverbs_script_clear();
		ck_assert_int_eq(softverbs_script(call, every ? 0 : nth, SOFTVERBS_REFUSED, errnum),
				 0);
		st = end_try(&a, settings, &error);
		softverbs_script_clear();
		if (st == ESCROW_OK) {
			close_tried(&a);
		} else {
			failed++;
			ck_assert_int_eq(st, status);
			ck_assert_msg(error.status == st && strlen(error.text) > 10, "%s",
				      error.text);
		}
		nothing_is_left(call);
	}
	/* With "rails" empty a device that does not answer is passed over, and the other one taken. */
	ck_assert_msg(failed > 0 || !strcmp(call, "open_device") || !strcmp(call, "query_device") ||
			      !strcmp(call, "query_port"),
		      "%s", call);
	end_open(&a, 'a', settings);
	end_close(&a);
}

START_TEST(an_open_that_is_refused)
{
	open_refused(to_open[_i], EIO, ESCROW_E_DEVICE);
	open_refused(to_open[_i], ENOMEM, ESCROW_E_NO_MEMORY);
	open_refused(to_open[_i], EMFILE, ESCROW_E_NO_MEMORY);
}
END_TEST

/* ---- Registering ------------------------------------------------------------------------------------- */
static const struct {
	int errnum;
	escrow_status status;
} registrations[] = {
	{ENOMEM, ESCROW_E_NO_MEMORY}, {EFAULT, ESCROW_E_INVALID}, {EINVAL, ESCROW_E_INVALID},
	{EACCES, ESCROW_E_INVALID},   {EPERM, ESCROW_E_MEMLOCK},  {EIO, ESCROW_E_DEVICE},
};

START_TEST(a_registration_that_is_refused)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args args = {.size = sizeof(args),
					  .length = END_BYTES,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	uint64_t region = 7, before;

	end_open(&a, 'a', settings);
	before = end_used(&a, ESCROW_CHARGE_BYTES);
	args.addr = a.memory;
	softverbs_script("reg_mr", 1, SOFTVERBS_REFUSED, registrations[_i].errnum);
	ck_assert_int_eq(OPS->register_memory(a.engine, &args, &region, &error),
			 registrations[_i].status);
	ck_assert_uint_eq(region, 7);
	ck_assert_uint_gt(strlen(error.text), 10);
	ck_assert_uint_eq(end_used(&a, ESCROW_CHARGE_BYTES), before);
	end_close(&a);
}
END_TEST

static bool may_lock_all(bool on)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	uint32_t bit = 1u << CAP_IPC_LOCK;

	ck_assert_int_eq((int)syscall(SYS_capget, &head, data), 0);
	if (on && !(data[0].permitted & bit))
		return false;
	data[0].effective = on ? data[0].effective | bit : data[0].effective & ~bit;
	ck_assert_int_eq((int)syscall(SYS_capset, &head, data), 0);
	return true;
}

/*
 * Of one errno there are two reasons: what may be locked, which whoever has CAP_IPC_LOCK is not asked, and no memory.  Whole
 * pages are locked: four bytes in two of them exceed what one page leaves.
 */
START_TEST(no_memory_or_no_more_to_lock)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), region;
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args args = {.size = sizeof(args),
					  .length = _i ? 4 : END_BYTES,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	struct rlimit limit = {2 * page - 1, 2 * page - 1};

	end_open(&a, 'a', settings);
	args.addr = a.memory + (_i ? page - 2 : 0);
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	for (int capable = 1; capable >= 0; capable--) {
		if (!may_lock_all(capable))
			continue; /* it was never there */
		ck_assert_int_eq(softverbs_script("reg_mr", 1, SOFTVERBS_REFUSED, ENOMEM), 0);
		ck_assert_int_eq(OPS->register_memory(a.engine, &args, &region, &error),
				 capable ? ESCROW_E_NO_MEMORY : ESCROW_E_MEMLOCK);
	}
	end_close(&a);
}
END_TEST

/* ---- Connecting ---------------------------------------------------------------------------------------- */
static const char *const to_connect[] = {"create_qp",     "modify_qp", "create_id", "resolve_addr",
					 "resolve_route", "connect",   "accept",    "init_qp_attr",
					 "establish",     "reg_mr",    "post_recv", "migrate_id",
					 "req_notify_cq", "alloc_mw"};

/* Up or down the active end is told, both times; each end closes in order, and nothing is left. */
START_TEST(a_connection_that_is_refused)
{
	const char *call = to_connect[_i];
	unsigned int nth;

	for (nth = 1; nth <= 3; nth++) {
		uint8_t buf[4096];
		uint64_t len, peer;
		struct escrow_event ev;

		end_open(&a, 'a', settings);
		end_open(&b, 'b', settings);
		len = end_invite(&a, "b", buf, sizeof(buf));
		ck_assert_int_eq(softverbs_script(call, nth, SOFTVERBS_REFUSED, EIO), 0);
		peer = end_connect(&b, "a", buf, len);
		while (!end_seen(&b, ESCROW_EV_PEER_UP, peer, &ev) &&
		       !end_seen(&b, ESCROW_EV_PEER_DOWN, peer, &ev))
			ends_turn();
		ck_assert(ev.kind == ESCROW_EV_PEER_UP || ev.status < 0);
		softverbs_script_clear();
		end_close(&b);
		end_close(&a);
		nothing_is_left(call);
	}
}
END_TEST

/* ---- Settings --------------------------------------------------------------------------------------------- */
static const char *const odd[] = {
	"rdma.timeout=0",        "rdma.timeout=32",        "rdma.timeout=x",
	"rdma.timeout=",         "rdma.timeout=1x",        "rdma.timeout=99999999999999999999",
	"rdma.timeout=-1",       "rdma.retry=7",           "rdma.rnr_retry=7",
	"rdma.prefer_ipv6=2",    "rdma.traffic_class=256", "rdma.pkey=65536",
	"rdma.rd_atomic=0",      "rdma.connect_ms=0",      "rdma.nothing=1",
	"rdma.pkey_index=0",     "rdma.pkey=0x8000",       "rdma.pkey=-1",
	"rdma.pkey=all",         "rdma.dmabuf=2",          "rdma.service_level=8",
	"rdma.service_level=-2", "rdma.service_level=",
};

START_TEST(a_setting_that_cannot_be)
{
	const char *const with[] = {odd[_i], NULL};
	struct escrow_error error = {.size = sizeof(error)};
	size_t key = strcspn(odd[_i], "=");
	char name[64] = {0};

	memcpy(name, odd[_i], key);
	ck_assert_int_eq(end_try(&a, with, &error), ESCROW_E_INVALID);
	ck_assert_msg(strstr(error.text, name) != NULL, "%s", error.text);
	nothing_is_left(odd[_i]);
}
END_TEST

START_TEST(a_text_that_is_too_long)
{
	char text[256] = "rdma.sysfs=";
	const char *const with[] = {text, NULL};
	struct escrow_error error = {.size = sizeof(error)};

	memset(text + strlen(text), 'x', 240);
	ck_assert_int_eq(end_try(&a, with, &error), ESCROW_E_INVALID);
	ck_assert_msg(strstr(error.text, "rdma.sysfs") != NULL, "%s", error.text);
}
END_TEST

/* What may be set is set, also where softverbs has no use for it: connections come up and move bytes. */
START_TEST(settings_that_can_be)
{
	static const char *const with[] = {"num_lanes=1",
					   "max_rails=1",
					   "rdma.traffic_class=8",
					   "rdma.relaxed_ordering=1",
					   "rdma.rd_atomic=1",
					   "rdma.timeout=0x0e",
					   NULL};
	uint64_t by_a, by_b, grant, len;
	uint8_t buf[4096];

	end_open(&a, 'a', with);
	end_open(&b, 'b', with);
	ends_connect(&a, &b, &by_a, &by_b);
	len = end_grant(&a, by_a, 0, END_BYTES, ESCROW_MAY_WRITE, buf, sizeof(buf), &grant);
	ck_assert_int_eq(
		end_move(&b, end_import(&b, by_b, buf, len), ESCROW_WRITE, 0, 0, 4096).status,
		ESCROW_OK);
	ck_assert_uint_eq(a.memory[4095], 'b');
	ck_assert_uint_eq(a.memory[4096], 'a');
	end_close(&b);
	end_close(&a);
}
END_TEST

#define MANY(test, what) tcase_add_loop_test(t, test, 0, (int)(sizeof(what) / sizeof((what)[0])))

int main(void)
{
	Suite *s = suite_create("refusals");
	TCase *t = tcase_create("one call");

	tcase_set_timeout(t, 120);
	MANY(an_open_that_is_refused, to_open);
	MANY(a_registration_that_is_refused, registrations);
	tcase_add_loop_test(t, no_memory_or_no_more_to_lock, 0, 2);
	MANY(a_connection_that_is_refused, to_connect);
	MANY(a_setting_that_cannot_be, odd);
	tcase_add_test(t, a_text_that_is_too_long);
	tcase_add_test(t, settings_that_can_be);
	suite_add_tcase(s, t);
	return testing_run(s);
}
