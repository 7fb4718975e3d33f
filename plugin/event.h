/* SPDX-License-Identifier: BSD-2-Clause */
/* The backend's handles of peers, found again: a passive peer's events carry no token of ours. */
#ifndef EVENT_H
#define EVENT_H

#include "plugin/host.h"

/* All under the host engine's lock.  0: not known. */
uint64_t event_peer_of(const struct host_generation *generation, uint64_t handle);
void event_peer_is(struct host_generation *generation, uint64_t handle, uint64_t peer);

#endif
