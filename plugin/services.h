/* SPDX-License-Identifier: BSD-2-Clause */
/* What the host lends to backends: struct escrow_host, one per host engine and one for entries. */
#ifndef SERVICES_H
#define SERVICES_H

#include <stdbool.h>

#include <escrow/budget.h>

#include "plugin/escrow.h"

/* Where the texts of one engine go.  Constant while the engine lives. */
struct services {
	struct escrow_host host; /* what the backend sees; host.ctx is this struct */
	void (*log)(void *ctx, int32_t level, const char *component, const char *text);
	uint64_t (*now_ns)(void *ctx);
	void *ctx;
	int32_t log_level;
	/* Set when the host engine is released with owners in quarantine: they go on using the
	 * table, but the host's callbacks may be gone. */
	int32_t orphan;
};

/* Fills the table; log and now_ns may be NULL. */
void services_init(struct services *services, const struct escrow_host_args *args);

/* Texts and times come from us from now on. */
void services_orphan(struct services *services);

/* Does anybody want texts of this level? */
bool services_hear(const struct services *services, int32_t level);

/* A text of the library itself. */
void services_log(struct services *services, int32_t level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

uint64_t services_now(const struct services *services);

/* quota.c: what backends ask for in the name of the process. */
const struct escrow_budget *quota_budget(void);

/* For entries, before any engine: drops texts. */
const struct escrow_host *services_plain(void);

#endif
