/* SPDX-License-Identifier: BSD-2-Clause */
/* Looking in: charges, records, extensions, and the ledger of the process. */
#include "plugin/host.h"
#include "plugin/withheld.h"

int32_t escrow_charges(struct escrow_host_engine *host, struct escrow_charge *charges, uint32_t max)
{
	struct host_generation *g;
	struct inside_mark mark;
	int32_t n = host_check(host);

	if (n != ESCROW_OK)
		return n;
	g = host_enter(host, &mark);
	n = g->ops->charges(g->engine, charges, max, sizeof(*charges));
	inside_leave(mark);
	return n;
}

int32_t escrow_records(struct escrow_host_engine *host, uint64_t *cursor,
		       struct escrow_record *records, uint32_t max)
{
	struct host_generation *g;
	struct inside_mark mark;
	int32_t n = host_check(host);

	if (n != ESCROW_OK)
		return n;
	g = host_enter(host, &mark);
	n = g->ops->records(g->engine, cursor, records, max, sizeof(*records));
	inside_leave(mark);
	return n;
}

struct escrow_engine *escrow_backend_engine(struct escrow_host_engine *host,
					    const struct escrow_ops **ops)
{
	struct escrow_engine *engine;
	struct host_generation *g;
	struct inside_mark mark;

	if (host_check(host) != ESCROW_OK)
		return NULL;
	g = host_enter(host, &mark);
	engine = g->engine;
	if (ops)
		*ops = g->ops;
	inside_leave(mark);
	return engine;
}

static uint64_t look_handle(const struct table_entry *entry, uint64_t handle,
			    const _Atomic uint64_t *backend)
{
	uint64_t found = atomic_load(backend);

	return table_was(entry, handle) ? found : 0;
}

static uint64_t look_op(struct escrow_host_engine *host, uint64_t handle)
{
	struct lend_op *op = lend_find(&host->lend, handle);
	uint64_t found = op ? atomic_load(&op->backend_op) : 0;

	return lend_find(&host->lend, handle) ? found : 0;
}

uint64_t escrow_backend_handle(struct escrow_host_engine *host, uint64_t handle)
{
	const struct host_generation *g;
	struct inside_mark mark;
	uint64_t found = 0;
	uint32_t column;

	if (host_check(host) != ESCROW_OK)
		return 0;
	g = host_enter(host, &mark);
	column = g->column;
	if (handle >> 60 == TABLE_REGION) {
		struct host_region *region = table_find(&host->regions, handle);

		if (region)
			found = region_handle_in(region, g);
		if (!region || !table_was(&region->head, handle))
			found = 0;
	} else if (handle >> 60 == TABLE_PEER) {
		struct host_peer *peer = table_find(&host->peers, handle);

		if (peer)
			found = look_handle(&peer->head, handle, &peer->backend[column]);
	} else if (handle >> 60 == TABLE_GRANT) {
		struct host_grant *grant = table_find(&host->grants, handle);

		if (grant)
			found = look_handle(&grant->head, handle, &grant->backend[column]);
	} else if (handle >> 60 == TABLE_REMOTE) {
		struct host_remote *remote = table_find(&host->remotes, handle);

		if (remote)
			found = look_handle(&remote->head, handle, &remote->backend[column]);
	} else if (handle >> 60 == TABLE_OP) {
		found = look_op(host, handle);
	}
	inside_leave(mark);
	return found;
}

const void *escrow_get_extension(struct escrow_host_engine *host, const char *id)
{
	struct host_generation *g;
	struct inside_mark mark;
	const void *table;

	if (host_check(host) != ESCROW_OK || !id)
		return NULL;
	g = host_enter(host, &mark);
	table = g->ops->get_extension(g->engine, id);
	inside_leave(mark);
	return table;
}

/* ---- The ledger of the process ----------------------------------------------------------------- */
struct look {
	void (*each)(void *ctx, const struct escrow_ledger_engine *entry);
	void *ctx;
	int32_t n;
};

static void look_at_generation(struct look *look, struct escrow_host_engine *host,
			       struct host_generation *g)
{
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_ledger_engine entry = {
		.generation = g->number,
		.current = g == atomic_load(&host->current),
		.regions = atomic_load(&host->regions.used),
		.peers = atomic_load(&host->peers.used),
		.grants = atomic_load(&host->grants.used),
		.remotes = atomic_load(&host->remotes.used),
		.ops = lend_used(&host->lend),
		.ops_table = g->ops,
		.engine = g->engine,
	};

	if (g->ops->query(g->engine, &limits) == ESCROW_OK)
		entry.state = limits.state;
	g_strlcpy(entry.backend, module_backend(g->module)->id, sizeof(entry.backend));
	g_strlcpy(entry.engine_name, host->name, sizeof(entry.engine_name));
	look->n++;
	look->each(look->ctx, &entry);
}

static void look_at_engine(void *ctx, struct escrow_host_engine *host)
{
	struct inside_mark mark = inside_enter(&host->inside);

	for (uint32_t i = 0; i <= HOST_GENERATIONS; i++) {
		struct host_generation *g = atomic_load(&host->generations[i]);

		if (g)
			look_at_generation(ctx, host, g);
	}
	inside_leave(mark);
}

static void look_at_module(void *ctx, struct escrow_module *module)
{
	struct look *look = ctx;
	struct escrow_ledger_engine entry = {.ops_table = module_ops(module),
					     .state = ESCROW_STATE_QUARANTINED};
	struct escrow_record record;
	uint64_t cursor = 0;

	if (entry.ops_table->records(NULL, &cursor, &record, 1, sizeof(record)) <= 0)
		return;
	g_strlcpy(entry.backend, module_backend(module)->id, sizeof(entry.backend));
	look->n++;
	look->each(look->ctx, &entry);
}

int32_t escrow_ledger(void (*each)(void *ctx, const struct escrow_ledger_engine *entry), void *ctx)
{
	struct look look = {.each = each, .ctx = ctx};

	if (!each)
		return ESCROW_E_INVALID;
	if (here_is_child())
		return ESCROW_E_STATE;
	withheld_each_engine(look_at_engine, &look);
	module_each(look_at_module, &look);
	return look.n;
}
