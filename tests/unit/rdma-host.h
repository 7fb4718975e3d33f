/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma-host.h - the host of the engines of rdma-kit.h: a real clock, warnings on standard output. */
#ifndef RDMA_HOST_H
#define RDMA_HOST_H

#include <escrow/backend.h>

extern const struct escrow_host rdma_host;
/* How many blocks it has lent that were not given back. */
uint64_t rdma_host_blocks(void);
/* From now on this process may lock so many bytes, and has no right to more. */
void rdma_host_locks(uint64_t bytes);

#endif
