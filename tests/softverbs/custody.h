/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the device must not touch now, because its owner was told that it is free. Lock held. */
#ifndef SOFTVERBS_CUSTODY_H
#define SOFTVERBS_CUSTODY_H

#include "tests/softverbs/base.h"

/* The device is about to read or write here: aborts if softverbs_forbid() named any of it. */
void custody_check(const void *addr, uint64_t length, bool write, bool remote);
/* A fragment of a peer's WRITE is about to land. */
void custody_land(const void *to, const void *from, size_t size);

#endif
