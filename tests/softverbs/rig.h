/* SPDX-License-Identifier: BSD-2-Clause */
/* Two connected queue pairs in this process, for tests of softverbs. */
#ifndef SOFTVERBS_RIG_H
#define SOFTVERBS_RIG_H

#include <stdbool.h>
#include <infiniband/verbs.h>

#include "tests/lib/testing.h"
#include "tests/softverbs/softverbs.h"

#define RIG_BYTES (1u << 20)

/* The tests of what every device does are also built against the real libraries (tests/softverbs/real-*),
 * where the control interface is missing. */
#pragma weak softverbs_settle
#pragma weak softverbs_port

/* Whether this runs on softverbs. */
bool rig_double(void);
/* Waits until the device has finished what it can finish without us. */
void rig_settle(void);
/* The address of rail 0 or 1, on softverbs and in the guest of ./dev softroce. */
#define RIG_ADDR(rail) ((rail) ? "10.77.1.1" : "10.77.0.1")

struct rig_side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq;
	struct ibv_cq *rcq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *buf;
};

struct rig {
	struct rig_side a;
	struct rig_side b;
	/* What rig_open() uses; a test may change them before. */
	int rail;
	int depth;
	int cqe;
	int sig_all;
	unsigned int mr_access;
	unsigned char timeout;
	unsigned char retry_cnt;
	unsigned char rnr_retry;
	unsigned char min_rnr_timer;
};

void rig_defaults(struct rig *r);
/* For main(): testing_run() with the addresses of RIG_ADDR(). */
int rig_run(Suite *suite);
/* The same of one test, in this process: where what it does is counted, that is what is meant. */
int rig_run_here(const char *name, const TTest *test);
/* Opens one side, with its queue pair in RESET, and closes it. */
void rig_open_side(struct rig *r, struct rig_side *s);
void rig_close_side(struct rig_side *s);
/* Opens both sides with queue pairs in RESET. */
void rig_open(struct rig *r);
/* Brings a queue pair from RESET to INIT, RTR, RTS. Return what ibv_modify_qp returns. */
int rig_init(struct ibv_qp *qp);
int rig_rtr(struct rig *r, struct ibv_qp *qp, uint32_t dest_qpn);
int rig_rts(struct rig *r, struct ibv_qp *qp);
/* rig_open() and all three, on both sides. */
void rig_connect(struct rig *r);
void rig_close(struct rig *r);

/* Posts one signaled work request of side a: 'length' bytes at offset 'at' of a's buffer, to or from
 * the same offset of b's. */
int rig_post(struct rig *r, enum ibv_wr_opcode opcode, uint64_t at, uint32_t length,
	     uint64_t wr_id);
int rig_post_recv(struct rig_side *s, uint64_t at, uint32_t length, uint64_t wr_id);
/* Polls until one completion comes: how long that takes here nobody knows, and Check ends a test that hangs. */
struct ibv_wc rig_wait(struct ibv_cq *cq);

#endif
