/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/rdma-path.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <rdma/rdma_cma.h>

#include "tests/lib/testing.h"

#define STEPS 256u

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct path_step steps[STEPS];
static uint32_t nsteps;
/* Of this control thread: what the manager said last; a step to the same state takes it. */
static __thread struct path_step proposed;

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	int (*next)(struct rdma_cm_id *, struct ibv_qp_attr *, int *);
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT};
	int rc, ignored;

	*(void **)&next = dlsym(RTLD_NEXT, "rdma_init_qp_attr");
	rc = next(id, attr, mask);
	if (rc)
		return rc;
	memset(&proposed, 0, sizeof(proposed));
	proposed.manager_asked = true;
	proposed.manager = *attr;
	if (attr->qp_state == IBV_QPS_RTR) {
		ck_assert_int_eq(next(id, &init, &ignored), 0);
		proposed.manager_pkey = init.pkey_index;
	}
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int (*next)(struct ibv_qp *, struct ibv_qp_attr *, int);
	struct path_step step = {.qp = qp, .qp_num = qp->qp_num, .attr = *attr, .mask = mask};
	int rc;

	*(void **)&next = dlsym(RTLD_NEXT, "ibv_modify_qp");
	rc = next(qp, attr, mask);
	if (rc)
		return rc;
	if (proposed.manager_asked && proposed.manager.qp_state == attr->qp_state) {
		step.manager_asked = true;
		step.manager = proposed.manager;
		step.manager_pkey = proposed.manager_pkey;
		proposed.manager_asked = false;
	}
	pthread_mutex_lock(&mutex);
	if (nsteps < STEPS)
		steps[nsteps++] = step;
	pthread_mutex_unlock(&mutex);
	return 0;
}

void path_forget(void)
{
	pthread_mutex_lock(&mutex);
	nsteps = 0;
	pthread_mutex_unlock(&mutex);
}

uint32_t path_steps(enum ibv_qp_state to, struct path_step *out, uint32_t max)
{
	uint32_t n = 0;

	pthread_mutex_lock(&mutex);
	for (uint32_t i = 0; i < nsteps; i++)
		if (steps[i].attr.qp_state == to) {
			if (n < max)
				out[n] = steps[i];
			n++;
		}
	pthread_mutex_unlock(&mutex);
	return n;
}

struct path_step path_step_of(const struct ibv_qp *qp, enum ibv_qp_state to)
{
	struct path_step all[STEPS], found = {0};
	uint32_t n = path_steps(to, all, STEPS);

	for (uint32_t i = 0; i < n; i++)
		if (all[i].qp == qp) {
			ck_assert_ptr_null(found.qp);
			found = all[i];
		}
	ck_assert_ptr_eq(found.qp, qp);
	return found;
}

void path_moves(struct end *passive, struct end *active, uint64_t *by_passive, uint64_t *by_active)
{
	uint64_t grant, len, remote;
	uint8_t buf[4096];
	struct escrow_event ev;

	ends_connect(passive, active, by_passive, by_active);
	len = end_grant(passive, *by_passive, 0, END_BYTES, ESCROW_MAY_READ | ESCROW_MAY_WRITE, buf,
			sizeof(buf), &grant);
	remote = end_import(active, *by_active, buf, len);
	for (uint32_t i = 0; i < PATH_MOVED; i++)
		active->memory[i] = (uint8_t)(i * 7 + i / 256);
	memset(passive->memory, 0xee, END_BYTES);
	ev = end_move(active, remote, ESCROW_WRITE, 0, 1000, PATH_MOVED);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_uint_eq(passive->memory[999], 0xee);
	ck_assert_uint_eq(passive->memory[1000 + PATH_MOVED], 0xee);
	ck_assert_mem_eq(passive->memory + 1000, active->memory, PATH_MOVED);
	memset(active->memory + PATH_MOVED, 0xdd, END_BYTES - PATH_MOVED);
	ev = end_move(active, remote, ESCROW_READ, PATH_MOVED + 8, 1000, PATH_MOVED);
	ck_assert_int_eq(ev.status, ESCROW_OK);
	ck_assert_uint_eq(active->memory[PATH_MOVED + 7], 0xdd);
	ck_assert_uint_eq(active->memory[2 * PATH_MOVED + 8], 0xdd);
	ck_assert_mem_eq(active->memory + PATH_MOVED + 8, active->memory, PATH_MOVED);
}
