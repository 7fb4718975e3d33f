/* SPDX-License-Identifier: BSD-2-Clause */
/* thread.c - mutants of slots that are called beside each other: clauses T1 to T3. */
#include "backends/mock/mutants/mutant.h"

#ifdef MUTANT_race_loses_op
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	return event->kind != ESCROW_EV_OP_DONE || state_of(e) == ESCROW_STATE_OPEN;
}
#define EVENTS
#endif

#ifdef MUTANT_query_not_locked
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	static volatile int inside; /* as if nobody else could be */
	int own = inside + 1;
	escrow_status st;

	inside = own;
	usleep(200);
	while (inside == own && !is_main_thread() && hold_on())
		;
	st = engine_query(e, limits);
	if (inside != own && st == ESCROW_OK)
		st = ESCROW_E_INTERNAL;
	inside = own - 1;
	return st;
}
#define SLOTS .query = bad_query,
#endif

/* While memory is being registered nothing is submitted: two threads do not find out who was first. */
#ifdef MUTANT_control_stops_data
static atomic_uint registering;
static atomic_bool refused;
static atomic_bool beside; /* another thread submits */
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	escrow_status st;

	registering++;
	while (beside && !refused && hold_on())
		;
	st = engine_register_memory(e, args, region, error);
	registering--;
	return st;
}
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	if (registering) {
		refused = true;
		return ESCROW_E_INTERNAL;
	}
	beside |= !is_main_thread();
	return engine_transfer(e, op, n, stride, flags, ops);
}
#define SLOTS .register_memory = bad_register, .transfer = bad_transfer,
#endif

#ifdef MUTANT_one_open_at_a_time
static atomic_uint opening;
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = ESCROW_E_INTERNAL;

	if (opening++ == 0) {
		while (opening == 1 && !is_main_thread() && hold_on())
			;
		st = real_open(args, out, error);
	}
	opening--;
	return st;
}
#define OPEN bad_open
#endif

#include "backends/mock/mutants/ends.h"
