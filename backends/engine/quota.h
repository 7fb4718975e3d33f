/* SPDX-License-Identifier: BSD-2-Clause */
/* quota.h - what the host may have, and what limits it; included by engine.h, words as in parts.h. */
#ifndef ENGINE_QUOTA_H
#define ENGINE_QUOTA_H

/* The name that it is charged to. */
const char *en_quota_account(const struct peer *p);
/* locked. Used and stuck of a charge of regions or grants, as the host counts them. */
void en_quota_count(struct escrow_engine *e, struct escrow_charge *c);
/* locked. A grant was made; it has ended, and is not stuck or no longer. */
void en_quota_granted(struct escrow_engine *e, struct grant *g);
void en_quota_ended(struct escrow_engine *e, struct grant *g);
/*
 * locked. Is there room for so much more, of the engine and of the peer's name (NULL: of none)?
 * E_QUOTA, and the text says which limit.  The ledger's own limits are in device units, and so wider.
 */
escrow_status en_quota_limits(struct escrow_engine *e, uint32_t kind, const struct peer *p,
			      uint64_t amount, struct escrow_error *error);
/* The same; most kinds have no limit. */
static inline escrow_status en_quota_check(struct escrow_engine *e, uint32_t kind,
					   const struct peer *p, uint64_t amount,
					   struct escrow_error *error)
{
	if (!e->config.quota[kind] && !e->config.peer_quota[kind])
		return ESCROW_OK;
	return en_quota_limits(e, kind, p, amount, error);
}

#endif
