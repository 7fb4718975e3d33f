/* SPDX-License-Identifier: BSD-2-Clause */
/* binds.h - binds and invalidations of windows, lent and settled in a row; inline, as hot.h. */
#ifndef LEDGER_BINDS_H
#define LEDGER_BINDS_H

#include "backends/ledger/hot.h"

/* lane. The connection behind an owner, or NULL. */
static inline struct ledger_conn *ledger_conn_here(const struct ledger_lane *lane, uint64_t owner)
{
	return lg_conn_find(lane, owner);
}

/* lane. A debt that is of no slice. */
static inline uint64_t lg_put_other(struct ledger_lane *lane, struct ledger_conn *conn,
				    enum ledger_wr what, uint64_t subject)
{
	union ledger_shape shape = {.of = {.what = (uint8_t)what, .plain = PLAIN_NOT}};
	uint32_t tail = conn->tail;
	struct ledger_debt *d = &conn->ring[tail & conn->mask];
	uint64_t wr_id = wr_id_make(conn, tail);

	d->shape = shape;
	d->subject = subject;
	d->wr_id = wr_id;
	d->offset = 0;
	d->length = 0;
	PUT(conn->parts, conn->parts + 1);
	PUT(conn->tail, tail + 1);
	log_lane(lane, LOG_CODE(LEDGER_LOG_LEND, what), wr_id, subject);
	return wr_id;
}

/*
 * lane, with the ledger's mutex (ledger_hold).  As ledger_wr_lend() of one of these, which spends a slot that was kept for
 * its window; 0: that has none there, or has had its binds, or the connection takes nothing.  tag: of the key of a bind.
 */
static inline uint64_t ledger_lend_window(struct ledger_lane *lane, struct ledger_conn *conn,
					  enum ledger_wr what, uint64_t window, uint8_t *tag)
{
	struct ledger *l = lane->ledger;
	uint32_t slot = lg_owner_find(l, window, ESCROW_OWNER_WINDOW);
	struct ledger_window *w;

	if (UNLIKELY(slot == NONE || !conn->ready))
		return 0;
	w = window_of(l, slot);
	if (UNLIKELY(!w->kept || window_conn(l, slot) != conn->slot ||
		     (what == LEDGER_WR_BIND && !lg_window_binds(l, w))))
		return 0;
	*tag = lg_window_tag(w);
	w->kept--;
	lg_keep(conn, 0 - 1u);
	return lg_put_other(lane, conn, what, window);
}

/* The same, under the hold in which it was lent: so the window is still there.  The device took it. */
static inline void ledger_window_posted(struct ledger *l, enum ledger_event event, uint64_t window)
{
	lg_window_event(l, handle_slot(window), event);
}

/*
 * lane. Does this name the oldest debt of the connection, and is that of a window?  Then it is settled by its own success,
 * and *done is for ledger_window_settled().
 */
static inline bool ledger_row_window(struct ledger_conn *conn, uint64_t wr_id,
				     struct ledger_done *done)
{
	const struct ledger_debt *d = &conn->ring[conn->head & conn->mask];
	uint32_t what = d->shape.of.what;

	if (conn->head == conn->tail || d->wr_id != wr_id ||
	    (what != LEDGER_WR_BIND && what != LEDGER_WR_INVALIDATE))
		return false;
	PUT(conn->head, conn->head + 1);
	PUT(conn->parts, conn->parts - 1);
	*done = (struct ledger_done){.subject = d->subject,
				     .what = LEDGER_DONE_BIND - LEDGER_WR_BIND + what,
				     .outcome = LEDGER_OK,
				     .effect = ESCROW_EFFECT_EXECUTED,
				     .releases = 1};
	return true;
}

#endif
