/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two host engines on the mock in one process, connected, each with a region granted to the other:
 * the mover, whose backend is swapped, and the still one.  One thread polls and controls both; ops
 * may come from others.
 */
#ifndef PAIR_H
#define PAIR_H

#include <stdatomic.h>

#include "tests/unit/hosting.h"

#define PAIR_BYTES 65536u

struct pair_side {
	struct escrow_host_engine *host;
	_Alignas(64) unsigned char memory[PAIR_BYTES];
	int freed;
	uint64_t region;
	uint64_t peer, remote, grant;                /* of the generation that serves */
	uint64_t next_peer, next_remote, next_grant; /* the still side, in a swap */
	uint64_t granted, ready_remote, up;          /* what the last events told */
	uint32_t kinds[32];                          /* events by kind */
};

struct pair {
	struct escrow_module *module;
	struct pair_side mover, still;
	struct escrow_swap *swap;
	uint32_t pumped;
	int32_t batch;             /* events taken by one poll, 1..16 */
	int silent;                /* the still side answers nothing */
	unsigned char bytes[4096]; /* a grant that waits for its peer */
	uint64_t nbytes;
	uint64_t want; /* a remote of the mover that waits for a grant */
	/* Every OP_DONE of the mover; NULL: only counted. */
	void (*done)(struct pair *pair, const struct escrow_event *event);
};

/* passive: the mover was invited, and does not ask.  settings: of the mover. */
void pair_make(struct pair *pair, int passive, const char *const *settings);
/* Connects the two once more, and each grants all of its region to the other by the new peer. */
void pair_connect(struct pair *pair, int passive);
/* Both close, CLOSED, and both regions are freed. */
void pair_end(struct pair *pair);

/* Polls both sides once (a mover whose host is NULL is not there), and does what the events ask for. */
void pair_pump(struct pair *pair);

/* Starts a swap of the mover to the same module. */
void pair_swap_begin(struct pair *pair, struct escrow_swap_args *args);
/* Pumps until it has ended; frees it.  last (or NULL): its last record. */
escrow_status pair_swap_finish(struct pair *pair, struct escrow_swap_record *last,
			       struct escrow_error *error);

/* One op from `from`'s memory to (WRITE) or from (READ) the other's, waited for. */
void pair_move(struct pair *pair, struct pair_side *from, uint32_t opcode, uint64_t offset,
	       uint64_t length);
/* No completion of that engine comes from now on; its settings have test.faults=1. */
void pair_hold_completions(struct pair_side *side);
/* Bytes go both ways and arrive; seed makes them differ. */
void pair_check(struct pair *pair, unsigned char seed);

#endif
