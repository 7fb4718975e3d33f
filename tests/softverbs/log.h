/* SPDX-License-Identifier: BSD-2-Clause */
/* The record of native calls. */
#ifndef SOFTVERBS_LOG_H
#define SOFTVERBS_LOG_H

#include "tests/softverbs/base.h"

/* Records one call. Lock held. 'obj' may be NULL. */
void log_call(const char *name, const struct object *obj, int rc, int errnum);
/* Writes out what is buffered for SOFTVERBS_LOG. */
void log_flush(void);

#endif
