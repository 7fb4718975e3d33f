/* SPDX-License-Identifier: BSD-2-Clause */
/* Cases of the fault catalogue (docs/catalogue.md) that need a device and a network which can be stopped, held and
 * made deaf: softverbs only. */
#include "backends/engine/engine.h"
#include "tests/softverbs/softverbs.h"
#include "tests/unit/catalogue.h"

/* Q01, Q06: completions of one queue pair stop after the third. Its requests go on touching their memory until the
 * reset; from the moment an op is told to be back, softverbs ends the program on any access. */
START_TEST(q01_a_device_that_goes_on)
{
	uint64_t op[8];
	int i;

	softverbs_cqe(end_qp(&user, user_peer), SOFTVERBS_CQE_HOLD, 3, 0);
	for (i = 0; i < 8; i++)
		op[i] = end_submit(&user, user_remote, ESCROW_READ, 5 * PIECE * (uint64_t)i, 0,
				   5 * PIECE);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(end_wait_of(&user, ESCROW_EV_OP_DONE, op[i]).effect,
				 ESCROW_EFFECT_EXECUTED);
	ck_assert_int_eq(OPS->cancel(user.engine, op[7], 0), ESCROW_IN_PROGRESS);
	end_never(&user, ESCROW_EV_OP_DONE);
	good_goes_on();
	disconnects(&user, user_peer);
	for (; i < 8; i++) {
		came_back(&user, op[i]);
		double_forbid(user.memory + 5 * PIECE * (uint64_t)i, 5 * PIECE);
	}
	ck_assert_int_eq(end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer).status, ESCROW_OK);
	double_settle();
	end_never(&user, ESCROW_EV_OP_DONE);
	for (i = 3; i < 8; i++)
		double_permit(user.memory + 5 * PIECE * (uint64_t)i, 5 * PIECE);
}
END_TEST

/* Q29, Q31: an op over two rails; what was posted last, on the second, is done, and completions of the first are
 * late: it is not over. */
START_TEST(q31_an_op_ends_with_its_last_completion)
{
	static const char *const two_rails[] = {"slice_bytes=4096", "drain_ms=300", NULL};
	uint64_t idle, op;
	struct escrow_event ev;
	struct ibv_qp *first;

	both_open(two_rails);
	idle = end_used(&user, ESCROW_CHARGE_SQ_SLOTS);
	first = end_qp(&user, user_peer);
	softverbs_cqe(first, SOFTVERBS_CQE_HOLD, 0, 0);
	op = end_submit(&user, user_remote, ESCROW_WRITE, 0, 0, 16 * PIECE);
	while (end_used(&user, ESCROW_CHARGE_SQ_SLOTS) > idle + 8)
		ends_turn();
	ck_assert_uint_eq(end_used(&user, ESCROW_CHARGE_SQ_SLOTS), idle + 8);
	end_never(&user, ESCROW_EV_OP_DONE);
	softverbs_cqe_release(first);
	ev = end_wait_of(&user, ESCROW_EV_OP_DONE, op);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_uint_eq(ev.bytes, 16 * PIECE);
	memory_is(&owner, 0, 16 * PIECE, 'u');
	teardown();
}
END_TEST

/* Retries that go on for half a minute: what is to be seen before their end is, on a slow machine too. */
static const char *const patient[] = {
	"test.faults=1", "max_rails=1", "slice_bytes=4096", "drain_ms=300", "rdma.timeout=20",
	"rdma.retry=6",  NULL};

/* One READ, or what was answered. */
static int32_t submit(struct end *e, uint64_t remote, uint64_t *id)
{
	struct escrow_sge sge = {.region = e->region, .offset = HALF, .length = PIECE};
	struct escrow_op op = {.remote = remote, .opcode = ESCROW_READ, .nsge = 1, .sge = &sge};

	return OPS->transfer(e->engine, &op, 1, sizeof(op), 0, id);
}

/* R09: the queue on which a window is to be invalidated is full of our own slices. */
START_TEST(r09_a_full_queue_still_revokes)
{
	struct ibv_context *device = end_qp(&owner, owner_user)->context;
	uint64_t grant, len, remote, op[256];
	uint8_t buf[4096];
	int n = 0;

	len = end_grant(&user, user_peer, 0, END_BYTES, RW, buf, sizeof(buf), &grant);
	remote = end_import(&owner, owner_user, buf, len);
	softverbs_hold(device, 1);
	while (n < 256 && submit(&owner, remote, &op[n]) == 1)
		n++;
	ck_assert_int_lt(n, 256);
	ck_assert_int_eq(OPS->revoke(owner.engine, user_grant, 0), ESCROW_IN_PROGRESS);
	end_never(&owner, ESCROW_EV_GRANT_REVOKED);
	softverbs_hold(device, 0);
	ck_assert_int_eq(end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, user_grant).status,
			 ESCROW_OK);
	/* By the invalidation, for which a slot was kept. */
	ck_assert_int_eq(end_calls(&owner, ESCROW_STEP_INVALIDATE), 1);
	ck_assert_int_eq(end_calls(&owner, ESCROW_STEP_DEALLOC_WINDOW), 0);
	while (n-- > 0)
		ck_assert_int_eq(end_wait_of(&owner, ESCROW_EV_OP_DONE, op[n]).status, ESCROW_OK);
}
END_TEST

/* R12, R13: nothing passes between the two; the owner revokes, and hands the memory on. The network comes back, and with
 * it the WRITE. */
START_TEST(r12_a_partition_that_heals)
{
	struct escrow_event ev;
	uint64_t op;

	both_open(patient);
	softverbs_blackhole(0, 1);
	op = end_submit(&user, user_remote, ESCROW_WRITE, 0, 0, PIECE);
	end_never(&user, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(OPS->revoke(owner.engine, user_grant, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, user_grant).status,
			 ESCROW_OK);
	memset(owner.memory, 'r', HALF);
	double_forbid(owner.memory, HALF);
	softverbs_blackhole(0, 0);
	ev = end_wait_of(&user, ESCROW_EV_OP_DONE, op);
	ck_assert_int_lt(ev.status, 0);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_ne(ev.effect, ESCROW_EFFECT_EXECUTED);
	double_settle();
	memory_is(&owner, 0, HALF, 'r');
	double_permit(owner.memory, HALF);
	teardown();
}
END_TEST

/* N05, N02: the network stands still, for less than the retries: a deadline passes, and nothing else. */
START_TEST(n05_a_network_that_stands_still)
{
	struct escrow_sge sge = {.length = PIECE};
	struct escrow_op op = {.deadline_ns = 1, .opcode = ESCROW_READ, .nsge = 1, .sge = &sge};
	struct escrow_event ev;
	uint64_t id;

	both_open(patient);
	sge.region = user.region;
	op.remote = user_remote;
	softverbs_blackhole(0, 1);
	ck_assert_int_eq(OPS->transfer(user.engine, &op, 1, sizeof(op), 0, &id), 1);
	end_wait_of(&user, ESCROW_EV_OP_EXPIRED, id);
	end_never(&user, ESCROW_EV_OP_DONE);
	ck_assert_int_eq(OPS->deregister_memory(user.engine, user.region, 0), ESCROW_E_BUSY);
	softverbs_blackhole(0, 0);
	ev = end_wait_of(&user, ESCROW_EV_OP_DONE, id);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_EXECUTED);
	ck_assert(!end_has_seen(&user, ESCROW_EV_PEER_LOST));
	ck_assert(!end_has_seen(&owner, ESCROW_EV_PEER_LOST));
	good_goes_on();
	teardown();
}
END_TEST

static uint32_t start_psn(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	ck_assert_int_eq(ibv_query_qp(qp, &attr, IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init), 0);
	return attr.rq_psn;
}

/* E05: the queue pairs of the next connection have the numbers of the last; requests of that one come again, late, and
 * reach nothing. */
START_TEST(e05_ghosts_of_the_connection_before)
{
	uint32_t number = end_qp(&owner, owner_user)->qp_num;
	uint32_t psn = start_psn(end_qp(&owner, owner_user));

	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(end_move(&user, user_remote, ESCROW_WRITE, 0, 0, PIECE).status,
				 ESCROW_OK);
	disconnects(&user, user_peer);
	end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer);
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_user);
	memset(owner.memory, 'o', HALF);
	ends_connect(&owner, &user, &owner_user, &user_peer);
	ck_assert_uint_eq(end_qp(&owner, owner_user)->qp_num, number);
	ck_assert_uint_ne(start_psn(end_qp(&owner, owner_user)), psn);
	user_remote = lend_half(0, owner_user, &user, user_peer, &user_grant);
	double_settle();
	memory_is(&owner, 0, HALF, 'o');
	ck_assert_int_eq(end_move(&user, user_remote, ESCROW_READ, HALF, 0, PIECE).status,
			 ESCROW_OK);
	memory_is(&user, HALF, HALF + PIECE, 'o');
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, q31_an_op_ends_with_its_last_completion);
	tcase_add_test(t, r12_a_partition_that_heals);
	tcase_add_test(t, n05_a_network_that_stands_still);
}

static void add_connected(TCase *t)
{
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, q01_a_device_that_goes_on);
	tcase_add_test(t, r09_a_full_queue_still_revokes);
	tcase_add_test(t, e05_ghosts_of_the_connection_before);
}

int main(void)
{
	setenv("SOFTVERBS_ADVERSARY", "1", 1);
	return catalogue_run("catalogue-fabric", add, add_connected);
}
