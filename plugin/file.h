/* SPDX-License-Identifier: BSD-2-Clause */
/* A backend's file: its bytes, and a copy of them that is named by its content. */
#ifndef FILE_H
#define FILE_H

#include <stdint.h>

#include "plugin/escrow.h"

#define FILE_MAX_BYTES (UINT64_C(256) << 20)
#define FILE_HASH_SIZE 65u /* SHA-256 in hex, with the terminator */

/* A regular file of at most FILE_MAX_BYTES into *bytes (g_free) and *size.  E_INVALID with a text. */
escrow_status file_read(const char *path, uint8_t **bytes, uint64_t *size,
			struct escrow_error *error);

/* SHA-256 of bytes in hex. */
void file_hash(const uint8_t *bytes, uint64_t size, char hash[FILE_HASH_SIZE]);

/*
 * The path (g_free) of a file with exactly these bytes, DIR/HASH.so.  dir NULL: the user's own
 * folder for that.  The folder must belong to this user with mode 0700, and is made so if it is not
 * there.  What lies there already under that name is read and hashed before it is trusted.
 */
escrow_status file_copy(const char *dir, const uint8_t *bytes, uint64_t size, const char *hash,
			char **path, struct escrow_error *error);

#endif
