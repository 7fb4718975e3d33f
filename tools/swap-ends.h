/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ends of `escrow swap`, in one process: the mover, whose backend is swapped while it writes, and the
 * still ends, into whose memory it writes: one on each backend, as none understands another's invitations.
 * One thread polls and controls all.
 */
#ifndef SWAP_ENDS_H
#define SWAP_ENDS_H

#include <stdbool.h>

#include <glib.h>

#include "plugin/escrow.h"

#define SWAP_CELLS 32u  /* ops under way at once, each with a cell of its own */
#define SWAP_CELL 4096u /* bytes of a cell */
#define SWAP_BYTES (SWAP_CELLS * SWAP_CELL)

/* An engine with its memory. */
struct swap_end {
	struct escrow_host_engine *engine; /* NULL: not open, or not yet */
	uint8_t *memory;
	uint64_t region;
};

struct swap_ends {
	struct escrow_module *modules[2]; /* A and B; the caller's */
	const char *const *settings;      /* of all */
	struct swap_end mover, stills[2]; /* the one on B is opened when a swap first asks for it */
	uint32_t serving, next; /* which still end is written into, and which a swap goes to */
	uint64_t remote;        /* of the mover; it survives swaps */
	struct escrow_swap *swap;
	/* The still ends' side of the grant: that serves, and that a swap prepares. */
	uint64_t peer, next_peer, next_grant, granted, want;
	/* The load. */
	uint64_t waits[SWAP_CELLS]; /* the number of the op a cell waits for, 0 = none */
	uint64_t sent, done, wrong;
	uint64_t opened, closed; /* ends; those that told CLOSED */
	bool loading;
	bool failed;
};

/* Opens two ends on A, connects them and grants the still memory; false: it was told why. */
bool swap_ends_open(struct swap_ends *ends);
/* Polls all, does what the events ask for, and keeps the window full while loading. */
bool swap_ends_pump(struct swap_ends *ends);
/* escrow_swap_args.carry: the still ends' answers; the swap is to modules[next]. */
escrow_status swap_ends_carry(void *ctx, const struct escrow_carry *message);
/* Waits for the ops under way, closes the ends, and frees. */
bool swap_ends_close(struct swap_ends *ends);

#endif
