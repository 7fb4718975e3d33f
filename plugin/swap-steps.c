/* SPDX-License-Identifier: BSD-2-Clause */
/* Steps 1 to 3 and 5 to 8. */
#include <string.h>
#include <sys/resource.h>

#include "plugin/swap.h"

/* ---- 1 OPEN ------------------------------------------------------------------------------------ */
escrow_status swap_open(struct escrow_swap *swap)
{
	return host_open_generation(swap->host, swap->args.module, swap->args.settings,
				    swap->args.key_file, &swap->b, &swap->error);
}

/* Closes B: ABORT, since none of its ops is anybody's. */
escrow_status swap_undo_open(struct escrow_swap *swap)
{
	struct host_generation *b = swap->b;
	uint32_t ended;

	if (!b)
		return ESCROW_OK;
	if (swap->phase == 1) {
		swap_set_deadline(swap, swap->args.close_ns);
		b->ops->close(b->engine, swap->deadline_ns, ESCROW_CLOSE_ABORT);
		/* for the answer */
		swap_set_deadline(swap, 2 * MIN(swap->args.close_ns, INT64_MAX));
		swap->phase = 2;
	}
	ended = atomic_load(&b->ended);
	if (ended == HOST_ENDED_NOT && swap_now(swap) < swap->deadline_ns)
		return ESCROW_IN_PROGRESS;
	g_mutex_lock(&swap->host->lock);
	swap->host->next = NULL;
	b->given_up = ended == HOST_ENDED_NOT; /* what it says yet is taken all the same */
	g_mutex_unlock(&swap->host->lock);
	swap->b = NULL;
	if (ended != HOST_ENDED_CLOSED)
		return ESCROW_E_UNQUIESCED; /* it stays in the list, for late receipts */
	host_drop_generation(swap->host, b);
	return ESCROW_OK;
}

/* ---- 2 BUDGET ---------------------------------------------------------------------------------- */
struct swap_need {
	const char *what;
	uint64_t need;
	uint64_t limit;
};

static uint64_t swap_largest(struct escrow_host_engine *host, uint64_t *sum)
{
	uint64_t largest = 0;

	*sum = 0;
	for (uint32_t i = 0; i < host->regions.places; i++) {
		struct host_region *region = table_at(&host->regions, i);

		if (!region || atomic_load(&region->state) != HOST_LIVE)
			continue;
		largest = MAX(largest, region->args.length);
		*sum += region->args.length;
	}
	return largest;
}

/* A line "Name: n kB" of /proc/self/status (proc(5)), in bytes. */
static uint64_t swap_status_bytes(const char *text, const char *name)
{
	const char *line = text ? g_strstr_len(text, -1, name) : NULL;

	return line ? g_ascii_strtoull(line + strlen(name), NULL, 10) * 1024 : 0;
}

/*
 * While both have the regions, their pages are pinned twice (RLIMIT_MEMLOCK counts each
 * registration).  Only where A pins at all, which the kernel's counters show, and only where the
 * limit binds.
 */
static escrow_status swap_budget_memlock(struct escrow_swap *swap, uint64_t bytes)
{
	g_autofree char *text = NULL;
	struct rlimit limit;
	uint64_t pinned, caps = 0;
	const char *line;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return ESCROW_OK;
	if (!g_file_get_contents("/proc/self/status", &text, NULL, NULL))
		return ESCROW_OK;
	line = g_strstr_len(text, -1, "\nCapEff:");
	if (line)
		caps = g_ascii_strtoull(g_strchug((char *)(uintptr_t)line + 8), NULL, 16);
	pinned = swap_status_bytes(text, "\nVmPin:") + swap_status_bytes(text, "\nVmLck:");
	if ((caps >> 14 & 1) || pinned < bytes ||
	    pinned + bytes <= limit.rlim_cur) /* CAP_IPC_LOCK */
		return ESCROW_OK;
	return error_set(&swap->error, ESCROW_E_MEMLOCK,
			 "%" G_GUINT64_FORMAT
			 " bytes are pinned, and as many as are registered (%" G_GUINT64_FORMAT
			 ") would be once more; RLIMIT_MEMLOCK is %" G_GUINT64_FORMAT,
			 pinned, bytes, (uint64_t)limit.rlim_cur);
}

escrow_status swap_budget(struct escrow_swap *swap)
{
	struct escrow_host_engine *host = swap->host;
	const struct escrow_limits *a = &swap->a->limits, *b = &swap->b->limits;
	/* how it is done may differ, and so may a weaker mode; what it can do may not */
	const uint64_t may_differ = ESCROW_CAP_THREADS | ESCROW_CAP_LEDGER | ESCROW_CAP_WEAK |
				    ESCROW_CAP_PLAIN_KEYS;
	uint64_t lost = a->caps & ~b->caps & ~may_differ, bytes;
	const struct swap_need needs[] = {
		{"bytes in one region", swap_largest(host, &bytes), b->max_region_bytes},
		{"regions", atomic_load(&host->regions.used), b->max_regions},
		{"peers", atomic_load(&host->peers.used), b->max_peers},
		{"grants", atomic_load(&host->grants.used), b->max_grants},
		{"remotes", atomic_load(&host->remotes.used), b->max_remotes},
		{"ranges in one op", host->lend.max_ranges, b->max_sge},
	};

	if (lost || (a->memory_kinds & ~b->memory_kinds))
		return error_set(&swap->error, ESCROW_E_UNSUPPORTED,
				 "B lacks capabilities 0x%" G_GINT64_MODIFIER
				 "x, memory kinds 0x%" G_GINT64_MODIFIER "x that A has",
				 lost, a->memory_kinds & ~b->memory_kinds);
	for (size_t i = 0; i < G_N_ELEMENTS(needs); i++) {
		if (needs[i].need > needs[i].limit)
			return error_set(&swap->error, ESCROW_E_LIMIT,
					 "%" G_GUINT64_FORMAT
					 " %s stand, B allows %" G_GUINT64_FORMAT,
					 needs[i].need, needs[i].what, needs[i].limit);
	}
	return swap_budget_memlock(swap, bytes);
}

/* ---- 3 REGISTER -------------------------------------------------------------------------------- */
escrow_status swap_register(struct escrow_swap *swap)
{
	struct escrow_host_engine *host = swap->host;

	for (uint32_t i = 0; i < host->regions.places; i++) {
		struct host_region *region = table_at(&host->regions, i);
		escrow_status status;

		if (!region || atomic_load(&region->state) != HOST_LIVE)
			continue;
		status = region_register_in(host, region, swap->b, &swap->error);
		if (status != ESCROW_OK)
			return status;
		swap->count++;
	}
	error_set(&swap->error, ESCROW_OK, "%u regions", swap->count);
	return ESCROW_OK;
}

/* ---- 5 GATE ------------------------------------------------------------------------------------ */
escrow_status swap_gate(struct escrow_swap *swap)
{
	atomic_store(&swap->host->dispatch, NULL);
	inside_wait(&swap->host->inside);
	/* whom A turned away hears of ROOM when the gate opens: A's own may come while it is shut */
	if (atomic_exchange(&swap->host->turned_away, 0))
		atomic_store(&swap->host->want_room, 1);
	return ESCROW_OK;
}

escrow_status swap_undo_gate(struct escrow_swap *swap)
{
	atomic_store(&swap->host->dispatch, swap->a);
	host_wake(swap->host); /* who was turned away hears of ROOM */
	return ESCROW_OK;
}

/* ---- 6 QUIESCE --------------------------------------------------------------------------------- */
static bool swap_all_stopped(struct escrow_swap *swap)
{
	for (uint32_t i = 0; i < swap->host->peers.places; i++) {
		struct host_peer *peer = table_at(&swap->host->peers, i);

		if (peer && !peer->stopped)
			return false;
	}
	return true;
}

/*
 * A peer that does not answer is not waited for beyond the lease: what it could still do ends with
 * A's grants, which CLOSE revokes with a receipt.
 */
escrow_status swap_quiesce(struct escrow_swap *swap)
{
	struct host_generation *a = swap->a;

	if (swap->phase == 0) {
		escrow_status status = a->ops->quiesce(a->engine, 0);

		if (status < 0)
			return error_set(&swap->error, status, "A refused to quiesce");
		swap->phase = 1;
		swap_set_deadline(swap, swap->args.lease_ns);
		swap_carry_all(swap, ESCROW_CARRY_STOP);
	}
	if (swap_all_stopped(swap))
		return ESCROW_OK;
	if (swap_now(swap) < swap->deadline_ns)
		return ESCROW_IN_PROGRESS;
	error_set(&swap->error, ESCROW_OK, "not every peer answered within its lease");
	return ESCROW_OK;
}

escrow_status swap_undo_quiesce(struct escrow_swap *swap)
{
	struct host_generation *a = swap->a;
	struct escrow_limits limits = {.size = sizeof(limits)};

	/* it may have failed before A was quiesced, or because of it */
	if (a->ops->query(a->engine, &limits) == ESCROW_OK && limits.state != ESCROW_STATE_OPEN)
		a->ops->resume(a->engine, 0);
	return ESCROW_OK;
}

/* ---- 7 DRAIN ----------------------------------------------------------------------------------- */
/* Answers carry no name: ours is known as there is no other one to come. */
static bool swap_take_drain(struct escrow_swap *swap)
{
	struct host_generation *a = swap->a;

	g_mutex_lock(&swap->host->lock);
	if (a->drains || a->swap_drains) {
		g_mutex_unlock(&swap->host->lock);
		return false;
	}
	a->swap_drains = true;
	atomic_store(&a->drain_answered, 0);
	g_mutex_unlock(&swap->host->lock);
	return true;
}

static escrow_status swap_ask_drain(struct escrow_swap *swap)
{
	struct host_generation *a = swap->a;
	escrow_status status = a->ops->drain(a->engine, 0, swap->deadline_ns, 0);

	if (status == ESCROW_IN_PROGRESS)
		return ESCROW_OK;
	g_mutex_lock(&swap->host->lock);
	a->swap_drains = false;
	g_mutex_unlock(&swap->host->lock);
	return error_set(&swap->error, status < 0 ? status : ESCROW_E_INTERNAL,
			 "A refused to drain");
}

escrow_status swap_drain(struct escrow_swap *swap)
{
	struct host_generation *a = swap->a;
	escrow_status status;
	bool answered;

	if (swap->phase == 0) {
		swap_set_deadline(swap, swap->args.drain_ns);
		swap->phase = 1;
	}
	if (swap->phase == 1) {
		if (!swap_take_drain(swap))
			return swap_now(swap) < swap->deadline_ns
				       ? ESCROW_IN_PROGRESS
				       : error_set(&swap->error, ESCROW_E_TIMEOUT,
						   "an earlier drain of A is not answered");
		status = swap_ask_drain(swap);
		if (status < 0)
			return status;
		swap->phase = 2;
		/* at that limit A says so itself; if it does not, it is not waited for */
		swap_set_deadline(swap, MIN(swap->args.drain_ns, INT64_MAX) +
						MIN(swap->args.close_ns, INT64_MAX));
	}
	answered = atomic_load(&a->drain_answered);
	if (!answered && swap_now(swap) < swap->deadline_ns)
		return ESCROW_IN_PROGRESS;
	status = answered ? atomic_load(&a->drain_status) : ESCROW_E_TIMEOUT;
	if (status == ESCROW_OK)
		return ESCROW_OK;
	if (answered)
		error_set(&swap->error, status, "%" G_GUINT64_FORMAT " ops of A are outstanding",
			  atomic_load(&a->drain_left));
	else
		error_set(&swap->error, status, "A does not answer a drain");
	return swap->args.flags & ESCROW_SWAP_COMMIT_UNDRAINED ? ESCROW_OK : status;
}

/* ---- 8 COMMIT ---------------------------------------------------------------------------------- */
/* Under lock.  Somebody may have come by an invitation of A after PEERS: no successor in B. */
static bool swap_is_complete(struct escrow_swap *swap)
{
	for (uint32_t i = 0; i < swap->host->peers.places; i++) {
		struct host_peer *peer = table_at(&swap->host->peers, i);

		if (peer && !peer->next_up)
			return false;
	}
	return true;
}

escrow_status swap_commit(struct escrow_swap *swap)
{
	struct escrow_host_engine *host = swap->host;
	bool complete;

	g_mutex_lock(&host->lock);
	complete = swap_is_complete(swap);
	if (complete) {
		host->next = NULL;
		host->previous = swap->a;
		atomic_store(&host->current, swap->b);
	}
	g_mutex_unlock(&host->lock);
	if (!complete)
		return error_set(&swap->error, ESCROW_E_BUSY, "a peer connected to A meanwhile");
	atomic_store(&host->dispatch, swap->b);
	host_wake(host);
	swap_carry_all(swap, ESCROW_CARRY_COMMITTED);
	error_set(&swap->error, ESCROW_OK, "generation %" G_GUINT64_FORMAT, swap->b->number);
	return ESCROW_OK;
}
