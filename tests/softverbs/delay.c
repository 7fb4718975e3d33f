/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/delay.h"

#include "tests/softverbs/adversary.h"
#include "tests/softverbs/fabric.h"
#include "tests/softverbs/nic.h"

/* One request in so many comes twice, this much later at most. */
#define DELAY_ONE_IN 4
#define DELAY_MAX_NS 50000000u
#define DELAY_KEPT 256

struct delayed {
	struct list node;
	uint64_t due;
	struct packet *p;
};

static struct list delay_list = {&delay_list, &delay_list};
static unsigned int delay_count;

void delay_offer(const struct packet *p)
{
	struct delayed *d;

	if (!config_get()->adversary || p->h.kind != WIRE_REQUEST || delay_count == DELAY_KEPT ||
	    adversary_pick(DELAY_ONE_IN))
		return;
	d = calloc(1, sizeof(*d));
	if (!d)
		return;
	d->p = fabric_packet(p->h.size);
	if (!d->p) {
		free(d);
		return;
	}
	d->p->h = p->h;
	memcpy(d->p->payload, p->payload, p->h.size);
	d->due = base_now() + adversary_pick(DELAY_MAX_NS);
	list_append(&delay_list, &d->node);
	delay_count++;
}

uint64_t delay_time(uint64_t now)
{
	uint64_t next = UINT64_MAX;
	struct list *i, *after;

	list_for_each_safe(i, after, &delay_list)
	{
		struct delayed *d = container(i, struct delayed, node);

		if (d->due > now) {
			next = d->due < next ? d->due : next;
			continue;
		}
		list_remove(&d->node);
		delay_count--;
		fabric_repeat(d->p);
		free(d);
	}
	return next;
}

void delay_stop(void)
{
	while (!list_empty(&delay_list)) {
		struct delayed *d = container(delay_list.next, struct delayed, node);

		list_remove(&d->node);
		fabric_free(d->p);
		free(d);
	}
	delay_count = 0;
}

void delay_forked(void)
{
	list_init(&delay_list);
	delay_count = 0;
}
