/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory keys: regions and windows share one table per rail, as they share a key space in hardware. */
#ifndef SOFTVERBS_MR_H
#define SOFTVERBS_MR_H

#include "tests/softverbs/device.h"

struct qp;

struct mr {
	struct ibv_mr ib;
	struct object obj;
	struct pd *pd;
	/* lkey and rkey are this one number, as on mlx5. */
	uint32_t key;
	/* What keys address: [iova, iova + length). */
	uint64_t iova;
	unsigned int access;
	/* What it counts against RLIMIT_MEMLOCK: whole pages. */
	uint64_t locked;
	/* Windows that are bound to it. */
	unsigned int windows;
};

enum mw_state { MW_FREE, MW_BOUND };

struct mw {
	struct ibv_mw ib;
	struct object obj;
	struct pd *pd;
	/* The key that the device honours; ib.rkey is the program's to keep up to date for type 2. */
	uint32_t key;
	enum mw_state state;
	struct mr *mr;
	/* Type 2: the one queue pair that may use it. */
	struct qp *qp;
	uint64_t addr;
	uint64_t length;
	unsigned int access;
	/* Number among the windows of its queue pair (qp->windows). */
	struct list of_qp;
};

static inline struct mr *mr_of(struct ibv_mr *ib)
{
	return container(ib, struct mr, ib);
}

static inline struct mw *mw_of(struct ibv_mw *ib)
{
	return container(ib, struct mw, ib);
}

/* All below: lock held. */

/* Where the device finds 'length' bytes at 'addr' under a local key, or NULL: no such key, another
 * protection domain, out of range, or 'write' and the region is read-only. */
void *mr_local(struct pd *pd, uint32_t lkey, uint64_t addr, uint64_t length, bool write);
/* The same for a key that came over the wire, with IBV_ACCESS_REMOTE_READ or _WRITE; a window must
 * belong to 'qp' (type 2) or its protection domain (type 1). */
void *mr_remote(struct qp *qp, uint32_t rkey, uint64_t addr, uint64_t length, unsigned int access);
/* A bind work request: 'old_key' is what ib.rkey held when it was posted. Returns a work completion
 * status. */
enum ibv_wc_status mw_bind(struct qp *qp, struct mw *mw, uint32_t old_key, uint32_t new_key,
			   const struct ibv_mw_bind_info *info);
/* LOCAL_INV, or the invalidation that came with a SEND. Returns false if the key is not a window of
 * this queue pair that is bound now. */
bool mw_invalidate(struct qp *qp, uint32_t rkey);
/* Takes a window off its region and its queue pair. */
void mw_unbind(struct mw *mw);
/* A key for a new region or window, with a tag byte of 0, or 0 if there is none left; and its return.
 * Last in, first out: the next region gets the key that died last (mlx5's cache). */
uint32_t key_take(int rail, struct mr *mr, struct mw *mw);
void key_give(int rail, uint32_t key);
/* The window that has this index, or NULL. */
struct mw *key_window(int rail, uint32_t key);
/* In the child of a fork(): none is left. */
void key_forked(void);
/* Kills the keys of a context that was closed before its regions. */
void key_abandon(int rail, const struct context *ctx);

/* SOFTVERBS_MEMLOCK=1: regions count against RLIMIT_MEMLOCK. */
bool mr_counts_locked(void);

#endif
