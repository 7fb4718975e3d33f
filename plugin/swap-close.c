/* SPDX-License-Identifier: BSD-2-Clause */
/* Steps 9 and 10: what A lent is taken back with its receipts, and A goes, or is kept. */
#include "plugin/swap.h"

#define SWAP_CLOSE_REVOKE 0u
#define SWAP_CLOSE_REVOKING 1u
#define SWAP_CLOSE_RELEASING 2u
#define SWAP_CLOSE_GRACEFUL 3u
#define SWAP_CLOSE_ABORT 4u

/* How many grants and regions A still has. */
static uint32_t swap_grants_of(struct escrow_host_engine *host, const struct host_generation *g)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < host->grants.places; i++) {
		struct host_grant *grant = table_at(&host->grants, i);

		n += grant && atomic_load(&grant->backend[g->column]);
	}
	return n;
}

static uint32_t swap_regions_of(struct escrow_host_engine *host, const struct host_generation *g)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < host->regions.places; i++) {
		struct host_region *region = table_at(&host->regions, i);

		n += region && region_handle_in(region, g) != 0;
	}
	return n;
}

/* Q7: remote access leaves no completion here; only a revocation's receipt says that it is over. */
static void swap_revoke_all(struct escrow_swap *swap)
{
	struct escrow_host_engine *host = swap->host;
	struct host_generation *a = swap->a;

	for (uint32_t i = 0; i < host->remotes.places; i++) {
		struct host_remote *remote = table_at(&host->remotes, i);
		uint64_t handle = remote ? atomic_exchange(&remote->backend[a->column], 0) : 0;

		if (handle)
			a->ops->forget_grant(a->engine, handle);
	}
	for (uint32_t i = 0; i < host->grants.places; i++) {
		struct host_grant *grant = table_at(&host->grants, i);
		uint64_t handle = grant ? atomic_load(&grant->backend[a->column]) : 0;

		if (handle)
			a->ops->revoke(a->engine, handle, 0);
	}
}

static void swap_deregister_all(struct escrow_swap *swap)
{
	struct escrow_host_engine *host = swap->host;
	struct host_generation *a = swap->a;

	for (uint32_t i = 0; i < host->regions.places; i++) {
		struct host_region *region = table_at(&host->regions, i);
		uint64_t handle = region ? region_handle_in(region, a) : 0;

		/* E_BUSY: an op that did not drain has it; close waits for that */
		if (handle)
			a->ops->deregister_memory(a->engine, handle, 0);
	}
}

static void swap_close_as(struct escrow_swap *swap, uint32_t phase, uint32_t mode)
{
	swap->phase = phase;
	swap_set_deadline(swap, swap->args.close_ns);
	swap->a->ops->close(swap->a->engine, swap->deadline_ns, mode);
}

/* Moves on when the phase is done, or its time is. */
static void swap_close_phase(struct escrow_swap *swap)
{
	bool late = swap_now(swap) >= swap->deadline_ns;

	switch (swap->phase) {
	case SWAP_CLOSE_REVOKE:
		swap_set_deadline(swap, swap->args.close_ns);
		swap->phase = SWAP_CLOSE_REVOKING;
		swap_revoke_all(swap);
		break;
	case SWAP_CLOSE_REVOKING:
		if (swap_grants_of(swap->host, swap->a) && !late)
			return;
		swap->phase = SWAP_CLOSE_RELEASING;
		swap_deregister_all(swap);
		break;
	case SWAP_CLOSE_RELEASING:
		if (!swap_regions_of(swap->host, swap->a) || late)
			swap_close_as(swap, SWAP_CLOSE_GRACEFUL, ESCROW_CLOSE_GRACEFUL);
		break;
	case SWAP_CLOSE_GRACEFUL:
		if (late)
			swap_close_as(swap, SWAP_CLOSE_ABORT, ESCROW_CLOSE_ABORT);
		break;
	default:
		/* A backend that answers close with nothing is treated as one without proof. */
		if (late)
			atomic_store(&swap->a->ended, HOST_ENDED_QUARANTINED);
		break;
	}
}

escrow_status swap_close(struct escrow_swap *swap)
{
	uint32_t before;

	do {
		before = swap->phase;
		if (atomic_load(&swap->a->ended) != HOST_ENDED_NOT)
			break;
		swap_close_phase(swap);
	} while (swap->phase != before);
	if (atomic_load(&swap->a->ended) == HOST_ENDED_NOT)
		return ESCROW_IN_PROGRESS;
	if (atomic_load(&swap->a->ended) == HOST_ENDED_CLOSED)
		return ESCROW_OK;
	return error_set(&swap->error, ESCROW_E_UNQUIESCED,
			 "A is quarantined with %u regions of which it could not prove that it let "
			 "go",
			 swap_regions_of(swap->host, swap->a));
}

/* ---- 10 RETIRE --------------------------------------------------------------------------------- */
/* Takes the authority back that B gave over a region. */
static void swap_revoke_on(struct escrow_swap *swap, uint64_t region)
{
	struct escrow_host_engine *host = swap->host;
	struct host_generation *b = swap->b;

	for (uint32_t i = 0; i < host->grants.places; i++) {
		struct host_grant *grant = table_at(&host->grants, i);
		uint64_t handle = grant && grant->args.region == region
					  ? atomic_load(&grant->backend[b->column])
					  : 0;

		if (handle)
			b->ops->revoke(b->engine, handle, 0);
	}
}

/*
 * A late write of A's device would corrupt what B delivers: so B loses the region too.  Returns how
 * many B still has (ops or grants on them have not ended).
 */
static uint32_t swap_withhold(struct escrow_swap *swap)
{
	struct escrow_host_engine *host = swap->host;
	struct host_generation *a = swap->a, *b = swap->b;
	uint32_t left = 0;

	for (uint32_t i = 0; i < host->regions.places; i++) {
		struct host_region *region = table_at(&host->regions, i);
		uint64_t handle;

		if (!region || !region_handle_in(region, a))
			continue;
		g_mutex_lock(&host->lock);
		region_stuck(host, region, a);
		g_mutex_unlock(&host->lock);
		handle = region_handle_in(region, b);
		if (!handle)
			continue;
		if (swap->phase == 1)
			swap_revoke_on(swap, atomic_load(&region->head.handle));
		if (!atomic_exchange(&region->asked, 1) &&
		    b->ops->deregister_memory(b->engine, handle, 0) < 0)
			region_not_asked(host, region);
		left++;
	}
	return left;
}

escrow_status swap_retire(struct escrow_swap *swap)
{
	uint32_t left;

	if (atomic_load(&swap->a->ended) == HOST_ENDED_CLOSED) {
		host_clear_column(swap->host, swap->a->column);
		host_drop_generation(swap->host, swap->a);
		swap->a = NULL;
		return ESCROW_OK;
	}
	if (swap->phase == 0) {
		host_clear_column(swap->host, swap->a->column);
		swap_set_deadline(swap, swap->args.close_ns);
		swap->phase = 1;
	}
	left = swap_withhold(swap);
	swap->phase = 2;
	if (left && swap_now(swap) < swap->deadline_ns)
		return ESCROW_IN_PROGRESS;
	return error_set(&swap->error, ESCROW_E_UNQUIESCED,
			 "A is kept with %u regions withheld; %u of them are still in B",
			 swap_regions_of(swap->host, swap->a), left);
}
