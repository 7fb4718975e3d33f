/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-OOM: host->alloc fails at the k-th try, for every k, in open and in each slot after it. */
#include <stdlib.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"

#define MOST_TRIES 3000u

/* Opens with try k failing; true if open never got as far as try k. */
static bool open_failing(struct conform *c, uint64_t k)
{
	struct host *host = guard_kept(sizeof(*host));
	struct escrow_engine *e;
	struct escrow_error error;
	escrow_status status;
	struct engine *en;
	bool beyond;

	host_new(host);
	atomic_store(&host->fail_at, k);
	status = engine_try_open(&c->subject, host, "oom", &e, &error);
	beyond = atomic_load(&host->tries) < k;
	if (status < 0) {
		expect(!beyond, "open fails with %s and no allocation failed",
		       verdict_status(status));
		expect(status == ESCROW_E_NO_MEMORY, "open gives %s when try %llu of alloc fails",
		       verdict_status(status), (unsigned long long)k);
		expect(!atomic_load(&host->blocks) && !atomic_load(&host->dma_blocks),
		       "open failed at try %llu of alloc and keeps blocks", (unsigned long long)k);
		return false;
	}
	expect(beyond, "open succeeds though try %llu of alloc failed", (unsigned long long)k);
	en = engine_adopt(&c->subject, host, "oom", e);
	engine_close(en);
	return beyond;
}

static void open_without_memory(struct conform *c)
{
	struct ambient after;
	uint64_t k;

	for (k = 1; k < MOST_TRIES; k++)
		if (open_failing(c, k))
			break;
	expect(k < MOST_TRIES, "open allocates more than %u times", MOST_TRIES);
	verdict_fact("allocations of open", "%llu", (unsigned long long)k - 1);
	ambient_take(&after);
	ambient_compare(&c->before, &after, "after opens that failed");
}

/* One slot of the control plane; E_NO_MEMORY is allowed, anything half done is not. */
static escrow_status step(struct pair *p, unsigned int which, struct memory *m)
{
	struct escrow_region_args region = {
		.size = sizeof(region),
		.addr = m->buf.at,
		.length = m->buf.bytes,
		.memory_kind = ESCROW_MEMORY_HOST,
		.dmabuf_fd = -1,
	};
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "guest"};
	uint8_t buf[INVITATION_ROOM];
	uint64_t out, len = sizeof(buf);
	escrow_status status;

	if (which == 1)
		return engine_invite(p->a, &invite, buf, &len);
	status = engine_region(p->a, &region, &out);
	if (status == ESCROW_OK) {
		expect_status(p->a->o->deregister_memory(p->a->e, out, 0), ESCROW_IN_PROGRESS);
		engine_wait(p->a, ESCROW_EV_REGION_RELEASED, out, NULL);
	}
	return status;
}

static void slots_without_memory(struct conform *c)
{
	struct memory m;
	struct pair p;
	unsigned int which;
	escrow_status status;
	uint64_t k, first;

	pair_open(&p, &c->subject);
	buffer_new(&m.buf, 8192);
	for (which = 0; which < 2; which++)
		for (k = 1; k < 100; k++) {
			first = atomic_load(&p.a->host->tries);
			atomic_store(&p.a->host->fail_at, first + k);
			status = step(&p, which, &m);
			atomic_store(&p.a->host->fail_at, 0);
			expect(status >= 0 || status == ESCROW_E_NO_MEMORY,
			       "slot %u gives %s when alloc fails", which, verdict_status(status));
			if (atomic_load(&p.a->host->tries) < first + k)
				break;
		}
	expect_status(step(&p, 0, &m), ESCROW_OK);
	pair_close(&p);
	expect_as("N2", !atomic_load(&p.a->host->blocks), "blocks are left after release");
}

static const struct conform_case cases[] = {
	{"ESC-OOM-001", "core", "N3 E3", 0, 0, "open with every allocation failing once",
	 open_without_memory},
	{"ESC-OOM-002", "core", "N3", 0, 0, "slots with every allocation failing once",
	 slots_without_memory},
};

CONFORM_AREA(area_oom, cases);
