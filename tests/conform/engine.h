/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine.h - one engine under test, its events, and the calls as the strict host makes them.
 *
 * Arguments stand in guarded memory that is poisoned after the call; outputs are filled with a
 * pattern before it and must be untouched when it fails; every event passes the checks that hold
 * for all events.  Engines of one process are polled together, because each may need the others'
 * progress.
 */
#ifndef CONFORM_ENGINE_H
#define CONFORM_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/conform/host.h"
#include "tests/conform/subject.h"
#include "tests/conform/verdict.h"

#define ENGINE_EVENTS 4096u
#define ENGINE_SETTINGS 32u
/* A value that no backend writes by accident: outputs that a failed call leaves alone. */
#define UNTOUCHED UINT64_C(0x5e5e5e5e5e5e5e5e)
/* No canonical address: a token that is read through crashes (clause O4). */
#define TOKEN(n) (UINT64_C(0xbad0000000000000) + (uint64_t)(n))

struct engine {
	struct escrow_engine *e;
	const struct subject *subject;
	const struct escrow_ops *o;
	struct host *host;
	struct escrow_limits limits;
	char name[64];
	uint64_t last_seq;
	bool closed;      /* CLOSED has been polled */
	bool quarantined; /* QUARANTINED with object 0 has been polled */
	uint32_t count;
	struct escrow_event *window;              /* what poll writes into; at the end of a page */
	struct escrow_event event[ENGINE_EVENTS]; /* polled, not yet taken */
};

/* What every open in this process is given, from --config and from the profile. */
void engine_setting(const char *key, const char *value);
void engine_settings_clear(const char *key);

/* Opens, or fails the case.  host NULL: a host of its own. */
struct engine *engine_open(const struct subject *s, struct host *host, const char *name);

/* Opens, and tells what came. */
escrow_status engine_try_open(const struct subject *s, struct host *host, const char *name,
			      struct escrow_engine **out, struct escrow_error *error);

/* An engine that engine_try_open made. */
struct engine *engine_adopt(const struct subject *s, struct host *host, const char *name,
			    struct escrow_engine *e);

/* Polls every engine of the process once; true if anything came. */
bool engine_pump(void);

/* Takes the first event of that kind and object (0 = any), polling for as long as patience.h says. */
bool engine_try_wait(struct engine *en, unsigned int kind, uint64_t object,
		     struct escrow_event *out);
void engine_wait(struct engine *en, unsigned int kind, uint64_t object, struct escrow_event *out);

/* The same, and a frozen clock goes on meanwhile: for what waits for deadlines of the backend. */
void engine_wait_long(struct engine *en, unsigned int kind, uint64_t object,
		      struct escrow_event *out);

/* Polls until nothing comes any more for a while: for events that must not come. */
void engine_settle(void);

/* Has such an event been polled and not been taken?  How many? */
uint32_t engine_pending(const struct engine *en, unsigned int kind, uint64_t object);
bool engine_take(struct engine *en, unsigned int kind, uint64_t object, struct escrow_event *out);

/* The same, of object 0 and no other: what is told of the engine itself. */
bool engine_take_own(struct engine *en, unsigned int kind, struct escrow_event *out);

uint32_t engine_state(struct engine *en);
bool engine_can(const struct engine *en, uint64_t caps);

/* close(GRACEFUL), CLOSED, release; the case fails if anything else comes of it. */
void engine_close(struct engine *en);

/* Starts a close and waits for its end: CLOSED or QUARANTINED. */
unsigned int engine_end(struct engine *en, uint32_t mode);
void engine_release(struct engine *en); /* what was polled stays until the next engine_open */

/* ---- slots ---- */
escrow_status engine_region(struct engine *en, const struct escrow_region_args *args,
			    uint64_t *region);
escrow_status engine_invite(struct engine *en, const struct escrow_invite_args *args, void *buf,
			    uint64_t *len);
escrow_status engine_connect(struct engine *en, const struct escrow_peer_args *args,
			     uint64_t *peer);
escrow_status engine_grant(struct engine *en, const struct escrow_grant_args *args,
			   uint64_t *grant);
escrow_status engine_import(struct engine *en, uint64_t peer, const void *buf, uint64_t len,
			    uint64_t user, uint64_t *remote);
int32_t engine_transfer(struct engine *en, const struct escrow_op *op, uint32_t n, uint64_t *ids);

/* The status ranges of the header (clause E1). */
bool engine_is_status(escrow_status status);

/* What engine_* calls saw in their last struct escrow_error. */
extern struct escrow_error engine_error;

#endif
