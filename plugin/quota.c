/* SPDX-License-Identifier: BSD-2-Clause */
/* Quotas of the process: no backend sees the others, the library sees all. */
#include <stddef.h>
#include <string.h>

#include <glib.h>

#include "plugin/error.h"
#include "plugin/host.h"
#include "plugin/services.h"

#define QUOTA_FIRST_SIZE                                                                           \
	offsetof(struct escrow_quota, granted_bytes) /* as it was published first */

static const struct {
	const char *name;
	size_t at;
} kinds[] = {
	{"bytes", offsetof(struct escrow_quota, bytes)},
	{"regions", offsetof(struct escrow_quota, regions)},
	{"grants", offsetof(struct escrow_quota, grants)},
	{"granted_bytes", offsetof(struct escrow_quota, granted_bytes)},
	{"peers", offsetof(struct escrow_quota, peers)},
	{"connections", offsetof(struct escrow_quota, connections)},
	{"sq_slots", offsetof(struct escrow_quota, sq_slots)},
	{"cq_slots", offsetof(struct escrow_quota, cq_slots)},
};

static GMutex quota_lock;
static struct escrow_quota limits = {.size = sizeof(limits),
				     .bytes = UINT64_MAX,
				     .regions = UINT64_MAX,
				     .grants = UINT64_MAX,
				     .granted_bytes = UINT64_MAX,
				     .peers = UINT64_MAX,
				     .ops = UINT64_MAX,
				     .connections = UINT64_MAX,
				     .sq_slots = UINT64_MAX,
				     .cq_slots = UINT64_MAX};
static struct escrow_quota used = {.size = sizeof(used)};

/* Ops come and go without a lock. */
static _Atomic uint64_t ops_used, ops_limit = UINT64_MAX;

static uint64_t *quota_at(struct escrow_quota *q, uint32_t kind)
{
	return (uint64_t *)(void *)((char *)q + kinds[kind].at);
}

static uint64_t quota_of(const struct escrow_quota *q, uint32_t kind)
{
	return *(const uint64_t *)(const void *)((const char *)q + kinds[kind].at);
}

/* Under lock. */
static void quota_add(const struct escrow_quota *more)
{
	for (uint32_t i = 0; i < G_N_ELEMENTS(kinds); i++)
		*quota_at(&used, i) += quota_of(more, i);
}

escrow_status quota_take(const struct escrow_quota *more, struct escrow_error *error)
{
	escrow_status status = ESCROW_OK;

	g_mutex_lock(&quota_lock);
	for (uint32_t i = 0; i < G_N_ELEMENTS(kinds) && status == ESCROW_OK; i++) {
		uint64_t want = quota_of(more, i), have = quota_of(&used, i);
		uint64_t limit = quota_of(&limits, i);

		if (want && (have > limit || want > limit - have))
			status = error_set(error, ESCROW_E_QUOTA,
					   "%s of the process: %" G_GUINT64_FORMAT
					   " more than the %" G_GUINT64_FORMAT
					   " in use exceed %" G_GUINT64_FORMAT,
					   kinds[i].name, want, have, limit);
	}
	if (status == ESCROW_OK)
		quota_add(more);
	g_mutex_unlock(&quota_lock);
	return status;
}

void quota_count(const struct escrow_quota *more)
{
	g_mutex_lock(&quota_lock);
	quota_add(more);
	g_mutex_unlock(&quota_lock);
}

void quota_give(const struct escrow_quota *less)
{
	g_mutex_lock(&quota_lock);
	for (uint32_t i = 0; i < G_N_ELEMENTS(kinds); i++)
		*quota_at(&used, i) -= MIN(quota_of(less, i), quota_of(&used, i));
	g_mutex_unlock(&quota_lock);
}

bool quota_op_take(void)
{
	if (atomic_fetch_add_explicit(&ops_used, 1, memory_order_relaxed) <
	    atomic_load_explicit(&ops_limit, memory_order_relaxed))
		return true;
	quota_ops_give(1);
	return false;
}

void quota_ops_give(uint64_t n)
{
	atomic_fetch_sub_explicit(&ops_used, n, memory_order_relaxed);
}

/* ---- What backends ask for (escrow/budget.h) ---------------------------------------------------- */
/* Where that kind is counted, or NULL. */
static uint64_t *quota_charge(struct escrow_quota *q, uint32_t kind)
{
	switch (kind) {
	case ESCROW_CHARGE_CONNECTIONS:
		return &q->connections;
	case ESCROW_CHARGE_SQ_SLOTS:
		return &q->sq_slots;
	case ESCROW_CHARGE_CQ_SLOTS:
		return &q->cq_slots;
	default:
		return NULL;
	}
}

/* Adds the amounts up; false: one of them is none of ours. */
static bool quota_read(const struct escrow_amount *amounts, uint32_t n, uint32_t stride,
		       struct escrow_quota *out)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct escrow_amount *a =
			(const void *)((const char *)amounts + (size_t)i * stride);
		uint64_t *at = quota_charge(out, a->kind);

		if (!at || __builtin_add_overflow(*at, a->amount, at))
			return false;
	}
	return true;
}

static escrow_status budget_take(void *ctx, const struct escrow_amount *amounts, uint32_t n,
				 uint32_t stride, struct escrow_error *error)
{
	struct escrow_quota more = {0};

	if (stride < sizeof(*amounts) || !quota_read(amounts, n, stride, &more))
		return error_set(error, ESCROW_E_UNSUPPORTED,
				 "amounts that the process does not count");
	return quota_take(&more, error);
}

static void budget_give(void *ctx, const struct escrow_amount *amounts, uint32_t n, uint32_t stride)
{
	struct escrow_quota less = {0};

	if (stride >= sizeof(*amounts) && quota_read(amounts, n, stride, &less))
		quota_give(&less);
}

const struct escrow_budget *quota_budget(void)
{
	static const struct escrow_budget budget = {
		.size = sizeof(budget), .take = budget_take, .give = budget_give};

	return &budget;
}

void escrow_quota_set(const struct escrow_quota *wanted)
{
	if (!wanted || wanted->size < QUOTA_FIRST_SIZE)
		return;
	g_mutex_lock(&quota_lock);
	/* What a shorter one does not name has no limit. */
	memset(&limits, 0xff, sizeof(limits));
	memcpy(&limits, wanted, MIN(wanted->size, sizeof(limits)));
	limits.size = sizeof(limits);
	atomic_store(&ops_limit, limits.ops);
	g_mutex_unlock(&quota_lock);
}

static void quota_copy(struct escrow_quota *to, const struct escrow_quota *from)
{
	uint32_t size;

	if (!to)
		return;
	size = to->size;
	memcpy(to, from, MIN(size, sizeof(*from)));
	to->size = size;
}

void escrow_quota_get(struct escrow_quota *limits_out, struct escrow_quota *used_out)
{
	g_mutex_lock(&quota_lock);
	used.ops = atomic_load(&ops_used);
	quota_copy(limits_out, &limits);
	quota_copy(used_out, &used);
	g_mutex_unlock(&quota_lock);
}
