/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs.h - the one place that calls libibverbs and librdmacm.
 *
 * Four error conventions meet here and become one, 0 or a positive errno: functions that return
 * the errno (ibv_modify_qp(3), ibv_post_send(3), the destroy verbs), pointers with NULL and errno
 * (ibv_create_qp(3), ibv_reg_mr(3)), -1 and errno (rdma_*(3)), and counts (ibv_poll_cq(3)).
 * Every control call is recorded with its object and its result; the data path (post, poll, arm)
 * is counted.  Nothing here retries: one call in, one native call out.
 */
#ifndef ESCROW_VERBS_H
#define ESCROW_VERBS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <rdma/rdma_cma.h>
#include <infiniband/verbs.h>

#include <escrow/backend.h>

enum verbs_call {
	VERBS_OPEN_DEVICE,
	VERBS_CLOSE_DEVICE,
	VERBS_ALLOC_PD,
	VERBS_DEALLOC_PD,
	VERBS_CREATE_CHANNEL,
	VERBS_DESTROY_CHANNEL,
	VERBS_CREATE_CQ,
	VERBS_DESTROY_CQ,
	VERBS_REG_MR,
	VERBS_REG_DMABUF_MR,
	VERBS_DEREG_MR,
	VERBS_ALLOC_MW,
	VERBS_DEALLOC_MW,
	VERBS_CREATE_QP,
	VERBS_QP_INIT,
	VERBS_QP_RTR,
	VERBS_QP_RTS,
	VERBS_QP_ERR,
	VERBS_QP_RESET,
	VERBS_DESTROY_QP,
	VERBS_CM_LISTEN,
	VERBS_CM_RESOLVE_ADDR,
	VERBS_CM_RESOLVE_ROUTE,
	VERBS_CM_CONNECT,
	VERBS_CM_ESTABLISH,
	VERBS_CM_ACCEPT,
	VERBS_CM_REJECT,
	VERBS_CM_DISCONNECT,
	VERBS_CM_DESTROY_ID,
	VERBS_POST_SEND,
	VERBS_POST_RECV,
	VERBS_POLL_CQ,
	VERBS_REQ_NOTIFY,
	VERBS_NCALLS,
};

#define VERBS_LOG_ENTRIES 4096u

/* One recorded call; object is the address of the struct the verb works on, an identity only. */
struct verbs_entry {
	uint64_t seq; /* from 1; 0 = empty */
	uint64_t object;
	uint32_t call; /* enum verbs_call */
	int32_t result;
};

struct verbs_log;

/* A log of one engine; path: also write each control call there as a line of text, or NULL. */
struct verbs_log *verbs_log_new(const struct escrow_host *host, const char *path);
void verbs_log_free(struct verbs_log *log);
/* Copies the newest up to max entries, oldest first; returns how many.  [any] */
uint32_t verbs_log_read(struct verbs_log *log, struct verbs_entry *out, uint32_t max);
uint64_t verbs_log_count(const struct verbs_log *log, enum verbs_call call);

int verbs_open_device(struct verbs_log *log, struct ibv_device *dev, struct ibv_context **out);
int verbs_close_device(struct verbs_log *log, struct ibv_context *ctx);
int verbs_alloc_pd(struct verbs_log *log, struct ibv_context *ctx, struct ibv_pd **out);
int verbs_dealloc_pd(struct verbs_log *log, struct ibv_pd *pd);
int verbs_create_channel(struct verbs_log *log, struct ibv_context *ctx,
			 struct ibv_comp_channel **out);
int verbs_destroy_channel(struct verbs_log *log, struct ibv_comp_channel *channel);
int verbs_create_cq(struct verbs_log *log, struct ibv_context *ctx, uint32_t depth, void *context,
		    struct ibv_comp_channel *channel, struct ibv_cq **out);
int verbs_destroy_cq(struct verbs_log *log, struct ibv_cq *cq);
int verbs_reg_mr(struct verbs_log *log, struct ibv_pd *pd, const struct escrow_region_args *args,
		 int access, struct ibv_mr **out);
/* Do driver and kernel take dma-bufs with these rights?  A question, which is not recorded. */
bool verbs_takes_dmabuf(struct ibv_pd *pd, int access);
int verbs_dereg_mr(struct verbs_log *log, struct ibv_mr *mr);
int verbs_alloc_mw(struct verbs_log *log, struct ibv_pd *pd, struct ibv_mw **out);
int verbs_dealloc_mw(struct verbs_log *log, struct ibv_mw *mw);
int verbs_create_qp(struct verbs_log *log, struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
		    struct ibv_qp **out);
int verbs_modify_qp(struct verbs_log *log, struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int verbs_destroy_qp(struct verbs_log *log, struct ibv_qp *qp);

/* Queries: neither recorded nor owed a receipt. */
int verbs_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);
int verbs_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
/* Up to max entries of the device's GID table: how many, or a negative errno. */
int verbs_query_pkey(struct ibv_context *ctx, uint8_t port, int index, uint16_t *pkey);
int verbs_query_gids(struct ibv_context *ctx, struct ibv_gid_entry *entries, uint32_t max);
/* The next asynchronous event, acknowledged already: 0, or errno (EAGAIN: none). */
int verbs_async_event(struct ibv_context *ctx, struct ibv_async_event *event);
void verbs_ack_async_event(struct ibv_async_event *event);

/* The data path: recorded when it fails. */
int verbs_failed(struct verbs_log *log, enum verbs_call call, const void *object, int rc);
/* These two by their callers, out of the way of what goes well: what they answer is not an errno yet. */
static inline int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad)
{
	return ibv_post_send(qp, wr, bad);
}
static inline int verbs_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq, max, wc);
}
int verbs_post_recv(struct verbs_log *log, struct ibv_qp *qp, struct ibv_recv_wr *wr);
int verbs_req_notify(struct verbs_log *log, struct ibv_cq *cq);
/* Takes one completion event and acknowledges it: 0, or errno (EAGAIN: none). */
int verbs_cq_event(struct ibv_comp_channel *channel);

/* The connection manager. */
int verbs_cm_channel(struct rdma_event_channel **out);
void verbs_cm_channel_end(struct rdma_event_channel *channel);
int verbs_cm_id(struct rdma_event_channel *channel, void *context, struct rdma_cm_id **out);
int verbs_cm_listen(struct verbs_log *log, struct rdma_cm_id *id, struct sockaddr *addr,
		    int backlog);
/* A question, which is not recorded: takes a port of the address, and listens to nothing. */
int verbs_cm_bind(struct rdma_cm_id *id, struct sockaddr *addr);
/* On which device it stands; NULL: on none yet. */
const char *verbs_cm_device(const struct rdma_cm_id *id);
int verbs_cm_tos(struct rdma_cm_id *id, uint8_t tos);
int verbs_cm_resolve_addr(struct verbs_log *log, struct rdma_cm_id *id, struct sockaddr *src,
			  struct sockaddr *dst, int timeout_ms);
int verbs_cm_resolve_route(struct verbs_log *log, struct rdma_cm_id *id, int timeout_ms);
int verbs_cm_connect(struct verbs_log *log, struct rdma_cm_id *id, struct rdma_conn_param *param);
int verbs_cm_establish(struct verbs_log *log, struct rdma_cm_id *id);
int verbs_cm_accept(struct verbs_log *log, struct rdma_cm_id *id, struct rdma_conn_param *param);
int verbs_cm_reject(struct verbs_log *log, struct rdma_cm_id *id, const void *data, uint8_t len);
int verbs_cm_disconnect(struct verbs_log *log, struct rdma_cm_id *id);
int verbs_cm_qp_attr(struct rdma_cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *attr,
		     int *mask);
/* Ends an id of which no event is unacknowledged; says nothing about a queue pair. */
void verbs_cm_destroy_id(struct verbs_log *log, struct rdma_cm_id *id);

#endif
