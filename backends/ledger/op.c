/* SPDX-License-Identifier: BSD-2-Clause */
/* Parents: admitted as a whole, reported once when no slice is outstanding any more. */
#include "backends/ledger/op.h"

/*
 * Limits on ops below what the tables hold are counted for all lanes at once: exact, and the only
 * contended counters there are, so nobody pays who sets none.
 */
static uint64_t ops_limit(const struct ledger *l, uint32_t name)
{
	uint64_t limit = (name == l->config.max_names ? l->config.limit
						      : l->config.name_limit)[ESCROW_CHARGE_OPS];

	return limit ? limit : LEDGER_NO_LIMIT;
}

static bool limit_take(struct ledger *l, uint32_t name)
{
	if (__atomic_fetch_add(&l->name_ops[name], 1u, __ATOMIC_RELAXED) < ops_limit(l, name))
		return true;
	__atomic_fetch_sub(&l->name_ops[name], 1u, __ATOMIC_RELAXED);
	return false;
}

static void limits_give(struct ledger *l, uint32_t name)
{
	__atomic_fetch_sub(&l->name_ops[l->config.max_names], 1u, __ATOMIC_RELAXED);
	if (name != NONE)
		__atomic_fetch_sub(&l->name_ops[name], 1u, __ATOMIC_RELAXED);
}

static bool limits_take(struct ledger *l, uint32_t name)
{
	if (!limit_take(l, l->config.max_names))
		return false;
	if (name == NONE || limit_take(l, name))
		return true;
	__atomic_fetch_sub(&l->name_ops[l->config.max_names], 1u, __ATOMIC_RELAXED);
	return false;
}

/* With limits, or on a lane that is not its home: what is handed over comes back all at once, so
 * there is no ABA. */
void lg_op_end_slowly(struct ledger_lane *lane, struct ledger_op *op)
{
	struct ledger *l = lane->ledger;
	uint32_t slot = (uint32_t)(op - l->ops);
	struct ledger_lane *home = &l->lanes[op->home];

	if (l->ops_limited)
		limits_give(l, op->name);
	if (home == lane) {
		op->next = lane->op_free;
		lane->op_free = slot;
		lane->ops_left++;
		return;
	}
	op->next = GET(home->op_returned);
	while (!__atomic_compare_exchange_n(&home->op_returned, &op->next, slot, true,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

/* Slots that other lanes handed over become the lane's again: true if there were any. */
bool lg_ops_reclaim(struct ledger_lane *lane)
{
	uint32_t first = __atomic_exchange_n(&lane->op_returned, NONE, __ATOMIC_ACQUIRE);
	struct ledger_op *ops = lane->ledger->ops;
	uint32_t last = first;

	if (first == NONE)
		return false;
	for (lane->ops_left++; ops[last].next != NONE; last = ops[last].next)
		lane->ops_left++;
	ops[last].next = lane->op_free;
	lane->op_free = first;
	return true;
}

static void give_parts(const struct ledger_admission *a, uint32_t parts)
{
	while (parts-- > 0) {
		struct ledger_conn *conn =
			lg_conn_find(a->parts[parts].lane, a->parts[parts].connection);

		PUT(conn->planned, conn->planned - a->parts[parts].slices);
	}
}

/* Charges every part, or none.  *total_out: how many slices, *shared_out: do they span lanes. */
static escrow_status take_parts(struct ledger_lane *home, const struct ledger_admission *a,
				uint32_t *name_out, uint64_t *total_out, bool *shared_out)
{
	escrow_status status;
	uint32_t i;

	for (i = 0; i < a->nparts; i++) {
		const struct ledger_part *p = &a->parts[i];
		struct ledger_conn *conn = lg_conn_find(p->lane, p->connection);

		status = !conn ? ESCROW_E_INVALID : ESCROW_E_STATE;
		if (!conn || !conn->ready)
			goto give_back;
		status = ESCROW_E_AGAIN;
		if ((uint64_t)conn_used(conn) + GET(conn->kept) + p->slices > conn->room)
			goto give_back;
		PUT(conn->planned, conn->planned + p->slices);
		*total_out += p->slices;
		*shared_out |= p->lane != home;
		*name_out = conn->name;
	}
	return ESCROW_OK;

give_back:
	give_parts(a, i);
	return status;
}

static __attribute__((noinline)) escrow_status admit_any(struct ledger_lane *home,
							 const struct ledger_admission *admission,
							 uint64_t *op_out)
{
	struct ledger *l = home->ledger;
	uint32_t name = NONE;
	uint64_t total = 0;
	bool shared = false;
	struct ledger_op *op;
	escrow_status status;

	if (GET(l->ops_refused))
		return ESCROW_E_QUOTA;
	status = take_parts(home, admission, &name, &total, &shared);
	if (status)
		return status;
	if (l->ops_limited && !limits_take(l, name)) {
		give_parts(admission, admission->nparts);
		return ESCROW_E_QUOTA;
	}
	op = lg_op_new(home, admission->user, total);
	if (!op) {
		if (l->ops_limited)
			limits_give(l, name);
		give_parts(admission, admission->nparts);
		return ESCROW_E_AGAIN;
	}
	/* One without slices gives no report that could end it. */
	lg_op_set(op, name, (uint8_t)(total ? LEDGER_OP_OPEN : LEDGER_OP_DONE), shared && total,
		  total && (admission->flags & LEDGER_ADMIT_ENDS));
	op->pending += op_reports(op);
	*op_out = op->handle;
	return ESCROW_OK;
}

/* The common case here: slices on one connection of the lane that is held anyway. */
escrow_status ledger_op_admit(struct ledger_lane *home, const struct ledger_admission *admission,
			      uint64_t *op_out)
{
	const struct ledger_part *p = admission->parts;
	struct ledger *l = home->ledger;
	struct ledger_conn *conn;
	struct ledger_op *op;

	if (UNLIKELY(admission->nparts != 1 || p->lane != home || p->slices == 0 ||
		     GET(l->ops_slowly)))
		return admit_any(home, admission, op_out);
	conn = lg_conn_find(home, p->connection);
	if (UNLIKELY(!conn))
		return ESCROW_E_INVALID;
	if (UNLIKELY(!conn->ready))
		return ESCROW_E_STATE;
	if (UNLIKELY((uint64_t)conn_used(conn) + GET(conn->kept) + p->slices > conn->room))
		return ESCROW_E_AGAIN;
	op = lg_op_new(home, admission->user, p->slices);
	if (UNLIKELY(!op))
		return ESCROW_E_AGAIN;
	lg_op_set(op, conn->name, LEDGER_OP_OPEN, false, admission->flags & LEDGER_ADMIT_ENDS);
	PUT(conn->planned, conn->planned + p->slices);
	*op_out = op->handle;
	return ESCROW_OK;
}

/* The whole's effect and its root cause: what failed first explains what was flushed after it. */
static void summarize(const struct ledger_op *op, uint8_t *outcome, uint8_t *effect)
{
	static const uint8_t worst[] = {
		LEDGER_RETRY_ERROR,   LEDGER_REMOTE_ERROR, LEDGER_LOCAL_ERROR, LEDGER_RNR,
		LEDGER_NOT_SENT,      LEDGER_DISCARDED,    LEDGER_FLUSHED,     LEDGER_FLUSHED_AFTER,
		LEDGER_COVERED_ERROR, LEDGER_REJECTED};
	uint32_t seen = GET(op->outcomes);
	bool first = true;

	*outcome = LEDGER_OK;
	*effect = ESCROW_EFFECT_EXECUTED;
	for (unsigned int o = 0; o < LEDGER_OUTCOMES; o++) {
		uint8_t e = ledger_effect((enum ledger_outcome)o);

		if (!(seen >> o & 1))
			continue;
		*effect = first ? e : ledger_effect_merge(*effect, e);
		first = false;
	}
	for (unsigned int i = 0; i < sizeof(worst); i++) {
		if (seen >> worst[i] & 1) {
			*outcome = worst[i];
			return;
		}
	}
}

static void fill(const struct ledger_op *op, uint32_t what, struct ledger_done *done)
{
	done->subject = op->handle;
	done->user = op->user;
	done->bytes = GET(op->bytes);
	done->what = what;
	done->custody = what == LEDGER_DONE_UNQUIESCED ? ESCROW_CUSTODY_HELD
						       : ESCROW_CUSTODY_RETURNED;
	done->releases = 0;
	summarize(op, &done->outcome, &done->effect);
	/* Of a slice that is stuck nobody knows. */
	if (what == LEDGER_DONE_UNQUIESCED)
		done->effect = ESCROW_EFFECT_UNKNOWN;
}

/*
 * Too many ops stuck: no more are admitted until some are returned.  Lanes may come here at once: each
 * has counted its own before, so under the mutex the last one counts them all, and nobody puts back
 * what an older count said.  Rare: something is, or was, in quarantine.
 */
static void weigh_stuck(struct ledger *l)
{
	uint64_t most = l->nops;
	int64_t stuck = 0;
	bool slowly;

	lg_lock(l);
	if (l->config.limit[ESCROW_CHARGE_OPS] && l->config.limit[ESCROW_CHARGE_OPS] < most)
		most = l->config.limit[ESCROW_CHARGE_OPS];
	for (uint32_t i = 0; i < l->config.max_lanes; i++)
		stuck += (int64_t)GET(l->lanes[i].ops_stuck);
	PUT(l->ops_refused, stuck > 0 && (uint64_t)stuck * 100 >= most * l->config.stuck_percent);
	slowly = l->ops_limited || l->ops_refused;
	if (slowly != l->ops_slowly) {
		PUT(l->ops_slowly, slowly);
		lg_conns_short(l, NULL);
	}
	lg_unlock(l);
}

/* Nothing of it is stuck.  What came back late on another lane was noted before it was counted: acquired first. */
static inline bool is_whole(const struct ledger_op *op)
{
	return __atomic_load_n(&op->pending, __ATOMIC_ACQUIRE) == op_reports(op);
}

/*
 * Some of it are stuck, when its report is due: is that told, or did they come back meanwhile?  What is read of the op
 * is read before its word is: from then on another lane may end it.
 */
static bool told_as_stuck(struct ledger_lane *lane, struct ledger_op *op, struct ledger_done *done)
{
	fill(op, LEDGER_DONE_UNQUIESCED, done);
	PUT(op->state, (uint8_t)LEDGER_OP_UNQUIESCED);
	if (op->shared && !op_less(op, PENDING_STUCK))
		return false;
	PUT(lane->ops_stuck, lane->ops_stuck + 1);
	weigh_stuck(lane->ledger);
	return true;
}

static __attribute__((noinline)) uint32_t report_slowly(struct ledger_lane *lane,
							struct ledger_op *op,
							struct ledger_done *done)
{
	if (!is_whole(op) && told_as_stuck(lane, op, done))
		return 1;
	PUT(op->pending, 0);
	fill(op, LEDGER_DONE_OP, done);
	PUT(op->state, (uint8_t)(done->outcome == LEDGER_OK ? LEDGER_OP_DONE : LEDGER_OP_FAILED));
	if (op->ends)
		lg_op_end(lane, op);
	return 1;
}

/* No slice is outstanding: DONE, FAILED, or UNQUIESCED if some are stuck. */
uint32_t lg_op_report(struct ledger_lane *lane, struct ledger_op *op, struct ledger_done *done)
{
	if (UNLIKELY(!is_whole(op)) || UNLIKELY(op->outcomes & ~ALL_OK))
		return report_slowly(lane, op, done);
	PUT(op->pending, 0);
	*done = (struct ledger_done){.subject = op->handle,
				     .user = op->user,
				     .bytes = op->bytes,
				     .what = LEDGER_DONE_OP,
				     .outcome = LEDGER_OK,
				     .custody = ESCROW_CUSTODY_RETURNED,
				     .effect = ESCROW_EFFECT_EXECUTED};
	PUT(op->state, (uint8_t)LEDGER_OP_DONE);
	if (op->ends)
		lg_op_end(lane, op);
	return 1;
}

static uint32_t fill_alone(const struct ledger_debt *debt, uint32_t what,
			   enum ledger_outcome outcome, struct ledger_done *done)
{
	bool ok = (1u << outcome & ALL_OK) != 0;

	*done = (struct ledger_done){.user = debt->subject,
				     .bytes = ok ? debt->length : 0,
				     .what = what,
				     .outcome = (uint8_t)(ok ? LEDGER_OK : outcome),
				     .custody = ESCROW_CUSTODY_RETURNED,
				     .effect = ledger_effect(outcome)};
	return 1;
}

/* A slice that is its own parent was settled, in time; or got stuck; or was settled after that. */
uint32_t lg_alone_ended(struct ledger_lane *lane, const struct ledger_debt *debt,
			enum ledger_outcome outcome, struct ledger_done *done)
{
	lane->ops_left++;
	return fill_alone(debt, LEDGER_DONE_OP, outcome, done);
}

static uint32_t alone_stuck(struct ledger_lane *lane, const struct ledger_debt *debt,
			    struct ledger_done *done)
{
	*done = (struct ledger_done){.user = debt->subject,
				     .what = LEDGER_DONE_UNQUIESCED,
				     .custody = ESCROW_CUSTODY_HELD,
				     .effect = ESCROW_EFFECT_UNKNOWN};
	PUT(lane->ops_stuck, lane->ops_stuck + 1);
	weigh_stuck(lane->ledger);
	return 1;
}

static uint32_t alone_unstuck(struct ledger_lane *lane, const struct ledger_debt *debt,
			      enum ledger_outcome outcome, struct ledger_done *done)
{
	PUT(lane->ops_stuck, lane->ops_stuck - 1);
	weigh_stuck(lane->ledger);
	lane->ops_left++;
	return fill_alone(debt, LEDGER_DONE_RETURNED, outcome, done);
}

uint32_t lg_op_stuck(struct ledger_lane *lane, const struct ledger_debt *debt,
		     struct ledger_done *done)
{
	struct ledger_op *op;

	if (debt->op == NONE)
		return alone_stuck(lane, debt, done);
	op = &lane->ledger->ops[debt->op];
	if ((uint32_t)op_less(op, PENDING_ONE - PENDING_STUCK))
		return 0;
	return lg_op_report(lane, op, done);
}

uint32_t lg_op_unstuck(struct ledger_lane *lane, const struct ledger_debt *debt,
		       enum ledger_outcome outcome, struct ledger_done *done)
{
	struct ledger_op *op;

	if (debt->op == NONE)
		return alone_unstuck(lane, debt, outcome, done);
	op = &lane->ledger->ops[debt->op];
	op_note(op, outcome, debt->length);
	if (op_less(op, PENDING_STUCK))
		return 0;
	fill(op, LEDGER_DONE_RETURNED, done);
	PUT(lane->ops_stuck, lane->ops_stuck - 1);
	weigh_stuck(lane->ledger);
	if (op->ends)
		lg_op_end(lane, op);
	return 1;
}

int32_t ledger_op_drop(struct ledger_lane *lane, uint64_t connection, uint64_t op, uint32_t slices,
		       struct ledger_done *done)
{
	struct ledger_conn *conn = lg_conn_find(lane, connection);
	struct ledger_op *o = lg_op_find(lane->ledger, op);

	if (!conn || !o || slices > conn->planned || slices > (uint32_t)GET(o->pending))
		return ESCROW_E_INVALID;
	if (slices == 0)
		return 0;
	PUT(conn->planned, conn->planned - slices);
	op_note(o, LEDGER_REJECTED, 0);
	if ((uint32_t)op_less(o, slices * PENDING_ONE))
		return 0;
	return (int32_t)lg_op_report(lane, o, done);
}

escrow_status ledger_op_cancel(struct ledger_lane *lane, uint64_t op)
{
	struct ledger_op *o = lg_op_find(lane->ledger, op);
	uint8_t open = LEDGER_OP_OPEN;

	if (!o)
		return ESCROW_E_INVALID;
	if (!__atomic_compare_exchange_n(&o->state, &open, (uint8_t)LEDGER_OP_CANCELLING, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return ESCROW_E_STATE;
	return ESCROW_OK;
}

escrow_status ledger_op_info(struct ledger_lane *lane, uint64_t op, struct ledger_op_info *out)
{
	const struct ledger_op *o = lg_op_find(lane->ledger, op);
	uint64_t pending;
	uint8_t outcome;

	if (!o)
		return ESCROW_E_INVALID;
	out->state = GET(o->state);
	pending = GET(o->pending);
	/* Not yet reported: see PENDING_STUCK. */
	if (out->state <= LEDGER_OP_CANCELLING && pending)
		pending -= op_reports(o);
	out->stuck = (uint32_t)(pending >> 32);
	out->unsettled = (uint32_t)pending + out->stuck;
	out->custody = pending ? ESCROW_CUSTODY_HELD : ESCROW_CUSTODY_RETURNED;
	summarize(o, &outcome, &out->effect);
	if (pending)
		out->effect = ESCROW_EFFECT_UNKNOWN;
	out->reserved0 = 0;
	out->bytes = GET(o->bytes);
	out->user = o->user;
	return ESCROW_OK;
}

escrow_status ledger_op_end(struct ledger_lane *lane, uint64_t op)
{
	struct ledger_op *o = lg_op_find(lane->ledger, op);

	if (!o)
		return ESCROW_E_INVALID;
	if (GET(o->pending))
		return ESCROW_E_BUSY;
	lg_op_end(lane, o);
	return ESCROW_OK;
}
