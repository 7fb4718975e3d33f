/* SPDX-License-Identifier: BSD-2-Clause */
/* fault.c - the items of a fault plan that only a device can play (escrow/fault.h). */
#include "backends/mock/mock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void kick_all(struct native *n)
{
	for (struct native_lane *l = n->lanes; l; l = l->next)
		lane_kick(l);
}

/* nic=hold: the device stops before its next access to memory; completions are such accesses. */
static void hold_nic(struct native *n, bool held)
{
	n->faults.nic_held = held;
	for (struct native_lane *l = n->lanes; l; l = l->next)
		for (struct native_conn *c = l->conns; c; c = c->next) {
			socket_watch(c);
			if (c->peer)
				lane_kick(c->peer->lane);
		}
	kick_all(n);
}

/* peer=kill: the other ends die without a word, as with a host that loses its power. */
static void kill_peers(struct native *n)
{
	for (struct native_lane *l = n->lanes; l; l = l->next)
		for (struct native_conn *c = l->conns; c; c = c->next) {
			if (atomic_load(&c->state) == MOCK_INIT)
				continue;
			c->cut = true;
			link_close(c);
		}
	kick_all(n);
}

static void die(struct native *n)
{
	n->fatal = true;
	for (uint32_t i = 0; i < n->ncontexts; i++)
		if (n->contexts[i].open)
			news_tell(n, &n->contexts[i].news);
}

static void let_go(struct native *n)
{
	n->faults.hold = 0;
	for (struct native_lane *l = n->lanes; l; l = l->next)
		for (struct native_conn *c = l->conns; c; c = c->next)
			for (uint32_t i = c->sq_head; i != c->sq_exec; i++)
				conn_wr(c, i)->withheld = false;
	kick_all(n);
}

/* VERDICT[:COUNT] */
static int plan_completions(struct native *n, const char *text)
{
	const struct {
		const char *word;
		uint64_t *count;
	} verdicts[] = {
		{"hold", &n->faults.hold},
		{"drop", &n->faults.drop},
		{"dup", &n->faults.dup},
		{"stale", &n->faults.stale},
	};
	size_t word = strcspn(text, ":");
	uint64_t count = UINT64_MAX;
	char *end;

	if (text[word] == ':') {
		if (text[word + 1] < '0' || text[word + 1] > '9')
			return EINVAL;
		count = strtoull(text + word + 1, &end, 10);
		if (*end)
			return EINVAL;
	}
	for (size_t i = 0; i < sizeof(verdicts) / sizeof(verdicts[0]); i++) {
		if (strlen(verdicts[i].word) != word || strncmp(text, verdicts[i].word, word) != 0)
			continue;
		*verdicts[i].count = count;
		return 0;
	}
	if (strcmp(text, "release") == 0)
		let_go(n);
	else if (strcmp(text, "ok") == 0)
		n->faults.hold = n->faults.drop = n->faults.dup = n->faults.stale = 0;
	else
		return EINVAL;
	return 0;
}

static void forget_all(struct native *n)
{
	n->faults.drop = n->faults.dup = n->faults.stale = 0;
	let_go(n);
	hold_nic(n, false);
}

int mock_fault(struct native *n, const char *item)
{
	int error = 0;

	fabric_lock();
	if (strcmp(item, "nic=hold") == 0)
		hold_nic(n, true);
	else if (strcmp(item, "nic=run") == 0)
		hold_nic(n, false);
	else if (strcmp(item, "peer=kill") == 0)
		kill_peers(n);
	else if (strcmp(item, "device=fatal") == 0)
		die(n);
	else if (strncmp(item, "cqe=", 4) == 0)
		error = plan_completions(n, item + 4);
	else if (strcmp(item, "clear") == 0)
		forget_all(n);
	else
		error = EINVAL;
	fabric_unlock();
	return error;
}

static bool take_one(uint64_t *count)
{
	if (*count == 0)
		return false;
	if (*count != UINT64_MAX)
		--*count;
	return true;
}

/* A plan concerns the completions of what grants and moves bytes, not those of messages. */
static bool is_concerned(const struct mock_wr *wr)
{
	return wr->opcode != NATIVE_SEND;
}

bool fault_withholds(struct native *n, struct mock_wr *wr)
{
	if (!wr->withheld && is_concerned(wr) && take_one(&n->faults.hold))
		wr->withheld = true;
	return wr->withheld;
}

void fault_complete(struct native_conn *c, const struct native_cqe *cqe)
{
	struct native_lane *l = c->lane;
	struct mock_faults *f = &c->native->faults;

	if (!is_concerned(conn_wr(c, c->sq_head - 1))) {
		lane_push(l, cqe, c->serial, true);
		return;
	}
	if (take_one(&f->drop))
		return;
	lane_push(l, cqe, c->serial, true);
	if (take_one(&f->dup))
		lane_push(l, cqe, c->serial, false);
	if (l->nstale < MOCK_STALE && take_one(&f->stale)) {
		l->stale[l->nstale++] = *cqe;
		l->stale_wait = 8;
	}
}

void fault_repeat(struct native_lane *l)
{
	if (l->stale_wait-- > 0)
		return;
	l->stale_wait = 8;
	lane_push(l, &l->stale[--l->nstale], 0, false);
}
