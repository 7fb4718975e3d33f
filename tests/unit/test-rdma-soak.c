/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connect, grant, transfer, revoke, disconnect, over and over, with a fault at random in each round: after
 * a round all is as it was before the first one - charges, descriptors, threads, queue pairs, regions,
 * windows, blocks of the host, what is pinned - and, on kernel verbs, the memory of the process does not
 * grow.
 *
 * SOAK_SECONDS: how long (8; with FULL 60).  ESCROW_TEST_SEED repeats a run, whose rounds are drawn from
 * it; how many there are is the machine's doing.
 */
#include <infiniband/verbs.h>

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/hang.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"
#include "tests/unit/victim.h"

#define RIGHTS (ESCROW_MAY_READ | ESCROW_MAY_WRITE)
#define GRANTS 4u
#define OPS_MAX 12u
#define PIECE (END_BYTES / GRANTS)
#define HANG_S 110u
#define WARM 40u         /* rounds before anything is compared */
#define GROWTH_KB 4096ul /* of the resident memory after that, for what malloc does with it */

enum fault {
	NONE,
	CANCEL,     /* the ops */
	REVOKE,     /* a grant that is in use */
	LEAVE,      /* the requester disconnects under its ops */
	EVICT,      /* the owner does */
	BREAK,      /* a queue pair of either is in error */
	UNREGISTER, /* a region that grants and ops are on: busy, and nothing else */
	DIE,        /* another process, with a grant and an op under way */
	FAULTS
};

static const char *const settings[] = {"test.faults=1", PATIENT, NULL};
static struct end owner, user;
static uint32_t rails;

/* ---- Chance ------------------------------------------------------------------------------------------ */
static uint64_t chance_state;

static uint32_t chance(uint32_t n)
{
	chance_state = chance_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(chance_state >> 33) % n;
}

/* ---- What must stay ------------------------------------------------------------------------------------- */
struct census {
	uint64_t descriptors, blocks, pinned_kb, threads;
	int64_t pairs[2], windows[2], regions[2];
	unsigned long resident_kb;
};

static uint64_t descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint64_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void of_status(struct census *c)
{
	FILE *status = fopen("/proc/self/status", "r");
	unsigned long value;
	char line[128];

	while (fgets(line, sizeof(line), status)) {
		if (sscanf(line, "VmRSS: %lu", &value) == 1)
			c->resident_kb = value;
		if (sscanf(line, "VmPin: %lu", &value) == 1)
			c->pinned_kb = value;
		if (sscanf(line, "Threads: %lu", &value) == 1)
			c->threads = value;
	}
	fclose(status);
}

static int64_t alive(struct end *e, uint32_t made, uint32_t ended)
{
	return end_calls(e, made) - end_calls(e, ended);
}

static struct census take_census(void)
{
	struct end *both[] = {&owner, &user};
	struct census c = {.descriptors = descriptors(), .blocks = rdma_host_blocks()};

	of_status(&c);
	for (int i = 0; i < 2; i++) {
		c.pairs[i] = alive(both[i], ESCROW_STEP_CREATE_QP, ESCROW_STEP_DESTROY_QP);
		c.windows[i] = alive(both[i], ESCROW_STEP_ALLOC_WINDOW, ESCROW_STEP_DEALLOC_WINDOW);
		c.regions[i] = alive(both[i], ESCROW_STEP_REGISTER, ESCROW_STEP_DEREGISTER);
	}
	return c;
}

/*
 * All but the resident memory.  Windows are kept for the next grants, but one whose queue pair failed goes:
 * there may be fewer, each with a block of its own, and never more than the grants of one peer need.
 */
static bool same(const struct census *a, const struct census *b)
{
	int64_t windows = b->windows[0] + b->windows[1] - a->windows[0] - a->windows[1];

	for (int i = 0; i < 2; i++)
		if (b->windows[i] > (int64_t)GRANTS * rails)
			return false;
	return a->descriptors == b->descriptors && a->threads == b->threads &&
	       a->pinned_kb == b->pinned_kb && (int64_t)(b->blocks - a->blocks) == windows &&
	       !memcmp(a->pairs, b->pairs, sizeof(a->pairs)) &&
	       !memcmp(a->regions, b->regions, sizeof(a->regions));
}

static char *text_of(const struct census *c)
{
	static char text[2][256];
	static int i;

	i = !i;
	snprintf(text[i], sizeof(text[i]),
		 "%llu descriptors, %llu threads, %llu kB pinned, %llu blocks, queue pairs %lld "
		 "%lld, windows %lld %lld, regions %lld %lld",
		 (unsigned long long)c->descriptors, (unsigned long long)c->threads,
		 (unsigned long long)c->pinned_kb, (unsigned long long)c->blocks,
		 (long long)c->pairs[0], (long long)c->pairs[1], (long long)c->windows[0],
		 (long long)c->windows[1], (long long)c->regions[0], (long long)c->regions[1]);
	return text[i];
}

/* A moment for the control threads; no event matters any more. */
static void rest(void)
{
	struct end *both[] = {&owner, &user};
	struct escrow_event ev[32];

	for (int i = 0; i < 2; i++)
		while (OPS->poll(both[i]->engine, ev, 32, sizeof(ev[0]), 0) > 0)
			;
	poll(NULL, 0, 1);
}

/* What the control threads still take down goes by itself; what stays is a leak. */
static struct census all_is_back(const struct census *was)
{
	time_t end = time(NULL) + 600;
	struct census is = take_census();

	while (!same(was, &is) && time(NULL) < end) {
		rest();
		is = take_census();
	}
	ck_assert_msg(same(was, &is), "%s, not %s", text_of(&is), text_of(was));
	return is;
}

/* As it is with no peer and nothing to take down. */
static struct census settled(void)
{
	for (int i = 0; i < 500; i++)
		rest();
	return take_census();
}

/* ---- A round ------------------------------------------------------------------------------------------- */
struct round {
	struct end *passive, *active;
	uint64_t by_passive, by_active;
	uint64_t grants[GRANTS], remotes[GRANTS], ops[OPS_MAX];
	uint32_t ngrants, nops;
};

static void nothing_is_charged(struct end *e)
{
	static const uint32_t kinds[] = {ESCROW_CHARGE_CONNECTIONS,   ESCROW_CHARGE_GRANTS,
					 ESCROW_CHARGE_GRANTED_BYTES, ESCROW_CHARGE_SQ_SLOTS,
					 ESCROW_CHARGE_CQ_SLOTS,      ESCROW_CHARGE_OPS};

	for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		end_until_unused(e, kinds[i]);
	ck_assert_uint_eq(end_used(e, ESCROW_CHARGE_REGIONS), 1);
	ck_assert_uint_eq(end_used(e, ESCROW_CHARGE_BYTES), END_BYTES);
	e->nseen = 0;
}

static void begin(struct round *r)
{
	uint8_t buf[4096];
	uint64_t len;

	memset(r, 0, sizeof(*r));
	r->passive = chance(2) ? &owner : &user;
	r->active = r->passive == &owner ? &user : &owner;
	ends_connect(r->passive, r->active, &r->by_passive, &r->by_active);
	r->ngrants = 1 + chance(GRANTS);
	for (uint32_t i = 0; i < r->ngrants; i++) {
		len = end_grant(r->passive, r->by_passive, (uint64_t)i * PIECE, PIECE, RIGHTS, buf,
				sizeof(buf), &r->grants[i]);
		r->remotes[i] = end_import(r->active, r->by_active, buf, len);
	}
	for (uint32_t n = chance(OPS_MAX + 1); r->nops < n; r->nops++) {
		uint32_t g = chance(r->ngrants), bytes = 1 + chance(PIECE);

		r->ops[r->nops] = end_submit(r->active, r->remotes[g],
					     chance(2) ? ESCROW_READ : ESCROW_WRITE,
					     (uint64_t)g * PIECE, 0, bytes);
	}
}

static void break_one(struct end *e, uint64_t peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	ck_assert_int_eq(ibv_modify_qp(end_qp(e, peer), &attr, IBV_QP_STATE), 0);
}

static void fault(struct round *r, enum fault what)
{
	switch (what) {
	case CANCEL:
		for (uint32_t i = 0; i < r->nops; i++)
			OPS->cancel(r->active->engine, r->ops[i], 0);
		break;
	case REVOKE:
		OPS->revoke(r->passive->engine, r->grants[chance(r->ngrants)], 0);
		break;
	case LEAVE:
		OPS->disconnect(r->active->engine, r->by_active, 0);
		break;
	case EVICT:
		OPS->disconnect(r->passive->engine, r->by_passive, 0);
		break;
	case BREAK:
		if (chance(2))
			break_one(r->passive, r->by_passive);
		else
			break_one(r->active, r->by_active);
		break;
	case UNREGISTER:
		ck_assert_int_eq(OPS->deregister_memory(r->passive->engine, r->passive->region, 0),
				 ESCROW_E_BUSY);
		break;
	default:
		break;
	}
}

/* Every op, grant and peer has its last event, whatever happened. */
static void end_round(struct round *r, enum fault what)
{
	for (uint32_t i = 0; i < r->nops; i++) {
		struct escrow_event ev = end_wait_of(r->active, ESCROW_EV_OP_DONE, r->ops[i]);

		ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
		if (what == NONE || what == UNREGISTER)
			ck_assert_int_eq(ev.status, ESCROW_OK);
	}
	for (uint32_t i = 0; i < r->ngrants; i++) {
		OPS->revoke(r->passive->engine, r->grants[i], 0); /* an error if it is gone */
		end_wait_of(r->passive, ESCROW_EV_GRANT_REVOKED, r->grants[i]);
		ck_assert_int_eq(OPS->forget_grant(r->active->engine, r->remotes[i]), ESCROW_OK);
	}
	OPS->disconnect(r->active->engine, r->by_active, 0);
	OPS->disconnect(r->passive->engine, r->by_passive, 0);
	end_wait_of(r->active, ESCROW_EV_PEER_DOWN, r->by_active);
	end_wait_of(r->passive, ESCROW_EV_PEER_DOWN, r->by_passive);
}

/* ---- Another process that dies ------------------------------------------------------------------------ */
START_TEST(be_the_victim)
{
	uint64_t len, peer, remote;
	uint8_t buf[4096];
	struct end e;

	end_open(&e, 'v', settings);
	len = get(VICTIM_IN, buf, sizeof(buf));
	peer = end_connect(&e, "owner", buf, len);
	end_wait_of(&e, ESCROW_EV_PEER_UP, peer);
	len = get(VICTIM_IN, buf, sizeof(buf));
	remote = end_import(&e, peer, buf, len);
	while (end_move(&e, remote, ESCROW_WRITE, 0, 0, PIECE).status == ESCROW_OK)
		if (!put(VICTIM_OUT, "x", 1))
			break;
	get(VICTIM_IN, buf, sizeof(buf));
}
END_TEST

static void another_dies(void)
{
	struct victim v = victim_start("v", NULL, NULL);
	uint64_t len, peer, grant;
	uint8_t buf[4096];

	hang_watch(HANG_S, v.pid);
	len = end_invite(&owner, "victim", buf, sizeof(buf));
	ck_assert(put(v.to, buf, len));
	peer = end_wait(&owner, ESCROW_EV_PEER_UP).object;
	len = end_grant(&owner, peer, 0, PIECE, RIGHTS, buf, sizeof(buf), &grant);
	ck_assert(put(v.to, buf, len));
	for (uint32_t i = chance(4); i > 0; i--)
		ck_assert_uint_eq(get(v.from, buf, 1), 1);
	kill(v.pid, SIGKILL);
	victim_reap(&v, 0);
	victim_close(&v);
	end_wait_of(&owner, ESCROW_EV_GRANT_REVOKED, grant);
	end_wait_of(&owner, ESCROW_EV_PEER_DOWN, peer);
}

/* ---- The soak --------------------------------------------------------------------------------------------- */
static void one_round(void)
{
	/* A process costs as much as many rounds. */
	enum fault what = chance(40) ? (enum fault)chance(DIE) : DIE;
	struct round r;

	hang_watch(HANG_S, 0);
	if (what == DIE) {
		another_dies();
	} else {
		begin(&r);
		fault(&r, what);
		hang_alive(1);
		end_round(&r, what);
	}
	hang_alive(1);
	nothing_is_charged(&owner);
	nothing_is_charged(&user);
}

/* A sanitizer, and softverbs, keep what was freed, to see who still uses it. */
static bool memory_tells(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return false;
#else
	return !ends_double();
#endif
}

START_TEST(all_is_as_before)
{
	uint64_t seed = testing_number("ESCROW_TEST_SEED", (uint64_t)time(NULL)), rounds = 0;
	time_t end = time(NULL) + (time_t)testing_number("SOAK_SECONDS", getenv("FULL") ? 60 : 8);
	struct census was = {0}, is = {0};
	uint32_t listed = 0;

	printf("# ESCROW_TEST_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	chance_state = seed;
	rails = ends_rails(NULL, 0);
	end_open(&owner, 'o', settings);
	end_open(&user, 'u', settings);
	for (; rounds <= WARM || time(NULL) < end; rounds++) {
		one_round();
		if (rounds == WARM)
			was = is = settled();
		else if (rounds > WARM)
			is = all_is_back(&was);
		if (rounds == WARM)
			listed = registrations();
		else if (rounds > WARM && rounds % 20 == 0) /* a process of its own */
			ck_assert_uint_eq(registrations(), listed);
	}
	printf("# %llu rounds; resident %lu kB after %u, %lu kB at the end\n",
	       (unsigned long long)rounds, was.resident_kb, WARM, is.resident_kb);
	if (memory_tells())
		ck_assert_uint_le(is.resident_kb, was.resident_kb + GROWTH_KB);
	end_close(&owner);
	end_close(&user);
	hang_watch(0, 0);
}
END_TEST

int main(void)
{
	Suite *s;
	TCase *t;
	char why[256];

	signal(SIGPIPE, SIG_IGN);
	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	if (!victim_possible())
		return testing_skip("no /proc/self/exe");
	s = suite_create("rdma-soak");
	t = tcase_create("soak");
	tcase_set_timeout(t, 0); /* each round is watched */
	if (victim_role())
		tcase_add_test(t, be_the_victim);
	else
		tcase_add_test(t, all_is_as_before);
	suite_add_tcase(s, t);
	return testing_run(s);
}
