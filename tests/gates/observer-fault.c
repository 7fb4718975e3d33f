/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What goes wrong by plan. A command that fails does so because the kernel refuses the system call: a filter of system
 * calls cannot be taken off a thread again, and cannot tell one command of the device from another, so the one
 * verbs call is made on a fresh thread that lives no longer than it. On softverbs, which makes no system calls, its
 * script answers instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <dlfcn.h>

#include "tests/gates/observer-int.h"
#include "tests/lib/forbid.h"
#include "tests/softverbs/softverbs.h"

static struct {
	struct observer_plan plan;
	uint32_t seen; /* completions of that kind on that device */
	struct entry *victim;
	uint64_t withheld, withheld_id;
	/* The object whose end failed, and what was in its way. */
	bool failed;
	enum observer_kind kind;
	void *at;
	struct ibv_cq *extra_cq;
	struct ibv_qp *extra_qp;
	struct ibv_mw *extra_mw;
} fault;

/* ---- Calls --------------------------------------------------------------------------------------- */
struct ibv_context *context_of(enum observer_kind kind, const void *at)
{
	switch (kind) {
	case OBSERVER_PD:
		return ((const struct ibv_pd *)at)->context;
	case OBSERVER_MR:
		return ((const struct ibv_mr *)at)->context;
	case OBSERVER_MW:
		return ((const struct ibv_mw *)at)->context;
	case OBSERVER_CHANNEL:
		return ((const struct ibv_comp_channel *)at)->context;
	case OBSERVER_CQ:
		return ((const struct ibv_cq *)at)->context;
	case OBSERVER_QP:
		return ((const struct ibv_qp *)at)->context;
	default:
		return NULL;
	}
}

int end_really(enum observer_kind kind, void *at)
{
	switch (kind) {
	case OBSERVER_DEVICE:
		return real.close_device(at);
	case OBSERVER_PD:
		return real.dealloc_pd(at);
	case OBSERVER_MR:
		return real.dereg_mr(at);
	case OBSERVER_MW:
		return real.ops.dealloc_mw(at);
	case OBSERVER_CHANNEL:
		return real.destroy_channel(at);
	case OBSERVER_CQ:
		return real.destroy_cq(at);
	case OBSERVER_QP:
		return real.destroy_qp(at);
	case OBSERVER_KINDS:
		break;
	}
	return EINVAL;
}

struct doomed {
	enum observer_kind kind;
	void *at;
	int fd, rc;
};

static void *end_without_commands(void *arg)
{
	struct doomed *d = arg;

	/* ENOSYS stands for "the fault could not be made": no verb answers it. */
	d->rc = forbid_commands(d->fd) ? ENOSYS : end_really(d->kind, d->at);
	return NULL;
}

static int end_filtered(enum observer_kind kind, void *at, const char *verb)
{
	int (*script)(const char *, unsigned int, enum softverbs_verdict, int);
	struct doomed d = {kind, at, context_of(kind, at)->cmd_fd, ENOSYS};
	pthread_t thread;

	*(void **)&script = dlsym(RTLD_DEFAULT, "softverbs_script");
	if (script) {
		script(verb, 1, SOFTVERBS_REFUSED, EIO);
		return end_really(kind, at);
	}
	if (pthread_create(&thread, NULL, end_without_commands, &d) == 0)
		pthread_join(thread, NULL);
	return d.rc;
}

/* ---- What stands in the way ---------------------------------------------------------------------- */
static bool block_channel(struct ibv_comp_channel *channel)
{
	fault.extra_cq = real.create_cq(channel->context, 1, NULL, channel, 0);
	return fault.extra_cq != NULL;
}

static struct ibv_pd *some_pd(const struct ibv_context *context)
{
	uint32_t i;

	for (i = 0; i < list_length(); i++) {
		struct entry *e = list_at(i);

		if (e->o.kind == OBSERVER_PD && e->o.used && !e->o.ends && e->o.parent == context)
			return (struct ibv_pd *)(uintptr_t)e->o.at;
	}
	return NULL;
}

static bool block_cq(struct ibv_cq *cq)
{
	static struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};

	attr.send_cq = attr.recv_cq = cq;
	fault.extra_qp = real.create_qp(some_pd(cq->context), &attr);
	return fault.extra_qp != NULL;
}

static bool block_pd(struct ibv_pd *pd)
{
	fault.extra_mw = real.ops.alloc_mw(pd, IBV_MW_TYPE_2);
	return fault.extra_mw != NULL;
}

static int unblock(void)
{
	if (fault.extra_cq)
		return real.destroy_cq(fault.extra_cq);
	if (fault.extra_qp)
		return real.destroy_qp(fault.extra_qp);
	if (fault.extra_mw)
		return real.ops.dealloc_mw(fault.extra_mw);
	return 0;
}

/* ---- The plan ------------------------------------------------------------------------------------- */
static const struct {
	enum observer_kind kind;
	const char *verb; /* NULL: something stands in the way */
} failures[] = {
	[OBSERVER_DESTROY_QP] = {OBSERVER_QP, "destroy_qp"},
	[OBSERVER_DESTROY_CHANNEL] = {OBSERVER_CHANNEL, NULL},
	[OBSERVER_DESTROY_CQ] = {OBSERVER_CQ, NULL},
	[OBSERVER_DEALLOC_PD] = {OBSERVER_PD, NULL},
	[OBSERVER_DEREG_MR] = {OBSERVER_MR, "dereg_mr"},
	[OBSERVER_DEALLOC_MW] = {OBSERVER_MW, "dealloc_mw"},
};

/* Of the victim, its completion queue or its channel, if it is on the device of the failure. */
static const void *wanted(enum observer_kind kind)
{
	const struct entry *v = fault.victim;

	if (!v || strcmp(v->o.device, fault.plan.fail_on) != 0)
		return NULL;
	switch (kind) {
	case OBSERVER_QP:
		return v->o.at;
	case OBSERVER_CQ:
		return v->o.parent;
	case OBSERVER_CHANNEL:
		/* The queue itself is gone by now. */
		return list_peek(OBSERVER_CQ, v->o.parent)->o.parent;
	default:
		return NULL;
	}
}

/* Is this the one call that is to fail?  If so it is so no more. */
static bool is_doomed(enum observer_kind kind, void *at, const struct entry *e)
{
	const void *want = wanted(kind);

	if (!fault.plan.failure || fault.failed || failures[fault.plan.failure].kind != kind ||
	    !e || strcmp(e->o.device, fault.plan.fail_on) != 0)
		return false;
	if ((want && want != at) || (kind == OBSERVER_PD && !e->o.used))
		return false;
	if (fault.plan.addr && fault.plan.addr != e->o.addr)
		return false;
	fault.failed = true;
	fault.kind = kind;
	fault.at = at;
	return true;
}

static bool block(enum observer_kind kind, void *at)
{
	switch (kind) {
	case OBSERVER_CHANNEL:
		return block_channel(at);
	case OBSERVER_CQ:
		return block_cq(at);
	case OBSERVER_PD:
		return block_pd(at);
	default:
		return true;
	}
}

int fault_end(enum observer_kind kind, void *at, struct entry *e)
{
	bool doomed, blocked = true;

	pthread_mutex_lock(&observer_lock);
	doomed = is_doomed(kind, at, e);
	if (doomed)
		blocked = block(kind, at);
	pthread_mutex_unlock(&observer_lock);
	if (!blocked)
		return ENOSYS;
	if (doomed && failures[fault.plan.failure].verb)
		return end_filtered(kind, at, failures[fault.plan.failure].verb);
	return end_really(kind, at);
}

static enum ibv_wc_opcode opcode_of(uint32_t what)
{
	switch ((enum observer_what)what) {
	case OBSERVER_READ:
		return IBV_WC_RDMA_READ;
	case OBSERVER_WRITE:
		return IBV_WC_RDMA_WRITE;
	case OBSERVER_INVALIDATE:
		break;
	}
	return IBV_WC_LOCAL_INV;
}

/* Of the send queue of `e`?  Its place there; else posted. An error's opcode is junk: the id decides. */
static uint64_t place(const struct entry *e, uint64_t id)
{
	uint64_t at;

	for (at = e->o.finished; at < e->o.posted && e->sends[at % SENDS] != id; at++)
		;
	return at;
}

static bool begins(const struct entry *e, const struct ibv_wc *wc)
{
	if (fault.victim || !fault.plan.withhold_on[0] || wc->status != IBV_WC_SUCCESS ||
	    wc->opcode != opcode_of(fault.plan.withhold) ||
	    strcmp(e->o.device, fault.plan.withhold_on) != 0)
		return false;
	return fault.seen++ == fault.plan.skip;
}

/* True: it is kept back. */
static bool take(const struct ibv_cq *cq, const struct ibv_wc *wc)
{
	struct entry *e = list_qp(cq->context, wc->qp_num);
	uint64_t at = e ? place(e, wc->wr_id) : 0;

	if (!e || at == e->o.posted)
		return false;
	e->o.finished = at + 1;
	if (begins(e, wc)) {
		fault.victim = e;
		fault.withheld_id = wc->wr_id;
		e->o.victim = 1;
	}
	if (e == fault.victim) {
		fault.withheld++;
		return true;
	}
	e->o.told = at + 1;
	return false;
}

int fault_completions(const struct ibv_cq *cq, struct ibv_wc *wc, int n)
{
	int i, left = 0;

	for (i = 0; i < n; i++)
		if (!take(cq, &wc[i]))
			wc[left++] = wc[i];
	return left;
}

EXPORT void observer_plan(const struct observer_plan *plan)
{
	pthread_mutex_lock(&observer_lock);
	fault.plan = *plan;
	fault.seen = 0;
	pthread_mutex_unlock(&observer_lock);
}

EXPORT void observer_state(struct observer_state *out)
{
	pthread_mutex_lock(&observer_lock);
	memset(out, 0, sizeof(*out));
	list_state(out);
	out->withheld = fault.withheld;
	out->withheld_id = fault.withheld_id;
	out->failed = fault.failed;
	pthread_mutex_unlock(&observer_lock);
}

/* ---- Long after ------------------------------------------------------------------------------------ */
static int use_qp(struct ibv_qp *qp, struct observer_proof *out)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int rc = real.query_qp(qp, &attr, IBV_QP_STATE, &init);

	out->key = qp->qp_num;
	out->state = rc ? -1 : (int)attr.qp_state;
	return rc;
}

static int use_pd(struct ibv_pd *pd)
{
	struct ibv_mw *mw = real.ops.alloc_mw(pd, IBV_MW_TYPE_2);

	return mw ? real.ops.dealloc_mw(mw) : errno;
}

static int use(struct observer_proof *out)
{
	switch (fault.kind) {
	case OBSERVER_QP:
		return use_qp(fault.at, out);
	case OBSERVER_CQ:
		return real.ops.req_notify_cq(fault.at, 0);
	case OBSERVER_CHANNEL:
		return fcntl(((struct ibv_comp_channel *)fault.at)->fd, F_GETFD) < 0 ? errno : 0;
	case OBSERVER_PD:
		return use_pd(fault.at);
	case OBSERVER_MR:
		out->key = ((struct ibv_mr *)fault.at)->rkey;
		return 0;
	case OBSERVER_MW:
		out->key = ((struct ibv_mw *)fault.at)->rkey;
		return 0;
	default:
		return 0;
	}
}

EXPORT int observer_prove(struct observer_proof *out)
{
	memset(out, 0, sizeof(*out));
	if (!fault.failed || list_peek(fault.kind, fault.at)->o.ends != 1)
		return ENOENT;
	out->number = number_of(fault.kind, fault.at);
	out->use = use(out);
	out->unblock = unblock();
	out->end = end_really(fault.kind, fault.at);
	return 0;
}
