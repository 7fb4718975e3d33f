/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-path.h - what queue pairs are told of their path: the program's own ibv_modify_qp() and rdma_init_qp_attr()
 * stand before those of the libraries, write down what they are called with, and call them.
 */
#ifndef RDMA_PATH_H
#define RDMA_PATH_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "tests/unit/rdma-kit.h"

/* A step of a queue pair that worked. */
struct path_step {
	struct ibv_qp *qp;
	uint32_t qp_num;
	struct ibv_qp_attr attr;
	int mask;
	bool manager_asked;
	struct ibv_qp_attr manager; /* what the connection manager proposed for it */
	uint16_t manager_pkey;      /* and for INIT, asked at RTR */
};

/* Forgets all steps. */
void path_forget(void);
/* How many steps to this state there were; the first `max` of them. */
uint32_t path_steps(enum ibv_qp_state to, struct path_step *out, uint32_t max);
/* The step of one queue pair, which must be there once. */
struct path_step path_step_of(const struct ibv_qp *qp, enum ibv_qp_state to);
/* WRITE and READ of a pattern, so many bytes each, between both ends of a new connection, which is left standing. */
#define PATH_MOVED 100000u
void path_moves(struct end *passive, struct end *active, uint64_t *by_passive, uint64_t *by_active);

#endif
