/* SPDX-License-Identifier: BSD-2-Clause */
/* renew.h - a connection that has given its keys is made anew (renew.c); included by engine.h, words as in parts.h. */
#ifndef ENGINE_RENEW_H
#define ENGINE_RENEW_H

static inline bool en_renew_passive(const struct peer *p)
{
	return (p->flags & ESCROW_PEER_PASSIVE) != 0;
}

static inline uint64_t en_renew_patience(const struct escrow_engine *e)
{
	return e->config.connect_ms * 1000000u;
}

/* Its memory for messages goes with it: where nothing proves that, each time would withhold some. */
static inline bool en_renew_worth_it(const struct escrow_engine *e)
{
	return !(en_weak_bits(e) & ESCROW_WEAK_DEREG);
}

static inline bool en_renew_up(const struct conn *c)
{
	return c->stage == CONN_READY && !atomic_load(&c->broken);
}

/* locked. A window is in use by a grant, or no longer. */
static inline void en_renew_window(struct escrow_engine *e, struct window *w, bool in_use)
{
	if (w->in_use == in_use)
		return;
	w->in_use = in_use;
	e->in_use += in_use ? 1 : UINT32_MAX;
	if (e->in_use > e->most_in_use)
		e->most_in_use = e->in_use;
}
/* locked. It was given to its device, and its index is held out while a connection stands. */
void en_renew_spent(struct escrow_engine *e, const struct window *w);
/* locked. A connection is to be made anew, if too much is held out, or (`now`) if anything is. */
void en_renew_wish(struct escrow_engine *e, bool now);
/* runner. Is one, of whichever peer, wished or under way?  It is wished, if it can be. */
bool en_renew_hoped(struct escrow_engine *e);
/* runner. Nothing came of the wish; it is not tried again at once; unless it was long ago. */
void en_renew_drop(struct escrow_engine *e, struct peer *p);
void en_renew_rest(struct escrow_engine *e, struct peer *p);
void en_renew_rested(struct escrow_engine *e, struct peer *p);
/* runner. What there is to do about it. */
void en_renew_run(struct escrow_engine *e, struct peer *p);
bool en_renew_send(struct escrow_engine *e, struct peer *p);
void en_renew_asked(struct escrow_engine *e, struct peer *p, const struct wire_message *m);
void en_renew_heard(struct escrow_engine *e, struct peer *p, const struct wire_message *m);
void en_renew_refused(struct escrow_engine *e, struct peer *p, const struct wire_message *m);
/* Its end was agreed on, or may have been as far as this end knows: it costs nobody anything. */
bool en_renew_agreed(const struct conn *c);
/* runner. The connection has gone, and with it what was held out for it; it is there again. */
void en_renew_gone(struct escrow_engine *e, struct conn *c);
void en_renew_done(struct escrow_engine *e, struct conn *c);
/* runner. The other end did not take it back. */
void en_renew_rejected(struct escrow_engine *e, struct conn *c, const struct native_event *ev);

#endif
