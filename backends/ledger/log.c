/* SPDX-License-Identifier: BSD-2-Clause */
#include "backends/ledger/ledger-int.h"

uint32_t ledger_log_read(struct ledger *l, int lane, uint64_t *cursor,
			 struct ledger_log_entry *entries, uint32_t max, uint64_t *lost_out)
{
	struct ledger_log *log;
	uint64_t oldest;
	uint32_t n = 0;

	if (lane >= (int)l->config.max_lanes)
		return 0;
	lg_lock(l);
	log = lane < 0 ? &l->log : &l->lanes[lane].log;
	*lost_out = 0;
	if (!log->entries)
		goto unlock;
	oldest = log->head > log->mask + 1 ? log->head - log->mask - 1 : 0;
	if (*cursor < oldest) {
		*lost_out = oldest - *cursor;
		*cursor = oldest;
	}
	while (*cursor < log->head && n < max)
		entries[n++] = log->entries[(*cursor)++ & log->mask];
unlock:
	lg_unlock(l);
	return n;
}
