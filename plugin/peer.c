/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers, grants and remotes: the slots with the host's handles. */
#include <inttypes.h>
#include <string.h>

#include "plugin/args.h"
#include "plugin/error.h"
#include "plugin/event.h"
#include "plugin/host.h"

uint64_t host_peer_handle(struct escrow_host_engine *host, const struct host_generation *g,
			  uint64_t peer)
{
	struct host_peer *entry = table_find(&host->peers, peer);
	uint64_t handle = entry ? atomic_load(&entry->backend[g->column]) : 0;

	return entry && table_was(&entry->head, peer) ? handle : 0;
}

/* Sets an answer's text from what the backend wrote. */
static escrow_status peer_result(escrow_status status, const char *what,
				 struct escrow_error *theirs, struct escrow_error *error)
{
	error_close(theirs);
	if (status >= 0)
		return status;
	return error_set(error, status, "%s: %.200s", what,
			 theirs->text[0] ? theirs->text : escrow_status_name(status));
}

/* An account's name as it is kept. */
static void account_of(char account[QUOTA_NAME], const char *name)
{
	g_strlcpy(account, name ? name : "", QUOTA_NAME);
}

/* ---- Peers ------------------------------------------------------------------------------------- */
escrow_status escrow_invite(struct escrow_host_engine *host, const struct escrow_invite_args *args,
			    void *buf, uint64_t *len)
{
	char account[QUOTA_NAME];
	struct host_generation *g;
	struct inside_mark mark;
	escrow_status status;
	bool any;

	status = host_check(host);
	if (status != ESCROW_OK)
		return status;
	status = args_check(args, sizeof(*args), "invite", NULL);
	if (status != ESCROW_OK)
		return status;
	status = host_may_change(host, NULL);
	if (status == ESCROW_E_BUSY)
		return status;
	any = args->flags & ESCROW_INVITE_ANY;
	account_of(account, any || atomic_load(&host->invited_any) ? QUOTA_ANY : args->peer_name);
	/* Who comes by it is not asked for any more, so there must be room now. */
	status = quota_take(account, QUOTA_PEERS(1), NULL);
	if (status != ESCROW_OK)
		return status;
	quota_give(account, QUOTA_PEERS(1));
	g = host_enter(host, &mark);
	status = g->ops->invite(g->engine, args, buf, len);
	inside_leave(mark);
	if (status == ESCROW_OK && any)
		atomic_store(&host->invited_any, 1);
	return status;
}

static struct host_peer *peer_add(struct escrow_host_engine *host,
				  const struct escrow_peer_args *args)
{
	struct host_peer *peer;

	g_mutex_lock(&host->lock);
	peer = table_take(&host->peers);
	if (peer) {
		peer->user = args->user;
		peer->flags = 0;
		peer->next_up = peer->next_sent = peer->stopped = 0;
		atomic_store(&peer->backend[0], 0);
		atomic_store(&peer->backend[1], 0);
		atomic_store(&peer->state, HOST_PENDING);
		g_strlcpy(peer->name, args->peer_name ? args->peer_name : "", sizeof(peer->name));
		account_of(peer->account, args->peer_name);
		table_publish(&host->peers, peer);
	}
	g_mutex_unlock(&host->lock);
	return peer;
}

escrow_status escrow_connect(struct escrow_host_engine *host, const struct escrow_peer_args *args,
			     uint64_t *handle, struct escrow_error *error)
{
	struct escrow_peer_args ours;
	struct escrow_error theirs;
	struct host_generation *g;
	struct inside_mark mark;
	struct host_peer *peer;
	char account[QUOTA_NAME];
	uint64_t id, backend = 0;
	escrow_status status;

	status = host_check_said(host, "connect", error);
	if (status != ESCROW_OK)
		return status;
	if (!handle)
		return error_set(error, ESCROW_E_INVALID, "connect: nowhere to put the peer");
	status = args_check(args, sizeof(*args), "connect", error);
	if (status == ESCROW_OK)
		status = host_may_change(host, error);
	if (status != ESCROW_OK)
		return status;
	account_of(account, args->peer_name);
	status = quota_take(account, QUOTA_PEERS(1), error);
	if (status != ESCROW_OK)
		return status;
	peer = peer_add(host, args);
	if (!peer) {
		quota_give(account, QUOTA_PEERS(1));
		return error_set(error, ESCROW_E_NO_MEMORY, "connect: no room for a peer");
	}
	id = atomic_load(&peer->head.handle);
	ours = *args;
	ours.size = sizeof(ours);
	ours.user = id;
	error_clear(&theirs);
	g = host_enter(host, &mark);
	status = g->ops->connect(g->engine, &ours, &backend, &theirs);
	g_mutex_lock(&host->lock);
	peer = table_find(&host->peers, id); /* PEER_DOWN may have been polled already */
	if (status < 0 && peer) {
		table_remove(&host->peers, peer);
		quota_give(account, QUOTA_PEERS(1));
	} else if (peer) {
		atomic_store(&peer->backend[g->column], backend);
		event_peer_is(g, backend, id);
	}
	g_mutex_unlock(&host->lock);
	inside_leave(mark);
	if (status >= 0)
		*handle = id;
	return peer_result(status, "connect", &theirs, error);
}

escrow_status escrow_disconnect(struct escrow_host_engine *host, uint64_t peer)
{
	struct host_generation *g;
	struct inside_mark mark;
	escrow_status status;
	uint64_t handle;

	status = host_check(host);
	if (status != ESCROW_OK)
		return status;
	status = host_may_change(host, NULL);
	if (status != ESCROW_OK)
		return status;
	g = host_enter(host, &mark);
	handle = host_peer_handle(host, g, peer);
	status = handle ? g->ops->disconnect(g->engine, handle, 0) : ESCROW_E_INVALID;
	inside_leave(mark);
	return status;
}

escrow_status escrow_peer_info(struct escrow_host_engine *host, uint64_t peer,
			       struct escrow_peer_info *info)
{
	struct host_generation *g;
	struct inside_mark mark;
	struct host_peer *entry;
	escrow_status status;
	uint64_t handle;

	status = host_check(host);
	if (status != ESCROW_OK)
		return status;
	if (!info)
		return ESCROW_E_INVALID;
	g = host_enter(host, &mark);
	handle = host_peer_handle(host, g, peer);
	status = handle ? g->ops->peer_info(g->engine, handle, info) : host_no_handle(host);
	inside_leave(mark);
	if (status != ESCROW_OK)
		return status;
	g_mutex_lock(&host->lock);
	entry = table_find(&host->peers, peer);
	if (entry)
		info->user = entry->user;
	g_mutex_unlock(&host->lock);
	return status;
}

/* ---- Grants ------------------------------------------------------------------------------------ */
/* The args with the backend's handles.  E_INVALID: a handle is stale or of something else. */
static escrow_status grant_translate(struct escrow_host_engine *host,
				     const struct host_generation *g,
				     const struct escrow_grant_args *args, uint64_t user,
				     struct escrow_grant_args *out, struct escrow_error *error)
{
	struct host_region *region = table_find(&host->regions, args->region);

	*out = *args;
	out->size = sizeof(*out);
	out->user = user;
	out->region = region ? atomic_load(&region->backend[g->column]) : 0;
	out->peer = args->peer ? host_peer_handle(host, g, args->peer) : 0;
	if (!out->region)
		return error_set(error, ESCROW_E_INVALID,
				 "grant: region 0x%" PRIx64 ": this engine has no such region",
				 args->region);
	if (args->peer && !out->peer)
		return error_set(error, ESCROW_E_INVALID,
				 "grant: peer 0x%" PRIx64 ": this engine has no such peer",
				 args->peer);
	if (atomic_load(&region->state) == HOST_WITHHELD)
		return error_set(error, ESCROW_E_STATE, "grant: region 0x%" PRIx64 " is withheld",
				 args->region);
	return ESCROW_OK;
}

escrow_status grant_make_in(struct escrow_host_engine *host, struct host_grant *grant,
			    struct host_generation *g, struct escrow_error *error)
{
	uint64_t id = atomic_load(&grant->head.handle), handle = 0;
	struct escrow_grant_args ours;
	struct escrow_error theirs;
	escrow_status status = grant_translate(host, g, &grant->args, id, &ours, error);

	if (status != ESCROW_OK)
		return status;
	error_clear(&theirs);
	status = g->ops->grant(g->engine, &ours, &handle, &theirs);
	g_mutex_lock(&host->lock);
	if (status >= 0 && atomic_load(&grant->head.handle) == id)
		atomic_store(&grant->backend[g->column], handle);
	g_mutex_unlock(&host->lock);
	return peer_result(status, "grant", &theirs, error);
}

/* Who is charged for a grant to this peer. */
static void grant_account(struct escrow_host_engine *host, uint64_t handle,
			  char account[QUOTA_NAME])
{
	const struct host_peer *peer;

	g_mutex_lock(&host->lock);
	peer = handle ? table_find(&host->peers, handle) : NULL;
	account_of(account, peer ? peer->account : NULL);
	g_mutex_unlock(&host->lock);
}

escrow_status escrow_grant(struct escrow_host_engine *host, const struct escrow_grant_args *args,
			   uint64_t *handle, struct escrow_error *error)
{
	struct host_generation *g;
	struct inside_mark mark;
	struct host_grant *grant;
	char account[QUOTA_NAME];
	escrow_status status;
	uint64_t id;

	status = host_check_said(host, "grant", error);
	if (status != ESCROW_OK)
		return status;
	if (!handle)
		return error_set(error, ESCROW_E_INVALID, "grant: nowhere to put the grant");
	status = args_check(args, sizeof(*args), "grant", error);
	if (status == ESCROW_OK)
		status = host_may_change(host, error);
	if (status != ESCROW_OK)
		return status;
	grant_account(host, args->peer, account);
	status = quota_take(account, QUOTA_GRANT(args->length), error);
	if (status != ESCROW_OK)
		return status;
	g_mutex_lock(&host->lock);
	grant = table_take(&host->grants);
	if (grant) {
		grant->args = *args;
		memcpy(grant->account, account, sizeof(account));
		grant->ready = args->peer == 0; /* an offer is, at once */
		grant->next_ready = grant->next_sent = 0;
		atomic_store(&grant->backend[0], 0);
		atomic_store(&grant->backend[1], 0);
		atomic_store(&grant->state, HOST_LIVE);
		table_publish(&host->grants, grant);
	}
	g_mutex_unlock(&host->lock);
	if (!grant) {
		quota_give(account, QUOTA_GRANT(args->length));
		return error_set(error, ESCROW_E_NO_MEMORY, "grant: no room for a grant");
	}
	id = atomic_load(&grant->head.handle);
	g = host_enter(host, &mark);
	status = grant_make_in(host, grant, g, error);
	inside_leave(mark);
	if (status >= 0) {
		*handle = id;
		return status;
	}
	g_mutex_lock(&host->lock);
	if (table_find(&host->grants, id)) {
		table_remove(&host->grants, grant);
		quota_give(account, QUOTA_GRANT(args->length));
	}
	g_mutex_unlock(&host->lock);
	return status;
}

/* The grant's handle in the current generation, or 0. */
static uint64_t grant_handle(struct escrow_host_engine *host, const struct host_generation *g,
			     uint64_t grant)
{
	struct host_grant *entry = table_find(&host->grants, grant);
	uint64_t handle = entry ? atomic_load(&entry->backend[g->column]) : 0;

	return entry && table_was(&entry->head, grant) ? handle : 0;
}

escrow_status escrow_export_grant(struct escrow_host_engine *host, uint64_t grant, void *buf,
				  uint64_t *len)
{
	struct host_generation *g;
	struct inside_mark mark;
	escrow_status status;
	uint64_t handle;

	status = host_check(host);
	if (status != ESCROW_OK)
		return status;
	if (!len)
		return ESCROW_E_INVALID;
	g = host_enter(host, &mark);
	handle = grant_handle(host, g, grant);
	status = handle ? g->ops->export_grant(g->engine, handle, buf, len) : host_no_handle(host);
	inside_leave(mark);
	return status;
}

escrow_status escrow_revoke(struct escrow_host_engine *host, uint64_t grant)
{
	struct host_generation *g;
	struct host_grant *entry;
	struct inside_mark mark;
	escrow_status status;
	uint64_t handle;

	status = host_check(host);
	if (status != ESCROW_OK)
		return status;
	status = host_may_change(host, NULL);
	if (status != ESCROW_OK)
		return status;
	g = host_enter(host, &mark);
	handle = grant_handle(host, g, grant);
	status = handle ? g->ops->revoke(g->engine, handle, 0) : ESCROW_E_INVALID;
	inside_leave(mark);
	if (status < 0)
		return status;
	g_mutex_lock(&host->lock);
	entry = table_find(&host->grants, grant); /* GRANT_REVOKED may have been polled already */
	if (entry && atomic_load(&entry->state) == HOST_LIVE)
		atomic_store(&entry->state, HOST_RELEASING);
	g_mutex_unlock(&host->lock);
	return status;
}

/* ---- Remotes ----------------------------------------------------------------------------------- */
escrow_status remote_import_in(struct escrow_host_engine *host, struct host_remote *remote,
			       struct host_generation *g, const struct escrow_remote_args *args,
			       struct escrow_error *error)
{
	uint64_t id = atomic_load(&remote->head.handle), handle = 0;
	uint64_t peer = host_peer_handle(host, g, remote->peer);
	struct escrow_error theirs;
	escrow_status status;

	if (!peer)
		return error_set(error, ESCROW_E_INVALID,
				 "import: peer 0x%" PRIx64 ": this engine has no such peer",
				 remote->peer);
	error_clear(&theirs);
	status =
		g->ops->import_grant(g->engine, peer, args->bytes, args->len, id, &handle, &theirs);
	g_mutex_lock(&host->lock);
	if (status >= 0 && atomic_load(&remote->head.handle) == id)
		atomic_store(&remote->backend[g->column], handle);
	g_mutex_unlock(&host->lock);
	return peer_result(status, "import", &theirs, error);
}

escrow_status escrow_import_grant(struct escrow_host_engine *host,
				  const struct escrow_remote_args *args, uint64_t *handle,
				  struct escrow_error *error)
{
	struct host_generation *g;
	struct inside_mark mark;
	struct host_remote *remote;
	escrow_status status;
	uint64_t id;

	status = host_check_said(host, "import", error);
	if (status != ESCROW_OK)
		return status;
	if (!handle)
		return error_set(error, ESCROW_E_INVALID, "import: nowhere to put the remote");
	status = args_check(args, sizeof(*args), "import", error);
	if (status == ESCROW_OK && args->flags)
		status = error_set(error, ESCROW_E_UNSUPPORTED, "import: unknown flags 0x%x",
				   args->flags);
	if (status == ESCROW_OK)
		status = host_may_change(host, error);
	if (status != ESCROW_OK)
		return status;
	g_mutex_lock(&host->lock);
	remote = table_take(&host->remotes);
	if (remote) {
		remote->user = args->user;
		remote->peer = args->peer;
		remote->ready = remote->next_ready = remote->next_sent = 0;
		atomic_store(&remote->backend[0], 0);
		atomic_store(&remote->backend[1], 0);
		atomic_store(&remote->state, HOST_LIVE);
		table_publish(&host->remotes, remote);
	}
	g_mutex_unlock(&host->lock);
	if (!remote)
		return error_set(error, ESCROW_E_NO_MEMORY, "import: no room for a remote");
	id = atomic_load(&remote->head.handle);
	g = host_enter(host, &mark);
	status = remote_import_in(host, remote, g, args, error);
	inside_leave(mark);
	g_mutex_lock(&host->lock);
	if (status < 0 && atomic_load(&remote->head.handle) == id)
		table_remove(&host->remotes, remote);
	else if (status == ESCROW_OK)
		remote->ready = 1;
	g_mutex_unlock(&host->lock);
	if (status >= 0)
		*handle = id;
	return status;
}

escrow_status escrow_forget_grant(struct escrow_host_engine *host, uint64_t handle)
{
	struct host_generation *g;
	struct inside_mark mark;
	struct host_remote *remote;
	escrow_status status;
	uint64_t theirs;

	status = host_check(host);
	if (status != ESCROW_OK)
		return status;
	status = host_may_change(host, NULL);
	if (status != ESCROW_OK)
		return status;
	g = host_enter(host, &mark);
	remote = table_find(&host->remotes, handle);
	theirs = remote ? atomic_load(&remote->backend[g->column]) : 0;
	if (!remote)
		status = ESCROW_E_INVALID;
	else if (theirs)
		status = g->ops->forget_grant(g->engine, theirs);
	else
		status = ESCROW_OK; /* its peer was gone before a swap: no backend knows it */
	inside_leave(mark);
	if (status != ESCROW_OK)
		return status;
	g_mutex_lock(&host->lock);
	if (table_find(&host->remotes, handle)) /* a REMOTE_READY that failed was its end already */
		table_remove(&host->remotes, remote);
	g_mutex_unlock(&host->lock);
	return ESCROW_OK;
}
