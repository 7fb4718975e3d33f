/* SPDX-License-Identifier: BSD-2-Clause */
/* notify.c - org.escrow.notify/1: its slots, and the entries that messages live in. */
#include "backends/engine/notify.h"

#include <string.h>

/* ---- Entries ------------------------------------------------------------------------------------ */
struct notify *en_note_take(struct escrow_engine *e, struct notify_half *half)
{
	uint32_t i = pool_take(&half->pool);

	if (i == POOL_NONE)
		return NULL;
	half->entries[i].done = 0;
	half->entries[i].op = NULL;
	half->entries[i].next = NULL;
	return &half->entries[i];
}

void en_note_give(struct escrow_engine *e, struct notify_half *half, struct notify *n)
{
	struct peer *from = n->from; /* once in the pool, it may be another's */

	pool_give(&half->pool, (uint32_t)(n - half->entries));
	if (half == &e->notify->out) {
		if (atomic_load(&e->notify->wanted) && atomic_exchange(&e->notify->wanted, 0))
			en_room(e);
	} else {
		/* Once it is in the pool, so that nobody counts on more than there is. */
		if (atomic_fetch_sub(&from->notes, 1) == 1)
			atomic_fetch_sub(&e->notify->holders, 1);
		atomic_fetch_sub(&e->notify->held, 1);
		/* Somebody's window may be opened further. */
		en_work(e, &e->work);
	}
}

struct notify *en_note_reserve(struct escrow_engine *e, struct peer *p)
{
	struct notify_pool *pool = e->notify;
	uint32_t spare = pool->in.n - atomic_load(&pool->held);
	uint32_t without = (uint32_t)e->config.max_peers - atomic_load(&pool->holders);
	struct notify *n;

	if (atomic_load(&p->notes) && spare <= without)
		return NULL;
	n = en_note_take(e, &pool->in);
	if (!n)
		return NULL;
	n->from = p;
	atomic_fetch_add(&pool->held, 1);
	if (!atomic_fetch_add(&p->notes, 1))
		atomic_fetch_add(&pool->holders, 1);
	return n;
}

static bool open_half(struct escrow_engine *e, struct notify_half *half, uint64_t n)
{
	half->n = (uint32_t)n;
	half->entries = en_block(e, n, sizeof(*half->entries));
	half->next = en_block(e, n, sizeof(*half->next));
	if (!half->entries || !half->next)
		return false;
	pool_init(&half->pool, half->next, half->n);
	return true;
}

bool en_notify_open(struct escrow_engine *e)
{
	e->notify = en_block(e, 1, sizeof(*e->notify));
	return e->notify && open_half(e, &e->notify->out, e->config.max_messages) &&
	       open_half(e, &e->notify->in, e->config.max_messages + e->config.max_peers);
}

/*
 * runner, locked. The bytes of all entries, when the first peer comes: most engines without messages
 * never touch them, so they are not cleared.
 */
escrow_status en_notify_arena(struct escrow_engine *e)
{
	struct notify_half *out = &e->notify->out, *in = &e->notify->in;
	uint64_t each = e->config.max_message_bytes, i;
	uint8_t *arena;

	if (atomic_load(&e->notify->arena))
		return ESCROW_OK;
	engine_unlock(e);
	arena = e->host.alloc(e->host.ctx, (out->n + in->n) * each, 64);
	engine_lock(e);
	if (!arena)
		return ESCROW_E_NO_MEMORY;
	for (i = 0; i < out->n; i++)
		out->entries[i].bytes = arena + i * each;
	for (i = 0; i < in->n; i++)
		in->entries[i].bytes = arena + (out->n + i) * each;
	atomic_store(&e->notify->arena, arena);
	return ESCROW_OK;
}

void en_notify_free(struct escrow_engine *e)
{
	if (e->notify)
		e->host.free(e->host.ctx, atomic_load(&e->notify->arena));
}

uint64_t en_notify_limit(const struct escrow_engine *e)
{
	return e->config.max_message_bytes;
}

/* ---- Sending ------------------------------------------------------------------------------------------ */
static void sent_polled(struct escrow_engine *e, struct event_node *node)
{
	en_note_give(e, &e->notify->out, node->object);
}

/*
 * An entry with the bytes; if there is none, whoever frees one tells ROOM.  Who finds one at the second look leaves
 * that standing: another may have been refused meanwhile, and a ROOM too many is none's harm.
 */
static struct notify *take_out(struct escrow_engine *e, const void *msg, uint64_t len)
{
	struct notify *n = en_note_take(e, &e->notify->out);

	if (!n) {
		atomic_store(&e->notify->wanted, 1);
		n = en_note_take(e, &e->notify->out);
		if (!n)
			return NULL;
	}
	n->length = len;
	if (len)
		memcpy(n->bytes, msg, len);
	n->node.polled = sent_polled;
	n->node.object = n;
	return n;
}

static escrow_status check(struct escrow_engine *e, const void *msg, uint64_t len)
{
	if (!engine_here(e) || !state_allows(SLOT_TRANSFER, engine_state(e)))
		return ESCROW_E_STATE;
	if (len > e->config.max_message_bytes)
		return ESCROW_E_LIMIT;
	return len && !msg ? ESCROW_E_INVALID : ESCROW_OK;
}

static escrow_status notify_send(struct escrow_engine *e, uint64_t handle, const void *msg,
				 uint64_t len, uint64_t user, uint32_t flags)
{
	escrow_status st = check(e, msg, len);
	struct notify *n;
	struct peer *p;

	if (st < 0)
		return st;
	if (flags)
		return ESCROW_E_UNSUPPORTED;
	engine_lock(e);
	p = en_peer_find(e, handle);
	if (!p)
		st = ESCROW_E_INVALID;
	else if (atomic_load(&p->state) != PEER_UP)
		st = atomic_load(&p->state) == PEER_CONNECTING ? ESCROW_E_STATE
							       : ESCROW_E_PEER_LOST;
	n = st == ESCROW_OK ? take_out(e, msg, len) : NULL;
	if (n) {
		n->user = user;
		n->peer = handle;
		en_note_append(p, n);
		en_work(e, &p->work);
	} else if (st == ESCROW_OK) {
		st = ESCROW_E_AGAIN;
	}
	engine_unlock(e);
	return st;
}

static int32_t notify_transfer(struct escrow_engine *e, const struct escrow_op *op, const void *msg,
			       uint64_t len, uint64_t *id)
{
	escrow_status st = check(e, msg, len);
	struct notify *n;
	int32_t rc;

	if (st < 0)
		return st;
	if (!op || !id)
		return ESCROW_E_INVALID;
	/* Before a peer is up there is nothing to hold the bytes, and no remote either. */
	if (!atomic_load(&e->notify->arena))
		return ESCROW_E_INVALID;
	n = take_out(e, msg, len);
	if (!n)
		return ESCROW_E_AGAIN;
	rc = en_transfer_with(e, op, n, id);
	if (rc != 1)
		en_note_give(e, &e->notify->out, n);
	return rc;
}

/*
 * The op has ended.  Executed: its message goes, and OP_DONE waits for that.  Else the message is
 * forgotten.  Whoever settles is here, with a lane or without, so nothing but a push is allowed.
 */
bool en_note_op_done(struct escrow_engine *e, struct op *op, const struct event_what *what)
{
	struct notify *n = op->rider, *head;
	struct peer *p = op->remote->peer;

	if (!n)
		return false;
	op->rider = NULL;
	if (what->status != ESCROW_OK || what->custody != ESCROW_CUSTODY_RETURNED) {
		en_note_give(e, &e->notify->out, n);
		return false;
	}
	n->op = op;
	n->op_event = *what;
	n->peer = atomic_load(&p->handle);
	head = atomic_load_explicit(&p->riders, memory_order_relaxed);
	do {
		n->next = head;
	} while (!atomic_compare_exchange_weak_explicit(&p->riders, &head, n, memory_order_release,
							memory_order_relaxed));
	en_work(e, &p->work);
	return true;
}

/* ---- Receiving -------------------------------------------------------------------------------------------- */
static void let_go(struct escrow_engine *e, struct notify *n)
{
	if (atomic_fetch_sub(&n->holders, 1) == 1)
		en_note_give(e, &e->notify->in, n);
}

static void message_polled(struct escrow_engine *e, struct event_node *node)
{
	let_go(e, node->object);
}

/* locked */
void en_note_arrived(struct escrow_engine *e, struct peer *p, struct notify *n)
{
	struct notify_pool *pool = e->notify;

	n->next = NULL;
	if (pool->tail)
		pool->tail->next = n;
	else
		pool->head = n;
	pool->tail = n;
	n->peer = atomic_load(&p->handle);
	atomic_store(&n->holders, 2);
	n->node.polled = message_polled;
	n->node.object = n;
	event_send(e, &n->node,
		   &(struct event_what){.kind = ESCROW_EV_MESSAGE,
					.user = p->user,
					.object = n->peer,
					.bytes = n->length});
}

static escrow_status notify_receive(struct escrow_engine *e, uint64_t *peer, void *buf,
				    uint64_t *len)
{
	escrow_status st = ESCROW_OK;
	struct notify *n;

	if (!engine_here(e))
		return ESCROW_E_STATE;
	if (!peer || !len || (!buf && *len))
		return ESCROW_E_INVALID;
	engine_lock(e);
	n = e->notify->head;
	if (!n) {
		st = ESCROW_E_AGAIN;
	} else if (*len < n->length) {
		*len = n->length;
		st = ESCROW_E_TOO_SMALL;
	} else {
		e->notify->head = n->next;
		if (!n->next)
			e->notify->tail = NULL;
		*len = n->length;
		*peer = n->peer;
		if (n->length)
			memcpy(buf, n->bytes, n->length);
		let_go(e, n);
	}
	engine_unlock(e);
	return st;
}

static const struct escrow_notify table = {
	.size = sizeof(struct escrow_notify),
	.send = notify_send,
	.transfer = notify_transfer,
	.receive = notify_receive,
};

const void *en_notify_table(void)
{
	return &table;
}
