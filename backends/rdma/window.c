/* SPDX-License-Identifier: BSD-2-Clause */
#include "backends/rdma/rdma.h"
#include "backends/rdma/verbs.h"

int window_alloc(struct native_context *c, struct native_window **out)
{
	const struct escrow_host *host = c->native->host;
	struct native_window *w = host->alloc(host->ctx, sizeof(*w), 8);
	int rc;

	if (!w)
		return ENOMEM;
	w->context = c;
	rc = verbs_alloc_mw(c->native->log, c->pd, &w->mw);
	if (rc) {
		host->free(host->ctx, w);
		return rc;
	}
	*out = w;
	return 0;
}

int window_dealloc(struct native_window *w)
{
	const struct escrow_host *host = w->context->native->host;
	int rc = verbs_dealloc_mw(w->context->native->log, w->mw);

	if (!rc)
		host->free(host->ctx, w);
	return rc;
}

uint32_t window_key(const struct native_window *w)
{
	return w->mw->rkey;
}
