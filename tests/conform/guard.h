/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * guard.h - memory that tells of who touches it wrongly.
 *
 * Blocks end at a page without access, so an overrun is a crash at once; after a call they are
 * poisoned, so a pointer that the backend kept is a crash later.
 */
#ifndef CONFORM_GUARD_H
#define CONFORM_GUARD_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed; its end is the end of the page.  Sizes that are no multiple of 8 are for bytes only. */
void *guard_new(size_t bytes);
void *guard_copy(const void *from, size_t bytes);
char *guard_string(const char *text); /* NULL stays NULL */

/* Zeroed memory of the suite's own, reachable until the process ends (for leak checkers). */
void *guard_kept(size_t bytes);

/* Blocks made after the mark are given up: touching them is a crash from now on. */
size_t guard_mark(void);
void guard_poison(size_t mark);
void guard_poison_one(const void *block); /* only this one; its place stays taken */

/* Host memory for regions: `bytes` between two canaries of a page each. */
struct buffer {
	uint8_t *at;
	size_t bytes;
	uint8_t *map;
	size_t mapped;
};

#define BUFFER_CANARY 0xC7

void buffer_new(struct buffer *b, size_t bytes); /* filled with BUFFER_CANARY */
void buffer_fill(struct buffer *b, size_t from, size_t bytes, uint32_t seed);

/* Did bytes [from, from+bytes) come from buffer_fill(.., seed)? */
int buffer_is(const struct buffer *b, size_t from, size_t bytes, uint32_t seed);

/* Is everything but [from, from+bytes) still canary, the pages around it too? */
int buffer_intact(const struct buffer *b, size_t from, size_t bytes);

#endif
