/* SPDX-License-Identifier: BSD-2-Clause */
/* The host engine over one backend: settings, handles, ops in batches, events, the GSource. */
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"
#include "tests/unit/modules.h"

#define SIZE 4096u

static char memory[SIZE];
static struct escrow_host_engine *host;
static uint64_t region, remote;

static void setup(void)
{
	host = hosting_open(hosting_module("fake"), 0, NULL);
	region = hosting_register(host, memory, SIZE, NULL);
	remote = hosting_remote(host);
}

static escrow_status open_with(const char *const *settings, GKeyFile *keys, const char *name,
			       struct escrow_error *error)
{
	struct escrow_host_args args = {.size = sizeof(args),
					.module = hosting_module("fake"),
					.engine_name = name,
					.settings = settings,
					.key_file = keys};
	struct escrow_host_engine *engine = NULL;
	escrow_status status = escrow_open(&args, &engine, error);

	escrow_module_unref(args.module);
	if (status == ESCROW_OK)
		hosting_close(engine);
	else
		ck_assert_ptr_null(engine);
	return status;
}

START_TEST(settings_come_from_texts_and_from_a_key_file)
{
	const char *good[] = {"colour=red=ish", NULL}, *odd[] = {"colour", NULL},
		   *twice[] = {"colour=red", "colour=blue", NULL}, *unknown[] = {"color=red", NULL};
	GKeyFile *keys = g_key_file_new();
	struct escrow_error error = {.size = sizeof(error)};

	ck_assert_int_eq(open_with(good, NULL, "a", &error), ESCROW_OK);
	ck_assert_int_eq(open_with(odd, NULL, "a", &error), ESCROW_E_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "not key=value"));
	ck_assert_int_eq(open_with(twice, NULL, "a", &error), ESCROW_E_INVALID);
	ck_assert_int_eq(open_with(unknown, NULL, "a", &error), ESCROW_E_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "unknown key color"));
	g_key_file_set_string(keys, "other", "size", "1");
	ck_assert_int_eq(open_with(good, keys, "a", &error), ESCROW_OK); /* not our group */
	g_key_file_set_string(keys, "fake", "colour", "blue");
	ck_assert_int_eq(open_with(good, keys, "a", &error), ESCROW_OK); /* texts win */
	g_key_file_set_string(keys, "fake", "size", "1");
	ck_assert_int_eq(open_with(good, keys, "a", &error), ESCROW_E_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "unknown key size"));
	g_key_file_free(keys);
	hosting_close(host);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	struct escrow_host_args args = {.size = sizeof(args), .engine_name = "a"};
	struct escrow_host_engine *engine = NULL;
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_op op = {.remote = remote, .opcode = ESCROW_WRITE};
	struct escrow_event event;
	uint64_t id;

	ck_assert_int_eq(escrow_open(&args, &engine, &error), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_open(NULL, &engine, NULL), ESCROW_E_INVALID);
	ck_assert_int_eq(open_with(NULL, NULL, "", &error), ESCROW_E_INVALID);
	ck_assert_int_eq(open_with(NULL, NULL, NULL, &error), ESCROW_E_INVALID);
	args.module = hosting_module("fake");
	args.flags = 128;
	ck_assert_int_eq(escrow_open(&args, &engine, &error), ESCROW_E_UNSUPPORTED);
	ck_assert_int_eq(escrow_poll(host, NULL, 1), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_poll(host, &event, 0), 0);
	ck_assert_int_eq(escrow_transfer(host, NULL, 0, 0, 0, NULL), 0);
	ck_assert_int_eq(escrow_transfer(host, NULL, 0, 0, 1, NULL), ESCROW_E_UNSUPPORTED);
	ck_assert_int_eq(escrow_transfer(host, &op, 1, sizeof(op) - 8, 0, &id), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_transfer(host, &op, UINT32_MAX, sizeof(op), 0, &id),
			 ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_close(host, 0, 7), ESCROW_E_UNSUPPORTED);
	ck_assert_int_eq(escrow_release(host), ESCROW_E_STATE);
	ck_assert_int_eq(escrow_release(NULL), ESCROW_E_INVALID);
	hosting_close(host);
}
END_TEST

START_TEST(absent_slots_answer_unsupported)
{
	uint64_t cursor = 0;

	ck_assert_int_eq(escrow_charges(host, NULL, 0), ESCROW_E_UNSUPPORTED);
	ck_assert_int_eq(escrow_records(host, &cursor, NULL, 0), ESCROW_E_UNSUPPORTED);
	hosting_close(host);
}
END_TEST

START_TEST(limits_are_cut_to_what_the_host_engine_carries)
{
	struct escrow_host_args args = {.size = sizeof(args),
					.module = hosting_module("fake"),
					.engine_name = "a",
					.max_ops = 2};
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_host_engine *small = NULL;

	ck_assert_int_eq(escrow_query(host, &limits), ESCROW_OK);
	ck_assert_uint_eq(limits.max_ops, 8);
	ck_assert_uint_eq(limits.max_sge, 4);
	ck_assert_int_eq(escrow_open(&args, &small, NULL), ESCROW_OK);
	ck_assert_int_eq(escrow_query(small, &limits), ESCROW_OK);
	ck_assert_uint_eq(limits.max_ops, 2);
	hosting_close(small);
	hosting_close(host);
}
END_TEST

/* The fake takes any number of ops; eight is what it says, and what the host engine holds to. */
START_TEST(ops_beyond_the_limit_wait_for_room)
{
	struct escrow_sge range = {region, 0, 1};
	struct escrow_op ops[10];
	uint64_t ids[10];

	for (int i = 0; i < 10; i++)
		ops[i] = (struct escrow_op){.user = (uint64_t)i,
					    .remote = remote,
					    .opcode = ESCROW_WRITE,
					    .nsge = 1,
					    .sge = &range};
	ck_assert_int_eq(escrow_transfer(host, ops, 10, sizeof(ops[0]), 0, ids), 8);
	for (int i = 0; i < 8; i++) {
		for (int j = 0; j < i; j++)
			ck_assert_uint_ne(ids[i], ids[j]);
	}
	ck_assert_int_eq(escrow_transfer(host, ops, 1, sizeof(ops[0]), 0, ids), ESCROW_E_AGAIN);
	hosting_expect_none(host);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	ck_assert_uint_eq(hosting_expect(host, ESCROW_EV_OP_DONE).user, 0);
	hosting_expect(host, ESCROW_EV_ROOM);
	hosting_expect_none(host); /* once */
	ck_assert_int_eq(escrow_transfer(host, ops, 2, sizeof(ops[0]), 0, ids), 1);
	for (uint64_t i = 1; i < 9; i++) {
		struct escrow_event event;

		hosting_finish(host, ESCROW_CUSTODY_RETURNED);
		event = hosting_wait(host, ESCROW_EV_OP_DONE);
		ck_assert_uint_eq(event.user, i < 8 ? i : 0);
	}
	hosting_close(host);
}
END_TEST

START_TEST(a_bad_op_in_a_batch_ends_the_prefix)
{
	struct escrow_sge ranges[5] = {{region, 0, 1}, {region, 1, 1}};
	struct escrow_op ops[3] = {
		{.remote = remote, .opcode = ESCROW_READ, .nsge = 2, .sge = ranges},
		{.remote = remote, .opcode = ESCROW_READ, .nsge = 5, .sge = ranges},
		{.remote = remote, .opcode = ESCROW_READ, .nsge = 0},
	};
	uint64_t ids[3] = {1, 1, 1};

	ck_assert_int_eq(escrow_transfer(host, ops, 3, sizeof(ops[0]), 0, ids), 1);
	ck_assert_uint_eq(ids[1], 1);
	ck_assert_int_eq(escrow_transfer(host, ops + 1, 2, sizeof(ops[0]), 0, ids), ESCROW_E_LIMIT);
	ck_assert_int_eq(escrow_transfer(host, ops + 2, 1, sizeof(ops[0]), 0, ids), 1); /* empty */
	ops[0].remote = remote + 1;
	ck_assert_int_eq(escrow_transfer(host, ops, 1, sizeof(ops[0]), 0, ids), ESCROW_E_INVALID);
	ops[1].nsge = UINT32_MAX;
	ck_assert_int_eq(escrow_transfer(host, ops + 1, 1, sizeof(ops[0]), 0, ids), ESCROW_E_LIMIT);
	ck_assert_int_eq(escrow_transfer(host, ops, 0, sizeof(ops[0]), 0, NULL), 0);
	ck_assert_int_eq(escrow_transfer(host, ops, 1, 60, 0, ids), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_transfer(host, ops, 1, sizeof(ops[0]), 1, ids),
			 ESCROW_E_UNSUPPORTED);
	for (int i = 0; i < 2; i++)
		hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_close(host);
}
END_TEST

START_TEST(sequence_numbers_are_the_host_engines_own)
{
	uint64_t last = 0;

	for (int i = 0; i < 5; i++) {
		struct escrow_event event;

		ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
						  (struct escrow_sge){region, 0, 1}, NULL),
				 1);
		hosting_finish(host, ESCROW_CUSTODY_RETURNED);
		event = hosting_expect(host, ESCROW_EV_OP_DONE);
		ck_assert_uint_gt(event.seq, last);
		last = event.seq;
	}
	hosting_close(host);
}
END_TEST

START_TEST(objects_have_handles_of_their_own)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ,
					 .user = 3,
					 .region = region,
					 .length = 1};
	struct escrow_event event;
	uint64_t grant, peer, len = 0;
	char bytes[8];

	ck_assert_uint_eq(escrow_backend_handle(host, region), 1);
	ck_assert_uint_eq(escrow_backend_handle(host, remote), 11);
	ck_assert_uint_eq(escrow_backend_handle(host, 1), 0);
	args.peer = region; /* a handle of something else */
	ck_assert_int_eq(escrow_grant(host, &args, &grant, NULL), ESCROW_E_INVALID);
	args.peer = 0;
	ck_assert_int_eq(escrow_grant(host, &args, &grant, NULL), ESCROW_IN_PROGRESS);
	event = hosting_expect(host, ESCROW_EV_GRANT_READY);
	ck_assert_uint_eq(event.object, grant);
	ck_assert_uint_eq(event.user, 3);
	ck_assert_int_eq(escrow_export_grant(host, grant, bytes, &len), ESCROW_E_TOO_SMALL);
	ck_assert_uint_eq(len, 4);
	ck_assert_int_eq(escrow_export_grant(host, grant, bytes, &len), ESCROW_OK);
	ck_assert_int_eq(escrow_export_grant(host, grant + 1, bytes, &len), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_forget_grant(host, remote), ESCROW_OK);
	ck_assert_int_eq(escrow_forget_grant(host, remote), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_disconnect(host, region), ESCROW_E_INVALID);
	{
		struct escrow_peer_args peer_args = {
			.size = sizeof(peer_args), .user = 6, .peer_name = "p"};
		struct escrow_peer_info info = {.size = sizeof(info)};

		ck_assert_int_eq(escrow_connect(host, &peer_args, &peer, NULL), ESCROW_IN_PROGRESS);
		event = hosting_expect(host, ESCROW_EV_PEER_UP);
		ck_assert_uint_eq(event.user, 6);
		ck_assert_int_eq(escrow_peer_info(host, peer, &info), ESCROW_OK);
		ck_assert_uint_eq(info.user, 6);
	}
	ck_assert_int_eq(escrow_disconnect(host, peer), ESCROW_IN_PROGRESS);
	event = hosting_expect(host, ESCROW_EV_PEER_DOWN);
	ck_assert_uint_eq(event.object, peer);
	ck_assert_uint_eq(event.user, 6);
	ck_assert_int_eq(escrow_disconnect(host, peer), ESCROW_E_INVALID);
	hosting_close(host);
}
END_TEST

struct seen {
	GMainLoop *loop;
	uint32_t n;
	uint32_t wanted;
};

static void see(void *ctx, const struct escrow_event *event)
{
	struct seen *seen = ctx;

	ck_assert_uint_eq(event->kind, ESCROW_EV_OP_DONE);
	if (++seen->n == seen->wanted)
		g_main_loop_quit(seen->loop);
}

static gboolean finish_one(gpointer data)
{
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	return G_SOURCE_REMOVE;
}

START_TEST(the_source_tells_events_in_a_main_loop)
{
	struct seen seen = {.wanted = 2};
	GMainContext *context = g_main_context_new();
	GSource *source = escrow_source_new(host, see, &seen), *idle = g_idle_source_new();

	ck_assert_ptr_nonnull(source);
	seen.loop = g_main_loop_new(context, FALSE);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
						  (struct escrow_sge){region, 0, 1}, NULL),
				 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED); /* before: arm says so */
	g_source_attach(source, context);
	g_source_set_callback(idle, finish_one, NULL, NULL);
	g_source_attach(idle, context);
	g_main_loop_run(seen.loop);
	ck_assert_uint_eq(seen.n, 2);
	g_source_destroy(source);
	g_source_unref(source);
	g_source_unref(idle);
	g_main_loop_unref(seen.loop);
	g_main_context_unref(context);
	hosting_close(host);
}
END_TEST

static void count_closed(void *ctx, const struct escrow_event *event)
{
	*(uint32_t *)ctx += event->kind == ESCROW_EV_CLOSED;
}

/* Nobody arms an engine that is CLOSED, so that its descriptor may stay readable. */
START_TEST(the_source_has_nothing_to_do_after_closed)
{
	struct escrow_event event = {.kind = ESCROW_EV_ROOM};
	GMainContext *context = g_main_context_new();
	uint32_t closed = 0;
	GSource *source = escrow_source_new(host, count_closed, &closed), *late;
	struct escrow_engine *engine;

	hosting_fake(host, &engine)->say(engine, &event);
	g_source_attach(source, context);
	ck_assert_int_ge(escrow_close(host, 0, ESCROW_CLOSE_GRACEFUL), 0);
	while (!closed)
		g_main_context_iteration(context, TRUE);
	ck_assert(!g_main_context_iteration(context, FALSE));
	ck_assert(g_source_is_destroyed(source));
	/* one that is made too late ends at its first turn */
	late = escrow_source_new(host, count_closed, &closed);
	g_source_attach(late, context);
	ck_assert(g_main_context_iteration(context, FALSE));
	ck_assert(g_source_is_destroyed(late));
	ck_assert(!g_main_context_iteration(context, FALSE));
	ck_assert_uint_eq(closed, 1);
	g_source_unref(source);
	g_source_unref(late);
	g_main_context_unref(context);
	ck_assert_int_eq(escrow_release(host), ESCROW_OK);
}
END_TEST

START_TEST(the_source_ends_in_the_child_of_a_fork)
{
	struct escrow_host_engine *mock = hosting_open(hosting_module("mock"), 0, NULL);
	GMainContext *context = g_main_context_new();
	uint32_t closed = 0;
	GSource *source = escrow_source_new(mock, count_closed, &closed);
	int status = -1;
	pid_t child;

	g_source_attach(source, context);
	child = fork();
	if (child == 0) {
		g_main_context_iteration(context, FALSE);
		_exit(g_source_is_destroyed(source) ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	g_source_destroy(source);
	g_source_unref(source);
	g_main_context_unref(context);
	hosting_close(mock);
	hosting_close(host);
}
END_TEST

/* abi/states.tsv: neither is legal in CLOSED; that the handles have gone too is not the reason. */
START_TEST(no_op_is_taken_after_closed)
{
	uint64_t op;

	ck_assert_int_eq(
		hosting_transfer(host, ESCROW_READ, remote, (struct escrow_sge){region, 0, 1}, &op),
		1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	hosting_expect(host, ESCROW_EV_OP_DONE);
	ck_assert_int_ge(escrow_close(host, 0, ESCROW_CLOSE_GRACEFUL), 0);
	hosting_wait(host, ESCROW_EV_CLOSED);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
					  (struct escrow_sge){region, 0, 1}, NULL),
			 ESCROW_E_STATE);
	ck_assert_int_eq(escrow_cancel(host, op), ESCROW_E_STATE);
	ck_assert_int_eq(escrow_release(host), ESCROW_OK);
}
END_TEST

/* abi/states.tsv holds of the host engine too, where the handle went with it. */
START_TEST(a_handle_that_went_with_the_engine_is_of_no_state)
{
	struct escrow_peer_info info = {.size = sizeof(info)};
	uint64_t len = 0;

	ck_assert_int_eq(escrow_deregister(host, region + 1), ESCROW_E_INVALID);
	ck_assert_int_ge(escrow_close(host, 0, ESCROW_CLOSE_GRACEFUL), 0);
	hosting_wait(host, ESCROW_EV_CLOSED);
	ck_assert_int_eq(escrow_deregister(host, region), ESCROW_E_STATE);
	ck_assert_int_eq(escrow_disconnect(host, 1), ESCROW_E_STATE);
	ck_assert_int_eq(escrow_peer_info(host, 1, &info), ESCROW_E_STATE);
	ck_assert_int_eq(escrow_export_grant(host, 1, NULL, &len), ESCROW_E_STATE);
	ck_assert_int_eq(escrow_revoke(host, 1), ESCROW_E_STATE);
	ck_assert_int_eq(escrow_forget_grant(host, remote), ESCROW_E_STATE);
	ck_assert_int_eq(escrow_release(host), ESCROW_OK);
}
END_TEST

START_TEST(the_descriptor_is_the_host_engines)
{
	struct pollfd pfd = {.fd = escrow_event_fd(host), .events = POLLIN};
	struct escrow_engine *engine;
	const struct escrow_ops *ops;

	ck_assert_int_ge(pfd.fd, 0);
	engine = escrow_backend_engine(host, &ops);
	ck_assert_int_ne(pfd.fd, ops->event_fd(engine));
	ck_assert_int_eq(escrow_arm(host), ESCROW_OK);
	ck_assert_int_eq(poll(&pfd, 1, 0), 0);
	ck_assert_int_eq(hosting_transfer(host, ESCROW_READ, remote,
					  (struct escrow_sge){region, 0, 1}, NULL),
			 1);
	hosting_finish(host, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(escrow_arm(host), ESCROW_EVENTS_PENDING);
	hosting_expect(host, ESCROW_EV_OP_DONE);
	hosting_close(host);
}
END_TEST

static void tell_engine(void *ctx, const struct escrow_ledger_engine *entry)
{
	struct escrow_ledger_engine *out = ctx;

	*out = *entry;
}

START_TEST(the_ledger_lists_living_engines)
{
	struct escrow_ledger_engine entry;

	ck_assert_int_eq(escrow_ledger(tell_engine, &entry), 1);
	ck_assert_str_eq(entry.backend, "fake");
	ck_assert_str_eq(entry.engine_name, "test");
	ck_assert_uint_eq(entry.current, 1);
	ck_assert_uint_eq(entry.generation, 1);
	ck_assert_uint_eq(entry.state, ESCROW_STATE_OPEN);
	ck_assert_uint_eq(entry.regions, 1);
	ck_assert_uint_eq(entry.peers, 1);
	ck_assert_uint_eq(entry.remotes, 1);
	ck_assert_uint_eq(entry.ops, 0);
	hosting_close(host);
	ck_assert_int_eq(escrow_ledger(tell_engine, &entry), 0);
	ck_assert_int_eq(escrow_ledger(NULL, NULL), ESCROW_E_INVALID);
}
END_TEST

START_TEST(a_module_in_use_is_not_retired)
{
	struct escrow_module_info info = {.size = sizeof(info)};
	uint64_t generation;
	struct escrow_module *module = escrow_current(host, &generation);

	ck_assert_uint_eq(generation, 1);
	ck_assert_int_eq(escrow_module_info(module, &info), ESCROW_OK);
	ck_assert_uint_eq(info.references, 2);
	ck_assert_uint_eq(info.engines, 1);
	escrow_module_unref(module);
	hosting_close(host);
	ck_assert_int_eq(escrow_module_info(module, &info), ESCROW_OK);
	ck_assert_uint_eq(info.state, ESCROW_MODULE_RETIRED);
	ck_assert_uint_eq(info.engines, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("host");
	TCase *tcase = tcase_create("engine");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, settings_come_from_texts_and_from_a_key_file);
	tcase_add_test(tcase, bad_arguments_are_refused);
	tcase_add_test(tcase, absent_slots_answer_unsupported);
	tcase_add_test(tcase, limits_are_cut_to_what_the_host_engine_carries);
	tcase_add_test(tcase, ops_beyond_the_limit_wait_for_room);
	tcase_add_test(tcase, a_bad_op_in_a_batch_ends_the_prefix);
	tcase_add_test(tcase, sequence_numbers_are_the_host_engines_own);
	tcase_add_test(tcase, objects_have_handles_of_their_own);
	tcase_add_test(tcase, the_source_tells_events_in_a_main_loop);
	tcase_add_test(tcase, the_source_has_nothing_to_do_after_closed);
	tcase_add_test(tcase, the_source_ends_in_the_child_of_a_fork);
	tcase_add_test(tcase, no_op_is_taken_after_closed);
	tcase_add_test(tcase, a_handle_that_went_with_the_engine_is_of_no_state);
	tcase_add_test(tcase, the_descriptor_is_the_host_engines);
	tcase_add_test(tcase, the_ledger_lists_living_engines);
	tcase_add_test(tcase, a_module_in_use_is_not_retired);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
