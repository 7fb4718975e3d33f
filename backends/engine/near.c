/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * near.c - how far memory is from the devices: the node of a region's first page, and what the native
 * side knows of distances from that node.  What is not known counts as near, so that nothing changes
 * where the machine does not tell.
 */
#include "backends/engine/engine.h"

#include <sys/syscall.h>
#include <unistd.h>
#include <linux/mempolicy.h>

#define NEAR 10u /* the kernel's distance of a node from itself (node/distance in sysfs) */

/* A dma-buf's pages are its exporter's to place. -1: not known, or a machine of one node. */
static int node_of(const struct escrow_region_args *a)
{
	int node = -1;

	if (a->memory_kind != ESCROW_MEMORY_HOST ||
	    syscall(SYS_get_mempolicy, &node, NULL, 0UL, a->addr, MPOL_F_NODE | MPOL_F_ADDR))
		return -1;
	return node;
}

void en_region_near(struct escrow_engine *e, struct region *r, const struct escrow_region_args *a)
{
	int node = e->config.topology ? node_of(a) : -1;
	uint32_t i;

	for (i = 0; i < e->ncontexts; i++) {
		uint32_t distance = node >= 0 && (uint32_t)node < NATIVE_MAX_NODES
					    ? e->contexts[i].info.distance[node]
					    : 0;

		atomic_store(&r->parts[i].distance, distance ? distance : NEAR);
	}
}
