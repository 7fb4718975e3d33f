/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/script.h"

#include <pthread.h>
#include <stdio.h>

#include "tests/softverbs/log.h"
#include "tests/softverbs/turns.h"

#define SCRIPT_MAX 64

struct script_line {
	char call[24];
	/* 0: every call; 1: the next one. */
	unsigned int nth;
	bool used;
	enum softverbs_verdict verdict;
	int errnum;
};

static struct script_line script_lines[SCRIPT_MAX];
static bool script_loaded;

static int script_add(const char *call, unsigned int nth, enum softverbs_verdict verdict,
		      int errnum)
{
	unsigned int i;

	for (i = 0; i < SCRIPT_MAX; i++) {
		struct script_line *l = &script_lines[i];

		if (l->used)
			continue;
		snprintf(l->call, sizeof(l->call), "%s", call);
		l->nth = nth;
		l->verdict = verdict;
		l->errnum = errnum;
		l->used = true;
		return 0;
	}
	return -1;
}

static int script_errno(const char *name)
{
	static const struct {
		const char *name;
		int value;
	} known[] = {{"EIO", EIO},       {"EBUSY", EBUSY},
		     {"EINVAL", EINVAL}, {"ETIMEDOUT", ETIMEDOUT},
		     {"EFAULT", EFAULT}, {"ENOMEM", ENOMEM},
		     {"EAGAIN", EAGAIN}, {"ENODEV", ENODEV}};
	unsigned int i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(name, known[i].name) == 0)
			return known[i].value;
	return atoi(name);
}

/* SOFTVERBS_SCRIPT: CALL:NTH:VERDICT:ERRNO, separated by commas. */
static void script_load(void)
{
	static const char *const verdicts[] = {"ok", "ok-lie", "refused", "fail-no-effect",
					       "fail-effect"};
	const char *env = getenv("SOFTVERBS_SCRIPT");
	char call[24], verdict[24], error[16], text[1024];
	char *line, *rest = text;
	unsigned int nth, v;

	script_loaded = true;
	snprintf(text, sizeof(text), "%s", env ? env : "");
	while ((line = strtok_r(rest, ",", &rest))) {
		if (sscanf(line, "%23[^:]:%u:%23[^:]:%15s", call, &nth, verdict, error) != 4)
			v = 5;
		else
			for (v = 0; v < 5 && strcmp(verdict, verdicts[v]) != 0; v++)
				;
		if (v == 5) {
			fprintf(stderr,
				"softverbs: SOFTVERBS_SCRIPT: '%s': not CALL:NTH:VERDICT:ERRNO\n",
				line);
			exit(2);
		}
		script_add(call, nth, (enum softverbs_verdict)v, script_errno(error));
	}
}

static void script_ask(struct call *call)
{
	unsigned int i;

	call->verdict = SOFTVERBS_OK;
	if (!script_loaded)
		script_load();
	for (i = 0; i < SCRIPT_MAX; i++) {
		struct script_line *l = &script_lines[i];

		if (!l->used || strcmp(l->call, call->name) != 0)
			continue;
		if (l->nth > 1) {
			l->nth--;
			continue;
		}
		if (l->nth == 1)
			l->used = false;
		call->verdict = l->verdict;
		call->errnum = l->errnum;
		return;
	}
}

void call_begin(struct call *call, const char *name, struct object *obj, enum object_type type)
{
	turns_call(name);
	base_lock();
	call->name = name;
	call->obj = obj;
	call->rc = 0;
	call->errnum = 0;
	if (obj) {
		object_check(obj, type, name);
		call->trace = *obj;
	}
	script_ask(call);
}

void call_on_context(struct call *call, const struct context *ctx)
{
	if (ctx->removed) {
		call->verdict = SOFTVERBS_REFUSED;
		call->errnum = EIO;
	} else if (ctx->fatal) {
		call->verdict = SOFTVERBS_OK_LIE;
	}
}

void call_begin_destroy(struct call *call, const char *name, struct object *obj,
			enum object_type type, const struct context *ctx)
{
	call_begin(call, name, obj, type);
	if (ctx && ctx->removed && config_get()->personality == PERSONALITY_OLD_KERNEL) {
		/* ib_uverbs_write() before 4.20: EIO at entry once the device is gone. */
		call->verdict = SOFTVERBS_FAIL_NO_EFFECT;
		call->errnum = EIO;
	} else if (ctx && ctx->fatal && !ctx->removed) {
		call->verdict = SOFTVERBS_OK_LIE;
	}
	/* rdma-core's verbs_is_destroy_err(): the library frees its half and says 0. */
	if (call->errnum == EIO && config_get()->eio_switch)
		call->verdict = call->verdict == SOFTVERBS_FAIL_EFFECT ? SOFTVERBS_OK
								       : SOFTVERBS_OK_LIE;
}

static int call_answer(struct call *call)
{
	switch (call->verdict) {
	case SOFTVERBS_OK:
		return call->rc;
	case SOFTVERBS_OK_LIE:
		return 0;
	default:
		/* A call that would have failed by itself does so. */
		return call->rc ? call->rc : call->errnum;
	}
}

static int call_finish(struct call *call, int rc)
{
	struct object trace = call->trace;

	log_call(call->name, call->obj ? &trace : NULL, rc, rc);
	base_unlock();
	return rc;
}

int call_end(struct call *call)
{
	return call_finish(call, call_answer(call));
}

/* What is left of a handle whose destroy was called and failed (rdma-core, providers/): siw unmaps the
 * queues of a queue pair and a completion queue first, irdma destroys their locks first, ocrdma frees the
 * queue pair whatever the kernel answers. Elsewhere the pointer can at least be kept. */
static bool call_is_as_good_as_freed(const struct object *obj)
{
	switch (config_get()->personality) {
	case PERSONALITY_SIW:
	case PERSONALITY_IRDMA:
		return obj->type == OBJECT_QP || obj->type == OBJECT_CQ;
	case PERSONALITY_OCRDMA:
		return obj->type == OBJECT_QP;
	default:
		return false;
	}
}

int call_end_destroy(struct call *call)
{
	int rc = call_answer(call);

	if (call->verdict == SOFTVERBS_OK_LIE)
		call->obj->magic = 0x5056deadU;
	else if (call->verdict == SOFTVERBS_FAIL_NO_EFFECT)
		call->obj->broken = true;
	/* With these, a refusal is no better than another failure. */
	if (rc && call->obj->magic != 0x5056deadU && call_is_as_good_as_freed(call->obj))
		call->obj->magic = 0x5056deadU;
	return call_finish(call, rc);
}

void *call_end_create(struct call *call, void *made)
{
	int rc = made ? 0 : call->rc;

	if (call->verdict != SOFTVERBS_OK && call->errnum) {
		rc = call->errnum;
		made = NULL;
	}
	log_call(call->name, call->obj, made ? 1 : 0, rc);
	base_unlock();
	if (!made)
		errno = rc;
	return made;
}

EXPORT int softverbs_script(const char *call, unsigned int nth, enum softverbs_verdict verdict,
			    int errnum)
{
	int rc;

	base_lock();
	if (!script_loaded)
		script_load();
	rc = script_add(call, nth, verdict, errnum);
	base_unlock();
	return rc;
}

EXPORT void softverbs_script_clear(void)
{
	base_lock();
	memset(script_lines, 0, sizeof(script_lines));
	script_loaded = true;
	base_unlock();
}
