/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a device sits, from sysfs: the NUMA node of its slot, or of the network device under it where the
 * RDMA device is software (rxe, siw), and the kernel's distances from each node's memory to there.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backends/rdma/rdma.h"

/* The numbers of a line of text, at most max; how many, 0 if the file is not there. */
static uint32_t read_numbers(const char *path, int *out, uint32_t max)
{
	FILE *f = fopen(path, "re");
	uint32_t n = 0;

	if (!f)
		return 0;
	while (n < max && fscanf(f, "%d", &out[n]) == 1)
		n++;
	fclose(f);
	return n;
}

static uint32_t node_at(const char *path)
{
	int node;

	/* Documentation/ABI/testing/sysfs-bus-pci: -1 where the platform does not tell. */
	return read_numbers(path, &node, 1) == 1 && node >= 0 ? (uint32_t)node : UINT32_MAX;
}

/* rxe and siw name the network device that they are on (drivers/infiniband/sw/rxe/rxe_verbs.c, parent). */
static bool parent_of(const char *root, const char *device, char parent[64])
{
	char path[256];
	bool named;
	FILE *f;

	snprintf(path, sizeof(path), "%.100s/class/infiniband/%.60s/parent", root, device);
	f = fopen(path, "re");
	if (!f)
		return false;
	named = fscanf(f, "%63s", parent) == 1 && !strchr(parent, '/');
	fclose(f);
	return named;
}

uint32_t topology_node(const char *root, const char *device)
{
	char path[256], parent[64];
	uint32_t node;

	snprintf(path, sizeof(path), "%.100s/class/infiniband/%.60s/device/numa_node", root,
		 device);
	node = node_at(path);
	if (node != UINT32_MAX || !parent_of(root, device, parent))
		return node;
	snprintf(path, sizeof(path), "%.100s/class/net/%s/device/numa_node", root, parent);
	return node_at(path);
}

static uint32_t distances_of(const char *root, uint32_t node, int line[NATIVE_MAX_NODES])
{
	char path[256];

	snprintf(path, sizeof(path), "%.100s/devices/system/node/node%u/distance", root, node);
	return read_numbers(path, line, NATIVE_MAX_NODES);
}

void topology_distances(const char *root, uint32_t node, uint8_t out[NATIVE_MAX_NODES])
{
	int line[NATIVE_MAX_NODES];
	uint32_t column = 0, i;

	memset(out, 0, NATIVE_MAX_NODES);
	if (node >= NATIVE_MAX_NODES)
		return;
	/* A line has a column for each node that is online (drivers/base/node.c), gaps left out. */
	for (i = 0; i < node; i++)
		column += distances_of(root, i, line) > 0;
	for (i = 0; i < NATIVE_MAX_NODES; i++)
		if (distances_of(root, i, line) > column && line[column] > 0 &&
		    line[column] <= UINT8_MAX)
			out[i] = (uint8_t)line[column];
}
