/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the whole process may have (escrow/budget.h): the host is asked for each connection, once the
 * limits of this ledger allow it.  It is told that one has gone when the charges of it return, and so
 * never of one that is quarantined.
 */
#include "backends/ledger/ledger-int.h"

#include <escrow/budget.h>

#define KINDS_OF_A_CONNECTION 3u

static void amounts_of(uint32_t sq_depth, uint32_t rq_depth, struct escrow_amount *out)
{
	out[0] = (struct escrow_amount){.kind = ESCROW_CHARGE_CONNECTIONS, .amount = 1};
	out[1] = (struct escrow_amount){.kind = ESCROW_CHARGE_SQ_SLOTS, .amount = sq_depth};
	out[2] = (struct escrow_amount){.kind = ESCROW_CHARGE_CQ_SLOTS,
					.amount = (uint64_t)sq_depth + rq_depth};
}

const struct escrow_budget *lg_budget_of(const struct escrow_host *host)
{
	const struct escrow_budget *b;

	if (!host->get_extension)
		return NULL;
	b = host->get_extension(host->ctx, ESCROW_BUDGET_ID);
	return b && b->size >= sizeof(*b) && b->take && b->give ? b : NULL;
}

escrow_status lg_budget_take(struct ledger *l, uint32_t sq_depth, uint32_t rq_depth,
			     struct escrow_error *error)
{
	struct escrow_amount amounts[KINDS_OF_A_CONNECTION];

	if (!l->budget)
		return ESCROW_OK;
	amounts_of(sq_depth, rq_depth, amounts);
	return l->budget->take(l->host.ctx, amounts, KINDS_OF_A_CONNECTION, sizeof(amounts[0]),
			       error);
}

void lg_budget_give(struct ledger *l, uint32_t sq_depth, uint32_t rq_depth)
{
	struct escrow_amount amounts[KINDS_OF_A_CONNECTION];

	if (!l->budget)
		return;
	amounts_of(sq_depth, rq_depth, amounts);
	l->budget->give(l->host.ctx, amounts, KINDS_OF_A_CONNECTION, sizeof(amounts[0]));
}

void lg_budget_give_all(struct ledger *l)
{
	for (uint32_t i = 0; i < l->config.max_connections; i++) {
		if (l->owners[l->base[ESCROW_OWNER_CONNECTION] + i].kind)
			lg_budget_give(l, l->conns[i].sq_depth, l->conns[i].rq_depth);
	}
}
