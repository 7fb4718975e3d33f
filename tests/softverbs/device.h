/* SPDX-License-Identifier: BSD-2-Clause */
/* The rails, and what a program opens on them. */
#ifndef SOFTVERBS_DEVICE_H
#define SOFTVERBS_DEVICE_H

#include "tests/softverbs/base.h"
#include "tests/softverbs/evq.h"

struct qp;
struct cq;

enum {
	/* An RoCE GID is an address, and the kernel fills the table in this order (ib_cache, roce_gid_mgmt). */
	DEVICE_LINK_LOCAL = 0,
	DEVICE_IPV4,
	DEVICE_IPV6,
	/* An IPv4 address of a VLAN interface on top of the port's own. */
	DEVICE_VLAN,
	DEVICE_GIDS,
	DEVICE_GID_TABLE = 16,
	DEVICE_PKEYS = 8,
	DEVICE_MAX_SGE = 16,
	DEVICE_MAX_QP_WR = 16384,
	DEVICE_MAX_CQE = 4194303, /* as mlx5 */
	DEVICE_MAX_INLINE = 512,
	DEVICE_MAX_RD_ATOMIC = 16,
	DEVICE_MAX_OBJECTS = 16383,
	DEVICE_MAX_KEYS = 1000000, /* regions; windows */
};
#define DEVICE_MAX_MSG (1u << 30)
#define DEVICE_MAX_MR (1ull << 40)
/* mlx5: a window is at most 2 GiB (rdma-core providers/mlx5/qp.c). */
#define DEVICE_MAX_MW (1ull << 31)

struct device {
	struct ibv_device ib;
	int rail;
	union ibv_gid gids[DEVICE_GIDS];
	/* The first entry of its GID table that is taken, and whether they stand in the reverse order. */
	int first_gid;
	bool gids_turned;
	enum ibv_mtu mtu;
	uint8_t rd_atomic;
	uint16_t pkeys[DEVICE_PKEYS];
	int npkeys;
	bool port_up;
	/* The IPv4-mapped GID was taken away. */
	bool gid_gone;
	/* Everything this process sends on the rail is lost, silently. */
	bool blackhole;
	/* Open contexts. */
	struct list contexts;
};

struct context {
	struct object obj;
	struct device *device;
	struct list node;
	struct evq async;
	/* DEVICE_FATAL was raised. */
	bool fatal;
	/* softverbs_hold() */
	bool held;
	/* The device was removed. */
	bool removed;
	/* Living children, for the rule that a context is closed last. */
	unsigned int children;
	/* Must be last: the program holds a pointer to v.context. */
	struct verbs_context v;
};

struct pd {
	struct ibv_pd ib;
	struct object obj;
	struct context *ctx;
	/* MRs, MWs and QPs that pin it. */
	unsigned int users;
};

/* An event on its way to, or in the hands of, the program. */
struct async_event {
	struct list node;
	struct ibv_async_event ev;
	struct qp *qp;
	struct cq *cq;
};

static inline struct context *context_of(struct ibv_context *ib)
{
	return container(ib, struct context, v.context);
}

static inline struct pd *pd_of(struct ibv_pd *ib)
{
	return container(ib, struct pd, ib);
}

/* The rail's device; made at first use. Lock held. NULL if there is no such rail. */
struct device *device_get(int rail);
/* In the child of a fork(): none of its contexts is open. */
void device_forked(void);
/* The entry of its table, or NULL if there is none. */
const union ibv_gid *device_gid(const struct device *d, int index);
/* The address as a GID, and the index of its entry; of an address that is none of its own, which came here by way of the
 * machine's, that of its IPv4 address. */
const union ibv_gid *device_gid_of(const struct device *d, const struct in6_addr *addr);
int device_gid_index(const struct device *d, const struct in6_addr *addr);
/* The rail that owns 'gid', or -1. */
int device_rail_of_gid(const union ibv_gid *gid);
/* The rail that owns an IPv4 address (127.0.0.1 and the machine's other own addresses are rail 0's),
 * or -1. */
int device_rail_of_addr(struct in_addr addr);
/* Raises an asynchronous event. 'qp' and 'cq' say what it is about; both NULL: the port. Lock held. */
void async_raise(struct context *ctx, enum ibv_event_type type, struct qp *qp, struct cq *cq);
/* Takes the undelivered events about an object out of the queue: what the kernel does at its destroy.
 * Lock held. */
void async_forget(struct context *ctx, const struct qp *qp, const struct cq *cq);
/* A destroy with events that the program has not acknowledged: breaks a rule, and else waits, as
 * rdma-core's ibv_cmd_destroy_qp() does. Lock held. */
void async_wait_acks(const struct object *obj, const uint32_t *given, const uint32_t *acked,
		     const char *call);
/* Wakes those. Lock held. */
void async_acknowledged(void);
/* The ends of a context and of a protection domain, without a call's frame. Lock held. */
void context_close(struct context *ctx);
void pd_close(struct pd *pd);
/* Fills in the functions that the inline wrappers of <infiniband/verbs.h> call. */
void context_set_ops(struct context *ctx);

#endif
