/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues and channels. */
#ifndef SOFTVERBS_CQ_H
#define SOFTVERBS_CQ_H

#include <stdatomic.h>

#include "tests/softverbs/device.h"

struct qp;

struct channel {
	struct ibv_comp_channel ib;
	struct object obj;
	struct context *ctx;
	struct evq events;
};

/* One completion, with what its polling gives back. */
struct cqe {
	struct ibv_wc wc;
	/* NULL after the queue pair is gone. */
	struct qp *qp;
	bool receive;
	/* Polling it frees the queue's slots below this count. */
	uint64_t upto;
	/* Not to be seen before (adversary). */
	uint64_t visible_at;
	bool solicited;
};

/* One completion event of a channel. */
struct cq_event {
	struct list node;
	struct cq *cq;
};

struct cq {
	struct ibv_cq ib;
	struct object obj;
	struct context *ctx;
	struct cqe *ring;
	/* Counters over the ring of ib.cqe entries. */
	uint64_t head;
	uint64_t tail;
	/* Entries up to here may be seen; what ibv_poll_cq() reads before it takes the lock. */
	_Atomic uint64_t visible;
	/* Mirror of head for the same purpose. */
	_Atomic uint64_t polled;
	/* It overran: nothing can be had from it any more. */
	_Atomic bool dead;
	enum { CQ_UNARMED, CQ_ARMED_SOLICITED, CQ_ARMED } armed;
	/* QPs that use it (each counts once per queue). */
	unsigned int users;
	/* Events handed to the program, to be held against the acknowledged ones. */
	uint32_t comp_given;
	uint32_t async_given;
	struct list late;
};

static inline struct cq *cq_of(struct ibv_cq *ib)
{
	return container(ib, struct cq, ib);
}

static inline struct channel *channel_of(struct ibv_comp_channel *ib)
{
	return container(ib, struct channel, ib);
}

/* All below: lock held. */

/* Adds a completion. One more than the queue holds kills the queue (IBV_EVENT_CQ_ERR). */
void cq_push(struct cq *cq, const struct cqe *entry);
/* Deletes the completions of a queue pair that were not polled. */
void cq_delete(struct cq *cq, const struct qp *qp);
/* Forgets the queue pair in them, but leaves them to be polled. */
void cq_orphan(struct cq *cq, const struct qp *qp);
/* Makes late completions visible. Returns when to call again, or UINT64_MAX. */
uint64_t cq_late(uint64_t now);
/* In the child of a fork(): none is left. */
void cq_forked(void);
int cq_poll(struct ibv_cq *ib, int max, struct ibv_wc *wc);
int cq_arm(struct ibv_cq *ib, int solicited_only);

#endif
