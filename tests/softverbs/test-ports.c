/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices of two ports, which no double has: what the device of softverbs says is changed on its way to the backend (the
 * linker puts functions of ours before those of backends/rdma/verbs.c).  The second port has the first one's IPv4
 * addresses.
 */
#include <errno.h>
#include <string.h>
#include <infiniband/verbs.h>

#include <escrow/rails.h>

#include "backends/engine/engine.h"
#include "backends/rdma/verbs.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"

#define MESSAGE_IN_DOUBT (UINT64_C(1) << 30) /* where no port says what it takes */

static uint32_t takes[2]; /* bytes of one message, by port */
static int refusal;       /* of any open of a device: an errno */

/* What there is of addresses. */
static enum {
	BY_PORT,  /* the IPv4 ones are the second port's, whose partitions cannot be asked */
	OLD_TYPE, /* and none is of a type that is used */
	NONE,     /* there are none */
	ALIKE,    /* one more, of the same interface and kind, that is greater */
	REVERSED, /* the same, the other way round in the table */
} addresses;

int __real_verbs_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);
int __wrap_verbs_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);
int __real_verbs_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
int __wrap_verbs_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
int __real_verbs_query_gids(struct ibv_context *ctx, struct ibv_gid_entry *entries, uint32_t max);
int __wrap_verbs_query_gids(struct ibv_context *ctx, struct ibv_gid_entry *entries, uint32_t max);
int __real_verbs_open_device(struct verbs_log *log, struct ibv_device *dev,
			     struct ibv_context **out);
int __wrap_verbs_open_device(struct verbs_log *log, struct ibv_device *dev,
			     struct ibv_context **out);

int __wrap_verbs_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	int rc = __real_verbs_query_device(ctx, attr);

	attr->phys_port_cnt = 2;
	return rc;
}

int __wrap_verbs_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
	int rc = __real_verbs_query_port(ctx, 1, attr);

	attr->max_msg_sz = takes[port - 1];
	return rc;
}

static bool is_v4(const struct ibv_gid_entry *e)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(e->gid.raw, v4, sizeof(v4));
}

/* One more IPv4 address, whose last byte is 200. */
static int one_more(struct ibv_gid_entry *entries, int n)
{
	struct ibv_gid_entry first;

	for (int i = 0; i < n; i++)
		if (is_v4(&entries[i])) {
			entries[n] = first = entries[i];
			entries[n].gid.raw[15] = 200;
			if (addresses == REVERSED) {
				entries[i] = entries[n];
				entries[n] = first;
			}
			return n + 1;
		}
	ck_abort_msg("no IPv4 address");
	return n;
}

int __wrap_verbs_query_gids(struct ibv_context *ctx, struct ibv_gid_entry *entries, uint32_t max)
{
	int n = __real_verbs_query_gids(ctx, entries, max), i;

	ck_assert_int_lt(n, (int)max);
	if (addresses == NONE)
		return 0;
	if (addresses == ALIKE || addresses == REVERSED)
		return one_more(entries, n);
	for (i = 0; i < n; i++) {
		if (is_v4(&entries[i]))
			entries[i].port_num = 2;
		if (addresses == OLD_TYPE)
			entries[i].gid_type = IBV_GID_TYPE_ROCE_V1;
	}
	return n;
}

int __wrap_verbs_open_device(struct verbs_log *log, struct ibv_device *dev,
			     struct ibv_context **out)
{
	return refusal ? refusal : __real_verbs_open_device(log, dev, out);
}

static const struct {
	uint32_t takes[2];
	const char *rails;
	uint64_t bytes; /* of a slice, at most */
} rows[] = {
	{{65536, 131072}, "rdma.rails=softverbs0:1", 65536},
	{{65536, 131072}, "rdma.rails=softverbs0:2", 131072},
	{{131072, 65536}, "rdma.rails=softverbs0:1", 131072},
	{{131072, 65536}, "rdma.rails=softverbs0:2", 65536},
	/* An op goes by any rail: the least of them. */
	{{65536, 131072}, "rdma.rails=softverbs0", 65536},
	{{131072, 65536}, "rdma.rails=softverbs0", 65536},
	{{0, 65536}, "rdma.rails=softverbs0", 65536},
	{{0, 65536}, "rdma.rails=softverbs0:1", MESSAGE_IN_DOUBT},
};

/* The port that a rail is on says how large a message may be, and no other one does. */
START_TEST(the_largest_message)
{
	const char *const with[] = {rows[_i].rails, NULL};
	struct end e;

	memcpy(takes, rows[_i].takes, sizeof(takes));
	end_open(&e, 'p', with);
	ck_assert_uint_eq(e.engine->max_slice_bytes, rows[_i].bytes);
	end_close(&e);
}
END_TEST

static escrow_status open_plainly(struct escrow_error *error)
{
	struct escrow_open_args args = {
		.size = sizeof(args), .host = &rdma_host, .revision = 1, .engine_name = "p"};
	struct escrow_engine *engine;

	return OPS->open(&args, &engine, error);
}

/* Why it is not used is said of each address, and of a port that has none. */
static const struct {
	int addresses;
	const char *why;
} passed_over[] = {
	{OLD_TYPE, "only RoCEv2 is used"},
	{NONE, "the port has no address"},
};

START_TEST(what_is_passed_over)
{
	const struct escrow_rails *table = OPS->get_extension(NULL, ESCROW_RAILS_ID);
	struct escrow_open_args args = {
		.size = sizeof(args), .host = &rdma_host, .revision = 1, .engine_name = "p"};
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_rail rails[64];
	int32_t n, i;

	addresses = passed_over[_i].addresses;
	n = table->list(&args, rails, 64, sizeof(rails[0]), &error);
	ck_assert_int_ge(n, 4); /* two devices of two ports */
	ck_assert_int_le(n, 64);
	for (i = 0; i < n; i++) {
		ck_assert_uint_eq(rails[i].use, ESCROW_RAIL_UNUSED);
		ck_assert_str_eq(rails[i].why, passed_over[_i].why);
	}
	ck_assert_int_eq(open_plainly(&error), ESCROW_E_DEVICE);
}
END_TEST

/* The same one of two that are alike, wherever the kernel has put them. */
START_TEST(of_two_that_are_alike)
{
	const char *const with[] = {"rdma.rails=softverbs0:1", NULL};
	struct end e;

	addresses = _i ? REVERSED : ALIKE;
	takes[0] = takes[1] = 65536;
	end_open(&e, 'p', with);
	ck_assert_uint_eq(e.engine->nrails, 1);
	ck_assert_ptr_nonnull(strstr(e.engine->rails[0].name, "127.77.0.1"));
	end_close(&e);
}
END_TEST

START_TEST(no_device_may_be_opened)
{
	struct escrow_error error = {.size = sizeof(error)};

	refusal = EAGAIN;
	ck_assert_int_eq(open_plainly(&error), ESCROW_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(error.text, "a control group allows no more"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ports");
	TCase *t = tcase_create("ports");

	tcase_add_loop_test(t, the_largest_message, 0, (int)(sizeof(rows) / sizeof(rows[0])));
	tcase_add_loop_test(t, what_is_passed_over, 0,
			    (int)(sizeof(passed_over) / sizeof(passed_over[0])));
	tcase_add_loop_test(t, of_two_that_are_alike, 0, 2);
	tcase_add_test(t, no_device_may_be_opened);
	tcase_set_timeout(t, 120);
	suite_add_tcase(s, t);
	return testing_run(s);
}
