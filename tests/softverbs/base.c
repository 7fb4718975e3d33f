/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/base.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "tests/softverbs/log.h"
#include "tests/softverbs/softverbs.h"
#include "tests/softverbs/turns.h"

#define OBJECT_ALIVE 0x5056a11eU
#define OBJECT_DEAD 0x5056deadU
#define IDS_MAX (1u << 20)
#define GRAVES_MAX 8192
#define GRAVES_KEPT 4

static pthread_mutex_t base_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int base_cancel_state;

void base_lock(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&base_mutex);
	base_cancel_state = state;
}

void base_unlock(void)
{
	int state = base_cancel_state;

	pthread_mutex_unlock(&base_mutex);
	pthread_setcancelstate(state, NULL);
}

void base_wait(pthread_cond_t *cond)
{
	int state = base_cancel_state;

	if (turns_on()) {
		turns_wait("a call");
		return;
	}
	pthread_cond_wait(cond, &base_mutex);
	base_cancel_state = state;
}

uint64_t base_now(void)
{
	struct timespec ts;

	if (turns_on())
		return turns_now();
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- handles ---- */
static const char *const object_names[] = {
	[OBJECT_CONTEXT] = "context", [OBJECT_PD] = "pd",
	[OBJECT_MR] = "mr",           [OBJECT_MW] = "mw",
	[OBJECT_CHANNEL] = "channel", [OBJECT_CQ] = "cq",
	[OBJECT_QP] = "qp",           [OBJECT_CM_CHANNEL] = "cm-channel",
	[OBJECT_CM_ID] = "cm-id",
};

static uint8_t object_ids[OBJECT_CM_ID + 1][IDS_MAX / 8];
static uint32_t object_lowest[OBJECT_CM_ID + 1]; /* no id below it is free */
static unsigned int object_counts[OBJECT_CM_ID + 1];
static struct list object_graves = {&object_graves, &object_graves};
static unsigned int object_grave_count;
void base_forked(void)
{
	memset(object_ids, 0, sizeof(object_ids));
	memset(object_lowest, 0, sizeof(object_lowest));
	memset(object_counts, 0, sizeof(object_counts));
	base_unlock(); /* the thread that forked has it, and is the one that goes on */
}

/* What object_retire() shall free, kept beside the marker. */
struct grave {
	struct list node;
	void *memory;
};

void object_init(struct object *obj, enum object_type type)
{
	uint32_t id;

	for (id = object_lowest[type]; id < IDS_MAX - 1; id++)
		if (!(object_ids[type][id / 8] & (1u << (id % 8))))
			break;
	object_ids[type][id / 8] |= (uint8_t)(1u << (id % 8));
	object_lowest[type] = id;
	object_counts[type]++;
	obj->type = type;
	obj->id = id;
	obj->broken = false;
	obj->magic = OBJECT_ALIVE;
	list_init(&obj->grave);
}

void object_rule(bool fatal, const char *rule, const char *call, const struct object *obj)
{
	const char *type = obj && obj->type <= OBJECT_CM_ID ? object_names[obj->type] : "handle";

	if (!fatal && !config_get()->strict) {
		log_call("broken_rule", obj, 0, 0);
		return;
	}
	fprintf(stderr, "softverbs: broken rule: %s: in %s of %s %u (%p)\n", rule, call, type,
		obj ? obj->id : 0, (const void *)obj);
	log_flush();
	abort();
}

void object_check(const struct object *obj, enum object_type type, const char *call)
{
	if (obj->magic == OBJECT_DEAD)
		object_rule(true, "no call on a destroyed handle", call, obj);
	if (obj->magic != OBJECT_ALIVE || obj->type != type)
		object_rule(true, "handle of another kind, or no handle at all", call, NULL);
	if (obj->broken)
		object_rule(false, "no call on a handle after its failed destroy", call, obj);
}

unsigned int object_count(enum object_type type)
{
	return object_counts[type];
}

EXPORT unsigned int softverbs_count(const char *kind)
{
	unsigned int type, n = 0;

	base_lock();
	for (type = 0; type <= OBJECT_CM_ID; type++)
		if (strcmp(object_names[type], kind) == 0)
			n = object_counts[type];
	base_unlock();
	return n;
}

static void object_dig(unsigned int keep)
{
	while (object_grave_count > keep) {
		struct grave *grave = container(object_graves.next, struct grave, node);

		list_remove(&grave->node);
		object_grave_count--;
		free(grave->memory);
		free(grave);
	}
}

void object_bury(void)
{
	object_dig(GRAVES_KEPT);
}

void object_retire(struct object *obj, void *memory)
{
	struct grave *grave = calloc(1, sizeof(*grave));

	object_ids[obj->type][obj->id / 8] &= (uint8_t) ~(1u << (obj->id % 8));
	if (obj->id < object_lowest[obj->type])
		object_lowest[obj->type] = obj->id;
	object_counts[obj->type]--;
	obj->magic = OBJECT_DEAD;
	if (!grave)
		return;
	grave->memory = memory;
	list_append(&object_graves, &grave->node);
	object_grave_count++;
	object_dig(GRAVES_MAX);
}
