/* SPDX-License-Identifier: BSD-2-Clause */
/* device.c - under the engine; apart, because the simulation has words of its own for what an engine is made of. */
#include "backends/engine/engine.h"
#include "backends/rdma/rdma.h"
#include "tests/simulate/device.h"

struct ibv_context *device_of(struct escrow_engine *e, uint32_t pick)
{
	const struct context *c = &e->contexts[pick % e->ncontexts];

	return c->native ? c->native->verbs : NULL;
}
