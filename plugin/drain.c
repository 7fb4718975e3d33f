/* SPDX-License-Identifier: BSD-2-Clause */
/* Quiesce, resume and drain, which the current backend does. */
#include "plugin/host.h"

/* Whether the current backend takes transfers. */
static escrow_status let_transfer(struct escrow_host_engine *host, bool let)
{
	struct host_generation *current;
	struct inside_mark mark;
	escrow_status status = host_check(host);

	if (status != ESCROW_OK)
		return status;
	status = host_may_change(host, NULL);
	current = host_enter(host, &mark);
	if (status != ESCROW_E_BUSY)
		status = let ? current->ops->resume(current->engine, 0)
			     : current->ops->quiesce(current->engine, 0);
	inside_leave(mark);
	return status;
}

escrow_status escrow_quiesce(struct escrow_host_engine *host)
{
	return let_transfer(host, false);
}

escrow_status escrow_resume(struct escrow_host_engine *host)
{
	return let_transfer(host, true);
}

/* Of the whole engine; counted before it is asked, as its answer may be polled at once. */
static escrow_status engine_drain_all(struct escrow_host_engine *host, struct host_generation *g,
				      uint64_t deadline_ns)
{
	escrow_status status;

	g_mutex_lock(&host->lock);
	g->drains++;
	g_mutex_unlock(&host->lock);
	status = g->ops->drain(g->engine, 0, deadline_ns, 0);
	if (status == ESCROW_IN_PROGRESS)
		return status;
	g_mutex_lock(&host->lock);
	g->drains -= g->drains > 0; /* it may have answered what it refused */
	g_mutex_unlock(&host->lock);
	return status;
}

escrow_status escrow_drain(struct escrow_host_engine *host, uint64_t peer, uint64_t deadline_ns)
{
	struct host_generation *current;
	struct inside_mark mark;
	escrow_status status = host_check(host);
	uint64_t handle;

	if (status != ESCROW_OK)
		return status;
	status = host_may_change(host, NULL);
	current = host_enter(host, &mark);
	handle = peer ? host_peer_handle(host, current, peer) : 0;
	if (peer && !handle)
		status = ESCROW_E_INVALID;
	else if (status != ESCROW_E_BUSY && peer)
		status = current->ops->drain(current->engine, handle, deadline_ns, 0);
	else if (status != ESCROW_E_BUSY)
		status = engine_drain_all(host, current, deadline_ns);
	inside_leave(mark);
	return status;
}
