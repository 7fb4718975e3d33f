/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host engine on the fake backend with one region, peer, remote and grant, and its swaps to the same
 * module.  The clock stands unless the test moves it.
 */
#ifndef SWAPPING_H
#define SWAPPING_H

#include "tests/unit/hosting.h"

#define SWAPPING_SIZE 4096u
#define SWAPPING_RECORDS 32

struct swapping {
	struct escrow_host_engine *host;
	struct escrow_module *module;
	char memory[SWAPPING_SIZE];
	int freed;
	uint64_t region, remote, peer,
		grant; /* peer: known once the first invitation is asked for */
	uint64_t clock_ns;
	uint64_t tick_ns; /* the clock goes on by this each time it is read */
	uint64_t close_ns;
	uint32_t veto; /* the step that is made to fail */
	uint32_t step; /* after the work of this one ... */
	void (*at_step)(void);
	uint32_t carried[8]; /* how often each kind was carried */
	int answer;          /* the peers answer */
	uint32_t polls;      /* events that are polled before each advance, at most; 0: all */
	uint32_t told[32];   /* events by kind, while swaps were finished */
	struct escrow_swap *under_way;
	struct escrow_swap_record records[SWAPPING_RECORDS];
};

extern struct swapping sw;

void swapping_setup(void);

escrow_status swapping_begin_with(uint32_t flags, const char *const *settings);
void swapping_begin(uint32_t flags);
/* Polls and advances until the swap has ended; time passes only if it has to. */
escrow_status swapping_finish(struct escrow_error *error);
/* Of a swap that has ended, which is freed; how many. */
int32_t swapping_take_records(void);

uint64_t swapping_generation(void);
/* How many engines of the module are alive. */
uint32_t swapping_engines(void);
/* The serving backend takes an op on the region, and the event comes. */
void swapping_assert_serves(void);

#endif
