/* SPDX-License-Identifier: BSD-2-Clause */
/* org.escrow.rails/1: what is listed before an engine is open is what open then finds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <escrow/counters.h>
#include <escrow/rails.h>

#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/softverbs/softverbs.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"

#define MAX 64u

static struct escrow_rail rails[MAX];

static int32_t list_into(struct escrow_rail *to, uint32_t max, uint32_t stride,
			 const struct escrow_kv *kv, struct escrow_error *error)
{
	const struct escrow_rails *table = OPS->get_extension(NULL, ESCROW_RAILS_ID);
	const struct escrow_open_args args = {.size = sizeof(args),
					      .host = &rdma_host,
					      .revision = 1,
					      .kv = kv,
					      .nkv = kv ? 1 : 0,
					      .kv_stride = sizeof(*kv),
					      .engine_name = "test"};

	ck_assert_ptr_nonnull(table);
	ck_assert_uint_ge(table->size, sizeof(*table));
	return table->list(&args, to, max, stride, error);
}

static uint32_t list(const char *key, const char *value)
{
	const struct escrow_kv kv = {key, value};
	uint64_t blocks = rdma_host_blocks();
	int32_t n = list_into(rails, MAX, sizeof(rails[0]), key ? &kv : NULL, NULL);

	ck_assert_int_ge(n, 0);
	ck_assert_uint_le((uint32_t)n, MAX);
	ck_assert_uint_eq(rdma_host_blocks(), blocks); /* nothing is kept */
	return (uint32_t)n;
}

/* The one that is listed of this device and address; "" is a port, or a device, without one. */
static const struct escrow_rail *of(uint32_t n, const char *device, const char *address)
{
	const struct escrow_rail *found = NULL;

	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(rails[i].device, device) && !strcmp(rails[i].address, address)) {
			ck_assert_ptr_null(found);
			found = &rails[i];
		}
	ck_assert_msg(found != NULL, "%s %s is not listed", device, address);
	return found;
}

static void unused_because(const struct escrow_rail *r, const char *why)
{
	ck_assert_uint_eq(r->use, ESCROW_RAIL_UNUSED);
	ck_assert_uint_eq(r->number, UINT32_MAX);
	ck_assert_msg(strstr(r->why, why) != NULL, "%s: %s", r->address, r->why);
}

/* Those that are used, in their order, are the rails that the device side finds for an engine. */
static void as_open_finds(const char *key, const char *value)
{
	const struct escrow_kv kv = {key, value};
	const struct native_open_args args = {
		.host = &rdma_host, .engine_name = "test", .kv = &kv, .nkv = key ? 1 : 0};
	uint32_t n = list(key, value), used = 0;
	struct native_rail_info info;
	struct native *native;

	ck_assert_int_eq(rdma_native.open(&args, &native, NULL), ESCROW_OK);
	for (uint32_t i = 0; i < n; i++) {
		char name[128];

		if (rails[i].use != ESCROW_RAIL_USED)
			continue;
		ck_assert_uint_eq(rails[i].number, used);
		ck_assert_uint_lt(used, rdma_native.nrails(native));
		rdma_native.rail_info(native, used++, &info);
		snprintf(name, sizeof(name), "%.24s/%u %.30s", rails[i].device, rails[i].port,
			 rails[i].address);
		ck_assert_str_eq(info.name, name);
		ck_assert_uint_eq(info.mtu, rails[i].mtu);
		ck_assert_uint_eq(info.up, rails[i].state == ESCROW_RAIL_UP);
	}
	ck_assert_uint_eq(used, rdma_native.nrails(native));
	rdma_native.free_native(native);
}

START_TEST(all_there_is)
{
	const struct escrow_rail *r;
	uint32_t n = list(NULL, NULL);
	char first[2][64];

	/* two devices, each with a link-local address, one of IPv4, one of IPv6, and a VLAN's of IPv4 */
	ck_assert_uint_eq(n, 8);
	ck_assert_uint_eq(ends_rails(first, 2), 2);
	r = of(n, "softverbs0", first[0]);
	ck_assert_uint_eq(r->use, ESCROW_RAIL_USED);
	ck_assert_uint_eq(r->state, ESCROW_RAIL_UP);
	ck_assert_uint_eq(r->number, 0);
	ck_assert_uint_eq(r->port, 1);
	ck_assert_uint_eq(r->gid_index, 1);
	ck_assert_mem_eq(r->gid, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
	ck_assert_str_eq(r->type, "RoCEv2");
	ck_assert_str_eq(r->provider, "softverbs");
	ck_assert_str_eq(r->why, "");
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(rails[i].address, first[0]) && strcmp(rails[i].address, first[1]))
			unused_because(&rails[i], "another address");
	as_open_finds(NULL, NULL);
}
END_TEST

START_TEST(what_is_named)
{
	char addresses[2][64];
	uint32_t n;

	ck_assert_uint_eq(ends_rails(addresses, 2), 2);
	n = list("rdma.rails", addresses[1]);
	ck_assert_uint_eq(of(n, "softverbs1", addresses[1])->number, 0);
	unused_because(of(n, "softverbs0", addresses[0]), "rdma.rails does not name it");
	as_open_finds("rdma.rails", addresses[1]);
	as_open_finds("rdma.rails", "softverbs1,softverbs0");
	as_open_finds("rdma.prefer_ipv6", "1");
}
END_TEST

static bool has_counter(struct end *e, const char *name)
{
	const struct escrow_counters *x = OPS->get_extension(e->engine, ESCROW_COUNTERS_ID);
	struct escrow_counter all[128];
	int32_t n = x->read(e->engine, all, 128, sizeof(all[0]));

	for (int32_t i = 0; i < n && i < 128; i++)
		if (!strcmp(all[i].name, name))
			return true;
	return false;
}

START_TEST(what_is_allowed)
{
	static const char *const keys[] = {"max_rails", "quota.connections",
					   "peer_quota.connections"};
	char addresses[2][64], why[64];

	ck_assert_uint_eq(ends_rails(addresses, 2), 2);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t n = list(keys[i], "1");
		const char *const settings[] = {why, NULL};
		struct end e;

		snprintf(why, sizeof(why), "%s allows 1", keys[i]);
		ck_assert_uint_eq(of(n, "softverbs0", addresses[0])->number, 0);
		unused_because(of(n, "softverbs1", addresses[1]), why);
		snprintf(why, sizeof(why), "%s=1", keys[i]);
		end_open(&e, 'e', settings);
		ck_assert(has_counter(&e, "rail.0.up"));
		ck_assert(!has_counter(&e, "rail.1.up"));
		end_close(&e);
	}
}
END_TEST

START_TEST(port_that_is_down)
{
	char addresses[2][64];
	uint32_t n;

	ck_assert_uint_eq(ends_rails(addresses, 2), 2);
	softverbs_port(0, 0);
	n = list(NULL, NULL);
	unused_because(of(n, "softverbs0", addresses[0]), "its port is down");
	ck_assert_uint_eq(of(n, "softverbs0", addresses[0])->state, ESCROW_RAIL_DOWN);
	ck_assert_uint_eq(of(n, "softverbs1", addresses[1])->number, 0);
	as_open_finds(NULL, NULL);
	as_open_finds("rdma.rails", "softverbs0");
	ck_assert_uint_eq(of(list("rdma.rails", "softverbs0"), "softverbs0", addresses[0])->use,
			  ESCROW_RAIL_USED);
}
END_TEST

START_TEST(device_that_fails)
{
	char addresses[2][64];
	uint32_t n;

	ck_assert_uint_eq(ends_rails(addresses, 2), 2);
	ck_assert_int_eq(softverbs_script("open_device", 1, SOFTVERBS_REFUSED, EACCES), 0);
	n = list(NULL, NULL);
	unused_because(of(n, "softverbs0", ""), "it cannot be opened: Permission denied");
	ck_assert_uint_eq(of(n, "softverbs0", "")->state, ESCROW_RAIL_UNKNOWN);
	ck_assert_uint_eq(of(n, "softverbs1", addresses[1])->number, 0);
	ck_assert_int_eq(softverbs_script("query_port", 1, SOFTVERBS_REFUSED, EIO), 0);
	unused_because(of(list(NULL, NULL), "softverbs0", ""), "the port cannot be queried");
}
END_TEST

/* It would be used, and open fails because of it. */
START_TEST(refused)
{
	struct escrow_error error = {.size = sizeof(error)};
	char addresses[2][64];
	struct end e;

	ck_assert_uint_eq(ends_rails(addresses, 2), 2);
	ck_assert_int_eq(setenv("MLX4_DEVICE_FATAL_CLEANUP", "1", 1), 0);
	ck_assert_int_eq(end_try(&e, NULL, &error), ESCROW_E_UNSUPPORTED);
	ck_assert_uint_eq(of(list(NULL, NULL), "softverbs0", addresses[0])->use,
			  ESCROW_RAIL_REFUSED);
	ck_assert_ptr_nonnull(strstr(error.text, of(8, "softverbs0", addresses[0])->why));
	ck_assert_ptr_nonnull(strstr(error.text, "MLX4_DEVICE_FATAL_CLEANUP"));
	ck_assert_uint_eq(of(8, "softverbs0", addresses[0])->number, UINT32_MAX);
}
END_TEST

START_TEST(table_of_the_caller)
{
	struct escrow_error error = {.size = sizeof(error)};
	const struct escrow_kv unknown = {"rdma.rale", "x"};
	struct {
		struct escrow_rail rail;
		uint64_t beyond;
	} wide[3] = {0};

	ck_assert_int_eq(list_into(NULL, 0, 0, NULL, NULL), 8);
	wide[0].beyond = wide[1].beyond = wide[2].beyond = 7;
	ck_assert_int_eq(list_into(&wide[0].rail, 2, sizeof(wide[0]), NULL, NULL), 8);
	ck_assert_str_eq(wide[1].rail.device, "softverbs0");
	ck_assert_str_eq(wide[2].rail.device, ""); /* no more than max */
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(wide[i].beyond, 7);
	ck_assert_int_eq(list_into(rails, MAX, 8, NULL, &error), ESCROW_E_INVALID);
	ck_assert_int_eq(list_into(NULL, 1, sizeof(rails[0]), NULL, &error), ESCROW_E_INVALID);
	ck_assert_int_eq(list_into(rails, MAX, sizeof(rails[0]), &unknown, &error),
			 ESCROW_E_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "rdma.rails"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("listing");
	TCase *t = tcase_create("rails");

	tcase_add_test(t, all_there_is);
	tcase_add_test(t, what_is_named);
	tcase_add_test(t, what_is_allowed);
	tcase_add_test(t, port_that_is_down);
	tcase_add_test(t, device_that_fails);
	tcase_add_test(t, refused);
	tcase_add_test(t, table_of_the_caller);
	suite_add_tcase(s, t);
	return testing_run(s);
}
