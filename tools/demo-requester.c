/* SPDX-License-Identifier: BSD-2-Clause */
/* The end that borrows: it reads the peer's payload, writes it, and has every byte checked. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/demo.h"
#include "tools/names.h"
#include "tools/tool.h"

/* The parents of one phase that are under way; one phase at a time in a process. */
static struct {
	int submitted, done, failed;
	struct escrow_event worst;
} phase;

static bool connect_to(struct demo_end *end, struct demo_message *m)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "source"};
	escrow_status status;

	if (!demo_hear(end, DEMO_INVITATION, m))
		return false;
	args.invitation = m->bytes;
	args.invitation_len = m->len;
	status = escrow_connect(end->engine, &args, &end->peer, &error);
	if (status < 0) {
		tool_complain("requester: connect: %s", error.text);
		return false;
	}
	return demo_wait(end, ESCROW_EV_PEER_UP, NULL);
}

static bool import(struct demo_end *end, struct demo_message *m)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_remote_args args = {.size = sizeof(args), .peer = end->peer};
	escrow_status status;

	if (!demo_hear(end, DEMO_GRANT, m))
		return false;
	if (m->number != end->payload) {
		tool_complain("requester: the source lends %" PRIu64
			      " bytes, and --parents x --bytes are "
			      "%" PRIu64 " here: both ends need the same",
			      m->number, end->payload);
		return false;
	}
	args.bytes = m->bytes;
	args.len = m->len;
	status = escrow_import_grant(end->engine, &args, &end->object, &error);
	if (status == ESCROW_IN_PROGRESS)
		return demo_wait(end, ESCROW_EV_REMOTE_READY, NULL);
	if (status < 0)
		tool_complain("requester: import_grant: %s", error.text);
	return status == ESCROW_OK;
}

bool demo_requester_meet(struct demo_end *end, struct demo_message *m)
{
	return connect_to(end, m) && import(end, m);
}

static bool count_done(struct demo_end *end, const struct escrow_event *e)
{
	if (e->kind == ESCROW_EV_PEER_LOST || e->kind == ESCROW_EV_DEVICE) {
		tool_complain("requester: the source is lost");
		return false;
	}
	if (e->kind != ESCROW_EV_OP_DONE)
		return true;
	phase.done++;
	demo_wait_begins();
	if (e->status != ESCROW_OK || e->custody != ESCROW_CUSTODY_RETURNED) {
		phase.failed++;
		phase.worst = *e;
	}
	if (end->set->progress)
		fprintf(stderr, "\r%3d of %d parents ", phase.done, end->set->parents);
	return true;
}

/* A refusal by a limit or a quota, with what was asked for and what is allowed. */
static void tell_refusal(const struct demo_end *end, escrow_status status)
{
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_charge charges[64];
	int32_t n = escrow_charges(end->engine, charges, G_N_ELEMENTS(charges));
	const char *name = escrow_status_name(status);

	if (status == ESCROW_E_LIMIT && escrow_query(end->engine, &limits) == ESCROW_OK)
		tool_complain("requester: transfer: %s: an op of %" PRId64
			      " bytes; max_op_bytes is %" PRIu64,
			      name, (int64_t)end->set->parent_bytes, limits.max_op_bytes);
	else
		tool_complain("requester: transfer: %s", name);
	for (int32_t i = 0; status == ESCROW_E_QUOTA && i < MIN(n, (int32_t)G_N_ELEMENTS(charges));
	     i++)
		if (charges[i].used >= charges[i].limit)
			tool_complain("requester: used up: %s%s%s, %" PRIu64 " of %" PRIu64,
				      name_of_charge(charges[i].kind),
				      charges[i].peer_name[0] ? " of " : "", charges[i].peer_name,
				      charges[i].used, charges[i].limit);
}

static bool submit(struct demo_end *end, uint32_t opcode)
{
	uint64_t bytes = (uint64_t)end->set->parent_bytes;
	struct escrow_sge sge = {end->region, DEMO_GUARD + bytes * (uint64_t)phase.submitted,
				 bytes};
	struct escrow_op op = {
		.user = (uint64_t)phase.submitted,
		.remote = end->object,
		.remote_offset = bytes * (uint64_t)phase.submitted,
		.opcode = opcode,
		.nsge = 1,
		.sge = &sge,
	};
	uint64_t id;
	int32_t n = escrow_transfer(end->engine, &op, 1, sizeof(op), 0, &id);

	if (n == 1)
		phase.submitted++;
	else if (n != ESCROW_E_AGAIN)
		tell_refusal(end, n);
	return n == 1 || n == ESCROW_E_AGAIN;
}

/* All parents once; the seconds it took, or < 0. */
static double run_phase(struct demo_end *end, uint32_t opcode)
{
	gint64 start = g_get_monotonic_time();

	memset(&phase, 0, sizeof(phase));
	demo_wait_begins();
	while (phase.done < end->set->parents) {
		demo_wait_goes_on(end, "its transfers");
		if (phase.submitted < end->set->parents && !submit(end, opcode))
			return -1;
		if (!demo_turn(end, count_done) || tool_output_lost())
			return -1;
	}
	if (end->set->progress)
		fprintf(stderr, "\r                      \r");
	if (!phase.failed)
		return (double)(g_get_monotonic_time() - start) / 1e6;
	tool_complain("requester: %d of %d parents failed, the last with %s", phase.failed,
		      end->set->parents, escrow_status_name(phase.worst.status));
	return -1;
}

/* Clears the own memory, reads, and checks that every byte is the source's. */
static bool read_round(struct demo_end *end, uint64_t pattern, struct demo_result *result)
{
	uint8_t *payload = end->memory + DEMO_GUARD;
	double seconds;

	memset(payload, 0, end->payload);
	seconds = run_phase(end, ESCROW_READ);
	if (seconds < 0)
		return false;
	result->read_seconds += seconds;
	result->read_bytes += end->payload;
	result->ops += (uint64_t)end->set->parents;
	if (!demo_check(payload, end->payload, pattern) || !demo_guards_intact(end)) {
		tool_complain("requester: what was read is not what the source has");
		result->bytes_right = false;
	}
	return result->bytes_right;
}

static bool write_round(struct demo_end *end, uint64_t pattern, struct demo_message *m,
			struct demo_result *result)
{
	double seconds;

	demo_fill(end->memory + DEMO_GUARD, end->payload, pattern);
	seconds = run_phase(end, ESCROW_WRITE);
	if (seconds < 0)
		return false;
	result->write_seconds += seconds;
	result->write_bytes += end->payload;
	result->ops += (uint64_t)end->set->parents;
	if (!demo_send(end->channel, DEMO_CHECK, pattern, NULL, 0)) {
		tool_complain("requester: the source is gone before it could check");
		return false;
	}
	if (!demo_hear(end, DEMO_CHECKED, m))
		return false;
	if (!m->number || !demo_guards_intact(end)) {
		tool_complain("requester: what the source has is not what was written");
		result->bytes_right = false;
	}
	return result->bytes_right;
}

static bool move(struct demo_end *end, struct demo_message *m, struct demo_result *result)
{
	bool reads = strcmp(end->set->op, "write") != 0;
	bool writes = strcmp(end->set->op, "read") != 0;
	uint64_t pattern = 1; /* what the source started with */

	for (int i = 0; i < end->set->rounds; i++) {
		if (reads && !read_round(end, pattern, result))
			return false;
		if (writes && !write_round(end, ++pattern, m, result))
			return false;
	}
	return true;
}

bool demo_requester_part(struct demo_end *end, struct demo_message *m)
{
	if (!demo_send(end->channel, DEMO_REVOKE, 0, NULL, 0)) {
		tool_complain("requester: the source is gone before it could take back its grant");
		return false;
	}
	return demo_hear(end, DEMO_REVOKED, m) &&
	       escrow_forget_grant(end->engine, end->object) == ESCROW_OK;
}

/* The engine is gone; the source's last word needs only the channel. */
static bool last_word(struct demo_end *end, struct demo_message *m, struct demo_result *result)
{
	if (demo_await_word(end, DEMO_LEDGER, m) < 0 || m->word != DEMO_LEDGER) {
		tool_complain("requester: the source is gone before its last word");
		return false;
	}
	result->source_ledger = g_strndup((const char *)m->bytes, m->len);
	return m->number != 0;
}

bool demo_requester(struct demo_end *end, struct demo_result *result)
{
	g_autofree struct demo_message *m = g_new0(struct demo_message, 1);

	result->bytes_right = true;
	if (!demo_end_open(end) || !demo_requester_meet(end, m) || !move(end, m, result))
		return demo_end_abandon(end);
	result->ledger = demo_ledger();
	if (!demo_requester_part(end, m))
		return demo_end_abandon(end);
	result->closed_clean = demo_end_close(end) && last_word(end, m, result);
	return result->closed_clean;
}
