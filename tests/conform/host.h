/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * host.h - the strict host: services that check every call a backend makes into them.
 *
 * ctx is no address; blocks carry a magic and a canary; the k-th allocation can be made to fail;
 * the clock is the case's; texts of the log are checked; and after the last engine was released
 * the table is poisoned, and a late call is a failure.
 */
#ifndef CONFORM_HOST_H
#define CONFORM_HOST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <escrow/backend.h>

struct host {
	uint64_t magic;
	const struct escrow_host *table; /* what open is given; at the end of a page */
	atomic_uint_fast64_t tries;      /* calls of alloc and dma_alloc */
	atomic_uint_fast64_t fail_at;    /* the try that gets NULL; 0 = none */
	atomic_uint_fast64_t blocks;     /* of alloc, not yet freed */
	atomic_uint_fast64_t dma_blocks;
	atomic_uint_fast64_t misuses; /* HOST_MISBEHAVES texts */
	atomic_uint_fast64_t logs;
	atomic_uint_fast64_t clock; /* what is added to the base, or the time itself when frozen */
	atomic_bool frozen;
	atomic_bool retired;       /* no call is legal any more */
	atomic_bool may_misuse;    /* the case breaks the contract on purpose */
	atomic_bool may_misbehave; /* the device does: fault cases */
};

void host_new(struct host *h);
void host_new_plain(struct host *h); /* the table in plain memory: for use in several threads */

/* What hosts made from now on let pass: HOST_MISBEHAVES (the case breaks the contract on purpose)
 * and BACKEND_MISBEHAVES (its device does, in fault cases). */
void host_allow(bool misuse, bool misbehave);

/* The clock: runs with real time from a base far from CLOCK_MONOTONIC, until it is frozen. */
uint64_t host_now(struct host *h);
void host_advance(struct host *h, uint64_t ns);
void host_freeze(struct host *h);

/* Poisons the table; from here on every call into the host is a failure (clause N4). */
void host_retire(struct host *h);

#endif
