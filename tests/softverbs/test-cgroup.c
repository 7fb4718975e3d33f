/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rdma controller of control groups, from files that are made up here: the limit that leaves the least
 * counts, and what it does not leave is refused by the engine, by name and number, before the device is asked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <glib.h>
#include <glib/gstdio.h>

#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-kit.h"

static char *root, *group; /* of this process, without the slash at the end */
static struct escrow_error error = {.size = sizeof(error)};

/* One file of a group, or of the one above it. */
static void put(const char *where, const char *file, const char *text)
{
	g_autofree char *path = g_build_filename(root, "fs/cgroup", where, file, NULL);
	g_autofree char *dir = g_path_get_dirname(path);

	ck_assert_int_eq(g_mkdir_with_parents(dir, 0700), 0);
	ck_assert(g_file_set_contents(path, text, -1, NULL));
}

static void setup(void)
{
	g_autofree char *text = NULL;
	char *line;

	root = g_dir_make_tmp("escrow-cgroup-XXXXXX", NULL);
	ck_assert_ptr_nonnull(root);
	ck_assert(g_file_get_contents("/proc/self/cgroup", &text, NULL, NULL));
	line = g_str_has_prefix(text, "0::") ? text : strstr(text, "\n0::");
	if (!line)
		return; /* a machine without the one hierarchy */
	line = strchr(line, '/');
	group = g_strndup(line, strcspn(line, "\n"));
	if (strcmp(group, "/") == 0)
		*group = 0;
}

static void teardown(void)
{
	g_autofree char *command = g_strdup_printf("rm -rf '%s'", root);

	ck_assert_int_eq(system(command), 0);
}

static bool objects(const char *device, uint64_t *left, uint64_t *limit)
{
	return cgroup_objects(root, "/a/b", device, left, limit);
}

START_TEST(no_limit)
{
	uint64_t left, limit;

	ck_assert(!objects("rxe0", &left, &limit)); /* no such files */
	put("a/b", "rdma.max",
	    "rxe0 hca_handle=max hca_object=max\nmlx hca_handle=1 hca_object=7\n");
	ck_assert(!objects("rxe0", &left, &limit));
	ck_assert(!objects("mlx5", &left, &limit)); /* not the device whose name begins so */
	ck_assert(!objects("ml", &left, &limit));
	put("a/b", "rdma.max", "rxe0 hca_handle=3\n");
	ck_assert(!objects("rxe0", &left, &limit));
}
END_TEST

START_TEST(own_limit)
{
	uint64_t left, limit;

	put("a/b", "rdma.max",
	    "rxe0 hca_handle=2 hca_object=100\nrxe1 hca_handle=2 hca_object=5\n");
	ck_assert(objects("rxe1", &left, &limit)); /* nothing is used */
	ck_assert_uint_eq(left, 5);
	put("a/b", "rdma.current",
	    "rxe0 hca_handle=1 hca_object=40\nrxe1 hca_handle=1 hca_object=6\n");
	ck_assert(objects("rxe0", &left, &limit));
	ck_assert_uint_eq(left, 60);
	ck_assert_uint_eq(limit, 100);
	ck_assert(objects("rxe1", &left, &limit)); /* lowered below what there is */
	ck_assert_uint_eq(left, 0);
	ck_assert_uint_eq(limit, 5);
}
END_TEST

START_TEST(a_group_above_has_less)
{
	uint64_t left, limit;

	put("a/b", "rdma.max", "rxe0 hca_handle=2 hca_object=100\n");
	put("a/b", "rdma.current", "rxe0 hca_handle=1 hca_object=10\n");
	put("a", "rdma.max", "rxe0 hca_handle=2 hca_object=200\n");
	put("a", "rdma.current", "rxe0 hca_handle=1 hca_object=150\n");
	ck_assert(objects("rxe0", &left, &limit));
	ck_assert_uint_eq(left, 50);
	ck_assert_uint_eq(limit, 200);
}
END_TEST

/* The top of what this process sees, and a name that ends in nothing. */
START_TEST(the_top)
{
	uint64_t left, limit;

	put("", "rdma.max", "rxe0 hca_handle=2 hca_object=3\n");
	ck_assert(cgroup_objects(root, "/", "rxe0", &left, &limit));
	ck_assert_uint_eq(left, 3);
	ck_assert(cgroup_objects(root, "/a", "rxe0", &left, &limit));
	ck_assert_uint_eq(left, 3);
}
END_TEST

/* The double makes no use of the files, so that `current` is what the test says. */
START_TEST(the_engine_refuses_before_the_device)
{
	g_autofree char *sysfs = g_strdup_printf("rdma.sysfs=%s", root);
	const char *const settings[] = {sysfs, "test.faults=1", NULL};
	struct escrow_region_args args = {.size = sizeof(args),
					  .length = 4096,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	struct escrow_peer_args peer = {.size = sizeof(peer), .peer_name = "p"};
	struct end e, friend;
	uint8_t buf[4096];
	uint64_t handle;
	int64_t calls;

	if (!group)
		return;
	put(group, "rdma.max",
	    "softverbs0 hca_handle=9 hca_object=100\nsoftverbs1 hca_handle=9 hca_object=100\n");
	put(group, "rdma.current",
	    "softverbs0 hca_handle=1 hca_object=99\nsoftverbs1 hca_handle=1 hca_object=99\n");
	end_open(&e, 'e', settings);
	end_open(&friend, 'f', NULL);
	/* One more is left: a region needs one in each device, a peer a queue pair and control memory. */
	args.addr = e.memory;
	ck_assert_int_eq(OPS->register_memory(e.engine, &args, &handle, &error), ESCROW_OK);
	peer.invitation = buf;
	peer.invitation_len = end_invite(&friend, "p", buf, sizeof(buf));
	ck_assert_int_eq(OPS->connect(e.engine, &peer, &handle, &error), ESCROW_E_QUOTA);
	ck_assert_msg(strstr(error.text, ": 2 more than the 99 in use exceed 100 (rdma.max"), "%s",
		      error.text);
	put(group, "rdma.current",
	    "softverbs0 hca_handle=1 hca_object=90\nsoftverbs1 hca_handle=1 hca_object=100\n");
	calls = end_calls(&e, ESCROW_STEP_REGISTER);
	ck_assert_int_eq(OPS->register_memory(e.engine, &args, &handle, &error), ESCROW_E_QUOTA);
	ck_assert_msg(strstr(error.text, "softverbs1: 1 more than the 100 in use exceed 100"), "%s",
		      error.text);
	ck_assert_int_eq(end_calls(&e, ESCROW_STEP_REGISTER), calls);
	put(group, "rdma.current",
	    "softverbs0 hca_handle=1 hca_object=90\nsoftverbs1 hca_handle=1 hca_object=98\n");
	ck_assert_int_eq(OPS->connect(e.engine, &peer, &handle, &error), ESCROW_IN_PROGRESS);
	end_wait_of(&e, ESCROW_EV_PEER_UP, handle);
	end_close(&e);
	end_close(&friend);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cgroup");
	TCase *t = tcase_create("limits");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, no_limit);
	tcase_add_test(t, own_limit);
	tcase_add_test(t, a_group_above_has_less);
	tcase_add_test(t, the_top);
	tcase_add_test(t, the_engine_refuses_before_the_device);
	suite_add_tcase(s, t);
	return testing_run(s);
}
