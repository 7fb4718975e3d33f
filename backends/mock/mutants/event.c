/* SPDX-License-Identifier: BSD-2-Clause */
/* event.c - mutants of events, regions, custody: clauses V, RE, CU. */
#include "backends/mock/mutants/mutant.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#ifdef MUTANT_unknown_event
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	struct escrow_event strange = {.kind = 4711};

	if (event->kind == ESCROW_EV_PEER_UP)
		event_again(e, &strange);
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_duplicate_op_done
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_OP_DONE)
		event_again(e, event);
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_lost_op_done_after_cancel
static uint64_t canceled[64];
static uint32_t ncanceled;
static escrow_status bad_cancel(struct escrow_engine *e, uint64_t op, uint32_t flags)
{
	escrow_status st = engine_cancel(e, op, flags);

	if (st >= 0)
		canceled[ncanceled++ % 64] = op;
	return st;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	for (int i = 0; event->kind == ESCROW_EV_OP_DONE && i < 64; i++)
		if (canceled[i] == event->object)
			return false;
	return true;
}
#define EVENTS
#define SLOTS .cancel = bad_cancel,
#endif

#ifdef MUTANT_lost_op_done_at_close
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	uint32_t state = state_of(e);

	return event->kind != ESCROW_EV_OP_DONE ||
	       (state != ESCROW_STATE_CLOSING && state != ESCROW_STATE_CLOSED);
}
#define EVENTS
#endif

#ifdef MUTANT_lost_op_done_while_quiesced
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return event->kind != ESCROW_EV_OP_DONE || state_of(e) != ESCROW_STATE_QUIESCED;
}
#define EVENTS
#endif

#ifdef MUTANT_expired_is_terminal
static uint64_t expired[64];
static uint32_t nexpired;
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_OP_EXPIRED) {
		expired[nexpired++ % 64] = event->object;
		event->kind = ESCROW_EV_OP_DONE;
		event->status = ESCROW_E_TIMEOUT;
		event->effect = ESCROW_EFFECT_UNKNOWN;
		return true;
	}
	for (int i = 0; event->kind == ESCROW_EV_OP_DONE && i < 64; i++)
		if (expired[i] == event->object)
			return false;
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_poll_more_than_max
static int32_t bad_poll(struct escrow_engine *e, struct escrow_event *events, uint32_t max,
			uint32_t stride, uint32_t flags)
{
	int32_t n = engine_poll(e, events, max, stride, flags);

	/* one more, if there is one */
	if (n > 0 && (uint32_t)n == max)
		n += engine_poll(e, (struct escrow_event *)((char *)events + (size_t)n * stride), 1,
				 stride, flags);
	return n;
}
#define SLOTS .poll = bad_poll,
#endif

#ifdef MUTANT_seq_repeats
static int32_t bad_poll(struct escrow_engine *e, struct escrow_event *events, uint32_t max,
			uint32_t stride, uint32_t flags)
{
	int32_t n = engine_poll(e, events, max, stride, flags);

	for (int32_t i = 0; i < n; i++)
		((struct escrow_event *)((char *)events + (size_t)i * stride))->seq = 7;
	return n;
}
#define SLOTS .poll = bad_poll,
#endif

#ifdef MUTANT_event_lost
static int32_t bad_poll(struct escrow_engine *e, struct escrow_event *events, uint32_t max,
			uint32_t stride, uint32_t flags)
{
	struct escrow_event one[8];
	int32_t n = engine_poll(e, events, max, stride, flags);

	/* what did not fit into the array is lost now and then */
	if (n > 0 && (uint32_t)n == max && max < 8)
		engine_poll(e, one, 1, sizeof(one[0]), 0);
	return n;
}
#define SLOTS .poll = bad_poll,
#endif

#ifdef MUTANT_event_after_closed
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	struct escrow_event more = {.kind = ESCROW_EV_ROOM};

	if (event->kind == ESCROW_EV_CLOSED)
		event_again(e, &more);
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_event_never_comes
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return event->kind != ESCROW_EV_REGION_RELEASED;
}
#define EVENTS
#endif

#ifdef MUTANT_token_lost
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_OP_DONE)
		event->user = 0;
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_arm_ok_with_pending
static escrow_status bad_arm(struct escrow_engine *e, uint32_t flags)
{
	escrow_status st = engine_arm(e, flags);

	return st == ESCROW_EVENTS_PENDING ? ESCROW_OK : st;
}
#define SLOTS .arm = bad_arm,
#endif

#if defined MUTANT_fd_never_readable || defined MUTANT_fd_always_readable
#ifdef MUTANT_fd_never_readable
#define COUNT 0
#else
#define COUNT 1
#endif
/* A descriptor of its own, in the place of the engine's, so that it is closed with it. */
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = real_open(args, out, error);
	int fd;

	if (st != ESCROW_OK)
		return st;
	fd = eventfd(COUNT, EFD_CLOEXEC | EFD_NONBLOCK);
	dup3(fd, engine_event_fd(*out), O_CLOEXEC);
	close(fd);
	return st;
}
#define OPEN bad_open
#endif

/* ---- Regions -------------------------------------------------------------------------------- */
#ifdef MUTANT_unaligned_refused
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	if (args && args->size >= sizeof(*args) && (uintptr_t)args->addr % 8)
		return ESCROW_E_INVALID;
	return engine_register_memory(e, args, region, error);
}
#define SLOTS .register_memory = bad_register,
#endif

#if defined MUTANT_overlap_refused || defined MUTANT_region_once_in_process
static struct {
	struct escrow_engine *engine;
	uint64_t region;
	uintptr_t addr, length;
} live[512];
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	escrow_status st;

	for (int i = 0; args && args->size >= sizeof(*args) && i < 512; i++) {
		uintptr_t addr = (uintptr_t)args->addr;
#ifdef MUTANT_overlap_refused
		bool same = live[i].engine == e;
#else
		bool same = live[i].engine && live[i].engine != e;
#endif

		if (same && addr < live[i].addr + live[i].length &&
		    live[i].addr < addr + args->length)
			return ESCROW_E_INVALID;
	}
	st = engine_register_memory(e, args, region, error);
	for (int i = 0; st == ESCROW_OK && i < 512; i++) {
		if (live[i].engine)
			continue;
		live[i].engine = e;
		live[i].region = *region;
		live[i].addr = (uintptr_t)args->addr;
		live[i].length = args->length;
		break;
	}
	return st;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	for (int i = 0; event->kind == ESCROW_EV_REGION_RELEASED && i < 512; i++)
		if (live[i].engine == e && live[i].region == event->object)
			live[i].engine = NULL;
	return true;
}
#define SLOTS .register_memory = bad_register,
#define EVENTS
#endif

#ifdef MUTANT_released_twice
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_REGION_RELEASED)
		event_again(e, event);
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_limit_ignored
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	escrow_status st = engine_register_memory(e, args, region, error);

	if (st == ESCROW_E_LIMIT)
		*region = 1;
	return st == ESCROW_E_LIMIT ? ESCROW_OK : st;
}
#define SLOTS .register_memory = bad_register,
#endif

#if defined MUTANT_deregister_while_granted || defined MUTANT_deregister_while_lent
static escrow_status bad_deregister(struct escrow_engine *e, uint64_t region, uint32_t flags)
{
	escrow_status st = engine_deregister_memory(e, region, flags);
	struct escrow_event event = {.kind = ESCROW_EV_REGION_RELEASED, .object = region};

	if (st != ESCROW_E_BUSY)
		return st;
	event_again(e, &event);
	return ESCROW_IN_PROGRESS;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return true;
}
#define EVENTS
#define SLOTS .deregister_memory = bad_deregister,
#endif

#ifdef MUTANT_released_while_written
static struct {
	uint64_t region;
	volatile uint8_t *addr;
	bool released;
} ranges[64];
static uint32_t nranges;
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	escrow_status st = engine_register_memory(e, args, region, error);

	if (st == ESCROW_OK) {
		ranges[nranges % 64].region = *region;
		ranges[nranges % 64].released = false;
		ranges[nranges++ % 64].addr = args->addr;
	}
	return st;
}
/* The device is late: a polled release does not stop it. */
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	for (int i = 0; event->kind == ESCROW_EV_REGION_RELEASED && i < 64; i++)
		if (ranges[i].region == event->object)
			ranges[i].released = true;
	return true;
}
static int bad_next_event(struct native *n, struct native_event *ev)
{
	for (int i = 0; i < 64; i++)
		if (ranges[i].released)
			++*ranges[i].addr;
	return mock_native.next_event(n, ev);
}
#define EVENTS
#define NATIVE(t) (t)->next_event = bad_next_event
#define SLOTS .register_memory = bad_register,
#endif

/* ---- Custody and effect --------------------------------------------------------------------- */
#ifdef MUTANT_custody_in_other_event
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_PEER_UP || event->kind == ESCROW_EV_GRANT_READY)
		event->custody = ESCROW_CUSTODY_HELD;
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_unknown_reported_executed
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_OP_DONE && event->effect == ESCROW_EFFECT_UNKNOWN)
		event->effect = ESCROW_EFFECT_EXECUTED;
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_bytes_wrong
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_OP_DONE && event->bytes)
		event->bytes--;
	return true;
}
#define EVENTS
#endif

#ifdef MUTANT_held_reported_returned
/* Told before the device is done, once completions are held. */
static bool held;
static uint64_t told[64];
static uint32_t ntold;
static escrow_status bad_plan(struct escrow_engine *e, const char *plan, struct escrow_error *error)
{
	const struct escrow_fault *real = engine_get_extension(e, ESCROW_FAULT_ID);

	held = plan && strstr(plan, "cqe=hold");
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
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	int32_t st = engine_transfer(e, op, n, stride, flags, ops);
	struct escrow_event event = {.kind = ESCROW_EV_OP_DONE,
				     .status = ESCROW_E_CANCELED,
				     .custody = ESCROW_CUSTODY_RETURNED,
				     .effect = ESCROW_EFFECT_UNKNOWN};

	if (st < 1 || !held)
		return st;
	event.object = ops[0];
	event.user = op->user;
	event_again(e, &event);
	told[ntold++ % 64] = ops[0];
	return st;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	for (int i = 0; event->kind == ESCROW_EV_OP_DONE && i < 64; i++)
		if (told[i] == event->object)
			return false;
	return true;
}
#define EVENTS
#define SLOTS .transfer = bad_transfer, .get_extension = bad_extension,
#endif

#ifdef MUTANT_never_returned
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return event->kind != ESCROW_EV_OP_RETURNED;
}
#define EVENTS
#endif

#include "backends/mock/mutants/ends.h"
