/* SPDX-License-Identifier: BSD-2-Clause */
/* What the source and the requester do, up to the teardown. */
#include "config.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>

#include "tests/gates/gate.h"
#include "tools/demo.h"
#include "tools/json.h"

#define ROUNDS_FRESH 2u

void role_plan(const struct gate_end *end)
{
	const struct gate_case *c = end->set;
	struct observer_plan p = {.failure = c->failure};
	int debt = gate_debt_rail(c);

	if (!end->faulted)
		return;
	if (gate_on_mock(c)) {
		const struct escrow_ops *slots;

		if (end->faults->plan(escrow_backend_engine(end->engine, &slots),
				      "close_device=fail:5", NULL) != ESCROW_OK)
			end_fail(end, "the mock plays no close_device");
		return;
	}
	if (c->failure == OBSERVER_DEREG_MR)
		p.addr = end->memory;
	g_strlcpy(p.fail_on, gate_device(c->rail), sizeof(p.fail_on));
	if (debt >= 0)
		g_strlcpy(p.withhold_on, gate_device((uint32_t)debt), sizeof(p.withhold_on));
	p.withhold = c->source ? OBSERVER_INVALIDATE : c->write ? OBSERVER_WRITE : OBSERVER_READ;
	/* Some parents are done before. */
	p.skip = c->source ? 0 : 3;
	observer_plan(&p);
}

/* For the fresh process that comes after: each end keeps its own, for the other may be on another host. */
static void keep(const struct gate_end *end, const char *what, const void *bytes, uint64_t len)
{
	g_autofree char *path = g_strdup_printf("%s/%s", end->folder, what);

	if (!end->fresh && !g_file_set_contents(path, bytes, (gssize)len, NULL))
		end_fail(end, "cannot write %s", path);
}

/* ---- Source -------------------------------------------------------------------------------------------- */
static void invite(struct gate_end *end)
{
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = "requester"};
	uint8_t bytes[8192];
	uint64_t len = sizeof(bytes);

	if (escrow_invite(end->engine, &args, bytes, &len) != ESCROW_OK)
		end_fail(end, "invite");
	keep(end, "invitation", bytes, len);
	end_say(end, GATE_INVITATION, 0, bytes, (uint32_t)len);
}

static void grant(struct gate_end *end)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_grant_args args = {
		.size = sizeof(args),
		.rights = end->set->write ? ESCROW_MAY_WRITE : ESCROW_MAY_READ,
		.peer = end->peer,
		.region = end->region,
		.offset = GATE_GUARD,
		.length = GATE_PAYLOAD,
	};
	uint8_t bytes[8192];
	uint64_t len = sizeof(bytes);

	if (escrow_grant(end->engine, &args, &end->object, &error) < 0)
		end_fail(end, "grant: %s", error.text);
	end_wait(end, ESCROW_EV_GRANT_READY);
	if (escrow_export_grant(end->engine, end->object, bytes, &len) != ESCROW_OK)
		end_fail(end, "export_grant");
	keep(end, "grant", bytes, len);
	end_say(end, GATE_GRANT, 0, bytes, (uint32_t)len);
}

bool role_serve(struct gate_end *end, bool *right)
{
	static struct demo_message m;
	int n;

	while ((n = demo_receive(end->channel, &m)) == 0)
		end_turn(end);
	if (n < 0 || m.word == GATE_OVER)
		return false;
	if (m.word != GATE_MOVED)
		end_fail(end, "word %u", m.word);
	*right = *right && demo_check(end->memory + GATE_GUARD, GATE_PAYLOAD, m.number) &&
		 end_guards(end);
	/* What the next READ finds is something else. */
	if (!end->set->write)
		demo_fill(end->memory + GATE_GUARD, GATE_PAYLOAD, m.number + 1);
	end_say(end, GATE_SEEN, *right, NULL, 0);
	return true;
}

void role_lend(struct gate_end *end)
{
	invite(end);
	end_wait(end, ESCROW_EV_PEER_UP);
	grant(end);
}

void role_owe(struct gate_end *end)
{
	if (gate_debt_rail(end->set) < 0)
		return;
	if (escrow_revoke(end->engine, end->object) < 0)
		end_fail(end, "revoke");
	do {
		end_turn(end);
		observer_state(&end->settled);
	} while (!end->settled.withheld || end->settled.outstanding);
}

static void drain(struct gate_end *end)
{
	escrow_status st = escrow_quiesce(end->engine);

	if (st == ESCROW_OK)
		st = escrow_drain(end->engine, 0, 0);
	if (st < 0)
		end_fail(end, "drain: %s", escrow_status_name(st));
	while (!end->seen[ESCROW_EV_DRAINED])
		end_turn(end);
	json_add_bool(end->facts, "drained", true);
}

void gate_source(struct gate_end *end)
{
	bool right = true;

	end_open(end);
	role_plan(end);
	if (!end->set->write)
		demo_fill(end->memory + GATE_GUARD, GATE_PAYLOAD, 1);
	invite(end);
	if (end->fresh) {
		if (!end_hear(end, GATE_QPS))
			end_fail(end, "the requester is gone");
		end_say(end, GATE_QPS, end_qps(end), NULL, 0);
	}
	end_wait(end, ESCROW_EV_PEER_UP);
	grant(end);
	while (role_serve(end, &right))
		;
	json_add_bool(end->facts, "right", right);
	if (end->faulted) {
		role_owe(end);
		teardown(end);
		teardown_prove(end);
		return;
	}
	if (end->fresh)
		drain(end);
	end_close(end);
}

/* ---- Requester ------------------------------------------------------------------------------------------- */
void role_join(struct gate_end *end)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "source"};
	struct escrow_remote_args remote = {.size = sizeof(remote)};
	struct demo_message *m = end_hear(end, GATE_INVITATION);
	escrow_status st;

	if (!m)
		end_fail(end, "the source is gone");
	keep(end, "invitation", m->bytes, m->len);
	if (end->fresh)
		fresh_stale_invitation(end, m);
	args.invitation = m->bytes;
	args.invitation_len = m->len;
	if (escrow_connect(end->engine, &args, &end->peer, &error) < 0)
		end_fail(end, "connect: %s", error.text);
	end_wait(end, ESCROW_EV_PEER_UP);
	if (end->fresh)
		fresh_stale_grant(end);
	m = end_hear(end, GATE_GRANT);
	if (!m)
		end_fail(end, "the source is gone");
	keep(end, "grant", m->bytes, m->len);
	remote.peer = end->peer;
	remote.bytes = m->bytes;
	remote.len = m->len;
	st = escrow_import_grant(end->engine, &remote, &end->object, &error);
	if (st < 0)
		end_fail(end, "import_grant: %s", error.text);
	if (st == ESCROW_IN_PROGRESS)
		end_wait(end, ESCROW_EV_REMOTE_READY);
}

bool role_move(struct gate_end *end, uint64_t pattern)
{
	uint8_t *payload = end->memory + GATE_GUARD;
	struct demo_message *m;
	bool right = true;

	if (end->set->write)
		demo_fill(payload, GATE_PAYLOAD, pattern);
	else
		memset(payload, 0, GATE_PAYLOAD);
	end_submit(end);
	while (!end_ops_done(end))
		end_turn(end);
	for (uint32_t i = 0; i < GATE_PARENTS; i++)
		right = right && end->ops[i].status == ESCROW_OK;
	right = right && demo_check(payload, GATE_PAYLOAD, pattern) && end_guards(end);
	end_say(end, GATE_MOVED, pattern, NULL, 0);
	m = end_hear(end, GATE_SEEN);
	return right && m && m->number == 1;
}

/* ---- The faulted requester: its parents are under way, and one completion does not come ---------------------- */
static sigjmp_buf after_fault;

static void on_fault(int sig)
{
	siglongjmp(after_fault, sig);
}

/* A store through the lent pages, as a host that does not ask would make it: is it refused? */
static bool store_faults(uint8_t *at)
{
	struct sigaction act = {.sa_handler = on_fault}, old;
	bool faults = true;

	sigaction(SIGSEGV, &act, &old);
	if (sigsetjmp(after_fault, 1) == 0) {
		uint8_t same = *(volatile uint8_t *)at;

		*(volatile uint8_t *)at = same;
		faults = false;
	}
	sigaction(SIGSEGV, &old, NULL);
	return faults;
}

void role_start(struct gate_end *end)
{
	struct observer_state *state = &end->settled;
	JsonBuilder *facts = end->facts;

	if (end->set->write)
		demo_fill(end->memory + GATE_GUARD, GATE_PAYLOAD, 1);
	end_submit(end);
	/* Until the device has done all, and everything that is given out was taken. */
	do {
		while (end_turn(end))
			;
		observer_state(state);
	} while (state->outstanding || (state->owed == 0 && !end_ops_done(end)) ||
		 (gate_debt_rail(end->set) >= 0 && !state->withheld));
	while (end_turn(end))
		;
	if (!end->set->write)
		return;
	json_builder_set_member_name(facts, "store_faults");
	json_builder_begin_array(facts);
	for (uint32_t i = 0; i < GATE_PARENTS; i++)
		json_builder_add_boolean_value(facts, store_faults(end->memory + GATE_GUARD +
								   GATE_PARENT_BYTES * i +
								   GATE_SLICE_BYTES));
	json_builder_end_array(facts);
}

void gate_requester(struct gate_end *end)
{
	bool right = true;

	end_open(end);
	role_plan(end);
	role_join(end);
	if (end->faulted) {
		role_start(end);
		teardown(end);
		teardown_prove(end);
		end_say(end, GATE_OVER, 0, NULL, 0);
		return;
	}
	for (uint32_t i = 1; i <= (end->fresh ? ROUNDS_FRESH : 1); i++)
		right = role_move(end, i) && right;
	json_add_bool(end->facts, "right", right);
	end_say(end, GATE_OVER, 0, NULL, 0);
	if (!end->fresh)
		end_wait(end, ESCROW_EV_PEER_DOWN);
	else
		drain(end);
	end_close(end);
}
