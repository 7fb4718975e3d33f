/* SPDX-License-Identifier: BSD-2-Clause */
/* pair.h - two engines of one process that are connected, and ranges that one lends the other. */
#ifndef CONFORM_PAIR_H
#define CONFORM_PAIR_H

#include "tests/conform/engine.h"
#include "tests/conform/guard.h"

/* The names that each side has for the other. */
#define PAIR_A "peer-a"
#define PAIR_B "peer-b"

struct pair {
	struct engine *a; /* it connects */
	struct engine *b; /* it invites */
	uint64_t a_peer;  /* a's handle of b */
	uint64_t b_peer;  /* b's handle of a */
};

/* Memory of an engine's, registered. */
struct memory {
	struct buffer buf;
	uint64_t region;
};

/* A range of the owner's, granted to the user and imported there. */
struct share {
	struct engine *owner;
	struct engine *user;
	struct memory mem;
	uint64_t grant;
	uint64_t remote;
};

void memory_register(struct engine *en, struct memory *m, size_t bytes);
void memory_deregister(struct engine *en, struct memory *m); /* and waits for the bytes */

/* Makes invitation bytes of `en` for a named peer (NULL: INVITE_ANY). */
void pair_invite(struct engine *en, const char *peer_name, uint64_t expires_ns, void *buf,
		 uint64_t *len);
#define INVITATION_ROOM 4096u
#define GRANT_ROOM 4096u

/* connect with that invitation; the handle of the new peer. */
uint64_t pair_connect_to(struct engine *en, const char *peer_name, const void *invitation,
			 uint64_t len);

/* Two new engines, and their connection. */
void pair_open(struct pair *p, const struct subject *s);
void pair_open_with(struct pair *p, const struct subject *sa, const struct subject *sb);
void pair_connect(struct pair *p);
void pair_close(struct pair *p);

/* The owner's grant over all of mem to `peer`, in its exported form. */
uint64_t pair_grant(struct engine *owner, uint64_t peer, const struct memory *mem, uint32_t rights,
		    void *bytes, uint64_t *len);
uint64_t pair_import(struct engine *user, uint64_t peer, const void *bytes, uint64_t len);

/* b lends `bytes` to a, or a to b with `reverse`. */
void pair_share(struct pair *p, bool reverse, size_t bytes, uint32_t rights, struct share *s);
void pair_unshare(struct share *s);

/* One op over one range of local memory; its handle. */
struct escrow_op pair_op(uint32_t opcode, const struct share *s, uint64_t remote_offset,
			 const struct escrow_sge *sge);
uint64_t pair_start(struct engine *en, const struct escrow_op *op);
/* The same, and its OP_DONE, which must be OK, RETURNED and EXECUTED. */
void pair_move(struct engine *en, const struct escrow_op *op, uint64_t bytes);

#endif
