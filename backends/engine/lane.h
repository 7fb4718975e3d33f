/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lane.h - lanes: taken and given back; and what is wanted of who has one, which is asked of two words, one of the engine
 * and one of the peer, and not of each thing that can be wanted.
 */
#ifndef ENGINE_LANE_H
#define ENGINE_LANE_H

static inline bool en_lane_trylock(struct lane *lane)
{
	return lock_try(&lane->lock);
}
static inline void en_lane_lock(struct lane *lane)
{
	lock_take(&lane->lock);
}
void en_room(struct escrow_engine *e);
/* A transfer that found every lane busy is told when one is free again; and who waits for ops, when none is left. */
void en_lane_wanted(struct escrow_engine *e);
static inline void en_lane_give(struct escrow_engine *e, struct lane *lane)
{
	lock_give(&lane->lock);
	if (__builtin_expect(atomic_load(&e->wants) != 0, 0))
		en_lane_wanted(e);
}
static inline void en_lane_unlock(struct lane *lane)
{
	en_lane_give(lane->e, lane);
}
/* lane. Something about it changed: may a completion be taken at once? */
void en_lane_quick(struct lane *lane);
/* lane. It is asked no more. */
void en_lane_deafen(struct lane *lane);
/* locked. One connection more, or less, has its completions there. */
void en_lane_used(struct lane *lane, bool more);

/* ---- What a peer wants ----------------------------------------------------------------------------- */
/* What is wanted of whoever settles something on its connections; BROKEN: one of them may be. */
#define PEER_ROOM 1u    /* a transfer found no slot free */
#define PEER_EMPTY 2u   /* a drain or the teardown waits for its ops */
#define PEER_SETTLED 4u /* what is settled is the runner's news */
#define PEER_BROKEN 8u

/* lane. Something of the peer was settled there, which wants to know. */
void en_peer_wants(struct conn *conn);
/* A wish for room of the peer's ends: was there one? */
static inline bool peer_had_wish(struct peer *p)
{
	return (atomic_fetch_and(&p->wants, ~PEER_ROOM) & PEER_ROOM) != 0;
}
/* lane. May transfers use it? */
static inline void conn_ready(struct conn *c, enum conn_ready ready)
{
	atomic_store(&c->ready, (uint8_t)ready);
	atomic_store(&c->open, ready == CONN_USABLE ? atomic_load(&c->epoch) : 0);
	/* Who breaks it need not have the lane: one of the two sees what the other did. */
	if (atomic_load(&c->broken))
		atomic_store(&c->open, 0);
}
/* It can post no more; false: that was known. */
static inline bool conn_breaks(struct conn *c)
{
	bool was = atomic_exchange(&c->broken, 1);

	atomic_store(&c->open, 0);
	/* Behind it, as whoever sees this looks at that. */
	atomic_fetch_or(&c->peer->wants, PEER_BROKEN);
	return !was;
}

#endif
