/* SPDX-License-Identifier: BSD-2-Clause */
/* escrow/counters.h - what an engine has counted: extension "org.escrow.counters/1". */
#ifndef ESCROW_COUNTERS_H
#define ESCROW_COUNTERS_H

#include <escrow/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ESCROW_COUNTERS_ID "org.escrow.counters/1"

/* name: lower case words joined by dots, e.g. "rail.0.bytes"; constant for the engine. */
struct escrow_counter {
	uint64_t value;
	char name[56];
};

struct escrow_counters {
	uint32_t size;
	uint32_t reserved0;

	/* [any] NB.  Fills up to max elements of `stride` bytes; returns how many there are. */
	int32_t (*read)(struct escrow_engine *engine, struct escrow_counter *counters, uint32_t max,
			uint32_t stride);
};

#ifdef __cplusplus
}
#endif
#endif
