/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mutant.h - what each mutant starts from.  A mutant is the mock with one clause broken, so that
 * the conformance suite can show that it notices.  It is compiled from the file of its family with
 * -DMUTANT_name (- written _), whose part for it defines functions and some of
 *
 *	SLOTS       designated initialisers that replace slots of the table
 *	DESCRIPTOR  the same for the descriptor
 *	OPEN        the function that takes the place of open
 *	EVENTS      bool mutant_event(engine, event): changes an event, or false: it is lost
 *	EVENTS_FIRST  what event_again adds comes before the engine's own
 *	NATIVE(t)   statements that change the native table *t of the device below
 *	ENTRY       it has an entry of its own; the real one is real_entry
 *
 * and ends.h makes the object of it.  abi/clauses.tsv says which clause each of them breaks and
 * which case is to catch it.
 */
#ifndef MUTANT_H
#define MUTANT_H

#include "config.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/engine/entry.h"
#include "backends/mock/mock.h"
#include <escrow/fault.h>
#include <escrow/fence.h>
#include <escrow/notify.h>

#define MUTANT_UNUSED __attribute__((unused))

/* open as it should be */
static escrow_status real_open(const struct escrow_open_args *args, struct escrow_engine **out,
			       struct escrow_error *error);
/*
 * Some faults show only if another thread comes at the right moment: the mutant waits for that one, so that it is caught on
 * a busy machine too.  False: it has waited long enough, a second or so in all; what it waits for does not come in most cases.
 */
MUTANT_UNUSED static bool hold_on(void)
{
	static atomic_uint waits;

	if (atomic_fetch_add(&waits, 1) >= 5000)
		return false;
	usleep(200);
	return true;
}

/* The thread that began the process is waited for by others in most cases. */
MUTANT_UNUSED static bool is_main_thread(void)
{
	return gettid() == getpid();
}

/* The state that query tells. */
MUTANT_UNUSED static uint32_t state_of(struct escrow_engine *e)
{
	struct escrow_limits limits = {.size = sizeof(limits)};

	return engine_query(e, &limits) < 0 ? 0 : limits.state;
}

/* An event to come behind the one that is being looked at. */
MUTANT_UNUSED static void event_again(struct escrow_engine *e, const struct escrow_event *event);

#endif
