/* SPDX-License-Identifier: BSD-2-Clause */
/* The owner's side of the fault catalogue (docs/catalogue.md): keys that peers have, and how they die. On softverbs
 * the device is the adversary: requests come twice, the second time late. */
#include "backends/engine/engine.h"
#include "backends/engine/wire.h"
#include "tests/unit/catalogue.h"

/* What the owner would write down about a grant of `length` bytes at `at` to the user. */
static uint64_t described(uint64_t at, uint64_t length, struct wire_grant *out)
{
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t grant, len;
	uint8_t buf[4096];

	len = end_grant(&owner, owner_user, at, length, RW, buf, sizeof(buf), &grant);
	ck_assert_int_eq(wire_grant_get(buf, len, out, &error), ESCROW_OK);
	return grant;
}

/* The user believes the descriptor; its WRITE must be refused and change nothing. */
static void is_refused(const struct wire_grant *forged)
{
	struct escrow_event ev;
	uint8_t buf[4096];
	uint64_t remote;

	wire_grant_put(forged, buf);
	remote = end_import(&user, user_peer, buf, wire_grant_bytes(forged->nkeys));
	ev = end_move(&user, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_int_eq(ev.status, ESCROW_E_ACCESS);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	memory_is(&owner, 0, END_BYTES, 'o');
}

static void revokes(uint64_t grant)
{
	ck_assert_int_eq(OPS->revoke(owner.engine, grant, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, grant).status, ESCROW_OK);
}

/* R02, field-20: the grant ends in the middle of a stream of WRITEs. */
START_TEST(r02_no_byte_changes_after_the_revocation)
{
	uint64_t op[24];
	int n = 0;

	while (n < 24 && (op[n] = end_try_submit(&user, user_remote, ESCROW_WRITE, 8 * PIECE)))
		n++;
	ck_assert_int_gt(n, 4);
	revokes(user_grant);
	memset(owner.memory, 'r', HALF);
	double_forbid(owner.memory, HALF);
	while (n-- > 0)
		ck_assert_int_eq(end_wait_of(&user, ESCROW_EV_OP_DONE, op[n]).custody,
				 ESCROW_CUSTODY_RETURNED);
	double_settle();
	memory_is(&owner, 0, HALF, 'r');
	double_permit(owner.memory, HALF);
	good_goes_on();
}
END_TEST

static void breaks(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

/* R04: the queue on which the window could be invalidated is in error: deallocating the window is the proof. */
START_TEST(r04_a_window_outlives_its_queue)
{
	int64_t before = end_calls(&owner, ESCROW_STEP_DEALLOC_WINDOW);

	breaks(end_qp(&owner, owner_user), IBV_QPS_ERR);
	revokes(user_grant);
	ck_assert_int_eq(end_calls(&owner, ESCROW_STEP_DEALLOC_WINDOW), before + 1);
	ck_assert_int_le(end_calls(&owner, ESCROW_STEP_INVALIDATE), 1);
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_user);
	ck_assert_uint_eq(end_used(&owner, ESCROW_CHARGE_GRANTS), 1);
	good_goes_on();
}
END_TEST

/* R07 */
START_TEST(r07_a_grant_whose_bind_fails_is_never_told)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = RW,
					 .peer = owner_user,
					 .region = owner.region,
					 .length = END_BYTES};
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t grant, len = 0, granted = end_used(&owner, ESCROW_CHARGE_GRANTS);
	struct escrow_event ev;

	end_plan(&owner, "bind_window=fail");
	ck_assert_int_eq(OPS->grant(owner.engine, &args, &grant, &error), ESCROW_IN_PROGRESS);
	ev = end_wait_of(&owner, ESCROW_EV_GRANT_READY, grant);
	ck_assert_int_lt(ev.status, 0);
	ck_assert_int_lt(OPS->export_grant(owner.engine, grant, NULL, &len), 0);
	ck_assert_uint_eq(len, 0);
	ck_assert_uint_eq(end_used(&owner, ESCROW_CHARGE_GRANTS), granted);
	end_plan(&owner, "clear");
	good_goes_on();
}
END_TEST

/* R15, field-29: the key of a registration, as long as it lives (0), and after it is gone and another one stands
 * in its place (1): memory is reached through windows only. */
START_TEST(r15_the_key_of_a_registration_opens_nothing)
{
	struct region *r = engine_by_slot(owner.engine, owner.region);
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = owner.memory,
					  .length = END_BYTES,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	struct escrow_error error = {.size = sizeof(error)};
	struct wire_grant forged;
	uint32_t key = r->parts[0].native->mr->rkey;

	described(0, PIECE, &forged);
	forged.addr = (uint64_t)(uintptr_t)owner.memory;
	for (uint32_t i = 0; i < forged.nkeys; i++)
		forged.keys[i] = key;
	if (_i) {
		disconnects(&owner, owner_user);
		disconnects(&owner, owner_good);
		end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_user);
		end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_good);
		/* All of a device's engines get their keys from one place. */
		end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer);
		end_wait_of(&good, ESCROW_EV_PEER_DOWN, good_peer);
		region_comes_back(&owner);
		ck_assert_int_eq(OPS->register_memory(owner.engine, &args, &owner.region, &error),
				 ESCROW_OK);
		r = engine_by_slot(owner.engine, owner.region);
		/* As mlx5 does it. */
		ck_assert(!ends_double() || r->parts[0].native->mr->rkey == key);
		ends_connect(&owner, &user, &owner_user, &user_peer);
		described(0, PIECE, &forged);
		forged.addr = (uint64_t)(uintptr_t)owner.memory;
		for (uint32_t i = 0; i < forged.nkeys; i++)
			forged.keys[i] = key;
	}
	is_refused(&forged);
}
END_TEST

/* R16, R17: grants to one peer, more than a window has tags: no key is given twice, whichever window it is, and
 * the number of windows does not grow. */
START_TEST(r17_no_key_is_given_twice)
{
	uint64_t granted = end_used(&owner, ESCROW_CHARGE_GRANTS);
	struct wire_grant g;
	uint32_t keys[300];

	for (int i = 0; i < 300; i++) {
		revokes(described(0, END_BYTES, &g));
		keys[i] = g.keys[0];
		for (int k = 0; k < i; k++)
			ck_assert_msg(keys[k] != keys[i], "grants %d and %d have key 0x%x", k, i,
				      keys[i]);
		ck_assert_uint_eq(end_used(&owner, ESCROW_CHARGE_GRANTS), granted);
	}
	/* The one that was worn out is gone. */
	ck_assert_int_ge(end_calls(&owner, ESCROW_STEP_DEALLOC_WINDOW), 1);
	ck_assert_int_le(end_calls(&owner, ESCROW_STEP_ALLOC_WINDOW), 5);
	is_refused(&g);
}
END_TEST

/* ---- A peer that invalidates ------------------------------------------------------------------- */
static void sends_invalidation(uint32_t key)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key}, *bad;

	ck_assert_int_eq(ibv_post_send(end_qp(&user, user_peer), &wr, &bad), 0);
}

static uint32_t key_of(uint64_t grant)
{
	struct grant *g = engine_by_slot(owner.engine, grant);

	return g->windows[0]->rkey;
}

/* R18: it takes our own revocation away from us: the connection ends, the window is deallocated. */
START_TEST(r18_the_peer_invalidates_its_window)
{
	sends_invalidation(key_of(user_grant));
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_user);
	end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, user_grant);
	ck_assert_int_eq(end_calls(&owner, ESCROW_STEP_INVALIDATE), 0);
	ck_assert_int_eq(end_calls(&owner, ESCROW_STEP_DEALLOC_WINDOW), 1);
	ck_assert_uint_eq(end_used(&owner, ESCROW_CHARGE_GRANTS), 1);
	good_goes_on();
}
END_TEST

/* R19: the window of another peer: nobody pays but the one who sent it. */
START_TEST(r19_the_peer_invalidates_anothers_window)
{
	sends_invalidation(key_of(good_grant));
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_user);
	end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, user_grant);
	good_goes_on();
	ck_assert_uint_eq(end_used(&owner, ESCROW_CHARGE_GRANTS), 1);
	revokes(good_grant);
}
END_TEST

/* ---- Epochs ------------------------------------------------------------------------------------ */
/* ---- A bind whose doorbell fails -------------------------------------------------------------------- */
static struct ibv_context_ops of_device;
static struct ibv_mw *bound;
static uint32_t bound_key;

/* As rxe answers then: the bind is in its queue, and no request is the bad one. */
static int post_unrung(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	bool bind = wr->opcode == IBV_WR_BIND_MW;
	int rc = of_device.post_send(qp, wr, bad);

	if (!bind || bound)
		return rc;
	ck_assert_int_eq(rc, 0);
	bound = wr->bind_mw.mw;
	bound_key = wr->bind_mw.rkey;
	*bad = NULL;
	return ENOMEM;
}

static int dealloc_watched(struct ibv_mw *mw)
{
	if (mw == bound)
		ck_assert_uint_eq(mw->rkey, bound_key);
	return of_device.dealloc_mw(mw);
}

/* Q40: the window has the key that the device was told, its connection ends, and the grant ends with the window. */
START_TEST(q40_a_bind_fails_and_is_the_devices)
{
	struct ibv_context_ops *verbs = &end_qp(&owner, owner_user)->context->ops;
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = RW,
					 .peer = owner_user,
					 .region = owner.region,
					 .length = PIECE};
	struct escrow_error error = {.size = sizeof(error)};
	int64_t gone = end_calls(&owner, ESCROW_STEP_DEALLOC_WINDOW);
	uint64_t grant;

	end_plan(&owner, "cqe=hold");
	of_device = *verbs;
	verbs->post_send = post_unrung;
	verbs->dealloc_mw = dealloc_watched;
	ck_assert_int_eq(OPS->grant(owner.engine, &args, &grant, &error), ESCROW_IN_PROGRESS);
	end_never(&owner,
		  ESCROW_EV_GRANT_READY); /* neither bound nor refused, as far as anybody knows */
	ck_assert_int_eq(end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, grant).status, ESCROW_OK);
	ck_assert_ptr_nonnull(bound);
	ck_assert_int_gt(end_calls(&owner, ESCROW_STEP_DEALLOC_WINDOW), gone);
	ck_assert_int_eq(end_calls(&owner, ESCROW_STEP_QP_ERR), 1);
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_user);
	end_plan(&owner, "cqe=release");
	ck_assert_uint_eq(end_counter(&owner, "completions.anomalous"), 0);
	good_goes_on();
}
END_TEST

/* E02: the connection is made again: the old grant is stale; if its epoch is forged the device refuses its key. */
START_TEST(e02_a_grant_of_the_connection_before)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct wire_grant old, now;
	uint64_t remote = 7;
	uint8_t buf[4096];

	described(0, PIECE, &old);
	disconnects(&user, user_peer);
	end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer);
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_user);
	ends_connect(&owner, &user, &owner_user, &user_peer);
	wire_grant_put(&old, buf);
	ck_assert_int_eq(OPS->import_grant(user.engine, user_peer, buf, wire_grant_bytes(old.nkeys),
					   0, &remote, &error),
			 ESCROW_E_STALE_EPOCH);
	ck_assert_uint_eq(remote, 7);
	described(0, PIECE, &now);
	ck_assert_uint_gt(now.epoch, old.epoch);
	ck_assert_uint_ne(now.keys[0], old.keys[0]);
	memcpy(now.keys, old.keys, sizeof(now.keys));
	is_refused(&now);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, r02_no_byte_changes_after_the_revocation);
	tcase_add_test(t, r04_a_window_outlives_its_queue);
	tcase_add_test(t, r07_a_grant_whose_bind_fails_is_never_told);
	tcase_add_loop_test(t, r15_the_key_of_a_registration_opens_nothing, 0, 2);
	tcase_add_test(t, r17_no_key_is_given_twice);
	tcase_add_test(t, r18_the_peer_invalidates_its_window);
	if (ends_double()) /* rxe does not ask by whose queue pair it came (rxe_mw.c) */
		tcase_add_test(t, r19_the_peer_invalidates_anothers_window);
	tcase_add_test(t, q40_a_bind_fails_and_is_the_devices);
	tcase_add_test(t, e02_a_grant_of_the_connection_before);
}

int main(void)
{
	setenv("SOFTVERBS_ADVERSARY", "1", 1);
	return catalogue_run("catalogue-owner", add, NULL);
}
