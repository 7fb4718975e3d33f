/* SPDX-License-Identifier: BSD-2-Clause */
/* Filling the caller's struct escrow_error, where a failure is decided. */
#ifndef ERROR_H
#define ERROR_H

#include <escrow/backend.h>

/*
 * Writes status and a formatted text to *error (NULL is allowed) and returns status, so that a
 * failure is one statement.  The text names the offending value and what is allowed.
 */
escrow_status error_set(struct escrow_error *error, escrow_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same with an errno (positive), whose text is appended. */
escrow_status error_errno(struct escrow_error *error, escrow_status status, int sys_errno,
			  const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Prepares *error for a call into a backend; terminates what it wrote afterwards. */
void error_clear(struct escrow_error *error);
void error_close(struct escrow_error *error);

#endif
