/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keys.h - the keys of a grant on connections that came back since it was exported (remote.c, offer.c);
 * included by engine.h, words as in parts.h.
 */
#ifndef ENGINE_KEYS_H
#define ENGINE_KEYS_H

/*
 * A key is told by its connection's epoch.  Those that never went have that of the set, all the same one: of them
 * the exported bytes have the keys.
 */
static inline bool conn_came_back(const struct peer *p, uint32_t epoch)
{
	return epoch != (uint32_t)p->epoch;
}

/* runner. The key of an imported grant on a connection that came back, or that there is none to come. */
void en_remote_key(struct escrow_engine *e, struct peer *p, const struct wire_message *m);
/* runner. What was imported and has no key on any connection of now: its owner is to be asked. */
void en_remotes_ask(struct escrow_engine *e, struct peer *p);
/* locked. What has none by then is asked for again, if somebody waits for it. */
void en_remotes_ask_later(struct escrow_engine *e, struct peer *p);
/* runner. If that time has come. */
void en_remotes_ask_again(struct escrow_engine *e, struct peer *p);
/* runner. A grant of ours was imported with keys that are not those of now. */
void en_keys_asked(struct escrow_engine *e, struct peer *p, const struct wire_message *m);

/* locked. Bound on a connection that came back, for a grant whose importer has the keys of the others. */
void en_key_tell(struct escrow_engine *e, struct window *w);

#endif
