/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tools/swap-ends.h"
#include "tools/tool.h"

#define BATCH 32

static bool failed(struct swap_ends *ends, const char *what, escrow_status status)
{
	tool_complain("swap: %s: %s", what, escrow_status_name(status));
	ends->failed = true;
	return false;
}

/* ---- An end --------------------------------------------------------------------------------------- */
static void free_memory(void *ctx, void *addr, uint64_t length)
{
	(void)ctx, (void)length;
	free(addr);
}

static bool open_end(struct swap_ends *ends, struct escrow_module *module, const char *name,
		     struct swap_end *end)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_host_args args = {
		.size = sizeof(args),
		.module = module,
		.engine_name = name,
		.settings = ends->settings,
	};
	struct escrow_module_info info = {.size = sizeof(info)};
	struct escrow_region region = {
		.size = sizeof(region),
		.memory_kind = ESCROW_MEMORY_HOST,
		.addr = aligned_alloc(4096, SWAP_BYTES),
		.length = SWAP_BYTES,
		.dmabuf_fd = -1,
		.free = free_memory,
	};

	if (region.addr && escrow_open(&args, &end->engine, &error) == ESCROW_OK) {
		ends->opened++;
		end->memory = region.addr;
		if (escrow_register(end->engine, &region, &end->region, &error) == ESCROW_OK)
			return true;
	}
	tool_complain("swap: %s: %s", name, error.text);
	tool_hint_device(error.text);
	if (escrow_module_info(module, &info) == ESCROW_OK && info.backend)
		tool_hint_setting(error.text, info.backend->id);
	return false;
}

static bool open_next(struct swap_ends *ends)
{
	struct swap_end *next = &ends->stills[ends->next];

	ends->next_peer = ends->granted = 0; /* handles are each engine's own */
	return next->engine || open_end(ends, ends->modules[ends->next], "still", next);
}

/* ---- The load --------------------------------------------------------------------------------- */

/* Each op has a number; its cell is number % SWAP_CELLS, its bytes come from the number. */
static void submit(struct swap_ends *ends, uint32_t cell)
{
	uint64_t number = ends->sent + 1;
	struct escrow_sge sge = {ends->mover.region, (uint64_t)cell * SWAP_CELL, SWAP_CELL};
	struct escrow_op op = {
		.user = number * SWAP_CELLS + cell,
		.remote = ends->remote,
		.remote_offset = (uint64_t)cell * SWAP_CELL,
		.opcode = ESCROW_WRITE,
		.nsge = 1,
		.sge = &sge,
	};
	uint64_t id;
	int32_t n;

	memset(ends->mover.memory + (size_t)cell * SWAP_CELL, (int)(number * 31 % 251), SWAP_CELL);
	n = escrow_transfer(ends->mover.engine, &op, 1, sizeof(op), 0, &id);
	if (n == 1) {
		ends->waits[cell] = op.user;
		ends->sent++;
	} else if (n != ESCROW_E_AGAIN) {
		failed(ends, "transfer", n);
	}
}

/* An op must end once, executed, with its bytes back here and whole over there. */
static void op_done(struct swap_ends *ends, const struct escrow_event *e)
{
	uint32_t cell = (uint32_t)(e->user % SWAP_CELLS);
	size_t at = (size_t)cell * SWAP_CELL;

	if (e->status != ESCROW_OK || e->effect != ESCROW_EFFECT_EXECUTED ||
	    e->custody != ESCROW_CUSTODY_RETURNED || ends->waits[cell] != e->user ||
	    memcmp(ends->mover.memory + at, ends->stills[ends->serving].memory + at, SWAP_CELL))
		ends->wrong++;
	ends->waits[cell] = 0;
	ends->done++;
}

/* ---- The still ends ----------------------------------------------------------------------------- */
static bool grant_next(struct swap_ends *ends)
{
	struct escrow_grant_args args = {
		.size = sizeof(args),
		.rights = ESCROW_MAY_READ | ESCROW_MAY_WRITE,
		.peer = ends->next_peer,
		.region = ends->stills[ends->next].region,
		.length = SWAP_BYTES,
	};
	escrow_status status =
		escrow_grant(ends->stills[ends->next].engine, &args, &ends->next_grant, NULL);

	return status >= 0 || failed(ends, "grant", status);
}

/* The mover wants new bytes of its remote: they can be had when the new peer is up and granted to. */
static bool answer(struct swap_ends *ends)
{
	uint8_t bytes[4096];
	uint64_t len = sizeof(bytes);
	escrow_status status;

	if (!ends->swap || !ends->want || !ends->next_peer)
		return true;
	if (!ends->next_grant)
		return grant_next(ends);
	if (ends->granted != ends->next_grant)
		return true;
	status =
		escrow_export_grant(ends->stills[ends->next].engine, ends->next_grant, bytes, &len);
	if (status == ESCROW_OK)
		status = escrow_swap_supply(ends->swap, ESCROW_CARRY_WANT_GRANT, ends->want, bytes,
					    len);
	ends->want = 0;
	return status >= 0 || failed(ends, "new grant", status);
}

static uint64_t invite(struct swap_ends *ends, uint8_t *bytes, uint64_t room)
{
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = "mover"};
	escrow_status status = escrow_invite(ends->stills[ends->next].engine, &args, bytes, &room);

	if (status != ESCROW_OK)
		failed(ends, "invite", status);
	return status == ESCROW_OK ? room : 0;
}

escrow_status swap_ends_carry(void *ctx, const struct escrow_carry *m)
{
	struct swap_ends *ends = ctx;
	uint8_t bytes[4096];

	switch (m->kind) {
	case ESCROW_CARRY_WANT_INVITATION:
		if (!open_next(ends))
			return ESCROW_E_REFUSED;
		return escrow_swap_supply(ends->swap, m->kind, m->peer, bytes,
					  invite(ends, bytes, sizeof(bytes)));
	case ESCROW_CARRY_WANT_GRANT:
		ends->want = m->object;
		return ESCROW_OK;
	case ESCROW_CARRY_STOP:
		return escrow_swap_supply(ends->swap, m->kind, m->peer, NULL, 0);
	case ESCROW_CARRY_COMMITTED:
		ends->serving = ends->next;
		ends->peer = ends->next_peer;
		ends->next_peer = ends->next_grant = ends->want = 0;
		return ESCROW_OK;
	case ESCROW_CARRY_WITHDRAWN:
		ends->next_peer = ends->next_grant = ends->want = 0;
		return ESCROW_OK;
	default:
		return ESCROW_E_UNSUPPORTED;
	}
}

/* ---- All ---------------------------------------------------------------------------------------- */
static void take(struct swap_ends *ends, struct escrow_host_engine *of,
		 const struct escrow_event *e)
{
	if (e->kind == ESCROW_EV_OP_DONE)
		op_done(ends, e);
	else if (e->kind == ESCROW_EV_PEER_UP && of != ends->mover.engine)
		ends->next_peer = e->object;
	else if (e->kind == ESCROW_EV_GRANT_READY && e->status == ESCROW_OK)
		ends->granted = e->object;
	else if (e->kind == ESCROW_EV_GRANT_READY && e->object == ends->next_grant)
		failed(ends, "grant", e->status);
	else if ((e->kind == ESCROW_EV_PEER_DOWN || e->kind == ESCROW_EV_PEER_LOST) && !ends->peer)
		failed(ends, "peer down", e->status); /* a later one is the swap's to judge */
	else if (e->kind == ESCROW_EV_CLOSED)
		ends->closed++;
	else if (e->kind == ESCROW_EV_QUARANTINED)
		failed(ends, "something is quarantined", e->status);
}

static bool poll_end(struct swap_ends *ends, struct escrow_host_engine *of)
{
	struct escrow_event events[BATCH];
	int32_t n = escrow_poll(of, events, BATCH);

	for (int32_t i = 0; i < n; i++)
		take(ends, of, &events[i]);
	return n >= 0 || failed(ends, "poll", n);
}

/* Whatever ends there are; false: one of them failed. */
static bool poll_ends(struct swap_ends *ends)
{
	struct escrow_host_engine *all[] = {ends->mover.engine, ends->stills[0].engine,
					    ends->stills[1].engine};

	for (size_t i = 0; i < G_N_ELEMENTS(all); i++)
		if (all[i] && !poll_end(ends, all[i]))
			return false;
	return true;
}

bool swap_ends_pump(struct swap_ends *ends)
{
	if (!poll_ends(ends) || !answer(ends))
		return false;
	for (uint32_t cell = 0; ends->loading && cell < SWAP_CELLS && !ends->failed; cell++)
		if (!ends->waits[cell])
			submit(ends, cell);
	return !ends->failed;
}

/* The first connection and grant, by the same answers that a swap's peers give. */
static bool connect_ends(struct swap_ends *ends)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_peer_args who = {.size = sizeof(who), .peer_name = "still"};
	struct escrow_remote_args take_args = {.size = sizeof(take_args)};
	uint8_t bytes[4096];

	who.invitation = bytes;
	who.invitation_len = invite(ends, bytes, sizeof(bytes));
	if (escrow_connect(ends->mover.engine, &who, &take_args.peer, &error) < 0)
		goto say;
	while (!ends->next_peer)
		if (!swap_ends_pump(ends))
			return false;
	if (!grant_next(ends))
		return false;
	while (ends->granted != ends->next_grant)
		if (!swap_ends_pump(ends))
			return false;
	take_args.len = sizeof(bytes);
	take_args.bytes = bytes;
	if (escrow_export_grant(ends->stills[ends->next].engine, ends->next_grant, bytes,
				&take_args.len) ||
	    escrow_import_grant(ends->mover.engine, &take_args, &ends->remote, &error) < 0)
		goto say;
	ends->peer = ends->next_peer;
	ends->next_peer = ends->next_grant = 0;
	return true;

say:
	tool_complain("swap: %s", error.text);
	return false;
}

bool swap_ends_open(struct swap_ends *ends)
{
	return open_end(ends, ends->modules[0], "mover", &ends->mover) && open_next(ends) &&
	       connect_ends(ends);
}

bool swap_ends_close(struct swap_ends *ends)
{
	struct escrow_host_engine *all[] = {ends->mover.engine, ends->stills[0].engine,
					    ends->stills[1].engine};
	bool released = true;

	ends->loading = false;
	while (ends->done < ends->sent)
		if (!swap_ends_pump(ends))
			return false;
	for (size_t i = 0; i < G_N_ELEMENTS(all); i++)
		if (all[i] && escrow_close(all[i], 0, ESCROW_CLOSE_GRACEFUL) < 0)
			return failed(ends, "close", ESCROW_E_STATE);
	while (ends->closed < ends->opened)
		if (!swap_ends_pump(ends))
			return false;
	for (size_t i = 0; i < G_N_ELEMENTS(all); i++)
		released = (!all[i] || escrow_release(all[i]) == ESCROW_OK) && released;
	return released;
}
