/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that change the process for good and leave no trace to compare.  The program is linked so
 * that its dynamic table has these names; the loader binds the object's references to them first,
 * and they pass on to libc.  Only who called is noted here: whether it was the object is asked when
 * it is known where that lies.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/conform/ambient.h"
#include "tests/conform/verdict.h"

#define WATCH __attribute__((visibility("default")))
#define CALLS 256u

struct watched {
	const char *name;
	const char *clause;
	const void *caller;
};

static struct watched calls[CALLS];
static uint32_t ncalls;
static bool with_getenv;

static void note(const char *name, const char *clause, const void *caller)
{
	uint32_t i = __atomic_fetch_add(&ncalls, 1, __ATOMIC_RELAXED);

	if (i < CALLS) {
		calls[i].name = name;
		calls[i].clause = clause;
		__atomic_store_n(&calls[i].caller, caller, __ATOMIC_RELEASE);
	}
}

#define NEXT(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))
#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

int __cxa_atexit(void (*f)(void *), void *arg, void *dso);
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso);

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
WATCH int __cxa_atexit(void (*f)(void *), void *arg, void *dso)
{
	note("atexit", "U3", CALLER);
	return NEXT(__cxa_atexit)(f, arg, dso);
}

WATCH int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			    void *dso)
{
	note("pthread_atfork", "T5", CALLER);
	return NEXT(__register_atfork)(prepare, parent, child, dso);
}

WATCH int pthread_key_create(pthread_key_t *key, void (*destructor)(void *))
{
	if (destructor)
		note("pthread_key_create with a destructor", "T5", CALLER);
	return NEXT(pthread_key_create)(key, destructor);
}
#endif

WATCH int on_exit(void (*f)(int, void *), void *arg)
{
	note("on_exit", "U3", CALLER);
	return NEXT(on_exit)(f, arg);
}

WATCH int setenv(const char *name, const char *value, int overwrite)
{
	note("setenv", "T5", CALLER);
	return NEXT(setenv)(name, value, overwrite);
}

WATCH int unsetenv(const char *name)
{
	note("unsetenv", "T5", CALLER);
	return NEXT(unsetenv)(name);
}

WATCH int putenv(char *text)
{
	note("putenv", "T5", CALLER);
	return NEXT(putenv)(text);
}

WATCH char *getenv(const char *name)
{
	if (with_getenv)
		note("getenv", "A1", CALLER);
	return NEXT(getenv)(name);
}

WATCH pid_t fork(void)
{
	note("fork", "F2", CALLER);
	return NEXT(fork)();
}

void ambient_watch_getenv(bool on)
{
	with_getenv = on;
}

void ambient_judge_calls(const struct subject *s)
{
	uint32_t i;

	for (i = 0; i < ncalls && i < CALLS; i++)
		expect_as(calls[i].clause, !subject_owns(s, calls[i].caller),
			  "the object called %s", calls[i].name);
}
