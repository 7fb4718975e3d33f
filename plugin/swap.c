/* SPDX-License-Identifier: BSD-2-Clause */
/* The course of a swap: its steps one after the other, or back; its records. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plugin/args.h"
#include "plugin/event.h"
#include "plugin/swap.h"

#define SWAP_SECOND UINT64_C(1000000000)

static const struct {
	const char *name;
	escrow_status (*run)(struct escrow_swap *swap);
	escrow_status (*undo)(struct escrow_swap *swap); /* NULL: an earlier step's undo does it */
} steps[] = {
	[ESCROW_SWAP_OPEN] = {"open", swap_open, swap_undo_open},
	[ESCROW_SWAP_BUDGET] = {"budget", swap_budget, NULL},
	/* closing B takes its regions, grants and peers back, each with its receipt */
	[ESCROW_SWAP_REGISTER] = {"register", swap_register, NULL},
	[ESCROW_SWAP_PEERS] = {"peers", swap_peers, swap_undo_peers},
	[ESCROW_SWAP_GATE] = {"gate", swap_gate, swap_undo_gate},
	[ESCROW_SWAP_QUIESCE] = {"quiesce", swap_quiesce, swap_undo_quiesce},
	/* resume ends a drain */
	[ESCROW_SWAP_DRAIN] = {"drain", swap_drain, NULL},
	[ESCROW_SWAP_COMMIT] = {"commit", swap_commit, NULL},
	[ESCROW_SWAP_CLOSE] = {"close", swap_close, NULL},
	[ESCROW_SWAP_RETIRE] = {"retire", swap_retire, NULL},
};

const char *escrow_swap_step_name(uint32_t step)
{
	return step >= ESCROW_SWAP_OPEN && step <= ESCROW_SWAP_RETIRE ? steps[step].name : "?";
}

/* ---- Records (H8) ------------------------------------------------------------------------------ */
static void swap_record_start(struct escrow_swap *swap)
{
	struct escrow_swap_record record = {
		.step = swap->step, .outcome = ESCROW_SWAP_RUNNING, .start_ns = swap_now(swap)};

	g_array_append_val(swap->records, record);
}

static void swap_record_end(struct escrow_swap *swap, uint32_t outcome, escrow_status status,
			    const char *format, ...) __attribute__((format(printf, 4, 5)));

static void swap_record_end(struct escrow_swap *swap, uint32_t outcome, escrow_status status,
			    const char *format, ...)
{
	struct escrow_swap_record *record =
		&g_array_index(swap->records, struct escrow_swap_record, swap->records->len - 1);
	va_list args;

	record->outcome = outcome;
	record->status = status;
	record->end_ns = swap_now(swap);
	va_start(args, format);
	vsnprintf(record->text, sizeof(record->text), format, args);
	va_end(args);
	services_log(swap->host->services, status < 0 ? ESCROW_LOG_WARNING : ESCROW_LOG_INFO,
		     "swap: %s: %s: %s", escrow_swap_step_name(record->step),
		     escrow_status_name(status), record->text);
}

int32_t escrow_swap_records(const struct escrow_swap *swap, struct escrow_swap_record *records,
			    uint32_t max)
{
	if (!swap || (max && !records))
		return ESCROW_E_INVALID;
	memcpy(records, swap->records->data, MIN(max, swap->records->len) * sizeof(*records));
	return (int32_t)swap->records->len;
}

/* ---- What poll tells, under lock --------------------------------------------------------------- */
void swap_disturbed(struct escrow_host_engine *host, escrow_status why)
{
	int32_t nothing = 0;

	if (host->swap)
		atomic_compare_exchange_strong(&host->swap->disturbed, &nothing, why);
}

static void swap_event_peer(struct escrow_host_engine *host, struct host_generation *b,
			    const struct escrow_event *event)
{
	struct host_peer *peer = table_find(&host->peers, event->user);

	if (event->kind == ESCROW_EV_PEER_UP && peer) {
		atomic_store(&peer->backend[b->column], event->object);
		event_peer_is(b, event->object, event->user);
		peer->next_up = 1;
	} else if (event->kind != ESCROW_EV_PEER_UP) {
		swap_disturbed(host, event->status < 0 ? event->status : ESCROW_E_PEER_LOST);
	}
}

static void swap_event_grant(struct escrow_host_engine *host, struct host_generation *b,
			     const struct escrow_event *event)
{
	struct host_grant *grant = table_find(&host->grants, event->user);
	struct host_remote *remote = table_find(&host->remotes, event->user);

	if (event->status < 0)
		swap_disturbed(host, event->status);
	else if (event->kind == ESCROW_EV_GRANT_READY && grant) {
		atomic_store(&grant->backend[b->column], event->object);
		grant->next_ready = 1;
	} else if (event->kind == ESCROW_EV_REMOTE_READY && remote) {
		atomic_store(&remote->backend[b->column], event->object);
		remote->next_ready = 1;
	}
}

static bool swap_event_region(struct escrow_host_engine *host, struct host_generation *b,
			      struct escrow_event *event)
{
	struct host_region *region = table_find(&host->regions, event->user);
	struct escrow_region gone;

	if (!region || atomic_load(&region->backend[b->column]) != event->object)
		return false;
	if (event->kind == ESCROW_EV_REGION_RELEASED) {
		/* never the last: A has it, or holds it back */
		region_released(host, region, b, &gone);
		return false;
	}
	/* B may still write into it: nobody is to use it, A neither */
	return region_tell_stuck(host, region, b, event);
}

bool swap_event(struct escrow_host_engine *host, struct host_generation *b,
		struct escrow_event *event)
{
	switch (event->kind) {
	case ESCROW_EV_PEER_UP:
	case ESCROW_EV_PEER_DOWN:
	case ESCROW_EV_PEER_LOST:
		swap_event_peer(host, b, event);
		break;
	case ESCROW_EV_GRANT_READY:
	case ESCROW_EV_REMOTE_READY:
		swap_event_grant(host, b, event);
		break;
	case ESCROW_EV_REGION_RELEASED:
		return swap_event_region(host, b, event);
	case ESCROW_EV_QUARANTINED:
		if (event->object)
			return swap_event_region(host, b, event);
		host_ended(host, b, HOST_ENDED_QUARANTINED);
		break;
	case ESCROW_EV_CLOSED:
		host_ended(host, b, HOST_ENDED_CLOSED);
		break;
	case ESCROW_EV_DEVICE:
		swap_disturbed(host, ESCROW_E_DEVICE);
		break;
	default:
		break;
	}
	return false;
}

/* ---- Start and end ----------------------------------------------------------------------------- */
/* Drops generations that came to their end since the last swap.  *ending: one still has not. */
static uint32_t swap_reap(struct escrow_host_engine *host, bool *ending)
{
	uint32_t alive = 0;

	*ending = false;
	for (uint32_t i = 0; i <= HOST_GENERATIONS; i++) {
		struct host_generation *g = atomic_load(&host->generations[i]);
		bool older = g && g != atomic_load(&host->current);
		uint32_t ended = g ? atomic_load(&g->ended) : HOST_ENDED_NOT;

		*ending |= older && ended == HOST_ENDED_NOT;
		if (older && ended == HOST_ENDED_CLOSED)
			host_drop_generation(host, g);
		else
			alive += g != NULL;
	}
	return alive;
}

static escrow_status swap_check(struct escrow_host_engine *host,
				const struct escrow_swap_args *args, struct escrow_error *error)
{
	struct escrow_limits limits = {.size = sizeof(limits)};
	escrow_status status = host_check_said(host, "swap", error);
	uint32_t alive;
	bool ending;

	if (status != ESCROW_OK)
		return status;
	status = args_check(args, sizeof(*args), "swap", error);
	if (status != ESCROW_OK)
		return status;
	if (!args->module)
		return error_set(error, ESCROW_E_INVALID, "swap: no module");
	if (args->flags & ~(ESCROW_SWAP_DRY_RUN | ESCROW_SWAP_COMMIT_UNDRAINED))
		return error_set(error, ESCROW_E_UNSUPPORTED, "swap: unknown flags 0x%x",
				 args->flags);
	status = host_may_change(host, error);
	if (status != ESCROW_OK)
		return status;
	status = escrow_query(host, &limits);
	if (status != ESCROW_OK || limits.state != ESCROW_STATE_OPEN)
		return error_set(error, ESCROW_E_STATE,
				 "swap: the engine is in state %u; it must be OPEN (%u)",
				 limits.state, ESCROW_STATE_OPEN);
	alive = swap_reap(host, &ending);
	/* it holds regions by handles in the column that the next one would take */
	if (ending)
		return error_set(error, ESCROW_E_BUSY,
				 "swap: a generation that was taken back has not come to its end; "
				 "poll, and try again");
	if (alive >= HOST_GENERATIONS)
		return error_set(error, ESCROW_E_LIMIT,
				 "swap: %u generations of this engine are alive: too many are "
				 "quarantined",
				 HOST_GENERATIONS);
	return ESCROW_OK;
}

/* What was asked for lives as long as the swap. */
static void swap_copy_args(struct escrow_swap *swap, const struct escrow_swap_args *args)
{
	swap->args = *args;
	escrow_module_ref(args->module);
	swap->args.settings = (const char *const *)g_strdupv((char **)(uintptr_t)args->settings);
	if (args->key_file)
		g_key_file_ref(args->key_file);
	if (!args->peers_ns)
		swap->args.peers_ns = 30 * SWAP_SECOND;
	if (!args->lease_ns)
		swap->args.lease_ns = 5 * SWAP_SECOND;
	if (!args->drain_ns)
		swap->args.drain_ns = 30 * SWAP_SECOND;
	if (!args->close_ns)
		swap->args.close_ns = 10 * SWAP_SECOND;
}

escrow_status escrow_swap_begin(struct escrow_host_engine *host,
				const struct escrow_swap_args *args, struct escrow_swap **out,
				struct escrow_error *error)
{
	escrow_status status = swap_check(host, args, error);
	struct escrow_swap *swap;

	if (status != ESCROW_OK)
		return status;
	if (!out)
		return error_set(error, ESCROW_E_INVALID, "swap: nowhere to put the swap");
	swap = g_new0(struct escrow_swap, 1);
	swap->host = host;
	swap->a = atomic_load(&host->current);
	swap_copy_args(swap, args);
	swap->records = g_array_new(FALSE, FALSE, sizeof(struct escrow_swap_record));
	swap->step = ESCROW_SWAP_OPEN;
	error_clear(&swap->error);
	g_mutex_lock(&host->lock);
	host->swap = swap;
	g_mutex_unlock(&host->lock);
	swap_record_start(swap);
	*out = swap;
	return ESCROW_OK;
}

static void swap_finish(struct escrow_swap *swap)
{
	g_mutex_lock(&swap->host->lock);
	swap->host->swap = NULL;
	swap->host->next = NULL;
	swap->host->previous = NULL;
	region_settle_all(swap->host);
	g_mutex_unlock(&swap->host->lock);
	swap->over = true;
}

escrow_status escrow_swap_free(struct escrow_swap *swap)
{
	if (!swap)
		return ESCROW_OK;
	/* when it is over the engine may be gone */
	if (!swap->over)
		return host_check(swap->host) == ESCROW_OK ? ESCROW_E_BUSY : ESCROW_E_STATE;
	g_strfreev((char **)(uintptr_t)swap->args.settings);
	if (swap->args.key_file)
		g_key_file_unref(swap->args.key_file);
	escrow_module_unref(swap->args.module);
	g_array_unref(swap->records);
	g_free(swap);
	return ESCROW_OK;
}

/* ---- The course -------------------------------------------------------------------------------- */
/* The test's veto comes after the work of a step, so that there is something to take back. */
static escrow_status swap_veto(struct escrow_swap *swap)
{
	escrow_status status = swap->args.fail ? swap->args.fail(swap->args.ctx, swap->step)
					       : ESCROW_OK;

	if (status < 0)
		error_set(&swap->error, status, "made to fail by the test");
	return status < 0 ? status : ESCROW_OK;
}

static void swap_turn_back(struct escrow_swap *swap, escrow_status result)
{
	swap->result = result;
	swap->back = true;
	swap->phase = 0;
}

static void swap_step_failed(struct escrow_swap *swap, escrow_status status)
{
	swap_record_end(swap, ESCROW_SWAP_FAILED, status, "%.160s", swap->error.text);
	if (swap->result >= 0)
		swap->reason = swap->error;
	if (swap->step > ESCROW_SWAP_COMMIT) {
		/* from COMMIT on there is only forward: a failure is told, and the rest is done */
		error_clear(&swap->error);
		swap->result = status;
		if (++swap->step > ESCROW_SWAP_RETIRE)
			swap_finish(swap);
		else
			swap_record_start(swap);
		swap->phase = 0;
		return;
	}
	swap_turn_back(swap, status);
}

static void swap_step_done(struct escrow_swap *swap)
{
	swap_record_end(swap, ESCROW_SWAP_DONE, ESCROW_OK, "%s",
			swap->error.text[0] ? swap->error.text : "");
	error_clear(&swap->error);
	swap->phase = 0;
	if (swap->step == ESCROW_SWAP_PEERS && (swap->args.flags & ESCROW_SWAP_DRY_RUN)) {
		swap_turn_back(swap, ESCROW_OK);
		return;
	}
	if (swap->step == ESCROW_SWAP_RETIRE) {
		swap_finish(swap);
		return;
	}
	swap->step++;
	swap->count = 0;
	swap_record_start(swap);
}

static escrow_status swap_forward(struct escrow_swap *swap)
{
	escrow_status status = ESCROW_OK;
	int32_t disturbed = atomic_load(&swap->disturbed);

	if (disturbed && swap->step <= ESCROW_SWAP_COMMIT)
		status = error_set(&swap->error, disturbed,
				   "a peer or the device was lost meanwhile: %s",
				   escrow_status_name(disturbed));
	/* nothing can veto COMMIT once it is done, so it is asked before */
	if (status == ESCROW_OK && swap->step == ESCROW_SWAP_COMMIT)
		status = swap_veto(swap);
	if (status == ESCROW_OK)
		status = steps[swap->step].run(swap);
	if (status == ESCROW_IN_PROGRESS)
		return status;
	if (status >= 0 && swap->step != ESCROW_SWAP_COMMIT)
		status = swap_veto(swap);
	if (status < 0)
		swap_step_failed(swap, status);
	else
		swap_step_done(swap);
	return ESCROW_OK;
}

static escrow_status swap_backward(struct escrow_swap *swap)
{
	escrow_status status = ESCROW_OK;

	if (swap->phase == 0)
		swap_record_start(swap);
	swap->phase = MAX(swap->phase, 1);
	if (steps[swap->step].undo)
		status = steps[swap->step].undo(swap);
	if (status == ESCROW_IN_PROGRESS)
		return status;
	swap_record_end(swap, ESCROW_SWAP_TAKEN_BACK, status, "%s",
			status < 0 ? "B could not be closed: it is quarantined" : "");
	swap->phase = 0;
	if (--swap->step == 0)
		swap_finish(swap);
	return ESCROW_OK;
}

escrow_status escrow_swap_advance(struct escrow_swap *swap, struct escrow_error *error)
{
	escrow_status status = ESCROW_OK;

	if (!swap)
		return error_set(error, ESCROW_E_INVALID, "swap: none");
	if (!swap->over)
		status = host_check_said(swap->host, "swap", error);
	if (status != ESCROW_OK)
		return status;
	while (!swap->over && status == ESCROW_OK)
		status = swap->back ? swap_backward(swap) : swap_forward(swap);
	if (!swap->over)
		return ESCROW_IN_PROGRESS;
	if (swap->result < 0 && error)
		error_set(error, swap->result, "%s", swap->reason.text);
	return swap->result;
}
