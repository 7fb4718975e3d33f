/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * case.h - a case: one question to a backend, asked in a process of its own.
 *
 * Ids are ESC-AREA-NNN and are never used again for another question.  The first clause is the one
 * a failure counts against unless a check names another.
 */
#ifndef CONFORM_CASE_H
#define CONFORM_CASE_H

#include <stddef.h>
#include <stdint.h>

#include "tests/conform/ambient.h"
#include "tests/conform/engine.h"
#include "tests/conform/guard.h"
#include "tests/conform/trail.h"

/* What a case needs beside capability bits; read from what the backend says of itself. */
#define NEED_FAULTS 1u   /* the option test.faults */
#define NEED_MESSAGES 2u /* query's max_message_bytes is not 0 */
#define NEED_MISUSE 4u   /* the case breaks the contract: HOST_MISBEHAVES may be logged */
#define NEED_BARE 8u     /* it loads and negotiates itself */

/* What a case is given.  The two subjects are the same object unless --with names another. */
struct conform {
	struct subject subject;
	const char *path;
	const char *other_path;
	const char *self; /* this program, to start a second process */
	uint64_t seed;
	struct ambient before; /* taken before the object was loaded */
};

struct conform_case {
	const char *id;
	const char *profile;
	const char *clauses; /* separated by a space */
	uint64_t caps;       /* ESCROW_CAP_* that query must report, else SKIP */
	uint32_t needs;
	const char *summary;
	void (*run)(struct conform *c);
};

struct conform_area {
	const struct conform_case *cases;
	size_t count;
};

#define CONFORM_AREA(name, array)                                                                  \
	const struct conform_area name = {array, sizeof(array) / sizeof((array)[0])}

/* One for each file of cases. */
extern const struct conform_area area_args, area_breakage, area_close, area_drain, area_entry,
	area_event, area_flow, area_fork, area_fuzz, area_grant, area_handle, area_layout,
	area_ledger, area_life, area_message, area_oom, area_op, area_peer, area_perf,
	area_quarantine, area_region, area_remote, area_state, area_swap, area_thread;

#endif
