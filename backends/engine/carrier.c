/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * carrier.c - what carries messages on a rail: memory that is registered there, sends and receives on the
 * first connection of the rail.  The order of messages, and what becomes of one whose carrier broke, is
 * channel.c's.
 *
 * A receive is posted for every credit the peer has, so no send ever meets an empty receive queue.
 */
#include "backends/engine/engine.h"

#include <string.h>

#define RECEIVES(e) ((uint32_t)(e)->config.recv_depth)

/* A receive's id: the kind, the peer's slot, some of the connection's epoch, the rail, its number. */
#define ID_PEER 24
#define ID_EPOCH 14
#define ID_RAIL 10
#define ID_NUMBER ((1u << ID_RAIL) - 1)
#define ID_EPOCHS ((1u << (ID_PEER - ID_EPOCH)) - 1)

static uint8_t *send_at(struct carrier *ca, uint32_t i)
{
	return ca->memory + (size_t)i * MESSAGE_BYTES;
}

const uint8_t *en_carrier_message(struct carrier *ca, uint32_t i)
{
	return send_at(ca, MESSAGE_SLOTS + i);
}

static uint64_t recv_id(struct carrier *ca, uint32_t i)
{
	struct peer *p = ca->peer;

	return CHANNEL_ID << 56 | (uint64_t)(p - p->e->peers) << ID_PEER |
	       (uint64_t)(atomic_load(&ca->conn->epoch) & ID_EPOCHS) << ID_EPOCH |
	       (uint64_t)ca->conn->rail << ID_RAIL | i;
}

/* lane */
static int post_receive(struct escrow_engine *e, struct carrier *ca, uint32_t i)
{
	int rc;

	if (!ca->conn->native)
		return 0;
	rc = e->ops->post_recv(ca->conn->native, recv_id(ca, i), ca->native,
			       (uint64_t)(uintptr_t)en_carrier_message(ca, i), MESSAGE_BYTES);
	if (!rc)
		ca->owed[i / 64] |= UINT64_C(1) << i % 64;
	return rc;
}

/* lane. One that is not posted: the device told of it before. */
static bool is_owed(struct carrier *ca, uint32_t i)
{
	uint64_t bit = UINT64_C(1) << i % 64;
	bool owed = ca->owed[i / 64] & bit;

	ca->owed[i / 64] &= ~bit;
	return owed;
}

/* ---- Made and ended with its connection ------------------------------------------------------------ */
static escrow_status register_memory(struct escrow_engine *e, struct carrier *ca)
{
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = ca->memory,
					  .length = ca->bytes,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	struct ledger_owner_args owner = {.kind = ESCROW_OWNER_CONTROL,
					  .steps = LEDGER_STEP_BIT(ESCROW_STEP_DEREGISTER),
					  .parent = ca->conn->lane->context->owner,
					  .addr = (uint64_t)(uintptr_t)ca->memory,
					  .length = ca->bytes};
	escrow_status st = ledger_owner_add(e->ledger, &owner, &ca->owner, NULL);

	if (st < 0)
		return st;
	engine_unlock(e);
	st = en_memlock_register(e, ca->conn->lane->context, &args, &ca->native);
	engine_lock(e);
	if (st < 0) {
		ledger_owner_undo(e->ledger, ca->owner);
		ca->owner = 0;
		return st;
	}
	ledger_owner_event(e->ledger, ca->owner, LEDGER_E_READY);
	/* Receives are posted into it: the connection keeps it. */
	ledger_pin(e->ledger, ca->conn->owner, ca->owner);
	return ESCROW_OK;
}

static void begin(struct carrier *ca, struct conn *c)
{
	uint32_t i;

	ca->peer = c->peer;
	ca->conn = c;
	/* Of what was sent on its last connection nothing may have arrived. */
	if (c->peer->channel.rail == c->rail)
		en_channel_again(c->peer);
	ca->owner = 0;
	ca->native = NULL;
	ca->credits = ca->depth = 0;
	ca->heard = ca->reposted = ca->told = 0;
	ca->rx_head = ca->rx_tail = 0;
	memset(ca->owed, 0, sizeof(ca->owed));
	for (i = 0; i < MESSAGE_SLOTS; i++)
		ca->slots[i] = (struct message_slot){.carrier = ca, .index = i};
}

uint64_t en_carrier_bytes(const struct escrow_engine *e)
{
	return (uint64_t)(MESSAGE_SLOTS + RECEIVES(e)) * MESSAGE_BYTES;
}

escrow_status en_carrier_open(struct escrow_engine *e, struct conn *c)
{
	struct carrier *ca = en_carrier_of(c);
	escrow_status st;
	uint32_t i;
	int rc = 0;

	if (!ca)
		return ESCROW_OK;
	st = en_channel_open(e, c->peer);
	if (st < 0)
		return st;
	ca->bytes = en_carrier_bytes(e);
	engine_unlock(e);
	ca->memory = e->host.dma_alloc(e->host.ctx, ca->bytes, MESSAGE_BYTES);
	engine_lock(e);
	if (!ca->memory)
		return ESCROW_E_NO_MEMORY;
	memset(ca->memory, 0, ca->bytes);
	en_lane_lock(c->lane);
	begin(ca, c);
	en_lane_unlock(c->lane);
	st = register_memory(e, ca);
	if (st < 0)
		return st;
	en_lane_lock(c->lane);
	for (i = 0; i < RECEIVES(e) && rc == 0; i++)
		rc = post_receive(e, ca, i);
	en_lane_unlock(c->lane);
	return rc ? ESCROW_E_DEVICE : ESCROW_OK;
}

void en_carrier_credit(struct conn *c, uint32_t depth)
{
	struct carrier *ca = en_carrier_of(c);

	if (ca)
		ca->credits = ca->depth = depth;
}

/* True: the registration has ended, and with it what the device may do to the memory. */
static bool end_registration(struct escrow_engine *e, struct carrier *ca, const uint8_t *memory)
{
	struct native_region *native = ca->native;
	uint64_t owner = ca->owner;
	int rc;

	ca->owner = 0;
	if (!owner)
		return true;
	if (en_owner_gone(e, owner)) {
		en_lane_lock(ca->conn->lane);
		ca->native = NULL;
		en_lane_unlock(ca->conn->lane);
		return true;
	}
	if (ca->conn->stage != CONN_QUARANTINED)
		ledger_unpin(e->ledger, ca->conn->owner, owner);
	ledger_owner_event(e->ledger, owner, LEDGER_E_STOP);
	en_sync_lanes(e);
	if (ledger_step_begin(e->ledger, owner, ESCROW_STEP_DEREGISTER, NULL) < 0) {
		ledger_quarantine(e->ledger, owner, "its connection is stuck");
		return false;
	}
	en_lane_lock(ca->conn->lane);
	ca->native = NULL;
	en_lane_unlock(ca->conn->lane);
	rc = en_step(ca->conn->lane->context, ESCROW_STEP_DEREGISTER, native);
	if (ledger_step_end(e->ledger, owner, ESCROW_STEP_DEREGISTER, rc) < 0)
		return false;
	en_memlock_gone(e, (uintptr_t)memory, ca->bytes);
	return true;
}

/* The connection is gone or quarantined; in the second case the memory stays with it. */
void en_carrier_close(struct escrow_engine *e, struct conn *c)
{
	struct carrier *ca = en_carrier_of(c);
	uint8_t *memory = ca ? ca->memory : NULL;

	if (!memory)
		return;
	ca->memory = NULL;
	if (!end_registration(e, ca, memory)) {
		c->peer->stuck = 1;
		return;
	}
	engine_unlock(e);
	e->host.dma_free(e->host.ctx, memory);
	engine_lock(e);
}

/* ---- Sending ----------------------------------------------------------------------------------- */
static struct message_slot *free_slot(struct carrier *ca)
{
	uint32_t i;

	for (i = 0; i < MESSAGE_SLOTS; i++)
		if (!ca->slots[i].busy)
			return &ca->slots[i];
	return NULL;
}

void en_channel_sent(struct message_slot *slot)
{
	struct carrier *ca = slot->carrier;

	slot->busy = 0;
	if (atomic_exchange(&ca->waits, 0))
		en_work(ca->peer->e, &ca->peer->work);
}

static escrow_status post_send(struct escrow_engine *e, struct carrier *ca,
			       struct message_slot *slot, uint32_t length)
{
	struct conn *c = ca->conn;
	struct native_sge sge = {.addr = (uint64_t)(uintptr_t)send_at(ca, slot->index),
				 .length = length,
				 .key = e->ops->region_key(ca->native)};
	struct native_wr wr = {
		.opcode = NATIVE_SEND, .flags = NATIVE_SIGNALED, .nsge = 1, .sge = &sge};
	struct ledger_done done;
	uint32_t posted;
	escrow_status st = ledger_wr_lend(c->lane->ledger, c->owner, LEDGER_WR_MESSAGE,
					  (uint64_t)(uintptr_t)slot, &wr.id);

	if (st < 0)
		return st;
	slot->busy = 1;
	ledger_wr_holds(c->lane->ledger, wr.id, ca->owner);
	en_post(e, c, ESCROW_STEP_POST, &wr, 1, &posted);
	if (!posted) {
		ledger_rejected(c->lane->ledger, c->owner, 1, &done, 1);
		slot->busy = 0;
		en_conn_broken(c);
		return ESCROW_E_PEER_LOST;
	}
	return ESCROW_OK;
}

escrow_status en_carrier_post(struct carrier *ca, const struct wire_message *m, const void *payload)
{
	struct escrow_engine *e = ca->peer->e;
	struct message_slot *slot;
	escrow_status st = ESCROW_E_AGAIN;

	en_lane_lock(ca->conn->lane);
	atomic_store(&ca->waits, 1);
	slot = free_slot(ca);
	if (slot) {
		if (m->length)
			memcpy(send_at(ca, slot->index) + WIRE_MESSAGE_HEADER, payload, m->length);
		wire_message_put(m, send_at(ca, slot->index));
		st = post_send(e, ca, slot, WIRE_MESSAGE_HEADER + m->length);
	}
	en_lane_unlock(ca->conn->lane);
	if (st == ESCROW_OK)
		ca->credits--;
	return st;
}

/* ---- Receiving ------------------------------------------------------------------------------------ */
void en_channel_received(struct lane *lane, const struct native_cqe *cqe)
{
	struct escrow_engine *e = lane->e;
	uint32_t at = (uint32_t)(cqe->id >> ID_PEER), i = (uint32_t)cqe->id & ID_NUMBER;
	uint32_t rail = (uint32_t)(cqe->id >> ID_RAIL) & (NATIVE_MAX_RAILS - 1);
	uint32_t epoch = (uint32_t)(cqe->id >> ID_EPOCH) & ID_EPOCHS;
	struct carrier *ca;

	if (at >= e->config.max_peers || rail >= e->nrails || i >= RECEIVES(e))
		return;
	ca = &e->peers[at].carriers[rail];
	/* Flushed: nobody reads it, and its slots return with the connection.  Of an earlier life: the same. */
	if (cqe->status != NATIVE_OK || !ca->native || ca->conn->lane != lane ||
	    (atomic_load(&ca->conn->epoch) & ID_EPOCHS) != epoch)
		return;
	/* Posted again for it, the receive would be two, and one would write over what the other got. */
	if (!is_owed(ca, i) || ca->rx_tail - ca->rx_head >= RECEIVES(e)) {
		engine_count(&e->counters.anomalies, 1);
		return;
	}
	ca->received[ca->rx_tail++ % RECEIVES(e)] =
		i | (cqe->bytes < MESSAGE_BYTES ? cqe->bytes : MESSAGE_BYTES) << 16;
	engine_count(&e->counters.receives, 1);
	en_work(e, &ca->peer->work);
}

bool en_carrier_peek(struct carrier *ca, uint32_t *i, uint32_t *bytes)
{
	bool some;

	if (!ca->native || !ca->memory)
		return false;
	en_lane_lock(ca->conn->lane);
	some = ca->rx_head != ca->rx_tail;
	if (some) {
		uint32_t v = ca->received[ca->rx_head % RECEIVES(ca->peer->e)];

		*i = v & 0xffff;
		*bytes = v >> 16;
	}
	en_lane_unlock(ca->conn->lane);
	return some;
}

/* The runner has a copy: the receive is posted again.  Where that is refused the peer would have one credit less for good. */
void en_carrier_taken(struct carrier *ca, uint32_t i)
{
	en_lane_lock(ca->conn->lane);
	ca->rx_head++;
	if (post_receive(ca->peer->e, ca, i) == 0)
		ca->reposted++;
	else
		en_conn_broken(ca->conn);
	en_lane_unlock(ca->conn->lane);
}
