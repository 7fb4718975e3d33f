/* SPDX-License-Identifier: BSD-2-Clause */
/* footprint.c - what one of each costs in memory; counters "memory.*" and `escrow info --memory`. */
#include "backends/engine/engine.h"

/* With all that the ledger and the tables by slot keep of it.  What a device keeps is not seen. */
void en_footprint(const struct escrow_engine *e, struct footprint *out)
{
	uint64_t windows = e->conns_per_peer, contexts = e->ncontexts;
	struct ledger_footprint ledger;

	ledger_footprint(e->ledger, &ledger);
	out->slice_slot = ledger.slice;
	out->grant = contexts * ledger.grant + (windows - contexts) * ledger.window +
		     sizeof(struct grant) + windows * (sizeof(struct window) + sizeof(void *)) +
		     contexts * sizeof(uint64_t) + e->nexact * sizeof(struct region_part) +
		     (windows + contexts) * sizeof(void *) + sizeof(*e->grant_pool.next);
	out->connection = ledger.connection + sizeof(struct conn) + sizeof(void *) +
			  (sizeof(struct peer) + sizeof(struct wire_invitation)) / windows;
	out->messages = en_channel_bytes(e);
}
