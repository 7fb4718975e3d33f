/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-ENTRY: the one symbol, the negotiation, the descriptor and the table it leads to. */
#include <ctype.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>

#include "tests/conform/case.h"

#include "abi/revision1.h"

/* The entry as called with a hello of the case's making. */
static const struct escrow_backend *enter(struct conform *c, uint32_t min, uint32_t max,
					  struct escrow_error *error)
{
	memset(error, 0x5e, sizeof(*error));
	error->size = sizeof(*error);
	return c->subject.entry(subject_hello(min, max), error);
}

static void expect_refusal(struct conform *c, uint32_t min, uint32_t max)
{
	const struct escrow_backend *own = c->subject.entry(subject_hello(1, UINT32_MAX), NULL);
	const struct escrow_backend *b;
	struct escrow_error error;
	char number[16];

	expect(own, "the entry refuses revisions 1 to 2^32-1");
	b = enter(c, min, max, &error);
	expect(!b, "the entry accepts revisions %u to %u and says it has %u", min, max,
	       b ? b->revision : 0);
	expect(error.status == ESCROW_E_REVISION, "the entry refuses %u to %u with %s", min, max,
	       verdict_status(error.status));
	expect_as("E2", memchr(error.text, 0, sizeof(error.text)), "its text is not terminated");
	snprintf(number, sizeof(number), "%u", own->revision);
	expect(strstr(error.text, number), "the refusal does not state the own range: \"%s\"",
	       error.text);
}

static void chooses_in_range(struct conform *c)
{
	struct escrow_error error;
	const struct escrow_backend *b;
	uint32_t max;

	subject_load(&c->subject, c->path);
	for (max = 1; max < 5; max++) {
		b = enter(c, 1, max, &error);
		expect(b, "revisions 1 to %u are refused: %.200s", max, error.text);
		expect(b->revision >= 1 && b->revision <= max, "chose revision %u of 1 to %u",
		       b->revision, max);
	}
	b = enter(c, 1, UINT32_MAX, &error);
	expect(b && b->revision >= 1, "revisions 1 to 2^32-1 are refused");
	expect(b->revision < 1000, "chose revision %u of 1 to 2^32-1", b->revision);
}

static void refuses_above(struct conform *c)
{
	subject_load(&c->subject, c->path);
	expect_refusal(c, 1000000, 2000000);
}

static void refuses_below(struct conform *c)
{
	subject_load(&c->subject, c->path);
	expect_refusal(c, 0, 0);
}

static void refuses_inverted(struct conform *c)
{
	struct escrow_error error;

	subject_load(&c->subject, c->path);
	expect(!enter(c, 2, 1, &error), "the entry accepts revisions 2 to 1");
	expect(error.status == ESCROW_E_REVISION || error.status == ESCROW_E_INVALID,
	       "revisions 2 to 1 are refused with %s", verdict_status(error.status));
}

static void judges_hello(struct conform *c)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_hello *h;

	subject_load(&c->subject, c->path);
	expect(!c->subject.entry(NULL, &error), "the entry accepts a NULL hello");
	expect(error.status == ESCROW_E_INVALID, "a NULL hello is refused with %s",
	       verdict_status(error.status));
	h = subject_hello(1, 1);
	h->reserved0 = 1;
	expect_as("L4", !c->subject.entry(h, &error), "reserved0 of the hello is not looked at");
	expect_as("L4", error.status == ESCROW_E_INVALID, "reserved0 is refused with %s",
		  verdict_status(error.status));
	h = guard_new(8);
	h->size = 8;
	expect_as("L6", !c->subject.entry(h, &error), "a hello of 8 bytes is accepted");
	expect_as("L6", error.status == ESCROW_E_INVALID, "a hello of 8 bytes is refused with %s",
		  verdict_status(error.status));
	expect(!c->subject.entry(NULL, NULL), "the entry accepts NULL and NULL");
}

static void reads_hello_tail(struct conform *c)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct {
		struct escrow_hello h;
		uint64_t tail[4];
	} * big;
	struct escrow_hello *h = subject_hello(1, 1);

	subject_load(&c->subject, c->path);
	big = guard_new(sizeof(*big));
	big->h = *h;
	big->h.size = sizeof(*big);
	expect(c->subject.entry(&big->h, &error), "a longer hello with a zero tail is refused: %s",
	       error.text);
	big->tail[3] = 1;
	expect(!c->subject.entry(&big->h, &error), "a non-zero tail of the hello is ignored");
	expect(error.status == ESCROW_E_UNSUPPORTED, "a non-zero tail is refused with %s",
	       verdict_status(error.status));
}

static void is_pure(struct conform *c)
{
	struct ambient before, after;
	struct escrow_error error;
	struct mallinfo2 m1, m2;
	struct escrow_hello *h;
	unsigned int i;

	subject_load(&c->subject, c->path);
	h = subject_hello(1, ESCROW_REVISION);
	error.size = sizeof(error);
	ambient_take(&before);
	ambient_watch_getenv(true);
	m1 = mallinfo2();
	for (i = 0; i < 100; i++)
		expect(c->subject.entry(h, &error), "call %u of the entry is refused", i);
	m2 = mallinfo2();
	ambient_watch_getenv(false);
	ambient_take(&after);
	ambient_compare(&before, &after, "after 100 calls of the entry");
	ambient_judge_calls(&c->subject);
	expect(m1.uordblks == m2.uordblks && m1.hblkhd == m2.hblkhd,
	       "100 calls of the entry allocated %ld bytes",
	       (long)(m2.uordblks + m2.hblkhd) - (long)(m1.uordblks + m1.hblkhd));
}

static void *enter_often(void *arg)
{
	struct conform *c = arg;
	struct escrow_hello h = {.size = sizeof(h), .rev_min = 1, .rev_max = 1};
	const struct escrow_backend *first = c->subject.entry(&h, NULL);
	int i;

	for (i = 0; i < 200; i++)
		if (c->subject.entry(&h, NULL) != first)
			return NULL;
	return (void *)(uintptr_t)first;
}

static void same_for_all(struct conform *c)
{
	pthread_t t[4];
	void *got[4];
	int i;

	subject_load(&c->subject, c->path);
	for (i = 0; i < 4; i++)
		if (pthread_create(&t[i], NULL, enter_often, c))
			verdict_broken("pthread_create failed");
	for (i = 0; i < 4; i++)
		pthread_join(t[i], &got[i]);
	for (i = 0; i < 4; i++)
		expect(got[i] && got[i] == got[0], "calls of the entry from several threads give "
						   "different descriptors");
}

static void loads_quietly(struct conform *c)
{
	struct ambient after;

	subject_load(&c->subject, c->path);
	ambient_take(&after);
	ambient_compare(&c->before, &after, "after dlopen");
	ambient_judge_calls(&c->subject);
}

static bool is_id(const char *id)
{
	size_t i;

	if (!islower((unsigned char)id[0]) || strlen(id) > 32)
		return false;
	for (i = 1; id[i]; i++)
		if (!islower((unsigned char)id[i]) && !isdigit((unsigned char)id[i]) &&
		    id[i] != '-')
			return false;
	return true;
}

static void describes_itself(struct conform *c)
{
	const struct escrow_backend *b = c->subject.backend;

	expect(b->size >= ABI_R1(escrow_backend), "the descriptor has %u bytes, revision 1 has %zu",
	       b->size, ABI_R1(escrow_backend));
	expect(b->size <= 4096, "the descriptor says it has %u bytes", b->size);
	expect(b->id && is_id(b->id), "id \"%s\" is not [a-z][a-z0-9-]{0,31}", b->id ? b->id : "");
	expect(b->version && *b->version, "version is empty");
	expect(b->residency <= ESCROW_RESIDENCY_MAY_UNMAP, "residency %llu",
	       (unsigned long long)b->residency);
	expect(b->memory_kinds & (UINT64_C(1) << ESCROW_MEMORY_HOST),
	       "memory_kinds %#llx is without host memory", (unsigned long long)b->memory_kinds);
	expect(subject_owns(&c->subject, b) && subject_owns(&c->subject, b->ops),
	       "the descriptor or its table lies outside the object");
}

static void lists_options(struct conform *c)
{
	const struct escrow_backend *b = c->subject.backend;
	uint32_t i, j;

	expect(!b->noptions || b->options, "%u options at NULL", b->noptions);
	expect(!b->noptions ||
		       (b->options_stride >= ABI_R1(escrow_option) && b->options_stride % 8 == 0),
	       "options_stride %u", b->options_stride);
	for (i = 0; i < b->noptions; i++) {
		const struct escrow_option *o = subject_option(&c->subject, i);

		expect(o->key && *o->key && o->value, "option %u has no key or default", i);
		expect(o->help && *o->help && !strchr(o->help, '\n'),
		       "option %s: help is not one line", o->key);
		for (j = 0; j < i; j++)
			expect(strcmp(o->key, subject_option(&c->subject, j)->key),
			       "option %s is listed twice", o->key);
	}
}

/* The whole table: sizes, and each slot that must be there. */
static void fills_table(struct conform *c)
{
	const struct escrow_ops *ops = c->subject.backend->ops;
	const struct escrow_ops *o = &c->subject.ops;

	expect_as("L1", ops->size >= sizeof(struct escrow_ops) || !(ops->size % 8),
		  "the table has %u bytes", ops->size);
	expect_as("L4", !ops->reserved0, "reserved0 of the table is %u", ops->reserved0);
#define MANDATORY(slot) expect(o->slot, "the mandatory slot " #slot " is absent")
	MANDATORY(release);
	MANDATORY(open);
	MANDATORY(query);
	MANDATORY(register_memory);
	MANDATORY(deregister_memory);
	MANDATORY(invite);
	MANDATORY(connect);
	MANDATORY(disconnect);
	MANDATORY(peer_info);
	MANDATORY(grant);
	MANDATORY(export_grant);
	MANDATORY(revoke);
	MANDATORY(import_grant);
	MANDATORY(forget_grant);
	MANDATORY(transfer);
	MANDATORY(cancel);
	MANDATORY(poll);
	MANDATORY(quiesce);
	MANDATORY(resume);
	MANDATORY(drain);
	MANDATORY(close);
#undef MANDATORY
}

/* Capability bits and optional slots agree: at best in the descriptor, really after open. */
static void bits_match_slots(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "bits");
	const struct escrow_ops *o = en->o;
	uint64_t caps = en->limits.caps;

	expect_as("K1",
		  !(caps & ~c->subject.backend->caps & ~(ESCROW_CAP_WEAK | ESCROW_CAP_PLAIN_KEYS)),
		  "query reports caps %#llx, the descriptor at best %#llx",
		  (unsigned long long)caps, (unsigned long long)c->subject.backend->caps);
	expect_as("K1", !(en->limits.caps_emulated & ~caps), "caps_emulated is no subset of caps");
	expect_as("K1", caps < ESCROW_CAP_PLAIN_KEYS << 1, "unknown capability bits: %#llx",
		  (unsigned long long)caps);
	if (caps & ESCROW_CAP_EVENT_FD)
		expect(o->event_fd && o->arm, "EVENT_FD is advertised, the slots are absent");
	if (caps & ESCROW_CAP_LEDGER)
		expect(o->charges && o->records, "LEDGER is advertised, the slots are absent");
	if (!(caps & ESCROW_CAP_EVENT_FD) && o->event_fd)
		expect_status(o->event_fd(en->e), ESCROW_E_UNSUPPORTED);
	if (!(caps & ESCROW_CAP_EVENT_FD) && o->arm)
		expect_status(o->arm(en->e, 0), ESCROW_E_UNSUPPORTED);
	if (!(caps & ESCROW_CAP_LEDGER) && o->charges)
		expect_status(o->charges(en->e, NULL, 0, sizeof(struct escrow_charge)),
			      ESCROW_E_UNSUPPORTED);
	engine_close(en);
}

static const struct conform_case cases[] = {
	{"ESC-ENTRY-001", "core", "A3 A4", 0, NEED_BARE,
	 "the entry chooses a revision in the range", chooses_in_range},
	{"ESC-ENTRY-002", "core", "A3", 0, NEED_BARE,
	 "a range above its own is refused, and its own is stated", refuses_above},
	{"ESC-ENTRY-003", "core", "A3", 0, NEED_BARE,
	 "a range below its own is refused, and its own is stated", refuses_below},
	{"ESC-ENTRY-004", "core", "A3", 0, NEED_BARE, "an inverted range is refused",
	 refuses_inverted},
	{"ESC-ENTRY-005", "core", "A3 L4 L6", 0, NEED_BARE, "a bad hello is refused", judges_hello},
	{"ESC-ENTRY-006", "core", "L5", 0, NEED_BARE, "a longer hello is read as the rules say",
	 reads_hello_tail},
	{"ESC-ENTRY-007", "core", "A1", 0, NEED_BARE,
	 "the entry allocates nothing, starts nothing, reads no environment", is_pure},
	{"ESC-ENTRY-008", "core", "A1", 0, NEED_BARE,
	 "several threads get the same descriptor from the entry", same_for_all},
	{"ESC-ENTRY-009", "core", "A2 S0 A6", 0, NEED_BARE, "loading the object changes nothing",
	 loads_quietly},
	{"ESC-ENTRY-010", "core", "A7 L1", 0, 0, "the descriptor is complete", describes_itself},
	{"ESC-ENTRY-011", "core", "A8", 0, 0, "every option has key, default and help",
	 lists_options},
	{"ESC-ENTRY-012", "core", "A5 L1", 0, 0, "every mandatory slot is there", fills_table},
	{"ESC-ENTRY-013", "core", "K2 K1", 0, 0, "optional slots agree with the capability bits",
	 bits_match_slots},
};

CONFORM_AREA(area_entry, cases);
