/* SPDX-License-Identifier: BSD-2-Clause */
/* open.c - an engine is made, and given back. */
#define _GNU_SOURCE /* madvise(2) */
#include "backends/engine/transfer.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TICKETS_PER_PEER 4u

/* ---- Memory ------------------------------------------------------------------------------------ */
void *en_block(struct escrow_engine *e, uint64_t n, uint64_t size)
{
	uint64_t bytes;
	void *p;

	if (__builtin_mul_overflow(n, size, &bytes))
		return NULL;
	p = e->host.alloc(e->host.ctx, bytes > 0 ? bytes : 8, 64);
	if (!p)
		return NULL;
	memset(p, 0, bytes);
	e->blocks[e->nblocks++] = p;
	return p;
}

static bool tables(struct escrow_engine *e)
{
	const struct config *c = &e->config;
	uint64_t conns = c->max_peers * e->conns_per_peer;

	e->ntickets = (uint32_t)c->max_peers * TICKETS_PER_PEER;
	e->nepochs = (uint32_t)c->max_peers * 4;
	e->nwindows = (uint32_t)c->max_grants * e->conns_per_peer + ASIDE_WINDOWS;
	e->nowners = 1 + e->ncontexts + e->nlanes + (uint32_t)conns +
		     (uint32_t)c->max_regions * e->ncontexts +
		     (uint32_t)c->max_peers * (1 + e->nrails) + e->nwindows +
		     (uint32_t)c->max_grants * (e->ncontexts + e->nexact);
	return (e->lanes = en_block(e, e->nlanes, sizeof(*e->lanes))) &&
	       (e->regions = en_block(e, c->max_regions, sizeof(*e->regions))) &&
	       (e->peers = en_block(e, c->max_peers, sizeof(*e->peers))) &&
	       (e->grants = en_block(e, c->max_grants, sizeof(*e->grants))) &&
	       (e->windows = en_block(e, e->nwindows, sizeof(*e->windows))) && en_remotes_open(e) &&
	       (e->tickets = en_block(e, e->ntickets, sizeof(*e->tickets))) &&
	       (e->epochs = en_block(e, e->nepochs, sizeof(*e->epochs))) &&
	       (e->op_table = en_block(e, c->max_ops, sizeof(*e->op_table))) &&
	       (e->heap = en_block(e, c->max_ops, sizeof(struct op *))) &&
	       (e->by_slot = en_block(e, e->nowners, sizeof(*e->by_slot)));
}

static bool peer_tables(struct escrow_engine *e)
{
	uint64_t n = e->config.max_peers, per = e->conns_per_peer, i, k;
	struct conn *conns = en_block(e, n * per, sizeof(*conns));
	uint32_t *rx = en_block(e, n * e->nrails * e->config.recv_depth, sizeof(*rx));
	struct carrier *carriers = en_block(e, n * e->nrails, sizeof(*carriers));
	struct wire_invitation *inv = en_block(e, n, sizeof(*inv));

	if (!conns || !rx || !carriers || !inv)
		return false;
	for (i = 0; i < n; i++) {
		struct peer *p = &e->peers[i];

		p->e = e;
		p->work.kind = WORK_PEER;
		p->conns = &conns[i * per];
		p->carriers = &carriers[i * e->nrails];
		for (k = 0; k < e->nrails; k++)
			p->carriers[k].received = &rx[(i * e->nrails + k) * e->config.recv_depth];
		p->invitation = &inv[i];
	}
	return true;
}

static bool memory_tables(struct escrow_engine *e)
{
	const struct config *c = &e->config;
	struct region_part *parts = en_block(e, c->max_regions * e->ncontexts, sizeof(*parts));
	uint64_t *gparts = en_block(e, c->max_grants * e->ncontexts, sizeof(*gparts));
	struct region_part *exact = en_block(e, c->max_grants * e->nexact, sizeof(*exact));
	struct window **windows = en_block(e, c->max_grants * e->conns_per_peer, sizeof(*windows));
	uint32_t *keys = en_block(e, c->max_remotes * e->conns_per_peer, sizeof(*keys));
	_Atomic uint32_t *epochs = en_block(e, c->max_remotes * e->conns_per_peer, sizeof(*epochs));
	_Atomic uint32_t *next = en_block(e, c->max_ops, sizeof(*next));
	_Atomic uint32_t *gnext = en_block(e, c->max_grants, sizeof(*gnext));
	uint64_t i;

	if (!parts || !gparts || !exact || !windows || !keys || !epochs || !next || !gnext)
		return false;
	for (i = 0; i < c->max_regions; i++) {
		e->regions[i].e = e;
		e->regions[i].work.kind = WORK_REGION;
		e->regions[i].parts = &parts[i * e->ncontexts];
	}
	for (i = 0; i < c->max_grants; i++) {
		e->grants[i].work.kind = WORK_GRANT;
		e->grants[i].parts = &gparts[i * e->ncontexts];
		e->grants[i].exact = &exact[i * e->nexact];
		e->grants[i].windows = &windows[i * e->conns_per_peer];
	}
	pool_init(&e->grant_pool, gnext, (uint32_t)c->max_grants);
	for (i = c->max_remotes; i-- > 0;) {
		e->remotes[i].e = e;
		e->remotes[i].next_free = e->remote_free;
		e->remote_free = (uint32_t)i + 1;
		e->remotes[i].work.kind = WORK_REMOTE;
		e->remotes[i].keys = &keys[i * e->conns_per_peer];
		e->remotes[i].epochs = &epochs[i * e->conns_per_peer];
	}
	for (i = e->nwindows; i-- > 0;) {
		e->windows[i].work.kind = WORK_WINDOW;
		e->windows[i].next = e->window_free;
		e->window_free = &e->windows[i];
	}
	for (i = 0; i < c->max_ops; i++)
		en_op_init(e, &e->op_table[i]);
	e->ended = POOL_NONE;
	pool_init(&e->op_pool, next, (uint32_t)c->max_ops);
	return true;
}

/* ---- The ledger and the limits -------------------------------------------------------------------- */
static uint64_t limit_of(uint64_t quota, uint64_t times)
{
	return quota && quota <= UINT64_MAX / times ? quota * times : LEDGER_NO_LIMIT;
}

static escrow_status open_ledger(struct escrow_engine *e, struct escrow_error *error)
{
	const struct config *c = &e->config;
	struct ledger_config lc = {
		.host = &e->host, /* the ledger copies it whole: not the host's own, which may be shorter */
		.max_contexts = e->ncontexts,
		.max_lanes = e->nlanes,
		.max_connections = (uint32_t)(c->max_peers * e->conns_per_peer),
		.max_regions = (uint32_t)c->max_regions * e->ncontexts,
		.max_controls = (uint32_t)(c->max_peers * e->nrails + c->max_grants * e->nexact),
		.max_windows = e->nwindows,
		.max_grants = (uint32_t)c->max_grants * e->ncontexts,
		.max_accounts = (uint32_t)c->max_peers,
		.max_names = (uint32_t)c->max_peers,
		.ops_per_lane = (uint32_t)c->max_ops,
		.sq_depth = e->sq_depth,
		.stuck_percent = (uint32_t)c->stuck_share,
		.devices = e->ncontexts,
		.window_binds = (uint32_t)c->window_binds,
		.placed = ENGINE_PLACED,
	};
	struct escrow_error detail = {.size = sizeof(detail)};
	escrow_status st;
	uint32_t kind;

	memcpy(lc.incarnation, e->incarnation, 16);
	for (kind = 0; kind < CONFIG_CHARGES; kind++) {
		/* One registration, and one grant, is one in each device. */
		uint64_t times = kind <= ESCROW_CHARGE_GRANTED_BYTES ? e->ncontexts : 1;

		lc.limit[kind] = limit_of(c->quota[kind], times);
		lc.name_limit[kind] = limit_of(c->peer_quota[kind], times);
	}
	st = ledger_open(&lc, &e->ledger, &detail);
	return st < 0 ? args_pass(error, st, &detail) : st;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What all devices can do: the least of each. */
static escrow_status shape(struct escrow_engine *e, struct escrow_error *error)
{
	struct config *c = &e->config;
	uint64_t message = UINT32_MAX & ~4095u, region = UINT64_MAX, window = UINT64_MAX;
	uint64_t sges = WR_SGES, depth = UINT32_MAX, want, i;

	for (i = 0; i < e->ncontexts; i++) {
		const struct native_context_info *in = &e->contexts[i].info;

		message = least(message, in->max_message_bytes & ~UINT64_C(4095));
		region = least(region, in->max_region_bytes);
		window = least(window, in->max_window_bytes);
		sges = least(sges, in->max_sge);
		depth = least(depth, in->max_send_depth);
		if (!in->exact_windows)
			e->nexact = e->ncontexts;
	}
	/* A grant keeps two slots (bind and invalidation) while it is made, and one while it lives. */
	want = c->send_depth + 2 * c->max_peer_grants + MESSAGE_SLOTS + 1;
	if (want > depth)
		return args_fail(error, ESCROW_E_INVALID,
				 "send_depth %llu and max_peer_grants %llu need %llu slots; the "
				 "device has %llu",
				 (unsigned long long)c->send_depth,
				 (unsigned long long)c->max_peer_grants, (unsigned long long)want,
				 (unsigned long long)depth);
	if (!sges || !message)
		return args_fail(error, ESCROW_E_DEVICE, "a device without messages or ranges");
	e->sq_depth = (uint32_t)want;
	e->wr_sges = (uint32_t)sges;
	e->max_slice_bytes = least(message, UINT64_C(1) << 30);
	e->slice_bytes = least(c->slice_bytes, e->max_slice_bytes);
	e->max_slices = (uint32_t)least(c->send_depth / 2, MAX_SLICES / 2);
	e->limits.max_sge = least(c->max_sge, (uint64_t)e->max_slices * e->wr_sges / 2);
	if (!e->limits.max_sge)
		e->limits.max_sge = 1;
	e->limits.max_op_bytes = least(c->max_op_bytes, e->max_slices * e->max_slice_bytes);
	e->whole_bytes = least(e->slice_bytes, e->limits.max_op_bytes);
	e->ops_limited = c->quota[ESCROW_CHARGE_OPS] || c->peer_quota[ESCROW_CHARGE_OPS];
	e->plain_bytes = e->slice_bytes * e->max_slices;
	e->limits.max_region_bytes = region;
	return ESCROW_OK;
}

static void fill_limits(struct escrow_engine *e)
{
	const struct config *c = &e->config;
	struct escrow_limits *l = &e->limits;

	e->caps = (ENGINE_CAPS | e->ops->caps) & ~(c->events ? 0 : ESCROW_CAP_EVENT_FD);
	e->caps &= ~en_devices_lack(e);
	if (e->threaded)
		e->caps |= ESCROW_CAP_THREADS;
	l->size = sizeof(*l);
	l->weak_receipts = en_weak_bits(e);
	if (l->weak_receipts & ~ESCROW_WEAK_DESTROY)
		e->caps |= ESCROW_CAP_WEAK;
	l->caps = e->caps;
	l->memory_kinds = UINT64_C(1) << ESCROW_MEMORY_HOST;
	if (e->caps & ESCROW_CAP_DMABUF)
		l->memory_kinds |= UINT64_C(1) << ESCROW_MEMORY_DMABUF;
	l->max_regions = c->max_regions;
	l->max_peers = c->max_peers;
	l->max_grants = c->max_grants;
	l->max_remotes = c->max_remotes;
	l->max_ops = c->max_ops;
	l->max_invitation_bytes = wire_invitation_bytes(e->nrails);
	l->max_grant_bytes = wire_grant_bytes(e->conns_per_peer);
	l->max_message_bytes = en_notify_limit(e);
	memcpy(l->incarnation, e->incarnation, 16);
}

/* ---- Open --------------------------------------------------------------------------------------------- */
/* A page that a child of fork sees as zero: no atfork handler, no pid to compare (madvise(2)). */
static int here_page(struct escrow_engine *e)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return errno;
	if (madvise(p, page, MADV_WIPEONFORK)) {
		munmap(p, page);
		return errno;
	}
	e->here = p;
	*e->here = 1;
	return 0;
}

void en_free(struct escrow_engine *e)
{
	struct escrow_host host = e->host;

	event_close(e);
	en_notify_free(e);
	if (e->control_fd >= 0)
		close(e->control_fd);
	if (e->here)
		munmap((void *)(uintptr_t)e->here, (size_t)sysconf(_SC_PAGESIZE));
	while (e->nblocks)
		host.free(host.ctx, e->blocks[--e->nblocks]);
	e->magic = 0;
	host.free(host.ctx, e);
}

/* A quota that is smaller than a whole set makes the set smaller: lanes first, then rails. */
static void fit_connections(struct escrow_engine *e)
{
	const char *why;

	e->nrails = (uint32_t)least(e->nrails, en_most_rails(&e->config, &why));
	e->peer_lanes = (uint32_t)least(e->config.num_lanes, en_most_connections(&e->config) /
								     (e->nrails ? e->nrails : 1));
	if (!e->peer_lanes)
		e->peer_lanes = 1;
	e->conns_per_peer = e->nrails * e->peer_lanes;
}

static escrow_status open_native(struct escrow_engine *e, struct escrow_error *error)
{
	struct native_open_args na = {.host = e->host_table,
				      .kv = e->config.native,
				      .nkv = e->config.nnative,
				      .engine_name = e->name};
	struct escrow_error detail = {.size = sizeof(detail)};
	escrow_status st = e->ops->open(&na, &e->native, &detail);
	uint32_t i;

	if (st < 0) {
		e->native = NULL;
		return args_pass(error, st, &detail);
	}
	e->ncontexts = e->ops->ncontexts(e->native);
	e->nrails = e->ops->nrails(e->native);
	e->nlanes = e->ncontexts * (uint32_t)e->config.num_lanes;
	fit_connections(e);
	if (!e->ncontexts || e->ncontexts > NATIVE_MAX_CONTEXTS || !e->nrails ||
	    e->nrails > NATIVE_MAX_RAILS || e->nlanes > LEDGER_MAX_LANES)
		return args_fail(error, ESCROW_E_INVALID,
				 "%u devices, %u rails, %u lanes; at most %u, %u and %u",
				 e->ncontexts, e->nrails, e->nlanes, NATIVE_MAX_CONTEXTS,
				 NATIVE_MAX_RAILS, LEDGER_MAX_LANES);
	for (i = 0; i < e->nrails; i++) {
		e->ops->rail_info(e->native, i, &e->rails[i]);
		atomic_store(&e->rail_up[i], e->rails[i].up != 0);
		if (e->rails[i].context >= e->ncontexts)
			return args_fail(error, ESCROW_E_DEVICE, "rail %u has no device", i);
	}
	return ESCROW_OK;
}

static escrow_status build(struct escrow_engine *e, struct escrow_error *error)
{
	escrow_status st;
	int rc;

	st = open_native(e, error);
	if (st < 0 || (st = en_fit_grants(e, error)) < 0 || (st = en_devices_open(e, error)) < 0 ||
	    (st = shape(e, error)) < 0)
		return st;
	en_memlock_open(e);
	if (!tables(e) || !peer_tables(e) || !memory_tables(e) || !en_notify_open(e))
		return args_fail(error, ESCROW_E_NO_MEMORY, "the host's alloc has no memory");
	rc = event_open(e);
	if (rc)
		return args_fail_errno(error, ESCROW_E_NO_MEMORY, rc, "event descriptors: %s",
				       args_errno(rc));
	st = open_ledger(e, error);
	if (st < 0 || (st = en_lanes_open(e, error)) < 0)
		return st;
	fill_limits(e);
	rc = en_thread_start(e);
	if (rc)
		return args_fail_errno(error, ESCROW_E_NO_MEMORY, rc, "the control thread: %s",
				       args_errno(rc));
	return ESCROW_OK;
}

/* Devices that have no owner yet: open failed before the ledger was there. */
static void close_bare(struct escrow_engine *e)
{
	uint32_t i;

	for (i = 0; i < e->ncontexts; i++)
		if (e->contexts[i].native && !e->contexts[i].owner) {
			e->ops->close_device(e->contexts[i].native);
			e->contexts[i].native = NULL;
		}
}

/* The engine has gone; false: the ledger stays behind, on the list of what is quarantined. */
static bool let_ledger_go(struct escrow_engine *e)
{
	escrow_status st;

	ledger_owner_gone(e->ledger, ledger_engine(e->ledger));
	st = ledger_release(e->ledger);
	if (st == ESCROW_E_BUSY) {
		/* A receipt that came late let something go, which the host did not wait for. */
		ledger_abandon(e->ledger);
		st = ledger_release(e->ledger);
	}
	/* Nothing of a device that was fenced can be touched any more. */
	if (st != ESCROW_OK && e->fenced)
		ledger_fenced(NULL, e->incarnation, ESCROW_RECEIPT_FUNCTION_FENCED);
	return st == ESCROW_OK;
}

/*
 * What was made goes the way of a close.  What is quarantined then stays, with the native side and
 * the memory that it needs; the ledger lists it.
 */
static void unbuild(struct escrow_engine *e)
{
	bool stuck = false;

	en_thread_join(e);
	if (e->ledger) {
		engine_lock(e);
		ledger_owner_event(e->ledger, ledger_engine(e->ledger), LEDGER_E_STOP);
		en_devices_close(e);
		engine_unlock(e);
		stuck = !let_ledger_go(e);
	}
	close_bare(e);
	if (e->native && !stuck)
		e->ops->free_native(e->native);
	en_free(e);
}

static void init(struct escrow_engine *e, const struct engine_backend *self,
		 const struct escrow_host *host, const struct escrow_host *table)
{
	memset(e, 0, sizeof(*e));
	e->ops = self->native;
	e->host = *host;
	e->host_table = table;
	e->wake_fd = e->epoll_fd = e->timer_fd = e->control_fd = -1;
	e->work.kind = WORK_ENGINE;
	atomic_store(&e->control_next, UINT64_MAX);
	atomic_store(&e->state, ESCROW_STATE_OPEN);
	event_init(&e->events);
}

escrow_status en_open_check(const struct escrow_open_args *from, struct escrow_open_args *a,
			    struct escrow_host *host, char name[64], struct escrow_error *error)
{
	escrow_status st = args_read(&args_open, from, a, error);

	if (st < 0)
		return st;
	if (a->revision != ENGINE_REVISION)
		return args_fail(error, ESCROW_E_REVISION, "revision %u; this backend knows %u",
				 a->revision, ENGINE_REVISION);
	st = entry_check_host(a->host, host, error);
	return st < 0 ? st : args_name("engine_name", a->engine_name, name, error);
}

escrow_status engine_open(const struct engine_backend *self, const struct escrow_open_args *from,
			  struct escrow_engine **out, struct escrow_error *error)
{
	struct escrow_open_args a;
	struct escrow_host host;
	struct escrow_engine *e;
	struct config config;
	char name[64];
	escrow_status st;

	if (!out)
		return args_fail(error, ESCROW_E_INVALID, "engine is NULL");
	st = en_open_check(from, &a, &host, name, error);
	if (st < 0 || (st = config_read(&a, self->native, &config, error)) < 0)
		return st;
	if (config.control_thread == 0 && self->native->control_thread)
		return args_fail(error, ESCROW_E_INVALID,
				 "control_thread is \"0\"; this backend's steps may sleep: 1 or 2");
	e = host.alloc(host.ctx, sizeof(*e), 64);
	if (!e)
		return args_fail(error, ESCROW_E_NO_MEMORY, "the host's alloc has no memory");
	init(e, self, &host, a.host);
	e->config = config;
	memcpy(e->name, name, 64);
	e->threaded = config.control_thread == 2 ? self->native->control_thread
						 : (uint32_t)config.control_thread;
	if (here_page(e) || wire_random(e->incarnation, 16) || wire_random(e->secret, 16))
		st = args_fail(error, ESCROW_E_INTERNAL, "a page or random bytes: no");
	else
		st = build(e, error);
	if (st < 0) {
		unbuild(e);
		return st;
	}
	e->config.nnative = 0; /* they were in-call */
	e->magic = ENGINE_MAGIC;
	*out = e;
	return ESCROW_OK;
}

/* ---- Release ------------------------------------------------------------------------------------------------- */
void engine_release(struct escrow_engine *e)
{
	if (!engine_here(e))
		return;
	if (!state_allows(SLOT_RELEASE, engine_state(e))) {
		en_log(e, ESCROW_LOG_HOST_MISBEHAVES, "release in state %s; CLOSED or QUARANTINED",
		       state_name(engine_state(e)));
		return;
	}
	en_thread_join(e);
	/* Native objects of quarantined owners stay allocated, and nobody calls them any more. */
	if (let_ledger_go(e) && !e->fenced)
		e->ops->free_native(e->native);
	en_free(e);
}

escrow_status engine_query(struct escrow_engine *e, struct escrow_limits *to)
{
	struct escrow_limits l;

	if (!engine_here(e))
		return ESCROW_E_STATE;
	l = e->limits;
	l.state = engine_state(e);
	return args_write(&args_limits, &l, to);
}
