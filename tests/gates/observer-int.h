/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the observer share. */
#ifndef OBSERVER_INT_H
#define OBSERVER_INT_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>

#include "tests/gates/observer.h"

#define EXPORT __attribute__((visibility("default")))
#define SENDS 4096u /* outstanding work requests of one queue pair */

/* The library that comes after us. */
struct real_verbs {
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *context);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, int access);
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned int access);
	int (*dereg_mr)(struct ibv_mr *mr);
	struct ibv_comp_channel *(*create_channel)(struct ibv_context *context);
	int (*destroy_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init);
	int (*destroy_qp)(struct ibv_qp *qp);
	/* of a device's own table, which is patched */
	struct ibv_context_ops ops;
};
extern struct real_verbs real;

struct entry {
	struct observer_object o;
	const struct ibv_context *context;
	uint64_t *sends; /* QP: a ring of SENDS */
};

/* list.c; all with the lock held, but for the first. */
extern pthread_mutex_t observer_lock;
void list_call(const char *name, const void *at, uint32_t number, int rc);
struct entry *list_add(enum observer_kind kind, const void *at, const struct ibv_context *context);
/* The newest with that address, or NULL; find counts a touch of one that is destroyed. */
struct entry *list_peek(enum observer_kind kind, const void *at);
struct entry *list_find(enum observer_kind kind, const void *at);
/* Each device numbers its own. */
struct entry *list_qp(const struct ibv_context *context, uint32_t qp_num);
struct entry *list_at(uint32_t index);
uint32_t list_length(void);
void list_state(struct observer_state *out);
uint32_t number_of(enum observer_kind kind, const void *at);

/* fault.c */
struct ibv_context *context_of(enum observer_kind kind, const void *at);
int end_really(enum observer_kind kind, void *at);
/* The destroy verb of `at`, which fails if the plan says so. */
int fault_end(enum observer_kind kind, void *at, struct entry *e);
/* Takes away the completions that are to be kept back; how many are left. */
int fault_completions(const struct ibv_cq *cq, struct ibv_wc *wc, int n);

#endif
