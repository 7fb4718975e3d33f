/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ESC-FUZZ: random calls beside a model of the state machine, and random bytes.  The seed is the
 * run's; `escrow conform --reproduce SEED` runs the same sequence under a debugger.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"

#define BOTH (ESCROW_MAY_READ | ESCROW_MAY_WRITE)
#define RW (ESCROW_CAP_READ | ESCROW_CAP_WRITE)
#define STEPS 400u
#define MOST 12u

/* The model: what engine a must have. */
struct model {
	struct pair p;
	uint64_t random;
	uint32_t state; /* OPEN, QUIESCED or DRAINED */
	struct memory mem[MOST];
	uint32_t grants_on[MOST]; /* of each region */
	bool live[MOST];
	uint64_t grant[MOST];
	uint32_t grant_region[MOST];
	bool granted[MOST];
	struct share s; /* b's range that a uses */
	uint64_t op[256];
	uint32_t nops;
};

static uint32_t dice(struct model *m, uint32_t sides)
{
	m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(m->random >> 33) % sides;
}

static bool is_open(const struct model *m)
{
	return m->state == ESCROW_STATE_OPEN;
}

/* What a slot must say that is legal in OPEN only. */
#define expect_open(m, call, good)                                                                 \
	do {                                                                                       \
		escrow_status got = (call);                                                        \
		escrow_status want = is_open(m) ? (good) : ESCROW_E_STATE;                         \
		expect(got == want, "%s in state %u gives %s, not %s", #call, (m)->state,          \
		       verdict_status(got), verdict_status(want));                                 \
	} while (0)

static void fuzz_register(struct model *m)
{
	uint32_t i = dice(m, MOST);
	struct escrow_region_args args = {.size = sizeof(args),
					  .user = TOKEN(0x1e9),
					  .length = 1 + dice(m, 5000),
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};

	if (m->live[i])
		return;
	buffer_new(&m->mem[i].buf, args.length);
	args.addr = m->mem[i].buf.at;
	expect_open(m, engine_region(m->p.a, &args, &m->mem[i].region), ESCROW_OK);
	m->live[i] = is_open(m);
	m->grants_on[i] = 0;
}

static void fuzz_deregister(struct model *m)
{
	uint32_t i = dice(m, MOST);

	if (!m->live[i])
		return;
	if (m->grants_on[i]) {
		expect_status_as("RE5",
				 m->p.a->o->deregister_memory(m->p.a->e, m->mem[i].region, 0),
				 ESCROW_E_BUSY);
		return;
	}
	memory_deregister(m->p.a, &m->mem[i]);
	m->live[i] = false;
}

static void fuzz_grant(struct model *m)
{
	uint32_t g = dice(m, MOST), i = dice(m, MOST);
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = 1 + dice(m, 3),
					 .user = TOKEN(2),
					 .peer = m->p.a_peer};

	if (m->granted[g] || !m->live[i])
		return;
	args.region = m->mem[i].region;
	args.offset = dice(m, (uint32_t)m->mem[i].buf.bytes);
	args.length = m->mem[i].buf.bytes - args.offset;
	expect_open(m, engine_grant(m->p.a, &args, &m->grant[g]), ESCROW_IN_PROGRESS);
	if (!is_open(m))
		return;
	m->granted[g] = true;
	m->grant_region[g] = i;
	m->grants_on[i]++;
	if (dice(m, 2))
		engine_wait(m->p.a, ESCROW_EV_GRANT_READY, m->grant[g], NULL);
}

static void fuzz_revoke(struct model *m)
{
	uint32_t g = dice(m, MOST);

	if (!m->granted[g])
		return;
	expect_status_as("GR5", m->p.a->o->revoke(m->p.a->e, m->grant[g], 0), ESCROW_IN_PROGRESS);
	engine_wait(m->p.a, ESCROW_EV_GRANT_REVOKED, m->grant[g], NULL);
	m->granted[g] = false;
	m->grants_on[m->grant_region[g]]--;
}

static void fuzz_transfer(struct model *m, const struct memory *local)
{
	uint32_t n = dice(m, 4097), from = dice(m, 4097 - n + 1);
	struct escrow_sge sge = {local->region, from, n};
	struct escrow_op op =
		pair_op(dice(m, 2) ? ESCROW_READ : ESCROW_WRITE, &m->s, dice(m, 4097 - n), &sge);
	int32_t got;

	if (m->nops == 256)
		return;
	if (from + n > 4096 || op.remote_offset + n > 4096) {
		got = engine_transfer(m->p.a, &op, 1, &m->op[m->nops]);
		expect(got == (is_open(m) ? ESCROW_E_INVALID : ESCROW_E_STATE),
		       "an op beyond its range in state %u gives %s", m->state,
		       verdict_status(got));
		return;
	}
	got = engine_transfer(m->p.a, &op, 1, &m->op[m->nops]);
	if (!is_open(m))
		expect(got == ESCROW_E_STATE, "transfer in state %u gives %s", m->state,
		       verdict_status(got));
	else
		expect(got == 1 || got == ESCROW_E_AGAIN, "transfer gives %s", verdict_status(got));
	m->nops += got == 1;
}

static void fuzz_finish(struct model *m)
{
	struct escrow_event ev;

	while (m->nops) {
		engine_wait(m->p.a, ESCROW_EV_OP_DONE, m->op[--m->nops], &ev);
		expect_as("OP2", ev.status == ESCROW_OK || ev.status == ESCROW_E_CANCELED,
			  "an op ends with %s", verdict_status(ev.status));
	}
	expect_as("V2", !engine_pending(m->p.a, ESCROW_EV_OP_DONE, 0), "an op ended twice");
}

static void fuzz_state(struct model *m)
{
	const struct escrow_ops *o = m->p.a->o;

	switch (dice(m, 4)) {
	case 0:
		expect_status_as("DR1", o->quiesce(m->p.a->e, 0),
				 m->state == ESCROW_STATE_DRAINED ? ESCROW_E_STATE : ESCROW_OK);
		if (m->state == ESCROW_STATE_OPEN)
			m->state = ESCROW_STATE_QUIESCED;
		break;
	case 1:
		expect_status_as("DR2", o->drain(m->p.a->e, 0, 0, 0), ESCROW_IN_PROGRESS);
		engine_wait(m->p.a, ESCROW_EV_DRAINED, 0, NULL);
		m->state = ESCROW_STATE_DRAINED;
		break;
	default:
		expect_status_as("DR3", o->resume(m->p.a->e, 0), ESCROW_OK);
		m->state = ESCROW_STATE_OPEN;
	}
	expect_as("G2", engine_state(m->p.a) == m->state, "the state is %u, the model's %u",
		  engine_state(m->p.a), m->state);
}

static void fuzz_cancel(struct model *m)
{
	uint64_t op;
	bool over;

	if (!m->nops)
		return;
	op = m->op[dice(m, m->nops)];
	over = engine_pending(m->p.a, ESCROW_EV_OP_DONE, op);
	expect_as("CA1", (m->p.a->o->cancel(m->p.a->e, op, 0) == ESCROW_E_INVALID) == over,
		  "cancel of an op whose OP_DONE was %spolled", over ? "" : "not ");
}

static void fuzz_step(struct model *m, const struct memory *local)
{
	switch (dice(m, 16)) {
	case 0:
	case 1:
		return fuzz_register(m);
	case 2:
		return fuzz_deregister(m);
	case 3:
	case 4:
		return fuzz_grant(m);
	case 5:
		return fuzz_revoke(m);
	case 6:
		return fuzz_state(m);
	case 7:
		engine_pump();
		return;
	case 8:
		return fuzz_finish(m);
	default:
		return fuzz_transfer(m, local);
	}
}

static void random_calls(struct conform *c)
{
	static struct model m;
	struct memory local;
	uint32_t i;

	m.random = c->seed;
	m.state = ESCROW_STATE_OPEN;
	trail("seed %llu", (unsigned long long)c->seed);
	pair_open(&m.p, &c->subject);
	pair_share(&m.p, false, 4096, BOTH, &m.s);
	memory_register(m.p.a, &local, 4096);
	for (i = 0; i < STEPS; i++) {
		fuzz_step(&m, &local);
		if (dice(&m, 40) == 0)
			fuzz_cancel(&m);
	}
	fuzz_finish(&m);
	expect_as("CL2", engine_end(m.p.a, ESCROW_CLOSE_GRACEFUL) == ESCROW_EV_CLOSED,
		  "close without a fault ends in quarantine");
	for (i = 0; i < MOST; i++) {
		if (m.granted[i])
			expect_as("CL4",
				  engine_take(m.p.a, ESCROW_EV_GRANT_REVOKED, m.grant[i], NULL),
				  "CLOSED without GRANT_REVOKED");
		if (m.live[i])
			expect_as("CL4",
				  engine_take(m.p.a, ESCROW_EV_REGION_RELEASED, m.mem[i].region,
					      NULL),
				  "CLOSED without REGION_RELEASED");
	}
	engine_release(m.p.a);
	engine_close(m.p.b);
}

/* Several bytes of a good grant and a good invitation changed at once; and pure noise. */
static void random_bytes(struct conform *c)
{
	uint8_t good[GRANT_ROOM], bad[GRANT_ROOM];
	static struct model m;
	struct memory mem;
	uint64_t len, n, remote;
	escrow_status status;
	uint32_t i, k;

	m.random = c->seed;
	pair_open(&m.p, &c->subject);
	memory_register(m.p.b, &mem, 4096);
	pair_grant(m.p.b, m.p.b_peer, &mem, ESCROW_MAY_READ, good, &len);
	for (i = 0; i < 1500; i++) {
		memcpy(bad, good, len);
		n = dice(&m, 4) ? len : dice(&m, (uint32_t)len + 40);
		for (k = 1 + dice(&m, 6); k; k--)
			bad[dice(&m, (uint32_t)len)] = (uint8_t)dice(&m, 256);
		if (n == len && !memcmp(good, bad, len))
			continue;
		status = engine_import(m.p.a, m.p.a_peer, bad, n, 0, &remote);
		if (status == ESCROW_IN_PROGRESS) {
			struct escrow_event ev;

			engine_wait(m.p.a, ESCROW_EV_REMOTE_READY, remote, &ev);
			status = ev.status;
		}
		expect_as("GR6", status < 0, "noise of %llu bytes is imported",
			  (unsigned long long)n);
	}
	pair_import(m.p.a, m.p.a_peer, good, len);
	pair_close(&m.p);
}

static const struct conform_case cases[] = {
	{"ESC-FUZZ-001", "data", "FZ1 V2", RW, NEED_MISUSE, "random calls against a model",
	 random_calls},
	{"ESC-FUZZ-002", "data", "GR6 IN6", 0, NEED_MISUSE, "random bytes for grants",
	 random_bytes},
};

CONFORM_AREA(area_fuzz, cases);
