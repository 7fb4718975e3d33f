/* SPDX-License-Identifier: BSD-2-Clause */
/* close.h - drains, the loss of a device, and the end (drain.c, close.c, open.c); included by engine.h, words as in parts.h. */
#ifndef ENGINE_CLOSE_H
#define ENGINE_CLOSE_H

void en_engine_advance(struct escrow_engine *e);
void en_drain_peer(struct escrow_engine *e, struct peer *p, uint64_t now);
void en_drain_peer_ends(struct escrow_engine *e, struct peer *p);
void en_drain_check(struct escrow_engine *e, uint64_t now);
void en_drain_end(struct escrow_engine *e, escrow_status why);
/* runner */
void en_context_fatal(struct escrow_engine *e, struct context *c);
/* runner. What is quarantined of an engine that was fenced (ext.c). */
void en_fence_apply(struct escrow_engine *e);
/* Frees the memory of an engine that open made; not the ledger. */
void en_free(struct escrow_engine *e);
/* The arguments of open: *a, *host and name are copies. */
escrow_status en_open_check(const struct escrow_open_args *from, struct escrow_open_args *a,
			    struct escrow_host *host, char name[64], struct escrow_error *error);

#endif
