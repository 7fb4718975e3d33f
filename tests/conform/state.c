/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ESC-STATE: executes abi/states.tsv.  In each state every slot is called; where the table says "-"
 * the answer must be E_STATE and the state must stay, where it says "y" the answer must be another.
 */
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/reach.h"

/* A row of the table: slot, and a letter for each state. */
struct state_row {
	const char *slot;
	const char *legal;
};

static const struct state_row state_table[] = {
#include "tests/conform/states.inc"
};

/* What the calls use: made before the state is entered. */
struct world {
	struct reach *r;
	struct engine *en;
	struct memory spare;
	uint8_t exported[GRANT_ROOM];
	uint64_t exported_len;
};

struct state_call {
	const char *slot;
	/* The slot with arguments that are good where it is illegal; `harmless` where it is legal. */
	escrow_status (*call)(struct world *w, bool harmless);
};

static uint64_t pick(uint64_t handle, bool harmless)
{
	return harmless ? UINT64_C(0x7ffffffffffffff1) : handle;
}

static escrow_status call_query(struct world *w, bool harmless)
{
	struct escrow_limits limits = {.size = sizeof(limits)};

	return w->en->o->query(w->en->e, &limits);
}

static escrow_status call_register(struct world *w, bool harmless)
{
	static uint8_t bytes[4096];
	struct escrow_region_args args = {
		.size = sizeof(args),
		.addr = bytes,
		.length = harmless ? 0 : sizeof(bytes),
		.memory_kind = ESCROW_MEMORY_HOST,
		.dmabuf_fd = -1,
	};
	uint64_t region;

	return engine_region(w->en, &args, &region);
}

static escrow_status call_deregister(struct world *w, bool harmless)
{
	return w->en->o->deregister_memory(w->en->e, pick(w->spare.region, harmless), 0);
}

static escrow_status call_invite(struct world *w, bool harmless)
{
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = "guest"};
	uint8_t buf[INVITATION_ROOM];
	uint64_t len = harmless ? 0 : sizeof(buf);

	return engine_invite(w->en, &args, buf, &len);
}

static escrow_status call_connect(struct world *w, bool harmless)
{
	struct escrow_peer_args args = {
		.size = sizeof(args),
		.peer_name = "late",
		.invitation = w->r->invitation,
		.invitation_len = harmless ? 1 : w->r->invitation_len,
	};
	uint64_t peer;

	return engine_connect(w->en, &args, &peer);
}

static escrow_status call_disconnect(struct world *w, bool harmless)
{
	return w->en->o->disconnect(w->en->e, pick(w->r->pair.a_peer, harmless), 0);
}

static escrow_status call_peer_info(struct world *w, bool harmless)
{
	struct escrow_peer_info info = {.size = sizeof(info)};

	return w->en->o->peer_info(w->en->e, pick(w->r->pair.a_peer, harmless), &info);
}

static escrow_status call_grant(struct world *w, bool harmless)
{
	struct escrow_grant_args args = {
		.size = sizeof(args),
		.rights = ESCROW_MAY_READ,
		.peer = w->r->pair.a_peer,
		.region = pick(w->r->lent.mem.region, harmless),
		.length = 4096,
	};
	uint64_t grant;

	return engine_grant(w->en, &args, &grant);
}

static escrow_status call_export(struct world *w, bool harmless)
{
	uint64_t len = 0;

	return w->en->o->export_grant(w->en->e, pick(w->r->lent.grant, harmless), NULL, &len);
}

static escrow_status call_revoke(struct world *w, bool harmless)
{
	return w->en->o->revoke(w->en->e, pick(w->r->lent.grant, harmless), 0);
}

static escrow_status call_import(struct world *w, bool harmless)
{
	uint64_t remote;

	return engine_import(w->en, pick(w->r->pair.a_peer, harmless), w->exported, w->exported_len,
			     0, &remote);
}

static escrow_status call_forget(struct world *w, bool harmless)
{
	return w->en->o->forget_grant(w->en->e, pick(w->r->used.remote, harmless));
}

static escrow_status call_transfer(struct world *w, bool harmless)
{
	struct escrow_op op = {
		.remote = pick(w->r->used.remote, harmless),
		.opcode = ESCROW_READ,
	};
	uint64_t id;

	return engine_transfer(w->en, &op, 1, &id);
}

static escrow_status call_cancel(struct world *w, bool harmless)
{
	return w->en->o->cancel(w->en->e, pick(1, harmless), 0);
}

static escrow_status call_poll(struct world *w, bool harmless)
{
	struct escrow_event ev;

	return w->en->o->poll(w->en->e, &ev, 0, sizeof(ev), 0) == 0 ? ESCROW_OK : ESCROW_E_STATE;
}

static escrow_status call_event_fd(struct world *w, bool harmless)
{
	int32_t fd;

	if (!engine_can(w->en, ESCROW_CAP_EVENT_FD))
		return ESCROW_E_UNSUPPORTED;
	fd = w->en->o->event_fd(w->en->e);
	return fd >= 0 ? ESCROW_OK : fd;
}

static escrow_status call_arm(struct world *w, bool harmless)
{
	if (!engine_can(w->en, ESCROW_CAP_EVENT_FD))
		return harmless ? ESCROW_E_UNSUPPORTED : ESCROW_E_STATE;
	return w->en->o->arm(w->en->e, 0);
}

static escrow_status call_quiesce(struct world *w, bool harmless)
{
	return w->en->o->quiesce(w->en->e, 0);
}

static escrow_status call_resume(struct world *w, bool harmless)
{
	return w->en->o->resume(w->en->e, 0);
}

static escrow_status call_drain(struct world *w, bool harmless)
{
	return w->en->o->drain(w->en->e, 0, 0, 0);
}

static escrow_status call_close(struct world *w, bool harmless)
{
	return w->en->o->close(w->en->e, 0, ESCROW_CLOSE_GRACEFUL);
}

static escrow_status call_charges(struct world *w, bool harmless)
{
	int32_t n;

	if (!engine_can(w->en, ESCROW_CAP_LEDGER))
		return ESCROW_E_UNSUPPORTED;
	n = w->en->o->charges(w->en->e, NULL, 0, sizeof(struct escrow_charge));
	return n >= 0 ? ESCROW_OK : n;
}

static escrow_status call_records(struct world *w, bool harmless)
{
	struct escrow_record record;
	uint64_t cursor = 0;
	int32_t n;

	if (!engine_can(w->en, ESCROW_CAP_LEDGER))
		return ESCROW_E_UNSUPPORTED;
	n = w->en->o->records(w->en->e, &cursor, &record, 1, sizeof(record));
	return n >= 0 ? ESCROW_OK : n;
}

static escrow_status call_get_extension(struct world *w, bool harmless)
{
	if (w->en->o->get_extension)
		w->en->o->get_extension(w->en->e, "org.example.none/1");
	return ESCROW_OK;
}

/* release has no status: where it is illegal it logs, and the engine is still there (CL5). */
static escrow_status call_release(struct world *w, bool harmless)
{
	uint64_t before = atomic_load(&w->en->host->misuses);

	if (harmless)
		return ESCROW_OK; /* done when the case ends */
	w->en->o->release(w->en->e);
	expect_as("CL5", atomic_load(&w->en->host->misuses) > before,
		  "an illegal release was not logged as HOST_MISBEHAVES");
	return ESCROW_E_STATE;
}

static const struct state_call calls[] = {
	{"release", call_release},
	{"query", call_query},
	{"register_memory", call_register},
	{"deregister_memory", call_deregister},
	{"invite", call_invite},
	{"connect", call_connect},
	{"disconnect", call_disconnect},
	{"peer_info", call_peer_info},
	{"grant", call_grant},
	{"export_grant", call_export},
	{"revoke", call_revoke},
	{"import_grant", call_import},
	{"forget_grant", call_forget},
	{"transfer", call_transfer},
	{"cancel", call_cancel},
	{"poll", call_poll},
	{"event_fd", call_event_fd},
	{"arm", call_arm},
	{"charges", call_charges},
	{"records", call_records},
	{"get_extension", call_get_extension},
	/* these leave the state, so each has an engine of its own */
	{"quiesce", call_quiesce},
	{"resume", call_resume},
	{"drain", call_drain},
	{"close", call_close},
};
#define FIRST_LEAVING 21u
#define CALLS (sizeof(calls) / sizeof(calls[0]))

static bool is_legal(const char *slot, uint32_t state)
{
	size_t i;

	for (i = 0; i < sizeof(state_table) / sizeof(state_table[0]); i++)
		if (!strcmp(state_table[i].slot, slot))
			return state_table[i].legal[state - 1] == 'y';
	verdict_broken("abi/states.tsv has no slot %s", slot);
}

static void check_call(struct world *w, const struct state_call *k, uint32_t state)
{
	bool legal = is_legal(k->slot, state);
	uint32_t before = engine_state(w->en), after;
	escrow_status got;

	/* A closing engine may come to its end at any moment; only a call inside counts. */
	if (before != state && state == ESCROW_STATE_CLOSING)
		return;
	expect_as("G2", before == state, "%s: the state is %u, not %u", k->slot, before, state);
	trail("state %u: %s, %s", state, k->slot, legal ? "legal" : "illegal");
	got = k->call(w, legal);
	after = engine_state(w->en);
	if (after != state && state == ESCROW_STATE_CLOSING)
		return;
	if (!legal) {
		expect(got == ESCROW_E_STATE, "%s in state %u gives %s, not E_STATE", k->slot,
		       state, verdict_status(got));
		expect(after == state, "%s in state %u led to state %u", k->slot, state, after);
	} else {
		expect(got != ESCROW_E_STATE, "%s in state %u gives E_STATE, and is legal there",
		       k->slot, state);
		expect_as("E1", engine_is_status(got), "%s gives %d, which is no status", k->slot,
			  got);
	}
}

static void make_world(struct world *w, struct reach *r)
{
	memset(w, 0, sizeof(*w));
	w->r = r;
	w->en = r->pair.a;
	memory_register(w->en, &w->spare, 4096);
	memcpy(w->exported, r->exported, r->exported_len);
	w->exported_len = r->exported_len;
}

/* In a fresh engine that is brought into the state: all calls, or the one given. */
static void check_calls(struct conform *c, uint32_t state, const struct state_call *only)
{
	static struct reach r;
	static struct world w;
	size_t i;

	reach_open(&r, c);
	make_world(&w, &r);
	reach_state(&r, state);
	if (only)
		check_call(&w, only, state);
	for (i = 0; !only && i < CALLS; i++)
		if (i < FIRST_LEAVING || !is_legal(calls[i].slot, state))
			check_call(&w, &calls[i], state);
	reach_close(&r);
}

static void check_state(struct conform *c, uint32_t state)
{
	size_t i;

	check_calls(c, state, NULL);
	for (i = FIRST_LEAVING; i < CALLS; i++)
		if (is_legal(calls[i].slot, state))
			check_calls(c, state, &calls[i]);
}

static void in_open(struct conform *c)
{
	check_state(c, ESCROW_STATE_OPEN);
}

static void in_quiesced(struct conform *c)
{
	check_state(c, ESCROW_STATE_QUIESCED);
}

static void in_draining(struct conform *c)
{
	check_state(c, ESCROW_STATE_DRAINING);
}

static void in_drained(struct conform *c)
{
	check_state(c, ESCROW_STATE_DRAINED);
}

static void in_closing(struct conform *c)
{
	check_state(c, ESCROW_STATE_CLOSING);
}

static void in_quarantined(struct conform *c)
{
	check_state(c, ESCROW_STATE_QUARANTINED);
}

static void in_failed(struct conform *c)
{
	check_state(c, ESCROW_STATE_FAILED);
}

static void in_closed(struct conform *c)
{
	check_state(c, ESCROW_STATE_CLOSED);
}

static const struct conform_case cases[] = {
	{"ESC-STATE-001", "core", "G3 G2 CL5", 0, NEED_MISUSE, "every slot in OPEN", in_open},
	{"ESC-STATE-002", "core", "G3 G2 CL5", 0, NEED_MISUSE, "every slot in QUIESCED",
	 in_quiesced},
	{"ESC-STATE-003", "fault", "G3 G2", 0, NEED_MISUSE | NEED_FAULTS, "every slot in DRAINING",
	 in_draining},
	{"ESC-STATE-004", "core", "G3 G2", 0, NEED_MISUSE, "every slot in DRAINED", in_drained},
	{"ESC-STATE-005", "core", "G3 G2", 0, NEED_MISUSE, "every slot in CLOSING", in_closing},
	{"ESC-STATE-006", "fault", "G3 G2 Q5", 0, NEED_MISUSE | NEED_FAULTS,
	 "every slot in QUARANTINED", in_quarantined},
	{"ESC-STATE-007", "fault", "G3 G2", 0, NEED_MISUSE | NEED_FAULTS, "every slot in FAILED",
	 in_failed},
	{"ESC-STATE-008", "core", "G3 G2", 0, NEED_MISUSE, "every slot in CLOSED", in_closed},
};

CONFORM_AREA(area_state, cases);
