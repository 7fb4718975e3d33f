/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/conform/book.h"

#include <string.h>

#include "tests/conform/trail.h"
#include "tests/conform/verdict.h"

#define CHARGES 256u

void book_read(const struct escrow_ops *o, struct escrow_engine *e, struct book *b)
{
	uint64_t cursor = 0;
	int32_t n;

	memset(b, 0, sizeof(*b));
	do {
		uint32_t room = BOOK_RECORDS - b->count;

		if (room > 7)
			room = 7; /* so that the cursor has something to do */
		n = o->records(e, &cursor, &b->record[b->count], room, sizeof(b->record[0]));
		expect_as("RC1", n >= 0 && n <= (int32_t)room, "records for %u elements gives %d",
			  room, n);
		b->count += (uint32_t)n;
	} while (n && b->count < BOOK_RECORDS);
	for (n = 0; n < (int32_t)b->count; n++) {
		const struct escrow_record *r = &b->record[n];

		trail("record %#llx of %#llx kind %u state %u stage %u errno %d: %.40s",
		      (unsigned long long)r->owner, (unsigned long long)r->parent, r->kind,
		      r->state, r->stage, r->sys_errno, r->text);
	}
}

void book_judge(const struct book *b)
{
	uint32_t i, j;

	for (i = 0; i < b->count; i++) {
		const struct escrow_record *r = &b->record[i];

		expect_as("RC1", r->kind >= ESCROW_OWNER_ENGINE && r->kind <= ESCROW_OWNER_CONTROL,
			  "a record of kind %u", r->kind);
		expect_as("RC1",
			  r->state >= ESCROW_OWNER_LIVE && r->state <= ESCROW_OWNER_QUARANTINED,
			  "a record with state %u", r->state);
		expect_as("RC1", memchr(r->text, 0, sizeof(r->text)) && !r->reserved0,
			  "a record's text is not terminated, or reserved0 is set");
		if (!r->parent)
			continue;
		for (j = 0; j < i; j++)
			if (b->record[j].owner == r->parent && b->record[j].engine == r->engine)
				break;
		expect_as("RC1", j < i,
			  "record %u (kind %u) has a parent %#llx that is not before it", i,
			  r->kind, (unsigned long long)r->parent);
	}
}

const struct escrow_record *book_find(const struct book *b, uint32_t kind, uint64_t owner)
{
	uint32_t i;

	for (i = 0; i < b->count; i++)
		if (b->record[i].kind == kind && (!owner || b->record[i].owner == owner))
			return &b->record[i];
	return NULL;
}

const struct escrow_record *book_stuck(const struct book *b, uint32_t kind, uint32_t stage)
{
	uint32_t i;

	for (i = 0; i < b->count; i++)
		if (b->record[i].state == ESCROW_OWNER_QUARANTINED && b->record[i].kind == kind &&
		    (!stage || b->record[i].stage == stage))
			return &b->record[i];
	return NULL;
}

uint32_t book_count(const struct book *b, uint32_t state)
{
	uint32_t i, n = 0;

	for (i = 0; i < b->count; i++)
		n += b->record[i].state == state;
	return n;
}

void book_charge(const struct escrow_ops *o, struct escrow_engine *e, uint32_t kind,
		 const char *peer, struct escrow_charge *out)
{
	static struct escrow_charge list[CHARGES];
	int32_t n = o->charges(e, list, CHARGES, sizeof(list[0])), i;

	expect_as("CH1", n >= 0, "charges gives %s", verdict_status(n));
	memset(out, 0, sizeof(*out));
	for (i = 0; i < n && i < (int32_t)CHARGES; i++) {
		expect_as("CH1", memchr(list[i].peer_name, 0, sizeof(list[i].peer_name)),
			  "the peer name of a charge is not terminated");
		expect_as("CH4", list[i].stuck <= list[i].used,
			  "charge %u: stuck %llu of used %llu", list[i].kind,
			  (unsigned long long)list[i].stuck, (unsigned long long)list[i].used);
		if (list[i].kind == kind && !strcmp(list[i].peer_name, peer))
			*out = list[i];
	}
}
