/* SPDX-License-Identifier: BSD-2-Clause */
/* All native objects and calls there were, in the order in which they came. */
#include <stdlib.h>
#include <string.h>

#include "tests/gates/observer-int.h"

#define OBJECTS 1024u
#define CALLS 16384u

pthread_mutex_t observer_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry entries[OBJECTS];
static uint32_t nentries;
static struct observer_call calls[CALLS];
static uint64_t ncalls;

void list_call(const char *name, const void *at, uint32_t number, int rc)
{
	calls[ncalls % CALLS] = (struct observer_call){ncalls + 1, name, at, number, rc};
	ncalls++;
}

uint32_t number_of(enum observer_kind kind, const void *at)
{
	switch (kind) {
	case OBSERVER_DEVICE:
		return (uint32_t)((const struct ibv_context *)at)->cmd_fd;
	case OBSERVER_PD:
		return ((const struct ibv_pd *)at)->handle;
	case OBSERVER_MR:
		return ((const struct ibv_mr *)at)->handle;
	case OBSERVER_MW:
		return ((const struct ibv_mw *)at)->handle;
	case OBSERVER_CHANNEL:
		return (uint32_t)((const struct ibv_comp_channel *)at)->fd;
	case OBSERVER_CQ:
		return ((const struct ibv_cq *)at)->handle;
	case OBSERVER_QP:
		return ((const struct ibv_qp *)at)->handle;
	case OBSERVER_KINDS:
		break;
	}
	return 0;
}

struct entry *list_add(enum observer_kind kind, const void *at, const struct ibv_context *context)
{
	struct entry *e = &entries[nentries];

	/* A test that makes more objects than that is to be changed, and must not go on unobserved. */
	if (nentries == OBJECTS)
		abort();
	nentries++;
	e->o.kind = kind;
	e->context = context;
	e->o.at = at;
	e->o.number = number_of(kind, at);
	strncpy(e->o.device, ibv_get_device_name(context->device), sizeof(e->o.device) - 1);
	return e;
}

struct entry *list_peek(enum observer_kind kind, const void *at)
{
	uint32_t i;

	for (i = nentries; i-- > 0;)
		if (entries[i].o.kind == kind && entries[i].o.at == at)
			return &entries[i];
	return NULL;
}

struct entry *list_find(enum observer_kind kind, const void *at)
{
	struct entry *e = list_peek(kind, at);

	if (e && e->o.ends)
		e->o.touched++;
	return e;
}

struct entry *list_qp(const struct ibv_context *context, uint32_t qp_num)
{
	uint32_t i;

	for (i = nentries; i-- > 0;)
		if (entries[i].o.kind == OBSERVER_QP && entries[i].context == context &&
		    entries[i].o.key == qp_num)
			return &entries[i];
	return NULL;
}

struct entry *list_at(uint32_t index)
{
	return &entries[index];
}

uint32_t list_length(void)
{
	return nentries;
}

/* ---- For the tests ------------------------------------------------------------------------------- */
EXPORT size_t observer_objects(struct observer_object *out, size_t max)
{
	uint32_t i;

	pthread_mutex_lock(&observer_lock);
	for (i = 0; i < nentries && i < max; i++) {
		bool gone = entries[i].o.ends && entries[i].o.rc == 0;

		out[i] = entries[i].o;
		out[i].number_now = gone ? 0
					 : number_of((enum observer_kind)out[i].kind, out[i].at);
	}
	i = nentries;
	pthread_mutex_unlock(&observer_lock);
	return i;
}

EXPORT size_t observer_calls(uint64_t after, struct observer_call *out, size_t max)
{
	uint64_t i;
	size_t n = 0;

	pthread_mutex_lock(&observer_lock);
	i = ncalls > CALLS && ncalls - CALLS > after ? ncalls - CALLS : after;
	for (; i < ncalls && n < max; i++)
		out[n++] = calls[i % CALLS];
	pthread_mutex_unlock(&observer_lock);
	return n;
}

void list_state(struct observer_state *out)
{
	uint32_t i;

	out->calls = ncalls;
	for (i = 0; i < nentries; i++) {
		struct observer_object *o = &entries[i].o;

		if (o->kind != OBSERVER_QP)
			continue;
		out->created_qps++;
		/* What a reset or a destroy has discarded is on its way no more. */
		if (o->ends && o->rc == 0)
			continue;
		out->outstanding += o->posted - o->finished;
		out->owed += o->posted - o->told;
	}
}
