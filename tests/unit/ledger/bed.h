/* SPDX-License-Identifier: BSD-2-Clause */
/* bed.h - a ledger with something in it, for the tests of backends/ledger. */
#ifndef LEDGER_BED_H
#define LEDGER_BED_H

#include "backends/ledger/lane.h"
#include "tests/lib/testing.h"

#define BED_LANES 2
#define BED_SQ 16
#define BED_RQ 4
#define BED_REGION 65536
#define BED_KEY 5u /* of its regions */

/* The host: counts what is allocated, can fail the k-th allocation, has a clock of its own. */
struct bed_host {
	struct escrow_host host;
	uint64_t now;
	uint32_t allocs;  /* ever */
	uint32_t live;    /* not freed */
	uint32_t fail_at; /* the k-th alloc (from 1) returns NULL; 0 = none */
};
void bed_host_init(struct bed_host *h);

struct bed {
	struct bed_host h;
	struct ledger_config config;
	struct ledger *l;
	uint64_t context;
	uint64_t lane[BED_LANES];
	struct ledger_lane *at[BED_LANES];
	uint64_t account;         /* "bob" */
	uint64_t conn[BED_LANES]; /* one a lane, READY */
	uint64_t region;          /* LIVE */
	struct escrow_error error;
};

/*
 * Entries of the logs of the beds to come: 4096, or 0, which takes the data path's short way (the
 * control log and what is replayed from it are then gone too).
 */
extern uint32_t bed_log_entries;

/* The configuration that bed_open() starts from; change it, then open. */
void bed_config(struct bed *b);
void bed_open(struct bed *b);
/* bed_config() and bed_open() and all that struct bed names, with this strength. */
void bed_make(struct bed *b, ledger_strength strength);
/* Retires it all in order, by native steps that succeed, and releases: nothing may be left. */
void bed_end(struct bed *b);
/* Lets go of a ledger that has quarantined owners: the residue is fenced away. */
void bed_fence(struct bed *b);

uint64_t bed_account(struct bed *b, const char *name);
uint64_t bed_connect(struct bed *b, int lane, uint64_t account);
uint64_t bed_register(struct bed *b, uint64_t length);
uint64_t bed_window(struct bed *b, uint32_t rkey);

/* begin + end of a step, with this errno; returns what end (or a refused begin) returned. */
escrow_status bed_step(struct bed *b, uint64_t owner, uint32_t step, int32_t rc);
/* STOP, sync, deregister. */
escrow_status bed_deregister(struct bed *b, uint64_t region, int32_t rc);
/* STOP, ERR, destroy. */
escrow_status bed_disconnect(struct bed *b, uint64_t conn, int32_t rc);

/* A parent of n slices of 1024 bytes on lane 0; wr[] gets their ids. */
uint64_t bed_op(struct bed *b, uint32_t n, uint64_t *wr);
/* Settles wr; returns the number of done elements. */
int32_t bed_cqe(struct bed *b, int lane, uint64_t wr, enum ledger_outcome outcome,
		struct ledger_done *done, uint32_t max);

struct ledger_owner_info bed_info(struct bed *b, uint64_t owner);
uint64_t bed_used(struct bed *b, const char *name, uint32_t kind);
uint64_t bed_stuck(struct bed *b, const char *name, uint32_t kind);

/* ledger_check() and a replay of the control log (I4, I5), with the reason on failure. */
void bed_check(struct bed *b);

#endif
