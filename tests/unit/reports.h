/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of reported faults and of bad input both do with an engine of the kit. */
#ifndef REPORTS_H
#define REPORTS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

#define RIGHTS (ESCROW_MAY_READ | ESCROW_MAY_WRITE)

static inline uint64_t connected(struct kit *a, struct kit *b, uint64_t *grant)
{
	kit_start(a, "a");
	kit_start(b, "b");
	kit_connect(a, b);
	return kit_grant(a, b, RIGHTS, grant);
}

static inline void both_close(struct kit *a, struct kit *b)
{
	kit_close(b, a, false);
	kit_close(a, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

static inline void pass_time(struct kit *a, struct kit *b, uint16_t stray)
{
	for (int i = 0; i < 20; i++) {
		kit_now += 50000000;
		kit_never(a, b, stray);
	}
}

/* One charge of the engine's own account. */
static inline struct escrow_charge charge(struct kit *k, uint32_t kind)
{
	struct escrow_charge charges[64];
	int32_t n = KIT_OPS->charges(k->engine, charges, 64, sizeof(charges[0])), i;

	for (i = 0; i < n && i < 64; i++)
		if (charges[i].kind == kind && !charges[i].peer_name[0])
			return charges[i];
	ck_abort_msg("no charge of kind %u", kind);
	return (struct escrow_charge){0};
}

static inline escrow_status lend(struct kit *k, void *addr, uint64_t length, uint64_t *region,
				 struct escrow_error *error)
{
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = addr,
					  .length = length,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};

	return KIT_OPS->register_memory(k->engine, &args, region, error);
}

static inline int32_t try_op(struct kit *b, uint64_t remote, struct escrow_sge sge, uint64_t at,
			     uint64_t *id)
{
	struct escrow_op op = {.remote = remote,
			       .remote_offset = at,
			       .opcode = ESCROW_WRITE,
			       .nsge = 1,
			       .sge = &sge};

	return KIT_OPS->transfer(b->engine, &op, 1, sizeof(op), 0, id);
}

#endif
