/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "backends/rdma/rdma.h"
#include "backends/rdma/verbs.h"

int lane_create_channel(struct native_context *c, struct native_lane **out)
{
	const struct escrow_host *host = c->native->host;
	struct native_lane *l = host->alloc(host->ctx, sizeof(*l), 64);
	int flags, rc;

	if (!l)
		return ENOMEM;
	memset(l, 0, sizeof(*l));
	l->context = c;
	l->log = c->native->log;
	l->said.lane = l;
	rc = verbs_create_channel(c->native->log, c->verbs, &l->channel);
	if (rc) {
		host->free(host->ctx, l);
		return rc;
	}
	/* lane_take_wakeups must never sleep. */
	flags = fcntl(l->channel->fd, F_GETFL);
	if (flags >= 0)
		fcntl(l->channel->fd, F_SETFL, flags | O_NONBLOCK);
	*out = l;
	return 0;
}

int lane_create_cq(struct native_lane *l, uint32_t depth)
{
	return verbs_create_cq(l->context->native->log, l->context->verbs, depth, l, l->channel,
			       &l->cq);
}

int lane_destroy_cq(struct native_lane *l)
{
	int rc;

	context_unsay(l->context, &l->said);
	rc = verbs_destroy_cq(l->context->native->log, l->cq);
	if (rc)
		context_object_dead(l->context, &l->dead, l->cq);
	return rc;
}

int lane_destroy_channel(struct native_lane *l)
{
	const struct escrow_host *host = l->context->native->host;
	int rc = verbs_destroy_channel(l->context->native->log, l->channel);

	if (!rc)
		host->free(host->ctx, l);
	return rc;
}

enum native_status lane_failure(uint32_t status)
{
	switch ((enum ibv_wc_status)status) {
	case IBV_WC_SUCCESS:
		return NATIVE_OK;
	case IBV_WC_WR_FLUSH_ERR:
		return NATIVE_FLUSHED;
	case IBV_WC_REM_ACCESS_ERR:
		return NATIVE_REMOTE_ACCESS;
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return NATIVE_REMOTE;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return NATIVE_RNR;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return NATIVE_RETRY;
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_MW_BIND_ERR:
		return NATIVE_LOCAL;
	default:
		return NATIVE_OTHER;
	}
}

_Static_assert(SAME_PLACE(native_cqe, id, ibv_wc, wr_id) &&
		       SAME_PLACE(native_cqe, status, ibv_wc, status) &&
		       SAME_PLACE(native_cqe, kind, ibv_wc, opcode) &&
		       SAME_PLACE(native_cqe, vendor, ibv_wc, vendor_err) &&
		       SAME_PLACE(native_cqe, bytes, ibv_wc, byte_len) &&
		       sizeof(struct native_cqe) == sizeof(struct ibv_wc) &&
		       NATIVE_OK == (int)IBV_WC_SUCCESS && NATIVE_RECV == IBV_WC_RECV,
	       "a completion is one of verbs");

/* Of an error only wr_id, status, qp_num and vendor_err are defined (ibv_poll_cq(3)). */
int lane_poll(struct native_lane *l, struct native_cqe *cqe, int max)
{
	return verbs_poll_cq(l->cq, max, (struct ibv_wc *)(void *)cqe);
}

void lane_poll_failed(struct native_lane *l)
{
	verbs_failed(l->log, VERBS_POLL_CQ, l->cq, EIO);
}

int lane_arm(struct native_lane *l)
{
	return verbs_req_notify(l->context->native->log, l->cq);
}

int lane_fd(struct native_lane *l)
{
	return l->channel->fd;
}

int lane_take_wakeups(struct native_lane *l)
{
	int rc;

	do {
		rc = verbs_cq_event(l->channel);
	} while (!rc);
	/* EIO: the queue was closed at the removal of the device (kernel uverbs_main.c). */
	return rc == EAGAIN || rc == EINTR ? 0 : rc;
}
