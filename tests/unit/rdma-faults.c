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

void end_give_up_soon(struct end *e, uint64_t peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .timeout = 14, .retry_cnt = 2};
	struct ibv_qp *qp = end_qp(e, peer);

	ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	/* Refused while what was posted is under way; rxe waits for that once more if it is told the state again. */
	while (ibv_modify_qp(qp, &attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT) != 0)
		ends_turn();
	attr.qp_state = IBV_QPS_RTS;
	while (ibv_modify_qp(qp, &attr, IBV_QP_STATE) != 0)
		ends_turn();
}
