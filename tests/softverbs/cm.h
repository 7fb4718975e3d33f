/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection manager. What its messages, states and event contents are follows the kernel's
 * (drivers/infiniband/core/cm.c, cma.c) and librdmacm's. */
#ifndef SOFTVERBS_CM_H
#define SOFTVERBS_CM_H

#include <rdma/rdma_cma.h>

#include "tests/softverbs/device.h"
#include "tests/softverbs/evq.h"
#include "tests/softverbs/wire.h"

/* Private data of RDMA_PS_TCP: a request has 92 bytes less the 36 of the cma header. Events carry all of
 * it, padded with zeros. */
#define CM_REQ_DATA 56
#define CM_REP_DATA 196
#define CM_REJ_DATA 148
/* Reject reasons (InfiniBand specification, table 107). */
#define CM_REJ_INVALID_SERVICE 8
#define CM_REJ_CONSUMER 28

enum cm_kind { CM_REQ, CM_REP, CM_RTU, CM_REJ, CM_DREQ, CM_DREP, CM_KINDS };

/* The payload of a WIRE_CM packet. */
struct cm_wire {
	uint32_t kind;
	/* The sender's number for the connection, and the receiver's (0 in a request). */
	uint32_t src_id;
	uint32_t dst_id;
	uint32_t qpn;
	uint32_t psn;
	uint32_t reason;
	struct in6_addr src;
	struct in6_addr dst;
	uint16_t src_port;
	uint16_t dst_port;
	/* The rail it is sent from, and the one it is for. */
	uint8_t rail;
	uint8_t dst_rail;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint8_t data_size;
	uint8_t ipv4;
	/* Of a request: the asker's type of service. */
	uint8_t tos;
	/* And the MTU of its path. */
	uint8_t mtu;
	uint8_t data[CM_REP_DATA];
	/* What a compiler would leave as it finds it. */
	uint8_t pad;
};
_Static_assert(offsetof(struct cm_wire, pad) + 1 == sizeof(struct cm_wire),
	       "no byte without a name");

enum cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_ADDR_RESOLVED,
	CM_ROUTE_RESOLVED,
	CM_LISTEN,
	/* A request is out. */
	CM_CONNECT,
	/* The reply to it is in; the program has to establish. */
	CM_REP_RCVD,
	/* A request is in. */
	CM_REQ_RCVD,
	/* The reply to it is out. */
	CM_ACCEPTED,
	CM_ESTABLISHED,
	CM_DREQ_SENT,
	CM_DREQ_RCVD,
	CM_TIMEWAIT,
	/* Rejected, unreachable. */
	CM_FAILED,
};

struct cm_channel {
	struct rdma_event_channel ib;
	struct object obj;
	struct evq events;
};

struct cm_id {
	struct rdma_cm_id ib;
	struct object obj;
	struct list node;
	/* Made without a channel: calls wait for their event (rdma_create_ep). */
	bool sync;
	enum cm_state state;
	int rail;
	struct in6_addr src;
	struct in6_addr dst;
	uint16_t src_port;
	uint16_t dst_port;
	bool ipv4;
	bool bound;
	/* Requests that a listener may have waiting, and has. */
	int backlog;
	int waiting;
	/* This id's number on the wire, and the peer's. */
	uint32_t number;
	uint32_t peer;
	uint16_t peer_node;
	uint32_t qpn;
	uint32_t psn;
	uint32_t peer_qpn;
	uint32_t peer_psn;
	uint8_t peer_rail;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	/* rdma_set_option(), or what the request came with: of the whole connection (kernel cm.c, the path). */
	uint8_t tos;
	/* The asker's MTU, at both ends (kernel cm_req_handler); 0 before the request. */
	uint8_t mtu;
	/* When it has waited long enough, in CM_CONNECT, CM_DREQ_SENT and CM_TIMEWAIT. */
	uint64_t deadline;
	uint32_t events_given;
	uint32_t events_acked;
	/* rdma_create_ep(): what the queue pairs of its requests are made with. */
	struct ibv_qp_init_attr *ep_init;
	struct ibv_pd *ep_pd;
};

/* One event; it belongs to the program between get and ack. */
struct cm_event {
	struct list node;
	struct rdma_cm_event ev;
	/* The id whose count it is in: for a request, the listener. */
	struct cm_id *counted;
	struct cm_id *id;
	uint8_t data[CM_REP_DATA];
};

static inline struct cm_id *cm_of(struct rdma_cm_id *ib)
{
	return container(ib, struct cm_id, ib);
}

static inline struct cm_channel *cm_channel_of(struct rdma_event_channel *ib)
{
	return container(ib, struct cm_channel, ib);
}

/* ---- lock held ---- */
struct cm_id *cm_make(struct cm_channel *ch, void *context, enum rdma_port_space ps);
/* Releases what cm_make() made, with its queued events. */
void cm_free(struct cm_id *id);
struct cm_id *cm_find(uint32_t number);
void cm_each(void (*fn)(struct cm_id *id, void *arg), void *arg);
/* Queues an event for the id. 'wire' gives parameters and private data, or NULL. */
struct cm_event *cm_event(struct cm_id *id, enum rdma_cm_event_type type, int status,
			  const struct cm_wire *wire);
/* Sends a message to the id's peer. */
void cm_send(struct cm_id *id, enum cm_kind kind, uint32_t reason, const void *data, size_t size);
/* Answers a request that is not ours to take. */
void cm_refuse(const struct packet *p, const struct cm_wire *req, uint32_t reason);
void cm_timewait(struct cm_id *id);
/* Gives the id an address and a port (0: a free one). Returns 0 or an errno value. */
int cm_bind(struct cm_id *id, const struct in6_addr *addr, uint16_t port, bool ipv4);
/* Fills ib.route from src, dst and the ports. */
void cm_route(struct cm_id *id);
/* Given to the device thread. */
void cm_receive(const struct packet *p);
/* A node is gone: its connections break. */
void cm_node_gone(uint16_t node);
/* Runs timers; returns when the next is due, or UINT64_MAX. */
uint64_t cm_time(uint64_t now);
/* In the child of a fork(): no id is left. */
void cm_forked(void);
void cm_contexts_forget(void);
/* Closes the contexts that cm_context() opened, unless a program may still have them: false then. */
bool cm_contexts_close(void);

/* ---- without the lock ---- */
/* The context that ids on the rail have; opened once. */
struct ibv_context *cm_context(int rail);
/* Of a synchronous id, waits for its event. Returns 0, or -1 and errno. */
int cm_wait(struct cm_id *id);
/* Moves the queue pair of an id on. Return 0, or an errno value. */
int cm_qp_init(struct rdma_cm_id *id, struct ibv_qp *qp);
int cm_qp_rtr(struct rdma_cm_id *id);
int cm_qp_rts(struct rdma_cm_id *id);
/* librdmacm's convention. */
static inline int cm_result(int err)
{
	if (!err)
		return 0;
	errno = err;
	return -1;
}

#endif
