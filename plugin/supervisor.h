/* SPDX-License-Identifier: BSD-2-Clause */
/* Telling `escrow supervise`, if this process runs under it, which engines its end will fence. */
#ifndef SUPERVISOR_H
#define SUPERVISOR_H

#include <escrow/backend.h>

/*
 * Says the incarnation of a new engine to the supervisor that ESCROW_SUPERVISOR names, and waits for
 * its word that it knows it: before that nobody else may hear of the engine.  OK also without one.
 * E_STATE: it does not answer, or refuses; nobody would ever tell that this engine is gone.
 */
escrow_status supervisor_tell(const uint8_t incarnation[16], struct escrow_error *error);

#endif
