/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exact.c - devices that hold an access only to the registration under a window, not to the window's
 * own range (native.h, exact_windows): there each grant of a part of a region gets a registration of
 * exactly its range, and its windows are bound to that.  It goes when the last window has gone.
 */
#include "backends/engine/engine.h"

/* The part stays when the last connection there has gone, and its window with it. */
static bool has_window(const struct escrow_engine *e, const struct grant *g, uint32_t ctx)
{
	uint32_t i;

	for (i = 0; i < g->nwindows; i++)
		if (g->windows[i] && g->windows[i]->context == &e->contexts[ctx])
			return true;
	return false;
}

static bool needed(const struct escrow_engine *e, const struct grant *g, uint32_t ctx)
{
	return g->parts[ctx] && !e->contexts[ctx].info.exact_windows &&
	       (g->addr != g->region->addr || g->length != g->region->length) &&
	       has_window(e, g, ctx);
}

struct native_region *en_grant_native(const struct grant *g, const struct context *c)
{
	uint32_t ctx = (uint32_t)(c - c->e->contexts);

	return ctx < c->e->nexact && g->exact[ctx].owner ? g->exact[ctx].native
							 : g->region->parts[ctx].native;
}

static escrow_status make(struct escrow_engine *e, struct grant *g, uint32_t ctx)
{
	struct context *c = &e->contexts[ctx];
	struct region_part *x = &g->exact[ctx];
	struct escrow_region_args args = {.size = sizeof(args),
					  .length = g->length,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	struct ledger_owner_args owner = {.kind = ESCROW_OWNER_CONTROL,
					  .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEREGISTER),
					  .parent = c->owner,
					  .addr = g->addr,
					  .length = g->length};
	escrow_status st;

	if (g->region->kind != ESCROW_MEMORY_HOST)
		return ESCROW_E_UNSUPPORTED;
	args.addr = (void *)(uintptr_t)g->addr;
	st = ledger_owner_add(e->ledger, &owner, &x->owner, NULL);
	if (st < 0)
		return st;
	/* The bytes are the host's: while this has no receipt the region does not come back. */
	ledger_pin(e->ledger, x->owner, g->region->parts[ctx].owner);
	/* And it is the grant's own: while it is stuck the grant is, and is charged. */
	ledger_pin(e->ledger, x->owner, g->parts[ctx]);
	engine_unlock(e);
	st = en_memlock_register(e, c, &args, &x->native);
	engine_lock(e);
	if (st < 0) {
		ledger_owner_undo(e->ledger, x->owner);
		x->owner = 0;
		return st;
	}
	ledger_owner_event(e->ledger, x->owner, LEDGER_E_READY);
	return ESCROW_OK;
}

bool en_exact_wanted(const struct escrow_engine *e, const struct grant *g)
{
	uint32_t i;

	for (i = 0; i < e->nexact; i++)
		if (needed(e, g, i) && !g->exact[i].owner)
			return true;
	return false;
}

bool en_exact_there(const struct escrow_engine *e, const struct grant *g)
{
	uint32_t i;

	for (i = 0; i < e->nexact; i++)
		if (g->exact[i].owner)
			return true;
	return false;
}

escrow_status en_exact_make(struct escrow_engine *e, struct grant *g)
{
	escrow_status st = ESCROW_OK;
	uint32_t i;

	for (i = 0; i < e->nexact && st == ESCROW_OK; i++)
		if (needed(e, g, i) && !g->exact[i].owner)
			st = make(e, g, i);
	return st;
}

/* A window of that context may still be bound on it; those of the others are proved to be gone. */
static bool under_stuck_window(struct escrow_engine *e, const struct grant *g, uint32_t ctx)
{
	return g->stuck && g->parts[ctx] &&
	       ledger_grant_state(e->ledger, g->parts[ctx]) == LEDGER_GRANT_STUCK;
}

void en_exact_end(struct escrow_engine *e, struct grant *g)
{
	uint32_t i;
	int rc;

	for (i = 0; i < e->nexact; i++) {
		struct region_part *x = &g->exact[i];
		struct native_region *native = x->native;
		uint64_t owner = x->owner;

		if (!owner)
			continue;
		x->owner = 0;
		x->native = NULL;
		if (en_owner_gone(e, owner))
			continue;
		ledger_owner_event(e->ledger, owner, LEDGER_E_STOP);
		en_sync_lanes(e);
		/* Then the call must not even be tried. */
		if (under_stuck_window(e, g, i) ||
		    ledger_step_begin(e->ledger, owner, ESCROW_STEP_DEREGISTER, NULL) < 0) {
			ledger_quarantine(e->ledger, owner, "under a stuck window");
			g->stuck = 1;
			continue;
		}
		rc = en_step(&e->contexts[i], ESCROW_STEP_DEREGISTER, native);
		if (ledger_step_end(e->ledger, owner, ESCROW_STEP_DEREGISTER, rc) < 0)
			g->stuck = 1;
		else
			en_memlock_gone(e, g->addr, g->length);
	}
}
