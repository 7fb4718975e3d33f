/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Grants, offers, peers and regions that come and go in any order, with some of their events polled: each handle is
 * known until its last event was polled, and never again.
 */
#include "tests/unit/handles.h"

enum kind { GRANT, OFFER, PEER, REGION, KINDS };
#define THINGS 96u
#define STEPS 3000

static struct thing {
	uint64_t handle;
	enum kind kind;
	bool asked; /* its end was asked for */
	bool stale;
} things[THINGS]; /* the last ones that were made */
static uint32_t nthings;
static uint64_t dice;

static uint32_t roll(uint32_t n)
{
	dice = dice * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(dice >> 33) % n;
}

static struct thing *thing_of(uint64_t handle)
{
	for (uint32_t i = 0; i < THINGS; i++)
		if (things[i].handle == handle)
			return &things[i];
	return NULL;
}

static void is_made(enum kind kind, uint64_t handle)
{
	ck_assert_ptr_null(thing_of(handle));
	things[nthings++ % THINGS] = (struct thing){.handle = handle, .kind = kind};
}

/* One that the host does not know of any more stands where the next one goes? */
static bool room_for_one(void)
{
	const struct thing *t = &things[nthings % THINGS];

	return !t->handle || t->stale;
}

static void make_one(enum kind kind)
{
	uint64_t handle = 0;

	if (!room_for_one())
		return;
	if (kind == PEER)
		handle = connect_one();
	else if (kind == REGION)
		handle = register_one();
	else if (grant_of(kind == GRANT ? k.peer : 0, k.region, &handle) < 0)
		ck_abort_msg("no grant");
	is_made(kind, handle);
}

static escrow_status ask_for_its_end(const struct thing *t)
{
	switch (t->kind) {
	case PEER:
		return KIT_OPS->disconnect(k.engine, t->handle, 0);
	case REGION:
		return KIT_OPS->deregister_memory(k.engine, t->handle, 0);
	default:
		return KIT_OPS->revoke(k.engine, t->handle, 0);
	}
}

static void end_one(void)
{
	struct thing *t = &things[roll(THINGS)];

	if (!t->handle || t->stale || t->asked)
		return;
	ck_assert_int_eq(ask_for_its_end(t), ESCROW_IN_PROGRESS);
	t->asked = true;
}

static bool is_last(const struct escrow_event *ev)
{
	return ev->kind == ESCROW_EV_GRANT_REVOKED || ev->kind == ESCROW_EV_PEER_DOWN ||
	       ev->kind == ESCROW_EV_REGION_RELEASED;
}

/* Its kind; 0: there was none. */
static uint16_t tell_one(void)
{
	struct escrow_event ev;
	struct thing *t;

	if (!poll_one(&ev))
		return 0;
	t = thing_of(ev.object);
	/* The other end of a connection: the host hears of it by this first. */
	if (!t && ev.kind == ESCROW_EV_PEER_UP && room_for_one())
		is_made(PEER, ev.object);
	if (t) {
		ck_assert(!t->stale);
		t->stale = is_last(&ev);
	}
	return ev.kind;
}

/* Whether it knows the handle is all that matters here. */
static void is_known(const struct thing *t, bool closing)
{
	uint64_t none = 0;
	escrow_status st;

	switch (t->kind) {
	case PEER:
		st = info_of(t->handle, &none);
		break;
	case REGION:
		/* Of one that stands this would make an offer. */
		if (!t->asked && !t->stale)
			return;
		st = grant_of(0, t->handle, &none);
		break;
	default:
		st = export_it(t->handle);
		break;
	}
	ck_assert_msg((st == ESCROW_E_INVALID) == t->stale, "kind %u, %s: %d", t->kind,
		      t->stale   ? "stale"
		      : t->asked ? "ending"
				 : "live",
		      st);
	if (t->asked && !t->stale && t->kind != REGION && !closing)
		ck_assert_int_eq(ask_for_its_end(t), ESCROW_IN_PROGRESS);
}

/* Asked for one by one, by slots that are legal now: while the engine closes that is peer_info. */
static void are_known(bool closing)
{
	for (uint32_t i = 0; i < THINGS; i++)
		if (things[i].handle && (!closing || things[i].kind == PEER))
			is_known(&things[i], closing);
}

/* What was not told before is told now, and each is known till then. */
static void close_all(void)
{
	uint16_t kind;

	ck_assert_int_eq(KIT_OPS->close(k.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	do {
		kit_now += 1000000;
		kind = tell_one();
		if (kind != ESCROW_EV_CLOSED)
			are_known(true);
	} while (kind != ESCROW_EV_CLOSED);
	for (uint32_t i = 0; i < THINGS; i++)
		ck_assert(!things[i].handle || things[i].stale);
	KIT_OPS->release(k.engine);
	free(k.memory);
	ck_assert_uint_eq(kit_allocs, 0);
}

START_TEST(in_any_order)
{
	struct escrow_event ev;

	start(_i % 2 ? "mock.contexts=2" : NULL);
	memset(things, 0, sizeof(things));
	nthings = 0;
	dice = (uint64_t)_i;
	for (int step = 0; step < STEPS; step++) {
		uint32_t what = roll(10);

		if (what < 4)
			make_one((enum kind)roll(KINDS));
		else if (what < 7)
			end_one();
		else if (what < 9)
			tell_one();
		else
			KIT_OPS->poll(k.engine, &ev, 0, sizeof(ev), 0);
		are_known(false);
	}
	close_all();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-walk");
	TCase *t = tcase_create("walk");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, in_any_order, 0, 4);
	suite_add_tcase(s, t);
	return testing_run(s);
}
