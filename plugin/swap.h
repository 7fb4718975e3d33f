/* SPDX-License-Identifier: BSD-2-Clause */
/* A swap from inside: A is the generation that serves, B the one that is to. */
#ifndef SWAP_H
#define SWAP_H

#include "plugin/error.h"
#include "plugin/host.h"

struct escrow_swap {
	struct escrow_host_engine *host;
	struct host_generation *a, *b; /* b: from OPEN on; a: until RETIRE */
	struct escrow_swap_args args;  /* settings and key_file are our own copies */
	GArray *records;               /* struct escrow_swap_record */
	uint32_t step;                 /* the one that runs, or is taken back */
	uint32_t phase;                /* inside the step; 0 at its start */
	bool back;                     /* on the way back */
	bool over;
	uint64_t deadline_ns; /* of the step */
	uint32_t count;       /* of objects, for the record's text */
	escrow_status result;
	struct escrow_error error;
	struct escrow_error reason; /* of the first failure */
	/* Told by poll, under the host engine's lock; 0: nothing. */
	_Atomic int32_t disturbed;
};

/* The work of a step, called again while it answers IN_PROGRESS.  Fills swap->error on failure. */
escrow_status swap_open(struct escrow_swap *swap);
escrow_status swap_budget(struct escrow_swap *swap);
escrow_status swap_register(struct escrow_swap *swap);
escrow_status swap_peers(struct escrow_swap *swap);
escrow_status swap_gate(struct escrow_swap *swap);
escrow_status swap_quiesce(struct escrow_swap *swap);
escrow_status swap_drain(struct escrow_swap *swap);
escrow_status swap_commit(struct escrow_swap *swap);
escrow_status swap_close(struct escrow_swap *swap);
escrow_status swap_retire(struct escrow_swap *swap);

/* Takes a step back, whole or half done; OK, or IN_PROGRESS: call again. */
escrow_status swap_undo_open(struct escrow_swap *swap);
escrow_status swap_undo_peers(struct escrow_swap *swap);
escrow_status swap_undo_gate(struct escrow_swap *swap);
escrow_status swap_undo_quiesce(struct escrow_swap *swap);

/* Tells the host of a peer something; OK without a carrier only if optional. */
escrow_status swap_carry(struct escrow_swap *swap, struct escrow_carry *message);
/* The same to every peer of A, with nothing but the kind. */
void swap_carry_all(struct escrow_swap *swap, uint32_t kind);

static inline uint64_t swap_now(const struct escrow_swap *swap)
{
	return services_now(swap->host->services);
}

/* Sets the step's time limit at its start. */
static inline void swap_set_deadline(struct escrow_swap *swap, uint64_t ns)
{
	uint64_t now = swap_now(swap);

	swap->deadline_ns = ns > UINT64_MAX - now ? UINT64_MAX : now + ns;
}

#endif
