/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * escrow/notify.h - messages between engines: extension "org.escrow.notify/1".
 *
 * Whole, ordered per sender, of any length from zero to max_message_bytes (at least 65536), sent
 * alone or riding on an op.  A message that rides on an op can be received only after all bytes of
 * that op are visible in the memory of the peer.  Back-pressure is ESCROW_E_AGAIN, never a drop.
 *
 * The order of what is sent to one peer: messages sent alone come in the order of the calls.  One
 * that rides on an op takes its place among them once that op has ended with EXECUTED, and before
 * its OP_DONE: those that ride come in the order in which their ops ended, which may be another
 * than that in which they were submitted.
 *
 * Part of revision 1; threads, blocking, pointers and errors as in escrow/backend.h.
 */
#ifndef ESCROW_NOTIFY_H
#define ESCROW_NOTIFY_H

#include <escrow/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ESCROW_NOTIFY_ID "org.escrow.notify/1"

struct escrow_notify {
	uint32_t size;
	uint32_t reserved0;

	/*
	 * [any] NB.  Sends len bytes at msg (in-call) to a peer that is up: OK, and then exactly
	 * one MESSAGE_SENT with `user`: OK when the peer's engine has taken it, or why not.
	 * E_AGAIN: too many are under way, ROOM follows.  E_LIMIT: len.  E_PEER_LOST.  flags 0.
	 */
	escrow_status (*send)(struct escrow_engine *engine, uint64_t peer, const void *msg,
			      uint64_t len, uint64_t user, uint32_t flags);

	/*
	 * [data] NB.  As transfer of one WRITE or READ, and when it has ended with EXECUTED the
	 * message goes to the peer of op->remote; OP_DONE comes when both are done.  If the op
	 * fails no message is sent.  Returns 1 or a status < 0.
	 */
	int32_t (*transfer)(struct escrow_engine *engine, const struct escrow_op *op,
			    const void *msg, uint64_t len, uint64_t *id);

	/*
	 * [ctl] NB.  The oldest message that has arrived: its peer, and its bytes into buf
	 * (out-caller, two-call length).  E_AGAIN: none is waiting.  Each arrival is told by one
	 * MESSAGE event.  A message may be received after its sender went down.
	 */
	escrow_status (*receive)(struct escrow_engine *engine, uint64_t *peer, void *buf,
				 uint64_t *len);
};

#ifdef __cplusplus
}
#endif
#endif
