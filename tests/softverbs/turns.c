/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/turns.h"

#include <stdio.h>
#include <sys/random.h>

#include "tests/softverbs/adversary.h"
#include "tests/softverbs/log.h"
#include "tests/softverbs/softverbs.h"

#define TURNS_START_NS 1000000000u
/* What a call takes at most. */
#define TURNS_CALL_NS 2000u
/* One call in so many lets the device run, this many turns at most. */
#define TURNS_ONE_IN 3
#define TURNS_AT_ONCE 6

/* 0: threaded mode. */
static uint64_t turns_clock;
static softverbs_call_fn turns_watcher;

bool turns_on(void)
{
	return turns_clock != 0;
}

uint64_t turns_now(void)
{
	return turns_clock;
}

/* Time passes up to 'until', or to what the device has to do before; false if nothing came before. */
static bool turns_pass(uint64_t until, bool patient)
{
	uint64_t due = nic_due(patient);
	bool came = due <= until && due != UINT64_MAX;

	if (came)
		until = due;
	if (until != UINT64_MAX && until > turns_clock)
		turns_clock = until;
	if (came)
		nic_due(patient);
	return came;
}

void turns_call(const char *name)
{
	unsigned int turns;

	if (!turns_on())
		return;
	if (turns_watcher)
		turns_watcher(name);
	base_lock();
	turns_clock += 1 + adversary_pick(TURNS_CALL_NS);
	nic_due(false);
	turns = adversary_pick(TURNS_ONE_IN) ? 0 : adversary_pick(TURNS_AT_ONCE);
	while (turns-- && nic_step(adversary_pick))
		;
	base_unlock();
}

void turns_wait(const char *what)
{
	if (nic_step(adversary_pick) || turns_pass(UINT64_MAX, true))
		return;
	fprintf(stderr, "softverbs: deterministic mode: %s waits for ever\n", what);
	log_flush();
	abort();
}

void turns_settle(void)
{
	do {
		while (nic_step(adversary_pick))
			;
	} while (turns_pass(UINT64_MAX, true));
}

void turns_random(void *out, size_t size)
{
	uint8_t *to = out;

	if (!turns_on()) {
		(void)!getrandom(out, size, 0);
		return;
	}
	while (size--)
		*to++ = (uint8_t)adversary_pick(256);
}

EXPORT void softverbs_deterministic(uint64_t seed)
{
	base_lock();
	turns_clock = TURNS_START_NS;
	adversary_seed(seed);
	base_unlock();
}

EXPORT void softverbs_watch(softverbs_call_fn fn)
{
	turns_watcher = fn;
}

EXPORT int softverbs_step(void)
{
	bool did;

	base_lock();
	nic_due(false);
	did = turns_on() && nic_step(adversary_pick);
	base_unlock();
	return did;
}

EXPORT uint64_t softverbs_now(void)
{
	return base_now();
}

EXPORT int softverbs_pass(uint64_t ns)
{
	bool came;

	base_lock();
	came = turns_on() && turns_pass(turns_clock + ns, false);
	base_unlock();
	return came;
}

EXPORT void softverbs_random(void *out, size_t size)
{
	base_lock();
	turns_random(out, size);
	base_unlock();
}
