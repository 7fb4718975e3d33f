/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What libescrow adds to a backend: the load of slice.c through it, and polls that find nothing.
 *
 *	hosted op|idle ROUNDS BATCH
 *
 * A round of `op` submits BATCH parents of 64 B in one call, waits until the device has done everything, and reaps once; a
 * round of `idle` polls BATCH times in vain.  Run by tests/bench/instructions.
 */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/callgrind.h"
#include "tests/softverbs/rig.h"
#include "tests/unit/hosting.h"

#define BATCH_MAX 64u
#define BYTES 64u

struct side {
	struct escrow_host_engine *host;
	uint64_t peer, region;
	unsigned char memory[4096];
};

static struct {
	uint32_t rounds, batch;
	bool idle;
} args;
static struct side owner, requester;
static uint64_t remote;
static struct escrow_error error = {.size = sizeof(error)};

/* ---- Meeting ------------------------------------------------------------------------------------ */
static void side_open(struct side *s)
{
	static const char *const settings[] = {"max_rails=1", "num_lanes=1", NULL};

	s->host = hosting_open(hosting_module("rdma"), 0, settings);
	s->region = hosting_register(s->host, s->memory, sizeof(s->memory), NULL);
}

/* Each is polled until the other has come. */
static void meet(void)
{
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "requester"};
	struct escrow_peer_args to = {.size = sizeof(to), .peer_name = "owner"};
	unsigned char buf[4096];
	uint64_t len = sizeof(buf);

	ck_assert_int_eq(escrow_invite(owner.host, &invite, buf, &len), ESCROW_OK);
	to.invitation = buf;
	to.invitation_len = len;
	ck_assert_msg(escrow_connect(requester.host, &to, &requester.peer, &error) ==
			      ESCROW_IN_PROGRESS,
		      "%s", error.text);
	hosting_wait(requester.host, ESCROW_EV_PEER_UP);
	owner.peer = hosting_wait(owner.host, ESCROW_EV_PEER_UP).object;
}

static void lend(void)
{
	struct escrow_grant_args grant = {.size = sizeof(grant),
					  .rights = ESCROW_MAY_WRITE,
					  .peer = owner.peer,
					  .region = owner.region,
					  .length = sizeof(owner.memory)};
	struct escrow_remote_args import = {.size = sizeof(import), .peer = requester.peer};
	unsigned char buf[4096];
	uint64_t handle;
	escrow_status status;

	ck_assert_msg(escrow_grant(owner.host, &grant, &handle, &error) == ESCROW_IN_PROGRESS, "%s",
		      error.text);
	ck_assert_int_eq(hosting_wait(owner.host, ESCROW_EV_GRANT_READY).status, ESCROW_OK);
	import.bytes = buf;
	import.len = sizeof(buf);
	ck_assert_int_eq(escrow_export_grant(owner.host, handle, buf, &import.len), ESCROW_OK);
	status = escrow_import_grant(requester.host, &import, &remote, &error);
	ck_assert_msg(status >= 0, "%s", error.text);
	if (status == ESCROW_IN_PROGRESS)
		hosting_wait(requester.host, ESCROW_EV_REMOTE_READY);
}

/* ---- Rounds ------------------------------------------------------------------------------------- */
static int32_t submit(void)
{
	struct escrow_sge sge = {.region = requester.region, .length = BYTES};
	struct escrow_op ops[BATCH_MAX];
	uint64_t ids[BATCH_MAX];

	for (uint32_t i = 0; i < args.batch; i++)
		ops[i] = (struct escrow_op){
			.remote = remote, .opcode = ESCROW_WRITE, .nsge = 1, .sge = &sge};
	return escrow_transfer(requester.host, ops, args.batch, sizeof(ops[0]), 0, ids);
}

/* The control thread has the lane now and then, mostly while the connection is new: one more try is nothing among so many. */
static void move(void)
{
	struct escrow_event events[BATCH_MAX];
	uint32_t done = 0;
	int32_t n;

	while ((n = submit()) == ESCROW_E_AGAIN)
		sched_yield();
	ck_assert_int_eq(n, (int32_t)args.batch);
	rig_settle();
	n = escrow_poll(requester.host, events, BATCH_MAX);
	for (int32_t i = 0; i < n; i++) {
		if (events[i].kind != ESCROW_EV_ROOM && events[i].status != ESCROW_OK)
			abort();
		done += events[i].kind == ESCROW_EV_OP_DONE;
	}
	ck_assert_uint_eq(done, args.batch);
}

static void look(void)
{
	struct escrow_event events[BATCH_MAX];

	for (uint32_t i = 0; i < args.batch; i++)
		ck_assert_int_eq(escrow_poll(requester.host, events, BATCH_MAX), 0);
}

/* What is still to be told of the meeting is none of what is counted. */
static void quiet(struct side *s)
{
	struct escrow_event event;

	rig_settle();
	while (escrow_poll(s->host, &event, 1) > 0)
		;
}

START_TEST(run)
{
	side_open(&owner);
	side_open(&requester);
	meet();
	lend();
	quiet(&owner);
	quiet(&requester);
	CALLGRIND_START_INSTRUMENTATION;
	for (uint32_t i = 0; i < args.rounds; i++)
		if (args.idle)
			look();
		else
			move();
	CALLGRIND_STOP_INSTRUMENTATION;
	hosting_close(requester.host);
	hosting_close(owner.host);
}
END_TEST

int main(int argc, char **argv)
{
	if (argc == 4) {
		args.idle = strcmp(argv[1], "idle") == 0;
		args.rounds = (uint32_t)strtoul(argv[2], NULL, 10);
		args.batch = (uint32_t)strtoul(argv[3], NULL, 10);
	}
	if (argc != 4 || args.batch < 1 || args.batch > BATCH_MAX) {
		fprintf(stderr, "usage: hosted op|idle ROUNDS BATCH\n");
		return 2;
	}
	return rig_run_here("hosted", run);
}
