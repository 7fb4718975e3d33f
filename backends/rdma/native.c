/* SPDX-License-Identifier: BSD-2-Clause */
/* The native table of RDMA devices; backends/engine/native.h says what each step means. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "backends/rdma/rdma.h"
#include "backends/rdma/verbs.h"

static void native_free(struct native *n)
{
	cm_close(n);
	verbs_log_free(n->log);
	n->host->free(n->host->ctx, n);
}

/* The settings and the log; no rails yet. */
static escrow_status native_make(const struct native_open_args *args, struct native **out,
				 struct escrow_error *error)
{
	const struct escrow_host *host = args->host;
	struct native *n = host->alloc(host->ctx, sizeof(*n), 64);
	escrow_status status;

	if (!n)
		return error_set(error, ESCROW_E_NO_MEMORY, ENOMEM, "engine");
	memset(n, 0, sizeof(*n));
	n->host = host;
	n->epoll_fd = -1;
	status = settings_read(args->kv, args->nkv, &n->set, error);
	if (status != ESCROW_OK)
		goto free_native;
	n->log = verbs_log_new(host, n->set.call_log);
	if (!n->log) {
		status = error_set(error, ESCROW_E_NO_MEMORY, ENOMEM, "log of native calls");
		goto free_native;
	}
	*out = n;
	return ESCROW_OK;

free_native:
	native_free(n);
	return status;
}

static escrow_status native_open(const struct native_open_args *args, struct native **out,
				 struct escrow_error *error)
{
	struct native *n;
	escrow_status status = native_make(args, &n, error);

	if (status != ESCROW_OK)
		return status;
	status = rail_find(n, error);
	if (status == ESCROW_OK)
		status = cm_open(n, error);
	if (status == ESCROW_OK)
		*out = n;
	else
		native_free(n);
	return status;
}

static escrow_status list_rails(const struct native_open_args *args,
				const struct native_rail_report *report, struct escrow_error *error)
{
	struct native *n;
	escrow_status status = native_make(args, &n, error);

	if (status != ESCROW_OK)
		return status;
	n->report = report;
	status = rail_find(n, error);
	native_free(n);
	return status == ESCROW_E_DEVICE ? ESCROW_OK : status; /* none is an answer here */
}

static uint32_t ncontexts(const struct native *n)
{
	return n->ncontexts;
}

static uint32_t nrails(const struct native *n)
{
	return n->nrails;
}

static void rail_info(const struct native *n, uint32_t rail, struct native_rail_info *out)
{
	*out = n->rails[rail].info;
}

static int next_event(struct native *n, struct native_event *event)
{
	memset(event, 0, sizeof(*event));
	for (uint32_t i = 0; i < n->ncontexts; i++)
		if (n->contexts[i] && context_next_event(n->contexts[i], event))
			return 1;
	return cm_next_event(n, event);
}

static int event_fd(struct native *n)
{
	return n->epoll_fd;
}

const struct native_ops rdma_native = {
	.id = "rdma",
	.options = rdma_options,
	.noptions = RDMA_NOPTIONS,
	.control_thread = 1,
	.caps = ESCROW_CAP_REMOTE | ESCROW_CAP_DMABUF,
	.open = native_open,
	.free_native = native_free,
	.ncontexts = ncontexts,
	.nrails = nrails,
	.rail_info = rail_info,
	.lock_limit = memlock_limit,
	.locked = memlock_locked,
	.objects_left = context_objects,
	.list_rails = list_rails,
	.open_device = context_open,
	.close_device = context_close,
	.is_lost = context_is_lost,
	.takes_dmabuf = context_takes_dmabuf,
	.alloc_pd = context_alloc_pd,
	.dealloc_pd = context_dealloc_pd,
	.create_channel = lane_create_channel,
	.create_cq = lane_create_cq,
	.destroy_cq = lane_destroy_cq,
	.destroy_channel = lane_destroy_channel,
	.poll_cq = lane_poll,
	.poll_failed = lane_poll_failed,
	.failure = lane_failure,
	.arm_cq = lane_arm,
	.lane_fd = lane_fd,
	.take_wakeups = lane_take_wakeups,
	.register_region = registration_make,
	.deregister_region = registration_end,
	.region_key = registration_key,
	.alloc_window = window_alloc,
	.dealloc_window = window_dealloc,
	.window_key = window_key,
	.create_conn = connection_create,
	.conn_user = connection_user,
	.connect = cm_connect,
	.accept = cm_accept,
	.reject = cm_reject,
	.disconnect = cm_disconnect,
	.conn_err = connection_err,
	.conn_reset = connection_reset,
	.destroy_conn = connection_destroy,
	.post = transfer_post,
	.post_failed = transfer_post_failed,
	.post_recv = transfer_post_recv,
	.next_event = next_event,
	.event_fd = event_fd,
	.fault = fault_play,
};
