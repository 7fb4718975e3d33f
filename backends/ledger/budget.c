/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the whole process may have (escrow/budget.h): the host is asked for each connection, once the
 * limits of this ledger allow it.  It is told that one has gone when the charges of it return, and so
 * never of one that is quarantined; nor of one whose place is kept for the next (ledger.h).
 */
#include "backends/ledger/ledger-int.h"

#include <stddef.h>

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
	return b && b->size >= offsetof(struct escrow_budget, take_of) && b->take && b->give ? b
											     : NULL;
}

/* An older host has no limits by name. */
static bool by_name(const struct escrow_budget *b)
{
	return b->size >= sizeof(*b) && b->take_of && b->give_of;
}

escrow_status lg_budget_take(struct ledger *l, const char *name, uint32_t sq_depth,
			     uint32_t rq_depth, struct escrow_error *error)
{
	struct escrow_amount amounts[KINDS_OF_A_CONNECTION];

	if (!l->budget)
		return ESCROW_OK;
	amounts_of(sq_depth, rq_depth, amounts);
	if (by_name(l->budget))
		return l->budget->take_of(l->host.ctx, name, amounts, KINDS_OF_A_CONNECTION,
					  sizeof(amounts[0]), error);
	return l->budget->take(l->host.ctx, amounts, KINDS_OF_A_CONNECTION, sizeof(amounts[0]),
			       error);
}

static void give(struct ledger *l, const char *name, uint32_t sq_depth, uint32_t rq_depth)
{
	struct escrow_amount amounts[KINDS_OF_A_CONNECTION];

	if (!l->budget)
		return;
	amounts_of(sq_depth, rq_depth, amounts);
	if (by_name(l->budget))
		l->budget->give_of(l->host.ctx, name, amounts, KINDS_OF_A_CONNECTION,
				   sizeof(amounts[0]));
	else
		l->budget->give(l->host.ctx, amounts, KINDS_OF_A_CONNECTION, sizeof(amounts[0]));
}

void lg_budget_give(struct ledger *l, const struct ledger_conn *conn)
{
	uint32_t i = (uint32_t)(conn - l->conns);
	const struct ledger_owner *o = &l->owners[l->base[ESCROW_OWNER_CONNECTION] + i];

	give(l, l->names[o->name].name, conn->sq_depth, conn->rq_depth);
}

void lg_budget_give_all(struct ledger *l)
{
	for (uint32_t i = 0; i < l->config.max_connections; i++) {
		if (l->owners[l->base[ESCROW_OWNER_CONNECTION] + i].kind)
			lg_budget_give(l, &l->conns[i]);
	}
}

void ledger_place_keep(struct ledger *l, uint64_t connection, bool keep)
{
	uint32_t slot;

	lg_lock(l);
	slot = lg_owner_find(l, connection, ESCROW_OWNER_CONNECTION);
	if (slot != NONE)
		conn_of(l, slot)->place = keep;
	lg_unlock(l);
}

void ledger_place_give(struct ledger *l, const char *name, uint32_t sq_depth, uint32_t rq_depth)
{
	lg_lock(l);
	give(l, name, sq_depth, rq_depth);
	lg_unlock(l);
}
