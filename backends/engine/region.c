/* SPDX-License-Identifier: BSD-2-Clause */
/* region.c - registrations: one native region in every context, and no remote rights in any. */
#include "backends/engine/engine.h"

#include <errno.h>
#include <string.h>

static escrow_status check(struct escrow_engine *e, const struct escrow_region_args *a,
			   struct escrow_error *error)
{
	if (a->memory_kind != ESCROW_MEMORY_HOST && a->memory_kind != ESCROW_MEMORY_DMABUF)
		return args_fail(error, ESCROW_E_INVALID,
				 "memory_kind is %u; 1 (host) and 2 (dmabuf) are allowed",
				 a->memory_kind);
	if (!(e->limits.memory_kinds >> a->memory_kind & 1))
		return args_fail(error, ESCROW_E_UNSUPPORTED, "memory_kind %u is not offered",
				 a->memory_kind);
	if (a->device)
		return args_fail(error, ESCROW_E_INVALID, "device is %u; it must be 0", a->device);
	if (a->memory_kind == ESCROW_MEMORY_HOST && a->dmabuf_fd != -1)
		return args_fail(error, ESCROW_E_INVALID,
				 "dmabuf_fd is %lld; it must be -1 for host memory",
				 (long long)a->dmabuf_fd);
	if (a->memory_kind == ESCROW_MEMORY_HOST && !a->addr)
		return args_fail(error, ESCROW_E_INVALID, "addr is NULL");
	if (a->length == 0)
		return args_fail(error, ESCROW_E_INVALID, "length is 0; at least 1 is allowed");
	if ((uint64_t)(uintptr_t)a->addr + a->length < a->length)
		return args_fail(error, ESCROW_E_INVALID, "addr %p + length %llu wraps", a->addr,
				 (unsigned long long)a->length);
	if (a->length > e->limits.max_region_bytes)
		return args_fail(error, ESCROW_E_LIMIT, "length is %llu; at most %llu is allowed",
				 (unsigned long long)a->length,
				 (unsigned long long)e->limits.max_region_bytes);
	return ESCROW_OK;
}

/*
 * All charges come before the first native call: a limit of ours is met before one of the kernel, and
 * nothing native has to be undone for it.
 */
static escrow_status charge_parts(struct escrow_engine *e, struct region *r,
				  const struct escrow_region_args *a, struct escrow_error *error)
{
	struct escrow_error detail = {.size = sizeof(detail)};
	struct ledger_owner_args owner = {
		.kind = ESCROW_OWNER_REGION,
		.steps = LEDGER_STEP_BIT(ESCROW_STEP_DEREGISTER),
		.addr = (uint64_t)(uintptr_t)a->addr,
		.length = a->length,
	};
	escrow_status st = ESCROW_OK;
	uint32_t i;

	for (i = 0; i < e->ncontexts && st == ESCROW_OK; i++) {
		owner.parent = e->contexts[i].owner;
		owner.place = engine_place(r - e->regions, i, e->config.max_regions);
		st = ledger_owner_add(e->ledger, &owner, &r->parts[i].owner, &detail);
	}
	if (st == ESCROW_OK)
		return st;
	for (i--; i-- > 0;) {
		ledger_owner_undo(e->ledger, r->parts[i].owner);
		r->parts[i].owner = 0;
	}
	r->parts[i + 1].owner = 0;
	return args_pass(error, st, &detail);
}

static escrow_status register_part(struct escrow_engine *e, struct region *r, uint32_t i,
				   const struct escrow_region_args *a, struct escrow_error *error)
{
	struct escrow_error detail = {.size = sizeof(detail)};
	struct region_part *part = &r->parts[i];
	escrow_status st;
	int rc;

	rc = en_step_register(e, &e->contexts[i], a, &part->native, &detail);
	if (rc) {
		ledger_owner_undo(e->ledger, part->owner);
		st = detail.status < 0 ? detail.status : en_status_of(rc);
		part->owner = 0;
		part->native = NULL;
		return args_fail_errno(error, st, rc, "registering %llu bytes on %s: %s",
				       (unsigned long long)a->length, e->contexts[i].info.name,
				       detail.status < 0 ? detail.text : args_errno(rc));
	}
	part->key = e->ops->region_key(part->native);
	/* Its handle there is the host's: of no other part it can be lent by that. */
	if (i == 0)
		ledger_region_key(e->ledger, part->owner, part->key);
	ledger_owner_event(e->ledger, part->owner, LEDGER_E_READY);
	return ESCROW_OK;
}

static struct region *take_slot(struct escrow_engine *e)
{
	uint32_t i, k;

	for (i = 0; i < e->config.max_regions; i++) {
		struct region *r = &e->regions[i];

		/* One whose last event was polled is free, also before the runner has seen it. */
		if (r->state != REGION_FREE &&
		    (r->state != REGION_ENDED || r->stuck || !atomic_load(&r->polled)))
			continue;
		r->state = REGION_ENDED; /* ours, and nobody finds it */
		r->grants = r->stuck = 0;
		atomic_store(&r->polled, 0);
		for (k = 0; k < e->ncontexts; k++) {
			/* Not the distance: who chooses a connection looks at it as it is. */
			r->parts[k].owner = 0;
			r->parts[k].native = NULL;
			r->parts[k].key = 0;
			r->parts[k].done = 0;
		}
		return r;
	}
	return NULL;
}

escrow_status engine_register_memory(struct escrow_engine *e, const struct escrow_region_args *from,
				     uint64_t *out, struct escrow_error *error)
{
	struct escrow_region_args a;
	escrow_status st = ESCROW_OK;
	struct region *r;
	uint32_t i;

	if (!engine_here(e) || !state_allows(SLOT_REGISTER_MEMORY, engine_state(e)))
		return args_fail(error, ESCROW_E_STATE, "the engine is not OPEN");
	if (!out)
		return args_fail(error, ESCROW_E_INVALID, "region is NULL");
	st = args_read(&args_region, from, &a, error);
	if (st < 0 || (st = check(e, &a, error)) < 0 ||
	    (st = en_memlock_region(e, &a, error)) < 0 || (st = en_room_for_region(e, error)) < 0)
		return st;
	engine_lock(e);
	st = en_quota_check(e, ESCROW_CHARGE_REGIONS, NULL, 1, error);
	if (st == ESCROW_OK)
		st = en_quota_check(e, ESCROW_CHARGE_BYTES, NULL, a.length, error);
	r = st == ESCROW_OK ? take_slot(e) : NULL;
	engine_unlock(e);
	if (st < 0)
		return st;
	if (!r)
		return args_fail(error, ESCROW_E_LIMIT, "all of max_regions %llu are in use",
				 (unsigned long long)e->config.max_regions);
	st = charge_parts(e, r, &a, error);
	for (i = 0; i < e->ncontexts && st == ESCROW_OK; i++)
		st = register_part(e, r, i, &a, error);
	if (st == ESCROW_OK)
		en_region_near(e, r, &a);
	engine_lock(e);
	r->user = a.user;
	r->addr = (uint64_t)(uintptr_t)a.addr;
	r->length = a.length;
	r->kind = a.memory_kind;
	if (st < 0) {
		/* What was made must go the way of every registration: by one call, with its answer. */
		for (; i < e->ncontexts; i++)
			if (r->parts[i].owner && !r->parts[i].native) {
				ledger_owner_undo(e->ledger, r->parts[i].owner);
				r->parts[i].owner = 0;
			}
		r->state = r->parts[0].owner ? REGION_LEAVING : REGION_FREE;
		r->silent = 1;
		en_work(e, &r->work);
	} else {
		r->silent = 0;
		r->state = REGION_LIVE;
		engine_set_slot(e, r->parts[0].owner, r);
		atomic_store(&r->handle, r->parts[0].owner);
		*out = r->parts[0].owner;
	}
	engine_unlock(e);
	return st;
}

/* Loans or grants stand on it. */
static bool in_use(struct escrow_engine *e, const struct region *r)
{
	struct ledger_owner_info info;
	uint32_t i;

	if (r->grants)
		return true;
	for (i = 0; i < e->ncontexts; i++)
		if (r->parts[i].owner &&
		    ledger_owner_info(e->ledger, r->parts[i].owner, &info) == ESCROW_OK &&
		    (info.loans || info.pins))
			return true;
	return false;
}

void en_region_leave(struct escrow_engine *e, struct region *r)
{
	uint32_t i;

	if (r->state != REGION_LIVE)
		return;
	r->state = REGION_LEAVING;
	for (i = 0; i < e->ncontexts; i++)
		if (r->parts[i].owner)
			ledger_owner_event(e->ledger, r->parts[i].owner, LEDGER_E_STOP);
	en_work(e, &r->work);
}

escrow_status engine_deregister_memory(struct escrow_engine *e, uint64_t handle, uint32_t flags)
{
	escrow_status st = ESCROW_IN_PROGRESS;
	struct region *r;

	if (!engine_here(e) || !state_allows(SLOT_DEREGISTER_MEMORY, engine_state(e)))
		return ESCROW_E_STATE;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	engine_lock(e);
	r = en_region_find(e, handle);
	if (!r || r->state != REGION_LIVE)
		st = ESCROW_E_INVALID;
	else if (in_use(e, r))
		st = ESCROW_E_BUSY;
	else
		en_region_leave(e, r);
	engine_unlock(e);
	return st;
}

/* Every lane passes once, so that none still lends from what was withdrawn. */
void en_sync_lanes(struct escrow_engine *e)
{
	uint32_t i;

	for (i = 0; i < e->nlanes; i++) {
		en_lane_lock(&e->lanes[i]);
		ledger_lane_sync(e->lanes[i].ledger);
		en_lane_unlock(&e->lanes[i]);
	}
}

static bool part_gone(struct escrow_engine *e, const struct region_part *part)
{
	return !part->owner || en_owner_gone(e, part->owner);
}

/* True when the part is gone or stuck. */
static bool end_part(struct escrow_engine *e, struct region *r, struct region_part *part)
{
	escrow_status st;
	int rc;

	if (part->done || part_gone(e, part))
		return true;
	st = ledger_step_begin(e->ledger, part->owner, ESCROW_STEP_DEREGISTER, NULL);
	if (st == ESCROW_E_BUSY && !e->closing_hard)
		return false;
	if (st == ESCROW_E_BUSY && en_owner_held(e, part->owner)) {
		/* By what is quarantined: tried again if that is settled after all. */
		r->stuck = 1;
		return true;
	}
	part->done = 1;
	if (st < 0) {
		/* Quarantined already, its context is fatal, or what stands on it never ends. */
		ledger_quarantine(e->ledger, part->owner, "in use");
		r->stuck = 1;
		return true;
	}
	rc = en_step(&e->contexts[part - r->parts], ESCROW_STEP_DEREGISTER, part->native);
	if (ledger_step_end(e->ledger, part->owner, ESCROW_STEP_DEREGISTER, rc) < 0)
		r->stuck = 1;
	return true;
}

static void region_polled(struct escrow_engine *e, struct event_node *node)
{
	struct region *r = node->object;

	/* Of one that is stuck that is not the last: a late receipt may tell another. */
	if (node->event.kind != ESCROW_EV_QUARANTINED)
		atomic_store(&r->handle, 0);
	atomic_store(&r->polled, 1);
}

static void told(struct escrow_engine *e, struct region *r)
{
	r->state = REGION_ENDED;
	/* One on it that is told as stuck has to be told of first, also where the proof is there by now. */
	r->stuck |= r->grants != 0;
	if (r->silent) {
		r->state = r->stuck ? REGION_ENDED : REGION_FREE;
		return;
	}
	if (r->stuck)
		e->withheld += r->length;
	r->ended.polled = region_polled;
	r->ended.object = r;
	event_send(e, &r->ended,
		   &(struct event_what){
			   .kind = r->stuck ? ESCROW_EV_QUARANTINED : ESCROW_EV_REGION_RELEASED,
			   .status = r->stuck ? ESCROW_E_UNQUIESCED : ESCROW_OK,
			   .user = r->user,
			   .object = atomic_load(&r->handle),
			   .bytes = r->stuck ? r->length : 0,
		   });
}

void en_region_late(struct escrow_engine *e, struct region *r)
{
	uint32_t i;

	if (!r->stuck || r->grants || r->state != REGION_ENDED ||
	    (!r->silent && !atomic_load(&r->polled)))
		return;
	for (i = 0; i < e->ncontexts; i++) {
		struct region_part *part = &r->parts[i];

		if (!part_gone(e, part) && (part->done || !end_part(e, r, part)))
			return;
		if (!part_gone(e, part))
			return;
	}
	r->stuck = 0;
	/* The host was told of none, and nothing of its memory was withheld. */
	if (r->silent) {
		r->state = REGION_FREE;
		return;
	}
	e->withheld -= r->length;
	atomic_store(&r->polled, 0);
	event_send(e, &r->ended,
		   &(struct event_what){.kind = ESCROW_EV_REGION_RELEASED,
					.user = r->user,
					.object = r->parts[0].owner});
}

/*
 * A transfer was lending when the region was withdrawn.  Nothing tells when such a loan comes back, so the runner looks
 * again; but of one that is stuck OP_RETURNED does, and it may never come.
 */
static void wait_for_loans(struct escrow_engine *e, struct region *r)
{
	uint32_t i;

	e->regions_wait = 1;
	for (i = 0; i < e->ncontexts; i++)
		if (r->parts[i].owner && en_owner_held(e, r->parts[i].owner))
			return;
	en_wake_at(e, e->now + EN_LOOK_AGAIN);
}

void en_regions_again(struct escrow_engine *e)
{
	uint32_t i;

	if (!e->regions_wait)
		return;
	e->regions_wait = 0;
	for (i = 0; i < e->config.max_regions; i++)
		if (e->regions[i].state == REGION_LEAVING)
			en_work(e, &e->regions[i].work);
}

void en_region_advance(struct escrow_engine *e, struct region *r)
{
	bool all = true;
	uint32_t i;

	if (r->state != REGION_LEAVING)
		return;
	if (r->silent)
		for (i = 0; i < e->ncontexts; i++)
			if (r->parts[i].owner)
				ledger_owner_event(e->ledger, r->parts[i].owner, LEDGER_E_STOP);
	en_sync_lanes(e);
	for (i = 0; i < e->ncontexts; i++)
		all = end_part(e, r, &r->parts[i]) && all;
	if (!all) {
		wait_for_loans(e, r);
		return;
	}
	told(e, r);
	if (engine_state(e) == ESCROW_STATE_CLOSING)
		en_work(e, &e->work);
}
