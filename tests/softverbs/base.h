/* SPDX-License-Identifier: BSD-2-Clause */
/* What every file of softverbs needs: the export mark, an intrusive list, the lock that guards all
 * of its state, the handle header with the rules about dead handles, and the configuration. */
#ifndef SOFTVERBS_BASE_H
#define SOFTVERBS_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <infiniband/verbs.h>

/* The build hides everything; what a program may call is marked. */
#define EXPORT __attribute__((visibility("default")))

#define container(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define RAILS_MAX 8

/* ---- list ---- */
struct list {
	struct list *next;
	struct list *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l;
	l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_append(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

/* Safe on a node that is in no list but was initialised. */
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

#define list_for_each(pos, head) for (pos = (head)->next; pos != (head); pos = pos->next)
#define list_for_each_safe(pos, nextpos, head)                                                     \
	for (pos = (head)->next, nextpos = pos->next; pos != (head);                               \
	     pos = nextpos, nextpos = pos->next)

/* ---- the lock ---- */
/* One mutex guards all state of softverbs in this process: objects, queues, links, ids. A thread
 * that holds it cannot be cancelled (rping cancels threads that sit in ibv_get_cq_event). */
void base_lock(void);
void base_unlock(void);
/* Waits on 'cond' with the lock held. */
void base_wait(pthread_cond_t *cond);
/* The lock is free again, whatever it was: in the child of a fork(). */
void base_forked(void);
/* Nanoseconds of CLOCK_MONOTONIC, or of the clock of deterministic mode. */
uint64_t base_now(void);

/* ---- handles ---- */
enum object_type {
	OBJECT_CONTEXT,
	OBJECT_PD,
	OBJECT_MR,
	OBJECT_MW,
	OBJECT_CHANNEL,
	OBJECT_CQ,
	OBJECT_QP,
	OBJECT_CM_CHANNEL,
	OBJECT_CM_ID,
};

/* Starts every object that a program holds a pointer to. A destroyed object stays allocated for a
 * while (it is the marker by which a second destroy is recognised). */
struct object {
	uint32_t magic;
	enum object_type type;
	/* The uverbs-like number: lowest free per type, as xa_alloc gives them (kernel
	 * drivers/infiniband/core/rdma_core.c). */
	uint32_t id;
	/* A destroy of it failed: the program may keep the pointer and nothing else. */
	bool broken;
	struct list grave;
};

/* Gives the object its number and makes it valid. Lock held. */
void object_init(struct object *obj, enum object_type type);
/* Aborts, naming 'call' and the handle, unless 'obj' is a living object of 'type' whose destroy has
 * not failed. In lenient mode a broken handle passes. Lock held. */
void object_check(const struct object *obj, enum object_type type, const char *call);
/* How many of a kind live. Lock held. */
unsigned int object_count(enum object_type type);
/* Frees what retired objects left, but for the last few (a late second destroy is still recognised).
 * Lock held. */
void object_bury(void);
/* Marks the object dead, returns its number, and frees 'memory' later. Lock held. */
void object_retire(struct object *obj, void *memory);
/* Reports a broken rule. In strict mode it aborts; 'fatal' rules (a dead handle) always do. */
void object_rule(bool fatal, const char *rule, const char *call, const struct object *obj);

/* ---- configuration ---- */
enum personality {
	PERSONALITY_MLX5,
	PERSONALITY_RXE,
	PERSONALITY_SIW,
	PERSONALITY_OLD_KERNEL,
	PERSONALITY_IRDMA,
	PERSONALITY_OCRDMA,
};

struct config {
	int rails;
	struct in_addr addr[RAILS_MAX];
	enum personality personality;
	/* SOFTVERBS_STRICT: abort on what hardware may forgive. */
	bool strict;
	/* SOFTVERBS_ADVERSARY: the nastiest legal schedule instead of the plainest. */
	bool adversary;
	/* RDMAV_ALLOW_DISASSOC_DESTROY or MLX4_DEVICE_FATAL_CLEANUP is set: EIO becomes 0. */
	bool eio_switch;
	uint64_t seed;
	char dir[80];
};

/* Read once from the environment, at first use. */
const struct config *config_get(void);

#endif
