/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ends of a gate on the hosts of a profile, in place of two children of the controller. docs/hardware.md.
 */
#ifndef SIDES_H
#define SIDES_H

#include <stdbool.h>

#include <glib.h>
#include <json-glib/json-glib.h>

struct sides;

/*
 * Reads the profile, and holds the locks of its RNICs until sides_close() or the end of this process. NULL: it has
 * said why on standard error.
 */
struct sides *sides_open(const char *profile);
void sides_close(struct sides *s);

/*
 * Runs both ends of a case and waits for them. What they, and the program that started each, wrote goes into folder: ROLE.json,
 * and side-ROLE.json. limit: seconds.
 */
void sides_run(struct sides *s, const char *name, const char *folder, bool fresh, int limit,
	       GPtrArray *problems);

/* What the files side-ROLE.json in folder tell; appends what is wrong. fresh: also of the fresh ends. */
void sides_judge(const char *folder, bool fresh, GPtrArray *problems);

#endif
