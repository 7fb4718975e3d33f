/* SPDX-License-Identifier: BSD-2-Clause */
/* The device's side of the fault catalogue (docs/catalogue.md): answers that are wrong, late or lost. What a verb of
 * the library answers is spoiled here, by a function of the same name; a context's own functions, in its table. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/engine/engine.h"
#include "tests/unit/catalogue.h"

/* ---- Verbs that are spoiled ---------------------------------------------------------------------- */
static struct ibv_context *broken_channel; /* EIO on each of its channels */
static struct ibv_cq *overrun;             /* an IBV_EVENT_CQ_ERR of it is due */
static bool without_windows, is_iwarp;
static uint64_t largest_region;

/* Also called where no test runs. */
static void *next_of(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	return f;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	int (*real)(struct ibv_comp_channel *, struct ibv_cq **, void **);

	if (broken_channel && channel->context == broken_channel) {
		errno = EIO;
		return -1;
	}
	*(void **)&real = next_of("ibv_get_cq_event");
	return real(channel, cq, context);
}

int ibv_get_async_event(struct ibv_context *verbs, struct ibv_async_event *event)
{
	int (*real)(struct ibv_context *, struct ibv_async_event *);
	struct ibv_cq *cq = __atomic_load_n(&overrun, __ATOMIC_SEQ_CST);

	if (cq && cq->context == verbs) {
		__atomic_store_n(&overrun, NULL, __ATOMIC_SEQ_CST);
		event->event_type = IBV_EVENT_CQ_ERR;
		event->element.cq = cq;
		return 0;
	}
	*(void **)&real = next_of("ibv_get_async_event");
	return real(verbs, event);
}

/* Those that were made up were never got. */
void ibv_ack_async_event(struct ibv_async_event *event)
{
	void (*real)(struct ibv_async_event *);

	if (event->event_type == IBV_EVENT_CQ_ERR)
		return;
	*(void **)&real = next_of("ibv_ack_async_event");
	real(event);
}

#undef ibv_query_device
int ibv_query_device(struct ibv_context *verbs, struct ibv_device_attr *attr)
{
	int (*real)(struct ibv_context *, struct ibv_device_attr *), rc;

	*(void **)&real = next_of("ibv_query_device");
	rc = real(verbs, attr);
	if (without_windows)
		attr->device_cap_flags &= ~(unsigned int)(IBV_DEVICE_MEM_WINDOW_TYPE_2A |
							  IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	if (is_iwarp)
		verbs->device->transport_type = IBV_TRANSPORT_IWARP;
	if (largest_region)
		attr->max_mr_size = largest_region;
	return rc;
}

static int no_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return -1;
}

static int no_notify(struct ibv_cq *cq, int solicited)
{
	return 0;
}

/* ---- Completion queues that break ----------------------------------------------------------------- */
static uint64_t lent_by(struct end *e, uint64_t peer, uint64_t to)
{
	uint8_t buf[4096];
	uint64_t grant, len;

	len = end_grant(e, peer, 0, END_BYTES, RW, buf, sizeof(buf), &grant);
	return end_import(&owner, to, buf, len);
}

/* An op of the owner to each of the two, whose completions do not come. */
static void owes_two(uint64_t op[2])
{
	uint64_t one = lent_by(&user, user_peer, owner_user);
	uint64_t other = lent_by(&good, good_peer, owner_good);

	end_plan(&owner, "cqe=hold");
	op[0] = end_submit(&owner, one, ESCROW_READ, 0, 0, PIECE);
	op[1] = end_submit(&owner, other, ESCROW_READ, HALF, 0, PIECE);
	end_never(&owner, ESCROW_EV_OP_DONE);
}

/* Q18: the queue overran (0); Q19: it cannot be polled any more (1). Both queue pairs are reset, once. */
START_TEST(q18_a_queue_that_is_not_believed)
{
	struct ibv_cq *cq = end_qp(&owner, owner_user)->send_cq;
	struct escrow_event ev;
	uint64_t op[2];

	ck_assert_ptr_eq(end_qp(&owner, owner_good)->send_cq, cq);
	owes_two(op);
	if (_i)
		cq->context->ops.poll_cq = no_poll;
	else
		__atomic_store_n(&overrun, cq, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 2; i++) {
		ev = end_wait_of(&owner, ESCROW_EV_OP_DONE, op[i]);
		ck_assert_int_lt(ev.status, 0);
		ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	}
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_user);
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_good);
	ck_assert_int_eq(end_calls(&owner, ESCROW_STEP_QP_RESET), 2);
	region_comes_back(&owner);
}
END_TEST

/* Q20: the queue never wakes its channel; who sleeps on the engine's descriptor is woken all the same. */
START_TEST(q20_the_event_of_a_completion_is_lost)
{
	struct pollfd fd = {.events = POLLIN};
	struct escrow_event ev;
	uint64_t op;

	end_qp(&user, user_peer)->context->ops.req_notify_cq = no_notify;
	op = end_submit(&user, user_remote, ESCROW_READ, 0, 0, PIECE);
	fd.fd = OPS->event_fd(user.engine);
	while (!end_seen(&user, ESCROW_EV_OP_DONE, op, &ev)) {
		if (OPS->arm(user.engine, 0) == ESCROW_OK)
			ck_assert_int_eq(poll(&fd, 1, 60000), 1);
		end_poll(&user);
	}
	ck_assert_int_eq(ev.status, ESCROW_OK);
}
END_TEST

/* N01: the channel is closed: that is how the removal of a device shows first. */
START_TEST(n01_a_channel_that_cannot_be_read)
{
	struct escrow_event ev;
	uint64_t op;

	end_plan(&user, "cqe=hold");
	op = end_submit(&user, user_remote, ESCROW_READ, 0, 0, PIECE);
	broken_channel = end_qp(&user, user_peer)->context;
	while (!end_seen(&user, ESCROW_EV_DEVICE, 0, &ev)) {
		OPS->arm(user.engine, 0);
		ends_turn();
	}
	ev = end_wait_of(&user, ESCROW_EV_OP_DONE, op);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_HELD);
	ck_assert_uint_eq(end_quarantine(&user), END_BYTES);
	good_goes_on();
}
END_TEST

/* P05, in part field-40: the device has no memory left. */
START_TEST(p05_a_registration_that_fails_leaves_nothing)
{
	uint64_t bytes = end_used(&user, ESCROW_CHARGE_BYTES), region = 5;
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = user.memory,
					  .length = END_BYTES,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};

	end_plan(&user, "register@1=fail:ENOMEM");
	ck_assert_int_eq(OPS->register_memory(user.engine, &args, &region, &error),
			 ESCROW_E_NO_MEMORY);
	ck_assert_uint_eq(region, 5);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_BYTES), bytes);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_REGIONS), 1);
	ck_assert_int_eq(OPS->register_memory(user.engine, &args, &region, &error), ESCROW_OK);
}
END_TEST

/* ---- Teardown under odd circumstances ----------------------------------------------------------------- */
static void *closes(void *arg)
{
	ck_assert_int_eq(OPS->close(arg, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	return NULL;
}

static volatile sig_atomic_t interrupted, coming;

static void on_alarm(int signal)
{
	interrupted++;
	coming = 0;
}

/* A signal in a millisecond, unless one is coming. A timer that repeats itself would leave a slow machine no time but
 * for the handler. */
static void interrupt_soon(void)
{
	struct itimerval once = {.it_value = {0, 1000}};

	if (coming)
		return;
	coming = 1;
	ck_assert_int_eq(setitimer(ITIMER_REAL, &once, NULL), 0);
}

/* Q36, F04: four threads close, and end; signals interrupt somebody again and again. Each queue pair is destroyed once,
 * and there is one CLOSED. */
START_TEST(q36_closed_by_several_under_signals)
{
	struct sigaction action = {.sa_handler = on_alarm};
	struct itimerval never = {{0, 0}, {0, 0}};
	int64_t made = end_calls(&user, ESCROW_STEP_CREATE_QP);
	struct escrow_event ev;
	pthread_t t[4];

	end_submit(&user, user_remote, ESCROW_READ, 0, 0, 16 * PIECE);
	ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
	for (int i = 0; i < 4; i++) {
		interrupt_soon();
		ck_assert_int_eq(pthread_create(&t[i], NULL, closes, user.engine), 0);
	}
	for (int i = 0; i < 4; i++) {
		interrupt_soon();
		ck_assert_int_eq(pthread_join(t[i], NULL), 0);
	}
	while (!end_has_seen(&user, ESCROW_EV_CLOSED) || !interrupted) {
		interrupt_soon();
		ends_turn();
	}
	ck_assert_int_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
	end_wait(&user, ESCROW_EV_CLOSED);
	ck_assert(!end_seen(&user, ESCROW_EV_CLOSED, 0, &ev));
	ck_assert_int_eq(end_calls(&user, ESCROW_STEP_DESTROY_QP), made);
	end_is_clean(&user);
	end_release(&user);
}
END_TEST

/* ---- Engines of their own --------------------------------------------------------------------------------- */
/* field-23: on a device whose steps may sleep nobody can have the poller take them, with the lane's lock in reach. */
START_TEST(field_23_who_polls_does_not_destroy)
{
	static const char *const settings[] = {"control_thread=0", NULL};
	struct escrow_error error = {.size = sizeof(error)};
	struct end e;

	ck_assert_int_eq(end_try(&e, settings, &error), ESCROW_E_INVALID);
	ck_assert_ptr_null(e.engine);
	ck_assert_msg(strstr(error.text, "control_thread") != NULL, "%s", error.text);
}
END_TEST

static void find_call(const char *log, const char *name, long *first, long *last)
{
	FILE *f = fopen(log, "re");
	char line[256], word[64];
	long n = 0;

	*first = *last = -1;
	ck_assert_ptr_nonnull(f);
	for (; fgets(line, sizeof(line), f); n++)
		if (sscanf(line, "%*u %63s", word) == 1 && !strcmp(word, name)) {
			*first = *first < 0 ? n : *first;
			*last = n;
		}
	fclose(f);
}

/* field-25: the record of an engine's life: children go before their parents. */
START_TEST(field_25_children_go_first)
{
	static const char *const order[] = {"destroy_qp", "destroy_cq", "destroy_channel",
					    "dealloc_pd", "close_device"};
	char log[] = "/tmp/escrow-calls-XXXXXX", setting[64];
	const char *const settings[] = {setting, "max_rails=1", "rdma.rails=", NULL};
	long first, last, before = -1;
	int fd = mkstemp(log);

	ck_assert_int_ge(fd, 0);
	close(fd);
	setup();
	end_close(&user);
	snprintf(setting, sizeof(setting), "rdma.call_log=%s", log);
	end_open(&user, 'u', settings);
	ends_connect(&owner, &user, &owner_user, &user_peer);
	user_remote = lend_half(0, owner_user, &user, user_peer, &user_grant);
	ck_assert_int_eq(end_move(&user, user_remote, ESCROW_READ, 0, 0, PIECE).status, ESCROW_OK);
	end_close(&user);
	/* Of each device in turn, or of all at once: in the last device's, whatever stands before. */
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		find_call(log, order[i], &first, &last);
		ck_assert_msg(last > before, "the last %s is call %ld, after %ld", order[i], last,
			      before);
		before = last;
	}
	find_call(log, "dealloc_pd", &first, &before);
	find_call(log, "dereg_mr", &first, &last);
	ck_assert_int_ge(last, 0);
	ck_assert_int_lt(last, before);
	unlink(log);
	teardown();
}
END_TEST

/* F03: the process ends with a quarantine; no object of it is destroyed on the way out. */
START_TEST(f03_exit_with_a_quarantine)
{
	char log[] = "/tmp/escrow-calls-XXXXXX", setting[64], line[256];
	const char *const settings[] = {setting, "test.faults=1", "max_rails=1", "drain_ms=300",
					NULL};
	int fd = mkstemp(log), status, lines = 0, kept;
	pid_t child;
	FILE *f;

	ck_assert_int_ge(fd, 0);
	close(fd);
	snprintf(setting, sizeof(setting), "rdma.call_log=%s", log);
	child = fork();
	if (!child) {
		both_open(settings);
		end_plan(&user, "cqe=hold;qp_reset=fail");
		end_submit(&user, user_remote, ESCROW_READ, 0, 0, PIECE);
		end_quarantine(&user);
		end_close(&good);
		end_close(&owner);
		f = fopen(log, "re");
		while (fgets(line, sizeof(line), f))
			lines++;
		/* With destructors and the functions of atexit(3), as a host ends. */
		exit(lines < 255 ? lines : 255);
	}
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	f = fopen(log, "re");
	for (kept = 0; fgets(line, sizeof(line), f); kept++)
		;
	fclose(f);
	ck_assert_int_gt(kept, 10);
	ck_assert_int_eq(WEXITSTATUS(status), kept < 255 ? kept : 255);
	unlink(log);
}
END_TEST

static const char *const insisting[] = {"test.faults=1", "max_rails=1", "drain_ms=300",
					"rdma.allow_weak_environment=1", NULL};

/* R28: with the switch that hides failed destroys an engine is not opened; Q04: where the host insists, no reset and no
 * deregistration is a proof, and what no completion settles is kept. */
START_TEST(r28_an_environment_that_hides_failures)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_event ev;
	struct end e;
	uint64_t op;

	ck_assert_int_eq(setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 1), 0);
	ck_assert_int_eq(end_try(&e, one_rail, &error), ESCROW_E_UNSUPPORTED);
	ck_assert_ptr_null(e.engine);
	ck_assert_ptr_nonnull(strstr(error.text, "RDMAV_ALLOW_DISASSOC_DESTROY"));
	both_open(insisting);
	ck_assert_int_eq(OPS->query(user.engine, &limits), ESCROW_OK);
	ck_assert_uint_eq(limits.weak_receipts & ESCROW_WEAK_RESET, ESCROW_WEAK_RESET);
	ck_assert_uint_eq(limits.caps & ESCROW_CAP_WEAK, ESCROW_CAP_WEAK);
	end_plan(&user, _i ? "cqe=hold;destroy_qp=fail" : "cqe=hold");
	op = end_submit(&user, user_remote, ESCROW_READ, 0, 0, PIECE);
	disconnects(&user, user_peer);
	ev = end_wait_of(&user, ESCROW_EV_OP_DONE, op);
	ck_assert_int_eq(ev.status, ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_HELD);
	ck_assert_uint_eq(end_quarantine(&user), END_BYTES);
}
END_TEST

/* How many of a kind are quarantined. */
static uint32_t kept(struct end *e, uint32_t kind)
{
	struct escrow_record records[64];
	uint64_t cursor = 0;
	uint32_t count = 0;
	int32_t n;

	while ((n = OPS->records(e->engine, &cursor, records, 64, sizeof(records[0]))) > 0)
		for (int32_t i = 0; i < n; i++)
			count += records[i].kind == kind &&
				 records[i].state == ESCROW_OWNER_QUARANTINED;
	return count;
}

/* R28: nothing was owed, and destroys say 0, as if they had failed: queue pairs (0), and queues without any (1), are kept. */
START_TEST(r28_what_may_be_there_yet_is_kept)
{
	struct escrow_event ev;

	ck_assert_int_eq(setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 1), 0);
	if (_i == 0) {
		both_open(insisting);
		end_plan(&user, "destroy_qp=lie");
		disconnects(&user, user_peer);
		ck_assert_int_eq(end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer).status,
				 ESCROW_E_UNQUIESCED);
		ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_CONNECTIONS), 1);
	} else {
		ck_assert_int_eq(end_try(&user, insisting, NULL), ESCROW_OK);
	}
	closes(user.engine);
	do {
		end_poll(&user);
		ck_assert(!end_has_seen(&user, ESCROW_EV_CLOSED));
	} while (!end_seen(&user, ESCROW_EV_QUARANTINED, 0, &ev) || ev.object);
	ck_assert_uint_ge(kept(&user, _i ? ESCROW_OWNER_LANE : ESCROW_OWNER_CONNECTION), 1);
}
END_TEST

/* R29: no windows of type 2 (0), no end-to-end acknowledgement (1). */
START_TEST(r29_a_device_that_cannot_do_it_is_refused)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct end e;

	without_windows = _i == 0;
	is_iwarp = _i == 1;
	ck_assert_int_eq(end_try(&e, one_rail, &error), ESCROW_E_UNSUPPORTED);
	ck_assert_ptr_null(e.engine);
	ck_assert_msg(strstr(error.text, _i ? "iWARP" : "windows") != NULL, "%s", error.text);
}
END_TEST

/* field-35: nothing is cut in silence. */
START_TEST(field_35_longer_than_the_device_takes)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args args = {.size = sizeof(args),
					  .length = END_BYTES,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	uint64_t region = 5;
	struct end e;

	largest_region = END_BYTES / 2;
	ck_assert_msg(end_try(&e, one_rail, &error) == ESCROW_OK, "%s", error.text);
	args.addr = rdma_host.alloc(NULL, END_BYTES, 4096);
	ck_assert_int_eq(OPS->register_memory(e.engine, &args, &region, &error), ESCROW_E_LIMIT);
	ck_assert_uint_eq(region, 5);
	args.length = END_BYTES / 2;
	ck_assert_int_eq(OPS->register_memory(e.engine, &args, &region, &error), ESCROW_OK);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_loop_test(t, r28_an_environment_that_hides_failures, 0, 2);
	tcase_add_loop_test(t, r28_what_may_be_there_yet_is_kept, 0, 2);
	tcase_add_loop_test(t, r29_a_device_that_cannot_do_it_is_refused, 0, 2);
	tcase_add_test(t, f03_exit_with_a_quarantine);
	tcase_add_test(t, field_23_who_polls_does_not_destroy);
	tcase_add_test(t, field_25_children_go_first);
	tcase_add_test(t, field_35_longer_than_the_device_takes);
}

static void add_connected(TCase *t)
{
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, q18_a_queue_that_is_not_believed, 0, 2);
	tcase_add_test(t, q20_the_event_of_a_completion_is_lost);
	tcase_add_test(t, n01_a_channel_that_cannot_be_read);
	tcase_add_test(t, p05_a_registration_that_fails_leaves_nothing);
	tcase_add_test(t, q36_closed_by_several_under_signals);
}

int main(void)
{
	return catalogue_run("catalogue-device", add, add_connected);
}
