/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the ledger costs a slice: ledger PARENTS SLICES COMPLETIONS
 *
 * Charges, lends, settles and returns PARENTS parents of SLICES slices each, with COMPLETIONS
 * completions a parent (1: only the last one is signalled; SLICES: every one).  Run by
 * tests/bench/instructions under callgrind in two lengths, so that only the difference counts.
 */
#include "backends/ledger/hot.h"

#include <stdio.h>
#include <stdlib.h>

#define SQ 256u
#define MAX_SLICES 64u

static void *take(void *ctx, uint64_t bytes, uint64_t align)
{
	return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void give(void *ctx, void *p)
{
	free(p);
}

static uint64_t now(void *ctx)
{
	return 0;
}

static const struct escrow_host host = {
	.size = sizeof(host), .alloc = take, .free = give, .now_ns = now};

static void must(escrow_status status, const char *what)
{
	if (status < 0) {
		fprintf(stderr, "ledger: %s: %d\n", what, status);
		exit(1); /* house: a program, not the library beside it */
	}
}

static uint64_t add(struct ledger *l, struct ledger_owner_args args, enum ledger_event event)
{
	uint64_t owner;

	must(ledger_owner_add(l, &args, &owner, NULL), "add");
	if (args.kind == ESCROW_OWNER_REGION)
		must(ledger_region_key(l, owner, 1), "key");
	if (args.kind != ESCROW_OWNER_LANE && args.kind != ESCROW_OWNER_PEER)
		must(ledger_owner_event(l, owner, event), "ready");
	return owner;
}

struct bench {
	struct ledger_lane *lane;
	uint64_t connection;
	uint64_t region;
	struct ledger_conn *looked_up;
	uint64_t offset, length; /* of a slice */
};

/*
 * As the engine does with a row of one: the connection is looked up before, and what is common is inline.  Called
 * by pointer, so that each stays a function of its name.
 */
static uint64_t alone_lend(const struct bench *b)
{
	uint32_t region = ledger_row_region(b->lane->ledger, b->region, b->offset, b->length);

	if (!ledger_row_room(b->lane, b->looked_up) || region == NONE)
		return 0;
	return ledger_row_lend(b->lane, b->looked_up, 1, region, b->offset, b->length,
			       ESCROW_WRITE);
}

static uint64_t alone_settle(const struct bench *b, uint64_t wr_id)
{
	struct ledger_conn *conn = ledger_row_conn(b->lane, wr_id);
	struct ledger_oldest oldest;
	struct ledger_end end;

	if (!conn)
		return 0;
	oldest = ledger_oldest_of(b->lane, conn);
	if (!oldest.owed || !ledger_oldest_alone(&oldest, wr_id, &end))
		return 0;
	ledger_alone_settle(b->lane, conn, &end);
	return end.user;
}

static uint64_t (*volatile const lend)(const struct bench *b) = alone_lend;
static uint64_t (*volatile const settle)(const struct bench *b, uint64_t wr_id) = alone_settle;

static void one_slice(const struct bench *b)
{
	uint64_t wr_id = lend(b);

	if (!wr_id || settle(b, wr_id) != 1)
		must(ESCROW_E_INVALID, "lend, settle");
}

static void many_slices(const struct bench *b, uint32_t slices, uint32_t completions)
{
	struct ledger_loan loan = {.connection = b->connection,
				   .region = b->region,
				   .length = 4096 * (uint64_t)slices,
				   .opcode = ESCROW_WRITE};
	struct ledger_cqe cqe = {.outcome = LEDGER_OK};
	struct ledger_done done;
	uint64_t wr[MAX_SLICES];

	must(ledger_run_lend(b->lane, 1, &loan, 4096, slices, wr), "lend");
	for (uint32_t i = slices - completions; i < slices; i++) {
		cqe.wr_id = wr[i];
		must(ledger_settle(b->lane, &cqe, &done, 1), "settle");
	}
}

static void set_up(struct bench *b)
{
	struct ledger_config config = {.host = &host,
				       .max_contexts = 1,
				       .max_lanes = 1,
				       .max_connections = 1,
				       .max_regions = 1,
				       .max_accounts = 1,
				       .max_names = 1,
				       .ops_per_lane = SQ,
				       .sq_depth = SQ,
				       .stuck_percent = 50};
	uint64_t context, lane, peer;
	struct ledger *l;

	must(ledger_open(&config, &l, NULL), "open");
	context = add(l,
		      (struct ledger_owner_args){.kind = ESCROW_OWNER_CONTEXT,
						 .parent = ledger_engine(l),
						 .strength = LEDGER_STRENGTH_USUAL},
		      LEDGER_E_READY);
	lane = add(l,
		   (struct ledger_owner_args){
			   .kind = ESCROW_OWNER_LANE, .parent = context, .cq_depth = 2 * SQ},
		   LEDGER_E_READY);
	peer = add(l,
		   (struct ledger_owner_args){.kind = ESCROW_OWNER_PEER,
					      .parent = ledger_engine(l),
					      .peer_name = "peer"},
		   LEDGER_E_READY);
	b->lane = ledger_lane_of(l, lane);
	b->connection = add(l,
			    (struct ledger_owner_args){.kind = ESCROW_OWNER_CONNECTION,
						       .parent = lane,
						       .account = peer,
						       .sq_depth = SQ},
			    LEDGER_E_READY);
	b->region = add(l,
			(struct ledger_owner_args){.kind = ESCROW_OWNER_REGION,
						   .parent = context,
						   .length = 4096 * MAX_SLICES},
			LEDGER_E_READY);
	b->looked_up = lg_conn_find(b->lane, b->connection);
}

int main(int argc, char **argv)
{
	unsigned long parents = argc > 1 ? strtoul(argv[1], NULL, 0) : 0;
	unsigned long slices = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
	unsigned long completions = argc > 3 ? strtoul(argv[3], NULL, 0) : 0;
	struct bench b = {.length = 4096};

	if (slices < 1 || slices > MAX_SLICES || completions < 1 || completions > slices) {
		fprintf(stderr, "usage: ledger PARENTS SLICES(1-%u) COMPLETIONS(1-SLICES)\n",
			MAX_SLICES);
		return 2;
	}
	set_up(&b);
	for (unsigned long i = 0; i < parents; i++) {
		if (slices == 1)
			one_slice(&b);
		else
			many_slices(&b, (uint32_t)slices, (uint32_t)completions);
	}
	return 0;
}
