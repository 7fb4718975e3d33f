/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rdma controller of control groups (Documentation/admin-guide/cgroup-v2.rst, "RDMA"): how many objects
 * this process's group, and each group above it, may have on a device, and has. Beyond that the kernel
 * answers EAGAIN (ib_rdmacg_try_charge() in drivers/infiniband/core/cgroup.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/rdma/rdma.h"

#define GROUP_BYTES 512

/* The group of this process in the one hierarchy of version 2: the line "0::PATH" of proc(5). */
static bool own_group(char path[GROUP_BYTES])
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[GROUP_BYTES + 8];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		found = strncmp(line, "0::/", 4) == 0 && strchr(line, '\n');
		if (found)
			snprintf(path, GROUP_BYTES, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
	}
	if (f)
		fclose(f);
	return found;
}

/* Of a line "rxe0 hca_handle=2 hca_object=max": the number; false: it is not there, or "max". */
static bool number_of(const char *line, const char *device, uint64_t *out)
{
	const char *what = " hca_object=", *at;
	size_t len = strlen(device);
	char *end;

	if (strncmp(line, device, len) != 0 || line[len] != ' ')
		return false;
	at = strstr(line + len, what);
	if (!at)
		return false;
	*out = strtoull(at + strlen(what), &end, 10);
	return end != at + strlen(what);
}

static bool read_objects(const char *root, const char *group, const char *file, const char *device,
			 uint64_t *out)
{
	char path[GROUP_BYTES + 160], line[256];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%.100s/fs/cgroup%s/%s", root, group, file);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = number_of(line, device, out);
	if (f)
		fclose(f);
	return found;
}

/* What one group leaves, if it has a limit and leaves less than those below it. */
static bool look_at(const char *root, const char *group, const char *device, uint64_t *left,
		    uint64_t *limit)
{
	uint64_t max, current = 0, rest;

	if (!read_objects(root, group, "rdma.max", device, &max))
		return false;
	read_objects(root, group, "rdma.current", device, &current);
	rest = current < max ? max - current : 0;
	if (rest < *left) {
		*left = rest;
		*limit = max;
	}
	return true;
}

bool cgroup_objects(const char *root, const char *of, const char *device, uint64_t *left,
		    uint64_t *limit)
{
	char group[GROUP_BYTES];
	bool found;

	*left = UINT64_MAX;
	snprintf(group, sizeof(group), "%s", strcmp(of, "/") == 0 ? "" : of);
	/* The top has limits where it is that of a namespace. */
	found = look_at(root, group, device, left, limit);
	while (group[0]) {
		*strrchr(group, '/') = 0;
		found |= look_at(root, group, device, left, limit);
	}
	return found;
}

static int objects(const struct native_context *c, uint64_t *left, uint64_t *limit)
{
	char group[GROUP_BYTES];

	return own_group(group) &&
	       cgroup_objects(c->native->set.sysfs, group, c->device, left, limit);
}

void context_count_objects(struct native_context *c)
{
	uint64_t left, limit;

	c->counted = objects(c, &left, &limit);
}

int context_objects(const struct native_context *c, uint64_t *left, uint64_t *limit)
{
	return c->counted && objects(c, left, limit);
}
