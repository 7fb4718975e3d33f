/* SPDX-License-Identifier: BSD-2-Clause */
/* charges.c - what the backend says is charged, and the native calls that it made. */
#include "tests/simulate/sim.h"

#include <errno.h>
#include <string.h>

#include "tests/softverbs/softverbs.h"

#define KINDS (ESCROW_CHARGE_OPS + 1u)
#define CHARGES 256

void judge_read_charges(const struct engine *e, uint64_t used[])
{
	struct escrow_charge all[CHARGES];
	int32_t n = sim_ops->charges(e->engine, all, CHARGES, sizeof(all[0])), i;

	memset(used, 0, KINDS * sizeof(used[0]));
	if (n < 0 || n > CHARGES)
		sim_fail("I3", "charges says %d", n);
	for (i = 0; i < n; i++) {
		if (all[i].stuck > all[i].used)
			sim_fail("I3", "charge %u: more stuck than used", all[i].kind);
		if (all[i].used > all[i].limit)
			sim_fail("I3", "charge %u: beyond its limit", all[i].kind);
		if (!all[i].peer_name[0] && all[i].kind < KINDS)
			used[all[i].kind] = all[i].used;
	}
}

/* What the host knows must be charged, and what may be. */
static void count_book(const struct engine *e, uint64_t want[], uint64_t most[])
{
	struct span offers;
	uint32_t i;

	memset(most, 0, KINDS * sizeof(most[0]));
	for (i = 0; i < KINDS; i++)
		want[i] = e->base[i];
	for (i = 1; i < sim.nops; i++) {
		const struct op *op = &sim.ops[i];

		if (op->engine != e || op->incarnation != e->incarnation ||
		    (op->state != LIVE && op->state != HELD))
			continue;
		/* One whose message is under way has left the device's queues. */
		if (op->message != SIM_NONE)
			most[ESCROW_CHARGE_OPS]++;
		else
			want[ESCROW_CHARGE_OPS]++;
	}
	offers_span(e, &offers);
	for (i = 0; i < 2; i++) {
		want[ESCROW_CHARGE_GRANTS + i] += offers.least[i];
		most[ESCROW_CHARGE_GRANTS + i] = offers.most[i] - offers.least[i];
	}
	for (i = 0; i < sim.ngrants; i++) {
		const struct grant *g = &sim.grants[i];

		if (g->owner != e || g->incarnation != e->incarnation || g->state == ENDED)
			continue;
		want[ESCROW_CHARGE_GRANTS]++;
		want[ESCROW_CHARGE_GRANTED_BYTES] += (uint64_t)g->lines * SIM_LINE;
	}
	for (i = 0; i < SIM_AREAS; i++) {
		if (e->areas[i].state == NOT_THERE)
			continue;
		want[ESCROW_CHARGE_REGIONS]++;
		want[ESCROW_CHARGE_BYTES] += SIM_AREA;
	}
	most[ESCROW_CHARGE_REGIONS] = e->ghosts;
	most[ESCROW_CHARGE_BYTES] = (uint64_t)e->ghosts * SIM_AREA;
}

void judge_charges(struct engine *e)
{
	static const uint32_t exact[] = {ESCROW_CHARGE_OPS, ESCROW_CHARGE_GRANTS,
					 ESCROW_CHARGE_GRANTED_BYTES, ESCROW_CHARGE_REGIONS,
					 ESCROW_CHARGE_BYTES};
	uint64_t used[KINDS], want[KINDS], most[KINDS];
	uint32_t i;

	judge_read_charges(e, used);
	count_book(e, want, most);
	for (i = 0; i < sizeof(exact) / sizeof(exact[0]); i++) {
		uint32_t k = exact[i];
		uint64_t more = most[k];

		/* What is stuck in a device that is lost is told of by its engine's end only. */
		if (e->failed)
			more = UINT64_MAX - want[k];
		/* What was fenced is free; each thing is told when its turn comes. */
		if (e->fenced)
			want[k] = 0;
		if (used[k] < want[k] || used[k] > want[k] + more)
			sim_fail("I3",
				 "engine %u: charge %u is %" PRIu64 ", the book says %" PRIu64
				 " and up to %" PRIu64 " more",
				 e->slot, k, used[k], want[k], most[k]);
	}
}

/* Every living queue pair is charged to somebody. Asked when a native call was made: reading charges is what
 * most of a run's time would go to. */
static void check_connections(void)
{
	uint64_t used[KINDS], all = 0;
	uint32_t i;

	if (sim.fenced || (sim.faults & SIM_LIE))
		return;
	for (i = 0; i < sim.nengines; i++) {
		if (!sim.engines[i].engine)
			continue;
		judge_read_charges(&sim.engines[i], used);
		all += used[ESCROW_CHARGE_CONNECTIONS];
	}
	if (all + sim.stuck_connections < softverbs_count("qp"))
		sim_fail("I3", "%u queue pairs live, %" PRIu64 " are charged",
			 softverbs_count("qp"), all);
}

static void check_call(const struct softverbs_call *c)
{
	if (strcmp(c->name, "cq_overrun") == 0 && !(sim.faults & SIM_CQE))
		sim_fail("I8", "a completion queue overruns");
	/* Where none was refused by the adversary, the backend asked for what had to be refused. */
	if (c->rc == EBUSY && !(sim.faults & (SIM_BUSY | SIM_LIE)))
		sim_fail("I9", "%s of what is still in use", c->name);
}

void judge_calls(void)
{
	static struct softverbs_call calls[256];
	static uint64_t after;
	uint64_t before = after;
	size_t i, n;

	while ((n = softverbs_log(after, calls, 256))) {
		for (i = 0; i < n; i++) {
			sim_trace("call %s %u %d %d", calls[i].name, calls[i].id, calls[i].rc,
				  calls[i].errnum);
			check_call(&calls[i]);
		}
		sim.n.calls += n;
		after = calls[n - 1].seq;
	}
	if (after != before)
		check_connections();
}

void judge_end(void)
{
	static const char *const kinds[] = {"qp", "cq", "channel", "mr", "mw", "pd", "context"};
	uint32_t i;

	for (i = 0; i < sim.nengines; i++)
		if (sim.engines[i].engine && sim.engines[i].state != STUCK)
			sim_fail("L2", "engine %u does not end", i);
	if (sim.faults)
		return;
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (softverbs_count(kinds[i]))
			sim_fail("L1", "%u of %s are left when all is closed",
				 softverbs_count(kinds[i]), kinds[i]);
}

void judge_tell(const struct engine *to, const uint8_t *identity, uint32_t receipt)
{
	if (sim_fence->fenced(to ? to->engine : NULL, identity, receipt) != ESCROW_OK)
		sim_fail("I9", "a receipt from outside is refused");
}

static void tell_fence(const struct engine *to, const uint8_t *identity)
{
	judge_tell(to, identity, ESCROW_RECEIPT_FUNCTION_FENCED);
	sim.n.fenced++;
}

void judge_fence(struct engine *e)
{
	if (e->engine && e->state == STUCK)
		tell_fence(e, e->identity);
}

void judge_fence_early(struct engine *e)
{
	if (!e->engine || e->state == ENDED)
		return;
	tell_fence(e, e->identity);
	e->fenced = true;
}

void judge_fenced(struct engine *e)
{
	uint32_t i;

	if (!e->engine)
		return;
	for (i = 1; i < sim.nops; i++)
		if (sim.ops[i].engine == e && sim.ops[i].incarnation == e->incarnation &&
		    sim.ops[i].state != ENDED)
			sim_fail("I9", "op %u is not returned by a fence", i);
	for (i = 0; i < sim.ngrants; i++)
		if (sim.grants[i].owner == e && sim.grants[i].incarnation == e->incarnation &&
		    sim.grants[i].state != ENDED)
			sim_fail("I9", "grant %u is not ended by a fence", i);
	act_release(e);
}

void judge_fence_residue(void)
{
	struct escrow_charge all[CHARGES];
	uint32_t i;
	int32_t n;

	for (i = 0; i < sim.nstuck; i++)
		tell_fence(NULL, sim.stuck[i]);
	n = sim_ops->charges(NULL, all, CHARGES, sizeof(all[0]));
	while (n-- > 0)
		if (all[n].used)
			sim_fail("I3", "%" PRIu64 " of charge %u are left, and all is fenced",
				 all[n].used, all[n].kind);
}
