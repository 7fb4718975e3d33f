/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ledger of a process as one JSON object: what `escrow ledger --json` prints, what a running
 * demo serves to other processes, and what the text is made from.
 */
#ifndef LEDGER_VIEW_H
#define LEDGER_VIEW_H

#include <stdio.h>

#include <json-glib/json-glib.h>

/* Of this process: {"engines": [...], "withheld_bytes": n, "withheld": [...]}.  The caller frees. */
JsonNode *ledger_view(void);

/* ledger-text.c: prints such an object for people; what is missing in it is left out. */
void ledger_text(FILE *out, JsonNode *ledger);

/*
 * ledger-serve.c: from now on `escrow ledger` of the same user can read this process's ledger, over
 * a Unix socket named by the process id; stop removes it.  Where it cannot be served (a read-only folder) a g_info says so, and all else goes on.
 */
void ledger_serve_start(void);
void ledger_serve_stop(void);

/* The folder of these sockets; the caller frees. */
char *ledger_serve_folder(void);

#endif
