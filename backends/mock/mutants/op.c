/* SPDX-License-Identifier: BSD-2-Clause */
/* op.c - mutants of ops, cancel, deadlines, drain and close: clauses OP, CA, DL, DR, CL. */
#include "backends/mock/mutants/mutant.h"

#define SGES 64u

MUTANT_UNUSED static uint64_t length_of(const struct escrow_op *op)
{
	uint64_t length = 0;

	for (uint32_t i = 0; op->sge && i < op->nsge && i < SGES; i++)
		length += op->sge[i].length;
	return length;
}

#if defined MUTANT_odd_lengths_refused || defined MUTANT_zero_op_refused
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
#ifdef MUTANT_odd_lengths_refused
	if (n && op && length_of(op) % 2)
		return ESCROW_E_INVALID;
#else
	if (n && op && length_of(op) == 0 && op->remote)
		return ESCROW_E_INVALID;
#endif
	return engine_transfer(e, op, n, stride, flags, ops);
}
#define SLOTS .transfer = bad_transfer,
#endif

#ifdef MUTANT_copies_one_more
/* Of a READ the last range gets one byte more. */
static int bad_post(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	int rc = mock_post(c, wr, n, posted);

	for (uint32_t i = 0; i < *posted; i++)
		if (wr[i].opcode == NATIVE_READ && wr[i].nsge) {
			const struct native_sge *last = &wr[i].sge[wr[i].nsge - 1];

			if (last->length)
				mock_pointer(last->addr)[last->length] ^= 0xff;
		}
	return rc;
}
#define NATIVE(t) (t)->post = bad_post
#endif

#if defined MUTANT_sge_order_lost || defined MUTANT_sge_limit_ignored ||                           \
	defined MUTANT_range_wraps || defined MUTANT_opcode_unchecked ||                           \
	defined MUTANT_deadline_ignored
static void change(struct escrow_op *op, struct escrow_sge *sge)
{
#if defined MUTANT_sge_order_lost
	for (uint32_t i = 0; i < op->nsge && op->nsge <= SGES; i++)
		sge[i] = op->sge[op->nsge - 1 - i];
	if (op->sge && op->nsge <= SGES)
		op->sge = sge;
#elif defined MUTANT_sge_limit_ignored
	if (op->sge && op->nsge > NATIVE_MAX_SGE)
		op->nsge = 1;
#elif defined MUTANT_range_wraps
	if (op->sge && op->nsge && op->nsge <= SGES) {
		memcpy(sge, op->sge, op->nsge * sizeof(*sge));
		for (uint32_t i = 0; i < op->nsge; i++)
			if (sge[i].offset + sge[i].length < sge[i].offset)
				sge[i].offset = sge[i].length = 0;
		op->sge = sge;
	}
	if (op->remote_offset + length_of(op) < op->remote_offset)
		op->remote_offset = 0;
#elif defined MUTANT_opcode_unchecked
	if (op->opcode != ESCROW_READ)
		op->opcode = ESCROW_WRITE;
#else
	op->deadline_ns = 0;
#endif
}
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	struct escrow_sge sge[SGES];
	struct escrow_op copy;

	if (n != 1 || !op || stride != sizeof(copy))
		return engine_transfer(e, op, n, stride, flags, ops);
	copy = *op;
	change(&copy, sge);
	return engine_transfer(e, &copy, 1, stride, flags, ops);
}
#define SLOTS .transfer = bad_transfer,
#endif

#ifdef MUTANT_accepts_n_does_less
/* Of several the last accepted one is performed without its bytes. */
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	struct escrow_op copy[8];

	if (n < 2 || n > 8 || !op || stride != sizeof(*op))
		return engine_transfer(e, op, n, stride, flags, ops);
	memcpy(copy, op, n * sizeof(*op));
	copy[1].nsge = 0;
	copy[1].sge = NULL;
	return engine_transfer(e, copy, n, stride, flags, ops);
}
#define SLOTS .transfer = bad_transfer,
#endif

#ifdef MUTANT_length_in_32_bits
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	struct escrow_sge sge[SGES];
	struct escrow_op copy;

	if (n != 1 || !op || stride != sizeof(copy) || !op->sge || op->nsge > SGES)
		return engine_transfer(e, op, n, stride, flags, ops);
	copy = *op;
	memcpy(sge, op->sge, op->nsge * sizeof(*sge));
	for (uint32_t i = 0; i < op->nsge; i++)
		sge[i].length = (uint32_t)sge[i].length;
	copy.sge = sge;
	return engine_transfer(e, &copy, 1, stride, flags, ops);
}
#define SLOTS .transfer = bad_transfer,
#endif

/* What stands in one place for all threads is another's by the time that it is used. */
#ifdef MUTANT_static_op
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	static volatile struct escrow_op copy;
	struct escrow_op other;

	if (n != 1 || !op || stride != sizeof(copy))
		return engine_transfer(e, op, n, stride, flags, ops);
	copy = *op;
	usleep(500);
	while (copy.user == op->user && !is_main_thread() && hold_on())
		;
	other = copy;
	return engine_transfer(e, &other, 1, stride, flags, ops);
}
#define SLOTS .transfer = bad_transfer,
#endif

/* A deadline passes as soon as there is one. */
#ifdef MUTANT_expires_early
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return true;
}
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	int32_t got = engine_transfer(e, op, n, stride, flags, ops);
	struct escrow_event event = {.kind = ESCROW_EV_OP_EXPIRED};

	if (got == 1 && op->deadline_ns) {
		event.object = ops[0];
		event.user = op->user;
		event_again(e, &event);
	}
	return got;
}
#define EVENTS
#define SLOTS .transfer = bad_transfer,
#endif

#if defined MUTANT_old_region_works || defined MUTANT_forgotten_remote_works ||                    \
	defined MUTANT_lost_peer_ok
/* What was refused is taken all the same, and told to have gone well. */
static int32_t take_anyway(struct escrow_engine *e, const struct escrow_op *op, uint64_t *ops)
{
	struct escrow_event event = {.kind = ESCROW_EV_OP_DONE,
				     .object = 12345,
				     .user = op->user,
				     .bytes = length_of(op)};

	ops[0] = event.object;
	event_again(e, &event);
	return 1;
}
#endif

/* What was deregistered, or forgotten, is found by whoever still has its handle. */
#if defined MUTANT_old_region_works || defined MUTANT_forgotten_remote_works
static uint64_t gone[64];
static uint32_t ngone;
static bool is_gone(uint64_t handle)
{
	bool found = false;

	for (int i = 0; handle && i < 64; i++)
		found |= gone[i] == handle;
	return found;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return true;
}
#ifdef MUTANT_old_region_works
static escrow_status bad_deregister(struct escrow_engine *e, uint64_t region, uint32_t flags)
{
	escrow_status st = engine_deregister_memory(e, region, flags);

	if (st >= 0)
		gone[ngone++ % 64] = region;
	return st;
}
#define NAMES(op) ((op)->sge ? (op)->sge->region : 0)
#define SLOTS .deregister_memory = bad_deregister, .transfer = bad_transfer,
#else
static escrow_status bad_forget(struct escrow_engine *e, uint64_t remote)
{
	escrow_status st = engine_forget_grant(e, remote);

	if (st == ESCROW_OK)
		gone[ngone++ % 64] = remote;
	return st;
}
#define NAMES(op) ((op)->remote)
#define SLOTS .forget_grant = bad_forget, .transfer = bad_transfer,
#endif
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	int32_t st = engine_transfer(e, op, n, stride, flags, ops);

	return st == ESCROW_E_INVALID && op && is_gone(NAMES(op)) ? take_anyway(e, op, ops) : st;
}
#define EVENTS
#endif

#ifdef MUTANT_room_never_comes
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return event->kind != ESCROW_EV_ROOM;
}
#define EVENTS
#endif

#ifdef MUTANT_lost_peer_ok
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_OP_DONE && event->status < 0) {
		event->status = ESCROW_OK;
		event->effect = ESCROW_EFFECT_EXECUTED;
	}
	return true;
}
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	int32_t st = engine_transfer(e, op, n, stride, flags, ops);

	return st == ESCROW_E_PEER_LOST ? take_anyway(e, op, ops) : st;
}
#define EVENTS
#define SLOTS .transfer = bad_transfer,
#endif

#ifdef MUTANT_cancel_after_done
static uint64_t done[64];
static uint32_t ndone;
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_OP_DONE)
		done[ndone++ % 64] = event->object;
	return true;
}
static escrow_status bad_cancel(struct escrow_engine *e, uint64_t op, uint32_t flags)
{
	escrow_status st = engine_cancel(e, op, flags);

	for (int i = 0; st == ESCROW_E_INVALID && i < 64; i++)
		if (op && done[i] == op)
			return ESCROW_OK;
	return st;
}
#define EVENTS
#define SLOTS .cancel = bad_cancel,
#endif

/* ---- Drain ---------------------------------------------------------------------------------- */
#ifdef MUTANT_accepts_after_quiesce
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	int32_t st = engine_transfer(e, op, n, stride, flags, ops);

	if (st != ESCROW_E_STATE || state_of(e) != ESCROW_STATE_QUIESCED)
		return st;
	engine_resume(e, 0);
	st = engine_transfer(e, op, n, stride, flags, ops);
	engine_quiesce(e, 0);
	return st;
}
#define SLOTS .transfer = bad_transfer,
#endif

#ifdef MUTANT_drained_with_op
static escrow_status bad_drain(struct escrow_engine *e, uint64_t peer, uint64_t deadline,
			       uint32_t flags)
{
	escrow_status st = engine_drain(e, peer, deadline, flags);
	struct escrow_event event = {.kind = ESCROW_EV_DRAINED, .object = peer};

	if (st == ESCROW_IN_PROGRESS)
		event_again(e, &event);
	return st;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return event->kind != ESCROW_EV_DRAINED;
}
#define EVENTS
#define EVENTS_FIRST
#define SLOTS .drain = bad_drain,
#endif

/* DRAINED is told when the last op ends: of an engine without one never. */
#ifdef MUTANT_idle_drain_forgotten
static bool idle;
static escrow_status bad_drain(struct escrow_engine *e, uint64_t peer, uint64_t deadline,
			       uint32_t flags)
{
	struct escrow_charge charges[16];
	int32_t n = engine_charges(e, charges, 16, sizeof(charges[0]));

	idle = true;
	for (int32_t i = 0; i < n && i < 16; i++)
		if (charges[i].kind == ESCROW_CHARGE_OPS && charges[i].used)
			idle = false;
	return engine_drain(e, peer, deadline, flags);
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return event->kind != ESCROW_EV_DRAINED || !idle || event->status < 0;
}
#define EVENTS
#define SLOTS .drain = bad_drain,
#endif

#ifdef MUTANT_resume_does_not
static escrow_status bad_resume(struct escrow_engine *e, uint32_t flags)
{
	uint32_t state = state_of(e);

	if (flags || (state != ESCROW_STATE_QUIESCED && state != ESCROW_STATE_DRAINED))
		return engine_resume(e, flags);
	return ESCROW_OK;
}
#define SLOTS .resume = bad_resume,
#endif

#if defined MUTANT_drain_never_times_out || defined MUTANT_peer_drain_quiesces
static escrow_status bad_drain(struct escrow_engine *e, uint64_t peer, uint64_t deadline,
			       uint32_t flags)
{
#ifdef MUTANT_drain_never_times_out
	return engine_drain(e, peer, 0, flags);
#else
	escrow_status st = engine_drain(e, peer, deadline, flags);

	if (st == ESCROW_IN_PROGRESS && peer)
		engine_quiesce(e, 0);
	return st;
#endif
}
#define SLOTS .drain = bad_drain,
#endif

#ifdef MUTANT_drain_forgotten
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return event->kind != ESCROW_EV_DRAINED || event->status != ESCROW_E_CANCELED ||
	       state_of(e) != ESCROW_STATE_OPEN;
}
#define EVENTS
#endif

#if defined MUTANT_closed_drain_forgotten || defined MUTANT_lost_drain_forgotten
#ifdef MUTANT_closed_drain_forgotten
#define OVERTAKEN ESCROW_E_CANCELED
#else
#define OVERTAKEN ESCROW_E_DEVICE
#endif
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return event->kind != ESCROW_EV_DRAINED || event->status != OVERTAKEN ||
	       state_of(e) == ESCROW_STATE_OPEN;
}
#define EVENTS
#endif

/* ---- Close ---------------------------------------------------------------------------------- */
#ifdef MUTANT_closed_twice
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_CLOSED)
		event_again(e, event);
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_quarantine_though_clean
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_CLOSED) {
		event->kind = ESCROW_EV_QUARANTINED;
		event->status = ESCROW_E_UNQUIESCED;
	}
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_close_again_event
static escrow_status bad_close(struct escrow_engine *e, uint64_t deadline, uint32_t mode)
{
	struct escrow_event event = {.kind = ESCROW_EV_CLOSED};

	if (state_of(e) == ESCROW_STATE_CLOSED)
		event_again(e, &event);
	return engine_close(e, deadline, mode);
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return true;
}
#define EVENTS
#define SLOTS .close = bad_close,
#endif

#ifdef MUTANT_closed_with_region
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	uint32_t state = state_of(e);

	return event->kind != ESCROW_EV_REGION_RELEASED ||
	       (state != ESCROW_STATE_CLOSING && state != ESCROW_STATE_CLOSED);
}
#define EVENTS
#endif

#ifdef MUTANT_release_when_open
static void bad_release(struct escrow_engine *e)
{
	uint32_t state = state_of(e);

	if (state == ESCROW_STATE_CLOSED || state == ESCROW_STATE_QUARANTINED)
		engine_release(e);
}
#define SLOTS .release = bad_release,
#endif

#ifdef MUTANT_close_deadline_ignored
static escrow_status bad_close(struct escrow_engine *e, uint64_t deadline, uint32_t mode)
{
	return engine_close(e, 0, mode);
}
#define SLOTS .close = bad_close,
#endif

#include "backends/mock/mutants/ends.h"
