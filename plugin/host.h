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
#include "plugin/here.h"
#include "plugin/inside.h"
#include "plugin/lend.h"
#include "plugin/module.h"
#include "plugin/services.h"
#include "plugin/table.h"

#define HOST_GENERATIONS 32u
#define HOST_DEFAULT_OPS 4096u
#define HOST_COLUMNS 2u

/* Of steps of the data path: once in each of few places, so that what they work on stays in registers. */
#define EXPANDED static inline __attribute__((always_inline))

#define QUOTA_NAME 64u    /* bytes, with the terminator */
#define QUOTA_ANY "(any)" /* of all who came by an invitation for anybody */

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
	bool given_up; /* under the host engine's lock: closed long ago, and its end is not waited for */
	/* Of drains of the whole engine, not of a peer; the first two under the host engine's lock. */
	uint32_t drains;                 /* the host's that are not answered */
	bool swap_drains;                /* a swap's is not: it was asked when no other was left */
	_Atomic uint32_t drain_answered; /* the swap's, since it was last asked */
	_Atomic int32_t drain_status;
	_Atomic uint64_t drain_left;
	/* Under the host engine's lock: */
	GHashTable *peers;      /* backend handle -> host handle */
	GPtrArray *peers_stuck; /* accounts of those that are gone and stay charged until CLOSED */
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
	_Atomic uint64_t numbers[HOST_COLUMNS]; /* of the generations whose handles these are */
	_Atomic uint64_t length;
	_Atomic(struct lend_borrows *) borrows; /* made at the first borrow */
	uint32_t holds;                         /* generations that have it registered */
	uint32_t stuck;            /* columns whose generation cannot prove that it let go */
	uint32_t told;             /* ... of which the host has heard */
	_Atomic uint32_t asked;    /* the generation that serves was asked to let go */
	uint64_t since_ns;         /* withheld since; host clock */
	struct escrow_region args; /* what registers it again */
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
	char account[QUOTA_NAME]; /* of whom it is charged to */
};

struct host_grant {
	struct table_entry head;
	_Atomic uint32_t state;
	_Atomic uint32_t ready;
	_Atomic uint64_t backend[HOST_COLUMNS];
	struct escrow_grant_args args; /* with the host's handles */
	_Atomic uint32_t next_ready;
	_Atomic uint32_t next_sent;
	char account[QUOTA_NAME]; /* "": an offer */
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
	volatile uint32_t *here;                    /* 0 behind it: a child of fork */
	_Atomic(struct host_generation *) dispatch; /* what transfer uses; NULL: the gate is shut */
	_Atomic(struct host_generation *) current;
	_Atomic(struct host_generation *) generations[HOST_GENERATIONS + 1];
	_Atomic uint32_t slots; /* under lock to write: so many of those were ever used */
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
	_Atomic uint32_t want_room;       /* somebody got E_AGAIN of ours: we tell ROOM */
	_Atomic uint32_t turned_away;     /* ... of the backend, which tells it */
	_Atomic uint32_t polled_twice;    /* by two callers at once, which has been logged */
	_Atomic uint32_t closing;         /* written under lock */
	_Atomic uint32_t invited_any;     /* who comes by our invitation may be anybody */
	_Atomic uint32_t ended;           /* HOST_ENDED_*: told to the host */
	_Atomic uint32_t end_due; /* QUARANTINED is to be told by us, and not by a backend */
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
/* It told its end: HOST_ENDED_*. */
void host_ended(struct escrow_host_engine *host, struct host_generation *generation, uint32_t how);
/* No peer, grant or remote has a handle in it any more; regions are held until they are released. */
void host_clear_column(struct escrow_host_engine *host, uint32_t column);
/* Makes the event descriptor readable. */
void host_wake(struct escrow_host_engine *host);

/*
 * What every function of escrow.h that takes an engine asks first, before any lock: its holder may not be there in a
 * child of fork.  E_INVALID: there is no engine; E_STATE: it is another process's.
 */
static inline escrow_status host_check(const struct escrow_host_engine *host)
{
	if (!host)
		return ESCROW_E_INVALID;
	return *host->here ? ESCROW_OK : ESCROW_E_STATE;
}

/* The same with a text, for `what` was called. */
escrow_status host_check_said(const struct escrow_host_engine *host, const char *what,
			      struct escrow_error *error);

/* Of a handle that is not there: it was none, or it went with the engine. */
static inline escrow_status host_no_handle(const struct escrow_host_engine *host)
{
	return atomic_load(&host->ended) == HOST_ENDED_NOT ? ESCROW_E_INVALID : ESCROW_E_STATE;
}

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

/* ---- transfer-tell.c ---- */
/* For who listens to debug: what is wrong with the first op of a call that took none; or with the call. */
void transfer_tell(struct escrow_host_engine *host, const struct escrow_op *op,
		   escrow_status status);
void transfer_tell_args(struct escrow_host_engine *host, const struct escrow_op *op, uint32_t n,
			uint32_t stride, const uint64_t *ops);

/* ---- quota.c ---- */
/* All of it, or nothing and E_QUOTA; .ops is not looked at.  name: whose it is, "" nobody's. */
escrow_status quota_take(const char *name, const struct escrow_quota *more,
			 struct escrow_error *error);
/* What came without being asked for is counted all the same. */
void quota_count(const char *name, const struct escrow_quota *more);
void quota_give(const char *name, const struct escrow_quota *less);
/* Ops come and go without a lock. */
extern _Atomic uint64_t quota_ops_used, quota_ops_limit;

/* [any] */
static inline void quota_ops_give(uint64_t n)
{
	atomic_fetch_sub_explicit(&quota_ops_used, n, memory_order_relaxed);
}

/* [any] n ops: for how many there is room. */
static inline uint32_t quota_ops_take(uint32_t n)
{
	uint64_t limit = atomic_load_explicit(&quota_ops_limit, memory_order_relaxed), used;

	if (G_LIKELY(limit == UINT64_MAX)) {
		atomic_fetch_add_explicit(&quota_ops_used, n, memory_order_relaxed);
		return n;
	}
	/* Never more than there is, not even for a moment: others would be told that nothing is left. */
	used = atomic_load_explicit(&quota_ops_used, memory_order_relaxed);
	do {
		if (used >= limit)
			return 0;
		n = (uint32_t)MIN(n, limit - used);
	} while (!atomic_compare_exchange_weak_explicit(
		&quota_ops_used, &used, used + n, memory_order_relaxed, memory_order_relaxed));
	return n;
}

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
/* That generation's handle of it, or 0: in its column an older one may still have another. */
uint64_t region_handle_in(const struct host_region *region,
			  const struct host_generation *generation);
/*
 * A generation let go of the region, under lock.  True: it was the last one, the entry is gone, and
 * *args says what to free and whom to tell.
 */
bool region_released(struct escrow_host_engine *host, struct host_region *region,
		     struct host_generation *generation, struct escrow_region *args);

/*
 * Under lock.  That generation cannot prove that it let go: nobody is to use the region until it can, and if another has
 * it still, as before from then on.
 */
void region_stuck(struct escrow_host_engine *host, struct host_region *region,
		  const struct host_generation *generation);
/* The generation that serves refused to let go of it, though `asked` says so; not under lock. */
void region_not_asked(struct escrow_host_engine *host, struct host_region *region);
/* The same as region_stuck in an event, in the host's words; false: it has heard that.  Under lock. */
bool region_tell_stuck(struct escrow_host_engine *host, struct host_region *region,
		       const struct host_generation *generation, struct escrow_event *event);

/* Under lock, at the end of a swap: what nothing withholds any more is as before. */
void region_settle_all(struct escrow_host_engine *host);

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
/*
 * An event of the generation that is being prepared.  False: the host is not to see it, as of all but of a region that it
 * cannot use now.
 */
bool swap_event(struct escrow_host_engine *host, struct host_generation *generation,
		struct escrow_event *event);
/* The current generation lost a peer or its device: the swap is to be taken back. */
void swap_disturbed(struct escrow_host_engine *host, escrow_status why);

/* ---- guard.c: the debug mode ---- */
void guard_lend(struct escrow_host_engine *host, struct lend_op *op, bool lend);

#endif
