/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host engine from inside: what all files of libescrow that deal with one share.
 *
 * A generation is one open backend engine.  The host engine has one that serves (current), at most
 * one that a swap prepares (next), and older ones that could not be closed: they stay in the list
 * that is polled, for late receipts.  Each object keeps two backend handles, in columns that take
 * turns; what an older generation still holds is not in the current one (a quarantined region is
 * removed from it), so that two are enough.
 */
#ifndef HOST_H
#define HOST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <glib.h>

#include "plugin/escrow.h"
#include "plugin/inside.h"
#include "plugin/lend.h"
#include "plugin/module.h"
#include "plugin/services.h"
#include "plugin/table.h"

#define HOST_GENERATIONS 32u
#define HOST_DEFAULT_OPS 4096u
#define HOST_COLUMNS 2u

#define HOST_ENDED_NOT 0u
#define HOST_ENDED_CLOSED 1u
#define HOST_ENDED_QUARANTINED 2u

struct host_generation {
	struct escrow_module *module; /* a reference */
	const struct escrow_ops *ops;
	struct escrow_engine *engine;
	struct escrow_limits limits; /* as after open */
	uint64_t number;             /* from 1 up */
	uint32_t column;
	uint32_t slot; /* in the list that is polled */
	int32_t fd;    /* its event descriptor, or -1 */
	_Atomic uint32_t ended;
	_Atomic uint32_t drain_answered; /* since drain was last asked */
	_Atomic int32_t drain_status;
	_Atomic uint64_t drain_left;
	GHashTable *peers; /* backend handle -> host handle; under the host engine's lock */
};

#define HOST_PENDING 0u /* the call that makes it has not returned */
#define HOST_LIVE 1u
#define HOST_RELEASING 2u /* the host asked for its end */
#define HOST_WITHHELD 3u  /* a backend could not prove that it let go */

struct host_region {
	struct table_entry head;
	_Atomic uint32_t state;
	_Atomic uint32_t nborrows;
	_Atomic uint64_t backend[HOST_COLUMNS];
	_Atomic uint64_t length;
	_Atomic(struct lend_borrows *) borrows; /* made at the first borrow */
	uint32_t holds;                         /* generations that have it registered */
	uint64_t since_ns;                      /* withheld since; host clock */
	struct escrow_region args;              /* what registers it again */
};

struct host_peer {
	struct table_entry head;
	_Atomic uint32_t state;
	uint32_t flags; /* ESCROW_PEER_* */
	_Atomic uint64_t backend[HOST_COLUMNS];
	uint64_t user;
	_Atomic uint32_t next_up;   /* a swap: the new one is connected */
	_Atomic uint32_t next_sent; /* ... its invitation was asked for or carried */
	_Atomic uint32_t stopped;   /* ... it said that it stopped */
	char name[64];
};

struct host_grant {
	struct table_entry head;
	_Atomic uint32_t state;
	_Atomic uint32_t ready;
	_Atomic uint64_t backend[HOST_COLUMNS];
	struct escrow_grant_args args; /* with the host's handles */
	_Atomic uint32_t next_ready;
	_Atomic uint32_t next_sent;
};

struct host_remote {
	struct table_entry head;
	_Atomic uint32_t state;
	_Atomic uint32_t ready;
	_Atomic uint64_t backend[HOST_COLUMNS];
	uint64_t user;
	uint64_t peer; /* host handle; may be stale */
	_Atomic uint32_t next_ready;
	_Atomic uint32_t next_sent;
};

struct escrow_host_engine {
	_Atomic(struct host_generation *) dispatch; /* what transfer uses; NULL: the gate is shut */
	_Atomic(struct host_generation *) current;
	_Atomic(struct host_generation *) generations[HOST_GENERATIONS + 1];
	struct inside inside;
	struct lend lend;
	struct table regions, peers, grants, remotes;
	GMutex lock; /* control state: tables, lists; never held while a slot is called */
	struct services *services;
	struct escrow_swap *swap;         /* under lock */
	struct host_generation *next;     /* under lock: what a swap prepares */
	struct host_generation *previous; /* under lock: what a swap is closing */
	uint64_t numbers;                 /* generations made so far */
	uint64_t seq;                     /* [poll] */
	uint32_t poll_next;               /* [poll] the generation that is polled first */
	_Atomic uint32_t want_room;       /* somebody got E_AGAIN */
	uint32_t closing;                 /* under lock */
	uint64_t peers_stuck;             /* under lock: gone, and stay charged until CLOSED */
	_Atomic uint32_t ended;           /* HOST_ENDED_*: told to the host */
	bool abandoned; /* a generation that never served did not close: it may still call us */
	int epoll;
	int wake;
	uint32_t flags;
	char name[64];
};

/* ---- engine.c ---- */
/* Opens an engine of the module and enters it in the list; E_LIMIT: the list is full. */
escrow_status host_open_generation(struct escrow_host_engine *host, struct escrow_module *module,
				   const char *const *settings, struct _GKeyFile *key_file,
				   struct host_generation **out, struct escrow_error *error);
/* Takes it off the list, waits until nobody is inside, and releases what ended. */
void host_drop_generation(struct escrow_host_engine *host, struct host_generation *generation);
/* Makes the event descriptor readable. */
void host_wake(struct escrow_host_engine *host);

/* Enters the host engine and gives the current generation; leave with inside_leave. */
static inline struct host_generation *host_enter(struct escrow_host_engine *host,
						 struct inside_mark *mark)
{
	*mark = inside_enter(&host->inside);
	return atomic_load(&host->current);
}

/* [ctl] May the control state change now?  E_BUSY: a swap is under way; E_STATE: it is closing. */
escrow_status host_may_change(struct escrow_host_engine *host, struct escrow_error *error);

/* Finds an object that is LIVE or PENDING in the current generation; its backend handle or 0. */
uint64_t host_peer_handle(struct escrow_host_engine *host, const struct host_generation *generation,
			  uint64_t peer);

/* ---- engine.c ---- */
/* Of escrow_open: E_INVALID, E_UNSUPPORTED. */
escrow_status host_check_args(const struct escrow_host_args *args, struct escrow_error *error);

/* ---- config.c ---- */
struct host_config {
	GPtrArray *texts; /* what kv points to */
	struct escrow_kv *kv;
	uint32_t nkv;
};
escrow_status host_config_make(struct host_config *config, const char *id,
			       const char *const *settings, struct _GKeyFile *key_file,
			       struct escrow_error *error);
void host_config_free(struct host_config *config);

/* ---- quota.c ---- */
/* All of it, or nothing and E_QUOTA; .ops is not looked at. */
escrow_status quota_take(const struct escrow_quota *more, struct escrow_error *error);
/* What came without being asked for is counted all the same. */
void quota_count(const struct escrow_quota *more);
void quota_give(const struct escrow_quota *less);
/* [any] One op; false: there is no room for it. */
bool quota_op_take(void);
void quota_ops_give(uint64_t n);

#define QUOTA_REGION(length) (&(struct escrow_quota){.bytes = (length), .regions = 1})
#define QUOTA_GRANT(length) (&(struct escrow_quota){.grants = 1, .granted_bytes = (length)})
#define QUOTA_PEERS(n) (&(struct escrow_quota){.peers = (n)})

/* ---- withheld.c: the list of living host engines, and memory of dead ones ---- */
void withheld_engine_add(struct escrow_host_engine *host);
/* Takes the engine off the list; regions that are held become orphans.  Returns how many. */
uint32_t withheld_engine_remove(struct escrow_host_engine *host);
/* Bytes of this engine that are withheld; under its lock. */
uint64_t withheld_bytes(struct escrow_host_engine *host);

/* ---- region.c ---- */
/* The backend's words for a region; under no lock. */
escrow_status region_register_in(struct escrow_host_engine *host, struct host_region *region,
				 struct host_generation *generation, struct escrow_error *error);
/*
 * A generation let go of the region, under lock.  True: it was the last one, the entry is gone, and
 * *args says what to free and whom to tell.
 */
bool region_released(struct escrow_host_engine *host, struct host_region *region,
		     struct host_generation *generation, struct escrow_region *args);

/* What hangs on the places, before the table goes. */
void region_free_all(struct escrow_host_engine *host);

/* ---- peer.c ---- */
/* A grant or remote in one generation; IN_PROGRESS, OK, or why not. */
escrow_status grant_make_in(struct escrow_host_engine *host, struct host_grant *grant,
			    struct host_generation *generation, struct escrow_error *error);
escrow_status remote_import_in(struct escrow_host_engine *host, struct host_remote *remote,
			       struct host_generation *generation,
			       const struct escrow_remote_args *args, struct escrow_error *error);

/* ---- swap.c: what poll tells a swap, under lock ---- */
/* An event of the generation that is being prepared; it never reaches the host. */
void swap_event(struct escrow_host_engine *host, struct host_generation *generation,
		const struct escrow_event *event);
/* The current generation lost a peer or its device: the swap is to be taken back. */
void swap_disturbed(struct escrow_host_engine *host, escrow_status why);

/* ---- guard.c: the debug mode ---- */
void guard_lend(struct escrow_host_engine *host, const struct lend_op *op, bool lend);

#endif
