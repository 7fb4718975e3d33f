/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * renew.c - a connection that has given its keys is made anew, and the host sees nothing but E_AGAIN.
 *
 * A window that has had its binds goes, and its index is held out while the connection stands on which its
 * keys were made (ledger.h).  Before all that no grant uses is held out so, a connection of the engine is
 * renewed, the one with most of it; of a peer one at a time.
 *
 * The end that dialled says when: it puts no transfer on the connection any more and tells the other end
 * (DRAIN), which does the same and answers when its own have ended (DRAINED); then the first one says so, too.
 * Each invalidates its windows there when the other has nothing on it, and the second one ends it.  Both go the
 * way of a connection that broke and comes back (mend.c): its queue pair by the usual ladder, a new one in its
 * place, each grant bound on that, its key told.  The end that was dialled may ask for it, by the same DRAIN.
 *
 * What is said is courtesy: an index is free by the receipt of our own queue pair's end.  Nor may it cost the
 * host anything: where nothing comes of it in time, the connection goes on as it is (DRAIN_NO), and it is tried
 * again much later.  An end can go back until its windows are being invalidated, and the one that was dialled
 * until it has said DRAINED; then only when nothing is heard of the other one for very long.  Whoever ends the
 * connection after that DRAINED does as agreed: the other's may still be on its way.
 */
#include "backends/engine/engine.h"

#define TRIES 3
#define SILENCE 4 /* times patience: it may only be slow */

bool en_renew_agreed(const struct conn *c)
{
	return c->renew == RENEW_DRAINED ||
	       (c->renew == RENEW_DRAINING && en_renew_passive(c->peer) && c->peer->renewal.said);
}

/* ---- Begun ---------------------------------------------------------------------------------------- */
/* Slices of ops that are with the device. */
static uint32_t slices_on(struct conn *c)
{
	uint32_t slices;

	en_lane_lock(c->lane);
	en_lane_poll(c->lane);
	slices = c->slices;
	en_lane_unlock(c->lane);
	return slices;
}

static void start(struct escrow_engine *e, struct conn *c)
{
	struct peer *p = c->peer;
	struct renewal *r = &p->renewal;

	r->at = c->index + 1;
	r->at_due = en_renew_passive(p) ? 0 : WIRE_DRAIN;
	r->heard = r->said = r->leaving = 0;
	r->as = en_renew_passive(p) ? r->asked_as
				    : atomic_load(&c->epoch) | (uint64_t)++r->number << 32;
	/* The end that dialled says when it goes back. */
	r->until = e->now + en_renew_patience(e) * (en_renew_passive(p) ? SILENCE : 1);
	if (r->asked == r->at)
		r->asked = 0;
	c->renew = RENEW_DRAINING;
	atomic_fetch_or(&p->wants, PEER_SETTLED);
	en_conn_gate(e, c);
	r->slices = slices_on(c);
	en_work(e, &p->work);
}

static void say_no(struct renewal *r, uint32_t which, uint64_t as)
{
	r->no = which;
	r->no_as = as;
}

/* What the other end asked for, if it still can be; not at once again, or it could keep us at it. */
static struct conn *asked(struct escrow_engine *e, struct peer *p)
{
	struct renewal *r = &p->renewal;
	struct conn *c = r->asked ? &p->conns[r->asked - 1] : NULL;
	uint64_t from;

	if (!c)
		return NULL;
	if (atomic_load(&c->epoch) != (uint32_t)r->asked_as || atomic_load(&c->broken) ||
	    en_conn_given_up(c)) {
		r->asked = 0;
		return NULL;
	}
	/* Up at the other end; soon here, too. */
	if (!en_renew_up(c))
		return NULL;
	if (!en_renew_worth_it(e)) {
		if (en_renew_passive(p))
			say_no(r, r->asked, r->asked_as);
		r->asked = 0;
		return NULL;
	}
	if (en_renew_passive(p))
		return c;
	from = c->up_since + e->config.rail_retry_ms * 1000000u;
	if (r->rests && from < r->rests_until)
		from = r->rests_until;
	if (e->now >= from)
		return en_conn_rail_up(c) ? c : NULL;
	en_wake_at(e, from);
	return NULL;
}

static void begin(struct escrow_engine *e, struct peer *p)
{
	struct renewal *r = &p->renewal;
	struct conn *c;

	if (r->no)
		return;
	c = asked(e, p);
	if (!c && !en_renew_passive(p) && r->wish)
		c = &p->conns[r->wish - 1];
	if (c && en_renew_up(c) && en_conn_rail_up(c) && p->channel.up_got)
		start(e, c);
}

/* ---- Under way ------------------------------------------------------------------------------------ */
static void over(struct conn *c)
{
	struct peer *p = c->peer;

	c->renew = RENEW_NOT;
	en_conn_place_back(p->e, c);
	p->renewal.at = 0;
	p->renewal.at_due = 0;
	p->renewal.wish_until = 0;
	if (atomic_load(&p->state) == PEER_UP)
		atomic_fetch_and(&p->wants, ~PEER_SETTLED);
}

static void give_up(struct escrow_engine *e, struct conn *c)
{
	/* One that went as agreed, and is lost all the same. */
	if (c->renew == RENEW_DRAINED && c->stage != CONN_READY)
		engine_count(&e->counters.rail_lost[c->rail], 1);
	over(c);
	if (c->stage == CONN_READY)
		en_conn_broken(c);
	en_conn_gate(e, c);
	/* Who waited for this one may have no other to wait for. */
	if (peer_had_wish(c->peer))
		en_room(e);
}

/* The connection goes on as it is: what waited, too. */
static void go_back(struct escrow_engine *e, struct conn *c)
{
	struct peer *p = c->peer;

	if (p->renewal.wish == c->index + 1)
		en_renew_drop(e, p);
	over(c);
	en_renew_rest(e, p);
	en_conn_gate(e, c);
	/* Those that were asked for meanwhile; not at once, or a peer could have us look for them all the time. */
	en_join_later(e, p);
	en_work(e, &p->work);
}

/*
 * Its rail is down, so there is nobody to be heard.  That the other end's is up again it says by another connection;
 * where there is none, and we have a rail, it may as well be gone.
 */
static bool cannot_be_heard(const struct escrow_engine *e, const struct conn *c)
{
	const struct peer *p = c->peer;
	uint32_t r;

	if (en_conn_rail_up(c))
		return false;
	if (en_peer_carried(c->peer, c))
		return true;
	for (r = 0; r < p->nrails; r++)
		if (atomic_load(&e->rail_up[r]))
			return false;
	return true;
}

static bool late(struct escrow_engine *e, const struct conn *c, uint64_t *until)
{
	if (e->now >= *until && cannot_be_heard(e, c))
		*until = e->now + en_renew_patience(e);
	if (e->now >= *until)
		return true;
	en_wake_at(e, *until);
	return false;
}

/* While ops of the end that dialled end one after the other it waits for them, and says so. */
static bool goes_on(struct escrow_engine *e, struct conn *c, uint32_t slices)
{
	struct renewal *r = &c->peer->renewal;

	if (!late(e, c, &r->until))
		return true;
	if (en_renew_passive(c->peer) || slices >= r->slices) {
		say_no(r, r->at, r->as);
		go_back(e, c);
		return false;
	}
	r->slices = slices;
	r->until = e->now + en_renew_patience(e);
	r->at_due = WIRE_DRAIN;
	return true;
}

/* The end that was dialled ends it; should the news of that be lost, the other one does. */
static void drained(struct escrow_engine *e, struct conn *c)
{
	struct renewal *r = &c->peer->renewal;

	c->renew = RENEW_DRAINED;
	r->until = e->now + SILENCE * en_renew_patience(e);
	r->end_by = e->now + en_renew_patience(e);
	if (en_renew_passive(c->peer))
		en_conn_broken(c);
	en_work(e, &c->peer->work);
}

static void drain(struct escrow_engine *e, struct conn *c)
{
	struct peer *p = c->peer;
	struct renewal *r = &p->renewal;
	uint32_t slices;

	if (!en_renew_up(c)) {
		if (en_renew_agreed(c))
			drained(e, c);
		else
			give_up(e, c);
		return;
	}
	slices = slices_on(c);
	if (!r->leaving && !goes_on(e, c, slices))
		return;
	/* The other end's go through our windows. */
	r->leaving = r->leaving || (!slices && r->heard);
	if (slices || (r->leaving && !en_conn_unbind_windows(e, c))) {
		en_wake_at(e, e->now + EN_LOOK_AGAIN);
		return;
	}
	if (en_renew_passive(p) && r->heard)
		drained(e, c);
	else if (en_renew_passive(p) ? !r->said : r->heard)
		r->at_due = WIRE_DRAINED;
}

static void come_back(struct escrow_engine *e, struct conn *c)
{
	struct renewal *r = &c->peer->renewal;

	/* Its time begins when it has ended, whoever ended it. */
	if (!en_renew_up(c) && r->end_by) {
		r->end_by = 0;
		r->until = e->now + SILENCE * en_renew_patience(e);
	}
	if (c->stage == CONN_QUARANTINED || atomic_load(&c->peer->shown_out) ||
	    late(e, c, &r->until))
		give_up(e, c);
	else if (r->end_by && late(e, c, &r->end_by))
		en_conn_broken(c);
}

/* The other end, which asked for nothing yet, is to begin with what we wish; it may not want to. */
static void wait_for_order(struct escrow_engine *e, struct peer *p)
{
	struct renewal *r = &p->renewal;
	struct conn *c = &p->conns[r->wish - 1];

	if (r->wish_due || !en_renew_up(c))
		return;
	if (r->at || !r->wish_until)
		r->wish_until = e->now + 2 * en_renew_patience(e);
	if (!late(e, c, &r->wish_until))
		return;
	en_renew_drop(e, p);
	en_renew_rest(e, p);
}

/* What came before this end looked at the time: it may have been away for long. */
static void hear(struct escrow_engine *e, struct peer *p)
{
	uint32_t r;

	for (r = 0; r < p->nrails; r++)
		if (en_renew_up(&p->conns[r * p->nlanes]))
			slices_on(&p->conns[r * p->nlanes]);
	en_channel_hear(e, p);
}

void en_renew_run(struct escrow_engine *e, struct peer *p)
{
	struct renewal *r = &p->renewal;
	struct conn *c;

	if (r->at)
		hear(e, p);
	en_renew_rested(e, p);
	c = r->at ? &p->conns[r->at - 1] : NULL;
	if (c && c->renew == RENEW_DRAINING)
		drain(e, c);
	else if (c)
		come_back(e, c);
	if (!r->at)
		begin(e, p);
	if (r->wish && en_renew_passive(p))
		wait_for_order(e, p);
}

void en_renew_done(struct escrow_engine *e, struct conn *c)
{
	engine_count(&e->counters.rail_renewed[c->rail], 1);
	c->peer->renewal.failed = 0;
	over(c);
}

/* It knows nothing of us any more; or nobody answers there, time and again. */
void en_renew_rejected(struct escrow_engine *e, struct conn *c, const struct native_event *ev)
{
	bool answers;
	struct wire_hello h;

	if (!c->renew)
		return;
	answers = wire_hello_get(ev->data, ev->data_len, &h) == ESCROW_OK && h.kind == WIRE_REJECT;
	if (answers ? h.reason == ESCROW_E_REFUSED : c->tries >= TRIES)
		give_up(e, c);
}

/* ---- What the two ends tell each other -------------------------------------------------------------- */
static bool tell(struct peer *p, uint8_t type, uint32_t which, uint64_t as)
{
	struct wire_message m = {.type = type, .a = which - 1, .b = as};

	return en_channel_send(p, &m, NULL) >= 0;
}

/* Before the next one begins: they are told apart by what was said of the last. */
static bool tell_no(struct escrow_engine *e, struct peer *p)
{
	struct renewal *r = &p->renewal;

	if (!r->no)
		return true;
	if (!tell(p, WIRE_DRAIN_NO, r->no, r->no_as))
		return false;
	r->no = 0;
	en_work(e, &p->work);
	return true;
}

bool en_renew_send(struct escrow_engine *e, struct peer *p)
{
	struct renewal *r = &p->renewal;
	uint8_t type;

	if (!tell_no(e, p))
		return false;
	if (r->wish && r->wish_due && en_renew_passive(p) && !r->at &&
	    en_renew_up(&p->conns[r->wish - 1]) && p->channel.up_got) {
		if (!tell(p, r->wish_due, r->wish, atomic_load(&p->conns[r->wish - 1].epoch)))
			return false;
		r->wish_due = 0;
		en_work(e, &p->work);
	}
	if (!r->at || !r->at_due)
		return true;
	type = r->at_due;
	if (!tell(p, type, r->at, r->as))
		return false;
	r->at_due = 0;
	r->said = type == WIRE_DRAINED;
	/* Now, not in the next round: by then the other end may have ended it. */
	if (r->said && !en_renew_passive(p))
		drained(e, &p->conns[r->at - 1]);
	return true;
}

void en_renew_asked(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	struct renewal *r = &p->renewal;

	if (m->a >= p->nconns || atomic_load(&p->conns[m->a].epoch) != (uint32_t)m->b)
		return;
	if (r->at == m->a + 1 && r->as == m->b) {
		/* It is at it still. */
		if (en_renew_passive(p) && p->conns[m->a].renew == RENEW_DRAINING)
			r->until = e->now + SILENCE * en_renew_patience(e);
		return;
	}
	/* When what is under way is over: its epoch says whether it is the next one that is meant. */
	r->asked = (uint32_t)m->a + 1;
	r->asked_as = m->b;
	en_work(e, &p->work);
}

void en_renew_heard(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	struct renewal *r = &p->renewal;

	if (!r->at || m->a + 1 != r->at || r->as != m->b || (en_renew_passive(p) && !r->said))
		return;
	r->heard = 1;
	r->leaving = r->leaving || en_renew_passive(p);
	en_work(e, &p->work);
}

void en_renew_refused(struct escrow_engine *e, struct peer *p, const struct wire_message *m)
{
	struct renewal *r = &p->renewal;

	if (r->asked == m->a + 1 && r->asked_as == m->b)
		r->asked = 0;
	if (r->at && r->at == m->a + 1 && r->as == m->b && p->conns[m->a].renew == RENEW_DRAINING &&
	    !r->leaving)
		go_back(e, &p->conns[m->a]);
}
