/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rdma controller of control groups on real verbs (the guest of docs/softroce.md; root): our limit comes
 * first where it can; where the kernel refuses in the middle of something that is told, nothing is lost,
 * and it works again when there is room.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/testing.h"
#include "tests/unit/rdma-kit.h"

#define ROOT "/sys/fs/cgroup"

static struct end e, friend;
static struct escrow_error error = {.size = sizeof(error)};
static char group[64];
static char device[2][64];

static bool put(const char *file, const char *text)
{
	char path[160];
	int fd;
	bool done;

	snprintf(path, sizeof(path), "%s/%s", group[0] ? group : ROOT, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return done;
}

/* Both devices may have so many objects, and contexts; -1: any number. */
static void allow(long objects, long handles)
{
	char text[256], number[2][24] = {"max", "max"};

	if (objects >= 0)
		snprintf(number[0], sizeof(number[0]), "%ld", objects);
	if (handles >= 0)
		snprintf(number[1], sizeof(number[1]), "%ld", handles);
	for (int i = 0; i < 2; i++) {
		snprintf(text, sizeof(text), "%s hca_object=%s hca_handle=%s", device[i], number[0],
			 number[1]);
		ck_assert_msg(put("rdma.max", text), "%s: %s", text, strerror(errno));
	}
}

/* What the kernel counts for this group on one device. */
static uint64_t has(const char *what, int i)
{
	char path[160], line[256], *at;
	uint64_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/rdma.current", group);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, device[i], strlen(device[i])) == 0 && (at = strstr(line, what)))
			n = strtoull(at + strlen(what) + 1, NULL, 10);
	fclose(f);
	return n;
}

static uint64_t objects(int i)
{
	return has("hca_object", i);
}

/* A group of its own for the process of each test. */
static void setup(void)
{
	char name[64], pid[32];

	snprintf(name, sizeof(name), ROOT "/escrow-%d", (int)getpid());
	ck_assert(mkdir(name, 0755) == 0);
	memcpy(group, name, sizeof(group));
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	ck_assert(put("cgroup.procs", pid));
}

static const char *unusable(void)
{
	const char *rails = getenv("ESCROW_TEST_RAILS");

	if (geteuid() != 0 || !getenv("ESCROW_TEST_GUEST") || !rails)
		return "control groups are made in the guest only";
	if (access(ROOT "/cgroup.controllers", F_OK) != 0 &&
	    mount("none", ROOT, "cgroup2", 0, NULL) != 0)
		return "no cgroup2";
	if (!put("cgroup.subtree_control", "+rdma"))
		return "the kernel has no rdma controller";
	if (sscanf(rails, "%63[^:]:%*[^,],%63[^:]", device[0], device[1]) != 2)
		return "two rails are needed";
	return NULL;
}

static escrow_status take(uint64_t *region)
{
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = e.memory,
					  .length = 4096,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};

	return OPS->register_memory(e.engine, &args, region, &error);
}

static escrow_status meet(uint64_t *peer)
{
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "p"};
	uint8_t buf[4096];

	args.invitation = buf;
	args.invitation_len = end_invite(&friend, "p", buf, sizeof(buf));
	return OPS->connect(e.engine, &args, peer, &error);
}

/* All that the kernel counted is back, but for the contexts that librdmacm keeps. */
static void is_clean(void)
{
	ck_assert_uint_eq(objects(0), 0);
	ck_assert_uint_eq(objects(1), 0);
}

START_TEST(our_limit_comes_first)
{
	uint64_t n = 0, peer, region, last = 0;
	escrow_status st;

	end_open(&friend, 'f', NULL);
	allow((long)objects(0) + 20, -1);
	end_open(&e, 'e', NULL);
	while ((st = take(&region)) == ESCROW_OK) {
		last = region;
		n++;
	}
	ck_assert_msg(st == ESCROW_E_QUOTA, "%d %s", st, error.text);
	ck_assert_msg(strstr(error.text, "rdma.max") != NULL, "%s", error.text);
	ck_assert_uint_gt(n, 10); /* the engine itself has a domain, a queue and a region on each */
	ck_assert_int_eq(meet(&peer), ESCROW_E_QUOTA);
	ck_assert_msg(strstr(error.text, ": 2 more than the ") != NULL, "%s", error.text);
	ck_assert_int_eq(OPS->deregister_memory(e.engine, last, 0), ESCROW_IN_PROGRESS);
	end_wait_of(&e, ESCROW_EV_REGION_RELEASED, last);
	ck_assert_int_eq(take(&region), ESCROW_OK);
	allow(-1, -1); /* without a limit there is room for anything */
	ck_assert_int_eq(take(&region), ESCROW_OK);
	ck_assert_int_eq(meet(&peer), ESCROW_IN_PROGRESS);
	end_wait_of(&e, ESCROW_EV_PEER_UP, peer);
	end_close(&e);
	end_close(&friend);
	is_clean();
}
END_TEST

/* A limit that was set after open: the kernel refuses, here a region, there one of the objects of a peer. */
START_TEST(the_kernel_refuses)
{
	uint64_t before[2], region, peer, by_friend, by_e, grant;
	struct escrow_grant_args args = {
		.size = sizeof(args), .rights = ESCROW_MAY_READ, .length = 4096};
	struct escrow_event ev;

	end_open(&friend, 'f', NULL);
	end_open(&e, 'e', NULL);
	ends_connect(&friend, &e, &by_friend, &by_e);
	for (int i = 0; i < 2; i++)
		before[i] = objects(i);
	allow((long)before[0], -1);
	ck_assert_int_eq(take(&region), ESCROW_E_NO_MEMORY);
	ck_assert_msg(strstr(error.text, "rdma.max") != NULL, "%s", error.text);
	/* Each time one object more: every place at which a peer of two rails can fail. */
	for (long more = 0; more < 4; more++) {
		allow((long)before[0] + more, -1);
		ck_assert_int_eq(meet(&peer), ESCROW_IN_PROGRESS);
		ev = end_wait_of(&e, ESCROW_EV_PEER_DOWN, peer);
		ck_assert_int_lt(ev.status, 0);
		ck_assert_int_ne(ev.status, ESCROW_E_UNQUIESCED);
	}
	args.peer = by_e;
	args.region = e.region;
	for (long more = 0; more < 2; more++) {
		allow((long)before[0] + more, -1);
		ck_assert_int_eq(OPS->grant(e.engine, &args, &grant, &error), ESCROW_IN_PROGRESS);
		ev = end_wait_of(&e, ESCROW_EV_GRANT_READY, grant);
		ck_assert_int_eq(ev.status, ESCROW_E_NO_MEMORY);
	}
	allow(-1, -1);
	ck_assert_int_eq(take(&region), ESCROW_OK);
	ck_assert_int_eq(OPS->grant(e.engine, &args, &grant, &error), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(end_wait_of(&e, ESCROW_EV_GRANT_READY, grant).status, ESCROW_OK);
	ck_assert_int_eq(meet(&peer), ESCROW_IN_PROGRESS);
	end_wait_of(&e, ESCROW_EV_PEER_UP, peer);
	end_close(&e);
	end_close(&friend);
	is_clean();
}
END_TEST

static void no_engine_can_be_opened(void)
{
	escrow_status st = end_try(&e, NULL, &error);

	ck_assert_msg(st == ESCROW_E_NO_MEMORY, "%d %s", st, error.text);
}

/* No context more, or one whose first objects are refused: open says so, and leaves nothing. */
START_TEST(no_engine_more)
{
	uint64_t before[2], handles;

	end_open(&friend, 'f', NULL); /* librdmacm has its contexts from here on */
	for (int i = 0; i < 2; i++)
		before[i] = objects(i);
	handles = has("hca_handle", 0);
	allow(-1, (long)handles);
	no_engine_can_be_opened();
	ck_assert_msg(strstr(error.text, "rdma.max") != NULL, "%s", error.text);
	for (long more = 0; more < 2; more++) {
		allow((long)before[0] + more, -1);
		no_engine_can_be_opened();
	}
	for (int i = 0; i < 2; i++)
		ck_assert_uint_eq(objects(i), before[i]);
	ck_assert_uint_eq(has("hca_handle", 0), handles);
	allow(-1, -1);
	end_open(&e, 'e', NULL);
	end_close(&e);
	end_close(&friend);
	is_clean();
}
END_TEST

int main(void)
{
	const char *why = unusable();
	Suite *s;
	TCase *t;

	if (why)
		return testing_skip(why);
	s = suite_create("cgroup");
	t = tcase_create("guest");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, our_limit_comes_first);
	tcase_add_test(t, the_kernel_refuses);
	tcase_add_test(t, no_engine_more);
	suite_add_tcase(s, t);
	return testing_run(s);
}
