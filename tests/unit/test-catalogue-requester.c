/* SPDX-License-Identifier: BSD-2-Clause */
/* The requester's side of the fault catalogue (docs/catalogue.md): what is lent, and what gives it back. */
#include "tests/unit/catalogue.h"

/* Q01, field-15: eight ops of five slices; from the second on no completion comes, nor the sentinel's. The reset
 * gives all of it back. */
START_TEST(q01_the_reset_gives_back_what_no_completion_does)
{
	uint64_t op[7];

	ck_assert_int_eq(end_move(&user, user_remote, ESCROW_READ, 0, 0, 5 * PIECE).effect,
			 ESCROW_EFFECT_EXECUTED);
	end_plan(&user, "cqe=hold");
	for (uint64_t i = 0; i < 7; i++)
		op[i] = end_submit(&user, user_remote, ESCROW_READ, 5 * PIECE * (i + 1), 0,
				   5 * PIECE);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_OPS), 7);
	disconnects(&user, user_peer);
	for (int i = 0; i < 7; i++)
		came_back(&user, op[i]);
	ck_assert_int_eq(end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer).status, ESCROW_OK);
	ck_assert_int_eq(end_calls(&user, ESCROW_STEP_QP_RESET), 1);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_OPS), 0);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_SQ_SLOTS), 0);
	region_comes_back(&user);
	memset(user.memory, 'r', END_BYTES);
	good_goes_on();
	memory_is(&user, 0, END_BYTES, 'r');
}
END_TEST

/* Q03 */
START_TEST(q03_only_the_destroy_fails)
{
	uint64_t op;

	end_plan(&user, "cqe=hold;destroy_qp=fail");
	op = end_submit(&user, user_remote, ESCROW_READ, 0, 0, PIECE);
	disconnects(&user, user_peer);
	came_back(&user, op);
	ck_assert_int_eq(end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer).status,
			 ESCROW_E_UNQUIESCED);
	region_comes_back(&user);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_OPS), 0);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_CONNECTIONS), 1);
	ck_assert_int_eq(end_calls(&user, ESCROW_STEP_DESTROY_QP), 1);
	ck_assert_uint_eq(end_quarantine(&user), 0);
}
END_TEST

static uint64_t submit_until(struct end *e, uint64_t remote, uint64_t deadline)
{
	struct escrow_sge sge = {.region = e->region, .length = PIECE};
	struct escrow_op op = {.remote = remote,
			       .deadline_ns = deadline,
			       .opcode = ESCROW_READ,
			       .nsge = 1,
			       .sge = &sge};
	uint64_t id;

	ck_assert_int_eq(OPS->transfer(e->engine, &op, 1, sizeof(op), 0, &id), 1);
	return id;
}

/* Q05, field-05: an op that stands still is told, and ends nothing. */
START_TEST(q05_a_deadline_gives_nothing_back)
{
	struct escrow_event ev;
	uint64_t op;

	end_plan(&user, "cqe=hold");
	op = submit_until(&user, user_remote, 1);
	end_wait_of(&user, ESCROW_EV_OP_EXPIRED, op);
	end_never(&user, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(OPS->deregister_memory(user.engine, user.region, 0), ESCROW_E_BUSY);
	end_plan(&user, "cqe=release");
	ev = end_wait_of(&user, ESCROW_EV_OP_DONE, op);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	region_comes_back(&user);
}
END_TEST

/* ---- A device that takes a part of what is posted ---------------------------------------------- */
static int (*device_post)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static unsigned int takes;

/* Of the next chain so many requests, and the next one is the bad one. */
static int post_some(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *last = wr, *next;
	int rc;

	qp->context->ops.post_send = device_post;
	*bad = wr;
	if (!takes)
		return ENOMEM;
	for (unsigned int i = 1; i < takes; i++)
		last = last->next;
	next = last->next;
	last->next = NULL;
	rc = device_post(qp, wr, bad);
	ck_assert_int_eq(rc, 0);
	last->next = next;
	*bad = next;
	return ENOMEM;
}

static void device_takes(struct end *e, uint64_t peer, unsigned int n)
{
	struct ibv_context *verbs = end_qp(e, peer)->context;

	takes = n;
	device_post = verbs->ops.post_send;
	verbs->ops.post_send = post_some;
}

/* Q08: the first two of five are the device's, the last, which asks for the completion, is not: the connection
 * has to end for the two to end, and does. */
START_TEST(q08_a_post_is_refused_in_the_middle)
{
	struct escrow_event ev;
	uint64_t op;

	device_takes(&user, user_peer, 2);
	op = end_submit(&user, user_remote, ESCROW_READ, 0, 0, 5 * PIECE);
	ev = end_wait_of(&user, ESCROW_EV_OP_DONE, op);
	ck_assert_int_lt(ev.status, 0);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_UNKNOWN);
	ck_assert_uint_le(ev.bytes, 2 * PIECE);
	end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_SQ_SLOTS), 0);
	memory_is(&user, 2 * PIECE, END_BYTES, 'u');
	region_comes_back(&user);
}
END_TEST

/* Q09: nothing was taken: nothing is lent, and the connection works on. */
START_TEST(q09_a_post_is_refused_at_its_first_request)
{
	uint64_t slots = end_used(&user, ESCROW_CHARGE_SQ_SLOTS);
	struct escrow_event ev;

	device_takes(&user, user_peer, 0);
	ev = end_move(&user, user_remote, ESCROW_READ, 0, 0, 5 * PIECE);
	ck_assert_int_lt(ev.status, 0);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_NOT_EXECUTED);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_SQ_SLOTS), slots);
	memory_is(&user, 0, END_BYTES, 'u');
	ck_assert_int_eq(end_move(&user, user_remote, ESCROW_READ, 0, 0, 5 * PIECE).status,
			 ESCROW_OK);
	ck_assert_int_eq(end_calls(&user, ESCROW_STEP_QP_ERR), 0);
}
END_TEST

/* As rxe answers if its doorbell fails: the device has all of the chain, and none is the bad request. */
static int post_unrung(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int rc = device_post(qp, wr, bad);

	qp->context->ops.post_send = device_post;
	ck_assert_int_eq(rc, 0);
	*bad = NULL;
	return ENOMEM;
}

/* Q40: an op whose post failed is under way all the same, and so is the next one on that connection.  No completion
 * comes: both come back by the reset, neither before, and nobody calls them not executed. */
START_TEST(q40_a_post_fails_and_all_of_it_is_the_devices)
{
	struct ibv_context *verbs = end_qp(&user, user_peer)->context;
	uint64_t first, second;

	end_plan(&user, "cqe=hold");
	device_post = verbs->ops.post_send;
	verbs->ops.post_send = post_unrung;
	first = end_submit(&user, user_remote, ESCROW_READ, 0, 0, 5 * PIECE);
	second = end_try_submit(&user, user_remote, ESCROW_READ,
				PIECE); /* or there is no more to it */
	came_back(&user, first);
	if (second)
		came_back(&user, second);
	ck_assert_int_eq(end_calls(&user, ESCROW_STEP_QP_RESET), 1);
	end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer);
	end_plan(&user, "cqe=release");
	ck_assert_uint_eq(end_counter(&user, "completions.anomalous"), 0);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_SQ_SLOTS), 0);
	region_comes_back(&user);
	good_goes_on();
}
END_TEST

/* Q10: the only completion of an op of four slices is lost; that of the next op settles both. */
START_TEST(q10_one_completion_settles_what_came_before_it)
{
	uint64_t slots = end_used(&user, ESCROW_CHARGE_SQ_SLOTS), first, second;
	struct escrow_event ev;

	end_plan(&user, "cqe=drop:1");
	first = end_submit(&user, user_remote, ESCROW_READ, 0, 0, 4 * PIECE);
	end_never(&user, ESCROW_EV_OP_DONE);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_SQ_SLOTS), slots + 4);
	second = end_submit(&user, user_remote, ESCROW_READ, 4 * PIECE, 0, PIECE);
	ev = end_wait_of(&user, ESCROW_EV_OP_DONE, second);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_EXECUTED);
	ck_assert(end_seen(&user, ESCROW_EV_OP_DONE, first, &ev));
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_EXECUTED);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_SQ_SLOTS), slots);
	memory_is(&user, 0, 5 * PIECE, 'o');
}
END_TEST

/* Q14, Q16, Q17: a READ of three slices through a grant that is gone. Softverbs fills what is undefined in an
 * error completion with junk. */
START_TEST(q16_a_refused_read_costs_its_connection_and_nobody_elses)
{
	struct escrow_event ev;

	ck_assert_int_eq(OPS->revoke(owner.engine, user_grant, 0), ESCROW_IN_PROGRESS);
	end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, user_grant);
	ev = end_move(&user, user_remote, ESCROW_READ, 2 * PIECE, 0, 3 * PIECE);
	ck_assert_int_eq(ev.status, ESCROW_E_ACCESS);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_ne(ev.effect, ESCROW_EFFECT_EXECUTED);
	ck_assert_uint_eq(ev.bytes, 0);
	memory_is(&user, 0, 2 * PIECE, 'u');
	memory_is(&user, 5 * PIECE, END_BYTES, 'u');
	end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer);
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_user);
	good_goes_on();
}
END_TEST

/* Q15, H03: the peer stops answering, without a word: what is lent stays so until the retries have run out. The first
 * slice ends by that, the others are flushed: nobody can call any of it not executed. */
START_TEST(q15_a_peer_that_acknowledges_nothing)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	uint64_t op;

	end_give_up_soon(&user, user_peer);
	ck_assert_int_eq(ibv_modify_qp(end_qp(&owner, owner_user), &attr, IBV_QP_STATE), 0);
	op = end_submit(&user, user_remote, ESCROW_WRITE, 0, 0, 5 * PIECE);
	ck_assert_int_eq(OPS->deregister_memory(user.engine, user.region, 0), ESCROW_E_BUSY);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_OPS), 1);
	came_back(&user, op);
	end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_OPS), 0);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_SQ_SLOTS), 0);
	good_goes_on();
}
END_TEST

/* Q21, Q22: events of the queue wait in its channel when the engine closes. A destroy while one is got and not
 * acknowledged waits for ever, or ends softverbs. */
START_TEST(q21_close_with_events_in_the_channel)
{
	struct escrow_event ev;

	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(OPS->arm(user.engine, 0), ESCROW_OK);
		end_move(&user, user_remote, ESCROW_WRITE, 0, 0, PIECE);
	}
	while (OPS->arm(user.engine, 0) != ESCROW_OK)
		OPS->poll(user.engine, &ev, 1, sizeof(ev), 0);
	end_submit(&user, user_remote, ESCROW_WRITE, 0, 0, PIECE);
	end_close(&user);
}
END_TEST

/* Q25 */
START_TEST(q25_the_error_step_fails_and_happened)
{
	uint64_t op[4];

	end_plan(&user, "qp_err=effect");
	for (int i = 0; i < 4; i++)
		op[i] = end_submit(&user, user_remote, ESCROW_READ, 0, 0, 16 * PIECE);
	disconnects(&user, user_peer);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(end_wait_of(&user, ESCROW_EV_OP_DONE, op[i]).custody,
				 ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer).status, ESCROW_OK);
	end_close(&user);
}
END_TEST

/* Q27: nothing was owed when the destroy lied: the bytes are back. What lives on keeps its queue. */
START_TEST(q27_a_lying_destroy_does_no_harm)
{
	ck_assert_int_eq(end_move(&user, user_remote, ESCROW_READ, 0, 0, PIECE).status, ESCROW_OK);
	end_plan(&user, "destroy_qp=lie");
	disconnects(&user, user_peer);
	ck_assert_int_eq(end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer).status, ESCROW_OK);
	region_comes_back(&user);
	memset(user.memory, 'r', END_BYTES);
	good_goes_on();
	memory_is(&user, 0, END_BYTES, 'r');
	ck_assert_uint_eq(end_quarantine(&user), 0);
}
END_TEST

/* Q28, Q02: completions do not come, the reset fails, and a destroy would say 0 and do nothing. */
START_TEST(q28_a_destroy_alone_gives_nothing_back)
{
	struct escrow_event ev;
	uint64_t op;

	end_plan(&user, "cqe=hold;qp_reset=fail;destroy_qp=lie");
	op = end_submit(&user, user_remote, ESCROW_READ, 0, 0, PIECE);
	disconnects(&user, user_peer);
	ev = end_wait_of(&user, ESCROW_EV_OP_DONE, op);
	ck_assert_int_eq(ev.status, ESCROW_E_UNQUIESCED);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_HELD);
	ck_assert_int_eq(OPS->deregister_memory(user.engine, user.region, 0), ESCROW_E_BUSY);
	ck_assert_int_eq(end_calls(&user, ESCROW_STEP_QP_RESET), 1);
	ck_assert_uint_eq(end_quarantine(&user), END_BYTES);
}
END_TEST

/* E06: the old connection kept an op; its completion comes when the next connection to the same peer is up, and has an
 * op of its own under way. */
START_TEST(e06_a_completion_of_the_connection_before)
{
	struct escrow_event ev;
	uint64_t first, second;

	end_plan(&user, "cqe=hold;qp_reset=fail");
	first = end_submit(&user, user_remote, ESCROW_READ, 0, 0, PIECE);
	disconnects(&user, user_peer);
	ck_assert_int_eq(end_wait_of(&user, ESCROW_EV_OP_DONE, first).custody, ESCROW_CUSTODY_HELD);
	end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer);
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_user);
	ends_connect(&owner, &user, &owner_user, &user_peer);
	user_remote = lend_half(0, owner_user, &user, user_peer, &user_grant);
	second = end_submit(&user, user_remote, ESCROW_READ, HALF, 0, PIECE);
	end_never(&user, ESCROW_EV_OP_DONE);
	end_plan(&user, "cqe=release");
	ev = end_wait_of(&user, ESCROW_EV_OP_RETURNED, first);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ev = end_wait_of(&user, ESCROW_EV_OP_DONE, second);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	memory_is(&user, HALF, HALF + PIECE, 'o');
	/* The bytes are all back; the queue pair that was not reset is not. */
	ck_assert_uint_eq(end_quarantine(&user), 0);
}
END_TEST

/* ---- What is behind the connections -------------------------------------------------------------- */
static bool listed(struct end *e, uint32_t kind, uint32_t stage)
{
	struct escrow_record r[64];
	uint64_t cursor = 0;
	int32_t n, i;
	bool found = false;

	while ((n = OPS->records(e->engine, &cursor, r, 64, sizeof(r[0]))) > 0)
		for (i = 0; i < n; i++) {
			if (r[i].state != ESCROW_OWNER_QUARANTINED)
				continue;
			ck_assert_int_ne(r[i].kind, ESCROW_OWNER_REGION);
			found = found || (r[i].kind == kind && r[i].stage == stage &&
					  r[i].sys_errno == EBUSY);
		}
	return found;
}

/* Q32, Q33, Q34 */
START_TEST(q32_what_is_busy_stays_and_what_went_before_is_gone)
{
	static const struct {
		const char *plan;
		uint32_t kind, step;
	} cases[] = {{"destroy_channel=refused", ESCROW_OWNER_LANE, ESCROW_STEP_DESTROY_CHANNEL},
		     {"destroy_cq=refused", ESCROW_OWNER_LANE, ESCROW_STEP_DESTROY_CQ},
		     {"dealloc_pd=refused", ESCROW_OWNER_CONTEXT, ESCROW_STEP_DEALLOC_PD}};
	struct escrow_event ev;

	ck_assert_int_eq(end_move(&user, user_remote, ESCROW_READ, 0, 0, PIECE).status, ESCROW_OK);
	end_plan(&user, cases[_i].plan);
	ck_assert_int_eq(OPS->close(user.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	end_wait_of(&user, ESCROW_EV_REGION_RELEASED, user.region);
	do
		ev = end_wait(&user, ESCROW_EV_QUARANTINED);
	while (ev.object);
	ck_assert_uint_eq(ev.bytes, 0);
	ck_assert(listed(&user, cases[_i].kind, cases[_i].step));
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_CONNECTIONS), 0);
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_BYTES), 0);
	/* Each device has one of them, and each was asked once. */
	ck_assert_int_eq(end_calls(&user, cases[_i].step),
			 end_calls(&user, ESCROW_STEP_OPEN_DEVICE));
	/* Once more: the same answer, and no call. */
	ck_assert_uint_eq(end_quarantine(&user), 0);
	good_goes_on();
}
END_TEST

static void add(TCase *t)
{
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, q01_the_reset_gives_back_what_no_completion_does);
	tcase_add_test(t, q03_only_the_destroy_fails);
	tcase_add_test(t, q05_a_deadline_gives_nothing_back);
	tcase_add_test(t, q08_a_post_is_refused_in_the_middle);
	tcase_add_test(t, q09_a_post_is_refused_at_its_first_request);
	tcase_add_test(t, q40_a_post_fails_and_all_of_it_is_the_devices);
	tcase_add_test(t, q10_one_completion_settles_what_came_before_it);
	tcase_add_test(t, q16_a_refused_read_costs_its_connection_and_nobody_elses);
	tcase_add_test(t, q15_a_peer_that_acknowledges_nothing);
	tcase_add_test(t, e06_a_completion_of_the_connection_before);
	tcase_add_test(t, q21_close_with_events_in_the_channel);
	tcase_add_test(t, q25_the_error_step_fails_and_happened);
	tcase_add_test(t, q27_a_lying_destroy_does_no_harm);
	tcase_add_test(t, q28_a_destroy_alone_gives_nothing_back);
	tcase_add_loop_test(t, q32_what_is_busy_stays_and_what_went_before_is_gone, 0, 3);
}

int main(void)
{
	return catalogue_run("catalogue-requester", add, NULL);
}
