/* SPDX-License-Identifier: BSD-2-Clause */
#include "backends/engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_ITEMS 32u
#define ITEM_BYTES 64u

static const char *const steps[FAULT_STEPS] = {
	[ESCROW_STEP_REGISTER] = "register",
	[ESCROW_STEP_DEREGISTER] = "deregister",
	[ESCROW_STEP_ALLOC_WINDOW] = "alloc_window",
	[ESCROW_STEP_BIND_WINDOW] = "bind_window",
	[ESCROW_STEP_INVALIDATE] = "invalidate",
	[ESCROW_STEP_DEALLOC_WINDOW] = "dealloc_window",
	[ESCROW_STEP_CREATE_QP] = "create_qp",
	[ESCROW_STEP_QP_ERR] = "qp_err",
	[ESCROW_STEP_QP_RESET] = "qp_reset",
	[ESCROW_STEP_DESTROY_QP] = "destroy_qp",
	[ESCROW_STEP_CREATE_CQ] = "create_cq",
	[ESCROW_STEP_DESTROY_CQ] = "destroy_cq",
	[ESCROW_STEP_CREATE_CHANNEL] = "create_channel",
	[ESCROW_STEP_DESTROY_CHANNEL] = "destroy_channel",
	[ESCROW_STEP_ALLOC_PD] = "alloc_pd",
	[ESCROW_STEP_DEALLOC_PD] = "dealloc_pd",
	[ESCROW_STEP_OPEN_DEVICE] = "open_device",
	[ESCROW_STEP_CLOSE_DEVICE] = "close_device",
	[ESCROW_STEP_POST] = "post",
};

static const char *const verdicts[] = {"ok", "lie", "refused", "fail", "effect"};
static const char *const cqes[] = {"ok", "hold", "drop", "dup", "stale", "release"};

/* Errnos by name, as far as tests want them; numbers are taken too. */
static const struct {
	const char *name;
	int value;
} errnos[] = {
	{"EIO", EIO},       {"EBUSY", EBUSY},         {"EINVAL", EINVAL},       {"ENOMEM", ENOMEM},
	{"EAGAIN", EAGAIN}, {"ENODEV", ENODEV},       {"ENXIO", ENXIO},         {"EFAULT", EFAULT},
	{"ENOENT", ENOENT}, {"ETIMEDOUT", ETIMEDOUT}, {"EREMOTEIO", EREMOTEIO}, {"EPERM", EPERM},
	{"EINTR", EINTR},   {"ENOSPC", ENOSPC}};

/* One item of a plan, understood. */
struct item {
	char text[ITEM_BYTES];
	enum { ITEM_STEP, ITEM_CQE, ITEM_NATIVE, ITEM_IMPORT, ITEM_CLEAR } what;
	uint32_t step, nth, verdict, count;
	int32_t error;
};

enum fault_verdict fault_take(struct fault *f, uint32_t step, int *error)
{
	uint32_t i, nth;

	atomic_fetch_add_explicit(&f->calls[step], 1, memory_order_relaxed);
	for (i = 0; i < FAULT_RULES; i++) {
		struct fault_rule *r = &f->rules[step][i];

		if (!atomic_load_explicit(&r->set, memory_order_acquire))
			continue;
		nth = atomic_load(&r->nth);
		if (nth > 1) {
			atomic_fetch_sub(&r->nth, 1);
			continue;
		}
		if (nth == 1)
			atomic_store(&r->set, 0);
		*error = atomic_load(&r->error);
		return (enum fault_verdict)atomic_load(&r->verdict);
	}
	return FAULT_OK;
}

enum fault_cqe fault_next_cqe(struct fault *f)
{
	enum fault_cqe verdict =
		(enum fault_cqe)atomic_load_explicit(&f->cqe, memory_order_relaxed);
	uint32_t count;

	if (verdict == CQE_OK)
		return verdict;
	count = atomic_load(&f->cqe_count);
	if (count == 1)
		atomic_store(&f->cqe, CQE_OK);
	if (count > 0)
		atomic_store(&f->cqe_count, count - 1);
	return verdict;
}

static int find(const char *word, const char *const *table, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (table[i] && strcmp(word, table[i]) == 0)
			return (int)i;
	return -1;
}

/* A decimal number from 1 up. */
static bool number(const char *s, uint32_t *out)
{
	char *end;
	unsigned long v;

	if (*s < '0' || *s > '9')
		return false;
	v = strtoul(s, &end, 10);
	*out = (uint32_t)v;
	return *end == 0 && v > 0 && v <= INT32_MAX;
}

static bool parse_errno(const char *s, int32_t *out)
{
	uint32_t n;
	size_t i;

	for (i = 0; i < sizeof(errnos) / sizeof(errnos[0]); i++)
		if (strcmp(s, errnos[i].name) == 0) {
			*out = errnos[i].value;
			return true;
		}
	if (!number(s, &n))
		return false;
	*out = (int32_t)n;
	return true;
}

static bool makes_object(uint32_t step)
{
	return step == ESCROW_STEP_REGISTER || step == ESCROW_STEP_ALLOC_WINDOW ||
	       step == ESCROW_STEP_CREATE_QP || step == ESCROW_STEP_CREATE_CHANNEL ||
	       step == ESCROW_STEP_OPEN_DEVICE;
}

static bool parse_step(struct item *it, char *left, const char *verdict, const char *arg)
{
	char *at = strchr(left, '@');
	int step, v;

	if (at)
		*at++ = 0;
	step = find(left, steps, FAULT_STEPS);
	v = find(verdict, verdicts, sizeof(verdicts) / sizeof(verdicts[0]));
	if (step < 0 || v < 0 || (at && !number(at, &it->nth)))
		return false;
	/* A device that says it made something, and has not, gives nothing to hold: no such test. */
	if (v == FAULT_LIE && makes_object((uint32_t)step))
		return false;
	it->what = ITEM_STEP;
	it->step = (uint32_t)step;
	it->verdict = (uint32_t)v;
	it->error = v == FAULT_REFUSED ? EBUSY : EIO;
	return !arg || parse_errno(arg, &it->error);
}

static bool parse_cqe(struct item *it, const char *verdict, const char *arg)
{
	int v = find(verdict, cqes, sizeof(cqes) / sizeof(cqes[0]));

	it->what = ITEM_CQE;
	it->verdict = (uint32_t)v;
	return v >= 0 && (!arg || number(arg, &it->count));
}

static bool parse_item(struct item *it)
{
	char copy[ITEM_BYTES], *value, *arg;

	memcpy(copy, it->text, sizeof(copy));
	if (strcmp(copy, "clear") == 0) {
		it->what = ITEM_CLEAR;
		return true;
	}
	value = strchr(copy, '=');
	if (!value)
		return false;
	*value++ = 0;
	arg = strchr(value, ':');
	if (arg)
		*arg++ = 0;
	if (strcmp(copy, "cqe") == 0)
		return parse_cqe(it, value, arg);
	if (strcmp(copy, "import") == 0) {
		it->what = ITEM_IMPORT;
		return strcmp(value, "drop") == 0 && !arg;
	}
	if (strcmp(copy, "nic") == 0 || strcmp(copy, "peer") == 0 || strcmp(copy, "device") == 0) {
		it->what = ITEM_NATIVE;
		return true;
	}
	return parse_step(it, copy, value, arg);
}

static void forget(struct escrow_engine *e)
{
	struct fault *f = &e->fault;
	uint32_t s, i;

	for (s = 0; s < FAULT_STEPS; s++)
		for (i = 0; i < FAULT_RULES; i++)
			atomic_store(&f->rules[s][i].set, 0);
	atomic_store(&f->cqe, CQE_OK);
	atomic_store(&f->cqe_count, 0);
	atomic_store(&f->import_drop, 0);
	if (e->ops->fault)
		e->ops->fault(e->native, "clear");
}

static bool add_rule(struct fault *f, const struct item *it)
{
	uint32_t i;

	for (i = 0; i < FAULT_RULES; i++) {
		struct fault_rule *r = &f->rules[it->step][i];

		if (atomic_load(&r->set))
			continue;
		atomic_store(&r->nth, it->nth);
		atomic_store(&r->verdict, it->verdict);
		atomic_store(&r->error, it->error);
		atomic_store_explicit(&r->set, 1, memory_order_release);
		return true;
	}
	return false;
}

/* Completions are kept back by the device if it can (it then goes on touching the bytes). */
static bool apply_cqe(struct escrow_engine *e, const struct item *it)
{
	if (e->ops->fault && e->ops->fault(e->native, it->text) == 0)
		return true;
	atomic_store(&e->fault.cqe_count, it->count);
	atomic_store(&e->fault.cqe, it->verdict);
	return true;
}

static bool apply(struct escrow_engine *e, const struct item *it)
{
	switch (it->what) {
	case ITEM_STEP:
		return add_rule(&e->fault, it);
	case ITEM_CQE:
		return apply_cqe(e, it);
	case ITEM_IMPORT:
		atomic_store(&e->fault.import_drop, 1);
		return true;
	case ITEM_NATIVE:
		if (!e->ops->fault || e->ops->fault(e->native, it->text))
			return false;
		en_work(e, &e->work); /* the runner looks for the news */
		return true;
	case ITEM_CLEAR:
		forget(e);
		return true;
	}
	return false;
}

/* Cuts the plan into items; how many, or -1 and *it is the one that is not understood. */
static int parse(const char *plan, struct item *items, struct item **bad)
{
	unsigned int n = 0;
	const char *end;
	size_t len;

	for (; *plan; plan = *end ? end + 1 : end) {
		end = strchr(plan, ';');
		if (!end)
			end = plan + strlen(plan);
		while (*plan == ' ')
			plan++;
		len = (size_t)(end - plan);
		if (len == 0)
			continue;
		*bad = &items[n < PLAN_ITEMS ? n : PLAN_ITEMS - 1];
		memset(*bad, 0, sizeof(**bad));
		memcpy((*bad)->text, plan, len < ITEM_BYTES ? len : ITEM_BYTES - 1);
		if (n == PLAN_ITEMS || len >= ITEM_BYTES || !parse_item(*bad))
			return -1;
		n++;
	}
	return (int)n;
}

static escrow_status fault_plan(struct escrow_engine *e, const char *plan,
				struct escrow_error *error)
{
	struct item items[PLAN_ITEMS], *bad = &items[0];
	int n, i;

	if (!engine_here(e))
		return ESCROW_E_STATE;
	if (!plan)
		return args_fail(error, ESCROW_E_INVALID, "the plan is NULL");
	n = parse(plan, items, &bad);
	for (i = 0; n >= 0 && i < n; i++)
		if (!apply(e, &items[i])) {
			bad = &items[i];
			n = -1;
		}
	if (n >= 0) {
		event_wake(e);
		return ESCROW_OK;
	}
	forget(e);
	return args_fail(error, ESCROW_E_INVALID, "\"%s\" is not understood; see escrow/fault.h",
			 bad->text);
}

static int64_t fault_calls(struct escrow_engine *e, uint32_t step)
{
	if (!engine_here(e))
		return ESCROW_E_STATE;
	if (step == ESCROW_STEP_NONE || step >= FAULT_STEPS)
		return ESCROW_E_INVALID;
	return atomic_load(&e->fault.calls[step]);
}

const struct escrow_fault fault_extension = {
	.size = sizeof(struct escrow_fault),
	.plan = fault_plan,
	.calls = fault_calls,
};
