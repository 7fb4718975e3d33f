/* SPDX-License-Identifier: BSD-2-Clause */
/* Open, release: the only allocation and the only free there is. */
#include "backends/ledger/ledger-int.h"

#include <string.h>

static void *block(struct ledger *l, uint64_t count, uint64_t size)
{
	void *p;

	if (count == 0)
		return NULL;
	p = l->host.alloc(l->host.ctx, count * size, 64);
	if (!p)
		return NULL;
	memset(p, 0, count * size);
	l->blocks[l->nblocks++] = p;
	l->bytes += count * size;
	return p;
}

void lg_free(struct ledger *l)
{
	struct escrow_host host = l->host;

	while (l->nblocks > 0)
		host.free(host.ctx, l->blocks[--l->nblocks]);
	host.free(host.ctx, l);
}

static escrow_status check_config(const struct ledger_config *c, struct escrow_error *error)
{
	const struct {
		const char *name;
		uint64_t value, least, most;
	} ranges[] = {
		{"max_contexts", c->max_contexts, 1, 256},
		{"max_lanes", c->max_lanes, 1, LEDGER_MAX_LANES},
		{"max_connections", c->max_connections, 1, 1u << 20},
		{"max_regions", c->max_regions, 1, 1u << 20},
		{"max_controls", c->max_controls, 0, 1u << 20},
		{"max_windows", c->max_windows, 0, 1u << 22},
		{"max_grants", c->max_grants, 0, 1u << 22},
		{"max_accounts", c->max_accounts, 1, 1u << 20},
		{"max_names", c->max_names, 1, 1u << 20},
		{"ops_per_lane", c->ops_per_lane, 1, 1u << 18},
		{"sq_depth", c->sq_depth, 2, 1u << 16},
		{"log_entries", c->log_entries, 0, 1u << 24},
		{"stuck_percent", c->stuck_percent, 1, 100},
		{"window_binds", c->window_binds, 0, LEDGER_MAX_BINDS},
	};

	if (!c->host || !c->host->alloc || !c->host->free || !c->host->now_ns)
		return lg_fail(error, ESCROW_E_INVALID, "ledger: host needs alloc, free, now_ns");
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		if (ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most)
			return lg_fail(error, ESCROW_E_INVALID,
				       "ledger: %s is %llu; allowed are %llu to %llu",
				       ranges[i].name, (unsigned long long)ranges[i].value,
				       (unsigned long long)ranges[i].least,
				       (unsigned long long)ranges[i].most);
	}
	if (((uint64_t)c->max_lanes * c->ops_per_lane) > SLOT_MASK)
		return lg_fail(error, ESCROW_E_INVALID,
			       "ledger: max_lanes * ops_per_lane exceeds %llu",
			       (unsigned long long)SLOT_MASK);
	return ESCROW_OK;
}

static bool is_limit(uint64_t limit)
{
	return limit && limit != LEDGER_NO_LIMIT;
}

/* Owner slots by kind, parents before children; the rings' size. */
static escrow_status lay_out(struct ledger *l, struct escrow_error *error)
{
	const struct ledger_config *c = &l->config;
	const uint32_t order[][2] = {
		{ESCROW_OWNER_ENGINE, 1},
		{ESCROW_OWNER_CONTEXT, c->max_contexts},
		{ESCROW_OWNER_LANE, c->max_lanes},
		{ESCROW_OWNER_CONNECTION, c->max_connections},
		{ESCROW_OWNER_REGION, c->max_regions},
		{ESCROW_OWNER_CONTROL, c->max_controls}, /* next to regions: one index for both */
		{ESCROW_OWNER_PEER, c->max_accounts},
		{ESCROW_OWNER_GRANT, c->max_grants},
		{ESCROW_OWNER_WINDOW, c->max_windows}, /* last: they have no spans */
	};
	uint32_t next = 0;

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		l->base[order[i][0]] = next;
		l->max[order[i][0]] = order[i][1];
		next += order[i][1];
	}
	l->nowners = next;
	l->nregions = c->max_regions + c->max_controls;
	l->region_base = l->base[ESCROW_OWNER_REGION];
	l->conn_base = l->base[ESCROW_OWNER_CONNECTION];
	l->nops = c->max_lanes * c->ops_per_lane;
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t limit = (i ? c->name_limit : c->limit)[ESCROW_CHARGE_OPS];

		l->ops_limited |= limit && limit < l->nops;
	}
	l->ops_slowly = l->ops_limited;
	for (uint32_t kind = 1; kind < LEDGER_KINDS; kind++)
		l->limited |= (uint32_t)(is_limit(c->limit[kind]) || is_limit(c->name_limit[kind]))
			      << kind;
	if (c->max_windows)
		for (l->nbuckets = 1; l->nbuckets <= c->max_windows / 2;)
			l->nbuckets <<= 1;
	while ((1u << l->shift) < c->sq_depth)
		l->shift++;
	l->ring = 1u << l->shift;
	l->ndebts = c->max_connections << l->shift;
	if ((uint64_t)next > SLOT_MASK || ((uint64_t)c->max_connections << l->shift) > SLOT_MASK)
		return lg_fail(error, ESCROW_E_INVALID,
			       "ledger: %u owners and %u rings of %u exceed %llu slots", next,
			       c->max_connections, l->ring, (unsigned long long)SLOT_MASK);
	return ESCROW_OK;
}

static bool allocate(struct ledger *l, uint32_t log_size)
{
	const struct ledger_config *c = &l->config;
	uint32_t *loans;
	struct ledger_log_entry *log;

	/* A table of none is NULL, and nobody looks into it. */
#define NEED(field, count)                                                                         \
	do {                                                                                       \
		uint64_t want = (count);                                                           \
		(field) = block(l, want, sizeof(*(field)));                                        \
		if (want > 0 && !(field))                                                          \
			return false;                                                              \
	} while (0)
	NEED(l->owners, l->nowners);
	NEED(l->spans, l->base[ESCROW_OWNER_WINDOW]);
	NEED(l->contexts, c->max_contexts);
	NEED(l->lanes, c->max_lanes);
	NEED(l->conns, c->max_connections);
	NEED(l->windows, c->max_windows);
	NEED(l->grants, c->max_grants);
	NEED(l->peers, c->max_accounts);
	NEED(l->names, c->max_names + 1u);
	NEED(l->holdouts, c->max_windows);
	NEED(l->buckets, l->nbuckets);
	NEED(l->ops, c->max_lanes * c->ops_per_lane);
	NEED(l->debts, (uint64_t)c->max_connections << l->shift);
	NEED(loans, (uint64_t)c->max_lanes * l->nregions);
	NEED(l->lendable, l->nregions);
	NEED(l->keyed, c->max_regions);
	NEED(l->withdrawn, l->nregions);
	NEED(l->name_ops, c->max_names + 1u);
	NEED(log, (uint64_t)log_size * (c->max_lanes + 1u));
#undef NEED
	for (uint32_t i = 0; i < c->max_lanes; i++) {
		l->lanes[i].loans = loans + (uint64_t)i * l->nregions;
		l->lanes[i].log.entries = log ? log + (uint64_t)(i + 1) * log_size : NULL;
		l->lanes[i].log.mask = log_size ? log_size - 1u : 0;
	}
	l->log.entries = log;
	l->log.mask = log_size ? log_size - 1u : 0;
	return true;
}

static void thread_pools(struct ledger *l)
{
	const struct ledger_config *c = &l->config;

	for (uint32_t kind = 1; kind < KINDS; kind++) {
		l->free[kind] = NONE;
		for (uint32_t i = l->max[kind]; i-- > 0;) {
			l->owners[l->base[kind] + i].next = l->free[kind];
			l->free[kind] = l->base[kind] + i;
		}
	}
	l->holdout_free = NONE;
	for (uint32_t i = 0; i < l->nbuckets; i++)
		l->buckets[i] = NONE;
	for (uint32_t i = c->max_windows; i-- > 0;) {
		l->holdouts[i].next = l->holdout_free;
		l->holdout_free = i;
	}
	for (uint32_t i = 0; i < c->max_connections; i++) {
		l->conns[i].ring = l->debts + ((uint64_t)i << l->shift);
		l->conns[i].mask = l->ring - 1u;
		l->conns[i].wr_base = handle_make(KIND_WR, 0, i << l->shift);
	}
	for (uint32_t i = 0; i < c->max_lanes; i++) {
		struct ledger_lane *lane = &l->lanes[i];

		lane->ledger = l;
		lane->index = i;
		lane->op_free = NONE;
		lane->op_returned = NONE;
		lane->ops_left = c->ops_per_lane;
		for (uint32_t j = c->ops_per_lane; j-- > 0;) {
			uint32_t op = i * c->ops_per_lane + j;

			l->ops[op].handle = handle_make(KIND_OP, 1, op);
			l->ops[op].home = i;
			l->ops[op].state = LEDGER_OP_DONE;
			l->ops[op].next = lane->op_free;
			lane->op_free = op;
		}
	}
}

escrow_status ledger_open(const struct ledger_config *config, struct ledger **out,
			  struct escrow_error *error)
{
	escrow_status status = check_config(config, error);
	uint32_t log_size = 0;
	struct ledger *l;

	if (status)
		return status;
	l = config->host->alloc(config->host->ctx, sizeof(*l), 64);
	if (!l)
		return lg_fail(error, ESCROW_E_NO_MEMORY, "ledger: no memory for itself");
	memset(l, 0, sizeof(*l));
	l->bytes = sizeof(*l);
	l->config = *config;
	l->host = *config->host;
	l->config.host = &l->host;
	if (!l->config.window_binds)
		l->config.window_binds = LEDGER_MAX_BINDS;
	l->budget = lg_budget_of(&l->host);
	if (config->log_entries)
		for (log_size = 1; log_size < config->log_entries;)
			log_size <<= 1;
	status = lay_out(l, error);
	if (status)
		goto free_ledger;
	if (!allocate(l, log_size)) {
		status = lg_fail(error, ESCROW_E_NO_MEMORY,
				 "ledger: no memory after %llu bytes of its tables",
				 (unsigned long long)l->bytes);
		goto free_ledger;
	}
	thread_pools(l);
	lg_owner_take(l, ESCROW_OWNER_ENGINE, 0);
	l->owners[0].since_ns = l->host.now_ns(l->host.ctx);
	*out = l;
	return ESCROW_OK;

free_ledger:
	lg_free(l);
	return status;
}

/*
 * An account that nothing is charged to any more: a fence released what it was kept for, after its
 * peer had been told down.
 */
static bool is_empty_account(const struct ledger_owner *o)
{
	return o->kind == ESCROW_OWNER_PEER && !o->stuck && !o->children && !o->pins;
}

/* What keeps an engine from being released: the first owner that lives and is not stuck. */
static bool somebody_lives(const struct ledger *l, uint32_t *empty_out)
{
	*empty_out = 0;
	for (uint32_t i = 1; i < l->nowners; i++) {
		if (is_empty_account(&l->owners[i]))
			(*empty_out)++;
		else if (l->owners[i].kind && !l->owners[i].stuck)
			return true;
	}
	return false;
}

void ledger_abandon(struct ledger *l)
{
	lg_lock(l);
	for (uint32_t i = 1; i < l->nowners; i++) {
		const struct ledger_owner *o = &l->owners[i];

		if (o->kind && o->kind != ESCROW_OWNER_GRANT && !o->stuck && !is_empty_account(o))
			lg_owner_quarantine(l, i, "the engine was released");
	}
	lg_unlock(l);
}

escrow_status ledger_release(struct ledger *l)
{
	uint32_t empty;

	if (somebody_lives(l, &empty))
		return ESCROW_E_BUSY;
	if (l->owners[0].children == empty && l->owners[0].pins == 0) {
		lg_free(l);
		return ESCROW_OK;
	}
	lg_residue_add(l);
	return ESCROW_E_UNQUIESCED;
}

void ledger_hold(struct ledger *l)
{
	lock_take(&l->lock);
	PUT(l->holder, pthread_self());
}

uint64_t lg_read_now(struct ledger *l)
{
	uint64_t now = l->host.now_ns(l->host.ctx);

	if (GET(l->holder))
		l->now = now;
	return now;
}

void ledger_let(struct ledger *l)
{
	l->now = 0;
	PUT(l->holder, 0);
	lock_give(&l->lock);
}

uint64_t ledger_engine(const struct ledger *l)
{
	return lg_owner_handle(l, 0);
}

void ledger_footprint(const struct ledger *l, struct ledger_footprint *out)
{
	uint64_t spanned = sizeof(struct ledger_owner) + sizeof(struct ledger_span);

	out->slice = sizeof(struct ledger_debt);
	out->window = sizeof(struct ledger_owner) + sizeof(struct ledger_window) +
		      sizeof(struct ledger_holdout) + sizeof(uint32_t);
	out->grant = spanned + sizeof(struct ledger_grant) + out->window;
	out->connection = spanned + sizeof(struct ledger_conn);
	out->total = l->bytes;
}
