/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * escrow/escrow.h - libescrow: the host's side of the contract in escrow/backend.h.
 *
 * It finds, judges, loads and opens backends; owns the tables of regions, peers, grants and remotes,
 * so that a backend can be swapped for another in a living process; withholds memory that a device
 * may still touch; and answers who may touch a range now.  libescrow(3) explains, this page lists.
 *
 * Everything here is plain C.  Handles (uint64_t) of regions, peers, grants, remotes and ops are the
 * host engine's own: they survive a swap and are never 0; another engine's are as stale (all but once in 2^28).
 * Thread tags, blocking classes, pointer marks, sizes of structs and status codes are those of escrow/backend.h; a host
 * engine adds none of its own locks to the data path.  Where a function has the name of a slot, the slot's text holds for it
 * too.  In a child of fork each that takes an engine answers E_STATE, or NULL or 0 where it answers no status; of a process
 * that had opened one, so do those of the whole process: escrow_ledger, escrow_withheld, escrow_quota_*.
 */
#ifndef ESCROW_ESCROW_H
#define ESCROW_ESCROW_H

#include <escrow/backend.h>
#include <escrow/rails.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ESCROW_API __attribute__((visibility("default")))

struct _GKeyFile; /* GLib's; NULL where it is not used */
struct _GSource;

struct escrow_module;      /* a loaded backend; reference-counted */
struct escrow_host_engine; /* an engine as the host sees it, over all its swaps */
struct escrow_swap;        /* one swap under way, or ended and not yet freed */

/* [any] The name of a status, e.g. "E_BUSY"; "E_?" if it is not known.  Constant. */
ESCROW_API const char *escrow_status_name(escrow_status status);

/* ---- Static checks: what a file is, before anything of it runs */
#define ESCROW_CHECK_LOAD 0u   /* errors: what makes a load impossible or dangerous */
#define ESCROW_CHECK_STRICT 1u /* as the conformance suite: every broken MUST is an error */

#define ESCROW_FINDING_INFO 0u
#define ESCROW_FINDING_WARNING 1u
#define ESCROW_FINDING_ERROR 2u

struct escrow_finding {
	uint32_t severity; /* ESCROW_FINDING_* */
	char clause[12];   /* "S1", "H2"... */
	char text[240];    /* what, why, and what is allowed */
};

/*
 * [any] SLOW.  Reads the ELF file at path (in-call) and writes up to max findings, worst first;
 * returns how many there are (alike ones: at most ten), or < 0: E_INVALID if the file cannot be read.  The file is hostile
 * input: nothing of it is mapped executable, and no constructor runs.
 */
ESCROW_API int32_t escrow_check_file(const char *path, uint32_t profile,
				     struct escrow_finding *findings, uint32_t max);

/* ---- The probe: what a file does, in a process of its own */
#define ESCROW_PROBE_OPEN 1u  /* also open with the settings, query and close */
#define ESCROW_PROBE_RAILS 2u /* also ask for escrow/rails.h; E_UNSUPPORTED: it lists no rails */

struct escrow_probe_args {
	uint32_t size;
	uint32_t flags;              /* ESCROW_PROBE_* */
	const char *path;            /* in-call */
	const char *const *settings; /* "key=value" strings, then NULL; or NULL */
	uint64_t timeout_ns;         /* of the whole probe; 0 = 10 s */
};

struct escrow_probe_result {
	uint32_t size;
	uint32_t revision;
	uint64_t caps;
	uint64_t residency;
	int32_t signal;    /* that ended it, or 0 */
	int32_t exit_code; /* or -1 */
	char stage[16]; /* how far: "dlopen", "entry", "rails", "open", "query", "close", "done" */
	char id[64];
	char version[64];
};

/*
 * [any] blocks up to the time limit.  Runs the program escrow-probe (never a fork of the caller) in
 * a process group of its own, which is killed at the end whatever it did.  OK: it came to the end.
 * Else *error says in one line what happened and why: E_INVALID it crashed, ended without a verdict
 * or broke the contract, E_TIMEOUT it hung, or what its entry or open answered.  *result (NULL
 * allowed) is filled as far as it came, also on failure.
 */
ESCROW_API escrow_status escrow_probe(const struct escrow_probe_args *args,
				      struct escrow_probe_result *result,
				      struct escrow_error *error);

/* ---- Discovery and loading */

/*
 * [any] Calls each(ctx, name, path) for every backend file: those in the folders of
 * ESCROW_BACKEND_PATH (colon-separated), then the installed ones; a name that was told hides later
 * ones.  Nothing is opened.  Ends early when each returns non-zero.  Returns how many were told.
 */
ESCROW_API int32_t escrow_discover(int32_t (*each)(void *ctx, const char *name, const char *path),
				   void *ctx);

/*
 * [any] The path of a backend: a name ("mock") is looked for as escrow_discover does, anything with
 * a slash or ending in ".so" is a path.  path: out-caller, two-call length with the terminator.
 */
ESCROW_API escrow_status escrow_find(const char *name, char *path, uint64_t *len,
				     struct escrow_error *error);

#define ESCROW_LOAD_COPY 1u  /* load a copy named by its content, so that a swap gets new code */
#define ESCROW_LOAD_PROBE 2u /* probe (entry only) before */
#define ESCROW_LOAD_PROBE_OPEN 4u /* probe with open before; settings are used */
#define ESCROW_LOAD_MAY_UNMAP 8u  /* the operator wants it unmapped in the end, if it allows */

struct escrow_load_args {
	uint32_t size;
	uint32_t flags;              /* ESCROW_LOAD_* */
	const char *name;            /* in-call; as for escrow_find */
	const char *const *settings; /* in-call; for the probe */
	uint64_t probe_timeout_ns;   /* 0 = 10 s */
	const char *copy_dir; /* in-call; private, made 0700; NULL: in XDG_RUNTIME_DIR or /tmp */
};

/*
 * [any] SLOW.  Static checks, the probe if asked for, then dlopen (NOW, LOCAL, NODELETE) and
 * negotiation.  The object stays mapped for the life of the process unless MAY_UNMAP was possible.
 * Loading what is mapped already gives the same module, one reference more.
 * E_INVALID: not a backend, the text says why.  E_REVISION.  E_LIMIT: too many objects are mapped.
 */
ESCROW_API escrow_status escrow_load(const struct escrow_load_args *args,
				     struct escrow_module **module, struct escrow_error *error);

/* [any] One reference more / less.  A module without references is retired, see residency below. */
ESCROW_API struct escrow_module *escrow_module_ref(struct escrow_module *module);
ESCROW_API void escrow_module_unref(struct escrow_module *module);

#define ESCROW_MODULE_IN_USE 1u
#define ESCROW_MODULE_RETIRED 2u      /* no reference, no engine; mapped */
#define ESCROW_MODULE_UNMAPPED 3u     /* dlclose, and the loader confirms that it is gone */
#define ESCROW_MODULE_STILL_MAPPED 4u /* dlclose, but it is still there: reason unknown */
#define ESCROW_MODULE_REFUSED 5u      /* no backend, as `why` says; mapped, as its code has run */

struct escrow_module_info {
	uint32_t size;
	uint32_t state; /* ESCROW_MODULE_* */
	uint32_t references;
	uint32_t engines; /* open, quarantined ones included */
	uint32_t revision;
	uint32_t resident;                    /* 1: it cannot be unmapped */
	const struct escrow_backend *backend; /* backend-const; NULL once unmapped */
	char sha256[65];
	char path[256];   /* that was given */
	char mapped[256]; /* that was loaded: the same, or the copy */
	char why[96];     /* why it stays mapped */
};

/* [any] About one module, and about all that were ever mapped (returns how many there are). */
ESCROW_API escrow_status escrow_module_info(const struct escrow_module *module,
					    struct escrow_module_info *info);
ESCROW_API int32_t escrow_modules(struct escrow_module_info *infos, uint32_t max, uint32_t stride);

/* [any] How many distinct objects may be mapped (default 32); returns the old value.  0 only asks. */
ESCROW_API uint32_t escrow_module_cap(uint32_t cap);

/* ---- Quotas of the whole process.  UINT64_MAX = none (the default).  What is withheld counts as used. */
struct escrow_quota {
	uint32_t size, reserved0;
	uint64_t bytes, regions, grants; /* bytes: twice while a region is in two backends */
	/* A shorter struct sets no limit for these.  At that of peers no invitation is given either. */
	uint64_t granted_bytes, peers, ops;       /* ops: outstanding, or ended with custody HELD */
	uint64_t connections, sq_slots, cq_slots; /* of backends that ask: escrow/budget.h */
};

/* [any] Each may be NULL.  New limits hold for new admissions. */
ESCROW_API void escrow_quota_set(const struct escrow_quota *limits);
ESCROW_API void escrow_quota_get(struct escrow_quota *limits, struct escrow_quota *used);

/*
 * [any] What one peer name may have over all engines, backends and swaps: all but bytes and regions, which are no
 * peer's, and ops, which each engine limits (peer_quota.ops); a limit of those: E_UNSUPPORTED.  Name NULL: each name
 * that has no limits of its own; limits NULL: it has none any more.  Who comes to an engine that gave an
 * ESCROW_INVITE_ANY counts as "(any)", whatever it calls itself; offers are nobody's.
 */
ESCROW_API escrow_status escrow_quota_set_peer(const char *name, const struct escrow_quota *limits);
ESCROW_API escrow_status escrow_quota_get_peer(const char *name, struct escrow_quota *limits,
					       struct escrow_quota *used);

/* Memory that the host gave and cannot have back, because no receipt came. */
struct escrow_withheld {
	void *addr;
	uint64_t length;
	uint64_t since_ns; /* by the clock of its engine: now_ns of struct escrow_host_args */
	uint64_t region;   /* its handle; stale if the engine was released */
	uint32_t orphan; /* 1: its engine was released; it stays withheld until the process ends */
	uint32_t reserved0;
	char backend[64];
	char engine_name[64];
};

/* [any] Of all engines: fills up to max, returns how many there are; *bytes (or NULL) their sum. */
ESCROW_API int32_t escrow_withheld(struct escrow_withheld *out, uint32_t max, uint64_t *bytes);

/* ---- A host engine */
#define ESCROW_GUARD_WRITES 1u /* debug: pages that a WRITE reads from are read-only meanwhile */
#define ESCROW_GUARD_READS 2u  /* debug: pages that a READ fills are inaccessible meanwhile; not */
			       /* for devices that write through this mapping */

struct escrow_host_args {
	uint32_t size;
	uint32_t flags;               /* ESCROW_GUARD_*: whole pages inside the lent ranges */
	struct escrow_module *module; /* the engine keeps a reference */
	const char *engine_name;      /* in-call; 1..63 bytes */
	const char *const *settings;  /* in-call; "key=value", then NULL; wins over key_file */
	struct _GKeyFile *key_file;   /* in-call; its group with the backend's id; or NULL */
	/* Finished texts, from any thread; NULL: dropped.  log_level: up to it; MISBEHAVES always. */
	void (*log)(void *ctx, int32_t level, const char *component, const char *text);
	uint64_t (*now_ns)(void *ctx); /* NULL: CLOCK_MONOTONIC */
	void *ctx;                     /* for both */
	int32_t log_level;
	uint32_t max_ops; /* outstanding at once; 0: what the backend can do, at most 4096 */
};

/* [any] SLOW.  Opens an engine of args->module.  Settings: the backend's keys. */
ESCROW_API escrow_status escrow_open(const struct escrow_host_args *args,
				     struct escrow_host_engine **engine,
				     struct escrow_error *error);

/* [any] blocks: a probe asks first.  What escrow_open would find (escrow/rails.h); see libescrow(3). */
ESCROW_API int32_t escrow_rails(const struct escrow_host_args *args, struct escrow_rail *rails,
				uint32_t max, uint32_t stride, struct escrow_error *error);

/* [ctl] NB.  As the slot; CLOSED, or QUARANTINED with object 0, when all generations have ended or were given up. */
ESCROW_API escrow_status escrow_close(struct escrow_host_engine *engine, uint64_t deadline_ns,
				      uint32_t mode);

/* [ctl] After CLOSED or QUARANTINED, else E_STATE.  What is not back then is listed by escrow_withheld. */
ESCROW_API escrow_status escrow_release(struct escrow_host_engine *engine);

/* [any] Limits of the current backend, cut to what the host engine itself can carry. */
ESCROW_API escrow_status escrow_query(struct escrow_host_engine *engine,
				      struct escrow_limits *limits);

/* [any] The module of the current generation (no reference is given), and its number, from 1 up. */
ESCROW_API struct escrow_module *escrow_current(struct escrow_host_engine *engine,
						uint64_t *generation);

/* ---- Regions and who may touch them */
struct escrow_region {
	uint32_t size;
	uint32_t flags; /* 0 */
	uint64_t user;
	void *addr;
	uint64_t length;
	uint32_t memory_kind; /* ESCROW_MEMORY_* */
	uint32_t device;
	int64_t dmabuf_fd; /* -1 */
	uint64_t dmabuf_offset;
	/*
	 * Called exactly once, by escrow_poll and before it tells REGION_RELEASED, when the last
	 * backend has let go; never for memory that is withheld.  NULL: the event alone tells.
	 */
	void (*free)(void *ctx, void *addr, uint64_t length);
	void *free_ctx;
};

/* [ctl] SLOW.  As register_memory; also E_QUOTA of the process.  E_BUSY: a swap is under way. */
ESCROW_API escrow_status escrow_register(struct escrow_host_engine *engine,
					 const struct escrow_region *args, uint64_t *region,
					 struct escrow_error *error);

/* [ctl] SLOW.  As deregister_memory.  E_BUSY: ops, grants or borrows stand on it, or a swap. */
ESCROW_API escrow_status escrow_deregister(struct escrow_host_engine *engine, uint64_t region);

/*
 * [any] NB.  The host asks for a range of its own region before it touches it.  E_BUSY: an op has
 * it (a READ excludes both, a WRITE excludes writing), or somebody borrowed it for writing.  While
 * it is borrowed, an op that would clash is refused with E_BUSY.  At most 64 borrows a region stand
 * at once (E_LIMIT).  Grants are not looked at: what a peer does with one nobody here can see.
 */
ESCROW_API escrow_status escrow_borrow_for_read(struct escrow_host_engine *engine, uint64_t region,
						uint64_t offset, uint64_t length);
ESCROW_API escrow_status escrow_borrow_for_write(struct escrow_host_engine *engine, uint64_t region,
						 uint64_t offset, uint64_t length);

/* [any] NB.  Gives back exactly what one borrow took.  E_INVALID: nothing was borrowed so. */
ESCROW_API escrow_status escrow_return(struct escrow_host_engine *engine, uint64_t region,
				       uint64_t offset, uint64_t length);

/* ---- Peers, grants, remotes: the slots, with our handles.  [ctl]: E_BUSY while a swap is under way. */
ESCROW_API escrow_status escrow_invite(struct escrow_host_engine *engine,
				       const struct escrow_invite_args *args, void *buf,
				       uint64_t *len);
ESCROW_API escrow_status escrow_connect(struct escrow_host_engine *engine,
					const struct escrow_peer_args *args, uint64_t *peer,
					struct escrow_error *error);
ESCROW_API escrow_status escrow_disconnect(struct escrow_host_engine *engine, uint64_t peer);
ESCROW_API escrow_status escrow_peer_info(struct escrow_host_engine *engine, uint64_t peer,
					  struct escrow_peer_info *info);
/* Also E_QUOTA of the process. */
ESCROW_API escrow_status escrow_grant(struct escrow_host_engine *engine,
				      const struct escrow_grant_args *args, uint64_t *grant,
				      struct escrow_error *error);
ESCROW_API escrow_status escrow_export_grant(struct escrow_host_engine *engine, uint64_t grant,
					     void *buf, uint64_t *len);
ESCROW_API escrow_status escrow_revoke(struct escrow_host_engine *engine, uint64_t grant);
struct escrow_remote_args {
	uint32_t size;
	uint32_t flags; /* 0 */
	uint64_t user;
	uint64_t peer;
	const void *bytes; /* in-call; hostile until checked */
	uint64_t len;
};
ESCROW_API escrow_status escrow_import_grant(struct escrow_host_engine *engine,
					     const struct escrow_remote_args *args,
					     uint64_t *remote, struct escrow_error *error);
ESCROW_API escrow_status escrow_forget_grant(struct escrow_host_engine *engine, uint64_t remote);

/* ---- Data path and events */

/*
 * [data] NB.  As transfer, and as many callers as the backend's ESCROW_CAP_TRANSFER_MT allows.  No
 * lock, no allocation.  Also E_BUSY: a borrow stands in the way; E_AGAIN: the gate of a swap is shut, or max_ops
 * are outstanding (ROOM follows).  What was wrong with an op is logged for log_level ESCROW_LOG_DEBUG.
 */
ESCROW_API int32_t escrow_transfer(struct escrow_host_engine *engine, const struct escrow_op *op,
				   uint32_t n, uint32_t stride, uint32_t flags, uint64_t *ops);

/* As the slots: [any], [poll] with events of all generations, the host's handles and tokens; E_BUSY, logged: beside another. */
ESCROW_API escrow_status escrow_cancel(struct escrow_host_engine *engine, uint64_t op);
ESCROW_API int32_t escrow_poll(struct escrow_host_engine *engine, struct escrow_event *events,
			       uint32_t max);

/* [any] A descriptor that stays the same over swaps; readable when armed and something came. */
ESCROW_API int32_t escrow_event_fd(struct escrow_host_engine *engine);

/* [poll] NB. */
ESCROW_API escrow_status escrow_arm(struct escrow_host_engine *engine);

/*
 * [ctl] A new source (g_source_unref is the caller's) that calls each(ctx, event) from the main
 * context it is attached to: its prepare arms, its check looks at the descriptor, its dispatch
 * polls.  Who uses it calls neither escrow_poll nor escrow_arm.  Destroy it before escrow_release;
 * after CLOSED, and in the child of a fork, it removes itself.  NULL without ESCROW_CAP_EVENT_FD.
 */
ESCROW_API struct _GSource *escrow_source_new(struct escrow_host_engine *engine,
					      void (*each)(void *ctx,
							   const struct escrow_event *event),
					      void *ctx);

/* [ctl] NB.  E_BUSY while a swap is under way; one does not keep DRAINED of before from the host. */
ESCROW_API escrow_status escrow_quiesce(struct escrow_host_engine *engine);
ESCROW_API escrow_status escrow_resume(struct escrow_host_engine *engine);
ESCROW_API escrow_status escrow_drain(struct escrow_host_engine *engine, uint64_t peer,
				      uint64_t deadline_ns);

/* ---- Looking in */
/* [any] Of the current backend; handles in records are the backend's. */
ESCROW_API int32_t escrow_charges(struct escrow_host_engine *engine, struct escrow_charge *charges,
				  uint32_t max);
ESCROW_API int32_t escrow_records(struct escrow_host_engine *engine, uint64_t *cursor,
				  struct escrow_record *records, uint32_t max);

/*
 * [any] The engine, the table and the handles under it, for extensions of a backend.  They hold
 * until the next swap; escrow_backend_handle gives 0 for what has no handle there.
 */
ESCROW_API struct escrow_engine *escrow_backend_engine(struct escrow_host_engine *engine,
						       const struct escrow_ops **ops);
ESCROW_API uint64_t escrow_backend_handle(struct escrow_host_engine *engine, uint64_t handle);
ESCROW_API const void *escrow_get_extension(struct escrow_host_engine *engine, const char *id);

/* One living host engine, or one of its generations that is quarantined, as the ledger shows it. */
struct escrow_ledger_engine {
	uint64_t generation;
	uint32_t state;   /* ESCROW_STATE_* */
	uint32_t current; /* 1: the generation that serves; 0: an older one */
	uint64_t regions; /* of the host engine */
	uint64_t peers;
	uint64_t grants;
	uint64_t remotes;
	uint64_t ops;                       /* outstanding */
	const struct escrow_ops *ops_table; /* to read charges and records with, in the callback */
	struct escrow_engine *engine;       /* NULL: owners of released engines of that module */
	char backend[64];
	char engine_name[64];
};

/*
 * [any] Calls each for every living engine and generation of the process and, with engine NULL, for
 * every mapped module that lists owners of released engines.  The tables must not be changed by the
 * callback.  Returns how many were told.
 */
ESCROW_API int32_t escrow_ledger(void (*each)(void *ctx, const struct escrow_ledger_engine *entry),
				 void *ctx);

/*
 * ---- Hot swap ----------------------------------------------------------------------------------
 * begin, then advance until it no longer answers IN_PROGRESS, while the host goes on polling and
 * transferring; then free.  Before COMMIT every step is taken back when a later one fails.
 */
#define ESCROW_SWAP_OPEN 1u     /* open B */
#define ESCROW_SWAP_BUDGET 2u   /* B's limits cover what stands; memory can be locked twice */
#define ESCROW_SWAP_REGISTER 3u /* every live region in B too */
#define ESCROW_SWAP_PEERS 4u    /* connect B's peers, make the grants and remotes again */
#define ESCROW_SWAP_GATE 5u     /* no new op; nobody is inside A's transfer */
#define ESCROW_SWAP_QUIESCE 6u  /* A takes nothing; the peers say that they stopped */
#define ESCROW_SWAP_DRAIN 7u    /* A's ops have ended */
#define ESCROW_SWAP_COMMIT 8u   /* B serves; no way back from here */
#define ESCROW_SWAP_CLOSE 9u    /* revoke, deregister and close in A */
#define ESCROW_SWAP_RETIRE 10u  /* A released, or quarantined and its regions removed from B */

/* What the hosts of the two sides tell each other, over their own authenticated channel. */
#define ESCROW_CARRY_INVITATION 1u      /* out: B's invitation for a peer that had come by ours */
#define ESCROW_CARRY_WANT_INVITATION 2u /* out: ask the peer for an invitation; answer: supply */
#define ESCROW_CARRY_GRANT 3u           /* out: the new bytes of grant `object` */
#define ESCROW_CARRY_WANT_GRANT 4u      /* out: ask for the new bytes of remote `object`: supply */
#define ESCROW_CARRY_STOP 5u      /* out: stop using the old grants; answer: supply, no bytes */
#define ESCROW_CARRY_COMMITTED 6u /* out: the new ones hold */
#define ESCROW_CARRY_WITHDRAWN 7u /* out: forget the new ones, the old ones hold */

struct escrow_carry {
	uint32_t size;
	uint32_t kind;         /* ESCROW_CARRY_* */
	uint64_t peer;         /* the host engine's handle */
	uint64_t object;       /* a grant or remote, else 0 */
	uint64_t generation;   /* the new one */
	const char *peer_name; /* in-call */
	const void *bytes;     /* in-call */
	uint64_t len;
};

#define ESCROW_SWAP_DRY_RUN 1u          /* steps 1 to 4, then all is taken back; ends OK */
#define ESCROW_SWAP_COMMIT_UNDRAINED 2u /* if DRAIN times out: commit, A may end in quarantine */

struct escrow_swap_args {
	uint32_t size;
	uint32_t flags;               /* ESCROW_SWAP_DRY_RUN... */
	struct escrow_module *module; /* B's */
	const char *const *settings;  /* in-call */
	struct _GKeyFile *key_file;   /* in-call */
	/* Called by advance.  A status < 0 makes the step fail.  NULL: only without peers. */
	escrow_status (*carry)(void *ctx, const struct escrow_carry *message);
	/* For tests: a status < 0 makes that step fail, after its work and before its success. */
	escrow_status (*fail)(void *ctx, uint32_t step);
	void *ctx;         /* for both */
	uint64_t peers_ns; /* how long PEERS may take; 0 = 30 s */
	uint64_t lease_ns; /* how long QUIESCE waits for the peers; 0 = 5 s */
	uint64_t drain_ns; /* 0 = 30 s */
	uint64_t close_ns; /* GRACEFUL, then the same time ABORT; 0 = 10 s */
};

#define ESCROW_SWAP_RUNNING 0u
#define ESCROW_SWAP_DONE 1u
#define ESCROW_SWAP_FAILED 2u
#define ESCROW_SWAP_TAKEN_BACK 3u

struct escrow_swap_record {
	uint32_t step;    /* ESCROW_SWAP_OPEN... */
	uint32_t outcome; /* ESCROW_SWAP_RUNNING... */
	uint64_t start_ns;
	uint64_t end_ns; /* 0 while it runs */
	escrow_status status;
	uint32_t reserved0;
	char text[168]; /* counts, or the reason */
};

/*
 * [ctl] Starts a swap; nothing is touched before the first advance.  E_STATE: not OPEN.  E_BUSY: one
 * is under way, or the last one's B has not ended.  E_LIMIT: 32 generations of this engine are alive
 * (quarantined ones).
 */
ESCROW_API escrow_status escrow_swap_begin(struct escrow_host_engine *engine,
					   const struct escrow_swap_args *args,
					   struct escrow_swap **swap, struct escrow_error *error);

/*
 * [ctl] As far as it goes now: IN_PROGRESS, OK, or why it was taken back (*error, NULL allowed).
 * After COMMIT it can only end OK, or with E_UNQUIESCED: B serves, A is quarantined.
 */
ESCROW_API escrow_status escrow_swap_advance(struct escrow_swap *swap, struct escrow_error *error);

/* [ctl] The peer's answer to carry: kind WANT_INVITATION, WANT_GRANT or STOP.  bytes in-call. */
ESCROW_API escrow_status escrow_swap_supply(struct escrow_swap *swap, uint32_t kind,
					    uint64_t object, const void *bytes, uint64_t len);

/* [ctl] One record a step and one for each taken back, in order; returns how many there are. */
ESCROW_API int32_t escrow_swap_records(const struct escrow_swap *swap,
				       struct escrow_swap_record *records, uint32_t max);
ESCROW_API const char *escrow_swap_step_name(uint32_t step);

/* [ctl] E_BUSY while it is under way. */
ESCROW_API escrow_status escrow_swap_free(struct escrow_swap *swap);

#ifdef __cplusplus
}
#endif
#endif
