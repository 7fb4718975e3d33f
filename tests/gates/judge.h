/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the judge share: one case is judged at a time. */
#ifndef JUDGE_H
#define JUDGE_H

#include "tests/gates/gate.h"

extern const struct gate_case *gate;

/* Adds to what is wrong. */
void problem(const char *format, ...) G_GNUC_PRINTF(1, 2);
/* A member; -1, "?" or false where it is missing. */
gint64 number(JsonObject *o, const char *name);
const char *word(JsonObject *o, const char *name);
bool yes(JsonObject *o, const char *name);
void want_number(JsonObject *o, const char *name, gint64 want);
void want_word(JsonObject *o, const char *name, const char *want);
void want_yes(JsonObject *o, const char *name);

/* judge-objects.c: the native objects of the faulted end, each by the proofs that its destroy needs. */
void judge_objects(JsonObject *faulted);
/* QPs that are not proved to be gone. */
guint judge_stuck_qps(void);
/* Nothing touched what failed, up to the end of the process. */
void judge_failed_later(JsonArray *objects_after);

#endif
