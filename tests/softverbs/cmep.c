/* SPDX-License-Identifier: BSD-2-Clause */
/* The convenience half of librdmacm: endpoints, their queues, address lookup, devices. */
#include <netdb.h>
#include <rdma/rdma_verbs.h>

#include "tests/softverbs/cm.h"
#include "tests/softverbs/script.h"

static struct ibv_context *cm_contexts[RAILS_MAX];
static struct ibv_pd *cm_pds[RAILS_MAX];
/* rdma_get_devices() gave them out. */
static bool cm_contexts_lent;

struct ibv_context *cm_context(int rail)
{
	struct ibv_context *fresh = NULL, *ctx;
	struct device *d;

	base_lock();
	ctx = cm_contexts[rail];
	d = device_get(rail);
	base_unlock();
	if (ctx || !d)
		return ctx;
	fresh = ibv_open_device(&d->ib);
	base_lock();
	if (!cm_contexts[rail]) {
		cm_contexts[rail] = fresh;
		fresh = NULL;
	}
	ctx = cm_contexts[rail];
	base_unlock();
	if (fresh)
		ibv_close_device(fresh);
	return ctx;
}

void cm_contexts_forget(void)
{
	memset(cm_contexts, 0, sizeof(cm_contexts));
	memset(cm_pds, 0, sizeof(cm_pds));
}

static struct ibv_pd *cm_pd(struct rdma_cm_id *ib)
{
	int rail = cm_of(ib)->rail;

	if (!cm_pds[rail])
		cm_pds[rail] = ibv_alloc_pd(cm_context(rail));
	return cm_pds[rail];
}

bool cm_contexts_close(void)
{
	int rail;

	for (rail = 0; rail < RAILS_MAX; rail++) {
		struct ibv_pd *pd = cm_pds[rail];
		unsigned int own = pd ? 1 : 0;

		if (cm_contexts[rail] && (cm_contexts_lent || (pd && pd_of(pd)->users) ||
					  context_of(cm_contexts[rail])->children != own))
			return false;
	}
	for (rail = 0; rail < RAILS_MAX; rail++) {
		if (cm_pds[rail])
			pd_close(pd_of(cm_pds[rail]));
		if (cm_contexts[rail])
			context_close(context_of(cm_contexts[rail]));
		cm_pds[rail] = NULL;
		cm_contexts[rail] = NULL;
	}
	return true;
}

EXPORT struct ibv_context **rdma_get_devices(int *num)
{
	struct ibv_context **all = calloc(RAILS_MAX + 1, sizeof(struct ibv_context *));
	int n;

	cm_contexts_lent = true;
	for (n = 0; all && n < config_get()->rails; n++)
		all[n] = cm_context(n);
	if (num)
		*num = all ? n : 0;
	return all;
}

EXPORT void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

/* ---- queue pairs of an id ---- */
static void cm_destroy_cqs(struct rdma_cm_id *ib)
{
	if (ib->recv_cq)
		ibv_destroy_cq(ib->recv_cq);
	if (ib->recv_cq_channel)
		ibv_destroy_comp_channel(ib->recv_cq_channel);
	if (ib->send_cq && ib->send_cq != ib->recv_cq)
		ibv_destroy_cq(ib->send_cq);
	if (ib->send_cq_channel && ib->send_cq_channel != ib->recv_cq_channel)
		ibv_destroy_comp_channel(ib->send_cq_channel);
	ib->recv_cq = NULL;
	ib->send_cq = NULL;
	ib->recv_cq_channel = NULL;
	ib->send_cq_channel = NULL;
}

static struct ibv_cq *cm_make_cq(struct rdma_cm_id *ib, uint32_t size,
				 struct ibv_comp_channel **channel)
{
	*channel = ibv_create_comp_channel(ib->verbs);
	return *channel ? ibv_create_cq(ib->verbs, size ? (int)size : 1, ib, *channel, 0) : NULL;
}

/* What ucma_create_cqs() does for queues that the program did not bring. */
static int cm_make_cqs(struct rdma_cm_id *ib, struct ibv_qp_init_attr *init)
{
	if (!init->recv_cq)
		init->recv_cq = ib->recv_cq =
			cm_make_cq(ib, init->cap.max_recv_wr, &ib->recv_cq_channel);
	if (!init->send_cq)
		init->send_cq = ib->send_cq =
			cm_make_cq(ib, init->cap.max_send_wr, &ib->send_cq_channel);
	if (init->recv_cq && init->send_cq)
		return 0;
	cm_destroy_cqs(ib);
	return ENOMEM;
}

EXPORT int rdma_create_qp(struct rdma_cm_id *ib, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr full = *init;
	struct ibv_qp *qp;
	int rc;

	if (ib->qp || !ib->verbs)
		return cm_result(EINVAL);
	if (!pd)
		pd = cm_pd(ib);
	if (!pd || pd->context != ib->verbs)
		return cm_result(EINVAL);
	rc = cm_make_cqs(ib, &full);
	if (rc)
		return cm_result(rc);
	qp = ibv_create_qp(pd, &full);
	rc = qp ? cm_qp_init(ib, qp) : errno;
	if (rc) {
		if (qp)
			ibv_destroy_qp(qp);
		cm_destroy_cqs(ib);
		return cm_result(rc);
	}
	ib->pd = pd;
	ib->qp = qp;
	init->cap = full.cap;
	return 0;
}

EXPORT int rdma_create_qp_ex(struct rdma_cm_id *ib, struct ibv_qp_init_attr_ex *init)
{
	struct ibv_pd *pd = init->comp_mask & IBV_QP_INIT_ATTR_PD ? init->pd : NULL;

	/* The first members are those of the plain struct. */
	return rdma_create_qp(ib, pd, (struct ibv_qp_init_attr *)(void *)init);
}

EXPORT void rdma_destroy_qp(struct rdma_cm_id *ib)
{
	/* The result is lost, as in librdmacm. */
	ibv_destroy_qp(ib->qp);
	ib->qp = NULL;
	cm_destroy_cqs(ib);
}

EXPORT int rdma_create_srq(struct rdma_cm_id *ib, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return cm_result(EOPNOTSUPP);
}

EXPORT int rdma_create_srq_ex(struct rdma_cm_id *ib, struct ibv_srq_init_attr_ex *attr)
{
	return cm_result(EOPNOTSUPP);
}

EXPORT void rdma_destroy_srq(struct rdma_cm_id *ib)
{
}

EXPORT int rdma_join_multicast(struct rdma_cm_id *ib, struct sockaddr *addr, void *context)
{
	return cm_result(EOPNOTSUPP);
}

EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *ib, struct rdma_cm_join_mc_attr_ex *attr,
				  void *context)
{
	return cm_result(EOPNOTSUPP);
}

EXPORT int rdma_leave_multicast(struct rdma_cm_id *ib, struct sockaddr *addr)
{
	return cm_result(EOPNOTSUPP);
}

/* ---- endpoints ---- */
static int cm_ep_passive(struct rdma_cm_id *ib, struct rdma_addrinfo *res, struct ibv_pd *pd,
			 const struct ibv_qp_init_attr *init)
{
	struct cm_id *id = cm_of(ib);

	if (rdma_bind_addr(ib, res->ai_src_addr))
		return -1;
	if (init) {
		id->ep_init = malloc(sizeof(*init));
		if (!id->ep_init)
			return cm_result(ENOMEM);
		*id->ep_init = *init;
		id->ep_pd = pd;
	}
	return 0;
}

static int cm_ep_active(struct rdma_cm_id *ib, struct rdma_addrinfo *res, struct ibv_pd *pd,
			struct ibv_qp_init_attr *init)
{
	if (rdma_resolve_addr(ib, res->ai_src_addr, res->ai_dst_addr, 2000) ||
	    rdma_resolve_route(ib, 2000))
		return -1;
	if (!init)
		return 0;
	return rdma_create_qp(ib, pd, init);
}

EXPORT int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
			  struct ibv_qp_init_attr *init)
{
	struct rdma_cm_id *ib;
	int rc, err;

	if (rdma_create_id(NULL, &ib, NULL, (enum rdma_port_space)res->ai_port_space))
		return -1;
	if (init)
		init->qp_type = res->ai_qp_type ? (enum ibv_qp_type)res->ai_qp_type : IBV_QPT_RC;
	if (res->ai_flags & RAI_PASSIVE)
		rc = cm_ep_passive(ib, res, pd, init);
	else
		rc = cm_ep_active(ib, res, pd, init);
	if (rc) {
		err = errno;
		rdma_destroy_id(ib);
		return cm_result(err);
	}
	*out = ib;
	return 0;
}

EXPORT void rdma_destroy_ep(struct rdma_cm_id *ib)
{
	if (ib->qp)
		rdma_destroy_qp(ib);
	rdma_destroy_id(ib);
}

EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
	struct cm_id *l = cm_of(listen);
	struct rdma_cm_event *ev;
	struct ibv_qp_init_attr init;

	if (!l->sync)
		return cm_result(EINVAL);
	if (listen->event) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &ev))
		return -1;
	if (ev->status || ev->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		int err = ev->status < 0 ? -ev->status : EINVAL;

		rdma_ack_cm_event(ev);
		return cm_result(err);
	}
	if (l->ep_init) {
		init = *l->ep_init;
		if (rdma_create_qp(ev->id, l->ep_pd, &init)) {
			int err = errno;

			rdma_reject(ev->id, NULL, 0);
			rdma_ack_cm_event(ev);
			return cm_result(err);
		}
	}
	*out = ev->id;
	listen->event = ev;
	return 0;
}

/* ---- address lookup ---- */
static int cm_copy_addr(const struct addrinfo *from, struct sockaddr **addr, socklen_t *len)
{
	*addr = malloc(from->ai_addrlen);
	if (!*addr)
		return ENOMEM;
	memcpy(*addr, from->ai_addr, from->ai_addrlen);
	*len = from->ai_addrlen;
	return 0;
}

/* Where to, or where one listens, by name. */
static int rai_by_name(const char *node, const char *service, const struct rdma_addrinfo *hints,
		       struct rdma_addrinfo *rai)
{
	struct addrinfo in = {.ai_socktype = SOCK_STREAM}, *found;
	bool passive = hints && hints->ai_flags & RAI_PASSIVE;
	int rc;

	in.ai_flags = passive ? AI_PASSIVE : 0;
	if (hints && hints->ai_flags & RAI_NUMERICHOST)
		in.ai_flags |= AI_NUMERICHOST;
	if (hints && hints->ai_flags & RAI_FAMILY)
		in.ai_family = hints->ai_family;
	rc = getaddrinfo(node, service, &in, &found);
	if (rc)
		return rc;
	rai->ai_family = found->ai_family;
	rc = passive ? cm_copy_addr(found, &rai->ai_src_addr, &rai->ai_src_len)
		     : cm_copy_addr(found, &rai->ai_dst_addr, &rai->ai_dst_len);
	freeaddrinfo(found);
	return rc ? EAI_MEMORY : 0;
}

static int rai_copy(const struct sockaddr *addr, socklen_t len, struct sockaddr **to,
		    socklen_t *to_len)
{
	struct addrinfo from = {.ai_addr = (struct sockaddr *)(uintptr_t)addr, .ai_addrlen = len};

	return len && !*to_len && cm_copy_addr(&from, to, to_len) ? EAI_MEMORY : 0;
}

/* Without a name what the hints say counts, as in librdmacm (addrinfo.c). */
EXPORT int rdma_getaddrinfo(const char *node, const char *service,
			    const struct rdma_addrinfo *hints, struct rdma_addrinfo **out)
{
	struct rdma_addrinfo *rai;
	int rc = 0;

	if (!node && !service && !hints) {
		errno = EINVAL;
		return -1;
	}
	rai = calloc(1, sizeof(*rai));
	if (!rai)
		return EAI_MEMORY;
	rai->ai_flags = hints ? hints->ai_flags : 0;
	rai->ai_family = hints ? hints->ai_family : 0;
	rai->ai_qp_type = hints && hints->ai_qp_type ? hints->ai_qp_type : IBV_QPT_RC;
	rai->ai_port_space = hints && hints->ai_port_space ? hints->ai_port_space : RDMA_PS_TCP;
	if (node || service)
		rc = rai_by_name(node, service, hints, rai);
	else
		rc = rai_copy(hints->ai_dst_addr, hints->ai_dst_len, &rai->ai_dst_addr,
			      &rai->ai_dst_len);
	if (!rc && hints)
		rc = rai_copy(hints->ai_src_addr, hints->ai_src_len, &rai->ai_src_addr,
			      &rai->ai_src_len);
	if (rc) {
		rdma_freeaddrinfo(rai);
		return rc;
	}
	*out = rai;
	return 0;
}

EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res);
		res = next;
	}
}
