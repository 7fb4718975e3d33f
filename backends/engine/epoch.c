/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * epoch.c - the highest epochs there were with engines of one incarnation: none comes twice.
 *
 * Who connects to us may say that it is any incarnation.  So what came to us is kept by the mark of the
 * requests too, and makes nothing stale but what comes with the same one.
 */
#include "backends/engine/engine.h"

#include <string.h>

static struct epoch *epoch_find(struct escrow_engine *e, const uint8_t incarnation[16],
				uint32_t mark)
{
	uint32_t i;

	for (i = 0; i < e->nepochs; i++)
		if (e->epochs[i].mark == mark &&
		    memcmp(e->epochs[i].incarnation, incarnation, 16) == 0)
			return &e->epochs[i];
	return NULL;
}

static struct epoch *epoch_of(struct escrow_engine *e, const uint8_t incarnation[16], uint32_t mark)
{
	struct epoch *ep = epoch_find(e, incarnation, mark), *oldest = &e->epochs[0];
	uint32_t i;

	if (ep)
		return ep;
	for (i = 0; i < e->nepochs; i++)
		if (e->epochs[i].used < oldest->used)
			oldest = &e->epochs[i];
	*oldest = (struct epoch){.mark = mark, .used = ++e->epoch_clock};
	memcpy(oldest->incarnation, incarnation, 16);
	return oldest;
}

/* Nobody gets there by counting; who says so would leave the one it pretends to be no epoch to come. */
#define FAR_EPOCH (UINT64_C(1) << 31)

uint64_t en_epoch_last(struct escrow_engine *e, const uint8_t incarnation[16])
{
	uint64_t last = 0;
	uint32_t i;

	for (i = 0; i < e->nepochs; i++) {
		const struct epoch *ep = &e->epochs[i];

		if (memcmp(ep->incarnation, incarnation, 16) == 0 && ep->epoch > last &&
		    (!ep->mark || ep->epoch < FAR_EPOCH))
			last = ep->epoch;
	}
	return last;
}

uint64_t en_epoch_taken(struct escrow_engine *e, const uint8_t incarnation[16], uint32_t mark)
{
	const struct epoch *asked = epoch_find(e, incarnation, 0);
	const struct epoch *came = epoch_find(e, incarnation, mark);
	uint64_t taken = asked ? asked->taken : 0;

	return came && came->taken > taken ? came->taken : taken;
}

void en_epoch_take(struct escrow_engine *e, const struct peer *p, uint64_t epoch)
{
	struct epoch *ep = epoch_of(e, p->incarnation, p->mark);

	if (epoch > ep->taken)
		ep->taken = epoch;
}

void en_epoch_used(struct escrow_engine *e, const struct peer *p, uint64_t epoch)
{
	struct epoch *ep = epoch_of(e, p->incarnation, p->mark);

	ep->used = ++e->epoch_clock;
	if (epoch > ep->epoch)
		ep->epoch = epoch;
}
