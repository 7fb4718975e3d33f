/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

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
	g_hash_table_unref(g->peers);
	g_free(g);
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
		if (current)
			host->next = g; /* before its first event can be polled */
		atomic_store(&host->generations[g->slot], g);
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
	g_hash_table_unref(g->peers);
	g_free(g);
	return status;
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
	host->epoll = epoll_create1(EPOLL_CLOEXEC);
	host->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (host->epoll >= 0 && host->wake >= 0)
		epoll_ctl(host->epoll, EPOLL_CTL_ADD, host->wake, &interest);
	return host;
}

escrow_status host_check_args(const struct escrow_host_args *args, struct escrow_error *error)
{
	size_t n;

	if (!args || args->size < sizeof(*args) || !args->module)
		return error_set(error, ESCROW_E_INVALID, "open: no args, too short, or no module");
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
	struct escrow_quota left = {.peers = atomic_load(&host->peers.used) + host->peers_stuck};

	for (uint32_t i = 0; i < atomic_load(&host->grants.places); i++) {
		const struct host_grant *grant = table_at(&host->grants, i);

		left.grants += grant != NULL;
		left.granted_bytes += grant ? grant->args.length : 0;
	}
	quota_give(&left);
	quota_ops_give(atomic_load(&host->lend.used));
}

escrow_status escrow_release(struct escrow_host_engine *host)
{
	bool orphans;

	if (!host)
		return ESCROW_E_INVALID;
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
	escrow_status status;
	uint32_t before;

	if (!host)
		return ESCROW_E_INVALID;
	if (mode > ESCROW_CLOSE_ABORT)
		return ESCROW_E_UNSUPPORTED;
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
	escrow_status status;

	if (!host || !limits)
		return ESCROW_E_INVALID;
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

	if (!host)
		return NULL;
	current = host_enter(host, &mark);
	module = current->module;
	if (generation)
		*generation = current->number;
	inside_leave(mark);
	return module;
}

/* ---- Plain hand-overs to the current backend --------------------------------------------------- */
escrow_status escrow_quiesce(struct escrow_host_engine *host)
{
	struct host_generation *current;
	struct inside_mark mark;
	escrow_status status;

	if (!host)
		return ESCROW_E_INVALID;
	status = host_may_change(host, NULL);
	current = host_enter(host, &mark);
	if (status != ESCROW_E_BUSY)
		status = current->ops->quiesce(current->engine, 0);
	inside_leave(mark);
	return status;
}

escrow_status escrow_resume(struct escrow_host_engine *host)
{
	struct host_generation *current;
	struct inside_mark mark;
	escrow_status status;

	if (!host)
		return ESCROW_E_INVALID;
	status = host_may_change(host, NULL);
	current = host_enter(host, &mark);
	if (status != ESCROW_E_BUSY)
		status = current->ops->resume(current->engine, 0);
	inside_leave(mark);
	return status;
}

escrow_status escrow_drain(struct escrow_host_engine *host, uint64_t peer, uint64_t deadline_ns)
{
	struct host_generation *current;
	struct inside_mark mark;
	escrow_status status;
	uint64_t handle;

	if (!host)
		return ESCROW_E_INVALID;
	status = host_may_change(host, NULL);
	current = host_enter(host, &mark);
	handle = peer ? host_peer_handle(host, current, peer) : 0;
	if (peer && !handle)
		status = ESCROW_E_INVALID;
	else if (status != ESCROW_E_BUSY)
		status = current->ops->drain(current->engine, handle, deadline_ns, 0);
	inside_leave(mark);
	return status;
}
