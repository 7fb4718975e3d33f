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

_Atomic uint64_t quota_ops_used, quota_ops_limit = UINT64_MAX;

static uint64_t *quota_at(struct escrow_quota *q, uint32_t kind)
{
	return (uint64_t *)(void *)((char *)q + kinds[kind].at);
}

static uint64_t quota_of(const struct escrow_quota *q, uint32_t kind)
{
	return *(const uint64_t *)(const void *)((const char *)q + kinds[kind].at);
}

/* ---- Names ------------------------------------------------------------------------------------- */
/* What one has, while it has something or limits of its own. */
struct quota_share {
	struct escrow_quota used, limits;
	bool own; /* the limits */
};

static GHashTable *shares;               /* name -> share */
static struct escrow_quota share_limits; /* of those without their own */
static bool shares_limited;

/* Under lock.  NULL: a name that has nothing, or none at all. */
static struct quota_share *share_find(const char *name)
{
	return shares && name && name[0] ? g_hash_table_lookup(shares, name) : NULL;
}

static struct quota_share *share_make(const char *name)
{
	struct quota_share *share = share_find(name);

	if (share || !name || !name[0])
		return share;
	if (!shares)
		shares = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
	share = g_new0(struct quota_share, 1);
	g_hash_table_insert(shares, g_strdup(name), share);
	return share;
}

static void share_drop(const char *name, const struct quota_share *share)
{
	bool idle = !share->own;

	for (uint32_t i = 0; i < G_N_ELEMENTS(kinds); i++)
		idle = idle && quota_of(&share->used, i) == 0;
	if (idle)
		g_hash_table_remove(shares, name);
}

static const struct escrow_quota *share_limits_of(const struct quota_share *share)
{
	if (share && share->own)
		return &share->limits;
	return shares_limited ? &share_limits : NULL;
}

/* ---- Counting, under lock -------------------------------------------------------------------------- */
static void quota_add(const char *name, const struct escrow_quota *more)
{
	struct quota_share *share = share_make(name);

	for (uint32_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
		*quota_at(&used, i) += quota_of(more, i);
		if (share)
			*quota_at(&share->used, i) += quota_of(more, i);
	}
}

static escrow_status quota_fits(const char *name, const struct escrow_quota *more,
				const struct escrow_quota *in_use, const struct escrow_quota *most,
				struct escrow_error *error)
{
	for (uint32_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
		uint64_t want = quota_of(more, i), have = in_use ? quota_of(in_use, i) : 0;
		uint64_t limit = quota_of(most, i);

		if (want && (have > limit || want > limit - have))
			return error_set(error, ESCROW_E_QUOTA,
					 "%s of %s%.63s%s: %" G_GUINT64_FORMAT
					 " more than the %" G_GUINT64_FORMAT
					 " in use exceed %" G_GUINT64_FORMAT,
					 kinds[i].name, name ? "\"" : "the process",
					 name ? name : "", name ? "\" in the process" : "", want,
					 have, limit);
	}
	return ESCROW_OK;
}

escrow_status quota_take(const char *name, const struct escrow_quota *more,
			 struct escrow_error *error)
{
	const struct quota_share *share;
	const struct escrow_quota *most;
	escrow_status status;

	g_mutex_lock(&quota_lock);
	status = quota_fits(NULL, more, &used, &limits, error);
	share = share_find(name);
	most = name && name[0] ? share_limits_of(share) : NULL;
	if (status == ESCROW_OK && most)
		status = quota_fits(name, more, share ? &share->used : NULL, most, error);
	if (status == ESCROW_OK)
		quota_add(name, more);
	g_mutex_unlock(&quota_lock);
	return status;
}

void quota_count(const char *name, const struct escrow_quota *more)
{
	g_mutex_lock(&quota_lock);
	quota_add(name, more);
	g_mutex_unlock(&quota_lock);
}

static void quota_sub(struct escrow_quota *from, const struct escrow_quota *less)
{
	for (uint32_t i = 0; i < G_N_ELEMENTS(kinds); i++)
		*quota_at(from, i) -= MIN(quota_of(less, i), quota_of(from, i));
}

void quota_give(const char *name, const struct escrow_quota *less)
{
	struct quota_share *share;

	g_mutex_lock(&quota_lock);
	quota_sub(&used, less);
	share = share_find(name);
	if (share) {
		quota_sub(&share->used, less);
		share_drop(name, share);
	}
	g_mutex_unlock(&quota_lock);
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

static escrow_status budget_take_of(void *ctx, const char *peer_name,
				    const struct escrow_amount *amounts, uint32_t n,
				    uint32_t stride, struct escrow_error *error)
{
	struct escrow_quota more = {0};

	if (stride < sizeof(*amounts) || !quota_read(amounts, n, stride, &more))
		return error_set(error, ESCROW_E_UNSUPPORTED,
				 "amounts that the process does not count");
	return quota_take(peer_name, &more, error);
}

static escrow_status budget_take(void *ctx, const struct escrow_amount *amounts, uint32_t n,
				 uint32_t stride, struct escrow_error *error)
{
	return budget_take_of(ctx, "", amounts, n, stride, error);
}

static void budget_give_of(void *ctx, const char *peer_name, const struct escrow_amount *amounts,
			   uint32_t n, uint32_t stride)
{
	struct escrow_quota less = {0};

	if (stride >= sizeof(*amounts) && quota_read(amounts, n, stride, &less))
		quota_give(peer_name, &less);
}

static void budget_give(void *ctx, const struct escrow_amount *amounts, uint32_t n, uint32_t stride)
{
	budget_give_of(ctx, "", amounts, n, stride);
}

const struct escrow_budget *quota_budget(void)
{
	static const struct escrow_budget budget = {.size = sizeof(budget),
						    .take = budget_take,
						    .give = budget_give,
						    .take_of = budget_take_of,
						    .give_of = budget_give_of};

	return &budget;
}

/* What a shorter one does not name has no limit. */
static void quota_read_limits(struct escrow_quota *to, const struct escrow_quota *wanted)
{
	memset(to, 0xff, sizeof(*to));
	if (wanted)
		memcpy(to, wanted, MIN(wanted->size, sizeof(*to)));
	to->size = sizeof(*to);
}

void escrow_quota_set(const struct escrow_quota *wanted)
{
	if (!wanted || wanted->size < QUOTA_FIRST_SIZE || here_is_child())
		return;
	g_mutex_lock(&quota_lock);
	quota_read_limits(&limits, wanted);
	atomic_store(&quota_ops_limit, limits.ops);
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
	static const struct escrow_quota nothing;

	if (here_is_child()) {
		quota_copy(limits_out, &nothing);
		quota_copy(used_out, &nothing);
		return;
	}
	g_mutex_lock(&quota_lock);
	used.ops = atomic_load(&quota_ops_used);
	quota_copy(limits_out, &limits);
	quota_copy(used_out, &used);
	g_mutex_unlock(&quota_lock);
}

/* ---- Limits by name -------------------------------------------------------------------------------- */
static bool share_may_be(const struct escrow_quota *q)
{
	return (q->bytes & q->regions & q->ops) == UINT64_MAX;
}

static bool share_name_ok(const char *name)
{
	return !name || (name[0] && strnlen(name, QUOTA_NAME) < QUOTA_NAME);
}

escrow_status escrow_quota_set_peer(const char *name, const struct escrow_quota *wanted)
{
	struct quota_share *share;
	struct escrow_quota most;

	if (!share_name_ok(name) || (wanted && wanted->size < QUOTA_FIRST_SIZE))
		return ESCROW_E_INVALID;
	if (here_is_child())
		return ESCROW_E_STATE;
	quota_read_limits(&most, wanted);
	if (!share_may_be(&most))
		return ESCROW_E_UNSUPPORTED;
	g_mutex_lock(&quota_lock);
	if (!name) {
		share_limits = most;
		shares_limited = wanted != NULL;
	} else if (wanted || share_find(name)) {
		share = share_make(name);
		share->limits = most;
		share->own = wanted != NULL;
		share_drop(name, share);
	}
	g_mutex_unlock(&quota_lock);
	return ESCROW_OK;
}

escrow_status escrow_quota_get_peer(const char *name, struct escrow_quota *limits_out,
				    struct escrow_quota *used_out)
{
	const struct quota_share *share;
	const struct escrow_quota *most;
	struct escrow_quota none;

	if (!share_name_ok(name))
		return ESCROW_E_INVALID;
	if (here_is_child())
		return ESCROW_E_STATE;
	quota_read_limits(&none, NULL);
	g_mutex_lock(&quota_lock);
	share = share_find(name);
	most = share_limits_of(share);
	quota_copy(limits_out, most ? most : &none);
	memset(&none, 0, sizeof(none));
	quota_copy(used_out, share ? &share->used : &none);
	g_mutex_unlock(&quota_lock);
	return ESCROW_OK;
}
