/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/demo.h"
#include "tools/ledger-view.h"
#include "tools/names.h"
#include "tools/tool.h"

#define BATCH 32
#define PROBE_NS (UINT64_C(30) * 1000000000u) /* a machine may be slow */
#define WAIT_MS 50 /* between looks at the channel; the engine's descriptor wakes earlier */

bool demo_guards_intact(const struct demo_end *end)
{
	const uint8_t *behind = end->memory + DEMO_GUARD + end->payload;

	for (uint32_t i = 0; i < DEMO_GUARD; i++)
		if (end->memory[i] != DEMO_GUARD_BYTE || behind[i] != DEMO_GUARD_BYTE)
			return false;
	return true;
}

static void print_log(void *ctx, int32_t level, const char *component, const char *text)
{
	(void)level;
	fprintf(stderr, "%s: %s: %s\n", (const char *)ctx, component, text);
}

static bool complain(struct demo_end *end, const char *what, const struct escrow_error *error)
{
	tool_complain("%s: %s: %s%s%s", end->role, what, escrow_status_name(error->status),
		      error->text[0] ? ": " : "", error->text);
	return false;
}

static void hint(const struct demo_end *end, const struct escrow_error *error)
{
	if (end->set->second)
		return;
	tool_hint_device(error->text);
	tool_hint_setting(error->text, end->set->backend);
}

bool demo_end_load(struct demo_end *end)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_load_args load = {
		.size = sizeof(load),
		/*
		 * One that ends its process, when it is loaded or in open, is not to end this one as if all had
		 * gone well.  The second end is watched by the one that started it.
		 */
		.flags = end->set->second ? ESCROW_LOAD_PROBE : ESCROW_LOAD_PROBE_OPEN,
		.name = end->set->backend,
		.settings = (const char *const *)end->set->settings,
		.probe_timeout_ns = PROBE_NS,
	};

	error.status = escrow_load(&load, &end->module, &error);
	if (error.status == ESCROW_OK)
		return true;
	complain(end, end->set->backend, &error);
	hint(end, &error);
	return false;
}

static bool open_engine(struct demo_end *end)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_host_args host = {
		.size = sizeof(host),
		.engine_name = end->role,
		.settings = (const char *const *)end->set->settings,
		.log = print_log,
		.log_level = ESCROW_LOG_WARNING,
		.ctx = (void *)(uintptr_t)end->role,
	};

	if (!end->module && !demo_end_load(end))
		return false;
	host.module = end->module;
	error.status = escrow_open(&host, &end->engine, &error);
	end->opened = error.status == ESCROW_OK;
	if (end->opened)
		return true;
	complain(end, "open", &error);
	hint(end, &error);
	return false;
}

/* Payload and guards, in whole huge pages of the common size if they are asked for. */
static uint64_t mapped_bytes(const struct demo_end *end)
{
	uint64_t length = end->payload + 2 * (uint64_t)DEMO_GUARD, page = UINT64_C(2) << 20;

	return end->set->hugepages ? (length + page - 1) / page * page : length;
}

static bool lend_memory(struct demo_end *end)
{
	uint64_t length = mapped_bytes(end);
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region region = {
		.size = sizeof(region),
		.memory_kind = ESCROW_MEMORY_HOST,
		.length = length,
		.dmabuf_fd = -1,
	};

	end->memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | (end->set->hugepages ? MAP_HUGETLB : 0),
			   -1, 0);
	if (end->memory == MAP_FAILED) {
		tool_complain("%s: no memory for %" PRIu64 " bytes%s", end->role, length,
			      end->set->hugepages ? " in huge pages (/proc/sys/vm/nr_hugepages)"
						  : "");
		return false;
	}
	memset(end->memory, DEMO_GUARD_BYTE, length);
	region.addr = end->memory;
	error.status = escrow_register(end->engine, &region, &end->region, &error);
	return error.status == ESCROW_OK || complain(end, "register", &error);
}

bool demo_end_open(struct demo_end *end)
{
	end->payload = (uint64_t)end->set->parents * (uint64_t)end->set->parent_bytes;
	return open_engine(end) && lend_memory(end);
}

/* Sleeps until there is news; the arm protocol makes that no event can be missed. */
static void rest(struct demo_end *end)
{
	struct pollfd fds[2] = {
		{.fd = end->channel, .events = POLLIN},
		{.fd = escrow_event_fd(end->engine), .events = POLLIN},
	};

	if (end->set->events && escrow_arm(end->engine) == ESCROW_OK)
		poll(fds, fds[1].fd >= 0 ? 2 : 1, end->set->wait_ms ? end->set->wait_ms : WAIT_MS);
}

bool demo_turn(struct demo_end *end, bool (*each)(struct demo_end *, const struct escrow_event *))
{
	struct escrow_event events[BATCH];
	int32_t n = escrow_poll(end->engine, events, BATCH);

	if (n < 0) {
		tool_complain("%s: poll: %s", end->role, escrow_status_name(n));
		return false;
	}
	for (int32_t i = 0; i < n; i++)
		if (!each(end, &events[i]))
			return false;
	if (n == 0)
		rest(end);
	return true;
}

/* What demo_wait looks for; one wait at a time in a process. */
static struct {
	uint16_t kind;
	bool seen;
	struct escrow_event event;
} waiting;

/* Events that come whether the other end lives or not. */
static bool ends_alone(uint16_t kind)
{
	return kind == ESCROW_EV_CLOSED || kind == ESCROW_EV_GRANT_REVOKED;
}

static bool note(struct demo_end *end, const struct escrow_event *e)
{
	if (e->kind == waiting.kind && !waiting.seen) {
		waiting.seen = true;
		waiting.event = *e;
		return true;
	}
	if (e->kind == ESCROW_EV_PEER_LOST || e->kind == ESCROW_EV_PEER_DOWN ||
	    e->kind == ESCROW_EV_DEVICE) {
		/* While closing, the peer may be gone first; before, it is the end of the demo. */
		if (ends_alone(waiting.kind))
			return true;
		tool_complain("%s: %s while waiting for %s: %s", end->role, name_of_event(e->kind),
			      name_of_event(waiting.kind), escrow_status_name(e->status));
		return false;
	}
	if (e->kind != ESCROW_EV_QUARANTINED)
		return true;
	tool_complain("%s: QUARANTINED: %" PRIu64 " bytes are withheld", end->role, e->bytes);
	/* Instead of CLOSED, and of GRANT_REVOKED. */
	return e->object != 0 &&
	       !(waiting.kind == ESCROW_EV_GRANT_REVOKED && e->object == end->object);
}

bool demo_wait(struct demo_end *end, uint16_t kind, struct escrow_event *event)
{
	waiting.kind = kind;
	waiting.seen = false;
	demo_wait_begins();
	while (!waiting.seen) {
		demo_wait_goes_on(end, name_of_event(kind));
		if (!demo_turn(end, note) || (!ends_alone(kind) && tool_output_lost()))
			return false;
		/* Before it has connected, only the channel tells that the other end died. */
		if (!waiting.seen && !ends_alone(kind) && demo_channel_gone(end->channel)) {
			tool_complain("%s: the other end is gone while waiting for %s", end->role,
				      name_of_event(kind));
			return false;
		}
	}
	if (event)
		*event = waiting.event;
	if (waiting.event.status >= 0)
		return true;
	tool_complain("%s: %s: %s", end->role, name_of_event(kind),
		      escrow_status_name(waiting.event.status));
	return false;
}

static bool pass(struct demo_end *end, const struct escrow_event *e)
{
	(void)end;
	return e->kind != ESCROW_EV_DEVICE;
}

bool demo_hear(struct demo_end *end, enum demo_word word, struct demo_message *message)
{
	int n;

	demo_wait_begins();
	/* The engine is polled on: a backend without threads makes progress only so. */
	while ((n = demo_receive(end->channel, message)) == 0) {
		demo_hearing_goes_on(end, word);
		if (!demo_turn(end, pass) || tool_output_lost())
			return false;
	}
	if (n > 0 && message->word == (uint32_t)word)
		return true;
	tool_complain("%s: the other end %s", end->role, demo_end_did(n));
	return false;
}

/* After everything was taken back nothing may be charged; what is left is told by the ledger. */
static bool charges_are_zero(struct demo_end *end)
{
	struct escrow_charge charges[64];
	int32_t n = escrow_charges(end->engine, charges, G_N_ELEMENTS(charges));
	bool zero = true;

	for (int32_t i = 0; i < n && i < (int32_t)G_N_ELEMENTS(charges); i++)
		if (charges[i].used) {
			tool_complain("%s: still charged: %s %" PRIu64, end->role,
				      name_of_charge(charges[i].kind), charges[i].used);
			zero = false;
		}
	return zero;
}

char *demo_ledger(void)
{
	g_autoptr(JsonNode) ledger = ledger_view();
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	ledger_text(f, ledger);
	fclose(f);
	return text;
}

bool demo_end_close(struct demo_end *end)
{
	bool clean;

	if (escrow_close(end->engine, 0, ESCROW_CLOSE_GRACEFUL) < 0 ||
	    !demo_wait(end, ESCROW_EV_CLOSED, NULL))
		return false;
	clean = charges_are_zero(end);
	if (escrow_release(end->engine) != ESCROW_OK)
		return false;
	end->engine = NULL;
	escrow_module_unref(end->module);
	end->module = NULL;
	munmap(end->memory, mapped_bytes(end));
	return clean;
}

bool demo_end_abandon(struct demo_end *end)
{
	struct escrow_event e = {0};

	if (!end->engine || escrow_close(end->engine, 0, ESCROW_CLOSE_ABORT) < 0)
		return false;
	demo_wait_begins();
	do {
		demo_wait_goes_on(end, "the end of its engine");
		if (escrow_poll(end->engine, &e, 1) == 0)
			rest(end);
	} while (e.kind != ESCROW_EV_CLOSED && (e.kind != ESCROW_EV_QUARANTINED || e.object));
	if (e.kind == ESCROW_EV_QUARANTINED)
		tool_complain("%s: QUARANTINED: %" PRIu64 " bytes are withheld", end->role,
			      e.bytes);
	else if (charges_are_zero(end))
		tool_complain("%s: closed, and every charge is back", end->role);
	escrow_release(end->engine);
	end->engine = NULL;
	return false;
}
