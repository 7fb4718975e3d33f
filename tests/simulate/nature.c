/* SPDX-License-Identifier: BSD-2-Clause */
/* nature.c - the adversary, as far as the seed allows it. */
#include "tests/simulate/sim.h"

#include <errno.h>
#include <string.h>

#include <glib.h>
#include <infiniband/verbs.h>

#include "tests/simulate/device.h"
#include "tests/softverbs/softverbs.h"

#define QPS 64

static uint32_t ports_down;
static uint32_t rails_dark;

/* What the RDMA backend does not believe is a lie only where it does not: of destroy_qp (provider.c). */
static void fail_call(void)
{
	static const char *const ends[] = {
		"destroy_qp", "modify_qp_err", "modify_qp_reset",      "dereg_mr",
		"dealloc_mw", "destroy_cq",    "destroy_comp_channel", "dealloc_pd"};
	static const char *const makes[] = {"create_qp", "alloc_mw", "reg_mr", "post_send"};
	static const int errors[] = {EIO, ETIMEDOUT, EINVAL, EAGAIN};
	static const enum softverbs_verdict verdicts[] = {SOFTVERBS_FAIL_NO_EFFECT,
							  SOFTVERBS_FAIL_EFFECT};
	uint32_t busy = (sim.faults & SIM_BUSY) && sim_chance(2), unrung;
	const char *call;

	if (sim_chance(3)) {
		call = makes[sim_pick(G_N_ELEMENTS(makes))];
		/* All that was posted is the device's, and no request is the bad one: the doorbell failed. */
		unrung = strcmp(call, "post_send") == 0 && sim_chance(2);
		softverbs_script(call, 1 + sim_pick(4),
				 unrung ? SOFTVERBS_FAIL_EFFECT : SOFTVERBS_REFUSED, ENOMEM);
	} else {
		call = ends[sim_pick(G_N_ELEMENTS(ends))];
		softverbs_script(call, 1 + sim_pick(3),
				 busy ? SOFTVERBS_REFUSED : verdicts[sim_pick(2)],
				 busy ? EBUSY : errors[sim_pick(G_N_ELEMENTS(errors))]);
	}
	sim_trace("nature: %s fails", call);
}

static void lie(void)
{
	sim_trace("nature: destroy_qp lies");
	softverbs_script("destroy_qp", 1, SOFTVERBS_OK_LIE, 0);
}

static struct ibv_qp *any_qp(void)
{
	struct ibv_qp *all[QPS];
	size_t n = softverbs_qps(all, QPS);

	return n ? all[sim_pick((uint32_t)n)] : NULL;
}

static void completions(void)
{
	static const enum softverbs_cqe_mode modes[] = {SOFTVERBS_CQE_HOLD, SOFTVERBS_CQE_HOLD,
							SOFTVERBS_CQE_DROP, SOFTVERBS_CQE_TWICE};
	struct ibv_qp *qp = any_qp();
	uint32_t mode = sim_pick(G_N_ELEMENTS(modes));

	if (!qp)
		return;
	sim_trace("nature: completions %u", mode);
	/* Completions of a queue pair come in order: one that is held holds all that follow. */
	softverbs_cqe(qp, SOFTVERBS_CQE_PASS, 0, 0);
	softverbs_cqe_release(qp);
	if (sim_chance(3))
		return;
	if (modes[mode] == SOFTVERBS_CQE_HOLD)
		softverbs_cqe(qp, modes[mode], sim_pick(3), 0);
	else
		softverbs_cqe(qp, modes[mode], sim_pick(3), 1 + sim_pick(4));
}

static void port(void)
{
	uint32_t rail = sim_pick(sim.rails);

	ports_down ^= 1u << rail;
	sim_trace("nature: ports down %u", ports_down);
	softverbs_port((int)rail, !(ports_down & 1u << rail));
}

static void loss(void)
{
	uint32_t rail = sim_pick(sim.rails);

	rails_dark ^= 1u << rail;
	sim_trace("nature: rails dark %u", rails_dark);
	softverbs_blackhole((int)rail, (rails_dark & 1u << rail) != 0);
}

static void hold(void)
{
	struct ibv_qp *qp = any_qp();
	int on = (int)sim_pick(2);

	if (!qp)
		return;
	sim_trace("nature: hold %d", on);
	softverbs_hold(qp->context, on);
}

static void kill_peers(void)
{
	struct ibv_qp *qp = any_qp();

	if (!qp || !sim_chance(4))
		return;
	sim_trace("nature: kill");
	softverbs_kill_peers(qp->context);
}

static void device(void)
{
	struct ibv_qp *qp = any_qp();

	if (!qp || !sim_chance(8))
		return;
	sim_trace("nature: fatal");
	softverbs_event(qp->context, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
}

/* As it is asked for something: what it answers, and says it did, is nothing from then on. */
void nature_beside(struct escrow_engine *e)
{
	struct ibv_context *verbs;

	if (!(sim.faults & SIM_FATAL) || !sim_chance(50))
		return;
	verbs = device_of(e, sim_pick(8));
	if (!verbs)
		return;
	sim_trace("nature: fatal, meanwhile");
	softverbs_event(verbs, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
}

static void queue(void)
{
	struct ibv_qp *qp = any_qp();

	if (!qp || (sim.faults != SIM_QUEUE && !sim_chance(12)))
		return;
	sim_trace("nature: queue breaks");
	softverbs_event(qp->context, IBV_EVENT_CQ_ERR, NULL, qp->send_cq);
}

/* A peer whose backend is not ours: it WRITEs with a key that it was given for something else, or that was
 * taken back. Nothing of it may land. */
static void hostile(void)
{
	struct grant *g = sim.ngrants ? &sim.grants[sim_pick(sim.ngrants)] : NULL;
	uint32_t bytes[2] = {0};
	struct ibv_qp *qp = any_qp();
	struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = sizeof(bytes)};
	struct ibv_send_wr *bad, wr = {.wr_id = UINT64_MAX,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_INLINE,
				       .sg_list = &sge,
				       .num_sge = 1};
	uint32_t line;

	if (!qp || !g || !g->key || g->incarnation != g->owner->incarnation)
		return;
	line = g->line + sim_pick(g->lines);
	/* What it may do is no attack. */
	if (g->state != ENDED && (g->rights & ESCROW_MAY_WRITE))
		line = sim_chance(2) ? g->line - 1 : g->line + g->lines;
	/* Nor is what another grant allows: another rail's device may have given that one the same key. */
	if (line >= SIM_LINES || g->owner->areas[g->area].lines[line].tags.grant_write)
		return;
	wr.wr.rdma.rkey = g->key;
	wr.wr.rdma.remote_addr =
		(uintptr_t)g->owner->areas[g->area].bytes + (uint64_t)line * SIM_LINE;
	sim_trace("nature: key of grant %u for line %u of area %u -> %d",
		  (unsigned int)(g - sim.grants), line, g->area, ibv_post_send(qp, &wr, &bad));
}

void nature_random(void)
{
	static const struct {
		uint32_t fault;
		void (*act)(void);
	} natures[] = {{SIM_FAIL, fail_call},  {SIM_LIE, lie},      {SIM_CQE, completions},
		       {SIM_PORT, port},       {SIM_LOSS, loss},    {SIM_HOLD, hold},
		       {SIM_KILL, kill_peers}, {SIM_FATAL, device}, {SIM_HOSTILE, hostile},
		       {SIM_QUEUE, queue}};
	/* The last came last: who is spared it draws as before. */
	uint32_t i = sim_pick(G_N_ELEMENTS(natures) - !(sim.faults & SIM_QUEUE));

	if (sim.faults & natures[i].fault)
		natures[i].act();
}

void nature_calm(void)
{
	struct ibv_qp *all[QPS];
	size_t n = softverbs_qps(all, QPS), i;
	uint32_t rail;

	/* A device that stays held, or completions that never come, are for the teardown to cope with. */
	if (sim_chance(2)) {
		for (i = 0; i < n; i++) {
			softverbs_cqe(all[i], SOFTVERBS_CQE_PASS, 0, 0);
			softverbs_cqe_release(all[i]);
			softverbs_hold(all[i]->context, 0);
		}
		softverbs_script_clear();
	}
	for (rail = 0; rail < sim.rails; rail++) {
		if (ports_down & 1u << rail)
			softverbs_port((int)rail, 1);
		softverbs_blackhole((int)rail, 0);
	}
	ports_down = rails_dark = 0;
}
