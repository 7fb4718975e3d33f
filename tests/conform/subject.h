/* SPDX-License-Identifier: BSD-2-Clause */
/* subject.h - the object under test: loaded and negotiated once in a case's process. */
#ifndef CONFORM_SUBJECT_H
#define CONFORM_SUBJECT_H

#include <stdbool.h>

#include <escrow/backend.h>

struct subject {
	const char *path;
	void *handle;
	escrow_entry_fn entry;
	const struct escrow_backend *backend;
	struct escrow_ops ops; /* a copy; what the table does not reach is NULL */
};

/* dlopen and the entry symbol; the case fails if either cannot be had. */
void subject_load(struct subject *s, const char *path);

/* The entry, as a well-behaved host calls it, and the copy of the table. */
void subject_negotiate(struct subject *s);

bool subject_has_option(const struct subject *s, const char *key);
const struct escrow_option *subject_option(const struct subject *s, uint32_t i);

/* A hello for [rev_min, rev_max] in guarded memory. */
struct escrow_hello *subject_hello(uint32_t rev_min, uint32_t rev_max);

/* Is `address` code or data of the object? */
bool subject_owns(const struct subject *s, const void *address);

#endif
