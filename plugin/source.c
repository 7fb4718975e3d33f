/* SPDX-License-Identifier: BSD-2-Clause */
/* The GSource: prepare arms, check looks at the descriptor, dispatch polls (see escrow.h). */
#include "plugin/host.h"

#define SOURCE_EVENTS 64u

struct source {
	GSource base;
	struct escrow_host_engine *host;
	gpointer tag;
	escrow_status armed; /* what arm said, when it was last asked */
	void (*each)(void *ctx, const struct escrow_event *event);
	void *ctx;
};

/* E_STATE: nothing will ever come (CLOSED, the child of a fork), and the descriptor says nothing. */
static gboolean source_is_due(const struct source *source)
{
	return source->armed == ESCROW_EVENTS_PENDING || source->armed == ESCROW_E_STATE;
}

static gboolean source_prepare(GSource *base, gint *timeout)
{
	struct source *source = (struct source *)base;

	*timeout = -1;
	source->armed = escrow_arm(source->host);
	return source_is_due(source);
}

static gboolean source_check(GSource *base)
{
	struct source *source = (struct source *)base;

	return source_is_due(source) || (g_source_query_unix_fd(base, source->tag) & G_IO_IN);
}

static gboolean source_dispatch(GSource *base, GSourceFunc callback, gpointer data)
{
	struct source *source = (struct source *)base;
	struct escrow_event events[SOURCE_EVENTS];
	int32_t n = escrow_poll(source->host, events, SOURCE_EVENTS);
	bool over = n <= 0 && source->armed == ESCROW_E_STATE;

	/* the callback may destroy the source: then nobody wants the rest */
	for (int32_t i = 0; i < n && !g_source_is_destroyed(base); i++) {
		over = events[i].kind == ESCROW_EV_CLOSED;
		source->each(source->ctx, &events[i]);
	}
	return over ? G_SOURCE_REMOVE : G_SOURCE_CONTINUE;
}

struct _GSource *escrow_source_new(struct escrow_host_engine *host,
				   void (*each)(void *ctx, const struct escrow_event *event),
				   void *ctx)
{
	static GSourceFuncs functions = {
		.prepare = source_prepare, .check = source_check, .dispatch = source_dispatch};
	struct source *source;
	GSource *base;
	int32_t fd;

	if (!host || !each)
		return NULL;
	fd = escrow_event_fd(host);
	if (fd < 0)
		return NULL;
	base = g_source_new(&functions, sizeof(*source));
	source = (struct source *)base;
	source->host = host;
	source->each = each;
	source->ctx = ctx;
	source->tag = g_source_add_unix_fd(base, fd, G_IO_IN);
	g_source_set_name(base, "escrow");
	return base;
}
