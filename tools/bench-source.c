/* SPDX-License-Identifier: BSD-2-Clause */
/* The end that lends; and what both ends know of the bytes. */
#include "config.h"

#include <string.h>

#include "tools/bench.h"
#include "tools/tool.h"

#define SLEEP_MS 500 /* the requester is not to notice this process */

char **bench_settings(char *const *settings, guint64 rails, guint64 lanes)
{
	g_autoptr(GStrvBuilder) all = g_strv_builder_new();
	const struct {
		const char *key;
		guint64 value;
	} numbers[] = {{"max_rails", rails}, {"num_lanes", lanes}};

	for (; settings && *settings; settings++)
		g_strv_builder_add(all, *settings);
	for (guint i = 0; i < G_N_ELEMENTS(numbers); i++) {
		g_autofree char *setting =
			g_strdup_printf("%s=%" G_GUINT64_FORMAT, numbers[i].key, numbers[i].value);

		if (numbers[i].value) /* 0 leaves it to the backend */
			g_strv_builder_add(all, setting);
	}
	return g_strv_builder_end(all);
}

/* ---- Bytes --------------------------------------------------------------------------------------------- */
/* Each block of each point has a pattern of its own, so that one in the place of another is seen. */
static uint64_t pattern(const struct bench_work *w, bool write, uint64_t number, uint32_t thread,
			uint32_t place)
{
	return 2 * (number * 1000003u + (uint64_t)thread * w->places + place) + write;
}

void bench_fill(struct demo_end *end, const struct bench_work *w, bool write, uint64_t number)
{
	for (uint32_t t = 0; t < w->threads; t++)
		for (uint32_t p = 0; p < w->places; p++)
			demo_fill(end->memory + DEMO_GUARD + bench_offset(w, write, t, p), w->size,
				  pattern(w, write, number, t, p));
}

bool bench_check(const struct demo_end *end, const struct bench_work *w, bool write,
		 uint64_t number)
{
	for (uint32_t t = 0; t < w->threads; t++)
		for (uint32_t p = 0; p < w->places; p++)
			if (!demo_check(end->memory + DEMO_GUARD + bench_offset(w, write, t, p),
					w->size, pattern(w, write, number, t, p)))
				return false;
	return demo_guards_intact(end);
}

/* ---- Serving --------------------------------------------------------------------------------------------- */
/* What comes over the channel is not trusted to fit into the memory. */
static bool fits(const struct demo_end *end, const struct demo_message *m, struct bench_work *w)
{
	if (m->len != sizeof(*w))
		return false;
	memcpy(w, m->bytes, sizeof(*w));
	return w->threads >= 1 && w->threads <= BENCH_MAX_THREADS && w->size >= 1 &&
	       w->size <= end->payload && w->batch <= BENCH_MAX_BATCH &&
	       w->window <= BENCH_MAX_WINDOW && w->area == end->payload / 2 &&
	       w->places == bench_places(w);
}

/* One thing the requester asked for.  1: go on, 0: it is done with the grant, -1: failed. */
static int answer(struct demo_end *end, struct bench_raw *raw, struct demo_message *m)
{
	struct bench_work w;
	bool right = true;

	if (m->word == DEMO_REVOKE)
		return demo_source_part(end) ? 0 : -1;
	if (m->word == DEMO_BASELINE)
		return bench_raw_answer(raw, end->set, end->channel, m) ? 1 : -1;
	if ((m->word != DEMO_FILL && m->word != DEMO_CHECK) || !fits(end, m, &w)) {
		tool_complain("bench: the requester talks nonsense");
		return -1;
	}
	if (m->word == DEMO_CHECK)
		right = bench_check(end, &w, true, m->number);
	else {
		bench_fill(end, &w, false, m->number);
		memset(end->memory + DEMO_GUARD + w.area, 0, w.area);
	}
	return demo_send(end->channel, m->word == DEMO_CHECK ? DEMO_CHECKED : DEMO_FILLED, right,
			 NULL, 0)
		       ? 1
		       : -1;
}

static bool still_there(struct demo_end *end, const struct escrow_event *e)
{
	(void)end;
	return e->kind != ESCROW_EV_PEER_LOST && e->kind != ESCROW_EV_DEVICE;
}

/* Sleeps between messages where it can, so that it takes no CPU from the requester. */
static bool serve(struct demo_end *end, struct bench_raw *raw, struct demo_message *m)
{
	int more = 1;

	while (more > 0) {
		int n = demo_receive(end->channel, m);

		if (n < 0) {
			tool_complain("bench: the other end %s", demo_end_did(n));
			return false;
		}
		if (n > 0)
			more = answer(end, raw, m);
		else if (!demo_turn(end, still_there))
			return false;
	}
	return more == 0;
}

static bool session(const struct demo_settings *given, int channel, struct demo_message *m)
{
	struct bench_session wanted;
	struct demo_settings set = *given;
	struct demo_end end = {.set = &set, .role = "source", .channel = channel};
	struct bench_raw raw = {.pid = 0};
	g_auto(GStrv) settings = NULL;
	bool served, clean;

	if (m->word != DEMO_SESSION || m->len != sizeof(wanted)) {
		tool_complain("bench: the requester talks nonsense");
		return false;
	}
	memcpy(&wanted, m->bytes, sizeof(wanted));
	settings = bench_settings(given->settings, wanted.rails, wanted.lanes);
	set.settings = settings;
	set.parents = 1;
	set.parent_bytes = (gint64)wanted.payload;
	set.hugepages = wanted.hugepages;
	set.events = true;
	set.wait_ms = SLEEP_MS;
	served = demo_end_open(&end) && demo_source_meet(&end, m) && serve(&end, &raw, m);
	bench_raw_stop(&raw);
	if (!served)
		return demo_end_abandon(&end);
	clean = demo_end_close(&end);
	return demo_send(channel, DEMO_LEDGER, clean, NULL, 0) && clean;
}

bool bench_source(const struct demo_settings *set, int channel)
{
	g_autofree struct demo_message *m = g_new0(struct demo_message, 1);

	int n, sessions = 0;

	for (; (n = demo_await(channel, m)) > 0; sessions++)
		if (!session(set, channel, m))
			return false;
	/* Having measured, the requester just goes. */
	if (n == DEMO_GONE && sessions)
		return true;
	tool_complain("bench: the other end %s", demo_end_did(n));
	return false;
}
