/* SPDX-License-Identifier: BSD-2-Clause */
/* The device's own thread, and the two halves of an RC queue pair that it runs. */
#ifndef SOFTVERBS_NIC_H
#define SOFTVERBS_NIC_H

#include "tests/softverbs/qp.h"
#include "tests/softverbs/wire.h"

/* All below: lock held. */

/* Starts the device of this process (thread, fabric) if it does not run. */
void nic_start(void);
/* Without the lock: ends the device if nothing of it is open any more, so that nothing of it (thread,
 * descriptors, node) stays behind. nic_start() makes a new one. */
void nic_stop_if_unused(void);
/* The queue pair has work; the device wakes up. */
void nic_run(struct qp *qp);
/* Something else has work for the device (a timer, the connection manager). */
void nic_wake(void);

/* Sends what may be sent, completes what is done, flushes in ERR. Returns false if it has to be
 * called again without a new reason (its share for this turn is used up). */
bool requester_run(struct qp *qp);
/* An answer came: acknowledgement, refusal, READ data. */
void requester_answer(struct qp *qp, const struct packet *p);
/* When requester_timer() is due, or UINT64_MAX. */
uint64_t requester_due(const struct qp *qp);
void requester_timer(struct qp *qp, uint64_t now);
/* The node it talks to is gone: what is under way counts as lost. */
void requester_peer_gone(struct qp *qp);

void responder_reset(struct responder *resp, uint32_t psn);
/* A request came. 'qp' is NULL if there is no such queue pair. */
void responder_request(struct qp *qp, const struct packet *p);
/* Sends on with the READs. Returns false to be called again. */
bool responder_run(struct qp *qp);
/* Every posted receive completes with a flush error. */
void responder_flush(struct qp *qp);

#endif
