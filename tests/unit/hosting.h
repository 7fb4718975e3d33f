/* SPDX-License-Identifier: BSD-2-Clause */
/* A host engine for a test, over the fake backend or another module. */
#ifndef HOSTING_H
#define HOSTING_H

#include "plugin/escrow.h"
#include "tests/unit/bad/fake.h"

/* The loaded module tests/NAME.so, or the backend NAME of the build. */
struct escrow_module *hosting_module(const char *name);

/* An engine of it.  flags: ESCROW_GUARD_*; settings may be NULL. */
struct escrow_host_engine *hosting_open(struct escrow_module *module, uint32_t flags,
					const char *const *settings);

/*
 * The clock of engines that are opened from now on; NULL: the system's.  hosting_work_clock goes on
 * by 10 us each time it is read, so that a time limit is one of work, on however slow a machine.
 */
extern uint64_t (*hosting_clock)(void *ctx);
uint64_t hosting_work_clock(void *ctx);

/* A region of this memory, with a free function that counts in *freed (may be NULL). */
uint64_t hosting_register(struct escrow_host_engine *host, void *addr, uint64_t length, int *freed);

/* The next event, which must be of this kind. */
struct escrow_event hosting_expect(struct escrow_host_engine *host, uint16_t kind);
/* There is none. */
void hosting_expect_none(struct escrow_host_engine *host);

/* Polls until an event of this kind comes; others are dropped. */
struct escrow_event hosting_wait(struct escrow_host_engine *host, uint16_t kind);

/* Close and release of an engine that ends CLOSED. */
void hosting_close(struct escrow_host_engine *host);

/* A remote of the fake backend. */
uint64_t hosting_remote(struct escrow_host_engine *host);

/* One op over one range; what transfer answers.  *op (or NULL): its handle. */
int32_t hosting_transfer(struct escrow_host_engine *host, uint32_t opcode, uint64_t remote,
			 struct escrow_sge range, uint64_t *op);

/* What to say to the fake backend of a host engine, and which engine. */
const struct fake_control *hosting_fake(struct escrow_host_engine *host,
					struct escrow_engine **engine);
/* Ends the oldest op with RETURNED or HELD. */
void hosting_finish(struct escrow_host_engine *host, uint8_t custody);

#endif
