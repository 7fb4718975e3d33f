/* SPDX-License-Identifier: BSD-2-Clause */
#include "backends/engine/state.h"

#define IN(state) (1u << ESCROW_STATE_##state)
#define ALIVE (IN(OPEN) | IN(QUIESCED) | IN(DRAINING) | IN(DRAINED))
#define EVERY (ALIVE | IN(CLOSING) | IN(QUARANTINED) | IN(FAILED) | IN(CLOSED))

/* A test holds these lines against abi/states.tsv. */
static const struct {
	const char *name;
	uint32_t states;
} slots[STATE_SLOTS] = {
	[SLOT_RELEASE] = {"release", IN(QUARANTINED) | IN(CLOSED)},
	[SLOT_QUERY] = {"query", EVERY},
	[SLOT_REGISTER_MEMORY] = {"register_memory", IN(OPEN)},
	[SLOT_DEREGISTER_MEMORY] = {"deregister_memory", ALIVE},
	[SLOT_INVITE] = {"invite", IN(OPEN)},
	[SLOT_CONNECT] = {"connect", IN(OPEN)},
	[SLOT_DISCONNECT] = {"disconnect", ALIVE},
	[SLOT_PEER_INFO] = {"peer_info", ALIVE | IN(CLOSING)},
	[SLOT_GRANT] = {"grant", IN(OPEN)},
	[SLOT_EXPORT_GRANT] = {"export_grant", ALIVE},
	[SLOT_REVOKE] = {"revoke", ALIVE},
	[SLOT_IMPORT_GRANT] = {"import_grant", IN(OPEN)},
	[SLOT_FORGET_GRANT] = {"forget_grant", ALIVE},
	[SLOT_TRANSFER] = {"transfer", 1u << STATE_TRANSFER},
	[SLOT_CANCEL] = {"cancel", ALIVE | IN(CLOSING)},
	[SLOT_POLL] = {"poll", EVERY},
	[SLOT_EVENT_FD] = {"event_fd", EVERY},
	[SLOT_ARM] = {"arm", EVERY & ~IN(CLOSED)},
	[SLOT_QUIESCE] = {"quiesce", IN(OPEN) | IN(QUIESCED)},
	[SLOT_RESUME] = {"resume", ALIVE},
	[SLOT_DRAIN] = {"drain", IN(OPEN) | IN(QUIESCED) | IN(DRAINED)},
	[SLOT_CLOSE] = {"close", EVERY},
	[SLOT_CHARGES] = {"charges", EVERY},
	[SLOT_RECORDS] = {"records", EVERY},
	[SLOT_GET_EXTENSION] = {"get_extension", EVERY},
};

bool state_allows(enum state_slot slot, uint32_t state)
{
	return state <= ESCROW_STATE_CLOSED && (slots[slot].states & (1u << state)) != 0;
}

const char *state_slot_name(enum state_slot slot)
{
	return slots[slot].name;
}

const char *state_name(uint32_t state)
{
	static const char *const names[] = {"?",           "OPEN",    "QUIESCED",
					    "DRAINING",    "DRAINED", "CLOSING",
					    "QUARANTINED", "FAILED",  "CLOSED"};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : names[0];
}
