/* SPDX-License-Identifier: BSD-2-Clause */
/* Completions that softverbs_cqe() holds back. Until one is released the device goes on with its work
 * request: it reads a source, and writes to a sink what it wrote before, again and again. Lock held. */
#ifndef SOFTVERBS_HELD_H
#define SOFTVERBS_HELD_H

#include "tests/softverbs/qp.h"

/* 'w' is the send request that completed, or NULL for a receive. */
void held_add(struct qp *qp, const struct cqe *entry, const struct wqe *w);
void held_release(struct qp *qp);
void held_drop(struct qp *qp);
/* Touches what is due. Returns when to call again, or UINT64_MAX. */
uint64_t held_time(uint64_t now);

#endif
