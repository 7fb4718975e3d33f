/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma-world.h - what happens to rails: on softverbs by its control interface, in the guest by ip(8) as root. */
#ifndef RDMA_WORLD_H
#define RDMA_WORLD_H

/* "" if there are two rails that can be played with, else what is missing.  Call it first. */
const char *world_missing(void);
void world_link(int rail, int up);
void world_address(int rail, int there);

#endif
