/* SPDX-License-Identifier: BSD-2-Clause */
/* peer.c - mutants of invitations, peers and epochs: clauses IN, PE, EP. */
#include "backends/mock/mutants/mutant.h"

#define BLOB 1024u

/* ---- Invitations ---------------------------------------------------------------------------- */
#ifdef MUTANT_same_ticket
static escrow_status bad_invite(struct escrow_engine *e, const struct escrow_invite_args *args,
				void *buf, uint64_t *len)
{
	static struct escrow_engine *of;
	static uint8_t first[BLOB];
	static uint64_t first_len;
	escrow_status st = engine_invite(e, args, buf, len);

	if (st != ESCROW_OK || !buf || *len > BLOB)
		return st;
	if (of == e && first_len == *len) {
		memcpy(buf, first, first_len);
		return st;
	}
	of = e;
	first_len = *len;
	memcpy(first, buf, first_len);
	return st;
}
#define SLOTS .invite = bad_invite,
#endif

#if defined MUTANT_invitation_user_lost || defined MUTANT_no_passive_peer_up ||                    \
	defined MUTANT_loopback_one_peer
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	struct escrow_peer_info info = {.size = sizeof(info)};

	if (event->kind != ESCROW_EV_PEER_UP ||
	    engine_peer_info(e, event->object, &info) != ESCROW_OK ||
	    !(info.flags & ESCROW_PEER_PASSIVE))
		return true;
#if defined MUTANT_invitation_user_lost
	event->user = 0;
	return true;
#elif defined MUTANT_no_passive_peer_up
	return false;
#else
	return !(info.flags & ESCROW_PEER_LOOPBACK);
#endif
}
#define EVENTS
#endif

#ifdef MUTANT_ticket_reusable
static escrow_status bad_invite(struct escrow_engine *e, const struct escrow_invite_args *args,
				void *buf, uint64_t *len)
{
	struct escrow_invite_args any;

	if (!args || args->size != sizeof(any) || args->flags || !args->peer_name ||
	    !*args->peer_name)
		return engine_invite(e, args, buf, len);
	any = *args;
	any.flags = ESCROW_INVITE_ANY;
	any.peer_name = NULL;
	return engine_invite(e, &any, buf, len);
}
#define SLOTS .invite = bad_invite,
#endif

#ifdef MUTANT_expiry_ignored
static escrow_status bad_invite(struct escrow_engine *e, const struct escrow_invite_args *args,
				void *buf, uint64_t *len)
{
	struct escrow_invite_args never;

	if (!args || args->size != sizeof(never))
		return engine_invite(e, args, buf, len);
	never = *args;
	never.expires_ns = 0;
	return engine_invite(e, &never, buf, len);
}
#define SLOTS .invite = bad_invite,
#endif

#ifdef MUTANT_any_works_once
static escrow_status bad_invite(struct escrow_engine *e, const struct escrow_invite_args *args,
				void *buf, uint64_t *len)
{
	struct escrow_invite_args one;

	if (!args || args->size != sizeof(one) || args->flags != ESCROW_INVITE_ANY ||
	    args->peer_name)
		return engine_invite(e, args, buf, len);
	one = *args;
	one.flags = 0;
	one.peer_name = "any";
	return engine_invite(e, &one, buf, len);
}
#define SLOTS .invite = bad_invite,
#endif

#if defined MUTANT_ticket_unchecked || defined MUTANT_old_incarnation_welcome
/* The last invitation that was made by an engine of this object, and by which. */
static struct escrow_engine *inviter;
#ifdef MUTANT_old_incarnation_welcome
static struct {
	struct escrow_engine *by; /* NULL: it is gone */
	uint64_t len;
	uint8_t bytes[BLOB];
} made[64];
static uint32_t nmade;
static bool is_of_the_dead(const struct escrow_peer_args *args)
{
	for (int i = 0; i < 64; i++)
		if (made[i].len && !made[i].by && args->invitation_len == made[i].len &&
		    memcmp(args->invitation, made[i].bytes, made[i].len) == 0)
			return true;
	return false;
}
#endif
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = real_open(args, out, error);

#ifdef MUTANT_old_incarnation_welcome
	if (st == ESCROW_OK && args->engine_name)
		inviter = *out;
#endif
	return st;
}
static escrow_status bad_invite(struct escrow_engine *e, const struct escrow_invite_args *args,
				void *buf, uint64_t *len)
{
	escrow_status st = engine_invite(e, args, buf, len);

	if (st != ESCROW_OK)
		return st;
#ifdef MUTANT_old_incarnation_welcome
	made[nmade % 64].by = e;
	made[nmade % 64].len = *len < BLOB ? *len : BLOB;
	memcpy(made[nmade % 64].bytes, buf, made[nmade % 64].len);
	nmade++;
#else
	inviter = e;
#endif
	return st;
}
static escrow_status bad_connect(struct escrow_engine *e, const struct escrow_peer_args *args,
				 uint64_t *peer, struct escrow_error *error)
{
	struct escrow_invite_args any = {.size = sizeof(any), .flags = ESCROW_INVITE_ANY};
	struct escrow_peer_args copy;
	uint8_t fresh[BLOB];
	uint64_t len = sizeof(fresh);
#ifdef MUTANT_ticket_unchecked
	escrow_status st = engine_connect(e, args, peer, error);

	if (st != ESCROW_E_INVALID)
		return st;
#endif
	if (!inviter || inviter == e || !args || args->size != sizeof(copy) || !args->invitation ||
	    engine_invite(inviter, &any, fresh, &len) != ESCROW_OK)
		return engine_connect(e, args, peer, error);
#ifdef MUTANT_old_incarnation_welcome
	if (!is_of_the_dead(args))
		return engine_connect(e, args, peer, error);
#endif
	copy = *args;
	copy.invitation = fresh;
	copy.invitation_len = len;
	return engine_connect(e, &copy, peer, error);
}
static void bad_release(struct escrow_engine *e)
{
	if (inviter == e)
		inviter = NULL;
#ifdef MUTANT_old_incarnation_welcome
	for (int i = 0; i < 64; i++)
		if (made[i].by == e)
			made[i].by = NULL;
#endif
	engine_release(e);
}
#define OPEN bad_open
#define SLOTS .invite = bad_invite, .connect = bad_connect, .release = bad_release,
#endif

/* ---- Peers ---------------------------------------------------------------------------------- */
#if defined MUTANT_peer_info_wrong || defined MUTANT_epoch_constant
static escrow_status bad_info(struct escrow_engine *e, uint64_t peer, struct escrow_peer_info *info)
{
	escrow_status st = engine_peer_info(e, peer, info);

	if (st != ESCROW_OK || info->size < sizeof(*info))
		return st;
#ifdef MUTANT_peer_info_wrong
	info->flags ^= ESCROW_PEER_PASSIVE;
	info->peer_name[0] ^= 1;
#else
	info->epoch = 1;
#endif
	return st;
}
#define SLOTS .peer_info = bad_info,
#endif

#ifdef MUTANT_peer_down_twice
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_PEER_DOWN)
		event_again(e, event);
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_peer_down_before_grants
static uint64_t gone[64];
static uint32_t ngone;
static escrow_status bad_disconnect(struct escrow_engine *e, uint64_t peer, uint32_t flags)
{
	struct escrow_peer_info info = {.size = sizeof(info)};
	escrow_status known = engine_peer_info(e, peer, &info);
	escrow_status st = engine_disconnect(e, peer, flags);
	struct escrow_event event = {.kind = ESCROW_EV_PEER_DOWN, .object = peer};

	if (st != ESCROW_IN_PROGRESS || known != ESCROW_OK)
		return st;
	event.user = info.user;
	event_again(e, &event);
	gone[ngone++ % 64] = peer;
	return st;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	for (int i = 0; event->kind == ESCROW_EV_PEER_DOWN && i < 64; i++)
		if (gone[i] == event->object)
			return false;
	return true;
}
#define EVENTS
#define EVENTS_FIRST
#define SLOTS .disconnect = bad_disconnect,
#endif

#ifdef MUTANT_connect_never_ends
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return event->kind != ESCROW_EV_PEER_DOWN ||
	       (event->status != ESCROW_E_REFUSED && event->status != ESCROW_E_TIMEOUT &&
		event->status != ESCROW_E_PEER_LOST);
}
#define EVENTS
#endif

#if defined MUTANT_peer_death_unseen || defined MUTANT_goodbye_forgotten
/* It sees the end of those peers only that it has disconnected itself. */
static bool leaving;
static escrow_status bad_disconnect(struct escrow_engine *e, uint64_t peer, uint32_t flags)
{
	leaving = true;
	return engine_disconnect(e, peer, flags);
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind != ESCROW_EV_PEER_DOWN && event->kind != ESCROW_EV_PEER_LOST)
		return true;
	return leaving || state_of(e) != ESCROW_STATE_OPEN;
}
#define EVENTS
#define SLOTS .disconnect = bad_disconnect,
#endif

#ifdef MUTANT_peer_limit_ignored
static escrow_status bad_connect(struct escrow_engine *e, const struct escrow_peer_args *args,
				 uint64_t *peer, struct escrow_error *error)
{
	escrow_status st = engine_connect(e, args, peer, error);

	if (st != ESCROW_E_LIMIT && st != ESCROW_E_QUOTA)
		return st;
	*peer = 1;
	return ESCROW_IN_PROGRESS;
}
#define SLOTS .connect = bad_connect,
#endif

#ifdef MUTANT_incarnation_constant
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	escrow_status st = engine_query(e, limits);

	if (st == ESCROW_OK && limits->size >= sizeof(*limits))
		memset(limits->incarnation, 0x11, sizeof(limits->incarnation));
	return st;
}
#define SLOTS .query = bad_query,
#endif

/* ---- Memory for a slot ----------------------------------------------------------------------- */
#ifdef MUTANT_slot_without_memory_is_internal
static struct {
	struct escrow_engine *engine;
	const struct escrow_host *host;
} hosts[64];
static uint32_t nhosts;
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = real_open(args, out, error);

	if (st == ESCROW_OK) {
		hosts[nhosts % 64].engine = *out;
		hosts[nhosts++ % 64].host = args->host;
	}
	return st;
}
static escrow_status bad_invite(struct escrow_engine *e, const struct escrow_invite_args *args,
				void *buf, uint64_t *len)
{
	for (int i = 0; i < 64; i++) {
		void *p;

		if (hosts[i].engine != e)
			continue;
		p = hosts[i].host->alloc(hosts[i].host->ctx, 64, 8);
		if (!p)
			return ESCROW_E_INTERNAL;
		hosts[i].host->free(hosts[i].host->ctx, p);
		break;
	}
	return engine_invite(e, args, buf, len);
}
#define OPEN bad_open
#define SLOTS .invite = bad_invite,
#endif

#include "backends/mock/mutants/ends.h"
