/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ESC-SWAP: one backend takes over from another in a living process, by the slots alone: the same
 * memory is in both, the old one is drained and closed, and no op is lost.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/fault.h"
#include "tests/conform/pair.h"

#define BOTH (ESCROW_MAY_READ | ESCROW_MAY_WRITE)
#define RW (ESCROW_CAP_READ | ESCROW_CAP_WRITE)
#define BYTES 65536u

/* One generation: a pair whose memory is the process's, not its own. */
struct generation {
	struct pair p;
	uint64_t local; /* a's region over the local memory */
	struct share s; /* b's over the far memory */
};

static uint64_t register_shared(struct engine *en, struct buffer *b)
{
	struct escrow_region_args args = {
		.size = sizeof(args),
		.user = TOKEN(0x1e9),
		.addr = b->at,
		.length = b->bytes,
		.memory_kind = ESCROW_MEMORY_HOST,
		.dmabuf_fd = -1,
	};
	uint64_t region;

	expect_as("SW1", engine_region(en, &args, &region) == ESCROW_OK,
		  "memory that another engine holds cannot be registered: %s", engine_error.text);
	return region;
}

static void generation_open(struct generation *g, const struct subject *s, struct buffer *local,
			    struct buffer *far)
{
	uint8_t bytes[GRANT_ROOM];
	uint64_t len;

	memset(g, 0, sizeof(*g));
	pair_open(&g->p, s);
	g->local = register_shared(g->p.a, local);
	g->s.owner = g->p.b;
	g->s.user = g->p.a;
	g->s.mem.buf = *far;
	g->s.mem.region = register_shared(g->p.b, far);
	g->s.grant = pair_grant(g->p.b, g->p.b_peer, &g->s.mem, BOTH, bytes, &len);
	g->s.remote = pair_import(g->p.a, g->p.a_peer, bytes, len);
}

/* Ops that are under way; every one must end well. */
static uint32_t start_some(struct generation *g, uint32_t n, uint64_t *ids)
{
	struct escrow_sge sge = {.region = g->local, .length = BYTES};
	struct escrow_op op = pair_op(ESCROW_READ, &g->s, 0, &sge);
	uint32_t i;

	for (i = 0; i < n; i++)
		if (engine_transfer(g->p.a, &op, 1, &ids[i]) != 1)
			break;
	return i;
}

static void finish_all(struct generation *g, uint32_t n, const uint64_t *ids)
{
	struct escrow_event ev;
	uint32_t i;

	for (i = 0; i < n; i++) {
		engine_wait(g->p.a, ESCROW_EV_OP_DONE, ids[i], &ev);
		expect_as("SW1", ev.status == ESCROW_OK, "an op of a swap ends with %s",
			  verdict_status(ev.status));
	}
}

/* Swaps `from` away for `to`, with ops under way in both. */
static void swap_once(const struct subject *from, const struct subject *to)
{
	struct generation old, new;
	struct buffer local, far;
	struct escrow_event ev;
	uint64_t ids[8], more[8];
	uint32_t n, m;

	buffer_new(&local, BYTES);
	buffer_new(&far, BYTES);
	buffer_fill(&far, 0, BYTES, 8);
	generation_open(&old, from, &local, &far);
	n = start_some(&old, 8, ids);
	generation_open(&new, to, &local, &far);
	expect_status_as("DR1", old.p.a->o->quiesce(old.p.a->e, 0), ESCROW_OK);
	expect_status_as("DR2", old.p.a->o->drain(old.p.a->e, 0, 0, 0), ESCROW_IN_PROGRESS);
	m = start_some(&new, 8, more);
	engine_wait(old.p.a, ESCROW_EV_DRAINED, 0, &ev);
	expect_as("DR2", ev.status == ESCROW_OK, "DRAINED with %s", verdict_status(ev.status));
	finish_all(&old, n, ids);
	engine_close(old.p.a);
	engine_close(old.p.b);
	finish_all(&new, m, more);
	expect_as("OP2", buffer_is(&local, 0, BYTES, 8), "the bytes did not come");
	memset(local.at, BUFFER_CANARY, BYTES);
	n = start_some(&new, 8, ids);
	finish_all(&new, n, ids);
	expect(buffer_is(&local, 0, BYTES, 8), "the new backend does not reach the memory that the "
					       "old one gave up");
	engine_close(new.p.a);
	engine_close(new.p.b);
}

static void load_other(struct conform *c, struct subject *other)
{
	subject_load(other, c->other_path);
	subject_negotiate(other);
}

static void a_to_b(struct conform *c)
{
	static struct subject other;

	load_other(c, &other);
	swap_once(&c->subject, &other);
}

static void b_to_a(struct conform *c)
{
	static struct subject other;

	load_other(c, &other);
	swap_once(&other, &c->subject);
}

static void a_to_a(struct conform *c)
{
	int i;

	for (i = 0; i < 3; i++)
		swap_once(&c->subject, &c->subject);
}

/* The old one cannot be ended; the new one works, and the old one's memory stays withheld. */
static void from_quarantine(struct conform *c)
{
	struct generation old, new;
	struct buffer local, far, fresh;
	struct escrow_sge sge = {.length = BYTES};
	struct escrow_op op;
	uint64_t ids[1];

	buffer_new(&local, BYTES);
	buffer_new(&fresh, BYTES);
	buffer_new(&far, BYTES);
	buffer_fill(&far, 0, BYTES, 8);
	generation_open(&old, &c->subject, &local, &far);
	host_freeze(old.p.a->host);
	fault_plan(old.p.a, "cqe=hold;qp_reset=fail;destroy_qp=fail");
	start_some(&old, 1, ids);
	engine_pump();
	expect_as("Q1", engine_end(old.p.a, ESCROW_CLOSE_ABORT) == ESCROW_EV_QUARANTINED,
		  "CLOSED though the device has the bytes of an op");
	engine_release(old.p.a);
	engine_close(old.p.b);
	generation_open(&new, &c->subject, &fresh, &far);
	sge.region = new.local;
	op = pair_op(ESCROW_READ, &new.s, 0, &sge);
	pair_move(new.p.a, &op, BYTES);
	expect(buffer_is(&fresh, 0, BYTES, 8), "the bytes did not come");
	engine_close(new.p.a);
	engine_close(new.p.b);
}

static const struct conform_case cases[] = {
	{"ESC-SWAP-001", "swap", "SW1", RW, 0, "this backend gives way to the other", a_to_b},
	{"ESC-SWAP-002", "swap", "SW1", RW, 0, "the other gives way to this one", b_to_a},
	{"ESC-SWAP-003", "swap", "SW1", RW, 0, "this backend gives way to itself", a_to_a},
	{"ESC-SWAP-004", "swap", "SW2", RW, NEED_FAULTS, "a quarantined engine is left behind",
	 from_quarantine},
};

CONFORM_AREA(area_swap, cases);
