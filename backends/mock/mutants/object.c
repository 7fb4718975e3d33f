/* SPDX-License-Identifier: BSD-2-Clause */
/* object.c - mutants of the object and its entry: clauses S, H2, A, L1. */
#include "backends/mock/mutants/mutant.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

MUTANT_UNUSED static const struct escrow_backend *real_entry(const struct escrow_hello *hello,
							     struct escrow_error *error);

#ifdef MUTANT_undefined_symbol
void defined_nowhere(void);
static const struct escrow_backend *bad_entry(const struct escrow_hello *hello,
					      struct escrow_error *error)
{
	if (hello == (const void *)error)
		defined_nowhere();
	return real_entry(hello, error);
}
#define ENTRY bad_entry
#endif

#ifdef MUTANT_constructor_crashes
__attribute__((constructor)) static void crash(void)
{
	raise(SIGSEGV);
}
#endif

#ifdef MUTANT_constructor_changes_signals
__attribute__((constructor)) static void ignore_pipe(void)
{
	signal(SIGUSR2, SIG_IGN);
}
#endif

#ifdef MUTANT_exports_extra
ENGINE_EXPORT void mock_helper(void);
void mock_helper(void)
{
}
#endif

#if defined MUTANT_linked_lazily || defined MUTANT_has_rpath || defined MUTANT_truncated ||        \
	defined MUTANT_entry_in_dependency
/* The build makes it so: see build. */
#endif

#ifdef MUTANT_static_tls
static __thread int counter __attribute__((tls_model("initial-exec")));
static const struct escrow_backend *bad_entry(const struct escrow_hello *hello,
					      struct escrow_error *error)
{
	counter++;
	return real_entry(hello, error);
}
#define ENTRY bad_entry
#endif

#ifdef MUTANT_entry_allocates
static const struct escrow_backend *bad_entry(const struct escrow_hello *hello,
					      struct escrow_error *error)
{
	static void *volatile last;

	last = malloc(16);
	return last ? real_entry(hello, error) : NULL;
}
#define ENTRY bad_entry
#endif

#ifdef MUTANT_entry_starts_thread
static void *idle(void *data)
{
	return data;
}

static const struct escrow_backend *bad_entry(const struct escrow_hello *hello,
					      struct escrow_error *error)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, idle, NULL) == 0)
		pthread_join(thread, NULL);
	return real_entry(hello, error);
}
#define ENTRY bad_entry
#endif

#ifdef MUTANT_entry_reads_environment
static const struct escrow_backend *bad_entry(const struct escrow_hello *hello,
					      struct escrow_error *error)
{
	return getenv("MOCK_DISABLED") ? NULL : real_entry(hello, error);
}
#define ENTRY bad_entry
#endif

#ifdef MUTANT_entry_per_call
static const struct escrow_backend *bad_entry(const struct escrow_hello *hello,
					      struct escrow_error *error)
{
	static struct escrow_backend copies[8];
	static unsigned int turn;
	const struct escrow_backend *real = real_entry(hello, error);
	struct escrow_backend *copy = &copies[turn++ % 8];

	if (!real)
		return NULL;
	*copy = *real;
	return copy;
}
#define ENTRY bad_entry
#endif

#ifdef MUTANT_ignores_range
static const struct escrow_backend *bad_entry(const struct escrow_hello *hello,
					      struct escrow_error *error)
{
	struct escrow_hello wide = *hello;

	wide.rev_min = wide.rev_max = ESCROW_REVISION;
	return real_entry(&wide, error);
}
#define ENTRY bad_entry
#endif

#ifdef MUTANT_revision_above_max
#define DESCRIPTOR .revision = 77,
#endif

#ifdef MUTANT_range_not_stated
static const struct escrow_backend *bad_entry(const struct escrow_hello *hello,
					      struct escrow_error *error)
{
	const struct escrow_backend *real = real_entry(hello, error);

	if (!real && error && error->status == ESCROW_E_REVISION)
		snprintf(error->text, sizeof(error->text), "no revision in common");
	return real;
}
#define ENTRY bad_entry
#endif

#ifdef MUTANT_null_mandatory_slot
#define SLOTS .transfer = NULL,
#endif

#ifdef MUTANT_bad_id
#define DESCRIPTOR .id = "Mock Backend",
#endif

#ifdef MUTANT_option_twice
#define OPTIONS                                                                                    \
	{                                                                                          \
		"mock.rails", "2", "how many rails there are: 1..16"                               \
	}
#endif

#ifdef MUTANT_default_refused
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	for (uint32_t i = 0; args && args->kv && i < args->nkv; i++)
		if (strcmp(args->kv[i].key, "mock.seed") == 0 &&
		    strcmp(args->kv[i].value, "1") == 0)
			return ESCROW_E_INVALID;
	return real_open(args, out, error);
}
#define OPEN bad_open
#endif

#ifdef MUTANT_size_zero
#define SLOTS .size = 0,
#endif

#ifdef MUTANT_no_entry
#define escrow_backend_entry_1 another_entry
ENGINE_EXPORT const struct escrow_backend *another_entry(const struct escrow_hello *hello,
							 struct escrow_error *error);
#endif

#if defined MUTANT_range_below_accepted || defined MUTANT_range_inverted_accepted ||               \
	defined MUTANT_hello_reserved_ignored || defined MUTANT_hello_tail_ignored
static const struct escrow_backend *bad_entry(const struct escrow_hello *hello,
					      struct escrow_error *error)
{
	struct escrow_hello copy;

#ifdef MUTANT_hello_tail_ignored
	if (!hello || hello->size < sizeof(copy))
#else
	if (!hello || hello->size != sizeof(copy))
#endif
		return real_entry(hello, error);
	copy = *hello;
#if defined MUTANT_range_below_accepted
	if (copy.rev_max < ESCROW_REVISION)
		copy.rev_min = copy.rev_max = ESCROW_REVISION;
#elif defined MUTANT_range_inverted_accepted
	if (copy.rev_min > copy.rev_max)
		copy.rev_min = copy.rev_max;
#elif defined MUTANT_hello_reserved_ignored
	copy.reserved0 = 0;
#else
	copy.size = sizeof(copy);
#endif
	return real_entry(&copy, error);
}
#define ENTRY bad_entry
#endif

#ifdef MUTANT_arm_absent
#define SLOTS .arm = NULL,
#endif

#include "backends/mock/mutants/ends.h"
