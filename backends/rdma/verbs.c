/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backends/rdma/verbs.h"

struct verbs_log {
	const struct escrow_host *host;
	FILE *file;
	_Atomic uint64_t seq;
	_Atomic uint64_t counts[VERBS_NCALLS];
	struct verbs_entry entries[VERBS_LOG_ENTRIES];
};

static const char *const call_names[VERBS_NCALLS] = {
	[VERBS_OPEN_DEVICE] = "open_device",
	[VERBS_CLOSE_DEVICE] = "close_device",
	[VERBS_ALLOC_PD] = "alloc_pd",
	[VERBS_DEALLOC_PD] = "dealloc_pd",
	[VERBS_CREATE_CHANNEL] = "create_channel",
	[VERBS_DESTROY_CHANNEL] = "destroy_channel",
	[VERBS_CREATE_CQ] = "create_cq",
	[VERBS_DESTROY_CQ] = "destroy_cq",
	[VERBS_REG_MR] = "reg_mr",
	[VERBS_REG_DMABUF_MR] = "reg_dmabuf_mr",
	[VERBS_DEREG_MR] = "dereg_mr",
	[VERBS_ALLOC_MW] = "alloc_mw",
	[VERBS_DEALLOC_MW] = "dealloc_mw",
	[VERBS_CREATE_QP] = "create_qp",
	[VERBS_QP_INIT] = "qp_init",
	[VERBS_QP_RTR] = "qp_rtr",
	[VERBS_QP_RTS] = "qp_rts",
	[VERBS_QP_ERR] = "qp_err",
	[VERBS_QP_RESET] = "qp_reset",
	[VERBS_DESTROY_QP] = "destroy_qp",
	[VERBS_CM_LISTEN] = "cm_listen",
	[VERBS_CM_RESOLVE_ADDR] = "cm_resolve_addr",
	[VERBS_CM_RESOLVE_ROUTE] = "cm_resolve_route",
	[VERBS_CM_CONNECT] = "cm_connect",
	[VERBS_CM_ESTABLISH] = "cm_establish",
	[VERBS_CM_ACCEPT] = "cm_accept",
	[VERBS_CM_REJECT] = "cm_reject",
	[VERBS_CM_DISCONNECT] = "cm_disconnect",
	[VERBS_CM_DESTROY_ID] = "cm_destroy_id",
	[VERBS_POST_SEND] = "post_send",
	[VERBS_POST_RECV] = "post_recv",
	[VERBS_POLL_CQ] = "poll_cq",
	[VERBS_REQ_NOTIFY] = "req_notify",
};

struct verbs_log *verbs_log_new(const struct escrow_host *host, const char *path)
{
	struct verbs_log *log = host->alloc(host->ctx, sizeof(*log), 64);

	if (!log)
		return NULL;
	memset(log, 0, sizeof(*log));
	log->host = host;
	if (path && *path)
		log->file = fopen(path, "ae");
	return log;
}

void verbs_log_free(struct verbs_log *log)
{
	if (!log)
		return;
	if (log->file)
		fclose(log->file);
	log->host->free(log->host->ctx, log);
}

uint64_t verbs_log_count(const struct verbs_log *log, enum verbs_call call)
{
	return atomic_load_explicit(&log->counts[call], memory_order_relaxed);
}

uint32_t verbs_log_read(struct verbs_log *log, struct verbs_entry *out, uint32_t max)
{
	uint64_t last = atomic_load(&log->seq);
	uint64_t n = last < VERBS_LOG_ENTRIES ? last : VERBS_LOG_ENTRIES;

	if (n > max)
		n = max;
	for (uint64_t i = 0; i < n; i++)
		out[i] = log->entries[(last - n + i) % VERBS_LOG_ENTRIES];
	return (uint32_t)n;
}

static void count(struct verbs_log *log, enum verbs_call call)
{
	atomic_fetch_add_explicit(&log->counts[call], 1, memory_order_relaxed);
}

/* Records one call and hands its result through. */
static int record(struct verbs_log *log, enum verbs_call call, const void *object, int result)
{
	uint64_t seq = atomic_fetch_add(&log->seq, 1) + 1;
	struct verbs_entry *e = &log->entries[(seq - 1) % VERBS_LOG_ENTRIES];

	e->seq = seq;
	e->object = (uint64_t)(uintptr_t)object;
	e->call = call;
	e->result = result;
	count(log, call);
	if (log->file) {
		fprintf(log->file, "%llu %s %p %d\n", (unsigned long long)seq, call_names[call],
			object, result);
		fflush(log->file);
	}
	return result;
}

/* The errno of a call that answered NULL or -1; never 0, so that a failure stays one. */
static int last_error(void)
{
	return errno > 0 ? errno : EIO;
}

/* Some providers answer -1 or a negative errno where the page says a positive one. */
static int positive(int rc)
{
	if (rc == -1)
		return last_error();
	return rc < 0 ? -rc : rc;
}

int verbs_open_device(struct verbs_log *log, struct ibv_device *dev, struct ibv_context **out)
{
	struct ibv_context *ctx = ibv_open_device(dev);

	if (!ctx)
		return record(log, VERBS_OPEN_DEVICE, dev, last_error());
	*out = ctx;
	return record(log, VERBS_OPEN_DEVICE, ctx, 0);
}

int verbs_close_device(struct verbs_log *log, struct ibv_context *ctx)
{
	return record(log, VERBS_CLOSE_DEVICE, ctx, positive(ibv_close_device(ctx)));
}

int verbs_alloc_pd(struct verbs_log *log, struct ibv_context *ctx, struct ibv_pd **out)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);

	if (!pd)
		return record(log, VERBS_ALLOC_PD, ctx, last_error());
	*out = pd;
	return record(log, VERBS_ALLOC_PD, pd, 0);
}

int verbs_dealloc_pd(struct verbs_log *log, struct ibv_pd *pd)
{
	return record(log, VERBS_DEALLOC_PD, pd, positive(ibv_dealloc_pd(pd)));
}

int verbs_create_channel(struct verbs_log *log, struct ibv_context *ctx,
			 struct ibv_comp_channel **out)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);

	if (!channel)
		return record(log, VERBS_CREATE_CHANNEL, ctx, last_error());
	*out = channel;
	return record(log, VERBS_CREATE_CHANNEL, channel, 0);
}

int verbs_destroy_channel(struct verbs_log *log, struct ibv_comp_channel *channel)
{
	return record(log, VERBS_DESTROY_CHANNEL, channel,
		      positive(ibv_destroy_comp_channel(channel)));
}

int verbs_create_cq(struct verbs_log *log, struct ibv_context *ctx, uint32_t depth, void *context,
		    struct ibv_comp_channel *channel, struct ibv_cq **out)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, (int)depth, context, channel, 0);

	if (!cq)
		return record(log, VERBS_CREATE_CQ, ctx, last_error());
	*out = cq;
	return record(log, VERBS_CREATE_CQ, cq, 0);
}

int verbs_destroy_cq(struct verbs_log *log, struct ibv_cq *cq)
{
	return record(log, VERBS_DESTROY_CQ, cq, positive(ibv_destroy_cq(cq)));
}

int verbs_reg_mr(struct verbs_log *log, struct ibv_pd *pd, const struct escrow_region_args *args,
		 int access, struct ibv_mr **out)
{
	int dmabuf = args->memory_kind == ESCROW_MEMORY_DMABUF;
	enum verbs_call call = dmabuf ? VERBS_REG_DMABUF_MR : VERBS_REG_MR;
	struct ibv_mr *mr;

	if (dmabuf)
		mr = ibv_reg_dmabuf_mr(pd, args->dmabuf_offset, args->length,
				       (uint64_t)(uintptr_t)args->addr, (int)args->dmabuf_fd,
				       access);
	else
		mr = ibv_reg_mr(pd, args->addr, args->length, access);
	if (!mr)
		return record(log, call, pd, last_error());
	*out = mr;
	return record(log, call, mr, 0);
}

/*
 * A driver that does not take dma-bufs, and a kernel that does not with these rights, say so before the descriptor is
 * looked at (kernel uverbs_std_types_mr.c, UVERBS_METHOD_REG_DMABUF_MR); else it is found bad.
 */
bool verbs_takes_dmabuf(struct ibv_pd *pd, int access)
{
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, access);

	if (!mr)
		return errno == EBADF;
	ibv_dereg_mr(mr); /* of nothing: who gives one does not look */
	return false;
}

int verbs_dereg_mr(struct verbs_log *log, struct ibv_mr *mr)
{
	return record(log, VERBS_DEREG_MR, mr, positive(ibv_dereg_mr(mr)));
}

int verbs_alloc_mw(struct verbs_log *log, struct ibv_pd *pd, struct ibv_mw **out)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);

	if (!mw)
		return record(log, VERBS_ALLOC_MW, pd, last_error());
	*out = mw;
	return record(log, VERBS_ALLOC_MW, mw, 0);
}

int verbs_dealloc_mw(struct verbs_log *log, struct ibv_mw *mw)
{
	return record(log, VERBS_DEALLOC_MW, mw, positive(ibv_dealloc_mw(mw)));
}

int verbs_create_qp(struct verbs_log *log, struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
		    struct ibv_qp **out)
{
	struct ibv_qp *qp = ibv_create_qp(pd, attr);

	if (!qp)
		return record(log, VERBS_CREATE_QP, pd, last_error());
	*out = qp;
	return record(log, VERBS_CREATE_QP, qp, 0);
}

static enum verbs_call modify_call(enum ibv_qp_state state)
{
	switch (state) {
	case IBV_QPS_INIT:
		return VERBS_QP_INIT;
	case IBV_QPS_RTR:
		return VERBS_QP_RTR;
	case IBV_QPS_RTS:
		return VERBS_QP_RTS;
	case IBV_QPS_RESET:
		return VERBS_QP_RESET;
	default:
		return VERBS_QP_ERR;
	}
}

int verbs_modify_qp(struct verbs_log *log, struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return record(log, modify_call(attr->qp_state), qp,
		      positive(ibv_modify_qp(qp, attr, mask)));
}

int verbs_destroy_qp(struct verbs_log *log, struct ibv_qp *qp)
{
	return record(log, VERBS_DESTROY_QP, qp, positive(ibv_destroy_qp(qp)));
}

int verbs_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	return positive(ibv_query_device(ctx, attr));
}

int verbs_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
	return positive(ibv_query_port(ctx, port, attr));
}

int verbs_query_gids(struct ibv_context *ctx, struct ibv_gid_entry *entries, uint32_t max)
{
	return (int)ibv_query_gid_table(ctx, entries, max, 0);
}

int verbs_query_pkey(struct ibv_context *ctx, uint8_t port, int index, uint16_t *pkey)
{
	__be16 key;

	if (ibv_query_pkey(ctx, port, index, &key))
		return last_error();
	*pkey = ntohs(key);
	return 0;
}

int verbs_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
	return ibv_get_async_event(ctx, event) ? last_error() : 0;
}

void verbs_ack_async_event(struct ibv_async_event *event)
{
	ibv_ack_async_event(event);
}

int verbs_failed(struct verbs_log *log, enum verbs_call call, const void *object, int rc)
{
	return record(log, call, object, positive(rc));
}

int verbs_post_recv(struct verbs_log *log, struct ibv_qp *qp, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;
	int rc = ibv_post_recv(qp, wr, &bad);

	if (__builtin_expect(rc != 0, 0))
		return record(log, VERBS_POST_RECV, qp, positive(rc));
	return 0;
}

int verbs_req_notify(struct verbs_log *log, struct ibv_cq *cq)
{
	int rc = ibv_req_notify_cq(cq, 0);

	if (__builtin_expect(rc != 0, 0))
		return record(log, VERBS_REQ_NOTIFY, cq, positive(rc));
	return 0;
}

int verbs_cq_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(channel, &cq, &context))
		return last_error();
	/* At once, for the same reason: ibv_destroy_cq(3) waits for it. */
	ibv_ack_cq_events(cq, 1);
	return 0;
}

int verbs_cm_channel(struct rdma_event_channel **out)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	if (!channel)
		return last_error();
	*out = channel;
	return 0;
}

void verbs_cm_channel_end(struct rdma_event_channel *channel)
{
	rdma_destroy_event_channel(channel);
}

int verbs_cm_id(struct rdma_event_channel *channel, void *context, struct rdma_cm_id **out)
{
	return rdma_create_id(channel, out, context, RDMA_PS_TCP) ? last_error() : 0;
}

static int record_cm(struct verbs_log *log, enum verbs_call call, struct rdma_cm_id *id, int rc)
{
	return record(log, call, id, rc ? last_error() : 0);
}

int verbs_cm_listen(struct verbs_log *log, struct rdma_cm_id *id, struct sockaddr *addr,
		    int backlog)
{
	int rc = rdma_bind_addr(id, addr);

	return record_cm(log, VERBS_CM_LISTEN, id, rc ? rc : rdma_listen(id, backlog));
}

const char *verbs_cm_device(const struct rdma_cm_id *id)
{
	return id->verbs ? ibv_get_device_name(id->verbs->device) : NULL;
}

int verbs_cm_bind(struct rdma_cm_id *id, struct sockaddr *addr)
{
	return rdma_bind_addr(id, addr) ? last_error() : 0;
}

int verbs_cm_tos(struct rdma_cm_id *id, uint8_t tos)
{
	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos))
		       ? last_error()
		       : 0;
}

int verbs_cm_resolve_addr(struct verbs_log *log, struct rdma_cm_id *id, struct sockaddr *src,
			  struct sockaddr *dst, int timeout_ms)
{
	return record_cm(log, VERBS_CM_RESOLVE_ADDR, id,
			 rdma_resolve_addr(id, src, dst, timeout_ms));
}

int verbs_cm_resolve_route(struct verbs_log *log, struct rdma_cm_id *id, int timeout_ms)
{
	return record_cm(log, VERBS_CM_RESOLVE_ROUTE, id, rdma_resolve_route(id, timeout_ms));
}

int verbs_cm_connect(struct verbs_log *log, struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return record_cm(log, VERBS_CM_CONNECT, id, rdma_connect(id, param));
}

int verbs_cm_establish(struct verbs_log *log, struct rdma_cm_id *id)
{
	return record_cm(log, VERBS_CM_ESTABLISH, id, rdma_establish(id));
}

int verbs_cm_accept(struct verbs_log *log, struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return record_cm(log, VERBS_CM_ACCEPT, id, rdma_accept(id, param));
}

int verbs_cm_reject(struct verbs_log *log, struct rdma_cm_id *id, const void *data, uint8_t len)
{
	return record_cm(log, VERBS_CM_REJECT, id, rdma_reject(id, data, len));
}

int verbs_cm_disconnect(struct verbs_log *log, struct rdma_cm_id *id)
{
	return record_cm(log, VERBS_CM_DISCONNECT, id, rdma_disconnect(id));
}

int verbs_cm_qp_attr(struct rdma_cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *attr,
		     int *mask)
{
	attr->qp_state = state;
	return rdma_init_qp_attr(id, attr, mask) ? last_error() : 0;
}

void verbs_cm_destroy_id(struct verbs_log *log, struct rdma_cm_id *id)
{
	record_cm(log, VERBS_CM_DESTROY_ID, id, rdma_destroy_id(id));
}
