/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-LIFE: open, query, close and release, once and often; configuration; extensions. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/pair.h"

static void opens_and_closes(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "once");
	struct escrow_event ev;

	expect(engine_state(en) == ESCROW_STATE_OPEN, "the state after open is %u",
	       engine_state(en));
	expect(engine_end(en, ESCROW_CLOSE_GRACEFUL) == ESCROW_EV_CLOSED,
	       "close of an idle engine ends in quarantine");
	engine_wait(en, ESCROW_EV_CLOSED, 0, &ev);
	expect(ev.status == ESCROW_OK && !ev.object, "CLOSED with %s of object %#llx",
	       verdict_status(ev.status), (unsigned long long)ev.object);
	expect(engine_state(en) == ESCROW_STATE_CLOSED, "the state after CLOSED is %u",
	       engine_state(en));
	expect_as("V6", !engine_pump(), "poll after CLOSED gives events");
	expect_status_as("CL3", en->o->close(en->e, 0, ESCROW_CLOSE_GRACEFUL), ESCROW_OK);
	expect_as("V6", !engine_pump(), "close in CLOSED gives an event");
	engine_release(en);
}

/* As often as the process stays as it was: descriptors, threads, blocks, heap. */
static void leaves_nothing(struct conform *c)
{
	static struct ambient before, after;
	struct mallinfo2 m1 = {0}, m2;
	struct host *host = guard_kept(sizeof(*host));
	unsigned int i;

	host_new(host);
	/* What the case keeps of each engine itself (guard_kept) is then one mapped block, and not in
	 * uordblks; glibc would else move the threshold as such blocks are freed. */
	mallopt(M_MMAP_THRESHOLD, 128 * 1024);
	for (i = 0; i < 40; i++) {
		struct engine *en = engine_open(&c->subject, host, "often");

		engine_close(en);
		expect_as("N2", !atomic_load(&host->blocks),
			  "%llu blocks are left after release %u",
			  (unsigned long long)atomic_load(&host->blocks), i);
		expect_as("N2", !atomic_load(&host->dma_blocks),
			  "%llu DMA blocks are left after release %u",
			  (unsigned long long)atomic_load(&host->dma_blocks), i);

		if (i == 9) {
			ambient_take(&before);
			m1 = mallinfo2();
		}
	}
	m2 = mallinfo2();
	ambient_take(&after);
	ambient_compare(&before, &after, "after 30 more engines");
	expect_as("U4", m2.uordblks < m1.uordblks + 30 * 48, "each engine leaves %ld bytes of heap",
		  ((long)m2.uordblks - (long)m1.uordblks) / 30);
	expect_as("U4", m2.hblks <= m1.hblks + 30, "30 engines leave %ld large blocks of heap",
		  (long)m2.hblks - (long)m1.hblks - 30);
	ambient_judge_calls(&c->subject);
}

/* The first engine of a process: what it leaves in the process, but for one-time heap. */
static void first_leaves_nothing(struct conform *c)
{
	static struct ambient open, after;
	struct engine *en = engine_open(&c->subject, NULL, "first");

	ambient_take(&open);
	expect_as("K3", open.threads == c->before.threads || engine_can(en, ESCROW_CAP_THREADS),
		  "%u threads run, %u before open, and THREADS is not advertised", open.threads,
		  c->before.threads);
	engine_close(en);
	host_retire(en->host);
	ambient_take(&after);
	ambient_compare(&c->before, &after, "after release");
	ambient_judge_calls(&c->subject);
}

static void after_release_no_host(struct conform *c)
{
	struct pair p;
	struct host *ha, *hb;

	pair_open(&p, &c->subject);
	ha = p.a->host;
	hb = p.b->host;
	engine_close(p.a);
	host_retire(ha); /* b goes on with a host of its own */
	engine_settle();
	expect_status(p.b->o->query(p.b->e, &p.b->limits), ESCROW_OK);
	engine_close(p.b);
	host_retire(hb);
	engine_settle();
}

static void engines_are_independent(struct conform *c)
{
	struct engine *a = engine_open(&c->subject, NULL, "one");
	struct engine *b = engine_open(&c->subject, NULL, "two");
	struct memory m;

	expect(a->e != b->e, "two opens give the same engine");
	expect_as("EP1", memcmp(a->limits.incarnation, b->limits.incarnation, 16),
		  "two engines have the same incarnation");
	memory_register(b, &m, 4096);
	expect_status(a->o->quiesce(a->e, 0), ESCROW_OK);
	expect(engine_state(b) == ESCROW_STATE_OPEN, "quiesce of one engine reached another");
	engine_close(a);
	expect(engine_state(b) == ESCROW_STATE_OPEN, "close of one engine reached another");
	memory_deregister(b, &m);
	engine_close(b);
}

static void query_is_constant(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "query");
	struct escrow_limits again;
	uint8_t zero[16] = {0};
	unsigned int round;

	expect(memcmp(en->limits.incarnation, zero, 16), "the incarnation is zero");
	for (round = 0; round < 3; round++) {
		memset(&again, 0x5e, sizeof(again));
		again.size = sizeof(again);
		expect_status(en->o->query(en->e, &again), ESCROW_OK);
		if (round)
			expect(again.state == ESCROW_STATE_QUIESCED, "state %u after quiesce",
			       again.state);
		again.state = en->limits.state;
		expect(!memcmp(&again, &en->limits, sizeof(again)),
		       "query gives other limits than before");
		expect_status(en->o->quiesce(en->e, 0), ESCROW_OK);
	}
	engine_close(en);
}

static void limits_are_sane(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "limits");
	const struct escrow_limits *l = &en->limits;

	expect(l->max_regions && l->max_region_bytes && l->max_peers && l->max_grants &&
		       l->max_remotes && l->max_ops && l->max_op_bytes && l->max_sge,
	       "a limit is 0");
	expect(l->max_invitation_bytes && l->max_grant_bytes,
	       "max_invitation_bytes %llu, "
	       "max_grant_bytes %llu",
	       (unsigned long long)l->max_invitation_bytes, (unsigned long long)l->max_grant_bytes);
	expect(!l->max_message_bytes || l->max_message_bytes >= 65536,
	       "max_message_bytes %llu; at least 65536 with messages, else 0",
	       (unsigned long long)l->max_message_bytes);
	expect(!(l->memory_kinds & ~c->subject.backend->memory_kinds),
	       "memory_kinds %#llx, at best %#llx", (unsigned long long)l->memory_kinds,
	       (unsigned long long)c->subject.backend->memory_kinds);
	/*
	 * That an answered destroy proves nothing is how many drivers are, and nothing rests on it;
	 * the bit tells of a mode that was asked for, or of a device whose other answers do not count.
	 */
	expect(l->weak_receipts || !(l->caps & ESCROW_CAP_WEAK),
	       "the bit WEAK without weak_receipts");
	expect((l->caps & ESCROW_CAP_WEAK) || !(l->weak_receipts & ~ESCROW_WEAK_DESTROY),
	       "weak_receipts %#llx without the bit WEAK", (unsigned long long)l->weak_receipts);
	engine_close(en);
}

static void unknown_extensions(struct conform *c)
{
	static const char *const ids[] = {"",
					  "org",
					  "org.escrow",
					  "org.escrow.notify",
					  "org.escrow.notify/",
					  "org.escrow.notify/2",
					  "org.escrow.notify/1x",
					  "org.escrow.notify/1 ",
					  " org.escrow.notify/1",
					  "ORG.ESCROW.NOTIFY/1",
					  "org.escrow.test-fault/1",
					  "org.example.b7f3a1/1",
					  "org.escrow.counters/1\n"};
	struct engine *en = engine_open(&c->subject, NULL, "ext");
	size_t i, mark;

	for (i = 0; en->o->get_extension && i < sizeof(ids) / sizeof(ids[0]); i++) {
		mark = guard_mark();
		expect(!en->o->get_extension(en->e, guard_string(ids[i])),
		       "get_extension(\"%s\") gives a table", ids[i]);
		guard_poison(mark);
	}
	engine_close(en);
}

static void known_extensions(struct conform *c)
{
	static const char *const ids[] = {"org.escrow.notify/1", "org.escrow.fence/1",
					  "org.escrow.counters/1"};
	struct engine *en = engine_open(&c->subject, NULL, "ext");
	const uint32_t *table[3];
	size_t i, mark;

	for (i = 0; en->o->get_extension && i < 3; i++) {
		mark = guard_mark();
		table[i] = en->o->get_extension(en->e, guard_string(ids[i]));
		guard_poison(mark);
		if (table[i])
			expect_as("X1", table[i][0] >= 16 && table[i][0] < 4096,
				  "the table of %s says it has %u bytes", ids[i], table[i][0]);
	}
	expect_status(en->o->quiesce(en->e, 0), ESCROW_OK);
	for (i = 0; en->o->get_extension && i < 3; i++)
		expect_as("X1", en->o->get_extension(en->e, ids[i]) == table[i],
			  "the table of %s changed", ids[i]);
	expect_as("ME1", !en->limits.max_message_bytes == !table[0],
		  "max_message_bytes %llu, and org.escrow.notify/1 is %s",
		  (unsigned long long)en->limits.max_message_bytes, table[0] ? "there" : "absent");
	engine_close(en);
}

/* Every option, set to its own default, opens; and spoiled, does not. */
static void options_open(struct conform *c)
{
	uint32_t i, n = c->subject.backend->noptions;

	for (i = 0; i < n; i++) {
		const struct escrow_option *o = subject_option(&c->subject, i);

		if (!strcmp(o->key, "test.faults"))
			continue;
		engine_setting(o->key, o->value);
		engine_close(engine_open(&c->subject, NULL, "option"));
		engine_settings_clear(o->key);
	}
}

/* Texts that are no quota, for one key. */
static void bad_quota(struct conform *c, struct host *host, const char *key)
{
	static const char *const bad[] = {"", "x", "-1", "1x", "18446744073709551616", "0x"};
	struct escrow_engine *e;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		engine_setting(key, bad[i]);
		expect_status(engine_try_open(&c->subject, host, "bad", &e, NULL),
			      ESCROW_E_INVALID);
		expect_as("CF1", strstr(engine_error.text, key),
			  "the text for %s=%s does not name the key: %s", key, bad[i],
			  engine_error.text);
	}
	engine_settings_clear(key);
}

static void bad_settings(struct conform *c)
{
	static const char *const quotas[] = {"quota.bytes", "quota.regions", "quota.ops",
					     "peer_quota.grants", "stuck_share"};
	struct host host;
	struct escrow_engine *e;
	size_t i;

	host_new(&host);
	for (i = 0; i < sizeof(quotas) / sizeof(quotas[0]); i++) {
		if (subject_has_option(&c->subject, quotas[i]))
			bad_quota(c, &host, quotas[i]);
	}
	engine_setting("no.such.key", "1");
	expect_status(engine_try_open(&c->subject, &host, "bad", &e, NULL), ESCROW_E_INVALID);
	expect_as("CF1", strstr(engine_error.text, "no.such.key"),
		  "the text does not name the key: %s", engine_error.text);
	expect_as("E3", !atomic_load(&host.blocks), "a failed open keeps %llu blocks",
		  (unsigned long long)atomic_load(&host.blocks));
}

/* Names and settings were poisoned after open; everything that might read them again is called. */
static void copies_strings(struct conform *c)
{
	uint8_t invitation[INVITATION_ROOM];
	struct pair p = {0};
	uint64_t len, peer;

	if (subject_has_option(&c->subject, "quota.regions"))
		engine_setting("quota.regions", "7");
	p.a = engine_open(&c->subject, NULL, "name-of-a");
	p.b = engine_open(&c->subject, NULL, "name-of-b");
	pair_invite(p.b, engine_can(p.b, ESCROW_CAP_INVITE_ANY) ? NULL : PAIR_A, 0, invitation,
		    &len);
	peer = pair_connect_to(p.a, PAIR_B, invitation, len);
	engine_wait(p.a, ESCROW_EV_PEER_UP, peer, NULL);
	engine_wait(p.b, ESCROW_EV_PEER_UP, 0, NULL);
	if (engine_can(p.a, ESCROW_CAP_LEDGER))
		expect(p.a->o->charges(p.a->e, NULL, 0, sizeof(struct escrow_charge)) >= 0,
		       "charges fails");
	pair_close(&p);
}

/* Texts of all levels are wanted; the strict host looks at each. */
static void logs_well(struct conform *c)
{
	struct pair p;
	uint64_t logs;

	pair_open(&p, &c->subject);
	logs = atomic_load(&p.a->host->logs);
	expect_status(p.a->o->disconnect(p.a->e, p.a_peer, 0), ESCROW_IN_PROGRESS);
	engine_wait(p.a, ESCROW_EV_PEER_DOWN, p.a_peer, NULL);
	pair_close(&p);
	verdict_fact("log texts", "%llu", (unsigned long long)logs);
}

static const struct conform_case cases[] = {
	{"ESC-LIFE-001", "core", "G1 CL1 CL3 V6 N5 U5", 0, 0, "an engine opens and closes",
	 opens_and_closes},
	{"ESC-LIFE-002", "core", "U4 N2 T4 T5", 0, 0, "forty engines leave nothing behind",
	 leaves_nothing},
	{"ESC-LIFE-003", "core", "T4 T5 K3 U3 F2", 0, 0, "the first engine leaves nothing behind",
	 first_leaves_nothing},
	{"ESC-LIFE-004", "core", "N4", 0, 0, "no call into the host after release",
	 after_release_no_host},
	{"ESC-LIFE-005", "core", "T1 EP1", 0, 0, "engines are independent",
	 engines_are_independent},
	{"ESC-LIFE-006", "core", "K1 EP1", 0, 0,
	 "what query reports is constant, but for the state", query_is_constant},
	{"ESC-LIFE-007", "core", "K4 ME1", 0, 0, "the limits are sane", limits_are_sane},
	{"ESC-LIFE-008", "core", "X2", 0, 0, "unknown extensions give NULL", unknown_extensions},
	{"ESC-LIFE-009", "core", "X1 ME1", 0, 0, "known extensions are constant tables",
	 known_extensions},
	{"ESC-LIFE-010", "core", "A8 CF2", 0, 0, "every option opens with its own default",
	 options_open},
	{"ESC-LIFE-011", "core", "CF1 E3", 0, NEED_MISUSE, "bad settings are refused by name",
	 bad_settings},
	{"ESC-LIFE-012", "data", "O1", 0, 0, "strings are copied during the call", copies_strings},
	{"ESC-LIFE-013", "data", "N1", 0, 0, "texts of the log are whole", logs_well},
};

CONFORM_AREA(area_life, cases);
