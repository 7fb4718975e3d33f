/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "plugin/args.h"
#include "plugin/error.h"
#include "plugin/host.h"
#include "plugin/supervisor.h"

#define ENGINE_DISCARD_US 2000000 /* what never served has nothing to wait for */

/* ---- Generations ------------------------------------------------------------------------------- */
static escrow_status engine_call_open(struct escrow_host_engine *host, struct host_generation *g,
				      const struct host_config *config, struct escrow_error *error)
{
	struct escrow_open_args args = {.size = sizeof(args),
					.host = &host->services->host,
					.revision = module_backend(g->module)->revision,
					.kv = config->kv,
					.nkv = config->nkv,
					.kv_stride = sizeof(struct escrow_kv),
					.engine_name = host->name};
	struct escrow_error theirs;
	escrow_status status;

	error_clear(&theirs);
	status = g->ops->open(&args, &g->engine, &theirs);
	error_close(&theirs);
	if (status == ESCROW_OK && g->engine)
		return ESCROW_OK;
	if (status >= 0)
		return error_set(error, ESCROW_E_INTERNAL, "%s: open answered %s without an engine",
				 module_backend(g->module)->id, escrow_status_name(status));
	return error_set(error, status, "%s: %.200s", module_backend(g->module)->id,
			 theirs.text[0] ? theirs.text : escrow_status_name(status));
}

/* The limits must be there, and an advertised descriptor must be one. */
static escrow_status engine_inspect(struct escrow_host_engine *host, struct host_generation *g,
				    struct escrow_error *error)
{
	struct epoll_event interest = {.events = EPOLLIN};

	g->limits.size = sizeof(g->limits);
	if (g->ops->query(g->engine, &g->limits) != ESCROW_OK)
		return error_set(error, ESCROW_E_INTERNAL, "%s: query of a new engine failed",
				 module_backend(g->module)->id);
	if (!(g->limits.caps & ESCROW_CAP_EVENT_FD))
		return ESCROW_OK;
	g->fd = g->ops->event_fd(g->engine);
	if (g->fd < 0 || epoll_ctl(host->epoll, EPOLL_CTL_ADD, g->fd, &interest) != 0) {
		g->fd = -1;
		return error_set(error, ESCROW_E_INTERNAL,
				 "%s: ESCROW_CAP_EVENT_FD without a descriptor that can be polled",
				 module_backend(g->module)->id);
	}
	return ESCROW_OK;
}

/*
 * An engine that never served: nothing is in it, so its end is near.  One that does not come to it
 * in time is left alone, and pins its object.
 */
static void engine_discard(struct host_generation *g)
{
	gint64 patience = g_get_monotonic_time() + ENGINE_DISCARD_US;
	struct escrow_event event = {0};

	if (g->ops->close(g->engine, 0, ESCROW_CLOSE_ABORT) < 0)
		return;
	while (atomic_load(&g->ended) == HOST_ENDED_NOT && g_get_monotonic_time() < patience) {
		if (g->ops->poll(g->engine, &event, 1, sizeof(event), 0) != 1)
			g_thread_yield();
		else if (event.kind == ESCROW_EV_CLOSED)
			atomic_store(&g->ended, HOST_ENDED_CLOSED);
		else if (event.kind == ESCROW_EV_QUARANTINED && event.object == 0)
			atomic_store(&g->ended, HOST_ENDED_QUARANTINED);
	}
}

static void engine_free_generation(struct host_generation *g)
{
	g_hash_table_unref(g->peers);
	g_ptr_array_unref(g->peers_stuck);
	g_free(g);
}

/* Releases a generation that nobody can reach any more. */
static void engine_end(struct escrow_host_engine *host, struct host_generation *g)
{
	uint32_t ended = atomic_load(&g->ended);

	if (g->fd >= 0)
		epoll_ctl(host->epoll, EPOLL_CTL_DEL, g->fd, NULL); /* O3 */
	if (ended != HOST_ENDED_NOT)
		g->ops->release(g->engine);
	/* U4: what is quarantined, or was never closed, pins its object for ever */
	if (ended == HOST_ENDED_CLOSED) {
		module_engine_released(g->module);
		escrow_module_unref(g->module);
	}
	engine_free_generation(g);
}

/* Under lock. */
static void engine_clear_column(struct escrow_host_engine *host, uint32_t column)
{
	for (uint32_t i = 0; i < host->peers.places; i++) {
		struct host_peer *peer = table_at(&host->peers, i);

		if (peer)
			atomic_store(&peer->backend[column], 0);
	}
	for (uint32_t i = 0; i < host->grants.places; i++) {
		struct host_grant *grant = table_at(&host->grants, i);

		if (grant)
			atomic_store(&grant->backend[column], 0);
	}
	for (uint32_t i = 0; i < host->remotes.places; i++) {
		struct host_remote *remote = table_at(&host->remotes, i);

		if (remote)
			atomic_store(&remote->backend[column], 0);
	}
}

void host_clear_column(struct escrow_host_engine *host, uint32_t column)
{
	g_mutex_lock(&host->lock);
	engine_clear_column(host, column);
	g_mutex_unlock(&host->lock);
}

static escrow_status engine_list(struct escrow_host_engine *host, struct host_generation *g,
				 struct escrow_error *error)
{
	g_mutex_lock(&host->lock);
	for (g->slot = 0; g->slot <= HOST_GENERATIONS; g->slot++) {
		if (!atomic_load(&host->generations[g->slot]))
			break;
	}
	if (g->slot <= HOST_GENERATIONS) {
		struct host_generation *current = atomic_load(&host->current);

		g->number = ++host->numbers;
		g->column = current ? 1 - current->column : 0;
		if (current) {
			/* one that was taken back may have left handles, and numbers come again */
			engine_clear_column(host, g->column);
			host->next = g; /* before its first event can be polled */
		}
		atomic_store(&host->generations[g->slot], g);
		/* Behind it: who sees so many looks at it. */
		if (g->slot == atomic_load(&host->slots))
			atomic_store(&host->slots, g->slot + 1);
	}
	g_mutex_unlock(&host->lock);
	if (g->slot <= HOST_GENERATIONS)
		return ESCROW_OK;
	return error_set(error, ESCROW_E_LIMIT, "%u generations of this engine are alive",
			 HOST_GENERATIONS);
}

escrow_status host_open_generation(struct escrow_host_engine *host, struct escrow_module *module,
				   const char *const *settings, struct _GKeyFile *key_file,
				   struct host_generation **out, struct escrow_error *error)
{
	struct host_generation *g = g_new0(struct host_generation, 1);
	struct host_config config;
	escrow_status status;

	g->module = escrow_module_ref(module);
	g->ops = module_ops(module);
	g->fd = -1;
	g->peers = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
	g->peers_stuck = g_ptr_array_new_with_free_func(g_free);
	status = host_config_make(&config, module_backend(module)->id, settings, key_file, error);
	if (status != ESCROW_OK)
		goto unref;
	status = engine_call_open(host, g, &config, error);
	host_config_free(&config);
	if (status != ESCROW_OK)
		goto unref;
	module_engine_opened(module);
	status = engine_inspect(host, g, error);
	if (status == ESCROW_OK)
		status = supervisor_tell(g->limits.incarnation, error);
	if (status == ESCROW_OK)
		status = engine_list(host, g, error);
	if (status != ESCROW_OK)
		goto discard;
	*out = g;
	return ESCROW_OK;
discard:
	engine_discard(g);
	host->abandoned |= atomic_load(&g->ended) != HOST_ENDED_CLOSED;
	engine_end(host, g);
	return status;
unref:
	escrow_module_unref(module);
	engine_free_generation(g);
	return status;
}

void host_ended(struct escrow_host_engine *host, struct host_generation *g, uint32_t how)
{
	/* one that is CLOSED is not armed again, so that what its descriptor says would stay */
	if (how == HOST_ENDED_CLOSED && g->fd >= 0)
		epoll_ctl(host->epoll, EPOLL_CTL_DEL, g->fd, NULL);
	if (how == HOST_ENDED_CLOSED) { /* the receipt of all that was stuck there */
		for (uint32_t i = 0; i < g->peers_stuck->len; i++)
			quota_give(g_ptr_array_index(g->peers_stuck, i), QUOTA_PEERS(1));
		g_ptr_array_set_size(g->peers_stuck, 0);
	}
	atomic_store(&g->ended, how);
}

void host_drop_generation(struct escrow_host_engine *host, struct host_generation *g)
{
	atomic_store(&host->generations[g->slot], NULL);
	inside_wait(&host->inside);
	engine_end(host, g);
}

/* ---- The host engine --------------------------------------------------------------------------- */
void host_wake(struct escrow_host_engine *host)
{
	uint64_t one = 1;

	/* can only fail when it is readable already */
	if (write(host->wake, &one, sizeof(one)) < 0)
		return;
}

static void engine_free(struct escrow_host_engine *host, bool keep_services)
{
	region_free_all(host);
	table_fini(&host->regions);
	table_fini(&host->peers);
	table_fini(&host->grants);
	table_fini(&host->remotes);
	lend_fini(&host->lend);
	here_free(host->here);
	if (host->epoll >= 0)
		close(host->epoll);
	if (host->wake >= 0)
		close(host->wake);
	if (keep_services || host->abandoned)
		services_orphan(host->services); /* owners in quarantine still call them */
	else
		g_free(host->services);
	g_mutex_clear(&host->lock);
	g_aligned_free(host);
}

static struct escrow_host_engine *engine_new(const struct escrow_host_args *args)
{
	struct escrow_host_engine *host;
	struct epoll_event interest = {.events = EPOLLIN};

	host = g_aligned_alloc0(1, sizeof(*host), 64);
	host->services = g_new0(struct services, 1);
	services_init(host->services, args);
	g_mutex_init(&host->lock);
	g_strlcpy(host->name, args->engine_name, sizeof(host->name));
	host->flags = args->flags;
	table_init(&host->regions, TABLE_REGION, sizeof(struct host_region));
	table_init(&host->peers, TABLE_PEER, sizeof(struct host_peer));
	table_init(&host->grants, TABLE_GRANT, sizeof(struct host_grant));
	table_init(&host->remotes, TABLE_REMOTE, sizeof(struct host_remote));
	host->here = here_new();
	host->epoll = epoll_create1(EPOLL_CLOEXEC);
	host->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (host->epoll >= 0 && host->wake >= 0)
		epoll_ctl(host->epoll, EPOLL_CTL_ADD, host->wake, &interest);
	return host;
}

escrow_status host_check_args(const struct escrow_host_args *args, struct escrow_error *error)
{
	escrow_status status = args_check(args, sizeof(*args), "open", error);
	size_t n;

	if (status != ESCROW_OK)
		return status;
	if (!args->module)
		return error_set(error, ESCROW_E_INVALID, "open: no module");
	if (args->flags & ~(ESCROW_GUARD_WRITES | ESCROW_GUARD_READS))
		return error_set(error, ESCROW_E_UNSUPPORTED, "open: unknown flags 0x%x",
				 args->flags);
	n = args->engine_name ? strnlen(args->engine_name, 64) : 0;
	if (n < 1 || n > 63)
		return error_set(error, ESCROW_E_INVALID,
				 "open: the engine's name must have 1..63 bytes");
	return ESCROW_OK;
}

escrow_status escrow_open(const struct escrow_host_args *args, struct escrow_host_engine **engine,
			  struct escrow_error *error)
{
	escrow_status status = host_check_args(args, error);
	struct escrow_host_engine *host;
	struct host_generation *g = NULL;
	uint64_t nops, nranges;

	if (status != ESCROW_OK)
		return status;
	if (!engine)
		return error_set(error, ESCROW_E_INVALID, "open: nowhere to put the engine");
	host = engine_new(args);
	if (!host->here) {
		status = error_errno(error, ESCROW_E_NO_MEMORY, errno,
				     "no page that a fork empties");
		goto free_host;
	}
	if (host->epoll < 0 || host->wake < 0) {
		status = error_errno(error, ESCROW_E_AGAIN, errno, "no event descriptor");
		goto free_host;
	}
	status =
		host_open_generation(host, args->module, args->settings, args->key_file, &g, error);
	if (status != ESCROW_OK)
		goto free_host;
	nops = args->max_ops ? args->max_ops : HOST_DEFAULT_OPS;
	nops = MAX(MIN(nops, g->limits.max_ops), 1);
	nranges = CLAMP(g->limits.max_sge, 1, LEND_MAX_RANGES);
	if (nops > (1u << 20) || !lend_init(&host->lend, (uint32_t)nops, (uint32_t)nranges)) {
		status = error_set(error, ESCROW_E_NO_MEMORY,
				   "no room for %" G_GUINT64_FORMAT " ops; at most 1048576", nops);
		goto discard;
	}
	atomic_store(&host->current, g);
	atomic_store(&host->dispatch, g);
	withheld_engine_add(host);
	*engine = host;
	return ESCROW_OK;
discard:
	engine_discard(g);
	host->abandoned |= atomic_load(&g->ended) != HOST_ENDED_CLOSED;
	host_drop_generation(host, g);
free_host:
	engine_free(host, false);
	return status;
}

static void engine_uncharge(struct escrow_host_engine *host)
{
	for (uint32_t i = 0; i < atomic_load(&host->peers.places); i++) {
		const struct host_peer *peer = table_at(&host->peers, i);

		if (peer)
			quota_give(peer->account, QUOTA_PEERS(1));
	}
	for (uint32_t i = 0; i < atomic_load(&host->grants.places); i++) {
		const struct host_grant *grant = table_at(&host->grants, i);

		if (grant)
			quota_give(grant->account, QUOTA_GRANT(grant->args.length));
	}
	quota_ops_give(lend_used(&host->lend));
}

escrow_status escrow_release(struct escrow_host_engine *host)
{
	escrow_status status = host_check(host);
	bool orphans;

	if (status != ESCROW_OK)
		return status;
	if (atomic_load(&host->ended) == HOST_ENDED_NOT)
		return ESCROW_E_STATE;
	orphans = atomic_load(&host->ended) == HOST_ENDED_QUARANTINED;
	withheld_engine_remove(host);
	if (!orphans) /* CLOSED: whatever no event told of has ended too */
		engine_uncharge(host);
	for (uint32_t i = 0; i <= HOST_GENERATIONS; i++) {
		struct host_generation *g = atomic_load(&host->generations[i]);

		if (g)
			host_drop_generation(host, g);
	}
	engine_free(host, orphans);
	return ESCROW_OK;
}

escrow_status host_check_said(const struct escrow_host_engine *host, const char *what,
			      struct escrow_error *error)
{
	escrow_status status = host_check(host);

	if (status == ESCROW_E_STATE)
		return error_set(error, status,
				 "%s: the engine is another process's: a child of fork may only "
				 "exec or _exit",
				 what);
	return status == ESCROW_OK ? status : error_set(error, status, "%s: no engine", what);
}

escrow_status host_may_change(struct escrow_host_engine *host, struct escrow_error *error)
{
	escrow_status status = ESCROW_OK;

	g_mutex_lock(&host->lock);
	if (host->swap)
		status = error_set(error, ESCROW_E_BUSY, "a swap is under way");
	else if (host->closing)
		status = error_set(error, ESCROW_E_STATE, "the engine is closing");
	g_mutex_unlock(&host->lock);
	return status;
}

escrow_status escrow_close(struct escrow_host_engine *host, uint64_t deadline_ns, uint32_t mode)
{
	struct host_generation *current;
	struct inside_mark mark;
	escrow_status status = host_check(host);
	uint32_t before;

	if (status != ESCROW_OK)
		return status;
	if (mode > ESCROW_CLOSE_ABORT)
		return ESCROW_E_UNSUPPORTED;
	if (atomic_load(&host->ended) == HOST_ENDED_QUARANTINED) {
		/* which of them it was, and whether that one tells it again, is not the host's affair */
		atomic_store(&host->end_due, 1);
		host_wake(host);
		return ESCROW_IN_PROGRESS;
	}
	g_mutex_lock(&host->lock);
	status = host->swap ? ESCROW_E_BUSY : ESCROW_OK;
	before = host->closing;
	host->closing |= !host->swap;
	g_mutex_unlock(&host->lock);
	if (status != ESCROW_OK)
		return status;
	current = host_enter(host, &mark);
	/* the older ones are closing or quarantined already: nothing is asked of them again */
	status = current->ops->close(current->engine, deadline_ns, mode);
	inside_leave(mark);
	if (status < 0) {
		g_mutex_lock(&host->lock);
		host->closing = before;
		g_mutex_unlock(&host->lock);
	}
	return status;
}

escrow_status escrow_query(struct escrow_host_engine *host, struct escrow_limits *limits)
{
	struct host_generation *current;
	struct inside_mark mark;
	escrow_status status = host_check(host);

	if (status != ESCROW_OK || !limits)
		return status != ESCROW_OK ? status : ESCROW_E_INVALID;
	current = host_enter(host, &mark);
	status = current->ops->query(current->engine, limits);
	inside_leave(mark);
	if (status == ESCROW_OK && limits->size >= sizeof(*limits)) {
		limits->max_ops = MIN(limits->max_ops, host->lend.nops);
		limits->max_sge = MIN(limits->max_sge, host->lend.max_ranges);
	}
	return status;
}

struct escrow_module *escrow_current(struct escrow_host_engine *host, uint64_t *generation)
{
	struct host_generation *current;
	struct escrow_module *module;
	struct inside_mark mark;

	if (host_check(host) != ESCROW_OK)
		return NULL;
	current = host_enter(host, &mark);
	module = current->module;
	if (generation)
		*generation = current->number;
	inside_leave(mark);
	return module;
}
