/* SPDX-License-Identifier: BSD-2-Clause */
/* reach.h - a connected pair whose first engine is brought into any state of the state machine. */
#ifndef CONFORM_REACH_H
#define CONFORM_REACH_H

#include "tests/conform/case.h"
#include "tests/conform/pair.h"

struct reach {
	struct conform *c;
	struct pair pair;
	struct share used;                   /* b's range that a may use */
	struct share lent;                   /* a's range that b may use */
	uint8_t invitation[INVITATION_ROOM]; /* of b, unused */
	uint64_t invitation_len;
	uint8_t exported[GRANT_ROOM]; /* of b, not yet imported */
	uint64_t exported_len;
	struct memory local; /* a's, for ops */
	uint32_t state;
};

void reach_open(struct reach *r, struct conform *c);

/* Brings pair.a there; a CLOSING engine may leave that state at any poll. */
void reach_state(struct reach *r, uint32_t state);

/* Ends both engines, whatever state they are in. */
void reach_close(struct reach *r);

#endif
