/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * escrow/backend.h - the contract between a transfer engine (the host) and a backend.
 *
 * This header is all that a host or a backend needs: it includes nothing but stddef.h and
 * stdint.h, links nothing, and compiles as C90, C11, C17 and C++11.  A backend is a shared object
 * that exports exactly one symbol, ESCROW_ENTRY.  The rules are numbered in escrow-abi(7), one
 * section per slot is in escrow_backend(3), and `escrow conform` judges a backend by them.
 *
 * What this ABI adds to the usual plugin table: authority is lent (grants) and taken back with a
 * proof (revoke); peers come by invitation and live in epochs; every result answers two questions,
 * may the bytes be touched again (custody) and did the transfer happen (effect); every native
 * resource is charged and can be listed; and a close may end in quarantine.
 *
 * WORDS
 *   engine        one open backend instance
 *   region        registered memory of the host
 *   peer          a connected remote engine, known by a name that the host gives
 *   invitation    bytes a host carries to a peer so that it may connect: addresses + ticket
 *   grant         authority lent to one peer over a range of a region
 *   offer         a grant that any connected peer may ask for (peer 0)
 *   remote        an imported grant
 *   op            one READ or WRITE the host asked for
 *   receipt       a native answer that proves that the device let go of something
 *   quarantine    where an owner stays whose receipt could not be had
 *   incarnation   128 random bits that identify one engine start
 *   epoch         one connection generation between two incarnations, from 1 up
 *
 * THREADS.  Every slot carries one tag:
 *   [any]   any thread, at the same time as anything else on that engine except release
 *   [ctl]   the host serialises all [ctl] calls on one engine (not necessarily one OS thread)
 *   [data]  one caller at a time per engine, beside [poll], [ctl] and [any]; with
 *           ESCROW_CAP_TRANSFER_MT any number of callers
 *   [poll]  one caller at a time per engine, beside [data], [ctl] and [any]
 * Different engines are independent.  A backend never calls into the host but through
 * struct escrow_host, and never delivers an event by a callback.
 *
 * BLOCKING.  Every slot carries one class:
 *   NB      bounded CPU work; waits for no network, no peer, no device, no other thread's progress
 *   SLOW    may take kernel time proportional to the memory size; never waits for a peer, never
 *           holds a lock that transfer, poll or cancel needs
 * Nothing waits for the network: what takes network time answers ESCROW_IN_PROGRESS and ends in an
 * event.
 *
 * POINTERS.  Every pointer is one of:
 *   in-call        borrowed until the call returns; the backend copies what it keeps
 *   in-region      the registered bytes: borrowed from register_memory to REGION_RELEASED
 *   out-caller     the caller's buffer.  Two-call length: *len holds the room on entry; if it is
 *                  too small the call returns ESCROW_E_TOO_SMALL, writes the length needed to
 *                  *len and touches nothing else; on success *len is the length written
 *   backend-const  the backend's, constant: descriptor strings while the object is mapped, what an
 *                  engine hands out until release
 * user tokens (uint64_t) are returned in events and never interpreted.
 *
 * STRUCTS.  A struct that may grow starts with its size in bytes, set by the caller for input and
 * output alike.  A writer never writes beyond the caller's size; a reader takes a missing tail as
 * zero; a non-zero tail that the reader does not know gives ESCROW_E_UNSUPPORTED.  A size below
 * the revision 1 size of that struct gives ESCROW_E_INVALID.  Members named reservedN must be zero
 * (else ESCROW_E_INVALID); an unknown flag bit gives ESCROW_E_UNSUPPORTED.  Arrays carry a stride
 * in bytes, at least the element's revision 1 size and a multiple of 8.
 *
 * ERRORS.  A call that fails has no effect and leaves its outputs untouched, but for *len of a
 * two-call length and the caller's struct escrow_error.
 *
 * FORK.  In a child of fork every slot returns ESCROW_E_STATE and touches nothing native; the
 * child may only exec or _exit.  Descriptors are close-on-exec.
 */
#ifndef ESCROW_BACKEND_H
#define ESCROW_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The revision this header describes: one integer, raised when a struct or a clause changes. */
#define ESCROW_REVISION 1u

/*
 * The entry symbol.  Its suffix is the era: it changes only if the first bytes of the structs, or
 * the meaning of `release`, change.  An object may export the entries of several eras.
 */
#define ESCROW_ENTRY "escrow_backend_entry_1"

/*
 * ---- Status ------------------------------------------------------------------------------------
 * 0 done; > 0 accepted, or progress; < 0 failure, in four ranges by whom it concerns.  A host that
 * meets an unknown code acts on its range.
 */
typedef int32_t escrow_status;

#define ESCROW_OK 0
#define ESCROW_IN_PROGRESS 1    /* accepted: exactly one terminal event follows */
#define ESCROW_EVENTS_PENDING 2 /* arm refused: poll first */

/* -1..-99: the caller broke the contract; the same call will fail again */
#define ESCROW_E_INVALID -1     /* a value, a handle or a descriptor is wrong */
#define ESCROW_E_STATE -2       /* not in this state of the engine or object */
#define ESCROW_E_UNSUPPORTED -3 /* not advertised, or an unknown flag */
#define ESCROW_E_REVISION -4    /* no revision in common */
#define ESCROW_E_TOO_SMALL -5   /* the caller's buffer; *len says what is needed */
#define ESCROW_E_LIMIT -6       /* beyond a fixed limit that query reports */
#define ESCROW_E_BUSY -7        /* loans, grants or ops still stand on the object */

/* -100..-199: resources; a later try may succeed */
#define ESCROW_E_NO_MEMORY -100
#define ESCROW_E_AGAIN -101   /* full now; for transfer a ROOM event follows */
#define ESCROW_E_QUOTA -102   /* a quota of the engine or of the peer's name is used up */
#define ESCROW_E_MEMLOCK -103 /* RLIMIT_MEMLOCK is too small for this registration */

/* -200..-299: this operation, or this peer */
#define ESCROW_E_TIMEOUT -200
#define ESCROW_E_CANCELED -201
#define ESCROW_E_PEER_LOST -202
#define ESCROW_E_STALE_EPOCH -203 /* of another incarnation or epoch of the peer */
#define ESCROW_E_ACCESS -204      /* the peer's grant does not cover the access; see also revoke */
#define ESCROW_E_REFUSED -205     /* the peer refused the connection or the import */

/* -300..-399: the engine */
#define ESCROW_E_DEVICE -300
#define ESCROW_E_INTERNAL -301
#define ESCROW_E_UNQUIESCED -302 /* no proof of quiescence could be had: quarantined */

/* ---- The two answers about a finished op ---------------------------------------------------- */
#define ESCROW_CUSTODY_RETURNED 0 /* the bytes are the host's again */
#define ESCROW_CUSTODY_HELD 1     /* the device may still touch them; OP_RETURNED may follow */

#define ESCROW_EFFECT_EXECUTED 0     /* all of it happened */
#define ESCROW_EFFECT_NOT_EXECUTED 1 /* none of it happened */
#define ESCROW_EFFECT_UNKNOWN 2      /* some, all or none; nobody on this side can tell */

/* One open backend instance; opaque, made by open, ended by release. */
struct escrow_engine;

/*
 * Detail of a failure.  The caller's memory; NULL is allowed everywhere; nothing to free.  Set
 * size = sizeof(struct escrow_error) before the call.  text is UTF-8, always terminated, and names
 * the offending value and what is allowed.  sys_errno is 0 or a positive errno; vendor is the
 * device's own code or 0.
 */
struct escrow_error {
	uint32_t size;
	escrow_status status;
	int32_t sys_errno;
	uint32_t vendor;
	char text[240];
};

/*
 * ---- Services that the host lends -----------------------------------------------------------
 * Valid until the last engine opened with them is released; with quarantined owners left, for as
 * long as the object is mapped.  All members must be set.  All may be called from any thread, never
 * from a signal handler, and never call back into a backend.
 */
#define ESCROW_LOG_ERROR 0
#define ESCROW_LOG_WARNING 1
#define ESCROW_LOG_NOTICE 2
#define ESCROW_LOG_INFO 3
#define ESCROW_LOG_DEBUG 4
#define ESCROW_LOG_HOST_MISBEHAVES 5    /* the host broke a clause */
#define ESCROW_LOG_BACKEND_MISBEHAVES 6 /* the backend (or its device) broke one */

struct escrow_host {
	uint32_t size;
	uint32_t reserved0;
	void *ctx; /* handed back in each call, never interpreted */

	/* Non-zero if texts of this level are wanted; cheap. */
	int32_t (*log_enabled)(void *ctx, int32_t level);

	/* component and text (in-call): UTF-8, terminated; len = strlen(text). */
	void (*log)(void *ctx, int32_t level, const char *component, const char *text,
		    uint64_t len);

	/*
	 * The backend's own memory; align is a power of two, at least 8.  May return NULL.  free
	 * takes NULL.
	 */
	void *(*alloc)(void *ctx, uint64_t bytes, uint64_t align);
	void (*free)(void *ctx, void *p);

	/*
	 * Memory that the device may write and that is not a region (control buffers); bytes are
	 * rounded up to pages.  May return NULL.  Memory that a quarantined owner keeps is never
	 * given to dma_free.
	 */
	void *(*dma_alloc)(void *ctx, uint64_t bytes, uint64_t align);
	void (*dma_free)(void *ctx, void *p);

	/* Nanoseconds; CLOCK_MONOTONIC unless the host runs a clock of its own.  All deadlines. */
	uint64_t (*now_ns)(void *ctx);

	/*
	 * A const table of the host that starts with its size, or NULL.  Whole-string ids;
	 * escrow/budget.h has one.
	 */
	const void *(*get_extension)(void *ctx, const char *id);
};

/*
 * What the host says at the entry.  The backend chooses the highest revision it knows in
 * [rev_min, rev_max].  host may be NULL for tools that only read the descriptor.
 */
struct escrow_hello {
	uint32_t size;
	uint32_t rev_min;
	uint32_t rev_max;
	uint32_t reserved0;
	const struct escrow_host *host;
	const char *host_name;    /* in-call */
	const char *host_version; /* in-call */
};

/*
 * ---- Capabilities ---------------------------------------------------------------------------
 * Promises, constant after open: advertised means that it works for every value within the limits;
 * not advertised means ESCROW_E_UNSUPPORTED without effect.
 */
#define ESCROW_CAP_READ (UINT64_C(1) << 0)
#define ESCROW_CAP_WRITE (UINT64_C(1) << 1)
#define ESCROW_CAP_EVENT_FD (UINT64_C(1) << 2)    /* event_fd and arm */
#define ESCROW_CAP_LEDGER (UINT64_C(1) << 3)      /* charges and records */
#define ESCROW_CAP_TRANSFER_MT (UINT64_C(1) << 4) /* transfer from several threads at once */
#define ESCROW_CAP_THREADS (UINT64_C(1) << 5)     /* has threads of its own while open */
#define ESCROW_CAP_REMOTE (UINT64_C(1) << 6)      /* reaches engines of other processes */
#define ESCROW_CAP_LOOPBACK (UINT64_C(1) << 7)    /* an engine may connect to itself */
#define ESCROW_CAP_INVITE_ANY (UINT64_C(1) << 8)  /* ESCROW_INVITE_ANY */
#define ESCROW_CAP_OFFER (UINT64_C(1) << 9)       /* grants with peer 0 */
#define ESCROW_CAP_DMABUF (UINT64_C(1) << 10)     /* ESCROW_MEMORY_DMABUF */
#define ESCROW_CAP_WEAK (UINT64_C(1) << 11)       /* a weaker mode was configured: weak_receipts */
#define ESCROW_CAP_PLAIN_KEYS (UINT64_C(1) << 12) /* weaker mode: grants are not bound to a peer */

#define ESCROW_MEMORY_HOST 1u   /* addr, length */
#define ESCROW_MEMORY_DMABUF 2u /* dmabuf_fd, dmabuf_offset, length; addr is the I/O address */

/* May the object be unmapped when no engine and no quarantined owner is left? */
#define ESCROW_RESIDENCY_STAYS 0u
#define ESCROW_RESIDENCY_MAY_UNMAP 1u

/*
 * ---- Data plane: frozen for ever; the stride argument is the only way to grow ---------------
 */
#define ESCROW_READ 1u  /* the peer's granted bytes -> the local region */
#define ESCROW_WRITE 2u /* the local region -> the peer's granted bytes */

/* A range of a region of this engine; bytes.  offset + length must not exceed the region. */
struct escrow_sge {
	uint64_t region;
	uint64_t offset;
	uint64_t length;
};

/*
 * One op.  The sge lengths add up to what is moved, from remote_offset on in the remote.  A total
 * of zero bytes is legal, moves nothing and ends in one event.  Ops are not ordered among each
 * other.  sge is in-call.
 */
struct escrow_op {
	uint64_t user;          /* returned in its events */
	uint64_t remote;        /* an imported grant */
	uint64_t remote_offset; /* bytes from the start of the grant */
	uint64_t deadline_ns;   /* absolute, on host->now_ns; 0 = none */
	uint32_t opcode;        /* ESCROW_READ or ESCROW_WRITE */
	uint32_t flags;         /* 0 */
	uint32_t nsge;          /* 0..max_sge */
	uint32_t reserved0;
	const struct escrow_sge *sge;
	uint64_t reserved1;
};

/*
 * ---- Events ---------------------------------------------------------------------------------
 * `object` is the handle named in brackets, `user` the token of the args that made it.  "last" =
 * the handle is stale once this event has been polled.
 *
 *   OP_DONE       status, custody, effect, bytes known moved.  last, unless custody is HELD
 *   PEER_DOWN     the peer's ops and grants have ended before.  status says why: OK after
 *                 disconnect; E_REFUSED, E_TIMEOUT... if it never came up; E_UNQUIESCED if
 *                 something of it is quarantined
 *   DRAINED       OK, or E_TIMEOUT with bytes = the number of ops outstanding; E_CANCELED,
 *                 E_DEVICE: resume, close or the loss of the device came first
 *   QUARANTINED   status E_UNQUIESCED, bytes = host bytes withheld
 *   GRANT_READY, REMOTE_READY   status < 0: it failed, and this event is the handle's last
 */
#define ESCROW_EV_OP_DONE 1         /* [op] terminal, exactly once per accepted op */
#define ESCROW_EV_OP_EXPIRED 2      /* [op] its deadline passed; the bytes are not back */
#define ESCROW_EV_PEER_UP 3         /* [peer] connected, by us or by our invitation */
#define ESCROW_EV_PEER_DOWN 4       /* [peer] last */
#define ESCROW_EV_GRANT_READY 5     /* [grant] export_grant may be called */
#define ESCROW_EV_GRANT_REVOKED 6   /* [grant] last.  No access through it is possible any more */
#define ESCROW_EV_REGION_RELEASED 7 /* [region] last.  The bytes are the host's again */
#define ESCROW_EV_DRAINED 8         /* [peer or 0] the answer to drain */
#define ESCROW_EV_QUARANTINED 9     /* [region, grant, peer or 0 = the engine] */
#define ESCROW_EV_DEVICE 10         /* [0] the device is lost; the engine is FAILED */
#define ESCROW_EV_CLOSED 11         /* [0] the last event of an engine */
#define ESCROW_EV_OP_RETURNED 12    /* [op] last.  An op that ended HELD got its receipt */
#define ESCROW_EV_REMOTE_READY 13   /* [remote] import_grant is done */
#define ESCROW_EV_ROOM 14           /* [0] after E_AGAIN: transfer will take at least one op */
#define ESCROW_EV_PEER_LOST 15      /* [peer] the connection is gone; PEER_DOWN follows */
#define ESCROW_EV_MESSAGE 16        /* [peer] org.escrow.notify/1: `bytes` can be received */
#define ESCROW_EV_MESSAGE_SENT 17   /* [peer] org.escrow.notify/1: once per accepted send */

#define ESCROW_EVF_REPEAT 1u /* the engine's QUARANTINED event, told again after another close */

struct escrow_event {
	uint64_t user;
	uint64_t object;
	escrow_status status;
	uint16_t kind;
	uint8_t custody; /* OP_DONE and OP_RETURNED only, else 0 */
	uint8_t effect;  /* OP_DONE and OP_RETURNED only, else 0 */
	uint64_t bytes;
	uint64_t seq; /* strictly increasing per engine */
	uint32_t vendor;
	uint32_t flags;
	uint64_t reserved0;
	uint64_t reserved1;
};

/*
 * ---- Control plane: every struct starts with its size and only grows at the end -------------
 */

/* One configuration setting; both in-call, UTF-8, terminated, not NULL. */
struct escrow_kv {
	const char *key;
	const char *value;
};

/*
 * One configuration key that a backend takes (backend-const).  An unknown key or a bad value makes
 * open fail with ESCROW_E_INVALID and a text that names the nearest key or the allowed values.
 * These keys mean the same in every backend that lists them: quota.bytes, quota.regions,
 * quota.grants, quota.granted_bytes, quota.connections, quota.ops (limits of the engine; 0 = the
 * backend's maximum), the same with the prefix peer_quota. (limits per peer name), quota.any_peers
 * (all peers together that came by an ESCROW_INVITE_ANY invitation: grants), and stuck_share (per
 * cent of a quota that may be quarantined before new admission is refused).
 */
struct escrow_option {
	const char *key;
	const char *value; /* the default */
	const char *help;  /* one line: meaning, unit, range */
};

struct escrow_open_args {
	uint32_t size;
	uint32_t flags; /* 0 */
	const struct escrow_host *host;
	uint32_t revision; /* what the entry chose */
	uint32_t reserved0;
	const struct escrow_kv *kv; /* in-call; nkv elements of kv_stride bytes */
	uint32_t nkv;
	uint32_t kv_stride;
	const char *engine_name; /* in-call; 1..63 bytes: how this engine introduces itself */
};

struct escrow_region_args {
	uint32_t size;
	uint32_t flags; /* 0 */
	uint64_t user;
	void *addr;           /* in-region */
	uint64_t length;      /* 1..max_region_bytes; addr + length must not wrap */
	uint32_t memory_kind; /* ESCROW_MEMORY_* */
	uint32_t device;      /* 0, or an accelerator's index: reserved */
	int64_t dmabuf_fd;    /* -1 unless DMABUF; borrowed until REGION_RELEASED */
	uint64_t dmabuf_offset;
};

/*
 * An invitation is for one named peer and for one use; with ESCROW_INVITE_ANY for any holder, any
 * number of times, and the name then comes from the peer.
 */
#define ESCROW_INVITE_ANY 1u
struct escrow_invite_args {
	uint32_t size;
	uint32_t flags;
	uint64_t user;         /* comes back in PEER_UP of who comes by it */
	const char *peer_name; /* in-call; 1..63 bytes; NULL with ESCROW_INVITE_ANY */
	uint64_t expires_ns;   /* absolute; 0 = never */
};

struct escrow_peer_args {
	uint32_t size;
	uint32_t flags; /* 0 */
	uint64_t user;
	const char *peer_name;  /* in-call; 1..63 bytes: what quotas of that peer count by */
	const void *invitation; /* in-call; hostile until checked */
	uint64_t invitation_len;
	uint64_t deadline_ns; /* absolute; 0 = none */
};

#define ESCROW_PEER_PASSIVE 1u  /* it came by our invitation */
#define ESCROW_PEER_LOOPBACK 2u /* it is this engine */
struct escrow_peer_info {
	uint32_t size;
	uint32_t flags; /* out: ESCROW_PEER_* */
	uint64_t epoch;
	uint64_t user;
	uint8_t incarnation[16];
	char peer_name[64];
};

#define ESCROW_MAY_READ 1u
#define ESCROW_MAY_WRITE 2u
struct escrow_grant_args {
	uint32_t size;
	uint32_t rights; /* ESCROW_MAY_*, at least one */
	uint64_t user;
	uint64_t peer; /* 0 = an offer */
	uint64_t region;
	uint64_t offset;
	uint64_t length; /* at least 1; offset + length within the region */
};

/* States of an engine; escrow-abi(7) has the table of which slot is legal in which. */
#define ESCROW_STATE_OPEN 1u
#define ESCROW_STATE_QUIESCED 2u
#define ESCROW_STATE_DRAINING 3u
#define ESCROW_STATE_DRAINED 4u
#define ESCROW_STATE_CLOSING 5u
#define ESCROW_STATE_QUARANTINED 6u
#define ESCROW_STATE_FAILED 7u /* the device is lost */
#define ESCROW_STATE_CLOSED 8u

/* Bits of weak_receipts: native answers that this engine does not take as a proof. */
#define ESCROW_WEAK_RESET (UINT64_C(1) << 0)
#define ESCROW_WEAK_DEREG (UINT64_C(1) << 1)
#define ESCROW_WEAK_DEALLOC_WINDOW (UINT64_C(1) << 2)
#define ESCROW_WEAK_DESTROY (UINT64_C(1) << 3)

struct escrow_limits {
	uint32_t size;
	uint32_t state; /* ESCROW_STATE_* at this moment */
	uint64_t caps;
	uint64_t caps_emulated; /* a subset of caps: done in software */
	uint64_t memory_kinds;  /* bit n = memory kind n */
	uint64_t weak_receipts; /* ESCROW_WEAK_* */
	uint64_t max_regions;
	uint64_t max_region_bytes;
	uint64_t max_peers;
	uint64_t max_grants;
	uint64_t max_remotes;
	uint64_t max_ops; /* outstanding */
	uint64_t max_op_bytes;
	uint64_t max_sge;
	uint64_t max_invitation_bytes;
	uint64_t max_grant_bytes;   /* of an exported grant */
	uint64_t max_message_bytes; /* 0 without org.escrow.notify/1 */
	uint8_t incarnation[16];
};

/* ---- The ledger as seen from outside -------------------------------------------------------- */
#define ESCROW_CHARGE_BYTES 1u         /* registered bytes */
#define ESCROW_CHARGE_REGIONS 2u       /* registrations */
#define ESCROW_CHARGE_GRANTS 3u        /* grants to peers */
#define ESCROW_CHARGE_GRANTED_BYTES 4u /* bytes granted, each grant counted */
#define ESCROW_CHARGE_SQ_SLOTS 5u
#define ESCROW_CHARGE_CQ_SLOTS 6u
#define ESCROW_CHARGE_CONNECTIONS 7u
#define ESCROW_CHARGE_OPS 8u

struct escrow_charge {
	uint32_t kind; /* ESCROW_CHARGE_* */
	uint32_t reserved0;
	uint64_t used;      /* includes stuck */
	uint64_t stuck;     /* held by quarantined owners */
	uint64_t limit;     /* UINT64_MAX = none */
	char peer_name[64]; /* empty: the engine's account */
};

#define ESCROW_OWNER_ENGINE 1u
#define ESCROW_OWNER_CONTEXT 2u /* device and protection domain */
#define ESCROW_OWNER_LANE 3u    /* completion queues and their channel */
#define ESCROW_OWNER_CONNECTION 4u
#define ESCROW_OWNER_WINDOW 5u
#define ESCROW_OWNER_REGION 6u
#define ESCROW_OWNER_GRANT 7u
#define ESCROW_OWNER_PEER 8u
#define ESCROW_OWNER_LOAN 9u
#define ESCROW_OWNER_CONTROL 10u /* control buffers of the backend itself */

#define ESCROW_OWNER_LIVE 1u
#define ESCROW_OWNER_RETIRING 2u
#define ESCROW_OWNER_GONE 3u
#define ESCROW_OWNER_QUARANTINED 4u

/* Native steps: what a record's stage names. */
#define ESCROW_STEP_NONE 0u
#define ESCROW_STEP_REGISTER 1u
#define ESCROW_STEP_DEREGISTER 2u
#define ESCROW_STEP_ALLOC_WINDOW 3u
#define ESCROW_STEP_BIND_WINDOW 4u
#define ESCROW_STEP_INVALIDATE 5u
#define ESCROW_STEP_DEALLOC_WINDOW 6u
#define ESCROW_STEP_CREATE_QP 7u
#define ESCROW_STEP_QP_ERR 8u
#define ESCROW_STEP_QP_RESET 9u
#define ESCROW_STEP_DESTROY_QP 10u
#define ESCROW_STEP_CREATE_CQ 11u
#define ESCROW_STEP_DESTROY_CQ 12u
#define ESCROW_STEP_CREATE_CHANNEL 13u
#define ESCROW_STEP_DESTROY_CHANNEL 14u
#define ESCROW_STEP_ALLOC_PD 15u
#define ESCROW_STEP_DEALLOC_PD 16u
#define ESCROW_STEP_OPEN_DEVICE 17u
#define ESCROW_STEP_CLOSE_DEVICE 18u
#define ESCROW_STEP_POST 19u
#define ESCROW_STEP_POLL 20u

/* Receipts, strongest first; escrow-abi(7) says which releases what. */
#define ESCROW_RECEIPT_NONE 0u
#define ESCROW_RECEIPT_CQE_OK 1u
#define ESCROW_RECEIPT_CQE_ERROR 2u
#define ESCROW_RECEIPT_CQE_COVERED 3u /* a later completion of the same send queue */
#define ESCROW_RECEIPT_WINDOW_INVALIDATED 4u
#define ESCROW_RECEIPT_QP_RESET 5u
#define ESCROW_RECEIPT_WINDOW_FREED 6u
#define ESCROW_RECEIPT_DEREGISTERED 7u
#define ESCROW_RECEIPT_CQ_DESTROYED 8u
#define ESCROW_RECEIPT_QP_ERR 9u
#define ESCROW_RECEIPT_QP_DESTROYED 10u
#define ESCROW_RECEIPT_PD_GONE 11u
#define ESCROW_RECEIPT_CHANNEL_GONE 12u
#define ESCROW_RECEIPT_PROCESS_REAPED 13u /* from outside: org.escrow.fence/1 */
#define ESCROW_RECEIPT_FUNCTION_FENCED 14u

/* One owner: what it is, what it waits for, what it holds. */
struct escrow_record {
	uint64_t owner;    /* the handle, as in events where it has one */
	uint64_t parent;   /* its parent's owner; 0 at the top */
	uint64_t engine;   /* tells engines apart when called with engine NULL */
	uint32_t kind;     /* ESCROW_OWNER_* */
	uint32_t state;    /* ESCROW_OWNER_LIVE... */
	uint32_t stage;    /* the last native step: ESCROW_STEP_* */
	int32_t sys_errno; /* of that step; 0 = it succeeded or has not ended */
	uint64_t addr;     /* the host range it holds, or 0 */
	uint64_t length;
	uint64_t since_ns; /* when it entered this state */
	uint32_t receipt;  /* the last receipt: ESCROW_RECEIPT_* */
	uint32_t children;
	uint32_t pins; /* owners, other than children, that keep it */
	uint32_t reserved0;
	char text[80]; /* the reason, for people */
};

#define ESCROW_CLOSE_GRACEFUL 0u /* wait for ops until the deadline, then as ABORT */
#define ESCROW_CLOSE_ABORT 1u    /* stop waiting for ops; never skips a proof */

/*
 * ---- The table ------------------------------------------------------------------------------
 * Optional slots may be NULL or beyond the table's size: event_fd and arm (ESCROW_CAP_EVENT_FD),
 * charges and records (ESCROW_CAP_LEDGER), get_extension.  All others are mandatory.
 */
struct escrow_ops {
	uint32_t size;
	uint32_t reserved0;

	/*
	 * [ctl] NB.  Ends the handle.  Legal in CLOSED and QUARANTINED, else a logged error without
	 * effect.  The owners of a QUARANTINED engine live on in the loaded object and can be
	 * listed with charges and records and a NULL engine.  No other call may be under way.
	 */
	void (*release)(struct escrow_engine *engine);

	/*
	 * [any] SLOW.  Makes an engine in state OPEN.  args in-call, but for args->host, whose
	 * services stay lent.  *engine is written on success only.
	 * E_INVALID: a NULL argument, a key, a value, a name.  E_REVISION: args->revision is not
	 * one the backend knows.  E_UNSUPPORTED: a device, transport or environment that cannot
	 * give the proofs.  E_DEVICE: no such device, or it failed.  E_NO_MEMORY, E_MEMLOCK,
	 * E_QUOTA: too much is quarantined.
	 */
	escrow_status (*open)(const struct escrow_open_args *args, struct escrow_engine **engine,
			      struct escrow_error *error);

	/* [any] NB.  Fills *limits; constant after open, but for `state`.  Every state. */
	escrow_status (*query)(struct escrow_engine *engine, struct escrow_limits *limits);

	/*
	 * [ctl] SLOW.  Lends args->addr..+length to the engine.  No remote authority comes with
	 * it.  Overlapping and repeated ranges are legal, each a region of its own.
	 * E_INVALID: zero length, wrap, NULL, unknown kind.  E_LIMIT: beyond max_region_bytes or
	 * max_regions.  E_QUOTA, E_MEMLOCK, E_NO_MEMORY; E_STATE unless OPEN.
	 */
	escrow_status (*register_memory)(struct escrow_engine *engine,
					 const struct escrow_region_args *args, uint64_t *region,
					 struct escrow_error *error);

	/*
	 * [ctl] SLOW.  Takes the region back: IN_PROGRESS, then REGION_RELEASED or QUARANTINED.
	 * E_BUSY: loans or grants stand on it, nothing changes.  E_INVALID: no such region, or it
	 * is being released already.  flags 0.
	 */
	escrow_status (*deregister_memory)(struct escrow_engine *engine, uint64_t region,
					   uint32_t flags);

	/*
	 * [ctl] NB.  Makes an invitation; buf out-caller, two-call length (the call that only asks
	 * the length makes no ticket).  E_UNSUPPORTED: ESCROW_INVITE_ANY without the capability.
	 */
	escrow_status (*invite)(struct escrow_engine *engine, const struct escrow_invite_args *args,
				void *buf, uint64_t *len);

	/*
	 * [ctl] NB.  Starts to connect: IN_PROGRESS, then PEER_UP, or PEER_DOWN with the reason.
	 * Any bytes may be given as an invitation.  Connecting to oneself makes two peers, the
	 * active and the passive end.  E_INVALID: truncated, altered or foreign bytes, a name.
	 * E_REVISION: a peer of another wire revision.  E_LIMIT: max_peers.  E_QUOTA.
	 */
	escrow_status (*connect)(struct escrow_engine *engine, const struct escrow_peer_args *args,
				 uint64_t *peer, struct escrow_error *error);

	/*
	 * [ctl] NB.  Ends a peer: IN_PROGRESS, then PEER_DOWN.  Its ops end with E_CANCELED, its
	 * grants are revoked, what was imported from it can only be forgotten.  A second call
	 * while that goes on is IN_PROGRESS without effect.  flags 0.
	 */
	escrow_status (*disconnect)(struct escrow_engine *engine, uint64_t peer, uint32_t flags);

	/* [any] NB.  From PEER_UP to PEER_DOWN. */
	escrow_status (*peer_info)(struct escrow_engine *engine, uint64_t peer,
				   struct escrow_peer_info *info);

	/*
	 * [ctl] NB.  Charges, then lends authority over a range to one peer: IN_PROGRESS, then
	 * GRANT_READY.  With peer 0 an offer: OK at once, no event, each importer later gets
	 * authority of its own.  E_QUOTA: of the engine or of the peer's name.  E_LIMIT:
	 * max_grants.  E_PEER_LOST, E_BUSY: the region is being released.
	 */
	escrow_status (*grant)(struct escrow_engine *engine, const struct escrow_grant_args *args,
			       uint64_t *grant, struct escrow_error *error);

	/*
	 * [ctl] NB.  The bytes to carry to the peer; buf out-caller, two-call length.  Legal from
	 * GRANT_READY (an offer: from grant) to revoke; before it E_STATE.
	 */
	escrow_status (*export_grant)(struct escrow_engine *engine, uint64_t grant, void *buf,
				      uint64_t *len);

	/*
	 * [ctl] NB.  Takes authority back: IN_PROGRESS, then GRANT_REVOKED, after which no byte
	 * can be read or written through it, or QUARANTINED.  Waits for no peer.  A second call is
	 * IN_PROGRESS without effect.  flags 0.  An op of the peer that comes too late is refused by
	 * the device of this end, E_ACCESS at the peer's: with an RDMA device that ends their
	 * connection, and PEER_DOWN follows at both ends (escrow-rdma(7)).  So revoke what the peer has
	 * said that it is done with.
	 */
	escrow_status (*revoke)(struct escrow_engine *engine, uint64_t grant, uint32_t flags);

	/*
	 * [ctl] NB.  Takes a peer's exported grant (bytes in-call, hostile until checked): OK, or
	 * IN_PROGRESS and then REMOTE_READY.  E_INVALID: truncated, altered or foreign bytes.
	 * E_STALE_EPOCH: of another incarnation or epoch than `peer`.  E_LIMIT: max_remotes.
	 */
	escrow_status (*import_grant)(struct escrow_engine *engine, uint64_t peer, const void *buf,
				      uint64_t len, uint64_t user, uint64_t *remote,
				      struct escrow_error *error);

	/* [ctl] NB.  Ends a remote.  E_BUSY: ops on it are outstanding. */
	escrow_status (*forget_grant)(struct escrow_engine *engine, uint64_t remote);

	/*
	 * [data] NB.  Submits n ops of `stride` bytes each; ops[i] receives the handle of op i.
	 * Returns how many were accepted, from the first on: each of them ends in exactly one
	 * OP_DONE; the rest was not looked at.  If the first cannot be accepted, the reason
	 * (< 0), without effect.  Admission of an op is all or nothing.  flags 0.
	 * n = 0 gives 0.  E_AGAIN: full, ROOM follows.  E_INVALID: a handle, a range outside the
	 * region or remote, an opcode, nsge.  E_LIMIT: max_op_bytes, max_sge.  E_ACCESS: the grant
	 * lacks the right.  E_PEER_LOST: the peer of the remote is gone.  E_QUOTA.
	 * The local ranges are lent until OP_DONE with custody RETURNED, or OP_RETURNED: nobody
	 * may write them, and for READ nobody may read them.
	 */
	int32_t (*transfer)(struct escrow_engine *engine, const struct escrow_op *op, uint32_t n,
			    uint32_t stride, uint32_t flags, uint64_t *ops);

	/*
	 * [any] NB.  Asks to end an op: IN_PROGRESS (OP_DONE will come, with E_CANCELED or as it
	 * ended otherwise), or OK if its OP_DONE is already waiting.  What the device has cannot
	 * be taken back: custody comes with its own receipt.  E_INVALID: no such op.  flags 0.
	 */
	escrow_status (*cancel)(struct escrow_engine *engine, uint64_t op, uint32_t flags);

	/*
	 * [poll] NB.  Makes progress and writes up to max events of `stride` bytes; returns how
	 * many, 0 if none.  Never more than max, never loses one, never reorders those of one
	 * object.  flags 0.  Every state; 0 after CLOSED.
	 */
	int32_t (*poll)(struct escrow_engine *engine, struct escrow_event *events, uint32_t max,
			uint32_t stride, uint32_t flags);

	/*
	 * [any] NB.  A descriptor, the same for the engine's life, that is readable when poll has
	 * something, once armed.  The backend's: never read, never closed by the host.
	 */
	int32_t (*event_fd)(struct escrow_engine *engine);

	/*
	 * [poll] NB.  OK: the next event makes event_fd readable, also one that came since the
	 * last poll.  EVENTS_PENDING: poll first.  Clears stale readiness.  flags 0.
	 */
	escrow_status (*arm)(struct escrow_engine *engine, uint32_t flags);

	/* [ctl] NB.  OPEN -> QUIESCED: no new op, peer or grant.  Outstanding ops go on. */
	escrow_status (*quiesce)(struct escrow_engine *engine, uint32_t flags);

	/* [ctl] NB.  QUIESCED, DRAINING or DRAINED -> OPEN.  A drain under way ends E_CANCELED. */
	escrow_status (*resume)(struct escrow_engine *engine, uint32_t flags);

	/*
	 * [ctl] NB.  IN_PROGRESS, then DRAINED with OK when no op is outstanding (of `peer`, or of
	 * the engine with peer 0), or with E_TIMEOUT at the deadline (0 = none).  With peer 0 the
	 * engine goes DRAINING, then DRAINED (OK) or QUIESCED (E_TIMEOUT).  Grants stay.  flags 0.
	 * E_PEER_LOST: the peer has ended.  E_BUSY: DRAINED of the drain before was not polled yet.
	 */
	escrow_status (*drain)(struct escrow_engine *engine, uint64_t peer, uint64_t deadline_ns,
			       uint32_t flags);

	/*
	 * [ctl] NB.  IN_PROGRESS: CLOSING; then every op, grant, peer and region ends with its own
	 * event, and last comes CLOSED, or QUARANTINED with object 0.  Called again while CLOSING:
	 * IN_PROGRESS, ABORT hastens it.  In QUARANTINED: IN_PROGRESS, the event is told again, no
	 * native call is made.  In CLOSED: OK.  There is no force.
	 */
	escrow_status (*close)(struct escrow_engine *engine, uint64_t deadline_ns, uint32_t mode);

	/*
	 * [any] NB.  Fills up to max elements and returns how many there are in all (max 0 and
	 * NULL to ask).  With engine NULL: of the quarantined owners of released engines.
	 */
	int32_t (*charges)(struct escrow_engine *engine, struct escrow_charge *charges,
			   uint32_t max, uint32_t stride);

	/*
	 * [any] NB.  The owner tree, parents before children.  *cursor 0 starts; returns how many
	 * were written, 0 at the end.  With engine NULL: the owners of released engines.
	 */
	int32_t (*records)(struct escrow_engine *engine, uint64_t *cursor,
			   struct escrow_record *records, uint32_t max, uint32_t stride);

	/*
	 * [any] NB.  A const table that starts with its uint32_t size, the same for the engine's
	 * life (backend-const), or NULL.  Ids are compared as whole strings.  With engine NULL: of
	 * those that say that they need none (escrow/rails.h).
	 */
	const void *(*get_extension)(struct escrow_engine *engine, const char *id);
};

/* What the entry returns: static, const, backend-const throughout. */
struct escrow_backend {
	uint32_t size;
	uint32_t revision; /* chosen in [rev_min, rev_max] */
	const char *id;    /* [a-z][a-z0-9-]{0,31} */
	const char *version;
	uint64_t residency;    /* ESCROW_RESIDENCY_* */
	uint64_t caps;         /* at best, before any device is open */
	uint64_t memory_kinds; /* bit n = memory kind n, at best */
	const struct escrow_option *options;
	uint32_t noptions;
	uint32_t options_stride;
	const struct escrow_ops *ops;
};

/*
 * The entry, [any] NB, pure: no allocation, thread, descriptor or environment access; callable any
 * number of times, by several hosts.  NULL and *error with E_REVISION (the text states the
 * backend's own range) or E_INVALID.
 */
typedef const struct escrow_backend *(*escrow_entry_fn)(const struct escrow_hello *hello,
							struct escrow_error *error);

/* Is member m of table o there? */
#define ESCROW_HAS(o, m)                                                                           \
	((o)->size >= offsetof(struct escrow_ops, m) + sizeof((o)->m) && (o)->m != NULL)

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(void *) == 8, "LP64 only");
_Static_assert(sizeof(struct escrow_error) == 256, "frozen");
_Static_assert(sizeof(struct escrow_sge) == 24, "frozen");
_Static_assert(sizeof(struct escrow_op) == 64, "frozen");
_Static_assert(sizeof(struct escrow_event) == 64, "frozen");
_Static_assert(offsetof(struct escrow_ops, release) == 8, "stable over all eras");
#endif

#ifdef __cplusplus
}
#endif
#endif
