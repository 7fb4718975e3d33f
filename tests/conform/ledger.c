/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-LEDGER: charges and records of an engine that works; ESC-GRANT-009: quotas by name. */
#include <string.h>

#include "tests/conform/book.h"
#include "tests/conform/case.h"
#include "tests/conform/pair.h"

#define L ESCROW_CAP_LEDGER

static void expect_used(struct engine *en, uint32_t kind, const char *peer, uint64_t want,
			const char *when)
{
	struct escrow_charge charge;

	book_charge(en->o, en->e, kind, peer, &charge);
	expect(charge.used == want, "%s: charge %u of \"%s\" is %llu, not %llu", when, kind, peer,
	       (unsigned long long)charge.used, (unsigned long long)want);
	expect_as("CH4", !charge.stuck, "%s: charge %u has %llu stuck", when, kind,
		  (unsigned long long)charge.stuck);
}

/*
 * What one registration, grant or connection is charged: once for each device that the engine uses
 * at the same time, which is the backend's business.
 */
static uint64_t times_of(struct engine *en, uint32_t kind)
{
	struct escrow_charge charge;

	book_charge(en->o, en->e, kind, "", &charge);
	expect(charge.used > 0, "charge %u is 0 with one of them", kind);
	return charge.used;
}

static void charges_of_regions(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "charges");
	struct memory m1, m2;
	uint64_t n;

	expect_used(en, ESCROW_CHARGE_REGIONS, "", 0, "after open");
	expect_used(en, ESCROW_CHARGE_BYTES, "", 0, "after open");
	memory_register(en, &m1, 4096);
	n = times_of(en, ESCROW_CHARGE_REGIONS);
	expect_used(en, ESCROW_CHARGE_BYTES, "", n * 4096, "with one region");
	memory_register(en, &m2, 1000);
	expect_used(en, ESCROW_CHARGE_REGIONS, "", n * 2, "with two regions");
	expect_used(en, ESCROW_CHARGE_BYTES, "", n * 5096, "with two regions");
	memory_deregister(en, &m1);
	expect_used(en, ESCROW_CHARGE_REGIONS, "", n, "with one region again");
	expect_used(en, ESCROW_CHARGE_BYTES, "", n * 1000, "with one region again");
	memory_deregister(en, &m2);
	expect_used(en, ESCROW_CHARGE_REGIONS, "", 0, "without regions");
	expect_used(en, ESCROW_CHARGE_BYTES, "", 0, "without regions");
	engine_close(en);
}

static void charges_of_grants(struct conform *c)
{
	struct share s, t;
	struct pair p;
	uint64_t n;

	pair_open(&p, &c->subject);
	expect_used(p.b, ESCROW_CHARGE_GRANTS, "", 0, "after connect");
	pair_share(&p, false, 4096, ESCROW_MAY_READ, &s);
	n = times_of(p.b, ESCROW_CHARGE_GRANTS);
	pair_share(&p, false, 8192, ESCROW_MAY_READ, &t);
	expect_used(p.b, ESCROW_CHARGE_GRANTS, "", n * 2, "with two grants");
	expect_used(p.b, ESCROW_CHARGE_GRANTED_BYTES, "", n * 12288, "with two grants");
	expect_used(p.b, ESCROW_CHARGE_GRANTS, PAIR_A, n * 2, "with two grants");
	expect_used(p.b, ESCROW_CHARGE_GRANTED_BYTES, PAIR_A, n * 12288, "with two grants");
	pair_unshare(&s);
	expect_used(p.b, ESCROW_CHARGE_GRANTS, PAIR_A, n, "with one grant again");
	expect_used(p.b, ESCROW_CHARGE_GRANTED_BYTES, PAIR_A, n * 8192, "with one grant again");
	expect_status(p.b->o->disconnect(p.b->e, p.b_peer, 0), ESCROW_IN_PROGRESS);
	engine_wait(p.b, ESCROW_EV_PEER_DOWN, p.b_peer, NULL);
	expect_used(p.b, ESCROW_CHARGE_GRANTS, "", 0, "after disconnect");
	expect_used(p.b, ESCROW_CHARGE_GRANTED_BYTES, "", 0, "after disconnect");
	expect_used(p.b, ESCROW_CHARGE_CONNECTIONS, "", 0, "after disconnect");
	pair_close(&p);
}

static void tree_of_records(struct conform *c)
{
	struct book book;
	struct share s;
	struct pair p;

	pair_open(&p, &c->subject);
	pair_share(&p, false, 4096, ESCROW_MAY_READ, &s);
	book_read(p.b->o, p.b->e, &book);
	book_judge(&book);
	expect(book_find(&book, ESCROW_OWNER_ENGINE, 0), "no record of the engine");
	expect(book_find(&book, ESCROW_OWNER_REGION, s.mem.region), "no record of the region");
	expect(book_find(&book, ESCROW_OWNER_GRANT, s.grant), "no record of the grant");
	expect(book_find(&book, ESCROW_OWNER_REGION, s.mem.region)->length == 4096,
	       "the record of a region of 4096 bytes says %llu",
	       (unsigned long long)book_find(&book, ESCROW_OWNER_REGION, s.mem.region)->length);
	expect(!book_count(&book, ESCROW_OWNER_QUARANTINED), "an owner is quarantined");
	pair_unshare(&s);
	pair_close(&p);
}

static void two_calls(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "two-call");
	struct escrow_charge *one = guard_new(sizeof(*one));
	int32_t all = en->o->charges(en->e, NULL, 0, sizeof(*one));

	expect(all > 0, "charges(NULL, 0) gives %d", all);
	expect(en->o->charges(en->e, one, 1, sizeof(*one)) == all,
	       "charges for one element does not tell how many there are");
	expect(one->kind >= ESCROW_CHARGE_BYTES && one->kind <= ESCROW_CHARGE_OPS &&
		       !one->reserved0,
	       "a charge of kind %u", one->kind);
	expect(en->o->charges(NULL, NULL, 0, sizeof(*one)) == 0,
	       "charges of released engines without one");
	engine_close(en);
}

static escrow_status try_grant(struct pair *p, uint64_t peer, uint64_t region, uint64_t *grant)
{
	struct escrow_grant_args args = {
		.size = sizeof(args),
		.rights = ESCROW_MAY_READ,
		.peer = peer,
		.region = region,
		.length = 64,
	};
	escrow_status status = engine_grant(p->b, &args, grant);

	if (status == ESCROW_IN_PROGRESS)
		engine_wait(p->b, ESCROW_EV_GRANT_READY, *grant, NULL);
	return status;
}

/* Two grants for each name: the third is refused for that name alone. */
static void quota_by_name(struct conform *c)
{
	uint8_t invitation[INVITATION_ROOM];
	struct escrow_event up;
	struct memory mem;
	uint64_t g[4], len, other;
	struct engine *third;
	struct pair p;

	if (!subject_has_option(&c->subject, "peer_quota.grants"))
		verdict_skip("the descriptor lists no option peer_quota.grants");
	engine_setting("peer_quota.grants", "2");
	pair_open(&p, &c->subject);
	third = engine_open(&c->subject, NULL, "third");
	pair_invite(p.b, "third", 0, invitation, &len);
	pair_connect_to(third, PAIR_B, invitation, len);
	engine_wait(p.b, ESCROW_EV_PEER_UP, 0, &up);
	other = up.object;
	memory_register(p.b, &mem, 4096);
	expect_status(try_grant(&p, p.b_peer, mem.region, &g[0]), ESCROW_IN_PROGRESS);
	expect_status(try_grant(&p, p.b_peer, mem.region, &g[1]), ESCROW_IN_PROGRESS);
	expect_status(try_grant(&p, p.b_peer, mem.region, &g[2]), ESCROW_E_QUOTA);
	expect_status(try_grant(&p, other, mem.region, &g[3]), ESCROW_IN_PROGRESS);
	expect_status(p.b->o->revoke(p.b->e, g[0], 0), ESCROW_IN_PROGRESS);
	engine_wait(p.b, ESCROW_EV_GRANT_REVOKED, g[0], NULL);
	expect_status(try_grant(&p, p.b_peer, mem.region, &g[2]), ESCROW_IN_PROGRESS);
	pair_close(&p);
	engine_close(third);
}

static const struct conform_case cases[] = {
	{"ESC-LEDGER-001", "core", "CH1", L, 0, "charges of regions come and go",
	 charges_of_regions},
	{"ESC-LEDGER-002", "data", "CH1", L, 0, "charges of grants come and go", charges_of_grants},
	{"ESC-LEDGER-003", "data", "RC1", L, 0, "records are a tree", tree_of_records},
	{"ESC-LEDGER-004", "core", "CH1 O5", L, 0, "charges tells how many there are", two_calls},
	{"ESC-GRANT-009", "data", "CH3 CF2", 0, 0, "quotas count by the peer's name",
	 quota_by_name},
};

CONFORM_AREA(area_ledger, cases);
