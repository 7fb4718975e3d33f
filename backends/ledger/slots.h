/* SPDX-License-Identifier: BSD-2-Clause */
/* slots.h - the ledger's mutex, and what stands behind an owner slot; included by ledger-int.h. */
#ifndef LEDGER_SLOTS_H
#define LEDGER_SLOTS_H

/* ---- The mutex --------------------------------------------------------------------------------- */
/* In each call; nothing more to do for who holds it over several (ledger_hold). */
static inline bool lg_held(const struct ledger *l)
{
	return GET(l->holder) == pthread_self();
}
static inline void lg_lock(struct ledger *l)
{
	if (!lg_held(l))
		lock_take(&l->lock);
}
static inline void lg_unlock(struct ledger *l)
{
	if (!lg_held(l))
		lock_give(&l->lock);
}
/* One reading for all calls of who holds it. */
static inline uint64_t lg_now(struct ledger *l)
{
	return l->now ? l->now : lg_read_now(l);
}

/* ---- Owner slots ------------------------------------------------------------------------------- */
static inline uint32_t sub(const struct ledger *l, uint32_t slot)
{
	return slot - l->base[l->owners[slot].kind];
}
static inline uint64_t lg_owner_handle(const struct ledger *l, uint32_t slot)
{
	return slot == NONE ? 0
			    : handle_make(l->owners[slot].kind, l->owners[slot].generation, slot);
}
static inline uint32_t region_index(const struct ledger *l, uint32_t slot)
{
	return slot - l->base[ESCROW_OWNER_REGION];
}
static inline struct ledger_conn *conn_of(struct ledger *l, uint32_t slot)
{
	return &l->conns[slot - l->base[ESCROW_OWNER_CONNECTION]];
}
/* Nobody writes it without the mutex; lanes read it. */
static inline void lg_keep(struct ledger_conn *conn, uint32_t more)
{
	PUT(conn->kept, GET(conn->kept) + more);
}
static inline struct ledger_lane *lane_of(struct ledger *l, uint32_t slot)
{
	return &l->lanes[slot - l->base[ESCROW_OWNER_LANE]];
}
static inline struct ledger_window *window_of(struct ledger *l, uint32_t slot)
{
	return &l->windows[slot - l->base[ESCROW_OWNER_WINDOW]];
}
/* NONE while it is free for use. */
static inline uint32_t window_grant(const struct ledger *l, uint32_t slot)
{
	return l->owners[slot].pin[PIN_GRANT];
}
static inline uint32_t window_conn(const struct ledger *l, uint32_t slot)
{
	const struct ledger_owner *o = &l->owners[slot];

	return o->pin[PIN_GRANT] == NONE || o->pin[PIN_CONN] != NONE ? o->pin[PIN_CONN] : o->parent;
}
static inline struct ledger_grant *grant_of(struct ledger *l, uint32_t slot)
{
	return &l->grants[slot - l->base[ESCROW_OWNER_GRANT]];
}
static inline struct ledger_context *context_at(struct ledger *l, uint32_t slot)
{
	return &l->contexts[slot - l->base[ESCROW_OWNER_CONTEXT]];
}

/* Are its slots the caller's to choose? */
static inline bool lg_is_placed(const struct ledger *l, uint32_t kind)
{
	return l->config.placed >> kind & 1u;
}

/* A free slot for one of the kind, at that place if it is placed; NONE: there is none. */
static inline uint32_t lg_owner_free(const struct ledger *l, uint32_t kind, uint32_t place)
{
	if (!lg_is_placed(l, kind))
		return l->free[kind];
	return place < l->max[kind] && !l->owners[l->base[kind] + place].kind
		       ? l->base[kind] + place
		       : NONE;
}

/* What that was is no more. */
static inline void lg_owner_give(struct ledger *l, uint32_t slot)
{
	struct ledger_owner *o = &l->owners[slot];
	uint32_t kind = o->kind;

	o->kind = 0;
	o->generation = handle_next_generation(o->generation);
	if (lg_is_placed(l, kind))
		return;
	o->next = l->free[kind];
	l->free[kind] = slot;
}

/* The slot behind a handle (of `kind`, 0 = any owner), or NONE. */
static inline uint32_t lg_owner_find(const struct ledger *l, uint64_t handle, uint32_t kind)
{
	uint32_t slot = handle_slot(handle);
	const struct ledger_owner *o = &l->owners[slot];

	if (slot >= l->nowners || (kind && handle_kind(handle) != kind) ||
	    o->generation != handle_generation(handle) || o->kind != handle_kind(handle) ||
	    o->kind == 0)
		return NONE;
	return slot;
}

/* ---- Pins ------------------------------------------------------------------------------------------ */
/* At this place, which is free. */
static inline void lg_pin_at(struct ledger *l, uint32_t by, uint32_t place, uint32_t target)
{
	struct ledger_owner *o = &l->owners[by];

	o->pin[place] = target;
	l->owners[target].pins++;
	log_ctl(l, LOG_CODE(LEDGER_LOG_PIN, 0), lg_owner_handle(l, by), lg_owner_handle(l, target));
	if (UNLIKELY(o->stuck))
		lg_owner_hold(l, target, 1);
}
/* At this one, if there is one: what it was. */
static inline uint32_t lg_unpin_at(struct ledger *l, uint32_t by, uint32_t place)
{
	struct ledger_owner *o = &l->owners[by];
	uint32_t target = o->pin[place];

	if (target == NONE)
		return NONE;
	o->pin[place] = NONE;
	l->owners[target].pins--;
	log_ctl(l, LOG_CODE(LEDGER_LOG_UNPIN, 0), lg_owner_handle(l, by),
		lg_owner_handle(l, target));
	if (UNLIKELY(o->stuck))
		lg_owner_hold(l, target, -1);
	return target;
}

/* ---- Windows and grants ------------------------------------------------------------------------ */
/* lg_owner_move() of one of these: nothing but its state and its record follows from a move. */
static inline bool lg_move(struct ledger *l, uint32_t slot, enum ledger_machine machine,
			   enum ledger_event event)
{
	struct ledger_owner *o = &l->owners[slot];
	int next = ledger_next(machine, o->state, event);

	if (UNLIKELY(next == LEDGER_ILLEGAL))
		return false;
	if ((uint32_t)next != o->state)
		o->since_ns = lg_now(l);
	o->state = (uint8_t)next;
	log_ctl(l, LOG_CODE(LEDGER_LOG_STATE, next), lg_owner_handle(l, slot), event);
	return true;
}
static inline bool lg_window_move(struct ledger *l, uint32_t slot, enum ledger_event event)
{
	return lg_move(l, slot, LEDGER_M_WINDOW, event);
}
static inline bool lg_grant_move(struct ledger *l, uint32_t slot, enum ledger_event event)
{
	return lg_move(l, slot, LEDGER_M_GRANT, event);
}

/* May it be bound once more? */
static inline bool lg_window_binds(const struct ledger *l, const struct ledger_window *w)
{
	return w->binds < l->config.window_binds;
}
/* The next bind's: never used before. */
static inline uint8_t lg_window_tag(const struct ledger_window *w)
{
	return (uint8_t)(w->rkey + 1 + w->binds);
}
/* One more key, on this connection; of those on one that has gone nothing is left to know. */
static inline void lg_window_makes_key(struct ledger *l, uint32_t slot, struct ledger_window *w)
{
	uint64_t conn = lg_owner_handle(l, window_conn(l, slot));

	if (LIKELY(w->keys_on == conn))
		return;
	w->keys_on = lg_owner_find(l, w->keys_on, 0) == NONE ? conn : w->account;
}
/* Its bind or invalidation was posted, or its connection is dead; false: it is in no state for that. */
static inline bool lg_window_event(struct ledger *l, uint32_t slot, enum ledger_event event)
{
	struct ledger_window *w = window_of(l, slot);
	uint32_t grant = window_grant(l, slot);

	if (UNLIKELY(grant == NONE || (event == LEDGER_E_BIND && !lg_window_binds(l, w)) ||
		     !lg_window_move(l, slot, event)))
		return false;
	if (event != LEDGER_E_BIND)
		return true;
	w->binds++;
	lg_window_makes_key(l, slot, w);
	if (l->owners[grant].state == LEDGER_GRANT_RESERVED)
		lg_grant_move(l, grant, LEDGER_E_BIND);
	return true;
}

#endif
