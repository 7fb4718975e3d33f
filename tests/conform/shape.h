/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shape.h - the argument structs of the control plane: good ones of each, and the call that takes
 * them, so that a case can spoil one thing and see it refused.
 */
#ifndef CONFORM_SHAPE_H
#define CONFORM_SHAPE_H

#include "tests/conform/pair.h"

#define SHAPE_ROOM 512u

/* What good arguments need: engines, a peer, memory. */
struct shapes {
	const struct subject *subject;
	struct engine *en; /* makes the calls */
	struct engine *other;
	struct pair pair; /* opened when peer or grant args are asked for */
	bool paired;
	struct host host; /* of engines that open makes */
	struct memory mem;
	struct buffer raw; /* not registered */
	uint8_t invitation[INVITATION_ROOM];
	uint64_t invitation_len;
};

struct shape {
	const char *name;
	size_t size;
	void (*fill)(struct shapes *all, void *args);
	/* The raw call with args as they are.  What it makes is ended again, or by shapes_close. */
	escrow_status (*call)(struct shapes *all, const void *args);
};

const struct shape *shape_find(const char *name);
void shapes_open(struct shapes *all, const struct subject *s);
void shapes_close(struct shapes *all);

#endif
