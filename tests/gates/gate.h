/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gate: one teardown call of one engine fails on real verbs, and a controller that believes only native calls and
 * bytes says whether everything that had to stay stayed, and everything else went. docs/gates.md.
 *
 * The controller starts two ends, a source and a requester, which write down what they see as JSON (facts); one of them is the
 * faulted end. It waits for both, starts two fresh ones, and judges.
 */
#ifndef GATE_H
#define GATE_H

#include <stdbool.h>
#include <stdint.h>

#include <glib.h>
#include <json-glib/json-glib.h>

#include <escrow/fault.h>

#include "plugin/escrow.h"
#include "tests/gates/observer.h"

#define GATE_PARENTS 8u
#define GATE_SLICES 5u
#define GATE_SLICE_BYTES (UINT64_C(1) << 20)
#define GATE_PARENT_BYTES (GATE_SLICES * GATE_SLICE_BYTES)
#define GATE_PAYLOAD (GATE_PARENTS * GATE_PARENT_BYTES)
#define GATE_GUARD 4096u
#define GATE_MEMORY (GATE_PAYLOAD + 2 * (uint64_t)GATE_GUARD)

/* ---- case.c: the matrix ---------------------------------------------------------------------------- */
/* Of a registration or a window whose end fails (else GATE_PARTS: not such a case). */
enum gate_use {
	GATE_PARTS,
	GATE_IDLE,
	GATE_IN_USE,  /* work is under way on it */
	GATE_GRANTED, /* a peer has authority over it */
};
struct gate_case {
	enum observer_failure failure;
	bool source; /* the faulted end */
	bool write;
	uint32_t rail;
	bool events;
	uint32_t lanes;
	bool weak; /* a RESET is not taken as a proof: the reference's reading */
	enum gate_use use;
};

/* All cases of the matrix, in a fixed order; the array is the caller's. */
GArray *gate_matrix(void);
/* As few of them as have every pair of two factors' values. */
GArray *gate_pairwise(const GArray *all);
/* "destroy_qp/write/source/rail0/events/lanes1/strong", "dereg_mr/idle"; the caller frees. */
char *gate_name(const struct gate_case *c);
bool gate_parse(const char *name, struct gate_case *c);
const char *gate_failure_name(enum observer_failure failure);

/* What follows from a case by the rules of release (ownership of teardown, 3.1). */
/* The rail whose send queue keeps a debt, or -1: the failure needs none. */
int gate_debt_rail(const struct gate_case *c);
/* Ops of the requester stay lent. */
bool gate_loans_stay(const struct gate_case *c);
/* The grant of the source stays. */
bool gate_grant_stays(const struct gate_case *c);
/* Played on the mock, for no native call can fail so. */
bool gate_on_mock(const struct gate_case *c);
/* The memory of the faulted end stays, for one of these reasons or its own. */
bool gate_memory_stays(const struct gate_case *c);
/* No deallocation of a window is taken as a proof. */
bool gate_windows_weak(const struct gate_case *c);
/* What the failing verb answers. */
int gate_errno(const struct gate_case *c);

/* ---- end.c: one end, its engine and its memory -------------------------------------------------------- */
struct gate_op {
	uint64_t id;
	uint32_t done, returned; /* events */
	escrow_status status;
	uint32_t custody, effect;
};

struct gate_end {
	const struct gate_case *set;
	const char *folder; /* where facts and the old bytes lie */
	const char *role;   /* "source", "fresh-requester" ... */
	bool faulted;
	bool fresh;
	int channel;
	struct escrow_module *module;
	const struct escrow_fault *faults; /* the mock's */
	struct escrow_host_engine *engine;
	uint8_t *memory; /* guard, payload, guard */
	uint64_t region, peer, object;
	uint32_t freed;                     /* calls of the region's free function */
	uint32_t freed_old;                 /* and of that of an engine before this one, since */
	uint32_t seen[32];                  /* events by kind; QUARANTINED only of the engine */
	uint32_t repeats;                   /* of QUARANTINED */
	uint32_t region_stuck, grant_stuck; /* QUARANTINED of these */
	escrow_status down;                 /* of the last PEER_DOWN */
	struct gate_op ops[GATE_PARENTS];
	struct observer_state settled; /* when nothing was missing but what was kept back */
	JsonBuilder *facts;
};

/* Names of the two devices, in the order of the rails. */
const char *gate_device(uint32_t rail);
/* Each ends the process with a message where what must work does not. */
void end_open(struct gate_end *end);
void end_fail(const struct gate_end *end, const char *format, ...)
	G_GNUC_PRINTF(2, 3) G_GNUC_NORETURN;
/* Polls once, and rests if nothing came; how many events there were. */
int32_t end_turn(struct gate_end *end);
void end_wait(struct gate_end *end, uint16_t kind);
struct demo_message;
enum gate_word {
	GATE_INVITATION,
	GATE_GRANT,
	GATE_MOVED, /* requester -> source: a round is done; number: the pattern that the payload holds */
	GATE_SEEN, /* source -> requester: 1 the bytes are right */
	GATE_GO,   /* source -> requester: start a round; back: it is under way */
	GATE_QPS, /* requester -> source: how many queue pairs were made?  The answer: the same word */
	GATE_OVER, /* requester -> source: the end */
};
void end_say(struct gate_end *end, enum gate_word word, uint64_t number, const void *bytes,
	     uint32_t len);
/* NULL: the other end is gone. */
struct demo_message *end_hear(struct gate_end *end, enum gate_word word);
bool end_guards(const struct gate_end *end);
/* Starts all parents. */
void end_submit(struct gate_end *end);
bool end_ops_done(const struct gate_end *end);
/* Closes; CLOSED must come, and every charge must be back. */
void end_close(struct gate_end *end);
/* Writes the facts into the folder. */
void end_write(struct gate_end *end);

/* How many native calls there were, and how many queue pairs were made: by the observer, on the mock by itself. */
uint64_t end_calls(const struct gate_end *end);
uint32_t end_qps(const struct gate_end *end);
int64_t end_mock_calls(const struct gate_end *end, uint32_t step);
/* Closes and lets go of nothing: another engine takes the place of this one, which was released. */
void end_renew(struct gate_end *end);

/* ---- roles.c, fresh.c, replace.c, teardown.c ----------------------------------------------------------------------- */
void gate_source(struct gate_end *end);
void gate_requester(struct gate_end *end);
/* The same where the engine is replaced in its process. */
void replace_source(struct gate_end *end);
void replace_requester(struct gate_end *end);
/* Tells the observer of the faulted end what is to go wrong. */
void role_plan(const struct gate_end *end);
void role_lend(struct gate_end *end);
/* The source takes its grant back, until the completion that is to be kept back is. */
void role_owe(struct gate_end *end);
/* Serves a round; false: the requester wants no more, or is gone. */
bool role_serve(struct gate_end *end, bool *right);
void role_join(struct gate_end *end);
/* One whole round: every byte goes one way and is checked at both ends. */
bool role_move(struct gate_end *end, uint64_t pattern);
/* All parents start; until the device has done them and all but what is kept back is told. */
void role_start(struct gate_end *end);
/* Of a fresh requester: the old epoch is refused, before and after the connection is up. */
void fresh_stale_invitation(struct gate_end *end, const struct demo_message *invitation);
void fresh_stale_grant(struct gate_end *end);
/* The faulted end: closes, lets go of everything, and writes down all that there is to be seen. */
void teardown(struct gate_end *end);
/* Afterwards: the owners of released engines that are listed, as member `name`. */
void teardown_residue(struct gate_end *end, const char *name);
/* At last: was the failed object there all the time? */
void teardown_prove(struct gate_end *end);
/* facts.c: the observer's lists. */
void facts_objects(JsonBuilder *facts, const char *name);
void facts_calls(JsonBuilder *facts);

/* ---- judge.c, report.c ------------------------------------------------------------------------------------ */
struct gate_facts {
	JsonObject *faulted, *other, *fresh_source, *fresh_requester;
	uint32_t unreaped; /* processes of the run that were not waited for */
};
/* Appends what is wrong to problems. */
void judge(const struct gate_case *c, const struct gate_facts *facts, GPtrArray *problems);
/* doctor.c: one of doctor_lies() ways to falsify the facts; appends to problems if the judge takes it. False: the
 * case has nothing to lie about in that way. */
guint doctor_lies(void);
bool doctor(const struct gate_case *c, guint lie, struct gate_facts *facts, GPtrArray *problems);
/* Adds a run to the report; facts may be missing. lies: that were told, and rejected if there is no problem. */
void report_case(const char *name, const struct gate_facts *facts, guint lies,
		 const GPtrArray *problems);
/* For programs (json may be NULL), and for people. */
void report_write(const char *json, const char *text);
void report_text(const char *path, JsonNode *report);

#endif
