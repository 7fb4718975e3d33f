/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The items of a fault plan that only a device can play.  softverbs can (tests/softverbs/softverbs.h);
 * its control interface is looked for when a plan asks, so that nothing here depends on it.
 *
 * On another device device=fatal is only the news: the device goes on, as one may after it said that it is
 * lost, and nothing that it answers is a proof.  None can be told to stop in the middle of its work without
 * its time-outs running (nic=hold), nor to make its peers vanish.
 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "backends/rdma/rdma.h"

/* A function of softverbs, or NULL where the verbs are another's. */
static void *control(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static int hold(const struct native *n, int on)
{
	void (*softverbs_hold)(struct ibv_context * context, int on);

	*(void **)&softverbs_hold = control("softverbs_hold");
	if (!softverbs_hold)
		return EINVAL;
	for (uint32_t i = 0; i < n->ncontexts; i++)
		if (n->contexts[i])
			softverbs_hold(n->contexts[i]->verbs, on);
	return 0;
}

static int kill_peers(const struct native *n)
{
	void (*softverbs_kill_peers)(struct ibv_context * context);

	*(void **)&softverbs_kill_peers = control("softverbs_kill_peers");
	if (!softverbs_kill_peers)
		return EINVAL;
	for (uint32_t i = 0; i < n->ncontexts; i++)
		if (n->contexts[i])
			softverbs_kill_peers(n->contexts[i]->verbs);
	return 0;
}

static int lose_device(const struct native *n)
{
	void (*softverbs_event)(struct ibv_context * context, int type, struct ibv_qp *qp,
				struct ibv_cq *cq);

	*(void **)&softverbs_event = control("softverbs_event");
	for (uint32_t i = 0; i < n->ncontexts; i++) {
		struct native_context *c = n->contexts[i];

		if (c && softverbs_event)
			softverbs_event(c->verbs, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
		else if (c)
			atomic_store(&c->plan_lost, 1);
	}
	return 0;
}

int fault_play(struct native *n, const char *item)
{
	if (strcmp(item, "nic=hold") == 0)
		return hold(n, 1);
	if (strcmp(item, "nic=run") == 0)
		return hold(n, 0);
	if (strcmp(item, "peer=kill") == 0)
		return kill_peers(n);
	if (strcmp(item, "device=fatal") == 0)
		return lose_device(n);
	/* Where nothing can be held there is nothing to let go. */
	if (strcmp(item, "clear") == 0) {
		hold(n, 0);
		return 0;
	}
	return EINVAL;
}
