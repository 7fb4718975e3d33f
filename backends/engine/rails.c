/* SPDX-License-Identifier: BSD-2-Clause */
/* rails.c - org.escrow.rails/1: what an engine would find, while none is open; how many of what it may have. */
#include <stdio.h>
#include <string.h>

#include "backends/engine/entry.h"
#include "backends/engine/transfer.h"

uint64_t en_most_connections(const struct config *config)
{
	uint64_t most = config->quota[ESCROW_CHARGE_CONNECTIONS];
	uint64_t peer = config->peer_quota[ESCROW_CHARGE_CONNECTIONS];

	most = most ? most : UINT64_MAX;
	return peer && peer < most ? peer : most;
}

uint64_t en_most_rails(const struct config *config, const char **key)
{
	uint64_t most = en_most_connections(config);

	*key = most == config->quota[ESCROW_CHARGE_CONNECTIONS] ? "quota.connections"
								: "peer_quota.connections";
	if (config->max_rails && config->max_rails <= most) {
		most = config->max_rails;
		*key = "max_rails";
	}
	return most;
}

/*
 * Of all grants: a window for each connection, or a registration of its own in each device.  The ledger has
 * 2^20 places for controls, those of peers among them.
 */
#define MOST_PLACES 983040u

escrow_status en_fit_grants(const struct escrow_engine *e, struct escrow_error *error)
{
	bool conns = e->conns_per_peer >= e->ncontexts;
	uint32_t each = conns ? e->conns_per_peer : e->ncontexts, most = MOST_PLACES / each;

	if (e->config.max_grants <= most)
		return ESCROW_OK;
	return args_fail(error, ESCROW_E_INVALID,
			 "max_grants is %llu; with %u %s, allowed are at most %u",
			 (unsigned long long)e->config.max_grants, each,
			 conns ? "connections a peer" : "devices", most);
}

/* As it was published first: what a caller of any time has room for. */
#define RAIL_FIRST_SIZE                                                                            \
	(offsetof(struct escrow_rail, why) + sizeof(((struct escrow_rail *)NULL)->why))

struct listing {
	struct escrow_rail *rails; /* the caller's, `stride` apart */
	uint32_t max, stride;
	uint32_t n, used;
	uint64_t most;
	const char *key;
};

/* Numbers follow the order in which they are told, as those of an engine. */
static void told(void *ctx, const struct escrow_rail *from)
{
	struct listing *l = ctx;
	struct escrow_rail rail = *from;

	rail.number = UINT32_MAX;
	if (rail.use == ESCROW_RAIL_USED && l->used >= l->most) {
		rail.use = ESCROW_RAIL_UNUSED;
		snprintf(rail.why, sizeof(rail.why), "%s allows %llu", l->key,
			 (unsigned long long)l->most);
	} else if (rail.use == ESCROW_RAIL_USED) {
		rail.number = l->used++;
	}
	if (l->n < l->max)
		memcpy((char *)l->rails + (size_t)l->n * l->stride, &rail,
		       l->stride < sizeof(rail) ? l->stride : sizeof(rail));
	l->n++;
}

int32_t engine_list_rails(const struct engine_backend *self, const struct escrow_open_args *from,
			  struct escrow_rail *rails, uint32_t max, uint32_t stride,
			  struct escrow_error *error)
{
	struct listing l = {.rails = rails, .max = max, .stride = stride};
	const struct native_rail_report report = {told, &l};
	struct native_open_args na = {0};
	struct escrow_open_args a;
	struct escrow_host host;
	struct config config;
	char name[64];
	escrow_status st;

	if (max && (!rails || !args_stride_ok(stride, RAIL_FIRST_SIZE)))
		return args_fail(error, ESCROW_E_INVALID,
				 "%u rails in %s with stride %u; at least %zu, a multiple of 8, "
				 "is allowed",
				 max, rails ? "a table" : "no table", stride, RAIL_FIRST_SIZE);
	st = en_open_check(from, &a, &host, name, error);
	if (st < 0 || (st = config_read(&a, self->native, &config, error)) < 0)
		return st;
	l.most = en_most_rails(&config, &l.key);
	na.host = a.host;
	na.kv = config.native;
	na.nkv = config.nnative;
	na.engine_name = name;
	st = self->native->list_rails(&na, &report, error);
	return st < 0 ? st : (int32_t)l.n;
}
