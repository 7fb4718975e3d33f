/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of a backend that is the same in all of them: arguments, events, regions, the life cycle. */
#ifndef SKELETON_ENGINE_H
#define SKELETON_ENGINE_H

#include <escrow/backend.h>

#define REVISION 1u /* the one this source was written for; ESCROW_REVISION may grow */

/* What a struct measured in revision 1, up to and with its last member of then. */
#define SIZE_1(type, last) (offsetof(struct type, last) + sizeof(((struct type *)0)->last))

/* Bit per state in which a slot is legal: escrow-abi(7) has the table. */
#define IN(s) (1u << ESCROW_STATE_##s)
#define IN_LIVE (IN(OPEN) | IN(QUIESCED) | IN(DRAINING) | IN(DRAINED))

/* Fills what the caller lent us to say why; the text names the value and what is allowed. */
escrow_status fail(struct escrow_error *error, escrow_status status, const char *what,
		   const char *value, const char *allowed);

/*
 * Copies the 'known' bytes that a struct had in revision 1, the one we were written for, whatever it
 * measures in the header we are compiled with. A shorter one is wrong. What comes behind must be zero,
 * since the caller asks for something there that would be ignored.
 */
escrow_status take_args(void *copy, size_t known, const void *args);

/* Of a peer or an engine: 1..63 bytes. */
int name_is_good(const char *name);

/* Every slot that asks for a state begins with enter; with OK the lock is held until leave. */
escrow_status enter(struct escrow_engine *engine, uint32_t legal, uint32_t flags);
escrow_status leave(struct escrow_engine *engine, escrow_status status);

/* What an invitation carries so far: who invites. A transport adds addresses and a ticket. */
struct invitation {
	uint8_t magic[8];
	uint8_t incarnation[16];
};
const uint8_t *engine_incarnation(const struct escrow_engine *engine); /* 16 bytes */

/* Slots, as <escrow/backend.h> documents them. */
void slot_release(struct escrow_engine *engine);
escrow_status slot_open(const struct escrow_open_args *given, struct escrow_engine **engine_out,
			struct escrow_error *error);
escrow_status slot_query(struct escrow_engine *engine, struct escrow_limits *limits);
escrow_status slot_register(struct escrow_engine *engine, const struct escrow_region_args *given,
			    uint64_t *handle_out, struct escrow_error *error);
escrow_status slot_deregister(struct escrow_engine *engine, uint64_t handle, uint32_t flags);
int32_t slot_poll(struct escrow_engine *engine, struct escrow_event *events, uint32_t max,
		  uint32_t stride, uint32_t flags);
escrow_status slot_quiesce(struct escrow_engine *engine, uint32_t flags);
escrow_status slot_resume(struct escrow_engine *engine, uint32_t flags);
escrow_status slot_drain(struct escrow_engine *engine, uint64_t peer, uint64_t deadline_ns,
			 uint32_t flags);
escrow_status slot_close(struct escrow_engine *engine, uint64_t deadline_ns, uint32_t mode);

#endif
