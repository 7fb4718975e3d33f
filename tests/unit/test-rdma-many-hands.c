/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Grants that are asked for and taken back by one thread, while others poll, arm, move bytes and look, and connections
 * break, are renewed and end: each grant ends once, and nothing stays charged.
 */
#include <infiniband/verbs.h>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/engine/engine.h"
#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"

#define ROUNDS 2
#define ASKS 1500u /* of a round */
#define HELD 20u   /* at a time */
/* Or as many as there is time for: who rests between two renewals refuses meanwhile. */
#define ASKING_MS 10000u
#define RIGHTS (ESCROW_MAY_READ | ESCROW_MAY_WRITE)

struct hand { /* one end */
	struct end end;
	uint64_t peer, remote;
	_Atomic int stop, down;
	_Atomic uint8_t ends[ASKS + 1]; /* by user */
	_Atomic uint32_t nended;
	uint32_t nasked;
	unsigned int seed;
	pthread_t poller, mover, looker, asker;
	_Atomic int asked_all;
};

static struct hand hands[2];

static uint64_t now_ms(void)
{
	return rdma_host.now_ns(NULL) / 1000000;
}

static void told(struct hand *h, const struct escrow_event *ev)
{
	bool end = ev->kind == ESCROW_EV_GRANT_REVOKED || ev->kind == ESCROW_EV_QUARANTINED ||
		   (ev->kind == ESCROW_EV_GRANT_READY && ev->status < 0);

	if (ev->kind == ESCROW_EV_PEER_DOWN)
		atomic_store(&h->down, 1);
	ck_assert_int_ne(ev->kind, ESCROW_EV_QUARANTINED);
	if (!end || !ev->user)
		return;
	ck_assert_uint_le(ev->user, ASKS);
	ck_assert_uint_eq(atomic_fetch_add(&h->ends[ev->user], 1), 0);
	atomic_fetch_add(&h->nended, 1);
}

static void *poll_main(void *arg)
{
	struct hand *h = arg;
	struct pollfd fd = {.fd = OPS->event_fd(h->end.engine), .events = POLLIN};
	struct escrow_event ev[16];
	unsigned int seed = h->seed;

	while (!atomic_load(&h->stop)) {
		int32_t n = OPS->poll(h->end.engine, ev, 16, sizeof(ev[0]), 0);

		ck_assert_int_ge(n, 0);
		for (int32_t i = 0; i < n; i++)
			told(h, &ev[i]);
		if (n == 0 && rand_r(&seed) % 4 == 0 && OPS->arm(h->end.engine, 0) == ESCROW_OK)
			poll(&fd, 1, 1000);
	}
	return NULL;
}

static void *move_main(void *arg)
{
	struct hand *h = arg;

	while (!atomic_load(&h->down)) {
		struct escrow_sge sge = {.region = h->end.region, .length = 8192};
		struct escrow_op op = {
			.remote = h->remote, .opcode = ESCROW_WRITE, .nsge = 1, .sge = &sge};
		uint64_t id = 0;

		OPS->transfer(h->end.engine, &op, 1, sizeof(op), 0, &id);
		if (id % 8 == 0)
			sched_yield();
	}
	return NULL;
}

static void *look_main(void *arg)
{
	struct hand *h = arg;
	struct escrow_charge charge[64];
	struct escrow_limits limits = {.size = sizeof(limits)};

	while (!atomic_load(&h->stop)) {
		OPS->charges(h->end.engine, charge, 64, sizeof(charge[0]));
		OPS->query(h->end.engine, &limits);
		poll(NULL, 0, 1);
	}
	return NULL;
}

static uint64_t ask(struct hand *h)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = RIGHTS,
					 .peer = h->peer,
					 .region = h->end.region,
					 .length = END_BYTES / 2,
					 .user = h->nasked + 1};
	uint64_t grant;

	if (OPS->grant(h->end.engine, &args, &grant, &error) < 0)
		return 0;
	h->nasked++;
	return grant;
}

/* Some of them are taken back at once, some when they are ready, or the peer has gone. */
static void *ask_main(void *arg)
{
	struct hand *h = arg;
	uint64_t held[HELD] = {0}, end = now_ms() + ASKING_MS;
	uint8_t buf[4096];

	while (h->nasked < ASKS && !atomic_load(&h->down) && now_ms() < end) {
		uint32_t i = (uint32_t)rand_r(&h->seed) % HELD;
		uint64_t len = sizeof(buf);

		if (!held[i]) {
			held[i] = ask(h);
			if (held[i] && rand_r(&h->seed) % 3)
				continue;
		}
		if (held[i] && rand_r(&h->seed) % 2) {
			OPS->revoke(h->end.engine, held[i], 0);
			ck_assert_int_lt(OPS->export_grant(h->end.engine, held[i], buf, &len), 0);
			held[i] = 0;
		}
		if (rand_r(&h->seed) % 16 == 0)
			poll(NULL, 0, (int)(rand_r(&h->seed) % 3));
	}
	for (uint32_t i = 0; i < HELD; i++)
		if (held[i])
			OPS->revoke(h->end.engine, held[i], 0);
	atomic_store(&h->asked_all, 1);
	return NULL;
}

static void breaks(struct hand *h, uint32_t which)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct peer *p = engine_by_slot(h->end.engine, h->peer);
	struct conn *c = &p->conns[which % p->nconns];

	/* What is READY was made, and goes with its lane held. */
	engine_lock(h->end.engine);
	en_lane_lock(c->lane);
	if (c->stage == CONN_READY && c->native)
		ibv_modify_qp(c->native->qp, &attr, IBV_QP_STATE);
	en_lane_unlock(c->lane);
	engine_unlock(h->end.engine);
}

static void begin(struct hand *h)
{
	ck_assert_int_eq(pthread_create(&h->poller, NULL, poll_main, h), 0);
	ck_assert_int_eq(pthread_create(&h->mover, NULL, move_main, h), 0);
	ck_assert_int_eq(pthread_create(&h->looker, NULL, look_main, h), 0);
	ck_assert_int_eq(pthread_create(&h->asker, NULL, ask_main, h), 0);
}

static uint64_t slowest;

static void ends(struct hand *h)
{
	uint64_t from;

	pthread_join(h->asker, NULL);
	from = now_ms();
	while (atomic_load(&h->nended) < h->nasked) {
		poll(NULL, 0, 1);
		ck_assert_msg(now_ms() - from < 60000, "%u of %u ended", atomic_load(&h->nended),
			      h->nasked);
	}
	if (now_ms() - from > slowest)
		slowest = now_ms() - from;
}

static void one_round(unsigned int seed, const char *binds, const char *share, int how)
{
	const char *settings[] = {"max_grants=24",
				  "drain_ms=200",
				  "rail_retry_ms=1",
				  binds,
				  share,
				  "slice_bytes=4096",
				  NULL};
	uint8_t buf[4096];
	uint64_t grants[2], peers[2];
	unsigned int dice = seed;

	memset(hands, 0, sizeof(hands));
	for (int i = 0; i < 2; i++) {
		hands[i].seed = seed * 2 + (unsigned int)i;
		end_open(&hands[i].end, 'o', settings);
	}
	ends_connect(&hands[0].end, &hands[1].end, &peers[0], &peers[1]);
	for (int i = 0; i < 2; i++)
		hands[i].peer = peers[i];
	for (int i = 0; i < 2; i++) {
		uint64_t len = end_grant(&hands[i].end, peers[i], END_BYTES / 2, END_BYTES / 2,
					 RIGHTS, buf, sizeof(buf), &grants[i]);

		hands[!i].remote = end_import(&hands[!i].end, peers[!i], buf, len);
	}
	for (int i = 0; i < 2; i++)
		begin(&hands[i]);
	while (how > 0 && !(atomic_load(&hands[0].asked_all) && atomic_load(&hands[1].asked_all))) {
		poll(NULL, 0, (int)(rand_r(&dice) % 40));
		breaks(&hands[rand_r(&dice) % 2], how > 1 ? 1 : (uint32_t)rand_r(&dice));
	}
	for (int i = 0; i < 2; i++)
		ends(&hands[i]);
	printf("# seed %u: %u %u asked, down %d %d, renewed %llu, slowest %llu ms\n", seed,
	       hands[0].nasked, hands[1].nasked, hands[0].down, hands[1].down,
	       (unsigned long long)end_counter(&hands[0].end, "rail.0.connections.renewed"),
	       (unsigned long long)slowest);
	for (int i = 0; i < 2; i++)
		if (!atomic_load(&hands[i].down))
			OPS->disconnect(hands[i].end.engine, hands[i].peer, 0);
	for (int i = 0; i < 2; i++) {
		while (!atomic_load(&hands[i].down))
			poll(NULL, 0, 1);
		pthread_join(hands[i].mover, NULL);
		atomic_store(&hands[i].stop, 1);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(hands[i].poller, NULL);
		pthread_join(hands[i].looker, NULL);
		for (uint32_t k = 1; k <= hands[i].nasked; k++)
			ck_assert_uint_eq(hands[i].ends[k], 1);
		end_until_unused(&hands[i].end, ESCROW_CHARGE_GRANTS);
	}
	for (int i = 0; i < 2; i++)
		end_close(&hands[i].end);
}

static unsigned int seed_of(void)
{
	return (unsigned int)testing_number("ESCROW_TEST_SEED", 1);
}

START_TEST(while_connections_are_renewed)
{
	for (unsigned int i = 0; i < ROUNDS; i++)
		one_round(seed_of() + i, "test.window_binds=2", "renew_share=10", 0);
}
END_TEST

START_TEST(while_connections_break)
{
	for (unsigned int i = 0; i < ROUNDS; i++)
		one_round(seed_of() + 100 + i, "test.window_binds=100", "renew_share=50",
			  1 + (int)(i % 2));
}
END_TEST

START_TEST(while_both_happens)
{
	for (unsigned int i = 0; i < ROUNDS; i++)
		one_round(seed_of() + 200 + i, "test.window_binds=3", "renew_share=10",
			  1 + (int)(i % 2));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("many-hands");
	TCase *tcase = tcase_create("threads");

	tcase_set_timeout(tcase, 500);
	tcase_add_test(tcase, while_connections_are_renewed);
	tcase_add_test(tcase, while_connections_break);
	tcase_add_test(tcase, while_both_happens);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
