/* SPDX-License-Identifier: BSD-2-Clause */
/* The talk at the entry: revision, descriptor, table. */
#ifndef NEGOTIATE_H
#define NEGOTIATE_H

#include "plugin/escrow.h"

/*
 * Calls the entry and checks what it gives.  On success *backend is the descriptor and *ops a whole
 * table: the backend's slots, and stubs for optional ones that it lacks.
 * E_REVISION, or E_INVALID with a text that names what is wrong.
 */
escrow_status negotiate(escrow_entry_fn entry, const struct escrow_backend **backend,
			struct escrow_ops *ops, struct escrow_error *error);

#endif
