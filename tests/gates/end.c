/* SPDX-License-Identifier: BSD-2-Clause */
/* What both ends do: engine, memory, events, the hosts' own channel. */
#include "config.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/gates/gate.h"
#include "tools/demo.h"
#include "tools/json.h"
#include "tools/names.h"

#define REST_MS 20 /* the engine's descriptor and the channel wake earlier */

void end_fail(const struct gate_end *end, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "%s: ", end->role);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

const char *gate_device(uint32_t rail)
{
	static char names[2][32];
	const char *list = getenv("ESCROW_TEST_RAILS");
	g_auto(GStrv) rails = list ? g_strsplit(list, ",", -1) : NULL;

	if (!rails || g_strv_length(rails) <= rail)
		snprintf(names[rail], sizeof(names[rail]), "softverbs%u", rail);
	else
		snprintf(names[rail], sizeof(names[rail]), "%.*s", (int)strcspn(rails[rail], ":"),
			 rails[rail]);
	return names[rail];
}

/* ---- Engine and memory -------------------------------------------------------------------------------- */
static void freed(void *ctx, void *addr, uint64_t length)
{
	struct gate_end *end = ctx;

	(void)length;
	if (addr == end->memory)
		end->freed++;
	else
		end->freed_old++;
}

static void print_log(void *ctx, int32_t level, const char *component, const char *text)
{
	(void)level;
	fprintf(stderr, "%s: %s: %s\n", ((struct gate_end *)ctx)->role, component, text);
}

static void open_engine(struct gate_end *end)
{
	const struct gate_case *c = end->set;
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_load_args load = {.size = sizeof(load),
					.name = gate_on_mock(c) ? "mock" : "rdma"};
	const char *settings[] = {c->lanes == 4 ? "num_lanes=4" : "num_lanes=1",
				  c->events ? "events=1" : "events=0",
				  "max_rails=2",
				  "drain_ms=1000",
				  NULL,
				  NULL,
				  NULL};
	struct escrow_host_args host = {
		.size = sizeof(host),
		.flags = c->write ? ESCROW_GUARD_WRITES : 0,
		.engine_name = end->role,
		.settings = settings,
		.log = print_log,
		.log_level = ESCROW_LOG_ERROR,
		.ctx = end,
	};

	if (gate_on_mock(c))
		settings[4] = "test.faults=1";
	if (end->faulted && c->weak) {
		settings[4] = "weak.reset=1";
		settings[5] = gate_windows_weak(c) ? "weak.dealloc_window=1" : NULL;
	}
	if (escrow_load(&load, &end->module, &error) != ESCROW_OK)
		end_fail(end, "load: %s", error.text);
	host.module = end->module;
	if (escrow_open(&host, &end->engine, &error) != ESCROW_OK)
		end_fail(end, "open: %s", error.text);
	if (gate_on_mock(c))
		end->faults = escrow_get_extension(end->engine, ESCROW_FAULT_ID);
}

/* The extension is asked by the engine under the host's. */
int64_t end_mock_calls(const struct gate_end *end, uint32_t step)
{
	const struct escrow_ops *slots;

	return end->faults->calls(escrow_backend_engine(end->engine, &slots), step);
}

uint64_t end_calls(const struct gate_end *end)
{
	struct observer_state state;
	uint64_t n = 0;
	uint32_t step;

	observer_state(&state);
	for (step = ESCROW_STEP_REGISTER; end->faults && step < ESCROW_STEP_POST; step++)
		n += (uint64_t)end_mock_calls(end, step);
	return end->faults ? n : state.calls;
}

uint32_t end_qps(const struct gate_end *end)
{
	struct observer_state state;

	observer_state(&state);
	return end->faults ? (uint32_t)end_mock_calls(end, ESCROW_STEP_CREATE_QP)
			   : state.created_qps;
}

void end_open(struct gate_end *end)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region region = {
		.size = sizeof(region),
		.memory_kind = ESCROW_MEMORY_HOST,
		.length = GATE_MEMORY,
		.dmabuf_fd = -1,
		.free = freed,
		.free_ctx = end,
	};

	open_engine(end);
	end->memory =
		mmap(NULL, GATE_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (end->memory == MAP_FAILED)
		end_fail(end, "no memory");
	memset(end->memory, DEMO_GUARD_BYTE, GATE_MEMORY);
	region.addr = end->memory;
	if (escrow_register(end->engine, &region, &end->region, &error) != ESCROW_OK)
		end_fail(end, "register: %s", error.text);
}

bool end_guards(const struct gate_end *end)
{
	const uint8_t *behind = end->memory + GATE_GUARD + GATE_PAYLOAD;

	for (uint32_t i = 0; i < GATE_GUARD; i++)
		if (end->memory[i] != DEMO_GUARD_BYTE || behind[i] != DEMO_GUARD_BYTE)
			return false;
	return true;
}

/* ---- Events -------------------------------------------------------------------------------------------- */
static struct gate_op *op_of(struct gate_end *end, uint64_t id)
{
	for (uint32_t i = 0; i < GATE_PARENTS; i++)
		if (end->ops[i].id == id)
			return &end->ops[i];
	end_fail(end, "an event of an op that is not there");
}

static void note_op(struct gate_end *end, const struct escrow_event *e)
{
	struct gate_op *op = op_of(end, e->object);

	if (e->kind == ESCROW_EV_OP_RETURNED) {
		op->returned++;
		return;
	}
	op->done++;
	op->status = e->status;
	op->custody = e->custody;
	op->effect = e->effect;
}

static void note_quarantined(struct gate_end *end, const struct escrow_event *e)
{
	if (e->object == end->region)
		end->region_stuck++;
	else if (e->object && e->object == end->object)
		end->grant_stuck++;
	else if (!e->object && e->flags & ESCROW_EVF_REPEAT)
		end->repeats++;
	else if (!e->object)
		end->seen[ESCROW_EV_QUARANTINED]++;
}

static void note(struct gate_end *end, const struct escrow_event *e)
{
	if (e->kind == ESCROW_EV_OP_DONE || e->kind == ESCROW_EV_OP_RETURNED)
		note_op(end, e);
	if (e->kind == ESCROW_EV_QUARANTINED) {
		note_quarantined(end, e);
		return;
	}
	if (e->kind == ESCROW_EV_PEER_UP)
		end->peer = e->object;
	if (e->kind == ESCROW_EV_PEER_DOWN)
		end->down = e->status;
	if (e->kind < G_N_ELEMENTS(end->seen))
		end->seen[e->kind]++;
}

static void rest(struct gate_end *end)
{
	struct pollfd fds[2] = {{.fd = end->channel, .events = POLLIN},
				{.fd = -1, .events = POLLIN}};
	bool armed = end->set->events && escrow_arm(end->engine) == ESCROW_OK;

	if (end->set->events && !armed)
		return;
	if (armed)
		fds[1].fd = escrow_event_fd(end->engine);
	/* Polling means to look all the time; a millisecond leaves the machine to the other end. */
	poll(fds, 2, end->set->events ? REST_MS : 1);
}

int32_t end_turn(struct gate_end *end)
{
	struct escrow_event events[32];
	int32_t n = escrow_poll(end->engine, events, G_N_ELEMENTS(events));

	if (n < 0)
		end_fail(end, "poll: %s", escrow_status_name(n));
	for (int32_t i = 0; i < n; i++)
		note(end, &events[i]);
	if (n == 0)
		rest(end);
	return n;
}

void end_wait(struct gate_end *end, uint16_t kind)
{
	bool alone = kind == ESCROW_EV_PEER_DOWN || kind == ESCROW_EV_CLOSED;

	while (!end->seen[kind]) {
		end_turn(end);
		if (alone || end->seen[kind])
			continue;
		if (end->seen[ESCROW_EV_PEER_DOWN])
			end_fail(end, "PEER_DOWN (%s) while waiting for %s",
				 escrow_status_name(end->down), name_of_event(kind));
		if (demo_channel_gone(end->channel))
			end_fail(end, "the other end is gone while waiting for %s",
				 name_of_event(kind));
	}
}

/* ---- Words ----------------------------------------------------------------------------------------------- */
void end_say(struct gate_end *end, enum gate_word word, uint64_t number, const void *bytes,
	     uint32_t len)
{
	demo_send(end->channel, (enum demo_word)word, number, bytes, len);
}

struct demo_message *end_hear(struct gate_end *end, enum gate_word word)
{
	static struct demo_message message;
	int n;

	while ((n = demo_receive(end->channel, &message)) == 0)
		end_turn(end);
	if (n < 0)
		return NULL;
	if (message.word != (uint32_t)word)
		end_fail(end, "word %u instead of %u", message.word, word);
	return &message;
}

/* ---- Ops --------------------------------------------------------------------------------------------------- */
static void submit(struct gate_end *end, uint32_t i)
{
	struct escrow_sge sge = {end->region, GATE_GUARD + GATE_PARENT_BYTES * i,
				 GATE_PARENT_BYTES};
	struct escrow_op op = {
		.user = i,
		.remote = end->object,
		.remote_offset = GATE_PARENT_BYTES * i,
		.opcode = end->set->write ? ESCROW_WRITE : ESCROW_READ,
		.nsge = 1,
		.sge = &sge,
	};
	int32_t n;

	memset(&end->ops[i], 0, sizeof(end->ops[i]));
	do {
		n = escrow_transfer(end->engine, &op, 1, sizeof(op), 0, &end->ops[i].id);
		if (n != 1 && n != ESCROW_E_AGAIN)
			end_fail(end, "transfer: %s", escrow_status_name(n));
		/* Nothing of a round is done before all of it was started, as far as that goes. */
		if (n != 1)
			end_turn(end);
	} while (n != 1);
}

void end_submit(struct gate_end *end)
{
	for (uint32_t i = 0; i < GATE_PARENTS; i++)
		submit(end, i);
}

bool end_ops_done(const struct gate_end *end)
{
	for (uint32_t i = 0; i < GATE_PARENTS; i++)
		if (!end->ops[i].done)
			return false;
	return true;
}

void end_renew(struct gate_end *end)
{
	end->faulted = false;
	end->freed = 0;
	end->region = end->peer = end->object = 0;
	end->region_stuck = end->grant_stuck = end->repeats = 0;
	memset(end->seen, 0, sizeof(end->seen));
	memset(end->ops, 0, sizeof(end->ops));
	end_open(end);
}

/* ---- The end ------------------------------------------------------------------------------------------------- */
static uint64_t charged(struct gate_end *end)
{
	struct escrow_charge charges[64];
	int32_t n = escrow_charges(end->engine, charges, G_N_ELEMENTS(charges));
	uint64_t used = 0;

	for (int32_t i = 0; i < n && i < (int32_t)G_N_ELEMENTS(charges); i++)
		used += charges[i].used;
	return used;
}

void end_close(struct gate_end *end)
{
	if (escrow_close(end->engine, 0, ESCROW_CLOSE_GRACEFUL) < 0)
		end_fail(end, "close");
	while (!end->seen[ESCROW_EV_CLOSED] && !end->seen[ESCROW_EV_QUARANTINED])
		end_turn(end);
	json_add_bool(end->facts, "closed", end->seen[ESCROW_EV_CLOSED] > 0);
	json_add_number(end->facts, "charged", charged(end));
	json_add_bool(end->facts, "guards", end_guards(end));
	json_add_number(end->facts, "freed", end->freed);
	json_add_string(end->facts, "release", escrow_status_name(escrow_release(end->engine)));
	escrow_module_unref(end->module);
}

void end_write(struct gate_end *end)
{
	g_autofree char *path = g_strdup_printf("%s/%s.json", end->folder, end->role);
	g_autoptr(GError) error = NULL;
	g_autoptr(JsonNode) root = NULL;
	g_autofree char *text = NULL;

	json_builder_end_object(end->facts);
	root = json_builder_get_root(end->facts);
	text = json_to_string(root, TRUE);
	if (!g_file_set_contents(path, text, -1, &error))
		end_fail(end, "%s", error->message);
}
