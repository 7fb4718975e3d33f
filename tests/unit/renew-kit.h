/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * renew-kit.h - two engines over the mock's device whose connections are soon renewed: a window has two binds, and
 * of the pool hardly anything may be held out.  Time goes on with each turn.
 */
#ifndef RENEW_KIT_H
#define RENEW_KIT_H

#include "backends/engine/engine.h"
#include "tests/unit/engine-kit.h"

#define RENEW_TURNS 20000 /* who waits in vain ends after so many */
#define PIECE 4096u       /* a slice */

extern struct kit a, b; /* b connected */
/* Settings of only one of them, a and b, until the next end. */
extern const char *renew_own[2];
extern bool renew_stuck[2]; /* it ends with something in quarantine */
/* What both engines have taken of the process, by kind; it has place for so many connections. */
extern int64_t renew_taken[];
extern int64_t renew_most;

void renew_start(uint32_t rails);
void renew_end(void);
void renew_turn(void);
/* What another engine of the process is told that asks for one connection; it has none of it afterwards. */
escrow_status renew_another(void);
struct kit *renew_other(const struct kit *k);
struct conn *renew_conn_of(const struct kit *k, uint32_t i);
/* As post of the mock; no key is bound twice on one queue pair. */
int renew_watch_post(struct native_conn *conn, struct native_wr *wr, uint32_t n, uint32_t *posted);

/* Of all rails. */
uint64_t renew_sum(const _Atomic uint64_t *counter);
uint64_t renew_renewed(const struct kit *k);
void renew_nothing_was_lost(void);

/* Waits for an event, and fails the test if none comes. */
struct escrow_event renew_wait_turning(struct kit *k, uint16_t kind);
/* A grant of k's to the other end, bound or not; its import; both. */
uint64_t renew_grant_of(struct kit *k, uint64_t offset, uint64_t length);
uint64_t renew_import_of(struct kit *k, uint64_t grant);
uint64_t renew_lend(struct kit *k, uint64_t offset, uint64_t length, uint64_t *remote);
void renew_take_back(struct kit *k, uint64_t grant);
/* What transfer says; one that is refused by AGAIN only, has its ROOM then, and does not fail. */
int32_t renew_submit(struct kit *k, uint64_t remote, uint32_t opcode, uint64_t at, uint64_t length);
void renew_move(struct kit *k, uint64_t remote, uint32_t opcode, uint64_t at, uint64_t length);

/* As if all indices of that connection were used up. */
void renew_wear(struct kit *k, uint32_t i);
void renew_until(const uint8_t *what, uint8_t value);
void renew_until_renewed(struct kit *k, uint64_t times);

#endif
