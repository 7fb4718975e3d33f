/* SPDX-License-Identifier: BSD-2-Clause */
/* entry.c - the RDMA backend: the engine over RDMA devices. */
#include "backends/engine/entry.h"
#include "backends/rdma/options.h"
#include "backends/rdma/rdma.h"

static const struct engine_backend rdma = {.native = &rdma_native, .version = "1"};
static const struct escrow_option options[] = {ENGINE_OPTIONS RDMA_OPTIONS};

ENGINE_BACKEND(&rdma, "rdma", "1", ESCROW_CAP_REMOTE | ESCROW_CAP_DMABUF | ESCROW_CAP_THREADS,
	       (UINT64_C(1) << ESCROW_MEMORY_HOST) | (UINT64_C(1) << ESCROW_MEMORY_DMABUF), options)
