/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the test modules are, for the tests of libescrow; and temporary files. */
#ifndef MODULES_H
#define MODULES_H

#include <stdint.h>

/* The path of tests/NAME.so in the build; valid until the next call. */
const char *modules_path(const char *name);

/* The bytes of a file (free) and its size. */
uint8_t *modules_read(const char *path, uint64_t *size);

/* A new file with these bytes; its path (valid until the next call).  modules_drop removes it. */
const char *modules_write(const uint8_t *bytes, uint64_t size);
void modules_drop(void);

/* How many objects the loader lists whose path contains text. */
int modules_mapped(const char *text);

#endif
