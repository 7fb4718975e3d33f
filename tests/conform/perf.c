/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-PERF: how long calls take.  Only ever a warning: machines are loaded. */
#include <time.h>

#include "tests/conform/case.h"
#include "tests/conform/reach.h"

#define NB_MS 10.0

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void judge(const char *slot, double start)
{
	double ms = now_ms() - start;

	if (ms > NB_MS)
		verdict_warn("%s took %.1f ms", slot, ms);
}

static void bounded_calls(struct conform *c)
{
	struct escrow_sge sge;
	struct escrow_op op;
	struct reach r;
	struct engine *a;
	double start;
	uint64_t id;
	int i;

	reach_open(&r, c);
	a = r.pair.a;
	sge = (struct escrow_sge){r.local.region, 0, 8192};
	op = pair_op(ESCROW_READ, &r.used, 0, &sge);
	for (i = 0; i < 20; i++) {
		start = now_ms();
		a->o->transfer(a->e, &op, 1, sizeof(op), 0, &id);
		judge("transfer", start);
		start = now_ms();
		engine_pump();
		judge("poll of two engines", start);
		engine_wait(a, ESCROW_EV_OP_DONE, 0, NULL);
	}
	start = now_ms();
	a->o->revoke(a->e, r.lent.grant, 0);
	judge("revoke", start);
	start = now_ms();
	a->o->disconnect(a->e, r.pair.a_peer, 0);
	judge("disconnect", start);
	start = now_ms();
	a->o->close(a->e, 0, ESCROW_CLOSE_ABORT);
	judge("close", start);
	reach_close(&r);
}

static const struct conform_case cases[] = {
	{"ESC-PERF-001", "perf", "B1 B2", ESCROW_CAP_READ, 0, "calls of class NB are short",
	 bounded_calls},
};

CONFORM_AREA(area_perf, cases);
