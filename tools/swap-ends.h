/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The two ends of `escrow swap`, in one process: the mover, whose backend is swapped while it writes,
 * and the still end, into whose memory it writes.  One thread polls and controls both.
 */
#ifndef SWAP_ENDS_H
#define SWAP_ENDS_H

#include <stdbool.h>

#include <glib.h>

#include "plugin/escrow.h"

#define SWAP_CELLS 32u  /* ops under way at once, each with a cell of its own */
#define SWAP_CELL 4096u /* bytes of a cell */
#define SWAP_BYTES (SWAP_CELLS * SWAP_CELL)

struct swap_ends {
	struct escrow_host_engine *mover, *still;
	uint8_t *from, *to; /* the mover's memory and the still end's */
	uint64_t mover_region, still_region;
	uint64_t remote; /* of the mover; it survives swaps */
	struct escrow_swap *swap;
	/* The still end's side of the grant: that serves, and that a swap prepares. */
	uint64_t peer, next_peer, next_grant, granted, want;
	/* The load. */
	uint64_t next[SWAP_CELLS]; /* the number of the op a cell waits for, 0 = none */
	uint64_t sent, done, wrong;
	uint64_t closed; /* ends that told CLOSED */
	bool loading;
	bool failed;
};

/* Opens both ends on a module, connects them and grants the still memory; false: it was told why. */
bool swap_ends_open(struct swap_ends *ends, struct escrow_module *module,
		    const char *const *settings);
/* Polls both, does what the events ask for, and keeps the window full while loading. */
bool swap_ends_pump(struct swap_ends *ends);
/* escrow_swap_args.carry: the still end's answers. */
escrow_status swap_ends_carry(void *ctx, const struct escrow_carry *message);
/* Waits for the ops under way, closes both ends, and frees. */
bool swap_ends_close(struct swap_ends *ends);

#endif
