/* SPDX-License-Identifier: BSD-2-Clause */
/* fault.h - planned faults of an engine that offers org.escrow.test-fault/1. */
#ifndef CONFORM_FAULT_H
#define CONFORM_FAULT_H

#include <escrow/fault.h>

#include "tests/conform/engine.h"

/* The table; the case fails if the engine, opened with test.faults=1, has none. */
const struct escrow_fault *fault_table(struct engine *en);
void fault_plan(struct engine *en, const char *plan);
int64_t fault_calls(struct engine *en, uint32_t step);

/* The sum over all native steps. */
int64_t fault_all_calls(struct engine *en);

#endif
