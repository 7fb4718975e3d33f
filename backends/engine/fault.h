/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fault.h - planned faults (escrow/fault.h) for any native table: every native step passes here.
 *
 * The plan is written by [ctl] and read by whoever makes a step; each field is atomic, and a plan
 * that changes under a running step hits either the old or the new one.
 */
#ifndef ENGINE_FAULT_H
#define ENGINE_FAULT_H

#include <stdatomic.h>
#include <stdint.h>

#include <escrow/backend.h>
#include <escrow/fault.h>

#define FAULT_STEPS (ESCROW_STEP_POLL + 1u)
#define FAULT_RULES 4u  /* of one step at a time */
#define FAULT_HELD 128u /* completions kept back, a lane */

enum fault_verdict { FAULT_OK, FAULT_LIE, FAULT_REFUSED, FAULT_FAIL, FAULT_EFFECT };
enum fault_cqe { CQE_OK, CQE_HOLD, CQE_DROP, CQE_DUP, CQE_STALE, CQE_RELEASE };

struct fault_rule {
	_Atomic uint32_t set;
	_Atomic uint32_t nth; /* counts down; 0 = every call */
	_Atomic uint32_t verdict;
	_Atomic int32_t error;
};

struct fault {
	struct fault_rule rules[FAULT_STEPS][FAULT_RULES];
	_Atomic int64_t calls[FAULT_STEPS];
	_Atomic uint32_t cqe;       /* enum fault_cqe */
	_Atomic uint32_t cqe_count; /* 0 = all */
	_Atomic uint32_t import_drop;
};

/* [any] Counts a call of the step; what is to become of it, and the errno. */
enum fault_verdict fault_take(struct fault *f, uint32_t step, int *error);
/* [any] What is to become of the next completion. */
enum fault_cqe fault_next_cqe(struct fault *f);

extern const struct escrow_fault fault_extension;

#endif
