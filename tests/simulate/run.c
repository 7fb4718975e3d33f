/* SPDX-License-Identifier: BSD-2-Clause */
/* run.c - one run, in a process of its own. */
#include "tests/simulate/run.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <glib.h>

#include "backends/engine/entry.h"
#include "backends/rdma/options.h"
#include "backends/rdma/rdma.h"
#include "tests/softverbs/softverbs.h"

#define WIND_DOWN 20000    /* rounds */
#define REST_NS 200000000u /* far more than the adversary makes anything late */
#define RENEW_NS                                                                                   \
	500000000u /* and than who renews waits for who has gone: 5 times connect_ms (act.c) */
#define LINGER_NS 200000000u /* longer than softverbs delays a packet */
#define FENCED 20            /* rounds, for the events of what was fenced */
/* Of the processor, and of the clock: how much of the one a run gets in how much of the other, the machine decides. */
#define BUSY_S 60
#define ALARM_S 1800

/* The RDMA backend as it is, but for one word of its native table: no thread takes its native steps. */
static struct native_ops table;
static const struct engine_backend self = {.native = &table, .version = "1"};
static const struct escrow_option backend_options[] = {ENGINE_OPTIONS RDMA_OPTIONS};
ENGINE_BACKEND(&self, "rdma", "1", ESCROW_CAP_REMOTE, UINT64_C(1) << ESCROW_MEMORY_HOST,
	       backend_options)

struct sim sim;

static GChecksum *digest;
FILE *run_trace;
const char *run_device;
static uint64_t draw;

/* ---- What the rest of the simulation uses ------------------------------------------------------------- */
static __attribute__((noreturn)) void leave(int status)
{
	if (run_trace)
		fflush(run_trace);
#ifdef __SANITIZE_ADDRESS__
	/* What a quarantined engine keeps is meant to be kept. */
	_exit(status);
#else
	exit(status); /* writes coverage */
#endif
}

void sim_trace(const char *format, ...)
{
	char line[512];
	va_list args;
	int n, m;

	/* Most runs are neither compared nor read. */
	if (!digest && !run_trace)
		return;
	n = g_snprintf(line, sizeof(line), "%u %" PRIu64 " ", sim.step, softverbs_now());
	va_start(args, format);
	m = g_vsnprintf(line + n, sizeof(line) - (gulong)n - 1, format, args);
	va_end(args);
	n = MIN(n + m, (int)sizeof(line) - 2);
	line[n] = '\n';
	line[n + 1] = 0;
	if (digest)
		g_checksum_update(digest, (const guchar *)line, n + 1);
	if (run_trace)
		fputs(line, run_trace);
}

void sim_fail(const char *rule, const char *format, ...)
{
	va_list args;

	g_strlcpy(outcome->rule, rule, sizeof(outcome->rule));
	va_start(args, format);
	g_vsnprintf(outcome->text, sizeof(outcome->text), format, args);
	va_end(args);
	sim_trace("FAIL %s: %s", rule, outcome->text);
	leave(1);
}

/* splitmix64 (Steele, Lea, Flood 2014). Each step draws from its own number, so that a step left out does
 * not change what the others draw. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

uint32_t sim_pick(uint32_t below)
{
	draw += UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)((mix(draw) >> 32) * below >> 32);
}

static void begin_step(uint32_t step)
{
	sim.step = outcome->step = step;
	draw = mix(sim.seed * UINT64_C(0x9e3779b97f4a7c15) + step);
}

/* Without a number of what was drawn before: the seeds of before it keep theirs. */
static bool draw_renews(void)
{
	uint64_t kept = draw;
	bool renews;

	begin_step(UINT32_MAX);
	renews = sim_chance(4);
	begin_step(0);
	draw = kept;
	return renews;
}

/* ---- One run --------------------------------------------------------------------------------------------- */
/* One run in four has nothing but bad timing; of the others each fault is in a third. */
static void draw_run(void)
{
	static const char *const devices[] = {"mlx5", "mlx5", "rxe", "old-kernel"};
	static char number[16];
	const char *device;
	uint32_t i;

	begin_step(0);
	sim.nengines = 2 + sim_pick(SIM_ENGINES - 1);
	sim.rails = 1 + sim_pick(2);
	sim.nops = 1;
	if (sim_pick(4))
		for (i = 0; i < 10; i++)
			sim.faults |= sim_chance(3) ? 1u << i : 0;
	g_snprintf(number, sizeof(number), "%u", sim.rails);
	g_setenv("SOFTVERBS_RAILS", number, TRUE);
	g_setenv("SOFTVERBS_ADVERSARY", sim_chance(5) ? "0" : "1", TRUE);
	device = devices[sim_pick(G_N_ELEMENTS(devices))];
	if (sim_chance(8)) /* drawn last, so that the seeds of before it keep their device */
		device = "irdma";
	if (run_device)
		device = run_device;
	sim.renews = draw_renews();
	if (strcmp(device, "irdma") == 0)
		sim.faults |= SIM_WEAK;
	/* Alone, too: what that leaves behind is seen best. */
	if (sim_chance(sim.faults ? 6 : 5))
		sim.faults |= SIM_QUEUE;
	g_setenv("SOFTVERBS_PERSONALITY", device, TRUE);
	g_setenv("SOFTVERBS_STRICT", "1", TRUE);
}

static void open_all(void)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_hello hello = {
		.size = sizeof(hello), .rev_min = 1, .rev_max = 1, .host = &world_host};
	const struct escrow_backend *b = escrow_backend_entry_1(&hello, &error);
	uint32_t i;

	table = rdma_native;
	table.control_thread = 0;
	if (!b)
		sim_fail("L1", "entry: %s", error.text);
	sim_ops = b->ops;
	for (i = 0; i < sim.nengines; i++) {
		sim.engines[i].slot = i;
		world_areas(&sim.engines[i]);
		sim.engines[i].state = ENDED;
		act_open(&sim.engines[i]);
	}
}

static bool all_ended(void)
{
	uint32_t i;

	for (i = 0; i < sim.nengines; i++) {
		struct engine *e = &sim.engines[i];

		if (e->engine &&
		    (e->state == ENDED || (e->state == STUCK && !sim.late && !e->fenced)))
			act_release(e);
		if (e->engine && (e->state != STUCK || e->fenced))
			return false;
	}
	return true;
}

/* One round of all; time passes whenever nothing else is to be done. */
static void round_of_all(void)
{
	uint64_t events = sim.n.events;
	uint32_t i;

	for (i = 0; i < sim.nengines; i++) {
		act_poll(&sim.engines[i]);
		message_receive(&sim.engines[i], true);
	}
	judge_calls();
	if (events == sim.n.events && !softverbs_step())
		softverbs_pass(1000000u);
}

/* Where nothing is wrong ops end without anybody's help, and where only queues broke none is put on those. */
static void come_to_rest(void)
{
	uint64_t end = softverbs_now() + (sim.renews ? REST_NS + RENEW_NS : REST_NS);

	while (softverbs_now() < end)
		round_of_all();
	judge_rest();
}

static void pull_out(void)
{
	uint32_t i;

	sim.faults |= SIM_FATAL;
	sim.fenced = true;
	for (i = 0; i < sim.rails; i++)
		softverbs_remove((int)i);
}

/* The devices are pulled out, and who did so says it, before the engines have ended. */
static void fence_early(void)
{
	uint32_t i;

	sim_trace("pulled out");
	pull_out();
	for (i = 0; i < sim.nengines; i++)
		judge_fence_early(&sim.engines[i]);
}

/* When: in the last steps; or this round of the end, of which 0 is before the close.  Most often never. */
static struct {
	uint32_t step, round;
} early = {UINT32_MAX, UINT32_MAX};

static void draw_early(void)
{
	begin_step(sim.steps + 2);
	if (!sim.faults || !sim_chance(4))
		return;
	if (sim_chance(3))
		early.step = sim.steps - sim_pick(40);
	else
		early.round = sim_chance(2) ? 0 : sim_pick(20);
}

/* Everything is closed and ends. */
static void wind_down(void)
{
	uint32_t i, round;

	begin_step(sim.steps + 1);
	sim.winding_down = true;
	sim.late = sim_chance(2);
	nature_calm();
	if (!(sim.faults & ~SIM_QUEUE))
		come_to_rest();
	if (!early.round) {
		fence_early();
		for (round = sim_pick(20); round; round--)
			round_of_all();
	}
	for (i = 0; i < sim.nengines; i++)
		act_close(&sim.engines[i], sim_chance(2));
	for (round = 0; round < WIND_DOWN && !all_ended(); round++) {
		if (round && round == early.round)
			fence_early();
		round_of_all();
	}
	judge_end();
}

/* The device goes on: what it still touches must not be the host's. */
static void linger(void)
{
	uint64_t end = softverbs_now() + LINGER_NS;

	while (softverbs_now() < end)
		if (!softverbs_step())
			softverbs_pass(end - softverbs_now());
}

/* The devices are pulled out, so what waits for them has its proof: of engines that are there, and of others. */
static void fence(void)
{
	uint32_t i;

	if (!sim.fenced)
		pull_out();
	for (i = 0; i < sim.nengines; i++)
		judge_fence(&sim.engines[i]);
	for (i = 0; i < FENCED; i++)
		round_of_all();
	for (i = 0; i < sim.nengines; i++)
		judge_fenced(&sim.engines[i]);
	judge_fence_residue();
}

static void run(const GArray *skip)
{
	uint32_t step, i;

	draw_run();
	softverbs_deterministic(sim.seed);
	softverbs_watch(act_beside);
	world_start();
	sim_trace("seed %" PRIu64 " engines %u rails %u faults 0x%x", sim.seed, sim.nengines,
		  sim.rails, sim.faults);
	open_all();
	draw_early();
	for (step = 1; step <= sim.steps; step++) {
		for (i = 0; i < skip->len && g_array_index(skip, uint32_t, i) != step; i++)
			;
		if (i < skip->len)
			continue;
		begin_step(step);
		if (step == early.step)
			fence_early();
		act_random();
		if (sim.faults && sim_chance(6))
			nature_random();
		judge_calls();
	}
	wind_down();
	linger();
	if (sim.late || sim_chance(2))
		fence();
	sim_trace("end");
	outcome->done = true;
}

/* softverbs ends a program that breaks one of its rules; the trace up to there is wanted. */
static void aborted(int sig)
{
	sim_trace("aborted");
	if (run_trace)
		fflush(run_trace);
	signal(sig, SIG_DFL);
	raise(sig);
}

void run_child(const GArray *skip, const char *said, bool digested)
{
	const struct itimerval busy = {.it_value = {BUSY_S, 0}};

	signal(SIGPIPE, SIG_IGN);
	setitimer(ITIMER_PROF, &busy, NULL);
	alarm(ALARM_S);
	signal(SIGABRT, aborted);
	if (!freopen(said, "w", stderr) || setvbuf(stderr, NULL, _IONBF, 0))
		_exit(2);
	digest = digested ? g_checksum_new(G_CHECKSUM_SHA256) : NULL;
	run(skip);
	if (digest)
		g_strlcpy(outcome->digest, g_checksum_get_string(digest), sizeof(outcome->digest));
	outcome->n = sim.n;
	leave(0);
}
