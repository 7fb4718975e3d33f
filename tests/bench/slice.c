/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a slice costs from submit to event, and what the bare verbs cost that move the same bytes:
 *
 *	slice escrow|raw ROUNDS BATCH SLICES [REGIONS [PEERS [GRANTS]]]
 *
 * A round submits BATCH parents of SLICES slices in one call, waits until the device has done
 * everything, and reaps once: so a count of instructions repeats, however fast the device is. The
 * parents go round over REGIONS local regions and over all grants of PEERS peers (GRANTS in all).
 * Run by tests/bench/instructions, which counts and subtracts.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/callgrind.h"
#include "tests/softverbs/rig.h"
#include "tests/unit/rdma-kit.h"

#define BATCH_MAX 64u
#define SLICES_MAX 16u
#define SMALL 64u   /* a parent of one slice */
#define PIECE 4096u /* each slice of a bigger one; the least slice_bytes */
#define DEPTH 128u
#define GRANTS_AT_ONCE 100u
#define GRANTS_CLOSED 200u /* grants that are taken back at the end */
#define DEPTH_OF_MANY 32u /* of a thousand connections, whose completions must fit into one queue */

static struct {
	uint32_t raw, rounds, batch, slices, regions, peers, grants;
} args = {.rounds = 1, .batch = 1, .slices = 1, .regions = 1, .peers = 1, .grants = 1};

static uint32_t parent_bytes(void)
{
	return args.slices == 1 ? SMALL : PIECE * args.slices;
}

/* ---- Bare verbs -------------------------------------------------------------------------------- */
static void raw_submit(struct rig *r)
{
	uint32_t n = args.batch * args.slices, bytes = parent_bytes() / args.slices;
	static struct ibv_send_wr wr[DEPTH];
	static struct ibv_sge sge[DEPTH];
	struct ibv_send_wr *bad;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t at = (uint64_t)bytes * (i % args.slices);

		sge[i].addr = (uintptr_t)r->a.buf + at;
		sge[i].length = bytes;
		sge[i].lkey = r->a.mr->lkey;
		wr[i].wr_id = i;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].send_flags = i % args.slices == args.slices - 1 ? IBV_SEND_SIGNALED : 0;
		wr[i].wr.rdma.remote_addr = (uintptr_t)r->b.buf + at;
		wr[i].wr.rdma.rkey = r->b.mr->rkey;
	}
	if (ibv_post_send(r->a.qp, wr, &bad))
		abort();
}

static void raw_reap(struct rig *r)
{
	struct ibv_wc wc[BATCH_MAX];
	int n = ibv_poll_cq(r->a.scq, BATCH_MAX, wc);

	if (n != (int)args.batch)
		abort();
	for (int i = 0; i < n; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			abort();
}

/* Called by pointer, so that each stays a function of its name: what is counted is what runs inside. */
static void (*volatile const submit)(struct rig *r) = raw_submit;
static void (*volatile const reap)(struct rig *r) = raw_reap;

static void raw(void)
{
	struct rig r;

	rig_defaults(&r);
	r.depth = DEPTH;
	r.cqe = 2 * DEPTH;
	rig_connect(&r);
	CALLGRIND_START_INSTRUMENTATION;
	for (uint32_t i = 0; i < args.rounds; i++) {
		submit(&r);
		rig_settle();
		reap(&r);
	}
	CALLGRIND_STOP_INSTRUMENTATION;
	rig_close(&r);
}

/* ---- The ABI over the RDMA backend -------------------------------------------------------------- */
struct many {
	struct end requester, owner;
	uint8_t *memory;
	uint64_t *regions, *remotes;
};

static void add_regions(struct many *m)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args region = {.size = sizeof(region),
					    .length = PIECE * SLICES_MAX,
					    .memory_kind = ESCROW_MEMORY_HOST,
					    .dmabuf_fd = -1};

	m->regions = calloc(args.regions, sizeof(*m->regions));
	m->memory = calloc(args.regions, region.length);
	for (uint32_t i = 0; i < args.regions; i++) {
		region.addr = m->memory + region.length * i;
		ck_assert_msg(OPS->register_memory(m->requester.engine, &region, &m->regions[i],
						   &error) == ESCROW_OK,
			      "%s", error.text);
	}
}

/* Asked for together, as many as the owner can be told of before it is polled. */
static void add_grants(struct many *m, uint64_t by_owner, uint64_t by_requester, uint32_t from,
		       uint32_t n)
{
	struct escrow_grant_args grant = {.size = sizeof(grant),
					  .rights = ESCROW_MAY_WRITE,
					  .peer = by_owner,
					  .region = m->owner.region,
					  .length = PIECE * SLICES_MAX};
	uint64_t handles[GRANTS_AT_ONCE], len;
	uint8_t buf[4096];

	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(OPS->grant(m->owner.engine, &grant, &handles[i], NULL),
				 ESCROW_IN_PROGRESS);
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_int_eq(end_wait_of(&m->owner, ESCROW_EV_GRANT_READY, handles[i]).status,
				 ESCROW_OK);
		len = sizeof(buf);
		ck_assert_int_eq(OPS->export_grant(m->owner.engine, handles[i], buf, &len),
				 ESCROW_OK);
		m->remotes[from + i] = end_import(&m->requester, by_requester, buf, len);
	}
}

/* Each peer is a connection of its own, and has its share of the grants. */
static void add_peers(struct many *m)
{
	uint64_t by_owner, by_requester, len;
	uint32_t done = 0, end, n;
	char name[32];
	uint8_t buf[4096];

	m->remotes = calloc(args.grants, sizeof(*m->remotes));
	for (uint32_t i = 0; i < args.peers; i++) {
		snprintf(name, sizeof(name), "peer%u", i);
		len = end_invite(&m->owner, name, buf, sizeof(buf));
		by_requester = end_connect(&m->requester, name, buf, len);
		end_wait_of(&m->requester, ESCROW_EV_PEER_UP, by_requester);
		by_owner = end_wait(&m->owner, ESCROW_EV_PEER_UP).object;
		end = (uint32_t)((uint64_t)args.grants * (i + 1) / args.peers);
		for (; done < end; done += n) {
			n = end - done < GRANTS_AT_ONCE ? end - done : GRANTS_AT_ONCE;
			add_grants(m, by_owner, by_requester, done, n);
		}
	}
}

static void a_round(struct many *m, const struct escrow_ops *ops, uint32_t *turn)
{
	struct escrow_event events[BATCH_MAX];
	struct escrow_op op[BATCH_MAX];
	struct escrow_sge sge[BATCH_MAX];
	uint64_t ids[BATCH_MAX];
	int32_t n, i;

	for (uint32_t k = 0; k < args.batch; k++, (*turn)++) {
		sge[k] = (struct escrow_sge){.region = m->regions[*turn % args.regions],
					     .length = parent_bytes()};
		op[k] = (struct escrow_op){.remote = m->remotes[*turn % args.grants],
					   .opcode = ESCROW_WRITE,
					   .nsge = 1,
					   .sge = &sge[k]};
	}
	n = ops->transfer(m->requester.engine, op, args.batch, sizeof(op[0]), 0, ids);
	ck_assert_int_eq(n, (int32_t)args.batch);
	rig_settle();
	n = ops->poll(m->requester.engine, events, BATCH_MAX, sizeof(events[0]), 0);
	ck_assert_int_eq(n, (int32_t)args.batch);
	for (i = 0; i < n; i++)
		if (events[i].kind != ESCROW_EV_OP_DONE || events[i].status != ESCROW_OK)
			abort();
}

static void open_both(struct many *m)
{
	uint32_t most = (args.grants + args.peers - 1) / args.peers;
	char depth[64], slices[64], regions[64], peers[64], grants[64], remotes[64], each[64];
	const char *settings[] = {depth,   slices, regions,       peers, grants,
				  remotes, each,   "max_rails=1", NULL};

	snprintf(depth, sizeof(depth), "send_depth=%u", args.peers > 100 ? DEPTH_OF_MANY : DEPTH);
	snprintf(slices, sizeof(slices), "slice_bytes=%u", PIECE);
	snprintf(regions, sizeof(regions), "max_regions=%u", args.regions + 1);
	snprintf(peers, sizeof(peers), "max_peers=%u", args.peers);
	snprintf(grants, sizeof(grants), "max_grants=%u", args.grants);
	snprintf(remotes, sizeof(remotes), "max_remotes=%u", args.grants);
	snprintf(each, sizeof(each), "max_peer_grants=%u", most);
	end_open(&m->owner, 0, settings);
	end_open(&m->requester, 1, settings);
}

static void escrow(void)
{
	struct many m = {0};
	uint32_t turn = 0;

	open_both(&m);
	add_regions(&m);
	add_peers(&m);
	rig_settle();
	/* tests/bench/instructions has it off until here: a hundred thousand grants take their time else. */
	CALLGRIND_START_INSTRUMENTATION;
	for (uint32_t i = 0; i < args.rounds; i++)
		a_round(&m, OPS, &turn);
	CALLGRIND_STOP_INSTRUMENTATION;
	/* The end of each grant is an event, and the kit keeps so many: what is left goes with the process. */
	if (args.grants > GRANTS_CLOSED)
		_exit(0); /* house: a program, not the library beside it */
	end_close(&m.requester);
	end_close(&m.owner);
	free(m.memory);
	free(m.regions);
	free(m.remotes);
}

START_TEST(run)
{
	if (args.raw)
		raw();
	else
		escrow();
}
END_TEST

int main(int argc, char **argv)
{
	uint32_t *const numbers[] = {&args.rounds,  &args.batch, &args.slices,
				     &args.regions, &args.peers, &args.grants};

	for (int i = 2; i < argc && i < 8; i++)
		*numbers[i - 2] = (uint32_t)strtoul(argv[i], NULL, 10);
	if (argc < 5 || args.batch < 1 || args.batch > BATCH_MAX || args.slices < 1 ||
	    args.slices > SLICES_MAX || args.batch * args.slices > DEPTH || !args.regions ||
	    !args.peers || args.grants < args.peers) {
		fprintf(stderr,
			"usage: slice escrow|raw ROUNDS BATCH SLICES [REGIONS [PEERS [GRANTS]]]\n");
		return 2;
	}
	args.raw = strcmp(argv[1], "raw") == 0;
	return rig_run_here("slice", run);
}
