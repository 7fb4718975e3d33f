/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/held.h"

#include "tests/softverbs/nic.h"

#define HELD_PERIOD_NS 2000000u

struct held_cqe {
	struct list node;
	/* Among all that are held. */
	struct list all;
	struct qp *qp;
	struct cqe entry;
	bool writes;
	unsigned int num_sge;
	struct ibv_sge sge[DEVICE_MAX_SGE];
};

static struct list held_all = {&held_all, &held_all};
static uint64_t held_next;

void held_add(struct qp *qp, const struct cqe *entry, const struct wqe *w)
{
	struct held_cqe *h = calloc(1, sizeof(*h));

	if (!h)
		return;
	h->entry = *entry;
	h->qp = qp;
	if (w && !(w->flags & IBV_SEND_INLINE)) {
		h->writes = w->opcode == IBV_WR_RDMA_READ;
		h->num_sge = w->num_sge;
		memcpy(h->sge, w->sge, w->num_sge * sizeof(*w->sge));
	}
	list_append(&qp->held, &h->node);
	list_append(&held_all, &h->all);
	nic_wake();
}

static struct held_cqe *held_take(struct qp *qp)
{
	struct held_cqe *h;

	if (list_empty(&qp->held))
		return NULL;
	h = container(qp->held.next, struct held_cqe, node);
	list_remove(&h->node);
	list_remove(&h->all);
	return h;
}

void held_release(struct qp *qp)
{
	struct held_cqe *h;

	while ((h = held_take(qp))) {
		cq_push(h->entry.receive ? qp->rcq : qp->scq, &h->entry);
		free(h);
	}
}

void held_drop(struct qp *qp)
{
	struct held_cqe *h;

	while ((h = held_take(qp)))
		free(h);
}

static void held_touch(struct held_cqe *h)
{
	unsigned int i;

	for (i = 0; i < h->num_sge; i++) {
		const struct ibv_sge *s = &h->sge[i];
		volatile uint8_t *p = mr_local(h->qp->pd, s->lkey, s->addr, s->length, h->writes);
		uint32_t at;

		/* A dead key ends it, as it would end the request. */
		for (at = 0; p && at < s->length; at += 512) {
			uint8_t byte = p[at];

			if (h->writes)
				p[at] = byte;
		}
	}
}

uint64_t held_time(uint64_t now)
{
	struct list *i;

	if (list_empty(&held_all))
		return UINT64_MAX;
	if (now < held_next)
		return held_next;
	list_for_each(i, &held_all) held_touch(container(i, struct held_cqe, all));
	held_next = now + HELD_PERIOD_NS;
	return held_next;
}
