/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-REGION: what it means to lend memory to an engine and to get it back. */
#include <stdio.h>
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"

static escrow_status try_region(struct engine *en, void *addr, uint64_t length, uint64_t *region)
{
	struct escrow_region_args args = {
		.size = sizeof(args),
		.user = TOKEN(0x1e9),
		.addr = addr,
		.length = length,
		.memory_kind = ESCROW_MEMORY_HOST,
		.dmabuf_fd = -1,
	};

	return engine_region(en, &args, region);
}

static void lends_and_returns(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "region");
	struct memory m;

	memory_register(en, &m, 100000);
	expect(buffer_intact(&m.buf, 0, 0), "register_memory changed bytes of the range");
	memory_deregister(en, &m);
	engine_settle();
	expect_as("RE3", !en->count, "%u more events came after REGION_RELEASED", en->count);
	expect(buffer_intact(&m.buf, 0, 0), "deregister_memory changed bytes of the range");
	engine_close(en);
}

static void overlaps(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "overlap");
	struct buffer b;
	uint64_t r[4];
	int i, j;

	buffer_new(&b, 16384);
	expect_status(try_region(en, b.at, 16384, &r[0]), ESCROW_OK);
	expect_status(try_region(en, b.at, 16384, &r[1]), ESCROW_OK);
	expect_status(try_region(en, b.at + 100, 8192, &r[2]), ESCROW_OK);
	expect_status(try_region(en, b.at, 1, &r[3]), ESCROW_OK);
	for (i = 0; i < 4; i++)
		for (j = 0; j < i; j++)
			expect(r[i] != r[j], "two registrations have one handle");
	for (i = 3; i >= 0; i--) {
		expect_status(en->o->deregister_memory(en->e, r[i], 0), ESCROW_IN_PROGRESS);
		engine_wait(en, ESCROW_EV_REGION_RELEASED, r[i], NULL);
	}
	engine_close(en);
}

static void beyond_limits(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "limit");
	uint64_t bytes = en->limits.max_region_bytes, most = en->limits.max_regions, n, r,
		 first = 0;
	struct buffer b;
	escrow_status status = ESCROW_OK;

	buffer_new(&b, 4096);
	if (bytes < UINT64_C(1) << 46)
		expect_status(try_region(en, b.at, bytes + 1, &r), ESCROW_E_LIMIT);
	if (most > 100000)
		most = 0; /* too many to try; the limit is then a quota's or the kernel's */
	for (n = 0; n < most; n++) {
		status = try_region(en, b.at, 1, &r);
		expect(status == ESCROW_OK, "region %llu of max_regions %llu gives %s",
		       (unsigned long long)n + 1, (unsigned long long)most, verdict_status(status));
		first = first ? first : r;
	}
	if (most) {
		expect_status(try_region(en, b.at, 1, &r), ESCROW_E_LIMIT);
		expect_status(en->o->deregister_memory(en->e, first, 0), ESCROW_IN_PROGRESS);
		engine_wait(en, ESCROW_EV_REGION_RELEASED, first, NULL);
		expect_status(try_region(en, b.at, 1, &r), ESCROW_OK);
	}
	engine_close(en);
}

static void within_quota(struct conform *c)
{
	struct engine *en;
	struct buffer b;
	uint64_t r1, r2, r3;

	buffer_new(&b, 16384);
	if (!subject_has_option(&c->subject, "quota.regions") ||
	    !subject_has_option(&c->subject, "quota.bytes"))
		verdict_skip("the descriptor lists no quotas of regions");
	engine_setting("quota.regions", "2");
	en = engine_open(&c->subject, NULL, "quota");
	expect_status(try_region(en, b.at, 1, &r1), ESCROW_OK);
	expect_status(try_region(en, b.at, 1, &r2), ESCROW_OK);
	expect_status(try_region(en, b.at, 1, &r3), ESCROW_E_QUOTA);
	expect_status(en->o->deregister_memory(en->e, r1, 0), ESCROW_IN_PROGRESS);
	engine_wait(en, ESCROW_EV_REGION_RELEASED, r1, NULL);
	expect_status(try_region(en, b.at, 1, &r3), ESCROW_OK);
	engine_close(en);
	engine_settings_clear("quota.regions");
	engine_setting("quota.bytes", "8192");
	en = engine_open(&c->subject, NULL, "quota");
	expect_status(try_region(en, b.at, 8193, &r1), ESCROW_E_QUOTA);
	expect_status(try_region(en, b.at, 4096, &r1), ESCROW_OK);
	expect_status(try_region(en, b.at, 4097, &r2), ESCROW_E_QUOTA);
	expect_status(try_region(en, b.at, 4096, &r2), ESCROW_OK);
	expect_status(try_region(en, b.at, 1, &r3), ESCROW_E_QUOTA);
	engine_close(en);
}

static void busy_with_grant(struct conform *c)
{
	struct share s;
	struct pair p;

	pair_open(&p, &c->subject);
	pair_share(&p, false, 4096, ESCROW_MAY_READ, &s);
	expect_status(p.b->o->deregister_memory(p.b->e, s.mem.region, 0), ESCROW_E_BUSY);
	engine_settle();
	expect(!engine_pending(p.b, ESCROW_EV_REGION_RELEASED, 0),
	       "REGION_RELEASED came though deregister_memory said E_BUSY");
	pair_unshare(&s);
	pair_close(&p);
}

static void twice(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "twice");
	struct memory m;

	memory_register(en, &m, 4096);
	expect_status(en->o->deregister_memory(en->e, m.region, 0), ESCROW_IN_PROGRESS);
	expect_status(en->o->deregister_memory(en->e, m.region, 0), ESCROW_E_INVALID);
	engine_wait(en, ESCROW_EV_REGION_RELEASED, m.region, NULL);
	expect_status(en->o->deregister_memory(en->e, m.region, 0), ESCROW_E_INVALID);
	engine_settle();
	expect(!engine_pending(en, ESCROW_EV_REGION_RELEASED, 0), "REGION_RELEASED came twice");
	engine_close(en);
}

static void any_alignment(struct conform *c)
{
	static const size_t from[] = {0, 1, 7, 63, 4095, 4097};
	static const size_t bytes[] = {1, 3, 4096, 4097, 65537};
	struct engine *en = engine_open(&c->subject, NULL, "align");
	struct buffer b;
	uint64_t r;
	size_t i, j;

	buffer_new(&b, 131072);
	for (i = 0; i < sizeof(from) / sizeof(from[0]); i++)
		for (j = 0; j < sizeof(bytes) / sizeof(bytes[0]); j++) {
			expect_status(try_region(en, b.at + from[i], bytes[j], &r), ESCROW_OK);
			expect_status(en->o->deregister_memory(en->e, r, 0), ESCROW_IN_PROGRESS);
			engine_wait(en, ESCROW_EV_REGION_RELEASED, r, NULL);
		}
	engine_close(en);
}

static void foreign_kinds(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "kinds");
	struct escrow_region_args args = {
		.size = sizeof(args),
		.length = 4096,
		.memory_kind = ESCROW_MEMORY_DMABUF,
		.dmabuf_fd = 0,
	};
	uint64_t region;

	if (!engine_can(en, ESCROW_CAP_DMABUF))
		expect_status(engine_region(en, &args, &region), ESCROW_E_UNSUPPORTED);
	expect(!(en->limits.caps & ESCROW_CAP_DMABUF) ==
		       !(en->limits.memory_kinds & (UINT64_C(1) << ESCROW_MEMORY_DMABUF)),
	       "memory_kinds %#llx does not agree with the bit DMABUF",
	       (unsigned long long)en->limits.memory_kinds);
	engine_close(en);
}

static const struct conform_case cases[] = {
	{"ESC-REGION-001", "core", "RE1 RE3 V7 O4", 0, 0, "a region is lent and comes back",
	 lends_and_returns},
	{"ESC-REGION-002", "core", "RE2", 0, 0, "ranges may overlap and repeat", overlaps},
	{"ESC-REGION-003", "core", "RE4", 0, 0, "one more than the limits", beyond_limits},
	{"ESC-REGION-004", "core", "CH2 CF2", 0, 0, "one more than the quotas", within_quota},
	{"ESC-REGION-005", "data", "RE5", 0, 0, "a region with a grant is busy", busy_with_grant},
	{"ESC-REGION-006", "core", "RE3", 0, NEED_MISUSE, "a region is released once", twice},
	{"ESC-REGION-008", "core", "RE1", 0, 0, "any alignment and length", any_alignment},
	{"ESC-REGION-009", "core", "K2", 0, 0, "memory kinds agree with the capability",
	 foreign_kinds},
};

CONFORM_AREA(area_region, cases);
