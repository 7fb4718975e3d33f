/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma.h - what the files of the RDMA backend share: the native table (backends/engine/native.h)
 * on libibverbs and librdmacm.
 *
 * Ownership: a struct native owns its rails and listeners; contexts, lanes, regions, windows and
 * connections belong to the engine's ledger and are made and ended by its steps.  A struct whose
 * destroy step failed is leaked on purpose: the device may still use what it points to
 * (ibv_destroy_qp(3) says nothing about it; siw, irdma and ocrdma free or unmap before they know).
 */
#ifndef ESCROW_RDMA_H
#define ESCROW_RDMA_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <rdma/rdma_cma.h>
#include <infiniband/verbs.h>

#include "backends/engine/native.h"

/* No attribute tells the limit; rxe takes 512, mlx5 more (providers/mlx5/verbs.c). */
#define RDMA_MAX_INLINE 256u
#define PKEY_BASE 0x7fffu /* a partition key without the bit of its membership */

struct rdma_settings {
	char rails[512]; /* "device:port:address,..." patterns; empty = every usable rail */
	int prefer_ipv6;
	uint8_t timeout;   /* 4.096 us x 2^timeout, ibv_modify_qp(3) */
	uint8_t retry;     /* 0..6: 7 is endless on rxe while the peer's queue pair is dead */
	uint8_t rnr_retry; /* 0..6: 7 is endless by definition */
	uint8_t min_rnr_timer;
	uint8_t traffic_class;
	int service_level; /* -1: as rdma_init_qp_attr() has it */
	uint16_t pkey;     /* 0: the default partition */
	uint8_t rd_atomic;
	int dmabuf;
	int relaxed_ordering;
	int allow_weak_environment;
	int allow_unknown_provider;
	int connect_ms;
	char call_log[256];
	char sysfs[100];
};

/* Of two structs of one layout. */
#define SAME_PLACE(a, member, b, other)                                                            \
	(offsetof(struct a, member) == offsetof(struct b, other) &&                                \
	 sizeof(((struct a *)NULL)->member) == sizeof(((struct b *)NULL)->other))

enum rail_state { RAIL_DOWN, RAIL_UP, RAIL_NO_ADDRESS };

struct rdma_rail {
	struct native_rail_info info;
	struct native *native;
	struct rdma_cm_id *listener;
	char device[64];
	uint8_t port;
	union ibv_gid gid;
	uint32_t gid_index;   /* where it was found; addresses are what counts */
	uint16_t pkey_index;  /* of the partition key in the port's table */
	uint32_t max_message; /* that the port takes; 0: it does not say */
	struct sockaddr_storage addr;
	enum rail_state state; /* as it was told last */
};

/* What the device said of a queue pair or completion queue, and the engine has not been told. */
struct native_said {
	struct native_said *next;
	struct native_conn *conn; /* NULL: of the lane */
	struct native_lane *lane;
	int32_t error;
	bool waits;
};

/* A queue pair or completion queue whose destroy failed: whether its memory is still there nobody knows. */
struct native_dead {
	const void *object;
	struct native_dead *next;
};

struct native_context {
	struct native *native;
	uint32_t index;
	char device[64];
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	bool dmabuf; /* its driver and the kernel take dma-bufs; known with the protection domain */
	bool gone;   /* its events say that it is lost */
	int fatal;   /* and the engine has been told */
	struct native_said *said;
	int counted;           /* a control group had a limit of its objects when it was opened */
	_Atomic int plan_lost; /* a fault plan says that the device is */
	uint32_t recheck;      /* rails from here on are to be looked at again */
	struct native_dead *dead;
};

struct native_lane {
	struct native_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct verbs_log *log;
	struct native_dead dead;
	struct native_said said;
};

struct native_region {
	struct native_context *context;
	struct ibv_mr *mr;
	uint32_t lkey;
};

struct native_window {
	struct native_context *context;
	struct ibv_mw *mw;
};

enum rdma_conn_state {
	RDMA_CONN_IDLE,
	RDMA_CONN_RESOLVING,
	RDMA_CONN_ROUTING,
	RDMA_CONN_CONNECTING,
	RDMA_CONN_ACCEPTING,
	RDMA_CONN_UP,
	RDMA_CONN_DOWN,
};

struct native_conn {
	struct native_lane *lane;
	struct rdma_rail *rail;
	struct ibv_qp *qp;
	struct ibv_send_wr *bad; /* of a post */
	struct rdma_cm_id *id;
	enum rdma_conn_state state;
	uint8_t path_mtu; /* enum ibv_mtu, from RTR on */
	void *user;
	uint32_t max_inline;
	struct native_dead dead;
	struct native_said said;
	uint8_t data[NATIVE_PRIVATE_BYTES]; /* of our request, until rdma_connect */
	uint32_t data_len;
};

struct native_request {
	struct rdma_rail *rail;
	struct rdma_cm_id *id;
	uint8_t rd_atomic; /* what the peer can take and give, at most */
	uint8_t dest_rd_atomic;
};

struct native {
	const struct escrow_host *host;
	const struct native_rail_report *report; /* NULL, but in list_rails */
	struct rdma_settings set;
	struct verbs_log *log;
	uint32_t nrails;
	uint32_t ncontexts;
	bool full;          /* a device was there that nobody may open now */
	bool several;       /* devices are there */
	char elsewhere[64]; /* a device that has the address of another one's rail, or "" */
	struct rdma_rail rails[NATIVE_MAX_RAILS];
	char devices[NATIVE_MAX_CONTEXTS][64];                /* of each context */
	struct native_context *contexts[NATIVE_MAX_CONTEXTS]; /* open ones */
	struct rdma_event_channel *cm;
	int epoll_fd;
};

/* native.c: the table itself. */
extern const struct native_ops rdma_native;

/* settings.c: reads the keys into *set. */
#define RDMA_NOPTIONS 17
extern const struct escrow_option rdma_options[RDMA_NOPTIONS];
escrow_status settings_read(const struct escrow_kv *kv, uint32_t nkv, struct rdma_settings *set,
			    struct escrow_error *error);

/* fault.c: plays an item of a test's fault plan; EINVAL unless the verbs are softverbs'. */
int fault_play(struct native *n, const char *item);

/* error.c: fills *error (NULL is allowed) and returns its status. */
escrow_status error_set(struct escrow_error *error, escrow_status status, int sys_errno,
			const char *format, ...) __attribute__((format(printf, 4, 5)));

/* And what the errno of a call of ours means that makes something: E_NO_MEMORY or E_DEVICE. */
escrow_status error_status(int rc);

/* provider.c: what kind of device it is, and which of its answers are proofs. */
struct provider {
	const char *name;
	uint64_t weak;     /* ESCROW_WEAK_* */
	int exact_windows; /* native_context_info.exact_windows */
	int refused;       /* never usable, whatever the configuration says */
	const char *why;
};
const struct provider *provider_of(const struct ibv_context *verbs,
				   const struct ibv_device_attr *attr);
/* The name of the environment variable that voids every destroy receipt, or NULL. */
const char *provider_environment(void);

/*
 * topology.c: the NUMA node of a device, UINT32_MAX if sysfs (below root) does not tell; and how far the
 * memory of each node is from it, 0 where that is not known.
 */
uint32_t topology_node(const char *root, const char *device);
void topology_distances(const char *root, uint32_t node, uint8_t out[NATIVE_MAX_NODES]);

/* A device that is looked at, through a context of its own, for its rails. */
struct rail_look {
	struct native *native;
	const char *device;
	struct ibv_context *verbs;
	const struct provider *provider; /* NULL until report_begin */
	struct ibv_device_attr attr;
	struct ibv_gid_entry *gids;
	int ngids;
	unsigned port; /* 0: the device */
	struct ibv_port_attr port_attr;
	bool port_known; /* port_attr is filled */
	uint16_t pkey_index;
	char closed[64];             /* why nothing of the port is used, or "" */
	struct escrow_error refusal; /* status < 0: open would refuse the device */
};

/*
 * report.c: tells whoever listens, if anybody, what became of an address, or (gid NULL) of a port or
 * a device that has none.  why: a reason not to use it, or NULL.
 */
void report_begin(struct rail_look *look);
void report_rail(const struct rail_look *look, const struct ibv_gid_entry *gid, const char *why,
		 ...) __attribute__((format(printf, 3, 4)));

/* rail.c: finds the rails; the address that goes into invitations. */
escrow_status rail_find(struct native *n, struct escrow_error *error);
void rail_address(const struct sockaddr_storage *addr, uint8_t *out);
int rail_parse_address(const uint8_t *in, struct sockaddr_storage *addr);
void rail_text(const struct sockaddr_storage *addr, char *text, size_t size);
void rail_gid_address(const struct ibv_gid_entry *e, struct sockaddr_storage *addr);
/* The rail's address still stands in its port's table: a GID can vanish, or move. */
int rail_gid_is_there(const struct rdma_rail *rail, struct ibv_context *verbs);

/* context.c */
/* Why a device was not opened. */
escrow_status context_refused(struct escrow_error *error, int rc, const char *device);
/* The reasons not to use a device at all.  Its provider, or NULL with *error filled. */
const struct provider *context_check(const struct native *n, const char *device,
				     const struct ibv_context *verbs,
				     const struct ibv_device_attr *attr,
				     struct escrow_error *error);
int context_open(struct native *n, uint32_t index, struct native_context **out,
		 struct native_context_info *info, struct escrow_error *error);
int context_close(struct native_context *c);
int context_alloc_pd(struct native_context *c);
int context_dealloc_pd(struct native_context *c);
/* It takes dma-bufs, and is meant to. */
int context_takes_dmabuf(const struct native_context *c);
/* News of the device: 1 and *event, or 0.  Its events are read and acknowledged at once, all that there are. */
int context_next_event(struct native_context *c, struct native_event *event);
/* Do its events say that it is lost?  What else they say is kept for the above. */
int context_is_lost(struct native_context *c);
/* It ends: what was said of it concerns nobody. */
void context_unsay(struct native_context *c, const struct native_said *said);
/* Its destroy failed: events of it are not looked into; until a new one is made in the same place. */
void context_object_dead(struct native_context *c, struct native_dead *dead, const void *object);
void context_object_lives(struct native_context *c, const void *object);

/* lane.c */
int lane_create_channel(struct native_context *c, struct native_lane **out);
int lane_create_cq(struct native_lane *l, uint32_t depth);
int lane_destroy_cq(struct native_lane *l);
int lane_destroy_channel(struct native_lane *l);
int lane_poll(struct native_lane *l, struct native_cqe *cqe, int max);
void lane_poll_failed(struct native_lane *l);
enum native_status lane_failure(uint32_t status);
int lane_arm(struct native_lane *l);
int lane_fd(struct native_lane *l);
int lane_take_wakeups(struct native_lane *l);

/* registration.c */
/* The rights of every registration, IBV_ACCESS_*. */
int registration_access(const struct native *n);
int registration_make(struct native_context *c, const struct escrow_region_args *args,
		      struct native_region **out, struct escrow_error *error);
int registration_end(struct native_region *r);
uint32_t registration_key(const struct native_region *r);

/*
 * cgroup.c: how many objects a control group ("/a/b") and those above it leave on the device, and the limit
 * that leaves so few; false: none has one.  And of this process's group: only if it had one at the count.
 */
bool cgroup_objects(const char *root, const char *of, const char *device, uint64_t *left,
		    uint64_t *limit);
void context_count_objects(struct native_context *c);
int context_objects(const struct native_context *c, uint64_t *left, uint64_t *limit);

/* memlock.c */
uint64_t memlock_pinned(void); /* by this process, in every device: proc_pid_status(5), VmPin */
bool memlock_holds(uint64_t *limit); /* false: this process has no limit that counts */
/* What a registration locks: whole pages (kernel umem.c, ib_umem_num_pages). */
uint64_t memlock_pages(const void *addr, uint64_t length);
int memlock_limit(const struct native *n, uint64_t *limit);
uint64_t memlock_locked(const struct native *n);

/* window.c */
int window_alloc(struct native_context *c, struct native_window **out);
int window_dealloc(struct native_window *w);
uint32_t window_key(const struct native_window *w);

/* connection.c: the queue pair. */
int connection_create(struct native_lane *l, const struct native_conn_args *args,
		      struct native_conn **out);
void *connection_user(const struct native_conn *conn);
int connection_err(struct native_conn *conn);
int connection_reset(struct native_conn *conn);
int connection_destroy(struct native_conn *conn);
/* INIT -> RTR -> RTS with what was agreed on; peer_mtu: enum ibv_mtu, or 0 if the peer named none. */
int connection_ready(struct native_conn *conn, uint8_t rd_atomic, uint8_t dest_rd_atomic,
		     uint8_t peer_mtu);

/* cm.c: the connection manager. */
escrow_status cm_open(struct native *n, struct escrow_error *error);
void cm_close(struct native *n);
/*
 * Whose device the connection manager takes the address for, if not this one's: it goes by the address alone, and takes
 * the first device that has it (kernel cma.c, cma_acquire_dev_by_src_ip).  False: this one's, or it does not say.
 */
bool cm_elsewhere(struct native *n, const struct sockaddr_storage *addr, const char *device,
		  char other[64]);
int cm_connect(struct native_conn *conn, const uint8_t *address, const void *data, uint32_t len);
int cm_accept(struct native_conn *conn, struct native_request *request, const void *data,
	      uint32_t len);
int cm_reject(struct native *n, struct native_request *request, const void *data, uint32_t len);
int cm_disconnect(struct native_conn *conn);
int cm_next_event(struct native *n, struct native_event *event);

/* transfer.c: the data path. */
int transfer_post(struct native_conn *conn, struct native_wr *wr, uint32_t n, uint32_t *posted);
int transfer_post_failed(struct native_conn *conn, struct native_wr *wr, uint32_t n,
			 uint32_t *posted, int rc);
int transfer_post_recv(struct native_conn *conn, uint64_t id, struct native_region *region,
		       uint64_t addr, uint32_t length);

#endif
