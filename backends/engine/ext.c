/* SPDX-License-Identifier: BSD-2-Clause */
/* ext.c - the ledger as seen from outside, and the extensions: counters, fence, and which there are. */
#include "backends/engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "abi/revision1.h"

static void per_device(struct escrow_engine *e, struct escrow_charge *charges, uint32_t stride,
		       uint32_t n)
{
	uint32_t i;

	engine_lock(e);
	for (i = 0; i < n; i++) {
		struct escrow_charge *c =
			(struct escrow_charge *)(void *)((char *)charges + (size_t)i * stride);

		if (c->kind > ESCROW_CHARGE_GRANTED_BYTES)
			continue;
		if (c->limit != UINT64_MAX)
			c->limit /= e->ncontexts;
		en_quota_count(e, c);
	}
	engine_unlock(e);
}

int32_t engine_charges(struct escrow_engine *e, struct escrow_charge *charges, uint32_t max,
		       uint32_t stride)
{
	int32_t n;

	if (e && !engine_here(e))
		return ESCROW_E_STATE;
	if (max && (!charges || !args_stride_ok(stride, ABI_R1(escrow_charge))))
		return ESCROW_E_INVALID;
	n = ledger_charges(e ? e->ledger : NULL, charges, max, stride);
	if (e && e->ncontexts > 1 && n > 0)
		per_device(e, charges, stride, (uint32_t)n < max ? (uint32_t)n : max);
	return n;
}

int32_t engine_records(struct escrow_engine *e, uint64_t *cursor, struct escrow_record *records,
		       uint32_t max, uint32_t stride)
{
	if (e && !engine_here(e))
		return ESCROW_E_STATE;
	if (!cursor || (max && (!records || !args_stride_ok(stride, ABI_R1(escrow_record)))))
		return ESCROW_E_INVALID;
	return max ? ledger_records(e ? e->ledger : NULL, cursor, records, max, stride) : 0;
}

/* ---- org.escrow.counters/1 ------------------------------------------------------------------------ */
#define COUNTER(member, name)                                                                      \
	{                                                                                          \
		name, offsetof(struct counters, member)                                            \
	}
static const struct {
	const char *name;
	size_t at;
} own_counters[] = {
	COUNTER(ops_accepted, "ops.accepted"),
	COUNTER(ops_done, "ops.done"),
	COUNTER(bytes_read, "bytes.read"),
	COUNTER(bytes_written, "bytes.written"),
	COUNTER(posts, "posts"),
	COUNTER(completions, "completions"),
	COUNTER(receives, "receives"),
	COUNTER(anomalies, "completions.anomalous"),
	COUNTER(again, "transfer.again"),
	COUNTER(native_errors, "native.errors"),
	COUNTER(refused_connects, "connects.refused"),
};
#define NCOUNTERS (sizeof(own_counters) / sizeof(own_counters[0]))

/* The health of a rail: five counters behind the engine's own. */
#define NRAIL 5u
static void rail_counter(struct escrow_engine *e, uint32_t i, struct escrow_counter *c)
{
	static const char *const names[] = {"up", "bytes", "connections.lost",
					    "connections.returned", "connections.renewed"};
	const struct counters *all = &e->counters;
	uint32_t rail = i / NRAIL;

	switch (i % NRAIL) {
	case 0:
		/* Whose news are taken under the lock: what says 0 has shut the gates of its connections, too. */
		engine_lock(e);
		c->value = atomic_load(&e->rail_up[rail]);
		engine_unlock(e);
		break;
	case 1:
		c->value = atomic_load(&all->rail_bytes[rail]);
		break;
	case 2:
		c->value = atomic_load(&all->rail_lost[rail]);
		break;
	case 3:
		c->value = atomic_load(&all->rail_back[rail]);
		break;
	default:
		c->value = atomic_load(&all->rail_renewed[rail]);
		break;
	}
	snprintf(c->name, sizeof(c->name), "rail.%u.%s", rail, names[i % NRAIL]);
}

/* What one of each costs in memory, last. */
#define NMEMORY 4u
static void memory_counter(const struct escrow_engine *e, uint32_t i, struct escrow_counter *c)
{
	static const char *const names[] = {"slice_slot", "grant", "connection", "messages"};
	struct footprint f;

	en_footprint(e, &f);
	c->value = i == 0 ? f.slice_slot : i == 1 ? f.grant : i == 2 ? f.connection : f.messages;
	snprintf(c->name, sizeof(c->name), "memory.%s", names[i]);
}

static int32_t counters_read(struct escrow_engine *e, struct escrow_counter *to, uint32_t max,
			     uint32_t stride)
{
	uint32_t n, i, rails;

	if (!engine_here(e))
		return ESCROW_E_STATE;
	rails = NCOUNTERS + NRAIL * e->nrails;
	n = rails + NMEMORY;
	if (max && (!to || !args_stride_ok(stride, ABI_R1(escrow_counter))))
		return ESCROW_E_INVALID;
	for (i = 0; i < n && i < max; i++) {
		struct escrow_counter *c =
			(struct escrow_counter *)(void *)((char *)to + (size_t)i * stride);

		memset(c, 0, ABI_R1(escrow_counter));
		if (i >= rails) {
			memory_counter(e, i - rails, c);
			continue;
		}
		if (i >= NCOUNTERS) {
			rail_counter(e, i - NCOUNTERS, c);
			continue;
		}
		c->value = atomic_load_explicit(
			(_Atomic uint64_t *)(void *)((char *)&e->counters + own_counters[i].at),
			memory_order_relaxed);
		snprintf(c->name, sizeof(c->name), "%s", own_counters[i].name);
	}
	return (int32_t)n;
}

const struct escrow_counters counters_extension = {
	.size = sizeof(struct escrow_counters),
	.read = counters_read,
};

/* ---- org.escrow.fence/1 ------------------------------------------------------------------------------ */
static void collect_all(struct escrow_engine *e)
{
	uint32_t i, k;

	for (i = 0; i < e->config.max_peers; i++)
		for (k = 0; k < e->peers[i].nconns; k++) {
			struct conn *c = &e->peers[i].conns[k];

			if (c->stage > CONN_CHARGED && c->stage != CONN_GONE)
				en_collect(c);
		}
}

void en_fence_apply(struct escrow_engine *e)
{
	uint32_t i;

	if (!e->fenced)
		return;
	for (i = 0; i < e->nlanes; i++)
		en_lane_lock(&e->lanes[i]);
	while (ledger_fenced(e->ledger, e->incarnation, ESCROW_RECEIPT_FUNCTION_FENCED) > 0)
		collect_all(e);
	for (i = 0; i < e->nlanes; i++)
		en_lane_unlock(&e->lanes[i]);
}

/*
 * The function of its devices was reset: they are lost, if that was not known yet.  As nothing new comes about in them,
 * the receipt is good for what gets stuck later, too; the runner applies it, which may be in the middle of a step now.
 */
static void fence_own(struct escrow_engine *e)
{
	uint32_t i, state = engine_state(e);

	if (state == ESCROW_STATE_CLOSED)
		return;
	e->fenced = 1;
	for (i = 0; i < e->ncontexts && state != ESCROW_STATE_QUARANTINED; i++)
		atomic_store(&e->contexts[i].lost, 1);
}

static void fence_engine(struct escrow_engine *e, const uint8_t *incarnation, uint32_t receipt)
{
	engine_lock(e);
	if (receipt == ESCROW_RECEIPT_PROCESS_REAPED)
		ledger_fenced(e->ledger, incarnation, receipt);
	else if (memcmp(incarnation, e->incarnation, sizeof(e->incarnation)) == 0)
		fence_own(e);
	en_work(e, &e->work);
	engine_unlock(e);
}

static escrow_status fenced(struct escrow_engine *e, const uint8_t *incarnation, uint32_t receipt)
{
	if (e && !engine_here(e))
		return ESCROW_E_STATE;
	if (!incarnation ||
	    (receipt != ESCROW_RECEIPT_PROCESS_REAPED && receipt != ESCROW_RECEIPT_FUNCTION_FENCED))
		return ESCROW_E_INVALID;
	if (e)
		fence_engine(e, incarnation, receipt);
	else
		ledger_fenced(NULL, incarnation, receipt);
	return ESCROW_OK;
}

const struct escrow_fence fence_extension = {
	.size = sizeof(struct escrow_fence),
	.fenced = fenced,
};

/* ---- Which there are ------------------------------------------------------------------------------------ */
const void *engine_get_extension(struct escrow_engine *e, const char *id)
{
	if (!engine_here(e) || !id)
		return NULL;
	if (strcmp(id, ESCROW_COUNTERS_ID) == 0)
		return &counters_extension;
	if (strcmp(id, ESCROW_FENCE_ID) == 0)
		return &fence_extension;
	if (strcmp(id, ESCROW_FAULT_ID) == 0)
		return e->config.test_faults ? &fault_extension : NULL;
	if (strcmp(id, ESCROW_NOTIFY_ID) == 0)
		return en_notify_table();
	return NULL;
}
