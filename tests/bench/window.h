/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BENCH_WINDOW_H
#define BENCH_WINDOW_H

#include <infiniband/verbs.h>

/* The bind of a Type-2 window to the first bytes of a registration under its next key, and that key's invalidation. */
static inline void window_pair(struct ibv_mw *mw, struct ibv_mr *mr, uint64_t bytes,
			       unsigned int access, struct ibv_send_wr *bind,
			       struct ibv_send_wr *end)
{
	bind->opcode = IBV_WR_BIND_MW;
	bind->bind_mw.mw = mw;
	bind->bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind->bind_mw.bind_info.mr = mr;
	bind->bind_mw.bind_info.addr = (uintptr_t)mr->addr;
	bind->bind_mw.bind_info.length = bytes;
	bind->bind_mw.bind_info.mw_access_flags = access;
	end->opcode = IBV_WR_LOCAL_INV;
	end->invalidate_rkey = bind->bind_mw.rkey;
}

#endif
