/* SPDX-License-Identifier: BSD-2-Clause */
/* What tests do to an engine of rdma-kit.h from below. */
#include <escrow/fault.h>

#include "backends/engine/engine.h"
#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-kit.h"

static const struct escrow_fault *faults(struct end *e)
{
	const struct escrow_fault *f = OPS->get_extension(e->engine, ESCROW_FAULT_ID);

	ck_assert_ptr_nonnull(f);
	return f;
}

void end_plan(struct end *e, const char *plan)
{
	struct escrow_error error = {.size = sizeof(error)};

	ck_assert_msg(faults(e)->plan(e->engine, plan, &error) == ESCROW_OK, "%s", error.text);
}

int64_t end_calls(struct end *e, uint32_t step)
{
	return faults(e)->calls(e->engine, step);
}

struct ibv_qp *end_qp(struct end *e, uint64_t peer)
{
	struct peer *p = engine_by_slot(e->engine, peer);

	ck_assert_ptr_nonnull(p);
	ck_assert_ptr_nonnull(p->conns[0].native);
	return p->conns[0].native->qp;
}
