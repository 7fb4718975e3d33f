/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/ledger/bed.h"

#include <stdlib.h>
#include <string.h>

uint32_t bed_log_entries = 4096;

static void *bed_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	struct bed_host *h = ctx;

	if (++h->allocs == h->fail_at)
		return NULL;
	h->live++;
	return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void bed_free(void *ctx, void *p)
{
	struct bed_host *h = ctx;

	if (p)
		h->live--;
	free(p);
}

static uint64_t bed_now(void *ctx)
{
	return ((struct bed_host *)ctx)->now;
}

void bed_host_init(struct bed_host *h)
{
	memset(h, 0, sizeof(*h));
	h->now = 1000;
	h->host = (struct escrow_host){.size = sizeof(h->host),
				       .ctx = h,
				       .alloc = bed_alloc,
				       .free = bed_free,
				       .now_ns = bed_now};
}

void bed_config(struct bed *b)
{
	memset(b, 0, sizeof(*b));
	bed_host_init(&b->h);
	b->error.size = sizeof(b->error);
	b->config = (struct ledger_config){.host = &b->h.host,
					   .incarnation = {1, 2, 3},
					   .max_contexts = 2,
					   .max_lanes = BED_LANES + 1,
					   .max_connections = 6,
					   .max_regions = 6,
					   .max_controls = 2,
					   .max_windows = 8,
					   .max_grants = 8,
					   .max_accounts = 5,
					   .max_names = 3,
					   .ops_per_lane = 8,
					   .sq_depth = BED_SQ,
					   .log_entries = bed_log_entries,
					   .stuck_percent = 100};
}

void bed_open(struct bed *b)
{
	escrow_status status = ledger_open(&b->config, &b->l, &b->error);

	ck_assert_msg(status == ESCROW_OK, "open: %d %s", status, b->error.text);
}

static uint64_t add(struct bed *b, const struct ledger_owner_args *args)
{
	uint64_t owner = 0;
	escrow_status status = ledger_owner_add(b->l, args, &owner, &b->error);

	ck_assert_msg(status == ESCROW_OK, "add kind %u: %d %s", args->kind, status, b->error.text);
	return owner;
}

uint64_t bed_account(struct bed *b, const char *name)
{
	return add(b, &(struct ledger_owner_args){.kind = ESCROW_OWNER_PEER,
						  .parent = ledger_engine(b->l),
						  .peer_name = name});
}

uint64_t bed_connect(struct bed *b, int lane, uint64_t account)
{
	uint64_t conn = add(
		b, &(struct ledger_owner_args){.kind = ESCROW_OWNER_CONNECTION,
					       .parent = b->lane[lane],
					       .account = account,
					       .sq_depth = BED_SQ,
					       .rq_depth = BED_RQ,
					       .steps = LEDGER_STEP_BIT(ESCROW_STEP_DESTROY_QP)});

	ck_assert_int_eq(ledger_owner_event(b->l, conn, LEDGER_E_READY), ESCROW_OK);
	return conn;
}

uint64_t bed_register(struct bed *b, uint64_t length)
{
	uint64_t region = add(
		b, &(struct ledger_owner_args){.kind = ESCROW_OWNER_REGION,
					       .parent = b->context,
					       .addr = 0x10000,
					       .length = length,
					       .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEREGISTER)});

	ck_assert_int_eq(ledger_region_key(b->l, region, BED_KEY), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b->l, region, LEDGER_E_READY), ESCROW_OK);
	return region;
}

uint64_t bed_window(struct bed *b, uint32_t rkey)
{
	return add(b, &(struct ledger_owner_args){
			      .kind = ESCROW_OWNER_WINDOW,
			      .parent = b->context,
			      .rkey = rkey,
			      .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEALLOC_WINDOW)});
}

void bed_make(struct bed *b, ledger_strength strength)
{
	if (!b->config.host)
		bed_config(b);
	bed_open(b);
	b->context = add(
		b, &(struct ledger_owner_args){.kind = ESCROW_OWNER_CONTEXT,
					       .parent = ledger_engine(b->l),
					       .strength = strength,
					       .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEALLOC_PD) |
							LEDGER_STEP_BIT(ESCROW_STEP_CLOSE_DEVICE)});
	ck_assert_int_eq(ledger_owner_event(b->l, b->context, LEDGER_E_READY), ESCROW_OK);
	b->account = bed_account(b, "bob");
	for (int i = 0; i < BED_LANES; i++) {
		b->lane[i] = add(b, &(struct ledger_owner_args){
					    .kind = ESCROW_OWNER_LANE,
					    .parent = b->context,
					    .cq_depth = 3 * (BED_SQ + BED_RQ),
					    .steps = LEDGER_STEP_BIT(ESCROW_STEP_DESTROY_CQ) |
						     LEDGER_STEP_BIT(ESCROW_STEP_DESTROY_CHANNEL)});
		b->at[i] = ledger_lane_of(b->l, b->lane[i]);
		ck_assert_ptr_nonnull(b->at[i]);
		b->conn[i] = bed_connect(b, i, b->account);
	}
	b->region = bed_register(b, BED_REGION);
}

escrow_status bed_step(struct bed *b, uint64_t owner, uint32_t step, int32_t rc)
{
	escrow_status status = ledger_step_begin(b->l, owner, step, &b->error);

	return status ? status : ledger_step_end(b->l, owner, step, rc);
}

escrow_status bed_deregister(struct bed *b, uint64_t region, int32_t rc)
{
	ck_assert_int_eq(ledger_owner_event(b->l, region, LEDGER_E_STOP), ESCROW_OK);
	for (int i = 0; i < BED_LANES; i++)
		ledger_lane_sync(b->at[i]);
	return bed_step(b, region, ESCROW_STEP_DEREGISTER, rc);
}

escrow_status bed_disconnect(struct bed *b, uint64_t conn, int32_t rc)
{
	ck_assert_int_eq(ledger_owner_event(b->l, conn, LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(bed_step(b, conn, ESCROW_STEP_QP_ERR, 0), ESCROW_OK);
	return bed_step(b, conn, ESCROW_STEP_DESTROY_QP, rc);
}

uint64_t bed_op(struct bed *b, uint32_t n, uint64_t *wr)
{
	struct ledger_part part = {.lane = b->at[0], .connection = b->conn[0], .slices = n};
	struct ledger_admission admission = {.user = 77, .nparts = 1, .parts = &part};
	struct ledger_loan loan = {.connection = b->conn[0],
				   .region = b->region,
				   .length = 1024 * (uint64_t)n,
				   .opcode = ESCROW_WRITE};

	ck_assert_int_eq(ledger_op_admit(b->at[0], &admission, &loan.op), ESCROW_OK);
	ck_assert_int_eq(ledger_slices_lend(b->at[0], &loan, 1024, n, wr), ESCROW_OK);
	return loan.op;
}

int32_t bed_cqe(struct bed *b, int lane, uint64_t wr, enum ledger_outcome outcome,
		struct ledger_done *done, uint32_t max)
{
	struct ledger_cqe cqe = {.wr_id = wr, .outcome = outcome};

	return ledger_settle(b->at[lane], &cqe, done, max);
}

struct ledger_owner_info bed_info(struct bed *b, uint64_t owner)
{
	struct ledger_owner_info info;

	ck_assert_int_eq(ledger_owner_info(b->l, owner, &info), ESCROW_OK);
	return info;
}

uint64_t bed_used(struct bed *b, const char *name, uint32_t kind)
{
	struct escrow_charge c;

	ck_assert_int_eq(ledger_usage(b->l, name, kind, &c), ESCROW_OK);
	return c.used;
}

uint64_t bed_stuck(struct bed *b, const char *name, uint32_t kind)
{
	struct escrow_charge c;

	ck_assert_int_eq(ledger_usage(b->l, name, kind, &c), ESCROW_OK);
	return c.stuck;
}

/* ---- Checking ----------------------------------------------------------------------------------- */
/* What a receipt for a release must have been, by thing: the rules of custody once more. */
static bool justifies(uint32_t thing, uint32_t receipt, uint64_t strength_fatal)
{
	bool fatal = strength_fatal & 1;
	bool strong = strength_fatal >> 1 >> receipt & 1;
	bool outside = receipt == ESCROW_RECEIPT_PROCESS_REAPED ||
		       receipt == ESCROW_RECEIPT_FUNCTION_FENCED;

	if (outside)
		return true;
	if (fatal)
		return false;
	switch (thing) {
	case LEDGER_REGION:
		return receipt == ESCROW_RECEIPT_DEREGISTERED && strong;
	case LEDGER_WINDOW:
		return receipt == ESCROW_RECEIPT_WINDOW_FREED && strong;
	case LEDGER_CQ:
		return receipt == ESCROW_RECEIPT_CQ_DESTROYED && strong;
	case LEDGER_QP:
		return receipt == ESCROW_RECEIPT_QP_DESTROYED;
	case LEDGER_CHANNEL:
		return receipt == ESCROW_RECEIPT_CHANNEL_GONE;
	case LEDGER_PD:
		return receipt == ESCROW_RECEIPT_PD_GONE;
	case LEDGER_DEVICE:
		return receipt == LEDGER_RECEIPT_DEVICE_CLOSED;
	default:
		return false;
	}
}

/* I5 for one release: the last receipt of the same owner before it must justify it. */
static void replay_release(const struct ledger_log_entry *log, uint32_t at)
{
	uint32_t thing = log[at].code & 0xff, receipt = log[at].code >> 8;

	/* A grant's receipt is its windows', and one never bound needs none. */
	if (thing == LEDGER_GRANT)
		return;
	for (uint32_t i = at; i-- > 0;) {
		/* Gone by word: only what never had a native step. */
		if (receipt == 0 && log[i].subject == log[at].subject)
			ck_assert_uint_ne(log[i].what, LEDGER_LOG_CALL);
		if (receipt == 0)
			continue;
		if (log[i].what != LEDGER_LOG_RECEIPT || log[i].subject != log[at].subject)
			continue;
		ck_assert_msg(log[i].code == receipt && justifies(thing, receipt, log[i].value),
			      "release of thing %u by receipt %u (strength %#llx)", thing, receipt,
			      (unsigned long long)log[i].value);
		return;
	}
	ck_assert_msg(receipt == 0, "thing %u was released without a receipt", thing);
}

static void replay(struct bed *b)
{
	static struct ledger_log_entry log[4096];
	uint64_t cursor = 0, lost;
	uint32_t n = ledger_log_read(b->l, -1, &cursor, log, 4096, &lost);

	if (lost)
		return; /* what came before is not there to be judged by */
	for (uint32_t i = 0; i < n; i++) {
		if (log[i].what == LEDGER_LOG_RELEASE)
			replay_release(log, i);
		if (log[i].what != LEDGER_LOG_CALL)
			continue;
		for (uint32_t j = 0; j < i; j++) /* I4 */
			ck_assert_msg(log[j].what != LEDGER_LOG_CALL ||
					      log[j].subject != log[i].subject ||
					      log[j].code != log[i].code,
				      "step %u was called twice", log[i].code);
	}
}

void bed_check(struct bed *b)
{
	char text[256] = "";

	ck_assert_msg(ledger_check(b->l, text, sizeof(text)) == ESCROW_OK, "%s", text);
	replay(b);
}

void bed_end(struct bed *b)
{
	struct ledger_owner_info info;

	for (int i = 0; i < BED_LANES; i++) {
		if (ledger_owner_info(b->l, b->conn[i], &info) == ESCROW_OK)
			ck_assert_int_eq(bed_disconnect(b, b->conn[i], 0), ESCROW_OK);
	}
	if (ledger_owner_info(b->l, b->region, &info) == ESCROW_OK)
		ck_assert_int_eq(bed_deregister(b, b->region, 0), ESCROW_OK);
	for (int i = 0; i < BED_LANES; i++) {
		ck_assert_int_eq(ledger_owner_event(b->l, b->lane[i], LEDGER_E_STOP), ESCROW_OK);
		ck_assert_int_eq(bed_step(b, b->lane[i], ESCROW_STEP_DESTROY_CQ, 0), ESCROW_OK);
		ck_assert_int_eq(bed_step(b, b->lane[i], ESCROW_STEP_DESTROY_CHANNEL, 0),
				 ESCROW_OK);
	}
	ck_assert_int_eq(ledger_owner_event(b->l, b->context, LEDGER_E_STOP), ESCROW_OK);
	ck_assert_int_eq(bed_step(b, b->context, ESCROW_STEP_DEALLOC_PD, 0), ESCROW_OK);
	ck_assert_int_eq(bed_step(b, b->context, ESCROW_STEP_CLOSE_DEVICE, 0), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b->l, b->account, LEDGER_E_FENCE), ESCROW_OK);
	ck_assert_int_eq(ledger_owner_event(b->l, b->account, LEDGER_E_STOP), ESCROW_OK);
	bed_check(b);
	for (uint32_t kind = 1; kind < LEDGER_KINDS; kind++)
		ck_assert_uint_eq(bed_used(b, NULL, kind), 0);
	ck_assert_int_eq(ledger_release(b->l), ESCROW_OK);
	ck_assert_uint_eq(b->h.live, 0);
}

void bed_fence(struct bed *b)
{
	ck_assert_int_eq(ledger_release(b->l), ESCROW_E_UNQUIESCED);
	ck_assert_uint_eq(ledger_residue(), 1);
	ck_assert_int_ge(ledger_fenced(NULL, b->config.incarnation, ESCROW_RECEIPT_FUNCTION_FENCED),
			 0);
	ck_assert_uint_eq(ledger_residue(), 0);
	ck_assert_uint_eq(b->h.live, 0);
}
