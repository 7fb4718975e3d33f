/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/conform/engine.h"

#include <stdlib.h>
#include <string.h>

#include "tests/conform/guard.h"
#include "tests/conform/patience.h"
#include "tests/conform/trail.h"

#define ENGINES 64u
#define POLL_MAX 16u
#define POISON_BYTE 0x5e

struct escrow_error engine_error;

static struct escrow_kv settings[ENGINE_SETTINGS];
static uint32_t nsettings;
static struct engine *engines[ENGINES];
static struct engine *released; /* to be used again */

void engine_settings_clear(const char *key)
{
	uint32_t i;

	for (i = 0; i < nsettings; i++)
		if (!strcmp(settings[i].key, key)) {
			settings[i] = settings[--nsettings];
			return;
		}
}

void engine_setting(const char *key, const char *value)
{
	engine_settings_clear(key);
	if (nsettings == ENGINE_SETTINGS)
		verdict_broken("more than %u settings", ENGINE_SETTINGS);
	settings[nsettings].key = key;
	settings[nsettings++].value = value;
}

bool engine_is_status(escrow_status s)
{
	return (s >= ESCROW_OK && s <= ESCROW_EVENTS_PENDING) ||
	       (s <= ESCROW_E_INVALID && s >= ESCROW_E_BUSY) ||
	       (s <= ESCROW_E_NO_MEMORY && s >= ESCROW_E_MEMLOCK) ||
	       (s <= ESCROW_E_TIMEOUT && s >= ESCROW_E_REFUSED) ||
	       (s <= ESCROW_E_DEVICE && s >= ESCROW_E_UNQUIESCED);
}

/* The settings as an array in guarded memory, each string in a page of its own. */
static const struct escrow_kv *guarded_settings(void)
{
	struct escrow_kv kv[ENGINE_SETTINGS];
	uint32_t i;

	for (i = 0; i < nsettings; i++) {
		kv[i].key = guard_string(settings[i].key);
		kv[i].value = guard_string(settings[i].value);
	}
	return nsettings ? guard_copy(kv, nsettings * sizeof(kv[0])) : NULL;
}

/* After a call that can fill an error: text and status must agree with the answer (E2). */
static void judge_error(const char *slot, escrow_status status, const struct escrow_error *error)
{
	engine_error = *error;
	trail("%s: %s %s", slot, verdict_status(status), status < 0 ? error->text : "");
	expect_as("E1", engine_is_status(status), "%s gives %d, which is no status", slot, status);
	if (status >= 0)
		return;
	expect_as("E2", memchr(error->text, 0, sizeof(error->text)),
		  "the error text of %s is not terminated", slot);
	expect_as("E2", error->text[0], "%s fails with %s and an empty text", slot,
		  verdict_status(status));
	expect_as("E2", error->status == status, "%s gives %s, its struct escrow_error says %s",
		  slot, verdict_status(status), verdict_status(error->status));
	expect_as("E2", error->sys_errno >= 0, "%s: sys_errno %d", slot, error->sys_errno);
}

static struct escrow_error *guarded_error(void)
{
	struct escrow_error *error = guard_new(sizeof(*error));

	memset(error, POISON_BYTE, sizeof(*error));
	error->size = sizeof(*error);
	return error;
}

escrow_status engine_try_open(const struct subject *s, struct host *host, const char *name,
			      struct escrow_engine **out, struct escrow_error *error)
{
	size_t mark = guard_mark();
	struct escrow_engine **slot = guard_new(sizeof(*slot));
	struct escrow_error *guarded = guarded_error();
	struct escrow_open_args args = {
		.size = sizeof(args),
		.host = host->table,
		.revision = s->backend->revision,
		.kv = guarded_settings(),
		.nkv = nsettings,
		.kv_stride = sizeof(struct escrow_kv),
		.engine_name = guard_string(name),
	};
	struct escrow_engine *untouched;
	escrow_status status;

	memset(&untouched, POISON_BYTE, sizeof(untouched));
	*slot = untouched;
	status = s->ops.open(guard_copy(&args, sizeof(args)), slot, guarded);
	judge_error("open", status, guarded);
	if (error)
		*error = *guarded;
	if (status < 0)
		expect_as("E3", *slot == untouched, "open failed and wrote its output");
	else
		expect_as("E3", status == ESCROW_OK && *slot != untouched && *slot,
			  "open gives %s and engine %p", verdict_status(status), (void *)*slot);
	*out = *slot;
	guard_poison(mark);
	return status;
}

static void remember(struct engine *en)
{
	uint32_t i;

	for (i = 0; i < ENGINES; i++)
		if (!engines[i]) {
			engines[i] = en;
			return;
		}
	verdict_broken("more than %u engines at once", ENGINES);
}

struct engine *engine_adopt(const struct subject *s, struct host *host, const char *name,
			    struct escrow_engine *e)
{
	struct engine *en = released;

	released = NULL;
	if (!en)
		en = guard_kept(sizeof(*en));
	memset(en, 0, sizeof(*en));
	en->e = e;
	en->subject = s;
	en->o = &s->ops;
	en->host = host;
	en->window = guard_new(POLL_MAX * sizeof(*en->window));
	strncpy(en->name, name, sizeof(en->name) - 1);
	en->limits.size = sizeof(en->limits);
	expect_status_as("G1", en->o->query(en->e, &en->limits), ESCROW_OK);
	remember(en);
	return en;
}

struct engine *engine_open(const struct subject *s, struct host *host, const char *name)
{
	struct escrow_engine *e;
	struct escrow_error error;
	escrow_status status;

	if (!host) {
		host = guard_kept(sizeof(*host));
		host_new(host);
	}
	status = engine_try_open(s, host, name, &e, &error);
	expect_as("G1", status == ESCROW_OK, "open gives %s: %s", verdict_status(status),
		  error.text);
	return engine_adopt(s, host, name, e);
}

/* What holds for each event, whatever it tells. */
static void judge_event(struct engine *en, const struct escrow_event *ev)
{
	bool op = ev->kind == ESCROW_EV_OP_DONE || ev->kind == ESCROW_EV_OP_RETURNED;

	trail("%s: %s object %#llx status %s user %#llx bytes %llu", en->name,
	      verdict_event(ev->kind), (unsigned long long)ev->object, verdict_status(ev->status),
	      (unsigned long long)ev->user, (unsigned long long)ev->bytes);
	expect_as("V1", ev->kind >= ESCROW_EV_OP_DONE && ev->kind <= ESCROW_EV_MESSAGE_SENT,
		  "an event of kind %u, which the header does not have", ev->kind);
	expect_as("E1", engine_is_status(ev->status), "event %s with status %d",
		  verdict_event(ev->kind), ev->status);
	expect_as("V5", ev->seq > en->last_seq, "event %s has seq %llu after %llu",
		  verdict_event(ev->kind), (unsigned long long)ev->seq,
		  (unsigned long long)en->last_seq);
	en->last_seq = ev->seq;
	expect_as("L4", !ev->reserved0 && !ev->reserved1, "event %s has a reserved member set",
		  verdict_event(ev->kind));
	expect_as("L4", !(ev->flags & ~ESCROW_EVF_REPEAT), "event %s has unknown flags %#x",
		  verdict_event(ev->kind), ev->flags);
	expect_as("CU1",
		  op ? ev->custody <= ESCROW_CUSTODY_HELD && ev->effect <= ESCROW_EFFECT_UNKNOWN
		     : !ev->custody && !ev->effect,
		  "event %s with custody %u, effect %u", verdict_event(ev->kind), ev->custody,
		  ev->effect);
	expect_as("V6", !en->closed, "event %s after CLOSED", verdict_event(ev->kind));
	if (ev->kind == ESCROW_EV_CLOSED)
		en->closed = true;
	if (ev->kind == ESCROW_EV_QUARANTINED && !ev->object)
		en->quarantined = true;
}

static int32_t poll_one(struct engine *en)
{
	struct escrow_event unwritten;
	int32_t n, i;

	memset(&unwritten, POISON_BYTE, sizeof(unwritten));
	for (i = 0; i < (int32_t)POLL_MAX; i++)
		en->window[i] = unwritten;
	n = en->o->poll(en->e, en->window, POLL_MAX, sizeof(struct escrow_event), 0);
	expect_as("V4", n >= 0 && n <= (int32_t)POLL_MAX, "poll for %u events gives %d", POLL_MAX,
		  n);
	for (i = n; i < (int32_t)POLL_MAX; i++)
		expect_as("V4", !memcmp(&en->window[i], &unwritten, sizeof(unwritten)),
			  "poll gives %d and wrote element %d", n, i);
	for (i = 0; i < n; i++) {
		judge_event(en, &en->window[i]);
		if (en->count == ENGINE_EVENTS)
			verdict_broken("%u events were not taken", en->count);
		en->event[en->count++] = en->window[i];
	}
	return n;
}

bool engine_pump(void)
{
	bool any = false;
	uint32_t i;

	for (i = 0; i < ENGINES; i++)
		if (engines[i])
			any |= poll_one(engines[i]) > 0;
	return any;
}

static bool is_it(const struct escrow_event *ev, unsigned int kind, uint64_t object)
{
	return ev->kind == kind && (!object || ev->object == object);
}

bool engine_take(struct engine *en, unsigned int kind, uint64_t object, struct escrow_event *out)
{
	uint32_t i;

	for (i = 0; i < en->count; i++) {
		if (!is_it(&en->event[i], kind, object))
			continue;
		if (out)
			*out = en->event[i];
		en->count--;
		memmove(&en->event[i], &en->event[i + 1], (en->count - i) * sizeof(en->event[0]));
		return true;
	}
	return false;
}

bool engine_take_own(struct engine *en, unsigned int kind, struct escrow_event *out)
{
	uint32_t i;

	for (i = 0; i < en->count; i++)
		if (en->event[i].kind == kind && !en->event[i].object) {
			*out = en->event[i];
			en->count--;
			memmove(&en->event[i], &en->event[i + 1],
				(en->count - i) * sizeof(en->event[0]));
			return true;
		}
	return false;
}

uint32_t engine_pending(const struct engine *en, unsigned int kind, uint64_t object)
{
	uint32_t i, n = 0;

	for (i = 0; i < en->count; i++)
		n += is_it(&en->event[i], kind, object);
	return n;
}

/* A frozen clock goes on in steps where the case says that time may pass. */
static void let_time_pass(unsigned int round)
{
	uint32_t i;

	for (i = 0; round % 20 == 19 && i < ENGINES; i++)
		if (engines[i] && atomic_load(&engines[i]->host->frozen))
			host_advance(engines[i]->host, UINT64_C(1000000000));
}

void engine_wait_long(struct engine *en, unsigned int kind, uint64_t object,
		      struct escrow_event *out)
{
	uint64_t end = patience_end();
	unsigned int round = 0;

	trail("%s: wait long for %s of %#llx", en->name, verdict_event(kind),
	      (unsigned long long)object);
	while (!engine_take(en, kind, object, out)) {
		if (engine_pump())
			continue;
		expect_as("V7", !patience_over(end), "no event %s came for %#llx",
			  verdict_event(kind), (unsigned long long)object);
		let_time_pass(round);
		patience_idle(round++);
	}
}

bool engine_try_wait(struct engine *en, unsigned int kind, uint64_t object,
		     struct escrow_event *out)
{
	uint64_t end = patience_end();
	unsigned int round = 0;

	while (!engine_take(en, kind, object, out)) {
		if (engine_pump()) {
			round = 0;
			continue;
		}
		if (patience_over(end))
			return false;
		patience_idle(round++);
	}
	return true;
}

void engine_wait(struct engine *en, unsigned int kind, uint64_t object, struct escrow_event *out)
{
	trail("%s: wait for %s of %#llx", en->name, verdict_event(kind),
	      (unsigned long long)object);
	expect_as("V7", engine_try_wait(en, kind, object, out), "no event %s came for %#llx",
		  verdict_event(kind), (unsigned long long)object);
}

void engine_settle(void)
{
	unsigned int round;

	for (round = 0; round < 60; round++) {
		if (engine_pump())
			round = 0;
		patience_idle(round);
	}
}

uint32_t engine_state(struct engine *en)
{
	struct escrow_limits limits = {.size = sizeof(limits)};

	expect_status_as("G2", en->o->query(en->e, &limits), ESCROW_OK);
	return limits.state;
}

bool engine_can(const struct engine *en, uint64_t caps)
{
	return (en->limits.caps & caps) == caps;
}

unsigned int engine_end(struct engine *en, uint32_t mode)
{
	uint64_t end = patience_end();
	escrow_status status = en->o->close(en->e, 0, mode);
	unsigned int round = 0;

	trail("%s: close(%u): %s", en->name, mode, verdict_status(status));
	expect_as("CL1",
		  status == ESCROW_IN_PROGRESS ||
			  (status == ESCROW_OK && engine_state(en) == ESCROW_STATE_CLOSED),
		  "close gives %s, not IN_PROGRESS", verdict_status(status));
	while (!en->closed && !en->quarantined) {
		if (engine_pump()) {
			round = 0;
			continue;
		}
		expect_as("CL1", !patience_over(end),
			  "neither CLOSED nor QUARANTINED came after close");
		let_time_pass(round);
		patience_idle(round++);
	}
	return en->closed ? ESCROW_EV_CLOSED : ESCROW_EV_QUARANTINED;
}

void engine_release(struct engine *en)
{
	uint32_t i;

	trail("%s: release", en->name);
	en->o->release(en->e);
	for (i = 0; i < ENGINES; i++)
		if (engines[i] == en)
			engines[i] = NULL;
	en->e = NULL;
	released = en;
}

void engine_close(struct engine *en)
{
	expect_as("CL2", engine_end(en, ESCROW_CLOSE_GRACEFUL) == ESCROW_EV_CLOSED,
		  "close without a fault ends in quarantine");
	engine_release(en);
}
