/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/conform/reach.h"

#include <string.h>

#include "tests/conform/fault.h"

void reach_open(struct reach *r, struct conform *c)
{
	struct memory *m;

	memset(r, 0, sizeof(*r));
	r->c = c;
	pair_open(&r->pair, &c->subject);
	pair_share(&r->pair, false, 8192, ESCROW_MAY_READ | ESCROW_MAY_WRITE, &r->used);
	pair_share(&r->pair, true, 8192, ESCROW_MAY_READ | ESCROW_MAY_WRITE, &r->lent);
	pair_invite(r->pair.b, "late", 0, r->invitation, &r->invitation_len);
	m = &r->used.mem;
	pair_grant(r->pair.b, r->pair.b_peer, m, ESCROW_MAY_READ, r->exported, &r->exported_len);
	memory_register(r->pair.a, &r->local, 8192);
	r->state = ESCROW_STATE_OPEN;
}

static void reach_drained(struct engine *a)
{
	expect_status_as("DR1", a->o->quiesce(a->e, 0), ESCROW_OK);
	expect_status_as("DR2", a->o->drain(a->e, 0, 0, 0), ESCROW_IN_PROGRESS);
	engine_wait(a, ESCROW_EV_DRAINED, 0, NULL);
}

/* A read that the device holds: the drain cannot end. */
static void reach_draining(struct reach *r)
{
	struct escrow_sge sge = {.region = r->local.region, .length = 4096};
	struct escrow_op op = pair_op(ESCROW_READ, &r->used, 0, &sge);
	struct engine *a = r->pair.a;

	fault_plan(a, "cqe=hold");
	pair_start(a, &op);
	expect_status_as("DR2", a->o->drain(a->e, 0, 0, 0), ESCROW_IN_PROGRESS);
}

static void reach_quarantined(struct engine *a)
{
	fault_plan(a, "qp_reset=fail;destroy_qp=fail");
	expect_as("Q1", engine_end(a, ESCROW_CLOSE_ABORT) == ESCROW_EV_QUARANTINED,
		  "close ends in CLOSED though no queue pair could be destroyed");
}

static void reach_failed(struct engine *a)
{
	fault_plan(a, "device=fatal");
	engine_wait(a, ESCROW_EV_DEVICE, 0, NULL);
}

void reach_state(struct reach *r, uint32_t state)
{
	struct engine *a = r->pair.a;

	r->state = state;
	switch (state) {
	case ESCROW_STATE_OPEN:
		return;
	case ESCROW_STATE_QUIESCED:
		expect_status_as("DR1", a->o->quiesce(a->e, 0), ESCROW_OK);
		return;
	case ESCROW_STATE_DRAINING:
		reach_draining(r);
		return;
	case ESCROW_STATE_DRAINED:
		reach_drained(a);
		return;
	case ESCROW_STATE_CLOSING:
		expect_status_as("CL1", a->o->close(a->e, 0, ESCROW_CLOSE_GRACEFUL),
				 ESCROW_IN_PROGRESS);
		return;
	case ESCROW_STATE_QUARANTINED:
		reach_quarantined(a);
		return;
	case ESCROW_STATE_FAILED:
		reach_failed(a);
		return;
	default:
		expect_as("CL2", engine_end(a, ESCROW_CLOSE_GRACEFUL) == ESCROW_EV_CLOSED,
			  "close without a fault ends in quarantine");
		return;
	}
}

void reach_close(struct reach *r)
{
	struct engine *a = r->pair.a;

	if (r->state == ESCROW_STATE_DRAINING)
		fault_plan(a, "cqe=release");
	if (!a->closed && !a->quarantined)
		engine_end(a, ESCROW_CLOSE_ABORT);
	engine_release(a);
	engine_close(r->pair.b);
}
