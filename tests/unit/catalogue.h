/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * catalogue.h - what the tests of the fault catalogue share: an owner that lends memory, and one or two
 * users of it, each with one connection to the owner.
 *
 * These programs are built twice: over softverbs (TESTS), and over the real libraries for the guest.
 */
#ifndef CATALOGUE_H
#define CATALOGUE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"

#define RW (ESCROW_MAY_READ | ESCROW_MAY_WRITE)
#define PIECE 4096u
#define HALF (END_BYTES / 2)

/* Seven seconds until the retries run out: a machine that stands still for a while is no peer that is gone. */
static const char *const one_rail[] = {"test.faults=1", "max_rails=1",     "slice_bytes=4096",
				       "drain_ms=300",  "rdma.timeout=18", NULL};

static struct end owner, user, good;
static uint64_t owner_user, owner_good, user_peer, good_peer, user_remote, good_remote;
static uint64_t user_grant, good_grant;

static inline uint64_t lend_half(uint64_t at, uint64_t to, struct end *who, uint64_t by,
				 uint64_t *grant)
{
	uint8_t buf[4096];
	uint64_t len = end_grant(&owner, to, at, HALF, RW, buf, sizeof(buf), grant);

	return end_import(who, by, buf, len);
}

/* The user has the lower half of the owner's memory, the good one the upper. */
static inline void both_open(const char *const *settings)
{
	end_open(&owner, 'o', settings);
	end_open(&user, 'u', settings);
	end_open(&good, 'g', settings);
	ends_connect(&owner, &user, &owner_user, &user_peer);
	ends_connect(&owner, &good, &owner_good, &good_peer);
	user_remote = lend_half(0, owner_user, &user, user_peer, &user_grant);
	good_remote = lend_half(HALF, owner_good, &good, good_peer, &good_grant);
}

static inline void setup(void)
{
	both_open(one_rail);
}

/* Those that a test has not ended itself. */
static inline void teardown(void)
{
	if (good.engine)
		end_close(&good);
	if (user.engine)
		end_close(&user);
	if (owner.engine)
		end_close(&owner);
}

static inline void memory_is(const struct end *e, uint64_t from, uint64_t to, uint8_t value)
{
	for (uint64_t i = from; i < to; i++)
		ck_assert_msg(e->memory[i] == value, "byte %llu is %c", (unsigned long long)i,
			      e->memory[i]);
}

/* The other user's bytes still move, both ways. */
static inline void good_goes_on(void)
{
	ck_assert_int_eq(end_move(&good, good_remote, ESCROW_WRITE, 0, 0, PIECE).status, ESCROW_OK);
	memory_is(&owner, HALF, HALF + PIECE, 'g');
	ck_assert_int_eq(end_move(&good, good_remote, ESCROW_READ, PIECE, PIECE, PIECE).status,
			 ESCROW_OK);
	memory_is(&good, PIECE, 2 * PIECE, 'o');
}

/* The op ended, its bytes are back, and nobody calls it done or not done. */
static inline void came_back(struct end *e, uint64_t op)
{
	struct escrow_event ev = end_wait_of(e, ESCROW_EV_OP_DONE, op);

	ck_assert_int_lt(ev.status, 0);
	ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
	ck_assert_int_eq(ev.effect, ESCROW_EFFECT_UNKNOWN);
}

static inline void region_comes_back(struct end *e)
{
	ck_assert_int_eq(OPS->deregister_memory(e->engine, e->region, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(end_wait_of(e, ESCROW_EV_REGION_RELEASED, e->region).status, ESCROW_OK);
}

static inline void disconnects(struct end *e, uint64_t peer)
{
	ck_assert_int_eq(OPS->disconnect(e->engine, peer, 0), ESCROW_IN_PROGRESS);
}

/* Runs the suite of one case or two, or says why it cannot. */
static inline int catalogue_run(const char *name, void (*add)(TCase *t), void (*add_more)(TCase *t))
{
	TCase *t = tcase_create("cases"), *more = tcase_create("more");
	char why[256];
	Suite *s;

	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	s = suite_create(name);
	tcase_set_timeout(t, 240);
	tcase_set_timeout(more, 240);
	add(t);
	if (add_more)
		add_more(more);
	suite_add_tcase(s, t);
	suite_add_tcase(s, more);
	return testing_run(s);
}

#endif
