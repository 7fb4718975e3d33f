/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers and hosts that take and do not give back, through libescrow on one backend: what they can have is
 * bounded by a quota, the ledger shows it, everybody else goes on, and in the end all of it is back.
 * Built for the mock, for the RDMA backend on softverbs, and for real verbs.
 */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/testing.h"
#include "tests/unit/hosting.h"

#ifndef MISUSE_BACKEND
#define MISUSE_BACKEND "mock"
#endif

#define BYTES 8192u
#define LIVES 5

struct side {
	struct escrow_host_engine *host; /* NULL: it does nothing any more */
	_Alignas(4096) unsigned char memory[BYTES];
	int freed;
	uint64_t region;
	uint32_t kinds[32], seen[32];
	struct escrow_event last[32];
};

static struct side host, bad, good;
static struct side *const sides[] = {&host, &bad, &good};
static uint64_t good_peer,
	good_remote; /* the host's name for it; its remote at the host's memory */
static struct escrow_error error = {.size = sizeof(error)};

static void turn(void)
{
	struct escrow_event events[16];

	for (int i = 0; i < 3; i++) {
		int32_t n = sides[i]->host ? escrow_poll(sides[i]->host, events, 16) : 0;

		ck_assert_int_ge(n, 0);
		for (int32_t k = 0; k < n; k++) {
			sides[i]->kinds[events[k].kind]++;
			sides[i]->last[events[k].kind] = events[k];
		}
	}
	sched_yield();
}

/* The next event of this kind; there is never more than one under way. */
static struct escrow_event until(struct side *s, uint16_t kind)
{
	while (s->kinds[kind] == s->seen[kind])
		turn();
	s->seen[kind]++;
	return s->last[kind];
}

static void side_open(struct side *s, const char *const *settings)
{
	s->host = hosting_open(hosting_module(MISUSE_BACKEND), 0, settings);
	s->region = hosting_register(s->host, s->memory, BYTES, &s->freed);
}

static uint64_t invite(struct side *s, const char *name, void *buf, uint64_t room)
{
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = name};

	ck_assert_int_eq(escrow_invite(s->host, &args, buf, &room), ESCROW_OK);
	return room;
}

static void dial(struct side *s, const void *buf, uint64_t len)
{
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "host"};
	uint64_t peer;

	args.invitation = buf;
	args.invitation_len = len;
	ck_assert_msg(escrow_connect(s->host, &args, &peer, &error) == ESCROW_IN_PROGRESS, "%s",
		      error.text);
}

/* The host's handle for it. */
static uint64_t comes(struct side *s, const char *name)
{
	unsigned char buf[4096];

	dial(s, buf, invite(&host, name, buf, sizeof(buf)));
	until(s, ESCROW_EV_PEER_UP);
	return until(&host, ESCROW_EV_PEER_UP).object;
}

static escrow_status give(uint64_t peer, uint64_t *grant)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ | ESCROW_MAY_WRITE,
					 .peer = peer,
					 .region = host.region,
					 .length = BYTES};

	return escrow_grant(host.host, &args, grant, &error);
}

static uint64_t given(struct side *to, uint64_t peer, uint64_t *grant)
{
	struct escrow_remote_args args = {.size = sizeof(args)};
	unsigned char buf[4096];
	uint64_t remote;

	ck_assert_msg(give(peer, grant) == ESCROW_IN_PROGRESS, "%s", error.text);
	ck_assert_int_eq(until(&host, ESCROW_EV_GRANT_READY).status, ESCROW_OK);
	args.len = sizeof(buf);
	ck_assert_int_eq(escrow_export_grant(host.host, *grant, buf, &args.len), ESCROW_OK);
	args.bytes = buf;
	args.peer = to->last[ESCROW_EV_PEER_UP].object;
	ck_assert_msg(escrow_import_grant(to->host, &args, &remote, &error) >= 0, "%s", error.text);
	return remote;
}

/* The good peer writes into the host's memory, as if there were nobody else. */
static void good_goes_on(void)
{
	static unsigned char value;
	uint64_t op;

	memset(good.memory, ++value, BYTES);
	ck_assert_int_eq(hosting_transfer(good.host, ESCROW_WRITE, good_remote,
					  (struct escrow_sge){good.region, 0, BYTES}, &op),
			 1);
	ck_assert_int_eq(until(&good, ESCROW_EV_OP_DONE).status, ESCROW_OK);
	for (uint32_t i = 0; i < BYTES; i++)
		ck_assert_uint_eq(host.memory[i], value);
}

static void begin(const char *const *settings)
{
	uint64_t grant;

	side_open(&host, settings);
	side_open(&good, NULL);
	good_peer = comes(&good, "good");
	good_remote = given(&good, good_peer, &grant);
	good_goes_on();
}

static uint64_t charged(const char *name, uint32_t kind)
{
	struct escrow_charge charges[64];
	int32_t n = escrow_charges(host.host, charges, 64);

	for (int32_t i = 0; i < n && i < 64; i++)
		if (charges[i].kind == kind && strcmp(charges[i].peer_name, name) == 0)
			return charges[i].used;
	return 0;
}

/* So many owners of a kind are in the host's tree, one in each device. */
static uint64_t owners(uint32_t kind)
{
	struct escrow_record records[64];
	uint64_t cursor = 0, n = 0, devices = 0;
	int32_t got;

	while ((got = escrow_records(host.host, &cursor, records, 64)) > 0)
		for (int32_t i = 0; i < got; i++) {
			n += records[i].kind == kind;
			devices += records[i].kind == ESCROW_OWNER_CONTEXT;
		}
	ck_assert_uint_gt(devices, 0);
	return n / devices;
}

static void end(void)
{
	struct escrow_quota used = {.size = sizeof(used)};

	for (int i = 0; i < 3; i++)
		if (sides[i]->host)
			ck_assert_int_eq(escrow_close(sides[i]->host, 0, ESCROW_CLOSE_GRACEFUL),
					 ESCROW_IN_PROGRESS);
	for (int i = 0; i < 3; i++)
		if (sides[i]->host)
			until(sides[i], ESCROW_EV_CLOSED);
	for (int i = 0; i < 3; i++)
		if (sides[i]->host)
			ck_assert_int_eq(escrow_release(sides[i]->host), ESCROW_OK);
	escrow_quota_get(NULL, &used);
	ck_assert_uint_eq(used.bytes + used.regions + used.grants + used.granted_bytes, 0);
	ck_assert_uint_eq(used.peers + used.ops + used.connections, 0);
	ck_assert_uint_eq(used.sq_slots + used.cq_slots, 0);
}

/* P01: it has all that its name may have, and does not even poll any more when they are taken back. */
START_TEST(a_peer_that_takes_grants_and_never_returns_them)
{
	static const char *const settings[] = {"peer_quota.grants=3", NULL};
	struct escrow_host_engine *silent;
	uint64_t peer, grant[4], before;

	begin(settings);
	before = owners(ESCROW_OWNER_GRANT);
	side_open(&bad, NULL);
	peer = comes(&bad, "taker");
	for (int i = 0; i < 3; i++)
		given(&bad, peer, &grant[i]);
	ck_assert_int_eq(give(peer, &grant[3]), ESCROW_E_QUOTA);
	ck_assert_msg(strstr(error.text, "grants of taker: 1 more than the 3 in use exceed 3"),
		      "%s", error.text);
	ck_assert_uint_eq(charged("taker", ESCROW_CHARGE_GRANTS), 3);
	ck_assert_uint_eq(charged("taker", ESCROW_CHARGE_GRANTED_BYTES), 3 * BYTES);
	ck_assert_uint_eq(owners(ESCROW_OWNER_GRANT), before + 3);
	good_goes_on();
	ck_assert_int_eq(give(good_peer, &grant[3]), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(until(&host, ESCROW_EV_GRANT_READY).status, ESCROW_OK);
	silent = bad.host;
	bad.host = NULL;
	ck_assert_int_eq(escrow_revoke(host.host, grant[0]), ESCROW_IN_PROGRESS);
	ck_assert_uint_eq(until(&host, ESCROW_EV_GRANT_REVOKED).object, grant[0]);
	ck_assert_uint_eq(charged("taker", ESCROW_CHARGE_GRANTS), 2);
	ck_assert_int_eq(give(peer, &grant[0]), ESCROW_IN_PROGRESS);
	good_goes_on();
	bad.host = silent;
	until(&host, ESCROW_EV_GRANT_READY);
	end();
}
END_TEST

/* ---- Lives of a peer that dies each time, each in a process of its own ------------------------------- */
struct life {
	pid_t pid;
	int in, out; /* our ends: its invitation, and that it is up */
};

/* One life: it comes up, says so, and does nothing more. */
static void live(int in, int out)
{
	unsigned char buf[4096];
	ssize_t len;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	len = read(in, buf, sizeof(buf));
	if (len <= 0)
		_exit(0); /* the test is over */
	side_open(&bad, NULL);
	dial(&bad, buf, (uint64_t)len);
	until(&bad, ESCROW_EV_PEER_UP);
	if (write(out, "u", 1) != 1)
		_exit(1);
	for (;;)
		turn();
}

/* Before there is any engine here: of those a child of fork has none. */
static void conceive(struct life *life)
{
	int in[2], out[2];

	ck_assert(pipe(in) == 0 && pipe(out) == 0);
	life->pid = fork();
	ck_assert_int_ge(life->pid, 0);
	if (life->pid == 0) {
		close(in[1]);
		close(out[0]);
		live(in[0], out[1]);
	}
	close(in[0]);
	close(out[1]);
	life->in = in[1];
	life->out = out[0];
}

static bool is_up(const struct life *life)
{
	struct pollfd p = {.fd = life->out, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* P02: each life has what the name may have, and its death gives that back; nobody else notices. */
START_TEST(a_peer_that_crash_loops)
{
	static const char *const settings[] = {"peer_quota.grants=1", NULL};
	uint64_t peer, grant, more, connections, regions;
	struct life lives[LIVES];
	unsigned char buf[4096];
	int status;

	for (int i = 0; i < LIVES; i++)
		conceive(&lives[i]);
	begin(settings);
	connections = charged("", ESCROW_CHARGE_CONNECTIONS);
	regions = charged("", ESCROW_CHARGE_REGIONS);
	for (int i = 0; i < LIVES; i++) {
		uint64_t len = invite(&host, "loop", buf, sizeof(buf));

		ck_assert_int_eq(write(lives[i].in, buf, len), (ssize_t)len);
		peer = until(&host, ESCROW_EV_PEER_UP).object;
		while (!is_up(&lives[i]))
			turn();
		ck_assert_msg(give(peer, &grant) == ESCROW_IN_PROGRESS, "life %d: %s", i,
			      error.text);
		ck_assert_int_eq(until(&host, ESCROW_EV_GRANT_READY).status, ESCROW_OK);
		ck_assert_int_eq(give(peer, &more), ESCROW_E_QUOTA);
		ck_assert_msg(strstr(error.text, "grants of loop: 1 more than the 1 in use"), "%s",
			      error.text);
		ck_assert_uint_eq(charged("loop", ESCROW_CHARGE_GRANTS), 1);
		good_goes_on();
		ck_assert_int_eq(kill(lives[i].pid, SIGKILL), 0);
		ck_assert_int_eq(waitpid(lives[i].pid, &status, 0), lives[i].pid);
		ck_assert(WIFSIGNALED(status));
		ck_assert_uint_eq(until(&host, ESCROW_EV_PEER_DOWN).object, peer);
		good_goes_on();
		ck_assert_uint_eq(charged("loop", ESCROW_CHARGE_GRANTS), 0);
		ck_assert_uint_eq(charged("", ESCROW_CHARGE_CONNECTIONS), connections);
		ck_assert_uint_eq(charged("", ESCROW_CHARGE_REGIONS), regions);
		ck_assert_uint_eq(charged("", ESCROW_CHARGE_GRANTS), 1); /* the good one's */
	}
	end();
}
END_TEST

/* P03, P07: it never looks at a handle again; quotas stop it, and closing gives all back. */
START_TEST(a_host_that_forgets_handles)
{
	static const char *const settings[] = {"quota.regions=4", "quota.grants=3",
					       "peer_quota.grants=3", NULL};
	struct escrow_region args = {.size = sizeof(args),
				     .length = 100,
				     .memory_kind = ESCROW_MEMORY_HOST,
				     .dmabuf_fd = -1};
	static unsigned char forgotten[400];
	uint64_t handle;

	begin(settings); /* one region, one grant */
	for (int i = 0; i < 3; i++) {
		hosting_register(host.host, forgotten + 100 * (ptrdiff_t)i, 100, &host.freed);
		if (i == 2)
			continue;
		ck_assert_int_eq(give(good_peer, &handle), ESCROW_IN_PROGRESS);
		ck_assert_int_eq(until(&host, ESCROW_EV_GRANT_READY).status, ESCROW_OK);
	}
	args.addr = forgotten + 300;
	ck_assert_int_eq(escrow_register(host.host, &args, &handle, &error), ESCROW_E_QUOTA);
	ck_assert_msg(
		strstr(error.text, "regions of the engine: 1 more than the 4 in use exceed 4"),
		"%s", error.text);
	ck_assert_int_eq(give(good_peer, &handle), ESCROW_E_QUOTA);
	ck_assert_msg(strstr(error.text, ": 1 more than the 3 in use exceed 3"), "%s", error.text);
	ck_assert_uint_eq(charged("", ESCROW_CHARGE_REGIONS), 4);
	ck_assert_uint_eq(charged("", ESCROW_CHARGE_GRANTS), 3);
	ck_assert_uint_eq(owners(ESCROW_OWNER_REGION), 4);
	ck_assert_uint_eq(owners(ESCROW_OWNER_GRANT), 3);
	good_goes_on();
	side_open(&bad, NULL);
	comes(&bad, "another"); /* who is not refused for it */
	good_goes_on();
	end();
	ck_assert_int_eq(host.freed, 4); /* each once */
}
END_TEST

/* In a process of its own: the tests begin without an engine. */
static const char *unusable(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		struct escrow_load_args load = {.size = sizeof(load), .name = MISUSE_BACKEND};
		struct escrow_host_args args = {.size = sizeof(args), .engine_name = "try"};
		struct escrow_host_engine *engine;

		_exit(escrow_load(&load, &args.module, NULL) == ESCROW_OK &&
		      escrow_open(&args, &engine, NULL) == ESCROW_E_DEVICE);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 1 ? "no RDMA device" : NULL;
}

int main(void)
{
	const char *why = unusable();
	Suite *suite;
	TCase *tcase;

	if (why)
		return testing_skip(why);
	suite = suite_create("misuse");
	tcase = tcase_create(MISUSE_BACKEND);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_peer_that_takes_grants_and_never_returns_them);
	tcase_add_test(tcase, a_peer_that_crash_loops);
	tcase_add_test(tcase, a_host_that_forgets_handles);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
