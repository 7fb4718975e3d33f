/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * native.h - the seam between the engine (everything the ABI promises) and a device.
 *
 * backends/engine/ holds what every backend does alike: arguments, states, events, regions, peers,
 * invitations, grants, slicing, settling, the teardown ladder, quarantine.  Under it lies this
 * table: the native steps of a device, in the words of verbs but without its types.  The mock
 * implements it in memory, the RDMA backend by rdma-core.  So what is proved on the mock is the
 * very code that runs on a NIC.
 *
 * RULES OF THE SEAM
 *  - A step makes its native call once and returns 0 or the positive errno, unclassified.  It
 *    never retries, never hides a result and never takes a decision about custody: receipts are
 *    the ledger's business.
 *  - A step that makes an object writes *out on success only.  After a destroy step was called on
 *    an object, whatever it returned, the engine never passes that object again (ownership: one
 *    call for each destroy); on failure the implementation keeps the memory of it untouched.
 *  - [ctrl] steps may sleep; they are called on the engine's control thread only, one at a time.
 *    [data] steps never sleep and are called by whoever holds the lane.  [any]: any thread.
 *  - Objects belong to the implementation; the engine owns when they come and go.
 */
#ifndef ESCROW_NATIVE_H
#define ESCROW_NATIVE_H

#include <stdbool.h>
#include <stdint.h>

#include <escrow/backend.h>
#include <escrow/rails.h>

struct native;         /* the device side of one engine */
struct native_context; /* one device and its protection domain */
struct native_lane;    /* completion queue and channel, of one context */
struct native_conn;    /* one queue pair in one epoch, on one rail and lane */
struct native_region;  /* one memory registration in one context */
struct native_window;  /* one Type-2 memory window in one context */
struct native_request; /* a connection request that has not been answered */

#define NATIVE_MAX_RAILS 16u
#define NATIVE_MAX_CONTEXTS 16u
#define NATIVE_MAX_SGE 16u
#define NATIVE_MAX_NODES 64u
#define NATIVE_PRIVATE_BYTES 56u /* what rdma_cm carries at least in a request (rdma_connect(3)) */
#define NATIVE_ADDRESS_BYTES 32u /* one rail's address in an invitation; opaque to the engine */

/* What a device can do and which of its zeros are proofs.  Filled by open_device. */
struct native_context_info {
	char name[64];     /* the device's, for records and texts */
	char provider[32]; /* e.g. "rxe", "mlx5_0"'s driver "mlx5", "mock" */
	uint64_t weak;     /* ESCROW_WEAK_*: answers that are no proof on this provider */
	uint64_t max_region_bytes;
	uint64_t max_message_bytes; /* of one work request */
	uint64_t max_window_bytes;
	uint32_t max_sge;
	uint32_t max_send_depth; /* of one connection */
	uint32_t max_cq_depth;
	uint32_t max_inline;
	uint32_t max_windows;
	uint32_t max_regions;
	uint32_t max_connections;
	uint32_t numa_node; /* UINT32_MAX = unknown */
	/* From the memory of each node, as the kernel counts (10 = the device's own); 0 = unknown. */
	uint8_t distance[NATIVE_MAX_NODES];
	/*
	 * 1: an access is held to the range of the window it goes through.  0: only to that of the
	 * registration under the window (rxe: check_rkey in drivers/infiniband/sw/rxe/rxe_resp.c
	 * looks at the MR's range and never at the window's; measured on 6.12), so the engine
	 * registers each granted range by itself and binds the window to that.
	 */
	uint32_t exact_windows;
	uint32_t hides_failures; /* 1: a destroy of any kind may say 0 where it failed */
};

/* A rail: device x port x address. */
struct native_rail_info {
	uint32_t context;                      /* index */
	uint32_t up;                           /* 0 or 1, at open; changes come as events */
	uint32_t mtu;                          /* bytes */
	uint32_t mbps;                         /* nominal, 0 = unknown */
	uint8_t address[NATIVE_ADDRESS_BYTES]; /* goes into invitations */
	char name[64];                         /* "rxe0/1 10.77.0.1" */
};

/* ---- Work ---------------------------------------------------------------------------------- */
/*
 * Requests, ranges and completions lie in memory as those of verbs do, opcodes and flags are numbered as
 * theirs: what the engine wrote is what the device is given, and nothing is translated a request.  The
 * RDMA backend asserts it (backends/rdma/transfer.c, lane.c).
 */
enum native_opcode {
	NATIVE_WRITE = 0,
	NATIVE_SEND = 2,
	NATIVE_READ = 4,
	NATIVE_INVALIDATE = 7, /* rkey */
	NATIVE_BIND = 8, /* window, region, addr, length, rights: the window gets key `rkey` */
};

#define NATIVE_FENCE 1u    /* start after earlier READs of this connection have ended */
#define NATIVE_SIGNALED 2u /* ask for a completion; errors complete always */
#define NATIVE_INLINE 8u   /* the bytes are taken before post returns; length <= max_inline */

/* The bytes must lie in a region of the connection's context. */
struct native_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t key; /* region_key() of it */
};

struct native_wr {
	uint64_t id; /* comes back in the completion: slot and generation, never a pointer */
	struct native_wr *next; /* of several, wr[i]'s is &wr[i + 1]; the last one's NULL */
	struct native_sge *sge; /* in-call */
	uint32_t nsge;
	enum native_opcode opcode;
	uint32_t flags;
	uint32_t reserved0;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t reserved1;
	/* BIND only */
	struct native_window *window;
	struct native_region *region;
	uint64_t addr;
	uint64_t length;
	uint32_t rights; /* ESCROW_MAY_* */
	uint32_t reserved2[9];
};

/* How a work request ended; by class, the vendor's code beside it. */
enum native_status {
	NATIVE_OK,
	NATIVE_LOCAL,         /* local length, protection or queue pair error */
	NATIVE_REMOTE_ACCESS, /* refused by the peer's key; a prefix may have landed */
	NATIVE_REMOTE,        /* another refusal of the peer */
	NATIVE_RNR,           /* the peer had no receive posted */
	NATIVE_RETRY,         /* no answer: not sent, done, or anything between */
	NATIVE_FLUSHED,
	NATIVE_OTHER,
};

#define NATIVE_RECV 128u /* of a receive */

struct native_cqe {
	uint64_t id;
	uint32_t
		status; /* NATIVE_OK; of a failure what the device says, `failure` tells its class */
	uint32_t kind;  /* NATIVE_RECV or not; defined for NATIVE_OK only: custody goes by id */
	uint32_t vendor; /* undefined for NATIVE_OK */
	uint32_t bytes;  /* of a receive that ended NATIVE_OK, else undefined */
	uint32_t reserved0[6];
};

/* ---- News ---------------------------------------------------------------------------------- */
enum native_event_kind {
	NATIVE_EV_REQUEST,      /* request, rail, data: accept or reject it, once */
	NATIVE_EV_ESTABLISHED,  /* conn: work may be posted; data of an accept for the active end */
	NATIVE_EV_REJECTED,     /* conn: the peer said no; data says why */
	NATIVE_EV_UNREACHABLE,  /* conn: nobody there, time-out, no route; error = errno */
	NATIVE_EV_DISCONNECTED, /* conn: the peer's end said goodbye or is gone (no receipt) */
	NATIVE_EV_CONN_ERROR,   /* conn: its queue pair is in error; EACCES: the peer broke in */
	NATIVE_EV_LANE_ERROR,   /* lane: its completion queue overran or broke */
	NATIVE_EV_RAIL_UP,      /* rail */
	NATIVE_EV_RAIL_DOWN, /* rail; error = EADDRNOTAVAIL: its address is gone, not only its link */
	NATIVE_EV_CONTEXT_FATAL, /* context */
};

struct native_event {
	enum native_event_kind kind;
	int32_t error;
	uint32_t rail;
	uint32_t context;
	struct native_conn *conn;
	struct native_lane *lane;
	struct native_request *request;
	uint32_t data_len;
	uint8_t data[NATIVE_PRIVATE_BYTES];
};

struct native_open_args {
	const struct escrow_host *host;
	const struct escrow_kv *kv; /* only the keys of this implementation, checked to be known */
	uint32_t nkv;
	uint32_t reserved0;
	const char *engine_name;
};

/* Who hears of rails. */
struct native_rail_report {
	void (*told)(void *ctx, const struct escrow_rail *rail);
	void *ctx;
};

struct native_conn_args {
	uint32_t rail;
	uint32_t send_depth;
	uint32_t recv_depth;
	uint32_t max_sge;
	uint32_t max_inline;
	uint32_t reserved0;
	void *user; /* handed back by conn_user */
};

/* ---- The table ------------------------------------------------------------------------------ */
struct native_ops {
	const char *id;                      /* the backend's */
	const struct escrow_option *options; /* the keys of this implementation */
	uint32_t noptions;
	uint32_t control_thread; /* 1: [ctrl] steps may sleep, so the engine runs a thread */
	uint64_t caps;           /* what to add to the engine's own: REMOTE, DMABUF, ... */

	/*
	 * [any] Reads the configuration, finds contexts and rails, opens nothing that needs a
	 * receipt.  Fills *error on failure.  free_native only when every object is gone.
	 */
	escrow_status (*open)(const struct native_open_args *args, struct native **out,
			      struct escrow_error *error);
	void (*free_native)(struct native *n);
	uint32_t (*ncontexts)(const struct native *n);
	uint32_t (*nrails)(const struct native *n);
	void (*rail_info)(const struct native *n, uint32_t rail, struct native_rail_info *out);

	/*
	 * [any] Both or none, once devices are open.  What the kernel lets this process lock for
	 * them, as *limit: 1; 0: it has no limit, or they lock nothing.  And what the process has
	 * locked now, as far as the kernel tells.
	 */
	int (*lock_limit)(const struct native *n, uint64_t *limit);
	uint64_t (*locked)(const struct native *n);

	/*
	 * [any] Optional.  How many more objects (queue pairs, registrations, windows, queues,
	 * domains) the kernel lets this process make on the device, and of how many: 1; 0: it has
	 * no such limit.
	 */
	int (*objects_left)(const struct native_context *c, uint64_t *left, uint64_t *limit);

	/* [ctrl] Devices and protection domains. */
	int (*open_device)(struct native *n, uint32_t index, struct native_context **out,
			   struct native_context_info *info, struct escrow_error *error);
	int (*close_device)(struct native_context *c);
	/*
	 * [ctrl] Optional.  Has the device said that it is lost?  Asked behind each step that went well: one that is
	 * gone may say 0 to anything, and the news of it comes before the answer.  next_event tells it too.
	 */
	int (*is_lost)(struct native_context *c);
	int (*alloc_pd)(struct native_context *c);
	int (*dealloc_pd)(struct native_context *c);
	/* With its protection domain: 1, or 0 if dma-bufs are not offered although `caps` has them; NULL is 1. */
	int (*takes_dmabuf)(const struct native_context *c);

	/* [ctrl] Lanes: channel, then completion queue; destroyed the other way round. */
	int (*create_channel)(struct native_context *c, struct native_lane **out);
	int (*create_cq)(struct native_lane *l, uint32_t depth);
	int (*destroy_cq)(struct native_lane *l);
	int (*destroy_channel)(struct native_lane *l);

	/* [data] Completions: how many were written, or < 0: the queue is unusable. */
	int (*poll_cq)(struct native_lane *l, struct native_cqe *cqe, int max);
	/* [data] Optional: it was told that the queue is unusable. */
	void (*poll_failed)(struct native_lane *l);
	/* [any] What the status of one that is not NATIVE_OK means; NULL: it is an enum native_status. */
	enum native_status (*failure)(uint32_t status);
	/* [data] Ask for a wake-up; the descriptor; take and acknowledge wake-ups. */
	int (*arm_cq)(struct native_lane *l);
	int (*lane_fd)(struct native_lane *l);
	int (*take_wakeups)(struct native_lane *l); /* 0 or errno; EIO: the channel is closed */

	/*
	 * Memory, with local and bind rights only.  register_region is [any]: the host waits for it
	 * on a thread of its own; deregister_region is [ctrl].
	 */
	int (*register_region)(struct native_context *c, const struct escrow_region_args *args,
			       struct native_region **out, struct escrow_error *error);
	int (*deregister_region)(struct native_region *r);
	/* [any] By which its bytes are named in ranges: the same for as long as it stands. */
	uint32_t (*region_key)(const struct native_region *r);

	/* [ctrl] Windows; bind and invalidate are work requests.  window_key: the current rkey,
	 * whose low 8 bits the owner of the window chooses at each bind. */
	int (*alloc_window)(struct native_context *c, struct native_window **out);
	int (*dealloc_window)(struct native_window *w);
	uint32_t (*window_key)(const struct native_window *w);

	/*
	 * [ctrl] Connections.  create_conn makes the queue pair.  connect starts, and one of
	 * ESTABLISHED, REJECTED, UNREACHABLE follows; accept answers a request with a connection
	 * made for it; reject ends a request.  disconnect only tells the peer (no receipt).
	 * Receives may be posted from create_conn on.
	 */
	int (*create_conn)(struct native_lane *l, const struct native_conn_args *args,
			   struct native_conn **out);
	void *(*conn_user)(const struct native_conn *conn);
	int (*connect)(struct native_conn *conn, const uint8_t *address, const void *data,
		       uint32_t len);
	int (*accept)(struct native_conn *conn, struct native_request *request, const void *data,
		      uint32_t len);
	int (*reject)(struct native *n, struct native_request *request, const void *data,
		      uint32_t len);
	int (*disconnect)(struct native_conn *conn);
	int (*conn_err)(struct native_conn *conn);   /* modify to ERR */
	int (*conn_reset)(struct native_conn *conn); /* modify to RESET */
	int (*destroy_conn)(struct native_conn *conn);

	/*
	 * [data] Posts wr[0..n), n >= 1, as one chain, the last of which has no next.  0: the device has
	 * all.  Of a failure *posted is how many it took (those owe completions, the rest was not looked
	 * at; who cannot tell says all).  If it took all and failed, the connection ends.  In one of BIND
	 * and INVALIDATE nothing else comes, and each has a window of its own.
	 */
	int (*post)(struct native_conn *conn, struct native_wr *wr, uint32_t n, uint32_t *posted);
	/*
	 * [data] Optional: behind a post that answered rc, which is neither an errno yet nor has said how
	 * many were taken.  So nothing stands behind a post that goes well.
	 */
	int (*post_failed)(struct native_conn *conn, struct native_wr *wr, uint32_t n,
			   uint32_t *posted, int rc);
	/* [data] One receive into control memory registered as `region`. */
	int (*post_recv)(struct native_conn *conn, uint64_t id, struct native_region *region,
			 uint64_t addr, uint32_t length);

	/*
	 * [any] Tells of every address, port and device that open looks at with these arguments, in
	 * the order of its rails, and what became of it (escrow/rails.h; `number` is not filled).
	 * That there is none is no failure.  NULL: nothing is told.
	 */
	escrow_status (*list_rails)(const struct native_open_args *args,
				    const struct native_rail_report *report,
				    struct escrow_error *error);

	/* [ctrl] News: 1 and *event, or 0.  event_fd: readable when there may be news, or -1. */
	int (*next_event)(struct native *n, struct native_event *event);
	int (*event_fd)(struct native *n);

	/* [ctrl] Test only (NULL if none): items of a fault plan that only the device can play:
	 * nic=, peer=, device=.  0, or EINVAL if not understood. */
	int (*fault)(struct native *n, const char *item);
};

/*
 * The one entry of a backend built on the engine: negotiates and returns the descriptor.
 * A backend's own file is `escrow_backend_entry_1` calling this with its table.
 */
struct engine_backend {
	const struct native_ops *native;
	const char *version;
};

#endif
