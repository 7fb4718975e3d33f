/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine-kit.h - what the tests of backends/engine/ share: a host with a clock of its own, engines
 * over the mock device, and a poll that looks for one kind of event.
 *
 * The engine has no thread here (control_thread = 0), so polls are the only thing that makes progress
 * and every test repeats exactly.
 */
#ifndef ENGINE_KIT_H
#define ENGINE_KIT_H

#include <stdbool.h>
#include <stdint.h>

#include <escrow/backend.h>
#include <escrow/fault.h>

#include "backends/engine/native.h"

/* The backend under test: the table of the engine over the mock's native table. */
const struct escrow_backend *kit_backend(void);
#define KIT_OPS (kit_backend()->ops)

extern struct escrow_host kit_host;
extern uint64_t kit_now;     /* ns; what kit_host.now_ns says */
extern uint64_t kit_allocs;  /* live allocations */
extern int64_t kit_fail_at;  /* this allocation (1 = next) fails; 0 = none */
extern uint32_t kit_misuses; /* HOST_MISBEHAVES texts that were logged */

/* The mock's table, but for what is set here, and what a test puts in its place after the first engine. */
extern struct native_ops kit_table;
extern int kit_wakeups;  /* what the device answers when it is asked for wake-ups */
extern bool kit_inexact; /* windows do not hold accesses to their own range */
extern bool kit_silent;  /* what is posted is taken, and nothing comes of it */

#define KIT_BYTES 65536u

/* One engine and what a test does with it. */
struct kit {
	struct escrow_engine *engine;
	uint8_t *memory; /* KIT_BYTES */
	uint64_t region;
	uint64_t peer;
	struct escrow_event seen[64]; /* events that kit_poll() passed over, oldest first */
	uint32_t nseen;
	uint64_t seq;
};

/* Opens with "key=value" settings, ended by NULL; what open said. */
escrow_status kit_open(struct kit *k, const char *name, const char *const *settings,
		       struct escrow_error *error);
/* kit_start() uses these, if not NULL, instead of its own. */
extern const char *const *kit_settings;
/* The same with test.faults=1, and asserts that it went well; registers k->memory. */
void kit_start(struct kit *k, const char *name);
/* Polls both (b may be NULL) once. */
void kit_turn(struct kit *a, struct kit *b);
/* Polls both (b may be NULL) until a has an event of this kind, or fails the test. */
struct escrow_event kit_wait(struct kit *a, struct kit *b, uint16_t kind);
/* Polls both some times; no event of this kind may come to a. */
void kit_never(struct kit *a, struct kit *b, uint16_t kind);
/* a invites b, and b connects. */
void kit_ask(struct kit *a, struct kit *b);
/* The same; both wait for PEER_UP. */
void kit_connect(struct kit *a, struct kit *b);
/* a grants its memory from `from` on to its peer, b imports it: *grant_out is a's, the result b's remote. */
uint64_t kit_grant(struct kit *a, struct kit *b, uint32_t rights, uint64_t *grant_out);
uint64_t kit_grant_from(struct kit *a, struct kit *b, uint32_t rights, uint64_t from,
			uint64_t *grant_out);
/* One op of b between b->memory + at and the remote + remote_at. */
uint64_t kit_transfer(struct kit *b, uint64_t remote, uint32_t opcode, uint64_t at,
		      uint64_t remote_at, uint64_t length);
/* What is charged of this kind, of all peers. */
uint64_t kit_used(struct kit *k, uint32_t kind);
const struct escrow_fault *kit_faults(struct kit *k);
void kit_plan(struct kit *k, const char *plan);
/* Aborts and waits for CLOSED (or, if `quarantined`, QUARANTINED with object 0); releases. */
void kit_close(struct kit *k, struct kit *other, bool quarantined);

#endif
