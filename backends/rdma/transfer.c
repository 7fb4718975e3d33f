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

static void fill_bind(const struct native_wr *w, struct ibv_send_wr *to)
{
	to->bind_mw.mw = w->window->mw;
	to->bind_mw.rkey = w->rkey;
	to->bind_mw.bind_info.mr = w->region->mr;
	to->bind_mw.bind_info.addr = w->addr;
	to->bind_mw.bind_info.length = w->length;
	to->bind_mw.bind_info.mw_access_flags =
		(w->rights & ESCROW_MAY_READ ? IBV_ACCESS_REMOTE_READ : 0u) |
		(w->rights & ESCROW_MAY_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0u);
}

/* What moves no bytes; rare, and posted alone. */
static __attribute__((noinline)) int post_window(struct native_conn *conn, struct native_wr *w,
						 uint32_t *posted)
{
	/* rxe refuses a bind with immediate data (providers/rxe/rxe.c, validate_send_wr): it stays 0. */
	struct ibv_send_wr wr = {
		.wr_id = w->id, .opcode = (enum ibv_wr_opcode)w->opcode, .send_flags = w->flags};
	struct ibv_send_wr *bad = NULL;
	int rc;

	if (w->opcode == NATIVE_BIND)
		fill_bind(w, &wr);
	else
		wr.invalidate_rkey = w->rkey;
	rc = verbs_post_send(conn->lane->log, conn->qp, &wr, &bad);
	*posted = rc == 0;
	/*
	 * libibverbs leaves mw->rkey of a Type-2 window to its user, and providers put the one that stands
	 * there into the work request as the key to replace.  The request is built when post returns, so
	 * the new key can be noted at once; if the bind fails the window is only ever deallocated.
	 */
	if (!rc && w->opcode == NATIVE_BIND)
		w->window->mw->rkey = w->rkey;
	return rc;
}

static inline void fill_range(const struct native_sge *s, struct ibv_sge *to)
{
	to->addr = s->addr;
	to->length = s->length;
	to->lkey = s->region->lkey;
}

static __attribute__((noinline)) void fill_ranges(const struct native_wr *w, struct ibv_sge *sge)
{
	for (uint32_t i = 0; i < w->nsge; i++)
		fill_range(&w->sge[i], &sge[i]);
}

/* Where it stands in the chain, and its ranges, are set already: see lane_create_channel(). */
static inline void fill(const struct native_wr *w, struct ibv_send_wr *to, struct ibv_sge *sge)
{
	to->wr_id = w->id;
	to->opcode = (enum ibv_wr_opcode)w->opcode;
	to->send_flags = w->flags;
	to->num_sge = (int)w->nsge;
	to->wr.rdma.remote_addr = w->remote_addr;
	to->wr.rdma.rkey = w->rkey;
	if (w->nsge == 1)
		fill_range(w->sge, sge);
	else
		fill_ranges(w, sge);
}

static int post_chain(struct native_conn *conn, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	struct native_lane *l = conn->lane;
	struct ibv_send_wr *bad = NULL, *last = &l->wr[n - 1];
	int rc;

	for (uint32_t i = 0; i < n; i++)
		fill(&wr[i], &l->wr[i], l->sge[i]);
	last->next = NULL;
	rc = verbs_post_send(l->log, conn->qp, l->wr, &bad);
	last->next = last + 1;
	/* What stands before *bad_wr is with the device (ibv_post_send(3)). */
	*posted = rc ? (bad ? (uint32_t)(bad - l->wr) : 0) : n;
	return rc;
}

/* More than the device is given at once. */
static __attribute__((noinline)) int post_long(struct native_conn *conn, struct native_wr *wr,
					       uint32_t n, uint32_t *posted)
{
	uint32_t done = 0, part;
	int rc = 0;

	while (!rc && done < n) {
		rc = transfer_post(conn, wr + done, n - done < RDMA_CHAIN ? n - done : RDMA_CHAIN,
				   &part);
		done += part;
	}
	*posted = done;
	return rc;
}

int transfer_post(struct native_conn *conn, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	if (n == 0 || n > RDMA_CHAIN)
		return post_long(conn, wr, n, posted);
	if (wr->opcode >= NATIVE_INVALIDATE)
		return post_window(conn, wr, posted);
	return post_chain(conn, wr, n, posted);
}

int transfer_post_recv(struct native_conn *conn, uint64_t id, struct native_region *region,
		       uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = region->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};

	return verbs_post_recv(conn->lane->log, conn->qp, &wr);
}
