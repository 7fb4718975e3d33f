/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-PROC: engines of two processes. */
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"
#include "tests/conform/process.h"

#define REMOTE (ESCROW_CAP_REMOTE | ESCROW_CAP_READ | ESCROW_CAP_WRITE)

/* Our engine, connected to the second process's. */
struct near {
	struct process far;
	struct engine *en;
	uint64_t peer;
	struct share s; /* what far lends us */
	struct memory local;
	struct escrow_sge sge;
	struct escrow_op op;
};

static void near_open(struct near *n, struct conform *c)
{
	uint8_t bytes[INVITATION_ROOM];
	uint64_t len;

	memset(n, 0, sizeof(*n));
	process_start(&n->far, c);
	n->en = engine_open(&c->subject, NULL, "near");
	process_invite(&n->far, bytes, &len);
	n->peer = pair_connect_to(n->en, "far", bytes, len);
	engine_wait(n->en, ESCROW_EV_PEER_UP, n->peer, NULL);
	process_grant(&n->far, bytes, &len);
	n->s.remote = pair_import(n->en, n->peer, bytes, len);
	memory_register(n->en, &n->local, PROCESS_BYTES);
	n->sge = (struct escrow_sge){n->local.region, 0, PROCESS_BYTES};
	n->op = pair_op(ESCROW_READ, &n->s, 0, &n->sge);
}

static void moves_bytes(struct conform *c)
{
	struct near n;

	near_open(&n, c);
	pair_move(n.en, &n.op, PROCESS_BYTES);
	expect_as("OP2", buffer_is(&n.local.buf, 0, PROCESS_BYTES, PROCESS_SEED),
		  "the bytes of the other process did not come");
	buffer_fill(&n.local.buf, 0, PROCESS_BYTES, 77);
	n.op.opcode = ESCROW_WRITE;
	pair_move(n.en, &n.op, PROCESS_BYTES);
	expect_as("OP2", process_holds(&n.far, PROCESS_BYTES, 77),
		  "the bytes did not come to the other process");
	process_end(&n.far);
	engine_wait(n.en, ESCROW_EV_PEER_DOWN, n.peer, NULL);
	engine_close(n.en);
}

static void peer_is_killed(struct conform *c)
{
	struct escrow_event ev;
	struct near n;
	uint64_t id[16];
	int32_t i, k;

	near_open(&n, c);
	for (k = 0; k < 16; k++)
		if (engine_transfer(n.en, &n.op, 1, &id[k]) != 1)
			break;
	process_kill(&n.far);
	engine_wait_long(n.en, ESCROW_EV_PEER_DOWN, n.peer, &ev);
	for (i = 0; i < k; i++) {
		expect_as("PE4", engine_take(n.en, ESCROW_EV_OP_DONE, id[i], &ev),
			  "PEER_DOWN came before OP_DONE of op %d", i);
		expect_as("CU2", (ev.status == ESCROW_OK) == (ev.effect == ESCROW_EFFECT_EXECUTED),
			  "an op to a killed peer ends with %s, effect %u",
			  verdict_status(ev.status), ev.effect);
	}
	expect(engine_state(n.en) == ESCROW_STATE_OPEN, "the death of a peer led to state %u",
	       engine_state(n.en));
	memory_deregister(n.en, &n.local);
	engine_close(n.en);
}

static void predecessor_is_stale(struct conform *c)
{
	uint8_t old[INVITATION_ROOM], grant[GRANT_ROOM];
	uint64_t old_len, grant_len, remote;
	struct escrow_peer_args args = {
		.size = sizeof(args), .user = TOKEN(9), .peer_name = "far", .invitation = old};
	struct escrow_event ev;
	struct near n;
	int32_t st;

	near_open(&n, c);
	process_invite(&n.far, old, &old_len);
	args.invitation_len = old_len;
	process_kill(&n.far);
	engine_wait_long(n.en, ESCROW_EV_PEER_DOWN, n.peer, NULL);
	process_start(&n.far, c);
	args.deadline_ns = host_now(n.en->host) + UINT64_C(2000000000);
	if (engine_connect(n.en, &args, &n.peer) == ESCROW_IN_PROGRESS) {
		engine_wait(n.en, ESCROW_EV_PEER_DOWN, n.peer, &ev);
		expect(ev.status < 0 && !engine_pending(n.en, ESCROW_EV_PEER_UP, 0),
		       "an invitation of a dead process led to a connection");
	}
	process_invite(&n.far, old, &old_len);
	n.peer = pair_connect_to(n.en, "far", old, old_len);
	engine_wait(n.en, ESCROW_EV_PEER_UP, n.peer, NULL);
	process_grant(&n.far, grant, &grant_len);
	n.s.remote = pair_import(n.en, n.peer, grant, grant_len);
	/* Nothing that came after it stands in its place: neither a peer nor what that one lent. */
	st = engine_transfer(n.en, &n.op, 1, &remote);
	expect_as("OP10", st == ESCROW_E_PEER_LOST, "an op to a dead process is %s",
		  verdict_status(st));
	n.op.remote = n.s.remote;
	pair_move(n.en, &n.op, PROCESS_BYTES);
	process_end(&n.far);
	engine_close(n.en);
}

static const struct conform_case cases[] = {
	{"ESC-PROC-001", "data", "OP2 PE1", REMOTE, 0, "bytes between two processes", moves_bytes},
	{"ESC-PROC-002", "data", "PE6", REMOTE, 0, "the peer's process is killed", peer_is_killed},
	{"ESC-PROC-003", "data", "EP4 OP10", REMOTE, NEED_MISUSE,
	 "the peer's process is killed and comes again", predecessor_is_stale},
};

CONFORM_AREA(area_remote, cases);
