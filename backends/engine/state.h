/* SPDX-License-Identifier: BSD-2-Clause */
/* state.h - which slot is legal in which state of the engine: abi/states.tsv as code. */
#ifndef ENGINE_STATE_H
#define ENGINE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include <escrow/backend.h>

/* In the order of struct escrow_ops; `open` has no engine and so no state. */
enum state_slot {
	SLOT_RELEASE,
	SLOT_QUERY,
	SLOT_REGISTER_MEMORY,
	SLOT_DEREGISTER_MEMORY,
	SLOT_INVITE,
	SLOT_CONNECT,
	SLOT_DISCONNECT,
	SLOT_PEER_INFO,
	SLOT_GRANT,
	SLOT_EXPORT_GRANT,
	SLOT_REVOKE,
	SLOT_IMPORT_GRANT,
	SLOT_FORGET_GRANT,
	SLOT_TRANSFER,
	SLOT_CANCEL,
	SLOT_POLL,
	SLOT_EVENT_FD,
	SLOT_ARM,
	SLOT_QUIESCE,
	SLOT_RESUME,
	SLOT_DRAIN,
	SLOT_CLOSE,
	SLOT_CHARGES,
	SLOT_RECORDS,
	SLOT_GET_EXTENSION,
	STATE_SLOTS
};

/* Any thread, pure.  state: ESCROW_STATE_*. */
bool state_allows(enum state_slot slot, uint32_t state);
/* The same for transfer, without the table. */
#define STATE_TRANSFER ESCROW_STATE_OPEN
static inline bool state_transfers(uint32_t state)
{
	return state == STATE_TRANSFER;
}
/* "register_memory", for texts and for the test that compares this with abi/states.tsv. */
const char *state_slot_name(enum state_slot slot);
const char *state_name(uint32_t state);

#endif
