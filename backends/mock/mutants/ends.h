/* SPDX-License-Identifier: BSD-2-Clause */
/* ends.h - the end of each family: the object of the mutant that was chosen. */
#ifndef MUTANT_ENDS_H
#define MUTANT_ENDS_H

#ifndef SLOTS
#define SLOTS
#endif
#ifndef DESCRIPTOR
#define DESCRIPTOR
#endif
#ifndef OPEN
#define OPEN real_open
#endif

/* ---- Events --------------------------------------------------------------------------------- */
static struct {
	struct escrow_engine *engine;
	struct escrow_event event;
} again[16];
static uint32_t nagain;

static void event_again(struct escrow_engine *e, const struct escrow_event *event)
{
	if (nagain == 16)
		return;
	again[nagain].engine = e;
	again[nagain++].event = *event;
}

#ifdef EVENTS
static uint64_t seq = 1000; /* one for all engines rises strictly for each */

/* Those that wait, into the array from `at` on; the new length of it. */
static int32_t put_again(struct escrow_engine *e, char *events, int32_t at, uint32_t max,
			 uint32_t stride)
{
	for (uint32_t i = 0; i < nagain && (uint32_t)at < max;) {
		if (again[i].engine != e) {
			i++;
			continue;
		}
		again[i].event.seq = ++seq;
		memcpy(events + (size_t)at++ * stride, &again[i].event, sizeof(again[i].event));
		nagain--;
		memmove(&again[i], &again[i + 1], sizeof(again[0]) * (nagain - i));
	}
	return at;
}

static int32_t mutant_poll(struct escrow_engine *e, struct escrow_event *events, uint32_t max,
			   uint32_t stride, uint32_t flags)
{
	char *to = (char *)events;
	int32_t n, count = 0;

	if (!events || stride < sizeof(*events) || stride % 8 || flags)
		return engine_poll(e, events, max, stride, flags);
	/* One by one, so that nothing is written behind what is returned. */
	while ((uint32_t)count < max) {
		struct escrow_event event;

#ifdef EVENTS_FIRST
		count = put_again(e, to, count, max, stride);
		if ((uint32_t)count == max)
			break;
#endif
		n = engine_poll(e, &event, 1, sizeof(event), 0);
		if (n <= 0)
			return n < 0 ? n : put_again(e, to, count, max, stride);
		if (!mutant_event(e, &event))
			continue;
		event.seq = ++seq;
		memcpy(to + (size_t)count++ * stride, &event, sizeof(event));
		count = put_again(e, to, count, max, stride);
	}
	return count;
}
#endif

/* ---- The device below ------------------------------------------------------------------------ */
#ifdef NATIVE
static struct native_ops native_table;
static const struct engine_backend self = {.native = &native_table, .version = "1"};
#else
static const struct engine_backend self = {.native = &mock_native, .version = "1"};
#endif

static escrow_status real_open(const struct escrow_open_args *args, struct escrow_engine **out,
			       struct escrow_error *error)
{
#ifdef NATIVE
	if (!native_table.id)
		native_table = mock_native;
	NATIVE(&native_table);
#endif
	return engine_open(&self, args, out, error);
}

/* ---- The object ------------------------------------------------------------------------------ */
/* Slots that are given twice are the point here. */
#pragma GCC diagnostic ignored "-Woverride-init"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#endif
static const struct escrow_option options[] = {
#ifdef OPTIONS
	OPTIONS,
#endif
	ENGINE_OPTIONS MOCK_OPTIONS};

static const struct escrow_ops slots = {.size = sizeof(struct escrow_ops),
					.release = engine_release,
					.open = OPEN,
					.query = engine_query,
					.register_memory = engine_register_memory,
					.deregister_memory = engine_deregister_memory,
					.invite = engine_invite,
					.connect = engine_connect,
					.disconnect = engine_disconnect,
					.peer_info = engine_peer_info,
					.grant = engine_grant,
					.export_grant = engine_export_grant,
					.revoke = engine_revoke,
					.import_grant = engine_import_grant,
					.forget_grant = engine_forget_grant,
					.transfer = engine_transfer,
					.cancel = engine_cancel,
#ifdef EVENTS
					.poll = mutant_poll,
#else
					.poll = engine_poll,
#endif
					.event_fd = engine_event_fd,
					.arm = engine_arm,
					.quiesce = engine_quiesce,
					.resume = engine_resume,
					.drain = engine_drain,
					.close = engine_close,
					.charges = engine_charges,
					.records = engine_records,
					.get_extension = engine_get_extension,
					SLOTS};

static const struct escrow_backend descriptor = {.size = sizeof(struct escrow_backend),
						 .revision = ESCROW_REVISION,
						 .id = "mock",
						 .version = "1",
						 .residency = ESCROW_RESIDENCY_STAYS,
						 .caps = ENGINE_CAPS | MOCK_CAPS,
						 .memory_kinds = UINT64_C(1) << ESCROW_MEMORY_HOST,
						 .options = options,
						 .noptions = sizeof(options) / sizeof(options[0]),
						 .options_stride = sizeof(options[0]),
						 .ops = &slots,
						 DESCRIPTOR};

static const struct escrow_backend *real_entry(const struct escrow_hello *hello,
					       struct escrow_error *error)
{
	return engine_entry(&descriptor, hello, error);
}

const struct escrow_backend *escrow_backend_entry_1(const struct escrow_hello *hello,
						    struct escrow_error *error)
{
#ifdef ENTRY
	return ENTRY(hello, error);
#else
	return real_entry(hello, error);
#endif
}

#endif
