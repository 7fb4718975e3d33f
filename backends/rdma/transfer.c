/* SPDX-License-Identifier: BSD-2-Clause */
/* The data path: a chain of work requests becomes one ibv_post_send, one doorbell. */
#include <errno.h>

#include "backends/rdma/rdma.h"
#include "backends/rdma/verbs.h"

_Static_assert(NATIVE_WRITE == (int)IBV_WR_RDMA_WRITE && NATIVE_SEND == (int)IBV_WR_SEND &&
		       NATIVE_READ == (int)IBV_WR_RDMA_READ &&
		       NATIVE_INVALIDATE == (int)IBV_WR_LOCAL_INV &&
		       NATIVE_BIND == (int)IBV_WR_BIND_MW,
	       "opcodes are numbered as verbs number them");
_Static_assert(NATIVE_FENCE == IBV_SEND_FENCE && NATIVE_SIGNALED == IBV_SEND_SIGNALED &&
		       NATIVE_INLINE == IBV_SEND_INLINE,
	       "flags are those of verbs");
_Static_assert(SAME_PLACE(native_wr, id, ibv_send_wr, wr_id) &&
		       SAME_PLACE(native_wr, next, ibv_send_wr, next) &&
		       SAME_PLACE(native_wr, sge, ibv_send_wr, sg_list) &&
		       SAME_PLACE(native_wr, nsge, ibv_send_wr, num_sge) &&
		       SAME_PLACE(native_wr, opcode, ibv_send_wr, opcode) &&
		       SAME_PLACE(native_wr, flags, ibv_send_wr, send_flags) &&
		       SAME_PLACE(native_wr, remote_addr, ibv_send_wr, wr.rdma.remote_addr) &&
		       SAME_PLACE(native_wr, rkey, ibv_send_wr, wr.rdma.rkey) &&
		       sizeof(struct native_wr) == sizeof(struct ibv_send_wr),
	       "a request that moves bytes is one of verbs");
_Static_assert(SAME_PLACE(native_sge, addr, ibv_sge, addr) &&
		       SAME_PLACE(native_sge, length, ibv_sge, length) &&
		       SAME_PLACE(native_sge, key, ibv_sge, lkey) &&
		       sizeof(struct native_sge) == sizeof(struct ibv_sge),
	       "and so are its ranges");

static void fill_bind(const struct native_wr *w, struct ibv_send_wr *to)
{
	/* rxe refuses a bind with immediate data (providers/rxe/rxe.c, validate_send_wr). */
	to->imm_data = 0;
	to->bind_mw.mw = w->window->mw;
	to->bind_mw.rkey = w->rkey;
	to->bind_mw.bind_info.mr = w->region->mr;
	to->bind_mw.bind_info.addr = w->addr;
	to->bind_mw.bind_info.length = w->length;
	to->bind_mw.bind_info.mw_access_flags =
		(w->rights & ESCROW_MAY_READ ? IBV_ACCESS_REMOTE_READ : 0u) |
		(w->rights & ESCROW_MAY_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0u);
}

static void fill_window(const struct native_wr *w, struct ibv_send_wr *to)
{
	to->wr_id = w->id;
	to->sg_list = NULL;
	to->num_sge = 0;
	to->opcode = (enum ibv_wr_opcode)w->opcode;
	to->send_flags = w->flags;
	if (w->opcode == NATIVE_BIND)
		fill_bind(w, to);
	else
		to->invalidate_rkey = w->rkey;
}

/*
 * How many requests from `first` on are the device's, of n, when ibv_post_send() failed.  What stands before
 * *bad_wr is (ibv_post_send(3)).  None is the bad one where a provider put them all into its queue and only then
 * failed: rxe writes the producer index, then rings by write(2) and answers what that answers, with *bad_wr NULL
 * (rdma-core, providers/rxe/rxe.c, rxe_post_send and post_send_db).  The next doorbell runs them all.
 */
static __attribute__((noinline, cold)) uint32_t taken(const struct ibv_send_wr *bad,
						      const struct ibv_send_wr *first, uint32_t n)
{
	return bad ? (uint32_t)(bad - first) : n;
}

#define WINDOWS 16u /* work requests given to the device at once */

/* What moves no bytes; rare, and no layout of its own. */
static __attribute__((noinline)) int post_windows(struct native_conn *conn, struct native_wr *w,
						  uint32_t n, uint32_t *posted)
{
	struct ibv_send_wr wr[WINDOWS], *bad = NULL;
	uint32_t done = 0, some, i;
	int rc = 0;

	for (; !rc && done < n; done += some) {
		some = n - done < WINDOWS ? n - done : WINDOWS;
		for (i = 0; i < some; i++) {
			fill_window(&w[done + i], &wr[i]);
			wr[i].next = i + 1 < some ? &wr[i + 1] : NULL;
		}
		rc = verbs_post_send(conn->qp, wr, &bad);
		if (rc) {
			rc = verbs_failed(conn->lane->log, VERBS_POST_SEND, conn->qp, rc);
			some = taken(bad, wr, some);
		}
		/*
		 * libibverbs leaves mw->rkey of a Type-2 window to its user, and providers put the one that
		 * stands there into the work request as the key to replace.  The request is built when post
		 * returns, so the new key can be noted at once; if the bind fails the window is only ever
		 * deallocated.
		 */
		for (i = 0; i < some; i++)
			if (w[done + i].opcode == NATIVE_BIND)
				w[done + i].window->mw->rkey = w[done + i].rkey;
	}
	*posted = done;
	return rc;
}

int transfer_post(struct native_conn *conn, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	if (__builtin_expect(wr->opcode >= NATIVE_INVALIDATE, 0))
		return post_windows(conn, wr, n, posted);
	conn->bad = NULL;
	return verbs_post_send(conn->qp, (struct ibv_send_wr *)(void *)wr, &conn->bad);
}

int transfer_post_failed(struct native_conn *conn, struct native_wr *wr, uint32_t n,
			 uint32_t *posted, int rc)
{
	/* Those have said all. */
	if (wr->opcode >= NATIVE_INVALIDATE)
		return rc;
	*posted = taken(conn->bad, (const struct ibv_send_wr *)(const void *)wr, n);
	return verbs_failed(conn->lane->log, VERBS_POST_SEND, conn->qp, rc);
}

int transfer_post_recv(struct native_conn *conn, uint64_t id, struct native_region *region,
		       uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = region->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};

	return verbs_post_recv(conn->lane->log, conn->qp, &wr);
}
