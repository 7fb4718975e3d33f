/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the path of a connection is made of: priority, type of service, partition, MTU, READs under way.  Looked at
 * where it counts, in what queue pairs are told; on softverbs, in the guest, on any device.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <escrow/rails.h>

#include "backends/engine/engine.h"
#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"
#include "tests/unit/rdma-path.h"

static struct end passive, active;
static uint64_t by_passive, by_active;

static void up(const char *const *of_passive, const char *const *of_active)
{
	path_forget();
	end_open(&passive, 'p', of_passive);
	end_open(&active, 'a', of_active);
	path_moves(&passive, &active, &by_passive, &by_active);
}

static void down(void)
{
	end_close(&active);
	end_close(&passive);
}

/* The address vector of the first connection of an end, and what the manager proposed for it. */
static struct path_step first(struct end *e, enum ibv_qp_state to)
{
	return path_step_of(end_qp(e, e == &passive ? by_passive : by_active), to);
}

static void has(struct end *e, uint8_t sl, uint8_t traffic_class)
{
	struct path_step rtr = first(e, IBV_QPS_RTR);

	ck_assert_int_ne(rtr.mask & IBV_QP_AV, 0);
	ck_assert_uint_eq(rtr.attr.ah_attr.sl, sl);
	ck_assert_uint_eq(rtr.attr.ah_attr.grh.traffic_class, traffic_class);
}

/* Nothing is set: what the connection manager says, of every connection. */
START_TEST(as_the_manager_has_it)
{
	struct path_step rtr[32];
	uint32_t n;

	up(NULL, NULL);
	n = path_steps(IBV_QPS_RTR, rtr, 32);
	ck_assert_uint_ge(n, 2);
	ck_assert_uint_le(n, 32);
	for (uint32_t i = 0; i < n; i++) {
		struct path_step init = path_step_of(rtr[i].qp, IBV_QPS_INIT);

		ck_assert(rtr[i].manager_asked);
		ck_assert_uint_eq(rtr[i].attr.ah_attr.sl, rtr[i].manager.ah_attr.sl);
		ck_assert_uint_eq(rtr[i].attr.ah_attr.grh.traffic_class,
				  rtr[i].manager.ah_attr.grh.traffic_class);
		ck_assert_int_ne(init.mask & IBV_QP_PKEY_INDEX, 0);
		ck_assert_uint_eq(init.attr.pkey_index, rtr[i].manager_pkey);
	}
	down();
}
END_TEST

/*
 * Each connection begins at a number of its own, which the other end is told, on a queue pair that was never in use:
 * what is late of one before fits none.
 */
START_TEST(each_begins_anew)
{
	static struct path_step init[64], rtr[64], rts[64];
	uint32_t numbers[256], all = 0, different = 0;

	for (int round = 0; round < 4; round++) {
		uint32_t n, told = 0;

		up(NULL, NULL);
		n = path_steps(IBV_QPS_RTS, rts, 64);
		ck_assert_uint_ge(n, 2);
		ck_assert_uint_le(n, 64);
		ck_assert_uint_eq(path_steps(IBV_QPS_INIT, init, 64), n);
		ck_assert_uint_eq(path_steps(IBV_QPS_RTR, rtr, 64), n);
		for (uint32_t i = 0; i < n; i++) {
			path_step_of(rts[i].qp, IBV_QPS_INIT); /* once */
			numbers[all++] = rts[i].attr.sq_psn;
			for (uint32_t k = 0; k < n; k++)
				told += rtr[k].attr.dest_qp_num == rts[i].qp_num &&
					rtr[k].attr.rq_psn == rts[i].attr.sq_psn;
		}
		ck_assert_uint_eq(told, n);
		down();
	}
	/* Two of some twenty numbers of 24 bits are the same in one run of a hundred thousand. */
	for (uint32_t i = 0, k; i < all; i++) {
		for (k = 0; k < i && numbers[k] != numbers[i]; k++)
			;
		different += k == i;
	}
	ck_assert_uint_ge(different, all - 1);
}
END_TEST

/* Each end decides for what it sends; a type of service goes to the other end too, which may differ. */
START_TEST(priorities)
{
	static const char *const both[] = {"rdma.service_level=5", "rdma.traffic_class=0x68", NULL};
	static const char *const zero[] = {"rdma.service_level=0", NULL};
	static const char *const other[] = {"rdma.service_level=7", "rdma.traffic_class=32", NULL};

	up(both, both);
	has(&passive, 5, 0x68);
	has(&active, 5, 0x68);
	down();
	up(zero, other);
	has(&passive, 0, 32);
	has(&active, 7, 32);
	down();
	up(other, both);
	has(&passive, 7, 32);
	has(&active, 5, 0x68);
	down();
	up(other, NULL);
	has(&passive, 7, 32);
	has(&active, first(&active, IBV_QPS_RTR).manager.ah_attr.sl, 0);
	down();
}
END_TEST

/* ---- Partitions ------------------------------------------------------------------------------------------ */
static int32_t list(const char *pkey, struct escrow_rail *rails, int32_t max)
{
	const struct escrow_rails *table = OPS->get_extension(NULL, ESCROW_RAILS_ID);
	const struct escrow_kv kv = {"rdma.pkey", pkey};
	const struct escrow_open_args args = {.size = sizeof(args),
					      .host = &rdma_host,
					      .revision = 1,
					      .kv = &kv,
					      .nkv = 1,
					      .kv_stride = sizeof(kv),
					      .engine_name = "test"};
	int32_t n = table->list(&args, rails, (uint32_t)max, sizeof(*rails), NULL);

	ck_assert_int_ge(n, 0);
	return n < max ? n : max;
}

/* Is in the default partition, as every RoCE port: by the key with and without the bit, in any notation. */
START_TEST(the_default_partition)
{
	static const char *const keys[] = {"rdma.pkey=0xffff", "rdma.pkey=32767", "rdma.pkey=0"};
	const char *const with[] = {keys[_i], NULL};

	up(with, NULL);
	ck_assert_uint_eq(first(&passive, IBV_QPS_INIT).attr.pkey_index,
			  first(&passive, IBV_QPS_RTR).manager_pkey);
	down();
}
END_TEST

START_TEST(no_port_is_in_it)
{
	static const char *const with[] = {"rdma.pkey=0x9234", NULL};
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_rail rails[64];
	int32_t n = list("0x9234", rails, 64);
	uint32_t would = 0;
	struct end e;

	ck_assert_int_eq(end_try(&e, with, &error), ESCROW_E_DEVICE);
	ck_assert_msg(strstr(error.text, "partition 0x1234") != NULL, "%s", error.text);
	for (int32_t i = 0; i < n; i++) {
		ck_assert_uint_eq(rails[i].use, ESCROW_RAIL_UNUSED);
		would += strcmp(rails[i].why, "its port is not in the partition 0x1234") == 0;
	}
	ck_assert_uint_ge(would, 1);
}
END_TEST

START_TEST(only_the_bit)
{
	static const char *const with[] = {"rdma.pkey=0x8000", NULL};
	struct escrow_error error = {.size = sizeof(error)};
	struct end e;

	ck_assert_int_eq(end_try(&e, with, &error), ESCROW_E_INVALID);
	ck_assert_msg(strstr(error.text, "0x8000") && strstr(error.text, "0x7fff"), "%s",
		      error.text);
}
END_TEST

/* Tables as an InfiniBand port may have them, which only softverbs can be told. */
static void tables(const uint16_t *of_0, int n0, const uint16_t *of_1, int n1)
{
	void (*softverbs_pkeys)(int rail, const uint16_t *keys, int count);

	*(void **)&softverbs_pkeys = dlsym(RTLD_DEFAULT, "softverbs_pkeys");
	ck_assert(softverbs_pkeys != NULL);
	softverbs_pkeys(0, of_0, n0);
	softverbs_pkeys(1, of_1, n1);
}

/* Only rail 1 is in it; a full membership is taken before a limited one, wherever they stand. */
START_TEST(a_partition_of_its_own)
{
	static const char *const with[] = {"rdma.pkey=0x1234", NULL};
	static const uint16_t of_0[] = {0xffff, 0x1235}, of_1[] = {0xffff, 0x1234, 0x9234, 0x9234};
	struct escrow_rail rails[64];
	struct path_step init[8];
	uint32_t used = 0;
	int32_t n;

	tables(of_0, 2, of_1, 4);
	up(with, with);
	ck_assert_uint_eq(path_steps(IBV_QPS_INIT, init, 8), 2); /* an end each */
	ck_assert_uint_eq(init[0].attr.pkey_index, 2);
	ck_assert_uint_eq(init[1].attr.pkey_index, 2);
	down();
	n = list("0x9234", rails, 64);
	for (int32_t i = 0; i < n; i++)
		if (rails[i].use == ESCROW_RAIL_USED) {
			ck_assert_str_eq(rails[i].device, "softverbs1");
			used++;
		} else if (!strcmp(rails[i].device, "softverbs0")) {
			ck_assert_str_eq(rails[i].why, "its port is not in the partition 0x1234");
		}
	ck_assert_uint_eq(used, 1);
}
END_TEST

/* Nothing is set, and the default partition is not the first; limited memberships will do. */
START_TEST(the_default_is_elsewhere)
{
	static const uint16_t of_0[] = {0x9234, 0x7fff, 0xffff}, of_1[] = {0x9234, 0x7fff};
	struct path_step rtr[8];

	tables(of_0, 3, of_1, 2);
	up(NULL, NULL);
	ck_assert_uint_eq(path_steps(IBV_QPS_RTR, rtr, 8), 4);
	for (int i = 0; i < 4; i++) {
		int on_1 = strcmp(ibv_get_device_name(rtr[i].qp->context->device), "softverbs0");

		ck_assert_uint_eq(path_step_of(rtr[i].qp, IBV_QPS_INIT).attr.pkey_index,
				  on_1 ? 1 : 2);
		ck_assert_uint_eq(rtr[i].manager_pkey, on_1 ? 1 : 2);
	}
	down();
}
END_TEST

/* ---- The least of both ends ------------------------------------------------------------------------------ */
struct side {
	const char *rail;
	enum ibv_mtu mtu;
	uint32_t rd_atomic; /* what the device and the key allow */
	const char *key;
};

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* What one end was told, and what the other was told of the same. */
static void agreed(struct end *e, struct end *other, enum ibv_mtu mtu, uint32_t rd_atomic)
{
	struct path_step rtr = first(e, IBV_QPS_RTR), rts = first(e, IBV_QPS_RTS);
	struct path_step met = first(other, IBV_QPS_RTR);

	ck_assert_int_ne(rtr.mask & IBV_QP_PATH_MTU, 0);
	ck_assert_int_eq(rtr.attr.path_mtu, mtu);
	ck_assert_int_ne(rts.mask & IBV_QP_MAX_QP_RD_ATOMIC, 0);
	ck_assert_uint_eq(rts.attr.max_rd_atomic, rd_atomic);
	ck_assert_uint_ge(met.attr.max_dest_rd_atomic, rd_atomic);
}

static void meet(const struct side *p, const struct side *a)
{
	char rails[2][64];
	const char *const of_passive[] = {rails[0], p->key, NULL};
	const char *const of_active[] = {rails[1], a->key, NULL};
	enum ibv_mtu mtu = (enum ibv_mtu)least(p->mtu, a->mtu);
	uint32_t rd_atomic = least(p->rd_atomic, a->rd_atomic);

	snprintf(rails[0], sizeof(rails[0]), "rdma.rails=%s", p->rail);
	snprintf(rails[1], sizeof(rails[1]), "rdma.rails=%s", a->rail);
	up(of_passive, of_active);
	agreed(&passive, &active, mtu, rd_atomic);
	agreed(&active, &passive, mtu, rd_atomic);
	down();
}

static void limit(int rail, enum ibv_mtu mtu, int rd_atomic)
{
	void (*softverbs_limits)(int rail, int mtu, int rd_atomic);

	*(void **)&softverbs_limits = dlsym(RTLD_DEFAULT, "softverbs_limits");
	ck_assert(softverbs_limits != NULL);
	softverbs_limits(rail, mtu, rd_atomic);
}

/* Whoever of the two connects, and whatever of the two is less at which end. */
START_TEST(the_least_of_both)
{
	static const struct side all[] = {
		{"softverbs0", IBV_MTU_4096, 4, NULL},
		{"softverbs1", IBV_MTU_1024, 16, NULL},
		{"softverbs0", IBV_MTU_4096, 3, "rdma.rd_atomic=3"},
		{"softverbs1", IBV_MTU_1024, 1, "rdma.rd_atomic=1"},
		{"softverbs0", IBV_MTU_4096, 4, "rdma.rd_atomic=128"},
	};

	limit(0, IBV_MTU_4096, 4);
	limit(1, IBV_MTU_1024, 16);
	for (int i = 0; i < 5; i++)
		meet(&all[_i], &all[i]);
}
END_TEST

/* On a wire of the guest, where the network device of one end is the narrower: packets of 4096 would not pass. */
START_TEST(a_narrow_end)
{
	const struct side wide = {"rxe0", IBV_MTU_4096, 16, NULL};
	const struct side narrow = {"rxe1", IBV_MTU_1024, 16, NULL};

	ck_assert_int_eq(system("ip link set rail1 mtu 1500"), 0);
	if (_i)
		meet(&wide, &narrow);
	else
		meet(&narrow, &wide);
}
END_TEST

/* Two rails of the guest on one wire: each is the other's peer, see docs/softroce.md. */
static bool on_a_hub(void)
{
	const char *peers = getenv("ESCROW_TEST_PEERS");

	return getenv("ESCROW_TEST_GUEST") && peers && !strncmp(peers, "10.77.0.2,10.77.0.1", 19);
}

/* The rest talks to its own rail, which on a hub goes the other way round. */
static Suite *of_the_hub(void)
{
	Suite *s = suite_create("rdma-path");
	TCase *t = tcase_create("hub");

	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, a_narrow_end, 0, 2);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	static char why[256];
	TCase *t;
	Suite *s;

	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	if (on_a_hub())
		return testing_run(of_the_hub());
	s = suite_create("rdma-path");
	t = tcase_create("path");
	tcase_set_timeout(t, 240);
	tcase_add_test(t, as_the_manager_has_it);
	tcase_add_test(t, each_begins_anew);
	tcase_add_test(t, priorities);
	tcase_add_loop_test(t, the_default_partition, 0, 3);
	tcase_add_test(t, no_port_is_in_it);
	tcase_add_test(t, only_the_bit);
	if (ends_double()) {
		tcase_add_test(t, a_partition_of_its_own);
		tcase_add_test(t, the_default_is_elsewhere);
		tcase_add_loop_test(t, the_least_of_both, 0, 5);
	}
	suite_add_tcase(s, t);
	return testing_run(s);
}
