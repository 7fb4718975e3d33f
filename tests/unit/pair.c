/* SPDX-License-Identifier: BSD-2-Clause */
#include <sched.h>
#include <string.h>

#include <escrow/fault.h>

#include "tests/lib/testing.h"
#include "tests/unit/pair.h"

static void take(struct pair *pair, struct pair_side *side, const struct escrow_event *event)
{
	ck_assert_uint_lt(event->kind, 32);
	side->kinds[event->kind]++;
	switch (event->kind) {
	case ESCROW_EV_PEER_UP:
		side->up = event->object;
		if (side == &pair->still && pair->swap)
			side->next_peer = event->object;
		break;
	case ESCROW_EV_GRANT_READY:
		ck_assert_int_eq(event->status, ESCROW_OK);
		side->granted = event->object;
		break;
	case ESCROW_EV_REMOTE_READY:
		ck_assert_int_eq(event->status, ESCROW_OK);
		side->ready_remote = event->object;
		break;
	case ESCROW_EV_OP_DONE:
		if (side == &pair->mover && pair->done)
			pair->done(pair, event);
		break;
	default:
		break;
	}
}

static uint64_t give(struct pair_side *side, uint64_t peer)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ | ESCROW_MAY_WRITE,
					 .peer = peer,
					 .region = side->region,
					 .length = PAIR_BYTES};
	uint64_t grant;

	ck_assert_int_eq(escrow_grant(side->host, &args, &grant, NULL), ESCROW_IN_PROGRESS);
	return grant;
}

static uint64_t import(struct pair_side *side, uint64_t peer, const void *bytes, uint64_t len)
{
	struct escrow_remote_args args = {
		.size = sizeof(args), .peer = peer, .bytes = bytes, .len = len};
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t remote;

	ck_assert_msg(escrow_import_grant(side->host, &args, &remote, &error) >= 0, "%s",
		      error.text);
	return remote;
}

static uint64_t export(struct pair_side *side, uint64_t grant, void *bytes, uint64_t room)
{
	ck_assert_int_eq(escrow_export_grant(side->host, grant, bytes, &room), ESCROW_OK);
	return room;
}

/* What the still side of a swap has to do, once its new peer is up. */
static void answer(struct pair *pair)
{
	struct pair_side *still = &pair->still;
	unsigned char bytes[4096];
	uint64_t len;

	if (!pair->swap || !still->next_peer)
		return;
	if (pair->nbytes) {
		still->next_remote = import(still, still->next_peer, pair->bytes, pair->nbytes);
		pair->nbytes = 0;
	}
	if (pair->want && !still->next_grant)
		still->next_grant = give(still, still->next_peer);
	if (pair->want && still->next_grant && still->granted == still->next_grant) {
		len = export(still, still->next_grant, bytes, sizeof(bytes));
		ck_assert_int_eq(escrow_swap_supply(pair->swap, ESCROW_CARRY_WANT_GRANT, pair->want,
						    bytes, len),
				 ESCROW_OK);
		pair->want = 0;
	}
}

static void poll_side(struct pair *pair, struct pair_side *side)
{
	struct escrow_event events[16];
	int32_t n = escrow_poll(side->host, events, (uint32_t)pair->batch);

	ck_assert_int_ge(n, 0);
	for (int32_t i = 0; i < n; i++)
		take(pair, side, &events[i]);
}

void pair_pump(struct pair *pair)
{
	if (pair->mover.host)
		poll_side(pair, &pair->mover);
	poll_side(pair, &pair->still);
	answer(pair);
	/* now and then: on a busy machine each yield costs the slices of everybody else */
	if (++pair->pumped % 64 == 0)
		sched_yield();
}

static uint64_t invite(struct pair_side *side, const char *name, void *bytes, uint64_t room)
{
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = name};

	ck_assert_int_eq(escrow_invite(side->host, &args, bytes, &room), ESCROW_OK);
	return room;
}

static void connect_to(struct pair_side *side, const char *name, const void *bytes, uint64_t len)
{
	struct escrow_peer_args args = {.size = sizeof(args),
					.peer_name = name,
					.invitation = bytes,
					.invitation_len = len};
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t peer;

	ck_assert_msg(escrow_connect(side->host, &args, &peer, &error) == ESCROW_IN_PROGRESS, "%s",
		      error.text);
}

/* Each grants all of its region to the other. */
static void exchange(struct pair *pair)
{
	struct pair_side *sides[2] = {&pair->mover, &pair->still};
	unsigned char bytes[4096];

	for (int i = 0; i < 2; i++) {
		struct pair_side *from = sides[i], *to = sides[1 - i];

		from->grant = give(from, from->peer);
		while (from->granted != from->grant)
			pair_pump(pair);
		to->remote = import(to, to->peer, bytes,
				    export(from, from->grant, bytes, sizeof(bytes)));
	}
}

void pair_connect(struct pair *pair, int passive)
{
	unsigned char bytes[4096];

	pair->mover.up = pair->still.up = 0;
	if (passive)
		connect_to(&pair->still, "mover", bytes,
			   invite(&pair->mover, "still", bytes, sizeof(bytes)));
	else
		connect_to(&pair->mover, "still", bytes,
			   invite(&pair->still, "mover", bytes, sizeof(bytes)));
	while (!pair->mover.up || !pair->still.up)
		pair_pump(pair);
	pair->mover.peer = pair->mover.up;
	pair->still.peer = pair->still.up;
	exchange(pair);
}

void pair_make(struct pair *pair, int passive, const char *const *settings)
{
	memset(pair, 0, sizeof(*pair));
	pair->batch = 16;
	pair->module = hosting_module("mock");
	pair->mover.host = hosting_open(pair->module, 0, settings);
	pair->still.host = hosting_open(pair->module, 0, NULL);
	pair->mover.region = hosting_register(pair->mover.host, pair->mover.memory, PAIR_BYTES,
					      &pair->mover.freed);
	pair->still.region = hosting_register(pair->still.host, pair->still.memory, PAIR_BYTES,
					      &pair->still.freed);
	pair_connect(pair, passive);
}

void pair_end(struct pair *pair)
{
	struct pair_side *sides[2] = {&pair->mover, &pair->still};

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(escrow_close(sides[i]->host, 0, ESCROW_CLOSE_GRACEFUL),
				 ESCROW_IN_PROGRESS);
	while (!pair->mover.kinds[ESCROW_EV_CLOSED] || !pair->still.kinds[ESCROW_EV_CLOSED])
		pair_pump(pair);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(sides[i]->freed, 1);
		ck_assert_int_eq(escrow_release(sides[i]->host), ESCROW_OK);
	}
	escrow_module_unref(pair->module);
}

/* ---- The swap ---------------------------------------------------------------------------------- */
static void committed(struct pair_side *still)
{
	still->peer = still->next_peer;
	still->remote = still->next_remote;
	still->grant = still->next_grant;
	still->next_peer = still->next_remote = still->next_grant = 0;
}

static escrow_status carry(void *ctx, const struct escrow_carry *message)
{
	struct pair *pair = ctx;
	unsigned char bytes[4096];
	uint64_t len;

	if (pair->silent)
		return ESCROW_OK;
	switch (message->kind) {
	case ESCROW_CARRY_WANT_INVITATION:
		len = invite(&pair->still, "mover", bytes, sizeof(bytes));
		return escrow_swap_supply(pair->swap, message->kind, message->peer, bytes, len);
	case ESCROW_CARRY_INVITATION:
		connect_to(&pair->still, "mover", message->bytes, message->len);
		return ESCROW_OK;
	case ESCROW_CARRY_GRANT:
		ck_assert_uint_eq(message->object, pair->mover.grant);
		memcpy(pair->bytes, message->bytes, message->len);
		pair->nbytes = message->len;
		return ESCROW_OK;
	case ESCROW_CARRY_WANT_GRANT:
		pair->want = message->object;
		return ESCROW_OK;
	case ESCROW_CARRY_STOP:
		return escrow_swap_supply(pair->swap, message->kind, message->peer, NULL, 0);
	case ESCROW_CARRY_COMMITTED:
		committed(&pair->still);
		return ESCROW_OK;
	default:
		pair->still.next_peer = pair->still.next_remote = pair->still.next_grant = 0;
		pair->nbytes = pair->want = 0;
		return ESCROW_OK;
	}
}

void pair_swap_begin(struct pair *pair, struct escrow_swap_args *args)
{
	args->size = sizeof(*args);
	args->module = pair->module;
	args->carry = carry;
	args->ctx = pair;
	ck_assert_int_eq(escrow_swap_begin(pair->mover.host, args, &pair->swap, NULL), ESCROW_OK);
}

escrow_status pair_swap_finish(struct pair *pair, struct escrow_swap_record *last,
			       struct escrow_error *error)
{
	struct escrow_swap_record records[32];
	escrow_status status;
	int32_t n;

	while ((status = escrow_swap_advance(pair->swap, error)) == ESCROW_IN_PROGRESS)
		pair_pump(pair);
	n = escrow_swap_records(pair->swap, records, 32);
	ck_assert_int_ge(n, 2);
	if (last)
		*last = records[n - 1];
	ck_assert_int_eq(escrow_swap_free(pair->swap), ESCROW_OK);
	pair->swap = NULL;
	return status;
}

void pair_move(struct pair *pair, struct pair_side *from, uint32_t opcode, uint64_t offset,
	       uint64_t length)
{
	uint32_t before = from->kinds[ESCROW_EV_OP_DONE];

	ck_assert_int_eq(hosting_transfer(from->host, opcode, from->remote,
					  (struct escrow_sge){from->region, offset, length}, NULL),
			 1);
	while (from->kinds[ESCROW_EV_OP_DONE] == before)
		pair_pump(pair);
}

void pair_check(struct pair *pair, unsigned char seed)
{
	struct pair_side *sides[2] = {&pair->mover, &pair->still};

	for (int i = 0; i < 2; i++) {
		struct pair_side *from = sides[i], *to = sides[1 - i];

		memset(from->memory, seed + i, 1000);
		memset(to->memory, 0, 1000);
		pair_move(pair, from, ESCROW_WRITE, 0, 1000);
		for (int b = 0; b < 1000; b++)
			ck_assert_uint_eq(to->memory[b], (unsigned char)(seed + i));
		memset(to->memory, seed + i + 7, 1000);
		pair_move(pair, from, ESCROW_READ, 0, 1000);
		ck_assert_int_eq(memcmp(from->memory, to->memory, 1000), 0);
	}
}

void pair_hold_completions(struct pair_side *side)
{
	struct escrow_error error = {.size = sizeof(error)};
	const struct escrow_fault *fault = escrow_get_extension(side->host, ESCROW_FAULT_ID);

	ck_assert_ptr_nonnull(fault);
	ck_assert_msg(fault->plan(escrow_backend_engine(side->host, NULL), "cqe=hold", &error) ==
			      ESCROW_OK,
		      "%s", error.text);
}
