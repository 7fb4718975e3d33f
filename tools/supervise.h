/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parts of `escrow supervise`.  All run in the main loop of one thread.
 *
 * What it promises: "fenced X" is published only when no process that can hold X's device files is
 * left.  Until then, and for ever if the supervisor itself is killed, it says nothing.
 */
#ifndef TOOLS_SUPERVISE_H
#define TOOLS_SUPERVISE_H

#include <stdbool.h>
#include <sys/types.h>

#include <gio/gio.h>

#define INCARNATION_HEX 32u

/* ---- supervise-file.c: the record that outlives the supervisor ------------------------------------ */
/*
 * Adds a line "fenced HEX" for each of `incarnations` (hex texts) to the file, keeping the last 4096:
 * a new file under its name, both on disk.  Supervisors may share one.  With none: shows that it can.
 */
bool fence_file_add(const char *path, const GPtrArray *incarnations, GError **error);

/* ---- supervise-tree.c: the processes --------------------------------------------------------------- */
/* True if `pid` descends from this process. */
bool tree_has(pid_t pid);
/* The descendants that there are, zombies included: GArray of pid_t. */
GArray *tree_list(void);
/* "12 (name), 13 (name)". */
char *tree_text(const GArray *pids);
/* Starts the command in a process group of its own with this signal mask; -1 and *error. */
pid_t tree_start(char **command, const sigset_t *mask, GError **error);

/* Processes with a file of an RDMA device open, of those that we may look at: GArray of pid_t. */
GArray *device_holders(void);

/* ---- supervise-contexts.c: files that went to somebody who is not below us -------------------------- */
struct contexts;

struct contexts *contexts_new(void);
void contexts_free(struct contexts *contexts);
/* Remembers the device contexts that processes below us have open now. */
void contexts_note(struct contexts *contexts);
/* How many of those the kernel still lists. */
guint contexts_left(struct contexts *contexts);
/* How it was decided that nobody holds anything, for people. */
char *contexts_text(const struct contexts *contexts);

/* ---- supervise-serve.c: the socket ------------------------------------------------------------------ */
struct fence_server;

/*
 * Serves at `path`.  A process that descends from us says "engine HEX\n" and hears "known HEX\n";
 * on_engine is called before the answer.  Whoever is connected hears "fenced HEX\n".
 */
struct fence_server *fence_serve(const char *path,
				 void (*on_engine)(void *ctx, const char *hex, pid_t pid),
				 void *ctx, GError **error);
void fence_server_tell(struct fence_server *server, const char *hex);
/* Ends all connections, after what was told, and removes the socket. */
void fence_server_free(struct fence_server *server);

#endif
