/* SPDX-License-Identifier: BSD-2-Clause */
/* What comes from the host in a struct that starts with its size (see STRUCTS in escrow/backend.h). */
#ifndef ARGS_H
#define ARGS_H

#include <stddef.h>

#include <escrow/backend.h>

/*
 * May `known` bytes of *args be read, and are they all that was said?  E_INVALID: there is none, or it is shorter;
 * E_UNSUPPORTED: it is longer, and not zero there.  `what` was called, for the text.
 */
escrow_status args_check(const void *args, size_t known, const char *what,
			 struct escrow_error *error);

#endif
