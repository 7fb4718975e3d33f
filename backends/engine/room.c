/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * room.c - objects that the kernel counts for a group of processes (native.h, objects_left): what it would
 * refuse is refused before, all of it. Others of the group may be faster: then the kernel's answer is told.
 */
#include "backends/engine/engine.h"

#include "backends/engine/args.h"

static escrow_status check(struct escrow_engine *e, const struct context *c, uint64_t need,
			   struct escrow_error *error)
{
	uint64_t left, limit;

	if (!need || !c->native || !e->ops->objects_left ||
	    !e->ops->objects_left(c->native, &left, &limit) || need <= left)
		return ESCROW_OK;
	return args_fail(error, ESCROW_E_QUOTA,
			 "objects of the control group on %s: %llu more than the %llu in use "
			 "exceed %llu (rdma.max, hca_object)",
			 c->info.name, (unsigned long long)need, (unsigned long long)(limit - left),
			 (unsigned long long)limit);
}

escrow_status en_room_for_region(struct escrow_engine *e, struct escrow_error *error)
{
	escrow_status st = ESCROW_OK;
	uint32_t i;

	for (i = 0; i < e->ncontexts && st == ESCROW_OK; i++)
		st = check(e, &e->contexts[i], 1, error);
	return st;
}

/* On each rail the queue pairs, and a registration of control memory. */
escrow_status en_room_for_peer(struct escrow_engine *e, struct escrow_error *error)
{
	escrow_status st = ESCROW_OK;
	uint32_t i, k;

	for (i = 0; i < e->ncontexts && st == ESCROW_OK; i++) {
		uint64_t need = 0;

		for (k = 0; k < e->nrails; k++)
			if (e->rails[k].context == i)
				need += e->peer_lanes + 1;
		st = check(e, &e->contexts[i], need, error);
	}
	return st;
}
