/* SPDX-License-Identifier: BSD-2-Clause */
/* life.c - mutants of states, blocking, the process and the host: clauses G, T to U, X. */
#include "backends/mock/mutants/mutant.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>

#include <escrow/counters.h>

MUTANT_UNUSED static void wait_ms(unsigned int ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&time, NULL);
}

/* ---- States --------------------------------------------------------------------------------- */
#ifdef MUTANT_open_quiesced
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = real_open(args, out, error);

	if (st == ESCROW_OK)
		engine_quiesce(*out, 0);
	return st;
}
#define OPEN bad_open
#endif

#ifdef MUTANT_state_not_told
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	escrow_status st = engine_query(e, limits);

	if (st == ESCROW_OK && limits->state == ESCROW_STATE_QUIESCED)
		limits->state = ESCROW_STATE_OPEN;
	return st;
}
#define SLOTS .query = bad_query,
#endif

#ifdef MUTANT_register_when_quiesced
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	escrow_status st = engine_register_memory(e, args, region, error);

	return st == ESCROW_E_STATE && state_of(e) == ESCROW_STATE_QUIESCED ? ESCROW_OK : st;
}
#define SLOTS .register_memory = bad_register,
#endif

#ifdef MUTANT_transfer_when_drained
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	int32_t st = engine_transfer(e, op, n, stride, flags, ops);

	return st == ESCROW_E_STATE && state_of(e) == ESCROW_STATE_DRAINED ? 1 : st;
}
#define SLOTS .transfer = bad_transfer,
#endif

#ifdef MUTANT_arm_when_closed
static escrow_status bad_arm(struct escrow_engine *e, uint32_t flags)
{
	escrow_status st = engine_arm(e, flags);

	return st == ESCROW_E_STATE && state_of(e) == ESCROW_STATE_CLOSED ? ESCROW_OK : st;
}
#define SLOTS .arm = bad_arm,
#endif

#ifdef MUTANT_connect_when_failed
static escrow_status bad_connect(struct escrow_engine *e, const struct escrow_peer_args *args,
				 uint64_t *peer, struct escrow_error *error)
{
	escrow_status st = engine_connect(e, args, peer, error);

	return st == ESCROW_E_STATE && state_of(e) == ESCROW_STATE_FAILED ? ESCROW_IN_PROGRESS : st;
}
#define SLOTS .connect = bad_connect,
#endif

#ifdef MUTANT_revoke_when_quarantined
static escrow_status bad_revoke(struct escrow_engine *e, uint64_t grant, uint32_t flags)
{
	escrow_status st = engine_revoke(e, grant, flags);

	return st == ESCROW_E_STATE && state_of(e) == ESCROW_STATE_QUARANTINED ? ESCROW_IN_PROGRESS
									       : st;
}
#define SLOTS .revoke = bad_revoke,
#endif

#ifdef MUTANT_quiesce_when_draining
static escrow_status bad_quiesce(struct escrow_engine *e, uint32_t flags)
{
	escrow_status st = engine_quiesce(e, flags);

	if (state_of(e) != ESCROW_STATE_DRAINING)
		return st;
	return st == ESCROW_E_STATE ? ESCROW_OK : ESCROW_E_STATE;
}
#define SLOTS .quiesce = bad_quiesce,
#endif

#ifdef MUTANT_grant_when_closing
static escrow_status bad_grant(struct escrow_engine *e, const struct escrow_grant_args *args,
			       uint64_t *grant, struct escrow_error *error)
{
	escrow_status st = engine_grant(e, args, grant, error);

	return st == ESCROW_E_STATE && state_of(e) == ESCROW_STATE_CLOSING ? ESCROW_IN_PROGRESS
									   : st;
}
#define SLOTS .grant = bad_grant,
#endif

#ifdef MUTANT_resume_refused_when_open
static escrow_status bad_resume(struct escrow_engine *e, uint32_t flags)
{
	if (state_of(e) == ESCROW_STATE_OPEN)
		return engine_resume(e, flags) < 0 ? ESCROW_OK : ESCROW_E_STATE;
	return engine_resume(e, flags);
}
#define SLOTS .resume = bad_resume,
#endif

/* ---- Threads -------------------------------------------------------------------------------- */
#ifdef MUTANT_shared_state
static _Atomic bool one_has_quiesced;
static escrow_status bad_quiesce(struct escrow_engine *e, uint32_t flags)
{
	escrow_status st = engine_quiesce(e, flags);

	if (st == ESCROW_OK)
		one_has_quiesced = true;
	return st;
}
static escrow_status bad_resume(struct escrow_engine *e, uint32_t flags)
{
	escrow_status st = engine_resume(e, flags);

	if (st == ESCROW_OK)
		one_has_quiesced = false;
	return st;
}
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	escrow_status st = engine_query(e, limits);

	if (st == ESCROW_OK && limits->state == ESCROW_STATE_OPEN && one_has_quiesced)
		limits->state = ESCROW_STATE_QUIESCED;
	return st;
}
#define SLOTS .quiesce = bad_quiesce, .resume = bad_resume, .query = bad_query,
#endif

#ifdef MUTANT_thread_after_closed
static void *idle(void *data)
{
	for (;;)
		pause();
	return data;
}
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = real_open(args, out, error);
	pthread_t thread;

	if (st == ESCROW_OK && pthread_create(&thread, NULL, idle, NULL) == 0)
		pthread_detach(thread);
	return st;
}
#define OPEN bad_open
#endif

#ifdef MUTANT_hidden_thread
static pthread_t thread;
static int thread_pipe[2];
static bool running;
static void *idle(void *data)
{
	char byte;

	return read(thread_pipe[0], &byte, 1) < 0 ? data : NULL;
}
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = real_open(args, out, error);

	if (st == ESCROW_OK && !running && pipe2(thread_pipe, O_CLOEXEC) == 0)
		running = pthread_create(&thread, NULL, idle, NULL) == 0;
	return st;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_CLOSED && running) {
		close(thread_pipe[1]);
		pthread_join(thread, NULL);
		close(thread_pipe[0]);
		running = false;
	}
	return true;
}
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	escrow_status st = engine_query(e, limits);

	if (st == ESCROW_OK)
		limits->caps &= ~ESCROW_CAP_THREADS;
	return st;
}
#define OPEN bad_open
#define EVENTS
#define SLOTS .query = bad_query,
#define DESCRIPTOR .caps = ENGINE_CAPS | ESCROW_CAP_REMOTE,
#endif

/* ---- The process ---------------------------------------------------------------------------- */
#if defined MUTANT_descriptor_leaked || defined MUTANT_key_with_destructor ||                      \
	defined MUTANT_signal_handler_changed || defined MUTANT_environment_changed ||             \
	defined MUTANT_locale_changed || defined MUTANT_forks_in_open ||                           \
	defined MUTANT_descriptor_inherited || defined MUTANT_atexit_handler ||                    \
	defined MUTANT_memory_leaked || defined MUTANT_calls_exit ||                               \
	defined MUTANT_block_not_freed
MUTANT_UNUSED static void nothing(void)
{
}

static void misbehave(const struct escrow_host *host, struct escrow_engine *e)
{
#if defined MUTANT_descriptor_leaked
	(void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
#elif defined MUTANT_key_with_destructor
	pthread_key_t key;

	pthread_key_create(&key, free);
#elif defined MUTANT_signal_handler_changed
	signal(SIGUSR1, SIG_IGN);
#elif defined MUTANT_environment_changed
	setenv("MOCK_WAS_HERE", "1", 1);
#elif defined MUTANT_locale_changed
	setlocale(LC_ALL, "C.UTF-8");
#elif defined MUTANT_forks_in_open
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	waitpid(child, NULL, 0);
#elif defined MUTANT_descriptor_inherited
	fcntl(engine_event_fd(e), F_SETFD, 0);
#elif defined MUTANT_atexit_handler
	atexit(nothing);
#elif defined MUTANT_memory_leaked
	void *volatile p = malloc(100000);

	memset(p, 1, 100000);
#elif defined MUTANT_calls_exit
	exit(0); /* house: a mutant */
#elif defined MUTANT_block_not_freed
	host->alloc(host->ctx, 64, 8);
#endif
}

static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = real_open(args, out, error);

	if (st == ESCROW_OK)
		misbehave(args->host, *out);
	return st;
}
#define OPEN bad_open
#endif

#ifdef MUTANT_fork_not_noticed
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	static struct escrow_limits last;
	escrow_status st = engine_query(e, limits);

	if (st == ESCROW_OK && limits->size == sizeof(last))
		last = *limits;
	if (st == ESCROW_E_STATE && limits->size == sizeof(last)) {
		*limits = last;
		return ESCROW_OK;
	}
	return st;
}
#define SLOTS .query = bad_query,
#endif

/* ---- Blocking and pointers ------------------------------------------------------------------ */
#ifdef MUTANT_poll_blocks
static int32_t bad_poll(struct escrow_engine *e, struct escrow_event *events, uint32_t max,
			uint32_t stride, uint32_t flags)
{
	int32_t n = engine_poll(e, events, max, stride, flags);

	for (int i = 0; n == 0 && max && i < 12 && state_of(e) == ESCROW_STATE_OPEN; i++) {
		wait_ms(100);
		n = engine_poll(e, events, max, stride, flags);
	}
	return n;
}
#define SLOTS .poll = bad_poll,
#endif

#ifdef MUTANT_close_hangs
static escrow_status bad_close(struct escrow_engine *e, uint64_t deadline, uint32_t mode)
{
	if (state_of(e) == ESCROW_STATE_OPEN)
		for (;;)
			pause();
	return engine_close(e, deadline, mode);
}
#define SLOTS .close = bad_close,
#endif

#ifdef MUTANT_keeps_setting_string
static const char *kept;
static escrow_status bad_open(const struct escrow_open_args *args, struct escrow_engine **out,
			      struct escrow_error *error)
{
	escrow_status st = real_open(args, out, error);

	if (st == ESCROW_OK)
		kept = args->engine_name;
	return st;
}
static escrow_status bad_query(struct escrow_engine *e, struct escrow_limits *limits)
{
	if (kept && *(const volatile char *)kept == '\0')
		return ESCROW_E_INTERNAL;
	return engine_query(e, limits);
}
#define OPEN bad_open
#define SLOTS .query = bad_query,
#endif

#ifdef MUTANT_keeps_sge_array
static const volatile struct escrow_sge *kept;
static int32_t bad_transfer(struct escrow_engine *e, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops)
{
	int32_t st = engine_transfer(e, op, n, stride, flags, ops);

	if (st > 0 && op->nsge)
		kept = op->sge;
	return st;
}
static bool mutant_event(struct escrow_engine *e, struct escrow_event *event)
{
	if (event->kind == ESCROW_EV_OP_DONE && event->status == ESCROW_OK && kept)
		event->bytes = kept->length < event->bytes ? kept->length : event->bytes;
	return true;
}
#define SLOTS .transfer = bad_transfer,
#define EVENTS
#endif

#ifdef MUTANT_event_fd_changes
static int32_t bad_event_fd(struct escrow_engine *e)
{
	static int32_t other = -1;
	static bool turn;
	int32_t fd = engine_event_fd(e);

	if (fd < 0 || (turn = !turn))
		return fd;
	if (other < 0)
		other = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return other;
}
#define SLOTS .event_fd = bad_event_fd,
#endif

#ifdef MUTANT_reads_user_token
static escrow_status bad_register(struct escrow_engine *e, const struct escrow_region_args *args,
				  uint64_t *region, struct escrow_error *error)
{
	escrow_status st = engine_register_memory(e, args, region, error);

	if (st == ESCROW_OK && *(volatile char *)mock_pointer(args->user))
		return st;
	return st;
}
#define SLOTS .register_memory = bad_register,
#endif

/* ---- Extensions ------------------------------------------------------------------------------ */
#ifdef MUTANT_extension_moves
static const void *bad_extension(struct escrow_engine *e, const char *id)
{
	static struct escrow_counters copies[2];
	static unsigned int turn;
	const void *real = engine_get_extension(e, id);

	if (!real || strcmp(id, ESCROW_COUNTERS_ID) != 0)
		return real;
	memcpy(&copies[++turn % 2], real, sizeof(copies[0]));
	return &copies[turn % 2];
}
#define SLOTS .get_extension = bad_extension,
#endif

#ifdef MUTANT_extension_for_any_id
static const void *bad_extension(struct escrow_engine *e, const char *id)
{
	static const struct escrow_counters empty = {.size = sizeof(empty)};
	const void *real = engine_get_extension(e, id);

	return real ? real : &empty;
}
#define SLOTS .get_extension = bad_extension,
#endif

#ifdef MUTANT_half_plan
static escrow_status bad_plan(struct escrow_engine *e, const char *plan, struct escrow_error *error)
{
	const struct escrow_fault *real = engine_get_extension(e, ESCROW_FAULT_ID);
	escrow_status st = real->plan(e, plan, error);
	char first[64];

	if (st == ESCROW_E_INVALID && plan && strcspn(plan, ";") < sizeof(first)) {
		memcpy(first, plan, strcspn(plan, ";"));
		first[strcspn(plan, ";")] = '\0';
		real->plan(e, first, NULL);
	}
	return st;
}
static const void *bad_extension(struct escrow_engine *e, const char *id)
{
	static struct escrow_fault copy;
	const void *real = engine_get_extension(e, id);

	if (!real || strcmp(id, ESCROW_FAULT_ID) != 0)
		return real;
	memcpy(&copy, real, sizeof(copy));
	copy.plan = bad_plan;
	return &copy;
}
#define SLOTS .get_extension = bad_extension,
#endif

#include "backends/mock/mutants/ends.h"
