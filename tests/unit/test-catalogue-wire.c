/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A case of the fault catalogue (docs/catalogue.md) that needs a wire on which packets can be kept: the guest of
 * ./dev softroce with -w hub, where rails 0 and 1 are network cards of one machine.
 */
#include "tests/unit/catalogue.h"

/* The user does not come back by itself; the owner never gives up. */
static const char *const at_rail_0[] = {"max_rails=1",
					"drain_ms=300",
					"slice_bytes=4096",
					"rdma.rails=rxe0",
					"rdma.retry=6",
					"rdma.timeout=22",
					NULL};
static const char *const at_rail_1[] = {"max_rails=1",
					"drain_ms=300",
					"slice_bytes=4096",
					"rdma.rails=rxe1",
					"rdma.timeout=18",
					"rail_retry_ms=60000",
					NULL};

static void run(const char *command)
{
	ck_assert_msg(system(command) == 0, "%s", command);
}

/* What leaves rail 1 waits in its queue (sch_plug), or goes on. */
static void plug(void)
{
	run("tc qdisc add dev rail1 root plug limit 4000000");
}

static void unplug(void)
{
	run("tc qdisc change dev rail1 root plug release_indefinite");
}

/* Packets that rail 0 has taken from the wire. */
static unsigned long long taken(void)
{
	FILE *f = fopen("/sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts", "re");
	unsigned long long n = 0;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%llu", &n), 1);
	fclose(f);
	return n;
}

static void revoke_and_use(void)
{
	ck_assert_int_eq(OPS->revoke(owner.engine, user_grant, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, user_grant).status,
			 ESCROW_OK);
	memset(owner.memory, 'r', HALF);
}

/*
 * R12: the WRITE is on its way until long after its last retry.  Without a revoke it lands when the network is whole
 * again, after its op has ended (0): that effect was unknown.  If the owner has revoked meanwhile and uses the memory
 * for something else, it is refused (1).
 */
START_TEST(r12_a_write_that_comes_after_its_op)
{
	unsigned long long before;
	uint64_t op;

	end_open(&owner, 'o', at_rail_0);
	end_open(&user, 'u', at_rail_1);
	ends_connect(&owner, &user, &owner_user, &user_peer);
	user_remote = lend_half(0, owner_user, &user, user_peer, &user_grant);
	ck_assert_int_eq(end_move(&user, user_remote, ESCROW_READ, HALF, 0, PIECE).status,
			 ESCROW_OK);
	end_give_up_soon(&user, user_peer);
	plug();
	op = end_submit(&user, user_remote, ESCROW_WRITE, 0, 0, PIECE);
	came_back(&user, op);
	memory_is(&owner, 0, HALF, 'o');
	if (_i)
		revoke_and_use();
	before = taken();
	unplug();
	while (!_i && ((volatile uint8_t *)owner.memory)[PIECE - 1] != 'u')
		ends_turn();
	/* Its goodbye left by the same queue, behind the WRITE. */
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, owner_user);
	end_wait_of(&user, ESCROW_EV_PEER_DOWN, user_peer);
	ck_assert_uint_gt(taken(), before);
	memory_is(&owner, 0, PIECE, _i ? 'r' : 'u');
	memory_is(&owner, PIECE, HALF, _i ? 'r' : 'o');
	run("tc qdisc del dev rail1 root");
	end_close(&user);
	end_close(&owner);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_loop_test(t, r12_a_write_that_comes_after_its_op, 0, 2);
}

int main(void)
{
	const char *peers = getenv("ESCROW_TEST_PEERS");

	if (!peers || strcmp(peers, "10.77.0.2,10.77.0.1") != 0)
		return testing_skip("this needs ./dev softroce -w hub");
	return catalogue_run("catalogue-wire", add, NULL);
}
