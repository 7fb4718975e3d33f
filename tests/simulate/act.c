/* SPDX-License-Identifier: BSD-2-Clause */
/* act.c - the host: random, but within the contract. */
#include "tests/simulate/sim.h"

#include <string.h>

#include <glib.h>

#include <escrow/counters.h>

#include "tests/softverbs/softverbs.h"

#define EVENTS 8

const struct escrow_ops *sim_ops;
const struct escrow_fence *sim_fence;

/* ---- Engines --------------------------------------------------------------------------------------- */
struct setting {
	const char *key;
	char value[16];
};

/* Small limits, so that they are met. */
static uint32_t settings_draw(struct setting *s)
{
	static const struct {
		const char *key;
		uint32_t low, high;
	} keys[] = {{"num_lanes", 1, 2},       {"send_depth", 8, 40},   {"recv_depth", 4, 16},
		    {"max_peers", 8, 8},       {"max_ops", 8, 64},      {"max_grants", 8, 24},
		    {"max_regions", 4, 16},    {"drain_ms", 0, 40},     {"connect_ms", 50, 2000},
		    {"max_peer_grants", 4, 8}, {"rdma.timeout", 8, 16}, {"rdma.retry", 0, 6},
		    {"rdma.rd_atomic", 1, 4}};
	static const char *const weak[] = {"weak.reset", "weak.destroy", "weak.dereg",
					   "weak.dealloc_window"};
	uint32_t i;

	for (i = 0; i < G_N_ELEMENTS(keys); i++) {
		s[i].key = keys[i].key;
		g_snprintf(s[i].value, sizeof(s[i].value), "%u",
			   keys[i].low + sim_pick(keys[i].high - keys[i].low + 1));
	}
	s[i] = (struct setting){.key = "slice_bytes"};
	g_snprintf(s[i].value, sizeof(s[i].value), "%u", SIM_SLICE);
	s[i + 1] = (struct setting){"control_thread", "0"};
	s[i + 2] = (struct setting){"max_remotes", "64"};
	s[i + 3] = (struct setting){"max_messages", "4"};
	i += 4;
	if (sim.renews) {
		s[i++] = (struct setting){"renew_share", "1"};
		s[i++] = (struct setting){"test.window_binds", "1"};
		s[i++] = (struct setting){"rail_retry_ms", "1"};
		/* Who went at that moment is missed before the run is at rest (RENEW_NS). */
		s[i++] = (struct setting){"connect_ms", "90"};
	}
	/* A host that takes less for a proof: more is withheld, and comes back late. */
	if (sim.faults && sim_chance(6))
		s[i++] = (struct setting){weak[sim_pick(G_N_ELEMENTS(weak))], "1"};
	return i;
}

void act_open(struct engine *e)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct setting settings[24];
	struct escrow_kv kv[24];
	char name[16];
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_open_args args = {.size = sizeof(args),
					.host = &world_host,
					.revision = 1,
					.kv = kv,
					.nkv = settings_draw(settings),
					.kv_stride = sizeof(kv[0]),
					.engine_name = name};
	escrow_status st;
	uint32_t i;

	if (e->engine)
		return;
	for (i = 0; i < args.nkv; i++)
		kv[i] = (struct escrow_kv){settings[i].key, settings[i].value};
	g_snprintf(name, sizeof(name), "engine-%u", e->slot);
	/* What a quarantined incarnation kept is never used again. */
	if (e->state != ENDED)
		world_areas(e);
	e->incarnation++;
	st = sim_ops->open(&args, &e->engine, &error);
	sim_trace("open %u -> %d %s", e->slot, st, st < 0 ? error.text : "");
	if (st < 0) {
		e->engine = NULL;
		if (!sim.faults || st == ESCROW_E_INVALID)
			sim_fail("L1", "open: %s", error.text);
		return;
	}
	e->state = LIVE;
	e->failed = e->quiesced = e->draining = e->swapping = e->drained = e->full = e->fenced =
		false;
	e->seq = 0;
	e->drains = 0;
	e->arrivals = 0;
	e->ghosts = 0;
	sim_ops->query(e->engine, &limits);
	memcpy(e->identity, limits.incarnation, sizeof(e->identity));
	sim_fence = sim_ops->get_extension(e->engine, ESCROW_FENCE_ID);
	judge_read_charges(e, e->base);
}

void act_close(struct engine *e, bool graceful)
{
	uint64_t deadline = softverbs_now() + 1000000u * (1 + sim_pick(20));
	escrow_status st;
	uint32_t i, j;

	if (!e->engine || e->state == ENDED || e->state == STUCK)
		return;
	/* Before the call: what fails because of it may be told at once. */
	for (i = 0; i < sim.nlinks; i++)
		for (j = 0; j < 2; j++)
			if (sim.links[i].side[j].engine == e)
				sim.links[i].rough = true;
	e->state = ENDING;
	st = sim_ops->close(e->engine, deadline,
			    graceful ? ESCROW_CLOSE_GRACEFUL : ESCROW_CLOSE_ABORT);
	sim_trace("close %u graceful %d -> %d", e->slot, graceful, st);
	if (st != ESCROW_IN_PROGRESS)
		sim_fail("events", "close answers %d", st);
}

/* Nothing of it is left, and so the others may be told: no key of it will ever be used. */
static void tell_reaped(const struct engine *gone)
{
	uint32_t i;

	/* Not drawn: the seeds of before stay as they were. */
	if (gone->identity[0] & 1)
		return;
	for (i = 0; i < sim.nengines; i++)
		if (sim.engines[i].engine && &sim.engines[i] != gone)
			judge_tell(&sim.engines[i], gone->identity, ESCROW_RECEIPT_PROCESS_REAPED);
}

/* Connections that were made anew, for the summary. */
static uint64_t renewed(const struct engine *e)
{
	const struct escrow_counters *x = sim_ops->get_extension(e->engine, ESCROW_COUNTERS_ID);
	struct escrow_counter all[64];
	uint64_t sum = 0;
	int32_t n, i;

	n = x->read(e->engine, all, G_N_ELEMENTS(all), sizeof(all[0]));
	for (i = 0; i < n; i++)
		if (g_str_has_suffix(all[i].name, ".renewed"))
			sum += all[i].value;
	return sum;
}

void act_release(struct engine *e)
{
	uint64_t used[16];
	uint32_t i;

	if (!e->engine || (e->state != ENDED && e->state != STUCK))
		return;
	judge_read_charges(e, used);
	sim.stuck_connections += used[ESCROW_CHARGE_CONNECTIONS];
	if (e->state == STUCK && sim.nstuck < G_N_ELEMENTS(sim.stuck))
		memcpy(sim.stuck[sim.nstuck++], e->identity, sizeof(e->identity));
	for (i = 1; e->state == ENDED && i <= ESCROW_CHARGE_OPS; i++)
		if (used[i])
			sim_fail("I3", "CLOSED with %" PRIu64 " of charge %u left", used[i], i);
	sim.n.renewed += renewed(e);
	sim_trace("release %u", e->slot);
	sim_ops->release(e->engine);
	e->engine = NULL;
	if (e->state == ENDED)
		tell_reaped(e);
}

void act_poll(struct engine *e)
{
	struct escrow_event events[EVENTS];
	uint32_t max = 1 + sim_pick(EVENTS);
	int32_t n, i;

	if (!e->engine)
		return;
	sim.polling = e;
	n = sim_ops->poll(e->engine, events, max, sizeof(events[0]), 0);
	sim.polling = NULL;
	if (n < 0 || n > (int32_t)max)
		sim_fail("events", "poll answers %d", n);
	for (i = 0; i < n; i++)
		judge_event(e, &events[i]);
	if (n == 0)
		judge_charges(e);
	if (e->swapping && e->drained)
		act_close(e, true);
	/* So that completions wake somebody, and what wakes is acknowledged. */
	if (sim_chance(3))
		sim_ops->arm(e->engine, 0);
}

/* ---- Regions ---------------------------------------------------------------------------------------- */
static void act_register(struct engine *e)
{
	uint32_t i = sim_pick(SIM_AREAS);
	struct area *a = &e->areas[i];
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args args = {.size = sizeof(args),
					  .user = i,
					  .addr = a->bytes,
					  .length = SIM_AREA,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	escrow_status st;

	if (a->state != NOT_THERE)
		return;
	st = sim_ops->register_memory(e->engine, &args, &a->region, &error);
	sim_trace("register %u area %u -> %d", e->slot, i, st);
	if (st == ESCROW_OK)
		a->state = LIVE;
	else
		e->ghosts++;
}

static void act_deregister(struct engine *e)
{
	uint32_t i = sim_pick(SIM_AREAS);
	struct area *a = &e->areas[i];
	escrow_status st;

	if (a->state != LIVE || !sim_chance(3))
		return;
	st = sim_ops->deregister_memory(e->engine, a->region, 0);
	sim_trace("deregister %u area %u -> %d", e->slot, i, st);
	if (st == ESCROW_IN_PROGRESS)
		a->state = ENDING;
}

/* ---- Peers --------------------------------------------------------------------------------------------- */
static void act_connect(struct engine *e)
{
	struct engine *from = &sim.engines[sim_pick(sim.nengines)];
	uint8_t invitation[2048];
	uint64_t len = sizeof(invitation);
	char name[16], other[16];
	uint64_t user = (uint64_t)sim.nlinks * 2;
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_invite_args invite = {
		.size = sizeof(invite), .user = user, .peer_name = other};
	struct escrow_peer_args args = {.size = sizeof(args),
					.user = user + 1,
					.peer_name = name,
					.invitation = invitation};
	struct link *l = &sim.links[sim.nlinks];
	uint32_t side;
	escrow_status st;

	if (sim.nlinks == SIM_LINKS || !from->engine || from->state != LIVE)
		return;
	/* Some work is to be done on the ones that are there. */
	if (book_any_end(e, &side) && !sim_chance(4))
		return;
	g_snprintf(name, sizeof(name), "engine-%u", e->slot);
	g_snprintf(other, sizeof(other), "engine-%u", from->slot);
	st = sim_ops->invite(e->engine, &invite, invitation, &len);
	sim_trace("invite %u link %u -> %d", e->slot, sim.nlinks, st);
	if (st < 0)
		return;
	args.invitation_len = len;
	if (sim_chance(4))
		args.deadline_ns = softverbs_now() + 1000000u * sim_pick(50);
	sim.nlinks++;
	*l = (struct link){.side = {{e, e->incarnation, 0, COMING, false, 0},
				    {from, from->incarnation, 0, COMING, false, 0}}};
	st = sim_ops->connect(from->engine, &args, &l->side[1].peer, &error);
	sim_trace("connect %u -> %d", from->slot, st);
	if (st < 0)
		l->side[1].state = ENDED;
}

static void act_disconnect(struct engine *e)
{
	uint32_t side;
	/* Also while it connects. */
	struct link *l = sim.nlinks && sim_chance(2) ? &sim.links[sim.nlinks - 1]
						     : book_any_end(e, &side);
	escrow_status st;

	if (!l || !sim_chance(3))
		return;
	if (l == &sim.links[sim.nlinks - 1])
		side = 1;
	if (l->side[side].engine != e || l->side[side].incarnation != e->incarnation ||
	    !l->side[side].peer || l->side[side].state == ENDED)
		return;
	l->rough = true;
	st = sim_ops->disconnect(e->engine, l->side[side].peer, 0);
	sim_trace("disconnect %u link %u -> %d", e->slot, (unsigned int)(l - sim.links), st);
}

/* ---- The rest ------------------------------------------------------------------------------------------- */
static void act_cancel(struct engine *e)
{
	struct op *op = book_any_op();
	escrow_status st;

	if (!op)
		return;
	op->canceled = true;
	st = sim_ops->cancel(op->engine->engine, op->handle, 0);
	sim_trace("cancel op %u -> %d", (unsigned int)(op - sim.ops), st);
}

void act_refused(struct engine *e, int32_t status)
{
	e->full |= status == ESCROW_E_AGAIN;
}

/* Another incarnation in its place, once its ops have ended (act_poll closes it, act_one opens). */
static void act_swap(struct engine *e)
{
	escrow_status st;

	if (e->quiesced || !sim_chance(3))
		return;
	st = sim_ops->drain(e->engine, 0, 0, 0);
	sim_trace("swap %u -> %d", e->slot, st);
	e->quiesced = e->draining = e->swapping = st == ESCROW_IN_PROGRESS;
	e->drained = false;
	sim.n.swaps += e->swapping;
	e->drains += e->swapping;
}

static void act_drain_peer(struct engine *e)
{
	uint64_t deadline = sim_chance(2) ? softverbs_now() + 1000000u * sim_pick(10) : 0;
	uint32_t side;
	struct link *l = book_any_end(e, &side);
	escrow_status st;

	if (!l)
		return;
	st = sim_ops->drain(e->engine, l->side[side].peer, deadline, 0);
	sim_trace("drain %u link %u -> %d", e->slot, (unsigned int)(l - sim.links), st);
	l->side[side].drains += st == ESCROW_IN_PROGRESS;
}

static void act_receive(struct engine *e)
{
	message_receive(e, sim_chance(2));
}

static void act_pause(struct engine *e)
{
	uint64_t deadline = softverbs_now() + 1000000u * sim_pick(10);
	escrow_status st;

	if (!e->quiesced && !sim_chance(4))
		return;
	if (e->quiesced)
		st = sim_ops->resume(e->engine, 0);
	else if (sim_chance(2))
		st = sim_ops->quiesce(e->engine, 0);
	else
		st = sim_ops->drain(e->engine, 0, deadline, 0);
	/*
	 * A DRAINED that is told after a resume says nothing about what came since; and while it is not polled
	 * another drain is refused.
	 */
	e->draining = !e->quiesced && st == ESCROW_IN_PROGRESS;
	e->drains += e->draining;
	sim_trace("pause %u -> %d", e->slot, st);
	e->quiesced = !e->quiesced && st >= 0;
}

static void act_end(struct engine *e)
{
	if (sim_chance(6))
		act_close(e, sim_chance(2));
}

static const struct {
	uint32_t weight;
	void (*act)(struct engine *e);
} acts[] = {{4, act_register},  {2, act_deregister}, {6, act_connect},  {1, act_disconnect},
	    {8, lend_grant},    {8, lend_import},    {2, lend_revoke},  {2, lend_forget},
	    {24, act_transfer}, {3, act_cancel},     {2, act_pause},    {1, act_end},
	    {1, act_swap},      {1, act_drain_peer}, {8, message_send}, {8, act_receive}};

static void act_one(void)
{
	struct engine *e = &sim.engines[sim_pick(sim.nengines)];
	uint32_t i, total = 0, choice;

	if (!e->engine)
		act_open(e);
	else if (e->state == ENDED || e->state == STUCK)
		act_release(e);
	if (!e->engine || e->state != LIVE)
		return;
	for (i = 0; i < G_N_ELEMENTS(acts); i++)
		total += acts[i].weight;
	choice = sim_pick(total);
	for (i = 0; choice >= acts[i].weight; i++)
		choice -= acts[i].weight;
	acts[i].act(e);
}

void act_random(void)
{
	uint32_t turns;

	if (!sim_chance(4))
		act_one();
	for (turns = sim_pick(30); turns && softverbs_step(); turns--)
		;
	if (!sim_chance(3))
		act_poll(&sim.engines[sim_pick(sim.nengines)]);
	if (sim_chance(6))
		softverbs_pass(1000u << sim_pick(14));
}

/* The control runner is in a native call that may sleep, and holds no lock (backends/engine/step.c): other
 * threads of the host go on. Not poll, which has one caller at a time. */
void act_beside(const char *call)
{
	static const char *const calls[] = {"modify_qp",     "destroy_qp",     "dereg_mr",
					    "dealloc_mw",    "alloc_mw",       "create_qp",
					    "modify_qp_err", "modify_qp_reset"};
	static void (*const beside[])(struct engine * e) = {
		message_send, act_transfer, act_transfer,   act_cancel,
		lend_grant,   lend_revoke,  act_disconnect, act_deregister};
	struct engine *e = sim.polling;
	uint32_t i;

	if (!e)
		return;
	nature_beside(e->engine);
	if (sim.winding_down)
		return;
	for (i = 0; i < G_N_ELEMENTS(calls) && strcmp(calls[i], call) != 0; i++)
		;
	if (i == G_N_ELEMENTS(calls) || !sim_chance(4))
		return;
	sim.polling = NULL;
	i = sim_pick(G_N_ELEMENTS(beside));
	sim_trace("beside %s:", call);
	if (e->state == LIVE)
		beside[i](e);
	sim.polling = e;
}
