/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Step 4: B's peers, grants and remotes.  Which end asks is kept: whoever came by our invitation
 * gets a new one, whom we connected to is asked for one.  Grants follow when their peer is up.
 */
#include "plugin/swap.h"

escrow_status swap_carry(struct escrow_swap *swap, struct escrow_carry *message)
{
	struct host_peer *peer = table_find(&swap->host->peers, message->peer);

	if (!swap->args.carry)
		return error_set(&swap->error, ESCROW_E_INVALID,
				 "the engine has peers, and the host gave no way to reach them");
	message->size = sizeof(*message);
	message->generation = swap->b ? swap->b->number : 0;
	message->peer_name = peer ? peer->name : "";
	return swap->args.carry(swap->args.ctx, message);
}

void swap_carry_all(struct escrow_swap *swap, uint32_t kind)
{
	for (uint32_t i = 0; swap->args.carry && i < swap->host->peers.places; i++) {
		struct host_peer *peer = table_at(&swap->host->peers, i);
		struct escrow_carry message = {.kind = kind};

		if (!peer)
			continue;
		message.peer = atomic_load(&peer->head.handle);
		swap_carry(swap, &message);
	}
}

static escrow_status swap_peers_refuse(struct escrow_swap *swap, escrow_status status,
				       const char *what)
{
	if (status < 0 && !swap->error.text[0])
		error_set(&swap->error, status, "%s: %s", what, escrow_status_name(status));
	return status;
}

/* B's invitation for a peer that came by A's. */
static escrow_status swap_invite(struct escrow_swap *swap, struct host_peer *peer)
{
	struct host_generation *b = swap->b;
	uint64_t id = atomic_load(&peer->head.handle), len = 0;
	struct escrow_invite_args args = {.size = sizeof(args),
					  .user = id,
					  .peer_name = peer->name,
					  .expires_ns = swap->deadline_ns};
	struct escrow_carry message = {.kind = ESCROW_CARRY_INVITATION, .peer = id};
	g_autofree void *bytes = NULL;
	escrow_status status = b->ops->invite(b->engine, &args, NULL, &len);

	if (status != ESCROW_E_TOO_SMALL || len > (1u << 20))
		return swap_peers_refuse(swap, status < 0 ? status : ESCROW_E_INTERNAL,
					 "B's invitation");
	bytes = g_malloc(len);
	status = b->ops->invite(b->engine, &args, bytes, &len);
	if (status != ESCROW_OK)
		return swap_peers_refuse(swap, status, "B's invitation");
	message.bytes = bytes;
	message.len = len;
	return swap_peers_refuse(swap, swap_carry(swap, &message), "carrying an invitation");
}

static escrow_status swap_reach_peer(struct escrow_swap *swap, struct host_peer *peer)
{
	struct escrow_carry message = {.kind = ESCROW_CARRY_WANT_INVITATION,
				       .peer = atomic_load(&peer->head.handle)};

	if (atomic_load(&peer->state) != HOST_LIVE)
		return error_set(&swap->error, ESCROW_E_BUSY, "peer \"%s\" is being connected in A",
				 peer->name);
	peer->next_sent = 1;
	if (peer->flags & ESCROW_PEER_PASSIVE)
		return swap_invite(swap, peer);
	return swap_peers_refuse(swap, swap_carry(swap, &message), "asking for an invitation");
}

static bool swap_peer_is_up(struct escrow_swap *swap, uint64_t peer)
{
	struct host_peer *entry = table_find(&swap->host->peers, peer);

	return entry && entry->next_up;
}

/* Exports B's grant and sends it. */
static escrow_status swap_send_grant(struct escrow_swap *swap, struct host_grant *grant)
{
	struct host_generation *b = swap->b;
	uint64_t handle = atomic_load(&grant->backend[b->column]), len = 0;
	struct escrow_carry message = {.kind = ESCROW_CARRY_GRANT,
				       .peer = grant->args.peer,
				       .object = atomic_load(&grant->head.handle)};
	g_autofree void *bytes = NULL;
	escrow_status status = b->ops->export_grant(b->engine, handle, NULL, &len);

	if (status != ESCROW_E_TOO_SMALL || len > (1u << 20))
		return swap_peers_refuse(swap, status < 0 ? status : ESCROW_E_INTERNAL,
					 "exporting a grant of B");
	bytes = g_malloc(len);
	status = b->ops->export_grant(b->engine, handle, bytes, &len);
	if (status != ESCROW_OK)
		return swap_peers_refuse(swap, status, "exporting a grant of B");
	message.bytes = bytes;
	message.len = len;
	grant->next_sent = 2;
	return swap_peers_refuse(swap, swap_carry(swap, &message), "carrying a grant");
}

/* next_sent: 0 nothing, 1 made in B, 2 its bytes were carried.  OK: as far as it goes now. */
static escrow_status swap_move_grant(struct escrow_swap *swap, struct host_grant *grant, bool *all)
{
	escrow_status status;

	/* one of which A could not prove the end is not made once more: its end is A's */
	if (grant->next_sent == 2 || atomic_load(&grant->state) == HOST_WITHHELD)
		return ESCROW_OK;
	*all = false;
	if (!grant->ready)
		return error_set(&swap->error, ESCROW_E_BUSY, "a grant is being made in A");
	if (atomic_load(&grant->state) == HOST_RELEASING)
		return error_set(&swap->error, ESCROW_E_BUSY, "a grant is being revoked in A");
	if (grant->next_sent == 0) {
		if (grant->args.peer && !swap_peer_is_up(swap, grant->args.peer))
			return ESCROW_OK;
		grant->next_sent = 1;
		status = grant_make_in(swap->host, grant, swap->b, &swap->error);
		if (status < 0)
			return status;
		if (status == ESCROW_OK) /* an offer */
			grant->next_ready = 1;
	}
	return grant->next_ready ? swap_send_grant(swap, grant) : ESCROW_OK;
}

static escrow_status swap_move_remote(struct escrow_swap *swap, struct host_remote *remote,
				      bool *all)
{
	struct escrow_carry message = {.kind = ESCROW_CARRY_WANT_GRANT,
				       .peer = remote->peer,
				       .object = atomic_load(&remote->head.handle)};

	/* what was imported from a peer that is gone has no successor */
	if (remote->next_ready || !table_find(&swap->host->peers, remote->peer))
		return ESCROW_OK;
	*all = false;
	if (!remote->ready)
		return error_set(&swap->error, ESCROW_E_BUSY, "a remote is being imported in A");
	if (remote->next_sent || !swap_peer_is_up(swap, remote->peer))
		return ESCROW_OK;
	remote->next_sent = 1;
	return swap_peers_refuse(swap, swap_carry(swap, &message), "asking for a grant");
}

static escrow_status swap_move_peers(struct escrow_swap *swap, bool *all)
{
	for (uint32_t i = 0; i < swap->host->peers.places; i++) {
		struct host_peer *peer = table_at(&swap->host->peers, i);
		escrow_status status = ESCROW_OK;

		if (peer && !peer->next_sent)
			status = swap_reach_peer(swap, peer);
		if (status < 0)
			return status;
		*all &= !peer || peer->next_up;
	}
	return ESCROW_OK;
}

static escrow_status swap_move_grants(struct escrow_swap *swap, bool *all)
{
	escrow_status status = ESCROW_OK;

	for (uint32_t i = 0; i < swap->host->grants.places && status >= 0; i++) {
		struct host_grant *grant = table_at(&swap->host->grants, i);

		if (grant)
			status = swap_move_grant(swap, grant, all);
	}
	for (uint32_t i = 0; i < swap->host->remotes.places && status >= 0; i++) {
		struct host_remote *remote = table_at(&swap->host->remotes, i);

		if (remote)
			status = swap_move_remote(swap, remote, all);
	}
	return status;
}

/* The marks of an earlier swap. */
static void swap_clear_marks(struct escrow_swap *swap)
{
	struct escrow_host_engine *host = swap->host;

	for (uint32_t i = 0; i < host->peers.places; i++) {
		struct host_peer *peer = table_at(&host->peers, i);

		if (peer)
			peer->next_up = peer->next_sent = peer->stopped = 0;
	}
	for (uint32_t i = 0; i < host->grants.places; i++) {
		struct host_grant *grant = table_at(&host->grants, i);

		if (grant)
			grant->next_ready = grant->next_sent = 0;
	}
	for (uint32_t i = 0; i < host->remotes.places; i++) {
		struct host_remote *remote = table_at(&host->remotes, i);

		if (remote)
			remote->next_ready = remote->next_sent = 0;
	}
}

/* How many are there in B, of how many that stand. */
static escrow_status swap_peers_late(struct escrow_swap *swap)
{
	struct escrow_host_engine *host = swap->host;
	uint32_t peers = 0, grants = 0, remotes = 0;

	for (uint32_t i = 0; i < host->peers.places; i++) {
		struct host_peer *peer = table_at(&host->peers, i);

		peers += peer && peer->next_up;
	}
	for (uint32_t i = 0; i < host->grants.places; i++) {
		struct host_grant *grant = table_at(&host->grants, i);

		grants += grant && grant->next_sent == 2;
	}
	for (uint32_t i = 0; i < host->remotes.places; i++) {
		struct host_remote *remote = table_at(&host->remotes, i);

		remotes += remote && remote->next_ready;
	}
	return error_set(&swap->error, ESCROW_E_TIMEOUT,
			 "in B are %u of %u peers, %u of %u grants, %u of %u remotes", peers,
			 atomic_load(&host->peers.used), grants, atomic_load(&host->grants.used),
			 remotes, atomic_load(&host->remotes.used));
}

escrow_status swap_peers(struct escrow_swap *swap)
{
	escrow_status status;
	bool all = true;

	if (swap->phase == 0) {
		swap_clear_marks(swap);
		swap_set_deadline(swap, swap->args.peers_ns);
		swap->phase = 1;
	}
	status = swap_move_peers(swap, &all);
	if (status >= 0)
		status = swap_move_grants(swap, &all);
	if (status < 0)
		return status;
	if (!all && swap_now(swap) >= swap->deadline_ns)
		return swap_peers_late(swap);
	if (!all)
		return ESCROW_IN_PROGRESS;
	error_set(&swap->error, ESCROW_OK, "%u peers, %u grants, %u remotes",
		  atomic_load(&swap->host->peers.used), atomic_load(&swap->host->grants.used),
		  atomic_load(&swap->host->remotes.used));
	return ESCROW_OK;
}

/* Closing B, in the undo of OPEN, ends what was made in it. */
escrow_status swap_undo_peers(struct escrow_swap *swap)
{
	swap_carry_all(swap, ESCROW_CARRY_WITHDRAWN);
	swap_clear_marks(swap);
	return ESCROW_OK;
}

/* ---- Answers of the peers ---------------------------------------------------------------------- */
static escrow_status swap_supply_invitation(struct escrow_swap *swap, struct host_peer *peer,
					    const void *bytes, uint64_t len)
{
	struct host_generation *b = swap->b;
	struct escrow_peer_args args = {.size = sizeof(args),
					.user = atomic_load(&peer->head.handle),
					.peer_name = peer->name,
					.invitation = bytes,
					.invitation_len = len,
					.deadline_ns = swap->deadline_ns};
	uint64_t handle;
	escrow_status status = b->ops->connect(b->engine, &args, &handle, NULL);

	if (status >= 0)
		peer->next_sent = 2;
	return status > 0 ? ESCROW_OK : status;
}

static escrow_status swap_supply_grant(struct escrow_swap *swap, struct host_remote *remote,
				       const void *bytes, uint64_t len)
{
	struct escrow_remote_args args = {.size = sizeof(args), .bytes = bytes, .len = len};
	escrow_status status = remote_import_in(swap->host, remote, swap->b, &args, NULL);

	if (status >= 0)
		remote->next_sent = 2;
	if (status != ESCROW_OK)
		return status > 0 ? ESCROW_OK : status;
	g_mutex_lock(&swap->host->lock);
	remote->next_ready = 1;
	g_mutex_unlock(&swap->host->lock);
	return ESCROW_OK;
}

escrow_status escrow_swap_supply(struct escrow_swap *swap, uint32_t kind, uint64_t object,
				 const void *bytes, uint64_t len)
{
	struct host_remote *remote;
	struct host_peer *peer;
	bool now;

	if (!swap || swap->over) /* then the engine may be gone */
		return swap ? ESCROW_E_STATE : ESCROW_E_INVALID;
	if (host_check(swap->host) != ESCROW_OK)
		return ESCROW_E_STATE;
	peer = table_find(&swap->host->peers, object);
	remote = table_find(&swap->host->remotes, object);
	now = !swap->back;
	if (kind == ESCROW_CARRY_STOP && peer && now) {
		peer->stopped = 1;
		return ESCROW_OK;
	}
	if (!now || swap->step != ESCROW_SWAP_PEERS)
		return ESCROW_E_STATE;
	if (!bytes || !len)
		return ESCROW_E_INVALID;
	/* next_sent: 1 asked for, 2 taken.  A second answer is not; its connection would be one too many. */
	if (kind == ESCROW_CARRY_WANT_INVITATION && peer && peer->next_sent == 1 && !peer->next_up)
		return swap_supply_invitation(swap, peer, bytes, len);
	if (kind == ESCROW_CARRY_WANT_GRANT && remote && remote->next_sent == 1 &&
	    !remote->next_ready)
		return swap_supply_grant(swap, remote, bytes, len);
	return ESCROW_E_INVALID;
}
