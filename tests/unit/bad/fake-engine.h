/* SPDX-License-Identifier: BSD-2-Clause */
/* What an engine of the fake backend keeps. */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include "tests/unit/bad/fake.h"

#define MAX 64u

enum { FREE, LIVE, STUCK };

struct fake_op {
	uint64_t user;
	int state; /* STUCK: ended HELD */
};

struct escrow_engine {
	const struct escrow_host *host;
	struct fake_op ops[MAX];
	uint64_t nops; /* ever; op n is ops[n % MAX] */
	uint64_t region_user[MAX];
	int region_state[MAX];
	int32_t stick, more, full, mute;
	void (*at_transfer)(void);
	uint64_t grant_user;
	uint32_t state;
	struct escrow_event events[4 * MAX];
	uint32_t head, tail; /* events[head % n .. tail % n) */
	uint64_t seq;
	int pipe[2];
};

#endif
