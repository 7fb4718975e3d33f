/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * parts.h - what the files of the engine call of each other; included by engine.h.  Cross-file names
 * start with en_, so that they meet no name of the native implementation they are linked with.
 *
 * "locked": e->lock is held.  "runner": called by the control runner only, locked, and the lock is
 * let go over native steps, so states must be looked at again afterwards.  "lane": lane->lock held.
 */
#ifndef ENGINE_PARTS_H
#define ENGINE_PARTS_H

/* ---- event.c --------------------------------------------------------------------------------- */
int event_open(struct escrow_engine *e);
void event_close(struct escrow_engine *e);
int event_watch(struct escrow_engine *e, int fd);
void event_unwatch(struct escrow_engine *e, int fd);
/* [any] Wakes a host that sleeps on an armed event_fd. */
void event_wake(struct escrow_engine *e);
/* [any] What event_stand() has put into the queue. */
static inline void event_told(struct escrow_engine *e, struct event_link *before,
			      struct event_link *link)
{
	event_show(before, link);
	if (atomic_load(&e->armed))
		event_wake(e);
}
static inline void event_put_link(struct escrow_engine *e, struct event_link *link)
{
	event_told(e, event_stand(&e->events, link), link);
}
/* [any] A node whose event is filled in. */
static inline void event_put(struct escrow_engine *e, struct event_node *node)
{
	event_put_link(e, &node->link);
}

/* ---- control.c ------------------------------------------------------------------------------------ */
/* [any] Lock-free: the runner will call the object's advance function. */
void en_work(struct escrow_engine *e, struct work *work);
/*
 * Help.  Whoever needs a step of the runner may be the runner for a moment, if nobody is: for what takes no
 * native step that may sleep, which is what a grant costs when its window is at hand.  So the thread is
 * not woken for it.  It never waits for another runner; what it leaves, the thread does.
 */
/* [lane] As en_work, by a poll, which then calls en_help_poll. */
void en_help_work(struct escrow_engine *e, struct work *work);
/*
 * [ctl], locked. What a slot was asked for (NULL: it is due, en_grant_due), together with what else is asked for till the
 * next poll or arm, which does it; here and now if a chain is full or the host waits for its descriptor; by the thread if
 * nobody comes.
 */
void en_help_ask(struct escrow_engine *e, struct work *work);
/* [poll] Not locked, no lane. */
void en_help_poll(struct escrow_engine *e);
/* [any] The runner looks at all deadlines at `ns` at the latest. */
void en_wake_at(struct escrow_engine *e, uint64_t ns);
/* ns, between two looks at what nothing tells of: the host may not be polling. */
#define EN_LOOK_AGAIN 5000000u
/* The runner's one pass; by poll or by the thread.  Not locked. */
void en_control_run(struct escrow_engine *e);
bool en_control_has_work(struct escrow_engine *e);
/* 0 or errno. */
int en_thread_start(struct escrow_engine *e);
/* [poll, ctl] Ends and joins the thread; nothing if there is none. */
void en_thread_join(struct escrow_engine *e);

/* ---- step.c: every native [ctrl] step and every post passes here -------------------------------------- */
/* What an errno of a step that makes something means for the host. */
escrow_status en_status_of(int rc);
/* The same where nothing of what was asked for is the host's; 0 is OK. */
escrow_status en_status_of_own(int rc);
/* runner. ESCROW_STEP_* of an object that is there; 0 or errno. */
int en_step(struct context *c, uint32_t step, void *object);
/* [any] The device of the context is gone: no step is made on it any more, and the runner freezes it. */
void en_context_lost(struct context *c);
/* runner (open: not locked matters not).  *out is written on success only. */
int en_step_channel(struct escrow_engine *e, struct context *c, struct native_lane **out);
int en_step_queue(struct escrow_engine *e, struct native_lane *lane, uint32_t depth);
int en_step_conn(struct escrow_engine *e, struct lane *lane, const struct native_conn_args *args,
		 struct native_conn **out);
int en_step_window(struct escrow_engine *e, struct context *c, struct native_window **out);
/* not locked */
int en_step_device(struct escrow_engine *e, uint32_t index, struct escrow_error *error);
int en_step_register(struct escrow_engine *e, struct context *c,
		     const struct escrow_region_args *args, struct native_region **out,
		     struct escrow_error *error);
/* lane.  step: ESCROW_STEP_POST, BIND_WINDOW or INVALIDATE; the last of them has no next. */
int en_post_planned(struct escrow_engine *e, struct conn *conn, uint32_t step, struct native_wr *wr,
		    uint32_t n, uint32_t *posted);
/* The device answered rc: the errno, and how many of the requests are its own all the same. */
int en_post_failed(struct escrow_engine *e, struct conn *conn, struct native_wr *wr, uint32_t n,
		   uint32_t *posted, int rc);
static inline int en_post(struct escrow_engine *e, struct conn *conn, uint32_t step,
			  struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	int rc;

	if (e->config.test_faults)
		return en_post_planned(e, conn, step, wr, n, posted);
	engine_count(&e->counters.posts, 1);
	*posted = n;
	rc = e->ops->post(conn->native, wr, n, posted);
	return __builtin_expect(rc != 0, 0) ? en_post_failed(e, conn, wr, n, posted, rc) : 0;
}

/* ---- lane.c ------------------------------------------------------------------------------------------------ */
/* device.c. open only: devices, then (with a ledger) protection domains and lanes. */
escrow_status en_devices_open(struct escrow_engine *e, struct escrow_error *error);
/* Capabilities of the table that the devices do not have; with their protection domains. */
uint64_t en_devices_lack(const struct escrow_engine *e);
escrow_status en_lanes_open(struct escrow_engine *e, struct escrow_error *error);
/* runner. Windows, lanes and devices: what can go goes, the rest is quarantined. */
void en_devices_close(struct escrow_engine *e);
bool en_owner_quarantined(struct escrow_engine *e, uint64_t owner);
/* Kept by the quarantine of others, without a failure of its own? */
bool en_owner_held(struct escrow_engine *e, uint64_t owner);
/* A receipt from outside released it: its native object stays, and is not called any more. */
bool en_owner_gone(struct escrow_engine *e, uint64_t owner);
uint64_t en_weak_bits(const struct escrow_engine *e);
/* lane. With a fault plan: what it kept back and is due; completions that it may change. */
void en_faults_due(struct lane *lane, struct event_out *out);
void en_take_planned(struct lane *lane, const struct native_cqe *cqe, int n, struct event_out *out);
/* poll.c, lane. Takes completions and settles them; true: there may be more. */
bool en_lane_poll(struct lane *lane);
/* locked. Takes all that is in its queue now. */
void en_lane_clear(struct lane *lane);
/* lane. Its queue says that it is unusable: not a word of it is believed from here on. */
void en_lane_breaks(struct lane *lane);
/* A connection that is made there can end what is posted on it. */
static inline bool en_lane_stands(const struct lane *lane)
{
	return lane->native && !atomic_load(&lane->context->fatal) && !atomic_load(&lane->poisoned);
}
/* [poll] Asks every lane for a wake-up; false if one was busy or had something. */
bool en_lanes_arm(struct escrow_engine *e);
/* runner */
void en_lane_poison(struct lane *lane);

/* ---- settle.c ------------------------------------------------------------------------------------------------- */
/* lane */
void en_settle(struct lane *lane, const struct ledger_done *done, uint32_t vendor);
/* lane. Completions, of sends and receives.  out: events may be written there, past the queue while that is empty. */
void en_take(struct lane *lane, const struct native_cqe *cqe, uint32_t n, struct event_out *out);
/* lane. What a reset, a quarantine or a late receipt made of the connection's debts. */
void en_collect(struct conn *conn);
/* lane. So much of it is settled. */
void en_conn_settled(struct conn *conn, uint32_t slices, uint64_t bytes);

/* ---- transfer.c ------------------------------------------------------------------------------------------------ */
/* [any] An op by its handle, or NULL. */
struct op *en_op_find(struct escrow_engine *e, uint64_t handle);
/* [data] One op with a message that rides on it; as transfer. */
int32_t en_transfer_with(struct escrow_engine *e, const struct escrow_op *op, struct notify *rider,
			 uint64_t *id);
/* [any] The op is done: true if a message rides on it and its event comes with that. */
bool en_note_op_done(struct escrow_engine *e, struct op *op, const struct event_what *what);
/* [any] The op's terminal event. */
void en_op_tell(struct escrow_engine *e, struct op *op, const struct event_what *what);
void en_op_polled(struct escrow_engine *e, struct event_node *node);
/* open only. What every life of an op has in common. */
void en_op_init(struct escrow_engine *e, struct op *op);
/* [poll] What was polled to its end goes back to the pool. */
void en_ops_give(struct escrow_engine *e);
static inline void en_ops_free(struct escrow_engine *e)
{
	if (e->ended != POOL_NONE)
		en_ops_give(e);
}

/* ---- deadline.c ---------------------------------------------------------------------------------------------------- */
/* [data] The op has a deadline. */
void en_deadline_add(struct escrow_engine *e, struct op *op);
/* [poll] Is there any? */
static inline bool en_deadlines(struct escrow_engine *e)
{
	return e->heap_n || atomic_load(&e->fresh);
}
/* [poll] Tells those that have passed. */
void en_deadline_run(struct escrow_engine *e, uint64_t now, struct event_out *out);
void en_deadline_drop(struct escrow_engine *e, struct op *op);
uint64_t en_deadline_next(struct escrow_engine *e);

/* ---- region.c --------------------------------------------------------------------------------------------------------- */
/* [any] By the handle, LIVE or LEAVING; NULL.  For states: locked. */
static inline struct region *en_region_find(struct escrow_engine *e, uint64_t handle)
{
	struct region *r = engine_kind(handle) == ESCROW_OWNER_REGION ? engine_by_slot(e, handle)
								      : NULL;

	return r && atomic_load_explicit(&r->handle, memory_order_acquire) == handle ? r : NULL;
}
/* near.c, not locked. Notes how far the memory is from each device. */
void en_region_near(struct escrow_engine *e, struct region *r, const struct escrow_region_args *a);
void en_region_advance(struct escrow_engine *e, struct region *r);
/* locked. Those that are leaving and were still lent from are looked at once more. */
void en_regions_again(struct escrow_engine *e);
/* not lane. Every lane passes once, so that none still uses what was withdrawn. */
void en_sync_lanes(struct escrow_engine *e);
/* runner, in QUARANTINED. What a late receipt, or one from outside, lets go. */
void en_region_late(struct escrow_engine *e, struct region *r);
void en_grant_late(struct escrow_engine *e, struct grant *g);
/* locked */
void en_region_leave(struct escrow_engine *e, struct region *r);

/* ---- peer.c, conn.c, accept.c ------------------------------------------------------------------------------------------- */
struct peer *en_peer_find(struct escrow_engine *e, uint64_t handle);
/* Came to us by this ticket from the engine that asks now, as the mark shows: others may say that they are it. */
bool en_peer_asks(const struct peer *p, const struct wire_hello *h);
void en_peer_advance(struct escrow_engine *e, struct peer *p);
/* locked. The peer goes, whatever state it is in; the first reason counts. */
void en_peer_leave(struct escrow_engine *e, struct peer *p, escrow_status reason);
/* locked. A free slot with an account; what connect and an accepted request have in common. */
escrow_status en_peer_new(struct escrow_engine *e, const char *name, const char *account,
			  const uint8_t incarnation[16], uint64_t epoch, struct peer **out,
			  struct escrow_error *error);
/* locked. Up, if all connections are. */
void en_peer_check_up(struct escrow_engine *e, struct peer *p);
void en_peer_undo(struct escrow_engine *e, struct peer *p);
/* locked. Charges all connections of the set, or none. */
escrow_status en_conns_charge(struct escrow_engine *e, struct peer *p, struct escrow_error *error);
/* Without that no set comes up. */
bool en_first_lane_stands(const struct escrow_engine *e);
escrow_status en_conn_charge(struct escrow_engine *e, struct conn *c, struct escrow_error *error);
/* locked. One that comes back, and leaves others that do their room. */
escrow_status en_conn_charge_again(struct escrow_engine *e, struct conn *c);
void en_conn_uncharge(struct escrow_engine *e, struct conn *c);
/* locked. It is not made anew any more: nor is its place in what the process may have kept for that. */
void en_conn_place_back(struct escrow_engine *e, struct conn *c);
/* runner. Makes connection `index` of the peer; OK or why not. */
escrow_status en_conn_make(struct escrow_engine *e, struct peer *p, uint32_t index);
/* runner. True when the connection is gone or quarantined. */
bool en_conn_retire(struct escrow_engine *e, struct conn *conn, uint64_t now);
escrow_status en_conn_connect(struct escrow_engine *e, struct peer *p, uint32_t index);
/* [any] It can post no more. */
void en_conn_broken(struct conn *conn);
bool en_peer_broken(struct peer *p);
/* ---- mend.c: a connection that ends while its peer stays, and comes back; rails ---------------------- */
/* locked. Its end is not its peer's: it carries no messages, and the peer is not on its way out. */
bool en_conn_spare(const struct conn *c);
/* locked. Is there a connection for messages, besides this one? */
bool en_peer_carried(struct peer *p, const struct conn *but);
/* runner. Not there and not on its way: the peer is up, or comes up, without it. */
bool en_conn_given_up(const struct conn *c);
/* runner. It broke or did not come up: it goes alone if it can, else its peer goes with this reason. */
void en_conn_failed(struct escrow_engine *e, struct conn *c, escrow_status reason);
/* runner. Says to the data path whether it may be used. */
void en_conn_gate(struct escrow_engine *e, struct conn *c);
/* runner. It stands again, while its peer is up: grants and what was imported get their keys on it. */
void en_conn_returned(struct escrow_engine *e, struct conn *c);
/* locked. Here and at the peer. */
bool en_conn_rail_up(const struct conn *c);
/* runner. As en_conn_connect, but one whose rail is down is left for later. */
escrow_status en_conn_first(struct escrow_engine *e, struct peer *p, uint32_t index);
/* runner. Retires what broke, and makes it again when it is time. */
void en_peer_mend(struct escrow_engine *e, struct peer *p);
void en_mend_send(struct escrow_engine *e, struct peer *p);
/* runner. What the peer says: that a connection is over, that a rail of its own came or went. */
void en_conn_told_lost(struct escrow_engine *e, struct peer *p, const struct wire_message *m);
void en_rail_told(struct escrow_engine *e, struct peer *p, const struct wire_message *m);
/*
 * runner. And in one that comes up?  E_DEVICE: a lane is broken, and the set comes without that connection; its other
 * end is told by a rejection of that one alone.
 */
escrow_status en_set_asked(struct peer *p, const struct wire_hello *h, struct peer **out);
bool en_conn_refused_alone(const struct conn *c, const struct native_event *ev);
/* runner. May this request have its place in a set that is up? */
escrow_status en_rejoin_judge(struct escrow_engine *e, const struct wire_hello *h,
			      struct peer **out);
void en_rail_news(struct escrow_engine *e, const struct native_event *event);

/* runner */
void en_news(struct escrow_engine *e, const struct native_event *event);
void en_request(struct escrow_engine *e, const struct native_event *event);
/* ---- waiting.c, runner.  False: there is no place for it to wait. */
bool en_request_waits(struct escrow_engine *e, const struct native_event *event,
		      const struct wire_hello *h);
void en_requests_again(struct escrow_engine *e);
void en_request_refuse(struct escrow_engine *e, const struct native_event *event,
		       const struct wire_hello *h, escrow_status st);
/* locked */
struct ticket *en_ticket_find(struct escrow_engine *e, uint64_t id);

/* ---- epoch.c ---------------------------------------------------------------------------------- */
/* locked. The epochs that engines of one incarnation have had with us. */
uint64_t en_epoch_last(struct escrow_engine *e, const uint8_t incarnation[16]);
uint64_t en_epoch_taken(struct escrow_engine *e, const uint8_t incarnation[16], uint32_t mark);
void en_epoch_take(struct escrow_engine *e, const struct peer *p, uint64_t epoch);
void en_epoch_used(struct escrow_engine *e, const struct peer *p, uint64_t epoch);

/* ---- channel.c ------------------------------------------------------------------------------------------------------------ */
/* runner */
/* [any] Of the messages of a peer. */
uint64_t en_channel_bytes(const struct escrow_engine *e);
/* runner */
escrow_status en_channel_open(struct escrow_engine *e, struct peer *p);
/* runner. Its connections have ended: what carried messages goes, or is quarantined. */
void en_channel_close(struct escrow_engine *e, struct peer *p);
void en_channel_hear(struct escrow_engine *e, struct peer *p);
void en_channel_run(struct escrow_engine *e, struct peer *p);
/* [any] Only a peer that breaks the protocol does that, or we to it: the connections break. */
void en_peer_misbehaves(struct peer *p);
/* locked. E_AGAIN: all places for messages that the peer has not dealt with are taken. */
escrow_status en_channel_send(struct peer *p, struct wire_message *m, const void *payload);
/* runner. All that is kept is to be sent again, and all credits are to be told. */
void en_channel_again(struct peer *p);
/* ---- carrier.c: of a rail's first connection; NULL of another one ------------------------------ */
struct carrier *en_carrier_of(struct conn *c);
/* Of its memory, which is registered. */
uint64_t en_carrier_bytes(const struct escrow_engine *e);
/* runner. With its connection, before the peer hears of that; after it has ended. */
escrow_status en_carrier_open(struct escrow_engine *e, struct conn *c);
void en_carrier_close(struct escrow_engine *e, struct conn *c);
/* runner. How many messages the peer has room for there. */
void en_carrier_credit(struct conn *c, uint32_t depth);
/* runner. Takes a credit.  E_AGAIN: no slot. */
escrow_status en_carrier_post(struct carrier *ca, const struct wire_message *m,
			      const void *payload);
/* runner. The oldest message that came and was not taken: its number, and how long it is. */
bool en_carrier_peek(struct carrier *ca, uint32_t *i, uint32_t *bytes);
const uint8_t *en_carrier_message(struct carrier *ca, uint32_t i);
void en_carrier_taken(struct carrier *ca, uint32_t i);
/* lane */
void en_channel_received(struct lane *lane, const struct native_cqe *cqe);
void en_channel_sent(struct message_slot *slot);
#define CHANNEL_ID UINT64_C(0x60)

/* ---- grant.c, window.c, offer.c ------------------------------------------------------------------------------------------------ */
struct grant *en_grant_find(struct escrow_engine *e, uint64_t handle);
void en_grant_advance(struct escrow_engine *e, struct grant *g);
/* locked */
void en_grant_revoke(struct escrow_engine *e, struct grant *g);
/* locked. The ledger is told that its end has begun, before the first invalidation: once. */
void en_grant_revoke_parts(struct escrow_engine *e, struct grant *g);
/* locked. What `grant` and the answer to an importer have in common. */
escrow_status en_grant_new(struct escrow_engine *e, const struct escrow_grant_args *args,
			   struct peer *p, struct region *r, struct grant **out,
			   struct escrow_error *error);
void en_grant_encode(struct escrow_engine *e, struct grant *g, struct wire_grant *out);
/* locked */
void en_grants_of_peer_revoke(struct escrow_engine *e, struct peer *p);
/* ---- join.c. locked: its parts in the ledger, one a context, each with all its windows there; or none. */
escrow_status en_grant_reserve(struct escrow_engine *e, struct grant *g,
			       struct escrow_error *error);
/* runner. Binds what is not bound yet; when all is, the grant is ready. */
void en_grant_bind(struct escrow_engine *e, struct grant *g);
/*
 * locked, by a slot: of a grant that was just made; of one that is to be revoked, all of whose windows are bound.  Where
 * nothing of it that may sleep is to be done or under way the runner has nothing to do with it: what is to be posted for it
 * is due.  False: it is for the runner.
 */
bool en_grant_due(struct escrow_engine *e, struct grant *g);
bool en_revoke_due(struct escrow_engine *e, struct grant *g);
/* runner. The peer's grants get a window on a connection that came back; what is left to be bound. */
void en_grants_join(struct escrow_engine *e, struct conn *c);
void en_grants_join_again(struct escrow_engine *e, struct peer *p);
/* locked. Something could not be had for a grant that stands: it is tried again in a while. */
void en_join_later(struct escrow_engine *e, struct peer *p);
void en_join_advance(struct escrow_engine *e, struct grant *g);
/* [poll] Not locked.  False: that is no grant's.  Writes it out; behind its end the grant may be another's. */
bool en_grant_event(struct escrow_engine *e, const struct event_link *link, struct event_out *out);
/* runner. A window of it was settled: what had only that one is advanced at once, if no step of it may sleep. */
void en_grant_goes_on(struct escrow_engine *e, struct grant *g);
/* runner. en_grant_advance will take no native step that may sleep. */
bool en_grant_helps(struct escrow_engine *e, const struct grant *g);
void en_window_advance(struct escrow_engine *e, struct window *w);
/* runner. The same without a native step; false: there is one to take. */
bool en_window_help(struct escrow_engine *e, struct window *w);
/* runner. Its native object is there and may be bound. */
bool en_window_at_hand(struct escrow_engine *e, const struct window *w);
/* runner. Its bind is due, and the device did not take it. */
void en_window_not_bound(struct escrow_engine *e, struct window *w);
/* ---- bind.c, locked. False: no room, so it is to be tried again in the next round. */
bool en_window_due(struct escrow_engine *e, struct window *w, enum window_due due);
/* runner. It can be invalidated no more: deallocation is what proves it gone. */
void en_window_orphan(struct escrow_engine *e, struct window *w);
/* Posts what is due; who helps, and has the ledger held, only where the lane is free. */
void en_windows_post(struct escrow_engine *e, bool helps);
/* locked. A window for the grant on this connection, parked or to be allocated; false: none is free. */
bool en_window_take(struct escrow_engine *e, struct grant *g, struct conn *conn);
void en_window_back(struct escrow_engine *e, struct window *w);
/* lane. A bind or invalidation was settled. */
void en_window_settle(struct escrow_engine *e, const struct ledger_done *done);
/* runner. ENOBUFS: none is left that it could be bound by. */
int en_window_bind(struct escrow_engine *e, struct window *w);
void en_window_unbind(struct escrow_engine *e, struct window *w);
/* locked. True if a window that was bound on it has not ended. */
bool en_conn_has_windows(struct escrow_engine *e, struct conn *conn);
/* runner. The grants that have windows on it do without; true when none is left. */
bool en_conn_unbind_windows(struct escrow_engine *e, struct conn *conn);
void en_conn_orphan_windows(struct escrow_engine *e, struct conn *conn);

/* What its windows are bound to in a context. */
struct native_region *en_grant_native(const struct grant *g, const struct context *c);
/* exact.c, runner: is one missing?  Is there one? */
bool en_exact_wanted(const struct escrow_engine *e, const struct grant *g);
bool en_exact_there(const struct escrow_engine *e, const struct grant *g);
/* Made where it is missing; the end, when no window is left. */
escrow_status en_exact_make(struct escrow_engine *e, struct grant *g);
void en_exact_end(struct escrow_engine *e, struct grant *g);
bool en_windows_close(struct escrow_engine *e, struct context *c);

/* ---- remote.c, offer.c ------------------------------------------------------------------------------------------------------------ */
#define REMOTE_KIND UINT64_C(0x61) /* no kind of the ledger's handles */
static inline struct remote *en_remote_find(struct escrow_engine *e, uint64_t handle)
{
	uint32_t i = LEDGER_SLOT(handle);

	if (handle >> 56 != REMOTE_KIND || i >= e->config.max_remotes)
		return NULL;
	return atomic_load(&e->remotes[i].handle) == handle ? &e->remotes[i] : NULL;
}
/* Their table, in open. */
bool en_remotes_open(struct escrow_engine *e);
void en_remote_advance(struct escrow_engine *e, struct remote *r);
/* locked. Nothing is owed to anybody any more. */
void en_remote_free(struct escrow_engine *e, struct remote *r);
void en_remotes_of_peer_end(struct escrow_engine *e, struct peer *p);
void en_offer_ask(struct escrow_engine *e, struct peer *p, const struct wire_message *m);
void en_offer_answered(struct escrow_engine *e, struct peer *p, const struct wire_message *m,
		       const uint8_t *payload);
void en_offer_returned(struct escrow_engine *e, struct peer *p, const struct wire_message *m);
void en_offer_answer(struct escrow_engine *e, struct grant *g);
/* runner. What an offer gave to importers goes with it. */
void en_offspring_revoke(struct escrow_engine *e, const struct grant *offer);
/* locked. Something of it goes on, or (`stuck`) may never be proved to have ended. */
bool en_offspring(struct escrow_engine *e, const struct grant *offer, bool stuck);
/* locked. It has ended for good. */
void en_offspring_leave(struct escrow_engine *e, struct grant *g);
/* runner. What waits for a credit or a slot. */
void en_offers_send(struct escrow_engine *e, struct peer *p);

/* ---- notify.c, all runner ---------------------------------------------------------------------- */
uint64_t en_notify_limit(const struct escrow_engine *e);
const void *en_notify_table(void);
bool en_notify_open(struct escrow_engine *e);
void en_notify_free(struct escrow_engine *e);
escrow_status en_notify_arena(struct escrow_engine *e);
void en_notify_windows(struct escrow_engine *e);
void en_note_arrived(struct escrow_engine *e, struct peer *p, struct notify *n);
/* open only. n * size bytes of zeros that en_free() frees; NULL. */
void *en_block(struct escrow_engine *e, uint64_t n, uint64_t size);
void en_notify_send(struct escrow_engine *e, struct peer *p);
void en_notify_piece(struct escrow_engine *e, struct peer *p, const struct wire_message *m,
		     const uint8_t *payload);
void en_notify_taken(struct escrow_engine *e, struct peer *p, const struct wire_message *m);
void en_notify_peer_ends(struct escrow_engine *e, struct peer *p);

/* ---- rails.c ----------------------------------------------------------------------------------------- */
/* Connections that one peer may have, UINT64_MAX if no quota tells. */
uint64_t en_most_connections(const struct config *config);
/* Rails that the configuration allows, and which key it is that allows no more. */
uint64_t en_most_rails(const struct config *config, const char **key);

/* Is there room for the windows of max_grants? */
escrow_status en_fit_grants(const struct escrow_engine *e, struct escrow_error *error);

/* ---- memlock.c -------------------------------------------------------------------------------------- */
/* Devices are open: finds the limit, and makes a default of quota.bytes of it. */
void en_memlock_open(struct escrow_engine *e);
/* unlocked. May the host's memory be registered in each device?  E_QUOTA: it would come too near. */
escrow_status en_memlock_region(struct escrow_engine *e, const struct escrow_region_args *a,
				struct escrow_error *error);
/* unlocked. Registers memory for the engine's own sake.  E_QUOTA: no room for it. */
escrow_status en_memlock_register(struct escrow_engine *e, struct context *c,
				  const struct escrow_region_args *args,
				  struct native_region **out);
/* What that had made has its receipt. */
void en_memlock_gone(struct escrow_engine *e, uint64_t addr, uint64_t length);

/* ---- room.c ----------------------------------------------------------------------------------------- */
/* unlocked. Does the kernel let the devices have what a region, or the connections of a peer, need? E_QUOTA. */
escrow_status en_room_for_region(struct escrow_engine *e, struct escrow_error *error);
escrow_status en_room_for_peer(struct escrow_engine *e, struct escrow_error *error);

/* ---- footprint.c ------------------------------------------------------------------------------------ */
/* [any] */
void en_footprint(const struct escrow_engine *e, struct footprint *out);

/* ---- log.c ---------------------------------------------------------------------------------------------------------------------------- */
void en_log(struct escrow_engine *e, int32_t level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- extensions -------------------------------------------------------------------------------------------------------------------------- */
extern const struct escrow_fence fence_extension;

extern const struct escrow_counters counters_extension;

#endif
