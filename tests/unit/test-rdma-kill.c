/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer dies at every stage in every way: R10 and what belongs to it.  The survivor gets every op,
 * grant and connection of the dead one back, to the last charge, no byte comes late, and it serves the
 * next.
 *
 * The victim is this program again; it and the survivor speak by two pipes.  Where it dies is counted in
 * its steps, so no clock is involved.  ESCROW_TEST_KILLS: how often (20, with FULL 500); 40 in a row are every role at
 * every stage in every way.  With ESCROW_TEST_FAR the victim is in the other of two guests (victim.h), and dies by
 * SIGKILL; ten in a row are then every role at every stage.  ESCROW_TEST_POWER is the file whose creation takes that
 * guest its power: another test, the last that this pair of guests has.  Kill number N is the same whatever came before: ESCROW_TEST_FIRST says where
 * to begin, ESCROW_TEST_SEED what the rest is drawn from.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/hang.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-kit.h"
#include "tests/unit/victim.h"

#define RIGHTS (ESCROW_MAY_READ | ESCROW_MAY_WRITE)
#define PIECE 65536u
#define BURST 6u
#define HANG_S 110u /* the kit's waits end after 120 */

enum stage { CONNECT, GRANT, TRANSFER, REVOKE, DRAIN, STAGES };
enum way { KILLED, CRASHED, LEFT, STOPPED, WAYS };
static const char *const patient[] = {PATIENT, NULL};
static const char *const stages[] = {"connect", "grant", "transfer", "revoke", "drain"};
static const char *const ways[] = {"SIGKILL", "SIGSEGV", "exit without close",
				   "SIGSTOP and the end of its lease"};

struct death {
	bool lends; /* the victim */
	enum stage stage;
	enum way way;
	uint32_t steps; /* drawn */
};

/* ---- The victim: `in` and `out` are its ends ---------------------------------------------------------- */
/* False: the survivor gave it up before, as it does with one that was stopped just then. */
static bool comes_up(const struct end *e)
{
	while (!end_has_seen(e, ESCROW_EV_PEER_UP) && !end_has_seen(e, ESCROW_EV_PEER_DOWN))
		ends_turn();
	return end_has_seen(e, ESCROW_EV_PEER_UP);
}

static void victim_requests(struct end *e, int in, int out)
{
	uint64_t len, peer, remote, op;
	uint8_t buf[4096];
	uint32_t i = 0;

	len = get(in, buf, sizeof(buf));
	put(out, "c", 1);
	peer = end_connect(e, "survivor", buf, len);
	if (!comes_up(e))
		return;
	len = get(in, buf, sizeof(buf));
	remote = end_import(e, peer, buf, len);
	/* Until the grant is gone. */
	do {
		op = end_try_submit(e, remote, i++ % 2 ? ESCROW_READ : ESCROW_WRITE, PIECE);
	} while (op && end_wait_of(e, ESCROW_EV_OP_DONE, op).status == ESCROW_OK &&
		 put(out, "x", 1));
	get(in, buf, sizeof(buf));
}

static void victim_lends(struct end *e, int in, int out)
{
	uint64_t len, grant, peer;
	uint8_t buf[4096];

	len = end_invite(e, "survivor", buf, sizeof(buf));
	put(out, buf, len);
	peer = end_wait(e, ESCROW_EV_PEER_UP).object;
	len = end_grant(e, peer, 0, END_BYTES, RIGHTS, buf, sizeof(buf), &grant);
	put(out, buf, len);
	/* The engine's thread serves the peer; a word from it asks for the grant back. */
	if (get(in, buf, sizeof(buf)) && OPS->revoke(e->engine, grant, 0) == ESCROW_IN_PROGRESS)
		end_wait_of(e, ESCROW_EV_GRANT_REVOKED, grant);
	get(in, buf, sizeof(buf));
}

/* A process that ends by itself, whatever its threads do: no close, but the destructors of libraries. */
static void *leave(void *arg)
{
	int signal;

	sigwait(arg, &signal);
	exit(0);
}

START_TEST(be_the_victim)
{
	static sigset_t usr1;
	pthread_t thread;
	struct end e;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	ck_assert_int_eq(pthread_create(&thread, NULL, leave, &usr1), 0);
	end_open(&e, 'v', patient);
	if (victim_role()[0] == 'r')
		victim_requests(&e, VICTIM_IN, VICTIM_OUT);
	else
		victim_lends(&e, VICTIM_IN, VICTIM_OUT);
}
END_TEST

static void victim_dies(const struct victim *v, enum way way)
{
	static const int signals[] = {SIGKILL, SIGSEGV, SIGUSR1, SIGSTOP};

	ck_assert_int_eq(kill(v->pid, victim_far() ? SIGTERM : signals[way]), 0);
	victim_reap(v, way == STOPPED ? WUNTRACED : 0);
}

/* What was only stopped goes on, with all the keys it had, and ends when it hears no more. */
static void victim_ends(const struct victim *v, const struct death *d)
{
	victim_close(v);
	if (d->way != STOPPED)
		return;
	if (d->stage == CONNECT) /* it would wait for its connection */
		ck_assert_int_eq(kill(v->pid, SIGKILL), 0);
	kill(v->pid, SIGCONT);
	victim_reap(v, 0);
}

/* ---- The survivor ----------------------------------------------------------------------------------------- */
static struct end survivor;

/* All that was the dead one's is back, and only the own registration stands. */
static void charges_are_exact(void)
{
	static const uint32_t kinds[] = {ESCROW_CHARGE_CONNECTIONS,   ESCROW_CHARGE_GRANTS,
					 ESCROW_CHARGE_GRANTED_BYTES, ESCROW_CHARGE_SQ_SLOTS,
					 ESCROW_CHARGE_CQ_SLOTS,      ESCROW_CHARGE_OPS};

	for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		end_until_unused(&survivor, kinds[i]);
		hang_alive(1);
	}
	ck_assert_uint_eq(end_used(&survivor, ESCROW_CHARGE_REGIONS), 1);
	ck_assert_uint_eq(end_used(&survivor, ESCROW_CHARGE_BYTES), END_BYTES);
}

/* Death as the host learns of it: the connection ends, or (a stopped process says nothing) its lease. */
static void peer_is_gone(uint64_t peer, enum way way)
{
	if (way == STOPPED)
		OPS->disconnect(survivor.engine, peer, 0); /* an error if it went down already */
	end_wait_of(&survivor, ESCROW_EV_PEER_DOWN, peer);
	hang_alive(1);
}

/* The peer of this name; one that died while it connected may come up, and go down, much later. */
static uint64_t peer_up(const char *name)
{
	struct escrow_peer_info info = {.size = sizeof(info)};
	uint64_t peer;

	do {
		peer = end_wait(&survivor, ESCROW_EV_PEER_UP).object;
		info.peer_name[0] = 0;
		hang_alive(1);
	} while (OPS->peer_info(survivor.engine, peer, &info) != ESCROW_OK ||
		 strcmp(info.peer_name, name) != 0);
	return peer;
}

static uint32_t turns_of(const struct death *d)
{
	return d->steps % (BURST + 1);
}

/* So many ops of the victim have been done. */
static void victim_works(const struct victim *v, uint32_t ops)
{
	char byte;

	while (ops-- > 0)
		ck_assert_uint_eq(get(v->from, &byte, 1), 1);
}

/* The victim requests. The peer, 0 if it did not come up; what was under way when it died ends. */
static uint64_t lend(const struct victim *v, const struct death *d)
{
	struct escrow_grant_args args = {.size = sizeof(args), .rights = RIGHTS, .length = PIECE};
	uint64_t len, peer, grant = 0;
	static uint32_t number;
	uint8_t buf[4096];
	char name[32];

	survivor.nseen = 0; /* of those before */
	snprintf(name, sizeof(name), "victim %u", number++);
	len = end_invite(&survivor, name, buf, sizeof(buf));
	ck_assert(put(v->to, buf, len));
	victim_works(v, 1);
	if (d->stage == CONNECT) {
		victim_dies(v, d->way);
		return 0;
	}
	peer = peer_up(name);
	args.peer = peer;
	args.region = survivor.region;
	if (d->stage == GRANT) {
		ck_assert_int_eq(OPS->grant(survivor.engine, &args, &grant, NULL),
				 ESCROW_IN_PROGRESS);
		victim_dies(v, d->way);
		return peer;
	}
	len = end_grant(&survivor, peer, 0, PIECE, RIGHTS, buf, sizeof(buf), &grant);
	ck_assert(put(v->to, buf, len));
	victim_works(v, turns_of(d));
	if (d->stage == REVOKE)
		ck_assert_int_eq(OPS->revoke(survivor.engine, grant, 0), ESCROW_IN_PROGRESS);
	else if (d->stage == DRAIN)
		ck_assert_int_eq(OPS->drain(survivor.engine, peer, 0, 0), ESCROW_IN_PROGRESS);
	victim_dies(v, d->way);
	if (d->stage == REVOKE)
		end_wait_of(&survivor, ESCROW_EV_GRANT_REVOKED, grant);
	else if (d->stage == DRAIN)
		ck_assert_int_eq(end_wait_of(&survivor, ESCROW_EV_DRAINED, peer).status, ESCROW_OK);
	return peer;
}

/* The victim lends. */
static uint64_t request(const struct victim *v, const struct death *d)
{
	uint64_t len, peer, remote, ops[BURST];
	uint8_t buf[4096];
	uint32_t n = 0;

	survivor.nseen = 0; /* of those before */
	len = get(v->from, buf, sizeof(buf));
	ck_assert_uint_gt(len, 0);
	peer = end_connect(&survivor, "victim", buf, len);
	if (d->stage == CONNECT) {
		victim_dies(v, d->way);
		peer_is_gone(peer, d->way);
		return 0;
	}
	end_wait_of(&survivor, ESCROW_EV_PEER_UP, peer);
	len = get(v->from, buf, sizeof(buf));
	if (d->stage == GRANT)
		victim_dies(v, d->way);
	/* A grant of a dead one, which nobody has told the engine of. */
	if (OPS->import_grant(survivor.engine, peer, buf, len, 0, &remote, NULL) != ESCROW_OK) {
		ck_assert_int_eq(d->stage, GRANT);
		peer_is_gone(peer, d->way);
		return 0;
	}
	while (n < turns_of(d) && n < BURST) {
		ops[n] = end_try_submit(&survivor, remote, n % 2 ? ESCROW_READ : ESCROW_WRITE,
					PIECE);
		if (!ops[n])
			break;
		n++;
	}
	if (d->stage == REVOKE)
		ck_assert(put(v->to, "r", 1));
	else if (d->stage == DRAIN)
		ck_assert_int_eq(OPS->drain(survivor.engine, peer, 0, 0), ESCROW_IN_PROGRESS);
	if (d->stage != GRANT)
		victim_dies(v, d->way);
	peer_is_gone(peer, d->way);
	while (n-- > 0)
		ck_assert_int_eq(end_wait_of(&survivor, ESCROW_EV_OP_DONE, ops[n]).custody,
				 ESCROW_CUSTODY_RETURNED);
	if (d->stage == DRAIN)
		ck_assert_int_eq(end_wait_of(&survivor, ESCROW_EV_DRAINED, peer).status, ESCROW_OK);
	return 0;
}

/* Everything is back, and a process that could still write it is about to run or to die. */
static void nothing_comes_late(const struct victim *v, const struct death *d)
{
	memset(survivor.memory, 'n', END_BYTES);
	double_forbid(survivor.memory, END_BYTES);
	victim_ends(v, d);
	double_settle();
	for (uint32_t i = 0; i < END_BYTES; i++)
		testing_assert_byte(survivor.memory[i], 'n', i);
	double_permit(survivor.memory, END_BYTES);
}

static void die_once(const struct death *d, unsigned long pins)
{
	struct victim v = victim_start(d->lends ? "l" : "r", NULL, NULL);
	uint64_t peer;

	hang_watch(HANG_S, v.pid);
	peer = d->lends ? request(&v, d) : lend(&v, d);
	if (peer)
		peer_is_gone(peer, d->way);
	/* Who was stopped while it connected is no peer yet that a lease could end. */
	if (!d->lends && d->stage == CONNECT && d->way == STOPPED)
		kill(v.pid, SIGKILL);
	charges_are_exact();
	ck_assert_uint_eq(pinned(), pins);
	nothing_comes_late(&v, d);
}

/* And it still works: the bytes of a new peer arrive. */
static void serve_another(void)
{
	struct victim v = victim_start("r", NULL, NULL);
	struct death d = {.stage = TRANSFER, .way = KILLED, .steps = 1};

	memset(survivor.memory, 's', END_BYTES);
	peer_is_gone(lend(&v, &d), KILLED);
	charges_are_exact();
	for (uint32_t i = 0; i < PIECE; i++)
		testing_assert_byte(survivor.memory[i], 'v', i);
	ck_assert_int_eq(survivor.memory[PIECE], 's');
	victim_ends(&v, &d);
}

/* Neighbours differ in everything; 7 and the number of all are coprime. */
static struct death death_of(uint64_t seed, uint64_t number)
{
	uint64_t x = (seed ^ number) * 6364136223846793005u + 1442695040888963407u;
	uint32_t at = (uint32_t)(number * 7 % (2u * STAGES * WAYS));

	return (struct death){.lends = at % 2,
			      .stage = at / 2 % STAGES,
			      .way = victim_far() ? KILLED : at / 2 / STAGES,
			      .steps = (uint32_t)(x >> 33)};
}

/* R10, R11 */
START_TEST(kill_at_random)
{
	uint64_t seed = testing_number("ESCROW_TEST_SEED", 20261129);
	uint64_t first = testing_number("ESCROW_TEST_FIRST", 0);
	uint64_t kills = testing_number("ESCROW_TEST_KILLS", getenv("FULL") ? 500 : 20);
	unsigned long pins;

	printf("# seed %llu, kills %llu to %llu\n", (unsigned long long)seed,
	       (unsigned long long)first, (unsigned long long)(first + kills - 1));
	end_open(&survivor, 's', patient);
	pins = pinned();
	for (uint64_t i = first; i < first + kills; i++) {
		struct death d = death_of(seed, i);

		printf("# %llu: the %s dies by %s at %s\n", (unsigned long long)i,
		       d.lends ? "source" : "requester", ways[d.way], stages[d.stage]);
		fflush(stdout);
		die_once(&d, pins);
	}
	serve_another();
	end_close(&survivor);
	hang_watch(0, 0);
}
END_TEST

/* ---- The other machine loses its power ------------------------------------------------------------------- */
static struct victim begins(const char *role)
{
	struct victim v = victim_start(role, NULL, NULL);

	hang_watch(HANG_S, v.pid);
	return v;
}

/* It works with memory that it is lent. */
static uint64_t lend_to_far(uint64_t *grant)
{
	struct victim v = begins("r");
	uint8_t buf[4096];
	uint64_t len, peer;

	len = end_invite(&survivor, "requester", buf, sizeof(buf));
	ck_assert(put(v.to, buf, len));
	victim_works(&v, 1);
	peer = peer_up("requester");
	len = end_grant(&survivor, peer, 0, PIECE, RIGHTS, buf, sizeof(buf), grant);
	ck_assert(put(v.to, buf, len));
	victim_works(&v, BURST);
	return peer;
}

static uint64_t borrow_from_far(uint64_t *remote)
{
	struct victim v = begins("l");
	uint8_t buf[4096];
	uint64_t len, peer;

	len = get(v.from, buf, sizeof(buf));
	ck_assert_uint_gt(len, 0);
	peer = end_connect(&survivor, "lender", buf, len);
	end_wait_of(&survivor, ESCROW_EV_PEER_UP, peer);
	len = get(v.from, buf, sizeof(buf));
	*remote = end_import(&survivor, peer, buf, len);
	return peer;
}

static void power_off(void)
{
	int file = open(getenv("ESCROW_TEST_POWER"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	ck_assert_int_ge(file, 0);
	close(file);
}

/* Until nothing is taken any more: what was posted ends, and comes back. */
static void request_until_the_end(uint64_t remote)
{
	uint64_t ops[BURST];
	uint32_t n, i;

	do {
		for (n = 0; n < BURST; n++) {
			ops[n] = end_try_submit(&survivor, remote,
						n % 2 ? ESCROW_READ : ESCROW_WRITE, PIECE);
			if (!ops[n])
				break;
		}
		for (i = 0; i < n; i++) {
			struct escrow_event ev = end_wait_of(&survivor, ESCROW_EV_OP_DONE, ops[i]);

			ck_assert_int_eq(ev.custody, ESCROW_CUSTODY_RETURNED);
			ck_assert((ev.status == ESCROW_OK) ==
				  (ev.effect == ESCROW_EFFECT_EXECUTED));
		}
	} while (n == BURST);
}

/* Nobody over there says a last word: what we posted ends by errors of our own, and what is lent is taken back without
 * asking. */
START_TEST(the_other_machine_dies)
{
	uint64_t borrower, lender, remote, grant;

	end_open(&survivor, 's', patient);
	borrower = lend_to_far(&grant);
	lender = borrow_from_far(&remote);
	power_off();
	request_until_the_end(remote);
	ck_assert_int_lt(end_wait_of(&survivor, ESCROW_EV_PEER_DOWN, lender).status, 0);
	ck_assert_int_eq(OPS->revoke(survivor.engine, grant, 0), ESCROW_IN_PROGRESS);
	ck_assert_int_eq(end_wait_of(&survivor, ESCROW_EV_GRANT_REVOKED, grant).status, ESCROW_OK);
	peer_is_gone(borrower, STOPPED); /* it says nothing */
	charges_are_exact();
	end_close(&survivor);
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
	s = suite_create("rdma-kill");
	t = tcase_create("kill");
	tcase_set_timeout(t, 1700);
	if (victim_role())
		tcase_add_test(t, be_the_victim);
	else if (getenv("ESCROW_TEST_POWER"))
		tcase_add_test(t, the_other_machine_dies);
	else
		tcase_add_test(t, kill_at_random);
	suite_add_tcase(s, t);
	return testing_run(s);
}
