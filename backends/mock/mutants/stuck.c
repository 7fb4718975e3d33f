/* SPDX-License-Identifier: BSD-2-Clause */
/* stuck.c - mutants of the ledger, quarantine, receipts and messages: clauses CH, RC, Q, FE, ME. */
#include "backends/mock/mutants/mutant.h"

/* ---- Charges and records -------------------------------------------------------------------- */
#ifdef MUTANT_charges_tell_what_fits
static int32_t bad_charges(struct escrow_engine *e, struct escrow_charge *charges, uint32_t max,
			   uint32_t stride)
{
	int32_t n = engine_charges(e, charges, max, stride);

	return n > 0 && (uint32_t)n > max ? (int32_t)max : n;
}
#define SLOTS .charges = bad_charges,
#endif

#if defined MUTANT_charge_not_returned || defined MUTANT_stuck_not_counted
static int32_t bad_charges(struct escrow_engine *e, struct escrow_charge *charges, uint32_t max,
			   uint32_t stride)
{
	static uint64_t most;
	int32_t n = engine_charges(e, charges, max, stride);

	for (int32_t i = 0; charges && i < n && (uint32_t)i < max; i++) {
		struct escrow_charge *c =
			(struct escrow_charge *)((char *)charges + (size_t)i * stride);

#ifdef MUTANT_stuck_not_counted
		c->used -= c->stuck;
		c->stuck = most;
#else
		if (c->kind == ESCROW_CHARGE_REGIONS && !*c->peer_name)
			most = c->used = c->used > most ? c->used : most;
#endif
	}
	return n;
}
#define SLOTS .charges = bad_charges,
#endif

#if defined MUTANT_stuck_share_ignored || defined MUTANT_quarantine_blocks_open
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
#ifdef MUTANT_quarantine_blocks_open
	return engine_charges(NULL, NULL, 0, sizeof(struct escrow_charge)) > 0
		       ? ESCROW_E_QUOTA
		       : real_open(args, out, error);
#else
	struct escrow_kv kv[32];
	struct escrow_open_args copy = *args;

	copy.nkv = 0;
	for (uint32_t i = 0; args->kv && i < args->nkv && i < 32; i++) {
		memcpy(&kv[copy.nkv], (const char *)args->kv + (size_t)i * args->kv_stride,
		       sizeof(kv[0]));
		if (strcmp(kv[copy.nkv].key, "stuck_share") == 0)
			kv[copy.nkv].value = "100";
		copy.nkv++;
	}
	copy.kv = kv;
	copy.kv_stride = sizeof(kv[0]);
	return real_open(&copy, out, error);
#endif
}
#define OPEN bad_open
#endif

#if defined MUTANT_record_orphan || defined MUTANT_record_without_stage ||                         \
	defined MUTANT_records_lost_at_release
static int32_t bad_records(struct escrow_engine *e, uint64_t *cursor, struct escrow_record *records,
			   uint32_t max, uint32_t stride)
{
	int32_t n;

#ifdef MUTANT_records_lost_at_release
	if (!e)
		return 0;
#endif
	n = engine_records(e, cursor, records, max, stride);
	for (int32_t i = 0; i < n; i++) {
		struct escrow_record *r =
			(struct escrow_record *)((char *)records + (size_t)i * stride);

#if defined MUTANT_record_orphan
		if (r->kind == ESCROW_OWNER_REGION)
			r->parent = 0xdeadbeef;
#elif defined MUTANT_record_without_stage
		if (r->state == ESCROW_OWNER_QUARANTINED) {
			r->stage = ESCROW_STEP_NONE;
			r->sys_errno = 0;
		}
#else
		(void)r;
#endif
	}
	return n;
}
#define SLOTS .records = bad_records,
#endif

/* ---- Quarantine ----------------------------------------------------------------------------- */
#if defined MUTANT_closed_though_stuck || defined MUTANT_lost_device_clean
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_QUARANTINED && event->object == 0) {
		event->kind = ESCROW_EV_CLOSED;
		event->status = ESCROW_OK;
		event->bytes = 0;
	}
	return true;
}
#define EVENTS
#endif

#if defined MUTANT_region_released_anyway || defined MUTANT_owner_released_anyway
static uint64_t regions[64], grants[64];
static uint32_t nregions, ngrants;
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	escrow_status st = engine_register_memory(e, args, region, error);

	if (st == ESCROW_OK)
		regions[nregions++ % 64] = *region;
	return st;
}
static escrow_status bad_grant(struct escrow_engine *e, const struct escrow_grant_args *args,
			       uint64_t *grant, struct escrow_error *error)
{
	escrow_status st = engine_grant(e, args, grant, error);

	if (st >= 0)
		grants[ngrants++ % 64] = *grant;
	return st;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	for (int i = 0; event->kind == ESCROW_EV_QUARANTINED && event->object && i < 64; i++) {
		if (event->object == regions[i])
			event->kind = ESCROW_EV_REGION_RELEASED;
		else if (event->object == grants[i])
			event->kind = ESCROW_EV_GRANT_REVOKED;
		else
			continue;
		event->status = ESCROW_OK;
		event->bytes = 0;
	}
	return true;
}
#define EVENTS
#define SLOTS .register_memory = bad_register, .grant = bad_grant,
#endif

#ifdef MUTANT_abort_skips_proof
/* A queue pair that owes completions is left as it is, and what it needs with it. */
static bool skips;
static volatile uint8_t *sink;
static int bad_reset(struct native_conn *c)
{
	const struct mock_wr *wr = conn_wr(c, c->sq_head);

	if (c->sq_head != c->sq_exec) {
		skips = true;
		if (wr->opcode == NATIVE_READ && wr->nsge)
			sink = mock_pointer(wr->sge[0].addr);
	}
	return skips ? 0 : mock_conn_reset(c);
}
/* Whatever is polled, the device goes on with the bytes. */
static int bad_next_event(struct native *n, struct native_event *event)
{
	if (sink)
		++*sink;
	return mock_native.next_event(n, event);
}
static void bad_free_native(struct native *n)
{
	skips = false;
	mock_native.free_native(n);
}
static int bad_destroy(struct native_conn *c)
{
	return skips ? 0 : mock_destroy_conn(c);
}
static int bad_deregister(struct native_region *r)
{
	return skips ? 0 : mock_deregister_region(r);
}
static int bad_destroy_cq(struct native_lane *l)
{
	return skips ? 0 : mock_destroy_cq(l);
}
static int bad_destroy_channel(struct native_lane *l)
{
	return skips ? 0 : mock_destroy_channel(l);
}
static int bad_dealloc_pd(struct native_context *c)
{
	return skips ? 0 : mock_native.dealloc_pd(c);
}
static int bad_close_device(struct native_context *c)
{
	return skips ? 0 : mock_native.close_device(c);
}
static void change_table(struct native_ops *t)
{
	t->conn_reset = bad_reset;
	t->next_event = bad_next_event;
	t->free_native = bad_free_native;
	t->destroy_conn = bad_destroy;
	t->deregister_region = bad_deregister;
	t->destroy_cq = bad_destroy_cq;
	t->destroy_channel = bad_destroy_channel;
	t->dealloc_pd = bad_dealloc_pd;
	t->close_device = bad_close_device;
}
#define NATIVE(t) change_table(t)
#endif

#ifdef MUTANT_destroy_retried
/* As if the failed step were tried again by each close. */
static _Atomic int64_t more;
static escrow_status bad_close(struct escrow_engine *e, uint64_t deadline, uint32_t mode)
{
	if (state_of(e) == ESCROW_STATE_QUARANTINED)
		more++;
	return engine_close(e, deadline, mode);
}
static int64_t bad_calls(struct escrow_engine *e, uint32_t step)
{
	const struct escrow_fault *real = engine_get_extension(e, ESCROW_FAULT_ID);
	int64_t n = real->calls(e, step);

	return n > 0 ? n + more : n;
}
static const void *bad_extension(struct escrow_engine *e, const char *id)
{
	static struct escrow_fault copy;
	const void *real = engine_get_extension(e, id);

	if (!real || strcmp(id, ESCROW_FAULT_ID) != 0)
		return real;
	memcpy(&copy, real, sizeof(copy));
	copy.calls = bad_calls;
	return &copy;
}
#define SLOTS .close = bad_close, .get_extension = bad_extension,
#endif

#ifdef MUTANT_late_receipt_ignored
static bool quarantined;
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_QUARANTINED)
		quarantined = true;
	else if (quarantined)
		return event->kind != ESCROW_EV_OP_RETURNED &&
		       event->kind != ESCROW_EV_REGION_RELEASED &&
		       event->kind != ESCROW_EV_GRANT_REVOKED && event->kind != ESCROW_EV_CLOSED;
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_quarantine_spreads
/* A step that fails takes the regions with it. */
static bool planned;
static escrow_status bad_plan(struct escrow_engine *e, const char *plan, struct escrow_error *error)
{
	const struct escrow_fault *real = engine_get_extension(e, ESCROW_FAULT_ID);

	planned = plan && strstr(plan, "fail");
	return real->plan(e, plan, error);
}
static const void *bad_extension(struct escrow_engine *e, const char *id)
{
	static struct escrow_fault copy;
	const void *real = engine_get_extension(e, id);

	if (!real || strcmp(id, ESCROW_FAULT_ID) != 0)
		return real;
	memcpy(&copy, real, sizeof(copy));
	copy.plan = bad_plan;
	return &copy;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_REGION_RELEASED && planned &&
	    state_of(e) != ESCROW_STATE_OPEN) {
		event->kind = ESCROW_EV_QUARANTINED;
		event->status = ESCROW_E_UNQUIESCED;
		event->bytes = 4096;
	}
	return true;
}
#define EVENTS
#define SLOTS .get_extension = bad_extension,
#endif

#if defined MUTANT_fence_ignored || defined MUTANT_early_fence_ignored
static escrow_status bad_fenced(struct escrow_engine *e, const uint8_t *incarnation,
				uint32_t receipt)
{
#ifdef MUTANT_early_fence_ignored
	const struct escrow_fence *good = engine_get_extension(e, ESCROW_FENCE_ID);

	if (state_of(e) == ESCROW_STATE_QUARANTINED)
		return good->fenced(e, incarnation, receipt);
#endif
	return receipt == ESCROW_RECEIPT_PROCESS_REAPED || receipt == ESCROW_RECEIPT_FUNCTION_FENCED
		       ? ESCROW_OK
		       : ESCROW_E_INVALID;
}
static const void *bad_extension(struct escrow_engine *e, const char *id)
{
	static const struct escrow_fence fence = {.size = sizeof(fence), .fenced = bad_fenced};

	return strcmp(id, ESCROW_FENCE_ID) == 0 ? &fence : engine_get_extension(e, id);
}
#define SLOTS .get_extension = bad_extension,
#endif

/* ---- Messages ------------------------------------------------------------------------------- */
#if defined MUTANT_message_truncated || defined MUTANT_message_reordered ||                        \
	defined MUTANT_message_dropped || defined MUTANT_message_before_data ||                    \
	defined MUTANT_message_lost_by_short_receive
static const struct escrow_notify *notify_of(struct escrow_engine *e)
{
	return engine_get_extension(e, ESCROW_NOTIFY_ID);
}

static escrow_status bad_send(struct escrow_engine *e, uint64_t peer, const void *msg, uint64_t len,
			      uint64_t user, uint32_t flags)
{
	escrow_status st;
#ifdef MUTANT_message_truncated
	len = len > 1 ? len - 1 : len;
#endif
#ifdef MUTANT_message_reordered
	static uint8_t kept[256];
	static uint64_t kept_len, kept_user;
	static bool keeps;

	/* every other short message is overtaken by the next */
	if (!keeps && len && len <= sizeof(kept) && !flags) {
		memcpy(kept, msg, len);
		kept_len = len;
		kept_user = user;
		keeps = true;
		return ESCROW_OK;
	}
	if (keeps) {
		st = notify_of(e)->send(e, peer, msg, len, user, flags);
		if (st == ESCROW_OK) {
			notify_of(e)->send(e, peer, kept, kept_len, kept_user, 0);
			keeps = false;
		}
		return st;
	}
#endif
	st = notify_of(e)->send(e, peer, msg, len, user, flags);
#ifdef MUTANT_message_dropped
	if (st == ESCROW_E_AGAIN) {
		struct escrow_event event = {
			.kind = ESCROW_EV_MESSAGE_SENT, .object = peer, .user = user};

		event_again(e, &event);
		st = ESCROW_OK;
	}
#endif
	return st;
}

#ifdef MUTANT_message_before_data
/* The message goes first, and the device takes its time for the bytes. */
static struct {
	uint64_t remote, peer;
} imports[64];
static uint32_t nimports;
static struct native *natives[8];
static struct escrow_engine *engines[8];
static uint32_t nnatives, polls;
static escrow_status bad_native_open(const struct native_open_args *args, struct native **out,
				     struct escrow_error *error)
{
	escrow_status st = mock_native.open(args, out, error);

	if (st == ESCROW_OK)
		natives[nnatives % 8] = *out;
	return st;
}
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = real_open(args, out, error);

	if (st == ESCROW_OK)
		engines[nnatives++ % 8] = *out;
	return st;
}
static void hold(struct escrow_engine *e)
{
	for (int i = 0; i < 8; i++)
		if (engines[i] == e)
			mock_fault(natives[i], "nic=hold");
	polls = 0;
}
static int bad_cq(struct native_lane *l, struct native_cqe *cqe, int max)
{
	if (++polls > 200 && l->native->faults.nic_held)
		mock_fault(l->native, "nic=run");
	return mock_poll_cq(l, cqe, max);
}
static void change_table(struct native_ops *t)
{
	t->open = bad_native_open;
	t->poll_cq = bad_cq;
}
static escrow_status bad_import(struct escrow_engine *e, uint64_t peer, const void *buf,
				uint64_t len, uint64_t user, uint64_t *remote,
				struct escrow_error *error)
{
	escrow_status st = engine_import_grant(e, peer, buf, len, user, remote, error);

	if (st >= 0) {
		imports[nimports % 64].remote = *remote;
		imports[nimports++ % 64].peer = peer;
	}
	return st;
}
#define OPEN bad_open
#define NATIVE(t) change_table(t)
#define IMPORT .import_grant = bad_import,
#else
#define IMPORT
#endif

static int32_t bad_ride(struct escrow_engine *e, const struct escrow_op *op, const void *msg,
			uint64_t len, uint64_t *id)
{
#ifdef MUTANT_message_before_data
	uint64_t peer = 0;

	for (int i = 0; i < 64; i++)
		if (imports[i].remote == op->remote)
			peer = imports[i].peer;
	if (peer && notify_of(e)->send(e, peer, msg, len, 0, 0) == ESCROW_OK) {
		for (int i = 0; i < 8; i++)
			engine_poll(e, NULL, 0, sizeof(struct escrow_event), 0);
		hold(e);
		return engine_transfer(e, op, 1, sizeof(*op), 0, id);
	}
#endif
	return notify_of(e)->transfer(e, op, msg, len, id);
}

static escrow_status bad_receive(struct escrow_engine *e, uint64_t *peer, void *buf, uint64_t *len)
{
	escrow_status st = notify_of(e)->receive(e, peer, buf, len);
#ifdef MUTANT_message_lost_by_short_receive
	static uint8_t waste[1 << 20];
	uint64_t room = sizeof(waste), from;

	if (st == ESCROW_E_TOO_SMALL)
		notify_of(e)->receive(e, &from, waste, &room);
#endif
	return st;
}

static const void *bad_extension(struct escrow_engine *e, const char *id)
{
	static struct escrow_notify copy;
	const void *real = engine_get_extension(e, id);

	if (!real || strcmp(id, ESCROW_NOTIFY_ID) != 0)
		return real;
	copy = (struct escrow_notify){.size = sizeof(copy),
				      .send = bad_send,
				      .transfer = bad_ride,
				      .receive = bad_receive};
	return &copy;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return true;
}
#define EVENTS
#define SLOTS IMPORT.get_extension = bad_extension,
#endif

#include "backends/mock/mutants/ends.h"
