/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets that arrive a second time, late: after their completion, after an invalidation, after the end
 * of their queue pair. They are judged when they arrive. Adversary only. Lock held. */
#ifndef SOFTVERBS_DELAY_H
#define SOFTVERBS_DELAY_H

#include "tests/softverbs/wire.h"

/* May keep a copy of a request that is sent now. */
void delay_offer(const struct packet *p);
/* Sends the copies that are due. Returns when to call again, or UINT64_MAX. */
uint64_t delay_time(uint64_t now);
/* The device ends: none is left. */
void delay_stop(void);
/* In the child of a fork(): none is left. */
void delay_forked(void);

#endif
