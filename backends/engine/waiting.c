/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * waiting.c - connection requests that can be answered only when something of ours has gone, and what is said to those
 * that are refused.
 *
 * There are few places, and whoever may ask at all may ask often.  So of who asks again for the same connection only
 * the last request waits; and what comes by open invitations, whose holders may say that they are anybody, gets half of
 * the places at most, and its turn after the others: for those our own way was left.
 */
#include "backends/engine/engine.h"

#include <string.h>

#define OPEN_WAITING (WAITING_REQUESTS / 2)

struct ticket *en_ticket_find(struct escrow_engine *e, uint64_t id)
{
	uint32_t i;

	for (i = 0; id && i < e->ntickets; i++)
		if (e->tickets[i].id == id)
			return &e->tickets[i];
	return NULL;
}

static bool comes_openly(struct escrow_engine *e, const struct wire_hello *h)
{
	const struct ticket *t = h->kind == WIRE_REQUEST ? en_ticket_find(e, h->ticket) : NULL;

	return t && t->any;
}

/* They proved their tickets, or what only the ends of their set know. */
static bool for_the_same(const struct wire_hello *was, const struct wire_hello *h)
{
	return was->kind == h->kind && was->ticket == h->ticket && was->rail == h->rail &&
	       was->lane == h->lane &&
	       (h->kind == WIRE_REQUEST || (was->set == h->set && was->mark == h->mark &&
					    memcmp(was->incarnation, h->incarnation, 16) == 0));
}

static uint32_t last_epoch(struct escrow_engine *e, const struct wire_hello *h)
{
	uint64_t last = en_epoch_taken(e, h->incarnation, h->mark);

	return last && last < UINT32_MAX ? (uint32_t)last : 1;
}

void en_request_refuse(struct escrow_engine *e, const struct native_event *ev,
		       const struct wire_hello *h, escrow_status st)
{
	struct wire_hello no = {
		.kind = WIRE_REJECT, .nrails = 1, .nlanes = 1, .epoch = 1, .reason = st};
	uint8_t data[NATIVE_PRIVATE_BYTES];

	engine_count(&e->counters.refused_connects, 1);
	/* What its next one must be beyond. */
	if (st == ESCROW_E_STALE_EPOCH && h->kind == WIRE_REQUEST)
		no.epoch = last_epoch(e, h);
	memcpy(no.incarnation, e->incarnation, 16);
	wire_hello_put(&no, data);
	engine_unlock(e);
	e->ops->reject(e->native, ev->request, data, sizeof(data));
	engine_lock(e);
}

static void take_over(struct escrow_engine *e, uint32_t i, const struct native_event *ev,
		      const struct wire_hello *was)
{
	struct native_event old = e->waiting[i];

	e->waiting[i] = *ev;
	en_request_refuse(e, &old, was, ESCROW_E_QUOTA);
}

bool en_request_waits(struct escrow_engine *e, const struct native_event *ev,
		      const struct wire_hello *h)
{
	bool open = comes_openly(e, h);
	struct wire_hello was;
	uint32_t i, nopen = 0;

	for (i = 0; i < e->nwaiting; i++) {
		wire_hello_get(e->waiting[i].data, e->waiting[i].data_len, &was);
		nopen += comes_openly(e, &was);
		if (open || !for_the_same(&was, h))
			continue;
		take_over(e, i, ev, &was);
		return true;
	}
	if (e->nwaiting == WAITING_REQUESTS || (open && nopen == OPEN_WAITING))
		return false;
	e->waiting[e->nwaiting++] = *ev;
	return true;
}

/* Oldest first: what must still wait goes to the end of the same list. */
void en_requests_again(struct escrow_engine *e)
{
	struct native_event waiting[WAITING_REQUESTS];
	bool open[WAITING_REQUESTS];
	uint32_t n = e->nwaiting, i;
	struct wire_hello h;

	memcpy(waiting, e->waiting, n * sizeof(waiting[0]));
	e->nwaiting = 0;
	for (i = 0; i < n; i++) {
		wire_hello_get(waiting[i].data, waiting[i].data_len, &h);
		open[i] = comes_openly(e, &h);
	}
	for (i = 0; i < n; i++)
		if (!open[i])
			en_request(e, &waiting[i]);
	for (i = 0; i < n; i++)
		if (open[i])
			en_request(e, &waiting[i]);
}
