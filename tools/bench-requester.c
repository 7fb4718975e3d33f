/* SPDX-License-Identifier: BSD-2-Clause */
/* The end that reads and writes: a session with the source, and its points. */
#include "config.h"

#include <string.h>

#include "tools/bench.h"
#include "tools/names.h"
#include "tools/tool.h"

/* ---- The mover over libescrow --------------------------------------------------------------------------- */
struct scratch {
	struct escrow_op ops[BENCH_MAX_BATCH];
	struct escrow_sge sge[BENCH_MAX_BATCH];
	uint64_t ids[BENCH_MAX_BATCH];
};

struct mover {
	struct demo_end *end;
	struct scratch *scratch; /* one for each thread */
};

static int submit(void *ctx, uint32_t thread, const struct bench_op *ops, uint32_t n)
{
	struct mover *m = ctx;
	struct scratch *s = &m->scratch[thread];
	int32_t taken;

	for (uint32_t i = 0; i < n; i++) {
		s->sge[i] = (struct escrow_sge){m->end->region, DEMO_GUARD + ops[i].offset,
						ops[i].size};
		s->ops[i].user = ops[i].slot;
		s->ops[i].remote = m->end->object;
		s->ops[i].remote_offset = ops[i].offset;
		s->ops[i].opcode = ops[i].write ? ESCROW_WRITE : ESCROW_READ;
		s->ops[i].nsge = 1;
		s->ops[i].sge = &s->sge[i];
	}
	taken = escrow_transfer(m->end->engine, s->ops, n, sizeof(s->ops[0]), 0, s->ids);
	if (taken >= 0)
		return taken;
	if (taken == ESCROW_E_AGAIN)
		return 0;
	tool_complain("bench: transfer: %s", escrow_status_name(taken));
	return -1;
}

static bool broke(const struct escrow_event *e)
{
	if (e->kind == ESCROW_EV_OP_DONE && e->status == ESCROW_OK &&
	    e->custody == ESCROW_CUSTODY_RETURNED)
		return false;
	if (e->kind != ESCROW_EV_OP_DONE && e->kind != ESCROW_EV_PEER_LOST &&
	    e->kind != ESCROW_EV_DEVICE)
		return false;
	tool_complain("bench: %s: %s", name_of_event(e->kind), escrow_status_name(e->status));
	return true;
}

static int reap(void *ctx, struct bench_done *done)
{
	struct mover *m = ctx;
	struct escrow_event events[BENCH_REAP];
	int32_t n = escrow_poll(m->end->engine, events, BENCH_REAP);
	int found = 0;

	if (tool_output_lost())
		return -1;
	if (n < 0)
		tool_complain("bench: poll: %s", escrow_status_name(n));
	for (int32_t i = 0; i < n; i++) {
		if (broke(&events[i]))
			return -1;
		if (events[i].kind == ESCROW_EV_OP_DONE)
			done[found++] = (struct bench_done){(uint32_t)events[i].user, 1};
	}
	return n < 0 ? -1 : found;
}

/* ---- A session -------------------------------------------------------------------------------------------- */
/* How many connections the ledger of this engine has charged. */
static uint64_t count_connections(struct demo_end *end)
{
	struct escrow_charge charges[64];
	int32_t n = escrow_charges(end->engine, charges, G_N_ELEMENTS(charges));

	for (int32_t i = 0; i < MIN(n, (int32_t)G_N_ELEMENTS(charges)); i++)
		if (charges[i].kind == ESCROW_CHARGE_CONNECTIONS && !charges[i].peer_name[0])
			return charges[i].used;
	return 0;
}

static bool threads_allowed(const struct bench_requester *r)
{
	struct escrow_limits limits = {.size = sizeof(limits)};

	if (escrow_query(r->end.engine, &limits) == ESCROW_OK &&
	    (limits.caps & ESCROW_CAP_TRANSFER_MT))
		return true;
	for (guint i = 0; i < r->o->threads.n; i++)
		if (r->o->threads.value[i] > 1) {
			tool_complain("bench: --threads %" G_GUINT64_FORMAT
				      ": only 1 is allowed, for transfers of this backend are not "
				      "thread-safe",
				      r->o->threads.value[i]);
			return false;
		}
	return true;
}

bool bench_session_open(struct bench_requester *r, guint64 rails, guint64 lanes)
{
	struct bench_session wanted = {.payload = 2 * r->o->area,
				       .rails = (uint32_t)rails,
				       .lanes = (uint32_t)lanes,
				       .hugepages = r->o->set.hugepages};

	r->set = r->o->set;
	r->set.settings = bench_settings(r->o->set.settings, rails, lanes);
	r->set.parents = 1;
	r->set.parent_bytes = (gint64)wanted.payload;
	r->end.set = &r->set;
	r->end.role = "requester";
	if (!demo_send(r->end.channel, DEMO_SESSION, 0, &wanted, sizeof(wanted)) ||
	    !demo_end_open(&r->end) || !threads_allowed(r) ||
	    !demo_requester_meet(&r->end, r->message))
		return false;
	r->connections = count_connections(&r->end);
	return bench_base_open(r);
}

/* Both ends get bytes that tell which point they are of; what is to be written is nowhere else. */
static bool lay_out(struct bench_requester *r, const struct bench_work *work)
{
	r->number++;
	memset(r->end.memory + DEMO_GUARD, 0, work->area);
	bench_fill(&r->end, work, true, r->number);
	return demo_send(r->end.channel, DEMO_FILL, r->number, work, sizeof(*work)) &&
	       demo_hear(&r->end, DEMO_FILLED, r->message);
}

static bool compare(struct bench_requester *r, const struct bench_work *work)
{
	bool right = true;

	if (work->op != BENCH_WRITE && !bench_check(&r->end, work, false, r->number)) {
		tool_complain("bench: --check: what was read is not what the source has");
		right = false;
	}
	if (work->op == BENCH_READ)
		return right;
	if (!demo_send(r->end.channel, DEMO_CHECK, r->number, work, sizeof(*work)) ||
	    !demo_hear(&r->end, DEMO_CHECKED, r->message))
		return false;
	if (!r->message->number) {
		tool_complain("bench: --check: what the source has is not what was written");
		right = false;
	}
	return right;
}

bool bench_session_point(struct bench_requester *r, const struct bench_work *work,
			 struct bench_result *result)
{
	struct mover m = {.end = &r->end, .scratch = g_new0(struct scratch, work->threads)};
	const struct bench_mover mover = {.ctx = &m, .submit = submit, .reap = reap};
	bool good = (!r->o->check || lay_out(r, work)) && bench_load(work, &mover, result);

	g_free(m.scratch);
	return good && (!r->o->check || compare(r, work));
}

bool bench_session_close(struct bench_requester *r)
{
	bool clean;

	bench_raw_stop(&r->raw);
	clean = demo_requester_part(&r->end, r->message) && demo_end_close(&r->end);

	clean = clean && demo_await_word(&r->end, DEMO_LEDGER, r->message) > 0 &&
		r->message->word == DEMO_LEDGER && r->message->number;
	g_strfreev(r->set.settings);
	r->set.settings = NULL;
	return clean || (r->end.engine && bench_session_abandon(r));
}

bool bench_session_abandon(struct bench_requester *r)
{
	bench_raw_stop(&r->raw);
	demo_end_abandon(&r->end);
	g_strfreev(r->set.settings);
	r->set.settings = NULL;
	return false;
}
