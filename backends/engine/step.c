/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * step.c - the one place from which native [ctrl] steps and posts are called.
 *
 * e->lock is let go over the call: the step may sleep, and no slot must wait for it.  Planned faults
 * come in here, so that they hit every native implementation alike.
 */
#include "backends/engine/engine.h"

#include <errno.h>

escrow_status en_status_of(int rc)
{
	switch (rc) {
	case ENOMEM:
	case EAGAIN:
	case EMFILE:
	case ENFILE:
		return ESCROW_E_NO_MEMORY;
	case EPERM:
		return ESCROW_E_MEMLOCK;
	case EOPNOTSUPP:
		return ESCROW_E_UNSUPPORTED;
	case EINVAL:
	case EFAULT:
		return ESCROW_E_INVALID;
	default:
		return ESCROW_E_DEVICE;
	}
}

escrow_status en_status_of_own(int rc)
{
	escrow_status st = rc ? en_status_of(rc) : ESCROW_OK;

	return st == ESCROW_E_INVALID ? ESCROW_E_DEVICE : st;
}

static int native_step(const struct native_ops *ops, uint32_t step, void *object)
{
	switch (step) {
	case ESCROW_STEP_ALLOC_PD:
		return ops->alloc_pd(object);
	case ESCROW_STEP_DEALLOC_PD:
		return ops->dealloc_pd(object);
	case ESCROW_STEP_CLOSE_DEVICE:
		return ops->close_device(object);
	case ESCROW_STEP_DESTROY_CQ:
		return ops->destroy_cq(object);
	case ESCROW_STEP_DESTROY_CHANNEL:
		return ops->destroy_channel(object);
	case ESCROW_STEP_DEREGISTER:
		return ops->deregister_region(object);
	case ESCROW_STEP_DEALLOC_WINDOW:
		return ops->dealloc_window(object);
	case ESCROW_STEP_QP_ERR:
		return ops->conn_err(object);
	case ESCROW_STEP_QP_RESET:
		return ops->conn_reset(object);
	case ESCROW_STEP_DESTROY_QP:
		return ops->destroy_conn(object);
	default:
		return EINVAL;
	}
}

/* The verdict of the plan before the call: true = make it. */
static bool before(struct escrow_engine *e, uint32_t step, enum fault_verdict *verdict, int *error)
{
	*error = 0;
	*verdict = fault_take(&e->fault, step, error);
	if (*verdict == FAULT_LIE)
		*error = 0;
	return *verdict == FAULT_OK || *verdict == FAULT_EFFECT;
}

static int after(struct escrow_engine *e, enum fault_verdict verdict, int planned, int rc)
{
	if (rc)
		engine_count(&e->counters.native_errors, 1);
	return verdict == FAULT_EFFECT ? planned : rc;
}

void en_context_lost(struct context *c)
{
	if (!atomic_exchange(&c->lost, 1))
		en_work(c->e, &c->e->work);
}

/* These errnos are a device's last word, whatever was asked. */
static int heard(struct context *c, int rc)
{
	if (rc == ENODEV || rc == ENXIO)
		en_context_lost(c);
	return rc;
}

/* Of a device that was lost meanwhile a 0 is no proof (mlx5 says it to every command then, cmd.c of its driver). */
static int asked_again(struct context *c, uint32_t step, int rc)
{
	const struct native_ops *ops = c->e->ops;

	/* Of what is made nothing is proved, and a device that was closed is asked no more. */
	if (rc || !ops->is_lost || step == ESCROW_STEP_ALLOC_PD || step == ESCROW_STEP_CLOSE_DEVICE)
		return rc;
	c->e->news_read = 1;
	return ops->is_lost(c->native) ? ENODEV : 0;
}

int en_step(struct context *c, uint32_t step, void *object)
{
	struct escrow_engine *e = c->e;
	enum fault_verdict verdict;
	int error, rc;

	if (atomic_load(&c->lost))
		return ENODEV;
	if (!before(e, step, &verdict, &error)) {
		rc = error;
	} else {
		engine_unlock(e);
		rc = asked_again(c, step, native_step(e->ops, step, object));
		engine_lock(e);
		rc = after(e, verdict, error, rc);
	}
	/* An engine that is being opened closes what it opened. */
	return step == ESCROW_STEP_ALLOC_PD ? rc : heard(c, rc);
}

int en_step_channel(struct escrow_engine *e, struct context *c, struct native_lane **out)
{
	enum fault_verdict verdict;
	int error;

	if (!before(e, ESCROW_STEP_CREATE_CHANNEL, &verdict, &error))
		return error;
	return after(e, verdict, error, e->ops->create_channel(c->native, out));
}

int en_step_queue(struct escrow_engine *e, struct native_lane *lane, uint32_t depth)
{
	enum fault_verdict verdict;
	int error;

	if (!before(e, ESCROW_STEP_CREATE_CQ, &verdict, &error))
		return error;
	return after(e, verdict, error, e->ops->create_cq(lane, depth));
}

int en_step_device(struct escrow_engine *e, uint32_t index, struct escrow_error *error_out)
{
	struct context *c = &e->contexts[index];
	enum fault_verdict verdict;
	int error;

	if (!before(e, ESCROW_STEP_OPEN_DEVICE, &verdict, &error))
		return error;
	return after(e, verdict, error,
		     e->ops->open_device(e->native, index, &c->native, &c->info, error_out));
}

int en_step_conn(struct escrow_engine *e, struct lane *lane, const struct native_conn_args *args,
		 struct native_conn **out)
{
	enum fault_verdict verdict;
	int error, rc;

	if (!before(e, ESCROW_STEP_CREATE_QP, &verdict, &error))
		return heard(lane->context, error);
	engine_unlock(e);
	rc = e->ops->create_conn(lane->native, args, out);
	engine_lock(e);
	return heard(lane->context, after(e, verdict, error, rc));
}

int en_step_window(struct escrow_engine *e, struct context *c, struct native_window **out)
{
	enum fault_verdict verdict;
	int error, rc;

	if (!before(e, ESCROW_STEP_ALLOC_WINDOW, &verdict, &error))
		return heard(c, error);
	engine_unlock(e);
	rc = e->ops->alloc_window(c->native, out);
	engine_lock(e);
	return heard(c, after(e, verdict, error, rc));
}

int en_step_register(struct escrow_engine *e, struct context *c,
		     const struct escrow_region_args *args, struct native_region **out,
		     struct escrow_error *error_out)
{
	enum fault_verdict verdict;
	int error;

	if (!before(e, ESCROW_STEP_REGISTER, &verdict, &error))
		return heard(c, error);
	return heard(c, after(e, verdict, error,
			      e->ops->register_region(c->native, args, out, error_out)));
}

/*
 * Of a post that failed although the device has all of it nobody knows whether that was told of them.  They are
 * owed, and may never end by themselves: the connection ends, and what ends it settles them.
 */
static int post_answered(struct conn *conn, int rc, bool all)
{
	if (rc && all)
		en_conn_broken(conn);
	return heard(conn->lane->context, rc);
}

static int failure_of(struct escrow_engine *e, struct conn *conn, struct native_wr *wr, uint32_t n,
		      uint32_t *posted, int rc)
{
	return e->ops->post_failed ? e->ops->post_failed(conn->native, wr, n, posted, rc) : rc;
}

int en_post_failed(struct escrow_engine *e, struct conn *conn, struct native_wr *wr, uint32_t n,
		   uint32_t *posted, int rc)
{
	rc = failure_of(e, conn, wr, n, posted, rc);
	engine_count(&e->counters.native_errors, 1);
	return post_answered(conn, rc, *posted == n);
}

int en_post_planned(struct escrow_engine *e, struct conn *conn, uint32_t step, struct native_wr *wr,
		    uint32_t n, uint32_t *posted)
{
	enum fault_verdict verdict;
	int error, rc;

	*posted = 0;
	if (!before(e, step, &verdict, &error)) {
		/* A post that lies took the requests, and nothing ever comes of them. */
		*posted = verdict == FAULT_LIE ? n : 0;
		return heard(conn->lane->context, error);
	}
	engine_count(&e->counters.posts, 1);
	*posted = n;
	rc = e->ops->post(conn->native, wr, n, posted);
	if (rc)
		rc = failure_of(e, conn, wr, n, posted, rc);
	return post_answered(conn, after(e, verdict, error, rc), *posted == n);
}
