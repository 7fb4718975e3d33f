/* SPDX-License-Identifier: BSD-2-Clause */
/* The end that lends: it invites, grants its payload, checks what was written, and takes it back. */
#include "config.h"

#include <string.h>

#include "tools/demo.h"
#include "tools/tool.h"

static bool failed(const char *what, escrow_status status)
{
	tool_complain("source: %s: %s", what, escrow_status_name(status));
	return false;
}

static bool invite(struct demo_end *end, struct demo_message *m)
{
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = "requester"};
	uint64_t len = sizeof(m->bytes);
	escrow_status status = escrow_invite(end->engine, &args, m->bytes, &len);

	if (status != ESCROW_OK)
		return failed("invite", status);
	return demo_send(end->channel, DEMO_INVITATION, 0, m->bytes, (uint32_t)len) ||
	       failed("invite: the requester went away", ESCROW_E_PEER_LOST);
}

static bool grant(struct demo_end *end, struct demo_message *m)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_grant_args args = {
		.size = sizeof(args),
		.rights = ESCROW_MAY_READ | ESCROW_MAY_WRITE,
		.peer = end->peer,
		.region = end->region,
		.offset = DEMO_GUARD,
		.length = end->payload,
	};
	uint64_t len = sizeof(m->bytes);
	escrow_status status = escrow_grant(end->engine, &args, &end->object, &error);

	if (status < 0) {
		tool_complain("source: grant: %s", error.text);
		return false;
	}
	if (!demo_wait(end, ESCROW_EV_GRANT_READY, NULL))
		return false;
	status = escrow_export_grant(end->engine, end->object, m->bytes, &len);
	if (status != ESCROW_OK)
		return failed("export_grant", status);
	return demo_send(end->channel, DEMO_GRANT, end->payload, m->bytes, (uint32_t)len) ||
	       failed("grant: the requester went away", ESCROW_E_PEER_LOST);
}

bool demo_source_part(struct demo_end *end)
{
	escrow_status status = escrow_revoke(end->engine, end->object);

	if (status < 0)
		return failed("revoke", status);
	if (!demo_wait(end, ESCROW_EV_GRANT_REVOKED, NULL))
		return false;
	return demo_send(end->channel, DEMO_REVOKED, 0, NULL, 0) ||
	       failed("revoke: the requester went away", ESCROW_E_PEER_LOST);
}

/* What the requester asks for, until it asks to take the grant back. */
static bool serve(struct demo_end *end, struct demo_message *m, char **ledger)
{
	uint8_t *payload = end->memory + DEMO_GUARD;
	int n;

	for (;;) {
		demo_wait_begins();
		while ((n = demo_receive(end->channel, m)) == 0) {
			struct escrow_event e;

			demo_hearing_goes_on(end, DEMO_CHECK);
			/* A backend without threads serves its peers when it is polled. */
			if (escrow_poll(end->engine, &e, 1) > 0 && e.kind == ESCROW_EV_PEER_LOST)
				return failed("the requester is lost", e.status);
		}
		if (n > 0 && m->word == DEMO_REVOKE) {
			*ledger = demo_ledger();
			return demo_source_part(end);
		}
		if (n < 0 || m->word != DEMO_CHECK) {
			tool_complain("source: the other end %s", demo_end_did(n));
			return false;
		}
		if (!demo_send(end->channel, DEMO_CHECKED,
			       demo_check(payload, end->payload, m->number) &&
				       demo_guards_intact(end),
			       NULL, 0))
			return failed("check: the requester went away", ESCROW_E_PEER_LOST);
	}
}

bool demo_source_meet(struct demo_end *end, struct demo_message *m)
{
	struct escrow_event up;

	if (!invite(end, m) || !demo_wait(end, ESCROW_EV_PEER_UP, &up))
		return false;
	end->peer = up.object;
	return grant(end, m);
}

/* The grant stands from the first to the last; false: it did not come so far. */
static bool lend(struct demo_end *end, struct demo_message *m, char **ledger)
{
	if (!demo_end_open(end))
		return false;
	demo_fill(end->memory + DEMO_GUARD, end->payload, 1);
	return demo_source_meet(end, m) && serve(end, m, ledger);
}

bool demo_source(struct demo_end *end)
{
	g_autofree struct demo_message *m = g_new0(struct demo_message, 1);
	g_autofree char *ledger = NULL;
	bool clean;

	if (!lend(end, m, &ledger))
		return demo_end_abandon(end);
	clean = demo_end_close(end);
	return demo_send(end->channel, DEMO_LEDGER, clean, ledger,
			 ledger ? (uint32_t)MIN(strlen(ledger), sizeof(m->bytes)) : 0) &&
	       clean;
}
