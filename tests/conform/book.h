/* SPDX-License-Identifier: BSD-2-Clause */
/* book.h - the ledger of an engine as its host sees it: charges and records. */
#ifndef CONFORM_BOOK_H
#define CONFORM_BOOK_H

#include <stdbool.h>
#include <stdint.h>

#include <escrow/backend.h>

#define BOOK_RECORDS 512u

struct book {
	struct escrow_record record[BOOK_RECORDS];
	uint32_t count;
};

/* All records; e NULL: of released engines. */
void book_read(const struct escrow_ops *o, struct escrow_engine *e, struct book *b);

/* What holds for every list of records (RC1). */
void book_judge(const struct book *b);

/* The record of that kind with that handle (0 = any); NULL if there is none. */
const struct escrow_record *book_find(const struct book *b, uint32_t kind, uint64_t owner);
uint32_t book_count(const struct book *b, uint32_t state);

/* The first QUARANTINED record of that kind whose last step is `stage` (0 = any). */
const struct escrow_record *book_stuck(const struct book *b, uint32_t kind, uint32_t stage);

/* The charge of a kind in the account of `peer` ("" = the engine's); zeros if it is not listed. */
void book_charge(const struct escrow_ops *o, struct escrow_engine *e, uint32_t kind,
		 const char *peer, struct escrow_charge *out);

#endif
