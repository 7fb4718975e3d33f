/* SPDX-License-Identifier: BSD-2-Clause */
/* grant.c - mutants of grants, imports and revocation: clauses GR, EP3, DR7, AR8. */
#include "backends/mock/mutants/mutant.h"

#if defined MUTANT_epoch_ignored || defined MUTANT_grant_bytes_unchecked ||                        \
	defined MUTANT_grant_for_anyone
static escrow_status bad_import(struct escrow_engine *e, uint64_t peer, const void *buf,
				uint64_t len, uint64_t user, uint64_t *remote,
				struct escrow_error *error)
{
	static uint64_t last;
	escrow_status st = engine_import_grant(e, peer, buf, len, user, remote, error);

	if (st >= 0)
		last = *remote;
#if defined MUTANT_epoch_ignored
	if (st == ESCROW_E_STALE_EPOCH)
#elif defined MUTANT_grant_bytes_unchecked
	if (st == ESCROW_E_INVALID && buf && len > 16)
#else
	if (st == ESCROW_E_INVALID || st == ESCROW_E_STALE_EPOCH || st == ESCROW_E_ACCESS ||
	    st == ESCROW_E_REFUSED)
#endif
	{
		*remote = last;
		return ESCROW_OK;
	}
	return st;
}
#define SLOTS .import_grant = bad_import,
#endif

#ifdef MUTANT_grant_ready_twice
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_GRANT_READY)
		event_again(e, event);
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_revoked_twice
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_GRANT_REVOKED)
		event_again(e, event);
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_ended_handle_refused
/* The next one that is made has the place of one that was revoked, whether that was told or not. */
static struct {
	const struct escrow_engine *e;
	uint64_t grant, before;
} revoked[64];
static uint64_t made;
static uint32_t nrevoked;
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	for (int i = 0; event->kind == ESCROW_EV_GRANT_REVOKED && i < 64; i++)
		if (revoked[i].e == e && revoked[i].grant == event->object)
			revoked[i].e = NULL;
	return true;
}
static escrow_status bad_grant(struct escrow_engine *e, const struct escrow_grant_args *args,
			       uint64_t *grant, struct escrow_error *error)
{
	escrow_status st = engine_grant(e, args, grant, error);

	made += st >= 0;
	return st;
}
static escrow_status bad_revoke(struct escrow_engine *e, uint64_t grant, uint32_t flags)
{
	escrow_status st;

	for (int i = 0; i < 64; i++)
		if (revoked[i].e == e && revoked[i].grant == grant && revoked[i].before != made)
			return ESCROW_E_INVALID;
	st = engine_revoke(e, grant, flags);
	if (st >= 0) {
		revoked[nrevoked % 64].e = e;
		revoked[nrevoked % 64].grant = grant;
		revoked[nrevoked++ % 64].before = made;
	}
	return st;
}
#define EVENTS
#define SLOTS .grant = bad_grant, .revoke = bad_revoke,
#endif

#ifdef MUTANT_grant_exported_before_bind
static escrow_status bad_export(struct escrow_engine *e, uint64_t grant, void *buf, uint64_t *len)
{
	escrow_status st = engine_export_grant(e, grant, buf, len);

	if (st != ESCROW_E_STATE || state_of(e) != ESCROW_STATE_OPEN)
		return st;
	if (*len < 64) {
		*len = 64;
		return ESCROW_E_TOO_SMALL;
	}
	*len = 64;
	memset(buf, 0, 64);
	return ESCROW_OK;
}
#define SLOTS .export_grant = bad_export,
#endif

#ifdef MUTANT_import_never_ends
static escrow_status bad_import(struct escrow_engine *e, uint64_t peer, const void *buf,
				uint64_t len, uint64_t user, uint64_t *remote,
				struct escrow_error *error)
{
	escrow_status st = engine_import_grant(e, peer, buf, len, user, remote, error);

	return st == ESCROW_OK ? ESCROW_IN_PROGRESS : st;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return event->kind != ESCROW_EV_REMOTE_READY;
}
#define EVENTS
#define SLOTS .import_grant = bad_import,
#endif

#if defined MUTANT_grant_ignores_rights || defined MUTANT_grant_ignores_range
static struct {
	uint64_t region, length;
} sizes[256];
static uint32_t nsizes;
MUTANT_UNUSED static escrow_status bad_register(struct escrow_engine *e,
						const struct escrow_region_args *args,
						uint64_t *region, struct escrow_error *error)
{
	escrow_status st = engine_register_memory(e, args, region, error);

	if (st == ESCROW_OK) {
		sizes[nsizes % 256].region = *region;
		sizes[nsizes++ % 256].length = args->length;
	}
	return st;
}
static escrow_status bad_grant(struct escrow_engine *e, const struct escrow_grant_args *args,
			       uint64_t *grant, struct escrow_error *error)
{
	struct escrow_grant_args wide;

	if (!args || args->size != sizeof(wide) || !args->rights)
		return engine_grant(e, args, grant, error);
	wide = *args;
#ifdef MUTANT_grant_ignores_rights
	if (wide.rights <= 3)
		wide.rights = ESCROW_MAY_READ | ESCROW_MAY_WRITE;
#else
	for (int i = 0; i < 256; i++)
		if (sizes[i].region == args->region && args->length &&
		    args->offset < sizes[i].length &&
		    args->length <= sizes[i].length - args->offset)
			wide.length = sizes[i].length - args->offset;
#endif
	return engine_grant(e, &wide, grant, error);
}
#define SLOTS .grant = bad_grant, .register_memory = bad_register,
#endif

#ifdef MUTANT_revoked_still_usable
static int bad_post(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	for (uint32_t i = 0; i < n; i++)
		if (wr[i].opcode == NATIVE_INVALIDATE) {
			wr[i].opcode = NATIVE_WRITE;
			wr[i].nsge = 0;
		}
	return mock_post(c, wr, n, posted);
}
#define NATIVE(t) (t)->post = bad_post
#endif

#ifdef MUTANT_revoked_without_receipt
static uint64_t revoked[64];
static uint32_t nrevoked;
static escrow_status bad_revoke(struct escrow_engine *e, uint64_t grant, uint32_t flags)
{
	escrow_status st = engine_revoke(e, grant, flags);
	struct escrow_event event = {.kind = ESCROW_EV_GRANT_REVOKED, .object = grant};

	if (st != ESCROW_IN_PROGRESS)
		return st;
	event_again(e, &event);
	revoked[nrevoked++ % 64] = grant;
	return st;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	for (int i = 0; event->kind == ESCROW_EV_GRANT_REVOKED && i < 64; i++)
		if (revoked[i] == event->object)
			return false;
	return true;
}
#define EVENTS
#define SLOTS .revoke = bad_revoke,
#endif

#ifdef MUTANT_forget_while_busy
static escrow_status bad_forget(struct escrow_engine *e, uint64_t remote)
{
	escrow_status st = engine_forget_grant(e, remote);

	return st == ESCROW_E_BUSY ? ESCROW_OK : st;
}
#define SLOTS .forget_grant = bad_forget,
#endif

#ifdef MUTANT_offer_outlives_revoke
static uint64_t offers[64], users[64];
static uint32_t noffers;
static escrow_status bad_grant(struct escrow_engine *e, const struct escrow_grant_args *args,
			       uint64_t *grant, struct escrow_error *error)
{
	escrow_status st = engine_grant(e, args, grant, error);

	if (st == ESCROW_OK && args->peer == 0) {
		users[noffers % 64] = args->user;
		offers[noffers++ % 64] = *grant;
	}
	return st;
}
static escrow_status bad_revoke(struct escrow_engine *e, uint64_t grant, uint32_t flags)
{
	for (int i = 0; grant && i < 64; i++) {
		struct escrow_event event = {
			.kind = ESCROW_EV_GRANT_REVOKED, .object = grant, .user = users[i]};

		if (offers[i] != grant || flags)
			continue;
		event_again(e, &event);
		return ESCROW_IN_PROGRESS;
	}
	return engine_revoke(e, grant, flags);
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return true;
}
#define EVENTS
#define SLOTS .grant = bad_grant, .revoke = bad_revoke,
#endif

#if defined MUTANT_revoke_takes_all || defined MUTANT_drain_revokes
static uint64_t all[64];
static uint32_t nall;
static escrow_status bad_grant(struct escrow_engine *e, const struct escrow_grant_args *args,
			       uint64_t *grant, struct escrow_error *error)
{
	escrow_status st = engine_grant(e, args, grant, error);

	if (st >= 0)
		all[nall++ % 64] = *grant;
	return st;
}
static void revoke_all(struct escrow_engine *e)
{
	for (int i = 0; i < 64; i++)
		if (all[i])
			engine_revoke(e, all[i], 0);
}
#ifdef MUTANT_revoke_takes_all
static escrow_status bad_revoke(struct escrow_engine *e, uint64_t grant, uint32_t flags)
{
	escrow_status st = engine_revoke(e, grant, flags);

	if (st == ESCROW_IN_PROGRESS)
		revoke_all(e);
	return st;
}
#define SLOTS .grant = bad_grant, .revoke = bad_revoke,
#else
static escrow_status bad_quiesce(struct escrow_engine *e, uint32_t flags)
{
	escrow_status st = engine_quiesce(e, flags);

	if (st >= 0)
		revoke_all(e);
	return st;
}
static escrow_status bad_drain(struct escrow_engine *e, uint64_t peer, uint64_t deadline,
			       uint32_t flags)
{
	escrow_status st = engine_drain(e, peer, deadline, flags);

	if (st >= 0)
		revoke_all(e);
	return st;
}
#define SLOTS .grant = bad_grant, .quiesce = bad_quiesce, .drain = bad_drain,
#endif
#endif

#ifdef MUTANT_failed_grant_charged
static _Atomic uint64_t failed;
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_GRANT_READY && event->status < 0)
		failed++;
	return true;
}
static int32_t bad_charges(struct escrow_engine *e, struct escrow_charge *charges, uint32_t max,
			   uint32_t stride)
{
	int32_t n = engine_charges(e, charges, max, stride);

	for (int32_t i = 0; charges && i < n && (uint32_t)i < max; i++) {
		struct escrow_charge *c =
			(struct escrow_charge *)((char *)charges + (size_t)i * stride);

		if (c->kind == ESCROW_CHARGE_GRANTS)
			c->used += failed;
	}
	return n;
}
#define EVENTS
#define SLOTS .charges = bad_charges,
#endif

#ifdef MUTANT_grant_charge_kept
static int32_t bad_charges(struct escrow_engine *e, struct escrow_charge *charges, uint32_t max,
			   uint32_t stride)
{
	static uint64_t most;
	int32_t n = engine_charges(e, charges, max, stride);

	for (int32_t i = 0; charges && i < n && (uint32_t)i < max; i++) {
		struct escrow_charge *c =
			(struct escrow_charge *)((char *)charges + (size_t)i * stride);

		if (c->kind == ESCROW_CHARGE_GRANTED_BYTES && !*c->peer_name)
			most = c->used = c->used > most ? c->used : most;
	}
	return n;
}
#define SLOTS .charges = bad_charges,
#endif

#include "backends/mock/mutants/ends.h"
