/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs: RC only. */
#ifndef SOFTVERBS_QP_H
#define SOFTVERBS_QP_H

#include "tests/softverbs/cq.h"
#include "tests/softverbs/device.h"
#include "tests/softverbs/mr.h"
#include "tests/softverbs/softverbs.h"
#include "tests/softverbs/wire.h"

enum wqe_state {
	/* Not yet looked at. */
	WQE_POSTED,
	/* Some of it is on the wire, or all of it and no answer yet. */
	WQE_SENT,
	/* Answered, or done locally; waits for its turn to complete. */
	WQE_DONE,
};

/* A send work request. */
struct wqe {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	unsigned int flags;
	unsigned int num_sge;
	struct ibv_sge *sge;
	/* Inline payload, copied when it was posted. */
	uint8_t *inl;
	uint64_t length;
	uint64_t raddr;
	uint32_t rkey;
	/* Immediate, or the key to invalidate. */
	uint32_t imm;
	struct mw *mw;
	uint32_t mw_old_key;
	struct ibv_mw_bind_info bind;
	enum wqe_state state;
	enum ibv_wc_status status;
	/* Message number; valid once sent. */
	uint32_t psn;
	bool numbered;
	/* Bytes put on the wire, and (READ) bytes that came back. */
	uint64_t sent;
	uint64_t got;
	/* Adversary: transmissions of the whole message still to be made before the real one. */
	unsigned int rereads;
};

struct rqe {
	uint64_t wr_id;
	unsigned int num_sge;
	struct ibv_sge *sge;
};

/* A READ that the responder is answering. */
struct read_job {
	struct list node;
	struct wire_header request;
	uint64_t sent;
	bool duplicate;
};

/* The responder half. */
struct responder {
	/* The message that is expected, and how many of its bytes are in. */
	uint32_t epsn;
	uint64_t got;
	/* The sender was told to go back; what it sent since is dropped without another word. */
	bool deaf;
	/* READs being answered. */
	struct list jobs;
	unsigned int job_count;
};

struct qp {
	/* ib must be first of the union's public face: programs cast between the two. */
	union {
		struct ibv_qp ib;
		struct ibv_qp_ex ex;
	};
	struct object obj;
	struct context *ctx;
	struct pd *pd;
	struct cq *scq;
	struct cq *rcq;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	enum ibv_qp_state state;
	/* Where packets go: from the address vector. */
	int dst_rail;

	struct wqe *sq;
	/* Counters over the ring of init.cap.max_send_wr: completed, to be sent next, to be posted
	 * next, and given back by polling. */
	uint64_t sq_head;
	uint64_t sq_next;
	uint64_t sq_tail;
	uint64_t sq_freed;
	bool sq_failed; /* a request completed with an error */
	struct rqe *rq;
	uint64_t rq_head;
	uint64_t rq_tail;
	uint64_t rq_freed;

	/* The requester half. */
	uint32_t next_psn;
	unsigned int reads_out;
	unsigned int retries;
	unsigned int rnr_retries;
	uint64_t rnr_until;
	/* When the oldest unanswered request is given up or sent again; 0: nothing is. */
	uint64_t deadline;
	/* It is known that the last packet was lost: send nothing before the deadline. */
	bool lost;
	struct responder resp;

	struct list windows;
	/* In the list of those with work. */
	struct list run;
	struct list node;
	uint32_t async_given;
	/* softverbs_cqe() */
	enum softverbs_cqe_mode cqe_mode;
	unsigned int cqe_skip;
	unsigned int cqe_count;
	struct list held;
	/* The connection manager was told that the first message arrived. */
	bool comm_est;
	/* Extended posting (ibv_wr_start). */
	struct qp_batch *batch;
};

static inline struct qp *qp_of(struct ibv_qp *ib)
{
	return container(ib, struct qp, ib);
}

static inline struct wqe *qp_wqe(struct qp *qp, uint64_t count)
{
	return &qp->sq[count % qp->init.cap.max_send_wr];
}

static inline struct rqe *qp_rqe(struct qp *qp, uint64_t count)
{
	return &qp->rq[count % qp->init.cap.max_recv_wr];
}

/* All below: lock held. */

/* The queue pair of this process with that number on the rail, or NULL. */
struct qp *qp_find(int rail, uint32_t qpn);
/* In the child of a fork(): none is left. */
void qp_forked(void);
/* Calls 'fn' for every queue pair of this process. */
void qp_each(void (*fn)(struct qp *qp, void *arg), void *arg);
/* create_qp_ex of <infiniband/verbs.h>. */
struct ibv_qp *qp_create_ex(struct ibv_context *ib, struct ibv_qp_init_attr_ex *init);
struct ibv_qp *qp_create(struct pd *pd, struct ibv_qp_init_attr *init, int *err);
/* Returns 0 or an errno value, without effect then. */
int qp_destroy(struct qp *qp);
/* The process lost it without a destroy (its context was closed): it stops, and nothing tells. */
void qp_abandon(struct qp *qp);
/* Its device was removed: it stops for good, and nothing tells. */
void qp_halt(struct qp *qp);
int qp_modify(struct qp *qp, const struct ibv_qp_attr *attr, int mask);
/* Moves it to ERR by itself, and raises 'event' unless that is -1. */
void qp_fail(struct qp *qp, int event);
/* Hands a completion to the queue, through what softverbs_cqe() asked for. 'w' is the send request, or
 * NULL. */
void qp_complete(struct qp *qp, const struct cqe *entry, const struct wqe *w);
/* Whether a transition is legal, and with these attributes. Returns 0 or EINVAL. */
int qpstate_check(enum ibv_qp_state from, enum ibv_qp_state to, int mask);
/* Whether the attribute values are in the device's ranges. Returns 0 or EINVAL. */
int qpstate_values(const struct qp *qp, const struct ibv_qp_attr *attr, int mask);
void qp_ex_set_ops(struct qp *qp);

/* Each takes the lock itself. */
int post_send(struct ibv_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_bind(struct ibv_qp *ib, struct ibv_mw *mw, struct ibv_mw_bind *bind);
struct ibv_mw *mw_alloc(struct ibv_pd *ib, enum ibv_mw_type type);
int mw_dealloc(struct ibv_mw *ib);

#endif
