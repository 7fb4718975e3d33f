/* SPDX-License-Identifier: BSD-2-Clause */
/* Events in the host's words. */
#ifndef EVENT_H
#define EVENT_H

#include "plugin/host.h"

/* Puts what a backend told, but of an op, into the host's words; false: the host is not to see it. */
bool event_control(struct escrow_host_engine *host, struct host_generation *generation,
		   struct escrow_event *event);
/* What no backend may tell is logged, and kept from the host: false. */
bool event_is_odd(struct escrow_host_engine *host, const struct escrow_event *event,
		  const char *what);

/* [poll] When all generations have nothing to tell: 1 if the end of the host engine is put into *event. */
uint32_t event_tell_end(struct escrow_host_engine *host, struct escrow_event *event);

/*
 * The backend's handles of peers, found again: a passive peer's events carry no token of ours.
 * All under the host engine's lock.  0: not known.
 */
uint64_t event_peer_of(const struct host_generation *generation, uint64_t handle);
void event_peer_is(struct host_generation *generation, uint64_t handle, uint64_t peer);

#endif
