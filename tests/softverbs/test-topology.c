/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rails by the distance of the memory: what is read from a sysfs that is made up here, and what an engine
 * on two devices makes of it.  The memory of this process is where it is, so the engine's cases make the
 * node of its first page the near one of the second device and the far one of the first.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/mempolicy.h>

#include <glib.h>
#include <glib/gstdio.h>

#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-kit.h"

#define SLICE 4096u
#define SLICES 16u

static char *root;

static void put(const char *path, const char *text)
{
	g_autofree char *file = g_build_filename(root, path, NULL);
	g_autofree char *dir = g_path_get_dirname(file);

	ck_assert_int_eq(g_mkdir_with_parents(dir, 0700), 0);
	ck_assert(g_file_set_contents(file, text, -1, NULL));
}

static void put_node(const char *device, int node)
{
	g_autofree char *path = g_strdup_printf("class/infiniband/%s/device/numa_node", device);
	g_autofree char *text = g_strdup_printf("%d\n", node);

	put(path, text);
}

static void setup(void)
{
	root = g_dir_make_tmp("escrow-sysfs-XXXXXX", NULL);
	ck_assert_ptr_nonnull(root);
}

static void teardown(void)
{
	g_autofree char *command = g_strdup_printf("rm -rf '%s'", root);

	ck_assert_int_eq(system(command), 0);
	g_clear_pointer(&root, g_free);
}

/* ---- What sysfs says ------------------------------------------------------------------------------ */
START_TEST(node_of_a_card)
{
	put_node("mlx5_0", 3);
	put_node("mlx5_1", -1);
	ck_assert_uint_eq(topology_node(root, "mlx5_0"), 3);
	ck_assert_uint_eq(topology_node(root, "mlx5_1"), UINT32_MAX);
	ck_assert_uint_eq(topology_node(root, "mlx5_2"), UINT32_MAX);
	put("class/infiniband/mlx5_2/device/numa_node", "what\n");
	ck_assert_uint_eq(topology_node(root, "mlx5_2"), UINT32_MAX);
}
END_TEST

/* A software device has no slot of its own: its network device has one. */
START_TEST(node_of_software)
{
	put("class/infiniband/rxe0/parent", "eth7\n");
	put("class/net/eth7/device/numa_node", "1\n");
	ck_assert_uint_eq(topology_node(root, "rxe0"), 1);
	put("class/infiniband/rxe1/parent", "veth0\n");
	ck_assert_uint_eq(topology_node(root, "rxe1"), UINT32_MAX);
	put("class/infiniband/rxe2/parent", "../net/eth7\n");
	ck_assert_uint_eq(topology_node(root, "rxe2"), UINT32_MAX);
}
END_TEST

/* Nodes 0, 2 and 3 are online: lines have three columns. */
START_TEST(distances)
{
	uint8_t d[NATIVE_MAX_NODES];

	put("devices/system/node/node0/distance", "10 21 31\n");
	put("devices/system/node/node2/distance", "21 10 41\n");
	put("devices/system/node/node3/distance", "31 41 10\n");
	topology_distances(root, 2, d);
	ck_assert_uint_eq(d[0], 21);
	ck_assert_uint_eq(d[1], 0);
	ck_assert_uint_eq(d[2], 10);
	ck_assert_uint_eq(d[3], 41);
	topology_distances(root, 3, d);
	ck_assert_uint_eq(d[0], 31);
	ck_assert_uint_eq(d[3], 10);
	topology_distances(root, UINT32_MAX, d);
	ck_assert_uint_eq(d[0], 0);
	put("devices/system/node/node0/distance", "10\n"); /* it has not heard of the others */
	put("devices/system/node/node3/distance", "31 41 999\n");
	topology_distances(root, 3, d);
	ck_assert_uint_eq(d[0], 0);
	ck_assert_uint_eq(d[2], 41);
	ck_assert_uint_eq(d[3], 0);
}
END_TEST

/* ---- What an engine makes of it ------------------------------------------------------------------------ */
static int node_of_here(void)
{
	static char page;
	int node = -1;

	page = 1;
	if (syscall(SYS_get_mempolicy, &node, NULL, 0UL, &page, MPOL_F_NODE | MPOL_F_ADDR))
		return -1;
	return node;
}

/* Two nodes, this one and another, at 10 and `far`; the first device at the other one, the second here. */
static void machine(int far)
{
	int here = node_of_here(), there = here ? 0 : 1, i;

	ck_assert_int_ge(here, 0);
	for (i = 0; i < 2; i++) {
		g_autofree char *path = g_strdup_printf("devices/system/node/node%d/distance", i);
		g_autofree char *text = g_strdup_printf("%d %d\n", i ? far : 10, i ? 10 : far);

		put(path, text);
	}
	put_node("softverbs0", there);
	put_node("softverbs1", here);
}

static struct end owner, user;

/* One op of sixteen slices; the bytes that each rail got. */
static void share(const char *topology, uint64_t bytes[2])
{
	g_autofree char *sysfs = g_strdup_printf("rdma.sysfs=%s", root);
	const char *const settings[] = {"slice_bytes=4096", topology, sysfs, NULL};
	uint64_t by_owner, by_user, grant, len;
	uint8_t buf[4096];

	end_open(&owner, 'o', settings);
	end_open(&user, 'u', settings);
	ends_connect(&owner, &user, &by_owner, &by_user);
	len = end_grant(&owner, by_owner, 0, END_BYTES, ESCROW_MAY_WRITE, buf, sizeof(buf), &grant);
	ck_assert_int_eq(end_move(&user, end_import(&user, by_user, buf, len), ESCROW_WRITE, 0, 0,
				  SLICES * SLICE)
				 .status,
			 ESCROW_OK);
	bytes[0] = end_counter(&user, "rail.0.bytes");
	bytes[1] = end_counter(&user, "rail.1.bytes");
	ck_assert_uint_eq(bytes[0] + bytes[1], SLICES * SLICE);
	end_close(&user);
	end_close(&owner);
}

/* Twice as far: of three slices in a row one goes there.  n slices near and m far with 10 n = 20 m. */
START_TEST(twice_as_far_gets_half)
{
	uint64_t bytes[2];

	machine(20);
	share("topology=1", bytes);
	ck_assert_uint_ge(bytes[0], SLICES / 3 * SLICE);
	ck_assert_uint_le(bytes[0], (SLICES / 3 + 1) * SLICE);
}
END_TEST

START_TEST(the_nearest_gets_all)
{
	uint64_t bytes[2];

	machine(11);
	share("topology=2", bytes);
	ck_assert_uint_eq(bytes[0], 0);
}
END_TEST

START_TEST(it_does_not_matter)
{
	uint64_t bytes[2];

	machine(20);
	share("topology=0", bytes);
	ck_assert_uint_eq(bytes[0], bytes[1]);
}
END_TEST

/* As the default is, where sysfs does not tell. */
START_TEST(it_is_not_known)
{
	uint64_t bytes[2];

	share("topology=1", bytes);
	ck_assert_uint_eq(bytes[0], bytes[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("topology");
	TCase *t = tcase_create("sysfs");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, node_of_a_card);
	tcase_add_test(t, node_of_software);
	tcase_add_test(t, distances);
	suite_add_tcase(s, t);
	t = tcase_create("engine");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, it_is_not_known);
	tcase_add_test(t, it_does_not_matter);
	if (node_of_here() == 0 || node_of_here() == 1) {
		tcase_add_test(t, twice_as_far_gets_half);
		tcase_add_test(t, the_nearest_gets_all);
	} else {
		printf("# the kernel does not tell the node of memory: no case for it\n");
	}
	suite_add_tcase(s, t);
	return testing_run(s);
}
