/* SPDX-License-Identifier: BSD-2-Clause */
/* The choices of the nastiest legal device, drawn from the seed. Without SOFTVERBS_ADVERSARY each
 * function gives the plain answer. Lock held. */
#ifndef SOFTVERBS_ADVERSARY_H
#define SOFTVERBS_ADVERSARY_H

#include "tests/softverbs/base.h"

struct ibv_wc;

/* Starts again from a seed, instead of SOFTVERBS_SEED. */
void adversary_seed(uint64_t seed);
/* A number in [0, below). */
uint32_t adversary_pick(uint32_t below);
/* When a completion that is ready now may be seen. Never earlier than what was answered before. */
uint64_t adversary_cqe_time(uint64_t now);
/* Fills what is undefined in the completion of a failed request (ibv_poll_cq(3): all but wr_id,
 * status, qp_num and vendor_err). */
void adversary_junk(struct ibv_wc *wc);
/* How often a WRITE's source is read and thrown away before the transmission that counts. */
unsigned int adversary_rereads(void);
/* Bytes of one fragment on the wire. */
uint32_t adversary_fragment(void);
/* Lands bytes: in one go, or in pieces out of order with garbage first. */
void adversary_land(uint8_t *to, const uint8_t *from, size_t size, bool garbage);
/* Overwrites a READ's sink before the first byte arrives. */
void adversary_foul(uint8_t *to, size_t size);

#endif
