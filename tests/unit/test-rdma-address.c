/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes over every address that a device has: IPv4, IPv6, link-local, those of a VLAN interface on top of it.  The
 * address is named, and decides alone: what queue pairs are told is the index where it stands just then.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <escrow/rails.h>

#include "backends/engine/engine.h"
#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"
#include "tests/unit/rdma-path.h"

#define MAX 64u
#define MOVED (2u * PATH_MOVED) /* by path_moves() */

static struct end passive, active;
static struct escrow_rail rails[MAX];
static uint32_t nrails;

/* All addresses there are. */
static void list(void)
{
	const struct escrow_rails *table = OPS->get_extension(NULL, ESCROW_RAILS_ID);
	const struct escrow_open_args args = {.size = sizeof(args),
					      .host = &rdma_host,
					      .revision = 1,
					      .kv_stride = sizeof(struct escrow_kv),
					      .engine_name = "test"};
	int32_t n = table->list(&args, rails, MAX, sizeof(rails[0]), NULL);

	ck_assert_int_gt(n, 0);
	nrails = (uint32_t)n < MAX ? (uint32_t)n : MAX;
}

/* The one that is listed there first: a VLAN interface has the same link-local address as the one below it. */
static const struct escrow_rail *find(const char *device, const char *address)
{
	for (uint32_t i = 0; i < nrails; i++)
		if (!strcmp(rails[i].device, device) && !strcmp(rails[i].address, address))
			return &rails[i];
	return NULL;
}

/* Both ends sent from the address, and to it. */
static void was_used(const struct escrow_rail *rail)
{
	struct path_step rtr[MAX];
	uint32_t n = path_steps(IBV_QPS_RTR, rtr, MAX), found = 0;

	ck_assert_uint_le(n, MAX);
	for (uint32_t i = 0; i < n; i++) {
		const struct ibv_global_route *grh = &rtr[i].attr.ah_attr.grh;
		struct ibv_gid_entry entry;

		if (strcmp(ibv_get_device_name(rtr[i].qp->context->device), rail->device))
			continue;
		ck_assert_int_eq(ibv_query_gid_ex(rtr[i].qp->context, rail->port, grh->sgid_index,
						  &entry, 0),
				 0);
		ck_assert_mem_eq(entry.gid.raw, rail->gid, 16);
		ck_assert_mem_eq(grh->dgid.raw, rail->gid, 16);
		found++;
	}
	ck_assert_uint_eq(found, 2);
}

/* Bytes each way over rails that are named, device:port:address by comma; all of them are used. */
static void move_over(const char *names)
{
	char rest[512], set[600], *name, *at = rest;
	const char *const with[] = {set, "slice_bytes=4096", NULL};
	uint64_t by_passive, by_active, bytes = 0;
	uint32_t n = 0;

	snprintf(set, sizeof(set), "rdma.rails=%s", names);
	snprintf(rest, sizeof(rest), "%s", names);
	path_forget();
	end_open(&passive, 'p', with);
	end_open(&active, 'a', with);
	path_moves(&passive, &active, &by_passive, &by_active);
	list();
	while ((name = strsep(&at, ","))) {
		const char *address = strchr(strchr(name, ':') + 1, ':') + 1;
		char counter[32], device[64];

		snprintf(device, sizeof(device), "%.*s", (int)strcspn(name, ":"), name);
		snprintf(counter, sizeof(counter), "rail.%u.bytes", n++);
		ck_assert_uint_gt(end_counter(&active, counter), 0);
		bytes += end_counter(&active, counter);
		ck_assert_msg(find(device, address) != NULL, "%s is not listed", name);
		was_used(find(device, address));
	}
	ck_assert_uint_eq(bytes, MOVED);
	end_close(&active);
	end_close(&passive);
}

/* Each by itself: whatever the port's other addresses are, and wherever it stands among them. */
START_TEST(each_address)
{
	uint32_t moved = 0;

	list();
	for (uint32_t i = 0; i < nrails; i++) {
		struct escrow_rail r = rails[i];
		char name[200];

		if (strcmp(r.type, "RoCEv2") || r.state != ESCROW_RAIL_UP ||
		    find(r.device, r.address) != &rails[i])
			continue;
		snprintf(name, sizeof(name), "%s:%u:%s", r.device, r.port, r.address);
		printf("# %s\n", name);
		/* Two rails of that name would be right, and are not what is asked here. */
		if (!ends_double() && !strncmp(r.address, "fe80:", 5))
			continue;
		move_over(name);
		list();
		moved++;
	}
	ck_assert_uint_ge(moved, ends_double() ? 8 : 1);
}
END_TEST

/* Several rails at once, of one family or interface. */
static const char *const groups[] = {"ESCROW_TEST_RAILS", "ESCROW_TEST_RAILS6", "ESCROW_TEST_VLANS",
				     "ESCROW_TEST_VLANS6"};

START_TEST(a_group)
{
	const char *names = getenv(groups[_i]);

	if (names && *names)
		move_over(names);
	else
		printf("# no %s\n", groups[_i]);
}
END_TEST

/* The same on softverbs, by its own addresses. */
static const char *const double_groups[] = {"softverbs0:1:127.77.0.1,softverbs1:1:127.77.1.1",
					    "softverbs0:1:fd77:1::1,softverbs1:1:fd77:2::1",
					    "softverbs0:1:127.78.0.1,softverbs1:1:127.78.1.1",
					    "softverbs0:1:fd77:1::1,softverbs1:1:127.77.1.1"};

START_TEST(a_group_of_the_double)
{
	move_over(double_groups[_i]);
}
END_TEST

static void ip(const char *words)
{
	char line[256];

	snprintf(line, sizeof(line), "ip address %s", words);
	ck_assert_msg(system(line) == 0, "%s", line);
}

/* On rail 0: the address goes, another one takes its place, and it comes back to another. */
static void shuffle(void)
{
	void (*softverbs_turn_gids)(int rail, int first);

	*(void **)&softverbs_turn_gids = dlsym(RTLD_DEFAULT, "softverbs_turn_gids");
	if (softverbs_turn_gids) {
		softverbs_turn_gids(0, 4);
		return;
	}
	ip("del 10.77.0.1/24 dev rail0");
	ip("add 10.79.0.1/24 dev rail0");
	ip("add 10.77.0.1/24 dev rail0");
}

/* field-42: the index of an address is not what it was. */
START_TEST(another_index)
{
	const char *name = ends_double() ? "softverbs0:1:127.77.0.1" : "rxe0:1:10.77.0.1";
	const char *address = strrchr(name, ':') + 1;
	char device[64];
	uint32_t before, now;

	snprintf(device, sizeof(device), "%.*s", (int)strcspn(name, ":"), name);
	list();
	ck_assert_ptr_nonnull(find(device, address));
	before = now = find(device, address)->gid_index;
	shuffle();
	while (now == before) { /* the kernel's table follows a little later */
		const struct escrow_rail *r;

		list();
		r = find(device, address);
		now = r ? r->gid_index : before;
	}
	/* It is still the one that is used where none is named, before a VLAN's and one that came later. */
	ck_assert_uint_eq(find(device, address)->use, ESCROW_RAIL_USED);
	move_over(name);
}
END_TEST

int main(void)
{
	static char why[256];
	bool guest = getenv("ESCROW_TEST_GUEST") != NULL;
	TCase *t;
	Suite *s;

	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	s = suite_create("rdma-address");
	t = tcase_create("address");
	tcase_set_timeout(t, 240);
	tcase_add_test(t, each_address);
	if (ends_double())
		tcase_add_loop_test(t, a_group_of_the_double, 0, 4);
	else
		tcase_add_loop_test(t, a_group, 0, 4);
	if (ends_double() || guest)
		tcase_add_test(t, another_index);
	suite_add_tcase(s, t);
	return testing_run(s);
}
