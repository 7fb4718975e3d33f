/* SPDX-License-Identifier: BSD-2-Clause */
/* entry.c - the mock backend: the engine over the mock device. */
#include "backends/engine/entry.h"
#include "backends/mock/mock.h"

static const struct engine_backend mock = {.native = &mock_native, .version = "1"};
static const struct escrow_option options[] = {ENGINE_OPTIONS MOCK_OPTIONS};

ENGINE_BACKEND(&mock, "mock", "1", MOCK_CAPS, UINT64_C(1) << ESCROW_MEMORY_HOST, options)
