/* SPDX-License-Identifier: BSD-2-Clause */
/* Scatter and gather lists, as the device sees them: each local key is looked up at the moment of each
 * access. Lock held. All return false if a key does not allow it. */
#ifndef SOFTVERBS_PAYLOAD_H
#define SOFTVERBS_PAYLOAD_H

#include "tests/softverbs/mr.h"

/* Copies 'size' bytes at 'offset' of the list to 'out'. */
bool payload_gather(struct pd *pd, const struct ibv_sge *sge, unsigned int count, uint64_t offset,
		    uint8_t *out, size_t size);
/* Copies 'size' bytes to 'offset' of the list. */
bool payload_scatter(struct pd *pd, const struct ibv_sge *sge, unsigned int count, uint64_t offset,
		     const uint8_t *from, size_t size);
/* Whether all of the list may be written; the adversary fouls it. */
bool payload_sink(struct pd *pd, const struct ibv_sge *sge, unsigned int count);

#endif
