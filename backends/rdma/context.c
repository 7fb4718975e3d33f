/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "backends/rdma/rdma.h"
#include "backends/rdma/verbs.h"

static int open_named(struct native *n, const char *name, struct ibv_context **out)
{
	struct ibv_device **list;
	int ndev, rc = ENODEV;

	list = ibv_get_device_list(&ndev);
	for (int i = 0; list && i < ndev; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name)) {
			rc = verbs_open_device(n->log, list[i], out);
			break;
		}
	if (list)
		ibv_free_device_list(list);
	return rc;
}

static uint32_t least(uint64_t a, uint64_t b)
{
	uint64_t m = a < b ? a : b;

	return m > UINT32_MAX ? UINT32_MAX : (uint32_t)m;
}

/* What every port takes that a rail of the device is on: slices are cut alike for all of them. */
static uint64_t max_message(const struct native_context *c)
{
	uint64_t most = UINT64_MAX;

	for (uint32_t i = 0; i < c->native->nrails; i++) {
		const struct rdma_rail *r = &c->native->rails[i];

		if (r->info.context == c->index && r->max_message && r->max_message < most)
			most = r->max_message;
	}
	return most < UINT64_MAX ? most : 1u << 30;
}

static void fill_info(const struct native_context *c, const struct provider *p,
		      struct native_context_info *info)
{
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "%s", c->device);
	snprintf(info->provider, sizeof(info->provider), "%s", p->name);
	info->weak = p->weak;
	info->max_region_bytes = c->attr.max_mr_size;
	info->max_message_bytes = max_message(c);
	/* mlx5 binds at most 2 GiB (providers/mlx5/qp.c); nobody needs more in one window. */
	info->max_window_bytes = c->attr.max_mr_size < (1ull << 31) ? c->attr.max_mr_size
								    : (1ull << 31);
	info->max_sge = least((uint64_t)c->attr.max_sge, NATIVE_MAX_SGE);
	info->max_send_depth = (uint32_t)c->attr.max_qp_wr;
	info->max_cq_depth = (uint32_t)c->attr.max_cqe;
	info->max_inline = RDMA_MAX_INLINE;
	info->max_windows = (uint32_t)c->attr.max_mw;
	info->max_regions = (uint32_t)c->attr.max_mr;
	info->max_connections = (uint32_t)c->attr.max_qp;
	info->numa_node = topology_node(c->native->set.sysfs, c->device);
	topology_distances(c->native->set.sysfs, info->numa_node, info->distance);
	info->exact_windows = (uint32_t)p->exact_windows;
}

const struct provider *context_check(const struct native *n, const char *device,
				     const struct ibv_context *verbs,
				     const struct ibv_device_attr *attr, struct escrow_error *error)
{
	const struct rdma_settings *set = &n->set;
	const struct provider *p = provider_of(verbs, attr);
	const char *environment = provider_environment();

	if (p->refused) {
		error_set(error, ESCROW_E_UNSUPPORTED, 0, "%s: %s", device, p->why);
		return NULL;
	}
	if (!strcmp(p->name, "unknown") && !set->allow_unknown_provider) {
		error_set(error, ESCROW_E_UNSUPPORTED, 0,
			  "%s: vendor 0x%x part 0x%x is not in the table of providers; "
			  "rdma.allow_unknown_provider=1 takes only its completions as proofs",
			  device, attr->vendor_id, attr->vendor_part_id);
		return NULL;
	}
	if (!(attr->device_cap_flags &
	      (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B))) {
		error_set(error, ESCROW_E_UNSUPPORTED, 0,
			  "%s has no Type-2 memory windows: grants could not be bound to a peer",
			  device);
		return NULL;
	}
	if (environment && !set->allow_weak_environment) {
		error_set(error, ESCROW_E_UNSUPPORTED, 0,
			  "%s is set: it turns failed destroys into success; unset it, or "
			  "rdma.allow_weak_environment=1 takes no destroy as a proof",
			  environment);
		return NULL;
	}
	return p;
}

static void watch(struct native *n, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
	int flags = fcntl(fd, F_GETFL);

	if (flags >= 0)
		fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	epoll_ctl(n->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

escrow_status context_refused(struct escrow_error *error, int rc, const char *device)
{
	if (rc != EAGAIN)
		return error_set(error, error_status(rc), rc, "opening %s", device);
	return error_set(error, ESCROW_E_NO_MEMORY, rc,
			 "opening %s: a control group allows no more (rdma.max, hca_handle and "
			 "hca_object)",
			 device);
}

int context_open(struct native *n, uint32_t index, struct native_context **out,
		 struct native_context_info *info, struct escrow_error *error)
{
	struct native_context *c = n->host->alloc(n->host->ctx, sizeof(*c), 8);
	const struct provider *p;
	int rc;

	if (!c)
		return ENOMEM;
	memset(c, 0, sizeof(*c));
	c->native = n;
	c->index = index;
	c->recheck = n->nrails;
	snprintf(c->device, sizeof(c->device), "%s", n->devices[index]);
	rc = open_named(n, c->device, &c->verbs);
	if (rc) {
		context_refused(error, rc, c->device);
		goto free_context;
	}
	rc = verbs_query_device(c->verbs, &c->attr);
	if (rc) {
		error_set(error, error_status(rc), rc, "querying %s", c->device);
		goto close_device;
	}
	p = context_check(n, c->device, c->verbs, &c->attr, error);
	if (!p) {
		rc = EOPNOTSUPP;
		goto close_device;
	}
	fill_info(c, p, info);
	info->hides_failures = provider_environment() != NULL;
	if (info->hides_failures)
		info->weak |= ESCROW_WEAK_RESET | ESCROW_WEAK_DEREG | ESCROW_WEAK_DEALLOC_WINDOW |
			      ESCROW_WEAK_DESTROY;
	context_count_objects(c);
	watch(n, c->verbs->async_fd);
	n->contexts[index] = c;
	*out = c;
	return 0;

close_device:
	verbs_close_device(n->log, c->verbs);
free_context:
	n->host->free(n->host->ctx, c);
	return rc;
}

int context_close(struct native_context *c)
{
	struct native *n = c->native;
	int rc;

	epoll_ctl(n->epoll_fd, EPOLL_CTL_DEL, c->verbs->async_fd, NULL);
	n->contexts[c->index] = NULL;
	/* Always 0 (libibverbs/device.c): it frees what is left instead of refusing.  That nothing
	 * is left is for the caller to know. */
	rc = verbs_close_device(n->log, c->verbs);
	if (!rc)
		n->host->free(n->host->ctx, c);
	return rc;
}

int context_alloc_pd(struct native_context *c)
{
	int rc = verbs_alloc_pd(c->native->log, c->verbs, &c->pd);

	if (!rc)
		c->dmabuf = verbs_takes_dmabuf(c->pd, registration_access(c->native));
	return rc;
}

int context_takes_dmabuf(const struct native_context *c)
{
	return c->native->set.dmabuf && c->dmabuf;
}

int context_dealloc_pd(struct native_context *c)
{
	return verbs_dealloc_pd(c->native->log, c->pd);
}

/* The rail's state is asked, not guessed from an event: events can be lost and come twice. */
static enum rail_state rail_state(const struct rdma_rail *r, const struct native_context *c)
{
	struct ibv_port_attr attr;

	if (!rail_gid_is_there(r, c->verbs))
		return RAIL_NO_ADDRESS;
	return !verbs_query_port(c->verbs, r->port, &attr) && attr.state == IBV_PORT_ACTIVE
		       ? RAIL_UP
		       : RAIL_DOWN;
}

/* After a port event: the next rail of this device whose state has changed. */
static int next_rail_event(struct native_context *c, struct native_event *event)
{
	while (c->recheck < c->native->nrails) {
		uint32_t i = c->recheck++;
		struct rdma_rail *r = &c->native->rails[i];
		enum rail_state state;

		if (r->info.context != c->index)
			continue;
		state = rail_state(r, c);
		if (state == r->state)
			continue;
		r->state = state;
		event->kind = state == RAIL_UP ? NATIVE_EV_RAIL_UP : NATIVE_EV_RAIL_DOWN;
		event->error = state == RAIL_NO_ADDRESS ? EADDRNOTAVAIL : 0;
		event->rail = i;
		return 1;
	}
	return 0;
}

/* ---- Objects whose destroy failed ---------------------------------------------------------------- */
void context_object_dead(struct native_context *c, struct native_dead *dead, const void *object)
{
	dead->object = object;
	dead->next = c->dead;
	c->dead = dead;
}

/* Its memory was given out again, so the one that was there has gone. */
void context_object_lives(struct native_context *c, const void *object)
{
	struct native_dead **at = &c->dead;

	while (*at && (*at)->object != object)
		at = &(*at)->next;
	if (*at)
		*at = (*at)->next;
}

static const void *object_of(const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		return ev->element.cq;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return ev->element.qp;
	default:
		return NULL;
	}
}

/*
 * To acknowledge an event is to write into its object (libibverbs/device.c), and to translate one to read there.  Of one
 * whose destroy failed neither is needed: nothing waits for its events any more.
 */
static bool is_of_dead(const struct native_context *c, const struct ibv_async_event *ev)
{
	const void *object = object_of(ev);
	const struct native_dead *d = c->dead;

	while (object && d && d->object != object)
		d = d->next;
	return object && d;
}

/* ---- What it says ------------------------------------------------------------------------------- */
static void say(struct native_context *c, struct native_said *said, int32_t error)
{
	if (error)
		said->error = error;
	if (said->waits)
		return;
	said->waits = true;
	said->next = c->said;
	c->said = said;
}

void context_unsay(struct native_context *c, const struct native_said *said)
{
	struct native_said **at = &c->said;

	while (*at && *at != said)
		at = &(*at)->next;
	if (*at)
		*at = said->next;
}

static void note(struct native_context *c, const struct ibv_async_event *ev)
{
	struct native_conn *conn;

	switch (ev->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		c->gone = true;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		conn = ev->element.qp->qp_context;
		say(c, &conn->said, ev->event_type == IBV_EVENT_QP_ACCESS_ERR ? EACCES : 0);
		break;
	case IBV_EVENT_CQ_ERR:
		say(c, &((struct native_lane *)ev->element.cq->cq_context)->said, 0);
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
		c->recheck = 0;
		break;
	default:
		break;
	}
}

static void hear(struct native_context *c)
{
	struct ibv_async_event ev;
	int rc = 0;

	while (!c->gone && !(rc = verbs_async_event(c->verbs, &ev))) {
		if (is_of_dead(c, &ev))
			continue;
		/* At once: a destroy verb waits for every event of its object to be (ibv_get_async_event(3)), and only
		 * what the event says is needed later. */
		verbs_ack_async_event(&ev);
		note(c, &ev);
	}
	/* The end of the events: what the removal of the device tells if its own event got lost (kernel uverbs_main.c). */
	if (atomic_exchange(&c->plan_lost, 0) || rc == EIO)
		c->gone = true;
}

int context_is_lost(struct native_context *c)
{
	hear(c);
	return c->gone;
}

/* Its events are not read any more, and a descriptor that stays readable would wake the control thread for ever. */
static int lost(struct native_context *c, struct native_event *event)
{
	c->fatal = 1;
	epoll_ctl(c->native->epoll_fd, EPOLL_CTL_DEL, c->verbs->async_fd, NULL);
	event->kind = NATIVE_EV_CONTEXT_FATAL;
	event->context = c->index;
	return 1;
}

int context_next_event(struct native_context *c, struct native_event *event)
{
	struct native_said *said;

	hear(c);
	if (c->gone && !c->fatal)
		return lost(c, event);
	if (next_rail_event(c, event))
		return 1;
	said = c->said;
	if (!said)
		return 0;
	c->said = said->next;
	event->kind = said->conn ? NATIVE_EV_CONN_ERROR : NATIVE_EV_LANE_ERROR;
	event->conn = said->conn;
	event->lane = said->lane;
	event->error = said->error;
	said->waits = false;
	said->error = 0;
	return 1;
}
