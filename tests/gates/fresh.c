/* SPDX-License-Identifier: BSD-2-Clause */
/* What a fresh process does with what the dead one had given out: it gets nowhere, and early. */
#include "config.h"

#include <string.h>

#include "backends/engine/wire.h"
#include "tests/gates/gate.h"
#include "tools/demo.h"
#include "tools/json.h"

static void old_bytes(const struct gate_end *end, const char *what, char **bytes, gsize *len)
{
	g_autofree char *path = g_strdup_printf("%s/%s", end->folder, what);

	if (!g_file_get_contents(path, bytes, len, NULL))
		end_fail(end, "cannot read %s", path);
}

/*
 * The old invitation, as if its source still listened where the fresh one does: a listener's port is the
 * kernel's choice, and there must be somebody to refuse it.
 */
static uint32_t at_new_addresses(const struct gate_end *end, const struct demo_message *now,
				 uint8_t *out)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct wire_invitation before, after;
	const char *id = gate_on_mock(end->set) ? "mock" : "rdma";
	g_autofree char *bytes = NULL;
	gsize len;

	old_bytes(end, "invitation", &bytes, &len);
	if (wire_invitation_get((uint8_t *)bytes, len, id, &before, &error) < 0 ||
	    wire_invitation_get(now->bytes, now->len, id, &after, &error) < 0)
		end_fail(end, "invitation: %s", error.text);
	memcpy(before.address, after.address, sizeof(before.address));
	wire_invitation_put(&before, out);
	return wire_invitation_bytes(before.nrails);
}

void fresh_stale_invitation(struct gate_end *end, const struct demo_message *invitation)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "source"};
	g_autofree struct demo_message *fresh = g_memdup2(invitation, sizeof(*invitation));
	uint8_t bytes[8192];
	struct demo_message *m;

	args.invitation = bytes;
	args.invitation_len = at_new_addresses(end, invitation, bytes);
	if (escrow_connect(end->engine, &args, &end->peer, &error) < 0)
		end_fail(end, "connect with the old invitation: %s", error.text);
	while (!end->seen[ESCROW_EV_PEER_DOWN])
		end_turn(end);
	json_add_string(end->facts, "old_invitation", escrow_status_name(end->down));
	json_add_bool(end->facts, "old_peer_up", end->seen[ESCROW_EV_PEER_UP] > 0);
	end->seen[ESCROW_EV_PEER_DOWN] = 0;
	end_say(end, GATE_QPS, 0, NULL, 0);
	m = end_hear(end, GATE_QPS);
	json_add_number(end->facts, "source_qps_before", m ? m->number : UINT32_MAX);
	/* What was heard is in the place that the next word takes. */
	memcpy((void *)(uintptr_t)invitation, fresh, sizeof(*fresh));
}

void fresh_stale_grant(struct gate_end *end)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_remote_args remote = {.size = sizeof(remote), .peer = end->peer};
	uint32_t before;
	g_autofree char *bytes = NULL;
	uint64_t object;
	gsize len;

	old_bytes(end, "grant", &bytes, &len);
	remote.bytes = bytes;
	remote.len = len;
	before = end_qps(end);
	json_add_string(
		end->facts, "old_grant",
		escrow_status_name(escrow_import_grant(end->engine, &remote, &object, &error)));
	json_add_number(end->facts, "qps_for_old_grant", end_qps(end) - before);
}
